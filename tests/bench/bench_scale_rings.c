// SPDX-License-Identifier: Apache-2.0
// Reads recorded rings (harness/rings.py has the format) and writes them into
// rings that look like the kernel's.
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench_scale.h"

#define CPUS_MAX 1024u
#define PIDS_MAX 65536u
#define TRAILER 32u // pid, tid, time, cpu, id behind what is no sample
#define CLOCK_BASE UINT64_C(1000000000000)
#define SKEW 1009u // ns between copies: no two CPUs tick at once

// All that the places below rely on; period and chain come behind them.
#define SAMPLE_TYPE                                                                                \
    (PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU)
#define SAMPLE_MORE (PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_PERIOD)
#define SAMPLE_PID 24u
#define SAMPLE_TIME 32u
#define SAMPLE_CPU 40u

static uint32_t
get32(const uint8_t *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static uint64_t
get64(const uint8_t *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static void
put64(uint8_t *bytes, uint64_t value)
{
    memcpy(bytes, &value, sizeof value);
}

// Where a record has pids and tids, from its start.
static unsigned
pid_places(uint32_t type, uint32_t size, uint32_t places[6])
{
    unsigned count = 0;
    if (type == OPD_RECORD_SAMPLE) {
        places[count++] = SAMPLE_PID;
        places[count++] = SAMPLE_PID + 4;
        return count;
    }
    const unsigned own = type == OPD_RECORD_FORK || type == OPD_RECORD_EXIT ? 4 : 2;
    for (; count < own; count++)
        places[count] = 8 + 4 * count;
    places[count++] = size - TRAILER;
    places[count++] = size - TRAILER + 4;
    return count;
}

static bool
is_played(uint32_t type)
{
    return type == OPD_RECORD_SAMPLE || type == OPD_RECORD_MMAP || type == OPD_RECORD_MMAP2 ||
           type == OPD_RECORD_COMM || type == OPD_RECORD_FORK || type == OPD_RECORD_EXIT;
}

// The shortest that has all the places written to.
static uint32_t
least(uint32_t type)
{
    if (type == OPD_RECORD_SAMPLE)
        return 48;
    return (type == OPD_RECORD_FORK || type == OPD_RECORD_EXIT ? 32 : 24) + TRAILER;
}

static uint8_t *
read_file(const char *path, size_t *size)
{
    struct stat stat;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    uint8_t *bytes = NULL;
    if (fstat(fileno(file), &stat) == 0 && (bytes = malloc((size_t)stat.st_size + 8)) != NULL) {
        *size = (size_t)stat.st_size;
        if (fread(bytes, 1, *size, file) != *size) {
            free(bytes);
            bytes = NULL;
        }
    }
    fclose(file);
    return bytes;
}

static int
add(struct source *source, const struct played *record)
{
    if (source->count == source->room) {
        const size_t room = source->room != 0 ? source->room * 2 : 1024;
        struct played *records = reallocarray(source->records, room, sizeof *records);
        if (records == NULL)
            return -ENOMEM;
        source->records = records;
        source->room = room;
    }
    source->records[source->count++] = *record;
    return 0;
}

// Numbers pids densely, so that copies of the recording can follow each other.
static int
number_pids(struct recording *recording)
{
    uint32_t *known = malloc(PIDS_MAX * sizeof *known);
    if (known == NULL)
        return -ENOMEM;
    int rc = 0;
    for (unsigned i = 0; i < recording->source_count && rc == 0; i++)
        for (size_t j = 0; j < recording->sources[i].count && rc == 0; j++) {
            const struct played *record = &recording->sources[i].records[j];
            uint8_t *bytes = (uint8_t *)(uintptr_t)record->bytes; // of our own copy of the file
            uint32_t places[6];
            const unsigned count = pid_places(record->type, record->size, places);
            for (unsigned k = 0; k < count && rc == 0; k++) {
                const uint32_t pid = get32(bytes + places[k]);
                uint32_t number = 0;
                if ((int32_t)pid <= 0)
                    continue; // the idle task, the kernel
                while (number < recording->pids && known[number] != pid)
                    number++;
                if (number == recording->pids) {
                    if (number == PIDS_MAX)
                        rc = -ENOSPC;
                    else
                        known[recording->pids++] = pid;
                }
                number++;
                memcpy(bytes + places[k], &number, sizeof number);
            }
        }
    free(known);
    return rc;
}

static int
split(struct recording *recording, size_t at, size_t size, const char **why)
{
    uint64_t first = UINT64_MAX, last = 0;
    *why = "a record that cannot be one";
    while (at < size) {
        if (size - at < 16)
            return -EBADMSG;
        const uint32_t cpu = get32(recording->file + at), length = get32(recording->file + at + 4);
        const uint8_t *bytes = recording->file + at + 8;
        if (cpu >= recording->source_count || length > size - at - 8 ||
            opd_record_size(bytes, length) != length)
            return -EBADMSG;
        at += 8 + length;
        struct played record = {.size = length, .type = get32(bytes), .bytes = bytes};
        if (!is_played(record.type))
            continue;
        const bool sample = record.type == OPD_RECORD_SAMPLE;
        if (length < least(record.type) ||
            !opd_record_time(&recording->layout, bytes, length, &record.time))
            return -EBADMSG;
        if (add(&recording->sources[cpu], &record) != 0)
            return -ENOMEM;
        recording->samples += sample;
        recording->others += !sample;
        first = record.time < first ? record.time : first;
        last = record.time > last ? record.time : last;
    }
    if (recording->samples == 0) {
        *why = "no samples";
        return -EBADMSG;
    }
    for (unsigned i = 0; i < recording->source_count; i++)
        for (size_t j = 0; j < recording->sources[i].count; j++)
            recording->sources[i].records[j].time -= first;
    recording->span = last - first + 1000000;
    return 0;
}

int
recording_read(struct recording *recording, const char *path, const char **why)
{
    size_t size = 0;
    *recording = (struct recording){.file = read_file(path, &size)};
    *why = "cannot be read";
    if (recording->file == NULL)
        return -EIO;
    *why = "not recorded rings";
    if (size < 24 || memcmp(recording->file, "OPDRINGS", 8) != 0)
        return -EINVAL;
    recording->source_count = get32(recording->file + 8);
    const uint64_t sample_type = get64(recording->file + 16);
    const size_t records = 24 + (size_t)recording->source_count * 16;
    if (recording->source_count == 0 || recording->source_count > CPUS_MAX || size < records ||
        (sample_type & ~(uint64_t)SAMPLE_MORE) != SAMPLE_TYPE)
        return -EINVAL;
    recording->layout =
        (struct opd_record_layout){.sample_type = sample_type, .sample_id_all = true};
    recording->sources = calloc(recording->source_count, sizeof *recording->sources);
    *why = "no memory";
    if (recording->sources == NULL)
        return -ENOMEM;
    for (unsigned i = 0; i < recording->source_count; i++) {
        recording->sources[i].sideband_id = get64(recording->file + 24 + 16 * i);
        recording->sources[i].sample_id = get64(recording->file + 32 + 16 * i);
    }
    int rc = split(recording, records, size, why);
    if (rc != 0)
        return rc;
    *why = "too many processes, or no memory";
    return number_pids(recording);
}

void
recording_free(struct recording *recording)
{
    for (unsigned i = 0; recording->sources != NULL && i < recording->source_count; i++)
        free(recording->sources[i].records);
    free(recording->sources);
    free(recording->file);
}

int
player_open(struct player *player, uint32_t cpu, size_t ring_bytes)
{
    struct opd_ring *ring = player->ring;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *ring = (struct opd_ring){
        .cpu = cpu,
        .data_bytes = ring_bytes,
        .map_bytes = ring_bytes + page,
        .event_count = 1,
        .sideband = {.fd = -1, .id = player->source->sideband_id},
    };
    ring->events[0] = (struct opd_ring_event){.fd = -1, .id = player->source->sample_id};
    ring->map = mmap(NULL, ring->map_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return ring->map == MAP_FAILED ? -errno : 0;
}

// The record as this CPU's kernel would have written it.
static void
rewrite(const struct player *player, const struct played *record, uint64_t time, uint8_t *bytes)
{
    uint32_t places[6];
    memcpy(bytes, record->bytes, record->size);
    const unsigned count = pid_places(record->type, record->size, places);
    for (unsigned i = 0; i < count; i++) {
        uint32_t pid = get32(bytes + places[i]);
        if ((int32_t)pid <= 0)
            continue;
        pid += player->copy * player->recording->pids;
        memcpy(bytes + places[i], &pid, sizeof pid);
    }
    const bool sample = record->type == OPD_RECORD_SAMPLE;
    put64(bytes + (sample ? SAMPLE_TIME : record->size - TRAILER + 8), CLOCK_BASE + time);
    put64(bytes + (sample ? SAMPLE_CPU : record->size - TRAILER + 16), player->ring->cpu);
    if (record->type == OPD_RECORD_FORK || record->type == OPD_RECORD_EXIT)
        put64(bytes + 24, CLOCK_BASE + time);
}

static void
write_ring(struct opd_ring *ring, uint64_t head, const uint8_t *bytes, size_t size)
{
    uint8_t *data = (uint8_t *)ring->map + (ring->map_bytes - ring->data_bytes);
    const size_t from = (size_t)(head & (ring->data_bytes - 1));
    const size_t room = ring->data_bytes - from;
    memcpy(data + from, bytes, size < room ? size : room);
    if (size > room)
        memcpy(data, bytes + room, size - room);
}

void
player_feed(struct player *player, uint64_t until)
{
    const struct source *source = player->source;
    struct perf_event_mmap_page *page = player->ring->map;
    uint64_t head = page->data_head; // nobody else writes it
    uint8_t bytes[1 << 16];
    while (source->count > 0) {
        if (player->at == source->count) {
            player->at = 0;
            player->round++;
        }
        const struct played *record = &source->records[player->at];
        const uint64_t whole = player->round * player->recording->span + record->time;
        const uint64_t time = (uint64_t)((double)whole / player->speed) + player->copy * SKEW;
        if (time >= until)
            break;
        player->at++;
        const bool sample = record->type == OPD_RECORD_SAMPLE;
        if (sample && !player->samples)
            continue;
        if (record->size > player->ring->data_bytes - (head - player->ring->tail)) {
            player->full++;
            continue;
        }
        rewrite(player, record, time, bytes);
        write_ring(player->ring, head, bytes, record->size);
        head += record->size;
        player->fed_records++;
        player->fed_samples += sample;
    }
    __atomic_store_n(&page->data_head, head, __ATOMIC_RELEASE);
}
