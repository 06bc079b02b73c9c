// SPDX-License-Identifier: Apache-2.0
// The measured loop, made as machine code for one combination of chains, hint
// and work: nothing in it asks what was chosen. Where opd has no code for the
// machine, loops that the compiler made do without hint and work.
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pchase_private.h"

// ---- plain C: one function a count of chains, 16 steps a round

#define STEP(i) at##i = *(void *volatile *)at##i;
#define FOR_1(X) X(0)
#define FOR_2(X) FOR_1(X) X(1)
#define FOR_4(X) FOR_2(X) X(2) X(3)
#define FOR_8(X) FOR_4(X) X(4) X(5) X(6) X(7)
#define FOR_12(X) FOR_8(X) X(8) X(9) X(10) X(11)
#define FOR_16(X) FOR_12(X) X(12) X(13) X(14) X(15)
#define TAKE(i) void *at##i = heads[i];
#define GIVE(i) heads[i] = at##i;
#define FOUR(x) x x x x
#define PLAIN(n)                                                                                   \
    static void plain_##n(void **heads, uint64_t rounds)                                           \
    {                                                                                              \
        FOR_##n(TAKE) for (; rounds; rounds--){FOUR(FOUR(FOR_##n(STEP)))} FOR_##n(GIVE)            \
    }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(12)
PLAIN(16)

pchase_loop
pchase_plain_loop(uint32_t chains, uint32_t *unroll)
{
    *unroll = 16;
    switch (chains) {
    case 1:
        return plain_1;
    case 2:
        return plain_2;
    case 4:
        return plain_4;
    case 8:
        return plain_8;
    case 12:
        return plain_12;
    case 16:
        return plain_16;
    default:
        return NULL;
    }
}

static int
use_plain(struct pchase_code *code, const struct opd_pchase_options *options)
{
    if (options->hint != OPD_PCHASE_NONE || options->work != 0)
        return -EOPNOTSUPP;
    code->loop = pchase_plain_loop(options->chains, &code->unroll);
    return code->loop ? 0 : -EOPNOTSUPP;
}

#if defined(__x86_64__)
// ---- machine code. heads in rdi, rounds in rsi; chains in the other registers
// but rsp, from the thirteenth on in xmm0.. with rax (then no chain's) between.

enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 };
enum { GENERAL = 13, LOOP_BYTES = 12 << 10, LOADS = 256 };

struct writer {
    uint8_t *at;
};

static void
put(struct writer *w, const void *bytes, size_t count)
{
    memcpy(w->at, bytes, count);
    w->at += count;
}

#define PUT(w, ...)                                                                                \
    do {                                                                                           \
        const uint8_t bytes_[] = {__VA_ARGS__};                                                    \
        put(w, bytes_, sizeof(bytes_));                                                            \
    } while (0)

static const uint8_t registers[GENERAL] = {RAX, RCX, RDX, RBX, RBP, 8, 9, 10, 11, 12, 13, 14, 15};

// op reg, [base + displacement]: one stands where rbp and r13 need it, and
// r12's address needs a second byte.
static void
memory(struct writer *w, uint8_t rex, const uint8_t *op, size_t op_bytes, uint8_t reg, uint8_t base,
       uint8_t displacement)
{
    uint8_t prefix = (uint8_t)(rex | (reg >= 8 ? 4 : 0) | (base >= 8 ? 1 : 0));
    if (prefix)
        PUT(w, (uint8_t)(0x40 | prefix));
    put(w, op, op_bytes);
    int displaced = displacement != 0 || (base & 7) == RBP;
    PUT(w, (uint8_t)((displaced ? 0x40 : 0) | (reg & 7) << 3 | (base & 7)));
    if ((base & 7) == RSP)
        PUT(w, 0x24);
    if (displaced)
        PUT(w, displacement);
}

static void
load(struct writer *w, uint8_t reg)
{
    const uint8_t op = 0x8b;
    memory(w, 8, &op, 1, reg, reg, 0);
}

static void
hint(struct writer *w, uint32_t kind, uint8_t reg, uint32_t ahead)
{
    static const uint8_t which[] = {
        [OPD_PCHASE_T0] = 1, [OPD_PCHASE_T1] = 2, [OPD_PCHASE_T2] = 3, [OPD_PCHASE_NTA] = 0};
    const uint8_t op[] = {0x0f, 0x18};
    const uint8_t load_op = 0x8b;
    if (kind != OPD_PCHASE_NONE && ahead) {
        memory(w, 8, &load_op, 1, RAX, reg, sizeof(void *)); // where it is in some steps
        reg = RAX;
    }
    if (kind != OPD_PCHASE_NONE)
        memory(w, 0, op, 2, which[kind], reg, 0);
}

