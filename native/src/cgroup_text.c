// SPDX-License-Identifier: Apache-2.0
// The text of /proc/PID/cgroup: one line ID:CONTROLLERS:PATH a hierarchy.
#include <errno.h>
#include <string.h>

#include "opd/cgroup.h"

// One line, cut into its three parts. The path may hold colons.
struct line {
    const char *controllers, *path;
    size_t controllers_length, path_length;
    bool second; // version 2: hierarchy 0, no controllers
};

static bool
cut(const char *at, size_t length, struct line *line)
{
    const char *first = memchr(at, ':', length);
    if (first == NULL)
        return false;
    size_t left = length - (size_t)(first + 1 - at);
    const char *second = memchr(first + 1, ':', left);
    if (second == NULL || second + 1 == at + length || second[1] != '/')
        return false;
    line->controllers = first + 1;
    line->controllers_length = (size_t)(second - first - 1);
    line->path = second + 1;
    line->path_length = length - (size_t)(line->path - at);
    line->second = first - at == 1 && at[0] == '0' && line->controllers_length == 0;
    // A cgroup that was removed under its last processes.
    static const char removed[] = " (deleted)";
    const size_t tail = sizeof removed - 1;
    if (line->path_length > tail &&
        memcmp(line->path + line->path_length - tail, removed, tail) == 0)
        line->path_length -= tail;
    return true;
}

static bool
has_controller(const struct line *line, const char *name)
{
    const size_t length = strlen(name);
    const char *at = line->controllers, *end = at + line->controllers_length;
    while (at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t size = (size_t)((comma != NULL ? comma : end) - at);
        if (size == length && memcmp(at, name, length) == 0)
            return true;
        at += size + 1;
    }
    return false;
}

// How much a line tells; the highest is taken, the first of equals.
static unsigned
worth(const struct line *line)
{
    unsigned depth = 0;
    for (size_t i = 0; i + 1 < line->path_length; i++)
        depth += line->path[i] == '/';
    if (line->path_length <= 1)
        return 0;
    if (line->second)
        return 1u << 31;
    if (has_controller(line, "name=systemd"))
        return 1u << 30;
    static const char *const telling[] = {"pids", "cpu", "memory"};
    unsigned rank = 0;
    for (unsigned i = 0; i < 3; i++)
        if (has_controller(line, telling[i]))
            rank = i + 1;
    return depth * 4 + rank;
}

int
opd_cgroup_choose(const char *text, size_t length, char *path, size_t size)
{
    unsigned best = 0;
    bool found = false;
    const char *at = text, *end = text + length;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t bytes = (size_t)((newline != NULL ? newline : end) - at);
        struct line line;
        if (cut(at, bytes, &line) && memchr(line.path, '\0', line.path_length) == NULL &&
            line.path_length < size) {
            unsigned value = worth(&line);
            if (!found || value > best) {
                memcpy(path, line.path, line.path_length);
                path[line.path_length] = '\0';
                best = value;
                found = true;
            }
        }
        at += bytes + 1;
    }
    return found ? 0 : -ENOENT;
}
