// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What the session knows of the files that its targets map: their probes, found once, and the
 * sources' states; and which probes are attached to which target. It knows files as long as a target
 * maps them, and some of them for longer.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stepflame.skel.h"
#include "user/elf/elf.h"
#include "user/session/programs.h"
#include "user/session/state.h"

#define UNUSED_MAX 128 /* files that nobody maps */
#define NEW_FILES  256 /* that the session meets before it looks for such; a job maps some 300 */

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
	struct file_content content;
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	content = file_content__of(&st);
	if (known->seen && !file_content__same(&content, &known->content))
		return -ESTALE;
	known->seen = true;
	known->content = content;
	return 0;
}

/* A descriptor with a high number: this process may have more than it was given, where that may be. */
static void allow_descriptors(int fd)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || (rlim_t)fd < limit.rlim_cur / 2 || limit.rlim_cur == limit.rlim_max)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
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
	allow_descriptors(fd);
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

static void release_probes(const struct session *s, struct file_probes *probes)
{
	for (int id = 0; probes && id < SOURCE__COUNT; id++)
		for (int set = 0; set < SOURCE_SETS; set++) {
			attacher__forget(&s->selftest.attacher, &probes->lists[id][set]);
			probe_list__release(&probes->lists[id][set]);
		}
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

/*
 * The probes of a file that a process maps. Each source that holds it searches it once per session.
 * `elf` NULL: the file is not open yet. Returns 1 if a source has searched it now, 0 if none had to;
 * or -errno, also if the file changes meanwhile.
 */
static int find_probes(struct session *s, struct target *t, const struct mapped_file *file, struct elf *elf,
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
		release_probes(s, *out);
	else
		known_file(s, file->dev, file->inode)->probes = *out; /* the map may have moved it */
	return err ?: 1;
}

static void release_file(const struct session *s, struct known_file *known)
{
	for (int id = 0; id < SOURCE__COUNT; id++) {
		if (known->state[id] && sources[id]->free_file)
			sources[id]->free_file(known->state[id]);
		free(known->state[id]);
	}
	release_probes(s, known->probes);
	close_known(known);
}

static void forget_file(struct session *s, struct known_file *known)
{
	for (int id = 0; id < SOURCE__COUNT; id++)
		if (known->state[id] && sources[id]->forget_file)
			sources[id]->forget_file(s, known->state[id]);
	release_file(s, known);
}

static bool source_needs(const struct session *s, const struct known_file *known)
{
	for (int id = 0; id < SOURCE__COUNT; id++)
		if (sources[id]->needs_file && sources[id]->needs_file(s, known))
			return true;
	return false;
}

static void mark_file(struct session *s, uint64_t dev, uint64_t inode)
{
	const struct file_id id = {dev, inode};
	struct known_file *known = MAP_FIND(&s->files, struct known_file, &id);

	if (known)
		known->used = true;
}

/* A target may have unmapped a file whose probes it has. */
static void mark_used(struct session *s)
{
	struct known_file *known = s->files.items.items;

	for (size_t i = 0; i < s->files.items.cnt; i++)
		known[i].used = source_needs(s, &known[i]);
	for (size_t i = 0; i < s->target_cnt; i++) {
		const struct target *t = s->targets[i];

		for (size_t k = 0; k < t->process.file_cnt; k++)
			mark_file(s, t->process.files[k].dev, t->process.files[k].inode);
		for (size_t k = 0; k < t->file_cnt; k++)
			mark_file(s, t->files[k].dev, t->files[k].inode);
	}
}

void session__renew_files(struct session *s, const struct process *process)
{
	bool marked = false;

	for (size_t i = 0; i < process->file_cnt; i++) {
		const struct file_content *content = &process->files[i].content;
		struct known_file *known = find_known(s, &process->files[i]);

		if (!known || !known->seen || !content->changed_ns || file_content__same(content, &known->content))
			continue;
		if (!marked)
			mark_used(s);
		marked = true;
		if (known->used)
			continue;
		forget_file(s, known);
		*known = (struct known_file){.id = known->id};
	}
}

/* Those that came last stay. Returns how many do not. */
static size_t choose_unused(struct session *s)
{
	struct known_file *known = s->files.items.items;
	size_t unused = 0;

	for (size_t i = s->files.items.cnt; i-- > 0;)
		if (!known[i].used)
			known[i].used = unused++ < UNUSED_MAX;
	return unused > UNUSED_MAX ? unused - UNUSED_MAX : 0;
}

void session__forget_files(struct session *s)
{
	struct known_file *known = s->files.items.items, *copy;
	struct map kept = {};

	if (s->files.items.cnt < s->files_max)
		return;
	mark_used(s);
	s->files_max = s->files.items.cnt - choose_unused(s) + NEW_FILES;
	for (size_t i = 0; i < s->files.items.cnt; i++) {
		if (!known[i].used)
			continue;
		copy = MAP_ADD(&kept, struct known_file, &known[i].id);
		if (!copy) {
			map__free(&kept);
			return;
		}
		*copy = known[i];
	}
	for (size_t i = 0; i < s->files.items.cnt; i++)
		if (!known[i].used)
			forget_file(s, &known[i]);
	map__free(&s->files);
	s->files = kept;
}

void session__free_files(struct session *s)
{
	struct known_file *known = s->files.items.items;

	for (size_t i = 0; i < s->files.items.cnt; i++)
		release_file(s, &known[i]);
	map__free(&s->files);
}

/* ---- the probes of one target, attached file by file, and detached for a while or for good ---- */

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
	searched = find_probes(s, t, file, elf, &probes);

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
	struct proc_command command = {.what = COMMAND_CODES, .pid = t->process.pid};
	struct detachment d = {};

	programs__command(s->skel, &command); /* its code objects end unseen from now on; it may have ended itself */
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