// movq between rax and xmm n
static void
move_xmm(struct writer *w, int to_xmm, uint8_t n)
{
    PUT(w, 0x66, (uint8_t)(n >= 8 ? 0x4c : 0x48), 0x0f, to_xmm ? 0x6e : 0x7e,
        (uint8_t)(0xc0 | (n & 7) << 3));
}

// mov reg, [rdi + 8 * n], or back
static void
head(struct writer *w, int store, uint8_t reg, uint32_t n)
{
    uint32_t displacement = 8 * n;
    PUT(w, (uint8_t)(0x48 | (reg >= 8 ? 4 : 0)), store ? 0x89 : 0x8b,
        (uint8_t)(0x80 | (reg & 7) << 3 | RDI));
    put(w, &displacement, 4);
}

// Chains 0..general-1 live in registers (after rax when some live in xmm).
static void
heads(struct writer *w, int store, uint32_t chains, uint32_t general, const uint8_t *own)
{
    for (uint32_t i = 0; i < general; i++)
        head(w, store, own[i], i);
    for (uint32_t i = general; i < chains; i++) {
        if (store)
            move_xmm(w, 0, (uint8_t)(i - general));
        head(w, store, RAX, i);
        if (!store)
            move_xmm(w, 1, (uint8_t)(i - general));
    }
}

int
pchase_code_make(struct pchase_code *code, const struct opd_pchase_options *options)
{
    *code = (struct pchase_code){0};
    if (options->plain_c)
        return use_plain(code, options);
    uint32_t chains = options->chains;
    int rax_is_free = chains > GENERAL || options->ahead;
    uint32_t general = chains < GENERAL ? chains : (uint32_t)(GENERAL - rax_is_free);
    const uint8_t *own = registers + rax_is_free;
    size_t step = (size_t)chains * 32 + options->work;
    code->unroll = (uint32_t)(LOADS / chains);
    if (code->unroll * step > LOOP_BYTES)
        code->unroll = step > LOOP_BYTES ? 1 : (uint32_t)(LOOP_BYTES / step);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    code->text_bytes = (code->unroll * step + 4096 + page - 1) / page * page;
    code->text =
        mmap(NULL, code->text_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code->text == MAP_FAILED) {
        code->text = NULL;
        return -errno;
    }
    struct writer w = {.at = code->text};
    PUT(&w, 0xf3, 0x0f, 0x1e, 0xfa); // endbr64
    PUT(&w, 0x53, 0x55, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57);
    heads(&w, 0, chains, general, own);
    while ((uintptr_t)w.at % 64)
        PUT(&w, 0x90);
    uint8_t *loop = w.at;
    for (uint32_t i = 0; i < code->unroll; i++) {
        for (uint32_t j = 0; j < general; j++)
            hint(&w, options->hint, own[j], options->ahead);
        for (uint32_t j = general; options->hint != OPD_PCHASE_NONE && j < chains; j++) {
            move_xmm(&w, 0, (uint8_t)(j - general));
            hint(&w, options->hint, RAX, options->ahead);
        }
        memset(w.at, 0x90, options->work);
        w.at += options->work;
        for (uint32_t j = 0; j < general; j++)
            load(&w, own[j]);
        for (uint32_t j = general; j < chains; j++) {
            move_xmm(&w, 0, (uint8_t)(j - general));
            load(&w, RAX);
            move_xmm(&w, 1, (uint8_t)(j - general));
        }
    }
    PUT(&w, 0x48, 0xff, 0xce); // dec rsi
    PUT(&w, 0x0f, 0x85);       // jnz
    int32_t back = (int32_t)(loop - (w.at + 4));
    put(&w, &back, 4);
    heads(&w, 1, chains, general, own);
    PUT(&w, 0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, 0x5d, 0x5b, 0xc3);
    if (mprotect(code->text, code->text_bytes, PROT_READ | PROT_EXEC)) {
        // A policy forbids code made at run time; the compiler's may do.
        int error = errno;
        pchase_code_free(code);
        return use_plain(code, options) ? -error : 0;
    }
    code->compiled = 1;
    memcpy(&code->loop, &code->text, sizeof(code->loop));
    return 0;
}
#else
int
pchase_code_make(struct pchase_code *code, const struct opd_pchase_options *options)
{
    *code = (struct pchase_code){0};
    return use_plain(code, options);
}
#endif

void
pchase_code_free(struct pchase_code *code)
{
    if (code->text)
        munmap(code->text, code->text_bytes);
    *code = (struct pchase_code){0};
}
