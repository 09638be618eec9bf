// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/place/place.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/saturating.h"
#include "user/model/job.h"

/* ---- system calls ---- */

static const char *const syscall_names[] = {
#include "syscall_names.h" /* generated from <sys/syscall.h> */
};

const char *syscall__name(uint32_t number)
{
	return number < sizeof(syscall_names) / sizeof(*syscall_names) ? syscall_names[number] : NULL;
}

/* ---- kinds of code ---- */

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* Prefixes of file names. */
static const char *const torch_libraries[] = {
	"libtorch", "libc10",   "libgomp", "libiomp", "libomp",    "libmkl", "libdnnl",
	"libcuda",  "libcudnn", "libjax_", "xla_",    "libcublas", "libcuf", "libcus",
	"libnvrtc", "libnccl",  "libgloo", "libtbb",  "_C.",
};

/* What torch, its extensions and compiled code call, and others, too. */
static const char *const shared_libraries[] = {
	"libc.so",     "libc-",   "libm.so",      "libm-",       "libmvec",     "libstdc++",    "libgcc_s",
	"libpthread",  "libdl",   "librt",        "ld-linux",    "libblas",     "libcblas",     "libopenblas",
	"liblapack",   "libblis", "libflexiblas", "libgfortran", "libquadmath", "libjemalloc",  "libtcmalloc",
	"libmimalloc", "libnuma", "libtriton",    "libnv",       "libcaffe2",   "libshm",       "libfbgemm",
	"libxsmm",     "libpyg",  "libnatten",    "libamd",      "libhip",      "libroc",       "libMIOpen",
	"libhsa",      "librccl", "libze_",       "libsycl",     "libur_",      "libintel-ext", "libittnotify",
};

static bool begins_with_any(const char *text, const char *const *beginnings, size_t cnt)
{
	for (size_t i = 0; i < cnt; i++)
		if (!strncmp(text, beginnings[i], strlen(beginnings[i])))
			return true;
	return false;
}

/* For "symbol (library)": "library)"; "" if not known. */
static const char *library_of(const char *native)
{
	const char *paren = native ? strrchr(native, '(') : NULL;

	return paren ? paren + 1 : "";
}

/*
 * Matches "libpython3.11.so.1.0", "python3.11", "python3.13t", but no C module such as
 * "python_magic.cpython-311-x86_64-linux-gnu.so".
 */
static bool is_interpreter_library(const char *library)
{
	static const char *const shared[] = {"libpython"}, *const program[] = {"python"};

	return begins_with_any(library, shared, COUNT(shared)) ||
	       (begins_with_any(library, program, COUNT(program)) && !strstr(library, ".so"));
}

bool cpu_class__is_interpreter(const struct job *job, uint64_t native)
{
	return native && is_interpreter_library(library_of(job__name(job, native)));
}

/* The file of "symbol (file)", or of "file" alone, which is what has no symbols; "" of code in no file. */
static const char *file_of_native(const char *native)
{
	const char *library = library_of(native);

	return *library || !native || !(strstr(native, ".so") || is_interpreter_library(native)) ? library : native;
}

/* "libgfortran-040039e1.so.5": as a wheel names the libraries that it brings along. */
static bool is_of_wheel(const char *library)
{
	const char *end = strstr(library, ".so");

	for (const char *dash = strchr(library, '-'); dash && end && dash < end; dash = strchr(dash + 1, '-'))
		if (strspn(dash + 1, "0123456789abcdef") == 8 && (dash[9] == '.' || dash[9] == '-'))
			return true;
	return false;
}

/*
 * A module of Python, or a library that no operator calls: numpy, scipy, OpenCV. Extensions of torch, and what torch.compile has
 * compiled, have files of any other name; code that XLA or Numba has made has none.
 */
