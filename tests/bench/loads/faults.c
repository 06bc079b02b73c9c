// SPDX-License-Identifier: Apache-2.0
// Description: a storm of page faults: touches MIB of memory page by page and
// gives it back, for ever.
// usage: faults [MIB]
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE 4096

__attribute__((noinline)) static void
touch_pages(volatile char *memory, size_t size)
{
    for (size_t offset = 0; offset < size; offset += PAGE)
        memory[offset] = 1;
}

int
main(int argc, char **argv)
{
    size_t size = (size_t)(argc > 1 ? atoi(argv[1]) : 32) << 20;
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    madvise(memory, size, MADV_NOHUGEPAGE);
    for (;;) {
        touch_pages(memory, size);
        madvise(memory, size, MADV_DONTNEED);
    }
}
