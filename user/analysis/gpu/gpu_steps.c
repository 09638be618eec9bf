// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/gpu/gpu_steps.h"

#include <errno.h>
#include <stdlib.h>

#include "user/lib/saturating.h"

#define WATCHED_SHARE 0.95

bool gpu_step__is_watched(const struct gpu_step *step, uint64_t step_ns)
{
	return step->watched_ns && step->watched_ns >= WATCHED_SHARE * step_ns;
}

double gpu_step__busy(const struct gpu_step *step)
{
	return step->watched_ns ? (double)step->busy_ns / step->watched_ns : 0;
}

static void gpu_step__add(struct gpu_step *sum, const struct gpu_step *step)
{
	sum->known += step->known;
	sum->launches = saturating__add(sum->launches, step->launches);
	sum->copies = saturating__add(sum->copies, step->copies);
	sum->copied_bytes = saturating__add(sum->copied_bytes, step->copied_bytes);
	sum->api_ns = saturating__add(sum->api_ns, step->api_ns);
	sum->sync_ns = saturating__add(sum->sync_ns, step->sync_ns);
	sum->watched_ns = saturating__add(sum->watched_ns, step->watched_ns);
	sum->busy_ns = saturating__add(sum->busy_ns, step->busy_ns);
	sum->profiling_ns = saturating__add(sum->profiling_ns, step->profiling_ns);
}

bool gpu_step__calls(const struct gpu *gpu, const struct step_track *track, const struct step *step, size_t *at,
		     struct gpu_step *out)
{
	size_t cnt;
	const struct rec_gpu_step *records = gpu__steps(gpu, &cnt);
	uint64_t up_to_ns = step->start_ns;
	struct gpu_step sum = {.known = 1};

	while (*at < cnt && (records[*at].pid < track->pid ||
			     (records[*at].pid == track->pid && records[*at].time_ns <= step->start_ns)))
		(*at)++;
	for (; *at < cnt && records[*at].pid == track->pid && records[*at].time_ns <= step->end_ns; (*at)++) {
		if (records[*at].from_ns != up_to_ns)
			continue;
		up_to_ns = records[*at].time_ns;
		sum.launches = saturating__add(sum.launches, records[*at].launches);
		sum.copies = saturating__add(sum.copies, records[*at].copies);
		sum.copied_bytes = saturating__add(sum.copied_bytes, records[*at].copied_bytes);
		sum.api_ns = saturating__add(sum.api_ns, records[*at].api_ns);
		sum.sync_ns = saturating__add(sum.sync_ns, records[*at].sync_ns);
	}
	if (up_to_ns != step->end_ns)
		return false;
	*out = sum;
	return true;
}

static void add_step_calls(struct gpu_steps *out, const struct gpu *gpu, const struct step_track *track)
{
	size_t at = 0;

	for (size_t i = 0; i < track->step_cnt; i++)
		gpu_step__calls(gpu, track, &track->steps[i], &at, &out->steps[i]);
}

static void add_step_work(struct gpu_steps *out, const struct gpu_time *time, const struct step_track *track)
{
	size_t cnt, own = 0;
	const struct gpu_line *lines = gpu_time__lines(time, &cnt);

	for (size_t l = 0; l < cnt; l++)
		own += lines[l].pid == track->pid;
	for (size_t i = 0; i < track->step_cnt && own; i++) {
		uint64_t start_ns = track->steps[i].start_ns, end_ns = track->steps[i].end_ns, busy_ns = 0;

		out->steps[i].watched_ns = gpu_time__watched(time, track->pid, start_ns, end_ns);
		for (size_t l = 0; l < cnt; l++)
			if (lines[l].pid == track->pid)
				busy_ns += gpu_spans__within(&lines[l].work, start_ns, end_ns);
		busy_ns /= own;
		out->steps[i].busy_ns = busy_ns < out->steps[i].watched_ns ? busy_ns : out->steps[i].watched_ns;
	}
}

static void add_kernels(struct gpu_steps *out, const struct gpu *gpu, const struct step_track *track)
{
	size_t cnt;
	const struct gpu_act *activities = gpu__activities(gpu, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		if (activities[i].pid != track->pid || step_track__at(track, activities[i].start_ns) < 0 ||
		    (activities[i].kind != GPU_ACTIVITY_KERNEL && activities[i].kind != GPU_ACTIVITY_GRAPH))
			continue;
		out->kernels++;
		out->kernel_ns = saturating__add(out->kernel_ns, activities[i].duration_ns);
	}
}

/* Of overheads inside each other, time counts once. */
static void add_profiling(struct gpu_steps *out, const struct gpu *gpu, const struct step_track *track)
{
	size_t cnt, at = 0;
	const struct gpu_act *activities = gpu__activities(gpu, &cnt);
	uint64_t counted_ns = 0;

	for (size_t i = 0; i < cnt; i++) {
		const struct gpu_act *activity = &activities[i];
		uint64_t from_ns = activity->start_ns, to_ns = gpu_act__end_ns(activity);

		if (activity->kind != GPU_ACTIVITY_OVERHEAD || activity->pid != track->pid ||
		    activity->tid != track->tid || !gpu_overhead__is_profiling(activity->detail[0]))
			continue;
		from_ns = from_ns > counted_ns ? from_ns : counted_ns;
		counted_ns = to_ns > counted_ns ? to_ns : counted_ns;
		while (at < track->step_cnt && track->steps[at].end_ns <= from_ns)
			at++;
		for (size_t s = at; s < track->step_cnt && track->steps[s].start_ns < to_ns; s++) {
			const struct step *step = &track->steps[s];
			uint64_t start_ns = from_ns > step->start_ns ? from_ns : step->start_ns;
			uint64_t end_ns = to_ns < step->end_ns ? to_ns : step->end_ns;

			out->steps[s].profiling_ns += end_ns > start_ns ? end_ns - start_ns : 0;
		}
	}
}

static void sum_gpu_steps(struct gpu_steps *out, const struct step_track *track)
{
	for (size_t i = 0; i < track->step_cnt; i++)
		gpu_step__add(&out->all, &out->steps[i]);
	for (size_t i = 0; i < track->slow_cnt; i++)
		gpu_step__add(&out->slow, &out->steps[track->slow[i]]);
}

int gpu_steps__new(const struct gpu *gpu, const struct gpu_time *time, const struct step_track *track,
		   struct gpu_steps *out)
{
	const struct gpu_process *process = gpu__process(gpu, track->pid);

	*out = (struct gpu_steps){0};
	if (!process || process->tier == GPU_TIER_NONE)
		return 0;
	out->steps = calloc(track->step_cnt + 1, sizeof(*out->steps));
	if (!out->steps)
		return -ENOMEM;
	add_step_calls(out, gpu, track);
	add_step_work(out, time, track);
	add_kernels(out, gpu, track);
	add_profiling(out, gpu, track);
	sum_gpu_steps(out, track);
	return 0;
}

void gpu_steps__release(struct gpu_steps *gpu)
{
	free(gpu->steps);
	*gpu = (struct gpu_steps){0};
}
