// SPDX-License-Identifier: Apache-2.0
// Which cgroup a process is in, decided for a sample of it. The id in the
// sample decides where it can. Else it is the text of /proc/PID/cgroup, read
// at the first sample after an exec (few processes of a storm are ever
// sampled), and again at growing ages, since processes are moved.
#include <errno.h>
#include <limits.h>
#include <stdint.h>

#include "opd/procfs.h"
#include "pipeline.h"

#define READS_A_SECOND 1000u
#define DEFERRED_NS 10000000u
#define RETRY_NS 1000000000u
#define LATER_NS 1000000000000u // no read is put off for longer
#define PARENTS_MOST 8u

// A new process is where its parent is. How that is known is known of the
// child only as far as its own samples can tell.
void
opd_label_fork(struct opd_label *child, const struct opd_label *parent, uint32_t parent_pid,
               uint64_t time)
{
    *child = (struct opd_label){.stale = true, .born = time};
    if (parent == NULL)
        return;
    child->id = parent->id;
    child->cgroup = parent->cgroup;
    child->how = parent->how == OPD_LABEL_READ ? OPD_LABEL_INHERITED : parent->how;
    child->stale = parent->stale;
    child->parent = parent->stale ? parent_pid : 0;
    if (parent->how == OPD_LABEL_EXACT)
        child->next = UINT64_MAX;
    else if (!parent->stale)
        child->next = time + OPD_LABEL_SETTLED_NS;
}

// Managers move a process between its fork and its exec.
void
opd_label_exec(struct opd_label *label, uint64_t time)
{
    label->born = time;
    if (label->how == OPD_LABEL_EXACT)
        return;
    label->how = label->how == OPD_LABEL_READ ? OPD_LABEL_INHERITED : label->how;
    label->stale = true;
    label->next = 0;
}

// One more read, unless there were too many in this second.
static bool
may_read(struct opd_pipeline *pipeline, uint64_t now)
{
    if (now - pipeline->reads_second >= 1000000000u) {
        pipeline->reads_second = now;
        pipeline->reads = 0;
    }
    if (pipeline->reads >= READS_A_SECOND) {
        pipeline->labels.deferred++;
        return false;
    }
    pipeline->reads++;
    return true;
}

void
opd_pipeline_note_exit(struct opd_pipeline *pipeline, uint32_t pid, uint32_t tid, uint64_t time)
{
    if (pid == tid)
        pipeline->exits[pid % EXITS_SIZE] =
            (struct opd_exit){.pid = pid, .when = (uint32_t)(time >> EXIT_UNIT_SHIFT)};
}

// Whether it ended meanwhile: most of a storm's processes have, and to ask
// /proc of one that is gone costs more than its samples. Only for the main
// thread: a process whose other threads go on can be read through them.
static bool
has_ended(const struct opd_pipeline *pipeline, uint32_t pid, uint32_t tid, uint64_t now)
{
    const struct opd_exit *exit = &pipeline->exits[pid % EXITS_SIZE];
    return pid == tid && exit->pid == pid &&
           (int32_t)(exit->when - (uint32_t)(now >> EXIT_UNIT_SHIFT)) >= 0;
}

// When a label that was read at `now` is read again: at the age of a second,
// of ten, of a hundred…
static uint64_t
next_read(const struct opd_label *label, uint64_t now)
{
    uint64_t age = now > label->born ? now - label->born : 0;
    if (age < OPD_LABEL_SETTLED_NS)
        return label->born + OPD_LABEL_SETTLED_NS;
    return now + (age < LATER_NS / 9 ? 9 * age : LATER_NS);
}

