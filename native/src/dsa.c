// SPDX-License-Identifier: Apache-2.0
// The four functions: a call is cut into descriptors, what the device leaves is
// done by the CPU. Pieces never overlap themselves, so each can be done again.
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "dsa_private.h"

enum {
    // Operands that overlap go in pieces of their distance; below this it is the CPU's.
    DISTANCE_LEAST = 4096,
    STATUS_MASK = 0x7f,
};

struct call {
    struct opd_dsa *dsa;
    struct dsa_lane *lane;
    struct opd_dsa_op_counts *counts;
    struct opd_dsa_record record; // of the last descriptor
    uint32_t queue;
    int error; // errno is as before afterwards: libc's functions leave it alone
    bool lost;
};

// In a call; what a signal handler does meanwhile is the CPU's. Static TLS: a
// handler must not come to where it is allocated.
#define STATIC_TLS static __thread __attribute__((tls_model("initial-exec")))
STATIC_TLS volatile uint32_t in_call;
STATIC_TLS uint32_t thread_number, turn;
static _Atomic uint32_t threads;

static void
add(uint64_t *count, uint64_t n)
{
    __atomic_fetch_add(count, n, __ATOMIC_RELAXED);
}

static uint32_t
number_of_thread(void)
{
    if (!thread_number)
        thread_number = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) + 1;
    return thread_number;
}

static bool
alive(const struct opd_dsa *dsa, uint32_t index)
{
    uint32_t way = atomic_load_explicit(&dsa->process->queues[index].way, memory_order_relaxed);
    return way != DSA_CLOSED && way != DSA_DEAD;
}

// The next queue that can be used; of this CPU's node first when asked so. `count`: none.
static uint32_t
choose(const struct opd_dsa *dsa)
{
    uint32_t from = number_of_thread() + turn++, any = dsa->count;
    unsigned cpu, node = 0;
    bool near = dsa->near && !getcpu(&cpu, &node);
    for (uint32_t i = 0; i < dsa->count; i++) {
        uint32_t index = (from + i) % dsa->count;
        if (!alive(dsa, index))
            continue;
        if (!near || dsa->facts[index].node == (int32_t)node)
            return index;
        if (any == dsa->count)
            any = index;
    }
    return any;
}

// False: the CPU does it all. True: end() must follow.
static bool
begin(struct opd_dsa *dsa, enum opd_dsa_op op, size_t n, struct call *call)
{
    struct dsa_stripe *stripe = &dsa->shared->stripes[number_of_thread() % DSA_STRIPES];
    struct opd_dsa_op_counts *counts = &stripe->ops[op];
    if (!n || n < dsa->least[op]) {
        add(&counts->small, 1);
        return false;
    }
    add(&counts->calls, 1);
    if (in_call) {
        add(&counts->nested, 1);
        add(&counts->cpu_bytes, n);
        return false;
    }
    in_call = 1;
    call->error = errno;
    call->dsa = dsa;
    call->counts = counts;
    call->lost = false;
    if (!dsa_ready(dsa) || (call->queue = choose(dsa)) == dsa->count)
        add(&counts->refused, 1);
    else if (!(call->lane = dsa_lane_take(dsa->process, 5 * number_of_thread())))
        add(&counts->busy, 1);
    else
        return true;
    add(&counts->cpu_bytes, n);
    errno = call->error;
    in_call = 0;
    return false;
}

static void
end(struct call *call)
{
    dsa_lane_give(call->lane, call->lost);
    errno = call->error;
    in_call = 0;
}

