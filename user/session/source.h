/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * An event source: one kind of event that a recording tells of, with its probes, its state and its records. The session
 * walks over the table of sources and knows none of them; a source knows the session (state.h). To add one: write
 * sources/NAME.c with its struct source, and add a line to STEPFLAME_SOURCES.
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
struct mapped_file;
struct probe_list;
struct proc;
struct session;
struct stepflame_bpf;
struct target;

/*
 * In the order in which the session attaches their probes and calls each hook. CUPTI comes last, for its `end` waits for the
 * targets; and OPS before SAMPLES, which makes the ring buffer no smaller than it is.
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
	X(SYSCALLS, syscalls)   \
	X(STEP_AT, step_at)     \
	X(NVML, nvml)           \
	X(CUPTI, cupti)

enum source_id {
#define X(id, name) SOURCE_##id,
	STEPFLAME_SOURCES(X)
#undef X
		SOURCE__COUNT,
};

/* Does a file that a target maps hold places for a source's probes? */
enum source_holds {
	HOLDS_NO = 0,
	HOLDS_LATER, /* not yet: the session asks again */
	HOLDS_YES,   /* if they cannot be attached, the session warns that rows are missing */
	HOLDS_MUST,  /* if they cannot be attached, the target cannot be recorded */
};

#define SOURCE_SETS    3 /* probe sets of a source, at most, */
#define SOURCE_RECORDS 3 /* and record types */

/* Probes of a source in one file that come and go together, and that one BPF program serves. */
struct probe_set {
	struct bpf_program *(*program)(const struct stepflame_bpf *skel); /* NULL: `probe` */
	bool (*wanted)(const struct session *s, const struct target *t);  /* in that target, now; NULL: always */
	int (*attached)(struct session *s, struct target *t);             /* called afterwards. 0 or -errno */
};

/*
 * What a source does with a record of BPF's that has at least so many bytes. false: the session hands the record to the
 * sink as it is. A record type has at most one source.
 */
struct record_handler {
	uint32_t type; /* enum rec_type */
	uint32_t bytes;
	bool (*handle)(struct session *s, const struct rec_hdr *record);
};

/* Have the windows that a source was asked for passed? */
enum source_windows { WINDOWS_NONE = 0, WINDOWS_AHEAD, WINDOWS_PASSED };

/*
 * A hook that is NULL does nothing. Hooks that return int return 0 or -errno; prepare, start, check and attached print a
 * message before they fail, for that ends the session. The result of `open` and `find` is not used.
 */
struct source {
	const char *name;
	/* The session allocates these states, zeroed, and frees them: session__state() and target__state(). */
	size_t session_bytes, target_bytes;
	struct probe_set sets[SOURCE_SETS];
	struct record_handler records[SOURCE_RECORDS]; /* the first without `handle` ends the list */

	/* ---- the session ---- */
	/* No BPF program is open yet: the source reads options and starts processes of its own. */
	int (*prepare)(struct session *s);
	/*
	 * The programs are open but not loaded: the source sets its knobs, and leaves out what the user does not want.
	 * s is NULL when stepflame only tests the kernel: then the user wants nothing.
	 */
	void (*configure)(const struct session *s, struct stepflame_bpf *skel, enum attach_backend backend);
	/* The programs are loaded. */
	int (*start)(struct session *s);
	/* The windows of all targets have opened. */
	int (*open)(struct session *s);
	/* Called at each poll, some times a second. */
	void (*tend)(struct session *s);
	/* A view is about to take a snapshot: the source emits what still goes on, as far as it has come. */
	void (*cut)(struct session *s);
	/* The windows are about to close. */
	void (*close)(struct session *s);
	/* They have closed; the probes are still attached. */
	void (*end)(struct session *s);
	/* The source writes its notes for the report. */
	void (*note)(struct session *s);
	/* It emits its rows. */
	int (*snapshot)(struct session *s);
	/* It adds to the counters what it has lost and BPF does not count. */
	void (*count)(const struct session *s, uint64_t counters[CNT__COUNT]);
	/* It adds to the cost what it spent outside of the targets. */
	void (*cost)(const struct session *s, struct rec_cost *cost);
	/* The recording is complete. -ENOENT: what the user asked for never came. */
	int (*finish)(struct session *s);
	/*
	 * The source hands over what it has attached besides its probe sets: first what may go before these, and, when
	 * `last`, what must go after them.
	 */
	void (*detach)(struct session *s, bool last, struct detachment *d);
	/* The session has taken the last record of BPF's. */
	void (*drained)(struct session *s);
	/* The session is about to be freed, perhaps without `end`: the source leaves the targets as they were. */
	void (*restore)(struct session *s);
	/* It frees what its state owns. */
	void (*free)(struct session *s);
	/* The sink has forgotten stacks and paths: BPF is to send them again. */
	void (*resend)(struct session *s);

