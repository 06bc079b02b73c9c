// SPDX-License-Identifier: Apache-2.0
#include "opd/dto_load.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

// What the loader says has no number: its words are all there is. These are of
// glibc; without them the caller does not try another way, no more.
static int
told(const char *words)
{
    if (strstr(words, "no more namespaces") || strstr(words, "static TLS") ||
        strstr(words, "cannot allocate memory"))
        return -ENOMEM;
    return -ELIBBAD;
}

int
opd_dto_load(const char *path, uint32_t own_namespace, void **handle, char *reason)
{
    void *found;
    dlerror();
    if (own_namespace) {
#ifdef __GLIBC__
        found = dlmopen(LM_ID_NEWLM, path, RTLD_NOW | RTLD_LOCAL);
#else
        snprintf(reason, OPD_DTO_LOAD_REASON, "this libc has no namespaces");
        return -ENOSYS;
#endif
    } else {
#ifdef RTLD_DEEPBIND
        found = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
#else
        found = dlopen(path, RTLD_NOW | RTLD_LOCAL);
#endif
    }
    if (!found) {
        const char *words = dlerror();
        if (!words)
            words = "the loader does not say why";
        snprintf(reason, OPD_DTO_LOAD_REASON, "%s", words);
        return told(words);
    }
    *handle = found;
    return 0;
}

void *
opd_dto_symbol(void *handle, const char *name)
{
    dlerror();
    return dlsym(handle, name);
}
