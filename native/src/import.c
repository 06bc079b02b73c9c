// SPDX-License-Identifier: Apache-2.0
#include "opd/import.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_OTHER_TYPE 6u // the kernel numbers PMUs from there on
#define ATTR_PRECISE_SHIFT 15
#define ATTR_PRECISE_MASK 3u

#define SAMPLE_RAW (1u << 10)

// What is known of the recording's IBS PMUs.
struct ibs_facts {
    bool learned; // from a reading ahead
    struct opd_ibs_machine machine;
    bool mapped; // `types` are told
    uint32_t types[OPD_IBS_FLAVOURS];
};

struct opd_import {
    struct opd_perfdata *data;
    struct opd_pipeline *pipeline;
    size_t attrs; // seen so far
    size_t build_ids;
    uint32_t numbers[OPD_EVENTS_MAX]; // of attrs in the pipeline
    struct opd_import_event events[OPD_EVENTS_MAX];
    size_t event_count;
    struct ibs_facts ibs;
    bool derived[OPD_IBS_FLAVOURS];      // their events were added
    uint16_t of_bit[OPD_IBS_EVENTS_MAX]; // as these
    bool waiting;                        // `event` was read and belongs to the next window
    struct opd_perfdata_event event;
};

static struct ibs_facts
ibs_facts_of(const struct opd_perfdata *data)
{
    const struct opd_perfdata_facts *facts = opd_perfdata_facts(data);
    struct ibs_facts ibs = {.types = {UINT32_MAX, UINT32_MAX}, .mapped = facts->pmu_count > 0};
    opd_ibs_cpuid(facts->cpuid, &ibs.machine);
    ibs.machine.kernel = opd_ibs_kernel(facts->os_release);
    for (size_t i = 0; i < facts->pmu_count; i++)
        for (int flavour = 0; flavour < OPD_IBS_FLAVOURS; flavour++)
            if (strcmp(facts->pmus[i].name, opd_ibs_flavour_name((enum opd_ibs_flavour)flavour)) ==
                0)
                ibs.types[flavour] = facts->pmus[i].type;
    return ibs;
}

// "ibs_op", "ibs_op/cnt_ctl=1/", "ibs_op:u".
static bool
is_named(const char *name, const char *pmu)
{
    const size_t length = strlen(pmu);
    return strncmp(name, pmu, length) == 0 &&
           (name[length] == '\0' || name[length] == '/' || name[length] == ':');
}

// The PMU's type is told by the table of PMUs; where there is none, by the
// event's name, of types that are not the kernel's own.
static int
flavour_of(const struct ibs_facts *ibs, const struct opd_perfdata_attr *attr)
{
    for (int flavour = 0; flavour < OPD_IBS_FLAVOURS; flavour++) {
        const char *pmu = opd_ibs_flavour_name((enum opd_ibs_flavour)flavour);
        if (ibs->mapped ? attr->type == ibs->types[flavour]
                        : attr->type >= FIRST_OTHER_TYPE && is_named(attr->name, pmu))
            return flavour;
    }
    return -1;
}

static bool
has_raw(const struct opd_perfdata_attr *attr)
{
    return (attr->layout.sample_type & SAMPLE_RAW) != 0;
}

int
opd_import_ibs_flavour(const struct opd_import *import, size_t attr, bool *raw)
{
    size_t count;
    const struct opd_perfdata_attr *attrs = opd_perfdata_attrs(import->data, &count);
    struct ibs_facts ibs = import->ibs.learned ? import->ibs : ibs_facts_of(import->data);
    if (attr >= count)
        return -1;
    if (raw != NULL)
        *raw = has_raw(&attrs[attr]);
    return flavour_of(&ibs, &attrs[attr]);
}

static uint64_t
period_of(const struct opd_perfdata_attr *attr, int flavour)
{
    uint64_t period = attr->frequency ? 0 : attr->sample_period;
    if (flavour >= 0 && !attr->frequency) {
        uint64_t counted =
            opd_ibs_period((enum opd_ibs_flavour)flavour, attr->config, attr->sample_period);
        if (counted != 0)
            period = counted;
    }
    return period != 0 ? period : 1;
}

static int
add_event(struct opd_import *import, const struct opd_pipeline_event *event, int32_t derived)
{
    int number = opd_pipeline_add_event(import->pipeline, event);
    if (number < 0)
        return number;
    import->events[number] =
        (struct opd_import_event){.attr = (uint32_t)import->attrs, .derived = derived};
    import->event_count = (size_t)number + 1;
    return number;
}

