/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by ops.c (probes and windows) and op_table.c (rows as records) only. */
#ifndef STEPFLAME_SESSION_OPS_PRIVATE_H
#define STEPFLAME_SESSION_OPS_PRIVATE_H

#include "../../include/ops.h"
#include "../target/ops.h"
#include "ops.h"

/* As bpf/maps.h has it. */
struct op_row {
	uint64_t hash;
	struct op_key key;
	struct op_val val;
};

/* Names that rows may bear. Ids are hashes of the texts, so that a text is sent only when a row first bears it. */
struct op_name {
	uint64_t id;
	const char *text; /* owned by the op_file */
	bool sent;
};

/* A library with operators or nodes, and where its operators begin in op_defs. */
struct op_file {
	uint64_t dev, inode;
	struct torch_ops *found;
	uint32_t first;
};

enum op_link { LINK_EXIT, LINK_ENTER, LINK_NODE, LINK__COUNT }; /* in the order in which they are armed */

struct op_target {
	struct target *target; /* NULL: the slot is free */
	struct probe_list lists[LINK__COUNT];
	struct attachment *links[LINK__COUNT];
};

struct ops {
	struct op_proc *procs;     /* the BPF map, OP_PROCS_MAX of them */
	const struct op_row *rows; /* the BPF map, OP_ROWS */
	uint64_t *calls;           /* of each row, when it was last sent */
	size_t file_cnt, name_cnt;
	struct op_file *files;
	struct op_name *names; /* ascending by id */
	uint32_t def_cnt;
	struct op_target targets[OP_PROCS_MAX];
};

/* op_table.c */
int op_table__map(struct session *s); /* maps the BPF arrays. 0 or -errno */
void op_table__unmap(struct session *s);
/* Adds the names of a file's operators and nodes. 0 or -ENOMEM. */
int op_table__add_names(struct ops *ops, const struct torch_ops *found);

#endif
