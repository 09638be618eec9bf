// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The words of the summary: what classes, causes and times are called there. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/digits.h"
#include "user/model/processes.h"
#include "user/report/summary.h"

#define CAUSE_BYTES 128

/* In summary_text.c. They return static texts, or out. */
static const char *summary_text__class(enum verdict_class class)
{
	static const char *const words[] = {
		[VERDICT_UNCLEAR] = "nothing that stands out",
		[VERDICT_INPUT] = "getting the data",
		[VERDICT_PYTHON] = "Python",
		[VERDICT_CPU_OP] = "operators on the CPU",
		[VERDICT_GPU] = "the GPU",
		[VERDICT_LAUNCH] = "launching GPU kernels",
		[VERDICT_COMM] = "communication between ranks",
		[VERDICT_CHECKPOINT] = "writing to disk",
		[VERDICT_MEMORY] = "memory",
		[VERDICT_LOCK] = "locks between threads",
		[VERDICT_THREAD] = "the work of other threads or processes",
		[VERDICT_STARVED] = "too few free CPUs",
		[VERDICT_COMPILE] = "compiling",
		[VERDICT_COMPUTE] = "computing",
		[VERDICT_VALIDATION] = "validation",
		[VERDICT_EXTRA] = "extra work in some steps",
		[VERDICT_STRAGGLER] = "one slow rank",
	};
	_Static_assert(sizeof(words) / sizeof(*words) == VERDICT__COUNT, "a verdict without words");

	return words[class];
}

const char *summary_text__cause(unsigned int cause)
{
	static const char *const words[] = {
		[CAUSE_RUN_QUEUE] = "waiting for a free CPU",
		[CAUSE_LOCK] = "waiting for a lock",
		[CAUSE_GIL] = "waiting for the GIL",
		[CAUSE_DISK_READ] = "reading from disk",
		[CAUSE_DISK_WRITE] = "writing to disk",
		[CAUSE_FSYNC] = "fsync",
		[CAUSE_PAGE_FAULT] = "waiting for memory (page faults)",
		[CAUSE_SLEEP] = "sleeping",
		[CAUSE_CHILD_WAIT] = "waiting for a child process",
		[CAUSE_PIPE] = "waiting for a pipe",
		[CAUSE_SOCKET] = "waiting for a socket",
		[CAUSE_POLL] = "waiting for files or sockets (poll, io_uring)",
		[CAUSE_UNKNOWN] = "no single cause",
		[CAUSE_PAUSED] = "paused from outside (signal, debugger, freezer)",
		[CAUSE_DATA_WAIT] = "waiting for a DataLoader worker",
		[CAUSE_COLLECTIVE] = "waiting for other ranks",
		[CAUSE_GPU_SYNC] = "waiting for the GPU",
		[CAUSE_XLA_WAIT] = "waiting for XLA",
		[CAUSE_THREAD_WAIT] = "waiting for another thread",
		[CAUSE_FILE_SYSTEM] = "waiting for a file system on FUSE or the network",
		[BLAME_GC] = "Python's garbage collection",
		[BLAME_CHECKPOINT] = "saving a checkpoint",
		[BLAME_VALIDATION] = "validation",
		[BLAME_COMPILE] = "compiling",
		[BLAME_SKIPPED] = "two iterations or more, since an update was left out",
		[BLAME_EXTRA] = "extra work",
		[BLAME_PYTHON] = "more Python on the CPU",
		[BLAME_OP] = "more operators on the CPU",
		[BLAME_NATIVE] = "more native code on the CPU",
		[BLAME_KERNEL] = "more of the kernel on the CPU",
	};
	_Static_assert(sizeof(words) / sizeof(*words) == BLAME__END, "a cause without words");

	return cause < BLAME__END && words[cause] ? words[cause] : "no single cause";
}

const char *summary_text__plural(uint64_t cnt)
{
	return cnt == 1 ? "" : "s";
}

