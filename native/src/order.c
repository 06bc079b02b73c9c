// SPDX-License-Identifier: Apache-2.0
#include "opd/order.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_MAX ((size_t)64 * 1024)
#define CHUNK_MIN ((size_t)4 * 1024)
// Places that a record is walked back from its stream's end. What belongs
// further back (a file written in rounds, or a hostile one) goes to a heap, so
// that no input costs more than a logarithm.
#define REACH 32
#define NOWHERE UINT32_MAX

struct chunk {
    struct chunk *next; // in the pool
    size_t size;        // of bytes[]
    size_t used;
    uint32_t live; // records not yet released
    uint32_t stream;
    _Alignas(16) unsigned char bytes[];
};

// A copy, with what links it: all memory of a record is in its chunk.
struct node {
    uint64_t time;
    struct node *next;  // list: younger; heap: sibling
    struct node *other; // list: older; heap: first child
    struct chunk *chunk;
    uint32_t length;
    uint32_t tag;
    uint32_t sequence; // of equal times the first pushed goes first
    uint32_t unused;
    unsigned char bytes[];
};
_Static_assert(sizeof(struct node) == 48, "order.h states the cost of a copy");

struct stream {
    struct node *oldest, *youngest; // nearly sorted list
    struct node *strays;            // pairing heap
    struct chunk *chunk;            // being filled
    uint64_t newest;                // latest time pushed so far
    bool seen;
    uint32_t place; // in the heap of streams
};

struct lead {
    uint64_t time;
    uint32_t stream;
};

struct opd_order {
    struct stream *streams;
    struct lead *heap; // streams that hold something, oldest record first
    uint32_t count;    // of the heap
    uint32_t stream_count;
    uint32_t sequence;
    size_t limit;
    size_t chunk_size;
    size_t chunk_limit; // bytes of chunks in use at most
    size_t chunk_bytes;
    struct chunk *pool;
    size_t pool_bytes, pool_limit;
    struct chunk *given[OPD_ORDER_HOLD]; // of the records that pop gave last, a circle
    unsigned given_count, given_next;
    uint64_t last; // latest time popped
    struct opd_order_stats stats;
};

struct opd_order *
opd_order_create(unsigned streams, size_t limit_bytes)
{
    struct opd_order *order = calloc(1, sizeof *order);
    if (order == NULL)
        return NULL;
    order->streams = calloc(streams + (size_t)1, sizeof *order->streams);
    order->heap = calloc(streams + (size_t)1, sizeof *order->heap);
    if (order->streams == NULL || order->heap == NULL) {
        opd_order_destroy(order);
        errno = ENOMEM;
        return NULL;
    }
    order->stream_count = streams;
    for (unsigned i = 0; i < streams; i++)
        order->streams[i].place = NOWHERE;
    order->limit = limit_bytes;
    size_t share = limit_bytes / (streams + (size_t)1) / 2;
    order->chunk_size = share > CHUNK_MAX ? CHUNK_MAX : share < CHUNK_MIN ? CHUNK_MIN : share;
    order->chunk_size &= ~(size_t)63;
    size_t floor = (streams + (size_t)1) * order->chunk_size;
    order->chunk_limit = limit_bytes > (SIZE_MAX - floor) / 2 ? SIZE_MAX : 2 * limit_bytes + floor;
    order->pool_limit =
        limit_bytes / 8 > 4 * order->chunk_size ? limit_bytes / 8 : 4 * order->chunk_size;
    return order;
}

static struct chunk *
chunk_take(struct opd_order *order, uint32_t stream, size_t size)
{
    struct chunk *chunk = order->pool;
    if (size == order->chunk_size && chunk != NULL) {
        order->pool = chunk->next;
        order->pool_bytes -= size;
    } else {
        chunk = malloc(sizeof *chunk + size);
        if (chunk == NULL)
            return NULL;
        chunk->size = size;
    }
    chunk->next = NULL;
    chunk->used = 0;
    chunk->live = 0;
    chunk->stream = stream;
    order->chunk_bytes += size;
    return chunk;
}

