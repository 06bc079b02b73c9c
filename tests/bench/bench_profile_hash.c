// SPDX-License-Identifier: Apache-2.0
// Ways to count hits of a profile buffer that all CPUs share, side by side on
// the same streams of slots: how often the buffer is updated, and what a hit
// costs in CPU time of the thread that counts it. A line a case, tab-separated:
//   policy pages threads window hits updates ns_per_hit bytes_per_cpu
// Each thread is a CPU and counts its own stream; after `window` hits of its
// own (0: never) what it holds goes to the buffer, as when somebody reads it.
// Run by the section "hash"; `selftest` proves that no way loses a hit.
//   bench_profile_hash count|time PAGES,… THREADS,… WINDOW,… ROUNDS FILE…
//   bench_profile_hash selftest
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "bench_profile_hash.h"

#define STREAMS_MAX 64u
#define LIST_MAX 16u
#define TIMED_HITS 200000u // of a thread, in a case that is timed
#define SLOTS_MAX (1u << 26)

struct stream {
    uint32_t *slots;
    size_t count;
};

struct job {
    const struct policy *policy;
    void *table;
    struct buffer *buffer;
    const struct stream *stream;
    size_t start, hits, window;
    pthread_barrier_t *barrier;
    struct counter counter;
    double cpu_ns;
};

static int
fail(const char *what, const char *why)
{
    fprintf(stderr, "bench_profile_hash: %s: %s\n", what, why);
    return 1;
}

static double
thread_cpu_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return (double)at.tv_sec * 1e9 + (double)at.tv_nsec;
}

// Hits in runs that neither cross the stream's end nor a reader's turn.
static void *
count_hits(void *argument)
{
    struct job *job = argument;
    const struct policy *policy = job->policy;
    size_t at = job->start, left = job->hits, to_read = job->window;
    pthread_barrier_wait(job->barrier);
    const double began = thread_cpu_ns();
    while (left > 0) {
        size_t run = job->stream->count - at;
        if (run > left)
            run = left;
        if (job->window != 0 && run > to_read)
            run = to_read;
        policy->add(job->table, job->buffer, &job->counter, job->stream->slots + at, run);
        at = (at + run) % job->stream->count;
        left -= run;
        if (job->window != 0 && (to_read -= run) == 0) {
            policy->flush(job->table, job->buffer, &job->counter);
            to_read = job->window;
        }
    }
    if (job->window == 0 || to_read != job->window)
        policy->flush(job->table, job->buffer, &job->counter);
    job->cpu_ns = thread_cpu_ns() - began;
    return NULL;
}

// Runs one case; `hits` 0: the stream once. false when memory is short.
static bool
run_case(const struct policy *policy, const struct shape *shape, struct buffer *buffer,
         const struct stream *streams, unsigned stream_count, unsigned threads, size_t window,
         size_t hits, struct result *result)
{
    static struct job jobs[STREAMS_MAX];
    pthread_t ids[STREAMS_MAX];
    pthread_barrier_t barrier;
    bool complete = true;
    pthread_barrier_init(&barrier, NULL, threads);
    for (unsigned i = 0; i < threads; i++) {
        const struct stream *stream = &streams[i % stream_count];
        // Threads of one stream begin at different places of it.
        const unsigned turn = i / stream_count, turns = (threads - 1) / stream_count + 1;
        jobs[i] = (struct job){.policy = policy,
                               .table = policy->create(shape, buffer),
                               .buffer = buffer,
                               .stream = stream,
                               .start = stream->count * turn / turns,
                               .hits = hits != 0 ? hits : stream->count,
                               .window = window,
                               .barrier = &barrier};
        complete = complete && jobs[i].table != NULL;
    }
    for (unsigned i = 0; complete && i < threads; i++)
        if (pthread_create(&ids[i], NULL, count_hits, &jobs[i]) != 0)
            abort(); // the others wait for it at the barrier
    *result = (struct result){0};
    for (unsigned i = 0; i < threads; i++) {
        if (complete) {
            pthread_join(ids[i], NULL);
            result->hits += jobs[i].hits;
            result->updates += jobs[i].counter.updates;
            result->cpu_ns += jobs[i].cpu_ns;
            const size_t bytes = policy->bytes(jobs[i].table);
            result->bytes = bytes > result->bytes ? bytes : result->bytes;
        }
        if (jobs[i].table != NULL)
            policy->destroy(jobs[i].table);
    }
    pthread_barrier_destroy(&barrier);
    return complete;
}

