// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/exact.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "stepflame.skel.h"
#include "user/lib/log.h"
#include "user/session/guardian.h"

#define WAY_OUT "record without --exact: samples tell where the time goes, without counts of calls"

int exact__new(struct session *s)
{
	int err;

	if (!s->options.exact)
		return 0;
	for (uint32_t i = 0; i < bpf_map__max_entries(s->skel->maps.exact_free); i++)
		if (bpf_map_update_elem(bpf_map__fd(s->skel->maps.exact_free), NULL, &i, BPF_ANY))
			return -errno;
	err = guardian__new(&s->guardian);
	if (err)
		log__error(NULL, "cannot start the process that undoes what --exact writes: %s", strerror(-err));
	return err;
}

void exact__free(struct session *s)
{
	guardian__free(s->guardian);
	s->guardian = NULL;
}

int exact__add_probes(struct session *s, struct probe_list *list, const struct elf *elf, const struct python *python,
		      struct exact_file *exact)
{
	bool second = python->process.layout.minor > 8; /* (frame, throwflag) became (tstate, frame, throwflag) */
	struct py_exact found;
	int err = 0;

	if (!s->options.exact)
		return 0;
	if (py_exact__find(elf, python, &found, &exact->why))
		return 0;
	exact->why = NULL;
	exact->word_offset = found.word_offset;
	exact->eval = found.eval;
	/* Ends before beginnings. */
	for (uint32_t i = 0; !err && i < found.returned_cnt; i++)
		err = probe_list__add(list, found.returned[i].offset,
				      COOKIE(PROBE_EXACT_RETURN, 0, found.returned[i].depth, 0));
	if (!err && found.end.emulated)
		err = probe_list__add_site(list, &found.end, PROBE_EXACT_RETURN, 0, 0);
	if (!err && found.clear.emulated)
		err = probe_list__add_site(list, &found.clear, PROBE_EXACT_CLEAR,
					   found.clear_second ? COOKIE_FRAME_SECOND : 0, 0);
	return err ?: probe_list__add_site(list, &found.begin, PROBE_EXACT_CALL, second ? COOKIE_FRAME_SECOND : 0, 0);
}

int exact__check(struct session *s, const struct target *t)
{
	if (!s->options.exact || !t->exact.file.why)
		return 0;
	log__error(WAY_OUT, "the calls of Python %s in process %d cannot be seen: %s", t->python.version,
		   t->process.pid, t->exact.file.why);
	return -EOPNOTSUPP;
}

static int explain_exact(const struct target *t, int err)
{
	if (err == -EACCES || err == -EPERM)
		log__error("run stepflame as root (sudo), or with CAP_SYS_PTRACE",
			   "--exact may not write into process %d: permission denied", t->process.pid);
	else if (err != -ESRCH)
		log__error(WAY_OUT, "--exact cannot write into process %d: %s", t->process.pid, strerror(-err));
	return err;
}

/* Of CPython 3.11, which relies on its recursion limit: with 8 MiB of stack 20,000 calls fit. */
#define DEPTH_311 10000

/*
 * Calls that would stay within one run of the loop nest on the C stack meanwhile. From 3.12 on there is a limit to that,
 * beyond which RecursionError is raised: by us, in a program that is right.
 */
static int check_depth(struct session *s, const struct target *t)
{
	int limit = py_exact__recursion_limit(&t->process, &t->python), minor = t->python.process.layout.minor;
	int depth = py_exact__safe_depth(&t->process, &t->python);

	if (minor == 11 && (limit < 0 || limit > DEPTH_311)) {
		log__error(
			WAY_OUT,
			"process %d allows recursion %d calls deep: while --exact makes all calls visible, they would "
			"overflow its C stack (up to %d are safe)",
			t->process.pid, limit, DEPTH_311);
		return -EOPNOTSUPP;
	}
	if (minor < 12 || (limit >= 0 && limit <= depth))
		return 0;
	if (!s->options.exact_force) {
		log__error("record without --exact, or with --exact=force if nothing in the job recurses that deep",
			   "while --exact makes all calls visible, recursion deeper than some %d calls raises "
			   "RecursionError in Python %s: process %d allows %d",
			   depth, t->python.version, t->process.pid, limit);
		return -EOPNOTSUPP;
	}
	session__note(s,
		      "exact calls: meanwhile, recursion deeper than some %d calls raised RecursionError in process %d",
		      depth, t->process.pid);
	return 0;
}

/* Up to 3.11.3, this instruction does not ask for eval_frame (CPython gh-104405). */
static void note_subscripts(struct session *s, const struct target *t)
{
	int micro;

	if (sscanf(t->python.version, "3.11.%d", &micro) == 1 && micro < 4)
		session__note(s,
			      "exact calls: Python %s calls `__getitem__` of classes where it is not seen (fixed in "
			      "3.11.4): those "
			      "calls are missing, their time is in their callers",
			      t->python.version);
	if (t->python.process.layout.minor == 13)
		session__note(s, "exact calls: Python 3.13 calls `__init__` of simple classes where it is not seen to "
				 "begin: these "
				 "calls are counted, their time is in their callers");
}

