// SPDX-License-Identifier: Apache-2.0
// The record parser against records written here word by word.
#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>

#include "opd/record.h"
#include "t.h"

static uint64_t words[256];
static size_t count;

static void
start(uint32_t type, uint16_t misc)
{
    count = 1;
    words[0] = (uint64_t)type | (uint64_t)misc << 32;
}

static void
put(uint64_t word)
{
    words[count++] = word;
}

static void
put2(uint32_t first, uint32_t second)
{
    put((uint64_t)first | (uint64_t)second << 32);
}

static void
put_text(const char *text)
{
    size_t size = strlen(text) + 1;
    memset(words + count, 0, (size + 7) / 8 * 8);
    memcpy(words + count, text, size);
    count += (size + 7) / 8;
}

static int
parse(const struct opd_record_layout *layout, struct opd_record *record)
{
    words[0] = (words[0] & 0xffffffffffffull) | (uint64_t)(count * 8) << 48;
    return opd_record_parse(layout, words, count * 8, record);
}

static const struct opd_record_layout usual = {
    .sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME |
                   PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD | PERF_SAMPLE_CALLCHAIN,
    .sample_id_all = true,
};

static void
put_trailer(void)
{
    put2(11, 12);
    put(1000);
    put2(3, 0);
    put(77);
}

static void
usual_sample(void)
{
    struct opd_record record;
    start(OPD_RECORD_SAMPLE, OPD_MISC_USER);
    put(77);
    put(0x400123);
    put2(11, 12);
    put(1000);
    put2(3, 0);
    put(5000);
    put(3);
    put(OPD_CONTEXT_USER);
    put(0x400123);
    put(0x400456);
    CHECK(parse(&usual, &record) == (int)count * 8);
    CHECK(record.id == 77 && record.pid == 11 && record.tid == 12 && record.time == 1000);
    CHECK(record.cpu == 3 && record.u.sample.period == 5000 && record.u.sample.ip == 0x400123);
    CHECK(record.u.sample.chain_length == 3 && record.u.sample.chain[2] == 0x400456);
    CHECK(record.has == (OPD_HAS_ID | OPD_HAS_IP | OPD_HAS_TID | OPD_HAS_TIME | OPD_HAS_CPU |
                         OPD_HAS_PERIOD | OPD_HAS_CALLCHAIN));
    uint64_t value;
    CHECK(opd_record_identifier(words, count * 8, &value) == 0 && value == 77);
    CHECK(opd_record_time(&usual, words, count * 8, &value) && value == 1000);
    words[7] = 4; // one more than there are
    CHECK(parse(&usual, &record) == -EBADMSG);
    words[7] = (uint64_t)1 << 61; // whose bytes overflow
    CHECK(parse(&usual, &record) == -EBADMSG);
}

