// SPDX-License-Identifier: Apache-2.0
// The DSA path beside libc, on an emulated device: every op, sizes around every
// bound, overlaps, a fault at each page, other failures, forks, threads, signals.
// Each case compares all memory that could have been written, and what is returned.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dsa_emulator/emulator.h"
#include "opd/dsa.h"
#include "t.h"

enum {
    LEAST = 12288,
    MOST = 32768,
    PAGE = 4096,
    ROOM = 6 * MOST + 4 * PAGE,
    THREADS = 3,
};

static const size_t sizes[] = {0,         1,        63,   64,        65,
                               4095,      4096,     4097, LEAST - 1, LEAST,
                               LEAST + 1, MOST - 1, MOST, MOST + 1,  2 * MOST + 1};
enum { SIZES = sizeof(sizes) / sizeof(*sizes) };

// Under TSan, where threads matter and all takes ten times as long, fewer alone.
#if defined(__SANITIZE_THREAD__)
enum { EVERY = 5 };
#else
enum { EVERY = 1 };
#endif

static const char *const op_names[] = {"copy", "move", "set", "compare"};
static const struct opd_dsa_cpu all = {1, 1, 1, 0, 2000000000};
static char root[64], sys[96], dev[96];
static struct opd_dsa *dsa;
static const struct opd_dto_functions *f;
static _Atomic uint64_t cases;

// Memory of one thread: the subject's, the oracle's, and what both begin with.
struct arena {
    unsigned char *subject, *oracle, *pristine;
};

static struct arena
arena_made(void)
{
    unsigned char *memory = mmap(NULL, 3 * ROOM, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    CHECK(memory != MAP_FAILED);
    struct arena arena = {memory, memory + ROOM, memory + 2 * ROOM};
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < ROOM; i += 8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(arena.pristine + i, &state, 8);
    }
    return arena;
}

static int
sign(int value)
{
    return (value > 0) - (value < 0);
}

// Operands at offsets of the arena; `aux`: the byte of a set, or where a compare
// differs (its end: nowhere). False: a difference, told.
static bool
same(struct arena *arena, enum opd_dsa_op op, size_t n, size_t to, size_t from, size_t aux)
{
    size_t end = (to > from ? to : from) + n + PAGE;
    unsigned char *a = arena->subject, *b = arena->oracle;
    CHECK(end <= ROOM);
    memcpy(a, arena->pristine, end);
    memcpy(b, arena->pristine, end);
    bool right = true;
    errno = EXDEV;
    switch (op) {
    case OPD_DSA_COPY:
        right = f->copy(a + to, a + from, n) == a + to;
        memcpy(b + to, b + from, n);
        break;
    case OPD_DSA_MOVE:
        right = f->move(a + to, a + from, n) == a + to;
        memmove(b + to, b + from, n);
        break;
    case OPD_DSA_SET:
        right = f->set(a + to, (int)aux, n) == a + to;
        memset(b + to, (int)aux, n);
        break;
    default:
        memcpy(a + to, a + from, n);
        if (aux < n)
            a[to + aux] ^= aux % 2 ? 0x80 : 1;
        a[to + n] ^= 1; // beyond: must not count
        memcpy(b, a, end);
        right = sign(f->compare(a + to, a + from, n)) == sign(memcmp(b + to, b + from, n));
    }
    atomic_fetch_add_explicit(&cases, 1, memory_order_relaxed);
    bool same_errno = errno == EXDEV; // libc's leave it alone
    if (right && same_errno && !memcmp(a, b, end))
        return true;
    fprintf(stderr, "%s of %zu bytes to %zu from %zu (%zu): fault page %lld, status %llx\n",
            op_names[op], n, to, from, aux, (long long)dsa_emulator.fault_page,
            (unsigned long long)dsa_emulator.status);
    if (!same_errno)
        fprintf(stderr, "errno is changed\n");
    return false;
}

// Every op once at this size; the operands' places in their pages vary.
static void
each_op(struct arena *arena, size_t n, size_t shift)
{
    size_t to = PAGE + shift, from = to + n + PAGE + shift / 2;
    CHECK(same(arena, OPD_DSA_COPY, n, to, from, 0));
    CHECK(same(arena, OPD_DSA_COPY, n, from, to, 0));
    CHECK(same(arena, OPD_DSA_SET, n, to, 0, 0x1a5));
    CHECK(same(arena, OPD_DSA_MOVE, n, to, from, 0));
    CHECK(same(arena, OPD_DSA_CMP, n, to, from, n));
    CHECK(same(arena, OPD_DSA_CMP, n, to, from, 0));
    CHECK(same(arena, OPD_DSA_CMP, n, to, from, n / 2));
    CHECK(same(arena, OPD_DSA_CMP, n, to, from, n ? n - 1 : 0));
}

