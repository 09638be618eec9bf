// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Writes what cProfile's dump_stats() does, for `python -m pstats`, snakeviz and others: a
 * marshalled dict {(file, line, name): (primitive calls, calls, own time, time, callers)}, where
 * callers is {(file, line, name): (calls, primitive calls, own time, time)}. Samples do not count
 * calls, so these are 0, which pstats, snakeviz and gprof2dot show as such. Exact calls have no
 * callers.
 *
 * marshal: CPython's Python/marshal.c; little-endian. The codes written here have been the same
 * since version 2.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/analysis/flame/profile.h"
#include "user/export/export.h"
#include "user/lib/compare.h"
#include "user/lib/utf8.h"
#include "user/model/processes.h"

struct pstats {
	struct job *job;
	struct profile *profile;
	uint32_t pid; /* scope, as in processes__in_scope: functions of main processes and of workers stay separate */
	FILE *out;
};

/* ---- marshal ---- */

static void put_u32(uint32_t value, FILE *out)
{
	for (int i = 0; i < 4; i++)
		fputc(value >> 8 * i & 0xff, out);
}

static void put_int(uint64_t value, FILE *out)
{
	int digits = 0;

	if (value <= INT32_MAX) {
		fputc('i', out);
		put_u32(value, out);
		return;
	}
	for (uint64_t rest = value; rest; rest >>= 15)
		digits++;
	fputc('l', out);
	put_u32(digits, out);
	for (; value; value >>= 15) {
		fputc(value & 0xff, out);
		fputc(value >> 8 & 0x7f, out);
	}
}

static void put_seconds(uint64_t ns, FILE *out)
{
	double seconds = ns / 1e9;
	uint64_t bits;

	memcpy(&bits, &seconds, sizeof(bits));
	fputc('g', out);
	put_u32(bits, out);
	put_u32(bits >> 32, out);
}

static void put_marshal_text(const char *text, FILE *out)
{
	char *shown = utf8__escape(text); /* pstats prints it as it is */

	fputc('u', out);
	put_u32(shown ? strlen(shown) : 0, out);
	fputs(shown ?: "", out);
	free(shown);
}

static void begin_tuple(uint32_t cnt, FILE *out)
{
	fputc('(', out);
	put_u32(cnt, out);
}

/* ---- the dict ---- */

static void put_function_key(const struct pstats *p, uint32_t number)
{
	const struct function *function = profile__function(p->profile, number);

	begin_tuple(3, p->out);
	put_marshal_text(function->file, p->out);
	put_int(function->line, p->out);
	put_marshal_text(function->name, p->out);
}

static int compare_edge(const void *a, const void *b)
{
	const struct profile_edge *x = a, *y = b;

	if (x->function != y->function)
		return x->function < y->function ? -1 : 1;
	return COMPARE(x->caller, y->caller);
}

/* *edge: in, the first edge of the function; out, the one after its last. */
static void put_function_row(const struct pstats *p, const struct profile_table *table, const struct profile_row *row,
			     size_t *edge)
{
	put_function_key(p, row->function);
	begin_tuple(5, p->out);
	put_int(row->primitive_calls, p->out);
	put_int(row->calls, p->out);
	put_seconds(row->self_ns, p->out);
	put_seconds(row->total_ns, p->out);
	fputc('{', p->out);
	for (; *edge < table->edge_cnt && table->edges[*edge].function == row->function; ++*edge) {
		const struct profile_edge *e = &table->edges[*edge];

		put_function_key(p, e->caller);
		begin_tuple(4, p->out);
		put_int(0, p->out);
		put_int(0, p->out);
		put_seconds(e->self_ns, p->out);
		put_seconds(e->total_ns, p->out);
	}
	fputc('0', p->out);
}

static void put_table(const struct pstats *p, struct profile_table *table)
{
	size_t edge = 0;

	if (table->edge_cnt)
		qsort(table->edges, table->edge_cnt, sizeof(*table->edges), compare_edge);
	fputc('{', p->out);
	for (size_t i = 0; i < table->row_cnt; i++)
		put_function_row(p, table, &table->rows[i], &edge);
	fputc('0', p->out);
}

static int add_pstats_sample(const struct sample *sample, void *ctx)
{
	struct pstats *p = ctx;

	return processes__in_scope(p->job, sample->pid, p->pid) ? profile__add_sample(p->profile, sample) : 0;
}

static int add_pstats_calls(const struct calls *calls, void *ctx)
{
	struct pstats *p = ctx;

	return processes__in_scope(p->job, calls->pid, p->pid) ? profile__add_calls(p->profile, calls) : 0;
}

static int write_pstats(struct job *job, const struct timeline *timeline, const struct export_options *options,
			FILE *out)
{
	const struct profile_options profile_options = {.cpu = options->cpu, .callers = true};
	struct pstats p = {.job = job, .profile = profile__new(job, &profile_options), .pid = options->pid, .out = out};
	struct profile_table table;
	int err = p.profile ? export__each_sample(job, options, add_pstats_sample, &p) : -ENOMEM;

	if (!err)
		err = export__each_calls(job, options, add_pstats_calls, &p);
	if (!err)
		err = profile__table(p.profile, PROFILE_EVERYTHING, &table);
	if (!err) {
		put_table(&p, &table);
		profile_table__release(&table);
	}
	profile__free(p.profile);
	return err;
}

const struct export_ops export_pstats = {
	.name = "pstats", .binary = true, .source = EXPORT_SAMPLES, .write = write_pstats};
