// SPDX-License-Identifier: Apache-2.0
// Interning of byte strings to small numbers: stacks and sample-file keys of
// one window. Numbers are dense from 0 in order of first sight. Single
// threaded; bounded; reset at each window.
#ifndef OPD_INTERN_H
#define OPD_INTERN_H

#include <stddef.h>
#include <stdint.h>

#define OPD_INTERN_FULL UINT32_MAX

struct opd_intern;

// `limit` bounds the number of strings, `limit_bytes` their total length.
// NULL with errno on ENOMEM. Grows from small as needed.
struct opd_intern *opd_intern_create(uint32_t limit, size_t limit_bytes);
void opd_intern_destroy(struct opd_intern *intern);

// The number of these `length` bytes (multiple of 4, 4-byte aligned), new or
// known. OPD_INTERN_FULL at a limit (or without memory), where known ones are
// still found. *fresh (may be NULL) tells a new one.
uint32_t opd_intern_put(struct opd_intern *intern, const void *bytes, uint32_t length, int *fresh);

// The same in two steps, with time for memory to arrive between them: the
// first gives the hash for the second.
uint32_t opd_intern_fetch(const struct opd_intern *intern, const void *bytes, uint32_t length);
uint32_t opd_intern_put_hashed(struct opd_intern *intern, const void *bytes, uint32_t length,
                               uint32_t hash, int *fresh);

uint32_t opd_intern_count(const struct opd_intern *intern);
// The bytes of number `n` (n < count), 8-byte aligned, valid until the next put
// or reset.
const void *opd_intern_get(const struct opd_intern *intern, uint32_t n, uint32_t *length);
size_t opd_intern_bytes(const struct opd_intern *intern); // total length of the strings
// Empties it and gives back what it had grown beyond what it held just now.
void opd_intern_reset(struct opd_intern *intern);

// 64-bit hash of bytes used by the tables (not an identity: may change).
uint64_t opd_hash64(const void *bytes, size_t length);

#endif
