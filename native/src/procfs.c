// SPDX-License-Identifier: Apache-2.0
#include "opd/procfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "opd/cgroup.h"

#define PROCESSES_BETWEEN_PAUSES 32
#define MAPS_BUFFER 65536

uint64_t
opd_clock_monotonic(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool
same_file(int fd, const struct opd_image_key *key)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return false;
    // The device of a mapping can differ from stat's (overlayfs, btrfs): the
    // inode decides, and the reader of the file checks the build-id.
    return key->inode == 0 || status.st_ino == key->inode;
}

int
opd_procfs_open_image(const char *proc_root, uint32_t pid, uint64_t start, uint64_t end,
                      const struct opd_image_key *key)
{
    const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    char path[4096 + 64];
    int error = ENOENT;

    for (int attempt = 0; attempt < 3; attempt++) {
        int length;
        if (attempt == 0)
            length = snprintf(path, sizeof path, "%s/%u/map_files/%" PRIx64 "-%" PRIx64, proc_root,
                              pid, start, end);
        else if (key->deleted)
            break;
        else if (attempt == 1)
            length = snprintf(path, sizeof path, "%s/%u/root%s", proc_root, pid, key->path);
        else
            length = snprintf(path, sizeof path, "%s", key->path);
        if (length < 0 || (size_t)length >= sizeof path)
            return -ENAMETOOLONG;
        int fd = open(path, flags);
        if (fd < 0) {
            error = errno;
            continue;
        }
        if (attempt == 0 || same_file(fd, key))
            return fd;
        close(fd);
        error = ESTALE;
    }
    return -error;
}

// Reads a small /proc file whole; its length, or -errno.
static ssize_t
read_small(const char *path, char *buffer, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t got = read(fd, buffer, size - 1);
    int error = errno;
    close(fd);
    if (got < 0)
        return -error;
    buffer[got] = '\0';
    return got;
}

// One line of maps, NUL-terminated: only executable mappings matter. `task` is
// the thread through which they are read.
static void
snapshot_line(const char *proc_root, uint32_t pid, uint32_t task, char *line,
              struct opd_spaces *spaces, struct opd_images *images)
{
    char *at = line;
    struct opd_mapping mapping = {0};
    mapping.start = strtoull(at, &at, 16);
    if (*at++ != '-')
        return;
    mapping.end = strtoull(at, &at, 16);
    if (*at++ != ' ' || strnlen(at, 5) < 5 || at[2] != 'x')
        return;
    at += 5;
    mapping.offset = strtoull(at, &at, 16);
    uint32_t major = (uint32_t)strtoul(at, &at, 16);
    if (*at++ != ':')
        return;
    uint32_t minor = (uint32_t)strtoul(at, &at, 16);
    uint64_t inode = strtoull(at, &at, 10);
    while (*at == ' ')
        at++;

    char shortened[4096];
    struct opd_image_key key;
    opd_image_key_of_path(&key, at, shortened, sizeof shortened);
    if (key.kind == OPD_IMAGE_FILE) {
        key.major = major;
        key.minor = minor;
        key.inode = inode;
    }
    bool fresh;
    mapping.image = opd_images_put(images, &key, &fresh);
    if (fresh && key.kind == OPD_IMAGE_FILE) {
        int fd = opd_procfs_open_image(proc_root, task, mapping.start, mapping.end, &key);
        if (fd >= 0 && opd_images_give_fd(images, mapping.image, fd) != 0)
            close(fd);
    }
    if (key.kind == OPD_IMAGE_VDSO)
        mapping.offset = 0;
    opd_spaces_snapshot_map(spaces, pid, &mapping);
}

// How many lines there were, or -errno.
static int
snapshot_maps(const char *proc_root, uint32_t pid, uint32_t task, struct opd_spaces *spaces,
              struct opd_images *images)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%u/maps", proc_root, task);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    char *buffer = malloc(MAPS_BUFFER);
    if (buffer == NULL) {
        close(fd);
        return -ENOMEM;
    }
    size_t have = 0;
    int rc = 0, lines = 0;
    for (;;) {
        ssize_t got = read(fd, buffer + have, MAPS_BUFFER - 1 - have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            rc = -errno;
        if (got <= 0)
            break;
        have += (size_t)got;
        char *line = buffer, *end;
        while ((end = memchr(line, '\n', have - (size_t)(line - buffer))) != NULL) {
            *end = '\0';
            snapshot_line(proc_root, pid, task, line, spaces, images);
            line = end + 1;
            lines++;
        }
        have -= (size_t)(line - buffer);
        memmove(buffer, line, have);
        if (have == MAPS_BUFFER - 1)
            have = 0; // no line is this long; drop it rather than stop
    }
    free(buffer);
    close(fd);
    return rc < 0 ? rc : lines;
}

