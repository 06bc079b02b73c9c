// SPDX-License-Identifier: Apache-2.0
// Private to the condenser: its rows in order of a key, then of the sample file.
#ifndef OPD_ROW_SORT_H
#define OPD_ROW_SORT_H

#include <stddef.h>
#include <stdint.h>

struct sort_row {
    uint64_t key;
    uint64_t hits, excess;
    uint32_t sfile;
};

// Sorts; rows that are the same in both stay in their order. `spare` has room
// for as many. Returns where the sorted rows are: `rows` or `spare`.
struct sort_row *opd_sort_rows(struct sort_row *rows, struct sort_row *spare, size_t count);

#endif
