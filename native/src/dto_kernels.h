// SPDX-License-Identifier: Apache-2.0
// Our own kernels by name; each is only for CPUs that have what it is made of.
#ifndef OPD_DTO_KERNELS_H
#define OPD_DTO_KERNELS_H
#include "opd/dto.h"

extern const struct opd_dto_functions dto_sse2_functions;
extern const struct opd_dto_functions dto_avx2_functions;
extern const struct opd_dto_functions dto_avx512_functions;
extern const struct opd_dto_functions dto_rep_functions; // rep movsb, rep stosb; no memcmp
extern const struct opd_dto_functions dto_nt_functions;  // stores past the caches; no memcmp
#endif
