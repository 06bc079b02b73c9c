// SPDX-License-Identifier: Apache-2.0
// The one parser of perf records: live rings, perf.data files and fuzzers
// all read through it. Layouts follow the kernel's perf_output_sample();
// where the comment in uapi/linux/perf_event.h disagrees, the kernel's code
// is right. It allocates nothing and never reads outside the bytes given.
#ifndef OPD_RECORD_H
#define OPD_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Record types (struct perf_event_header.type).
enum opd_record_type {
    OPD_RECORD_MMAP = 1,
    OPD_RECORD_LOST = 2,
    OPD_RECORD_COMM = 3,
    OPD_RECORD_EXIT = 4,
    OPD_RECORD_THROTTLE = 5,
    OPD_RECORD_UNTHROTTLE = 6,
    OPD_RECORD_FORK = 7,
    OPD_RECORD_READ = 8,
    OPD_RECORD_SAMPLE = 9,
    OPD_RECORD_MMAP2 = 10,
    OPD_RECORD_AUX = 11,
    OPD_RECORD_ITRACE_START = 12,
    OPD_RECORD_LOST_SAMPLES = 13,
    OPD_RECORD_SWITCH = 14,
    OPD_RECORD_SWITCH_CPU_WIDE = 15,
    OPD_RECORD_NAMESPACES = 16,
    OPD_RECORD_KSYMBOL = 17,
    OPD_RECORD_BPF_EVENT = 18,
    OPD_RECORD_CGROUP = 19,
    OPD_RECORD_TEXT_POKE = 20,
    OPD_RECORD_AUX_OUTPUT_HW_ID = 21,
};

// header.misc
#define OPD_MISC_CPUMODE_MASK 7u
#define OPD_MISC_KERNEL 1u
#define OPD_MISC_USER 2u
#define OPD_MISC_HYPERVISOR 3u
#define OPD_MISC_GUEST_KERNEL 4u
#define OPD_MISC_GUEST_USER 5u
#define OPD_MISC_COMM_EXEC (1u << 13)     // COMM only
#define OPD_MISC_MMAP_DATA (1u << 13)     // MMAP, MMAP2 only
#define OPD_MISC_EXACT_IP (1u << 14)      // SAMPLE only
#define OPD_MISC_MMAP_BUILD_ID (1u << 14) // MMAP2 only

// Call-chain context markers.
#define OPD_CONTEXT_HV ((uint64_t)-32)
#define OPD_CONTEXT_KERNEL ((uint64_t)-128)
#define OPD_CONTEXT_USER ((uint64_t)-512)
#define OPD_CONTEXT_GUEST ((uint64_t)-2048)
#define OPD_CONTEXT_MAX ((uint64_t)-4095) // an ip >= this is a marker

// What one event's perf_event_attr says about the shape of its records.
struct opd_record_layout {
    uint64_t sample_type;
    uint64_t read_format;
    uint64_t branch_sample_type;
    uint64_t sample_regs_user;
    uint64_t sample_regs_intr;
    bool sample_id_all;
    bool build_id; // attr.build_id: its MMAP2 records may carry one
};

// Bits of opd_record.has: which of the common fields the record carried.
#define OPD_HAS_ID (1u << 0) // ID or IDENTIFIER
#define OPD_HAS_IP (1u << 1)
#define OPD_HAS_TID (1u << 2)
#define OPD_HAS_TIME (1u << 3)
#define OPD_HAS_ADDR (1u << 4)
#define OPD_HAS_STREAM_ID (1u << 5)
#define OPD_HAS_CPU (1u << 6)
#define OPD_HAS_PERIOD (1u << 7)
#define OPD_HAS_CALLCHAIN (1u << 8)
#define OPD_HAS_RAW (1u << 9)
#define OPD_HAS_REGS_USER (1u << 10)
#define OPD_HAS_STACK_USER (1u << 11)
#define OPD_HAS_WEIGHT (1u << 12)
#define OPD_HAS_DATA_SRC (1u << 13)
#define OPD_HAS_TRANSACTION (1u << 14)
#define OPD_HAS_PHYS_ADDR (1u << 15)
#define OPD_HAS_CGROUP (1u << 16)
#define OPD_HAS_DATA_PAGE_SIZE (1u << 17)
#define OPD_HAS_CODE_PAGE_SIZE (1u << 18)
#define OPD_HAS_BRANCH_STACK (1u << 19)

