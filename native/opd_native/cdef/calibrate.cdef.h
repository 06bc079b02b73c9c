int opd_calibrate(int what, uint32_t work, uint64_t turns, double *ns, size_t samples);
int opd_calibrate_touch(size_t bytes, double *ns);
