// SPDX-License-Identifier: Apache-2.0
#include "opd/sampler.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "opd/order.h"
#include "opd/procfs.h"
#include "ring.h"

// A record may become visible this much later than its time says: its writer
// was interrupted, or its virtual CPU descheduled, between clock and commit.
#define SETTLE_NS 10000000u

struct opd_event_times {
    uint64_t enabled, running;
};

struct opd_sampler {
    struct opd_sampler_options options;
    struct opd_pipeline *pipeline;
    struct opd_order *order;
    struct opd_record_layout layout;
    struct opd_event_attr attrs[OPD_EVENTS_MAX];
    unsigned attr_count;

    pthread_mutex_t lock; // the rings, the order and the totals
    struct opd_ring *rings;
    size_t ring_count, ring_room;
    void *copy; // one ring's worth
    struct pollfd *polls;
    int wake_fd;
    unsigned next_stream;

    pthread_t thread;
    bool thread_started, started, paused;
    atomic_bool stopping;
    pthread_cond_t progressed;
    uint64_t processed_until; // every record older than this was attributed

    struct opd_event_times last_times[OPD_EVENTS_MAX]; // the taker's
    double least_running;

    struct opd_sampler_stats totals;
    uint64_t closed_lost_samples, closed_lost_sideband; // of rings closed since
    uint64_t closed_lost[OPD_EVENTS_MAX];
};

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

static uint64_t
larger(const struct opd_ring_event *event)
{
    return event->lost_counter > event->lost_records ? event->lost_counter : event->lost_records;
}

static uint64_t
ring_lost(const struct opd_ring *ring)
{
    uint64_t lost = 0;
    for (unsigned i = 0; i < ring->event_count; i++)
        lost += larger(&ring->events[i]);
    return lost;
}

static void
note_throttle(struct opd_sampler *sampler, struct opd_ring *ring, const struct opd_record *record)
{
    struct opd_ring_event *event = opd_ring_find(ring, record->u.throttle.id);
    if (event == NULL)
        return;
    if (record->type == OPD_RECORD_THROTTLE) {
        sampler->totals.throttles++;
        if (event->throttled_since == 0)
            event->throttled_since = record->u.throttle.time;
    } else if (event->throttled_since != 0) {
        if (record->u.throttle.time > event->throttled_since)
            sampler->totals.throttled_ns += record->u.throttle.time - event->throttled_since;
        event->throttled_since = 0;
    }
}

static void
attribute(struct opd_sampler *sampler, const struct opd_order_item *item)
{
    struct opd_record record;
    if (opd_record_parse(&sampler->layout, item->bytes, item->length, &record) < 0) {
        sampler->totals.bad_records++;
        return;
    }
    opd_pipeline_feed(sampler->pipeline, item->tag, &record);
}

static void
pop_until(struct opd_sampler *sampler, uint64_t safe)
{
    struct opd_order_item item;
    while (opd_order_pop(sampler->order, safe, &item) == 1)
        attribute(sampler, &item);
}

// Which event wrote the record: its number, or 0 for the side-band.
static unsigned
event_of(const struct opd_ring *ring, const void *bytes, size_t length)
{
    uint64_t id;
    if (opd_record_identifier(bytes, length, &id) != 0)
        return 0;
    for (unsigned i = 0; i < ring->event_count; i++)
        if (ring->events[i].id == id)
            return i;
    return 0;
}

