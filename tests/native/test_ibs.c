// SPDX-License-Identifier: Apache-2.0
// IBS samples through the pipeline: which rows they enter, at which address,
// with which stack, and what is counted of them. And the decoder over buffers
// of exactly every length.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "opd/pipeline.h"
#include "t.h"

#define OP_VALID (1ull << 18)
#define FETCH_VALID (1ull << 49)
#define RIP_INVALID (1ull << 38)
#define LOAD 1ull
#define MISS (1ull << 7)
#define LATENCY(n) ((uint64_t)(n) << 32)
#define KERNEL_IP 0xffffffff81000010ull
#define USER_IP 0x400100ull
#define CAPS 0x3ffu

static const struct opd_ibs_machine zen2 = {.family = 0x17, .model = 0x31, .kernel = 6u << 16 | 8};

struct raw {
    uint32_t caps;
    uint64_t slots[9];
} __attribute__((packed));

static int
bit_of(const char *name)
{
    int bit = opd_ibs_event_by_name(name);
    CHECK(bit >= 0);
    return bit;
}

static void
want(struct opd_ibs_mask *mask, const char *name)
{
    int bit = bit_of(name);
    mask->words[bit / 64] |= 1ull << (bit % 64);
}

// Event 0 is the IBS event, then one for each of the names.
static struct opd_pipeline *
create(struct opd_pipeline_ibs *ibs, enum opd_ibs_flavour flavour, const char *const *names,
       unsigned count, bool plain)
{
    struct opd_pipeline_options options;
    opd_pipeline_defaults(&options);
    struct opd_pipeline *pipeline = opd_pipeline_create(&options);
    struct opd_pipeline_event event = {.period = 5};
    CHECK(opd_pipeline_add_event(pipeline, &event) == 0);
    *ibs = (struct opd_pipeline_ibs){.flavour = (uint8_t)flavour, .plain = plain, .machine = zen2};
    for (unsigned i = 0; i < count; i++) {
        int number = opd_pipeline_add_event(pipeline, &event);
        ibs->events[bit_of(names[i])] = (uint16_t)number;
        want(&ibs->user, names[i]);
        want(&ibs->kernel, names[i]);
    }
    CHECK(opd_pipeline_set_ibs(pipeline, 0, ibs) == 0);
    return pipeline;
}

static void
feed(struct opd_pipeline *pipeline, const struct raw *raw, uint32_t slots, unsigned mode,
     uint64_t ip, const uint64_t *chain, size_t length)
{
    struct opd_record record = {
        .type = OPD_RECORD_SAMPLE,
        .misc = (uint16_t)mode,
        .has = OPD_HAS_IP | OPD_HAS_TID | OPD_HAS_TIME | OPD_HAS_PERIOD | OPD_HAS_CALLCHAIN |
               OPD_HAS_RAW | OPD_HAS_DATA_SRC,
        .pid = 9,
        .tid = 9,
        .time = 10,
    };
    record.u.sample.ip = ip;
    record.u.sample.period = 100;
    record.u.sample.chain = chain;
    record.u.sample.chain_length = length;
    record.u.sample.raw = (const uint8_t *)raw;
    record.u.sample.raw_size = 4 + 8 * slots;
    record.u.sample.data_src = 0x1e05080021;
    opd_pipeline_feed(pipeline, 0, &record);
}

static struct opd_window *
take(struct opd_pipeline *pipeline)
{
    struct opd_window *window = NULL;
    CHECK(opd_pipeline_take_here(pipeline, &window) == 0);
    return window;
}

static void
end(struct opd_pipeline *pipeline, struct opd_window *window)
{
    opd_window_free(window);
    opd_pipeline_destroy(pipeline);
}

// Hits and weight of an event.
static uint64_t
hits_of(const struct opd_window *window, unsigned event, uint64_t *weight)
{
    uint64_t hits = 0;
    *weight = 0;
    for (uint32_t i = 0; i < window->rows; i++) {
        if (window->sfile_event[window->row_sfile[i]] != event)
            continue;
        hits += window->row_hits[i];
        *weight += window->row_weight[i];
    }
    return hits;
}

