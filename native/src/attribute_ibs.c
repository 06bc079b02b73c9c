// SPDX-License-Identifier: Apache-2.0
// A sample of an IBS event: decoded, at the address that its record tells,
// and counted in the rows of its derived events.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cost.h"
#include "pipeline.h"

#define KERNEL_HALF (1ull << 63)
#define GUEST(mode) ((mode) == OPD_MISC_GUEST_KERNEL || (mode) == OPD_MISC_GUEST_USER)

static bool
events_are_known(const struct opd_pipeline *pipeline, const struct opd_pipeline_ibs *ibs)
{
    struct opd_ibs_mask own;
    opd_ibs_mask_of((enum opd_ibs_flavour)ibs->flavour, NULL, 0, &own);
    for (unsigned i = 0; i < OPD_IBS_EVENTS_MAX; i++) {
        const uint64_t wanted = ibs->user.words[i / 64] | ibs->kernel.words[i / 64];
        if (!(wanted >> (i % 64) & 1))
            continue;
        if (!(own.words[i / 64] >> (i % 64) & 1) || ibs->events[i] >= pipeline->event_count)
            return false;
    }
    return true;
}

int
opd_pipeline_set_ibs(struct opd_pipeline *pipeline, unsigned event,
                     const struct opd_pipeline_ibs *ibs)
{
    if (event >= pipeline->event_count || ibs->flavour >= OPD_IBS_FLAVOURS ||
        !events_are_known(pipeline, ibs))
        return -EINVAL;
    if (pipeline->ibs_of[event] != 0) {
        *pipeline->ibs[pipeline->ibs_of[event] - 1] = *ibs;
        return 0;
    }
    if (pipeline->ibs_count == OPD_IBS_SOURCES_MAX)
        return -ENOSPC;
    struct opd_pipeline_ibs *own = malloc(sizeof *own);
    if (own == NULL)
        return -ENOMEM;
    *own = *ibs;
    pipeline->ibs[pipeline->ibs_count] = own;
    pipeline->ibs_event[pipeline->ibs_count] = (uint16_t)event;
    pipeline->ibs_of[event] = (uint8_t)++pipeline->ibs_count;
    return 0;
}

// The record's own address; false when it tells none.
static bool
address_of(const struct opd_ibs_sample *sample, uint64_t *address)
{
    if (sample->source->flavour == OPD_IBS_FETCH) {
        *address = sample->u.fetch.linear;
        return (sample->u.fetch.has & OPD_IBS_FETCH_HAS_LINEAR) && *address != 0;
    }
    *address = sample->u.op.rip;
    return (sample->u.op.has & OPD_IBS_OP_HAS_RIP_VALID) != 0;
}

static void
decode(struct opd_ibs_sample *sample)
{
    const struct opd_ibs_machine *machine = &sample->source->machine;
    const uint8_t *raw = sample->record.u.sample.raw;
    const size_t size = sample->record.u.sample.raw_size;
    struct opd_ibs_mask wanted;
    for (unsigned i = 0; i < OPD_IBS_EVENTS_MAX / 64; i++)
        wanted.words[i] = sample->source->user.words[i] | sample->source->kernel.words[i];
    if (sample->source->flavour == OPD_IBS_FETCH) {
        sample->flaws = opd_ibs_decode_fetch(machine, raw, size, &sample->u.fetch);
        opd_ibs_fetch_hits(machine, &sample->u.fetch, &wanted, &sample->hits);
    } else {
        sample->flaws = opd_ibs_decode_op(machine, raw, size, &sample->u.op);
        opd_ibs_op_hits(machine, &sample->u.op, &wanted, &sample->hits);
    }
}

struct opd_ibs_sample *
opd_ibs_open(const struct opd_pipeline *pipeline, uint32_t event, const struct opd_record *record,
             struct opd_ibs_sample *sample)
{
    if (pipeline->ibs_of[event] == 0)
        return NULL;
    sample->record = *record;
    sample->counts = pipeline->ibs_of[event] - 1u;
    sample->source = pipeline->ibs[sample->counts];
    sample->decoded = (record->has & OPD_HAS_RAW) != 0;
    sample->exact = false;
    sample->plain = false;
    sample->flaws = 0;
    sample->hits = (struct opd_ibs_hits){.values = {0}};
    if (!sample->decoded)
        return sample;
    decode(sample);
    uint64_t address;
    if ((sample->flaws & OPD_IBS_NO_SAMPLE) || !address_of(sample, &address))
        return sample;
    const uint16_t mode = record->misc & OPD_MISC_CPUMODE_MASK;
    sample->exact = true;
    sample->record.u.sample.ip = address;
    sample->record.misc |= OPD_MISC_EXACT_IP;
    if (!GUEST(mode)) { // the interrupt may have come in the other mode
        sample->record.misc &= (uint16_t)~OPD_MISC_CPUMODE_MASK;
        sample->record.misc |= address >= KERNEL_HALF ? OPD_MISC_KERNEL : OPD_MISC_USER;
    }
    return sample;
}

