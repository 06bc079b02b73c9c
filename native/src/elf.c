// SPDX-License-Identifier: Apache-2.0
// Headers, segments, sections and the build-id of an ELF file.
#include "elf_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_SEGMENTS 4096
#define MAX_SECTIONS 65280 // SHN_LORESERVE
#define MAX_NOTES 65536

int
elf_source_read(const struct elf_source *source, uint64_t offset, void *bytes, size_t length)
{
    if (offset > source->size || length > source->size - offset)
        return -ENODATA;
    if (source->fd < 0) {
        memcpy(bytes, source->memory + offset, length);
        return 0;
    }
    uint8_t *to = bytes;
    while (length > 0) {
        ssize_t got = pread(source->fd, to, length, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            return -ENODATA;
        to += got;
        offset += (uint64_t)got;
        length -= (size_t)got;
    }
    return 0;
}

int
elf_window_init(struct elf_window *window, const struct elf_source *source, size_t step)
{
    *window = (struct elf_window){.source = source, .step = step, .bytes = malloc(ELF_WINDOW_SIZE)};
    return window->bytes == NULL ? -ENOMEM : 0;
}

int
elf_window_init_whole(struct elf_window *window, const struct elf_source *source, size_t step,
                      uint64_t offset, uint64_t size)
{
    if (offset > source->size)
        size = 0;
    else if (size > source->size - offset)
        size = source->size - offset;
    if (size > ELF_WHOLE)
        return elf_window_init(window, source, step);
    *window = (struct elf_window){.source = source, .start = offset, .step = step};
    window->bytes = malloc(size > ELF_WINDOW_SIZE ? (size_t)size : ELF_WINDOW_SIZE);
    if (window->bytes == NULL)
        return -ENOMEM;
    if (elf_source_read(source, offset, window->bytes, (size_t)size) == 0)
        window->length = (size_t)size;
    return 0;
}

void
elf_window_free(struct elf_window *window)
{
    free(window->bytes);
    window->bytes = NULL;
}

const uint8_t *
elf_window_at(struct elf_window *window, uint64_t offset, size_t need, size_t *available)
{
    uint64_t size = window->source->size;
    if (need > ELF_WINDOW_SIZE || offset > size || need > size - offset)
        return NULL;
    if (offset < window->start || offset - window->start > window->length ||
        need > window->length - (offset - window->start)) {
        // A little before, because walks step back now and then.
        uint64_t back = window->step == ELF_WINDOW_SIZE && need <= ELF_WINDOW_SIZE - 512 ? 512 : 0;
        uint64_t start = offset - (offset < back ? offset : back);
        uint64_t length = need > window->step ? need + (offset - start) : window->step;
        if (length > size - start)
            length = size - start;
        window->length = 0;
        if (elf_source_read(window->source, start, window->bytes, (size_t)length) < 0)
            return NULL;
        window->start = start;
        window->length = (size_t)length;
    }
    if (available != NULL)
        *available = window->length - (size_t)(offset - window->start);
    return window->bytes + (offset - window->start);
}

static void
parse_segment(bool is64, const uint8_t *bytes, struct elf_segment *segment)
{
    if (is64) {
        Elf64_Phdr header;
        memcpy(&header, bytes, sizeof header);
        *segment = (struct elf_segment){header.p_type,  header.p_flags,  header.p_offset,
                                        header.p_vaddr, header.p_filesz, header.p_align};
    } else {
        Elf32_Phdr header;
        memcpy(&header, bytes, sizeof header);
        *segment = (struct elf_segment){header.p_type,  header.p_flags,  header.p_offset,
                                        header.p_vaddr, header.p_filesz, header.p_align};
    }
}

static void
parse_section(bool is64, const uint8_t *bytes, struct elf_section *section)
{
    if (is64) {
        Elf64_Shdr header;
        memcpy(&header, bytes, sizeof header);
        *section = (struct elf_section){header.sh_type,    header.sh_link,   header.sh_flags,
                                        header.sh_addr,    header.sh_offset, header.sh_size,
                                        header.sh_entsize, header.sh_name,   ""};
    } else {
        Elf32_Shdr header;
        memcpy(&header, bytes, sizeof header);
        *section = (struct elf_section){header.sh_type,    header.sh_link,   header.sh_flags,
                                        header.sh_addr,    header.sh_offset, header.sh_size,
                                        header.sh_entsize, header.sh_name,   ""};
    }
}

struct table {
    uint64_t offset;
    size_t count, entry_size;
    size_t names; // sections: index of the one with their names
};

// Reads a table of headers; `*bytes` is malloc'd, NULL when it is empty.
static int
read_table(const struct opd_elf *elf, struct table table, size_t least, uint8_t **bytes)
{
    *bytes = NULL;
    if (table.count == 0)
        return 0;
    if (table.entry_size < least || table.entry_size > 4096)
        return -ENOEXEC;
    size_t length = table.count * table.entry_size;
    uint8_t *read = malloc(length);
    if (read == NULL)
        return -ENOMEM;
    int rc = elf_source_read(&elf->source, table.offset, read, length);
    if (rc < 0) {
        free(read);
        return rc == -ENODATA ? -ENOEXEC : rc;
    }
    *bytes = read;
    return 0;
}

static int
read_segments(struct opd_elf *elf, struct table table)
{
    uint8_t *bytes;
    if (table.count > MAX_SEGMENTS)
        return -E2BIG;
    int rc = read_table(elf, table, elf->is64 ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr), &bytes);
    if (rc < 0 || bytes == NULL)
        return rc;
    elf->segments = calloc(table.count, sizeof *elf->segments);
    if (elf->segments == NULL) {
        free(bytes);
        return -ENOMEM;
    }
    elf->segment_count = table.count;
    elf->base = UINT64_MAX;
    for (size_t i = 0; i < table.count; i++) {
        struct elf_segment *segment = &elf->segments[i];
        parse_segment(elf->is64, bytes + i * table.entry_size, segment);
        if (segment->type == PT_LOAD && segment->address < elf->base)
            elf->base = segment->address;
    }
    if (elf->base == UINT64_MAX)
        elf->base = 0;
    free(bytes);
    return 0;
}

