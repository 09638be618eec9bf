// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/sources/landmarks.h"

#include <errno.h>
#include <string.h>

#include "include/probes.h"
#include "stepflame.skel.h"
#include "user/elf/functions.h"
#include "user/lib/compare.h"
#include "user/lib/log.h"
#include "user/proc/deputy.h"
#include "user/runtime/python/pydict.h"
#include "user/session/programs.h"
#include "user/session/sources/natives.h"
#include "user/session/state.h"
#include "user/x86/flow.h"

/*
 * Probes the ends of Lightning's batch fetches: the exits of the function that next() calls for an
 * object of a Python class. Such classes are common, and a single-stepped probe costs some ten
 * times more (in virtual machines up to a hundred times), so exits that are single-stepped go to
 * `late`.
 */
static int add_fetch_ends(struct probe_list *list, struct probe_list *late, const struct elf *elf, uint64_t iternext)
{
	struct sites sites;
	int err = sites__find(elf, iternext, 0, SITES_STRICT, &sites);

	for (uint32_t i = 0; !err && i < sites.exit_cnt; i++)
		err = probe_list__add_site(sites.exit[0].emulated ? list : late, &sites.exit[i], PROBE_PY_ITER_EXIT, 0,
					   0);
	return err;
}

int landmarks__python(struct probe_list *list, struct probe_list *late, const struct elf *elf,
		      const struct py_functions *functions)
{
	int callee;

	if (!functions->next)
		return -ENOENT;
	callee = sites__find_callee_frame(elf, functions->next, 0);
	/*
	 * Without these two, stepflame misses batch fetches and exceptions inside actions; the rest
	 * works.
	 */
	if (callee < 0 || !functions->iternext || add_fetch_ends(list, late, elf, functions->iternext)) {
		log__warn(NULL, "the interpreter's __next__ slot was not found: rows of batch fetches will be missing");
		callee = 0;
	}
	if (!functions->throw_ ||
	    probe_list__add_function(list, elf, functions->throw_, 0, PROBE_PY_THROW, PROBE_NONE, 0, 0))
		log__warn(NULL,
			  "the interpreter's generator throw() was not found: actions that raise are not counted");
	return probe_list__add_function(list, elf, functions->next, 0, PROBE_PY_NEXT, PROBE_NONE,
					late->cnt ? COOKIE_LATE_FETCHES : 0, callee);
}

int landmarks__gc(struct probe_list *list, const struct elf *elf, const struct py_functions *functions)
{
	const struct py_gc *gc = &functions->gc;
	uint32_t flags = gc->phase_first ? COOKIE_PHASE_FIRST : 0;
	struct sites sites;

	/*
	 * Python may collect a young generation several times per step: too often for a
	 * single-stepped probe.
	 */
	if (!gc->callback || sites__find(elf, gc->callback, 0, SITES_STRICT, &sites) || !sites.entry.emulated)
		return -ENOENT;
	return probe_list__add_site(list, &sites.entry, PROBE_GC, flags, gc->start);
}

/*
 * Prefixes of mangled names: the rest depends on the C++ ABI, and on c10::optional or
 * std::optional.
 */
#define LABEL_ENTER "_ZN5torch8autograd8profiler25record_function_enter_newE"
#define LABEL_LEAVE "_ZN5torch8autograd8profilerL24record_function_exit_newE" /* a local symbol */
#define RECORD_NEW  "_ZN2at14RecordFunctionC1ENS_11RecordScopeE"
#define RECORD_END  "_ZN2at14RecordFunction3endEv"
#define EXECUTE     "_ZN5torch8autograd6Engine7executeE"

enum torch_function { TORCH_ENTER, TORCH_LEAVE, TORCH_END, TORCH_EXECUTE, TORCH__COUNT };

static const char *const torch_prefixes[TORCH__COUNT] = {
	[TORCH_ENTER] = LABEL_ENTER,
	[TORCH_LEAVE] = LABEL_LEAVE,
	[TORCH_END] = RECORD_END,
	[TORCH_EXECUTE] = EXECUTE,
};

static int match_torch_symbol(const struct elf_symbol *symbol, void *ctx)
{
	struct elf_symbol *found = ctx;

	if (!symbol->function || strncmp(symbol->name, "_ZN", 3) || strstr(symbol->name, ".cold"))
		return 0;
	for (int i = 0; i < TORCH__COUNT; i++)
		if (!found[i].name && !strncmp(symbol->name, torch_prefixes[i], strlen(torch_prefixes[i])))
			found[i] = *symbol;
	return 0;
}

/*
 * Probes where a function that makes a label constructs the label's RecordFunction. If the name of
 * the label cannot be found there, also probes the function's entry.
 */
