/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by ops.c (windows), op_probes.c (what is probed) and op_table.c (rows as records) only. */
#ifndef STEPFLAME_USER_SESSION_SOURCES_OPS_H
#define STEPFLAME_USER_SESSION_SOURCES_OPS_H

#include "include/ops.h"
#include "user/runtime/torch/ops.h"
#include "user/session/sources/modules.h"
#include "user/session/state.h"

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

/* Of a session: nothing of it is used where operators were not asked for. */
struct ops {
	struct op_proc *procs;       /* the BPF map, OP_PROCS_MAX of them; NULL: not asked for */
	const struct op_entry *rows; /* the BPF map, OP_ROWS */
	struct op_val *sent;         /* each row as it was last sent */
	size_t file_cnt, name_cnt;
	struct op_file *files;
	struct op_name *names; /* ascending by id */
	uint32_t def_cnt;
	struct spans_encoder *spans; /* of the timeline; NULL: not asked for */
	struct modules *modules;     /* NULL: none was met */
	struct op_target targets[OP_PROCS_MAX];
};

static inline struct ops *ops__of(const struct session *s)
{
	return session__state(s, SOURCE_OPS);
}

/* op_probes.c: all probes of one process, by the libraries that it has mapped, in the target of that slot. 0 or -errno. */
int op_probes__add(struct session *s, struct target *t, uint32_t slot);

/* op_table.c */
int op_table__map(struct session *s); /* maps the BPF arrays. 0 or -errno */
void op_table__unmap(struct session *s);
/* Adds the names of a file's operators and nodes. 0 or -ENOMEM. */
int op_table__add_names(struct ops *ops, const struct torch_ops *found);
/* Sends the windows that are open, as far as they have come. */
void op_table__windows(struct session *s);
/* Rows that changed since the last call, and windows that are open. 0 or -errno of the sink. */
int op_table__snapshot(struct session *s);
/* The timeline: a span on its way to the file, and the end of a window. */
void op_table__span(struct session *s, const struct rec_span *span);
void op_table__flush_spans(struct session *s);

#endif
