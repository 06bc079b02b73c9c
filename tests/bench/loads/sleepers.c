// SPDX-License-Identifier: Apache-2.0
// Description: forks PROCESSES children that sleep for ever and die with it;
// writes a line when all of them are there. A few of them wake up now and then.
// usage: sleepers PROCESSES
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int
main(int argc, char **argv)
{
    long processes = argc > 1 ? atol(argv[1]) : 1000;
    for (long i = 0; i < processes; i++) {
        pid_t pid = fork();
        if (pid < 0) {
            perror("fork");
            return 1;
        }
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            char name[16];
            snprintf(name, sizeof name, "sleeper-%05d", (int)(i % 100000));
            prctl(PR_SET_NAME, name);
            for (;;)
                sleep(i % 100 == 0 ? 1 : 3600);
        }
    }
    puts("ready");
    fflush(stdout);
    pause();
    return 0;
}
