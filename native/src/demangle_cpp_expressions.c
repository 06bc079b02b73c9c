// SPDX-License-Identifier: Apache-2.0
// The expressions in C++ names: of decltype, noexcept and template arguments.
#include "demangle_cpp.h"

#include <string.h>

static bool
walk_expressions_to_end(struct cpp_walk *walk)
{
    while (*walk->at != 'E')
        if (!opd_cpp_walk_expression(walk))
            return false;
    walk->at++;
    return true;
}

// L <type> <value> E, or L _Z <encoding> E
static bool
walk_literal(struct cpp_walk *walk)
{
    walk->at++;
    if (take2(walk, "_Z") || take(walk, 'Z'))
        return opd_cpp_walk_encoding(walk) && take(walk, 'E');
    if (!opd_cpp_walk_type(walk))
        return false;
    while (isdigit((unsigned char)*walk->at) || (*walk->at >= 'a' && *walk->at <= 'f') ||
           *walk->at == 'n' || *walk->at == '_')
        walk->at++;
    return take(walk, 'E');
}

static bool
walk_scoped(struct cpp_walk *walk) // behind "sr"
{
    struct qualifiers ignored;
    bool many = take(walk, 'N');
    if (!opd_cpp_walk_type(walk))
        return false;
    if (many) {
        while (*walk->at != 'E')
            if (!opd_cpp_walk_source_name(walk) ||
                (*walk->at == 'I' && !opd_cpp_walk_template_args(walk)))
                return false;
        walk->at++;
    }
    if (!many)
        take(walk, 'E'); // clang closes the qualifiers in either case
    take2(walk, "on");   // the operator's letters follow
    return opd_cpp_walk_name(walk, &ignored);
}

// How many operands a two-letter expression has, by what the ABI lists.
static int
operands(const char *code)
{
    static const char unary[] = "ng ps ad de co nt pp mm dl da sz az te nx sp tw ao";
    static const char ternary[] = "qu";
    char key[3] = {code[0], code[1], '\0'};
    if (strstr(unary, key) != NULL)
        return 1;
    return strstr(ternary, key) != NULL ? 3 : 2;
}

static bool
walk_allocation(struct cpp_walk *walk) // behind "nw" and "na"
{
    while (*walk->at != '_')
        if (!opd_cpp_walk_expression(walk))
            return false;
    walk->at++;
    if (!opd_cpp_walk_type(walk))
        return false;
    return take(walk, 'E') || (take2(walk, "pi") && walk_expressions_to_end(walk)) ||
           opd_cpp_walk_expression(walk);
}

static bool
walk_function_param(struct cpp_walk *walk) // behind "fp" and "fL<level>p"
{
    if (take(walk, 'T'))
        return true;
    while (*walk->at != '\0' && strchr("rVK", *walk->at) != NULL)
        walk->at++;
    walk_digits(walk);
    return take(walk, '_');
}

static bool
expression_at(struct cpp_walk *walk)
{
    struct qualifiers ignored;
    if (*walk->at == 'L')
        return walk_literal(walk);
    if (*walk->at == 'T')
        return opd_cpp_walk_template_param(walk);
    if (isdigit((unsigned char)*walk->at)) // a dependent function's name
        return opd_cpp_walk_name(walk, &ignored);
    take2(walk, "gs");
    if (take2(walk, "sr"))
        return walk_scoped(walk);
    if (take2(walk, "fp"))
        return walk_function_param(walk);
    if (walk->at[0] == 'f' && walk->at[1] == 'L' && isdigit((unsigned char)walk->at[2])) {
        walk->at += 2;
        walk_digits(walk);
        return take(walk, 'p') && walk_function_param(walk);
    }
    if (take2(walk, "il") || take2(walk, "cl") || take2(walk, "cp"))
        return walk_expressions_to_end(walk);
    if (take2(walk, "tl"))
        return opd_cpp_walk_type(walk) && walk_expressions_to_end(walk);
    if (take2(walk, "cv"))
        return opd_cpp_walk_type(walk) &&
               (take(walk, '_') ? walk_expressions_to_end(walk) : opd_cpp_walk_expression(walk));
    if (take2(walk, "nw") || take2(walk, "na"))
        return walk_allocation(walk);
    if (take2(walk, "st") || take2(walk, "at") || take2(walk, "ti"))
        return opd_cpp_walk_type(walk);
    if (take2(walk, "sc") || take2(walk, "dc") || take2(walk, "rc") || take2(walk, "cc"))
        return opd_cpp_walk_type(walk) && opd_cpp_walk_expression(walk);
    if (take2(walk, "dt") || take2(walk, "pt"))
        return opd_cpp_walk_expression(walk) && opd_cpp_walk_expression(walk);
    if (take2(walk, "sZ"))
        return *walk->at == 'T' ? opd_cpp_walk_template_param(walk) : opd_cpp_walk_expression(walk);
    if (take2(walk, "sP")) {
        while (*walk->at != 'E')
            if (!opd_cpp_walk_template_arg(walk))
                return false;
        walk->at++;
        return true;
    }
    if (take2(walk, "tr"))
        return true;
    if (take2(walk, "on") || take2(walk, "dn"))
        return opd_cpp_walk_name(walk, &ignored);
    if (take2(walk, "fl") || take2(walk, "fr"))
        return opd_cpp_walk_operator(walk) && opd_cpp_walk_expression(walk);
    if (take2(walk, "fL") || take2(walk, "fR"))
        return opd_cpp_walk_operator(walk) && opd_cpp_walk_expression(walk) &&
               opd_cpp_walk_expression(walk);
    if (!islower((unsigned char)walk->at[0]) || !isalpha((unsigned char)walk->at[1]))
        return false;
    int count = operands(walk->at);
    walk->at += 2;
    if (count == 1)
        take(walk, '_'); // prefix ++ and --
    for (int i = 0; i < count; i++)
        if (!opd_cpp_walk_expression(walk))
            return false;
    return true;
}

bool
opd_cpp_walk_expression(struct cpp_walk *walk)
{
    if (walk->depth >= MAX_DEPTH)
        return false;
    walk->depth++;
    bool ok = expression_at(walk);
    walk->depth--;
    return ok;
}
