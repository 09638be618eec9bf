// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Finds native functions by their exported names. In: an opened ELF file. Out: probes, the BPF map
 * fns. No state.
 */
#include "user/session/sources/natives.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "include/probes.h"
#include "stepflame.skel.h"
#include "user/elf/elf.h"
#include "user/session/state.h"

/*
 * Collectives are methods of torch's backends: c10d::ProcessGroupGloo, ...NCCL and so on. Every way
 * into c10d (torch.distributed, the dispatcher's c10d::allreduce_, DDP's Reducer) calls such a
 * method once per call, on the calling thread. The names here are those of torch.distributed. torch
 * has renamed methods over time, so several methods may have one name.
 */
static const struct {
	const char *symbol; /* a method of c10d; "": the function is found by other means */
	const char *name;
	enum span_kind kind;
} natives[] = {
	[NATIVE_BACKWARD] = {"", "backward", SPAN_BACKWARD},
	[NATIVE_SAVE] = {"", "torch.save", SPAN_SAVE},
	[NATIVE_JIT] = {"", "jit", SPAN_JIT}, /* BPF reads the function's name at each call */
	[NATIVE_XLA_COMPILE] = {"", "xla compile", SPAN_COMPILE},
	[NATIVE_XLA_LOAD] = {"", "xla load executable", SPAN_COMPILE},
	[NATIVE_XLA_WAIT] = {"", "xla wait", SPAN_AWAIT},
	[NATIVE_XLA_TO_HOST] = {"", "xla to host", SPAN_AWAIT},
	[NATIVE_XLA_TO_DEVICE] = {"", "xla to device", SPAN_TRANSFER},
	[NATIVE_PJRT_COMPILE] = {"", "pjrt compile", SPAN_COMPILE},
	[NATIVE_PJRT_EXECUTE] = {"", "pjrt execute", SPAN_EXECUTE},
	[NATIVE_PJRT_AWAIT] = {"", "pjrt await", SPAN_AWAIT},
	[NATIVE_PJRT_TO_HOST] = {"", "pjrt to host", SPAN_AWAIT},
	[NATIVE_PJRT_TO_DEVICE] = {"", "pjrt to device", SPAN_TRANSFER},
	{"allreduce", "comm all_reduce", SPAN_COMM},
	{"allreduce_sparse", "comm all_reduce", SPAN_COMM},
	{"allreduce_coalesced", "comm all_reduce_coalesced", SPAN_COMM},
	{"broadcast", "comm broadcast", SPAN_COMM},
	{"reduce", "comm reduce", SPAN_COMM},
	{"allgather", "comm all_gather", SPAN_COMM},
	{"allgather_coalesced", "comm all_gather_coalesced", SPAN_COMM},
	{"_allgather_base", "comm all_gather_into_tensor", SPAN_COMM},
	{"all_gather_single", "comm all_gather_into_tensor", SPAN_COMM},
	{"allgather_into_tensor_coalesced", "comm all_gather_into_tensor_coalesced", SPAN_COMM},
	{"all_gather_single_coalesced", "comm all_gather_into_tensor_coalesced", SPAN_COMM},
	{"gather", "comm gather", SPAN_COMM},
	{"gather_single", "comm gather_single", SPAN_COMM},
	{"scatter", "comm scatter", SPAN_COMM},
	{"reduce_scatter", "comm reduce_scatter", SPAN_COMM},
	{"_reduce_scatter_base", "comm reduce_scatter_tensor", SPAN_COMM},
	{"reduce_scatter_single", "comm reduce_scatter_tensor", SPAN_COMM},
	{"reduce_scatter_tensor_coalesced", "comm reduce_scatter_tensor_coalesced", SPAN_COMM},
	{"reduce_scatter_single_coalesced", "comm reduce_scatter_tensor_coalesced", SPAN_COMM},
	{"alltoall", "comm all_to_all", SPAN_COMM},
	{"alltoall_base", "comm all_to_all_single", SPAN_COMM},
	{"all_to_all_single", "comm all_to_all_single", SPAN_COMM},
	{"send", "comm send", SPAN_COMM},
	{"recv", "comm recv", SPAN_COMM},
	{"recvAnysource", "comm recv", SPAN_COMM},
	{"barrier", "comm barrier", SPAN_COMM},
	{"monitoredBarrier", "comm monitored_barrier", SPAN_COMM},
	{"wait", "comm wait", SPAN_COMM},                           /* of a class ...Work... */
	{"finalize_backward", "comm finalize_backward", SPAN_COMM}, /* c10d::Reducer: DDP waits */
};

