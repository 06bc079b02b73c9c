// SPDX-License-Identifier: Apache-2.0
// PERF_SAMPLE_DATA_SRC out of an op's registers, as the kernel makes it since
// 6.4, and the periods of the two PMUs as it checks them.
#include "ibs_facts.h"

// union perf_mem_data_src, by field: values and where they stand.
#define OP(x) ((uint64_t)(x))
#define LVL(x) ((uint64_t)(x) << 5)
#define SNOOP(x) ((uint64_t)(x) << 19)
#define LOCK(x) ((uint64_t)(x) << 24)
#define TLB(x) ((uint64_t)(x) << 26)
#define NUM(x) ((uint64_t)(x) << 33)
#define HOPS(x) ((uint64_t)(x) << 43)

#define OP_NA OP(1)
#define OP_LOAD OP(2)
#define OP_STORE OP(4)
#define LVL_NA LVL(1)
#define LVL_HIT LVL(2)
#define LVL_L1 LVL(0x8)
#define LVL_LFB LVL(0x10)
#define LVL_L2 LVL(0x20)
#define LVL_L3 LVL(0x40)
#define LVL_LOCAL_RAM LVL(0x80)
#define LVL_REMOTE_RAM1 LVL(0x100)
#define LVL_REMOTE_CACHE1 LVL(0x400)
#define LVL_REMOTE_CACHE2 LVL(0x800)
#define LVL_IO LVL(0x1000)
#define LVL_UNCACHED LVL(0x2000)
#define NUM_L1 NUM(1)
#define NUM_L2 NUM(2)
#define NUM_L3 NUM(3)
#define NUM_UNCACHED NUM(8)
#define NUM_CXL NUM(9)
#define NUM_IO NUM(0xa)
#define NUM_ANY_CACHE NUM(0xb)
#define NUM_LFB NUM(0xc)
#define NUM_RAM NUM(0xd)
#define NUM_PMEM NUM(0xe)
#define NUM_NA NUM(0xf)
#define REMOTE ((uint64_t)1 << 37)
#define SNOOP_NA SNOOP(1)
#define SNOOP_HITM SNOOP(0x10)
#define LOCK_NA LOCK(1)
#define LOCK_LOCKED LOCK(2)
#define TLB_NA TLB(1)
#define TLB_HIT TLB(2)
#define TLB_MISS TLB(4)
#define TLB_L1 TLB(8)
#define TLB_L2 TLB(0x10)

#define SOURCE_IO 7u

// Of a load that missed L2, by its source; 0 where the source says nothing.
static uint64_t
level_of_source(const struct opd_ibs_op *op, uint8_t source, bool remote)
{
    const uint64_t far = REMOTE | HOPS(2);
    const bool zen4 = (op->caps & OPD_IBS_CAPS_ZEN4) != 0;
    switch (source) {
    case 1:
        return zen4 ? LVL_L3 | LVL_HIT | NUM_L3 : 0;
    case 2:
        return LVL_REMOTE_CACHE1 | LVL_HIT | NUM_ANY_CACHE | HOPS(1) | (zen4 ? REMOTE : LVL_L3);
    case 3:
        return remote ? LVL_REMOTE_RAM1 | LVL_HIT | NUM_RAM | far
                      : LVL_LOCAL_RAM | LVL_HIT | NUM_RAM;
    case 4:
        return zen4 ? 0 : LVL_REMOTE_CACHE2 | LVL_HIT | NUM_ANY_CACHE | far;
    case 5:
        return zen4 ? LVL_REMOTE_CACHE2 | LVL_HIT | NUM_ANY_CACHE | far : 0;
    case 6:
        return zen4 ? NUM_PMEM | (remote ? far : 0) : 0;
    case SOURCE_IO:
        return LVL_IO | LVL_HIT | NUM_IO;
    case 8:
        return zen4 ? NUM_CXL | (remote ? far : 0) : 0;
    default:
        return 0;
    }
}

static uint64_t
level(const struct opd_ibs_machine *machine, const struct opd_ibs_op *op, uint8_t source)
{
    if (op->uc_access && source != SOURCE_IO)
        return LVL_UNCACHED | LVL_HIT | NUM_UNCACHED;
    if (!op->dc_miss)
        return LVL_L1 | LVL_HIT | NUM_L1;
    const bool broken = opd_ibs_is_1293(machine, op);
    if (!op->l2_miss && !broken)
        return LVL_L2 | LVL_HIT | NUM_L2;
    const uint64_t told = op->load ? level_of_source(op, source, op->remote_node && !broken) : 0;
    if (told != 0)
        return told;
    return op->no_mab_alloc ? LVL_LFB | LVL_HIT | NUM_LFB : LVL_NA | NUM_NA;
}