static void
chunk_release(struct opd_order *order, struct chunk *chunk)
{
    struct stream *stream = &order->streams[chunk->stream];
    if (--chunk->live > 0)
        return;
    if (stream->chunk == chunk)
        stream->chunk = NULL;
    order->chunk_bytes -= chunk->size;
    if (chunk->size != order->chunk_size || order->pool_bytes + chunk->size > order->pool_limit) {
        free(chunk);
        return;
    }
    chunk->next = order->pool;
    order->pool = chunk;
    order->pool_bytes += chunk->size;
}

static inline void
release_oldest(struct opd_order *order)
{
    unsigned oldest = (order->given_next - order->given_count) % OPD_ORDER_HOLD;
    order->given_count--;
    chunk_release(order, order->given[oldest]);
}

static inline void
release_given(struct opd_order *order)
{
    while (order->given_count > 0)
        release_oldest(order);
}

static inline bool
before(const struct node *a, const struct node *b)
{
    if (a->time != b->time)
        return a->time < b->time;
    return (int32_t)(a->sequence - b->sequence) < 0;
}

static struct node *
strays_meld(struct node *a, struct node *b)
{
    if (a == NULL)
        return b;
    if (b == NULL)
        return a;
    if (before(b, a)) {
        struct node *swap = a;
        a = b;
        b = swap;
    }
    b->next = a->other;
    a->other = b;
    return a;
}

// The heap without its root: children melded in pairs, then all together.
static struct node *
strays_rest(struct node *root)
{
    struct node *pairs = NULL;
    for (struct node *child = root->other; child != NULL;) {
        struct node *second = child->next;
        struct node *rest = second != NULL ? second->next : NULL;
        child->next = NULL;
        if (second != NULL)
            second->next = NULL;
        struct node *pair = strays_meld(child, second);
        pair->next = pairs;
        pairs = pair;
        child = rest;
    }
    struct node *heap = NULL;
    while (pairs != NULL) {
        struct node *rest = pairs->next;
        pairs->next = NULL;
        heap = strays_meld(heap, pairs);
        pairs = rest;
    }
    return heap;
}

static inline struct node *
stream_first(const struct stream *stream)
{
    struct node *oldest = stream->oldest;
    struct node *stray = stream->strays;
    if (__builtin_expect(stray == NULL, 1))
        return oldest;
    return oldest == NULL || before(stray, oldest) ? stray : oldest;
}

static void
stream_insert(struct stream *stream, struct node *node)
{
    struct node *older = stream->youngest;
    for (unsigned i = 0; older != NULL && older->time > node->time; i++) {
        if (i == REACH) {
            node->next = NULL;
            node->other = NULL;
            stream->strays = strays_meld(stream->strays, node);
            return;
        }
        older = older->other;
    }
    struct node *younger = older != NULL ? older->next : stream->oldest;
    node->other = older;
    node->next = younger;
    if (older != NULL)
        older->next = node;
    else
        stream->oldest = node;
    if (younger != NULL)
        younger->other = node;
    else
        stream->youngest = node;
}

static void
stream_remove_first(struct stream *stream, struct node *first)
{
    if (first == stream->strays) {
        stream->strays = strays_rest(first);
        return;
    }
    stream->oldest = first->next;
    if (first->next != NULL)
        first->next->other = NULL;
    else
        stream->youngest = NULL;
}

static inline bool
leads(struct lead a, struct lead b)
{
    return a.time != b.time ? a.time < b.time : a.stream < b.stream;
}

static inline void
heap_set(struct opd_order *order, uint32_t place, struct lead lead)
{
    order->heap[place] = lead;
    order->streams[lead.stream].place = place;
}

static void
heap_up(struct opd_order *order, uint32_t place, struct lead lead)
{
    while (place > 0 && leads(lead, order->heap[(place - 1) / 2])) {
        heap_set(order, place, order->heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    heap_set(order, place, lead);
}

static void
heap_down(struct opd_order *order, struct lead lead)
{
    uint32_t place = 0;
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child >= order->count)
            break;
        if (child + 1 < order->count && leads(order->heap[child + 1], order->heap[child]))
            child++;
        if (leads(lead, order->heap[child]))
            break;
        heap_set(order, place, order->heap[child]);
        place = child;
    }
    heap_set(order, place, lead);
}

