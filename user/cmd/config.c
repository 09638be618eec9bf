// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/cmd/config.h"

#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "user/lib/capabilities.h"
#include "user/lib/log.h"
#include "user/lib/similar.h"

#define BYTES_MAX     (64 << 10)
#define MALFORMED_MAX 20 /* lines that are told: each takes another reading */

struct config_line {
	int number;
	char *section, *name, *value; /* owned */
};

/* A file while it is read. */
struct reading {
	struct config *config;
	const char *path;
	char text[BYTES_MAX + 1];
	char *at;          /* the next line */
	int number;        /* of the line before that */
	unsigned int errs; /* that were told */
	bool no_memory;
};

/* ---- the file ---- */

static int refuse_config(const char *path, const char *why, const char *fix)
{
	log__error(fix, "cannot use %s: %s", path, why);
	return -EINVAL;
}

/* As the user who calls may: what is wrong in it is shown. The descriptor or -errno. */
static int open_file(const char *path)
{
	uint64_t lowered = geteuid() ? capabilities__lower(CAPABILITIES_OF_FILES) : 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	int err = fd < 0 ? -errno : fd;

	capabilities__raise(lowered);
	return err;
}

/* 0, or -EINVAL after a message. */
static int check_file(const char *path, int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return refuse_config(path, strerror(errno), NULL);
	if (!S_ISREG(st.st_mode))
		return refuse_config(path, "it is no regular file", "name a file with --config");
	if ((st.st_uid && st.st_uid != geteuid()) || st.st_mode & (S_IWGRP | S_IWOTH))
		return refuse_config(path, "others than root may write it",
				     "as root: chown root FILE; chmod go-w FILE");
	return 0;
}

/* 0, or -EINVAL after a message. */
static int read_text(struct reading *reading, int fd)
{
	size_t bytes = 0;
	ssize_t got;

	do {
		got = read(fd, reading->text + bytes, BYTES_MAX + 1 - bytes);
		if (got < 0)
			return refuse_config(reading->path, strerror(errno), NULL);
		bytes += got;
	} while (got && bytes <= BYTES_MAX);
	if (bytes > BYTES_MAX)
		return refuse_config(reading->path, "it has more than 64 KB", "take out comments");
	if (memchr(reading->text, 0, bytes))
		return refuse_config(reading->path, "it is no text", "write lines NAME = VALUE");
	reading->text[bytes] = 0;
	return 0;
}

/* ---- its lines ---- */

