// SPDX-License-Identifier: Apache-2.0
#include "pft_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "placing.h"

enum { POLL_NS = 100000, STACK = 256 << 10 };

struct worker {
    struct opd_pft *pft;
    uint32_t index;
    pthread_t thread;
    pid_t process;
    int reaped;
    // While it runs:
    char *slice;
    int counter;
    pid_t holder;
    struct pft_uffd uffd;
};

static void
nap(uint64_t ns)
{
    struct timespec time = {.tv_sec = (time_t)(ns / 1000000000u),
                            .tv_nsec = (long)(ns % 1000000000u)};
    while (nanosleep(&time, &time) && errno == EINTR)
        ;
}

static struct pft_slot *
slot_of(const struct worker *worker)
{
    return &worker->pft->shared->slot[worker->index];
}

static int
counter_open(void)
{
    // The loop's faults come from user mode, so this needs no permission.
    struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE,
                                   .size = sizeof(attr),
                                   .config = PERF_COUNT_SW_PAGE_FAULTS,
                                   .exclude_kernel = 1,
                                   .exclude_hv = 1};
    int fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

struct reading {
    uint64_t wall, cpu;
    struct rusage usage;
    int64_t faults;
};

// In this order before the loop, in the other after it: the wall clock's
// interval holds the others'.
static void
read_before(const struct worker *worker, struct reading *reading)
{
    struct timespec cpu;
    reading->wall = opd_raw_ns();
    getrusage(worker->pft->options.whole_self ? RUSAGE_SELF : RUSAGE_THREAD, &reading->usage);
    if (worker->counter >= 0 &&
        read(worker->counter, &reading->faults, sizeof(reading->faults)) < 0)
        reading->faults = -errno;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    reading->cpu = (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec;
}

static void
read_after(const struct worker *worker, struct reading *reading)
{
    struct timespec cpu;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    reading->cpu = (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec;
    if (worker->counter >= 0 &&
        read(worker->counter, &reading->faults, sizeof(reading->faults)) < 0)
        reading->faults = -errno;
    getrusage(worker->pft->options.whole_self ? RUSAGE_SELF : RUSAGE_THREAD, &reading->usage);
    reading->wall = opd_raw_ns();
}

static uint64_t
microseconds(struct timeval from, struct timeval to)
{
    return (uint64_t)((to.tv_sec - from.tv_sec) * 1000000 + (to.tv_usec - from.tv_usec));
}

static void
fill_row(const struct worker *worker, const struct reading *from, const struct reading *to)
{
    struct opd_pft_worker *row = &slot_of(worker)->row;
    row->start_ns = from->wall;
    row->end_ns = to->wall;
    row->cpu_ns = to->cpu - from->cpu;
    row->user_us = microseconds(from->usage.ru_utime, to->usage.ru_utime);
    row->system_us = microseconds(from->usage.ru_stime, to->usage.ru_stime);
    row->minor = (uint64_t)(to->usage.ru_minflt - from->usage.ru_minflt);
    row->major = (uint64_t)(to->usage.ru_majflt - from->usage.ru_majflt);
    row->switches = (uint64_t)(to->usage.ru_nivcsw - from->usage.ru_nivcsw);
    row->kernel_faults = worker->counter < 0 ? worker->counter : to->faults - from->faults;
    row->cpu = sched_getcpu();
    row->task = (int32_t)syscall(SYS_gettid);
}

static int
set_place(struct worker *worker, char *reason)
{
    const struct opd_pft_options *options = &worker->pft->options;
    if (options->cpu_count) {
        int cpu = options->cpus[worker->index % options->cpu_count];
        int rc = opd_place_cpu(cpu);
        if (rc)
            return pft_fail(reason, -rc, "pinning worker %u to CPU %d", worker->index, cpu);
    }
    if (options->fifo && worker->index) {
        struct sched_param param = {.sched_priority = (int)options->fifo};
        if (sched_setscheduler(0, SCHED_FIFO, &param))
            return pft_fail(reason, errno, "SCHED_FIFO at priority %u", options->fifo);
    }
    return 0;
}

static void
prefer_for_oom(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    // Refused only where a lower value is held down; then the default stands.
    ssize_t wrote = write(fd, "1000", 4);
    (void)wrote;
    close(fd);
}

static int
get_ready(struct worker *worker)
{
    struct opd_pft *pft = worker->pft;
    struct pft_slot *slot = slot_of(worker);
    worker->counter = -ENOSYS;
    worker->holder = 0;
    worker->uffd.fd = -1;
    worker->slice = NULL;
    int rc = set_place(worker, slot->reason);
    if (rc)
        return rc;
    uint64_t offset = (uint64_t)worker->index * pft->stride;
    if (pft->options.multimap) {
        worker->slice = pft_map(pft, pft->stride, offset, slot->reason);
        if (worker->slice == NULL)
            return -EIO;
    } else {
        worker->slice = pft->base + offset;
    }
    rc = pft_prepare(pft, worker->slice, slot->reason);
    if (rc == 0 && pft->options.prepare >= OPD_PFT_USERFAULTFD &&
        pft->options.prepare <= OPD_PFT_USERFAULTFD_WP)
        rc = pft_uffd_start(&worker->uffd, pft, worker->slice, slot->reason);
    if (rc)
        return rc;
    if (pft->look & OPD_PFT_COUNT)
        worker->counter = counter_open();
    return 0;
}

// What the loop needs besides the slice is faulted in here, after any fork: the
// code, the stack, the bins, the row, the clock's page.
static void
settle(struct worker *worker)
{
    struct pft_slot *slot = slot_of(worker);
    struct reading from = {0}, to = {0};
    read_before(worker, &from);
    (void)pft_loop(worker->pft, worker->slice, 0, slot->bins);
    read_after(worker, &to);
    fill_row(worker, &from, &to);
    memset(slot->bins, 0, sizeof(slot->bins));
}

static void
measure(struct worker *worker)
{
    struct opd_pft *pft = worker->pft;
    struct pft_slot *slot = slot_of(worker);
    struct reading from = {0}, to = {0};
    read_before(worker, &from);
    int rc = pft_loop(pft, worker->slice, pft->options.pages_each, slot->bins);
    read_after(worker, &to);
    fill_row(worker, &from, &to);
    static const char *const names[] = {
        [OPD_PFT_MLOCK] = "mlock",
        [OPD_PFT_MAP_POPULATE] = "MAP_POPULATE",
        [OPD_PFT_POPULATE_READ] = "MADV_POPULATE_READ",
        [OPD_PFT_POPULATE_WRITE] = "MADV_POPULATE_WRITE",
        [OPD_PFT_COLLAPSE] = "MADV_COLLAPSE",
        [OPD_PFT_DONTNEED] = "MADV_DONTNEED",
    };
    if (rc) {
        slot->error = rc;
        pft_fail(slot->reason, -rc, "%s of %zu bytes", names[pft->options.touch], pft->slice);
    }
    atomic_store(&slot->state, rc ? PFT_FAILED : PFT_DONE);
}

// What the memory became; its worker still has it.
static void
look_where(struct worker *worker)
{
    struct pft_slot *slot = slot_of(worker);
    slot->row.huge_bytes = opd_place_huge(worker->slice, worker->pft->slice);
    if (worker->pft->look & OPD_PFT_PLACE)
        pft_placement(worker->slice, slot->placement, sizeof(slot->placement));
}

static void
clean_up(struct worker *worker)
{
    if (worker->holder > 0)
        pft_hold_end(worker->holder);
    pft_uffd_stop(&worker->uffd);
    if (worker->counter >= 0)
        close(worker->counter);
    if (worker->pft->options.multimap && worker->slice)
        pft_unmap(worker->pft, worker->slice, worker->pft->stride);
}

static int
hold(struct worker *worker)
{
    struct pft_slot *slot = slot_of(worker);
    uint32_t how = worker->pft->options.prepare;
    if (how != OPD_PFT_FORKED && how != OPD_PFT_FORKED_GONE)
        return 0;
    worker->holder = pft_hold_fork(slot->reason);
    if (worker->holder < 0)
        return -EAGAIN;
    if (how == OPD_PFT_FORKED_GONE) {
        pft_hold_end(worker->holder);
        worker->holder = 0;
    }
    return 0;
}

// Giving way lets more workers than CPUs become ready; on an idle CPU it costs
// less than a microsecond.
static uint32_t
await(struct opd_pft *pft, uint32_t while_it_is)
{
    uint32_t go = while_it_is;
    while ((go = atomic_load(&pft->shared->go)) == while_it_is)
        sched_yield();
    return go;
}

// All of a worker but the first.
static void
work(struct worker *worker)
{
    struct opd_pft *pft = worker->pft;
    struct pft_slot *slot = slot_of(worker);
    int rc = get_ready(worker);
    if (rc == 0 && pft->options.processes)
        rc = hold(worker);
    if (rc)
        slot->error = rc;
    atomic_store(&slot->state, rc ? PFT_FAILED : PFT_READY);
    uint32_t go = rc ? PFT_ABORT : await(pft, PFT_WAIT);
    if (go == PFT_SETTLE) {
        settle(worker);
        atomic_store(&slot->state, PFT_SETTLED);
        go = await(pft, PFT_SETTLE);
    }
    if (go == PFT_GO) {
        measure(worker);
        while (!atomic_load(&pft->shared->over))
            nap(POLL_NS);
        look_where(worker);
        if (pft->options.delay_ns)
            nap(pft->options.delay_ns);
    }
    clean_up(worker);
}

static void *
thread_main(void *argument)
{
    work(argument);
    return NULL;
}

static int
start(struct worker *worker, pthread_attr_t *attr)
{
    struct opd_pft *pft = worker->pft;
    if (!pft->options.processes) {
        int error = pthread_create(&worker->thread, attr, thread_main, worker);
        return error ? pft_fail(pft->reason, error, "making thread %u of %u", worker->index + 1,
                                pft->options.workers)
                     : 0;
    }
    pid_t launcher = getpid();
    worker->process = fork();
    if (worker->process < 0)
        return pft_fail(pft->reason, errno, "making process %u of %u", worker->index + 1,
                        pft->options.workers);
    if (worker->process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != launcher)
            _exit(1);
        prefer_for_oom();
        work(worker);
        _exit(0);
    }
    return 0;
}

// A worker that ended before its loop did was killed.
static int
look_for_dead(struct opd_pft *pft, struct worker *workers, uint32_t made)
{
    for (uint32_t i = 1; pft->options.processes && i < made; i++) {
        int status = 0;
        if (workers[i].reaped || waitpid(workers[i].process, &status, WNOHANG) <= 0)
            continue;
        workers[i].reaped = 1;
        uint32_t state = atomic_load(&pft->shared->slot[i].state);
        if (state == PFT_DONE || state == PFT_FAILED)
            continue;
        if (WIFSIGNALED(status))
            pft_fail(pft->reason, 0, "worker %u (process %d) was killed by signal %d (%s)%s", i,
                     workers[i].process, WTERMSIG(status), strsignal(WTERMSIG(status)),
                     WTERMSIG(status) == SIGKILL ? ": out of memory?" : "");
        else
            pft_fail(pft->reason, 0, "worker %u (process %d) ended with status %d", i,
                     workers[i].process, WEXITSTATUS(status));
        return -EOWNERDEAD;
    }
    return 0;
}

static int
all_reach(struct opd_pft *pft, struct worker *workers, uint32_t from, enum pft_state want)
{
    for (uint32_t round = 0;; round++) {
        uint32_t reached = from;
        for (uint32_t i = from; i < pft->options.workers; i++) {
            struct pft_slot *slot = &pft->shared->slot[i];
            uint32_t state = atomic_load(&slot->state);
            if (state == PFT_FAILED) {
                pft_fail(pft->reason, 0, "worker %u: %s", i, slot->reason);
                return slot->error ? slot->error : -EIO;
            }
            reached += state == want;
        }
        if (reached == pft->options.workers)
            return 0;
        int rc = round % 16 == 15 ? look_for_dead(pft, workers, pft->options.workers) : 0;
        if (rc)
            return rc;
        nap(POLL_NS);
    }
}

static int
lead(struct opd_pft *pft, struct worker *workers)
{
    struct worker *own = &workers[0];
    struct pft_slot *slot = slot_of(own);
    int rc = all_reach(pft, workers, 1, PFT_READY);
    if (rc == 0) {
        rc = get_ready(own);
        // With threads one child shares the pages of all of them.
        rc = rc ? rc : hold(own);
        if (rc)
            pft_fail(pft->reason, 0, "worker 0: %s", slot->reason);
    }
    if (rc)
        return rc;
    atomic_store(&pft->shared->go, PFT_SETTLE);
    rc = all_reach(pft, workers, 1, PFT_SETTLED);
    if (rc)
        return rc;
    settle(own);
    atomic_store(&pft->shared->go, PFT_GO);
    measure(own);
    rc = all_reach(pft, workers, 0, PFT_DONE);
    if (rc == 0)
        look_where(own);
    // The others' memory stays as well: they wait for the end.
    if (rc == 0 && pft->look & OPD_PFT_PAUSE)
        nap(pft->options.pause_ns);
    return rc;
}

static void
reap(struct opd_pft *pft, struct worker *workers, uint32_t made, int failed)
{
    // Those that wait are told; processes in the middle of a loop that nobody
    // wants any more are ended.
    if (atomic_load(&pft->shared->go) != PFT_GO)
        atomic_store(&pft->shared->go, PFT_ABORT);
    atomic_store(&pft->shared->over, 1);
    for (uint32_t i = 1; i < made; i++) {
        if (!pft->options.processes) {
            pthread_join(workers[i].thread, NULL);
        } else if (!workers[i].reaped) {
            if (failed)
                kill(workers[i].process, SIGKILL);
            while (waitpid(workers[i].process, NULL, 0) < 0 && errno == EINTR)
                ;
        }
    }
}

int
pft_workers_run(struct opd_pft *pft)
{
    uint32_t count = pft->options.workers, made = 1;
    struct worker *workers = calloc(count, sizeof(*workers));
    if (workers == NULL)
        return pft_fail(pft->reason, ENOMEM, "%u workers", count);
    for (uint32_t i = 0; i < count; i++)
        workers[i] = (struct worker){.pft = pft, .index = i, .counter = -1, .uffd = {.fd = -1}};
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    int rc = 0;
    while (rc == 0 && made < count) {
        rc = start(&workers[made], &attr);
        made += rc == 0;
    }
    pthread_attr_destroy(&attr);
    if (rc == 0)
        rc = lead(pft, workers);
    reap(pft, workers, made, rc != 0);
    clean_up(&workers[0]);
    free(workers);
    return rc;
}
