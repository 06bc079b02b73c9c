// SPDX-License-Identifier: Apache-2.0
// Reads recordings of `perf record`: perf.data files (version 2), the pipe
// layout of `perf record -o -`, and zstd-compressed ones (`-z`; libzstd.so.1
// is opened at run time). Records come parsed and in time order, each with
// the event that it belongs to. The same bytes always give the same answer.
//
// Time order. Records are sorted by time, ties by their place in the file, a
// round at a time: a FINISHED_ROUND lets everything go that is not newer than
// the newest record of the round before, so that memory is bounded by two
// rounds. Without rounds the whole file is sorted, up to the limit of
// opd_perfdata_limit_pending(); past it the older half goes. A record that
// is older than what had gone by then is delivered all the same and counted
// as `late`. Records without a time, or with time 0 (perf writes its first
// MMAP, COMM and FORK so), are delivered where they stand in the file, ahead
// of what waits to be sorted.
//
// Trust. Every bound is checked. What cannot be read never hides what came
// before it: a record whose size is credible and whose inside is not is
// skipped and counted; where not even the size can be right, reading ends
// and opd_perfdata_stats() says where and why.
#ifndef OPD_PERFDATA_H
#define OPD_PERFDATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "opd/record.h"

struct opd_perfdata;

// One event (perf_event_attr) of the recording.
struct opd_perfdata_attr {
    uint32_t type;
    uint32_t sample_stack_user; // bytes of user stack asked for
    uint64_t config, config1, config2;
    uint64_t sample_period; // a rate in Hz when `frequency`
    uint64_t flags;         // the attr's flag word, bit 0 = disabled
    bool frequency;
    bool use_clockid;
    int32_t clockid;
    struct opd_record_layout layout;
    const char *name;    // from EVENT_DESC or EVENT_UPDATE, else made from type and config
    const uint64_t *ids; // the kernel's ids of this event, one a CPU or thread
    size_t id_count;
};

struct opd_perfdata_build_id {
    int32_t pid;   // -1 for images of the host
    uint16_t misc; // OPD_MISC_CPUMODE_MASK tells kernel from user images
    uint8_t size;  // bytes of build_id
    uint8_t build_id[20];
    const char *path;
};

struct opd_perfdata_pmu {
    uint32_t type;
    const char *name;
};

struct opd_perfdata_cap {
    const char *pmu; // "cpu" for the older table of the core PMU alone
    const char *name;
    const char *value;
};

// What the recording says about itself. Strings are "" and numbers 0 when it
// does not say. Strings are as they stand in the file: any bytes, ending in
// NUL.
struct opd_perfdata_facts {
    bool pipe;        // the pipe layout
    bool compressed;  // says that it holds zstd-compressed records
    bool interrupted; // perf record did not finish the file; it has no facts
    const char *hostname, *os_release, *version, *arch, *cpuid, *cpu_description;
    uint32_t cpus_available, cpus_online;
    uint64_t total_memory_kib;
    const char *const *command_line;
    size_t command_line_count;
    const struct opd_perfdata_build_id *build_ids;
    size_t build_id_count;
    const struct opd_perfdata_pmu *pmus;
    size_t pmu_count;
    const struct opd_perfdata_cap *caps;
    size_t cap_count;
    uint64_t clock_resolution_ns;
    // One moment on two clocks: wall (CLOCK_REALTIME) and the records' clock.
    bool has_clock_data;
    uint32_t clock_id;
    uint64_t clock_wall_ns, clock_time_ns;
    bool has_sample_time;
    uint64_t first_sample_ns, last_sample_ns;
    uint32_t bad_features; // feature sections that could not be understood
};

#define OPD_PERFDATA_TYPES 96u // by_type's last counts every type from there on

struct opd_perfdata_stats {
    uint64_t by_type[OPD_PERFDATA_TYPES]; // records read, perf's own (>= 64) included
    uint64_t delivered;                   // by opd_perfdata_next()
    uint64_t samples;                     // SAMPLE records kept
    uint64_t lost;                        // sum over LOST
    uint64_t lost_samples;                // sum over LOST_SAMPLES
    uint64_t late;                        // delivered after a newer one
    uint64_t unknown_id;                  // samples of no known event, skipped
    uint64_t skipped_records;             // of credible size but wrong inside
    uint64_t skipped_bytes;               // of those
    uint64_t forced_flushes;              // the pending limit was reached
    uint64_t rounds;
    uint64_t bytes; // of the file, read as records (compressed ones as stored)
    // How it ended, once opd_perfdata_next() has returned 0.
    bool ended;
    int end_error;          // 0 = whole, else -errno: -ENODATA truncated, -EBADMSG corrupt,
                            // -ENOTSUP libzstd or the layout is missing, -EIO… from reading
    const char *end_reason; // "" when whole
    uint64_t end_offset;    // in the file, of the first byte that was not read as a record
};

// A record as delivered. The pointers are valid until the next call.
struct opd_perfdata_event {
    struct opd_record record;
    const void *bytes; // the record itself, 8-byte aligned, record.size long
    int32_t event;     // index of its attr; -1: a side-band record of no known event
    uint64_t offset;   // in the file, of the record or of the compressed one it came in
};

// Opens the recording at `fd`, which stays the caller's and has to stay open.
// Regular files are read by pread() and may shrink meanwhile; a pipe or
// socket works for the pipe layout. 0, or -errno with *reason (a static
// string): -EINVAL not a perf.data file, -ENOTSUP one that cannot be read
// (old version, other byte order, directory layout, no libzstd), -EBADMSG a
// header that is wrong, -EISDIR, -ESPIPE, -ENOMEM, -EIO.
int opd_perfdata_open(int fd, struct opd_perfdata **out, const char **reason);

// The same over `length` bytes in memory, which must stay as they are.
int opd_perfdata_open_memory(const void *bytes, size_t length, struct opd_perfdata **out,
                             const char **reason);

void opd_perfdata_close(struct opd_perfdata *data);

// Bytes of records that may wait to be sorted; 256 MiB unless told.
void opd_perfdata_limit_pending(struct opd_perfdata *data, size_t bytes);

// The next record: 1, 0 at the end (whole or not: see the stats), or -ENOMEM.
int opd_perfdata_next(struct opd_perfdata *data, struct opd_perfdata_event *event);

// Valid until the next opd_perfdata_next(): in the pipe layout attrs, names
// and facts may still come between records.
const struct opd_perfdata_attr *opd_perfdata_attrs(const struct opd_perfdata *data, size_t *count);
const struct opd_perfdata_facts *opd_perfdata_facts(const struct opd_perfdata *data);
const struct opd_perfdata_stats *opd_perfdata_stats(const struct opd_perfdata *data);

#endif
