// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The probes of one target: attached file by file, put aside, taken away. */
#include <errno.h>
#include <stdlib.h>

#include "stepflame.skel.h"
#include "user/session/gpu_probes.h"
#include "user/session/programs.h"
#include "user/session/state.h"

static struct attached_file *find_attached(const struct target *t, uint64_t dev, uint64_t inode)
{
	for (size_t i = 0; i < t->file_cnt; i++)
		if (t->files[i].dev == dev && t->files[i].inode == inode)
			return &t->files[i];
	return NULL;
}

static struct bpf_program *program_of(const struct session *s, enum probe_set set)
{
	switch (set) {
	case PROBES_EXACT:
		return s->skel->progs.exact;
	case PROBES_GPU_END:
		return s->skel->progs.gpu_exit;
	case PROBES_GPU:
		return s->skel->progs.gpu_enter;
	default:
		return s->skel->progs.probe;
	}
}

/* Attaches those sets that are not. */
static int attach_sets(struct session *s, struct target *t, struct file_probes *probes, struct attached_file *file)
{
	struct proc_command command = {.what = COMMAND_FETCHES, .pid = t->process.pid};
	int err = 0;

	for (int i = 0; i < PROBES__COUNT && !err; i++) {
		if (file->sets[i] || (i == PROBES_LATE && !t->lightning) || (i == PROBES_NVTX && t->nvtx.aside))
			continue;
		err = attachment__new(program_of(s, i), &s->selftest.attacher, t->process.pid, &probes->sets[i],
				      &file->sets[i]);
		if (!err && i == PROBES_LATE && file->sets[i])
			err = programs__command(s->skel, &command);
	}
	return err;
}

int target__attach_again(struct session *s, struct target *t)
{
	int err = 0;

	for (size_t i = 0; i < s->file_cnt && !err; i++) {
		struct attached_file *file = find_attached(t, s->files[i].dev, s->files[i].inode);

		if (file)
			err = attach_sets(s, t, &s->files[i], file);
	}
	return err;
}

int target__attach(struct session *s, struct target *t, const struct mapped_file *file, const struct python *python,
		   struct elf *elf, enum file_holds holds)
{
	struct attached_file *files;
	struct file_probes *probes;
	int err;

	if (find_attached(t, file->dev, file->inode))
		return 0;
	files = reallocarray(t->files, t->file_cnt + 1, sizeof(*files));
	if (!files)
		return -ENOMEM;
	t->files = files;
	probes = file_probes__of(s, &t->process, file, python, elf, holds);
	if (!probes)
		return -ENOMEM;
	files += t->file_cnt;
	*files = (struct attached_file){.dev = file->dev, .inode = file->inode};
	/* The path is the process's own: another one that shared the file may be gone. */
	for (int i = 0; i < PROBES__COUNT; i++)
		probe_list__set_file(&probes->sets[i], file);
	err = attach_sets(s, t, probes, files);
	if (err)
		attachment__free_all(files->sets, PROBES__COUNT);
	else
		t->file_cnt++;
	if (!err && probes->sets[PROBES_GPU].cnt)
		gpu_probes__found(s, t);
	if (!err && holds == HOLDS_PLUGIN && probes->sets[PROBES_KEPT].cnt)
		t->has_pjrt = true;
	return err;
}

static void take_links(struct target *t, struct detachment *d)
{
	for (size_t i = 0; i < t->file_cnt; i++)
		detachment__add(d, t->files[i].sets, PROBES__COUNT);
	t->file_cnt = 0;
}

void target__detach(struct target *t)
{
	struct detachment d = {};

	take_links(t, &d);
	detachment__run(&d);
}

void target__put_aside(struct target *t, uint64_t dev, uint64_t inode)
{
	struct attached_file *file = find_attached(t, dev, inode);

	if (!file)
		return;
	attachment__free_all(&file->sets[PROBES_LANDMARKS], 1);
	attachment__free_all(&file->sets[PROBES_LATE], 1);
}

void target__put_nvtx_aside(struct target *t)
{
	for (size_t i = 0; i < t->file_cnt; i++)
		attachment__free_all(&t->files[i].sets[PROBES_NVTX], 1);
}

void targets__detach(struct session *s, struct detachment *d)
{
	for (size_t i = 0; i < s->target_cnt; i++)
		take_links(s->targets[i], d);
}
