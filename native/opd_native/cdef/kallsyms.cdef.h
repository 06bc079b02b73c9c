struct opd_kallsyms;

struct opd_kallsyms_symbol {
    uint64_t start, end;
    const char *name;
    const char *module;
};

struct opd_kernel_range {
    uint64_t start, end;
};

struct opd_kernel_module {
    uint64_t start, size;
    char name[64];
};

int opd_kallsyms_open(const char *path, struct opd_kallsyms **table);
int opd_kallsyms_from_memory(const char *text, size_t size, struct opd_kallsyms **table);
int opd_kallsyms_save(const struct opd_kallsyms *table, const uint8_t key[16], int fd);
int opd_kallsyms_map(int fd, const uint8_t key[16], struct opd_kallsyms **table);
void opd_kallsyms_close(struct opd_kallsyms *table);
void opd_kallsyms_lookup(const struct opd_kallsyms *table, const uint64_t *addresses, size_t count,
                         struct opd_kallsyms_symbol *symbols);
void opd_kallsyms_text(const struct opd_kallsyms *table, uint64_t *text, uint64_t *stext,
                       uint64_t *etext);
size_t opd_kallsyms_ranges(const struct opd_kallsyms *table, const char *const *names,
                           size_t count, struct opd_kernel_range *ranges, size_t capacity);
size_t opd_kallsyms_count(const struct opd_kallsyms *table);
size_t opd_kallsyms_bytes(const struct opd_kallsyms *table);
long opd_kernel_modules(const char *path, struct opd_kernel_module *modules, size_t capacity);
