// SPDX-License-Identifier: Apache-2.0
// C++ names (the Itanium C++ ABI's mangling). We only walk the mangled form,
// to find where the function's <name> ends and its parameters begin; printing
// is left to the demangler in libstdc++.
#include "demangle_private.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MAX_DEPTH 192
#define MAX_MANGLED 8192
#define PRINTER_MEMORY (32u << 20)
#define MOST_OUTPUT (double)(1u << 28)

struct walk {
    const char *at;
    unsigned depth;
};

static bool walk_type(struct walk *walk);
static bool walk_name(struct walk *walk, struct qualifiers *qualifiers);
static bool walk_encoding(struct walk *walk);
static bool walk_expression(struct walk *walk);
static bool walk_template_args(struct walk *walk);

static bool
take(struct walk *walk, char c)
{
    if (*walk->at != c)
        return false;
    walk->at++;
    return true;
}

static bool
take2(struct walk *walk, const char *two)
{
    if (walk->at[0] != two[0] || walk->at[1] != two[1])
        return false;
    walk->at += 2;
    return true;
}

static void
walk_digits(struct walk *walk)
{
    while (isdigit((unsigned char)*walk->at))
        walk->at++;
}

static bool
walk_source_name(struct walk *walk)
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
walk_sequence(struct walk *walk)
{
    while (isdigit((unsigned char)*walk->at) || isupper((unsigned char)*walk->at))
        walk->at++;
    return take(walk, '_');
}

static bool
walk_substitution(struct walk *walk)
{
    if (!take(walk, 'S'))
        return false;
    if (*walk->at != '\0' && strchr("tabsiod", *walk->at) != NULL) {
        walk->at++;
        return true;
    }
    return walk_sequence(walk);
}

static bool
walk_template_param(struct walk *walk)
{
    if (!take(walk, 'T'))
        return false;
    if (take(walk, 'L') && !walk_sequence(walk)) // level
        return false;
    return walk_sequence(walk);
}

static bool
walk_abi_tags(struct walk *walk)
{
    while (take(walk, 'B'))
        if (!walk_source_name(walk))
            return false;
    return true;
}

// An operator's two letters, with what belongs to the three special ones.
static bool
walk_operator(struct walk *walk)
{
    if (take2(walk, "cv"))
        return walk_type(walk);
    if (take2(walk, "li"))
        return walk_source_name(walk);
    if (walk->at[0] == 'v' && isdigit((unsigned char)walk->at[1])) {
        walk->at += 2;
        return walk_source_name(walk);
    }
    if (!islower((unsigned char)walk->at[0]) || !isalpha((unsigned char)walk->at[1]))
        return false;
    walk->at += 2;
    return true;
}

// Ut_ Ut0_ (unnamed type), Ul…E_ (lambda with its parameters).
static bool
walk_unnamed(struct walk *walk)
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
        if ((kind == 'n' || kind == 'k') && !walk_type(walk))
            return false;
        if (kind == 'p' || kind == 't')
            return false;
    }
    while (*walk->at != 'E')
        if (!walk_type(walk))
            return false;
    walk->at++;
    walk_digits(walk);
    return take(walk, '_');
}

static bool
walk_unqualified(struct walk *walk)
{
    bool found;
    take(walk, 'F'); // a friend declared in a class
    take(walk, 'L'); // internal linkage
    char c = *walk->at;
    if (isdigit((unsigned char)c)) {
        found = walk_source_name(walk);
    } else if (c == 'U') {
        found = walk_unnamed(walk);
    } else if (c == 'C') {
        walk->at++;
        bool inherited = take(walk, 'I');
        found = *walk->at >= '1' && *walk->at <= '5';
        walk->at += found;
        if (found && inherited)
            found = walk_type(walk);
    } else if (c == 'D' && walk->at[1] == 'C') {
        walk->at += 2;
        found = walk_source_name(walk);
        while (found && *walk->at != 'E')
            found = walk_source_name(walk);
        found = found && take(walk, 'E');
    } else if (c == 'D') {
        found = walk->at[1] >= '0' && walk->at[1] <= '5';
        walk->at += found ? 2 : 0;
    } else {
        found = walk_operator(walk);
    }
    return found && walk_abi_tags(walk);
}

static bool
walk_decltype(struct walk *walk)
{
    return (take2(walk, "Dt") || take2(walk, "DT")) && walk_expression(walk) && take(walk, 'E');
}

