// SPDX-License-Identifier: Apache-2.0
// The constants of v0 names: numbers, bool and char.
#include "demangle_rust.h"

#include <string.h>

// Hex digits up to "_": as a number when it fits, else as 0x….
static void
print_hex(struct rust_parser *parser, char type)
{
    const char *start = parser->at;
    uint64_t value = 0;
    while (demangle_hex_digit(*parser->at) >= 0)
        value = value << 4 | (uint64_t)demangle_hex_digit(*parser->at++);
    size_t length = (size_t)(parser->at - start);
    if (!take(parser, '_')) {
        parser->failed = true;
        return;
    }
    if (type == 'b' && value <= 1 && length <= 2) {
        emit(parser, value ? "true" : "false");
    } else if (type == 'c' && length <= 6 && demangle_is_character((uint32_t)value)) {
        if (!parser->silent) {
            demangle_put(parser->output, value == '\'' || value == '\\' ? "'\\" : "'");
            demangle_put_character(parser->output, (uint32_t)value);
            demangle_put(parser->output, "'");
        }
    } else if (length > 16) {
        emit(parser, "0x");
        if (!parser->silent)
            demangle_put_bytes(parser->output, start, length);
    } else {
        emit_number(parser, value);
    }
}

static void
print_const_2(struct rust_parser *parser, bool in_value)
{
    opd_rust_print_const(parser, in_value);
}

void
opd_rust_print_const(struct rust_parser *parser, bool in_value)
{
    if (!opd_rust_enter(parser))
        return;
    char tag = next(parser);
    if (tag == 'p') {
        emit(parser, "_");
    } else if (tag == 'B') {
        opd_rust_print_back_reference(parser, print_const_2, in_value);
    } else if (tag != '\0' && strchr("hmtyojbc", tag) != NULL) {
        print_hex(parser, tag);
    } else if (tag != '\0' && strchr("alsxni", tag) != NULL) {
        if (take(parser, 'n'))
            emit(parser, "-");
        print_hex(parser, tag);
    } else {
        parser->failed = true; // structured constants: show the raw name
    }
    parser->depth--;
}
