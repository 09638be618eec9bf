// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Definitions by number. The first definition of an id wins: an id is a hash of its content. */
#include "user/model/stacks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/lib/compare.h"
#include "user/lib/search.h"

#define STACKS_INSTALLED_MAX 1024

/* Copies 0 or more bytes; malloc'ed. NULL: no memory. */
static void *copy_bytes(const void *data, size_t bytes)
{
	void *out = malloc(bytes + 1);

	return out ? memcpy(out, data, bytes) : NULL;
}

/* The item of an id, by the id's number, in an array that grows with the numbers; NULL: no memory. */
static void *place_item(struct intern *ids, struct array *array, uint64_t id, size_t item_bytes)
{
	uint32_t number;

	if (intern__add(ids, id, &number) || array__grow(array, intern__end(ids), item_bytes))
		return NULL;
	return (char *)array->items + number * item_bytes;
}

static bool lines_ascend(const struct rec_code *record)
{
	for (uint32_t i = 1; i < record->line_cnt; i++)
		if (record->lines[i].offset <= record->lines[i - 1].offset)
			return false;
	return true;
}

static int stacks__add_code(struct stacks *stacks, const struct rec_code *record)
{
	size_t bytes = (size_t)record->line_cnt * sizeof(*record->lines);
	struct code *code;

	if (!record->id || bytes > record->hdr.size - sizeof(*record) || !lines_ascend(record))
		return -EINVAL;
	code = place_item(&stacks->code_ids, &stacks->codes, record->id, sizeof(*code));
	if (!code)
		return -ENOMEM;
	if (!code->known) {
		code->file = record->file;
		code->name = record->name;
		code->first_line = record->first_line;
		code->known = true;
	}
	/* A line table may be unreadable in one process and readable in another. */
	if (code->lines || !record->line_cnt)
		return 0;
	code->lines = copy_bytes(record->lines, bytes);
	code->line_cnt = code->lines ? record->line_cnt : 0;
	return code->lines ? 0 : -ENOMEM;
}

static int stacks__add_stack(struct stacks *stacks, const struct rec_stack *record)
{
	size_t bytes = (size_t)record->frame_cnt * sizeof(*record->frames);
	struct stack *stack;
	struct frame *frames;

	if (!record->id || record->frame_cnt > STACK_FRAMES_MAX || bytes > record->hdr.size - sizeof(*record))
		return -EINVAL;
	stack = place_item(&stacks->stack_ids, &stacks->stacks, record->id, sizeof(*stack));
	if (!stack)
		return -ENOMEM;
	if (stack->known)
		return 0;
	frames = calloc(record->frame_cnt + 1, sizeof(*frames));
	if (!frames)
		return -ENOMEM;
	for (uint32_t i = 0; i < record->frame_cnt; i++) {
		frames[i].offset = record->frames[i].offset;
		if (stacks__code_number(stacks, record->frames[i].code, &frames[i].code)) {
			free(frames);
			return -ENOMEM;
		}
	}
	*stack = (struct stack){.frames = frames, .cnt = record->frame_cnt, .cut = record->cut, .known = true};
	return 0;
}

static int stacks__add_path(struct stacks *stacks, const struct rec_path *record)
{
	size_t bytes = (size_t)record->span_cnt * sizeof(*record->spans);
	struct path *path;

	if (!record->id || bytes > record->hdr.size - sizeof(*record))
		return -EINVAL;
	for (uint32_t i = 0; i < record->span_cnt; i++)
		if (record->spans[i].kind == SPAN_NONE || record->spans[i].kind >= SPAN__COUNT ||
		    !record->spans[i].name)
			return -EINVAL;
	path = place_item(&stacks->path_ids, &stacks->paths, record->id, sizeof(*path));
	if (!path)
		return -ENOMEM;
	if (path->known)
		return 0;
	path->spans = copy_bytes(record->spans, bytes);
	path->cnt = path->spans ? record->span_cnt : 0;
	path->known = path->spans;
	return path->known ? 0 : -ENOMEM;
}

static int stacks__add_installed(struct stacks *stacks, const struct rec_installed *record)
{
	uint64_t *path =
		stacks->installed.cnt < STACKS_INSTALLED_MAX ? array__add(&stacks->installed, sizeof(*path)) : NULL;

	if (path)
		*path = record->path;
	return path || stacks->installed.cnt == STACKS_INSTALLED_MAX ? 0 : -ENOMEM;
}