bool
opd_ibs_select(struct opd_ibs_sample *sample, bool kernel)
{
    const struct opd_pipeline_ibs *source = sample->source;
    const struct opd_ibs_mask *wanted = kernel ? &source->kernel : &source->user;
    bool any = false, mode = false;
    for (unsigned i = 0; i < OPD_IBS_EVENTS_MAX / 64; i++) {
        mode |= wanted->words[i] != 0;
        sample->hits.events.words[i] &= wanted->words[i];
        any |= sample->hits.events.words[i] != 0;
    }
    // Of a mode of which nothing is wanted the event itself is not either.
    sample->plain = source->plain && mode;
    return any || sample->plain;
}

void
opd_ibs_note(struct opd_pipeline *pipeline, const struct opd_ibs_sample *sample)
{
    struct opd_ibs_counts *counts = &pipeline->tables[pipeline->active].ibs[sample->counts];
    if (!sample->exact)
        counts->inexact++;
    if (!sample->decoded) {
        counts->bare++;
        return;
    }
    counts->records++;
    if (sample->flaws & OPD_IBS_INCOMPLETE)
        counts->incomplete++;
    if (sample->flaws & OPD_IBS_UNKNOWN_CAPS)
        counts->unknown_caps++;
    if (sample->flaws & OPD_IBS_NOT_VALID)
        counts->invalid++;
    if (sample->flaws & OPD_IBS_IGNORED)
        counts->ignored++;
    if (sample->source->flavour != OPD_IBS_OP || !(sample->record.has & OPD_HAS_DATA_SRC) ||
        (sample->flaws & (OPD_IBS_SHORT | OPD_IBS_NO_SAMPLE)))
        return;
    counts->compared++;
    if (!opd_ibs_data_src_agrees(&sample->source->machine, &sample->u.op,
                                 sample->record.u.sample.data_src))
        counts->mismatched++;
}

// Calls for the bit of every derived event that the sample enters.
#define EACH_EVENT(sample, bit)                                                                    \
    for (unsigned word_ = 0; word_ < OPD_IBS_EVENTS_MAX / 64; word_++)                             \
        for (uint64_t left_ = (sample)->hits.events.words[word_];                                  \
             left_ != 0 && ((bit) = word_ * 64 + (unsigned)__builtin_ctzll(left_), true);          \
             left_ &= left_ - 1)

void
opd_ibs_full(struct opd_pipeline *pipeline, const struct opd_hit *hit)
{
    struct opd_event_counts *events = pipeline->tables[pipeline->active].events;
    unsigned bit;
    EACH_EVENT(hit->ibs, bit)
    events[hit->ibs->source->events[bit]].hash_full++;
    if (hit->ibs->plain)
        events[hit->event].hash_full++;
}

static uint32_t
count_in(struct opd_pipeline *pipeline, const struct opd_hit *hit, const struct opd_thread *thread,
         uint16_t event, uint64_t weight)
{
    struct opd_tables *tables = &pipeline->tables[pipeline->active];
    uint64_t began = pipeline->hash_ticks != NULL ? opd_ticks() : 0;
    hit->ibs->key.event = event;
    uint32_t sfile = opd_sfile_number(pipeline, tables, thread, &hit->ibs->key);
    if (pipeline->hash_ticks != NULL)
        *pipeline->hash_ticks += opd_ticks() - began;
    if (sfile == OPD_INTERN_FULL)
        tables->events[event].hash_full++;
    else
        opd_count_row(pipeline, hit, event, sfile, weight);
    return sfile;
}

void
opd_ibs_count(struct opd_pipeline *pipeline, const struct opd_hit *hit)
{
    struct opd_ibs_sample *sample = hit->ibs;
    const uint64_t period = opd_weight_of(&pipeline->weights[hit->event], hit->record);
    unsigned count, bit, rows = sample->plain;
    const struct opd_ibs_event *events = opd_ibs_events(&count);
    for (unsigned i = 0; i < OPD_IBS_EVENTS_MAX / 64; i++)
        rows += (unsigned)__builtin_popcountll(sample->hits.events.words[i]);
    // A thread remembers few of its sample files: not worth it for many.
    const struct opd_thread *thread = rows == 1 ? hit->thread : NULL;
    uint32_t sfile = OPD_INTERN_FULL; // the one that what is kept belongs to
    if (sample->plain)
        sfile = count_in(pipeline, hit, thread, hit->event, period);
    EACH_EVENT(sample, bit)
    {
        const uint8_t value = events[bit].value;
        sample->sfiles[bit] =
            count_in(pipeline, hit, thread, sample->source->events[bit],
                     value != OPD_IBS_VALUE_NONE ? sample->hits.values[value] : period);
        if (sfile == OPD_INTERN_FULL)
            sfile = sample->sfiles[bit];
    }
    opd_ibs_keep(pipeline, hit, sfile, period);
}
