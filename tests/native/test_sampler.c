// SPDX-License-Identifier: Apache-2.0
// The live sampler on this machine's kernel: real events, real processes.
// Skipped only after the kernel refused a real perf_event_open.
#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "opd/procfs.h"
#include "opd/sampler.h"
#include "t.h"

static double
cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static __attribute__((noinline)) void
burn(double seconds)
{
    volatile unsigned long sum = 0;
    double until = cpu_seconds() + seconds;
    while (cpu_seconds() < until)
        for (int i = 0; i < 100000; i++)
            sum += (unsigned long)i;
}

static struct opd_sampler *
open_sampler(uint64_t hz, bool separate_cpu)
{
    struct opd_sampler_options options;
    opd_sampler_defaults(&options);
    options.pipeline.proc_root = "/proc";
    options.pipeline.separate_cpu = separate_cpu;
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t cpus[64];
    for (long i = 0; i < count && i < 64; i++)
        cpus[i] = (uint32_t)i;
    struct opd_sampler *sampler =
        opd_sampler_create(&options, cpus, (size_t)(count < 64 ? count : 64), NULL);
    if (sampler == NULL && (errno == EACCES || errno == EPERM || errno == ENOSYS))
        SKIP("perf_event_open is not permitted here");
    CHECK(sampler != NULL);
    struct opd_event_attr attr = {.type = PERF_TYPE_SOFTWARE,
                                  .config = PERF_COUNT_SW_CPU_CLOCK,
                                  .rate = hz,
                                  .frequency = true,
                                  .exclude_idle = true};
    CHECK(opd_sampler_add_event(sampler, &attr) == 0);
    return sampler;
}

static uint64_t
weight_of(const struct opd_window *window, int32_t pid)
{
    uint64_t weight = 0;
    for (uint32_t i = 0; i < window->rows; i++)
        if (window->sfile_tgid[window->row_sfile[i]] == pid)
            weight += window->row_weight[i];
    return weight;
}

static void
a_busy_process_weighs_its_cpu_time(void)
{
    struct opd_sampler *sampler = open_sampler(999, false);
    struct opd_window *window;
    CHECK(opd_sampler_start(sampler) == 0);
    double before = cpu_seconds();
    burn(0.5);
    double burnt = cpu_seconds() - before;
    CHECK(opd_sampler_flush(sampler, opd_clock_monotonic(), 5000) == 0);
    CHECK(opd_sampler_take(sampler, 5000, &window) == 0);
    double seen = (double)weight_of(window, getpid()) / 1e9;
    printf("burnt %.3f s, sampled %.3f s in %u rows\n", burnt, seen, window->rows);
    CHECK(seen > burnt * 0.9 && seen < burnt * 1.1);
    CHECK(window->counts.samples >= 400);
    opd_window_free(window);
    CHECK(opd_sampler_stop(sampler) == 0);
    opd_sampler_destroy(sampler);
}

static void
children_that_are_gone_have_comm_and_image(void)
{
    struct opd_sampler *sampler = open_sampler(9999, false);
    struct opd_window *window;
    struct opd_sampler_stats stats;
    CHECK(opd_sampler_start(sampler) == 0);
    for (int i = 0; i < 100; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            execl("/bin/true", "true", (char *)NULL);
            _exit(127);
        }
        CHECK(waitpid(pid, NULL, 0) == pid);
    }
    CHECK(opd_sampler_flush(sampler, opd_clock_monotonic(), 5000) == 0);
    CHECK(opd_sampler_take(sampler, 5000, &window) == 0);
    uint64_t user = 0, unknown = 0;
    for (uint32_t i = 0; i < window->rows; i++) {
        uint32_t sfile = window->row_sfile[i];
        if (memcmp(window->sfile_comm + sfile * 16, "true", 5) != 0 || window->sfile_mode[sfile])
            continue;
        user += window->row_hits[i];
        if (window->sfile_image[sfile] == OPD_UID_UNKNOWN)
            unknown += window->row_hits[i];
    }
    opd_sampler_stats(sampler, &stats);
    printf("%lu user samples of true, %lu without image; lost %lu, late %lu\n", (unsigned long)user,
           (unsigned long)unknown, (unsigned long)stats.lost_samples, (unsigned long)stats.late);
    CHECK(user > 10);
    CHECK(unknown * 100 <= user);
    CHECK(stats.bad_records == 0);
    opd_window_free(window);
    opd_sampler_destroy(sampler);
}

static void
pausing_stops_samples_but_not_the_side_band(void)
{
    struct opd_sampler *sampler = open_sampler(999, true);
    struct opd_window *window;
    CHECK(opd_sampler_start(sampler) == 0);
    CHECK(opd_sampler_pause(sampler, true) == 0);
    CHECK(opd_sampler_flush(sampler, opd_clock_monotonic(), 5000) == 0);
    CHECK(opd_sampler_take(sampler, 5000, &window) == 0);
    opd_window_free(window);
    burn(0.2);
    CHECK(opd_sampler_flush(sampler, opd_clock_monotonic(), 5000) == 0);
    CHECK(opd_sampler_take(sampler, 5000, &window) == 0);
    CHECK(window->counts.samples == 0 && window->rows == 0);
    opd_window_free(window);
    CHECK(opd_sampler_pause(sampler, false) == 0);
    burn(0.2);
    CHECK(opd_sampler_flush(sampler, opd_clock_monotonic(), 5000) == 0);
    CHECK(opd_sampler_take(sampler, 5000, &window) == 0);
    CHECK(window->counts.samples > 100);
    for (uint32_t i = 0; i < window->sfiles; i++)
        CHECK(window->sfile_cpu[i] >= 0);
    opd_window_free(window);
    opd_sampler_destroy(sampler);
}

static void
rings_follow_the_list_of_cpus(void)
{
    struct opd_sampler *sampler = open_sampler(99, false);
    struct opd_sampler_stats stats;
    CHECK(opd_sampler_start(sampler) == 0);
    uint32_t one[] = {0}, gone[] = {0, 4095};
    CHECK(opd_sampler_set_cpus(sampler, one, 1) == 1);
    opd_sampler_stats(sampler, &stats);
    CHECK(stats.cpus == 1 && stats.fds == 2);
    int rc = opd_sampler_set_cpus(sampler, gone, 2); // no such CPU: not a failure
    CHECK(rc == 1 || rc == -EINVAL);
    uint32_t both[] = {0, 1};
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1) {
        CHECK(opd_sampler_set_cpus(sampler, both, 2) == 2);
        CHECK(opd_sampler_flush(sampler, opd_clock_monotonic(), 5000) == 0);
    }
    opd_sampler_destroy(sampler);
}

static void
an_event_that_is_not_there_leaves_nothing_open(void)
{
    struct opd_sampler *sampler = open_sampler(99, false);
    struct opd_sampler_stats before, after;
    struct opd_event_attr attr = {.type = 0x7fffffff, .config = 1, .rate = 1};
    opd_sampler_stats(sampler, &before);
    CHECK(opd_sampler_add_event(sampler, &attr) < 0);
    opd_sampler_stats(sampler, &after);
    CHECK(before.fds == after.fds);
    opd_sampler_destroy(sampler);
}

int
main(void)
{
    RUN(a_busy_process_weighs_its_cpu_time);
    RUN(children_that_are_gone_have_comm_and_image);
    RUN(pausing_stops_samples_but_not_the_side_band);
    RUN(rings_follow_the_list_of_cpus);
    RUN(an_event_that_is_not_there_leaves_nothing_open);
    return 0;
}