// Adds the events that are derived of the records of event `number`; those of
// another attr of the same PMU are the same events.
static int
add_derived(struct opd_import *import, const struct opd_pipeline_event *event, unsigned number,
            enum opd_ibs_flavour flavour, const struct opd_ibs_machine *machine)
{
    struct opd_pipeline_ibs ibs = {.flavour = (uint8_t)flavour, .plain = true, .machine = *machine};
    opd_ibs_mask_of(flavour, NULL, 0, &ibs.user);
    ibs.kernel = ibs.user;
    for (unsigned bit = 0; bit < OPD_IBS_EVENTS_MAX && !import->derived[flavour]; bit++) {
        if (!(ibs.user.words[bit / 64] >> (bit % 64) & 1))
            continue;
        int derived = add_event(import, event, (int32_t)bit);
        if (derived < 0)
            return derived;
        import->of_bit[bit] = (uint16_t)derived;
    }
    import->derived[flavour] = true;
    memcpy(ibs.events, import->of_bit, sizeof ibs.events);
    return opd_pipeline_set_ibs(import->pipeline, number, &ibs);
}

static int
add_events(struct opd_import *import, const struct opd_perfdata *data)
{
    size_t count;
    const struct opd_perfdata_attr *attrs = opd_perfdata_attrs(data, &count);
    for (; import->attrs < count; import->attrs++) {
        const struct opd_perfdata_attr *attr = &attrs[import->attrs];
        if (!import->ibs.learned)
            import->ibs = ibs_facts_of(data);
        const int flavour = flavour_of(&import->ibs, attr);
        struct opd_pipeline_event event = {
            .period = period_of(attr, flavour),
            .precise = (attr->flags >> ATTR_PRECISE_SHIFT & ATTR_PRECISE_MASK) != 0,
        };
        int number = add_event(import, &event, -1);
        if (number < 0)
            return number;
        import->numbers[import->attrs] = (uint32_t)number;
        int rc = 0;
        if (flavour >= 0 && has_raw(attr))
            rc = add_derived(import, &event, (unsigned)number, (enum opd_ibs_flavour)flavour,
                             &import->ibs.machine);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int
opd_import_learn(struct opd_import *import, const struct opd_perfdata *ahead)
{
    import->ibs = ibs_facts_of(ahead);
    import->ibs.learned = true;
    return add_events(import, ahead);
}

// In the pipe layout attrs and build-ids come between the records.
static int
catch_up(struct opd_import *import)
{
    int added = add_events(import, import->data);
    if (added < 0)
        return added;
    const struct opd_perfdata_facts *facts = opd_perfdata_facts(import->data);
    for (; import->build_ids < facts->build_id_count; import->build_ids++) {
        const struct opd_perfdata_build_id *entry = &facts->build_ids[import->build_ids];
        // A module stands in the table by its file's path, in the maps too.
        int rc =
            opd_pipeline_add_build_id(import->pipeline, entry->path, entry->build_id, entry->size);
        if (rc == -ENOMEM)
            return rc;
    }
    return 0;
}

struct opd_import *
opd_import_create(struct opd_perfdata *data, struct opd_pipeline *pipeline)
{
    struct opd_import *import = calloc(1, sizeof *import);
    if (import == NULL)
        return NULL;
    import->data = data;
    import->pipeline = pipeline;
    return import;
}

void
opd_import_destroy(struct opd_import *import)
{
    free(import);
}

const struct opd_import_event *
opd_import_events(const struct opd_import *import, size_t *count)
{
    *count = import->event_count;
    return import->events;
}

int
opd_import_feed(struct opd_import *import, uint64_t until, uint64_t *next_time)
{
    int rc = catch_up(import);
    if (rc < 0)
        return rc;
    for (;;) {
        if (!import->waiting) {
            rc = opd_perfdata_next(import->data, &import->event);
            if (rc <= 0)
                return rc;
        }
        struct opd_perfdata_event *event = &import->event;
        import->waiting = event->record.type == OPD_RECORD_SAMPLE && event->record.time >= until;
        if (import->waiting) {
            if (next_time != NULL)
                *next_time = event->record.time;
            return 1;
        }
        rc = catch_up(import);
        if (rc < 0)
            return rc;
        opd_pipeline_feed(import->pipeline, event->event < 0 ? 0 : import->numbers[event->event],
                          &event->record);
    }
}
