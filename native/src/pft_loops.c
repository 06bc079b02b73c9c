// SPDX-License-Identifier: Apache-2.0
// The loops that are measured, one made for each way of touching, with and
// without a reading of the clock a page. Nothing in them asks what was chosen.
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "pft_private.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

struct span {
    char *at, *end;
    size_t page, line;
    uint32_t lines;
    uint64_t *bins;
};

#define LOOPS(name, touch)                                                                         \
    static void name##_plain(const struct span *span)                                              \
    {                                                                                              \
        const size_t page = span->page, line = span->line;                                         \
        const uint32_t lines = span->lines;                                                        \
        (void)line, (void)lines;                                                                   \
        for (char *at = span->at, *end = span->end; at < end; at += page) {                        \
            touch                                                                                  \
        }                                                                                          \
    }                                                                                              \
    static void name##_timed(const struct span *span)                                              \
    {                                                                                              \
        const size_t page = span->page, line = span->line;                                         \
        const uint32_t lines = span->lines;                                                        \
        (void)line, (void)lines;                                                                   \
        uint64_t *bins = span->bins, last = opd_ticks();                                           \
        for (char *at = span->at, *end = span->end; at < end; at += page) {                        \
            touch uint64_t now = opd_ticks();                                                      \
            bins[opd_ticks_bin(now - last)]++;                                                     \
            last = now;                                                                            \
        }                                                                                          \
    }

// clang-format off
LOOPS(one, *(volatile char *)at = 'r';)
LOOPS(several, for (uint32_t i = 0; i < lines; i++) *(volatile char *)(at + i * line) = 'r';)
LOOPS(read, (void)*(volatile char *)at;)
// clang-format on

static void
clear_timed(const struct span *span)
{
    uint64_t last = opd_ticks();
    for (char *at = span->at; at < span->end; at += span->page) {
        memset(at, 0, span->page);
        __asm__ volatile("" ::"r"(at) : "memory");
        uint64_t now = opd_ticks();
        span->bins[opd_ticks_bin(now - last)]++;
        last = now;
    }
}

int
pft_loop(const struct opd_pft *pft, char *slice, uint64_t pages, uint64_t *bins)
{
    const struct opd_pft_options *options = &pft->options;
    size_t length = pages * pft->page;
    struct span span = {.at = slice,
                        .end = slice + length,
                        .page = pft->page,
                        .line = options->line_bytes,
                        .lines = options->lines,
                        .bins = bins};
    int timed = (pft->look & OPD_PFT_LATENCY) != 0;
    int rc = 0;
    switch (options->touch) {
    case OPD_PFT_WRITE:
        if (options->lines == 1)
            (timed ? one_timed : one_plain)(&span);
        else
            (timed ? several_timed : several_plain)(&span);
        return 0;
    case OPD_PFT_READ:
        (timed ? read_timed : read_plain)(&span);
        return 0;
    case OPD_PFT_CLEAR:
        // Without times all at once, as pft does: libc clears much in another
        // way than a page.
        if (timed)
            clear_timed(&span);
        else
            memset(slice, 0, length);
        return 0;
    default:
        break;
    }
    if (options->touch == OPD_PFT_MLOCK)
        rc = mlock(slice, length);
    else if (options->touch == OPD_PFT_POPULATE_READ)
        rc = madvise(slice, length, MADV_POPULATE_READ);
    else if (options->touch == OPD_PFT_POPULATE_WRITE)
        rc = madvise(slice, length, MADV_POPULATE_WRITE);
    else if (options->touch == OPD_PFT_COLLAPSE)
        rc = madvise(slice, length, MADV_COLLAPSE);
    else if (options->touch == OPD_PFT_DONTNEED)
        rc = madvise(slice, length, MADV_DONTNEED);
    else
        rc = mmap(slice, length, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_POPULATE, -1, 0) == MAP_FAILED
                 ? -1
                 : 0;
    return rc ? -errno : 0;
}
