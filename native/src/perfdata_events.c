// SPDX-License-Identifier: Apache-2.0
// The events of a recording: attrs, names, and which event a record is of.
#include "perfdata_internal.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define ATTR_MIN 64u // the first published size
#define EVENT_LIMIT 65536u
#define ID_LIMIT ((size_t)1 << 22)
#define FLAG_FREQUENCY (1ull << 10)
#define FLAG_BUILD_ID (1ull << 34)
#define FLAG_SAMPLE_ID_ALL (1ull << 18)
#define FLAG_USE_CLOCKID (1ull << 25)

#define AT(field) offsetof(struct perf_event_attr, field)

// Zero for what an older attr does not have.
static uint64_t
attr64(const uint8_t *attr, size_t size, size_t at)
{
    return at + 8 <= size ? opd_load64(attr + at) : 0;
}

static uint32_t
attr32(const uint8_t *attr, size_t size, size_t at)
{
    return at + 4 <= size ? opd_load32(attr + at) : 0;
}

int
opd_events_add(struct opd_events *events, const uint8_t *attr, size_t size, const uint8_t *ids,
               size_t id_count)
{
    if (size < ATTR_MIN)
        return -EBADMSG;
    uint32_t own_size = opd_load32(attr + AT(size));
    if (own_size == 0)
        own_size = ATTR_MIN;
    if (own_size < ATTR_MIN)
        return -EBADMSG;
    if (size > own_size)
        size = own_size;
    if (events->count >= EVENT_LIMIT || id_count > ID_LIMIT - events->id_total)
        return -E2BIG;
    if (events->count == events->capacity) {
        size_t capacity = events->capacity ? events->capacity * 2 : 16;
        void *grown = reallocarray(events->attrs, capacity, sizeof *events->attrs);
        if (grown == NULL)
            return -ENOMEM;
        events->attrs = grown;
        events->capacity = capacity;
    }
    uint64_t *kept = opd_pool_take(&events->pool, id_count * sizeof *kept);
    if (kept == NULL)
        return -ENOMEM;
    if (id_count > 0)
        memcpy(kept, ids, id_count * sizeof *kept);
    // The flag word is the one before wakeup_events.
    const uint64_t flags = attr64(attr, size, AT(read_format) + 8);
    events->attrs[events->count++] = (struct opd_perfdata_attr){
        .type = attr32(attr, size, AT(type)),
        .config = attr64(attr, size, AT(config)),
        .config1 = attr64(attr, size, AT(config1)),
        .config2 = attr64(attr, size, AT(config2)),
        .sample_period = attr64(attr, size, AT(sample_period)),
        .flags = flags,
        .frequency = (flags & FLAG_FREQUENCY) != 0,
        .use_clockid = (flags & FLAG_USE_CLOCKID) != 0,
        .clockid = (int32_t)attr32(attr, size, AT(clockid)),
        .sample_stack_user = attr32(attr, size, AT(sample_stack_user)),
        .layout = {.sample_type = attr64(attr, size, AT(sample_type)),
                   .read_format = attr64(attr, size, AT(read_format)),
                   .branch_sample_type = attr64(attr, size, AT(branch_sample_type)),
                   .sample_regs_user = attr64(attr, size, AT(sample_regs_user)),
                   .sample_regs_intr = attr64(attr, size, AT(sample_regs_intr)),
                   .sample_id_all = (flags & FLAG_SAMPLE_ID_ALL) != 0,
                   .build_id = (flags & FLAG_BUILD_ID) != 0},
        .ids = kept,
        .id_count = id_count,
    };
    events->id_total += id_count;
    events->scheme = OPD_IDS_UNKNOWN;
    return 0;
}

static int
compare_ids(const void *left, const void *right)
{
    const struct opd_id *a = left, *b = right;
    if (a->id != b->id)
        return a->id < b->id ? -1 : 1;
    return (a->event > b->event) - (a->event < b->event);
}

// Word of the id in a SAMPLE; 0 when it has none.
static size_t
sample_word(uint64_t type)
{
    if (type & PERF_SAMPLE_IDENTIFIER)
        return 1;
    if (!(type & PERF_SAMPLE_ID))
        return 0;
    return 1 + (size_t)__builtin_popcountll(
                   type & (PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR));
}

// Word of the id in the trailer, counted from the record's end; 0: none.
static size_t
trailer_word(uint64_t type)
{
    if (type & PERF_SAMPLE_IDENTIFIER)
        return 1;
    if (!(type & PERF_SAMPLE_ID))
        return 0;
    return 1 + (size_t)__builtin_popcountll(type & (PERF_SAMPLE_STREAM_ID | PERF_SAMPLE_CPU));
}

static void
choose_scheme(struct opd_events *events)
{
    const uint64_t trailer = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ID |
                             PERF_SAMPLE_STREAM_ID | PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER;
    const struct opd_record_layout *first = &events->attrs[0].layout;
    bool same_words = true, same_layout = true, same_id_all = true;
    events->sample_word = sample_word(first->sample_type);
    events->trailer_word = trailer_word(first->sample_type);
    events->same_trailer = true;
    for (size_t i = 1; i < events->count; i++) {
        const struct opd_record_layout *layout = &events->attrs[i].layout;
        if (sample_word(layout->sample_type) != events->sample_word ||
            trailer_word(layout->sample_type) != events->trailer_word)
            same_words = false;
        if (layout->sample_type != first->sample_type ||
            layout->read_format != first->read_format ||
            layout->branch_sample_type != first->branch_sample_type ||
            layout->sample_regs_user != first->sample_regs_user ||
            layout->sample_regs_intr != first->sample_regs_intr)
            same_layout = false;
        if ((layout->sample_type ^ first->sample_type) & trailer)
            events->same_trailer = false;
        if (layout->sample_id_all != first->sample_id_all)
            same_id_all = false;
    }
    events->trailer_ids = first->sample_id_all;
    if (events->count == 1)
        events->scheme = OPD_IDS_ONE;
    else if (!same_id_all)
        events->scheme = OPD_IDS_IMPOSSIBLE;
    else if (same_words && events->sample_word > 0)
        events->scheme = OPD_IDS_POSITION;
    else
        events->scheme = same_layout ? OPD_IDS_FIRST : OPD_IDS_IMPOSSIBLE;
}