static int
name_sections(struct opd_elf *elf, const struct elf_section *names)
{
    struct elf_window window;
    int rc = elf_window_init(&window, &elf->source, ELF_WINDOW_SIZE);
    for (size_t i = 0; rc == 0 && i < elf->section_count; i++) {
        struct elf_section *section = &elf->sections[i];
        size_t room = sizeof section->name - 1;
        if (section->name_offset >= names->size || names->offset > elf->source.size)
            continue;
        uint64_t left = names->size - section->name_offset;
        const uint8_t *name = elf_window_at(&window, names->offset + section->name_offset, 1, NULL);
        if (name == NULL)
            continue;
        size_t need = left < room ? (size_t)left : room;
        name = elf_window_at(&window, names->offset + section->name_offset, need, NULL);
        if (name != NULL)
            memcpy(section->name, name, need);
    }
    elf_window_free(&window);
    return rc;
}

// A file stripped of its section headers, or with broken ones, still has
// segments: it has no names, but addresses and perhaps ranges.
static int
read_sections(struct opd_elf *elf, struct table table)
{
    uint8_t *bytes;
    if (table.count > MAX_SECTIONS)
        return 0;
    int rc = read_table(elf, table, elf->is64 ? sizeof(Elf64_Shdr) : sizeof(Elf32_Shdr), &bytes);
    if (rc < 0 || bytes == NULL)
        return rc == -ENOMEM ? rc : 0;
    elf->sections = calloc(table.count, sizeof *elf->sections);
    if (elf->sections == NULL) {
        free(bytes);
        return -ENOMEM;
    }
    elf->section_count = table.count;
    for (size_t i = 0; i < table.count; i++)
        parse_section(elf->is64, bytes + i * table.entry_size, &elf->sections[i]);
    free(bytes);
    return table.names < table.count ? name_sections(elf, &elf->sections[table.names]) : 0;
}

// One block of notes. True when the build-id was in it.
static bool
find_build_id(struct opd_elf *elf, uint64_t offset, uint64_t size, uint64_t align)
{
    if (size > MAX_NOTES || size < 12)
        return false;
    uint8_t *notes = malloc((size_t)size);
    if (notes == NULL)
        return false;
    bool found = false;
    // Notes are padded to 4 bytes, in a block aligned to 8 to 8.
    uint64_t pad = align == 8 ? 7 : 3;
    if (elf_source_read(&elf->source, offset, notes, (size_t)size) == 0) {
        uint64_t at = 0;
        while (size - at >= 12) {
            uint64_t name_size = elf_u32(notes + at), length = elf_u32(notes + at + 4);
            uint32_t type = elf_u32(notes + at + 8);
            uint64_t content = (at + 12 + name_size + pad) & ~pad;
            if (content > size || length > size - content)
                break;
            if (type == NT_GNU_BUILD_ID && name_size == 4 && length > 0 &&
                length <= OPD_ELF_BUILD_ID_MAX && memcmp(notes + at + 12, "GNU", 4) == 0) {
                memcpy(elf->build_id, notes + content, length);
                elf->build_id_length = length;
                found = true;
                break;
            }
            at = (content + length + pad) & ~pad;
            if (at > size)
                break;
        }
    }
    free(notes);
    return found;
}

