// SPDX-License-Identifier: Apache-2.0
// Where functions begin and end by .eh_frame, which even a stripped file has.
// Only ranges are read, no unwinding instructions.
#include "elf_private.h"

#include <errno.h>
#include <stdlib.h>

#define MAX_RANGES 4000000

// DW_EH_PE_*: low four bits the format, then what the value is relative to.
#define PE_OMIT 0xff
#define PE_FORMAT 0x0f
#define PE_APPLICATION 0x70
#define PE_PCREL 0x10
#define PE_INDIRECT 0x80

struct cursor {
    const uint8_t *bytes;
    size_t at, length;
};

static bool
read_uleb(struct cursor *cursor, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; cursor->at < cursor->length && shift < 64; shift += 7) {
        uint8_t byte = cursor->bytes[cursor->at++];
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

static size_t
format_size(bool is64, uint8_t encoding)
{
    switch (encoding & PE_FORMAT) {
    case 0x00: // absptr
        return is64 ? 8 : 4;
    case 0x02: // udata2
    case 0x0a: // sdata2
        return 2;
    case 0x03:
    case 0x0b:
        return 4;
    case 0x04:
    case 0x0c:
        return 8;
    default: // LEB128 does not occur for addresses
        return 0;
    }
}

// A value of fixed size; as_size: without sign and base, as a range's length.
static bool
read_encoded(struct cursor *cursor, bool is64, uint8_t encoding, bool as_size, uint64_t *value)
{
    size_t size = format_size(is64, encoding);
    if (size == 0 || cursor->length - cursor->at < size)
        return false;
    const uint8_t *bytes = cursor->bytes + cursor->at;
    bool is_signed = !as_size && (encoding & 0x08) != 0;
    if (size == 2)
        *value = is_signed ? (uint64_t)(int64_t)(int16_t)elf_u16(bytes) : elf_u16(bytes);
    else if (size == 4)
        *value = is_signed ? (uint64_t)(int64_t)(int32_t)elf_u32(bytes) : elf_u32(bytes);
    else
        *value = elf_u64(bytes);
    cursor->at += size;
    return true;
}

// The encoding of addresses in the FDEs of this CIE, PE_OMIT when unreadable.
// `cursor` stands behind the CIE id.
static uint8_t
cie_encoding(struct cursor *cursor, bool is64)
{
    uint64_t ignored;
    if (cursor->length - cursor->at < 2)
        return PE_OMIT;
    uint8_t version = cursor->bytes[cursor->at++];
    const uint8_t *augmentation = cursor->bytes + cursor->at;
    const uint8_t *end = memchr(augmentation, '\0', cursor->length - cursor->at);
    if (end == NULL || (version != 1 && version != 3 && version != 4))
        return PE_OMIT;
    cursor->at += (size_t)(end - augmentation) + 1;
    if (version == 4)
        cursor->at += 2; // address and segment sizes
    if (cursor->at > cursor->length)
        return PE_OMIT;
    if (augmentation[0] == '\0')
        return 0; // absptr
    if (augmentation[0] != 'z')
        return PE_OMIT;
    // Code and data alignment (the sign does not matter to skip), return
    // register, length of the augmentation data.
    if (!read_uleb(cursor, &ignored) || !read_uleb(cursor, &ignored))
        return PE_OMIT;
    if (version == 1) {
        if (cursor->at++ >= cursor->length)
            return PE_OMIT;
    } else if (!read_uleb(cursor, &ignored)) {
        return PE_OMIT;
    }
    if (!read_uleb(cursor, &ignored))
        return PE_OMIT;
    for (const uint8_t *letter = augmentation + 1; letter < end; letter++) {
        if (cursor->at >= cursor->length && *letter != 'S' && *letter != 'B')
            return PE_OMIT;
        switch (*letter) {
        case 'R':
            return cursor->bytes[cursor->at];
        case 'L':
            cursor->at++;
            break;
        case 'P': {
            uint8_t encoding = cursor->bytes[cursor->at++];
            size_t size = format_size(is64, encoding);
            if (size == 0 || cursor->length - cursor->at < size)
                return PE_OMIT;
            cursor->at += size;
            break;
        }
        case 'S':
        case 'B':
            break;
        default:
            return PE_OMIT;
        }
    }
    return 0;
}

struct walk {
    struct elf_window window, cies;
    bool is64;
    uint64_t offset, address, size, base;
    uint64_t cie;         // offset of the CIE last seen
    uint8_t cie_encoding; // and what it said
    struct elf_range *ranges;
    size_t count, capacity;
};

struct record {
    uint64_t content; // where it starts, behind the length, from the section's start
    uint64_t length;  // of the content
};

// The record at `at`; false at the terminator and where it does not fit.
static bool
record_at(struct walk *walk, struct elf_window *window, uint64_t at, struct record *record)
{
    if (at > walk->size || walk->size - at < 8)
        return false;
    const uint8_t *bytes = elf_window_at(window, walk->offset + at, 4, NULL);
    if (bytes == NULL)
        return false;
    record->length = elf_u32(bytes);
    record->content = at + 4;
    if (record->length == 0xffffffff) {
        bytes = elf_window_at(window, walk->offset + at + 4, 8, NULL);
        if (bytes == NULL || walk->size - at < 12)
            return false;
        record->length = elf_u64(bytes);
        record->content = at + 12;
    }
    return record->length >= 4 && record->length <= walk->size - record->content;
}

static uint8_t
encoding_of(struct walk *walk, uint64_t cie)
{
    if (cie == walk->cie)
        return walk->cie_encoding;
    struct record record;
    uint8_t encoding = PE_OMIT;
    if (record_at(walk, &walk->cies, cie, &record)) {
        size_t need = record.length < 256 ? (size_t)record.length : 256;
        const uint8_t *bytes =
            elf_window_at(&walk->cies, walk->offset + record.content, need, NULL);
        if (bytes != NULL && elf_u32(bytes) == 0) {
            struct cursor cursor = {bytes, 4, need};
            encoding = cie_encoding(&cursor, walk->is64);
        }
    }
    walk->cie = cie;
    walk->cie_encoding = encoding;
    return encoding;
}

static int
add_range(struct walk *walk, uint64_t start, uint64_t length)
{
    if (start < walk->base || start - walk->base >= UINT32_MAX || length == 0)
        return 0;
    uint64_t relative = start - walk->base;
    if (length > UINT32_MAX - relative)
        return 0;
    if (walk->count == walk->capacity) {
        size_t capacity = walk->capacity ? walk->capacity * 2 : 512;
        if (walk->count >= MAX_RANGES)
            return -E2BIG;
        struct elf_range *ranges = realloc(walk->ranges, capacity * sizeof *ranges);
        if (ranges == NULL)
            return -ENOMEM;
        walk->ranges = ranges;
        walk->capacity = capacity;
    }
    walk->ranges[walk->count++] =
        (struct elf_range){(uint32_t)relative, (uint32_t)(relative + length)};
    return 0;
}

static int
walk_fde(struct walk *walk, const struct record *record)
{
    uint64_t back, start, length;
    size_t need = record->length < 32 ? (size_t)record->length : 32;
    const uint8_t *bytes = elf_window_at(&walk->window, walk->offset + record->content, need, NULL);
    if (bytes == NULL)
        return -ENODATA;
    back = elf_u32(bytes);
    if (back == 0) // a CIE
        return 0;
    if (back > record->content)
        return 0;
    uint8_t encoding = encoding_of(walk, record->content - back);
    if (encoding == PE_OMIT || (encoding & PE_INDIRECT) ||
        ((encoding & PE_APPLICATION) != 0 && (encoding & PE_APPLICATION) != PE_PCREL))
        return 0;
    struct cursor cursor = {bytes, 4, need};
    if (!read_encoded(&cursor, walk->is64, encoding, false, &start) ||
        !read_encoded(&cursor, walk->is64, encoding, true, &length))
        return 0;
    if ((encoding & PE_APPLICATION) == PE_PCREL)
        start += walk->address + record->content + 4;
    if (!walk->is64)
        start &= UINT32_MAX;
    return add_range(walk, start, length);
}

static int
by_start(const void *left, const void *right)
{
    const struct elf_range *a = left, *b = right;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

int
elf_eh_frame_ranges(const struct elf_source *source, bool is64, uint64_t offset, uint64_t address,
                    uint64_t size, uint64_t base, struct elf_range **ranges, size_t *count)
{
    *ranges = NULL;
    *count = 0;
    if (offset > source->size)
        return 0;
    struct walk walk = {
        .is64 = is64, .offset = offset, .address = address, .base = base, .cie = UINT64_MAX};
    walk.size = size < source->size - offset ? size : source->size - offset;
    int rc = elf_window_init(&walk.window, source, ELF_WINDOW_SIZE);
    // CIEs lie far behind their FDEs: a view of their own.
    if (rc == 0)
        rc = elf_window_init(&walk.cies, source, ELF_WINDOW_SIZE);
    struct record record;
    uint64_t at = 0;
    while (rc == 0 && record_at(&walk, &walk.window, at, &record)) {
        rc = walk_fde(&walk, &record);
        at = record.content + record.length;
    }
    elf_window_free(&walk.window);
    elf_window_free(&walk.cies);
    if (rc == -ENOMEM || walk.count == 0) {
        free(walk.ranges);
        return rc == -ENOMEM ? rc : 0;
    }
    qsort(walk.ranges, walk.count, sizeof *walk.ranges, by_start);
    struct elf_range *fitted = realloc(walk.ranges, walk.count * sizeof *fitted);
    *ranges = fitted != NULL ? fitted : walk.ranges;
    *count = walk.count;
    return 0;
}
