// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Samples are packed to half the size of their records: 20 threads at 99 Hz make two million
 * samples in 17 minutes.
 */
#include "user/model/samples.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "include/wait_records.h"
#include "include/waits.h"
#include "user/lib/compare.h"
#include "user/lib/saturating.h"
#include "user/lib/search.h"
#include "user/model/labels.h"
#include "user/model/stacks.h"

struct packed {
	uint64_t time_ns, weight_ns;
	uint32_t native, kernel, file; /* numbers in symbols */
	uint32_t thread, stack, path;
	uint32_t step, waits;
	uint32_t waker, ran_pid;
	int16_t syscall;
	uint8_t kind : 5, enclosed : 1;
	uint8_t resolved : 1, passed : 1; /* as in struct sample */
	uint8_t cause;
};

/*
 * A forward or an evaluation. It is known only at its end, so the paths of the samples in it, which
 * came earlier, lack it.
 */
struct enclosure {
	uint32_t thread, depth;
	uint32_t pid, rule; /* see struct rec_interval */
	uint64_t start_ns, end_ns;
	struct path_span span;
};

static const char *const cause_names[] = {
#define X(id, name) [CAUSE_##id] = name,
	STEPFLAME_WAIT_CAUSES(X) STEPFLAME_REFINED_CAUSES(X)
#undef X
};

const char *sample_cause__name(unsigned int cause)
{
	return cause < CAUSE__END ? cause_names[cause] : "";
}

static int samples__add_sample(struct samples *samples, struct stacks *stacks, const struct rec_sample *record)
{
	struct packed *packed, new = {
				       .time_ns = record->time_ns,
				       .weight_ns = record->weight_ns,
				       .step = record->step,
				       .waits = record->waits,
				       .ran_pid = record->ran_pid,
				       .syscall = record->syscall,
				       .kind = record->kind,
				       .cause = record->cause,
			       };

	if ((record->kind != SAMPLE_CPU && record->kind != SAMPLE_WAIT) || record->cause >= CAUSE__COUNT)
		return -EINVAL;
	if (record->kind == SAMPLE_CPU)
		new.cause = CAUSE_NONE;
	else if (record->cause == CAUSE_NONE)
		new.cause = CAUSE_UNKNOWN;
	if (intern__add(&samples->threads, (uint64_t)record->pid << 32 | record->tid, &new.thread) ||
	    intern__add(&samples->symbols, record->native, &new.native) ||
	    intern__add(&samples->symbols, record->kernel, &new.kernel) ||
	    intern__add(&samples->symbols, record->file, &new.file) ||
	    intern__add(&samples->wakers, (uint64_t)record->waker_pid << 32 | record->waker_tid, &new.waker) ||
	    stacks__stack_number(stacks, record->stack, &new.stack) ||
	    stacks__path_number(stacks, record->path, &new.path))
		return -ENOMEM;
	packed = array__add(&samples->packed, sizeof(*packed));
	if (!packed)
		return -ENOMEM;
	*packed = new;
	return 0;
}

static int samples__add_calls(struct samples *samples, struct stacks *stacks, const struct rec_calls *record)
{
	uint32_t code, path;
	struct calls *calls;

	if (!record->code || record->primitive_calls > record->calls)
		return -EINVAL;
	if (stacks__code_number(stacks, record->code, &code) || stacks__path_number(stacks, record->path, &path))
		return -ENOMEM;
	calls = MAP_ADD(&samples->calls, struct calls, &((const uint32_t[]){record->pid, code, path}));
	if (!calls)
		return -ENOMEM;
	*calls = (struct calls){record->pid,     code, path, record->calls, record->primitive_calls, record->self_ns,
				record->total_ns};
	return 0;
}

/* What threads wait on at an instruction. */
struct awaited_place {
	uint32_t code, offset; /* the key */
	uint32_t kinds;        /* 1 << enum awaited_kind */
	uint64_t name;         /* of AWAITED_FILES; FAR_MANY */
};

#define FAR_MANY UINT64_MAX