const char *summary_text__duration(double ns, char out[32])
{
	if (ns < 999.5e3)
		snprintf(out, 32, "%s us", DIGITS(ns / 1e3, 3));
	else if (ns < 999.5e6)
		snprintf(out, 32, "%s ms", DIGITS(ns / 1e6, 3));
	else
		snprintf(out, 32, "%.*f s", ns < 99.95e9, ns / 1e9);
	return out;
}

const struct blame_group *summary_text__group(const struct steps_of *of)
{
	const struct verdict *verdict = &of->verdict;

	if (verdict->class == VERDICT_STRAGGLER)
		return NULL;
	for (size_t i = 0; i < of->blame.group_cnt; i++) {
		const struct blame_group *group = &of->blame.groups[i];
		double most = (double)group->over_ns / of->blame.all.total_ns;
		double least = most - (double)group->queue_ns / of->blame.all.total_ns;

		if (group->cause == verdict->cause && group->phase == verdict->phase &&
		    verdict->share <= most * (1 + 1e-9) && verdict->share >= least * (1 - 1e-9))
			return group;
	}
	return NULL;
}

/* "sleeping"; where the step waits for another thread or process that does that, "waiting for process 4002 (sleeping)". */
static void group_cause(const struct blame_group *group, uint32_t pid, char text[CAUSE_BYTES])
{
	const char *words = summary_text__cause(group->cause);
	bool passed = group->passed_ns && 2 * group->passed_ns >= group->wait_ns && group->waker_pid;

	if (passed && group->waker_pid != pid)
		snprintf(text, CAUSE_BYTES, "waiting for process %u (%s)", REC_PID(group->waker_pid), words);
	else if (passed)
		snprintf(text, CAUSE_BYTES, "waiting for thread %u (%s)", group->waker_tid, words);
	else
		snprintf(text, CAUSE_BYTES, "%s", words);
}

char *summary_text__limit(const struct steps_of *of)
{
	const struct verdict *verdict = &of->verdict;
	const struct blame_group *group = summary_text__group(of);
	char win[64] = "", in[64] = "", class[64] = "", cause[CAUSE_BYTES], *text;
	const char *words = summary_text__class(verdict->class);

	if (group) {
		group_cause(group, of->track->pid, cause);
		words = verdict->cause == BLAME_EXTRA && verdict->class == VERDICT_INPUT
				? "starts of DataLoader workers"
				: cause;
	}

	if (verdict->share >= 0.005)
		snprintf(win, sizeof(win), ": about %.0f %% of the time can be won", 100 * verdict->share);
	if (group)
		snprintf(in, sizeof(in), ", all in %u slow step%s", group->step_cnt,
			 summary_text__plural(group->step_cnt));
	if (verdict->class != VERDICT_UNCLEAR)
		snprintf(class, sizeof(class), " (%s)", verdict_class__name(verdict->class));
	if ((verdict->class == VERDICT_UNCLEAR && verdict->cause && !group) ||
	    (verdict->class == VERDICT_LOCK && verdict->cause == CAUSE_GIL && !group))
		words = summary_text__cause(verdict->cause);
	return asprintf(&text, "%s%s%s%s", words, class, win, in) < 0 ? NULL : text;
}

char *summary_text__how(const struct steps_of *of, const struct blame_group *group)
{
	bool is_phase =
		group->cause == BLAME_CHECKPOINT || group->cause == BLAME_VALIDATION || group->cause == BLAME_GC;
	char phase[64] = "", generation[32] = "", cause[CAUSE_BYTES], *text;

	group_cause(group, of->track->pid, cause);
	if (group->phase >= 0 && !is_phase && group->phase != PHASE_OTHER)
		snprintf(phase, sizeof(phase), " in %s", phase__name(group->phase));
	if (group->cause == BLAME_GC)
		snprintf(generation, sizeof(generation), " (generation %u)", group->gc_generation);
	return asprintf(&text, "%s%s%s", cause, generation, phase) < 0 ? NULL : text;
}

