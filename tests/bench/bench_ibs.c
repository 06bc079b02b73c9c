// SPDX-License-Identifier: Apache-2.0
// What an IBS sample costs: its decoding alone, and the whole way from the
// record to rows beside that of a plain sample, in CPU time. A line a case:
// name, median and best ns a record, rows a record. Run by the section "ibs".
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "opd/pipeline.h"

#define RECORDS 4096u
#define PASSES 64u
#define PLACES 512u
#define CAPS 0xbffu
#define OP_SLOTS 8u
#define FETCH_SLOTS 4u

static const struct opd_ibs_machine zen4 = {.family = 0x19, .model = 0x11, .kernel = 6u << 16 | 8};

struct raw {
    uint32_t caps;
    uint64_t slots[OP_SLOTS];
} __attribute__((packed));

static struct raw ops[RECORDS], fetches[RECORDS];
static uint64_t state = 88172645463325252u;
static volatile uint64_t sink;

static uint64_t
next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint64_t
few_bits(void)
{
    return next_random() & next_random();
}

static double
now_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return (double)at.tv_sec * 1e9 + (double)at.tv_nsec;
}

static int
compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// Two thirds of the ops neither load nor store, half of the rest hit L1, as
// samples of real programs do.
static void
make_records(void)
{
    for (unsigned i = 0; i < RECORDS; i++) {
        const uint64_t ip = 0x400000 + (next_random() % PLACES) * 16;
        ops[i].caps = fetches[i].caps = CAPS;
        ops[i].slots[0] = 1u << 18 | 1u << 17 | 0x61a8;
        ops[i].slots[1] = fetches[i].slots[1] = ip;
        ops[i].slots[2] = few_bits() & 0x184ffffffff;
        const uint64_t kind = next_random() % 6;
        ops[i].slots[3] = kind == 0 ? next_random() & 0x77 : 0;
        ops[i].slots[4] = kind < 2 ? 1 | 3u << 17 | (kind == 0 ? 0x12c00100080 : 0) : 0;
        fetches[i].slots[0] = (few_bits() & 0x3dfc00ff00000000) | 3ull << 48;
    }
}

static void
report(const char *name, double *ns, double rows)
{
    qsort(ns, PASSES, sizeof *ns, compare);
    printf("%s\t%.1f\t%.1f\t%.2f\n", name, ns[PASSES / 2], ns[0], rows);
}

static void
bench_decoding(void)
{
    double op_ns[PASSES], fetch_ns[PASSES], hits_ns[PASSES], source_ns[PASSES];
    static struct opd_ibs_op decoded[RECORDS];
    struct opd_ibs_fetch fetch;
    struct opd_ibs_hits hits;
    struct opd_ibs_mask all;
    opd_ibs_mask_of(OPD_IBS_OP, NULL, 0, &all);
    uint64_t sum = 0, rows = 0;
    for (unsigned pass = 0; pass < PASSES; pass++) {
        double began = now_ns();
        for (unsigned i = 0; i < RECORDS; i++)
            sum += opd_ibs_decode_op(&zen4, &ops[i], 4 + 8 * OP_SLOTS, &decoded[i]);
        double op_done = now_ns();
        for (unsigned i = 0; i < RECORDS; i++) {
            sum += opd_ibs_decode_fetch(&zen4, &fetches[i], 4 + 8 * FETCH_SLOTS, &fetch);
            sum += fetch.latency;
        }
        double fetch_done = now_ns();
        for (unsigned i = 0; i < RECORDS; i++) {
            opd_ibs_op_hits(&zen4, &decoded[i], &all, &hits);
            rows += (unsigned)__builtin_popcountll(hits.events.words[0]) +
                    (unsigned)__builtin_popcountll(hits.events.words[1]);
        }
        double hits_done = now_ns();
        for (unsigned i = 0; i < RECORDS; i++)
            sum += opd_ibs_data_src(&zen4, &decoded[i]);
        double source_done = now_ns();
        op_ns[pass] = (op_done - began) / RECORDS;
        fetch_ns[pass] = (fetch_done - op_done) / RECORDS;
        hits_ns[pass] = (hits_done - fetch_done) / RECORDS;
        source_ns[pass] = (source_done - hits_done) / RECORDS;
    }
    sink += sum;
    report("decode op", op_ns, 0);
    report("decode fetch", fetch_ns, 0);
    report("derived events of an op", hits_ns, (double)rows / (RECORDS * PASSES));
    report("data source of an op", source_ns, 0);
}

