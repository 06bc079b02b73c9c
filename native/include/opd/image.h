// SPDX-License-Identifier: Apache-2.0
// Images: what code was mapped from. One entry for each distinct file (by
// build-id, else device, inode and generation, and its path), for the kernel,
// each module and BPF program, and the pseudo images. Bounded; entries that
// nothing refers to any more are recycled, their numbers are not.
#ifndef OPD_IMAGE_H
#define OPD_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum opd_image_kind {
    OPD_IMAGE_FILE = 0,
    OPD_IMAGE_KERNEL = 1,
    OPD_IMAGE_MODULE = 2,
    OPD_IMAGE_BPF = 3,
    OPD_IMAGE_VDSO = 4,
    OPD_IMAGE_VSYSCALL = 5,
    OPD_IMAGE_ANON = 6,
    OPD_IMAGE_UNKNOWN = 7,
};

// Numbers that every table starts with.
#define OPD_UID_UNKNOWN 0u
#define OPD_UID_KERNEL 1u
#define OPD_UID_ANON 2u
#define OPD_UID_VDSO 3u
#define OPD_UID_VSYSCALL 4u

struct opd_image_key {
    enum opd_image_kind kind;
    bool deleted;
    uint8_t build_id[20];
    uint8_t build_id_size;
    uint32_t major, minor;
    uint64_t inode, generation;
    uint64_t start, end; // runtime range of module and BPF images
    const char *path;    // without " (deleted)"
    const char *symbol;  // BPF programs, else ""
};

// Sorts a mapping's path into a kind, and cuts " (deleted)". `path` is copied
// into `buffer` when it must be shortened; key->path points to either.
void opd_image_key_of_path(struct opd_image_key *key, const char *path, char *buffer,
                           size_t buffer_size);

struct opd_images;

// `limit` <= 65536 entries. NULL with errno on ENOMEM.
struct opd_images *opd_images_create(uint32_t limit);
void opd_images_destroy(struct opd_images *images); // closes what was not taken

// The number of the image of `key`, known or new; OPD_UID_UNKNOWN, counted,
// when the table is full. *fresh tells a new one.
uint32_t opd_images_put(struct opd_images *images, const struct opd_image_key *key, bool *fresh);

// What an image is, without its path and symbol; NULL: there is none (any more).
const struct opd_image_key *opd_images_key(struct opd_images *images, uint32_t uid);

// Gives an open file of a fresh image to the table (which closes or hands it
// on); refused with -EMFILE beyond `limit_fds`, the caller then closes it.
int opd_images_give_fd(struct opd_images *images, uint32_t uid, int fd);

struct opd_image {
    uint32_t uid;
    uint32_t kind;
    uint32_t deleted;
    uint32_t build_id_size;
    uint8_t build_id[20];
    uint32_t major, minor;
    uint64_t inode, generation, start, end;
    int fd;              // the taker owns it; -1 none
    char *path, *symbol; // the taker frees them with opd_image_release()
};

// Takes up to `room` images not taken before, oldest first; returns how many.
bool opd_images_waiting(const struct opd_images *images); // whether it would give any
size_t opd_images_take(struct opd_images *images, struct opd_image *out, size_t room);
void opd_image_release(struct opd_image *image);

// Recycling: begin, mark every number in use, sweep the rest. Entries not
// taken yet stay.
void opd_images_mark_begin(struct opd_images *images);
void opd_images_mark(struct opd_images *images, uint32_t uid);
uint32_t opd_images_sweep(struct opd_images *images);

struct opd_images_stats {
    uint32_t live, limit, open_fds;
    uint64_t refused, fds_refused, swept, bytes;
};
void opd_images_stats(const struct opd_images *images, struct opd_images_stats *stats);

#endif
