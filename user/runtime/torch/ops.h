/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The operators and autograd nodes of a torch library, from its file alone: their names, where the arguments are, and
 * probe sites. Works on libtorch_cpu (operators, the autograd engine, nodes), libtorch_python (Python's nodes, and
 * copies of functions that may hide libtorch_cpu's: each call passes one of them), and any other library (nodes).
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
 * A function to be probed. Its sites: exits, then unwinds (where an exception leaves it), in torch_ops.site from
 * first_site on.
 */
struct torch_fn {
	/* OP_CALL: of the schema, "aten::add.Tensor" (no dot: no overload), or "detach"; else for messages */
	const char *name;
	struct site entry;
	uint32_t first_site;
	uint16_t exit_cnt, unwind_cnt;
	uint8_t event; /* enum op_event */
	/* place of the Node *; OP_BOXED: of the OperatorHandle *, the stack of IValues next; OP_PYTHON: of the class */
	uint8_t subject;
	uint8_t policy;  /* enum sites_policy by which the exits were found */
	bool stepped;    /* the entry or an exit would be single-stepped */
	uint8_t arg_cnt; /* OP_CALL: of the schema's arguments, as far as their places are known */
	struct op_arg arg[OP_ARGS_MAX];
};

/* A class derived from torch::autograd::Node. */
struct torch_node {
	const char *name; /* as Node::name() says: "AddmmBackward0", "torch::autograd::AccumulateGrad"; of PyNode: "" */
	uint64_t vtable;  /* vaddr that the first word of an object holds, less the load bias */
	uint64_t object;  /* of PyNode: bytes to the PyObject * whose class names it; 0: not known */
};

/*
 * An operator's name, of a boxed call: the OperatorHandle's first word points at its definition, which begins with
 * {std::string name ("aten::add"), std::string overload ("Tensor")}. A string of 32 bytes begins with {char *text,
 * size_t length}; one of 8 is a pointer to the text, with its length 24 bytes before it (libstdc++'s, with and without
 * the C++11 ABI).
 */
struct torch_ops {
	struct torch_fn *fn; /* by event, then name */
	size_t fn_cnt;
	struct site *site;
	size_t site_cnt;
	struct torch_node *node; /* by vtable */
	size_t node_cnt;
	uint32_t unnamed_cnt, unplaced_cnt; /* functions left out: no name that proved true, no sites */
	uint16_t string_bytes;              /* 32 or 8; 0 not known from this file */
	uint16_t sequence_nr;               /* bytes from a Node to its sequence number; 0 not known from this file */
	char *names;                        /* all names, each ends in a NUL */
	size_t names_size;
};

/*
 * Everything of one file. With cache_dir (NULL: none; made when it is not there) the answer is read from, or written
 * to, cache_dir/BUILD-ID.operators; a cache that cannot be read or written is no error. 0, -ENOENT nothing of torch in it,
 * -ENOMEM. Free with torch_ops__free.
 */
int torch_ops__find(const struct elf *elf, const char *cache_dir, struct torch_ops **out);
void torch_ops__free(struct torch_ops *ops); /* accepts NULL */

#endif
