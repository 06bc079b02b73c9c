// SPDX-License-Identifier: Apache-2.0
#include "opd/pchase.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pchase_private.h"
#include "placing.h"

#define HUGE_2M (1ull << 21)
#define HUGE_1G (1ull << 30)
enum { CHUNK_NS = 500000, WARM_NS = 50000000, RAMP_NS = 100000000, STACK = 256 << 10 };

struct thread {
    struct opd_pchase *pchase;
    uint32_t index; // chasers first, then loaders
    pthread_t thread;
    char *base;
    size_t bytes;
    void *heads[OPD_PCHASE_CHAINS_MAX];
    char *arrays[PCHASE_ARRAYS_MAX];
    uint64_t nodes, huge;
    uint64_t rounds; // of the loop in CHUNK_NS; 0: not known yet
    struct opd_pchase_row row;
    int error;
    char reason[OPD_PCHASE_REASON];
};

struct opd_pchase {
    struct opd_pchase_options options;
    int32_t *cpus, *nodes;
    struct pchase_code code;
    uint32_t count;
    struct thread *threads;
    _Atomic uint32_t arrived, chasing;
    _Atomic uint32_t stop;
    int ramped;
};

int
pchase_fail(char *reason, int error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(reason, OPD_PCHASE_REASON, format, arguments);
    va_end(arguments);
    if (error && length >= 0 && length < OPD_PCHASE_REASON)
        snprintf(reason + length, (size_t)(OPD_PCHASE_REASON - length), ": %s", strerror(error));
    return -(error ? error : EIO);
}

static int
is_loader(const struct thread *thread)
{
    return thread->index >= thread->pchase->options.threads;
}

static char *
map(const struct opd_pchase_options *options, size_t *bytes, char *reason)
{
    char *base = NULL;
    size_t align = options->pages == OPD_PCHASE_1G ? HUGE_1G : HUGE_2M;
    if (options->pages >= OPD_PCHASE_2M) {
        *bytes = (*bytes + align - 1) & ~(align - 1);
        int shift = options->pages == OPD_PCHASE_2M ? 21 : 30;
        base = mmap(NULL, *bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | shift << MAP_HUGE_SHIFT, -1, 0);
        if (base == MAP_FAILED)
            base = NULL;
    } else {
        if (options->pages == OPD_PCHASE_THP)
            *bytes = (*bytes + align - 1) & ~(align - 1);
        base = opd_place_map(*bytes, align);
    }
    if (base == NULL) {
        pchase_fail(reason, errno, "mapping %zu bytes%s", *bytes,
                    options->pages >= OPD_PCHASE_2M ? " of hugetlb pages (are they reserved?)"
                                                    : "");
        return NULL;
    }
    int advice = options->pages == OPD_PCHASE_THP ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
    if (options->pages < OPD_PCHASE_2M && madvise(base, *bytes, advice) &&
        options->pages == OPD_PCHASE_THP) {
        pchase_fail(reason, errno, "MADV_HUGEPAGE");
        munmap(base, *bytes);
        return NULL;
    }
    return base;
}

static int
bind_to_node(char *base, size_t bytes, int node, char *reason)
{
    if (node < 0)
        return 0;
    enum { WORDS = 16, MPOL_BIND_ = 2 };
    uint64_t mask[WORDS] = {0};
    if (node >= WORDS * 64)
        return pchase_fail(reason, EINVAL, "node %d", node);
    mask[node / 64] = 1ull << (node % 64);
    int rc = opd_place_policy(base, bytes, MPOL_BIND_, mask, WORDS);
    return rc ? pchase_fail(reason, -rc, "binding memory to node %d", node) : 0;
}

