/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Walks the frames of a Python thread that may run meanwhile. In: a pid and a thread state. Out:
 * struct py_stack. No state.
 *
 * Frames and their links are read one after the other, so a reading of a running thread may mix
 * frames that never existed together. A chain counts as true when several readings agree, the first
 * from before its code objects were read, the others from after. Frames hold references to their
 * code objects, so these were alive. Only the innermost frame may have moved to another
 * instruction.
 */
#include "user/runtime/python/pyframes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "user/proc/deputy.h"
#include "user/proc/process.h"
#include "user/runtime/python/pylines.h"
#include "user/runtime/python/pyobject.h"

#define READING_TRIES 50
#define ATTEMPTS      30
#define READINGS      5   /* that must agree */
#define FRAME_BYTES   128 /* bytes of a frame, up to the last field that is read */
#define PAGE          4096ul

/* What a code object says; when it is unchanged, the object is the same function. */
struct code_head {
	uint64_t type, file, name, line_table;
	uint64_t first_line; /* an int; of 8 bytes so that heads can be compared as bytes */
};

struct py_code {
	uint64_t address;
	struct code_head head;
	char *file, *name;
	struct rec_code *lines; /* NULL: not readable */
};

struct link {
	struct py_link frame;
	uint32_t index; /* of the code in stack->codes */
};

struct chain {
	struct link *links;
	uint32_t cnt;
	bool cut;
};

struct stack_reader {
	pid_t pid;
	const struct py_process *py;
	uint64_t tstate;
	bool lines; /* are read, too */
	struct py_stack *stack;
};

/* ---- the chain of frames ---- */

static uint64_t pointer_in(const uint8_t *bytes, uint16_t at)
{
	uint64_t value;

	memcpy(&value, bytes + at, sizeof(value));
	return value;
}

int py_link__innermost(pid_t pid, const struct py_layout *layout, uint64_t tstate, uint64_t *frame)
{
	int err = process__read_memory(pid, tstate + layout->tstate_frame, frame, sizeof(*frame));

	if (!err && layout->tstate_cframe && *frame)
		err = process__read_memory(pid, *frame + layout->cframe_current, frame, sizeof(*frame));
	return err;
}

/* Bytes of a frame that hold all fields that are read; memory after them may be unmapped. */
static size_t frame__bytes(const struct py_layout *layout)
{
	const size_t ends[] = {layout->frame_code + 8u, layout->frame_previous + 8u,
			       layout->frame_instr + (layout->instr_bytes ? 4u : 8u), layout->frame_owner + 1u,
			       layout->frame_tlbc + 4u};
	size_t most = 0;

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		most = ends[i] > most ? ends[i] : most;
	return most < FRAME_BYTES ? most : FRAME_BYTES;
}

/*
 * Reads from the start of the frame's page to the end of the frame, then the pages below that are
 * mapped.
 */
static int py_window__fill(struct py_window *window, pid_t pid, uint64_t frame, size_t size)
{
	uint64_t page = frame & ~(uint64_t)(PAGE - 1);
	struct iovec local[PY_WINDOW_PAGES], remote[PY_WINDOW_PAGES];
	size_t first = frame + size - page;
	ssize_t got;

	if (page < sizeof(window->bytes))
		return -EFAULT;
	window->base = page - (PY_WINDOW_PAGES - 1) * PAGE;
	for (size_t i = 0; i < PY_WINDOW_PAGES; i++) {
		remote[i] = (struct iovec){(void *)(uintptr_t)(page - i * PAGE), i ? PAGE : first};
		local[i] = (struct iovec){window->bytes + (PY_WINDOW_PAGES - 1 - i) * PAGE, remote[i].iov_len};
	}
	window->start = window->end = 0;
	got = process_vm_readv(pid, local, PY_WINDOW_PAGES, remote, PY_WINDOW_PAGES, 0);
	if (got < (ssize_t)first)
		return got < 0 ? -errno : -EFAULT;
	window->end = frame + size;
	window->start = page - ((size_t)got - first) / PAGE * PAGE;
	return 0;
}

/*
 * Where the bytecode begins to which a frame points: that of its code object, or, in a free-threaded
 * build, a thread's copy of it. 0, -EAGAIN: there is no such copy, so frame and code are of two
 * moments; or -errno.
 */
