// SPDX-License-Identifier: Apache-2.0
#include "opd/intern.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define FIRST_SLOTS 1024
#define FIRST_STRINGS (FIRST_SLOTS / 2)
#define FIRST_BLOB ((size_t)32 * 1024)

struct string {
    size_t offset; // in the blob, multiple of 8
    uint32_t length;
};

struct slot {
    uint32_t check;  // of the hash: finds the place and spares most compares
    uint32_t number; // + 1; 0 = unused
};

struct opd_intern {
    struct slot *slots; // power of two, at most half used
    size_t slot_count;
    struct string *strings;
    size_t string_room;
    unsigned char *blob;
    size_t blob_used, blob_room;
    size_t bytes;
    uint32_t count;
    uint32_t limit;
    size_t limit_bytes;
    uint64_t seed; // of this table alone: nobody outside can aim at one chain
};

static inline uint64_t
read64(const unsigned char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline uint64_t
read32(const unsigned char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline uint64_t
fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

// Two lanes of folded multiplications over 32 bytes a round; the seed is in
// both factors, so that no input zeroes a product on purpose.
static uint64_t
hash_seeded(const unsigned char *at, size_t length, uint64_t seed)
{
    uint64_t k0 = seed ^ UINT64_C(0x8c5f9d3b1ae4672d);
    uint64_t k1 = seed ^ UINT64_C(0x3b97e6a5c1d20f89);
    uint64_t x = fold(k0, length ^ UINT64_C(0xb7e151628aed2a6b));
    uint64_t y = x ^ k1;
    uint64_t a, b;
    size_t rest = length;
    while (rest > 32) {
        x = fold(read64(at) ^ k0, read64(at + 8) ^ x);
        y = fold(read64(at + 16) ^ k1, read64(at + 24) ^ y);
        at += 32;
        rest -= 32;
    }
    if (rest > 16)
        x = fold(read64(at) ^ k0, read64(at + 8) ^ x);
    if (rest >= 16) { // may overlap what was read before
        a = read64(at + rest - 16);
        b = read64(at + rest - 8);
    } else if (rest >= 8) {
        a = read64(at);
        b = read64(at + rest - 8);
    } else if (rest >= 4) {
        a = read32(at);
        b = read32(at + rest - 4);
    } else {
        a = rest > 0 ? (uint64_t)at[0] << 16 | (uint64_t)at[rest / 2] << 8 | at[rest - 1] : 0;
        b = 0;
    }
    return fold(fold(a ^ k1, b ^ x) ^ k0, y ^ UINT64_C(0x9e3779b97f4a7c15));
}

uint64_t
opd_hash64(const void *bytes, size_t length)
{
    return hash_seeded(bytes, length, 0);
}

struct opd_intern *
opd_intern_create(uint32_t limit, size_t limit_bytes)
{
    struct opd_intern *intern = calloc(1, sizeof *intern);
    if (intern == NULL)
        return NULL;
    intern->slots = calloc(FIRST_SLOTS, sizeof *intern->slots);
    intern->strings = malloc(FIRST_STRINGS * sizeof *intern->strings);
    intern->blob = malloc(FIRST_BLOB);
    if (intern->slots == NULL || intern->strings == NULL || intern->blob == NULL) {
        opd_intern_destroy(intern);
        errno = ENOMEM;
        return NULL;
    }
    intern->slot_count = FIRST_SLOTS;
    intern->string_room = FIRST_STRINGS;
    intern->blob_room = FIRST_BLOB;
    intern->limit = limit < OPD_INTERN_FULL ? limit : OPD_INTERN_FULL - 1;
    intern->limit_bytes = limit_bytes;
    // Without entropy (early boot) the address must do.
    if (getrandom(&intern->seed, sizeof intern->seed, GRND_NONBLOCK) !=
        (ssize_t)sizeof intern->seed)
        intern->seed = (uintptr_t)intern * UINT64_C(0x9e3779b97f4a7c15);
    return intern;
}

void
opd_intern_destroy(struct opd_intern *intern)
{
    if (intern == NULL)
        return;
    free(intern->slots);
    free(intern->strings);
    free(intern->blob);
    free(intern);
}

static int
grow_slots(struct opd_intern *intern)
{
    size_t count = intern->slot_count * 2;
    struct slot *slots = calloc(count, sizeof *slots);
    if (slots == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < intern->slot_count; i++) {
        struct slot slot = intern->slots[i];
        if (slot.number == 0)
            continue;
        size_t place = slot.check & (count - 1);
        while (slots[place].number != 0)
            place = (place + 1) & (count - 1);
        slots[place] = slot;
    }
    free(intern->slots);
    intern->slots = slots;
    intern->slot_count = count;
    return 0;
}

static int
grow_strings(struct opd_intern *intern)
{
    size_t room = intern->string_room * 2;
    void *strings = realloc(intern->strings, room * sizeof *intern->strings);
    if (strings == NULL)
        return -ENOMEM;
    intern->strings = strings;
    intern->string_room = room;
    return 0;
}

static int
grow_blob(struct opd_intern *intern, size_t need)
{
    size_t room = intern->blob_room;
    while (room - intern->blob_used < need) {
        if (room > SIZE_MAX / 2)
            return -ENOMEM;
        room *= 2;
    }
    void *blob = realloc(intern->blob, room);
    if (blob == NULL)
        return -ENOMEM;
    intern->blob = blob;
    intern->blob_room = room;
    return 0;
}

static __attribute__((noinline)) uint32_t
put_new(struct opd_intern *intern, const void *bytes, uint32_t length, uint32_t check)
{
    if (intern->count >= intern->limit || length > intern->limit_bytes - intern->bytes)
        return OPD_INTERN_FULL;
    size_t size = ((size_t)length + 7) & ~(size_t)7;
    if (size > intern->blob_room - intern->blob_used && grow_blob(intern, size) != 0)
        return OPD_INTERN_FULL;
    if (intern->count == intern->string_room && grow_strings(intern) != 0)
        return OPD_INTERN_FULL;
    if (intern->count >= intern->slot_count / 2 && grow_slots(intern) != 0)
        return OPD_INTERN_FULL;
    size_t place = check & (intern->slot_count - 1);
    while (intern->slots[place].number != 0)
        place = (place + 1) & (intern->slot_count - 1);
    if (length != 0)
        memcpy(intern->blob + intern->blob_used, bytes, length);
    intern->strings[intern->count] = (struct string){intern->blob_used, length};
    intern->blob_used += size;
    intern->bytes += length;
    intern->slots[place] = (struct slot){check, ++intern->count};
    return intern->count - 1;
}

uint32_t
opd_intern_fetch(const struct opd_intern *intern, const void *bytes, uint32_t length)
{
    uint32_t check = (uint32_t)hash_seeded(bytes, length, intern->seed);
    __builtin_prefetch(&intern->slots[check & (intern->slot_count - 1)]);
    return check;
}

uint32_t
opd_intern_put(struct opd_intern *intern, const void *bytes, uint32_t length, int *fresh)
{
    uint32_t check = (uint32_t)hash_seeded(bytes, length, intern->seed);
    return opd_intern_put_hashed(intern, bytes, length, check, fresh);
}

uint32_t
opd_intern_put_hashed(struct opd_intern *intern, const void *bytes, uint32_t length, uint32_t check,
                      int *fresh)
{
    size_t mask = intern->slot_count - 1;
    for (size_t place = check & mask; intern->slots[place].number != 0;
         place = (place + 1) & mask) {
        if (intern->slots[place].check != check)
            continue;
        uint32_t number = intern->slots[place].number - 1;
        const struct string *string = &intern->strings[number];
        if (string->length == length &&
            (length == 0 || memcmp(intern->blob + string->offset, bytes, length) == 0)) {
            if (fresh != NULL)
                *fresh = 0;
            return number;
        }
    }
    uint32_t number = put_new(intern, bytes, length, check);
    if (fresh != NULL)
        *fresh = number != OPD_INTERN_FULL;
    return number;
}

uint32_t
opd_intern_count(const struct opd_intern *intern)
{
    return intern->count;
}

const void *
opd_intern_get(const struct opd_intern *intern, uint32_t n, uint32_t *length)
{
    *length = intern->strings[n].length;
    return intern->blob + intern->strings[n].offset;
}

size_t
opd_intern_bytes(const struct opd_intern *intern)
{
    return intern->bytes;
}

void
opd_intern_reset(struct opd_intern *intern)
{
    // Room for what it held just now stays, since the next window is most often
    // like the last: pages that are given back come again as page faults.
    size_t slot_goal = FIRST_SLOTS;
    while (slot_goal < 2 * (size_t)intern->count)
        slot_goal *= 2;
    size_t string_goal = slot_goal / 2;
    size_t blob_goal = FIRST_BLOB;
    while (blob_goal < intern->blob_used)
        blob_goal *= 2;
    // Should a shrink fail, the larger array serves as well.
    void *slots = NULL, *strings = NULL, *blob = NULL;
    if (intern->slot_count > slot_goal)
        slots = realloc(intern->slots, slot_goal * sizeof *intern->slots);
    if (slots != NULL) {
        intern->slots = slots;
        intern->slot_count = slot_goal;
    }
    if (intern->string_room > string_goal)
        strings = realloc(intern->strings, string_goal * sizeof *intern->strings);
    if (strings != NULL) {
        intern->strings = strings;
        intern->string_room = string_goal;
    }
    if (intern->blob_room > blob_goal)
        blob = realloc(intern->blob, blob_goal);
    if (blob != NULL) {
        intern->blob = blob;
        intern->blob_room = blob_goal;
    }
    memset(intern->slots, 0, intern->slot_count * sizeof *intern->slots);
    intern->count = 0;
    intern->blob_used = 0;
    intern->bytes = 0;
}
