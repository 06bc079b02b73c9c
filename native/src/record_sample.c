// SPDX-License-Identifier: Apache-2.0
// The fields of a SAMPLE in the order in which the kernel writes them.
#include "record_internal.h"

#include <linux/perf_event.h>

// Newer than some uapi headers that we build with.
#define SAMPLE_WEIGHT_STRUCT (1u << 24)
#define FORMAT_LOST (1u << 4)
#define BRANCH_HW_INDEX (1u << 17)
#define BRANCH_COUNTERS (1u << 19)

// Fields of one word each at the start of a SAMPLE.
#define PREFIX                                                                                     \
    (PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME |                \
     PERF_SAMPLE_ADDR | PERF_SAMPLE_ID | PERF_SAMPLE_STREAM_ID | PERF_SAMPLE_CPU |                 \
     PERF_SAMPLE_PERIOD)
#define PREFIX_WORDS 9
// Everything that may follow the call chain.
#define AFTER_CHAIN                                                                                \
    (PERF_SAMPLE_RAW | PERF_SAMPLE_BRANCH_STACK | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER | \
     PERF_SAMPLE_WEIGHT | SAMPLE_WEIGHT_STRUCT | PERF_SAMPLE_DATA_SRC | PERF_SAMPLE_TRANSACTION |  \
     PERF_SAMPLE_REGS_INTR | PERF_SAMPLE_PHYS_ADDR | PERF_SAMPLE_CGROUP |                          \
     PERF_SAMPLE_DATA_PAGE_SIZE | PERF_SAMPLE_CODE_PAGE_SIZE | PERF_SAMPLE_AUX)

#define BRANCH_ENTRY_WORDS 3 // from, to, flags

// The cursor over the words of one sample.
struct words {
    const uint64_t *next;
    const uint64_t *end;
};

static inline uint64_t
left(const struct words *words)
{
    return (uint64_t)(words->end - words->next);
}

static inline bool
take(struct words *words, uint64_t *value)
{
    if (words->next == words->end)
        return false;
    *value = *words->next++;
    return true;
}

static inline bool
skip(struct words *words, uint64_t count)
{
    if (count > left(words))
        return false;
    words->next += count;
    return true;
}

static bool
skip_read(struct words *words, uint64_t format)
{
    uint64_t per_value = 1 + words_of(format & (PERF_FORMAT_ID | FORMAT_LOST));
    uint64_t times =
        words_of(format & (PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING));
    if (!(format & PERF_FORMAT_GROUP))
        return skip(words, times + per_value);
    uint64_t count;
    if (!take(words, &count) || !skip(words, times) || count > left(words) / per_value)
        return false;
    return skip(words, count * per_value);
}

static bool
take_registers(struct words *words, uint64_t mask, uint64_t *abi, const uint64_t **registers,
               uint32_t *count)
{
    if (!take(words, abi))
        return false;
    if (*abi == PERF_SAMPLE_REGS_ABI_NONE)
        return true;
    *registers = words->next;
    *count = words_of(mask);
    return skip(words, *count);
}

// An event that asked for the hardware index gets none when there was no
// branch stack at all, and one when the stack was empty: both say 0 entries.
// The caller tells which reading fills the record.
static bool
skip_branches(struct words *words, uint64_t branch_type, bool index_when_empty, bool *empty)
{
    uint64_t count;
    if (!take(words, &count))
        return false;
    *empty = count == 0;
    if ((branch_type & BRANCH_HW_INDEX) && (count > 0 || index_when_empty) && !skip(words, 1))
        return false;
    uint64_t per_entry = BRANCH_ENTRY_WORDS + (branch_type & BRANCH_COUNTERS ? 1 : 0);
    return count <= left(words) / per_entry && skip(words, count * per_entry);
}

static bool
take_raw(struct words *words, struct opd_record *record)
{
    if (left(words) == 0)
        return false;
    uint64_t size = first_half(words->next);
    if (size > left(words) * 8 - 4)
        return false;
    record->u.sample.raw = (const uint8_t *)words->next + 4;
    record->u.sample.raw_size = (uint32_t)size;
    return skip(words, (4 + size + 7) / 8);
}

static bool
take_stack(struct words *words, struct opd_record *record)
{
    uint64_t size, filled;
    if (!take(words, &size))
        return false;
    if (size == 0)
        return true;
    const uint8_t *bytes = (const uint8_t *)words->next;
    if (size % 8 != 0 || !skip(words, size / 8) || !take(words, &filled) || filled > size)
        return false;
    record->u.sample.stack_user = bytes;
    record->u.sample.stack_user_size = filled;
    return true;
}

