// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The I/O report: system calls in the table of strace -c, with bytes; the files read and written;
 * and what DataLoader workers do for the steps.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "user/analysis/loader/workers.h"
#include "user/analysis/place/place.h"
#include "user/lib/digits.h"
#include "user/model/job.h"
#include "user/model/processes.h"
#include "user/model/stacks.h"
#include "user/report/common.h"
#include "user/report/io_rows.h"
#include "user/report/print/shape.h"
#include "user/report/print/table.h"
#include "user/report/print/text.h"

/* ---- what DataLoader workers do for the steps ---- */

#define DOINGS_TEXT 2 /* per worker */
#define DOINGS_JSON 20
#define WAITS_JSON  100  /* the longest waits */
#define GIL_SHARE   0.01 /* of the window, from which on waits for the GIL of a worker are told */

static double percent_of(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * part / whole : 0;
}

static uint64_t worker_busy_ns(const struct worker *worker)
{
	return worker->seen_ns > worker->idle_ns ? worker->seen_ns - worker->idle_ns : 0;
}

static double since_start_s(const struct job *job, uint64_t time_ns)
{
	return ((double)time_ns - job__window(job)->start_ns) / 1e9;
}

SHAPE(doing_shape, "worker_doing", "file:s? line:I name:s? cause:s? seconds:f path:s? path_s:f path_cnt:I");

static json_t *json_doing(struct job *job, const struct worker_doing *doing)
{
	struct code code = stacks__code(job__stacks(job), doing->code);
	char *path = doing->file ? io_rows__path_of_name(job, doing->file) : NULL;
	json_t *row =
		SHAPE_PACK(doing_shape, common__json_text(job__name(job, code.file)), json_integer(doing->line),
			   common__json_text(job__name(job, code.name)),
			   common__json_text(sample_cause__name(doing->cause)), json_real(doing->ns / 1e9),
			   common__json_text(path), json_real(doing->file_ns / 1e9), json_integer(doing->file_cnt));

	free(path);
	return row;
}

static json_t *json_doings(struct job *job, const struct worker *worker)
{
	json_t *list = json_array();

	for (size_t i = 0; i < worker->doing_cnt && i < DOINGS_JSON; i++)
		common__json_append(&list, json_doing(job, &worker->doings[i]));
	return list;
}

SHAPE(worker_end_shape, "worker_end", "at_s:f signal:I? exit_status:I? wait_s:f");

static json_t *json_end(const struct job *job, const struct worker *worker)
{
	int code = worker->end ? worker->end->exit_code : 0;

	if (!worker->end)
		return json_null();
	return SHAPE_PACK(worker_end_shape, json_real(since_start_s(job, worker->end->time_ns)),
			  WTERMSIG(code) ? json_integer(WTERMSIG(code)) : json_null(),
			  WTERMSIG(code) ? json_null() : json_integer(WEXITSTATUS(code)),
			  json_real(worker->end_wait_ns / 1e9));
}

static int add_worker(struct job *job, const struct loader *loader, const struct worker *worker, struct table *table)
{
	uint64_t busy_ns = worker_busy_ns(worker);
	const struct cell cells[] = {
		cell__new(NULL, 2, "pid", 9, 0, json_integer(REC_PID(worker->pid))),
		cell__json("pid:I", json_integer(worker->pid)),
		cell__new("number:I", 1, "worker", 6, 0, json_integer(worker->number)),
		cell__new("waits:I", 3, "waits", 7, 0, json_integer(worker->waits)),
		cell__new("wait_s:f", 4, "waited s", 10, 3, json_integer(worker->wait_ns)),
		cell__new(NULL, 5, "share %", 7, 1, json_real(percent_of(worker->wait_ns, loader->wait_ns))),
		cell__new("longest_s:f", 6, "longest ms", 10, 1, json_integer(worker->longest_ns)),
		cell__json("seen_s:f", json_integer(worker->seen_ns)),
		cell__new(NULL, 7, "busy %", 7, 1, json_real(percent_of(busy_ns, worker->seen_ns))),
		cell__json("busy_s:f", json_integer(busy_ns)),
		cell__new(NULL, 8, "CPU %", 7, 1, json_real(percent_of(worker->cpu_ns, worker->seen_ns))),
		cell__json("cpu_s:f", json_integer(worker->cpu_ns)),
		cell__json("doing:[worker_doing]", json_doings(job, worker)),
		cell__json("ended:worker_end?", json_end(job, worker)),
	};

	return TABLE_ADD(table, cells);
}

