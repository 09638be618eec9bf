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

#include "user/session/word_journal.h"

#define WORDS_MAX 4096

/* Begins zeroed. */
struct guarded_words {
	struct guarded_word word[WORDS_MAX];
	size_t cnt;
	struct word_journal journal;
};

/* As guardian__write. */
int guarded_words__write(struct guarded_words *words, const struct guarded_word *word);
/* Restores the words of one process, and forgets them: it may have ended. */
void guarded_words__restore(struct guarded_words *words, pid_t pid, uint64_t start_time);
/* Restores all words, also in the targets' forked descendants. */
void guarded_words__restore_all(struct guarded_words *words);

/* What a word that another guardian left is now: NULL, the guardian's value, or another one. */
enum left_word { LEFT_NULL, LEFT_SET, LEFT_CHANGED, LEFT_ENDED, LEFT_UNREADABLE };

/* Looks at the word, and with `restore` restores it if it is set, also in the process's descendants. */
enum left_word guarded_word__look(const struct guarded_word *word, bool restore);

#endif
