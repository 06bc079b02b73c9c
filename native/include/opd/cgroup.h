// SPDX-License-Identifier: Apache-2.0
// The cgroups that samples belong to, by number; and how a cgroup is found:
// by the kernel's id of it, or by the text of /proc/PID/cgroup.
#ifndef OPD_CGROUP_H
#define OPD_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OPD_CGROUP_UNKNOWN 0u
#define OPD_CGROUP_ROOT 1u // "/", always there

// The table. Numbers are never reused. One thread puts, finds and sweeps; any
// thread takes what is to be told.
struct opd_cgroups;

// At most `limit` cgroups at a time. NULL with errno ENOMEM.
struct opd_cgroups *opd_cgroups_create(uint32_t limit);
void opd_cgroups_destroy(struct opd_cgroups *cgroups);

// The number of a path that a sample uses, new or known; UNKNOWN at the limit
// (counted) or for a path that is none.
uint32_t opd_cgroups_put(struct opd_cgroups *cgroups, const char *path);
// The kernel says which cgroup an id is; it is told on only once it is found.
void opd_cgroups_set_id(struct opd_cgroups *cgroups, uint64_t id, const char *path);
// The number of an id that a sample uses; UNKNOWN when nobody told of it.
uint32_t opd_cgroups_find(struct opd_cgroups *cgroups, uint64_t id);

// What a window's reader must know: a cgroup (its path is the caller's to
// free) or, with path NULL, that no later window mentions that number.
struct opd_cgroup {
    uint32_t uid;
    char *path;
};
bool opd_cgroups_waiting(struct opd_cgroups *cgroups); // whether it would give any
size_t opd_cgroups_take(struct opd_cgroups *cgroups, struct opd_cgroup *out, size_t room);
void opd_cgroup_release(struct opd_cgroup *cgroup);

// At a window's end. Past three quarters of the limit it forgets the cgroups
// that are not among `used` (sorted here), and tells so after the next window.
bool opd_cgroups_is_full(const struct opd_cgroups *cgroups);
void opd_cgroups_turn(struct opd_cgroups *cgroups);
void opd_cgroups_sweep(struct opd_cgroups *cgroups, uint32_t *used, size_t count);

struct opd_cgroups_stats {
    uint32_t live, limit;
    uint64_t refused, swept, bytes;
};
void opd_cgroups_stats(struct opd_cgroups *cgroups, struct opd_cgroups_stats *stats);

// The most telling path of the text of /proc/PID/cgroup: that of version 2
// unless it is "/", else that of name=systemd unless it is "/", else the
// deepest of the others (memory, cpu, pids first). -ENOENT when there is none.
int opd_cgroup_choose(const char *text, size_t length, char *path, size_t size);

// The hierarchy whose ids samples carry: that of perf_event, which is version
// 2's unless it is mounted as a version 1.
struct opd_hierarchy;

// NULL when it is mounted nowhere (errno ENOENT), or errno ENOMEM.
struct opd_hierarchy *opd_hierarchy_open(const char *proc_root);
void opd_hierarchy_close(struct opd_hierarchy *hierarchy);
uint64_t opd_hierarchy_root(const struct opd_hierarchy *hierarchy); // the id of "/"
// Other hierarchies place processes too: "/" in this one says nothing.
bool opd_hierarchy_is_mixed(const struct opd_hierarchy *hierarchy);
// The path of an id: by the kernel's handle, else (without the right to use
// those) by walking the tree, of a few thousand cgroups and once a second at
// most. 0, -ESTALE when it is gone, -EAGAIN when it was walked just now.
int opd_hierarchy_path(struct opd_hierarchy *hierarchy, uint64_t id, uint64_t now, char *path,
                       size_t size);
// For tests: as without the right to use handles.
void opd_hierarchy_walk_only(struct opd_hierarchy *hierarchy);

#endif
