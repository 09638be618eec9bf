/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads the Python stack of a thread in a process that runs on. */
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
	int64_t offset; /* of the current instruction, in bytes of code; below 0: not begun */
	int8_t owner;   /* enum _frameowner, 0 in versions without */
	bool python;    /* a Python function's frame; else one that the interpreter made to enter Python from C */
};

/* For works of the deputy: the innermost frame of a thread state, 0: no frame. 0 or -errno. */
int py_link__innermost(pid_t pid, const struct py_layout *layout, uint64_t tstate, uint64_t *frame);

/*
 * A cache of the target's memory around the last frame that was read, and below it, where mostly
 * the calling frames lie: the frames of a chain then come from few moments. Empty when start == end
 * == 0.
 */
#define PY_WINDOW_PAGES 8

struct py_window {
	uint64_t start, end; /* the cached range */
	uint64_t base;       /* of bytes[0] */
	uint8_t bytes[PY_WINDOW_PAGES * 4096 + 4096];
};

/*
 * For works of the deputy: reads one frame. 0, -EAGAIN when the frame is being destroyed, or -errno. The caller must know
 * which thread it belongs to, if any.
 */
int py_link__read(pid_t pid, const struct py_layout *layout, struct py_window *window, uint64_t frame,
		  struct py_link *out);

struct py_frame {
	const char *file, *name;     /* UTF-8, "" when not readable; name as traceback prints it, from 3.11 qualified */
	int32_t line;                /* 0: none */
	uint32_t first_line, offset; /* of the function; of the current instruction, in bytes of code */
	const struct rec_code *lines; /* of the function, with only its lines set; NULL: not readable */
};

struct py_stack {
	struct py_frame *frames; /* innermost first */
	uint32_t frame_cnt;
	bool cut; /* there were more than PY_FRAMES_MAX; these are the innermost */
	/*
	 * The thread ran, and no two readings agreed: frames has only the outer frames, which all
	 * readings share.
	 */
	bool moving;
	struct py_code *codes; /* owns what the frames point at */
	uint32_t code_cnt;
};

/*
 * Reads the stack of the thread state at `tstate` (struct py_thread) by process_vm_readv, until two
 * readings agree that have the reading of names and lines between them. lines: else no frame has
 * one, which takes fewer reads. 0, or -errno when nothing could be read. Release with py_stack__release, also after an error.
 */
int py_stack__read(pid_t pid, const struct py_process *py, uint64_t tstate, bool lines, struct py_stack *out);
void py_stack__release(struct py_stack *stack);

#endif
