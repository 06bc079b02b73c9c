// SPDX-License-Identifier: Apache-2.0
// Chains are single cycles through every line; the made code goes the same way
// as the compiler's; streams count their bytes; wrong options are refused.
#include <errno.h>
#include <string.h>

#include "../../native/src/pchase_private.h"
#include "t.h"

static const struct opd_pchase_options plain = {.chains = 1,
                                                .threads = 1,
                                                .stride = 1,
                                                .line = 64,
                                                .page = 4096,
                                                .chain = 1 << 16,
                                                .load_bytes = 1 << 16,
                                                .load_node = -1,
                                                .iterations = 3};

enum { CHAIN = 92 << 10 }; // 23 pages: a count that trapped affine orders

static _Alignas(4096) char memory[OPD_PCHASE_CHAINS_MAX][CHAIN];
static unsigned char seen[CHAIN / 64];

static void
cycles(void)
{
    struct opd_pchase_options options = plain;
    options.chain = CHAIN;
    static const uint64_t lines[] = {64, 128, 256};
    for (uint32_t access = 0; access <= OPD_PCHASE_SAME_SET; access++)
        for (int k = 0; k < 3; k++)
            for (options.stride = 1; options.stride < 20; options.stride += 6) {
                options.access = access;
                options.line = lines[k];
                void *head = NULL;
                uint64_t nodes = 0, state = 7;
                memset(memory[0], 0, CHAIN);
                CHECK(pchase_chain_build(memory[0], &options, &state, &head, &nodes) == 0);
                CHECK(nodes == CHAIN / options.line);
                memset(seen, 0, sizeof(seen));
                char *at = head;
                for (uint64_t i = 0; i < nodes; i++) {
                    uint64_t cell = (uint64_t)(at - memory[0]) / options.line;
                    CHECK(cell < nodes && !seen[cell]);
                    seen[cell] = 1;
                    at = *(char **)at;
                }
                CHECK(at == head);
            }
}

// Every lap goes through all lines once, in an order of its own.
static void
laps_differ(void)
{
    struct opd_pchase_options options = plain;
    options.chain = CHAIN;
    options.laps = 5;
    void *head = NULL;
    uint64_t nodes = 0, state = 11, alike = 0;
    static uint64_t first[CHAIN / 64];
    CHECK(pchase_chain_build(memory[0], &options, &state, &head, &nodes) == 0);
    CHECK(nodes == 5 * CHAIN / 64);
    char *at = head;
    for (uint64_t lap = 0; lap < options.laps; lap++) {
        memset(seen, 0, sizeof(seen));
        for (uint64_t i = 0; i < CHAIN / 64; i++, at = *(char **)at) {
            uint64_t cell = (uint64_t)(at - memory[0]) / 64;
            CHECK(!seen[cell] && (uint64_t)(at - memory[0]) % 64 == 8 * lap);
            seen[cell] = 1;
            alike += lap > 0 && first[i] == cell;
            first[i] = lap == 0 ? cell : first[i];
        }
    }
    CHECK(at == head && alike < CHAIN / 64 / 8);
}

// Lines at one offset of all pages, one after the other.
static void
sets_together(void)
{
    struct opd_pchase_options options = plain;
    options.chain = CHAIN;
    options.access = OPD_PCHASE_SAME_SET;
    void *head = NULL;
    uint64_t nodes = 0, state = 2;
    CHECK(pchase_chain_build(memory[0], &options, &state, &head, &nodes) == 0);
    char *at = head;
    for (uint64_t i = 0; i < nodes; i++) {
        char *next = *(char **)at;
        CHECK(i % 23 == 22 || (at - memory[0]) % 4096 == (next - memory[0]) % 4096);
        at = next;
    }
    options.line = options.page = 4096; // a cell's first line, all in one set
    CHECK(pchase_chain_build(memory[0], &options, &state, &head, &nodes) == 0 && nodes == 23);
    at = head;
    for (uint64_t i = 0; i < nodes; i++, at = *(char **)at)
        CHECK((at - memory[0]) % 4096 == 0);
}

