// SPDX-License-Identifier: Apache-2.0
// What the demanglers share.
#ifndef OPD_DEMANGLE_PRIVATE_H
#define OPD_DEMANGLE_PRIVATE_H

#include "opd/demangle.h"
#include <stdbool.h>
#include <stdint.h>

// Output that stops, and says so, when the buffer has no room for the
// terminator any more.
struct demangled {
    char *text;
    size_t length, capacity;
    bool full;
};
void demangle_put_bytes(struct demangled *output, const char *bytes, size_t length);
void demangle_put(struct demangled *output, const char *text);
void demangle_put_number(struct demangled *output, uint64_t value);
void demangle_put_character(struct demangled *output, uint32_t c); // as UTF-8
bool demangle_is_character(uint32_t c); // a Unicode scalar that is no control
int demangle_hex_digit(char c);         // -1: not one

// Where the cv- and ref-qualifiers of the outermost name stand.
struct qualifiers {
    const char *start;
    size_t length;
};

long demangle_cpp(const char *mangled, char *name, size_t capacity);
long demangle_rust_legacy(const char *mangled, char *name, size_t capacity);

#endif
