// SPDX-License-Identifier: Apache-2.0
// Description: THREADS threads that wake up ten times a second for nothing.
// Writes a line when all of them run.
// usage: idle_threads THREADS
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *
rest(void *argument)
{
    char name[16];
    snprintf(name, sizeof name, "idle-%ld", (long)argument);
    pthread_setname_np(pthread_self(), name);
    for (;;)
        usleep(100000);
    return NULL;
}

int
main(int argc, char **argv)
{
    long threads = argc > 1 ? atol(argv[1]) : 500;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 32768);
    for (long i = 0; i < threads; i++) {
        pthread_t thread;
        int error = pthread_create(&thread, &attributes, rest, (void *)i);
        if (error) {
            fprintf(stderr, "thread %ld of %ld: %s\n", i, threads, strerror(error));
            return 1;
        }
    }
    puts("ready");
    fflush(stdout);
    pause();
    return 0;
}
