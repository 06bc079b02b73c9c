struct opd_elf;

struct opd_elf_name {
    uint64_t start, end;
    uint32_t kind;
    uint32_t text, length;
    uint32_t reserved;
};

int opd_elf_open(int fd, struct opd_elf **elf);
int opd_elf_from_memory(const void *bytes, size_t size, struct opd_elf **elf);
void opd_elf_close(struct opd_elf *elf);
size_t opd_elf_build_id(const struct opd_elf *elf, uint8_t *id);
size_t opd_elf_addresses(const struct opd_elf *elf, const uint64_t *offsets, uint64_t *addresses,
                         size_t count);
int opd_elf_has_symtab(const struct opd_elf *elf);
int opd_elf_load_symbols(struct opd_elf *elf, const struct opd_elf *debug);
long opd_elf_names(struct opd_elf *elf, const uint64_t *addresses, size_t count,
                   struct opd_elf_name *names, char *text, size_t capacity);
int opd_elf_find_function(const struct opd_elf *elf, const struct opd_elf *debug, const char *name,
                          uint64_t *offset);
struct opd_elf_code {
    uint64_t offset, size, address;
};
size_t opd_elf_code(const struct opd_elf *elf, struct opd_elf_code *out, size_t room);
int opd_elf_is_code(const struct opd_elf *elf, uint64_t offset);
size_t opd_elf_bytes(const struct opd_elf *elf);
size_t opd_elf_symbols(const struct opd_elf *elf);
