// SPDX-License-Identifier: Apache-2.0
// What a round's process does: sees that results are right, warms up, and times
// each arm once an iteration, in an order drawn anew each time.
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "dto_private.h"

#define INLINE static inline __attribute__((always_inline))

// All arms have some: where a loop ends is guessed wrong, which costs as much
// in the one as in the other unless it is so short that it is guessed right.
enum { CHAIN_LEAST = 8, CHAIN_LONG = 2000, CHAIN_READINGS = 15 };

// ---- the clock

// x86: nothing before it is still under way when the clock is read, nothing
// after it has begun.
INLINE uint64_t
begin(int is_tsc)
{
#if defined(__x86_64__)
    if (is_tsc) {
        _mm_lfence();
        return __rdtsc();
    }
#endif
    return opd_raw_ns();
}

INLINE uint64_t
end(int is_tsc, uint32_t *cpu)
{
#if defined(__x86_64__)
    if (is_tsc) {
        uint64_t now = __rdtscp(cpu);
        _mm_lfence();
        return now;
    }
#endif
    return opd_raw_ns();
}

INLINE uint32_t
here(int is_tsc)
{
    uint32_t cpu = 0;
#if defined(__x86_64__)
    if (is_tsc)
        (void)__rdtscp(&cpu);
#endif
    return cpu;
}

// Turns of eight additions of which each waits for the last, after all that came
// before. They keep no part of a core busy, so that whoever shares it does not
// make them slower; and they are one piece of code: how it lies is what it costs.
static __attribute__((noinline)) void
chain(uint64_t turns)
{
#if defined(__x86_64__)
#define ADD2 "add $1, %1\n add $1, %1\n"
    uint64_t sum = 0;
    _mm_lfence();
    __asm__ volatile(".p2align 5\n 1:\n" ADD2 ADD2 ADD2 ADD2 "sub $1, %0\n jnz 1b"
                     : "+r"(turns), "+r"(sum)::"cc");
#else
    for (uint64_t sum = 0; turns; turns--)
        for (int i = 0; i < 8; i++)
            __asm__ volatile("" : "+r"(sum));
#endif
}

// ---- the caches

static void
flush(const struct opd_dto *dto, const char *base, size_t size)
{
    const char *at = (const char *)((uintptr_t)base & ~(uintptr_t)(dto->line - 1));
    const char *last = base + size;
#if defined(__x86_64__)
    if (dto->can_flush == DTO_FLUSH_CLFLUSHOPT)
        for (; at < last; at += dto->line)
            __asm__ volatile("clflushopt %0" : "+m"(*(volatile char *)(uintptr_t)at));
    else
        for (; at < last; at += dto->line)
            _mm_clflush(at);
#elif defined(__aarch64__)
    for (; at < last; at += dto->line)
        __asm__ volatile("dc civac, %0" ::"r"(at) : "memory");
#else
    (void)at;
    (void)last;
#endif
}

static void
make_cold(const struct opd_dto *dto)
{
    if (dto->options.op != OPD_DTO_MEMSET)
        flush(dto, dto->from, dto->options.size);
    flush(dto, dto->to, dto->options.size);
#if defined(__x86_64__)
    _mm_mfence(); // flushes are weakly ordered: they end before the clock is read
#elif defined(__aarch64__)
    __asm__ volatile("dsb ish" ::: "memory");
#endif
}

// The mapping of one page goes, the page itself stays (it is shared memory):
// the next touch takes one minor fault. After the flush, which would touch it.
static void
drop_page(const struct opd_dto *dto, size_t number)
{
    char *at = (char *)((uintptr_t)dto->to & ~(uintptr_t)(dto->page - 1)) + number * dto->page;
    madvise(at, dto->page, MADV_DONTNEED);
}

static size_t
pages_of(const struct opd_dto *dto)
{
    uintptr_t first = (uintptr_t)dto->to / dto->page;
    uintptr_t last = ((uintptr_t)dto->to + dto->options.size - 1) / dto->page;
    return last - first + 1;
}

// ---- one operation

static volatile int compared;

INLINE void
call(const struct opd_dto *dto, const struct opd_dto_functions *functions, uint32_t op)
{
    size_t n = dto->options.size;
    switch (op) {
    case OPD_DTO_MEMCPY:
        functions->copy(dto->to, dto->from, n);
        break;
    case OPD_DTO_MEMMOVE:
        functions->move(dto->to, dto->from, n);
        break;
    case OPD_DTO_MEMSET:
        functions->set(dto->to, 0x5a, n);
        break;
    default:
        compared = functions->compare(dto->to, dto->from, n);
    }
}

