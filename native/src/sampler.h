// SPDX-License-Identifier: Apache-2.0
// Inside of the sampler, shared by sampler.c (life cycle, questions) and
// drain.c (the drain thread).
#ifndef OPD_SAMPLER_PRIVATE_H
#define OPD_SAMPLER_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "cost.h"
#include "opd/order.h"
#include "opd/sampler.h"
#include "ring.h"

// A record may become visible this much later than its time says: its writer
// was interrupted, or its virtual CPU descheduled, between clock and commit.
#define SETTLE_NS 10000000u
// How often the kernel is asked which of the known threads are gone.
#define SWEEP_EVERY_NS 20000000000u

// Samples wait at most so long in the rings.
#define PATIENCE_NS 1000000000u

struct opd_event_times {
    uint64_t enabled, running;
};

// A thread that is sampled, of a process that was asked for.
struct opd_target {
    uint32_t pid, tid;
};

struct opd_sampler {
    struct opd_sampler_options options;
    struct opd_pipeline *pipeline;
    struct opd_order *order;
    struct opd_record_layout layout;                  // of what are no samples
    struct opd_record_layout layouts[OPD_EVENTS_MAX]; // of the events' samples
    unsigned fields;                                  // of samples, OPD_RING_*
    struct opd_event_attr attrs[OPD_EVENTS_MAX];
    unsigned attr_count;

    pthread_mutex_t lock; // the rings, the order and the totals
    struct opd_ring *rings;
    size_t ring_count, ring_room;
    _Alignas(8) char bounce[1 << 16]; // a record that goes over a ring's end
    struct pollfd *polls;
    int wake_fd;
    struct opd_target *targets;
    size_t target_count, target_room;

    pthread_t thread;
    bool thread_started, started, paused;
    atomic_bool stopping;
    _Atomic uint64_t progress; // CLOCK_MONOTONIC of the last finished drain
    pthread_cond_t progressed;
    uint64_t swept;           // CLOCK_MONOTONIC of the last sweep
    uint64_t processed_until; // every record older than this was attributed

    struct opd_cost_batch copied, popped;
    struct opd_record batch[OPD_BATCH]; // samples that wait to be fed together
    uint32_t events[OPD_BATCH], batch_pids[OPD_BATCH];
    unsigned batched, batch_pops; // records popped since the first of them, itself included

    struct opd_event_times last_times[OPD_EVENTS_MAX]; // the taker's
    double least_running;

    struct opd_sampler_stats totals;
    uint64_t closed_lost_samples, closed_lost_sideband; // of rings closed since
    uint64_t closed_lost[OPD_EVENTS_MAX];
};

// With the lock held: copies the rings and attributes everything older than a
// safe time, or all there is.
void opd_sampler_drain(struct opd_sampler *sampler, bool everything);
// With the lock held: lets go of threads that are gone without a word.
void opd_sampler_sweep(struct opd_sampler *sampler);
// With the lock held: opens every target on a new ring, disabled. 0 or -errno.
int opd_sampler_open_targets(struct opd_sampler *sampler, struct opd_ring *ring);
// With the lock held: one more event of every target on all rings.
int opd_sampler_add_target_event(struct opd_sampler *sampler, unsigned number);
// With the lock held: reads /proc of every target; how many processes.
int opd_sampler_snapshot_targets(struct opd_sampler *sampler);
// The drain thread; its argument is the sampler.
void *opd_sampler_drain_main(void *argument);

#endif