static int find_bytecode(pid_t pid, const struct py_layout *layout, const uint8_t *frame, uint64_t code, uint64_t *out)
{
	uint64_t copies, cnt;
	uint32_t copy = 0;
	int err;

	if (layout->code_tlbc)
		memcpy(&copy, frame + layout->frame_tlbc, sizeof(copy));
	*out = code + layout->code_instructions;
	if (!copy)
		return 0;
	err = process__read_memory(pid, code + layout->code_tlbc, &copies, sizeof(copies))
		      ?: process__read_memory(pid, copies, &cnt, sizeof(cnt));
	if (!err && copy >= cnt)
		err = -EAGAIN;
	err = err ?: process__read_memory(pid, copies + 8 + 8ull * copy, out, sizeof(*out));
	return err ?: *out ? 0 : -EAGAIN;
}

/*
 * Up to 3.10 a frame is an object. One that is being destroyed has no references, and its f_back
 * leads nowhere.
 */
int py_link__read(pid_t pid, const struct py_layout *layout, struct py_window *window, uint64_t frame,
		  struct py_link *out)
{
	size_t size = frame__bytes(layout);
	const uint8_t *bytes;
	uint64_t bytecode;
	int32_t index;
	int err;

	if (frame < window->start || frame >= window->end || size > window->end - frame) {
		err = py_window__fill(window, pid, frame, size);
		if (err)
			return err;
	}
	bytes = window->bytes + (frame - window->base);
	if (layout->instr_bytes && pointer_in(bytes, 0) == 0)
		return -EAGAIN;
	*out = (struct py_link){.frame = frame,
				.code = pointer_in(bytes, layout->frame_code) & ~(uint64_t)layout->ref_mask,
				.previous = pointer_in(bytes, layout->frame_previous),
				.owner = layout->frame_owner ? (int8_t)bytes[layout->frame_owner] : 0};
	out->python = layout->frame_owner_c < 0 || out->owner < layout->frame_owner_c;
	if (layout->instr_bytes) {
		memcpy(&index, bytes + layout->frame_instr, sizeof(index));
		out->offset = (int64_t)index * layout->instr_bytes;
		return 0;
	}
	err = out->python ? find_bytecode(pid, layout, bytes, out->code, &bytecode) : 0;
	if (!err && out->python)
		out->offset = (int64_t)(pointer_in(bytes, layout->frame_instr) - bytecode);
	return err;
}

struct chain_request {
	pid_t pid;
	struct py_layout layout;
	uint64_t tstate;
};

struct chain_answer {
	uint32_t cnt;
	bool cut;
	struct link links[PY_FRAMES_MAX];
};

/*
 * Reads all frames of Python functions, innermost first; succeeds when the innermost frame is the
 * same before and after.
 */
static int read_chain_in_deputy(const void *in, struct deputy_out *out)
{
	const struct chain_request *r = in;
	struct chain_answer *chain = (void *)out->bytes;
	const struct py_layout *layout = &r->layout;
	struct py_window window;
	uint64_t innermost, frame;
	int err = py_link__innermost(r->pid, layout, r->tstate, &innermost);

	window.start = window.end = 0;
	chain->cnt = 0;
	frame = err ? 0 : innermost;
	/* A frame of an entry from C may lie between two Python frames. */
	for (uint32_t i = 0; !err && frame && chain->cnt < PY_FRAMES_MAX && i < 2 * PY_FRAMES_MAX; i++) {
		struct py_link *link = &chain->links[chain->cnt].frame;

		err = py_link__read(r->pid, layout, &window, frame, link);
		if (err)
			break;
		frame = link->previous;
		chain->cnt += link->python;
	}
	chain->cut = !err && frame;
	err = err ?: py_link__innermost(r->pid, layout, r->tstate, &frame);
	return err ?: frame == innermost ? 0 : -EAGAIN;
}

/* By one work, since frames that are read within a shorter time are more often of one moment. */
static int reader__chain(const struct stack_reader *r, struct chain *chain)
{
	const struct chain_request request = {.pid = r->pid, .layout = r->py->layout, .tstate = r->tstate};
	const struct deputy_out *out;
	const struct chain_answer *answer;
	int err = deputy__run(r->pid, read_chain_in_deputy, &request, sizeof(request), &out);

	chain->cnt = 0;
	if (err)
		return err;
	answer = (const void *)out->bytes;
	chain->cnt = answer->cnt;
	chain->cut = answer->cut;
	memcpy(chain->links, answer->links, chain->cnt * sizeof(*chain->links));
	return 0;
}

/* Takes one reading; a thread that runs meanwhile spoils some. */
static int reader__reading(const struct stack_reader *r, struct chain *chain)
{
	int err = -EAGAIN;

	for (int i = 0; i < READING_TRIES && (err == -EAGAIN || err == -EFAULT); i++)
		err = reader__chain(r, chain);
	return err;
}