static int samples__add_awaited(struct samples *samples, struct stacks *stacks, const struct rec_awaited *record)
{
	struct awaited_place *place;
	uint32_t code;

	if (!record->code || record->on >= AWAITED__COUNT)
		return -EINVAL;
	if (stacks__code_number(stacks, record->code, &code))
		return -ENOMEM;
	place = MAP_ADD(&samples->awaited, struct awaited_place, &((const uint32_t[]){code, record->offset}));
	if (!place)
		return -ENOMEM;
	place->kinds |= 1u << record->on;
	if (record->on == AWAITED_FILES)
		place->name = !record->name || (place->name && place->name != record->name) ? FAR_MANY : record->name;
	return 0;
}

static int samples__add_pause(struct samples *samples, const struct rec_interval *record)
{
	struct gc_pause *pause = array__add(&samples->pauses, sizeof(*pause));

	if (!pause)
		return -ENOMEM;
	*pause = (struct gc_pause){record->start_ns, record->duration_ns, record->name, record->pid, record->step};
	return 0;
}

static int samples__add_enclosure(struct samples *samples, const struct rec_interval *record)
{
	struct enclosure *new = array__add(&samples->enclosures, sizeof(*new));

	if (!new)
		return -ENOMEM;
	*new = (struct enclosure){.depth = record->depth,
				  .pid = record->pid,
				  .rule = record->rule,
				  .start_ns = record->start_ns,
				  .end_ns = saturating__add(record->start_ns, record->duration_ns),
				  .span = {.name = record->name, .kind = record->kind}};
	samples->has_rules |= record->rule != STEP_NONE;
	return intern__add(&samples->threads, (uint64_t)record->pid << 32 | record->tid, &new->thread);
}

static int samples__add_interval(struct samples *samples, const struct rec_interval *record)
{
	if (!record->name)
		return -EINVAL;
	if (record->kind == SPAN_GC)
		return samples__add_pause(samples, record);
	if (record->kind == SPAN_FORWARD || record->kind == SPAN_VALIDATION)
		return samples__add_enclosure(samples, record);
	return -EINVAL;
}

static int samples__add_around(struct samples *samples, struct stacks *stacks, const struct rec_around *record)
{
	struct around *around = array__add(&samples->arounds, sizeof(*around));

	if (!around)
		return -ENOMEM;
	*around = (struct around){.name = record->name, .kind = record->kind, .nested = record->nested};
	return stacks__stack_number(stacks, record->stack, &around->stack);
}

int samples__add(struct samples *samples, struct stacks *stacks, const struct rec_hdr *record)
{
	switch (record->type) {
	case REC_SAMPLE:
		return samples__add_sample(samples, stacks, (const void *)record);
	case REC_INTERVAL:
		return samples__add_interval(samples, (const void *)record);
	case REC_AROUND:
		return samples__add_around(samples, stacks, (const void *)record);
	case REC_CALLS:
		return samples__add_calls(samples, stacks, (const void *)record);
	case REC_AWAITED:
		return samples__add_awaited(samples, stacks, (const void *)record);
	default:
		return -EINVAL;
	}
}

/* ---- causes ---- */

/* Whether the file's path ends with these components. */
static bool is_in_file(const struct code *code, const struct names *names, const char *end)
{
	const char *file = names__find(names, code->file);
	size_t length = file ? strlen(file) : 0, wanted = strlen(end);

	return compare__ends_with(file, end) && (length == wanted || file[length - wanted - 1] == '/');
}

/* Without the class that the names of Python 3.11 and later have. */
static bool is_named(const struct code *code, const struct names *names, const char *wanted)
{
	const char *name = names__find(names, code->name), *dot = name ? strrchr(name, '.') : NULL;

	return name && !strcmp(dot ? dot + 1 : name, wanted);
}

/*
 * The methods of _MultiProcessingDataLoaderIter that wait for workers (torch 1.8 to 2.15), and of
 * torchdata's copy of it. The single-process iterators have neither.
 */
static bool is_worker_wait(const struct code *code, const struct names *names)
{
	return (is_in_file(code, names, "torch/utils/data/dataloader.py") ||
		is_in_file(code, names, "torchdata/stateful_dataloader/stateful_dataloader.py")) &&
	       (is_named(code, names, "_try_get_data") || is_named(code, names, "_get_data"));
}

