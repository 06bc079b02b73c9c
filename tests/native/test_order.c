// SPDX-License-Identifier: Apache-2.0
// The order of time against a stable sort, and each rule of the header.
#include "opd/order.h"
#include "t.h"

#include <errno.h>
#include <string.h>

#define LINKS 48 // what order.h says a copy costs beyond its bytes

struct record {
    uint64_t time;
    uint32_t stream, tag, length, number;
};

static uint64_t
next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static int
compare(const void *left, const void *right)
{
    const struct record *a = left, *b = right;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    if (a->stream != b->stream)
        return a->stream < b->stream ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static void
fill(unsigned char *bytes, const struct record *record)
{
    for (uint32_t i = 0; i < record->length; i++)
        bytes[i] = (unsigned char)(record->number * 31 + i);
}

static int
push(struct opd_order *order, const struct record *record)
{
    static unsigned char bytes[70000];
    fill(bytes, record);
    int rc =
        opd_order_push(order, record->stream, record->time, record->tag, bytes, record->length);
    memset(bytes, 0xa5, record->length);
    return rc;
}

static void
check_item(const struct opd_order_item *item, const struct record *record)
{
    static unsigned char bytes[70000];
    CHECK(item->time == record->time && item->stream == record->stream);
    CHECK(item->tag == record->tag && item->length == record->length);
    CHECK((uintptr_t)item->bytes % 8 == 0);
    fill(bytes, record);
    CHECK(memcmp(item->bytes, bytes, record->length) == 0);
}

// All pushed, then all popped: exactly the stable sort.
static void
match_sort(unsigned streams, size_t count, unsigned spread, unsigned ties)
{
    uint64_t random = 0x2545f4914f6cdd1du + streams + count + spread;
    struct record *records = calloc(count, sizeof *records);
    struct opd_order *order = opd_order_create(streams, SIZE_MAX);
    CHECK(records != NULL && order != NULL);
    for (size_t i = 0; i < count; i++) {
        uint64_t r = next_random(&random);
        records[i] = (struct record){
            .time = (1000000 + i * 8 - (spread != 0 ? (r >> 32) % spread : 0)) / ties,
            .stream = (uint32_t)(r % streams),
            .tag = (uint32_t)i ^ 0x5a5a,
            .length = r >> 20 & 0xff ? (uint32_t)(r >> 8) % 200 : (uint32_t)(r >> 8) % 65536,
            .number = (uint32_t)i,
        };
        CHECK(push(order, &records[i]) == 0);
    }
    qsort(records, count, sizeof *records, compare);
    struct opd_order_item item;
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || records[i].time != records[i - 1].time)
            CHECK(opd_order_pop(order, records[i].time - 1, &item) == 0);
        CHECK(opd_order_pop(order, records[i].time, &item) == 1);
        check_item(&item, &records[i]);
    }
    CHECK(opd_order_pop(order, UINT64_MAX, &item) == 0);
    struct opd_order_stats stats;
    opd_order_stats(order, &stats);
    CHECK(stats.pushed == count && stats.popped == count);
    CHECK(stats.late == 0 && stats.held_bytes == 0);
    CHECK(spread != 0 || stats.inverted == 0);
    CHECK(spread < 100 || stats.inverted > 0);
    opd_order_destroy(order);
    free(records);
}

static void
one_stream_matches_a_sort(void)
{
    match_sort(1, 20000, 0, 1);
    match_sort(1, 20000, 100, 1);
    match_sort(1, 20000, 100, 64);
    match_sort(1, 20000, 900000, 1); // far inversions: the heap
    match_sort(1, 20000, 900000, 4096);
}

static void
few_streams_match_a_sort(void)
{
    match_sort(2, 20000, 200, 1);
    match_sort(3, 20000, 0, 512);
    match_sort(16, 20000, 5000, 16);
}

static void
many_streams_match_a_sort(void)
{
    match_sort(17, 20000, 1000, 1);
    match_sort(512, 50000, 0, 1);
    match_sort(512, 50000, 50000, 256);
}

// Pushed and popped in turns as a drain loop does, with a bounded disorder:
// nothing is late, and the order over all is that of the sort.
static void
turns_give_one_order(void)
{
    static const unsigned stream_counts[] = {1, 2, 16, 64, 512};
    for (unsigned s = 0; s < 5; s++) {
        unsigned streams = stream_counts[s];
        uint64_t random = 0x123456789abcdefu + streams;
        size_t count = 60000, popped = 0;
        struct record *records = calloc(count, sizeof *records);
        struct record *got = calloc(count, sizeof *got);
        struct opd_order *order = opd_order_create(streams, (size_t)64 << 20);
        struct opd_order_item item;
        for (size_t i = 0; i < count; i++) {
            uint64_t r = next_random(&random);
            records[i] = (struct record){
                .time = 100000 + i * 10 - (r >> 40) % 2000,
                .stream = (uint32_t)(r % streams),
                .tag = (uint32_t)i,
                .length = 24 + (uint32_t)(r >> 16) % 100,
                .number = (uint32_t)i,
            };
            CHECK(push(order, &records[i]) == 0);
            if ((r >> 24) % 300 != 0 && i + 1 != count)
                continue;
            // Nothing to come is older than this.
            uint64_t safe = i + 1 == count ? UINT64_MAX : 100000 + (i + 1) * 10 - 2000;
            while (opd_order_pop(order, safe, &item) == 1) {
                CHECK(item.time <= safe);
                check_item(&item, &records[item.tag]);
                got[popped++] = records[item.tag];
            }
        }
        CHECK(popped == count);
        qsort(records, count, sizeof *records, compare);
        CHECK(memcmp(records, got, count * sizeof *got) == 0);
        struct opd_order_stats stats;
        opd_order_stats(order, &stats);
        CHECK(stats.late == 0 && stats.held_bytes == 0);
        // Held: about the disorder and one turn, never all of it.
        CHECK(stats.peak_bytes < count * 100 / 4);
        opd_order_destroy(order);
        free(records);
        free(got);
    }
}

