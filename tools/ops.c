/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Prints the operators and autograd nodes of a torch library, as stepflame finds them, for developers. In: an ELF file
 * and, optionally, a directory for the cache. Out: a line per function, "event name entry exits unwinds arguments",
 * and per node, "node vtable name"; a summary on stderr. Sites are OFFSET:DEPTH, with * when the kernel would
 * single-step them; arguments are KIND@PLACE, by the names below.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "user/runtime/torch/ops.h"

static const char *const kinds[OP_ARG__COUNT] = {
	[OP_ARG_OTHER] = "-",
	[OP_ARG_TENSOR] = "tensor",
	[OP_ARG_OPTIONAL] = "optional",
	[OP_ARG_TENSOR_LIST] = "tensors",
	[OP_ARG_INTS] = "ints",
	[OP_ARG_INT] = "int",
	[OP_ARG_OPTIONAL_LIST] = "optionals",
	[OP_ARG_TENSOR_LIST_REF] = "tensors&",
	[OP_ARG_INT_REF] = "int&",
	[OP_ARG_OPTIONAL_OLD] = "optional",
};

static const char *const events[] = {
	[OP_CALL] = "call",       [OP_BOXED] = "boxed",   [OP_EVALUATE] = "evaluate",
	[OP_NODE] = "operator()", [OP_PYTHON] = "python", [OP_TEXT] = "text",
};

static void print_place(uint8_t place)
{
	static const char *const regs[] = {"rdi", "rsi", "rdx", "rcx", "r8", "r9"};

	if (place < OP_ARG_STACK)
		printf("%s", regs[place]);
	else
		printf("%d", place - OP_ARG_STACK);
}

static void print_arg(const struct op_arg *arg)
{
	printf(" %s", kinds[arg->kind]);
	if (arg->kind == OP_ARG_OTHER)
		return;
	printf("@");
	print_place(arg->place);
	if (arg->kind == OP_ARG_TENSOR_LIST || arg->kind == OP_ARG_INTS) {
		printf("+");
		print_place(arg->place2);
	}
}

static void print_site(const struct site *site)
{
	printf(" %" PRIx64 ":%d%s", site->offset, site->depth, site->emulated ? "" : "*");
}

static void print_function(const struct torch_ops *ops, const struct torch_fn *fn)
{
	printf("%s %s", events[fn->event], fn->name);
	print_site(&fn->entry);
	printf(" |");
	for (uint32_t i = 0; i < fn->exit_cnt; i++)
		print_site(&ops->site[fn->first_site + i]);
	printf(" |");
	for (uint32_t i = 0; i < fn->unwind_cnt; i++)
		print_site(&ops->site[fn->first_site + fn->exit_cnt + i]);
	printf(" |");
	if (fn->event != OP_CALL) {
		printf(" ");
		print_place(fn->subject);
	}
	for (uint32_t i = 0; i < fn->arg_cnt; i++)
		print_arg(&fn->arg[i]);
	printf("\n");
}

static double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void print_summary(const struct torch_ops *ops, double cpu, double wall)
{
	unsigned stepped = 0, after = 0, unwound = 0, several = 0, placed = 0;

	for (size_t i = 0; i < ops->fn_cnt; i++) {
		stepped += ops->fn[i].stepped;
		after += ops->fn[i].policy == SITES_AFTER_WORK;
		several += ops->fn[i].exit_cnt > 1;
		unwound += ops->fn[i].unwind_cnt > 0;
		placed += ops->fn[i].arg_cnt > 0;
	}
	fprintf(stderr,
		"%zu functions (%u stepped, %u end before destructors, %u with several exits, %u with unwind sites, %u "
		"with arguments), "
		"%u unnamed, %u without sites; %zu sites, %zu nodes; strings of %u bytes, sequence number at %u; "
		"%.3f s of CPU, %.3f s\n",
		ops->fn_cnt, stepped, after, several, unwound, placed, ops->unnamed_cnt, ops->unplaced_cnt,
		ops->site_cnt, ops->node_cnt, ops->string_bytes, ops->sequence_nr, cpu, wall);
}

int main(int argc, char **argv)
{
	double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID), wall = seconds(CLOCK_MONOTONIC);
	struct torch_ops *ops = NULL;
	struct elf *elf = NULL;
	int err;

	if (argc < 2 || argc > 3) {
		fprintf(stderr, "usage: ops LIB [CACHE-DIR]\n");
		return 2;
	}
	err = elf__new(argv[1], &elf);
	err = err ?: torch_ops__find(elf, argc > 2 ? argv[2] : NULL, &ops);
	if (err) {
		fprintf(stderr, "ops: %s: %s\n", argv[1], strerror(-err));
	} else {
		print_summary(ops, seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu, seconds(CLOCK_MONOTONIC) - wall);
		for (size_t i = 0; i < ops->fn_cnt; i++)
			print_function(ops, &ops->fn[i]);
		for (size_t i = 0; i < ops->node_cnt; i++)
			printf("node %" PRIx64 " %s +%" PRIu64 "\n", ops->node[i].vtable, ops->node[i].name,
			       ops->node[i].object);
	}
	torch_ops__free(ops);
	elf__free(elf);
	return err ? 1 : 0;
}