static int add_blank_worker(struct job *job, struct table *table)
{
	return add_worker(job, &(struct loader){0}, &(struct worker){0}, table);
}

SHAPE_ROW(worker_shape, "worker", add_blank_worker);

/* ---- text ---- */

static void print_doing(struct job *job, const struct worker_doing *doing, uint64_t all_ns, FILE *out)
{
	struct code code = stacks__code(job__stacks(job), doing->code);
	const char *file = job__name(job, code.file), *name = job__name(job, code.name);
	const char *base = file ? strrchr(file, '/') : NULL;
	char *path = doing->file ? io_rows__path_of_name(job, doing->file) : NULL, more[64] = "", *text;
	int used = fprintf(out, "%38s%5.1f %%", "", percent_of(doing->ns, all_ns));

	if (doing->file_cnt > 1)
		snprintf(more, sizeof(more), " (%s %%) and %zu other file%s",
			 DIGITS(percent_of(doing->file_ns, doing->ns), 3), doing->file_cnt - 1,
			 doing->file_cnt == 2 ? "" : "s");
	if (asprintf(&text, "%s:%u %s, %s%s%s%s", base ? base + 1 : file ?: "(no Python)", doing->line, name ?: "",
		     doing->cause ? sample_cause__name(doing->cause) : "on the CPU", path ? ": " : "", path ?: "",
		     more) < 0)
		text = NULL;
	text__last(out, used, "  ", text ?: "");
	free(text);
	free(path);
}

static void print_worker_end(struct job *job, const struct worker *worker, FILE *out)
{
	char *how = processes__end_text(worker->end->exit_code), waited[64] = "";

	if (worker->end_wait_ns)
		snprintf(waited, sizeof(waited), "; the process waited for it in vain for %.3f s",
			 worker->end_wait_ns / 1e9);
	text__wrapped(out, 38, "%38sended at %.3f s: %s%s", "", since_start_s(job, worker->end->time_ns), how ?: "",
		      waited);
	free(how);
}

static int print_worker(struct job *job, const struct loader *loader, const struct worker *worker, struct table *table)
{
	int err = add_worker(job, loader, worker, table);
	uint64_t all_ns = 0;

	for (size_t i = 0; i < worker->doing_cnt; i++)
		all_ns += worker->doings[i].ns;
	for (size_t i = 0; i < worker->doing_cnt && i < DOINGS_TEXT; i++)
		print_doing(job, &worker->doings[i], all_ns, table->out);
	if (worker->end)
		print_worker_end(job, worker, table->out);
	return err;
}

static void print_turns(const struct loader *loader, FILE *out)
{
	char whom[48] = "each other (a lock, say)";

	if (loader->server)
		snprintf(whom, sizeof(whom), "process %u", REC_PID(loader->server));
	text__paragraph(out,
			"advice: do not add workers before these wait for less: for %.0f %% of their work they wait "
			"for %s, and more of them would wait, too",
			100 * loader->awaited_share, whom);
}

