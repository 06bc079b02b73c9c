// SPDX-License-Identifier: Apache-2.0
// Where memory and threads are put: NUMA policy by system call (no libnuma),
// CPUs, and what of a range became huge pages.
#ifndef OPD_PLACING_H
#define OPD_PLACING_H
#include <stddef.h>
#include <stdint.h>

// mbind(2) on a range; `nodes` are `words` 64-bit words. 0 or -errno.
int opd_place_policy(void *base, size_t length, int policy, const uint64_t *nodes, unsigned words);
// Pins the calling thread to one CPU. 0 or -errno.
int opd_place_cpu(int cpu);
// Bytes of the range that are in huge pages (THP or hugetlb), from smaps.
uint64_t opd_place_huge(const void *base, size_t length);
// `length` bytes of private anonymous memory at a multiple of `align` (2^n, at
// least a page), not yet touched. NULL with errno set.
void *opd_place_map(size_t length, size_t align);
#endif