static int add_label_enter(struct probe_list *list, const struct elf *elf, uint64_t vaddr, uint64_t size,
			   uint32_t flags)
{
	struct call_site call;
	int err = sites__find_call(elf, vaddr, size, RECORD_NEW, &call);

	if (!err && call.second_in)
		return probe_list__add_site(list, &call.site, PROBE_LABEL, flags | COOKIE_NAME_IN(call.second_in), 0);
	err = err ?: probe_list__add_site(list, &call.site, PROBE_LABEL_HANDLE, 0, 0);
	return err ?: probe_list__add_function(list, elf, vaddr, size, PROBE_LABEL, PROBE_NONE, flags, 0);
}

/*
 * Debian's torch 1.13 makes its labels with record_function_enter_legacy(name, args), a local
 * function, and its libraries are stripped. The source file is that of record_function_enter_new,
 * so the code is nearby: it is the only other function there that constructs a RecordFunction of
 * the user's scope.
 */
static void add_legacy_label(struct probe_list *list, const struct elf *elf, uint64_t enter, uint32_t flags)
{
	/* mov $RecordScope::USER_SCOPE,%esi */
	static const uint8_t user_scope[] = {0xbe, 7, 0, 0, 0};
	const uint64_t around = 64 << 10, start = enter - around;
	struct function_range range, legacy = {0};
	size_t have;
	const uint8_t *code = elf__bytes(elf, start, 2 * around, &have);

	for (size_t i = 32; code && i + 5 <= have; i++) {
		int32_t distance;
		const char *import;

		/* 0xe8: call rel32 */
		if (code[i] != 0xe8 || !memmem(code + i - 32, 32, user_scope, sizeof(user_scope)))
			continue;
		memcpy(&distance, code + i + 1, sizeof(distance));
		import = flow__import(elf, start + i + 5 + (int64_t)distance);
		if (!import || strcmp(import, RECORD_NEW) || functions__at(elf, start + i, &range) ||
		    range.start == enter || range.start == legacy.start)
			continue;
		if (legacy.start)
			return; /* ambiguous */
		legacy = range;
	}
	if (legacy.start)
		add_label_enter(list, elf, legacy.start, legacy.end - legacy.start, flags);
}

/*
 * A label begins in record_function_enter_new; the RecordFunction that is constructed there
 * identifies it. It ends in record_function_exit_new, at the call of RecordFunction::end. Where
 * local symbols are stripped, it ends in RecordFunction::end itself, which many others call.
 */
static int add_labels(struct probe_list *list, const struct elf *elf, const struct elf_symbol *found)
{
	const struct elf_symbol *enter = &found[TORCH_ENTER], *leave = &found[TORCH_LEAVE], *end = &found[TORCH_END];
	uint32_t flags = strstr(enter->name, "RKSs") ? COOKIE_OLD_STRING : 0;
	struct call_site call;
	int err;

	if (leave->name && !sites__find_call(elf, leave->vaddr, leave->size, RECORD_END, &call)) {
		err = probe_list__add_site(list, &call.site, PROBE_LABEL_END, 0, 0);
	} else {
		err = probe_list__add_function(list, elf, end->vaddr, end->size, PROBE_LABEL_END, PROBE_NONE, 0, 0);
		add_legacy_label(list, elf, enter->vaddr, flags);
	}
	return err ?: add_label_enter(list, elf, enter->vaddr, enter->size, flags);
}

int landmarks__torch(struct probe_list *list, const struct elf *elf)
{
	struct elf_symbol found[TORCH__COUNT] = {0}, *execute = &found[TORCH_EXECUTE];
	bool labels = false, backward;

	elf__each_symbol(elf, match_torch_symbol, found);
	/* Exits before entries. */
	if (found[TORCH_ENTER].name && found[TORCH_END].name)
		labels = !add_labels(list, elf, found);
	backward = execute->name && !probe_list__add_function(list, elf, execute->vaddr, execute->size, PROBE_FN,
							      PROBE_FN_EXIT, 0, NATIVE_BACKWARD);
	if (labels != backward)
		log__warn(NULL, "no probe can be placed on %s of this torch: those rows will be missing",
			  labels ? "backward" : "record_function labels");
	return labels && backward ? 0 : labels || backward ? -ENOTSUP : -ENOENT;
}

int landmarks__backward(struct probe_list *list, const struct elf *elf)
{
	struct elf_symbol found[TORCH__COUNT] = {0}, *execute = &found[TORCH_EXECUTE];

	elf__each_symbol(elf, match_torch_symbol, found);
	return execute->name && !probe_list__add_function(list, elf, execute->vaddr, execute->size, PROBE_FN,
							  PROBE_NONE, 0, NATIVE_BACKWARD)
		       ? 0
		       : -ENOENT;
}

/* ---- the source ---- */

