// opd/payload.h; before pipeline.cdef.h in name order
struct opd_payload_limits {
    uint32_t latencies, accesses, branches, records;
};
uint32_t opd_latency_bucket(uint64_t value);
uint64_t opd_latency_least(uint32_t bucket);
struct opd_payload_counts {
    uint64_t offered, lost;
};
struct opd_payload_columns {
    struct opd_payload_counts latency, access, branch, record[2];
    uint32_t latencies, accesses, branches, totals;
    uint32_t records[2];
    uint32_t *latency_sfile, *latency_stack, *latency_bucket;
    uint64_t *latency_count;
    uint64_t *access_address, *access_physical;
    uint32_t *access_sfile, *access_stack, *access_tid, *access_cpu, *access_latency, *access_what;
    uint32_t *total_what;
    uint64_t *total_count, *total_timed, *total_latency;
    uint32_t *branch_sfile, *branch_from, *branch_to;
    uint64_t *branch_count, *branch_taken, *branch_mispredicted, *branch_return;
    uint32_t *record_sfile, *record_stack, *record_start;
    uint64_t *record_weight;
    uint8_t *record_bytes;
    uint32_t record_size;
};