static void
push_record(struct opd_sampler *sampler, struct opd_ring *ring, unsigned stream, const char *bytes,
            size_t size)
{
    struct opd_record record;
    uint32_t type;
    memcpy(&type, bytes, sizeof type);
    sampler->totals.records++;
    if (type == OPD_RECORD_LOST || type == OPD_RECORD_LOST_SAMPLES || type == OPD_RECORD_THROTTLE ||
        type == OPD_RECORD_UNTHROTTLE) {
        if (opd_record_parse(&sampler->layout, bytes, size, &record) < 0) {
            sampler->totals.bad_records++;
            return;
        }
        if (type == OPD_RECORD_LOST) {
            struct opd_ring_event *event = opd_ring_find(ring, record.u.lost.id);
            if (event != NULL)
                event->lost_records += record.u.lost.lost;
        } else if (type == OPD_RECORD_LOST_SAMPLES) {
            struct opd_ring_event *event = opd_ring_find(ring, record.id);
            if (event != NULL)
                event->lost_records += record.u.lost.lost;
        } else {
            note_throttle(sampler, ring, &record);
        }
        return;
    }
    uint64_t time = 0;
    opd_record_time(&sampler->layout, bytes, size, &time);
    unsigned event = event_of(ring, bytes, size);
    int rc = opd_order_push(sampler->order, stream, time, event, bytes, (uint32_t)size);
    if (rc == -ENOSPC) {
        // Out of room to wait: order suffers, no record does.
        pop_until(sampler, UINT64_MAX);
        rc = opd_order_push(sampler->order, stream, time, event, bytes, (uint32_t)size);
    }
    if (rc != 0)
        sampler->totals.bad_records++;
}

static void
copy_rings(struct opd_sampler *sampler)
{
    for (size_t i = 0; i < sampler->ring_count; i++) {
        struct opd_ring *ring = &sampler->rings[i];
        size_t length = opd_ring_copy(ring, sampler->copy), at = 0;
        sampler->totals.bytes += length;
        while (at < length) {
            const char *bytes = (const char *)sampler->copy + at;
            size_t size = opd_record_size(bytes, length - at);
            if (size == 0) {
                sampler->totals.bad_records++;
                break;
            }
            push_record(sampler, ring, (unsigned)i, bytes, size);
            at += size;
        }
    }
}

// The lock is held. Everything older than `safe` is attributed afterwards.
static void
drain(struct opd_sampler *sampler, bool everything)
{
    uint64_t now = opd_clock_monotonic();
    uint64_t safe = everything ? UINT64_MAX : now - SETTLE_NS;
    copy_rings(sampler);
    pop_until(sampler, safe);
    sampler->processed_until = everything ? now : safe;
    sampler->totals.last_progress = opd_clock_monotonic();
}

static void
pause_snapshot(void *context)
{
    copy_rings(context);
}

