// SPDX-License-Identifier: Apache-2.0
// The rule for a name, on ELF files built here byte by byte, where nested,
// aliased, versioned and size-less symbols are exactly where we want them.
#include "opd/elf.h"
#include "t.h"
#include <elf.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define TEXT_OFFSET 0x1000
#define TEXT_ADDRESS 0x401000
#define TEXT_SIZE 0x1000

struct builder {
    uint8_t bytes[0x4000];
    Elf64_Sym symbols[64];
    size_t symbol_count;
    char strings[2048];
    size_t strings_size;
};

static void
add(struct builder *b, const char *name, uint64_t value, uint64_t size, int binding, int type)
{
    Elf64_Sym *symbol = &b->symbols[b->symbol_count++];
    symbol->st_name = (Elf64_Word)b->strings_size;
    strcpy(b->strings + b->strings_size, name);
    b->strings_size += strlen(name) + 1;
    symbol->st_info = ELF64_ST_INFO(binding, type);
    symbol->st_shndx = 1;
    symbol->st_value = value == 0 ? 0 : TEXT_ADDRESS + value;
    symbol->st_size = size;
}

static void
begin(struct builder *b)
{
    memset(b, 0, sizeof *b);
    b->strings_size = 1;
    b->symbol_count = 1;
}

// Lays the file out: header, program headers, text, symbols, strings, sections.
static struct opd_elf *
finish(struct builder *b)
{
    Elf64_Ehdr header = {.e_type = ET_EXEC,
                         .e_machine = EM_X86_64,
                         .e_version = EV_CURRENT,
                         .e_phoff = sizeof header,
                         .e_phnum = 2,
                         .e_phentsize = sizeof(Elf64_Phdr),
                         .e_ehsize = sizeof header,
                         .e_shoff = 0x3800,
                         .e_shnum = 4,
                         .e_shentsize = sizeof(Elf64_Shdr)};
    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    Elf64_Phdr segments[2] = {
        // The first covers the text too, but is not executable.
        {.p_type = PT_LOAD, .p_flags = PF_R, .p_vaddr = 0x300000, .p_filesz = 0x2800},
        {.p_type = PT_LOAD,
         .p_flags = PF_R | PF_X,
         .p_offset = TEXT_OFFSET,
         .p_vaddr = TEXT_ADDRESS,
         .p_filesz = TEXT_SIZE,
         .p_memsz = 2 * TEXT_SIZE},
    };
    Elf64_Shdr sections[4] = {
        {0},
        {.sh_type = SHT_PROGBITS,
         .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
         .sh_addr = TEXT_ADDRESS,
         .sh_offset = TEXT_OFFSET,
         .sh_size = TEXT_SIZE},
        {.sh_type = SHT_SYMTAB,
         .sh_link = 3,
         .sh_offset = 0x2000,
         .sh_size = b->symbol_count * sizeof(Elf64_Sym),
         .sh_entsize = sizeof(Elf64_Sym)},
        {.sh_type = SHT_STRTAB, .sh_offset = 0x3000, .sh_size = b->strings_size},
    };
    memcpy(b->bytes, &header, sizeof header);
    memcpy(b->bytes + sizeof header, segments, sizeof segments);
    memcpy(b->bytes + 0x2000, b->symbols, b->symbol_count * sizeof(Elf64_Sym));
    memcpy(b->bytes + 0x3000, b->strings, b->strings_size);
    memcpy(b->bytes + 0x3800, sections, sizeof sections);
    struct opd_elf *elf;
    CHECK(opd_elf_from_memory(b->bytes, sizeof b->bytes, &elf) == 0);
    CHECK(opd_elf_load_symbols(elf, NULL) == 0);
    return elf;
}

static char text[65536];

static const char *
name_at(struct opd_elf *elf, uint64_t at)
{
    struct opd_elf_name name;
    uint64_t address = TEXT_ADDRESS + at;
    CHECK(opd_elf_names(elf, &address, 1, &name, text, sizeof text) == 1);
    if (name.kind != OPD_ELF_NAMED)
        return "";
    CHECK(name.start <= address && address < name.end);
    text[name.text + name.length] = '\0';
    return text + name.text;
}

