// SPDX-License-Identifier: Apache-2.0
// A cell's memory: mapped by the caller, shared with each round's process, so
// that no copy-on-write fault is in what is measured.
#include "opd/dto.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "dto_private.h"
#include "placing.h"

#define HUGE ((size_t)2 << 20)
#define SIZE_MOST ((uint64_t)1 << 40)

int
dto_fail(char *reason, int error, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int used = vsnprintf(reason, OPD_DTO_REASON, format, list);
    va_end(list);
    if (error && used > 0 && used < OPD_DTO_REASON)
        snprintf(reason + used, (size_t)(OPD_DTO_REASON - used), ": %s", strerror(error));
    return error ? -error : -EIO;
}

static const char *
wrong(const struct opd_dto_options *options)
{
    const struct opd_dto_functions *both[] = {&options->baseline, &options->current};
    if (options->op >= OPD_DTO_OPS || options->pages > OPD_DTO_2M_THP)
        return "a word that is none of its enumeration";
    if (options->size == 0 || options->size > SIZE_MOST)
        return "a size of 0, or above 1 TiB";
    if (options->pf > 100)
        return "more than 100 per cent of operations";
    if (options->source_offset >= 4096 || options->destination_offset >= 4096)
        return "an offset is within the first page: below 4096";
    if (options->overlap && options->op != OPD_DTO_MEMMOVE)
        return "only memmove may have buffers that overlap";
    if (options->overlap > (int64_t)SIZE_MOST || options->overlap < -(int64_t)SIZE_MOST)
        return "an overlap of more than 1 TiB";
    if (options->round_limit_ns == 0)
        return "a round without an end";
    for (int i = 0; i < 2; i++) {
        const struct opd_dto_functions *f = both[i];
        if (f->move == NULL && options->op == OPD_DTO_MEMMOVE)
            return i ? "current has no memmove" : "baseline has no memmove";
        if (f->copy == NULL && options->op == OPD_DTO_MEMCPY)
            return i ? "current has no memcpy" : "baseline has no memcpy";
        if (f->set == NULL && options->op == OPD_DTO_MEMSET)
            return i ? "current has no memset" : "baseline has no memset";
        if (f->compare == NULL && options->op == OPD_DTO_MEMCMP)
            return i ? "current has no memcmp" : "baseline has no memcmp";
    }
    return NULL;
}

static void
look_at_cpu(struct opd_dto *dto)
{
    dto->line = 64;
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    unsigned invariant = 0, rdtscp = 0, tsc = 0;
    if (__get_cpuid(1, &a, &b, &c, &d)) {
        tsc = d >> 4 & 1;
        if (d >> 19 & 1) {
            dto->can_flush = DTO_FLUSH_CLFLUSH;
            dto->line = (size_t)(b >> 8 & 0xff) * 8;
        }
    }
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 23 & 1))
        dto->can_flush = DTO_FLUSH_CLFLUSHOPT;
    if (__get_cpuid(0x80000001u, &a, &b, &c, &d))
        rdtscp = d >> 27 & 1;
    if (__get_cpuid(0x80000007u, &a, &b, &c, &d))
        invariant = d >> 8 & 1;
    dto->is_tsc = tsc && rdtscp && invariant && !dto->options.plain_clock;
    if (dto->line == 0)
        dto->line = 64;
#elif defined(__aarch64__)
    uint64_t ctr;
    __asm__("mrs %0, ctr_el0" : "=r"(ctr));
    dto->line = (size_t)4 << (ctr >> 16 & 15);
    dto->can_flush = DTO_FLUSH_CIVAC;
#endif
}

