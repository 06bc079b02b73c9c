// SPDX-License-Identifier: Apache-2.0
// Which cgroup a sample is counted to, without a kernel: a folder of files
// stands for /proc, another for the hierarchy that ids are of.
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "opd/pipeline.h"
#include "t.h"

#define SECOND 1000000000ull

static char root[] = "/tmp/opd-label-XXXXXX";
static uint64_t root_id; // of the hierarchy

static void
put_file(const char *text, const char *format, ...)
{
    char path[PATH_MAX];
    va_list arguments;
    int length = snprintf(path, sizeof path, "%s/", root);
    va_start(arguments, format);
    vsnprintf(path + length, sizeof path - (size_t)length, format, arguments);
    va_end(arguments);
    for (char *slash = path + length; (slash = strchr(slash, '/')) != NULL; *slash++ = '/') {
        *slash = '\0';
        CHECK(mkdir(path, 0755) == 0 || errno == EEXIST);
    }
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

// A process in /proc. `flags` as in its stat: 4 is one that exits.
static void
put_process(uint32_t pid, const char *cgroup, unsigned flags)
{
    char stat[128];
    snprintf(stat, sizeof stat, "%u (a) b) R 1 1 1 0 -1 %u 0 0 0 0 0 0 0 0 20 0 1 0 1\n", pid,
             flags);
    put_file(stat, "%u/stat", pid);
    put_file(cgroup, "%u/cgroup", pid);
}

static void
remove_process(uint32_t pid)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%u/stat", root, pid);
    unlink(path);
    snprintf(path, sizeof path, "%s/%u/cgroup", root, pid);
    unlink(path);
}

// A machine with version 2 alone, or beside version 1.
static void
put_machine(bool mixed)
{
    char text[2 * PATH_MAX];
    struct stat status;
    put_file("x\n", "cgroup/file");
    put_file("#subsys_name hierarchy num enabled\nmemory 4 9 1\nperf_event 0 9 1\n", "cgroups");
    snprintf(text, sizeof text,
             "1 0 0:1 / / rw - tmpfs tmpfs rw\n%s"
             "3 1 0:3 / %s/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw\n",
             mixed ? "2 1 0:2 / /memory rw - cgroup cgroup rw,memory\n" : "", root);
    put_file(text, "self/mountinfo");
    snprintf(text, sizeof text, "%s/cgroup", root);
    CHECK(stat(text, &status) == 0);
    root_id = status.st_ino;
}

static struct opd_pipeline *
create(const char *proc_root)
{
    struct opd_pipeline_options options;
    opd_pipeline_defaults(&options);
    options.callchain = false;
    options.proc_root = proc_root;
    struct opd_pipeline *pipeline = opd_pipeline_create(&options);
    CHECK(pipeline != NULL);
    struct opd_pipeline_event event = {.period = 1};
    CHECK(opd_pipeline_add_event(pipeline, &event) == 0);
    return pipeline;
}

static void
feed_fork(struct opd_pipeline *pipeline, uint32_t pid, uint32_t parent, uint64_t time)
{
    struct opd_record record = {.type = OPD_RECORD_FORK, .time = time};
    record.u.task.pid = record.u.task.tid = pid;
    record.u.task.parent_pid = record.u.task.parent_tid = parent;
    opd_pipeline_feed(pipeline, 0, &record);
}

static void
feed_exec(struct opd_pipeline *pipeline, uint32_t pid, uint64_t time)
{
    struct opd_record record = {.type = OPD_RECORD_COMM, .misc = OPD_MISC_COMM_EXEC, .time = time};
    record.u.comm.pid = record.u.comm.tid = pid;
    record.u.comm.comm = "x";
    opd_pipeline_feed(pipeline, 0, &record);
}

static void
feed_cgroup(struct opd_pipeline *pipeline, uint64_t id, const char *path, uint64_t time)
{
    struct opd_record record = {.type = OPD_RECORD_CGROUP, .time = time};
    record.u.cgroup.id = id;
    record.u.cgroup.path = path;
    record.u.cgroup.path_length = strlen(path);
    opd_pipeline_feed(pipeline, 0, &record);
}

