// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * `record --exact`: counts every call of a Python function. In: the interpreter's file. Out:
 * probes, words written into the target, REC_CALLS.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stepflame.skel.h"
#include "user/lib/log.h"
#include "user/runtime/python/pyexact.h"
#include "user/session/state.h"

#define LOOK_NS      200000000ULL /* interval between looks for an interpreter to start */
#define WAY_OUT      "record without --exact: samples show where the time goes, without counts of calls"
#define CANNOT_COUNT "--exact cannot count the calls of Python %s in process %d: %s"

/* File state: how stepflame sees the calls of an interpreter. */
struct exact_file {
	bool searched;        /* false: the session found the file before it knew of an interpreter there */
	const char *why;      /* why it cannot see them; else NULL */
	uint32_t word_offset; /* this and eval: as in struct py_exact */
	uint64_t eval;
};

/* Target state. */
struct exact_target {
	const struct exact_file *file; /* of its interpreter; NULL: not known yet */
	const char *why;               /* why its calls cannot be counted; else NULL */
	bool armed;                    /* stepflame sees its calls */
	bool incomplete;               /* stepflame misses some calls, and a note says so */
	size_t word_cnt;
	/* Addresses of words that stepflame has set, or that the program had set before. */
	uint64_t words[PY_EXACT_WORDS];
};

static struct exact_target *target_state(const struct target *t)
{
	return target__state(t, SOURCE_EXACT);
}

static void configure(const struct session *s, struct stepflame_bpf *skel, enum attach_backend backend)
{
	if (s && s->options.exact)
		return;
	bpf_program__set_autoload(skel->progs.exact, false);
	bpf_program__set_autoload(skel->progs.exact_exit, false);
	bpf_program__set_autoload(skel->progs.exact_exec, false);
	bpf_map__set_max_entries(skel->maps.exact_threads, 1);
	bpf_map__set_max_entries(skel->maps.exact_free, 1);
	bpf_map__set_max_entries(skel->maps.call_rows, 1);
}

static int start(struct session *s)
{
	if (!s->options.exact)
		return 0;
	for (uint32_t i = 0; i < bpf_map__max_entries(s->skel->maps.exact_free); i++)
		if (bpf_map_update_elem(bpf_map__fd(s->skel->maps.exact_free), NULL, &i, BPF_ANY))
			return -errno;
	return 0;
}

static enum source_holds holds(struct session *s, struct target *t, const struct mapped_file *file)
{
	return s->options.exact && target__is_python(t, file) ? HOLDS_MUST : HOLDS_NO;
}

static int find(struct session *s, struct target *t, const struct mapped_file *file, struct elf *elf,
		struct probe_list sets[SOURCE_SETS])
{
	/* From 3.9 on the arguments are (tstate, frame, throwflag), before (frame, throwflag). */
	bool second = t->python.process.layout.minor > 8;
	struct exact_file *f = file__state(s, file->dev, file->inode, SOURCE_EXACT);
	struct py_exact found;
	int err = 0;

	if (!f)
		return -ENOMEM;
	f->searched = true;
	if (py_exact__find(elf, &t->python, &found, &f->why))
		return 0;
	f->why = NULL;
	f->word_offset = found.word_offset;
	f->eval = found.eval;
	/* Exits before entries. */
	for (uint32_t i = 0; !err && i < found.returned_cnt; i++)
		err = probe_list__add(sets, found.returned[i].offset,
				      COOKIE(PROBE_EXACT_RETURN, 0, found.returned[i].depth, 0));
	if (!err && found.end.emulated)
		err = probe_list__add_site(sets, &found.end, PROBE_EXACT_RETURN, 0, 0);
	if (!err && found.clear.emulated)
		err = probe_list__add_site(sets, &found.clear, PROBE_EXACT_CLEAR,
					   found.clear_second ? COOKIE_FRAME_SECOND : 0, 0);
	err = err ?: probe_list__add_site(sets, &found.begin, PROBE_EXACT_CALL, second ? COOKIE_FRAME_SECOND : 0, 0);
	if (err)
		f->why = "out of memory";
	return err;
}

static int looked_at(struct session *s, struct target *t)
{
	struct exact_target *own = target_state(t);
	const struct exact_file *file;

	if (!s->options.exact || !t->has_python || own->file)
		return 0;
	file = file__state(s, t->python_dev, t->python_inode, SOURCE_EXACT);
	if (file && file->searched) {
		own->file = file;
		own->why = t->python.tried ? "its layout is none that stepflame knows" : file->why;
	}
	return 0;
}

