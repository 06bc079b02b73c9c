// SPDX-License-Identifier: Apache-2.0
// Opening a recording: which layout it has, its attrs and feature sections.
#include "perfdata_internal.h"

#include <errno.h>
#include <stdlib.h>

// The file header, by byte.
#define HEADER_SIZE_AT 8u
#define ATTR_SIZE_AT 16u
#define ATTRS_AT 24u
#define DATA_AT 40u
#define FEATURES_AT 72u
#define HEADER_BYTES 104u
#define PIPE_HEADER_BYTES 16u

#define SECTION_BYTES 16u // {u64 offset, size}
#define ATTR_BYTES_MAX 4096u
#define FEATURE_BITS 256u
#define FEATURE_BYTES_MAX ((size_t)16 << 20)
#define PENDING_DEFAULT ((size_t)256 << 20)

struct section {
    uint64_t offset, size;
};

static struct section
section_at(const uint8_t *bytes)
{
    return (struct section){opd_load64(bytes), opd_load64(bytes + 8)};
}

static int
refuse(int error, const char *why, const char **reason)
{
    *reason = why;
    return error;
}

// All of a section in fresh memory, or NULL with the error.
static uint8_t *
read_section(struct opd_source *source, struct section section, size_t most, int *error)
{
    *error = -EBADMSG;
    if (section.size > most || section.offset > source->length ||
        section.size > source->length - section.offset)
        return NULL;
    size_t size = (size_t)section.size;
    uint8_t *bytes = malloc(size > 0 ? size : 1);
    if (bytes == NULL) {
        *error = -ENOMEM;
        return NULL;
    }
    int64_t got = opd_source_read(source, section.offset, bytes, size, size);
    if (got == (int64_t)size)
        return bytes;
    free(bytes);
    *error = got < 0 ? (int)got : -ENODATA;
    return NULL;
}

static int
check_magic(const uint8_t *magic, const char **reason)
{
    if (memcmp(magic, "PERFILE2", 8) == 0)
        return 0;
    if (memcmp(magic, "2ELIFREP", 8) == 0 || memcmp(magic, "ELIFFREP", 8) == 0)
        return refuse(-ENOTSUP, "recorded on a machine of the other byte order", reason);
    if (memcmp(magic, "PERFFILE", 8) == 0)
        return refuse(-ENOTSUP, "perf.data of version 1, which is not read", reason);
    return refuse(-EINVAL, "not a perf.data file", reason);
}

static int
add_attr(struct opd_perfdata *data, const uint8_t *item, size_t item_size, const char **reason)
{
    struct section ids = section_at(item + item_size - SECTION_BYTES);
    if (ids.size % 8 != 0)
        return refuse(-EBADMSG, "an event's ids are out of bounds", reason);
    int error;
    uint8_t *words = read_section(&data->source, ids, SIZE_MAX / 2, &error);
    if (words == NULL)
        return refuse(error, "an event's ids are out of bounds", reason);
    int status =
        opd_events_add(&data->events, item, item_size - SECTION_BYTES, words, (size_t)ids.size / 8);
    free(words);
    return status < 0 ? refuse(status, "an event's attributes are wrong", reason) : 0;
}

static int
read_attrs(struct opd_perfdata *data, const uint8_t *header, const char **reason)
{
    const uint64_t item_size = opd_load64(header + ATTR_SIZE_AT);
    const struct section section = section_at(header + ATTRS_AT);
    if (item_size < 64 + SECTION_BYTES || item_size > ATTR_BYTES_MAX || section.size < item_size ||
        section.size % item_size != 0)
        return refuse(-EBADMSG, "the table of events is wrong", reason);
    for (uint64_t at = 0; at < section.size; at += item_size) {
        uint8_t item[ATTR_BYTES_MAX];
        if (section.offset > UINT64_MAX - section.size)
            return refuse(-EBADMSG, "the table of events is wrong", reason);
        int64_t got =
            opd_source_read(&data->source, section.offset + at, item, item_size, item_size);
        if (got != (int64_t)item_size)
            return refuse(got < 0 ? (int)got : -ENODATA, "the table of events is cut off", reason);
        int status = add_attr(data, item, (size_t)item_size, reason);
        if (status < 0)
            return status;
    }
    return 0;
}

static int
read_features(struct opd_perfdata *data, const uint8_t *bits, uint64_t table)
{
    uint64_t at = table;
    for (uint32_t number = 0; number < FEATURE_BITS; number++) {
        if (!(opd_load64(bits + number / 64 * 8) >> (number % 64) & 1))
            continue;
        uint8_t entry[SECTION_BYTES];
        if (opd_source_read(&data->source, at, entry, sizeof entry, sizeof entry) !=
            (int64_t)sizeof entry) {
            data->features.facts.bad_features++;
            return 0;
        }
        at += sizeof entry;
        if (number == OPD_FEATURE_TRACING_DATA)
            continue;
        int error;
        uint8_t *bytes = read_section(&data->source, section_at(entry), FEATURE_BYTES_MAX, &error);
        if (bytes == NULL) {
            if (error == -ENOMEM)
                return error;
            data->features.facts.bad_features++;
            continue;
        }
        int status = opd_features_read(&data->features, &data->events, number, bytes,
                                       (size_t)section_at(entry).size);
        free(bytes);
        if (status < 0)
            return status;
    }
    return 0;
}

