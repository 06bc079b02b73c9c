// SPDX-License-Identifier: Apache-2.0
// The derived events, in order of number: one row an event, here and nowhere
// else. Numbers, names and conditions up to 0xf24c are oprofile's (0xf00d,
// 0xf214 and 0xf218 are reserved and never fire); what it left out and what
// Zen added follows its scheme. Bits are written as in AMD's references:
//   FC IbsFetchCtl  FX IcIbsExtdCtl  D1 IbsOpData  D2 IbsOpData2
//   D3 IbsOpData3   D4 IbsOpData4    "+N" adds that field, else one sample
#include "ibs_facts.h"

// Where an event is valid.
#define ALL "all families"
#define ZEN "Zen (family 17h) on"
#define ZEN4 "Zen4 on (caps bit 11)"
#define ZEN6 "Zen6 (caps bit 16)"
#define ZEN_TO_ZEN3 "Zen to Zen3 (family 17h on, caps without bit 11)"
#define NO_1238 "all families but 19h models 00h-0fh"
#define OLD "families 10h to 16h; reserved from Zen on"
#define OLD_BUT_14H "families 10h, 12h, 15h; reserved on 14h and from Zen on"
#define NODES "all families; 12h and 14h have one node (D2.4 reserved)"
#define REMOTES "all families but 12h and 14h (D2.4 reserved)"
#define STATES                                                                                     \
    "all families but 19h models 00h-0fh and 20h-5fh (D2.5 not valid); 12h and 14h "               \
    "have D2.5 reserved"
// Errata, and what else to know.
#define NONE ""
#define AT_ZEN6 "Zen6: only with FC52"
#define AT_1238 "1238: FC51 says nothing on family 19h models 00h-0fh; Zen6: only with FC52"
#define AT_1347 "1347: family 19h models 00h-0fh code 4K, 16K, 2M, 1G as 0 to 3"
#define AT_1293 "1293: not told on family 19h models 00h-0fh with D3.16 or D3.21"
#define SOURCE                                                                                     \
    "source is D2.2:0, from Zen4 on (D2.7:6, D2.2:0); 1293: not told on family 19h "               \
    "models 00h-0fh with D3.16 or D3.21"
#define SOURCE4 "source is (D2.7:6, D2.2:0)"
#define PAGE_4K "caps bit 19: D3.5:4 is the page size (0) and D3.18 is needed"
#define PAGE_2M "caps bit 19: D3.5:4 is the page size (1) and D3.18 is needed"
#define PAGE_1G "caps bit 19: D3.5:4 is the page size (2) and D3.18 is needed"

// number, name, facts, facts that must not hold, description, condition, where
// it is valid, errata, and what else there is
#define EVENT(n, who, facts, but, says, bits, told, ...)                                           \
    {.number = (n),                                                                                \
     .flavour = (n) < 0xf100 ? OPD_IBS_FETCH : OPD_IBS_OP,                                         \
     .name = (who),                                                                                \
     .unit = "count",                                                                              \
     .must = (facts),                                                                              \
     .not_ = (but),                                                                                \
     .description = (says),                                                                        \
     .condition = (bits),                                                                          \
     .valid = (told),                                                                              \
     .errata = __VA_ARGS__}
// The same with a field that is added: which, whether 0 is no event, its unit.
#define SUM(n, who, facts, but, field, no_zero, of, says, bits, told, ...)                         \
    {.number = (n),                                                                                \
     .flavour = (n) < 0xf100 ? OPD_IBS_FETCH : OPD_IBS_OP,                                         \
     .value = OPD_IBS_VALUE_##field,                                                               \
     .nonzero = (no_zero),                                                                         \
     .name = (who),                                                                                \
     .unit = (of),                                                                                 \
     .must = (facts),                                                                              \
     .not_ = (but),                                                                                \
     .description = (says),                                                                        \
     .condition = (bits),                                                                          \
     .valid = (told),                                                                              \
     .errata = __VA_ARGS__}