#define NATIVE_CNT (sizeof(natives) / sizeof(*natives))
_Static_assert(NATIVE_CNT < FN_MAX, "make FN_MAX larger");

uint32_t natives__cnt(void)
{
	return NATIVE_CNT;
}

const char *natives__name(uint32_t fn)
{
	return natives[fn].name;
}

enum span_kind natives__kind(uint32_t fn)
{
	return natives[fn].kind;
}

bool natives__wanted(const char *path)
{
	static const char file[] = "libtorch_cuda.so";
	const char *slash = strrchr(path, '/');

	return !strncmp(slash ? slash + 1 : path, file, sizeof(file) - 1);
}

/* A part of a nested name in the Itanium C++ ABI: its length in decimal, then its letters. */
struct name_part {
	const char *text;
	size_t size;
};

static const char *next_name_part(const char *mangled, struct name_part *out)
{
	char *text;
	unsigned long size = strtoul(mangled, &text, 10);

	if (text == mangled || size > strlen(text))
		return NULL;
	*out = (struct name_part){text, size};
	return text + size;
}

static bool part_is(const struct name_part *part, const char *text)
{
	return part->size == strlen(text) && !memcmp(part->text, text, part->size);
}

/* Is the symbol a method of a c10d class that starts collectives, or waits for them? */
static bool c10d_method(const char *symbol, struct name_part *method)
{
	static const char c10d[] = "_ZN4c10d", backend[] = "ProcessGroup", work[] = "Work";
	const size_t backend_size = sizeof(backend) - 1, work_size = sizeof(work) - 1;
	struct name_part class = {0}, part = {0};

	if (strncmp(symbol, c10d, sizeof(c10d) - 1))
		return false;
	for (symbol += sizeof(c10d) - 1; symbol && *symbol >= '1' && *symbol <= '9';
	     symbol = next_name_part(symbol, &part))
		class = part;
	if (!symbol || *symbol != 'E' || !class.size)
		return false;
	*method = part;
	if (part_is(method, "wait")) /* WorkNCCL, SendWork */
		return memmem(class.text, class.size, work, work_size);
	if (part_is(method, "finalize_backward"))
		return part_is(&class, "Reducer");
	/* ProcessGroupWrapper only checks, then calls another backend's method, which counts. */
	return class.size > backend_size && !memcmp(class.text, backend, backend_size) &&
	       !part_is(&class, "ProcessGroupWrapper");
}

/* torch.save writes with these; the rest of the names depends on the C++ ABI. */
#define SAVE_BEGINS "_ZN6caffe29serialize19PyTorchStreamWriter5setupE"
#define SAVE_ENDS   "_ZN6caffe29serialize19PyTorchStreamWriter14writeEndOfFileE"

static bool starts_with(const char *text, const char *start)
{
	return !strncmp(text, start, strlen(start));
}

/*
 * The number of a function; 0: not of interest (backward is found elsewhere). Called for half a
 * million symbols.
 */
static uint32_t native_of_symbol(const char *symbol)
{
	struct name_part method = {symbol, 0};
	bool comm = c10d_method(symbol, &method);

	if (starts_with(symbol, SAVE_BEGINS) || starts_with(symbol, SAVE_ENDS))
		return NATIVE_SAVE;
	if (!comm || strchr(symbol, '.')) /* a part that the compiler split off */
		return 0;
	for (uint32_t fn = NATIVE_FOUND_ELSEWHERE; fn < NATIVE_CNT; fn++)
		if (part_is(&method, natives[fn].symbol))
			return fn;
	return 0;
}

struct native_search {
	struct probe_list *list;
	const struct elf *elf;
	size_t cnt;
	uint64_t *found; /* vaddrs so far: a function may have several symbols */
};

