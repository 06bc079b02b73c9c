// opd/dto.h
struct opd_dto_functions {
    void *(*copy)(void *, const void *, size_t);
    void *(*move)(void *, const void *, size_t);
    void *(*set)(void *, int, size_t);
    int (*compare)(const void *, const void *, size_t);
};
int opd_dto_kernels(const char *name, struct opd_dto_functions *out);

struct opd_dto_options {
    uint32_t op, pages, cold, pf;
    uint64_t size;
    uint32_t source_offset, destination_offset;
    int64_t overlap;
    int32_t cpu;
    uint32_t warmup;
    uint64_t round_limit_ns;
    uint32_t seed, inject_fence, plain_clock;
    struct opd_dto_functions baseline, current;
};
struct opd_dto;
int opd_dto_create(const struct opd_dto_options *options, struct opd_dto **out, char *reason);
void opd_dto_destroy(struct opd_dto *dto);
void opd_dto_inject(struct opd_dto *dto, uint64_t turns);
void opd_dto_exchange(struct opd_dto *dto, const struct opd_dto_functions *baseline,
                      const struct opd_dto_functions *current);
struct opd_dto_round {
    uint32_t iterations, seed;
    int32_t cpu;
    uint32_t moved;
    uint64_t drops, faults, major, spent_ns;
    double turn_ticks;
};
int opd_dto_round(struct opd_dto *dto, uint32_t iterations, uint32_t check, uint64_t *ticks,
                  uint8_t *order, struct opd_dto_round *out, char *reason);
void opd_dto_order(uint8_t number, uint8_t arms[4]);
struct opd_dto_facts {
    double ticks_per_ns;
    uint32_t is_tsc;
    char flush[16];
    uint32_t line_bytes;
    uint64_t bytes, huge_bytes, page_bytes;
};
void opd_dto_facts(const struct opd_dto *dto, struct opd_dto_facts *out);
int64_t opd_dto_blocks(const uint64_t *ticks, uint64_t iterations, uint32_t block, uint32_t mean,
                       double *effect, double *null);
uint64_t opd_dto_quantum(const uint64_t *samples, uint64_t count);
struct opd_dto_hold;
int opd_dto_hold(const char *const *paths, const char *const *values, uint32_t count,
                 struct opd_dto_hold **out, char *reason);
void opd_dto_release(struct opd_dto_hold *hold);
