// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Takes records, and returns what they say about a job. One thread owns a job.
 *
 * A cumulative record replaces the earlier state of its key. Rows are built on demand, and rebuilt
 * after the next record.
 */
#include "user/model/job.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "include/counters.h"
#include "include/records.h"
#include "user/lib/array.h"
#include "user/lib/map.h"
#include "user/lib/names.h"
#include "user/lib/saturating.h"
#include "user/lib/utf8.h"
#include "user/model/actions.h"
#include "user/model/boundaries.h"
#include "user/model/gpu.h"
#include "user/model/io.h"
#include "user/model/ops.h"
#include "user/model/resources.h"
#include "user/model/rests.h"
#include "user/model/samples.h"
#include "user/model/stacks.h"
#include "user/model/waits.h"
#include "user/recording/descriptors.h"
#include "user/recording/dropped_steps.h"

/* ---- how many child processes and workers there were, in a memory that does not grow with their number ---- */

/* All zeros: empty, and takes none. */
struct children {
	uint8_t *roles;              /* two bits a pid: 0 unknown, or its role + 1; NULL: takes none */
	size_t cnt[ROLE_WORKER + 1]; /* by role, those too whose pid others have now */
};

#define PIDS          (4U << 20) /* the most that pid_max can be */
#define PIDS_PER_BYTE 4
#define ROLE_BITS     2
#define ROLE_MASK     3

/* Makes it take children. 0 or -ENOMEM. */
static int children__init(struct children *children)
{
	children->roles = calloc(PIDS / PIDS_PER_BYTE, 1); /* the kernel gives only the pages that are written to */
	return children->roles ? 0 : -ENOMEM;
}

/* 0, or a role + 1. */
static unsigned int get_word(const struct children *children, uint32_t pid)
{
	return children->roles[pid / PIDS_PER_BYTE] >> pid % PIDS_PER_BYTE * ROLE_BITS & ROLE_MASK;
}

static void set_word(struct children *children, uint32_t pid, unsigned int word)
{
	uint8_t *byte = &children->roles[pid / PIDS_PER_BYTE];
	unsigned int shift = pid % PIDS_PER_BYTE * ROLE_BITS, old = get_word(children, pid);

	if (old == word)
		return;
	if (old)
		children->cnt[old - 1]--;
	if (word)
		children->cnt[word - 1]++;
	*byte = (*byte & ~(ROLE_MASK << shift)) | word << shift;
}

/* Notes the last role of a pid. false if it takes none, or this is no pid of Linux: the caller has to keep it. */
static bool children__set(struct children *children, uint32_t pid, enum target_role role)
{
	if (!children->roles || pid >= PIDS)
		return false;
	set_word(children, pid, role + 1);
	return true;
}

/* The pid is now that of another process: the one before it stays in cnt. */
static void children__again(struct children *children, uint32_t pid)
{
	unsigned int word = children->roles && pid < PIDS ? get_word(children, pid) : 0;

	if (word)
		children->cnt[word - 1]++;
}

/* The pid is that of none of them. */
static void children__unset(struct children *children, uint32_t pid)
{
	if (children->roles && pid < PIDS)
		set_word(children, pid, 0);
}

static void children__free(struct children *children)
{
	free(children->roles);
	*children = (struct children){};
}

/* ---- how processes ended, by pid ---- */

/* All zeros: empty. */
struct exits {
	struct map by_pid; /* struct exit */
};

struct exit {
	uint64_t pid;
	struct rec_proc record;
};

/* Takes a REC_PROC; the caller has checked its size. 0 or -ENOMEM. */
static int exits__add(struct exits *exits, const struct rec_proc *record)
{
	const uint64_t pid = record->pid;
	struct exit *exit;

	if (record->event != PROC_EXIT)
		return 0;
	exit = MAP_ADD(&exits->by_pid, struct exit, &pid);
	if (!exit)
		return -ENOMEM;
	exit->record = *record;
	return 0;
}

/* Another process has begun with that pid: true if one had ended with it, which is no longer found. */
static bool exits__forget(struct exits *exits, __u32 pid)
{
	const uint64_t key = pid;
	struct exit *exit = MAP_FIND(&exits->by_pid, struct exit, &key);

	if (!exit || exit->record.event != PROC_EXIT)
		return false;
	exit->record.event = 0;
	return true;
}