static bool
read_stream(const char *path, struct stream *stream)
{
    struct stat stat;
    FILE *file = fopen(path, "rb");
    if (file == NULL || fstat(fileno(file), &stat) != 0 || stat.st_size == 0 ||
        stat.st_size % 4 != 0)
        return false;
    stream->count = (size_t)stat.st_size / 4;
    stream->slots = malloc(stream->count * sizeof *stream->slots);
    bool whole = stream->slots != NULL &&
                 fread(stream->slots, sizeof *stream->slots, stream->count, file) == stream->count;
    fclose(file);
    for (size_t i = 0; whole && i < stream->count; i++)
        whole = stream->slots[i] < SLOTS_MAX;
    return whole;
}

static unsigned
read_list(char *text, size_t *values)
{
    unsigned count = 0;
    for (char *word = strtok(text, ","); word != NULL && count < LIST_MAX; word = strtok(NULL, ","))
        values[count++] = strtoul(word, NULL, 10);
    return count;
}

// The buffer for the largest slot of all streams.
static bool
make_buffer(struct buffer *buffer, const struct stream *streams, unsigned count)
{
    uint32_t largest = 0;
    for (unsigned i = 0; i < count; i++)
        for (size_t j = 0; j < streams[i].count; j++)
            largest = streams[i].slots[j] > largest ? streams[i].slots[j] : largest;
    buffer->count = largest + (size_t)1;
    buffer->hits = calloc(buffer->count, sizeof *buffer->hits);
    return buffer->hits != NULL;
}

static uint64_t
sum(const struct buffer *buffer)
{
    uint64_t hits = 0;
    for (size_t i = 0; i < buffer->count; i++)
        hits += atomic_load_explicit(&buffer->hits[i], memory_order_relaxed);
    return hits;
}

struct plan {
    bool timed;
    size_t pages[LIST_MAX], threads[LIST_MAX], windows[LIST_MAX];
    unsigned page_count, thread_count, window_count;
    unsigned rounds;
};

// Every round runs all cases, so that what disturbs the machine for a while
// disturbs them all.
static int
run_plan(const struct plan *plan, const struct stream *streams, unsigned count)
{
    struct buffer buffer;
    if (!make_buffer(&buffer, streams, count))
        return fail("buffer", strerror(ENOMEM));
    const unsigned cases = plan->page_count * plan->thread_count * plan->window_count;
    int status = 0;
    for (unsigned round = 0; round < plan->rounds; round++)
        for (unsigned i = 0; i < cases * policy_count && status == 0; i++) {
            // Policies are next to each other, and begin with another one each round.
            const struct policy *policy = &policies[(i + round) % policy_count];
            const unsigned which = i / policy_count;
            const size_t pages = plan->pages[which % plan->page_count];
            const size_t threads = plan->threads[which / plan->page_count % plan->thread_count];
            const size_t window = plan->windows[which / plan->page_count / plan->thread_count];
            const struct shape shape = {.bytes = pages * 4096, .slots = buffer.count};
            struct result result;
            memset((void *)buffer.hits, 0, buffer.count * sizeof *buffer.hits);
            if (!run_case(policy, &shape, &buffer, streams, count, (unsigned)threads, window,
                          plan->timed ? TIMED_HITS : 0, &result))
                status = fail(policy->name, strerror(ENOMEM));
            else if (sum(&buffer) != result.hits)
                status = fail(policy->name, "hits were lost");
            else
                printf("%s\t%zu\t%zu\t%zu\t%llu\t%llu\t%.3f\t%zu\n", policy->name, pages, threads,
                       window, (unsigned long long)result.hits, (unsigned long long)result.updates,
                       result.cpu_ns / (double)result.hits, result.bytes);
        }
    free(buffer.hits);
    return status;
}

