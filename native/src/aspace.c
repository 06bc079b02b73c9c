// SPDX-License-Identifier: Apache-2.0
#include "opd/aspace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "maps.h"

struct opd_process {
    struct opd_process *next; // in its hash chain
    uint32_t pid;
    uint32_t threads;       // living and lingering ones that point here
    uint64_t snapshot_time; // older records are already in `maps`
    struct opd_maps *maps;
    struct opd_label label;
};

struct opd_thread {
    struct opd_thread *next; // in its hash chain
    struct opd_process *process;
    uint32_t tid;
    bool dead, named;
    char comm[OPD_COMM_SIZE];
    struct opd_thread_sfile sfiles[OPD_THREAD_SFILES];
    struct opd_thread *dead_next, *dead_previous;
    uint64_t exit_time;
};

struct opd_spaces {
    struct opd_spaces_limits limits;
    struct opd_process **processes;
    struct opd_thread **threads;
    uint32_t process_chains, thread_chains;
    uint32_t process_count, thread_count, peak_processes;
    uint64_t next_version;
    struct opd_thread *dead_first, *dead_last; // oldest exit first
    uint64_t refused_processes, refused_threads, refused_mappings;
};

static uint32_t
chain_of(uint32_t id, uint32_t chains)
{
    return (id * 0x9e3779b1u) >> 8 & (chains - 1);
}

static uint32_t
power_of_two(uint32_t at_least)
{
    uint32_t power = 64;
    while (power < at_least && power < 1u << 16)
        power *= 2;
    return power;
}

struct opd_spaces *
opd_spaces_create(const struct opd_spaces_limits *limits)
{
    struct opd_spaces *spaces = calloc(1, sizeof *spaces);
    if (spaces == NULL)
        return NULL;
    spaces->limits = *limits;
    spaces->process_chains = power_of_two(limits->processes / 4);
    spaces->thread_chains = power_of_two(limits->threads / 4);
    spaces->processes = calloc(spaces->process_chains, sizeof *spaces->processes);
    spaces->threads = calloc(spaces->thread_chains, sizeof *spaces->threads);
    if (spaces->processes == NULL || spaces->threads == NULL) {
        opd_spaces_destroy(spaces);
        errno = ENOMEM;
        return NULL;
    }
    return spaces;
}

static struct opd_process *
find_process(const struct opd_spaces *spaces, uint32_t pid)
{
    struct opd_process *process = spaces->processes[chain_of(pid, spaces->process_chains)];
    while (process != NULL && process->pid != pid)
        process = process->next;
    return process;
}

static struct opd_thread *
find_thread(const struct opd_spaces *spaces, uint32_t tid)
{
    struct opd_thread *thread = spaces->threads[chain_of(tid, spaces->thread_chains)];
    while (thread != NULL && thread->tid != tid)
        thread = thread->next;
    return thread;
}

static void
process_release(struct opd_spaces *spaces, struct opd_process *process)
{
    if (--process->threads > 0)
        return;
    struct opd_process **link = &spaces->processes[chain_of(process->pid, spaces->process_chains)];
    while (*link != process)
        link = &(*link)->next;
    *link = process->next;
    opd_maps_drop(process->maps);
    free(process);
    spaces->process_count--;
}

static void
dead_unlink(struct opd_spaces *spaces, struct opd_thread *thread)
{
    if (!thread->dead)
        return;
    if (thread->dead_previous != NULL)
        thread->dead_previous->dead_next = thread->dead_next;
    else
        spaces->dead_first = thread->dead_next;
    if (thread->dead_next != NULL)
        thread->dead_next->dead_previous = thread->dead_previous;
    else
        spaces->dead_last = thread->dead_previous;
    thread->dead = false;
    thread->dead_next = thread->dead_previous = NULL;
}

static void
remove_thread(struct opd_spaces *spaces, struct opd_thread *thread)
{
    struct opd_thread **link = &spaces->threads[chain_of(thread->tid, spaces->thread_chains)];
    while (*link != thread)
        link = &(*link)->next;
    *link = thread->next;
    dead_unlink(spaces, thread);
    process_release(spaces, thread->process);
    free(thread);
    spaces->thread_count--;
}

