// SPDX-License-Identifier: Apache-2.0
// Is an implementation of memcpy, memmove, memset and memcmp right? Its answers
// beside libc's: every byte that it could have written, and what it returns.
#ifndef OPD_DTO_FUNCTIONAL_H
#define OPD_DTO_FUNCTIONAL_H
#include "opd/dto.h"

enum opd_dto_part {
    OPD_DTO_SIZES,   // each size, aligned
    OPD_DTO_OFFSETS, // not aligned, either operand
    OPD_DTO_OVERLAP, // memmove, at distances from 1 byte to all, both ways
    OPD_DTO_EDGES,   // operands end where the next page is not to be touched
    OPD_DTO_THREADS, // random cases of several threads at once
    OPD_DTO_SIGNALS, // random cases in a signal handler amid others
    OPD_DTO_FORKS,   // random cases in children and their parent
    OPD_DTO_PARTS,
};

struct opd_dto_functional_options {
    struct opd_dto_functions functions; // those that are NULL are left out
    uint64_t threshold;                 // sizes around it, its double and its half are tried
    uint64_t largest;                   // and up to this one
    uint32_t threads;                   // 1..64
    uint32_t random;                    // random cases of each thread, handler and child
    uint32_t parts;                     // bits of enum opd_dto_part
    uint32_t reserved;
    uint64_t seed;
    uint64_t limit_ns; // after which a part is ended as hung
};

// One case in numbers. `aux`: the value of a memset; of a memcmp the offset of the
// byte that differs (`size`: none).
struct opd_dto_case {
    uint32_t part, op, thread, reserved;
    uint64_t size, to, from, aux; // offsets from a page's begin
    uint64_t at;         // first wrong byte, from the destination's begin; below 0: before it
    int32_t wanted, got; // that byte, or the sign of memcmp
};

enum opd_dto_wrong {
    OPD_DTO_RIGHT,
    OPD_DTO_WRONG_BYTE,
    OPD_DTO_WRONG_SIGN,
    OPD_DTO_WRONG_POINTER, // not the destination is returned
    OPD_DTO_DIED,          // by `signal`
    OPD_DTO_HUNG,
};

struct opd_dto_functional {
    uint64_t cases, differences;
    uint64_t by_part[OPD_DTO_PARTS], by_op[OPD_DTO_OPS];
    uint32_t wrong, signal; // of the first difference
    struct opd_dto_case first;
};

// Runs every part in a process of its own, so that one that crashes or hangs is
// a difference as well; the parts after it still run. 0 or -errno (EINVAL for
// options, ENOMEM, EAGAIN when no process can be made).
int opd_dto_functional(const struct opd_dto_functional_options *options,
                       struct opd_dto_functional *out);
// The first difference in words; its length.
int opd_dto_functional_text(const struct opd_dto_functional *result, char *text, size_t room);
#endif
