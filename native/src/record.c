// SPDX-License-Identifier: Apache-2.0
#include "record_internal.h"

#include <assert.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <sys/mman.h>

static_assert((int)OPD_RECORD_SAMPLE == (int)PERF_RECORD_SAMPLE, "record types are the kernel's");
static_assert(OPD_RECORD_AUX_OUTPUT_HW_ID == 21, "record types are the kernel's");
static_assert(OPD_MISC_EXACT_IP == PERF_RECORD_MISC_EXACT_IP, "misc bits are the kernel's");
static_assert(OPD_CONTEXT_MAX == (uint64_t)PERF_CONTEXT_MAX, "markers are the kernel's");
static_assert(sizeof(struct perf_event_header) == 8, "a header is one word");

#define FIRST_USER_TYPE 64u

// Fields of one word each at the end of every other record.
#define TRAILER                                                                                    \
    (PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ID | PERF_SAMPLE_STREAM_ID |                 \
     PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER)
static inline struct perf_event_header
header_of(const void *bytes)
{
    struct perf_event_header header;
    memcpy(&header, bytes, sizeof header);
    return header;
}

// Takes the sample_id from the end of a record that is no sample.
static bool
parse_trailer(const struct opd_record_layout *layout, const uint64_t *body, const uint64_t **end,
              struct opd_record *record)
{
    if (!layout->sample_id_all)
        return true;
    const uint64_t type = layout->sample_type;
    const unsigned count = words_of(type & TRAILER);
    if ((size_t)(*end - body) < count)
        return false;
    const uint64_t *word = *end - count;
    *end = word;
    if (type & PERF_SAMPLE_TID) {
        record->pid = first_half(word);
        record->tid = second_half(word++);
        record->has |= OPD_HAS_TID;
    }
    if (type & PERF_SAMPLE_TIME) {
        record->time = *word++;
        record->has |= OPD_HAS_TIME;
    }
    if (type & PERF_SAMPLE_ID) {
        record->id = *word++;
        record->has |= OPD_HAS_ID;
    }
    if (type & PERF_SAMPLE_STREAM_ID) {
        record->stream_id = *word++;
        record->has |= OPD_HAS_STREAM_ID;
    }
    if (type & PERF_SAMPLE_CPU) {
        record->cpu = first_half(word++);
        record->has |= OPD_HAS_CPU;
    }
    if (type & PERF_SAMPLE_IDENTIFIER) {
        record->id = *word++;
        record->has |= OPD_HAS_ID;
    }
    return true;
}

#define BUILD_ID_MAX 20

static bool
take_text(const uint64_t *start, const uint64_t *end, const char **text, size_t *length)
{
    size_t size = (size_t)(end - start) * 8;
    const void *nul = memchr(start, 0, size);
    if (nul == NULL)
        return false;
    *text = (const char *)start;
    *length = (size_t)((const char *)nul - *text);
    return true;
}

// MMAP: 4 words before the path; MMAP2: 8.
// Whether the union of an MMAP2 record is a build-id. The misc bit alone does
// not say so: where one event on the machine asks for build-ids, the kernel
// (seen with 6.18) leaves the bit set in the records of those that did not,
// over their device and inode.
static bool
has_build_id(const struct opd_record_layout *layout, uint16_t misc, const uint8_t *bytes)
{
    if (!(misc & OPD_MISC_MMAP_BUILD_ID))
        return false;
    bool plausible =
        bytes[0] > 0 && bytes[0] <= BUILD_ID_MAX && bytes[1] == 0 && bytes[2] == 0 && bytes[3] == 0;
    // Tools rewrite files with ids that the attr did not ask for: whole ones.
    return plausible && (layout->build_id || bytes[0] == BUILD_ID_MAX);
}