static void
lines_of_a_page_together(void)
{
    struct opd_pchase_options options = plain;
    options.chain = CHAIN;
    options.page = 4096;
    void *head = NULL;
    uint64_t nodes = 0, state = 1, in_order = 0;
    CHECK(pchase_chain_build(memory[0], &options, &state, &head, &nodes) == 0);
    char *at = head;
    for (uint64_t i = 0; i < nodes; i++) {
        char *next = *(char **)at;
        CHECK(i % 64 == 63 || (at - memory[0]) / 4096 == (next - memory[0]) / 4096);
        in_order += next == at + 64;
        at = next;
    }
    CHECK(in_order < nodes / 8);
}

// All the loop does is to follow: its ends are those of a plain walk.
static void
code_follows(void)
{
    struct opd_pchase_options options = plain;
    options.chain = CHAIN;
    uint64_t state = 3, nodes = 0;
    void *first[OPD_PCHASE_CHAINS_MAX];
    options.ahead = 9;
    for (int i = 0; i < OPD_PCHASE_CHAINS_MAX; i++)
        CHECK(pchase_chain_build(memory[i], &options, &state, &first[i], &nodes) == 0);
    for (options.chains = 1; options.chains <= OPD_PCHASE_CHAINS_MAX; options.chains++)
        for (uint32_t kind = 0; kind <= 2 * OPD_PCHASE_NTA; kind++)
            for (options.work = 0; options.work < 5000; options.work = options.work * 70 + 1) {
                struct pchase_code code;
                options.hint = kind > OPD_PCHASE_NTA ? kind - OPD_PCHASE_NTA : kind;
                options.ahead = kind > OPD_PCHASE_NTA ? 9 : 0;
                int rc = pchase_code_make(&code, &options);
                if (rc == -EOPNOTSUPP)
                    continue;
                CHECK(rc == 0 && code.unroll > 0);
                void *heads[OPD_PCHASE_CHAINS_MAX];
                memcpy(heads, first, sizeof(heads));
                code.loop(heads, 7);
                for (uint32_t i = 0; i < options.chains; i++) {
                    void **at = first[i];
                    for (uint32_t step = 0; step < 7 * code.unroll; step++)
                        at = *at;
                    CHECK(heads[i] == at);
                }
                pchase_code_free(&code);
            }
    options.plain_c = 1;
    options.hint = options.work = options.ahead = 0;
    for (options.chains = 1; options.chains <= 16; options.chains++) {
        struct pchase_code code;
        int rc = pchase_code_make(&code, &options);
        if (rc == -EOPNOTSUPP)
            continue;
        void *heads[OPD_PCHASE_CHAINS_MAX];
        memcpy(heads, first, sizeof(heads));
        code.loop(heads, 5);
        for (uint32_t i = 0; i < options.chains; i++) {
            void **at = first[i];
            for (uint32_t step = 0; step < 5 * code.unroll; step++)
                at = *at;
            CHECK(heads[i] == at);
        }
    }
    options.chains = 3;
    struct pchase_code code;
    CHECK(pchase_code_make(&code, &options) == -EOPNOTSUPP);
}

// The second word of each node is the node so many steps on, also past the end.
static void
looks_ahead(void)
{
    struct opd_pchase_options options = plain;
    options.chain = CHAIN;
    uint64_t state = 8, nodes = 0;
    void *head = NULL;
    for (options.ahead = 1; options.ahead < 4096; options.ahead = options.ahead * 5 + 1) {
        CHECK(pchase_chain_build(memory[0], &options, &state, &head, &nodes) == 0);
        void **at = head, **front = head;
        for (uint32_t i = 0; i < options.ahead; i++)
            front = *front;
        for (uint64_t i = 0; i < nodes; i++, at = *at, front = *front)
            CHECK(at[1] == front);
    }
}

