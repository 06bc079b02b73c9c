// SPDX-License-Identifier: Apache-2.0
// The paths of v0 names, with their generic arguments.
#include "demangle_rust.h"

#include <ctype.h>

void
opd_rust_print_generic_arg(struct rust_parser *parser)
{
    if (take(parser, 'L'))
        opd_rust_print_lifetime(parser, opd_rust_base62(parser));
    else if (take(parser, 'K'))
        opd_rust_print_const(parser, false);
    else
        opd_rust_print_type(parser);
}

static void
print_nested(struct rust_parser *parser, bool in_value)
{
    char space = next(parser);
    if (!isalpha((unsigned char)space)) {
        parser->failed = true;
        return;
    }
    opd_rust_print_path(parser, in_value);
    uint64_t number = opd_rust_optional62(parser, 's');
    struct rust_identifier identifier = opd_rust_take_identifier(parser);
    if (isupper((unsigned char)space)) {
        char tag[2] = {space, '\0'};
        emit(parser, "::{");
        emit(parser, space == 'C' ? "closure" : space == 'S' ? "shim" : tag);
        if (identifier.length > 0) {
            emit(parser, ":");
            opd_rust_put_identifier(parser, &identifier);
        }
        emit(parser, "#");
        emit_number(parser, number);
        emit(parser, "}");
    } else if (identifier.length > 0) {
        emit(parser, "::");
        opd_rust_put_identifier(parser, &identifier);
    }
}

static void
path_at(struct rust_parser *parser, bool in_value)
{
    char tag = next(parser);
    bool silent = parser->silent;
    switch (tag) {
    case 'C': {
        opd_rust_optional62(parser, 's');
        struct rust_identifier identifier = opd_rust_take_identifier(parser);
        opd_rust_put_identifier(parser, &identifier);
        return;
    }
    case 'N':
        print_nested(parser, in_value);
        return;
    case 'M':
    case 'X':
        // The path of the impl itself is not printed.
        opd_rust_optional62(parser, 's');
        parser->silent = true;
        opd_rust_print_path(parser, in_value);
        parser->silent = silent;
        // fall through
    case 'Y':
        emit(parser, "<");
        opd_rust_print_type(parser);
        if (tag != 'M') {
            emit(parser, " as ");
            opd_rust_print_path(parser, false);
        }
        emit(parser, ">");
        return;
    case 'I':
        opd_rust_print_path(parser, in_value);
        emit(parser, in_value ? "::<" : "<");
        opd_rust_print_list(parser, opd_rust_print_generic_arg, ", ");
        emit(parser, ">");
        return;
    case 'B':
        opd_rust_print_back_reference(parser, opd_rust_print_path, in_value);
        return;
    default:
        parser->failed = true;
    }
}

void
opd_rust_print_path(struct rust_parser *parser, bool in_value)
{
    if (!opd_rust_enter(parser))
        return;
    path_at(parser, in_value);
    parser->depth--;
}