static bool is_others(const char *library)
{
	if (strstr(library, ".cpython-") || strstr(library, ".abi3.so") || is_of_wheel(library))
		return true;
	return !strncmp(library, "lib", 3) && !begins_with_any(library, shared_libraries, COUNT(shared_libraries));
}

enum cpu_class cpu_class__of(const struct job *job, const struct sample *sample, enum phase phase)
{
	const char *library = file_of_native(sample->native ? job__name(job, sample->native) : NULL);

	if (sample->kernel)
		return CPU_KERNEL;
	if (is_interpreter_library(library))
		return CPU_PYTHON;
	if (begins_with_any(library, torch_libraries, COUNT(torch_libraries)))
		return CPU_OP;
	/*
	 * In these phases, libc and similar code works for an operator (with JAX, code that XLA
	 * generated has no library), or is negligible.
	 */
	switch (phase) {
	case PHASE_FORWARD:
	case PHASE_BACKWARD:
	case PHASE_OPTIMIZER:
		return is_others(library) ? CPU_NATIVE : CPU_OP;
	case PHASE_JIT:
	case PHASE_COMPILE:
	case PHASE_AWAIT:
	case PHASE_TRANSFER:
		return CPU_OP;
	default:
		return CPU_NATIVE;
	}
}

#define HALF        0.5
#define RARE_STEP   0.005 /* of an ordinary step, and */
#define RARE_EXCESS 0.05  /* of the excess: at or below both, ordinary steps hardly call the function */
#define SHARED      0.9   /* of the ordinary steps' time: they are in the function all the time */
#define SAME_LINE   0.98  /* of all time: such a line says nothing */

/* ---- samples in ---- */

static uint32_t line_code(const struct places *places, uint32_t line)
{
	return intern__key(&places->lines, line) >> 32;
}

/* Numbers the lines of a stack's frames, outermost first. */
static int places__add_stack(struct places *places, uint32_t number)
{
	const struct stacks *stacks = job__stacks(places->job);
	struct stack stack = stacks__stack(stacks, number);
	uint32_t *start;

	if (array__grow(&places->starts, stacks__stack_end(stacks) + 1, sizeof(*start)))
		return -ENOMEM;
	start = &((uint32_t *)places->starts.items)[number];
	if (*start)
		return 0;
	*start = places->frames.cnt + 1;
	for (uint32_t i = stack.cnt; i > 0; i--) {
		const struct frame *frame = &stack.frames[i - 1];
		struct code code = stacks__code(stacks, frame->code);
		uint32_t *line = array__add(&places->frames, sizeof(*line));

		if (!line ||
		    intern__add(&places->lines, (uint64_t)frame->code << 32 | code__line(&code, frame->offset), line))
			return -ENOMEM;
	}
	return 0;
}

int places__add(struct places *places, uint32_t slot, const struct sample *sample)
{
	uint32_t number;

	if (places__add_stack(places, sample->stack) ||
	    histograms__add(&places->ns, slot, sample->stack, sample->weight_ns) ||
	    histograms__number(&places->ns, slot, sample->stack, &number) ||
	    array__grow(&places->samples, (size_t)number + 1, sizeof(uint32_t)))
		return -ENOMEM;
	((uint32_t *)places->samples.items)[number] +=
		sample->kind == SAMPLE_WAIT && sample->waits <= 1 ? PLACE_SAMPLES : 1;
	return 0;
}

void places__free(struct places *places)
{
	histograms__free(&places->ns);
	free(places->samples.items);
	intern__free(&places->lines);
	free(places->frames.items);
	free(places->starts.items);
	*places = (struct places){.job = places->job};
}

/* The frames of an added stack, outermost first. */
static const uint32_t *frames_of(const struct places *places, uint32_t stack, uint32_t *cnt)
{
	*cnt = stacks__stack(job__stacks(places->job), stack).cnt;
	return (const uint32_t *)places->frames.items + ((const uint32_t *)places->starts.items)[stack] - 1;
}