static uint64_t
snoop(const struct opd_ibs_machine *machine, const struct opd_ibs_op *op, uint8_t source,
      uint64_t levels)
{
    const bool cache =
        (op->caps & OPD_IBS_CAPS_ZEN4) ? source == 1 || source == 2 || source == 5 : source == 2;
    if (!opd_ibs_tells_cache_state(machine) || !op->load || (levels & (LVL_L1 | LVL_L2)) ||
        op->cache_hit_owned || !cache)
        return SNOOP_NA;
    return SNOOP_HITM;
}

static uint64_t
tlb(const struct opd_ibs_op *op)
{
    if (!op->linear_valid || ((op->caps & OPD_IBS_CAPS_OP_DTLB_PGSIZE) && !op->physical_valid))
        return TLB_NA;
    if (!op->l1_tlb_miss)
        return TLB_L1 | TLB_HIT;
    return TLB_L2 | (op->l2_tlb_miss ? TLB_MISS : TLB_HIT);
}

uint64_t
opd_ibs_data_src(const struct opd_ibs_machine *machine, const struct opd_ibs_op *op)
{
    if (!(op->has & OPD_IBS_OP_HAS_DATA3) || (!op->load && !op->store))
        return OP_NA | LVL_NA | SNOOP_NA | LOCK_NA | TLB_NA | NUM_NA;
    const uint8_t source = opd_ibs_is_1293(machine, op) ? 0 : op->data_source;
    const uint64_t levels = level(machine, op, source);
    return (op->load ? OP_LOAD : OP_STORE) | levels | snoop(machine, op, source, levels) | tlb(op) |
           (op->locked ? LOCK_LOCKED : LOCK_NA);
}

#define KERNEL(major, minor) ((uint32_t)(major) << 16 | (minor))

bool
opd_ibs_data_src_agrees(const struct opd_ibs_machine *machine, const struct opd_ibs_op *op,
                        uint64_t data_src)
{
    uint64_t mask = UINT64_MAX;
    if (machine->kernel != 0 && machine->kernel < KERNEL(6, 1))
        return true; // it told none
    if (machine->kernel != 0 && machine->kernel < KERNEL(6, 4))
        mask = OP(0x1f) | SNOOP(0x1f) | LOCK(3) | TLB(0x7f); // levels otherwise
    // That the TLB tells nothing then was learnt later than the page sizes.
    if ((op->caps & OPD_IBS_CAPS_OP_DTLB_PGSIZE) && !op->physical_valid)
        mask &= ~TLB(0x7f);
    return ((opd_ibs_data_src(machine, op) ^ data_src) & mask) == 0;
}

uint32_t
opd_ibs_weight(const struct opd_ibs_op *op)
{
    return op->has & OPD_IBS_OP_HAS_MISS_LATENCY ? op->dc_miss_latency : 0;
}

#define FETCH_MAX_COUNT 0xffffu
#define OP_MAX_COUNT 0xffffu
#define OP_MAX_COUNT_HIGH (0x7fu << 20)
#define FETCH_CONFIG ((uint64_t)1 << 57 | (uint64_t)1 << 59) // rand_en, l3missonly
#define OP_CONFIG ((uint64_t)1 << 16 | (uint64_t)1 << 19)    // l3missonly, cnt_ctl

uint64_t
opd_ibs_period_min(enum opd_ibs_flavour flavour)
{
    return flavour == OPD_IBS_FETCH ? 0x10 : 0x90;
}

uint64_t
opd_ibs_period_max(enum opd_ibs_flavour flavour, uint32_t caps)
{
    return flavour == OPD_IBS_OP && (caps & OPD_IBS_CAPS_OP_CNT_EXT) ? 0x7fffff0 : 0xffff0;
}

uint64_t
opd_ibs_period(enum opd_ibs_flavour flavour, uint64_t config, uint64_t sample_period)
{
    const bool fetch = flavour == OPD_IBS_FETCH;
    const uint64_t counts = fetch ? FETCH_MAX_COUNT : OP_MAX_COUNT | OP_MAX_COUNT_HIGH;
    uint64_t period = sample_period & ~(uint64_t)0xf;
    if ((config & ~(counts | (fetch ? FETCH_CONFIG : OP_CONFIG))) != 0)
        return 0;
    if (sample_period == 0)
        period = (config & 0xffff) << 4 | (fetch ? 0 : config & OP_MAX_COUNT_HIGH);
    else if ((config & counts) != 0)
        return 0;
    return period < opd_ibs_period_min(flavour) ? 0 : period;
}