static void report_line(struct reading *reading, int line, const char *fix, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

static void report_line(struct reading *reading, int line, const char *fix, const char *fmt, ...)
{
	char what[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	log__error(fix, "%s:%d: %s", reading->path, line, what);
	reading->errs++;
}

/* For libinih, which cuts what is longer, and takes a line that begins with a blank for a part of the one before. */
static char *next_line(char *out, int size, void *stream)
{
	struct reading *reading = stream;
	size_t bytes;

	if (!*reading->at)
		return NULL;
	reading->number++;
	reading->at += strspn(reading->at, " \t");
	bytes = strcspn(reading->at, "\n");
	if (bytes + 2 > (size_t)size) {
		report_line(reading, reading->number, "shorten it", "the line has more than %d characters", size - 2);
		memset(reading->at, ' ', bytes); /* it is told once */
		bytes = 0;
	}
	snprintf(out, size, "%.*s\n", (int)bytes, reading->at);
	reading->at = strchrnul(reading->at, '\n');
	reading->at += *reading->at == '\n';
	return out;
}

static int add_line(void *ctx, const char *section, const char *name, const char *value)
{
	struct reading *reading = ctx;
	struct config_line *line = array__add(&reading->config->lines, sizeof(*line));

	if (!line) {
		reading->no_memory = true;
		return 1;
	}
	*line = (struct config_line){reading->number, strdup(section), strdup(name), strdup(value)};
	reading->no_memory |= !line->section || !line->name || !line->value;
	return 1;
}

static void blank_line(struct reading *reading, int number)
{
	char *at = reading->text;

	while (--number)
		at = strchr(at, '\n') + 1;
	memset(at, ' ', strcspn(at, "\n"));
}

/* libinih says which line is the first that it does not understand: without that, it says the next. */
static int parse_text(struct reading *reading)
{
	int line;

	for (int i = 0; i < MALFORMED_MAX; i++) {
		reading->at = reading->text;
		reading->number = 0;
		line = ini_parse_stream(next_line, reading, add_line, reading);
		if (line < 0 || reading->no_memory)
			return -ENOMEM;
		if (!line)
			return 0;
		report_line(reading, line, "begin a comment with #", "the line is neither [%s] nor NAME = VALUE",
			    reading->config->section);
		blank_line(reading, line);
		config__free(reading->config);
	}
	return -EINVAL;
}

/* ---- settings ---- */

static bool is_in(int key, const int *keys)
{
	while (*keys && *keys != key)
		keys++;
	return *keys;
}

/* NULL: the file may have no such setting, and *similar is what may have been meant. */
static const struct argp_option *find_setting(const struct config *config, const char *name, struct similar *similar)
{
	for (const struct argp_option *o = config->argp->options; o->name; o++) {
		if (!o->arg || is_in(o->key, config->never))
			continue;
		if (!strcmp(o->name, name))
			return o;
		similar__try(similar, o->name);
	}
	return NULL;
}

static void list_settings(const struct config *config, char *text, size_t size)
{
	size_t used = snprintf(text, size, "the settings are");

	for (const struct argp_option *o = config->argp->options; o->name && used < size; o++)
		if (o->arg && !is_in(o->key, config->never))
			used += snprintf(text + used, size - used, " %s", o->name);
}

/* 0 or -ENOMEM. */
static int set_option(struct reading *reading, const struct argp_option *option, const struct config_line *line)
{
	const struct config *config = reading->config;
	char *wrong = NULL, fix[64];
	size_t bytes;
	struct argp_state state = {
		.root_argp = config->argp,
		.input = config->input,
		.flags = ARGP_NO_EXIT,
		.name = (char *)option->name,
		.err_stream = open_memstream(&wrong, &bytes),
	};

	if (!state.err_stream)
		return -ENOMEM;
	config->argp->parser(option->key, line->value, &state);
	if (fclose(state.err_stream)) {
		free(wrong);
		return -ENOMEM;
	}
	snprintf(fix, sizeof(fix), "--help says what --%s takes", option->name);
	if (bytes) /* the message, and below it what argp says of --help */
		report_line(reading, line->number, fix, "%.*s", (int)strcspn(wrong, "\n"), wrong);
	free(wrong);
	return 0;
}

/* The line of an earlier setting of that name; NULL: there is none. */
static const struct config_line *find_earlier(const struct config *config, const struct config_line *line)
{
	for (const struct config_line *other = config->lines.items; other < line; other++)
		if (!strcmp(other->section, line->section) && !strcmp(other->name, line->name))
			return other;
	return NULL;
}

/* 0, also after a message; or -ENOMEM. */
static int take_line(struct reading *reading, const struct config_line *line)
{
	const struct config *config = reading->config;
	struct similar similar = {.word = line->name};
	const struct argp_option *option = find_setting(config, line->name, &similar);
	const struct config_line *earlier = find_earlier(config, line);
	char fix[512];

	if (strcmp(line->section, config->section)) {
		snprintf(fix, sizeof(fix), "put it below a line [%s]; there is no other section", config->section);
		report_line(reading, line->number, fix, "'%s' is not in the section [%s]", line->name, config->section);
	} else if (!option) {
		list_settings(config, fix, sizeof(fix));
		report_line(reading, line->number, fix, "there is no setting '%s'%s%s%s", line->name,
			    similar.best ? "; did you mean '" : "", similar.best ?: "", similar.best ? "'?" : "");
	} else if (!*line->value) {
		report_line(reading, line->number, "delete the line, or begin it with #", "'%s' has no value",
			    line->name);
	} else if (earlier && option->key != config->many) {
		report_line(reading, line->number, "delete one of them", "'%s' is in line %d, too", line->name,
			    earlier->number);
	} else {
		return set_option(reading, option, line);
	}
	return 0;
}

static int take_lines(struct reading *reading)
{
	const struct config_line *lines = reading->config->lines.items;
	int err = 0;

	for (size_t i = 0; i < reading->config->lines.cnt && !err; i++)
		err = take_line(reading, &lines[i]);
	return err;
}

int config__read(struct config *config, const char *path, bool must_exist)
{
	struct reading *reading;
	int err, fd = open_file(path);

	if (fd == -ENOENT && !must_exist)
		return 0;
	if (fd < 0)
		return refuse_config(path, fd == -ELOOP ? "it is a symbolic link" : strerror(-fd),
				     "name a file that can be read with --config");
	reading = calloc(1, sizeof(*reading));
	err = reading ? 0 : -ENOMEM;
	if (!err) {
		reading->config = config;
		reading->path = path;
		err = check_file(path, fd) ?: read_text(reading, fd) ?: parse_text(reading) ?: take_lines(reading);
		err = err ?: reading->errs ? -EINVAL : 0;
	}
	if (err == -ENOMEM)
		refuse_config(path, strerror(ENOMEM), NULL);
	free(reading);
	close(fd);
	return err;
}

void config__free(struct config *config)
{
	struct config_line *lines = config->lines.items;

	for (size_t i = 0; i < config->lines.cnt; i++) {
		free(lines[i].section);
		free(lines[i].name);
		free(lines[i].value);
	}
	free(lines);
	config->lines = (struct array){};
}
