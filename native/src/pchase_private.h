// SPDX-License-Identifier: Apache-2.0
#ifndef OPD_PCHASE_PRIVATE_H
#define OPD_PCHASE_PRIVATE_H
#include <stdatomic.h>
#include <stddef.h>

#include "opd/pchase.h"

int pchase_fail(char *reason, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// The loop: chases `chains` pointers of `heads` for `rounds` rounds of its
// unrolled steps, and leaves them where they came to.
typedef void (*pchase_loop)(void **heads, uint64_t rounds);

struct pchase_code {
    pchase_loop loop;
    uint32_t unroll;
    uint32_t compiled;
    void *text;
    size_t text_bytes;
};

// Code for the options. 0 or -errno: EOPNOTSUPP where only the plain loop is
// and the options ask for more than it does.
int pchase_code_make(struct pchase_code *code, const struct opd_pchase_options *options);
void pchase_code_free(struct pchase_code *code);
pchase_loop pchase_plain_loop(uint32_t chains, uint32_t *unroll);

// One chain in `bytes` at `base`: its first pointer in *head, how many nodes in
// *nodes. -EILSEQ: a walk through it was no single cycle.
int pchase_chain_build(char *base, const struct opd_pchase_options *options, uint64_t *state,
                       void **head, uint64_t *nodes);

// Streams until `stop` is set or the clock is at `end_ns`; returns bytes.
enum { PCHASE_ARRAYS_MAX = 4 };
uint64_t pchase_load(const struct opd_pchase_options *options,
                     char *const arrays[PCHASE_ARRAYS_MAX], const _Atomic uint32_t *stop,
                     uint64_t end_ns);
// How many arrays a kind uses.
uint32_t pchase_load_arrays(uint32_t kind);
#endif
