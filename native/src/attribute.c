// SPDX-License-Identifier: Apache-2.0
// One sample: whose it is, where it was, and how it got there. This is the
// hot path; it allocates nothing but through the interning tables.
#include <errno.h>
#include <string.h>

#include "cost.h"
#include "filter.h"
#include "pipeline.h"

#define KERNEL_HALF (1ull << 63)
#define SKID_BYTES 256u

// The address inside its image, and the image, of one user or kernel address.
uint32_t
opd_resolve(const struct opd_pipeline *pipeline, const struct opd_maps *maps, bool kernel,
            uint64_t *address)
{
    if (kernel) {
        const struct opd_mapping *range = opd_maps_find(pipeline->kernel_maps, *address);
        return range != NULL ? range->image : OPD_UID_KERNEL;
    }
    const struct opd_mapping *mapping = opd_maps_find(maps, *address);
    if (mapping == NULL)
        return OPD_UID_UNKNOWN;
    // Pseudo images have no file to be an offset in.
    if (mapping->image != OPD_UID_ANON && mapping->image != OPD_UID_VSYSCALL &&
        mapping->image != OPD_UID_UNKNOWN)
        *address = *address - mapping->start + mapping->offset;
    return mapping->image;
}

static void
put_frame(struct opd_frame *frame, uint32_t image, uint64_t address)
{
    frame->image = image;
    frame->address_low = (uint32_t)address;
    frame->address_high = (uint32_t)(address >> 32);
}

static bool
mode_is_kernel(const struct opd_record *record)
{
    switch (record->misc & OPD_MISC_CPUMODE_MASK) {
    case OPD_MISC_USER:
    case OPD_MISC_GUEST_USER:
        return false;
    case OPD_MISC_KERNEL:
    case OPD_MISC_HYPERVISOR:
    case OPD_MISC_GUEST_KERNEL:
        return true;
    default: // unknown mode: the address tells
        return record->u.sample.ip >= KERNEL_HALF;
    }
}

static bool
is_idle(const struct opd_pipeline *pipeline, uint64_t ip)
{
    size_t low = 0, high = pipeline->idle_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (pipeline->idle_ends[middle] <= ip)
            low = middle + 1;
        else
            high = middle;
    }
    return low < pipeline->idle_count && pipeline->idle_starts[low] <= ip;
}

// The chain begins where the interrupt came, a little after the instruction
// that an IBS record is about. So near in the same mode it is taken for the
// same function, whose place in the chain the record's address takes.
static bool
is_skid(const struct opd_hit *hit, bool in_kernel, uint64_t ip)
{
    if (hit->ibs == NULL || !hit->ibs->exact || in_kernel != hit->kernel)
        return false;
    uint64_t exact = hit->record->u.sample.ip;
    return (ip > exact ? ip - exact : exact - ip) < SKID_BYTES;
}

// Of an instruction of user space whose interrupt came in the kernel: how the
// kernel got there is not how it was called.
static bool
is_after_entry(const struct opd_hit *hit, bool in_kernel)
{
    return in_kernel && !hit->kernel && hit->ibs != NULL && hit->ibs->exact;
}

