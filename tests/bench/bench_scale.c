// SPDX-License-Identifier: Apache-2.0
// What draining costs where there are more CPUs than here: recorded rings are
// multiplied to N CPUs, filled by threads of their own and emptied by the
// sampler's drain through order, address spaces, attribution and hash.
//   bench_scale FILE CPUS DRAINS HZ SECONDS
//   bench_scale selftest FOLDER
// DRAINS threads share the CPUs: each has the samples of its own, and what tells
// of processes from all of them, so that its address spaces are complete.
// It is played so fast that each CPU gives HZ samples a second, as if the load
// had had the CPUs for itself (0: as fast as it was recorded). Prints a
// line `all` and one for each thread, name=value separated by blanks; CPU
// times are in ns and of the drain alone. Run by the section "scale".
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench_scale.h"
#include "pipeline.h"
#include "sampler.h"

#define DRAINS_MAX 16u
#define FEEDERS 2u
#define TURN_NS UINT64_C(200000000) // as often as a busy machine's rings are looked at
#define WINDOW_TURNS 50u            // ten seconds
#define FOREIGN_RING ((size_t)64 << 10)

struct drain {
    struct bench *bench;
    struct opd_sampler *sampler;
    struct player *players; // one a CPU
    pthread_t thread;
    unsigned number;
    uint64_t cpu_ns, take_ns, turn_ns; // of the drain, of taking windows, of the last turn
    uint64_t hits, sum;                // what came out: samples, and their places
    struct opd_window_counts counts;
    struct opd_sampler_stats warm; // when measuring began
    size_t window_bytes;
};

struct bench {
    struct recording recording;
    unsigned cpus, drains;
    double speed;
    uint64_t warm_turns, turns;
    struct drain drain[DRAINS_MAX];
    pthread_t feeders[FEEDERS];
    pthread_barrier_t barrier;
    uint64_t critical_ns; // CPU time of the slowest thread of each turn
};

// What came of all threads together.
struct outcome {
    uint64_t fed, hits, idle, lost, unmapped, full, sum;
};

struct feeder {
    struct bench *bench;
    unsigned number;
};

static int
fail(const char *what, const char *why)
{
    fprintf(stderr, "bench_scale: %s: %s\n", what, why);
    return 1;
}

static size_t
resident(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file != NULL) {
        if (fscanf(file, "%*s %lu", &pages) != 1)
            pages = 0;
        fclose(file);
    }
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

// A sampler as opd_sampler_create() makes it, but for the kernel's part.
static struct opd_sampler *
make_sampler(const struct recording *recording, unsigned cpus)
{
    struct opd_sampler *sampler = calloc(1, sizeof *sampler);
    if (sampler == NULL)
        return NULL;
    opd_sampler_defaults(&sampler->options);
    sampler->wake_fd = -1;
    pthread_mutex_init(&sampler->lock, NULL);
    pthread_cond_init(&sampler->progressed, NULL);
    sampler->ring_room = cpus;
    sampler->rings = calloc(cpus, sizeof *sampler->rings);
    sampler->pipeline = opd_pipeline_create(&sampler->options.pipeline);
    sampler->layout = sampler->layouts[0] = recording->layout;
    sampler->order = opd_order_create(cpus, sampler->options.order_bytes);
    const struct opd_pipeline_event event = {.period = 1};
    if (sampler->rings != NULL && sampler->pipeline != NULL && sampler->order != NULL &&
        opd_pipeline_add_event(sampler->pipeline, &event) == 0)
        return sampler;
    opd_sampler_destroy(sampler);
    return NULL;
}

