// SPDX-License-Identifier: Apache-2.0
// A sample's address, for the histogram of program counters.
#include "pipeline.h"

void
opd_count_address(struct opd_pipeline *pipeline, const struct opd_hit *hit)
{
    const struct opd_record *record = hit->record;
    uint64_t address = record->u.sample.ip;
    if (hit->event != opd_pc_tap_event(pipeline->tap))
        return;
    if (opd_pc_tap_is_kernel(pipeline->tap) != hit->kernel) {
        opd_pc_tap_miss(pipeline->tap);
    } else if (hit->kernel) {
        opd_pc_tap_kernel(pipeline->tap, record->cpu, address);
    } else {
        const uint32_t image = opd_resolve(pipeline, hit->maps, false, &address);
        opd_pc_tap_user(pipeline->tap, record->cpu, pipeline->images, image, address);
    }
}
