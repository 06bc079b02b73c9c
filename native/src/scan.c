// SPDX-License-Identifier: Apache-2.0
#include "scan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "opd/intern.h"

#define HEADER_BYTES 5 // of a column: u8 width, u32 count
#define BLOCK_COLUMNS 32
#define GROUP_COLUMNS 4
#define DEPTH 64
#define SFILES_LIMIT (1u << 22)

// Where the columns of sample files are in a block.
enum { AT_EVENT, AT_MODE, AT_PID, AT_THREAD, AT_CPU, AT_IMAGE, AT_COMM, AT_UNIT, AT_CGROUP };
// Of groups, behind them.
enum { AT_SFILE, AT_SYMBOL, AT_HITS, AT_EXCESS };

// A column of a block: the lowest byte of every number first.
struct planes {
    const uint8_t *data;
    uint32_t width, count;
};

static uint64_t
number_at(const struct planes *column, uint32_t i)
{
    uint64_t value = 0;
    const uint8_t *at = column->data + i;
    for (uint32_t plane = 0; plane < column->width; plane++, at += column->count)
        value |= (uint64_t)*at << (8 * plane);
    return value;
}

static int
check_tests(struct opd_scan *scan)
{
    uint32_t depth = 0;
    for (uint32_t i = 0; i < scan->test_count; i++) {
        const struct opd_scan_test *test = &scan->tests[i];
        switch (test->operation) {
        case OPD_SCAN_SET:
        case OPD_SCAN_RANGE:
            if (test->column >= OPD_SCAN_COLUMNS || ++depth > DEPTH)
                return -EINVAL;
            scan->tests_symbol |= test->column == OPD_SCAN_SYMBOL;
            break;
        case OPD_SCAN_AND:
        case OPD_SCAN_OR:
            if (depth < 2)
                return -EINVAL;
            depth--;
            break;
        case OPD_SCAN_NOT:
            if (depth < 1)
                return -EINVAL;
            break;
        default:
            return -EINVAL;
        }
    }
    return scan->test_count == 0 || depth == 1 ? 0 : -EINVAL;
}

static int
check_keys(struct opd_scan *scan)
{
    for (uint32_t i = 0; i < scan->key_count; i++) {
        if (scan->keys[i].column >= OPD_SCAN_COLUMNS)
            return -EINVAL;
        if (scan->keys[i].column == OPD_SCAN_SYMBOL) {
            // Its cell is the row's own, so it is there once and as it is.
            if (scan->by_symbol || scan->keys[i].map != NULL)
                return -EINVAL;
            scan->by_symbol = 1;
        }
    }
    return 0;
}

struct opd_scan *
opd_scan_create(const struct opd_scan_key *keys, uint32_t key_count,
                const struct opd_scan_test *tests, uint32_t test_count, uint32_t row_limit)
{
    if (key_count < 1 || key_count > OPD_SCAN_KEYS || test_count > OPD_SCAN_TESTS) {
        errno = EINVAL;
        return NULL;
    }
    struct opd_scan *scan = calloc(1, sizeof *scan);
    if (scan == NULL)
        return NULL;
    scan->key_count = key_count;
    memcpy(scan->keys, keys, key_count * sizeof *keys);
    scan->test_count = test_count;
    scan->row_limit = row_limit;
    scan->tests = calloc(test_count + 1, sizeof *tests);
    scan->bases = opd_intern_create(row_limit, SIZE_MAX / 4);
    if (scan->tests == NULL || scan->bases == NULL) {
        opd_scan_destroy(scan);
        errno = ENOMEM;
        return NULL;
    }
    if (test_count > 0)
        memcpy(scan->tests, tests, test_count * sizeof *tests);
    if (check_keys(scan) != 0 || check_tests(scan) != 0) {
        opd_scan_destroy(scan);
        errno = EINVAL;
        return NULL;
    }
    return scan;
}

void
opd_scan_destroy(struct opd_scan *scan)
{
    if (scan == NULL)
        return;
    free(scan->tests);
    free(scan->events);
    opd_intern_destroy(scan->bases);
    opd_scan_empty_table(&scan->rows);
    opd_scan_empty_table(&scan->series);
    opd_scan_empty_table(&scan->totals);
    opd_scan_empty_table(&scan->all);
    free(scan->place);
    free(scan->base_chosen);
    free(scan->sfiles);
    free(scan->groups);
    free(scan->out_rows);
    free(scan->out_series);
    free(scan->out_totals);
    free(scan);
}

int
opd_scan_events(struct opd_scan *scan, const uint32_t *map, uint32_t count)
{
    uint32_t *events = malloc(count * sizeof *events + 1);
    if (events == NULL)
        return -ENOMEM;
    if (count > 0)
        memcpy(events, map, count * sizeof *events);
    free(scan->events);
    scan->events = events;
    scan->event_count = count;
    return 0;
}

