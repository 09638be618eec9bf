/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which waits get a sample, and whose stack BPF walks as they begin: those that are expected to get
 * one, by how long the last waits at the same place were.
 *
 *   wait begins -> place -> one_in: BPF walks with a chance of one in this number
 *   wait ends   -> places: how long it was; a short one is picked by chance, corrected by one_in
 */
#ifndef STEPFLAME_BPF_WAIT_PLACE_H
#define STEPFLAME_BPF_WAIT_PLACE_H

#include "bpf/span.h"
#include "bpf/wait.h"

#define PF_KTHREAD 0x00200000 /* include/linux/sched.h */

/*
 * Threads that take the GIL from each other wait for it some ten thousand times a second, each time
 * for at most the interpreter's switch interval, 5 ms. One sample stands for GIL_UNIT_NS of these,
 * so that it is enough to walk one in GIL_WALKED. The waits of a thread that trains are like all
 * others, since each step needs its own.
 */
#define GIL_WALKED  4
#define GIL_LONG_NS 5000000
#define GIL_UNIT_NS (GIL_WALKED * GIL_LONG_NS)

/*
 * Where steps are long, one sample stands for more short waits: for this part of a step, but for no
 * more than 1 ms.
 */
#define SHORT_OF_STEP 32
#define SHORT_MAX_NS  1000000

#define WALKED_MAX    32 /* of waits that are short at their place, BPF walks at least one in as many as they begin */

/* Of short waits, one sample stands for as much time as this. */
static __always_inline u64 wait__unit(const struct wait *w, const struct proc *proc)
{
	u64 ns = proc->steps.usual_ns / SHORT_OF_STEP;

	if (w->gil_sampled)
		return GIL_UNIT_NS;
	return ns < wait_threshold_ns ? wait_threshold_ns : ns < SHORT_MAX_NS ? ns : SHORT_MAX_NS;
}

/*
 * Where the thread waits: the same system call of the same native stack. A preempted thread and one
 * with a page fault may be anywhere; for these the place is the cause.
 */
static __always_inline u32 wait__place(const struct wait *w, const struct pt_regs *user)
{
	if (w->cause == CAUSE_RUN_QUEUE || w->syscall < 0)
		return w->cause << WAIT_LENGTH_BITS;
	return name_hash__add(w->native ^ w->syscall, user->sp) >> 32;
}

/* Does a program that is not recorded take the CPU from the thread? It will keep it for some time. */
static __always_inline bool wait__is_for_program(const struct wait *w, struct task_struct *next)
{
	u32 pid;

	if (w->cause != CAUSE_RUN_QUEUE || next->flags & PF_KTHREAD)
		return false;
	pid = task_pid(next);
	return !bpf_map_lookup_elem(&procs, &pid);
}

/*
 * As this wait begins, BPF walks its stack by a chance of one in this number: more for longer waits,
 * by the last waits at this place.
 */
static __attribute__((noinline)) u32 wait__walked_one_in(const struct wait *w, const struct proc *proc,
							 struct task_struct *next, bool later)
{
	u32 known = w->places[BOUND_INDEX(w->place >> WAIT_LENGTH_BITS, WAIT_PLACES)];
	u64 one_in;

	if (!later)
		return w->gil_sampled ? GIL_WALKED : 1;
	if ((known ^ w->place) >> WAIT_LENGTH_BITS || wait__is_for_program(w, next))
		return 1;
	one_in = wait__unit(w, proc) >> ((known & WAIT_LENGTH_MASK) + 1);
	return one_in < 1 ? 1 : one_in > WALKED_MAX ? WALKED_MAX : one_in;
}

#define FORGET_BITS 3 /* a wait that was long is forgotten by so much, as a power of two, at each shorter one */

/* Waits at a place are expected to be as long as the last one, or nearly as long as one before. */
__weak __noinline int wait__learn(struct wait *w, u64 ns)
{
	u32 *known, length = log2_bucket(ns), before;

	if (!w)
		return 0;
	known = &w->places[BOUND_INDEX(w->place >> WAIT_LENGTH_BITS, WAIT_PLACES)];
	before = *known & WAIT_LENGTH_MASK;
	if (!((*known ^ w->place) >> WAIT_LENGTH_BITS) && before > length + FORGET_BITS)
		length = before - FORGET_BITS;
	*known = (w->place & ~WAIT_LENGTH_MASK) | length;
	return 0;
}

/*
 * Does a short part of a wait get a sample? By a chance of its length in wait__unit. One in `one_in`
 * was walked as it began, so of these one_in times as many; if it is longer than was expected that
 * is not enough, and of the others some are walked now.
 */
__weak __noinline int wait__is_picked(const struct wait *w, const struct proc *proc, u64 ns)
{
	u64 unit, one_in;

	if (!w || !proc)
		return 0;
	unit = wait__unit(w, proc);
	one_in = w->one_in;
	if (w->walked || one_in <= 1)
		return (w->walked || w->walks_later) && bpf_get_prandom_u32() % unit < one_in * ns;
	if (!w->walks_later || one_in * ns <= unit)
		return false;
	return bpf_get_prandom_u32() % ((one_in - 1) * unit) < one_in * ns - unit;
}

#endif
