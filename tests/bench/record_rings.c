// SPDX-License-Identifier: Apache-2.0
// Records what opd's own rings hold, as opd opens, reads and parses them: the
// raw records of every CPU, or the kernel addresses alone. Built and run by
// harness/recording.py, which also says what the two files look like.
//   record_rings rings|addresses HZ SECONDS FILE
#include <errno.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "opd/record.h"
#include "ring.h"

#define RING_BYTES ((size_t)512 << 10)
#define CPUS_MAX 1024
#define FORKED UINT32_MAX // instead of a CPU: a process and, as address, its parent

struct recorder {
    struct opd_ring rings[CPUS_MAX];
    unsigned count;
    struct opd_record_layout layout; // of samples
    bool addresses;
    FILE *out;
    uint64_t records, lost;
};

static volatile sig_atomic_t stopping;

static void
stop(int number)
{
    stopping = 1;
}

static int
fail(const char *what, int error)
{
    fprintf(stderr, "record_rings: %s: %s\n", what, strerror(error));
    return 1;
}

static void
put(struct recorder *recorder, const void *bytes, size_t size)
{
    if (fwrite(bytes, 1, size, recorder->out) != size)
        exit(fail("write", errno));
}

static int
open_rings(struct recorder *recorder, uint64_t rate)
{
    const unsigned fields = recorder->addresses ? 0 : OPD_RING_CALLCHAIN;
    const struct opd_event_attr clock = {
        .type = PERF_TYPE_SOFTWARE,
        .config = PERF_COUNT_SW_CPU_CLOCK,
        .rate = rate,
        .frequency = true,
        .exclude_user = recorder->addresses,
    };
    opd_ring_layout(&recorder->layout, opd_ring_fields(&clock, fields));
    long cpus = sysconf(_SC_NPROCESSORS_CONF);
    for (uint32_t cpu = 0; cpu < cpus && cpu < CPUS_MAX; cpu++) {
        struct opd_ring *ring = &recorder->rings[recorder->count];
        int rc = opd_ring_open(ring, cpu, RING_BYTES, fields, false);
        if (rc == -ENODEV)
            continue; // offline
        if (rc == 0)
            rc = opd_ring_add(ring, &clock, fields);
        if (rc != 0)
            return rc;
        recorder->count++;
    }
    return recorder->count > 0 ? 0 : -ENODEV;
}

static void
put_head(struct recorder *recorder)
{
    const uint32_t head[2] = {recorder->count, 0};
    put(recorder, "OPDRINGS", 8);
    put(recorder, head, sizeof head);
    put(recorder, &recorder->layout.sample_type, 8);
    for (unsigned i = 0; i < recorder->count; i++) {
        const uint64_t ids[2] = {recorder->rings[i].sideband.id, recorder->rings[i].events[0].id};
        put(recorder, ids, sizeof ids);
    }
}

static void
keep_record(struct recorder *recorder, unsigned number, const char *bytes, size_t size)
{
    struct opd_record record;
    if (!recorder->addresses) {
        const uint32_t head[2] = {number, (uint32_t)size};
        put(recorder, head, sizeof head);
        put(recorder, bytes, size);
    } else if (opd_record_parse(&recorder->layout, bytes, size, &record) > 0) {
        struct {
            uint32_t cpu, pid;
            uint64_t address;
        } hit = {number, record.pid, record.u.sample.ip};
        if (record.type == OPD_RECORD_FORK)
            hit.cpu = FORKED, hit.pid = record.u.task.pid, hit.address = record.u.task.parent_pid;
        if (record.type == OPD_RECORD_FORK || record.type == OPD_RECORD_SAMPLE)
            put(recorder, &hit, sizeof hit);
    }
    recorder->records++;
}

static void
drain(struct recorder *recorder)
{
    static _Alignas(8) char bounce[1 << 16];
    for (unsigned i = 0; i < recorder->count; i++) {
        struct opd_ring *ring = &recorder->rings[i];
        size_t written = opd_ring_written(ring), at = 0, size;
        for (; at < written; at += size) {
            const char *bytes = opd_ring_record(ring, at, written, bounce, &size);
            if (size == 0)
                exit(fail("a ring holds what is no record", EBADMSG));
            keep_record(recorder, i, bytes, size);
        }
        opd_ring_release(ring, written);
    }
}

static double
seconds(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

int
main(int argc, char **argv)
{
    static struct recorder recorder;
    if (argc != 5 || (strcmp(argv[1], "rings") != 0 && strcmp(argv[1], "addresses") != 0)) {
        fprintf(stderr, "usage: record_rings rings|addresses HZ SECONDS FILE\n");
        return 2;
    }
    recorder.addresses = strcmp(argv[1], "addresses") == 0;
    recorder.out = fopen(argv[4], "wb");
    if (recorder.out == NULL)
        return fail(argv[4], errno);
    int rc = open_rings(&recorder, strtoull(argv[2], NULL, 10));
    if (rc != 0)
        return fail("perf_event_open", -rc);
    if (!recorder.addresses)
        put_head(&recorder);
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    for (unsigned i = 0; i < recorder.count; i++)
        opd_ring_enable(&recorder.rings[i], true);
    printf("recording\n"); // whoever starts the load waits for this
    fflush(stdout);
    const double until = seconds() + strtod(argv[3], NULL);
    while (!stopping && seconds() < until) {
        usleep(50000);
        drain(&recorder);
    }
    for (unsigned i = 0; i < recorder.count; i++) {
        opd_ring_enable(&recorder.rings[i], false);
        opd_ring_read_lost(&recorder.rings[i]);
        recorder.lost += opd_ring_lost(&recorder.rings[i]);
    }
    drain(&recorder);
    for (unsigned i = 0; i < recorder.count; i++)
        opd_ring_close(&recorder.rings[i]);
    if (fclose(recorder.out) != 0)
        return fail(argv[4], errno);
    printf("%llu records of %u CPUs, %llu lost\n", (unsigned long long)recorder.records,
           recorder.count, (unsigned long long)recorder.lost);
    return 0;
}
