// SPDX-License-Identifier: Apache-2.0
// The parts of the perf.data reader:
//   perfdata_open.c      the two layouts
//   perfdata.c           records: perf's own, the kernel's, next()
//   perfdata_stream.c    bytes from a file, pipe or memory; zstd
//   perfdata_events.c    attrs, names, the event of a record
//   perfdata_features.c  facts
//   perfdata_queue.c     time order
#ifndef OPD_PERFDATA_INTERNAL_H
#define OPD_PERFDATA_INTERNAL_H

#include "opd/perfdata.h"

#include <string.h>

#define OPD_PERF_HEADER_SIZE 8u
#define OPD_PERF_RECORD_MAX 65535u
#define OPD_PERF_WINDOW (256u * 1024)

// ---- bytes -----------------------------------------------------------------

// A file (pread), a pipe (read, forward only) or memory.
struct opd_source {
    int fd; // -1: memory
    bool seekable;
    const uint8_t *memory;
    uint64_t length;   // UINT64_MAX when not known
    uint64_t position; // of a pipe
};

int opd_source_init_fd(struct opd_source *source, int fd, const char **reason);
void opd_source_init_memory(struct opd_source *source, const void *bytes, size_t length);
// Reads up to `size` bytes, at least `enough` unless the source ends. Bytes
// read, or -errno.
int64_t opd_source_read(struct opd_source *source, uint64_t offset, void *buffer, size_t enough,
                        size_t size);

// A window that moves forward over [offset, limit) of a source.
struct opd_stream {
    struct opd_source *source;
    uint8_t *buffer; // OPD_PERF_WINDOW
    size_t begin, end;
    uint64_t offset; // in the file, of buffer[begin]
    uint64_t limit;
};

// Makes `size` (<= 64 KiB) bytes readable at *bytes: 1, 0 when fewer are
// left, or -errno.
int opd_stream_peek(struct opd_stream *stream, size_t size, const uint8_t **bytes);
size_t opd_stream_left(const struct opd_stream *stream); // bytes in the window
// Moves over `size` bytes: 1, 0 when fewer are left, or -errno.
int opd_stream_skip(struct opd_stream *stream, uint64_t size);

// zstd, one stream through all compressed records of a file.
struct opd_inflate {
    void *library;
    void *state;
    size_t (*decompress)(void *state, void *output, void *input);
    size_t (*release)(void *state);
    unsigned (*is_error)(size_t code);
    const uint8_t *input; // the rest of the current compressed record
    size_t input_left;
    bool filled;     // the last call filled the buffer: there may be more without input
    uint8_t *buffer; // OPD_PERF_WINDOW
    size_t begin, end;
};

// 0, -ENOTSUP when there is no libzstd, or -ENOMEM.
int opd_inflate_open(struct opd_inflate *inflate);
void opd_inflate_close(struct opd_inflate *inflate);
// Makes `size` bytes of output readable: 1, 0 when more input is needed, or
// -EBADMSG.
int opd_inflate_peek(struct opd_inflate *inflate, size_t size, const uint8_t **bytes);

// ---- attrs and facts -------------------------------------------------------

// Memory that lives as long as the reader.
struct opd_pool {
    struct opd_pool_block *blocks;
    size_t total;
};

void *opd_pool_take(struct opd_pool *pool, size_t size); // NULL: no memory, or the limit
void opd_pool_release(struct opd_pool *pool);

struct opd_id {
    uint64_t id;
    int32_t event;
};

// How the event of a record is told.
enum opd_id_scheme {
    OPD_IDS_UNKNOWN,    // attrs changed since
    OPD_IDS_ONE,        // a single event
    OPD_IDS_POSITION,   // an id at the same place of every record
    OPD_IDS_FIRST,      // no ids, and all events look alike
    OPD_IDS_IMPOSSIBLE, // no ids, and records of different shape
};

struct opd_events {
    struct opd_perfdata_attr *attrs;
    size_t count, capacity;
    size_t id_total;
    struct opd_pool pool;
    enum opd_id_scheme scheme;
    bool trailer_ids;    // records other than samples carry the id too
    bool same_trailer;   // all events agree on the trailer
    size_t sample_word;  // the id's word in a SAMPLE, counted from the header
    size_t trailer_word; // and in other records, counted from the end
    struct opd_id *ids;  // sorted by id
    size_t id_count;
    struct opd_id recent[64];
};

// Adds the attr whose first `size` bytes are given. 0, -EBADMSG, -E2BIG or
// -ENOMEM. `ids` (count words, any alignment) are copied.
int opd_events_add(struct opd_events *events, const uint8_t *attr, size_t size, const uint8_t *ids,
                   size_t id_count);
