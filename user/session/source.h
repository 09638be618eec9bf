/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * An event source: one kind of recorded event, with its probes, its state and its records. The
 * session iterates over the table of sources and depends on no particular one; a source uses the
 * session (state.h). To add a source: write sources/NAME.c with its struct source, and add a line
 * to STEPFLAME_SOURCES.
 */
#ifndef STEPFLAME_USER_SESSION_SOURCE_H
#define STEPFLAME_USER_SESSION_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/counters.h"
#include "include/records.h"
#include "user/session/attach.h"

struct bpf_program;
struct detachment;
struct elf;
struct known_file;
struct mapped_file;
struct probe_list;
struct proc;
struct session;
struct stepflame_bpf;
struct target;

/*
 * The session attaches probes and calls each hook in this order. CUPTI comes last, since its `end`
 * waits for the targets; OPS comes before SAMPLES, which may enlarge the ring buffer but never
 * shrinks it.
 */
#define STEPFLAME_SOURCES(X)    \
	X(LANDMARKS, landmarks) \
	X(NATIVES, natives)     \
	X(XLA, xla)             \
	X(ACTIONS, actions)     \
	X(EXACT, exact)         \
	X(GPU, gpu)             \
	X(NVTX, nvtx)           \
	X(OPS, ops)             \
	X(SAMPLES, samples)     \
	X(CODES, codes)         \
	X(AWAITED, awaited)     \
	X(SYSCALLS, syscalls)   \
	X(STEP_AT, step_at)     \
	X(PACKAGES, packages)   \
	X(TICKS, ticks)         \
	X(NVML, nvml)           \
	X(RESOURCES, resources) \
	X(CUPTI, cupti)

enum source_id {
#define X(id, name) SOURCE_##id,
	STEPFLAME_SOURCES(X)
#undef X
		SOURCE__COUNT,
};

/* Does a file that a target maps contain places for a source's probes? */
enum source_holds {
	HOLDS_NO = 0,
	HOLDS_LATER, /* not yet: the session asks again */
	HOLDS_YES,   /* if the probes cannot be attached, the session warns that rows are missing */
	HOLDS_MUST,  /* if the probes cannot be attached, the session cannot record the target */
};

#define SOURCE_SETS    4 /* probe sets per source, at most */
#define SOURCE_RECORDS 3 /* record types per source, at most */

/* Probes of a source in one file that attach and detach together, and share a BPF program. */
struct probe_set {
	/* NULL: the program `probe`. */
	struct bpf_program *(*program)(const struct stepflame_bpf *skel);
	bool in_rests; /* it stays attached in a rest of --budget, if the target is not paused */
	/* Does this target need the set now? NULL: yes. */
	bool (*wanted)(const struct session *s, const struct target *t);
	/* Called after the set has been attached. 0 or -errno. */
	int (*attached)(struct session *s, struct target *t);
};

/*
 * How a source handles a BPF record of a type and at least `bytes` long. false: the session hands
 * the record unchanged to the sink. At most one source handles a record type.
 */
struct record_handler {
	uint32_t type; /* enum rec_type */
	uint32_t bytes;
	bool (*handle)(struct session *s, const struct rec_hdr *record);
};

/* Have the requested windows of a source passed? */
enum source_windows { WINDOWS_NONE = 0, WINDOWS_AHEAD, WINDOWS_PASSED };

/*
 * The session skips NULL hooks. Hooks that return int return 0 or -errno; prepare, start, check and
 * attached print a message before they fail, since that ends the session. The session ignores the
 * result of `open` and `find`.
 */
struct source {
	/*
	 * The session allocates these states, zeroed, and frees them: session__state(),
	 * target__state() and file__state() return them.
	 */
	size_t session_bytes, target_bytes, file_bytes;
	struct probe_set sets[SOURCE_SETS];
	struct record_handler records[SOURCE_RECORDS]; /* the first with NULL ends the list */

	/* ---- the session ---- */
	/* No BPF program is open yet: the source reads options and starts processes of its own. */
	int (*prepare)(struct session *s);
	/*
	 * The programs are open but not loaded: the source sets their constants and map sizes, and
	 * disables programs that the recording does not need. s is NULL when stepflame only tests
	 * the kernel: the source then disables all its programs.
	 */
	void (*configure)(const struct session *s, struct stepflame_bpf *skel, enum attach_backend backend);
	/* The programs are loaded. */
	int (*start)(struct session *s);
	/* The windows of all targets have opened. */
	int (*open)(struct session *s);
	/* Called at each poll, several times per second. */
	void (*tend)(struct session *s);
	/*
	 * A snapshot shall tell of this moment: the source emits the elapsed part of what is
	 * still in progress.
	 */
	void (*cut)(struct session *s);
	/* The windows are about to close. */
	void (*close)(struct session *s);
	/* The windows of a group of targets have just closed for a rest, and have opened again. */
	void (*rest)(struct session *s, uint32_t group);
	void (*wake)(struct session *s, uint32_t group);
	/* The windows have closed; the probes are still attached. */
	void (*end)(struct session *s);
	/* The source writes its notes for the report. */
	void (*note)(struct session *s);
	/* The source emits its rows. */
	int (*snapshot)(struct session *s);
	/* A row of a process that has ended: the snapshot has deleted it. */
	void (*on_ended_row)(struct session *s, const struct rec_agg *row);
	/* The source adds its losses that BPF does not count. */
	void (*count)(const struct session *s, uint64_t counters[CNT__COUNT]);
	/* The source adds the cost of its work outside the targets. */
	void (*cost)(const struct session *s, struct rec_cost *cost);
	/* The recording is complete. -ENOENT: an event that the user requested never occurred. */
	int (*finish)(struct session *s);
	/*
	 * The source hands over its attachments other than the probe sets: first those that may
	 * detach before the sets; with `last`, those that must detach after them.
	 */
	void (*detach)(struct session *s, bool last, struct detachment *d);
	/* The session has read the last BPF record. */
	void (*drained)(struct session *s);
	/*
	 * The session is about to be freed, perhaps without `end`: the source leaves the targets as
	 * they were.
	 */
	void (*restore)(struct session *s);
	/* The source frees what its session state owns. */
	void (*free)(struct session *s);
	/* The sink has dropped stacks and paths: the source makes BPF send them again. */
	void (*resend)(struct session *s);

