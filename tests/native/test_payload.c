// SPDX-License-Identifier: Apache-2.0
// Payloads: buckets of latencies, draws that are fair, tables at their limits.
#include "opd/payload.h"
#include "t.h"
#include <stdbool.h>
#include <string.h>

static void
test_buckets_cover_every_number_and_are_narrow(void)
{
    for (uint64_t value = 0; value < 70000; value++) {
        uint32_t bucket = opd_latency_bucket(value);
        CHECK(opd_latency_least(bucket) <= value && value < opd_latency_least(bucket + 1));
    }
    for (uint32_t bucket = 16; bucket < OPD_LATENCY_BUCKETS - 1; bucket++) {
        uint64_t least = opd_latency_least(bucket), next = opd_latency_least(bucket + 1);
        CHECK(next > least && (next - least) * 16 <= least);
        CHECK(opd_latency_bucket(least) == bucket && opd_latency_bucket(next - 1) == bucket);
    }
    CHECK(opd_latency_bucket(UINT64_MAX) == OPD_LATENCY_BUCKETS - 1);
    CHECK(opd_latency_least(OPD_LATENCY_BUCKETS) == UINT64_MAX);
}

static void
test_latencies_are_counted_by_bucket(void)
{
    struct opd_payload *payload = opd_payload_create(&(struct opd_payload_limits){.latencies = 9});
    struct opd_payload_columns *columns;
    for (int i = 0; i < 5; i++)
        opd_payload_latency(payload, 1, 2, 1000);
    opd_payload_latency(payload, 1, 2, 1001); // the same bucket
    opd_payload_latency(payload, 1, 3, 1000);
    CHECK(opd_payload_take(payload, &columns) == 0);
    CHECK(columns->latencies == 2 && columns->latency.offered == 7 && columns->latency.lost == 0);
    uint32_t at = columns->latency_stack[0] == 2 ? 0 : 1;
    CHECK(columns->latency_count[at] == 6 && columns->latency_count[1 - at] == 1);
    CHECK(columns->latency_bucket[at] == opd_latency_bucket(1000));
    opd_payload_free(columns);
    CHECK(opd_payload_take(payload, &columns) == 0);
    CHECK(columns->latencies == 0 && columns->latency.offered == 0);
    opd_payload_free(columns);
    opd_payload_destroy(payload);
}

static void
test_a_full_table_counts_what_it_leaves_out(void)
{
    struct opd_payload *payload =
        opd_payload_create(&(struct opd_payload_limits){.latencies = 1000, .branches = 1});
    struct opd_payload_columns *columns;
    for (uint32_t i = 0; i < 3000; i++)
        opd_payload_latency(payload, i % 1500, i, 7);
    opd_payload_latency(payload, 5, 5, 7); // there already: still counted
    opd_payload_branch(payload, 1, 2, 3, OPD_BRANCH_TAKEN);
    opd_payload_branch(payload, 1, 2, 3, OPD_BRANCH_TAKEN | OPD_BRANCH_MISPREDICTED);
    opd_payload_branch(payload, 1, 2, 4, 0);
    CHECK(opd_payload_take(payload, &columns) == 0);
    CHECK(columns->latencies == 1000 && columns->latency.offered == 3001 &&
          columns->latency.lost == 2000);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < columns->latencies; i++)
        sum += columns->latency_count[i];
    CHECK(sum + columns->latency.lost == columns->latency.offered);
    CHECK(columns->branches == 1 && columns->branch.lost == 1);
    CHECK(columns->branch_count[0] == 2 && columns->branch_taken[0] == 2 &&
          columns->branch_mispredicted[0] == 1 && columns->branch_return[0] == 0);
    opd_payload_free(columns);
    opd_payload_destroy(payload);
}