static bool
parse_mmap(const struct opd_record_layout *layout, const uint64_t *body, const uint64_t *end,
           struct opd_record *record)
{
    const bool second = record->type == OPD_RECORD_MMAP2;
    const int fixed = second ? 8 : 4;
    if (end - body < fixed)
        return false;
    record->u.mmap.pid = first_half(body);
    record->u.mmap.tid = second_half(body);
    record->u.mmap.start = body[1];
    record->u.mmap.length = body[2];
    record->u.mmap.page_offset = body[3];
    record->u.mmap.executable = !(record->misc & OPD_MISC_MMAP_DATA);
    if (second) {
        const uint8_t *union_bytes = (const uint8_t *)(body + 4);
        if (has_build_id(layout, record->misc, union_bytes)) {
            record->u.mmap.build_id_size = union_bytes[0];
            memcpy(record->u.mmap.build_id, union_bytes + 4, union_bytes[0]);
        } else {
            record->u.mmap.major = first_half(body + 4);
            record->u.mmap.minor = second_half(body + 4);
            record->u.mmap.inode = body[5];
            record->u.mmap.inode_generation = body[6];
        }
        record->u.mmap.protection = first_half(body + 7);
        record->u.mmap.flags = second_half(body + 7);
        record->u.mmap.executable = (record->u.mmap.protection & PROT_EXEC) != 0;
    }
    return take_text(body + fixed, end, &record->u.mmap.path, &record->u.mmap.path_length);
}

static bool
parse_comm(const uint64_t *body, const uint64_t *end, struct opd_record *record)
{
    if (end - body < 2)
        return false;
    record->u.comm.pid = first_half(body);
    record->u.comm.tid = second_half(body);
    return take_text(body + 1, end, &record->u.comm.comm, &record->u.comm.comm_length);
}

static bool
parse_task(const uint64_t *body, const uint64_t *end, struct opd_record *record)
{
    if (end - body < 3)
        return false;
    record->u.task.pid = first_half(body);
    record->u.task.parent_pid = second_half(body);
    record->u.task.tid = first_half(body + 1);
    record->u.task.parent_tid = second_half(body + 1);
    record->u.task.time = body[2];
    return true;
}

static bool
parse_ksymbol(const uint64_t *body, const uint64_t *end, struct opd_record *record)
{
    if (end - body < 3)
        return false;
    uint16_t halves[2];
    memcpy(halves, (const uint8_t *)(body + 1) + 4, sizeof halves);
    record->u.ksymbol.address = body[0];
    record->u.ksymbol.length = first_half(body + 1);
    record->u.ksymbol.kind = halves[0];
    record->u.ksymbol.flags = halves[1];
    return take_text(body + 2, end, &record->u.ksymbol.name, &record->u.ksymbol.name_length);
}

// The body of a record that is no sample; `end` is where its trailer starts.
static bool
parse_body(const struct opd_record_layout *layout, const uint64_t *body, const uint64_t *end,
           struct opd_record *record)
{
    uint32_t pid = 0, tid = 0;
    switch (record->type) {
    case OPD_RECORD_MMAP:
    case OPD_RECORD_MMAP2:
        if (!parse_mmap(layout, body, end, record))
            return false;
        pid = record->u.mmap.pid;
        tid = record->u.mmap.tid;
        break;
    case OPD_RECORD_COMM:
        if (!parse_comm(body, end, record))
            return false;
        pid = record->u.comm.pid;
        tid = record->u.comm.tid;
        break;
    case OPD_RECORD_FORK:
        if (!parse_task(body, end, record))
            return false;
        pid = record->u.task.parent_pid;
        tid = record->u.task.parent_tid;
        break;
    case OPD_RECORD_EXIT:
        if (!parse_task(body, end, record))
            return false;
        pid = record->u.task.pid;
        tid = record->u.task.tid;
        break;
    case OPD_RECORD_LOST:
        if (end - body < 2)
            return false;
        record->u.lost.id = body[0];
        record->u.lost.lost = body[1];
        break;
    case OPD_RECORD_LOST_SAMPLES:
        if (end - body < 1)
            return false;
        record->u.lost.lost = body[0];
        break;
    case OPD_RECORD_THROTTLE:
    case OPD_RECORD_UNTHROTTLE:
        if (end - body < 3)
            return false;
        record->u.throttle.time = body[0];
        record->u.throttle.id = body[1];
        record->u.throttle.stream_id = body[2];
        break;
    case OPD_RECORD_KSYMBOL:
        return parse_ksymbol(body, end, record);
    case OPD_RECORD_CGROUP:
        if (end - body < 2)
            return false;
        record->u.cgroup.id = body[0];
        return take_text(body + 1, end, &record->u.cgroup.path, &record->u.cgroup.path_length);
    default:
        break;
    }
    if (!(record->has & OPD_HAS_TID)) {
        record->pid = pid;
        record->tid = tid;
    }
    return true;
}

