// SPDX-License-Identifier: Apache-2.0
// C++ (Itanium) and Rust (legacy and v0) symbol names as a person reads them:
// the function's name without parameters, return type, const and clone
// suffix, as perf report prints it.
//
// C++ is printed by the demangler of the machine's own libstdc++.so.6, loaded
// when the first such name comes; we find the end of the name in the mangled
// form and give it only that. Nesting is bounded; for a name that could grow
// without end while it is printed, the process's address space is limited
// during the call, so that is for a process with one thread.
#ifndef OPD_DEMANGLE_H
#define OPD_DEMANGLE_H

#include <stddef.h>

#define OPD_DEMANGLE_MAX 16384

// Writes the terminated name. Returns its length; -EINVAL: not a mangled name;
// -E2BIG: mangled or demangled form is too long; -ENOSYS: C++ name and no
// libstdc++ here. In each error case a caller shows the raw name.
long opd_demangle(const char *mangled, char *name, size_t capacity);

// The parts, for tests. opd_demangle_cpp_name writes "_Z" and the <name>
// production of a C++ encoding, with its outermost cv- and ref-qualifiers
// dropped: what is left of a function without parameters.
long opd_demangle_cpp_name(const char *mangled, char *name, size_t capacity);
long opd_demangle_rust(const char *mangled, char *name, size_t capacity);

#endif
