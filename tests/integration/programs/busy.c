// SPDX-License-Identifier: Apache-2.0
// Description: burns CPU in functions whose names tell how it got there.
// busy MODE SECONDS; prints its pid first.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds;

static double
cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

// The loop itself is in the named function; the clock is read seldom.
#define BURN(name)                                                                                 \
    __attribute__((noinline)) void name(void)                                                      \
    {                                                                                              \
        double until = cpu_seconds() + seconds;                                                    \
        while (cpu_seconds() < until)                                                              \
            for (volatile int i = 0; i < 1000000; i++)                                             \
                ;                                                                                  \
    }

BURN(plain_work)
BURN(child_work)
BURN(thread_work)
BURN(before_exec_work)

static void *
lonely(void *argument)
{
    pthread_setname_np(pthread_self(), "lonely");
    usleep(50000); // the main thread is gone by now
    thread_work();
    exit(0);
    return argument;
}

static void
run_anonymous_code(void)
{
    // mov ecx, 100000000; dec ecx; jnz -4; ret
    static const uint8_t code[] = {0xb9, 0x00, 0xe1, 0xf5, 0x05, 0xff, 0xc9, 0x75, 0xfc, 0xc3};
    void *page =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        exit(77);
    memcpy(page, code, sizeof code);
    double until = cpu_seconds() + seconds;
    while (cpu_seconds() < until)
        ((void (*)(void))page)();
}

static void
read_the_clock(void)
{
    double until = cpu_seconds() + seconds;
    struct timespec now;
    while (cpu_seconds() < until)
        for (int i = 0; i < 100000; i++)
            clock_gettime(CLOCK_MONOTONIC, &now);
}

static void
run_from_memfd(char **argv)
{
    int fd = memfd_create("sealed-program", MFD_CLOEXEC), self = open("/proc/self/exe", O_RDONLY);
    struct stat status;
    if (fd < 0 || self < 0 || fstat(self, &status) != 0)
        exit(77);
    while (lseek(fd, 0, SEEK_CUR) < status.st_size)
        if (sendfile(fd, self, NULL, (size_t)status.st_size) <= 0)
            exit(77);
    char *arguments[] = {argv[0], "plain", argv[2], NULL};
    fexecve(fd, arguments, environ);
    exit(77);
}

int
main(int argc, char **argv)
{
    const char *mode = argc > 2 ? argv[1] : "plain";
    seconds = argc > 2 ? atof(argv[2]) : 0.3;
    printf("%d\n", getpid());
    fflush(stdout);
    if (strcmp(mode, "fork") == 0) {
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_NAME, "renamed");
            child_work();
            _exit(0);
        }
        printf("%d\n", pid);
        fflush(stdout);
        waitpid(pid, NULL, 0);
    } else if (strcmp(mode, "thread") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, lonely, NULL);
        pthread_exit(NULL);
    } else if (strcmp(mode, "exec") == 0) {
        before_exec_work();
        char *arguments[] = {"after-exec", "plain", argv[2], NULL};
        execv("/proc/self/exe", arguments);
    } else if (strcmp(mode, "anonymous") == 0) {
        run_anonymous_code();
    } else if (strcmp(mode, "clock") == 0) {
        read_the_clock();
    } else if (strcmp(mode, "memfd") == 0) {
        run_from_memfd(argv);
    } else {
        plain_work();
    }
    return 0;
}
