// SPDX-License-Identifier: Apache-2.0
// What is said of queues that can and cannot be used, and what is done with those
// that can, on an emulated device.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../native/src/dsa_private.h"
#include "dsa_emulator/emulator.h"
#include "t.h"

enum { MOST = 65536, SIZE = 8 };

static const struct opd_dsa_cpu all = {1, 1, 1, 0, 2000000000}, nothing = {0};
static struct opd_dsa_report report;
static char root[64], sys[96], dev[96];

// A folder with wq0.0 (shared) alone.
static void
fresh(void)
{
    static int number;
    snprintf(root, sizeof(root), "/tmp/opd-test-dsa-%d-%d", getpid(), number++);
    CHECK(!mkdir(root, 0700));
    snprintf(sys, sizeof(sys), "%s/sys", root);
    snprintf(dev, sizeof(dev), "%s/dev", root);
    dsa_emulator_make(root, 0, 0, false, SIZE, MOST);
    dsa_emulator_root(root);
    dsa_emulator_reset();
}

static void
clean(void)
{
    char command[96];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    CHECK(!system(command));
}

static struct opd_dsa_options
usual(void)
{
    return (struct opd_dsa_options){.sys = sys, .dev = dev, .cpu = &all};
}

static int
attempt(struct opd_dsa_options options)
{
    struct opd_dsa *dsa = NULL;
    int rc = opd_dsa_create(&options, &report, &dsa);
    if (!rc)
        opd_dsa_destroy(dsa);
    return rc;
}

static struct opd_dsa *
made(struct opd_dsa_options options)
{
    struct opd_dsa *dsa = NULL;
    int rc = opd_dsa_create(&options, &report, &dsa);
    if (rc)
        fprintf(stderr, "%s\n", report.reason);
    CHECK(!rc);
    return dsa;
}

