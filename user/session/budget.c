// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
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
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>

#include "include/resource_records.h"
#include "stepflame.skel.h"
#include "user/session/programs.h"
#include "user/session/sources/ticks.h"
#include "user/session/state.h"

#define LOOK_NS       100000000ULL
#define WINDOW_MIN_NS 1500000000ULL
#define WINDOW_NS     2250000000.0   /* on average, at least */
#define STEPS_MIN     3              /* in a window, */
#define STEPS_MAX_NS  60000000000ULL /* unless they take longer than that */
#define GROUPS_MAX    256
#define CREDIT_MAX_NS 10000000000ULL /* what a group earns in longer than that, and has no use for, is lost */
/* Rests of who need not rest, to measure what a recording costs. */
#define CONTROL_NS     2000000000ULL
#define CONTROL_STEPS  4
#define CONTROL_MAX_NS 20000000000ULL
#define CONTROL_SHARE  0.02 /* of the time */

/* ---- what has been spent, and earned ---- */

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

static double earned_ns(const struct budget_account *account, double share, uint64_t now_ns)
{
	return share * (now_ns - account->earns_from_ns);
}

/* Opens a window. uniform: random, 0 to 1. */
static void budget_account__open(struct budget_account *account, double uniform, uint64_t now_ns)
{
	account->opened_ns = now_ns;
	account->before_ns = account->spent_ns;
	account->window_ns = (uint64_t)(WINDOW_MIN_NS * (1 + uniform));
	account->steps = 0;
}

/* Is the window to end now? share: of the time of a thread. */
static bool budget_account__is_spent(struct budget_account *account, double share, uint64_t now_ns)
{
	double debt_ns = account->spent_ns - earned_ns(account, share, now_ns);
	double credit_ns = account->next_ns + share * CREDIT_MAX_NS;
	uint64_t open_ns = now_ns - account->opened_ns;

	if (-debt_ns > credit_ns)
		account->earns_from_ns = now_ns - (account->spent_ns + credit_ns) / share;
	if (debt_ns <= 0 || open_ns < account->window_ns)
		return false;
	return !account->makes_steps || account->steps >= STEPS_MIN || open_ns >= STEPS_MAX_NS;
}

/* Ends the window. */
static void budget_account__rest(struct budget_account *account, double share, uint64_t now_ns)
{
	double rate = (account->spent_ns - account->before_ns) / (now_ns - account->opened_ns);

	account->next_ns = (rate > share ? rate : share) * WINDOW_NS;
	account->opened_ns = 0;
}

/* Has it earned what it has spent? */
static bool budget_account__is_paid(const struct budget_account *account, double share, uint64_t now_ns)
{
	return account->spent_ns <= earned_ns(account, share, now_ns);
}

/* And the next window, too: is the rest over? */
static bool budget_account__is_earned(const struct budget_account *account, double share, uint64_t now_ns)
{
	return account->spent_ns + account->next_ns <= earned_ns(account, share, now_ns);
}

/* ---- groups ---- */

struct budget_group {
	uint32_t number;
	bool paused; /* it rests until session__resume */
	struct budget_account account;
	uint64_t control_ns; /* when the next rest to measure is due; 0: not chosen yet */
	uint64_t until_ns;   /* this rest lasts at least until then */
	/* Of this look: */
	double paid_ns; /* by the process that paid most */
	uint64_t steps; /* by the process that made most */
	uint64_t usual_ns;
	bool measures, late;
};

static double uniform(struct session *s)
{
	return (double)rand_r(&s->budget.seed) / RAND_MAX;
}

static struct budget_group *find_group(const struct session *s, uint32_t number)
{
	struct budget_group *groups = s->budget.groups.items;

	for (size_t i = 0; i < s->budget.groups.cnt; i++)
		if (groups[i].number == number)
			return &groups[i];
	return NULL;
}

static struct budget_group *group_of(struct session *s, uint32_t number)
{
	struct budget_group *new = find_group(s, number);

	if (new)
		return new;
	new = array__add(&s->budget.groups, sizeof(*new));
	if (!new)
		return NULL;
	*new = (struct budget_group){.number = number, .account.earns_from_ns = session__now_ns()};
	budget_account__open(&new->account, uniform(s), session__now_ns());
	return new;
}

static void emit_rest(struct session *s, const struct target *t)
{
	const struct rec_rest rec = {
		.hdr = {.type = REC_REST, .size = sizeof(rec)},
		.pid = t->process.pid,
		.cnt = t->rest.cnt,
		.before_ns = t->rest.before_ns,
		.from_ns = t->rest.from_ns,
		.to_ns = t->rest.to_ns,
		.budget_micros = (uint32_t)(s->options.budget * 1e6 + 0.5),
	};

	session__emit(s, &rec.hdr);
}

