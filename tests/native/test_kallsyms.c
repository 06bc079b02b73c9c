// SPDX-License-Identifier: Apache-2.0
// The kernel's symbol list: which symbol an address has, and lists that hide
// their addresses or are broken.
#include "opd/kallsyms.h"
#include "t.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char list[] = "ffffffff81000000 T first\n"
                           "ffffffff81000000 T _stext\n"
                           "ffffffff81000000 T _text\n"
                           "ffffffff81000010 t second\n"
                           "ffffffff81000018 d data_symbol\n"
                           "ffffffff81000020 W third\n"
                           "ffffffff81000030 T _etext\n"
                           "0000000000000000 A fixed_percpu_data\n"
                           "ffffffffc0001000 t in_module\t[nf_tables]\n"
                           "ffffffffc0000000 t before_module\t[aesni]\n"
                           "ffffffffc0002000 t bpf_prog_abc\t[bpf]\n"
                           "ffffffffc0003000 t in_module\t[nf_tables]\n";

static struct opd_kallsyms *
open_list(const char *text, int expected)
{
    struct opd_kallsyms *table;
    CHECK(opd_kallsyms_from_memory(text, strlen(text), &table) == expected);
    CHECK((table != NULL) == (expected == 0));
    return table;
}

static struct opd_kallsyms_symbol
look_up(const struct opd_kallsyms *table, uint64_t address)
{
    struct opd_kallsyms_symbol symbol;
    opd_kallsyms_lookup(table, &address, 1, &symbol);
    return symbol;
}

static void
test_first_of_several_names_the_address(void)
{
    struct opd_kallsyms *table = open_list(list, 0);
    struct opd_kallsyms_symbol symbol = look_up(table, 0xffffffff8100000f);
    CHECK(strcmp(symbol.name, "first") == 0 && strcmp(symbol.module, "") == 0);
    CHECK(symbol.start == 0xffffffff81000000 && symbol.end == 0xffffffff81000010);
    // Data symbols do not cut a function short.
    symbol = look_up(table, 0xffffffff8100001f);
    CHECK(strcmp(symbol.name, "second") == 0 && symbol.end == 0xffffffff81000020);
    CHECK(look_up(table, 0xffffffff80ffffff).name == NULL);
    CHECK(look_up(table, 0).name == NULL);
    opd_kallsyms_close(table);
}

static void
test_module_tags_and_disorder(void)
{
    struct opd_kallsyms *table = open_list(list, 0);
    struct opd_kallsyms_symbol symbol = look_up(table, 0xffffffffc0000fff);
    CHECK(strcmp(symbol.name, "before_module") == 0 && strcmp(symbol.module, "aesni") == 0);
    symbol = look_up(table, 0xffffffffc0001004);
    CHECK(strcmp(symbol.name, "in_module") == 0 && strcmp(symbol.module, "nf_tables") == 0);
    symbol = look_up(table, 0xffffffffc0002004);
    CHECK(strcmp(symbol.module, "bpf") == 0);
    symbol = look_up(table, UINT64_MAX);
    CHECK(strcmp(symbol.name, "in_module") == 0);
    CHECK(opd_kallsyms_count(table) == 10);
    opd_kallsyms_close(table);
}

static void
test_text_addresses_and_ranges(void)
{
    struct opd_kallsyms *table = open_list(list, 0);
    uint64_t text, stext, etext;
    opd_kallsyms_text(table, &text, &stext, &etext);
    CHECK(text == 0xffffffff81000000 && stext == text && etext == 0xffffffff81000030);
    const char *const names[] = {"in_module", "nowhere", "third"};
    struct opd_kernel_range ranges[3];
    CHECK(opd_kallsyms_ranges(table, names, 3, ranges, 1) == 3);
    CHECK(opd_kallsyms_ranges(table, names, 3, ranges, 3) == 3);
    CHECK(ranges[0].start == 0xffffffff81000020 && ranges[0].end == 0xffffffff81000030);
    CHECK(ranges[1].start == 0xffffffffc0001000 && ranges[1].end == 0xffffffffc0002000);
    CHECK(ranges[2].start == 0xffffffffc0003000 && ranges[2].end == 0xffffffffc0003001);
    opd_kallsyms_close(table);
}

static void
test_hidden_addresses_are_said(void)
{
    open_list("0000000000000000 T _text\n0000000000000000 T x\n", -EACCES);
    open_list("", -ENODATA);
    open_list("garbage\n\n\n12345\n", -ENODATA);
    open_list("ffffffff81000000 d only_data\n", -ENODATA);
}

static void
test_broken_lines_are_skipped(void)
{
    struct opd_kallsyms *table =
        open_list("ffffffff81000000 T a\nfffffffff81000000 T too_long\nxyz\n"
                  "ffffffff81000010 T \nffffffff81000020 T b\t[m\nffffffff81000030 T c",
                  0);
    CHECK(opd_kallsyms_count(table) == 3);
    CHECK(strcmp(look_up(table, 0xffffffff81000025).name, "b") == 0);
    CHECK(strcmp(look_up(table, 0xffffffff81000030).name, "c") == 0);
    opd_kallsyms_close(table);
}

