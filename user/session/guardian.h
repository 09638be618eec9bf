/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A separate process, stepflame-guard, that holds the links of the probes in the targets, and the
 * words of --exact. When stepflame ends, even if it is killed, the guardian
 * takes both out again.
 *
 * A probe must not be attached or detached by a process that may be killed meanwhile: with a fatal
 * signal pending the kernel cannot change the target's code, and leaves breakpoints in it for good
 * ("leaking uprobe"). So the guardian attaches and detaches. It ignores the terminal's signals and is
 * in a session of its own.
 */
#ifndef STEPFLAME_USER_SESSION_GUARDIAN_H
#define STEPFLAME_USER_SESSION_GUARDIAN_H

#include <stdbool.h>
#include <stdint.h>

#include "user/proc/process.h"
#include "user/session/attach.h"
#include "user/session/guardian_words.h"

struct guardian;

/*
 * Forks the guardian. attacher: how it attaches; copied. keep: files that the guardian needs, the
 * BPF programs and attacher->cookies_fd; it closes all others. 0 or -errno.
 */
int guardian__new(const struct attacher *attacher, const int *keep, size_t keep_cnt, struct guardian **out);

/*
 * Begins attachment__new in the guardian, for a program loaded before guardian__new. `list` and `id`
 * must stay where they are until guardian__await. 0 or -errno; -EPIPE: the guardian has died.
 */
int guardian__attach(struct guardian *g, struct bpf_program *program, pid_t pid, struct probe_list *list, uint32_t *id);
/*
 * Waits until all lists are attached, and sets their ids: 0 for an empty list, and for one with an
 * error. May set list->number. 0, or the first error of attachment__new since the last call.
 */
int guardian__await(struct guardian *g);
/* attachment__clean in the guardian. */
int guardian__clean(struct guardian *g, struct bpf_program *program, struct probe_list *list);

/* false: the guardian has died, and with it all probes are gone. */
bool guardian__alive(const struct guardian *g);

/* Attachments to detach together, as attachments__free does. Begins zeroed. */
struct detachment {
	uint32_t *ids;
	size_t cnt;
};

/*
 * Adds attachments (0 accepted) and zeroes the caller's ids. Without memory, what does not fit stays
 * attached until guardian__free.
 */
void detachment__add(struct detachment *d, uint32_t *ids, size_t cnt);
/* Detaches all and waits until that is done. Frees what *d owns and zeroes it. */
void guardian__detach(struct guardian *g, struct detachment *d);

/*
 * Writes `value` to the word at `address` of a process, if the word is still where `origin` leads.
 * 0; -EBUSY: the word has another value and stays unchanged; -EALREADY: the word has this value (a
 * fork's child), and the guardian will restore it like the others; -ESRCH: the process has ended,
 * or runs another program; -EFAULT: no writable private memory; -ETIMEDOUT: it does not answer; or
 * -errno. Repeating a write that succeeded returns -EALREADY and changes nothing.
 */
int guardian__write(struct guardian *g, const struct process *process, const struct word_origin *origin,
		    uint64_t address, uint64_t value);

/*
 * Why the guardian could not note a word in its journal (word_journal.h), -errno; 0: it could. The
 * word is written all the same.
 */
int guardian__journal_error(const struct guardian *g);

/* Restores the words of one process, and forgets them if it has ended. */
void guardian__restore(struct guardian *g, const struct process *process);
/*
 * Restores all words, also in the targets' forked descendants. 0; -EPIPE: the guardian has died; or
 * -errno of a word that may still be set: the journal has it.
 */
int guardian__restore_all(struct guardian *g);

/* Restores all words, detaches all, and waits for the guardian's end. Accepts NULL. */
void guardian__free(struct guardian *g);

#endif
