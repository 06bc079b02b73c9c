// SPDX-License-Identifier: Apache-2.0
// The adder's side: see the header.
#include <errno.h>
#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "opd/ticks.h"
#include "pc_hash_private.h"

// A prime: a load whose hits repeat is not always met at the same one.
#define TIMED_EVERY 61u
// So many ticks are an interruption, which says nothing of the hit.
#define INTERRUPTED (1u << 20)
// Hits for which a reader may have to wait.
#define TURN_HITS 64u

#define MPOL_PREFERRED_ 1
#define NODE_BITS 1024u

static bool
is_power_of_two(uint32_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

// Where the memory of a CPU is to be, once it is touched. A machine without
// nodes, or a node that is gone, gives what there is.
static void
prefer_node(void *memory, size_t bytes, int32_t node)
{
    unsigned long mask[NODE_BITS / (8 * sizeof(unsigned long))] = {0};
    const uint32_t bits = 8 * sizeof *mask;
    if (node < 0 || (uint32_t)node >= NODE_BITS)
        return;
    mask[(uint32_t)node / bits] = 1ul << (uint32_t)node % bits;
    syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED_, mask, NODE_BITS, 0);
}

static void *
map_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    madvise(memory, bytes, MADV_NOHUGEPAGE); // it is sparse
    return memory;
}

static bool
can_make_barriers(void)
{
#if defined(__SANITIZE_THREAD__)
    return false; // it does not know of membarrier
#else
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
#endif
}

static uint64_t
measure_nothing(void)
{
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < 64; i++) {
        uint64_t began = opd_ticks(), ticks = opd_ticks() - began;
        least = ticks < least ? ticks : least;
    }
    return least;
}

static size_t
bytes_of_cpu(uint32_t slots)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t bytes = sizeof(struct opd_pc_cpu) + 2 * (size_t)slots * sizeof(struct opd_pc_slot);
    return (bytes + page - 1) & ~(page - 1);
}

uint64_t
opd_pc_hash_bytes(uint32_t slots, uint32_t cpus, uint64_t length)
{
    return (uint64_t)bytes_of_cpu(slots) * cpus + length * sizeof(_Atomic uint32_t);
}

struct opd_pc_hash *
opd_pc_hash_create(const struct opd_pc_options *options)
{
    const struct opd_pc_shape *shape = &options->shape;
    if (!is_power_of_two(shape->slots) || shape->slots > OPD_PC_SLOTS_MOST ||
        !is_power_of_two(shape->ways) || shape->ways > shape->slots ||
        shape->policy > OPD_PC_NONE || options->cpus == 0 || options->cpus > OPD_PC_CPUS_MOST ||
        options->length == 0 || options->length > UINT32_MAX) {
        errno = EINVAL;
        return NULL;
    }
    struct opd_pc_hash *hash = calloc(1, sizeof *hash);
    if (hash == NULL)
        return NULL;
    pthread_mutex_init(&hash->reader, NULL);
    hash->shape = *shape;
    hash->group = shape->ways < OPD_PC_GROUP ? shape->ways : OPD_PC_GROUP;
    hash->group_shift = (uint32_t)__builtin_ctz(hash->group);
    hash->group_mask = shape->slots / hash->group - 1;
    hash->home_shift = (uint32_t)__builtin_ctz(shape->slots / hash->group);
    hash->probes = shape->ways / hash->group;
    hash->cpus = options->cpus;
    hash->length = options->length;
    hash->asymmetric = can_make_barriers();
    hash->cpu_bytes = bytes_of_cpu(shape->slots);
    hash->memory = map_memory(hash->cpu_bytes * hash->cpus);
    hash->own_buffer = options->buffer == NULL;
    hash->buffer = hash->own_buffer ? map_memory(hash->length * sizeof *hash->buffer)
                                    : (_Atomic uint32_t *)options->buffer;
    if (hash->memory == NULL || hash->buffer == NULL) {
        opd_pc_hash_destroy(hash);
        errno = ENOMEM;
        return NULL;
    }
    for (uint32_t i = 0; options->nodes != NULL && i < hash->cpus; i++)
        prefer_node(hash->memory + i * hash->cpu_bytes, hash->cpu_bytes, options->nodes[i]);
    hash->empty_ticks = measure_nothing();
    hash->since_ticks = opd_ticks();
    hash->since_ns = opd_raw_ns();
    return hash;
}

void
opd_pc_hash_destroy(struct opd_pc_hash *hash)
{
    if (hash == NULL)
        return;
    if (hash->memory != NULL)
        munmap(hash->memory, hash->cpu_bytes * hash->cpus);
    if (hash->own_buffer && hash->buffer != NULL)
        munmap((void *)hash->buffer, hash->length * sizeof *hash->buffer);
    pthread_mutex_destroy(&hash->reader);
    free(hash);
}

uint64_t
opd_pc_hash_length(const struct opd_pc_hash *hash)
{
    return hash->length;
}

uint32_t
opd_pc_hash_cpus(const struct opd_pc_hash *hash)
{
    return hash->cpus;
}

