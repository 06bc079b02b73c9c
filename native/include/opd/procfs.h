// SPDX-License-Identifier: Apache-2.0
// What only /proc can tell: the processes that were there before the events
// began, and the files that they run. Slow (a system call a line of thought),
// so it is asked at start and for what no record explained.
#ifndef OPD_PROCFS_H
#define OPD_PROCFS_H

#include <stdint.h>

#include "opd/aspace.h"
#include "opd/image.h"

// CLOCK_MONOTONIC now, in ns.
uint64_t opd_clock_monotonic(void);

// Snapshots one process: its executable mappings and its threads' names.
// 0, or -ENOENT when it is gone, or -EACCES when its maps may not be read (its
// names are known then).
int opd_procfs_snapshot(const char *proc_root, uint32_t pid, struct opd_spaces *spaces,
                        struct opd_images *images);

// Every process there is. `pause` (may be NULL) is called after every few, so
// that the caller can keep rings from filling. Returns how many, or -errno.
int opd_procfs_snapshot_all(const char *proc_root, struct opd_spaces *spaces,
                            struct opd_images *images, void (*pause)(void *context), void *context);

// The most telling path of the cgroups of `pid` (opd_cgroup_choose), as its
// thread `tid` shows it where the first one has exited. 0, or -errno: -ESRCH
// when the process is gone or on its way (it then shows "/").
int opd_procfs_cgroup(const char *proc_root, uint32_t pid, uint32_t tid, char *path, size_t size);

// Opens the file behind the mapping [start, end) of `pid`, by map_files,
// through the process's own root, or by its path; only the file that `key`
// means. A descriptor, or -errno.
int opd_procfs_open_image(const char *proc_root, uint32_t pid, uint64_t start, uint64_t end,
                          const struct opd_image_key *key);

#endif