static void
a_sample_enters_every_event_that_it_satisfies(void)
{
    static const char *const names[] = {"IBS_OP_ALL", "IBS_OP_LOAD", "IBS_OP_STORE",
                                        "IBS_OP_DC_LOAD_LAT"};
    struct opd_pipeline_ibs ibs;
    struct opd_pipeline *pipeline = create(&ibs, OPD_IBS_OP, names, 4, true);
    struct raw raw = {CAPS, {OP_VALID, USER_IP, 0, 0, LOAD | MISS | LATENCY(77)}};
    for (int i = 0; i < 3; i++)
        feed(pipeline, &raw, 8, OPD_MISC_USER, USER_IP, NULL, 0);
    struct opd_window *window = take(pipeline);
    const uint64_t hits[] = {3, 3, 3, 0, 3}, weights[] = {300, 300, 300, 0, 231};
    for (unsigned event = 0; event < 5; event++) {
        uint64_t weight;
        CHECK(hits_of(window, event, &weight) == hits[event] && weight == weights[event]);
        CHECK(window->event_counts[event].samples == hits[event]);
    }
    CHECK(window->stacks == 1 && window->rows == 4);
    CHECK(window->ibs_sources == 1 && window->ibs_event[0] == 0);
    const struct opd_ibs_counts *counts = window->ibs_counts;
    CHECK(counts->records == 3 && counts->incomplete == 0 && counts->inexact == 0);
    CHECK(counts->compared == 3 && counts->mismatched == 3);
    opd_window_free(window);
    window = take(pipeline);
    CHECK(window->ibs_counts->records == 0);
    end(pipeline, window);
}

static void
each_mode_has_its_own_choice(void)
{
    static const char *const names[] = {"IBS_FETCH_ALL", "IBS_FETCH_COMPLETED"};
    struct opd_pipeline_ibs ibs;
    struct opd_pipeline *pipeline = create(&ibs, OPD_IBS_FETCH, names, 2, false);
    ibs.user = (struct opd_ibs_mask){.words = {0}};
    want(&ibs.user, "IBS_FETCH_COMPLETED");
    CHECK(opd_pipeline_set_ibs(pipeline, 0, &ibs) == 0);
    struct raw kernel = {CAPS, {FETCH_VALID, KERNEL_IP}};
    struct raw user = {CAPS, {FETCH_VALID, USER_IP}};
    // The interrupt's mode does not count, nor does a sample that nobody wants.
    feed(pipeline, &kernel, 4, OPD_MISC_USER, KERNEL_IP, NULL, 0);
    feed(pipeline, &user, 4, OPD_MISC_KERNEL, USER_IP, NULL, 0);
    struct opd_window *window = take(pipeline);
    uint64_t weight;
    CHECK(hits_of(window, 0, &weight) == 0 && hits_of(window, 2, &weight) == 0);
    CHECK(hits_of(window, 1, &weight) == 1 && window->sfiles == 1 && window->sfile_mode[0] == 1);
    CHECK(window->ibs_counts->records == 2);
    end(pipeline, window);
}

static void
a_sample_without_an_address_stays_at_the_interrupts(void)
{
    static const char *const names[] = {"IBS_OP_ALL"};
    struct opd_pipeline_ibs ibs;
    struct opd_pipeline *pipeline = create(&ibs, OPD_IBS_OP, names, 1, false);
    struct raw raw = {CAPS, {OP_VALID, USER_IP, RIP_INVALID}};
    feed(pipeline, &raw, 8, OPD_MISC_KERNEL, KERNEL_IP, NULL, 0);
    struct opd_window *window = take(pipeline);
    CHECK(window->rows == 1 && window->sfile_mode[0] == 1);
    CHECK(window->frame_address[0] == KERNEL_IP);
    CHECK(window->event_counts[1].inexact_ip == 1 && window->ibs_counts->inexact == 1);
    end(pipeline, window);
}

static uint32_t
frames_of(const uint64_t *chain, size_t length, uint64_t ip, unsigned mode)
{
    static const char *const names[] = {"IBS_OP_ALL"};
    struct opd_pipeline_ibs ibs;
    struct opd_pipeline *pipeline = create(&ibs, OPD_IBS_OP, names, 1, false);
    struct raw raw = {CAPS, {OP_VALID, ip}};
    feed(pipeline, &raw, 8, mode, ip, chain, length);
    struct opd_window *window = take(pipeline);
    CHECK(window->stacks == 1);
    uint32_t frames = window->frames;
    end(pipeline, window);
    return frames;
}

