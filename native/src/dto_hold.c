// SPDX-License-Identifier: Apache-2.0
// Files of settings (sysfs) changed for a while. What stood there is put back by
// a process of its own: it waits for the end of a socket, which comes when
// the caller releases it and also when the caller is killed.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dto_private.h"

enum { VALUE_MOST = 64 };

struct setting {
    char *path;
    char before[VALUE_MOST];
};

struct opd_dto_hold {
    uint32_t count;
    struct setting *settings;
    pid_t guard;
    int fd; // to the guard, which acts once this end is closed
};

static int
read_value(const char *path, char *value)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t got = read(fd, value, VALUE_MOST - 1);
    int rc = got < 0 ? -errno : got == VALUE_MOST - 1 ? -EOVERFLOW : 0;
    close(fd);
    if (rc == 0) {
        value[got] = 0;
        value[strcspn(value, "\n")] = 0;
    }
    return rc;
}

static int
write_value(const char *path, const char *value)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_TRUNC);
    if (fd < 0)
        return -errno;
    size_t length = strlen(value);
    ssize_t wrote = write(fd, value, length);
    int rc = wrote < 0 ? -errno : wrote != (ssize_t)length ? -EIO : 0;
    if (close(fd) && rc == 0)
        rc = -errno;
    return rc;
}

static int
put_back(const struct opd_dto_hold *hold)
{
    // A minimum cannot be written above the maximum of the moment, nor the
    // other way round: what is refused the first time goes the second.
    int rc = 0;
    for (int turn = 0; turn < 2; turn++) {
        rc = 0;
        for (uint32_t i = hold->count; i > 0; i--) {
            const struct setting *setting = &hold->settings[i - 1];
            int one = write_value(setting->path, setting->before);
            rc = rc ? rc : one;
        }
        if (rc == 0)
            break;
    }
    return rc;
}

static void
be_the_guard(const struct opd_dto_hold *hold, int fd)
{
    // Its own group and session: what ends the caller's does not end it.
    setsid();
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_PDEATHSIG, 0);
    int none = open("/dev/null", O_RDWR);
    for (int i = 0; none >= 0 && i < 3; i++)
        dup2(none, i);
    // Nobody waits for an end of file that it would hold up.
    if (fd > 3)
        syscall(SYS_close_range, 3u, (unsigned)fd - 1, 0u);
    syscall(SYS_close_range, (unsigned)fd + 1, ~0u, 0u);
    int adj = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (adj >= 0) {
        // Refused without CAP_SYS_RESOURCE: then it is as likely to go as the caller.
        ssize_t wrote = write(adj, "0", 1);
        (void)wrote;
        close(adj);
    }
    char byte = 'r';
    ssize_t got = write(fd, &byte, 1); // out of the caller's group: it may begin
    do
        got = read(fd, &byte, 1);
    while (got > 0 || (got < 0 && errno == EINTR));
    _exit(put_back(hold) ? 1 : 0);
}

static void
forget(struct opd_dto_hold *hold)
{
    for (uint32_t i = 0; hold->settings && i < hold->count; i++)
        free(hold->settings[i].path);
    free(hold->settings);
    free(hold);
}

static int
remember(struct opd_dto_hold *hold, const char *const *paths, uint32_t count, char *reason)
{
    for (uint32_t i = 0; i < count; i++) {
        hold->settings[i].path = strdup(paths[i]);
        hold->count = i + 1;
        if (hold->settings[i].path == NULL)
            return dto_fail(reason, ENOMEM, "%u settings", count);
        int rc = read_value(paths[i], hold->settings[i].before);
        if (rc)
            return dto_fail(reason, -rc, "reading %s", paths[i]);
    }
    return 0;
}

static int
start_guard(struct opd_dto_hold *hold, char *reason)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return dto_fail(reason, errno, "a socket to the guard of settings");
    hold->guard = fork();
    if (hold->guard < 0) {
        int error = errno;
        close(ends[0]);
        close(ends[1]);
        return dto_fail(reason, error, "making the guard of settings");
    }
    if (hold->guard == 0) {
        close(ends[1]);
        be_the_guard(hold, ends[0]);
    }
    close(ends[0]);
    hold->fd = ends[1];
    char byte;
    ssize_t got;
    do
        got = read(hold->fd, &byte, 1);
    while (got < 0 && errno == EINTR);
    if (got == 1)
        return 0;
    close(hold->fd);
    while (waitpid(hold->guard, NULL, 0) < 0 && errno == EINTR)
        ;
    return dto_fail(reason, EIO, "the guard of settings ended at once");
}

int
opd_dto_hold(const char *const *paths, const char *const *values, uint32_t count,
             struct opd_dto_hold **out, char *reason)
{
    struct opd_dto_hold *hold = calloc(1, sizeof(*hold));
    if (hold == NULL)
        return dto_fail(reason, ENOMEM, "%u settings", count);
    hold->settings = calloc(count + 1, sizeof(*hold->settings));
    int rc = hold->settings ? remember(hold, paths, count, reason)
                            : dto_fail(reason, ENOMEM, "%u settings", count);
    rc = rc ? rc : start_guard(hold, reason);
    if (rc) {
        forget(hold);
        return rc;
    }
    uint32_t bad = 0;
    for (int turn = 0; turn < 2; turn++) {
        rc = 0;
        for (uint32_t i = 0; i < count; i++) {
            int one = write_value(paths[i], values[i]);
            if (one && rc == 0) {
                rc = one;
                bad = i;
            }
        }
        if (rc == 0)
            break;
    }
    if (rc) {
        dto_fail(reason, -rc, "writing %s to %s", values[bad], paths[bad]);
        opd_dto_release(hold);
        return rc;
    }
    *out = hold;
    return 0;
}

void
opd_dto_release(struct opd_dto_hold *hold)
{
    if (hold == NULL)
        return;
    close(hold->fd);
    int status = 0;
    pid_t found;
    do
        found = waitpid(hold->guard, &status, 0);
    while (found < 0 && errno == EINTR);
    // It was killed, or could not: by this process then.
    if (found != hold->guard || status)
        put_back(hold);
    forget(hold);
}
