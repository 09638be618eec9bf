// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/calls.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>

#include "include/name_hash.h"
#include "stepflame.skel.h"
#include "user/lib/log.h"
#include "user/session/natives.h"
#include "user/session/programs.h"

#define PY_MINOR_INLINES 11
#define NOT_IN_311 \
	"cannot be timed in CPython %s: from 3.11 on, Python functions call each other where no probe sees it"
#define WAY_OUT "mark the code with `with torch.profiler.record_function(\"name\"):`, which is always seen"

bool session__is_python_action(const char *text)
{
	const char *colon = strchr(text, ':');

	return colon && colon - text > 3 && !strncmp(colon - 3, ".py", 3);
}

/* The hash of ASCII text as BPF reads it from a str whose characters have so many bytes. */
static uint64_t hash_ascii(const char *text, size_t chars, uint32_t width)
{
	uint64_t words[REC_NAME_MAX / 8] = {0}, hash = name_hash__seed(width, chars * width);

	if (chars * width > sizeof(words))
		return 0; /* as long as no name is */
	for (size_t i = 0; i < chars; i++)
		((char *)words)[i * width] = text[i];
	for (size_t i = 0; i * 8 < chars * width; i++)
		hash = name_hash__add(hash, words[i]);
	return name_hash__end(hash);
}

static const char *last_part(const char *qualname)
{
	const char *dot = strrchr(qualname, '.');

	return dot ? dot + 1 : qualname;
}

void calls__set_knobs(const struct session *s, struct program_knobs *knobs)
{
	for (size_t i = 0; i < s->options.action_cnt; i++) {
		const struct user_action *a = &s->actions[i];

		if (!a->file)
			continue;
		knobs->py_call_cnt++;
		knobs->py_call_lengths |= 1ULL << strlen(last_part(a->symbol)) % 64;
	}
}

int calls__set_map(const struct session *s)
{
	uint32_t at = 0;

	for (size_t i = 0; i < s->options.action_cnt; i++) {
		const struct user_action *a = &s->actions[i];
		const char *name = last_part(a->symbol);
		struct py_call call = {.fn = natives__cnt() + i};

		if (!a->file)
			continue;
		call.name = hash_ascii(name, strlen(name), 1);
		call.file_chars = strlen(a->file);
		for (uint32_t width = 1; width <= 4; width *= 2)
			call.file[width >> 1] = hash_ascii(a->file, call.file_chars, width);
		if (bpf_map_update_elem(bpf_map__fd(s->skel->maps.py_calls), &at, &call, BPF_ANY))
			return -errno;
		at++;
	}
	return 0;
}

/*
 * The interpreter's loop from its entry to its last call, _Py_CheckFunctionResult(), by which all that it runs is left,
 * exceptions included. From 3.11 on that call is elsewhere, and calls between Python functions stay within the loop.
 */
static int add_loop(struct probe_list *list, const struct elf *elf)
{
	struct call_site last;
	struct elf_symbol loop;
	int err = elf__symbol(elf, "_PyEval_EvalFrameDefault", &loop);

	err = err ?: sites__find_last_call(elf, loop.vaddr, loop.size, "_Py_CheckFunctionResult", &last);
	err = err ?: probe_list__add_site(list, &last.site, PROBE_PY_CALL_EXIT, 0, 0);
	return err ?: probe_list__add_function(list, elf, loop.vaddr, loop.size, PROBE_PY_CALL, PROBE_NONE, 0, 0);
}

void calls__add_probes(struct session *s, struct probe_list *list, const struct elf *elf, const struct python *python)
{
	bool wanted = false;

	for (size_t i = 0; i < s->options.action_cnt; i++)
		wanted = wanted || s->actions[i].file;
	if (!wanted)
		return;
	if (python->process.layout.minor >= PY_MINOR_INLINES) {
		s->py_inlines = true;
		log__warn(WAY_OUT, "Python functions named by --action " NOT_IN_311, python->version);
		return;
	}
	if (add_loop(list, elf)) {
		log__warn(
			WAY_OUT,
			"no probe can be placed in the loop of this interpreter (Python %s): Python functions named by "
			"--action are not timed",
			python->version);
		return;
	}
	for (size_t i = 0; i < s->options.action_cnt; i++)
		s->actions[i].found = s->actions[i].found || s->actions[i].file;
}

static void note(struct session *s, const struct user_action *a, const char *text, uint64_t seen)
{
	if (!a->found && s->py_inlines)
		session__note(s, "--action %s " NOT_IN_311 "; " WAY_OUT, text, "3.11 and later");
	else if (!a->found)
		session__note(s, "--action %s is not timed: there was no Python whose calls can be seen", text);
	else if (!seen)
		session__note(
			s,
			"--action %s was not seen: it was not called, or no function of that name was defined in a "
			"file of that name",
			text);
	else if (last_part(a->symbol) != a->symbol)
		session__note(
			s,
			"--action %s stands for every function `%s` of that file: up to 3.10, CPython's code objects "
			"do not say which class they are of",
			text, last_part(a->symbol));
}

void calls__note(struct session *s)
{
	uint32_t at = 0;

	for (size_t i = 0; i < s->options.action_cnt; i++) {
		struct py_call call = {0};

		if (!s->actions[i].file)
			continue;
		bpf_map_lookup_elem(bpf_map__fd(s->skel->maps.py_calls), &at, &call);
		at++;
		note(s, &s->actions[i], s->options.actions[i], call.seen);
	}
}
