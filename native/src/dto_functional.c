// SPDX-License-Identifier: Apache-2.0
// The functional suite: cases, run in processes that may die of them.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dto_functional_private.h"
#include "opd/ticks.h"

enum { CHILDREN = 4, ALARM_US = 300, POLL_US = 500, HANDLED_LEAST = 50 };

struct suite {
    const struct opd_dto_functional_options *options;
    struct dto_told *told; // shared with the parts' processes
    uint32_t part, thread;
};

static uint64_t
next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint64_t
seed_of(const struct suite *suite, uint64_t number)
{
    uint64_t state =
        (suite->options->seed + 1) * 0x9e3779b97f4a7c15u + number * 0xd1342543de82ef95u;
    return state ? state : 1;
}

// Random cases; false at the first that is wrong.
static bool
random_cases(const struct suite *suite, struct dto_arena *arena, uint64_t state, uint32_t number)
{
    uint64_t sizes[DTO_SIZES_MOST];
    uint32_t count = dto_functional_sizes(suite->options, sizes);
    for (uint32_t i = 0; i < number; i++) {
        uint64_t size = sizes[next(&state) % count];
        if (next(&state) % 4 == 0)
            size = next(&state) % (suite->options->largest + 1);
        uint32_t op = (uint32_t)(next(&state) % OPD_DTO_OPS);
        uint64_t apart = size + DTO_GUARD;
        if (op == OPD_DTO_MEMMOVE && next(&state) % 2)
            apart = next(&state) % (size + 1);
        uint64_t low = DTO_GUARD + next(&state) % 128, high = low + apart;
        bool up = next(&state) % 2;
        struct opd_dto_case one = {.part = suite->part,
                                   .op = op,
                                   .thread = suite->thread,
                                   .size = size,
                                   .to = up ? high : low,
                                   .from = up ? low : high,
                                   .aux = op == OPD_DTO_MEMSET ? next(&state) % 512
                                                               : next(&state) % (size + 1)};
        if (!dto_functional_case(suite->options, suite->told, arena, &one))
            return false;
    }
    return true;
}

struct of_thread {
    struct suite suite;
    struct dto_arena arena;
    bool right;
};

static void *
thread_main(void *argument)
{
    struct of_thread *mine = argument;
    mine->right =
        random_cases(&mine->suite, &mine->arena, seed_of(&mine->suite, mine->suite.thread),
                     mine->suite.options->random);
    return NULL;
}

static bool
threads_part(struct suite *suite)
{
    uint32_t count = suite->options->threads;
    struct of_thread *all = calloc(count, sizeof(*all));
    pthread_t *ids = calloc(count, sizeof(*ids));
    uint32_t made = 0;
    bool right = all && ids;
    for (; right && made < count; made++) {
        all[made].suite = *suite;
        all[made].suite.thread = made;
        if (dto_arena_make(&all[made].arena, suite->options->largest))
            right = false;
        else if (pthread_create(&ids[made], NULL, thread_main, &all[made]))
            right = false;
        if (!right)
            break;
    }
    if (!right)
        suite->told->error = ENOMEM;
    for (uint32_t i = 0; i < made; i++) {
        pthread_join(ids[i], NULL);
        right &= all[i].right;
    }
    free(all);
    free(ids);
    return right;
}

// What the handler uses: of this process alone, which is a part's.
static struct {
    struct suite suite;
    struct dto_arena arena;
    uint64_t state;
    _Atomic uint32_t handled, wrong;
} in_handler;

static void
on_alarm(int number)
{
    int error = errno;
    if (!in_handler.wrong &&
        !random_cases(&in_handler.suite, &in_handler.arena, next(&in_handler.state), 1))
        in_handler.wrong = 1;
    in_handler.handled++;
    errno = error;
}

