// SPDX-License-Identifier: Apache-2.0
// A kernel symbol list of arbitrary bytes, and a saved one.
#include "opd/kallsyms.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// As a saved list whose first bytes are right.
static void
map_saved(const uint8_t *data, size_t size)
{
    static const uint8_t key[OPD_KALLSYMS_KEY];
    static const char magic[8] = "opdksym\1";
    struct opd_kallsyms *table;
    int fd = memfd_create("kallsyms", MFD_CLOEXEC);
    if (size > sizeof magic + sizeof key && write(fd, data, size) == (ssize_t)size &&
        pwrite(fd, magic, sizeof magic, 0) == sizeof magic &&
        pwrite(fd, key, sizeof key, sizeof magic) == sizeof key &&
        opd_kallsyms_map(fd, key, &table) == 0) {
        struct opd_kallsyms_symbol symbol;
        for (uint64_t address = 0; address < UINT64_MAX - (UINT64_C(1) << 56);
             address += (UINT64_C(1) << 56) - 1) {
            opd_kallsyms_lookup(table, &address, 1, &symbol);
            if (symbol.name != NULL && strlen(symbol.name) + strlen(symbol.module) > 2 * size)
                abort();
        }
        opd_kallsyms_close(table);
    }
    close(fd);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    map_saved(data, size);
    struct opd_kallsyms *table;
    char *text = malloc(size + 1); // exactly the bytes, so that a read past them shows
    memcpy(text, data, size);
    text = realloc(text, size > 0 ? size : 1);
    if (opd_kallsyms_from_memory(text, size, &table) < 0) {
        free(text);
        return 0;
    }
    free(text);
    uint64_t addresses[34] = {0, UINT64_MAX}, unused;
    struct opd_kallsyms_symbol symbols[34];
    for (size_t i = 0; i < 32; i++)
        addresses[i + 2] = 0xffffffff81000000 + i * 8;
    opd_kallsyms_lookup(table, addresses, 34, symbols);
    for (size_t i = 0; i < 34; i++) {
        if (symbols[i].name == NULL)
            continue;
        if (symbols[i].start > addresses[i] ||
            (symbols[i].end <= symbols[i].start && symbols[i].start != UINT64_MAX) ||
            symbols[i].name[0] == '\0' || strlen(symbols[i].module) > size)
            abort();
        struct opd_kernel_range range;
        const char *name = symbols[i].name;
        if (opd_kallsyms_ranges(table, &name, 1, &range, 1) == 0)
            abort();
    }
    opd_kallsyms_text(table, &unused, &unused, &unused);
    opd_kallsyms_close(table);
    return 0;
}
