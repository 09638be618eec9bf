/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Walks the frames of a Python thread that may run meanwhile. In: a pid and a thread state. Out: struct py_stack. No state.
 *
 * A chain that was the same before and after its code objects were read is taken for true: frames hold their code objects, so these were alive. Only
 * the innermost frame may go on to another instruction.
 */
#include "pyframes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "process.h"
#include "pylines.h"
#include "pyobject.h"

#define ATTEMPTS    30
#define FRAME_BYTES 128 /* of a frame, up to its last field that is read */

/* What a code object says; unchanged, it is the same function. */
struct code_head {
	uint64_t type, file, name, line_table;
	uint32_t first_line;
};

struct py_code {
	uint64_t address;
	struct code_head head;
	char *file, *name;
	struct rec_code *lines; /* NULL: not readable */
};

struct link {
	uint64_t frame, code, previous;
	int64_t offset; /* of the instruction at hand, in bytes of code; below 0: not begun */
	uint32_t index; /* of the code in stack->codes */
};

struct chain {
	struct link *links;
	uint32_t cnt;
	bool cut;
};

struct reader {
	pid_t pid;
	const struct py_process *py;
	uint64_t tstate;
	struct py_stack *stack;
};

/* ---- the chain of frames ---- */

static int read_pointer(const struct reader *r, uint64_t address, uint64_t *value)
{
	return process__read_memory(r->pid, address, value, sizeof(*value));
}

static uint64_t pointer_in(const uint8_t *bytes, uint16_t at)
{
	uint64_t value;

	memcpy(&value, bytes + at, sizeof(value));
	return value;
}

static int reader__innermost(const struct reader *r, uint64_t *frame)
{
	const struct py_layout *layout = &r->py->layout;
	int err = read_pointer(r, r->tstate + layout->tstate_frame, frame);

	if (!err && layout->tstate_cframe && *frame)
		err = read_pointer(r, *frame + layout->cframe_current, frame);
	return err;
}

/* Bytes of a frame that hold all that is read of one; what is behind may not be mapped. */
static size_t frame__bytes(const struct py_layout *layout)
{
	const size_t ends[] = {layout->frame_code + 8u, layout->frame_previous + 8u,
			       layout->frame_instr + (layout->instr_bytes ? 4u : 8u), layout->frame_owner + 1u};
	size_t most = 0;

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		most = ends[i] > most ? ends[i] : most;
	return most < FRAME_BYTES ? most : FRAME_BYTES;
}

/* One frame by one read. *python: it is a Python function's. */
static int reader__link(const struct reader *r, uint64_t frame, struct link *out, bool *python)
{
	const struct py_layout *layout = &r->py->layout;
	uint8_t bytes[FRAME_BYTES] = {0};
	int32_t index;
	int err = process__read_memory(r->pid, frame, bytes, frame__bytes(layout));

	if (err)
		return err;
	*out = (struct link){.frame = frame,
			     .code = pointer_in(bytes, layout->frame_code) & ~(uint64_t)layout->ref_mask,
			     .previous = pointer_in(bytes, layout->frame_previous)};
	*python = layout->frame_owner_c < 0 || (int8_t)bytes[layout->frame_owner] < layout->frame_owner_c;
	if (layout->instr_bytes) {
		memcpy(&index, bytes + layout->frame_instr, sizeof(index));
		out->offset = (int64_t)index * layout->instr_bytes;
	} else {
		out->offset = (int64_t)(pointer_in(bytes, layout->frame_instr) - out->code - layout->code_instructions);
	}
	return 0;
}

/* All frames of Python functions, innermost first. chain->links has room for PY_FRAMES_MAX. */
static int reader__chain(const struct reader *r, struct chain *chain)
{
	uint64_t frame;
	bool python;
	int err = reader__innermost(r, &frame);

	chain->cnt = 0;
	/* Between two Python frames may lie one of an entry from C. */
	for (uint32_t i = 0; !err && frame && chain->cnt < PY_FRAMES_MAX && i < 2 * PY_FRAMES_MAX; i++) {
		err = reader__link(r, frame, &chain->links[chain->cnt], &python);
		frame = chain->links[chain->cnt].previous;
		chain->cnt += !err && python;
	}
	chain->cut = !err && frame;
	return err;
}

/* How many of the outermost frames are the same in both. */
static uint32_t chain__common(const struct chain *a, const struct chain *b)
{
	uint32_t same = 0;

	while (same < a->cnt && same < b->cnt) {
		const struct link *x = &a->links[a->cnt - 1 - same], *y = &b->links[b->cnt - 1 - same];
		bool innermost = same + 1 == a->cnt && a->cnt == b->cnt;

		if (x->frame != y->frame || x->code != y->code || x->previous != y->previous ||
		    (x->offset != y->offset && !innermost))
			break;
		same++;
	}
	return same;
}

/* ---- code objects ---- */

