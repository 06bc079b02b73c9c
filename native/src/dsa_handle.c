// SPDX-License-Identifier: Apache-2.0
// Handles of the DSA path: made, asked, given back; and statuses in words.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dsa_private.h"
#include "opd/ticks.h"

enum { TPAUSE_NS = 6000 };
#define TIMEOUT_NS 2000000000u

const char *
opd_dsa_status_text(uint32_t status)
{
    static const char *const texts[OPD_DSA_STATUSES] = {
        [0x00] = "not completed",
        [0x01] = "success",
        [0x02] = "success, the predicate is false",
        [0x03] = "page fault",
        [0x04] = "page fault, and the kernel could not resolve it",
        [0x05] = "a descriptor of the batch failed",
        [0x06] = "page fault while reading the batch",
        [0x10] = "unknown opcode",
        [0x11] = "flags that the device does not take",
        [0x12] = "a reserved field is not zero",
        [0x13] = "size out of range",
        [0x14] = "number of descriptors out of range",
        [0x16] = "operands overlap",
        [0x19] = "invalid interrupt handle",
        [0x1a] = "the record's address cannot be translated",
        [0x1b] = "the record's address is not aligned",
        [0x1c] = "an address is not aligned",
        [0x1d] = "not allowed to this process",
        [0x1e] = "traffic class not configured",
        [0x1f] = "page fault at a readback address",
        [0x20] = "hardware error",
        [0x21] = "hardware error on readback",
        [0x22] = "an address cannot be translated",
    };
    if (status < OPD_DSA_STATUSES && texts[status])
        return texts[status];
    return "unknown status";
}

static void
why(struct opd_dsa_report *report, const char *text)
{
    snprintf(report->reason, sizeof(report->reason), "%s", text);
}

static int
check_options(const struct opd_dsa_options *options, const struct opd_dsa_cpu *cpu,
              struct opd_dsa_report *report)
{
    if (options->wait > OPD_DSA_TPAUSE) {
        why(report, "wait is no way to wait");
        return -EINVAL;
    }
    if (options->wait >= OPD_DSA_UMWAIT && !cpu->waitpkg) {
        why(report, options->wait == OPD_DSA_UMWAIT
                        ? "wait=umwait: this CPU has no WAITPKG; busypoll and yield need nothing"
                        : "wait=tpause: this CPU has no WAITPKG; busypoll and yield need nothing");
        return -EINVAL;
    }
    return 0;
}

// CPUID may leave the rate of its clock unsaid; then it is measured.
static uint64_t
tpause_ticks(const struct opd_dsa_cpu *cpu)
{
    struct opd_ticks_rate rate = {.per_ns = 1};
    if (cpu->tsc_hz)
        rate.per_ns = (double)cpu->tsc_hz / 1e9;
    else if (opd_ticks_calibrate(10000000, &rate))
        rate.per_ns = 1;
    return (uint64_t)(rate.per_ns * TPAUSE_NS);
}

