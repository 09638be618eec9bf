// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The object on which a thread waits in C has no frame. But the interpreter has put it on the value
 * stack of the innermost Python frame, for the call: [..., method, object, arguments]. Where that
 * stack ends, nothing in memory says while the call lasts, and above its end lie values of earlier
 * calls. So the lowest method of C there counts: one below the running call would be of an outer
 * call, whose arguments are being made, and one above it cannot be the lowest. What is not certain
 * is AWAITED_OTHER.
 *
 * In: the memory of a process, where anything may lie. No state.
 */
#include "user/runtime/python/pyawaited.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user/proc/deputy.h"
#include "user/proc/process.h"
#include "user/runtime/python/pyframes.h"
#include "user/runtime/python/pyobject.h"

#define SLOTS_MAX  32
#define LOCALS_MAX 4096
#define LINKS_MAX  4 /* frames of an entry from C before the first Python one */
#define NAME_BYTES 32

/*
 * Of PyTypeObject (tp_call, tp_flags), PyCFunctionObject (m_ml, m_self), PyMethodDescrObject (d_method) and calliterobject
 * (it_callable): the same in 3.8 to 3.15, each without py_layout__longer.
 */
#define TYPE_CALL         128
#define TYPE_FLAGS        168
#define TYPE_IS_HEAP      (1u << 9) /* Py_TPFLAGS_HEAPTYPE */
#define FUNCTION_METHOD   16
#define FUNCTION_SELF     24
#define DESCRIPTOR_METHOD 40
#define ITERATOR_CALLABLE 16
/* Of PyFrameObject up to 3.10: f_valuestack. */
#define FRAME_VALUES 64

struct request {
	pid_t pid;
	struct py_layout layout;
	uint64_t code_type, tstate;
};

static uint64_t member(const struct request *r, uint64_t offset)
{
	return offset + py_layout__longer(&r->layout);
}

static int read_word(const struct request *r, uint64_t address, uint64_t *out)
{
	return process__read_memory(r->pid, address, out, sizeof(*out));
}

/* false: there is no object. */
static bool read_type(const struct request *r, uint64_t object, uint64_t *type, char name[NAME_BYTES])
{
	uint64_t text;

	name[NAME_BYTES - 1] = 0;
	return !read_word(r, object + r->layout.object_type, type) &&
	       !read_word(r, *type + r->layout.type_name, &text) &&
	       !process__read_memory(r->pid, text, name, NAME_BYTES - 1);
}

static const char queue_type[] = "_queue.SimpleQueue", lock_type[] = "_thread.lock";

static bool is_a(const struct request *r, uint64_t object, const char *wanted)
{
	char name[NAME_BYTES];
	uint64_t type;

	return read_type(r, object, &type, name) && !strcmp(name, wanted);
}

/* A bound method of C; the second name is that of methods that know their class. */
static bool is_bound(const char *type)
{
	return !strcmp(type, "builtin_function_or_method") || !strcmp(type, "builtin_method");
}

/*
 * Something of C that can be called. An object of a Python class has a frame if it is; only such a
 * class has no module in the name of its type.
 */
static bool is_callable(const struct request *r, uint64_t type, const char *name)
{
	uint64_t call, flags;

	return read_word(r, type + member(r, TYPE_CALL), &call) || read_word(r, type + member(r, TYPE_FLAGS), &flags) ||
	       (call && !(flags & TYPE_IS_HEAP && !strchr(name, '.')));
}

/* method_at: where the address of its PyMethodDef is. */
static bool is_named(const struct request *r, uint64_t method_at, const char *wanted)
{
	size_t bytes = strlen(wanted) + 1;
	uint64_t method, name;
	char text[16];

	return bytes <= sizeof(text) && !read_word(r, method_at, &method) && !read_word(r, method, &name) &&
	       !process__read_memory(r->pid, name, text, bytes) && !memcmp(text, wanted, bytes);
}

/* Whose bound method that is. */
static bool is_of(const struct request *r, uint64_t function, const char *wanted)
{
	char name[NAME_BYTES];
	uint64_t self, type;

	return !read_word(r, function + member(r, FUNCTION_SELF), &self) && self && read_type(r, self, &type, name) &&
	       !strncmp(name, wanted, strlen(wanted));
}

