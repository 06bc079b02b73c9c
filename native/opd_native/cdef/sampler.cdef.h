// opd/sampler.h
struct opd_event_attr {
    uint32_t type;
    uint64_t config, config1, config2;
    uint64_t rate;
    bool frequency, exclude_user, exclude_kernel, exclude_hv, exclude_idle;
    uint8_t precise_ip, raw;
};
struct opd_sampler_options {
    size_t ring_bytes, order_bytes;
    unsigned wake_ms;
    bool targeted;
    struct opd_pipeline_options pipeline;
};
struct opd_sampler_cost {
    uint64_t drain_ns, order_ns, attribute_ns, hash_ns, snapshot_ns;
};
struct opd_sampler_stats {
    uint64_t records, bytes, bad_records, lost_samples, lost_sideband, throttled_ns, throttles,
        wakes, late, inverted, order_peak_bytes, drain_cpu_ns, snapshot_ns, snapshot_processes,
        ring_bytes;
    uint32_t cpus, fds, targets;
    double least_running;
    uint64_t last_progress;
    struct opd_sampler_cost cost;
    struct opd_pipeline_stats pipeline;
};
void opd_sampler_defaults(struct opd_sampler_options *options);
struct opd_sampler *opd_sampler_create(const struct opd_sampler_options *options,
                                       const uint32_t *cpus, size_t cpu_count,
                                       int32_t *failed_cpu);
void opd_sampler_destroy(struct opd_sampler *sampler);
int opd_sampler_add_event(struct opd_sampler *sampler, const struct opd_event_attr *attr);
int opd_sampler_add_process(struct opd_sampler *sampler, uint32_t pid);
bool opd_sampler_covers(struct opd_sampler *sampler, uint32_t pid);
int opd_sampler_sweep_targets(struct opd_sampler *sampler);
struct opd_pipeline *opd_sampler_pipeline(struct opd_sampler *sampler);
int opd_sampler_start(struct opd_sampler *sampler);
int opd_sampler_pause(struct opd_sampler *sampler, bool paused);
int opd_sampler_stop(struct opd_sampler *sampler);
int opd_sampler_set_rate(struct opd_sampler *sampler, unsigned event, uint64_t rate);
int opd_sampler_limit_stacks(struct opd_sampler *sampler, uint32_t divisor);
void opd_sampler_set_tap(struct opd_sampler *sampler, struct opd_pc_tap *tap);
int opd_sampler_set_cpus(struct opd_sampler *sampler, const uint32_t *cpus, size_t cpu_count);
int opd_sampler_flush(struct opd_sampler *sampler, uint64_t until, int timeout_ms);
int opd_sampler_take(struct opd_sampler *sampler, int timeout_ms, struct opd_window **window);
void opd_sampler_stats(struct opd_sampler *sampler, struct opd_sampler_stats *stats);
uint64_t opd_sampler_progress(const struct opd_sampler *sampler);
uint64_t opd_sampler_lost(struct opd_sampler *sampler, unsigned event);
int opd_sampler_times(struct opd_sampler *sampler, unsigned event, uint64_t *enabled,
                      uint64_t *running);