/*
 * Functions of threading.py that wait for what another thread does. Queues, futures, events,
 * barriers and pools are made of them. `with lock` is none of these, nor is Condition.__enter__.
 * Those of multiprocessing wait for another process in the same way.
 */
static bool is_handover(const struct code *code, const struct names *names)
{
	static const char *const waits[] = {"wait", "join", "_wait_for_tstate_lock"};

	if (!is_in_file(code, names, "threading.py") && !is_in_file(code, names, "multiprocessing/synchronize.py"))
		return false;
	for (size_t i = 0; i < sizeof(waits) / sizeof(*waits); i++)
		if (is_named(code, names, waits[i]))
			return true;
	return false;
}

/* The functions of Python that call autograd's engine (torch 1.8 to 2.15). */
static bool calls_engine(const struct code *code, const struct names *names)
{
	if (is_in_file(code, names, "torch/autograd/graph.py"))
		return is_named(code, names, "_engine_run_backward");
	return is_in_file(code, names, "torch/autograd/__init__.py") &&
	       (is_named(code, names, "backward") || is_named(code, names, "grad"));
}

/* What the innermost function waits on there, if it is always the same. NULL: that is not known. */
static const struct awaited_place *awaited_by(const struct samples *samples, const struct stack *stack,
					      enum awaited_kind kind)
{
	const struct awaited_place *place;

	if (!stack->cnt)
		return NULL;
	place = MAP_FIND(&samples->awaited, struct awaited_place,
			 &((const uint32_t[]){stack->frames[0].code, stack->frames[0].offset}));
	return place && place->kinds == 1u << kind ? place : NULL;
}

/* What a function's frames say of a wait. */
struct code_waits {
	bool worker, hands_over, engine;
};

static void refine_stack(struct samples *samples, const struct stacks *stacks, const struct code_waits *codes, size_t i)
{
	struct stack stack = stacks__stack(stacks, i);
	const struct awaited_place *place = awaited_by(samples, &stack, AWAITED_FILES);
	bool *loader = (bool *)samples->loaders.items + i, *engine = (bool *)samples->engines.items + i;
	uint8_t *handover = (uint8_t *)samples->handovers.items + i;

	*loader = false;
	for (uint32_t f = 0; f < stack.cnt; f++)
		*loader |= codes[stack.frames[f].code].worker;
	*engine = stack.cnt && codes[stack.frames[0].code].engine;
	if (*engine || (stack.cnt && codes[stack.frames[0].code].hands_over) ||
	    awaited_by(samples, &stack, AWAITED_QUEUE))
		*handover = HANDOVER_CERTAIN;
	else
		*handover = awaited_by(samples, &stack, AWAITED_ACQUIRE) ? HANDOVER_PERHAPS : HANDOVER_NONE;
	((uint64_t *)samples->far_files.items)[i] = place ? place->name : 0;
}

static int refine_stacks(struct samples *samples, const struct stacks *stacks, const struct names *names)
{
	size_t code_end = stacks__code_end(stacks), stack_end = stacks__stack_end(stacks);
	struct code_waits *codes = calloc(code_end, sizeof(*codes));

	if (!codes || array__grow(&samples->loaders, stack_end, sizeof(bool)) ||
	    array__grow(&samples->engines, stack_end, sizeof(bool)) ||
	    array__grow(&samples->handovers, stack_end, sizeof(uint8_t)) ||
	    array__grow(&samples->far_files, stack_end, sizeof(uint64_t))) {
		free(codes);
		return -ENOMEM;
	}
	for (size_t i = 0; i < code_end; i++) {
		struct code code = stacks__code(stacks, i);

		codes[i] = (struct code_waits){is_worker_wait(&code, names), is_handover(&code, names),
					       calls_engine(&code, names)};
	}
	for (size_t i = 0; i < stack_end; i++)
		refine_stack(samples, stacks, codes, i);
	free(codes);
	return 0;
}