// One descriptor, from giving it to its record. The status without the bit for
// writes; 0: the device has nothing to do with the rest of this call.
static uint32_t
run(struct call *call, uint32_t opcode, uint64_t source, uint64_t destination, uint64_t bytes)
{
    struct opd_dsa *dsa = call->dsa;
    struct dsa_queue *queue = &dsa->process->queues[call->queue];
    bool writes = opcode == OPD_DSA_MEMMOVE || opcode == OPD_DSA_FILL;
    uint32_t cache = writes && dsa->facts[call->queue].cache_control && !dsa->no_cache_control;
    dsa_describe(call->lane, opcode, cache ? OPD_DSA_CACHE_CONTROL : 0, source, destination,
                 (uint32_t)bytes);
    int rc = dsa_submit(dsa, call->queue, call->lane);
    if (rc) {
        add(rc == -EAGAIN ? &call->counts->busy : &call->counts->refused, 1);
        return 0;
    }
    int status = dsa_wait(dsa, call->lane, dsa->timeout_ns + bytes);
    if (status <= 0) {
        // A child that was forked meanwhile has lanes of its own, and this one was none.
        if (!status) {
            atomic_store(&queue->way, DSA_DEAD);
            add(&call->counts->timeouts, 1);
            call->lost = true;
        }
        return 0;
    }
    dsa_completed(dsa, call->queue);
    call->record = call->lane->record;
    add(&call->counts->descriptors, 1);
    add(&dsa->shared->status[status & STATUS_MASK], 1);
    return (uint32_t)status & STATUS_MASK;
}

// What a status means for a piece that writes: the device did `done` bytes of it,
// from its end backwards when `result` is 1. True: the device may have the next one.
static bool
done_of(struct call *call, uint32_t status, uint64_t bytes, uint64_t *done)
{
    *done = 0;
    if (status == OPD_DSA_SUCCESS) {
        *done = bytes;
    } else if (status == OPD_DSA_PAGE_FAULT) {
        *done = call->record.bytes_completed < bytes ? call->record.bytes_completed : bytes;
        add(&call->counts->faults, 1);
    } else if (status) {
        add(&call->counts->redone, 1);
    }
    add(&call->counts->device_bytes, *done);
    add(&call->counts->cpu_bytes, bytes - *done);
    return status == OPD_DSA_SUCCESS || status == OPD_DSA_PAGE_FAULT;
}

static uint64_t
distance(const void *a, const void *b)
{
    uint64_t x = (uint64_t)(uintptr_t)a, y = (uint64_t)(uintptr_t)b;
    return x > y ? x - y : y - x;
}

static void *
dsa_move(struct opd_dsa *dsa, enum opd_dsa_op op, void *to, const void *from, size_t n)
{
    const struct opd_dto_functions *cpu = &dsa->fallback;
    uint64_t apart = distance(to, from), left = n;
    struct call call;
    if (!apart)
        return to;
    if (apart < n && apart < DISTANCE_LEAST && n >= dsa->least[op]) {
        struct dsa_stripe *stripe = &dsa->shared->stripes[number_of_thread() % DSA_STRIPES];
        add(&stripe->ops[op].calls, 1);
        add(&stripe->ops[op].near_overlap, 1);
        add(&stripe->ops[op].cpu_bytes, n);
        return cpu->move(to, from, n);
    }
    if (!begin(dsa, op, n, &call))
        return apart < n ? cpu->move(to, from, n) : cpu->copy(to, from, n);
    uint64_t most = dsa->facts[call.queue].most;
    if (apart < n && apart < most)
        most = apart;
    // An overlap is moved from that end which the move itself would spoil.
    bool backwards = apart < n && (uintptr_t)to > (uintptr_t)from;
    for (bool more = true; left && more;) {
        uint64_t piece = left < most ? left : most;
        uint64_t at = backwards ? left - piece : n - left, done;
        char *piece_to = (char *)to + at;
        const char *piece_from = (const char *)from + at;
        uint32_t status = run(&call, OPD_DSA_MEMMOVE, (uint64_t)(uintptr_t)piece_from,
                              (uint64_t)(uintptr_t)piece_to, piece);
        if (!status)
            break;
        more = done_of(&call, status, piece, &done);
        uint64_t skip = call.record.result == 1 ? 0 : done;
        if (done < piece)
            cpu->copy(piece_to + skip, piece_from + skip, piece - done);
        left -= piece;
    }
    end(&call);
    if (left) {
        uint64_t at = backwards ? 0 : n - left;
        add(&call.counts->cpu_bytes, left);
        cpu->move((char *)to + at, (const char *)from + at, left);
    }
    return to;
}