	/* ---- a file that a target maps ---- */
	/*
	 * Called each time the session looks at the target, and before `find`; it must have no side
	 * effects. If one source returns HOLDS_LATER, all sources wait, since the session searches
	 * a file only once.
	 */
	enum source_holds (*holds)(struct session *s, struct target *t, const struct mapped_file *file);
	/*
	 * Adds the file's probes to the lists, one list per probe set. Called once per session and
	 * file, for the first target for which the source holds it: the probes must fit every other.
	 */
	int (*find)(struct session *s, struct target *t, const struct mapped_file *file, struct elf *elf,
		    struct probe_list sets[SOURCE_SETS]);
	/* No target maps the file: does the source need its state or its descriptor all the same? */
	bool (*needs_file)(const struct session *s, const struct known_file *file);
	/* The recording goes on without this file, which may come again: free_file is next. */
	void (*forget_file)(struct session *s, void *state);
	/* Frees what the file state owns. */
	void (*free_file)(void *state);

	/* ---- a target ---- */
	/*
	 * The session has searched the target's files and attached their probes. For a fork: when
	 * it begins to train.
	 */
	int (*looked_at)(struct session *s, struct target *t);
	/*
	 * After how many ns the session should look at the target again; 0: this source does not
	 * need it.
	 */
	uint64_t (*look_again_ns)(const struct session *s, const struct target *t);
	/* The user named the target: can stepflame record what the user requested? */
	int (*check)(struct session *s, const struct target *t);
	/*
	 * The user named the target, which has neither torch nor JAX: can this source still record
	 * something?
	 */
	bool (*watches)(const struct session *s, const struct target *t);
	/* The user named the target, and the session has attached it. */
	int (*attached)(struct session *s, struct target *t);
	/*
	 * The target's window is about to open. Called again after each look, for what was not
	 * possible before.
	 */
	int (*open_target)(struct session *s, struct target *t);
	/*
	 * Receives BPF's state of the target at each poll, at each snapshot and at the end, also
	 * after the target has exited.
	 */
	void (*observe)(struct session *s, struct target *t, const struct proc *proc);
	/* Hits of the target's probes that struct proc does not count. */
	uint64_t (*hits)(const struct session *s, const struct target *t);
	enum source_windows (*windows)(const struct session *s, const struct target *t);
	/*
	 * The target forked. child NULL: it ended before stepflame read it; `followed`: the session
	 * records it.
	 */
	void (*on_fork)(struct session *s, struct target *parent, struct target *child, bool followed);
	/* A child that is recorded ended before stepflame read it. */
	void (*lost_child)(struct session *s, struct target *parent, pid_t pid);
	/* The session has decided not to record this child. */
	void (*unfollow)(struct session *s, struct target *t);
	/*
	 * The target called exec, or ended: its probes are gone. NULL: the session zeroes the
	 * target state without freeing what the state owns.
	 */
	void (*on_exec)(struct session *s, struct target *t);
	void (*on_exit)(struct session *s, struct target *t);
	/* A child ended: does the source need the target until the end of the recording? */
	bool (*keeps)(const struct target *t);
	/* No source keeps the target: the session is about to free it. */
	void (*forget)(struct session *s, struct target *t);
	/* Frees what the target state owns. */
	void (*free_target)(struct target *t);
};

#define X(id, name) extern const struct source source_##name;
STEPFLAME_SOURCES(X)
#undef X

extern const struct source *const sources[SOURCE__COUNT];

/* Calls a hook of every source that implements it. */
#define SOURCES_CALL(hook, ...)                                  \
	do {                                                     \
		for (int __i = 0; __i < SOURCE__COUNT; __i++)    \
			if (sources[__i]->hook)                  \
				sources[__i]->hook(__VA_ARGS__); \
	} while (0)

/* The same, but stops at the first error. 0 or that -errno. */
#define SOURCES_TRY(hook, ...)                                           \
	({                                                               \
		int __err = 0;                                           \
		for (int __i = 0; __i < SOURCE__COUNT && !__err; __i++)  \
			if (sources[__i]->hook)                          \
				__err = sources[__i]->hook(__VA_ARGS__); \
		__err;                                                   \
	})

#endif
