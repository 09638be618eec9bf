/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef STEPFLAME_USER_ANALYSIS_LOADER_ADVICE_H
#define STEPFLAME_USER_ANALYSIS_LOADER_ADVICE_H

#include "user/analysis/loader/loader.h"

/* The most workers alive at one time. */
uint32_t advice__at_once(const struct loader *loader);
/*
 * Judges from the measurements what limits a process, and what more workers would gain. cpus 0: not
 * known.
 */
void advice__find(struct loader *loader, uint32_t cpus);

#endif
