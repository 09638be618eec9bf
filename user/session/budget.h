/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The budget of --budget: what processes may pay, in time of a thread. A group of processes that has
 * spent more rests: its probes are detached and it has no samples, until it has earned what it has
 * spent and what another window will take. All processes of a group rest at the same times, so that
 * ranks can be compared.
 *
 *   window (1.5 to 3 s and three steps, until all is spent) -> rest (earns another one) -> window
 *
 * The length of a window is random, so that windows do not follow a rhythm of the job.
 */
#ifndef STEPFLAME_USER_SESSION_BUDGET_H
#define STEPFLAME_USER_SESSION_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

/* What one group of processes has spent. */
struct budget_account {
	uint64_t earns_from_ns; /* since then it has earned its share of the time */
	double spent_ns;        /* since then, */
	double before_ns;       /* and of that before this window */
	double next_ns;         /* what the next window is expected to take, and has to be earned before it */
	uint64_t opened_ns;     /* when this window opened; 0: it rests */
	uint64_t window_ns;     /* how long it is to last at least */
	uint64_t steps;         /* that have ended in this window */
	bool makes_steps;
};

/* Opens a window. uniform: random, 0 to 1. */
void budget_account__open(struct budget_account *account, double uniform, uint64_t now_ns);
/* Is the window to end now? share: of the time of a thread. */
bool budget_account__is_spent(struct budget_account *account, double share, uint64_t now_ns);
/* Ends the window. */
void budget_account__rest(struct budget_account *account, double share, uint64_t now_ns);
/* Has it earned what it has spent? */
bool budget_account__is_paid(const struct budget_account *account, double share, uint64_t now_ns);
/* And the next window, too: is the rest over? */
bool budget_account__is_earned(const struct budget_account *account, double share, uint64_t now_ns);

#endif