static void
overlaps(struct arena *arena, size_t n, size_t shift)
{
    const size_t apart[] = {0, 1, n / 2, n ? n - 1 : 0, n, PAGE, PAGE + 1, PAGE - 1, LEAST / 2};
    size_t low = PAGE + shift;
    for (size_t i = 0; i < sizeof(apart) / sizeof(*apart); i++) {
        CHECK(same(arena, OPD_DSA_MOVE, n, low + apart[i], low, 0));
        CHECK(same(arena, OPD_DSA_MOVE, n, low, low + apart[i], 0));
        CHECK(same(arena, OPD_DSA_CMP, n, low, low, n));
    }
}

static void
begin(bool dedicated, bool mapped, size_t least, uint32_t wait)
{
    static int number;
    snprintf(root, sizeof(root), "/tmp/opd-test-oracle-%d-%d", getpid(), number++);
    CHECK(!mkdir(root, 0700));
    snprintf(sys, sizeof(sys), "%s/sys", root);
    snprintf(dev, sizeof(dev), "%s/dev", root);
    dsa_emulator_make(root, 0, 0, dedicated, 4, MOST);
    dsa_emulator_make(root, 0, 1, dedicated, 4, MOST);
    dsa_emulator_root(root);
    dsa_emulator_reset();
    dsa_emulator.refuse_mmap = !mapped;
    struct opd_dsa_options options = {.sys = sys, .dev = dev, .cpu = &all, .wait = wait};
    for (int op = 0; op < OPD_DSA_OPS; op++)
        options.least[op] = least;
    static struct opd_dsa_report report;
    int rc = opd_dsa_create(&options, &report, &dsa);
    if (rc)
        fprintf(stderr, "%s\n", report.reason);
    CHECK(!rc);
    f = opd_dsa_functions(dsa);
}

// What the device did, so that a test in which it did nothing fails.
static struct opd_dsa_counts
finish(void)
{
    struct opd_dsa_counts counts;
    opd_dsa_counts(dsa, &counts);
    opd_dsa_destroy(dsa);
    if (dsa_emulator_counts.violations)
        fprintf(stderr, "%s\n", dsa_emulator_counts.violation);
    CHECK(!dsa_emulator_counts.violations);
    char command[96];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    CHECK(!system(command));
    return counts;
}

static uint64_t
sum(const struct opd_dsa_counts *counts, size_t offset)
{
    uint64_t total = 0;
    for (int op = 0; op < OPD_DSA_OPS; op++)
        total += *(const uint64_t *)((const char *)&counts->ops[op] + offset);
    return total;
}
#define SUM(counts, field) sum(&(counts), offsetof(struct opd_dsa_op_counts, field))

static void
plain(void)
{
    struct arena arena = arena_made();
    for (int way = 0; way < 4; way++)
        for (size_t least = 0; least <= LEAST; least += LEAST) {
            begin(way & 1, way & 2, least, OPD_DSA_BUSYPOLL);
            for (size_t i = (size_t)way % EVERY; i < SIZES; i += EVERY)
                for (size_t shift = 0; shift < 64; shift += 37) {
                    each_op(&arena, sizes[i], shift);
                    overlaps(&arena, sizes[i], shift);
                }
            struct opd_dsa_counts counts = finish();
            CHECK(SUM(counts, descriptors) > (EVERY > 1 ? 40 : 500) && !SUM(counts, redone));
            CHECK(!SUM(counts, faults) && (least != 0) == (counts.ops[0].small > 20 / EVERY));
        }
}

static void
fault_at_each_page(void)
{
    struct arena arena = arena_made();
    for (int backwards = 0; backwards < 2; backwards++)
        for (int source = 0; source < 2; source++) {
            begin(false, !source, 0, OPD_DSA_BUSYPOLL);
            dsa_emulator.backwards = backwards;
            dsa_emulator.fault_source = source;
            for (size_t i = 0; i < SIZES; i++)
                for (size_t page = 1; page <= MOST / PAGE + 2; page += EVERY) {
                    if (page > sizes[i] / PAGE + 2)
                        break;
                    dsa_emulator.fault_page = (int64_t)page;
                    each_op(&arena, sizes[i], page * 5 % 64);
                    overlaps(&arena, sizes[i], page * 7 % 64);
                }
            struct opd_dsa_counts counts = finish();
            CHECK(SUM(counts, faults) > 1000 / EVERY && SUM(counts, device_bytes) > 0);
            CHECK(counts.status[OPD_DSA_PAGE_FAULT] == SUM(counts, faults));
        }
}

