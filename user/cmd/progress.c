// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/cmd/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "user/lib/log.h"

#define LINE_NS 10000000000ULL

const char *progress__time(uint64_t ns, char text[32])
{
	uint64_t s = ns / 1000000000;

	if (s < 100)
		snprintf(text, 32, "%.1f s", ns / 1e9);
	else if (s < 3600)
		snprintf(text, 32, "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
	else
		snprintf(text, 32, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s / 60 % 60);
	return text;
}

void progress__show(struct progress *progress, const struct session_progress *now)
{
	bool terminal = isatty(STDERR_FILENO), left = progress->duration_ns > now->elapsed_ns;
	char elapsed[32], rest[32];

	progress->next_ns = progress->next_ns ?: LINE_NS;
	if (!terminal && now->elapsed_ns < progress->next_ns)
		return;
	progress__time(now->elapsed_ns, elapsed);
	progress__time(left ? progress->duration_ns - now->elapsed_ns : 0, rest);
	if (terminal) {
		dprintf(STDERR_FILENO, "\r  %s%s%s%s   %" PRIu64 " steps   %" PRIu64 " calls   %" PRIu64 " lost\033[K",
			elapsed, left ? ", " : "", left ? rest : "", left ? " left" : "", now->steps, now->calls,
			now->lost);
		progress->shown = true;
		return;
	}
	progress->next_ns = now->elapsed_ns - now->elapsed_ns % LINE_NS + LINE_NS;
	log__info("%s recorded%s%s%s: %" PRIu64 " steps, %" PRIu64 " calls, %" PRIu64 " lost", elapsed,
		  left ? ", " : "", left ? rest : "", left ? " left" : "", now->steps, now->calls, now->lost);
}

void progress__clear(struct progress *progress)
{
	if (progress->shown)
		dprintf(STDERR_FILENO, "\r\033[K");
	progress->shown = false;
}