/* A program may have moved its code to memory that is no file's. */
static bool needs_file(const struct session *s, const struct known_file *file)
{
	for (size_t i = 0; file->state[SOURCE_EXACT] && i < s->target_cnt; i++)
		if (!s->targets[i]->gone && target_state(s->targets[i])->file == file->state[SOURCE_EXACT])
			return true;
	return false;
}

/* Can stepflame see the calls of this target? */
static int check(struct session *s, const struct target *t)
{
	const char *why = target_state(t)->why;

	if (!t->has_python || !s->options.exact || !why)
		return 0;
	log__error(WAY_OUT, CANNOT_COUNT, t->python.version, t->process.pid, why);
	return -EOPNOTSUPP;
}

static bool watches(const struct session *s, const struct target *t)
{
	return t->has_python && s->options.exact;
}

/* 0 if the target has ended: the others are recorded all the same. */
static int explain_exact(const struct target *t, int err)
{
	if (err == -ESRCH)
		return 0;
	if (err == -EACCES || err == -EPERM)
		log__error("run stepflame as root (sudo), or with CAP_SYS_PTRACE",
			   "--exact may not write into process %d: permission denied", t->process.pid);
	else
		log__error(WAY_OUT, "--exact cannot write into process %d: %s", t->process.pid, strerror(-err));
	return err;
}

/*
 * CPython 3.11 has no check but its recursion limit, and 8 MiB of stack hold 20,000 calls:
 * stepflame accepts limits up to this.
 */
#define DEPTH_311 10000

/*
 * Is deep recursion safe? During the recording, calls that would stay within one run of the
 * interpreter's loop nest on the C stack. From 3.12 on, CPython limits that depth and raises
 * RecursionError beyond it: stepflame would break a correct program.
 */
static int check_depth(struct session *s, const struct target *t)
{
	int limit = py_exact__recursion_limit(&t->process, &t->python), minor = t->python.process.layout.minor;
	int depth = py_exact__safe_depth(&t->process, &t->python);

	if (minor == 11 && (limit < 0 || limit > DEPTH_311)) {
		log__error(
			WAY_OUT,
			"process %d allows recursion %d calls deep; under --exact that would overflow its C stack (up "
			"to %d are safe)",
			t->process.pid, limit, DEPTH_311);
		return -EOPNOTSUPP;
	}
	if (minor < 12 || (limit >= 0 && limit <= depth))
		return 0;
	if (!s->options.exact_force) {
		log__error("record without --exact, or with --exact=force if nothing in the job recurses that deep",
			   "under --exact, recursion deeper than some %d calls raises RecursionError in Python %s, and "
			   "process %d allows %d",
			   depth, t->python.version, t->process.pid, limit);
		return -EOPNOTSUPP;
	}
	session__note(s,
		      "exact calls: during the recording, recursion deeper than some %d calls raised RecursionError in "
		      "process %d",
		      depth, t->process.pid);
	return 0;
}

/* Up to 3.11.3, the instruction that calls `__getitem__` ignores eval_frame (CPython gh-104405). */
static void note_subscripts(struct session *s, const struct target *t)
{
	int micro;

	if (sscanf(t->python.version, "3.11.%d", &micro) == 1 && micro < 4)
		session__note(s,
			      "exact calls: Python %s calls `__getitem__` of classes where no probe sees it (fixed in "
			      "3.11.4): these calls are missing, their time is in their callers",
			      t->python.version);
	if (t->python.process.layout.minor == 13)
		session__note(s, "exact calls: Python 3.13 begins `__init__` of simple classes where no probe sees it: "
				 "these calls are counted, but their time is in their callers");
}

/* By which way the words of a target are found. Returns false when it runs another program by now. */
static bool find_origin(const struct target *t, struct word_origin *out)
{
	for (size_t i = 0; i < t->process.file_cnt; i++) {
		const struct mapped_file *file = &t->process.files[i];

		if (file->dev != t->python_dev || file->inode != t->python_inode)
			continue;
		*out = (struct word_origin){
			.dev = file->dev,
			.inode = file->inode,
			.base = file->base,
			.head = t->python.runtime + t->python.walk[PY_WALK_INTERPRETERS],
			.next = t->python.walk[PY_WALK_INTERP_NEXT],
			.word = target_state(t)->file->word_offset,
		};
		return true;
	}
	return false;
}

