/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The state of operators: of ops.c, and of the test of what it knows of a file. */
#ifndef STEPFLAME_USER_SESSION_SOURCES_OPS_H
#define STEPFLAME_USER_SESSION_SOURCES_OPS_H

#include "include/ops.h"
#include "user/runtime/torch/ops.h"
#include "user/session/state.h"

/*
 * A name that rows may have. Its id is a hash of its text, so the text is emitted only with the
 * first row that has the name.
 */
struct op_name {
	uint64_t id;
	const char *text; /* owned by the op_file */
	bool emitted;
};

/* Of a file: the library's operators and nodes, and the index of its first operator in op_defs. */
struct op_file {
	struct torch_ops *found; /* owned; NULL: not known yet */
	uint32_t first;
};

/* Probe lists, one per BPF program, in the order of attachment. */
enum op_link { LINK_EXIT, LINK_ENTER, LINK_NODE, LINK_BOXED, LINK_MEMORY, LINK__COUNT };

#define OP_LIBRARIES 4 /* with probes, per process */

struct op_library {
	struct probe_list lists[LINK__COUNT];
	uint32_t links[LINK__COUNT]; /* ids of the guardian's attachments; 0: not attached */
};

struct op_target {
	bool refused;          /* attaching its probes has failed */
	struct target *target; /* NULL: the slot is free */
	uint64_t clean_at_ns;  /* when to remove breakpoints from forked children; 0: not needed */
	uint64_t cleaned_ns;   /* when they were last removed */
	size_t library_cnt;
	struct op_library libraries[OP_LIBRARIES];
};

/* Session state; unused without operators. */
struct ops {
	struct op_proc *procs;       /* the BPF map, OP_PROCS_MAX entries; NULL: no operators */
	const struct op_entry *rows; /* the BPF map, OP_ROWS entries */
	struct op_val *emitted;      /* each row as last emitted */
	size_t name_cnt;
	struct op_name *names; /* ascending by id */
	uint32_t def_cnt;
	struct spans_encoder *spans; /* encodes the timeline; NULL: timeline is off */
	struct modules {
		struct map modules, classes;
	} modules; /* those seen so far */
	struct op_target targets[OP_PROCS_MAX];
};

static inline struct ops *ops__of(const struct session *s)
{
	return session__state(s, SOURCE_OPS);
}

#endif
