// SPDX-License-Identifier: Apache-2.0
// Copies, fills and compares by an Intel Data Streaming Accelerator (DSA): its
// queues are found in /sys/bus/dsa, opened below /dev/dsa, and used as four
// functions that do what libc's do. Whatever the device does not do, the CPU
// does: the answer is always right, the counts say who gave it.
//
// Facts of the interface: linux/idxd.h, the idxd driver's sysfs files, the DSA
// architecture specification (statuses, flags, portals).
#ifndef OPD_DSA_H
#define OPD_DSA_H
#include <stddef.h>
#include <stdint.h>

#include "opd/dto.h"

enum {
    OPD_DSA_QUEUES_MOST = 64,
    OPD_DSA_FINDINGS_MOST = 256,
    OPD_DSA_TEXT = 192,
    OPD_DSA_NAME = 24,
    OPD_DSA_STATUSES = 128, // DSA_COMP_STATUS_MASK
    OPD_DSA_LIVE_MOST = 4,  // handles of a process at once
};

enum opd_dsa_opcode {
    OPD_DSA_NOOP = 0,
    OPD_DSA_MEMMOVE = 3,
    OPD_DSA_FILL = 4,
    OPD_DSA_COMPARE = 5
};

enum opd_dsa_flag {
    OPD_DSA_RECORD_VALID = 0x4, // the record's address is given
    OPD_DSA_RECORD_WANTED = 0x8,
    OPD_DSA_CACHE_CONTROL = 0x100, // the destination goes into the last-level cache
};

enum opd_dsa_status {
    OPD_DSA_SUCCESS = 0x01,
    OPD_DSA_PAGE_FAULT = 0x03,  // no block-on-fault: bytes_completed are done
    OPD_DSA_WRITE_FAULT = 0x80, // bit beside it
};

struct opd_dsa_descriptor {
    uint32_t pasid;        // filled by the CPU or the kernel
    uint32_t flags_opcode; // flags 0-23, opcode 24-31
    uint64_t record;       // 32-byte aligned
    uint64_t source;       // or the pattern of a fill
    uint64_t destination;  // or the second operand of a compare
    uint32_t bytes;
    uint16_t interrupt, reserved;
    uint8_t specific[24];
};

struct opd_dsa_record {
    uint8_t status; // the device never writes 0
    uint8_t result; // memmove: 1 = from the end backwards; compare: 1 = different
    uint16_t reserved;
    uint32_t bytes_completed; // compare that differs: where
    uint64_t fault_address;
    uint8_t specific[16];
};

_Static_assert(sizeof(struct opd_dsa_descriptor) == 64, "a descriptor is 64 bytes");
_Static_assert(offsetof(struct opd_dsa_descriptor, source) == 16, "source at 16");
_Static_assert(offsetof(struct opd_dsa_descriptor, bytes) == 32, "size at 32");
_Static_assert(sizeof(struct opd_dsa_record) == 32, "a record is 32 bytes");
_Static_assert(offsetof(struct opd_dsa_record, fault_address) == 8, "fault address at 8");

// What this CPU has of the instructions that queues need.
struct opd_dsa_cpu {
    uint32_t enqcmd, movdir64b, waitpkg; // CPUID leaf 7, ECX bits 29, 28, 5
    uint32_t reserved;
    uint64_t tsc_hz; // CPUID leaf 0x15; 0: not said
};
void opd_dsa_cpu(struct opd_dsa_cpu *out);

enum opd_dsa_op { OPD_DSA_COPY, OPD_DSA_MOVE, OPD_DSA_SET, OPD_DSA_CMP, OPD_DSA_OPS };

enum opd_dsa_wait { OPD_DSA_BUSYPOLL, OPD_DSA_YIELD, OPD_DSA_UMWAIT, OPD_DSA_TPAUSE };

struct opd_dsa_options {
    const char *sys, *dev; // NULL: /sys and /dev
    const char *queues;    // names by spaces, such as "wq0.0 wq1.0"; NULL: all that can be used
    const struct opd_dsa_cpu *cpu;            // NULL: what CPUID says
    const struct opd_dto_functions *fallback; // what the CPU does; NULL, also in it: libc's
    uint64_t least[OPD_DSA_OPS];              // smaller calls are the CPU's
    uint64_t timeout_ns;                      // 0: 2 s; and 1 ns a byte beside
    uint32_t wait;                            // enum opd_dsa_wait
    uint32_t no_cache_control;
    uint32_t near;      // 1: queues of the calling CPU's node go first
    uint32_t look_only; // 1: one shared queue is opened at most, to try it; 2: none is
};

