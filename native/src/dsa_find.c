// SPDX-License-Identifier: Apache-2.0
// What sysfs says of DSA devices and their queues, one check after another.
// Files: Documentation/ABI/stable/sysfs-driver-dma-idxd of the kernel.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dsa_private.h"

enum { LEAST_MOST = 4096, NAMES_MOST = 512, VALUE = 64, GEN_CAP_CACHE_CONTROL = 1 << 2 };

#define SETUP "accel-config load-config -e -c FILE, with a queue of type user"

static const char *const check_names[] = {
    [DSA_CHECK_BUS] = "bus",
    [DSA_CHECK_DEVICE] = "device",
    [DSA_CHECK_DEVICE_STATE] = "device state",
    [DSA_CHECK_SVA] = "SVA",
    [DSA_CHECK_QUEUE] = "queue",
    [DSA_CHECK_QUEUE_STATE] = "queue state",
    [DSA_CHECK_TYPE] = "type",
    [DSA_CHECK_DRIVER] = "driver",
    [DSA_CHECK_MODE] = "mode",
    [DSA_CHECK_SIZE] = "size",
    [DSA_CHECK_MOST] = "max_transfer_size",
    [DSA_CHECK_PERMISSION] = "permission",
    [DSA_CHECK_PORTAL] = "portal",
    [DSA_CHECK_CPU] = "CPU",
    [DSA_CHECK_NOOP] = "NOOP",
};

// Bytes beyond the room are left out: names come from outside.
static void
put(char *to, size_t room, const char *text)
{
    size_t n = strnlen(text, room - 1);
    memcpy(to, text, n);
    to[n] = 0;
}

void
dsa_told(struct opd_dsa_report *report, enum dsa_check check, const char *where, const char *remedy,
         const char *format, ...)
{
    if (!report)
        return;
    char text[OPD_DSA_TEXT];
    va_list rest;
    va_start(rest, format);
    vsnprintf(text, sizeof(text), format, rest);
    va_end(rest);
    if (remedy && (uint32_t)check > report->furthest) {
        report->furthest = check;
        snprintf(report->reason, sizeof(report->reason), "%s%s%s: %s", where, *where ? " " : "",
                 check_names[check], text);
    }
    if (report->count == OPD_DSA_FINDINGS_MOST) {
        report->beyond++;
        return;
    }
    struct opd_dsa_finding *finding = &report->findings[report->count++];
    finding->ok = !remedy;
    put(finding->what, sizeof(finding->what), check_names[check]);
    put(finding->where, sizeof(finding->where), where);
    put(finding->text, sizeof(finding->text), text);
    put(finding->remedy, sizeof(finding->remedy), remedy ? remedy : "");
}

// The first line of a small file, without spaces at its end. Length or -errno.
static int
value_of(const char *sys, const char *name, const char *file, char *value)
{
    char path[DSA_PATH];
    if (snprintf(path, sizeof(path), "%s/bus/dsa/devices/%s/%s", sys, name, file) >=
        (int)sizeof(path))
        return -ENAMETOOLONG;
    value[0] = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = read(fd, value, VALUE - 1);
    int error = errno;
    close(fd);
    if (n < 0)
        return -error;
    value[n] = 0;
    value[strcspn(value, "\n")] = 0;
    for (size_t end = strlen(value); end && value[end - 1] == ' ';)
        value[--end] = 0;
    // What stands there goes into a line of text.
    for (char *at = value; *at; at++)
        if (*at < ' ' || *at > '~')
            *at = '?';
    return (int)strlen(value);
}

// A number in 0..most, decimal or 0x; `otherwise` when the file is absent or holds none.
static int64_t
number_of(const char *sys, const char *name, const char *file, int64_t otherwise)
{
    char value[VALUE], *end;
    if (value_of(sys, name, file, value) <= 0)
        return otherwise;
    errno = 0;
    long long number = strtoll(value, &end, 0);
    return errno || *end ? otherwise : (int64_t)number;
}

// gen_cap is printed as hexadecimal, with or without 0x.
static uint64_t
capabilities(const char *sys, const char *device)
{
    char value[VALUE], *end;
    if (value_of(sys, device, "gen_cap", value) <= 0)
        return 0;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 16);
    return errno || *end ? 0 : number;
}

struct name {
    char text[OPD_DSA_NAME];
    uint32_t device, queue;
};

static int
by_number(const void *a, const void *b)
{
    const struct name *x = a, *y = b;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    return x->queue < y->queue ? -1 : x->queue > y->queue;
}

// Devices (dsaN) or queues (wqN.M) of the bus in order. Their number or -errno.
static int
names_of(const char *sys, bool queues, struct name *names, uint32_t *beyond)
{
    char path[DSA_PATH];
    if (snprintf(path, sizeof(path), "%s/bus/dsa/devices", sys) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    DIR *directory = fdopendir(fd);
    if (!directory) {
        int error = errno;
        close(fd);
        return -error;
    }
    int count = 0;
    *beyond = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        struct name name = {.queue = 0};
        int end = -1;
        if (queues)
            sscanf(entry->d_name, "wq%9u.%9u%n", &name.device, &name.queue, &end);
        else
            sscanf(entry->d_name, "dsa%9u%n", &name.device, &end);
        if (end < 0 || entry->d_name[end] || end >= OPD_DSA_NAME)
            continue;
        if (count == NAMES_MOST) {
            ++*beyond;
            continue;
        }
        put(name.text, sizeof(name.text), entry->d_name);
        names[count++] = name;
    }
    closedir(directory);
    qsort(names, (size_t)count, sizeof(*names), by_number);
    return count;
}

