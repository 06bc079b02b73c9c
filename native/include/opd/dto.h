// SPDX-License-Identifier: Apache-2.0
// Two implementations of memcpy, memmove, memset and memcmp timed in turn: the
// functions themselves, and the cell (one operation, one size, one kind of
// memory) in which they are measured.
#ifndef OPD_DTO_H
#define OPD_DTO_H
#include <stddef.h>
#include <stdint.h>

// What is measured: four functions with the meaning that C gives them. One that
// an implementation does not have is NULL.
struct opd_dto_functions {
    void *(*copy)(void *, const void *, size_t);
    void *(*move)(void *, const void *, size_t);
    void *(*set)(void *, int, size_t);
    int (*compare)(const void *, const void *, size_t);
};

enum opd_dto_op {
    OPD_DTO_MEMCPY,
    OPD_DTO_MEMMOVE,
    OPD_DTO_MEMSET,
    OPD_DTO_MEMCMP,
    OPD_DTO_OPS,
};
enum opd_dto_pages {
    OPD_DTO_4K,         // base pages: MADV_NOHUGEPAGE
    OPD_DTO_2M_HUGETLB, // reserved ones
    OPD_DTO_2M_THP,     // of shared memory: needs shmem_enabled
};

// Each iteration measures each of the four once, in an order drawn anew. Twice
// each, so that what the CPU predicts favours neither; and A against A again
// is the null control.
enum opd_dto_arm { OPD_DTO_A, OPD_DTO_B, OPD_DTO_A_AGAIN, OPD_DTO_B_AGAIN, OPD_DTO_ARMS };

enum {
    OPD_DTO_REASON = 256,
    OPD_DTO_ITERATIONS_MAX = 10000, // a round
    OPD_DTO_ORDERS = 24,            // permutations of the arms
};

// ---- our own implementations

// The kernel of that name: libc, avx512, avx2, sse2, rep-movsb, nt. 0; -ENOENT:
// there is none of that name; -EOPNOTSUPP: not on this CPU, by its CPUID.
int opd_dto_kernels(const char *name, struct opd_dto_functions *out);

// ---- a cell

struct opd_dto_options {
    uint32_t op, pages;
    uint32_t cold; // 1: both buffers flushed from the caches before each operation
    uint32_t pf;   // per cent of iterations before whose operations a page is dropped
    uint64_t size; // bytes, 1 or more
    uint32_t source_offset, destination_offset; // within the first page
    int64_t overlap; // memmove: destination is source + overlap, in one buffer; 0: two buffers
    int32_t cpu;     // pinned to it; -1: not
    uint32_t warmup; // iterations of a round before those that count
    uint64_t round_limit_ns;
    uint32_t seed;         // of the first round's order; 0: from the clock
    uint32_t inject_fence; // 1: all arms end with a fence and a chain of additions
    uint32_t plain_clock;  // 1: the clock of other machines, here too
    struct opd_dto_functions baseline, current;
};

struct opd_dto;

// Maps the memory: source, destination and result are shared with the rounds'
// processes. 0, or -errno with `reason` (OPD_DTO_REASON bytes) filled.
int opd_dto_create(const struct opd_dto_options *options, struct opd_dto **out, char *reason);
void opd_dto_destroy(struct opd_dto *dto);

// Turns of eight additions, one after the other, that the current's arms do
// after each operation beside those that all do; only with inject_fence.
void opd_dto_inject(struct opd_dto *dto, uint64_t turns);

// Other functions for the next rounds, in the same memory.
void opd_dto_exchange(struct opd_dto *dto, const struct opd_dto_functions *baseline,
                      const struct opd_dto_functions *current);

struct opd_dto_round {
    uint32_t iterations;
    uint32_t seed;          // of the order
    int32_t cpu;            // where it ended
    uint32_t moved;         // operations that ended on another CPU than they began
    uint64_t drops;         // operations before which a page was dropped
    uint64_t faults, major; // of the process over the loop
    uint64_t spent_ns;      // of the loop, flushing and all
    double
        turn_ticks; // of one turn of the injected chain, before and after; 0 without inject_fence
};

// One round in a process of its own: `iterations` (at most OPD_DTO_ITERATIONS_MAX)
// of all arms. `ticks` takes OPD_DTO_ARMS columns of `iterations`, arm by arm;
// `order` of each iteration the permutation's number (opd_dto_order). `check`:
// each arm's results are compared with libc's first. 0, or -errno with `reason`
// filled: -EOWNERDEAD the process died, -ETIMEDOUT it was ended at
// round_limit_ns, -EBADMSG a wrong result.
int opd_dto_round(struct opd_dto *dto, uint32_t iterations, uint32_t check, uint64_t *ticks,
                  uint8_t *order, struct opd_dto_round *out, char *reason);

// The arms in the order that permutation `number` runs them.
void opd_dto_order(uint8_t number, uint8_t arms[OPD_DTO_ARMS]);

struct opd_dto_facts {
    double ticks_per_ns;
    uint32_t is_tsc;     // 1: lfence rdtsc … rdtscp lfence; 0: clock_gettime
    char flush[16];      // clflushopt, clflush, dc civac, or none
    uint32_t line_bytes; // that a flush takes at once
    uint64_t bytes;      // mapped for source and destination
    uint64_t huge_bytes; // of them in huge pages
    uint64_t page_bytes; // what pf drops at once
};
void opd_dto_facts(const struct opd_dto *dto, struct opd_dto_facts *out);

// ---- what samples say

// Of each `block` iterations (a short rest joins the last one) the log of the
// ratio of B and B again to A and A again, and of A again to A. `mean` 1: of the
// means of the middle 80 %, 0: of the medians. Both columns have room for
// iterations / block, at least 1. How many there are, or -errno (-EDOM: a
// sample of 0 ticks in the middle).
int64_t opd_dto_blocks(const uint64_t *ticks, uint64_t iterations, uint32_t block, uint32_t mean,
                       double *effect, double *null);

// What the clock steps by: the smallest difference between two of the samples.
uint64_t opd_dto_quantum(const uint64_t *samples, uint64_t count);

// ---- settings that are put back whatever happens

// Writes values[i] to the file paths[i]; a process apart, which no signal to
// the caller's group reaches, puts back what stood there once the caller has
// released it or is gone. 0, or -errno with `reason` filled and nothing changed.
struct opd_dto_hold;
int opd_dto_hold(const char *const *paths, const char *const *values, uint32_t count,
                 struct opd_dto_hold **out, char *reason);
void opd_dto_release(struct opd_dto_hold *hold);
#endif
