// SPDX-License-Identifier: Apache-2.0
#include "opd/payload.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SUB_BITS 4u // sixteen buckets to a power of two
#define SUBS (1u << SUB_BITS)
#define FIRST_CELLS 256u
// Draws begin alike in every window: the same recording gives the same answer.
#define SEED UINT64_C(0x9e3779b97f4a7c15)

uint32_t
opd_latency_bucket(uint64_t value)
{
    if (value < SUBS)
        return (uint32_t)value;
    uint32_t power = 63u - (uint32_t)__builtin_clzll(value);
    uint32_t sub = (uint32_t)(value >> (power - SUB_BITS)) & (SUBS - 1);
    return SUBS * (power - SUB_BITS + 1) + sub;
}

uint64_t
opd_latency_least(uint32_t bucket)
{
    if (bucket < SUBS)
        return bucket;
    uint32_t power = bucket / SUBS + SUB_BITS - 1;
    if (power > 63)
        return UINT64_MAX;
    return (uint64_t)(SUBS + bucket % SUBS) << (power - SUB_BITS);
}

// ---- what is counted by three numbers

struct cell {
    uint32_t key[3];
    uint32_t used;
    uint64_t counts[]; // as many as the table has
};

// Open-addressed, a power of two of cells, at most three quarters of them used.
struct cells {
    char *cells;
    uint32_t room, count, limit;
    uint32_t stride; // bytes of a cell
    uint32_t wanted; // room that the window before needed
    struct opd_payload_counts counts;
};

static struct cell *
cell_at(const struct cells *table, uint32_t at)
{
    return (struct cell *)(table->cells + (size_t)at * table->stride);
}

static void
shape_cells(struct cells *table, uint32_t limit, uint32_t counts)
{
    table->limit = limit;
    table->stride = (uint32_t)(sizeof(struct cell) + counts * sizeof(uint64_t));
    table->wanted = FIRST_CELLS;
}

static struct cell *
place_of(const struct cells *table, const uint32_t key[3])
{
    uint64_t mixed = ((uint64_t)key[0] << 32 | key[1]) * UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 29 ^ key[2]) * UINT64_C(0xd6e8feb86659fd93);
    uint32_t at = (uint32_t)(mixed >> 32) & (table->room - 1);
    struct cell *cell = cell_at(table, at);
    while (cell->used && memcmp(cell->key, key, sizeof cell->key) != 0) {
        at = (at + 1) & (table->room - 1);
        cell = cell_at(table, at);
    }
    return cell;
}

static bool
grow_cells(struct cells *table)
{
    struct cells larger = *table;
    larger.room = table->room == 0 ? table->wanted : table->room * 2;
    larger.cells = calloc(larger.room, larger.stride);
    if (larger.cells == NULL)
        return false;
    for (uint32_t i = 0; i < table->room; i++) {
        const struct cell *cell = cell_at(table, i);
        if (cell->used)
            memcpy(place_of(&larger, cell->key), cell, table->stride);
    }
    free(table->cells);
    *table = larger;
    return true;
}

// The counts of a key; NULL, and counted as lost, when there is no room.
static uint64_t *
counts_of(struct cells *table, uint32_t first, uint32_t second, uint32_t third)
{
    const uint32_t key[3] = {first, second, third};
    if (table->limit == 0)
        return NULL;
    table->counts.offered++;
    if (table->room == 0 && !grow_cells(table)) {
        table->counts.lost++;
        return NULL;
    }
    struct cell *cell = place_of(table, key);
    if (cell->used)
        return cell->counts;
    if (table->count >= table->limit) {
        table->counts.lost++;
        return NULL;
    }
    if (table->count + 1 > table->room / 4 * 3) {
        if (!grow_cells(table)) {
            table->counts.lost++;
            return NULL;
        }
        cell = place_of(table, key);
    }
    memcpy(cell->key, key, sizeof key);
    cell->used = 1;
    table->count++;
    return cell->counts;
}