// Walks the chain into `words`: the flags, then the frames.
static void
build_stack(const struct opd_pipeline *pipeline, struct opd_hit *hit, uint32_t *words)
{
    const struct opd_record *record = hit->record;
    const struct opd_maps *maps = hit->maps;
    struct opd_memo *memo = &hit->memo;
    struct opd_frame *frames = (struct opd_frame *)(words + 1);
    bool kernel = hit->kernel;
    uint32_t count = 0, flags = kernel ? STACK_HAS_KERNEL : STACK_HAS_USER;
    uint64_t address = record->u.sample.ip;
    memo->image = opd_resolve(pipeline, maps, kernel, &address);
    if (memo->image == OPD_UID_UNKNOWN)
        memo->degraded |= DEGRADED_NO_MAPPING;
    put_frame(&frames[count++], memo->image, address);

    uint64_t length = pipeline->options.callchain ? record->u.sample.chain_length : 0;
    bool in_kernel = kernel, first = true, known_context = true, broken = false;
    uint32_t depth = 0, user_frames = 0;
    for (uint64_t i = 0; i < length; i++) {
        uint64_t ip = record->u.sample.chain[i];
        if (ip >= OPD_CONTEXT_MAX) {
            known_context = ip == OPD_CONTEXT_KERNEL || ip == OPD_CONTEXT_USER;
            in_kernel = ip == OPD_CONTEXT_KERNEL;
            continue;
        }
        if (!known_context)
            continue;
        depth++;
        if (is_after_entry(hit, in_kernel))
            continue;
        if (!in_kernel)
            user_frames++;
        if (first) {
            first = false;
            if (ip == record->u.sample.ip || is_skid(hit, in_kernel, ip))
                continue; // the leaf itself, already there
        }
        if (count == FRAMES_MAX) {
            memo->degraded |= DEGRADED_TRUNCATED;
            break;
        }
        flags |= in_kernel ? STACK_HAS_KERNEL : STACK_HAS_USER;
        uint32_t image = opd_resolve(pipeline, maps, in_kernel, &ip);
        if (image == OPD_UID_UNKNOWN) {
            // A caller in no mapping is what the frame pointer of a program
            // that keeps none points at: data, another each time. That the
            // chain is broken here is kept, once; which data it was is not.
            if (!in_kernel)
                memo->degraded |= DEGRADED_UNWIND;
            if (broken)
                continue;
            ip = 0;
        }
        broken = image == OPD_UID_UNKNOWN;
        put_frame(&frames[count++], image, ip);
    }
    if (depth >= pipeline->options.stack_depth)
        memo->degraded |= DEGRADED_TRUNCATED;
    if (pipeline->options.callchain && !kernel && user_frames <= 1 &&
        (record->has & OPD_HAS_CALLCHAIN))
        memo->degraded |= DEGRADED_UNWIND;
    if (memo->degraded & DEGRADED_TRUNCATED)
        flags |= STACK_TRUNCATED;

    const struct opd_intern *stacks = pipeline->tables[pipeline->active].stacks;
    words[0] = flags;
    // The last eighth of the table is kept for stacks cut to their leaf, so
    // that a storm of distinct stacks costs depth, not samples.
    uint32_t room = pipeline->options.stack_limit - pipeline->options.stack_limit / 8;
    size_t bytes = pipeline->options.stack_bytes - pipeline->options.stack_bytes / 8;
    room /= pipeline->stack_divisor;
    bytes /= pipeline->stack_divisor;
    if (count > 1 && (opd_intern_count(stacks) >= room || opd_intern_bytes(stacks) >= bytes)) {
        memo->degraded |= DEGRADED_TRUNCATED;
        words[0] |= STACK_TRUNCATED;
        count = 1;
    }
    hit->words = words;
    hit->length = 4 + count * (uint32_t)sizeof *frames;
    hit->hash = opd_intern_fetch(stacks, words, hit->length);
}

static uint64_t
chain_key(const struct opd_pipeline *pipeline, const struct opd_hit *hit)
{
    const struct opd_record *record = hit->record;
    const uint64_t how = hit->kernel | (hit->ibs != NULL && hit->ibs->exact) << 1;
    uint64_t context[5] = {record->u.sample.ip, opd_maps_version(hit->maps),
                           pipeline->kernel_version, pipeline->window, how};
    uint64_t key = opd_hash64(context, sizeof context);
    if (pipeline->options.callchain && record->u.sample.chain_length > 0)
        key ^=
            opd_hash64(record->u.sample.chain, record->u.sample.chain_length * sizeof(uint64_t)) *
            0x9e3779b97f4a7c15u;
    return key | 1; // never the empty entry's 0
}

