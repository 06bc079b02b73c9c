size_t opd_runs(const void *items, size_t stride, size_t size, size_t count, uint32_t *which,
                uint32_t *firsts);
int opd_gather(const uint32_t *table, size_t length, const uint32_t *which, size_t count,
               uint32_t *out);
void opd_shift(uint64_t *values, size_t count, uint64_t delta, int but_zero);
void opd_steps(const uint64_t *values, size_t count, uint64_t before, uint64_t *out);