int
opd_order_push(struct opd_order *order, unsigned stream_number, uint64_t time, uint32_t tag,
               const void *bytes, uint32_t length)
{
    if (stream_number >= order->stream_count)
        return -EINVAL;
    release_given(order);
    struct stream *stream = &order->streams[stream_number];
    size_t size = sizeof(struct node) + (((size_t)length + 7) & ~(size_t)7);
    // Whatever its size, a record that comes alone is taken: who pops by
    // force and tries again gets on.
    if (order->count != 0 && (size > order->limit || order->stats.held_bytes > order->limit - size))
        return -ENOSPC;
    struct chunk *chunk = stream->chunk;
    if (chunk == NULL || size > chunk->size - chunk->used) {
        size_t need = size > order->chunk_size ? size : order->chunk_size;
        // A few records that stay can hold many chunks; that is bounded too.
        if (order->count != 0 &&
            (need > order->chunk_limit || order->chunk_bytes > order->chunk_limit - need))
            return -ENOSPC;
        chunk = chunk_take(order, stream_number, need);
        if (chunk == NULL)
            return -ENOMEM;
        if (need == order->chunk_size)
            stream->chunk = chunk;
    }
    struct node *node = (struct node *)(chunk->bytes + chunk->used);
    chunk->used += size;
    chunk->live++;
    node->time = time;
    node->chunk = chunk;
    node->length = length;
    node->tag = tag;
    node->sequence = order->sequence++;
    if (length != 0)
        memcpy(node->bytes, bytes, length);

    stream_insert(stream, node);
    if (stream->place == NOWHERE)
        heap_up(order, order->count++, (struct lead){time, stream_number});
    else if (time < order->heap[stream->place].time)
        heap_up(order, stream->place, (struct lead){time, stream_number});

    order->stats.pushed++;
    order->stats.late += time < order->last;
    order->stats.inverted += stream->seen && time < stream->newest;
    if (!stream->seen || time > stream->newest)
        stream->newest = time;
    stream->seen = true;
    order->stats.held_bytes += size;
    if (order->stats.held_bytes > order->stats.peak_bytes)
        order->stats.peak_bytes = order->stats.held_bytes;
    return 0;
}

int
opd_order_pop(struct opd_order *order, uint64_t safe, struct opd_order_item *item)
{
    if (order->count == 0)
        return 0;
    struct lead lead = order->heap[0];
    if (lead.time > safe && lead.time >= order->last)
        return 0;
    struct stream *stream = &order->streams[lead.stream];
    struct node *node = stream_first(stream);
    stream_remove_first(stream, node);
    struct node *first = stream_first(stream);
    if (first != NULL) {
        // Of many streams each comes again after a while: what its turn needs
        // of memory is asked for now.
        __builtin_prefetch(first->next);
        __builtin_prefetch(first->bytes + 16);
        __builtin_prefetch(first->bytes + 80);
        heap_down(order, (struct lead){first->time, lead.stream});
    } else {
        stream->place = NOWHERE;
        if (--order->count > 0)
            heap_down(order, order->heap[order->count]);
    }
    if (order->given_count == OPD_ORDER_HOLD)
        release_oldest(order);
    order->given[order->given_next++ % OPD_ORDER_HOLD] = node->chunk;
    order->given_count++;
    if (lead.time > order->last)
        order->last = lead.time;
    order->stats.popped++;
    order->stats.held_bytes -= sizeof *node + (((size_t)node->length + 7) & ~(size_t)7);
    *item = (struct opd_order_item){
        .time = node->time,
        .bytes = node->bytes,
        .length = node->length,
        .stream = lead.stream,
        .tag = node->tag,
    };
    return 1;
}

void
opd_order_destroy(struct opd_order *order)
{
    if (order == NULL)
        return;
    // Every chunk in use is reached through a record, a stream or `given`.
    struct opd_order_item item;
    while (opd_order_pop(order, UINT64_MAX, &item) == 1)
        ;
    release_given(order);
    while (order->pool != NULL) {
        struct chunk *chunk = order->pool;
        order->pool = chunk->next;
        free(chunk);
    }
    free(order->streams);
    free(order->heap);
    free(order);
}

void
opd_order_stats(const struct opd_order *order, struct opd_order_stats *stats)
{
    *stats = order->stats;
}
