// SPDX-License-Identifier: Apache-2.0
#include "perfdata_internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int
opd_source_init_fd(struct opd_source *source, int fd, const char **reason)
{
    struct stat status;
    *source = (struct opd_source){.fd = fd, .length = UINT64_MAX};
    if (fstat(fd, &status) < 0) {
        *reason = "cannot look at the file";
        return -errno;
    }
    if (S_ISDIR(status.st_mode)) {
        *reason = "a directory: the layout of perf record --threads is not read";
        return -EISDIR;
    }
    if (S_ISREG(status.st_mode)) {
        source->seekable = true;
        source->length = (uint64_t)status.st_size;
    }
    return 0;
}

void
opd_source_init_memory(struct opd_source *source, const void *bytes, size_t length)
{
    *source = (struct opd_source){.fd = -1, .seekable = true, .memory = bytes, .length = length};
}

static int64_t
read_fd(struct opd_source *source, uint64_t offset, uint8_t *buffer, size_t enough, size_t size)
{
    size_t done = 0;
    while (done < enough) {
        ssize_t got = source->seekable
                          ? pread(source->fd, buffer + done, size - done, (off_t)(offset + done))
                          : read(source->fd, buffer + done, size - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (int64_t)done;
}

int64_t
opd_source_read(struct opd_source *source, uint64_t offset, void *buffer, size_t enough,
                size_t size)
{
    if (offset > INT64_MAX - size)
        return 0;
    if (source->memory != NULL || source->fd < 0) {
        if (offset >= source->length)
            return 0;
        if (size > source->length - offset)
            size = (size_t)(source->length - offset);
        memcpy(buffer, source->memory + offset, size);
        return (int64_t)size;
    }
    if (!source->seekable && offset != source->position)
        return -ESPIPE;
    int64_t got = read_fd(source, offset, buffer, enough, size);
    if (got > 0)
        source->position = offset + (uint64_t)got;
    return got;
}

size_t
opd_stream_left(const struct opd_stream *stream)
{
    return stream->end - stream->begin;
}

int
opd_stream_peek(struct opd_stream *stream, size_t size, const uint8_t **bytes)
{
    if (opd_stream_left(stream) < size) {
        memmove(stream->buffer, stream->buffer + stream->begin, opd_stream_left(stream));
        stream->end -= stream->begin;
        stream->begin = 0;
        uint64_t from = stream->offset + stream->end;
        size_t room = OPD_PERF_WINDOW - stream->end;
        if (from >= stream->limit)
            return 0;
        if (room > stream->limit - from)
            room = (size_t)(stream->limit - from);
        int64_t got = opd_source_read(stream->source, from, stream->buffer + stream->end,
                                      size - stream->end, room);
        if (got < 0)
            return (int)got;
        stream->end += (size_t)got;
        if (stream->end < size)
            return 0;
    }
    *bytes = stream->buffer + stream->begin;
    return 1;
}

int
opd_stream_skip(struct opd_stream *stream, uint64_t size)
{
    while (size > 0) {
        size_t step = opd_stream_left(stream);
        if (step > size)
            step = (size_t)size;
        stream->begin += step;
        stream->offset += step;
        size -= step;
        if (size == 0)
            return 1;
        if (stream->source->seekable) {
            if (size > stream->limit - stream->offset)
                return 0;
            stream->begin = stream->end = 0;
            stream->offset += size;
            return 1;
        }
        const uint8_t *bytes;
        int status = opd_stream_peek(
            stream, size > OPD_PERF_RECORD_MAX ? OPD_PERF_RECORD_MAX : size, &bytes);
        if (status < 0 || (status == 0 && opd_stream_left(stream) == 0))
            return status;
    }
    return 1;
}

// The two structs of zstd's streaming interface, stable since 1.0.
struct zstd_output {
    void *bytes;
    size_t size, position;
};

struct zstd_input {
    const void *bytes;
    size_t size, position;
};

int
opd_inflate_open(struct opd_inflate *inflate)
{
    if (inflate->state != NULL)
        return 0;
    if (inflate->library == NULL)
        inflate->library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    if (inflate->library == NULL)
        return -ENOTSUP;
    void *(*create)(void) = (void *(*)(void))dlsym(inflate->library, "ZSTD_createDStream");
    inflate->decompress =
        (size_t (*)(void *, void *, void *))dlsym(inflate->library, "ZSTD_decompressStream");
    inflate->release = (size_t (*)(void *))dlsym(inflate->library, "ZSTD_freeDStream");
    inflate->is_error = (unsigned (*)(size_t))dlsym(inflate->library, "ZSTD_isError");
    if (create == NULL || inflate->decompress == NULL || inflate->release == NULL ||
        inflate->is_error == NULL)
        return -ENOTSUP;
    if (inflate->buffer == NULL)
        inflate->buffer = malloc(OPD_PERF_WINDOW);
    if (inflate->buffer == NULL)
        return -ENOMEM;
    inflate->state = create();
    return inflate->state != NULL ? 0 : -ENOMEM;
}

void
opd_inflate_close(struct opd_inflate *inflate)
{
    if (inflate->state != NULL)
        inflate->release(inflate->state);
    free(inflate->buffer);
    if (inflate->library != NULL)
        dlclose(inflate->library);
    *inflate = (struct opd_inflate){0};
}

int
opd_inflate_peek(struct opd_inflate *inflate, size_t size, const uint8_t **bytes)
{
    while (inflate->end - inflate->begin < size) {
        if (OPD_PERF_WINDOW - inflate->end < OPD_PERF_RECORD_MAX) {
            memmove(inflate->buffer, inflate->buffer + inflate->begin,
                    inflate->end - inflate->begin);
            inflate->end -= inflate->begin;
            inflate->begin = 0;
        }
        if (inflate->input_left == 0 && !inflate->filled)
            return 0;
        struct zstd_output output = {inflate->buffer + inflate->end, OPD_PERF_WINDOW - inflate->end,
                                     0};
        struct zstd_input input = {inflate->input, inflate->input_left, 0};
        size_t code = inflate->decompress(inflate->state, &output, &input);
        if (inflate->is_error(code))
            return -EBADMSG;
        inflate->input += input.position;
        inflate->input_left -= input.position;
        inflate->end += output.position;
        inflate->filled = output.position == output.size;
        if (output.position == 0 && input.position == 0)
            return 0;
    }
    *bytes = inflate->buffer + inflate->begin;
    return 1;
}
