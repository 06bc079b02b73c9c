// SPDX-License-Identifier: Apache-2.0
// The text of /proc/PID/cgroup, of arbitrary bytes.
#include "opd/cgroup.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { ROOM = 64 };
    char *text = malloc(size > 0 ? size : 1); // exactly the bytes, so that a read past them shows
    char path[ROOM];
    memcpy(text, data, size);
    if (opd_cgroup_choose(text, size, path, sizeof path) == 0 &&
        (path[0] != '/' || strlen(path) >= ROOM || strchr(path, '\n') != NULL))
        abort();
    free(text);
    return 0;
}
