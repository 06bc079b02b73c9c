// SPDX-License-Identifier: Apache-2.0
// The kernel's own symbol list: /proc/kallsyms or a copy of it. Keeps text
// symbols (types t T w W) only, packed.
#ifndef OPD_KALLSYMS_H
#define OPD_KALLSYMS_H

#include <stddef.h>
#include <stdint.h>

#define OPD_KALLSYMS_MAX (256 << 20) // bytes of a list
#define OPD_KALLSYMS_KEY 16

struct opd_kallsyms;

struct opd_kallsyms_symbol {
    uint64_t start, end; // end: the next symbol's address; for the last start + 1 at most
    const char *name;    // owned by the table; NULL: no symbol at or below
    const char *module;  // without brackets, "" for the kernel itself
};

struct opd_kernel_range {
    uint64_t start, end; // end exclusive
};

struct opd_kernel_module {
    uint64_t start, size;
    char name[64];
};

// Reads the list. -EACCES: every address is zero (kptr_restrict, or no
// CAP_SYSLOG); -ENODATA: no text symbol in it; -E2BIG: more than 256 MB.
int opd_kallsyms_open(const char *path, struct opd_kallsyms **table);

// The same for a copy of the list in memory. Lines that do not parse are
// skipped.
int opd_kallsyms_from_memory(const char *text, size_t size, struct opd_kallsyms **table);

// Writes the packed list to an empty file, and maps such a file: reading the
// kernel's costs 100 ms of CPU a time, and it is the same until modules come
// or go. `key` says what it is a list of. Saving gives 0 or -errno; mapping
// -ESTALE for another key, -EBADMSG for what opd_kallsyms_save did not write
// whole (checked, so that no lookup leaves the file). Whoever can cut the
// file short while it is mapped can end the process: keep others away from it.
int opd_kallsyms_save(const struct opd_kallsyms *table, const uint8_t key[OPD_KALLSYMS_KEY],
                      int fd);
int opd_kallsyms_map(int fd, const uint8_t key[OPD_KALLSYMS_KEY], struct opd_kallsyms **table);

void opd_kallsyms_close(struct opd_kallsyms *table); // NULL is fine

// Looks up `count` runtime addresses: the symbol at the highest address not
// above; of several at one address the first in the list.
void opd_kallsyms_lookup(const struct opd_kallsyms *table, const uint64_t *addresses, size_t count,
                         struct opd_kallsyms_symbol *symbols);

// Addresses of _text, _stext and _etext; 0 where the list lacks one.
void opd_kallsyms_text(const struct opd_kallsyms *table, uint64_t *text, uint64_t *stext,
                       uint64_t *etext);

// Ranges of all symbols with one of these names; a name may have none or
// several. Returns how many there are; the first `capacity` are written.
size_t opd_kallsyms_ranges(const struct opd_kallsyms *table, const char *const *names, size_t count,
                           struct opd_kernel_range *ranges, size_t capacity);

size_t opd_kallsyms_count(const struct opd_kallsyms *table);
size_t opd_kallsyms_bytes(const struct opd_kallsyms *table); // memory held, less a mapped file

// Reads /proc/modules or a copy. Returns how many modules have an address;
// the first `capacity` are written. 0 when there is no such file (a kernel
// without modules); -EACCES when every address is zero; else -errno.
long opd_kernel_modules(const char *path, struct opd_kernel_module *modules, size_t capacity);

#endif
