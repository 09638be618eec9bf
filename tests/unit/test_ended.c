/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a session knows of processes that have ended: what they paid, their rows, and children that nobody has looked at. */
#include <bpf/bpf.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "include/row.h"
#include "stepflame.skel.h"
#include "user/session/programs.h"
#include "user/session/state.h"

/* What BPF knows of processes. */
#define PROCS 4
static struct known_proc {
	uint32_t pid; /* 0: a free place */
	struct proc proc;
} known[PROCS];

static struct known_proc *find_known(uint32_t pid)
{
	for (size_t i = 0; i < PROCS; i++)
		if (known[i].pid == pid)
			return &known[i];
	return NULL;
}

static int command_done(struct stepflame_bpf *skel, const struct proc_command *command)
{
	struct known_proc *p = find_known(command->pid);

	(void)skel;
	if (command->what == COMMAND_FORGET && p && p->proc.ended)
		p->pid = 0;
	return 0;
}

static int proc_found(int fd, const void *key, void *val)
{
	struct known_proc *p = find_known(*(const uint32_t *)key);

	(void)fd;
	if (p)
		memcpy(val, &p->proc, sizeof(p->proc));
	return p ? 0 : -1;
}

/* Only new ones. */
static int proc_added(int fd, const void *key, const void *val, __u64 flags)
{
	const uint32_t pid = *(const uint32_t *)key;
	struct known_proc *p = find_known(0);

	(void)fd;
	(void)flags;
	errno = find_known(pid) ? EEXIST : E2BIG;
	if (!p || find_known(pid))
		return -1;
	p->pid = pid;
	memcpy(&p->proc, val, sizeof(p->proc));
	return 0;
}

static int next_pid(int fd, const void *before, void *next)
{
	const struct known_proc *p = before ? find_known(*(const uint32_t *)before) + 1 : known;

	(void)fd;
	while (p < known + PROCS && !p->pid)
		p++;
	if (p == known + PROCS)
		return -1;
	*(uint32_t *)next = p->pid;
	return 0;
}

/* A map of rows, in memory. */
#define ROWS_MAX 8
static struct {
	size_t cnt;
	struct agg_key keys[ROWS_MAX];
	struct agg_val vals[ROWS_MAX];
} rows;

/* All at once, and at the next call that there are no more. */
static int row_batch(int fd, void *from, void *to, void *keys, void *vals, uint32_t *cnt,
		     const struct bpf_map_batch_opts *options)
{
	(void)fd;
	(void)to;
	(void)options;
	*cnt = from ? 0 : rows.cnt;
	memcpy(keys, rows.keys, *cnt * sizeof(rows.keys[0]));
	memcpy(vals, rows.vals, *cnt * sizeof(rows.vals[0]));
	errno = ENOENT;
	return from ? -1 : 0;
}

static int row_look(int fd, const void *key, void *val)
{
	(void)fd;
	for (size_t i = 0; i < rows.cnt; i++)
		if (!memcmp(&rows.keys[i], key, sizeof(rows.keys[i]))) {
			memcpy(val, &rows.vals[i], sizeof(rows.vals[i]));
			return (int)i;
		}
	return -1;
}

static int row_take(int fd, const void *key, void *val)
{
	int at = row_look(fd, key, val);

	if (at < 0)
		return -1;
	for (size_t i = at; i + 1 < rows.cnt; i++) {
		rows.keys[i] = rows.keys[i + 1];
		rows.vals[i] = rows.vals[i + 1];
	}
	rows.cnt--;
	return 0;
}

static int row_found(int fd, const void *key, void *val)
{
	return row_look(fd, key, val) < 0 ? -1 : 0;
}

#define bpf_map_lookup_batch           row_batch
#define bpf_map_lookup_elem            row_found
#define bpf_map_lookup_and_delete_elem row_take
#define bpf_map__fd(map)               1
#include "user/session/snapshot.c"
#undef bpf_map__fd
#undef bpf_map_lookup_elem

/* What reading a process gives. */
static int read_err;

static int read_or_not(pid_t pid, struct process *out)
{
	*out = (struct process){.pid = pid};
	return read_err;
}

static void ring_is_empty(struct session *s)
{
	(void)s;
}

