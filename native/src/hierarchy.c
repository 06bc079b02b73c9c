// SPDX-License-Identifier: Apache-2.0
// Where the kernel's cgroup ids are at home, and the path of one.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "opd/cgroup.h"

#define HANDLE_OF_KERNFS 0xfe // FILEID_KERNFS of linux/exportfs.h
#define WALK_EVERY_NS 1000000000u
#define WALK_MOST 16384u
#define WALK_DEPTH 32u

struct opd_hierarchy {
    int fd; // of its root
    uint64_t root_id;
    size_t mount_length; // of the path by which the mount is reached
    bool mixed, walk_only;
    uint64_t last_walk;
};

// "\040" and the like in a field of mountinfo, in place.
static void
unescape(char *text)
{
    char *out = text;
    for (const char *at = text; *at != '\0'; out++) {
        if (at[0] == '\\' && at[1] >= '0' && at[1] <= '3' && at[2] >= '0' && at[2] <= '7' &&
            at[3] >= '0' && at[3] <= '7') {
            *out = (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + (at[3] - '0'));
            at += 4;
        } else {
            *out = *at++;
        }
    }
    *out = '\0';
}

static bool
has_option(char *options, const char *name)
{
    char *rest = options;
    for (char *option; (option = strsep(&rest, ",\n")) != NULL;)
        if (strcmp(option, name) == 0)
            return true;
    return false;
}

// Where perf_event is bound.
enum bound { TO_VERSION_2, TO_VERSION_1, NOWHERE };

static enum bound
where_bound(const char *proc_root)
{
    char path[512], line[256], name[64];
    snprintf(path, sizeof path, "%s/cgroups", proc_root);
    FILE *file = fopen(path, "re");
    enum bound bound = TO_VERSION_2;
    unsigned hierarchy, count, enabled;
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "%63s %u %u %u", name, &hierarchy, &count, &enabled) == 4 &&
            strcmp(name, "perf_event") == 0) // disabled, all processes have the root's id
            bound = enabled == 0 ? NOWHERE : hierarchy != 0 ? TO_VERSION_1 : TO_VERSION_2;
    if (file != NULL)
        fclose(file);
    return bound;
}

// The mount point of the hierarchy, "" when there is none; and whether there
// are mounts of others.
static void
find_mount(const char *proc_root, char *found, size_t size, bool *mixed)
{
    char path[512];
    enum bound bound = where_bound(proc_root);
    bool first = bound == TO_VERSION_1, whole = false;
    size_t room = 0;
    char *line = NULL;
    found[0] = '\0';
    if (bound == NOWHERE)
        return;
    snprintf(path, sizeof path, "%s/self/mountinfo", proc_root);
    FILE *file = fopen(path, "re");
    while (file != NULL && getline(&line, &room, file) > 0) {
        // ID parent major:minor root mount-point options [optional...] - type source options
        char *rest = strstr(line, " - "), *field = line, *root = NULL, *mount = NULL;
        if (rest == NULL)
            continue;
        *rest = '\0';
        rest += 3;
        for (int i = 0; i < 5 && field != NULL; i++) {
            char *word = strsep(&field, " ");
            root = i == 3 ? word : root;
            mount = i == 4 ? word : mount;
        }
        char *type = strsep(&rest, " "), *source = strsep(&rest, " ");
        if (mount == NULL || source == NULL || rest == NULL)
            continue;
        bool second_version = strcmp(type, "cgroup2") == 0;
        if (!second_version && strcmp(type, "cgroup") != 0)
            continue;
        if (second_version ? first : !(first && has_option(rest, "perf_event"))) {
            *mixed = true;
            continue;
        }
        unescape(mount);
        // A mount of the whole hierarchy rather than of a part of it.
        if (strlen(mount) < size && (found[0] == '\0' || (!whole && strcmp(root, "/") == 0))) {
            snprintf(found, size, "%s", mount);
            whole = strcmp(root, "/") == 0;
        }
    }
    if (file != NULL)
        fclose(file);
    free(line);
}

