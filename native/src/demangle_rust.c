// SPDX-License-Identifier: Apache-2.0
// Rust's v0 names (RFC 2603). Crate disambiguators are not printed.
#include "demangle_rust.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define MAX_DEPTH 128
#define MAX_STEPS 20000 // back-references can make a short name print for ever

bool
opd_rust_enter(struct rust_parser *parser)
{
    if (parser->failed || parser->depth >= MAX_DEPTH || parser->steps++ >= MAX_STEPS ||
        parser->output->full)
        return fail(parser);
    parser->depth++;
    return true;
}

void
opd_rust_print_back_reference(struct rust_parser *parser, void (*print)(struct rust_parser *, bool),
                              bool in_value)
{
    const char *tag = parser->at - 1;
    uint64_t back = opd_rust_base62(parser);
    if (parser->failed || back >= (uint64_t)(tag - parser->start)) {
        parser->failed = true;
        return;
    }
    if (parser->silent)
        return;
    const char *at = parser->at;
    parser->at = parser->start + back;
    print(parser, in_value);
    parser->at = at;
}

size_t
opd_rust_print_list(struct rust_parser *parser, void (*print)(struct rust_parser *),
                    const char *separator)
{
    size_t count = 0;
    while (!parser->failed && !take(parser, 'E')) {
        if (count++ > 0)
            emit(parser, separator);
        print(parser);
    }
    return count;
}

static long
demangle_v0(const char *mangled, char *name, size_t capacity)
{
    struct demangled output = {.text = name, .capacity = capacity};
    struct rust_parser parser = {.start = mangled + 2, .at = mangled + 2, .output = &output};
    if (!isupper((unsigned char)*parser.at))
        return -EINVAL;
    opd_rust_print_path(&parser, true);
    if (!parser.failed && isupper((unsigned char)*parser.at)) {
        parser.silent = true; // the crate that instantiated it
        opd_rust_print_path(&parser, false);
    }
    if (parser.failed || (*parser.at != '\0' && *parser.at != '.' && *parser.at != '$'))
        return output.full ? -E2BIG : -EINVAL;
    if (output.full || output.length == 0)
        return output.full ? -E2BIG : -EINVAL;
    name[output.length] = '\0';
    return (long)output.length;
}

long
opd_demangle_rust(const char *mangled, char *name, size_t capacity)
{
    if (capacity == 0)
        return -E2BIG;
    if (strncmp(mangled, "_R", 2) == 0)
        return demangle_v0(mangled, name, capacity);
    return demangle_rust_legacy(mangled, name, capacity);
}
