// SPDX-License-Identifier: Apache-2.0
// Puts records of several CPUs into one order of time. Each CPU is a stream
// whose records arrive nearly in order (an NMI may invert neighbours, a
// writer may be late); pushing copies the bytes, so that the ring can be
// released at once.
#ifndef OPD_ORDER_H
#define OPD_ORDER_H

#include <stddef.h>
#include <stdint.h>

// So many records that were popped stay where they are, until the next push.
#define OPD_ORDER_HOLD 64u // a power of two

struct opd_order;

struct opd_order_item {
    uint64_t time;
    const void *bytes; // 8-byte aligned copy, valid until the next push or OPD_ORDER_HOLD pops on
    uint32_t length;
    uint32_t stream;
    uint32_t tag; // the caller's word (the event's index)
};

// `limit_bytes` bounds the copies held: each counts its length rounded up to 8
// plus 48 bytes of links. Chunks that a few old records hold open are bounded
// by twice that and one chunk (4 to 64 KiB) a stream. Any order of times costs
// at most a logarithm a record. NULL with errno set on ENOMEM.
struct opd_order *opd_order_create(unsigned streams, size_t limit_bytes);
void opd_order_destroy(struct opd_order *order);

// Copies one record in. 0, -ENOSPC at the limit (the caller pops by force
// with safe = UINT64_MAX and tries again; an empty order takes any record, so
// that ends), -EINVAL for an unknown stream, -ENOMEM.
int opd_order_push(struct opd_order *order, unsigned stream, uint64_t time, uint32_t tag,
                   const void *bytes, uint32_t length);

// Gives the oldest record whose time is <= safe: 1 and *item, or 0 when there
// is none. Stable: records of one time come by stream number, and within a
// stream in the order pushed. A record pushed with a time older than one
// already popped is given at once, whatever `safe` says, and counted as late.
int opd_order_pop(struct opd_order *order, uint64_t safe, struct opd_order_item *item);

struct opd_order_stats {
    uint64_t pushed, popped, late;
    uint64_t inverted;               // older than a record pushed before it into its stream
    uint64_t held_bytes, peak_bytes; // as limit_bytes counts
};
void opd_order_stats(const struct opd_order *order, struct opd_order_stats *stats);

#endif
