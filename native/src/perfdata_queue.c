// SPDX-License-Identifier: Apache-2.0
// Time order: records wait in 1 MiB blocks; a (time, record) array is sorted
// by merging the runs it consists of, since every CPU's records come in order.
#include "perfdata_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define BLOCK_SIZE ((size_t)1 << 20)
#define FREE_BLOCKS 4u

struct opd_queue_block {
    struct opd_queue_block *next; // in the free list
    size_t used;
    size_t live; // records not yet released
};

static_assert(sizeof(struct opd_queued) % 8 == 0, "records after the head are aligned");
static_assert(sizeof(struct opd_queue_block) % 8 == 0, "heads after the block's are aligned");

static struct opd_queue_block *
new_block(struct opd_queue *queue)
{
    struct opd_queue_block *block = queue->free;
    if (block != NULL) {
        queue->free = block->next;
        queue->free_count--;
    } else {
        // Straight from the kernel, so that a file that was sorted whole leaves
        // no hole in the heap.
        block = mmap(NULL, BLOCK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED)
            return NULL;
    }
    *block = (struct opd_queue_block){.used = sizeof *block};
    return block;
}

static void
retire_block(struct opd_queue *queue, struct opd_queue_block *block)
{
    if (queue->free_count >= FREE_BLOCKS) {
        munmap(block, BLOCK_SIZE);
        return;
    }
    block->next = queue->free;
    queue->free = block;
    queue->free_count++;
}

struct opd_queued *
opd_queue_take(struct opd_queue *queue, size_t size)
{
    size_t whole = sizeof(struct opd_queued) + ((size + 7) & ~(size_t)7);
    struct opd_queue_block *block = queue->current;
    if (block == NULL || BLOCK_SIZE - block->used < whole) {
        struct opd_queue_block *fresh = new_block(queue);
        if (fresh == NULL)
            return NULL;
        if (block != NULL && block->live == 0)
            retire_block(queue, block);
        queue->current = block = fresh;
    }
    struct opd_queued *queued = (struct opd_queued *)((uint8_t *)block + block->used);
    block->used += whole;
    block->live++;
    queued->block = block;
    queued->size = (uint32_t)size;
    return queued;
}

void
opd_queue_release(struct opd_queue *queue, struct opd_queued *queued)
{
    struct opd_queue_block *block = queued->block;
    if (--block->live > 0)
        return;
    if (block == queue->current)
        block->used = sizeof *block;
    else
        retire_block(queue, block);
}

static int
grow(struct opd_queue *queue)
{
    if (queue->head > 0) {
        memmove(queue->entries, queue->entries + queue->head,
                (queue->count - queue->head) * sizeof *queue->entries);
        queue->count -= queue->head;
        queue->ready -= queue->head;
        queue->head = 0;
        if (queue->count <= queue->capacity / 2 && queue->capacity > 0)
            return 0;
    }
    size_t capacity = queue->capacity ? queue->capacity * 2 : 4096;
    struct opd_queue_entry *entries = reallocarray(queue->entries, capacity, sizeof *entries);
    if (entries == NULL)
        return -ENOMEM;
    queue->entries = entries;
    struct opd_queue_entry *spare = reallocarray(queue->spare, capacity, sizeof *spare);
    if (spare == NULL)
        return -ENOMEM;
    queue->spare = spare;
    queue->capacity = capacity;
    return 0;
}

int
opd_queue_put(struct opd_queue *queue, struct opd_queued *queued, uint64_t time, bool *late)
{
    if (queue->count == queue->capacity && grow(queue) < 0)
        return -ENOMEM;
    queue->entries[queue->count++] = (struct opd_queue_entry){time, queued};
    queue->waiting_bytes += queued->size;
    if (time > queue->newest)
        queue->newest = time;
    *late = time < queue->gone;
    return 0;
}

bool
opd_queue_full(const struct opd_queue *queue)
{
    return queue->waiting_bytes > queue->limit;
}