static void
the_chain_goes_on_from_the_exact_address(void)
{
    // A little skid: the interrupt's frame is the leaf's own.
    const uint64_t near[] = {OPD_CONTEXT_KERNEL, KERNEL_IP + 20, KERNEL_IP + 0x5000};
    CHECK(frames_of(near, 3, KERNEL_IP, OPD_MISC_KERNEL) == 2);
    // Far away it is another function.
    const uint64_t far[] = {OPD_CONTEXT_KERNEL, KERNEL_IP + 0x4000, KERNEL_IP + 0x5000};
    CHECK(frames_of(far, 3, KERNEL_IP, OPD_MISC_KERNEL) == 3);
    // The interrupt came after the entry into the kernel.
    const uint64_t entered[] = {OPD_CONTEXT_KERNEL, KERNEL_IP, KERNEL_IP + 0x100, OPD_CONTEXT_USER,
                                USER_IP + 2};
    CHECK(frames_of(entered, 5, USER_IP, OPD_MISC_KERNEL) == 1);
    // And after the return from it.
    const uint64_t left[] = {OPD_CONTEXT_USER, USER_IP + 2};
    CHECK(frames_of(left, 2, KERNEL_IP, OPD_MISC_USER) == 2);
}

static void
what_is_no_whole_record_is_counted(void)
{
    static const char *const names[] = {"IBS_OP_ALL", "IBS_OP_LOAD"};
    struct opd_pipeline_ibs ibs;
    struct opd_pipeline *pipeline = create(&ibs, OPD_IBS_OP, names, 2, true);
    struct raw raw = {CAPS, {OP_VALID, USER_IP, 0, 0, LOAD}};
    feed(pipeline, &raw, 4, OPD_MISC_USER, USER_IP, NULL, 0); // short
    feed(pipeline, &raw, 9, OPD_MISC_USER, USER_IP, NULL, 0); // long
    raw.caps |= 1u << 30;
    feed(pipeline, &raw, 8, OPD_MISC_USER, USER_IP, NULL, 0);
    raw.caps = CAPS;
    raw.slots[0] = 0;
    feed(pipeline, &raw, 8, OPD_MISC_USER, USER_IP, NULL, 0); // no Val
    struct opd_record bare = {.type = OPD_RECORD_SAMPLE, .has = OPD_HAS_IP, .pid = 9, .tid = 9};
    bare.u.sample.ip = USER_IP;
    opd_pipeline_feed(pipeline, 0, &bare);
    struct opd_window *window = take(pipeline);
    const struct opd_ibs_counts *counts = window->ibs_counts;
    CHECK(counts->records == 4 && counts->bare == 1 && counts->incomplete == 4);
    CHECK(counts->unknown_caps == 1 && counts->invalid == 1 && counts->inexact == 2);
    CHECK(counts->compared == 2); // neither short nor without Val
    uint64_t weight;
    CHECK(hits_of(window, 0, &weight) == 5);
    CHECK(hits_of(window, 1, &weight) == 3 && hits_of(window, 2, &weight) == 2);
    end(pipeline, window);
}

static void
no_room_is_counted_in_every_event(void)
{
    static const char *const names[] = {"IBS_OP_ALL", "IBS_OP_LOAD"};
    struct opd_pipeline_options options;
    opd_pipeline_defaults(&options);
    options.sfile_limit = 1;
    options.stack_limit = 8;
    struct opd_pipeline *pipeline = opd_pipeline_create(&options);
    struct opd_pipeline_event event = {.period = 5};
    struct opd_pipeline_ibs ibs = {.flavour = OPD_IBS_OP, .machine = zen2};
    CHECK(opd_pipeline_add_event(pipeline, &event) == 0);
    for (unsigned i = 0; i < 2; i++) {
        ibs.events[bit_of(names[i])] = (uint16_t)opd_pipeline_add_event(pipeline, &event);
        want(&ibs.user, names[i]);
    }
    CHECK(opd_pipeline_set_ibs(pipeline, 0, &ibs) == 0);
    for (uint64_t i = 0; i < 20; i++) {
        struct raw raw = {CAPS, {OP_VALID, USER_IP + i, 0, 0, LOAD}};
        feed(pipeline, &raw, 8, OPD_MISC_USER, USER_IP, NULL, 0);
    }
    struct opd_window *window = take(pipeline);
    for (unsigned i = 1; i <= 2; i++) {
        const struct opd_event_counts *counts = &window->event_counts[i];
        CHECK(counts->samples + counts->hash_full == 20 && counts->hash_full > 0);
    }
    end(pipeline, window);
}

