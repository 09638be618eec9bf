/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Samples of a session: the timers, and what the kernel's records of stacks lack. */
#ifndef STEPFLAME_USER_SESSION_SAMPLER_H
#define STEPFLAME_USER_SESSION_SAMPLER_H

#include "user/session/state.h"

/* When windows have opened, and before they close: threads that wait do so from then, or until then. 0 or -errno. */
int sampler__open(struct session *s);
int sampler__close(struct session *s);
/* Waits that go on become samples, as far as they have come. 0 or -errno. */
int sampler__cut(struct session *s);

/* Starts the timers, one per CPU, unless sampling is off. 0 or -errno, after a message. */
int sampler__start(struct session *s);
/* Gives each another period now and then. Called at each poll. */
void sampler__tend(struct session *s);
/* Stops them. */
void sampler__stop(struct session *s);
/* Lets the kernel forget which stacks and paths it has told of. */
void sampler__resend_stacks(struct session *s);
void sampler__free(struct session *s); /* accepts a session without */

/* The process ended, or called exec. */
void sampler__forget(struct session *s, pid_t pid);

/* Has the sink the lines of that function? Set when it is sent them. *again: it knows it. NULL: no memory. */
bool *sampler__lined(struct session *s, uint64_t code, bool *again);

/* Completes a record of the kernel's and hands it to the sink. 0 or -errno of the sink. */
int sampler__code(struct session *s, const struct rec_code *rec);
int sampler__sample(struct session *s, const struct rec_sample *rec);

#endif