/* How many of the outermost frames, at most `most`, are the same in both chains. */
static uint32_t chain__common(const struct chain *a, const struct chain *b, uint32_t most)
{
	uint32_t same = 0;

	while (same < most && same < b->cnt) {
		const struct py_link *x = &a->links[a->cnt - 1 - same].frame, *y = &b->links[b->cnt - 1 - same].frame;
		bool innermost = same + 1 == a->cnt && a->cnt == b->cnt;

		if (x->frame != y->frame || x->code != y->code || x->previous != y->previous ||
		    (x->offset != y->offset && !innermost))
			break;
		same++;
	}
	return same;
}

/* ---- code objects ---- */

#define HEAD_BYTES 512

/* By one read, and so of one moment. */
static int reader__head(const struct stack_reader *r, uint64_t code, struct code_head *out)
{
	const struct py_layout *layout = &r->py->layout;
	const struct {
		uint32_t offset, bytes;
		void *to;
	} fields[] = {
		{layout->object_type, sizeof(out->type), &out->type},
		{layout->code_filename, sizeof(out->file), &out->file},
		{layout->code_qualname ?: layout->code_name, sizeof(out->name), &out->name},
		{layout->code_linetable, sizeof(out->line_table), &out->line_table},
		{layout->code_firstlineno, sizeof(uint32_t), &out->first_line},
	};
	char bytes[HEAD_BYTES];
	size_t end = 0;
	int err;

	memset(out, 0, sizeof(*out));
	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
		end = fields[i].offset + fields[i].bytes > end ? fields[i].offset + fields[i].bytes : end;
	err = end > sizeof(bytes) ? -EFAULT : process__read_memory(r->pid, code, bytes, end);
	for (size_t i = 0; !err && i < sizeof(fields) / sizeof(*fields); i++)
		memcpy(fields[i].to, bytes + fields[i].offset, fields[i].bytes);
	return err ?: out->type == r->py->code_type ? 0 : -EAGAIN;
}

static void code__clear(struct py_code *code)
{
	free(code->file);
	free(code->name);
	free(code->lines);
	memset(code, 0, sizeof(*code));
}

struct body_request {
	pid_t pid;
	struct py_layout layout;
	struct code_head head;
	bool lines;
};

/* What a head points at. */
struct code_body {
	uint32_t file_bytes, name_bytes, lines_bytes; /* 0: not readable */
	char bytes[];                                 /* the three, one after the other */
};

static char *put_bytes(char *to, const void *from, uint32_t bytes)
{
	if (bytes)
		memcpy(to, from, bytes);
	return to + bytes;
}

static int read_body_in_deputy(const void *in, struct deputy_out *out)
{
	const struct body_request *r = in;
	struct code_body *body = (void *)out->bytes;
	const struct rec_code record = {.pid = (uint32_t)r->pid,
					.table_bytes = -1,
					.line_table = r->head.line_table,
					.first_line = (uint32_t)r->head.first_line};
	struct rec_code *lines = NULL;
	char *file, *name = NULL, *end;
	int err;

	if (r->lines)
		py_lines__complete(&r->layout, &record, &lines);
	err = py_object__str(r->pid, &r->layout, r->head.file, &file);
	if (err != -ENOMEM)
		err = py_object__str(r->pid, &r->layout, r->head.name, &name);
	body->file_bytes = file ? strlen(file) + 1 : 0;
	body->name_bytes = name ? strlen(name) + 1 : 0;
	body->lines_bytes = lines ? lines->hdr.size : 0;
	end = put_bytes(body->bytes, file, body->file_bytes);
	end = put_bytes(end, name, body->name_bytes);
	end = put_bytes(end, lines, body->lines_bytes);
	out->size = (size_t)(end - out->bytes);
	free(file);
	free(name);
	free(lines);
	return err == -ENOMEM ? err : 0;
}

/* NULL: there are none, or no memory. */
static void *take_bytes(const char **from, uint32_t bytes)
{
	void *taken = bytes ? malloc(bytes) : NULL;

	if (taken)
		memcpy(taken, *from, bytes);
	*from += bytes;
	return taken;
}

/* Fills a code, unless it is filled and still the same. By one work, since a code takes some twenty reads. */
static int reader__fill(const struct stack_reader *r, struct py_code *code, uint64_t address)
{
	struct body_request request = {.pid = r->pid, .layout = r->py->layout, .lines = r->lines};
	const struct deputy_out *out;
	const struct code_body *body;
	const char *at;
	int err = reader__head(r, address, &request.head);

	if (err || (code->address == address && !memcmp(&request.head, &code->head, sizeof(code->head))))
		return err;
	code__clear(code);
	err = deputy__run(r->pid, read_body_in_deputy, &request, sizeof(request), &out);
	if (err)
		return err;
	code->address = address;
	code->head = request.head;
	body = (const void *)out->bytes;
	at = body->bytes;
	code->file = take_bytes(&at, body->file_bytes);
	code->name = take_bytes(&at, body->name_bytes);
	code->lines = take_bytes(&at, body->lines_bytes);
	return 0;
}