/* The innermost waiting span decides. */
static uint8_t cause_of_path(const struct path *path)
{
	for (uint32_t i = path->cnt; i > 0; i--) {
		if (path->spans[i - 1].kind == SPAN_COMM)
			return CAUSE_COLLECTIVE;
		if (path->spans[i - 1].kind == SPAN_SYNC)
			return CAUSE_GPU_SYNC;
		if (path->spans[i - 1].kind == SPAN_AWAIT)
			return CAUSE_XLA_WAIT;
	}
	return CAUSE_NONE;
}

static int compare_enclosure(const void *a, const void *b)
{
	const struct enclosure *x = a, *y = b;

	return x->thread != y->thread ? COMPARE(x->thread, y->thread) : COMPARE(x->start_ns, y->start_ns);
}

/*
 * The last enclosure of the sample's thread that began before the sample, unless it had already
 * ended.
 */
static const struct enclosure *find_enclosure(const struct samples *samples, const struct packed *packed)
{
	const struct enclosure *all = samples->enclosures.items;
	const struct enclosure key = {.thread = packed->thread, .start_ns = packed->time_ns};
	size_t low = SEARCH(i, 0, samples->enclosures.cnt, compare_enclosure(&all[i], &key) <= 0);
	if (!low || all[low - 1].thread != packed->thread || all[low - 1].end_ns < packed->time_ns)
		return NULL;
	return &all[low - 1];
}

/*
 * zero_grad is as often in the middle of a forward as before it, and does not belong to it;
 * bpf/span.h agrees.
 */
static bool is_apart(const struct stacks *stacks, uint32_t number, const struct names *names)
{
	struct path path = stacks__path(stacks, number);

	for (uint32_t i = 0; i < path.cnt; i++)
		if (labels__phase(path.spans[i].kind, names__find(names, path.spans[i].name)) == PHASE_OPTIMIZER)
			return true;
	return false;
}

static int put_enclosures(struct samples *samples, struct stacks *stacks, const struct names *names)
{
	struct packed *packed = samples->packed.items;

	if (samples->enclosures.cnt)
		qsort(samples->enclosures.items, samples->enclosures.cnt, sizeof(struct enclosure), compare_enclosure);
	for (size_t i = 0; samples->enclosures.cnt && i < samples->packed.cnt; i++) {
		const struct enclosure *found = packed[i].enclosed ? NULL : find_enclosure(samples, &packed[i]);

		if (!found || (found->span.kind == SPAN_FORWARD && is_apart(stacks, packed[i].path, names)))
			continue;
		if (stacks__path_with(stacks, packed[i].path, &found->span, found->depth, &packed[i].path))
			return -ENOMEM;
		packed[i].enclosed = true;
	}
	return 0;
}

bool samples__has_rules(const struct samples *samples)
{
	return samples->has_rules;
}

void samples__choose_rules(struct samples *samples, bool (*is_by)(uint32_t pid, uint32_t rule, void *ctx), void *ctx)
{
	struct enclosure *all = samples->enclosures.items;
	size_t retained_cnt = 0;

	for (size_t i = 0; i < samples->enclosures.cnt; i++)
		if (all[i].rule == STEP_NONE || is_by(all[i].pid, all[i].rule, ctx))
			all[retained_cnt++] = all[i];
	samples->enclosures.cnt = retained_cnt;
	samples->has_rules = false;
}

int samples__refine(struct samples *samples, struct stacks *stacks, const struct names *names)
{
	int err = put_enclosures(samples, stacks, names);
	size_t path_end = stacks__path_end(stacks);
	uint8_t *causes;

	if (err)
		return err;
	if (array__grow(&samples->causes, path_end, sizeof(*causes)))
		return -ENOMEM;
	causes = samples->causes.items;
	for (size_t i = 0; i < path_end; i++) {
		struct path path = stacks__path(stacks, i);

		causes[i] = cause_of_path(&path);
	}
	stacks__find_own(stacks, names);
	return refine_stacks(samples, stacks, names);
}

/*
 * A thread may wait for anything by these causes. The other causes say more than the stack does: a
 * page fault or the GIL is not a batch of data.
 */
