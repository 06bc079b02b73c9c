// SPDX-License-Identifier: Apache-2.0
// One round: a process made for it, pinned, waited for no longer than its
// limit, and what it left taken over.
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dto_private.h"
#include "placing.h"

#define LOOK_NS 20000000u

// All 24 orders of four, by the number's digits in the factorial system.
void
opd_dto_order(uint8_t number, uint8_t arms[OPD_DTO_ARMS])
{
    uint8_t left[OPD_DTO_ARMS] = {OPD_DTO_A, OPD_DTO_B, OPD_DTO_A_AGAIN, OPD_DTO_B_AGAIN};
    unsigned digits[OPD_DTO_ARMS] = {number / 6 % 4, number / 2 % 3, number % 2, 0};
    for (unsigned i = 0; i < OPD_DTO_ARMS; i++) {
        arms[i] = left[digits[i]];
        for (unsigned k = digits[i]; k + 1 < OPD_DTO_ARMS - i; k++)
            left[k] = left[k + 1];
    }
}

static void
be_a_round(struct opd_dto *dto, uint32_t iterations, uint32_t check, pid_t parent)
{
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTERM};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    // A crash is to end it, not to run what the caller set up for its own.
    for (size_t i = 0; i < sizeof(fatal) / sizeof(*fatal); i++)
        signal(fatal[i], SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    int rc = dto->options.cpu < 0 ? 0 : opd_place_cpu(dto->options.cpu);
    if (rc) {
        dto_fail(dto->result->reason, -rc, "pinning a round to CPU %d", dto->options.cpu);
        dto->result->state = DTO_WRONG;
        _exit(0);
    }
    dto_loop_run(dto, iterations, check);
    _exit(0);
}

static void
nap(uint64_t ns)
{
    struct timespec time = {.tv_nsec = (long)ns};
    nanosleep(&time, NULL);
}

// Waits for its end until the limit; 1: it had to be ended.
static int
await(pid_t child, uint64_t limit_ns, int *status)
{
    uint64_t until = opd_raw_ns() + limit_ns;
    int fd = (int)syscall(SYS_pidfd_open, child, 0), ended = 0;
    for (;;) {
        uint64_t now = opd_raw_ns();
        pid_t found = waitpid(child, status, ended ? 0 : WNOHANG);
        if (found == child || (found < 0 && errno != EINTR))
            break;
        if (ended)
            continue;
        if (now >= until) {
            kill(child, SIGKILL);
            ended = 1;
        } else if (fd >= 0) {
            uint64_t ms = (until - now) / 1000000 + 1;
            poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, ms < 60000 ? (int)ms : 60000);
        } else {
            nap(LOOK_NS); // a kernel before 5.3
        }
    }
    if (fd >= 0)
        close(fd);
    return ended;
}

static int
judge_end(const struct opd_dto *dto, int status, int ended, char *reason)
{
    static const char *const reached[] = {"while its results were checked", "while it measured",
                                          "after it had measured", "after it failed"};
    const struct dto_result *result = dto->result;
    uint32_t state = __atomic_load_n(&result->state, __ATOMIC_ACQUIRE);
    if (ended) {
        dto_fail(reason, 0, "a round took longer than %.3g s and was ended %s",
                 (double)dto->options.round_limit_ns / 1e9, reached[state & 3]);
        return -ETIMEDOUT;
    }
    if (WIFSIGNALED(status)) {
        dto_fail(reason, 0, "a round's process was killed by signal %d (%s) %s", WTERMSIG(status),
                 strsignal(WTERMSIG(status)), reached[state & 3]);
        return -EOWNERDEAD;
    }
    if (state == DTO_WRONG) {
        snprintf(reason, OPD_DTO_REASON, "%s", result->reason);
        return -EBADMSG;
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) || state != DTO_MEASURED) {
        dto_fail(reason, 0, "a round's process ended by itself with status %d %s",
                 WIFEXITED(status) ? WEXITSTATUS(status) : status, reached[state & 3]);
        return -EOWNERDEAD;
    }
    return 0;
}

// The next round's seed: far from this one, whose draws it would repeat were it
// the state that one of them leads to. Each seed follows one other (MurmurHash3's
// last steps).
static uint32_t
another(uint32_t seed)
{
    uint32_t x = seed + 0x9e3779b9u;
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    x ^= x >> 16;
    return x ? x : 1;
}

int
opd_dto_round(struct opd_dto *dto, uint32_t iterations, uint32_t check, uint64_t *ticks,
              uint8_t *order, struct opd_dto_round *out, char *reason)
{
    struct dto_result *result = dto->result;
    if (iterations == 0 || iterations > OPD_DTO_ITERATIONS_MAX)
        return dto_fail(reason, EINVAL, "a round has 1 to %d iterations, not %u",
                        OPD_DTO_ITERATIONS_MAX, iterations);
    result->state = DTO_BEGUN;
    result->reason[0] = 0;
    result->round = (struct opd_dto_round){.seed = dto->seed};
    pid_t parent = getpid(), child = fork();
    if (child < 0)
        return dto_fail(reason, errno, "making a round's process");
    if (child == 0)
        be_a_round(dto, iterations, check, parent);
    int status = 0;
    int ended = await(child, dto->options.round_limit_ns, &status);
    int rc = judge_end(dto, status, ended, reason);
    if (rc)
        return rc;
    dto->seed = another(dto->seed);
    *out = result->round;
    memcpy(order, result->order, iterations);
    for (uint32_t arm = 0; arm < OPD_DTO_ARMS; arm++)
        memcpy(ticks + (size_t)arm * iterations, result->ticks[arm], iterations * sizeof(*ticks));
    return 0;
}