/*
 * After its work, a collective calls the destructors of its arguments, and often has no emulated
 * instruction there. The exit probe then goes before the destructors rather than on a
 * single-stepped instruction, since a step may have hundreds of collectives.
 */
static int find_native_sites(const struct elf *elf, const struct elf_symbol *symbol, uint32_t fn, struct sites *out)
{
	int err = sites__find(elf, symbol->vaddr, symbol->size, SITES_STRICT, out);

	if (!err && natives[fn].kind == SPAN_COMM && !out->exit[0].emulated)
		err = sites__find(elf, symbol->vaddr, symbol->size, SITES_AFTER_WORK, out);
	return err;
}

/*
 * torch.save calls writeEndOfFile for every file that `setup` has opened; `setup` throws if it
 * cannot open the file.
 */
static int add_save_probes(struct probe_list *list, const struct sites *sites, bool begins)
{
	uint32_t flags = begins ? COOKIE_LASTS : 0;
	int err = 0;

	for (uint32_t i = 0; !err && i < sites->exit_cnt; i++)
		err = probe_list__add_site(list, &sites->exit[i], PROBE_SAVE, flags, NATIVE_SAVE);
	for (uint32_t i = 0; !begins && !err && i < sites->unwind_cnt; i++)
		err = probe_list__add_site(list, &sites->unwind[i], PROBE_SAVE, flags, NATIVE_SAVE);
	if (begins && !err)
		err = probe_list__add_site(list, &sites->entry, PROBE_SAVE, COOKIE_BEGINS, NATIVE_SAVE);
	return err;
}

static int add_native_symbol(const struct elf_symbol *symbol, void *ctx)
{
	struct native_search *search = ctx;
	uint32_t fn = symbol->function ? native_of_symbol(symbol->name) : 0;
	struct sites sites;
	uint64_t *found;

	if (!fn)
		return 0;
	for (size_t i = 0; i < search->cnt; i++)
		if (search->found[i] == symbol->vaddr)
			return 0;
	if (find_native_sites(search->elf, symbol, fn, &sites))
		return 0;
	found = reallocarray(search->found, search->cnt + 1, sizeof(*found));
	if (!found)
		return -ENOMEM;
	search->found = found;
	found[search->cnt++] = symbol->vaddr;
	if (fn == NATIVE_SAVE)
		return add_save_probes(search->list, &sites, starts_with(symbol->name, SAVE_BEGINS));
	return probe_list__add_sites(search->list, &sites, PROBE_FN, PROBE_FN_EXIT, 0, fn);
}

int natives__add(struct probe_list *list, const struct elf *elf)
{
	struct native_search search = {.list = list, .elf = elf};
	int err = elf__each_symbol(elf, add_native_symbol, &search);

	free(search.found);
	return err ?: (int)search.cnt;
}

/* ---- the source ---- */

static enum source_holds holds(struct session *s, struct target *t, const struct mapped_file *file)
{
	return natives__wanted(file->path) || file == t->torch_file ? HOLDS_YES : HOLDS_NO;
}

/* The search takes 80 to 220 ms per library. */
static int find(struct session *s, struct target *t, const struct mapped_file *file, struct elf *elf,
		struct probe_list sets[SOURCE_SETS])
{
	/* They are many: as perf uprobes, each takes a tenth of a second to detach. */
	if (s->selftest.attacher.backend == ATTACH_PERF || !probe_lists__load(elf, "natives", sets, 1))
		return 0;
	if (natives__add(sets, elf) >= 0)
		probe_lists__save(elf, "natives", sets, 1);
	return 0;
}

static int start(struct session *s)
{
	for (uint32_t i = 0; i < natives__cnt(); i++) {
		struct probe_fn fn = {.name = session__emit_name(s, natives__name(i)), .kind = natives__kind(i)};

		if (bpf_map_update_elem(bpf_map__fd(s->skel->maps.fns), &i, &fn, BPF_ANY))
			return -errno;
	}
	return 0;
}

const struct source source_natives = {
	.start = start,
	.holds = holds,
	.find = find,
};