/* The last process with that pid, valid until the next record; NULL: no such process. */
static const struct rec_proc *exits__find(const struct exits *exits, __u32 pid)
{
	const uint64_t key = pid;
	const struct exit *exit = MAP_FIND(&exits->by_pid, struct exit, &key);

	return exit && exit->record.event == PROC_EXIT ? &exit->record : NULL;
}

static void exits__free(struct exits *exits)
{
	map__free(&exits->by_pid);
}

struct dropped_row {
	struct dropped_key {
		uint32_t pid, tid, rule, pad;
	} key;
	struct rec_dropped_steps steps;
};

struct job {
	struct array hosts; /* struct rec_host; each comes before the records of its targets */
	struct rec_window window;
	struct rec_cost cost;
	struct rec_dropped dropped;
	struct map dropped_steps; /* struct dropped_row */
	uint64_t malformed;
	struct names names;
	struct ops ops;
	struct stacks stacks;
	struct samples samples;
	struct io io;
	struct gpu gpu;
	struct resources resources;
	struct rests rests;
	bool unrefined;          /* records came since samples__refine */
	struct array boundaries; /* struct rec_step */
	struct exits exits;
	struct actions actions;
	uint64_t known[CNT__COUNT];
	struct map unknown_names;
	struct array unknown;  /* uint64_t by name */
	struct array counters; /* struct job_counter, as returned by job__counters */
	struct array targets;  /* struct rec_target */
	struct intern target_pids;
	struct children children; /* those that are not among targets */
	struct array on;    /* uint32_t by target: number of its host in hosts, from 1; 0: no host came before it */
	struct array notes; /* char *, owned */
};

static const char *const counter_names[] = {
#define X(id, name, meaning) name,
	STEPFLAME_COUNTERS(X)
#undef X
};

struct job *job__new(void)
{
	return calloc(1, sizeof(struct job));
}

void job__free(struct job *job)
{
	if (!job)
		return;
	names__free(&job->names);
	map__free(&job->dropped_steps);
	ops__free(&job->ops);
	stacks__free(&job->stacks);
	samples__free(&job->samples);
	io__free(&job->io);
	gpu__free(&job->gpu);
	resources__free(&job->resources);
	rests__free(&job->rests);
	actions__free(&job->actions);
	for (size_t i = 0; i < job->notes.cnt; i++)
		free(((char **)job->notes.items)[i]);
	map__free_texts(&job->unknown_names);
	free(job->unknown.items);
	free(job->counters.items);
	free(job->hosts.items);
	free(job->targets.items);
	intern__free(&job->target_pids);
	children__free(&job->children);
	free(job->on.items);
	free(job->notes.items);
	free(job->boundaries.items);
	exits__free(&job->exits);
	free(job);
}

/* A target or a file fills text fields of fixed size: make them valid, NUL-terminated UTF-8. */
#define CLEAN(field)                                                \
	do {                                                        \
		char raw[sizeof(field)];                            \
                                                                    \
		memcpy(raw, (field), sizeof(raw));                  \
		utf8__copy((field), sizeof(raw), raw, sizeof(raw)); \
	} while (0)

/* Counts an invalid record (-EINVAL) and returns 0 for it. */
static int count_malformed(struct job *job, int err)
{
	if (err != -EINVAL)
		return err;
	job->malformed++;
	return 0;
}

static int job__add_host(struct job *job, const struct rec_hdr *record)
{
	struct rec_host *host = array__add(&job->hosts, sizeof(*host));

	if (!host)
		return -ENOMEM;
	memcpy(host, record, sizeof(*host));
	CLEAN(host->version);
	CLEAN(host->hostname);
	CLEAN(host->kernel);
	return 0;
}

#define TARGET_KEY(pid) (1ull << 32 | (pid)) /* 0 is not a valid key */

static int job__add_target(struct job *job, const struct rec_hdr *record)
{
	const struct rec_target *new = (const void *)record;
	struct rec_target *target;
	uint32_t number;

	if (new->role > ROLE_WORKER)
		return count_malformed(job, -EINVAL);
	if (new->role != ROLE_MAIN && !job__target(job, new->pid) && children__set(&job->children, new->pid, new->role))
		return 0;
	children__unset(&job->children, new->pid);
	if (intern__add(&job->target_pids, TARGET_KEY(new->pid), &number) ||
	    array__grow(&job->targets, number, sizeof(*target)))
		return -ENOMEM;
	while (job->on.cnt < number) {
		uint32_t *on = array__add(&job->on, sizeof(*on));

		if (!on)
			return -ENOMEM;
		*on = job->hosts.cnt;
	}
	target = &((struct rec_target *)job->targets.items)[number - 1];
	*target = *new;
	CLEAN(target->python);
	CLEAN(target->torch);
	CLEAN(target->jax);
	CLEAN(target->command);
	return 0;
}

