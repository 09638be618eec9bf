// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* JAX. In: an opened ELF file; for a plugin, also a process's memory. Out: probes. */
#include "user/session/sources/xla.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "include/probes.h"
#include "user/lib/log.h"
#include "user/runtime/xla/jax.h"
#include "user/session/sources/natives.h"
#include "user/session/state.h"

/*
 * Prefixes of the mangled names of jaxlib's functions, in 0.4.30 to 0.11.0; the names must also
 * contain `part`. They are local symbols, which PyPI's wheels have. The namespace was xla up to
 * 0.6, and is jax since.
 */
static const struct {
	const char *prefix[2], *part;
	uint32_t enter, exit, fn;
	bool needed; /* if the function is missing, stepflame warns that rows will be missing */
} xla_functions[] = {
	{{"PjitFunction_tp_vectorcall"}, "", PROBE_JIT, PROBE_JIT_EXIT, NATIVE_JIT, true},
	{{"_ZN3jax8PyClient25CompileAndLoadIfrtProgramE", "_ZN3xla8PyClient25CompileAndLoadIfrtProgramE"},
	 "",
	 PROBE_FN,
	 PROBE_FN_EXIT,
	 NATIVE_XLA_COMPILE,
	 true},
	/* up to 0.5 */
	{{"_ZN3xla8PyClient18CompileIfrtProgramE"}, "", PROBE_FN, PROBE_FN_EXIT, NATIVE_XLA_COMPILE, true},
	{{"_ZN3jax8PyClient21DeserializeExecutableE", "_ZN3xla8PyClient21DeserializeExecutableE"},
	 "",
	 PROBE_FN,
	 PROBE_FN_EXIT,
	 NATIVE_XLA_LOAD,
	 false},
	{{"_ZNK3jax7PyArray15BlockUntilReadyE", "_ZNK3xla7PyArray15BlockUntilReadyE"},
	 "",
	 PROBE_FN,
	 PROBE_FN_EXIT,
	 NATIVE_XLA_WAIT,
	 true},
	{{"_ZN3jax7PyArray22BatchedBlockUntilReadyE", "_ZN3xla7PyArray22BatchedBlockUntilReadyE"},
	 "",
	 PROBE_FN,
	 PROBE_FN_EXIT,
	 NATIVE_XLA_WAIT,
	 false},
	{{"_ZN3jax11PyHostValue12AsNumPyArrayE", "_ZN3xla11PyHostValue12AsNumPyArrayE"},
	 "",
	 PROBE_FN,
	 PROBE_FN_EXIT,
	 NATIVE_XLA_TO_HOST,
	 true},
	{{"_ZN3jax7PyArray16BatchedDevicePutE", "_ZN3xla7PyArray16BatchedDevicePutE"},
	 "",
	 PROBE_FN,
	 PROBE_FN_EXIT,
	 NATIVE_XLA_TO_DEVICE,
	 true},
	/* transfers of arguments of jitted functions, one by one */
	{{"_ZN3jax19DevicePutWithDeviceE", "_ZN3xla19DevicePutWithDeviceE"},
	 "",
	 PROBE_FN,
	 PROBE_FN_EXIT,
	 NATIVE_XLA_TO_DEVICE,
	 false},
	{{"_ZN3jax21DevicePutWithShardingE", "_ZN3xla21DevicePutWithShardingE"},
	 "",
	 PROBE_FN,
	 PROBE_FN_EXIT,
	 NATIVE_XLA_TO_DEVICE,
	 false},
	/* up to 0.5 */
	{{"_ZN3xla9DevicePutE"}, "", PROBE_FN, PROBE_FN_EXIT, NATIVE_XLA_TO_DEVICE, false},
	/*
	 * nanobind's wrappers of TraceMe.__init__(str, **kwargs), __exit__(object, object, object)
	 */
	{{"_ZZN8nanobind6detail11func_createILb0ELb1EZNS_4initIJNS_3strENS_6kwargsEEE7executeI"},
	 "TraceMeWrapper",
	 PROBE_ANNOTATION,
	 PROBE_NONE,
	 0,
	 true},
	{{"_ZZN8nanobind6detail11func_createILb0ELb1EZN3xla22BuildProfilerSubmoduleE",
	  "_ZZN8nanobind6detail11func_createILb0ELb1EZN3xlaL"},
	 "JLm0ELm1ELm2ELm3EEJNS_5scopeENS_4nameENS_9is_methodENS_3argE",
	 PROBE_ANNOTATION_END,
	 PROBE_NONE,
	 0,
	 true},
};

#define FUNCTION_CNT (sizeof(xla_functions) / sizeof(*xla_functions))

static bool starts_with(const char *text, const char *start)
{
	return start && !strncmp(text, start, strlen(start));
}

