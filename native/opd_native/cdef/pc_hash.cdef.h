// opd/pc_hash.h, opd/pc_tap.h
struct opd_pc_shape {
    uint32_t slots, ways, policy;
};
struct opd_pc_options {
    struct opd_pc_shape shape;
    const int32_t *nodes;
    uint32_t cpus;
    uint64_t length;
    void *buffer;
};
struct opd_pc_hash;
uint64_t opd_pc_hash_bytes(uint32_t slots, uint32_t cpus, uint64_t length);
struct opd_pc_hash *opd_pc_hash_create(const struct opd_pc_options *options);
void opd_pc_hash_destroy(struct opd_pc_hash *hash);
void opd_pc_hash_add(struct opd_pc_hash *hash, uint32_t cpu, const uint32_t *slots, size_t count);
void opd_pc_hash_flush(struct opd_pc_hash *hash);
void opd_pc_hash_flush_cpu(struct opd_pc_hash *hash, uint32_t cpu);
size_t opd_pc_hash_read(struct opd_pc_hash *hash, uint32_t *slots, uint32_t *hits, size_t room);
void opd_pc_hash_reset(struct opd_pc_hash *hash);
struct opd_pc_stats {
    uint64_t hits, shared_updates, flushes, flips, evictions, wraps, probe_max, bytes;
    double ns_per_hit, flip_ns;
};
void opd_pc_hash_stats(const struct opd_pc_hash *hash, struct opd_pc_stats *stats);
void opd_pc_hash_stats_cpu(const struct opd_pc_hash *hash, uint32_t cpu,
                           struct opd_pc_stats *stats);

struct opd_pc_segment {
    uint64_t offset, size, address;
};
struct opd_pc_tap_options {
    struct opd_pc_hash *hash;
    uint32_t event, shift;
    uint64_t start, end;
    uint32_t segment_count;
    struct opd_pc_segment segments[16];
    uint8_t build_id[20];
    uint8_t build_id_size;
    uint32_t major, minor;
    uint64_t inode;
};
struct opd_pc_tap;
struct opd_pc_tap *opd_pc_tap_create(const struct opd_pc_tap_options *options);
void opd_pc_tap_destroy(struct opd_pc_tap *tap);
void opd_pc_tap_kernel(struct opd_pc_tap *tap, uint32_t cpu, uint64_t address);
uint64_t opd_pc_tap_outside(const struct opd_pc_tap *tap);