#define bpf_map_get_next_key      next_pid
#define bpf_map_lookup_elem       proc_found
#define bpf_map_update_elem       proc_added
#define bpf_map__max_entries(map) PROCS
#define programs__command         command_done
#define process__read             read_or_not
#define session__read_ring        ring_is_empty
#include "user/session/targets.c"

/* ---- a session ---- */

static struct session *session;
static struct stepflame_bpf skel;
static struct stepflame_bpf__bss bss;
static struct rec_target told;                    /* the last */
static uint64_t told_calls, told_ended, told_cnt; /* of the rows */
static size_t notes;
static struct rec_proc exited; /* the last */

static int tell(const struct rec_hdr *record, void *ctx)
{
	(void)ctx;
	if (record->type == REC_TARGET)
		memcpy(&told, record, sizeof(told));
	notes += record->type == REC_NOTE;
	if (record->type == REC_PROC)
		memcpy(&exited, record, sizeof(exited));
	if (record->type == REC_AGG) {
		told_calls += ((const struct rec_agg *)record)->val.calls;
		told_ended += record->flags == REC_ENDED;
		told_cnt++;
	}
	return 0;
}

static int begin(void **state)
{
	(void)state;
	session = calloc(1, sizeof(*session));
	bss = (struct stepflame_bpf__bss){0};
	skel.bss = &bss;
	session->skel = &skel;
	session->sink = tell;
	session->selftest.hit_ns = 10;
	for (int id = 0; id < SOURCE__COUNT; id++)
		session->state[id] = sources[id]->session_bytes ? calloc(1, sources[id]->session_bytes) : NULL;
	told = (struct rec_target){0};
	told_calls = told_ended = told_cnt = rows.cnt = notes = 0;
	memset(known, 0, sizeof(known));
	exited = (struct rec_proc){0};
	read_err = -ESRCH;
	return 0;
}

static int finish(void **state)
{
	(void)state;
	for (int id = 0; id < SOURCE__COUNT; id++)
		free(session->state[id]);
	for (size_t i = 0; i < session->target_cnt; i++)
		target__free(session->targets[i]);
	map__free(&session->ended_pids);
	free(session->targets);
	free(session->note_kinds.items);
	free(session);
	return 0;
}

static struct target *add_target(uint32_t pid, enum target_role role)
{
	struct target *t = calloc(1, sizeof(*t));

	t->process.pid = pid;
	t->role = role;
	for (int id = 0; id < SOURCE__COUNT; id++)
		t->state[id] = sources[id]->target_bytes ? calloc(1, sources[id]->target_bytes) : NULL;
	session->targets = reallocarray(session->targets, session->target_cnt + 1, sizeof(*session->targets));
	session->targets[session->target_cnt++] = t;
	return t;
}

/* ---- what it costs ---- */

/* The process that pays most is the busiest, whichever comes first: by hits, or by samples. */
static void test_busiest(void **state)
{
	static const struct proc_cost costs[] = {
		{.hits = 100, .sampler_ns = 5}, {.hits = 30}, {.hits = 70, .sampler_ns = 2000}, {.hits = 1}};
	const struct target *t = add_target(1, ROLE_MAIN);

	(void)state;
	for (int turn = 0; turn < 2; turn++) {
		struct hit_sums sums = {0};
		struct rec_cost cost = {0};

		for (int i = 0; i < 4; i++) {
			struct proc proc = {.cost = costs[turn ? 3 - i : i]};

			hit_sums__add(session, &sums, t, &proc);
		}
		sum_cost(session, &sums, &cost);
		assert_int_equal(cost.hits, 201);
		assert_int_equal(cost.busiest_hits, 70);
		assert_int_equal(cost.busiest_sampler_ns, 2000);
		assert_int_equal(cost.hit_ns, 10);
	}
}

