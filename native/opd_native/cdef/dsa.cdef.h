// opd/dsa.h
struct opd_dsa_cpu {
    uint32_t enqcmd, movdir64b, waitpkg, reserved;
    uint64_t tsc_hz;
};
void opd_dsa_cpu(struct opd_dsa_cpu *out);
struct opd_dsa_options {
    const char *sys, *dev, *queues;
    const struct opd_dsa_cpu *cpu;
    const struct opd_dto_functions *fallback;
    uint64_t least[4], timeout_ns;
    uint32_t wait, no_cache_control, near, look_only;
};
struct opd_dsa_finding {
    uint32_t ok;
    char what[24], where[24], text[192], remedy[192];
};
struct opd_dsa_report {
    uint32_t count, beyond, usable, furthest;
    char reason[384];
    struct opd_dsa_finding findings[256];
};
struct opd_dsa_op_counts {
    uint64_t calls, small, nested, near_overlap, descriptors, device_bytes, cpu_bytes, busy, refused,
        faults, redone, timeouts;
};
struct opd_dsa_counts {
    struct opd_dsa_op_counts ops[4];
    uint64_t status[128], opened, open_failed;
};
struct opd_dsa;
int opd_dsa_create(const struct opd_dsa_options *options, struct opd_dsa_report *report,
                   struct opd_dsa **out);
void opd_dsa_destroy(struct opd_dsa *dsa);
const struct opd_dto_functions *opd_dsa_functions(const struct opd_dsa *dsa);
void opd_dsa_let_go(struct opd_dsa *dsa);
void opd_dsa_counts(const struct opd_dsa *dsa, struct opd_dsa_counts *out);
uint32_t opd_dsa_queue_count(const struct opd_dsa *dsa);
int opd_dsa_queue_text(const struct opd_dsa *dsa, uint32_t index, char *text, size_t room);
const char *opd_dsa_status_text(uint32_t status);
struct opd_dsa_crossover {
    uint32_t sizes, pairs, wins_needed, reserved;
    uint64_t bytes[20];
    uint32_t wins[4][20];
    double cpu_ns[4][20], device_ns[4][20];
    uint64_t least[4];
};
int opd_dsa_cross(struct opd_dsa *dsa, uint32_t ops, uint64_t most, uint32_t pairs,
                  struct opd_dsa_crossover *out);
