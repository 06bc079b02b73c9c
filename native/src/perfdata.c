// SPDX-License-Identifier: Apache-2.0
// The records of a recording: perf's own are acted upon, the kernel's are
// checked, put in time order and delivered.
#include "perfdata_internal.h"

#include <errno.h>

// perf's own records.
enum {
    FIRST_OWN = 64,
    HEADER_ATTR = 64,
    TRACING_DATA = 66,
    BUILD_ID = 67,
    FINISHED_ROUND = 68,
    AUXTRACE = 71,
    EVENT_UPDATE = 78,
    FEATURE = 80,
    COMPRESSED = 81,
    COMPRESSED2 = 83,
};

#define UPDATE_NAME 2u
#define NOT_A_RECORD "these bytes cannot be a record"

// Bytes as they were read, before any is believed.
struct raw {
    const uint8_t *bytes;
    size_t size;
    uint32_t type;
    uint64_t offset;
    bool inflated;
};

// Ends the reading; what waits in the queue is still delivered.
static int
finish(struct opd_perfdata *data, int error, const char *reason, uint64_t offset)
{
    data->finished = true;
    data->stats.end_error = error;
    data->stats.end_reason = reason;
    data->stats.end_offset = offset;
    return 0;
}

static int
finish_at_end(struct opd_perfdata *data)
{
    const struct opd_stream *stream = &data->stream;
    if (opd_stream_left(stream) > 0)
        return finish(data, -ENODATA, "cut off within a record", stream->offset);
    if (data->cut || (data->source.seekable && stream->offset != stream->limit))
        return finish(data, -ENODATA, "cut off: shorter than it says", stream->offset);
    if (data->inflate.end > data->inflate.begin)
        return finish(data, -ENODATA, "cut off within a compressed record", data->inflate_offset);
    return finish(data, 0, "", stream->offset);
}

static bool
credible(uint32_t type, size_t size)
{
    // perf does not align its own records, the kernel does.
    return size >= OPD_PERF_HEADER_SIZE && (type >= FIRST_OWN || size % 8 == 0);
}

// 1 a record, 0 no whole one left in what was inflated (or finished).
static int
next_inflated(struct opd_perfdata *data, struct raw *raw)
{
    struct opd_inflate *inflate = &data->inflate;
    const uint8_t *bytes;
    int status = opd_inflate_peek(inflate, OPD_PERF_HEADER_SIZE, &bytes);
    size_t size = 0;
    uint32_t type = 0;
    if (status > 0) {
        type = opd_load32(bytes);
        size = opd_load16(bytes + 6);
        if (!credible(type, size))
            return finish(data, -EBADMSG, NOT_A_RECORD, data->inflate_offset);
        status = opd_inflate_peek(inflate, size, &bytes);
    }
    if (status < 0)
        return finish(data, status, "the compressed bytes are wrong", data->inflate_offset);
    if (status == 0) {
        data->inflating = false;
        return 0;
    }
    inflate->begin += size;
    *raw = (struct raw){bytes, size, type, data->inflate_offset, true};
    return 1;
}

// 1 a record, 0 finished.
static int
next_stored(struct opd_perfdata *data, struct raw *raw)
{
    struct opd_stream *stream = &data->stream;
    const uint8_t *bytes;
    int status = opd_stream_peek(stream, OPD_PERF_HEADER_SIZE, &bytes);
    size_t size = 0;
    uint32_t type = 0;
    if (status > 0) {
        type = opd_load32(bytes);
        size = opd_load16(bytes + 6);
        if (!credible(type, size))
            return finish(data, -EBADMSG, NOT_A_RECORD, stream->offset);
        status = opd_stream_peek(stream, size, &bytes);
    }
    if (status < 0)
        return finish(data, status, "reading failed", stream->offset);
    if (status == 0)
        return finish_at_end(data);
    *raw = (struct raw){bytes, size, type, stream->offset, false};
    stream->begin += size;
    stream->offset += size;
    data->stats.bytes += size;
    return 1;
}

static void
skip_record(struct opd_perfdata *data, size_t size)
{
    data->stats.skipped_records++;
    data->stats.skipped_bytes += size;
}

// Bytes that follow one of perf's own records without being records.
static int
skip_payload(struct opd_perfdata *data, uint64_t size)
{
    const uint64_t from = data->stream.offset;
    int status = opd_stream_skip(&data->stream, size);
    data->stats.bytes += data->stream.offset - from;
    if (status < 0)
        return finish(data, status, "reading failed", data->stream.offset);
    if (status == 0)
        return finish(data, -ENODATA, "cut off within data beside the records",
                      data->stream.offset);
    return 0;
}

