// SPDX-License-Identifier: Apache-2.0
// The registers of a payload, checked by size and caps, and their fields.
#include "opd/ibs.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "ibs_facts.h"

#define KERNEL_5_10 (5u << 16 | 10u)
#define SLOTS_MAX 16u

// A payload's registers as far as they are whole.
struct payload {
    uint32_t caps;
    unsigned count; // registers promised and there
    uint32_t flaws;
    uint64_t slots[SLOTS_MAX];
};

uint32_t
opd_ibs_kernel(const char *release)
{
    if (!isdigit((unsigned char)release[0]))
        return 0;
    char *end;
    unsigned long major = strtoul(release, &end, 10);
    if (major > 0xffff || *end != '.' || !isdigit((unsigned char)end[1]))
        return 0;
    unsigned long minor = strtoul(end + 1, NULL, 10);
    return (uint32_t)major << 16 | (minor > 0xffff ? 0xffffu : (uint32_t)minor);
}

// The decimal number at *text and the comma or end behind it.
static bool
take_number(const char **text, uint32_t *number)
{
    if (!isdigit((unsigned char)**text))
        return false;
    char *end;
    unsigned long value = strtoul(*text, &end, 10);
    if ((*end != ',' && *end != '\0') || value > 0xffff)
        return false;
    *text = *end == ',' ? end + 1 : end;
    *number = (uint32_t)value;
    return true;
}

bool
opd_ibs_cpuid(const char *cpuid, struct opd_ibs_machine *machine)
{
    static const char vendor[] = "AuthenticAMD,";
    uint32_t family, model;
    if (strncmp(cpuid, vendor, sizeof vendor - 1) != 0)
        return false;
    const char *at = cpuid + sizeof vendor - 1;
    if (!take_number(&at, &family) || !take_number(&at, &model))
        return false;
    machine->family = family;
    machine->model = model;
    return true;
}

const char *
opd_ibs_flavour_name(enum opd_ibs_flavour flavour)
{
    return flavour == OPD_IBS_FETCH ? "ibs_fetch" : "ibs_op";
}

static inline uint32_t
field(uint64_t word, unsigned low, unsigned width)
{
    return (uint32_t)(word >> low & (((uint64_t)1 << width) - 1));
}

static inline uint8_t
bit(uint64_t word, unsigned number)
{
    return (uint8_t)(word >> number & 1);
}

static void
read_caps(struct payload *payload, const uint8_t *raw, size_t size)
{
    *payload = (struct payload){.caps = 0};
    if (size >= sizeof payload->caps)
        memcpy(&payload->caps, raw, sizeof payload->caps);
    else
        payload->flaws |= OPD_IBS_SHORT;
    if ((payload->caps & ~OPD_IBS_CAPS_KNOWN) != 0 || (payload->caps & OPD_IBS_CAPS_AVAIL) == 0)
        payload->flaws |= OPD_IBS_UNKNOWN_CAPS;
    if ((payload->caps & OPD_IBS_CAPS_AVAIL) == 0)
        payload->caps = OPD_IBS_CAPS_AVAIL | OPD_IBS_CAPS_FETCH_SAM | OPD_IBS_CAPS_OP_SAM;
}

// Reads the registers that caps promise (`promised`), as far as there are bytes.
static void
read_slots(struct payload *payload, const uint8_t *raw, size_t size, unsigned promised)
{
    const size_t head = sizeof payload->caps;
    if (size < head)
        return;
    size_t there = (size - head) / sizeof *payload->slots;
    payload->count = there < promised ? (unsigned)there : promised;
    memcpy(payload->slots, raw + head, payload->count * sizeof *payload->slots);
    if (there < promised)
        payload->flaws |= OPD_IBS_SHORT;
    else if (size - head > promised * sizeof *payload->slots)
        payload->flaws |= OPD_IBS_LONG;
}

// Before 5.10 (and what it was backported to) the kernel appended the op's
// registers to a fetch. Where both layouts are as long, nobody can tell what
// the fourth register is.
static unsigned
fetch_slots(const struct opd_ibs_machine *machine, uint32_t caps, size_t size, bool *extended)
{
    unsigned now = 3 + ((caps & OPD_IBS_CAPS_FETCH_CTL_EXTD) != 0);
    unsigned then =
        3 + ((caps & OPD_IBS_CAPS_BRN_TRGT) != 0) + ((caps & OPD_IBS_CAPS_OP_DATA4) != 0);
    *extended = now > 3;
    if (machine->kernel == 0 || machine->kernel >= KERNEL_5_10)
        return now;
    if (now == then) {
        *extended = false;
        return now;
    }
    if (size == sizeof caps + now * sizeof(uint64_t))
        return now;
    *extended = false;
    return then;
}

