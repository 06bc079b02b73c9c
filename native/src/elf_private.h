// SPDX-License-Identifier: Apache-2.0
// What the files that make up the ELF reader share.
#ifndef OPD_ELF_PRIVATE_H
#define OPD_ELF_PRIVATE_H

#include "opd/elf.h"
#include <elf.h>
#include <stdbool.h>
#include <string.h>

// A file or a block of memory, read at offsets.
struct elf_source {
    int fd;                // -1: memory
    const uint8_t *memory; // owned by who set it
    uint64_t size;
};

// Exactly `length` bytes, or -ENODATA past the end, or -errno.
int elf_source_read(const struct elf_source *source, uint64_t offset, void *bytes, size_t length);

// A moving view of a source, so that a walk costs one read per `step` bytes.
#define ELF_WINDOW_SIZE 65536
struct elf_window {
    const struct elf_source *source;
    uint64_t start;
    size_t length, step;
    uint8_t *bytes;
};
int elf_window_init(struct elf_window *window, const struct elf_source *source, size_t step);
// A view that holds `size` bytes at `offset` from the start, where they are
// not too many: for a table that is read in no order.
#define ELF_WHOLE (16u << 20)
int elf_window_init_whole(struct elf_window *window, const struct elf_source *source, size_t step,
                          uint64_t offset, uint64_t size);
void elf_window_free(struct elf_window *window);
// At least `need` (<= ELF_WINDOW_SIZE) bytes at `offset`, NULL when the source
// has fewer. `available`, if not NULL, says how many there are in the view.
const uint8_t *elf_window_at(struct elf_window *window, uint64_t offset, size_t need,
                             size_t *available);

static inline uint16_t
elf_u16(const void *bytes)
{
    uint16_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static inline uint32_t
elf_u32(const void *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static inline uint64_t
elf_u64(const void *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

struct elf_section {
    uint32_t type, link;
    uint64_t flags, address, offset, size, entry_size;
    uint32_t name_offset;
    char name[12]; // cut; enough for the few that are asked for
};

struct elf_segment {
    uint32_t type, flags;
    uint64_t offset, address, file_size, align;
};

// A function range, relative to opd_elf.base.
struct elf_range {
    uint32_t start, end;
};

// One stretch of addresses with one name. The top bits of `name` say where the
// string is: ELF_NAME_DYNAMIC in .dynstr, ELF_NAME_PLT with "@plt" behind it.
#define ELF_NAME_DYNAMIC 0x80000000u
#define ELF_NAME_PLT 0x40000000u
#define ELF_NAME_OFFSET 0x3fffffffu
struct elf_slot {
    uint32_t start, end, name;
};

// A symbol while the table is built.
struct elf_symbol {
    uint32_t start, end; // end == start: without size
    uint32_t name;       // as in elf_slot
    uint32_t limit;      // end of its section: how far one without size reaches
    uint16_t name_length;
    uint8_t underscores; // leading ones, at most 255
    uint8_t rank;        // 0 global, 1 weak, 2 local, 3 made up by us
};

struct elf_symbols {
    struct elf_symbol *items;
    size_t count, capacity;
};

struct opd_elf {
    struct elf_source source;
    bool is64;
    uint16_t machine, type;
    struct elf_segment *segments;
    size_t segment_count;
    struct elf_section *sections;
    size_t section_count;
    uint64_t base; // lowest PT_LOAD address, what 32-bit addresses are relative to
    uint8_t build_id[OPD_ELF_BUILD_ID_MAX];
    size_t build_id_length;

    struct elf_source strings_source; // where the primary string table is
    uint64_t strings_offset, strings_size;
    uint64_t dynstr_offset, dynstr_size;
    struct elf_slot *slots;
    size_t slot_count;

    bool ranges_tried;
    struct elf_range *ranges;
    size_t range_count;
};

// The first section of that name (at most 11 characters), NULL: none.
const struct elf_section *elf_find_section(const struct opd_elf *elf, const char *name);

// Adds a symbol; addresses are ELF addresses. Those out of the 4 GiB from base
// are dropped. 0, -ENOMEM or -E2BIG.
int elf_symbols_add(struct elf_symbols *symbols, const struct opd_elf *elf, uint64_t start,
                    uint64_t size, uint64_t limit, struct elf_symbol symbol);

// Sorts the symbols and makes elf->slots of them.
int elf_build_table(struct opd_elf *elf, struct elf_symbols *symbols);

// Adds one for each PLT stub.
int elf_plt_symbols(const struct opd_elf *elf, struct elf_symbols *symbols);

// Function ranges by .eh_frame at `offset`, mapped at `address`; sorted, those
// out of [base, base + 4 GiB) dropped. 0, -ENOMEM. A broken record ends the
// walk: what came before it is kept.
int elf_eh_frame_ranges(const struct elf_source *source, bool is64, uint64_t offset,
                        uint64_t address, uint64_t size, uint64_t base, struct elf_range **ranges,
                        size_t *count);

#endif
