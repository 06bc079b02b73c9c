// SPDX-License-Identifier: Apache-2.0
// The names of C++: nested, local, unnamed, with their template arguments.
#include "demangle_cpp.h"

#include <string.h>

bool
opd_cpp_walk_source_name(struct cpp_walk *walk)
{
    size_t length = 0;
    if (!isdigit((unsigned char)*walk->at))
        return false;
    while (isdigit((unsigned char)*walk->at) && length < MAX_MANGLED)
        length = length * 10 + (size_t)(*walk->at++ - '0');
    if (length == 0 || length >= MAX_MANGLED || strnlen(walk->at, length) < length)
        return false;
    walk->at += length;
    return true;
}

// "_", "0_", "1Z_", … as behind S and T.
static bool
walk_sequence(struct cpp_walk *walk)
{
    while (isdigit((unsigned char)*walk->at) || isupper((unsigned char)*walk->at))
        walk->at++;
    return take(walk, '_');
}

static bool
walk_substitution(struct cpp_walk *walk)
{
    if (!take(walk, 'S'))
        return false;
    if (*walk->at != '\0' && strchr("tabsiod", *walk->at) != NULL) {
        walk->at++;
        return true;
    }
    return walk_sequence(walk);
}

bool
opd_cpp_walk_template_param(struct cpp_walk *walk)
{
    if (!take(walk, 'T'))
        return false;
    if (take(walk, 'L') && !walk_sequence(walk)) // level
        return false;
    return walk_sequence(walk);
}

static bool
walk_abi_tags(struct cpp_walk *walk)
{
    while (take(walk, 'B'))
        if (!opd_cpp_walk_source_name(walk))
            return false;
    return true;
}

// An operator's two letters, with what belongs to the three special ones.
bool
opd_cpp_walk_operator(struct cpp_walk *walk)
{
    if (take2(walk, "cv"))
        return opd_cpp_walk_type(walk);
    if (take2(walk, "li"))
        return opd_cpp_walk_source_name(walk);
    if (walk->at[0] == 'v' && isdigit((unsigned char)walk->at[1])) {
        walk->at += 2;
        return opd_cpp_walk_source_name(walk);
    }
    if (!islower((unsigned char)walk->at[0]) || !isalpha((unsigned char)walk->at[1]))
        return false;
    walk->at += 2;
    return true;
}

// Ut_ Ut0_ (unnamed type), Ul…E_ (lambda with its parameters).
static bool
walk_unnamed(struct cpp_walk *walk)
{
    if (take2(walk, "Ut")) {
        walk_digits(walk);
        return take(walk, '_');
    }
    if (!take2(walk, "Ul"))
        return false;
    while (*walk->at == 'T' && walk->at[1] != '\0' && strchr("yntpk", walk->at[1]) != NULL) {
        // Template parameters that a lambda declares.
        char kind = walk->at[1];
        walk->at += 2;
        if ((kind == 'n' || kind == 'k') && !opd_cpp_walk_type(walk))
            return false;
        if (kind == 'p' || kind == 't')
            return false;
    }
    while (*walk->at != 'E')
        if (!opd_cpp_walk_type(walk))
            return false;
    walk->at++;
    walk_digits(walk);
    return take(walk, '_');
}

static bool
walk_unqualified(struct cpp_walk *walk)
{
    bool found;
    take(walk, 'F'); // a friend declared in a class
    take(walk, 'L'); // internal linkage
    char c = *walk->at;
    if (isdigit((unsigned char)c)) {
        found = opd_cpp_walk_source_name(walk);
    } else if (c == 'U') {
        found = walk_unnamed(walk);
    } else if (c == 'C') {
        walk->at++;
        bool inherited = take(walk, 'I');
        found = *walk->at >= '1' && *walk->at <= '5';
        walk->at += found;
        if (found && inherited)
            found = opd_cpp_walk_type(walk);
    } else if (c == 'D' && walk->at[1] == 'C') {
        walk->at += 2;
        found = opd_cpp_walk_source_name(walk);
        while (found && *walk->at != 'E')
            found = opd_cpp_walk_source_name(walk);
        found = found && take(walk, 'E');
    } else if (c == 'D') {
        found = walk->at[1] >= '0' && walk->at[1] <= '5';
        walk->at += found ? 2 : 0;
    } else {
        found = opd_cpp_walk_operator(walk);
    }
    return found && walk_abi_tags(walk);
}

