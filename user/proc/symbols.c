/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Texts for instruction pointers. In: /proc/PID/maps, the mapped files. Out: texts.
 * One thread.
 *	(pid, ip) -> range -> file and offset -> function -> text
 * Ranges are those of the process when maps was last read. Processes share files, and a file is
 * loaded at the first address in it. Texts are cached by function, so an address seen before costs
 * two binary searches and a hash.
 */
#include "user/proc/symbols.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "user/elf/demangle.h"
#include "user/elf/elf.h"
#include "user/lib/array.h"
#include "user/lib/clock.h"
#include "user/lib/search.h"
#include "user/lib/utf8.h"
#include "user/proc/proc.h"
#include "user/proc/process.h"

/*
 * ---- functions of a file, by their offsets in it ----
 *
 * A function takes 12 bytes of memory. The names stay in the file, which stays open and is read on
 * demand: when the file shrinks, names are lost, but no SIGBUS is raised.
 */

#define NAME_BYTES_MAX 4096
#define NESTED_MAX     16 /* functions that begin between the start of a function and an offset that it covers */

struct table_function {
	uint32_t offset, size;
	uint32_t name; /* file offset */
};

struct function_table {
	int fd;
	size_t cnt;
	struct table_function *functions; /* by offset, no two the same */
};

struct table_loader {
	const struct elf *elf;
	const char *image;      /* the mapped file; only names are read from it */
	struct array functions; /* of struct table_function */
	size_t max_cnt;
};

/* Whether `name` is the better of two names of the same function: the fewest leading underscores, then the shortest. */
static bool is_better_name(const char *name, const char *than)
{
	size_t len = strnlen(name, NAME_BYTES_MAX), than_len = strnlen(than, NAME_BYTES_MAX);
	size_t i = 0;

	while (i < len && i < than_len && name[i] == '_' && than[i] == '_')
		i++;
	if ((name[i] == '_') != (than[i] == '_'))
		return than[i] == '_';
	return len != than_len ? len < than_len : memcmp(name, than, len) < 0;
}

static int table_loader__add_symbol(const struct elf_symbol *symbol, void *ctx)
{
	struct table_loader *loader = ctx;
	struct table_function *function;
	uint64_t name = elf__name_offset(loader->elf, symbol), offset;

	if (!symbol->function || !symbol->size || !name || !elf__is_code(loader->elf, symbol->vaddr) ||
	    elf__offset(loader->elf, symbol->vaddr, &offset))
		return 0;
	if (loader->functions.cnt == loader->max_cnt)
		return -E2BIG;
	function = array__add(&loader->functions, sizeof(*function));
	if (!function)
		return -ENOMEM;
	loader->image = symbol->name - name;
	*function = (struct table_function){
		.offset = (uint32_t)offset,
		.size = symbol->size < UINT32_MAX ? (uint32_t)symbol->size : UINT32_MAX,
		.name = (uint32_t)name,
	};
	return 0;
}

/*
 * Radix sort by offset, a third of the bits at a time: ten times as fast as qsort(3) for the
 * 400,000 functions of torch.
 */
static int sort_functions(struct function_table *table)
{
	enum { BITS = 11, BUCKETS = 1 << BITS };
	struct table_function *from = table->functions, *to = reallocarray(NULL, table->cnt, sizeof(*to)), *swap;

	if (!to)
		return -ENOMEM;
	for (int shift = 0; shift < 32; shift += BITS) {
		size_t start[BUCKETS + 1] = {0};

		for (size_t i = 0; i < table->cnt; i++)
			start[(from[i].offset >> shift) % BUCKETS + 1]++;
		for (size_t i = 1; i < BUCKETS; i++)
			start[i] += start[i - 1];
		for (size_t i = 0; i < table->cnt; i++)
			to[start[(from[i].offset >> shift) % BUCKETS]++] = from[i];
		swap = from;
		from = to;
		to = swap;
	}
	table->functions = from;
	free(to);
	return 0;
}

