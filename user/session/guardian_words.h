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

/*
 * How a word's address was found, so that it can be found again: in a process that has called exec
 * since, something else may be there.
 */
struct word_origin {
	uint64_t dev, inode, base; /* of the interpreter's file: struct mapped_file */
	uint64_t head;             /* address of the pointer to the first interpreter */
	uint64_t next, word;       /* offsets in each interpreter: of the pointer to the next, of the word */
};

/* A word of a process, and the value that stepflame wants in it. */
struct guarded_word {
	pid_t pid;
	uint64_t start_time, address, value;
	struct word_origin origin;
};

/* Begins zeroed. */
struct guarded_words {
	struct guarded_word word[WORDS_MAX];
	size_t cnt;
};

/* As guardian__write. */
int guarded_words__write(struct guarded_words *words, const struct guarded_word *word);
/* Restores the words of one process. */
void guarded_words__restore(struct guarded_words *words, pid_t pid);
/* Restores all words, also in the targets' forked descendants. */
void guarded_words__restore_all(struct guarded_words *words);

#endif