static const struct opd_ibs_event events[] = {
    EVENT(0xf000, "IBS_FETCH_ALL", F_ANY, 0, "Every tagged fetch that was sampled.",
          "every fetch sample", ALL, NONE),
    EVENT(0xf001, "IBS_FETCH_KILLED", F_KILLED, 0,
          "Fetches killed before anything was known of them.",
          "!FC50 & !FC51 & !FC52 & !FC55 & !FC56",
          "all families but Zen6, where !FC52 says nothing",
          "1238: FC51 is left out on family 19h models 00h-0fh", .where = OPD_IBS_NOT_ZEN6),
    EVENT(0xf002, "IBS_FETCH_ATTEMPTED", F_ANY, F_KILLED, "Fetches that were not killed.",
          "not IBS_FETCH_KILLED", ALL, "as IBS_FETCH_KILLED; oprofile counted killed ones too"),
    EVENT(0xf003, "IBS_FETCH_COMPLETED", F_STATUS | F_COMPLETE, 0,
          "Fetches that delivered to the decoder.", "FC50", ALL, AT_ZEN6),
    EVENT(0xf004, "IBS_FETCH_ABORTED", F_STATUS, F_COMPLETE,
          "Fetches that did not complete, killed ones too.", "!FC50", ALL, AT_ZEN6),
    EVENT(0xf005, "IBS_FETCH_ITLB_HITS", F_PHYSICAL, F_L1_TLB_MISS,
          "Fetches whose address the L1 instruction TLB knew.", "!FC55 & FC52", ALL, NONE),
    EVENT(0xf006, "IBS_FETCH_L1_ITLB_MISSES_L2_ITLB_HITS", F_L1_TLB_MISS, F_L2_TLB_MISS,
          "Fetches that missed the L1 and hit the L2 instruction TLB.", "FC55 & !FC56", ALL,
          AT_ZEN6),
    EVENT(0xf007, "IBS_FETCH_L1_ITLB_MISSES_L2_ITLB_MISSES", F_L1_TLB_MISS | F_L2_TLB_MISS, 0,
          "Fetches that missed both instruction TLBs.", "FC55 & FC56", ALL, AT_ZEN6),
    EVENT(0xf008, "IBS_FETCH_ICACHE_MISSES", F_IC_MISS, 0,
          "Fetches that missed the instruction cache.", "FC51", NO_1238, AT_1238,
          .where = OPD_IBS_NOT_1238),
    EVENT(0xf009, "IBS_FETCH_ICACHE_HITS", F_COMPLETE | F_IC_TOLD, F_IC_MISS,
          "Completed fetches that hit the instruction cache.", "FC50 & !FC51", NO_1238, AT_1238,
          .where = OPD_IBS_NOT_1238),
    EVENT(0xf00a, "IBS_FETCH_4K_PAGE", F_4K, 0, "Fetches from a page of 4 KiB.",
          "FC52 & FC54:53 = 0", ALL, NONE),
    EVENT(0xf00b, "IBS_FETCH_2M_PAGE", F_2M, 0, "Fetches from a page of 2 MiB.",
          "FC52 & FC54:53 = 1 (2 under 1347)", ALL, AT_1347),
    EVENT(0xf00c, "IBS_FETCH_1G_PAGE", F_1G, 0, "Fetches from a page of 1 GiB.",
          "FC52 & FC54:53 = 2 (3 under 1347)", ALL, AT_1347),
    SUM(0xf00e, "IBS_FETCH_LATENCY", F_STATUS, 0, FETCH_LATENCY, true, "cycles",
        "Cycles from the start of a fetch to its end.", "+FC47:32 when not 0", ALL, AT_ZEN6),
    EVENT(0xf010, "IBS_FETCH_L2_MISS", F_L2_MISS, 0, "Completed fetches that missed L2.",
          "FC50 & FC58", ZEN, AT_ZEN6, .family_min = 0x17),
    EVENT(0xf011, "IBS_FETCH_L3_MISS", F_L3_MISS, 0, "Fetches that missed L3.", "FC61", ZEN4,
          AT_ZEN6, .caps = OPD_IBS_CAPS_ZEN4),
    EVENT(0xf012, "IBS_FETCH_OP_CACHE_MISS", F_OC_MISS, 0, "Fetches that missed the op cache.",
          "FC60", ZEN4, AT_ZEN6, .caps = OPD_IBS_CAPS_ZEN4),
    SUM(0xf013, "IBS_FETCH_ITLB_REFILL_LATENCY", F_EXTENDED, 0, ITLB_REFILL_LATENCY, true, "cycles",
        "Cycles in which the instruction TLB was filled for a fetch.", "+FX15:0 when not 0",
        "caps bit 9",
        "not told by kernels before 5.10, whose fourth word may be another register; Zen6: only "
        "with FC52",
        .caps = OPD_IBS_CAPS_FETCH_CTL_EXTD),
    EVENT(0xf014, "IBS_FETCH_16K_PAGE", F_16K, 0,
          "Fetches from four neighbouring pages of 4 KiB that one TLB entry holds.",
          "FC52 & FC54:53 = 1", "family 19h models 00h-0fh", AT_1347, .family_min = 0x19,
          .family_max = 0x19, .where = OPD_IBS_ONLY_1347),
    EVENT(0xf100, "IBS_OP_ALL", O_ANY, 0, "Every tagged op that was sampled.", "every op sample",
          ALL, NONE),
    SUM(0xf101, "IBS_OP_TAG_TO_RETIRE", O_DATA, 0, TAG_TO_RETIRE, true, "cycles",
        "Cycles from the tagging of an op to its retirement.", "+D1.31:16 when not 0", ALL, NONE),
    SUM(0xf102, "IBS_OP_COMP_TO_RET", O_DATA, 0, COMPLETION_TO_RETIRE, true, "cycles",
        "Cycles from the completion of an op to its retirement.", "+D1.15:0 when not 0", ALL, NONE),
    EVENT(0xf103, "IBS_OP_BRANCH_RETIRED", O_BRANCH, 0, "Retired branch ops.", "D1.37", ALL, NONE),
    EVENT(0xf104, "IBS_OP_MISPREDICTED_BRANCH", O_BRANCH | O_MISPREDICTED, 0,
          "Retired branch ops that were mispredicted.", "D1.37 & D1.36", ALL, NONE),
    EVENT(0xf105, "IBS_OP_TAKEN_BRANCH", O_BRANCH | O_TAKEN, 0,
          "Retired branch ops that were taken.", "D1.37 & D1.35", ALL, NONE),
    EVENT(0xf106, "IBS_OP_MISPREDICTED_BRANCH_TAKEN", O_BRANCH | O_TAKEN | O_MISPREDICTED, 0,
          "Retired branch ops that were taken and mispredicted.", "D1.37 & D1.35 & D1.36", ALL,
          NONE),
    EVENT(0xf107, "IBS_OP_RETURNS", O_BRANCH | O_RETURN, 0, "Retired return ops.", "D1.37 & D1.34",
          ALL, NONE),
    EVENT(0xf108, "IBS_OP_MISPREDICTED_RETURNS", O_BRANCH | O_RETURN | O_MISPREDICTED, 0,
          "Retired return ops that were mispredicted.", "D1.37 & D1.34 & D1.36", ALL, NONE),
    EVENT(0xf109, "IBS_OP_RESYNC", O_RESYNC, 0, "Ops that resynchronised the pipeline.", "D1.32",
          OLD, NONE, .family_max = 0x16),
    EVENT(0xf10a, "IBS_OP_BRANCH_FUSED", O_FUSED, 0, "Branch ops fused with the op before them.",
          "D1.39", "caps bit 8", NONE, .caps = OPD_IBS_CAPS_OP_BRN_FUSE),
    EVENT(0xf10b, "IBS_OP_MICROCODE", O_MICROCODE, 0, "Ops that came from microcode.", "D1.40", ZEN,
          NONE, .family_min = 0x17),
    EVENT(0xf10c, "IBS_OP_LOAD_RESYNC", O_RESYNC_LOAD, 0, "Loads that resynchronised the pipeline.",
          "D4.0", "family 15h with caps bit 10 (Carrizo, Stoney)", NONE, .family_min = 0x15,
          .family_max = 0x15, .caps = OPD_IBS_CAPS_OP_DATA4),
    EVENT(0xf200, "IBS_OP_ALL_LOAD_STORE", O_ACCESS, 0, "Ops that load or store.", "D3.0 | D3.1",
          ALL, NONE),
    EVENT(0xf201, "IBS_OP_LOAD", O_LOAD, 0, "Ops that load.", "D3.0", ALL, NONE),
    EVENT(0xf202, "IBS_OP_STORE", O_STORE, 0, "Ops that store.", "D3.1", ALL, NONE),
    EVENT(0xf203, "IBS_OP_L1_DTLB_HITS", O_ACCESS | O_LINEAR, O_L1_TLB_MISS,
          "Accesses whose address the L1 data TLB knew.", "(D3.0 | D3.1) & D3.17 & !D3.2", ALL,
          NONE),
    EVENT(0xf204, "IBS_OP_L1_DTLB_MISS_L2_DTLB_HIT", O_ACCESS | O_LINEAR | O_L1_TLB_MISS,
          O_L2_TLB_MISS, "Accesses that missed the L1 and hit the L2 data TLB.",
          "(D3.0 | D3.1) & D3.17 & D3.2 & !D3.3", ALL, NONE),
    EVENT(0xf205, "IBS_OP_L1_L2_DTLB_MISS", O_ACCESS | O_LINEAR | O_L1_TLB_MISS | O_L2_TLB_MISS, 0,
          "Accesses that missed both data TLBs.", "(D3.0 | D3.1) & D3.17 & D3.2 & D3.3", ALL, NONE),
    EVENT(0xf206, "IBS_OP_DATA_CACHE_MISS", O_ACCESS | O_DC_MISS, 0,
          "Accesses that missed the data cache.", "(D3.0 | D3.1) & D3.7", ALL, NONE),
    EVENT(0xf207, "IBS_OP_DATA_HITS", O_ACCESS, O_DC_MISS, "Accesses that hit the data cache.",
          "(D3.0 | D3.1) & !D3.7", ALL, NONE),
    EVENT(0xf208, "IBS_OP_MISALIGNED_DATA_ACC", O_ACCESS | O_MISALIGNED, 0,
          "Accesses that cross a boundary.", "(D3.0 | D3.1) & D3.8", ALL, NONE),
    EVENT(0xf209, "IBS_OP_BANK_CONF_LOAD", O_ACCESS | O_LOAD_CONFLICT, 0,
          "Loads that met another access of the same cache bank.", "(D3.0 | D3.1) & D3.9",
          OLD_BUT_14H, NONE, .family_max = 0x16),
    EVENT(0xf20a, "IBS_OP_BANK_CONF_STORE", O_ACCESS | O_STORE_CONFLICT, 0,
          "Stores that met another access of the same cache bank.", "(D3.0 | D3.1) & D3.10",
          OLD_BUT_14H, NONE, .family_max = 0x16),
    EVENT(0xf20b, "IBS_OP_FORWARD", O_ACCESS | O_LOAD | O_FORWARD, 0,
          "Loads that a store before them gave its data.", "D3.0 & D3.11", OLD, NONE,
          .family_max = 0x16),
    EVENT(0xf20c, "IBS_OP_CANCELLED", O_ACCESS | O_LOAD | O_CANCELLED, 0,
          "Loads that a store before them could not give its data.", "D3.0 & D3.12", OLD_BUT_14H,
          NONE, .family_max = 0x16),
    EVENT(0xf20d, "IBS_OP_DCUC_MEM_ACC", O_ACCESS | O_UC, 0, "Accesses of uncacheable memory.",
          "(D3.0 | D3.1) & D3.14", ALL, NONE),
    EVENT(0xf20e, "IBS_OP_DCWC_MEM_ACC", O_ACCESS | O_WC, 0, "Accesses of write-combining memory.",
          "(D3.0 | D3.1) & D3.13", ALL, NONE),
    EVENT(0xf20f, "IBS_OP_LOCKED", O_ACCESS | O_LOCKED, 0, "Locked accesses.",
          "(D3.0 | D3.1) & D3.15", ALL, NONE),
    EVENT(0xf210, "IBS_OP_MAB_HIT", O_ACCESS | O_NO_MAB, 0,
          "Accesses of a line that was on its way already.", "(D3.0 | D3.1) & D3.16", ALL,
          "717: on family 15h only with D3.7"),
    EVENT(0xf211, "IBS_OP_L1_DTLB_4K", O_ACCESS | O_LINEAR | O_4K, O_L1_TLB_MISS,
          "Accesses of a 4 KiB page that the L1 data TLB knew.",
          "(D3.0 | D3.1) & D3.17 & !D3.2 & !D3.4 & !D3.5", ALL, PAGE_4K),
    EVENT(0xf212, "IBS_OP_L1_DTLB_2M", O_ACCESS | O_LINEAR | O_2M, O_L1_TLB_MISS,
          "Accesses of a 2 MiB page that the L1 data TLB knew.",
          "(D3.0 | D3.1) & D3.17 & !D3.2 & D3.4", ALL, PAGE_2M),
    EVENT(0xf213, "IBS_OP_L1_DTLB_1G", O_ACCESS | O_LINEAR | O_1G, O_L1_TLB_MISS,
          "Accesses of a 1 GiB page that the L1 data TLB knew.",
          "(D3.0 | D3.1) & D3.17 & !D3.2 & !D3.4 & D3.5",
          "all families but 14h, where D3.5 is reserved", PAGE_1G),
    EVENT(0xf215, "IBS_OP_L2_DTLB_4K", O_ACCESS | O_LINEAR | O_L1_TLB_MISS | O_4K, O_L2_TLB_MISS,
          "Accesses of a 4 KiB page that only the L2 data TLB knew.",
          "(D3.0 | D3.1) & D3.17 & D3.2 & !D3.3 & !D3.6 & !D3.19", ALL, PAGE_4K),
    EVENT(0xf216, "IBS_OP_L2_DTLB_2M", O_ACCESS | O_LINEAR | O_L1_TLB_MISS | O_2M, O_L2_TLB_MISS,
          "Accesses of a 2 MiB page that only the L2 data TLB knew.",
          "(D3.0 | D3.1) & D3.17 & D3.2 & !D3.3 & D3.6 & !D3.19", ALL, PAGE_2M),
    EVENT(0xf217, "IBS_OP_L2_DTLB_1G", O_ACCESS | O_LINEAR | O_L1_TLB_MISS | O_1G, O_L2_TLB_MISS,
          "Accesses of a 1 GiB page that only the L2 data TLB knew.",
          "(D3.0 | D3.1) & D3.17 & D3.2 & !D3.3 & !D3.6 & D3.19",
          "all families but 14h, where D3.19 is reserved", PAGE_1G),
    SUM(0xf219, "IBS_OP_DC_LOAD_LAT", O_ACCESS | O_LOAD | O_DC_MISS, 0, DC_MISS_LATENCY, false,
        "cycles", "Cycles in which loads that missed the data cache waited.",
        "D3.0 & D3.7: +D3.47:32", ALL, NONE),
    EVENT(0xf220, "IBS_OP_L2_MISS", O_ACCESS | O_DC_MISS | O_L2_MISS, 0,
          "Accesses that missed the data cache and L2.", "(D3.0 | D3.1) & D3.7 & D3.20", ZEN,
          AT_1293, .family_min = 0x17),
    EVENT(0xf221, "IBS_OP_L3_MISS", O_ACCESS | O_LOAD | O_L2_MISS | O_BEYOND_L3, 0,
          "Loads whose data came from outside their core complex.",
          "D3.0 & D3.7 & D3.20 & source 2, 3, 5, 6, 8 or 12", ZEN4, NONE,
          .caps = OPD_IBS_CAPS_ZEN4),
    EVENT(0xf222, "IBS_OP_SOFTWARE_PREFETCH", O_PREFETCH, 0, "Software prefetches.", "D3.21", ZEN,
          NONE, .family_min = 0x17),
    SUM(0xf223, "IBS_OP_TLB_REFILL_LATENCY", O_ACCESS | O_L1_TLB_MISS | O_REFILL, 0,
        TLB_REFILL_LATENCY, true, "cycles",
        "Cycles in which the data TLB was filled for an access.",
        "(D3.0 | D3.1) & D3.2: +D3.63:48 when not 0", ZEN, "Zen4 on: only with D3.18",
        .family_min = 0x17),
    SUM(0xf224, "IBS_OP_LOAD_LATENCY", O_ACCESS | O_LOAD | O_DC_MISS, O_PREFETCH, DC_MISS_LATENCY,
        false, "cycles",
        "Cycles in which loads that are no prefetches waited for what missed the data cache.",
        "D3.0 & D3.7 & !D3.21: +D3.47:32", ZEN, NONE, .family_min = 0x17),
    SUM(0xf225, "IBS_OP_OPEN_MEM_REQS", O_ACCESS | O_DC_MISS | O_L2_TOLD, 0, OPEN_MEM_REQS, false,
        "requests", "Memory requests that were open when an access missed the data cache.",
        "(D3.0 | D3.1) & D3.7: +D3.31:26", ZEN, AT_1293, .family_min = 0x17),
    EVENT(0xf226, "IBS_OP_STREAMING_STORE", O_STORE | O_STREAMING, 0, "Streaming stores.",
          "D3.1 & D2.8", ZEN6, NONE, .caps = OPD_IBS_CAPS_STRMST_RMTSOCKET),
    EVENT(0xf240, "IBS_OP_NB_LOCAL_ONLY", O_SOURCE, O_REMOTE, "Loads that the own node served.",
          "D3.0 & D3.7 & source & !D2.4", NODES, SOURCE),
    EVENT(0xf241, "IBS_OP_NB_REMOTE_ONLY", O_SOURCE | O_REMOTE, 0,
          "Loads that another node served.", "D3.0 & D3.7 & source & D2.4", REMOTES, SOURCE),
    EVENT(0xf242, "IBS_OP_NB_LOCAL_L3", O_SOURCE | O_SOURCE_1, O_REMOTE,
          "Loads that the own L3 served.", "D3.0 & D3.7 & source & !D2.4 & source 1",
          "all families; Zen to Zen3 reserve the code", SOURCE),
    EVENT(0xf243, "IBS_OP_NB_LOCAL_CACHE", O_SOURCE | O_SOURCE_2, O_REMOTE,
          "Loads that another core's cache of the own node served.",
          "D3.0 & D3.7 & source & !D2.4 & source 2", NODES, SOURCE),
    EVENT(0xf244, "IBS_OP_NB_REMOTE_CACHE", O_SOURCE | O_SOURCE_2 | O_REMOTE, 0,
          "Loads that a cache of another node served.", "D3.0 & D3.7 & source & D2.4 & source 2",
          REMOTES, SOURCE),
    EVENT(0xf245, "IBS_OP_NB_LOCAL_DRAM", O_SOURCE | O_SOURCE_3, O_REMOTE,
          "Loads that the own node's memory served.", "D3.0 & D3.7 & source & !D2.4 & source 3",
          NODES, SOURCE),
    EVENT(0xf246, "IBS_OP_NB_REMOTE_DRAM", O_SOURCE | O_SOURCE_3 | O_REMOTE, 0,
          "Loads that another node's memory served.", "D3.0 & D3.7 & source & D2.4 & source 3",
          REMOTES, SOURCE),
    EVENT(0xf247, "IBS_OP_NB_LOCAL_OTHER", O_SOURCE | O_SOURCE_7, O_REMOTE,
          "Loads that the own node's APIC, MMIO or configuration space served.",
          "D3.0 & D3.7 & source & !D2.4 & source 7", NODES, SOURCE),
    EVENT(0xf248, "IBS_OP_NB_REMOTE_OTHER", O_SOURCE | O_SOURCE_7 | O_REMOTE, 0,
          "Loads that another node's APIC, MMIO or configuration space served.",
          "D3.0 & D3.7 & source & D2.4 & source 7", REMOTES, SOURCE),
    EVENT(0xf249, "IBS_OP_NB_CACHE_MODIFIED", O_SOURCE | O_SOURCE_2 | O_STATE_TOLD, O_OWNED,
          "Loads that another cache served out of a modified line.",
          "D3.0 & D3.7 & source & !D2.5 & source 2", STATES, SOURCE, .where = OPD_IBS_CACHE_STATE),
    EVENT(0xf24a, "IBS_OP_NB_CACHE_OWNED", O_SOURCE | O_SOURCE_2 | O_STATE_TOLD | O_OWNED, 0,
          "Loads that another cache served out of an owned line.",
          "D3.0 & D3.7 & source & D2.5 & source 2", STATES, SOURCE, .where = OPD_IBS_CACHE_STATE),
    SUM(0xf24b, "IBS_OP_NB_LOCAL_CACHE_LAT", O_SOURCE, O_REMOTE, DC_MISS_LATENCY, false, "cycles",
        "Cycles in which loads that the own node served waited.",
        "D3.0 & D3.7 & source & !D2.4: +D3.47:32", NODES, SOURCE),
    SUM(0xf24c, "IBS_OP_NB_REMOTE_CACHE_LAT", O_SOURCE | O_REMOTE, 0, DC_MISS_LATENCY, false,
        "cycles", "Cycles in which loads that another node served waited.",
        "D3.0 & D3.7 & source & D2.4: +D3.47:32", REMOTES, SOURCE),
    EVENT(0xf250, "IBS_OP_SRC_LOCAL_L3", O_SOURCE | O_L2_MISS | O_SOURCE_1, 0,
          "Loads served by the core complex's L3, or by another core's L1 or L2 in it.",
          "D3.0 & D3.7 & D3.20 & source 1", ZEN4, SOURCE4, .caps = OPD_IBS_CAPS_ZEN4),
    EVENT(0xf251, "IBS_OP_SRC_NEAR_CCX", O_SOURCE | O_L2_MISS | O_ZEN4 | O_SOURCE_2, 0,
          "Loads served by another core complex of the own node.", "D3.0 & D3.7 & D3.20 & source 2",
          ZEN4, SOURCE4, .caps = OPD_IBS_CAPS_ZEN4),
    EVENT(0xf252, "IBS_OP_SRC_FAR_CCX", O_SOURCE | O_L2_MISS | O_SOURCE_5, 0,
          "Loads served by a core complex of another node.", "D3.0 & D3.7 & D3.20 & source 5", ZEN4,
          SOURCE4, .caps = OPD_IBS_CAPS_ZEN4),
    EVENT(0xf253, "IBS_OP_SRC_LOCAL_DRAM", O_SOURCE | O_L2_MISS | O_SOURCE_3, O_REMOTE,
          "Loads served by the own node's memory.", "D3.0 & D3.7 & D3.20 & source 3 & !D2.4", ZEN,
          SOURCE, .family_min = 0x17),
    EVENT(0xf254, "IBS_OP_SRC_REMOTE_DRAM", O_SOURCE | O_L2_MISS | O_SOURCE_3 | O_REMOTE, 0,
          "Loads served by another node's memory.", "D3.0 & D3.7 & D3.20 & source 3 & D2.4", ZEN,
          SOURCE, .family_min = 0x17),
    EVENT(0xf255, "IBS_OP_SRC_LONG_LATENCY_DIMM", O_SOURCE | O_L2_MISS | O_SOURCE_6, 0,
          "Loads served by memory marked as slow.", "D3.0 & D3.7 & D3.20 & source 6", ZEN4, SOURCE4,
          .caps = OPD_IBS_CAPS_ZEN4),
    EVENT(0xf256, "IBS_OP_SRC_MMIO", O_SOURCE | O_L2_MISS | O_SOURCE_7, 0,
          "Loads served by MMIO, configuration space or the APIC.",
          "D3.0 & D3.7 & D3.20 & source 7", ZEN, SOURCE, .family_min = 0x17),
    EVENT(0xf257, "IBS_OP_SRC_EXTENSION_MEMORY", O_SOURCE | O_L2_MISS | O_SOURCE_8, 0,
          "Loads served by extension memory (CXL).", "D3.0 & D3.7 & D3.20 & source 8", ZEN4,
          SOURCE4, .caps = OPD_IBS_CAPS_ZEN4),
    EVENT(0xf258, "IBS_OP_SRC_PEER_MEMORY", O_SOURCE | O_L2_MISS | O_SOURCE_12, 0,
          "Loads served by memory of a processor of another kind.",
          "D3.0 & D3.7 & D3.20 & source 12", ZEN4, SOURCE4, .caps = OPD_IBS_CAPS_ZEN4),
    EVENT(0xf259, "IBS_OP_SRC_LOCAL_NODE_CACHE", O_SOURCE | O_L2_MISS | O_SOURCE_2, O_ZEN4,
          "Loads served by L3 or another core's cache of the own node.",
          "D3.0 & D3.7 & D3.20 & source 2", ZEN_TO_ZEN3, SOURCE, .family_min = 0x17,
          .where = OPD_IBS_BEFORE_ZEN4),
    EVENT(0xf25a, "IBS_OP_SRC_REMOTE_NODE_CACHE", O_SOURCE | O_L2_MISS | O_SOURCE_4, O_ZEN4,
          "Loads served by a cache of another node.", "D3.0 & D3.7 & D3.20 & source 4", ZEN_TO_ZEN3,
          SOURCE, .family_min = 0x17, .where = OPD_IBS_BEFORE_ZEN4),
    EVENT(0xf25b, "IBS_OP_SRC_REMOTE_SOCKET", O_SOURCE | O_L2_MISS | O_REMOTE_SOCKET, 0,
          "Loads served by another socket.", "D3.0 & D3.7 & D3.20 & source & D2.9", ZEN6, SOURCE4,
          .caps = OPD_IBS_CAPS_STRMST_RMTSOCKET),
    EVENT(0xf25c, "IBS_OP_SRC_CACHE_MODIFIED", O_SOURCE | O_L2_MISS | O_SHARED_CACHE | O_STATE_TOLD,
          O_OWNED, "Loads served by another cache out of a modified line.",
          "D3.0 & D3.7 & D3.20 & source 1, 2 or 5 & !D2.5",
          "Zen4 on (caps bit 11) but family 19h models 20h-5fh (D2.5 not valid)", SOURCE4,
          .where = OPD_IBS_CACHE_STATE, .caps = OPD_IBS_CAPS_ZEN4),
};

_Static_assert(sizeof events / sizeof *events <= OPD_IBS_EVENTS_MAX, "a mask has no more bits");

const struct opd_ibs_event *
opd_ibs_events(unsigned *count)
{
    *count = sizeof events / sizeof *events;
    return events;
}
