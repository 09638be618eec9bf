// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Generated names: those of Python's tempfile and multiprocessing, of torch's shared memory and
 * compiler, and of unnamed files; in folders for temporary files, also other names with numbers or
 * random letters. Deleted files of one folder are of one kind.
 */
#include "user/report/file_kind.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define DELETED " (deleted)" /* appended by bpf/file_path.h */

enum made_up {
	TEMPFILE, /* 8 of tempfile's letters, then the end or a suffix */
	HEX,      /* 8 hexadecimal digits */
	RANDOM,   /* 6 letters or digits, as mkdtemp(3) makes them */
	NUMBERS,  /* digits, and perhaps _ between them */
	TREE,     /* the folder and all files in it */
};

static const struct {
	const char *prefix;
	enum made_up made_up;
} names[] = {
	{"tmp", TEMPFILE},   {"pymp-", TEMPFILE},        {"psm_", HEX}, /* multiprocessing.shared_memory */
	{"torch_", NUMBERS}, {"torch-shm-dir-", RANDOM}, {"torchinductor_", TREE},
	{"#", NUMBERS}, /* O_TMPFILE */
};

static const char *const folders[] = {"/tmp/", "/var/tmp/", "/dev/shm/", "/run/shm/"};

static bool consists_of(const char *text, size_t len, const char *letters)
{
	return strspn(text, letters) >= len;
}

/* Returns how many bytes of a name's rest are generated; 0: none. */
static size_t made_up_bytes(enum made_up made_up, const char *rest, size_t len)
{
	static const char lower[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
	static const char any[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

	switch (made_up) {
	case TEMPFILE:
		return len >= 8 && consists_of(rest, 8, lower) && (len == 8 || rest[8] == '.') ? 8 : 0;
	case HEX:
		return len == 8 && consists_of(rest, 8, "0123456789abcdef") ? 8 : 0;
	case RANDOM:
		return len == 6 && consists_of(rest, 6, any) ? 6 : 0;
	case NUMBERS:
		return len && consists_of(rest, len, "0123456789_") ? len : 0;
	case TREE:
		return 0;
	}
	return 0;
}

/*
 * In a folder for temporary files, the generated words of a name are those with a digit, or with a
 * capital letter after the first letter.
 */
static char *put_kind_words(char *out, const char *name, size_t len)
{
	for (size_t i = 0, end; i < len; i = end) {
		bool made_up = false;

		for (end = i; end < len && isalnum((unsigned char)name[end]); end++)
			made_up |= isdigit((unsigned char)name[end]) || (end > i && isupper((unsigned char)name[end]));
		end += end == i;
		if (made_up)
			*out++ = '*';
		else
			out = mempcpy(out, name + i, end - i);
	}
	return out;
}

static bool is_in_temporary(const char *path, const char *name)
{
	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++)
		if (strlen(folders[i]) == (size_t)(name - path) && !strncmp(path, folders[i], name - path))
			return true;
	return false;
}

/* *end: the end of the part of the path that was used. */
static char *put_made_up_name(char *out, const char *path, const char *name, const char **end)
{
	size_t len = strcspn(name, "/");

	*end = name + len;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		size_t prefix = strlen(names[i].prefix), cut;

		if (len < prefix || strncmp(name, names[i].prefix, prefix))
			continue;
		if (names[i].made_up == TREE && **end) {
			*end += strlen(*end);
			return stpcpy(mempcpy(out, name, len), "/*");
		}
		cut = made_up_bytes(names[i].made_up, name + prefix, len - prefix);
		if (!cut)
			continue;
		out = stpcpy(mempcpy(out, name, prefix), "*");
		return mempcpy(out, name + prefix + cut, len - prefix - cut);
	}
	if (!**end && is_in_temporary(path, name))
		return put_kind_words(out, name, len);
	return mempcpy(out, name, len);
}

int file_kind__of(const char *path, char **kind)
{
	size_t len = strlen(path), tail = strlen(DELETED);
	bool deleted = len > tail && !strcmp(path + len - tail, DELETED);
	/*
	 * A star replaces at least one letter, except the star of a tree, which may follow the
	 * whole path.
	 */
	char *text = malloc(len + sizeof("*")), *out = text, *plain = strdup(path), *last;
	const char *at = plain;

	*kind = NULL;
	if (!text || !plain) {
		free(text);
		free(plain);
		return -ENOMEM;
	}
	if (deleted)
		plain[len - tail] = 0;
	while (*at) {
		if (*at == '/')
			*out++ = *at++;
		else
			out = put_made_up_name(out, plain, at, &at);
	}
	*out = 0;
	last = strrchr(text, '/');
	deleted = deleted && last && last[1];
	if (deleted)
		strcpy(last + 1, "*" DELETED);
	if (deleted || strcmp(text, plain) || !strncmp(path, "memfd:", strlen("memfd:")))
		*kind = text;
	else
		free(text);
	free(plain);
	return 0;
}
