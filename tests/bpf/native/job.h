/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One traced process with one thread, under the probe program (bpf/landmarks.bpf.c, compiled here): hits of probes go
 * in, rows, names and counters come out. Its native stack is numbers only: programs compare stack pointers and do not
 * read there.
 */
#ifndef STEPFLAME_TESTS_BPF_NATIVE_JOB_H
#define STEPFLAME_TESTS_BPF_NATIVE_JOB_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/bpf/native/kernel.h"

#include "bpf/beside.h"
#include "bpf/landmarks.bpf.c"

#include "tests/bpf/native/fakepy.h"

#define JOB_PID      4242
#define FIXED_ID(id) (0xf1000000ULL + NAME_##id)
#define FN_ID(fn)    (0xf2000000ULL + (fn)) /* name of the function of that number */
#define STACK        0x7ffc00000000ULL      /* some stack addresses */
#define FRAME(n)     (STACK - 256ul * (n))  /* where the return address of the n-th nested function is */
#define FN_BACKWARD  0
#define FN_FIRST     1 /* of the user's functions */
#define FN_CNT       9

static struct {
	struct task_struct task, thread;
	struct pid pid;
	struct proc *proc;
	struct fakepy py;
	u64 profile_code;
	u64 tstate_word; /* what the process keeps its current thread state in */
} job;

static inline void job__set_fn(u32 fn, u64 name, u32 kind)
{
	struct probe_fn f = {.name = name, .kind = kind};

	bpf_map_update_elem(&fns, &fn, &f, BPF_ANY);
}

/* A process of Python 3.`minor`, whose window is open from the time 0. */
static inline void job__start(int minor)
{
	struct proc proc = {.window = WINDOW_OPEN};
	u32 pid = JOB_PID;

	native__reset();
	native__set_knob(&step_limit, 0);
	native__set_knob(&want_step_times, 0);
	for (u32 i = 0; i < NAME__COUNT; i++)
		native__set_knob(&fixed_names[i], 0xf1000000ULL + i);
	pid_level = 0;
	name_cnt = agg_row_cnt = 0;
	job.pid = (struct pid){.numbers = {{.nr = JOB_PID}}};
	job.task = (struct task_struct){.pid = JOB_PID, .tgid = JOB_PID, .thread_pid = &job.pid};
	job.task.group_leader = &job.task;
	job.thread = (struct task_struct){
		.pid = JOB_PID + 1, .tgid = JOB_PID, .group_leader = &job.task, .thread_pid = &job.pid};
	native.task = &job.task;
	native.now_ns = 1000;
	job.py = fakepy__new(minor);
	job.profile_code = fakepy__code(
		&job.py, "/opt/venv/lib/python3/site-packages/lightning/pytorch/profilers/profiler.py", "profile");
	proc.py.layout = *job.py.py;
	proc.py.gen_type = job.py.gen_type;
	proc.py.tstate_where = PY_TSTATE_GLOBAL;
	proc.py.tstate_address = (u64)&job.tstate_word;
	bpf_map_update_elem(&procs, &pid, &proc, BPF_ANY);
	job_pids[pid / 64] |= 1ULL << pid % 64;
	job.proc = bpf_map_lookup_elem(&procs, &pid);
	job.tstate_word = 0;
	job__set_fn(FN_BACKWARD, FIXED_ID(BACKWARD), SPAN_BACKWARD);
	for (u32 fn = FN_FIRST; fn < FN_CNT; fn++)
		job__set_fn(fn, FN_ID(fn), SPAN_USER);
}

static inline void job__stop(void)
{
	fakepy__free(&job.py);
	native__reset();
}

/* As COMMAND_REST and COMMAND_WAKE do it (bpf/control.bpf.c). */
static inline void job__rest(void)
{
	job.proc->window = WINDOW_RESTING;
	job.proc->window_end_ns = native.now_ns;
}