static bool is_in(const struct target *t, const struct budget_group *group)
{
	return !t->gone && t->group == group->number;
}

static int command(struct session *s, const struct target *t, enum proc_command_what what, uint64_t now)
{
	const struct proc_command command = {.what = what, .pid = t->process.pid, .start_ns = now};

	return programs__command(s->skel, &command);
}

/* The rest before is over. */
static void count_rest(const struct budget_group *group, struct target *t, uint64_t now)
{
	t->rest.before_ns += t->rest.to_ns - t->rest.from_ns;
	t->rest.from_ns = now;
	t->rest.to_ns = 0;
	t->rest.rests = true;
	t->rest.paused = group->paused;
	t->rest.cnt++;
}

static void begin_rest(struct session *s, const struct budget_group *group, struct target *t, uint64_t now)
{
	command(s, t, COMMAND_REST, now);
	count_rest(group, t, now);
}

/* A window or a rest has begun. */
static void begin_part(struct session *s, struct target *t)
{
	uint64_t now = session__now_ns(), before = t->rest.window_from_ns ?: t->opened_ns;
	double accounted = 0;

	if (before && now > before)
		accounted = (t->rest.paid_ns - t->rest.paid_before_ns) / (now - before);
	t->rest.paid_before_ns = t->rest.paid_ns;
	t->rest.window_from_ns = now;
	ticks__begin(s, t, accounted, now);
}

static void rest(struct session *s, struct budget_group *group)
{
	uint64_t now = session__now_ns();

	budget_account__rest(&group->account, s->options.budget, now); /* from now on, children join it in its rest */
	for (size_t i = 0; i < s->target_cnt; i++)
		if (is_in(s->targets[i], group))
			begin_rest(s, group, s->targets[i], now);
	SOURCES_CALL(rest, s, group->number);
	session__read_ring(s); /* what came before comes first */
	for (size_t i = 0; i < s->target_cnt; i++)
		if (is_in(s->targets[i], group))
			emit_rest(s, s->targets[i]);
	targets__detach_group(s, group->number);
	for (size_t i = 0; i < s->target_cnt; i++)
		if (is_in(s->targets[i], group))
			begin_part(s, s->targets[i]);
}

static void end_rest(struct session *s, struct target *t)
{
	t->rest.rests = t->rest.paused = false;
	targets__reattach(s, t);
	t->rest.to_ns = session__now_ns();
	if (t->open)
		command(s, t, COMMAND_WAKE, t->rest.to_ns);
	else
		targets__open(s, t);
	emit_rest(s, t);
	begin_part(s, t);
}

static void wake(struct session *s, struct budget_group *group)
{
	session__read_ring(s); /* ticks of the rest */
	for (size_t i = 0; i < s->target_cnt; i++)
		if (is_in(s->targets[i], group) && s->targets[i]->rest.rests)
			end_rest(s, s->targets[i]);
	SOURCES_CALL(wake, s, group->number);
	budget_account__open(&group->account, uniform(s), session__now_ns());
	group->control_ns = 0;
}

/* ---- looks ---- */

/* What the process has paid since the last look counts for its group. */
static void look_at(struct session *s, struct target *t)
{
	struct budget_group *group = group_of(s, t->group);
	struct proc proc;
	double paid_ns, new_ns;

	if (!group || !target__proc(s, t, &proc))
		return;
	if (!t->rest.told && t->sent.pid) {
		t->rest.told = true;
		emit_rest(s, t);
	}
	paid_ns = target__paid_ns(s, t, &proc);
	new_ns = (paid_ns - t->rest.paid_ns) * (t->rest.rests ? 1 : ticks__factor(t));
	if (new_ns > group->paid_ns)
		group->paid_ns = new_ns;
	t->rest.paid_ns = paid_ns;
	if (proc.steps.cnt - t->rest.steps > group->steps && proc.steps.cnt > t->rest.steps)
		group->steps = proc.steps.cnt - t->rest.steps;
	t->rest.steps = proc.steps.cnt;
	group->account.makes_steps |= targets__has_steps(&proc);
	if (proc.steps.usual_ns > group->usual_ns)
		group->usual_ns = proc.steps.usual_ns;
	group->measures |= t->role == ROLE_MAIN && ticks__measures(t);
	group->late |= t->role == ROLE_MAIN && ticks__is_late(t, s->consumed_ns);
}

