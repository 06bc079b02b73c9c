// SPDX-License-Identifier: Apache-2.0
#include "opd/process.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>

#define RETURN_ABOVE (128 << 10) // bytes: fixed, since glibc raises it with each block freed
#define ARENAS 2                 // glibc makes one a thread

void
opd_process_return_memory(void)
{
    mallopt(M_MMAP_THRESHOLD, RETURN_ABOVE);
    mallopt(M_TRIM_THRESHOLD, RETURN_ABOVE);
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
