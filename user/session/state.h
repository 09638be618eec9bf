/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The session's private state, for its own files and the sources: session.c (life cycle), targets.c
 * (processes), file_probes.c (the probes of files, and where they are attached), snapshot.c (maps to
 * records, and what the recording costs), emit.c.
 */
#ifndef STEPFLAME_USER_SESSION_STATE_H
#define STEPFLAME_USER_SESSION_STATE_H

#include "include/probes.h"
#include "include/resource_records.h"
#include "user/identity/job_id.h"
#include "user/lib/map.h"
#include "user/lib/names.h"
#include "user/proc/proc.h"
#include "user/proc/process.h"
#include "user/runtime/python/python.h"
#include "user/session/guardian.h"
#include "user/session/programs.h"
#include "user/session/session.h"
#include "user/session/source.h"

/* Probes of one file, found once and attached to every process that maps it. */
struct file_probes {
	struct probe_list lists[SOURCE__COUNT][SOURCE_SETS];
	bool searched[SOURCE__COUNT];
};

/* What the session knows of a file that processes map. */
struct known_file {
	struct file_id {
		uint64_t dev, inode;
	} id;
	/* When it was first opened: with another content it is another file. */
	bool seen;
	struct file_content content;
	int fd;                     /* valid if `open` */
	bool open, pinned;          /* pinned: probe lists use the descriptor */
	bool used;                  /* as mark_used found */
	struct file_probes *probes; /* owned; NULL: the session has not searched the file */
	void *state[SOURCE__COUNT]; /* owned; file__state() */
};

/* The rests of a target, for --budget, or because its group is paused. */
struct target_rest {
	bool rests;         /* it has no probes now, but that of its ticks */
	bool paused;        /* nor that */
	bool told;          /* a REC_REST has said what the budget is */
	uint32_t cnt;       /* with this one */
	uint64_t before_ns; /* the sum of those before this one */
	uint64_t from_ns, to_ns;
	/* At the last look: */
	double paid_ns;
	uint64_t steps;
	/* When this window began: */
	double paid_before_ns;
	uint64_t window_from_ns;
};

struct attached_file {
	uint64_t dev, inode;
	struct file_probes *probes;                /* the session's */
	uint32_t sets[SOURCE__COUNT][SOURCE_SETS]; /* ids of the guardian's attachments; 0: not attached */
};

struct target {
	struct process process;
	struct python python;
	uint64_t python_dev, python_inode; /* of the interpreter's file; 0: none found */
	char torch[32];
	char jax[16]; /* as in struct rec_target */
	enum target_role role;
	uint32_t group; /* processes that rest together */
	struct target_rest rest;
	struct proc_extent extent; /* when its files were last read, */
	bool files_settled;        /* and the time before it was the same one */
	uint64_t opened_ns;       /* when its window opened first, without --steps: a rest moves what BPF knows of it */
	struct rank_id rank;      /* as it was when the session last looked */
	uint64_t rank_delay_ns;   /* how long the session waits for its next look at the rank, */
	uint64_t rank_look_at_ns; /* which is then */
	bool has_python, has_torch;
	uint32_t python_failed;                          /* times that it could not be read */
	int python_err;                                  /* of python__find, when it was last asked */
	bool python_refused;                             /* said so: the session does not ask again */
	const struct mapped_file *torch_file, *jax_file; /* in `process`; NULL: not mapped */
	bool emitted;                                    /* targets__resolve emitted REC_TARGET */
	bool unchecked;                                  /* which waits until it is known that it can be recorded */
	struct rec_target sent;                          /* the last REC_TARGET; pid 0: none yet */
	struct rec_job job;                              /* the last REC_JOB; pid 0: none yet */
	bool gone;
	struct proc *last;       /* owned: BPF's state of it when it ended; NULL: it has not, or BPF has none */
	bool awaits_libraries;   /* it may still load libraries that the session waits for */
	bool pending;            /* the session must look again, for that or for a source */
	bool open;               /* its window has opened */
	bool interpreters_noted; /* the note on several interpreters is written */
	uint32_t unread;         /* looks in a row that could not read it, up to a limit */
	bool given;              /* to session__attach; else a child of one that was, or of a command */
	bool forked;             /* a fork: has its parent's memory layout, which BPF has copied */
	uint64_t look_at_ns;     /* when to look at it again, if pending */
	uint64_t checked_ns;     /* when it was last known to live */
	uint64_t since_ns;       /* when it started, or stepflame saw its exec */
	uint64_t torch_ns;       /* when the session found torch in it */
	bool files_refused;      /* it maps too many files with probes, and a note says so */
	size_t file_cnt;
	struct attached_file *files; /* owned */
	void *state[SOURCE__COUNT];  /* owned; target__state() */
};

