// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/restore.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stepflame.skel.h"
#include "user/lib/log.h"
#include "user/proc/pagemap.h"
#include "user/proc/process.h"
#include "user/session/guardian.h"
#include "user/session/programs.h"

#define CHUNK     512         /* pages whose state is read at once */
#define PAGES_MAX (1UL << 24) /* of a process: 64 GiB of code */

/* The kernel may make a call of its own trampoline out of a breakpoint on a nop of 5 bytes. */
static const uint8_t nop5[] = {0x0f, 0x1f, 0x44, 0x00, 0x00};

struct search {
	pid_t pid;
	int pagemap;
	size_t pages, found; /* so far */
	struct breakpoints *out;
	int err;
};

static int open_pagemap(pid_t pid)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 ? fd : errno == ENOENT ? -ESRCH : -errno;
}

/* Returns whether a breakpoint of n bytes is the difference between the two at i. */
static size_t breakpoint_bytes(const uint8_t *now, const uint8_t *file, size_t i)
{
	if (now[i] == 0xcc)
		return 1;
	return now[i] == 0xe8 && i + sizeof(nop5) <= PAGE && !memcmp(file + i, nop5, sizeof(nop5)) ? sizeof(nop5) : 0;
}

/* The places in a page of the differences, if all of them are breakpoints. Returns how many; 0: others too. */
static size_t compare_page(const uint8_t *now, const uint8_t *file, uint16_t places[PAGE])
{
	size_t cnt = 0;

	for (size_t i = 0, bytes; i < PAGE; i += bytes) {
		bytes = 1;
		if (now[i] == file[i])
			continue;
		bytes = breakpoint_bytes(now, file, i);
		if (!bytes)
			return 0;
		places[cnt++] = i;
	}
	return cnt;
}

static struct breakpoint_file *add_file(struct search *search, const struct mapping *map)
{
	struct breakpoints *out = search->out;
	struct breakpoint_file *files;

	for (size_t i = 0; i < out->file_cnt; i++)
		if (out->files[i].file.dev == map->dev && out->files[i].file.inode == map->inode)
			return &out->files[i];
	files = reallocarray(out->files, out->file_cnt + 1, sizeof(*files));
	if (!files)
		return NULL;
	out->files = files;
	files += out->file_cnt++;
	*files = (struct breakpoint_file){};
	mapped_file__locate(&files->file, search->pid, map);
	return files;
}

static int add_breakpoints(struct search *search, const struct mapping *map, uint64_t offset, const uint16_t *places,
			   size_t cnt)
{
	struct breakpoint_file *file = add_file(search, map);
	uint64_t *offsets = file ? reallocarray(file->offsets, file->cnt + cnt, sizeof(*offsets)) : NULL;

	if (!offsets)
		return -ENOMEM;
	file->offsets = offsets;
	for (size_t i = 0; i < cnt; i++)
		offsets[file->cnt++] = offset + places[i];
	search->found += cnt;
	return 0;
}

/* Compares a page that is the process's own with the file. */
static int look_at_page(struct search *search, const struct mapping *map, uint64_t address, int fd)
{
	uint64_t offset = address - map->start + map->offset;
	uint8_t now[PAGE], file[PAGE] = {};
	uint16_t places[PAGE];
	size_t cnt;
	int err = process__read_memory(search->pid, address, now, PAGE);

	if (err == -ETIMEDOUT)
		return err;
	if (err || pread(fd, file, PAGE, (off_t)offset) <= 0)
		return 0; /* the process has changed its memory meanwhile, or somebody the file */
	cnt = compare_page(now, file, places);
	return cnt ? add_breakpoints(search, map, offset, places, cnt) : 0;
}

static bool is_limit(struct search *search)
{
	search->out->cut = search->pages > PAGES_MAX || search->found > BREAKPOINTS_MAX;
	return search->out->cut;
}