	/* ---- a file that a target maps ---- */
	/*
	 * Asked at each look, and before `find`: the answer has no side effects. HOLDS_LATER of one source holds for
	 * all, since a file is looked into once.
	 */
	enum source_holds (*holds)(struct session *s, struct target *t, const struct mapped_file *file);
	/*
	 * Adds the file's probes to the lists, one for each probe set. Called once a session and file, for the first
	 * target that maps it: the probes must be right for all others.
	 */
	int (*find)(struct session *s, struct target *t, const struct mapped_file *file, struct elf *elf,
		    struct probe_list sets[SOURCE_SETS]);

	/* ---- a target ---- */
	/* The session has looked at its files, and attached their probes. Of a fork: when it begins to train. */
	int (*looked_at)(struct session *s, struct target *t);
	/* In how many ns the session is to look again; 0: this source need not. */
	uint64_t (*look_again_ns)(const struct session *s, const struct target *t);
	/* The user named it: can stepflame record what the user asked for? */
	int (*check)(struct session *s, const struct target *t);
	/* The user named it, and it has neither torch nor JAX: is there something to record all the same? */
	bool (*watches)(const struct session *s, const struct target *t);
	/* The user named it, and it is attached. */
	int (*attached)(struct session *s, struct target *t);
	/* Its window is about to open. Called again after each look, for what could not be done before. */
	int (*open_target)(struct session *s, struct target *t);
	/* The source is told what BPF knows of it: at each poll, each snapshot and the end, also when it is gone. */
	void (*observe)(struct session *s, struct target *t, const struct proc *proc);
	/* Hits of its probes that struct proc does not count. */
	uint64_t (*hits)(const struct session *s, const struct target *t);
	enum source_windows (*windows)(const struct session *s, const struct target *t);
	/* It forked. child is NULL when it ended before it could be read; `followed`: it is to be recorded. */
	void (*on_fork)(struct session *s, struct target *parent, struct target *child, bool followed);
	/* The session has decided not to record that child. */
	void (*unfollow)(struct session *s, struct target *t);
	/* It called exec, or ended, and its probes are gone. NULL: the session zeroes its state, whatever that owns. */
	void (*on_exec)(struct session *s, struct target *t);
	void (*on_exit)(struct session *s, struct target *t);
	/* A child ended: does the source need the target until the end of the recording? */
	bool (*keeps)(const struct target *t);
	/* No source does: the session is about to free it. */
	void (*forget)(struct session *s, struct target *t);
	/* Frees what its state owns. */
	void (*free_target)(struct target *t);
};

#define X(id, name) extern const struct source source_##name;
STEPFLAME_SOURCES(X)
#undef X

extern const struct source *const sources[SOURCE__COUNT];

/* Calls that hook of each source that has it. */
#define SOURCES_CALL(hook, ...)                                  \
	do {                                                     \
		for (int __i = 0; __i < SOURCE__COUNT; __i++)    \
			if (sources[__i]->hook)                  \
				sources[__i]->hook(__VA_ARGS__); \
	} while (0)

/* The same until one fails. 0 or -errno of that. */
#define SOURCES_TRY(hook, ...)                                           \
	({                                                               \
		int __err = 0;                                           \
		for (int __i = 0; __i < SOURCE__COUNT && !__err; __i++)  \
			if (sources[__i]->hook)                          \
				__err = sources[__i]->hook(__VA_ARGS__); \
		__err;                                                   \
	})

#endif