static bool
signals_part(struct suite *suite, struct dto_arena *arena)
{
    if (dto_arena_make(&in_handler.arena, suite->options->largest)) {
        suite->told->error = ENOMEM;
        return false;
    }
    in_handler.suite = *suite;
    in_handler.suite.thread = 1;
    in_handler.state = seed_of(suite, 1000);
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    const struct itimerval often = {{0, ALARM_US}, {0, ALARM_US}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    bool right = true;
    uint64_t begin = opd_raw_ns();
    for (uint32_t i = 0; right && !in_handler.wrong; i++) {
        right = random_cases(suite, arena, seed_of(suite, i), suite->options->random);
        // Until enough handlers have come amid a call, or a fifth of the time is gone.
        if (in_handler.handled >= HANDLED_LEAST ||
            opd_raw_ns() - begin > suite->options->limit_ns / 5)
            break;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    return right && !in_handler.wrong;
}

static bool
forks_part(struct suite *suite, struct dto_arena *arena)
{
    bool right = random_cases(suite, arena, seed_of(suite, 1), suite->options->random / 4 + 1);
    pid_t children[CHILDREN];
    for (uint32_t i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        if (children[i])
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        suite->thread = i + 1;
        _exit(!random_cases(suite, arena, seed_of(suite, 2 + i), suite->options->random));
    }
    right &= random_cases(suite, arena, seed_of(suite, 99), suite->options->random);
    for (uint32_t i = 0; i < CHILDREN; i++) {
        int status = 1;
        if (children[i] < 0) {
            suite->told->error = EAGAIN;
            right = false;
            continue;
        }
        waitpid(children[i], &status, 0);
        if (WIFSIGNALED(status))
            dto_told_gone(suite->told, children[i], WTERMSIG(status));
        right &= !status;
    }
    return right;
}

// In the part's process. Status 0: all right.
static int
part_main(struct suite *suite)
{
    struct dto_arena arena;
    if (dto_arena_make(&arena, suite->options->largest)) {
        suite->told->error = ENOMEM;
        return 1;
    }
    bool right;
    switch (suite->part) {
    case OPD_DTO_THREADS:
        right = threads_part(suite);
        break;
    case OPD_DTO_SIGNALS:
        right = signals_part(suite, &arena);
        break;
    case OPD_DTO_FORKS:
        right = forks_part(suite, &arena);
        break;
    default:
        right = dto_functional_table(suite->options, suite->told, &arena, suite->part);
    }
    return !right;
}

// Waits for the part's process. Its status; -1: it hung, and was killed.
static int
wait_for(pid_t child, uint64_t limit_ns)
{
    uint64_t begin = opd_raw_ns();
    for (;;) {
        int status;
        pid_t rc = waitpid(child, &status, WNOHANG);
        if (rc == child)
            return status;
        if (rc < 0 && errno != EINTR)
            return 1 << 8;
        if (opd_raw_ns() - begin > limit_ns) {
            kill(-child, SIGKILL);
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            return -1;
        }
        usleep(POLL_US);
    }
}

static int
run_part(struct suite *suite)
{
    pid_t parent = getpid(), child = fork();
    if (child < 0)
        return -errno;
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        // Nobody's handler, and no core: what it dies of is told by the parent.
        const int fatal[] = {SIGALRM, SIGSEGV, SIGBUS, SIGFPE, SIGABRT};
        for (size_t i = 0; i < sizeof(fatal) / sizeof(*fatal); i++)
            signal(fatal[i], SIG_DFL);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        _exit(part_main(suite));
    }
    int status = wait_for(child, suite->options->limit_ns);
    if (status == -1)
        dto_told_gone(suite->told, child, 0);
    else if (WIFSIGNALED(status))
        dto_told_gone(suite->told, child, WTERMSIG(status));
    return suite->told->error ? -suite->told->error : 0;
}

int
opd_dto_functional(const struct opd_dto_functional_options *options, struct opd_dto_functional *out)
{
    memset(out, 0, sizeof(*out));
    if (!options->threads || options->threads > 64 || !options->random || !options->limit_ns ||
        options->largest < 64 || options->largest > DTO_LARGEST_MOST ||
        options->parts >> OPD_DTO_PARTS || !options->parts)
        return -EINVAL;
    struct dto_told *told =
        mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (told == MAP_FAILED)
        return -errno;
    struct suite suite = {.options = options, .told = told};
    int rc = 0;
    for (suite.part = 0; suite.part < OPD_DTO_PARTS && !rc; suite.part++)
        if (options->parts >> suite.part & 1) {
            for (uint32_t i = 0; i < DTO_SLOTS; i++)
                told->slots[i].busy = 0;
            rc = run_part(&suite);
        }
    *out = told->result;
    munmap(told, sizeof(*told));
    return rc;
}