// N … E. The qualifiers of the function itself stand in front.
static bool
walk_nested(struct walk *walk, struct qualifiers *qualifiers)
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
            ok = walk_template_param(walk);
        else if (c == 'I')
            ok = any && walk_template_args(walk);
        else if (c == 'D' && (walk->at[1] == 't' || walk->at[1] == 'T'))
            ok = walk_decltype(walk);
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
walk_discriminator(struct walk *walk)
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
walk_local(struct walk *walk, struct qualifiers *qualifiers)
{
    walk->at++;
    if (!walk_encoding(walk) || !take(walk, 'E'))
        return false;
    if (take(walk, 's')) {
        walk_discriminator(walk);
        return true;
    }
    if (take(walk, 'd')) { // in a default argument
        walk_digits(walk);
        return take(walk, '_') && walk_name(walk, qualifiers);
    }
    if (!walk_name(walk, qualifiers))
        return false;
    walk_discriminator(walk);
    return true;
}

static bool
name_at(struct walk *walk, struct qualifiers *qualifiers)
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
    return *walk->at != 'I' || walk_template_args(walk);
}

static bool
walk_name(struct walk *walk, struct qualifiers *qualifiers)
{
    if (walk->depth >= MAX_DEPTH)
        return false;
    walk->depth++;
    bool ok = name_at(walk, qualifiers);
    walk->depth--;
    return ok;
}

// A function with its parameters, or a variable, up to an E or the end.
static bool
walk_encoding(struct walk *walk)
{
    struct qualifiers ignored;
    if (walk->depth >= MAX_DEPTH)
        return false;
    walk->depth++;
    bool ok = *walk->at != 'T' && *walk->at != 'G' && walk_name(walk, &ignored);
    while (ok && *walk->at != 'E' && *walk->at != '\0' && *walk->at != '.')
        ok = walk_type(walk);
    walk->depth--;
    return ok;
}

static bool
walk_template_arg(struct walk *walk)
{
    switch (*walk->at) {
    case 'X':
        walk->at++;
        return walk_expression(walk) && take(walk, 'E');
    case 'L':
        return walk_expression(walk);
    case 'J':
    case 'I':
        walk->at++;
        while (*walk->at != 'E')
            if (!walk_template_arg(walk))
                return false;
        walk->at++;
        return true;
    default:
        return walk_type(walk);
    }
}

static bool
walk_template_args(struct walk *walk)
{
    if (walk->depth >= MAX_DEPTH || !take(walk, 'I'))
        return false;
    walk->depth++;
    bool ok = true;
    while (ok && *walk->at != 'E')
        ok = take(walk, 'Q') ? walk_expression(walk) : walk_template_arg(walk);
    walk->depth--;
    return ok && take(walk, 'E');
}

static bool
walk_function_type(struct walk *walk)
{
    if (!take(walk, 'F'))
        return false;
    take(walk, 'Y'); // extern "C"
    while (*walk->at != 'E') {
        if ((*walk->at == 'R' || *walk->at == 'O') && walk->at[1] == 'E') {
            walk->at++;
            break;
        }
        if (!walk_type(walk))
            return false;
    }
    return take(walk, 'E');
}

// Types that begin with D; false with nothing taken when it is a name.
static bool
walk_d_type(struct walk *walk)
{
    char c = walk->at[1];
    if (c == 't' || c == 'T')
        return walk_decltype(walk);
    if (c == '\0')
        return false;
    walk->at += 2;
    switch (c) {
    case 'F':
        walk_digits(walk);
        return take(walk, '_') || take(walk, 'x') || take(walk, 'b');
    case 'p': // pack expansion
        return walk_type(walk);
    case 'o': // noexcept
    case 'x': // transaction-safe
        return walk_function_type(walk);
    case 'O':
        return walk_expression(walk) && take(walk, 'E') && walk_function_type(walk);
    case 'w':
        while (*walk->at != 'E')
            if (!walk_type(walk))
                return false;
        walk->at++;
        return walk_function_type(walk);
    case 'v': // vector
        if (isdigit((unsigned char)*walk->at))
            walk_digits(walk);
        else if (take(walk, '_') && !walk_expression(walk))
            return false;
        return take(walk, '_') && walk_type(walk);
    case 'B': // _BitInt
    case 'U':
        if (isdigit((unsigned char)*walk->at))
            walk_digits(walk);
        else if (!walk_expression(walk))
            return false;
        return take(walk, '_');
    default:
        return strchr("defhinsuac", c) != NULL;
    }
}

