// SPDX-License-Identifier: Apache-2.0
// From a record to a counted hit. Records are fed in time order, live or from
// a file, by one thread: address spaces and images follow the side-band
// records, a sample becomes (sample file, stack) and is counted in the
// profile hash. At a window's end the tables are swapped and handed on as
// packed columns.
#ifndef OPD_PIPELINE_H
#define OPD_PIPELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "opd/aspace.h"
#include "opd/cgroup.h"
#include "opd/ibs.h"
#include "opd/image.h"
#include "opd/payload.h"
#include "opd/pc_tap.h"
#include "opd/profile_hash.h"
#include "opd/record.h"

#define OPD_EVENTS_MAX 1024u

struct opd_pipeline_event {
    uint64_t period; // weight of a sample whose record has no period
    bool precise;    // asked to be precise: inexact addresses are counted
};

struct opd_pipeline_options {
    const char *proc_root; // NULL: a file is replayed, nothing is looked up
    bool callchain;        // keep call chains, else the leaf alone
    bool keep_idle;        // idle samples are hits like any other
    bool separate_thread, separate_cpu;
    uint32_t stack_depth; // the kernel's limit: a chain this long was cut
    uint32_t hash_buckets, hash_limit;
    uint32_t stack_limit; // distinct stacks of a window
    size_t stack_bytes;
    uint32_t sfile_limit;
    uint32_t image_limit;
    uint32_t cgroup_limit;
    struct opd_spaces_limits spaces;
    struct opd_payload_limits payload; // of a window; all 0: there is none
};

struct opd_pipeline;

// Fills in the limits that suit a daemon.
void opd_pipeline_defaults(struct opd_pipeline_options *options);
struct opd_pipeline *opd_pipeline_create(const struct opd_pipeline_options *options);
void opd_pipeline_destroy(struct opd_pipeline *pipeline);

// Events are numbered in the order added. -ENOSPC past OPD_EVENTS_MAX.
int opd_pipeline_add_event(struct opd_pipeline *pipeline, const struct opd_pipeline_event *event);

// An event whose samples carry IBS records (ibs.h): each sample is attributed
// to the record's own address and enters one row for every derived event that
// it satisfies and that is wanted of samples of its mode, all with its stack.
// A row weighs what the derived event adds, else the sample's period.
struct opd_pipeline_ibs {
    uint8_t flavour; // enum opd_ibs_flavour
    bool plain;      // rows of the event itself too, of modes of which any is wanted
    struct opd_ibs_machine machine;
    struct opd_ibs_mask user, kernel;    // wanted of user and of kernel samples
    uint16_t events[OPD_IBS_EVENTS_MAX]; // the event number of every derived event wanted
};
#define OPD_IBS_SOURCES_MAX 64u // events with IBS records
// -EINVAL: no such event, derived events of the other flavour, or numbers of events that were not
// added; -ENOSPC.
// For the feeder, or before it runs; told again it changes from the next record on.
int opd_pipeline_set_ibs(struct opd_pipeline *pipeline, unsigned event,
                         const struct opd_pipeline_ibs *ibs);

// From `since` (event clock, records are fed in its order) on, samples of the
// event weigh `period`, whatever their records say.
void opd_pipeline_set_period(struct opd_pipeline *pipeline, unsigned event, uint64_t period,
                             uint64_t since);
// Samples of its event are counted there too, unless they are idle or of other
// names. For the feeder, or before it runs; NULL: no more.
void opd_pipeline_set_tap(struct opd_pipeline *pipeline, struct opd_pc_tap *tap);
struct opd_pc_tap *opd_pipeline_tap(const struct opd_pipeline *pipeline);
// Keeps 1/divisor of the distinct stacks asked for; how many that is.
uint32_t opd_pipeline_limit_stacks(struct opd_pipeline *pipeline, uint32_t divisor);
// What is kept of precise samples beside their rows, at least so much of each;
// before the first record only. 0, or -ENOMEM.
int opd_pipeline_keep(struct opd_pipeline *pipeline, const struct opd_payload_limits *limits);
// Counts only samples of threads whose name, or that of their process's first
// thread, matches a glob. 0, or -ENOSPC past 16 globs.
int opd_pipeline_add_filter(struct opd_pipeline *pipeline, const char *comm_glob);
// Ticks spent on counting hits are added there until it is set to NULL.
void opd_pipeline_measure(struct opd_pipeline *pipeline, uint64_t *hash_ticks);
// Kernel address ranges [start, end) in which the idle task does nothing.
int opd_pipeline_set_idle(struct opd_pipeline *pipeline, const uint64_t *starts,
                          const uint64_t *ends, size_t count);
int opd_pipeline_add_module(struct opd_pipeline *pipeline, const char *name, uint64_t start,
                            uint64_t end);
// A file's build-id known beside the records (perf.data's table): images of
// this path get it. "[kernel]" and "[vdso]" too.
int opd_pipeline_add_build_id(struct opd_pipeline *pipeline, const char *path,
                              const uint8_t *build_id, size_t size);
// Address of the kernel's _text in the recording, 0 when no record told.
uint64_t opd_pipeline_kernel_text(const struct opd_pipeline *pipeline);
// Bytes of the kernel's build-id as a mapping record told it, 0 for none.
uint32_t opd_pipeline_kernel_build_id(const struct opd_pipeline *pipeline, uint8_t build_id[20]);

// One record of event number `event` (any of the events for side-band ones).
void opd_pipeline_feed(struct opd_pipeline *pipeline, unsigned event,
                       const struct opd_record *record);
