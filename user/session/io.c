// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/io.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "stepflame.skel.h"
#include "user/session/programs.h"
#include "user/session/state.h"

#define FILES_OVERLAP_NS 100000000ULL

int io__close(struct session *s)
{
	return s->options.syscalls ? programs__iterate(s->skel->progs.syscall_unfinished) : 0;
}

static void emit_syscalls(struct session *s)
{
	int fd = bpf_map__fd(s->skel->maps.syscall_rows);
	struct syscall_key key, *prev = NULL;

	while (!bpf_map_get_next_key(fd, prev, &key)) {
		struct rec_syscall rec = {.hdr = {.type = REC_SYSCALL, .size = sizeof(rec)}, .key = key};

		if (!bpf_map_lookup_elem(fd, &key, &rec.val))
			session__emit(s, &rec.hdr);
		prev = &key;
	}
}

static void emit_files(struct session *s, uint64_t since_ns)
{
	int fd = bpf_map__fd(s->skel->maps.file_rows);
	struct file_key key, *prev = NULL;

	while (!bpf_map_get_next_key(fd, prev, &key)) {
		struct rec_file rec = {.hdr = {.type = REC_FILE, .size = sizeof(rec)}, .key = key};

		if (!bpf_map_lookup_elem(fd, &key, &rec.val) && rec.val.last_ns && rec.val.last_ns >= since_ns)
			session__emit(s, &rec.hdr);
		prev = &key;
	}
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

int io__snapshot(struct session *s)
{
	uint64_t since_ns = s->files_ns;

	if (!s->options.syscalls)
		return s->sink_err;
	/* A call that ends just now may have looked at the clock before us, and come to its row after us. */
	s->files_ns = session__now_ns() - FILES_OVERLAP_NS;
	emit_syscalls(s);
	emit_files(s, since_ns);
	emit_pipes(s, since_ns);
	return s->sink_err;
}
