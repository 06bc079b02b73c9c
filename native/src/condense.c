// SPDX-License-Identifier: Apache-2.0
#include "opd/condense.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "frame_table.h"
#include "opd/intern.h"
#include "row_sort.h"

struct known_stack {
    uint32_t number;
    uint32_t leaf; // index of its leaf's frame, NO_LEAF without frames
};

#define NO_LEAF UINT32_MAX

struct opd_condenser {
    uint32_t frame_limit, stack_limit;
    struct opd_frame_table frames;
    struct opd_intern *stacks; // flags and frame indices, leaf first → index
    struct opd_condense_name *frame_names;
    struct known_stack *known;
    uint32_t frame_room, stack_room;
    uint32_t frames_named, stacks_numbered; // below these everything is known

    bool begun;
    struct opd_condense_window window;
    struct opd_condense_frame *new_frames;
    uint32_t *new_order;    // position among new_frames → index past frames_named
    uint32_t *window_stack; // the window's stack → index
    uint32_t *scratch;
    struct sort_row *sorting;
    struct opd_condensed out;
    void *out_memory;
};

struct opd_condenser *
opd_condenser_create(uint32_t frame_limit, uint32_t stack_limit)
{
    struct opd_condenser *condenser = calloc(1, sizeof *condenser);
    if (condenser == NULL)
        return NULL;
    condenser->frame_limit = frame_limit;
    condenser->stack_limit = stack_limit;
    // A window's own may come on top of the limits; they are looked at between windows.
    condenser->stacks = opd_intern_create(UINT32_MAX - 1, SIZE_MAX / 4);
    if (condenser->stacks == NULL) {
        opd_condenser_destroy(condenser);
        errno = ENOMEM;
        return NULL;
    }
    return condenser;
}

static void
drop_window(struct opd_condenser *condenser)
{
    free(condenser->new_frames);
    free(condenser->new_order);
    free(condenser->window_stack);
    free(condenser->scratch);
    free(condenser->sorting);
    free(condenser->out_memory);
    condenser->new_frames = NULL;
    condenser->new_order = condenser->window_stack = condenser->scratch = NULL;
    condenser->sorting = NULL;
    condenser->out_memory = NULL;
    condenser->begun = false;
}

void
opd_condenser_destroy(struct opd_condenser *condenser)
{
    if (condenser == NULL)
        return;
    drop_window(condenser);
    opd_frame_table_free(&condenser->frames);
    opd_intern_destroy(condenser->stacks);
    free(condenser->frame_names);
    free(condenser->known);
    free(condenser);
}

void
opd_condenser_forget(struct opd_condenser *condenser)
{
    drop_window(condenser);
    opd_frame_table_free(&condenser->frames);
    opd_intern_reset(condenser->stacks);
    free(condenser->frame_names);
    free(condenser->known);
    condenser->frame_names = NULL;
    condenser->known = NULL;
    condenser->frame_room = condenser->stack_room = 0;
    condenser->frames_named = condenser->stacks_numbered = 0;
}

size_t
opd_condenser_bytes(const struct opd_condenser *condenser)
{
    return condenser->frames.slot_count * sizeof(struct opd_frame_slot) +
           condenser->frames.room * sizeof(struct opd_condense_frame) +
           opd_intern_bytes(condenser->stacks) +
           condenser->frame_room * sizeof *condenser->frame_names +
           condenser->stack_room * sizeof *condenser->known;
}

static const char *
check_window(const struct opd_condense_window *window)
{
    if (window->stack_start[0] != 0 || window->stack_start[window->stacks] != window->frames)
        return "stack_start does not go from 0 to the number of frames";
    for (uint32_t i = 0; i < window->stacks; i++)
        if (window->stack_start[i] > window->stack_start[i + 1])
            return "stack_start does not ascend";
    for (uint32_t i = 0; i < window->rows; i++) {
        if (window->row_sfile[i] >= window->sfiles || window->row_stack[i] >= window->stacks)
            return "a row names a sample file or stack that is not there";
        if (window->row_hits[i] == 0)
            return "a row without hits";
    }
    return NULL;
}