static int
open_file(struct opd_perfdata *data, const char **reason)
{
    uint8_t header[HEADER_BYTES] = {0};
    if (!data->source.seekable)
        return refuse(-ESPIPE,
                      "a perf.data file through a pipe: only the layout of "
                      "perf record -o - can be",
                      reason);
    int64_t got = opd_source_read(&data->source, 0, header, sizeof header, sizeof header);
    if (got < 0)
        return refuse((int)got, "reading failed", reason);
    const uint64_t header_size = opd_load64(header + HEADER_SIZE_AT);
    if (got < (int64_t)sizeof header || header_size < FEATURES_AT)
        return refuse(-EBADMSG, "the file's header is cut off", reason);
    if (header_size < HEADER_BYTES)
        memset(header + FEATURES_AT, 0, HEADER_BYTES - FEATURES_AT);
    const uint8_t *features = header + FEATURES_AT;
    if (features[OPD_FEATURE_DIR_FORMAT / 8] >> (OPD_FEATURE_DIR_FORMAT % 8) & 1)
        return refuse(-ENOTSUP, "the layout of perf record --threads is not read", reason);

    int status = read_attrs(data, header, reason);
    if (status < 0)
        return status;
    struct section records = section_at(header + DATA_AT);
    if (records.offset > INT64_MAX || records.size > INT64_MAX)
        return refuse(-EBADMSG, "the place of the records is wrong", reason);
    data->features.facts.interrupted = records.size == 0;
    const uint64_t length = data->source.length;
    data->cut = records.offset > length || records.size > length - records.offset;
    data->stream.offset = records.offset < length ? records.offset : length;
    data->stream.limit = data->cut || records.size == 0 ? length : records.offset + records.size;
    if (records.size > 0 && !data->cut &&
        read_features(data, features, records.offset + records.size) < 0)
        return -ENOMEM;
    return 0;
}

static int
open_any(struct opd_perfdata *data, const char **reason)
{
    uint8_t head[PIPE_HEADER_BYTES];
    int64_t got = opd_source_read(&data->source, 0, head, sizeof head, sizeof head);
    if (got < 0)
        return refuse((int)got, "reading failed", reason);
    if (got < (int64_t)sizeof head)
        return refuse(-EINVAL, got == 0 ? "empty" : "not a perf.data file", reason);
    int status = check_magic(head, reason);
    if (status < 0)
        return status;
    if (opd_load64(head + HEADER_SIZE_AT) == PIPE_HEADER_BYTES) {
        data->features.facts.pipe = true;
        data->stream.offset = PIPE_HEADER_BYTES;
        data->stream.limit = data->source.length;
        status = opd_perfdata_read_ahead(data);
    } else {
        status = open_file(data, reason);
    }
    if (status < 0)
        return status;
    data->named = true;
    if (opd_features_name_events(&data->features, &data->events) < 0)
        return -ENOMEM;
    if (data->features.facts.compressed) {
        status = opd_inflate_open(&data->inflate);
        if (status == -ENOTSUP)
            return refuse(status, OPD_PERFDATA_NO_ZSTD, reason);
    }
    return status;
}

static int
open_source(const struct opd_source *source, struct opd_perfdata **out, const char **reason)
{
    *reason = "out of memory";
    struct opd_perfdata *data = calloc(1, sizeof *data);
    if (data == NULL)
        return -ENOMEM;
    opd_features_init(&data->features);
    data->source = *source;
    data->stream.source = &data->source;
    data->stream.buffer = malloc(OPD_PERF_WINDOW);
    data->queue.limit = PENDING_DEFAULT;
    data->stats.end_reason = "";
    int status = data->stream.buffer != NULL ? open_any(data, reason) : -ENOMEM;
    if (status < 0) {
        opd_perfdata_close(data);
        return status;
    }
    *reason = "";
    *out = data;
    return 0;
}

int
opd_perfdata_open(int fd, struct opd_perfdata **out, const char **reason)
{
    struct opd_source source;
    int status = opd_source_init_fd(&source, fd, reason);
    return status < 0 ? status : open_source(&source, out, reason);
}

int
opd_perfdata_open_memory(const void *bytes, size_t length, struct opd_perfdata **out,
                         const char **reason)
{
    struct opd_source source;
    opd_source_init_memory(&source, bytes, length);
    return open_source(&source, out, reason);
}

void
opd_perfdata_close(struct opd_perfdata *data)
{
    if (data == NULL)
        return;
    if (data->lent != NULL)
        opd_queue_release(&data->queue, data->lent);
    opd_queue_destroy(&data->queue);
    opd_inflate_close(&data->inflate);
    opd_events_release(&data->events);
    opd_features_release(&data->features);
    free(data->stream.buffer);
    free(data);
}
