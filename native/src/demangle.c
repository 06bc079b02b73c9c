// SPDX-License-Identifier: Apache-2.0
// Which language a mangled name is from, and the bounded output of all.
#include "demangle_private.h"

#include <errno.h>
#include <string.h>

void
demangle_put_bytes(struct demangled *output, const char *bytes, size_t length)
{
    if (output->full || output->capacity - output->length <= length) {
        output->full = true;
        return;
    }
    memcpy(output->text + output->length, bytes, length);
    output->length += length;
}

void
demangle_put(struct demangled *output, const char *text)
{
    demangle_put_bytes(output, text, strlen(text));
}

void
demangle_put_number(struct demangled *output, uint64_t value)
{
    char digits[20];
    size_t at = sizeof digits;
    do
        digits[--at] = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    demangle_put_bytes(output, digits + at, sizeof digits - at);
}

void
demangle_put_character(struct demangled *output, uint32_t c)
{
    char utf8[4];
    size_t length;
    if (c < 0x80) {
        utf8[0] = (char)c;
        length = 1;
    } else if (c < 0x800) {
        utf8[0] = (char)(0xc0 | c >> 6);
        utf8[1] = (char)(0x80 | (c & 0x3f));
        length = 2;
    } else if (c < 0x10000) {
        utf8[0] = (char)(0xe0 | c >> 12);
        utf8[1] = (char)(0x80 | (c >> 6 & 0x3f));
        utf8[2] = (char)(0x80 | (c & 0x3f));
        length = 3;
    } else {
        utf8[0] = (char)(0xf0 | c >> 18);
        utf8[1] = (char)(0x80 | (c >> 12 & 0x3f));
        utf8[2] = (char)(0x80 | (c >> 6 & 0x3f));
        utf8[3] = (char)(0x80 | (c & 0x3f));
        length = 4;
    }
    demangle_put_bytes(output, utf8, length);
}

bool
demangle_is_character(uint32_t c)
{
    return c >= 0x20 && c != 0x7f && c < 0x110000 && (c < 0xd800 || c > 0xdfff);
}

int
demangle_hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

long
opd_demangle(const char *mangled, char *name, size_t capacity)
{
    long length = opd_demangle_rust(mangled, name, capacity);
    if (length != -EINVAL)
        return length;
    return strncmp(mangled, "_Z", 2) == 0 ? demangle_cpp(mangled, name, capacity) : -EINVAL;
}
