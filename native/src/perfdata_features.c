// SPDX-License-Identifier: Apache-2.0
// The feature sections of a recording: strings are a length and that many
// bytes with a NUL among them; counts are never believed beyond the bytes.
#include "perfdata_internal.h"

#include <errno.h>
#include <stdlib.h>

#define POOL_LIMIT ((size_t)64 << 20)
#define POOL_BLOCK ((size_t)64 << 10)
#define BUILD_ID_SIZE_GIVEN (1u << 15) // header.misc of a build-id record
#define BUILD_ID_HEAD 36u              // header, pid, build-id with size byte
#define COMPRESSION_ZSTD 1u

// Feature numbers.
enum {
    BUILD_ID = 2,
    HOSTNAME = 3,
    OSRELEASE = 4,
    VERSION = 5,
    ARCH = 6,
    NRCPUS = 7,
    CPUDESC = 8,
    CPUID = 9,
    TOTAL_MEM = 10,
    CMDLINE = 11,
    EVENT_DESC = 12,
    PMU_MAPPINGS = 16,
    SAMPLE_TIME = 21,
    CLOCKID = 23,
    CPU_PMU_CAPS = 28,
    CLOCK_DATA = 29,
    PMU_CAPS = 31,
};

struct opd_pool_block {
    struct opd_pool_block *next;
    size_t used, size;
    uint64_t bytes[];
};

void *
opd_pool_take(struct opd_pool *pool, size_t size)
{
    if (size > POOL_LIMIT - pool->total)
        return NULL;
    size = (size + 7) & ~(size_t)7;
    struct opd_pool_block *block = pool->blocks;
    if (block == NULL || block->size - block->used < size) {
        size_t capacity = size > POOL_BLOCK ? size : POOL_BLOCK;
        block = malloc(sizeof *block + capacity);
        if (block == NULL)
            return NULL;
        block->next = pool->blocks;
        block->used = 0;
        block->size = capacity;
        pool->blocks = block;
    }
    void *bytes = (uint8_t *)block->bytes + block->used;
    block->used += size;
    pool->total += size < POOL_LIMIT - pool->total ? size : POOL_LIMIT - pool->total;
    return bytes;
}

void
opd_pool_release(struct opd_pool *pool)
{
    while (pool->blocks != NULL) {
        struct opd_pool_block *block = pool->blocks;
        pool->blocks = block->next;
        free(block);
    }
    pool->total = 0;
}

struct cursor {
    const uint8_t *next;
    size_t left;
};

static bool
take_bytes(struct cursor *cursor, size_t size, const uint8_t **bytes)
{
    if (size > cursor->left)
        return false;
    *bytes = cursor->next;
    cursor->next += size;
    cursor->left -= size;
    return true;
}

static bool
take32(struct cursor *cursor, uint32_t *value)
{
    const uint8_t *bytes;
    if (!take_bytes(cursor, sizeof *value, &bytes))
        return false;
    *value = opd_load32(bytes);
    return true;
}

static bool
take64(struct cursor *cursor, uint64_t *value)
{
    const uint8_t *bytes;
    if (!take_bytes(cursor, sizeof *value, &bytes))
        return false;
    *value = opd_load64(bytes);
    return true;
}

static const char *
keep_text(struct opd_pool *pool, const uint8_t *bytes, size_t size)
{
    size_t length = strnlen((const char *)bytes, size);
    if (length == size)
        return NULL;
    char *text = opd_pool_take(pool, length + 1);
    if (text != NULL)
        memcpy(text, bytes, length + 1);
    return text;
}

static bool
take_text(struct cursor *cursor, struct opd_pool *pool, const char **text)
{
    uint32_t size;
    const uint8_t *bytes;
    if (!take32(cursor, &size) || !take_bytes(cursor, size, &bytes))
        return false;
    const char *kept = keep_text(pool, bytes, size);
    if (kept == NULL)
        return false;
    *text = kept;
    return true;
}

void
opd_features_init(struct opd_features *features)
{
    *features = (struct opd_features){0};
    struct opd_perfdata_facts *facts = &features->facts;
    facts->hostname = facts->os_release = facts->version = "";
    facts->arch = facts->cpuid = facts->cpu_description = "";
}

void
opd_features_release(struct opd_features *features)
{
    opd_pool_release(&features->pool);
    free(features->build_ids);
    opd_features_init(features);
}

