// SPDX-License-Identifier: Apache-2.0
// Cuts the symbols of a file into stretches of addresses that do not overlap
// and have one name each, so that a lookup is one binary search.
#include "elf_private.h"

#include <errno.h>
#include <stdlib.h>

// Below 0: a is the better name where both cover; never 0 for two symbols that
// differ, so that the choice does not depend on the order of the file.
static int
better(const struct elf_symbol *a, const struct elf_symbol *b)
{
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->underscores != b->underscores)
        return a->underscores < b->underscores ? -1 : 1;
    if (a->name_length != b->name_length)
        return a->name_length > b->name_length ? -1 : 1;
    if (a->end - a->start != b->end - b->start)
        return a->end - a->start < b->end - b->start ? -1 : 1;
    if (a->name != b->name)
        return a->name < b->name ? -1 : 1;
    return 0;
}

static int
by_start(const void *left, const void *right)
{
    const struct elf_symbol *a = left, *b = right;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return better(a, b);
}

struct slots {
    struct elf_slot *items;
    size_t count, capacity;
};

static int
emit(struct slots *slots, uint32_t start, uint32_t end, uint32_t name)
{
    if (start >= end)
        return 0;
    if (slots->count > 0) {
        struct elf_slot *last = &slots->items[slots->count - 1];
        if (last->end == start && last->name == name) {
            last->end = end;
            return 0;
        }
    }
    if (slots->count == slots->capacity) {
        size_t capacity = slots->capacity ? slots->capacity + slots->capacity / 2 : 1024;
        struct elf_slot *items = realloc(slots->items, capacity * sizeof *items);
        if (items == NULL)
            return -ENOMEM;
        slots->items = items;
        slots->capacity = capacity;
    }
    slots->items[slots->count++] = (struct elf_slot){start, end, name};
    return 0;
}

// A binary heap of indices, best symbol on top.
struct heap {
    const struct elf_symbol *symbols;
    uint32_t *items;
    size_t count;
};

static bool
heap_less(const struct heap *heap, size_t a, size_t b)
{
    return better(&heap->symbols[heap->items[a]], &heap->symbols[heap->items[b]]) < 0;
}

static void
heap_swap(struct heap *heap, size_t a, size_t b)
{
    uint32_t item = heap->items[a];
    heap->items[a] = heap->items[b];
    heap->items[b] = item;
}

static void
heap_push(struct heap *heap, uint32_t item)
{
    size_t at = heap->count++;
    heap->items[at] = item;
    while (at > 0 && heap_less(heap, at, (at - 1) / 2)) {
        heap_swap(heap, at, (at - 1) / 2);
        at = (at - 1) / 2;
    }
}

static void
heap_pop(struct heap *heap)
{
    heap->items[0] = heap->items[--heap->count];
    for (size_t at = 0;;) {
        size_t best = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < heap->count; child++)
            if (heap_less(heap, child, best))
                best = child;
        if (best == at)
            return;
        heap_swap(heap, at, best);
        at = best;
    }
}

// Cuts the symbols with a size, sorted by start, into stretches.
static int
cut_sized(const struct elf_symbols *symbols, struct slots *slots)
{
    struct heap heap = {.symbols = symbols->items};
    heap.items = malloc(symbols->count * sizeof *heap.items);
    if (heap.items == NULL)
        return -ENOMEM;
    int rc = 0;
    size_t next = 0;
    uint32_t at = 0;
    while (rc == 0) {
        while (next < symbols->count && symbols->items[next].end == symbols->items[next].start)
            next++;
        if (heap.count == 0) {
            if (next == symbols->count)
                break;
            at = symbols->items[next].start;
        }
        if (next < symbols->count && symbols->items[next].start <= at) {
            heap_push(&heap, (uint32_t)next++);
            continue;
        }
        const struct elf_symbol *top = &symbols->items[heap.items[0]];
        if (top->end <= at) {
            heap_pop(&heap);
            continue;
        }
        uint32_t end = top->end;
        if (next < symbols->count && symbols->items[next].start < end)
            end = symbols->items[next].start;
        rc = emit(slots, at, end, top->name);
        at = end;
    }
    free(heap.items);
    return rc;
}

// Adds to `slots` (the sized stretches, sorted) those of the symbols without a
// size, each up to the next symbol, where no sized one is. Into `merged`.
static int
fill_unsized(const struct elf_symbols *symbols, const struct slots *slots, struct slots *merged)
{
    int rc = 0;
    size_t slot = 0, count = symbols->count;
    for (size_t i = 0; rc == 0 && i < count;) {
        const struct elf_symbol *best = NULL;
        uint32_t start = symbols->items[i].start;
        for (; i < count && symbols->items[i].start == start; i++) {
            const struct elf_symbol *symbol = &symbols->items[i];
            if (symbol->end == symbol->start && (best == NULL || better(symbol, best) < 0))
                best = symbol;
        }
        if (best == NULL)
            continue;
        uint32_t end = best->limit;
        if (i < count && symbols->items[i].start < end)
            end = symbols->items[i].start;
        while (rc == 0 && start < end) {
            while (rc == 0 && slot < slots->count && slots->items[slot].end <= start) {
                rc = emit(merged, slots->items[slot].start, slots->items[slot].end,
                          slots->items[slot].name);
                slot++;
            }
            if (slot < slots->count && slots->items[slot].start <= start) {
                start = slots->items[slot].end;
                continue;
            }
            uint32_t gap = end;
            if (slot < slots->count && slots->items[slot].start < gap)
                gap = slots->items[slot].start;
            if (rc == 0)
                rc = emit(merged, start, gap, best->name);
            start = gap;
        }
    }
    for (; rc == 0 && slot < slots->count; slot++)
        rc =
            emit(merged, slots->items[slot].start, slots->items[slot].end, slots->items[slot].name);
    return rc;
}

int
elf_build_table(struct opd_elf *elf, struct elf_symbols *symbols)
{
    if (symbols->count == 0)
        return 0;
    qsort(symbols->items, symbols->count, sizeof *symbols->items, by_start);
    struct slots sized = {0}, merged = {0};
    int rc = cut_sized(symbols, &sized);
    if (rc == 0)
        rc = fill_unsized(symbols, &sized, &merged);
    free(sized.items);
    if (rc < 0 || merged.count == 0) {
        free(merged.items);
        return rc;
    }
    struct elf_slot *fitted = realloc(merged.items, merged.count * sizeof *fitted);
    free(elf->slots);
    elf->slots = fitted != NULL ? fitted : merged.items;
    elf->slot_count = merged.count;
    return 0;
}
