/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds the operators and autograd nodes of a torch library, from its file alone: their names,
 * where the arguments are, and probe sites. Works on libtorch_cpu (operators, the autograd engine,
 * nodes), libtorch_python (Python's nodes, and copies of functions that may hide libtorch_cpu's:
 * each call passes one of the copies), and any other library (nodes).
 */
#ifndef STEPFLAME_USER_RUNTIME_TORCH_OPS_H
#define STEPFLAME_USER_RUNTIME_TORCH_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/ops.h"
#include "user/elf/elf.h"
#include "user/x86/sites.h"

/*
 * A function to probe. Its sites are in torch_ops.site from first_site on: first the exits, then
 * the unwinds, where an exception leaves it.
 */
struct torch_fn {
	/*
	 * OP_CALL: name of the schema, "aten::add.Tensor" (no dot: no overload), or "detach"; else
	 * a name for messages
	 */
	const char *name;
	struct site entry;
	uint32_t first_site;
	uint16_t exit_cnt, unwind_cnt;
	uint8_t event; /* enum op_event */
	/*
	 * place of the Node *; OP_BOXED: of the OperatorHandle *, followed by the stack of IValues;
	 * OP_PYTHON: of the class
	 */
	uint8_t subject;
	uint8_t policy;  /* enum sites_policy by which the exits were found */
	bool stepped;    /* the kernel would single-step the entry or an exit */
	uint8_t arg_cnt; /* OP_CALL: of the schema's arguments, as far as their places are known */
	struct op_arg arg[OP_ARGS_MAX];
};

/* A class derived from torch::autograd::Node. */
struct torch_node {
	const char *name; /* as Node::name() says: "AddmmBackward0", "torch::autograd::AccumulateGrad"; of PyNode: "" */
	uint64_t vtable;  /* vaddr in the first word of an object, less the load bias */
	uint64_t object;  /* of PyNode: bytes to the PyObject * whose class names it; 0: not known */
};

/*
 * How a boxed call names its operator: the OperatorHandle's first word points at its definition,
 * which begins with {std::string name ("aten::add"), std::string overload ("Tensor")}. A string of
 * 32 bytes begins with {char *text, size_t length}; one of 8 is a pointer to the text, with its
 * length 24 bytes before the text (libstdc++'s, with and without the C++11 ABI).
 */
struct torch_ops {
	struct torch_fn *fn; /* by event, then name */
	size_t fn_cnt;
	struct site *site;
	size_t site_cnt;
	struct torch_node *node; /* by vtable */
	size_t node_cnt;
	uint32_t unnamed_cnt, unplaced_cnt; /* functions left out: without a name that proved true, without sites */
	uint16_t string_bytes;              /* 32 or 8; 0 not known from this file */
	uint16_t sequence_nr;               /* bytes from a Node to its sequence number; 0 not known from this file */
	char *names;                        /* all names, each ends in a NUL */
	size_t names_size;
};

/*
 * Finds everything in one file. With cache_dir (NULL: no cache; created when missing), reads the
 * result from cache_dir/BUILD-ID.operators, or writes it there; a cache that cannot be read or
 * written is not an error. 0, -ENOENT when the file has no code of torch, -ENOMEM. Free with
 * torch_ops__free.
 */
int torch_ops__find(const struct elf *elf, const char *cache_dir, struct torch_ops **out);
void torch_ops__free(struct torch_ops *ops); /* accepts NULL */

#endif