int stacks__add(struct stacks *stacks, const struct rec_hdr *record)
{
	switch (record->type) {
	case REC_CODE:
		return stacks__add_code(stacks, (const void *)record);
	case REC_STACK:
		return stacks__add_stack(stacks, (const void *)record);
	case REC_PATH:
		return stacks__add_path(stacks, (const void *)record);
	case REC_INSTALLED:
		return stacks__add_installed(stacks, (const void *)record);
	default:
		return -EINVAL;
	}
}

int stacks__code_number(struct stacks *stacks, uint64_t id, uint32_t *number)
{
	return intern__add(&stacks->code_ids, id, number);
}

int stacks__stack_number(struct stacks *stacks, uint64_t id, uint32_t *number)
{
	return intern__add(&stacks->stack_ids, id, number);
}

int stacks__path_number(struct stacks *stacks, uint64_t id, uint32_t *number)
{
	return intern__add(&stacks->path_ids, id, number);
}

int stacks__path_with(struct stacks *stacks, uint32_t path_number, const struct path_span *span, uint32_t depth,
		      uint32_t *number)
{
	struct path old = stacks__path(stacks, path_number), *new;
	uint64_t id = intern__key(&stacks->path_ids, path_number) ^ span->name;
	struct path_span *spans;

	*number = path_number;
	if (!old.known)
		return 0;
	if (depth > old.cnt)
		depth = old.cnt;
	/* A collision with another path is as unlikely as one between ids. */
	id = (id ^ id >> 31 ^ depth) * 0x9e3779b97f4a7c15ull | 1;
	new = place_item(&stacks->path_ids, &stacks->paths, id, sizeof(*new));
	if (!new || intern__add(&stacks->path_ids, id, number))
		return -ENOMEM;
	if (new->known)
		return 0;
	spans = calloc(old.cnt + 1, sizeof(*spans));
	if (!spans)
		return -ENOMEM;
	for (uint32_t i = 0; i <= old.cnt; i++)
		spans[i] = i < depth ? old.spans[i] : i > depth ? old.spans[i - 1] : *span;
	*new = (struct path){.spans = spans, .cnt = old.cnt + 1, .known = true};
	return 0;
}

static const char *const package_folders[] = {"/site-packages/", "/dist-packages/"};

/* What follows the folder of packages; NULL: the file is in none. */
static const char *in_packages(const char *file)
{
	for (size_t i = 0; i < sizeof(package_folders) / sizeof(*package_folders); i++) {
		const char *found = strstr(file, package_folders[i]);

		if (found)
			return found + strlen(package_folders[i]);
	}
	return NULL;
}

/* A cell of a notebook, or what a person types in, or pipes in, has no file; Python's own frozen modules have names alike. */
static bool is_typed_in(const char *file)
{
	static const char *const begins[] = {"<stdin>",         "<console>", "<input>", "<python-input-",
					     "<ipython-input-", "<command-", "<timed ", "<magic-timeit>"};

	for (size_t i = 0; i < sizeof(begins) / sizeof(*begins); i++)
		if (!strncmp(file, begins[i], strlen(begins[i])))
			return true;
	return false;
}

static bool is_standard(const char *file)
{
	return !*file || (*file == '<' && !is_typed_in(file)) || (strstr(file, "/lib/python3") && !in_packages(file));
}

struct code stacks__code(const struct stacks *stacks, uint32_t number)
{
	if (number && number < stacks->codes.cnt)
		return ((const struct code *)stacks->codes.items)[number];
	return (struct code){.known = !number};
}

struct stack stacks__stack(const struct stacks *stacks, uint32_t number)
{
	if (number && number < stacks->stacks.cnt)
		return ((const struct stack *)stacks->stacks.items)[number];
	return (struct stack){.known = !number};
}

struct path stacks__path(const struct stacks *stacks, uint32_t number)
{
	if (number && number < stacks->paths.cnt)
		return ((const struct path *)stacks->paths.items)[number];
	return (struct path){.known = !number};
}

size_t stacks__code_end(const struct stacks *stacks)
{
	return intern__end(&stacks->code_ids);
}

size_t stacks__stack_end(const struct stacks *stacks)
{
	return intern__end(&stacks->stack_ids);
}

size_t stacks__path_end(const struct stacks *stacks)
{
	return intern__end(&stacks->path_ids);
}

uint32_t code__line(const struct code *code, uint32_t offset)
{
	/* The last entry that begins at or before the offset. */
	size_t low = SEARCH(i, 0, code->line_cnt, code->lines[i].offset <= offset);
	return low && code->lines[low - 1].line > 0 ? (uint32_t)code->lines[low - 1].line : 0;
}