int
opd_events_prepare(struct opd_events *events)
{
    if (events->scheme != OPD_IDS_UNKNOWN || events->count == 0)
        return 0;
    free(events->ids);
    events->id_count = 0;
    events->ids = calloc(events->id_total + 1, sizeof *events->ids);
    if (events->ids == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < events->count; i++)
        for (size_t k = 0; k < events->attrs[i].id_count; k++)
            events->ids[events->id_count++] = (struct opd_id){events->attrs[i].ids[k], (int32_t)i};
    qsort(events->ids, events->id_count, sizeof *events->ids, compare_ids);
    memset(events->recent, 0, sizeof events->recent); // id 0 is never looked up
    choose_scheme(events);
    return 0;
}

int
opd_events_find_id(struct opd_events *events, uint64_t id)
{
    struct opd_id *recent = &events->recent[id % (sizeof events->recent / sizeof *recent)];
    if (id != 0 && recent->id == id)
        return recent->event;
    size_t low = 0, high = events->id_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (events->ids[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == events->id_count || events->ids[low].id != id)
        return -ENOENT;
    *recent = events->ids[low];
    return recent->event;
}

int
opd_events_find(struct opd_events *events, const void *bytes)
{
    if (events->scheme == OPD_IDS_UNKNOWN && opd_events_prepare(events) < 0)
        return -ENOMEM;
    switch (events->scheme) {
    case OPD_IDS_ONE:
    case OPD_IDS_FIRST:
        return 0;
    case OPD_IDS_POSITION:
        break;
    default:
        return -ENOTSUP;
    }
    const uint64_t *words = bytes;
    const size_t count = opd_load16((const uint8_t *)bytes + 6) / 8;
    size_t at;
    if (opd_load32(bytes) == OPD_RECORD_SAMPLE) {
        at = events->sample_word;
        if (at >= count)
            return -EBADMSG;
    } else {
        if (!events->trailer_ids)
            return 0;
        if (events->trailer_word >= count)
            return -EBADMSG;
        at = count - events->trailer_word;
    }
    // perf's own first records have no id: they are the first event's.
    return words[at] == 0 ? 0 : opd_events_find_id(events, words[at]);
}

void
opd_events_release(struct opd_events *events)
{
    free(events->attrs);
    free(events->ids);
    opd_pool_release(&events->pool);
    *events = (struct opd_events){0};
}

static const char *const hardware_names[] = {
    "cycles",
    "instructions",
    "cache-references",
    "cache-misses",
    "branches",
    "branch-misses",
    "bus-cycles",
    "stalled-cycles-frontend",
    "stalled-cycles-backend",
    "ref-cycles",
};
static const char *const software_names[] = {
    "cpu-clock",        "task-clock",   "page-faults",  "context-switches",
    "cpu-migrations",   "minor-faults", "major-faults", "alignment-faults",
    "emulation-faults", "dummy",        "bpf-output",   "cgroup-switches",
};

static void
make_name(const struct opd_perfdata_facts *facts, const struct opd_perfdata_attr *attr, char *name,
          size_t size)
{
    const unsigned long long config = attr->config;
    switch (attr->type) {
    case PERF_TYPE_HARDWARE:
        if (config < sizeof hardware_names / sizeof *hardware_names)
            snprintf(name, size, "%s", hardware_names[config]);
        else
            snprintf(name, size, "hardware/config=0x%llx/", config);
        return;
    case PERF_TYPE_SOFTWARE:
        if (config < sizeof software_names / sizeof *software_names)
            snprintf(name, size, "%s", software_names[config]);
        else
            snprintf(name, size, "software/config=0x%llx/", config);
        return;
    case PERF_TYPE_TRACEPOINT:
        snprintf(name, size, "tracepoint/id=%llu/", config);
        return;
    case PERF_TYPE_HW_CACHE:
        snprintf(name, size, "hw-cache/config=0x%llx/", config);
        return;
    case PERF_TYPE_RAW:
        snprintf(name, size, "r%llx", config);
        return;
    case PERF_TYPE_BREAKPOINT:
        snprintf(name, size, "mem:0x%llx", (unsigned long long)attr->config1);
        return;
    default:
        break;
    }
    for (size_t i = 0; i < facts->pmu_count; i++)
        if (facts->pmus[i].type == attr->type) {
            snprintf(name, size, "%.200s/config=0x%llx/", facts->pmus[i].name, config);
            return;
        }
    snprintf(name, size, "pmu-%u/config=0x%llx/", attr->type, config);
}

int
opd_features_name_events(struct opd_features *features, struct opd_events *events)
{
    for (size_t i = 0; i < events->count; i++) {
        struct opd_perfdata_attr *attr = &events->attrs[i];
        char name[256];
        if (attr->name != NULL)
            continue;
        make_name(&features->facts, attr, name, sizeof name);
        char *kept = opd_pool_take(&events->pool, strlen(name) + 1);
        if (kept == NULL)
            return -ENOMEM;
        strcpy(kept, name);
        attr->name = kept;
    }
    return 0;
}
