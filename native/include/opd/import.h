// SPDX-License-Identifier: Apache-2.0
// Feeds a recording through the pipeline, window by window.
#ifndef OPD_IMPORT_H
#define OPD_IMPORT_H

#include <stdint.h>

#include "opd/perfdata.h"
#include "opd/pipeline.h"

struct opd_import;

// Both stay the caller's. NULL with errno on ENOMEM. The recording's build-id
// table is given to the pipeline, its events are added as they appear, in the
// order of its attrs.
struct opd_import *opd_import_create(struct opd_perfdata *data, struct opd_pipeline *pipeline);
void opd_import_destroy(struct opd_import *import);

// Feeds records up to the first sample of time >= `until` (event clock, ns):
// 1 when there is one, 0 at the end of the recording, -errno (-ENOSPC: more
// events than OPD_EVENTS_MAX). *next_time (may be NULL) is that sample's time.
int opd_import_feed(struct opd_import *import, uint64_t until, uint64_t *next_time);

#endif