// One check: `what` was looked at (bus, state, SVA, type, mode, permission …),
// `where` (dsa0, wq0.0 or nothing), what was found, and what to do when it is not ok.
struct opd_dsa_finding {
    uint32_t ok;
    char what[OPD_DSA_NAME], where[OPD_DSA_NAME];
    char text[OPD_DSA_TEXT], remedy[OPD_DSA_TEXT];
};

struct opd_dsa_report {
    uint32_t count, beyond;        // `beyond`: findings for which there was no room
    uint32_t usable;               // queues
    uint32_t furthest;             // internal: the check that `reason` is of
    char reason[2 * OPD_DSA_TEXT]; // when none is: the check that failed, of the queue that got
                                   // furthest
    struct opd_dsa_finding findings[OPD_DSA_FINDINGS_MOST];
};

// Calls and bytes of one op, of this process and those it forked.
struct opd_dsa_op_counts {
    uint64_t calls;
    uint64_t small;                   // below `least`
    uint64_t nested;                  // from a signal handler in the middle of another one
    uint64_t near_overlap;            // operands less than a page apart
    uint64_t descriptors;             // completed by the device, whatever their status
    uint64_t device_bytes, cpu_bytes; // of calls meant for the device
    uint64_t busy;                    // the queue took no more, or no lane was free
    uint64_t refused;  // no queue can be used: not any longer, or they are being opened
    uint64_t faults;   // ended at a page fault; the CPU went on there
    uint64_t redone;   // ended with another status; the CPU did it again
    uint64_t timeouts; // never completed: the queue is not used again
};

struct opd_dsa_counts {
    struct opd_dsa_op_counts ops[OPD_DSA_OPS];
    uint64_t status[OPD_DSA_STATUSES];
    uint64_t opened, open_failed; // processes that opened queues
};

struct opd_dsa;

// Looks, tries each queue once with a NOOP, and closes it again. 0; -ENODEV when no
// queue can be used (report->reason says why); -EINVAL for options, also with a
// reason; -EMFILE beyond OPD_DSA_LIVE_MOST; -ENOMEM.
int opd_dsa_create(const struct opd_dsa_options *options, struct opd_dsa_report *report,
                   struct opd_dsa **out);
void opd_dsa_destroy(struct opd_dsa *dsa);

// Four functions by libc's contract, for any thread, after fork() and in signal
// handlers. Queues are opened by the first call of a process that needs them.
// A handler must not leave by siglongjmp: its thread then stays with the CPU.
const struct opd_dto_functions *opd_dsa_functions(const struct opd_dsa *dsa);

// Closes this process's queues until the next call. No thread may be in a call.
void opd_dsa_let_go(struct opd_dsa *dsa);

void opd_dsa_counts(const struct opd_dsa *dsa, struct opd_dsa_counts *out);
uint32_t opd_dsa_queue_count(const struct opd_dsa *dsa);
// Name and way ("wq0.0: enqcmd, shared, 128 entries, 2097152 bytes most"); returns its length.
int opd_dsa_queue_text(const struct opd_dsa *dsa, uint32_t index, char *text, size_t room);
const char *opd_dsa_status_text(uint32_t status);

// Where the device begins to pay: sizes by twos from 4 KiB to `most`, device and
// CPU in turn, `pairs` of each. From the smallest size on from which the device won
// at every larger one by more than chance would give once in a hundred (sign test).
// Of the ops whose bits are set in `ops`; sets their `least`; UINT64_MAX: nowhere.
enum { OPD_DSA_SIZES_MOST = 20, OPD_DSA_PAIRS_MOST = 255 };
struct opd_dsa_crossover {
    uint32_t sizes, pairs, wins_needed, reserved;
    uint64_t bytes[OPD_DSA_SIZES_MOST];
    uint32_t wins[OPD_DSA_OPS][OPD_DSA_SIZES_MOST];
    double cpu_ns[OPD_DSA_OPS][OPD_DSA_SIZES_MOST], device_ns[OPD_DSA_OPS][OPD_DSA_SIZES_MOST];
    uint64_t least[OPD_DSA_OPS];
};
int opd_dsa_cross(struct opd_dsa *dsa, uint32_t ops, uint64_t most, uint32_t pairs,
                  struct opd_dsa_crossover *out);
// Of `pairs` tosses of a coin, the number of heads that comes once in a hundred or less.
uint32_t opd_dsa_wins_needed(uint32_t pairs);
#endif
