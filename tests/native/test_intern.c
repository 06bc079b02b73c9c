// SPDX-License-Identifier: Apache-2.0
// Interning against a list, its limits, and the hash beneath.
#include "opd/intern.h"
#include "t.h"

#include <string.h>

static uint64_t
next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

// String number n of a set without twins: a length of its own choice, n within.
static uint32_t
make(uint32_t n, uint32_t *words)
{
    uint64_t random = n * UINT64_C(0x9e3779b97f4a7c15) + 1;
    uint32_t count = 1 + next_random(&random) % 60;
    for (uint32_t i = 0; i < count; i++)
        words[i] = (uint32_t)next_random(&random) & 3;
    words[count - 1] = n;
    return count * 4;
}

static void
check_string(struct opd_intern *intern, uint32_t number, uint32_t n)
{
    uint32_t words[64], length, expected = make(n, words);
    const void *bytes = opd_intern_get(intern, number, &length);
    CHECK(length == expected && memcmp(bytes, words, length) == 0);
    CHECK((uintptr_t)bytes % 8 == 0);
}

static void
numbers_are_dense_and_stay(void)
{
    enum { COUNT = 100000 };
    struct opd_intern *intern = opd_intern_create(UINT32_MAX, SIZE_MAX);
    uint32_t words[64];
    uint64_t random = 42;
    for (unsigned window = 0; window < 3; window++) {
        size_t bytes = 0;
        for (uint32_t n = 0; n < COUNT; n++) {
            int fresh = -1;
            uint32_t length = make(n + window, words);
            bytes += length;
            CHECK(opd_intern_put(intern, words, length, &fresh) == n && fresh == 1);
            uint32_t known = next_random(&random) % (n + 1);
            length = make(known + window, words);
            CHECK(opd_intern_put(intern, words, length, &fresh) == known && fresh == 0);
            CHECK(opd_intern_put(intern, words, length, NULL) == known);
        }
        CHECK(opd_intern_count(intern) == COUNT && opd_intern_bytes(intern) == bytes);
        for (uint32_t n = 0; n < COUNT; n++)
            check_string(intern, n, n + window);
        opd_intern_reset(intern);
        CHECK(opd_intern_count(intern) == 0 && opd_intern_bytes(intern) == 0);
    }
    opd_intern_destroy(intern);
}

static void
prefixes_differ(void)
{
    struct opd_intern *intern = opd_intern_create(1000, 1 << 20);
    static const uint32_t zeros[64];
    for (uint32_t n = 0; n < 64; n++)
        CHECK(opd_intern_put(intern, zeros, n * 4, NULL) == n);
    for (uint32_t n = 0; n < 64; n++)
        CHECK(opd_intern_put(intern, zeros, n * 4, NULL) == n);
    opd_intern_destroy(intern);
}

static void
limits_refuse_only_new_strings(void)
{
    struct opd_intern *intern = opd_intern_create(3, 1000);
    int fresh = -1;
    for (uint32_t n = 0; n < 3; n++)
        CHECK(opd_intern_put(intern, &n, 4, NULL) == n);
    uint32_t word = 3;
    CHECK(opd_intern_put(intern, &word, 4, &fresh) == OPD_INTERN_FULL && fresh == 0);
    word = 1;
    CHECK(opd_intern_put(intern, &word, 4, NULL) == 1);
    CHECK(opd_intern_count(intern) == 3);
    opd_intern_reset(intern);
    static const uint32_t zeros[300];
    CHECK(opd_intern_put(intern, zeros, 600, NULL) == 0);
    CHECK(opd_intern_put(intern, zeros, 404, NULL) == OPD_INTERN_FULL);
    CHECK(opd_intern_put(intern, zeros, 400, NULL) == 1);
    CHECK(opd_intern_put(intern, zeros, 4, NULL) == OPD_INTERN_FULL);
    CHECK(opd_intern_put(intern, zeros, 600, NULL) == 0);
    CHECK(opd_intern_bytes(intern) == 1000);
    opd_intern_destroy(intern);
    intern = opd_intern_create(0, 1000);
    CHECK(opd_intern_put(intern, zeros, 4, NULL) == OPD_INTERN_FULL);
    opd_intern_destroy(intern);
    opd_intern_destroy(NULL);
}

// Any one bit of the input turns about half of the bits of the hash.
static void
the_hash_spreads_every_bit(void)
{
    unsigned char bytes[130];
    uint64_t random = 7;
    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)next_random(&random);
    for (size_t length = 1; length <= sizeof bytes; length++) {
        uint64_t whole = opd_hash64(bytes, length), turned = 0;
        CHECK(whole == opd_hash64(bytes, length));
        CHECK(whole != opd_hash64(bytes, length - 1));
        for (size_t bit = 0; bit < length * 8; bit++) {
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
            uint64_t other = opd_hash64(bytes, length) ^ whole;
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
            CHECK(__builtin_popcountll(other) > 8);
            turned += (uint64_t)__builtin_popcountll(other);
        }
        double share = (double)turned / (double)(length * 8 * 64);
        CHECK(share > 0.4 && share < 0.6);
    }
}

int
main(void)
{
    RUN(numbers_are_dense_and_stay);
    RUN(prefixes_differ);
    RUN(limits_refuse_only_new_strings);
    RUN(the_hash_spreads_every_bit);
    return 0;
}
