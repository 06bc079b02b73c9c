// SPDX-License-Identifier: Apache-2.0
// The facts of a decoded record, and the events of the table that they make.
#include <errno.h>
#include <string.h>

#include "ibs_facts.h"

static inline uint64_t
when(bool holds, uint64_t fact)
{
    return holds ? fact : 0;
}

static uint64_t
fetch_facts(const struct opd_ibs_machine *machine, const struct opd_ibs_fetch *fetch)
{
    uint64_t facts = F_ANY;
    if (fetch->has & OPD_IBS_FETCH_HAS_EXTENDED)
        facts |= F_EXTENDED;
    if (!(fetch->has & OPD_IBS_FETCH_HAS_STATUS))
        return facts;
    const bool missed = (fetch->has & OPD_IBS_FETCH_HAS_IC_MISS) && fetch->ic_miss;
    facts |= F_STATUS | when(fetch->complete, F_COMPLETE) | when(missed, F_IC_MISS) |
             when(fetch->has & OPD_IBS_FETCH_HAS_IC_MISS, F_IC_TOLD) |
             when(fetch->physical_valid, F_PHYSICAL) | when(fetch->l1_tlb_miss, F_L1_TLB_MISS) |
             when(fetch->l2_tlb_miss, F_L2_TLB_MISS);
    if (!fetch->complete && !missed && !fetch->physical_valid && !fetch->l1_tlb_miss &&
        !fetch->l2_tlb_miss)
        facts |= F_KILLED;
    static const uint64_t pages[] = {0, F_4K, F_16K, F_2M, F_1G};
    facts |= pages[fetch->page];
    if (fetch->has & OPD_IBS_FETCH_HAS_L2_MISS)
        facts |= when(fetch->l2_miss, F_L2_MISS);
    if (fetch->has & OPD_IBS_FETCH_HAS_ZEN4)
        facts |= when(fetch->l3_miss, F_L3_MISS) | when(fetch->op_cache_miss, F_OC_MISS);
    return facts;
}

static uint64_t
branch_facts(const struct opd_ibs_op *op)
{
    uint64_t facts = O_DATA | when(op->resync, O_RESYNC) | when(op->branch_fused, O_FUSED) |
                     when(op->microcode, O_MICROCODE);
    if (op->branch_retired)
        facts |= O_BRANCH | when(op->op_return, O_RETURN) | when(op->branch_taken, O_TAKEN) |
                 when(op->branch_mispredicted, O_MISPREDICTED);
    return facts;
}

static uint64_t
access_facts(const struct opd_ibs_op *op)
{
    static const uint64_t pages[] = {0, O_4K, 0, O_2M, O_1G};
    uint64_t facts =
        when(op->load, O_LOAD) | when(op->store, O_STORE) | when(op->load || op->store, O_ACCESS) |
        when(op->linear_valid, O_LINEAR) | when(op->l1_tlb_miss, O_L1_TLB_MISS) |
        when(op->l2_tlb_miss, O_L2_TLB_MISS) | when(op->dc_miss, O_DC_MISS) |
        when(op->misaligned, O_MISALIGNED) | when(op->load_bank_conflict, O_LOAD_CONFLICT) |
        when(op->store_bank_conflict, O_STORE_CONFLICT) | when(op->store_forward, O_FORWARD) |
        when(op->store_forward_cancelled, O_CANCELLED) | when(op->wc_access, O_WC) |
        when(op->uc_access, O_UC) | when(op->locked, O_LOCKED) |
        when(op->software_prefetch, O_PREFETCH) |
        when(op->has & OPD_IBS_OP_HAS_REFILL_LATENCY, O_REFILL) | pages[op->page];
    if (op->has & OPD_IBS_OP_HAS_L2_MISS)
        facts |= O_L2_TOLD | when(op->l2_miss, O_L2_MISS);
    return facts;
}

static uint64_t
source_facts(const struct opd_ibs_op *op)
{
    static const uint64_t sources[32] = {
        [1] = O_SOURCE_1, [2] = O_SOURCE_2, [3] = O_SOURCE_3, [4] = O_SOURCE_4,   [5] = O_SOURCE_5,
        [6] = O_SOURCE_6, [7] = O_SOURCE_7, [8] = O_SOURCE_8, [12] = O_SOURCE_12,
    };
    const uint32_t beyond = 1u << 2 | 1u << 3 | 1u << 5 | 1u << 6 | 1u << 8 | 1u << 12;
    const uint32_t caches = 1u << 1 | 1u << 2 | 1u << 5;
    const uint8_t source = op->data_source & 31;
    const bool zen4 = (op->caps & OPD_IBS_CAPS_ZEN4) != 0;
    return O_SOURCE | sources[source] | when(op->remote_node, O_REMOTE) |
           when(op->remote_socket, O_REMOTE_SOCKET) | when(op->cache_hit_owned, O_OWNED) |
           when(zen4 && (beyond >> source & 1), O_BEYOND_L3) |
           when(zen4 && (caches >> source & 1), O_SHARED_CACHE);
}

static uint64_t
op_facts(const struct opd_ibs_machine *machine, const struct opd_ibs_op *op)
{
    uint64_t facts = O_ANY | when(op->caps & OPD_IBS_CAPS_ZEN4, O_ZEN4) |
                     when(opd_ibs_tells_cache_state(machine), O_STATE_TOLD) |
                     when(op->streaming_store, O_STREAMING) | when(op->load_resync, O_RESYNC_LOAD);
    if (op->has & OPD_IBS_OP_HAS_DATA)
        facts |= branch_facts(op);
    if (op->has & OPD_IBS_OP_HAS_DATA3) {
        facts |= access_facts(op);
        // Erratum 717: of no meaning without a miss.
        if (op->no_mab_alloc && (machine->family != 0x15 || op->dc_miss))
            facts |= O_NO_MAB;
    }
    if (op->has & OPD_IBS_OP_HAS_SOURCE)
        facts |= source_facts(op);
    return facts;
}

