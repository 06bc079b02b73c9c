// SPDX-License-Identifier: Apache-2.0
// Whatever stands in sysfs files of a DSA: each line of the input is one of them.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "opd/dsa.h"

static const char *const files[] = {"dsa0/state",     "dsa0/pasid_enabled",     "dsa0/gen_cap",
                                    "dsa0/numa_node", "dsa0/cmd_status",        "wq0.0/state",
                                    "wq0.0/type",     "wq0.0/driver_name",      "wq0.0/mode",
                                    "wq0.0/size",     "wq0.0/max_transfer_size"};
enum { FILES = sizeof(files) / sizeof(*files), PATH = 128 };

static char root[64];

static void
gone(void)
{
    char command[PATH];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    if (system(command))
        perror(root);
}

static void
put(const char *file, const uint8_t *data, size_t size)
{
    char path[PATH];
    snprintf(path, sizeof(path), "%s/%s", root, file);
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size || close(fd))
        abort();
}

static void
begin(void)
{
    snprintf(root, sizeof(root), "/tmp/opd-fuzz-dsa-%d", getpid());
    atexit(gone);
    static const char *const folders[] = {"",
                                          "/bus",
                                          "/bus/dsa",
                                          "/bus/dsa/devices",
                                          "/bus/dsa/devices/dsa0",
                                          "/bus/dsa/devices/wq0.0",
                                          "/dsa"};
    for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
        char path[PATH];
        snprintf(path, sizeof(path), "%s%s", root, folders[i]);
        if (mkdir(path, 0700))
            abort();
    }
    put("dsa/wq0.0", NULL, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!*root)
        begin();
    for (size_t i = 0; i < FILES; i++) {
        const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
        size_t n = end ? (size_t)(end - data) : size;
        char path[PATH];
        snprintf(path, sizeof(path), "bus/dsa/devices/%s", files[i]);
        put(path, data, n);
        n += end != NULL;
        data += n;
        size -= n;
    }
    struct opd_dsa_options options = {.sys = root, .dev = root, .look_only = 2};
    static struct opd_dsa_report report;
    struct opd_dsa *dsa = NULL;
    int rc = opd_dsa_create(&options, &report, &dsa);
    // Without a reason nobody would know why there is none.
    if (rc ? !*report.reason : !report.usable)
        abort();
    for (uint32_t i = 0; i < report.count; i++)
        if (!report.findings[i].ok != !!*report.findings[i].remedy)
            abort();
    opd_dsa_destroy(dsa);
    return 0;
}