// Gives the window's stacks their indices; frames and stacks that are not
// known get the next ones.
static int
find_stacks(struct opd_condenser *condenser)
{
    const struct opd_condense_window *window = &condenser->window;
    uint32_t deepest = 0;
    for (uint32_t i = 0; i < window->stacks; i++) {
        uint32_t depth = window->stack_start[i + 1] - window->stack_start[i];
        deepest = depth > deepest ? depth : deepest;
    }
    condenser->window_stack = malloc((window->stacks + 1u) * sizeof *condenser->window_stack);
    condenser->scratch = malloc((deepest + 1u) * sizeof *condenser->scratch);
    if (condenser->window_stack == NULL || condenser->scratch == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < window->stacks; i++) {
        uint32_t from = window->stack_start[i], to = window->stack_start[i + 1], words = 0;
        condenser->scratch[words++] = window->stack_flags[i];
        for (uint32_t at = from; at < to; at++) {
            uint32_t index = opd_frame_table_put(&condenser->frames, window->frame_image[at],
                                                 at > from, window->frame_address[at]);
            if (index == UINT32_MAX)
                return -ENOMEM;
            condenser->scratch[words++] = index;
        }
        uint32_t index = opd_intern_put(condenser->stacks, condenser->scratch,
                                        words * (uint32_t)sizeof *condenser->scratch, NULL);
        if (index == OPD_INTERN_FULL)
            return -ENOMEM;
        condenser->window_stack[i] = index;
    }
    return 0;
}

static int
compare_frames(const void *one, const void *other, void *context)
{
    const struct opd_condenser *condenser = context;
    const uint32_t *a = one, *b = other;
    const struct opd_condense_frame *x = &condenser->frames.frames[condenser->frames_named + *a];
    const struct opd_condense_frame *y = &condenser->frames.frames[condenser->frames_named + *b];
    if (x->image != y->image)
        return x->image < y->image ? -1 : 1;
    if (x->caller != y->caller)
        return x->caller < y->caller ? -1 : 1;
    return x->address < y->address ? -1 : x->address > y->address;
}

int
opd_condense_begin(struct opd_condenser *condenser, const struct opd_condense_window *window,
                   const struct opd_condense_frame **new_frames, uint32_t *count,
                   const char **reason)
{
    drop_window(condenser);
    *reason = check_window(window);
    if (*reason != NULL)
        return -EBADMSG;
    if (condenser->frames_named != condenser->frames.count ||
        condenser->frames_named > condenser->frame_limit ||
        condenser->stacks_numbered > condenser->stack_limit)
        opd_condenser_forget(condenser);
    condenser->window = *window;
    int rc = find_stacks(condenser);
    uint32_t fresh = condenser->frames.count - condenser->frames_named;
    if (rc == 0) {
        condenser->new_frames = malloc((fresh + 1u) * sizeof *condenser->new_frames);
        condenser->new_order = malloc((fresh + 1u) * sizeof *condenser->new_order);
        if (condenser->new_frames == NULL || condenser->new_order == NULL)
            rc = -ENOMEM;
    }
    if (rc != 0) {
        opd_condenser_forget(condenser);
        return rc;
    }
    for (uint32_t i = 0; i < fresh; i++)
        condenser->new_order[i] = i;
    qsort_r(condenser->new_order, fresh, sizeof *condenser->new_order, compare_frames, condenser);
    for (uint32_t i = 0; i < fresh; i++) {
        uint32_t index = condenser->frames_named + condenser->new_order[i];
        condenser->new_frames[i] = condenser->frames.frames[index];
    }
    condenser->begun = true;
    *new_frames = condenser->new_frames;
    *count = fresh;
    return 0;
}

