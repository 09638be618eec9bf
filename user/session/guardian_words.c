// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/guardian_words.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "user/proc/deputy.h"
#include "user/proc/proc.h"
#include "user/proc/process.h"

/* ---- the journal ---- */

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

static void note_word(struct word_journal *journal, size_t index, const struct guarded_word *word)
{
	static const struct guarded_word none;

	if (!journal->file && !journal->err)
		journal->err = open_journal(journal);
	if (journal->file && pwrite(journal->file, word ?: &none, sizeof(none), place_of(index)) != sizeof(none))
		journal->err = -EIO;
}

/* keep: the file stays for `stepflame restore`. */
static void end_journal(struct word_journal *journal, bool keep)
{
	if (!journal->file)
		return;
	if (!keep)
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

/* ---- words of processes ---- */

#define INTERPRETERS_MAX    64    /* more than --exact looks for: others may begin meanwhile */
#define RESTORE_PATIENCE_MS 20000 /* a slow disk must not leave a word behind */

struct word_check {
	const struct guarded_word *word;
	bool writable, has_interpreter;
};

/*
 * Only private writable memory: a write through /proc/PID/mem would get around the protection of
 * any other memory.
 */
static int check_mapping(const struct mapping *map, void *ctx)
{
	struct word_check *check = ctx;
	const struct word_origin *origin = &check->word->origin;
	uint64_t address = check->word->address;

	if (address >= map->start && address < map->end && map->end - address >= 8)
		check->writable = map->writable && !map->shared;
	if (map->dev == origin->dev && map->inode == origin->inode && map->start - map->offset == origin->base)
		check->has_interpreter = true;
	return 0;
}

/* Is the word that of an interpreter in this memory? */
static bool is_of_interpreter(int memory, const struct guarded_word *m)
{
	uint64_t at = m->origin.head, interpreter;

	for (int i = 0; i <= INTERPRETERS_MAX; i++) {
		if (pread(memory, &interpreter, sizeof(interpreter), (off_t)at) != sizeof(interpreter) || !interpreter)
			return false;
		if (interpreter + m->origin.word == m->address)
			return true;
		at = interpreter + m->origin.next;
	}
	return false;
}

/*
 * Changes a word in one aligned store, since the target may read it at any time. -EBUSY: the value
 * is not `from`; -EALREADY: it already is `to`. If both are the same, it changes nothing.
 */
static int change_word(int memory, uint64_t address, uint64_t from, uint64_t to)
{
	uint64_t now;

	if (pread(memory, &now, sizeof(now), (off_t)address) != sizeof(now))
		return -EFAULT;
	if (now == to && from != to)
		return -EALREADY;
	if (now != from)
		return -EBUSY;
	return from == to || pwrite(memory, &to, sizeof(to), (off_t)address) == sizeof(to) ? 0 : -EFAULT;
}

/*
 * Opens the memory that holds the word. All that follows goes through this descriptor, which stays
 * with the memory that it was opened for: after an exec, a write to it changes nothing that lives.
 * It was opened before the mappings are read, so if these are the interpreter's, it is of that
 * program, or of an earlier one that has gone. -ESRCH: the process is another, or another program.
 */
static int open_memory(const struct guarded_word *m)
{
	const struct process process = {.pid = m->pid, .start_time = m->start_time};
	struct word_check check = {.word = m};
	char path[32];
	int fd, err;

	snprintf(path, sizeof(path), "/proc/%d/mem", m->pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	err = process__alive(&process) ? process__each_mapping(m->pid, check_mapping, &check) : -ESRCH;
	if (!err && !check.has_interpreter)
		err = -ESRCH;
	if (!err && (m->address % 8 || !check.writable))
		err = -EFAULT;
	if (!err && !is_of_interpreter(fd, m))
		err = -ESRCH;
	if (!err)
		return fd;
	close(fd);
	return err;
}

struct word_change {
	struct guarded_word word;
	uint64_t from, to;
};

/* By the deputy, since a page of the target may never come. */
static int change_in_deputy(const void *in, struct deputy_out *out)
{
	const struct word_change *change = in;
	int memory = open_memory(&change->word), err;

	(void)out;
	if (memory < 0)
		return memory;
	err = change_word(memory, change->word.address, change->from, change->to);
	close(memory);
	return err;
}

static int change(const struct guarded_word *m, uint64_t from, uint64_t to)
{
	const struct word_change request = {*m, from, to};

	return deputy__run(m->pid, change_in_deputy, &request, sizeof(request), NULL);
}

static bool is_same_process(const struct guarded_word *m, pid_t pid, uint64_t start_time)
{
	return m->pid == pid && m->start_time == start_time;
}

static bool is_known(const struct guarded_words *words, const struct guarded_word *m)
{
	for (size_t i = 0; i < words->cnt; i++)
		if (is_same_process(&words->word[i], m->pid, m->start_time) && words->word[i].address == m->address)
			return true;
	return false;
}

int guarded_words__write(struct guarded_words *words, const struct guarded_word *m)
{
	int err;

	if (words->cnt == WORDS_MAX)
		return -ENOSPC;
	note_word(&words->journal, words->cnt, m);
	err = change(m, 0, m->value);
	/* A write that timed out may be done. */
	if ((err && err != -EALREADY && err != -ETIMEDOUT) || (err && is_known(words, m)))
		note_word(&words->journal, words->cnt, NULL);
	else
		words->word[words->cnt++] = *m;
	return err;
}

/* -errno: the word may still be set, and stays noted, as where the process does not answer. */
static int restore_word(struct guarded_words *words, size_t i)
{
	struct guarded_word *word = &words->word[i];
	int err;

	deputy__set_patience(RESTORE_PATIENCE_MS);
	err = change(word, word->value, 0);
	deputy__set_patience(0);
	if (err && err != -EALREADY && err != -EBUSY && err != -ESRCH && err != -EFAULT)
		return err;
	*word = words->word[--words->cnt];
	if (i < words->cnt)
		note_word(&words->journal, i, word);
	note_word(&words->journal, words->cnt, NULL);
	return 0;
}

/* Goes backwards. Is a word behind this one, which could not be restored, of the same process? It need not wait again. */
static bool has_failed(const struct guarded_words *words, size_t i)
{
	for (size_t k = i + 1; k < words->cnt; k++)
		if (is_same_process(&words->word[k], words->word[i].pid, words->word[i].start_time))
			return true;
	return false;
}

void guarded_words__restore(struct guarded_words *words, pid_t pid, uint64_t start_time)
{
	int err = 0;

	for (size_t i = words->cnt; i-- && !err;)
		if (is_same_process(&words->word[i], pid, start_time))
			err = restore_word(words, i);
}

/* ---- forks ---- */

/*
 * How long a fork that had copied the old word may take until it is in /proc: it copies under the
 * lock that a restore waits for.
 */
#define FORK_APPEARS_US 2000
#define LOOKS_MAX       100 /* a hostile process could set the word again and again */

/* Restores the word in all descendants of its process. Returns whether it was set in one. */
static int restore_descendants(const void *in, struct deputy_out *out)
{
	struct guarded_word fork = *(const struct guarded_word *)in;
	pid_t *children = NULL;
	int child_cnt = process__children(fork.pid, true, &children), was_set = 0;

	(void)out;
	for (int i = 0; i < child_cnt; i++) {
		struct proc_stat stat;
		int memory;

		if (proc__stat(children[i], 0, &stat))
			continue;
		fork.pid = children[i];
		fork.start_time = stat.start_time;
		memory = open_memory(&fork);
		if (memory < 0)
			continue;
		was_set |= !change_word(memory, fork.address, fork.value, 0);
		close(memory);
	}
	free(children);
	return was_set;
}

/*
 * A fork has the same memory, and stepflame may have seen it too late, or not yet. Looks until no
 * word is set in any: a fork may fork while the others are restored. The words are restored in the
 * processes themselves.
 */
static void restore_forks(const struct guarded_word *words, size_t cnt)
{
	bool was_set = cnt;

	for (int look = 0; was_set && look < LOOKS_MAX; look++) {
		was_set = false;
		usleep(FORK_APPEARS_US);
		for (size_t i = 0; i < cnt; i++)
			if (deputy__run(words[i].pid, restore_descendants, &words[i], sizeof(words[i]), NULL) > 0)
				was_set = true;
	}
}

int guarded_words__restore_all(struct guarded_words *words)
{
	static struct guarded_word restored[WORDS_MAX];
	size_t cnt = words->cnt;
	int err = 0;

	for (size_t i = 0; i < cnt; i++)
		restored[i] = words->word[i];
	for (size_t i = cnt; i--;) {
		int word_err = has_failed(words, i) ? 0 : restore_word(words, i);

		err = err ?: word_err;
	}
	restore_forks(restored, cnt);
	end_journal(&words->journal, err);
	words->cnt = 0;
	return err;
}

/* ---- what another guardian left ---- */

enum left_word guarded_word__look(const struct guarded_word *word, bool restore)
{
	enum left_word found = LEFT_UNREADABLE;
	int err = change(word, word->value, restore ? 0 : word->value);

	if (!err)
		found = LEFT_SET;
	else if (err == -ESRCH || err == -EFAULT) /* -EFAULT: another program, or memory that is no longer there */
		found = LEFT_ENDED;
	else if (err == -EBUSY || err == -EALREADY)
		found = change(word, 0, 0) ? LEFT_CHANGED : LEFT_NULL;
	if (restore && found != LEFT_UNREADABLE)
		restore_forks(word, 1);
	return found;
}
