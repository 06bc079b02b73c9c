// SPDX-License-Identifier: Apache-2.0
// The kernel's symbol list, packed.
#include "kallsyms.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_MODULES 65535

struct line {
    uint64_t address;
    char type;
    const char *name, *module;
    size_t name_length, module_length;
};

bool
opd_kallsyms_parse_hex(const char **at, const char *end, uint64_t *value)
{
    const char *start = *at;
    uint64_t result = 0;
    for (; *at < end; ++*at) {
        char c = **at;
        unsigned digit;
        if (c >= '0' && c <= '9')
            digit = (unsigned)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (unsigned)(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F')
            digit = (unsigned)(c - 'A') + 10;
        else
            break;
        if (result >> 60 != 0)
            return false;
        result = result << 4 | digit;
    }
    *value = result;
    return *at > start;
}

// "ffffffff81000000 T _text" or "… t name\t[module]".
static bool
parse_line(const char *at, const char *end, struct line *line)
{
    if (!opd_kallsyms_parse_hex(&at, end, &line->address) || end - at < 4 || at[0] != ' ' ||
        at[2] != ' ')
        return false;
    line->type = at[1];
    line->name = at + 3;
    const char *stop = line->name;
    while (stop < end && *stop != '\t' && *stop != ' ' && *stop != '\0')
        stop++;
    line->name_length = (size_t)(stop - line->name);
    line->module = "";
    line->module_length = 0;
    while (stop < end && (*stop == '\t' || *stop == ' '))
        stop++;
    if (stop < end && *stop == '[') {
        const char *close = memchr(stop, ']', (size_t)(end - stop));
        if (close != NULL && memchr(stop, '\0', (size_t)(close - stop)) == NULL) {
            line->module = stop + 1;
            line->module_length = (size_t)(close - stop) - 1;
        }
    }
    return line->name_length > 0 && line->name_length < 4096 && line->module_length < 4096;
}

static bool
is_text(char type)
{
    return type == 't' || type == 'T' || type == 'w' || type == 'W';
}

struct lines {
    const char *at, *end;
};

static bool
next_line(struct lines *lines, struct line *line)
{
    while (lines->at < lines->end) {
        const char *end = memchr(lines->at, '\n', (size_t)(lines->end - lines->at));
        if (end == NULL)
            end = lines->end;
        const char *at = lines->at;
        lines->at = end < lines->end ? end + 1 : end;
        if (parse_line(at, end, line))
            return true;
    }
    return false;
}

static bool
add_name(struct opd_kallsyms *table, size_t room, const char *name, size_t length, uint32_t *at)
{
    if (room - table->names_size < length + 1)
        return false;
    char *to = table->names + table->names_size;
    memcpy(to, name, length);
    to[length] = '\0';
    *at = (uint32_t)table->names_size;
    table->names_size += length + 1;
    return true;
}

// The module's number, 0 for the kernel; symbols of a module come together.
static uint16_t
module_number(struct opd_kallsyms *table, size_t room, const struct line *line)
{
    if (line->module_length == 0)
        return 0;
    for (size_t i = table->module_count; i > 0; i--) {
        const char *name = table->names + table->module_names[i - 1];
        if (strlen(name) == line->module_length &&
            memcmp(name, line->module, line->module_length) == 0)
            return (uint16_t)i;
        // Only a list in disorder looks further back than a few.
        if (table->module_count - i > 8 && table->module_count > 4096)
            break;
    }
    if (table->module_count >= MAX_MODULES)
        return 0;
    uint32_t *grown =
        realloc(table->module_names, (table->module_count + 1) * sizeof *table->module_names);
    if (grown == NULL)
        return 0;
    table->module_names = grown;
    if (!add_name(table, room, line->module, line->module_length,
                  &table->module_names[table->module_count]))
        return 0;
    return (uint16_t)++table->module_count;
}

struct ordered {
    struct kallsyms_entry entry;
    uint32_t order;
    uint16_t module;
};

static int
by_address(const void *left, const void *right)
{
    const struct ordered *a = left, *b = right;
    if (a->entry.address != b->entry.address)
        return a->entry.address < b->entry.address ? -1 : 1;
    return a->order < b->order ? -1 : 1;
}

struct survey {
    size_t text, names, modules, seen;
    uint64_t lowest;
};

// What there is to keep, so that the tables are allocated once.
static struct survey
survey_lines(struct lines lines)
{
    struct survey survey = {.lowest = UINT64_MAX};
    struct line line;
    while (next_line(&lines, &line)) {
        survey.seen++;
        if (line.address == 0 || !is_text(line.type))
            continue;
        survey.text++;
        survey.names += line.name_length + 1;
        // At most this: a module's name is kept once.
        survey.names += line.module_length > 0 ? line.module_length + 1 : 0;
        survey.modules += line.module_length > 0;
        if (line.address < survey.lowest)
            survey.lowest = line.address;
    }
    return survey;
}

static void
note_text(struct opd_kallsyms *table, const struct line *line)
{
    if (line->module_length > 0)
        return;
    if (table->text == 0 && line->name_length == 5 && memcmp(line->name, "_text", 5) == 0)
        table->text = line->address;
    if (table->stext == 0 && line->name_length == 6 && memcmp(line->name, "_stext", 6) == 0)
        table->stext = line->address;
    if (table->etext == 0 && line->name_length == 6 && memcmp(line->name, "_etext", 6) == 0)
        table->etext = line->address;
}

static int
fill_table(struct opd_kallsyms *table, struct lines lines, const struct survey *survey)
{
    struct ordered *sorted = malloc(survey->text * sizeof *sorted);
    table->names = malloc(survey->names);
    if (sorted == NULL || table->names == NULL) {
        free(sorted);
        return -ENOMEM;
    }
    table->base = survey->lowest;
    // A user-space-like address (a broken list) must not push the kernel out.
    if (table->base < (1ull << 63)) {
        struct lines again = lines;
        struct line line;
        uint64_t lowest = UINT64_MAX;
        while (next_line(&again, &line))
            if (is_text(line.type) && line.address >= (1ull << 63) && line.address < lowest)
                lowest = line.address;
        if (lowest != UINT64_MAX)
            table->base = lowest;
    }
    struct line line;
    bool in_order = true;
    while (next_line(&lines, &line) && table->count < survey->text) {
        if (line.address == 0)
            continue;
        note_text(table, &line);
        if (!is_text(line.type) || line.address < table->base ||
            line.address - table->base > UINT32_MAX)
            continue;
        struct ordered *item = &sorted[table->count];
        item->entry.address = (uint32_t)(line.address - table->base);
        item->order = (uint32_t)table->count;
        item->module = module_number(table, survey->names, &line);
        if (!add_name(table, survey->names, line.name, line.name_length, &item->entry.name))
            break;
        if (table->count > 0 && item->entry.address < sorted[table->count - 1].entry.address)
            in_order = false;
        table->count++;
    }
    if (!in_order)
        qsort(sorted, table->count, sizeof *sorted, by_address);
    table->entries = malloc(table->count * sizeof *table->entries);
    if (table->module_count > 0)
        table->modules = malloc(table->count * sizeof *table->modules);
    bool failed = table->entries == NULL || (table->module_count > 0 && table->modules == NULL);
    for (size_t i = 0; i < table->count && !failed; i++) {
        table->entries[i] = sorted[i].entry;
        if (table->modules != NULL)
            table->modules[i] = sorted[i].module;
    }
    free(sorted);
    if (failed)
        return -ENOMEM;
    char *fitted = realloc(table->names, table->names_size);
    if (fitted != NULL)
        table->names = fitted;
    return 0;
}

int
opd_kallsyms_from_memory(const char *text, size_t size, struct opd_kallsyms **result)
{
    *result = NULL;
    if (size > OPD_KALLSYMS_MAX)
        return -E2BIG;
    struct lines lines = {text, text + size};
    struct survey survey = survey_lines(lines);
    if (survey.text == 0) {
        // Were there lines, all of them with address zero?
        struct line line;
        while (next_line(&lines, &line))
            if (line.address != 0)
                return -ENODATA;
        return survey.seen > 0 ? -EACCES : -ENODATA;
    }
    struct opd_kallsyms *table = calloc(1, sizeof *table);
    if (table == NULL)
        return -ENOMEM;
    int rc = fill_table(table, lines, &survey);
    if (rc < 0) {
        opd_kallsyms_close(table);
        return rc;
    }
    *result = table;
    return 0;
}

int
opd_kallsyms_read_whole(const char *path, char **text, size_t *size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    size_t capacity = 1 << 20, length = 0;
    char *bytes = malloc(capacity);
    int rc = bytes == NULL ? -ENOMEM : 0;
    while (rc == 0) {
        if (length == capacity) {
            char *grown = capacity < OPD_KALLSYMS_MAX ? realloc(bytes, capacity * 2) : NULL;
            if (grown == NULL) {
                rc = capacity < OPD_KALLSYMS_MAX ? -ENOMEM : -E2BIG;
                break;
            }
            bytes = grown;
            capacity *= 2;
        }
        ssize_t got = read(fd, bytes + length, capacity - length);
        if (got < 0 && errno != EINTR)
            rc = -errno;
        if (got == 0)
            break;
        if (got > 0)
            length += (size_t)got;
    }
    close(fd);
    if (rc < 0) {
        free(bytes);
        return rc;
    }
    *text = bytes;
    *size = length;
    return 0;
}

int
opd_kallsyms_open(const char *path, struct opd_kallsyms **table)
{
    char *text;
    size_t size;
    *table = NULL;
    int rc = opd_kallsyms_read_whole(path, &text, &size);
    if (rc < 0)
        return rc;
    rc = opd_kallsyms_from_memory(text, size, table);
    free(text);
    return rc;
}

void
opd_kallsyms_close(struct opd_kallsyms *table)
{
    if (table == NULL)
        return;
    if (table->map != NULL) {
        munmap(table->map, table->map_size);
    } else {
        free(table->entries);
        free(table->modules);
        free(table->names);
        free(table->module_names);
    }
    free(table);
}