static enum opd_ibs_page
fetch_page(const struct opd_ibs_machine *machine, uint8_t code)
{
    static const uint8_t pages[4] = {OPD_IBS_PAGE_4K, OPD_IBS_PAGE_2M, OPD_IBS_PAGE_1G,
                                     OPD_IBS_PAGE_UNKNOWN};
    static const uint8_t pages_1347[4] = {OPD_IBS_PAGE_4K, OPD_IBS_PAGE_16K, OPD_IBS_PAGE_2M,
                                          OPD_IBS_PAGE_1G};
    return (enum opd_ibs_page)(opd_ibs_is_early_zen3(machine) ? pages_1347 : pages)[code];
}

static void
decode_fetch_ctl(const struct opd_ibs_machine *machine, struct opd_ibs_fetch *out)
{
    const uint64_t ctl = out->ctl;
    out->max_count = field(ctl, 0, 16) << 4;
    out->count = field(ctl, 16, 16) << 4;
    out->latency = (uint16_t)field(ctl, 32, 16);
    out->enabled = bit(ctl, 48);
    out->valid = bit(ctl, 49);
    out->complete = bit(ctl, 50);
    out->ic_miss = bit(ctl, 51);
    out->physical_valid = bit(ctl, 52);
    out->page_code = (uint8_t)field(ctl, 53, 2);
    out->l1_tlb_miss = bit(ctl, 55);
    out->l2_tlb_miss = bit(ctl, 56);
    out->random = bit(ctl, 57);
    out->l2_miss = bit(ctl, 58);
    if (!opd_ibs_is_zen6(machine) || out->physical_valid)
        out->has |= OPD_IBS_FETCH_HAS_STATUS;
    const bool status = (out->has & OPD_IBS_FETCH_HAS_STATUS) != 0;
    if (status && !opd_ibs_is_early_zen3(machine))
        out->has |= OPD_IBS_FETCH_HAS_IC_MISS;
    if (out->physical_valid)
        out->page = (uint8_t)fetch_page(machine, out->page_code);
    if (out->page != OPD_IBS_PAGE_UNKNOWN)
        out->has |= OPD_IBS_FETCH_HAS_PAGE;
    if (status && out->complete && opd_ibs_is_zen(machine, out->caps))
        out->has |= OPD_IBS_FETCH_HAS_L2_MISS;
    if (out->caps & OPD_IBS_CAPS_ZEN4) {
        out->l3_miss_only = bit(ctl, 59);
        out->op_cache_miss = bit(ctl, 60);
        out->l3_miss = bit(ctl, 61);
        if (status)
            out->has |= OPD_IBS_FETCH_HAS_ZEN4;
    }
}

uint32_t
opd_ibs_decode_fetch(const struct opd_ibs_machine *machine, const void *raw, size_t size,
                     struct opd_ibs_fetch *out)
{
    struct payload payload;
    bool extended;
    read_caps(&payload, raw, size);
    read_slots(&payload, raw, size, fetch_slots(machine, payload.caps, size, &extended));
    *out = (struct opd_ibs_fetch){.caps = payload.caps, .flaws = payload.flaws};
    if (payload.count > 0) {
        out->ctl = payload.slots[0];
        out->has |= OPD_IBS_FETCH_HAS_CTL;
        decode_fetch_ctl(machine, out);
    }
    if (payload.count > 1) {
        out->linear = payload.slots[1];
        out->has |= OPD_IBS_FETCH_HAS_LINEAR;
    }
    if (payload.count > 2) {
        out->physical = payload.slots[2];
        out->has |= OPD_IBS_FETCH_HAS_PHYSICAL;
    }
    if (payload.count > 3 && extended) {
        out->extended = payload.slots[3];
        out->itlb_refill_latency = (uint16_t)field(out->extended, 0, 16);
        if (out->has & OPD_IBS_FETCH_HAS_STATUS)
            out->has |= OPD_IBS_FETCH_HAS_EXTENDED;
    }
    if (!out->valid)
        out->flaws |= OPD_IBS_NOT_VALID;
    else if (opd_ibs_is_early_zen3(machine) && payload.count > 1 && out->linear == 0)
        out->flaws |= OPD_IBS_IGNORED; // erratum 1197
    return out->flaws;
}

