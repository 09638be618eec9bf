/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The guardian's words: what --exact writes into the targets. A word changes only from NULL, and is
 * restored only if it still has the value that the guardian wrote.
 */
#ifndef STEPFLAME_USER_SESSION_GUARDIAN_WORDS_H
#define STEPFLAME_USER_SESSION_GUARDIAN_WORDS_H

#include <stdbool.h>
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
	pid_t pid; /* 0: none */
	uint32_t unused;
	uint64_t start_time, address, value;
	struct word_origin origin;
};

/*
 * Which words are written, in a file that outlives a guardian that was killed. The file is in a folder
 * that only its user can enter, and locked while the guardian lives: an unlocked file is what a killed
 * one left. Begins zeroed.
 */
struct word_journal {
	int folder, file; /* descriptors; 0: not open */
	int err;          /* why there is no file, or why it lacks a word: -errno */
	char name[32];
};

/* Begins zeroed. */
struct guarded_words {
	struct guarded_word word[WORDS_MAX];
	size_t cnt;
	struct word_journal journal;
};

/* As guardian__write. */
int guarded_words__write(struct guarded_words *words, const struct guarded_word *word);
/* Restores the words of one process, and forgets them: it may have ended. If it does not answer, they stay noted. */
void guarded_words__restore(struct guarded_words *words, pid_t pid, uint64_t start_time);
/*
 * Restores all words, also in the targets' forked descendants, and forgets them. 0, or -errno of one
 * that may still be set: the journal has it, as if this guardian had been killed.
 */
int guarded_words__restore_all(struct guarded_words *words);

/* ---- what killed guardians left ---- */

/*
 * Calls fn for each word that killed guardians of this user left, for processes of this pid
 * namespace. A file is removed when fn has returned true for all its words; words for which fn
 * returned true are forgotten. Returns how many files are of other pid namespaces.
 */
size_t word_journal__each_left(bool (*fn)(const struct guarded_word *word, void *ctx), void *ctx);

/* What such a word is now: NULL, the guardian's value, or another one. */
enum left_word { LEFT_NULL, LEFT_SET, LEFT_CHANGED, LEFT_ENDED, LEFT_UNREADABLE };

/* Looks at the word, and with `restore` restores it if it is set, also in the process's descendants. */
enum left_word guarded_word__look(const struct guarded_word *word, bool restore);

#endif