/* A hit costs the trap, what it leaves behind where other code has run since the one before, and the program. */
static void test_price(void **state)
{
	const struct target *t = add_target(1, ROLE_MAIN);
	struct proc proc = {.cost = {.hits = 120,
				     .ticks = 20,
				     .sampled = 2,
				     .sampled_ns = 2 * 7,
				     .sampled_away_ns = HIT_AWAY_NS / 2 + HIT_AWAY_NS}};
	struct hit_sums sums = {0};
	struct rec_cost cost = {0};

	(void)state;
	session->selftest.after_ns = 40;
	hit_sums__add(session, &sums, t, &proc);
	sum_cost(session, &sums, &cost);
	assert_int_equal(cost.hits, 120);
	assert_int_equal(cost.busiest_hits, 100);
	assert_int_equal(cost.hit_ns, 10 + 30 + 7);
	assert_int_equal(cost.busiest_sampler_ns, 20 * (10 + 40));
	assert_int_equal(target__paid_ns(session, t, &proc), 100 * 47 + 20 * 50);
}

/* A job may have any number of children, one after another: they are freed, and what they paid stays. */
static void test_children_paid(void **state)
{
	struct target *main = add_target(1, ROLE_MAIN);

	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		struct target *child = add_target(2 + i, ROLE_WORKER);

		child->gone = true;
		child->last = calloc(1, sizeof(*child->last));
		child->last->ended = 1;
		child->last->cost.hits = 100 * (i + 1);
		child->last->cost.sampled = 1;
		child->last->cost.sampled_ns = 40;
	}
	forget_ended(session);
	assert_int_equal(session->target_cnt, 1);
	assert_ptr_equal(session->targets[0], main);
	assert_int_equal(session->ended.hits, 600);
	assert_int_equal(session->ended.busiest.hits, 300);
	assert_int_equal(session->ended.busiest.hits_ns, 300 * (10 + 40));
}

/* ---- rows ---- */

/* With the rows of a process that has ended goes the room that BPF counts for them. */
static void test_rows_make_room(void **state)
{
	const uint32_t ended = 5;

	(void)state;
	for (uint32_t i = 0; i < 6; i++) {
		rows.keys[i] = (struct agg_key){.pid = i % 2 ? ended : 6, .kind = SPAN_USER, .name = i};
		rows.vals[i].calls = 1 + i;
	}
	rows.cnt = 6;
	bss.agg_row_cnt = 6;
	assert_non_null(MAP_ADD(&session->ended_pids, struct ended_pid, &ended));
	assert_int_equal(emit_rows(session), 0);
	assert_int_equal(told_cnt, 6);
	assert_int_equal(told_calls, 21);
	assert_int_equal(told_ended, 3);
	assert_int_equal(rows.cnt, 3);
	assert_int_equal(bss.agg_row_cnt, 3);
	assert_int_equal(session->progress.calls, 21);
	map__free(&session->ended_pids);
	assert_int_equal(emit_rows(session), 0);
	assert_int_equal(bss.agg_row_cnt, 3);
	assert_int_equal(session->progress.calls, 21);
}

/* ---- children that ended before anybody looked at them ---- */

static void test_unseen_child(void **state)
{
	const struct rec_proc fork = {.event = PROC_FORK, .pid = 1 << 30, .parent_pid = 7}; /* there is no such pid */
	struct target *parent = add_target(7, ROLE_MAIN);

	(void)state;
	parent->sent = (struct rec_target){
		.hdr = {.type = REC_TARGET, .size = sizeof(parent->sent)}, .pid = 7, .role = ROLE_MAIN, .rank = 3};
	strcpy(parent->sent.python, "3.11.2");
	targets__handle_event(session, &fork);
	assert_int_equal(told.pid, 1 << 30);
	assert_int_equal(told.parent_pid, 7);
	assert_int_equal(told.role, ROLE_CHILD);
	assert_string_equal(told.python, "3.11.2");
	told = (struct rec_target){0};
	session->options.children = CHILDREN_NONE;
	targets__handle_event(session, &fork);
	assert_int_equal(told.pid, 0);
}

/* ---- looks ---- */

/* A target that is a child of this test, and does nothing. */
static struct target *add_child(void)
{
	pid_t pid = fork();
	struct proc_stat stat;
	struct target *t;