static void
decode_op_ctl(struct opd_ibs_op *out)
{
    const uint64_t ctl = out->ctl;
    out->max_count = field(ctl, 0, 16) << 4;
    if (out->caps & OPD_IBS_CAPS_OP_CNT_EXT)
        out->max_count |= field(ctl, 20, 7) << 20;
    out->enabled = bit(ctl, 17);
    out->valid = bit(ctl, 18);
    out->count_ops = bit(ctl, 19);
    out->current_count = field(ctl, 32, 27);
    if (out->caps & OPD_IBS_CAPS_ZEN4)
        out->l3_miss_only = bit(ctl, 16);
    if (out->caps & OPD_IBS_CAPS_OP_LD_LAT) {
        out->load_latency_threshold = (uint16_t)((field(ctl, 59, 4) + 1) * 128);
        out->load_latency_enabled = bit(ctl, 63);
    }
}

static void
decode_op_data(const struct opd_ibs_machine *machine, struct opd_ibs_op *out)
{
    const uint64_t data = out->data;
    out->completion_to_retire = (uint16_t)field(data, 0, 16);
    out->tag_to_retire = (uint16_t)field(data, 16, 16);
    if (!opd_ibs_is_zen(machine, out->caps)) {
        out->resync = bit(data, 32);
        out->mispredicted_return = bit(data, 33);
    }
    out->op_return = bit(data, 34);
    out->branch_taken = bit(data, 35);
    out->branch_mispredicted = bit(data, 36);
    out->branch_retired = bit(data, 37);
    if ((out->caps & OPD_IBS_CAPS_RIP_INVALID_CHK) && machine->family != 0x10)
        out->rip_invalid = bit(data, 38);
    if (out->caps & OPD_IBS_CAPS_OP_BRN_FUSE)
        out->branch_fused = bit(data, 39);
    out->microcode = bit(data, 40);
}

static void
decode_op_data2(const struct opd_ibs_machine *machine, struct opd_ibs_op *out)
{
    const uint64_t data2 = out->data2;
    out->data_source = (uint8_t)field(data2, 0, 3);
    if (out->caps & OPD_IBS_CAPS_ZEN4)
        out->data_source |= (uint8_t)(field(data2, 6, 2) << 3);
    if (machine->family != 0x12 && machine->family != 0x14) { // one node, no states
        out->remote_node = bit(data2, 4);
        out->cache_hit_owned = bit(data2, 5);
    }
    if (out->caps & OPD_IBS_CAPS_STRMST_RMTSOCKET) {
        out->streaming_store = bit(data2, 8);
        out->remote_socket = bit(data2, 9);
    }
}

static enum opd_ibs_page
op_page(const struct opd_ibs_op *op)
{
    static const uint8_t sizes[4] = {OPD_IBS_PAGE_4K, OPD_IBS_PAGE_2M, OPD_IBS_PAGE_1G,
                                     OPD_IBS_PAGE_UNKNOWN};
    if (op->caps & OPD_IBS_CAPS_OP_DTLB_PGSIZE)
        return op->physical_valid
                   ? (enum opd_ibs_page)sizes[op->l1_tlb_hit_1g << 1 | op->l1_tlb_hit_2m]
                   : OPD_IBS_PAGE_UNKNOWN;
    if (!op->linear_valid || (op->l1_tlb_miss && op->l2_tlb_miss))
        return OPD_IBS_PAGE_UNKNOWN;
    if (!op->l1_tlb_miss)
        return op->l1_tlb_hit_2m   ? OPD_IBS_PAGE_2M
               : op->l1_tlb_hit_1g ? OPD_IBS_PAGE_1G
                                   : OPD_IBS_PAGE_4K;
    return (enum opd_ibs_page)sizes[op->l2_tlb_hit_1g << 1 | op->l2_tlb_hit_2m];
}

static void
decode_op_data3(const struct opd_ibs_machine *machine, struct opd_ibs_op *out)
{
    uint64_t data3 = out->data3;
    const bool zen = opd_ibs_is_zen(machine, out->caps);
    if (machine->family == 0x14) // reserved there
        data3 &= ~((uint64_t)1 << 5 | 1u << 9 | 1u << 10 | 1u << 12 | 1u << 19);
    out->load = bit(data3, 0);
    out->store = bit(data3, 1);
    out->l1_tlb_miss = bit(data3, 2);
    out->l2_tlb_miss = bit(data3, 3);
    out->l1_tlb_hit_2m = bit(data3, 4);
    out->l1_tlb_hit_1g = bit(data3, 5);
    out->l2_tlb_hit_2m = bit(data3, 6);
    out->dc_miss = bit(data3, 7);
    out->misaligned = bit(data3, 8);
    if (!zen) {
        out->load_bank_conflict = bit(data3, 9);
        out->store_bank_conflict = bit(data3, 10);
        out->store_forward = bit(data3, 11);
        out->store_forward_cancelled = bit(data3, 12);
    }
    out->wc_access = bit(data3, 13);
    out->uc_access = bit(data3, 14);
    out->locked = bit(data3, 15);
    out->no_mab_alloc = bit(data3, 16);
    out->linear_valid = bit(data3, 17);
    out->physical_valid = bit(data3, 18);
    out->l2_tlb_hit_1g = bit(data3, 19);
    out->dc_miss_latency = (uint16_t)field(data3, 32, 16);
    if (zen) {
        uint32_t width = field(data3, 22, 4);
        out->l2_miss = bit(data3, 20);
        out->software_prefetch = bit(data3, 21);
        out->width = width > 0 ? (uint16_t)(1u << (width - 1)) : 0;
        out->open_mem_reqs = (uint8_t)field(data3, 26, 6);
        out->tlb_refill_latency = (uint16_t)field(data3, 48, 16);
    }
    out->page = (uint8_t)op_page(out);
}

