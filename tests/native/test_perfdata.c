// SPDX-License-Identifier: Apache-2.0
// The perf.data reader without Python: order, rounds, limits, ends. The
// recordings beside it are the fuzzer's corpus.
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "opd/perfdata.h"
#include "t.h"

#define CORPUS OPD_TEST_DATA "/../native/fuzz/corpus/perfdata/"
#define ATTR_BYTES 128

static uint8_t file[1 << 20];
static size_t length;

static void
put(const void *bytes, size_t size)
{
    memcpy(file + length, bytes, size);
    length += size;
}

// The pipe layout with one event whose records are {TID, TIME} alone.
static void
start(void)
{
    struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE, .size = sizeof attr};
    const struct perf_event_header header = {.type = 64, .size = sizeof header + sizeof attr};
    const uint64_t size = 16;
    attr.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME;
    attr.sample_id_all = 1;
    length = 0;
    put("PERFILE2", 8);
    put(&size, sizeof size);
    put(&header, sizeof header);
    put(&attr, sizeof attr);
}

static void
put_sample(uint64_t time)
{
    const struct perf_event_header header = {.type = OPD_RECORD_SAMPLE, .size = 24};
    const uint64_t ids = length; // tells records of equal time apart
    put(&header, sizeof header);
    put(&ids, sizeof ids);
    put(&time, sizeof time);
}

static void
put_round(void)
{
    const struct perf_event_header header = {.type = 68, .size = 8};
    put(&header, sizeof header);
}

static struct opd_perfdata *
open_it(void)
{
    struct opd_perfdata *data;
    const char *reason;
    CHECK(opd_perfdata_open_memory(file, length, &data, &reason) == 0);
    return data;
}

static void
expect(const uint64_t *times, size_t count, size_t pending, uint64_t late)
{
    struct opd_perfdata *data = open_it();
    struct opd_perfdata_event event;
    if (pending > 0)
        opd_perfdata_limit_pending(data, pending);
    uint32_t last = 0;
    for (size_t i = 0; i < count; i++) {
        CHECK(opd_perfdata_next(data, &event) == 1);
        CHECK(event.record.time == times[i] && event.event == 0);
        if (i > 0 && times[i] == times[i - 1])
            CHECK(event.record.pid > last); // the file's order
        last = event.record.pid;
    }
    CHECK(opd_perfdata_next(data, &event) == 0);
    CHECK(opd_perfdata_next(data, &event) == 0);
    CHECK(opd_perfdata_stats(data)->end_error == 0);
    CHECK(opd_perfdata_stats(data)->late == late);
    CHECK(opd_perfdata_stats(data)->samples == count);
    opd_perfdata_close(data);
}

static void
whole_file_without_rounds(void)
{
    start();
    put_sample(5);
    put_sample(3);
    put_sample(0);
    put_sample(5);
    put_sample(4);
    put_sample(3);
    const uint64_t times[] = {0, 3, 3, 4, 5, 5};
    expect(times, 6, 0, 0);
}

static void
rounds_let_go(void)
{
    start();
    put_sample(10);
    put_sample(5);
    put_round(); // lets nothing go: records of other CPUs may be as old
    put_sample(20);
    put_sample(7);
    put_round();   // lets go what is not newer than 10
    put_sample(8); // late: 10 has gone
    put_sample(30);
    const uint64_t times[] = {5, 7, 10, 8, 20, 30};
    expect(times, 6, 0, 1);
}

static void
the_limit_lets_the_older_half_go(void)
{
    start();
    for (uint64_t i = 0; i < 4; i++)
        put_sample(100 - i);
    put_sample(1);
    // 97 98 waited with 99 100 past 3 records of 24 bytes.
    const uint64_t times[] = {97, 98, 1, 99, 100};
    expect(times, 5, 3 * 24, 1);
}

static void
many_records(void)
{
    struct opd_perfdata_event event;
    start();
    const size_t count = 40000;
    for (uint64_t i = 0; i < count; i++) // eight interleaved runs
        put_sample(1 + (i % 5000) * 8 + i / 5000);
    struct opd_perfdata *data = open_it();
    uint64_t time = 0;
    for (size_t i = 0; i < count; i++) {
        CHECK(opd_perfdata_next(data, &event) == 1 && event.record.time == ++time);
    }
    CHECK(opd_perfdata_next(data, &event) == 0);
    opd_perfdata_close(data);
}

static void
a_wrong_record_is_skipped(void)
{
    struct opd_perfdata_event event;
    const struct perf_event_header wrong = {.type = OPD_RECORD_COMM, .size = 32};
    start();
    put_sample(1);
    put(&wrong, sizeof wrong);
    put("AAAAAAAAAAAAAAAAAAAAAAAA", 24);
    put_sample(2);
    struct opd_perfdata *data = open_it();
    CHECK(opd_perfdata_next(data, &event) == 1 && event.record.time == 1);
    CHECK(opd_perfdata_next(data, &event) == 1 && event.record.time == 2);
    CHECK(opd_perfdata_next(data, &event) == 0);
    CHECK(opd_perfdata_stats(data)->skipped_records == 1);
    CHECK(opd_perfdata_stats(data)->skipped_bytes == 32);
    CHECK(opd_perfdata_stats(data)->end_error == 0);
    opd_perfdata_close(data);
}