// N … E. The qualifiers of the function itself stand in front.
static bool
walk_nested(struct cpp_walk *walk, struct qualifiers *qualifiers)
{
    walk->at++;
    const char *start = walk->at;
    take(walk, 'H'); // explicit object parameter
    while (*walk->at != '\0' && strchr("rVK", *walk->at) != NULL)
        walk->at++;
    if (*walk->at == 'R' || *walk->at == 'O')
        walk->at++;
    *qualifiers = (struct qualifiers){start, (size_t)(walk->at - start)};
    bool any = false;
    while (*walk->at != 'E') {
        bool ok;
        char c = *walk->at;
        if (c == 'S')
            ok = walk_substitution(walk);
        else if (c == 'T')
            ok = opd_cpp_walk_template_param(walk);
        else if (c == 'I')
            ok = any && opd_cpp_walk_template_args(walk);
        else if (c == 'D' && (walk->at[1] == 't' || walk->at[1] == 'T'))
            ok = opd_cpp_walk_decltype(walk);
        else if (c == 'M' && any)
            ok = take(walk, 'M');
        else
            ok = walk_unqualified(walk);
        if (!ok)
            return false;
        any = true;
    }
    walk->at++;
    return any;
}

static void
walk_discriminator(struct cpp_walk *walk)
{
    if (walk->at[0] == '_' && walk->at[1] == '_' && isdigit((unsigned char)walk->at[2])) {
        walk->at += 2;
        walk_digits(walk);
        take(walk, '_');
    } else if (walk->at[0] == '_' && isdigit((unsigned char)walk->at[1])) {
        walk->at += 2;
    }
}

// Z <encoding> E <name>
static bool
walk_local(struct cpp_walk *walk, struct qualifiers *qualifiers)
{
    walk->at++;
    if (!opd_cpp_walk_encoding(walk) || !take(walk, 'E'))
        return false;
    if (take(walk, 's')) {
        walk_discriminator(walk);
        return true;
    }
    if (take(walk, 'd')) { // in a default argument
        walk_digits(walk);
        return take(walk, '_') && opd_cpp_walk_name(walk, qualifiers);
    }
    if (!opd_cpp_walk_name(walk, qualifiers))
        return false;
    walk_discriminator(walk);
    return true;
}

static bool
name_at(struct cpp_walk *walk, struct qualifiers *qualifiers)
{
    switch (*walk->at) {
    case 'N':
        return walk_nested(walk, qualifiers);
    case 'Z':
        return walk_local(walk, qualifiers);
    case 'S':
        if (walk->at[1] == 't') {
            walk->at += 2;
            if (!walk_unqualified(walk))
                return false;
        } else if (!walk_substitution(walk)) {
            return false;
        }
        break;
    default:
        if (!walk_unqualified(walk))
            return false;
    }
    return *walk->at != 'I' || opd_cpp_walk_template_args(walk);
}

bool
opd_cpp_walk_name(struct cpp_walk *walk, struct qualifiers *qualifiers)
{
    if (walk->depth >= MAX_DEPTH)
        return false;
    walk->depth++;
    bool ok = name_at(walk, qualifiers);
    walk->depth--;
    return ok;
}

// A function with its parameters, or a variable, up to an E or the end.
bool
opd_cpp_walk_encoding(struct cpp_walk *walk)
{
    struct qualifiers ignored;
    if (walk->depth >= MAX_DEPTH)
        return false;
    walk->depth++;
    bool ok = *walk->at != 'T' && *walk->at != 'G' && opd_cpp_walk_name(walk, &ignored);
    while (ok && *walk->at != 'E' && *walk->at != '\0' && *walk->at != '.')
        ok = opd_cpp_walk_type(walk);
    walk->depth--;
    return ok;
}

bool
opd_cpp_walk_template_arg(struct cpp_walk *walk)
{
    switch (*walk->at) {
    case 'X':
        walk->at++;
        return opd_cpp_walk_expression(walk) && take(walk, 'E');
    case 'L':
        return opd_cpp_walk_expression(walk);
    case 'J':
    case 'I':
        walk->at++;
        while (*walk->at != 'E')
            if (!opd_cpp_walk_template_arg(walk))
                return false;
        walk->at++;
        return true;
    default:
        return opd_cpp_walk_type(walk);
    }
}

bool
opd_cpp_walk_template_args(struct cpp_walk *walk)
{
    if (walk->depth >= MAX_DEPTH || !take(walk, 'I'))
        return false;
    walk->depth++;
    bool ok = true;
    while (ok && *walk->at != 'E')
        ok = take(walk, 'Q') ? opd_cpp_walk_expression(walk) : opd_cpp_walk_template_arg(walk);
    walk->depth--;
    return ok && take(walk, 'E');
}
