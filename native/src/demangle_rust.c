// SPDX-License-Identifier: Apache-2.0
// Rust's v0 names (RFC 2603). Crate disambiguators are not printed.
#include "demangle_private.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define MAX_DEPTH 128
#define MAX_STEPS 20000 // back-references can make a short name print for ever

struct parser {
    const char *start; // behind "_R"
    const char *at;
    struct demangled *output;
    unsigned depth, steps;
    uint64_t lifetimes; // bound by the binders around
    bool silent;        // parse only
    bool failed;
};

static void print_path(struct parser *parser, bool in_value);
static void print_type(struct parser *parser);
static void print_const(struct parser *parser, bool in_value);

static void
emit(struct parser *parser, const char *text)
{
    if (!parser->silent && !parser->failed)
        demangle_put(parser->output, text);
}

static bool
fail(struct parser *parser)
{
    parser->failed = true;
    return false;
}

static bool
take(struct parser *parser, char c)
{
    if (parser->failed || *parser->at != c)
        return false;
    parser->at++;
    return true;
}

static char
next(struct parser *parser)
{
    if (parser->failed || *parser->at == '\0') {
        parser->failed = true;
        return '\0';
    }
    return *parser->at++;
}

// "_" is 0, "<base 62>_" one more than the number.
static uint64_t
base62(struct parser *parser)
{
    uint64_t value = 0;
    if (take(parser, '_'))
        return 0;
    while (!parser->failed && !take(parser, '_')) {
        char c = next(parser);
        unsigned digit;
        if (c >= '0' && c <= '9')
            digit = (unsigned)(c - '0');
        else if (c >= 'a' && c <= 'z')
            digit = (unsigned)(c - 'a') + 10;
        else if (c >= 'A' && c <= 'Z')
            digit = (unsigned)(c - 'A') + 36;
        else
            return fail(parser);
        if (value > (UINT64_MAX - digit) / 62)
            return fail(parser);
        value = value * 62 + digit;
    }
    return value == UINT64_MAX ? fail(parser) : value + 1;
}

static uint64_t
optional62(struct parser *parser, char tag)
{
    if (!take(parser, tag))
        return 0;
    uint64_t value = base62(parser);
    return parser->failed || value == UINT64_MAX ? fail(parser) : value + 1;
}

struct identifier {
    const char *text;
    size_t length;
    bool punycode;
};

static struct identifier
take_identifier(struct parser *parser)
{
    struct identifier identifier = {"", 0, take(parser, 'u')};
    size_t length = 0;
    if (parser->failed || !isdigit((unsigned char)*parser->at)) {
        fail(parser);
        return identifier;
    }
    if (*parser->at == '0')
        parser->at++;
    else
        while (isdigit((unsigned char)*parser->at) && length < OPD_DEMANGLE_MAX)
            length = length * 10 + (size_t)(*parser->at++ - '0');
    take(parser, '_');
    if (strnlen(parser->at, length) < length) {
        fail(parser);
        return identifier;
    }
    identifier.text = parser->at;
    identifier.length = length;
    parser->at += length;
    return identifier;
}

#define MAX_PUNYCODE 128

// RFC 3492 with "_" as the delimiter; false: print it as it is.
static bool
decode_punycode(const struct identifier *identifier, uint32_t *characters, size_t *count)
{
    const char *text = identifier->text, *end = text + identifier->length;
    const char *delimiter = memrchr(text, '_', identifier->length);
    size_t n = 0;
    if (delimiter != NULL) {
        if ((size_t)(delimiter - text) > MAX_PUNYCODE)
            return false;
        for (; text < delimiter; text++)
            characters[n++] = (unsigned char)*text;
        text++;
    }
    uint64_t code = 128, i = 0, bias = 72;
    bool first = true;
    while (text < end) {
        uint64_t old = i, weight = 1;
        for (uint64_t k = 36;; k += 36) {
            if (text == end)
                return false;
            char c = *text++;
            uint64_t digit;
            if (c >= 'a' && c <= 'z')
                digit = (uint64_t)(c - 'a');
            else if (c >= '0' && c <= '9')
                digit = (uint64_t)(c - '0') + 26;
            else
                return false;
            i += digit * weight;
            uint64_t threshold = k <= bias ? 1 : k >= bias + 26 ? 26 : k - bias;
            if (digit < threshold)
                break;
            weight *= 36 - threshold;
            if (weight > UINT32_MAX || i > UINT32_MAX)
                return false;
        }
        if (n >= MAX_PUNYCODE)
            return false;
        uint64_t delta = first ? (i - old) / 700 : (i - old) / 2, k = 0;
        first = false;
        delta += delta / (n + 1);
        for (; delta > 455; k += 36)
            delta /= 35;
        bias = k + 36 * delta / (delta + 38);
        code += i / (n + 1);
        i %= n + 1;
        if (code >= 0x110000 || !demangle_is_character((uint32_t)code))
            return false;
        memmove(characters + i + 1, characters + i, (n - i) * sizeof *characters);
        characters[i++] = (uint32_t)code;
        n++;
    }
    *count = n;
    return true;
}