struct slot_stack {
	uint32_t slot, stack, samples;
	uint64_t ns;
};

/* Calls fn with each {slot, stack} pair that has time. */
static void for_each_pair(const struct places *places,
			  void (*fn)(const struct places *places, const struct slot_stack *pair, void *ctx), void *ctx)
{
	const uint64_t *totals = places->ns.totals.items;
	const uint32_t *samples = places->samples.items;

	for (uint32_t i = 1; i < intern__end(&places->ns.keys); i++) {
		uint64_t key = intern__key(&places->ns.keys, i);

		struct slot_stack pair = {(key >> 32) - 1, key, samples[i], totals[i]};

		fn(places, &pair, ctx);
	}
}

/* ---- time by function and by line ---- */

struct place_times {
	double more, less, all; /* ns per step, in it and its callees: one for each set of the question */
	double depth;           /* number of enclosing frames, weighted by the time of `more` */
	uint32_t samples;       /* of `more` */
	uint32_t
		last_seen; /* the last pair that contained it: counts once per stack, whatever the depth of recursion */
};

struct place_search {
	const struct place_question *ask;
	struct place_times *codes, *lines; /* by number */
	double more_ns, less_ns, all_ns;   /* per step, of all samples */
	uint32_t pair;
};

static double pair_ns_per_step(const struct place_set *set, const struct slot_stack *pair)
{
	return pair->slot < set->slot_cnt && set->slots[pair->slot] ? pair->ns / set->steps : 0;
}

static void place_times__add(struct place_times *times, uint32_t pair, const struct place_times *add, uint32_t depth)
{
	if (times->last_seen == pair)
		return;
	times->last_seen = pair;
	times->more += add->more;
	times->less += add->less;
	times->all += add->all;
	times->samples += add->samples;
	times->depth += add->more * depth;
}

static void add_pair(const struct places *places, const struct slot_stack *pair, void *ctx)
{
	struct place_search *s = ctx;
	const struct place_question *ask = s->ask;
	struct place_times add = {.more = pair_ns_per_step(&ask->more, pair),
				  .less = pair_ns_per_step(&ask->less, pair),
				  .all = pair_ns_per_step(&ask->all, pair)};
	uint32_t cnt;
	const uint32_t *frames = frames_of(places, pair->stack, &cnt);

	add.samples = add.more ? pair->samples : 0;
	if (!add.more && !add.less && !add.all)
		return;
	s->pair++;
	s->more_ns += add.more;
	s->less_ns += add.less;
	s->all_ns += add.all;
	for (uint32_t i = 0; i < cnt; i++) {
		place_times__add(&s->lines[frames[i]], s->pair, &add, i);
		place_times__add(&s->codes[line_code(places, frames[i])], s->pair, &add, i);
	}
}

static int place_search__new(struct place_search *s, const struct places *places)
{
	s->codes = calloc(stacks__code_end(job__stacks(places->job)) + 1, sizeof(*s->codes));
	s->lines = calloc(intern__end(&places->lines) + 1, sizeof(*s->lines));
	if (!s->codes || !s->lines)
		return -ENOMEM;
	for_each_pair(places, add_pair, s);
	return 0;
}

static void place_search__release(struct place_search *s)
{
	free(s->codes);
	free(s->lines);
}

/* ---- names ---- */

char *hotspot__text(struct job *job, const struct hotspot *hotspot)
{
	struct code code = stacks__code(job__stacks(job), hotspot->code);
	const char *file = code.file ? job__name_or_lost(job, code.file) : "?", *slash;
	const char *name = code.name ? job__name_or_lost(job, code.name) : "?";
	char *text;

	if (!file || !name)
		return NULL;
	slash = strrchr(file, '/');
	return asprintf(&text, "%s:%u %s", slash ? slash + 1 : file, hotspot->line ?: code.first_line, name) < 0 ? NULL
														 : text;
}