int
opd_features_build_id(struct opd_features *features, const uint8_t *bytes, size_t size)
{
    struct opd_perfdata_facts *facts = &features->facts;
    if (size <= BUILD_ID_HEAD)
        return -EBADMSG;
    struct opd_perfdata_build_id item = {.misc = opd_load16(bytes + 4)};
    const uint8_t *build_id = bytes + 12;
    memcpy(&item.pid, bytes + 8, sizeof item.pid);
    item.size = item.misc & BUILD_ID_SIZE_GIVEN ? build_id[20] : sizeof item.build_id;
    if (item.size > sizeof item.build_id)
        return -EBADMSG;
    memcpy(item.build_id, build_id, item.size);
    item.path = keep_text(&features->pool, bytes + BUILD_ID_HEAD, size - BUILD_ID_HEAD);
    if (item.path == NULL)
        return -EBADMSG;
    if (facts->build_id_count == features->build_id_capacity) {
        size_t capacity = features->build_id_capacity ? features->build_id_capacity * 2 : 64;
        void *grown = reallocarray(features->build_ids, capacity, sizeof *features->build_ids);
        if (grown == NULL)
            return -ENOMEM;
        facts->build_ids = features->build_ids = grown;
        features->build_id_capacity = capacity;
    }
    features->build_ids[facts->build_id_count++] = item;
    return 0;
}

static int
read_build_ids(struct opd_features *features, struct cursor *cursor)
{
    int status = 0;
    while (cursor->left >= OPD_PERF_HEADER_SIZE) {
        const uint8_t *bytes;
        size_t size = opd_load16(cursor->next + 6);
        if (size < OPD_PERF_HEADER_SIZE || !take_bytes(cursor, size, &bytes))
            return -EBADMSG;
        int one = opd_features_build_id(features, bytes, size);
        if (one == -ENOMEM)
            return one;
        if (one < 0)
            status = one;
    }
    return status;
}

static int
read_command_line(struct opd_features *features, struct cursor *cursor)
{
    uint32_t count;
    if (!take32(cursor, &count) || count > cursor->left / 4)
        return -EBADMSG;
    const char **words = opd_pool_take(&features->pool, count * sizeof *words);
    if (words == NULL)
        return -EBADMSG;
    for (uint32_t i = 0; i < count; i++)
        if (!take_text(cursor, &features->pool, &words[i]))
            return -EBADMSG;
    features->facts.command_line = words;
    features->facts.command_line_count = count;
    return 0;
}

static int
read_pmus(struct opd_features *features, struct cursor *cursor)
{
    uint32_t count;
    if (!take32(cursor, &count) || count > cursor->left / 8)
        return -EBADMSG;
    struct opd_perfdata_pmu *pmus = opd_pool_take(&features->pool, count * sizeof *pmus);
    if (pmus == NULL)
        return -EBADMSG;
    for (uint32_t i = 0; i < count; i++)
        if (!take32(cursor, &pmus[i].type) || !take_text(cursor, &features->pool, &pmus[i].name))
            return -EBADMSG;
    features->facts.pmus = pmus;
    features->facts.pmu_count = count;
    return 0;
}

// One PMU's {u32 count; {name, value}[]} goes behind those already there.
static int
read_caps(struct opd_features *features, struct cursor *cursor, const char *core_pmu)
{
    struct opd_perfdata_facts *facts = &features->facts;
    uint32_t count;
    if (!take32(cursor, &count) || count > cursor->left / 8)
        return -EBADMSG;
    size_t total = facts->cap_count + count;
    struct opd_perfdata_cap *caps = opd_pool_take(&features->pool, total * sizeof *caps);
    if (caps == NULL)
        return -EBADMSG;
    if (facts->cap_count > 0)
        memcpy(caps, facts->caps, facts->cap_count * sizeof *caps);
    for (size_t i = facts->cap_count; i < total; i++)
        if (!take_text(cursor, &features->pool, &caps[i].name) ||
            !take_text(cursor, &features->pool, &caps[i].value))
            return -EBADMSG;
    const char *pmu = core_pmu;
    if (pmu == NULL && !take_text(cursor, &features->pool, &pmu))
        return -EBADMSG;
    for (size_t i = facts->cap_count; i < total; i++)
        caps[i].pmu = pmu;
    facts->caps = caps;
    facts->cap_count = total;
    return 0;
}