enum landmark_set {
	SET_LANDMARKS,
	SET_ACTIONS, /* of the interpreter: not attached where another loop than Lightning's trains */
	SET_LATE,    /* attached only where Lightning runs */
	SET_GC,      /* never throttled */
};

/*
 * Programs call next() and __next__ for much more than Lightning's actions. So the interpreter's
 * landmarks are detached from a process that makes steps and has not imported Lightning, until it
 * does. (They are attached at first, since a program may begin to train some 0.4 s after it began to
 * import Lightning.)
 *
 * Throttling keeps them from slowing other jobs that have no use for them: while a process shows no
 * action of Lightning and pays more than MAX_SHARE of its time for such hits, stepflame detaches
 * these probes, and attaches them now and then for a trial, in case Lightning starts later; but not
 * while the process imports modules, for which Python calls next() a lot.
 */
#define PERIOD_NS 200000000ULL /* interval for counting hits, length of a trial */
/*
 * Looks for Lightning come at an interval of so much of the time since the process imported
 * something, within these bounds, and take at most one part in LOOK_SHARE of a core.
 */
#define LOOK_PART   (1.0 / 16)
#define LOOK_NS     200000000ULL
#define LOOK_MAX_NS 2000000000ULL
#define LOOK_SHARE  32
#define FAILED_MAX  5              /* looks in a row that say nothing: then it may have imported Lightning */
#define SETTLED_NS  5000000000ULL  /* without a new module: it imports nothing any more */
#define DETACHED_NS 10000000000ULL /* between trials */
#define MAX_SHARE   0.01           /* of the time of one thread */

/* Target state. */
struct landmarks {
	bool lightning;             /* the process has shown an action of Lightning */
	bool looked;                /* it is known what it had imported at some look */
	bool imported;              /* it has imported Lightning */
	uint32_t failed_cnt;        /* looks in a row of which nothing is known */
	bool without;               /* it trains without Lightning: SET_ACTIONS is detached */
	int64_t module_cnt;         /* it had imported so many modules at the last look */
	uint64_t grew_ns;           /* when that was another number than before */
	uint64_t look_at_ns;        /* when the next look is due */
	uint64_t idle_hits;         /* at read_ns */
	uint64_t read_ns;           /* when idle_hits was last read */
	uint64_t detached_until_ns; /* 0: the probes are attached */
	bool noted;
};

static struct landmarks *state_of(const struct target *t)
{
	return target__state(t, SOURCE_LANDMARKS);
}

static enum source_holds holds(struct session *s, struct target *t, const struct mapped_file *file)
{
	return target__is_python(t, file) || file == t->torch_file ? HOLDS_MUST : HOLDS_NO;
}

static void find_in_python(const struct target *t, const struct mapped_file *file, const struct elf *elf,
			   struct probe_list *sets)
{
	const struct py_functions *functions = &t->python.functions;

	if (landmarks__python(&sets[SET_ACTIONS], &sets[SET_LATE], elf, functions))
		log__warn("build Python without stripping its builtin tables, or report this interpreter",
			  "the builtin next() of %s was not found: Lightning's actions will be missing", file->path);
	if (landmarks__gc(&sets[SET_GC], elf, functions))
		log__warn(NULL, "no probe can be placed on garbage collection in %s: those rows will be missing",
			  file->path);
}

/* The search takes 80 to 220 ms. */
static void find_in_torch(const struct mapped_file *file, const struct elf *elf, struct probe_list *sets)
{
	int err;

	if (!probe_lists__load(elf, "landmarks", sets, 1))
		return;
	err = landmarks__torch(sets, elf);
	if (err == -ENOENT)
		log__warn(NULL, "%s exports none of torch's landmarks: labels and backward will be missing",
			  file->path);
	if (!err)
		probe_lists__save(elf, "landmarks", sets, 1);
}

static int find(struct session *s, struct target *t, const struct mapped_file *file, struct elf *elf,
		struct probe_list sets[SOURCE_SETS])
{
	if (target__is_python(t, file))
		find_in_python(t, file, elf, sets);
	if (file == t->torch_file)
		find_in_torch(file, elf, sets);
	return 0;
}

/* Lightning, under its own names, or its module of profilers under another one (bpf/actions.h: is_profile). */
static bool is_lightning(const char *module)
{
	if (!strcmp(module, "lightning") || !strcmp(module, "pytorch_lightning"))
		return true;
	return strncmp(module, "torch.", 6) &&
	       (compare__ends_with(module, ".profilers.profiler") || compare__ends_with(module, ".profiler.profiler") ||
		compare__ends_with(module, ".profiler.base"));
}

static uint64_t look_interval_ns(const struct landmarks *l, uint64_t now)
{
	uint64_t ns = (uint64_t)(LOOK_PART * (now - l->grew_ns));

	return ns < LOOK_NS ? LOOK_NS : ns < LOOK_MAX_NS ? ns : LOOK_MAX_NS;
}

