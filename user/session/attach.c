// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "attach.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#define DETACH_THREADS 16

struct attachment {
	size_t cnt;
	struct bpf_link *links[];
};

static int attach_multi(struct attachment *a, struct bpf_program *program, pid_t pid, const struct probe_list *list)
{
	LIBBPF_OPTS(bpf_uprobe_multi_opts, opts, .offsets = list->offsets, .cookies = (const __u64 *)list->cookies,
		    .cnt = list->cnt);

	a->links[0] = bpf_program__attach_uprobe_multi(program, pid, list->path, NULL, &opts);
	if (!a->links[0])
		return -errno;
	a->cnt = 1;
	return 0;
}

static int attach_perf(struct attachment *a, struct bpf_program *program, pid_t pid, const struct probe_list *list)
{
	for (size_t i = 0; i < list->cnt; i++) {
		LIBBPF_OPTS(bpf_uprobe_opts, opts, .bpf_cookie = list->cookies[i]);

		a->links[i] = bpf_program__attach_uprobe_opts(program, pid, list->path, list->offsets[i], &opts);
		if (!a->links[i])
			return -errno;
		a->cnt++;
	}
	return 0;
}

int attachment__new(struct bpf_program *program, enum attach_backend backend, pid_t pid, const struct probe_list *list,
		    struct attachment **out)
{
	struct attachment *a;
	int err;

	*out = NULL;
	if (!list->cnt)
		return 0;
	a = calloc(1, sizeof(*a) + list->cnt * sizeof(a->links[0]));
	if (!a)
		return -ENOMEM;
	err = backend == ATTACH_MULTI ? attach_multi(a, program, pid, list) : attach_perf(a, program, pid, list);
	if (err) {
		attachment__free_all(&a, 1);
		return err;
	}
	*out = a;
	return 0;
}

void detachment__add(struct detachment *d, struct attachment **attachments, size_t cnt)
{
	for (size_t i = 0; i < cnt; i++) {
		struct attachment *a = attachments[i];
		struct bpf_link **links = a ? reallocarray(d->links, d->cnt + a->cnt, sizeof(*links)) : NULL;

		if (links)
			d->links = links;
		for (size_t k = 0; a && k < a->cnt; k++) {
			if (links)
				d->links[d->cnt++] = a->links[k];
			else
				bpf_link__destroy(a->links[k]);
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
		bpf_link__destroy(detaching->d->links[i]);
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
	free(d->links);
	*d = (struct detachment){};
}

void attachment__free_all(struct attachment **attachments, size_t cnt)
{
	struct detachment d = {};

	detachment__add(&d, attachments, cnt);
	detachment__run(&d);
}
