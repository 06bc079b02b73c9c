// SPDX-License-Identifier: Apache-2.0
// Faults of every kind counted against the pages that were touched.
#include "opd/pft.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "t.h"

enum { PAGES = 1024, WORKERS = 3 };

static const struct opd_pft_options plain = {
    .workers = 1, .lines = 1, .line_bytes = 64, .pages_each = PAGES};

static uint32_t look = OPD_PFT_COUNT | OPD_PFT_LATENCY;
static struct opd_pft_worker rows[WORKERS];

static int
run(struct opd_pft_options options, char *reason)
{
    struct opd_pft *pft = NULL;
    struct opd_pft_repeat repeat;
    CHECK(opd_pft_create(&options, &pft) == 0);
    int rc = opd_pft_repeat(pft, look, rows, &repeat);
    if (reason)
        snprintf(reason, OPD_PFT_REASON, "%s", opd_pft_reason(pft));
    if (rc && !reason)
        fprintf(stderr, "%s\n", opd_pft_reason(pft));
    if (rc == 0 && (look & OPD_PFT_LATENCY) && options.touch <= OPD_PFT_CLEAR) {
        uint64_t *bins = calloc(OPD_TICKS_BINS, sizeof(*bins)), sum = 0;
        opd_pft_bins(pft, bins);
        for (int i = 0; i < OPD_TICKS_BINS; i++)
            sum += bins[i];
        CHECK(sum == (uint64_t)PAGES * options.workers);
        free(bins);
    }
    opd_pft_destroy(pft);
    return rc;
}

// Sanitizers touch memory of their own beside each touch of ours: it faults too.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { OWN = 1 << 20 };
#else
enum { OWN = 0 };
#endif

static int
about_pages(uint64_t faults)
{
    return faults >= PAGES && faults <= PAGES + OWN;
}

static void
check_exact(struct opd_pft_options options)
{
    CHECK(run(options, NULL) == 0);
    for (uint32_t i = 0; i < options.workers; i++) {
        CHECK(about_pages(rows[i].minor) && rows[i].major == 0);
        CHECK(rows[i].end_ns > rows[i].start_ns && rows[i].cpu_ns > 0);
        CHECK(rows[i].kernel_faults < 0 || about_pages((uint64_t)rows[i].kernel_faults));
    }
}

static void
one_fault_a_page(void)
{
    struct opd_pft_options options = plain;
    check_exact(options);
    look = OPD_PFT_COUNT;
    check_exact(options);
    options.lines = 64;
    check_exact(options);
    options.touch = OPD_PFT_READ;
    check_exact(options);
    options.touch = OPD_PFT_CLEAR;
    check_exact(options);
    look = OPD_PFT_COUNT | OPD_PFT_LATENCY;
    check_exact(options);
    options.backing = OPD_PFT_SHM;
    check_exact(options);
    options.backing = OPD_PFT_DEV_ZERO;
    check_exact(options);
    options.backing = OPD_PFT_MEMFD;
    options.shared = 1;
    check_exact(options);
}

static void
many_workers(void)
{
    struct opd_pft_options options = plain;
    int32_t cpu = sched_getcpu();
    options.workers = WORKERS;
    check_exact(options);
    options.multimap = 1;
    check_exact(options);
    options.packed = 1;
    options.multimap = 0;
    options.cpus = &cpu;
    options.cpu_count = 1;
    check_exact(options);
    for (int i = 0; i < WORKERS; i++)
        CHECK(rows[i].cpu == cpu);
    options.processes = 1;
    check_exact(options);
    CHECK(rows[1].task != rows[0].task);
    options.backing = OPD_PFT_SHM;
    check_exact(options);
    options.multimap = 1;
    check_exact(options);
}

