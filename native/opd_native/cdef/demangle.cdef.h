long opd_demangle(const char *mangled, char *name, size_t capacity);