static bool
is_there(enum opd_ibs_where where, const struct opd_ibs_machine *machine, uint32_t caps)
{
    switch (where) {
    case OPD_IBS_NOT_1238:
        return !opd_ibs_is_early_zen3(machine);
    case OPD_IBS_ONLY_1347:
        return opd_ibs_is_early_zen3(machine);
    case OPD_IBS_CACHE_STATE:
        return opd_ibs_tells_cache_state(machine);
    case OPD_IBS_BEFORE_ZEN4:
        return (caps & OPD_IBS_CAPS_ZEN4) == 0;
    case OPD_IBS_NOT_ZEN6:
        return !opd_ibs_is_zen6(machine);
    case OPD_IBS_ANYWHERE:
    default:
        return true;
    }
}

bool
opd_ibs_event_is_valid(const struct opd_ibs_event *event, const struct opd_ibs_machine *machine,
                       uint32_t caps)
{
    if ((event->caps & ~caps) != 0 || !is_there((enum opd_ibs_where)event->where, machine, caps))
        return false;
    if (machine->family == 0) { // what can be told without
        const bool zen = opd_ibs_is_zen(machine, caps);
        return (event->family_min < 0x17 || zen) && (event->family_max == 0 || !zen);
    }
    return machine->family >= event->family_min &&
           (event->family_max == 0 || machine->family <= event->family_max);
}

static void
set(struct opd_ibs_mask *mask, unsigned index)
{
    mask->words[index / 64] |= (uint64_t)1 << (index % 64);
}

void
opd_ibs_mask_of(enum opd_ibs_flavour flavour, const struct opd_ibs_machine *machine, uint32_t caps,
                struct opd_ibs_mask *mask)
{
    unsigned count;
    const struct opd_ibs_event *events = opd_ibs_events(&count);
    *mask = (struct opd_ibs_mask){.words = {0}};
    for (unsigned i = 0; i < count; i++)
        if (events[i].flavour == flavour &&
            (machine == NULL || opd_ibs_event_is_valid(&events[i], machine, caps)))
            set(mask, i);
}

// Whether the facts are those of the event; families and caps are asked last.
static bool
is_satisfied(const struct opd_ibs_event *event, const struct opd_ibs_machine *machine,
             uint32_t caps, uint64_t facts, const struct opd_ibs_hits *hits)
{
    return (facts & event->must) == event->must && (facts & event->not_) == 0 &&
           !(event->nonzero && hits->values[event->value] == 0) &&
           opd_ibs_event_is_valid(event, machine, caps);
}

static void
match(const struct opd_ibs_mask *among, const struct opd_ibs_machine *machine, uint32_t caps,
      uint64_t facts, struct opd_ibs_hits *hits)
{
    unsigned count;
    const struct opd_ibs_event *events = opd_ibs_events(&count);
    for (unsigned word = 0; word < OPD_IBS_EVENTS_MAX / 64; word++)
        for (uint64_t left = among->words[word]; left != 0; left &= left - 1) {
            const unsigned bit = (unsigned)__builtin_ctzll(left);
            if (is_satisfied(&events[word * 64 + bit], machine, caps, facts, hits))
                hits->events.words[word] |= (uint64_t)1 << bit;
        }
}

void
opd_ibs_fetch_hits(const struct opd_ibs_machine *machine, const struct opd_ibs_fetch *fetch,
                   const struct opd_ibs_mask *among, struct opd_ibs_hits *hits)
{
    *hits = (struct opd_ibs_hits){.values = {0}};
    if (fetch->flaws & OPD_IBS_NO_SAMPLE)
        return;
    hits->values[OPD_IBS_VALUE_FETCH_LATENCY] = fetch->latency;
    hits->values[OPD_IBS_VALUE_ITLB_REFILL_LATENCY] = fetch->itlb_refill_latency;
    match(among, machine, fetch->caps, fetch_facts(machine, fetch), hits);
}

void
opd_ibs_op_hits(const struct opd_ibs_machine *machine, const struct opd_ibs_op *op,
                const struct opd_ibs_mask *among, struct opd_ibs_hits *hits)
{
    *hits = (struct opd_ibs_hits){.values = {0}};
    if (op->flaws & OPD_IBS_NO_SAMPLE)
        return;
    hits->values[OPD_IBS_VALUE_TAG_TO_RETIRE] = op->tag_to_retire;
    hits->values[OPD_IBS_VALUE_COMPLETION_TO_RETIRE] = op->completion_to_retire;
    hits->values[OPD_IBS_VALUE_DC_MISS_LATENCY] = op->dc_miss_latency;
    hits->values[OPD_IBS_VALUE_TLB_REFILL_LATENCY] = op->tlb_refill_latency;
    hits->values[OPD_IBS_VALUE_OPEN_MEM_REQS] = op->open_mem_reqs;
    match(among, machine, op->caps, op_facts(machine, op), hits);
}

int
opd_ibs_event_by_name(const char *name)
{
    unsigned count;
    const struct opd_ibs_event *events = opd_ibs_events(&count);
    for (unsigned i = 0; i < count; i++)
        if (strcmp(events[i].name, name) == 0)
            return (int)i;
    return -ENOENT;
}

int
opd_ibs_event_by_number(uint32_t number)
{
    unsigned count;
    const struct opd_ibs_event *events = opd_ibs_events(&count);
    for (unsigned i = 0; i < count; i++)
        if (events[i].number == number)
            return (int)i;
    return -ENOENT;
}
