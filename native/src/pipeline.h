// SPDX-License-Identifier: Apache-2.0
// Inside of the pipeline, shared by pipeline.c (records), attribute.c
// (samples) and window.c (what is handed on).
#ifndef OPD_PIPELINE_PRIVATE_H
#define OPD_PIPELINE_PRIVATE_H

#include <pthread.h>

#include "maps.h"
#include "opd/cgroup.h"
#include "opd/intern.h"
#include "opd/pc_tap.h"
#include "opd/pipeline.h"

// One sample file: whose hits are counted together.
struct opd_sfile_key {
    uint16_t event;
    uint8_t mode;
    uint8_t reserved;
    int32_t tgid, tid, cpu;
    uint32_t image;
    uint32_t cgroup;
    char comm[OPD_COMM_SIZE];
};
_Static_assert(sizeof(struct opd_sfile_key) == 40, "interned as bytes: no padding");

// One frame as interned behind a word of flags; an address in two halves
// keeps the string 4-byte aligned without padding.
struct opd_frame {
    uint32_t image;
    uint32_t address_low, address_high;
};
_Static_assert(sizeof(struct opd_frame) == 12, "interned as bytes: no padding");

#define STACK_TRUNCATED 1u
#define STACK_HAS_KERNEL 2u
#define STACK_HAS_USER 4u

#define FRAMES_MAX 512u
// Words of the longest stack: its flags, then its frames.
#define STACK_WORDS (1 + FRAMES_MAX * (uint32_t)(sizeof(struct opd_frame) / sizeof(uint32_t)))

// The tables that are swapped at a window's end, beside the hash pair.
struct opd_tables {
    struct opd_intern *stacks;
    struct opd_intern *sfiles;
    struct opd_payload *payload;     // NULL: none was asked for
    struct opd_window_counts counts; // times, idle; the rest is in `events`
    struct opd_event_counts events[OPD_EVENTS_MAX];
    struct opd_ibs_counts ibs[OPD_IBS_SOURCES_MAX];
};

// Known chains: the whole way from raw addresses to an interned stack costs
// one hash while neither the mappings nor the window have changed.
#define MEMO_SIZE 4096u
struct opd_memo {
    uint64_t key;
    uint32_t stack;
    uint32_t image;
    uint8_t degraded;
};
#define DEGRADED_NO_MAPPING 1u
#define DEGRADED_TRUNCATED 2u
#define DEGRADED_UNWIND 4u

// An IBS sample on its way: the record at the address that counts, decoded,
// and the derived events that it enters.
struct opd_ibs_sample {
    struct opd_record record;
    const struct opd_pipeline_ibs *source;
    unsigned counts; // index into the tables' ibs
    uint32_t flaws;
    bool decoded; // there is a record; else `hits` is empty
    bool exact;   // at the record's own address
    bool plain;   // enters the event itself too
    union {
        struct opd_ibs_fetch fetch;
        struct opd_ibs_op op;
    } u;
    struct opd_ibs_hits hits;            // events: those wanted of its mode
    struct opd_sfile_key key;            // of all its sample files but for the event
    uint32_t sfiles[OPD_IBS_EVENTS_MAX]; // of every event of `hits`, OPD_INTERN_FULL: no room
};

// A sample on its way through the steps of a batch.
struct opd_hit {
    const struct opd_record *record;
    const struct opd_thread *thread;
    const struct opd_maps *maps;
    uint64_t key;
    struct opd_ibs_sample *ibs;   // NULL: not of an IBS event
    struct opd_memo memo;         // found, or made
    const uint32_t *words;        // its stack; NULL when the chain was known
    uint32_t length, hash, sfile; // of `words` in bytes
    uint16_t event;
    uint8_t how;
    bool kernel;
};

// What one event's samples weigh when its records do not say.
#define OPD_WEIGHTS_AHEAD 8u
struct opd_weight {
    uint64_t period;
    // Changes that the records have not come to yet, oldest first.
    struct {
        uint64_t period, since;
    } ahead[OPD_WEIGHTS_AHEAD];
    uint32_t ahead_count;
    bool fixed; // records say, but wrongly
};

// A process that is known to have ended before its records are looked at.
struct opd_exit {
    uint32_t pid;
    uint32_t when; // its time in units of EXIT_UNIT_SHIFT, cut to 32 bits
};
#define EXITS_SIZE 1024u
#define EXIT_UNIT_SHIFT 20

struct opd_build_id_entry {
    char *path;
    uint8_t size;
    uint8_t bytes[20];
};