static void
test_missing_file(void)
{
    struct opd_kallsyms *table;
    CHECK(opd_kallsyms_open("/nonexistent/kallsyms", &table) == -ENOENT && table == NULL);
    CHECK(opd_kernel_modules("/nonexistent/modules", NULL, 0) == 0);
}

static void
test_modules(void)
{
    static const char text[] = "nf_tables 290816 0 - Live 0xffffffffc0a00000\n"
                               "tainted 4096 1 nf_tables, Live 0xffffffffc0b00000 (OE)\n"
                               "hidden 4096 1 - Live 0x0000000000000000\n"
                               "short 4096\n"
                               "\n x";
    char path[] = "/tmp/opd-modules-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, text, sizeof text - 1) == sizeof text - 1);
    struct opd_kernel_module modules[2];
    CHECK(opd_kernel_modules(path, modules, 1) == 2);
    CHECK(opd_kernel_modules(path, modules, 2) == 2);
    CHECK(strcmp(modules[0].name, "nf_tables") == 0 && modules[0].size == 290816);
    CHECK(modules[0].start == 0xffffffffc0a00000);
    CHECK(strcmp(modules[1].name, "tainted") == 0 && modules[1].start == 0xffffffffc0b00000);
    CHECK(ftruncate(fd, 0) == 0);
    CHECK(pwrite(fd, "a 1 0 - Live 0x0\n", 17, 0) == 17);
    CHECK(opd_kernel_modules(path, modules, 2) == -EACCES);
    close(fd);
    unlink(path);
}

static void
test_a_saved_list_is_the_list(void)
{
    static const uint8_t key[OPD_KALLSYMS_KEY] = "boot and modules";
    static const uint8_t other[OPD_KALLSYMS_KEY] = "another boot";
    static const char *const lists[] = {list, "ffffffff81000000 T _text\n"};
    for (size_t i = 0; i < 2; i++) {
        struct opd_kallsyms *table = open_list(lists[i], 0), *mapped;
        FILE *file = tmpfile();
        int fd = fileno(file);
        CHECK(opd_kallsyms_save(table, key, fd) == 0);
        CHECK(opd_kallsyms_map(fd, other, &mapped) == -ESTALE && mapped == NULL);
        CHECK(opd_kallsyms_map(fd, key, &mapped) == 0);
        CHECK(opd_kallsyms_count(mapped) == opd_kallsyms_count(table));
        for (uint64_t at = 0xffffffff80ffffff; at < 0xffffffffc0004000;
             at += 7 + (at >> 4) % 4096) {
            struct opd_kallsyms_symbol a = look_up(table, at), b = look_up(mapped, at);
            CHECK(a.start == b.start && a.end == b.end && (a.name == NULL) == (b.name == NULL));
            CHECK(a.name == NULL ||
                  (strcmp(a.name, b.name) == 0 && strcmp(a.module, b.module) == 0));
        }
        uint64_t text[6];
        opd_kallsyms_text(table, text, text + 1, text + 2);
        opd_kallsyms_text(mapped, text + 3, text + 4, text + 5);
        CHECK(memcmp(text, text + 3, 3 * sizeof *text) == 0);
        opd_kallsyms_close(table);
        opd_kallsyms_close(mapped);
        fclose(file);
    }
}

static void
test_what_is_not_whole_is_not_mapped(void)
{
    static const uint8_t key[OPD_KALLSYMS_KEY] = "k";
    struct opd_kallsyms *table = open_list(list, 0), *mapped;
    FILE *file = tmpfile();
    int fd = fileno(file);
    CHECK(opd_kallsyms_map(fd, key, &mapped) == -EBADMSG);
    CHECK(opd_kallsyms_save(table, key, fd) == 0);
    off_t size = lseek(fd, 0, SEEK_END);
    // A number too large in each place that holds one.
    for (off_t at = 0; at + 8 <= size; at += 8) {
        uint64_t good, bad = UINT64_MAX;
        CHECK(pread(fd, &good, 8, at) == 8 && pwrite(fd, &bad, 8, at) == 8);
        if (opd_kallsyms_map(fd, key, &mapped) == 0) {
            struct opd_kallsyms_symbol symbol = look_up(mapped, 0xffffffffc0001004);
            CHECK(symbol.name == NULL || strlen(symbol.name) < (size_t)size);
            opd_kallsyms_close(mapped);
        }
        CHECK(pwrite(fd, &good, 8, at) == 8);
    }
    CHECK(ftruncate(fd, size - 1) == 0);
    CHECK(opd_kallsyms_map(fd, key, &mapped) == -EBADMSG);
    CHECK(opd_kallsyms_map(-1, key, &mapped) == -EBADF);
    opd_kallsyms_close(table);
    fclose(file);
}

int
main(void)
{
    RUN(test_first_of_several_names_the_address);
    RUN(test_module_tags_and_disorder);
    RUN(test_text_addresses_and_ranges);
    RUN(test_hidden_addresses_are_said);
    RUN(test_broken_lines_are_skipped);
    RUN(test_missing_file);
    RUN(test_modules);
    RUN(test_a_saved_list_is_the_list);
    RUN(test_what_is_not_whole_is_not_mapped);
    return 0;
}