static int
own_attr(struct opd_perfdata *data, const struct raw *raw)
{
    const size_t at = OPD_PERF_HEADER_SIZE;
    if (!data->features.facts.pipe || raw->size < at + 8)
        return -EBADMSG;
    size_t size = opd_load32(raw->bytes + at + 4);
    if (size == 0)
        size = 64;
    if (size > raw->size - at)
        return -EBADMSG;
    int status = opd_events_add(&data->events, raw->bytes + at, size, raw->bytes + at + size,
                                (raw->size - at - size) / 8);
    if (status == 0 && data->named)
        status = opd_features_name_events(&data->features, &data->events);
    return status;
}

static int
own_update(struct opd_perfdata *data, const struct raw *raw)
{
    const size_t name_at = 24;
    if (raw->size <= name_at)
        return -EBADMSG;
    if (opd_load64(raw->bytes + 8) != UPDATE_NAME)
        return 0;
    int status = opd_events_prepare(&data->events);
    if (status < 0)
        return status;
    const char *name = (const char *)raw->bytes + name_at;
    const size_t length = strnlen(name, raw->size - name_at);
    int event = opd_events_find_id(&data->events, opd_load64(raw->bytes + 16));
    if (event < 0 || length == raw->size - name_at)
        return -EBADMSG;
    char *kept = opd_pool_take(&data->events.pool, length + 1);
    if (kept == NULL)
        return -EBADMSG;
    memcpy(kept, name, length + 1);
    data->events.attrs[event].name = kept;
    return 0;
}

static int
own_compressed(struct opd_perfdata *data, const struct raw *raw)
{
    size_t head = OPD_PERF_HEADER_SIZE;
    uint64_t size = raw->size - head;
    if (raw->inflated)
        return -EBADMSG;
    if (raw->type == COMPRESSED2) {
        head += 8;
        if (raw->size < head || opd_load64(raw->bytes + 8) > raw->size - head)
            return -EBADMSG;
        size = opd_load64(raw->bytes + 8);
    }
    int status = opd_inflate_open(&data->inflate);
    if (status == -ENOTSUP)
        return finish(data, status, OPD_PERFDATA_NO_ZSTD, raw->offset);
    if (status < 0)
        return status;
    data->inflating = true;
    data->inflate_offset = raw->offset;
    data->inflate.input = raw->bytes + head;
    data->inflate.input_left = (size_t)size;
    return 0;
}

static int
act_on_own(struct opd_perfdata *data, const struct raw *raw)
{
    switch (raw->type) {
    case 0:
        return -EBADMSG;
    case HEADER_ATTR:
        return own_attr(data, raw);
    case TRACING_DATA:
        if (raw->inflated || raw->size < 12)
            return -EBADMSG;
        return skip_payload(data, ((uint64_t)opd_load32(raw->bytes + 8) + 7) & ~7ull);
    case BUILD_ID:
        return opd_features_build_id(&data->features, raw->bytes, raw->size);
    case FINISHED_ROUND:
        data->stats.rounds++;
        return opd_queue_round(&data->queue);
    case AUXTRACE:
        if (raw->inflated || raw->size < 16)
            return -EBADMSG;
        return skip_payload(data, opd_load64(raw->bytes + 8));
    case EVENT_UPDATE:
        return own_update(data, raw);
    case FEATURE:
        if (!data->features.facts.pipe || raw->size < 16)
            return -EBADMSG;
        if (opd_load64(raw->bytes + 8) > UINT32_MAX)
            return 0;
        return opd_features_read(&data->features, &data->events, opd_load32(raw->bytes + 8),
                                 raw->bytes + 16, raw->size - 16);
    case COMPRESSED:
    case COMPRESSED2:
        return own_compressed(data, raw);
    default:
        return 0; // of no use to a profile
    }
}

static const struct opd_record_layout *
layout_of(const struct opd_perfdata *data, int event)
{
    return &data->events.attrs[event < 0 ? 0 : event].layout;
}

static void
lend(struct opd_perfdata *data, struct opd_queued *queued, struct opd_perfdata_event *event)
{
    data->lent = queued;
    data->stats.delivered++;
    event->bytes = opd_queued_bytes(queued);
    event->event = queued->event;
    event->offset = queued->offset;
}

// The event of a record of the kernel's, or -EBADMSG when it is to be
// skipped, or an error of the whole.
static int
find_event(struct opd_perfdata *data, const struct raw *raw, const void *aligned)
{
    if (data->events.count == 0)
        return -ENOTSUP;
    int event = opd_events_find(&data->events, aligned);
    if (event != -ENOENT)
        return event;
    if (raw->type != OPD_RECORD_SAMPLE && data->events.same_trailer)
        return -ENOENT;
    data->stats.unknown_id++;
    return -EBADMSG;
}

