// SPDX-License-Identifier: Apache-2.0
// The parser of Rust's v0 names, which prints as it reads: demangle_rust.c
// starts it, and demangle_rust_identifiers.c, demangle_rust_paths.c,
// demangle_rust_types.c and demangle_rust_consts.c know one part of the
// grammar each.
#ifndef OPD_DEMANGLE_RUST_PRIVATE_H
#define OPD_DEMANGLE_RUST_PRIVATE_H

#include "demangle_private.h"

struct rust_parser {
    const char *start; // behind "_R"
    const char *at;
    struct demangled *output;
    unsigned depth, steps;
    uint64_t lifetimes; // bound by the binders around
    bool silent;        // parse only
    bool failed;
};

struct rust_identifier {
    const char *text;
    size_t length;
    bool punycode;
};

static inline void
emit(struct rust_parser *parser, const char *text)
{
    if (!parser->silent && !parser->failed)
        demangle_put(parser->output, text);
}

static inline void
emit_number(struct rust_parser *parser, uint64_t value)
{
    if (!parser->silent && !parser->failed)
        demangle_put_number(parser->output, value);
}

static inline bool
fail(struct rust_parser *parser)
{
    parser->failed = true;
    return false;
}

static inline bool
take(struct rust_parser *parser, char c)
{
    if (parser->failed || *parser->at != c)
        return false;
    parser->at++;
    return true;
}

static inline char
next(struct rust_parser *parser)
{
    if (parser->failed || *parser->at == '\0') {
        parser->failed = true;
        return '\0';
    }
    return *parser->at++;
}

// All below stop at what they cannot read and set parser->failed.
//
// "_" is 0, "<base 62>_" one more than the number.
uint64_t opd_rust_base62(struct rust_parser *parser);
// One more than the number behind the tag, 0 without the tag.
uint64_t opd_rust_optional62(struct rust_parser *parser, char tag);
struct rust_identifier opd_rust_take_identifier(struct rust_parser *parser);
void opd_rust_put_identifier(struct rust_parser *parser, const struct rust_identifier *identifier);

// One level deeper, unless that is too deep, or the name takes too long to
// print; who was let in takes it off parser->depth again.
bool opd_rust_enter(struct rust_parser *parser);
// Behind "B": prints what stands at an earlier place. `print` gets in_value.
void opd_rust_print_back_reference(struct rust_parser *parser,
                                   void (*print)(struct rust_parser *, bool), bool in_value);
// Up to the E; how many.
size_t opd_rust_print_list(struct rust_parser *parser, void (*print)(struct rust_parser *),
                           const char *separator);

// in_value: where an expression would stand, so that generics need "::<".
void opd_rust_print_path(struct rust_parser *parser, bool in_value);
void opd_rust_print_generic_arg(struct rust_parser *parser);
void opd_rust_print_lifetime(struct rust_parser *parser, uint64_t index);
void opd_rust_print_type(struct rust_parser *parser);
void opd_rust_print_const(struct rust_parser *parser, bool in_value);

#endif
