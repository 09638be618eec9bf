// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Functions that the user names with --action: native ones (LIB:SYMBOL) and Python ones
 * (FILE.py:QUALNAME). In: the options, opened ELF files. Out: probes, the BPF maps fns and
 * py_calls, notes.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "include/name_hash.h"
#include "stepflame.skel.h"
#include "user/lib/log.h"
#include "user/session/sources/natives.h"
#include "user/session/state.h"

#define LOOK_NS          200000000ULL /* interval between looks for a library that is not loaded */
#define PY_MINOR_INLINES 11
#define NOT_IN_311 \
	"cannot be timed in CPython %s: from 3.11 on, Python functions call each other where no probe sees it"
#define WAY_OUT "mark the code with `with torch.profiler.record_function(\"name\"):`, which is always seen"

/* One --action. */
struct action {
	char *library; /* for a native function: prefix of the base name, or a path; else NULL */
	char *file;    /* for a Python function: the end of its file's path; else NULL */
	char *symbol;  /* or qualified name */
	bool found;    /* stepflame can time it in some target */
};

/* Session state. */
struct actions {
	struct action *actions; /* as many as options.action_cnt */
	/*
	 * The user named a Python function, but an interpreter (CPython 3.11 and later) inlines
	 * calls.
	 */
	bool py_inlines;
};

static struct actions *state_of(const struct session *s)
{
	return session__state(s, SOURCE_ACTIONS);
}

bool session__is_python_action(const char *text)
{
	const char *colon = strchr(text, ':');

	return colon && colon - text > 3 && !strncmp(colon - 3, ".py", 3);
}

/* The hash that BPF computes for a str of this ASCII text with `width` bytes per character. */
static uint64_t hash_ascii(const char *text, size_t chars, uint32_t width)
{
	uint64_t words[REC_NAME_MAX / 8] = {0}, hash = name_hash__seed(width, chars * width);

	if (chars * width > sizeof(words))
		return 0; /* longer than any name */
	for (size_t i = 0; i < chars; i++)
		((char *)words)[i * width] = text[i];
	for (size_t i = 0; i * 8 < chars * width; i++)
		hash = name_hash__add(hash, words[i]);
	return name_hash__end(hash);
}

static const char *last_name_part(const char *qualname)
{
	const char *dot = strrchr(qualname, '.');

	return dot ? dot + 1 : qualname;
}

static int prepare(struct session *s)
{
	struct actions *own = state_of(s);

	own->actions = calloc(s->options.action_cnt ?: 1, sizeof(*own->actions));
	if (!own->actions)
		return -ENOMEM;
	if (s->options.action_cnt + natives__cnt() > FN_MAX) {
		log__error("give fewer --action", "--action can name at most %d functions", FN_MAX - natives__cnt());
		return -EINVAL;
	}
	for (size_t i = 0; i < s->options.action_cnt; i++) {
		const char *text = s->options.actions[i], *colon = strchr(text, ':');
		char *where = strndup(text, colon - text);

		if (session__is_python_action(text))
			own->actions[i].file = where;
		else
			own->actions[i].library = where;
		own->actions[i].symbol = strdup(colon + 1);
		if (!where || !own->actions[i].symbol)
			return -ENOMEM;
	}
	return 0;
}

static void free_actions(struct session *s)
{
	struct actions *own = state_of(s);

	for (size_t i = 0; own->actions && i < s->options.action_cnt; i++) {
		free(own->actions[i].library);
		free(own->actions[i].file);
		free(own->actions[i].symbol);
	}
	free(own->actions);
}

/* Tells BPF how many Python functions to look for, and how long their names are. */
static void configure(const struct session *s, struct stepflame_bpf *skel, enum attach_backend backend)
{
	for (size_t i = 0; s && i < s->options.action_cnt; i++) {
		const struct action *a = &state_of(s)->actions[i];

		if (!a->file)
			continue;
		skel->rodata->py_call_cnt++;
		skel->rodata->py_call_lengths |= 1ULL << strlen(last_name_part(a->symbol)) % 64;
	}
}

static int set_py_call(const struct session *s, const struct action *a, uint32_t fn, uint32_t at)
{
	const char *name = last_name_part(a->symbol);
	struct py_call call = {.fn = fn};

	call.name = hash_ascii(name, strlen(name), 1);
	call.file_chars = strlen(a->file);
	for (uint32_t width = 1; width <= 4; width *= 2)
		call.file[width >> 1] = hash_ascii(a->file, call.file_chars, width);
	return bpf_map_update_elem(bpf_map__fd(s->skel->maps.py_calls), &at, &call, BPF_ANY) ? -errno : 0;
}

static int start(struct session *s)
{
	uint32_t py_calls = 0;
	int err = 0;

	for (size_t i = 0; i < s->options.action_cnt && !err; i++) {
		const struct action *a = &state_of(s)->actions[i];
		struct probe_fn fn = {.name = session__emit_name(s, s->options.actions[i]), .kind = SPAN_USER};
		uint32_t number = natives__cnt() + i;

		if (bpf_map_update_elem(bpf_map__fd(s->skel->maps.fns), &number, &fn, BPF_ANY))
			err = -errno;
		else if (a->file)
			err = set_py_call(s, a, number, py_calls++);
	}
	return err;
}

/* ---- files ---- */

static bool action_matches(const struct action *a, const struct mapped_file *file)
{
	const char *base = strrchr(file->path, '/');

	if (strchr(a->library, '/'))
		return !strcmp(file->path, a->library);
	return !strncmp(base ? base + 1 : file->path, a->library, strlen(a->library));
}