static void
every_status(void)
{
    struct arena arena = arena_made();
    begin(false, true, 0, OPD_DSA_BUSYPOLL);
    dsa_emulator.every = 1;
    dsa_emulator.spoil = 1;
    for (int write = 0; write < 2; write++)
        for (int64_t status = 2; status < OPD_DSA_STATUSES; status += EVERY) {
            // A fault's record says how much was done, which `spoil` belies.
            if (status == OPD_DSA_PAGE_FAULT)
                continue;
            dsa_emulator.status = status | (write ? OPD_DSA_WRITE_FAULT : 0);
            each_op(&arena, sizes[status % SIZES], (size_t)status % 64);
            overlaps(&arena, MOST + 1, (size_t)status % 64);
        }
    dsa_emulator.every = 3;
    for (size_t i = 0; i < SIZES; i++)
        each_op(&arena, sizes[i], 17);
    struct opd_dsa_counts counts = finish();
    for (int status = 7; status < OPD_DSA_STATUSES; status += EVERY)
        CHECK(counts.status[status] > 0);
    CHECK(SUM(counts, redone) > 1000 / EVERY);
}

static void
busy_late_and_real_pages(void)
{
    struct arena arena = arena_made();
    for (int way = 0; way < 4; way++) {
        begin(way & 1, way & 2, 0, way & 2 ? OPD_DSA_UMWAIT : OPD_DSA_YIELD);
        dsa_emulator.busy_percent = 40;
        for (size_t i = 0; i < SIZES; i++)
            each_op(&arena, sizes[i], i);
        dsa_emulator.busy_percent = 0;
        dsa_emulator.delay_ns = 20000;
        dsa_emulator.late_ns = 20000;
        for (size_t i = 0; i < SIZES; i++)
            each_op(&arena, sizes[i], i);
        dsa_emulator.delay_ns = dsa_emulator.late_ns = 0;
        dsa_emulator.real_pages = 1;
        for (size_t i = 0; i < SIZES; i++) {
            // Zeros on both sides where nothing has been touched since.
            size_t n = sizes[i];
            CHECK(!madvise(arena.subject, ROOM, MADV_DONTNEED));
            CHECK(!f->compare(arena.subject, arena.subject + 3 * MOST, n));
            CHECK(f->set(arena.subject + 5, 7, n) == arena.subject + 5);
            CHECK(!madvise(arena.subject + PAGE, PAGE, MADV_DONTNEED));
            f->copy(arena.subject + 3 * MOST, arena.subject, n);
            for (size_t k = 0; k < n; k++) {
                bool set = k >= 5 && k / PAGE != 1;
                CHECK(arena.subject[3 * MOST + k] == (set ? 7 : 0));
            }
            atomic_fetch_add(&cases, 3);
        }
        struct opd_dsa_counts counts = finish();
        CHECK((way == 3 || SUM(counts, busy) > 10) && SUM(counts, faults) > 10);
        CHECK(!SUM(counts, timeouts));
    }
}

// Random cases; true when all were as libc's.
static bool
random_cases(struct arena *arena, uint64_t state, int number)
{
    for (int i = 0; i < number; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        enum opd_dsa_op op = (enum opd_dsa_op)(state % OPD_DSA_OPS);
        size_t n = sizes[state / 4 % SIZES], shift = state / 64 % 64;
        size_t apart = op == OPD_DSA_MOVE ? state / 4096 % (n + 1) : n + PAGE;
        size_t low = PAGE + shift, high = low + apart;
        bool up = state >> 40 & 1;
        if (!same(arena, op, n, up ? high : low, up ? low : high, state >> 41 & 0xff))
            return false;
    }
    return true;
}

static void *
thread(void *seed)
{
    struct arena arena = arena_made();
    bool right = random_cases(&arena, (uint64_t)(uintptr_t)seed * 0x9e3779b97f4a7c15u, 50);
    munmap(arena.subject, 3 * ROOM);
    return (void *)(uintptr_t)right;
}

static void
trouble(void)
{
    dsa_emulator.busy_percent = 10;
    dsa_emulator.fault_page = -1;
    dsa_emulator.every = 7;
    dsa_emulator.status = 0x20;
    dsa_emulator.delay_ns = 5000;
    dsa_emulator.spoil = 1;
}

static void
by_threads(void)
{
    for (int way = 0; way < 4; way++) {
        begin(way & 1, way & 2, 0, OPD_DSA_BUSYPOLL);
        trouble();
        thread((void *)(uintptr_t)99); // opened: who comes meanwhile stays with the CPU
        pthread_t threads[THREADS];
        for (uintptr_t i = 0; i < THREADS; i++)
            CHECK(!pthread_create(&threads[i], NULL, thread, (void *)(i + 1)));
        for (int i = 0; i < THREADS; i++) {
            void *right;
            CHECK(!pthread_join(threads[i], &right) && right);
        }
        struct opd_dsa_counts counts = finish();
        CHECK(SUM(counts, descriptors) > 100 && SUM(counts, redone) > 5);
    }
}