static void look_for_lightning(struct target *t)
{
	struct landmarks *l = state_of(t);
	uint64_t now = session__now_ns(), cpu_ns;
	int64_t before = l->module_cnt;
	int found;

	if (l->lightning || now < l->look_at_ns)
		return;
	cpu_ns = deputy__cpu_ns();
	found = py_modules__any(t->process.pid, &t->python, is_lightning, &l->module_cnt);
	l->imported = l->imported || found > 0;
	l->failed_cnt = found < 0 ? l->failed_cnt + 1 : 0;
	l->looked = l->looked || found >= 0;
	if (l->module_cnt != before)
		l->grew_ns = now;
	l->look_at_ns = now + look_interval_ns(l, now) + LOOK_SHARE * (deputy__cpu_ns() - cpu_ns);
}

static bool may_be_lightning(const struct session *s, const struct target *t)
{
	return !state_of(t)->without;
}

static bool shows_lightning(const struct session *s, const struct target *t)
{
	return state_of(t)->lightning;
}

/* Makes BPF look for the ends of fetches from now on. */
static int enable_fetches(struct session *s, struct target *t)
{
	struct proc_command command = {.what = COMMAND_FETCHES, .pid = t->process.pid};

	return programs__command(s->skel, &command);
}

static bool on_lightning(struct session *s, const struct rec_hdr *record)
{
	const struct rec_proc *rec = (const void *)record;
	struct target *t = rec->event == PROC_LIGHTNING ? targets__find(s, rec->pid) : NULL;

	if (t) {
		state_of(t)->lightning = true;
		target__attach_again(s, t);
	}
	return false;
}

static void detach_actions(struct session *s, struct target *t)
{
	target__detach_set(s, t, SOURCE_LANDMARKS, SET_ACTIONS, t->python_dev, t->python_inode);
	target__detach_set(s, t, SOURCE_LANDMARKS, SET_LATE, t->python_dev, t->python_inode);
}

static void throttle_landmarks(struct session *s, struct target *t, uint64_t idle, uint64_t elapsed_ns, uint64_t now)
{
	struct landmarks *l = state_of(t);

	detach_actions(s, t);
	l->detached_until_ns = now + DETACHED_NS;
	if (!l->noted)
		session__note(s,
			      "process %u calls next() %.0f times a second and shows no Lightning action: "
			      "stepflame detached those probes, and tries them again every %llu s",
			      t->process.pid, idle * 1e9 / elapsed_ns, DETACHED_NS / 1000000000);
	l->noted = true;
}

/* Detaches the interpreter's landmarks, or attaches them for a trial. */
static void throttle(struct session *s, struct target *t, const struct proc *proc)
{
	struct landmarks *l = state_of(t);
	uint64_t now = session__now_ns(), elapsed = now - l->read_ns, idle = proc->landmarks.idle_hits - l->idle_hits;
	bool first = !l->read_ns;

	if (elapsed < PERIOD_NS)
		return;
	l->idle_hits = proc->landmarks.idle_hits;
	l->read_ns = now;
	/* The count falls when the process has just called exec. */
	if (first || now < l->detached_until_ns || idle > proc->landmarks.idle_hits)
		return;
	if (l->detached_until_ns) {
		l->detached_until_ns = 0;
		target__attach_again(s, t);
	} else if (!proc->landmarks.profile_code && idle * s->selftest.hit_ns > MAX_SHARE * elapsed) {
		throttle_landmarks(s, t, idle, elapsed, now);
	}
}

static void observe(struct session *s, struct target *t, const struct proc *proc)
{
	struct landmarks *l = state_of(t);
	bool without;

	if (t->gone || !t->python_inode || s->window_end_ns)
		return;
	look_for_lightning(t);
	/* A dict that changes meanwhile makes a look fail: the next one says more. */
	without = l->looked && !l->imported && l->failed_cnt < FAILED_MAX && !proc->landmarks.profile_code &&
		  (l->without || targets__has_steps(proc));
	if (without != l->without) {
		l->without = without;
		if (without)
			detach_actions(s, t);
		else
			target__attach_again(s, t);
	} else if (!without && session__now_ns() - l->grew_ns >= SETTLED_NS) {
		throttle(s, t, proc);
	}
}

const struct source source_landmarks = {
	.target_bytes = sizeof(struct landmarks),
	.sets = {[SET_ACTIONS] = {.wanted = may_be_lightning},
		 [SET_LATE] = {.wanted = shows_lightning, .attached = enable_fetches}},
	.records = {{REC_PROC, sizeof(struct rec_proc), on_lightning}},
	.holds = holds,
	.find = find,
	.observe = observe,
};
