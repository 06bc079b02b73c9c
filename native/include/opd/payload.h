// SPDX-License-Identifier: Apache-2.0
// What a window keeps of precise samples beside its rows: histograms of
// latencies, accesses to memory, branch targets, raw records. All tables are
// bounded; what a table was offered and what it could not keep is counted.
// Sample files and stacks are numbers of the same window. Single threaded.
#ifndef OPD_PAYLOAD_H
#define OPD_PAYLOAD_H

#include <stddef.h>
#include <stdint.h>

// 0 keeps none of that kind.
struct opd_payload_limits {
    uint32_t latencies; // different (sample file, stack, bucket)
    uint32_t accesses;  // accesses to memory, a fair draw of all
    uint32_t branches;  // different (sample file, from, to)
    uint32_t records;   // raw records of each class, a fair draw of all
};

// Latencies are counted in buckets: 0..15 one each, then sixteen to every
// power of two, so that a bucket is never wider than a sixteenth of its least
// value. All of u64 has one.
#define OPD_LATENCY_BUCKETS 976u
uint32_t opd_latency_bucket(uint64_t value);
// The least value of a bucket; that of OPD_LATENCY_BUCKETS is UINT64_MAX.
uint64_t opd_latency_least(uint32_t bucket);

enum opd_access_source {
    OPD_SOURCE_UNKNOWN = 0, // a store past L1, or what the CPU does not tell
    OPD_SOURCE_L1 = 1,
    OPD_SOURCE_L2 = 2,
    OPD_SOURCE_L3 = 3,          // of the core's own complex
    OPD_SOURCE_NEAR_CACHE = 4,  // of another complex, same node
    OPD_SOURCE_FAR_CACHE = 5,   // of another node
    OPD_SOURCE_DRAM = 6,        // of the same node
    OPD_SOURCE_REMOTE_DRAM = 7, // of another node
    OPD_SOURCE_LFB = 8,         // a miss under way already
    OPD_SOURCE_UNCACHED = 9,
    OPD_SOURCE_IO = 10,
    OPD_SOURCE_SLOW = 11, // long-latency memory
    OPD_SOURCE_CXL = 12,  // extension memory
    OPD_SOURCE_PEER = 13, // memory of a peer agent
};
#define OPD_SOURCES 16u

enum opd_access_tlb {
    OPD_TLB_UNKNOWN = 0,
    OPD_TLB_L1 = 1, // hit in the first level
    OPD_TLB_L2 = 2, // hit in the second
    OPD_TLB_MISS = 3,
};

#define OPD_ACCESS_LOAD 1u
#define OPD_ACCESS_STORE 2u
#define OPD_ACCESS_HAS_ADDRESS 4u
#define OPD_ACCESS_HAS_PHYSICAL 8u
#define OPD_ACCESS_HAS_LATENCY 16u
#define OPD_ACCESS_LOCKED 32u
#define OPD_ACCESS_MODIFIED 64u // the line was modified in another cache
#define OPD_ACCESS_MISALIGNED 128u

#define OPD_ACCESS_REMOTE 4u // beside the TLB: another node served it

struct opd_access {
    uint64_t address, physical; // of the first byte
    uint32_t sfile, stack;
    uint32_t tid, cpu;
    uint32_t latency; // core cycles
    uint8_t flags;    // OPD_ACCESS_*
    uint8_t source;   // enum opd_access_source
    uint8_t tlb;      // enum opd_access_tlb, and OPD_ACCESS_REMOTE
    uint8_t width;    // bytes, 0 not known
};

#define OPD_BRANCH_TAKEN 1u
#define OPD_BRANCH_MISPREDICTED 2u
#define OPD_BRANCH_RETURN 4u

// Raw records are drawn apart by class (which PMU wrote them).
#define OPD_RECORD_CLASSES 2u
#define OPD_RECORD_BYTES 128u // a longer record is counted, not kept

struct opd_payload;

// Bytes are taken as needed. NULL: no memory.
struct opd_payload *opd_payload_create(const struct opd_payload_limits *limits);
void opd_payload_destroy(struct opd_payload *payload);

void opd_payload_latency(struct opd_payload *payload, uint32_t sfile, uint32_t stack,
                         uint64_t value);
void opd_payload_access(struct opd_payload *payload, const struct opd_access *access);
// `to`: the stack whose leaf is the target.
void opd_payload_branch(struct opd_payload *payload, uint32_t sfile, uint32_t from, uint32_t to,
                        unsigned flags);
// A branch whose target had no room elsewhere.
void opd_payload_lose_branch(struct opd_payload *payload);
// `weight`: the sample's own, `class` below OPD_RECORD_CLASSES.
void opd_payload_record(struct opd_payload *payload, unsigned class, uint32_t sfile, uint32_t stack,
                        uint64_t weight, const uint8_t *bytes, uint32_t size);

// What was offered, and of that: not kept for want of room or memory. Of
// draws the rest of what is not kept just was not drawn.
struct opd_payload_counts {
    uint64_t offered, lost;
};

struct opd_payload_columns {
    struct opd_payload_counts latency, access, branch, record[OPD_RECORD_CLASSES];
    uint32_t latencies, accesses, branches, totals;
    uint32_t records[OPD_RECORD_CLASSES];
    uint32_t *latency_sfile, *latency_stack, *latency_bucket;
    uint64_t *latency_count;
    // `what`: flags | source << 8 | tlb << 16 | width << 24.
    uint64_t *access_address, *access_physical;
    uint32_t *access_sfile, *access_stack, *access_tid, *access_cpu, *access_latency, *access_what;
    // Exact, of all accesses offered; `what`: LOAD|STORE | source << 8 | tlb << 16.
    uint32_t *total_what;
    uint64_t *total_count, *total_timed, *total_latency;
    uint32_t *branch_sfile, *branch_from, *branch_to;
    uint64_t *branch_count, *branch_taken, *branch_mispredicted, *branch_return;
    // By class: those of class 0 first. Bytes of record i are start[i]..start[i+1].
    uint32_t *record_sfile, *record_stack, *record_start;
    uint64_t *record_weight;
    uint8_t *record_bytes;
    uint32_t record_size; // all bytes of records
};

// Hands over all that was kept and empties the payload: 0, or -ENOMEM and
// nothing was emptied. Freed with opd_payload_free().
int opd_payload_take(struct opd_payload *payload, struct opd_payload_columns **out);
void opd_payload_free(struct opd_payload_columns *columns);

#endif