static int job__add_name(struct job *job, const struct rec_hdr *record)
{
	const struct rec_name *name = (const void *)record;
	bool known = name->encoding == NAME_UTF8 || name->encoding == NAME_LATIN1 || name->encoding == NAME_UCS2 ||
		     name->encoding == NAME_UCS4;

	if (!name->id || !known || name->bytes > record->size - sizeof(*name))
		return count_malformed(job, -EINVAL);
	return names__add(&job->names, name);
}

static int job__add_window(struct job *job, const struct rec_hdr *record)
{
	const struct rec_window *window = (const void *)record;

	if (window->end_ns < window->start_ns || window->step_rule >= STEP__COUNT)
		return count_malformed(job, -EINVAL);
	job->window = *window;
	return 0;
}

static int job__add_counter(struct job *job, const struct rec_hdr *record)
{
	struct rec_counter new = *(const struct rec_counter *)record;
	uint32_t index;

	CLEAN(new.name);
	for (size_t i = 0; i < CNT__COUNT; i++) {
		if (!strcmp(counter_names[i], new.name)) {
			job->known[i] = new.value;
			return 0;
		}
	}
	if (map__add_text(&job->unknown_names, new.name, &index) ||
	    array__grow(&job->unknown, index + 1, sizeof(uint64_t)))
		return -ENOMEM;
	((uint64_t *)job->unknown.items)[index] = new.value;
	return 0;
}

static int job__add_cost(struct job *job, const struct rec_hdr *record)
{
	memcpy(&job->cost, record, sizeof(job->cost));
	return 0;
}

/* In a merged recording, one for each file: all of them have what came after the last. */
static int job__add_dropped(struct job *job, const struct rec_hdr *record)
{
	const struct rec_dropped *new = (const void *)record;

	job->dropped.hdr = new->hdr;
	if (new->time_ns > job->dropped.time_ns)
		job->dropped.time_ns = new->time_ns;
	job->dropped.events = saturating__add(job->dropped.events, new->events);
	job->dropped.states = saturating__add(job->dropped.states, new->states);
	return 0;
}

static int job__add_dropped_steps(struct job *job, const struct rec_hdr *record)
{
	const struct rec_dropped_steps *new = (const void *)record;
	const struct dropped_key key = {new->pid, new->tid, new->rule, 0};
	struct dropped_row *row = MAP_ADD(&job->dropped_steps, struct dropped_row, &key);

	if (!row)
		return -ENOMEM;
	row->steps = *new;
	return 0;
}

static int job__add_note(struct job *job, const struct rec_hdr *record)
{
	const struct rec_note *note = (const void *)record;
	char **slot, *text;

	if (note->bytes > record->size - sizeof(*note))
		return count_malformed(job, -EINVAL);
	text = name__utf8(note->text, note->bytes, NAME_UTF8, false);
	slot = text ? array__add(&job->notes, sizeof(*slot)) : NULL;
	if (!slot) {
		free(text);
		return -ENOMEM;
	}
	*slot = text;
	return 0;
}

static int job__add_action(struct job *job, const struct rec_hdr *record)
{
	return count_malformed(job, actions__add(&job->actions, record));
}

static int job__add_ops(struct job *job, const struct rec_hdr *record)
{
	return count_malformed(job, ops__add(&job->ops, record));
}

static int job__add_stacks(struct job *job, const struct rec_hdr *record)
{
	return count_malformed(job, stacks__add(&job->stacks, record));
}

static int job__add_samples(struct job *job, const struct rec_hdr *record)
{
	return count_malformed(job, samples__add(&job->samples, &job->stacks, record));
}

static int job__add_boundary(struct job *job, const struct rec_hdr *record)
{
	const struct rec_step *new = (const void *)record;
	struct rec_step *boundary;

	if (new->rule == STEP_NONE || new->rule >= STEP__COUNT)
		return count_malformed(job, -EINVAL);
	boundary = array__add(&job->boundaries, sizeof(*boundary));
	if (!boundary)
		return -ENOMEM;
	*boundary = *new;
	return 0;
}

