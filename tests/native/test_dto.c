// SPDX-License-Identifier: Apache-2.0
// Cells of every kind measured small: what rounds leave, what ends them, what
// is put back.
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "opd/dto.h"
#include "t.h"

enum { N = 200 };

static uint64_t ticks[OPD_DTO_ARMS * OPD_DTO_ITERATIONS_MAX];
static uint8_t order[OPD_DTO_ITERATIONS_MAX];
static char reason[OPD_DTO_REASON];

static struct opd_dto_options
plain(uint32_t op, uint64_t size)
{
    struct opd_dto_options options = {
        .op = op, .size = size, .cpu = -1, .warmup = 5, .round_limit_ns = 30000000000u, .seed = 7};
    CHECK(opd_dto_kernels("libc", &options.baseline) == 0);
    options.current = options.baseline;
    return options;
}

static int
run(struct opd_dto_options options, struct opd_dto_round *out, uint64_t turns)
{
    struct opd_dto *dto = NULL;
    int rc = opd_dto_create(&options, &dto, reason);
    if (rc)
        return rc;
    opd_dto_inject(dto, turns);
    rc = opd_dto_round(dto, N, 1, ticks, order, out, reason);
    opd_dto_destroy(dto);
    return rc;
}

static void
every_operation(void)
{
    for (uint32_t op = 0; op < OPD_DTO_OPS; op++)
        for (int way = 0; way < 16; way++) {
            struct opd_dto_options options = plain(op, way & 1 ? 70000 : 64);
            struct opd_dto_round round;
            options.cold = way >> 1 & 1;
            options.plain_clock = way >> 2 & 1;
            options.inject_fence = way >> 3 & 1;
            options.source_offset = 3;
            options.destination_offset = 4095;
            CHECK(run(options, &round, 0) == 0);
            CHECK(round.iterations == N && round.drops == 0 && round.spent_ns > 0);
            CHECK((round.turn_ticks > 0) == (options.inject_fence == 1));
            for (int i = 0; i < OPD_DTO_ARMS * N; i++)
                CHECK(ticks[i] > 0 || options.plain_clock);
        }
}

static void
orders_are_all_and_fair(void)
{
    int seen[256] = {0}, first[OPD_DTO_ARMS] = {0};
    for (uint8_t number = 0; number < OPD_DTO_ORDERS; number++) {
        uint8_t arms[OPD_DTO_ARMS];
        int code = 0, sum = 0;
        opd_dto_order(number, arms);
        for (int i = 0; i < OPD_DTO_ARMS; i++) {
            code = code * 4 + arms[i];
            sum |= 1 << arms[i];
        }
        CHECK(sum == 15 && seen[code]++ == 0);
    }
    struct opd_dto_options options = plain(OPD_DTO_MEMSET, 64);
    struct opd_dto *dto = NULL;
    struct opd_dto_round round;
    CHECK(opd_dto_create(&options, &dto, reason) == 0);
    CHECK(opd_dto_round(dto, OPD_DTO_ITERATIONS_MAX, 0, ticks, order, &round, reason) == 0);
    uint32_t seed = round.seed;
    static uint8_t before[OPD_DTO_ITERATIONS_MAX];
    memcpy(before, order, sizeof(before));
    for (int i = 0; i < OPD_DTO_ITERATIONS_MAX; i++) {
        uint8_t arms[OPD_DTO_ARMS];
        CHECK(order[i] < OPD_DTO_ORDERS);
        opd_dto_order(order[i], arms);
        first[arms[0]]++;
    }
    for (int arm = 0; arm < OPD_DTO_ARMS; arm++)
        CHECK(first[arm] > 2300 && first[arm] < 2700);
    // The next round's are others, also from some draws on.
    CHECK(opd_dto_round(dto, OPD_DTO_ITERATIONS_MAX, 0, ticks, order, &round, reason) == 0);
    for (int late = -8; late <= 8; late++) {
        unsigned same = 0;
        for (int i = 8; i < OPD_DTO_ITERATIONS_MAX - 8; i++)
            same += order[i] == before[i + late];
        CHECK(same < 2 * OPD_DTO_ITERATIONS_MAX / OPD_DTO_ORDERS);
    }
    CHECK(seed == 7 && round.seed != seed && round.seed != 0);
    CHECK(opd_dto_round(dto, 0, 0, ticks, order, &round, reason) == -EINVAL);
    CHECK(opd_dto_round(dto, OPD_DTO_ITERATIONS_MAX + 1, 0, ticks, order, &round, reason) ==
          -EINVAL);
    opd_dto_destroy(dto);
}