static void *
dsa_set(struct opd_dsa *dsa, void *to, int value, size_t n)
{
    const struct opd_dto_functions *cpu = &dsa->fallback;
    struct call call;
    if (!begin(dsa, OPD_DSA_SET, n, &call))
        return cpu->set(to, value, n);
    uint64_t most = dsa->facts[call.queue].most, left = n;
    uint64_t pattern = 0x0101010101010101u * (uint8_t)value;
    for (bool more = true; left && more;) {
        uint64_t piece = left < most ? left : most, done;
        char *at = (char *)to + (n - left);
        uint32_t status = run(&call, OPD_DSA_FILL, pattern, (uint64_t)(uintptr_t)at, piece);
        if (!status)
            break;
        more = done_of(&call, status, piece, &done);
        if (done < piece)
            cpu->set(call.record.result == 1 ? at : at + done, value, piece - done);
        left -= piece;
    }
    end(&call);
    if (left) {
        add(&call.counts->cpu_bytes, left);
        cpu->set((char *)to + (n - left), value, left);
    }
    return to;
}

// A compare that ended with `status`. A difference is the CPU's word alone: the
// device says where to look first.
static int
compared(struct call *call, uint32_t status, const char *a, const char *b, uint64_t bytes,
         bool *more)
{
    const struct opd_dto_functions *cpu = &call->dsa->fallback;
    uint64_t at = call->record.bytes_completed;
    bool known = status == OPD_DSA_SUCCESS || status == OPD_DSA_PAGE_FAULT;
    *more = known;
    if (status == OPD_DSA_PAGE_FAULT)
        add(&call->counts->faults, 1);
    if (status == OPD_DSA_SUCCESS && !call->record.result) {
        add(&call->counts->device_bytes, bytes);
        return 0;
    }
    if (known && at <= bytes) {
        add(&call->counts->device_bytes, at);
        add(&call->counts->cpu_bytes, bytes - at);
        int order = cpu->compare(a + at, b + at, bytes - at);
        if (order || (status == OPD_DSA_PAGE_FAULT && !call->record.result))
            return order;
    }
    // Another status, or a difference that is not there (memory changed meanwhile).
    add(&call->counts->redone, 1);
    return cpu->compare(a, b, bytes);
}

static int
dsa_compare(struct opd_dsa *dsa, const void *a, const void *b, size_t n)
{
    struct call call;
    if (!begin(dsa, OPD_DSA_CMP, n, &call))
        return dsa->fallback.compare(a, b, n);
    uint64_t most = dsa->facts[call.queue].most, left = n;
    int order = 0;
    for (bool more = true; left && more && !order;) {
        uint64_t piece = left < most ? left : most;
        const char *x = (const char *)a + (n - left), *y = (const char *)b + (n - left);
        uint32_t status =
            run(&call, OPD_DSA_COMPARE, (uint64_t)(uintptr_t)x, (uint64_t)(uintptr_t)y, piece);
        if (!status)
            break;
        order = compared(&call, status, x, y, piece, &more);
        left -= piece;
    }
    end(&call);
    if (left && !order) {
        add(&call.counts->cpu_bytes, left);
        order =
            dsa->fallback.compare((const char *)a + (n - left), (const char *)b + (n - left), left);
    }
    return order;
}

// Functions of libc's shape know no handle: each slot has its own four.
struct opd_dsa *dsa_live[OPD_DSA_LIVE_MOST];

#define SLOT(i)                                                                                    \
    static void *copy_##i(void *to, const void *from, size_t n)                                    \
    {                                                                                              \
        return dsa_move(dsa_live[i], OPD_DSA_COPY, to, from, n);                                   \
    }                                                                                              \
    static void *move_##i(void *to, const void *from, size_t n)                                    \
    {                                                                                              \
        return dsa_move(dsa_live[i], OPD_DSA_MOVE, to, from, n);                                   \
    }                                                                                              \
    static void *set_##i(void *to, int value, size_t n)                                            \
    {                                                                                              \
        return dsa_set(dsa_live[i], to, value, n);                                                 \
    }                                                                                              \
    static int compare_##i(const void *a, const void *b, size_t n)                                 \
    {                                                                                              \
        return dsa_compare(dsa_live[i], a, b, n);                                                  \
    }
SLOT(0)
SLOT(1)
SLOT(2)
SLOT(3)

#define OF_SLOT(i) {.copy = copy_##i, .move = move_##i, .set = set_##i, .compare = compare_##i}
const struct opd_dto_functions dsa_slot_functions[OPD_DSA_LIVE_MOST] = {OF_SLOT(0), OF_SLOT(1),
                                                                        OF_SLOT(2), OF_SLOT(3)};