static const char *known_name(const struct job *job, uint64_t id)
{
	const char *name = id ? job__name(job, id) : NULL;

	return name ?: "";
}

/*
 * Whether a user of the library knows the function: not _private, <lambda>, or nested in another
 * function.
 */
static bool is_public(const struct job *job, uint32_t number)
{
	struct code code = stacks__code(job__stacks(job), number);
	const char *name = known_name(job, code.name), *dot = strrchr(name, '.');
	const char *last = dot ? dot + 1 : name;

	return *last && *last != '<' && (*last != '_' || !strncmp(last, "__", 2)) && !strstr(name, "<locals>");
}

/* torch's loaders and modules enclose what they call, and so say nothing about it. */
static bool is_torchs(const struct job *job, uint32_t number)
{
	return strstr(known_name(job, stacks__code(job__stacks(job), number).file), "/torch/");
}

/* <listcomp>, <genexpr>, <lambda>: part of the enclosing function. */
static bool is_nameless(const struct job *job, uint32_t number)
{
	struct code code = stacks__code(job__stacks(job), number);
	const char *name = known_name(job, code.name), *dot = strrchr(name, '.');

	return (dot ? dot[1] : *name) == '<' && strcmp(name, "<module>") != 0;
}

bool place__is_users(const struct job *job, uint32_t number)
{
	return stacks__code(job__stacks(job), number).is_own;
}

/* ---- the function out ---- */

enum wanted_function { WANTED_OUTERMOST, WANTED_INNERMOST };

/* Whether a is the better one. */
static bool is_better(const struct place_times *a, const struct place_times *b, enum wanted_function wanted)
{
	double x = a->depth / a->more, y = b->depth / b->more;

	return wanted == WANTED_OUTERMOST ? x < y : x > y;
}

static bool has_excess(const struct place_search *s, const struct place_times *t)
{
	return t->samples >= PLACE_SAMPLES && t->more > t->less &&
	       t->more - t->less >= HALF * (s->more_ns - s->less_ns);
}

static bool is_rare(const struct place_search *s, const struct place_times *t)
{
	return t->all <= RARE_STEP * s->all_ns && t->all <= RARE_EXCESS * (t->more - t->less);
}

static bool is_shared(const struct place_search *s, const struct place_times *t)
{
	return t->all >= SHARED * s->all_ns;
}

/* The functions with the excess that ordinary steps hardly call; 0: no such function. */
struct rare_functions {
	uint32_t users_outer, users_inner;
	uint32_t outer, torchs_outer, any_outer, inner; /* installed functions; the first two are not private */
};

static void prefer_better(const struct place_search *s, uint32_t *best, uint32_t code, enum wanted_function wanted)
{
	if (!*best || is_better(&s->codes[code], &s->codes[*best], wanted))
		*best = code;
}

static struct rare_functions find_rare(const struct place_search *s, const struct job *job)
{
	struct rare_functions rare = {0};

	for (uint32_t i = 1; i < stacks__code_end(job__stacks(job)); i++) {
		const struct place_times *t = &s->codes[i];

		if (!t->more || !has_excess(s, t) || !is_rare(s, t))
			continue;
		if (place__is_users(job, i) && !is_nameless(job, i)) {
			prefer_better(s, &rare.users_outer, i, WANTED_OUTERMOST);
			prefer_better(s, &rare.users_inner, i, WANTED_INNERMOST);
		} else if (is_public(job, i)) {
			prefer_better(s, is_torchs(job, i) ? &rare.torchs_outer : &rare.outer, i, WANTED_OUTERMOST);
		}
		prefer_better(s, &rare.any_outer, i, WANTED_OUTERMOST);
		prefer_better(s, &rare.inner, i, WANTED_INNERMOST);
	}
	return rare;
}

/*
 * The user's function that takes longer than in ordinary steps, which call it, too; 0: no such
 * function.
 */