// One sample in a window of its own: is it of this cgroup, known in this way?
static bool
thread_sample_is(struct opd_pipeline *pipeline, uint32_t pid, uint32_t tid, uint64_t id,
                 uint64_t time, const char *path, enum opd_label_how how)
{
    static struct opd_cgroup known[64]; // of the pipeline, by number
    struct opd_cgroup told[64];
    struct opd_window *window;
    struct opd_record record = {
        .type = OPD_RECORD_SAMPLE,
        .misc = OPD_MISC_USER,
        .has = OPD_HAS_IP | OPD_HAS_TID | OPD_HAS_TIME | (id != 0 ? OPD_HAS_CGROUP : 0),
        .pid = pid,
        .tid = tid,
        .time = time,
    };
    record.u.sample.ip = 0x1000;
    record.u.sample.cgroup = id;
    opd_pipeline_feed(pipeline, 0, &record);
    CHECK(opd_pipeline_take_here(pipeline, &window) == 0);
    CHECK(window->rows == 1 && window->sfiles == 1);
    size_t count = opd_pipeline_cgroups(pipeline, told, 64);
    for (size_t i = 0; i < count; i++) {
        CHECK(told[i].uid < 64);
        opd_cgroup_release(&known[told[i].uid]);
        known[told[i].uid] = told[i];
    }
    uint32_t uid = window->sfile_cgroup[0];
    const char *have = uid != OPD_CGROUP_UNKNOWN ? known[uid].path : "";
    bool same = strcmp(have, path) == 0 && window->event_counts[0].labels[how] == 1 &&
                window->event_counts[0].samples == 1;
    if (!same)
        fprintf(stderr, "%s; unknown %d inherited %d read %d exact %d\n", have,
                (int)window->counts.label_unknown, (int)window->counts.label_inherited,
                (int)window->counts.label_read, (int)window->counts.label_exact);
    opd_window_free(window);
    return same;
}

static bool
sample_is(struct opd_pipeline *pipeline, uint32_t pid, uint64_t id, uint64_t time, const char *path,
          enum opd_label_how how)
{
    return thread_sample_is(pipeline, pid, pid, id, time, path, how);
}

static uint64_t
reads_of(struct opd_pipeline *pipeline)
{
    struct opd_pipeline_stats stats;
    opd_pipeline_stats(pipeline, &stats);
    return stats.labels.reads;
}

static void
the_text_is_read_once_and_again_as_the_process_ages(void)
{
    put_machine(true);
    put_process(10, "4:memory:/docker/one\n0::/\n", 0);
    struct opd_pipeline *pipeline = create(root);
    feed_exec(pipeline, 10, 5 * SECOND);
    for (uint64_t i = 1; i < 10; i++)
        CHECK(sample_is(pipeline, 10, root_id, 5 * SECOND + i * SECOND / 10, "/docker/one",
                        OPD_LABEL_READ));
    CHECK(reads_of(pipeline) == 1);
    put_process(10, "4:memory:/docker/two\n0::/\n", 0);
    CHECK(sample_is(pipeline, 10, root_id, 6 * SECOND - 1, "/docker/one", OPD_LABEL_READ));
    CHECK(sample_is(pipeline, 10, root_id, 6 * SECOND, "/docker/two", OPD_LABEL_READ));
    put_process(10, "4:memory:/docker/three\n0::/\n", 0);
    CHECK(sample_is(pipeline, 10, root_id, 15 * SECOND - 1, "/docker/two", OPD_LABEL_READ));
    CHECK(sample_is(pipeline, 10, root_id, 15 * SECOND, "/docker/three", OPD_LABEL_READ));
    CHECK(reads_of(pipeline) == 3);
    // Another program in the same process: moved in between, perhaps.
    put_process(10, "4:memory:/docker/four\n0::/\n", 0);
    feed_exec(pipeline, 10, 16 * SECOND);
    CHECK(sample_is(pipeline, 10, root_id, 16 * SECOND, "/docker/four", OPD_LABEL_READ));
    opd_pipeline_destroy(pipeline);
}

