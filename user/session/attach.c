// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/attach.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "include/probes.h"
#include "user/proc/process.h"
#include "user/session/trace_events.h"

#define DETACH_THREADS 16

struct attachment {
	size_t cnt;
	struct held held[];
};

static int attach_multi(struct attachment *a, struct bpf_program *program, pid_t pid, const struct probe_list *list)
{
	LIBBPF_OPTS(bpf_uprobe_multi_opts, opts, .offsets = list->offsets, .cookies = (const __u64 *)list->cookies,
		    .cnt = list->cnt);

	a->held[0].link = bpf_program__attach_uprobe_multi(program, pid, list->path, NULL, &opts);
	if (!a->held[0].link)
		return -errno;
	a->cnt = 1;
	return 0;
}

static int attach_perf(struct attachment *a, struct bpf_program *program, pid_t pid, const struct probe_list *list)
{
	for (size_t i = 0; i < list->cnt; i++) {
		LIBBPF_OPTS(bpf_uprobe_opts, opts, .bpf_cookie = list->cookies[i]);

		a->held[i].link = bpf_program__attach_uprobe_opts(program, pid, list->path, list->offsets[i], &opts);
		if (!a->held[i].link)
			return -errno;
		a->cnt++;
	}
	return 0;
}

/* ---- as events of tracefs ---- */

/*
 * Where a process maps a probe. A tracefs event cannot have two probes at the same offset, so
 * probes at one offset go into different layers.
 */
struct place {
	uint32_t layer; /* number of earlier probes in the list at the same offset */
	bool mapped;
	uint64_t bias; /* address minus file offset */
};

struct placing {
	const struct probe_list *list;
	struct place *places;
	bool any;
};

static int place_mapped(const struct mapping *map, void *ctx)
{
	const struct placing *p = ctx;

	if (!map->executable || map->dev != p->list->dev || map->inode != p->list->inode)
		return 0;
	for (size_t i = 0; i < p->list->cnt; i++) {
		uint64_t offset = p->list->offsets[i];

		if (p->places[i].mapped || offset < map->offset || offset - map->offset >= map->end - map->start)
			continue;
		p->places[i].mapped = ((struct placing *)ctx)->any = true;
		p->places[i].bias = map->start - map->offset;
	}
	return 0;
}

/*
 * Numbers the list, and tells BPF the cookie of each probe by layer and offset: once per list. 0 or
 * -errno; -ENOSPC: too many lists.
 */
static int number_list(struct attacher *attacher, struct probe_list *list, const struct place *places)
{
	uint32_t number = attacher->number + 1, last = number;
	int err = 0;

	for (size_t i = 0; i < list->cnt && !err; i++) {
		struct probe_place place = {.list = number + places[i].layer, .offset = list->offsets[i]};

		if (place.list >= PROBE_LISTS)
			return -ENOSPC;
		last = place.list > last ? place.list : last;
		err = bpf_map_update_elem(attacher->cookies_fd, &place, &list->cookies[i], BPF_ANY);
	}
	if (err)
		return err;
	attacher->number = last;
	list->number = number;
	return 0;
}

void attacher__forget(const struct attacher *attacher, struct probe_list *list)
{
	for (size_t i = 0; list->number && i < list->cnt; i++) {
		struct probe_place place = {.list = list->number, .offset = list->offsets[i]};

		while (!bpf_map_delete_elem(attacher->cookies_fd, &place))
			place.list++;
	}
	list->number = 0;
}

/* Attaches the probes that have the layer and bias of *like, as one tracefs event. */
static int attach_event(struct attachment *a, struct bpf_program *program, struct attacher *attacher, pid_t pid, int fd,
			const struct placing *placing, const struct place *like)
{
	LIBBPF_OPTS(bpf_perf_event_opts, opts, .bpf_cookie = like->bias | (placing->list->number + like->layer));
	uint64_t *offsets = calloc(placing->list->cnt, sizeof(*offsets));
	struct held *held = &a->held[a->cnt];
	int id, perf_fd = -ENOMEM;
	size_t cnt = 0;

	for (size_t i = 0; offsets && i < placing->list->cnt; i++) {
		const struct place *p = &placing->places[i];

		if (p->mapped && p->layer == like->layer && p->bias == like->bias)
			offsets[cnt++] = placing->list->offsets[i];
	}
	if (offsets) {
		id = trace_event__make(attacher->event_cnt + 1, fd, offsets, cnt);
		perf_fd = id < 0 ? id : trace_event__open(id, pid);
		held->event = id < 0 ? 0 : ++attacher->event_cnt;
		a->cnt += id >= 0;
	}
	free(offsets);
	if (perf_fd < 0)
		return perf_fd;
	held->link = bpf_program__attach_perf_event_opts(program, perf_fd, &opts);
	if (held->link)
		return 0;
	id = -errno;
	close(perf_fd);
	return id;
}