static void
runs(void)
{
    struct opd_pchase_options options = plain;
    struct opd_pchase *pchase = NULL;
    struct opd_pchase_row rows[4];
    struct opd_pchase_facts facts;
    char reason[OPD_PCHASE_REASON] = "";
    options.threads = 2;
    options.chains = 3;
    options.loaders = 1;
    for (options.load = 0; options.load < OPD_LOAD_KINDS; options.load++) {
        int rc = opd_pchase_create(&options, &pchase, reason);
        if (rc == -EOPNOTSUPP)
            continue;
        CHECK(rc == 0);
        opd_pchase_facts(pchase, &facts);
        CHECK(facts.nodes == 1024 && facts.bytes >= 2 * 3 << 16);
        CHECK(opd_pchase_run(pchase, rows, reason) == 0);
        for (int i = 0; i < 2; i++) {
            CHECK(rows[i].steps >= 3 * 1024 && rows[i].steps < 3 * 1024 + facts.unroll);
            CHECK(rows[i].end_ns > rows[i].start_ns && rows[i].bytes == 0);
        }
        CHECK(rows[2].bytes % 4096 == 0);
        opd_pchase_destroy(pchase);
    }
    for (options.vector = 0; options.vector < OPD_VECTOR_KINDS; options.vector++)
        for (options.load = 0; options.load < OPD_LOAD_KINDS; options.load++) {
            int rc = opd_pchase_create(&options, &pchase, reason);
            CHECK(rc == 0 || rc == -EOPNOTSUPP);
            if (rc == 0) {
                CHECK(opd_pchase_run(pchase, rows, reason) == 0 && rows[2].bytes % 4096 == 0);
                opd_pchase_destroy(pchase);
            }
        }
    options = plain;
    options.threads = 0;
    options.loaders = 1;
    options.duration_ns = 2000000;
    int rc = opd_pchase_create(&options, &pchase, reason);
    if (rc != -EOPNOTSUPP) {
        CHECK(rc == 0 && opd_pchase_run(pchase, rows, reason) == 0);
        CHECK(rows[0].bytes > 0 && rows[0].end_ns - rows[0].start_ns >= 2000000);
        opd_pchase_destroy(pchase);
    }
    options = plain;
    options.iterations = 0;
    options.duration_ns = 2000000;
    CHECK(opd_pchase_create(&options, &pchase, reason) == 0);
    CHECK(opd_pchase_run(pchase, rows, reason) == 0);
    CHECK(rows[0].steps > 0 && rows[0].end_ns - rows[0].start_ns >= 2000000);
    opd_pchase_destroy(pchase);
}

static void
refusals(void)
{
    struct opd_pchase *pchase = NULL;
    char reason[OPD_PCHASE_REASON] = "";
#define REFUSED(change, word)                                                                      \
    do {                                                                                           \
        struct opd_pchase_options options = plain;                                                 \
        change;                                                                                    \
        CHECK(opd_pchase_create(&options, &pchase, reason) < 0 && strstr(reason, word));           \
    } while (0)
    int32_t nowhere = 100000;
    REFUSED(options.threads = 0, "no thread");
    REFUSED(options.chains = OPD_PCHASE_CHAINS_MAX + 1, "chains");
    REFUSED(options.chains = 0, "chains");
    REFUSED(options.ahead = 4, "a hint");
    REFUSED((options.ahead = 4, options.hint = OPD_PCHASE_T0, options.laps = 2), "one lap");
    REFUSED(options.vector = OPD_VECTOR_KINDS, "enumeration");
    REFUSED(options.laps = 9, "laps");
    REFUSED(options.line = 4, "line");
    REFUSED(options.line = 96, "line");
    REFUSED(options.chain = 5000, "chain");
    REFUSED(options.chain = 1ull << 50, "chain");
    REFUSED(options.iterations = 0, "neither");
    REFUSED(options.iterations = UINT64_MAX, "too many");
    REFUSED((options.access = OPD_PCHASE_FORWARD, options.stride = 0), "stride");
    REFUSED(options.access = 9, "enumeration");
    REFUSED(options.cpus = &nowhere, "CPU 100000");
    REFUSED((nowhere = 900, options.chain_nodes = &nowhere), "node 900");
    REFUSED((nowhere = 5000, options.chain_nodes = &nowhere), "node 5000");
    REFUSED((options.chains = 20, options.plain_c = 1), "20 chains");
}

static void
passes(void)
{
    double ns = 0;
    CHECK(opd_pchase_pass(0, 0, 10, &ns) == -EINVAL);
    CHECK(opd_pchase_pass(0, 1, 0, &ns) == -EINVAL);
    CHECK(opd_pchase_pass(0, 100000, 10, &ns) < 0);
    int rc = opd_pchase_pass(0, 1, 1000, &ns);
    CHECK(rc == 0 ? ns > 0 : rc == -EINVAL);
}

int
main(void)
{
    RUN(cycles);
    RUN(laps_differ);
    RUN(sets_together);
    RUN(lines_of_a_page_together);
    RUN(code_follows);
    RUN(looks_ahead);
    RUN(runs);
    RUN(refusals);
    RUN(passes);
    return 0;
}