// Gives its memory back; the next window begins with as much as this one filled.
static void
empty_cells(struct cells *table)
{
    free(table->cells);
    table->cells = NULL;
    table->wanted = FIRST_CELLS;
    while (table->wanted / 4 * 3 <= table->count)
        table->wanted *= 2;
    table->room = table->count = 0;
    table->counts = (struct opd_payload_counts){0};
}

// ---- what is drawn

// Each of the `offered` so far is kept with the same chance.
struct draw {
    uint64_t random;
    uint32_t limit, count;
    struct opd_payload_counts counts;
};

struct kept_record {
    uint32_t sfile, stack, size;
    uint64_t weight;
    uint8_t bytes[OPD_RECORD_BYTES];
};

static uint64_t
next_random(struct draw *draw)
{
    draw->random ^= draw->random >> 12;
    draw->random ^= draw->random << 25;
    draw->random ^= draw->random >> 27;
    return draw->random * UINT64_C(0x2545f4914f6cdd1d);
}

// The place that one more gets; `limit` for none. *items has room then.
static uint32_t
draw_place(struct draw *draw, void **items, size_t size)
{
    if (draw->limit == 0)
        return 0;
    draw->counts.offered++;
    if (draw->count < draw->limit) {
        if (*items == NULL)
            *items = malloc(draw->limit * size);
        if (*items == NULL) {
            draw->counts.lost++;
            return draw->limit;
        }
        return draw->count++;
    }
    // The high half of a product: a number below `offered`, all alike likely.
    unsigned __int128 wide = (unsigned __int128)next_random(draw) * draw->counts.offered;
    uint64_t place = (uint64_t)(wide >> 64);
    return place < draw->limit ? (uint32_t)place : draw->limit;
}

static void
empty_draw(struct draw *draw)
{
    *draw = (struct draw){.random = SEED, .limit = draw->limit};
}

struct total {
    uint64_t count, timed, latency;
};

struct opd_payload {
    struct cells latencies, branches;
    struct draw access_draw, record_draws[OPD_RECORD_CLASSES];
    struct opd_access *accesses;
    struct kept_record *records[OPD_RECORD_CLASSES];
    struct total totals[1u << 8]; // LOAD|STORE | source << 2 | tlb << 6
};

struct opd_payload *
opd_payload_create(const struct opd_payload_limits *limits)
{
    struct opd_payload *payload = calloc(1, sizeof *payload);
    if (payload == NULL)
        return NULL;
    shape_cells(&payload->latencies, limits->latencies, 1);
    shape_cells(&payload->branches, limits->branches, 4);
    payload->access_draw.limit = limits->accesses;
    empty_draw(&payload->access_draw);
    for (unsigned i = 0; i < OPD_RECORD_CLASSES; i++) {
        payload->record_draws[i].limit = limits->records;
        empty_draw(&payload->record_draws[i]);
    }
    return payload;
}

void
opd_payload_destroy(struct opd_payload *payload)
{
    if (payload == NULL)
        return;
    free(payload->latencies.cells);
    free(payload->branches.cells);
    free(payload->accesses);
    for (unsigned i = 0; i < OPD_RECORD_CLASSES; i++)
        free(payload->records[i]);
    free(payload);
}

void
opd_payload_latency(struct opd_payload *payload, uint32_t sfile, uint32_t stack, uint64_t value)
{
    uint64_t *counts = counts_of(&payload->latencies, sfile, stack, opd_latency_bucket(value));
    if (counts != NULL)
        counts[0]++;
}

void
opd_payload_access(struct opd_payload *payload, const struct opd_access *access)
{
    struct draw *draw = &payload->access_draw;
    uint32_t place = draw_place(draw, (void **)&payload->accesses, sizeof *payload->accesses);
    if (draw->limit == 0)
        return;
    struct total *total = &payload->totals[(access->flags & 3u) | (access->source & 15u) << 2 |
                                           (uint32_t)(access->tlb & 3u) << 6];
    total->count++;
    if (access->flags & OPD_ACCESS_HAS_LATENCY) {
        total->timed++;
        total->latency += access->latency;
    }
    if (place < draw->limit)
        payload->accesses[place] = *access;
}

