// SPDX-License-Identifier: Apache-2.0
// The packed list in a file, which is mapped as it stands.
#include "kallsyms.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAGIC "opdksym\1" // the last byte counts layouts

// Then entries, module numbers (when there are modules), module names, names.
struct header {
    char magic[8];
    uint8_t key[OPD_KALLSYMS_KEY];
    uint64_t base, text, stext, etext;
    uint64_t count, module_count, names_size;
};
_Static_assert(sizeof(struct header) % 8 == 0, "entries behind it are aligned");

struct sizes {
    size_t entries, modules, module_names, whole;
};

static size_t
align8(size_t size)
{
    return (size + 7) & ~(size_t)7;
}

static struct sizes
sizes_of(const struct header *header)
{
    struct sizes sizes = {
        .entries = header->count * sizeof(struct kallsyms_entry),
        .modules = header->module_count > 0 ? align8(header->count * sizeof(uint16_t)) : 0,
        .module_names = align8(header->module_count * sizeof(uint32_t)),
    };
    sizes.whole = sizeof *header + sizes.entries + sizes.modules + sizes.module_names +
                  (size_t)header->names_size;
    return sizes;
}

int
opd_kallsyms_save(const struct opd_kallsyms *table, const uint8_t key[OPD_KALLSYMS_KEY], int fd)
{
    static const char zeros[8];
    struct header header = {
        .magic = MAGIC,
        .base = table->base,
        .text = table->text,
        .stext = table->stext,
        .etext = table->etext,
        .count = table->count,
        .module_count = table->module_count,
        .names_size = table->names_size,
    };
    memcpy(header.key, key, sizeof header.key);
    const struct sizes sizes = sizes_of(&header);
    const size_t modules = header.module_count > 0 ? table->count * sizeof *table->modules : 0;
    const size_t module_names = table->module_count * sizeof *table->module_names;
    struct iovec parts[] = {
        {&header, sizeof header},
        {table->entries, sizes.entries},
        {table->modules, modules},
        {(void *)zeros, sizes.modules - modules},
        {table->module_names, module_names},
        {(void *)zeros, sizes.module_names - module_names},
        {table->names, table->names_size},
    };
    // A regular file takes it whole, or it has no room.
    ssize_t written = writev(fd, parts, sizeof parts / sizeof *parts);
    if (written < 0)
        return -errno;
    return (size_t)written == sizes.whole ? 0 : -ENOSPC;
}

// Whether the table can be used as it stands, whatever wrote the file.
static bool
is_sound(const struct opd_kallsyms *table)
{
    if (table->names_size == 0 || table->names[table->names_size - 1] != '\0')
        return false;
    uint32_t before = 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct kallsyms_entry *entry = &table->entries[i];
        if (entry->address < before || entry->name >= table->names_size ||
            (table->modules != NULL && table->modules[i] > table->module_count))
            return false;
        before = entry->address;
    }
    for (size_t i = 0; i < table->module_count; i++)
        if (table->module_names[i] >= table->names_size)
            return false;
    return true;
}

int
opd_kallsyms_map(int fd, const uint8_t key[OPD_KALLSYMS_KEY], struct opd_kallsyms **result)
{
    struct stat status;
    *result = NULL;
    if (fstat(fd, &status) != 0)
        return -errno;
    if (!S_ISREG(status.st_mode) || status.st_size < (off_t)sizeof(struct header) ||
        status.st_size > OPD_KALLSYMS_MAX)
        return -EBADMSG;
    size_t size = (size_t)status.st_size;
    struct opd_kallsyms *table = calloc(1, sizeof *table);
    if (table == NULL)
        return -ENOMEM;
    table->map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (table->map == MAP_FAILED) {
        int error = errno;
        free(table);
        return -error;
    }
    table->map_size = size;
    int rc = -EBADMSG;
    const struct header *header = table->map;
    const struct sizes sizes = sizes_of(header);
    if (memcmp(header->magic, MAGIC, sizeof header->magic) != 0)
        goto refuse;
    rc = -ESTALE;
    if (memcmp(header->key, key, sizeof header->key) != 0)
        goto refuse;
    rc = -EBADMSG;
    // Each part below the bound: then no product above ran over.
    if (header->count == 0 || header->count > size || header->module_count > UINT16_MAX ||
        header->names_size > size || sizes.whole != size)
        goto refuse;
    char *at = (char *)table->map + sizeof *header;
    table->base = header->base;
    table->text = header->text;
    table->stext = header->stext;
    table->etext = header->etext;
    table->count = header->count;
    table->module_count = header->module_count;
    table->names_size = header->names_size;
    table->entries = (struct kallsyms_entry *)at;
    at += sizes.entries;
    if (table->module_count > 0)
        table->modules = (uint16_t *)at;
    at += sizes.modules;
    table->module_names = (uint32_t *)at;
    table->names = at + sizes.module_names;
    if (!is_sound(table))
        goto refuse;
    *result = table;
    return 0;

refuse:
    opd_kallsyms_close(table);
    return rc;
}
