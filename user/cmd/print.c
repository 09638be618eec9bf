// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/cmd/print.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "user/report/print/text.h"

static bool has_colours(int fd)
{
	const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");

	return isatty(fd) && !(no_color && *no_color) && term && *term && strcmp(term, "dumb") != 0;
}

static int write_all(int fd, const char *text, size_t bytes)
{
	while (bytes) {
		ssize_t written = write(fd, text, bytes);

		if (written < 0 && errno != EINTR)
			return -errno;
		if (written > 0) {
			text += written;
			bytes -= written;
		}
	}
	return 0;
}

int print__report(const struct report_ops *ops, struct job *job, const struct report_options *options, FILE *out)
{
	int fd = out == stderr ? STDERR_FILENO : STDOUT_FILENO, err = -ENOMEM;
	struct report_options of_terminal = *options;
	char *text = NULL;
	size_t bytes = 0;
	FILE *memory = open_memstream(&text, &bytes);

	text__use_terminal(fd);
	of_terminal.colour = has_colours(fd);
	if (memory) {
		err = (options->json || options->csv ? ops->json : ops->text)(job, &of_terminal, memory);
		if (fclose(memory) && !err)
			err = -ENOMEM;
	}
	if (err) {
		free(text);
		return err;
	}
	/* stdout and stderr escape what steers a terminal, as colours do; a report in colours has escaped its texts. */
	if (of_terminal.colour && ops == &report_summary)
		err = fflush(out) ? -errno : write_all(fd, text, bytes);
	else if (fwrite(text, 1, bytes, out) != bytes || fflush(out))
		err = -errno;
	free(text);
	return err;
}
