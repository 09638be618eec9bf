// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The tables of sums over the recording: actions, operators, and what GPUs did in windows and waited for. */
#include <errno.h>
#include <stdlib.h>

#include "user/analysis/gpu/gpu_ops.h"
#include "user/analysis/gpu/gpu_time.h"
#include "user/export/tables_private.h"
#include "user/lib/map.h"
#include "user/model/labels.h"

#define SPAN_COLUMNS COLUMN("since", TIME), COLUMN("until", TIME), COLUMN("kind", TEXT), COLUMN("name", TEXT)

static void put_window_of(const struct tables *tables, uint64_t from_ns, uint64_t to_ns, struct arrow *arrow)
{
	tables__put_time(tables, from_ns, arrow);
	tables__put_time(tables, to_ns, arrow);
}

/* ---- actions ---- */

static const struct arrow_column action_columns[] = {
	KEY_COLUMNS,
	SPAN_COLUMNS,
	COLUMN("n", INT64),
	COLUMN("total_ns", INT64),
	COLUMN("self_ns", INT64),
	COLUMN("min_ns", INT64),
	COLUMN("max_ns", INT64),
};

static int put_actions(struct tables *tables, struct arrow *arrow)
{
	const struct rec_window *window = job__window(tables->job);
	size_t cnt;
	const struct job_action *actions = job__actions(tables->job, &cnt);

	for (size_t i = 0; i < cnt; i++) {
		const struct job_action *action = &actions[i];
		const struct minutes_of *of = tables__of(tables, action->pid);

		if (!of)
			continue;
		tables__put_key(tables, of, arrow);
		put_window_of(tables, window->start_ns, of->until_ns, arrow);
		arrow__text(arrow, labels__kind(action->kind));
		arrow__text(arrow, action->name);
		arrow__int(arrow, action->val.calls);
		arrow__int(arrow, action->val.total_ns);
		arrow__int(arrow, action->val.self_ns);
		arrow__int(arrow, action->val.min_ns);
		arrow__int(arrow, action->val.max_ns);
		arrow__end_row(arrow);
	}
	return 0;
}

const struct table table_actions = {COLUMNS(action_columns), put_actions};

/* ---- operators ---- */

static const struct arrow_column op_columns[] = {
	KEY_COLUMNS,
	SPAN_COLUMNS,
	NULLABLE("action", TEXT),
	COLUMN("n", INT64),
	COLUMN("total_ns", INT64),
	COLUMN("self_ns", INT64),
	COLUMN("self_cpu_bytes", INT64),
	COLUMN("self_device_bytes", INT64),
};

/* The rows of one operator in one action, whatever their overloads and shapes. */
struct op_sum {
	struct {
		uint64_t action;
		uint32_t name; /* index among the names */
		uint32_t pid, kind, pad;
	} key;
	const struct op_row *row; /* the first of them */
	struct op_val val;
};

static int add_ops(const struct tables *tables, const struct op_row *rows, size_t cnt, struct map *names,
		   struct map *sums)
{
	for (size_t i = 0; i < cnt; i++) {
		struct op_sum *sum;
		__typeof__(sum->key) key = {.action = rows[i].action_id, .pid = rows[i].pid, .kind = rows[i].kind};

		if (!tables__of(tables, rows[i].pid))
			continue;
		if (map__add_text(names, rows[i].name, &key.name))
			return -ENOMEM;
		sum = MAP_ADD(sums, struct op_sum, &key);
		if (!sum)
			return -ENOMEM;
		sum->row = sum->row ?: &rows[i];
		sum->val.calls += rows[i].val.calls;
		sum->val.total_ns += rows[i].val.total_ns;
		sum->val.self_ns += rows[i].val.self_ns;
		for (int m = 0; m < OP_MEMORY__COUNT; m++)
			sum->val.self_bytes[m] += (uint64_t)rows[i].val.self_bytes[m];
	}
	return 0;
}