static int ask_to_write(struct session *s, const struct target *t, uint64_t address)
{
	struct word_origin origin;

	if (!find_origin(t, &origin))
		return -ESRCH;
	return guardian__write(s->guardian, &t->process, &origin, address,
			       t->python.bias + target_state(t)->file->eval);
}

/* Sets the eval_frame word of an interpreter. 0 or -errno; 0 too if the program has set it. */
static int write_word(struct session *s, struct target *t, uint64_t address)
{
	int err = ask_to_write(s, t, address);

	if (err == -EBUSY) {
		log__warn(NULL,
			  "process %d has an evaluation function of its own (torch.compile sets one): stepflame does "
			  "not replace it",
			  t->process.pid);
		session__note(s,
			      "exact calls: process %d has an evaluation function of its own (torch.compile sets one), "
			      "which stepflame did not replace: calls that it does not forward are missing",
			      t->process.pid);
		target_state(t)->incomplete = true;
		return 0;
	}
	return err == -EALREADY ? 0 : err;
}

/* Says so once if the words are in no journal. */
static void warn_of_journal(struct session *s)
{
	bool *warned = session__state(s, SOURCE_EXACT);
	int err = guardian__journal_error(s->guardian);

	if (err && !*warned)
		log__warn("let stepflame write to /run or /dev/shm (without root: $XDG_RUNTIME_DIR or /dev/shm)",
			  "--exact has no journal (%s): if stepflame and its guardian are both killed, stepflame "
			  "restore cannot restore the word",
			  strerror(-err));
	*warned = *warned || err;
}

/*
 * Notes why exact calls are missing in a process that the user did not name; `check` refuses the
 * others.
 */
static void note_unseen(struct session *s, struct target *t)
{
	if (!target_state(t)->incomplete)
		session__note(s, CANNOT_COUNT, t->python.version, t->process.pid, target_state(t)->why);
	target_state(t)->incomplete = true;
}

/* Makes every call visible: from CPython 3.11 on, sets the word of each interpreter, once. */
static int open_target(struct session *s, struct target *t)
{
	uint64_t *words = target_state(t)->words;
	int cnt, err = 0;

	if (!s->options.exact || target_state(t)->armed || !t->has_python || !target_state(t)->file)
		return 0;
	if (target_state(t)->why) {
		note_unseen(s, t);
		return 0;
	}
	if (!target_state(t)->file->word_offset) {
		target_state(t)->armed = true;
		return 0;
	}
	cnt = py_exact__words(&t->process, &t->python, target_state(t)->file->word_offset, words);
	if (cnt <= 0)
		return cnt ? explain_exact(t, cnt) : 0; /* 0: no interpreter has started yet */
	err = check_depth(s, t);
	if (err) {
		target_state(t)->why = "its recursion may be too deep";
		return err;
	}
	log__info("--exact writes one word into process %d (8 bytes at 0x%llx, PyInterpreterState.eval_frame), and "
		  "restores NULL at the end",
		  t->process.pid, (unsigned long long)words[0]);
	for (int i = 0; i < cnt && !err; i++)
		err = write_word(s, t, words[i]);
	if (err)
		return explain_exact(t, err);
	warn_of_journal(s);
	target_state(t)->word_cnt = cnt;
	target_state(t)->armed = true;
	note_subscripts(s, t);
	return 0;
}

/* Waits for the target's interpreter to start. */
static uint64_t look_again_ns(const struct session *s, const struct target *t)
{
	return s->options.exact && t->has_python && !target_state(t)->armed && !target_state(t)->why ? LOOK_NS : 0;
}

/* Stops seeing the calls of a target. */
static void stop_exact(struct session *s, struct target *t)
{
	if (target_state(t)->word_cnt)
		guardian__restore(s->guardian, &t->process);
	target_state(t)->armed = false;
	target_state(t)->word_cnt = 0;
}

/* The words are gone with the program: the guardian forgets them. */
static void forget_words(struct session *s, struct target *t)
{
	stop_exact(s, t);
	target__clear_state(t, SOURCE_EXACT);
}

static void on_fork(struct session *s, struct target *parent, struct target *child, bool followed)
{
	if (!child || !s->options.exact || !target_state(parent)->armed)
		return;
	*target_state(child) = *target_state(parent);
	child->python.bias = parent->python.bias;
	child->python.runtime = parent->python.runtime;
	memcpy(child->python.walk, parent->python.walk, sizeof(child->python.walk));
	for (size_t i = 0; i < target_state(child)->word_cnt; i++)
		ask_to_write(s, child, target_state(child)->words[i]);
	if (!followed)
		stop_exact(s, child);
}