/* Sets one word of it. */
static int write_word(struct session *s, struct target *t, uint64_t address)
{
	int err = guardian__write(s->guardian, &t->process, address, t->python.bias + t->exact.file.eval);

	if (err == -EBUSY) {
		log__warn(NULL,
			  "process %d has an evaluation function of its own (torch.compile sets one): it is left as it "
			  "is",
			  t->process.pid);
		session__note(s,
			      "exact calls: process %d has an evaluation function of its own (torch.compile sets one), "
			      "which was left as it is: calls that it does not pass on are missing",
			      t->process.pid);
		t->exact.incomplete = true;
		return 0;
	}
	return err == -EALREADY ? 0 : err;
}

/* A process that was not named, and is recorded all the same. */
static void note_unseen(struct session *s, struct target *t)
{
	if (!t->exact.incomplete)
		session__note(s, "exact calls: those of Python %s in process %d cannot be seen: %s", t->python.version,
			      t->process.pid, t->exact.file.why);
	t->exact.incomplete = true;
}

int exact__arm(struct session *s, struct target *t)
{
	uint64_t *words = t->exact.words;
	int cnt, err = 0;

	if (!s->options.exact || t->exact.armed || !t->has_python)
		return 0;
	if (t->exact.file.why) {
		note_unseen(s, t);
		return 0;
	}
	if (!t->exact.file.word_offset) {
		t->exact.armed = true;
		return 0;
	}
	cnt = py_exact__words(&t->process, &t->python, t->exact.file.word_offset, words);
	if (cnt <= 0)
		return cnt ?: -EAGAIN;
	err = check_depth(s, t);
	if (err) {
		t->exact.file.why = "its recursion may be too deep";
		return err;
	}
	log__info(
		"--exact writes one word into process %d (8 bytes at 0x%llx, PyInterpreterState.eval_frame), and puts "
		"NULL back at the end",
		t->process.pid, (unsigned long long)words[0]);
	for (int i = 0; i < cnt && !err; i++)
		err = write_word(s, t, words[i]);
	if (err)
		return explain_exact(t, err);
	t->exact.word_cnt = cnt;
	t->exact.armed = true;
	note_subscripts(s, t);
	return 0;
}

bool exact__waits(const struct session *s, const struct target *t)
{
	return s->options.exact && t->has_python && !t->exact.armed && !t->exact.file.why;
}

void exact__forked(struct session *s, struct target *child, const struct target *parent, bool recorded)
{
	if (!s->options.exact || !parent->exact.armed)
		return;
	child->exact = parent->exact;
	for (size_t i = 0; i < child->exact.word_cnt; i++)
		guardian__write(s->guardian, &child->process, child->exact.words[i],
				parent->python.bias + child->exact.file.eval);
	child->python.bias = parent->python.bias;
	child->python.runtime = parent->python.runtime;
	memcpy(child->python.walk, parent->python.walk, sizeof(child->python.walk));
	if (!recorded)
		exact__disarm(s, child);
}

void exact__disarm(struct session *s, struct target *t)
{
	if (t->exact.word_cnt)
		guardian__restore(s->guardian, &t->process);
	t->exact.armed = false;
	t->exact.word_cnt = 0;
}

static void note_changed(struct session *s, struct target *t)
{
	if (!t->exact.incomplete)
		session__note(s,
			      "exact calls: process %d has set an evaluation function of its own meanwhile "
			      "(torch.compile does): "
			      "from then on calls between Python functions may be missing",
			      t->process.pid);
	t->exact.incomplete = true;
}

static bool has_word(const struct target *t, uint64_t word)
{
	for (size_t i = 0; i < t->exact.word_cnt; i++)
		if (t->exact.words[i] == word)
			return true;
	return false;
}

/* Interpreters begin and end in a process. */
static void tend_words(struct session *s, struct target *t)
{
	uint64_t words[PY_EXACT_WORDS], value;
	int cnt = py_exact__words(&t->process, &t->python, t->exact.file.word_offset, words);

	for (int i = 0; i < cnt; i++) {
		if (!has_word(t, words[i])) {
			if (!t->exact.incomplete)
				session__note(
					s,
					"exact calls: an interpreter began in process %d meanwhile: its first calls "
					"are missing",
					t->process.pid);
			t->exact.incomplete = true;
			write_word(s, t, words[i]);
		} else if (!process__read_memory(t->process.pid, words[i], &value, sizeof(value)) &&
			   value != t->python.bias + t->exact.file.eval) {
			note_changed(s, t);
		}
	}
	if (cnt > 0) {
		memcpy(t->exact.words, words, (size_t)cnt * sizeof(*words));
		t->exact.word_cnt = (size_t)cnt;
	}
}

void exact__tend(struct session *s)
{
	for (size_t i = 0; s->options.exact && i < s->target_cnt; i++)
		if (!s->targets[i]->gone && s->targets[i]->exact.word_cnt)
			tend_words(s, s->targets[i]);
}

int exact__snapshot(struct session *s)
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

void exact__end(struct session *s)
{
	int err;

	if (!s->options.exact)
		return;
	exact__tend(s);
	err = guardian__free(s->guardian);
	s->guardian = NULL;
	if (err)
		session__note(s, "exact calls: what was written into the process may not have been put back (%s)",
			      strerror(-err));
	session__note(s, "exact calls: those of Python functions that began and ended in the window; calls of built-in "
			 "functions are in "
			 "the time of their callers");
}