void
opd_payload_branch(struct opd_payload *payload, uint32_t sfile, uint32_t from, uint32_t to,
                   unsigned flags)
{
    uint64_t *counts = counts_of(&payload->branches, sfile, from, to);
    if (counts == NULL)
        return;
    counts[0]++;
    counts[1] += (flags & OPD_BRANCH_TAKEN) != 0;
    counts[2] += (flags & OPD_BRANCH_MISPREDICTED) != 0;
    counts[3] += (flags & OPD_BRANCH_RETURN) != 0;
}

void
opd_payload_lose_branch(struct opd_payload *payload)
{
    payload->branches.counts.offered++;
    payload->branches.counts.lost++;
}

void
opd_payload_record(struct opd_payload *payload, unsigned class, uint32_t sfile, uint32_t stack,
                   uint64_t weight, const uint8_t *bytes, uint32_t size)
{
    struct draw *draw = &payload->record_draws[class];
    if (draw->limit > 0 && size > OPD_RECORD_BYTES) {
        draw->counts.offered++;
        draw->counts.lost++;
        return;
    }
    uint32_t place =
        draw_place(draw, (void **)&payload->records[class], sizeof(struct kept_record));
    if (place >= draw->limit)
        return;
    struct kept_record *kept = &payload->records[class][place];
    kept->sfile = sfile;
    kept->stack = stack;
    kept->weight = weight;
    kept->size = size;
    memcpy(kept->bytes, bytes, size);
}

// ---- handing over

static uint32_t
used_totals(const struct opd_payload *payload)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < 1u << 8; i++)
        used += payload->totals[i].count > 0;
    return used;
}