static int
make_drain(struct bench *bench, unsigned number)
{
    struct drain *drain = &bench->drain[number];
    drain->bench = bench;
    drain->number = number;
    drain->sampler = make_sampler(&bench->recording, bench->cpus);
    drain->players = calloc(bench->cpus, sizeof *drain->players);
    if (drain->sampler == NULL || drain->players == NULL)
        return -ENOMEM;
    const unsigned sources = bench->recording.source_count;
    for (unsigned cpu = 0; cpu < bench->cpus; cpu++) {
        struct player *player = &drain->players[cpu];
        *player = (struct player){
            .recording = &bench->recording,
            .source = &bench->recording.sources[cpu % sources],
            .ring = &drain->sampler->rings[cpu],
            .copy = cpu / sources,
            .speed = bench->speed,
            // Neighbours go to different threads: a process runs on both.
            .samples = (cpu + cpu / sources) % bench->drains == number,
        };
        int rc = player_open(player, cpu,
                             player->samples ? drain->sampler->options.ring_bytes : FOREIGN_RING);
        if (rc != 0)
            return rc;
        drain->sampler->ring_count++;
    }
    return 0;
}

static void *
feed(void *argument)
{
    const struct feeder *feeder = argument;
    struct bench *bench = feeder->bench;
    for (uint64_t turn = 1; turn <= bench->warm_turns + bench->turns; turn++) {
        for (unsigned cpu = feeder->number; cpu < bench->cpus; cpu += FEEDERS)
            for (unsigned i = 0; i < bench->drains; i++)
                player_feed(&bench->drain[i].players[cpu], turn * TURN_NS);
        pthread_barrier_wait(&bench->barrier); // the rings are filled
        pthread_barrier_wait(&bench->barrier); // the rings are empty
    }
    return NULL;
}

// An order of rows and threads does not change it; any other place of any
// sample does.
static void
sum_window(struct drain *drain, const struct opd_window *window)
{
    for (uint32_t row = 0; row < window->rows; row++) {
        const uint32_t sfile = window->row_sfile[row], stack = window->row_stack[row];
        const uint32_t start = window->stack_start[stack];
        uint64_t key =
            opd_hash64(&window->sfile_comm[(size_t)sfile * OPD_COMM_SIZE], OPD_COMM_SIZE) ^
            opd_hash64(&window->frame_address[start],
                       (window->stack_start[stack + 1] - start) * sizeof(uint64_t));
        const uint64_t whose[3] = {(uint32_t)window->sfile_tgid[sfile], window->sfile_mode[sfile],
                                   window->stack_flags[stack]};
        key ^= opd_hash64(whose, sizeof whose);
        drain->sum += key * window->row_hits[row];
        drain->hits += window->row_hits[row];
    }
    drain->counts.no_mapping += window->counts.no_mapping;
    drain->counts.hash_full += window->counts.hash_full;
    drain->counts.idle += window->counts.idle;
}

static void
take(struct drain *drain)
{
    struct opd_window *window;
    const uint64_t began = opd_thread_cpu();
    if (opd_pipeline_take_here(drain->sampler->pipeline, &window) != 0)
        abort(); // no memory
    drain->take_ns += opd_thread_cpu() - began;
    sum_window(drain, window);
    opd_window_free(window);
}

static void
note_slowest(struct bench *bench)
{
    uint64_t slowest = 0;
    for (unsigned i = 0; i < bench->drains; i++)
        slowest = bench->drain[i].turn_ns > slowest ? bench->drain[i].turn_ns : slowest;
    bench->critical_ns += slowest;
}

static void *
drain_main(void *argument)
{
    struct drain *drain = argument;
    struct bench *bench = drain->bench;
    for (uint64_t turn = 1; turn <= bench->warm_turns + bench->turns; turn++) {
        pthread_barrier_wait(&bench->barrier);
        const uint64_t began = opd_thread_cpu();
        opd_sampler_drain(drain->sampler, true);
        drain->turn_ns = opd_thread_cpu() - began;
        drain->cpu_ns += drain->turn_ns;
        if (turn % WINDOW_TURNS == 0)
            take(drain);
        if (turn == bench->warm_turns) {
            drain->cpu_ns = drain->take_ns = 0;
            opd_sampler_stats(drain->sampler, &drain->warm);
        }
        pthread_barrier_wait(&bench->barrier);
        // Nobody begins the next turn before the first thread is here again.
        if (drain->number == 0 && turn > bench->warm_turns)
            note_slowest(bench);
    }
    take(drain);
    return NULL;
}

