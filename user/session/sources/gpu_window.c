// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/sources/gpu_window.h"

/* Correlation ids grow with each call of the process, and wrap. */
static bool is_later_call(uint32_t correlation, uint32_t last)
{
	return (int32_t)(correlation - last) > 0;
}

enum gpu_fate gpu_window__judge(struct gpu_window *w, enum gpu_activity kind, uint32_t correlation, uint64_t start_ns,
				uint64_t end_ns, uint64_t known_ns, bool last)
{
	bool call = kind == GPU_ACTIVITY_CALL, work = kind >= GPU_ACTIVITY_KERNEL && kind <= GPU_ACTIVITY_GRAPH;

	if (!w->by_steps)
		return GPU_INSIDE;
	if (!last && end_ns >= known_ns)
		return GPU_UNDECIDED;
	if (!w->steps_start_ns || end_ns <= w->steps_start_ns)
		return GPU_OUTSIDE;
	if (!w->steps_end_ns || start_ns < w->steps_end_ns) {
		if (call && (!w->last_correlation || is_later_call(correlation, w->last_correlation)))
			w->last_correlation = correlation;
		return GPU_INSIDE;
	}
	if (!work)
		return GPU_OUTSIDE;
	if (!last)
		return GPU_UNDECIDED;
	return is_later_call(correlation, w->last_correlation) ? GPU_OUTSIDE : GPU_INSIDE;
}

static uint64_t window_start_ns(const struct gpu_window *w)
{
	return w->begun_ns > w->steps_start_ns ? w->begun_ns : w->steps_start_ns;
}

static uint64_t window_end_ns(const struct gpu_window *w)
{
	uint64_t end_ns = w->reported_ns;

	if (w->steps_end_ns && w->steps_end_ns < end_ns)
		end_ns = w->steps_end_ns;
	if (w->ended_ns && w->ended_ns < end_ns)
		end_ns = w->ended_ns;
	return end_ns;
}

static bool has_begun(const struct gpu_window *w)
{
	return w->begun_ns && (!w->by_steps || w->steps_start_ns);
}

uint64_t gpu_window__ns(const struct gpu_window *w)
{
	return has_begun(w) && window_end_ns(w) > window_start_ns(w) ? window_end_ns(w) - window_start_ns(w) : 0;
}

bool gpu_window__record(const struct gpu_window *w, struct rec_gpu_window *out)
{
	*out = (struct rec_gpu_window){.hdr = {.type = REC_GPU_WINDOW, .size = sizeof(*out)}, .end = w->end};
	if (w->refused) {
		out->start_ns = out->end_ns = w->requested_ns;
		out->error = w->end == GPU_WINDOW_FAILED ? w->error : 0;
		return true;
	}
	if (has_begun(w) && window_end_ns(w) > window_start_ns(w)) {
		out->start_ns = window_start_ns(w);
		out->end_ns = window_end_ns(w);
		return true;
	}
	if (w->end != GPU_WINDOW_STEPS)
		return false;
	out->start_ns = out->end_ns = w->steps_end_ns;
	out->end = GPU_WINDOW_LATE;
	return true;
}
