// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/sources/gpu_window.h"

/* Correlation ids grow with each call of the process, and wrap. */
static bool is_behind(uint32_t correlation, uint32_t last)
{
	return (int32_t)(correlation - last) > 0;
}

enum gpu_fate gpu_window__judge(struct gpu_window *w, enum gpu_activity kind, uint32_t correlation, uint64_t start_ns,
				uint64_t end_ns, uint64_t known_ns, bool last)
{
	bool call = kind == GPU_ACTIVITY_CALL, work = kind >= GPU_ACTIVITY_KERNEL && kind <= GPU_ACTIVITY_GRAPH;

	if (!w->by_steps)
		return GPU_TOLD;
	if (!last && end_ns >= known_ns)
		return GPU_NOT_YET_KNOWN;
	if (!w->steps_ns || end_ns <= w->steps_ns)
		return GPU_LEFT_OUT;
	if (!w->until_ns || start_ns < w->until_ns) {
		if (call && (!w->last_correlation || is_behind(correlation, w->last_correlation)))
			w->last_correlation = correlation;
		return GPU_TOLD;
	}
	if (!work)
		return GPU_LEFT_OUT;
	if (!last)
		return GPU_NOT_YET_KNOWN;
	return is_behind(correlation, w->last_correlation) ? GPU_LEFT_OUT : GPU_TOLD;
}

static uint64_t start_of(const struct gpu_window *w)
{
	return w->begun_ns > w->steps_ns ? w->begun_ns : w->steps_ns;
}

static uint64_t end_of(const struct gpu_window *w)
{
	uint64_t end_ns = w->told_ns;

	if (w->until_ns && w->until_ns < end_ns)
		end_ns = w->until_ns;
	if (w->ended_ns && w->ended_ns < end_ns)
		end_ns = w->ended_ns;
	return end_ns;
}

static bool is_in(const struct gpu_window *w)
{
	return w->begun_ns && (!w->by_steps || w->steps_ns);
}

uint64_t gpu_window__ns(const struct gpu_window *w)
{
	return is_in(w) && end_of(w) > start_of(w) ? end_of(w) - start_of(w) : 0;
}

bool gpu_window__record(const struct gpu_window *w, struct rec_gpu_window *out)
{
	*out = (struct rec_gpu_window){.hdr = {.type = REC_GPU_WINDOW, .size = sizeof(*out)}, .end = w->end};
	if (w->refused) {
		out->start_ns = out->end_ns = w->asked_ns;
		out->error = w->end == GPU_WINDOW_FAILED ? w->error : 0;
		return true;
	}
	if (is_in(w) && end_of(w) > start_of(w)) {
		out->start_ns = start_of(w);
		out->end_ns = end_of(w);
		return true;
	}
	if (w->end != GPU_WINDOW_STEPS)
		return false;
	out->start_ns = out->end_ns = w->until_ns;
	out->end = GPU_WINDOW_LATE;
	return true;
}
