// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Finds CPython in a process. In: the mapped files of struct process, and reads of the process's
 * memory, which goes on running. Out: struct python. Owned by the calling thread, which keeps what it
 * found in the last few files. This file first analyses the interpreter's file; then the process must
 * agree (pycheck.c).
 */
#include "user/runtime/python/python.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "user/elf/cache.h"
#include "user/proc/deputy.h"
#include "user/proc/getter.h"
#include "user/runtime/python/interpreter.h"
#include "user/runtime/python/pycheck.h"
#include "user/runtime/python/pylayout.h"
#include "user/runtime/python/pythread.h"
#include "user/x86/flow.h"
#include "user/x86/insn.h"

/* ---- where garbage is collected: finds invoke_gc_callback by its arguments ---- */

#define ARGUMENT_SCAN 16 /* instructions before a call that may load its arguments */
#define CALLEES_MAX   16 /* of PyGC_Collect; it has 3 to 6 */
#define PAGE_MASK     0xfff

/* 0 for the register of the first argument, 1 for the second's, else -1. */
static int argument_of(uint16_t reg)
{
	int number = regs__number(reg, 4);

	return number == X86_RDI ? 0 : number == X86_RSI ? 1 : -1;
}

/*
 * Returns the address of the text when the call node[at] passes it as its first or second argument
 * (*argument says which), else 0.
 */
static uint64_t text_argument(const struct flow *flow, size_t at, const char *text, int *argument)
{
	for (size_t n = 1; n <= ARGUMENT_SCAN && n <= at; n++) {
		const struct flow_node *node = &flow->node[at - n];

		if (node->kind != FLOW_PLAIN || node->vaddr + node->size != node[1].vaddr)
			return 0;
		*argument = argument_of(node->target_reg);
		if (*argument >= 0 && elf__text_is(flow->elf, node->target, text))
			return node->target;
	}
	return 0;
}

static bool is_own_call(const struct flow *flow, const struct flow_node *node)
{
	return node->kind == FLOW_CALL && node->target && !flow__import(flow->elf, node->target);
}

/* Finds the callee that gets both texts, among the calls of one function. */
static int find_gc_callee(const struct flow *flow, struct py_gc *out)
{
	for (size_t i = 0; i < flow->node_cnt; i++) {
		uint64_t start, stop;
		int first, second;

		if (!is_own_call(flow, &flow->node[i]) || !(start = text_argument(flow, i, "start", &first)))
			continue;
		for (size_t k = 0; k < flow->node_cnt; k++) {
			if (!is_own_call(flow, &flow->node[k]) || flow->node[k].target != flow->node[i].target ||
			    !(stop = text_argument(flow, k, "stop", &second)) || first != second ||
			    !((start ^ stop) & PAGE_MASK))
				continue;
			*out = (struct py_gc){flow->node[i].target, start, !first};
			return 0;
		}
	}
	return -ENOENT;
}

int py_gc__find(const struct elf *elf, struct py_gc *out)
{
	uint64_t callees[CALLEES_MAX];
	struct elf_symbol collect;
	struct flow *flow = NULL;
	size_t callee_cnt = 0;
	int err = elf__symbol(elf, "PyGC_Collect", &collect) ?: flow__new(elf, collect.vaddr, collect.size, &flow);

	if (err)
		return err;
	err = find_gc_callee(flow, out);
	for (size_t i = 0; err && i < flow->node_cnt && callee_cnt < CALLEES_MAX; i++)
		if (is_own_call(flow, &flow->node[i]))
			callees[callee_cnt++] = flow->node[i].target;
	flow__free(flow);
	for (size_t i = 0; err && i < callee_cnt; i++) {
		if (flow__new(elf, callees[i], 0, &flow))
			continue;
		err = find_gc_callee(flow, out);
		flow__free(flow);
	}
	return err;
}

#define MINOR_GILSTATE_WORD 15   /* a thread's own state is a thread-local word */
#define FILES_KNOWN         8    /* interpreters' files whose functions are kept */
#define METH_FASTCALL       0x80 /* CPython Include/methodobject.h */

/* ---- the interpreter's file ---- */

static const char *file__name(const struct mapped_file *file)
{
	const char *slash = strrchr(file->path, '/');

	return slash ? slash + 1 : file->path;
}