static int
passes(const struct opd_scan *scan, const uint32_t *cells)
{
    uint64_t results = 1; // the last one is the lowest bit
    for (uint32_t i = 0; i < scan->test_count; i++) {
        const struct opd_scan_test *test = &scan->tests[i];
        uint32_t cell;
        switch (test->operation) {
        case OPD_SCAN_SET:
            cell = cells[test->column];
            results =
                results << 1 | (cell < test->bit_count && test->bits[cell / 8] >> cell % 8 & 1);
            break;
        case OPD_SCAN_RANGE:
            cell = cells[test->column];
            results = results << 1 | (test->low <= cell && cell <= test->high);
            break;
        case OPD_SCAN_AND:
            results = (results >> 1 & ~UINT64_C(1)) | (results & results >> 1 & 1);
            break;
        case OPD_SCAN_OR:
            results = (results >> 1 & ~UINT64_C(1)) | ((results | results >> 1) & 1);
            break;
        default:
            results ^= 1;
        }
    }
    return results & 1;
}

// Finds the columns and checks all that adding relies on.
static int
read_block(const uint8_t *data, size_t size, uint32_t sfile_columns, struct planes *columns)
{
    uint32_t count = size > 0 ? data[0] : 0;
    if (sfile_columns < AT_CGROUP || sfile_columns > AT_CGROUP + 1 ||
        count < sfile_columns + GROUP_COLUMNS || count > BLOCK_COLUMNS ||
        size < 1 + (size_t)count * HEADER_BYTES)
        return -EBADMSG;
    size_t at = 1 + (size_t)count * HEADER_BYTES;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *header = data + 1 + (size_t)i * HEADER_BYTES;
        struct planes *column = &columns[i];
        column->width = header[0];
        memcpy(&column->count, header + 1, sizeof column->count);
        if (column->width < 1 || column->width > 8 ||
            (size_t)column->width * column->count > size - at)
            return -EBADMSG;
        column->data = data + at;
        at += (size_t)column->width * column->count;
    }
    for (uint32_t i = 0; i < sfile_columns + GROUP_COLUMNS; i++) {
        uint32_t first = i < sfile_columns ? 0 : sfile_columns;
        int wide = i == AT_UNIT || i >= sfile_columns + AT_HITS;
        if (columns[i].count != columns[first].count || (!wide && columns[i].width > 4))
            return -EBADMSG;
    }
    if (columns[0].count > SFILES_LIMIT)
        return -EBADMSG;
    const struct planes *sfile = &columns[sfile_columns + AT_SFILE];
    for (uint32_t i = 0; i < sfile->count; i++)
        if (number_at(sfile, i) >= columns[0].count)
            return -EBADMSG;
    return 0;
}

// The number of the cells that are keys, but for the symbol.
static int
find_base(struct opd_scan *scan, const uint32_t *cells, uint32_t *base)
{
    uint32_t key[OPD_SCAN_KEYS];
    for (uint32_t i = 0; i < scan->key_count; i++) {
        const struct opd_scan_key *of = &scan->keys[i];
        uint32_t value = of->column == OPD_SCAN_SYMBOL ? 0 : cells[of->column];
        if (of->map != NULL)
            value = value < of->map_count ? of->map[value] : 0;
        key[i] = value;
    }
    *base = opd_intern_put(scan->bases, key, scan->key_count * sizeof key[0], NULL);
    if (*base == OPD_INTERN_FULL)
        return opd_intern_count(scan->bases) >= scan->row_limit ? -E2BIG : -ENOMEM;
    return 0;
}

static int
read_sfile(struct opd_scan *scan, const struct planes *columns, uint32_t sfile_columns, uint32_t i,
           uint32_t bucket)
{
    static const uint8_t places[OPD_SCAN_COLUMNS - 1] = {
        [OPD_SCAN_EVENT] = AT_EVENT,   [OPD_SCAN_MODE] = AT_MODE,    [OPD_SCAN_PID] = AT_PID,
        [OPD_SCAN_THREAD] = AT_THREAD, [OPD_SCAN_CPU] = AT_CPU,      [OPD_SCAN_IMAGE] = AT_IMAGE,
        [OPD_SCAN_COMM] = AT_COMM,     [OPD_SCAN_CGROUP] = AT_CGROUP};
    struct sfile *sfile = &scan->sfiles[i];
    for (uint32_t column = 0; column < OPD_SCAN_SYMBOL; column++)
        sfile->cells[column] =
            places[column] < sfile_columns ? (uint32_t)number_at(&columns[places[column]], i) : 0;
    sfile->cells[OPD_SCAN_SYMBOL] = 0;
    sfile->unit = number_at(&columns[AT_UNIT], i);
    uint32_t event = sfile->cells[OPD_SCAN_EVENT];
    event = event < scan->event_count ? scan->events[event] : OPD_SCAN_NO_EVENT;
    sfile->cells[OPD_SCAN_EVENT] = event;
    sfile->wanted = event != OPD_SCAN_NO_EVENT;
    if (!sfile->wanted)
        return 0;
    uint32_t same;
    int rc = opd_scan_number_of(&scan->totals, bucket, event, UINT32_MAX - 1, &sfile->total);
    if (rc == 0)
        rc = opd_scan_number_of(&scan->all, bucket, event, UINT32_MAX - 1, &same);
    if (rc != 0)
        return rc;
    sfile->passes = scan->tests_symbol || passes(scan, sfile->cells);
    if (!sfile->passes)
        return 0;
    rc = find_base(scan, sfile->cells, &sfile->base);
    sfile->counts =
        !scan->choosing || (sfile->base < scan->bases_were && scan->base_chosen[sfile->base]);
    return rc;
}

