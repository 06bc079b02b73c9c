// SPDX-License-Identifier: Apache-2.0
// One repeat: workers made and made ready, let go together, their times read
// around the loop by each of them, all of them reaped.
#include "opd/pft.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pft_private.h"
#include "pft_worker.h"

#define HUGE_2M (1ull << 21)
#define HUGE_1G (1ull << 30)

static int
valid(const struct opd_pft_options *options, size_t page)
{
    if (options->backing > OPD_PFT_FILE || options->pages > OPD_PFT_HUGETLB_1G ||
        options->prepare > OPD_PFT_LOCK_ON_FAULT || options->touch > OPD_PFT_DONTNEED)
        return 0;
    if (options->workers == 0 || options->workers > OPD_PFT_WORKERS_MAX ||
        options->pages_each == 0 || options->pages_each > (UINT64_MAX >> 14) / page)
        return 0;
    if (options->pages_each * page > (UINT64_MAX >> 2) / options->workers)
        return 0;
    if (options->touch == OPD_PFT_WRITE &&
        (options->lines == 0 || options->line_bytes == 0 || options->line_bytes > page ||
         options->lines > page / options->line_bytes))
        return 0;
    if (options->backing == OPD_PFT_FILE && options->directory == NULL)
        return 0;
    if (options->touch == OPD_PFT_MAP_POPULATE && options->backing != OPD_PFT_ANON)
        return 0;
    // The kernel has the minor faults of shared memory only.
    if (options->prepare == OPD_PFT_USERFAULTFD_MINOR &&
        (options->backing != OPD_PFT_MEMFD || !options->shared))
        return 0;
    return options->cpu_count == 0 || options->cpus != NULL;
}

int
opd_pft_create(const struct opd_pft_options *options, struct opd_pft **out)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!valid(options, page))
        return -EINVAL;
    struct opd_pft *pft = calloc(1, sizeof(*pft));
    if (pft == NULL)
        return -ENOMEM;
    pft->options = *options;
    pft->fd = -1;
    pft->page = page;
    pft->slice = options->pages_each * page;
    size_t align = page;
    if (options->pages == OPD_PFT_HUGETLB_1G)
        align = HUGE_1G;
    else if (options->pages != OPD_PFT_BASE || (!options->packed && pft->slice >= HUGE_2M))
        align = HUGE_2M;
    pft->stride = (pft->slice + align - 1) & ~(align - 1);
    pft->region = pft->stride * options->workers;
    pft->shared_bytes = sizeof(struct pft_shared) + options->workers * sizeof(struct pft_slot);
    void *shared =
        mmap(NULL, pft->shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pft->shared = shared == MAP_FAILED ? NULL : shared;
    if (options->directory)
        pft->directory = strdup(options->directory);
    if (options->cpu_count) {
        pft->cpus = calloc(options->cpu_count, sizeof(*pft->cpus));
        if (pft->cpus)
            memcpy(pft->cpus, options->cpus, options->cpu_count * sizeof(*pft->cpus));
    }
    if (pft->shared == NULL || (options->directory && pft->directory == NULL) ||
        (options->cpu_count && pft->cpus == NULL)) {
        opd_pft_destroy(pft);
        return -ENOMEM;
    }
    pft->options.cpus = pft->cpus;
    pft->options.directory = pft->directory;
    *out = pft;
    return 0;
}

void
opd_pft_destroy(struct opd_pft *pft)
{
    if (pft == NULL)
        return;
    if (pft->shared)
        munmap(pft->shared, pft->shared_bytes);
    free(pft->cpus);
    free(pft->directory);
    free(pft);
}

// The caller is a worker too: what it was is put back afterwards.
struct before {
    size_t size;
    cpu_set_t *set;
    int policy;
    struct sched_param param;
};

static int
remember(struct opd_pft *pft, struct before *before)
{
    *before = (struct before){.policy = sched_getscheduler(0)};
    sched_getparam(0, &before->param);
    for (int cpus = 1024;; cpus *= 2) {
        before->size = CPU_ALLOC_SIZE(cpus);
        before->set = CPU_ALLOC(cpus);
        if (before->set == NULL)
            return pft_fail(pft->reason, ENOMEM, "a set of %d CPUs", cpus);
        if (sched_getaffinity(0, before->size, before->set) == 0)
            break;
        CPU_FREE(before->set);
        before->set = NULL;
        if (errno != EINVAL || cpus > 1 << 20)
            return pft_fail(pft->reason, errno, "sched_getaffinity");
    }
    if (pft->options.fifo == 0)
        return 0;
    struct sched_param above = {.sched_priority = (int)pft->options.fifo + 1};
    if (sched_setscheduler(0, SCHED_FIFO, &above))
        return pft_fail(pft->reason, errno, "SCHED_FIFO at priority %d", above.sched_priority);
    return 0;
}

static void
put_back(const struct opd_pft *pft, struct before *before)
{
    if (pft->options.fifo)
        sched_setscheduler(0, before->policy, &before->param);
    if (before->set) {
        sched_setaffinity(0, before->size, before->set);
        CPU_FREE(before->set);
    }
}

static int
repeat(struct opd_pft *pft, struct opd_pft_repeat *out)
{
    int rc = pft_source_open(pft);
    if (rc)
        return rc;
    if (!pft->options.multimap) {
        pft->base = pft_map(pft, pft->region, 0, pft->reason);
        if (pft->base == NULL)
            return -EIO;
    }
    rc = pft_workers_run(pft);
    if (pft->base) {
        uint64_t start = opd_raw_ns();
        pft_unmap(pft, pft->base, pft->region);
        out->unmap_ns = opd_raw_ns() - start;
    }
    return rc;
}

int
opd_pft_repeat(struct opd_pft *pft, uint32_t look, struct opd_pft_worker *rows,
               struct opd_pft_repeat *out)
{
    *out = (struct opd_pft_repeat){.page_bytes = pft->page};
    memset(pft->shared, 0, pft->shared_bytes);
    pft->reason[0] = 0;
    pft->base = NULL;
    pft->look = look;
    struct before before;
    int rc = remember(pft, &before);
    if (rc == 0)
        rc = repeat(pft, out);
    pft_source_close(pft);
    put_back(pft, &before);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < pft->options.workers; i++)
        rows[i] = pft->shared->slot[i].row;
    return 0;
}

const char *
opd_pft_reason(const struct opd_pft *pft)
{
    return pft->reason;
}

const char *
opd_pft_placement(const struct opd_pft *pft, uint32_t worker)
{
    return worker < pft->options.workers ? pft->shared->slot[worker].placement : "";
}

void
opd_pft_bins(const struct opd_pft *pft, uint64_t *bins)
{
    for (uint32_t i = 0; i < pft->options.workers; i++)
        for (uint32_t bin = 0; bin < OPD_TICKS_BINS; bin++)
            bins[bin] += pft->shared->slot[i].bins[bin];
}
