// opd/image.h, opd/pipeline.h: what Python asks of the pipeline.
struct opd_image {
    uint32_t uid;
    uint32_t kind;
    uint32_t deleted;
    uint32_t build_id_size;
    uint8_t build_id[20];
    uint32_t major, minor;
    uint64_t inode, generation, start, end;
    int fd;
    char *path, *symbol;
};
void opd_image_release(struct opd_image *image);

struct opd_images_stats {
    uint32_t live, limit, open_fds;
    uint64_t refused, fds_refused, swept, bytes;
};
struct opd_spaces_limits {
    uint32_t processes, threads, mappings;
};
struct opd_spaces_stats {
    uint32_t processes, threads, peak_processes;
    uint64_t mappings;
    uint64_t refused_processes, refused_threads, refused_mappings, bytes;
};
struct opd_cgroup {
    uint32_t uid;
    char *path;
};
void opd_cgroup_release(struct opd_cgroup *cgroup);
struct opd_cgroups_stats {
    uint32_t live, limit;
    uint64_t refused, swept, bytes;
};
struct opd_labels_stats {
    struct opd_cgroups_stats cgroups;
    uint64_t reads, failed, deferred, resolved, unresolved;
};
struct opd_profile_hash_stats {
    uint64_t hits, dropped, evictions, carries, bytes;
};

struct opd_pipeline_event {
    uint64_t period;
    bool precise;
};
struct opd_pipeline_options {
    const char *proc_root;
    bool callchain, keep_idle, separate_thread, separate_cpu;
    uint32_t stack_depth, hash_buckets, hash_limit, stack_limit;
    size_t stack_bytes;
    uint32_t sfile_limit, image_limit, cgroup_limit;
    struct opd_spaces_limits spaces;
    struct opd_payload_limits payload;
};
struct opd_event_counts {
    uint64_t samples, hash_full, no_mapping, stack_truncated, unwind_failed, inexact_ip;
    uint64_t label_unknown, label_inherited, label_read, label_exact;
};
struct opd_ibs_counts {
    uint64_t records, bare, incomplete, unknown_caps, invalid, ignored, inexact, compared, mismatched;
};
struct opd_pipeline_ibs {
    uint8_t flavour;
    bool plain;
    struct opd_ibs_machine machine;
    struct opd_ibs_mask user, kernel;
    uint16_t events[128];
};
struct opd_window_counts {
    uint64_t samples, idle, filtered, hash_full, no_mapping, stack_truncated, unwind_failed, inexact_ip;
    uint64_t label_unknown, label_inherited, label_read, label_exact, first_time, last_time;
};
struct opd_window {
    uint32_t rows, sfiles, stacks, frames;
    uint32_t *row_sfile, *row_stack;
    uint64_t *row_hits, *row_weight;
    uint16_t *sfile_event;
    uint8_t *sfile_mode;
    int32_t *sfile_tgid, *sfile_tid, *sfile_cpu;
    uint32_t *sfile_image, *sfile_cgroup;
    char *sfile_comm;
    uint32_t *stack_start;
    uint8_t *stack_flags;
    uint32_t *frame_image;
    uint64_t *frame_address;
    uint32_t events;
    struct opd_event_counts *event_counts;
    uint32_t ibs_sources;
    uint16_t *ibs_event;
    struct opd_ibs_counts *ibs_counts;
    struct opd_window_counts counts;
    struct opd_payload_columns *payload;
};
struct opd_pipeline_stats {
    struct opd_images_stats images;
    struct opd_spaces_stats spaces;
    struct opd_profile_hash_stats hash;
    struct opd_labels_stats labels;
    uint64_t memo_hits, memo_misses, snapshots, snapshot_failures;
};
void opd_pipeline_defaults(struct opd_pipeline_options *options);
struct opd_pipeline *opd_pipeline_create(const struct opd_pipeline_options *options);
void opd_pipeline_destroy(struct opd_pipeline *pipeline);
int opd_pipeline_add_event(struct opd_pipeline *pipeline, const struct opd_pipeline_event *event);
int opd_pipeline_set_ibs(struct opd_pipeline *pipeline, unsigned event,
                         const struct opd_pipeline_ibs *ibs);
int opd_pipeline_keep(struct opd_pipeline *pipeline, const struct opd_payload_limits *limits);
int opd_pipeline_add_filter(struct opd_pipeline *pipeline, const char *comm_glob);
int opd_pipeline_set_idle(struct opd_pipeline *pipeline, const uint64_t *starts,
                          const uint64_t *ends, size_t count);
int opd_pipeline_add_module(struct opd_pipeline *pipeline, const char *name, uint64_t start,
                            uint64_t end);
int opd_pipeline_add_build_id(struct opd_pipeline *pipeline, const char *path,
                              const uint8_t *build_id, size_t size);
uint64_t opd_pipeline_kernel_text(const struct opd_pipeline *pipeline);
uint32_t opd_pipeline_kernel_build_id(const struct opd_pipeline *pipeline, uint8_t build_id[20]);
int opd_pipeline_take_here(struct opd_pipeline *pipeline, struct opd_window **window);
void opd_window_free(struct opd_window *window);
void opd_window_scale(struct opd_window *window, unsigned event, double ratio);
size_t opd_pipeline_images(struct opd_pipeline *pipeline, struct opd_image *out, size_t room);
bool opd_pipeline_has_news(struct opd_pipeline *pipeline);
size_t opd_pipeline_cgroups(struct opd_pipeline *pipeline, struct opd_cgroup *out, size_t room);
void opd_pipeline_stats(const struct opd_pipeline *pipeline, struct opd_pipeline_stats *stats);