/*
 * Other symbols contain the same names: the static members beside nanobind's wrappers, and clean-up
 * code of lambdas in functions.
 */
static bool symbol_matches(size_t i, const char *name)
{
	bool wrapper = xla_functions[i].enter == PROBE_ANNOTATION || xla_functions[i].enter == PROBE_ANNOTATION_END;

	if (!starts_with(name, xla_functions[i].prefix[0]) && !starts_with(name, xla_functions[i].prefix[1]))
		return false;
	if (strchr(name, '.')) /* a part that the compiler split off */
		return false;
	if (wrapper)
		return strstr(name, xla_functions[i].part) && strstr(name, "_8__invokeE") &&
		       (xla_functions[i].enter == PROBE_ANNOTATION || strstr(name, "rofiler"));
	return xla_functions[i].enter != PROBE_JIT || !strcmp(name, xla_functions[i].prefix[0]);
}

#define FOUND_MAX 32

struct xla_search {
	struct probe_list *list;
	const struct elf *elf;
	size_t cnt[FUNCTION_CNT];
	size_t found_cnt;
	uint64_t found[FOUND_MAX]; /* vaddrs: a function may have several symbols */
};

static int add_xla_symbol(const struct elf_symbol *symbol, void *ctx)
{
	struct xla_search *search = ctx;
	struct sites sites;
	int err = 0;

	if (!symbol->function || (symbol->name[0] != '_' && symbol->name[0] != 'P'))
		return 0;
	for (size_t i = 0; i < FUNCTION_CNT && !err; i++) {
		if (!symbol_matches(i, symbol->name))
			continue;
		for (size_t k = 0; k < search->found_cnt; k++)
			if (search->found[k] == symbol->vaddr)
				return 0;
		if (search->found_cnt == FOUND_MAX)
			return 0;
		/*
		 * A single-stepped exit, a few times per step, is better than one that is too
		 * early: the work of these functions is in calls that look like any other.
		 */
		if (sites__find(search->elf, symbol->vaddr, symbol->size, SITES_STRICT, &sites))
			continue;
		search->found[search->found_cnt++] = symbol->vaddr;
		search->cnt[i]++;
		err = probe_list__add_sites(search->list, &sites, xla_functions[i].enter, xla_functions[i].exit, 0,
					    xla_functions[i].fn);
	}
	return err;
}

/* Was function i found, or another version of it? Several lines may mean the same thing. */
static bool has_any_version(const struct xla_search *search, size_t i)
{
	for (size_t k = 0; k < FUNCTION_CNT; k++)
		if (xla_functions[k].enter == xla_functions[i].enter && xla_functions[k].fn == xla_functions[i].fn &&
		    search->cnt[k])
			return true;
	return false;
}

static const char *meaning_of_function(size_t i)
{
	if (xla_functions[i].enter == PROBE_ANNOTATION || xla_functions[i].enter == PROBE_ANNOTATION_END)
		return "annotations";
	return xla_functions[i].fn == NATIVE_JIT ? "calls of jitted functions" : natives__name(xla_functions[i].fn);
}

int xla__add_jax(struct probe_list *list, const struct elf *elf, char *why, size_t why_size)
{
	struct xla_search search = {.list = list, .elf = elf};
	int err = elf__each_symbol_once(elf, add_xla_symbol, &search);
	const char *last = NULL;
	size_t used = 0;

	why[0] = 0;
	for (size_t i = 0; i < FUNCTION_CNT && used < why_size; i++) {
		if (!xla_functions[i].needed || has_any_version(&search, i) || last == meaning_of_function(i))
			continue;
		last = meaning_of_function(i);
		used += snprintf(why + used, why_size - used, "%s%s", used ? ", " : "has no symbols for ", last);
	}
	if (!search.found_cnt)
		snprintf(why, why_size, "is stripped: calls, compiles, waits and annotations cannot be seen");
	return err ?: (int)search.found_cnt;
}

bool xla__is_plugin(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	return strstr(name, ".so") && ((starts_with(name, "xla_") && strstr(name, "plugin")) || strstr(name, "pjrt") ||
				       starts_with(name, "libtpu"));
}

bool xla__plugin_is_ready(const struct process *process, const struct mapped_file *file)
{
	struct pjrt_table table;
	struct elf *elf;
	bool ready;

	if (mapped_file__elf(file, &elf))
		return true;
	ready = pjrt__find(process, file, elf, &table) != -ENOENT;
	elf__free(elf);
	return ready;
}

static const uint32_t pjrt_natives[PJRT_FN__COUNT] = {
	[PJRT_EVENT_AWAIT] = NATIVE_PJRT_AWAIT,          [PJRT_CLIENT_COMPILE] = NATIVE_PJRT_COMPILE,
	[PJRT_BUFFER_FROM_HOST] = NATIVE_PJRT_TO_DEVICE, [PJRT_EXECUTE] = NATIVE_PJRT_EXECUTE,
	[PJRT_BUFFER_TO_HOST] = NATIVE_PJRT_TO_HOST,
};

