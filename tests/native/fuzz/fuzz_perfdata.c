// SPDX-License-Identifier: Apache-2.0
// Reads the input as a recording to its end and looks at all that it says.
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "opd/perfdata.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink;

static void
touch_text(const char *text)
{
    sink += strlen(text);
}

static void
touch_facts(const struct opd_perfdata *data)
{
    const struct opd_perfdata_facts *facts = opd_perfdata_facts(data);
    touch_text(facts->hostname);
    touch_text(facts->os_release);
    touch_text(facts->version);
    touch_text(facts->arch);
    touch_text(facts->cpuid);
    touch_text(facts->cpu_description);
    for (size_t i = 0; i < facts->command_line_count; i++)
        touch_text(facts->command_line[i]);
    for (size_t i = 0; i < facts->build_id_count; i++)
        touch_text(facts->build_ids[i].path);
    for (size_t i = 0; i < facts->pmu_count; i++)
        touch_text(facts->pmus[i].name);
    for (size_t i = 0; i < facts->cap_count; i++) {
        touch_text(facts->caps[i].pmu);
        touch_text(facts->caps[i].name);
        touch_text(facts->caps[i].value);
    }
    size_t count;
    const struct opd_perfdata_attr *attrs = opd_perfdata_attrs(data, &count);
    for (size_t i = 0; i < count; i++) {
        touch_text(attrs[i].name);
        for (size_t k = 0; k < attrs[i].id_count; k++)
            sink += attrs[i].ids[k];
    }
}

static void
touch_bytes(const struct opd_perfdata_event *event)
{
    const uint8_t *bytes = event->bytes;
    for (size_t i = 0; i < event->record.size; i++)
        sink += bytes[i];
    if (event->record.type == OPD_RECORD_SAMPLE)
        for (uint64_t i = 0; i < event->record.u.sample.chain_length; i++)
            sink += event->record.u.sample.chain[i];
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct opd_perfdata *data;
    const char *reason;
    int status = opd_perfdata_open_memory(bytes, size, &data, &reason);
    if (status < 0) {
        touch_text(reason);
        return 0;
    }
    if (size % 3 == 0) // also take the way of files too large to sort whole
        opd_perfdata_limit_pending(data, 256);
    touch_facts(data);
    struct opd_perfdata_event event;
    uint64_t delivered = 0, newest = 0;
    bool ordered = true;
    while ((status = opd_perfdata_next(data, &event)) == 1) {
        size_t count;
        opd_perfdata_attrs(data, &count);
        if (event.event >= 0 ? (size_t)event.event >= count
                             : event.record.type == OPD_RECORD_SAMPLE)
            abort();
        if (event.offset >= size || event.record.type >= 64)
            abort();
        touch_bytes(&event);
        if ((event.record.has & OPD_HAS_TIME) && event.record.time != UINT64_MAX &&
            event.record.time != 0) {
            ordered &= event.record.time >= newest;
            newest = event.record.time;
        }
        delivered++;
    }
    touch_facts(data);
    const struct opd_perfdata_stats *stats = opd_perfdata_stats(data);
    if (status == 0 && (!stats->ended || stats->delivered != delivered ||
                        stats->end_offset > size || (!ordered && stats->late == 0)))
        abort();
    touch_text(stats->end_reason);
    opd_perfdata_close(data);
    return 0;
}
