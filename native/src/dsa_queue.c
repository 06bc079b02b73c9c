// SPDX-License-Identifier: Apache-2.0
// Queues of one process: opened, mapped or written to, given descriptors, closed.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dsa_private.h"

// A device that needs longer for nothing is of no use; a queue that others fill may need it.
enum { NOOP_TIMEOUT_NS = 300 * 1000 * 1000, NOOP_TRIES = 64 };

// Closes what fork() copied, unless the number has become another file's.
static void
close_held(struct dsa_held *held)
{
    struct stat now;
    if (held->fd >= 0 && !fstat(held->fd, &now) && now.st_dev == held->device &&
        now.st_ino == held->inode)
        close(held->fd);
    held->fd = -1;
}

void
dsa_close_queue(struct opd_dsa *dsa, uint32_t index)
{
    struct dsa_queue *queue = &dsa->process->queues[index];
    if (queue->portal)
        munmap(queue->portal, DSA_PORTAL);
    queue->portal = NULL;
    atomic_store(&queue->way, DSA_CLOSED);
    atomic_store(&queue->in_flight, 0);
    close_held(&dsa->held[index]);
    queue->fd = -1;
}

static int
open_node(struct opd_dsa *dsa, uint32_t index, struct opd_dsa_report *report)
{
    struct dsa_facts *facts = &dsa->facts[index];
    struct dsa_queue *queue = &dsa->process->queues[index];
    close_held(&dsa->held[index]);
    queue->fd = open(facts->path, O_RDWR | O_CLOEXEC);
    if (queue->fd < 0) {
        int error = errno;
        if (!report) // perhaps in a signal handler: no texts
            return -error;
        const char *remedy = "the node is made by udev when the queue is enabled";
        if (error == EACCES || error == EPERM)
            remedy = "run as root, or give your group the node by a udev rule";
        else if (error == EBUSY)
            remedy = "another process has this dedicated queue; take a shared one";
        dsa_told(report, DSA_CHECK_PERMISSION, facts->name, remedy, "%s: %s", facts->path,
                 strerror(error));
        return -error;
    }
    struct stat now;
    if (!fstat(queue->fd, &now))
        dsa->held[index] =
            (struct dsa_held){.fd = queue->fd, .device = now.st_dev, .inode = now.st_ino};
    dsa_told(report, DSA_CHECK_PERMISSION, facts->name, NULL, "%s can be opened", facts->path);
    return 0;
}

// Which way descriptors go in. The portal needs the instruction, write() nothing.
static enum dsa_way
way_of(struct opd_dsa *dsa, uint32_t index, struct opd_dsa_report *report)
{
    struct dsa_facts *facts = &dsa->facts[index];
    struct dsa_queue *queue = &dsa->process->queues[index];
    bool has = facts->dedicated ? dsa->cpu.movdir64b : dsa->cpu.enqcmd;
    const char *instruction = facts->dedicated ? "MOVDIR64B" : "ENQCMD";
    if (!has) {
        dsa_told(report, DSA_CHECK_CPU, facts->name, NULL, "no %s here: write() instead",
                 instruction);
        return DSA_WRITE;
    }
    dsa_told(report, DSA_CHECK_CPU, facts->name, NULL, "%s", instruction);
    void *portal = mmap(NULL, DSA_PORTAL, PROT_WRITE, MAP_SHARED | MAP_POPULATE, queue->fd, 0);
    if (portal == MAP_FAILED) {
        if (report)
            dsa_told(report, DSA_CHECK_PORTAL, facts->name, NULL,
                     "not mapped (%s%s): write() instead", strerror(errno),
                     errno == EPERM ? "; CAP_SYS_RAWIO is wanted on this CPU" : "");
        return DSA_WRITE;
    }
    dsa_told(report, DSA_CHECK_PORTAL, facts->name, NULL, "mapped");
    queue->portal = portal;
    return facts->dedicated ? DSA_MOVDIR64B : DSA_ENQCMD;
}

