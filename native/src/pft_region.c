// SPDX-License-Identifier: Apache-2.0
// Memory in the state from which the measured loop starts.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pft_private.h"
#include "placing.h"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#define HUGE_2M (1ull << 21)
#define HUGE_1G (1ull << 30)

int
pft_fail(char *reason, int error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(reason, OPD_PFT_REASON, format, arguments);
    va_end(arguments);
    if (error && length >= 0 && length < OPD_PFT_REASON)
        snprintf(reason + length, (size_t)(OPD_PFT_REASON - length), ": %s", strerror(error));
    return -(error ? error : EIO);
}

static int
fill(struct opd_pft *pft)
{
    enum { CHUNK = 1 << 20 };
    char *chunk = malloc(CHUNK);
    if (chunk == NULL)
        return pft_fail(pft->reason, ENOMEM, "a buffer to fill the file");
    memset(chunk, 'f', CHUNK);
    for (size_t at = 0; at < pft->region;) {
        size_t want = pft->region - at < CHUNK ? pft->region - at : CHUNK;
        ssize_t wrote = pwrite(pft->fd, chunk, want, (off_t)at);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0) {
            int error = wrote ? errno : ENOSPC;
            free(chunk);
            return pft_fail(pft->reason, error, "writing %zu bytes to fault in", pft->region);
        }
        at += (size_t)wrote;
    }
    free(chunk);
    return 0;
}

int
pft_source_open(struct opd_pft *pft)
{
    const struct opd_pft_options *options = &pft->options;
    if (options->backing == OPD_PFT_DEV_ZERO) {
        pft->fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
        return pft->fd < 0 ? pft_fail(pft->reason, errno, "opening /dev/zero") : 0;
    }
    if (options->backing != OPD_PFT_MEMFD && options->backing != OPD_PFT_FILE)
        return 0;
    if (options->backing == OPD_PFT_MEMFD) {
        pft->fd = memfd_create("opd-pft", MFD_CLOEXEC);
        if (pft->fd < 0)
            return pft_fail(pft->reason, errno, "memfd_create");
    } else {
        char path[4096];
        snprintf(path, sizeof(path), "%s/opd-pft.XXXXXX", pft->directory);
        pft->fd = mkostemp(path, O_CLOEXEC);
        if (pft->fd < 0)
            return pft_fail(pft->reason, errno, "making a file in %s", pft->directory);
        unlink(path); // nothing is left behind, however we end
    }
    if (ftruncate(pft->fd, (off_t)pft->region))
        return pft_fail(pft->reason, errno, "a file of %zu bytes", pft->region);
    if (options->prepare != OPD_PFT_FILLED && options->prepare != OPD_PFT_UNCACHED &&
        options->prepare != OPD_PFT_USERFAULTFD_MINOR)
        return 0;
    int rc = fill(pft);
    if (rc == 0 && options->backing == OPD_PFT_FILE && fsync(pft->fd))
        rc = pft_fail(pft->reason, errno, "writing the file out");
    return rc;
}

void
pft_source_close(struct opd_pft *pft)
{
    if (pft->fd >= 0)
        close(pft->fd);
    pft->fd = -1;
}

static char *
map_shm(struct opd_pft *pft, size_t length, char *reason)
{
    int id = shmget(IPC_PRIVATE, length, IPC_CREAT | SHM_R | SHM_W);
    if (id < 0) {
        pft_fail(reason, errno, "a shared memory segment of %zu bytes", length);
        return NULL;
    }
    void *base = shmat(id, NULL, 0);
    int error = errno;
    if (base != (void *)-1 && pft->options.shm_lock && shmctl(id, SHM_LOCK, NULL)) {
        error = errno;
        shmdt(base);
        shmctl(id, IPC_RMID, NULL);
        pft_fail(reason, error, "SHM_LOCK of %zu bytes", length);
        return NULL;
    }
    // Marked for removal at once: it goes with its last user, killed or not.
    shmctl(id, IPC_RMID, NULL);
    if (base == (void *)-1) {
        pft_fail(reason, error, "attaching %zu bytes of shared memory", length);
        return NULL;
    }
    return base;
}

char *
pft_map(struct opd_pft *pft, size_t length, uint64_t offset, char *reason)
{
    const struct opd_pft_options *options = &pft->options;
    char *base = NULL;
    int share = options->shared ? MAP_SHARED : MAP_PRIVATE;
    if (options->backing == OPD_PFT_SHM) {
        base = map_shm(pft, length, reason);
        if (base == NULL)
            return NULL;
    } else if (options->backing != OPD_PFT_ANON) {
        base = mmap(NULL, length, PROT_READ | PROT_WRITE, share, pft->fd, (off_t)offset);
    } else if (options->pages >= OPD_PFT_HUGETLB_2M) {
        int shift = options->pages == OPD_PFT_HUGETLB_2M ? 21 : 30;
        base = mmap(NULL, length, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | shift << MAP_HUGE_SHIFT, -1, 0);
    } else if (options->shared) {
        base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    } else {
        base = opd_place_map(length, HUGE_2M);
        base = base ? base : MAP_FAILED;
    }
    if (base == MAP_FAILED) {
        pft_fail(reason, errno, "mapping %zu bytes%s", length,
                 options->pages >= OPD_PFT_HUGETLB_2M ? " of hugetlb pages (are they reserved?)"
                                                      : "");
        return NULL;
    }
    int rc = 0;
    if (options->pages == OPD_PFT_BASE || options->pages == OPD_PFT_FOLIO)
        rc = madvise(base, length, MADV_NOHUGEPAGE);
    else if (options->pages == OPD_PFT_THP)
        rc = madvise(base, length, MADV_HUGEPAGE);
    // A kernel without transparent huge pages has none to turn off.
    if (rc && !(errno == EINVAL && options->pages == OPD_PFT_BASE)) {
        pft_fail(reason, errno, "MADV_%sHUGEPAGE", options->pages == OPD_PFT_BASE ? "NO" : "");
        pft_unmap(pft, base, length);
        return NULL;
    }
    if (options->policy_set) {
        rc = opd_place_policy(base, length, (int)options->policy, options->nodes,
                              OPD_PFT_NODE_WORDS);
        if (rc) {
            pft_fail(reason, -rc, "mbind with policy %u", options->policy);
            pft_unmap(pft, base, length);
            return NULL;
        }
    }
    return base;
}