/* A uprobe is neither in shared nor in writable mappings. */
static int look_at_mapping(const struct mapping *map, void *ctx)
{
	struct search *search = ctx;
	struct mapped_file file;
	int fd = -1, err = 0;

	if (!map->executable || map->writable || map->shared || !map->inode || map->name[0] != '/')
		return 0;
	for (uint64_t at = map->start; at < map->end && !err && !is_limit(search); at += CHUNK * PAGE) {
		uint64_t states[CHUNK];
		ssize_t got = pread(search->pagemap, states, sizeof(states), (off_t)(at / PAGE * sizeof(*states)));

		for (ssize_t i = 0; i < got / (ssize_t)sizeof(*states) && at + i * PAGE < map->end && !err; i++) {
			if (!(states[i] & PAGE_EXISTS) || states[i] & PAGE_OF_FILE)
				continue;
			if (fd < 0) {
				mapped_file__locate(&file, search->pid, map);
				fd = mapped_file__open(&file);
			}
			if (fd < 0)
				return 0;
			err = look_at_page(search, map, at + i * PAGE, fd);
		}
		search->pages += CHUNK;
	}
	if (fd >= 0)
		close(fd);
	return err;
}

int breakpoints__find(pid_t pid, struct breakpoints *out)
{
	struct search search = {.pid = pid, .out = out, .pagemap = open_pagemap(pid)};
	int err = search.pagemap < 0 ? search.pagemap : 0;

	*out = (struct breakpoints){};
	err = err ?: process__each_mapping(pid, look_at_mapping, &search);
	if (search.pagemap >= 0)
		close(search.pagemap);
	return err;
}

void breakpoints__release(struct breakpoints *b)
{
	for (size_t i = 0; i < b->file_cnt; i++)
		free(b->files[i].offsets);
	free(b->files);
	*b = (struct breakpoints){};
}

/* ---- their removal ---- */

#define TRIES_MAX 256 /* of parts of a list: a hostile process can make up places that the kernel refuses */

struct restorer {
	struct stepflame_bpf *skel;
	struct guardian *guardian;
};

int restorer__new(struct restorer **out)
{
	struct restorer *r = calloc(1, sizeof(*r));
	struct selftest selftest = {};
	const char *why, *fix;
	int err, keep[2];

	*out = NULL;
	if (!r)
		return -ENOMEM;
	err = programs__load(NULL, NULL, &r->skel, &selftest);
	if (err) {
		programs__explain(err, &why, &fix);
		log__error(fix, "%s", why);
		restorer__free(r);
		return err;
	}
	keep[0] = bpf_program__fd(r->skel->progs.probe);
	keep[1] = selftest.attacher.cookies_fd;
	err = guardian__new(&selftest.attacher, keep, 2, &r->guardian);
	if (err) {
		log__error(NULL, "cannot start stepflame-guard, which removes the breakpoints: %s", strerror(-err));
		restorer__free(r);
		return err;
	}
	*out = r;
	return 0;
}

/* The kernel refuses a list that has one place of which it cannot read an instruction: tries the halves. */
static int clean_part(struct restorer *r, const struct probe_list *whole, size_t first, size_t cnt, int *tries)
{
	struct probe_list part = *whole;
	int err, other;

	if (!(*tries)--)
		return -E2BIG;
	part.copy = 0;
	part.offsets += first;
	part.cookies += first;
	part.cnt = cnt;
	err = guardian__clean(r->guardian, r->skel->progs.probe, &part);
	if (part.copy)
		close(part.copy);
	if (!err || err == -EPIPE || err == -EBUSY || cnt == 1)
		return err;
	err = clean_part(r, whole, first, cnt / 2, tries);
	other = clean_part(r, whole, first + cnt / 2, cnt - cnt / 2, tries);
	return err ?: other;
}

int restorer__remove(struct restorer *r, const struct mapped_file *file, const uint64_t *offsets, size_t cnt)
{
	int fd = mapped_file__open(file), err = fd < 0 ? fd : 0, tries = TRIES_MAX;
	struct probe_list list = {};

	probe_list__set_file(&list, file, fd);
	for (size_t i = 0; i < cnt && !err; i++)
		err = probe_list__add(&list, offsets[i], 0);
	err = err ?: clean_part(r, &list, 0, cnt, &tries);
	probe_list__release(&list);
	if (fd >= 0)
		close(fd);
	return err;
}

void restorer__free(struct restorer *r)
{
	if (!r)
		return;
	guardian__free(r->guardian);
	stepflame_bpf__destroy(r->skel);
	free(r);
}
