// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What the session knows of the files that its targets map: their probes, found once per session, and
 * the sources' states.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "user/elf/elf.h"
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

static struct known_file *find_known(const struct session *s, const struct mapped_file *file)
{
	const struct file_id id = {file->dev, file->inode};

	return MAP_FIND(&s->files, struct known_file, &id);
}

struct file_probes *file_probes__find(const struct session *s, const struct mapped_file *file)
{
	const struct known_file *known = find_known(s, file);

	return known ? known->probes : NULL;
}

/* 0, or -ESTALE: this is another file, or other content, than when the session first opened it. */
static int check_content(struct known_file *known, int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (known->seen && ((uint64_t)st.st_size != known->size || st.st_mtim.tv_sec != known->changed.tv_sec ||
			    st.st_mtim.tv_nsec != known->changed.tv_nsec))
		return -ESTALE;
	known->seen = true;
	known->size = st.st_size;
	known->changed = st.st_mtim;
	return 0;
}

int file__open(struct session *s, const struct mapped_file *file, bool pin)
{
	struct known_file *known = known_file(s, file->dev, file->inode);
	int fd, err;

	if (!known)
		return -ENOMEM;
	fd = known->open ? known->fd : mapped_file__open(file);
	err = fd < 0 ? fd : check_content(known, fd);
	if (err) {
		if (fd >= 0 && !known->open)
			close(fd);
		return err;
	}
	known->fd = fd;
	known->open = true;
	known->pinned = known->pinned || pin;
	return fd;
}

int file__elf(struct session *s, const struct mapped_file *file, struct elf **out)
{
	int fd = file__open(s, file, false);

	fd = fd < 0 ? fd : fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return fd < 0 ? fd : elf__new_fd(fd, out);
}

static void close_known(struct known_file *known)
{
	if (known->open)
		close(known->fd);
	known->open = false;
}

void file__close(struct session *s, const struct mapped_file *file)
{
	struct known_file *known = find_known(s, file);

	if (known && !known->pinned)
		close_known(known);
}

static bool has_probes(const struct file_probes *probes)
{
	for (int id = 0; id < SOURCE__COUNT; id++)
		for (int set = 0; set < SOURCE_SETS; set++)
			if (probes->lists[id][set].cnt)
				return true;
	return false;
}

static void release_probes(struct file_probes *probes)
{
	for (int id = 0; probes && id < SOURCE__COUNT; id++)
		for (int set = 0; set < SOURCE_SETS; set++)
			probe_list__release(&probes->lists[id][set]);
	free(probes);
}

/* Tells the lists which file they are for. */
static int bind_probes(struct session *s, const struct mapped_file *file, struct file_probes *probes)
{
	int fd = file__open(s, file, has_probes(probes));

	for (int id = 0; id < SOURCE__COUNT; id++)
		for (int set = 0; set < SOURCE_SETS; set++)
			probe_list__set_file(&probes->lists[id][set], file, fd);
	file__close(s, file);
	return fd < 0 ? fd : 0;
}

static bool is_to_search(struct session *s, struct target *t, const struct mapped_file *file,
			 const struct file_probes *probes, enum source_id id)
{
	return sources[id]->find && !(probes && probes->searched[id]) && sources[id]->holds(s, t, file) >= HOLDS_YES;
}

/* Lets the sources that hold the file search it, those that have not yet. elf: NULL accepted. */
static int search_file(struct session *s, struct target *t, const struct mapped_file *file, struct elf *elf,
		       struct file_probes *probes)
{
	struct elf *own = NULL;
	int err = elf ? 0 : file__elf(s, file, &own);

	for (int id = 0; !err && id < SOURCE__COUNT; id++) {
		if (!is_to_search(s, t, file, probes, id))
			continue;
		sources[id]->find(s, t, file, elf ?: own, probes->lists[id]);
		probes->searched[id] = true;
	}
	err = err ?: elf__error(elf ?: own) ?: bind_probes(s, file, probes);
	elf__free(own);
	return err;
}

int file_probes__of(struct session *s, struct target *t, const struct mapped_file *file, struct elf *elf,
		    struct file_probes **out)
{
	struct known_file *known = known_file(s, file->dev, file->inode);
	bool first, search;
	int err;

	if (!known)
		return -ENOMEM;
	*out = known->probes;
	first = search = !*out;
	for (int id = 0; !search && id < SOURCE__COUNT; id++)
		search = is_to_search(s, t, file, *out, id);
	if (!search)
		return known->pinned ? check_content(known, known->fd) : 0;
	if (first)
		*out = calloc(1, sizeof(**out));
	err = *out ? search_file(s, t, file, elf, *out) : -ENOMEM;
	if (first && err)
		release_probes(*out);
	else
		known_file(s, file->dev, file->inode)->probes = *out; /* the map may have moved it */
	return err ?: 1;
}

static void release_file(struct known_file *known)
{
	for (int id = 0; id < SOURCE__COUNT; id++) {
		if (known->state[id] && sources[id]->free_file)
			sources[id]->free_file(known->state[id]);
		free(known->state[id]);
	}
	release_probes(known->probes);
	close_known(known);
}

void session__free_files(struct session *s)
{
	struct known_file *known = s->files.items.items;

	for (size_t i = 0; i < s->files.items.cnt; i++)
		release_file(&known[i]);
	map__free(&s->files);
}