#define NAMED(elf, at, expected) CHECK(strcmp(name_at(elf, at), expected) == 0)

static struct builder b;

static void
test_nested_functions(void)
{
    begin(&b);
    add(&b, "outer", 0x100, 0x100, STB_GLOBAL, STT_FUNC);
    add(&b, "inner_function", 0x140, 0x10, STB_GLOBAL, STT_FUNC);
    add(&b, "local_inner_function", 0x160, 0x10, STB_LOCAL, STT_FUNC);
    struct opd_elf *elf = finish(&b);
    NAMED(elf, 0xff, "");
    NAMED(elf, 0x100, "outer");
    NAMED(elf, 0x140, "inner_function"); // the longer name
    NAMED(elf, 0x150, "outer");          // where the inner one ended
    NAMED(elf, 0x160, "outer");          // global over local
    NAMED(elf, 0x1ff, "outer");
    NAMED(elf, 0x200, "");
    opd_elf_close(elf);
}

static void
test_aliases(void)
{
    begin(&b);
    add(&b, "local_and_longest", 0x100, 0x10, STB_LOCAL, STT_FUNC);
    add(&b, "weak_and_longer", 0x100, 0x10, STB_WEAK, STT_FUNC);
    add(&b, "__global_two", 0x100, 0x10, STB_GLOBAL, STT_FUNC);
    add(&b, "_global_1", 0x100, 0x10, STB_GLOBAL, STT_FUNC);
    add(&b, "_global_one", 0x100, 0x10, STB_GLOBAL, STT_FUNC);
    add(&b, "__short", 0x200, 0x10, STB_WEAK, STT_FUNC);
    add(&b, "clean", 0x200, 0x10, STB_WEAK, STT_FUNC);
    struct opd_elf *elf = finish(&b);
    NAMED(elf, 0x108, "_global_one");
    NAMED(elf, 0x208, "clean");
    opd_elf_close(elf);
}

static void
test_symbols_without_size(void)
{
    begin(&b);
    add(&b, "asm_start", 0x100, 0, STB_GLOBAL, STT_NOTYPE);
    add(&b, "sized", 0x140, 0x20, STB_LOCAL, STT_FUNC);
    add(&b, "inside", 0x150, 0, STB_GLOBAL, STT_NOTYPE);
    add(&b, "last", 0x800, 0, STB_LOCAL, STT_FUNC);
    struct opd_elf *elf = finish(&b);
    NAMED(elf, 0xf0, "");
    NAMED(elf, 0x13f, "asm_start");
    NAMED(elf, 0x150, "sized");  // a sized one covers
    NAMED(elf, 0x160, "inside"); // its reach goes on to the next symbol
    NAMED(elf, 0x7ff, "inside");
    NAMED(elf, 0x800, "last");
    NAMED(elf, TEXT_SIZE - 1, "last"); // up to the section's end
    NAMED(elf, TEXT_SIZE, "");
    opd_elf_close(elf);
}

static void
test_what_is_no_function(void)
{
    begin(&b);
    add(&b, "", 0x100, 0x10, STB_GLOBAL, STT_FUNC);
    add(&b, "table", 0x100, 0x10, STB_GLOBAL, STT_OBJECT);
    add(&b, "file.c", 0x100, 0, STB_LOCAL, STT_FILE);
    add(&b, "section", 0x100, 0, STB_LOCAL, STT_SECTION);
    add(&b, "$x", 0x100, 0, STB_LOCAL, STT_NOTYPE);
    add(&b, "$d.1", 0x100, 0, STB_LOCAL, STT_NOTYPE);
    add(&b, "hidden_label", 0x100, 0, STB_LOCAL, STT_NOTYPE);
    b.symbols[b.symbol_count - 1].st_other = STV_HIDDEN;
    add(&b, "undefined", 0x100, 0x10, STB_GLOBAL, STT_FUNC);
    b.symbols[b.symbol_count - 1].st_shndx = SHN_UNDEF;
    add(&b, "absolute", 0x100, 0x10, STB_GLOBAL, STT_FUNC);
    b.symbols[b.symbol_count - 1].st_shndx = SHN_ABS;
    add(&b, "in_strings", 0x100, 0x10, STB_GLOBAL, STT_FUNC);
    b.symbols[b.symbol_count - 1].st_shndx = 3;
    struct opd_elf *elf = finish(&b);
    NAMED(elf, 0x100, "");
    CHECK(opd_elf_symbols(elf) == 0);
    opd_elf_close(elf);
}

