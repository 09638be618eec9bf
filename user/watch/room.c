// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/watch/room.h"

#include <sys/statvfs.h>

bool room__is_short(uint64_t wanted, uint64_t total, uint64_t free, bool was_short)
{
	if (!wanted) {
		wanted = total / 100 * ROOM_PERCENT;
		if (wanted > ROOM_BYTES)
			wanted = ROOM_BYTES;
	}
	return free < wanted * (was_short ? ROOM_AGAIN : 1);
}

bool room__is_short_at(const char *folder, uint64_t wanted, bool was_short)
{
	struct statvfs disk;

	return !statvfs(folder, &disk) && room__is_short(wanted, (uint64_t)disk.f_blocks * disk.f_frsize,
							 (uint64_t)disk.f_bavail * disk.f_frsize, was_short);
}