static void
feed_all(struct opd_pipeline *pipeline, struct opd_record *records)
{
    static const uint32_t events[OPD_BATCH];
    for (unsigned i = 0; i < RECORDS; i += OPD_BATCH)
        opd_pipeline_feed_samples(pipeline, events, &records[i], OPD_BATCH);
}

// `names` NULL: every derived event; count 0: a plain event without records.
static void
bench_pipeline(const char *what, const char *const *names, unsigned count)
{
    struct opd_pipeline_options options;
    opd_pipeline_defaults(&options);
    struct opd_pipeline *pipeline = opd_pipeline_create(&options);
    struct opd_pipeline_event event = {.period = 100000};
    struct opd_pipeline_ibs ibs = {.flavour = OPD_IBS_OP, .machine = zen4};
    opd_pipeline_add_event(pipeline, &event);
    unsigned table;
    const struct opd_ibs_event *derived = opd_ibs_events(&table);
    for (unsigned bit = 0; bit < table; bit++) {
        bool chosen = names == NULL && count > 0 && derived[bit].flavour == OPD_IBS_OP;
        for (unsigned i = 0; names != NULL && i < count; i++)
            chosen |= strcmp(names[i], derived[bit].name) == 0;
        if (!chosen)
            continue;
        ibs.user.words[bit / 64] |= 1ull << (bit % 64);
        ibs.events[bit] = (uint16_t)opd_pipeline_add_event(pipeline, &event);
    }
    if (count > 0)
        opd_pipeline_set_ibs(pipeline, 0, &ibs);
    static struct opd_record records[RECORDS];
    for (unsigned i = 0; i < RECORDS; i++) {
        records[i] = (struct opd_record){
            .type = OPD_RECORD_SAMPLE,
            .misc = OPD_MISC_USER | OPD_MISC_EXACT_IP,
            .has = OPD_HAS_IP | OPD_HAS_TID | OPD_HAS_TIME | OPD_HAS_RAW | OPD_HAS_DATA_SRC,
            .pid = 9,
            .tid = 9,
            .time = 1000 + i,
        };
        records[i].u.sample.ip = ops[i].slots[1];
        records[i].u.sample.raw = (const uint8_t *)&ops[i];
        records[i].u.sample.raw_size = 4 + 8 * OP_SLOTS;
    }
    double ns[PASSES];
    for (unsigned pass = 0; pass < PASSES; pass++) {
        double began = now_ns();
        feed_all(pipeline, records);
        ns[pass] = (now_ns() - began) / RECORDS;
    }
    struct opd_window *window;
    uint64_t rows = 0;
    if (opd_pipeline_take_here(pipeline, &window) == 0) {
        rows = window->counts.samples;
        opd_window_free(window);
    }
    report(what, ns, (double)rows / (RECORDS * PASSES));
    opd_pipeline_destroy(pipeline);
}

int
main(void)
{
    static const char *const one[] = {"IBS_OP_ALL"};
    static const char *const six[] = {"IBS_OP_ALL",
                                      "IBS_OP_LOAD",
                                      "IBS_OP_DC_LOAD_LAT",
                                      "IBS_OP_DATA_CACHE_MISS",
                                      "IBS_OP_BRANCH_RETIRED",
                                      "IBS_OP_TAG_TO_RETIRE"};
    make_records();
    bench_decoding();
    bench_pipeline("plain sample", NULL, 0);
    bench_pipeline("IBS sample, 1 derived event", one, 1);
    bench_pipeline("IBS sample, 6 derived events", six, 6);
    bench_pipeline("IBS sample, every derived event", NULL, 1);
    return 0;
}