static void
every_field_in_the_kernels_order(void)
{
    struct opd_record_layout layout = {
        .sample_type = (1u << 25) - 1, // PERF_SAMPLE_WEIGHT and _STRUCT share one word
        .read_format = PERF_FORMAT_GROUP | PERF_FORMAT_ID | PERF_FORMAT_TOTAL_TIME_ENABLED,
        .branch_sample_type = 1u << 17 | 1u << 19,
        .sample_regs_user = 0x30,
        .sample_regs_intr = 0x7,
    };
    struct opd_record record;
    start(OPD_RECORD_SAMPLE, OPD_MISC_KERNEL | OPD_MISC_EXACT_IP);
    put(1);     // IDENTIFIER
    put(2);     // IP
    put2(3, 4); // TID
    put(5);     // TIME
    put(6);     // ADDR
    put(1);     // ID
    put(7);     // STREAM_ID
    put2(8, 0); // CPU
    put(9);     // PERIOD
    put(2);     // READ: nr
    put(100);   //   time enabled
    put(101);   //   value, id
    put(102);
    put(103);
    put(104);
    put(1); // CALLCHAIN
    put(10);
    put2(12, 0x11111111); // RAW
    put2(0x22222222, 0x33333333);
    put(1);   // BRANCH_STACK: nr
    put(200); //   hw index
    put(201); //   from, to, flags
    put(202);
    put(203);
    put(204); //   counters
    put(2);   // REGS_USER: abi
    put(300);
    put(301);
    put(16); // STACK_USER: size
    put(400);
    put(401);
    put(9);  //   filled
    put(12); // WEIGHT
    put(13); // DATA_SRC
    put(14); // TRANSACTION
    put(2);  // REGS_INTR
    put(500);
    put(501);
    put(502);
    put(15); // PHYS_ADDR
    put(16); // CGROUP
    put(17); // DATA_PAGE_SIZE
    put(18); // CODE_PAGE_SIZE
    put(3);  // AUX
    put(0x030201);
    CHECK(parse(&layout, &record) == (int)count * 8);
    CHECK(record.stream_id == 7 && record.u.sample.addr == 6 && record.u.sample.chain[0] == 10);
    CHECK(record.u.sample.raw_size == 12);
    CHECK(memcmp(record.u.sample.raw, "\x11\x11\x11\x11\x22\x22\x22\x22\x33\x33\x33\x33", 12) == 0);
    CHECK(record.u.sample.regs_user_abi == 2 && record.u.sample.regs_user_count == 2);
    CHECK(record.u.sample.regs_user[1] == 301);
    CHECK(record.u.sample.stack_user_size == 9 && record.u.sample.stack_user[8] == 401 % 256);
    CHECK(record.u.sample.weight == 12 && record.u.sample.data_src == 13);
    CHECK(record.u.sample.transaction == 14 && record.u.sample.phys_addr == 15);
    CHECK(record.u.sample.cgroup == 16 && record.u.sample.data_page_size == 17);
    CHECK(record.u.sample.code_page_size == 18);
    // No prefix of it is a whole record.
    size_t whole = count;
    for (count = 1; count < whole; count++)
        CHECK(parse(&layout, &record) == -EBADMSG);
}

static void
raw_ends_on_a_word(void)
{
    const struct opd_record_layout layout = {.sample_type = PERF_SAMPLE_RAW | PERF_SAMPLE_DATA_SRC};
    struct opd_record record;
    start(OPD_RECORD_SAMPLE, 0);
    put2(5, 0x04030201); // 4 + 5 bytes: two words
    put(0x05);
    put(42);
    CHECK(parse(&layout, &record) > 0);
    CHECK(record.u.sample.raw_size == 5 && record.u.sample.raw[4] == 5);
    CHECK(record.u.sample.data_src == 42);
    CHECK((uintptr_t)record.u.sample.raw % 4 == 0);
    words[1] = 0xffffffff;
    CHECK(parse(&layout, &record) == -EBADMSG);
}

static void
registers_and_stack_of_a_kernel_thread(void)
{
    const struct opd_record_layout layout = {
        .sample_type = PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER | PERF_SAMPLE_PHYS_ADDR,
        .sample_regs_user = 0xffff};
    struct opd_record record;
    start(OPD_RECORD_SAMPLE, 0);
    put(0); // abi none: no registers
    put(0); // no stack: no filled size either
    put(7);
    CHECK(parse(&layout, &record) > 0);
    CHECK(record.u.sample.regs_user == NULL && record.u.sample.regs_user_count == 0);
    CHECK(record.u.sample.stack_user_size == 0 && record.u.sample.phys_addr == 7);
    start(OPD_RECORD_SAMPLE, 0);
    put(0);
    put(8);
    put(1);
    put(9); // more filled than there is
    put(7);
    CHECK(parse(&layout, &record) == -EBADMSG);
}

static void
no_branches_with_and_without_index(void)
{
    const struct opd_record_layout layout = {.sample_type =
                                                 PERF_SAMPLE_BRANCH_STACK | PERF_SAMPLE_DATA_SRC,
                                             .branch_sample_type = 1u << 17};
    struct opd_record record;
    start(OPD_RECORD_SAMPLE, 0);
    put(0);
    put(42);
    CHECK(parse(&layout, &record) > 0 && record.u.sample.data_src == 42);
    start(OPD_RECORD_SAMPLE, 0);
    put(0);
    put(1); // the index
    put(42);
    CHECK(parse(&layout, &record) > 0 && record.u.sample.data_src == 42);
}