static void
prepared(void)
{
    struct opd_pft_options options = plain;
    for (uint32_t processes = 0; processes < 2; processes++) {
        options.workers = 2;
        options.processes = processes;
        options.prepare = OPD_PFT_READ_FIRST;
        check_exact(options);
        options.prepare = OPD_PFT_DROPPED;
        check_exact(options);
        options.prepare = OPD_PFT_FORKED;
        check_exact(options);
        options.prepare = OPD_PFT_FORKED_GONE;
        check_exact(options);
    }
    options.prepare = OPD_PFT_FILLED;
    options.backing = OPD_PFT_MEMFD;
    check_exact(options); // private: each write copies
    options.shared = 1;
    options.touch = OPD_PFT_READ; // several pages a fault
    CHECK(run(options, NULL) == 0);
    CHECK(rows[0].minor > 0 && rows[0].minor < PAGES + OWN);
    options.backing = OPD_PFT_FILE;
    options.directory = "/tmp";
    CHECK(run(options, NULL) == 0);
    CHECK(rows[0].minor > 0 && rows[0].minor <= PAGES + OWN);
}

static void
in_one_call(void)
{
    struct opd_pft_options options = plain;
    char reason[OPD_PFT_REASON];
    static const uint32_t touches[] = {OPD_PFT_MLOCK, OPD_PFT_MAP_POPULATE, OPD_PFT_POPULATE_READ,
                                       OPD_PFT_POPULATE_WRITE};
    for (size_t i = 0; i < sizeof(touches) / sizeof(*touches); i++) {
        options.touch = touches[i];
        int rc = run(options, reason);
        if (rc) { // RLIMIT_MEMLOCK, or a kernel before 5.14
            CHECK(rc == -ENOMEM || rc == -EPERM || rc == -EINVAL);
            CHECK(strstr(reason, "worker 0") != NULL);
        } else if (touches[i] != OPD_PFT_MAP_POPULATE && !(OWN && touches[i] == OPD_PFT_MLOCK)) {
            // (a sanitizer's mlock does nothing)
            CHECK(about_pages(rows[0].minor));
        }
    }
}

static void
user_faults(void)
{
    static const uint32_t kinds[] = {OPD_PFT_USERFAULTFD, OPD_PFT_USERFAULTFD_WP,
                                     OPD_PFT_USERFAULTFD_MINOR};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        struct opd_pft_options options = plain;
        char reason[OPD_PFT_REASON];
        options.prepare = kinds[i];
        options.workers = 2;
        if (kinds[i] == OPD_PFT_USERFAULTFD_MINOR) {
            struct opd_pft *none = NULL;
            CHECK(opd_pft_create(&options, &none) == -EINVAL); // of shared memory only
            options.backing = OPD_PFT_MEMFD;
            options.shared = 1;
        }
        int rc = run(options, reason);
        if (rc)
            CHECK(strstr(reason, "userfaultfd") != NULL);
        else
            CHECK(rows[0].kernel_faults < 0 || about_pages((uint64_t)rows[0].kernel_faults));
    }
}

static void
locked_as_they_come(void)
{
    struct opd_pft_options options = plain;
    char reason[OPD_PFT_REASON];
    options.prepare = OPD_PFT_LOCK_ON_FAULT;
    if (run(options, reason)) // RLIMIT_MEMLOCK
        CHECK(strstr(reason, "mlock2") != NULL);
    else
        CHECK(about_pages(rows[0].minor));
}

// Page tables stand and huge pages are wanted: a folio at most, never a page of 2 MiB.
static void
large_folios(void)
{
    struct opd_pft_options options = plain;
    char reason[OPD_PFT_REASON];
    options.pages = OPD_PFT_FOLIO;
    if (run(options, reason)) { // a kernel without transparent huge pages
        CHECK(strstr(reason, "HUGEPAGE") != NULL);
        return;
    }
    // (The kernel may join them to huge pages later, at any moment.)
    CHECK(rows[0].minor >= PAGES / 256 && rows[0].minor <= PAGES + OWN);
}