// The event of a record (8-byte aligned, whole): >= 0, -ENOENT for an id of
// no event, -EBADMSG for a record too short for its id, -ENOTSUP when the
// events cannot be told apart, -ENOMEM.
int opd_events_find(struct opd_events *events, const void *bytes);
// The event with this id, or -ENOENT. Call opd_events_prepare() before.
int opd_events_find_id(struct opd_events *events, uint64_t id);
int opd_events_prepare(struct opd_events *events);
void opd_events_release(struct opd_events *events);

struct opd_features {
    struct opd_perfdata_facts facts;
    struct opd_pool pool;
    struct opd_perfdata_build_id *build_ids;
    size_t build_id_capacity;
};

void opd_features_init(struct opd_features *features);
void opd_features_release(struct opd_features *features);
// Reads one feature section (number, bytes). What it does not know or
// understand it leaves, counting the latter; only -ENOMEM is an error.
int opd_features_read(struct opd_features *features, struct opd_events *events, uint32_t number,
                      const uint8_t *bytes, size_t size);
// Reads one BUILD_ID record, from the section or the pipe: 0, -EBADMSG, -ENOMEM.
int opd_features_build_id(struct opd_features *features, const uint8_t *bytes, size_t size);
// Gives every attr that still has no name one made from type and config.
int opd_features_name_events(struct opd_features *features, struct opd_events *events);

#define OPD_FEATURE_TRACING_DATA 1u
#define OPD_FEATURE_DIR_FORMAT 24u
#define OPD_FEATURE_COMPRESSED 27u

// ---- time order ------------------------------------------------------------

struct opd_queue_block;

// A record in the queue's memory: this head, then its bytes.
struct opd_queued {
    struct opd_queue_block *block;
    uint64_t offset;
    int32_t event;
    uint32_t size;
};

struct opd_queue_entry {
    uint64_t time;
    struct opd_queued *queued;
};

struct opd_queue {
    struct opd_queue_entry *entries; // [head, ready) sorted and free to go, [ready, count) waiting
    struct opd_queue_entry *spare;   // the merge's other half, `capacity` long
    size_t head, ready, count, capacity;
    size_t *runs;
    size_t run_capacity;
    struct opd_queue_block *current;
    struct opd_queue_block *free;
    unsigned free_count;
    size_t waiting_bytes, limit;
    uint64_t newest;      // of all that was put in
    uint64_t round_limit; // what the next round's end lets go
    uint64_t gone;        // newest time that was let go
};

// Room for a record of `size` bytes, 8-byte aligned after the head; NULL when
// there is no memory. Give it back by opd_queue_release() in any case.
struct opd_queued *opd_queue_take(struct opd_queue *queue, size_t size);
void opd_queue_release(struct opd_queue *queue, struct opd_queued *queued);
static inline void *
opd_queued_bytes(struct opd_queued *queued)
{
    return queued + 1;
}
// Puts a record in; *late says that newer ones have gone. 0 or -ENOMEM.
int opd_queue_put(struct opd_queue *queue, struct opd_queued *queued, uint64_t time, bool *late);
bool opd_queue_full(const struct opd_queue *queue);
// Lets go: what the rounds allow; the older half; everything. 0 or -ENOMEM.
int opd_queue_round(struct opd_queue *queue);
int opd_queue_half(struct opd_queue *queue);
int opd_queue_all(struct opd_queue *queue);
// The next one that may go, or NULL.
struct opd_queued *opd_queue_next(struct opd_queue *queue);
void opd_queue_destroy(struct opd_queue *queue);

// ---- the reader ------------------------------------------------------------

#define OPD_PERFDATA_NO_ZSTD "compressed with zstd, and libzstd.so.1 is not installed"

struct opd_perfdata {
    struct opd_source source;
    struct opd_stream stream;
    struct opd_inflate inflate;
    bool inflating;          // records come out of a compressed one
    uint64_t inflate_offset; // where that one is
    struct opd_events events;
    struct opd_features features;
    struct opd_queue queue;
    struct opd_queued *lent; // what the caller was given last
    struct opd_perfdata_stats stats;
    bool cut;      // the data section reaches past the end of the file
    bool named;    // all attrs have names from here on
    bool finished; // nothing more is read
};

// In the pipe layout: takes what comes before the first record proper.
int opd_perfdata_read_ahead(struct opd_perfdata *data);

// ---- words of any alignment --------------------------------------------------

static inline uint16_t
opd_load16(const uint8_t *bytes)
{
    uint16_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static inline uint32_t
opd_load32(const uint8_t *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static inline uint64_t
opd_load64(const uint8_t *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

#endif
