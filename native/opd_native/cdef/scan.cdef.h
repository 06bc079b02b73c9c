// opd/scan.h
struct opd_scan_key {
    uint32_t column;
    uint32_t map_count;
    const uint32_t *map;
};
struct opd_scan_test {
    uint32_t operation;
    uint32_t column;
    uint32_t low, high;
    const uint8_t *bits;
    uint32_t bit_count;
};
struct opd_scan_rows {
    uint32_t rows;
    const uint32_t *cells;
    const uint32_t *number;
    const uint64_t *samples, *weight;
};
struct opd_scan_series {
    uint32_t entries;
    const uint32_t *bucket, *row;
    const uint64_t *samples, *weight;
};
struct opd_scan_totals {
    uint32_t entries;
    const uint32_t *bucket, *event;
    const uint64_t *samples, *weight, *all_samples, *all_weight;
};
struct opd_scan;
struct opd_scan *opd_scan_create(const struct opd_scan_key *keys, uint32_t key_count,
                                 const struct opd_scan_test *tests, uint32_t test_count,
                                 uint32_t row_limit);
void opd_scan_destroy(struct opd_scan *scan);
int opd_scan_events(struct opd_scan *scan, const uint32_t *map, uint32_t count);
int opd_scan_add(struct opd_scan *scan, const uint8_t *data, size_t size, uint32_t sfile_columns,
                 uint32_t bucket);
int opd_scan_rows(struct opd_scan *scan, uint32_t limit, struct opd_scan_rows *rows);
int opd_scan_choose(struct opd_scan *scan, const uint32_t *numbers, uint32_t count);
int opd_scan_series(struct opd_scan *scan, struct opd_scan_series *series);
int opd_scan_totals(struct opd_scan *scan, struct opd_scan_totals *totals);