// "0x80110000" and what it stands for, of those that keep a user's queue off.
static const char *
command_status(const char *sys, const char *device)
{
    static const struct {
        uint32_t code;
        const char *text;
    } known[] = {
        {0x80030000, "the queue is in no group"},
        {0x80040000, "the queue has no name"},
        {0x80050000, "the queue needs SVM, which is off"},
        {0x80060000, "the shared queue has no threshold"},
        {0x800c0000, "the platform supports no shared queues"},
        {0x800e0000, "the queue has no size"},
        {0x80110000, "user queues need an IOMMU with SVA"},
    };
    char value[VALUE], *end;
    if (value_of(sys, device, "cmd_status", value) <= 0)
        return "";
    unsigned long code = strtoul(value, &end, 0);
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (known[i].code == code)
            return known[i].text;
    return "";
}

static bool
device_can(const char *sys, const char *device, struct opd_dsa_report *report)
{
    char state[VALUE];
    int rc = value_of(sys, device, "state", state);
    if (rc < 0 || strcmp(state, "enabled") != 0) {
        char remedy[OPD_DSA_TEXT];
        snprintf(remedy, sizeof(remedy), "accel-config enable-device %s, or " SETUP, device);
        dsa_told(report, DSA_CHECK_DEVICE_STATE, device, remedy, "%s, not enabled",
                 rc < 0 ? strerror(-rc) : state);
        return false;
    }
    dsa_told(report, DSA_CHECK_DEVICE_STATE, device, NULL, "enabled");
    int64_t pasid = number_of(sys, device, "pasid_enabled", -1);
    if (pasid != 1) {
        dsa_told(report, DSA_CHECK_SVA, device,
                 "boot with intel_iommu=on,sm_on, VT-d with scalable mode on in the firmware",
                 pasid < 0 ? "pasid_enabled cannot be read: the device may not share addresses"
                           : "pasid_enabled is 0: the device cannot use a process's addresses");
        return false;
    }
    dsa_told(report, DSA_CHECK_SVA, device, NULL, "pasid_enabled");
    return true;
}

// True when this word is in the file; else told, with what is there.
static bool
says(const struct opd_dsa_options *options, const char *queue, enum dsa_check check,
     const char *file, const char *want, const char *remedy, struct opd_dsa_report *report)
{
    char value[VALUE];
    int rc = value_of(options->sys, queue, file, value);
    if (rc >= 0 && !strcmp(value, want)) {
        dsa_told(report, check, queue, NULL, "%s", want);
        return true;
    }
    dsa_told(report, check, queue, remedy, "%s is %s, not %s", file,
             rc < 0   ? strerror(-rc)
             : *value ? value
                      : "empty",
             want);
    return false;
}

static bool
queue_can(const struct opd_dsa_options *options, const struct name *name, const char *device,
          struct dsa_facts *facts, struct opd_dsa_report *report)
{
    const char *sys = options->sys, *queue = name->text;
    char value[VALUE], remedy[OPD_DSA_TEXT];
    const char *why = command_status(sys, device);
    snprintf(remedy, sizeof(remedy), "%s%saccel-config enable-wq %s/%s, or " SETUP, why,
             *why ? ": " : "", device, queue);
    if (!says(options, queue, DSA_CHECK_QUEUE_STATE, "state", "enabled", remedy, report) ||
        !says(options, queue, DSA_CHECK_TYPE, "type", "user",
              "set the queue's type to user: kernel queues are the kernel's own", report))
        return false;
    // The file came with Linux 6.7; before that every user queue has that driver.
    int rc = value_of(sys, queue, "driver_name", value);
    if (rc >= 0 && strcmp(value, "user") != 0) {
        dsa_told(report, DSA_CHECK_DRIVER, queue, "set driver_name to user before enabling it",
                 "driver_name is %s, not user", *value ? value : "empty");
        return false;
    }
    dsa_told(report, DSA_CHECK_DRIVER, queue, NULL, "%s", rc < 0 ? "not told, so user" : value);
    rc = value_of(sys, queue, "mode", value);
    if (rc < 0 || (strcmp(value, "shared") != 0 && strcmp(value, "dedicated") != 0)) {
        dsa_told(report, DSA_CHECK_MODE, queue, SETUP, "mode is %s, not shared or dedicated",
                 rc < 0 ? strerror(-rc) : value);
        return false;
    }
    facts->dedicated = value[0] == 'd';
    dsa_told(report, DSA_CHECK_MODE, queue, NULL, "%s", value);
    int64_t size = number_of(sys, queue, "size", 0);
    if (size <= 0 || size > INT32_MAX) {
        dsa_told(report, DSA_CHECK_SIZE, queue, "give the queue a size: accel-config config-wq -s",
                 "no entries");
        return false;
    }
    facts->size = (uint32_t)size;
    dsa_told(report, DSA_CHECK_SIZE, queue, NULL, "%lld entries", (long long)size);
    int64_t most = number_of(sys, queue, "max_transfer_size", 0);
    if (most < LEAST_MOST) {
        dsa_told(report, DSA_CHECK_MOST, queue, "accel-config config-wq -x 2097152",
                 "%lld bytes in one go, less than a page", (long long)most);
        return false;
    }
    // The descriptor's size has 32 bits, and whole pages divide best.
    facts->most = (uint64_t)most > UINT32_MAX ? UINT32_MAX & ~4095u : (uint64_t)most;
    dsa_told(report, DSA_CHECK_MOST, queue, NULL, "%lld bytes", (long long)most);
    facts->cache_control = (capabilities(sys, device) & GEN_CAP_CACHE_CONTROL) != 0;
    int64_t node = number_of(sys, device, "numa_node", -1);
    facts->node = node >= 0 && node <= INT32_MAX ? (int32_t)node : -1;
    put(facts->name, sizeof(facts->name), queue);
    return true;
}

