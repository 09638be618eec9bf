/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Copies a recording that still grows without its oldest events, a little at a time, so that no
 * record waits long. The copy begins with what later records refer to (names, stacks), the last
 * cumulative records, and a REC_DROPPED; the chunks of the kept part follow as they are.
 */
#ifndef STEPFLAME_USER_RECORDING_TRIM_H
#define STEPFLAME_USER_RECORDING_TRIM_H

#include "user/recording/chunk.h"

struct trim;

/*
 * Begins to copy the recording that is open as fd and was created at path into a new file beside
 * it, without the events in its first drop_bytes. state_max: how much of these bytes the copy may
 * keep. 0 or -errno.
 */
int trim__new(int fd, const char *path, uint64_t drop_bytes, uint64_t state_max, struct trim **out);
/* Copies some `bytes` of a recording that now has `end`. 1: all was copied; 0; or -errno. */
int trim__go(struct trim *trim, uint64_t end, uint64_t bytes);
uint64_t trim__drop_bytes(const struct trim *trim); /* as given */
/* Valid after trim__go has returned 1. */
const struct rec_dropped *trim__dropped(const struct trim *trim);
/*
 * Then: puts the copy in the place of the recording, and passes on its writer. 0 or -errno:
 * -ESTALE: there is another file at path.
 */
int trim__finish(struct trim *trim, const char *path, struct recording_writer **out);
/* Removes a copy that is not finished. Accepts NULL. */
void trim__free(struct trim *trim);

#endif
