// SPDX-License-Identifier: Apache-2.0
// What a memory access costs: chains of pointers chased by threads, memory
// streamed by others, a line passed between two CPUs.
#ifndef OPD_PCHASE_H
#define OPD_PCHASE_H
#include <stdint.h>

#include "opd/ticks.h"

enum opd_pchase_access {
    OPD_PCHASE_RANDOM, // pages, and the lines in each
    OPD_PCHASE_FORWARD,
    OPD_PCHASE_REVERSE,
    OPD_PCHASE_PAGE_RANDOM, // pages; lines forward
    OPD_PCHASE_SAME_SET,    // lines at one offset of all pages, then those at the next
};
enum opd_pchase_pages {
    OPD_PCHASE_4K, // base pages: MADV_NOHUGEPAGE
    OPD_PCHASE_THP,
    OPD_PCHASE_2M,
    OPD_PCHASE_1G,
};
enum opd_pchase_hint {
    OPD_PCHASE_NONE,
    OPD_PCHASE_T0,
    OPD_PCHASE_T1,
    OPD_PCHASE_T2,
    OPD_PCHASE_NTA,
};
enum opd_pchase_load {
    OPD_LOAD_READ,
    OPD_LOAD_WRITE,
    OPD_LOAD_COPY,
    OPD_LOAD_TRIAD, // a = b + 3 * c
    OPD_LOAD_NT_WRITE,
    OPD_LOAD_NT_COPY,
    OPD_LOAD_ZERO,  // writes zeros: some CPUs are faster at these
    OPD_LOAD_QUAD,  // a = b + c + d: three reads for a write
    OPD_LOAD_MOVSB, // copy by rep movsb
    OPD_LOAD_STOSB, // write by rep stosb
    OPD_LOAD_KINDS,
};
// How wide the streams' loads and stores are.
enum opd_pchase_vector {
    OPD_VECTOR_AUTO, // 32 bytes where the CPU has them, else 16
    OPD_VECTOR_16,
    OPD_VECTOR_32, // AVX2
    OPD_VECTOR_64, // AVX-512F
    OPD_VECTOR_KINDS,
};

enum { OPD_PCHASE_CHAINS_MAX = 28, OPD_PCHASE_WORK_MAX = 65536, OPD_PCHASE_REASON = 256 };
enum { OPD_PCHASE_AHEAD_MAX = 4096 };

struct opd_pchase_options {
    uint32_t access, pages, hint;
    uint32_t work;       // no-operations a step
    uint32_t chains;     // in flight at once in each thread, 1..OPD_PCHASE_CHAINS_MAX
    uint32_t threads;    // that chase
    uint32_t loaders;    // further threads that stream, with `load`
    uint32_t load;       // enum opd_pchase_load
    uint32_t vector;     // enum opd_pchase_vector
    uint32_t ahead;      // steps that the hint looks ahead, by a pointer in the node's second
                         // word; 0: it is on the pointer that is loaded next
    uint32_t load_delay; // pauses after each 4 KiB that a loader streamed
    uint32_t stride;     // lines; forward and reverse
    uint32_t plain_c;    // 1: the loop that the compiler made, for other machines
    uint32_t laps;       // each in an order of its own, 1..8 words of a line; 0: one
    uint32_t at_speed;   // 1: the cores are busy already; else threads spin 0.1 s first
    uint64_t line, page, chain; // bytes; page a multiple of line, chain of page
    uint64_t load_bytes;        // of each of a loader's arrays
    uint64_t iterations;        // passes of a chain; 0: `duration_ns`
    uint64_t duration_ns;
    uint64_t seed;
    const int32_t *cpus;        // of all threads, chasers first; NULL: not pinned
    const int32_t *chain_nodes; // threads * chains; NULL, -1: where the thread runs
    int32_t load_node;          // of loaders' arrays; -1: where the thread runs
};

// One thread's row of one experiment. Times are CLOCK_MONOTONIC_RAW.
struct opd_pchase_row {
    uint64_t steps; // of a chaser: loads of each chain; of a loader: 0
    uint64_t bytes; // of a loader: read and written by its own stores and loads
    uint64_t start_ns, end_ns, ticks;
    uint64_t cpu_ns; // CLOCK_THREAD_CPUTIME_ID: less when others had the CPU
    double ghz;      // of the core, just before
    int32_t cpu;
    uint32_t moved; // 1: it ran on another CPU at the end
};

// 1 when opd and this CPU have the stream (enum opd_pchase_load) at that width.
int opd_pchase_has_load(uint32_t load, uint32_t vector);

struct opd_pchase;

// Maps, builds and proves all chains (each is one cycle through every line of
// it that its pattern visits). 0, or -errno with `reason` filled.
int opd_pchase_create(const struct opd_pchase_options *options, struct opd_pchase **out,
                      char *reason);
void opd_pchase_destroy(struct opd_pchase *pchase);

// One experiment of all threads; `rows` has room for threads + loaders. The
// chains go on where the last one stopped. 0, or -errno with `reason` filled.
int opd_pchase_run(struct opd_pchase *pchase, struct opd_pchase_row *rows, char *reason);

struct opd_pchase_facts {
    uint64_t nodes;      // of each chain, all laps
    uint64_t bytes;      // mapped in all
    uint64_t huge_bytes; // of them in huge pages
    uint32_t compiled;   // 1: the loop is machine code made for these options
    uint32_t unroll;     // steps in one round of the loop
};
void opd_pchase_facts(const struct opd_pchase *pchase, struct opd_pchase_facts *out);

// Nanoseconds to pass a line from one CPU to the other (half a round trip).
// 0 or -errno.
int opd_pchase_pass(int first, int second, uint32_t rounds, double *ns);
#endif
