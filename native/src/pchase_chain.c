// SPDX-License-Identifier: Apache-2.0
// Chains: pages in random order and the lines in each in random order, all of a
// page before the next; or at a stride; or lines of one set. Linked in place,
// lap after lap in a further word of each line, then walked once.
#include <errno.h>
#include <stdlib.h>

#include "pchase_private.h"

static uint64_t
next_random(uint64_t *state)
{
    // splitmix64
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t
below(uint64_t *state, uint64_t limit)
{
    return (uint64_t)(((unsigned __int128)next_random(state) * limit) >> 64);
}

static void
shuffle(uint32_t *order, uint64_t count, uint64_t *state)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t j = below(state, i + 1);
        order[i] = order[j];
        order[j] = (uint32_t)i;
    }
}

struct link {
    void **first, **last;
    uint64_t nodes, lap;
};

static void
append(struct link *link, void **node)
{
    node += link->lap;
    if (link->last)
        *link->last = node;
    else
        link->first = node;
    link->last = node;
    link->nodes++;
}

// Cells wider than a cache line hold their node in any of their lines, or few
// sets of a cache would hold them all.
static void **
node_at(char *cell, uint64_t line, uint64_t *state)
{
    enum { CACHE_LINE = 64 };
    if (line >= 2 * CACHE_LINE)
        cell += below(state, line / CACHE_LINE) * CACHE_LINE;
    return (void **)cell;
}

static int
link_random(struct link *link, char *base, const struct opd_pchase_options *options,
            uint64_t *state)
{
    uint64_t pages = options->chain / options->page, lines = options->page / options->line;
    uint32_t *page_order = malloc(pages * sizeof(*page_order));
    uint32_t *line_order = malloc(lines * sizeof(*line_order));
    int rc = page_order && line_order ? 0 : -ENOMEM;
    if (rc == 0) {
        shuffle(page_order, pages, state);
        for (uint64_t j = 0; j < lines; j++)
            line_order[j] = (uint32_t)j;
        for (uint64_t i = 0; i < pages; i++) {
            char *page = base + page_order[i] * options->page;
            if (options->access == OPD_PCHASE_RANDOM)
                shuffle(line_order, lines, state);
            for (uint64_t j = 0; j < lines; j++)
                append(link, node_at(page + line_order[j] * options->line, options->line, state));
        }
    }
    free(page_order);
    free(line_order);
    return rc;
}

// Where pages are as large as a way of a cache, lines at one offset of them
// meet in one set. No line of a cell but its first: all would not meet.
static int
link_sets(struct link *link, char *base, const struct opd_pchase_options *options, uint64_t *state)
{
    uint64_t pages = options->chain / options->page, lines = options->page / options->line;
    uint32_t *page_order = malloc(pages * sizeof(*page_order));
    uint32_t *line_order = malloc(lines * sizeof(*line_order));
    int rc = page_order && line_order ? 0 : -ENOMEM;
    if (rc == 0) {
        shuffle(line_order, lines, state);
        for (uint64_t j = 0; j < lines; j++) {
            shuffle(page_order, pages, state);
            for (uint64_t i = 0; i < pages; i++)
                append(link, (void **)(base + page_order[i] * options->page +
                                       line_order[j] * options->line));
        }
    }
    free(page_order);
    free(line_order);
    return rc;
}

static void
link_strided(struct link *link, char *base, const struct opd_pchase_options *options)
{
    // The stride's lanes come one after the other, so every line is visited.
    uint64_t count = options->chain / options->line;
    for (uint64_t lane = 0; lane < options->stride && lane < count; lane++)
        for (uint64_t at = lane; at < count; at += options->stride) {
            uint64_t line = options->access == OPD_PCHASE_REVERSE ? count - 1 - at : at;
            append(link, (void **)(base + line * options->line));
        }
}

int
pchase_chain_build(char *base, const struct opd_pchase_options *options, uint64_t *state,
                   void **head, uint64_t *nodes)
{
    struct link link = {0};
    uint64_t laps = options->laps ? options->laps : 1;
    for (; link.lap < laps; link.lap++) {
        int rc = 0;
        if (options->access == OPD_PCHASE_FORWARD || options->access == OPD_PCHASE_REVERSE)
            link_strided(&link, base, options);
        else if (options->access == OPD_PCHASE_SAME_SET)
            rc = link_sets(&link, base, options, state);
        else
            rc = link_random(&link, base, options, state);
        if (rc)
            return rc;
    }
    *link.last = link.first;
    // Back at the first node after exactly all steps, and not before: one
    // cycle through every node.
    uint64_t steps = 0;
    void **at = link.first;
    do {
        at = *at;
        steps++;
    } while (at != link.first && steps <= link.nodes);
    if (steps != link.nodes || link.nodes != laps * (options->chain / options->line))
        return -EILSEQ;
    if (options->ahead) { // a second pointer walks in front
        void **front = link.first;
        for (uint32_t i = 0; i < options->ahead; i++)
            front = *front;
        for (uint64_t i = 0; i < link.nodes; i++, at = *at, front = *front)
            at[1] = front;
    }
    *head = link.first;
    *nodes = link.nodes;
    return 0;
}