static void
a_child_inherits_and_one_gone_before_it_was_read_too(void)
{
    put_machine(true);
    put_process(10, "4:memory:/docker/one\n0::/\n", 0);
    struct opd_pipeline *pipeline = create(root);
    feed_exec(pipeline, 10, SECOND);
    CHECK(sample_is(pipeline, 10, root_id, SECOND, "/docker/one", OPD_LABEL_READ));
    feed_fork(pipeline, 11, 10, 2 * SECOND); // runs on without an exec
    CHECK(sample_is(pipeline, 11, root_id, 2 * SECOND, "/docker/one", OPD_LABEL_INHERITED));
    feed_fork(pipeline, 12, 11, 2 * SECOND); // execs, and has ended when it is looked at
    feed_exec(pipeline, 12, 2 * SECOND);
    CHECK(sample_is(pipeline, 12, root_id, 2 * SECOND, "/docker/one", OPD_LABEL_INHERITED));
    put_process(11, "4:memory:/moved\n0::/\n", 0); // lives on: read once it is a second old
    CHECK(sample_is(pipeline, 11, root_id, 3 * SECOND, "/moved", OPD_LABEL_READ));
    // The number comes back as a process of a parent that nobody knows.
    feed_fork(pipeline, 12, 20, 4 * SECOND);
    CHECK(sample_is(pipeline, 12, root_id, 4 * SECOND, "", OPD_LABEL_UNKNOWN));
    opd_pipeline_destroy(pipeline);
    remove_process(11);
}

static void
a_parent_that_was_never_sampled_is_read_for_its_child(void)
{
    put_machine(true);
    put_process(30, "9:name=systemd:/system.slice/a.service\n0::/\n", 0);
    struct opd_pipeline *pipeline = create(root);
    feed_exec(pipeline, 30, SECOND);
    feed_fork(pipeline, 31, 30, SECOND + 1);
    feed_exec(pipeline, 31, SECOND + 2);
    feed_fork(pipeline, 32, 31, SECOND + 3);
    feed_exec(pipeline, 32, SECOND + 4);
    CHECK(sample_is(pipeline, 32, root_id, SECOND + 5, "/system.slice/a.service",
                    OPD_LABEL_INHERITED));
    CHECK(sample_is(pipeline, 31, root_id, SECOND + 6, "/system.slice/a.service",
                    OPD_LABEL_INHERITED));
    CHECK(sample_is(pipeline, 30, root_id, SECOND + 7, "/system.slice/a.service", OPD_LABEL_READ));
    opd_pipeline_destroy(pipeline);
    remove_process(30);
}

static void
a_process_on_its_way_out_is_not_believed(void)
{
    put_machine(true);
    put_process(40, "4:memory:/docker/one\n0::/\n", 0);
    struct opd_pipeline *pipeline = create(root);
    feed_exec(pipeline, 40, SECOND);
    CHECK(sample_is(pipeline, 40, root_id, SECOND, "/docker/one", OPD_LABEL_READ));
    feed_exec(pipeline, 40, 2 * SECOND);
    put_process(40, "4:memory:/\n0::/\n", 4);
    CHECK(sample_is(pipeline, 40, root_id, 2 * SECOND, "/docker/one", OPD_LABEL_INHERITED));
    // It lives, and really is in the root now.
    put_process(40, "4:memory:/\n0::/\n", 0);
    CHECK(sample_is(pipeline, 40, root_id, 3 * SECOND, "/", OPD_LABEL_READ));
    // Its first thread has exited, another one is sampled.
    put_process(41, "4:memory:/\n0::/\n", 4);
    put_file("42 (x) R 1 1 1 0 -1 0 0 0\n", "41/task/42/stat");
    put_file("4:memory:/docker/two\n0::/\n", "41/task/42/cgroup");
    CHECK(thread_sample_is(pipeline, 41, 42, root_id, 4 * SECOND, "/docker/two", OPD_LABEL_READ));
    opd_pipeline_destroy(pipeline);
    remove_process(40);
    remove_process(41);
}

static void
an_id_is_exact_from_the_moment_it_is_in_a_sample(void)
{
    put_machine(true);
    put_process(50, "4:memory:/docker/one\n0::/\n", 0);
    struct opd_pipeline *pipeline = create(root);
    feed_cgroup(pipeline, 7001, "/web.service", 1);
    feed_cgroup(pipeline, 7002, "/db.service", 1);
    feed_exec(pipeline, 50, SECOND);
    CHECK(sample_is(pipeline, 50, 7001, SECOND, "/web.service", OPD_LABEL_EXACT));
    CHECK(sample_is(pipeline, 50, 7002, SECOND + 1, "/db.service", OPD_LABEL_EXACT));
    feed_fork(pipeline, 51, 50, SECOND + 2);
    CHECK(sample_is(pipeline, 51, 7002, SECOND + 3, "/db.service", OPD_LABEL_EXACT));
    feed_exec(pipeline, 51, SECOND + 4);
    CHECK(sample_is(pipeline, 51, 7001, SECOND + 5, "/web.service", OPD_LABEL_EXACT));
    // Out of all cgroups of this hierarchy: others tell.
    CHECK(sample_is(pipeline, 50, root_id, SECOND + 6, "/docker/one", OPD_LABEL_READ));
    CHECK(sample_is(pipeline, 50, 7001, SECOND + 7, "/web.service", OPD_LABEL_EXACT));
    CHECK(reads_of(pipeline) == 1);
    // An id that nobody knows: again the others.
    CHECK(sample_is(pipeline, 50, 1ull << 40, SECOND + 8, "/docker/one", OPD_LABEL_READ));
    CHECK(sample_is(pipeline, 0, root_id, SECOND + 9, "/", OPD_LABEL_EXACT));
    opd_pipeline_destroy(pipeline);
    remove_process(50);
}