static enum source_holds holds(struct session *s, struct target *t, const struct mapped_file *file)
{
	const struct action *a = state_of(s)->actions;
	bool python = false;

	for (size_t i = 0; i < s->options.action_cnt; i++) {
		if (a[i].library && action_matches(&a[i], file))
			return HOLDS_MUST;
		python = python || a[i].file;
	}
	return python && target__is_python(t, file) ? HOLDS_YES : HOLDS_NO;
}

static int add_native_actions(struct session *s, const struct mapped_file *file, const struct elf *elf,
			      struct probe_list *list)
{
	for (size_t i = 0; i < s->options.action_cnt; i++) {
		struct action *a = &state_of(s)->actions[i];
		struct elf_symbol symbol;
		int err;

		if (!a->library || !action_matches(a, file) || elf__symbol(elf, a->symbol, &symbol))
			continue;
		err = probe_list__add_function(list, elf, symbol.vaddr, symbol.size, PROBE_FN, PROBE_FN_EXIT, 0,
					       natives__cnt() + i);
		if (err) {
			log__error("choose a function that it calls, or that calls it",
				   "no probe can be placed in %s of %s: its control flow is not understood", a->symbol,
				   file->path);
			return err;
		}
		a->found = true;
	}
	return 0;
}

/*
 * Probes the interpreter's loop from its entry to its last call, _Py_CheckFunctionResult():
 * whatever the loop runs leaves it through that call, exceptions included. From 3.11 on, the call
 * is elsewhere, and calls between Python functions stay within the loop.
 */
static int add_interpreter_loop(struct probe_list *list, const struct elf *elf)
{
	struct call_site last;
	struct elf_symbol loop;
	int err = elf__symbol(elf, "_PyEval_EvalFrameDefault", &loop);

	err = err ?: sites__find_last_call(elf, loop.vaddr, loop.size, "_Py_CheckFunctionResult", &last);
	err = err ?: probe_list__add_site(list, &last.site, PROBE_PY_CALL_EXIT, 0, 0);
	return err ?: probe_list__add_function(list, elf, loop.vaddr, loop.size, PROBE_PY_CALL, PROBE_NONE, 0, 0);
}

/* Probes Python functions in CPython up to 3.10; else prints a message with an alternative. */
static void add_python_actions(struct session *s, const struct elf *elf, const struct python *python,
			       struct probe_list *list)
{
	struct actions *own = state_of(s);

	if (python->process.layout.minor >= PY_MINOR_INLINES) {
		own->py_inlines = true;
		log__warn(WAY_OUT, "Python functions named by --action " NOT_IN_311, python->version);
		return;
	}
	if (add_interpreter_loop(list, elf)) {
		log__warn(
			WAY_OUT,
			"no probe can be placed in the loop of this interpreter (Python %s): Python functions named by "
			"--action are not timed",
			python->version);
		return;
	}
	for (size_t i = 0; i < s->options.action_cnt; i++)
		own->actions[i].found = own->actions[i].found || own->actions[i].file;
}

static int find(struct session *s, struct target *t, const struct mapped_file *file, struct elf *elf,
		struct probe_list sets[SOURCE_SETS])
{
	bool python = false;

	for (size_t i = 0; i < s->options.action_cnt; i++)
		python = python || state_of(s)->actions[i].file;
	if (python && target__is_python(t, file))
		add_python_actions(s, elf, &t->python, sets);
	return add_native_actions(s, file, elf, sets);
}

static uint64_t look_again_ns(const struct session *s, const struct target *t)
{
	const struct action *a = state_of(s)->actions;

	for (size_t i = 0; i < s->options.action_cnt; i++)
		if (a[i].library && !a[i].found && !t->forked)
			return LOOK_NS;
	return 0;
}

static bool watches(const struct session *s, const struct target *t)
{
	for (size_t i = 0; i < s->options.action_cnt; i++)
		if (state_of(s)->actions[i].found)
			return true;
	return false;
}

/* ---- notes ---- */

static void note_python_action(struct session *s, const struct action *a, const char *text, uint64_t seen)
{
	if (!a->found && state_of(s)->py_inlines)
		session__note(s, "--action %s " NOT_IN_311 "; " WAY_OUT, text, "3.11 and later");
	else if (!a->found)
		session__note(s, "--action %s was not timed: no process has a Python whose calls stepflame can probe",
			      text);
	else if (!seen)
		session__note(s,
			      "--action %s has no calls: nobody called it, or that file does not define that function",
			      text);
	else if (last_name_part(a->symbol) != a->symbol)
		session__note(
			s,
			"--action %s stands for every function `%s` of that file: up to 3.10, CPython's code objects "
			"do not name their class",
			text, last_name_part(a->symbol));
}

static void note(struct session *s)
{
	uint32_t at = 0;

	for (size_t i = 0; i < s->options.action_cnt; i++) {
		const struct action *a = &state_of(s)->actions[i];
		struct py_call call = {0};

		if (a->file) {
			bpf_map_lookup_elem(bpf_map__fd(s->skel->maps.py_calls), &at, &call);
			at++;
			note_python_action(s, a, s->options.actions[i], call.seen);
		} else if (!a->found) {
			session__note(s,
				      "no process has --action %s: check that the library is loaded and that nm -D "
				      "prints this symbol",
				      s->options.actions[i]);
		}
	}
}

const struct source source_actions = {
	.session_bytes = sizeof(struct actions),
	.prepare = prepare,
	.configure = configure,
	.start = start,
	.free = free_actions,
	.holds = holds,
	.find = find,
	.look_again_ns = look_again_ns,
	.watches = watches,
	.note = note,
};