static void
read_without_group(void)
{
    const struct opd_record_layout layout = {
        .sample_type = PERF_SAMPLE_READ | PERF_SAMPLE_CALLCHAIN,
        .read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING |
                       PERF_FORMAT_ID | 1u << 4};
    struct opd_record record;
    start(OPD_RECORD_SAMPLE, 0);
    for (uint64_t i = 0; i < 5; i++)
        put(i);
    put(1);
    put(99);
    CHECK(parse(&layout, &record) > 0 && record.u.sample.chain[0] == 99);
    CHECK(record.u.sample.period == 1);
}

static void
mmap_records(void)
{
    struct opd_record record;
    start(OPD_RECORD_MMAP2, OPD_MISC_USER);
    put2(21, 22);
    put(0x1000);
    put(0x2000);
    put(0x3000);
    put2(8, 1);
    put(555);
    put(6);
    put2(5, 2);
    put_text("/usr/bin/demo");
    put_trailer();
    CHECK(parse(&usual, &record) > 0);
    CHECK(record.u.mmap.pid == 21 && record.u.mmap.tid == 22 && record.u.mmap.start == 0x1000);
    CHECK(record.u.mmap.length == 0x2000 && record.u.mmap.page_offset == 0x3000);
    CHECK(record.u.mmap.major == 8 && record.u.mmap.minor == 1 && record.u.mmap.inode == 555);
    CHECK(record.u.mmap.inode_generation == 6 && record.u.mmap.build_id_size == 0);
    CHECK(record.u.mmap.protection == 5 && record.u.mmap.flags == 2 && record.u.mmap.executable);
    CHECK(strcmp(record.u.mmap.path, "/usr/bin/demo") == 0 && record.u.mmap.path_length == 13);
    CHECK(record.pid == 11 && record.time == 1000 && record.id == 77);

    words[0] |= (uint64_t)OPD_MISC_MMAP_BUILD_ID << 32;
    uint8_t build_id[24] = {20, 0, 0, 0, 0xaa, 0xbb};
    memcpy(words + 5, build_id, sizeof build_id);
    CHECK(parse(&usual, &record) > 0);
    CHECK(record.u.mmap.build_id_size == 20 && record.u.mmap.build_id[1] == 0xbb);
    CHECK(record.u.mmap.inode == 0 && record.u.mmap.major == 0);

    // The misc bit alone does not make a build-id of a device and an inode.
    words[5] = 254 | 1ull << 32; // 254:1
    CHECK(parse(&usual, &record) > 0);
    CHECK(record.u.mmap.build_id_size == 0);
    CHECK(record.u.mmap.major == 254 && record.u.mmap.minor == 1);
    words[5] = 8; // a size that a build-id could have
    CHECK(parse(&usual, &record) > 0 && record.u.mmap.build_id_size == 0);
    struct opd_record_layout asked = usual;
    asked.build_id = true;
    CHECK(parse(&asked, &record) > 0 && record.u.mmap.build_id_size == 8);

    start(OPD_RECORD_MMAP, OPD_MISC_KERNEL);
    put2(UINT32_MAX, 0);
    put(0x1000);
    put(0x2000);
    put(0x1000);
    put_text("[kernel.kallsyms]_text");
    put_trailer();
    CHECK(parse(&usual, &record) > 0 && record.u.mmap.executable);
    CHECK(strcmp(record.u.mmap.path, "[kernel.kallsyms]_text") == 0);
    words[0] |= (uint64_t)OPD_MISC_MMAP_DATA << 32;
    CHECK(parse(&usual, &record) > 0 && !record.u.mmap.executable);
}

static void
a_name_ends_before_the_trailer(void)
{
    struct opd_record record;
    start(OPD_RECORD_COMM, OPD_MISC_COMM_EXEC);
    put2(1, 2);
    put(0x4141414141414141); // no NUL before the trailer, whose bytes have many
    put_trailer();
    CHECK(parse(&usual, &record) == -EBADMSG);
    words[2] = 0x0041414141414141;
    CHECK(parse(&usual, &record) > 0);
    CHECK(record.u.comm.comm_length == 7 && record.u.comm.pid == 1 && record.u.comm.tid == 2);
}