static void print_advice(const struct loader *loader, FILE *out)
{
	if (loader->needed && loader->advice != LOADER_ONE_SLOW)
		text__paragraph(out,
				"model: a batch takes a worker %s ms and the process %s ms between fetches, so %u "
				"worker%s would keep up; there are %u. It assumes that workers do not slow each "
				"other down.",
				DIGITS(loader->produce_ns / 1e6, 4), DIGITS(loader->consume_ns / 1e6, 4),
				loader->needed, loader->needed == 1 ? "" : "s", loader->at_once);
	switch (loader->advice) {
	case LOADER_UNKNOWN:
		text__paragraph(out,
				"advice: none, because the recording has too few batches, or no samples of workers");
		break;
	case LOADER_KEEPS_UP:
		text__paragraph(out, "advice: the workers keep up; more of them would not help");
		break;
	case LOADER_ONE_SLOW:
		text__paragraph(out, "advice: worker %u (pid %u) %s and causes %.0f %% of the waits; %s", loader->slow,
				REC_PID(loader->workers[loader->slow].pid),
				loader->is_stream ? "has more of the data set's shards than the others, or slower ones,"
						  : "is slower than the others",
				percent_of(loader->workers[loader->slow].wait_ns, loader->wait_ns),
				loader->is_stream ? "more workers help only if it has as many"
						  : "find out why before you add workers");
		break;
	case LOADER_SHARDS:
		text__paragraph(out, "advice: more workers help only if the data set, an IterableDataset, has as many "
				     "shards: a worker that has none makes no batches");
		break;
	case LOADER_TURNS:
		print_turns(loader, out);
		break;
	case LOADER_CPU_FULL:
		text__paragraph(out, "advice: do not add workers; the CPU is full, or would be with so many");
		break;
	case LOADER_THREADS:
		text__paragraph(out,
				"advice: torch.set_num_threads(1), or OMP_NUM_THREADS=1, in the workers, each of which "
				"has %u threads that compute, for %u CPU%s: they take the CPUs from each other, and "
				"more workers would find none free",
				loader->threads, loader->cpus, loader->cpus == 1 ? "" : "s");
		break;
	case LOADER_STORAGE:
		text__paragraph(out,
				"advice: the workers wait for disks most of their time: with num_workers=%u a batch "
				"would take %s ms instead of %s ms if the disks have so much more to give, and no "
				"less if not",
				loader->advised, DIGITS(loader->reach_ns / 1e6, 4), DIGITS(loader->batch_ns / 1e6, 4));
		break;
	case LOADER_MORE:
		text__paragraph(out, "advice: try num_workers=%u; a batch would take %s ms instead of %s ms",
				loader->advised, DIGITS(loader->reach_ns / 1e6, 4), DIGITS(loader->batch_ns / 1e6, 4));
		break;
	case LOADER_RESTARTS:
		text__paragraph(
			out,
			"advice: make the DataLoader once, with persistent_workers=True: the workers start anew "
			"for each epoch, which takes %s s, %.1f %% of the time",
			DIGITS(loader->restarts_ns / 1e9, 3), percent_of(loader->restarts_ns, loader->observed_ns));
		break;
	case LOADER_UNEVEN:
		text__paragraph(out, "advice: there are enough workers on average, but batches differ in duration (try "
				     "prefetch_factor)");
		break;
	}
}

/*
 * Returns "in [_EvaluationLoop].val_next" or "at train.py:42 main, in an evaluation"; malloc'ed.
 * NULL: unknown, or no memory.
 */
static char *place_text(struct job *job, const struct loader_place *place)
{
	const char *action = place->action ? job__name_or_lost(job, place->action) : NULL;
	char *line, *text;
	int len;

	if (action)
		return asprintf(&text, "in %s", action) < 0 ? NULL : text;
	line = place->code ? hotspot__text(job, &(struct hotspot){.code = place->code, .line = place->line}) : NULL;
	if (!line)
		return NULL;
	len = asprintf(&text, "at %s%s", line, place->validation ? ", in an evaluation" : "");
	free(line);
	return len < 0 ? NULL : text;
}

