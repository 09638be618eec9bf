// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "attach.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#define DETACH_THREADS 8

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

struct detach {
	struct bpf_link **links;
	size_t cnt, next;
	pthread_mutex_t lock;
};

static void *detach_some(void *arg)
{
	struct detach *d = arg;

	for (;;) {
		size_t i;

		pthread_mutex_lock(&d->lock);
		i = d->next++;
		pthread_mutex_unlock(&d->lock);
		if (i >= d->cnt)
			return NULL;
		bpf_link__destroy(d->links[i]);
	}
}

void attachment__free_all(struct attachment **attachments, size_t cnt)
{
	struct detach d = {.lock = PTHREAD_MUTEX_INITIALIZER};
	pthread_t threads[DETACH_THREADS];
	size_t started = 0, total = 0;

	for (size_t i = 0; i < cnt; i++)
		total += attachments[i] ? attachments[i]->cnt : 0;
	d.links = calloc(total ?: 1, sizeof(*d.links));
	for (size_t i = 0; i < cnt; i++) {
		for (size_t k = 0; attachments[i] && k < attachments[i]->cnt; k++) {
			if (d.links)
				d.links[d.cnt++] = attachments[i]->links[k];
			else
				bpf_link__destroy(attachments[i]->links[k]);
		}
	}
	while (started < DETACH_THREADS && started + 1 < d.cnt &&
	       !pthread_create(&threads[started], NULL, detach_some, &d))
		started++;
	detach_some(&d);
	for (size_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	for (size_t i = 0; i < cnt; i++) {
		free(attachments[i]);
		attachments[i] = NULL;
	}
	free(d.links);
}