void stacks__forget(struct stacks *stacks)
{
	struct stack *all = stacks->stacks.items;
	struct path *paths = stacks->paths.items;

	for (size_t i = 0; i < stacks->stacks.cnt; i++)
		free(all[i].frames);
	for (size_t i = 0; i < stacks->paths.cnt; i++)
		free(paths[i].spans);
	free(all);
	free(paths);
	intern__free(&stacks->stack_ids);
	intern__free(&stacks->path_ids);
	stacks->stacks = stacks->paths = (struct array){0};
}

void stacks__free(struct stacks *stacks)
{
	struct code *codes = stacks->codes.items;

	stacks__forget(stacks);
	for (size_t i = 0; i < stacks->codes.cnt; i++)
		free(codes[i].lines);
	free(codes);
	free(stacks->installed.items);
	intern__free(&stacks->code_ids);
	*stacks = (struct stacks){0};
}

/* ---- which functions are the user's own ---- */

#define ROOTS_MAX   8
#define ENTRIES_MAX 8

/* A part of a path, without a '\0' at its end. */
struct part {
	const char *text;
	size_t length;
};

struct own_code {
	struct stacks *stacks;
	const struct names *names;
	struct part roots[ROOTS_MAX]; /* folders of packages, with the '/' */
	size_t root_cnt;
	bool frozen;                      /* PyInstaller has taken the folders from the names of all files */
	const char *entries[ENTRIES_MAX]; /* then: the files in which programs were entered */
	size_t entry_cnt;
};

/* Files that torch.compile writes, and calls. */
static bool is_generated(const char *file)
{
	return strstr(file, "/torchinductor_") != NULL;
}

static bool is_in(const char *file, const struct part *folder)
{
	return !strncmp(file, folder->text, folder->length);
}

static bool is_in_roots(const struct own_code *o, const char *file)
{
	for (size_t i = 0; i < o->root_cnt; i++)
		if (is_in(file, &o->roots[i]))
			return true;
	return false;
}

/* By the metadata in its folder; length 0: it is not. A package's folder, with the '/', or a module's file. */
static struct part installed_part(const struct own_code *o, const char *file)
{
	const uint64_t *paths = o->stacks->installed.items;

	for (size_t i = 0; i < o->stacks->installed.cnt; i++) {
		const char *path = names__find(o->names, paths[i]);
		size_t length = path ? strlen(path) : 0;

		if (length > 1 && !strncmp(file, path, length) && (path[length - 1] == '/' || !file[length]))
			return (struct part){file, length};
	}
	return (struct part){0};
}

/* A frozen program is all in one place: of its files, only the one in which it was entered is the user's for certain. */
static bool is_entry(const struct own_code *o, const char *file)
{
	for (size_t i = 0; i < o->entry_cnt; i++)
		if (!strcmp(file, o->entries[i]))
			return true;
	return false;
}

static bool is_own(const struct own_code *o, const char *file)
{
	if (o->frozen && *file != '/')
		return is_entry(o, file);
	return !is_standard(file) && !in_packages(file) && !is_generated(file) && !is_in_roots(o, file) &&
	       !installed_part(o, file).length;
}

/* For own_code.h. */
static void set_own(struct stacks *stacks, uint32_t number, bool is_own, bool is_standard)
{
	struct code *code = number < stacks->codes.cnt ? &((struct code *)stacks->codes.items)[number] : NULL;

	if (!code)
		return;
	code->is_own = is_own;
	code->is_standard = is_standard;
}

static const char *file_of(const struct own_code *o, uint32_t number)
{
	struct code code = stacks__code(o->stacks, number);

	return (code.file ? names__find(o->names, code.file) : NULL) ?: "";
}

static bool is_module_level(const struct own_code *o, uint32_t number)
{
	struct code code = stacks__code(o->stacks, number);
	const char *name = code.name ? names__find(o->names, code.name) : NULL;

	return name && !strcmp(name, "<module>");
}

/* ---- folders of packages ---- */

static void add_root(struct own_code *o, const char *file)
{
	static const char module[] = "/torch/nn/modules/module.py", loader[] = "/torch/utils/data/dataloader.py";
	const char *end = compare__ends_with(file, module) ? module : compare__ends_with(file, loader) ? loader : NULL;
	struct part root;

	if (!end || is_standard(file) || in_packages(file) || o->root_cnt == ROOTS_MAX)
		return;
	root = (struct part){file, strlen(file) - strlen(end) + 1};
	if (root.length > 1 && !is_in_roots(o, file))
		o->roots[o->root_cnt++] = root;
}