static void
a_dropped_page_is_a_fault(void)
{
    static const uint32_t ops[] = {OPD_DTO_MEMCPY, OPD_DTO_MEMCMP};
    for (int i = 0; i < 4; i++) {
        struct opd_dto_options options = plain(ops[i / 2], 1 << 18);
        struct opd_dto_round round;
        options.cold = i & 1;
        options.pf = 50;
        CHECK(run(options, &round, 0) == 0);
        // All arms of an iteration or none; about half of them.
        CHECK(round.drops % OPD_DTO_ARMS == 0);
        CHECK(round.drops > 50 * OPD_DTO_ARMS && round.drops < 150 * OPD_DTO_ARMS);
        CHECK(round.major == 0 && round.faults >= round.drops);
        options.pf = 100;
        CHECK(run(options, &round, 0) == 0 && round.drops == N * OPD_DTO_ARMS);
        CHECK(round.faults >= round.drops);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        CHECK(round.faults < round.drops + 100);
#endif
    }
}

static int
by_value(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static double
middle(int arm)
{
    uint64_t column[N];
    memcpy(column, ticks + (size_t)arm * N, sizeof(column));
    qsort(column, N, sizeof(*column), by_value);
    return (double)column[N / 2];
}

static void
injected_work_takes_its_time(void)
{
    struct opd_dto_options options = plain(OPD_DTO_MEMSET, 64);
    struct opd_dto_round round;
    options.inject_fence = 1;
    CHECK(run(options, &round, 100000) == 0);
    double added = middle(OPD_DTO_B) - middle(OPD_DTO_A), said = 100000 * round.turn_ticks;
    CHECK(added > said / 2 && added < said * 2);
    CHECK(fabs(middle(OPD_DTO_A_AGAIN) - middle(OPD_DTO_A)) < said / 2);
    CHECK(middle(OPD_DTO_B_AGAIN) > said / 2);
}

static void
overlaps(void)
{
    static const int64_t distances[] = {1, -1, 4096, -4096, 100000, -100000};
    struct opd_dto_round round;
    for (size_t i = 0; i < sizeof(distances) / sizeof(*distances); i++) {
        struct opd_dto_options options = plain(OPD_DTO_MEMMOVE, 65536);
        options.overlap = distances[i];
        CHECK(run(options, &round, 0) == 0);
        options.op = OPD_DTO_MEMCPY;
        CHECK(run(options, &round, 0) == -EINVAL && strstr(reason, "only memmove"));
    }
}

static void *
crash(void *to, const void *from, size_t n)
{
    (void)from;
    (void)n;
    raise(SIGSEGV);
    return to;
}

static void *
hang(void *to, const void *from, size_t n)
{
    (void)from;
    (void)n;
    for (;;)
        pause();
    return to;
}

static void *
leave(void *to, const void *from, size_t n)
{
    (void)from;
    (void)n;
    _exit(3);
    return to;
}

static void *
forget_a_byte(void *to, const void *from, size_t n)
{
    return memcpy(to, from, n - 1);
}

static int
always_same(const void *a, const void *b, size_t n)
{
    (void)a;
    (void)b;
    (void)n;
    return 0;
}

static void
what_ends_a_round(void)
{
    struct opd_dto_round round;
    struct opd_dto_options options = plain(OPD_DTO_MEMCPY, 1000);
    options.current.copy = crash;
    CHECK(run(options, &round, 0) == -EOWNERDEAD && strstr(reason, "signal 11"));
    CHECK(strstr(reason, "while its results were checked"));
    options.current.copy = leave;
    CHECK(run(options, &round, 0) == -EOWNERDEAD && strstr(reason, "status 3"));
    options.current.copy = forget_a_byte;
    CHECK(run(options, &round, 0) == -EBADMSG && strstr(reason, "current: byte 999 of 1000"));
    options.current.copy = hang;
    options.round_limit_ns = 300000000;
    CHECK(run(options, &round, 0) == -ETIMEDOUT && strstr(reason, "0.3 s and was ended while it"));
    options.current.copy = NULL;
    CHECK(run(options, &round, 0) == -EINVAL && strstr(reason, "current has no memcpy"));
    options = plain(OPD_DTO_MEMCMP, 1000);
    options.baseline.compare = always_same;
    CHECK(run(options, &round, 0) == -EBADMSG && strstr(reason, "baseline: memcmp of 1000"));
    options = plain(OPD_DTO_MEMCPY, 1000);
    options.cpu = 100000;
    CHECK(run(options, &round, 0) == -EBADMSG && strstr(reason, "CPU 100000"));
    CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD); // all reaped
}

static void
options_that_are_wrong(void)
{
    struct opd_dto *dto = NULL;
    struct opd_dto_options options = plain(OPD_DTO_MEMCPY, 0);
    CHECK(opd_dto_create(&options, &dto, reason) == -EINVAL && strstr(reason, "size"));
    options = plain(OPD_DTO_OPS, 1);
    CHECK(opd_dto_create(&options, &dto, reason) == -EINVAL);
    options = plain(OPD_DTO_MEMCPY, 1);
    options.pf = 101;
    CHECK(opd_dto_create(&options, &dto, reason) == -EINVAL);
    options.pf = 0;
    options.destination_offset = 4096;
    CHECK(opd_dto_create(&options, &dto, reason) == -EINVAL && strstr(reason, "4096"));
    options.destination_offset = 0;
    options.round_limit_ns = 0;
    CHECK(opd_dto_create(&options, &dto, reason) == -EINVAL);
    options = plain(OPD_DTO_MEMCPY, (uint64_t)1 << 50);
    CHECK(opd_dto_create(&options, &dto, reason) == -EINVAL);
}

