// SPDX-License-Identifier: Apache-2.0
// Description: maps and unmaps its own file with PROT_EXEC COUNT times, KEEP
// mappings at a time, and burns CPU in between; then it prints "done" and
// goes on burning until it is killed.
// usage: remap COUNT [KEEP]
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST 1024
#define SIZE 4096

static volatile uint64_t sink;

__attribute__((noinline)) static void
burn(void)
{
    uint64_t state = sink;
    for (int i = 0; i < 2000; i++)
        state = state * 6364136223846793005u + (uint64_t)i;
    sink = state;
}

int
main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 100000;
    long keep = argc > 2 ? atol(argv[2]) : 64;
    if (keep < 1 || keep > MOST) {
        fprintf(stderr, "KEEP: expected 1 to %d\n", MOST);
        return 2;
    }
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    void *kept[MOST] = {0};
    for (long i = 0; i < count; i++) {
        void **place = &kept[i % keep];
        if (*place)
            munmap(*place, SIZE);
        *place = mmap(NULL, SIZE, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
        if (*place == MAP_FAILED) {
            perror("mmap");
            return 1;
        }
        burn();
    }
    puts("done");
    fflush(stdout);
    for (;;)
        burn();
}
