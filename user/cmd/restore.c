// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * stepflame restore: finds what an earlier stepflame, or another tracer, left in processes when it was
 * killed, and removes it: breakpoints of uprobes in their code, and words of --exact. In: /proc and
 * the journals of killed guardians.
 */
#include "user/session/restore.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "user/cmd/cmd.h"
#include "user/cmd/parse.h"
#include "user/cmd/targets.h"
#include "user/lib/compare.h"
#include "user/lib/json.h"
#include "user/lib/log.h"
#include "user/proc/proc.h"
#include "user/report/common.h"
#include "user/report/print/table.h"
#include "user/report/print/text.h"
#include "user/session/guardian_words.h"

struct restore_args {
	struct pids pids; /* none: all processes */
	bool dry_run, json, csv;
};

enum { OPT_CSV = 256 };

static const struct argp_option options[] = {
	{"pid", 'p', "PID[,PID...]", 0, "only what was left in these processes; may be given several times", 0},
	{"dry-run", 'n', NULL, 0, "list what was left, and change nothing", 0},
	{"json", 'j', NULL, 0, "print one JSON object", 0},
	{"csv", OPT_CSV, NULL, 0, "print CSV, a row for each process and file, with the keys of the JSON", 0},
	{0},
};

static error_t parse_restore(int key, char *arg, struct argp_state *state)
{
	struct restore_args *args = state->input;

	switch (key) {
	case 'p':
		pids__parse(state, &args->pids, arg);
		return 0;
	case 'n':
		args->dry_run = true;
		return 0;
	case 'j':
		args->json = true;
		return 0;
	case OPT_CSV:
		args->csv = true;
		return 0;
	case ARGP_KEY_END:
		if (args->json && args->csv)
			argp_error(state, "either --json or --csv");
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "restore takes no argument but -p PID");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp restore_argp = {
	.options = options,
	.parser = parse_restore,
	.args_doc = "[-p PID]",
	.doc = "Find what a stepflame that was killed together with its guardian left in running processes, and remove "
	       "it: breakpoints, which slow a job down, and the words of --exact.\v"
	       "It also removes breakpoints that other tracers left (perf, bpftrace), and leaves those alone that a "
	       "tracer uses which runs. It does not touch processes that a debugger traces.",
};

/* A process with breakpoints. */
struct restored_process {
	pid_t pid;
	bool traced, selected;
	struct breakpoints found;
};

struct restoration {
	const struct restore_args *args;
	size_t cnt, searched, hidden;
	struct restored_process *processes; /* owned */
	size_t removal_cnt;
	struct removal {
		const struct breakpoint_file *file; /* in any of the processes */
		int err;
	} * removals; /* owned */
	size_t words; /* that were set */
	bool failed;
};

static bool is_selected(const struct restore_args *args, pid_t pid)
{
	for (size_t i = 0; i < args->pids.cnt; i++)
		if (args->pids.pid[i] == pid)
			return true;
	return !args->pids.cnt;
}

/* ---- words ---- */

static bool restore_word(const struct guarded_word *word, void *ctx)
{
	struct restoration *r = ctx;
	unsigned long long at = word->address;
	enum left_word found;

	if (!is_selected(r->args, word->pid))
		return false;
	found = guarded_word__look(word, !r->args->dry_run);
	r->words += found == LEFT_SET;
	if (found == LEFT_SET)
		log__info("the word of --exact at 0x%llx in process %d %s", at, word->pid,
			  r->args->dry_run ? "is still set" : "was still set: it is NULL again");
	else if (found == LEFT_CHANGED)
		log__info("process %d has changed the word of --exact at 0x%llx itself: it stays", word->pid, at);
	else if (found == LEFT_UNREADABLE)
		log__warn("run stepflame restore as root (sudo), or as the owner of the process with CAP_SYS_PTRACE",
			  "cannot look at the word of --exact at 0x%llx in process %d", at, word->pid);
	r->failed = r->failed || found == LEFT_UNREADABLE;
	return !r->args->dry_run && found != LEFT_UNREADABLE;
}

/* ---- breakpoints ---- */

/* 0 or -errno of a process that cannot be searched. */
static int search_process(struct restoration *r, pid_t pid)
{
	struct restored_process found = {.pid = pid, .selected = is_selected(r->args, pid)}, *grown;
	struct proc_status status;
	int err = proc__status(pid, 0, &status);

	if (err)
		return err;
	found.traced = status.tracer;
	if (!found.selected && !found.traced)
		return 0;
	err = breakpoints__find(pid, &found.found);
	r->searched += !err;
	if (!err && found.found.cut)
		log__warn(NULL, "process %d maps more code than stepflame reads: some breakpoints may not be found",
			  pid);
	grown = !err && found.found.file_cnt ? reallocarray(r->processes, r->cnt + 1, sizeof(*grown)) : NULL;
	if (!grown) {
		breakpoints__release(&found.found);
		return err;
	}
	r->processes = grown;
	grown[r->cnt++] = found;
	if (found.traced && found.selected)
		log__warn("end the debugger, then run stepflame restore again",
			  "process %d is traced by process %d, whose breakpoints look the same: they stay", pid,
			  status.tracer);
	return 0;
}

static int search_processes(struct restoration *r)
{
	const struct pids *pids = &r->args->pids;
	pid_t *all = NULL;
	int cnt, err;
	char why[128];

	for (size_t i = 0; i < pids->cnt; i++) {
		struct proc_status status;
		const char *fix;

		err = proc__status(pids->pid[i], 0, &status);
		if (err) {
			fix = process__explain(err, pids->pid[i], why, sizeof(why));
			log__error(fix, "%s", why);
			return err;
		}
	}
	cnt = process__list(&all);
	for (int i = 0; i < cnt; i++) {
		err = search_process(r, all[i]);
		if ((err != -EACCES && err != -EPERM) || !is_selected(r->args, all[i]))
			continue;
		r->hidden++;
		if (pids->cnt) {
			const char *fix = process__explain(err, all[i], why, sizeof(why));

			log__error(fix, "%s", why);
			free(all);
			return err;
		}
	}
	free(all);
	return cnt < 0 ? cnt : 0;
}

static bool is_same_file(const struct breakpoint_file *a, const struct breakpoint_file *b)
{
	return a->file.dev == b->file.dev && a->file.inode == b->file.inode;
}

static const struct breakpoint_file *find_file(const struct breakpoints *b, const struct breakpoint_file *like)
{
	for (size_t i = 0; i < b->file_cnt; i++)
		if (is_same_file(&b->files[i], like))
			return &b->files[i];
	return NULL;
}

/*
 * The places of the breakpoints in a file: of traced processes, or of the others that are selected.
 * Sorted, each once; the caller frees them. Returns how many.
 */
static size_t collect_places(const struct restoration *r, const struct breakpoint_file *like, bool traced,
			     uint64_t **places)
{
	size_t cnt = 0, distinct = 0;

	*places = NULL;
	for (size_t i = 0; i < r->cnt; i++) {
		const struct restored_process *p = &r->processes[i];
		const struct breakpoint_file *file = find_file(&p->found, like);
		uint64_t *grown;

		if (!file || p->traced != traced || !(p->selected || traced))
			continue;
		grown = reallocarray(*places, cnt + file->cnt, sizeof(**places));
		if (!grown)
			continue;
		*places = grown;
		memcpy(grown + cnt, file->offsets, file->cnt * sizeof(*grown));
		cnt += file->cnt;
	}
	if (cnt)
		qsort(*places, cnt, sizeof(**places), compare__u64);
	for (size_t i = 0; i < cnt; i++)
		if (!i || (*places)[i] != (*places)[i - 1])
			(*places)[distinct++] = (*places)[i];
	return distinct;
}

static const struct removal *find_removal(const struct restoration *r, const struct breakpoint_file *file)
{
	for (size_t i = 0; i < r->removal_cnt; i++)
		if (is_same_file(r->removals[i].file, file))
			return &r->removals[i];
	return NULL;
}

/* Removes a file's breakpoints from all processes, except at places where a debugger may have one. */
static int remove_from_file(const struct restoration *r, struct restorer *restorer, const struct breakpoint_file *file)
{
	uint64_t *places, *debugged;
	size_t cnt = collect_places(r, file, false, &places), debugged_cnt = collect_places(r, file, true, &debugged);
	size_t kept = 0;
	int err;

	for (size_t i = 0; i < cnt; i++)
		if (!bsearch(&places[i], debugged, debugged_cnt, sizeof(*debugged), compare__u64))
			places[kept++] = places[i];
	err = kept ? restorer__remove(restorer, &file->file, places, kept) : 0;
	free(places);
	free(debugged);
	return err;
}

/* Removes the breakpoints, file by file. 0, or -errno after a message. */
static int remove_breakpoints(struct restoration *r)
{
	struct restorer *restorer;
	int err = restorer__new(&restorer);

	for (size_t i = 0; i < r->cnt && !err; i++)
		for (size_t k = 0; k < r->processes[i].found.file_cnt && !err; k++) {
			const struct breakpoint_file *file = &r->processes[i].found.files[k];
			struct removal *grown;

			if (r->processes[i].traced || find_removal(r, file))
				continue;
			grown = reallocarray(r->removals, r->removal_cnt + 1, sizeof(*grown));
			if (!grown) {
				err = -ENOMEM;
				break;
			}
			r->removals = grown;
			grown[r->removal_cnt].file = file;
			grown[r->removal_cnt++].err = remove_from_file(r, restorer, file);
		}
	restorer__free(restorer);
	return err;
}

/* ---- what was found ---- */

/* How many of these breakpoints are still there? */
static size_t count_left(const struct breakpoint_file *found, const struct breakpoints *now)
{
	const struct breakpoint_file *left = find_file(now, found);
	size_t cnt = 0;

	if (left)
		qsort(left->offsets, left->cnt, sizeof(*left->offsets), compare__u64);
	for (size_t i = 0; left && i < found->cnt; i++)
		cnt += bsearch(&found->offsets[i], left->offsets, left->cnt, sizeof(*left->offsets), compare__u64) !=
		       NULL;
	return cnt;
}

/* NULL: none is left. */
static const char *why_left(const struct restored_process *p, size_t left, int err)
{
	if (!left)
		return NULL;
	if (p->traced)
		return "the process is traced";
	if (!err)
		return "a tracer that runs uses them";
	if (err == -EBUSY)
		return "stepflame maps this file, too: restore needs Linux 6.10 for it";
	return "the kernel refuses to remove them";
}

/* left: of the breakpoints of the file; why: NULL: none, or nothing was to be removed. */
static int add_file_row(struct table *table, bool removes, pid_t pid, const struct breakpoint_file *file, size_t left,
			const char *why)
{
	char *last = NULL;
	int err;

	if (asprintf(&last, "%s%s%s%s", file->file.path, why ? " (" : "", why ?: "", why ? ")" : "") < 0)
		return -ENOMEM;
	err = TABLE_ADD(
		table,
		((const struct cell[]){
			cell__new("pid", 1, "PID", 8, 0, json_integer(pid)),
			cell__new("found", 2, "FOUND", 8, 0, json_integer(file->cnt)),
			cell__if(removes, cell__new("removed", 3, "REMOVED", 8, 0, json_integer(file->cnt - left))),
			cell__if(removes, cell__new("left", 4, "LEFT", 8, 0, json_integer(left))),
			cell__json("why_left", why ? json_string(why) : json_null()),
			cell__json("file", json__string(file->file.path)),
			cell__new(NULL, 5, "FILE", 0, 0, json__string(last)),
		}));
	free(last);
	return err;
}

static int add_file(struct restoration *r, struct table *table, const struct restored_process *p,
		    const struct breakpoint_file *file, const struct breakpoints *now)
{
	const struct removal *removal = p->traced ? NULL : find_removal(r, file);
	size_t left = count_left(file, now);
	int err = removal ? removal->err : 0;
	const char *why = r->args->dry_run ? NULL : why_left(p, left, err);

	r->failed = r->failed || (left && err);
	return add_file_row(table, !r->args->dry_run, p->pid, file, left, why);
}

/* A row for each process and file. */
static int add_found(struct restoration *r, struct table *table)
{
	int err = 0;

	for (size_t i = 0; i < r->cnt && !err; i++) {
		const struct restored_process *p = &r->processes[i];
		struct breakpoints now = {};

		if (!p->selected)
			continue;
		if (!r->args->dry_run)
			breakpoints__find(p->pid, &now);
		for (size_t k = 0; k < p->found.file_cnt && !err; k++)
			err = add_file(r, table, p, &p->found.files[k], &now);
		breakpoints__release(&now);
	}
	return err;
}

/* A row with the keys of all. NULL: no memory. */
static json_t *blank_file(bool removes)
{
	const struct breakpoint_file none = {.file.path = ""};
	json_t *list = json_array();
	struct table table = {.list = list};

	return common__json_first(list, add_file_row(&table, removes, 0, &none, 0, NULL));
}

static int print_restored_data(struct restoration *r)
{
	static const char *const path[] = {"files", NULL};
	json_t *object = json_pack("{s:s, s:s, s:b, s:I, s:I, s:I}", "report", "restore", "stepflame",
				   STEPFLAME_VERSION, "dry_run", r->args->dry_run, "searched", (json_int_t)r->searched,
				   "hidden", (json_int_t)r->hidden, "words", (json_int_t)r->words);
	struct table table = table__json(object, "files");

	object = common__json_unless_failed(object, add_found(r, &table));
	if (r->args->csv)
		return common__print_csv(object, path, blank_file(!r->args->dry_run), stdout);
	return common__print_json(object, stdout);
}

static int print_restored(struct restoration *r)
{
	struct table table = {.out = stdout, .gap = "  ", .unknown = "-", .rules = RULES_NONE};
	int err;

	text__use_terminal(STDOUT_FILENO);
	err = add_found(r, &table);
	if (!err && !table.row_cnt && !r->words)
		log__info("nothing was left: no breakpoint in %zu process%s, and no word of --exact", r->searched,
			  r->searched == 1 ? "" : "es");
	return err;
}

/* Is there anything to remove? */
static bool has_any(const struct restoration *r)
{
	for (size_t i = 0; i < r->cnt; i++)
		if (r->processes[i].selected && !r->processes[i].traced)
			return true;
	return false;
}

static int run_restore(int argc, char **argv)
{
	struct restore_args args = {};
	struct restoration r = {.args = &args};
	size_t foreign;
	int err;

	parse__or_die(&restore_argp, argc, argv, 0, &args);
	err = search_processes(&r);
	if (!err) {
		foreign = word_journal__each_left(restore_word, &r);
		if (foreign)
			log__warn("run stepflame restore there, too",
				  "%zu killed recording%s with --exact ran in another container", foreign,
				  foreign == 1 ? "" : "s");
		if (!args.dry_run && has_any(&r))
			err = remove_breakpoints(&r);
	}
	if (!err)
		err = args.json || args.csv ? print_restored_data(&r) : print_restored(&r);
	trainings__warn_of_hidden(r.hidden);
	for (size_t i = 0; i < r.cnt; i++)
		breakpoints__release(&r.processes[i].found);
	free(r.processes);
	free(r.removals);
	if (fflush(stdout))
		return SF_EXIT_ERROR;
	return err ? log__exit_code(err) : r.failed ? SF_EXIT_ERROR : SF_EXIT_OK;
}

const struct command command_restore = {
	.name = "restore",
	.run = run_restore,
	.argp = &restore_argp,
	.help = "remove what a killed stepflame left in running processes",
	.traces = true,
};
