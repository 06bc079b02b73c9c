// SPDX-License-Identifier: Apache-2.0
// What the two halves of the record parser share.
#ifndef OPD_RECORD_INTERNAL_H
#define OPD_RECORD_INTERNAL_H

#include "opd/record.h"

#include <string.h>

static inline uint32_t
first_half(const uint64_t *word)
{
    uint32_t half;
    memcpy(&half, word, sizeof half);
    return half;
}

static inline uint32_t
second_half(const uint64_t *word)
{
    uint32_t half;
    memcpy(&half, (const uint8_t *)word + sizeof half, sizeof half);
    return half;
}

static inline unsigned
words_of(uint64_t mask)
{
    return (unsigned)__builtin_popcountll(mask);
}

// Parses the words of a sample after its header into the zeroed `record`;
// false when one of its bounds does not fit.
bool opd_record_parse_sample_(const struct opd_record_layout *layout, const uint64_t *start,
                              const uint64_t *end, struct opd_record *record);

#endif
