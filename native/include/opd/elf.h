// SPDX-License-Identifier: Apache-2.0
// Names of addresses in ELF files (little-endian, 32 or 64 bits), out of
// files that may be hostile, truncated or changing while they are read: read
// by pread, never mapped, and every size is bounded.
//
// The rule for a name: the function symbol of .symtab (of the file, else of
// its debug file), else of .dynsym, whose [value, value + size) holds the
// address. Of several: global over weak over local, then fewer leading
// underscores, then the longer name. A symbol without size reaches to the next
// symbol or the end of its section, only where none with a size covers. A
// "@VERSION" is cut. A PLT stub is "NAME@plt". Where no symbol covers, the
// function range of .eh_frame.
//
// An object belongs to one thread at a time.
#ifndef OPD_ELF_H
#define OPD_ELF_H

#include <stddef.h>
#include <stdint.h>

#define OPD_ELF_BUILD_ID_MAX 64
#define OPD_ELF_NAME_MAX 16383 // a longer name is cut to this many bytes

struct opd_elf;

enum opd_elf_kind {
    OPD_ELF_NONE = 0,  // neither a symbol nor a function range
    OPD_ELF_NAMED = 1, // a symbol
    OPD_ELF_RANGE = 2, // no symbol; start is the function's start by .eh_frame
};

struct opd_elf_name {
    uint64_t start, end;   // the stretch around the address with this answer
    uint32_t kind;         // enum opd_elf_kind
    uint32_t text, length; // NAMED: where in the text buffer; not terminated
    uint32_t reserved;
};
_Static_assert(sizeof(struct opd_elf_name) == 32, "read by cffi as an array");

// Reads headers, segments and the build-id. The descriptor is duplicated.
// -ENOEXEC: not ELF or a broken header; -ENOTSUP: big-endian; -E2BIG: absurd
// numbers of headers; -errno of pread.
int opd_elf_open(int fd, struct opd_elf **elf);

// The same for bytes, which are copied (for the vdso).
int opd_elf_from_memory(const void *bytes, size_t size, struct opd_elf **elf);

void opd_elf_close(struct opd_elf *elf); // NULL is fine

// Bytes of the GNU build-id, 0 when there is none.
size_t opd_elf_build_id(const struct opd_elf *elf, uint8_t id[OPD_ELF_BUILD_ID_MAX]);

// Offsets in the file to ELF addresses, by the PT_LOAD segments (within
// p_filesz; an executable one first). An offset in no segment stays as it is.
// Returns how many stayed.
size_t opd_elf_addresses(const struct opd_elf *elf, const uint64_t *offsets, uint64_t *addresses,
                         size_t count);

// Whether the file itself has a .symtab with entries (else a debug file helps).
int opd_elf_has_symtab(const struct opd_elf *elf);

// Builds the table of names. `debug` is the build-id's debug file (the caller
// has compared the build-ids) or NULL; its .symtab is used when the file has
// none. The table reads names through a duplicate of its descriptor, so it may
// be closed. 0 also when there is no symbol at all; -E2BIG or -ENOMEM when the
// table is too large: then only ranges are found.
int opd_elf_load_symbols(struct opd_elf *elf, const struct opd_elf *debug);

// Names `count` ELF addresses, in order, until the text buffer is full.
// Returns how many were answered (at least one when capacity is more than
// OPD_ELF_NAME_MAX + 4), or -EINVAL for a smaller buffer. Names of a file that
// changed under us come out as NONE. Neighbours in one stretch share their text.
long opd_elf_names(struct opd_elf *elf, const uint64_t *addresses, size_t count,
                   struct opd_elf_name *names, char *text, size_t capacity);

// The code in the file: offset, size and ELF address of its executable
// segments, at most `room` of them; returns how many there are.
struct opd_elf_code {
    uint64_t offset, size, address;
};
size_t opd_elf_code(const struct opd_elf *elf, struct opd_elf_code *out, size_t room);

// Where in the file the function of that name begins: by the file's own symbol
// tables, or the debug file's where it has no .symtab. A global symbol goes
// before a weak one, that before a local one. Needs no opd_elf_load_symbols().
// 0; -ENOENT: no such function; -ENOTUNIQ: several that are equally good;
// -ENXIO: it lies outside of the code in the file; -E2BIG, -ENOMEM.
int opd_elf_find_function(const struct opd_elf *elf, const struct opd_elf *debug, const char *name,
                          uint64_t *offset);

// Whether an offset in the file is in an executable segment.
int opd_elf_is_code(const struct opd_elf *elf, uint64_t offset);

// Memory held, in bytes.
size_t opd_elf_bytes(const struct opd_elf *elf);

// Entries in the table of names.
size_t opd_elf_symbols(const struct opd_elf *elf);

#endif