static void print_title(struct job *job, const struct loader *loader, FILE *out)
{
	char *place = place_text(job, &loader->place);

	if (loader->of_cnt == 1)
		fprintf(out, "DataLoader workers of pid %u\n", REC_PID(loader->pid));
	else if (place)
		text__wrapped(out, 2, "DataLoader workers of pid %u, loader %u of %u: fetched %s", REC_PID(loader->pid),
			      loader->number + 1, loader->of_cnt, place);
	else
		text__wrapped(out, 2,
			      "DataLoader workers of pid %u, loader %u of %u: it is not known where their batches are "
			      "fetched",
			      REC_PID(loader->pid), loader->number + 1, loader->of_cnt);
	free(place);
}

static void print_waits(const struct loader *loader, FILE *out)
{
	if (loader->batches)
		text__paragraph(out, "%" PRIu64 " batches fetched, with %zu wait%s: %.3f s, %.1f %% of %s s",
				loader->batches, loader->late_cnt, loader->late_cnt == 1 ? "" : "s",
				loader->wait_ns / 1e9, percent_of(loader->wait_ns, loader->observed_ns),
				DIGITS(loader->observed_ns / 1e9, 4));
	else
		text__paragraph(out, "%zu batches waited for: %.3f s, %.1f %% of %s s", loader->late_cnt,
				loader->wait_ns / 1e9, percent_of(loader->wait_ns, loader->observed_ns),
				DIGITS(loader->observed_ns / 1e9, 4));
	if (!loader->handover_ns)
		return;
	text__paragraph(out, "%.3f s more were spent on handing over batches that were there",
			loader->handover_ns / 1e9);
	if (loader->gil_ns >= GIL_SHARE * loader->observed_ns)
		text__paragraph(
			out,
			"in %.3f s of these the worker's Python had its GIL, at work on the next batches: the thread "
			"that hands them over waited for it",
			loader->gil_ns / 1e9);
}

static int print_loader(struct job *job, const struct loader *loader, FILE *out)
{
	struct table table = {.out = out};
	int err = 0;

	print_title(job, loader, out);
	print_waits(loader, out);
	if (loader->ahead.step_cnt)
		text__paragraph(out,
				"ahead: on average %.2f workers were idle when a step began: all batches that they may "
				"prepare ahead were ready; in %.1f %% of %zu steps every worker was busy",
				(double)loader->ahead.idle_cnt / loader->ahead.step_cnt,
				percent_of(loader->ahead.none_cnt, loader->ahead.step_cnt), loader->ahead.step_cnt);
	for (size_t i = 0; i < loader->worker_cnt && !err; i++)
		err = print_worker(job, loader, &loader->workers[i], &table);
	if (loader->unknown_ns)
		text__paragraph(out, "the process waited %.3f s for workers that are not known",
				loader->unknown_ns / 1e9);
	print_advice(loader, out);
	fputc('\n', out);
	if (loader->no_loader_ns && loader->number + 1 == loader->of_cnt) {
		text__paragraph(out, "%.3f s of waits in pid %u were for batches whose loader is not known",
				loader->no_loader_ns / 1e9, REC_PID(loader->pid));
		fputc('\n', out);
	}
	return err;
}

/* Prints nothing where there are no workers. 0 or -ENOMEM. */
static int report_workers__text(struct job *job, FILE *out)
{
	struct steps *steps = steps__new(job);
	struct workers *workers = steps ? workers__new(job, steps) : NULL;
	size_t cnt = 0;
	const struct loader *loaders = workers ? workers__loaders(workers, &cnt) : NULL;
	int err = workers ? 0 : -ENOMEM;

	for (size_t i = 0; i < cnt && !err; i++)
		err = print_loader(job, &loaders[i], out);
	workers__free(workers);
	steps__free(steps);
	return err;
}

/* ---- JSON ---- */

static int compare_longest_wait(const void *a, const void *b)
{
	const struct loader_wait *const *x = a, *const *y = b;

	return ((*x)->ns < (*y)->ns) - ((*x)->ns > (*y)->ns);
}

