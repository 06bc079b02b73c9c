// SPDX-License-Identifier: Apache-2.0
// The words of a v0 name: numbers of base 62 and identifiers, with punycode.
#include "demangle_rust.h"

#include <ctype.h>
#include <string.h>

uint64_t
opd_rust_base62(struct rust_parser *parser)
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

uint64_t
opd_rust_optional62(struct rust_parser *parser, char tag)
{
    if (!take(parser, tag))
        return 0;
    uint64_t value = opd_rust_base62(parser);
    return parser->failed || value == UINT64_MAX ? fail(parser) : value + 1;
}

struct rust_identifier
opd_rust_take_identifier(struct rust_parser *parser)
{
    struct rust_identifier identifier = {"", 0, take(parser, 'u')};
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
decode_punycode(const struct rust_identifier *identifier, uint32_t *characters, size_t *count)
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

void
opd_rust_put_identifier(struct rust_parser *parser, const struct rust_identifier *identifier)
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