static bool
type_at(struct walk *walk)
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
        return walk_source_name(walk) && (*walk->at != 'I' || walk_template_args(walk));
    case 'r':
    case 'V':
    case 'K':
    case 'P':
    case 'R':
    case 'O':
    case 'C':
    case 'G':
        walk->at++;
        return walk_type(walk);
    case 'U':
        if (walk->at[1] == 'l' || walk->at[1] == 't')
            return walk_name(walk, &ignored);
        walk->at++;
        return walk_source_name(walk) && (*walk->at != 'I' || walk_template_args(walk)) &&
               walk_type(walk);
    case 'F':
        return walk_function_type(walk);
    case 'A':
        walk->at++;
        if (isdigit((unsigned char)*walk->at))
            walk_digits(walk);
        else if (*walk->at != '_' && !walk_expression(walk))
            return false;
        return take(walk, '_') && walk_type(walk);
    case 'M':
        walk->at++;
        return walk_type(walk) && walk_type(walk);
    case 'T':
        if (walk->at[1] != '\0' && strchr("sue", walk->at[1]) != NULL) { // struct, union, enum
            walk->at += 2;
            return walk_name(walk, &ignored);
        }
        return walk_template_param(walk) && (*walk->at != 'I' || walk_template_args(walk));
    case 'D':
        return walk_d_type(walk);
    default:
        return walk_name(walk, &ignored);
    }
}

static bool
walk_type(struct walk *walk)
{
    if (walk->depth >= MAX_DEPTH)
        return false;
    walk->depth++;
    bool ok = type_at(walk);
    walk->depth--;
    return ok;
}

static bool
walk_expressions_to_end(struct walk *walk)
{
    while (*walk->at != 'E')
        if (!walk_expression(walk))
            return false;
    walk->at++;
    return true;
}

// L <type> <value> E, or L _Z <encoding> E
static bool
walk_literal(struct walk *walk)
{
    walk->at++;
    if (take2(walk, "_Z") || take(walk, 'Z'))
        return walk_encoding(walk) && take(walk, 'E');
    if (!walk_type(walk))
        return false;
    while (isdigit((unsigned char)*walk->at) || (*walk->at >= 'a' && *walk->at <= 'f') ||
           *walk->at == 'n' || *walk->at == '_')
        walk->at++;
    return take(walk, 'E');
}

static bool
walk_scoped(struct walk *walk) // behind "sr"
{
    struct qualifiers ignored;
    bool many = take(walk, 'N');
    if (!walk_type(walk))
        return false;
    if (many) {
        while (*walk->at != 'E')
            if (!walk_source_name(walk) || (*walk->at == 'I' && !walk_template_args(walk)))
                return false;
        walk->at++;
    }
    if (!many)
        take(walk, 'E'); // clang closes the qualifiers in either case
    take2(walk, "on");   // the operator's letters follow
    return walk_name(walk, &ignored);
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
walk_allocation(struct walk *walk) // behind "nw" and "na"
{
    while (*walk->at != '_')
        if (!walk_expression(walk))
            return false;
    walk->at++;
    if (!walk_type(walk))
        return false;
    return take(walk, 'E') || (take2(walk, "pi") && walk_expressions_to_end(walk)) ||
           walk_expression(walk);
}

static bool
walk_function_param(struct walk *walk) // behind "fp" and "fL<level>p"
{
    if (take(walk, 'T'))
        return true;
    while (*walk->at != '\0' && strchr("rVK", *walk->at) != NULL)
        walk->at++;
    walk_digits(walk);
    return take(walk, '_');
}

static bool
expression_at(struct walk *walk)
{
    struct qualifiers ignored;
    if (*walk->at == 'L')
        return walk_literal(walk);
    if (*walk->at == 'T')
        return walk_template_param(walk);
    if (isdigit((unsigned char)*walk->at)) // a dependent function's name
        return walk_name(walk, &ignored);
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
        return walk_type(walk) && walk_expressions_to_end(walk);
    if (take2(walk, "cv"))
        return walk_type(walk) &&
               (take(walk, '_') ? walk_expressions_to_end(walk) : walk_expression(walk));
    if (take2(walk, "nw") || take2(walk, "na"))
        return walk_allocation(walk);
    if (take2(walk, "st") || take2(walk, "at") || take2(walk, "ti"))
        return walk_type(walk);
    if (take2(walk, "sc") || take2(walk, "dc") || take2(walk, "rc") || take2(walk, "cc"))
        return walk_type(walk) && walk_expression(walk);
    if (take2(walk, "dt") || take2(walk, "pt"))
        return walk_expression(walk) && walk_expression(walk);
    if (take2(walk, "sZ"))
        return *walk->at == 'T' ? walk_template_param(walk) : walk_expression(walk);
    if (take2(walk, "sP")) {
        while (*walk->at != 'E')
            if (!walk_template_arg(walk))
                return false;
        walk->at++;
        return true;
    }
    if (take2(walk, "tr"))
        return true;
    if (take2(walk, "on") || take2(walk, "dn"))
        return walk_name(walk, &ignored);
    if (take2(walk, "fl") || take2(walk, "fr"))
        return walk_operator(walk) && walk_expression(walk);
    if (take2(walk, "fL") || take2(walk, "fR"))
        return walk_operator(walk) && walk_expression(walk) && walk_expression(walk);
    if (!islower((unsigned char)walk->at[0]) || !isalpha((unsigned char)walk->at[1]))
        return false;
    int count = operands(walk->at);
    walk->at += 2;
    if (count == 1)
        take(walk, '_'); // prefix ++ and --
    for (int i = 0; i < count; i++)
        if (!walk_expression(walk))
            return false;
    return true;
}

static bool
walk_expression(struct walk *walk)
{
    if (walk->depth >= MAX_DEPTH)
        return false;
    walk->depth++;
    bool ok = expression_at(walk);
    walk->depth--;
    return ok;
}

long
opd_demangle_cpp_name(const char *mangled, char *name, size_t capacity)
{
    if (strncmp(mangled, "_Z", 2) != 0)
        return -EINVAL;
    size_t length = strnlen(mangled, MAX_MANGLED);
    if (length == MAX_MANGLED || length >= capacity)
        return -E2BIG;
    struct walk walk = {.at = mangled + 2};
    struct qualifiers drop = {NULL, 0};
    const char *end;
    if (*walk.at == 'T' || *walk.at == 'G') {
        // A thunk, a table, a guard: it has its own words, printed as they are.
        end = strchr(mangled, '.');
        if (end == NULL)
            end = mangled + length;
    } else if (walk_name(&walk, &drop)) {
        end = walk.at;
    } else {
        return -EINVAL;
    }
    size_t head = drop.start != NULL ? (size_t)(drop.start - mangled) : (size_t)(end - mangled);
    memcpy(name, mangled, head);
    size_t written = head;
    if (drop.start != NULL) {
        const char *rest = drop.start + drop.length;
        memcpy(name + head, rest, (size_t)(end - rest));
        written += (size_t)(end - rest);
    }
    name[written] = '\0';
    return (long)written;
}

typedef char *printer_function(const char *mangled, char *buffer, size_t *length, int *status);

static printer_function *printer;
static pthread_once_t printer_once = PTHREAD_ONCE_INIT;

static void
load_printer(void)
{
    static const char *const libraries[] = {"libstdc++.so.6", "libc++abi.so.1"};
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0] && printer == NULL; i++) {
        void *library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
        if (library != NULL)
            *(void **)&printer = dlsym(library, "__cxa_demangle");
    }
}