static int
build(struct thread *thread)
{
    const struct opd_pchase_options *options = &thread->pchase->options;
    uint64_t state = options->seed + thread->index * 1000003ull;
    // Chains that stand side by side share the sets of a cache evenly; for a
    // node of its own a chain needs pages of its own.
    size_t page = options->chain_nodes ? (size_t)sysconf(_SC_PAGESIZE) : 64;
    size_t chain = (options->chain + page - 1) & ~(page - 1);
    thread->bytes = chain * options->chains;
    thread->base = map(options, &thread->bytes, thread->reason);
    if (thread->base == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < options->chains; i++) {
        char *base = thread->base + i * chain;
        if (options->chain_nodes) {
            int node = options->chain_nodes[thread->index * options->chains + i];
            int rc = bind_to_node(base, chain, node, thread->reason);
            if (rc)
                return rc;
        }
        int rc = pchase_chain_build(base, options, &state, &thread->heads[i], &thread->nodes);
        if (rc)
            return pchase_fail(thread->reason, -rc, "building chain %u", i);
    }
    return 0;
}

static int
build_load(struct thread *thread)
{
    const struct opd_pchase_options *options = &thread->pchase->options;
    uint32_t arrays = pchase_load_arrays(options->load);
    thread->bytes = options->load_bytes * arrays;
    thread->base = map(options, &thread->bytes, thread->reason);
    if (thread->base == NULL)
        return -ENOMEM;
    int rc = bind_to_node(thread->base, thread->bytes, options->load_node, thread->reason);
    if (rc)
        return rc;
    // Written with something: reads of the zero page would stay in the cache.
    memset(thread->base, 1, options->load_bytes * arrays);
    for (uint32_t i = 0; i < arrays; i++)
        thread->arrays[i] = thread->base + i * options->load_bytes;
    return 0;
}

static int
pin(struct thread *thread)
{
    if (thread->pchase->cpus == NULL)
        return 0;
    int cpu = thread->pchase->cpus[thread->index];
    int rc = opd_place_cpu(cpu);
    return rc ? pchase_fail(thread->reason, -rc, "pinning thread %u to CPU %d", thread->index, cpu)
              : 0;
}

static void *
build_main(void *argument)
{
    struct thread *thread = argument;
    thread->error = pin(thread);
    if (thread->error == 0)
        thread->error = is_loader(thread) ? build_load(thread) : build(thread);
    if (thread->error == 0)
        thread->huge = opd_place_huge(thread->base, thread->bytes);
    return NULL;
}

// Chases for WARM_NS or a whole pass, so that caches hold what they will hold,
// and finds how many rounds fill CHUNK_NS.
static void
warm(struct thread *thread)
{
    const struct pchase_code *code = &thread->pchase->code;
    uint64_t rounds = 1, done = 0, start = opd_raw_ns(), now = start;
    while (now - start < WARM_NS && (done < thread->nodes || thread->rounds == 0)) {
        code->loop(thread->heads, rounds);
        uint64_t then = opd_raw_ns();
        done += rounds * code->unroll;
        if (then - now >= CHUNK_NS)
            thread->rounds = rounds;
        else
            rounds *= 2;
        now = then;
    }
    if (thread->rounds == 0)
        thread->rounds = rounds;
}

static uint64_t
cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void
chase(struct thread *thread)
{
    const struct opd_pchase_options *options = &thread->pchase->options;
    const struct pchase_code *code = &thread->pchase->code;
    struct opd_pchase_row *row = &thread->row;
    uint64_t rounds = 0, cpu = cpu_ns(), ticks = opd_ticks();
    row->start_ns = opd_raw_ns();
    if (options->iterations) {
        uint64_t lines = options->chain / options->line;
        rounds = (options->iterations * lines + code->unroll - 1) / code->unroll;
        code->loop(thread->heads, rounds);
        row->end_ns = opd_raw_ns();
    } else {
        do {
            code->loop(thread->heads, thread->rounds);
            rounds += thread->rounds;
            row->end_ns = opd_raw_ns();
        } while (row->end_ns - row->start_ns < options->duration_ns);
    }
    row->ticks = opd_ticks() - ticks;
    row->cpu_ns = cpu_ns() - cpu;
    row->steps = rounds * code->unroll;
}

static void
stream(struct thread *thread, uint64_t end_ns)
{
    struct opd_pchase *pchase = thread->pchase;
    struct opd_pchase_row *row = &thread->row;
    uint64_t cpu = cpu_ns(), ticks = opd_ticks();
    row->start_ns = opd_raw_ns();
    row->bytes = pchase_load(&pchase->options, thread->arrays, &pchase->stop,
                             end_ns ? end_ns : row->start_ns + pchase->options.duration_ns);
    row->end_ns = opd_raw_ns();
    row->ticks = opd_ticks() - ticks;
    row->cpu_ns = cpu_ns() - cpu;
}

