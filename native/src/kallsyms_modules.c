// SPDX-License-Identifier: Apache-2.0
// The modules of the kernel and where they are loaded.
#include "kallsyms.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// "name size users needed-by state 0xaddress [taint]"
static bool
parse_module(const char *at, const char *end, struct opd_kernel_module *module)
{
    const char *name = at;
    while (at < end && *at != ' ')
        at++;
    size_t length = (size_t)(at - name);
    if (length == 0 || length >= sizeof module->name || at == end)
        return false;
    memset(module, 0, sizeof *module);
    memcpy(module->name, name, length);
    for (at++; at < end && *at >= '0' && *at <= '9'; at++) {
        if (module->size > UINT32_MAX)
            return false;
        module->size = module->size * 10 + (uint64_t)(*at - '0');
    }
    while (end - at > 2 && !(at[0] == ' ' && at[1] == '0' && at[2] == 'x'))
        at++;
    if (end - at <= 3)
        return false;
    at += 3;
    return opd_kallsyms_parse_hex(&at, end, &module->start);
}

long
opd_kernel_modules(const char *path, struct opd_kernel_module *modules, size_t capacity)
{
    char *text;
    size_t size;
    int rc = opd_kallsyms_read_whole(path, &text, &size);
    if (rc == -ENOENT)
        return 0;
    if (rc < 0)
        return rc;
    long count = 0, hidden = 0;
    const char *at = text, *stop = text + size;
    while (at < stop) {
        const char *end = memchr(at, '\n', (size_t)(stop - at));
        if (end == NULL)
            end = stop;
        struct opd_kernel_module module;
        if (parse_module(at, end, &module)) {
            if (module.start == 0) {
                hidden++;
            } else {
                if ((size_t)count < capacity)
                    modules[count] = module;
                count++;
            }
        }
        at = end < stop ? end + 1 : end;
    }
    free(text);
    return count == 0 && hidden > 0 ? -EACCES : count;
}