void
opd_weight_step(struct opd_weight *weight)
{
    weight->period = weight->ahead[0].period;
    weight->fixed = true;
    weight->ahead_count--;
    memmove(weight->ahead, weight->ahead + 1, weight->ahead_count * sizeof weight->ahead[0]);
}

uint64_t
opd_weight_of(struct opd_weight *weight, const struct opd_record *record)
{
    while (weight->ahead_count != 0 && record->time >= weight->ahead[0].since)
        opd_weight_step(weight);
    return weight->fixed || !(record->has & OPD_HAS_PERIOD) ? weight->period
                                                            : record->u.sample.period;
}

static struct opd_thread_sfile *
place_of(const struct opd_thread *thread, bool kernel, uint32_t image)
{
    return &opd_thread_sfiles(thread)[kernel ? 0 : 1 + image % (OPD_THREAD_SFILES - 1)];
}

// The sample file's number: a thread mostly goes on where it was.
uint32_t
opd_sfile_number(const struct opd_pipeline *pipeline, struct opd_tables *tables,
                 const struct opd_thread *thread, const struct opd_sfile_key *key)
{
    if (thread == NULL)
        return opd_intern_put(tables->sfiles, key, sizeof *key, NULL);
    struct opd_thread_sfile *last = place_of(thread, key->mode, key->image);
    if (last->window == pipeline->window && last->image == key->image &&
        last->cgroup == key->cgroup && last->event == key->event && last->cpu == key->cpu)
        return last->number;
    uint32_t number = opd_intern_put(tables->sfiles, key, sizeof *key, NULL);
    if (number != OPD_INTERN_FULL)
        *last = (struct opd_thread_sfile){.window = pipeline->window,
                                          .number = number,
                                          .image = key->image,
                                          .cgroup = key->cgroup,
                                          .cpu = key->cpu,
                                          .event = key->event};
    return number;
}

// Whose sample it is. NULL for the idle task, and where the tables are full.
static const struct opd_thread *
thread_of(struct opd_pipeline *pipeline, const struct opd_record *record)
{
    bool known = true;
    if (record->pid == 0)
        return NULL;
    const struct opd_thread *thread =
        opd_spaces_thread(pipeline->spaces, record->pid, record->tid, &known);
    if (!known && pipeline->proc_root != NULL && (int32_t)record->pid > 0) {
        // No record told of it (its FORK was lost): ask, once.
        opd_pipeline_snapshot_one(pipeline, record->pid);
        thread = opd_spaces_thread(pipeline->spaces, record->pid, record->tid, &known);
    }
    return thread;
}

// Whether the sample counts at all.
static bool
counts_at_all(struct opd_pipeline *pipeline, const struct opd_hit *hit)
{
    struct opd_window_counts *counts = &pipeline->tables[pipeline->active].counts;
    const struct opd_record *record = hit->record;
    if (record->pid == 0 && hit->kernel && !pipeline->options.keep_idle &&
        is_idle(pipeline, record->u.sample.ip)) {
        counts->idle++;
        return false;
    }
    if (pipeline->filter != NULL && !opd_filter_passes(pipeline->filter, pipeline->spaces,
                                                       hit->thread, record->pid, record->tid)) {
        counts->filtered++;
        return false;
    }
    return true;
}

static void
note_time(struct opd_window_counts *counts, uint64_t time)
{
    if (time == 0)
        return;
    if (counts->first_time == 0 || time < counts->first_time)
        counts->first_time = time;
    if (time > counts->last_time)
        counts->last_time = time;
}

static struct opd_memo *
memo_of(struct opd_pipeline *pipeline, uint64_t key)
{
    return &pipeline->memo[key >> 32 & (MEMO_SIZE - 1)];
}