static void *
run_main(void *argument)
{
    struct thread *thread = argument;
    struct opd_pchase *pchase = thread->pchase;
    thread->row = (struct opd_pchase_row){0};
    thread->error = pin(thread);
    if (!pchase->ramped)
        for (uint64_t end = opd_raw_ns() + RAMP_NS; opd_raw_ns() < end;)
            (void)opd_core_ghz(100000);
    thread->row.ghz = opd_core_ghz(3000000);
    if (thread->error == 0 && !is_loader(thread))
        warm(thread);
    atomic_fetch_add(&pchase->arrived, 1);
    while (atomic_load(&pchase->arrived) < pchase->count)
        sched_yield();
    if (thread->error)
        return NULL;
    thread->row.cpu = sched_getcpu();
    if (is_loader(thread)) {
        // Beside chasers until the last of these has ended.
        stream(thread, pchase->options.threads ? UINT64_MAX : 0);
    } else {
        chase(thread);
        if (atomic_fetch_sub(&pchase->chasing, 1) == 1)
            atomic_store(&pchase->stop, 1);
    }
    thread->row.moved = thread->row.cpu != sched_getcpu();
    return NULL;
}

static int
all(struct opd_pchase *pchase, void *(*body)(void *), char *reason)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    atomic_store(&pchase->arrived, 0);
    atomic_store(&pchase->chasing, pchase->options.threads);
    atomic_store(&pchase->stop, 0);
    int rc = 0;
    uint32_t made = 0;
    for (; rc == 0 && made < pchase->count; made += rc == 0) {
        int error =
            pthread_create(&pchase->threads[made].thread, &attr, body, &pchase->threads[made]);
        if (error)
            rc = pchase_fail(reason, error, "making thread %u of %u", made + 1, pchase->count);
    }
    pthread_attr_destroy(&attr);
    if (rc) { // those that were made must not wait for the others
        atomic_store(&pchase->stop, 1);
        atomic_fetch_add(&pchase->arrived, pchase->count);
    }
    for (uint32_t i = 0; i < made; i++)
        pthread_join(pchase->threads[i].thread, NULL);
    for (uint32_t i = 0; rc == 0 && i < made; i++)
        if (pchase->threads[i].error) {
            rc = pchase->threads[i].error;
            snprintf(reason, OPD_PCHASE_REASON, "%s", pchase->threads[i].reason);
        }
    return rc;
}

static const char *
wrong(const struct opd_pchase_options *options)
{
    if (options->threads + (uint64_t)options->loaders == 0 || options->threads > 4096 ||
        options->loaders > 4096)
        return "no thread, or more than 4096";
    if (options->access > OPD_PCHASE_SAME_SET || options->pages > OPD_PCHASE_1G ||
        options->hint > OPD_PCHASE_NTA || options->load >= OPD_LOAD_KINDS ||
        options->vector >= OPD_VECTOR_KINDS)
        return "a word that is none of its enumeration";
    if (options->iterations == 0 && options->duration_ns == 0)
        return "neither iterations nor a duration";
    if (options->loaders && options->threads == 0 && options->duration_ns == 0)
        return "streams alone need a duration";
    if (options->loaders &&
        (options->load_bytes < 65536 || options->load_bytes % 4096 || options->load_bytes >> 44))
        return "arrays are multiples of 4 KiB, 64 KiB to 16 TiB";
    if (options->threads == 0)
        return NULL;
    if (options->chains == 0 || options->chains > OPD_PCHASE_CHAINS_MAX ||
        options->work > OPD_PCHASE_WORK_MAX)
        return "chains are 1 to 28, work 0 to 65536";
    if (options->line < sizeof(void *) || options->line % sizeof(void *) ||
        options->page < options->line || options->page % options->line ||
        options->chain < options->page || options->chain % options->page || options->chain >> 44 ||
        options->chain / options->line > UINT32_MAX)
        return "a page is a multiple of a line (of 8 bytes), a chain of a page";
    if (options->laps > (options->line < 64 ? options->line : 64) / sizeof(void *))
        return "laps are 1 to as many words as a cache line has, 8 at most";
    if (options->ahead && (options->hint == OPD_PCHASE_NONE || options->line < 2 * sizeof(void *) ||
                           options->laps > 1 || options->ahead > OPD_PCHASE_AHEAD_MAX))
        return "looking ahead needs a hint, lines of 16 bytes, one lap, and 4096 steps at most";
    if (options->stride == 0 &&
        (options->access == OPD_PCHASE_FORWARD || options->access == OPD_PCHASE_REVERSE))
        return "a stride of no lines";
    if (options->iterations > UINT64_MAX / 2 / (options->chain / options->line))
        return "too many iterations";
    return NULL;
}

