// SPDX-License-Identifier: Apache-2.0
// Functions of ELF files by their names, for probes.
#include "elf_private.h"

#include <errno.h>

#define MAX_TABLE (512ull << 20) // bytes of a symbol table
#define NAME_STEP 4096

struct found {
    uint64_t address;
    int rank; // 0 global, 1 weak, 2 local, 3 none yet
    bool several;
};

static bool
is_name(struct elf_window *strings, uint64_t at, uint64_t left, const char *name, size_t length)
{
    if (left <= length)
        return false;
    const uint8_t *text = elf_window_at(strings, at, length + 1, NULL);
    return text != NULL && memcmp(text, name, length) == 0 &&
           (text[length] == '\0' || text[length] == '@');
}

static void
take(struct found *found, uint64_t address, unsigned binding)
{
    int rank = binding == STB_LOCAL ? 2 : binding == STB_WEAK ? 1 : 0;
    if (rank < found->rank)
        *found = (struct found){.address = address, .rank = rank};
    else if (rank == found->rank && address != found->address)
        found->several = true;
}

static int
search(const struct opd_elf *elf, const struct elf_section *table, const char *name,
       struct found *found)
{
    size_t least = elf->is64 ? sizeof(Elf64_Sym) : sizeof(Elf32_Sym);
    size_t length = strlen(name);
    if (table->size > MAX_TABLE)
        return -E2BIG;
    if (table->link >= elf->section_count || elf->sections[table->link].type != SHT_STRTAB)
        return 0;
    const struct elf_section *names = &elf->sections[table->link];
    struct elf_window symbols, strings = {0};
    int rc = elf_window_init(&symbols, &elf->source, ELF_WINDOW_SIZE);
    if (rc == 0)
        rc = elf_window_init_whole(&strings, &elf->source, NAME_STEP, names->offset, names->size);
    for (uint64_t i = 1; rc == 0 && i < table->size / least; i++) {
        const uint8_t *bytes = elf_window_at(&symbols, table->offset + i * least, least, NULL);
        if (bytes == NULL)
            break;
        // Both layouts begin with the name; the rest is in another order.
        uint32_t at = elf_u32(bytes);
        unsigned info = elf->is64 ? bytes[4] : bytes[12];
        uint16_t section = elf_u16(bytes + (elf->is64 ? 6 : 14));
        uint64_t value = elf->is64 ? elf_u64(bytes + 8) : elf_u32(bytes + 4);
        unsigned type = ELF64_ST_TYPE(info);
        if ((type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE) ||
            section == SHN_UNDEF || section >= elf->section_count || at >= names->size ||
            !(elf->sections[section].flags & SHF_EXECINSTR))
            continue;
        if (elf->machine == EM_ARM)
            value &= ~1ull; // Thumb
        if (is_name(&strings, names->offset + at, names->size - at, name, length))
            take(found, value, ELF64_ST_BIND(info));
    }
    elf_window_free(&symbols);
    elf_window_free(&strings);
    return rc;
}

// In .symtab, else .dynsym.
static int
search_file(const struct opd_elf *elf, const char *name, struct found *found)
{
    static const uint32_t types[] = {SHT_SYMTAB, SHT_DYNSYM};
    int rc = 0;
    for (size_t j = 0; j < 2 && rc == 0 && found->rank == 3; j++)
        for (size_t i = 0; i < elf->section_count && rc == 0; i++)
            if (elf->sections[i].type == types[j])
                rc = search(elf, &elf->sections[i], name, found);
    return rc;
}

int
opd_elf_find_function(const struct opd_elf *elf, const struct opd_elf *debug, const char *name,
                      uint64_t *offset)
{
    struct found found = {.rank = 3};
    size_t length = strlen(name);
    if (length == 0 || length > OPD_ELF_NAME_MAX || elf->type == ET_REL)
        return -ENOENT;
    int rc = search_file(elf, name, &found);
    if (rc == 0 && found.rank == 3 && debug != NULL && debug->is64 == elf->is64 &&
        debug->machine == elf->machine)
        rc = search_file(debug, name, &found);
    if (rc < 0)
        return rc;
    if (found.rank == 3)
        return -ENOENT;
    if (found.several)
        return -ENOTUNIQ;
    for (size_t i = 0; i < elf->segment_count; i++) {
        const struct elf_segment *segment = &elf->segments[i];
        if (segment->type == PT_LOAD && (segment->flags & PF_X) &&
            found.address >= segment->address &&
            found.address - segment->address < segment->file_size) {
            *offset = found.address - segment->address + segment->offset;
            return 0;
        }
    }
    return -ENXIO;
}

int
opd_elf_is_code(const struct opd_elf *elf, uint64_t offset)
{
    for (size_t i = 0; i < elf->segment_count; i++) {
        const struct elf_segment *segment = &elf->segments[i];
        if (segment->type == PT_LOAD && (segment->flags & PF_X) && offset >= segment->offset &&
            offset - segment->offset < segment->file_size)
            return 1;
    }
    return 0;
}

size_t
opd_elf_code(const struct opd_elf *elf, struct opd_elf_code *out, size_t room)
{
    size_t found = 0;
    for (size_t i = 0; i < elf->segment_count; i++) {
        const struct elf_segment *segment = &elf->segments[i];
        if (segment->type != PT_LOAD || !(segment->flags & PF_X) || segment->file_size == 0)
            continue;
        if (found < room)
            out[found] = (struct opd_elf_code){
                .offset = segment->offset, .size = segment->file_size, .address = segment->address};
        found++;
    }
    return found;
}