static int
grow(void **array, uint32_t *room, uint32_t need, size_t size)
{
    if (need <= *room)
        return 0;
    uint32_t more = *room < 1024 ? 1024 : *room;
    while (more < need)
        more += more / 2;
    void *grown = realloc(*array, more * size);
    if (grown == NULL)
        return -ENOMEM;
    *array = grown;
    *room = more;
    return 0;
}

static int
take_names(struct opd_condenser *condenser, const struct opd_condense_name *names)
{
    uint32_t total = condenser->frames.count;
    if (grow((void **)&condenser->frame_names, &condenser->frame_room, total,
             sizeof *condenser->frame_names) != 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < total - condenser->frames_named; i++) {
        struct opd_condense_name name = names[i];
        if (name.kind > 2)
            name.kind = 2;
        condenser->frame_names[condenser->frames_named + condenser->new_order[i]] = name;
    }
    condenser->frames_named = total;
    return 0;
}

// A new stack as the block keeps it: frame numbers root first.
struct new_stack {
    uint32_t index;
    uint32_t flags, length;
    uint32_t *numbers;
};

static int
compare_stacks(const void *one, const void *other)
{
    const struct new_stack *a = one, *b = other;
    uint32_t common = a->length < b->length ? a->length : b->length;
    for (uint32_t i = 0; i < common; i++)
        if (a->numbers[i] != b->numbers[i])
            return a->numbers[i] < b->numbers[i] ? -1 : 1;
    if (a->length != b->length)
        return a->length < b->length ? -1 : 1;
    return a->flags < b->flags ? -1 : a->flags > b->flags;
}

static void
fill_new_stack(const struct opd_condenser *condenser, struct new_stack *stack, uint32_t *numbers)
{
    uint32_t bytes;
    const uint32_t *words = opd_intern_get(condenser->stacks, stack->index, &bytes);
    stack->flags = words[0];
    stack->length = bytes / (uint32_t)sizeof *words - 1;
    stack->numbers = numbers;
    for (uint32_t i = 0; i < stack->length; i++)
        numbers[i] = condenser->frame_names[words[stack->length - i]].number;
}

// Sorts the new stacks, numbers them and writes their columns to `out`.
static int
number_stacks(struct opd_condenser *condenser, uint32_t first_stack, struct opd_condensed *out)
{
    uint32_t total = opd_intern_count(condenser->stacks),
             fresh = total - condenser->stacks_numbered;
    if (grow((void **)&condenser->known, &condenser->stack_room, total, sizeof *condenser->known) !=
        0)
        return -ENOMEM;
    size_t words = 0;
    for (uint32_t i = condenser->stacks_numbered; i < total; i++) {
        uint32_t bytes;
        opd_intern_get(condenser->stacks, i, &bytes);
        words += bytes / sizeof(uint32_t) - 1;
    }
    struct new_stack *stacks = malloc((fresh + 1u) * sizeof *stacks);
    uint32_t *numbers = malloc((words + 1) * sizeof *numbers);
    if (stacks == NULL || numbers == NULL) {
        free(stacks);
        free(numbers);
        return -ENOMEM;
    }
    size_t at = 0;
    for (uint32_t i = 0; i < fresh; i++) {
        stacks[i].index = condenser->stacks_numbered + i;
        fill_new_stack(condenser, &stacks[i], numbers + at);
        at += stacks[i].length;
    }
    qsort(stacks, fresh, sizeof *stacks, compare_stacks);
    out->new_stacks = fresh;
    out->rest_count = 0;
    for (uint32_t i = 0; i < fresh; i++) {
        const struct new_stack *stack = &stacks[i], *before = i > 0 ? &stacks[i - 1] : NULL;
        uint32_t same = 0, bytes;
        while (before != NULL && same < stack->length && same < before->length &&
               stack->numbers[same] == before->numbers[same])
            same++;
        out->new_flags[i] = stack->flags;
        out->new_length[i] = stack->length;
        out->new_shared[i] = same;
        memcpy(out->rest + out->rest_count, stack->numbers + same,
               (stack->length - same) * sizeof *out->rest);
        out->rest_count += stack->length - same;
        const uint32_t *leaf = opd_intern_get(condenser->stacks, stack->index, &bytes);
        condenser->known[stack->index] = (struct known_stack){
            .number = first_stack + i, .leaf = stack->length > 0 ? leaf[1] : NO_LEAF};
    }
    condenser->stacks_numbered = total;
    free(stacks);
    free(numbers);
    return 0;
}