static bool
wanted(const char *queues, const char *name)
{
    if (!queues)
        return true;
    size_t n = strlen(name);
    for (const char *at = queues; (at = strstr(at, name)); at += n)
        if ((at == queues || at[-1] == ' ') && (!at[n] || at[n] == ' '))
            return true;
    return false;
}

// Every name that was asked for is there; else the first that is not is told.
static void
missing(const char *queues, const struct name *names, int count, struct opd_dsa_report *report)
{
    for (const char *at = queues; at && *at;) {
        size_t n = strcspn(at, " ");
        bool found = !n;
        for (int i = 0; i < count && !found; i++)
            found = strlen(names[i].text) == n && !memcmp(names[i].text, at, n);
        if (!found)
            dsa_told(report, DSA_CHECK_QUEUE, "", "name a queue that is there, such as wq0.0",
                     "no queue %.*s", (int)(n < 64 ? n : 64), at);
        at += n + (at[n] == ' ');
    }
}

static void
no_bus(const char *sys, int error, struct opd_dsa_report *report)
{
    char path[DSA_PATH];
    snprintf(path, sizeof(path), "%s/module/idxd", sys);
    if (error != ENOENT)
        dsa_told(report, DSA_CHECK_BUS, "", "mount sysfs", "%s/bus/dsa/devices: %s", sys,
                 strerror(error));
    else if (access(path, F_OK))
        dsa_told(report, DSA_CHECK_BUS, "",
                 "modprobe idxd, on a CPU with Intel DSA (Xeon of the 4th generation or later)",
                 "no DSA: the kernel has no dsa bus, the idxd module is not loaded");
    else
        dsa_told(report, DSA_CHECK_BUS, "", "a kernel with CONFIG_INTEL_IDXD",
                 "no DSA: idxd is loaded, but there is no dsa bus");
}

uint32_t
dsa_find(const struct opd_dsa_options *options, struct dsa_facts *facts,
         struct opd_dsa_report *report)
{
    struct name *devices = calloc(2 * NAMES_MOST, sizeof(*devices));
    if (!devices)
        return 0;
    struct name *queues = devices + NAMES_MOST;
    uint32_t found = 0, left = 0, beyond = 0;
    int device_count = names_of(options->sys, false, devices, &beyond);
    if (device_count < 0) {
        no_bus(options->sys, -device_count, report);
        goto out;
    }
    if (!device_count) {
        dsa_told(report, DSA_CHECK_DEVICE, "",
                 "a CPU with Intel DSA, not hidden by the firmware or the hypervisor",
                 "no DSA: idxd found no device (lspci -d 8086:0b25)");
        goto out;
    }
    int queue_count = names_of(options->sys, true, queues, &left);
    if (queue_count < 0)
        queue_count = 0;
    missing(options->queues, queues, queue_count, report);
    for (int i = 0; i < device_count; i++) {
        const char *device = devices[i].text;
        if (!device_can(options->sys, device, report))
            continue;
        uint32_t its = 0;
        for (int k = 0; k < queue_count; k++) {
            if (queues[k].device != devices[i].device || !wanted(options->queues, queues[k].text))
                continue;
            its++;
            if (found == OPD_DSA_QUEUES_MOST)
                left++;
            else if (queue_can(options, &queues[k], device, &facts[found], report)) {
                int n = snprintf(facts[found].path, DSA_PATH, "%s/dsa/%s", options->dev,
                                 queues[k].text);
                found += n < DSA_PATH;
            }
        }
        if (!its)
            dsa_told(report, DSA_CHECK_QUEUE, device, SETUP, "no queue");
    }
    if (left + beyond)
        dsa_told(report, DSA_CHECK_QUEUE, "", "name those to use", "%u left out: too many",
                 left + beyond);
out:
    free(devices);
    return found;
}
