// SPDX-License-Identifier: Apache-2.0
#include "opd/identity.h"

#include <errno.h>
#include <string.h>

// FROZEN, as everything in this file that decides a bit of an identity.
static const uint8_t key_v1[16] = "opd identity v1";

struct sip {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t
rotate(uint64_t value, unsigned by)
{
    return value << by | value >> (64 - by);
}

static inline uint64_t
load64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    return value;
}

static inline void
store64(uint8_t *at, uint64_t value)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    memcpy(at, &value, sizeof value);
}

static inline void
sip_rounds(struct sip *sip, unsigned rounds)
{
    for (; rounds > 0; rounds--) {
        sip->v0 += sip->v1;
        sip->v2 += sip->v3;
        sip->v1 = rotate(sip->v1, 13) ^ sip->v0;
        sip->v3 = rotate(sip->v3, 16) ^ sip->v2;
        sip->v0 = rotate(sip->v0, 32);
        sip->v2 += sip->v1;
        sip->v0 += sip->v3;
        sip->v1 = rotate(sip->v1, 17) ^ sip->v2;
        sip->v3 = rotate(sip->v3, 21) ^ sip->v0;
        sip->v2 = rotate(sip->v2, 32);
    }
}

static inline void
sip_start(struct sip *sip, const uint8_t key[16])
{
    uint64_t k0 = load64(key), k1 = load64(key + 8);
    sip->v0 = k0 ^ UINT64_C(0x736f6d6570736575);
    // 0xee marks the variant with a 128-bit result.
    sip->v1 = k1 ^ UINT64_C(0x646f72616e646f6d) ^ 0xee;
    sip->v2 = k0 ^ UINT64_C(0x6c7967656e657261);
    sip->v3 = k1 ^ UINT64_C(0x7465646279746573);
}

static inline void
sip_word(struct sip *sip, uint64_t word)
{
    sip->v3 ^= word;
    sip_rounds(sip, 2);
    sip->v0 ^= word;
}

// `tail` holds the bytes after the last whole word.
static inline void
sip_finish(struct sip *sip, uint64_t tail, uint64_t length, uint8_t result[16])
{
    sip_word(sip, tail | length << 56);
    sip->v2 ^= 0xee;
    sip_rounds(sip, 4);
    store64(result, sip->v0 ^ sip->v1 ^ sip->v2 ^ sip->v3);
    sip->v1 ^= 0xdd;
    sip_rounds(sip, 4);
    store64(result + 8, sip->v0 ^ sip->v1 ^ sip->v2 ^ sip->v3);
}

void
opd_siphash128(const uint8_t key[16], const void *bytes, size_t length, uint8_t result[16])
{
    const uint8_t *at = bytes;
    struct sip sip;
    sip_start(&sip, key);
    for (size_t rest = length; rest >= 8; rest -= 8, at += 8)
        sip_word(&sip, load64(at));
    uint64_t tail = 0;
    for (size_t i = 0; i < length % 8; i++)
        tail |= (uint64_t)at[i] << (8 * i);
    sip_finish(&sip, tail, length, result);
}

void
opd_identity_of(const void *bytes, size_t length, struct opd_identity *identity)
{
    opd_siphash128(key_v1, bytes, length, identity->bytes);
}

int
opd_identity_of_stack(uint8_t flags, const uint32_t *images, const uint64_t *addresses,
                      size_t frames, const struct opd_identity *image_identities,
                      size_t image_count, struct opd_identity *identity)
{
    struct sip sip;
    sip_start(&sip, key_v1);
    sip_word(&sip, flags);
    for (size_t i = 0; i < frames; i++) {
        if (images[i] >= image_count)
            return -EINVAL;
        const uint8_t *image = image_identities[images[i]].bytes;
        sip_word(&sip, load64(image));
        sip_word(&sip, load64(image + 8));
        sip_word(&sip, addresses[i]);
    }
    sip_finish(&sip, 0, 8 + 24 * (uint64_t)frames, identity->bytes);
    return 0;
}

int
opd_identity_of_stacks(const uint8_t *flags, const uint32_t *starts, size_t stacks,
                       const uint32_t *images, const uint64_t *addresses, size_t frames,
                       const struct opd_identity *image_identities, size_t image_count,
                       struct opd_identity *identities)
{
    for (size_t i = 0; i < stacks; i++) {
        uint32_t start = starts[i], end = starts[i + 1];
        if (start > end || end > frames)
            return -EINVAL;
        int rc = opd_identity_of_stack(flags[i], images + start, addresses + start, end - start,
                                       image_identities, image_count, &identities[i]);
        if (rc != 0)
            return rc;
    }
    return 0;
}
