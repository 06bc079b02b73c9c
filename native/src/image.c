// SPDX-License-Identifier: Apache-2.0
#include "opd/image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "opd/intern.h"

#define SLOT_BITS 16
#define SLOT_MASK ((1u << SLOT_BITS) - 1)
#define PSEUDO_COUNT 5
#define FD_LIMIT 1024

// The number's low bits are its slot, the high ones the slot's generation, so
// that a recycled slot never answers to an old number.
struct slot {
    bool used, taken, marked;
    uint16_t generation;
    uint32_t next; // in its hash chain, SLOT_NONE ends it
    uint64_t hash;
    int fd;
    struct opd_image_key key;
    char *path, *symbol;
};

#define SLOT_NONE UINT32_MAX

void
opd_image_key_of_path(struct opd_image_key *key, const char *path, char *buffer, size_t buffer_size)
{
    static const char mark[] = " (deleted)";
    static const struct {
        const char *prefix;
        enum opd_image_kind kind;
        const char *name;
    } special[] = {
        {"[vdso]", OPD_IMAGE_VDSO, "[vdso]"},
        {"[vsyscall]", OPD_IMAGE_VSYSCALL, "[vsyscall]"},
        {"[uprobes]", OPD_IMAGE_UNKNOWN, "[unknown]"},
        {"/SYSV", OPD_IMAGE_ANON, "[anon]"},
        {"/dev/zero", OPD_IMAGE_ANON, "[anon]"},
        {"/anon_hugepage", OPD_IMAGE_ANON, "[anon]"},
        {"//anon", OPD_IMAGE_ANON, "[anon]"},
    };
    memset(key, 0, sizeof *key);
    key->symbol = "";
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++)
        if (strncmp(path, special[i].prefix, strlen(special[i].prefix)) == 0) {
            key->kind = special[i].kind;
            key->path = special[i].name;
            return;
        }
    if (path[0] != '/') { // [heap], [stack], [anon:…], anon_inode:…, nothing
        key->kind = OPD_IMAGE_ANON;
        key->path = "[anon]";
        return;
    }
    key->kind = OPD_IMAGE_FILE;
    key->path = path;
    size_t length = strlen(path), cut = sizeof mark - 1;
    if (length > cut && length - cut < buffer_size && strcmp(path + length - cut, mark) == 0) {
        memcpy(buffer, path, length - cut);
        buffer[length - cut] = '\0';
        key->path = buffer;
        key->deleted = true;
    }
}

struct opd_images {
    uint32_t limit, used, high; // slots [0, high) were used once
    uint32_t fresh_head;        // slots before it were taken, unless recycled
    struct slot *slots;
    uint32_t capacity;
    uint32_t *chains;
    uint32_t chain_count;
    uint32_t open_fds;
    uint64_t refused, fds_refused, swept, string_bytes;
    uint32_t untaken;
};

static uint64_t
key_hash(const struct opd_image_key *key)
{
    struct {
        uint64_t words[6];
        uint8_t build_id[24];
    } flat;
    memset(&flat, 0, sizeof flat);
    flat.words[0] =
        (uint64_t)key->kind | (uint64_t)key->deleted << 8 | (uint64_t)key->build_id_size << 16;
    flat.words[1] = (uint64_t)key->major << 32 | key->minor;
    flat.words[2] = key->inode;
    flat.words[3] = key->generation;
    flat.words[4] = key->start;
    flat.words[5] = key->end;
    memcpy(flat.build_id, key->build_id, key->build_id_size);
    uint64_t hash = opd_hash64(&flat, sizeof flat);
    hash ^= opd_hash64(key->path, strlen(key->path)) * 0x9e3779b97f4a7c15u;
    hash ^= opd_hash64(key->symbol, strlen(key->symbol)) * 0xc2b2ae3d27d4eb4fu;
    return hash;
}

static bool
key_equal(const struct slot *slot, const struct opd_image_key *key)
{
    const struct opd_image_key *own = &slot->key;
    return own->kind == key->kind && own->deleted == key->deleted &&
           own->build_id_size == key->build_id_size &&
           memcmp(own->build_id, key->build_id, key->build_id_size) == 0 &&
           own->major == key->major && own->minor == key->minor && own->inode == key->inode &&
           own->generation == key->generation && own->start == key->start && own->end == key->end &&
           strcmp(slot->path, key->path) == 0 && strcmp(slot->symbol, key->symbol) == 0;
}

