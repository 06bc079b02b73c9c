// opd/stats.h
int opd_stats_sort(double *values, size_t count);
int opd_stats_resample(const double *blocks, const uint32_t *sizes, uint32_t groups, double trim,
                       uint64_t seed, uint32_t resamples, double *draws);
int opd_stats_blocks(const double *before, const double *after, size_t count, size_t pairs,
                     int middle, double *logs);
struct opd_stats_spread {
    double mean, variance, mad, low_fence, high_fence;
    uint64_t below, above;
    uint32_t modes;
};
int opd_stats_spread(const double *ordered, size_t count, struct opd_stats_spread *out);
int opd_stats_distance(const double *a, size_t a_count, const double *b, size_t b_count,
                       double *out);
int opd_stats_change(const double *ranks, size_t count, size_t side, uint32_t permutations,
                     uint32_t enough, uint64_t seed, size_t *place, uint32_t *beyond);
