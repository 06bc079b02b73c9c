// opd/ticks.h, opd/pft.h
struct opd_ticks_rate {
    double per_ns, error;
    uint32_t invariant;
};
int opd_ticks_calibrate(uint64_t duration_ns, struct opd_ticks_rate *out);
double opd_core_ghz(uint64_t adds);

struct opd_pft_options {
    uint32_t backing, pages, prepare, touch, shared, workers, processes, multimap, packed, lines,
        line_bytes, policy, policy_set, shm_lock, fifo, whole_self, cpu_count;
    const int32_t *cpus;
    uint64_t pages_each, delay_ns, pause_ns, nodes[16];
    const char *directory;
};
struct opd_pft_worker {
    uint64_t start_ns, end_ns, cpu_ns, user_us, system_us, minor, major;
    int64_t kernel_faults;
    uint64_t switches, huge_bytes;
    int32_t cpu, task;
};
struct opd_pft_repeat {
    uint64_t unmap_ns, page_bytes;
};
struct opd_pft;
int opd_pft_create(const struct opd_pft_options *options, struct opd_pft **out);
void opd_pft_destroy(struct opd_pft *pft);
int opd_pft_repeat(struct opd_pft *pft, uint32_t look, struct opd_pft_worker *rows,
                   struct opd_pft_repeat *out);
const char *opd_pft_placement(const struct opd_pft *pft, uint32_t worker);
const char *opd_pft_reason(const struct opd_pft *pft);
void opd_pft_bins(const struct opd_pft *pft, uint64_t *bins);