SHAPE(loader_wait_shape, "loader_wait", "step:I? start_s:f wait_s:f worker:I? broken:b late:b");

/* Longest first. NULL: no memory. */
static json_t *json_loader_waits(struct job *job, const struct loader *loader)
{
	const struct loader_wait **sorted = calloc(loader->wait_cnt + 1, sizeof(*sorted));
	json_t *list = sorted ? json_array() : NULL;

	for (size_t i = 0; list && i < loader->wait_cnt; i++)
		sorted[i] = &loader->waits[i];
	if (list)
		qsort(sorted, loader->wait_cnt, sizeof(*sorted), compare_longest_wait);
	for (size_t i = 0; list && i < loader->wait_cnt && i < WAITS_JSON; i++) {
		const struct loader_wait *wait = sorted[i];
		json_array_append_new(
			list,
			SHAPE_PACK(loader_wait_shape,
				   wait->step < 0 ? json_null() : json_integer(loader->track->steps[wait->step].index),
				   json_real(since_start_s(job, wait->start_ns)), json_real(wait->ns / 1e9),
				   wait->worker == WORKER_NONE ? json_null() : json_integer(wait->worker),
				   json_boolean(wait->broken), json_boolean(wait->late)));
	}
	free(sorted);
	return list;
}

SHAPE(loader_place_shape, "loader_place", "action:s? file:s? line:I name:s? validation:b");

static json_t *json_place(struct job *job, const struct loader_place *place)
{
	struct code code = stacks__code(job__stacks(job), place->code);

	if (!place->key)
		return json_null();
	return SHAPE_PACK(loader_place_shape,
			  common__json_text(place->action ? job__name_or_lost(job, place->action) : NULL),
			  common__json_text(job__name(job, code.file)), json_integer(place->line),
			  common__json_text(job__name(job, code.name)), json_boolean(place->validation));
}

SHAPE(ahead_shape, "loader_ahead", "steps:I none_idle:I idle_mean:f");

SHAPE(loader_shape, "loader",
      "pid:I batches:I? waited:I wait_s:f unknown_wait_s:f slow:I? produce_s:f consume_s:f batch_s:f at_once:I "
      "advice:s needed:I? workers:[worker] waits:[loader_wait] ahead:loader_ahead? late:I handover_s:f "
      "handover_gil_s:f no_loader_wait_s:f observed_s:f loader:I loaders:I place:loader_place? advised:I? "
      "reach_s:f?");

static json_t *json_loader(struct job *job, const struct loader *loader)
{
	static const char *const advice[] = {"unknown", "keeps_up", "one_slow", "cpu_full", "more",  "restarts",
					     "uneven",  "threads",  "storage",  "turns",    "shards"};
	json_t *workers = json_array(), *ahead = json_null();
	struct table table = {.list = workers};
	int failed = 0;

	if (loader->ahead.step_cnt)
		ahead = SHAPE_PACK(ahead_shape, json_integer(loader->ahead.step_cnt),
				   json_integer(loader->ahead.none_cnt),
				   json_real((double)loader->ahead.idle_cnt / loader->ahead.step_cnt));
	for (size_t i = 0; i < loader->worker_cnt; i++)
		failed |= add_worker(job, loader, &loader->workers[i], &table);
	workers = common__json_unless_failed(workers, failed);
	return SHAPE_PACK(
		loader_shape, json_integer(loader->pid), loader->batches ? json_integer(loader->batches) : json_null(),
		json_integer(loader->late_cnt), json_real(loader->wait_ns / 1e9), json_real(loader->unknown_ns / 1e9),
		loader->slow == WORKER_NONE ? json_null() : json_integer(loader->slow),
		json_real(loader->produce_ns / 1e9), json_real(loader->consume_ns / 1e9),
		json_real(loader->batch_ns / 1e9), json_integer(loader->at_once), json_string(advice[loader->advice]),
		loader->needed ? json_integer(loader->needed) : json_null(), workers, json_loader_waits(job, loader),
		ahead, json_integer(loader->late_cnt), json_real(loader->handover_ns / 1e9),
		json_real(loader->gil_ns / 1e9), json_real(loader->no_loader_ns / 1e9),
		json_real(loader->observed_ns / 1e9), json_integer(loader->number), json_integer(loader->of_cnt),
		json_place(job, &loader->place), loader->advised ? json_integer(loader->advised) : json_null(),
		loader->advised ? json_real(loader->reach_ns / 1e9) : json_null());
}

