// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What the session knows of the files that its targets map: their probes, found once per session, and
 * the sources' states.
 */
#include <stdlib.h>

#include "user/session/state.h"

static struct known_file *known_file(struct session *s, uint64_t dev, uint64_t inode)
{
	const struct file_id id = {dev, inode};

	return MAP_ADD(&s->files, struct known_file, &id);
}

void *file__state(struct session *s, uint64_t dev, uint64_t inode, enum source_id id)
{
	struct known_file *known = known_file(s, dev, inode);

	if (known && !known->state[id])
		known->state[id] = calloc(1, sources[id]->file_bytes);
	return known ? known->state[id] : NULL;
}

struct file_probes *file_probes__find(const struct session *s, const struct mapped_file *file)
{
	const struct file_id id = {file->dev, file->inode};
	const struct known_file *known = MAP_FIND(&s->files, struct known_file, &id);

	return known ? known->probes : NULL;
}

/* Searches a file only once: a source that would find its probes later gets no second chance. */
struct file_probes *file_probes__of(struct session *s, struct target *t, const struct mapped_file *file,
				    struct elf *elf)
{
	struct file_probes *probes = file_probes__find(s, file);
	struct known_file *known;
	struct elf *own = NULL;

	if (probes)
		return probes;
	if (!elf) {
		if (elf__new(file->open_path, &own))
			return NULL;
		elf = own;
	}
	known = known_file(s, file->dev, file->inode);
	probes = known ? calloc(1, sizeof(*probes)) : NULL;
	if (known)
		known->probes = probes;
	for (int id = 0; probes && id < SOURCE__COUNT; id++)
		if (sources[id]->find && sources[id]->holds(s, t, file) >= HOLDS_YES)
			sources[id]->find(s, t, file, elf, probes->lists[id]);
	elf__free(own);
	return probes;
}

static void release_file(struct known_file *known)
{
	for (int id = 0; id < SOURCE__COUNT; id++) {
		for (int set = 0; known->probes && set < SOURCE_SETS; set++)
			probe_list__release(&known->probes->lists[id][set]);
		if (known->state[id] && sources[id]->free_file)
			sources[id]->free_file(known->state[id]);
		free(known->state[id]);
	}
	free(known->probes);
}

void session__free_files(struct session *s)
{
	struct known_file *known = s->files.items.items;

	for (size_t i = 0; i < s->files.items.cnt; i++)
		release_file(&known[i]);
	map__free(&s->files);
}
