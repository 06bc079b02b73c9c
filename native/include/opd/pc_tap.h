// SPDX-License-Identifier: Apache-2.0
// From a sample to a slot of a profile buffer: samples of one event, at
// addresses of the kernel, or inside of one file. Idle samples never come here.
#ifndef OPD_PC_TAP_H
#define OPD_PC_TAP_H

#include <stddef.h>
#include <stdint.h>

#include "opd/image.h"
#include "opd/pc_hash.h"

#define OPD_PC_SEGMENTS_MOST 16u

// A stretch of a file's code: its offset in the file, and its ELF address.
struct opd_pc_segment {
    uint64_t offset, size, address;
};

struct opd_pc_tap_options {
    struct opd_pc_hash *hash; // outlives the tap; its length is that of the range
    uint32_t event;           // samples of this event
    uint32_t shift;           // of an address to its slot
    uint64_t start, end;      // addresses: of the kernel, or of the ELF file
    // Of a file: where its code is, and which file it is. 0: the kernel.
    uint32_t segment_count;
    struct opd_pc_segment segments[OPD_PC_SEGMENTS_MOST];
    uint8_t build_id[20];
    uint8_t build_id_size; // 0: device and inode tell
    uint32_t major, minor;
    uint64_t inode;
};

struct opd_pc_tap;
// NULL with errno: EINVAL, ENOMEM.
struct opd_pc_tap *opd_pc_tap_create(const struct opd_pc_tap_options *options);
void opd_pc_tap_destroy(struct opd_pc_tap *tap);

// The feeder's thread: a sample on `cpu`. A user address is an offset in the
// file of image `uid` of `images`.
void opd_pc_tap_kernel(struct opd_pc_tap *tap, uint32_t cpu, uint64_t address);
void opd_pc_tap_user(struct opd_pc_tap *tap, uint32_t cpu, struct opd_images *images, uint32_t uid,
                     uint64_t offset);

uint32_t opd_pc_tap_event(const struct opd_pc_tap *tap);
int opd_pc_tap_is_kernel(const struct opd_pc_tap *tap);
struct opd_pc_hash *opd_pc_tap_hash(const struct opd_pc_tap *tap);
// Samples of the event that were not in the range, user's among them; any thread.
uint64_t opd_pc_tap_outside(const struct opd_pc_tap *tap);
// One more of them, the feeder's.
void opd_pc_tap_miss(struct opd_pc_tap *tap);

#endif
