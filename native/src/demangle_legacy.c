// SPDX-License-Identifier: Apache-2.0
// Rust's legacy names: an Itanium nested name that ends in a hash. The hash is
// not printed.
#include "demangle_private.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

// "h" and 16 hex digits, of which a hash has at least five different ones.
static bool
is_hash(const char *name, size_t length)
{
    unsigned seen = 0;
    if (length != 17 || name[0] != 'h')
        return false;
    for (size_t i = 1; i < length; i++) {
        int digit = demangle_hex_digit(name[i]);
        if (digit < 0)
            return false;
        seen |= 1u << digit;
    }
    return __builtin_popcount(seen) >= 5;
}

// "$LT$" and its like; how many bytes were taken, 0: not an escape.
static size_t
put_escape(struct demangled *output, const char *text, size_t length)
{
    static const struct {
        const char *code, *meaning;
    } escapes[] = {{"$SP$", "@"}, {"$BP$", "*"}, {"$RF$", "&"}, {"$LT$", "<"},
                   {"$GT$", ">"}, {"$LP$", "("}, {"$RP$", ")"}, {"$C$", ","}};
    for (size_t i = 0; i < sizeof escapes / sizeof escapes[0]; i++) {
        size_t size = strlen(escapes[i].code);
        if (length >= size && memcmp(text, escapes[i].code, size) == 0) {
            demangle_put(output, escapes[i].meaning);
            return size;
        }
    }
    if (length < 4 || text[1] != 'u')
        return 0;
    uint32_t c = 0;
    size_t at = 2;
    for (; at < length && at < 8 && text[at] != '$'; at++) {
        int digit = demangle_hex_digit(text[at]);
        if (digit < 0)
            return 0;
        c = c * 16 + (uint32_t)digit;
    }
    if (at == 2 || at == length || text[at] != '$' || !demangle_is_character(c))
        return 0;
    demangle_put_character(output, c);
    return at + 1;
}

static void
put_legacy(struct demangled *output, const char *text, size_t length)
{
    size_t at = length >= 2 && text[0] == '_' && text[1] == '$' ? 1 : 0;
    while (at < length && !output->full) {
        size_t taken = text[at] == '$' ? put_escape(output, text + at, length - at) : 0;
        if (taken > 0) {
            at += taken;
        } else if (text[at] == '.' && at + 1 < length && text[at + 1] == '.') {
            demangle_put(output, "::");
            at += 2;
        } else {
            demangle_put_bytes(output, text + at, 1);
            at++;
        }
    }
}

// The next "<length><bytes>"; false at anything else.
static bool
next_identifier(const char **at, const char **name, size_t *length)
{
    *length = 0;
    if (!isdigit((unsigned char)**at))
        return false;
    while (isdigit((unsigned char)**at) && *length < OPD_DEMANGLE_MAX)
        *length = *length * 10 + (size_t)(*(*at)++ - '0');
    if (*length == 0 || *length >= OPD_DEMANGLE_MAX || strnlen(*at, *length) < *length)
        return false;
    *name = *at;
    *at += *length;
    return true;
}

long
demangle_rust_legacy(const char *mangled, char *name, size_t capacity)
{
    const char *at = mangled + 3, *part;
    size_t length, parts = 0;
    if (strncmp(mangled, "_ZN", 3) != 0)
        return -EINVAL;
    const char *last = NULL;
    size_t last_length = 0;
    while (next_identifier(&at, &part, &length)) {
        last = part;
        last_length = length;
        parts++;
    }
    if (*at != 'E' || (at[1] != '\0' && at[1] != '.') || parts < 2 || !is_hash(last, last_length))
        return -EINVAL;
    struct demangled output = {.text = name, .capacity = capacity};
    at = mangled + 3;
    for (size_t i = 0; i + 1 < parts && next_identifier(&at, &part, &length); i++) {
        if (i > 0)
            demangle_put(&output, "::");
        put_legacy(&output, part, length);
    }
    if (output.full || output.length == 0)
        return output.full ? -E2BIG : -EINVAL;
    name[output.length] = '\0';
    return (long)output.length;
}