// The same for several samples with no other record between them: cheaper,
// since memory for one arrives while others are worked on.
#define OPD_BATCH 16u
void opd_pipeline_feed_samples(struct opd_pipeline *pipeline, const uint32_t *events,
                               const struct opd_record *records, unsigned count);
// Reads the processes that are there now (live only).
int opd_pipeline_snapshot(struct opd_pipeline *pipeline, void (*pause)(void *context),
                          void *context);

// What became of one event's samples in a window; see opd_window_counts.
struct opd_event_counts {
    uint64_t samples, hash_full, no_mapping, stack_truncated, unwind_failed, inexact_ip;
    union { // samples by how their cgroup was known, enum opd_label_how
        struct {
            uint64_t label_unknown, label_inherited, label_read, label_exact;
        };
        uint64_t labels[4];
    };
};
_Static_assert(sizeof(struct opd_event_counts) == 80, "Python reads ten u64 an event");

// What became of the IBS records of one event in a window. Incomplete ones are
// decoded as far as they go; the counts may overlap.
struct opd_ibs_counts {
    uint64_t records;      // samples with a record
    uint64_t bare;         // samples without: no derived event can come of them
    uint64_t incomplete;   // too short, too long, of unknown caps, or without Val
    uint64_t unknown_caps; // of those: with caps that are not known
    uint64_t invalid;      // of those: without Val, no derived event comes of them
    uint64_t ignored;      // by erratum 1197, no derived event comes of them
    uint64_t inexact;      // at the interrupt's address: the record has none
    uint64_t compared;     // PERF_SAMPLE_DATA_SRC with what the registers say
    uint64_t mismatched;   // of those: another
};

// Summed over events.
struct opd_window_counts {
    uint64_t samples;         // that became hits
    uint64_t idle;            // idle samples, apart
    uint64_t filtered;        // of names that were not asked for
    uint64_t hash_full;       // lost: some table was at its limit
    uint64_t no_mapping;      // degraded: leaf in no known mapping
    uint64_t stack_truncated; // degraded: cut at the depth limit, or no room
    uint64_t unwind_failed;   // degraded: user leaf without any caller, or a caller in no mapping
    uint64_t inexact_ip;      // degraded: precise asked, address not exact
    uint64_t label_unknown, label_inherited, label_read, label_exact;
    uint64_t first_time, last_time; // of samples, event clock; 0 none
};

// Columns of one finished window; see opd.sampling.window for their meaning.
struct opd_window {
    uint32_t rows, sfiles, stacks, frames;
    uint32_t *row_sfile, *row_stack;
    uint64_t *row_hits, *row_weight;
    uint16_t *sfile_event;
    uint8_t *sfile_mode;
    int32_t *sfile_tgid, *sfile_tid, *sfile_cpu;
    uint32_t *sfile_image, *sfile_cgroup;
    char *sfile_comm;
    uint32_t *stack_start;
    uint8_t *stack_flags;
    uint32_t *frame_image;
    uint64_t *frame_address;
    uint32_t events;
    struct opd_event_counts *event_counts;
    uint32_t ibs_sources; // events with IBS records
    uint16_t *ibs_event;
    struct opd_ibs_counts *ibs_counts;
    struct opd_window_counts counts;
    struct opd_payload_columns *payload; // NULL: none was asked for
};

// Feeder's side: swaps the tables if somebody asked. Call between records.
void opd_pipeline_poll(struct opd_pipeline *pipeline);
// Reader's side: asks for the swap, waits for it at most `timeout_ms`, packs
// the finished tables. -ETIMEDOUT leaves the request standing. With the
// feeder's own thread use opd_pipeline_take_here().
int opd_pipeline_take(struct opd_pipeline *pipeline, int timeout_ms, struct opd_window **window);
int opd_pipeline_take_here(struct opd_pipeline *pipeline, struct opd_window **window);
void opd_window_free(struct opd_window *window);

// The image table, guarded: any thread may take fresh images.
size_t opd_pipeline_images(struct opd_pipeline *pipeline, struct opd_image *out, size_t room);

// The same for cgroups.
size_t opd_pipeline_cgroups(struct opd_pipeline *pipeline, struct opd_cgroup *out, size_t room);
// Whether one of the two would give any.
bool opd_pipeline_has_news(struct opd_pipeline *pipeline);
// Whether ids of cgroups in samples can be told (live only).
bool opd_pipeline_knows_ids(const struct opd_pipeline *pipeline);

struct opd_labels_stats {
    struct opd_cgroups_stats cgroups;
    // Of /proc/PID/cgroup. Failed: also those not tried, of processes known to
    // be gone. Deferred: too many in a second.
    uint64_t reads, failed, deferred;
    uint64_t resolved, unresolved; // ids that no record told of
};

struct opd_pipeline_stats {
    struct opd_images_stats images;
    struct opd_spaces_stats spaces;
    struct opd_profile_hash_stats hash;
    struct opd_labels_stats labels;
    uint64_t memo_hits, memo_misses, snapshots, snapshot_failures;
};
// A hint, from the feeder's thread and ahead of the record's turn: the process
// ends at `time`. Nothing is then asked of /proc for samples from before.
void opd_pipeline_note_exit(struct opd_pipeline *pipeline, uint32_t pid, uint32_t tid,
                            uint64_t time);
// Feeder's thread only.
void opd_pipeline_stats(const struct opd_pipeline *pipeline, struct opd_pipeline_stats *stats);

// The weights of event `event` are multiplied by `ratio` (enabled / running
// time of a multiplexed counter) when a window is packed.
void opd_window_scale(struct opd_window *window, unsigned event, double ratio);

#endif