void
opd_pc_publish_table(const struct opd_pc_hash *hash, struct opd_pc_slot *table,
                     opd_pc_counter *updates, opd_pc_counter *wraps)
{
    for (uint32_t i = 0; i < hash->shape.slots; i++)
        if (table[i].hits != 0)
            opd_pc_publish(hash, &table[i], updates, wraps);
    memset(table, 0, hash->shape.slots * sizeof *table);
}

// No free slot and none of this one.
static void
make_room(const struct opd_pc_hash *hash, struct opd_pc_cpu *cpu, struct opd_pc_slot *table,
          struct opd_pc_slot *home, uint32_t slot)
{
    const struct opd_pc_slot one = {.slot = slot, .hits = 1};
    struct opd_pc_slot *place = home;
    switch (hash->shape.policy) {
    case OPD_PC_FLUSH:
        opd_pc_publish_table(hash, table, &cpu->updates, &cpu->wraps);
        opd_pc_count(&cpu->flushes, 1);
        break;
    case OPD_PC_EVICT:
        place += cpu->victim++ & (hash->group - 1);
        opd_pc_publish(hash, place, &cpu->updates, &cpu->wraps);
        opd_pc_count(&cpu->evictions, 1);
        break;
    default:
        opd_pc_publish(hash, &one, &cpu->updates, &cpu->wraps);
        return;
    }
    *place = one;
}

static void
hit(const struct opd_pc_hash *hash, struct opd_pc_cpu *cpu, struct opd_pc_slot *table,
    uint32_t slot)
{
    // Neighbours of the buffer have groups of their own, and steps that differ
    // between those that share a group; a step is odd, so it comes everywhere.
    const uint32_t step = (slot >> hash->home_shift) << 1 | 1;
    uint32_t group = slot & hash->group_mask;
    struct opd_pc_slot *home = table + ((size_t)group << hash->group_shift);
    uint32_t looked = 0;
    for (uint32_t probe = 0; probe < hash->probes; probe++) {
        struct opd_pc_slot *entry = table + ((size_t)group << hash->group_shift);
        for (uint32_t i = 0; i < hash->group; i++, entry++) {
            looked++;
            if (entry->hits == 0) {
                *entry = (struct opd_pc_slot){.slot = slot, .hits = 1};
                if (looked > opd_pc_counted(&cpu->probe_max))
                    atomic_store_explicit(&cpu->probe_max, looked, memory_order_relaxed);
                return;
            }
            if (entry->slot != slot)
                continue;
            if (entry->hits == UINT32_MAX) {
                opd_pc_publish(hash, entry, &cpu->updates, &cpu->wraps);
                entry->hits = 0;
            }
            entry->hits++;
            return;
        }
        group = (group + step) & hash->group_mask;
    }
    atomic_store_explicit(&cpu->probe_max, hash->shape.ways, memory_order_relaxed);
    make_room(hash, cpu, table, home, slot);
}

static void
hit_timed(const struct opd_pc_hash *hash, struct opd_pc_cpu *cpu, struct opd_pc_slot *table,
          uint32_t slot)
{
    if (__builtin_expect(cpu->until_timed-- != 0, 1)) {
        hit(hash, cpu, table, slot);
        return;
    }
    cpu->until_timed = TIMED_EVERY - 1;
    uint64_t began = opd_ticks();
    hit(hash, cpu, table, slot);
    uint64_t ticks = opd_ticks() - began;
    if (ticks > INTERRUPTED)
        return;
    opd_pc_count(&cpu->ticks, ticks > hash->empty_ticks ? ticks - hash->empty_ticks : 0);
    opd_pc_count(&cpu->timed, 1);
}

// Which table to count in until leave(). The reader changes that first and
// looks at `turn` then; here it is the other way round, so one sees the other.
static uint32_t
enter(const struct opd_pc_hash *hash, struct opd_pc_cpu *cpu, uint64_t turn)
{
    if (hash->asymmetric) {
        atomic_store_explicit(&cpu->turn, turn + 1, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst);
        return atomic_load_explicit(&cpu->active, memory_order_acquire);
    }
    atomic_store_explicit(&cpu->turn, turn + 1, memory_order_seq_cst);
    return atomic_load_explicit(&cpu->active, memory_order_seq_cst);
}

void
opd_pc_hash_add(struct opd_pc_hash *hash, uint32_t number, const uint32_t *slots, size_t count)
{
    struct opd_pc_cpu *cpu = opd_pc_cpu(hash, number);
    while (count > 0) {
        const size_t some = count < TURN_HITS ? count : TURN_HITS;
        const uint64_t turn = atomic_load_explicit(&cpu->turn, memory_order_relaxed);
        struct opd_pc_slot *table = opd_pc_table(hash, cpu, enter(hash, cpu, turn));
        for (size_t i = 0; i < some; i++)
            hit_timed(hash, cpu, table, slots[i]);
        opd_pc_count(&cpu->hits, some);
        atomic_store_explicit(&cpu->turn, turn + 2, memory_order_release);
        slots += some;
        count -= some;
    }
}
