// SPDX-License-Identifier: Apache-2.0
// Whose samples are counted, by the name of the thread or of its process.
#include "filter.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "opd/aspace.h"
#include "opd/intern.h"

#define GLOBS_MAX 16
#define CACHE_SIZE 256 // names remembered, a power of two

struct verdict {
    char comm[OPD_COMM_SIZE];
    bool known, passes;
};

struct opd_filter {
    char *globs[GLOBS_MAX];
    unsigned count;
    struct verdict cache[CACHE_SIZE];
};

int
opd_filter_add(struct opd_filter **filter, const char *glob)
{
    if (*filter == NULL && (*filter = calloc(1, sizeof **filter)) == NULL)
        return -ENOMEM;
    if ((*filter)->count == GLOBS_MAX)
        return -ENOSPC;
    char *copy = strdup(glob);
    if (copy == NULL)
        return -ENOMEM;
    (*filter)->globs[(*filter)->count++] = copy;
    memset((*filter)->cache, 0, sizeof(*filter)->cache);
    return 0;
}

void
opd_filter_free(struct opd_filter *filter)
{
    if (filter == NULL)
        return;
    for (unsigned i = 0; i < filter->count; i++)
        free(filter->globs[i]);
    free(filter);
}

static bool
matches(struct opd_filter *filter, const char *comm)
{
    char name[OPD_COMM_SIZE] = {0}; // zeros behind the name: compared whole
    strncpy(name, comm, sizeof name - 1);
    struct verdict *verdict = &filter->cache[opd_hash64(name, sizeof name) & (CACHE_SIZE - 1)];
    if (!verdict->known || memcmp(verdict->comm, name, sizeof name) != 0) {
        memcpy(verdict->comm, name, sizeof name);
        verdict->known = true;
        verdict->passes = false;
        for (unsigned i = 0; i < filter->count && !verdict->passes; i++)
            verdict->passes = fnmatch(filter->globs[i], name, 0) == 0;
    }
    return verdict->passes;
}

bool
opd_filter_passes(struct opd_filter *filter, struct opd_spaces *spaces,
                  const struct opd_thread *thread, uint32_t pid, uint32_t tid)
{
    if (pid == 0)
        return matches(filter, "swapper");
    if (thread == NULL)
        return false;
    if (matches(filter, opd_thread_comm(thread)))
        return true;
    bool known;
    const struct opd_thread *leader =
        pid != tid ? opd_spaces_thread(spaces, pid, pid, &known) : NULL;
    return leader != NULL && matches(filter, opd_thread_comm(leader));
}