static void
add_up(const struct bench *bench, struct outcome *outcome)
{
    *outcome = (struct outcome){0};
    for (unsigned i = 0; i < bench->drains; i++) {
        const struct drain *drain = &bench->drain[i];
        outcome->hits += drain->hits;
        outcome->sum += drain->sum;
        outcome->idle += drain->counts.idle;
        outcome->lost += drain->counts.hash_full;
        outcome->unmapped += drain->counts.no_mapping;
        for (unsigned cpu = 0; cpu < bench->cpus; cpu++) {
            outcome->fed += drain->players[cpu].fed_samples;
            outcome->full += drain->players[cpu].full;
        }
    }
}

static void
report(const struct bench *bench, const struct outcome *outcome, size_t memory)
{
    printf("all fed=%llu hits=%llu idle=%llu lost=%llu unmapped=%llu full=%llu sum=%016llx "
           "resident=%zu turns=%llu critical_ns=%llu\n",
           (unsigned long long)outcome->fed, (unsigned long long)outcome->hits,
           (unsigned long long)outcome->idle, (unsigned long long)outcome->lost,
           (unsigned long long)outcome->unmapped, (unsigned long long)outcome->full,
           (unsigned long long)outcome->sum, memory, (unsigned long long)bench->turns,
           (unsigned long long)bench->critical_ns);
    for (unsigned i = 0; i < bench->drains; i++) {
        const struct drain *drain = &bench->drain[i];
        struct opd_sampler_stats now;
        opd_sampler_stats(drain->sampler, &now);
        const struct opd_sampler_cost *cost = &now.cost, *warm = &drain->warm.cost;
        struct opd_order_stats order;
        opd_order_stats(drain->sampler->order, &order);
        printf("thread records=%llu samples=%llu cpu_ns=%llu take_ns=%llu copy_ns=%llu "
               "order_ns=%llu attribute_ns=%llu hash_ns=%llu late=%llu order_peak=%llu "
               "spaces=%llu hash=%llu processes=%u\n",
               (unsigned long long)(now.records - drain->warm.records),
               (unsigned long long)(now.pipeline.hash.hits - drain->warm.pipeline.hash.hits),
               (unsigned long long)drain->cpu_ns, (unsigned long long)drain->take_ns,
               (unsigned long long)(cost->drain_ns - warm->drain_ns),
               (unsigned long long)(cost->order_ns - warm->order_ns),
               (unsigned long long)(cost->attribute_ns - warm->attribute_ns),
               (unsigned long long)(cost->hash_ns - warm->hash_ns), (unsigned long long)order.late,
               (unsigned long long)order.peak_bytes, (unsigned long long)now.pipeline.spaces.bytes,
               (unsigned long long)now.pipeline.hash.bytes, now.pipeline.spaces.processes);
    }
}