static void
check_by_check(void)
{
    fresh();
    static const struct {
        const char *name, *file, *value, *reason;
    } wrong[] = {
        {"dsa0", "state", "disabled", "dsa0 device state: disabled, not enabled"},
        {"dsa0", "pasid_enabled", "0", "dsa0 SVA: pasid_enabled is 0"},
        {"wq0.0", "state", "disabled", "wq0.0 queue state: state is disabled"},
        {"wq0.0", "type", "kernel", "wq0.0 type: type is kernel, not user"},
        {"wq0.0", "driver_name", "dmaengine", "wq0.0 driver: driver_name is dmaengine"},
        {"wq0.0", "mode", "none", "wq0.0 mode: mode is none"},
        {"wq0.0", "size", "0", "wq0.0 size: no entries"},
        {"wq0.0", "size", "-1", "wq0.0 size"},
        {"wq0.0", "size", "99999999999999999999", "wq0.0 size"},
        {"wq0.0", "max_transfer_size", "64", "wq0.0 max_transfer_size: 64 bytes"},
        {"wq0.0", "max_transfer_size", "many", "wq0.0 max_transfer_size"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        dsa_emulator_put(root, wrong[i].name, wrong[i].file, wrong[i].value);
        CHECK(attempt(usual()) == -ENODEV);
        if (!strstr(report.reason, wrong[i].reason))
            fprintf(stderr, "%s: %s\n", wrong[i].reason, report.reason);
        CHECK(strstr(report.reason, wrong[i].reason));
        const struct opd_dsa_finding *last = &report.findings[report.count - 1];
        CHECK(!last->ok && last->remedy[0] && !strcmp(last->where, wrong[i].name));
        dsa_emulator_make(root, 0, 0, false, SIZE, MOST);
    }
    CHECK(!attempt(usual()) && report.usable == 1 && report.count == 12);
    for (uint32_t i = 0; i < report.count; i++)
        CHECK(report.findings[i].ok && !report.findings[i].remedy[0]);
    dsa_emulator_put(root, "wq0.0", "state", "disabled");
    dsa_emulator_put(root, "dsa0", "cmd_status", "0x80110000");
    CHECK(attempt(usual()) == -ENODEV);
    CHECK(strstr(report.findings[report.count - 1].remedy, "IOMMU with SVA"));
    clean();
}

static void
nothing_there(void)
{
    fresh();
    struct opd_dsa_options options = usual();
    options.sys = "/nonexistent";
    CHECK(attempt(options) == -ENODEV && strstr(report.reason, "the idxd module is not loaded"));
    options.sys = sys;
    options.queues = "wq0.1 wq0.10";
    CHECK(attempt(options) == -ENODEV && strstr(report.reason, "no queue wq0.1"));
    options.queues = "wq0.0";
    CHECK(!attempt(options));
    options.queues = "";
    CHECK(attempt(options) == -ENODEV);
    char command[160];
    snprintf(command, sizeof(command), "rm -r %s/sys/bus/dsa/devices/dsa0", root);
    CHECK(!system(command));
    CHECK(attempt(usual()) == -ENODEV && strstr(report.reason, "idxd found no device"));
    clean();
}

static void
opening(void)
{
    fresh();
    static const int errors[] = {EACCES, EBUSY, ENXIO, EPERM, ENODEV};
    for (int i = 0; i < 5; i++) {
        dsa_emulator.refuse_open = errors[i];
        CHECK(attempt(usual()) == -ENODEV && strstr(report.reason, "wq0.0 permission"));
        CHECK(strstr(report.reason, strerror(errors[i])));
    }
    dsa_emulator_reset();
    dsa_emulator.noop_status = 0x20;
    CHECK(attempt(usual()) == -ENODEV && strstr(report.reason, "NOOP: hardware error"));
    dsa_emulator_reset();
    dsa_emulator.delay_ns = 1000000000;
    CHECK(attempt(usual()) == -ENODEV && strstr(report.reason, "does not complete within"));
    // A slow device is one: 50 us are nothing.
    dsa_emulator.delay_ns = 50000;
    CHECK(!attempt(usual()));
    struct opd_dsa_options options = usual();
    options.wait = OPD_DSA_TPAUSE + 1;
    CHECK(attempt(options) == -EINVAL);
    options.cpu = &nothing;
    options.wait = OPD_DSA_UMWAIT;
    CHECK(attempt(options) == -EINVAL && strstr(report.reason, "no WAITPKG"));
    options.wait = OPD_DSA_TPAUSE;
    CHECK(attempt(options) == -EINVAL && strstr(report.reason, "no WAITPKG"));
    struct opd_dsa *several[OPD_DSA_LIVE_MOST], *more = NULL;
    for (int i = 0; i < OPD_DSA_LIVE_MOST; i++)
        several[i] = made(usual());
    options = usual();
    CHECK(opd_dsa_create(&options, &report, &more) == -EMFILE && !more);
    for (int i = 0; i < OPD_DSA_LIVE_MOST; i++)
        opd_dsa_destroy(several[i]);
    CHECK(!attempt(usual()));
    clean();
}

static char from[4 * MOST], to[4 * MOST];

static void
ways(void)
{
    fresh();
    dsa_emulator_make(root, 1, 3, true, SIZE, MOST);
    static const struct {
        const char *queue, *text;
        int64_t refuse_mmap;
        bool has;
    } cases[] = {
        {"wq0.0", "wq0.0: shared by ENQCMD, 8 entries, 65536 bytes", 0, true},
        {"wq0.0", "wq0.0: shared by write()", 1, true},
        {"wq0.0", "wq0.0: shared by write()", 0, false},
        {"wq1.3", "wq1.3: dedicated by MOVDIR64B", 0, true},
        {"wq1.3", "wq1.3: dedicated by write()", 1, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        for (uint32_t wait = OPD_DSA_BUSYPOLL; wait <= OPD_DSA_TPAUSE; wait++) {
            if (!cases[i].has && wait >= OPD_DSA_UMWAIT)
                continue;
            dsa_emulator_reset();
            dsa_emulator.refuse_mmap = cases[i].refuse_mmap;
            dsa_emulator.delay_ns = wait == OPD_DSA_BUSYPOLL ? 0 : 100000;
            struct opd_dsa_options options = usual();
            options.queues = cases[i].queue;
            options.wait = wait;
            struct opd_dsa_cpu unsaid = all; // CPUID says nothing of the TSC
            unsaid.tsc_hz = 0;
            options.cpu = cases[i].has ? &unsaid : &nothing;
            struct opd_dsa *dsa = made(options);
            char text[128];
            CHECK(opd_dsa_queue_count(dsa) == 1);
            CHECK(opd_dsa_queue_text(dsa, 0, text, sizeof(text)) > 0);
            CHECK(!strncmp(text, cases[i].text, strlen(cases[i].text)));
            const struct opd_dto_functions *f = opd_dsa_functions(dsa);
            memset(from, 7, sizeof(from));
            CHECK(f->copy(to, from, 3 * MOST + 5) == to);
            CHECK(!memcmp(to, from, 3 * MOST + 5) && to[3 * MOST + 5] != 7);
            CHECK(f->set(to, 0x1fe, MOST) == to && (uint8_t)to[MOST - 1] == 0xfe);
            struct opd_dsa_counts counts;
            opd_dsa_counts(dsa, &counts);
            CHECK(counts.ops[OPD_DSA_COPY].device_bytes == 3 * MOST + 5);
            CHECK(counts.ops[OPD_DSA_COPY].descriptors == 4);
            CHECK(counts.status[OPD_DSA_SUCCESS] == 5 && counts.opened == 1);
            CHECK((dsa_emulator_counts.instructions > 0) ==
                      (cases[i].refuse_mmap == 0 && cases[i].has) ||
                  wait >= OPD_DSA_UMWAIT);
            CHECK(wait < OPD_DSA_UMWAIT || dsa_emulator_counts.waits > 0);
            opd_dsa_destroy(dsa);
            CHECK(!dsa_emulator_counts.violations);
            memset(to, 0, sizeof(to));
        }
    clean();
}

// A dedicated queue can be open once: a handle holds it only while it is used, and
// a child that comes too late does without.
static void
dedicated(void)
{
    fresh();
    clean();
    fresh();
    char command[160];
    snprintf(command, sizeof(command), "rm -r %s/sys/bus/dsa/devices/wq0.0", root);
    CHECK(!system(command));
    dsa_emulator_make(root, 0, 1, true, 1, MOST);
    struct opd_dsa *dsa = made(usual());
    const struct opd_dto_functions *f = opd_dsa_functions(dsa);
    CHECK(!attempt(usual()));
    memset(from, 3, MOST);
    f->copy(to, from, MOST);
    CHECK(attempt(usual()) == -ENODEV && strstr(report.reason, "busy"));
    CHECK(strstr(report.findings[report.count - 1].remedy, "dedicated"));
    struct opd_dsa_options look = usual();
    look.look_only = 1;
    CHECK(!attempt(look));
    pid_t child = fork();
    if (!child) {
        memset(to, 0, MOST);
        f->copy(to, from, MOST);
        struct opd_dsa_counts mine;
        opd_dsa_counts(dsa, &mine);
        _exit(memcmp(to, from, MOST) || mine.open_failed != 1 || !mine.ops[OPD_DSA_COPY].refused);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && !status);
    opd_dsa_let_go(dsa);
    child = fork();
    if (!child) {
        f->copy(to, from, MOST);
        struct opd_dsa_counts mine;
        opd_dsa_counts(dsa, &mine);
        _exit(mine.opened != 2);
    }
    CHECK(waitpid(child, &status, 0) == child && !status);
    opd_dsa_destroy(dsa);
    clean();
}

// Of a device that never ends: bounded, said, the CPU's, and not asked again.
static void
never_ends(void)
{
    fresh();
    struct opd_dsa_options options = usual();
    options.timeout_ns = 2000000;
    for (int way = 0; way < 2; way++) {
        struct opd_dsa *dsa = made(options);
        const struct opd_dto_functions *f = opd_dsa_functions(dsa);
        f->set(to, 1, MOST);
        dsa_emulator.every = dsa_emulator.hang = 1;
        memset(from, 9 + way, sizeof(from));
        for (int i = 0; i < 3; i++) {
            f->copy(to, from, 3 * MOST);
            CHECK(!memcmp(to, from, 3 * MOST));
        }
        struct opd_dsa_counts counts;
        opd_dsa_counts(dsa, &counts);
        CHECK(counts.ops[OPD_DSA_COPY].timeouts == 1 && counts.ops[OPD_DSA_COPY].refused == 2);
        CHECK(counts.ops[OPD_DSA_COPY].device_bytes == 0);
        CHECK(counts.ops[OPD_DSA_COPY].cpu_bytes == 9 * MOST);
        opd_dsa_destroy(dsa);
        dsa_emulator_reset();
        dsa_emulator.refuse_mmap = 1;
    }
    clean();
}

static void
vanishes(void)
{
    fresh();
    for (int way = 0; way < 2; way++) {
        dsa_emulator_reset();
        dsa_emulator.refuse_mmap = way;
        struct opd_dsa *dsa = made(usual());
        const struct opd_dto_functions *f = opd_dsa_functions(dsa);
        memset(from, way + 1, sizeof(from));
        f->copy(to, from, MOST);
        dsa_emulator.vanish_after = 5;
        for (int i = 0; i < 10; i++) {
            memset(to, 0, 2 * MOST);
            f->copy(to, from, 2 * MOST);
            CHECK(!memcmp(to, from, 2 * MOST));
        }
        // A child finds no device any more.
        pid_t child = fork();
        if (!child) {
            f->set(to, 4, MOST);
            _exit(to[0] != 4 || to[MOST - 1] != 4);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && !status);
        struct opd_dsa_counts counts;
        opd_dsa_counts(dsa, &counts);
        CHECK(counts.open_failed == 1);
        CHECK(way ? counts.ops[OPD_DSA_COPY].refused > 0 : counts.ops[OPD_DSA_COPY].busy > 0);
        opd_dsa_destroy(dsa);
    }
    clean();
}

// 4 GiB and more in one descriptor do not fit its 32 bits, nor do they wrap to 0.
static void
huge_most(void)
{
    fresh();
    static const struct {
        const char *text;
        uint64_t most;
    } cases[] = {
        {"2147483648", 2147483648}, {"4294967296", 4294963200}, {"1099511627776", 4294963200}};
    for (int i = 0; i < 3; i++) {
        dsa_emulator_put(root, "wq0.0", "max_transfer_size", cases[i].text);
        struct opd_dsa *dsa = made(usual());
        CHECK(dsa->facts[0].most == cases[i].most);
        opd_dsa_functions(dsa)->set(to, 5, 3 * MOST);
        CHECK(to[3 * MOST - 1] == 5);
        opd_dsa_destroy(dsa);
    }
    clean();
}

static void
many_queues(void)
{
    fresh();
    for (unsigned i = 1; i < 70; i++) // B9, B14: more than fit, and no node
        dsa_emulator_make(root, 0, i, i % 2, SIZE, MOST);
    struct opd_dsa_options options = usual();
    options.near = 1;
    struct opd_dsa *dsa = made(options);
    CHECK(opd_dsa_queue_count(dsa) == OPD_DSA_QUEUES_MOST && report.beyond > 0);
    memset(from, 6, MOST);
    for (int i = 0; i < 200; i++)
        opd_dsa_functions(dsa)->copy(to, from, 4096);
    struct opd_dsa_counts counts;
    opd_dsa_counts(dsa, &counts);
    CHECK(counts.ops[OPD_DSA_COPY].descriptors == 200 && !dsa_emulator_counts.violations);
    opd_dsa_destroy(dsa);
    clean();
}

// B10: the program closed what it does not know, and the number is another file's.
static void
foreign_file(void)
{
    fresh();
    struct opd_dsa *dsa = made(usual());
    opd_dsa_functions(dsa)->set(to, 1, MOST);
    int number = dsa->held[0].fd;
    CHECK(number >= 0);
    opd_dsa_let_go(dsa);
    CHECK(dsa->held[0].fd == -1);
    opd_dsa_functions(dsa)->set(to, 1, MOST);
    number = dsa->held[0].fd;
    munmap(dsa->process->queues[0].portal, DSA_PORTAL);
    dsa->process->queues[0].portal = NULL;
    close(number);
    int other = open("/proc/self/stat", O_RDONLY);
    CHECK(other == number);
    opd_dsa_destroy(dsa);
    char byte;
    CHECK(read(other, &byte, 1) == 1);
    close(other);
    clean();
}

static void
thresholds(void)
{
    // P(23 or more heads of 31) = 0.0053, of 22: 0.0147. scipy.stats.binom.
    CHECK(opd_dsa_wins_needed(31) == 23 && opd_dsa_wins_needed(7) == 7);
    CHECK(opd_dsa_wins_needed(6) == 7 && opd_dsa_wins_needed(255) == 147);
    fresh();
    struct opd_dsa_options options = usual();
    for (int op = 0; op < OPD_DSA_OPS; op++)
        options.least[op] = 8192;
    struct opd_dsa *dsa = made(options);
    const struct opd_dto_functions *f = opd_dsa_functions(dsa);
    f->copy(to, from, 8191);
    f->copy(to, from, 8192);
    f->copy(to, from, 0);
    struct opd_dsa_counts counts;
    opd_dsa_counts(dsa, &counts);
    CHECK(counts.ops[OPD_DSA_COPY].calls == 3 && counts.ops[OPD_DSA_COPY].small == 2);
    CHECK(counts.ops[OPD_DSA_COPY].descriptors == 1);
    // A device of 200 us pays nowhere here.
    dsa_emulator.delay_ns = 200000;
    struct opd_dsa_crossover crossover;
    CHECK(opd_dsa_cross(dsa, 15, 16384, 9, &crossover) == 0);
    CHECK(crossover.sizes == 3 && crossover.wins_needed == 9);
    for (int op = 0; op < OPD_DSA_OPS; op++)
        CHECK(crossover.least[op] == UINT64_MAX && crossover.device_ns[op][2] > 100000);
    dsa_emulator.delay_ns = 0;
    uint64_t before = dsa_emulator_counts.taken;
    f->copy(to, from, MOST);
    CHECK(dsa_emulator_counts.taken == before);
    CHECK(opd_dsa_cross(dsa, 15, 100, 9, &crossover) == -EINVAL);
    CHECK(opd_dsa_cross(dsa, 16, 4096, 9, &crossover) == -EINVAL);
    CHECK(opd_dsa_cross(dsa, 0, 4096, 9, &crossover) == -EINVAL);
    CHECK(opd_dsa_cross(dsa, 15, 4096, 256, &crossover) == -EINVAL);
    opd_dsa_destroy(dsa);
    clean();
}

// A slow CPU: from the smallest size on the device wins.
static void *
slow_copy(void *a, const void *b, size_t n)
{
    usleep(2000);
    return memcpy(a, b, n);
}

static void *
slow_set(void *a, int value, size_t n)
{
    usleep(2000);
    return memset(a, value, n);
}

static int
slow_compare(const void *a, const void *b, size_t n)
{
    usleep(2000);
    return memcmp(a, b, n);
}

static void
pays(void)
{
    fresh();
    dsa_emulator.refuse_mmap = 1;
    const struct opd_dto_functions slow = {slow_copy, slow_copy, slow_set, slow_compare};
    struct opd_dsa_options options = usual();
    options.fallback = &slow;
    struct opd_dsa *dsa = made(options);
    struct opd_dsa_crossover crossover;
    CHECK(opd_dsa_cross(dsa, 15, 8192, 11, &crossover) == 0);
    for (int op = 0; op < OPD_DSA_OPS; op++)
        CHECK(crossover.least[op] <= 8192 && dsa->least[op] == crossover.least[op]);
    opd_dsa_destroy(dsa);
    clean();
}

int
main(void)
{
    RUN(check_by_check);
    RUN(nothing_there);
    RUN(opening);
    RUN(ways);
    RUN(dedicated);
    RUN(never_ends);
    RUN(vanishes);
    RUN(huge_most);
    RUN(many_queues);
    RUN(foreign_file);
    RUN(thresholds);
    RUN(pays);
    return 0;
}
