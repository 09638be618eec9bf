// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Streams that are compressed as they are written. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>
#include <zlib.h>

#include "user/export/export.h"

static ssize_t write_gzip(void *cookie, const char *data, size_t bytes)
{
	return gzwrite(cookie, data, bytes);
}

static int close_gzip(void *cookie)
{
	return gzclose(cookie) == Z_OK ? 0 : -1;
}

FILE *export__open_gzip(int fd)
{
	gzFile gzip;
	FILE *out;

	errno = ENOMEM;
	gzip = gzdopen(fd, "wb");
	if (!gzip) {
		close(fd);
		return NULL;
	}
	out = fopencookie(gzip, "wb", (cookie_io_functions_t){.write = write_gzip, .close = close_gzip});
	if (!out)
		gzclose(gzip);
	return out;
}
