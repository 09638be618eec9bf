// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/report/interpreter.h"

#include <inttypes.h>
#include <string.h>

#include "user/model/labels.h"
#include "user/model/processes.h"
#include "user/model/samples.h"
#include "user/report/common.h"
#include "user/report/print/shape.h"
#include "user/report/print/text.h"

struct gc_generation {
	uint64_t cnt, total_ns, max_ns;
	uint32_t max_step;
};

struct interpreter {
	uint64_t gil_ns, gil_main_ns;
	struct gc_generation gc[GC_GENERATIONS];
};

static void add_interpreter_waits(struct job *job, const struct samples *samples, uint32_t pid, struct interpreter *sum)
{
	for (size_t i = 0; i < samples__cnt(samples); i++) {
		struct sample sample = samples__get(samples, i);

		if (sample.cause != CAUSE_GIL || sample.passed || !processes__in_scope(job, sample.pid, pid))
			continue;
		sum->gil_ns += sample.weight_ns;
		if (sample.tid == sample.pid)
			sum->gil_main_ns += sample.weight_ns;
	}
}

static void add_gc_pauses(struct job *job, const struct samples *samples, uint32_t pid, struct interpreter *sum)
{
	size_t cnt;
	const struct gc_pause *pauses = samples__gc_pauses(samples, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		int generation = labels__gc_generation(job__name(job, pauses[i].name));
		struct gc_generation *g = &sum->gc[generation < 0 ? 0 : generation];

		if (generation < 0 || !processes__in_scope(job, pauses[i].pid, pid))
			continue;
		g->cnt++;
		g->total_ns += pauses[i].duration_ns;
		if (pauses[i].duration_ns > g->max_ns) {
			g->max_ns = pauses[i].duration_ns;
			g->max_step = pauses[i].step;
		}
	}
}

static struct interpreter collect_shares(struct job *job, uint32_t pid)
{
	const struct samples *samples = job__samples(job);
	struct interpreter sum = {0};

	if (samples) {
		add_interpreter_waits(job, samples, pid, &sum);
		add_gc_pauses(job, samples, pid, &sum);
	}
	return sum;
}

void interpreter__text(struct job *job, uint32_t pid, FILE *out)
{
	struct interpreter sum = collect_shares(job, pid);

	if (sum.gil_ns)
		text__paragraph(out, "gil: threads waited %.3g s for it, main threads %.3g s of that", sum.gil_ns / 1e9,
				sum.gil_main_ns / 1e9);
	for (int i = 0; i < GC_GENERATIONS; i++) {
		const struct gc_generation *g = &sum.gc[i];

		if (g->cnt)
			text__paragraph(out,
					"gc: %" PRIu64 " collection%s of generation %d, %.3g s; the longest %.3g s, "
					"in step %u",
					g->cnt, g->cnt == 1 ? "" : "s", i, g->total_ns / 1e9, g->max_ns / 1e9,
					g->max_step);
	}
}

SHAPE(gc_shape, "gc", "generation:I count:I total_s:f max_s:f max_step:I");

SHAPE(interpreter_shape, "interpreter", "gil_s:f gil_main_s:f gc:[gc]");

json_t *interpreter__json(struct job *job, uint32_t pid)
{
	struct interpreter sum = collect_shares(job, pid);
	json_t *gc = json_array();
	int failed = 0;

	for (int i = 0; i < GC_GENERATIONS; i++) {
		const struct gc_generation *g = &sum.gc[i];

		if (g->cnt)
			failed |= json_array_append_new(gc, SHAPE_PACK(gc_shape, json_integer(i), json_integer(g->cnt),
								       json_real(g->total_ns / 1e9),
								       json_real(g->max_ns / 1e9),
								       json_integer(g->max_step)));
	}
	gc = common__json_unless_failed(gc, failed);
	return SHAPE_PACK(interpreter_shape, json_real(sum.gil_ns / 1e9), json_real(sum.gil_main_ns / 1e9), gc);
}