static void note_changed(struct session *s, struct target *t)
{
	if (!target_state(t)->incomplete)
		session__note(s,
			      "exact calls: process %d set its own evaluation function during the recording "
			      "(torch.compile does): from then on calls between Python functions may be missing",
			      t->process.pid);
	target_state(t)->incomplete = true;
}

static bool has_word_address(const struct target *t, uint64_t word)
{
	for (size_t i = 0; i < target_state(t)->word_cnt; i++)
		if (target_state(t)->words[i] == word)
			return true;
	return false;
}

/* Follows interpreters that start and end in the process. */
static void follow_interpreters(struct session *s, struct target *t)
{
	uint64_t words[PY_EXACT_WORDS], value;
	int cnt = py_exact__words(&t->process, &t->python, target_state(t)->file->word_offset, words);

	for (int i = 0; i < cnt; i++) {
		if (!has_word_address(t, words[i])) {
			if (!target_state(t)->incomplete)
				session__note(
					s,
					"exact calls: process %d started an interpreter during the recording: its "
					"first calls are missing",
					t->process.pid);
			target_state(t)->incomplete = true;
			write_word(s, t, words[i]);
		} else if (!process__read_memory(t->process.pid, words[i], &value, sizeof(value)) &&
			   value != t->python.bias + target_state(t)->file->eval) {
			note_changed(s, t);
		}
	}
	if (cnt > 0) {
		memcpy(target_state(t)->words, words, (size_t)cnt * sizeof(*words));
		target_state(t)->word_cnt = (size_t)cnt;
	}
}

/* Checks whether a program has changed its word itself. */
static void tend(struct session *s)
{
	for (size_t i = 0; s->options.exact && i < s->target_cnt; i++)
		if (!s->targets[i]->gone && target_state(s->targets[i])->word_cnt)
			follow_interpreters(s, s->targets[i]);
}

static int snapshot(struct session *s)
{
	struct call_key key, *prev = NULL;
	int fd;

	if (!s->options.exact)
		return 0;
	fd = bpf_map__fd(s->skel->maps.call_rows);
	while (!bpf_map_get_next_key(fd, prev, &key)) {
		struct rec_calls rec = {.hdr = {.type = REC_CALLS, .size = sizeof(rec)}};
		struct call_val val;

		if (!bpf_map_lookup_elem(fd, &key, &val)) {
			rec.pid = key.pid;
			rec.code = key.code;
			rec.path = key.path;
			rec.calls = val.calls;
			rec.primitive_calls = val.primitive_calls;
			rec.self_ns = val.self_ns;
			rec.total_ns = val.total_ns;
			session__emit(s, &rec.hdr);
		}
		prev = &key;
	}
	return s->sink_err;
}

/* Restores all words before the probes detach. */
static void end(struct session *s)
{
	int err;

	if (!s->options.exact)
		return;
	tend(s);
	err = guardian__restore_all(s->guardian);
	if (err) {
		log__warn("stepflame restore",
			  "--exact: a process still has what stepflame wrote into it, or may have (%s)",
			  strerror(-err));
		session__note(s, "exact calls: stepflame may not have undone what it wrote into the process (%s)",
			      strerror(-err));
	}
	session__note(s, "exact calls: those of Python functions that began and ended in the window; calls of built-in "
			 "functions are in "
			 "the time of their callers");
}

static struct bpf_program *program(const struct stepflame_bpf *skel)
{
	return skel->progs.exact;
}

const struct source source_exact = {
	.session_bytes = sizeof(bool), /* stepflame has warned that it keeps no journal */
	.target_bytes = sizeof(struct exact_target),
	.file_bytes = sizeof(struct exact_file),
	.sets = {{.program = program}},
	.configure = configure,
	.start = start,
	.tend = tend,
	.end = end,
	.snapshot = snapshot,
	.holds = holds,
	.find = find,
	.needs_file = needs_file,
	.looked_at = looked_at,
	.look_again_ns = look_again_ns,
	.check = check,
	.watches = watches,
	.open_target = open_target,
	.on_fork = on_fork,
	.unfollow = stop_exact,
	.on_exec = forget_words,
	.on_exit = forget_words,
};
