// SPDX-License-Identifier: Apache-2.0
// A mangled name of arbitrary bytes: our own parts, C++'s walk and all of Rust.
// libstdc++'s printer is not ours and not fuzzed here.
#include "opd/demangle.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *mangled = malloc(size + 1);
    memcpy(mangled, data, size);
    mangled[size] = '\0';
    char *name = malloc(OPD_DEMANGLE_MAX);
    long length = opd_demangle_cpp_name(mangled, name, OPD_DEMANGLE_MAX);
    if (length >= 0 && ((size_t)length != strlen(name) || (size_t)length > size))
        abort();
    length = opd_demangle_rust(mangled, name, OPD_DEMANGLE_MAX);
    if (length >= 0 && ((size_t)length != strlen(name) || length == 0))
        abort();
    opd_demangle_rust(mangled, name, 16);
    free(name);
    free(mangled);
    return 0;
}