static size_t
align8(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

// One allocation for the struct and all its columns.
static struct opd_payload_columns *
columns_alloc(uint32_t latencies, uint32_t accesses, uint32_t totals, uint32_t branches,
              uint32_t records, uint32_t bytes)
{
    struct opd_payload_columns *columns = NULL;
    for (int pass = 0; pass < 2; pass++) {
        size_t at = align8(sizeof *columns);
        char *base = (char *)columns;
#define COLUMN(name, count)                                                                        \
    do {                                                                                           \
        if (base != NULL)                                                                          \
            columns->name = (void *)(base + at);                                                   \
        at += align8(sizeof *columns->name * (size_t)(count));                                     \
    } while (0)
        COLUMN(latency_sfile, latencies);
        COLUMN(latency_stack, latencies);
        COLUMN(latency_bucket, latencies);
        COLUMN(latency_count, latencies);
        COLUMN(access_address, accesses);
        COLUMN(access_physical, accesses);
        COLUMN(access_sfile, accesses);
        COLUMN(access_stack, accesses);
        COLUMN(access_tid, accesses);
        COLUMN(access_cpu, accesses);
        COLUMN(access_latency, accesses);
        COLUMN(access_what, accesses);
        COLUMN(total_what, totals);
        COLUMN(total_count, totals);
        COLUMN(total_timed, totals);
        COLUMN(total_latency, totals);
        COLUMN(branch_sfile, branches);
        COLUMN(branch_from, branches);
        COLUMN(branch_to, branches);
        COLUMN(branch_count, branches);
        COLUMN(branch_taken, branches);
        COLUMN(branch_mispredicted, branches);
        COLUMN(branch_return, branches);
        COLUMN(record_sfile, records);
        COLUMN(record_stack, records);
        COLUMN(record_start, (size_t)records + 1);
        COLUMN(record_weight, records);
        COLUMN(record_bytes, bytes);
#undef COLUMN
        if (pass == 0) {
            columns = calloc(1, at);
            if (columns == NULL)
                return NULL;
        }
    }
    return columns;
}

static void
take_latencies(struct opd_payload_columns *columns, const struct cells *table)
{
    for (uint32_t i = 0; i < table->room; i++) {
        const struct cell *cell = cell_at(table, i);
        if (!cell->used)
            continue;
        uint32_t at = columns->latencies++;
        columns->latency_sfile[at] = cell->key[0];
        columns->latency_stack[at] = cell->key[1];
        columns->latency_bucket[at] = cell->key[2];
        columns->latency_count[at] = cell->counts[0];
    }
    columns->latency = table->counts;
}

static void
take_branches(struct opd_payload_columns *columns, const struct cells *table)
{
    for (uint32_t i = 0; i < table->room; i++) {
        const struct cell *cell = cell_at(table, i);
        if (!cell->used)
            continue;
        uint32_t at = columns->branches++;
        columns->branch_sfile[at] = cell->key[0];
        columns->branch_from[at] = cell->key[1];
        columns->branch_to[at] = cell->key[2];
        columns->branch_count[at] = cell->counts[0];
        columns->branch_taken[at] = cell->counts[1];
        columns->branch_mispredicted[at] = cell->counts[2];
        columns->branch_return[at] = cell->counts[3];
    }
    columns->branch = table->counts;
}

static void
take_accesses(struct opd_payload_columns *columns, const struct opd_payload *payload)
{
    columns->accesses = payload->access_draw.count;
    columns->access = payload->access_draw.counts;
    for (uint32_t i = 0; i < columns->accesses; i++) {
        const struct opd_access *access = &payload->accesses[i];
        columns->access_address[i] = access->address;
        columns->access_physical[i] = access->physical;
        columns->access_sfile[i] = access->sfile;
        columns->access_stack[i] = access->stack;
        columns->access_tid[i] = access->tid;
        columns->access_cpu[i] = access->cpu;
        columns->access_latency[i] = access->latency;
        columns->access_what[i] = access->flags | (uint32_t)access->source << 8 |
                                  (uint32_t)access->tlb << 16 | (uint32_t)access->width << 24;
    }
    for (uint32_t i = 0; i < 1u << 8; i++) {
        const struct total *total = &payload->totals[i];
        if (total->count == 0)
            continue;
        uint32_t at = columns->totals++;
        columns->total_what[at] = (i & 3u) | (i >> 2 & 15u) << 8 | i >> 6 << 16;
        columns->total_count[at] = total->count;
        columns->total_timed[at] = total->timed;
        columns->total_latency[at] = total->latency;
    }
}

static void
take_records(struct opd_payload_columns *columns, const struct opd_payload *payload)
{
    uint32_t at = 0, bytes = 0;
    for (unsigned class = 0; class < OPD_RECORD_CLASSES; class++) {
        const struct draw *draw = &payload->record_draws[class];
        columns->records[class] = draw->count;
        columns->record[class] = draw->counts;
        for (uint32_t i = 0; i < draw->count; i++, at++) {
            const struct kept_record *kept = &payload->records[class][i];
            columns->record_sfile[at] = kept->sfile;
            columns->record_stack[at] = kept->stack;
            columns->record_weight[at] = kept->weight;
            columns->record_start[at] = bytes;
            memcpy(columns->record_bytes + bytes, kept->bytes, kept->size);
            bytes += kept->size;
        }
    }
    columns->record_start[at] = bytes;
    columns->record_size = bytes;
}

int
opd_payload_take(struct opd_payload *payload, struct opd_payload_columns **out)
{
    uint32_t records = 0, bytes = 0;
    for (unsigned class = 0; class < OPD_RECORD_CLASSES; class++) {
        records += payload->record_draws[class].count;
        for (uint32_t i = 0; i < payload->record_draws[class].count; i++)
            bytes += payload->records[class][i].size;
    }
    struct opd_payload_columns *columns =
        columns_alloc(payload->latencies.count, payload->access_draw.count, used_totals(payload),
                      payload->branches.count, records, bytes);
    if (columns == NULL)
        return -ENOMEM;
    take_latencies(columns, &payload->latencies);
    take_accesses(columns, payload);
    take_branches(columns, &payload->branches);
    take_records(columns, payload);
    empty_cells(&payload->latencies);
    empty_cells(&payload->branches);
    empty_draw(&payload->access_draw);
    for (unsigned i = 0; i < OPD_RECORD_CLASSES; i++)
        empty_draw(&payload->record_draws[i]);
    memset(payload->totals, 0, sizeof payload->totals);
    *out = columns;
    return 0;
}

void
opd_payload_free(struct opd_payload_columns *columns)
{
    free(columns);
}