// Shared memory at a multiple of `align`, of which huge pages can be made only
// where the file's offset is one too: so it is mapped where a larger hole was.
static void *
map_shared(size_t bytes, size_t align, int flags)
{
    char *hole =
        mmap(NULL, bytes + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (hole == MAP_FAILED)
        return NULL;
    char *base = (char *)(((uintptr_t)hole + align - 1) & ~(uintptr_t)(align - 1));
    void *made = mmap(base, bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED | flags, -1, 0);
    int error = errno;
    if (made == MAP_FAILED) {
        munmap(hole, bytes + align);
        errno = error;
        return NULL;
    }
    if (base > hole)
        munmap(hole, (size_t)(base - hole));
    if (hole + align > base)
        munmap(base + bytes, (size_t)(hole + align - base));
    return base;
}

static int
map_region(struct opd_dto *dto, struct dto_region *region, size_t bytes, char *reason)
{
    uint32_t pages = dto->options.pages;
    size_t align = pages == OPD_DTO_4K ? (size_t)sysconf(_SC_PAGESIZE) : HUGE;
    int flags = pages == OPD_DTO_2M_HUGETLB ? MAP_HUGETLB | 21 << MAP_HUGE_SHIFT : 0;
    region->bytes = (bytes + align - 1) & ~(align - 1);
    region->base = map_shared(region->bytes, align, flags);
    if (region->base == NULL)
        return dto_fail(reason, errno, "mapping %zu bytes%s", region->bytes,
                        flags ? " of hugetlb pages of 2 MiB (are they reserved?)" : "");
    int rc = 0;
    if (pages == OPD_DTO_4K)
        rc = madvise(region->base, region->bytes, MADV_NOHUGEPAGE);
    else if (pages == OPD_DTO_2M_THP)
        rc = madvise(region->base, region->bytes, MADV_HUGEPAGE);
    // A kernel without transparent huge pages has none to turn off.
    if (rc && !(errno == EINVAL && pages == OPD_DTO_4K))
        return dto_fail(reason, errno, "MADV_%sHUGEPAGE", pages == OPD_DTO_4K ? "NO" : "");
    return 0;
}

// Written once by the caller, so that rounds only map what is there.
static void
fill(struct opd_dto *dto)
{
    for (size_t at = 0; at < dto->source.bytes; at++)
        dto->source.base[at] = (char)at;
    if (dto->destination.base)
        memcpy(dto->destination.base, dto->source.base,
               dto->destination.bytes < dto->source.bytes ? dto->destination.bytes
                                                          : dto->source.bytes);
}

static int
map_all(struct opd_dto *dto, char *reason)
{
    const struct opd_dto_options *options = &dto->options;
    size_t size = options->size, apart = (size_t)llabs(options->overlap);
    dto->result =
        mmap(NULL, sizeof(*dto->result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (dto->result == MAP_FAILED) {
        dto->result = NULL;
        return dto_fail(reason, errno, "mapping the results");
    }
    int rc = map_region(dto, &dto->source, size + apart + options->source_offset, reason);
    if (rc)
        return rc;
    char *first = dto->source.base + options->source_offset;
    if (apart) {
        dto->from = options->overlap > 0 ? first : first + apart;
        dto->to = options->overlap > 0 ? first + apart : first;
        return 0;
    }
    rc = map_region(dto, &dto->destination, size + options->destination_offset, reason);
    if (rc)
        return rc;
    dto->from = first;
    dto->to = dto->destination.base + options->destination_offset;
    return 0;
}

int
opd_dto_create(const struct opd_dto_options *options, struct opd_dto **out, char *reason)
{
    const char *what = wrong(options);
    if (what)
        return dto_fail(reason, EINVAL, "%s", what);
    struct opd_dto *dto = calloc(1, sizeof(*dto));
    if (dto == NULL)
        return dto_fail(reason, ENOMEM, "a cell");
    dto->options = *options;
    look_at_cpu(dto);
    dto->page = options->pages == OPD_DTO_4K ? (size_t)sysconf(_SC_PAGESIZE) : HUGE;
    dto->seed = options->seed ? options->seed : ((uint32_t)opd_ticks() | 1);
    dto->ticks_per_ns = 1;
    if (dto->is_tsc) {
        struct opd_ticks_rate rate;
        opd_ticks_calibrate(20000000, &rate);
        dto->ticks_per_ns = rate.per_ns;
    }
    int rc = 0;
    if (options->cold && dto->can_flush == DTO_FLUSH_NONE)
        rc = dto_fail(reason, EOPNOTSUPP, "this CPU has no way to flush a line from its caches");
    rc = rc ? rc : map_all(dto, reason);
    if (rc) {
        opd_dto_destroy(dto);
        return rc;
    }
    fill(dto);
    *out = dto;
    return 0;
}

void
opd_dto_destroy(struct opd_dto *dto)
{
    if (dto == NULL)
        return;
    struct dto_region *regions[] = {&dto->source, &dto->destination};
    for (int i = 0; i < 2; i++)
        if (regions[i]->base)
            munmap(regions[i]->base, regions[i]->bytes);
    if (dto->result)
        munmap(dto->result, sizeof(*dto->result));
    free(dto);
}

void
opd_dto_inject(struct opd_dto *dto, uint64_t turns)
{
    dto->turns = turns;
}

void
opd_dto_exchange(struct opd_dto *dto, const struct opd_dto_functions *baseline,
                 const struct opd_dto_functions *current)
{
    dto->options.baseline = *baseline;
    dto->options.current = *current;
}

// Shared memory has words of its own in smaps.
static uint64_t
huge_of(const struct dto_region *region)
{
    FILE *file = fopen("/proc/self/smaps", "re");
    char line[256];
    uint64_t sum = 0, kib = 0;
    unsigned long long from = 0, to = 0, low = (uintptr_t)region->base;
    int inside = 0;
    while (file && fgets(line, sizeof(line), file)) {
        char *dash = strchr(line, '-');
        if (dash && dash - line <= 16 && sscanf(line, "%llx-%llx ", &from, &to) == 2)
            inside = from < low + region->bytes && to > low;
        else if (inside && (sscanf(line, "ShmemPmdMapped: %lu", &kib) == 1 ||
                            sscanf(line, "Shared_Hugetlb: %lu", &kib) == 1 ||
                            sscanf(line, "Private_Hugetlb: %lu", &kib) == 1))
            sum += kib * 1024;
    }
    if (file)
        fclose(file);
    return sum < region->bytes ? sum : region->bytes;
}

void
opd_dto_facts(const struct opd_dto *dto, struct opd_dto_facts *out)
{
    static const char *const flushes[] = {
        [DTO_FLUSH_NONE] = "none",
        [DTO_FLUSH_CLFLUSH] = "clflush",
        [DTO_FLUSH_CLFLUSHOPT] = "clflushopt",
        [DTO_FLUSH_CIVAC] = "dc civac",
    };
    *out = (struct opd_dto_facts){.ticks_per_ns = dto->ticks_per_ns,
                                  .is_tsc = dto->is_tsc,
                                  .line_bytes = (uint32_t)dto->line,
                                  .page_bytes = dto->page,
                                  .bytes = dto->source.bytes + dto->destination.bytes};
    snprintf(out->flush, sizeof(out->flush), "%s", flushes[dto->can_flush]);
    if (dto->options.pages != OPD_DTO_4K) {
        out->huge_bytes = huge_of(&dto->source);
        if (dto->destination.base)
            out->huge_bytes += huge_of(&dto->destination);
    }
}