/* Returns an array with an object for each process that has workers. NULL: no memory. */
static json_t *report_workers__json(struct job *job)
{
	struct steps *steps = steps__new(job);
	struct workers *workers = steps ? workers__new(job, steps) : NULL;
	json_t *list = workers ? json_array() : NULL;
	size_t cnt = 0;
	const struct loader *loaders = workers ? workers__loaders(workers, &cnt) : NULL;

	for (size_t i = 0; i < cnt; i++)
		common__json_append(&list, json_loader(job, &loaders[i]));
	workers__free(workers);
	steps__free(steps);
	return list;
}

/* ---- system calls and files ---- */

#define DEFAULT_LIMIT 20

/* ---- tables ---- */

static json_t *or_blank(uint64_t cnt)
{
	return cnt ? json_integer(cnt) : json_string("");
}

/* all_ns: time of all calls. */
static int add_call_row(struct table *table, const struct syscall_val *val, uint64_t all_ns, uint32_t number,
			const char *name)
{
	char more[48] = "", *title;

	if (val->unfinished)
		snprintf(more, sizeof(more), " (and %" PRIu64 " not finished)", (uint64_t)val->unfinished);
	if (asprintf(&title, "%s%s", name, more) < 0)
		return -ENOMEM;

	const struct cell cells[] = {
		cell__new(NULL, 1, "% time", 6, 2, json_real(all_ns ? 100.0 * val->total_ns / all_ns : 0)),
		cell__new(NULL, 3, "usecs/call", 11, 2, json_real(val->calls ? val->total_ns / 1e3 / val->calls : 0)),
		cell__new(NULL, 5, "errors", 9, 0, or_blank(val->errors)),
		cell__new(NULL, 6, "bytes", 15, 0, or_blank(val->bytes)),
		cell__json("name:s", json_string(name)),
		cell__json("number:I", json_integer(number == SYSCALL_UNKNOWN ? -1 : (int)number)),
		cell__new("count:I", 4, "calls", 9, 0, json_integer(val->calls)),
		cell__json("errors:I", common__json_integer(val->errors)),
		cell__new("total_s:f", 2, "seconds", 11, 6, json_integer(val->total_ns)),
		cell__json("bytes:I", common__json_integer(val->bytes)),
		cell__json("unfinished:I", common__json_integer(val->unfinished)),
		cell__last(7, "syscall", title),
	};

	return TABLE_ADD(table, cells);
}

/* Takes path over; a NULL path means no memory. */
static int add_file_row(struct table *table, const struct file_val *val, bool path_known, char *path)
{
	const struct cell cells[] = {
		cell__json("path:s", path ? json_string(path) : NULL),
		cell__json("path_known:b", json_boolean(path_known)),
		cell__json("bytes:I", common__json_integer(val->read_bytes + val->written_bytes)),
		cell__new("reads:I", 2, "reads", 8, 0, json_integer(val->reads)),
		cell__new("read_bytes:I", 3, "bytes read", 13, 0, json_integer(val->read_bytes)),
		cell__new("writes:I", 6, "writes", 8, 0, json_integer(val->writes)),
		cell__new("written_bytes:I", 7, "bytes written", 13, 0, json_integer(val->written_bytes)),
		cell__new("total_s:f", 1, "seconds", 10, 6, json_integer(val->total_ns)),
		cell__json("disk_reads:I", common__json_integer(val->disk_reads)),
		cell__json("disk_faults:I", common__json_integer(val->faults)),
		cell__new(NULL, 4, "from disk", 9, 0, json_integer(val->disk_reads + val->faults)),
		cell__new("disk_bytes:I", 5, "disk bytes", 12, 0, json_integer(val->disk_bytes)),
		cell__last(8, "file", path),
	};

	return TABLE_ADD(table, cells);
}

