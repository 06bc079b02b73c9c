// SPDX-License-Identifier: Apache-2.0
// What is kept of an IBS sample beside its rows: latencies, the access to
// memory, the branch's target, the raw record.
#include <string.h>

#include "pipeline.h"

#define KERNEL_HALF (1ull << 63)

// Where the data came from. An access that hit L1 or L2 is told apart by the
// miss bits; what a load met beyond, by its source.
static uint8_t
source_of(const struct opd_ibs_op *op)
{
    static const uint8_t before_zen4[8] = {[2] = OPD_SOURCE_L3,
                                           [3] = OPD_SOURCE_DRAM,
                                           [4] = OPD_SOURCE_FAR_CACHE,
                                           [7] = OPD_SOURCE_IO};
    static const uint8_t zen4[32] = {[1] = OPD_SOURCE_L3,   [2] = OPD_SOURCE_NEAR_CACHE,
                                     [3] = OPD_SOURCE_DRAM, [5] = OPD_SOURCE_FAR_CACHE,
                                     [6] = OPD_SOURCE_SLOW, [7] = OPD_SOURCE_IO,
                                     [8] = OPD_SOURCE_CXL,  [12] = OPD_SOURCE_PEER};
    const bool told = (op->has & OPD_IBS_OP_HAS_SOURCE) != 0;
    if (op->uc_access && !(told && op->data_source == 7))
        return OPD_SOURCE_UNCACHED;
    if (!op->dc_miss)
        return OPD_SOURCE_L1;
    if ((op->has & OPD_IBS_OP_HAS_L2_MISS) && !op->l2_miss)
        return OPD_SOURCE_L2;
    uint8_t source = OPD_SOURCE_UNKNOWN;
    if (told)
        source = op->caps & OPD_IBS_CAPS_ZEN4 ? zen4[op->data_source & 31]
                                              : before_zen4[op->data_source & 7];
    if (source == OPD_SOURCE_DRAM && op->remote_node)
        source = OPD_SOURCE_REMOTE_DRAM;
    if (source == OPD_SOURCE_UNKNOWN && op->no_mab_alloc)
        source = OPD_SOURCE_LFB;
    return source;
}

static uint8_t
tlb_of(const struct opd_ibs_op *op)
{
    if (!op->linear_valid || ((op->caps & OPD_IBS_CAPS_OP_DTLB_PGSIZE) && !op->physical_valid))
        return OPD_TLB_UNKNOWN;
    if (!op->l1_tlb_miss)
        return OPD_TLB_L1;
    return op->l2_tlb_miss ? OPD_TLB_MISS : OPD_TLB_L2;
}

static void
keep_access(struct opd_payload *payload, const struct opd_ibs_op *op,
            const struct opd_record *record, uint32_t sfile, uint32_t stack)
{
    if (!(op->has & OPD_IBS_OP_HAS_DATA3) || !(op->load || op->store))
        return;
    struct opd_access access = {
        .sfile = sfile,
        .stack = stack,
        .tid = record->tid,
        .cpu = record->cpu,
        .source = source_of(op),
        .tlb = (uint8_t)(tlb_of(op) |
                         ((op->has & OPD_IBS_OP_HAS_SOURCE) && op->remote_node ? OPD_ACCESS_REMOTE
                                                                               : 0)),
        .width = op->width,
        .flags = (uint8_t)((op->load ? OPD_ACCESS_LOAD : 0) | (op->store ? OPD_ACCESS_STORE : 0) |
                           (op->locked ? OPD_ACCESS_LOCKED : 0) |
                           (op->misaligned ? OPD_ACCESS_MISALIGNED : 0)),
    };
    if ((op->has & OPD_IBS_OP_HAS_LINEAR) && op->linear_valid) {
        access.address = op->linear;
        access.flags |= OPD_ACCESS_HAS_ADDRESS;
    }
    // To who may not know it the kernel tells 0.
    if ((op->has & OPD_IBS_OP_HAS_PHYSICAL) && op->physical_valid && op->physical != 0) {
        access.physical = op->physical;
        access.flags |= OPD_ACCESS_HAS_PHYSICAL;
    }
    if (op->has & OPD_IBS_OP_HAS_MISS_LATENCY) {
        access.latency = op->dc_miss_latency;
        access.flags |= OPD_ACCESS_HAS_LATENCY;
    }
    if ((op->has & OPD_IBS_OP_HAS_CACHE_STATE) && !op->cache_hit_owned)
        access.flags |= OPD_ACCESS_MODIFIED;
    opd_payload_access(payload, &access);
}

