// SPDX-License-Identifier: Apache-2.0
// Where the drain's time goes. The CPU clock of the thread is read around
// batches, never for each record: that total is exact. How it divides among
// stages is an estimate, from the cycle counter read around one record in
// COST_EVERY.
#ifndef OPD_COST_PRIVATE_H
#define OPD_COST_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#if defined(__x86_64__) || defined(__i386__)
#include <x86intrin.h>
#endif

// A prime: a load whose records repeat is not always met at the same one.
#define COST_EVERY 61u
// A record that took so many ticks was interrupted: it says nothing.
#define COST_INTERRUPTED (1u << 22)

static inline uint64_t
opd_ticks(void)
{
#if defined(__x86_64__) || defined(__i386__)
    return __rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#endif
}

// CPU time of the calling thread, ns.
static inline uint64_t
opd_thread_cpu(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// One of the two batches of a drain: rings copied and pushed into order, or
// popped in order and attributed.
struct opd_cost_batch {
    uint64_t cpu_ns;    // exact
    uint64_t always;    // ticks outside of records, all of them
    uint64_t whole;     // ticks of measured records
    uint64_t order;     // of these: in opd_order_push, opd_order_pop
    uint64_t hash;      // of these: counting the hit
    unsigned countdown; // records until the next measured one
};

static inline bool
opd_cost_due(struct opd_cost_batch *batch)
{
    if (__builtin_expect(batch->countdown-- != 0, 1))
        return false;
    batch->countdown = COST_EVERY - 1;
    return true;
}

static inline void
opd_cost_add(struct opd_cost_batch *batch, uint64_t whole, uint64_t order, uint64_t hash)
{
    if (whole > COST_INTERRUPTED)
        return;
    batch->whole += whole;
    batch->order += order;
    batch->hash += hash;
}

// What part of the batch's CPU time `ticks` of its measured records stand for.
static inline uint64_t
opd_cost_share(const struct opd_cost_batch *batch, uint64_t ticks)
{
    double all = (double)batch->always + (double)batch->whole * COST_EVERY;
    return all > 0 ? (uint64_t)((double)batch->cpu_ns * (double)ticks * COST_EVERY / all) : 0;
}

#endif