// Children of children, made while this process goes on using the device.
static void
by_forks(void)
{
    struct arena arena = arena_made();
    for (int way = 0; way < 4; way++) {
        begin(way & 1, way & 2, 0, OPD_DSA_BUSYPOLL);
        trouble();
        CHECK(random_cases(&arena, 1, 50));
        if (way & 1)
            opd_dsa_let_go(dsa);
        pid_t children[4];
        for (int i = 0; i < 4; i++) {
            children[i] = fork();
            CHECK(children[i] >= 0);
            if (children[i])
                continue;
            bool right = random_cases(&arena, 2 + (uint64_t)i, 50);
            pid_t grandchild = fork();
            if (!grandchild)
                _exit(!random_cases(&arena, 7, 20));
            int status = 1;
            waitpid(grandchild, &status, 0);
            _exit(!right || status || dsa_emulator_counts.violations);
        }
        CHECK(random_cases(&arena, 9, 100));
        for (int i = 0; i < 4; i++) {
            int status;
            CHECK(waitpid(children[i], &status, 0) == children[i] && !status);
        }
        struct opd_dsa_counts counts = finish();
        CHECK(counts.opened > (way & 1 ? 0 : 8));
    }
}

static struct arena of_handler;
static _Atomic int handled, wrong;

static void
on_alarm(int number)
{
    int error = errno;
    static uint64_t state = 99;
    state = state * 6364136223846793005u + 1442695040888963407u;
    if (!random_cases(&of_handler, state | 1, 1))
        wrong++;
    handled++;
    errno = error;
}

// A handler copies, moves and compares in the middle of its own thread's call.
static void
in_signal_handlers(void)
{
    struct arena arena = arena_made();
    of_handler = arena_made();
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART}, old;
    CHECK(!sigaction(SIGALRM, &action, &old));
    // TSan runs handlers with SIGILL blocked, which ends the emulated instructions.
    for (int way = 0; way < (EVERY > 1 ? 1 : 2); way++) {
        begin(false, way, 0, OPD_DSA_BUSYPOLL);
        trouble();
        dsa_emulator.delay_ns = 50000;
        const struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
        handled = 0;
        CHECK(!setitimer(ITIMER_REAL, &often, NULL));
        uint64_t nested = 0;
        for (int i = 0; i < 60 && (handled < 60 || nested < 10); i++) {
            CHECK(random_cases(&arena, 11 + (uint64_t)i, 20));
            struct opd_dsa_counts counts;
            opd_dsa_counts(dsa, &counts);
            nested = SUM(counts, nested);
        }
        CHECK(!setitimer(ITIMER_REAL, &never, NULL));
        CHECK(handled > 0 && !wrong && nested > 0);
        finish();
    }
    CHECK(!sigaction(SIGALRM, &old, NULL));
}

// A handler forks while its thread waits for the device: the child comes back into
// that wait, where no record will ever be written.
static struct arena of_fork;
static _Atomic int forks;
static _Atomic pid_t forked = -1;

static void
on_usr1(int number)
{
    int error = errno;
    if (!forks++)
        forked = fork();
    errno = error;
}

static void
forked_in_a_call(void)
{
    of_fork = arena_made();
    begin(false, true, 0, OPD_DSA_BUSYPOLL);
    struct sigaction action = {.sa_handler = on_usr1}, old;
    CHECK(!sigaction(SIGUSR1, &action, &old));
    CHECK(same(&of_fork, OPD_DSA_COPY, MOST, PAGE, 3 * MOST, 0));
    dsa_emulator.delay_ns = 100000000;
    pid_t teller = fork();
    if (!teller) {
        usleep(30000);
        _exit(kill(getppid(), SIGUSR1));
    }
    pid_t self = getpid();
    bool right = same(&of_fork, OPD_DSA_MOVE, 2 * MOST, PAGE, PAGE + MOST, 0);
    if (getpid() != self)
        _exit(!right || !same(&of_fork, OPD_DSA_COPY, 99, PAGE, MOST, 0));
    CHECK(right && forked > 0);
    int status;
    CHECK(waitpid(forked, &status, 0) == forked && !status);
    CHECK(waitpid(teller, &status, 0) == teller && !status);
    CHECK(!sigaction(SIGUSR1, &old, NULL));
    finish();
}

int
main(void)
{
    RUN(plain);
    RUN(fault_at_each_page);
    RUN(every_status);
    RUN(busy_late_and_real_pages);
    RUN(by_threads);
    RUN(by_forks);
    RUN(in_signal_handlers);
    RUN(forked_in_a_call);
    printf("%llu cases, 0 differences\n", (unsigned long long)cases);
    return 0;
}