static bool is_vague_cause(unsigned int cause)
{
	return cause == CAUSE_LOCK || cause == CAUSE_SLEEP || cause == CAUSE_PIPE || cause == CAUSE_SOCKET ||
	       cause == CAUSE_POLL || cause == CAUSE_UNKNOWN;
}

/* Of a call on names of files, of which the kernel's cause says a disk, or nothing. */
static bool asks_far_files(const struct samples *samples, const struct packed *packed)
{
	uint32_t rule = packed->syscall < 0 ? CAUSE_UNKNOWN : syscall__rule(packed->syscall);

	return (rule == RULE_OPEN || rule == RULE_OPENAT || rule == RULE_META || rule == RULE_META_WRITE) &&
	       (packed->cause == CAUSE_UNKNOWN || packed->cause == CAUSE_DISK_READ ||
		packed->cause == CAUSE_DISK_WRITE) &&
	       ((const uint64_t *)samples->far_files.items)[packed->stack];
}

static unsigned int refined_cause(const struct samples *samples, const struct packed *packed)
{
	uint8_t of_path = ((const uint8_t *)samples->causes.items)[packed->path];

	if (!packed->resolved && asks_far_files(samples, packed))
		return CAUSE_FILE_SYSTEM;
	if (packed->resolved || !is_vague_cause(packed->cause))
		return packed->cause;
	if (of_path != CAUSE_NONE)
		return of_path;
	return ((const bool *)samples->loaders.items)[packed->stack] ? CAUSE_DATA_WAIT : packed->cause;
}

/* ---- what reports read ---- */

size_t samples__cnt(const struct samples *samples)
{
	return samples->packed.cnt;
}

uint32_t samples__thread_of(const struct samples *samples, size_t index)
{
	return ((const struct packed *)samples->packed.items)[index].thread;
}

struct sample samples__get(const struct samples *samples, size_t index)
{
	const struct packed *packed = &((const struct packed *)samples->packed.items)[index];
	uint64_t waker = intern__key(&samples->wakers, packed->waker);
	struct sample sample = {
		.time_ns = packed->time_ns,
		.weight_ns = packed->weight_ns,
		.native = intern__key(&samples->symbols, packed->native),
		.kernel = intern__key(&samples->symbols, packed->kernel),
		.file = intern__key(&samples->symbols, packed->file),
		.thread = packed->thread,
		.stack = packed->stack,
		.path = packed->path,
		.step = packed->step,
		.waits = packed->waits,
		.waker_pid = waker >> 32,
		.waker_tid = waker,
		.ran_pid = packed->ran_pid,
		.syscall = packed->syscall,
		.kind = packed->kind,
		.resolved = packed->resolved,
		.passed = packed->passed,
		.cause = refined_cause(samples, packed),
	};

	samples__thread(samples, packed->thread, &sample.pid, &sample.tid);
	return sample;
}

enum handover samples__hands_over(const struct samples *samples, uint32_t stack)
{
	return ((const uint8_t *)samples->handovers.items)[stack];
}

bool samples__runs_backward(const struct samples *samples, const struct sample *sample)
{
	return sample->cause == CAUSE_THREAD_WAIT && ((const bool *)samples->engines.items)[sample->stack];
}

bool samples__awaits_gpu(const struct samples *samples, uint32_t path)
{
	return ((const uint8_t *)samples->causes.items)[path] == CAUSE_GPU_SYNC;
}

uint64_t samples__far_files(const struct samples *samples, uint32_t stack)
{
	uint64_t name = ((const uint64_t *)samples->far_files.items)[stack];

	return name == FAR_MANY ? 0 : name;
}

uint32_t samples__waker_of(const struct samples *samples, size_t index)
{
	const struct packed *packed = &((const struct packed *)samples->packed.items)[index];

	return intern__find(&samples->threads, intern__key(&samples->wakers, packed->waker));
}

void samples__resolve(struct samples *samples, size_t index, unsigned int cause, uint32_t waker, bool passed)
{
	struct packed *packed = &((struct packed *)samples->packed.items)[index];
	uint32_t number = intern__find(&samples->wakers, intern__key(&samples->threads, waker));

	packed->cause = cause;
	packed->resolved = true;
	packed->passed = passed;
	packed->waker = number ?: packed->waker;
}