// One parsed record. Pointers point into the bytes that were parsed and live
// as long as they do. All are 8-byte aligned except raw.data (4-byte) and
// names.
struct opd_record {
    uint32_t type;
    uint16_t misc;
    uint16_t size;
    uint32_t has; // OPD_HAS_*: for SAMPLE its fields, else the sample_id trailer
    uint32_t pid; // the process (tgid) that the record was written for
    uint32_t tid;
    uint32_t cpu;
    uint64_t id;
    uint64_t stream_id;
    uint64_t time; // ns of the event's clock; 0 when absent
    union {
        struct {
            uint64_t ip;
            uint64_t addr;
            uint64_t period; // 1 when the event does not report it
            const uint64_t *chain;
            uint64_t chain_length;
            const uint8_t *raw;
            uint32_t raw_size;
            uint64_t regs_user_abi;
            const uint64_t *regs_user;
            uint32_t regs_user_count;
            const uint8_t *stack_user;
            uint64_t stack_user_size; // bytes really there (dyn_size)
            uint64_t weight;
            uint64_t data_src;
            uint64_t transaction;
            uint64_t phys_addr;
            uint64_t cgroup;
            uint64_t data_page_size;
            uint64_t code_page_size;
        } sample;
        struct { // MMAP and MMAP2; MMAP leaves the inode words zero
            uint32_t pid, tid;
            uint64_t start, length, page_offset;
            uint32_t major, minor;
            uint64_t inode, inode_generation;
            uint8_t build_id[20];
            uint8_t build_id_size; // 0: the inode words hold instead
            uint32_t protection, flags;
            bool executable;  // MMAP2: PROT_EXEC; MMAP: no MISC_MMAP_DATA
            const char *path; // NUL-terminated inside the record
            size_t path_length;
        } mmap;
        struct {
            uint32_t pid, tid;
            const char *comm;
            size_t comm_length;
        } comm;
        struct { // FORK and EXIT
            uint32_t pid, parent_pid, tid, parent_tid;
            uint64_t time;
        } task;
        struct {
            uint64_t id, lost; // LOST; LOST_SAMPLES has id 0
        } lost;
        struct {
            uint64_t time, id, stream_id;
        } throttle;
        struct {
            uint64_t address;
            uint32_t length;
            uint16_t kind, flags; // flags bit 0: unregistered
            const char *name;
            size_t name_length;
        } ksymbol;
        struct {
            uint64_t id;
            const char *path;
            size_t path_length;
        } cgroup;
    } u;
};

// Parses the record at `bytes` (8-byte aligned, `length` readable) by the
// event's layout. Types without a member above (READ, AUX, unknown newer
// ones) parse to their header and trailer only. Returns the record's size, or
//   -EAGAIN  fewer than 8 bytes, or the header's size is past `length`
//   -EBADMSG the header or a bound inside the record is wrong; the caller may
//            skip header.size bytes when opd_record_size() gives one
int opd_record_parse(const struct opd_record_layout *layout, const void *bytes, size_t length,
                     struct opd_record *record);

// The size in the header of the record at `bytes`, 0 when it cannot be one
// (less than 8, not a multiple of 8, or past `length`).
size_t opd_record_size(const void *bytes, size_t length);

// The IDENTIFIER of a record: first word of a SAMPLE, last word of any other,
// wherever the events' sample_types differ. Valid only for records of events
// that all have PERF_SAMPLE_IDENTIFIER (and sample_id_all). 0 on success,
// -EBADMSG when the record is too short for one.
int opd_record_identifier(const void *bytes, size_t length, uint64_t *identifier);

// The time of a record without parsing the rest; false when it carries none.
bool opd_record_time(const struct opd_record_layout *layout, const void *bytes, size_t length,
                     uint64_t *time);

#endif
