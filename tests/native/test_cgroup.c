// SPDX-License-Identifier: Apache-2.0
// Cgroups by number, the text of /proc/PID/cgroup, and ids that the kernel
// knows. What needs real cgroups is skipped where none can be made.
#include "opd/cgroup.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "t.h"

static bool
chosen(const char *text, const char *expected)
{
    char path[PATH_MAX];
    int rc = opd_cgroup_choose(text, strlen(text), path, sizeof path);
    return expected == NULL ? rc == -ENOENT : rc == 0 && strcmp(path, expected) == 0;
}

static void
the_most_telling_path_is_chosen(void)
{
    CHECK(chosen("0::/system.slice/a.service\n", "/system.slice/a.service"));
    CHECK(chosen("0::/\n", "/"));
    CHECK(chosen("9:name=systemd:/b.service\n1:cpu:/x/y/z\n0::/a.service\n", "/a.service"));
    CHECK(chosen("9:name=systemd:/b.service\n1:cpu:/x/y/z\n0::/\n", "/b.service"));
    CHECK(chosen("9:name=systemd:/\n8:pids:/docker/1\n4:memory:/docker/2\n0::/\n", "/docker/2"));
    CHECK(chosen("9:freezer:/a/b\n4:memory:/a\n0::/\n", "/a/b"));
    CHECK(chosen("3:cpuacct:/u\n2:cpu,cpuacct:/v\n", "/v"));
    CHECK(chosen("9:name=systemd:/\n4:memory:/\n0::/\n", "/"));
    CHECK(chosen("0::/gone.scope (deleted)\n", "/gone.scope"));
    CHECK(chosen("1:name=elogind:/c1\n", "/c1"));
    CHECK(chosen("0::/with:colons\n", "/with:colons"));
    CHECK(chosen("0::/no newline", "/no newline"));
}

static void
what_is_no_such_text_gives_nothing(void)
{
    char path[8];
    CHECK(chosen("", NULL) && chosen("\n\n", NULL) && chosen("0:", NULL) && chosen("0::", NULL));
    CHECK(chosen("0::relative\n", NULL) && chosen(":::", NULL));
    CHECK(opd_cgroup_choose("0::/1234567\n", 12, path, sizeof path) == -ENOENT);
    CHECK(opd_cgroup_choose("0::/123456\n", 11, path, sizeof path) == 0);
    CHECK(opd_cgroup_choose("0::/a\0b\n", 8, path, sizeof path) == -ENOENT);
}

static void
a_path_has_one_number_and_an_id_leads_to_it(void)
{
    struct opd_cgroups *cgroups = opd_cgroups_create(100);
    struct opd_cgroup told[10];
    uint32_t a = opd_cgroups_put(cgroups, "/a");
    CHECK(opd_cgroups_put(cgroups, "/") == OPD_CGROUP_ROOT);
    CHECK(a > OPD_CGROUP_ROOT && opd_cgroups_put(cgroups, "/a") == a);
    opd_cgroups_set_id(cgroups, 77, "/a");
    opd_cgroups_set_id(cgroups, 78, "/b");
    CHECK(opd_cgroups_find(cgroups, 77) == a && opd_cgroups_find(cgroups, 1) == 0);
    CHECK(opd_cgroups_find(cgroups, 0) == 0);
    // The root and /a; /b has not been used.
    CHECK(opd_cgroups_take(cgroups, told, 10) == 2);
    CHECK(strcmp(told[0].path, "/") == 0 && told[1].uid == a && strcmp(told[1].path, "/a") == 0);
    opd_cgroup_release(&told[0]);
    opd_cgroup_release(&told[1]);
    uint32_t b = opd_cgroups_find(cgroups, 78);
    CHECK(b > a && opd_cgroups_take(cgroups, told, 10) == 1 && told[0].uid == b);
    opd_cgroup_release(&told[0]);
    // Removed and made again: a new id for the path, then the id elsewhere.
    opd_cgroups_set_id(cgroups, 79, "/b");
    CHECK(opd_cgroups_find(cgroups, 79) == b && opd_cgroups_find(cgroups, 78) == 0);
    opd_cgroups_set_id(cgroups, 79, "/c");
    CHECK(opd_cgroups_find(cgroups, 79) > b);
    // What the kernel could not tell.
    CHECK(opd_cgroups_put(cgroups, "//toolong") == 0 && opd_cgroups_put(cgroups, "") == 0);
    opd_cgroups_destroy(cgroups);
}

