// SPDX-License-Identifier: Apache-2.0
// Description: burns CPU in a chain of frames, for ever, or until ROUNDS are
// done; then it prints the CPU seconds that took.
// usage: spin [CPU [ROUNDS]]: bound to that CPU unless it is negative
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define DEPTH 12

__attribute__((noinline)) static uint64_t
spin(uint64_t state, int depth)
{
    if (depth > 0)
        state = spin(state + 1, depth - 1);
    else
        for (int i = 0; i < 4000; i++)
            state = state * 6364136223846793005u + (uint64_t)i;
    __asm__ volatile("" : "+r"(state));
    return state;
}

int
main(int argc, char **argv)
{
    int cpu = argc > 1 ? atoi(argv[1]) : -1;
    long rounds = argc > 2 ? atol(argv[2]) : -1;
    if (cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
        if (sched_setaffinity(0, sizeof set, &set) != 0)
            perror("sched_setaffinity");
    }
    struct timespec before, after;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    uint64_t state = 1;
    for (long i = 0; rounds < 0 || i < rounds; i++)
        state = spin(state, DEPTH);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    printf("%.9f\n",
           (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) / 1e9);
    return state == 0;
}