/* What the probes cost the processes, summed up. */
struct hit_sums {
	uint64_t hits;
	struct {
		uint64_t hits, hits_ns, sampler_ns, calls_sampled, calls_sampled_ns;
	} busiest; /* the process that paid most */
};

/* What the main processes do together: see struct rec_window. */
struct window_sums {
	uint64_t start_ns, end_ns, steps; /* steps: of the one that made most */
	uint32_t step_rule;
};

/* Notes of one form, of which a recording has so many at most. */
struct note_kind {
	const char *form;
	uint64_t cnt;
};

struct ended_pid {
	uint32_t pid;
	bool reused; /* by a target that lives: its rows stay */
};

struct session {
	struct session_options options;
	session_sink sink;
	void *sink_ctx;
	int sink_err;
	struct stepflame_bpf *skel;
	struct ring_buffer *ring;
	unsigned long read_to; /* the position in the ring where session__read_ring ends */
	struct selftest selftest;
	struct guardian *guardian; /* attaches and detaches the targets' probes */
	bool guardian_gone;        /* it was killed, and a note says so */
	/* What tracing adds to a system call, less the time of the BPF programs. */
	uint64_t call_ns;
	void *state[SOURCE__COUNT];                        /* owned; session__state() */
	const struct record_handler *handlers[REC__COUNT]; /* by enum rec_type */
	size_t target_cnt;
	struct target **targets;         /* owned */
	struct hit_sums ended;           /* of targets that the session has freed, */
	struct window_sums ended_window; /* and of main processes among them */
	bool ended_mains;
	struct map ended_pids; /* struct ended_pid: processes whose rows the next snapshot deletes */
	uint64_t ended_calls;  /* spans in the rows that are gone */
	uint64_t procs_full;   /* processes for which BPF's map `procs` had no room */
	uint64_t ring_full;    /* records that BPF had no room for, at the last snapshot, */
	bool ring_filled;      /* which are more than at the one before */
	struct map files;      /* struct known_file */
	size_t files_max;      /* with so many files, it is time to forget those that nobody maps */
	bool opened;
	uint64_t window_start_ns, window_end_ns;
	uint64_t attach_ns, detach_ns;
	uint64_t cpu_start_ns;
	uint64_t next_snapshot_ns;
	uint64_t consumed_ns; /* the session has read all that BPF emitted before this time */
	struct session_progress progress;
	struct {
		struct array groups; /* struct budget_group */
		uint64_t look_ns;    /* the next look */
		unsigned int seed;
	} budget;
	struct array note_kinds; /* struct note_kind */
	bool keeps_names;        /* a source needs the texts of names */
	struct names names;      /* those emitted since keeps_names was set, up to a limit */
};

/* A source's session state and target state: session_bytes and target_bytes long. */
static inline void *session__state(const struct session *s, enum source_id id)
{
	return s->state[id];
}

static inline void *target__state(const struct target *t, enum source_id id)
{
	return t->state[id];
}

