// SPDX-License-Identifier: Apache-2.0
// What a page fault costs: workers touch memory that was never touched, each
// in its own slice, together. One call is one repeat; mapping, preparing,
// making workers and unmapping stand outside what is timed.
#ifndef OPD_PFT_H
#define OPD_PFT_H
#include <stdint.h>

#include "opd/ticks.h"

enum opd_pft_backing {
    OPD_PFT_ANON,
    OPD_PFT_DEV_ZERO,
    OPD_PFT_SHM, // SysV
    OPD_PFT_MEMFD,
    OPD_PFT_FILE, // unlinked, in `directory`
};

enum opd_pft_pages {
    OPD_PFT_BASE,   // MADV_NOHUGEPAGE
    OPD_PFT_SYSTEM, // as the system sets it
    OPD_PFT_THP,    // MADV_HUGEPAGE, slices at 2 MiB
    // MADV_HUGEPAGE where page tables stand: no huge page fits, so the kernel
    // takes the largest folio below it that the system has enabled.
    OPD_PFT_FOLIO,
    OPD_PFT_HUGETLB_2M,
    OPD_PFT_HUGETLB_1G,
};

enum opd_pft_prepare {
    OPD_PFT_NOTHING,
    OPD_PFT_READ_FIRST,        // the zero page stands there
    OPD_PFT_WRITE_FIRST,       // pages stand there
    OPD_PFT_DROPPED,           // written, then MADV_DONTNEED
    OPD_PFT_FORKED,            // written, then shared with a child that lives
    OPD_PFT_FORKED_GONE,       // written, shared with a child that is gone
    OPD_PFT_FILLED,            // the memfd or file has its pages in the page cache
    OPD_PFT_UNCACHED,          // the file has its pages on the disk only
    OPD_PFT_PAGED_OUT,         // written, then MADV_PAGEOUT
    OPD_PFT_USERFAULTFD,       // a thread resolves each fault with UFFDIO_COPY
    OPD_PFT_USERFAULTFD_MINOR, // filled, not mapped; resolved with UFFDIO_CONTINUE
    OPD_PFT_USERFAULTFD_WP,    // written, write-protected; resolved by lifting that
    OPD_PFT_LOCK_ON_FAULT,     // mlock2 with MLOCK_ONFAULT
};

enum opd_pft_touch {
    OPD_PFT_WRITE, // `lines` cache lines a page
    OPD_PFT_READ,
    OPD_PFT_CLEAR, // all of the page
    OPD_PFT_MLOCK,
    OPD_PFT_MAP_POPULATE,
    OPD_PFT_POPULATE_READ,
    OPD_PFT_POPULATE_WRITE,
    OPD_PFT_COLLAPSE, // MADV_COLLAPSE
    OPD_PFT_DONTNEED, // MADV_DONTNEED: no fault, what comes after them
};

enum { OPD_PFT_NODE_WORDS = 16, OPD_PFT_WORKERS_MAX = 16384, OPD_PFT_REASON = 256 };

struct opd_pft_options {
    uint32_t backing, pages, prepare, touch;
    uint32_t shared;    // MAP_SHARED; else private
    uint32_t workers;   // the caller is worker 0
    uint32_t processes; // 1: the others are processes, else threads
    uint32_t multimap;  // 1: each worker maps its own slice
    uint32_t packed;    // 1: slices side by side, may share a page-table page
    uint32_t lines;     // written a page, 1..page / line_bytes
    uint32_t line_bytes;
    uint32_t policy; // MPOL_* of mbind with `nodes`; only when policy_set
    uint32_t policy_set;
    uint32_t shm_lock;
    uint32_t fifo;       // SCHED_FIFO: workers at this priority, the caller one above; 0 = as is
    uint32_t whole_self; // 1: RUSAGE_SELF, as on kernels without RUSAGE_THREAD
    uint32_t cpu_count;  // 0: workers are not pinned; else worker j on cpus[j % cpu_count]
    const int32_t *cpus;
    uint64_t pages_each; // 4 KiB (base) pages of one worker
    uint64_t delay_ns;   // workers but the first sleep so long afterwards
    uint64_t pause_ns;   // with OPD_PFT_PAUSE
    uint64_t nodes[OPD_PFT_NODE_WORDS];
    const char *directory; // of the file
};

// One worker's row. Times are CLOCK_MONOTONIC_RAW.
struct opd_pft_worker {
    uint64_t start_ns, end_ns;
    uint64_t cpu_ns; // CLOCK_THREAD_CPUTIME_ID over the loop
    uint64_t user_us, system_us;
    uint64_t minor, major; // getrusage
    int64_t kernel_faults; // page-faults event; -errno when it was not
    uint64_t switches;     // involuntary
    uint64_t huge_bytes;   // of the slice, after the loop (smaps)
    int32_t cpu, task;
};

struct opd_pft_repeat {
    uint64_t unmap_ns; // of the whole region, 0 when workers map their own
    uint64_t page_bytes;
};

struct opd_pft;

// Takes the options (copies all). 0 or -errno: EINVAL for values out of range.
int opd_pft_create(const struct opd_pft_options *options, struct opd_pft **out);
void opd_pft_destroy(struct opd_pft *pft);

// What is looked at beside the times of the loop. Both cost some per cent of a
// fault, so rates are taken from repeats without them.
enum {
    OPD_PFT_COUNT = 1,   // the kernel's page-faults event counts beside
    OPD_PFT_LATENCY = 2, // the time of each page goes into a histogram
    // After the loops, beside no time: where pages lie is kept, and all memory
    // stays mapped for pause_ns, for somebody to look.
    OPD_PFT_PLACE = 4,
    OPD_PFT_PAUSE = 8,
};

// One repeat; `rows` has room for every worker. 0, or -errno and what failed
// in opd_pft_reason(); then no row is valid. -EOWNERDEAD: a worker process
// died (killed).
int opd_pft_repeat(struct opd_pft *pft, uint32_t look, struct opd_pft_worker *rows,
                   struct opd_pft_repeat *out);
const char *opd_pft_reason(const struct opd_pft *pft);

// After a repeat with OPD_PFT_PLACE: the line of a worker's memory in its
// numa_maps, "" where the kernel has none. Valid until the next repeat.
const char *opd_pft_placement(const struct opd_pft *pft, uint32_t worker);

// Adds the last repeat's latencies, all workers, to OPD_TICKS_BINS bins.
void opd_pft_bins(const struct opd_pft *pft, uint64_t *bins);
#endif