// Sends a NOOP, waits for its record. Its lane is never on the stack: a device
// that is late writes it when we are long gone.
static int
try_noop(struct opd_dsa *dsa, uint32_t index, struct opd_dsa_report *report)
{
    const char *name = dsa->facts[index].name;
    struct dsa_lane *lane = dsa_lane_take(dsa->process, index);
    if (!lane)
        return -EIO;
    int rc = -EAGAIN;
    for (int i = 0; i < NOOP_TRIES && rc == -EAGAIN; i++) {
        dsa_describe(lane, OPD_DSA_NOOP, 0, 0, 0, 0);
        rc = dsa_submit(dsa, index, lane);
        if (rc == -EAGAIN)
            dsa_relax();
    }
    if (rc) {
        dsa_lane_give(lane, false);
        dsa_told(report, DSA_CHECK_NOOP, name,
                 "dmesg, and the device's errors in sysfs; on kernels without write() of"
                 " descriptors, map the portal as root",
                 rc == -EAGAIN ? "the queue takes nothing: it stays busy"
                               : "the queue refuses descriptors");
        return rc;
    }
    int status = dsa_wait(dsa, lane, NOOP_TIMEOUT_NS);
    dsa_lane_give(lane, status == 0);
    if (status > 0)
        dsa_completed(dsa, index);
    if (status == OPD_DSA_SUCCESS) {
        dsa_told(report, DSA_CHECK_NOOP, name, NULL, "completes");
        return 0;
    }
    dsa_told(report, DSA_CHECK_NOOP, name, "dmesg, and the device's errors in sysfs", "%s",
             status > 0 ? opd_dsa_status_text((uint32_t)status & 0x7f)
                        : "does not complete within 0.3 s");
    return -EIO;
}

int
dsa_open_queue(struct opd_dsa *dsa, uint32_t index, struct opd_dsa_report *report)
{
    struct dsa_queue *queue = &dsa->process->queues[index];
    int rc = open_node(dsa, index, report);
    if (rc)
        return rc;
    enum dsa_way way = way_of(dsa, index, report);
    atomic_store(&queue->way, way);
    rc = try_noop(dsa, index, report);
    if (rc) {
        dsa_close_queue(dsa, index);
        return rc;
    }
    dsa->facts[index].way = way;
    return 0;
}

bool
dsa_ready(struct opd_dsa *dsa)
{
    struct dsa_process *process = dsa->process;
    uint32_t state = atomic_load_explicit(&process->state, memory_order_acquire);
    if (state == DSA_READY)
        return true;
    // Who is not the first goes on with the CPU meanwhile.
    if (state != DSA_NOT_OPENED ||
        !atomic_compare_exchange_strong(&process->state, &state, DSA_OPENING))
        return false;
    uint32_t usable = 0;
    for (uint32_t i = 0; i < dsa->count; i++)
        usable += !dsa_open_queue(dsa, i, NULL);
    __atomic_fetch_add(usable ? &dsa->shared->opened : &dsa->shared->open_failed, 1,
                       __ATOMIC_RELAXED);
    atomic_store_explicit(&process->state, usable ? DSA_READY : DSA_FAILED, memory_order_release);
    return usable;
}

int
dsa_submit(struct opd_dsa *dsa, uint32_t index, struct dsa_lane *lane)
{
    struct dsa_queue *queue = &dsa->process->queues[index];
    uint32_t way = atomic_load_explicit(&queue->way, memory_order_acquire);
    bool dedicated = dsa->facts[index].dedicated;
    // A dedicated queue does not say when it is full: what is in it is counted here.
    if (dedicated && atomic_fetch_add(&queue->in_flight, 1) >= dsa->facts[index].size) {
        atomic_fetch_sub(&queue->in_flight, 1);
        return -EAGAIN;
    }
    // The page takes descriptors at any 64 bytes of it.
    uint64_t offset = (uint64_t)(lane - dsa->process->lanes) * 64 % DSA_PORTAL;
    int rc = -EIO;
    ssize_t n;
    switch (way) {
    case DSA_ENQCMD:
        rc = dsa_enqcmd(queue->portal + offset, &lane->descriptor) ? 0 : -EAGAIN;
        break;
    case DSA_MOVDIR64B:
        dsa_movdir64b(queue->portal + offset, &lane->descriptor);
        rc = 0;
        break;
    case DSA_WRITE:
        n = write(queue->fd, &lane->descriptor, sizeof(lane->descriptor));
        if (n == sizeof(lane->descriptor))
            rc = 0;
        else if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == EBUSY))
            rc = -EAGAIN;
        else
            atomic_store(&queue->way, DSA_DEAD);
        break;
    default:
        break;
    }
    if (rc && dedicated)
        atomic_fetch_sub(&queue->in_flight, 1);
    return rc;
}

void
dsa_completed(struct opd_dsa *dsa, uint32_t index)
{
    if (dsa->facts[index].dedicated)
        atomic_fetch_sub(&dsa->process->queues[index].in_flight, 1);
}
