// SPDX-License-Identifier: Apache-2.0
// The functional suite finds nothing wrong with libc, and what is wrong with others.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "opd/dto_functional.h"
#include "t.h"

static struct opd_dto_functional_options
usual(void)
{
    return (struct opd_dto_functional_options){
        .functions = {memcpy, memmove, memset, memcmp},
        .threshold = 4096,
        .largest = 10000,
        .threads = 3,
        .random = 10,
        .parts = (1 << OPD_DTO_PARTS) - 1,
        .limit_ns = 60000000000,
    };
}

static void
right(void)
{
    struct opd_dto_functional_options options = usual();
    struct opd_dto_functional out;
    char text[256];
    CHECK(opd_dto_functional(&options, &out) == 0);
    opd_dto_functional_text(&out, text, sizeof(text));
    CHECK(!out.differences && !strcmp(text, "no difference"));
    uint64_t sum = 0;
    for (int part = 0; part < OPD_DTO_PARTS; part++) {
        CHECK(out.by_part[part] > 0);
        sum += out.by_part[part];
    }
    CHECK(sum == out.cases && sum > 3000);
}

static void *
short_by_one(void *to, const void *from, size_t n)
{
    memcpy(to, from, n > 5000 ? n - 1 : n);
    return to;
}

static void *
dies(void *to, int value, size_t n)
{
    if (n == 4097)
        abort();
    return memset(to, value, n);
}

static int
no_sign(const void *a, const void *b, size_t n)
{
    return memcmp(a, b, n) != 0;
}

static void
wrong(void)
{
    struct opd_dto_functional_options options = usual();
    struct opd_dto_functional out;
    char text[256];
    options.functions = (struct opd_dto_functions){.copy = short_by_one};
    CHECK(opd_dto_functional(&options, &out) == 0 && out.wrong == OPD_DTO_WRONG_BYTE);
    CHECK(out.first.size > 5000 && out.first.at == out.first.size - 1);
    CHECK(out.by_op[OPD_DTO_MEMMOVE] == 0 && out.by_op[OPD_DTO_MEMCPY] > 0);
    options.functions = (struct opd_dto_functions){.set = dies};
    options.parts = 1 << OPD_DTO_SIZES;
    CHECK(opd_dto_functional(&options, &out) == 0 && out.differences == 1);
    CHECK(out.wrong == OPD_DTO_DIED && out.signal == 6 && out.first.size == 4097);
    opd_dto_functional_text(&out, text, sizeof(text));
    CHECK(strstr(text, "memset of 4097 bytes") && strstr(text, "signal 6"));
    options.functions = (struct opd_dto_functions){.compare = no_sign};
    CHECK(opd_dto_functional(&options, &out) == 0 && out.wrong == OPD_DTO_WRONG_SIGN);
    CHECK(out.first.wanted == -1 && out.first.got == 1);
}

static void
refusals(void)
{
    struct opd_dto_functional out;
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        struct opd_dto_functional_options options = usual();                                       \
        change;                                                                                    \
        CHECK(opd_dto_functional(&options, &out) == -EINVAL);                                      \
    } while (0)
    REFUSED(options.threads = 0);
    REFUSED(options.threads = 65);
    REFUSED(options.random = 0);
    REFUSED(options.parts = 0);
    REFUSED(options.parts = 1 << OPD_DTO_PARTS);
    REFUSED(options.largest = 63);
    REFUSED(options.largest = 1ull << 40);
    REFUSED(options.limit_ns = 0);
}

int
main(void)
{
    RUN(right);
    RUN(wrong);
    RUN(refusals);
    return 0;
}
