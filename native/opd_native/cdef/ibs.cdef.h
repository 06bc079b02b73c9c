// opd/ibs.h
struct opd_ibs_machine {
    uint32_t family, model;
    uint32_t kernel;
};
struct opd_ibs_fetch {
    uint32_t caps;
    uint32_t flaws;
    uint32_t has;
    uint64_t ctl, linear, physical, extended;
    uint32_t max_count, count;
    uint16_t latency;
    uint16_t itlb_refill_latency;
    uint8_t enabled, valid, complete, ic_miss, physical_valid;
    uint8_t page_code, page;
    uint8_t l1_tlb_miss, l2_tlb_miss, random, l2_miss;
    uint8_t l3_miss_only, op_cache_miss, l3_miss;
};
struct opd_ibs_op {
    uint32_t caps, flaws, has;
    uint64_t ctl, rip, data, data2, data3, linear, physical, target, data4;
    uint32_t max_count, current_count;
    uint8_t enabled, valid, count_ops, l3_miss_only, load_latency_enabled;
    uint16_t load_latency_threshold;
    uint16_t completion_to_retire, tag_to_retire;
    uint8_t resync, mispredicted_return, op_return, branch_taken, branch_mispredicted;
    uint8_t branch_retired, rip_invalid, branch_fused, microcode;
    uint8_t data_source;
    uint8_t remote_node, cache_hit_owned, streaming_store, remote_socket;
    uint8_t load, store, l1_tlb_miss, l2_tlb_miss, l1_tlb_hit_2m, l1_tlb_hit_1g, l2_tlb_hit_2m;
    uint8_t dc_miss, misaligned, load_bank_conflict, store_bank_conflict;
    uint8_t store_forward, store_forward_cancelled, wc_access, uc_access, locked;
    uint8_t no_mab_alloc, linear_valid, physical_valid, l2_tlb_hit_1g, l2_miss, software_prefetch;
    uint16_t width;
    uint8_t open_mem_reqs;
    uint8_t page;
    uint8_t load_resync;
    uint16_t dc_miss_latency, tlb_refill_latency;
};
struct opd_ibs_mask {
    uint64_t words[2];
};
struct opd_ibs_event {
    uint16_t number;
    uint8_t flavour;
    uint8_t value;
    bool nonzero;
    uint16_t family_min;
    uint16_t family_max;
    uint8_t where;
    uint32_t caps;
    uint64_t must, not_;
    const char *name;
    const char *unit;
    const char *description;
    const char *condition;
    const char *valid;
    const char *errata;
};
struct opd_ibs_hits {
    struct opd_ibs_mask events;
    uint32_t values[8];
};
uint32_t opd_ibs_kernel(const char *release);
bool opd_ibs_cpuid(const char *cpuid, struct opd_ibs_machine *machine);
uint32_t opd_ibs_decode_fetch(const struct opd_ibs_machine *machine, const void *raw, size_t size,
                              struct opd_ibs_fetch *out);
uint32_t opd_ibs_decode_op(const struct opd_ibs_machine *machine, const void *raw, size_t size,
                           struct opd_ibs_op *out);
uint64_t opd_ibs_data_src(const struct opd_ibs_machine *machine, const struct opd_ibs_op *op);
bool opd_ibs_data_src_agrees(const struct opd_ibs_machine *machine, const struct opd_ibs_op *op,
                             uint64_t data_src);
uint32_t opd_ibs_weight(const struct opd_ibs_op *op);
uint64_t opd_ibs_period(int flavour, uint64_t config, uint64_t sample_period);
uint64_t opd_ibs_period_min(int flavour);
uint64_t opd_ibs_period_max(int flavour, uint32_t caps);
const struct opd_ibs_event *opd_ibs_events(unsigned *count);
bool opd_ibs_event_is_valid(const struct opd_ibs_event *event,
                            const struct opd_ibs_machine *machine, uint32_t caps);
void opd_ibs_fetch_hits(const struct opd_ibs_machine *machine, const struct opd_ibs_fetch *fetch,
                        const struct opd_ibs_mask *among, struct opd_ibs_hits *hits);
void opd_ibs_op_hits(const struct opd_ibs_machine *machine, const struct opd_ibs_op *op,
                     const struct opd_ibs_mask *among, struct opd_ibs_hits *hits);
void opd_ibs_mask_of(int flavour, const struct opd_ibs_machine *machine, uint32_t caps,
                     struct opd_ibs_mask *mask);