// First step: the samples' threads and keys, until one whose thread is not
// known yet: to make it may change what the others' steps rely on. Returns
// how many samples were looked at; *hits of them go on.
static unsigned
begin(struct opd_pipeline *pipeline, const uint32_t *events, const struct opd_record *records,
      unsigned count, unsigned *hits)
{
    struct opd_window_counts *counts = &pipeline->tables[pipeline->active].counts;
    unsigned done = 0;
    *hits = 0;
    for (; done < count; done++) {
        const struct opd_record *record = &records[done];
        struct opd_hit *hit = &pipeline->hits[*hits];
        const struct opd_thread *thread =
            record->pid != 0 ? opd_spaces_find(pipeline->spaces, record->pid, record->tid) : NULL;
        if (thread == NULL && record->pid != 0) {
            if (*hits > 0)
                break;
            thread = thread_of(pipeline, record);
        }
        struct opd_ibs_sample *ibs =
            opd_ibs_open(pipeline, events[done], record, &pipeline->ibs_samples[*hits]);
        if (ibs != NULL)
            record = &ibs->record;
        *hit = (struct opd_hit){.record = record,
                                .thread = thread,
                                .maps = thread != NULL ? opd_thread_maps(thread) : NULL,
                                .ibs = ibs,
                                .event = (uint16_t)events[done],
                                .kernel = mode_is_kernel(record)};
        note_time(counts, record->time);
        if (!counts_at_all(pipeline, hit))
            continue;
        if (pipeline->tap != NULL)
            opd_count_address(pipeline, hit);
        if (ibs != NULL) {
            opd_ibs_note(pipeline, ibs);
            if (!opd_ibs_select(ibs, hit->kernel))
                continue;
        }
        hit->key = chain_key(pipeline, hit);
        __builtin_prefetch(memo_of(pipeline, hit->key));
        ++*hits;
    }
    return done;
}

// Second step: known chains, and the stacks of the others.
static void
find_stack(struct opd_pipeline *pipeline, struct opd_hit *hit, uint32_t *used)
{
    const struct opd_memo *memo = memo_of(pipeline, hit->key);
    if (memo->key == hit->key) {
        pipeline->memo_hits++;
        hit->memo = *memo;
        return;
    }
    pipeline->memo_misses++;
    hit->memo = (struct opd_memo){.key = hit->key};
    build_stack(pipeline, hit, &pipeline->words[*used]);
    *used += hit->length / (uint32_t)sizeof *pipeline->words;
}

static uint32_t
cgroup_of(struct opd_pipeline *pipeline, struct opd_hit *hit)
{
    const struct opd_record *record = hit->record;
    if (hit->thread != NULL) {
        struct opd_label *label = opd_thread_label(hit->thread);
        if (record->u.sample.cgroup != label->id || record->time >= label->next)
            opd_label_refresh(pipeline, label, record);
        hit->how = label->how;
        return label->cgroup;
    }
    if (record->pid == 0 && (pipeline->proc_root != NULL || record->has & OPD_HAS_CGROUP)) {
        hit->how = OPD_LABEL_EXACT;
        return OPD_CGROUP_ROOT; // the idle task and what interrupts it
    }
    hit->how = OPD_LABEL_UNKNOWN;
    return OPD_CGROUP_UNKNOWN;
}

// Third step: the numbers of the stack and of the sample file. False at a limit.
static bool
number(struct opd_pipeline *pipeline, struct opd_hit *hit)
{
    struct opd_tables *tables = &pipeline->tables[pipeline->active];
    const struct opd_record *record = hit->record;
    if (hit->words != NULL) {
        hit->memo.stack =
            opd_intern_put_hashed(tables->stacks, hit->words, hit->length, hit->hash, NULL);
        if (hit->memo.stack == OPD_INTERN_FULL)
            return false;
        *memo_of(pipeline, hit->key) = hit->memo;
    }
    struct opd_sfile_key sfile = {
        .event = hit->event,
        .mode = hit->kernel,
        .tgid = (int32_t)record->pid,
        .tid = pipeline->options.separate_thread ? (int32_t)record->tid : -1,
        .cpu = pipeline->options.separate_cpu ? (int32_t)record->cpu : -1,
        .image = hit->memo.image,
        .cgroup = cgroup_of(pipeline, hit),
    };
    if (record->pid == 0)
        memcpy(sfile.comm, "swapper", 8);
    else if (hit->thread != NULL)
        memcpy(sfile.comm, opd_thread_comm(hit->thread), sizeof sfile.comm);
    else
        memcpy(sfile.comm, "[unknown]", 10);
    if (hit->ibs != NULL) {
        hit->ibs->key = sfile;
        return true;
    }
    uint64_t began = pipeline->hash_ticks != NULL ? opd_ticks() : 0;
    hit->sfile = opd_sfile_number(pipeline, tables, hit->thread, &sfile);
    if (hit->sfile != OPD_INTERN_FULL)
        opd_profile_hash_fetch(opd_hash_pair_active(pipeline->pair), hit->sfile, hit->memo.stack);
    if (pipeline->hash_ticks != NULL)
        *pipeline->hash_ticks += opd_ticks() - began;
    return hit->sfile != OPD_INTERN_FULL;
}

