// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The table of the event sources. */
#include "user/session/source.h"

const struct source *const sources[SOURCE__COUNT] = {
#define X(id, name) [SOURCE_##id] = &source_##name,
	STEPFLAME_SOURCES(X)
#undef X
};
