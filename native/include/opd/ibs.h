// SPDX-License-Identifier: Apache-2.0
// Samples of AMD's Instruction-Based Sampling: the registers in a sample's
// PERF_SAMPLE_RAW payload as flat structs, and the derived events that they
// satisfy. The payload is `u32 caps; u64 register[]`; which registers there
// are is told by its size together with caps (CPUID 8000_001B EAX), and no
// register is read that either of them does not promise. Bits as in the
// kernel's asm/amd/ibs.h and AMD's processor references.
//
// Nothing here allocates; everything but opd_ibs_kernel() is a function of its
// arguments.
#ifndef OPD_IBS_H
#define OPD_IBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What the payload does not tell of the machine it was taken on.
struct opd_ibs_machine {
    uint32_t family, model; // as CPUID gives them, decimal in perf.data; family 0: not known
    uint32_t kernel;        // opd_ibs_kernel(release); 0: not known, taken as 5.10 or newer
};

// "5.10.0-8-amd64" as major << 16 | minor; 0 when it does not begin so.
uint32_t opd_ibs_kernel(const char *release);
// "AuthenticAMD,25,17,1" (perf.data's CPUID); false, and nothing set, for others.
bool opd_ibs_cpuid(const char *cpuid, struct opd_ibs_machine *machine);

enum opd_ibs_flavour {
    OPD_IBS_FETCH = 0,
    OPD_IBS_OP = 1,
};
#define OPD_IBS_FLAVOURS 2
// "ibs_fetch", "ibs_op": the PMU's name and the ext word of the events file.
const char *opd_ibs_flavour_name(enum opd_ibs_flavour flavour);

// Bits of caps.
#define OPD_IBS_CAPS_AVAIL (1u << 0) // clear: bits 0 to 2 are assumed
#define OPD_IBS_CAPS_FETCH_SAM (1u << 1)
#define OPD_IBS_CAPS_OP_SAM (1u << 2)
#define OPD_IBS_CAPS_RD_WR_OP_CNT (1u << 3)
#define OPD_IBS_CAPS_OP_CNT (1u << 4)
#define OPD_IBS_CAPS_BRN_TRGT (1u << 5)
#define OPD_IBS_CAPS_OP_CNT_EXT (1u << 6)
#define OPD_IBS_CAPS_RIP_INVALID_CHK (1u << 7)
#define OPD_IBS_CAPS_OP_BRN_FUSE (1u << 8)
#define OPD_IBS_CAPS_FETCH_CTL_EXTD (1u << 9)
#define OPD_IBS_CAPS_OP_DATA4 (1u << 10)
#define OPD_IBS_CAPS_ZEN4 (1u << 11)
#define OPD_IBS_CAPS_OP_LD_LAT (1u << 12)
#define OPD_IBS_CAPS_DIS (1u << 13)
#define OPD_IBS_CAPS_FETCH_LAT (1u << 14)
#define OPD_IBS_CAPS_BIT63_FILTER (1u << 15)
#define OPD_IBS_CAPS_STRMST_RMTSOCKET (1u << 16)
#define OPD_IBS_CAPS_MEM_PROFILER (1u << 18)
#define OPD_IBS_CAPS_OP_DTLB_PGSIZE (1u << 19)
#define OPD_IBS_CAPS_KNOWN 0x000dffffu

// What is wrong with a payload; the rest of it is decoded all the same.
#define OPD_IBS_SHORT (1u << 0)        // ends before what caps promise
#define OPD_IBS_LONG (1u << 1)         // goes on after it
#define OPD_IBS_UNKNOWN_CAPS (1u << 2) // a bit that is not known, or none at all
#define OPD_IBS_NOT_VALID (1u << 3)    // no control register, or its Val bit is clear: no sample
#define OPD_IBS_IGNORED (1u << 4)      // erratum 1197: no sample
// Counted as incomplete; and those of which no derived event comes.
#define OPD_IBS_INCOMPLETE (OPD_IBS_SHORT | OPD_IBS_LONG | OPD_IBS_UNKNOWN_CAPS | OPD_IBS_NOT_VALID)
#define OPD_IBS_NO_SAMPLE (OPD_IBS_NOT_VALID | OPD_IBS_IGNORED)

// Page sizes.
enum opd_ibs_page {
    OPD_IBS_PAGE_UNKNOWN = 0, // not told, or a reserved code
    OPD_IBS_PAGE_4K,
    OPD_IBS_PAGE_16K,
    OPD_IBS_PAGE_2M,
    OPD_IBS_PAGE_1G,
};

// opd_ibs_fetch.has: registers that are there, then fields that mean something
// on this machine in this sample.
#define OPD_IBS_FETCH_HAS_CTL (1u << 0)
#define OPD_IBS_FETCH_HAS_LINEAR (1u << 1)   // `linear` is there
#define OPD_IBS_FETCH_HAS_PHYSICAL (1u << 2) // `physical` is there (valid by physical_valid)
#define OPD_IBS_FETCH_HAS_EXTENDED (1u << 3) // `itlb_refill_latency`
#define OPD_IBS_FETCH_HAS_STATUS (1u << 4)   // Zen6 without physical_valid: none of the status bits
#define OPD_IBS_FETCH_HAS_IC_MISS (1u << 5)  // erratum 1238: not there
#define OPD_IBS_FETCH_HAS_PAGE (1u << 6)
#define OPD_IBS_FETCH_HAS_L2_MISS (1u << 7) // Zen on, and complete
#define OPD_IBS_FETCH_HAS_ZEN4 (1u << 8)    // l3_miss_only, op_cache_miss, l3_miss

