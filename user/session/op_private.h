/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by op_probes.c (probes and windows) and op_table.c (rows as records) only. */
#ifndef STEPFLAME_USER_SESSION_OP_PRIVATE_H
#define STEPFLAME_USER_SESSION_OP_PRIVATE_H

#include "include/ops.h"
#include "user/runtime/torch/ops.h"
#include "user/session/op_probes.h"

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

/* Probes of one program each, in the order in which they are armed. */
enum op_link { LINK_EXIT, LINK_ENTER, LINK_NODE, LINK_BOXED, LINK_MEMORY, LINK__COUNT };

#define OP_LIBRARIES 4 /* of a process that have probes */

struct op_library {
	struct probe_list lists[LINK__COUNT];
	struct attachment *links[LINK__COUNT];
};

struct op_target {
	bool refused;          /* its probes cannot be attached */
	struct target *target; /* NULL: the slot is free */
	uint64_t sweep_ns;     /* when the children that it forked while armed are relieved; 0: there are none */
	uint64_t swept_ns;     /* the last time */
	size_t library_cnt;
	struct op_library libraries[OP_LIBRARIES];
};

struct ops {
	struct op_proc *procs;       /* the BPF map, OP_PROCS_MAX of them */
	const struct op_entry *rows; /* the BPF map, OP_ROWS */
	struct op_val *sent;         /* each row as it was last sent */
	size_t file_cnt, name_cnt;
	struct op_file *files;
	struct op_name *names; /* ascending by id */
	uint32_t def_cnt;
	struct spans_encoder *spans; /* of the timeline; NULL: not asked for */
	struct op_target targets[OP_PROCS_MAX];
};

/* op_table.c */
int op_table__map(struct session *s); /* maps the BPF arrays. 0 or -errno */
void op_table__unmap(struct session *s);
/* Sends the windows that are open, as far as they have come. */
void op_table__windows(struct session *s);
/* Adds the names of a file's operators and nodes. 0 or -ENOMEM. */
int op_table__add_names(struct ops *ops, const struct torch_ops *found);

#endif