static int put_ops(struct tables *tables, struct arrow *arrow)
{
	const struct rec_window *window = job__window(tables->job);
	struct map names = {0}, sums = {0};
	size_t cnt;
	const struct op_row *rows = job__ops(tables->job, &cnt);
	int err = add_ops(tables, rows, cnt, &names, &sums);
	const struct op_sum *all = sums.items.items;

	for (size_t i = 0; i < sums.items.cnt && !err; i++) {
		const struct op_row *row = all[i].row;
		const struct minutes_of *of = tables__of(tables, row->pid);

		tables__put_key(tables, of, arrow);
		put_window_of(tables, window->start_ns, of->until_ns, arrow);
		arrow__text(arrow, labels__kind(row->kind));
		arrow__text(arrow, row->name);
		arrow__text(arrow, row->action);
		arrow__int(arrow, all[i].val.calls);
		arrow__int(arrow, all[i].val.total_ns);
		arrow__int(arrow, all[i].val.self_ns);
		arrow__int(arrow, all[i].val.self_bytes[OP_MEMORY_CPU]);
		arrow__int(arrow, all[i].val.self_bytes[OP_MEMORY_DEVICE]);
		arrow__end_row(arrow);
	}
	map__free(&sums);
	map__free_texts(&names);
	return err;
}

const struct table table_ops = {COLUMNS(op_columns), put_ops};

/* ---- GPUs ---- */

static const struct arrow_column gpu_columns[] = {
	KEY_COLUMNS, COLUMN("device", INT32), SPAN_COLUMNS, COLUMN("n", INT64), COLUMN("ns", INT64),
};

struct gpu_sum {
	struct {
		uint64_t name;
		uint32_t pid, window; /* window: index in gpu__windows */
		uint32_t kind, direction;
		uint32_t device, pad;
	} key;
	uint64_t cnt, ns;
};

static int add_gpu_work(const struct tables *tables, const struct gpu *gpu, struct map *sums)
{
	size_t cnt, window_cnt;
	const struct gpu_act *acts = gpu__activities(gpu, &cnt);
	const struct rec_gpu_window *windows = gpu__windows(gpu, &window_cnt);

	for (size_t i = 0; i < cnt; i++) {
		size_t w = 0;
		struct gpu_sum *sum;

		if (!gpu_act__is_work(&acts[i]) || !tables__of(tables, acts[i].pid))
			continue;
		while (w < window_cnt && (windows[w].pid != acts[i].pid || windows[w].end_ns < acts[i].start_ns))
			w++;
		const __typeof__(sum->key) key = {acts[i].name,      acts[i].pid,    w, acts[i].kind,
						  acts[i].direction, acts[i].device, 0};

		sum = MAP_ADD(sums, struct gpu_sum, &key);
		if (!sum)
			return -ENOMEM;
		sum->cnt++;
		sum->ns += acts[i].duration_ns;
	}
	return 0;
}

/* What all rows of a process's GPU begin with. window: index in gpu__windows; behind the last one: all of the recording. */
static void put_gpu_key(const struct tables *tables, const struct gpu *gpu, uint32_t pid, uint32_t device,
			size_t window, struct arrow *arrow)
{
	const struct rec_window *whole = job__window(tables->job);
	size_t cnt;
	const struct rec_gpu_window *windows = gpu__windows(gpu, &cnt);
	bool known = window < cnt;

	tables__put_key(tables, tables__of(tables, pid), arrow);
	arrow__int(arrow, (int32_t)device);
	put_window_of(tables, known ? windows[window].start_ns : whole->start_ns,
		      known ? windows[window].end_ns : whole->end_ns, arrow);
}