void
opd_spaces_destroy(struct opd_spaces *spaces)
{
    if (spaces == NULL)
        return;
    for (uint32_t i = 0; spaces->threads != NULL && i < spaces->thread_chains; i++)
        while (spaces->threads[i] != NULL)
            remove_thread(spaces, spaces->threads[i]);
    free(spaces->threads);
    free(spaces->processes);
    free(spaces);
}

// A thread of `pid`, made with its process when needed. NULL at a limit.
static struct opd_thread *
get_thread(struct opd_spaces *spaces, uint32_t pid, uint32_t tid)
{
    struct opd_thread *thread = find_thread(spaces, tid);
    if (thread != NULL && thread->process->pid == pid)
        return thread;
    if (thread != NULL)
        remove_thread(spaces, thread); // the number was reused by another process

    struct opd_process *process = find_process(spaces, pid);
    if (process == NULL && spaces->process_count >= spaces->limits.processes) {
        spaces->refused_processes++;
        return NULL;
    }
    if (spaces->thread_count >= spaces->limits.threads) {
        spaces->refused_threads++;
        return NULL;
    }
    thread = calloc(1, sizeof *thread);
    if (thread == NULL)
        return NULL;
    if (process == NULL) {
        process = calloc(1, sizeof *process);
        if (process == NULL) {
            free(thread);
            return NULL;
        }
        process->pid = pid;
        process->label.stale = true;
        struct opd_process **chain = &spaces->processes[chain_of(pid, spaces->process_chains)];
        process->next = *chain;
        *chain = process;
        if (++spaces->process_count > spaces->peak_processes)
            spaces->peak_processes = spaces->process_count;
    }
    process->threads++;
    thread->process = process;
    thread->tid = tid;
    snprintf(thread->comm, sizeof thread->comm, ":%d", (int)tid);
    struct opd_thread **chain = &spaces->threads[chain_of(tid, spaces->thread_chains)];
    thread->next = *chain;
    *chain = thread;
    spaces->thread_count++;
    return thread;
}

static void
set_comm(struct opd_thread *thread, const char *comm)
{
    memset(thread->comm, 0, sizeof thread->comm);
    memcpy(thread->comm, comm, strnlen(comm, sizeof thread->comm - 1));
    memset(thread->sfiles, 0, sizeof thread->sfiles);
    thread->named = true;
}

void
opd_spaces_fork(struct opd_spaces *spaces, const struct opd_fork *fork, uint64_t time)
{
    bool new_process = fork->pid != fork->parent_pid;
    struct opd_process *known = find_process(spaces, fork->pid);
    struct opd_thread *old = find_thread(spaces, fork->tid);

    if (known != NULL && known->snapshot_time > time) {
        // The snapshot already has the process; it may lack this thread.
        if (old != NULL && old->process == known)
            return;
        new_process = false;
    } else {
        if (old != NULL)
            remove_thread(spaces, old); // the number comes back
        known = find_process(spaces, fork->pid);
        if (known != NULL && new_process) {
            // A new process under an old number: nothing of the old one holds.
            opd_maps_drop(known->maps);
            known->maps = NULL;
            known->snapshot_time = 0;
        }
    }
    struct opd_thread *thread = get_thread(spaces, fork->pid, fork->tid);
    if (thread == NULL)
        return;
    struct opd_thread *parent = find_thread(spaces, fork->parent_tid);
    if (parent == NULL || parent->process->pid != fork->parent_pid)
        parent = find_thread(spaces, fork->parent_pid);
    if (parent != NULL && parent->named)
        set_comm(thread, parent->comm);
    if (new_process) {
        struct opd_process *source = find_process(spaces, fork->parent_pid);
        if (source != NULL && !fork->own_maps)
            thread->process->maps = opd_maps_share(source->maps);
        opd_label_fork(&thread->process->label, source != NULL ? &source->label : NULL,
                       fork->parent_pid, time);
    }
}

