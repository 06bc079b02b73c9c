// SPDX-License-Identifier: Apache-2.0
// The reader's side: flips, flushes, and what the buffer and counters say.
#include <linux/membarrier.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "opd/ticks.h"
#include "pc_hash_private.h"

#define SPINS 64u
#define NAP_NS 20000

// Everybody sees what was stored before, and we what they stored. Without it
// the stores and loads of both sides are sequentially consistent themselves.
static void
barrier(const struct opd_pc_hash *hash)
{
    if (hash->asymmetric)
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

// Until a turn that began before the barrier is over.
static void
wait_turn(struct opd_pc_cpu *cpu)
{
    const uint64_t turn = atomic_load_explicit(&cpu->turn, memory_order_seq_cst);
    if (turn % 2 == 0)
        return;
    for (unsigned spins = 0; atomic_load_explicit(&cpu->turn, memory_order_acquire) == turn;
         spins++) {
        const struct timespec nap = {.tv_nsec = NAP_NS};
        if (spins < SPINS)
            sched_yield();
        else
            nanosleep(&nap, NULL); // it was put to sleep in its turn
    }
}

static bool
has_news(const struct opd_pc_cpu *cpu)
{
    return opd_pc_counted(&cpu->hits) != cpu->hits_read || opd_pc_counted(&cpu->turn) % 2 != 0;
}

// With the reader's lock: CPUs [first, end) flip together, then each table
// that is no longer counted in goes to the buffer. Memory of a CPU that never
// had a hit is not written to.
static void
flip(struct opd_pc_hash *hash, uint32_t first, uint32_t end)
{
    const uint64_t began = opd_raw_ns();
    bool any = false;
    for (uint32_t i = first; i < end; i++) {
        struct opd_pc_cpu *cpu = opd_pc_cpu(hash, i);
        if (!has_news(cpu))
            continue;
        any = cpu->flipping = true;
        // Before the flip: what is counted from now on may be in either table,
        // so it is news to the next one.
        cpu->hits_read = opd_pc_counted(&cpu->hits);
        atomic_store_explicit(&cpu->active, opd_pc_active(cpu) ^ 1, memory_order_seq_cst);
    }
    if (any)
        barrier(hash);
    for (uint32_t i = first; any && i < end; i++) {
        struct opd_pc_cpu *cpu = opd_pc_cpu(hash, i);
        if (!cpu->flipping)
            continue;
        const uint64_t cpu_began = opd_raw_ns();
        cpu->flipping = false;
        wait_turn(cpu);
        opd_pc_publish_table(hash, opd_pc_table(hash, cpu, opd_pc_active(cpu) ^ 1),
                             &cpu->reader_updates, &cpu->reader_wraps);
        opd_pc_count(&cpu->flips, 1);
        opd_pc_count(&cpu->flip_ns, opd_raw_ns() - cpu_began);
    }
    opd_pc_count(&hash->flips, 1);
    opd_pc_count(&hash->flip_ns, opd_raw_ns() - began);
}

void
opd_pc_hash_flush(struct opd_pc_hash *hash)
{
    pthread_mutex_lock(&hash->reader);
    flip(hash, 0, hash->cpus);
    pthread_mutex_unlock(&hash->reader);
}

void
opd_pc_hash_flush_cpu(struct opd_pc_hash *hash, uint32_t cpu)
{
    if (cpu >= hash->cpus)
        return;
    pthread_mutex_lock(&hash->reader);
    flip(hash, cpu, cpu + 1);
    pthread_mutex_unlock(&hash->reader);
}

size_t
opd_pc_hash_read(struct opd_pc_hash *hash, uint32_t *slots, uint32_t *hits, size_t room)
{
    size_t found = 0;
    pthread_mutex_lock(&hash->reader);
    flip(hash, 0, hash->cpus);
    for (uint64_t i = 0; i < hash->length; i++) {
        const uint32_t here = atomic_load_explicit(&hash->buffer[i], memory_order_relaxed);
        if (here == 0)
            continue;
        if (found < room) {
            slots[found] = (uint32_t)i;
            hits[found] = here;
        }
        found++;
    }
    pthread_mutex_unlock(&hash->reader);
    return found;
}

void
opd_pc_hash_reset(struct opd_pc_hash *hash)
{
    pthread_mutex_lock(&hash->reader);
    flip(hash, 0, hash->cpus);
    // Not by giving the memory back: an addition may come at any moment.
    for (uint64_t i = 0; i < hash->length; i++)
        if (atomic_load_explicit(&hash->buffer[i], memory_order_relaxed) != 0)
            atomic_store_explicit(&hash->buffer[i], 0, memory_order_relaxed);
    pthread_mutex_unlock(&hash->reader);
}

// What a CPU counted, its means still as sums.
static void
add_cpu(const struct opd_pc_hash *hash, const struct opd_pc_cpu *cpu, struct opd_pc_stats *stats,
        uint64_t *ticks, uint64_t *timed)
{
    const uint64_t hits = opd_pc_counted(&cpu->hits), most = opd_pc_counted(&cpu->probe_max);
    stats->hits += hits;
    stats->shared_updates += opd_pc_counted(&cpu->updates) + opd_pc_counted(&cpu->reader_updates);
    stats->flushes += opd_pc_counted(&cpu->flushes);
    stats->evictions += opd_pc_counted(&cpu->evictions);
    stats->wraps += opd_pc_counted(&cpu->wraps) + opd_pc_counted(&cpu->reader_wraps);
    stats->probe_max = most > stats->probe_max ? most : stats->probe_max;
    stats->bytes += hits != 0 ? hash->cpu_bytes : 0;
    *ticks += opd_pc_counted(&cpu->ticks);
    *timed += opd_pc_counted(&cpu->timed);
}

static void
set_means(const struct opd_pc_hash *hash, struct opd_pc_stats *stats, uint64_t ticks,
          uint64_t timed, uint64_t flip_ns)
{
    const double ran_ticks = (double)(opd_ticks() - hash->since_ticks);
    const double ran_ns = (double)(opd_raw_ns() - hash->since_ns);
    if (timed != 0 && ran_ticks > 0)
        stats->ns_per_hit = (double)ticks / (double)timed * ran_ns / ran_ticks;
    if (stats->flips != 0)
        stats->flip_ns = (double)flip_ns / (double)stats->flips;
}

void
opd_pc_hash_stats(const struct opd_pc_hash *hash, struct opd_pc_stats *stats)
{
    uint64_t ticks = 0, timed = 0;
    *stats = (struct opd_pc_stats){.flips = opd_pc_counted(&hash->flips)};
    for (uint32_t i = 0; i < hash->cpus; i++)
        add_cpu(hash, opd_pc_cpu(hash, i), stats, &ticks, &timed);
    set_means(hash, stats, ticks, timed, opd_pc_counted(&hash->flip_ns));
}

void
opd_pc_hash_stats_cpu(const struct opd_pc_hash *hash, uint32_t number, struct opd_pc_stats *stats)
{
    const struct opd_pc_cpu *cpu = opd_pc_cpu(hash, number);
    uint64_t ticks = 0, timed = 0;
    *stats = (struct opd_pc_stats){.flips = opd_pc_counted(&cpu->flips)};
    add_cpu(hash, cpu, stats, &ticks, &timed);
    set_means(hash, stats, ticks, timed, opd_pc_counted(&cpu->flip_ns));
}
