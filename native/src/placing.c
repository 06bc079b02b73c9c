// SPDX-License-Identifier: Apache-2.0
#include "placing.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int
opd_place_policy(void *base, size_t length, int policy, const uint64_t *nodes, unsigned words)
{
    // The kernel reads maxnode - 1 bits; no mask at all is an empty one.
    const void *mask = NULL;
    for (unsigned i = 0; i < words; i++)
        if (nodes[i])
            mask = nodes;
    unsigned long most = mask ? words * 64ul + 1 : 0;
    return syscall(SYS_mbind, base, length, policy, mask, most, 0) ? -errno : 0;
}

int
opd_place_cpu(int cpu)
{
    size_t size = CPU_ALLOC_SIZE(cpu + 1);
    cpu_set_t *set = CPU_ALLOC(cpu + 1);
    if (set == NULL)
        return -ENOMEM;
    CPU_ZERO_S(size, set);
    CPU_SET_S((size_t)cpu, size, set);
    int rc = sched_setaffinity(0, size, set) ? -errno : 0;
    CPU_FREE(set);
    return rc;
}

uint64_t
opd_place_huge(const void *base, size_t length)
{
    FILE *file = fopen("/proc/self/smaps", "re");
    if (file == NULL)
        return 0;
    char line[256];
    uint64_t low = (uintptr_t)base, high = low + length, from = 0, to = 0, kib = 0, sum = 0;
    while (fgets(line, sizeof(line), file)) {
        uint64_t a = 0, b = 0;
        char *dash = strchr(line, '-');
        if (dash && dash - line <= 16 && sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &a, &b) == 2) {
            from = a;
            to = b;
        } else if (from < high && to > low &&
                   (sscanf(line, "AnonHugePages: %" SCNu64, &kib) == 1 ||
                    sscanf(line, "ShmemPmdMapped: %" SCNu64, &kib) == 1 ||
                    sscanf(line, "Private_Hugetlb: %" SCNu64, &kib) == 1)) {
            sum += kib * 1024;
        }
    }
    fclose(file);
    return sum < length ? sum : length;
}

void *
opd_place_map(size_t length, size_t align)
{
    if (length > SIZE_MAX - align) {
        errno = ENOMEM;
        return NULL;
    }
    char *whole = mmap(NULL, length + align, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (whole == MAP_FAILED)
        return NULL;
    char *base = (char *)(((uintptr_t)whole + align - 1) & ~(uintptr_t)(align - 1));
    if (base > whole)
        munmap(whole, (size_t)(base - whole));
    if (whole + align > base)
        munmap(base + length, (size_t)(whole + align - base));
    return base;
}
