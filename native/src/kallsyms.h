// SPDX-License-Identifier: Apache-2.0
// Inside of the kernel's symbol list, shared by kallsyms.c (reads and packs
// it), kallsyms_lookup.c (answers) and kallsyms_modules.c (/proc/modules).
#ifndef OPD_KALLSYMS_PRIVATE_H
#define OPD_KALLSYMS_PRIVATE_H

#include "opd/kallsyms.h"

#include <stdbool.h>

// One text symbol. Addresses are relative to the table's base: the kernel and
// its modules lie within 4 GiB; what does not is dropped.
struct kallsyms_entry {
    uint32_t address, name;
};

struct opd_kallsyms {
    uint64_t base;
    struct kallsyms_entry *entries; // by address, then as in the list
    uint16_t *modules;              // of each entry, 0 = the kernel; NULL when all are
    size_t count;
    char *names;
    size_t names_size;
    uint32_t *module_names; // index in `names`
    size_t module_count;
    uint64_t text, stext, etext;
    void *map; // the file that all of the above lie in; NULL: allocated
    size_t map_size;
};

// The number at *at, which moves behind it; false without a digit, or when it
// does not fit.
bool opd_kallsyms_parse_hex(const char **at, const char *end, uint64_t *value);
// A file of /proc has no size: read until it ends. The caller frees the text;
// -E2BIG when it is too long for a list of symbols.
int opd_kallsyms_read_whole(const char *path, char **text, size_t *size);

#endif
