// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/proc/packages.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "user/lib/compare.h"
#include "user/proc/deputy.h"
#include "user/proc/target_file.h"

#define ENTRIES_MAX   4096        /* of the folder */
#define READ_BYTES    65536       /* at once; a longer line is no line */
#define RECORD_BYTES  (4u << 20)  /* of the files of one distribution: torch has 12,000 of them, 1.2 MB */
#define RECORDS_BYTES (16u << 20) /* of those of all */
#define PACKAGES_MAX  256
#define PACKAGE_BYTES 128

struct question {
	pid_t pid;
	char folder[PACKAGES_PATH_BYTES];
};

/* ---- in the deputy ---- */

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
	char path[PACKAGES_PATH_BYTES];
	struct stat st;
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
	add_lines(look, fd);
	close(fd);
}

static int look_in_deputy(const void *in, struct deputy_out *out)
{
	const struct question *question = in;
	int root = target_file__root(question->pid), at, fd;
	struct look *look;
	char path[64];
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

/* ---- for a process ---- */

int packages__installed(pid_t pid, const char *folder, char **names)
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
