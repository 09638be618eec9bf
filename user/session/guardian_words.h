/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The guardian's words: what --exact writes into the targets. A word changes only from NULL, and is
 * restored only if it still has the value that the guardian wrote.
 */
#ifndef STEPFLAME_USER_SESSION_GUARDIAN_WORDS_H
#define STEPFLAME_USER_SESSION_GUARDIAN_WORDS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define WORDS_MAX 4096

/* A word of a process, and the value that stepflame wants in it. */
struct guarded_word {
	pid_t pid;
	uint64_t start_time, address, value;
};

/* Begins zeroed. */
struct guarded_words {
	struct saved_word {
		struct guarded_word at;
		/*
		 * An open /proc/PID/mem: after an exec it still refers to the old memory, so that a
		 * restore cannot change the new program.
		 */
		int memory;
	} word[WORDS_MAX];
	size_t cnt;
};

/* As guardian__write. */
int guarded_words__write(struct guarded_words *words, const struct guarded_word *word);
/* Restores the words of one process. */
void guarded_words__restore(struct guarded_words *words, pid_t pid);
/* Restores all words, also in the targets' forked descendants. */
void guarded_words__restore_all(struct guarded_words *words);

#endif