/* `for item in iter(queue.get, None)`, which waits in no call of the frame's own. */
static bool iterates_queue(const struct request *r, uint64_t iterator)
{
	char name[NAME_BYTES];
	uint64_t callable, type;

	return !read_word(r, iterator + member(r, ITERATOR_CALLABLE), &callable) && callable &&
	       read_type(r, callable, &type, name) && is_bound(name) && is_of(r, callable, queue_type);
}

/* What a value says of what the frame calls. */
enum slot {
	SLOT_PASS,
	SLOT_METHOD, /* a method of C, whose object follows */
	SLOT_ITERATES,
	SLOT_QUEUE,
	SLOT_ACQUIRE, /* a lock's, of which the slot knows the object */
	SLOT_OTHER,
};

/*
 * A call marks what it calls: from 3.11 it has a NULL below, from 3.13 above. Without, it is an
 * argument, or left of an earlier call, whose result has replaced the NULL or what was called.
 */
static bool is_called(const struct request *r, const uint64_t *slots, uint32_t cnt, uint32_t i)
{
	uint64_t mask = ~(uint64_t)r->layout.ref_mask;

	if (r->layout.minor >= 13)
		return i + 1 < cnt && !(slots[i + 1] & mask);
	return r->layout.minor < 11 || (i && !slots[i - 1]);
}

static enum slot bound_slot(const struct request *r, const uint64_t *slots, uint32_t cnt, uint32_t i)
{
	uint64_t function = slots[i] & ~(uint64_t)r->layout.ref_mask;

	/* What a `with` calls at its end; while it begins, it waits without anything to call: for a lock, not a file. */
	if (is_named(r, function + member(r, FUNCTION_METHOD), "__exit__"))
		return is_of(r, function, "_io.") ? SLOT_PASS : SLOT_OTHER;
	if (!is_called(r, slots, cnt, i))
		return SLOT_PASS;
	if (is_of(r, function, lock_type) && is_named(r, function + member(r, FUNCTION_METHOD), "acquire"))
		return SLOT_ACQUIRE;
	return is_of(r, function, queue_type) ? SLOT_QUEUE : SLOT_OTHER;
}

static enum slot slot_of(const struct request *r, const uint64_t *slots, uint32_t cnt, uint32_t i)
{
	uint64_t object = slots[i] & ~(uint64_t)r->layout.ref_mask, type;
	char name[NAME_BYTES];

	if (!object || object % 8)
		return SLOT_PASS;
	if (!read_type(r, object, &type, name))
		return SLOT_OTHER;
	if (!strcmp(name, "method_descriptor"))
		return SLOT_METHOD;
	if (!strcmp(name, "callable_iterator"))
		return iterates_queue(r, object) ? SLOT_ITERATES : SLOT_PASS;
	/* A function of Python would have a frame of its own: it is one of an outer call. */
	if (!strcmp(name, "function") || !strcmp(name, "method"))
		return SLOT_PASS;
	if (is_bound(name))
		return bound_slot(r, slots, cnt, i);
	if (!strcmp(name, lock_type)) /* `with lock`, which calls nothing that lies here */
		return SLOT_OTHER;
	return is_callable(r, type, name) ? SLOT_OTHER : SLOT_PASS;
}

/* Of a method of C, and the object behind it. */
static enum awaited_kind awaited_by_method(const struct request *r, uint64_t method, uint64_t object, uint64_t *lock)
{
	if (is_a(r, object, queue_type))
		return AWAITED_QUEUE;
	if (!is_a(r, object, lock_type) || !is_named(r, method + member(r, DESCRIPTOR_METHOD), "acquire"))
		return AWAITED_OTHER;
	*lock = object;
	return AWAITED_ACQUIRE;
}

/* By the values of the frame, lowest first. Sets *lock for AWAITED_ACQUIRE. */
static enum awaited_kind awaited_of(const struct request *r, const uint64_t *slots, uint32_t cnt, uint64_t *lock)
{
	uint64_t mask = ~(uint64_t)r->layout.ref_mask;
	bool iterates = false;