/* Opens the file if it defines an interpreter: 0, -ENOENT if not, or -errno. */
static int file__open_python(const struct mapped_file *file, struct elf **elf)
{
	static const char *const needed[] = {"_PyRuntime", "PyGen_Type", "PyUnicode_Type", "_PyEval_EvalFrameDefault"};
	struct elf_symbol symbol;
	int err;

	err = mapped_file__elf(file, elf);
	if (err)
		return err;
	for (size_t i = 0; !err && i < sizeof(needed) / sizeof(needed[0]); i++)
		err = elf__symbol(*elf, needed[i], &symbol);
	if (err) {
		elf__free(*elf);
		*elf = NULL;
	}
	return err;
}

/* "libpython3.11.so.1.0"; not the stable ABI's forwarder libpython3.so. */
static bool file__is_libpython(const struct mapped_file *file)
{
	return !strncmp(file__name(file), "libpython3.", 11) && isdigit((unsigned char)file__name(file)[11]);
}

static bool is_refused(int err)
{
	return err == -EACCES || err == -EPERM;
}

/*
 * The executable goes first: its definitions win over a libpython that an extension brought. A file
 * named python is also the executable when the process was started through the loader (ld.so
 * /usr/bin/python3).
 */
static int process__find_python(const struct process *process, const struct mapped_file **file, struct elf **elf)
{
	int err, result = -ENOENT;

	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < process->file_cnt; i++) {
			*file = &process->files[i];
			if (round == 0 ? !(*file)->is_program
				       : (round == 1 ? !file__is_libpython(*file)
						     : strncmp(file__name(*file), "python", 6) != 0))
				continue;
			err = file__open_python(*file, elf);
			if (!err)
				return 0;
			if (round == 1) /* report a libpython that cannot be read */
				result = err;
			if (is_refused(err))
				result = -ELIBACC;
		}
	}
	return result;
}

/* Another implementation of Python, by the files that it maps; NULL: none that is known. */
static const char *other_python(const struct process *process)
{
	static const char *const others[][2] = {
		{"libpypy", "PyPy"}, {"pypy", "PyPy"}, {"libpythonvm", "GraalPy"}, {"graalpy", "GraalPy"}};

	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		if (process__file(process, others[i][0]))
			return others[i][1];
	return NULL;
}

/* ---- version ---- */

/* Py_Version, as in PY_VERSION_HEX: 0x030c01f0 is 3.12.1, final. 0 or -ENOENT. */
static int version__from_hex(const struct elf *elf, pid_t pid, uint64_t bias, char version[16])
{
	static const char *const levels[16] = {[0xa] = "a", [0xb] = "b", [0xc] = "rc"};
	struct elf_symbol symbol;
	char pre[5] = "";
	uint64_t hex;

	if (elf__symbol(elf, "Py_Version", &symbol) ||
	    process__read_memory(pid, bias + symbol.vaddr, &hex, sizeof(hex)) || (hex >> 24) != 3)
		return -ENOENT;
	if (levels[(hex >> 4) & 15])
		snprintf(pre, sizeof(pre), "%s%u", levels[(hex >> 4) & 15], (unsigned)hex & 15);
	snprintf(version, 16, "3.%u.%u%s", (unsigned)(hex >> 16) & 255, (unsigned)(hex >> 8) & 255, pre);
	return 0;
}

/*
 * Sets out->version from the best source that exists, and returns the minor version; -1 when there
 * is no source.
 */
static int python__version(struct python *out, const struct elf *elf, pid_t pid)
{
	int minor;

	if (version__from_hex(elf, pid, out->bias, out->version) &&
	    getter__version(elf, pid, out->bias, out->version, sizeof(out->version))) {
		if (sscanf(file__name(out->file), "libpython3.%2d", &minor) != 1 &&
		    sscanf(file__name(out->file), "python3.%2d", &minor) != 1)
			return -1;
		snprintf(out->version, sizeof(out->version), "3.%d", minor);
	}
	return sscanf(out->version, "3.%d", &minor) == 1 ? minor : -1;
}

/* ---- functions and thread state ---- */

#define TYPE_DEALLOC 24 /* bytes from tp_name to tp_dealloc, CPython Include/cpython/object.h */

static void find_functions(const struct elf *elf, uint64_t gen_type, uint64_t code_type, const struct py_layout *layout,
			   struct py_functions *functions)
{
	struct elf_symbol symbol;
	uint64_t methods;

	if (elf__method(elf, "next", METH_FASTCALL, &functions->next))
		functions->next = 0;
	if (elf__pointer(elf, gen_type + layout->type_methods, &methods) ||
	    elf__method_in(elf, methods, "throw", &functions->throw_))
		functions->throw_ = 0;
	if (!elf__symbol(elf, "slot_tp_iternext", &symbol))
		functions->iternext = symbol.vaddr;
	else if (elf__slot(elf, "__next__", layout->type_iternext, &functions->iternext))
		functions->iternext = 0;
	if (!elf__symbol(elf, "_PyEval_EvalFrameDefault", &symbol))
		functions->eval = symbol.vaddr;
	if (elf__pointer(elf, code_type + layout->type_name + TYPE_DEALLOC, &functions->code_end))
		functions->code_end = 0;
	if (py_gc__find(elf, &functions->gc))
		functions->gc.callback = 0;
}

