// SPDX-License-Identifier: Apache-2.0
// Stable 128-bit identities, the same on every host and in every year: of an
// image and of a stack. FROZEN: the bytes hashed and the hash never change.
// The hash is SipHash-2-4 with 128-bit output (Aumasson & Bernstein, 2012)
// under the 16-byte key "opd identity v1\0"; test vectors are in the tests.
#ifndef OPD_IDENTITY_H
#define OPD_IDENTITY_H

#include <stddef.h>
#include <stdint.h>

struct opd_identity {
    uint8_t bytes[16];
};
_Static_assert(sizeof(struct opd_identity) == 16, "stored as a 16-byte blob");

// Of arbitrary bytes (an image's canonical string, e.g. "build-id:<hex>").
void opd_identity_of(const void *bytes, size_t length, struct opd_identity *identity);

// Of a stack: flags (one byte, padded to 8), then for each frame, leaf first,
// the image's identity and the ELF address, little-endian.
// `images[i]` indexes `image_identities`. 0, or -EINVAL for an index past
// `image_count`.
int opd_identity_of_stack(uint8_t flags, const uint32_t *images, const uint64_t *addresses,
                          size_t frames, const struct opd_identity *image_identities,
                          size_t image_count, struct opd_identity *identity);

// Of many stacks: stack i has the frames starts[i] to starts[i + 1] - 1 of the
// two frame arrays, `frames` long; `starts` has stacks + 1 items. 0, or
// -EINVAL (then `identities` is half written) for starts that fall or pass
// `frames`, or an index past `image_count`.
int opd_identity_of_stacks(const uint8_t *flags, const uint32_t *starts, size_t stacks,
                           const uint32_t *images, const uint64_t *addresses, size_t frames,
                           const struct opd_identity *image_identities, size_t image_count,
                           struct opd_identity *identities);

// The hash itself, under any key: for the published test vectors.
void opd_siphash128(const uint8_t key[16], const void *bytes, size_t length, uint8_t result[16]);

#endif