void
opd_spaces_comm(struct opd_spaces *spaces, uint32_t pid, uint32_t tid, const char *comm, bool exec,
                uint64_t time)
{
    struct opd_thread *thread = get_thread(spaces, pid, tid);
    if (thread == NULL || (thread->process->snapshot_time > time && thread->named))
        return;
    set_comm(thread, comm);
    dead_unlink(spaces, thread);
    if (exec) {
        opd_maps_drop(thread->process->maps);
        thread->process->maps = NULL;
        opd_label_exec(&thread->process->label, time);
    }
}

static void
mark_dead(struct opd_spaces *spaces, struct opd_thread *thread, uint64_t time)
{
    thread->dead = true;
    thread->exit_time = time;
    thread->dead_previous = spaces->dead_last;
    if (spaces->dead_last != NULL)
        spaces->dead_last->dead_next = thread;
    else
        spaces->dead_first = thread;
    spaces->dead_last = thread;
}

void
opd_spaces_exit(struct opd_spaces *spaces, uint32_t pid, uint32_t tid, uint64_t time)
{
    struct opd_thread *thread = find_thread(spaces, tid);
    if (thread == NULL || thread->process->pid != pid || thread->dead ||
        thread->process->snapshot_time > time)
        return;
    mark_dead(spaces, thread, time);
}

static int
put_mapping(struct opd_spaces *spaces, struct opd_process *process,
            const struct opd_mapping *mapping, bool gaps)
{
    int rc = opd_maps_put(&process->maps, mapping, gaps, spaces->limits.mappings,
                          spaces->next_version + 1);
    if (rc > 0)
        spaces->next_version++;
    if (rc < 0)
        spaces->refused_mappings++;
    return rc < 0 ? rc : 0;
}

int
opd_spaces_map(struct opd_spaces *spaces, uint32_t pid, const struct opd_mapping *mapping,
               uint64_t time)
{
    struct opd_process *process = find_process(spaces, pid);
    if (process == NULL) {
        struct opd_thread *thread = get_thread(spaces, pid, pid);
        if (thread == NULL)
            return 0;
        process = thread->process;
    }
    return put_mapping(spaces, process, mapping, process->snapshot_time > time);
}

void
opd_spaces_snapshot_begin(struct opd_spaces *spaces, uint32_t pid, uint64_t time)
{
    struct opd_thread *thread = get_thread(spaces, pid, pid);
    if (thread == NULL)
        return;
    struct opd_process *process = thread->process;
    opd_maps_drop(process->maps);
    process->maps = NULL;
    process->snapshot_time = time;
    if (process->label.born == 0)
        process->label.born = time;
}

void
opd_spaces_snapshot_map(struct opd_spaces *spaces, uint32_t pid, const struct opd_mapping *mapping)
{
    struct opd_process *process = find_process(spaces, pid);
    if (process != NULL)
        put_mapping(spaces, process, mapping, false);
}

void
opd_spaces_snapshot_thread(struct opd_spaces *spaces, uint32_t pid, uint32_t tid, const char *comm)
{
    struct opd_thread *thread = get_thread(spaces, pid, tid);
    if (thread != NULL)
        set_comm(thread, comm);
}

bool
opd_spaces_lives(const struct opd_spaces *spaces, uint32_t pid)
{
    const struct opd_process *process = find_process(spaces, pid);
    if (process == NULL)
        return false;
    const struct opd_thread *main = find_thread(spaces, pid);
    if (main != NULL && main->process == process && !main->dead)
        return true;
    // A main thread may end before the others do.
    for (uint32_t chain = 0; chain < spaces->thread_chains; chain++)
        for (const struct opd_thread *one = spaces->threads[chain]; one != NULL; one = one->next)
            if (one->process == process && !one->dead)
                return true;
    return false;
}

const struct opd_thread *
opd_spaces_thread(struct opd_spaces *spaces, uint32_t pid, uint32_t tid, bool *known)
{
    struct opd_thread *thread = find_thread(spaces, tid);
    *known = thread != NULL && thread->process->pid == pid;
    return *known ? thread : get_thread(spaces, pid, tid);
}

