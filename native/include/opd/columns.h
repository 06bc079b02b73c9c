// SPDX-License-Identifier: Apache-2.0
// What Python does with whole columns of numbers, without a step a number.
#ifndef OPD_COLUMNS_H
#define OPD_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

// Neighbours that are equal in the first `size` of their `stride` bytes are
// one run: which[i] is the run of item i, firsts[r] the first item of run r.
// Both have room for `count`. Returns the number of runs.
size_t opd_runs(const void *items, size_t stride, size_t size, size_t count, uint32_t *which,
                uint32_t *firsts);

// out[i] = table[which[i]], every index below `length`; -ERANGE when one is not.
int opd_gather(const uint32_t *table, size_t length, const uint32_t *which, size_t count,
               uint32_t *out);

// Adds `delta` modulo 2**64; with `but_zero` a 0 stays.
void opd_shift(uint64_t *values, size_t count, uint64_t delta, int but_zero);

// Each value less the one before, the first less `before`, modulo 2**64.
void opd_steps(const uint64_t *values, size_t count, uint64_t before, uint64_t *out);

#endif
