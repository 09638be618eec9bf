// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Emits the operator table as records. In: the BPF arrays op_rows and op_procs, mapped. Out:
 * REC_NAME, REC_OP and REC_OP_WINDOW.
 */
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stepflame.skel.h"
#include "user/recording/spans.h"
#include "user/session/sources/ops.h"

static size_t mapped_bytes(const struct bpf_map *map)
{
	size_t page = sysconf(_SC_PAGESIZE), value = (bpf_map__value_size(map) + 7) & ~7ul;

	return (value * bpf_map__max_entries(map) + page - 1) & ~(page - 1);
}

static void *map_values(const struct bpf_map *map, int protection)
{
	void *at = mmap(NULL, mapped_bytes(map), protection, MAP_SHARED, bpf_map__fd(map), 0);

	return at == MAP_FAILED ? NULL : at;
}

static int emit_span(const struct rec_hdr *record, void *ctx)
{
	return session__emit(ctx, record);
}

int op_table__map(struct session *s)
{
	struct ops *ops = ops__of(s);

	ops->emitted = calloc(OP_ROWS, sizeof(*ops->emitted));
	ops->procs = map_values(s->skel->maps.op_procs, PROT_READ | PROT_WRITE);
	ops->rows = map_values(s->skel->maps.op_rows, PROT_READ);
	if (s->options.timeline)
		ops->spans = spans_encoder__new(emit_span, s);
	return ops->emitted && ops->procs && ops->rows && (ops->spans || !s->options.timeline) ? 0 : -ENOMEM;
}

void op_table__unmap(struct session *s)
{
	struct ops *ops = ops__of(s);

	if (ops->procs)
		munmap(ops->procs, mapped_bytes(s->skel->maps.op_procs));
	if (ops->rows)
		munmap((void *)ops->rows, mapped_bytes(s->skel->maps.op_rows));
	spans_encoder__free(ops->spans);
	free(ops->emitted);
	free(ops->names);
}

static int compare_op_names(const void *a, const void *b)
{
	const struct op_name *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

int op_table__add_names(struct ops *ops, const struct torch_ops *found)
{
	struct op_name *names =
		reallocarray(ops->names, ops->name_cnt + found->fn_cnt + found->node_cnt + 1, sizeof(*names));

	if (!names)
		return -ENOMEM;
	ops->names = names;
	for (size_t i = 0; i < found->fn_cnt; i++)
		if (found->fn[i].event == OP_CALL)
			names[ops->name_cnt++] = (struct op_name){.text = found->fn[i].name};
	for (size_t i = 0; i < found->node_cnt; i++)
		names[ops->name_cnt++] = (struct op_name){.text = found->node[i].name};
	for (size_t i = 0; i < ops->name_cnt; i++)
		names[i].id = session__name_id(names[i].text);
	qsort(names, ops->name_cnt, sizeof(*names), compare_op_names);
	return 0;
}

static void emit_row_name(struct session *s, uint64_t id)
{
	struct op_name key = {.id = id}, *name;

	name = bsearch(&key, ops__of(s)->names, ops__of(s)->name_cnt, sizeof(*name), compare_op_names);
	if (!name || name->emitted)
		return;
	session__emit_name(s, name->text);
	name->emitted = true;
}

static void emit_op_rows(struct session *s)
{
	for (size_t i = 0; i < OP_ROWS; i++) {
		const struct op_entry *row = &ops__of(s)->rows[i];
		struct rec_op rec = {.hdr = {.type = REC_OP, .size = sizeof(rec)}};

		if (!__atomic_load_n(&row->head.whole, __ATOMIC_ACQUIRE) || !row->key.name)
			continue;
		rec.key = row->key;
		rec.val = row->val;
		/*
		 * Also for an unchanged row: the timeline has calls that BPF has taken back from
		 * their row.
		 */
		emit_row_name(s, rec.key.name);
		if (!memcmp(&rec.val, &ops__of(s)->emitted[i], sizeof(rec.val)))
			continue;
		ops__of(s)->emitted[i] = rec.val;
		session__emit(s, &rec.hdr);
	}
}

/*
 * BPF emits a window when it ends. An open window is emitted as far as it has got, so that the file
 * has it too.
 */
void op_table__emit_windows(struct session *s)
{
	for (size_t slot = 0; slot < OP_PROCS_MAX; slot++) {
		const struct op_proc *p = &ops__of(s)->procs[slot];
		struct rec_op_window rec = {.hdr = {.type = REC_OP_WINDOW, .size = sizeof(rec)}};

		if (!p->open || !p->index)
			continue;
		rec.pid = p->pid;
		rec.index = p->index - 1;
		rec.first_step = p->first_step;
		/* With a schedule, the first boundary counted here opened the window. */
		rec.steps = p->boundaries - p->first_step - (s->options.schedule[OP_ACTIVE] ? 1 : 0);
		rec.start_ns = p->window_start_ns;
		rec.end_ns = session__now_ns();
		rec.cut = p->cut;
		session__emit(s, &rec.hdr);
	}
}

int op_table__snapshot(struct session *s)
{
	emit_op_rows(s);
	op_table__emit_windows(s);
	return s->sink_err;
}

void op_table__add_span(struct session *s, const struct rec_span *span)
{
	if (ops__of(s)->spans)
		spans_encoder__add(ops__of(s)->spans, span);
}

void op_table__flush_spans(struct session *s)
{
	if (ops__of(s)->spans)
		spans_encoder__flush(ops__of(s)->spans);
}
