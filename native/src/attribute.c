// SPDX-License-Identifier: Apache-2.0
// One sample: whose it is, where it was, and how it got there. This is the
// hot path; it allocates nothing but through the interning tables.
#include <errno.h>
#include <string.h>

#include "cost.h"
#include "filter.h"
#include "pipeline.h"

#define KERNEL_HALF (1ull << 63)

// The address inside its image, and the image, of one user or kernel address.
static uint32_t
resolve(const struct opd_pipeline *pipeline, const struct opd_maps *maps, bool kernel,
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

// Walks the chain into pipeline->frames; the first word is the flags' place.
static uint32_t
build_stack(struct opd_pipeline *pipeline, const struct opd_record *record, bool kernel,
            const struct opd_maps *maps, struct opd_memo *memo)
{
    // One spare frame in front gives the flag word its place, 8 bytes unused.
    struct opd_frame *frames = &pipeline->frames[1];
    uint32_t count = 0, flags = kernel ? STACK_HAS_KERNEL : STACK_HAS_USER;
    uint64_t address = record->u.sample.ip;
    memo->image = resolve(pipeline, maps, kernel, &address);
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
        if (!in_kernel)
            user_frames++;
        if (first) {
            first = false;
            if (ip == record->u.sample.ip)
                continue; // the leaf itself, already there
        }
        if (count == FRAMES_MAX) {
            memo->degraded |= DEGRADED_TRUNCATED;
            break;
        }
        flags |= in_kernel ? STACK_HAS_KERNEL : STACK_HAS_USER;
        uint32_t image = resolve(pipeline, maps, in_kernel, &ip);
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

    struct opd_intern *stacks = pipeline->tables[pipeline->active].stacks;
    uint32_t *words = (uint32_t *)frames - 1;
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
    return opd_intern_put(stacks, words, 4 + count * (uint32_t)sizeof *frames, NULL);
}

static uint64_t
chain_key(const struct opd_pipeline *pipeline, const struct opd_record *record, bool kernel,
          const struct opd_maps *maps)
{
    uint64_t context[5] = {record->u.sample.ip, opd_maps_version(maps), pipeline->kernel_version,
                           pipeline->window, kernel};
    uint64_t key = opd_hash64(context, sizeof context);
    if (pipeline->options.callchain && record->u.sample.chain_length > 0)
        key ^=
            opd_hash64(record->u.sample.chain, record->u.sample.chain_length * sizeof(uint64_t)) *
            0x9e3779b97f4a7c15u;
    return key | 1; // never the empty entry's 0
}

static uint64_t
weight_of(struct opd_weight *weight, const struct opd_record *record)
{
    if (weight->next_since != 0 && record->time >= weight->next_since) {
        weight->period = weight->next;
        weight->next_since = 0;
        weight->fixed = true;
    }
    return weight->fixed || !(record->has & OPD_HAS_PERIOD) ? weight->period
                                                            : record->u.sample.period;
}

static struct opd_thread_sfile *
place_of(const struct opd_thread *thread, bool kernel, uint32_t image)
{
    return &opd_thread_sfiles(thread)[kernel ? 0 : 1 + image % (OPD_THREAD_SFILES - 1)];
}

// The sample file's number: a thread mostly goes on where it was.
static uint32_t
number_of(const struct opd_pipeline *pipeline, struct opd_tables *tables,
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

void
opd_attribute_sample(struct opd_pipeline *pipeline, unsigned event, const struct opd_record *record)
{
    struct opd_tables *tables = &pipeline->tables[pipeline->active];
    struct opd_window_counts *counts = &tables->counts;
    struct opd_event_counts *of_event = &tables->events[event];
    bool kernel = mode_is_kernel(record);

    if (record->time != 0) {
        if (counts->first_time == 0 || record->time < counts->first_time)
            counts->first_time = record->time;
        if (record->time > counts->last_time)
            counts->last_time = record->time;
    }
    if (record->pid == 0 && kernel && !pipeline->options.keep_idle &&
        is_idle(pipeline, record->u.sample.ip)) {
        counts->idle++;
        return;
    }

    bool known = true;
    const struct opd_thread *thread = NULL;
    if (record->pid != 0) {
        thread = opd_spaces_thread(pipeline->spaces, record->pid, record->tid, &known);
        if (!known && pipeline->proc_root != NULL && (int32_t)record->pid > 0) {
            // No record told of it (its FORK was lost): ask, once.
            opd_pipeline_snapshot_one(pipeline, record->pid);
            thread = opd_spaces_thread(pipeline->spaces, record->pid, record->tid, &known);
        }
    }
    if (pipeline->filter != NULL &&
        !opd_filter_passes(pipeline->filter, pipeline->spaces, thread, record->pid, record->tid)) {
        counts->filtered++;
        return;
    }
    const struct opd_maps *maps = thread != NULL ? opd_thread_maps(thread) : NULL;

    uint64_t key = chain_key(pipeline, record, kernel, maps);
    struct opd_memo *memo = &pipeline->memo[key >> 32 & (MEMO_SIZE - 1)];
    if (memo->key == key) {
        pipeline->memo_hits++;
    } else {
        pipeline->memo_misses++;
        *memo = (struct opd_memo){.key = key};
        memo->stack = build_stack(pipeline, record, kernel, maps, memo);
        if (memo->stack == OPD_INTERN_FULL) {
            memo->key = 0;
            of_event->hash_full++;
            return;
        }
    }

    uint32_t cgroup = OPD_CGROUP_UNKNOWN;
    uint8_t how = OPD_LABEL_UNKNOWN;
    if (thread != NULL) {
        struct opd_label *label = opd_thread_label(thread);
        if (record->u.sample.cgroup != label->id || record->time >= label->next)
            opd_label_refresh(pipeline, label, record);
        cgroup = label->cgroup;
        how = label->how;
    } else if (record->pid == 0 && (pipeline->proc_root != NULL || record->has & OPD_HAS_CGROUP)) {
        cgroup = OPD_CGROUP_ROOT; // the idle task and what interrupts it
        how = OPD_LABEL_EXACT;
    }

    struct opd_sfile_key sfile = {
        .event = (uint16_t)event,
        .mode = kernel,
        .tgid = (int32_t)record->pid,
        .tid = pipeline->options.separate_thread ? (int32_t)record->tid : -1,
        .cpu = pipeline->options.separate_cpu ? (int32_t)record->cpu : -1,
        .image = memo->image,
        .cgroup = cgroup,
    };
    if (record->pid == 0)
        memcpy(sfile.comm, "swapper", 8);
    else if (thread != NULL)
        memcpy(sfile.comm, opd_thread_comm(thread), sizeof sfile.comm);
    else
        memcpy(sfile.comm, "[unknown]", 10);
    uint64_t weight = weight_of(&pipeline->weights[event], record);
    uint64_t began = pipeline->hash_ticks != NULL ? opd_ticks() : 0;
    uint32_t number = number_of(pipeline, tables, thread, &sfile);
    bool counted =
        number != OPD_INTERN_FULL && opd_profile_hash_add(opd_hash_pair_active(pipeline->pair),
                                                          number, memo->stack, weight) == 0;
    if (pipeline->hash_ticks != NULL)
        *pipeline->hash_ticks += opd_ticks() - began;
    if (!counted) {
        of_event->hash_full++;
        return;
    }
    of_event->samples++;
    of_event->labels[how]++;
    if (memo->degraded & DEGRADED_NO_MAPPING)
        of_event->no_mapping++;
    if (memo->degraded & DEGRADED_TRUNCATED)
        of_event->stack_truncated++;
    if (memo->degraded & DEGRADED_UNWIND)
        of_event->unwind_failed++;
    if (pipeline->events[event].precise && !(record->misc & OPD_MISC_EXACT_IP))
        of_event->inexact_ip++;
}
