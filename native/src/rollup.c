// SPDX-License-Identifier: Apache-2.0
#include "opd/rollup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "opd/intern.h"

struct key {
    uint32_t event, comm, image, mode, cgroup, symbol;
};
_Static_assert(sizeof(struct key) == 24, "interned as bytes: no padding");

struct sums {
    uint64_t samples, weight;
    double squares;
    double current; // weight in the window that is being added
    uint64_t turn;  // which window that is
};

struct opd_rollup {
    struct opd_intern *keys;
    struct sums *sums;
    uint32_t room;
    uint64_t turn;
    struct opd_rollup_columns out;
    void *out_memory;
    uint32_t *order;
};

struct opd_rollup *
opd_rollup_create(void)
{
    struct opd_rollup *rollup = calloc(1, sizeof *rollup);
    if (rollup == NULL)
        return NULL;
    // Bounded by what windows bring: each of their keys was bounded before.
    rollup->keys = opd_intern_create(UINT32_MAX - 1, SIZE_MAX / 4);
    if (rollup->keys == NULL) {
        free(rollup);
        errno = ENOMEM;
        return NULL;
    }
    return rollup;
}

void
opd_rollup_destroy(struct opd_rollup *rollup)
{
    if (rollup == NULL)
        return;
    opd_intern_destroy(rollup->keys);
    free(rollup->sums);
    free(rollup->out_memory);
    free(rollup->order);
    free(rollup);
}

uint32_t
opd_rollup_count(const struct opd_rollup *rollup)
{
    return opd_intern_count(rollup->keys);
}

static struct sums *
find(struct opd_rollup *rollup, const struct key *key)
{
    int fresh;
    uint32_t index = opd_intern_put(rollup->keys, key, sizeof *key, &fresh);
    if (index == OPD_INTERN_FULL)
        return NULL;
    if (index >= rollup->room) {
        uint32_t room = rollup->room < 1024 ? 1024 : rollup->room * 2;
        struct sums *grown = realloc(rollup->sums, room * sizeof *grown);
        if (grown == NULL)
            return NULL;
        rollup->sums = grown;
        rollup->room = room;
    }
    if (fresh)
        memset(&rollup->sums[index], 0, sizeof rollup->sums[index]);
    return &rollup->sums[index];
}

// The square of a window's weight can only be taken once it is whole.
static void
settle(struct sums *sums)
{
    sums->squares += sums->current * sums->current;
    sums->current = 0;
}

int
opd_rollup_add(struct opd_rollup *rollup, const struct opd_rollup_groups *groups)
{
    rollup->turn++;
    for (uint32_t i = 0; i < groups->groups; i++) {
        uint32_t sfile = groups->sfile[i];
        if (sfile >= groups->sfiles)
            return -EBADMSG;
        struct key key = {.event = groups->event[sfile],
                          .comm = groups->comm[sfile],
                          .image = groups->image[sfile],
                          .mode = groups->mode[sfile],
                          .cgroup = groups->cgroup[sfile],
                          .symbol = groups->symbol[i]};
        struct sums *sums = find(rollup, &key);
        if (sums == NULL)
            return -ENOMEM;
        uint64_t weight = groups->hits[i] * groups->unit[sfile] + groups->excess[i];
        if (sums->turn != rollup->turn) {
            settle(sums);
            sums->turn = rollup->turn;
        }
        sums->samples += groups->hits[i];
        sums->weight += weight;
        if (groups->squares != NULL && groups->squares[i] != 0)
            sums->squares += groups->squares[i];
        else
            sums->current += (double)weight;
    }
    return 0;
}

static int
compare(const void *one, const void *other, void *context)
{
    uint32_t length;
    const struct opd_rollup *rollup = context;
    const struct key *a = opd_intern_get(rollup->keys, *(const uint32_t *)one, &length);
    const struct key *b = opd_intern_get(rollup->keys, *(const uint32_t *)other, &length);
    const uint32_t x[] = {a->event, a->comm, a->image, a->mode, a->cgroup, a->symbol};
    const uint32_t y[] = {b->event, b->comm, b->image, b->mode, b->cgroup, b->symbol};
    for (int i = 0; i < 6; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

static int
make_room(struct opd_rollup *rollup, size_t count)
{
    struct opd_rollup_columns *out = &rollup->out;
    free(rollup->out_memory);
    free(rollup->order);
    char *at = malloc(count * (3 * 8 + 8 * 4) + 64);
    rollup->out_memory = at;
    rollup->order = malloc((count + 1) * sizeof *rollup->order);
    if (at == NULL || rollup->order == NULL)
        return -ENOMEM;
    memset(out, 0, sizeof *out);
    out->unit = (uint64_t *)at;
    out->hits = out->unit + count;
    out->excess = out->hits + count;
    out->event = (uint32_t *)(out->excess + count);
    out->comm = out->event + count;
    out->image = out->comm + count;
    out->mode = out->image + count;
    out->cgroup = out->mode + count;
    out->sfile = out->cgroup + count;
    out->symbol = out->sfile + count;
    out->squares = (float *)(out->symbol + count);
    return 0;
}

// The least weight of one hit, by event: the units of the block. `excess`
// still holds whole weights, and sample files are sorted by event.
static void
find_units(struct opd_rollup *rollup, uint32_t count)
{
    struct opd_rollup_columns *out = &rollup->out;
    uint32_t group = 0;
    for (uint32_t from = 0, to; from < out->sfiles; from = to) {
        uint64_t least = UINT64_MAX;
        for (to = from; to < out->sfiles && out->event[to] == out->event[from];)
            to++;
        for (; group < count && out->sfile[group] < to; group++) {
            uint64_t hits = out->hits[group];
            uint64_t unit = hits > 0 ? out->excess[group] / hits : 0;
            least = unit < least ? unit : least;
        }
        for (uint32_t i = from; i < to; i++)
            out->unit[i] = least;
    }
}

int
opd_rollup_take(struct opd_rollup *rollup, const struct opd_rollup_columns **columns)
{
    uint32_t count = opd_intern_count(rollup->keys), length;
    if (make_room(rollup, count) != 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++)
        rollup->order[i] = i;
    qsort_r(rollup->order, count, sizeof *rollup->order, compare, rollup);

    struct opd_rollup_columns *out = &rollup->out;
    const struct key *before = NULL;
    for (uint32_t i = 0; i < count; i++) {
        const struct key *key = opd_intern_get(rollup->keys, rollup->order[i], &length);
        struct sums *sums = &rollup->sums[rollup->order[i]];
        if (before == NULL || memcmp(before, key, offsetof(struct key, symbol)) != 0) {
            out->event[out->sfiles] = key->event;
            out->comm[out->sfiles] = key->comm;
            out->image[out->sfiles] = key->image;
            out->mode[out->sfiles] = key->mode;
            out->cgroup[out->sfiles] = key->cgroup;
            out->sfiles++;
        }
        before = key;
        settle(sums);
        double whole = (double)sums->weight;
        out->sfile[i] = out->sfiles - 1;
        out->symbol[i] = key->symbol;
        out->hits[i] = sums->samples;
        out->excess[i] = sums->weight;
        out->squares[i] = sums->squares == whole * whole ? 0 : (float)sums->squares;
    }
    find_units(rollup, count);
    for (uint32_t i = 0; i < count; i++)
        out->excess[i] -= out->hits[i] * out->unit[out->sfile[i]];
    out->groups = count;
    opd_intern_reset(rollup->keys);
    free(rollup->sums);
    rollup->sums = NULL;
    rollup->room = 0;
    *columns = out;
    return 0;
}