static void
other_records(void)
{
    struct opd_record record;
    uint64_t value;
    start(OPD_RECORD_FORK, 0);
    put2(2, 1);
    put2(4, 3);
    put(900);
    put_trailer();
    CHECK(count * 8 == 64 && parse(&usual, &record) == 64);
    CHECK(record.u.task.pid == 2 && record.u.task.parent_pid == 1 && record.u.task.tid == 4);
    CHECK(record.u.task.parent_tid == 3 && record.u.task.time == 900 && record.pid == 11);
    CHECK(opd_record_identifier(words, 64, &value) == 0 && value == 77);
    CHECK(opd_record_time(&usual, words, 64, &value) && value == 1000);

    start(OPD_RECORD_LOST, 0);
    put(77);
    put(12);
    put_trailer();
    CHECK(parse(&usual, &record) > 0 && record.u.lost.id == 77 && record.u.lost.lost == 12);
    start(OPD_RECORD_LOST_SAMPLES, 0);
    put(13);
    put_trailer();
    CHECK(parse(&usual, &record) > 0 && record.u.lost.id == 0 && record.u.lost.lost == 13);
    start(OPD_RECORD_THROTTLE, 0);
    put(1);
    put(2);
    put(3);
    put_trailer();
    CHECK(parse(&usual, &record) > 0 && record.u.throttle.stream_id == 3);
    start(OPD_RECORD_KSYMBOL, 0);
    put(0xffffffffc0000000);
    put(64 | (uint64_t)1 << 32 | (uint64_t)1 << 48);
    put_text("bpf_prog_0123456789abcdef_x");
    put_trailer();
    CHECK(parse(&usual, &record) > 0);
    CHECK(record.u.ksymbol.length == 64 && record.u.ksymbol.kind == 1);
    CHECK(record.u.ksymbol.flags == 1 && record.u.ksymbol.name_length == 27);
    start(OPD_RECORD_CGROUP, 0);
    put(5);
    put_text("/system.slice");
    put_trailer();
    CHECK(parse(&usual, &record) > 0 && record.u.cgroup.id == 5);
    CHECK(strcmp(record.u.cgroup.path, "/system.slice") == 0);
    start(22, 0); // newer than this parser
    put(1);
    put_trailer();
    CHECK(parse(&usual, &record) > 0 && record.time == 1000);
    start(68, 0); // perf's own
    CHECK(parse(&usual, &record) == 8 && record.has == 0);
    CHECK(opd_record_identifier(words, 8, &value) == -EBADMSG);
}

static void
without_trailer(void)
{
    struct opd_record_layout old = usual;
    struct opd_record record;
    uint64_t value;
    old.sample_id_all = false;
    start(OPD_RECORD_EXIT, 0);
    put2(2, 1);
    put2(4, 3);
    put(900);
    CHECK(parse(&old, &record) == 32 && record.has == 0 && record.pid == 2 && record.tid == 4);
    CHECK(!opd_record_time(&old, words, 32, &value));
    CHECK(parse(&usual, &record) == -EBADMSG);
}

static void
wrong_headers(void)
{
    struct opd_record record;
    words[0] = OPD_RECORD_COMM | (uint64_t)16 << 48;
    CHECK(opd_record_parse(&usual, words, 7, &record) == -EAGAIN);
    CHECK(opd_record_parse(&usual, words, 15, &record) == -EAGAIN);
    CHECK(opd_record_size(words, 15) == 0 && opd_record_size(words, 16) == 16);
    words[0] = OPD_RECORD_COMM | (uint64_t)4 << 48;
    CHECK(opd_record_parse(&usual, words, 64, &record) == -EBADMSG);
    words[0] = OPD_RECORD_COMM | (uint64_t)20 << 48;
    CHECK(opd_record_parse(&usual, words, 64, &record) == -EBADMSG);
    CHECK(opd_record_size(words, 64) == 0);
}

int
main(void)
{
    RUN(usual_sample);
    RUN(every_field_in_the_kernels_order);
    RUN(raw_ends_on_a_word);
    RUN(registers_and_stack_of_a_kernel_thread);
    RUN(no_branches_with_and_without_index);
    RUN(read_without_group);
    RUN(mmap_records);
    RUN(a_name_ends_before_the_trailer);
    RUN(other_records);
    RUN(without_trailer);
    RUN(wrong_headers);
    return 0;
}
