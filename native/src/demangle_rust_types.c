// SPDX-License-Identifier: Apache-2.0
// The types of v0 names, with lifetimes, functions and traits.
#include "demangle_rust.h"

void
opd_rust_print_lifetime(struct rust_parser *parser, uint64_t index)
{
    if (index == 0) {
        emit(parser, "'_");
        return;
    }
    if (index > parser->lifetimes) {
        parser->failed = true;
        return;
    }
    uint64_t depth = parser->lifetimes - index;
    char name[3] = {'\'', (char)('a' + depth % 26), '\0'};
    emit(parser, name);
    if (depth >= 26)
        emit_number(parser, depth);
}

static const char *
basic_type(char tag)
{
    static const char *const names[26] = {
        ['a' - 'a'] = "i8",    ['b' - 'a'] = "bool", ['c' - 'a'] = "char", ['d' - 'a'] = "f64",
        ['e' - 'a'] = "str",   ['f' - 'a'] = "f32",  ['h' - 'a'] = "u8",   ['i' - 'a'] = "isize",
        ['j' - 'a'] = "usize", ['l' - 'a'] = "i32",  ['m' - 'a'] = "u32",  ['n' - 'a'] = "i128",
        ['o' - 'a'] = "u128",  ['p' - 'a'] = "_",    ['s' - 'a'] = "i16",  ['t' - 'a'] = "u16",
        ['u' - 'a'] = "()",    ['v' - 'a'] = "...",  ['x' - 'a'] = "i64",  ['y' - 'a'] = "u64",
        ['z' - 'a'] = "!"};
    return tag >= 'a' && tag <= 'z' ? names[tag - 'a'] : NULL;
}

// for<'a, 'b>; the caller takes the lifetimes off again.
static uint64_t
print_binder(struct rust_parser *parser)
{
    uint64_t bound = opd_rust_optional62(parser, 'G');
    if (parser->failed || bound == 0)
        return 0;
    if (bound > 1000) // more than a name can hold
        return fail(parser);
    emit(parser, "for<");
    for (uint64_t i = 0; i < bound; i++) {
        if (i > 0)
            emit(parser, ", ");
        parser->lifetimes++;
        opd_rust_print_lifetime(parser, 1);
    }
    emit(parser, "> ");
    return bound;
}

static void
print_function(struct rust_parser *parser)
{
    uint64_t bound = print_binder(parser);
    if (take(parser, 'U'))
        emit(parser, "unsafe ");
    if (take(parser, 'K')) {
        emit(parser, "extern \"");
        if (take(parser, 'C')) {
            emit(parser, "C");
        } else {
            struct rust_identifier abi = opd_rust_take_identifier(parser);
            for (size_t i = 0; i < abi.length; i++) {
                char c[2] = {abi.text[i] == '_' ? '-' : abi.text[i], '\0'};
                emit(parser, c);
            }
        }
        emit(parser, "\" ");
    }
    emit(parser, "fn(");
    opd_rust_print_list(parser, opd_rust_print_type, ", ");
    emit(parser, ")");
    if (!take(parser, 'u')) {
        emit(parser, " -> ");
        opd_rust_print_type(parser);
    }
    parser->lifetimes -= bound;
}

// A trait of a dyn type: its bindings go into the trait's own list.
static void
print_trait(struct rust_parser *parser)
{
    bool open = false;
    if (*parser->at == 'I') {
        parser->at++;
        opd_rust_print_path(parser, false);
        emit(parser, "<");
        opd_rust_print_list(parser, opd_rust_print_generic_arg, ", ");
        open = true;
    } else {
        opd_rust_print_path(parser, false);
    }
    while (take(parser, 'p')) {
        emit(parser, open ? ", " : "<");
        open = true;
        struct rust_identifier identifier = opd_rust_take_identifier(parser);
        opd_rust_put_identifier(parser, &identifier);
        emit(parser, " = ");
        opd_rust_print_type(parser);
    }
    if (open)
        emit(parser, ">");
}

static void
print_dyn(struct rust_parser *parser)
{
    emit(parser, "dyn ");
    uint64_t bound = print_binder(parser);
    opd_rust_print_list(parser, print_trait, " + ");
    parser->lifetimes -= bound;
    if (!take(parser, 'L')) {
        parser->failed = true;
        return;
    }
    uint64_t lifetime = opd_rust_base62(parser);
    if (lifetime != 0) {
        emit(parser, " + ");
        opd_rust_print_lifetime(parser, lifetime);
    }
}

static void
print_type_2(struct rust_parser *parser, bool in_value)
{
    (void)in_value;
    opd_rust_print_type(parser);
}

static void
type_at(struct rust_parser *parser)
{
    char tag = next(parser);
    const char *basic = basic_type(tag);
    if (basic != NULL) {
        emit(parser, basic);
        return;
    }
    switch (tag) {
    case 'R':
    case 'Q':
        emit(parser, "&");
        if (take(parser, 'L')) {
            uint64_t lifetime = opd_rust_base62(parser);
            if (lifetime != 0) {
                opd_rust_print_lifetime(parser, lifetime);
                emit(parser, " ");
            }
        }
        emit(parser, tag == 'Q' ? "mut " : "");
        opd_rust_print_type(parser);
        return;
    case 'P':
    case 'O':
        emit(parser, tag == 'P' ? "*const " : "*mut ");
        opd_rust_print_type(parser);
        return;
    case 'A':
    case 'S':
        emit(parser, "[");
        opd_rust_print_type(parser);
        if (tag == 'A') {
            emit(parser, "; ");
            opd_rust_print_const(parser, true);
        }
        emit(parser, "]");
        return;
    case 'T':
        emit(parser, "(");
        emit(parser, opd_rust_print_list(parser, opd_rust_print_type, ", ") == 1 ? ",)" : ")");
        return;
    case 'F':
        print_function(parser);
        return;
    case 'D':
        print_dyn(parser);
        return;
    case 'B':
        opd_rust_print_back_reference(parser, print_type_2, false);
        return;
    default:
        parser->at -= parser->failed ? 0 : 1;
        opd_rust_print_path(parser, false);
    }
}

void
opd_rust_print_type(struct rust_parser *parser)
{
    if (!opd_rust_enter(parser))
        return;
    type_at(parser);
    parser->depth--;
}
