// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/model/own_code.h"

#include <string.h>

#include "user/lib/compare.h"

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

static const char *const package_folders[] = {"/site-packages/", "/dist-packages/"};

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

static bool is_standard(const char *file)
{
	return !*file || *file == '<' || (strstr(file, "/lib/python3") && !in_packages(file));
}

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

void own_code__find(struct stacks *stacks, const struct names *names)
{
	struct own_code o = {.stacks = stacks, .names = names};
	struct part package;

	find_roots(&o);
	find_entries(&o);
	package = find_package(&o);
	for (size_t i = 0; i < stacks__code_end(stacks); i++) {
		const char *file = file_of(&o, i);

		bool own = is_own(&o, file) || (package.length && is_in(file, &package));

		stacks__set_own(stacks, i, own, is_standard(file));
	}
}