static void
read_text(struct opd_pipeline *pipeline, struct opd_label *label, uint32_t pid, uint32_t tid,
          uint64_t now, unsigned depth)
{
    char path[PATH_MAX];
    uint32_t cgroup = OPD_CGROUP_UNKNOWN;
    if (!has_ended(pipeline, pid, tid, now)) {
        if (!may_read(pipeline, now)) {
            label->next = now + DEFERRED_NS;
            return;
        }
        pipeline->labels.reads++;
        if (opd_procfs_cgroup(pipeline->proc_root, pid, tid, path, sizeof path) == 0)
            cgroup = opd_cgroups_put(pipeline->cgroups, path);
    }
    if (cgroup != OPD_CGROUP_UNKNOWN) {
        label->cgroup = cgroup;
        label->how = OPD_LABEL_READ;
        label->stale = false;
        label->parent = 0;
        label->next = next_read(label, now);
        return;
    }
    pipeline->labels.failed++;
    label->next = now + RETRY_NS;
    // Gone before it was read: it was where its parent is, whose own label may
    // never have been asked for.
    uint32_t parent_pid = label->parent;
    label->parent = 0;
    struct opd_label *parent =
        parent_pid != 0 ? opd_spaces_label(pipeline->spaces, parent_pid) : NULL;
    if (parent == NULL || parent == label || parent->born > label->born)
        return;
    if (parent->stale && depth < PARENTS_MOST)
        read_text(pipeline, parent, parent_pid, parent_pid, now, depth + 1);
    if (parent->cgroup != OPD_CGROUP_UNKNOWN) {
        label->cgroup = parent->cgroup;
        label->how = OPD_LABEL_INHERITED;
    }
}

// The number of the cgroup of an id, asking the kernel when no record told.
static uint32_t
resolve_id(struct opd_pipeline *pipeline, uint64_t id, uint64_t now, bool *ask_again)
{
    char path[PATH_MAX];
    uint32_t cgroup = opd_cgroups_find(pipeline->cgroups, id);
    if (cgroup != OPD_CGROUP_UNKNOWN || pipeline->hierarchy == NULL)
        return cgroup;
    int rc = opd_hierarchy_path(pipeline->hierarchy, id, now, path, sizeof path);
    *ask_again = rc == -EAGAIN;
    if (rc == 0) {
        opd_cgroups_set_id(pipeline->cgroups, id, path);
        cgroup = opd_cgroups_find(pipeline->cgroups, id);
    }
    if (cgroup != OPD_CGROUP_UNKNOWN)
        pipeline->labels.resolved++;
    else
        pipeline->labels.unresolved++;
    return cgroup;
}

// Beside other hierarchies "/" only says that this one does not place the
// process.
static bool
id_tells(const struct opd_pipeline *pipeline, uint64_t id)
{
    return id != 0 &&
           !(pipeline->hierarchy != NULL && opd_hierarchy_is_mixed(pipeline->hierarchy) &&
             id == opd_hierarchy_root(pipeline->hierarchy));
}

void
opd_label_refresh(struct opd_pipeline *pipeline, struct opd_label *label,
                  const struct opd_record *record)
{
    uint64_t id = record->u.sample.cgroup;
    if (id != label->id) {
        bool ask_again = false;
        uint32_t cgroup = id_tells(pipeline, id)
                              ? resolve_id(pipeline, id, record->time, &ask_again)
                              : OPD_CGROUP_UNKNOWN;
        if (cgroup != OPD_CGROUP_UNKNOWN) {
            *label = (struct opd_label){.id = id,
                                        .next = UINT64_MAX,
                                        .born = label->born,
                                        .cgroup = cgroup,
                                        .how = OPD_LABEL_EXACT};
            return;
        }
        if (label->how == OPD_LABEL_EXACT) // it left that cgroup
            *label = (struct opd_label){.born = label->born, .stale = true};
        label->id = ask_again ? 0 : id;
    }
    if (record->time < label->next)
        return;
    if (pipeline->proc_root == NULL || label->how == OPD_LABEL_EXACT)
        label->next = UINT64_MAX;
    else
        read_text(pipeline, label, record->pid, record->tid, record->time, 0);
}

bool
opd_pipeline_knows_ids(const struct opd_pipeline *pipeline)
{
    return pipeline->hierarchy != NULL;
}
