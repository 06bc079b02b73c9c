// SPDX-License-Identifier: Apache-2.0
// Names whose samples are counted; private to the pipeline.
#ifndef OPD_FILTER_H
#define OPD_FILTER_H

#include <stdbool.h>
#include <stdint.h>

struct opd_filter;
struct opd_spaces;
struct opd_thread;

// Lets names that match `glob` (fnmatch) pass; makes *filter when it is NULL.
// 0, -ENOMEM, or -ENOSPC past 16 globs.
int opd_filter_add(struct opd_filter **filter, const char *glob);
void opd_filter_free(struct opd_filter *filter);

// Whether the thread's name, or that of its process's first thread, passes.
bool opd_filter_passes(struct opd_filter *filter, struct opd_spaces *spaces,
                       const struct opd_thread *thread, uint32_t pid, uint32_t tid);

#endif
