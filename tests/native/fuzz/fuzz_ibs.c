// SPDX-License-Identifier: Apache-2.0
// The first 4 bytes choose flavour and machine, the rest is a payload in a
// buffer of exactly its length.
#include <stdlib.h>
#include <string.h>

#include "opd/ibs.h"

#define CHOICE 4u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_hits(const struct opd_ibs_machine *machine, uint32_t caps, uint32_t flaws,
           enum opd_ibs_flavour flavour, const struct opd_ibs_hits *hits)
{
    unsigned count;
    const struct opd_ibs_event *events = opd_ibs_events(&count);
    for (unsigned i = 0; i < OPD_IBS_EVENTS_MAX; i++) {
        if (!(hits->events.words[i / 64] >> (i % 64) & 1))
            continue;
        if (i >= count || events[i].flavour != flavour || (flaws & OPD_IBS_NO_SAMPLE) ||
            !opd_ibs_event_is_valid(&events[i], machine, caps))
            abort();
        if (events[i].nonzero && hits->values[events[i].value] == 0)
            abort();
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t kernels[] = {0, 5u << 16 | 4, 5u << 16 | 10, 6u << 16 | 2, 6u << 16 | 8};
    if (size < CHOICE)
        return 0;
    struct opd_ibs_machine machine = {
        .family = data[1],
        .model = data[2],
        .kernel = kernels[data[3] % (sizeof kernels / sizeof *kernels)],
    };
    const size_t length = size - CHOICE;
    uint8_t *raw = malloc(length > 0 ? length : 1);
    memcpy(raw, data + CHOICE, length);
    struct opd_ibs_hits hits;
    struct opd_ibs_mask all;
    opd_ibs_mask_of(data[0] & 1 ? OPD_IBS_OP : OPD_IBS_FETCH, NULL, 0, &all);
    if (data[0] & 1) {
        struct opd_ibs_op op;
        if (opd_ibs_decode_op(&machine, raw, length, &op) != op.flaws)
            abort();
        opd_ibs_op_hits(&machine, &op, &all, &hits);
        check_hits(&machine, op.caps, op.flaws, OPD_IBS_OP, &hits);
        uint64_t data_src = opd_ibs_data_src(&machine, &op);
        if (!opd_ibs_data_src_agrees(&machine, &op, data_src))
            abort();
        if (opd_ibs_weight(&op) > 0xffff)
            abort();
    } else {
        struct opd_ibs_fetch fetch;
        if (opd_ibs_decode_fetch(&machine, raw, length, &fetch) != fetch.flaws)
            abort();
        opd_ibs_fetch_hits(&machine, &fetch, &all, &hits);
        check_hits(&machine, fetch.caps, fetch.flaws, OPD_IBS_FETCH, &hits);
    }
    free(raw);

    char text[64] = {0};
    memcpy(text, data, size < sizeof text ? size : sizeof text - 1);
    opd_ibs_kernel(text);
    opd_ibs_cpuid(text, &machine);
    return 0;
}