struct opd_pipeline {
    struct opd_pipeline_options options;
    char *proc_root;
    struct opd_pipeline_event events[OPD_EVENTS_MAX];
    struct opd_weight weights[OPD_EVENTS_MAX];
    unsigned event_count;
    uint8_t ibs_of[OPD_EVENTS_MAX]; // index into `ibs` plus 1, 0: none
    struct opd_pipeline_ibs *ibs[OPD_IBS_SOURCES_MAX];
    uint16_t ibs_event[OPD_IBS_SOURCES_MAX];
    unsigned ibs_count;
    uint32_t stack_divisor;
    struct opd_filter *filter; // NULL: all samples count
    uint64_t *hash_ticks;      // measured: where the ticks of counting go
    struct opd_pc_tap *tap;    // NULL: nobody counts program counters

    struct opd_spaces *spaces;
    pthread_mutex_t image_lock; // the feeder adds, any thread takes
    struct opd_images *images;
    struct opd_maps *kernel_maps; // modules and BPF programs; the rest is [kernel]
    uint64_t kernel_version;
    uint64_t kernel_text;
    uint8_t kernel_build_id[20];
    uint8_t kernel_build_id_size;
    uint64_t *idle_starts, *idle_ends;
    size_t idle_count;
    struct opd_build_id_entry *build_ids;
    size_t build_id_count;

    struct opd_cgroups *cgroups;
    struct opd_hierarchy *hierarchy; // NULL: ids in samples tell nothing but by records
    uint64_t reads_second;           // event time in which `reads` were made
    uint32_t reads;                  // of /proc for labels
    struct opd_labels_stats labels;
    struct opd_exit exits[EXITS_SIZE]; // by pid: the last ones

    struct opd_hash_pair *pair;
    struct opd_tables tables[2];
    unsigned active; // index into tables; the feeder's
    uint64_t window; // serial, part of every memo key
    struct opd_memo memo[MEMO_SIZE];
    struct opd_hit hits[OPD_BATCH];
    struct opd_ibs_sample ibs_samples[OPD_BATCH]; // of the hits with the same index
    uint32_t words[OPD_BATCH * STACK_WORDS];      // their stacks, one behind the other

    uint64_t memo_hits, memo_misses, snapshots, snapshot_failures;
    uint64_t last_expire;
    uint64_t last_resnapshot;
};

// Samples of events `events`, in order of time, at most OPD_BATCH.
void opd_attribute_samples(struct opd_pipeline *pipeline, const uint32_t *events,
                           const struct opd_record *records, unsigned count);
// Opens a sample of event `event` if that is an IBS event, else NULL.
struct opd_ibs_sample *opd_ibs_open(const struct opd_pipeline *pipeline, uint32_t event,
                                    const struct opd_record *record, struct opd_ibs_sample *sample);
// Keeps of its derived events those wanted of its mode; false: none is.
bool opd_ibs_select(struct opd_ibs_sample *sample, bool kernel);
void opd_ibs_note(struct opd_pipeline *pipeline, const struct opd_ibs_sample *sample);
// Counts it in all its rows, or that there is no room for it.
void opd_ibs_count(struct opd_pipeline *pipeline, const struct opd_hit *hit);
void opd_ibs_full(struct opd_pipeline *pipeline, const struct opd_hit *hit);
// Keeps what its tables are asked to beside the rows; `sfile` OPD_INTERN_FULL: nothing.
void opd_ibs_keep(struct opd_pipeline *pipeline, const struct opd_hit *hit, uint32_t sfile,
                  uint64_t period);
// The address inside its image, and the image, of one address (attribute.c).
uint32_t opd_resolve(const struct opd_pipeline *pipeline, const struct opd_maps *maps, bool kernel,
                     uint64_t *address);
// Counts a sample at its address, where a tap wants it (attribute_pc.c).
void opd_count_address(struct opd_pipeline *pipeline, const struct opd_hit *hit);
// One row of a hit, and the counts of that event (attribute.c).
void opd_count_row(struct opd_pipeline *pipeline, const struct opd_hit *hit, unsigned event,
                   uint32_t sfile, uint64_t weight);
uint32_t opd_sfile_number(const struct opd_pipeline *pipeline, struct opd_tables *tables,
                          const struct opd_thread *thread, const struct opd_sfile_key *key);
uint64_t opd_weight_of(struct opd_weight *weight, const struct opd_record *record);
// The oldest change that lies ahead takes effect.
void opd_weight_step(struct opd_weight *weight);
// Decides the label of a process anew, for a sample of it.
void opd_label_refresh(struct opd_pipeline *pipeline, struct opd_label *label,
                       const struct opd_record *record);
void opd_pipeline_feed_map(struct opd_pipeline *pipeline, const struct opd_record *record);
void opd_pipeline_feed_ksymbol(struct opd_pipeline *pipeline, const struct opd_record *record);
void opd_pipeline_snapshot_one(struct opd_pipeline *pipeline, uint32_t pid);

#endif
