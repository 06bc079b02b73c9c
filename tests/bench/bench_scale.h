// SPDX-License-Identifier: Apache-2.0
// A recording of a few CPUs' rings, played as the rings of many.
#ifndef OPD_BENCH_SCALE_H
#define OPD_BENCH_SCALE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "opd/record.h"
#include "ring.h"

// A record of the recording; pids are numbered from 1.
struct played {
    uint64_t time; // ns since the first
    uint32_t size;
    uint32_t type;
    const uint8_t *bytes;
};

struct source {
    uint64_t sideband_id, sample_id;
    struct played *records;
    size_t count, room;
};

struct recording {
    uint8_t *file;
    struct source *sources; // the recorded CPUs
    unsigned source_count;
    struct opd_record_layout layout; // of samples
    uint64_t span;                   // ns, of one time through
    uint32_t pids;
    uint64_t samples, others;
};

// 0, or -errno with what is wrong in *why.
int recording_read(struct recording *recording, const char *path, const char **why);
void recording_free(struct recording *recording);

// Writes one of two CPUs, made up: processes that come and go, whose records
// are on another CPU than the samples that need them.
bool make_recording(const char *path);

// One ring of many: a copy of a recorded CPU's, again and again. Copies have
// processes of their own. Times are faster by `speed`.
struct player {
    const struct recording *recording;
    const struct source *source;
    struct opd_ring *ring;
    unsigned copy;
    double speed;
    bool samples; // else only what tells of processes
    size_t at;
    uint64_t round; // how often through
    uint64_t fed_samples, fed_records, full;
};

// A ring as the kernel would share it, in memory of our own. 0 or -errno.
int player_open(struct player *player, uint32_t cpu, size_t ring_bytes);
// Writes everything older than `until` (ns since the first).
void player_feed(struct player *player, uint64_t until);

#endif
