// SPDX-License-Identifier: Apache-2.0
#include "opd/pc_tap.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define VERDICTS 256u

// Whether an image is the file: images keep their numbers for ever.
struct verdict {
    uint32_t uid;
    bool known, is_it;
};

struct opd_pc_tap {
    struct opd_pc_tap_options options;
    uint32_t cpus;
    _Atomic uint64_t outside;
    struct verdict verdicts[VERDICTS];
};

struct opd_pc_tap *
opd_pc_tap_create(const struct opd_pc_tap_options *options)
{
    if (options->hash == NULL || options->shift > 31 || options->end <= options->start ||
        options->segment_count > OPD_PC_SEGMENTS_MOST ||
        options->build_id_size > sizeof options->build_id ||
        (options->end - 1 - options->start) >> options->shift >=
            opd_pc_hash_length(options->hash)) {
        errno = EINVAL;
        return NULL;
    }
    struct opd_pc_tap *tap = calloc(1, sizeof *tap);
    if (tap == NULL)
        return NULL;
    tap->options = *options;
    tap->cpus = opd_pc_hash_cpus(options->hash);
    return tap;
}

void
opd_pc_tap_destroy(struct opd_pc_tap *tap)
{
    free(tap);
}

uint32_t
opd_pc_tap_event(const struct opd_pc_tap *tap)
{
    return tap->options.event;
}

int
opd_pc_tap_is_kernel(const struct opd_pc_tap *tap)
{
    return tap->options.segment_count == 0;
}

struct opd_pc_hash *
opd_pc_tap_hash(const struct opd_pc_tap *tap)
{
    return tap->options.hash;
}

uint64_t
opd_pc_tap_outside(const struct opd_pc_tap *tap)
{
    return atomic_load_explicit((_Atomic uint64_t *)&tap->outside, memory_order_relaxed);
}

void
opd_pc_tap_miss(struct opd_pc_tap *tap)
{
    // One writer.
    atomic_store_explicit(&tap->outside, opd_pc_tap_outside(tap) + 1, memory_order_relaxed);
}

void
opd_pc_tap_kernel(struct opd_pc_tap *tap, uint32_t cpu, uint64_t address)
{
    const struct opd_pc_tap_options *options = &tap->options;
    if (address < options->start || address >= options->end || cpu >= tap->cpus) {
        opd_pc_tap_miss(tap);
        return;
    }
    const uint32_t slot = (uint32_t)((address - options->start) >> options->shift);
    opd_pc_hash_add(options->hash, cpu, &slot, 1);
}

static bool
is_file(struct opd_pc_tap *tap, struct opd_images *images, uint32_t uid)
{
    const struct opd_pc_tap_options *options = &tap->options;
    struct verdict *verdict = &tap->verdicts[uid % VERDICTS];
    if (verdict->known && verdict->uid == uid)
        return verdict->is_it;
    const struct opd_image_key *key = opd_images_key(images, uid);
    bool is_it = false;
    if (key != NULL && key->kind == OPD_IMAGE_FILE) {
        if (key->build_id_size != 0 && options->build_id_size != 0)
            is_it = key->build_id_size == options->build_id_size &&
                    memcmp(key->build_id, options->build_id, key->build_id_size) == 0;
        else
            is_it = key->inode != 0 && key->inode == options->inode &&
                    key->major == options->major && key->minor == options->minor;
    }
    *verdict = (struct verdict){.uid = uid, .known = true, .is_it = is_it};
    return is_it;
}

void
opd_pc_tap_user(struct opd_pc_tap *tap, uint32_t cpu, struct opd_images *images, uint32_t uid,
                uint64_t offset)
{
    const struct opd_pc_tap_options *options = &tap->options;
    if (is_file(tap, images, uid))
        for (uint32_t i = 0; i < options->segment_count; i++) {
            const struct opd_pc_segment *segment = &options->segments[i];
            if (offset >= segment->offset && offset - segment->offset < segment->size) {
                opd_pc_tap_kernel(tap, cpu, offset - segment->offset + segment->address);
                return;
            }
        }
    opd_pc_tap_miss(tap);
}