static void
places_and_pauses(void)
{
    struct opd_pft_options options = plain;
    struct opd_pft *pft = NULL;
    struct opd_pft_repeat repeat;
    options.workers = 2;
    options.pause_ns = 20000000;
    CHECK(opd_pft_create(&options, &pft) == 0);
    uint64_t before = opd_raw_ns();
    CHECK(opd_pft_repeat(pft, OPD_PFT_PLACE | OPD_PFT_PAUSE, rows, &repeat) == 0);
    CHECK(opd_raw_ns() - before >= options.pause_ns);
    if (access("/proc/self/numa_maps", R_OK) == 0) {
        CHECK(strstr(opd_pft_placement(pft, 0), "N0=") != NULL || OWN);
        CHECK(strstr(opd_pft_placement(pft, 1), "anon=") != NULL || OWN);
    }
    CHECK(opd_pft_placement(pft, 2)[0] == 0);
    CHECK(opd_pft_repeat(pft, 0, rows, &repeat) == 0);
    CHECK(opd_pft_placement(pft, 0)[0] == 0);
    opd_pft_destroy(pft);
}

static void
given_back(void)
{
    struct opd_pft_options options = plain;
    options.prepare = OPD_PFT_WRITE_FIRST;
    options.touch = OPD_PFT_DONTNEED;
    CHECK(run(options, NULL) == 0);
    CHECK(rows[0].minor <= OWN);
}

static void
whole_process(void)
{
    struct opd_pft_options options = plain;
    options.whole_self = 1;
    CHECK(run(options, NULL) == 0);
    CHECK(rows[0].minor >= PAGES);
}

static void
refusals(void)
{
    struct opd_pft *pft = NULL;
    struct opd_pft_options options = plain;
    char reason[OPD_PFT_REASON];
    options.lines = 0;
    CHECK(opd_pft_create(&options, &pft) == -EINVAL);
    options.lines = 65; // past the page's end
    CHECK(opd_pft_create(&options, &pft) == -EINVAL);
    options = plain;
    options.workers = 0;
    CHECK(opd_pft_create(&options, &pft) == -EINVAL);
    options = plain;
    options.pages_each = UINT64_MAX / 2;
    CHECK(opd_pft_create(&options, &pft) == -EINVAL);
    options = plain;
    int32_t nowhere = 100000;
    options.cpus = &nowhere;
    options.cpu_count = 1;
    options.workers = 2;
    CHECK(run(options, reason) < 0 && strstr(reason, "CPU 100000") != NULL);
    options = plain;
    options.policy_set = 1;
    options.policy = 2; // MPOL_BIND
    options.nodes[15] = 1ull << 60;
    CHECK(run(options, reason) < 0 && strstr(reason, "mbind") != NULL);
    options = plain;
    options.backing = OPD_PFT_FILE;
    options.directory = "/nonexistent";
    CHECK(run(options, reason) == -ENOENT && strstr(reason, "/nonexistent") != NULL);
    options = plain;
    options.pages_each = 1ull << 36; // 256 TiB: no such address space
    CHECK(run(options, reason) < 0 && strstr(reason, "mapping") != NULL);
}

static void
clock_and_bins(void)
{
    struct opd_ticks_rate rate;
    CHECK(opd_ticks_calibrate(0, &rate) == -EINVAL);
    CHECK(opd_ticks_calibrate(20000000, &rate) == 0);
    CHECK(rate.per_ns > 0.001 && rate.per_ns < 20 && rate.error < 0.01);
    CHECK(opd_core_ghz(1000000) > 0);
    for (uint64_t value = 0; value < 1ull << 62; value = value * 3 / 2 + 1) {
        uint32_t bin = opd_ticks_bin(value);
        CHECK(bin < OPD_TICKS_BINS);
        CHECK(opd_ticks_bin_low(bin) <= (double)value);
        CHECK(opd_ticks_bin_low(bin + 1) > (double)value * (1 - 1e-12));
    }
    CHECK(opd_ticks_bin(UINT64_MAX) == OPD_TICKS_BINS - 1);
}

int
main(void)
{
    RUN(one_fault_a_page);
    RUN(many_workers);
    RUN(prepared);
    RUN(in_one_call);
    RUN(user_faults);
    RUN(locked_as_they_come);
    RUN(large_folios);
    RUN(places_and_pauses);
    RUN(given_back);
    RUN(whole_process);
    RUN(refusals);
    RUN(clock_and_bins);
    return 0;
}