/* The functions of a file, which some offsets of its layout decide, too. */
struct known_file {
	struct file_key key;
	uint64_t methods, iternext;
	struct py_functions functions;
};

/* The search takes milliseconds, and the jobs of a host have few interpreters. */
static void python__find_functions(struct python *out, const struct elf *elf, uint64_t gen_type, uint64_t code_type)
{
	static _Thread_local struct known_file known[FILES_KNOWN];
	static _Thread_local size_t next;
	const struct py_layout *layout = &out->process.layout;
	struct known_file file = {.methods = layout->type_methods, .iternext = layout->type_iternext};
	bool keeps = file_key__of(elf, &file.key);

	for (size_t i = 0; i < FILES_KNOWN; i++) {
		if (!keeps || memcmp(&known[i].key, &file.key, sizeof(file.key)) || known[i].methods != file.methods ||
		    known[i].iternext != file.iternext)
			continue;
		out->functions = known[i].functions;
		return;
	}
	find_functions(elf, gen_type, code_type, layout, &file.functions);
	out->functions = file.functions;
	if (keeps && !elf__error(elf))
		known[next++ % FILES_KNOWN] = file;
}

static void python__find_tstate(struct python *out, const struct elf *elf, const struct process *process)
{
	struct py_process *py = &out->process;

	if (py->layout.runtime_tstate) {
		py->tstate_where = PY_TSTATE_GLOBAL;
		py->tstate_address = out->runtime + py->layout.runtime_tstate;
		return;
	}
	/* musl's dtv has 8-byte entries, so a word that needs the dtv stays unknown there. */
	if (getter__tstate(elf, process->pid, out->bias, py) ||
	    (py->tstate_where == PY_TSTATE_DTV && process__file(process, "ld-musl-"))) {
		py->tstate_where = PY_TSTATE_UNKNOWN;
		py->tls_module = 0;
		py->tstate_address = 0;
	}
}

/* Up to 3.14 this getter reads a pthread key instead. */
static bool python__find_gilstate(const struct python *python, const struct elf *elf, pid_t pid,
				  struct thread_word *word)
{
	return python->process.layout.minor >= MINOR_GILSTATE_WORD &&
	       !getter__thread_word(elf, pid, python->bias, "PyGILState_GetThisThreadState", word);
}

static void python__find_threads(struct python *out, const struct process *process, const struct elf *elf,
				 const struct py_internals *internals)
{
	struct py_process *py = &out->process;
	struct thread_word word;
	bool has_word = python__find_gilstate(out, elf, process->pid, &word);

	out->started = py_thread__interpreters(process->pid, out->runtime, out->walk) > 0;
	if (!process__file(process, "ld-musl-"))
		py->tss_offset =
			py_thread__find_tss(process->pid, out->runtime, internals, out->walk, has_word ? &word : NULL);
	py->gil_address = py_thread__find_gil(process->pid, out->runtime, internals, out->walk);
	py->gil_bytes = py->gil_address ? internals->gil_bytes : 0;
}

/* ---- layout ---- */

/* "3.14.2t", as CPython names such a build. */
static void mark_free_threaded(struct python *python)
{
	size_t bytes = strlen(python->version);

	if (bytes + 1 < sizeof(python->version))
		memcpy(python->version + bytes, "t", 2);
}

/*
 * The layout of a minor version: as in the built-in table, and _Py_DebugOffsets agree; else, from
 * 3.13 on, as _Py_DebugOffsets say, which out->tried tells. 0, or an error of python__find.
 */
static int python__find_layout(struct python *out, pid_t pid, int minor, struct py_internals *internals)
{
	bool free_threaded = py_offsets__is_free_threaded(pid, out->runtime);
	const struct py_internals *row = py_internals__find(minor > PY_MINOR_MAX ? PY_MINOR_MAX : minor, free_threaded);
	int err;

	if (free_threaded)
		mark_free_threaded(out);
	if (!row)
		return -EOPNOTSUPP;
	*internals = *row;
	err = minor > PY_MINOR_MAX ? -ENOTSUP : py_check__debug_offsets(pid, out->runtime, row);
	if (err == -ENOTSUP) {
		err = py_offsets__read(pid, out->runtime, minor, row, internals);
		out->tried = !err;
	}
	out->process.layout = internals->layout;
	return err ?: py_walk__resolve(pid, out->runtime, internals, out->walk);
}

