// SPDX-License-Identifier: Apache-2.0
// The image table: identity, kinds by path, limits, descriptors, recycling.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "opd/image.h"
#include "t.h"

static struct opd_image_key
file_key(const char *path, uint64_t inode)
{
    return (struct opd_image_key){
        .kind = OPD_IMAGE_FILE, .path = path, .symbol = "", .inode = inode, .major = 8};
}

static void
pseudo_images_have_fixed_numbers(void)
{
    static const char *const names[] = {"[unknown]", "[kernel]", "[anon]", "[vdso]", "[vsyscall]"};
    struct opd_images *images = opd_images_create(100);
    struct opd_image taken[8];
    CHECK(opd_images_take(images, taken, 8) == 5);
    for (unsigned i = 0; i < 5; i++) {
        CHECK(taken[i].uid == i && strcmp(taken[i].path, names[i]) == 0 && taken[i].fd == -1);
        opd_image_release(&taken[i]);
    }
    CHECK(opd_images_take(images, taken, 8) == 0);
    opd_images_destroy(images);
}

static void
same_file_is_one_image_and_another_is_not(void)
{
    struct opd_images *images = opd_images_create(100);
    struct opd_image_key one = file_key("/bin/a", 1), two = file_key("/bin/a", 2);
    struct opd_image_key built = file_key("/bin/a", 0);
    built.build_id_size = 20;
    memset(built.build_id, 7, 20);
    bool fresh;
    uint32_t uid = opd_images_put(images, &one, &fresh);
    CHECK(fresh);
    CHECK(opd_images_put(images, &one, &fresh) == uid && !fresh);
    CHECK(opd_images_put(images, &two, &fresh) != uid && fresh);
    uint32_t by_build = opd_images_put(images, &built, &fresh);
    CHECK(fresh);
    built.build_id[19] = 8;
    CHECK(opd_images_put(images, &built, &fresh) != by_build);
    opd_images_destroy(images);
}

static void
paths_are_sorted_into_kinds(void)
{
    static const struct {
        const char *path, *name;
        enum opd_image_kind kind;
        bool deleted;
    } cases[] = {
        {"/usr/bin/x", "/usr/bin/x", OPD_IMAGE_FILE, false},
        {"/tmp/x (deleted)", "/tmp/x", OPD_IMAGE_FILE, true},
        {"/memfd:sealed (deleted)", "/memfd:sealed", OPD_IMAGE_FILE, true},
        {" (deleted)", "[anon]", OPD_IMAGE_ANON, false},
        {"[vdso]", "[vdso]", OPD_IMAGE_VDSO, false},
        {"[vsyscall]", "[vsyscall]", OPD_IMAGE_VSYSCALL, false},
        {"//anon", "[anon]", OPD_IMAGE_ANON, false},
        {"", "[anon]", OPD_IMAGE_ANON, false},
        {"[heap]", "[anon]", OPD_IMAGE_ANON, false},
        {"/dev/zero (deleted)", "[anon]", OPD_IMAGE_ANON, false},
        {"anon_inode:[perf_event]", "[anon]", OPD_IMAGE_ANON, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char buffer[64];
        struct opd_image_key key;
        opd_image_key_of_path(&key, cases[i].path, buffer, sizeof buffer);
        CHECK(key.kind == cases[i].kind);
        CHECK(key.deleted == cases[i].deleted);
        CHECK(strcmp(key.path, cases[i].name) == 0);
    }
}

static void
a_full_table_gives_unknown_and_recycles_by_mark_and_sweep(void)
{
    struct opd_images *images = opd_images_create(300);
    struct opd_images_stats stats;
    struct opd_image taken[400];
    uint32_t uids[295];
    bool fresh;
    for (uint64_t i = 0; i < 295; i++) {
        struct opd_image_key key = file_key("/x", i + 1);
        uids[i] = opd_images_put(images, &key, &fresh);
        CHECK(uids[i] != OPD_UID_UNKNOWN && fresh);
    }
    struct opd_image_key more = file_key("/x", 1000);
    CHECK(opd_images_put(images, &more, &fresh) == OPD_UID_UNKNOWN);
    opd_images_stats(images, &stats);
    CHECK(stats.live == 300 && stats.refused == 1);

    opd_images_mark_begin(images);
    CHECK(opd_images_sweep(images) == 0); // nobody was told of them yet
    size_t count = opd_images_take(images, taken, 400);
    CHECK(count == 300);
    for (size_t i = 0; i < count; i++)
        opd_image_release(&taken[i]);
    opd_images_mark_begin(images);
    opd_images_mark(images, uids[3]);
    CHECK(opd_images_sweep(images) == 294);
    uint32_t reborn = opd_images_put(images, &more, &fresh);
    CHECK(reborn != OPD_UID_UNKNOWN && fresh);
    for (size_t i = 0; i < 295; i++)
        CHECK(reborn != uids[i]); // a number never comes twice
    struct opd_image_key kept = file_key("/x", 4);
    CHECK(opd_images_put(images, &kept, &fresh) == uids[3] && !fresh);
    CHECK(opd_images_take(images, taken, 400) == 1 && taken[0].uid == reborn);
    opd_image_release(&taken[0]);
    opd_images_destroy(images);
}

static void
descriptors_are_handed_on_or_closed(void)
{
    struct opd_images *images = opd_images_create(100);
    struct opd_image taken[8];
    struct opd_image_key one = file_key("/bin/a", 1), two = file_key("/bin/b", 2);
    bool fresh;
    int fd = open("/dev/null", O_RDONLY), other = open("/dev/null", O_RDONLY);
    uint32_t uid = opd_images_put(images, &one, &fresh);
    CHECK(opd_images_give_fd(images, uid, fd) == 0);
    size_t count = opd_images_take(images, taken, 8);
    CHECK(count == 6 && taken[5].fd == fd);
    for (size_t i = 0; i < count; i++)
        opd_image_release(&taken[i]);
    CHECK(fcntl(fd, F_GETFD) == -1 && errno == EBADF);
    CHECK(opd_images_give_fd(images, uid, other) == -EINVAL); // it was taken
    uid = opd_images_put(images, &two, &fresh);
    CHECK(opd_images_give_fd(images, uid, other) == 0);
    opd_images_destroy(images);
    CHECK(fcntl(other, F_GETFD) == -1);
}

int
main(void)
{
    RUN(pseudo_images_have_fixed_numbers);
    RUN(same_file_is_one_image_and_another_is_not);
    RUN(paths_are_sorted_into_kinds);
    RUN(a_full_table_gives_unknown_and_recycles_by_mark_and_sweep);
    RUN(descriptors_are_handed_on_or_closed);
    return 0;
}
