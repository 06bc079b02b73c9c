// SPDX-License-Identifier: Apache-2.0
// Names of addresses: which symbols of an ELF file count, and the lookup.
#include "elf_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_SYMBOLS 4000000         // functions kept
#define MAX_TABLE (512ull << 20)    // bytes of a symbol table
#define NAME_READ 512               // bytes read for one name at first
#define NAME_PAGE 4096              // and of a string table too large to be read whole
#define MAX_STRINGS ELF_NAME_OFFSET // bytes of a string table

struct strings {
    struct elf_window window;
    uint64_t offset, size;
};

int
elf_symbols_add(struct elf_symbols *symbols, const struct opd_elf *elf, uint64_t start,
                uint64_t size, uint64_t limit, struct elf_symbol symbol)
{
    if (start < elf->base || start - elf->base >= UINT32_MAX)
        return 0;
    uint64_t relative = start - elf->base;
    symbol.start = (uint32_t)relative;
    symbol.end = size > UINT32_MAX - relative ? UINT32_MAX : (uint32_t)(relative + size);
    limit = limit < start ? relative : limit - elf->base;
    symbol.limit = limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit;
    if (symbols->count == symbols->capacity) {
        if (symbols->count >= MAX_SYMBOLS)
            return -E2BIG;
        size_t capacity = symbols->capacity ? symbols->capacity * 2 : 1024;
        struct elf_symbol *items = realloc(symbols->items, capacity * sizeof *items);
        if (items == NULL)
            return -ENOMEM;
        symbols->items = items;
        symbols->capacity = capacity;
    }
    symbols->items[symbols->count++] = symbol;
    return 0;
}

// The string at `offset` of a string table; its length without "@VERSION" and
// at most OPD_ELF_NAME_MAX. NULL: not there, or not terminated.
static const char *
string_at(struct strings *strings, uint32_t offset, size_t *length)
{
    if (offset >= strings->size)
        return NULL;
    uint64_t left = strings->size - offset;
    size_t available;
    const uint8_t *text = elf_window_at(&strings->window, strings->offset + offset, 1, &available);
    if (text == NULL)
        return NULL;
    size_t most = left < OPD_ELF_NAME_MAX + 1 ? (size_t)left : OPD_ELF_NAME_MAX + 1;
    const uint8_t *end = memchr(text, '\0', available < most ? available : most);
    if (end == NULL && available < most) {
        text = elf_window_at(&strings->window, strings->offset + offset, most, NULL);
        if (text == NULL)
            return NULL;
        end = memchr(text, '\0', most);
    }
    if (end == NULL && most <= OPD_ELF_NAME_MAX)
        return NULL;
    size_t got = end == NULL ? OPD_ELF_NAME_MAX : (size_t)(end - text);
    const uint8_t *version = got > 1 ? memchr(text + 1, '@', got - 1) : NULL;
    *length = version == NULL ? got : (size_t)(version - text);
    return (const char *)text;
}

static size_t
leading_underscores(const char *name, size_t length)
{
    size_t count = 0;
    while (count < length && name[count] == '_')
        count++;
    return count > 255 ? 255 : count;
}

// What perf takes for the start of a function: typed ones, and labels in code
// that are not hidden.
static bool
is_function(unsigned type, unsigned visibility)
{
    return type == STT_FUNC || type == STT_GNU_IFUNC ||
           (type == STT_NOTYPE && visibility != STV_HIDDEN && visibility != STV_INTERNAL);
}

// Arm and RISC-V mark code and data with labels: $a $d $t $x, then nothing or
// a dot or an ISA string.
static bool
is_mapping_symbol(const char *name, size_t length)
{
    return length >= 2 && name[0] == '$' && memchr("adtx", name[1], 4) != NULL;
}