/* The index of the frame at which the program was entered: the outermost one of a module. -1: none. */
static long entry_frame(const struct own_code *o, const struct stack *stack)
{
	for (long i = (long)stack->cnt - 1; i >= 0; i--) {
		uint32_t code = stack->frames[i].code;

		if (is_module_level(o, code) && !is_standard(file_of(o, code)))
			return i;
	}
	return -1;
}

/* A program may have its packages beside it. */
static void drop_root_of(struct own_code *o, const char *entry)
{
	const char *slash = strrchr(entry, '/');

	for (size_t i = 0; slash && i < o->root_cnt; i++)
		if (o->roots[i].length == (size_t)(slash - entry) + 1 && is_in(entry, &o->roots[i]))
			o->roots[i--] = o->roots[--o->root_cnt];
}

static void find_roots(struct own_code *o)
{
	for (size_t i = 0; i < stacks__code_end(o->stacks); i++)
		add_root(o, file_of(o, i));
	for (size_t i = 0; o->root_cnt && i < stacks__stack_end(o->stacks); i++) {
		struct stack stack = stacks__stack(o->stacks, i);
		long at = entry_frame(o, &stack);

		if (at >= 0)
			drop_root_of(o, file_of(o, stack.frames[at].code));
	}
}

/* ---- a frozen program ---- */

static void find_entries(struct own_code *o)
{
	for (size_t i = 0; i < stacks__code_end(o->stacks) && !o->frozen; i++) {
		const char *file = file_of(o, i);

		o->frozen = !strncmp(file, "torch/", 6) || !strncmp(file, "jax/", 4) || !strcmp(file, "threading.py");
	}
	for (size_t i = 0; o->frozen && o->entry_cnt < ENTRIES_MAX && i < stacks__stack_end(o->stacks); i++) {
		struct stack stack = stacks__stack(o->stacks, i);
		long at = entry_frame(o, &stack);
		const char *file = at >= 0 ? file_of(o, stack.frames[at].code) : "";

		if (*file && *file != '/' && !is_entry(o, file))
			o->entries[o->entry_cnt++] = file;
	}
}

/* ---- a package that is the program ---- */

/* The folder of the package in which a file is, with the '/', or the file of a module; length 0: in none. */
static struct part package_of(const struct own_code *o, const char *file)
{
	const char *inside = in_packages(file), *slash = inside ? strchr(inside, '/') : NULL;

	if (!inside)
		return installed_part(o, file);
	return (struct part){file, slash ? (size_t)(slash - file) + 1 : strlen(file)};
}

/* That in which the stack's program was entered. */
static struct part entered_package(const struct own_code *o, const struct stack *stack)
{
	long at = entry_frame(o, stack);
	const char *file = at >= 0 ? file_of(o, stack->frames[at].code) : "";
	struct part package = package_of(o, file);

	/* A command: a script in a folder bin, which calls the package. */
	if (at > 0 && !package.length && strstr(file, "/bin/"))
		package = package_of(o, file_of(o, stack->frames[at - 1].code));
	return package;
}

/* Whether something is the user's own, apart from the script of a command. */
static bool has_own(const struct own_code *o)
{
	for (size_t i = 0; i < stacks__code_end(o->stacks); i++) {
		const char *file = file_of(o, i);

		if (is_own(o, file) && !(is_module_level(o, i) && strstr(file, "/bin/")))
			return true;
	}
	return false;
}

static struct part find_package(const struct own_code *o)
{
	struct part package = {0};

	for (size_t i = 0; !package.length && !has_own(o) && i < stacks__stack_end(o->stacks); i++) {
		struct stack stack = stacks__stack(o->stacks, i);

		package = entered_package(o, &stack);
	}
	return package;
}

void stacks__find_own(struct stacks *stacks, const struct names *names)
{
	struct own_code o = {.stacks = stacks, .names = names};
	struct part package;

	find_roots(&o);
	find_entries(&o);
	package = find_package(&o);
	for (size_t i = 0; i < stacks__code_end(stacks); i++) {
		const char *file = file_of(&o, i);

		bool own = is_own(&o, file) || (package.length && is_in(file, &package));

		set_own(stacks, i, own, is_standard(file));
	}
}