static void
it_is_bounded_and_forgets_what_nobody_uses(void)
{
    enum { LIMIT = 64 };
    struct opd_cgroups *cgroups = opd_cgroups_create(LIMIT);
    struct opd_cgroup told[LIMIT];
    struct opd_cgroups_stats stats;
    char path[32];
    uint32_t last = 0, highest = OPD_CGROUP_ROOT;
    for (int i = 0; i < 1000; i++) {
        snprintf(path, sizeof path, "/c%d", i);
        uint32_t uid = opd_cgroups_put(cgroups, path);
        CHECK(uid == 0 || uid > highest); // never reused
        highest = uid != 0 ? uid : highest;
        last = uid != 0 ? uid : last;
    }
    opd_cgroups_stats(cgroups, &stats);
    CHECK(stats.live == LIMIT && stats.refused == 1000 - (LIMIT - 1) && last != 0);
    CHECK(opd_cgroups_is_full(cgroups));
    // What was not told yet stays.
    opd_cgroups_sweep(cgroups, &(uint32_t){0}, 0);
    size_t count = opd_cgroups_take(cgroups, told, LIMIT);
    CHECK(count == LIMIT);
    for (size_t i = 0; i < count; i++)
        opd_cgroup_release(&told[i]);
    uint32_t used[] = {last, 5, last};
    opd_cgroups_sweep(cgroups, used, 3);
    opd_cgroups_stats(cgroups, &stats);
    CHECK(stats.live == 3 && stats.swept == LIMIT - 3);
    // The window that ends now may mention them; the one after does not.
    CHECK(opd_cgroups_take(cgroups, told, LIMIT) == 0);
    opd_cgroups_turn(cgroups);
    count = opd_cgroups_take(cgroups, told, 10);
    CHECK(count == 10 && told[0].path == NULL && told[0].uid != 5 && told[0].uid != last);
    CHECK(opd_cgroups_take(cgroups, told, LIMIT) == LIMIT - 3 - 10);
    CHECK(opd_cgroups_put(cgroups, "/c3") == 5 && opd_cgroups_put(cgroups, "/c900") > highest);
    opd_cgroups_sweep(cgroups, used, 1); // destroyed with some on their way
    opd_cgroups_turn(cgroups);
    opd_cgroups_sweep(cgroups, used, 0);
    opd_cgroups_destroy(cgroups);
}

static atomic_bool finished;

static void *
take_all(void *argument)
{
    struct opd_cgroups *cgroups = argument;
    struct opd_cgroup told[16];
    size_t seen = 0;
    bool last = false;
    do {
        last = atomic_load(&finished);
        size_t count;
        while ((count = opd_cgroups_take(cgroups, told, 16)) > 0)
            for (size_t i = 0; i < count; i++) {
                seen += told[i].path != NULL;
                opd_cgroup_release(&told[i]);
            }
    } while (!last);
    return (void *)seen;
}

static void
one_thread_fills_while_another_takes(void)
{
    struct opd_cgroups *cgroups = opd_cgroups_create(256);
    pthread_t reader;
    char path[32];
    size_t given = 1; // the root
    CHECK(pthread_create(&reader, NULL, take_all, cgroups) == 0);
    for (int i = 0; i < 20000; i++) {
        snprintf(path, sizeof path, "/c%d", i);
        given += opd_cgroups_put(cgroups, path) != 0;
        opd_cgroups_turn(cgroups);
        if (opd_cgroups_is_full(cgroups))
            opd_cgroups_sweep(cgroups, &(uint32_t){0}, 0);
    }
    void *seen;
    atomic_store(&finished, true);
    CHECK(pthread_join(reader, &seen) == 0 && (size_t)seen == given);
    opd_cgroups_destroy(cgroups);
}

static const char *
make_cgroup(char *path, size_t size)
{
    static const char *const roots[] = {"/sys/fs/cgroup/unified", "/sys/fs/cgroup"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, size, "%s/opd-test-%d", roots[i], (int)getpid());
        if (mkdir(path, 0755) == 0)
            return roots[i];
        CHECK(errno != EEXIST);
    }
    return NULL;
}

static void
an_id_is_found_by_handle_and_by_walking(void)
{
    char path[PATH_MAX], inner[PATH_MAX + 16], found[PATH_MAX];
    struct stat status;
    struct opd_hierarchy *hierarchy = opd_hierarchy_open("/proc");
    const char *root = hierarchy != NULL ? make_cgroup(path, sizeof path) : NULL;
    if (root == NULL)
        SKIP("no cgroup can be made here");
    snprintf(inner, sizeof inner, "%s/a.service", path);
    CHECK(mkdir(inner, 0755) == 0 && stat(inner, &status) == 0);
    uint64_t id = status.st_ino;
    CHECK(opd_hierarchy_path(hierarchy, id, 1, found, sizeof found) == 0);
    CHECK(strcmp(found, inner + strlen(root)) == 0);
    CHECK(opd_hierarchy_path(hierarchy, opd_hierarchy_root(hierarchy), 1, found, sizeof found) ==
          0);
    CHECK(strcmp(found, "/") == 0);
    CHECK(opd_hierarchy_path(hierarchy, id + 1000000, 1, found, sizeof found) == -ESTALE);

    opd_hierarchy_walk_only(hierarchy);
    CHECK(opd_hierarchy_path(hierarchy, id, 1, found, sizeof found) == 0);
    CHECK(strcmp(found, inner + strlen(root)) == 0);
    // Not again at once.
    CHECK(opd_hierarchy_path(hierarchy, id, 2, found, sizeof found) == -EAGAIN);
    CHECK(rmdir(inner) == 0 && rmdir(path) == 0);
    CHECK(opd_hierarchy_path(hierarchy, id, 2000000000, found, sizeof found) == -ESTALE);
    opd_hierarchy_close(hierarchy);
}

int
main(void)
{
    RUN(the_most_telling_path_is_chosen);
    RUN(what_is_no_such_text_gives_nothing);
    RUN(a_path_has_one_number_and_an_id_leads_to_it);
    RUN(it_is_bounded_and_forgets_what_nobody_uses);
    RUN(one_thread_fills_while_another_takes);
    RUN(an_id_is_found_by_handle_and_by_walking);
    return 0;
}
