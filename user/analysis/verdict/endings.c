// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/verdict/endings.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "user/analysis/loader/workers.h"
#include "user/analysis/place/place.h"
#include "user/lib/compare.h"
#include "user/model/processes.h"
#include "user/model/resources.h"
#include "user/model/samples.h"
#include "user/model/stacks.h"

#define MIB     (1024.0 * 1024)
#define SOON_NS 10000000000ull /* torch looks for workers that have ended every 5 s */

static char *name_of(const struct rec_target *target, enum target_role role)
{
	const char *kind = role == ROLE_WORKER ? "DataLoader worker" : "process";
	char *text;
	int length;

	if (target->role == ROLE_MAIN && target->rank >= 0)
		length = asprintf(&text, "rank %d (process %u)", target->rank, REC_PID(target->pid));
	else if (role == ROLE_CHILD)
		length = asprintf(&text, "process %u, which process %u has started,", REC_PID(target->pid),
				  REC_PID(target->parent_pid));
	else
		length = asprintf(&text, "%s %u", kind, REC_PID(target->pid));
	return length < 0 ? NULL : text;
}

static char *how_of(int status)
{
	char *end = processes__end_text(status), *text;
	int length = end ? asprintf(&text, "%s %s", WTERMSIG(status) ? "was" : "ended with", end) : -1;

	free(end);
	return length < 0 ? NULL : text;
}

/* What was short fits the way in which it ended; more is not known. */
static char *why_of(struct job *job, const struct rec_proc *exit)
{
	const struct resources *resources = job__resources(job);
	const struct rec_shortage *shortage = resources__shortage(resources, exit->pid);
	const struct rec_limits *limits = resources__limits(resources, exit->pid);
	int signal = WTERMSIG(exit->exit_code), length;
	char *text, limit[64] = "";

	if (limits && limits->memory_bytes)
		snprintf(limit, sizeof(limit), ", whose limit is %.0f MiB", limits->memory_bytes / MIB);
	if (signal == SIGXCPU)
		length = asprintf(&text, "it reached its limit of CPU time (ulimit -t)");
	else if (signal == SIGKILL && shortage && shortage->known & SHORTAGE_CGROUP)
		length = asprintf(&text, "out of memory: the kernel has killed %llu of the processes of its cgroup%s",
				  (unsigned long long)shortage->cgroup_kills, limit);
	else if (signal == SIGKILL && shortage && shortage->known & SHORTAGE_MACHINE)
		length = asprintf(&text,
				  "perhaps out of memory: the kernel has killed %llu of the processes of the machine "
				  "for that meanwhile",
				  (unsigned long long)shortage->machine_kills);
	else if ((signal == SIGBUS || !signal) && shortage && shortage->known & SHORTAGE_SHM)
		length = asprintf(&text, "/dev/shm was full: %.0f of %.0f MiB free", shortage->shm_free_bytes / MIB,
				  shortage->shm_bytes / MIB);
	else
		return strdup("");
	return length < 0 ? NULL : text;
}

/* The innermost frame of the user's own; the number of frames: there is none. */
static uint32_t own_frame(struct job *job, const struct stack *stack)
{
	uint32_t at = 0;

	while (at < stack->cnt && !place__is_users(job, stack->frames[at].code))
		at++;
	return at;
}

static char *text_of_frame(struct job *job, const struct frame *frame)
{
	struct code code = stacks__code(job__stacks(job), frame->code);
	const struct hotspot hotspot = {.code = frame->code, .line = code__line(&code, frame->offset), .ns = 1};

	return hotspot__text(job, &hotspot);
}

/*
 * Where was the main thread of a process last seen in the user's own code? A process that ends by
 * itself goes on in the interpreter's after that.
 */
static char *place_of(struct job *job, uint32_t pid)
{
	const struct samples *samples = job__samples(job);

	for (size_t i = samples ? samples__cnt(samples) : 0; i-- > 0;) {
		struct sample sample = samples__get(samples, i);
		struct stack stack;
		uint32_t own;

		if (sample.pid != pid || sample.tid != pid)
			continue;
		stack = stacks__stack(job__stacks(job), sample.stack);
		own = own_frame(job, &stack);
		if (own < stack.cnt)
			return text_of_frame(job, &stack.frames[own]);
	}
	return strdup("");
}

static int describe(struct job *job, struct ending *ending)
{
	ending->at_s = ((double)ending->exit->time_ns - job__window(job)->start_ns) / 1e9;
	ending->name = name_of(ending->target, ending->role);
	ending->how = how_of(ending->exit->exit_code);
	ending->why = why_of(job, ending->exit);
	ending->place = place_of(job, ending->target->pid);
	return ending->name && ending->how && ending->why && ending->place ? 0 : -ENOMEM;
}

/*
 * A trainer's workers are told to end when it does. Another child may be killed by its parent, and nothing is wrong; but if that one soon
 * ends badly itself, the child may be why.
 */
static bool is_no_news(const struct job *job, const struct ending *ending)
{
	const struct rec_proc *parent = job__exit(job, ending->target->parent_pid);
	int signal = WTERMSIG(ending->exit->exit_code);

	if (ending->role != ROLE_CHILD)
		return ending->role == ROLE_WORKER && signal == SIGTERM && parent;
	return !signal || signal == SIGTERM || signal == SIGINT || !parent || !parent->exit_code ||
	       parent->time_ns < ending->exit->time_ns || parent->time_ns - ending->exit->time_ns > SOON_NS;
}

static int by_time(const void *a, const void *b)
{
	const struct ending *x = a, *y = b;

	return COMPARE(x->exit->time_ns, y->exit->time_ns);
}

int endings__find(struct job *job, struct endings *out)
{
	size_t cnt;
	const struct rec_target *targets = job__targets(job, &cnt);
	int err;

	*out = (struct endings){.items = calloc(cnt + 1, sizeof(*out->items))};
	err = out->items ? 0 : -ENOMEM;
	for (size_t i = 0; i < cnt && !err; i++) {
		const struct rec_proc *exit = job__exit(job, targets[i].pid);
		bool is_worker = workers__ended_as_one(&targets[i], exit);

		if (!exit || !exit->exit_code)
			continue;
		out->items[out->cnt] = (struct ending){
			.target = &targets[i], .exit = exit, .role = is_worker ? ROLE_WORKER : targets[i].role};
		if (is_no_news(job, &out->items[out->cnt]))
			continue;
		err = describe(job, &out->items[out->cnt++]);
	}
	if (err)
		endings__release(out);
	else
		qsort(out->items, out->cnt, sizeof(*out->items), by_time);
	return err;
}

void endings__release(struct endings *endings)
{
	for (size_t i = 0; i < endings->cnt; i++) {
		free(endings->items[i].name);
		free(endings->items[i].how);
		free(endings->items[i].why);
		free(endings->items[i].place);
	}
	free(endings->items);
	*endings = (struct endings){0};
}