static void
add_to(struct opd_scan_sums *sums, uint64_t samples, uint64_t weight)
{
    sums->samples += samples;
    sums->weight += weight;
}

static int
add_group(struct opd_scan *scan, const struct sfile *sfile, uint32_t symbol, uint64_t hits,
          uint64_t weight, uint32_t bucket)
{
    uint32_t number, cell = scan->by_symbol ? symbol : 0;
    struct opd_scan_table *table = &scan->rows;
    int rc;
    if (!scan->choosing) {
        rc = opd_scan_number_of(table, sfile->base, cell, scan->row_limit, &number);
    } else {
        uint32_t row = opd_scan_find(table, sfile->base, cell);
        if (row >= scan->rows_were || scan->place[row] == 0)
            return 0;
        table = &scan->series;
        rc = opd_scan_number_of(table, bucket, scan->place[row] - 1, scan->row_limit, &number);
    }
    if (rc == 0)
        add_to(&table->entries[number], hits, weight);
    return rc;
}

static void
decode(const struct planes *column, uint64_t *out)
{
    for (uint32_t i = 0; i < column->count; i++)
        out[i] = column->data[i];
    for (uint32_t plane = 1; plane < column->width; plane++) {
        const uint8_t *data = column->data + (size_t)plane * column->count;
        for (uint32_t i = 0; i < column->count; i++)
            out[i] |= (uint64_t)data[i] << (8 * plane);
    }
}

static int
make_room(struct opd_scan *scan, uint32_t sfiles, size_t groups)
{
    if (sfiles > scan->sfile_room) {
        struct sfile *room = realloc(scan->sfiles, sfiles * sizeof *room);
        if (room == NULL)
            return -ENOMEM;
        scan->sfiles = room;
        scan->sfile_room = sfiles;
    }
    if (groups > scan->group_room) {
        uint64_t *room = realloc(scan->groups, groups * GROUP_COLUMNS * sizeof *room);
        if (room == NULL)
            return -ENOMEM;
        scan->groups = room;
        scan->group_room = groups;
    }
    return 0;
}

int
opd_scan_add(struct opd_scan *scan, const uint8_t *data, size_t size, uint32_t sfile_columns,
             uint32_t bucket)
{
    struct planes columns[BLOCK_COLUMNS];
    int rc = read_block(data, size, sfile_columns, columns);
    if (rc != 0)
        return rc;
    uint32_t sfiles = columns[0].count, groups = columns[sfile_columns].count;
    rc = make_room(scan, sfiles, groups);
    for (uint32_t i = 0; rc == 0 && i < sfiles; i++)
        rc = read_sfile(scan, columns, sfile_columns, i, bucket);
    if (rc != 0)
        return rc;
    uint64_t *all[GROUP_COLUMNS];
    for (uint32_t i = 0; i < GROUP_COLUMNS; i++) {
        all[i] = scan->groups + i * scan->group_room;
        decode(&columns[sfile_columns + i], all[i]);
    }
    for (uint32_t i = 0; i < groups; i++) {
        struct sfile *sfile = &scan->sfiles[all[AT_SFILE][i]];
        if (!sfile->wanted)
            continue;
        uint32_t symbol = (uint32_t)all[AT_SYMBOL][i];
        uint64_t hits = all[AT_HITS][i];
        uint64_t weight = hits * sfile->unit + all[AT_EXCESS][i];
        add_to(&scan->all.entries[sfile->total], hits, weight);
        if (!sfile->passes)
            continue;
        if (scan->tests_symbol) {
            sfile->cells[OPD_SCAN_SYMBOL] = symbol;
            if (!passes(scan, sfile->cells))
                continue;
        }
        add_to(&scan->totals.entries[sfile->total], hits, weight);
        if (!sfile->counts)
            continue;
        rc = add_group(scan, sfile, symbol, hits, weight, bucket);
        if (rc != 0)
            return rc;
    }
    return 0;
}
