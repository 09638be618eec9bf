/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whether a disk has room left for others, too. */
#ifndef STEPFLAME_USER_WATCH_ROOM_H
#define STEPFLAME_USER_WATCH_ROOM_H

#include <stdbool.h>
#include <stdint.h>

#define ROOM_BYTES   5000000000ull /* that shall stay free, or ROOM_PERCENT of the disk, if that is less */
#define ROOM_PERCENT 10
#define ROOM_AGAIN   1.2 /* times as much ends the shortage */

/* wanted: bytes that shall stay free; 0: as above. total, free: of the disk. was_short: what the last call said. */
bool room__is_short(uint64_t wanted, uint64_t total, uint64_t free, bool was_short);
/* The same of the disk of a folder. One that cannot be asked is not short. */
bool room__is_short_at(const char *folder, uint64_t wanted, bool was_short);

#endif