/* Leaves one entry for each offset, and gives the spare memory back. */
static void merge_functions(struct function_table *table, const char *image)
{
	struct table_function *last = table->functions, *shrunk;

	for (size_t i = 1; i < table->cnt; i++) {
		const struct table_function *next = &table->functions[i];

		if (next->offset != last->offset) {
			*++last = *next;
			continue;
		}
		if (next->size > last->size)
			last->size = next->size;
		if (is_better_name(image + next->name, image + last->name))
			last->name = next->name;
	}
	table->cnt = (size_t)(last - table->functions) + 1;
	shrunk = reallocarray(table->functions, table->cnt, sizeof(*shrunk));
	if (shrunk)
		table->functions = shrunk;
}

static void function_table__free(struct function_table *table)
{
	if (!table)
		return;
	if (table->fd >= 0)
		close(table->fd);
	free(table->functions);
	free(table);
}

/*
 * Takes over the descriptor, on failure too. 0 or -errno: those of elf__new_fd; -E2BIG: more than
 * max_cnt functions, or 4 GiB. A file without symbols gives an empty table. Functions of unknown size
 * are left out.
 */
static int function_table__load(int fd, size_t max_cnt, struct function_table **out)
{
	struct function_table *table = calloc(1, sizeof(*table));
	struct table_loader loader = {.max_cnt = max_cnt};
	struct elf *elf = NULL;
	int err;

	if (!table) {
		close(fd);
		return -ENOMEM;
	}
	table->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	err = elf__new_fd(fd, &elf);
	if (table->fd < 0)
		err = err ?: -EMFILE;
	if (!err && elf__stat(elf)->st_size > UINT32_MAX)
		err = -E2BIG;
	if (err)
		goto out;
	loader.elf = elf;
	err = elf__each_symbol_once(elf, table_loader__add_symbol, &loader);
	table->functions = loader.functions.items;
	table->cnt = loader.functions.cnt;
	if (err || !table->cnt)
		goto out;
	err = sort_functions(table);
	if (err)
		goto out;
	merge_functions(table, loader.image);
	err = elf__error(elf);
out:
	elf__free(elf);
	if (err)
		function_table__free(table);
	else
		*out = table;
	return err;
}

/* The index of the function that covers the offset, the innermost of nested ones; -1: none does. */
static int64_t function_table__find(const struct function_table *table, uint64_t offset)
{
	size_t low = SEARCH(i, 0, table->cnt, table->functions[i].offset <= offset);
	for (size_t i = low; i-- > 0 && low - i <= NESTED_MAX;) {
		if (offset - table->functions[i].offset < table->functions[i].size)
			return (int64_t)i;
	}
	return -1;
}

/* The function's mangled name, as it is in the file, cut to `size` and 0-terminated. 0 or -errno. */
static int function_table__name(const struct function_table *table, size_t index, char *name, size_t size)
{
	ssize_t got = pread(table->fd, name, size - 1, table->functions[index].name);

	if (got < 0)
		return -errno;
	name[got] = 0;
	return 0;
}

/* ---- what is known ---- */

/* More than jobs have. Beyond these limits, addresses get a shorter text, or no text. */
#define PROCESSES_MAX 512
#define RANGES_MAX    8192
#define FILES_MAX     4096
#define TABLES_MAX    128 /* each holds a descriptor */
#define FUNCTIONS_MAX 4000000
#define TEXTS_MAX     16384
#define TEXT_SLOTS    (2 * TEXTS_MAX)

#define MANGLED_MAX   4096
#define NAME_BYTES    200
#define LIBRARY_MAX   72

/* An unmapped address may have been mapped since; rarely, another library has replaced a known one. */
#define MISS_INTERVAL_NS 1000000000ULL
#define HIT_INTERVAL_NS  10000000000ULL
#define SAME_INTERVAL_NS 300000000000ULL /* while it has as much mapped as before */
#define RETRY_NS         1000000000ULL

