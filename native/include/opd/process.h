// SPDX-License-Identifier: Apache-2.0
// What a process asks of the kernel and of malloc about itself.
#ifndef OPD_PROCESS_H
#define OPD_PROCESS_H

// Has malloc give freed memory back, and share arenas between threads: a
// large window must not be paid for ever.
void opd_process_return_memory(void);

// Gives the kernel back at once what malloc holds and nobody uses.
void opd_process_trim_memory(void);

// SIGKILL when the thread that started this process ends. 0 or -errno.
int opd_process_die_with_parent(void);

#endif