static void
test_accesses_are_drawn_fairly_and_summed_exactly(void)
{
    struct opd_payload *payload =
        opd_payload_create(&(struct opd_payload_limits){.accesses = 1000});
    struct opd_payload_columns *columns;
    for (uint32_t i = 0; i < 100000; i++)
        opd_payload_access(
            payload,
            &(struct opd_access){.address = i,
                                 .latency = i % 100,
                                 .flags = i % 4 == 0 ? OPD_ACCESS_STORE
                                                     : OPD_ACCESS_LOAD | OPD_ACCESS_HAS_LATENCY,
                                 .source = i % 4 == 0 ? OPD_SOURCE_L1 : OPD_SOURCE_DRAM,
                                 .tlb = OPD_TLB_MISS});
    CHECK(opd_payload_take(payload, &columns) == 0);
    CHECK(columns->accesses == 1000 && columns->access.offered == 100000);
    uint32_t quarters[4] = {0}, stores = 0;
    for (uint32_t i = 0; i < columns->accesses; i++) {
        CHECK(columns->access_latency[i] == columns->access_address[i] % 100);
        quarters[columns->access_address[i] / 25000]++;
        stores += columns->access_what[i] & OPD_ACCESS_STORE ? 1 : 0;
    }
    // Expected 250 each; six standard deviations are 82.
    for (int i = 0; i < 4; i++)
        CHECK(quarters[i] > 168 && quarters[i] < 332);
    CHECK(stores > 168 && stores < 332);
    CHECK(columns->totals == 2);
    for (uint32_t i = 0; i < columns->totals; i++) {
        bool store = columns->total_what[i] & OPD_ACCESS_STORE;
        uint32_t source = columns->total_what[i] >> 8 & 255, tlb = columns->total_what[i] >> 16;
        CHECK(source == (store ? OPD_SOURCE_L1 : OPD_SOURCE_DRAM) && tlb == OPD_TLB_MISS);
        CHECK(columns->total_count[i] == (store ? 25000u : 75000u));
        CHECK(columns->total_timed[i] == (store ? 0u : 75000u));
        // 0..99 less 0, 4, .. 96, a thousand times.
        CHECK(columns->total_latency[i] == (store ? 0u : (4950u - 1200u) * 1000u));
    }
    opd_payload_free(columns);
    opd_payload_destroy(payload);
}

static void
test_records_are_kept_whole_by_class(void)
{
    struct opd_payload *payload = opd_payload_create(&(struct opd_payload_limits){.records = 8});
    struct opd_payload_columns *columns;
    uint8_t bytes[OPD_RECORD_BYTES + 1];
    for (uint32_t i = 0; i < 5; i++) {
        memset(bytes, (int)i, sizeof bytes);
        opd_payload_record(payload, 0, i, i + 10, i + 100, bytes, 36);
    }
    for (uint32_t i = 0; i < 50; i++)
        opd_payload_record(payload, 1, 7, 8, 1, bytes, 76);
    opd_payload_record(payload, 1, 7, 8, 1, bytes, sizeof bytes);
    CHECK(opd_payload_take(payload, &columns) == 0);
    CHECK(columns->records[0] == 5 && columns->record[0].offered == 5);
    CHECK(columns->records[1] == 8 && columns->record[1].offered == 51 &&
          columns->record[1].lost == 1);
    CHECK(columns->record_size == 5 * 36 + 8 * 76);
    for (uint32_t i = 0; i < 5; i++) {
        CHECK(columns->record_start[i] == 36 * i && columns->record_bytes[36 * i + 35] == i);
        CHECK(columns->record_sfile[i] == i && columns->record_stack[i] == i + 10 &&
              columns->record_weight[i] == i + 100);
    }
    CHECK(columns->record_start[13] == columns->record_size);
    opd_payload_free(columns);
    opd_payload_destroy(payload);
}

static void
test_nothing_asked_nothing_kept(void)
{
    struct opd_payload *payload = opd_payload_create(&(struct opd_payload_limits){0});
    struct opd_payload_columns *columns;
    opd_payload_latency(payload, 1, 2, 3);
    opd_payload_access(payload, &(struct opd_access){.flags = OPD_ACCESS_LOAD});
    opd_payload_branch(payload, 1, 2, 3, 0);
    opd_payload_record(payload, 0, 1, 2, 3, (const uint8_t *)"x", 1);
    CHECK(opd_payload_take(payload, &columns) == 0);
    CHECK(columns->latencies + columns->accesses + columns->totals + columns->branches == 0);
    CHECK(columns->latency.offered + columns->access.offered + columns->branch.offered == 0);
    CHECK(columns->record_size == 0 && columns->record[0].offered == 0);
    opd_payload_free(columns);
    opd_payload_destroy(payload);
}

int
main(void)
{
    RUN(test_buckets_cover_every_number_and_are_narrow);
    RUN(test_latencies_are_counted_by_bucket);
    RUN(test_a_full_table_counts_what_it_leaves_out);
    RUN(test_accesses_are_drawn_fairly_and_summed_exactly);
    RUN(test_records_are_kept_whole_by_class);
    RUN(test_nothing_asked_nothing_kept);
    return 0;
}