static int job__add_proc(struct job *job, const struct rec_hdr *record)
{
	const struct rec_proc *proc = (const void *)record;

	/* The target has been told of before it began, and has taken the place of the one that ended. */
	if (proc->event == PROC_FORK && exits__forget(&job->exits, proc->pid)) {
		const struct rec_target *target = job__target(job, proc->pid);

		if (target && target->role != ROLE_MAIN)
			job->children.cnt[target->role]++;
		children__again(&job->children, proc->pid);
	}
	return exits__add(&job->exits, proc);
}

static int job__add_io(struct job *job, const struct rec_hdr *record)
{
	return count_malformed(job, io__add(&job->io, record));
}

static int job__add_gpu(struct job *job, const struct rec_hdr *record)
{
	return count_malformed(job, gpu__add(&job->gpu, &job->stacks, record));
}

static int job__add_resources(struct job *job, const struct rec_hdr *record)
{
	return resources__add(&job->resources, record);
}

static int job__add_rest(struct job *job, const struct rec_hdr *record)
{
	return count_malformed(job, rests__add(&job->rests, record));
}

/* Of what the reader unpacks, it passes on only what is not sound. */
static int job__add_malformed(struct job *job, const struct rec_hdr *record)
{
	(void)record;
	return count_malformed(job, -EINVAL);
}

#define job__add_nothing NULL

/* Readers by record type. */
static int (*const readers[])(struct job *job, const struct rec_hdr *record) = {
#define X(type, record, reader, ...) [REC_##type] = job__add_##reader,
	STEPFLAME_RECORDS(X)
#undef X
};

/* A record may be longer than its struct, since a later version may extend it, but not shorter. */
int job__add(struct job *job, const struct rec_hdr *record)
{
	const struct record_descriptor *descriptor = record_descriptor__of(record->type);

	job->actions.stale = true;
	job->ops.stale = true;
	job->unrefined = true;
	job->gpu.joined = false;
	if (!descriptor || !readers[record->type])
		return 0;
	if (record->size < descriptor->bytes)
		return count_malformed(job, -EINVAL);
	return readers[record->type](job, record);
}

const struct rec_host *job__host(const struct job *job)
{
	static const struct rec_host unknown;

	return job->hosts.cnt ? job->hosts.items : &unknown;
}

const struct rec_window *job__window(const struct job *job)
{
	return &job->window;
}

const struct rec_dropped *job__dropped(const struct job *job)
{
	return &job->dropped;
}

const struct rec_dropped_steps *job__dropped_steps(const struct job *job, uint32_t pid, uint32_t tid, uint32_t rule)
{
	const struct dropped_key key = {pid, tid, rule, 0};
	const struct dropped_row *row = MAP_FIND(&job->dropped_steps, struct dropped_row, &key);

	return row && row->steps.steps ? &row->steps : NULL;
}

uint64_t job__events_from(const struct job *job)
{
	return job->dropped.time_ns > job->window.start_ns ? job->dropped.time_ns : job->window.start_ns;
}

const struct rec_cost *job__cost(const struct job *job)
{
	return &job->cost;
}

const struct rec_target *job__targets(const struct job *job, size_t *cnt)
{
	*cnt = job->targets.cnt;
	return job->targets.items;
}

const struct rec_target *job__target(const struct job *job, uint32_t pid)
{
	uint32_t number = intern__find(&job->target_pids, TARGET_KEY(pid));

	return number && number <= job->targets.cnt ? &((const struct rec_target *)job->targets.items)[number - 1]
						    : NULL;
}

int job__only_count_children(struct job *job)
{
	return children__init(&job->children);
}

size_t job__target_cnt(const struct job *job, enum target_role role)
{
	const struct rec_target *targets = job->targets.items;
	size_t cnt = job->children.cnt[role];

	for (size_t i = 0; i < job->targets.cnt; i++)
		cnt += targets[i].role == role;
	return cnt;
}

bool job__is_main(const struct job *job, uint32_t pid)
{
	const struct rec_target *target = job__target(job, pid);
	size_t cnt;
	const struct rec_target *targets = job__targets(job, &cnt);

	if (target)
		return target->role == ROLE_MAIN;
	for (size_t i = 0; i < cnt; i++)
		if (targets[i].role == ROLE_MAIN)
			return false;
	return true;
}

