/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The session's insides, shared by its files only: session.c (life cycle), targets.c (processes), snapshot.c (maps to
 * records).
 */
#ifndef STEPFLAME_USER_SESSION_STATE_H
#define STEPFLAME_USER_SESSION_STATE_H

#include "include/ops.h"
#include "include/probes.h"
#include "user/lib/array.h"
#include "user/lib/intern.h"
#include "user/lib/names.h"
#include "user/proc/process.h"
#include "user/runtime/python/pyexact.h"
#include "user/runtime/python/python.h"
#include "user/session/attach.h"
#include "user/session/gpu_cupti.h"
#include "user/session/selftest.h"
#include "user/session/session.h"

/* One --action. */
struct user_action {
	char *library; /* of a native function: base name prefix, or a path; else NULL */
	char *file;    /* of a Python function: the end of its path; else NULL */
	char *symbol;  /* or qualified name */
	bool found;    /* it can be timed in some target */
};

enum probe_set {
	PROBES_LANDMARKS,
	PROBES_LATE,    /* those that are for Lightning only, where it is there */
	PROBES_KEPT,    /* what the governor leaves alone: garbage, collectives */
	PROBES_ACTIONS, /* --action */
	PROBES_EXACT,   /* --exact: of a program of its own */
	PROBES_GPU_END, /* functions of CUDA and NCCL: of two programs, the ends armed first */
	PROBES_GPU,
	PROBES_NVTX,
	PROBES__COUNT,
};

/* How the calls of an interpreter are seen. */
struct exact_file {
	const char *why;      /* they cannot be; else NULL */
	uint32_t word_offset; /* as in struct py_exact */
	uint64_t eval;
};

/* Probes of one file, found once and used for every process that maps it. */
struct file_probes {
	uint64_t dev, inode;
	struct probe_list sets[PROBES__COUNT];
	struct exact_file exact;
};

struct attached_file {
	uint64_t dev, inode;
	struct attachment *sets[PROBES__COUNT];
};

struct target {
	struct process process;
	struct python python;
	char torch[32];
	char jax[16]; /* as in struct rec_target */
	enum target_role role;
	bool has_python, has_torch;
	bool has_pjrt;   /* functions of a PJRT plugin are watched; */
	bool lacks_pjrt; /* it has a plugin whose table was not found yet */
	bool lightning;  /* it has shown an action of Lightning's */
	bool told;       /* a REC_TARGET was sent: */
	struct rec_target sent;
	bool gone;
	bool pending;            /* libraries may still come: look again */
	bool open;               /* its window was opened */
	bool interpreters_noted; /* it has several */
	struct {
		uint64_t dev, inode;     /* of the interpreter's file */
		uint64_t idle_hits;      /* as last read */
		uint64_t aside_until_ns; /* its landmarks are away until then; 0: they are there */
		bool noted;
	} governor;
	struct {
		uint64_t hits;    /* as last read */
		uint64_t over_ns; /* for how long they have been too dear */
		bool aside;       /* the probes were taken away */
	} nvtx;
	struct {
		struct exact_file file;
		bool armed;      /* all calls can be seen */
		bool incomplete; /* not all can, which was told */
		size_t word_cnt;
		uint64_t words[PY_EXACT_WORDS]; /* set, or left alone since the program had */
	} exact;
	struct gpu_cupti *cupti; /* NULL: not looked for */
	struct {
		bool seen;     /* it has mapped functions of CUDA or NCCL, and they are watched */
		bool noted;    /* that it has none */
		uint32_t tier; /* as in struct rec_gpu, as all below */
		uint32_t cupti_version;
		uint64_t cupti_ns, lost;
		uint32_t windows;      /* of CUPTI's that were told */
		uint32_t windows_over; /* of the schedule that have passed */
		char why[96];
	} gpu;
	bool forked;         /* has its parent's memory layout, as BPF knows already */
	uint64_t look_at_ns; /* when to look again */
	uint64_t since_ns;   /* when it began, or was seen to call exec */
	uint32_t op_slot;    /* 1 + that of its operators; 0: not recorded */
	uint64_t torch_ns;   /* when torch was found in it */
	size_t file_cnt;
	struct attached_file *files; /* owned */
};

/* What processes paid. */
struct hit_sums {
	uint64_t hits, sampled, sampled_ns; /* as in struct proc */
	struct {
		uint64_t hits, sampler_ns, calls_sampled, calls_sampled_ns;
	} busiest; /* of the one that paid most */
};

