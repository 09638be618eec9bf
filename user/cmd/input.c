// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "input.h"

#include <errno.h>
#include <string.h>

#include "../log.h"

static void explain_read(const char *file, int err, uint32_t version)
{
	switch (err) {
	case -ENOENT:
		log__error("name a recording, or make one: stepflame record -p PID -d 30s", "no recording %s", file);
		break;
	case -EACCES:
		log__error("run as its owner, or have it made readable", "cannot read %s: %s", file, strerror(-err));
		break;
	case -EBADMSG:
		log__error("name a file that stepflame record wrote", "%s is not a stepflame recording", file);
		break;
	case -EPROTONOSUPPORT:
		if (version == RECORDING_VERSION)
			log__error("report it on a machine of the kind that recorded it",
				   "%s has the byte order of another machine", file);
		else
			log__error("use the stepflame that wrote it",
				   "%s has recording format %u, this is stepflame " STEPFLAME_VERSION
				   " and reads format %u",
				   file, version, RECORDING_VERSION);
		break;
	default:
		log__error("name a file that stepflame record wrote", "cannot read %s: %s", file, strerror(-err));
	}
}

int input__read(const char *file, int (*fn)(const struct rec_hdr *record, void *ctx), void *ctx)
{
	enum recording_end end = RECORDING_WHOLE;
	uint32_t version = 0;
	int err = recording__read(file, fn, ctx, &end, &version);

	if (err)
		explain_read(file, err, version);
	else if (end == RECORDING_CUT)
		log__warn("none needed; record again if it matters",
			  "%s is cut or damaged; this is what its sound part holds", file);
	return err;
}