static void
late_records_come_at_once(void)
{
    struct opd_order *order = opd_order_create(2, 1 << 20);
    struct opd_order_item item;
    struct opd_order_stats stats;
    uint64_t word = 0;
    CHECK(opd_order_push(order, 0, 100, 0, &word, 8) == 0);
    CHECK(opd_order_pop(order, 100, &item) == 1 && item.time == 100);
    CHECK(opd_order_push(order, 0, 200, 1, &word, 8) == 0);
    CHECK(opd_order_push(order, 1, 100, 2, &word, 8) == 0); // as old as: not late
    CHECK(opd_order_push(order, 1, 99, 3, &word, 8) == 0);
    CHECK(opd_order_push(order, 0, 50, 4, &word, 8) == 0);
    opd_order_stats(order, &stats);
    CHECK(stats.late == 2 && stats.inverted == 2);
    CHECK(opd_order_pop(order, 0, &item) == 1 && item.tag == 4);
    CHECK(opd_order_pop(order, 0, &item) == 1 && item.tag == 3);
    CHECK(opd_order_pop(order, 0, &item) == 0);
    CHECK(opd_order_pop(order, 150, &item) == 1 && item.tag == 2);
    CHECK(opd_order_pop(order, 199, &item) == 0);
    CHECK(opd_order_pop(order, 200, &item) == 1 && item.tag == 1);
    opd_order_destroy(order);
}

static void
the_limit_is_kept_and_force_gets_on(void)
{
    size_t limit = 100 * (LINKS + 64);
    struct opd_order *order = opd_order_create(4, limit);
    struct opd_order_item item;
    struct opd_order_stats stats;
    struct record record = {.length = 64};
    for (unsigned i = 0; i < 100; i++) {
        record.time = record.number = record.tag = i;
        record.stream = i % 4;
        CHECK(push(order, &record) == 0);
    }
    CHECK(push(order, &record) == -ENOSPC);
    opd_order_stats(order, &stats);
    CHECK(stats.held_bytes == limit && stats.peak_bytes == limit && stats.pushed == 100);
    CHECK(opd_order_pop(order, UINT64_MAX, &item) == 1 && item.tag == 0);
    CHECK(push(order, &record) == 0);
    CHECK(push(order, &record) == -ENOSPC);
    // A record greater than the limit comes through alone.
    record.length = 65536;
    while (push(order, &record) == -ENOSPC)
        CHECK(opd_order_pop(order, UINT64_MAX, &item) == 1);
    CHECK(opd_order_pop(order, UINT64_MAX, &item) == 1 && item.length == 65536);
    opd_order_stats(order, &stats);
    CHECK(stats.held_bytes == 0 && stats.popped == stats.pushed);
    CHECK(opd_order_push(order, 4, 1, 0, NULL, 0) == -EINVAL);
    opd_order_destroy(order);
}

// One record in a hundred that stays must not hold the memory of all.
static void
records_that_stay_cannot_hold_all_memory(void)
{
    struct opd_order *order = opd_order_create(1, 1 << 20);
    struct opd_order_item item;
    uint64_t pushed = 0, word[16] = {0};
    int refused = 0;
    for (unsigned i = 0; i < 1000000 && !refused; i++) {
        uint64_t time = i % 1000 == 0 ? UINT64_MAX : i;
        refused = opd_order_push(order, 0, time, i, word, sizeof word) == -ENOSPC;
        pushed++;
        if (time != UINT64_MAX)
            CHECK(refused || opd_order_pop(order, i, &item) == 1);
    }
    CHECK(refused && pushed > 10000 && pushed < 40000);
    while (opd_order_push(order, 0, 5, 0, word, sizeof word) == -ENOSPC)
        CHECK(opd_order_pop(order, UINT64_MAX, &item) == 1);
    opd_order_destroy(order);
}

static void
an_empty_record_and_no_stream_work(void)
{
    struct opd_order *order = opd_order_create(1, 0);
    struct opd_order_item item;
    CHECK(opd_order_pop(order, UINT64_MAX, &item) == 0);
    CHECK(opd_order_push(order, 0, UINT64_MAX, 7, NULL, 0) == 0);
    CHECK(opd_order_push(order, 0, 1, 7, NULL, 0) == -ENOSPC);
    CHECK(opd_order_pop(order, UINT64_MAX - 1, &item) == 0);
    CHECK(opd_order_pop(order, UINT64_MAX, &item) == 1 && item.length == 0 && item.tag == 7);
    CHECK(opd_order_push(order, 0, 1, 8, NULL, 0) == 0); // left for destroy
    opd_order_destroy(order);
    order = opd_order_create(0, 100);
    CHECK(opd_order_push(order, 0, 1, 0, NULL, 0) == -EINVAL);
    CHECK(opd_order_pop(order, UINT64_MAX, &item) == 0);
    opd_order_destroy(order);
    opd_order_destroy(NULL);
}

int
main(void)
{
    RUN(one_stream_matches_a_sort);
    RUN(few_streams_match_a_sort);
    RUN(many_streams_match_a_sort);
    RUN(turns_give_one_order);
    RUN(late_records_come_at_once);
    RUN(the_limit_is_kept_and_force_gets_on);
    RUN(records_that_stay_cannot_hold_all_memory);
    RUN(an_empty_record_and_no_stream_work);
    return 0;
}
