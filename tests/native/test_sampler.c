// SPDX-License-Identifier: Apache-2.0
// The live sampler on this machine's kernel: real events, real processes.
// Skipped only after the kernel refused a real perf_event_open.
#include <errno.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
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
open_sampler_for(uint64_t hz, bool separate_cpu, bool targeted)
{
    struct opd_sampler_options options;
    opd_sampler_defaults(&options);
    options.targeted = targeted;
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

static struct opd_sampler *
open_sampler(uint64_t hz, bool separate_cpu)
{
    return open_sampler_for(hz, separate_cpu, false);
}

static struct opd_window *
take_now(struct opd_sampler *sampler)
{
    struct opd_window *window;
    CHECK(opd_sampler_flush(sampler, opd_clock_monotonic(), 5000) == 0);
    CHECK(opd_sampler_take(sampler, 5000, &window) == 0);
    return window;
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

// What the host took from this machine: the timer of samples does not stop for
// it, a process's account does.
static double
steal_seconds(void)
{
    unsigned long ticks = 0;
    FILE *file = fopen("/proc/stat", "r");
    CHECK(file != NULL);
    CHECK(fscanf(file, "cpu %*u %*u %*u %*u %*u %*u %*u %lu", &ticks) == 1);
    fclose(file);
    return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

static void
a_busy_process_weighs_its_cpu_time(void)
{
    struct opd_sampler *sampler = open_sampler(999, false);
    struct opd_window *window;
    CHECK(opd_sampler_start(sampler) == 0);
    double before = cpu_seconds(), stolen = steal_seconds();
    burn(0.5);
    double burnt = cpu_seconds() - before;
    stolen = steal_seconds() - stolen;
    CHECK(opd_sampler_flush(sampler, opd_clock_monotonic(), 5000) == 0);
    CHECK(opd_sampler_take(sampler, 5000, &window) == 0);
    double seen = (double)weight_of(window, getpid()) / 1e9;
    printf("burnt %.3f s, sampled %.3f s in %u rows\n", burnt, seen, window->rows);
    CHECK(seen > burnt * 0.9 && seen < burnt * 1.1 + stolen);
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

static uint64_t
page_faults(void)
{
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return (uint64_t)(usage.ru_minflt + usage.ru_majflt);
}

static void
a_counted_event_is_sampled_once_a_period(void)
{
    struct opd_sampler *sampler = open_sampler(99, false);
    struct opd_event_attr attr = {
        .type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_PAGE_FAULTS, .rate = 100};
    CHECK(opd_sampler_add_event(sampler, &attr) == 1);
    CHECK(opd_sampler_start(sampler) == 0);
    opd_window_free(take_now(sampler));
    const uint64_t pages = 20000;
    for (int round = 0; round < 2; round++) {
        char *area =
            mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(area != MAP_FAILED);
        madvise(area, pages * 4096, MADV_NOHUGEPAGE);
        // A sanitizer faults pages of its own with each: the kernel's count decides.
        uint64_t before = page_faults();
        for (uint64_t i = 0; i < pages; i++)
            area[i * 4096] = 1;
        uint64_t faults = page_faults() - before;
        munmap(area, pages * 4096);
        struct opd_window *window = take_now(sampler);
        CHECK(faults >= pages);
        uint64_t hits = 0, weight = 0, period = round == 0 ? 100 : 400;
        for (uint32_t i = 0; i < window->rows; i++) {
            uint32_t sfile = window->row_sfile[i];
            if (window->sfile_event[sfile] != 1 || window->sfile_tgid[sfile] != getpid())
                continue;
            hits += window->row_hits[i];
            weight += window->row_weight[i];
        }
        printf("%lu faults: %lu hits weigh %lu\n", (unsigned long)faults, (unsigned long)hits,
               (unsigned long)weight);
        CHECK(hits > faults / period * 9 / 10 && hits < faults / period * 12 / 10);
        // A few may have come between the window before and the change of rate.
        CHECK(weight <= hits * period && weight + 3 * period >= hits * period);
        opd_window_free(window);
        CHECK(opd_sampler_set_rate(sampler, 1, 400) == 0);
    }
    opd_sampler_destroy(sampler);
}

static void
a_window_sums_rightly_over_changes_of_rate(void)
{
    struct opd_sampler *sampler = open_sampler(999, false);
    CHECK(opd_sampler_set_rate(sampler, 1, 99) == -EINVAL);
    CHECK(opd_sampler_set_rate(sampler, 0, 0) == -EINVAL);
    CHECK(opd_sampler_start(sampler) == 0);
    double before = cpu_seconds(), stolen = steal_seconds();
    burn(0.3);
    CHECK(opd_sampler_set_rate(sampler, 0, 199) == 0);
    burn(0.6);
    CHECK(opd_sampler_set_rate(sampler, 0, 4999) == 0);
    burn(0.3);
    double burnt = cpu_seconds() - before;
    stolen = steal_seconds() - stolen;
    struct opd_window *window;
    struct opd_sampler_stats stats;
    CHECK(opd_sampler_flush(sampler, opd_clock_monotonic(), 5000) == 0);
    CHECK(opd_sampler_take(sampler, 5000, &window) == 0);
    double seen = (double)weight_of(window, getpid()) / 1e9;
    printf("burnt %.3f s, sampled %.3f s in %lu samples\n", burnt, seen,
           (unsigned long)window->counts.samples);
    CHECK(seen > burnt * 0.8 && seen < burnt * 1.2 + stolen);
    CHECK(window->counts.samples > 1200);
    opd_window_free(window);
    opd_sampler_stats(sampler, &stats);
    const struct opd_sampler_cost *cost = &stats.cost;
    printf("drain %lu order %lu attribute %lu hash %lu snapshot %lu of %lu ns\n",
           (unsigned long)cost->drain_ns, (unsigned long)cost->order_ns,
           (unsigned long)cost->attribute_ns, (unsigned long)cost->hash_ns,
           (unsigned long)cost->snapshot_ns, (unsigned long)stats.drain_cpu_ns);
    CHECK(cost->drain_ns > 0 && cost->order_ns > 0 && cost->attribute_ns > 0);
    CHECK(cost->hash_ns > 0 && cost->snapshot_ns > 0);
    CHECK(cost->drain_ns + cost->order_ns + cost->attribute_ns + cost->hash_ns +
              cost->snapshot_ns <=
          stats.drain_cpu_ns);
    opd_sampler_destroy(sampler);
}

// A process that burns until it is told to stop, in two threads.
static void *
burn_on(void *unused)
{
    burn(60);
    return NULL;
}

static pid_t
start_burner(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, burn_on, NULL);
        burn(60);
        _exit(0);
    }
    CHECK(pid > 0);
    // Both threads are there before anybody counts them.
    char path[64];
    struct stat about;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    while (stat(path, &about) == 0 && about.st_nlink < 4)
        usleep(1000);
    return pid;
}

static void
end_burner(pid_t pid)
{
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
}

static void
only_the_targets_are_sampled(void)
{
    pid_t wanted = start_burner(), other = start_burner();
    usleep(100000); // its thread has begun
    struct opd_sampler *sampler = open_sampler_for(999, false, true);
    struct opd_event_attr no_such = {.type = 0x7fffffff, .config = 1, .rate = 1};
    CHECK(opd_sampler_add_event(sampler, &no_such) < 0);
    CHECK(opd_sampler_add_process(sampler, 0x7ffffff0) == -ESRCH);
    // A sanitizer has threads of its own.
    int threads = opd_sampler_add_process(sampler, (uint32_t)wanted);
    CHECK(threads >= 2);
    CHECK(opd_sampler_start(sampler) == 0);
    usleep(500000);
    struct opd_window *window = take_now(sampler);
    uint64_t unknown = 0;
    for (uint32_t i = 0; i < window->sfiles; i++)
        unknown += !window->sfile_mode[i] && window->sfile_image[i] == OPD_UID_UNKNOWN;
    CHECK(weight_of(window, wanted) > 0 && unknown == 0);
    CHECK(weight_of(window, other) == 0);
    opd_window_free(window);

    // A process added later counts from then on, and ends by itself.
    CHECK(opd_sampler_add_process(sampler, (uint32_t)other) == threads);
    usleep(500000);
    window = take_now(sampler);
    CHECK(weight_of(window, other) > 0);
    opd_window_free(window);
    CHECK(opd_sampler_sweep_targets(sampler) == 2 * threads);
    end_burner(other);
    CHECK(opd_sampler_sweep_targets(sampler) == threads);
    end_burner(wanted);
    CHECK(opd_sampler_sweep_targets(sampler) == 0);
    struct opd_sampler_stats stats;
    opd_sampler_stats(sampler, &stats);
    CHECK(stats.fds == stats.cpus && stats.bad_records == 0);
    opd_sampler_destroy(sampler);
}

static void
what_a_target_makes_is_sampled_too(void)
{
    int gate[2];
    char byte = 0;
    CHECK(pipe(gate) == 0);
    // What it makes becomes ours, to be reaped here and not when init comes to it.
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(read(gate[0], &byte, 1) == 1);
        start_burner(); // on its own from here
        _exit(0);
    }
    struct opd_sampler *sampler = open_sampler_for(999, false, true);
    CHECK(opd_sampler_add_process(sampler, (uint32_t)pid) >= 1);
    CHECK(opd_sampler_start(sampler) == 0);
    CHECK(write(gate[1], &byte, 1) == 1);
    CHECK(waitpid(pid, NULL, 0) == pid);
    usleep(500000);
    struct opd_window *window = take_now(sampler);
    CHECK(!opd_sampler_covers(sampler, (uint32_t)getpid()));
    int32_t child = 0;
    uint64_t hits = 0;
    for (uint32_t i = 0; i < window->rows; i++) {
        int32_t tgid = window->sfile_tgid[window->row_sfile[i]];
        if (tgid != pid) {
            CHECK(child == 0 || child == tgid);
            child = tgid;
            hits += window->row_hits[i];
        }
    }
    opd_window_free(window);
    printf("child %d: %lu hits\n", child, (unsigned long)hits);
    CHECK(hits > 20);
    CHECK(opd_sampler_covers(sampler, (uint32_t)child));
    opd_sampler_sweep_targets(sampler);
    CHECK(!opd_sampler_covers(sampler, (uint32_t)pid));
    // The target has ended, but not what it made.
    CHECK(opd_sampler_sweep_targets(sampler) >= 1);
    end_burner(child);
    CHECK(opd_sampler_sweep_targets(sampler) == 0);
    opd_sampler_destroy(sampler);
}

static void
an_event_that_targets_refuse_leaves_nothing_open(void)
{
    struct opd_sampler *sampler = open_sampler_for(999, false, true);
    struct opd_sampler_stats before, after;
    int threads = opd_sampler_add_process(sampler, (uint32_t)getpid());
    CHECK(threads >= 1);
    opd_sampler_stats(sampler, &before);
    struct opd_event_attr wrong = {.type = PERF_TYPE_SOFTWARE, .config = 9999, .rate = 1};
    CHECK(opd_sampler_add_event(sampler, &wrong) < 0);
    opd_sampler_stats(sampler, &after);
    CHECK(after.fds == before.fds);
    struct opd_event_attr right = {
        .type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_TASK_CLOCK, .rate = 1000000};
    CHECK(opd_sampler_add_event(sampler, &right) == 1);
    opd_sampler_stats(sampler, &after);
    CHECK(after.fds == before.fds + before.cpus * (uint32_t)threads);
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
    RUN(a_counted_event_is_sampled_once_a_period);
    RUN(a_window_sums_rightly_over_changes_of_rate);
    RUN(only_the_targets_are_sampled);
    RUN(what_a_target_makes_is_sampled_too);
    RUN(an_event_that_targets_refuse_leaves_nothing_open);
    return 0;
}