int xla__add_plugin(struct probe_list *list, const struct process *process, const struct mapped_file *file,
		    const struct elf *elf, char *why, size_t why_size)
{
	struct pjrt_table table;
	int cnt = 0, err = pjrt__find(process, file, elf, &table);

	why[0] = 0;
	if (err)
		return err == -ENOMEM ? err : 0;
	for (int i = 0; i < PJRT_FN__COUNT && err != -ENOMEM; i++) {
		struct sites sites;

		if (sites__find(elf, table.fn[i], 0, SITES_STRICT, &sites)) {
			snprintf(why, why_size, "%s has no place for a probe", natives__name(pjrt_natives[i]));
			continue;
		}
		err = probe_list__add_sites(list, &sites, PROBE_FN, PROBE_FN_EXIT, 0, pjrt_natives[i]);
		cnt += !err;
	}
	return err ?: cnt;
}

/* ---- the source ---- */

/* JAX opens a plugin at its first computation; the plugin makes its table when first asked. */
#define LOOK_FOR_PLUGIN_NS (500 * 1000000ULL)
#define PLUGIN_COMES_NS    (120 * 1000000000ULL)

/* Target state. */
struct xla {
	bool has_plugin;   /* stepflame probes functions of a PJRT plugin */
	bool lacks_plugin; /* unless has_plugin: it maps a plugin whose table was not found (yet) */
};

static struct xla *state_of(const struct target *t)
{
	return target__state(t, SOURCE_XLA);
}

static enum source_holds holds(struct session *s, struct target *t, const struct mapped_file *file)
{
	if (file == t->jax_file)
		return HOLDS_YES;
	if (!xla__is_plugin(file->path))
		return HOLDS_NO;
	return !state_of(t)->has_plugin && targets__is_young(t, PLUGIN_COMES_NS) &&
			       !xla__plugin_is_ready(&t->process, file)
		       ? HOLDS_LATER
		       : HOLDS_YES;
}

static int find(struct session *s, struct target *t, const struct mapped_file *file, struct elf *elf,
		struct probe_list sets[SOURCE_SETS])
{
	char why[128];
	int cnt = xla__is_plugin(file->path) ? xla__add_plugin(sets, &t->process, file, elf, why, sizeof(why))
					     : xla__add_jax(sets, elf, why, sizeof(why));

	if (cnt < 0 || why[0])
		log__warn(NULL, "%s: %s: rows of it will be missing", file->path, cnt < 0 ? strerror(-cnt) : why);
	return 0;
}

static int looked_at(struct session *s, struct target *t)
{
	struct xla *x = state_of(t);

	s->keeps_names = s->keeps_names || t->jax_file;
	x->lacks_plugin = false;
	for (size_t i = 0; i < t->process.file_cnt; i++) {
		const struct mapped_file *file = &t->process.files[i];

		if (!xla__is_plugin(file->path))
			continue;
		x->lacks_plugin = true;
		x->has_plugin = x->has_plugin || target__has_probes(t, file, SOURCE_XLA);
	}
	return 0;
}

static uint64_t look_again_ns(const struct session *s, const struct target *t)
{
	const struct xla *x = state_of(t);

	return !t->forked && !x->has_plugin && (t->jax[0] || x->lacks_plugin) && targets__is_young(t, PLUGIN_COMES_NS)
		       ? LOOK_FOR_PLUGIN_NS
		       : 0;
}

static bool watches(const struct session *s, const struct target *t)
{
	return state_of(t)->has_plugin;
}

static void note_target(struct session *s, struct target *t)
{
	struct proc proc;

	/* stepflame chose this jitted function itself, and may be wrong: the report must say so. */
	if (target__proc(s, t, &proc) && proc.steps.rule == STEP_JIT)
		session__note(s,
			      "stepflame chose the calls of '%.128s' as steps of process %u, by their share of the "
			      "time; choose another jitted function with --step-at",
			      names__find(&s->names, proc.jit.name) ?: "(name lost)", t->process.pid);
	if (state_of(t)->lacks_plugin && !state_of(t)->has_plugin)
		session__note(s,
			      "the PJRT_Api of process %d's plugin was not found, or has an unknown form: pjrt rows "
			      "are missing",
			      t->process.pid);
}

static void note(struct session *s)
{
	for (size_t i = 0; i < s->target_cnt; i++)
		note_target(s, s->targets[i]);
}

const struct source source_xla = {
	.target_bytes = sizeof(struct xla),
	.holds = holds,
	.find = find,
	.looked_at = looked_at,
	.look_again_ns = look_again_ns,
	.watches = watches,
	.note = note,
	.forget = note_target,
};