// How many characters may come out at most, if every back-reference is used to
// multiply: k references in each of n/k nested arguments make k^(n/k), most of
// all for k = 3. Real names (268,001 of LLVM, clang, z3, libstdc++, the JVM)
// have up to 41 references, 99.9 % of them 30.
static double
most_output(const char *mangled)
{
    unsigned references = 0;
    for (const char *at = mangled; *at != '\0'; at++)
        references += (at[0] == 'S' || at[0] == 'T') && (at[1] == '_' || at[2] == '_');
    double most = (double)strlen(mangled);
    for (; references >= 3; references -= 3)
        most *= 3;
    return most;
}

// The printer knows no limit but that of memory: a name that may become long
// gets one of its own. One that could keep it busy for seconds is not printed.
static char *
print_within(const char *mangled, int *status)
{
    double most = most_output(mangled);
    if (most > MOST_OUTPUT) {
        *status = -1;
        return NULL;
    }
    if (most < PRINTER_MEMORY / 4)
        return printer(mangled, NULL, NULL, status);
    unsigned long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "re");
    bool known = statm != NULL && fscanf(statm, "%lu", &pages) == 1;
    if (statm != NULL)
        fclose(statm);
    struct rlimit before, within;
    if (!known || getrlimit(RLIMIT_AS, &before) < 0)
        return NULL;
    within = before;
    rlim_t limit = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + PRINTER_MEMORY;
    if (limit < within.rlim_cur)
        within.rlim_cur = limit;
    if (setrlimit(RLIMIT_AS, &within) < 0)
        return NULL;
    char *text = printer(mangled, NULL, NULL, status);
    setrlimit(RLIMIT_AS, &before);
    return text;
}

long
demangle_cpp(const char *mangled, char *name, size_t capacity)
{
    char cut[MAX_MANGLED];
    long length = opd_demangle_cpp_name(mangled, cut, sizeof cut);
    if (length < 0)
        return length;
    pthread_once(&printer_once, load_printer);
    if (printer == NULL)
        return -ENOSYS;
    int status = 0;
    char *text = print_within(cut, &status);
    if (text == NULL)
        return status == -1 ? -E2BIG : -EINVAL;
    length = (long)strnlen(text, capacity);
    if ((size_t)length < capacity)
        memcpy(name, text, (size_t)length + 1);
    else
        length = -E2BIG;
    free(text);
    return length;
}
