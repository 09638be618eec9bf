// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/runtime/torch/torch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "user/proc/process.h"
#include "user/proc/target_file.h"
#include "user/runtime/python/pydict.h"

const struct mapped_file *torch__file(const struct process *process)
{
	return process__file(process, "libtorch_cpu.so");
}

void torch__version(const struct process *process, const struct mapped_file *libtorch, char *version, size_t size)
{
	/*
	 * PyPI: torch/lib/libtorch_cpu.so. Debian installs the library apart from its Python
	 * package.
	 */
	static const char *const places[] = {"/../version.py", "/../python3/dist-packages/torch/version.py"};
	char path[PATH_MAX + 64];
	const char *slash = strrchr(libtorch->path, '/');
	int dir = slash ? slash - libtorch->path : 0;

	version[0] = 0;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(path, sizeof(path), "%.*s%s", dir, libtorch->path, places[i]);
		/* `__version__ = '2.15.0+cpu'`, as torch's build writes it. */
		if (target_file__version(process->pid, path, "__version__", version, size))
			return;
	}
}

bool torch__is_worker(const struct process *process)
{
	return !strncmp(process->comm, "pt_data_", 8); /* "pt_data_worker", torch/utils/data/_utils/worker.py */
}

/*
 * Finds the rank that init_process_group gave to a process. In: its memory. Out: rank and size. No
 * state.
 *
 * torch/distributed/distributed_c10d.py keeps each group in _pg_group_ranks: {group: {global rank:
 * rank in the group}}, the group of all processes first. The key is an object of pybind11, which
 * holds a pointer to the c10d::ProcessGroup; that has the two ints rank_ and size_, one behind the
 * other (ProcessGroup.hpp). Where they are depends on the version. The size is known from the dict,
 * so the place is the one where a rank below it is followed by it.
 */

#define MODULE        "torch.distributed.distributed_c10d"
#define INSTANCE_AT   16 /* pybind11's struct instance: simple_value_holder[0] */
#define MEMBERS_FROM  16 /* behind the table of virtual functions and the counters of references */
#define MEMBERS_UNTIL 64
#define SIZE_MAX_RANK (1 << 24)

/* The rank, where exactly one place has it. */
static int find_rank(const uint8_t *object, int size)
{
	int found = -ENOENT, rank, next;

	for (size_t at = MEMBERS_FROM; at + 2 * sizeof(int) <= MEMBERS_UNTIL; at += sizeof(int)) {
		memcpy(&rank, object + at, sizeof(rank));
		memcpy(&next, object + at + sizeof(rank), sizeof(next));
		if (next != size || rank < 0 || rank >= size)
			continue;
		if (found >= 0)
			return -ENOENT;
		found = rank;
	}
	return found;
}

int process_group__read(pid_t pid, const struct python *python, struct process_group *out)
{
	const struct py_layout *layout = &python->process.layout;
	uint8_t object[MEMBERS_UNTIL];
	uint64_t variables, groups, at;
	struct py_dict_entry first;
	int64_t size;
	int err, cnt;

	err = py_module__variables(pid, python, MODULE, &variables)
		      ?: py_dict__find(pid, layout, variables, "_pg_group_ranks", &groups);
	if (err)
		return err;
	cnt = py_dict__entries(pid, layout, groups, &first, 1);
	if (cnt < 1)
		return cnt ?: -ENOENT;
	size = py_dict__len(pid, layout, first.value);
	if (size < 1 || size > SIZE_MAX_RANK)
		return -ENOENT;
	err = process__read_memory(pid, first.key + INSTANCE_AT, &at, sizeof(at))
		      ?: process__read_memory(pid, at, object, sizeof(object));
	if (err)
		return err;
	out->size = (int)size;
	out->rank = size == 1 ? 0 : find_rank(object, out->size);
	return out->rank < 0 ? -ENOENT : 0;
}

/* ---- tensors ---- */

#define KEY_SET_FROM_SIZES 112
#define OFFSET_MAX         512
#define CODE_BYTES         300 /* of an operator: the part before its first call of a kernel */
#define VOTES_MIN          500

struct votes {
	const struct elf *elf;
	uint32_t cnt, of[OFFSET_MAX];
};

/* Operators whose first argument is a tensor. mov disp32(%reg),%reg: REX.W 8b, mod 10. */
static int vote_for_offset(const struct elf_symbol *symbol, void *ctx)
{
	struct votes *votes = ctx;
	const uint8_t *code;
	size_t have;

	if (strncmp(symbol->name, "_ZN2at4_ops", 11) || !strstr(symbol->name, "4callERKNS_6TensorE"))
		return 0;
	code = elf__bytes(votes->elf, symbol->vaddr, CODE_BYTES, &have);
	for (size_t i = 0; code && i + 7 <= have; i++) {
		uint8_t base = code[i + 2] & 7;
		uint32_t offset;

		if ((code[i] & 0xfb) != 0x48 || code[i + 1] != 0x8b || code[i + 2] >> 6 != 2 || base == 4 || base == 5)
			continue;
		memcpy(&offset, code + i + 3, sizeof(offset));
		if (offset >= OFFSET_MAX)
			continue;
		votes->of[offset]++;
		votes->cnt++;
	}
	return 0;
}

int torch__sizes_offset(const struct elf *elf, uint32_t *offset)
{
	struct votes votes = {.elf = elf};
	uint32_t best = 0;

	elf__each_symbol(elf, vote_for_offset, &votes);
	for (uint32_t i = 0; i < OFFSET_MAX; i++)
		if (votes.of[i] > votes.of[best])
			best = i;
	if (votes.of[best] < VOTES_MIN || votes.of[best] < votes.cnt - votes.cnt / 10 || best < KEY_SET_FROM_SIZES)
		return -ENOENT;
	*offset = best - KEY_SET_FROM_SIZES;
	return 0;
}
