// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/restore.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stepflame.skel.h"
#include "user/lib/log.h"
#include "user/proc/process.h"
#include "user/session/guardian.h"
#include "user/session/programs.h"

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
