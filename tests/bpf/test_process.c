/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Forks, execs and exits (bpf/process.bpf.c): which of them are told, what a child is known by, and in whose numbering of pids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/bpf/native/kernel.h"

#include "bpf/process.bpf.c"

volatile __u32 pid_level;
volatile __u64 pid_ns;
volatile __u32 around_cnt;

#define PARENT 100
#define CHILD  200

/* A single-threaded process: its number in the initial pid namespace, and in the one below it. */
struct process {
	struct task_struct task;
	struct pid pid;
	struct signal_struct signal;
};

static struct process parent, child;

static void process__init(struct process *p, int pid, const char *comm)
{
	*p = (struct process){.task = {.pid = pid, .tgid = pid}, .pid = {.level = 1, .numbers = {{pid}, {pid / 100}}}};
	p->task.group_leader = &p->task;
	p->task.thread_pid = &p->pid;
	p->task.signal = &p->signal;
	strcpy(p->task.comm, comm);
}

static struct proc *proc_of(u32 pid)
{
	return bpf_map_lookup_elem(&procs, &pid);
}

static void trace(u32 pid)
{
	struct proc proc;

	memset(&proc, 0x5a, sizeof(proc)); /* a value in each field */
	proc.ended = 0;
	bpf_map_update_elem(&procs, &pid, &proc, BPF_ANY);
}

static int setup(void **state)
{
	(void)state;
	native__reset();
	pid_level = 0;
	process__init(&parent, PARENT, "python3");
	process__init(&child, CHILD, "pt_data_worker");
	native.task = &parent.task;
	native.now_ns = 1000;
	trace(PARENT);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	native__reset();
	return 0;
}

/* All that was told, which is this; and nothing is left to be told. */
static void expect_told(u32 event, u32 pid, u32 parent_pid, s32 exit_code, const char *comm)
{
	const struct rec_proc *rec = (const struct rec_proc *)native.ring;

	assert_int_equal(native.ring_bytes, sizeof(*rec));
	assert_int_equal(rec->hdr.type, REC_PROC);
	assert_int_equal(rec->hdr.flags, 0);
	assert_int_equal(rec->hdr.size, sizeof(*rec));
	assert_int_equal(rec->time_ns, native.now_ns);
	assert_int_equal(rec->event, event);
	assert_int_equal(rec->pid, pid);
	assert_int_equal(rec->parent_pid, parent_pid);
	assert_int_equal(rec->exit_code, exit_code);
	assert_string_equal(rec->comm, comm);
	native__empty_ring();
}

static void expect_nothing(u32 procs_cnt)
{
	assert_int_equal(native.ring_bytes, 0);
	assert_int_equal(native_map__cnt(&procs), procs_cnt);
}

/* Neither a child nor another program has what the sources know of the process; what it paid stays. */
static void expect_another_program(struct proc *expected)
{
	memset((char *)expected + PROC_IDENTITY_BYTES, 0, sizeof(*expected) - PROC_IDENTITY_BYTES);
	expected->step_epoch++;
}

/* What a child has of its parent is its memory; what was counted of the parent it has not. */
static void expect_child(u32 pid, u32 parent_pid)
{
	struct proc expected = *proc_of(parent_pid);

	expect_another_program(&expected);
	expected.role = ROLE_CHILD;
	expected.window = WINDOW_CLOSED;
	expected.cost = (struct proc_cost){0};
	expected.room = (struct proc_room){0};
	expected.forked_ns = expected.gpu_window = 0;
	assert_memory_equal(proc_of(pid), &expected, sizeof(expected));
	assert_true(pid__may_be_job(pid));
}

/* ---- fork ---- */

static void test_fork(void **state)
{
	const struct proc before = *proc_of(PARENT);

	process_fork(&parent.task, &child.task);
	expect_child(CHILD, PARENT);
	assert_memory_equal(proc_of(PARENT), &before, sizeof(before));
	expect_told(PROC_FORK, CHILD, PARENT, 0, "pt_data_worker");
}

/* A number that comes again: what its former owner left is gone. */
static void test_fork_again(void **state)
{
	trace(CHILD);
	proc_of(PARENT)->landmarks.profile_code = 42;
	process_fork(&parent.task, &child.task);
	expect_child(CHILD, PARENT);
	expect_told(PROC_FORK, CHILD, PARENT, 0, "pt_data_worker");
}

static void test_thread(void **state)
{
	struct task_struct thread = {.pid = CHILD, .tgid = PARENT, .group_leader = &parent.task};

	process_fork(&parent.task, &thread);
	expect_nothing(1);
}

/* A thread that forks: the parent is its process. */
static void test_fork_by_thread(void **state)
{
	struct task_struct thread = {.pid = PARENT + 1, .tgid = PARENT, .group_leader = &parent.task};

	process_fork(&thread, &child.task);
	expect_child(CHILD, PARENT);
	expect_told(PROC_FORK, CHILD, PARENT, 0, "pt_data_worker");
}

static void test_strangers(void **state)
{
	process_fork(&child.task, &parent.task);
	process_exec(&child.task);
	process_exit(&child.task);
	expect_nothing(1);
}

static void test_fork_no_room(void **state)
{
	for (u32 pid = 1000; native_map__cnt(&procs) < PROCS_MAX; pid++)
		trace(pid);
	process_fork(&parent.task, &child.task);
	expect_nothing(PROCS_MAX);
	assert_int_equal(*(u64 *)bpf_map_lookup_elem(&counters, &(u32){CNT_PROCS_FULL}), 1);
}