/* ---- all together ---- */

static int python__describe(const struct process *process, struct python *out, const struct elf *elf)
{
	struct elf_symbol runtime, gen_type, unicode_type, cell_type, code_type;
	struct py_internals internals;
	uint64_t first;
	int minor, err;

	/*
	 * The lowest mapping begins at file offset 0 in all but odd files, and a load bias is the
	 * same in all segments.
	 */
	if (elf__symbol(elf, "_PyRuntime", &runtime) || elf__symbol(elf, "PyGen_Type", &gen_type) ||
	    elf__symbol(elf, "PyUnicode_Type", &unicode_type) || elf__symbol(elf, "PyCode_Type", &code_type) ||
	    elf__symbol(elf, "PyCell_Type", &cell_type) || elf__vaddr(elf, 0, &first))
		return -ENOEXEC;
	out->bias = out->file->base - first;
	snprintf(out->build_id, sizeof(out->build_id), "%s", elf__build_id(elf));
	out->runtime = out->bias + runtime.vaddr;
	out->process.gen_type = out->bias + gen_type.vaddr;
	out->process.code_type = out->bias + code_type.vaddr;
	out->process.cell_type = out->bias + cell_type.vaddr;

	minor = python__version(out, elf, process->pid);
	err = python__find_layout(out, process->pid, minor, &internals);
	if (err)
		return err;
	python__find_functions(out, elf, gen_type.vaddr, code_type.vaddr);
	python__find_tstate(out, elf, process);
	err = py_check__process(&(struct py_check){
		.process = process,
		.python = out,
		.elf = elf,
		.internals = &internals,
		.unicode_type = out->bias + unicode_type.vaddr,
	});
	if (!err)
		python__find_threads(out, process, elf, &internals);
	return err;
}

/* Of a Python that cannot be read the version alone is known. */
static void python__forget(struct python *python)
{
	char version[sizeof(python->version)];

	memcpy(version, python->version, sizeof(version));
	memset(python, 0, sizeof(*python));
	memcpy(python->version, version, sizeof(version));
}

int python__find(const struct process *process, struct python *out, struct elf **elf)
{
	struct elf *opened = NULL;
	const char *other;
	int err;

	memset(out, 0, sizeof(*out));
	if (elf)
		*elf = NULL;
	err = process__find_python(process, &out->file, &opened);
	if (err) {
		out->file = NULL;
		other = other_python(process);
		snprintf(out->version, sizeof(out->version), "%s", other ?: "");
		return other ? -EOPNOTSUPP : err;
	}
	err = python__describe(process, out, opened);
	if (err && deputy__gave_up(process->pid))
		err = -ETIMEDOUT;
	else if (!err && !process__alive(process)) /* what was read may be another process's, with the same pid */
		err = -ESRCH;
	if (err)
		python__forget(out);
	if (elf && !err)
		*elf = opened;
	else
		elf__free(opened);
	return err;
}

bool python__is_unreadable(int err)
{
	return err == -EOPNOTSUPP || err == -ENOTSUP || err == -ELIBACC;
}

bool python__is_dispensable(int err, bool has_framework, const char *version)
{
	return python__is_unreadable(err) && (has_framework || isdigit((unsigned char)version[0]));
}

const char *python__explain(int err, pid_t pid, const char *comm, const char *version, char why[PYTHON_WHY_BYTES])
{
	switch (err) {
	case -ENOENT:
		snprintf(why, PYTHON_WHY_BYTES, "process %d (%s) is not a Python program", pid, comm);
		return "give the PID of the Python process itself; stepflame ps lists them";
	case -ELIBACC:
		snprintf(why, PYTHON_WHY_BYTES, "may not read the program or the libpython of process %d", pid);
		return "its file system refuses (FUSE of another user, NFS with root_squash): mount it with "
		       "allow_other or no_root_squash, or install Python on a local disk";
	case -ENOTSUP: /* EOPNOTSUPP has the same number */
		if (version[0] && !isdigit((unsigned char)version[0])) {
			snprintf(why, PYTHON_WHY_BYTES, "process %d runs %s, which is not supported", pid, version);
			return "run the job with CPython 3.8 to 3.15";
		}
		snprintf(why, PYTHON_WHY_BYTES,
			 "process %d runs Python %s, which is not supported or not laid out as expected", pid,
			 version[0] ? version : "(unknown version)");
		return "CPython 3.8 to 3.15 is supported";
	}
	return process__explain(err, pid, why, PYTHON_WHY_BYTES);
}