	for (uint32_t i = 0; i < cnt; i++) {
		enum slot slot = slot_of(r, slots, cnt, i);

		if (slot == SLOT_METHOD)
			return i + 1 < cnt ? awaited_by_method(r, slots[i] & mask, slots[i + 1] & mask, lock)
					   : AWAITED_OTHER;
		if (slot == SLOT_ACQUIRE)
			return read_word(r, (slots[i] & mask) + member(r, FUNCTION_SELF), lock) ? AWAITED_OTHER
												: AWAITED_ACQUIRE;
		if (slot == SLOT_QUEUE || slot == SLOT_OTHER)
			return slot == SLOT_QUEUE ? AWAITED_QUEUE : AWAITED_OTHER;
		iterates |= slot == SLOT_ITERATES;
	}
	return iterates ? AWAITED_QUEUE : AWAITED_OTHER;
}

/* How many values a frame can have, and where they begin. 0 or -errno. */
static int find_slots(const struct request *r, const struct py_link *link, uint64_t *at, uint32_t *cnt)
{
	const struct py_layout *layout = &r->layout;
	/* From 3.11: co_stacksize, co_firstlineno, co_nlocalsplus; before: co_stacksize, co_flags. */
	uint32_t size_at = layout->code_instructions ? layout->code_firstlineno - 4u : layout->code_flags - 4u, ints[3];
	uint64_t type;
	int err = read_word(r, link->code + layout->object_type, &type)
			  ?: process__read_memory(r->pid, link->code + size_at, ints, sizeof(ints));

	if (err)
		return err;
	if (type != r->code_type || ints[0] > LOCALS_MAX || (layout->code_instructions && ints[2] > LOCALS_MAX))
		return -EAGAIN;
	*cnt = ints[0] < SLOTS_MAX ? ints[0] : SLOTS_MAX;
	if (!layout->code_instructions)
		return read_word(r, link->frame + FRAME_VALUES, at);
	*at = link->frame + layout->frame_locals + ints[2] * 8ull;
	return 0;
}

static int read_in_deputy(const void *in, struct deputy_out *out)
{
	const struct request *r = in;
	struct py_awaited *awaited = (void *)out->bytes;
	struct py_window window;
	uint64_t slots[SLOTS_MAX], frame, at;
	struct py_link link = {0};
	uint32_t cnt;
	int err = py_link__innermost(r->pid, &r->layout, r->tstate, &frame);

	window.start = window.end = 0;
	for (int i = 0; !err && !link.python && i < LINKS_MAX; i++) {
		err = frame ? py_link__read(r->pid, &r->layout, &window, frame, &link) : -ENOENT;
		frame = link.previous;
	}
	if (err || !link.python || link.offset < 0)
		return err ?: -ENOENT;
	err = find_slots(r, &link, &at, &cnt) ?: process__read_memory(r->pid, at, slots, cnt * sizeof(*slots));
	if (err)
		return err;
	*awaited = (struct py_awaited){.code = link.code, .offset = link.offset};
	awaited->on = awaited_of(r, slots, cnt, &awaited->lock);
	out->size = sizeof(*awaited);
	return 0;
}

int py_awaited__read(pid_t pid, const struct py_process *py, uint64_t tstate, struct py_awaited *out)
{
	const struct request request = {pid, py->layout, py->code_type, tstate};
	const struct deputy_out *answer;
	int err = deputy__run(pid, read_in_deputy, &request, sizeof(request), &answer);

	if (!err)
		memcpy(out, answer->bytes, sizeof(*out));
	return err;
}

int py_awaited__name(pid_t pid, const struct py_process *py, uint64_t code, char **file, char **name,
		     uint32_t *first_line)
{
	const struct py_layout *layout = &py->layout;
	uint64_t file_at, name_at;
	int err = process__read_memory(pid, code + layout->code_filename, &file_at, sizeof(file_at))
			  ?: process__read_memory(pid, code + (layout->code_qualname ?: layout->code_name), &name_at,
						  sizeof(name_at))
			  ?: process__read_memory(pid, code + layout->code_firstlineno, first_line, sizeof(*first_line));

	*file = *name = NULL;
	err = err ?: py_object__str(pid, layout, file_at, file) ?: py_object__str(pid, layout, name_at, name);
	if (err) {
		free(*file);
		free(*name);
		*file = *name = NULL;
	}
	return err;
}
