// SPDX-License-Identifier: Apache-2.0
// Address spaces in time: which image lay at an address of a process when a
// sample was taken, and what its threads were called. Built from MMAP2, COMM,
// FORK and EXIT records in time order; /proc is only the snapshot at start.
// Mappings are shared between fork's parent and child until one of them
// changes. Everything is bounded; what does not fit is counted.
#ifndef OPD_ASPACE_H
#define OPD_ASPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OPD_COMM_SIZE 16
// A process this old has most often been moved to where it stays.
#define OPD_LABEL_SETTLED_NS 1000000000u

struct opd_mapping {
    uint64_t start, end; // [start, end)
    uint64_t offset;     // in the image, of `start`
    uint32_t image;
    uint32_t reserved;
};

// How a process's cgroup is known.
enum opd_label_how {
    OPD_LABEL_UNKNOWN,
    OPD_LABEL_INHERITED, // its parent's at fork; not read since, or it was gone
    OPD_LABEL_READ,      // from /proc/PID/cgroup
    OPD_LABEL_EXACT,     // by the id in the sample
};

// The cgroup of a process; the pipeline decides it (label.c), fork hands it on.
struct opd_label {
    uint64_t id;   // the id in the samples that it was decided for; 0 none
    uint64_t next; // event time from which it is looked at again
    uint64_t born; // event time of its fork, exec or snapshot
    uint32_t cgroup;
    uint32_t parent; // forked from this process, whose label was stale; 0 none
    uint8_t how;     // enum opd_label_how
    bool stale;      // not read since its exec
};

// A sample file that the thread had hits in, by what of its key may differ
// between them; `window` 0: none. The caller's; a new comm empties it.
struct opd_thread_sfile {
    uint64_t window;
    uint32_t number, image, cgroup;
    int32_t cpu;
    uint16_t event;
};
#define OPD_THREAD_SFILES 3

struct opd_maps; // sorted, without overlap, shared by reference count
struct opd_process;
struct opd_thread;
struct opd_spaces;

struct opd_spaces_limits {
    uint32_t processes, threads; // entries
    uint32_t mappings;           // of one process
};

// NULL with errno on ENOMEM.
struct opd_spaces *opd_spaces_create(const struct opd_spaces_limits *limits);
void opd_spaces_destroy(struct opd_spaces *spaces);

// Records, in time order. `time` is the record's, in ns of the events' clock;
// 0 for records synthesised before the events began.
struct opd_fork {
    uint32_t pid, tid, parent_pid, parent_tid;
    bool own_maps; // the child does not inherit them (synthesised records)
};
void opd_spaces_fork(struct opd_spaces *spaces, const struct opd_fork *fork, uint64_t time);
void opd_spaces_comm(struct opd_spaces *spaces, uint32_t pid, uint32_t tid, const char *comm,
                     bool exec, uint64_t time);
void opd_spaces_exit(struct opd_spaces *spaces, uint32_t pid, uint32_t tid, uint64_t time);
// -ENOSPC when the process has its limit of mappings: unmapping is not
// reported, so a live caller takes a new snapshot of it then.
int opd_spaces_map(struct opd_spaces *spaces, uint32_t pid, const struct opd_mapping *mapping,
                   uint64_t time);

// The snapshot of one process, read from /proc at `time` (the clock before
// reading): records older than that change nothing that the snapshot knows.
// Begin replaces whatever was known of the process.
void opd_spaces_snapshot_begin(struct opd_spaces *spaces, uint32_t pid, uint64_t time);
void opd_spaces_snapshot_map(struct opd_spaces *spaces, uint32_t pid,
                             const struct opd_mapping *mapping);
void opd_spaces_snapshot_thread(struct opd_spaces *spaces, uint32_t pid, uint32_t tid,
                                const char *comm);

// Whether a thread of the process is known that has not exited.
bool opd_spaces_lives(const struct opd_spaces *spaces, uint32_t pid);

// What a sample needs. The thread is made when it is not known (its comm then
// is ":TID"); *known tells. NULL only when the table is full.
const struct opd_thread *opd_spaces_thread(struct opd_spaces *spaces, uint32_t pid, uint32_t tid,
                                           bool *known);
// A thread that is known, else NULL; and steps towards it that fetch memory
// ahead of time.
const struct opd_thread *opd_spaces_find(const struct opd_spaces *spaces, uint32_t pid,
                                         uint32_t tid);
void opd_spaces_fetch_chain(const struct opd_spaces *spaces, uint32_t tid);
void opd_spaces_fetch_thread(const struct opd_spaces *spaces, uint32_t tid);
const char *opd_thread_comm(const struct opd_thread *thread);                // 16 bytes, NUL padded
struct opd_thread_sfile *opd_thread_sfiles(const struct opd_thread *thread); // OPD_THREAD_SFILES
const struct opd_maps *opd_thread_maps(const struct opd_thread *thread);     // may be NULL
struct opd_label *opd_thread_label(const struct opd_thread *thread);         // of its process
// What a fork and an exec do to it; `parent` may be NULL.
void opd_label_fork(struct opd_label *child, const struct opd_label *parent, uint32_t parent_pid,
                    uint64_t time);
void opd_label_exec(struct opd_label *label, uint64_t time);
struct opd_label *opd_spaces_label(struct opd_spaces *spaces, uint32_t pid); // NULL: not known

// The mapping that holds `address`, or NULL.
const struct opd_mapping *opd_maps_find(const struct opd_maps *maps, uint64_t address);
// Differs whenever any mapping differs; the same for maps shared by fork.
uint64_t opd_maps_version(const struct opd_maps *maps);

// Frees what exited more than `linger_ns` before `now` (samples of a dying
// task come after its EXIT).
void opd_spaces_expire(struct opd_spaces *spaces, uint64_t now, uint64_t linger_ns);
// Lets go of threads whose EXIT was lost, or was older than the look into
// /proc that found them on their way out.
void opd_spaces_sweep(struct opd_spaces *spaces, uint64_t now,
                      bool (*gone)(uint32_t pid, uint32_t tid));

// Calls `visit` for the image of every mapping (shared ones may come twice).
void opd_spaces_each_image(const struct opd_spaces *spaces,
                           void (*visit)(void *context, uint32_t image), void *context);

// The cgroups of all processes, one each: at most `room`; how many there are.
size_t opd_spaces_cgroups(const struct opd_spaces *spaces, uint32_t *out, size_t room);

struct opd_spaces_stats {
    uint32_t processes, threads, peak_processes;
    uint64_t mappings;
    uint64_t refused_processes, refused_threads, refused_mappings, bytes;
};
void opd_spaces_stats(const struct opd_spaces *spaces, struct opd_spaces_stats *stats);

#endif