static void
test_version_is_cut(void)
{
    begin(&b);
    add(&b, "memcpy@@GLIBC_2.14", 0x100, 0x10, STB_GLOBAL, STT_GNU_IFUNC);
    add(&b, "@odd", 0x200, 0x10, STB_GLOBAL, STT_FUNC);
    struct opd_elf *elf = finish(&b);
    NAMED(elf, 0x100, "memcpy");
    NAMED(elf, 0x200, "@odd");
    opd_elf_close(elf);
}

static void
test_offsets_prefer_the_executable_segment(void)
{
    begin(&b);
    struct opd_elf *elf = finish(&b);
    uint64_t offsets[] = {0x10,   TEXT_OFFSET, TEXT_OFFSET + TEXT_SIZE - 1,
                          0x2000, 0x2800,      1ull << 63};
    uint64_t addresses[6];
    CHECK(opd_elf_addresses(elf, offsets, addresses, 6) == 2);
    CHECK(addresses[0] == 0x300010 && addresses[1] == TEXT_ADDRESS);
    CHECK(addresses[2] == TEXT_ADDRESS + TEXT_SIZE - 1); // within p_filesz …
    CHECK(addresses[3] == 0x302000);                     // … and not p_memsz
    CHECK(addresses[4] == 0x2800 && addresses[5] == 1ull << 63);
    opd_elf_close(elf);
}

static void
test_huge_and_wrapping_symbols(void)
{
    begin(&b);
    add(&b, "wraps", 0x100, UINT64_MAX, STB_GLOBAL, STT_FUNC);
    add(&b, "far", 0x100, 0x10, STB_GLOBAL, STT_FUNC);
    b.symbols[b.symbol_count - 1].st_value = UINT64_MAX - 4;
    add(&b, "below", 0x100, 0x10, STB_GLOBAL, STT_FUNC);
    b.symbols[b.symbol_count - 1].st_value = 4;
    struct opd_elf *elf = finish(&b);
    NAMED(elf, 0x100, "wraps");
    NAMED(elf, 0xfffff, "wraps");
    CHECK(opd_elf_symbols(elf) == 1);
    opd_elf_close(elf);
}

static void
test_text_buffer_runs_full(void)
{
    begin(&b);
    add(&b, "some_function", 0x100, 0x100, STB_GLOBAL, STT_FUNC);
    struct opd_elf *elf = finish(&b);
    uint64_t addresses[4] = {TEXT_ADDRESS + 0x100, 0, TEXT_ADDRESS + 0x101, TEXT_ADDRESS + 0x102};
    struct opd_elf_name names[4];
    CHECK(opd_elf_names(elf, addresses, 4, names, text, 100) == -EINVAL);
    CHECK(opd_elf_names(elf, addresses, 4, names, text, OPD_ELF_NAME_MAX + 4) == 2);
    CHECK(opd_elf_names(elf, addresses, 4, names, text, sizeof text) == 4);
    CHECK(names[1].kind == OPD_ELF_NONE && names[3].length == 13);
    CHECK(names[2].text == names[3].text); // neighbours share what was read
    opd_elf_close(elf);
}

