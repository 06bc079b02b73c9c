// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target over every file of the folders given, without libFuzzer:
// the corpus is then an ordinary test for any compiler and sanitizer.
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int
run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return -1;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    size_t got = fread(data, 1, (size_t)size, file);
    fclose(file);
    LLVMFuzzerTestOneInput(data, got);
    free(data);
    return 0;
}

int
main(int argc, char **argv)
{
    unsigned ran = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (folder == NULL) {
            fprintf(stderr, "cannot open the corpus %s\n", argv[i]);
            return 1;
        }
        struct dirent *entry;
        while ((entry = readdir(folder)) != NULL) {
            char path[4096];
            if (entry->d_name[0] == '.')
                continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
            if (run_file(path) == 0)
                ran++;
        }
        closedir(folder);
    }
    printf("%u corpus files\n", ran);
    return ran > 0 ? 0 : 1;
}
