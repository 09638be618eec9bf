// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/word_journal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC  "sf-word"
#define PREFIX "words."

/* A pid means a process only in its namespace and until the next boot. */
struct journal_header {
	char magic[8], boot[40];
	uint64_t pids; /* inode of the pid namespace */
};

/* Folders of stepflame's files that end with the boot, best first. The last one has no path. */
enum { FOLDERS = 3 };

static bool name_folder(int i, char path[PATH_MAX])
{
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");

	switch (i) {
	case 0:
		snprintf(path, PATH_MAX, "/run/stepflame");
		return !geteuid();
	case 1:
		snprintf(path, PATH_MAX, "%s/stepflame", runtime ?: "");
		return geteuid() && runtime && *runtime == '/';
	}
	snprintf(path, PATH_MAX, "/dev/shm/stepflame-%u", geteuid());
	return true;
}

/* Opens a folder of which nobody else can change or read the files. A descriptor or -errno. */
static int open_folder(int i, bool make)
{
	char path[PATH_MAX];
	struct stat st;
	int fd, err;

	if (!name_folder(i, path))
		return -ENOENT;
	if (make && mkdir(path, 0700) && errno != EEXIST)
		return -errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = fstat(fd, &st) ? -errno : st.st_uid != geteuid() || st.st_mode & 077 ? -EACCES : 0;
	if (!err)
		return fd;
	close(fd);
	return err;
}

static int describe_pids(struct journal_header *header)
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, header->boot, sizeof(header->boot) - 1);
	struct stat pids;

	if (fd >= 0)
		close(fd);
	if (got <= 0 || stat("/proc/self/ns/pid", &pids))
		return -EIO;
	memcpy(header->magic, MAGIC, sizeof(header->magic));
	header->pids = pids.st_ino;
	return 0;
}

/* Creates the file in a folder and locks it. 0 or -errno. */
static int create_file(struct word_journal *journal, int folder, const struct journal_header *header)
{
	uint64_t number;
	int file;

	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		return -EIO;
	snprintf(journal->name, sizeof(journal->name), PREFIX "%016" PRIx64, number);
	file = openat(folder, journal->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (file < 0)
		return -errno;
	if (flock(file, LOCK_EX | LOCK_NB) || pwrite(file, header, sizeof(*header), 0) != sizeof(*header)) {
		unlinkat(folder, journal->name, 0);
		close(file);
		return -EIO;
	}
	journal->folder = folder;
	journal->file = file;
	return 0;
}

static int open_journal(struct word_journal *journal)
{
	struct journal_header header = {};
	int err = describe_pids(&header), folder_err = 0;

	for (int i = 0; i < FOLDERS && !err && !journal->file; i++) {
		int folder = open_folder(i, true);

		folder_err = folder < 0 ? folder : create_file(journal, folder, &header);
		if (folder >= 0 && folder_err)
			close(folder);
	}
	return err ?: journal->file ? 0 : folder_err;
}

static off_t place_of(size_t index)
{
	return sizeof(struct journal_header) + index * sizeof(struct guarded_word);
}

void word_journal__set(struct word_journal *journal, size_t index, const struct guarded_word *word)
{
	static const struct guarded_word none;

	if (!journal->file && !journal->err)
		journal->err = open_journal(journal);
	if (journal->file && pwrite(journal->file, word ?: &none, sizeof(none), place_of(index)) != sizeof(none))
		journal->err = -EIO;
}

void word_journal__remove(struct word_journal *journal)
{
	if (!journal->file)
		return;
	unlinkat(journal->folder, journal->name, 0);
	close(journal->file);
	close(journal->folder);
	*journal = (struct word_journal){};
}

/* ---- what others left ---- */

/* Calls fn for the words of a file. Returns whether all are done with. */
static bool read_words(int file, bool (*fn)(const struct guarded_word *word, void *ctx), void *ctx)
{
	static const struct guarded_word none;
	struct guarded_word word;
	bool all = true;

	for (size_t i = 0; pread(file, &word, sizeof(word), place_of(i)) == sizeof(word); i++) {
		if (!word.pid)
			continue;
		if (!fn(&word, ctx) || pwrite(file, &none, sizeof(none), place_of(i)) != sizeof(none))
			all = false;
	}
	return all;
}

/* Returns whether the file is of another pid namespace. */
static bool read_left(int folder, const char *name, const struct journal_header *ours,
		      bool (*fn)(const struct guarded_word *word, void *ctx), void *ctx)
{
	int file = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct journal_header header;
	bool foreign = false;

	if (file < 0)
		return false;
	if (!flock(file, LOCK_EX | LOCK_NB) && pread(file, &header, sizeof(header), 0) == sizeof(header) &&
	    !memcmp(header.magic, ours->magic, sizeof(header.magic))) {
		bool ended = memcmp(header.boot, ours->boot, sizeof(header.boot)) != 0;

		foreign = !ended && header.pids != ours->pids;
		if (ended || (!foreign && read_words(file, fn, ctx)))
			unlinkat(folder, name, 0);
	}
	close(file);
	return foreign;
}

size_t word_journal__each_left(bool (*fn)(const struct guarded_word *word, void *ctx), void *ctx)
{
	struct journal_header ours = {};
	size_t foreign = 0;

	if (describe_pids(&ours))
		return 0;
	for (int i = 0; i < FOLDERS; i++) {
		int folder = open_folder(i, false);
		DIR *files = folder < 0 ? NULL : fdopendir(folder);

		for (struct dirent *entry; files && (entry = readdir(files));)
			if (!strncmp(entry->d_name, PREFIX, strlen(PREFIX)))
				foreign += read_left(folder, entry->d_name, &ours, fn, ctx);
		if (files)
			closedir(files);
		else if (folder >= 0)
			close(folder);
	}
	return foreign;
}