static int add_call_rows(struct table *table, const struct io_rows *rows, size_t limit)
{
	char name[IO_NAME_MAX];
	int err = 0;

	for (size_t i = 0; i < rows->call_cnt && i < limit && !err; i++)
		err = add_call_row(table, &rows->calls[i].val, rows->call_sum.total_ns, rows->calls[i].key.number,
				   io_rows__call_name(rows->calls[i].key.number, name));
	return err;
}

static int add_file_rows(struct table *table, struct job *job, const struct io_rows *rows, size_t limit)
{
	int err = 0;

	for (size_t i = 0; i < rows->file_cnt && i < limit && !err; i++) {
		const struct file_val *val = &rows->files[i].file.val;
		bool known = job__name(job, val->name) && !(val->flags & (FILE_DIRECTORY | FILE_MOUNT_UNKNOWN));

		err = add_file_row(table, val, known, io_rows__row_path(job, &rows->files[i]));
	}
	return err;
}

/* ---- text ---- */

static int print_syscalls(const struct io_rows *rows, size_t limit, FILE *out)
{
	struct table table = {.out = out, .gap = " "};
	int err = add_call_rows(&table, rows, limit);

	table.ruled = true;
	err = err ?: add_call_row(&table, &rows->call_sum, rows->call_sum.total_ns, 0, "total");
	if (rows->call_cnt > limit)
		text__paragraph(out, "%zu more system calls (--limit %zu)", rows->call_cnt - limit, limit);
	return err;
}

static int print_files(struct job *job, const struct io_rows *rows, size_t limit, FILE *out)
{
	struct table table = {.out = out, .gap = " "};
	int err = add_file_rows(&table, job, rows, limit);
	size_t more = 0;

	table.ruled = true;
	err = err ?: add_file_row(&table, &rows->file_sum, false, strdup("total"));
	for (size_t i = limit; i < rows->file_cnt; i++)
		more += rows->files[i].cnt;
	if (more)
		text__paragraph(out, "%zu more files (--limit %zu)", more, limit);
	return err;
}

static int print_io_of(struct job *job, const struct report_options *options, const struct io_scope *scope,
		       const char *title, FILE *out)
{
	size_t limit = report_options__limit(options, DEFAULT_LIMIT);
	struct io_rows rows;
	int err = io_rows__collect(job, scope, options->sort, &rows);

	if (err)
		return err;
	if (title && rows.process_cnt)
		fprintf(out, "%s (%zu process%s)\n", title, rows.process_cnt, rows.process_cnt == 1 ? "" : "es");
	if (rows.call_cnt)
		err = print_syscalls(&rows, limit, out);
	if (rows.call_cnt && rows.file_cnt)
		fputc('\n', out);
	if (rows.file_cnt && !err)
		err = print_files(job, &rows, limit, out);
	if (rows.call_cnt || rows.file_cnt)
		fputc('\n', out);
	io_rows__release(&rows);
	return err;
}

static int print_roles(struct job *job, const struct report_options *options, FILE *out)
{
	static const struct {
		enum target_role role;
		const char *title;
	} roles[] = {
		{ROLE_MAIN, "main"},
		{ROLE_WORKER, "DataLoader workers"},
		{ROLE_CHILD, "other children"},
	};
	int err = 0;

	for (size_t i = 0; i < sizeof(roles) / sizeof(*roles) && !err; i++)
		err = print_io_of(job, options, &(struct io_scope){.role = roles[i].role, .kinds = true},
				  roles[i].title, out);
	return err;
}

