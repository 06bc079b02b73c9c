// SPDX-License-Identifier: Apache-2.0
// The emulated device: takes descriptors, executes them page by page, writes records.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "emulator.h"
#include "opd/dsa.h"

enum { PENDING_MOST = 1024, PAGE = 4096 };

#if defined(__SANITIZE_THREAD__)
// Children of a process that has the device's thread make one of their own.
const char *__tsan_default_options(void);
const char *
__tsan_default_options(void)
{
    return "die_after_fork=0";
}
#endif

struct dsa_emulator_settings dsa_emulator;
struct dsa_emulator_counts dsa_emulator_counts;

struct pending {
    struct opd_dsa_descriptor descriptor;
    struct emulated_queue *queue;
    struct opd_dsa_record record; // once executed
    uint64_t due;
    bool used, executed;
};

static struct pending pending[PENDING_MOST];
static _Atomic uint32_t pending_count, lock_word, gone;
static int worker_pid;
static struct emulated_queue *_Atomic at_work; // whose descriptor the thread executes

static void
count(uint64_t *what)
{
    __atomic_fetch_add(what, 1, __ATOMIC_RELAXED);
}

void
engine_violation(const char *what)
{
    dsa_emulator_counts.violation = what;
    count(&dsa_emulator_counts.violations);
}

bool
engine_gone(void)
{
    return gone;
}

void
dsa_emulator_reset(void)
{
    memset(&dsa_emulator, 0, sizeof(dsa_emulator));
    memset(&dsa_emulator_counts, 0, sizeof(dsa_emulator_counts));
    gone = 0;
}

// A signal handler may come here too: none may while the lock is held.
static void
lock(sigset_t *old)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, old);
    while (atomic_exchange_explicit(&lock_word, 1, memory_order_acquire))
        sched_yield();
}

static void
unlock(const sigset_t *old)
{
    atomic_store_explicit(&lock_word, 0, memory_order_release);
    sigprocmask(SIG_SETMASK, old, NULL);
}

static uint64_t
now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint32_t
chance(void)
{
    static _Atomic uint64_t state = 88172645463325252u;
    uint64_t x = state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    state = x;
    return (uint32_t)(x >> 32);
}

static int64_t
get(const int64_t *setting)
{
    return __atomic_load_n(setting, __ATOMIC_RELAXED);
}

// Is the page there that holds this address? `first`: where its operand begins.
static bool
present(uint64_t address, uint64_t first, bool source, int64_t missing)
{
    if (missing && source == !!get(&dsa_emulator.fault_source) &&
        (int64_t)(address / PAGE - first / PAGE) == missing - 1)
        return false;
    if (!get(&dsa_emulator.real_pages))
        return true;
    static _Atomic int pagemap, pagemap_pid;
    if (pagemap_pid != getpid()) {
        // An inherited one is the parent's.
        pagemap = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        pagemap_pid = getpid();
    }
    uint64_t entry = 0;
    if (pread(pagemap, &entry, sizeof(entry), (off_t)(address / PAGE * sizeof(entry))) !=
        sizeof(entry))
        return false;
    return entry >> 63;
}

static uint64_t
page_left(uint64_t address)
{
    return PAGE - address % PAGE;
}

struct operation {
    uint64_t to, from, bytes, pattern;
    uint32_t opcode;
    int64_t missing;
    bool backwards;
};

// One stretch within pages at `at`. False: it differs (compare).
static bool
stretch(const struct operation *op, uint64_t at, uint64_t n, uint64_t *where)
{
    unsigned char *to = (unsigned char *)(uintptr_t)(op->to + at);
    const unsigned char *from = (const unsigned char *)(uintptr_t)(op->from + at);
    switch (op->opcode) {
    case OPD_DSA_MEMMOVE:
        memmove(to, from, n);
        return true;
    case OPD_DSA_FILL:
        for (uint64_t i = 0; i < n; i++)
            to[i] = (unsigned char)(op->pattern >> (at + i) % 8 * 8);
        return true;
    default:
        for (uint64_t i = 0; i < n; i++)
            if (to[i] != from[i]) {
                *where = at + i;
                return false;
            }
        return true;
    }
}

