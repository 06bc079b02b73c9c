// SPDX-License-Identifier: Apache-2.0
// Feeds a recording through the pipeline, window by window.
#ifndef OPD_IMPORT_H
#define OPD_IMPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "opd/perfdata.h"
#include "opd/pipeline.h"

struct opd_import;

// An event of the pipeline, as numbered there.
struct opd_import_event {
    uint32_t attr;   // index of the recording's attr
    int32_t derived; // of its IBS records: index of the derived event (ibs.h), else -1
};

// Both stay the caller's. NULL with errno on ENOMEM. The recording's build-id
// table is given to the pipeline, its events are added as they appear, in the
// order of its attrs; behind the first attr of either IBS PMU that has raw
// records come all derived events of that PMU.
struct opd_import *opd_import_create(struct opd_perfdata *data, struct opd_pipeline *pipeline);
void opd_import_destroy(struct opd_import *import);

// Where facts come late (the pipe layout): those of the same recording, read to
// its end before. Adds its events; keeps nothing of it. Before the first feed.
// 0, or -errno as of feeding.
int opd_import_learn(struct opd_import *import, const struct opd_perfdata *ahead);

// The events added so far, in order of their numbers.
const struct opd_import_event *opd_import_events(const struct opd_import *import, size_t *count);
// Whether an attr's samples are of an IBS PMU: its flavour, or -1. `raw` (may
// be NULL): they have the registers, without which nothing can be derived.
int opd_import_ibs_flavour(const struct opd_import *import, size_t attr, bool *raw);

// Feeds records up to the first sample of time >= `until` (event clock, ns):
// 1 when there is one, 0 at the end of the recording, -errno (-ENOSPC: more
// events than OPD_EVENTS_MAX). *next_time (may be NULL) is that sample's time.
int opd_import_feed(struct opd_import *import, uint64_t until, uint64_t *next_time);

#endif