static int
read_all_caps(struct opd_features *features, struct cursor *cursor)
{
    uint32_t pmus;
    if (!take32(cursor, &pmus))
        return -EBADMSG;
    for (uint32_t i = 0; i < pmus; i++) {
        int status = read_caps(features, cursor, NULL);
        if (status < 0)
            return status;
    }
    return 0;
}

// The names of the events: the attr that one of its ids belongs to, or else
// the attr of the same number.
static int
read_event_names(struct opd_events *events, struct cursor *cursor)
{
    uint32_t count, attr_size;
    if (!take32(cursor, &count) || !take32(cursor, &attr_size))
        return -EBADMSG;
    int prepared = opd_events_prepare(events);
    if (prepared == -ENOMEM)
        return prepared;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id_count;
        const uint8_t *attr, *ids;
        const char *name;
        if (!take_bytes(cursor, attr_size, &attr) || !take32(cursor, &id_count) ||
            !take_text(cursor, &events->pool, &name) || id_count > cursor->left / 8 ||
            !take_bytes(cursor, (size_t)id_count * 8, &ids))
            return -EBADMSG;
        int event = id_count > 0 ? opd_events_find_id(events, opd_load64(ids)) : -ENOENT;
        if (event < 0 && i < events->count)
            event = (int)i;
        if (event >= 0)
            events->attrs[event].name = name;
    }
    return 0;
}

static bool
read_clock_data(struct opd_perfdata_facts *facts, struct cursor *cursor)
{
    uint32_t version;
    if (!take32(cursor, &version) || version != 1 || !take32(cursor, &facts->clock_id) ||
        !take64(cursor, &facts->clock_wall_ns) || !take64(cursor, &facts->clock_time_ns))
        return false;
    facts->has_clock_data = true;
    return true;
}

static bool
read_fact(struct opd_features *features, uint32_t number, struct cursor *cursor)
{
    struct opd_perfdata_facts *facts = &features->facts;
    struct opd_pool *pool = &features->pool;
    uint32_t version, kind;
    switch (number) {
    case HOSTNAME:
        return take_text(cursor, pool, &facts->hostname);
    case OSRELEASE:
        return take_text(cursor, pool, &facts->os_release);
    case VERSION:
        return take_text(cursor, pool, &facts->version);
    case ARCH:
        return take_text(cursor, pool, &facts->arch);
    case NRCPUS:
        return take32(cursor, &facts->cpus_available) && take32(cursor, &facts->cpus_online);
    case CPUDESC:
        return take_text(cursor, pool, &facts->cpu_description);
    case CPUID:
        return take_text(cursor, pool, &facts->cpuid);
    case TOTAL_MEM:
        return take64(cursor, &facts->total_memory_kib);
    case SAMPLE_TIME:
        if (!take64(cursor, &facts->first_sample_ns) || !take64(cursor, &facts->last_sample_ns))
            return false;
        // perf leaves zeros when it did not look at the samples it wrote.
        facts->has_sample_time = facts->last_sample_ns > 0 && facts->last_sample_ns < UINT64_MAX;
        return true;
    case CLOCKID:
        return take64(cursor, &facts->clock_resolution_ns);
    case CLOCK_DATA:
        return read_clock_data(facts, cursor);
    case OPD_FEATURE_COMPRESSED:
        facts->compressed = true;
        return take32(cursor, &version) && take32(cursor, &kind) && kind == COMPRESSION_ZSTD;
    default:
        return true;
    }
}

int
opd_features_read(struct opd_features *features, struct opd_events *events, uint32_t number,
                  const uint8_t *bytes, size_t size)
{
    struct cursor cursor = {bytes, size};
    int status;
    switch (number) {
    case BUILD_ID:
        status = read_build_ids(features, &cursor);
        break;
    case CMDLINE:
        status = read_command_line(features, &cursor);
        break;
    case EVENT_DESC:
        status = read_event_names(events, &cursor);
        break;
    case PMU_MAPPINGS:
        status = read_pmus(features, &cursor);
        break;
    case CPU_PMU_CAPS:
        status = read_caps(features, &cursor, "cpu");
        break;
    case PMU_CAPS:
        status = read_all_caps(features, &cursor);
        break;
    default:
        status = read_fact(features, number, &cursor) ? 0 : -EBADMSG;
        break;
    }
    if (status == -ENOMEM)
        return status;
    if (status < 0)
        features->facts.bad_features++;
    return 0;
}
