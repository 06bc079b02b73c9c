// SPDX-License-Identifier: Apache-2.0
#include "opd/import.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ATTR_PRECISE_SHIFT 15
#define ATTR_PRECISE_MASK 3u

struct opd_import {
    struct opd_perfdata *data;
    struct opd_pipeline *pipeline;
    size_t events;
    size_t build_ids;
    bool waiting; // `event` was read and belongs to the next window
    struct opd_perfdata_event event;
};

// In the pipe layout attrs and build-ids come between the records.
static int
catch_up(struct opd_import *import)
{
    size_t count;
    const struct opd_perfdata_attr *attrs = opd_perfdata_attrs(import->data, &count);
    for (; import->events < count; import->events++) {
        const struct opd_perfdata_attr *attr = &attrs[import->events];
        struct opd_pipeline_event event = {
            .period = attr->frequency || attr->sample_period == 0 ? 1 : attr->sample_period,
            .precise = (attr->flags >> ATTR_PRECISE_SHIFT & ATTR_PRECISE_MASK) != 0,
        };
        int rc = opd_pipeline_add_event(import->pipeline, &event);
        if (rc < 0)
            return rc;
    }
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
        opd_pipeline_feed(import->pipeline, event->event < 0 ? 0 : (unsigned)event->event,
                          &event->record);
    }
}
