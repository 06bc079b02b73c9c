// SPDX-License-Identifier: Apache-2.0
#ifndef OPD_PFT_PRIVATE_H
#define OPD_PFT_PRIVATE_H
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

#include "opd/pft.h"

enum pft_state { PFT_NEW, PFT_READY, PFT_SETTLED, PFT_DONE, PFT_FAILED };
enum { PFT_PLACEMENT = 512 };
enum pft_go { PFT_WAIT, PFT_SETTLE, PFT_GO, PFT_ABORT };

// One worker's place in memory that processes share; its own pages.
struct pft_slot {
    _Alignas(4096) _Atomic uint32_t state;
    int32_t error;
    char reason[OPD_PFT_REASON];
    char placement[PFT_PLACEMENT];
    struct opd_pft_worker row;
    uint64_t bins[OPD_TICKS_BINS];
};

struct pft_shared {
    _Alignas(4096) _Atomic uint32_t go;
    _Atomic uint32_t over; // every worker has ended its loop
    struct pft_slot slot[];
};

struct pft_uffd {
    int fd, stop;
    pthread_t thread;
    void *page;
    uint32_t how; // OPD_PFT_USERFAULTFD…
};

struct opd_pft {
    struct opd_pft_options options;
    int32_t *cpus;
    char *directory;
    size_t page, slice, stride, region; // bytes
    struct pft_shared *shared;
    size_t shared_bytes;
    char *base;    // of the region; NULL when workers map their own
    uint32_t look; // OPD_PFT_COUNT and the like of this repeat
    int fd;        // of the memfd or file; -1
    char reason[OPD_PFT_REASON];
};

// What went wrong, for people; returns -error.
int pft_fail(char *reason, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Regions (pft_region.c). Each returns 0, or -errno with the reason filled.
int pft_source_open(struct opd_pft *pft);
void pft_source_close(struct opd_pft *pft);
char *pft_map(struct opd_pft *pft, size_t length, uint64_t offset, char *reason);
void pft_unmap(struct opd_pft *pft, char *base, size_t length);
int pft_prepare(struct opd_pft *pft, char *slice, char *reason);
pid_t pft_hold_fork(char *reason);
void pft_hold_end(pid_t holder);
// The line of the mapping at `slice` in numa_maps; "" without.
void pft_placement(const char *slice, char *line, size_t size);
int pft_uffd_start(struct pft_uffd *uffd, const struct opd_pft *pft, char *slice, char *reason);
void pft_uffd_stop(struct pft_uffd *uffd);

// The measured loop (pft_loops.c). 0 or -errno.
int pft_loop(const struct opd_pft *pft, char *slice, uint64_t pages, uint64_t *bins);
#endif