static int
grow(struct opd_images *images)
{
    uint32_t capacity = images->capacity ? images->capacity * 2 : 256;
    if (capacity > images->limit)
        capacity = images->limit;
    struct slot *slots = realloc(images->slots, capacity * sizeof *slots);
    if (slots == NULL)
        return -ENOMEM;
    memset(slots + images->capacity, 0, (capacity - images->capacity) * sizeof *slots);
    images->slots = slots;
    images->capacity = capacity;

    uint32_t chain_count = 256;
    while (chain_count < capacity)
        chain_count *= 2;
    uint32_t *chains = malloc(chain_count * sizeof *chains);
    if (chains == NULL)
        return -ENOMEM;
    memset(chains, 0xff, chain_count * sizeof *chains);
    free(images->chains);
    images->chains = chains;
    images->chain_count = chain_count;
    for (uint32_t i = 0; i < images->high; i++) {
        struct slot *slot = &slots[i];
        if (!slot->used)
            continue;
        uint32_t *chain = &chains[slot->hash & (chain_count - 1)];
        slot->next = *chain;
        *chain = i;
    }
    return 0;
}

// A free slot: one never used, else one that was recycled.
static uint32_t
free_slot(struct opd_images *images)
{
    if (images->high < images->capacity)
        return images->high++;
    if (images->used < images->high) {
        for (uint32_t i = 0; i < images->high; i++)
            if (!images->slots[i].used)
                return i;
    }
    if (images->capacity < images->limit && grow(images) == 0)
        return images->high++;
    return SLOT_NONE;
}

struct opd_images *
opd_images_create(uint32_t limit)
{
    static const struct {
        enum opd_image_kind kind;
        const char *path;
    } pseudo[PSEUDO_COUNT] = {
        {OPD_IMAGE_UNKNOWN, "[unknown]"},   {OPD_IMAGE_KERNEL, "[kernel]"},
        {OPD_IMAGE_ANON, "[anon]"},         {OPD_IMAGE_VDSO, "[vdso]"},
        {OPD_IMAGE_VSYSCALL, "[vsyscall]"},
    };
    struct opd_images *images = calloc(1, sizeof *images);
    if (images == NULL)
        return NULL;
    if (limit < 2 * PSEUDO_COUNT)
        limit = 2 * PSEUDO_COUNT;
    if (limit > SLOT_MASK + 1)
        limit = SLOT_MASK + 1;
    images->limit = limit;
    if (grow(images) != 0) {
        opd_images_destroy(images);
        errno = ENOMEM;
        return NULL;
    }
    for (unsigned i = 0; i < PSEUDO_COUNT; i++) {
        struct opd_image_key key = {.kind = pseudo[i].kind, .path = pseudo[i].path, .symbol = ""};
        bool fresh;
        if (opd_images_put(images, &key, &fresh) != i) {
            opd_images_destroy(images);
            errno = ENOMEM;
            return NULL;
        }
    }
    return images;
}

static void
slot_clear(struct opd_images *images, struct slot *slot)
{
    if (slot->fd >= 0) {
        close(slot->fd);
        images->open_fds--;
    }
    images->string_bytes -= strlen(slot->path) + strlen(slot->symbol) + 2;
    free(slot->path);
    free(slot->symbol);
    slot->path = slot->symbol = NULL;
    slot->fd = -1;
    slot->used = false;
    images->used--;
}

void
opd_images_destroy(struct opd_images *images)
{
    if (images == NULL)
        return;
    for (uint32_t i = 0; i < images->high; i++)
        if (images->slots[i].used)
            slot_clear(images, &images->slots[i]);
    free(images->slots);
    free(images->chains);
    free(images);
}

uint32_t
opd_images_put(struct opd_images *images, const struct opd_image_key *key, bool *fresh)
{
    uint64_t hash = key_hash(key);
    *fresh = false;
    for (uint32_t i = images->chains[hash & (images->chain_count - 1)]; i != SLOT_NONE;
         i = images->slots[i].next) {
        struct slot *slot = &images->slots[i];
        if (slot->hash == hash && key_equal(slot, key))
            return i | (uint32_t)slot->generation << SLOT_BITS;
    }
    uint32_t index = free_slot(images);
    char *path = index == SLOT_NONE ? NULL : strdup(key->path);
    char *symbol = path == NULL ? NULL : strdup(key->symbol);
    if (symbol == NULL) {
        free(path);
        images->refused++;
        return OPD_UID_UNKNOWN;
    }
    struct slot *slot = &images->slots[index];
    slot->used = true;
    slot->taken = slot->marked = false;
    slot->hash = hash;
    slot->fd = -1;
    slot->key = *key;
    slot->key.path = slot->key.symbol = NULL;
    slot->path = path;
    slot->symbol = symbol;
    uint32_t *chain = &images->chains[hash & (images->chain_count - 1)];
    slot->next = *chain;
    *chain = index;
    images->used++;
    images->untaken++;
    images->string_bytes += strlen(path) + strlen(symbol) + 2;
    if (index < images->fresh_head)
        images->fresh_head = index;
    *fresh = true;
    return index | (uint32_t)slot->generation << SLOT_BITS;
}

