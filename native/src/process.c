// SPDX-License-Identifier: Apache-2.0
#include "opd/process.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>

// Fixed, since glibc raises it with each block freed. What a common window takes
// and gives back stays below it: a page that comes again is a page fault, up to
// 4 us each on a virtual machine, and was a tenth of the CPU of a sample.
#define RETURN_ABOVE (4 << 20)
#define GROW_BY (1 << 20)
#define ARENAS 2 // glibc makes one a thread

void
opd_process_return_memory(void)
{
    mallopt(M_MMAP_THRESHOLD, RETURN_ABOVE);
    mallopt(M_TRIM_THRESHOLD, RETURN_ABOVE);
    mallopt(M_TOP_PAD, GROW_BY);
    mallopt(M_ARENA_MAX, ARENAS);
}

void
opd_process_trim_memory(void)
{
    malloc_trim(0);
}

int
opd_process_die_with_parent(void)
{
    return prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 ? 0 : -errno;
}