int summary_text__place(struct job *job, const struct blame_group *group, char **place)
{
	bool placed = group->place.outer.code || group->hotspots[0].ns;

	*place = NULL;
	if (placed)
		*place = group->place.outer.code ? place__text(job, &group->place)
						 : hotspot__text(job, &group->hotspots[0]);
	return placed && !*place ? -ENOMEM : 0;
}

/* ---- events ---- */

const char *summary_text__event(const struct trigger_event *event, char text[SUMMARY_EVENT_BYTES])
{
	char took[32], median[32], longest[32], before[128] = "";
	char *end;

	summary_text__duration(event->duration_ns, took);
	if (event->median_ns)
		snprintf(before, sizeof(before), "; the steps before it took %s, and %s at most",
			 summary_text__duration(event->median_ns, median),
			 summary_text__duration(event->longest_ns, longest));
	switch (event->kind) {
	case TRIGGER_SLOW:
		snprintf(text, SUMMARY_EVENT_BYTES, "step %" PRIu64 " of process %u took %s%s", event->step, event->pid,
			 took, before);
		break;
	case TRIGGER_SLOWER:
		snprintf(text, SUMMARY_EVENT_BYTES,
			 "the steps of process %u take %s since step %" PRIu64 ", %.0f %% longer than before (%s)",
			 event->pid, took, event->step, 100. * event->duration_ns / event->median_ns - 100, median);
		break;
	case TRIGGER_STRAGGLER:
		snprintf(text, SUMMARY_EVENT_BYTES,
			 "process %u holds up the other ranks of its job since step %" PRIu64
			 ": its own work takes %s of a step, theirs %s",
			 event->pid, event->step, took, median);
		break;
	case TRIGGER_STALL:
		snprintf(text, SUMMARY_EVENT_BYTES, "process %u has ended no step for %s, since step %" PRIu64 "%s",
			 event->pid, took, event->step, before);
		break;
	default:
		end = processes__end_text(event->status);
		snprintf(text, SUMMARY_EVENT_BYTES, "process %u ended after step %" PRIu64 ": %s", event->pid,
			 event->step, end ?: "badly");
		free(end);
	}
	return text;
}

const char *summary_text__advice(const struct loader *loader, char out[SUMMARY_ADVICE_BYTES])
{
	switch (loader->advice) {
	case LOADER_UNKNOWN:
	case LOADER_UNEVEN:
		return "";
	case LOADER_KEEPS_UP:
		return "; more would not help";
	case LOADER_STORAGE:
		return "; they wait for disks";
	case LOADER_CPU_FULL:
		return "; more would find no free CPU";
	case LOADER_SHARDS:
		return "; more help only if the data set has as many shards";
	case LOADER_TURNS:
		if (!loader->server)
			return "; they wait for each other";
		snprintf(out, SUMMARY_ADVICE_BYTES, "; they wait for process %u", REC_PID(loader->server));
		break;
	case LOADER_MORE:
		snprintf(out, SUMMARY_ADVICE_BYTES, "; with %u a batch would take %s ms", loader->advised,
			 DIGITS(loader->reach_ns / 1e6, 3));
		break;
	case LOADER_THREADS:
		snprintf(out, SUMMARY_ADVICE_BYTES, "; each has %u threads that compute, for %u CPU%s", loader->threads,
			 loader->cpus, summary_text__plural(loader->cpus));
		break;
	case LOADER_RESTARTS:
		snprintf(out, SUMMARY_ADVICE_BYTES, "; they start anew for each epoch: %s s",
			 DIGITS(loader->restarts_ns / 1e9, 3));
		break;
	case LOADER_ONE_SLOW:
		snprintf(out, SUMMARY_ADVICE_BYTES, "; worker %u %s", loader->slow,
			 loader->is_stream ? "has more shards, or slower ones" : "is slower than the others");
		break;
	}
	return out;
}