static int reader__head(const struct reader *r, uint64_t code, struct code_head *out)
{
	const struct py_layout *layout = &r->py->layout;
	int err;

	memset(out, 0, sizeof(*out));
	err = read_pointer(r, code + 8, &out->type) ?:
	      read_pointer(r, code + layout->code_filename, &out->file) ?:
	      read_pointer(r, code + (layout->code_qualname ?: layout->code_name), &out->name) ?:
	      read_pointer(r, code + layout->code_linetable, &out->line_table) ?:
	      process__read_memory(r->pid, code + layout->code_firstlineno, &out->first_line, sizeof(out->first_line));
	return err ?: out->type == r->py->code_type ? 0 : -EAGAIN;
}

static void code__clear(struct py_code *code)
{
	free(code->file);
	free(code->name);
	free(code->lines);
	memset(code, 0, sizeof(*code));
}

/* Fills a code, or leaves it alone if it is filled and the same still. */
static int reader__fill(const struct reader *r, struct py_code *code, uint64_t address)
{
	const struct py_layout *layout = &r->py->layout;
	struct rec_code record = {.pid = (uint32_t)r->pid};
	struct code_head head;
	int err = reader__head(r, address, &head);

	if (err || (code->address == address && !memcmp(&head, &code->head, sizeof(head))))
		return err;
	code__clear(code);
	code->address = address;
	code->head = head;
	record.line_table = head.line_table;
	record.first_line = head.first_line;
	py_lines__complete(layout, &record, &code->lines);
	err = py_object__str(r->pid, layout, head.file, &code->file);
	if (err == -ENOMEM)
		return err;
	err = py_object__str(r->pid, layout, head.name, &code->name);
	return err == -ENOMEM ? err : 0;
}

/* Makes the code objects of the chain known; each is read once, and looked at again in each attempt. */
static int reader__codes(const struct reader *r, struct chain *chain)
{
	struct py_stack *stack = r->stack;
	uint32_t seen = 0; /* in this attempt: the first of stack->codes */
	int err = 0;

	for (uint32_t i = 0; !err && i < chain->cnt; i++) {
		struct link *link = &chain->links[i];
		struct py_code *more, swap;
		uint32_t k = 0;

		while (k < stack->code_cnt && stack->codes[k].address != link->code)
			k++;
		if (k == stack->code_cnt) {
			more = realloc(stack->codes, (k + 1) * sizeof(*more));
			if (!more)
				return -ENOMEM;
			stack->codes = more;
			memset(&more[stack->code_cnt++], 0, sizeof(*more));
		}
		if (k >= seen) {
			err = reader__fill(r, &stack->codes[k], link->code);
			swap = stack->codes[seen];
			stack->codes[seen] = stack->codes[k];
			stack->codes[k] = swap;
			k = seen++;
		}
		link->index = k;
	}
	return err;
}

/* ---- the stack ---- */

static int stack__set(struct py_stack *stack, const struct link *links, uint32_t cnt)
{
	free(stack->frames);
	stack->frame_cnt = 0;
	stack->frames = calloc(cnt ? cnt : 1, sizeof(*stack->frames));
	if (!stack->frames)
		return -ENOMEM;
	for (uint32_t i = 0; i < cnt; i++) {
		const struct link *link = &links[i];
		const struct py_code *code = &stack->codes[link->index];

		if (code->head.file == code->head.name && !code->head.first_line)
			continue; /* 3.12 and later: _Py_InitCleanup, between a class's call and its __init__ */
		stack->frames[stack->frame_cnt++] = (struct py_frame){
			.file = code->file ?: "",
			.name = code->name ?: "",
			.line = code->lines ? py_lines__at(code->lines->lines, code->lines->line_cnt,
							   code->head.first_line, link->offset)
					    : 0,
		};
	}
	return 0;
}

/* One attempt. 0 when all agreed; -EAGAIN when the last `*common` frames of `before` did. */
static int reader__attempt(const struct reader *r, struct chain *before, struct chain *after, uint32_t *common)
{
	int err = reader__chain(r, before) ?: reader__codes(r, before) ?: reader__chain(r, after);

	*common = 0;
	if (err)
		return err == -EFAULT ? -EAGAIN : err;
	*common = chain__common(before, after);
	if (*common == before->cnt && *common == after->cnt && before->cut == after->cut)
		return 0;
	if (before->cut || after->cut) /* counted from different ends */
		*common = 0;
	return -EAGAIN;
}

int py_stack__read(pid_t pid, const struct py_process *py, uint64_t tstate, struct py_stack *out)
{
	struct reader r = {pid, py, tstate, out};
	struct chain before = {0}, after = {0};
	uint32_t common = 0;
	int err;

	memset(out, 0, sizeof(*out));
	before.links = malloc(PY_FRAMES_MAX * sizeof(*before.links));
	after.links = malloc(PY_FRAMES_MAX * sizeof(*after.links));
	err = before.links && after.links ? -EAGAIN : -ENOMEM;
	for (int i = 0; err == -EAGAIN && (i < ATTEMPTS || (!common && i < 2 * ATTEMPTS)); i++)
		err = reader__attempt(&r, &before, &after, &common);
	if (!err || err == -EAGAIN) {
		out->moving = err == -EAGAIN;
		out->cut = !err && before.cut;
		err = stack__set(out, before.links + before.cnt - common, common);
	}
	free(before.links);
	free(after.links);
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
