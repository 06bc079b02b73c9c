// SPDX-License-Identifier: Apache-2.0
#include "opd/calibrate.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double
now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void
loop(uint32_t work, uint64_t turns)
{
    uint64_t value = turns;
    for (uint64_t turn = 0; turn < turns; turn++) {
        for (uint32_t step = 0; step < work; step++) {
            value = value * 6364136223846793005u + 1442695040888963407u;
            // Opaque to the compiler, which would fold the steps.
            __asm__ volatile("" : "+r"(value));
        }
    }
}

static void
ask(uint64_t turns)
{
    for (uint64_t turn = 0; turn < turns; turn++)
        syscall(SYS_getppid); // libc may remember what getppid(3) returned
}

static void
look(uint64_t turns)
{
    struct timespec now;
    for (uint64_t turn = 0; turn < turns; turn++)
        clock_gettime(CLOCK_MONOTONIC, &now);
}

static void
spend(int what, uint32_t work, uint64_t turns)
{
    if (what == OPD_CALIBRATE_LOOP)
        loop(work, turns);
    else if (what == OPD_CALIBRATE_SYSCALL)
        ask(turns);
    else
        look(turns);
}

int
opd_calibrate(int what, uint32_t work, uint64_t turns, double *ns, size_t samples)
{
    if (what < OPD_CALIBRATE_LOOP || what > OPD_CALIBRATE_CLOCK || turns == 0 || samples == 0)
        return -EINVAL;
    spend(what, work, turns);
    for (size_t at = 0; at < samples; at++) {
        double before = now_ns();
        spend(what, work, turns);
        ns[at] = now_ns() - before;
    }
    return 0;
}

int
opd_calibrate_touch(size_t bytes, double *ns)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return -errno;
    madvise(memory, bytes, MADV_NOHUGEPAGE); // refused only where there are none
    long page = sysconf(_SC_PAGESIZE);
    double before = now_ns();
    for (size_t at = 0; at < bytes; at += (size_t)page)
        *(volatile char *)(memory + at) = 1;
    *ns = now_ns() - before;
    munmap(memory, bytes);
    return 0;
}