static void
execute(const struct operation *op, struct opd_dsa_record *record)
{
    bool reads = op->opcode != OPD_DSA_FILL, writes = op->opcode != OPD_DSA_COMPARE;
    uint64_t done = 0, where = 0;
    record->result = op->backwards;
    while (done < op->bytes) {
        uint64_t left = op->bytes - done, at = op->backwards ? left - 1 : done;
        uint64_t fault = 0;
        if (reads && !present(op->from + at, op->from, true, op->missing))
            fault = op->from + at;
        else if (!present(op->to + at, op->to, false, op->missing))
            fault = op->to + at;
        if (fault) {
            bool on_write = writes && fault == op->to + at;
            record->status = OPD_DSA_PAGE_FAULT | (on_write ? OPD_DSA_WRITE_FAULT : 0);
            record->fault_address = fault / PAGE * PAGE;
            record->bytes_completed = (uint32_t)done;
            count(&dsa_emulator_counts.faults);
            return;
        }
        uint64_t n = left;
        if (op->backwards) {
            uint64_t low = (op->to + at) % PAGE + 1, other = (op->from + at) % PAGE + 1;
            n = low < n ? low : n;
            n = other < n ? other : n;
            at = left - n;
        } else {
            n = page_left(op->to + at) < n ? page_left(op->to + at) : n;
            if (reads)
                n = page_left(op->from + at) < n ? page_left(op->from + at) : n;
        }
        if (!stretch(op, at, n, &where)) {
            record->status = OPD_DSA_SUCCESS;
            record->result = 1;
            record->bytes_completed = (uint32_t)where;
            return;
        }
        done += n;
    }
    record->status = OPD_DSA_SUCCESS;
}

static void
fulfil(const struct opd_dsa_descriptor *descriptor, const struct emulated_queue *queue,
       struct opd_dsa_record *record)
{
    uint32_t opcode = descriptor->flags_opcode >> 24;
    int64_t every = get(&dsa_emulator.every);
    static _Atomic uint64_t turn;
    memset(record, 0, sizeof(*record));
    if (opcode == OPD_DSA_NOOP) {
        int64_t wanted = get(&dsa_emulator.noop_status);
        record->status = wanted ? (uint8_t)wanted : OPD_DSA_SUCCESS;
        return;
    }
    if (opcode != OPD_DSA_MEMMOVE && opcode != OPD_DSA_FILL && opcode != OPD_DSA_COMPARE) {
        record->status = 0x10;
        return;
    }
    if (!descriptor->bytes || descriptor->bytes > queue->most) {
        record->status = 0x13;
        engine_violation("a size that the queue does not take");
        return;
    }
    struct operation op = {.to = descriptor->destination,
                           .from = descriptor->source,
                           .bytes = descriptor->bytes,
                           .pattern = descriptor->source,
                           .opcode = opcode,
                           .missing = get(&dsa_emulator.fault_page)};
    if (op.missing < 0)
        op.missing = chance() % (op.bytes / PAGE + 2);
    op.backwards = opcode == OPD_DSA_MEMMOVE && (get(&dsa_emulator.backwards) ||
                                                 (op.to > op.from && op.to < op.from + op.bytes));
    if (every && ++turn % (uint64_t)every == 0) {
        if (get(&dsa_emulator.hang))
            return;
        if (get(&dsa_emulator.status)) {
            if (get(&dsa_emulator.spoil) && opcode != OPD_DSA_COMPARE)
                memset((void *)(uintptr_t)op.to, 0xe5, op.bytes / 2 + 1);
            record->status = (uint8_t)get(&dsa_emulator.status);
            return;
        }
    }
    execute(&op, record);
}

// The status last: who sees it sees all.
static void
complete(struct emulated_queue *queue, const struct opd_dsa_descriptor *descriptor,
         const struct opd_dsa_record *record)
{
    struct opd_dsa_record *to = (struct opd_dsa_record *)(uintptr_t)descriptor->record;
    to->result = record->result;
    to->bytes_completed = record->bytes_completed;
    to->fault_address = record->fault_address;
    // Out of the queue before the program can know of it.
    atomic_fetch_sub(&queue->in_flight, 1);
    count(&dsa_emulator_counts.completed);
    __atomic_store_n(&to->status, record->status, __ATOMIC_RELEASE);
}