static void
test_what_is_no_elf_file(void)
{
    struct opd_elf *elf;
    CHECK(opd_elf_from_memory("", 0, &elf) == -ENOEXEC && elf == NULL);
    CHECK(opd_elf_from_memory("#!/bin/sh\n", 10, &elf) == -ENOEXEC);
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    CHECK(opd_elf_open(pipes[0], &elf) == -ENOEXEC);
    close(pipes[0]);
    close(pipes[1]);
    CHECK(opd_elf_open(-1, &elf) == -EBADF);
    begin(&b);
    opd_elf_close(finish(&b));
    for (size_t size = 0; size < sizeof b.bytes; size += 61)
        if (opd_elf_from_memory(b.bytes, size, &elf) == 0) {
            opd_elf_load_symbols(elf, NULL);
            NAMED(elf, 0x100, "");
            opd_elf_close(elf);
        }
    b.bytes[EI_DATA] = ELFDATA2MSB;
    CHECK(opd_elf_from_memory(b.bytes, sizeof b.bytes, &elf) == -ENOTSUP);
    opd_elf_close(NULL);
}

static void
test_functions_by_name(void)
{
    begin(&b);
    add(&b, "twice", 0x100, 0x10, STB_LOCAL, STT_FUNC);
    add(&b, "twice", 0x200, 0x10, STB_LOCAL, STT_FUNC);
    add(&b, "alias", 0x300, 0x10, STB_LOCAL, STT_FUNC);
    add(&b, "alias", 0x310, 0x10, STB_WEAK, STT_FUNC);
    add(&b, "alias", 0x320, 0x10, STB_GLOBAL, STT_FUNC);
    add(&b, "alias", 0x320, 0x10, STB_GLOBAL, STT_FUNC); // the same place is no other one
    add(&b, "versioned@@V1", 0x400, 0x10, STB_GLOBAL, STT_FUNC);
    add(&b, "data", 0x500, 0x10, STB_GLOBAL, STT_OBJECT);
    add(&b, "beyond", 0x1000, 0x10, STB_GLOBAL, STT_FUNC); // in memory, not in the file
    struct opd_elf *elf = finish(&b);
    uint64_t offset = 0;
    CHECK(opd_elf_find_function(elf, NULL, "alias", &offset) == 0 && offset == TEXT_OFFSET + 0x320);
    CHECK(opd_elf_find_function(elf, NULL, "versioned", &offset) == 0);
    CHECK(offset == TEXT_OFFSET + 0x400);
    CHECK(opd_elf_find_function(elf, NULL, "twice", &offset) == -ENOTUNIQ);
    CHECK(opd_elf_find_function(elf, NULL, "beyond", &offset) == -ENXIO);
    const char *none[] = {"", "ali", "aliases", "data", "versioned@@V2", "V1"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        CHECK(opd_elf_find_function(elf, NULL, none[i], &offset) == -ENOENT);
    CHECK(offset == TEXT_OFFSET + 0x400); // left alone
    CHECK(opd_elf_is_code(elf, TEXT_OFFSET) && opd_elf_is_code(elf, TEXT_OFFSET + TEXT_SIZE - 1));
    CHECK(!opd_elf_is_code(elf, TEXT_OFFSET + TEXT_SIZE) && !opd_elf_is_code(elf, 0));
    CHECK(!opd_elf_is_code(elf, UINT64_MAX));
    // Out of the debug file, where the file itself has no such symbol.
    static struct builder bare;
    begin(&bare);
    add(&bare, "other", 0x100, 0x10, STB_GLOBAL, STT_FUNC);
    struct opd_elf *stripped = finish(&bare);
    CHECK(opd_elf_find_function(stripped, NULL, "alias", &offset) == -ENOENT);
    CHECK(opd_elf_find_function(stripped, elf, "alias", &offset) == 0);
    CHECK(offset == TEXT_OFFSET + 0x320);
    opd_elf_close(stripped);
    opd_elf_close(elf);
}

int
main(void)
{
    RUN(test_functions_by_name);
    RUN(test_nested_functions);
    RUN(test_aliases);
    RUN(test_symbols_without_size);
    RUN(test_what_is_no_function);
    RUN(test_version_is_cut);
    RUN(test_offsets_prefer_the_executable_segment);
    RUN(test_huge_and_wrapping_symbols);
    RUN(test_text_buffer_runs_full);
    RUN(test_what_is_no_elf_file);
    return 0;
}