static inline void job__wake(void)
{
	job.proc->window = WINDOW_OPEN;
	job.proc->window_start_ns = native.now_ns;
	job.proc->window_end_ns = 0;
	job.proc->rests++;
	job.proc->steps.for_optimizer = job.proc->steps.for_backward = 0;
}

static inline int setup(void **state)
{
	(void)state;
	job__start(12);
	return 0;
}

static inline int teardown(void **state)
{
	(void)state;
	job__stop();
	return 0;
}

/* ---- what happens in the target; `frame`: where a native function's return address is, 0: not known ---- */

static inline void hit(enum probe_event event, u32 fn, u64 sp, u64 frame, u64 di, u64 si)
{
	struct pt_regs regs = {.sp = sp, .di = di, .si = si};

	native.cookie = COOKIE(event, 0, frame ? frame - sp : COOKIE_DEPTH_UNKNOWN, fn);
	probe(&regs);
}

static inline void wait_ns(u64 ns)
{
	native.now_ns += ns;
}

/* The entry probe sits behind some pushes, the exit probe behind the pops. */
static inline void fn__enter(u32 fn, u64 frame)
{
	hit(PROBE_FN, fn, frame - 40, frame, 0, 0);
}

static inline void fn__exit(u32 fn, u64 frame)
{
	hit(PROBE_FN_EXIT, fn, frame - 8, frame, 0, 0);
}

static inline u64 action__new(const char *name)
{
	return fakepy__generator(&job.py, job.profile_code, fakepy__text(&job.py, name));
}

/* next() on the generator of an action, called from `sp`: it starts, or ends. */
static inline void action__next(u64 gen, u64 sp)
{
	hit(PROBE_PY_NEXT, 0, sp, 0, 0, (u64)&gen);
	fakepy__set_created(&job.py, gen, false);
}

/*
 * next() on an object of a Python class, whose function for it will have its return address at `frame`; in a process
 * that has shown an action. It returns by loader__exit.
 */
static inline void loader__next(u64 object, u64 frame)
{
	enum { BELOW = 32, PUSHED = 8 };

	job.proc->landmarks.profile_code = job.profile_code;
	hit(PROBE_PY_NEXT, BELOW, frame + BELOW - PUSHED, frame + BELOW, 0, (u64)&object);
}

static inline void loader__exit(u64 frame)
{
	hit(PROBE_PY_ITER_EXIT, 0, frame - 8, frame, 0, 0);
}

static inline void action__throw(u64 gen, u64 sp)
{
	hit(PROBE_PY_THROW, 0, sp, 0, gen, 0);
}

/* record_function_enter_new, called from `sp`, for a RecordFunction at `object`. */
static inline void label__enter(const char *text, u64 object, u64 sp)
{
	struct {
		const char *data;
		u64 size;
	} string = {text, strlen(text)};

	hit(PROBE_LABEL, 0, sp - 24, sp - 8, 0, (u64)&string);
	hit(PROBE_LABEL_HANDLE, 0, sp - 96, sp - 8, object, 0);
}

static inline void label__exit(u64 object, u64 sp)
{
	hit(PROBE_LABEL_END, 0, sp - 24, 0, object, 0);
}

static inline void label__run(const char *text, u64 ns, u64 sp)
{
	label__enter(text, sp, sp);
	wait_ns(ns);
	label__exit(sp, sp);
}

/* What torch calls its own. */
#define DATA_LABEL      "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
#define OPTIMIZER_LABEL "Optimizer.step#SGD.step"
#define ZERO_LABEL      "Optimizer.zero_grad#SGD.zero_grad"

static inline void backward(u64 ns, u64 frame)
{
	fn__enter(FN_BACKWARD, frame);
	wait_ns(ns);
	fn__exit(FN_BACKWARD, frame);
}

/* ---- what came out ---- */

static inline u64 counter(u32 id)
{
	u64 *value = bpf_map_lookup_elem(&counters, &id);

	return *value;
}

