// SPDX-License-Identifier: Apache-2.0
// A DSA work queue in software, for tests on machines without one. Linked into a
// test or preloaded, it answers for files below a root folder: their open, mmap
// and write, and, from a SIGILL handler, ENQCMD, MOVDIR64B, UMONITOR, UMWAIT and
// TPAUSE. What goes wrong on real devices can be made to go wrong.
//
// Preloaded, it is set by DSA_EMULATOR_<FIELD in capitals>=number, and
// DSA_EMULATOR_ROOT=folder, which then also stands for /sys/bus/dsa,
// /sys/module/idxd and /dev/dsa.
#ifndef DSA_EMULATOR_H
#define DSA_EMULATOR_H
#include <stdbool.h>
#include <stdint.h>

struct dsa_emulator_settings {
    int64_t refuse_mmap;  // 1: EPERM, as unsafe parts do without CAP_SYS_RAWIO
    int64_t refuse_open;  // an errno for open
    int64_t busy_percent; // of descriptors: ZF=1 or EAGAIN
    int64_t delay_ns;     // from taking a descriptor to executing it, on a thread
    int64_t late_ns;      // from executing it to writing the record
    int64_t status;       // given instead of executing; bit 7 too
    int64_t every;        // ... to each so-manieth descriptor, and so hang; 0: none
    int64_t hang;         // 1: those never complete
    int64_t spoil;        // 1: what ends with `status` has half of its destination wrong
    int64_t fault_page;   // this page of the operand is not there, from 1; 0: all are; -1: random
    int64_t fault_source; // 1: of the source
    int64_t backwards;    // 1: moves go from the end, result 1
    int64_t real_pages;   // 1: pages that are not there (pagemap) fault
    int64_t vanish_after; // descriptors; then the device is gone; 0: never
    int64_t noop_status;  // of NOOPs
};

struct dsa_emulator_counts {
    uint64_t taken, busy, completed, faults, instructions, waits, opens;
    uint64_t violations; // what a program must not do; the last one in words
    const char *violation;
};

extern struct dsa_emulator_settings dsa_emulator;
extern struct dsa_emulator_counts dsa_emulator_counts;

// Everything as at the start: no faults, counts 0.
void dsa_emulator_reset(void);
void dsa_emulator_root(const char *folder);
// Makes root/sys/bus/dsa/devices/wqD.M and dsaD, and root/dev/dsa/wqD.M.
void dsa_emulator_make(const char *root, unsigned device, unsigned queue, bool dedicated,
                       unsigned size, uint64_t most);
// One more file of it.
void dsa_emulator_put(const char *root, const char *name, const char *file, const char *value);

// ---- between shim.c and engine.c

struct emulated_queue {
    int fd, pid;
    bool dedicated;
    uint32_t size;
    uint64_t most;
    void *portal;
    _Atomic uint32_t in_flight;
    _Atomic uint32_t used;
};

enum taken { TAKEN, BUSY, GONE };
enum taken engine_submit(struct emulated_queue *queue, const void *descriptor);
void engine_forget(struct emulated_queue *queue); // its descriptors never complete
void engine_start(void);
bool engine_gone(void);
void engine_violation(const char *what);
#endif
