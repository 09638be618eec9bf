// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Which packages outside site-packages were installed, as `pip install --target` does it, and so are
 * not the user's own: REC_INSTALLED. In: PYTHONPATH, and the files of the functions that samples
 * meet, since a program may add to sys.path itself. The folders around them are looked at for
 * metadata, each once. All of it is hostile input. No probe.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "include/records.h"
#include "user/lib/compare.h"
#include "user/lib/map.h"
#include "user/proc/deputy.h"
#include "user/proc/environ.h"
#include "user/proc/target_file.h"
#include "user/session/state.h"

/* ---- what was installed into a folder: the metadata of each distribution (*.dist-info/RECORD) lists its files ---- */

#define PATH_BYTES    4096
#define ENTRIES_MAX   4096        /* of the folder */
#define READ_BYTES    65536       /* at once; a longer line is no line */
#define RECORD_BYTES  (4u << 20)  /* of the files of one distribution: torch has 12,000 of them, 1.2 MB */
#define RECORDS_BYTES (16u << 20) /* of those of all */
#define PACKAGES_MAX  256
#define PACKAGE_BYTES 128

struct question {
	pid_t pid;
	char folder[PATH_BYTES];
};

struct look {
	struct deputy_out *out;
	char text[READ_BYTES + 1];
	size_t read_bytes, last; /* last: where the name begins that was found last */
	size_t cnt;
};

static bool has_name(const struct deputy_out *out, size_t at, const char *name, size_t length)
{
	return at + length < out->size && !memcmp(out->bytes + at, name, length) && out->bytes[at + length] == '\n';
}

/* Adds a name, with a newline, that is not there yet. */
static void add_name(struct look *look, const char *name, size_t length)
{
	struct deputy_out *out = look->out;

	if (length >= PACKAGE_BYTES || has_name(out, look->last, name, length))
		return;
	for (size_t at = 0; at < out->size; at += strcspn(out->bytes + at, "\n") + 1)
		if (has_name(out, at, name, length)) {
			look->last = at;
			return;
		}
	if (look->cnt++ >= PACKAGES_MAX)
		return;
	look->last = out->size;
	memcpy(out->bytes + out->size, name, length);
	memcpy(out->bytes + out->size + length, "\n", sizeof("\n"));
	out->size += length + 1;
}

/* Not what lies beside packages: commands, metadata, and files above the folder ("../../bin/x"). */
static bool is_package(const char *name, size_t length)
{
	return *name != '.' && strncmp(name, "bin/", 4) != 0 && strncmp(name, "__pycache__/", 12) != 0 &&
	       !memmem(name, length, ".dist-info", 10);
}

/* A line "PACKAGE/FILE,HASH,SIZE", or "MODULE.py,HASH,SIZE"; in quotes where a name has a comma. */
static void add_line(struct look *look, const char *line)
{
	bool quoted = *line == '"';
	size_t length = strcspn(line + quoted, quoted ? "/\"" : "/,");
	const char *name = line + quoted;

	if (!length || !is_package(name, length)) /* "/etc/x.py": an absolute path */
		return;
	if (name[length] == '/' || (name[length] && length > 3 && !memcmp(name + length - 3, ".py", 3)))
		add_name(look, name, length + (name[length] == '/'));
}

/* The last line counts only with its newline: it may be cut. */
static void add_lines(struct look *look, int fd)
{
	size_t has = 0, bytes = 0;
	ssize_t got;

	while (bytes < RECORD_BYTES && look->read_bytes < RECORDS_BYTES &&
	       (got = read(fd, look->text + has, READ_BYTES - has)) > 0) {
		char *line = look->text, *end, *stop = look->text + has + got;

		bytes += got;
		look->read_bytes += got;
		for (; (end = memchr(line, '\n', stop - line)); line = end + 1) {
			*end = 0;
			add_line(look, line);
		}
		has = stop - line < READ_BYTES ? stop - line : 0;
		memmove(look->text, line, has);
	}
}

static void read_record(struct look *look, int folder, const char *entry)
{
	char path[PATH_BYTES];
	int fd, at;

	if (snprintf(path, sizeof(path), "%s/RECORD", entry) >= (int)sizeof(path))
		return;
	at = target_file__open(folder, path, 0);
	fd = at < 0 ? at : target_file__reopen(at);
	if (fd < 0)
		return;
	add_lines(look, fd);
	close(fd);
}

static int look_in_deputy(const void *in, struct deputy_out *out)
{
	const struct question *question = in;
	int at = target_file__of(question->pid, question->folder, O_DIRECTORY), fd;
	struct look *look;
	char path[64];
	struct dirent *entry;
	DIR *list;

	if (at < 0)
		return at;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", at);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	list = fd < 0 ? NULL : fdopendir(fd);
	look = calloc(1, sizeof(*look));
	if (look)
		look->out = out;
	for (int i = 0; list && look && i < ENTRIES_MAX && (entry = readdir(list)); i++)
		if (compare__ends_with(entry->d_name, ".dist-info"))
			read_record(look, at, entry->d_name);
	free(look);
	if (list)
		closedir(list);
	else if (fd >= 0)
		close(fd);
	close(at);
	return 0;
}

/*
 * The packages in a folder of a process, which has an absolute path: "NAME/", or "NAME.py" of a
 * module, with a newline behind each; malloc'ed, *names is "" where there are none. 0; -EINVAL: no such path; or -errno.
 */
static int find_installed(pid_t pid, const char *folder, char **names)
{
	struct question question = {.pid = pid};
	const struct deputy_out *answer;
	int err;

	if (*folder != '/' || strlen(folder) >= sizeof(question.folder))
		return -EINVAL;
	strcpy(question.folder, folder);
	err = deputy__run(pid, look_in_deputy, &question, sizeof(question), &answer);
	if (err)
		return err;
	*names = strndup(answer->bytes, answer->size);
	return *names ? 0 : -ENOMEM;
}

/* ---- the session ---- */

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
	char *paths = calloc(1, PATH_BYTES);

	for (size_t i = 0; paths && is_wanted(s) && i < s->target_cnt; i++) {
		const struct target *t = s->targets[i];

		if (t->role == ROLE_MAIN && !t->gone &&
		    !process__environ(t->process.pid, "PYTHONPATH", paths, PATH_BYTES))
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
		if (find_installed(t->process.pid, folder, &names))
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