/* Lists the processes that have rows, with their target records. malloc'ed. 0 or -ENOMEM. */
static int list_io_processes(const struct job *job, struct rec_target **out, size_t *cnt)
{
	uint32_t *pids;
	size_t pid_cnt;
	int err = io_rows__pids(job, &pids, &pid_cnt);

	*out = NULL;
	*cnt = 0;
	err = err ?: processes__list(job, pids, pid_cnt, out, cnt);
	free(pids);
	return err;
}

static int print_io_processes(struct job *job, const struct report_options *options, FILE *out)
{
	struct rec_target *targets;
	size_t cnt;
	int err = list_io_processes(job, &targets, &cnt);

	for (size_t i = 0; i < cnt && !err; i++) {
		common__process(&targets[i], out);
		err = print_io_of(job, options, &(struct io_scope){.pid = targets[i].pid, .kinds = true}, NULL, out);
	}
	free(targets);
	return err;
}

static char *why_no_io(struct job *job, const struct report_options *options)
{
	size_t cnt;

	io__calls(job__io(job), &cnt);
	return cnt ? NULL
		   : strdup("This recording has no system calls and files: stepflame record --syscalls counts them.");
}

static int print_text(struct job *job, const struct report_options *options, FILE *out)
{
	char *why = why_no_io(job, options);
	int err;

	if (why)
		text__paragraph(out, "%s", why);
	free(why);
	err = options->per_rank ? print_io_processes(job, options, out) : print_roles(job, options, out);
	err = err ?: report_workers__text(job, out);
	return common__end(err, job, out);
}

/* ---- JSON ---- */

static json_t *json_process(struct job *job, const struct report_options *options, const struct rec_target *target)
{
	const struct io_scope scope = {.pid = target->pid};
	json_t *process = common__json_process(target, "syscalls", json_array());
	struct table calls = table__json(process, "syscalls"), files = table__json(process, "files");
	size_t limit = report_options__limit(options, 0);
	struct io_rows rows;
	int failed = io_rows__collect(job, &scope, options->sort, &rows);

	failed = failed ?: add_call_rows(&calls, &rows, limit) ?: add_file_rows(&files, job, &rows, limit);
	io_rows__release(&rows);
	return common__json_unless_failed(process, failed);
}

static int add_blank_call(struct job *job, struct table *table)
{
	return add_call_row(table, &(struct syscall_val){0}, 0, 0, "");
}

static int add_blank_file(struct job *job, struct table *table)
{
	return add_file_row(table, &(struct file_val){0}, false, strdup(""));
}

SHAPE_ROW(syscall_shape, "syscall", add_blank_call);
SHAPE_ROW(file_shape, "file", add_blank_file);
SHAPE(io_process_shape, "io_of_process", "@process syscalls:[syscall] files:[file]");
SHAPE_REPORT(io_shape, "io", "io", "@report processes:[io_of_process] workers:[loader]");

/* A row with the keys of all. NULL: no memory. */
static json_t *blank_call(void)
{
	json_t *list = json_array();
	struct table table = {.list = list};

	return common__json_first(list, add_blank_call(NULL, &table));
}

static int print_json(struct job *job, const struct report_options *options, FILE *out)
{
	static const char *const path[] = {"processes", "syscalls", NULL};
	json_t *object = common__json(job, "io"), *processes = json_array();
	struct rec_target *targets;
	size_t cnt;
	int failed = list_io_processes(job, &targets, &cnt);

	for (size_t i = 0; i < cnt; i++)
		failed |= json_array_append_new(processes, json_process(job, options, &targets[i]));
	free(targets);
	failed |= json_object_set_new(object, "processes", processes);
	failed |= json_object_set_new(object, "workers", report_workers__json(job));
	return common__print_object(common__json_unless_failed(object, failed), options, path, blank_call(), out);
}

const struct report_ops report_io = {
	.name = "io",
	.sort_keys = io_rows__sort_keys,
	.text = print_text,
	.json = print_json,
	.why_empty = why_no_io,
};
