// opd/pchase.h
struct opd_pchase_options {
    uint32_t access, pages, hint, work, chains, threads, loaders, load, vector, ahead, load_delay, stride,
        plain_c, laps, at_speed;
    uint64_t line, page, chain, load_bytes, iterations, duration_ns, seed;
    const int32_t *cpus;
    const int32_t *chain_nodes;
    int32_t load_node;
};
struct opd_pchase_row {
    uint64_t steps, bytes, start_ns, end_ns, ticks, cpu_ns;
    double ghz;
    int32_t cpu;
    uint32_t moved;
};
int opd_pchase_has_load(uint32_t load, uint32_t vector);
struct opd_pchase;
int opd_pchase_create(const struct opd_pchase_options *options, struct opd_pchase **out,
                      char *reason);
void opd_pchase_destroy(struct opd_pchase *pchase);
int opd_pchase_run(struct opd_pchase *pchase, struct opd_pchase_row *rows, char *reason);
struct opd_pchase_facts {
    uint64_t nodes, bytes, huge_bytes;
    uint32_t compiled, unroll;
};
void opd_pchase_facts(const struct opd_pchase *pchase, struct opd_pchase_facts *out);
int opd_pchase_pass(int first, int second, uint32_t rounds, double *ns);
