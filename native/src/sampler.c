// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "opd/procfs.h"
#include "pipeline.h"
#include "sampler.h"

void
opd_sampler_defaults(struct opd_sampler_options *options)
{
    *options = (struct opd_sampler_options){
        .ring_bytes = 512u << 10,
        .order_bytes = 64u << 20,
        .wake_ms = 200,
    };
    opd_pipeline_defaults(&options->pipeline);
}

static void
wake(struct opd_sampler *sampler)
{
    uint64_t one = 1;
    // A full eventfd is awake already.
    while (write(sampler->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
}

struct opd_sampler *
opd_sampler_create(const struct opd_sampler_options *options, const uint32_t *cpus,
                   size_t cpu_count, int32_t *failed_cpu)
{
    struct opd_sampler *sampler = calloc(1, sizeof *sampler);
    int error = ENOMEM;
    if (sampler == NULL)
        return NULL;
    sampler->options = *options;
    sampler->options.pipeline.proc_root = NULL; // the caller's; the pipeline keeps a copy
    sampler->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&sampler->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&sampler->progressed, &monotonic);
    pthread_condattr_destroy(&monotonic);

    // Streams are ring numbers; room for CPUs that come later.
    sampler->ring_room = cpu_count < 64 ? 64 : cpu_count * 2;
    sampler->rings = calloc(sampler->ring_room, sizeof *sampler->rings);
    sampler->polls = calloc(sampler->ring_room + 1, sizeof *sampler->polls);
    sampler->pipeline = opd_pipeline_create(&options->pipeline);
    // The caller's string need not outlive the call.
    if (sampler->pipeline != NULL)
        sampler->options.pipeline.proc_root = sampler->pipeline->proc_root;
    sampler->fields = options->pipeline.callchain ? OPD_RING_CALLCHAIN : 0;
    if (sampler->pipeline != NULL && opd_pipeline_knows_ids(sampler->pipeline) &&
        opd_ring_can_cgroup())
        sampler->fields |= OPD_RING_CGROUP;
    opd_ring_layout(&sampler->layout, sampler->fields);
    sampler->layouts[0] = sampler->layout; // records of the side-band, before any event
    sampler->order = opd_order_create((unsigned)sampler->ring_room, options->order_bytes);
    if (sampler->wake_fd >= 0 && sampler->rings && sampler->polls && sampler->pipeline &&
        sampler->order) {
        int rc = opd_sampler_set_cpus(sampler, cpus, cpu_count);
        if (rc > 0)
            return sampler;
        error = rc == 0 ? ENODEV : -rc;
        if (failed_cpu != NULL)
            *failed_cpu = cpu_count > 0 ? (int32_t)cpus[0] : -1;
    }
    opd_sampler_destroy(sampler);
    errno = error;
    return NULL;
}

static void
close_ring(struct opd_sampler *sampler, size_t index)
{
    struct opd_ring *ring = &sampler->rings[index];
    struct opd_pc_tap *tap = opd_pipeline_tap(sampler->pipeline);
    if (tap != NULL)
        opd_pc_hash_flush_cpu(opd_pc_tap_hash(tap), ring->cpu);
    opd_ring_read_lost(ring);
    for (unsigned i = 0; i < ring->event_count; i++)
        sampler->closed_lost[i] += opd_ring_event_lost(&ring->events[i]);
    sampler->closed_lost_samples += opd_ring_lost(ring);
    sampler->closed_lost_sideband += opd_ring_event_lost(&ring->sideband);
    opd_ring_close(ring);
    sampler->rings[index] = sampler->rings[--sampler->ring_count];
}

void
opd_sampler_destroy(struct opd_sampler *sampler)
{
    if (sampler == NULL)
        return;
    opd_sampler_stop(sampler);
    while (sampler->ring_count > 0)
        close_ring(sampler, sampler->ring_count - 1);
    if (sampler->wake_fd >= 0)
        close(sampler->wake_fd);
    opd_order_destroy(sampler->order);
    opd_pipeline_destroy(sampler->pipeline);
    pthread_cond_destroy(&sampler->progressed);
    pthread_mutex_destroy(&sampler->lock);
    free(sampler->rings);
    free(sampler->polls);
    free(sampler->targets);
    free(sampler);
}

static int
open_ring(struct opd_sampler *sampler, uint32_t cpu)
{
    unsigned fields = sampler->fields;
    if (sampler->ring_count >= sampler->ring_room)
        return -ENOSPC;
    struct opd_ring *ring = &sampler->rings[sampler->ring_count];
    int rc =
        opd_ring_open(ring, cpu, sampler->options.ring_bytes, fields, sampler->options.targeted);
    if (rc != 0)
        return rc;
    for (unsigned i = 0; rc == 0 && i < sampler->attr_count; i++)
        rc = opd_ring_add(ring, &sampler->attrs[i], fields);
    if (rc == 0)
        rc = opd_sampler_open_targets(sampler, ring);
    if (rc == 0 && sampler->started)
        rc = opd_ring_enable(ring, true);
    if (rc == 0 && sampler->paused)
        rc = opd_ring_enable(ring, false);
    if (rc != 0) {
        opd_ring_close(ring);
        return rc;
    }
    sampler->ring_count++;
    return 0;
}

int
opd_sampler_set_cpus(struct opd_sampler *sampler, const uint32_t *cpus, size_t cpu_count)
{
    int first_error = 0;
    pthread_mutex_lock(&sampler->lock);
    if (sampler->started)
        opd_sampler_drain(sampler, true); // ring numbers are stream numbers: none may wait
    for (size_t i = sampler->ring_count; i-- > 0;) {
        bool keep = false;
        for (size_t j = 0; j < cpu_count; j++)
            keep = keep || sampler->rings[i].cpu == cpus[j];
        if (!keep)
            close_ring(sampler, i);
    }
    for (size_t j = 0; j < cpu_count; j++) {
        bool open = false;
        for (size_t i = 0; i < sampler->ring_count; i++)
            open = open || sampler->rings[i].cpu == cpus[j];
        int rc = open ? 0 : open_ring(sampler, cpus[j]);
        // Offline is no failure; anything else is, even on one CPU of many.
        if (rc != 0 && rc != -ENODEV && first_error == 0)
            first_error = rc;
    }
    int count = (int)sampler->ring_count;
    pthread_mutex_unlock(&sampler->lock);
    if (sampler->thread_started)
        wake(sampler);
    return first_error != 0 ? first_error : count;
}

// The kernel runs these two from a timer of fixed length, also when they were
// asked for by frequency. Its records go on telling the first period after it
// was changed: their weight is what was set.
static bool
is_clock(const struct opd_event_attr *attr)
{
    return attr->type == PERF_TYPE_SOFTWARE &&
           (attr->config == PERF_COUNT_SW_CPU_CLOCK || attr->config == PERF_COUNT_SW_TASK_CLOCK);
}

int
opd_sampler_set_rate(struct opd_sampler *sampler, unsigned event, uint64_t rate)
{
    if (event >= sampler->attr_count || rate == 0)
        return -EINVAL;
    if (sampler->options.targeted)
        return -ENOTSUP;
    struct opd_event_attr *attr = &sampler->attrs[event];
    bool clock = is_clock(attr);
    uint64_t value = clock && attr->frequency ? 1000000000u / rate : rate;
    int rc = 0;
    bool changed = false;
    // Samples that wait in the rings were taken at the rate of before.
    if (sampler->thread_started)
        opd_sampler_flush(sampler, opd_clock_monotonic(), 1000);
    pthread_mutex_lock(&sampler->lock);
    uint64_t since = opd_clock_monotonic();
    bool faster = attr->frequency ? rate > attr->rate : rate < attr->rate;
    for (size_t i = 0; i < sampler->ring_count; i++) {
        if (ioctl(sampler->rings[i].events[event].fd, PERF_EVENT_IOC_PERIOD, &value) == 0)
            changed = true;
        else
            rc = -errno;
    }
    if (changed) {
        attr->rate = rate;
        // While the CPUs change one after the other, the shorter period weighs.
        if (!faster)
            since = opd_clock_monotonic();
        if (clock || !attr->frequency)
            opd_pipeline_set_period(sampler->pipeline, event, value, since);
    }
    pthread_mutex_unlock(&sampler->lock);
    return changed ? 0 : rc; // a CPU that went away refuses alone
}

void
opd_sampler_set_tap(struct opd_sampler *sampler, struct opd_pc_tap *tap)
{
    pthread_mutex_lock(&sampler->lock);
    opd_pipeline_set_tap(sampler->pipeline, tap);
    pthread_mutex_unlock(&sampler->lock);
}

int
opd_sampler_limit_stacks(struct opd_sampler *sampler, uint32_t divisor)
{
    if (divisor == 0)
        return -EINVAL;
    pthread_mutex_lock(&sampler->lock);
    int limit = (int)opd_pipeline_limit_stacks(sampler->pipeline, divisor);
    pthread_mutex_unlock(&sampler->lock);
    return limit;
}

int
opd_sampler_add_event(struct opd_sampler *sampler, const struct opd_event_attr *attr)
{
    unsigned fields = sampler->fields;
    if (sampler->attr_count >= OPD_EVENTS_MAX)
        return -ENOSPC;
    int rc = 0;
    size_t done = 0;
    pthread_mutex_lock(&sampler->lock);
    for (; done < sampler->ring_count; done++) {
        rc = opd_ring_add(&sampler->rings[done], attr, fields);
        if (rc != 0)
            break;
    }
    if (rc == 0) {
        sampler->attrs[sampler->attr_count] = *attr;
        opd_ring_layout(&sampler->layouts[sampler->attr_count], opd_ring_fields(attr, fields));
        rc = opd_sampler_add_target_event(sampler, sampler->attr_count);
    }
    if (rc == 0) {
        struct opd_pipeline_event event = {.period = attr->frequency ? 1 : attr->rate,
                                           .precise = attr->precise_ip > 0};
        rc = opd_pipeline_add_event(sampler->pipeline, &event);
    }
    if (rc >= 0)
        sampler->attr_count++;
    for (size_t i = 0; rc < 0 && i < done; i++)
        opd_ring_remove_last(&sampler->rings[i]);
    pthread_mutex_unlock(&sampler->lock);
    return rc;
}

struct opd_pipeline *
opd_sampler_pipeline(struct opd_sampler *sampler)
{
    return sampler->pipeline;
}

static int
enable_all(struct opd_sampler *sampler, bool enable)
{
    int rc = 0;
    for (size_t i = 0; i < sampler->ring_count; i++) {
        int one = opd_ring_enable(&sampler->rings[i], enable);
        rc = one != 0 ? one : rc;
    }
    return rc;
}

int
opd_sampler_start(struct opd_sampler *sampler)
{
    if (sampler->started)
        return -EALREADY;
    int rc = enable_all(sampler, true);
    if (rc != 0)
        return rc;
    sampler->started = true;
    rc = -pthread_create(&sampler->thread, NULL, opd_sampler_drain_main, sampler);
    sampler->thread_started = rc == 0;
    return rc;
}

int
opd_sampler_pause(struct opd_sampler *sampler, bool paused)
{
    pthread_mutex_lock(&sampler->lock);
    int rc = enable_all(sampler, !paused);
    sampler->paused = paused;
    pthread_mutex_unlock(&sampler->lock);
    return rc;
}

int
opd_sampler_stop(struct opd_sampler *sampler)
{
    if (!sampler->thread_started)
        return 0;
    int rc = enable_all(sampler, false);
    atomic_store(&sampler->stopping, true);
    wake(sampler);
    pthread_join(sampler->thread, NULL);
    sampler->thread_started = false;
    pthread_mutex_lock(&sampler->lock);
    opd_sampler_drain(sampler, true);
    pthread_mutex_unlock(&sampler->lock);
    return rc;
}

int
opd_sampler_flush(struct opd_sampler *sampler, uint64_t until, int timeout_ms)
{
    uint64_t give_up = opd_clock_monotonic() + (uint64_t)timeout_ms * 1000000u;
    int rc = 0;
    pthread_mutex_lock(&sampler->lock);
    while (sampler->processed_until < until && rc == 0) {
        if (!sampler->thread_started) {
            opd_sampler_drain(sampler, true);
            break;
        }
        uint64_t now = opd_clock_monotonic();
        if (now >= give_up) {
            rc = -ETIMEDOUT;
            break;
        }
        // Nothing to wait for before the records of `until` have settled.
        uint64_t wake_at = until + SETTLE_NS > now ? until + SETTLE_NS + 1000 : now + 1000000;
        if (wake_at > give_up)
            wake_at = give_up;
        struct timespec deadline = {.tv_sec = (time_t)(wake_at / 1000000000u),
                                    .tv_nsec = (long)(wake_at % 1000000000u)};
        if (pthread_cond_timedwait(&sampler->progressed, &sampler->lock, &deadline) == ETIMEDOUT &&
            sampler->processed_until < until)
            wake(sampler);
    }
    pthread_mutex_unlock(&sampler->lock);
    return rc;
}

// A counter that shared its PMU with others ran only part of the time it was
// enabled; its weights stand for the whole.
static void
scale_multiplexed(struct opd_sampler *sampler, struct opd_window *window)
{
    sampler->least_running = 1.0;
    for (unsigned i = 0; i < sampler->attr_count; i++) {
        uint64_t enabled, running;
        if (opd_sampler_times(sampler, i, &enabled, &running) != 0)
            continue;
        struct opd_event_times *last = &sampler->last_times[i];
        // Rings that were closed take their times along: then nothing is known.
        if (enabled > last->enabled && running > last->running) {
            double share = (double)(running - last->running) / (double)(enabled - last->enabled);
            if (share < 0.999)
                opd_window_scale(window, i, 1.0 / share);
            if (share < sampler->least_running)
                sampler->least_running = share;
        }
        last->enabled = enabled;
        last->running = running;
    }
}

int
opd_sampler_take(struct opd_sampler *sampler, int timeout_ms, struct opd_window **window)
{
    int rc;
    if (sampler->thread_started) {
        wake(sampler);
        rc = opd_pipeline_take(sampler->pipeline, timeout_ms, window);
    } else {
        rc = opd_pipeline_take_here(sampler->pipeline, window);
    }
    if (rc == 0)
        scale_multiplexed(sampler, *window);
    return rc;
}

void
opd_sampler_stats(struct opd_sampler *sampler, struct opd_sampler_stats *stats)
{
    pthread_mutex_lock(&sampler->lock);
    *stats = sampler->totals;
    stats->lost_samples = sampler->closed_lost_samples;
    stats->lost_sideband = sampler->closed_lost_sideband;
    uint64_t now = opd_clock_monotonic();
    for (size_t i = 0; i < sampler->ring_count; i++) {
        struct opd_ring *ring = &sampler->rings[i];
        opd_ring_read_lost(ring);
        stats->lost_samples += opd_ring_lost(ring);
        stats->lost_sideband += opd_ring_event_lost(&ring->sideband);
        stats->ring_bytes += ring->map_bytes;
        stats->fds += 1 + (uint32_t)(ring->targeted ? ring->task_count : ring->event_count);
        for (unsigned j = 0; j < ring->event_count; j++) {
            uint64_t since = ring->events[j].throttled_since;
            if (since != 0 && now > since)
                stats->throttled_ns += now - since;
        }
    }
    stats->cpus = (uint32_t)sampler->ring_count;
    stats->targets = (uint32_t)sampler->target_count;
    stats->least_running = sampler->least_running;
    const struct opd_cost_batch *copied = &sampler->copied, *popped = &sampler->popped;
    uint64_t pushing = opd_cost_share(copied, copied->order);
    uint64_t popping = opd_cost_share(popped, popped->order);
    stats->cost.hash_ns = opd_cost_share(popped, popped->hash);
    stats->cost.drain_ns = copied->cpu_ns - pushing;
    stats->cost.order_ns = pushing + popping;
    stats->cost.attribute_ns = popped->cpu_ns - popping - stats->cost.hash_ns;
    opd_pipeline_stats(sampler->pipeline, &stats->pipeline);
    pthread_mutex_unlock(&sampler->lock);
}

uint64_t
opd_sampler_progress(const struct opd_sampler *sampler)
{
    return atomic_load(&sampler->progress);
}

uint64_t
opd_sampler_lost(struct opd_sampler *sampler, unsigned event)
{
    uint64_t lost = 0;
    pthread_mutex_lock(&sampler->lock);
    if (event < sampler->attr_count) {
        lost = sampler->closed_lost[event];
        for (size_t i = 0; i < sampler->ring_count; i++)
            lost += opd_ring_event_lost(&sampler->rings[i].events[event]);
    }
    pthread_mutex_unlock(&sampler->lock);
    return lost;
}

int
opd_sampler_times(struct opd_sampler *sampler, unsigned event, uint64_t *enabled, uint64_t *running)
{
    if (event >= sampler->attr_count)
        return -EINVAL;
    *enabled = *running = 0;
    pthread_mutex_lock(&sampler->lock);
    for (size_t i = 0; i < sampler->ring_count; i++) {
        uint64_t values[4];
        if (read(sampler->rings[i].events[event].fd, values, sizeof values) >= 24) {
            *enabled += values[1];
            *running += values[2];
        }
    }
    pthread_mutex_unlock(&sampler->lock);
    return 0;
}