void samples__set_cause(struct samples *samples, size_t index, unsigned int cause)
{
	((struct packed *)samples->packed.items)[index].cause = cause;
}

size_t samples__thread_end(const struct samples *samples)
{
	return intern__end(&samples->threads);
}

void samples__thread(const struct samples *samples, uint32_t thread, uint32_t *pid, uint32_t *tid)
{
	uint64_t key = intern__key(&samples->threads, thread);

	*pid = key >> 32;
	*tid = key;
}

const struct around *samples__arounds(const struct samples *samples, size_t *cnt)
{
	*cnt = samples->arounds.cnt;
	return samples->arounds.items;
}

const struct gc_pause *samples__gc_pauses(const struct samples *samples, size_t *cnt)
{
	*cnt = samples->pauses.cnt;
	return samples->pauses.items;
}

const struct calls *samples__calls(const struct samples *samples, size_t *cnt)
{
	*cnt = samples->calls.items.cnt;
	return samples->calls.items.items;
}

void samples__forget(struct samples *samples)
{
	samples->packed.cnt = samples->enclosures.cnt = samples->pauses.cnt = samples->arounds.cnt = 0;
	intern__free(&samples->threads);
	intern__free(&samples->symbols);
	intern__free(&samples->wakers);
}

void samples__free(struct samples *samples)
{
	map__free(&samples->calls);
	free(samples->packed.items);
	free(samples->enclosures.items);
	free(samples->pauses.items);
	free(samples->arounds.items);
	free(samples->loaders.items);
	free(samples->handovers.items);
	free(samples->far_files.items);
	free(samples->causes.items);
	free(samples->engines.items);
	map__free(&samples->awaited);
	intern__free(&samples->threads);
	intern__free(&samples->symbols);
	intern__free(&samples->wakers);
	*samples = (struct samples){0};
}

/* ---- by thread ---- */

int by_thread__new(const struct samples *samples, struct by_thread *by)
{
	size_t cnt = samples__cnt(samples), end = samples__thread_end(samples);

	*by = (struct by_thread){
		.samples = samples,
		.indexes = calloc(cnt + 1, sizeof(*by->indexes)),
		.first = calloc(end + 2, sizeof(*by->first)),
	};
	if (!by->indexes || !by->first)
		return -ENOMEM;
	for (size_t i = 0; i < cnt; i++)
		by->first[samples__thread_of(samples, i) + 2]++;
	for (size_t t = 1; t < end + 2; t++)
		by->first[t] += by->first[t - 1];
	for (size_t i = 0; i < cnt; i++)
		by->indexes[by->first[samples__thread_of(samples, i) + 1]++] = i;
	return 0;
}

void by_thread__release(struct by_thread *by)
{
	free(by->indexes);
	free(by->first);
	*by = (struct by_thread){0};
}

uint32_t by_thread__find(const struct by_thread *by, uint32_t pid, uint32_t tid)
{
	uint32_t thread_pid, thread_tid;

	for (size_t t = 1; t < samples__thread_end(by->samples); t++) {
		samples__thread(by->samples, t, &thread_pid, &thread_tid);
		if (thread_pid == pid && thread_tid == tid)
			return t;
	}
	return 0;
}

size_t by_thread__cnt(const struct by_thread *by, uint32_t thread)
{
	return by->first[thread + 1] - by->first[thread];
}

size_t by_thread__index(const struct by_thread *by, uint32_t thread, size_t n)
{
	return by->indexes[by->first[thread] + n];
}

struct sample by_thread__get(const struct by_thread *by, uint32_t thread, size_t n)
{
	return samples__get(by->samples, by_thread__index(by, thread, n));
}

size_t by_thread__ended(const struct by_thread *by, uint32_t thread, uint64_t time_ns)
{
	size_t low = SEARCH(i, 0, by_thread__cnt(by, thread), by_thread__get(by, thread, i).time_ns <= time_ns);
	return low;
}