static int
run(struct bench *bench, struct outcome *outcome, bool told)
{
    struct feeder feeders[FEEDERS];
    int rc = 0;
    // Once through, so that every process is known before measuring.
    bench->warm_turns = (uint64_t)((double)bench->recording.span / bench->speed) / TURN_NS + 1;
    for (unsigned i = 0; i < bench->drains && rc == 0; i++)
        rc = make_drain(bench, i);
    const size_t before = resident();
    pthread_barrier_init(&bench->barrier, NULL, FEEDERS + bench->drains);
    for (unsigned i = 0; i < FEEDERS && rc == 0; i++) {
        feeders[i] = (struct feeder){bench, i};
        if (pthread_create(&bench->feeders[i], NULL, feed, &feeders[i]) != 0)
            abort(); // the others wait for it
    }
    for (unsigned i = 0; i < bench->drains && rc == 0; i++)
        if (pthread_create(&bench->drain[i].thread, NULL, drain_main, &bench->drain[i]) != 0)
            abort();
    for (unsigned i = 0; i < FEEDERS && rc == 0; i++)
        pthread_join(bench->feeders[i], NULL);
    for (unsigned i = 0; i < bench->drains && rc == 0; i++)
        pthread_join(bench->drain[i].thread, NULL);
    pthread_barrier_destroy(&bench->barrier);
    if (rc == 0) {
        add_up(bench, outcome);
        if (told)
            report(bench, outcome, resident() - before);
    }
    for (unsigned i = 0; i < bench->drains; i++) {
        opd_sampler_destroy(bench->drain[i].sampler);
        free(bench->drain[i].players);
    }
    return rc;
}

// The same samples at the same places, however many threads share them.
static int
selftest(const char *folder)
{
    static struct bench bench;
    struct outcome outcome[4];
    char path[4096];
    const char *why = "cannot be written";
    snprintf(path, sizeof path, "%s/bench_scale.%d.rings", folder, (int)getpid());
    if (!make_recording(path) || recording_read(&bench.recording, path, &why) != 0)
        return fail(path, why);
    unlink(path);
    const struct recording recording = bench.recording;
    for (unsigned drains = 1; drains <= 4; drains++) {
        bench = (struct bench){
            .recording = recording, .cpus = 12, .drains = drains, .speed = 2, .turns = 12};
        const int rc = run(&bench, &outcome[drains - 1], false);
        if (rc != 0)
            return fail("selftest", strerror(-rc));
        const struct outcome *now = &outcome[drains - 1];
        if (now->hits == 0 || now->hits != now->fed || now->lost != 0 || now->full != 0)
            return fail("selftest", "samples were lost");
        if (now->unmapped != 0)
            return fail("selftest", "a sample was in no mapping");
        if (now->sum != outcome[0].sum)
            return fail("selftest", "threads disagree where samples were");
        printf("ok %u threads: %llu samples\n", drains, (unsigned long long)now->hits);
    }
    bench.recording = recording;
    recording_free(&bench.recording);
    return 0;
}

int
main(int argc, char **argv)
{
    static struct bench bench;
    struct outcome outcome;
    if (argc == 3 && strcmp(argv[1], "selftest") == 0)
        return selftest(argv[2]);
    if (argc != 6) {
        fprintf(stderr, "usage: bench_scale FILE CPUS DRAINS HZ SECONDS\n"
                        "       bench_scale selftest FOLDER\n");
        return 2;
    }
    bench.cpus = (unsigned)strtoul(argv[2], NULL, 10);
    bench.drains = (unsigned)strtoul(argv[3], NULL, 10);
    const double hz = strtod(argv[4], NULL);
    const double seconds = strtod(argv[5], NULL);
    if (bench.cpus == 0 || bench.cpus > 4096 || bench.drains == 0 || bench.drains > DRAINS_MAX ||
        !(hz >= 0 && hz <= 20000) || !(seconds > 0 && seconds < 10000))
        return fail("arguments", "expected 1 to 4096 CPUs, 1 to 16 drains, 0 to 20000 Hz");
    const char *why;
    int rc = recording_read(&bench.recording, argv[1], &why);
    if (rc == 0) {
        const double recorded = (double)bench.recording.samples / (double)bench.recording.span *
                                1e9 / bench.recording.source_count;
        bench.speed = hz > 0 ? hz / recorded : 1;
        bench.turns = (uint64_t)(seconds * 1e9 / (double)TURN_NS) + 1;
        rc = run(&bench, &outcome, true);
        why = strerror(-rc);
    }
    recording_free(&bench.recording);
    return rc != 0 ? fail(argv[1], why) : 0;
}
