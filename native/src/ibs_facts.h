// SPDX-License-Identifier: Apache-2.0
// What one decoded record says, one bit a fact: a derived event is a set of
// facts that hold and one of facts that do not. A fact holds only when the
// record has the register and the machine tells the field; masks and errata
// are applied here and nowhere else.
#ifndef OPD_IBS_FACTS_H
#define OPD_IBS_FACTS_H

#include "opd/ibs.h"

#define FACT(n) ((uint64_t)1 << (n))

// Of a fetch.
#define F_ANY FACT(0)    // it is a sample
#define F_STATUS FACT(1) // its status bits mean something
#define F_COMPLETE FACT(2)
#define F_IC_MISS FACT(3)
#define F_IC_TOLD FACT(4) // IcMiss means something
#define F_PHYSICAL FACT(5)
#define F_L1_TLB_MISS FACT(6)
#define F_L2_TLB_MISS FACT(7)
#define F_KILLED FACT(8)
#define F_4K FACT(9)
#define F_16K FACT(10)
#define F_2M FACT(11)
#define F_1G FACT(12)
#define F_L2_MISS FACT(13)
#define F_L3_MISS FACT(14)
#define F_OC_MISS FACT(15)
#define F_EXTENDED FACT(16) // IcIbsExtdCtl is there and means something

// Of an op.
#define O_ANY FACT(0)
#define O_DATA FACT(1) // IbsOpData is there
#define O_BRANCH FACT(2)
#define O_RETURN FACT(3) // this and the next two with O_BRANCH only
#define O_TAKEN FACT(4)
#define O_MISPREDICTED FACT(5)
#define O_RESYNC FACT(6)
#define O_FUSED FACT(7)
#define O_MICROCODE FACT(8)
#define O_LOAD FACT(9)
#define O_STORE FACT(10)
#define O_ACCESS FACT(11) // load or store
#define O_LINEAR FACT(12)
#define O_L1_TLB_MISS FACT(13)
#define O_L2_TLB_MISS FACT(14)
#define O_DC_MISS FACT(15)
#define O_MISALIGNED FACT(16)
#define O_LOAD_CONFLICT FACT(17)
#define O_STORE_CONFLICT FACT(18)
#define O_FORWARD FACT(19)
#define O_CANCELLED FACT(20)
#define O_WC FACT(21)
#define O_UC FACT(22)
#define O_LOCKED FACT(23)
#define O_NO_MAB FACT(24)
#define O_L2_MISS FACT(25)
#define O_L2_TOLD FACT(26) // L2Miss and OpenMemReqs mean something
#define O_PREFETCH FACT(27)
#define O_4K FACT(28) // the page of the data, by the TLB that hit
#define O_2M FACT(29)
#define O_1G FACT(30)
#define O_REFILL FACT(31) // TlbRefillLat means something
#define O_STREAMING FACT(32)
#define O_RESYNC_LOAD FACT(33)
#define O_SOURCE FACT(34) // a load that missed, with a data source
#define O_REMOTE FACT(35)
#define O_REMOTE_SOCKET FACT(36)
#define O_STATE_TOLD FACT(37) // CacheHitSt means something on this machine
#define O_OWNED FACT(38)
#define O_ZEN4 FACT(39)
#define O_SOURCE_1 FACT(40) // exactly one of these with O_SOURCE, or none
#define O_SOURCE_2 FACT(41)
#define O_SOURCE_3 FACT(42)
#define O_SOURCE_4 FACT(43)
#define O_SOURCE_5 FACT(44)
#define O_SOURCE_6 FACT(45)
#define O_SOURCE_7 FACT(46)
#define O_SOURCE_8 FACT(47)
#define O_SOURCE_12 FACT(48)
#define O_BEYOND_L3 FACT(49)    // its source lies outside the core complex
#define O_SHARED_CACHE FACT(50) // its source is a cache that tells its line's state

// Which machine it is, in the terms of the kernel's checks.
static inline bool
opd_ibs_is_zen(const struct opd_ibs_machine *machine, uint32_t caps)
{
    return machine->family >= 0x17 ||
           (machine->family == 0 && (caps & OPD_IBS_CAPS_FETCH_CTL_EXTD) != 0);
}

// Family 19h, models 00h-0fh: errata 1197, 1238, 1293 and 1347.
static inline bool
opd_ibs_is_early_zen3(const struct opd_ibs_machine *machine)
{
    return machine->family == 0x19 && machine->model < 0x10;
}

static inline bool
opd_ibs_is_zen6(const struct opd_ibs_machine *machine)
{
    uint32_t model = machine->model;
    if (machine->family != 0x1a)
        return machine->family > 0x1a;
    return (model >= 0x50 && model <= 0x5f) || (model >= 0x80 && model <= 0xaf) ||
           (model >= 0xc0 && model <= 0xcf);
}

// Whether IbsOpData2.CacheHitSt means something.
static inline bool
opd_ibs_tells_cache_state(const struct opd_ibs_machine *machine)
{
    return machine->family != 0x19 || (machine->model > 0xf && machine->model < 0x20) ||
           machine->model > 0x5f;
}

// Erratum 1293: IbsOpData2, L2Miss and OpenMemReqs say nothing.
static inline bool
opd_ibs_is_1293(const struct opd_ibs_machine *machine, const struct opd_ibs_op *op)
{
    return opd_ibs_is_early_zen3(machine) && (op->no_mab_alloc || op->software_prefetch);
}

#endif