// Names the other threads; the number of one of them, 0 when there is none.
static uint32_t
snapshot_threads(const char *proc_root, uint32_t pid, struct opd_spaces *spaces)
{
    char path[512], comm[64];
    snprintf(path, sizeof path, "%s/%u/task", proc_root, pid);
    DIR *folder = opendir(path);
    uint32_t other = 0;
    if (folder == NULL)
        return 0;
    struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        uint32_t tid = (uint32_t)strtoul(entry->d_name, NULL, 10);
        if (tid == 0 || tid == pid)
            continue;
        snprintf(path, sizeof path, "%s/%u/task/%u/comm", proc_root, pid, tid);
        ssize_t got = read_small(path, comm, sizeof comm);
        if (got <= 0)
            continue;
        if (comm[got - 1] == '\n')
            comm[got - 1] = '\0';
        opd_spaces_snapshot_thread(spaces, pid, tid, comm);
        other = tid;
    }
    closedir(folder);
    return other;
}

int
opd_procfs_snapshot(const char *proc_root, uint32_t pid, struct opd_spaces *spaces,
                    struct opd_images *images)
{
    char path[512], stat[1024];
    uint64_t time = opd_clock_monotonic();
    snprintf(path, sizeof path, "%s/%u/stat", proc_root, pid);
    ssize_t got = read_small(path, stat, sizeof stat);
    if (got < 0)
        return (int)got;
    char *comm = strchr(stat, '('), *comm_end = strrchr(stat, ')');
    if (comm == NULL || comm_end == NULL || comm_end < comm)
        return -ENOENT;
    *comm_end = '\0';
    // Fields after the name: state is the 3rd of the file, num_threads the 20th.
    char *field = comm_end + 1;
    for (int skip = 0; skip < 17 && field != NULL; skip++)
        field = strchr(field + 1, ' ');
    unsigned long threads = field ? strtoul(field, NULL, 10) : 1;

    opd_spaces_snapshot_begin(spaces, pid, time);
    opd_spaces_snapshot_thread(spaces, pid, pid, comm + 1);
    int lines = snapshot_maps(proc_root, pid, pid, spaces, images);
    uint32_t other = threads > 1 ? snapshot_threads(proc_root, pid, spaces) : 0;
    // A main thread that has exited has no maps; the others still share them.
    if (lines == 0 && other != 0)
        lines = snapshot_maps(proc_root, pid, other, spaces, images);
    return lines < 0 ? lines : 0;
}

// Whether a task has begun to exit, from its stat's flags.
static bool
is_exiting(const char *folder)
{
    enum { FLAGS_AFTER_NAME = 7, EXITING = 4 }; // PF_EXITING of the kernel
    char path[512], stat[1024];
    snprintf(path, sizeof path, "%s/stat", folder);
    if (read_small(path, stat, sizeof stat) <= 0)
        return true;
    const char *field = strrchr(stat, ')');
    for (int i = 0; i < FLAGS_AFTER_NAME && field != NULL; i++)
        field = strchr(field + 1, ' ');
    return field == NULL || (strtoul(field, NULL, 10) & EXITING) != 0;
}

int
opd_procfs_cgroup(const char *proc_root, uint32_t pid, uint32_t tid, char *path, size_t size)
{
    char folder[400], file[512], text[16384];
    for (int attempt = 0; attempt < (pid == tid ? 1 : 2); attempt++) {
        if (attempt == 0)
            snprintf(folder, sizeof folder, "%s/%u", proc_root, pid);
        else
            snprintf(folder, sizeof folder, "%s/%u/task/%u", proc_root, pid, tid);
        snprintf(file, sizeof file, "%s/cgroup", folder);
        ssize_t got = read_small(file, text, sizeof text);
        if (got < 0)
            return got == -ENOENT ? -ESRCH : (int)got;
        int rc = opd_cgroup_choose(text, (size_t)got, path, size);
        // An exiting task has left the cgroups of version 1 already.
        if (rc != 0 || strcmp(path, "/") != 0 || !is_exiting(folder))
            return rc;
    }
    return -ESRCH;
}

int
opd_procfs_snapshot_all(const char *proc_root, struct opd_spaces *spaces, struct opd_images *images,
                        void (*pause)(void *context), void *context)
{
    DIR *folder = opendir(proc_root);
    if (folder == NULL)
        return -errno;
    int count = 0;
    struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        char *end;
        uint32_t pid = (uint32_t)strtoul(entry->d_name, &end, 10);
        if (pid == 0 || *end != '\0')
            continue;
        if (opd_procfs_snapshot(proc_root, pid, spaces, images) == 0)
            count++;
        if (pause != NULL && count % PROCESSES_BETWEEN_PAUSES == 0)
            pause(context);
    }
    closedir(folder);
    return count;
}