struct opd_hierarchy *
opd_hierarchy_open(const char *proc_root)
{
    char mount[PATH_MAX], real[PATH_MAX], link[64];
    struct stat status;
    bool mixed = false;
    find_mount(proc_root, mount, sizeof mount, &mixed);
    if (mount[0] == '\0') {
        errno = ENOENT;
        return NULL;
    }
    int fd = open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, real, sizeof real);
    struct opd_hierarchy *hierarchy = calloc(1, sizeof *hierarchy);
    if (hierarchy == NULL || fstat(fd, &status) != 0 || length <= 0) {
        int error = hierarchy == NULL ? ENOMEM : errno;
        free(hierarchy);
        close(fd);
        errno = error;
        return NULL;
    }
    hierarchy->fd = fd;
    hierarchy->root_id = status.st_ino;
    hierarchy->mount_length = (size_t)length;
    hierarchy->mixed = mixed;
    return hierarchy;
}

void
opd_hierarchy_close(struct opd_hierarchy *hierarchy)
{
    if (hierarchy == NULL)
        return;
    close(hierarchy->fd);
    free(hierarchy);
}

uint64_t
opd_hierarchy_root(const struct opd_hierarchy *hierarchy)
{
    return hierarchy->root_id;
}

bool
opd_hierarchy_is_mixed(const struct opd_hierarchy *hierarchy)
{
    return hierarchy->mixed;
}

void
opd_hierarchy_walk_only(struct opd_hierarchy *hierarchy)
{
    hierarchy->walk_only = true;
}

static int
by_handle(const struct opd_hierarchy *hierarchy, uint64_t id, char *path, size_t size)
{
    union {
        struct file_handle handle;
        uint64_t room[4];
    } of = {.handle = {.handle_bytes = sizeof id, .handle_type = HANDLE_OF_KERNFS}};
    memcpy(of.handle.f_handle, &id, sizeof id);
    int fd = open_by_handle_at(hierarchy->fd, &of.handle, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    char link[64], whole[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, whole, sizeof whole - 1);
    int error = errno;
    close(fd);
    if (length < 0)
        return -error;
    whole[length] = '\0';
    if ((size_t)length < hierarchy->mount_length)
        return -ESTALE;
    const char *inside = whole + hierarchy->mount_length;
    static const char removed[] = " (deleted)";
    size_t bytes = strlen(inside), tail = sizeof removed - 1;
    if (bytes > tail && strcmp(inside + bytes - tail, removed) == 0)
        bytes -= tail;
    if (bytes >= size)
        return -ENAMETOOLONG;
    memcpy(path, bytes > 0 ? inside : "/", bytes > 0 ? bytes : 1);
    path[bytes > 0 ? bytes : 1] = '\0';
    return 0;
}

// Looks for the folder of inode `id` under `fd`, whose path stands in `path`.
// The numbers in a folder's entries are those of the cgroups.
static int
walk(int fd, uint64_t id, char *path, size_t length, size_t size, unsigned depth, unsigned *left)
{
    DIR *folder = fdopendir(fd);
    if (folder == NULL) {
        close(fd);
        return -errno;
    }
    int rc = -ESTALE;
    struct dirent *entry;
    while (rc == -ESTALE && *left > 0 && (entry = readdir(folder)) != NULL) {
        size_t bytes = strlen(entry->d_name);
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.' || length + 1 + bytes >= size)
            continue;
        --*left;
        path[length] = '/';
        memcpy(path + length + 1, entry->d_name, bytes + 1);
        if (entry->d_ino == id) {
            rc = 0;
            break;
        }
        if (depth == WALK_DEPTH)
            continue;
        int inner =
            openat(dirfd(folder), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (inner >= 0)
            rc = walk(inner, id, path, length + 1 + bytes, size, depth + 1, left);
    }
    closedir(folder);
    return rc;
}

int
opd_hierarchy_path(struct opd_hierarchy *hierarchy, uint64_t id, uint64_t now, char *path,
                   size_t size)
{
    if (!hierarchy->walk_only) {
        int rc = by_handle(hierarchy, id, path, size);
        if (rc != -EPERM && rc != -EOPNOTSUPP && rc != -ENOSYS)
            return rc;
        hierarchy->walk_only = true; // not permitted, and that does not change
    }
    if (id == hierarchy->root_id) {
        snprintf(path, size, "/");
        return 0;
    }
    if (hierarchy->last_walk != 0 && now - hierarchy->last_walk < WALK_EVERY_NS)
        return -EAGAIN;
    hierarchy->last_walk = now;
    unsigned left = WALK_MOST;
    int fd = openat(hierarchy->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : walk(fd, id, path, 0, size, 0, &left);
}
