/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which words of --exact are written into which processes, in a file that outlives a guardian that
 * was killed. The file is in a folder that only its user can enter, and locked while the guardian
 * lives: an unlocked file is what a killed one left.
 */
#ifndef STEPFLAME_USER_SESSION_WORD_JOURNAL_H
#define STEPFLAME_USER_SESSION_WORD_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

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

/* Begins zeroed. */
struct word_journal {
	int folder, file; /* descriptors; 0: not open */
	int err;          /* why there is no file, or why it lacks a word: -errno */
	char name[32];
};

/* Notes the word with this index, before it is written; word NULL: it is no longer written. */
void word_journal__set(struct word_journal *journal, size_t index, const struct guarded_word *word);
/* Removes the file: all words are restored. */
void word_journal__remove(struct word_journal *journal);

/*
 * Calls fn for each word that killed guardians of this user left, for processes of this pid
 * namespace. A file is removed when fn has returned true for all its words; words for which fn
 * returned true are forgotten. Returns how many files are of other pid namespaces.
 */
size_t word_journal__each_left(bool (*fn)(const struct guarded_word *word, void *ctx), void *ctx);

#endif