static int
read_headers(struct opd_elf *elf)
{
    uint8_t header[sizeof(Elf64_Ehdr)];
    struct table segments, sections;
    int rc = elf_source_read(&elf->source, 0, header, sizeof(Elf32_Ehdr));
    if (rc < 0)
        return rc == -ENODATA ? -ENOEXEC : rc;
    if (memcmp(header, ELFMAG, SELFMAG) != 0 || header[EI_VERSION] != EV_CURRENT)
        return -ENOEXEC;
    if (header[EI_DATA] != ELFDATA2LSB)
        return header[EI_DATA] == ELFDATA2MSB ? -ENOTSUP : -ENOEXEC;
    if (header[EI_CLASS] == ELFCLASS64) {
        Elf64_Ehdr h;
        rc = elf_source_read(&elf->source, 0, &h, sizeof h);
        if (rc < 0)
            return rc == -ENODATA ? -ENOEXEC : rc;
        elf->is64 = true;
        elf->machine = h.e_machine;
        elf->type = h.e_type;
        segments = (struct table){h.e_phoff, h.e_phnum, h.e_phentsize, 0};
        sections = (struct table){h.e_shoff, h.e_shnum, h.e_shentsize, h.e_shstrndx};
    } else if (header[EI_CLASS] == ELFCLASS32) {
        Elf32_Ehdr h;
        memcpy(&h, header, sizeof h);
        elf->machine = h.e_machine;
        elf->type = h.e_type;
        segments = (struct table){h.e_phoff, h.e_phnum, h.e_phentsize, 0};
        sections = (struct table){h.e_shoff, h.e_shnum, h.e_shentsize, h.e_shstrndx};
    } else {
        return -ENOEXEC;
    }
    rc = read_segments(elf, segments);
    if (rc == 0)
        rc = read_sections(elf, sections);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < elf->segment_count && elf->build_id_length == 0; i++)
        if (elf->segments[i].type == PT_NOTE)
            find_build_id(elf, elf->segments[i].offset, elf->segments[i].file_size,
                          elf->segments[i].align);
    // A debug file's segments may point nowhere, its sections do not.
    for (size_t i = 0; i < elf->section_count && elf->build_id_length == 0; i++)
        if (elf->sections[i].type == SHT_NOTE)
            find_build_id(elf, elf->sections[i].offset, elf->sections[i].size, 4);
    return 0;
}

int
opd_elf_open(int fd, struct opd_elf **result)
{
    struct stat status;
    *result = NULL;
    if (fstat(fd, &status) < 0)
        return -errno;
    if (!S_ISREG(status.st_mode))
        return -ENOEXEC;
    struct opd_elf *elf = calloc(1, sizeof *elf);
    if (elf == NULL)
        return -ENOMEM;
    elf->strings_source.fd = -1;
    elf->source.size = (uint64_t)status.st_size;
    elf->source.fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    int rc = elf->source.fd < 0 ? -errno : read_headers(elf);
    if (rc < 0) {
        opd_elf_close(elf);
        return rc;
    }
    *result = elf;
    return 0;
}

int
opd_elf_from_memory(const void *bytes, size_t size, struct opd_elf **result)
{
    *result = NULL;
    struct opd_elf *elf = calloc(1, sizeof *elf);
    if (elf == NULL)
        return -ENOMEM;
    elf->strings_source.fd = elf->source.fd = -1;
    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (copy == NULL) {
        free(elf);
        return -ENOMEM;
    }
    if (size > 0)
        memcpy(copy, bytes, size);
    elf->source.memory = copy;
    elf->source.size = size;
    int rc = read_headers(elf);
    if (rc < 0) {
        opd_elf_close(elf);
        return rc;
    }
    *result = elf;
    return 0;
}

static void
close_source(struct elf_source *source)
{
    if (source->fd >= 0)
        close(source->fd);
    free((void *)source->memory);
    *source = (struct elf_source){.fd = -1};
}

void
opd_elf_close(struct opd_elf *elf)
{
    if (elf == NULL)
        return;
    close_source(&elf->source);
    close_source(&elf->strings_source);
    free(elf->segments);
    free(elf->sections);
    free(elf->slots);
    free(elf->ranges);
    free(elf);
}

size_t
opd_elf_build_id(const struct opd_elf *elf, uint8_t id[OPD_ELF_BUILD_ID_MAX])
{
    memcpy(id, elf->build_id, elf->build_id_length);
    return elf->build_id_length;
}

size_t
opd_elf_addresses(const struct opd_elf *elf, const uint64_t *offsets, uint64_t *addresses,
                  size_t count)
{
    size_t unmapped = 0;
    const struct elf_segment *last = NULL;
    for (size_t i = 0; i < count; i++) {
        uint64_t offset = offsets[i];
        // Neighbours mostly lie in the same executable segment.
        const struct elf_segment *found = NULL;
        if (last != NULL && offset >= last->offset && offset - last->offset < last->file_size)
            found = last;
        if (found == NULL) {
            for (size_t j = 0; j < elf->segment_count; j++) {
                const struct elf_segment *segment = &elf->segments[j];
                if (segment->type != PT_LOAD || offset < segment->offset ||
                    offset - segment->offset >= segment->file_size)
                    continue;
                if (found == NULL)
                    found = segment;
                if (segment->flags & PF_X) {
                    found = last = segment;
                    break;
                }
            }
        }
        if (found == NULL)
            unmapped++;
        addresses[i] = found == NULL ? offset : offset - found->offset + found->address;
    }
    return unmapped;
}

const struct elf_section *
elf_find_section(const struct opd_elf *elf, const char *name)
{
    for (size_t i = 0; i < elf->section_count; i++)
        if (strncmp(elf->sections[i].name, name, sizeof elf->sections[i].name) == 0)
            return &elf->sections[i];
    return NULL;
}