// A fetch. The first words are the registers as they are (0 when not there),
// the rest their fields as they are: `has` and the *_valid bits tell which of
// them to believe.
struct opd_ibs_fetch {
    uint32_t caps;  // as recorded; with AVAIL clear, 7
    uint32_t flaws; // OPD_IBS_SHORT and so on
    uint32_t has;   // OPD_IBS_FETCH_HAS_*
    uint64_t ctl, linear, physical, extended;
    uint32_t max_count, count; // in fetches: the fields times 16
    uint16_t latency;          // cycles from the fetch's start to its end
    uint16_t itlb_refill_latency;
    uint8_t enabled, valid, complete, ic_miss, physical_valid;
    uint8_t page_code, page; // the two bits; enum opd_ibs_page
    uint8_t l1_tlb_miss, l2_tlb_miss, random, l2_miss;
    uint8_t l3_miss_only, op_cache_miss, l3_miss; // 0 before Zen4
};

// opd_ibs_op.has
#define OPD_IBS_OP_HAS_CTL (1u << 0)
#define OPD_IBS_OP_HAS_RIP (1u << 1)
#define OPD_IBS_OP_HAS_DATA (1u << 2)
#define OPD_IBS_OP_HAS_DATA2 (1u << 3)
#define OPD_IBS_OP_HAS_DATA3 (1u << 4)
#define OPD_IBS_OP_HAS_LINEAR (1u << 5)
#define OPD_IBS_OP_HAS_PHYSICAL (1u << 6)
#define OPD_IBS_OP_HAS_TARGET (1u << 7)
#define OPD_IBS_OP_HAS_DATA4 (1u << 8)
#define OPD_IBS_OP_HAS_SOURCE (1u << 9)        // a load that missed, data_source told (not #1293)
#define OPD_IBS_OP_HAS_CACHE_STATE (1u << 10)  // cache_hit_owned of a source that is a cache
#define OPD_IBS_OP_HAS_L2_MISS (1u << 11)      // l2_miss and open_mem_reqs: Zen on, not #1293
#define OPD_IBS_OP_HAS_MISS_LATENCY (1u << 12) // dc_miss_latency: a load that missed
#define OPD_IBS_OP_HAS_REFILL_LATENCY (1u << 13)
#define OPD_IBS_OP_HAS_RIP_VALID (1u << 14) // `rip` is there and not invalid

// An op, in the same way.
struct opd_ibs_op {
    uint32_t caps, flaws, has;
    uint64_t ctl, rip, data, data2, data3, linear, physical, target, data4;
    // IbsOpCtl
    uint32_t max_count, current_count; // cycles or dispatched ops
    uint8_t enabled, valid, count_ops, l3_miss_only, load_latency_enabled;
    uint16_t load_latency_threshold; // cycles: (field + 1) * 128
    // IbsOpData
    uint16_t completion_to_retire, tag_to_retire; // cycles
    uint8_t resync, mispredicted_return, op_return, branch_taken, branch_mispredicted;
    uint8_t branch_retired, rip_invalid, branch_fused, microcode;
    // IbsOpData2
    uint8_t data_source; // 3 bits, 5 from Zen4 on
    uint8_t remote_node, cache_hit_owned, streaming_store, remote_socket;
    // IbsOpData3
    uint8_t load, store, l1_tlb_miss, l2_tlb_miss, l1_tlb_hit_2m, l1_tlb_hit_1g, l2_tlb_hit_2m;
    uint8_t dc_miss, misaligned, load_bank_conflict, store_bank_conflict;
    uint8_t store_forward, store_forward_cancelled, wc_access, uc_access, locked;
    uint8_t no_mab_alloc, linear_valid, physical_valid, l2_tlb_hit_1g, l2_miss, software_prefetch;
    uint16_t width;        // bytes, 0 none
    uint8_t open_mem_reqs; // outstanding requests when it missed
    uint8_t page;          // of the data, where a TLB that hit tells: enum opd_ibs_page
    uint8_t load_resync;   // IbsOpData4
    uint16_t dc_miss_latency, tlb_refill_latency; // cycles
};

// Decodes `size` bytes at `raw` (any alignment). Returns out->flaws.
uint32_t opd_ibs_decode_fetch(const struct opd_ibs_machine *machine, const void *raw, size_t size,
                              struct opd_ibs_fetch *out);
uint32_t opd_ibs_decode_op(const struct opd_ibs_machine *machine, const void *raw, size_t size,
                           struct opd_ibs_op *out);

