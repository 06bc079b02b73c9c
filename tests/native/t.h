// SPDX-License-Identifier: Apache-2.0
// Three words for C tests: CHECK, RUN, SKIP. A failed CHECK ends the program.
#ifndef OPD_T_H
#define OPD_T_H
#include <stdio.h>
#include <stdlib.h>

#define T_SKIP 77

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition);          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define RUN(test)                                                                                  \
    do {                                                                                           \
        test();                                                                                    \
        printf("ok %s\n", #test);                                                                  \
    } while (0)

#define SKIP(why)                                                                                  \
    do {                                                                                           \
        printf("SKIP: %s\n", why);                                                                 \
        exit(T_SKIP);                                                                              \
    } while (0)

#endif
