/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef STEPFLAME_USER_ANALYSIS_LOADER_LOADER_PLACE_H
#define STEPFLAME_USER_ANALYSIS_LOADER_LOADER_PLACE_H

#include "user/analysis/loader/loader.h"

/* The place of a sample whose process was in its DataLoader. */
struct loader_place loader_place__of(const struct job *job, const struct steps *steps, const struct sample *sample);

#endif