// The least weight of one hit for each event, spread over its sample files.
static int
find_units(struct opd_condenser *condenser, struct opd_condensed *out)
{
    const struct opd_condense_window *window = &condenser->window;
    uint64_t *units = malloc(sizeof *units << 16);
    if (units == NULL)
        return -ENOMEM;
    memset(units, 0xff, sizeof *units << 16);
    for (uint32_t i = 0; i < window->rows; i++) {
        uint64_t unit = window->row_weight[i] / window->row_hits[i];
        uint64_t *least = &units[window->sfile_event[window->row_sfile[i]]];
        *least = unit < *least ? unit : *least;
    }
    for (uint32_t i = 0; i < window->sfiles; i++) {
        uint64_t unit = units[window->sfile_event[i]];
        out->sfile_unit[i] = unit == UINT64_MAX ? 0 : unit;
    }
    free(units);
    return 0;
}

static uint64_t
excess_of(const struct opd_condenser *condenser, const struct opd_condensed *out, uint32_t row)
{
    const struct opd_condense_window *window = &condenser->window;
    return window->row_weight[row] -
           window->row_hits[row] * out->sfile_unit[window->row_sfile[row]];
}

static void
group_rows(struct opd_condenser *condenser, uint32_t no_name, struct opd_condensed *out)
{
    const struct opd_condense_window *window = &condenser->window;
    struct sort_row *sorting = condenser->sorting;
    for (uint32_t i = 0; i < window->rows; i++) {
        uint32_t leaf = condenser->known[condenser->window_stack[window->row_stack[i]]].leaf;
        uint32_t symbol = leaf == NO_LEAF ? no_name : condenser->frame_names[leaf].name;
        uint32_t kind = leaf == NO_LEAF ? 2 : condenser->frame_names[leaf].kind;
        out->kind_hits[kind] += window->row_hits[i];
        out->event_kinds[3 * window->sfile_event[window->row_sfile[i]] + kind] +=
            window->row_hits[i];
        out->hits += window->row_hits[i];
        sorting[i] = (struct sort_row){.key = (uint64_t)window->row_sfile[i] << 32 | symbol,
                                       .hits = window->row_hits[i],
                                       .excess = excess_of(condenser, out, i)};
    }
    sorting = opd_sort_rows(sorting, sorting + window->rows, window->rows);
    for (uint32_t i = 0; i < window->rows; i++) {
        uint32_t at = out->groups;
        if (i > 0 && sorting[i].key == sorting[i - 1].key) {
            out->group_hits[at - 1] += sorting[i].hits;
            out->group_excess[at - 1] += sorting[i].excess;
            continue;
        }
        out->group_sfile[at] = (uint32_t)(sorting[i].key >> 32);
        out->group_symbol[at] = (uint32_t)sorting[i].key;
        out->group_hits[at] = sorting[i].hits;
        out->group_excess[at] = sorting[i].excess;
        out->groups++;
    }
}