static bool
parse_after_chain(const struct opd_record_layout *layout, struct words *words,
                  struct opd_record *record, bool index_when_empty, bool *branches_empty)
{
    const uint64_t type = layout->sample_type;
    uint32_t has = record->has;
    if (type & PERF_SAMPLE_RAW) {
        if (!take_raw(words, record))
            return false;
        has |= OPD_HAS_RAW;
    }
    if (type & PERF_SAMPLE_BRANCH_STACK) {
        if (!skip_branches(words, layout->branch_sample_type, index_when_empty, branches_empty))
            return false;
        has |= OPD_HAS_BRANCH_STACK;
    }
    if (type & PERF_SAMPLE_REGS_USER) {
        if (!take_registers(words, layout->sample_regs_user, &record->u.sample.regs_user_abi,
                            &record->u.sample.regs_user, &record->u.sample.regs_user_count))
            return false;
        has |= OPD_HAS_REGS_USER;
    }
    if (type & PERF_SAMPLE_STACK_USER) {
        if (!take_stack(words, record))
            return false;
        has |= OPD_HAS_STACK_USER;
    }
    if (type & (PERF_SAMPLE_WEIGHT | SAMPLE_WEIGHT_STRUCT)) {
        if (!take(words, &record->u.sample.weight))
            return false;
        has |= OPD_HAS_WEIGHT;
    }
    if (type & PERF_SAMPLE_DATA_SRC) {
        if (!take(words, &record->u.sample.data_src))
            return false;
        has |= OPD_HAS_DATA_SRC;
    }
    if (type & PERF_SAMPLE_TRANSACTION) {
        if (!take(words, &record->u.sample.transaction))
            return false;
        has |= OPD_HAS_TRANSACTION;
    }
    if (type & PERF_SAMPLE_REGS_INTR) {
        uint64_t abi;
        const uint64_t *registers;
        uint32_t count;
        if (!take_registers(words, layout->sample_regs_intr, &abi, &registers, &count))
            return false;
    }
    if (type & PERF_SAMPLE_PHYS_ADDR) {
        if (!take(words, &record->u.sample.phys_addr))
            return false;
        has |= OPD_HAS_PHYS_ADDR;
    }
    if (type & PERF_SAMPLE_CGROUP) {
        if (!take(words, &record->u.sample.cgroup))
            return false;
        has |= OPD_HAS_CGROUP;
    }
    if (type & PERF_SAMPLE_DATA_PAGE_SIZE) {
        if (!take(words, &record->u.sample.data_page_size))
            return false;
        has |= OPD_HAS_DATA_PAGE_SIZE;
    }
    if (type & PERF_SAMPLE_CODE_PAGE_SIZE) {
        if (!take(words, &record->u.sample.code_page_size))
            return false;
        has |= OPD_HAS_CODE_PAGE_SIZE;
    }
    if (type & PERF_SAMPLE_AUX) {
        uint64_t size;
        if (!take(words, &size) || size > left(words) * 8 || !skip(words, (size + 7) / 8))
            return false;
    }
    record->has = has;
    return true;
}

bool
opd_record_parse_sample_(const struct opd_record_layout *layout, const uint64_t *start,
                         const uint64_t *end, struct opd_record *record)
{
    const uint64_t type = layout->sample_type;
    struct words words = {start, end};
    uint32_t has = 0;

    if (left(&words) < PREFIX_WORDS && left(&words) < words_of(type & PREFIX))
        return false;
    const uint64_t *word = start;
    if (type & PERF_SAMPLE_IDENTIFIER) {
        record->id = *word++;
        has |= OPD_HAS_ID;
    }
    if (type & PERF_SAMPLE_IP) {
        record->u.sample.ip = *word++;
        has |= OPD_HAS_IP;
    }
    if (type & PERF_SAMPLE_TID) {
        record->pid = first_half(word);
        record->tid = second_half(word++);
        has |= OPD_HAS_TID;
    }
    if (type & PERF_SAMPLE_TIME) {
        record->time = *word++;
        has |= OPD_HAS_TIME;
    }
    if (type & PERF_SAMPLE_ADDR) {
        record->u.sample.addr = *word++;
        has |= OPD_HAS_ADDR;
    }
    if (type & PERF_SAMPLE_ID) {
        record->id = *word++;
        has |= OPD_HAS_ID;
    }
    if (type & PERF_SAMPLE_STREAM_ID) {
        record->stream_id = *word++;
        has |= OPD_HAS_STREAM_ID;
    }
    if (type & PERF_SAMPLE_CPU) {
        record->cpu = first_half(word++);
        has |= OPD_HAS_CPU;
    }
    if (type & PERF_SAMPLE_PERIOD) {
        record->u.sample.period = *word++;
        has |= OPD_HAS_PERIOD;
    } else {
        record->u.sample.period = 1;
    }
    words.next = word;

    if ((type & PERF_SAMPLE_READ) && !skip_read(&words, layout->read_format))
        return false;
    if (type & PERF_SAMPLE_CALLCHAIN) {
        uint64_t count;
        if (!take(&words, &count))
            return false;
        record->u.sample.chain = words.next;
        record->u.sample.chain_length = count;
        if (!skip(&words, count))
            return false;
        has |= OPD_HAS_CALLCHAIN;
    }
    record->has = has;
    if (!(type & AFTER_CHAIN))
        return true;

    bool branches_empty = false;
    if (!(type & PERF_SAMPLE_BRANCH_STACK) || !(layout->branch_sample_type & BRANCH_HW_INDEX))
        return parse_after_chain(layout, &words, record, true, &branches_empty);
    const struct opd_record before = *record;
    const struct words rest = words;
    bool parsed = parse_after_chain(layout, &words, record, true, &branches_empty);
    if ((parsed && left(&words) == 0) || !branches_empty)
        return parsed;
    *record = before;
    words = rest;
    return parse_after_chain(layout, &words, record, false, &branches_empty);
}