static uint32_t find_longer(const struct place_search *s, const struct job *job)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < stacks__code_end(job__stacks(job)); i++) {
		const struct place_times *t = &s->codes[i];

		if (t->more && has_excess(s, t) && !is_shared(s, t) && place__is_users(job, i) &&
		    (!best || is_better(t, &s->codes[best], WANTED_INNERMOST)))
			best = i;
	}
	return best;
}

/*
 * The number of the user's line that has the excess, if all steps call the same functions; 0: no
 * such line.
 */
static uint32_t find_line(const struct place_search *s, const struct places *places)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < intern__end(&places->lines); i++) {
		const struct place_times *t = &s->lines[i];

		if (t->more && has_excess(s, t) && !is_shared(s, t) &&
		    place__is_users(places->job, line_code(places, i)) &&
		    (!best || is_better(t, &s->lines[best], WANTED_INNERMOST)))
			best = i;
	}
	return best;
}

/* The line that has most of a function's time. */
static uint32_t hottest_line(const struct place_search *s, const struct places *places, uint32_t code)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < intern__end(&places->lines); i++)
		if (line_code(places, i) == code && (!best || s->lines[i].more > s->lines[best].more))
			best = i;
	return best;
}

static struct hotspot hotspot_of(const struct place_search *s, const struct places *places, uint32_t line)
{
	uint64_t key = intern__key(&places->lines, line);
	double ns = s->codes[key >> 32].more * s->ask->more.steps;

	return (struct hotspot){.code = key >> 32, .line = key, .ns = ns < 0x1p63 ? (uint64_t)ns : UINT64_MAX};
}

static void place_search__find(const struct place_search *s, const struct places *places, struct place *place)
{
	struct rare_functions rare = find_rare(s, places->job);
	uint32_t outer = rare.users_outer, inner = rare.users_inner, line;

	if (!outer) {
		outer = rare.outer ?: rare.torchs_outer ?: rare.any_outer;
		inner = rare.inner;
	}
	if (!outer)
		outer = inner = find_longer(s, places->job);
	line = outer ? hottest_line(s, places, outer) : find_line(s, places);
	if (!line)
		return;
	place->users = !outer || place__is_users(places->job, outer);
	place->rare = rare.any_outer;
	place->outer = hotspot_of(s, places, line);
	place->inner = inner && is_better(&s->codes[inner], &s->codes[outer], WANTED_INNERMOST)
			       ? hotspot_of(s, places, hottest_line(s, places, inner))
			       : place->outer;
}

int places__find(struct places *places, const struct place_question *ask, struct place *place)
{
	struct place_search s = {.ask = ask};
	int err;

	*place = (struct place){0};
	err = place_search__new(&s, places);
	if (!err && s.all_ns)
		place_search__find(&s, places, place);
	place_search__release(&s);
	return err;
}

struct in_function {
	uint32_t code;
	uint64_t *ns;
	size_t slot_cnt;
};

static void add_in(const struct places *places, const struct slot_stack *pair, void *ctx)
{
	const struct in_function *in = ctx;
	uint32_t cnt;
	const uint32_t *frames = frames_of(places, pair->stack, &cnt);

	for (uint32_t i = 0; i < cnt && pair->slot < in->slot_cnt; i++) {
		if (line_code(places, frames[i]) != in->code)
			continue;
		in->ns[pair->slot] = saturating__add(in->ns[pair->slot], pair->ns);
		break;
	}
}

void places__in(const struct places *places, uint32_t code, uint64_t *ns, size_t slot_cnt)
{
	struct in_function in = {.code = code, .ns = ns, .slot_cnt = slot_cnt};

	for_each_pair(places, add_in, &in);
}

/* ---- lines that stand for stacks ---- */

