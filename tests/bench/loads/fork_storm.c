// SPDX-License-Identifier: Apache-2.0
// Description: forks and executes, one child after the other, as fast as it
// can, for ever or COUNT times. With many PROGRAMs it takes them in turn.
// usage: fork_storm COUNT PROGRAM...   (COUNT 0: for ever)
#define _GNU_SOURCE
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

int
main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: fork_storm COUNT PROGRAM...\n");
        return 2;
    }
    long count = atol(argv[1]);
    int programs = argc - 2;
    for (long i = 0; count == 0 || i < count; i++) {
        char *arguments[] = {argv[2 + i % programs], NULL};
        pid_t pid;
        int error = posix_spawn(&pid, arguments[0], NULL, NULL, arguments, environ);
        if (error) {
            fprintf(stderr, "%s: %s\n", arguments[0], strerror(error));
            return 1;
        }
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    return 0;
}
