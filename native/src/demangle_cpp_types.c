// SPDX-License-Identifier: Apache-2.0
// The types of C++, as parameters and template arguments have them.
#include "demangle_cpp.h"

#include <string.h>

bool
opd_cpp_walk_decltype(struct cpp_walk *walk)
{
    return (take2(walk, "Dt") || take2(walk, "DT")) && opd_cpp_walk_expression(walk) &&
           take(walk, 'E');
}

static bool
walk_function_type(struct cpp_walk *walk)
{
    if (!take(walk, 'F'))
        return false;
    take(walk, 'Y'); // extern "C"
    while (*walk->at != 'E') {
        if ((*walk->at == 'R' || *walk->at == 'O') && walk->at[1] == 'E') {
            walk->at++;
            break;
        }
        if (!opd_cpp_walk_type(walk))
            return false;
    }
    return take(walk, 'E');
}

// Types that begin with D; false with nothing taken when it is a name.
static bool
walk_d_type(struct cpp_walk *walk)
{
    char c = walk->at[1];
    if (c == 't' || c == 'T')
        return opd_cpp_walk_decltype(walk);
    if (c == '\0')
        return false;
    walk->at += 2;
    switch (c) {
    case 'F':
        walk_digits(walk);
        return take(walk, '_') || take(walk, 'x') || take(walk, 'b');
    case 'p': // pack expansion
        return opd_cpp_walk_type(walk);
    case 'o': // noexcept
    case 'x': // transaction-safe
        return walk_function_type(walk);
    case 'O':
        return opd_cpp_walk_expression(walk) && take(walk, 'E') && walk_function_type(walk);
    case 'w':
        while (*walk->at != 'E')
            if (!opd_cpp_walk_type(walk))
                return false;
        walk->at++;
        return walk_function_type(walk);
    case 'v': // vector
        if (isdigit((unsigned char)*walk->at))
            walk_digits(walk);
        else if (take(walk, '_') && !opd_cpp_walk_expression(walk))
            return false;
        return take(walk, '_') && opd_cpp_walk_type(walk);
    case 'B': // _BitInt
    case 'U':
        if (isdigit((unsigned char)*walk->at))
            walk_digits(walk);
        else if (!opd_cpp_walk_expression(walk))
            return false;
        return take(walk, '_');
    default:
        return strchr("defhinsuac", c) != NULL;
    }
}

static bool
type_at(struct cpp_walk *walk)
{
    struct qualifiers ignored;
    char c = *walk->at;
    if (c == '\0')
        return false;
    if (strchr("vwbcahstijlmxynofdegz", c) != NULL) {
        walk->at++;
        return true;
    }
    switch (c) {
    case 'u': // a vendor's own type
        walk->at++;
        return opd_cpp_walk_source_name(walk) &&
               (*walk->at != 'I' || opd_cpp_walk_template_args(walk));
    case 'r':
    case 'V':
    case 'K':
    case 'P':
    case 'R':
    case 'O':
    case 'C':
    case 'G':
        walk->at++;
        return opd_cpp_walk_type(walk);
    case 'U':
        if (walk->at[1] == 'l' || walk->at[1] == 't')
            return opd_cpp_walk_name(walk, &ignored);
        walk->at++;
        return opd_cpp_walk_source_name(walk) &&
               (*walk->at != 'I' || opd_cpp_walk_template_args(walk)) && opd_cpp_walk_type(walk);
    case 'F':
        return walk_function_type(walk);
    case 'A':
        walk->at++;
        if (isdigit((unsigned char)*walk->at))
            walk_digits(walk);
        else if (*walk->at != '_' && !opd_cpp_walk_expression(walk))
            return false;
        return take(walk, '_') && opd_cpp_walk_type(walk);
    case 'M':
        walk->at++;
        return opd_cpp_walk_type(walk) && opd_cpp_walk_type(walk);
    case 'T':
        if (walk->at[1] != '\0' && strchr("sue", walk->at[1]) != NULL) { // struct, union, enum
            walk->at += 2;
            return opd_cpp_walk_name(walk, &ignored);
        }
        return opd_cpp_walk_template_param(walk) &&
               (*walk->at != 'I' || opd_cpp_walk_template_args(walk));
    case 'D':
        return walk_d_type(walk);
    default:
        return opd_cpp_walk_name(walk, &ignored);
    }
}

bool
opd_cpp_walk_type(struct cpp_walk *walk)
{
    if (walk->depth >= MAX_DEPTH)
        return false;
    walk->depth++;
    bool ok = type_at(walk);
    walk->depth--;
    return ok;
}