static void
publish_stats(struct opd_sampler *sampler)
{
    struct opd_order_stats order;
    struct timespec cpu;
    opd_order_stats(sampler->order, &order);
    sampler->totals.late = order.late;
    sampler->totals.inverted = order.inverted;
    sampler->totals.order_peak_bytes = order.peak_bytes;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    sampler->totals.drain_cpu_ns = (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec;
}

static size_t
fill_polls(struct opd_sampler *sampler)
{
    sampler->polls[0] = (struct pollfd){.fd = sampler->wake_fd, .events = POLLIN};
    for (size_t i = 0; i < sampler->ring_count; i++)
        sampler->polls[i + 1] =
            (struct pollfd){.fd = sampler->rings[i].sideband.fd, .events = POLLIN};
    return sampler->ring_count + 1;
}

static void *
drain_main(void *argument)
{
    struct opd_sampler *sampler = argument;
    pthread_setname_np(pthread_self(), "opd-drain");

    pthread_mutex_lock(&sampler->lock);
    uint64_t began = opd_clock_monotonic();
    int processes = opd_pipeline_snapshot(sampler->pipeline, pause_snapshot, sampler);
    sampler->totals.snapshot_processes = processes > 0 ? (uint64_t)processes : 0;
    sampler->totals.snapshot_ns = opd_clock_monotonic() - began;
    size_t polls = fill_polls(sampler);
    pthread_mutex_unlock(&sampler->lock);

    while (!atomic_load(&sampler->stopping)) {
        int ready = poll(sampler->polls, polls, (int)sampler->options.wake_ms);
        uint64_t word;
        if (ready > 0 && (sampler->polls[0].revents & POLLIN) &&
            read(sampler->wake_fd, &word, sizeof word) < 0 && errno != EAGAIN)
            break;
        pthread_mutex_lock(&sampler->lock);
        sampler->totals.wakes++;
        drain(sampler, false);
        opd_pipeline_poll(sampler->pipeline);
        publish_stats(sampler);
        polls = fill_polls(sampler);
        // A CPU that went away leaves POLLHUP standing: never spin on it.
        for (size_t i = 1; i < polls; i++)
            if (sampler->polls[i].revents & (POLLHUP | POLLERR))
                sampler->polls[i].fd = -1;
        pthread_cond_broadcast(&sampler->progressed);
        pthread_mutex_unlock(&sampler->lock);
    }
    return NULL;
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
    sampler->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&sampler->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&sampler->progressed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    opd_ring_layout(&sampler->layout, options->pipeline.callchain);

    // Streams are ring numbers; room for CPUs that come later.
    sampler->ring_room = cpu_count < 64 ? 64 : cpu_count * 2;
    sampler->rings = calloc(sampler->ring_room, sizeof *sampler->rings);
    sampler->polls = calloc(sampler->ring_room + 1, sizeof *sampler->polls);
    sampler->copy = malloc(options->ring_bytes);
    sampler->pipeline = opd_pipeline_create(&options->pipeline);
    sampler->order = opd_order_create((unsigned)sampler->ring_room, options->order_bytes);
    if (sampler->wake_fd >= 0 && sampler->rings && sampler->polls && sampler->copy &&
        sampler->pipeline && sampler->order) {
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
    opd_ring_read_lost(ring);
    for (unsigned i = 0; i < ring->event_count; i++)
        sampler->closed_lost[i] += larger(&ring->events[i]);
    sampler->closed_lost_samples += ring_lost(ring);
    sampler->closed_lost_sideband += larger(&ring->sideband);
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
    free(sampler->copy);
    free(sampler);
}

static int
open_ring(struct opd_sampler *sampler, uint32_t cpu)
{
    bool callchain = sampler->options.pipeline.callchain;
    if (sampler->ring_count >= sampler->ring_room)
        return -ENOSPC;
    struct opd_ring *ring = &sampler->rings[sampler->ring_count];
    int rc = opd_ring_open(ring, cpu, sampler->options.ring_bytes, callchain);
    if (rc != 0)
        return rc;
    for (unsigned i = 0; rc == 0 && i < sampler->attr_count; i++)
        rc = opd_ring_add(ring, &sampler->attrs[i], callchain);
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
        drain(sampler, true); // ring numbers are stream numbers: none may wait
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

int
opd_sampler_add_event(struct opd_sampler *sampler, const struct opd_event_attr *attr)
{
    bool callchain = sampler->options.pipeline.callchain;
    if (sampler->attr_count >= OPD_EVENTS_MAX)
        return -ENOSPC;
    int rc = 0;
    size_t done = 0;
    pthread_mutex_lock(&sampler->lock);
    for (; rc == 0 && done < sampler->ring_count; done++)
        rc = opd_ring_add(&sampler->rings[done], attr, callchain);
    if (rc != 0) {
        for (size_t i = 0; i + 1 < done; i++)
            opd_ring_remove_last(&sampler->rings[i]);
    } else {
        struct opd_pipeline_event event = {.period = attr->frequency ? 1 : attr->rate,
                                           .precise = attr->precise_ip > 0};
        rc = opd_pipeline_add_event(sampler->pipeline, &event);
        sampler->attrs[sampler->attr_count++] = *attr;
    }
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
    rc = -pthread_create(&sampler->thread, NULL, drain_main, sampler);
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
    drain(sampler, true);
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
            drain(sampler, true);
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
        stats->lost_samples += ring_lost(ring);
        stats->lost_sideband += larger(&ring->sideband);
        stats->ring_bytes += ring->map_bytes;
        stats->fds += 1 + ring->event_count;
        for (unsigned j = 0; j < ring->event_count; j++) {
            uint64_t since = ring->events[j].throttled_since;
            if (since != 0 && now > since)
                stats->throttled_ns += now - since;
        }
    }
    stats->cpus = (uint32_t)sampler->ring_count;
    stats->least_running = sampler->least_running;
    opd_pipeline_stats(sampler->pipeline, &stats->pipeline);
    pthread_mutex_unlock(&sampler->lock);
}

uint64_t
opd_sampler_lost(struct opd_sampler *sampler, unsigned event)
{
    uint64_t lost = 0;
    pthread_mutex_lock(&sampler->lock);
    if (event < sampler->attr_count) {
        lost = sampler->closed_lost[event];
        for (size_t i = 0; i < sampler->ring_count; i++)
            lost += larger(&sampler->rings[i].events[event]);
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