static void
facts(void)
{
    struct opd_dto *dto = NULL;
    struct opd_dto_facts found;
    struct opd_dto_options options = plain(OPD_DTO_MEMCPY, 10000);
    CHECK(opd_dto_create(&options, &dto, reason) == 0);
    opd_dto_facts(dto, &found);
    CHECK(found.ticks_per_ns > 0.01 && found.ticks_per_ns < 20 && found.page_bytes >= 4096);
    CHECK(found.bytes == 2 * (10000 + found.page_bytes - 1) / found.page_bytes * found.page_bytes ||
          found.bytes >= 20000);
    CHECK(found.huge_bytes == 0 && found.line_bytes >= 16 && found.flush[0]);
    opd_dto_destroy(dto);
}

static void
blocks(void)
{
    uint64_t columns[OPD_DTO_ARMS * 1000];
    double effect[4], null[4];
    for (int i = 0; i < 1000; i++) {
        uint64_t noise = (uint64_t)(i * 7919 % 101);
        columns[i] = 10000 + noise;
        columns[1000 + i] = 10200 + noise;
        columns[2000 + i] = 10000 + noise;
        columns[3000 + i] = i == 500 ? 20000000 : 10200 + noise;
    }
    for (uint32_t mean = 0; mean < 2; mean++) {
        CHECK(opd_dto_blocks(columns, 1000, 250, mean, effect, null) == 4);
        for (int i = 0; i < 4; i++)
            CHECK(fabs(effect[i] - log(10250.0 / 10050)) < 3e-4 && fabs(null[i]) < 3e-4);
        // The rest joins the last.
        CHECK(opd_dto_blocks(columns, 1000, 300, mean, effect, null) == 3);
        CHECK(opd_dto_blocks(columns, 1000, 5000, mean, effect, null) == 1);
    }
    CHECK(opd_dto_blocks(columns, 0, 250, 0, effect, null) == -EINVAL);
    memset(columns, 0, sizeof(columns));
    CHECK(opd_dto_blocks(columns, 1000, 250, 0, effect, null) == -EDOM);
}

static void
the_clocks_step(void)
{
    uint64_t samples[] = {400, 100, 170, 100, 135};
    CHECK(opd_dto_quantum(samples, 5) == 35);
    CHECK(opd_dto_quantum(samples, 1) == 0 && opd_dto_quantum(samples, 0) == 0);
}

// ---- settings

static char folder[] = "/tmp/opd-dto-XXXXXX";

static const char *
file_of(const char *name)
{
    static char paths[4][64];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static void
put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static int
holds(const char *path, const char *text)
{
    char found[64] = "";
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    if (fgets(found, sizeof(found), file) == NULL)
        found[0] = 0; // just being written
    fclose(file);
    found[strcspn(found, "\n")] = 0;
    return strcmp(found, text) == 0;
}

static void
settings_are_put_back(void)
{
    CHECK(mkdtemp(folder));
    const char *paths[] = {file_of("min"), file_of("max")}, *values[] = {"2000", "2000"};
    struct opd_dto_hold *hold = NULL;
    put(paths[0], "800\n");
    put(paths[1], "3500\n");
    CHECK(opd_dto_hold(paths, values, 2, &hold, reason) == 0);
    CHECK(holds(paths[0], "2000") && holds(paths[1], "2000"));
    opd_dto_release(hold);
    CHECK(holds(paths[0], "800") && holds(paths[1], "3500"));
    opd_dto_release(NULL);
    // Killed with its whole group.
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        CHECK(opd_dto_hold(paths, values, 2, &hold, reason) == 0);
        kill(0, SIGKILL);
    }
    CHECK(waitpid(child, NULL, 0) == child);
    for (int i = 0; i < 500 && !(holds(paths[0], "800") && holds(paths[1], "3500")); i++)
        usleep(10000);
    CHECK(holds(paths[0], "800") && holds(paths[1], "3500"));
    // One that cannot be read, and one that cannot be written: none is changed.
    const char *missing[] = {paths[0], file_of("none")};
    CHECK(opd_dto_hold(missing, values, 2, &hold, reason) == -ENOENT && strstr(reason, "none"));
    const char *full[] = {paths[0], "/dev/full"};
    put(paths[0], "800\n");
    CHECK(opd_dto_hold(full, values, 2, &hold, reason) < 0);
    CHECK(holds(paths[0], "800"));
    unlink(paths[0]);
    unlink(paths[1]);
    rmdir(folder);
}

int
main(void)
{
    RUN(every_operation);
    RUN(orders_are_all_and_fair);
    RUN(a_dropped_page_is_a_fault);
    RUN(injected_work_takes_its_time);
    RUN(overlaps);
    RUN(what_ends_a_round);
    RUN(options_that_are_wrong);
    RUN(facts);
    RUN(blocks);
    RUN(the_clocks_step);
    RUN(settings_are_put_back);
    return 0;
}
