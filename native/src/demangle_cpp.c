// SPDX-License-Identifier: Apache-2.0
// C++ names (the Itanium C++ ABI's mangling). We only walk the mangled form,
// to find where the function's <name> ends and its parameters begin; printing
// is left to the demangler in libstdc++.
#include "demangle_cpp.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define PRINTER_MEMORY (32u << 20)
#define MOST_OUTPUT (double)(1u << 28)

long
opd_demangle_cpp_name(const char *mangled, char *name, size_t capacity)
{
    if (strncmp(mangled, "_Z", 2) != 0)
        return -EINVAL;
    size_t length = strnlen(mangled, MAX_MANGLED);
    if (length == MAX_MANGLED || length >= capacity)
        return -E2BIG;
    struct cpp_walk walk = {.at = mangled + 2};
    struct qualifiers drop = {NULL, 0};
    const char *end;
    if (*walk.at == 'T' || *walk.at == 'G') {
        // A thunk, a table, a guard: it has its own words, printed as they are.
        end = strchr(mangled, '.');
        if (end == NULL)
            end = mangled + length;
    } else if (opd_cpp_walk_name(&walk, &drop)) {
        end = walk.at;
    } else {
        return -EINVAL;
    }
    size_t head = drop.start != NULL ? (size_t)(drop.start - mangled) : (size_t)(end - mangled);
    memcpy(name, mangled, head);
    size_t written = head;
    if (drop.start != NULL) {
        const char *rest = drop.start + drop.length;
        memcpy(name + head, rest, (size_t)(end - rest));
        written += (size_t)(end - rest);
    }
    name[written] = '\0';
    return (long)written;
}

typedef char *printer_function(const char *mangled, char *buffer, size_t *length, int *status);

static printer_function *printer;
static pthread_once_t printer_once = PTHREAD_ONCE_INIT;

static void
load_printer(void)
{
    static const char *const libraries[] = {"libstdc++.so.6", "libc++abi.so.1"};
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0] && printer == NULL; i++) {
        void *library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
        if (library != NULL)
            *(void **)&printer = dlsym(library, "__cxa_demangle");
    }
}

// How many characters may come out at most, if every back-reference is used to
// multiply: k references in each of n/k nested arguments make k^(n/k), most of
// all for k = 3. Real names (268,001 of LLVM, clang, z3, libstdc++, the JVM)
// have up to 41 references, 99.9 % of them 30.
static double
most_output(const char *mangled)
{
    unsigned references = 0;
    for (const char *at = mangled; *at != '\0'; at++)
        references += (at[0] == 'S' || at[0] == 'T') && (at[1] == '_' || at[2] == '_');
    double most = (double)strlen(mangled);
    for (; references >= 3; references -= 3)
        most *= 3;
    return most;
}

// The printer knows no limit but that of memory: a name that may become long
// gets one of its own. One that could keep it busy for seconds is not printed.
static char *
print_within(const char *mangled, int *status)
{
    double most = most_output(mangled);
    if (most > MOST_OUTPUT) {
        *status = -1;
        return NULL;
    }
    if (most < PRINTER_MEMORY / 4)
        return printer(mangled, NULL, NULL, status);
    unsigned long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "re");
    bool known = statm != NULL && fscanf(statm, "%lu", &pages) == 1;
    if (statm != NULL)
        fclose(statm);
    struct rlimit before, within;
    if (!known || getrlimit(RLIMIT_AS, &before) < 0)
        return NULL;
    within = before;
    rlim_t limit = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + PRINTER_MEMORY;
    if (limit < within.rlim_cur)
        within.rlim_cur = limit;
    if (setrlimit(RLIMIT_AS, &within) < 0)
        return NULL;
    char *text = printer(mangled, NULL, NULL, status);
    setrlimit(RLIMIT_AS, &before);
    return text;
}

long
demangle_cpp(const char *mangled, char *name, size_t capacity)
{
    char cut[MAX_MANGLED];
    long length = opd_demangle_cpp_name(mangled, cut, sizeof cut);
    if (length < 0)
        return length;
    pthread_once(&printer_once, load_printer);
    if (printer == NULL)
        return -ENOSYS;
    int status = 0;
    char *text = print_within(cut, &status);
    if (text == NULL)
        return status == -1 ? -E2BIG : -EINVAL;
    length = (long)strnlen(text, capacity);
    if ((size_t)length < capacity)
        memcpy(name, text, (size_t)length + 1);
    else
        length = -E2BIG;
    free(text);
    return length;
}
