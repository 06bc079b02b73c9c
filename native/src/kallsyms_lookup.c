// SPDX-License-Identifier: Apache-2.0
// What the packed list of the kernel's symbols answers.
#include "kallsyms.h"

#include <string.h>

// The end of the symbol at `i`: the next address that differs.
static uint64_t
symbol_end(const struct opd_kallsyms *table, size_t i)
{
    uint32_t start = table->entries[i].address;
    size_t next = i + 1;
    while (next < table->count && table->entries[next].address == start)
        next++;
    if (next < table->count)
        return table->base + table->entries[next].address;
    uint64_t last = table->base + start;
    return last == UINT64_MAX ? last : last + 1;
}

void
opd_kallsyms_lookup(const struct opd_kallsyms *table, const uint64_t *addresses, size_t count,
                    struct opd_kallsyms_symbol *symbols)
{
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && addresses[i] >= symbols[i - 1].start && addresses[i] < symbols[i - 1].end) {
            symbols[i] = symbols[i - 1];
            continue;
        }
        symbols[i] = (struct opd_kallsyms_symbol){addresses[i], addresses[i], NULL, ""};
        if (addresses[i] < table->base)
            continue;
        // The first entry above, then the first of those at the address below.
        uint64_t at = addresses[i] - table->base;
        size_t low = 0, high = table->count;
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if (table->entries[middle].address <= at)
                low = middle + 1;
            else
                high = middle;
        }
        if (low == 0)
            continue;
        size_t found = low - 1;
        uint32_t start = table->entries[found].address;
        while (found > 0 && table->entries[found - 1].address == start)
            found--;
        symbols[i].start = table->base + start;
        symbols[i].end = symbol_end(table, found);
        symbols[i].name = table->names + table->entries[found].name;
        if (table->modules != NULL && table->modules[found] != 0)
            symbols[i].module = table->names + table->module_names[table->modules[found] - 1];
    }
}

void
opd_kallsyms_text(const struct opd_kallsyms *table, uint64_t *text, uint64_t *stext,
                  uint64_t *etext)
{
    *text = table->text;
    *stext = table->stext;
    *etext = table->etext;
}

size_t
opd_kallsyms_ranges(const struct opd_kallsyms *table, const char *const *names, size_t count,
                    struct opd_kernel_range *ranges, size_t capacity)
{
    size_t found = 0;
    for (size_t i = 0; i < table->count; i++) {
        const char *name = table->names + table->entries[i].name;
        for (size_t j = 0; j < count; j++) {
            if (strcmp(name, names[j]) != 0)
                continue;
            if (found < capacity)
                ranges[found] = (struct opd_kernel_range){table->base + table->entries[i].address,
                                                          symbol_end(table, i)};
            found++;
            break;
        }
    }
    return found;
}

size_t
opd_kallsyms_count(const struct opd_kallsyms *table)
{
    return table->count;
}

size_t
opd_kallsyms_bytes(const struct opd_kallsyms *table)
{
    if (table->map != NULL)
        return sizeof *table;
    return sizeof *table + table->count * sizeof *table->entries + table->names_size +
           (table->modules != NULL ? table->count * sizeof *table->modules : 0) +
           table->module_count * sizeof *table->module_names;
}