/* All counters are 0 but these, which end with CNT__COUNT: CNT_A, its value, ... */
static inline void expect_counters(int first, ...)
{
	u64 expected[CNT__COUNT] = {0};
	va_list args;

	va_start(args, first);
	for (int id = first; id != CNT__COUNT; id = va_arg(args, int))
		expected[id] = (u64)va_arg(args, int);
	va_end(args);
	for (u32 id = 0; id < CNT__COUNT; id++) {
		if (counter(id) != expected[id])
			print_message("  counter %u\n", id);
		assert_int_equal(counter(id), expected[id]);
	}
}

static inline struct thread *job__thread(void)
{
	return bpf_task_storage_get(&threads, native.task, NULL, 0);
}

static inline u32 depth(void)
{
	struct thread *t = job__thread();

	return t ? t->depth : 0;
}

static inline struct agg_val *row(u32 kind, u64 name, u64 parent)
{
	struct agg_key key = {.pid = JOB_PID, .kind = kind, .name = name, .parent = parent};

	return bpf_map_lookup_elem(&aggs, &key);
}

static inline void expect_row(u32 kind, u64 name, u64 parent, u64 calls, u64 total_ns, u64 self_ns)
{
	const struct agg_val *val = row(kind, name, parent);

	assert_non_null(val);
	assert_int_equal(val->calls, calls);
	assert_int_equal(val->total_ns, total_ns);
	assert_int_equal(val->self_ns, self_ns);
}

/* The n-th record of that type; NULL: there are fewer. One look goes on where the last one ended, so that a walk over all is linear. */
static inline const void *record(u32 type, u32 n)
{
	typeof(native.found) *found = &native.found;

	if (found->type != type || found->n > n)
		*found = (typeof(*found)){.type = type};
	while (found->at < native.ring_bytes) {
		const struct rec_hdr *hdr = (const struct rec_hdr *)(native.ring + found->at);

		if (hdr->type == type && found->n == n)
			return hdr;
		assert_true(hdr->size >= sizeof(*hdr) && hdr->size % 8 == 0 &&
			    found->at + hdr->size <= native.ring_bytes);
		found->n += hdr->type == type;
		found->at += hdr->size;
	}
	return NULL;
}

/* How often a name was sent; *id is the last one's. */
static inline u32 names_sent(u32 encoding, const void *text, u64 bytes, u64 *id)
{
	u32 cnt = 0;

	*id = 0;
	for (size_t at = 0; at < native.ring_bytes;) {
		const struct rec_name *rec = (const struct rec_name *)(native.ring + at);

		assert_int_equal(rec->hdr.size % 8, 0);
		assert_true(rec->hdr.size && at + rec->hdr.size <= native.ring_bytes);
		at += rec->hdr.size;
		if (rec->hdr.type != REC_NAME)
			continue;
		assert_in_range(rec->hdr.size, sizeof(*rec) + rec->bytes, sizeof(*rec) + rec->bytes + 7);
		if (rec->encoding == encoding && rec->bytes == bytes && !memcmp(rec->text, text, bytes)) {
			*id = rec->id;
			cnt++;
		}
	}
	return cnt;
}

/* The id of a name, which was sent once. */
static inline u64 latin_id(const char *text)
{
	u64 id;

	assert_int_equal(names_sent(NAME_LATIN1, text, strlen(text), &id), 1);
	assert_true(id != 0);
	return id;
}

static inline u64 utf8_id(const char *text)
{
	u64 id;

	assert_int_equal(names_sent(NAME_UTF8, text, strlen(text), &id), 1);
	assert_true(id != 0);
	return id;
}

static inline bool add_self(const void *key, void *value, void *sum)
{
	(void)key;
	*(u64 *)sum += ((struct agg_val *)value)->self_ns;
	return true;
}

/* The self times of all rows. */
static inline u64 self_sum(void)
{
	u64 sum = 0;

	native_map__each(&aggs, add_self, &sum);
	return sum;
}

#endif
