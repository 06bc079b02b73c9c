// SPDX-License-Identifier: Apache-2.0
// Lanes: a descriptor and the record that the device writes, in memory that
// outlives every call; and the ways to wait for that record.
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "dsa_private.h"
#include "opd/ticks.h"

enum { CLOCK_EVERY = 1024, UMWAIT_TICKS = 100000, TRIES = 64 };

static uint8_t
status_of(const struct dsa_lane *lane)
{
    return __atomic_load_n(&lane->record.status, __ATOMIC_ACQUIRE);
}

struct dsa_lane *
dsa_lane_take(struct dsa_process *process, uint32_t hint)
{
    for (uint32_t i = 0; i < TRIES; i++) {
        struct dsa_lane *lane = &process->lanes[(hint + i) % DSA_LANES];
        uint32_t was = atomic_load_explicit(&lane->state, memory_order_relaxed);
        // A lost lane is one again once the device has written its record.
        if (was == DSA_TAKEN || (was == DSA_LOST && !status_of(lane)))
            continue;
        if (atomic_compare_exchange_strong_explicit(&lane->state, &was, DSA_TAKEN,
                                                    memory_order_acquire, memory_order_relaxed))
            return lane;
    }
    return NULL;
}

void
dsa_lane_give(struct dsa_lane *lane, bool lost)
{
    atomic_store_explicit(&lane->state, lost ? DSA_LOST : DSA_FREE, memory_order_release);
}

void
dsa_describe(struct dsa_lane *lane, uint32_t opcode, uint32_t flags, uint64_t source,
             uint64_t destination, uint32_t bytes)
{
    memset(&lane->record, 0, sizeof(lane->record));
    lane->descriptor = (struct opd_dsa_descriptor){
        .flags_opcode = opcode << 24 | flags | OPD_DSA_RECORD_VALID | OPD_DSA_RECORD_WANTED,
        .record = (uint64_t)(uintptr_t)&lane->record,
        .source = source,
        .destination = destination,
        .bytes = bytes,
    };
}

// One turn of waiting, which may be cut short or take no time.
static void
rest(const struct opd_dsa *dsa, struct dsa_lane *lane)
{
    switch (dsa->wait) {
    case OPD_DSA_UMWAIT:
        dsa_umonitor(&lane->record);
        if (!status_of(lane))
            dsa_umwait(opd_ticks() + UMWAIT_TICKS);
        break;
    case OPD_DSA_TPAUSE:
        dsa_tpause(opd_ticks() + dsa->tpause_ticks);
        break;
    case OPD_DSA_YIELD:
        sched_yield();
        break;
    default:
        dsa_relax();
    }
}

int
dsa_wait(const struct opd_dsa *dsa, struct dsa_lane *lane, uint64_t timeout_ns)
{
    // A pause takes some 40 ns; the others a thousand times that.
    uint32_t every = dsa->wait == OPD_DSA_BUSYPOLL ? CLOCK_EVERY : 8;
    uint64_t begin = 0;
    for (uint32_t turn = 1;; turn++) {
        uint8_t status = status_of(lane);
        if (status)
            return status;
        rest(dsa, lane);
        if (turn % every)
            continue;
        if (atomic_load_explicit(&dsa->process->state, memory_order_relaxed) == DSA_NOT_OPENED)
            return -1;
        uint64_t now = opd_raw_ns();
        if (!begin)
            begin = now;
        else if (now - begin > timeout_ns)
            return status_of(lane);
    }
}
