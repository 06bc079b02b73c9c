// SPDX-License-Identifier: Apache-2.0
// Description: knows its own profile. Two threads run three functions in
// turn; each sums the CPU time spent inside (CLOCK_THREAD_CPUTIME_ID around
// long calls) and the program prints the sums, in seconds, at its end.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define FUNCTIONS 3

static double
thread_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

#define WORK(name, rounds)                                                                         \
    __attribute__((noinline)) static uint64_t name(uint64_t state)                                 \
    {                                                                                              \
        for (uint64_t i = 0; i < (rounds); i++)                                                    \
            state = state * 6364136223846793005u + i;                                              \
        __asm__ volatile("" ::: "memory");                                                         \
        return state;                                                                              \
    }

WORK(work_large, 6000000)
WORK(work_middle, 3000000)
WORK(work_small, 1000000)

struct worker {
    pthread_t thread;
    double until, inside[FUNCTIONS];
    uint64_t sum;
};

static void *
run(void *argument)
{
    static uint64_t (*const functions[FUNCTIONS])(uint64_t) = {work_large, work_middle, work_small};
    struct worker *worker = argument;
    while (thread_seconds() < worker->until)
        for (int i = 0; i < FUNCTIONS; i++) {
            double before = thread_seconds();
            worker->sum += functions[i](worker->sum);
            worker->inside[i] += thread_seconds() - before;
        }
    return NULL;
}

int
main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 10;
    struct worker workers[2] = {{.until = seconds}, {.until = seconds}};
    for (int i = 0; i < 2; i++)
        pthread_create(&workers[i].thread, NULL, run, &workers[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(workers[i].thread, NULL);
    static const char *const names[FUNCTIONS] = {"work_large", "work_middle", "work_small"};
    for (int i = 0; i < FUNCTIONS; i++)
        printf("%s %.6f\n", names[i], workers[0].inside[i] + workers[1].inside[i]);
    return (workers[0].sum + workers[1].sum) == 0;
}
