// SPDX-License-Identifier: Apache-2.0
// The walk over a mangled C++ name: demangle_cpp.c starts it, and
// demangle_cpp_names.c, demangle_cpp_types.c and demangle_cpp_expressions.c
// know one part of the grammar each.
#ifndef OPD_DEMANGLE_CPP_PRIVATE_H
#define OPD_DEMANGLE_CPP_PRIVATE_H

#include "demangle_private.h"

#include <ctype.h>

#define MAX_DEPTH 192
#define MAX_MANGLED 8192

struct cpp_walk {
    const char *at;
    unsigned depth;
};

static inline bool
take(struct cpp_walk *walk, char c)
{
    if (*walk->at != c)
        return false;
    walk->at++;
    return true;
}

static inline bool
take2(struct cpp_walk *walk, const char *two)
{
    if (walk->at[0] != two[0] || walk->at[1] != two[1])
        return false;
    walk->at += 2;
    return true;
}

static inline void
walk_digits(struct cpp_walk *walk)
{
    while (isdigit((unsigned char)*walk->at))
        walk->at++;
}

// Each takes one production of the grammar and stops behind it; false when
// something else stands there, or when it is nested too deep.
bool opd_cpp_walk_source_name(struct cpp_walk *walk);
bool opd_cpp_walk_operator(struct cpp_walk *walk);
bool opd_cpp_walk_name(struct cpp_walk *walk, struct qualifiers *qualifiers);
bool opd_cpp_walk_encoding(struct cpp_walk *walk);
bool opd_cpp_walk_template_param(struct cpp_walk *walk);
bool opd_cpp_walk_template_arg(struct cpp_walk *walk);
bool opd_cpp_walk_template_args(struct cpp_walk *walk);
bool opd_cpp_walk_type(struct cpp_walk *walk);
bool opd_cpp_walk_decltype(struct cpp_walk *walk);
bool opd_cpp_walk_expression(struct cpp_walk *walk);

#endif
