// SPDX-License-Identifier: Apache-2.0
// One case of the functional suite, the tables of them, and a case in words.
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dto_functional_private.h"

static const uint64_t some_sizes[] = {0,   1,   2,   3,    7,    8,    9,    15,   16,  17,  31,
                                      32,  33,  63,  64,   65,   127,  128,  129,  255, 256, 257,
                                      511, 512, 513, 1023, 1024, 1025, 4095, 4096, 4097};

static const char *const op_names[] = {"memcpy", "memmove", "memset", "memcmp"};
static const char *const part_names[] = {"sizes",   "offsets", "overlap", "edges",
                                         "threads", "signals", "forks"};

int
dto_arena_make(struct dto_arena *arena, uint64_t largest)
{
    // Two operands, room around each, and a page behind that is none.
    uint64_t page = DTO_GUARD, room = (2 * largest + 8 * page) / page * page;
    unsigned char *memory =
        mmap(NULL, 3 * room + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return -errno;
    *arena = (struct dto_arena){memory, memory + room + page, memory + 2 * (room + page), room};
    mprotect(arena->subject + room, page, PROT_NONE);
    mprotect(arena->oracle + room, page, PROT_NONE);
    uint64_t state = 88172645463325252u;
    for (uint64_t i = 0; i < room; i += 8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(arena->pristine + i, &state, 8);
    }
    return 0;
}

static int
by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

uint32_t
dto_functional_sizes(const struct opd_dto_functional_options *options,
                     uint64_t sizes[DTO_SIZES_MOST])
{
    uint32_t count = sizeof(some_sizes) / sizeof(*some_sizes);
    memcpy(sizes, some_sizes, sizeof(some_sizes));
    uint64_t bounds[] = {options->threshold / 2, options->threshold, options->threshold * 2,
                         options->largest - 1, options->largest / 2};
    for (size_t i = 0; i < sizeof(bounds) / sizeof(*bounds); i++)
        for (int step = -1; step <= 1; step++)
            sizes[count++] = bounds[i] + (uint64_t)step;
    qsort(sizes, count, sizeof(*sizes), by_value);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (sizes[i] <= options->largest && (!kept || sizes[i] != sizes[kept - 1]))
            sizes[kept++] = sizes[i];
    return kept;
}

static void
tell(struct dto_told *told, const struct opd_dto_case *one, uint32_t wrong, int signal)
{
    uint32_t none = 0;
    __atomic_fetch_add(&told->result.differences, 1, __ATOMIC_RELAXED);
    if (!atomic_compare_exchange_strong(&told->first, &none, 1))
        return;
    told->result.wrong = wrong;
    told->result.signal = (uint32_t)signal;
    told->result.first = *one;
}

void
dto_told_gone(struct dto_told *told, int process, int signal)
{
    struct opd_dto_case one = {.op = OPD_DTO_OPS};
    for (uint32_t i = 0; i < DTO_SLOTS; i++)
        if (told->slots[i].busy && told->slots[i].process == process) {
            one = told->slots[i].one;
            told->slots[i].busy = 0;
            break;
        }
    tell(told, &one, signal ? OPD_DTO_DIED : OPD_DTO_HUNG, signal);
}

static int
sign(int value)
{
    return (value > 0) - (value < 0);
}

static bool
has(const struct opd_dto_functions *f, uint32_t op)
{
    switch (op) {
    case OPD_DTO_MEMCPY:
        return f->copy;
    case OPD_DTO_MEMMOVE:
        return f->move;
    case OPD_DTO_MEMSET:
        return f->set;
    default:
        return f->compare;
    }
}

// Where the first byte differs. `none` when none does.
static uint64_t
first_difference(const unsigned char *a, const unsigned char *b, uint64_t from, uint64_t to,
                 uint64_t none)
{
    if (!memcmp(a + from, b + from, to - from))
        return none;
    while (a[from] == b[from])
        from++;
    return from;
}

static bool
judged(struct dto_told *told, const struct dto_arena *arena, struct opd_dto_case *one, bool pointer)
{
    uint64_t low = one->to < one->from ? one->to : one->from;
    uint64_t high = (one->to > one->from ? one->to : one->from) + one->size + DTO_GUARD;
    uint64_t begin = low > DTO_GUARD ? low - DTO_GUARD : 0;
    uint64_t end = high < arena->room ? high : arena->room;
    uint64_t at = first_difference(arena->subject, arena->oracle, begin, end, UINT64_MAX);
    if (at != UINT64_MAX) {
        one->at = at - one->to;
        one->wanted = arena->oracle[at];
        one->got = arena->subject[at];
        tell(told, one, OPD_DTO_WRONG_BYTE, 0);
        return false;
    }
    if (one->op == OPD_DTO_MEMCMP && one->wanted != one->got) {
        tell(told, one, OPD_DTO_WRONG_SIGN, 0);
        return false;
    }
    if (!pointer)
        tell(told, one, OPD_DTO_WRONG_POINTER, 0);
    return pointer;
}

// Takes a place in which the case stands while it runs.
static struct dto_slot *
say(struct dto_told *told, const struct opd_dto_case *one)
{
    for (uint32_t i = 0; i < DTO_SLOTS; i++) {
        uint32_t not_busy = 0;
        struct dto_slot *slot = &told->slots[(one->thread * 2 + i) % DTO_SLOTS];
        if (atomic_compare_exchange_strong(&slot->busy, &not_busy, 1)) {
            slot->one = *one;
            slot->process = getpid();
            return slot;
        }
    }
    return NULL; // more threads and handlers than places: those are not named
}

bool
dto_functional_case(const struct opd_dto_functional_options *options, struct dto_told *told,
                    struct dto_arena *arena, const struct opd_dto_case *asked)
{
    const struct opd_dto_functions *f = &options->functions;
    struct opd_dto_case one = *asked;
    if (!has(f, one.op))
        return true;
    unsigned char *a = arena->subject, *b = arena->oracle;
    uint64_t low = one.to < one.from ? one.to : one.from;
    uint64_t high = (one.to > one.from ? one.to : one.from) + one.size + DTO_GUARD;
    uint64_t begin = low > DTO_GUARD ? low - DTO_GUARD : 0;
    uint64_t end = high < arena->room ? high : arena->room;
    memcpy(a + begin, arena->pristine + begin, end - begin);
    memcpy(b + begin, arena->pristine + begin, end - begin);
    bool pointer = true;
    if (one.op == OPD_DTO_MEMCMP) {
        // The same, but for one byte, and the one behind, which must not count.
        memcpy(a + one.to, a + one.from, one.size);
        if (one.aux < one.size)
            a[one.to + one.aux] ^= one.aux % 2 ? 0x80 : 1;
        if (one.to + one.size < end)
            a[one.to + one.size] ^= 1;
        memcpy(b + begin, a + begin, end - begin);
    }
    struct dto_slot *slot = say(told, &one);
    switch (one.op) {
    case OPD_DTO_MEMCPY:
        pointer = f->copy(a + one.to, a + one.from, one.size) == a + one.to;
        memcpy(b + one.to, b + one.from, one.size);
        break;
    case OPD_DTO_MEMMOVE:
        pointer = f->move(a + one.to, a + one.from, one.size) == a + one.to;
        memmove(b + one.to, b + one.from, one.size);
        break;
    case OPD_DTO_MEMSET:
        pointer = f->set(a + one.to, (int)one.aux, one.size) == a + one.to;
        memset(b + one.to, (int)one.aux, one.size);
        break;
    default:
        one.got = sign(f->compare(a + one.to, a + one.from, one.size));
        one.wanted = sign(memcmp(b + one.to, b + one.from, one.size));
    }
    if (slot)
        slot->busy = 0;
    __atomic_fetch_add(&told->result.cases, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&told->result.by_part[one.part], 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&told->result.by_op[one.op], 1, __ATOMIC_RELAXED);
    return judged(told, arena, &one, pointer);
}

struct table {
    const struct opd_dto_functional_options *options;
    struct dto_told *told;
    struct dto_arena *arena;
    uint32_t part;
    bool right;
};

static void
add(struct table *table, uint32_t op, uint64_t size, uint64_t to, uint64_t from, uint64_t aux)
{
    struct opd_dto_case one = {
        .part = table->part, .op = op, .size = size, .to = to, .from = from, .aux = aux};
    table->right &= dto_functional_case(table->options, table->told, table->arena, &one);
}

static void
each_op(struct table *table, uint64_t size, uint64_t to, uint64_t from)
{
    add(table, OPD_DTO_MEMCPY, size, to, from, 0);
    add(table, OPD_DTO_MEMMOVE, size, to, from, 0);
    add(table, OPD_DTO_MEMSET, size, to, to, 0x1a5); // of an int, its low byte counts
    add(table, OPD_DTO_MEMSET, size, to, to, 0);
    const uint64_t differ[] = {size, 0, size / 2, size ? size - 1 : 0};
    for (int i = 0; i < 4; i++)
        add(table, OPD_DTO_MEMCMP, size, to, from, differ[i]);
}

static void
overlaps(struct table *table, uint64_t size)
{
    const uint64_t apart[] = {0, 1, 7, 16, 63, 64, 4096, 4097, size / 2, size ? size - 1 : 0, size};
    for (size_t i = 0; i < sizeof(apart) / sizeof(*apart); i++) {
        if (apart[i] > size)
            continue;
        for (uint64_t shift = 0; shift < 2; shift++) {
            uint64_t low = DTO_GUARD + shift * 13;
            add(table, OPD_DTO_MEMMOVE, size, low + apart[i], low, 0);
            add(table, OPD_DTO_MEMMOVE, size, low, low + apart[i], 0);
        }
    }
}

bool
dto_functional_table(const struct opd_dto_functional_options *options, struct dto_told *told,
                     struct dto_arena *arena, uint32_t part)
{
    static const uint64_t offsets[] = {0, 1, 7, 8, 31, 33, 63, 4095};
    enum { OFFSETS = sizeof(offsets) / sizeof(*offsets) };
    struct table table = {options, told, arena, part, true};
    uint64_t sizes[DTO_SIZES_MOST];
    uint32_t count = dto_functional_sizes(options, sizes);
    for (uint32_t i = 0; i < count && table.right; i++) {
        uint64_t size = sizes[i], guard = DTO_GUARD;
        uint64_t second = (guard + size + 2 * guard - 1) / guard * guard + guard;
        switch (part) {
        case OPD_DTO_SIZES:
            each_op(&table, size, guard, second);
            break;
        case OPD_DTO_OFFSETS:
            for (int k = 1; k < OFFSETS && table.right; k++) {
                each_op(&table, size, guard + offsets[k], second);
                each_op(&table, size, guard, second + offsets[k]);
                each_op(&table, size, guard + offsets[k], second + offsets[OFFSETS - k]);
            }
            break;
        case OPD_DTO_OVERLAP:
            overlaps(&table, size);
            break;
        default: // each operand once at the very end
            each_op(&table, size, guard, arena->room - size);
            each_op(&table, size, arena->room - size, guard);
        }
    }
    return table.right;
}

int
opd_dto_functional_text(const struct opd_dto_functional *result, char *text, size_t room)
{
    const struct opd_dto_case *one = &result->first;
    if (!result->differences)
        return snprintf(text, room, "no difference");
    char what[160] = "before its first case";
    if (one->op == OPD_DTO_MEMSET)
        snprintf(what, sizeof(what), "memset of %llu bytes to %#llx, offset %llu",
                 (unsigned long long)one->size, (unsigned long long)one->aux,
                 (unsigned long long)one->to % DTO_GUARD);
    else if (one->op < OPD_DTO_OPS)
        snprintf(what, sizeof(what), "%s of %llu bytes, offsets %llu and %llu, %lld apart",
                 op_names[one->op], (unsigned long long)one->size,
                 (unsigned long long)one->to % DTO_GUARD, (unsigned long long)one->from % DTO_GUARD,
                 (long long)(one->to - one->from));
    char how[160];
    switch (result->wrong) {
    case OPD_DTO_WRONG_BYTE:
        snprintf(how, sizeof(how), "byte %lld is 0x%02x, libc's is 0x%02x", (long long)one->at,
                 (unsigned)one->got, (unsigned)one->wanted);
        break;
    case OPD_DTO_WRONG_SIGN:
        snprintf(how, sizeof(how), "the sign is %d, libc's is %d (they differ %s)", one->got,
                 one->wanted, one->aux < one->size ? "in one byte" : "behind their end only");
        break;
    case OPD_DTO_WRONG_POINTER:
        snprintf(how, sizeof(how), "it does not return its destination");
        break;
    case OPD_DTO_DIED:
        snprintf(how, sizeof(how), "ended by signal %u (%s)", result->signal,
                 strsignal((int)result->signal));
        break;
    default:
        snprintf(how, sizeof(how), "it did not end in time");
    }
    return snprintf(text, room, "%s: %s: %s", part_names[one->part % OPD_DTO_PARTS], what, how);
}
