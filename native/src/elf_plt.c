// SPDX-License-Identifier: Apache-2.0
// Names of PLT stubs. A stub jumps through a slot of the GOT, and a relocation
// says which symbol that slot is for: we read the jump, then the relocation,
// which holds for every layout (.plt, .plt.sec, .plt.got, with or without
// IBT). x86-64 and AArch64.
#include "elf_private.h"

#include <errno.h>
#include <stdlib.h>

#define MAX_STUBS 200000
#define MAX_RELOCATIONS (256ull << 20)
#define SYMBOL_PAGE 4096 // read of a symbol table too large to be read whole

struct stub {
    uint64_t got;     // address of its GOT slot; UINT64_MAX: by_index
    uint64_t address; // of the stub
    uint32_t size;
    uint32_t index;  // of its relocation in .rela.plt, when got is not known
    uint32_t symbol; // index in .dynsym; 0: not known
};

struct stubs {
    struct stub *items;
    size_t count, capacity;
};

static int
add_stub(struct stubs *stubs, struct stub stub)
{
    if (stubs->count == stubs->capacity) {
        size_t capacity = stubs->capacity ? stubs->capacity * 2 : 256;
        if (stubs->count >= MAX_STUBS)
            return -E2BIG;
        struct stub *items = realloc(stubs->items, capacity * sizeof *items);
        if (items == NULL)
            return -ENOMEM;
        stubs->items = items;
        stubs->capacity = capacity;
    }
    stubs->items[stubs->count++] = stub;
    return 0;
}

// x86-64: entries of `size` bytes, each with `jmp *slot(%rip)` (perhaps after
// endbr64 and with a bnd prefix), or in a lazy IBT .plt `push $index`.
static int
x86_stubs(struct elf_window *window, const struct elf_section *section, uint32_t size,
          struct stubs *stubs)
{
    int rc = 0;
    for (uint64_t at = 0; rc == 0 && section->size - at >= size; at += size) {
        const uint8_t *code = elf_window_at(window, section->offset + at, size, NULL);
        if (code == NULL)
            break;
        uint64_t address = section->address + at;
        size_t skip = memcmp(code, "\xf3\x0f\x1e\xfa", 4) == 0 ? 4 : 0;
        if (skip + 5 <= size && code[skip] == 0x68) {
            rc = add_stub(stubs,
                          (struct stub){UINT64_MAX, address, size, elf_u32(code + skip + 1), 0});
            continue;
        }
        if (skip + 1 < size && code[skip] == 0xf2)
            skip++;
        if (skip + 6 > size || code[skip] != 0xff || code[skip + 1] != 0x25)
            continue;
        int64_t displacement = (int32_t)elf_u32(code + skip + 2);
        uint64_t got = address + skip + 6 + (uint64_t)displacement;
        rc = add_stub(stubs, (struct stub){got, address, size, 0, 0});
    }
    return rc;
}

// AArch64: `adrp x16, page; ldr x17, [x16, offset]`, perhaps after `bti c`.
static int
arm64_stubs(struct elf_window *window, const struct elf_section *section, struct stubs *stubs)
{
    int rc = 0;
    uint32_t before = 0;
    for (uint64_t at = 0; rc == 0 && section->size - at >= 8; at += 4) {
        const uint8_t *code = elf_window_at(window, section->offset + at, 8, NULL);
        if (code == NULL)
            break;
        uint32_t adrp = elf_u32(code), load = elf_u32(code + 4);
        if ((adrp & 0x9f00001f) == 0x90000010 && (load & 0xffc003ff) == 0xf9400211) {
            uint64_t pages = ((uint64_t)((adrp >> 5) & 0x7ffff) << 2) | ((adrp >> 29) & 3);
            uint64_t offset = (pages << 12) | (pages & (1u << 20) ? 0xfffffffe00000000ull : 0);
            uint64_t address = section->address + at;
            uint64_t got = (address & ~0xfffull) + offset + ((load >> 10) & 0xfff) * 8;
            uint32_t lead = before == 0xd503245f ? 4 : 0;
            rc = add_stub(stubs, (struct stub){got, address - lead, 16 + lead, 0, 0});
        }
        before = adrp;
    }
    return rc;
}

static int
by_got(const void *left, const void *right)
{
    const struct stub *a = left, *b = right;
    if (a->got != b->got)
        return a->got < b->got ? -1 : 1;
    return a->address < b->address ? -1 : a->address > b->address;
}

// Gives each stub whose GOT slot, or place in .rela.plt, this relocation
// fills its symbol.
static void
resolve(struct stubs *stubs, const Elf64_Rela *relocation)
{
    size_t low = 0, high = stubs->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (stubs->items[middle].got < relocation->r_offset)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < stubs->count && stubs->items[low].got == relocation->r_offset; low++)
        stubs->items[low].symbol = (uint32_t)ELF64_R_SYM(relocation->r_info);
}