struct session {
	struct session_options options;
	session_sink sink;
	void *sink_ctx;
	int sink_err;
	struct stepflame_bpf *skel;
	struct ring_buffer *ring;
	struct selftest selftest;
	uint64_t call_ns;        /* what a system call takes more since they are watched, without the programs' work */
	struct ops *ops;         /* NULL: not asked for */
	struct modules *modules; /* NULL: none was met */
	struct sampler *sampler; /* NULL: not asked for */
	struct guardian *guardian; /* NULL: no --exact */
	struct nvml *nvml;         /* NULL: no GPUs asked for */
	struct gpu_probes *gpu;
	struct {
		struct array files; /* of nvtx_probes.c */
		uint32_t site_cnt;
	} nvtx;
	struct user_action *actions;
	bool py_inlines; /* a Python function was wanted of an interpreter that inlines calls: CPython 3.11 and later */
	size_t target_cnt;
	struct target **targets; /* owned */
	struct hit_sums ended;   /* of children that are forgotten */
	size_t file_cnt;
	struct file_probes *files; /* owned */
	bool opened;
	uint64_t window_start_ns, window_end_ns;
	uint64_t attach_ns, detach_ns;
	struct intern codes;      /* functions that were told of, by id */
	struct array codes_lined; /* bool by number: with their lines */
	uint64_t lines_lost;      /* as the counter of that name, which BPF does not add to: those without */
	uint64_t files_ns;        /* files used before have their record */
	uint64_t cpu_start_ns;
	uint64_t next_snapshot_ns;
	uint64_t consumed_ns;             /* what BPF sent before has been taken */
	struct gpu_cupti_losses gpu_lost; /* of processes that have ended */
	uint64_t governed_ns;             /* when the governor last looked */
	struct session_progress progress;
	struct names names; /* all that were told of, with --step-at or where there is JAX */
	bool has_jax;
	bool step_at_seen;
};

uint64_t session__now_ns(void);
uint64_t session__cpu_ns(void); /* of this process, user and system */
uint64_t session__rss_bytes(void);
int session__emit(struct session *s, const struct rec_hdr *record); /* to the sink; remembers the first error */
void session__note(struct session *s, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* for the report */
uint64_t session__name_id(const char *text);                      /* the id that a text has, without sending it */
uint64_t session__emit_name(struct session *s, const char *text); /* interns a text of ours; its id */

enum file_holds { HOLDS_NOTHING = 0, HOLDS_TORCH, HOLDS_JAX, HOLDS_PLUGIN };

/*
 * file_probes.c: the probes of a file that a process has mapped, found once per session. `python` is NULL when it is no
 * interpreter, `elf` when the file is not open yet. NULL: no memory, or unreadable. Valid until the next call.
 */
struct file_probes *file_probes__of(struct session *s, const struct process *process, const struct mapped_file *file,
				    const struct python *python, struct elf *elf, enum file_holds holds);
bool file_probes__has_action(const struct session *s, const struct mapped_file *file); /* of --action LIB:SYMBOL */

/* targets.c */
struct target *targets__find(struct session *s, pid_t pid);
/* Adds a process that was read already (taken over); 0 or -errno. */
int targets__add(struct session *s, struct process *process, enum target_role role, struct target **out);
/* Looks at what it has mapped and attaches what is not attached yet. 0 or -errno. */
int targets__resolve(struct session *s, struct target *t);
int targets__open(struct session *s, struct target *t);
/* A child has steps of its own: its operators are recorded, too. */
void targets__trains(struct session *s, struct target *t);
/* Has it? To fetch some batches is not enough. */
static inline bool targets__has_steps(const struct proc *proc)
{
	return proc->step_rule || proc->seen_rule == STEP_BACKWARD;
}

/*
 * To be called at the end: in the report such children are main processes, unless they are those of one that trains too.
 * So are those of launchers: torchrun, a shell.
 */
void targets__tell_trainers(struct session *s);
void targets__note(struct session *s); /* at the end: what they have that could not be watched */
void targets__event(struct session *s, const struct rec_proc *rec);
/* Attends to pending targets and to exits that no event told. */
void targets__tend(struct session *s);
/* How long to wait at most until some target is to be looked at. */
int targets__timeout_ms(const struct session *s, int timeout_ms);
void target__free(struct target *t);

/* target_probes.c */
/* Attaches what that file is to have, if it is not attached yet; python and elf may be NULL. 0 or -errno. */
int target__attach(struct session *s, struct target *t, const struct mapped_file *file, const struct python *python,
		   struct elf *elf, enum file_holds holds);
/* Takes the landmarks of a file that this target has mapped away, or attaches them again. */
void target__put_aside(struct target *t, uint64_t dev, uint64_t inode);
int target__attach_again(struct session *s, struct target *t);
void target__put_nvtx_aside(struct target *t); /* for good */
void target__detach(struct target *t);
void targets__detach(struct session *s, struct detachment *d); /* at the end: hands over what is attached */

/* governor.c: called some times a second. */
void governor__tend(struct session *s);

/* snapshot.c: the maps as records. 0 or -errno of the sink. */
int snapshot__emit(struct session *s);
void hit_sums__add(const struct session *s, struct hit_sums *sums, const struct proc *proc, uint64_t op_hits);
/* Steps, and whether all are done, without emitting anything. */
void snapshot__progress(struct session *s);

#endif
