// SPDX-License-Identifier: Apache-2.0
// Which kernel a name is; those of string instructions and of stores past the
// caches, which have no width to be made for.
#include "dto_kernels.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

static int
from_libc(struct opd_dto_functions *out)
{
    // The library's own, whatever was preloaded over them.
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    *out = (struct opd_dto_functions){
        .copy = memcpy, .move = memmove, .set = memset, .compare = memcmp};
    if (libc == NULL)
        return 0; // another libc: what this program is linked with
    void *found[] = {dlsym(libc, "memcpy"), dlsym(libc, "memmove"), dlsym(libc, "memset"),
                     dlsym(libc, "memcmp")};
    _Static_assert(sizeof(found) == sizeof(*out), "four pointers");
    if (found[0] && found[1] && found[2] && found[3])
        memcpy(out, found, sizeof(*out));
    dlclose(libc); // it stays: this program is linked with it
    return 0;
}

#if defined(__x86_64__)
#include "dto_small.h"

enum { STREAM_LEAST = 256, LINE = 64 };

static void *
rep_copy(void *to, const void *from, size_t n)
{
    void *d = to;
    __asm__ volatile("rep movsb" : "+D"(d), "+S"(from), "+c"(n)::"memory");
    return to;
}

static void *
rep_move(void *to, const void *from, size_t n)
{
    if ((uintptr_t)to - (uintptr_t)from >= n)
        return rep_copy(to, from, n);
    char *d = (char *)to + n - 1;
    const char *s = (const char *)from + n - 1;
    __asm__ volatile("std\n rep movsb\n cld" : "+D"(d), "+S"(s), "+c"(n)::"memory", "cc");
    return to;
}

static void *
rep_set(void *to, int byte, size_t n)
{
    void *d = to;
    __asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(byte) : "memory");
    return to;
}

const struct opd_dto_functions dto_rep_functions = {
    .copy = rep_copy, .move = rep_move, .set = rep_set};

static void *
nt_copy(void *to, const void *from, size_t n)
{
    if (n < STREAM_LEAST)
        return dto_sse2_functions.copy(to, from, n);
    char *d = to, *end = d + n;
    const char *s = from;
    // The first line as it comes, whole lines past the caches, the last one as
    // it comes.
    size_t head = LINE - ((uintptr_t)d & (LINE - 1));
    dto_sse2_functions.copy(d, s, LINE);
    for (d += head, s += head; (size_t)(end - d) >= LINE; d += LINE, s += LINE)
        for (size_t at = 0; at < LINE; at += 16)
            _mm_stream_si128((void *)(d + at), dto_load(s + at));
    _mm_sfence();
    dto_sse2_functions.copy(end - LINE, (const char *)from + n - LINE, LINE);
    return to;
}

static void *
nt_move(void *to, const void *from, size_t n)
{
    uintptr_t d = (uintptr_t)to, s = (uintptr_t)from;
    if (d - s < n || s - d < n)
        return dto_sse2_functions.move(to, from, n);
    return nt_copy(to, from, n);
}

static void *
nt_set(void *to, int byte, size_t n)
{
    if (n < STREAM_LEAST)
        return dto_sse2_functions.set(to, byte, n);
    char *d = to, *end = d + n;
    dto_sse2_functions.set(d, byte, LINE);
    __m128i v = _mm_set1_epi8((char)byte);
    for (d += LINE - ((uintptr_t)d & (LINE - 1)); (size_t)(end - d) >= LINE; d += LINE)
        for (size_t at = 0; at < LINE; at += 16)
            _mm_stream_si128((void *)(d + at), v);
    _mm_sfence();
    dto_sse2_functions.set(end - LINE, byte, LINE);
    return to;
}

const struct opd_dto_functions dto_nt_functions = {.copy = nt_copy, .move = nt_move, .set = nt_set};

static int
here(const char *name)
{
    // Also asks whether the kernel saves the registers.
    if (strcmp(name, "avx2") == 0)
        return __builtin_cpu_supports("avx2");
    if (strcmp(name, "avx512") == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
    return 1;
}

int
opd_dto_kernels(const char *name, struct opd_dto_functions *out)
{
    static const struct {
        const char *name;
        const struct opd_dto_functions *functions;
    } kernels[] = {
        {"avx512", &dto_avx512_functions}, {"avx2", &dto_avx2_functions},
        {"sse2", &dto_sse2_functions},     {"rep-movsb", &dto_rep_functions},
        {"nt", &dto_nt_functions},
    };
    if (strcmp(name, "libc") == 0)
        return from_libc(out);
    for (size_t i = 0; i < sizeof(kernels) / sizeof(*kernels); i++) {
        if (strcmp(name, kernels[i].name))
            continue;
        if (!here(name))
            return -EOPNOTSUPP;
        *out = *kernels[i].functions;
        return 0;
    }
    return -ENOENT;
}
#else
int
opd_dto_kernels(const char *name, struct opd_dto_functions *out)
{
    static const char *const others[] = {"avx512", "avx2", "sse2", "rep-movsb", "nt"};
    if (strcmp(name, "libc") == 0)
        return from_libc(out);
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        if (strcmp(name, others[i]) == 0)
            return -EOPNOTSUPP;
    return -ENOENT;
}
#endif
