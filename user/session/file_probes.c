// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Finds the probes of a file, once per session. In: the sources. Out: probe lists. */
#include <stdlib.h>

#include "user/session/state.h"

/* Searches a file only once: a source that would find its probes later gets no second chance. */
struct file_probes *file_probes__of(struct session *s, struct target *t, const struct mapped_file *file,
				    struct elf *elf)
{
	struct file_probes *files, *f;
	struct elf *own = NULL;

	for (size_t i = 0; i < s->file_cnt; i++)
		if (s->files[i].dev == file->dev && s->files[i].inode == file->inode)
			return &s->files[i];
	files = reallocarray(s->files, s->file_cnt + 1, sizeof(*files));
	if (!files)
		return NULL;
	s->files = files;
	if (!elf) {
		if (elf__new(file->open_path, &own))
			return NULL;
		elf = own;
	}
	f = &files[s->file_cnt++];
	*f = (struct file_probes){.dev = file->dev, .inode = file->inode};
	for (int id = 0; id < SOURCE__COUNT; id++)
		if (sources[id]->find && sources[id]->holds(s, t, file) >= HOLDS_YES)
			sources[id]->find(s, t, file, elf, f->lists[id]);
	elf__free(own);
	return f;
}

void file_probes__release(struct file_probes *f)
{
	for (int id = 0; id < SOURCE__COUNT; id++)
		for (int set = 0; set < SOURCE_SETS; set++)
			probe_list__release(&f->lists[id][set]);
}
