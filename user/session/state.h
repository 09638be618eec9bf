/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The session's insides, for its own files and the sources: session.c (life cycle), targets.c (processes),
 * target_probes.c (their probes), file_probes.c (the probes of a file), snapshot.c (maps to records), cost.c, emit.c.
 */
#ifndef STEPFLAME_USER_SESSION_STATE_H
#define STEPFLAME_USER_SESSION_STATE_H

#include "include/probes.h"
#include "user/lib/array.h"
#include "user/lib/names.h"
#include "user/proc/process.h"
#include "user/runtime/python/python.h"
#include "user/session/selftest.h"
#include "user/session/session.h"
#include "user/session/source.h"

/* Probes of one file, found once and used for every process that maps it. */
struct file_probes {
	uint64_t dev, inode;
	struct probe_list lists[SOURCE__COUNT][SOURCE_SETS];
};

struct attached_file {
	uint64_t dev, inode;
	struct attachment *sets[SOURCE__COUNT][SOURCE_SETS];
};

struct target {
	struct process process;
	struct python python;
	uint64_t python_dev, python_inode; /* of the interpreter's file; 0: none was found */
	char torch[32];
	char jax[16]; /* as in struct rec_target */
	enum target_role role;
	bool has_python, has_torch;
	const struct mapped_file *torch_file, *jax_file; /* in `process`; NULL: it has none mapped */
	bool emitted;                                    /* a REC_TARGET was: */
	struct rec_target sent;
	bool gone;
	bool comes;              /* what it is to be watched for may still come; */
	bool pending;            /* so it is to be looked at again, or for what a source wants of it */
	bool open;               /* its window was opened */
	bool interpreters_noted; /* it has several */
	bool forked;             /* has its parent's memory layout, as BPF knows already */
	uint64_t look_at_ns;     /* when to look again */
	uint64_t since_ns;       /* when it began, or was seen to call exec */
	uint64_t torch_ns;       /* when torch was found in it */
	size_t file_cnt;
	struct attached_file *files; /* owned */
	void *state[SOURCE__COUNT];  /* owned; target__state() */
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
	uint64_t call_ns; /* what a system call takes more since they are watched, without the programs' work */
	void *state[SOURCE__COUNT];                        /* owned; session__state() */
	const struct record_handler *handlers[REC__COUNT]; /* by enum rec_type */
	size_t target_cnt;
	struct target **targets; /* owned */
	struct hit_sums ended;   /* of children that are forgotten */
	size_t file_cnt;
	struct file_probes *files; /* owned */
	bool opened;
	uint64_t window_start_ns, window_end_ns;
	uint64_t attach_ns, detach_ns;
	uint64_t cpu_start_ns;
	uint64_t next_snapshot_ns;
	uint64_t consumed_ns; /* what BPF sent before has been taken */
	struct session_progress progress;
	bool keeps_names;   /* a source wants them: */
	struct names names; /* all that were emitted since */
};

/* What a source knows of the session, and of a target: as many bytes as it asked for. */
static inline void *session__state(const struct session *s, enum source_id id)
{
	return s->state[id];
}

static inline void *target__state(const struct target *t, enum source_id id)
{
	return t->state[id];
}

/* Is that its interpreter's file? */
static inline bool target__is_python(const struct target *t, const struct mapped_file *file)
{
	return t->python_inode == file->inode && t->python_dev == file->dev && file->inode;
}

void target__clear_state(struct target *t, enum source_id id);

/* emit.c */
uint64_t session__now_ns(void);
int session__emit(struct session *s, const struct rec_hdr *record); /* to the sink; remembers the first error */
void session__note(struct session *s, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* for the report */
uint64_t session__name_id(const char *text);                      /* the id that a text has, without sending it */
uint64_t session__emit_name(struct session *s, const char *text); /* interns a text of ours; its id */

/*
 * file_probes.c: the probes of a file that a process has mapped, found once per session. `elf` is NULL when the file is
 * not open yet. NULL: no memory, or unreadable. Valid until the next call.
 */
struct file_probes *file_probes__of(struct session *s, struct target *t, const struct mapped_file *file,
				    struct elf *elf);
void file_probes__release(struct file_probes *f);

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
	return proc->steps.rule || proc->steps.seen_rule == STEP_BACKWARD;
}

/*
 * To be called at the end: in the report such children are main processes, unless they are those of one that trains too.
 * So are those of launchers: torchrun, a shell.
 */
void targets__emit_trainers(struct session *s);
void targets__event(struct session *s, const struct rec_proc *rec);
/* Attends to pending targets and to exits that no event told. */
void targets__tend(struct session *s);
/* How long to wait at most until some target is to be looked at. */
int targets__timeout_ms(const struct session *s, int timeout_ms);
bool targets__is_young(const struct target *t, uint64_t age_ns); /* it began, or called exec, less than that ago */
void target__free(struct target *t);
/* What BPF knows of it. false: nothing. */
bool target__proc(const struct session *s, const struct target *t, struct proc *out);

/* target_probes.c */
/* Attaches what that file is to have, if it is not attached yet; elf may be NULL. 0 or -errno. */
int target__attach(struct session *s, struct target *t, const struct mapped_file *file, struct elf *elf);
/* Attaches what its files are to have, and have not (any more). 0 or -errno. */
int target__attach_again(struct session *s, struct target *t);
/* Has the file any of a source's, where it is attached to that target? */
bool target__has_probes(const struct session *s, const struct target *t, const struct mapped_file *file,
			enum source_id id);
/* Detaches a set of a source from one file (by device and inode) or, with inode 0, from all. */
void target__detach_set(struct target *t, enum source_id id, int set, uint64_t dev, uint64_t inode);
void target__detach(struct target *t);
void targets__detach(struct session *s, struct detachment *d); /* at the end: hands over what is attached */

/* cost.c */
void hit_sums__add(const struct session *s, struct hit_sums *sums, const struct target *t, const struct proc *proc);
void hit_sums__cost(const struct session *s, const struct hit_sums *sums, struct rec_cost *cost);
uint64_t session__cpu_ns(void); /* of this process, user and system */
uint64_t session__rss_bytes(void);

/* snapshot.c: the maps as records. 0 or -errno of the sink. */
int snapshot__emit(struct session *s);
/* Steps, and whether all are done, without emitting anything. */
void snapshot__progress(struct session *s);

#endif
