/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The Python stack of a thread in a process that runs on. */
#ifndef STEPFLAME_USER_RUNTIME_PYTHON_PYFRAMES_H
#define STEPFLAME_USER_RUNTIME_PYTHON_PYFRAMES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "include/python.h"
#include "include/records.h"

#define PY_FRAMES_MAX 4096

/* A frame and its link to the one that called it. */
struct py_link {
	uint64_t frame, code, previous;
	int64_t offset; /* of the instruction at hand, in bytes of code; below 0: not begun */
	int8_t owner;   /* enum _frameowner, 0 in versions without */
	bool python;    /* a Python function's; else one that the interpreter made to enter it from C */
};

/* The innermost frame of a thread state, 0 for none. 0 or -errno. */
int py_link__innermost(pid_t pid, const struct py_layout *layout, uint64_t tstate, uint64_t *frame);

/*
 * The target's memory around the last frame that was read, with what lies below it, where the frames mostly are that
 * called it: so a chain of them is read at few moments. Empty when start == end == 0.
 */
#define PY_WINDOW_PAGES 8

struct py_window {
	uint64_t start, end; /* what is held */
	uint64_t base;       /* of bytes[0] */
	uint8_t bytes[PY_WINDOW_PAGES * 4096 + 4096];
};

/*
 * One frame. 0, -EAGAIN when it is being taken down, or -errno. Which thread it is of, if any, is for the caller to
 * know.
 */
int py_link__read(pid_t pid, const struct py_layout *layout, struct py_window *window, uint64_t frame,
		  struct py_link *out);

struct py_frame {
	const char *file, *name;      /* UTF-8, "" when not readable; name as traceback has it, from 3.11 qualified */
	int32_t line;                 /* 0: none */
	uint32_t first_line, offset;  /* of the function; of the instruction at hand, in bytes of code */
	const struct rec_code *lines; /* of the function: lines alone are set; NULL: not readable */
};

struct py_stack {
	struct py_frame *frames; /* innermost first */
	uint32_t frame_cnt;
	bool cut; /* there were more than PY_FRAMES_MAX; these are the innermost */
	/* No two readings agreed, since the thread ran: frames are only the outer ones, in which it was all the time. */
	bool moving;
	struct py_code *codes; /* owns what the frames point at */
	uint32_t code_cnt;
};

/*
 * Reads the stack of the thread state at `tstate` (struct py_thread) by process_vm_readv, until two readings, between
 * which names and lines were read, agree. 0, or -errno when nothing could be read. Release with py_stack__release, also
 * after an error.
 */
int py_stack__read(pid_t pid, const struct py_process *py, uint64_t tstate, struct py_stack *out);
void py_stack__release(struct py_stack *stack);

#endif
