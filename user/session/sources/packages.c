// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Which packages in folders of PYTHONPATH were installed, as `pip install --target` does it, and so
 * are not the user's own: REC_INSTALLED. Their metadata (*.dist-info/RECORD) lists their files. No
 * probe, and one look at each process when its recording begins.
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
#include "user/proc/deputy.h"
#include "user/proc/environ.h"
#include "user/proc/target_file.h"
#include "user/session/state.h"

#define PATH_BYTES    4096
#define FOLDERS_MAX   16    /* of PYTHONPATH */
#define ENTRIES_MAX   4096  /* of one of them */
#define RECORD_BYTES  65536 /* of the files of one package */
#define PACKAGES_MAX  256   /* of one folder */
#define PACKAGE_BYTES 128

struct question {
	pid_t pid;
	char folder[PATH_BYTES];
};

/* ---- in the deputy ---- */

/* Adds a name, with a newline, that is not there yet. */
static void add_name(struct deputy_out *out, const char *name, size_t length)
{
	size_t at = 0, cnt = 0;

	for (; at < out->size; cnt++) {
		size_t has = strcspn(out->bytes + at, "\n");

		if (has == length && !memcmp(out->bytes + at, name, length))
			return;
		at += has + 1;
	}
	if (cnt == PACKAGES_MAX || !length || length >= PACKAGE_BYTES)
		return;
	memcpy(out->bytes + out->size, name, length);
	out->bytes[out->size + length] = '\n';
	out->bytes[out->size + length + 1] = 0;
	out->size += length + 1;
}

static bool is_package(const char *name, size_t length)
{
	return *name != '.' && *name != '"' && strncmp(name, "bin/", 4) != 0 &&
	       strncmp(name, "__pycache__/", 12) != 0 && !memmem(name, length, ".dist-info", 10);
}

/* Lines "PACKAGE/FILE,HASH,SIZE", or "MODULE.py,HASH,SIZE". */
static void add_packages(char *text, struct deputy_out *out)
{
	for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
		size_t length = strcspn(line, "/,\n");

		if (!is_package(line, length))
			continue;
		if (line[length] == '/' || (length > 3 && !memcmp(line + length - 3, ".py", 3)))
			add_name(out, line, length + (line[length] == '/'));
	}
}

static void read_record(int folder, const char *entry, char *text, struct deputy_out *out)
{
	char path[PATH_BYTES];
	struct stat st;
	ssize_t got = 0;
	int fd = -1, at;

	if (snprintf(path, sizeof(path), "%s/RECORD", entry) >= (int)sizeof(path))
		return;
	at = target_file__open(folder, path, 0);
	if (at < 0)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", at);
	/* to open anything else may have effects */
	if (!fstat(at, &st) && S_ISREG(st.st_mode))
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	close(at);
	if (fd < 0)
		return;
	got = read(fd, text, RECORD_BYTES - 1);
	text[got > 0 ? got : 0] = 0;
	add_packages(text, out);
	close(fd);
}

static int look_in_deputy(const void *in, struct deputy_out *out)
{
	const struct question *question = in;
	int root = target_file__root(question->pid), at, fd;
	char path[64], *text;
	struct dirent *entry;
	DIR *list;

	if (root < 0)
		return root;
	at = target_file__open(root, question->folder, O_DIRECTORY);
	close(root);
	if (at < 0)
		return at;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", at);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	list = fd < 0 ? NULL : fdopendir(fd);
	text = malloc(RECORD_BYTES);
	for (int i = 0; list && text && i < ENTRIES_MAX && (entry = readdir(list)); i++)
		if (compare__ends_with(entry->d_name, ".dist-info"))
			read_record(at, entry->d_name, text, out);
	free(text);
	if (list)
		closedir(list);
	else if (fd >= 0)
		close(fd);
	close(at);
	return 0;
}

/* ---- for a process ---- */

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

static void look_at_folder(struct session *s, pid_t pid, const char *folder, size_t length)
{
	struct question question = {.pid = pid};
	const struct deputy_out *answer;
	char *names;

	while (length > 1 && folder[length - 1] == '/')
		length--;
	if (*folder != '/' || length >= sizeof(question.folder))
		return;
	memcpy(question.folder, folder, length);
	if (deputy__run(pid, look_in_deputy, &question, sizeof(question), &answer) || !answer->size)
		return;
	names = strndup(answer->bytes, answer->size);
	if (names)
		emit_installed(s, question.folder, names);
	free(names);
}

/* Other ranks, and children, mostly have the same folders. */
static int look(struct session *s)
{
	char *last = calloc(1, PATH_BYTES), *path = calloc(1, PATH_BYTES);

	for (size_t i = 0; last && path && i < s->target_cnt; i++) {
		const struct target *t = s->targets[i];
		size_t folders = 0, length;

		if (t->role != ROLE_MAIN || t->gone ||
		    process__environ(t->process.pid, "PYTHONPATH", path, PATH_BYTES) || !strcmp(path, last))
			continue;
		for (const char *at = path; *at && folders < FOLDERS_MAX; folders++) {
			length = strcspn(at, ":");
			look_at_folder(s, t->process.pid, at, length);
			at += length + (at[length] == ':');
		}
		strcpy(last, path);
	}
	free(last);
	free(path);
	return 0;
}

const struct source source_packages = {.open = look};