/* Is this the file of the target's interpreter? */
static inline bool target__is_python(const struct target *t, const struct mapped_file *file)
{
	return t->python_inode == file->inode && t->python_dev == file->dev && file->inode;
}

void target__clear_state(struct target *t, enum source_id id);

/* session.c */
/* Reads what BPF has sent up to now. Not from a handler of a record. */
void session__read_ring(struct session *s);

/* emit.c */
uint64_t session__now_ns(void);
/* Passes a record to the sink. 0, or the first -errno of the sink. */
int session__emit(struct session *s, const struct rec_hdr *record);
/* Call at the end: how many notes were left out? */
void session__note_left_out(struct session *s);
/* The id of a text, without emitting the text. */
uint64_t session__name_id(const char *text);
/* Emits a text as a name. Returns its id. */
uint64_t session__emit_name(struct session *s, const char *text);

/* file_probes.c */
/* Returns NULL if the session has not searched the file. */
struct file_probes *file_probes__find(const struct session *s, const struct mapped_file *file);
/*
 * A source's state of a file: file_bytes long, valid as long as a target maps the file, or the source
 * needs it. NULL: no memory.
 */
void *file__state(struct session *s, uint64_t dev, uint64_t inode, enum source_id id);
/*
 * The descriptor by which the session reads the file and attaches to it, whatever happens to its path:
 * owned by the session, open until file__close, or with `pin` until the file is forgotten. -ESTALE:
 * the file is not the one that the session knows; or an error of mapped_file__open.
 */
int file__open(struct session *s, const struct mapped_file *file, bool pin);
/* elf__new_fd of a copy of that descriptor. */
int file__elf(struct session *s, const struct mapped_file *file, struct elf **out);
/* Closes it unless it is pinned. */
void file__close(struct session *s, const struct mapped_file *file);
/*
 * Call before a target's process is read anew: forgets what is known of files that nobody maps, and
 * whose content is another one now. Their inodes may be those of other files.
 */
void session__renew_files(struct session *s, const struct process *process);
/* Now and then: forgets files that nobody maps, but for some, since a job that ended may start again. */
void session__forget_files(struct session *s);
void session__free_files(struct session *s);

/* targets.c */
struct target *targets__find(struct session *s, pid_t pid);
/* Emits REC_TARGET with all that is known of the target. */
void target__emit(struct session *s, struct target *t);
/*
 * Call at the end: makes a child with steps a main process in the report, unless its parent has
 * steps too and it is no rank of its own. This includes children of launchers such as torchrun or a
 * shell.
 */
void target__emit_trainer(struct session *s, struct target *t);
/* Adds a process and takes ownership of *process. 0 or -errno. */
int targets__add(struct session *s, struct process *process, enum target_role role, struct target **out);
/* Looks at the target's mapped files and attaches missing probes. 0 or -errno. */
int targets__resolve(struct session *s, struct target *t);
bool targets__opts_out(const struct session *s, pid_t child); /* as session_options.opt_out says */
/*
 * Says that the target is recorded without its Python, and does not look for it again. Call when
 * python_err tells of a Python that cannot be read (python__is_unreadable).
 */
void target__refuse_python(struct session *s, struct target *t);
int targets__open(struct session *s, struct target *t);
/* Attaches all probes again, after a rest. */
void targets__reattach(struct session *s, struct target *t);
/* The child is a main process: the session records its operators too. */
void targets__promote(struct session *s, struct target *t);
/* Does a process have steps of its own? Fetching a few batches is not enough. */
static inline bool targets__has_steps(const struct proc *proc)
{
	return proc->steps.rule || proc->steps.seen_rule == STEP_BACKWARD;
}