// The target as a stack of its own, which the store then names like all others.
static void
keep_branch(struct opd_pipeline *pipeline, const struct opd_hit *hit, const struct opd_ibs_op *op,
            uint32_t sfile)
{
    struct opd_tables *tables = &pipeline->tables[pipeline->active];
    if (!op->branch_retired || !(op->has & OPD_IBS_OP_HAS_TARGET) || op->target == 0)
        return;
    const bool kernel = op->target >= KERNEL_HALF;
    uint64_t address = op->target;
    const uint32_t image = opd_resolve(pipeline, hit->maps, kernel, &address);
    const uint32_t words[4] = {kernel ? STACK_HAS_KERNEL : STACK_HAS_USER, image, (uint32_t)address,
                               (uint32_t)(address >> 32)};
    _Static_assert(sizeof words == 4 + sizeof(struct opd_frame), "flags and one frame");
    const uint32_t to = opd_intern_put(tables->stacks, words, sizeof words, NULL);
    if (to == OPD_INTERN_FULL) {
        opd_payload_lose_branch(tables->payload);
        return;
    }
    opd_payload_branch(tables->payload, sfile, hit->memo.stack, to,
                       (op->branch_taken ? OPD_BRANCH_TAKEN : 0) |
                           (op->branch_mispredicted ? OPD_BRANCH_MISPREDICTED : 0) |
                           (op->op_return ? OPD_BRANCH_RETURN : 0));
}

static void
keep_latencies(struct opd_payload *payload, const struct opd_ibs_sample *sample, uint32_t stack)
{
    unsigned count;
    const struct opd_ibs_event *events = opd_ibs_events(&count);
    for (unsigned word = 0; word < OPD_IBS_EVENTS_MAX / 64; word++) {
        for (uint64_t left = sample->hits.events.words[word]; left != 0; left &= left - 1) {
            const unsigned bit = word * 64 + (unsigned)__builtin_ctzll(left);
            if (events[bit].value != OPD_IBS_VALUE_NONE && sample->sfiles[bit] != OPD_INTERN_FULL)
                opd_payload_latency(payload, sample->sfiles[bit], stack,
                                    sample->hits.values[events[bit].value]);
        }
    }
}

void
opd_ibs_keep(struct opd_pipeline *pipeline, const struct opd_hit *hit, uint32_t sfile,
             uint64_t period)
{
    struct opd_payload *payload = pipeline->tables[pipeline->active].payload;
    const struct opd_ibs_sample *sample = hit->ibs;
    const struct opd_record *record = &sample->record;
    if (payload == NULL || sfile == OPD_INTERN_FULL || !sample->decoded)
        return;
    const unsigned class = sample->source->flavour;
    opd_payload_record(payload, class, sfile, hit->memo.stack, period, record->u.sample.raw,
                       record->u.sample.raw_size);
    if (sample->flaws & OPD_IBS_NO_SAMPLE)
        return;
    keep_latencies(payload, sample, hit->memo.stack);
    if (sample->source->flavour != OPD_IBS_OP)
        return;
    keep_access(payload, &sample->u.op, record, sfile, hit->memo.stack);
    if (pipeline->options.payload.branches > 0)
        keep_branch(pipeline, hit, &sample->u.op, sfile);
}
