// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Attaches the probes of one target file by file, and detaches them for a while or for good. */
#include <errno.h>
#include <stdlib.h>

#include "stepflame.skel.h"
#include "user/session/state.h"

#define FILES_WITH_PROBES 256 /* of a target, at once; torch jobs have some 20 */

static struct attached_file *find_attached(const struct target *t, uint64_t dev, uint64_t inode)
{
	for (size_t i = 0; i < t->file_cnt; i++)
		if (t->files[i].dev == dev && t->files[i].inode == inode)
			return &t->files[i];
	return NULL;
}

/* NULL: the target does not map the file any more. */
static const struct mapped_file *find_mapped(const struct target *t, uint64_t dev, uint64_t inode)
{
	for (size_t i = 0; i < t->process.file_cnt; i++)
		if (t->process.files[i].dev == dev && t->process.files[i].inode == inode)
			return &t->process.files[i];
	return NULL;
}

/* A fork has the memory of its parent, which was compared. */
int target__compare(const struct target *t, const struct probe_list *list)
{
	const struct mapped_file *file = find_mapped(t, list->dev, list->inode);

	if (!list->cnt || t->forked)
		return 0;
	return file ? probe_list__compare(list, file) : -ENOENT;
}

static bool stays_in_rest(const struct target *t, enum source_id id, int set)
{
	return sources[id]->sets[set].in_rests && !t->rest.paused;
}

static int attach_set(struct session *s, struct target *t, enum source_id id, int number, struct attached_file *file)
{
	const struct probe_set *set = &sources[id]->sets[number];
	struct probe_list *list = &file->probes->lists[id][number];
	uint32_t *attachment = &file->sets[id][number];

	if (*attachment || !list->cnt || (t->rest.rests && !stays_in_rest(t, id, number)) ||
	    (set->wanted && !set->wanted(s, t)))
		return 0;
	return target__compare(t, list)
		       ?: guardian__attach(s->guardian, set->program ? set->program(s->skel) : s->skel->progs.probe,
					   t->process.pid, list, attachment);
}

/* Attaches the sets that are not attached yet. */
static int attach_sets(struct session *s, struct target *t, struct attached_file *file)
{
	struct attached_file before = *file;
	int err = 0, wait_err;

	for (int id = 0; id < SOURCE__COUNT; id++)
		for (int set = 0; set < SOURCE_SETS && !err; set++)
			err = attach_set(s, t, id, set, file);
	wait_err = guardian__await(s->guardian);
	err = err ?: wait_err;
	for (int id = 0; id < SOURCE__COUNT; id++)
		for (int set = 0; set < SOURCE_SETS && !err; set++)
			if (sources[id]->sets[set].attached && file->sets[id][set] && !before.sets[id][set])
				err = sources[id]->sets[set].attached(s, t);
	return err;
}

int target__attach_again(struct session *s, struct target *t)
{
	int err = 0;

	for (size_t i = 0; i < t->file_cnt && !err; i++)
		if (find_mapped(t, t->files[i].dev, t->files[i].inode))
			err = attach_sets(s, t, &t->files[i]);
	return err;
}

static void detach_file(struct session *s, struct attached_file *file)
{
	struct detachment d = {};

	detachment__add(&d, &file->sets[0][0], SOURCE__COUNT * SOURCE_SETS);
	guardian__detach(s->guardian, &d);
}

/* A program may make up any number of files. -E2BIG. */
static int refuse_file(struct session *s, struct target *t)
{
	if (!t->files_refused)
		session__note(s,
			      "process %d maps more than %d files in which probes have a place: the others have none",
			      t->process.pid, FILES_WITH_PROBES);
	t->files_refused = true;
	return -E2BIG;
}

int target__attach(struct session *s, struct target *t, const struct mapped_file *file, struct elf *elf)
{
	struct attached_file *files = find_attached(t, file->dev, file->inode);
	struct file_probes *probes;
	int err, searched;

	if (t->rest.rests)
		return 0;
	if (!files && t->file_cnt == FILES_WITH_PROBES)
		return refuse_file(s, t);
	searched = file_probes__of(s, t, file, elf, &probes);

	if (files)
		return searched > 0 ? attach_sets(s, t, files) : 0;
	if (searched < 0)
		return searched;
	files = reallocarray(t->files, t->file_cnt + 1, sizeof(*files));
	if (!files)
		return -ENOMEM;
	t->files = files;
	files += t->file_cnt;
	*files = (struct attached_file){.dev = file->dev, .inode = file->inode, .probes = probes};
	err = attach_sets(s, t, files);
	if (err)
		detach_file(s, files);
	else
		t->file_cnt++;
	return err;
}

bool target__has_probes(const struct target *t, const struct mapped_file *file, enum source_id id)
{
	const struct attached_file *attached = find_attached(t, file->dev, file->inode);

	for (int set = 0; attached && set < SOURCE_SETS; set++)
		if (attached->probes->lists[id][set].cnt)
			return true;
	return false;
}

static void hand_over_links(struct target *t, struct detachment *d)
{
	for (size_t i = 0; i < t->file_cnt; i++)
		detachment__add(d, &t->files[i].sets[0][0], SOURCE__COUNT * SOURCE_SETS);
	t->file_cnt = 0;
}

void target__detach(struct session *s, struct target *t)
{
	struct detachment d = {};

	hand_over_links(t, &d);
	guardian__detach(s->guardian, &d);
}

void target__detach_unmapped(struct session *s, struct target *t)
{
	struct detachment d = {};
	size_t cnt = 0;

	for (size_t i = 0; i < t->file_cnt; i++) {
		if (find_mapped(t, t->files[i].dev, t->files[i].inode))
			t->files[cnt++] = t->files[i];
		else
			detachment__add(&d, &t->files[i].sets[0][0], SOURCE__COUNT * SOURCE_SETS);
	}
	t->file_cnt = cnt;
	guardian__detach(s->guardian, &d);
}

void target__detach_set(struct session *s, struct target *t, enum source_id id, int set, uint64_t dev, uint64_t inode)
{
	struct detachment d = {};

	for (size_t i = 0; i < t->file_cnt; i++)
		if (!inode || (t->files[i].dev == dev && t->files[i].inode == inode))
			detachment__add(&d, &t->files[i].sets[id][set], 1);
	guardian__detach(s->guardian, &d);
}

static void hand_over_for_rest(struct target *t, struct detachment *d)
{
	for (size_t i = 0; i < t->file_cnt; i++)
		for (int id = 0; id < SOURCE__COUNT; id++)
			for (int set = 0; set < SOURCE_SETS; set++)
				if (!stays_in_rest(t, id, set))
					detachment__add(d, &t->files[i].sets[id][set], 1);
}

void targets__detach_group(struct session *s, uint32_t group)
{
	struct detachment d = {};

	for (size_t i = 0; i < s->target_cnt; i++)
		if (s->targets[i]->group == group)
			hand_over_for_rest(s->targets[i], &d);
	guardian__detach(s->guardian, &d);
}

void targets__detach(struct session *s, struct detachment *d)
{
	for (size_t i = 0; i < s->target_cnt; i++)
		hand_over_links(s->targets[i], d);
}