void targets__handle_event(struct session *s, const struct rec_proc *rec);
/* Call where records were lost: forgets processes that have ended without a record that is read. Reads the ring. */
void targets__forget_unseen(struct session *s);
/* Handles pending targets, and exits whose event was lost. */
void targets__tend(struct session *s);
/* How long the session may wait before it must look at a target, in ms: at most timeout_ms. */
int targets__timeout_ms(const struct session *s, int timeout_ms);
/* Did the target start, or call exec, less than age_ns ago? */
bool targets__is_young(const struct target *t, uint64_t age_ns);
void target__free(struct target *t); /* must be detached */
/*
 * Marks a target as gone, and frees what it had mapped: some 8 KB per library, and a job may have
 * thousands of children, one after another.
 */
void target__mark_gone(struct session *s, struct target *t);
/* Copies BPF's state of the target. false: BPF has none. */
bool target__proc(const struct session *s, const struct target *t, struct proc *out);

/* file_probes.c: the probes of a target, file by file */
/*
 * Call before a list is attached, and best before others in the same file are: may it be? 0;
 * -EBADMSG: the target's code at a site is not that of the file; or -errno.
 */
int target__compare(const struct target *t, const struct probe_list *list);
/* Attaches the probes of a file that are not attached yet; elf may be NULL. 0 or -errno. */
int target__attach(struct session *s, struct target *t, const struct mapped_file *file, struct elf *elf);
/*
 * Attaches the sets that are missing from the target's files: a source did not want them before, or
 * detached them. 0 or -errno.
 */
int target__attach_again(struct session *s, struct target *t);
/* Are any probes of a source attached to this file in this target? */
bool target__has_probes(const struct target *t, const struct mapped_file *file, enum source_id id);
/* Detaches a source's set from one file (dev and inode) or, with inode 0, from all files. */
void target__detach_set(struct session *s, struct target *t, enum source_id id, int set, uint64_t dev, uint64_t inode);
void target__detach(struct session *s, struct target *t);
/* Detaches what the target has unmapped: it may map any number of files, one after another. */
void target__detach_unmapped(struct session *s, struct target *t);
/* Detaches all targets of a group, at once, for a rest: sets with in_rests stay. */
void targets__detach_group(struct session *s, uint32_t group);
/* Hands over all attachments, at the end. */
void targets__detach(struct session *s, struct detachment *d);

/* budget.c */
/* Call at each poll: looks what the processes have paid since the last look, and lets groups rest or wake. */
void budget__tend(struct session *s);
/* A child has been forked, or a process attached: it rests with its group. */
void budget__join(struct session *s, struct target *t);
void budget__free(struct session *s);

/* snapshot.c */
/* What a process has paid since its fork: hits, samples and system calls. */
double target__paid_ns(const struct session *s, const struct target *t, const struct proc *proc);
void hit_sums__add(const struct session *s, struct hit_sums *sums, const struct target *t, const struct proc *proc);
uint64_t session__cpu_ns(void); /* of this process, user and system */
uint64_t session__rss_bytes(void);

/* Emits the maps as records. 0 or -errno of the sink. */
int snapshot__emit(struct session *s);
/* t: a main process. */
void window_sums__add(struct window_sums *sums, const struct target *t, const struct proc *proc);
#define ROW_BATCH     64                     /* more than meet in one bucket of a map */
#define ROW_VAL_BYTES sizeof(struct agg_val) /* the largest value of a row */

/*
 * A walk over the rows of a map whose keys begin with a pid. It deletes the rows of processes that
 * have ended.
 */
struct row_walk {
	int fd;
	struct rec_hdr *record; /* a header, the key, the value: takes each row */
	size_t key_bytes;       /* up to 32 */
	uint64_t deleted;       /* rows so far */
	/* Rows that were read together. */
	uint32_t batch, cnt, at; /* where the map goes on; how many; how many of these were taken */
	bool begun, done;
	uint8_t keys[ROW_BATCH * 32], vals[ROW_BATCH * ROW_VAL_BYTES];
};

/* false: there is no further row. */
bool row_walk__next(const struct session *s, struct row_walk *walk);
/* Updates the steps, and whether all are done, without emitting records. */
void snapshot__progress(struct session *s);

#endif