static int
copy_ints(int32_t **to, const int32_t *from, size_t count)
{
    if (from == NULL)
        return 0;
    *to = calloc(count + 1, sizeof(**to));
    if (*to == NULL)
        return -ENOMEM;
    memcpy(*to, from, count * sizeof(**to));
    return 0;
}

int
opd_pchase_create(const struct opd_pchase_options *options, struct opd_pchase **out, char *reason)
{
    const char *what = wrong(options);
    if (what)
        return pchase_fail(reason, EINVAL, "%s", what);
    if (options->loaders && !opd_pchase_has_load(options->load, options->vector))
        return pchase_fail(reason, EOPNOTSUPP, "a stream of this kind and width on this CPU");
    struct opd_pchase *pchase = calloc(1, sizeof(*pchase));
    if (pchase == NULL)
        return pchase_fail(reason, ENOMEM, "a run");
    pchase->options = *options;
    pchase->ramped = options->at_speed != 0;
    pchase->count = options->threads + options->loaders;
    pchase->threads = calloc(pchase->count, sizeof(*pchase->threads));
    int rc = copy_ints(&pchase->cpus, options->cpus, pchase->count);
    if (rc == 0)
        rc = copy_ints(&pchase->nodes, options->chain_nodes,
                       (size_t)options->threads * options->chains);
    pchase->options.chain_nodes = pchase->nodes;
    if (pchase->threads == NULL || rc) {
        opd_pchase_destroy(pchase);
        return pchase_fail(reason, ENOMEM, "%u threads", options->threads);
    }
    for (uint32_t i = 0; i < pchase->count; i++) {
        pchase->threads[i].pchase = pchase;
        pchase->threads[i].index = i;
    }
    if (options->threads) {
        rc = pchase_code_make(&pchase->code, options);
        if (rc)
            pchase_fail(reason, -rc, "a loop of %u chains, hint %u, work %u", options->chains,
                        options->hint, options->work);
    }
    rc = rc ? rc : all(pchase, build_main, reason);
    if (rc) {
        opd_pchase_destroy(pchase);
        return rc;
    }
    *out = pchase;
    return 0;
}

void
opd_pchase_destroy(struct opd_pchase *pchase)
{
    if (pchase == NULL)
        return;
    for (uint32_t i = 0; pchase->threads && i < pchase->count; i++)
        if (pchase->threads[i].base)
            munmap(pchase->threads[i].base, pchase->threads[i].bytes);
    pchase_code_free(&pchase->code);
    free(pchase->threads);
    free(pchase->cpus);
    free(pchase->nodes);
    free(pchase);
}

int
opd_pchase_run(struct opd_pchase *pchase, struct opd_pchase_row *rows, char *reason)
{
    int rc = all(pchase, run_main, reason);
    pchase->ramped = 1;
    for (uint32_t i = 0; rc == 0 && i < pchase->count; i++)
        rows[i] = pchase->threads[i].row;
    return rc;
}

void
opd_pchase_facts(const struct opd_pchase *pchase, struct opd_pchase_facts *out)
{
    *out = (struct opd_pchase_facts){.nodes = pchase->threads[0].nodes,
                                     .compiled = pchase->code.compiled,
                                     .unroll = pchase->code.unroll};
    for (uint32_t i = 0; i < pchase->count; i++) {
        out->bytes += pchase->threads[i].bytes;
        out->huge_bytes += pchase->threads[i].huge;
    }
}
