// SPDX-License-Identifier: Apache-2.0
// Description: a program of a few kilobytes that burns a moment of CPU in
// functions with names, and ends. Built without a C library, so that thousands
// of copies, each with a build-id of its own, take little room.
#include <stdint.h>
#include <sys/syscall.h>

#ifndef ROUNDS
#define ROUNDS 200000
#endif

__attribute__((noinline)) static uint64_t
tiny_work(uint64_t state, uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds; i++)
        state = state * 6364136223846793005u + i;
    __asm__ volatile("" : "+r"(state));
    return state;
}

__attribute__((noinline)) static uint64_t
tiny_main(uint64_t rounds)
{
    uint64_t state = tiny_work(1, rounds);
    __asm__ volatile("" : "+r"(state));
    return state;
}

__attribute__((noreturn, force_align_arg_pointer)) void
_start(void)
{
    tiny_main(ROUNDS);
    for (;;)
#if defined(__x86_64__)
        __asm__ volatile("syscall" ::"a"(SYS_exit_group), "D"(0) : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    {
        register long number __asm__("x8") = SYS_exit_group;
        register long status __asm__("x0") = 0;
        __asm__ volatile("svc 0" ::"r"(number), "r"(status) : "memory");
    }
#else
#error "tell me how this machine ends a process"
#endif
}