static int
read_symbol_table(const struct opd_elf *elf, const struct opd_elf *from,
                  const struct elf_section *table, uint32_t source_bits,
                  struct elf_symbols *symbols)
{
    size_t least = from->is64 ? sizeof(Elf64_Sym) : sizeof(Elf32_Sym);
    if (table->link >= from->section_count || table->size > MAX_TABLE)
        return table->size > MAX_TABLE ? -E2BIG : 0;
    const struct elf_section *string_table = &from->sections[table->link];
    struct strings strings = {.offset = string_table->offset, .size = string_table->size};
    if (string_table->type != SHT_STRTAB)
        return 0;
    if (strings.size > MAX_STRINGS)
        return -E2BIG;
    struct elf_window window;
    int rc = elf_window_init(&window, &from->source, ELF_WINDOW_SIZE);
    if (rc == 0)
        rc = elf_window_init_whole(&strings.window, &from->source, NAME_PAGE, strings.offset,
                                   strings.size);
    else
        strings.window.bytes = NULL;
    size_t count = (size_t)(table->size / least);
    for (size_t i = 1; rc == 0 && i < count; i++) {
        const uint8_t *bytes = elf_window_at(&window, table->offset + i * least, least, NULL);
        if (bytes == NULL)
            break;
        Elf64_Sym symbol;
        if (from->is64) {
            memcpy(&symbol, bytes, sizeof symbol);
        } else {
            Elf32_Sym narrow;
            memcpy(&narrow, bytes, sizeof narrow);
            symbol = (Elf64_Sym){narrow.st_name,  narrow.st_info,  narrow.st_other,
                                 narrow.st_shndx, narrow.st_value, narrow.st_size};
        }
        unsigned type = ELF64_ST_TYPE(symbol.st_info);
        if (!is_function(type, ELF64_ST_VISIBILITY(symbol.st_other)) ||
            symbol.st_shndx == SHN_UNDEF || symbol.st_shndx >= from->section_count)
            continue;
        const struct elf_section *section = &from->sections[symbol.st_shndx];
        if (!(section->flags & SHF_EXECINSTR) || !(section->flags & SHF_ALLOC))
            continue;
        if (from->machine == EM_ARM)
            symbol.st_value &= ~1ull; // Thumb
        uint64_t limit = section->size > UINT64_MAX - section->address
                             ? UINT64_MAX
                             : section->address + section->size;
        size_t length;
        const char *name = string_at(&strings, symbol.st_name, &length);
        if (name == NULL || length == 0 || (type == STT_NOTYPE && is_mapping_symbol(name, length)))
            continue;
        unsigned binding = ELF64_ST_BIND(symbol.st_info);
        struct elf_symbol entry = {
            .name = symbol.st_name | source_bits,
            .name_length = (uint16_t)length,
            .underscores = (uint8_t)leading_underscores(name, length),
            .rank = binding == STB_LOCAL  ? 2
                    : binding == STB_WEAK ? 1
                                          : 0,
        };
        rc = elf_symbols_add(symbols, elf, symbol.st_value, symbol.st_size, limit, entry);
    }
    elf_window_free(&window);
    elf_window_free(&strings.window);
    return rc;
}

static const struct elf_section *
find_table(const struct opd_elf *elf, uint32_t type)
{
    size_t least = elf->is64 ? sizeof(Elf64_Sym) : sizeof(Elf32_Sym);
    for (size_t i = 0; i < elf->section_count; i++)
        if (elf->sections[i].type == type && elf->sections[i].size >= 2 * least)
            return &elf->sections[i];
    return NULL;
}

int
opd_elf_has_symtab(const struct opd_elf *elf)
{
    return find_table(elf, SHT_SYMTAB) != NULL;
}

// Keeps where the primary names are, with a descriptor of its own.
static int
keep_strings(struct opd_elf *elf, const struct opd_elf *from, const struct elf_section *table)
{
    if (table->link >= from->section_count)
        return 0;
    elf->strings_offset = from->sections[table->link].offset;
    elf->strings_size = from->sections[table->link].size;
    elf->strings_source.size = from->source.size;
    if (from->source.fd >= 0) {
        elf->strings_source.fd = fcntl(from->source.fd, F_DUPFD_CLOEXEC, 3);
        return elf->strings_source.fd < 0 ? -errno : 0;
    }
    uint8_t *copy = malloc(from->source.size);
    if (copy == NULL)
        return -ENOMEM;
    memcpy(copy, from->source.memory, from->source.size);
    elf->strings_source.memory = copy;
    return 0;
}

int
opd_elf_load_symbols(struct opd_elf *elf, const struct opd_elf *debug)
{
    if (elf->slots != NULL || elf->strings_size != 0)
        return -EALREADY;
    if (elf->type == ET_REL) // its symbols are relative to sections nobody placed
        return 0;
    const struct opd_elf *from = elf;
    const struct elf_section *table = find_table(elf, SHT_SYMTAB);
    if (table == NULL && debug != NULL && debug->is64 == elf->is64 &&
        debug->machine == elf->machine) {
        table = find_table(debug, SHT_SYMTAB);
        if (table != NULL)
            from = debug;
    }
    const struct elf_section *dynamic = find_table(elf, SHT_DYNSYM);
    if (dynamic != NULL && dynamic->link < elf->section_count) {
        elf->dynstr_offset = elf->sections[dynamic->link].offset;
        elf->dynstr_size = elf->sections[dynamic->link].size;
    }
    struct elf_symbols symbols = {0};
    int rc = 0;
    if (table != NULL) {
        rc = keep_strings(elf, from, table);
        if (rc == 0)
            rc = read_symbol_table(elf, from, table, 0, &symbols);
    } else if (dynamic != NULL) {
        rc = read_symbol_table(elf, elf, dynamic, ELF_NAME_DYNAMIC, &symbols);
    }
    if (rc == 0)
        rc = elf_plt_symbols(elf, &symbols);
    if (rc == 0)
        rc = elf_build_table(elf, &symbols);
    free(symbols.items);
    return rc;
}