static void
order_rows(struct opd_condenser *condenser, struct opd_condensed *out)
{
    const struct opd_condense_window *window = &condenser->window;
    struct sort_row *sorting = condenser->sorting;
    for (uint32_t i = 0; i < window->rows; i++)
        sorting[i] = (struct sort_row){
            .key = condenser->known[condenser->window_stack[window->row_stack[i]]].number,
            .hits = window->row_hits[i],
            .excess = excess_of(condenser, out, i),
            .sfile = window->row_sfile[i]};
    sorting = opd_sort_rows(sorting, sorting + window->rows, window->rows);
    uint64_t before = 0;
    for (uint32_t i = 0; i < window->rows; i++) {
        out->row_sfile[i] = sorting[i].sfile;
        out->row_step[i] = sorting[i].key - before;
        out->row_hits[i] = sorting[i].hits;
        out->row_excess[i] = sorting[i].excess;
        before = sorting[i].key;
    }
    out->rows = window->rows;
    out->sfiles = window->sfiles;
}

static int
make_room(struct opd_condenser *condenser)
{
    const struct opd_condense_window *window = &condenser->window;
    struct opd_condensed *out = &condenser->out;
    size_t rows = window->rows, stacks = window->stacks, frames = window->frames, events = 0;
    for (uint32_t i = 0; i < window->sfiles; i++)
        if (window->sfile_event[i] >= events)
            events = window->sfile_event[i] + 1u;
    size_t bytes =
        8 * (rows * 5 + window->sfiles + 3 * events) + 4 * (rows * 3 + stacks * 3 + frames) + 64;
    char *at = malloc(bytes);
    condenser->sorting = malloc((2 * rows + 1) * sizeof *condenser->sorting);
    condenser->out_memory = at;
    if (at == NULL || condenser->sorting == NULL)
        return -ENOMEM;
    memset(out, 0, sizeof *out);
#define PLACE(name, count)                                                                         \
    do {                                                                                           \
        out->name = (void *)at;                                                                    \
        at += sizeof *out->name * (count);                                                         \
    } while (0)
    PLACE(group_hits, rows);
    PLACE(group_excess, rows);
    PLACE(row_step, rows);
    PLACE(row_hits, rows);
    PLACE(row_excess, rows);
    PLACE(sfile_unit, window->sfiles);
    PLACE(event_kinds, 3 * events);
    PLACE(group_sfile, rows);
    PLACE(group_symbol, rows);
    PLACE(row_sfile, rows);
    PLACE(new_flags, stacks);
    PLACE(new_length, stacks);
    PLACE(new_shared, stacks);
    PLACE(rest, frames);
#undef PLACE
    out->events = (uint32_t)events;
    memset(out->event_kinds, 0, sizeof *out->event_kinds * 3 * events);
    return 0;
}

int
opd_condense_end(struct opd_condenser *condenser, const struct opd_condense_name *names,
                 uint32_t first_stack, uint32_t no_name, const struct opd_condensed **out)
{
    if (!condenser->begun)
        return -EINVAL;
    int rc = make_room(condenser);
    if (rc == 0)
        rc = take_names(condenser, names);
    if (rc == 0)
        rc = number_stacks(condenser, first_stack, &condenser->out);
    if (rc == 0)
        rc = find_units(condenser, &condenser->out);
    if (rc != 0) {
        opd_condenser_forget(condenser);
        return rc;
    }
    group_rows(condenser, no_name, &condenser->out);
    order_rows(condenser, &condenser->out);
    condenser->begun = false;
    *out = &condenser->out;
    return 0;
}

int
opd_condense_stacks(const struct opd_condenser *condenser, uint32_t no_name, uint32_t *numbers,
                    uint32_t *symbols)
{
    if (condenser->begun || condenser->window_stack == NULL || condenser->out_memory == NULL)
        return -EINVAL;
    for (uint32_t i = 0; i < condenser->window.stacks; i++) {
        const struct known_stack *stack = &condenser->known[condenser->window_stack[i]];
        numbers[i] = stack->number;
        symbols[i] = stack->leaf == NO_LEAF ? no_name : condenser->frame_names[stack->leaf].name;
    }
    return 0;
}