INLINE uint64_t
time_one(const struct opd_dto *dto, const struct opd_dto_functions *functions, uint64_t turns,
         uint32_t *cpu, uint32_t op, int is_tsc, int fenced)
{
    const struct opd_dto local = *dto; // no load of ours between the two clocks
    const struct opd_dto_functions chosen = *functions;
    __asm__ volatile("" ::: "memory");
    uint64_t from = begin(is_tsc);
    call(&local, &chosen, op);
    if (fenced)
        chain(turns);
    __asm__ volatile("" ::: "memory");
    return end(is_tsc, cpu) - from;
}

struct draws {
    uint32_t state;
    uint32_t pages;
};

INLINE void
iterate(struct opd_dto *dto, struct draws *draws, uint32_t count, int keep, uint32_t op, int is_tsc,
        int fenced)
{
    struct dto_result *result = dto->result;
    const struct opd_dto_options *options = &dto->options;
    // Both in one line of the cache, so that fetching them costs either side the same.
    _Alignas(64) const struct opd_dto_functions sides[2] = {options->baseline, options->current};
    uint32_t cpu = here(is_tsc);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t arms[OPD_DTO_ARMS], order = (uint8_t)((dto_draw(&draws->state) >> 8) % 24);
        opd_dto_order(order, arms);
        // The same page for all arms: what differs is the function.
        int drops = options->pf && dto_draw(&draws->state) % 100 < options->pf;
        uint32_t page = drops ? dto_draw(&draws->state) % draws->pages : 0;
        // Told to their arrays after the last arm: each has lines of its own, which
        // would push other parts of the buffers out of the cache for each arm.
        uint64_t spent[OPD_DTO_ARMS];
        for (uint32_t k = 0; k < OPD_DTO_ARMS; k++) {
            uint32_t arm = arms[k], now = cpu;
            if (options->cold)
                make_cold(dto);
            if (drops)
                drop_page(dto, page);
            spent[arm] = time_one(dto, &sides[arm & 1], CHAIN_LEAST + (arm & 1 ? dto->turns : 0),
                                  &now, op, is_tsc, fenced);
            if (op == OPD_DTO_MEMCMP)
                memcpy(dto->to, dto->from, options->size);
            if (keep) {
                result->round.moved += now != cpu;
                result->round.drops += (uint64_t)drops;
            }
            cpu = now;
        }
        if (keep) {
            for (uint32_t arm = 0; arm < OPD_DTO_ARMS; arm++)
                result->ticks[arm][i] = spent[arm];
            result->order[i] = order;
        }
    }
}

// A loop of its own for each operation and clock: none asks while it measures.
#define LOOP(op)                                                                                   \
    static void loop_##op(struct opd_dto *dto, struct draws *draws, uint32_t count, int keep)      \
    {                                                                                              \
        if (!dto->is_tsc && dto->options.inject_fence)                                             \
            iterate(dto, draws, count, keep, op, 0, 1);                                            \
        else if (!dto->is_tsc)                                                                     \
            iterate(dto, draws, count, keep, op, 0, 0);                                            \
        else if (dto->options.inject_fence)                                                        \
            iterate(dto, draws, count, keep, op, 1, 1);                                            \
        else                                                                                       \
            iterate(dto, draws, count, keep, op, 1, 0);                                            \
    }
LOOP(OPD_DTO_MEMCPY)
LOOP(OPD_DTO_MEMMOVE)
LOOP(OPD_DTO_MEMSET)
LOOP(OPD_DTO_MEMCMP)

// ---- what a turn takes