static void
where_version_2_is_alone_the_root_is_a_cgroup_like_any(void)
{
    put_machine(false);
    struct opd_pipeline *pipeline = create(root);
    CHECK(sample_is(pipeline, 60, root_id, SECOND, "/", OPD_LABEL_EXACT));
    CHECK(reads_of(pipeline) == 0);
    opd_pipeline_destroy(pipeline);
}

static void
ids_are_those_of_the_hierarchy_that_has_perf_event(void)
{
    char text[2 * PATH_MAX];
    put_machine(true);
    put_file("#subsys_name hierarchy num enabled\nperf_event 7 9 1\n", "cgroups");
    snprintf(text, sizeof text,
             "2 1 0:2 / /memory rw - cgroup cgroup rw,memory\n"
             "3 1 0:3 /part %s/1 rw - cgroup cgroup rw,perf_event\n"
             "4 1 0:3 / %s/cgroup rw - cgroup cgroup rw,net_cls,perf_event\n"
             "5 1 0:4 / %s/unified rw - cgroup2 cgroup2 rw\n",
             root, root, root);
    put_file(text, "self/mountinfo");
    put_file("x\n", "1/file");
    struct opd_hierarchy *hierarchy = opd_hierarchy_open(root);
    CHECK(hierarchy != NULL && opd_hierarchy_is_mixed(hierarchy));
    CHECK(opd_hierarchy_root(hierarchy) == root_id);
    opd_hierarchy_close(hierarchy);
    put_file("#subsys_name hierarchy num enabled\nperf_event 0 1 0\n", "cgroups");
    CHECK(opd_hierarchy_open(root) == NULL && errno == ENOENT); // disabled at boot
    // Mounted nowhere: samples are not asked for ids.
    put_file("2 1 0:2 / /memory rw - cgroup cgroup rw,memory\n", "self/mountinfo");
    CHECK(opd_hierarchy_open(root) == NULL && errno == ENOENT);
    struct opd_pipeline *pipeline = create(root);
    put_process(80, "4:memory:/docker/one\n", 0);
    CHECK(!opd_pipeline_knows_ids(pipeline));
    CHECK(sample_is(pipeline, 80, 0, SECOND, "/docker/one", OPD_LABEL_READ));
    opd_pipeline_destroy(pipeline);
    remove_process(80);
}

static void
a_recording_knows_what_its_records_say(void)
{
    struct opd_pipeline *pipeline = create(NULL);
    CHECK(sample_is(pipeline, 70, 0, SECOND, "", OPD_LABEL_UNKNOWN));
    CHECK(sample_is(pipeline, 0, 0, SECOND, "", OPD_LABEL_UNKNOWN));
    CHECK(sample_is(pipeline, 70, 9001, SECOND, "", OPD_LABEL_UNKNOWN));
    feed_cgroup(pipeline, 9002, "/a.service", SECOND);
    CHECK(sample_is(pipeline, 70, 9002, 2 * SECOND, "/a.service", OPD_LABEL_EXACT));
    CHECK(sample_is(pipeline, 70, 9001, 2 * SECOND, "", OPD_LABEL_UNKNOWN));
    feed_cgroup(pipeline, 1, "/", SECOND);
    CHECK(sample_is(pipeline, 71, 1, SECOND, "/", OPD_LABEL_EXACT));
    opd_pipeline_destroy(pipeline);
}