/* A process outside the job has the pid of one that has ended: its children are not the job's. */
static void test_fork_by_stranger(void **state)
{
	process_exit(&parent.task);
	native__empty_ring();
	process_fork(&parent.task, &child.task);
	expect_nothing(1);
}

/* Pids are those of stepflame's namespace; who is not seen there is not traced. */
static void test_namespace(void **state)
{
	pid_level = 1;
	trace(PARENT / 100);
	process_fork(&parent.task, &child.task);
	expect_child(CHILD / 100, PARENT / 100);
	assert_null(proc_of(CHILD));
	expect_told(PROC_FORK, CHILD / 100, PARENT / 100, 0, "pt_data_worker");
	process_exec(&child.task);
	expect_told(PROC_EXEC, CHILD / 100, 0, 0, "pt_data_worker");
	process_exit(&child.task);
	expect_told(PROC_EXIT, CHILD / 100, 0, 0, "pt_data_worker");

	child.pid.numbers[1].ns = &native; /* another namespace at the same level */
	process_exec(&child.task);
	process_exit(&child.task);
	child.pid.numbers[1].ns = NULL;

	child.pid.level = 0;
	process_fork(&parent.task, &child.task);
	process_exec(&child.task);
	process_exit(&child.task);
	expect_nothing(3);
}

/* ---- exec, exit ---- */

static void test_exec(void **state)
{
	struct proc expected = *proc_of(PARENT);

	expect_another_program(&expected);
	expected.py = (struct py_process){0};
	process_exec(&parent.task);
	assert_memory_equal(proc_of(PARENT), &expected, sizeof(expected));
	expect_told(PROC_EXEC, PARENT, 0, 0, "python3");
}

/* What the program before had open is nobody's, and of its addresses none holds. */
static void test_exec_thread(void **state)
{
	struct task_struct *task = &parent.task;
	struct thread *t = bpf_task_storage_get(&threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	static const struct thread none;
	u32 serial;

	memset(t, 0x5a, sizeof(*t));
	serial = t->step_serial;
	around_cnt = 1;
	process_exec(task);
	assert_int_equal(t->step_serial, serial);
	t->step_serial = 0;
	assert_memory_equal(t, &none, offsetof(struct thread, spans));
	assert_memory_equal(&t->pass, &none.pass, sizeof(none.pass));
	assert_memory_equal(&t->gpu, &none.gpu, sizeof(none.gpu));
	assert_int_equal(around_cnt, 0);
	native__empty_ring();
	process_exec(task);
	assert_int_equal(around_cnt, 0);
}

static void test_exit(void **state)
{
	struct proc expected;

	proc_of(PARENT)->window = WINDOW_OPEN;
	expected = *proc_of(PARENT);
	/* the last thread says it, by the code of exit_group, or its own */
	parent.signal.live.counter = 1;
	parent.task.exit_code = 3 << 8;
	process_exit(&parent.task);
	expect_nothing(1);
	assert_memory_equal(proc_of(PARENT), &expected, sizeof(expected));
	parent.signal.live.counter = 0;
	process_exit(&parent.task);
	expect_told(PROC_EXIT, PARENT, 0, 3 << 8, "python3");
	/* another process may get its number */
	expected.forked_ns = 0;
	expected.ended = 1;
	expected.exit_code = 3 << 8;
	expected.window = WINDOW_CLOSED;
	assert_memory_equal(proc_of(PARENT), &expected, sizeof(expected));
	/* the last two threads may end at one moment: each finds none that goes on */
	process_exit(&parent.task);
	expect_nothing(1);
	proc_of(PARENT)->ended = 0;
	parent.signal.group_exit_code = 9;
	process_exit(&parent.task);
	expect_told(PROC_EXIT, PARENT, 0, 9, "python3");
	expect_nothing(1);
	proc_of(PARENT)->ended = 0;
	proc_of(PARENT)->window = WINDOW_DONE;
	process_exit(&parent.task);
	assert_int_equal(proc_of(PARENT)->window, WINDOW_DONE);
}

static void test_ring_full(void **state)
{
	u64 *full = bpf_map_lookup_elem(&counters, &(u32){CNT_RING_FULL});

	native.ring_full = true;
	process_fork(&parent.task, &child.task);
	expect_child(CHILD, PARENT);
	process_exec(&child.task);
	child.signal.group_exit_code = 9;
	process_exit(&child.task);
	expect_nothing(2);
	assert_int_equal(*full, 3);
	/* user space, which has to tell of it */
	assert_int_equal(proc_of(CHILD)->ended, 1);
	assert_int_equal(proc_of(CHILD)->exit_code, 9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_fork, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fork_again, setup, teardown),
		cmocka_unit_test_setup_teardown(test_thread, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fork_by_thread, setup, teardown),
		cmocka_unit_test_setup_teardown(test_strangers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fork_no_room, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fork_by_stranger, setup, teardown),
		cmocka_unit_test_setup_teardown(test_namespace, setup, teardown),
		cmocka_unit_test_setup_teardown(test_exec, setup, teardown),
		cmocka_unit_test_setup_teardown(test_exec_thread, setup, teardown),
		cmocka_unit_test_setup_teardown(test_exit, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ring_full, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
