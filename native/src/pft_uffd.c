// SPDX-License-Identifier: Apache-2.0
// Faults resolved in user space by a thread: a page copied in, one that is there
// mapped, or its write protection lifted.
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pft_private.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif

static int
resolve_one(const struct pft_uffd *uffd, uint64_t at, size_t page)
{
    if (uffd->how == OPD_PFT_USERFAULTFD_MINOR) {
        struct uffdio_continue one = {.range = {.start = at, .len = page}};
        return ioctl(uffd->fd, UFFDIO_CONTINUE, &one);
    }
    if (uffd->how == OPD_PFT_USERFAULTFD_WP) {
        struct uffdio_writeprotect one = {.range = {.start = at, .len = page}};
        return ioctl(uffd->fd, UFFDIO_WRITEPROTECT, &one);
    }
    struct uffdio_copy one = {.dst = at, .src = (uintptr_t)uffd->page, .len = page};
    return ioctl(uffd->fd, UFFDIO_COPY, &one);
}

static void *
resolve(void *argument)
{
    struct pft_uffd *uffd = argument;
    struct pollfd wait[2] = {{.fd = uffd->fd, .events = POLLIN},
                             {.fd = uffd->stop, .events = POLLIN}};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    while (poll(wait, 2, -1) >= 0 || errno == EINTR) {
        if (wait[1].revents)
            break;
        struct uffd_msg message;
        if (read(uffd->fd, &message, sizeof(message)) != (ssize_t)sizeof(message) ||
            message.event != UFFD_EVENT_PAGEFAULT)
            continue;
        uint64_t at = message.arg.pagefault.address & ~(uint64_t)(page - 1);
        while (resolve_one(uffd, at, page) && errno == EAGAIN)
            ;
    }
    return NULL;
}

static int
new_uffd(void)
{
    int flags = O_CLOEXEC | O_NONBLOCK;
    int fd = (int)syscall(SYS_userfaultfd, flags | UFFD_USER_MODE_ONLY);
    if (fd < 0 && errno == EINVAL) // before 5.11
        fd = (int)syscall(SYS_userfaultfd, flags);
    if (fd >= 0 || errno != EPERM)
        return fd;
    int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    if (device < 0) {
        errno = EPERM;
        return -1;
    }
    fd = ioctl(device, USERFAULTFD_IOC_NEW, flags);
    close(device);
    return fd;
}

static int
watch(struct pft_uffd *uffd, char *slice, size_t length, char *reason)
{
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {.range = {.start = (uintptr_t)slice, .len = length},
                                    .mode = UFFDIO_REGISTER_MODE_MISSING};
    const char *what = "userfaultfd";
    if (uffd->how == OPD_PFT_USERFAULTFD_MINOR) {
        api.features = UFFD_FEATURE_MINOR_SHMEM;
        range.mode = UFFDIO_REGISTER_MODE_MINOR;
        what = "userfaultfd's minor faults (Linux 5.14)";
    } else if (uffd->how == OPD_PFT_USERFAULTFD_WP) {
        api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP;
        range.mode = UFFDIO_REGISTER_MODE_WP;
        what = "userfaultfd's write protection (Linux 5.7)";
    }
    if (ioctl(uffd->fd, UFFDIO_API, &api) || ioctl(uffd->fd, UFFDIO_REGISTER, &range))
        return pft_fail(reason, errno, "registering %zu bytes with %s", length, what);
    struct uffdio_writeprotect protect = {.range = range.range,
                                          .mode = UFFDIO_WRITEPROTECT_MODE_WP};
    if (uffd->how == OPD_PFT_USERFAULTFD_WP && ioctl(uffd->fd, UFFDIO_WRITEPROTECT, &protect))
        return pft_fail(reason, errno, "write-protecting %zu bytes", length);
    return 0;
}

int
pft_uffd_start(struct pft_uffd *uffd, const struct opd_pft *pft, char *slice, char *reason)
{
    *uffd = (struct pft_uffd){.fd = new_uffd(), .stop = -1, .how = pft->options.prepare};
    if (uffd->fd < 0)
        return pft_fail(reason, errno, "userfaultfd");
    uffd->stop = eventfd(0, EFD_CLOEXEC);
    uffd->page = aligned_alloc(pft->page, pft->page);
    int rc = watch(uffd, slice, pft->slice, reason);
    if (rc == 0 && (uffd->stop < 0 || uffd->page == NULL))
        rc = pft_fail(reason, ENOMEM, "the thread that resolves faults");
    if (rc == 0) {
        memset(uffd->page, 'u', pft->page);
        int error = pthread_create(&uffd->thread, NULL, resolve, uffd);
        if (error)
            rc = pft_fail(reason, error, "the thread that resolves faults");
    }
    if (rc) {
        close(uffd->fd);
        if (uffd->stop >= 0)
            close(uffd->stop);
        free(uffd->page);
        uffd->fd = -1;
    }
    return rc;
}

void
pft_uffd_stop(struct pft_uffd *uffd)
{
    if (uffd->fd < 0)
        return;
    uint64_t one = 1;
    while (write(uffd->stop, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
    pthread_join(uffd->thread, NULL);
    close(uffd->fd);
    close(uffd->stop);
    free(uffd->page);
    uffd->fd = -1;
}