const char *job__target_host(const struct job *job, size_t target)
{
	const struct rec_host *hosts = job->hosts.items;
	uint32_t on = target < job->targets.cnt ? ((const uint32_t *)job->on.items)[target] : 0;

	for (size_t i = 1; on && i < job->hosts.cnt; i++)
		if (strcmp(hosts[i].hostname, hosts[0].hostname))
			return hosts[on - 1].hostname;
	return NULL;
}

const char *job__name(const struct job *job, uint64_t id)
{
	return names__find(&job->names, id);
}

const char *job__name_or_lost(struct job *job, uint64_t id)
{
	return names__find_or_lost(&job->names, id);
}

char *job__op_source(struct job *job, const struct op_group *group)
{
	return op_group__source(group, &job->names, &job->stacks);
}

bool job__op_group(const struct job *job, uint64_t id, struct op_group *group)
{
	return ops__group(&job->ops, id, group);
}

const struct op_row *job__ops(struct job *job, size_t *cnt)
{
	return ops__rows(&job->ops, &job->names, &job->stacks, cnt);
}

const struct rec_op_window *job__op_windows(struct job *job, size_t *cnt)
{
	return ops__windows(&job->ops, cnt);
}

const struct stacks *job__stacks(const struct job *job)
{
	return &job->stacks;
}

const struct io *job__io(const struct job *job)
{
	return &job->io;
}

const struct gpu *job__gpu(struct job *job)
{
	return gpu__join(&job->gpu, &job->names, job__window(job)) ? NULL : &job->gpu;
}

static int refine_samples(struct job *job)
{
	struct boundaries *boundaries = boundaries__new(job);
	int err;

	if (!boundaries)
		return -ENOMEM;
	if (samples__has_rules(&job->samples))
		samples__choose_rules(&job->samples, boundaries__is_rule, boundaries);
	err = samples__refine(&job->samples, &job->stacks, &job->names);
	if (!err)
		waits__correct_disk(&job->samples, &job->resources);
	err = err ?: waits__resolve(&job->samples, &job->stacks, boundaries__is_thread, boundaries);
	boundaries__free(boundaries);
	return err;
}

const struct samples *job__samples(struct job *job)
{
	if (job->unrefined && refine_samples(job))
		return NULL;
	job->unrefined = false;
	return &job->samples;
}

const struct rec_step *job__boundaries(const struct job *job, size_t *cnt)
{
	*cnt = job->boundaries.cnt;
	return job->boundaries.items;
}

struct resources *job__resources(struct job *job)
{
	return &job->resources;
}

const struct rests *job__rests(const struct job *job)
{
	return &job->rests;
}

const struct rec_proc *job__exit(const struct job *job, uint32_t pid)
{
	return exits__find(&job->exits, pid);
}

void job__forget_samples(struct job *job)
{
	samples__forget(&job->samples);
	gpu__forget(&job->gpu);
	resources__forget(&job->resources);
	job->boundaries.cnt = 0;
}

void job__forget_stacks(struct job *job)
{
	job__forget_samples(job);
	stacks__forget(&job->stacks);
	job->unrefined = true;
}

const char *const *job__notes(const struct job *job, size_t *cnt)
{
	*cnt = job->notes.cnt;
	return job->notes.items;
}

uint64_t job__malformed(const struct job *job)
{
	return job->malformed;
}

static int show_counter(struct job *job, const char *name, uint64_t value)
{
	struct job_counter *counter;

	if (!value)
		return 0;
	counter = array__add(&job->counters, sizeof(*counter));
	if (!counter)
		return -ENOMEM;
	*counter = (struct job_counter){.name = name, .value = value};
	return 0;
}

const struct job_counter *job__counters(struct job *job, size_t *cnt)
{
	char *const *names = job->unknown_names.items.items;
	const uint64_t *unknown = job->unknown.items;
	int err = 0;

	job->counters.cnt = 0;
	for (size_t i = 0; i < CNT__COUNT && !err; i++)
		err = show_counter(job, counter_names[i], job->known[i]);
	for (size_t i = 0; i < job->unknown.cnt && !err; i++)
		err = show_counter(job, names[i], unknown[i]);
	*cnt = err ? 0 : job->counters.cnt;
	return err ? NULL : job->counters.items;
}

const struct job_action *job__actions(struct job *job, size_t *cnt)
{
	return actions__rows(&job->actions, &job->names, cnt);
}
