// SPDX-License-Identifier: Apache-2.0
// Description: never the same stack twice: recurses along pseudo-random paths
// through sixteen functions and burns a little CPU at the end of each path.
// usage: stacks [DEPTH [SEED]]
#include <stdint.h>
#include <stdlib.h>

static uint64_t path;
static volatile uint64_t sink;

__attribute__((noinline)) static void
burn(void)
{
    uint64_t state = path;
    for (int i = 0; i < 20000; i++)
        state = state * 6364136223846793005u + (uint64_t)i;
    sink = state;
}

static void step(int depth);

#define STEP(number)                                                                               \
    __attribute__((noinline)) static void step_##number(int depth)                                 \
    {                                                                                              \
        step(depth);                                                                               \
        __asm__ volatile("");                                                                      \
    }
STEP(0)
STEP(1)
STEP(2)
STEP(3)
STEP(4)
STEP(5)
STEP(6)
STEP(7)
STEP(8)
STEP(9)
STEP(10)
STEP(11)
STEP(12)
STEP(13)
STEP(14)
STEP(15)

static void (*const steps[16])(int) = {
    step_0, step_1, step_2,  step_3,  step_4,  step_5,  step_6,  step_7,
    step_8, step_9, step_10, step_11, step_12, step_13, step_14, step_15,
};

static uint64_t
next_random(void)
{
    path ^= path << 13;
    path ^= path >> 7;
    path ^= path << 17;
    return path;
}

__attribute__((noinline)) static void
step(int depth)
{
    if (depth == 0)
        burn();
    else
        steps[next_random() & 15](depth - 1);
    __asm__ volatile("");
}

int
main(int argc, char **argv)
{
    int depth = argc > 1 ? atoi(argv[1]) : 24;
    path = (argc > 2 ? strtoull(argv[2], NULL, 10) : 1) * 0x9E3779B97F4A7C15u | 1;
    for (;;)
        step(depth);
}