uint32_t *places__lines(const struct places *places, const struct place_set *set)
{
	const struct place_question ask = {.more = *set};
	struct place_search s = {.ask = &ask};
	uint32_t *lines = calloc(places->starts.cnt + 1, sizeof(*lines));

	if (!lines || place_search__new(&s, places)) {
		free(lines);
		lines = NULL;
	}
	for (uint32_t stack = 0; lines && stack < places->starts.cnt; stack++) {
		const uint32_t *frames;
		uint32_t cnt, own = 0;

		if (!((const uint32_t *)places->starts.items)[stack])
			continue;
		frames = frames_of(places, stack, &cnt);
		lines[stack] = cnt ? frames[cnt - 1] : 0;
		for (uint32_t i = cnt; i > 0; i--) {
			if (!place__is_users(places->job, line_code(places, frames[i - 1])))
				continue;
			own = own ?: frames[i - 1];
			if (s.lines[frames[i - 1]].more >= SAME_LINE * s.more_ns)
				continue;
			lines[stack] = frames[i - 1];
			own = 0;
			break;
		}
		/* Where a queue waits says less than the line that asks it. */
		if (own && stacks__code(job__stacks(places->job), line_code(places, lines[stack])).is_standard)
			lines[stack] = own;
	}
	place_search__release(&s);
	return lines;
}

const struct hotspot *place__main(const struct place *place)
{
	return place->users ? &place->inner : &place->outer;
}

char *place__text(struct job *job, const struct place *place)
{
	char *main = hotspot__text(job, place__main(place)), *both;
	const struct hotspot *other = place->users ? &place->outer : &place->inner;
	const char *name;

	if (!main || place->inner.code == place->outer.code)
		return main;
	name = known_name(job, stacks__code(job__stacks(job), other->code).name);
	if (asprintf(&both, place->users ? "%s, in %s" : "%s > %s", main, name) < 0)
		both = NULL;
	free(main);
	return both;
}

/* ---- lines ---- */

static int hotspots__add_file(struct hotspots *hotspots, uint32_t slot, uint32_t line, const struct sample *sample)
{
	uint32_t hotspot, file;

	return histograms__number(&hotspots->by_line, slot, line, &hotspot) ?:
	       intern__add(&hotspots->file_ids, sample->file, &file) ?:
	       histograms__add(&hotspots->files, hotspot, file, sample->weight_ns);
}

int hotspots__add(struct hotspots *hotspots, uint32_t slot, const struct sample *sample)
{
	uint32_t line = hotspots->lines[sample->stack];
	int err;

	if (!line)
		return 0;
	err = histograms__add(&hotspots->by_line, slot, line, sample->weight_ns);
	return err || !sample->file ? err : hotspots__add_file(hotspots, slot, line, sample);
}

int hotspots__top(const struct hotspots *hotspots, size_t slot_cnt, size_t cnt, struct hotspot *top)
{
	size_t hotspot_end = intern__end(&hotspots->by_line.keys);
	struct histogram_top *found = calloc(slot_cnt * cnt + 1, sizeof(*found));
	struct histogram_top *files = calloc(hotspot_end, sizeof(*files));
	int err = found && files ? 0 : -ENOMEM;

	if (err)
		goto out;
	histograms__top(&hotspots->by_line, slot_cnt, cnt, found);
	histograms__top(&hotspots->files, hotspot_end, 1, files);
	for (size_t i = 0; i < slot_cnt * cnt && !err; i++) {
		uint64_t key = intern__key(&hotspots->places->lines, found[i].value);
		const struct histogram_top *file = &files[found[i].number];

		top[i] = (struct hotspot){.code = key >> 32, .line = key, .ns = found[i].total};
		if (2 * file->total >= found[i].total)
			top[i].file = intern__key(&hotspots->file_ids, file->value);
	}
out:
	free(found);
	free(files);
	return err;
}

void hotspots__free(struct hotspots *hotspots)
{
	histograms__free(&hotspots->by_line);
	intern__free(&hotspots->file_ids);
	histograms__free(&hotspots->files);
}