static int
by_value(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static double
chain_median(int is_tsc, uint64_t turns)
{
    uint64_t readings[CHAIN_READINGS];
    uint32_t cpu;
    for (int i = 0; i < CHAIN_READINGS; i++) {
        uint64_t from = begin(is_tsc);
        chain(turns);
        readings[i] = end(is_tsc, &cpu) - from;
    }
    qsort(readings, CHAIN_READINGS, sizeof(*readings), by_value);
    return (double)readings[CHAIN_READINGS / 2];
}

// The slope: what a chain costs at its ends is in all arms.
static double
turn_ticks(int is_tsc)
{
    double whole = chain_median(is_tsc, CHAIN_LONG), half = chain_median(is_tsc, CHAIN_LONG / 2);
    return (whole - half) / (CHAIN_LONG - CHAIN_LONG / 2);
}

// ---- results that are right

enum { CHECK_AGAIN_MOST = 16 << 20 }; // at a round's end; larger ones take too long

static const char *const names[] = {"memcpy", "memmove", "memset", "memcmp"};

static int
check_compare(struct opd_dto *dto, const struct opd_dto_functions *functions, const char *who)
{
    size_t size = dto->options.size, at = size * 2 / 3;
    char *reason = dto->result->reason;
    memcpy(dto->to, dto->from, size);
    int same = functions->compare(dto->to, dto->from, size);
    dto->to[at] = (char)(dto->from[at] ^ 1);
    int differ = functions->compare(dto->to, dto->from, size);
    int above = (unsigned char)dto->to[at] > (unsigned char)dto->from[at];
    dto->to[at] = dto->from[at];
    if (same)
        return dto_fail(reason, 0, "%s: memcmp of %zu equal bytes is %d", who, size, same);
    if (above ? differ <= 0 : differ >= 0)
        return dto_fail(reason, 0, "%s: memcmp of %zu bytes that differ at %zu is %d", who, size,
                        at, differ);
    return 0;
}

static int
check_one(struct opd_dto *dto, const struct opd_dto_functions *functions, const char *who,
          unsigned char *expected)
{
    size_t size = dto->options.size;
    uint32_t op = dto->options.op;
    if (op == OPD_DTO_MEMCMP)
        return check_compare(dto, functions, who);
    if (!dto->options.overlap)
        for (size_t i = 0; i < size; i++)
            dto->to[i] = (char)~dto->from[i];
    if (op == OPD_DTO_MEMSET)
        memset(expected, 0x5a, size);
    else
        memcpy(expected, dto->from, size);
    call(dto, functions, op);
    const unsigned char *found = (const unsigned char *)dto->to;
    for (size_t i = 0; i < size; i++)
        if (found[i] != expected[i])
            return dto_fail(dto->result->reason, 0,
                            "%s: byte %zu of %zu after %s is 0x%02x, and should be 0x%02x", who, i,
                            size, names[op], found[i], expected[i]);
    return 0;
}

static int
check_both(struct opd_dto *dto)
{
    unsigned char *expected = malloc(dto->options.size);
    if (expected == NULL)
        return dto_fail(dto->result->reason, ENOMEM, "%" PRIu64 " bytes to compare with",
                        dto->options.size);
    int rc = check_one(dto, &dto->options.baseline, "baseline", expected);
    rc = rc ? rc : check_one(dto, &dto->options.current, "current", expected);
    free(expected);
    return rc;
}

// ---- a round

static void
put_back(struct opd_dto *dto)
{
    for (size_t at = 0; at < dto->source.bytes; at++)
        dto->source.base[at] = (char)at;
    if (!dto->options.overlap)
        memcpy(dto->to, dto->from, dto->options.size);
}

void
dto_loop_run(struct opd_dto *dto, uint32_t iterations, uint32_t check)
{
    static void (*const loops[])(struct opd_dto *, struct draws *, uint32_t, int) = {
        loop_OPD_DTO_MEMCPY, loop_OPD_DTO_MEMMOVE, loop_OPD_DTO_MEMSET, loop_OPD_DTO_MEMCMP};
    struct dto_result *result = dto->result;
    struct draws draws = {.state = result->round.seed};
    size_t pages = pages_of(dto);
    draws.pages = pages < UINT32_MAX ? (uint32_t)pages : UINT32_MAX;
    put_back(dto);
    if (check && check_both(dto)) {
        result->state = DTO_WRONG;
        return;
    }
    put_back(dto);
    double turn_before = dto->options.inject_fence ? turn_ticks((int)dto->is_tsc) : 0;
    if (dto->can_flush != DTO_FLUSH_NONE)
        make_cold(dto); // once, where it is not done each time
    // The results' pages are there before any of it is timed.
    for (uint32_t arm = 0; arm < OPD_DTO_ARMS; arm++)
        memset(result->ticks[arm], 0, iterations * sizeof(**result->ticks));
    memset(result->order, 0, iterations);
    result->state = DTO_CHECKED;
    loops[dto->options.op](dto, &draws, dto->options.warmup, 0);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    uint64_t began = opd_raw_ns();
    loops[dto->options.op](dto, &draws, iterations, 1);
    result->round.spent_ns = opd_raw_ns() - began;
    getrusage(RUSAGE_SELF, &after);
    if (dto->options.inject_fence)
        result->round.turn_ticks = (turn_before + turn_ticks((int)dto->is_tsc)) / 2;
    result->round.faults = (uint64_t)(after.ru_minflt - before.ru_minflt);
    result->round.major = (uint64_t)(after.ru_majflt - before.ru_majflt);
    result->round.cpu = sched_getcpu();
    result->round.iterations = iterations;
    // Some go wrong only after many calls.
    if (dto->options.size <= CHECK_AGAIN_MOST && check_both(dto)) {
        result->state = DTO_WRONG;
        return;
    }
    __atomic_store_n(&result->state, (uint32_t)DTO_MEASURED, __ATOMIC_RELEASE);
}