static void
read_relocations(const struct elf_section *section, struct elf_window *window, struct stubs *stubs,
                 size_t by_index)
{
    if (section->size > MAX_RELOCATIONS)
        return;
    size_t count = (size_t)(section->size / sizeof(Elf64_Rela));
    for (size_t i = 0; i < count; i++) {
        Elf64_Rela relocation;
        const uint8_t *bytes =
            elf_window_at(window, section->offset + i * sizeof relocation, sizeof relocation, NULL);
        if (bytes == NULL)
            return;
        memcpy(&relocation, bytes, sizeof relocation);
        if (ELF64_R_SYM(relocation.r_info) != 0)
            resolve(stubs, &relocation);
    }
    // The lazy stubs say their relocation's number.
    for (size_t i = by_index; i < stubs->count; i++) {
        struct stub *stub = &stubs->items[i];
        if (stub->index >= count)
            continue;
        const uint8_t *bytes = elf_window_at(
            window, section->offset + stub->index * sizeof(Elf64_Rela), sizeof(Elf64_Rela), NULL);
        if (bytes != NULL)
            stub->symbol = (uint32_t)ELF64_R_SYM(elf_u64(bytes + 8));
    }
}

static int
name_stubs(const struct opd_elf *elf, const struct elf_section *dynamic, struct elf_window *window,
           const struct stubs *stubs, struct elf_symbols *symbols)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < stubs->count; i++) {
        const struct stub *stub = &stubs->items[i];
        if (stub->symbol == 0 || stub->symbol >= dynamic->size / sizeof(Elf64_Sym))
            continue;
        const uint8_t *bytes = elf_window_at(
            window, dynamic->offset + stub->symbol * sizeof(Elf64_Sym), sizeof(Elf64_Sym), NULL);
        if (bytes == NULL)
            break;
        uint32_t name = elf_u32(bytes);
        if (name == 0 || name > ELF_NAME_OFFSET)
            continue;
        // Rank 3: a symbol of the file that covers the stub is better.
        struct elf_symbol entry = {.name = name | ELF_NAME_DYNAMIC | ELF_NAME_PLT, .rank = 3};
        rc = elf_symbols_add(symbols, elf, stub->address, stub->size, stub->address + stub->size,
                             entry);
    }
    return rc;
}

int
elf_plt_symbols(const struct opd_elf *elf, struct elf_symbols *symbols)
{
    if (!elf->is64 || (elf->machine != EM_X86_64 && elf->machine != EM_AARCH64))
        return 0;
    const struct elf_section *dynamic = NULL;
    for (size_t i = 0; i < elf->section_count && dynamic == NULL; i++)
        if (elf->sections[i].type == SHT_DYNSYM)
            dynamic = &elf->sections[i];
    if (dynamic == NULL)
        return 0;
    static const char *const names[] = {".plt", ".plt.sec", ".plt.got"};
    struct stubs stubs = {0};
    struct elf_window window;
    int rc = elf_window_init(&window, &elf->source, ELF_WINDOW_SIZE);
    for (size_t i = 0; rc == 0 && i < sizeof names / sizeof names[0]; i++) {
        const struct elf_section *section = elf_find_section(elf, names[i]);
        if (section == NULL || section->type != SHT_PROGBITS)
            continue;
        // .plt.got's entries have 8 bytes, with IBT 16.
        uint32_t size = 16;
        const uint8_t *code = elf_window_at(&window, section->offset, 2, NULL);
        if (i == 2 && code != NULL && code[0] == 0xff && code[1] == 0x25)
            size = 8;
        rc = elf->machine == EM_X86_64 ? x86_stubs(&window, section, size, &stubs)
                                       : arm64_stubs(&window, section, &stubs);
    }
    if (rc == 0 && stubs.count > 0) {
        qsort(stubs.items, stubs.count, sizeof *stubs.items, by_got);
        size_t by_index = stubs.count; // UINT64_MAX sorts last
        while (by_index > 0 && stubs.items[by_index - 1].got == UINT64_MAX)
            by_index--;
        for (size_t i = 0; i < elf->section_count; i++) {
            const struct elf_section *section = &elf->sections[i];
            if (section->type == SHT_RELA)
                read_relocations(section, &window, &stubs,
                                 strcmp(section->name, ".rela.plt") == 0 ? by_index : stubs.count);
        }
        elf_window_free(&window);
        // By address of the stubs, the symbols come in no order.
        rc = elf_window_init_whole(&window, &elf->source, SYMBOL_PAGE, dynamic->offset,
                                   dynamic->size);
        if (rc == 0)
            rc = name_stubs(elf, dynamic, &window, &stubs, symbols);
    }
    elf_window_free(&window);
    free(stubs.items);
    return rc;
}
