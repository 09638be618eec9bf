// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Emits the system calls and files that bpf/syscalls.bpf.c counts, as records. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "include/io_records.h"
#include "stepflame.skel.h"
#include "user/session/programs.h"
#include "user/session/state.h"

#define FILES_OVERLAP_NS 100000000ULL

/* Session state. */
struct syscalls {
	uint64_t files_ns; /* all files and pipes whose last use is earlier have been emitted */
};

static void configure(const struct session *s, struct stepflame_bpf *skel, enum attach_backend backend)
{
	if (s && s->options.syscalls) {
		skel->rodata->want_syscalls = 1;
		return;
	}
	bpf_program__set_autoload(skel->progs.syscall_enter, false);
	bpf_program__set_autoload(skel->progs.syscall_exit, false);
	bpf_program__set_autoload(skel->progs.syscall_unfinished, false);
	bpf_map__set_max_entries(skel->maps.syscall_rows, 1);
	bpf_map__set_max_entries(skel->maps.pipe_rows, 1);
	if (s && s->options.frequency)
		return; /* a wait for a file says which */
	bpf_program__set_autoload(skel->progs.page_added, false);
	bpf_map__set_max_entries(skel->maps.file_rows, 1);
}

/* Makes BPF count the calls that are still in progress. */
static void count_unfinished(struct session *s)
{
	if (s->options.syscalls)
		programs__iterate(s->skel->progs.syscall_unfinished);
}

_Static_assert(sizeof(struct syscall_val) <= ROW_VAL_BYTES && sizeof(struct file_val) <= ROW_VAL_BYTES,
	       "a row_walk has no room for these rows");

static void emit_syscalls(struct session *s)
{
	struct rec_syscall rec = {.hdr = {.type = REC_SYSCALL, .size = sizeof(rec)}};
	struct row_walk walk = {
		.fd = bpf_map__fd(s->skel->maps.syscall_rows), .record = &rec.hdr, .key_bytes = sizeof(rec.key)};

	while (row_walk__next(s, &walk))
		session__emit(s, &rec.hdr);
}

static void emit_files(struct session *s, uint64_t since_ns)
{
	struct rec_file rec = {.hdr = {.type = REC_FILE, .size = sizeof(rec)}};
	struct row_walk walk = {
		.fd = bpf_map__fd(s->skel->maps.file_rows), .record = &rec.hdr, .key_bytes = sizeof(rec.key)};

	while (row_walk__next(s, &walk))
		if (rec.val.last_ns && (rec.val.last_ns >= since_ns || rec.hdr.flags & REC_ENDED))
			session__emit(s, &rec.hdr);
	__sync_fetch_and_sub(&s->skel->bss->file_row_cnt, walk.deleted);
}

static void emit_pipes(struct session *s, uint64_t since_ns)
{
	int fd = bpf_map__fd(s->skel->maps.pipe_rows);
	struct file_key key, *prev = NULL;

	while (!bpf_map_get_next_key(fd, prev, &key)) {
		struct rec_pipe rec = {.hdr = {.type = REC_PIPE, .size = sizeof(rec)}, .key = key};

		if (!bpf_map_lookup_elem(fd, &key, &rec.val) && rec.val.last_ns >= since_ns)
			session__emit(s, &rec.hdr);
		prev = &key;
	}
}

/* Emits system calls, and files and pipes that were used since the last snapshot. */
static int snapshot(struct session *s)
{
	struct syscalls *own = session__state(s, SOURCE_SYSCALLS);
	uint64_t since_ns = own->files_ns;

	if (!s->options.syscalls && !s->options.frequency)
		return s->sink_err;
	/*
	 * A call that ends just now may have read the clock before this, and update its row after
	 * this.
	 */
	own->files_ns = session__now_ns() - FILES_OVERLAP_NS;
	emit_syscalls(s);
	emit_files(s, since_ns);
	emit_pipes(s, since_ns);
	return s->sink_err;
}

const struct source source_syscalls = {
	.session_bytes = sizeof(struct syscalls),
	.configure = configure,
	.close = count_unfinished,
	.snapshot = snapshot,
};