static void
put_identifier(struct parser *parser, const struct identifier *identifier)
{
    uint32_t characters[MAX_PUNYCODE + 1];
    size_t count;
    if (parser->silent || parser->failed)
        return;
    if (identifier->punycode && decode_punycode(identifier, characters, &count)) {
        for (size_t i = 0; i < count; i++)
            demangle_put_character(parser->output, characters[i]);
        return;
    }
    if (identifier->punycode)
        demangle_put(parser->output, "punycode{");
    demangle_put_bytes(parser->output, identifier->text, identifier->length);
    if (identifier->punycode)
        demangle_put(parser->output, "}");
}

static void
emit_number(struct parser *parser, uint64_t value)
{
    if (!parser->silent && !parser->failed)
        demangle_put_number(parser->output, value);
}

static bool
enter(struct parser *parser)
{
    if (parser->failed || parser->depth >= MAX_DEPTH || parser->steps++ >= MAX_STEPS ||
        parser->output->full)
        return fail(parser);
    parser->depth++;
    return true;
}

// Behind "B": prints what stands at an earlier place. `print` gets in_value.
static void
print_back_reference(struct parser *parser, void (*print)(struct parser *, bool), bool in_value)
{
    const char *tag = parser->at - 1;
    uint64_t back = base62(parser);
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

static void
print_type_2(struct parser *parser, bool in_value)
{
    (void)in_value;
    print_type(parser);
}

static void
print_lifetime(struct parser *parser, uint64_t index)
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

static void
print_generic_arg(struct parser *parser)
{
    if (take(parser, 'L'))
        print_lifetime(parser, base62(parser));
    else if (take(parser, 'K'))
        print_const(parser, false);
    else
        print_type(parser);
}

// Up to the E; how many.
static size_t
print_list(struct parser *parser, void (*print)(struct parser *), const char *separator)
{
    size_t count = 0;
    while (!parser->failed && !take(parser, 'E')) {
        if (count++ > 0)
            emit(parser, separator);
        print(parser);
    }
    return count;
}

static void
print_nested(struct parser *parser, bool in_value)
{
    char space = next(parser);
    if (!isalpha((unsigned char)space)) {
        parser->failed = true;
        return;
    }
    print_path(parser, in_value);
    uint64_t number = optional62(parser, 's');
    struct identifier identifier = take_identifier(parser);
    if (isupper((unsigned char)space)) {
        char tag[2] = {space, '\0'};
        emit(parser, "::{");
        emit(parser, space == 'C' ? "closure" : space == 'S' ? "shim" : tag);
        if (identifier.length > 0) {
            emit(parser, ":");
            put_identifier(parser, &identifier);
        }
        emit(parser, "#");
        emit_number(parser, number);
        emit(parser, "}");
    } else if (identifier.length > 0) {
        emit(parser, "::");
        put_identifier(parser, &identifier);
    }
}

static void
path_at(struct parser *parser, bool in_value)
{
    char tag = next(parser);
    bool silent = parser->silent;
    switch (tag) {
    case 'C': {
        optional62(parser, 's');
        struct identifier identifier = take_identifier(parser);
        put_identifier(parser, &identifier);
        return;
    }
    case 'N':
        print_nested(parser, in_value);
        return;
    case 'M':
    case 'X':
        // The path of the impl itself is not printed.
        optional62(parser, 's');
        parser->silent = true;
        print_path(parser, in_value);
        parser->silent = silent;
        // fall through
    case 'Y':
        emit(parser, "<");
        print_type(parser);
        if (tag != 'M') {
            emit(parser, " as ");
            print_path(parser, false);
        }
        emit(parser, ">");
        return;
    case 'I':
        print_path(parser, in_value);
        emit(parser, in_value ? "::<" : "<");
        print_list(parser, print_generic_arg, ", ");
        emit(parser, ">");
        return;
    case 'B':
        print_back_reference(parser, print_path, in_value);
        return;
    default:
        parser->failed = true;
    }
}

static void
print_path(struct parser *parser, bool in_value)
{
    if (!enter(parser))
        return;
    path_at(parser, in_value);
    parser->depth--;
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
print_binder(struct parser *parser)
{
    uint64_t bound = optional62(parser, 'G');
    if (parser->failed || bound == 0)
        return 0;
    if (bound > 1000) // more than a name can hold
        return fail(parser);
    emit(parser, "for<");
    for (uint64_t i = 0; i < bound; i++) {
        if (i > 0)
            emit(parser, ", ");
        parser->lifetimes++;
        print_lifetime(parser, 1);
    }
    emit(parser, "> ");
    return bound;
}

static void
print_function(struct parser *parser)
{
    uint64_t bound = print_binder(parser);
    if (take(parser, 'U'))
        emit(parser, "unsafe ");
    if (take(parser, 'K')) {
        emit(parser, "extern \"");
        if (take(parser, 'C')) {
            emit(parser, "C");
        } else {
            struct identifier abi = take_identifier(parser);
            for (size_t i = 0; i < abi.length; i++) {
                char c[2] = {abi.text[i] == '_' ? '-' : abi.text[i], '\0'};
                emit(parser, c);
            }
        }
        emit(parser, "\" ");
    }
    emit(parser, "fn(");
    print_list(parser, print_type, ", ");
    emit(parser, ")");
    if (!take(parser, 'u')) {
        emit(parser, " -> ");
        print_type(parser);
    }
    parser->lifetimes -= bound;
}

// A trait of a dyn type: its bindings go into the trait's own list.
static void
print_trait(struct parser *parser)
{
    bool open = false;
    if (*parser->at == 'I') {
        parser->at++;
        print_path(parser, false);
        emit(parser, "<");
        print_list(parser, print_generic_arg, ", ");
        open = true;
    } else {
        print_path(parser, false);
    }
    while (take(parser, 'p')) {
        emit(parser, open ? ", " : "<");
        open = true;
        struct identifier identifier = take_identifier(parser);
        put_identifier(parser, &identifier);
        emit(parser, " = ");
        print_type(parser);
    }
    if (open)
        emit(parser, ">");
}

static void
print_dyn(struct parser *parser)
{
    emit(parser, "dyn ");
    uint64_t bound = print_binder(parser);
    print_list(parser, print_trait, " + ");
    parser->lifetimes -= bound;
    if (!take(parser, 'L')) {
        parser->failed = true;
        return;
    }
    uint64_t lifetime = base62(parser);
    if (lifetime != 0) {
        emit(parser, " + ");
        print_lifetime(parser, lifetime);
    }
}

static void
type_at(struct parser *parser)
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
            uint64_t lifetime = base62(parser);
            if (lifetime != 0) {
                print_lifetime(parser, lifetime);
                emit(parser, " ");
            }
        }
        emit(parser, tag == 'Q' ? "mut " : "");
        print_type(parser);
        return;
    case 'P':
    case 'O':
        emit(parser, tag == 'P' ? "*const " : "*mut ");
        print_type(parser);
        return;
    case 'A':
    case 'S':
        emit(parser, "[");
        print_type(parser);
        if (tag == 'A') {
            emit(parser, "; ");
            print_const(parser, true);
        }
        emit(parser, "]");
        return;
    case 'T':
        emit(parser, "(");
        emit(parser, print_list(parser, print_type, ", ") == 1 ? ",)" : ")");
        return;
    case 'F':
        print_function(parser);
        return;
    case 'D':
        print_dyn(parser);
        return;
    case 'B':
        print_back_reference(parser, print_type_2, false);
        return;
    default:
        parser->at -= parser->failed ? 0 : 1;
        print_path(parser, false);
    }
}

static void
print_type(struct parser *parser)
{
    if (!enter(parser))
        return;
    type_at(parser);
    parser->depth--;
}

// Hex digits up to "_": as a number when it fits, else as 0x….
static void
print_hex(struct parser *parser, char type)
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
print_const_2(struct parser *parser, bool in_value)
{
    print_const(parser, in_value);
}

static void
print_const(struct parser *parser, bool in_value)
{
    if (!enter(parser))
        return;
    char tag = next(parser);
    if (tag == 'p') {
        emit(parser, "_");
    } else if (tag == 'B') {
        print_back_reference(parser, print_const_2, in_value);
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

static long
demangle_v0(const char *mangled, char *name, size_t capacity)
{
    struct demangled output = {.text = name, .capacity = capacity};
    struct parser parser = {.start = mangled + 2, .at = mangled + 2, .output = &output};
    if (!isupper((unsigned char)*parser.at))
        return -EINVAL;
    print_path(&parser, true);
    if (!parser.failed && isupper((unsigned char)*parser.at)) {
        parser.silent = true; // the crate that instantiated it
        print_path(&parser, false);
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