const struct opd_thread *
opd_spaces_find(const struct opd_spaces *spaces, uint32_t pid, uint32_t tid)
{
    const struct opd_thread *thread = find_thread(spaces, tid);
    return thread != NULL && thread->process->pid == pid ? thread : NULL;
}

void
opd_spaces_fetch_chain(const struct opd_spaces *spaces, uint32_t tid)
{
    __builtin_prefetch(&spaces->threads[chain_of(tid, spaces->thread_chains)]);
}

void
opd_spaces_fetch_thread(const struct opd_spaces *spaces, uint32_t tid)
{
    const struct opd_thread *thread = spaces->threads[chain_of(tid, spaces->thread_chains)];
    __builtin_prefetch(thread);
}

struct opd_thread_sfile *
opd_thread_sfiles(const struct opd_thread *thread)
{
    return (struct opd_thread_sfile *)thread->sfiles;
}

const char *
opd_thread_comm(const struct opd_thread *thread)
{
    return thread->comm;
}

const struct opd_maps *
opd_thread_maps(const struct opd_thread *thread)
{
    return thread->process->maps;
}

struct opd_label *
opd_thread_label(const struct opd_thread *thread)
{
    return &thread->process->label;
}

struct opd_label *
opd_spaces_label(struct opd_spaces *spaces, uint32_t pid)
{
    struct opd_process *process = find_process(spaces, pid);
    return process != NULL ? &process->label : NULL;
}

size_t
opd_spaces_cgroups(const struct opd_spaces *spaces, uint32_t *out, size_t room)
{
    size_t count = 0;
    for (uint32_t i = 0; i < spaces->process_chains; i++)
        for (const struct opd_process *process = spaces->processes[i]; process != NULL;
             process = process->next, count++)
            if (count < room)
                out[count] = process->label.cgroup;
    return count;
}

void
opd_spaces_expire(struct opd_spaces *spaces, uint64_t now, uint64_t linger_ns)
{
    while (spaces->dead_first != NULL && spaces->dead_first->exit_time + linger_ns < now)
        remove_thread(spaces, spaces->dead_first);
}

void
opd_spaces_sweep(struct opd_spaces *spaces, uint64_t now, bool (*gone)(uint32_t pid, uint32_t tid))
{
    for (uint32_t i = 0; i < spaces->thread_chains; i++)
        for (struct opd_thread *one = spaces->threads[i]; one != NULL; one = one->next)
            if (!one->dead && gone(one->process->pid, one->tid))
                mark_dead(spaces, one, now);
}

void
opd_spaces_each_image(const struct opd_spaces *spaces, void (*visit)(void *context, uint32_t image),
                      void *context)
{
    for (uint32_t i = 0; i < spaces->process_chains; i++)
        for (struct opd_process *process = spaces->processes[i]; process != NULL;
             process = process->next)
            for (uint32_t j = 0; process->maps != NULL && j < process->maps->count; j++)
                visit(context, process->maps->items[j].image);
}

void
opd_spaces_stats(const struct opd_spaces *spaces, struct opd_spaces_stats *stats)
{
    *stats = (struct opd_spaces_stats){
        .processes = spaces->process_count,
        .threads = spaces->thread_count,
        .peak_processes = spaces->peak_processes,
        .refused_processes = spaces->refused_processes,
        .refused_threads = spaces->refused_threads,
        .refused_mappings = spaces->refused_mappings,
        .bytes = spaces->process_count * sizeof(struct opd_process) +
                 spaces->thread_count * sizeof(struct opd_thread) +
                 (spaces->process_chains + spaces->thread_chains) * sizeof(void *),
    };
    for (uint32_t i = 0; i < spaces->process_chains; i++)
        for (const struct opd_process *process = spaces->processes[i]; process != NULL;
             process = process->next) {
            if (process->maps == NULL)
                continue;
            stats->mappings += process->maps->count;
            stats->bytes +=
                process->maps->capacity * sizeof(struct opd_mapping) / process->maps->references;
        }
}