static void
count_record(struct opd_perfdata *data, const struct opd_record *record)
{
    if (record->type == OPD_RECORD_SAMPLE)
        data->stats.samples++;
    else if (record->type == OPD_RECORD_LOST)
        data->stats.lost += record->u.lost.lost;
    else if (record->type == OPD_RECORD_LOST_SAMPLES)
        data->stats.lost_samples += record->u.lost.lost;
}

// 1 delivered at once, 0 queued, skipped or finished, -ENOMEM.
static int
take_kernel(struct opd_perfdata *data, const struct raw *raw, struct opd_perfdata_event *event)
{
    struct opd_queued *queued = opd_queue_take(&data->queue, raw->size);
    if (queued == NULL)
        return -ENOMEM;
    void *bytes = opd_queued_bytes(queued);
    memcpy(bytes, raw->bytes, raw->size);
    const uint64_t unknown = data->stats.unknown_id;
    int found = find_event(data, raw, bytes);
    queued->event = found < 0 ? -1 : found;
    queued->offset = raw->offset;
    struct opd_record *record = &event->record;
    int status = 0;
    if (found == -ENOTSUP)
        finish(data, -EBADMSG,
               data->events.count == 0 ? "a record before any event's attributes"
                                       : "nothing tells which event a record is of",
               raw->offset);
    else if (found == -ENOMEM)
        status = found;
    else if (found == -EBADMSG ||
             opd_record_parse(layout_of(data, found), bytes, raw->size, record) < 0) {
        if (data->stats.unknown_id == unknown)
            skip_record(data, raw->size);
    } else {
        count_record(data, record);
        if (!(record->has & OPD_HAS_TIME) || record->time == 0 || record->time == UINT64_MAX) {
            record->time = 0; // ~0 is no time either, and would end every window
            lend(data, queued, event);
            return 1;
        }
        bool late = false;
        status = opd_queue_put(&data->queue, queued, record->time, &late);
        data->stats.late += late;
        if (status == 0)
            return 0;
    }
    opd_queue_release(&data->queue, queued);
    return status;
}

// Reads one record: 1 delivered, 0 go on, -ENOMEM.
static int
step(struct opd_perfdata *data, struct opd_perfdata_event *event)
{
    struct raw raw;
    int got = 0;
    if (data->inflating)
        got = next_inflated(data, &raw);
    else
        got = next_stored(data, &raw);
    if (got <= 0)
        return got;
    const uint32_t last = OPD_PERFDATA_TYPES - 1;
    data->stats.by_type[raw.type < last ? raw.type : last]++;
    if (raw.type > 0 && raw.type < FIRST_OWN)
        return take_kernel(data, &raw, event);
    int status = act_on_own(data, &raw);
    if (status == -ENOMEM)
        return status;
    if (status < 0)
        skip_record(data, raw.size);
    return 0;
}

int
opd_perfdata_read_ahead(struct opd_perfdata *data)
{
    struct opd_perfdata_event unused;
    while (!data->finished) {
        const uint8_t *bytes;
        if (opd_stream_peek(&data->stream, OPD_PERF_HEADER_SIZE, &bytes) != 1)
            return 0;
        const uint32_t type = opd_load32(bytes);
        if (type < FIRST_OWN || type == FINISHED_ROUND || type == COMPRESSED || type == COMPRESSED2)
            return 0;
        int status = step(data, &unused);
        if (status < 0)
            return status;
    }
    return 0;
}

int
opd_perfdata_next(struct opd_perfdata *data, struct opd_perfdata_event *event)
{
    if (data->lent != NULL) {
        opd_queue_release(&data->queue, data->lent);
        data->lent = NULL;
    }
    for (;;) {
        struct opd_queued *queued = opd_queue_next(&data->queue);
        if (queued != NULL) {
            opd_record_parse(layout_of(data, queued->event), opd_queued_bytes(queued), queued->size,
                             &event->record);
            lend(data, queued, event);
            return 1;
        }
        int status;
        if (data->finished) {
            if (data->queue.count == 0) {
                data->stats.ended = true;
                return 0;
            }
            status = opd_queue_all(&data->queue);
        } else {
            status = step(data, event);
            if (status > 0)
                return 1;
            if (status == 0 && opd_queue_full(&data->queue)) {
                data->stats.forced_flushes++;
                status = opd_queue_half(&data->queue);
            }
        }
        if (status < 0)
            return status;
    }
}

void
opd_perfdata_limit_pending(struct opd_perfdata *data, size_t bytes)
{
    data->queue.limit = bytes;
}

const struct opd_perfdata_attr *
opd_perfdata_attrs(const struct opd_perfdata *data, size_t *count)
{
    *count = data->events.count;
    return data->events.attrs;
}

const struct opd_perfdata_facts *
opd_perfdata_facts(const struct opd_perfdata *data)
{
    return &data->features.facts;
}

const struct opd_perfdata_stats *
opd_perfdata_stats(const struct opd_perfdata *data)
{
    return &data->stats;
}
