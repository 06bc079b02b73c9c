// SPDX-License-Identifier: Apache-2.0
// Windows condensed against a plain reference: numbers stay, sums agree.
#include <errno.h>
#include <string.h>

#include "opd/condense.h"
#include "t.h"

static uint64_t state = 42;

static uint32_t
random_below(uint32_t limit)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % limit;
}

enum { ROWS = 500, SFILES = 20, STACKS = 100, FRAMES = 600 };

struct made {
    uint32_t row_sfile[ROWS], row_stack[ROWS];
    uint64_t row_hits[ROWS], row_weight[ROWS];
    uint16_t sfile_event[SFILES];
    uint32_t stack_start[STACKS + 1];
    uint8_t stack_flags[STACKS];
    uint32_t frame_image[FRAMES];
    uint64_t frame_address[FRAMES];
    struct opd_condense_window window;
};

static void
make(struct made *made)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < STACKS; i++) {
        made->stack_start[i] = at;
        made->stack_flags[i] = (uint8_t)random_below(4);
        for (uint32_t depth = random_below(7); depth > 0 && at < FRAMES; depth--, at++) {
            made->frame_image[at] = random_below(3);
            made->frame_address[at] = random_below(30);
        }
    }
    made->stack_start[STACKS] = at;
    for (uint32_t i = 0; i < SFILES; i++)
        made->sfile_event[i] = (uint16_t)random_below(2);
    for (uint32_t i = 0; i < ROWS; i++) {
        made->row_sfile[i] = random_below(SFILES);
        made->row_stack[i] = random_below(STACKS);
        made->row_hits[i] = 1 + random_below(9);
        made->row_weight[i] = made->row_hits[i] * 10 + random_below(3);
    }
    made->window = (struct opd_condense_window){
        .rows = ROWS,
        .sfiles = SFILES,
        .stacks = STACKS,
        .frames = at,
        .row_sfile = made->row_sfile,
        .row_stack = made->row_stack,
        .row_hits = made->row_hits,
        .row_weight = made->row_weight,
        .sfile_event = made->sfile_event,
        .stack_start = made->stack_start,
        .stack_flags = made->stack_flags,
        .frame_image = made->frame_image,
        .frame_address = made->frame_address,
    };
}

// A name is a function of the frame, so that the reference can know it.
static uint32_t
name_of(uint32_t image, uint64_t address)
{
    return 1000 + image * 100 + (uint32_t)address / 4;
}

static const struct opd_condensed *
condense(struct opd_condenser *condenser, const struct made *made, uint32_t *next_frame,
         uint32_t *next_stack, uint32_t *fresh)
{
    const struct opd_condense_frame *frames;
    const struct opd_condensed *out;
    const char *reason;
    uint32_t count;
    CHECK(opd_condense_begin(condenser, &made->window, &frames, &count, &reason) == 0);
    struct opd_condense_name *names = calloc(count + 1, sizeof *names);
    for (uint32_t i = 0; i < count; i++) {
        names[i].number = (*next_frame)++;
        names[i].name = name_of(frames[i].image, frames[i].address);
        names[i].kind = frames[i].image;
        if (i > 0)
            CHECK(frames[i - 1].image < frames[i].image ||
                  frames[i - 1].caller < frames[i].caller ||
                  frames[i - 1].address < frames[i].address);
    }
    CHECK(opd_condense_end(condenser, names, *next_stack, 7, &out) == 0);
    free(names);
    *next_stack += out->new_stacks;
    *fresh = count;
    return out;
}

static void
sums_equal_a_plain_reference(void)
{
    struct opd_condenser *condenser = opd_condenser_create(100000, 100000);
    struct made made;
    uint32_t next_frame = 1, next_stack = 1, fresh;
    for (int round = 0; round < 50; round++) {
        make(&made);
        const struct opd_condensed *out =
            condense(condenser, &made, &next_frame, &next_stack, &fresh);
        uint64_t hits = 0, weight = 0, kinds[3] = {0};
        for (uint32_t i = 0; i < ROWS; i++) {
            uint32_t stack = made.row_stack[i], leaf = made.stack_start[stack];
            hits += made.row_hits[i];
            weight += made.row_weight[i];
            kinds[leaf < made.stack_start[stack + 1] ? made.frame_image[leaf] : 2] +=
                made.row_hits[i];
        }
        CHECK(out->hits == hits && memcmp(out->kind_hits, kinds, sizeof kinds) == 0);
        for (uint32_t i = 0; i < out->groups; i++) {
            uint64_t expected_hits = 0, expected_weight = 0;
            for (uint32_t j = 0; j < ROWS; j++) {
                uint32_t stack = made.row_stack[j], leaf = made.stack_start[stack];
                uint32_t symbol = leaf < made.stack_start[stack + 1]
                                      ? name_of(made.frame_image[leaf], made.frame_address[leaf])
                                      : 7;
                if (made.row_sfile[j] != out->group_sfile[i] || symbol != out->group_symbol[i])
                    continue;
                expected_hits += made.row_hits[j];
                expected_weight += made.row_weight[j];
            }
            CHECK(out->group_hits[i] == expected_hits && expected_hits > 0);
            uint64_t unit = out->sfile_unit[out->group_sfile[i]];
            CHECK(out->group_hits[i] * unit + out->group_excess[i] == expected_weight);
            hits -= expected_hits;
            weight -= expected_weight;
        }
        CHECK(hits == 0 && weight == 0);
        uint64_t row_hits = 0;
        for (uint32_t i = 0; i < out->rows; i++)
            row_hits += out->row_hits[i];
        CHECK(row_hits == out->hits);
    }
    opd_condenser_destroy(condenser);
}

