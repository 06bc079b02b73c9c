// SPDX-License-Identifier: Apache-2.0
// The mappings of one address space: a sorted array, copied when it is shared
// and changes. Private to aspace.c and maps.c.
#ifndef OPD_MAPS_H
#define OPD_MAPS_H

#include "opd/aspace.h"

struct opd_maps {
    uint32_t references;
    uint32_t count, capacity;
    uint64_t version;
    struct opd_mapping items[];
};

struct opd_maps *opd_maps_share(struct opd_maps *maps); // NULL stays NULL
void opd_maps_drop(struct opd_maps *maps);

// Puts `mapping` over whatever it overlaps (cutting that), or with `gaps`
// only where nothing lies yet. *maps may be NULL and may be replaced.
// `version` becomes the array's when it changed: 1 changed, 0 not, -ENOSPC at
// `limit` items, -ENOMEM.
int opd_maps_put(struct opd_maps **maps, const struct opd_mapping *mapping, bool gaps,
                 uint32_t limit, uint64_t version);

#endif