struct symbols_file {
	uint64_t dev, inode;
	uint32_t id; /* never reused for another file */
	uint32_t ref_cnt;
	char *path; /* as maps has it */
	bool settled;
	uint64_t retry_ns;
	struct function_table *table; /* NULL: no functions known */
	char text[LIBRARY_MAX];       /* without a function */
};

struct map_range {
	uint64_t start, end, offset;
	struct symbols_file *file; /* NULL: no file */
	const char *text;          /* then */
};

struct known_process {
	pid_t pid;
	uint64_t read_ns, took_ns; /* maps */
	struct proc_extent extent; /* then, */
	uint64_t same_ns;          /* and still the same then */
	size_t range_cnt;
	struct map_range *ranges;
};

struct text_slot {
	uint64_t key; /* file id << 32 | function */
	char *text;   /* NULL: free */
};

struct symbols {
	size_t process_cnt, file_cnt, table_cnt, function_cnt, text_cnt;
	uint32_t last_id;
	struct known_process processes[PROCESSES_MAX];
	struct symbols_file *files[FILES_MAX];
	struct text_slot texts[TEXT_SLOTS];
};

/* Valid UTF-8 on one line. */
static void put_clean(char *out, size_t size, const char *text)
{
	utf8__copy(out, size, text, size);
	for (; *out; out++) {
		if ((unsigned char)*out < ' ' || *out == 0x7f)
			*out = '?';
	}
}

/* ---- files ---- */

static void file__release(struct symbols *s, struct symbols_file *file)
{
	if (file->table) {
		s->table_cnt--;
		s->function_cnt -= file->table->cnt;
		function_table__free(file->table);
	}
	free(file->path);
	free(file);
}

static void symbols__sweep_files(struct symbols *s)
{
	size_t retained_cnt = 0;

	for (size_t i = 0; i < s->file_cnt; i++) {
		if (s->files[i]->ref_cnt)
			s->files[retained_cnt++] = s->files[i];
		else
			file__release(s, s->files[i]);
	}
	s->file_cnt = retained_cnt;
}

static struct symbols_file *symbols__file(struct symbols *s, const struct mapping *map)
{
	struct symbols_file *file;

	for (size_t i = 0; i < s->file_cnt; i++) {
		if (s->files[i]->dev == map->dev && s->files[i]->inode == map->inode)
			return s->files[i];
	}
	if (s->file_cnt == FILES_MAX)
		return NULL;
	file = calloc(1, sizeof(*file));
	if (!file)
		return NULL;
	file->path = strdup(map->name);
	if (!file->path) {
		free(file);
		return NULL;
	}
	file->dev = map->dev;
	file->inode = map->inode;
	file->id = ++s->last_id;
	s->files[s->file_cnt++] = file;
	return file;
}

/* Opens the file through a process that maps it. */
static void symbols__load_file(struct symbols *s, pid_t pid, const struct map_range *range)
{
	struct symbols_file *file = range->file;
	struct mapping map = {
		.start = range->start,
		.end = range->end,
		.dev = file->dev,
		.inode = file->inode,
		.name = file->path,
	};
	struct mapped_file found;
	const char *slash;
	int err = -EMFILE;

	mapped_file__locate(&found, pid, &map);
	slash = strrchr(found.path, '/');
	put_clean(file->text, sizeof(file->text), slash ? slash + 1 : found.path);
	if (s->table_cnt < TABLES_MAX)
		err = mapped_file__open(&found);
	if (err >= 0)
		err = function_table__load(err, FUNCTIONS_MAX - s->function_cnt, &file->table);
	if (!err) {
		s->table_cnt++;
		s->function_cnt += file->table->cnt;
	}
	if (err == -ENOEXEC)
		snprintf(file->text, sizeof(file->text), "[jit]");
	/* The file may be gone with the process, while another process still maps it. */
	file->settled = err != -ENOENT && err != -ESRCH && err != -EACCES;
	file->retry_ns = clock__ns(CLOCK_MONOTONIC) + RETRY_NS;
}

