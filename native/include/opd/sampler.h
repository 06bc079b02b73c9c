// SPDX-License-Identifier: Apache-2.0
// The live sampler: one ring a CPU, every event of that CPU redirected into
// it, one thread that drains, orders and attributes. Rings are opened over a
// list of CPUs; CPUs may come and go.
#ifndef OPD_SAMPLER_H
#define OPD_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "opd/pipeline.h"

// What samples carry beside what all do.
enum opd_event_raw {
    OPD_RAW_NONE = 0,
    OPD_RAW_RECORD = 1, // the PMU's own record (PERF_SAMPLE_RAW)
    OPD_RAW_MEMORY = 2, // and data address, physical address, source and weight
};

struct opd_event_attr {
    uint32_t type;
    uint64_t config, config1, config2;
    uint64_t rate; // samples a second with `frequency`, else the period
    bool frequency;
    bool exclude_user, exclude_kernel, exclude_hv, exclude_idle;
    uint8_t precise_ip;
    uint8_t raw; // enum opd_event_raw
};

struct opd_sampler_options {
    size_t ring_bytes;  // a ring's data, a power of two of pages
    size_t order_bytes; // copies held while they wait for their turn
    unsigned wake_ms;   // look at the rings at least this often; drain every second
    bool targeted;      // threads of given processes, not whole CPUs
    struct opd_pipeline_options pipeline;
};

struct opd_sampler;

void opd_sampler_defaults(struct opd_sampler_options *options);

// Opens the side-band event and the ring of each CPU. A CPU that is offline
// (-ENODEV) is left out. On failure NULL and errno: EACCES or EPERM not
// permitted (mmap: memlock), EMFILE, …; *failed_cpu tells where (may be NULL).
struct opd_sampler *opd_sampler_create(const struct opd_sampler_options *options,
                                       const uint32_t *cpus, size_t cpu_count, int32_t *failed_cpu);
// Stops the drain thread, drains what is left, closes everything.
void opd_sampler_destroy(struct opd_sampler *sampler);

// Opens one event on every CPU, not counting yet. Its number, or -errno of
// perf_event_open with nothing left open.
int opd_sampler_add_event(struct opd_sampler *sampler, const struct opd_event_attr *attr);

// With `targeted`: samples all threads that process `pid` has now, and every
// thread and process that they make from then on, on the sampler's CPUs; no
// other process pays anything. May be called before and after start. A thread
// made while /proc is being listed can be missed. An event is opened a thread
// and CPU. Returns how many threads, or -errno with nothing left open: -ESRCH
// no such process, -EACCES, -EPERM not permitted, -EMFILE too few descriptors.
int opd_sampler_add_process(struct opd_sampler *sampler, uint32_t pid);
// With `targeted`: whether `pid` lives and is sampled, by itself or by what made
// it, as far as records up to the last drain tell (opd_sampler_flush() first).
bool opd_sampler_covers(struct opd_sampler *sampler, uint32_t pid);
// Closes the events of threads that have ended with all that they made; how
// many targets are left. Costs a poll of all descriptors.
int opd_sampler_sweep_targets(struct opd_sampler *sampler);

struct opd_pipeline *opd_sampler_pipeline(struct opd_sampler *sampler);

// Enables the events, snapshots /proc and starts the drain thread.
int opd_sampler_start(struct opd_sampler *sampler);
// Sampling off and on again; the side-band goes on, so that maps stay true.
int opd_sampler_pause(struct opd_sampler *sampler, bool paused);
// Stops the events and the drain thread after a last drain; windows can
// still be taken.
int opd_sampler_stop(struct opd_sampler *sampler);

// Another rate for an event on all CPUs: samples a second, or a period, as it
// was opened with. What was sampled before keeps its weight. 0; -EINVAL more
// than the kernel allows; -ENOTSUP with `targeted`, whose inherited events
// cannot be reached.
int opd_sampler_set_rate(struct opd_sampler *sampler, unsigned event, uint64_t rate);

// Divides the limits on distinct stacks of a window that the pipeline was made
// with, to save memory: from now on stacks past them are cut to their leaf.
// Returns the number of stacks, or -EINVAL.
int opd_sampler_limit_stacks(struct opd_sampler *sampler, uint32_t divisor);

// Counts program counters of samples there, from now on; NULL: no more. A CPU
// that leaves is flushed.
void opd_sampler_set_tap(struct opd_sampler *sampler, struct opd_pc_tap *tap);

// Makes the rings those of these CPUs: opens new ones, closes the others.
// Returns how many CPUs have a ring now, or -errno when none could be opened.
int opd_sampler_set_cpus(struct opd_sampler *sampler, const uint32_t *cpus, size_t cpu_count);

// Returns once every record older than `until` (CLOCK_MONOTONIC ns) has been
// attributed: 0, or -ETIMEDOUT.
int opd_sampler_flush(struct opd_sampler *sampler, uint64_t until, int timeout_ms);

// Takes the window up to now; see opd_pipeline_take().
int opd_sampler_take(struct opd_sampler *sampler, int timeout_ms, struct opd_window **window);

// CPU time of the drain, ns. The sum of the first four is exact, how it divides
// among them an estimate (see cost.h). Beside them: reading /proc at start. What
// is left of drain_cpu_ns is wake-ups and giving windows away.
struct opd_sampler_cost {
    uint64_t drain_ns;     // copying rings, splitting them into records
    uint64_t order_ns;     // into and out of order of time
    uint64_t attribute_ns; // whose, where, by which chain; following mappings
    uint64_t hash_ns;      // counting the hit
    uint64_t snapshot_ns;
};

struct opd_sampler_stats {
    uint64_t records;       // of all types
    uint64_t bytes;         // through the rings
    uint64_t bad_records;   // did not parse
    uint64_t lost_samples;  // larger of LOST records and the counters
    uint64_t lost_sideband; // of the side-band event itself
    uint64_t throttled_ns;  // summed over CPUs
    uint64_t throttles;
    uint64_t wakes, late, inverted;
    uint64_t order_peak_bytes;
    uint64_t drain_cpu_ns; // CPU time of the drain thread
    uint64_t snapshot_ns, snapshot_processes;
    uint64_t ring_bytes; // kernel memory of all rings
    uint32_t cpus, fds, targets;
    double least_running;   // of the last window: running / enabled time of the
                            // event that shared its counter most; 1 = none did
    uint64_t last_progress; // CLOCK_MONOTONIC of the last finished drain
    struct opd_sampler_cost cost;
    struct opd_pipeline_stats pipeline; // as of the last drain
};
void opd_sampler_stats(struct opd_sampler *sampler, struct opd_sampler_stats *stats);

// CLOCK_MONOTONIC of the last finished drain, 0 before the first. Never waits:
// a drain thread that hangs may hold every lock there is.
uint64_t opd_sampler_progress(const struct opd_sampler *sampler);

// Samples of one event that the rings lost so far.
uint64_t opd_sampler_lost(struct opd_sampler *sampler, unsigned event);

// Enabled and running ns of event `event`, summed over CPUs.
int opd_sampler_times(struct opd_sampler *sampler, unsigned event, uint64_t *enabled,
                      uint64_t *running);

#endif