static int
claim_slot(struct opd_dsa *dsa)
{
    for (uint32_t i = 0; i < OPD_DSA_LIVE_MOST; i++) {
        struct opd_dsa *none = NULL;
        if (__atomic_compare_exchange_n(&dsa_live[i], &none, dsa, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
            dsa->slot = i;
            dsa->functions = dsa_slot_functions[i];
            return 0;
        }
    }
    return -EMFILE;
}

static void
give_memory_back(struct opd_dsa *dsa)
{
    if (dsa->process)
        munmap(dsa->process, sizeof(*dsa->process));
    if (dsa->shared)
        munmap(dsa->shared, sizeof(*dsa->shared));
    free(dsa);
}

static struct opd_dsa *
memory(void)
{
    struct opd_dsa *dsa = calloc(1, sizeof(*dsa));
    if (!dsa)
        return NULL;
    void *process = mmap(NULL, sizeof(*dsa->process), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    void *shared =
        mmap(NULL, sizeof(*dsa->shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    dsa->process = process == MAP_FAILED ? NULL : process;
    dsa->shared = shared == MAP_FAILED ? NULL : shared;
    for (uint32_t i = 0; i < OPD_DSA_QUEUES_MOST; i++)
        dsa->held[i].fd = -1;
    if (!process || !shared || madvise(process, sizeof(*dsa->process), MADV_WIPEONFORK)) {
        give_memory_back(dsa);
        return NULL;
    }
    return dsa;
}

// A queue that is only looked at: its permission is asked, not used.
static bool
may_open(const struct dsa_facts *facts, struct opd_dsa_report *report)
{
    if (access(facts->path, R_OK | W_OK)) {
        dsa_told(report, DSA_CHECK_PERMISSION, facts->name,
                 "run as root, or give your group the node by a udev rule", "%s: %s", facts->path,
                 strerror(errno));
        return false;
    }
    dsa_told(report, DSA_CHECK_PERMISSION, facts->name, NULL, "%s may be opened (not tried)",
             facts->path);
    return true;
}

// Opens each queue once; those that work stay in the list, closed again.
static void
try_all(struct opd_dsa *dsa, uint32_t look_only, struct opd_dsa_report *report)
{
    uint32_t kept = 0;
    bool tried = false;
    atomic_store(&dsa->process->state, DSA_OPENING);
    for (uint32_t i = 0; i < dsa->count; i++) {
        bool works;
        // A look opens one queue: a device that is stuck is waited for once.
        if (look_only && (dsa->facts[i].dedicated || tried || look_only > 1)) {
            works = may_open(&dsa->facts[i], report);
        } else {
            tried = true;
            works = !dsa_open_queue(dsa, i, report);
            if (works)
                dsa_close_queue(dsa, i);
        }
        if (works)
            dsa->facts[kept++] = dsa->facts[i];
    }
    dsa->count = kept;
    report->usable = kept;
    atomic_store(&dsa->process->state, DSA_NOT_OPENED);
}

int
opd_dsa_create(const struct opd_dsa_options *asked, struct opd_dsa_report *report,
               struct opd_dsa **out)
{
    struct opd_dsa_options options = *asked;
    memset(report, 0, sizeof(*report));
    if (!options.sys)
        options.sys = "/sys";
    if (!options.dev)
        options.dev = "/dev";
    struct opd_dsa *dsa = memory();
    if (!dsa)
        return -ENOMEM;
    if (options.cpu)
        dsa->cpu = *options.cpu;
    else
        opd_dsa_cpu(&dsa->cpu);
    int rc = check_options(&options, &dsa->cpu, report);
    if (rc)
        goto failed;
    dsa->wait = options.wait;
    dsa->near = options.near;
    dsa->no_cache_control = options.no_cache_control;
    dsa->timeout_ns = options.timeout_ns ? options.timeout_ns : TIMEOUT_NS;
    memcpy(dsa->least, options.least, sizeof(dsa->least));
    const struct opd_dto_functions libc = {memcpy, memmove, memset, memcmp};
    dsa->fallback = options.fallback ? *options.fallback : libc;
    if (!dsa->fallback.copy)
        dsa->fallback.copy = memcpy;
    if (!dsa->fallback.move)
        dsa->fallback.move = memmove;
    if (!dsa->fallback.set)
        dsa->fallback.set = memset;
    if (!dsa->fallback.compare)
        dsa->fallback.compare = memcmp;
    dsa->count = dsa_find(&options, dsa->facts, report);
    try_all(dsa, options.look_only, report);
    if (!dsa->count) {
        if (!*report->reason)
            why(report, "no queue of this name");
        rc = -ENODEV;
        goto failed;
    }
    if (dsa->wait == OPD_DSA_TPAUSE)
        dsa->tpause_ticks = tpause_ticks(&dsa->cpu);
    rc = claim_slot(dsa);
    if (rc) {
        why(report, "too many handles of the DSA path at once");
        goto failed;
    }
    *out = dsa;
    return 0;
failed:
    give_memory_back(dsa);
    return rc;
}

void
opd_dsa_let_go(struct opd_dsa *dsa)
{
    for (uint32_t i = 0; i < dsa->count; i++)
        dsa_close_queue(dsa, i);
    atomic_store(&dsa->process->state, DSA_NOT_OPENED);
}

void
opd_dsa_destroy(struct opd_dsa *dsa)
{
    if (!dsa)
        return;
    opd_dsa_let_go(dsa);
    __atomic_store_n(&dsa_live[dsa->slot], NULL, __ATOMIC_SEQ_CST);
    give_memory_back(dsa);
}

const struct opd_dto_functions *
opd_dsa_functions(const struct opd_dsa *dsa)
{
    return &dsa->functions;
}

uint32_t
opd_dsa_queue_count(const struct opd_dsa *dsa)
{
    return dsa->count;
}

int
opd_dsa_queue_text(const struct opd_dsa *dsa, uint32_t index, char *text, size_t room)
{
    static const char *const ways[] = {"not opened", "ENQCMD", "MOVDIR64B", "write()", "given up"};
    if (index >= dsa->count)
        return -EINVAL;
    const struct dsa_facts *facts = &dsa->facts[index];
    return snprintf(text, room, "%s: %s by %s, %u entries, %llu bytes a descriptor", facts->name,
                    facts->dedicated ? "dedicated" : "shared", ways[facts->way], facts->size,
                    (unsigned long long)facts->most);
}

void
opd_dsa_counts(const struct opd_dsa *dsa, struct opd_dsa_counts *out)
{
    memset(out, 0, sizeof(*out));
    uint64_t *sums = (uint64_t *)out->ops;
    for (uint32_t i = 0; i < DSA_STRIPES; i++) {
        const uint64_t *stripe = (const uint64_t *)dsa->shared->stripes[i].ops;
        for (size_t k = 0; k < sizeof(out->ops) / (sizeof(*sums)); k++)
            sums[k] += __atomic_load_n(&stripe[k], __ATOMIC_RELAXED);
    }
    for (uint32_t op = 0; op < OPD_DSA_OPS; op++)
        out->ops[op].calls += out->ops[op].small;
    for (uint32_t i = 0; i < OPD_DSA_STATUSES; i++)
        out->status[i] = __atomic_load_n(&dsa->shared->status[i], __ATOMIC_RELAXED);
    out->opened = __atomic_load_n(&dsa->shared->opened, __ATOMIC_RELAXED);
    out->open_failed = __atomic_load_n(&dsa->shared->open_failed, __ATOMIC_RELAXED);
}