// PERF_SAMPLE_DATA_SRC as the kernel makes it of the registers.
uint64_t opd_ibs_data_src(const struct opd_ibs_machine *machine, const struct opd_ibs_op *op);
// Whether the kernel's own word is that one, as far as kernels of its release
// told it (before 6.1 none, before 6.4 other levels).
bool opd_ibs_data_src_agrees(const struct opd_ibs_machine *machine, const struct opd_ibs_op *op,
                             uint64_t data_src);
// PERF_SAMPLE_WEIGHT: dc_miss_latency of a load that missed, else 0.
uint32_t opd_ibs_weight(const struct opd_ibs_op *op);

// ---- periods -----------------------------------------------------------------

// The period that an event's attr asks for: `sample_period`, or in config when
// that is 0 (maxcnt). 0 when the kernel refuses it (EINVAL).
uint64_t opd_ibs_period(enum opd_ibs_flavour flavour, uint64_t config, uint64_t sample_period);
uint64_t opd_ibs_period_min(enum opd_ibs_flavour flavour);
// The greatest the hardware counts at once; a longer period is chained.
uint64_t opd_ibs_period_max(enum opd_ibs_flavour flavour, uint32_t caps);

// ---- derived events ------------------------------------------------------------

#define OPD_IBS_EVENTS_MAX 128u

// A set of derived events: bit i is the event at index i of the table.
struct opd_ibs_mask {
    uint64_t words[OPD_IBS_EVENTS_MAX / 64];
};

// What an event adds to its weight; NONE: one sample, weighed by its period.
enum opd_ibs_value {
    OPD_IBS_VALUE_NONE = 0,
    OPD_IBS_VALUE_FETCH_LATENCY,
    OPD_IBS_VALUE_ITLB_REFILL_LATENCY,
    OPD_IBS_VALUE_TAG_TO_RETIRE,
    OPD_IBS_VALUE_COMPLETION_TO_RETIRE,
    OPD_IBS_VALUE_DC_MISS_LATENCY,
    OPD_IBS_VALUE_TLB_REFILL_LATENCY,
    OPD_IBS_VALUE_OPEN_MEM_REQS,
    OPD_IBS_VALUES,
};

// Machines that an event is bound to besides families and caps.
enum opd_ibs_where {
    OPD_IBS_ANYWHERE = 0,
    OPD_IBS_NOT_1238,    // not family 19h models 00h-0fh (IcMiss)
    OPD_IBS_ONLY_1347,   // only those (16K pages)
    OPD_IBS_CACHE_STATE, // not family 19h models 00h-0fh and 20h-5fh (CacheHitSt)
    OPD_IBS_BEFORE_ZEN4, // caps without ZEN4
    OPD_IBS_NOT_ZEN6,
};

struct opd_ibs_event {
    uint16_t number;     // oprofile's event code, 0xf000 on; stable
    uint8_t flavour;     // enum opd_ibs_flavour
    uint8_t value;       // enum opd_ibs_value
    bool nonzero;        // a value of 0 is no event
    uint16_t family_min; // the first and last family it is valid on; 0: no bound
    uint16_t family_max;
    uint8_t where;       // enum opd_ibs_where: which of those machines
    uint32_t caps;       // bits of caps that it needs
    uint64_t must, not_; // facts of the record that must hold, and that must not (ibs_facts.h)
    const char *name;    // "IBS_OP_DATA_CACHE_MISS"
    const char *unit;    // of its weight: "count" (the period), "cycles", "requests"
    const char *description;
    const char *condition; // the exact bits: FC IbsFetchCtl, D1.. IbsOpData.., FX IcIbsExtdCtl
    const char *valid;     // where, in words
    const char *errata;    // "" when none
};
#define OPD_IBS_EVENT_MINIMUM 50000u // of the count, for all

// The table, in order of number. `count` is at most OPD_IBS_EVENTS_MAX.
const struct opd_ibs_event *opd_ibs_events(unsigned *count);
// Index of an event, or -ENOENT.
int opd_ibs_event_by_name(const char *name);
int opd_ibs_event_by_number(uint32_t number);
// Whether the event is told at all by a machine with these caps.
bool opd_ibs_event_is_valid(const struct opd_ibs_event *event,
                            const struct opd_ibs_machine *machine, uint32_t caps);
// Those of one flavour (all that are valid there, when `machine` is not NULL).
void opd_ibs_mask_of(enum opd_ibs_flavour flavour, const struct opd_ibs_machine *machine,
                     uint32_t caps, struct opd_ibs_mask *mask);

// The derived events that one record satisfies, among those of its flavour that
// are asked for (opd_ibs_mask_of() gives all).
struct opd_ibs_hits {
    struct opd_ibs_mask events;
    uint32_t values[OPD_IBS_VALUES]; // values[event->value] for events with one
};
void opd_ibs_fetch_hits(const struct opd_ibs_machine *machine, const struct opd_ibs_fetch *fetch,
                        const struct opd_ibs_mask *among, struct opd_ibs_hits *hits);
void opd_ibs_op_hits(const struct opd_ibs_machine *machine, const struct opd_ibs_op *op,
                     const struct opd_ibs_mask *among, struct opd_ibs_hits *hits);

#endif