static void
ends_that_are_not_whole(void)
{
    struct opd_perfdata_event event;
    start();
    put_sample(1);
    size_t whole = length;
    put_sample(2);
    length -= 4;
    struct opd_perfdata *data = open_it();
    CHECK(opd_perfdata_next(data, &event) == 1 && event.record.time == 1);
    CHECK(opd_perfdata_next(data, &event) == 0);
    CHECK(opd_perfdata_stats(data)->end_error == -ENODATA);
    CHECK(opd_perfdata_stats(data)->end_offset == whole);
    opd_perfdata_close(data);

    memset(file + whole, 0, 24); // a hole: no size can be right
    length = whole + 24;
    data = open_it();
    CHECK(opd_perfdata_next(data, &event) == 1 && opd_perfdata_next(data, &event) == 0);
    CHECK(opd_perfdata_stats(data)->end_error == -EBADMSG);
    CHECK(opd_perfdata_stats(data)->end_offset == whole);
    CHECK(strlen(opd_perfdata_stats(data)->end_reason) > 0);
    opd_perfdata_close(data);
}

static void
refusals(void)
{
    struct opd_perfdata *data;
    const char *reason;
    static const struct {
        const char *magic;
        int error;
    } cases[] = {{"PERFFILE", -ENOTSUP},
                 {"2ELIFREP", -ENOTSUP},
                 {"ELIFFREP", -ENOTSUP},
                 {"\177ELF\2\1\1", -EINVAL},
                 {"PERFILE2", -EBADMSG}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t bytes[104] = {0};
        memcpy(bytes, cases[i].magic, 8);
        bytes[8] = 104;
        CHECK(opd_perfdata_open_memory(bytes, sizeof bytes, &data, &reason) == cases[i].error);
        CHECK(strlen(reason) > 0);
    }
    CHECK(opd_perfdata_open_memory("", 0, &data, &reason) == -EINVAL);
    int folder = open("/", O_RDONLY | O_DIRECTORY);
    CHECK(opd_perfdata_open(folder, &data, &reason) == -EISDIR);
    close(folder);
    CHECK(opd_perfdata_open(-1, &data, &reason) == -EBADF);
}

static uint64_t
samples_of(int fd)
{
    struct opd_perfdata *data;
    struct opd_perfdata_event event;
    const char *reason;
    int status = opd_perfdata_open(fd, &data, &reason);
    if (status == -ENOTSUP)
        SKIP(reason); // no libzstd here
    CHECK(status == 0);
    while (opd_perfdata_next(data, &event) == 1)
        continue;
    CHECK(opd_perfdata_stats(data)->end_error == 0);
    uint64_t samples = opd_perfdata_stats(data)->samples;
    opd_perfdata_close(data);
    return samples;
}

static void *
write_slowly(void *argument)
{
    int fd = *(int *)argument;
    for (size_t at = 0; at < length; at += 7) {
        size_t size = length - at < 7 ? length - at : 7;
        CHECK(write(fd, file + at, size) == (ssize_t)size);
    }
    close(fd);
    return NULL;
}

static void
through_a_pipe(void)
{
    int fds[2];
    pthread_t writer;
    start();
    for (uint64_t i = 1; i <= 100; i++)
        put_sample(i);
    CHECK(pipe(fds) == 0);
    CHECK(pthread_create(&writer, NULL, write_slowly, &fds[1]) == 0);
    CHECK(samples_of(fds[0]) == 100);
    pthread_join(writer, NULL);
    close(fds[0]);
}

static void
recordings(void)
{
    static const struct {
        const char *path;
        uint64_t samples;
    } cases[] = {{CORPUS "clock.data", 7},      {CORPUS "dwarf.data", 2},
                 {CORPUS "groups.data", 11},    {CORPUS "pipe.data", 2},
                 {CORPUS "read.data", 1},       {CORPUS "regs.data", 1},
                 {CORPUS "tracepoint.data", 3}, {CORPUS "zstd.data", 8},
                 {CORPUS "synthetic.data", 2},  {CORPUS "synthetic_pipe.data", 2},
                 {CORPUS "interrupted.data", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int fd = open(cases[i].path, O_RDONLY);
        CHECK(fd >= 0);
        CHECK(samples_of(fd) == cases[i].samples);
        close(fd);
    }
}

int
main(void)
{
    RUN(whole_file_without_rounds);
    RUN(rounds_let_go);
    RUN(the_limit_lets_the_older_half_go);
    RUN(many_records);
    RUN(a_wrong_record_is_skipped);
    RUN(ends_that_are_not_whole);
    RUN(refusals);
    RUN(through_a_pipe);
    RUN(recordings);
    return 0;
}
