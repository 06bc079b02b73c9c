// SPDX-License-Identifier: Apache-2.0
// Functions out of a shared library that is to be measured beside another of
// the same names.
#ifndef OPD_DTO_LOAD_H
#define OPD_DTO_LOAD_H
#include <stddef.h>
#include <stdint.h>

enum { OPD_DTO_LOAD_REASON = 512 };

// Loads the library at `path`, runs its constructors and binds all that it
// needs. own_namespace 1: into a namespace of its own (dlmopen), with a libc of
// its own, so that nothing of it is mixed up with a library of the same names;
// 0: into that of the program, none of its names seen by others, its own
// preferred by itself. 0; -ENOSYS: there are no namespaces here; -ENOMEM: no
// more namespaces, or no room for its thread-local memory; -ELIBBAD for all
// else. Then `reason` (OPD_DTO_LOAD_REASON bytes) has the loader's words.
// Loaded for good: what ran once may have left threads and handlers behind.
int opd_dto_load(const char *path, uint32_t own_namespace, void **handle, char *reason);

// Where a symbol is, resolved where it is an indirect function; NULL: neither
// the library nor one that it needs has it. Whose it is the file says.
void *opd_dto_symbol(void *handle, const char *name);
#endif
