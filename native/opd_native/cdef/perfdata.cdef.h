struct opd_perfdata;


struct opd_record_layout {
    uint64_t sample_type;
    uint64_t read_format;
    uint64_t branch_sample_type;
    uint64_t sample_regs_user;
    uint64_t sample_regs_intr;
    bool sample_id_all;
};

struct opd_perfdata_attr {
    uint32_t type;
    uint32_t sample_stack_user;
    uint64_t config, config1, config2;
    uint64_t sample_period;
    uint64_t flags;
    bool frequency;
    bool use_clockid;
    int32_t clockid;
    struct opd_record_layout layout;
    const char *name;
    const uint64_t *ids;
    size_t id_count;
    ...;
};

struct opd_perfdata_build_id {
    int32_t pid;
    uint16_t misc;
    uint8_t size;
    uint8_t build_id[20];
    const char *path;
    ...;
};

struct opd_perfdata_pmu {
    uint32_t type;
    const char *name;
    ...;
};

struct opd_perfdata_cap {
    const char *pmu;
    const char *name;
    const char *value;
    ...;
};

struct opd_perfdata_facts {
    bool pipe;
    bool compressed;
    bool interrupted;
    const char *hostname, *os_release, *version, *arch, *cpuid, *cpu_description;
    uint32_t cpus_available, cpus_online;
    uint64_t total_memory_kib;
    const char *const *command_line;
    size_t command_line_count;
    const struct opd_perfdata_build_id *build_ids;
    size_t build_id_count;
    const struct opd_perfdata_pmu *pmus;
    size_t pmu_count;
    const struct opd_perfdata_cap *caps;
    size_t cap_count;
    uint64_t clock_resolution_ns;
    bool has_clock_data;
    uint32_t clock_id;
    uint64_t clock_wall_ns, clock_time_ns;
    bool has_sample_time;
    uint64_t first_sample_ns, last_sample_ns;
    uint32_t bad_features;
    ...;
};

struct opd_perfdata_stats {
    uint64_t by_type[96];
    uint64_t delivered;
    uint64_t samples;
    uint64_t lost;
    uint64_t lost_samples;
    uint64_t late;
    uint64_t unknown_id;
    uint64_t skipped_records;
    uint64_t skipped_bytes;
    uint64_t forced_flushes;
    uint64_t rounds;
    uint64_t bytes;
    bool ended;
    int end_error;
    const char *end_reason;
    uint64_t end_offset;
    ...;
};

// The delivered record as far as tests look at it from Python.
struct opd_record {
    uint32_t type;
    uint16_t misc;
    uint16_t size;
    uint32_t has;
    uint32_t pid;
    uint32_t tid;
    uint32_t cpu;
    uint64_t id;
    uint64_t stream_id;
    uint64_t time;
    ...;
};

struct opd_perfdata_event {
    struct opd_record record;
    const void *bytes;
    int32_t event;
    uint64_t offset;
    ...;
};

int opd_perfdata_open(int fd, struct opd_perfdata **out, const char **reason);
int opd_perfdata_open_memory(const void *bytes, size_t length, struct opd_perfdata **out,
                             const char **reason);
void opd_perfdata_close(struct opd_perfdata *data);
void opd_perfdata_limit_pending(struct opd_perfdata *data, size_t bytes);
int opd_perfdata_next(struct opd_perfdata *data, struct opd_perfdata_event *event);
const struct opd_perfdata_attr *opd_perfdata_attrs(const struct opd_perfdata *data, size_t *count);
const struct opd_perfdata_facts *opd_perfdata_facts(const struct opd_perfdata *data);
const struct opd_perfdata_stats *opd_perfdata_stats(const struct opd_perfdata *data);