/* ---- processes ---- */

struct ranges {
	struct symbols *symbols;
	struct array items; /* of struct map_range */
};

static const char *special_text(const char *name)
{
	static const char *const names[] = {"[vdso]", "[vsyscall]", "[uprobes]"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (!strcmp(name, names[i]))
			return names[i];
	}
	return "[jit]";
}

static int add_range(const struct mapping *map, void *ctx)
{
	struct ranges *ranges = ctx;
	struct map_range *range;

	if (!map->executable || ranges->items.cnt == RANGES_MAX)
		return 0;
	range = array__add(&ranges->items, sizeof(*range));
	if (!range)
		return -ENOMEM;
	*range = (struct map_range){.start = map->start, .end = map->end, .offset = map->offset};
	if (!map->inode) {
		range->text = special_text(map->name);
		return 0;
	}
	range->file = symbols__file(ranges->symbols, map);
	if (range->file)
		range->file->ref_cnt++;
	else
		ranges->items.cnt--;
	return 0;
}

static void ranges__release(struct map_range *ranges, size_t cnt)
{
	for (size_t i = 0; i < cnt; i++) {
		if (ranges[i].file)
			ranges[i].file->ref_cnt--;
	}
	free(ranges);
}

/* All zeros: not known. */
static struct proc_extent extent_of(pid_t pid)
{
	struct proc_stat stat;

	return proc__stat(pid, 0, &stat) ? (struct proc_extent){} : proc_stat__extent(&stat);
}

/*
 * When maps cannot be read, the old ranges stay: the last samples of a process arrive after it has
 * ended.
 */
static void symbols__read_ranges(struct symbols *s, struct known_process *p)
{
	struct ranges ranges = {.symbols = s};
	struct proc_extent extent = extent_of(p->pid);
	uint64_t begin = clock__ns(CLOCK_MONOTONIC);
	int err = process__each_mapping(p->pid, add_range, &ranges);

	p->read_ns = clock__ns(CLOCK_MONOTONIC);
	p->took_ns = p->read_ns - begin;
	p->extent = extent;
	p->same_ns = p->read_ns;
	if (err) {
		ranges__release(ranges.items.items, ranges.items.cnt);
	} else {
		ranges__release(p->ranges, p->range_cnt);
		p->ranges = ranges.items.items;
		p->range_cnt = ranges.items.cnt;
	}
	symbols__sweep_files(s);
}

static struct known_process *symbols__process(struct symbols *s, pid_t pid)
{
	struct known_process *oldest = &s->processes[0];

	for (size_t i = 0; i < s->process_cnt; i++) {
		if (s->processes[i].pid == pid)
			return &s->processes[i];
		if (s->processes[i].read_ns < oldest->read_ns)
			oldest = &s->processes[i];
	}
	if (s->process_cnt == PROCESSES_MAX)
		symbols__forget(s, oldest->pid);
	oldest = &s->processes[s->process_cnt++];
	*oldest = (struct known_process){.pid = pid};
	return oldest;
}

void symbols__forget(struct symbols *s, pid_t pid)
{
	for (size_t i = 0; i < s->process_cnt; i++) {
		struct known_process *p = &s->processes[i];

		if (p->pid != pid)
			continue;
		ranges__release(p->ranges, p->range_cnt);
		*p = s->processes[--s->process_cnt];
		symbols__sweep_files(s);
		return;
	}
}

static const struct map_range *process__range(const struct known_process *p, uint64_t ip)
{
	size_t low = SEARCH(i, 0, p->range_cnt, p->ranges[i].end <= ip);
	return low < p->range_cnt && p->ranges[low].start <= ip ? &p->ranges[low] : NULL;
}