static void
a_wrong_choice_is_refused(void)
{
    static const char *const names[] = {"IBS_OP_ALL"};
    struct opd_pipeline_ibs ibs;
    struct opd_pipeline *pipeline = create(&ibs, OPD_IBS_OP, names, 1, true);
    CHECK(opd_pipeline_set_ibs(pipeline, 2, &ibs) == -EINVAL);
    ibs.events[bit_of("IBS_OP_ALL")] = 2;
    CHECK(opd_pipeline_set_ibs(pipeline, 0, &ibs) == -EINVAL);
    ibs.events[bit_of("IBS_OP_ALL")] = 1;
    ibs.events[bit_of("IBS_FETCH_ALL")] = 1;
    want(&ibs.user, "IBS_FETCH_ALL");
    CHECK(opd_pipeline_set_ibs(pipeline, 0, &ibs) == -EINVAL);
    ibs.user = ibs.kernel;
    ibs.flavour = 2;
    CHECK(opd_pipeline_set_ibs(pipeline, 0, &ibs) == -EINVAL);
    ibs.flavour = OPD_IBS_OP;
    struct opd_pipeline_event event = {.period = 5};
    for (unsigned i = 1; i <= OPD_IBS_SOURCES_MAX; i++) {
        int number = opd_pipeline_add_event(pipeline, &event);
        CHECK(opd_pipeline_set_ibs(pipeline, (unsigned)number, &ibs) ==
              (i < OPD_IBS_SOURCES_MAX ? 0 : -ENOSPC));
    }
    opd_pipeline_destroy(pipeline);
}

// A sanitizer sees every byte that is read too far.
static void
nothing_is_read_past_the_payload(void)
{
    static const uint32_t caps[] = {0, CAPS, 0x7ff, 0x3df, 0xbff, 0x81bff, 0xffffffff};
    for (size_t kind = 0; kind < sizeof caps / sizeof *caps; kind++)
        for (size_t size = 0; size <= 100; size++) {
            uint8_t *bytes = malloc(size > 0 ? size : 1);
            memset(bytes, 0xff, size);
            memcpy(bytes, &caps[kind], size < 4 ? size : 4);
            struct opd_ibs_fetch fetch;
            struct opd_ibs_op op;
            struct opd_ibs_hits hits;
            struct opd_ibs_mask all;
            struct opd_ibs_machine old = {.family = 0x17, .kernel = 5u << 16 | 4};
            CHECK(opd_ibs_decode_fetch(&old, bytes, size, &fetch) == fetch.flaws);
            CHECK(opd_ibs_decode_fetch(&zen2, bytes, size, &fetch) == fetch.flaws);
            CHECK(opd_ibs_decode_op(&zen2, bytes, size, &op) == op.flaws);
            CHECK((size < 12) == ((op.flaws & OPD_IBS_NOT_VALID) != 0));
            opd_ibs_mask_of(OPD_IBS_FETCH, NULL, 0, &all);
            opd_ibs_fetch_hits(&zen2, &fetch, &all, &hits);
            opd_ibs_mask_of(OPD_IBS_OP, NULL, 0, &all);
            opd_ibs_op_hits(&zen2, &op, &all, &hits);
            opd_ibs_data_src(&zen2, &op);
            free(bytes);
        }
}

int
main(void)
{
    RUN(a_sample_enters_every_event_that_it_satisfies);
    RUN(each_mode_has_its_own_choice);
    RUN(a_sample_without_an_address_stays_at_the_interrupts);
    RUN(the_chain_goes_on_from_the_exact_address);
    RUN(what_is_no_whole_record_is_counted);
    RUN(no_room_is_counted_in_every_event);
    RUN(a_wrong_choice_is_refused);
    RUN(nothing_is_read_past_the_payload);
    return 0;
}
