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

/* In the order in which their probes are attached. */
#define STEPFLAME_SOURCES(X)    \
	X(LANDMARKS, landmarks) \
	X(NATIVES, natives)     \
	X(XLA, xla)             \
	X(ACTIONS, actions)     \
	X(EXACT, exact)         \
	X(GPU, gpu)             \
	X(NVTX, nvtx)           \
	X(CUPTI, cupti)         \
	X(OPS, ops)             \
	X(SAMPLES, samples)     \
	X(SYSCALLS, syscalls)   \
	X(STEP_AT, step_at)     \
	X(NVML, nvml)

enum source_id {
#define X(id, name) SOURCE_##id,
	STEPFLAME_SOURCES(X)
#undef X
		SOURCE__COUNT,
};

/* Is a file that a process has mapped one for a source? */
enum source_holds {
	HOLDS_NO = 0,
	HOLDS_LATER, /* not yet: ask again */
	HOLDS_YES,   /* without its probes something is missing, which the session says */
	HOLDS_MUST,  /* without them the process cannot be recorded */
};

#define SOURCE_SETS    3 /* probe sets of a source, at most, */
#define SOURCE_RECORDS 3 /* and record types */

/* Probes of a source in one file that one BPF program serves, and that come and go together. */
struct probe_set {
	struct bpf_program *(*program)(const struct stepflame_bpf *skel); /* NULL: `probe` */
	bool (*wanted)(const struct session *s, const struct target *t);  /* in that process, now; NULL: always */
	int (*attached)(struct session *s, struct target *t);             /* they were. 0 or -errno */
};

/*
 * What a source does with a record that BPF sent, whose size is at least `bytes`. Returns whether it took it: else the
 * record goes to the sink as it is. A record type has one source.
 */
struct record_handler {
	uint32_t type; /* enum rec_type */
	uint32_t bytes;
	bool (*handle)(struct session *s, const struct rec_hdr *record);
};

/* Have the windows that a source was asked for passed? */
enum source_windows { WINDOWS_NONE = 0, WINDOWS_AHEAD, WINDOWS_PASSED };

/*
 * Every hook may be NULL: then nothing is done. Those that return int return 0 or -errno; -errno after a message, where
 * the session ends by it (prepare, start, check, attached).
 */
struct source {
	const char *name;
	/* Of its state, zeroed at first: session__state() and target__state(). */
	size_t session_bytes, target_bytes;
	struct probe_set sets[SOURCE_SETS];
	struct record_handler records[SOURCE_RECORDS]; /* the first without a handle ends them */

	/* ---- the session ---- */
	/* Before there are BPF programs: options are read, processes of its own started. */
	int (*prepare)(struct session *s);
	/*
	 * The programs are open and not loaded: sets its knobs, and leaves out what is not wanted. NULL for s: nothing is
	 * (the kernel is being tested).
	 */
	void (*configure)(const struct session *s, struct stepflame_bpf *skel, enum attach_backend backend);
	int (*start)(struct session *s); /* the programs are loaded */
	int (*open)(struct session *s);  /* all windows have opened */
	void (*tend)(struct session *s); /* at each poll */
	void (*cut)(struct session *s); /* before a snapshot for a view: what still goes on is told as far as it came */
	void (*close)(struct session *s);   /* before the windows close */
	void (*end)(struct session *s);     /* when they have; the probes are still there */
	void (*note)(struct session *s);    /* what the report is to say besides */
	int (*snapshot)(struct session *s); /* its rows as records */
	int (*finish)(struct session *s);   /* after the last snapshot but one: -ENOENT what was asked for never came */
	void (*drained)(struct session *s); /* all that BPF sent has come */
	/* Adds what it has lost, and BPF does not count, to the counters. */
	void (*count)(const struct session *s, uint64_t counters[CNT__COUNT]);
	void (*cost)(const struct session *s, struct rec_cost *cost); /* adds what it cost outside of the targets */
	/* Hands over what it has attached by itself: first all that may go before the rest, then, when `last`, that. */
	void (*detach)(struct session *s, bool last, struct detachment *d);
	void (*restore)(struct session *s); /* the session is given up: before anything is detached */
	void (*free)(struct session *s);    /* what its state owns; the state itself is the session's */
	void (*resend)(struct session *s);  /* the sink has forgotten stacks and paths */

	/* ---- a file that a target has mapped ---- */
	enum source_holds (*holds)(struct session *s, struct target *t, const struct mapped_file *file);
	/* Adds its probes to its sets' lists. Once a session. */
	int (*find)(struct session *s, struct target *t, const struct mapped_file *file, struct elf *elf,
		    struct probe_list sets[SOURCE_SETS]);

	/* ---- a target ---- */
	int (*looked_at)(struct session *s, struct target *t); /* its files were, and have their probes */
	/* In how many ns it is to be looked at again; 0: not for this source. */
	uint64_t (*look_again_ns)(const struct session *s, const struct target *t);
	int (*check)(struct session *s,
		     const struct target *t); /* of one that was named: can it be recorded as asked? */
	bool (*watches)(const struct session *s, const struct target *t); /* is there something of it in the target? */
	int (*attached)(struct session *s, struct target *t);             /* one that was named is attached */
	/* Its window is about to open; called again as it is looked at, for what could not be done then. */
	int (*open_target)(struct session *s, struct target *t);
	/* What BPF knows of it: at each poll, and at the end. */
	void (*observe)(struct session *s, struct target *t, const struct proc *proc);
	uint64_t (*hits)(const struct session *s, const struct target *t); /* that struct proc does not count */
	enum source_windows (*windows)(const struct session *s, const struct target *t);
	/* It forked. child NULL: which had ended before it could be read; `followed`: it is to be recorded. */
	void (*on_fork)(struct session *s, struct target *parent, struct target *child, bool followed);
	/* A fork that is not to be recorded after all. */
	void (*unfollow)(struct session *s, struct target *t);
	/* It called exec, or ended; its probes are gone. NULL: its state is zeroed. */
	void (*on_exec)(struct session *s, struct target *t);
	void (*on_exit)(struct session *s, struct target *t);
	bool (*keeps)(const struct target *t);               /* it ended, and is needed at the end */
	void (*forget)(struct session *s, struct target *t); /* it ended, and is forgotten; then free_target */
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