/* How long a rest lasts that is only to measure. */
static uint64_t control_ns(const struct budget_group *group)
{
	uint64_t ns = CONTROL_STEPS * group->usual_ns;

	return ns > CONTROL_NS ? ns : CONTROL_NS;
}

/* Is a rest to measure due? They come at random, so that they do not follow a rhythm of the job. */
static bool is_control_due(struct session *s, struct budget_group *group, uint64_t now)
{
	if (!group->measures || control_ns(group) > CONTROL_MAX_NS)
		return false;
	if (!group->control_ns)
		group->control_ns = now + control_ns(group) / CONTROL_SHARE * (0.5 + uniform(s));
	return now >= group->control_ns;
}

static void settle(struct session *s, struct budget_group *group, uint64_t now)
{
	group->account.spent_ns += group->paid_ns;
	group->account.steps += group->steps;
	if (!group->account.opened_ns) {
		if (group->late ? budget_account__is_paid(&group->account, s->options.budget, now)
				: now >= group->until_ns &&
					  budget_account__is_earned(&group->account, s->options.budget, now))
			wake(s, group);
	} else if (budget_account__is_spent(&group->account, s->options.budget, now)) {
		group->until_ns = 0;
		rest(s, group);
	} else if (is_control_due(s, group, now)) {
		group->until_ns = now + control_ns(group);
		rest(s, group);
	}
	group->paid_ns = group->steps = group->usual_ns = 0;
	group->measures = group->late = false;
}

/* Forgets the oldest groups without a process: jobs come and go for as long as stepflame watches. */
static void forget_groups(struct session *s)
{
	struct budget_group *groups = s->budget.groups.items;
	size_t cnt = 0, over = s->budget.groups.cnt;

	over = over > GROUPS_MAX ? over - GROUPS_MAX : 0;
	for (size_t i = 0; i < s->budget.groups.cnt; i++) {
		bool used = !over;

		for (size_t k = 0; k < s->target_cnt && !used; k++)
			used = is_in(s->targets[k], &groups[i]);
		over -= !used;
		if (used)
			groups[cnt++] = groups[i];
	}
	s->budget.groups.cnt = cnt;
}

void budget__tend(struct session *s)
{
	uint64_t now = session__now_ns();

	if (!s->options.budget || !s->opened || now < s->budget.look_ns)
		return;
	s->budget.look_ns = now + LOOK_NS;
	forget_groups(s);
	for (size_t i = 0; i < s->target_cnt; i++)
		if (!s->targets[i]->gone)
			look_at(s, s->targets[i]);
	for (size_t i = 0; i < s->budget.groups.cnt; i++) {
		struct budget_group *group = (struct budget_group *)s->budget.groups.items + i;

		if (!group->paused)
			settle(s, group, now);
	}
}

void budget__join(struct session *s, struct target *t)
{
	struct budget_group *group = s->options.budget ? group_of(s, t->group) : find_group(s, t->group);

	if (group && !group->account.opened_ns)
		begin_rest(s, group, t, session__now_ns());
}

/* A pause in a rest is a rest of its own: what is known of the process in the first may end with it. */
static void begin_rest_anew(struct session *s, const struct budget_group *group, struct target *t)
{
	uint64_t now = session__now_ns();

	t->rest.to_ns = now;
	emit_rest(s, t);
	count_rest(group, t, now);
	emit_rest(s, t);
}

int session__pause(struct session *s, uint32_t number)
{
	struct budget_group *group = group_of(s, number);

	if (!group)
		return -ENOMEM;
	if (group->paused)
		return 0;
	group->paused = true;
	if (group->account.opened_ns) {
		rest(s, group);
		return 0;
	}
	for (size_t i = 0; i < s->target_cnt; i++)
		if (is_in(s->targets[i], group))
			begin_rest_anew(s, group, s->targets[i]);
	targets__detach_group(s, number); /* the ticks */
	return 0;
}

/* With a budget, it goes on once the next window is earned. */
void session__resume(struct session *s, uint32_t number)
{
	struct budget_group *group = find_group(s, number);

	if (!group || !group->paused)
		return;
	group->paused = false;
	for (size_t i = 0; i < s->target_cnt; i++)
		if (is_in(s->targets[i], group) && !s->targets[i]->forked)
			s->targets[i]->pending = true; /* it may have loaded libraries */
	if (!s->options.budget)
		wake(s, group);
}

void budget__free(struct session *s)
{
	free(s->budget.groups.items);
}