static void
reads_are_bounded_in_time(void)
{
    put_machine(true);
    struct opd_pipeline *pipeline = create(root);
    struct opd_pipeline_stats stats;
    struct opd_window *window;
    for (uint32_t i = 0; i < 5000; i++) { // all of one second, each gone already
        struct opd_record record = {.type = OPD_RECORD_SAMPLE,
                                    .misc = OPD_MISC_USER,
                                    .has = OPD_HAS_IP | OPD_HAS_TID | OPD_HAS_TIME,
                                    .pid = 100000 + i,
                                    .tid = 100000 + i,
                                    .time = SECOND + i};
        feed_exec(pipeline, 100000 + i, SECOND + i);
        opd_pipeline_feed(pipeline, 0, &record);
    }
    opd_pipeline_stats(pipeline, &stats);
    CHECK(stats.labels.reads == 1000 && stats.labels.deferred == 4000);
    CHECK(stats.labels.failed == 1000);
    CHECK(opd_pipeline_take_here(pipeline, &window) == 0);
    CHECK(window->counts.label_unknown == 5000);
    opd_window_free(window);
    opd_pipeline_destroy(pipeline);
}

static void
cgroups_without_end_are_bounded_and_told_in_time(void)
{
    struct opd_pipeline_options options;
    struct opd_pipeline_event event = {.period = 1};
    struct opd_cgroup told[256];
    bool known[4096] = {false};
    opd_pipeline_defaults(&options);
    options.cgroup_limit = 64;
    struct opd_pipeline *pipeline = opd_pipeline_create(&options);
    CHECK(pipeline != NULL && opd_pipeline_add_event(pipeline, &event) == 0);
    size_t gone = 0;
    for (uint32_t round = 1; round <= 200; round++) {
        struct opd_window *window;
        for (uint32_t i = 0; i < 10; i++) { // ten cgroups, each with a process that ends
            uint32_t pid = round * 10 + i;
            char path[32];
            snprintf(path, sizeof path, "/c%u", pid);
            feed_cgroup(pipeline, pid, path, round * 10 * SECOND);
            struct opd_record record = {.type = OPD_RECORD_SAMPLE,
                                        .misc = OPD_MISC_USER,
                                        .has = OPD_HAS_IP | OPD_HAS_TID | OPD_HAS_TIME |
                                               OPD_HAS_CGROUP,
                                        .pid = pid,
                                        .tid = pid,
                                        .time = round * 10 * SECOND};
            record.u.sample.cgroup = pid;
            opd_pipeline_feed(pipeline, 0, &record);
            struct opd_record end = {.type = OPD_RECORD_EXIT, .time = round * 10 * SECOND + 1};
            end.u.task.pid = end.u.task.tid = pid;
            opd_pipeline_feed(pipeline, 0, &end);
        }
        CHECK(opd_pipeline_take_here(pipeline, &window) == 0);
        size_t count = opd_pipeline_cgroups(pipeline, told, 256);
        for (size_t i = 0; i < count; i++) {
            CHECK(told[i].uid < 4096 && known[told[i].uid] == (told[i].path == NULL));
            known[told[i].uid] = told[i].path != NULL;
            gone += told[i].path == NULL;
            opd_cgroup_release(&told[i]);
        }
        CHECK(window->counts.label_exact == 10);
        for (uint32_t i = 0; i < window->sfiles; i++)
            CHECK(known[window->sfile_cgroup[i]]);
        opd_window_free(window);
    }
    struct opd_pipeline_stats stats;
    opd_pipeline_stats(pipeline, &stats);
    CHECK(stats.labels.cgroups.live <= 64 && stats.labels.cgroups.refused == 0);
    CHECK(gone > 1900);
    opd_pipeline_destroy(pipeline);
}

int
main(void)
{
    CHECK(mkdtemp(root) != NULL);
    RUN(the_text_is_read_once_and_again_as_the_process_ages);
    RUN(a_child_inherits_and_one_gone_before_it_was_read_too);
    RUN(a_parent_that_was_never_sampled_is_read_for_its_child);
    RUN(a_process_on_its_way_out_is_not_believed);
    RUN(an_id_is_exact_from_the_moment_it_is_in_a_sample);
    RUN(where_version_2_is_alone_the_root_is_a_cgroup_like_any);
    RUN(ids_are_those_of_the_hierarchy_that_has_perf_event);
    RUN(a_recording_knows_what_its_records_say);
    RUN(reads_are_bounded_in_time);
    RUN(cgroups_without_end_are_bounded_and_told_in_time);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command) == 0 ? 0 : 1;
}
