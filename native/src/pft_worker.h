// SPDX-License-Identifier: Apache-2.0
#ifndef OPD_PFT_WORKER_H
#define OPD_PFT_WORKER_H
#include "pft_private.h"

// All workers of one repeat, the caller as the first. 0, or -errno with
// pft->reason filled; no worker is left.
int pft_workers_run(struct opd_pft *pft);
#endif
