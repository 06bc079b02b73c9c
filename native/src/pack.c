// SPDX-License-Identifier: Apache-2.0
// Columns of numbers in planes: the lowest byte of every number first, which
// puts the mostly-zero high bytes together for the compressor.
#include <string.h>

#include "opd/condense.h"

#define HEADER_BYTES 5 // u8 width, u32 count, little-endian

static uint64_t
number_at(const struct opd_column *column, uint32_t i)
{
    switch (column->width) {
    case 1:
        return ((const uint8_t *)column->data)[i];
    case 2:
        return ((const uint16_t *)column->data)[i];
    case 4:
        return ((const uint32_t *)column->data)[i];
    default:
        return ((const uint64_t *)column->data)[i];
    }
}

size_t
opd_pack_bound(const struct opd_column *columns, uint32_t count)
{
    size_t bytes = 1;
    for (uint32_t i = 0; i < count; i++)
        bytes += HEADER_BYTES + (size_t)columns[i].width * columns[i].count;
    return bytes;
}

static uint32_t
least_width(const struct opd_column *column)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < column->count; i++)
        all |= number_at(column, i);
    return all < 1u << 8 ? 1 : all < 1u << 16 ? 2 : all < 1ull << 32 ? 4 : 8;
}

size_t
opd_pack(const struct opd_column *columns, uint32_t count, uint8_t *out)
{
    uint8_t *header = out, *at = out + 1 + (size_t)HEADER_BYTES * count;
    *header++ = (uint8_t)count;
    for (uint32_t i = 0; i < count; i++) {
        const struct opd_column *column = &columns[i];
        uint32_t width = least_width(column), numbers = column->count;
        *header++ = (uint8_t)width;
        memcpy(header, &numbers, sizeof numbers);
        header += sizeof numbers;
        for (uint32_t plane = 0; plane < width; plane++)
            for (uint32_t j = 0; j < numbers; j++)
                *at++ = (uint8_t)(number_at(column, j) >> (8 * plane));
    }
    return (size_t)(at - out);
}
