// SPDX-License-Identifier: Apache-2.0
// An ELF file of arbitrary bytes: opened, its symbols loaded (with itself as
// the debug file too), and addresses named all over it.
#include "opd/elf.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
name_addresses(struct opd_elf *elf, const uint64_t *offsets, size_t count)
{
    static char text[OPD_ELF_NAME_MAX + 4 + 4096];
    uint64_t addresses[64];
    struct opd_elf_name names[64];
    opd_elf_addresses(elf, offsets, addresses, count);
    for (size_t done = 0; done < count;) {
        long got = opd_elf_names(elf, addresses + done, count - done, names, text, sizeof text);
        if (got <= 0)
            abort();
        for (long i = 0; i < got; i++) {
            if (names[i].kind > OPD_ELF_RANGE || names[i].start > names[i].end)
                abort();
            if (names[i].kind == OPD_ELF_NAMED &&
                (names[i].length == 0 || names[i].text + names[i].length > sizeof text))
                abort();
        }
        done += (size_t)got;
    }
}

// Functions by names that are in the input, and one that may be.
static void
find_functions(const struct opd_elf *elf, const struct opd_elf *debug, const uint8_t *data,
               size_t size)
{
    char name[64];
    for (size_t i = 0; i < 16; i++) {
        size_t at = size * i / 16, length = size - at < sizeof name - 1 ? size - at : 8;
        memcpy(name, data + at, length);
        name[length] = '\0';
        uint64_t offset;
        if (opd_elf_find_function(elf, debug, i == 0 ? "main" : name, &offset) == 0 &&
            debug == NULL && !opd_elf_is_code(elf, offset))
            abort();
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct opd_elf *elf, *debug;
    uint8_t id[OPD_ELF_BUILD_ID_MAX];
    if (size > 1 << 20 || opd_elf_from_memory(data, size, &elf) < 0)
        return 0;
    opd_elf_build_id(elf, id);
    if (opd_elf_from_memory(data, size, &debug) < 0)
        abort();
    find_functions(elf, NULL, data, size);
    find_functions(elf, debug, data, size);
    if (opd_elf_load_symbols(elf, debug) < 0 && opd_elf_symbols(elf) != 0)
        abort();
    opd_elf_close(debug);
    uint64_t offsets[64];
    for (size_t i = 0; i < 64; i++)
        offsets[i] = size * i / 60; // the last ones past the end
    name_addresses(elf, offsets, 64);
    // What the input itself calls an address.
    for (size_t i = 0; i < 32; i++) {
        offsets[i] = 0;
        if (size >= 8)
            memcpy(&offsets[i], data + (size - 8) * i / 31, 8);
    }
    name_addresses(elf, offsets, 32);
    if (opd_elf_bytes(elf) > (64u << 20))
        abort();
    opd_elf_close(elf);
    return 0;
}