static void
find_ranges(struct opd_elf *elf)
{
    elf->ranges_tried = true;
    uint64_t offset = 0, address = 0, size = 0;
    const struct elf_section *section = elf_find_section(elf, ".eh_frame");
    if (section != NULL && section->type != SHT_NOBITS) {
        offset = section->offset;
        address = section->address;
        size = section->size;
    } else {
        // Without section headers: .eh_frame_hdr begins with a pointer to it.
        for (size_t i = 0; i < elf->segment_count; i++) {
            const struct elf_segment *header = &elf->segments[i];
            uint8_t bytes[8];
            if (header->type != PT_GNU_EH_FRAME ||
                elf_source_read(&elf->source, header->offset, bytes, sizeof bytes) < 0 ||
                bytes[0] != 1 || bytes[1] != 0x1b) // version; pcrel, sdata4
                continue;
            address = header->address + 4 + (uint64_t)(int64_t)(int32_t)elf_u32(bytes + 4);
        }
        for (size_t i = 0; i < elf->segment_count && address != 0; i++) {
            const struct elf_segment *load = &elf->segments[i];
            if (load->type == PT_LOAD && address >= load->address &&
                address - load->address < load->file_size) {
                offset = load->offset + (address - load->address);
                size = load->file_size - (address - load->address);
                break;
            }
        }
    }
    if (size > 0)
        elf_eh_frame_ranges(&elf->source, elf->is64, offset, address, size, elf->base, &elf->ranges,
                            &elf->range_count);
}

// The last entry that starts at or before `at`; SIZE_MAX: none. Both tables
// begin with u32 start.
static size_t
last_at(const void *table, size_t count, size_t stride, uint32_t at)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (elf_u32((const uint8_t *)table + middle * stride) <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low == 0 ? SIZE_MAX : low - 1;
}

// Copies the name; its length, 0 when it cannot be read any more.
static size_t
copy_name(struct strings *primary, struct strings *dynamic, uint32_t name, char *text)
{
    size_t length;
    struct strings *strings = name & ELF_NAME_DYNAMIC ? dynamic : primary;
    const char *string = string_at(strings, name & ELF_NAME_OFFSET, &length);
    if (string == NULL)
        return 0;
    memcpy(text, string, length);
    if (name & ELF_NAME_PLT) {
        memcpy(text + length, "@plt", 4);
        length += 4;
    }
    return length;
}

long
opd_elf_names(struct opd_elf *elf, const uint64_t *addresses, size_t count,
              struct opd_elf_name *names, char *text, size_t capacity)
{
    if (capacity < OPD_ELF_NAME_MAX + 4)
        return -EINVAL;
    struct strings primary = {.offset = elf->strings_offset, .size = elf->strings_size};
    struct strings dynamic = {.offset = elf->dynstr_offset, .size = elf->dynstr_size};
    const struct elf_source *source = &elf->strings_source;
    int rc = elf_window_init(&primary.window, source, NAME_READ);
    int rc2 = elf_window_init(&dynamic.window, &elf->source, NAME_READ);
    size_t used = 0, done = 0;
    for (; rc == 0 && rc2 == 0 && done < count; done++) {
        struct opd_elf_name *name = &names[done];
        // Sorted addresses have neighbours in one function: named once.
        if (done > 0 && addresses[done] >= name[-1].start && addresses[done] < name[-1].end) {
            *name = name[-1];
            continue;
        }
        *name = (struct opd_elf_name){.start = addresses[done], .end = addresses[done]};
        if (addresses[done] < elf->base || addresses[done] - elf->base >= UINT32_MAX)
            continue;
        uint32_t at = (uint32_t)(addresses[done] - elf->base);
        size_t i = last_at(elf->slots, elf->slot_count, sizeof *elf->slots, at);
        if (i != SIZE_MAX && at < elf->slots[i].end) {
            if (capacity - used < OPD_ELF_NAME_MAX + 4)
                break;
            const struct elf_slot *slot = &elf->slots[i];
            size_t length = copy_name(&primary, &dynamic, slot->name, text + used);
            name->kind = length > 0 ? OPD_ELF_NAMED : OPD_ELF_NONE;
            name->start = elf->base + slot->start;
            name->end = elf->base + slot->end;
            name->text = (uint32_t)used;
            name->length = (uint32_t)length;
            used += length;
            continue;
        }
        if (!elf->ranges_tried)
            find_ranges(elf);
        i = last_at(elf->ranges, elf->range_count, sizeof *elf->ranges, at);
        if (i != SIZE_MAX && at < elf->ranges[i].end) {
            name->kind = OPD_ELF_RANGE;
            name->start = elf->base + elf->ranges[i].start;
            name->end = elf->base + elf->ranges[i].end;
        }
    }
    elf_window_free(&primary.window);
    elf_window_free(&dynamic.window);
    return rc < 0 ? rc : rc2 < 0 ? rc2 : (long)done;
}

size_t
opd_elf_bytes(const struct opd_elf *elf)
{
    size_t bytes = sizeof *elf;
    bytes += elf->segment_count * sizeof *elf->segments;
    bytes += elf->section_count * sizeof *elf->sections;
    bytes += elf->slot_count * sizeof *elf->slots;
    bytes += elf->range_count * sizeof *elf->ranges;
    if (elf->source.memory != NULL)
        bytes += elf->source.size;
    if (elf->strings_source.memory != NULL)
        bytes += elf->strings_source.size;
    return bytes;
}

size_t
opd_elf_symbols(const struct opd_elf *elf)
{
    return elf->slot_count;
}
