// SPDX-License-Identifier: Apache-2.0
// An .eh_frame section of arbitrary bytes; the first byte chooses the class.
#include "../../../native/src/elf_private.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > 1 << 20)
        return 0;
    struct elf_source source = {.fd = -1, .memory = data + 1, .size = size - 1};
    struct elf_range *ranges;
    size_t count;
    if (elf_eh_frame_ranges(&source, data[0] & 1, 0, 0x2000, size - 1, 0, &ranges, &count) < 0)
        abort();
    for (size_t i = 0; i < count; i++)
        if (ranges[i].start >= ranges[i].end || (i > 0 && ranges[i].start < ranges[i - 1].start))
            abort();
    free(ranges);
    return 0;
}