static void
turn_of_worker(void)
{
    sigset_t old;
    for (uint32_t i = 0; i < PENDING_MOST; i++) {
        lock(&old);
        struct pending *one = &pending[i];
        bool due = one->used && now_ns() >= one->due;
        struct pending mine = *one;
        if (due)
            at_work = mine.queue;
        unlock(&old);
        if (!due)
            continue;
        if (!mine.executed) {
            fulfil(&mine.descriptor, mine.queue, &mine.record);
            mine.executed = true;
            mine.due += (uint64_t)get(&dsa_emulator.late_ns);
        }
        lock(&old);
        // Its queue may have been closed meanwhile.
        if (one->used && one->descriptor.record == mine.descriptor.record) {
            *one = mine;
            if (mine.record.status && now_ns() >= mine.due) {
                complete(mine.queue, &mine.descriptor, &mine.record);
                one->used = false;
                pending_count--;
            } else if (!mine.record.status) {
                one->due = UINT64_MAX; // hangs
            }
        }
        at_work = NULL;
        unlock(&old);
    }
}

static void *
worker(void *nothing)
{
    const struct timespec nap = {.tv_nsec = 20000};
    for (;;) {
        if (pending_count)
            turn_of_worker();
        nanosleep(&nap, NULL);
    }
    return nothing;
}

static void
in_child(void)
{
    memset(pending, 0, sizeof(pending));
    pending_count = 0;
    lock_word = 0;
    at_work = NULL;
}

void
engine_start(void)
{
    if (worker_pid == getpid())
        return;
    if (!worker_pid)
        pthread_atfork(NULL, NULL, in_child);
    worker_pid = getpid();
    pthread_t thread;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    if (!pthread_create(&thread, NULL, worker, NULL))
        pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void
engine_forget(struct emulated_queue *queue)
{
    sigset_t old;
    lock(&old);
    for (uint32_t i = 0; i < PENDING_MOST; i++)
        if (pending[i].used && pending[i].queue == queue) {
            pending[i].used = false;
            pending_count--;
        }
    unlock(&old);
    // The kernel drains what is being executed.
    while (at_work == queue)
        sched_yield();
}

static void
judge(const struct emulated_queue *queue, const struct opd_dsa_descriptor *descriptor)
{
    uint32_t flags = descriptor->flags_opcode & 0xffffff;
    char here;
    uint64_t stack = (uint64_t)(uintptr_t)&here;
    if (descriptor->record % 32)
        engine_violation("a record that is not aligned");
    if ((flags & 0xc) != 0xc)
        engine_violation("no record asked for");
    if (flags & ~(uint32_t)0x10c)
        engine_violation("flags that opd does not use");
    if (descriptor->pasid || descriptor->reserved || descriptor->interrupt)
        engine_violation("a reserved field is not zero");
    if (descriptor->record > stack && descriptor->record < stack + 65536)
        engine_violation("a record on the stack");
    if (queue->pid != getpid())
        engine_violation("a descriptor from another process than the opener");
}

enum taken
engine_submit(struct emulated_queue *queue, const void *bytes)
{
    struct opd_dsa_descriptor descriptor;
    memcpy(&descriptor, bytes, sizeof(descriptor));
    int64_t vanish = get(&dsa_emulator.vanish_after);
    if (vanish && __atomic_load_n(&dsa_emulator_counts.taken, __ATOMIC_RELAXED) >= (uint64_t)vanish)
        gone = 1;
    if (gone)
        return GONE;
    judge(queue, &descriptor);
    bool noop = descriptor.flags_opcode >> 24 == OPD_DSA_NOOP;
    // MOVDIR64B says nothing of a full queue.
    bool silent = queue->dedicated && queue->portal;
    if (!noop && !silent && (int64_t)(chance() % 100) < get(&dsa_emulator.busy_percent)) {
        count(&dsa_emulator_counts.busy);
        return BUSY;
    }
    if (atomic_fetch_add(&queue->in_flight, 1) >= queue->size) {
        atomic_fetch_sub(&queue->in_flight, 1);
        if (queue->dedicated)
            engine_violation("more in a dedicated queue than its size");
        return BUSY;
    }
    count(&dsa_emulator_counts.taken);
    struct pending one = {.descriptor = descriptor, .queue = queue, .used = true};
    int64_t delay = get(&dsa_emulator.delay_ns), late = get(&dsa_emulator.late_ns);
    if (!delay) {
        fulfil(&descriptor, queue, &one.record);
        one.executed = true;
        if (!late && one.record.status) {
            complete(queue, &descriptor, &one.record);
            return TAKEN;
        }
        delay = one.record.status ? late : INT64_MAX / 2;
    }
    one.due = now_ns() + (uint64_t)delay;
    sigset_t old;
    lock(&old);
    for (uint32_t i = 0; i < PENDING_MOST; i++)
        if (!pending[i].used) {
            pending[i] = one;
            pending_count++;
            break;
        }
    unlock(&old);
    return TAKEN;
}
