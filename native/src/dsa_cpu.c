// SPDX-License-Identifier: Apache-2.0
// The instructions of work queues, by their bytes: compilers of the day need a
// flag for each, and the flag would let them use it elsewhere.
#include <string.h>

#include "dsa_private.h"
#include "opd/ticks.h"

#if defined(__x86_64__)
#include <cpuid.h>

void
opd_dsa_cpu(struct opd_dsa_cpu *out)
{
    uint32_t a = 0, b = 0, c = 0, d = 0;
    memset(out, 0, sizeof(*out));
    // __get_cpuid_count looks at the highest leaf first.
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        out->enqcmd = c >> 29 & 1;
        out->movdir64b = c >> 28 & 1;
        out->waitpkg = c >> 5 & 1;
    }
    // TSC = crystal (ecx) * ebx / eax; any of them may be 0: not said.
    if (__get_cpuid_count(0x15, 0, &a, &b, &c, &d) && a && b && c)
        out->tsc_hz = (uint64_t)c * b / a;
}

bool
dsa_enqcmd(void *portal, const struct opd_dsa_descriptor *descriptor)
{
    bool busy;
    __asm__ volatile("sfence\n\t.byte 0xf2, 0x0f, 0x38, 0xf8, 0x02"
                     : "=@ccz"(busy)
                     : "a"(portal), "d"(descriptor)
                     : "memory");
    return !busy;
}

void
dsa_movdir64b(void *portal, const struct opd_dsa_descriptor *descriptor)
{
    __asm__ volatile("sfence\n\t.byte 0x66, 0x0f, 0x38, 0xf8, 0x02"
                     :
                     : "a"(portal), "d"(descriptor)
                     : "memory");
}

void
dsa_umonitor(const void *address)
{
    __asm__ volatile(".byte 0xf3, 0x0f, 0xae, 0xf0" : : "a"(address) : "memory");
}

// Control 0 in ECX: the deeper state, C0.2.
void
dsa_umwait(uint64_t deadline)
{
    __asm__ volatile(".byte 0xf2, 0x0f, 0xae, 0xf1"
                     :
                     : "c"(0), "a"((uint32_t)deadline), "d"((uint32_t)(deadline >> 32))
                     : "memory", "cc");
}

void
dsa_tpause(uint64_t deadline)
{
    __asm__ volatile(".byte 0x66, 0x0f, 0xae, 0xf1"
                     :
                     : "c"(0), "a"((uint32_t)deadline), "d"((uint32_t)(deadline >> 32))
                     : "memory", "cc");
}

void
dsa_relax(void)
{
    __builtin_ia32_pause();
}

#else

// No CPU but x86-64 has them; opd_dsa_cpu() says so and nobody calls them.
void
opd_dsa_cpu(struct opd_dsa_cpu *out)
{
    memset(out, 0, sizeof(*out));
}

bool
dsa_enqcmd(void *portal, const struct opd_dsa_descriptor *descriptor)
{
    __builtin_trap();
}

void
dsa_movdir64b(void *portal, const struct opd_dsa_descriptor *descriptor)
{
    __builtin_trap();
}

void
dsa_umonitor(const void *address)
{
    __builtin_trap();
}

void
dsa_umwait(uint64_t deadline)
{
    __builtin_trap();
}

void
dsa_tpause(uint64_t deadline)
{
    __builtin_trap();
}

void
dsa_relax(void)
{
}
#endif
