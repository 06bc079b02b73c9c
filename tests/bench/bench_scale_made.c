// SPDX-License-Identifier: Apache-2.0
// A recording made up for the self-test; layouts as in record_sample.c.
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>

#include "bench_scale.h"

#define STEPS 400u
#define STEP_NS 2000000u
#define LIVES 6u // processes at a time
#define TEXT 0x400000u

struct out {
    FILE *file;
    uint64_t words[64]; // of the record
    unsigned count;
    bool whole;
};

static void
word(struct out *out, uint64_t value)
{
    out->words[out->count++] = value;
}

static void
pair(struct out *out, uint32_t low, uint32_t high)
{
    word(out, (uint64_t)high << 32 | low);
}

static void
finish(struct out *out, uint32_t cpu, uint32_t type, uint16_t misc)
{
    const uint32_t size = out->count * 8;
    const struct perf_event_header header = {.type = type, .misc = misc, .size = (uint16_t)size};
    const uint32_t head[2] = {cpu, size};
    memcpy(&out->words[0], &header, sizeof header);
    out->whole = out->whole && fwrite(head, sizeof head, 1, out->file) == 1 &&
                 fwrite(out->words, size, 1, out->file) == 1;
    out->count = 1;
}

static void
other(struct out *out, uint32_t cpu, uint32_t type, uint16_t misc, uint32_t pid, uint64_t time)
{
    pair(out, pid, pid);
    word(out, time);
    word(out, cpu);
    word(out, 100 + cpu);
    finish(out, cpu, type, misc);
}

static void
task(struct out *out, uint32_t cpu, uint32_t type, uint32_t pid, uint64_t time)
{
    pair(out, pid, 1);
    pair(out, pid, 1);
    word(out, time);
    other(out, cpu, type, 0, pid, time);
}

static void
begin_process(struct out *out, uint32_t cpu, uint32_t pid, uint64_t time)
{
    char name[16] = "made";
    uint64_t words[2];
    task(out, cpu, OPD_RECORD_FORK, pid, time);
    snprintf(name, sizeof name, "made%u", pid % 7);
    memcpy(words, name, sizeof words);
    pair(out, pid, pid);
    word(out, words[0]);
    word(out, words[1]);
    other(out, cpu, OPD_RECORD_COMM, PERF_RECORD_MISC_COMM_EXEC, pid, time + 10);
    // Each is at another address and offset: a wrong mapping shows.
    pair(out, pid, pid);
    word(out, TEXT + (uint64_t)pid * 0x10000);
    word(out, 0x10000);
    word(out, (uint64_t)(pid % 5) * 0x1000);
    pair(out, 8, 1);
    word(out, 1000 + pid % 5);
    word(out, 0);
    pair(out, 5, 2);
    memcpy(&words[0], "/made\0\0", 8);
    word(out, words[0]);
    other(out, cpu, OPD_RECORD_MMAP2, PERF_RECORD_MISC_USER, pid, time + 20);
}

static void
sample(struct out *out, uint32_t cpu, uint32_t pid, uint64_t time)
{
    const uint64_t ip = TEXT + (uint64_t)pid * 0x10000 + time / STEP_NS % 16 * 16;
    word(out, 200 + cpu);
    word(out, ip);
    pair(out, pid, pid);
    word(out, time);
    word(out, cpu);
    word(out, 4); // chain
    word(out, PERF_CONTEXT_USER);
    word(out, ip);
    word(out, TEXT + (uint64_t)pid * 0x10000 + 0x800);
    word(out, TEXT + (uint64_t)pid * 0x10000 + 0x900);
    finish(out, cpu, OPD_RECORD_SAMPLE, PERF_RECORD_MISC_USER);
}

bool
make_recording(const char *path)
{
    const uint64_t head[] = {2, // CPUs
                             PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID |
                                 PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_CALLCHAIN,
                             100,
                             200,
                             101,
                             201};
    struct out out = {.file = fopen(path, "wb"), .count = 1, .whole = true};
    if (out.file == NULL)
        return false;
    out.whole =
        fwrite("OPDRINGS", 8, 1, out.file) == 1 && fwrite(head, sizeof head, 1, out.file) == 1;
    for (uint32_t step = 0; step < STEPS; step++) {
        const uint64_t time = 5000 + (uint64_t)step * STEP_NS;
        const uint32_t pid = 1000 + step;
        begin_process(&out, step % 2, pid, time);
        // On the other CPU, a moment later.
        sample(&out, (step + 1) % 2, pid, time + 30);
        for (uint32_t i = 1; i < LIVES && i <= step; i++)
            sample(&out, (step + i) % 2, pid - i, time + 40 + i);
        if (step >= LIVES)
            task(&out, step % 2, OPD_RECORD_EXIT, pid - LIVES, time + 60);
    }
    return fclose(out.file) == 0 && out.whole;
}