void
pft_unmap(struct opd_pft *pft, char *base, size_t length)
{
    if (pft->options.backing == OPD_PFT_SHM)
        shmdt(base);
    else
        munmap(base, length);
}

static void
write_all(char *at, size_t length, size_t page)
{
    for (char *end = at + length; at < end; at += page)
        *(volatile char *)at = 'w';
}

static void
read_all(char *at, size_t length, size_t page)
{
    for (char *end = at + length; at < end; at += page)
        (void)*(volatile char *)at;
}

// A huge page is taken only where no page table stands yet. One that does, and is
// empty, leaves the kernel the folios that fit below it.
static int
tables_only(char *slice, size_t length, char *reason)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (char *at = slice; at < slice + length; at += HUGE_2M) {
        *(volatile char *)at = 'w';
        if (madvise(at, page, MADV_DONTNEED))
            return pft_fail(reason, errno, "MADV_DONTNEED");
    }
    if (madvise(slice, length, MADV_HUGEPAGE))
        return pft_fail(reason, errno, "MADV_HUGEPAGE");
    return 0;
}

static int
none_resident(char *slice, size_t length, size_t page, char *reason)
{
    size_t pages = length / page, left = 0;
    unsigned char *seen = malloc(pages);
    if (seen == NULL)
        return pft_fail(reason, ENOMEM, "%zu bytes to look at residency", pages);
    int rc = mincore(slice, length, seen);
    for (size_t i = 0; rc == 0 && i < pages; i++)
        left += seen[i] & 1;
    free(seen);
    if (rc)
        return pft_fail(reason, errno, "mincore");
    if (left > pages / 100)
        return pft_fail(reason, 0, "%zu of %zu pages stayed in memory", left, pages);
    return 0;
}

static int
page_out(char *slice, size_t length, size_t page, char *reason)
{
    enum { ROUNDS = 20, WRITING_NS = 20000000 };
    write_all(slice, length, page);
    for (int round = 0;; round++) {
        if (madvise(slice, length, MADV_PAGEOUT))
            return pft_fail(reason, errno, "MADV_PAGEOUT");
        int rc = none_resident(slice, length, page, reason);
        if (rc == 0 || round == ROUNDS)
            return rc;
        // While a copy is written to a disk its page stays in the swap cache, and
        // is not looked at again. Read back when that is done it is clean, and
        // goes at once.
        struct timespec time = {.tv_nsec = WRITING_NS};
        nanosleep(&time, NULL);
        read_all(slice, length, page);
    }
}

int
pft_prepare(struct opd_pft *pft, char *slice, char *reason)
{
    size_t length = pft->slice, page = pft->page;
    if (pft->options.pages == OPD_PFT_FOLIO)
        return tables_only(slice, length, reason);
    switch (pft->options.prepare) {
    case OPD_PFT_READ_FIRST:
        read_all(slice, length, page);
        return 0;
    case OPD_PFT_WRITE_FIRST:
    case OPD_PFT_FORKED:
    case OPD_PFT_FORKED_GONE:
    case OPD_PFT_USERFAULTFD_WP:
        write_all(slice, length, page);
        return 0;
    case OPD_PFT_LOCK_ON_FAULT:
        if (mlock2(slice, length, MLOCK_ONFAULT))
            return pft_fail(reason, errno, "mlock2(MLOCK_ONFAULT) of %zu bytes", length);
        return 0;
    case OPD_PFT_DROPPED:
        write_all(slice, length, page);
        if (madvise(slice, length, MADV_DONTNEED))
            return pft_fail(reason, errno, "MADV_DONTNEED");
        return 0;
    case OPD_PFT_UNCACHED:
        // Before any worker reads its part; the slice's own pages only.
        if (posix_fadvise(pft->fd, 0, (off_t)pft->region, POSIX_FADV_DONTNEED))
            return pft_fail(reason, errno, "dropping the file from the page cache");
        return none_resident(slice, length, page, reason);
    case OPD_PFT_PAGED_OUT:
        return page_out(slice, length, page, reason);
    default:
        return 0;
    }
}

void
pft_placement(const char *slice, char *line, size_t size)
{
    line[0] = 0;
    FILE *file = fopen("/proc/self/numa_maps", "re");
    if (file == NULL)
        return; // a kernel without NUMA
    char *text = NULL;
    size_t room = 0;
    // In order of address: the last mapping that begins at or below it holds it.
    while (getline(&text, &room, file) > 0 && strtoull(text, NULL, 16) <= (uintptr_t)slice)
        snprintf(line, size, "%.*s", (int)strcspn(text, "\n"), text);
    free(text);
    fclose(file);
}

pid_t
pft_hold_fork(char *reason)
{
    pid_t child = fork();
    if (child < 0)
        pft_fail(reason, errno, "forking the child that shares the pages");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    return child;
}

void
pft_hold_end(pid_t holder)
{
    kill(holder, SIGKILL);
    while (waitpid(holder, NULL, 0) < 0 && errno == EINTR)
        ;
}