/* Rereading maps takes at most 2 % of the time, however many mappings there are. */
static const struct map_range *symbols__range(struct symbols *s, struct known_process *p, uint64_t ip)
{
	const struct map_range *range = process__range(p, ip);
	uint64_t interval = range ? HIT_INTERVAL_NS : MISS_INTERVAL_NS, now = clock__ns(CLOCK_MONOTONIC);
	struct proc_extent extent;

	if (p->read_ns && now - p->same_ns < interval + 50 * p->took_ns)
		return range;
	if (range && now - p->read_ns < SAME_INTERVAL_NS) {
		extent = extent_of(p->pid);
		if (proc_extent__same(&extent, &p->extent)) {
			p->same_ns = now;
			return range;
		}
	}
	symbols__read_ranges(s, p);
	return process__range(p, ip);
}

/* ---- texts ---- */

static void symbols__drop_texts(struct symbols *s)
{
	for (size_t i = 0; i < TEXT_SLOTS; i++)
		free(s->texts[i].text);
	memset(s->texts, 0, sizeof(s->texts));
	s->text_cnt = 0;
}

static char *make_text(const struct symbols_file *file, size_t function)
{
	char mangled[MANGLED_MAX], name[NAME_BYTES], clean[NAME_BYTES], text[SYMBOL_TEXT_MAX];

	if (function_table__name(file->table, function, mangled, sizeof(mangled)) || !mangled[0])
		return NULL;
	put_clean(clean, sizeof(clean), demangle__name(mangled, name, sizeof(name)) ? name : mangled);
	snprintf(text, sizeof(text), "%s (%s)", clean, file->text);
	return strdup(text);
}

static const char *symbols__text(struct symbols *s, const struct symbols_file *file, size_t function)
{
	uint64_t key = (uint64_t)file->id << 32 | function;
	size_t first = (key * 0x9e3779b97f4a7c15ULL >> 40) % TEXT_SLOTS, slot;
	char *text;

	for (slot = first; s->texts[slot].text; slot = (slot + 1) % TEXT_SLOTS) {
		if (s->texts[slot].key == key)
			return s->texts[slot].text;
	}
	text = make_text(file, function);
	if (!text)
		return NULL;
	if (s->text_cnt == TEXTS_MAX) {
		symbols__drop_texts(s);
		slot = first;
	}
	s->texts[slot] = (struct text_slot){key, text};
	s->text_cnt++;
	return text;
}

/* The function that covers an address of that range, or -1. */
static int64_t symbols__find(struct symbols *s, pid_t pid, const struct map_range *range, uint64_t ip)
{
	struct symbols_file *file = range->file;

	if (!file->settled && clock__ns(CLOCK_MONOTONIC) >= file->retry_ns)
		symbols__load_file(s, pid, range);
	return file->table ? function_table__find(file->table, ip - range->start + range->offset) : -1;
}

const char *symbols__user(struct symbols *s, pid_t pid, uint64_t ip)
{
	const struct map_range *range = symbols__range(s, symbols__process(s, pid), ip);
	const char *text = NULL;
	int64_t function;

	if (!range || !range->file)
		return range ? range->text : NULL;
	function = symbols__find(s, pid, range, ip);
	if (function >= 0)
		text = symbols__text(s, range->file, (size_t)function);
	return text ? text : range->file->text;
}

int symbols__function(struct symbols *s, pid_t pid, uint64_t address, char *mangled, size_t size)
{
	const struct map_range *range = symbols__range(s, symbols__process(s, pid), address);
	int64_t function = range && range->file ? symbols__find(s, pid, range, address) : -1;

	if (function < 0 || range->file->table->functions[function].offset != address - range->start + range->offset)
		return -ENOENT;
	return function_table__name(range->file->table, (size_t)function, mangled, size);
}

struct symbols *symbols__new(void)
{
	return calloc(1, sizeof(struct symbols));
}

void symbols__free(struct symbols *s)
{
	if (!s)
		return;
	while (s->process_cnt)
		symbols__forget(s, s->processes[0].pid);
	symbols__drop_texts(s);
	free(s);
}