static int
selftest(void)
{
    enum { HITS = 60000, SLOTS = 5000 };
    struct stream streams[2];
    uint64_t state = 88172645463325252u;
    for (unsigned i = 0; i < 2; i++) {
        streams[i] = (struct stream){.slots = malloc(HITS * 4), .count = HITS};
        if (streams[i].slots == NULL)
            return fail("selftest", strerror(ENOMEM));
        for (unsigned j = 0; j < HITS; j++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Half of them on a few slots, the first and the last among them.
            const uint32_t few = state >> 40 & 7, any = (uint32_t)(state >> 32) % SLOTS;
            streams[i].slots[j] = state & 1 ? (few == 7 ? SLOTS - 1 : few) : any;
        }
    }
    static const size_t windows[] = {0, 1, 777, HITS};
    struct buffer buffer, expected;
    int status = 0;
    if (!make_buffer(&buffer, streams, 2) || !make_buffer(&expected, streams, 2))
        return fail("selftest", strerror(ENOMEM));
    for (unsigned i = 0; i < 4; i++)
        for (size_t j = 0; j < HITS; j++)
            expected.hits[streams[i % 2].slots[j]]++;
    for (unsigned i = 0; i < policy_count * 4 && status == 0; i++) {
        const struct policy *policy = &policies[i / 4];
        const struct shape shape = {.bytes = 4096, .slots = buffer.count};
        struct result result;
        memset((void *)buffer.hits, 0, buffer.count * sizeof *buffer.hits);
        if (!run_case(policy, &shape, &buffer, streams, 2, 4, windows[i % 4],
                      windows[i % 4] == 1 ? 0 : HITS, &result))
            status = fail(policy->name, strerror(ENOMEM));
        for (size_t j = 0; j < buffer.count && status == 0; j++)
            if (buffer.hits[j] != expected.hits[j])
                status = fail(policy->name, "a slot has another count than was hit");
        if (status == 0 && (result.updates > result.hits || result.updates == 0))
            status = fail(policy->name, "more updates than hits");
        if (status == 0)
            printf("ok %s window %zu: %llu hits, %llu updates\n", policy->name, windows[i % 4],
                   (unsigned long long)result.hits, (unsigned long long)result.updates);
    }
    free(streams[0].slots);
    free(streams[1].slots);
    free(buffer.hits);
    free(expected.hits);
    return status;
}

int
main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "selftest") == 0)
        return selftest();
    if (argc < 7 || argc - 6 > (int)STREAMS_MAX ||
        (strcmp(argv[1], "count") != 0 && strcmp(argv[1], "time") != 0)) {
        fprintf(stderr, "usage: bench_profile_hash count|time PAGES,… THREADS,… WINDOW,… ROUNDS "
                        "FILE…\n       bench_profile_hash selftest\n");
        return 2;
    }
    static struct stream streams[STREAMS_MAX];
    struct plan plan = {.timed = strcmp(argv[1], "time") == 0};
    plan.page_count = read_list(argv[2], plan.pages);
    plan.thread_count = read_list(argv[3], plan.threads);
    plan.window_count = read_list(argv[4], plan.windows);
    plan.rounds = (unsigned)strtoul(argv[5], NULL, 10);
    for (unsigned i = 0; i < plan.thread_count; i++)
        if (plan.threads[i] == 0 || plan.threads[i] > STREAMS_MAX)
            return fail(argv[3], "expected 1 to 64 threads");
    for (unsigned i = 0; i < plan.page_count; i++)
        if (plan.pages[i] == 0 || plan.pages[i] > 65536 ||
            (plan.pages[i] & (plan.pages[i] - 1)) != 0)
            return fail(argv[2], "expected powers of two of pages");
    for (int i = 6; i < argc; i++)
        if (!read_stream(argv[i], &streams[i - 6]))
            return fail(argv[i], "not a file of slots (u32 below 2^26)");
    int status = run_plan(&plan, streams, (unsigned)(argc - 6));
    for (int i = 6; i < argc; i++)
        free(streams[i - 6].slots);
    return status;
}