static bool is_first(const struct place *places, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (places[k].mapped && places[k].layer == places[i].layer && places[k].bias == places[i].bias)
			return false;
	return places[i].mapped;
}

static int attach_events(struct attachment *a, struct bpf_program *program, struct attacher *attacher, pid_t pid,
			 struct probe_list *list)
{
	struct placing placing = {.list = list, .places = calloc(list->cnt, sizeof(*placing.places))};
	int fd = open(list->path, O_RDONLY | O_CLOEXEC), err = fd < 0 ? -errno : 0;

	if (!placing.places)
		err = -ENOMEM;
	for (size_t i = 0; i < list->cnt && !err; i++)
		for (size_t k = 0; k < i; k++)
			placing.places[i].layer += list->offsets[k] == list->offsets[i];
	if (!err)
		err = process__each_mapping(pid, place_mapped, &placing);
	if (!err && !placing.any)
		err = -ENOENT;
	if (!err && !list->number)
		err = number_list(attacher, list, placing.places);
	for (size_t i = 0; i < list->cnt && !err; i++)
		if (is_first(placing.places, i))
			err = attach_event(a, program, attacher, pid, fd, &placing, &placing.places[i]);
	free(placing.places);
	if (fd >= 0)
		close(fd);
	return err;
}

int attachment__new(struct bpf_program *program, struct attacher *attacher, pid_t pid, struct probe_list *list,
		    struct attachment **out)
{
	struct attachment *a;
	int err;

	*out = NULL;
	if (!list->cnt)
		return 0;
	a = calloc(1, sizeof(*a) + list->cnt * sizeof(a->held[0]));
	if (!a)
		return -ENOMEM;
	if (attacher->backend == ATTACH_MULTI)
		err = attach_multi(a, program, pid, list);
	else if (attacher->backend == ATTACH_EVENTS)
		err = attach_events(a, program, attacher, pid, list);
	else
		err = attach_perf(a, program, pid, list);
	if (err) {
		attachment__free_all(&a, 1);
		return err;
	}
	*out = a;
	return 0;
}

static void let_go(struct held *held)
{
	bpf_link__destroy(held->link);
	if (held->event)
		trace_event__remove(held->event);
}

void detachment__add(struct detachment *d, struct attachment **attachments, size_t cnt)
{
	for (size_t i = 0; i < cnt; i++) {
		struct attachment *a = attachments[i];
		struct held *held = a ? reallocarray(d->held, d->cnt + a->cnt, sizeof(*held)) : NULL;

		if (held)
			d->held = held;
		for (size_t k = 0; a && k < a->cnt; k++) {
			if (held)
				d->held[d->cnt++] = a->held[k];
			else
				let_go(&a->held[k]);
		}
		free(a);
		attachments[i] = NULL;
	}
}

struct detaching {
	struct detachment *d;
	size_t next;
};

static void *detach_some(void *arg)
{
	struct detaching *detaching = arg;

	for (;;) {
		size_t i = __atomic_fetch_add(&detaching->next, 1, __ATOMIC_RELAXED);

		if (i >= detaching->d->cnt)
			return NULL;
		let_go(&detaching->d->held[i]);
	}
}

void detachment__run(struct detachment *d)
{
	struct detaching detaching = {.d = d};
	pthread_t threads[DETACH_THREADS];
	size_t started = 0;

	while (started < DETACH_THREADS && started + 1 < d->cnt &&
	       !pthread_create(&threads[started], NULL, detach_some, &detaching))
		started++;
	detach_some(&detaching);
	for (size_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	free(d->held);
	*d = (struct detachment){};
}

void attachment__free_all(struct attachment **attachments, size_t cnt)
{
	struct detachment d = {};

	detachment__add(&d, attachments, cnt);
	detachment__run(&d);
}
