// SPDX-License-Identifier: Apache-2.0
// What the rooms of the DSA path share: facts of queues, what one process has
// open, lanes (a descriptor and its record), the instructions.
#ifndef OPD_DSA_PRIVATE_H
#define OPD_DSA_PRIVATE_H
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "opd/dsa.h"

enum { DSA_PATH = 256, DSA_LANES = 256, DSA_STRIPES = 16, DSA_PORTAL = 4096 };

// Found once. A process that forks finds the same.
struct dsa_facts {
    char name[OPD_DSA_NAME];
    char path[DSA_PATH];
    uint64_t most; // bytes of one descriptor
    uint32_t size; // entries
    int32_t node;  // -1: none
    uint32_t dedicated, cache_control;
    uint32_t way; // enum dsa_way that worked
};

enum dsa_way { DSA_CLOSED, DSA_ENQCMD, DSA_MOVDIR64B, DSA_WRITE, DSA_DEAD };

struct dsa_queue {
    _Atomic uint32_t way;
    _Atomic uint32_t in_flight; // of dedicated queues
    uint8_t *portal;
    int fd;
};

enum dsa_lane_state {
    DSA_FREE,
    DSA_TAKEN,
    DSA_LOST, // given up: the device may yet write the record
};

struct dsa_lane {
    _Alignas(64) struct opd_dsa_descriptor descriptor;
    _Alignas(64) struct opd_dsa_record record;
    _Atomic uint32_t state;
};

enum dsa_process_state { DSA_NOT_OPENED, DSA_OPENING, DSA_READY, DSA_FAILED };

// A mapping that fork() empties (MADV_WIPEONFORK): a child's portals are not
// mapped, and its descriptors would be refused, so it starts from nothing.
struct dsa_process {
    _Atomic uint32_t state;
    struct dsa_queue queues[OPD_DSA_QUEUES_MOST];
    struct dsa_lane lanes[DSA_LANES];
};

// What the opener had open, outside of that mapping: a child closes its copies.
struct dsa_held {
    int fd;
    dev_t device;
    ino_t inode;
};

struct dsa_stripe {
    _Alignas(64) struct opd_dsa_op_counts ops[OPD_DSA_OPS];
};

struct dsa_shared { // MAP_SHARED: with processes that fork
    struct dsa_stripe stripes[DSA_STRIPES];
    uint64_t status[OPD_DSA_STATUSES];
    uint64_t opened, open_failed;
};

struct opd_dsa {
    struct dsa_facts facts[OPD_DSA_QUEUES_MOST];
    uint32_t count;
    uint32_t wait, near, no_cache_control, slot;
    uint64_t timeout_ns, tpause_ticks;
    uint64_t least[OPD_DSA_OPS];
    struct opd_dsa_cpu cpu;
    struct opd_dto_functions fallback, functions;
    struct dsa_process *process;
    struct dsa_shared *shared;
    struct dsa_held held[OPD_DSA_QUEUES_MOST];
};

// How far a queue gets; the reason is that of the one that got furthest.
enum dsa_check {
    DSA_CHECK_BUS = 1,
    DSA_CHECK_DEVICE,
    DSA_CHECK_DEVICE_STATE,
    DSA_CHECK_SVA,
    DSA_CHECK_QUEUE,
    DSA_CHECK_QUEUE_STATE,
    DSA_CHECK_TYPE,
    DSA_CHECK_DRIVER,
    DSA_CHECK_MODE,
    DSA_CHECK_SIZE,
    DSA_CHECK_MOST,
    DSA_CHECK_PERMISSION,
    DSA_CHECK_PORTAL,
    DSA_CHECK_CPU,
    DSA_CHECK_NOOP,
};

// dsa_find.c. Tells one check; `remedy` NULL: it is fine. `report` may be NULL.
void dsa_told(struct opd_dsa_report *report, enum dsa_check check, const char *where,
              const char *remedy, const char *format, ...) __attribute__((format(printf, 5, 6)));

// Fills facts with the queues that sysfs says can be used.
uint32_t dsa_find(const struct opd_dsa_options *options, struct dsa_facts *facts,
                  struct opd_dsa_report *report);

// dsa_queue.c
int dsa_open_queue(struct opd_dsa *dsa, uint32_t index, struct opd_dsa_report *report);
void dsa_close_queue(struct opd_dsa *dsa, uint32_t index);
bool dsa_ready(struct opd_dsa *dsa); // opens, when this process has not yet
// 0, -EAGAIN: busy, -EIO: the queue is of no use any more.
int dsa_submit(struct opd_dsa *dsa, uint32_t index, struct dsa_lane *lane);
void dsa_completed(struct opd_dsa *dsa, uint32_t index);

// dsa.c
extern struct opd_dsa *dsa_live[OPD_DSA_LIVE_MOST];
extern const struct opd_dto_functions dsa_slot_functions[OPD_DSA_LIVE_MOST];

// dsa_lane.c
struct dsa_lane *dsa_lane_take(struct dsa_process *process, uint32_t hint);
void dsa_lane_give(struct dsa_lane *lane, bool lost);
// The status, 0 when none came in time, -1 in a child forked meanwhile.
int dsa_wait(const struct opd_dsa *dsa, struct dsa_lane *lane, uint64_t timeout_ns);
void dsa_describe(struct dsa_lane *lane, uint32_t opcode, uint32_t flags, uint64_t source,
                  uint64_t destination, uint32_t bytes);

// dsa_cpu.c
bool dsa_enqcmd(void *portal, const struct opd_dsa_descriptor *descriptor); // true: taken
void dsa_movdir64b(void *portal, const struct opd_dsa_descriptor *descriptor);
void dsa_umonitor(const void *address);
void dsa_umwait(uint64_t deadline);
void dsa_tpause(uint64_t deadline);
void dsa_relax(void);
#endif