static int put_gpu_sum(struct tables *tables, const struct gpu *gpu, const struct gpu_sum *sum, struct arrow *arrow)
{
	static const char *const kinds[] = {[GPU_ACTIVITY_KERNEL] = "kernel",
					    [GPU_ACTIVITY_COPY] = "memcpy",
					    [GPU_ACTIVITY_SET] = "memset",
					    [GPU_ACTIVITY_GRAPH] = "graph"};
	char *name = gpu_work__text(tables->job, sum->key.kind, sum->key.direction, sum->key.name);

	if (!name)
		return -ENOMEM;
	put_gpu_key(tables, gpu, sum->key.pid, sum->key.device, sum->key.window, arrow);
	arrow__text(arrow, kinds[sum->key.kind]);
	arrow__text(arrow, name);
	arrow__int(arrow, sum->cnt);
	arrow__int(arrow, sum->ns);
	arrow__end_row(arrow);
	free(name);
	return 0;
}

/* How a GPU spent a window, in parts that add up to what CUPTI watched of it from the GPU's first work to its last. */
static void put_gpu_time(struct tables *tables, const struct gpu *gpu, const struct gpu_line *line, size_t window,
			 struct arrow *arrow)
{
	size_t cnt;
	const struct rec_gpu_window *windows = gpu__windows(gpu, &cnt);
	uint64_t from_ns = window < cnt ? windows[window].start_ns : 0,
		 to_ns = window < cnt ? windows[window].end_ns : UINT64_MAX,
		 work_ns = gpu_spans__within(&line->work, from_ns, to_ns),
		 kernel_ns = gpu_spans__within(&line->kernels, from_ns, to_ns),
		 compute_ns = gpu_spans__within(&line->compute, from_ns, to_ns);
	static const char *const idle_names[] = {
#define X(id, name, meaning) "idle_" name,
		STEPFLAME_GPU_IDLE(X)
#undef X
	};
	struct {
		const char *name;
		uint64_t ns;
	} parts[3 + GPU_IDLE__COUNT] = {
		{"compute", compute_ns}, {"communication", kernel_ns - compute_ns}, {"copy", work_ns - kernel_ns}};

	for (int i = 0; i < GPU_IDLE__COUNT; i++) {
		parts[3 + i].name = idle_names[i];
		parts[3 + i].ns = gpu_spans__within(&line->idle[i], from_ns, to_ns);
	}
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		if (!parts[i].ns)
			continue;
		put_gpu_key(tables, gpu, line->pid, line->device, window, arrow);
		arrow__text(arrow, "time");
		arrow__text(arrow, parts[i].name);
		arrow__int(arrow, 0);
		arrow__int(arrow, parts[i].ns);
		arrow__end_row(arrow);
	}
}

static int put_gpu_times(struct tables *tables, const struct gpu *gpu, struct arrow *arrow)
{
	struct gpu_time *time = gpu_time__new(tables->job, tables->steps);
	size_t cnt = 0, window_cnt;
	const struct gpu_line *lines = time ? gpu_time__lines(time, &cnt) : NULL;
	const struct rec_gpu_window *windows = gpu__windows(gpu, &window_cnt);

	for (size_t i = 0; i < cnt; i++) {
		bool has_windows = false;

		if (!tables__of(tables, lines[i].pid))
			continue;
		for (size_t w = 0; w < window_cnt; w++) {
			if (windows[w].pid != lines[i].pid)
				continue;
			has_windows = true;
			put_gpu_time(tables, gpu, &lines[i], w, arrow);
		}
		if (!has_windows)
			put_gpu_time(tables, gpu, &lines[i], window_cnt, arrow);
	}
	gpu_time__free(time);
	return time ? 0 : -ENOMEM;
}

static int put_gpu(struct tables *tables, struct arrow *arrow)
{
	const struct gpu *gpu = job__gpu(tables->job);
	struct map sums = {0};
	int err = gpu ? add_gpu_work(tables, gpu, &sums) : -ENOMEM;
	const struct gpu_sum *all = sums.items.items;

	for (size_t i = 0; i < sums.items.cnt && !err; i++)
		err = put_gpu_sum(tables, gpu, &all[i], arrow);
	err = err ?: put_gpu_times(tables, gpu, arrow);
	map__free(&sums);
	return err;
}

const struct table table_gpu = {COLUMNS(gpu_columns), put_gpu};