// Last step, once for every row of the sample.
void
opd_count_row(struct opd_pipeline *pipeline, const struct opd_hit *hit, unsigned event,
              uint32_t sfile, uint64_t weight)
{
    struct opd_event_counts *of_event = &pipeline->tables[pipeline->active].events[event];
    uint64_t began = pipeline->hash_ticks != NULL ? opd_ticks() : 0;
    int rc =
        opd_profile_hash_add(opd_hash_pair_active(pipeline->pair), sfile, hit->memo.stack, weight);
    if (pipeline->hash_ticks != NULL)
        *pipeline->hash_ticks += opd_ticks() - began;
    if (rc != 0) {
        of_event->hash_full++;
        return;
    }
    uint8_t degraded = hit->memo.degraded;
    of_event->samples++;
    of_event->labels[hit->how]++;
    if (degraded & DEGRADED_NO_MAPPING)
        of_event->no_mapping++;
    if (degraded & DEGRADED_TRUNCATED)
        of_event->stack_truncated++;
    if (degraded & DEGRADED_UNWIND)
        of_event->unwind_failed++;
    if (hit->ibs != NULL
            ? !hit->ibs->exact
            : pipeline->events[event].precise && !(hit->record->misc & OPD_MISC_EXACT_IP))
        of_event->inexact_ip++;
}

static void
count_hit(struct opd_pipeline *pipeline, const struct opd_hit *hit)
{
    if (hit->ibs != NULL)
        opd_ibs_count(pipeline, hit);
    else
        opd_count_row(pipeline, hit, hit->event, hit->sfile,
                      opd_weight_of(&pipeline->weights[hit->event], hit->record));
}

// Each step is done for all samples before the next: what a step needs of
// memory was asked for a while before, and arrives for many at once.
void
opd_attribute_samples(struct opd_pipeline *pipeline, const uint32_t *events,
                      const struct opd_record *records, unsigned count)
{
    for (unsigned i = 0; count > 1 && i < count; i++)
        opd_spaces_fetch_chain(pipeline->spaces, records[i].tid);
    for (unsigned i = 0; count > 1 && i < count; i++)
        opd_spaces_fetch_thread(pipeline->spaces, records[i].tid);
    while (count > 0) {
        unsigned hits, kept = 0;
        uint32_t used = 0;
        unsigned done = begin(pipeline, events, records, count, &hits);
        for (unsigned i = 0; i < hits; i++)
            find_stack(pipeline, &pipeline->hits[i], &used);
        for (unsigned i = 0; i < hits; i++) {
            struct opd_hit *hit = &pipeline->hits[i];
            if (number(pipeline, hit))
                pipeline->hits[kept++] = *hit;
            else if (hit->ibs != NULL)
                opd_ibs_full(pipeline, hit);
            else
                pipeline->tables[pipeline->active].events[hit->event].hash_full++;
        }
        for (unsigned i = 0; i < kept; i++)
            count_hit(pipeline, &pipeline->hits[i]);
        events += done;
        records += done;
        count -= done;
    }
}