static void
what_was_seen_before_is_not_new_until_it_is_forgotten(void)
{
    struct opd_condenser *condenser = opd_condenser_create(100000, 100000);
    struct made made;
    uint32_t next_frame = 1, next_stack = 1, fresh;
    make(&made);
    CHECK(condense(condenser, &made, &next_frame, &next_stack, &fresh)->new_stacks > 0);
    CHECK(fresh > 0);
    CHECK(condense(condenser, &made, &next_frame, &next_stack, &fresh)->new_stacks == 0);
    CHECK(fresh == 0);
    opd_condenser_forget(condenser);
    CHECK(condense(condenser, &made, &next_frame, &next_stack, &fresh)->new_stacks > 0);
    CHECK(fresh > 0);
    opd_condenser_destroy(condenser);
}

static void
past_its_limit_it_begins_anew(void)
{
    struct opd_condenser *condenser = opd_condenser_create(10, 10);
    struct made made;
    uint32_t next_frame = 1, next_stack = 1, fresh;
    make(&made);
    condense(condenser, &made, &next_frame, &next_stack, &fresh);
    condense(condenser, &made, &next_frame, &next_stack, &fresh);
    CHECK(fresh > 10);
    opd_condenser_destroy(condenser);
}

static void
a_window_begun_and_not_ended_leaves_nothing(void)
{
    struct opd_condenser *condenser = opd_condenser_create(100000, 100000);
    const struct opd_condense_frame *frames;
    const struct opd_condensed *out;
    const char *reason;
    struct made made;
    uint32_t count, again, next_frame = 1, next_stack = 1;
    make(&made);
    CHECK(opd_condense_end(condenser, NULL, 1, 1, &out) == -EINVAL);
    CHECK(opd_condense_begin(condenser, &made.window, &frames, &count, &reason) == 0);
    condense(condenser, &made, &next_frame, &next_stack, &again);
    CHECK(count == again);
    opd_condenser_destroy(condenser);
}

static void
windows_that_do_not_fit_are_refused(void)
{
    struct opd_condenser *condenser = opd_condenser_create(1000, 1000);
    const struct opd_condense_frame *frames;
    const char *reason;
    struct made made;
    uint32_t count;
    for (int kind = 0; kind < 5; kind++) {
        make(&made);
        if (kind == 0)
            made.row_sfile[3] = SFILES;
        if (kind == 1)
            made.row_stack[3] = STACKS;
        if (kind == 2)
            made.row_hits[3] = 0;
        if (kind == 3)
            made.stack_start[5] = made.window.frames + 1;
        if (kind == 4)
            made.stack_start[STACKS]++;
        CHECK(opd_condense_begin(condenser, &made.window, &frames, &count, &reason) == -EBADMSG);
        CHECK(strlen(reason) > 0);
    }
    opd_condenser_destroy(condenser);
}

static void
stacks_unfold_to_the_frames_they_were(void)
{
    struct opd_condenser *condenser = opd_condenser_create(100000, 100000);
    struct made made;
    uint32_t next_frame = 1, next_stack = 1, fresh, before[FRAMES], at = 0;
    make(&made);
    const struct opd_condensed *out = condense(condenser, &made, &next_frame, &next_stack, &fresh);
    for (uint32_t i = 0; i < out->new_stacks; i++) {
        CHECK(out->new_shared[i] <= out->new_length[i]);
        for (uint32_t j = out->new_shared[i]; j < out->new_length[i]; j++)
            before[j] = out->rest[at++];
        for (uint32_t j = 0; j < out->new_length[i]; j++)
            CHECK(before[j] >= 1 && before[j] < next_frame);
    }
    CHECK(at == out->rest_count);
    opd_condenser_destroy(condenser);
}

static void
packing_takes_the_least_width_in_planes(void)
{
    static const uint64_t wide[] = {1, 0x0203, 0x040506};
    static const uint16_t narrow[] = {7, 9};
    const struct opd_column columns[] = {{wide, 8, 3}, {narrow, 2, 2}, {wide, 8, 0}};
    uint8_t out[128];
    CHECK(opd_pack_bound(columns, 3) <= sizeof out);
    size_t size = opd_pack(columns, 3, out);
    static const uint8_t expected[] = {3, 4, 3, 0, 0, 0, 1, 2, 0, 0, 0, 1, 0, 0, 0,
                                       0, 1, 3, 6, 0, 2, 5, 0, 0, 4, 0, 0, 0, 7, 9};
    CHECK(size == sizeof expected && memcmp(out, expected, size) == 0);
}

int
main(void)
{
    RUN(sums_equal_a_plain_reference);
    RUN(what_was_seen_before_is_not_new_until_it_is_forgotten);
    RUN(past_its_limit_it_begins_anew);
    RUN(a_window_begun_and_not_ended_leaves_nothing);
    RUN(windows_that_do_not_fit_are_refused);
    RUN(stacks_unfold_to_the_frames_they_were);
    RUN(packing_takes_the_least_width_in_planes);
    return 0;
}
