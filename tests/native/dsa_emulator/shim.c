// SPDX-License-Identifier: Apache-2.0
// What a program sees of the emulated device: its files, and instructions that
// this CPU does not have.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "emulator.h"

enum { QUEUES = 128, PATH = 512, PORTAL = 4096 };

// Linked into a test, calls come by the linker's --wrap, which leaves a
// sanitizer's own interceptors where they are.
#ifdef DSA_EMULATOR_WRAP
#define OURS(name) __wrap_##name
int __real_close(int);
ssize_t __real_write(int, const void *, size_t);
void *__real_mmap(void *, size_t, int, int, int, off_t);
int __real_munmap(void *, size_t);
#define PLAIN(name, ...) __real_##name(__VA_ARGS__)
int __wrap_open(const char *, int, ...);
int __wrap_open64(const char *, int, ...);
int __wrap_openat(int, const char *, int, ...);
int __wrap_access(const char *, int);
int __wrap_close(int);
ssize_t __wrap_write(int, const void *, size_t);
void *__wrap_mmap(void *, size_t, int, int, int, off_t);
void *__wrap_mmap64(void *, size_t, int, int, int, off_t);
int __wrap_munmap(void *, size_t);
#else
#define OURS(name) name
#define PLAIN(name, ...) syscall(SYS_##name, __VA_ARGS__)
#endif

static struct emulated_queue queues[QUEUES];
static char root[PATH];

static struct emulated_queue *
queue_of(int fd)
{
    for (int i = 0; fd >= 0 && i < QUEUES; i++)
        if (queues[i].used == 2 && queues[i].fd == fd)
            return &queues[i];
    return NULL;
}

static struct emulated_queue *
queue_at(uint64_t address)
{
    for (int i = 0; i < QUEUES; i++) {
        uint64_t portal = (uint64_t)(uintptr_t)queues[i].portal;
        if (queues[i].used == 2 && portal && address >= portal && address < portal + PORTAL)
            return &queues[i];
    }
    return NULL;
}

// Where a path leads: `room` or itself.
static const char *
place(const char *path, char *room)
{
    static const char *const ours[] = {"/sys/bus/dsa", "/sys/module/idxd", "/dev/dsa"};
    for (size_t i = 0; *root && i < sizeof(ours) / sizeof(*ours); i++) {
        size_t n = strlen(ours[i]);
        if (strncmp(path, ours[i], n) != 0 || (path[n] && path[n] != '/'))
            continue;
        if (snprintf(room, PATH, "%s%s", root, path) < PATH)
            return room;
    }
    return path;
}

static long
attribute(const char *queue, const char *file)
{
    char path[PATH], value[64] = "";
    if (snprintf(path, sizeof(path), "%s/sys/bus/dsa/devices/%s/%s", root, queue, file) >= PATH)
        return 0;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    if (read(fd, value, sizeof(value) - 1) < 0)
        value[0] = 0;
    syscall(SYS_close, fd);
    return strncmp(value, "dedicated", 9) == 0 ? 1 : atol(value);
}

static int
opened(int fd, const char *queue)
{
    int error = (int)dsa_emulator.refuse_open;
    bool dedicated = attribute(queue, "mode") == 1;
    if (engine_gone())
        error = ENXIO;
    // A lock goes with the open file, through forks, as the kernel's count does.
    else if (!error && dedicated && flock(fd, LOCK_EX | LOCK_NB))
        error = EBUSY;
    for (int i = 0; !error && i < QUEUES; i++) {
        uint32_t unused = 0;
        if (!atomic_compare_exchange_strong(&queues[i].used, &unused, 1))
            continue;
        queues[i].fd = fd;
        queues[i].pid = getpid();
        queues[i].dedicated = dedicated;
        queues[i].size = (uint32_t)attribute(queue, "size");
        queues[i].most = (uint64_t)attribute(queue, "max_transfer_size");
        queues[i].portal = NULL;
        queues[i].in_flight = 0;
        __atomic_fetch_add(&dsa_emulator_counts.opens, 1, __ATOMIC_RELAXED);
        engine_start();
        queues[i].used = 2;
        return fd;
    }
    syscall(SYS_close, fd);
    errno = error ? error : ENFILE;
    return -1;
}

static int
open_at(int folder, const char *path, int flags, int mode)
{
    char room[PATH];
    path = place(path, room);
    int fd = (int)syscall(SYS_openat, folder, path, flags, mode);
    size_t n = strlen(root);
    if (fd >= 0 && n && !strncmp(path, root, n) && !strncmp(path + n, "/dev/dsa/wq", 11))
        return opened(fd, path + n + 9);
    return fd;
}

