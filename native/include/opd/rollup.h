// SPDX-License-Identifier: Apache-2.0
// Flat sums over windows by (event, comm, image, mode, cgroup, symbol):
// samples, weight, and the sum over windows of the square of the key's weight
// in each. What a minute or an hour of the store holds. Single threaded.
#ifndef OPD_ROLLUP_H
#define OPD_ROLLUP_H

#include <stddef.h>
#include <stdint.h>

struct opd_rollup;

// The columns of a `groups` block (opd.store.blocks).
struct opd_rollup_groups {
    uint32_t sfiles, groups;
    const uint32_t *event, *comm, *image, *mode, *cgroup; // by sample file
    const uint64_t *unit;                                 // by sample file
    const uint32_t *sfile, *symbol;                       // by group
    const uint64_t *hits, *excess;                        // weight = hits * unit + excess
    const float *squares; // by group, of a roll-up's block; NULL: one window's groups
};

struct opd_rollup_columns {
    uint32_t sfiles, groups;
    uint32_t *event, *comm, *image, *mode, *cgroup;
    uint64_t *unit;
    uint32_t *sfile, *symbol;
    uint64_t *hits, *excess;
    float *squares; // 0 where there was one window only: it is weight squared
};

struct opd_rollup *opd_rollup_create(void); // NULL with errno ENOMEM
void opd_rollup_destroy(struct opd_rollup *rollup);
uint32_t opd_rollup_count(const struct opd_rollup *rollup);

// Adds the groups of one window, or a whole roll-up. 0, -EBADMSG when a group
// names a sample file that is not there, -ENOMEM (nothing is half added that
// a rollback would not drop with the whole object).
int opd_rollup_add(struct opd_rollup *rollup, const struct opd_rollup_groups *groups);

// All sums in the order of (event, comm, image, mode, cgroup, symbol), and empties
// the roll-up. *columns stay valid until the next call. 0 or -ENOMEM.
int opd_rollup_take(struct opd_rollup *rollup, const struct opd_rollup_columns **columns);

#endif