static int
find_runs(struct opd_queue *queue, size_t *run_count)
{
    size_t count = 0;
    for (size_t i = queue->head; i < queue->count; i++) {
        if (i > queue->head && queue->entries[i - 1].time <= queue->entries[i].time)
            continue;
        if (count + 2 > queue->run_capacity) {
            size_t capacity = queue->run_capacity ? queue->run_capacity * 2 : 256;
            size_t *runs = reallocarray(queue->runs, capacity, sizeof *runs);
            if (runs == NULL)
                return -ENOMEM;
            queue->runs = runs;
            queue->run_capacity = capacity;
        }
        queue->runs[count++] = i;
    }
    if (count > 0)
        queue->runs[count] = queue->count;
    *run_count = count;
    return 0;
}

// Merges two neighbouring runs; of equal times the left one, earlier in the
// file, goes first.
static void
merge(const struct opd_queue_entry *from, struct opd_queue_entry *to, size_t left, size_t right,
      size_t end)
{
    size_t i = left, j = right, out = left;
    while (i < right && j < end)
        to[out++] = from[j].time < from[i].time ? from[j++] : from[i++];
    memcpy(to + out, from + i, (right - i) * sizeof *to);
    out += right - i;
    memcpy(to + out, from + j, (end - j) * sizeof *to);
}

static int
sort(struct opd_queue *queue)
{
    size_t count;
    if (find_runs(queue, &count) < 0)
        return -ENOMEM;
    while (count > 1) {
        size_t merged = 0;
        size_t run = 0;
        const size_t *runs = queue->runs;
        for (; run + 1 < count; run += 2) {
            merge(queue->entries, queue->spare, runs[run], runs[run + 1], runs[run + 2]);
            queue->runs[merged++] = runs[run];
        }
        if (run < count) {
            memcpy(queue->spare + runs[run], queue->entries + runs[run],
                   (runs[run + 1] - runs[run]) * sizeof *queue->spare);
            queue->runs[merged++] = runs[run];
        }
        queue->runs[merged] = queue->count;
        count = merged;
        struct opd_queue_entry *swap = queue->entries;
        queue->entries = queue->spare;
        queue->spare = swap;
    }
    return 0;
}

// Marks [head, until) as free to go.
static void
let_go(struct opd_queue *queue, size_t until)
{
    queue->ready = until;
    if (until > queue->head && queue->entries[until - 1].time > queue->gone)
        queue->gone = queue->entries[until - 1].time;
}

int
opd_queue_round(struct opd_queue *queue)
{
    if (sort(queue) < 0)
        return -ENOMEM;
    size_t low = queue->head, high = queue->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (queue->entries[middle].time <= queue->round_limit)
            low = middle + 1;
        else
            high = middle;
    }
    let_go(queue, low);
    queue->round_limit = queue->newest;
    return 0;
}

int
opd_queue_half(struct opd_queue *queue)
{
    if (sort(queue) < 0)
        return -ENOMEM;
    let_go(queue, queue->count - (queue->count - queue->head) / 2);
    return 0;
}

int
opd_queue_all(struct opd_queue *queue)
{
    if (sort(queue) < 0)
        return -ENOMEM;
    let_go(queue, queue->count);
    return 0;
}

struct opd_queued *
opd_queue_next(struct opd_queue *queue)
{
    if (queue->head == queue->ready)
        return NULL;
    struct opd_queued *queued = queue->entries[queue->head++].queued;
    queue->waiting_bytes -= queued->size;
    if (queue->head == queue->count)
        queue->head = queue->ready = queue->count = 0;
    return queued;
}

void
opd_queue_destroy(struct opd_queue *queue)
{
    for (size_t i = queue->head; i < queue->count; i++)
        opd_queue_release(queue, queue->entries[i].queued);
    if (queue->current != NULL)
        munmap(queue->current, BLOCK_SIZE);
    while (queue->free != NULL) {
        struct opd_queue_block *block = queue->free;
        queue->free = block->next;
        munmap(block, BLOCK_SIZE);
    }
    free(queue->entries);
    free(queue->spare);
    free(queue->runs);
    *queue = (struct opd_queue){0};
}