/* Reads the code objects of the chain, each once, and checks each again in each attempt. */
static int reader__codes(const struct stack_reader *r, struct chain *chain)
{
	struct py_stack *stack = r->stack;
	uint32_t seen = 0; /* in this attempt: the first of stack->codes */
	int err = 0;

	for (uint32_t i = 0; !err && i < chain->cnt; i++) {
		struct link *link = &chain->links[i];
		struct py_code *more, swap;
		uint32_t k = 0;

		while (k < stack->code_cnt && stack->codes[k].address != link->frame.code)
			k++;
		if (k == stack->code_cnt) {
			more = realloc(stack->codes, (k + 1) * sizeof(*more));
			if (!more)
				return -ENOMEM;
			stack->codes = more;
			memset(&more[stack->code_cnt++], 0, sizeof(*more));
		}
		if (k >= seen) {
			err = reader__fill(r, &stack->codes[k], link->frame.code);
			swap = stack->codes[seen];
			stack->codes[seen] = stack->codes[k];
			stack->codes[k] = swap;
			k = seen++;
		}
		link->index = k;
	}
	return err;
}

/*
 * From 3.12, the interpreter may put a frame of its own below one of __init__. Its code
 * (_Py_InitCleanup, CPython Python/specialize.c) has one str for all its names, and no first line.
 * Tracebacks leave it out.
 */
static bool code__is_function(const struct py_code *code)
{
	return code->head.file != code->head.name || code->head.first_line;
}

/* ---- the stack ---- */

static int stack__set(struct py_stack *stack, const struct link *links, uint32_t cnt)
{
	stack->frames = calloc(cnt ? cnt : 1, sizeof(*stack->frames));
	if (!stack->frames)
		return -ENOMEM;
	for (uint32_t i = 0; i < cnt; i++) {
		const struct py_code *code = &stack->codes[links[i].index];
		const struct rec_code *lines = code->lines;
		int64_t offset = links[i].frame.offset;

		if (!code__is_function(code))
			continue;
		stack->frames[stack->frame_cnt++] = (struct py_frame){
			.file = code->file ?: "",
			.name = code->name ?: "",
			.line = lines ? py_lines__at(lines->lines, lines->line_cnt, lines->first_line, offset) : 0,
			.first_line = (uint32_t)code->head.first_line,
			.offset = offset > 0 ? (uint32_t)offset : 0,
			.lines = lines,
		};
	}
	return 0;
}

/*
 * Makes one attempt. 0 when all readings agree; -EAGAIN when only the last `*common` frames of the
 * first reading are in all.
 */
static int reader__attempt(const struct stack_reader *r, struct chain *first, struct chain *again, uint32_t *common)
{
	int err = reader__reading(r, first) ?: reader__codes(r, first);
	bool whole = true;

	*common = first->cnt;
	for (int i = 1; !err && i < READINGS && (whole || *common); i++) {
		err = reader__reading(r, again);
		if (err)
			break;
		*common = chain__common(first, again, *common);
		whole = whole && *common == first->cnt && *common == again->cnt && first->cut == again->cut;
	}
	if (err)
		*common = 0;
	return err == -EFAULT || (!err && !whole) ? -EAGAIN : err;
}

int py_stack__read(pid_t pid, const struct py_process *py, uint64_t tstate, bool lines, struct py_stack *out)
{
	struct stack_reader r = {pid, py, tstate, lines, out};
	struct chain first = {0}, again = {0};
	uint32_t common = 0;
	int err;

	memset(out, 0, sizeof(*out));
	first.links = malloc(PY_FRAMES_MAX * sizeof(*first.links));
	again.links = malloc(PY_FRAMES_MAX * sizeof(*again.links));
	err = first.links && again.links ? -EAGAIN : -ENOMEM;
	for (int i = 0; err == -EAGAIN && (i < ATTEMPTS || (!common && i < 2 * ATTEMPTS)); i++)
		err = reader__attempt(&r, &first, &again, &common);
	if (!err || err == -EAGAIN) {
		out->moving = err == -EAGAIN;
		out->cut = !err && first.cut;
		err = stack__set(out, first.links + first.cnt - common, common);
	}
	free(first.links);
	free(again.links);
	return err;
}

void py_stack__release(struct py_stack *stack)
{
	for (uint32_t i = 0; i < stack->code_cnt; i++)
		code__clear(&stack->codes[i]);
	free(stack->codes);
	free(stack->frames);
	memset(stack, 0, sizeof(*stack));
}