#define MODE_OF(flags)                                                                             \
    int mode = 0;                                                                                  \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                                                         \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode = va_arg(rest, int);                                                                  \
        va_end(rest);                                                                              \
    }

int
OURS(open)(const char *path, int flags, ...)
{
    MODE_OF(flags)
    return open_at(AT_FDCWD, path, flags, mode);
}

int
OURS(open64)(const char *path, int flags, ...)
{
    MODE_OF(flags)
    return open_at(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

int
OURS(openat)(int folder, const char *path, int flags, ...)
{
    MODE_OF(flags)
    return open_at(folder, path, flags, mode);
}

int
OURS(access)(const char *path, int mode)
{
    char room[PATH];
    return (int)syscall(SYS_faccessat, AT_FDCWD, place(path, room), mode);
}

int
OURS(close)(int fd)
{
    struct emulated_queue *queue = queue_of(fd);
    if (queue) {
        engine_forget(queue);
        if (queue->portal && queue->pid == getpid())
            engine_violation("closed before its portal was unmapped");
        queue->used = 0;
    }
    return (int)PLAIN(close, fd);
}

ssize_t
OURS(write)(int fd, const void *bytes, size_t n)
{
    struct emulated_queue *queue = queue_of(fd);
    if (!queue)
        return (ssize_t)PLAIN(write, fd, bytes, n);
    errno = EPERM;
    if (queue->pid != getpid())
        return -1;
    errno = EINVAL;
    if (n != 64)
        return -1;
    switch (engine_submit(queue, bytes)) {
    case TAKEN:
        return (ssize_t)n;
    case BUSY:
        errno = EAGAIN;
        return -1;
    default:
        errno = ENODEV;
        return -1;
    }
}

static void *
map(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    struct emulated_queue *queue = flags & MAP_ANONYMOUS ? NULL : queue_of(fd);
    if (!queue)
        return (void *)PLAIN(mmap, at, n, protection, flags, fd, offset);
    errno = n > PORTAL || offset ? EINVAL : EPERM;
    if (n > PORTAL || offset || dsa_emulator.refuse_mmap || queue->pid != getpid())
        return MAP_FAILED;
    // Nothing but the instructions may go there, and no child has it.
    void *portal =
        (void *)syscall(SYS_mmap, NULL, PORTAL, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (portal != MAP_FAILED) {
        madvise(portal, PORTAL, MADV_DONTFORK);
        queue->portal = portal;
    }
    return portal;
}

void *
OURS(mmap)(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    return map(at, n, protection, flags, fd, offset);
}

void *
OURS(mmap64)(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    return map(at, n, protection, flags, fd, offset);
}

int
OURS(munmap)(void *at, size_t n)
{
    struct emulated_queue *queue = queue_at((uint64_t)(uintptr_t)at);
    if (queue)
        queue->portal = NULL;
    return (int)PLAIN(munmap, at, n);
}

// ---- the instructions

static const int registers[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                  REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                  REG_R12, REG_R13, REG_R14, REG_R15};

// Its length, 0 when it is none of ours.
static int
emulate(const unsigned char *code, greg_t *regs)
{
    int at = 0;
    unsigned char prefix = code[at++], rex = 0;
    if (prefix != 0xf2 && prefix != 0xf3 && prefix != 0x66)
        return 0;
    if ((code[at] & 0xf0) == 0x40)
        rex = code[at++];
    if (code[at++] != 0x0f)
        return 0;
    if (code[at] == 0xae) { // UMONITOR, UMWAIT, TPAUSE: register operands only
        unsigned char operand = code[at + 1];
        if ((operand & 0xf8) != 0xf0)
            return 0;
        if (prefix != 0xf3) {
            __atomic_fetch_add(&dsa_emulator_counts.waits, 1, __ATOMIC_RELAXED);
            syscall(SYS_sched_yield);
            regs[REG_EFL] &= ~(greg_t)1;
        }
        return at + 2;
    }
    if (code[at++] != 0x38 || code[at++] != 0xf8 || prefix == 0xf3)
        return 0;
    unsigned char operand = code[at++];
    if (operand >> 6 || (operand & 7) == 4 || (operand & 7) == 5)
        return 0; // only [register]
    uint64_t source = (uint64_t)regs[registers[(operand & 7) | (rex & 1 ? 8 : 0)]];
    uint64_t portal = (uint64_t)regs[registers[(operand >> 3 & 7) | (rex & 4 ? 8 : 0)]];
    struct emulated_queue *queue = queue_at(portal);
    if (!queue || portal % 64)
        return 0; // #GP or #PF, which SIGILL stands for
    if (queue->dedicated != (prefix == 0x66))
        engine_violation("the other instruction is for such a queue");
    enum taken taken = engine_submit(queue, (const void *)(uintptr_t)source);
    if (prefix == 0xf2) {
        regs[REG_EFL] &= ~(greg_t)0x8d5; // CF PF AF ZF SF OF
        regs[REG_EFL] |= taken == TAKEN ? 0 : 0x40;
    }
    return at;
}

static void
on_sigill(int signal, siginfo_t *info, void *context)
{
    int error = errno;
    greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
    int length = emulate((const unsigned char *)(uintptr_t)regs[REG_RIP], regs);
    if (length) {
        __atomic_fetch_add(&dsa_emulator_counts.instructions, 1, __ATOMIC_RELAXED);
        regs[REG_RIP] += length;
    } else {
        struct sigaction plain = {.sa_handler = SIG_DFL};
        sigaction(SIGILL, &plain, NULL); // it comes again, and ends the program
    }
    errno = error;
}

// ---- its beginning

void
dsa_emulator_root(const char *folder)
{
    snprintf(root, sizeof(root), "%s", folder);
}

static void
from_environment(void)
{
#define FIELD(name, field)                                                                         \
    do {                                                                                           \
        const char *text = getenv("DSA_EMULATOR_" name);                                           \
        if (text)                                                                                  \
            dsa_emulator.field = atoll(text);                                                      \
    } while (0)
    FIELD("REFUSE_MMAP", refuse_mmap);
    FIELD("REFUSE_OPEN", refuse_open);
    FIELD("BUSY_PERCENT", busy_percent);
    FIELD("DELAY_NS", delay_ns);
    FIELD("LATE_NS", late_ns);
    FIELD("STATUS", status);
    FIELD("EVERY", every);
    FIELD("HANG", hang);
    FIELD("SPOIL", spoil);
    FIELD("FAULT_PAGE", fault_page);
    FIELD("FAULT_SOURCE", fault_source);
    FIELD("BACKWARDS", backwards);
    FIELD("REAL_PAGES", real_pages);
    FIELD("VANISH_AFTER", vanish_after);
    FIELD("NOOP_STATUS", noop_status);
#undef FIELD
    if (getenv("DSA_EMULATOR_ROOT"))
        dsa_emulator_root(getenv("DSA_EMULATOR_ROOT"));
}

__attribute__((constructor)) static void
begin(void)
{
    from_environment();
    struct sigaction action = {.sa_sigaction = on_sigill, .sa_flags = SA_SIGINFO};
    sigfillset(&action.sa_mask);
    sigaction(SIGILL, &action, NULL);
}

void
dsa_emulator_put(const char *folder, const char *name, const char *file, const char *value)
{
    char path[PATH];
    const char *parts[] = {"", "/sys", "/sys/bus", "/sys/bus/dsa", "/sys/bus/dsa/devices"};
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        snprintf(path, sizeof(path), "%s%s", folder, parts[i]);
        mkdir(path, 0755);
    }
    snprintf(path, sizeof(path), "%s/sys/bus/dsa/devices/%s", folder, name);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/sys/bus/dsa/devices/%s/%s", folder, name, file);
    FILE *out = fopen(path, "w");
    if (!out || fprintf(out, "%s\n", value) < 0 || fclose(out)) {
        perror(path);
        exit(1);
    }
}

void
dsa_emulator_make(const char *folder, unsigned device, unsigned queue, bool dedicated,
                  unsigned size, uint64_t most)
{
    char name[32], value[32], path[PATH];
    snprintf(name, sizeof(name), "dsa%u", device);
    dsa_emulator_put(folder, name, "state", "enabled");
    dsa_emulator_put(folder, name, "pasid_enabled", "1");
    dsa_emulator_put(folder, name, "gen_cap", "0x40915f010f");
    dsa_emulator_put(folder, name, "numa_node", "-1");
    snprintf(name, sizeof(name), "wq%u.%u", device, queue);
    dsa_emulator_put(folder, name, "state", "enabled");
    dsa_emulator_put(folder, name, "type", "user");
    dsa_emulator_put(folder, name, "driver_name", "user");
    dsa_emulator_put(folder, name, "mode", dedicated ? "dedicated" : "shared");
    snprintf(value, sizeof(value), "%u", size);
    dsa_emulator_put(folder, name, "size", value);
    snprintf(value, sizeof(value), "%llu", (unsigned long long)most);
    dsa_emulator_put(folder, name, "max_transfer_size", value);
    snprintf(path, sizeof(path), "%s/dev", folder);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/dev/dsa", folder);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/dev/dsa/wq%u.%u", folder, device, queue);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) {
        perror(path);
        exit(1);
    }
    syscall(SYS_close, fd);
}
