// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Which packages outside site-packages were installed, as `pip install --target` does it, and so are
 * not the user's own: REC_INSTALLED. In: PYTHONPATH, and the files of the functions that samples
 * meet, since a program may add to sys.path itself. The folders around them are looked at for
 * metadata, each once. No probe.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/records.h"
#include "user/lib/compare.h"
#include "user/lib/map.h"
#include "user/proc/environ.h"
#include "user/proc/packages.h"
#include "user/session/state.h"

#define LOOK_NS     200000000ull
#define FOLDERS_MAX 128 /* of a session, */
#define PATHS_MAX   16  /* of them in PYTHONPATH */
#define LEVELS_MAX  4   /* above a file: packages have packages */
#define ASKED_MAX   4   /* processes for which a folder is looked for: each may have its own root */

/* Session state. */
struct packages {
	struct map folders; /* texts, in the order in which they are looked at */
	size_t next;        /* the first that was not looked at */
	uint64_t next_ns;
};

static struct packages *state_of(const struct session *s)
{
	return session__state(s, SOURCE_PACKAGES);
}

static bool is_wanted(const struct session *s)
{
	return s->options.frequency && !s->options.live_ns;
}

/* false: it is there, or there are too many. */
static bool add_folder(struct packages *own, const char *folder)
{
	size_t before = own->folders.items.cnt;
	uint32_t index;

	return before < FOLDERS_MAX && !map__add_text(&own->folders, folder, &index) && own->folders.items.cnt > before;
}

/* ---- where to look ---- */

/* Those around a file; not what is directly in the root, as /home. */
static void add_around(struct packages *own, char *path)
{
	for (int level = 0; level < LEVELS_MAX; level++) {
		char *slash = strrchr(path, '/');

		if (!slash || !memchr(path + 1, '/', slash - path))
			return;
		*slash = 0;
		if (!add_folder(own, path))
			return;
	}
}

/* Those that hold nothing of the user's own in any case need no look. */
static bool is_known(const char *path)
{
	return strstr(path, "/site-packages/") || strstr(path, "/dist-packages/") || strstr(path, "/lib/python3");
}

static bool on_name(struct session *s, const struct rec_hdr *record)
{
	const struct rec_name *name = (const void *)record;
	char path[REC_NAME_MAX + 1];

	if (!is_wanted(s) || name->cut || name->encoding != NAME_UTF8 || !name->bytes || name->bytes > REC_NAME_MAX ||
	    sizeof(*name) + name->bytes > record->size || name->text[0] != '/' || memchr(name->text, 0, name->bytes))
		return false;
	memcpy(path, name->text, name->bytes);
	path[name->bytes] = 0;
	if (compare__ends_with(path, ".py") && !is_known(path))
		add_around(state_of(s), path);
	return false;
}

static void add_paths(struct packages *own, char *paths)
{
	char *rest = paths, *folder;

	for (int i = 0; i < PATHS_MAX && (folder = strsep(&rest, ":")); i++) {
		for (size_t length = strlen(folder); length > 1 && folder[length - 1] == '/'; length--)
			folder[length - 1] = 0;
		if (*folder == '/')
			add_folder(own, folder);
	}
}

static int add_environment(struct session *s)
{
	char *paths = calloc(1, PACKAGES_PATH_BYTES);

	for (size_t i = 0; paths && is_wanted(s) && i < s->target_cnt; i++) {
		const struct target *t = s->targets[i];

		if (t->role == ROLE_MAIN && !t->gone &&
		    !process__environ(t->process.pid, "PYTHONPATH", paths, PACKAGES_PATH_BYTES))
			add_paths(state_of(s), paths);
	}
	free(paths);
	return 0;
}

/* ---- looks ---- */

/* names: with a newline behind each. */
static void emit_installed(struct session *s, const char *folder, const char *names)
{
	for (size_t length; (length = strcspn(names, "\n")); names += length + 1) {
		struct rec_installed rec = {.hdr = {.type = REC_INSTALLED, .size = sizeof(rec)}};
		char path[REC_NAME_MAX + 1];

		if (snprintf(path, sizeof(path), "%s/%.*s", folder, (int)length, names) >= (int)sizeof(path))
			continue;
		rec.path = session__emit_name(s, path);
		session__emit(s, &rec.hdr);
	}
}

static void look_at_next(struct session *s)
{
	struct packages *own = state_of(s);
	const char *folder = ((char **)own->folders.items.items)[own->next++];
	size_t asked = 0;
	char *names;

	for (size_t i = 0; i < s->target_cnt && asked < ASKED_MAX; i++) {
		const struct target *t = s->targets[i];
		bool found;

		if (t->role != ROLE_MAIN || t->gone)
			continue;
		asked++;
		if (packages__installed(t->process.pid, folder, &names))
			continue;
		found = *names;
		emit_installed(s, folder, names);
		free(names);
		if (found)
			return;
	}
}

static void tend(struct session *s)
{
	struct packages *own = state_of(s);
	uint64_t now;

	if (own->next == own->folders.items.cnt || !s->opened)
		return;
	now = session__now_ns();
	if (now < own->next_ns)
		return;
	own->next_ns = now + LOOK_NS;
	look_at_next(s);
}

static void look_at_rest(struct session *s)
{
	while (state_of(s)->next < state_of(s)->folders.items.cnt)
		look_at_next(s);
}

static void free_state(struct session *s)
{
	map__free_texts(&state_of(s)->folders);
}

const struct source source_packages = {
	.session_bytes = sizeof(struct packages),
	.records = {{REC_NAME, sizeof(struct rec_name), on_name}},
	.open = add_environment,
	.tend = tend,
	.close = look_at_rest,
	.free = free_state,
};
