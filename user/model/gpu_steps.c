// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "gpu_steps.h"

#include <errno.h>
#include <stdlib.h>

#include "sums.h"

#define WATCHED_SHARE 0.95

bool gpu_step__is_watched(const struct gpu_step *step, uint64_t step_ns)
{
	return step->watched_ns && step->watched_ns >= WATCHED_SHARE * step_ns;
}

double gpu_step__busy(const struct gpu_step *step)
{
	return step->watched_ns ? (double)step->busy_ns / step->watched_ns : 0;
}

static void add(struct gpu_step *sum, const struct gpu_step *step)
{
	sum->told += step->told;
	sum->launches = sum__u64(sum->launches, step->launches);
	sum->copies = sum__u64(sum->copies, step->copies);
	sum->copied_bytes = sum__u64(sum->copied_bytes, step->copied_bytes);
	sum->api_ns = sum__u64(sum->api_ns, step->api_ns);
	sum->sync_ns = sum__u64(sum->sync_ns, step->sync_ns);
	sum->watched_ns = sum__u64(sum->watched_ns, step->watched_ns);
	sum->busy_ns = sum__u64(sum->busy_ns, step->busy_ns);
}

/* What the boundaries say, which are those of the steps: both in the order of time. */
static void add_calls(struct gpu_steps *out, const struct gpu *gpu, const struct step_track *track)
{
	size_t cnt, at = 0;
	const struct rec_gpu_step *told = gpu__steps(gpu, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		struct gpu_step *step;

		if (told[i].pid != track->pid)
			continue;
		while (at < track->step_cnt && track->steps[at].end_ns < told[i].time_ns)
			at++;
		if (at == track->step_cnt)
			break;
		step = &out->steps[at];
		if (track->steps[at].end_ns != told[i].time_ns || track->steps[at].index != told[i].index)
			continue;
		*step = (struct gpu_step){.told = 1,
					  .launches = told[i].launches,
					  .copies = told[i].copies,
					  .copied_bytes = told[i].copied_bytes,
					  .api_ns = told[i].api_ns,
					  .sync_ns = told[i].sync_ns};
	}
}

static void add_work(struct gpu_steps *out, const struct gpu_time *time, const struct step_track *track)
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
		out->kernel_ns = sum__u64(out->kernel_ns, activities[i].duration_ns);
	}
}

static void add_up(struct gpu_steps *out, const struct step_track *track)
{
	for (size_t i = 0; i < track->step_cnt; i++)
		add(&out->all, &out->steps[i]);
	for (size_t i = 0; i < track->slow_cnt; i++)
		add(&out->slow, &out->steps[track->slow[i]]);
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
	add_calls(out, gpu, track);
	add_work(out, time, track);
	add_kernels(out, gpu, track);
	add_up(out, track);
	return 0;
}

void gpu_steps__release(struct gpu_steps *gpu)
{
	free(gpu->steps);
	*gpu = (struct gpu_steps){0};
}
