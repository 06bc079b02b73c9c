// opd/dto_functional.h
struct opd_dto_functional_options {
    struct opd_dto_functions functions;
    uint64_t threshold, largest;
    uint32_t threads, random, parts, reserved;
    uint64_t seed, limit_ns;
};
struct opd_dto_case {
    uint32_t part, op, thread, reserved;
    uint64_t size, to, from, aux, at;
    int32_t wanted, got;
};
struct opd_dto_functional {
    uint64_t cases, differences, by_part[7], by_op[4];
    uint32_t wrong, signal;
    struct opd_dto_case first;
};
int opd_dto_functional(const struct opd_dto_functional_options *options,
                       struct opd_dto_functional *out);
int opd_dto_functional_text(const struct opd_dto_functional *result, char *text, size_t room);
