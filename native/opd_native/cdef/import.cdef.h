// opd/import.h; the two structs are declared by perfdata and pipeline too.
struct opd_import;
struct opd_perfdata;
struct opd_pipeline;
struct opd_import *opd_import_create(struct opd_perfdata *data, struct opd_pipeline *pipeline);
void opd_import_destroy(struct opd_import *import);
int opd_import_feed(struct opd_import *import, uint64_t until, uint64_t *next_time);
struct opd_import_event {
    uint32_t attr;
    int32_t derived;
};
int opd_import_learn(struct opd_import *import, const struct opd_perfdata *ahead);
const struct opd_import_event *opd_import_events(const struct opd_import *import, size_t *count);
int opd_import_ibs_flavour(const struct opd_import *import, size_t attr, bool *raw);