static struct slot *
slot_of(struct opd_images *images, uint32_t uid)
{
    uint32_t index = uid & SLOT_MASK;
    if (index >= images->high)
        return NULL;
    struct slot *slot = &images->slots[index];
    return slot->used && slot->generation == uid >> SLOT_BITS ? slot : NULL;
}

const struct opd_image_key *
opd_images_key(struct opd_images *images, uint32_t uid)
{
    const struct slot *slot = slot_of(images, uid);
    return slot != NULL ? &slot->key : NULL;
}

int
opd_images_give_fd(struct opd_images *images, uint32_t uid, int fd)
{
    struct slot *slot = slot_of(images, uid);
    if (slot == NULL || slot->taken || slot->fd >= 0)
        return -EINVAL;
    if (images->open_fds >= FD_LIMIT) {
        images->fds_refused++;
        return -EMFILE;
    }
    slot->fd = fd;
    images->open_fds++;
    return 0;
}

bool
opd_images_waiting(const struct opd_images *images)
{
    return images->untaken > 0;
}

size_t
opd_images_take(struct opd_images *images, struct opd_image *out, size_t room)
{
    size_t count = 0;
    uint32_t i = images->fresh_head;
    for (; i < images->high && count < room && images->untaken > 0; i++) {
        struct slot *slot = &images->slots[i];
        if (!slot->used || slot->taken)
            continue;
        struct opd_image *image = &out[count];
        const struct opd_image_key *key = &slot->key;
        *image = (struct opd_image){
            .uid = i | (uint32_t)slot->generation << SLOT_BITS,
            .kind = key->kind,
            .deleted = key->deleted,
            .build_id_size = key->build_id_size,
            .major = key->major,
            .minor = key->minor,
            .inode = key->inode,
            .generation = key->generation,
            .start = key->start,
            .end = key->end,
            .fd = slot->fd,
            .path = strdup(slot->path),
            .symbol = strdup(slot->symbol),
        };
        memcpy(image->build_id, key->build_id, sizeof image->build_id);
        if (image->path == NULL || image->symbol == NULL) {
            image->fd = -1; // still the slot's
            opd_image_release(image);
            break;
        }
        if (slot->fd >= 0) {
            slot->fd = -1;
            images->open_fds--;
        }
        slot->taken = true;
        images->untaken--;
        count++;
    }
    images->fresh_head = images->untaken == 0 ? images->high : i;
    return count;
}

void
opd_image_release(struct opd_image *image)
{
    if (image->fd >= 0)
        close(image->fd);
    free(image->path);
    free(image->symbol);
    image->fd = -1;
    image->path = image->symbol = NULL;
}

void
opd_images_mark_begin(struct opd_images *images)
{
    for (uint32_t i = 0; i < images->high; i++)
        images->slots[i].marked = i < PSEUDO_COUNT;
}

void
opd_images_mark(struct opd_images *images, uint32_t uid)
{
    struct slot *slot = slot_of(images, uid);
    if (slot != NULL)
        slot->marked = true;
}

uint32_t
opd_images_sweep(struct opd_images *images)
{
    uint32_t swept = 0;
    for (uint32_t i = 0; i < images->high; i++) {
        struct slot *slot = &images->slots[i];
        if (!slot->used || slot->marked || !slot->taken)
            continue;
        uint32_t *link = &images->chains[slot->hash & (images->chain_count - 1)];
        while (*link != i)
            link = &images->slots[*link].next;
        *link = slot->next;
        slot_clear(images, slot);
        slot->generation++;
        swept++;
    }
    images->swept += swept;
    return swept;
}

void
opd_images_stats(const struct opd_images *images, struct opd_images_stats *stats)
{
    *stats = (struct opd_images_stats){
        .live = images->used,
        .limit = images->limit,
        .open_fds = images->open_fds,
        .refused = images->refused,
        .fds_refused = images->fds_refused,
        .swept = images->swept,
        .bytes = images->capacity * sizeof(struct slot) + images->chain_count * sizeof(uint32_t) +
                 images->string_bytes,
    };
}
