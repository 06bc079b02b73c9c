// SPDX-License-Identifier: Apache-2.0
// The first 16 bytes choose a layout, the rest is one record in a buffer of
// exactly its length, so that a sanitizer sees every byte too far.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "opd/record.h"

#define CHOICE 16u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink;

static void
touch(const void *bytes, uint64_t size)
{
    const uint8_t *byte = bytes;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < size; i++)
        sum += byte[i];
    sink += sum;
}

static void
touch_text(const char *text, size_t length)
{
    if (text[length] != 0 || strlen(text) != length)
        abort();
}

static void
touch_record(const struct opd_record *record)
{
    switch (record->type) {
    case OPD_RECORD_SAMPLE:
        touch(record->u.sample.chain, record->u.sample.chain_length * 8);
        touch(record->u.sample.raw, record->u.sample.raw_size);
        touch(record->u.sample.regs_user, (uint64_t)record->u.sample.regs_user_count * 8);
        touch(record->u.sample.stack_user, record->u.sample.stack_user_size);
        break;
    case OPD_RECORD_MMAP:
    case OPD_RECORD_MMAP2:
        if (record->u.mmap.build_id_size > sizeof record->u.mmap.build_id)
            abort();
        touch_text(record->u.mmap.path, record->u.mmap.path_length);
        break;
    case OPD_RECORD_COMM:
        touch_text(record->u.comm.comm, record->u.comm.comm_length);
        break;
    case OPD_RECORD_KSYMBOL:
        touch_text(record->u.ksymbol.name, record->u.ksymbol.name_length);
        break;
    case OPD_RECORD_CGROUP:
        touch_text(record->u.cgroup.path, record->u.cgroup.path_length);
        break;
    default:
        break;
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < CHOICE)
        return 0;
    struct opd_record_layout layout = {.read_format = data[4],
                                       .branch_sample_type = (uint64_t)data[5] << 16,
                                       .sample_regs_user = (uint64_t)data[6] << 4,
                                       .sample_regs_intr = data[7],
                                       .sample_id_all = data[8] & 1,
                                       .build_id = data[8] >> 1 & 1};
    uint32_t type;
    memcpy(&type, data, sizeof type);
    layout.sample_type = type;
    data += CHOICE;
    size -= CHOICE;

    uint8_t *bytes = malloc(size > 0 ? size : 1);
    if (bytes == NULL)
        return 0;
    memcpy(bytes, data, size);
    struct opd_record record;
    uint64_t identifier, time;
    int parsed = opd_record_parse(&layout, bytes, size, &record);
    if (parsed > 0) {
        if ((size_t)parsed > size || (size_t)parsed != opd_record_size(bytes, size))
            abort();
        touch_record(&record);
        if (opd_record_time(&layout, bytes, size, &time) &&
            (!(record.has & OPD_HAS_TIME) || time != record.time))
            abort();
        if (opd_record_identifier(bytes, size, &identifier) == 0 && (type & (1u << 16)) &&
            record.type < 64 && (layout.sample_id_all || record.type == OPD_RECORD_SAMPLE) &&
            !(type & (1u << 6)) && identifier != record.id)
            abort();
    } else {
        (void)opd_record_time(&layout, bytes, size, &time);
        (void)opd_record_identifier(bytes, size, &identifier);
    }
    free(bytes);
    return 0;
}