// What of the fields means something.
static void
judge_op(const struct opd_ibs_machine *machine, struct opd_ibs_op *out)
{
    const bool zen = opd_ibs_is_zen(machine, out->caps);
    const bool broken = opd_ibs_is_1293(machine, out);
    const bool missed = (out->has & OPD_IBS_OP_HAS_DATA3) && out->load && out->dc_miss;
    if (missed)
        out->has |= OPD_IBS_OP_HAS_MISS_LATENCY;
    if (missed && !broken && (out->has & OPD_IBS_OP_HAS_DATA2) && out->data_source != 0)
        out->has |= OPD_IBS_OP_HAS_SOURCE;
    const bool cache = out->data_source == 2 || ((out->caps & OPD_IBS_CAPS_ZEN4) &&
                                                 (out->data_source == 1 || out->data_source == 5));
    if ((out->has & OPD_IBS_OP_HAS_SOURCE) && cache && opd_ibs_tells_cache_state(machine))
        out->has |= OPD_IBS_OP_HAS_CACHE_STATE;
    if ((out->has & OPD_IBS_OP_HAS_DATA3) && zen && !broken)
        out->has |= OPD_IBS_OP_HAS_L2_MISS;
    if ((out->has & OPD_IBS_OP_HAS_DATA3) && zen && out->l1_tlb_miss &&
        (!(out->caps & OPD_IBS_CAPS_ZEN4) || out->physical_valid))
        out->has |= OPD_IBS_OP_HAS_REFILL_LATENCY;
    const bool told = !(out->caps & OPD_IBS_CAPS_RIP_INVALID_CHK) || machine->family == 0x10 ||
                      (out->has & OPD_IBS_OP_HAS_DATA);
    if ((out->has & OPD_IBS_OP_HAS_RIP) && told && !out->rip_invalid)
        out->has |= OPD_IBS_OP_HAS_RIP_VALID;
}

uint32_t
opd_ibs_decode_op(const struct opd_ibs_machine *machine, const void *raw, size_t size,
                  struct opd_ibs_op *out)
{
    struct payload payload;
    read_caps(&payload, raw, size);
    *out = (struct opd_ibs_op){.caps = payload.caps};
    uint64_t *const registers[] = {&out->ctl,      &out->rip,    &out->data,
                                   &out->data2,    &out->data3,  &out->linear,
                                   &out->physical, &out->target, &out->data4};
    // The last two are there by caps; a register's bit is that of its place.
    uint8_t places[sizeof registers / sizeof *registers] = {0, 1, 2, 3, 4, 5, 6};
    unsigned promised = 7;
    if (payload.caps & OPD_IBS_CAPS_BRN_TRGT)
        places[promised++] = 7;
    if (payload.caps & OPD_IBS_CAPS_OP_DATA4)
        places[promised++] = 8;
    read_slots(&payload, raw, size, promised);
    out->flaws = payload.flaws;
    for (unsigned i = 0; i < payload.count; i++) {
        *registers[places[i]] = payload.slots[i];
        out->has |= 1u << places[i];
    }
    if (out->has & OPD_IBS_OP_HAS_CTL)
        decode_op_ctl(out);
    if (out->has & OPD_IBS_OP_HAS_DATA)
        decode_op_data(machine, out);
    if (out->has & OPD_IBS_OP_HAS_DATA2)
        decode_op_data2(machine, out);
    if (out->has & OPD_IBS_OP_HAS_DATA3)
        decode_op_data3(machine, out);
    if (out->has & OPD_IBS_OP_HAS_DATA4)
        out->load_resync = bit(out->data4, 0);
    judge_op(machine, out);
    if (!out->valid)
        out->flaws |= OPD_IBS_NOT_VALID;
    return out->flaws;
}