// A memset() of the whole becomes "rep stos", which costs more than all the
// rest of parsing a sample; pieces of this size become plain vector stores.
static inline void
clear(struct opd_record *record)
{
    enum { PIECE = 64 };
    uint8_t *bytes = (uint8_t *)record;
    size_t at = 0;
#pragma GCC unroll 8
    for (; at + PIECE <= sizeof *record; at += PIECE)
        memset(bytes + at, 0, PIECE);
    memset(bytes + at, 0, sizeof *record % PIECE);
}

size_t
opd_record_size(const void *bytes, size_t length)
{
    if (length < sizeof(struct perf_event_header))
        return 0;
    size_t size = header_of(bytes).size;
    return size >= 8 && size % 8 == 0 && size <= length ? size : 0;
}

int
opd_record_parse(const struct opd_record_layout *layout, const void *bytes, size_t length,
                 struct opd_record *record)
{
    if (length < sizeof(struct perf_event_header))
        return -EAGAIN;
    const struct perf_event_header header = header_of(bytes);
    if (header.size < 8 || header.size % 8 != 0)
        return -EBADMSG;
    if (header.size > length)
        return -EAGAIN;
    clear(record);
    record->type = header.type;
    record->misc = header.misc;
    record->size = header.size;

    const uint64_t *body = (const uint64_t *)bytes + 1;
    const uint64_t *end = body + header.size / 8 - 1;
    bool good;
    if (header.type == PERF_RECORD_SAMPLE)
        good = opd_record_parse_sample_(layout, body, end, record);
    else if (header.type >= FIRST_USER_TYPE)
        good = true;
    else
        good = parse_trailer(layout, body, &end, record) && parse_body(layout, body, end, record);
    return good ? header.size : -EBADMSG;
}

int
opd_record_identifier(const void *bytes, size_t length, uint64_t *identifier)
{
    const size_t size = opd_record_size(bytes, length);
    if (size < 16)
        return -EBADMSG;
    const struct perf_event_header header = header_of(bytes);
    if (header.type >= FIRST_USER_TYPE)
        return -EBADMSG;
    const size_t word = header.type == PERF_RECORD_SAMPLE ? 1 : size / 8 - 1;
    *identifier = ((const uint64_t *)bytes)[word];
    return 0;
}

bool
opd_record_time(const struct opd_record_layout *layout, const void *bytes, size_t length,
                uint64_t *time)
{
    const uint64_t type = layout->sample_type;
    const size_t words = opd_record_size(bytes, length) / 8;
    if (words == 0 || !(type & PERF_SAMPLE_TIME))
        return false;
    const struct perf_event_header header = header_of(bytes);
    size_t at;
    if (header.type == PERF_RECORD_SAMPLE) {
        at = 1 + words_of(type & (PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID));
        if (at >= words)
            return false;
    } else {
        if (!layout->sample_id_all || header.type >= FIRST_USER_TYPE ||
            words_of(type & TRAILER) >= words)
            return false;
        at = words - words_of(type & TRAILER & ~(uint64_t)PERF_SAMPLE_TID);
    }
    *time = ((const uint64_t *)bytes)[at];
    return true;
}