	if (!pid) {
		pause();
		_exit(0);
	}
	t = add_target(pid, ROLE_MAIN);
	assert_int_equal(proc__stat(pid, 0, &stat), 0);
	t->process.start_time = stat.start_time;
	return t;
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* A process that cannot be read for a while goes on, and so does its recording; one that has ended is no target any more. */
static void test_unread(void **state)
{
	static const int errs[] = {-ETIMEDOUT, -EAGAIN, -EMFILE, -ENOMEM, -EACCES};
	struct target *t = add_child();
	pid_t pid = t->process.pid;

	(void)state;
	for (size_t i = 0; i < sizeof(errs) / sizeof(*errs); i++) {
		read_err = errs[i];
		t->pending = false;
		look_at_target(session, t, 1000);
		assert_false(t->gone);
		assert_true(t->pending);
		assert_int_equal(t->look_at_ns, 1000 + (LOOK_SELDOM_NS << i));
		assert_int_equal(notes, 1);
	}
	check_life(session, t, 1000);
	assert_false(t->gone);
	end_child(pid);
	look_at_target(session, t, 2000);
	assert_true(t->gone);
	assert_int_equal(notes, 1);
}

/* Where the ring was full at the end of a process, the session tells of it. */
static void test_lost_exit(void **state)
{
	struct target *t = add_child();

	(void)state;
	known[0] = (struct known_proc){t->process.pid, {.ended = 1, .exit_code = 3 << 8}};
	check_life(session, t, 1000);
	assert_int_equal(exited.event, 0);
	end_child(t->process.pid);
	check_life(session, t, 2000);
	assert_true(t->gone);
	assert_int_equal(exited.event, PROC_EXIT);
	assert_int_equal(exited.exit_code, 3 << 8);
}

/* Of these, the ring had no room for any record: BPF's places for processes do not fill up with them. */
static void test_unseen_ends(void **state)
{
	add_target(1, ROLE_MAIN);
	known[0] = (struct known_proc){1, {.ended = 1}}; /* the session knows it */
	known[1] = (struct known_proc){2, {.ended = 1}};
	known[2] = (struct known_proc){3, {.ended = 0}};
	known[3] = (struct known_proc){4, {.ended = 1}};
	(void)state;
	targets__forget_unseen(session);
	assert_non_null(find_known(1));
	assert_null(find_known(2));
	assert_non_null(find_known(3));
	assert_null(find_known(4));
	assert_int_equal(session->ended_pids.items.cnt, 2); /* their rows go, too */
}

static int add_self(struct target **out)
{
	struct process process = {.pid = getpid()};
	struct proc_stat stat;

	assert_int_equal(proc__stat(process.pid, 0, &stat), 0);
	process.start_time = stat.start_time;
	return targets__add(session, &process, ROLE_MAIN, out);
}

/* The pid of one that has ended, of which the session was not told. */
static void test_pid_again(void **state)
{
	struct target *t;

	(void)state;
	known[0] = (struct known_proc){getpid(), {.ended = 1, .cost.hits = 5}};
	assert_int_equal(add_self(&t), 0);
	assert_int_equal(find_known(getpid())->proc.ended, 0);
	assert_int_equal(find_known(getpid())->proc.cost.hits, 0);
	assert_int_equal(find_known(getpid())->proc.role, ROLE_MAIN);
}

/* What BPF has copied of its parent stays. */
static void test_fork_is_known(void **state)
{
	struct target *t;

	(void)state;
	known[0] = (struct known_proc){getpid(), {.forked_ns = 7}};
	assert_int_equal(add_self(&t), 0);
	assert_int_equal(find_known(getpid())->proc.forked_ns, 7);
}

static void test_no_room(void **state)
{
	struct target *t;

	(void)state;
	for (uint32_t i = 0; i < PROCS; i++)
		known[i].pid = i + 1;
	assert_int_equal(add_self(&t), -E2BIG);
	assert_int_equal(session->procs_full, 1);
	assert_int_equal(session->target_cnt, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, finish)
	const struct CMUnitTest tests[] = {
		TEST(test_busiest),      TEST(test_price),         TEST(test_children_paid), TEST(test_rows_make_room),
		TEST(test_unseen_child), TEST(test_unread),        TEST(test_lost_exit),     TEST(test_unseen_ends),
		TEST(test_pid_again),    TEST(test_fork_is_known), TEST(test_no_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
