// opd/condense.h, opd/rollup.h
struct opd_condense_window {
    uint32_t rows, sfiles, stacks, frames;
    const uint32_t *row_sfile, *row_stack;
    const uint64_t *row_hits, *row_weight;
    const uint16_t *sfile_event;
    const uint32_t *stack_start;
    const uint8_t *stack_flags;
    const uint32_t *frame_image;
    const uint64_t *frame_address;
};
struct opd_condense_frame {
    uint32_t image, caller;
    uint64_t address;
};
struct opd_condense_name {
    uint32_t number, name, kind;
};
struct opd_condensed {
    uint32_t new_stacks, rest_count;
    uint32_t *new_flags, *new_length, *new_shared, *rest;
    uint32_t groups;
    uint32_t *group_sfile, *group_symbol;
    uint64_t *group_hits, *group_excess;
    uint32_t rows;
    uint32_t *row_sfile;
    uint64_t *row_step, *row_hits, *row_excess;
    uint32_t sfiles;
    uint64_t *sfile_unit;
    uint64_t kind_hits[3];
    uint32_t events;
    uint64_t *event_kinds;
    uint64_t hits;
};
struct opd_condenser;
struct opd_condenser *opd_condenser_create(uint32_t frame_limit, uint32_t stack_limit);
void opd_condenser_destroy(struct opd_condenser *condenser);
void opd_condenser_forget(struct opd_condenser *condenser);
int opd_condense_begin(struct opd_condenser *condenser, const struct opd_condense_window *window,
                       const struct opd_condense_frame **new_frames, uint32_t *count,
                       const char **reason);
int opd_condense_end(struct opd_condenser *condenser, const struct opd_condense_name *names,
                     uint32_t first_stack, uint32_t no_name, const struct opd_condensed **out);
int opd_condense_stacks(const struct opd_condenser *condenser, uint32_t no_name, uint32_t *numbers,
                        uint32_t *symbols);

struct opd_column {
    const void *data;
    uint32_t width;
    uint32_t count;
};
size_t opd_pack_bound(const struct opd_column *columns, uint32_t count);
size_t opd_pack(const struct opd_column *columns, uint32_t count, uint8_t *out);

struct opd_rollup_groups {
    uint32_t sfiles, groups;
    const uint32_t *event, *comm, *image, *mode, *cgroup;
    const uint64_t *unit;
    const uint32_t *sfile, *symbol;
    const uint64_t *hits, *excess;
    const float *squares;
};
struct opd_rollup_columns {
    uint32_t sfiles, groups;
    uint32_t *event, *comm, *image, *mode, *cgroup;
    uint64_t *unit;
    uint32_t *sfile, *symbol;
    uint64_t *hits, *excess;
    float *squares;
};
struct opd_rollup;
struct opd_rollup *opd_rollup_create(void);
void opd_rollup_destroy(struct opd_rollup *rollup);
uint32_t opd_rollup_count(const struct opd_rollup *rollup);
int opd_rollup_add(struct opd_rollup *rollup, const struct opd_rollup_groups *groups);
int opd_rollup_take(struct opd_rollup *rollup, const struct opd_rollup_columns **columns);
