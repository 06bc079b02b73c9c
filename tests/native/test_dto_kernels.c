// SPDX-License-Identifier: Apache-2.0
// Our kernels against libc: every size, alignment and overlap, with nothing
// readable or writable right beyond the buffers.
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "opd/dto.h"
#include "t.h"

enum { MOST = 5100, ROOM = 8192, PAGE = 4096 };

static const char *const names[] = {"libc", "sse2", "avx2", "avx512", "rep-movsb", "nt"};
static uint32_t state = 1;

static uint32_t
draw(void)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

// ROOM bytes between two pages that fault.
static unsigned char *
fenced(void)
{
    unsigned char *base =
        mmap(NULL, ROOM + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(base != MAP_FAILED);
    CHECK(mprotect(base + PAGE, ROOM, PROT_READ | PROT_WRITE) == 0);
    return base + PAGE;
}

static void
fill(unsigned char *at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        at[i] = (unsigned char)draw();
}

static void
copies(const struct opd_dto_functions *f, unsigned char *from, unsigned char *to, size_t n,
       size_t a, size_t b)
{
    static unsigned char before[ROOM];
    // Ends at the fence, then begins at it, then anywhere.
    size_t starts[3][2] = {{ROOM - n, ROOM - n}, {0, 0}, {a, b}};
    for (int way = 0; way < 3; way++) {
        unsigned char *s = from + starts[way][0], *d = to + starts[way][1];
        memcpy(before, to, ROOM);
        CHECK(f->copy(d, s, n) == d);
        CHECK(memcmp(d, s, n) == 0);
        memcpy(before + (d - to), s, n);
        CHECK(memcmp(before, to, ROOM) == 0);
        fill(d, n < 64 ? n : 64);
        memcpy(before, to, ROOM);
        CHECK(f->move(d, s, n) == d);
        memcpy(before + (d - to), s, n);
        CHECK(memcmp(before, to, ROOM) == 0);
        int byte = (int)draw(); // only its low byte counts
        memset(before + (d - to), byte, n);
        CHECK(f->set(d, byte, n) == d);
        CHECK(memcmp(before, to, ROOM) == 0);
    }
}

static void
overlaps(const struct opd_dto_functions *f, unsigned char *in, size_t n)
{
    static unsigned char expected[ROOM];
    long distances[] = {0,  1,   -1,  7,    -7,          16,           -16,     31,      -33,
                        64, -64, 100, -100, (long)n / 2, -(long)n / 2, (long)n, -(long)n};
    for (size_t i = 0; i < sizeof(distances) / sizeof(*distances); i++) {
        long distance = distances[i];
        if (n + (size_t)labs(distance) > ROOM)
            continue;
        size_t s = distance < 0 ? (size_t)-distance : 0, d = (size_t)((long)s + distance);
        memcpy(expected, in, ROOM);
        memmove(expected + d, expected + s, n);
        CHECK(f->move(in + d, in + s, n) == in + d);
        CHECK(memcmp(expected, in, ROOM) == 0);
    }
}

static int
sign(int x)
{
    return (x > 0) - (x < 0);
}

static void
compares(const struct opd_dto_functions *f, unsigned char *from, unsigned char *to, size_t n)
{
    unsigned char *a = from + ROOM - n, *b = to + ROOM - n;
    memcpy(b, a, n);
    CHECK(f->compare(a, b, n) == 0);
    for (int turn = 0; n && turn < 6; turn++) {
        size_t first = turn == 0 ? 0 : turn == 1 ? n - 1 : draw() % n, second = draw() % n;
        unsigned char kept[2] = {b[first], b[second]};
        b[second] ^= (unsigned char)(draw() | 1);
        b[first] ^= 0x80; // signed and unsigned bytes differ in it
        CHECK(sign(f->compare(a, b, n)) == sign(memcmp(a, b, n)));
        CHECK(sign(f->compare(b, a, n)) == sign(memcmp(b, a, n)));
        b[second] = kept[1];
        b[first] = kept[0];
        memcpy(b, a, n);
    }
}

static void
every_kernel_is_libc(void)
{
    unsigned char *from = fenced(), *to = fenced();
    fill(from, ROOM);
    fill(to, ROOM);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct opd_dto_functions f;
        int rc = opd_dto_kernels(names[i], &f);
        if (rc) {
            CHECK(rc == -EOPNOTSUPP);
            printf("%s: not on this CPU\n", names[i]);
            continue;
        }
        for (size_t n = 0; n <= MOST; n += n < 700 ? 1 : 1 + draw() % 97) {
            copies(&f, from, to, n, draw() % 128, draw() % 128);
            overlaps(&f, to, n);
            if (f.compare)
                compares(&f, from, to, n);
        }
    }
    munmap(from - PAGE, ROOM + 2 * PAGE);
    munmap(to - PAGE, ROOM + 2 * PAGE);
}

static void
large_ones(void)
{
    size_t size = (3 << 20) + 17;
    unsigned char *a = malloc(size), *b = malloc(size);
    CHECK(a && b);
    fill(a, size);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct opd_dto_functions f;
        if (opd_dto_kernels(names[i], &f))
            continue;
        memset(b, 0, size);
        f.copy(b + 5, a + 3, size - 5);
        CHECK(memcmp(b + 5, a + 3, size - 5) == 0 && b[4] == 0);
        f.move(b + 9, b + 5, size - 9);
        CHECK(memcmp(b + 9, a + 3, size - 9) == 0);
        f.set(b + 1, 7, size - 2);
        CHECK(b[1] == 7 && b[size - 2] == 7 && b[size - 1] == a[size - 1 - 9 + 3]);
        if (f.compare) {
            memcpy(b, a, size);
            CHECK(f.compare(a, b, size) == 0);
            b[size - 1] ^= 1;
            CHECK(sign(f.compare(a, b, size)) == sign(memcmp(a, b, size)));
        }
    }
    free(a);
    free(b);
}

static void
names_that_are_none(void)
{
    struct opd_dto_functions f;
    CHECK(opd_dto_kernels("avx3", &f) == -ENOENT);
    CHECK(opd_dto_kernels("", &f) == -ENOENT);
    CHECK(opd_dto_kernels("libc", &f) == 0 && f.copy && f.move && f.set && f.compare);
    if (opd_dto_kernels("nt", &f) == 0)
        CHECK(f.copy && f.move && f.set && f.compare == NULL);
}

int
main(void)
{
    RUN(names_that_are_none);
    RUN(every_kernel_is_libc);
    RUN(large_ones);
    return 0;
}
