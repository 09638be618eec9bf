/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Prints one row of user/runtime/python/pylayout.inc. Compiled against the headers of one CPython version, its internal ones
 * included, by generate.sh; needs no interpreter. Every number comes from the compiler: offsetof, sizeof, a constant of
 * the headers, or, for bit fields, the bits that are set in memory once the field has been written.
 */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <frameobject.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#if PY_VERSION_HEX >= 0x03090000
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>
#else
#include <internal/pycore_pystate.h>
#endif
#if PY_VERSION_HEX >= 0x030b0000
#include <internal/pycore_frame.h>
#endif
#if PY_VERSION_HEX >= 0x030e0000
#include <internal/pycore_genobject.h>
#include <internal/pycore_interpframe.h>
#include <internal/pycore_stackref.h>
#endif

static void put(const char *field, long value)
{
	printf("\t\t.%s = %ld,\n", field, value);
}

/* Sets every bit of one bit field of an otherwise zero str, and sees which bits of the state word that are. */
#define STATE_BITS(field)                                                                   \
	({                                                                                  \
		PyASCIIObject str;                                                          \
		uint32_t word;                                                              \
		memset(&str, 0, sizeof(str));                                               \
		str.state.field = ~0;                                                       \
		memcpy(&word, (char *)&str + offsetof(PyASCIIObject, state), sizeof(word)); \
		word;                                                                       \
	})

static void put_generator(void)
{
#if PY_VERSION_HEX >= 0x030b0000
	put("gen_frame", offsetof(PyGenObject, gi_iframe));
	put("gen_embedded", 1);
	put("state_in_gen", 1);
	put("state_off", offsetof(PyGenObject, gi_frame_state));
	put("state_bytes", sizeof(((PyGenObject *)0)->gi_frame_state));
	put("state_created", FRAME_CREATED);
#else
	put("gen_frame", offsetof(PyGenObject, gi_frame));
#if PY_VERSION_HEX >= 0x030a0000
	put("state_off", offsetof(PyFrameObject, f_state));
	put("state_bytes", sizeof(((PyFrameObject *)0)->f_state));
	put("state_created", FRAME_CREATED);
#else
	/* 3.8 and 3.9 have no state: a frame that has not begun has executed no instruction, index -1. */
	put("state_off", offsetof(PyFrameObject, f_lasti));
	put("state_bytes", sizeof(((PyFrameObject *)0)->f_lasti));
	put("state_created", -1);
#endif
#endif
}

static void put_frame(void)
{
#if PY_VERSION_HEX >= 0x030d0000
	put("frame_code", offsetof(_PyInterpreterFrame, f_executable));
#elif PY_VERSION_HEX >= 0x030b0000
	put("frame_code", offsetof(_PyInterpreterFrame, f_code));
#endif
#if PY_VERSION_HEX >= 0x030b0000
	put("frame_previous", offsetof(_PyInterpreterFrame, previous));
	put("frame_locals", offsetof(_PyInterpreterFrame, localsplus));
	put("frame_owner", offsetof(_PyInterpreterFrame, owner));
#else
	put("frame_code", offsetof(PyFrameObject, f_code));
	put("frame_previous", offsetof(PyFrameObject, f_back));
	put("frame_locals", offsetof(PyFrameObject, f_localsplus));
#endif
	/* 3.14 never pushes a frame with its own FRAME_OWNED_BY_CSTACK: the frame of an entry from C is the interpreter's. */
#if PY_VERSION_HEX >= 0x030e0000
	put("frame_owner_c", FRAME_OWNED_BY_INTERPRETER);
	put("ref_mask", Py_TAG_BITS);
#elif PY_VERSION_HEX >= 0x030c0000
	put("frame_owner_c", FRAME_OWNED_BY_CSTACK);
#else
	put("frame_owner_c", -1);
#endif
#if PY_VERSION_HEX >= 0x030d0000
	put("frame_instr", offsetof(_PyInterpreterFrame, instr_ptr));
#elif PY_VERSION_HEX >= 0x030b0000
	put("frame_instr", offsetof(_PyInterpreterFrame, prev_instr));
#else
	put("frame_instr", offsetof(PyFrameObject, f_lasti));
	/* f_lasti became an index in 3.10, which no header tells (CPython Python/ceval.c, INSTR_OFFSET) */
	put("instr_bytes", PY_VERSION_HEX >= 0x030a0000 ? sizeof(_Py_CODEUNIT) : 1);
#endif
}

static void put_objects(void)
{
	uint32_t kind = STATE_BITS(kind);

	put("object_type", offsetof(PyObject, ob_type));
	put("code_filename", offsetof(PyCodeObject, co_filename));
	put("code_name", offsetof(PyCodeObject, co_name));
	put("code_flags", offsetof(PyCodeObject, co_flags));
#if PY_VERSION_HEX >= 0x030b0000
	put("code_qualname", offsetof(PyCodeObject, co_qualname));
#endif
	put("code_firstlineno", offsetof(PyCodeObject, co_firstlineno));
#if PY_VERSION_HEX >= 0x030a0000
	put("code_linetable", offsetof(PyCodeObject, co_linetable));
#else
	put("code_linetable", offsetof(PyCodeObject, co_lnotab));
#endif
#if PY_VERSION_HEX >= 0x030b0000
	put("code_instructions", offsetof(PyCodeObject, co_code_adaptive));
#endif
#if defined(Py_GIL_DISABLED) && PY_VERSION_HEX >= 0x030e0000
	put("code_tlbc", offsetof(PyCodeObject, co_tlbc));
	put("frame_tlbc", offsetof(_PyInterpreterFrame, tlbc_index));
	_Static_assert(offsetof(_PyCodeArray, size) == 0 && offsetof(_PyCodeArray, entries) == 8, "as bpf/pyframe.h has it");
#endif
	put("str_length", offsetof(PyASCIIObject, length));
	put("str_state", offsetof(PyASCIIObject, state));
	put("str_kind_shift", __builtin_ctz(kind));
	put("str_kind_bits", __builtin_popcount(kind));
	put("str_compact_shift", __builtin_ctz(STATE_BITS(compact)));
	put("str_ascii_shift", __builtin_ctz(STATE_BITS(ascii)));
	put("str_ascii_data", sizeof(PyASCIIObject));
	put("str_compact_data", sizeof(PyCompactUnicodeObject));
	put("bytes_length", offsetof(PyBytesObject, ob_base.ob_size));
	put("bytes_data", offsetof(PyBytesObject, ob_sval));
	put("type_name", offsetof(PyTypeObject, tp_name));
	put("type_methods", offsetof(PyTypeObject, tp_methods));
	put("type_iternext", offsetof(PyTypeObject, tp_iternext));
}

static void put_thread(void)
{
#if PY_VERSION_HEX >= 0x030d0000
	put("tstate_frame", offsetof(PyThreadState, current_frame));
#elif PY_VERSION_HEX >= 0x030b0000
	put("tstate_frame", offsetof(PyThreadState, cframe));
	put("tstate_cframe", 1);
	put("cframe_current", offsetof(_PyCFrame, current_frame));
#else
	put("tstate_frame", offsetof(PyThreadState, frame));
#endif
#if PY_VERSION_HEX < 0x030c0000
	put("runtime_tstate", offsetof(_PyRuntimeState, gilstate.tstate_current));
#endif
}

/* In the order of enum py_walk_field (user/runtime/python/pylayout.h). */
static void put_internals(void)
{
#if PY_VERSION_HEX >= 0x030b0000
	long threads = offsetof(PyInterpreterState, threads.head);
	long native = offsetof(PyThreadState, native_thread_id);
#else
	long threads = offsetof(PyInterpreterState, tstate_head);
	long native = 0;
#endif
#if PY_VERSION_HEX >= 0x030c0000
	long gil = offsetof(PyInterpreterState, ceval.gil);
	long modules = offsetof(PyInterpreterState, imports.modules);
#else
	long gil = offsetof(_PyRuntimeState, ceval.gil);
	long modules = offsetof(PyInterpreterState, modules);
#endif
#if PY_VERSION_HEX >= 0x030f0000
	long key = 0; /* the thread-local _Py_tss_gilstate instead */
#elif PY_VERSION_HEX >= 0x030c0000
	long key = offsetof(_PyRuntimeState, autoTSSkey) + offsetof(Py_tss_t, _key);
#else
	long key = offsetof(_PyRuntimeState, gilstate.autoTSSkey) + offsetof(Py_tss_t, _key);
#endif

	printf("\t.walk = {%zu, %zu, %ld, %zu, %zu, %zu, %ld, %ld, %ld},\n", offsetof(_PyRuntimeState, interpreters.head),
	       offsetof(PyInterpreterState, next), threads, offsetof(PyThreadState, next),
	       offsetof(PyThreadState, interp), offsetof(PyThreadState, thread_id), native, gil, modules);
	if (key)
		printf("\t.tss_key = %ld,\n", key);
	printf("\t.gil_bytes = %zu,\n\t.gil_holder = %zu,\n\t.gil_locked = %zu,\n", sizeof(struct _gil_runtime_state),
	       offsetof(struct _gil_runtime_state, last_holder), offsetof(struct _gil_runtime_state, locked));
#if PY_VERSION_HEX >= 0x030b0000
	printf("\t.recursion_limit = %zu,\n", offsetof(PyInterpreterState, ceval.recursion_limit));
#endif
}

#if PY_VERSION_HEX >= 0x030d0000
#define AT(field)          offsetof(_PyRuntimeState, debug_offsets.field)
#define PAIR(field, value) printf("\t\t{%zu, %zu}, /* " #field " */\n", AT(field), (size_t)(value))

static void put_debug(void)
{
	printf("\t.walk_at = {%zu, %zu, %zu, %zu, %zu, %zu, %zu, %zu, %zu},\n", AT(runtime_state.interpreters_head),
	       AT(interpreter_state.next), AT(interpreter_state.threads_head), AT(thread_state.next),
	       AT(thread_state.interp), AT(thread_state.thread_id), AT(thread_state.native_thread_id),
	       AT(interpreter_state.ceval_gil), AT(interpreter_state.imports_modules));
	printf("\t.debug_version_at = %zu,\n\t.debug_free_threaded_at = %zu,\n", AT(version), AT(free_threaded));
	printf("\t.debug = {\n");
	PAIR(thread_state.current_frame, offsetof(PyThreadState, current_frame));
	PAIR(interpreter_frame.previous, offsetof(_PyInterpreterFrame, previous));
	PAIR(interpreter_frame.executable, offsetof(_PyInterpreterFrame, f_executable));
	PAIR(interpreter_frame.instr_ptr, offsetof(_PyInterpreterFrame, instr_ptr));
	PAIR(interpreter_frame.localsplus, offsetof(_PyInterpreterFrame, localsplus));
	PAIR(interpreter_frame.owner, offsetof(_PyInterpreterFrame, owner));
	PAIR(code_object.filename, offsetof(PyCodeObject, co_filename));
	PAIR(code_object.name, offsetof(PyCodeObject, co_name));
	PAIR(code_object.qualname, offsetof(PyCodeObject, co_qualname));
	PAIR(code_object.firstlineno, offsetof(PyCodeObject, co_firstlineno));
	PAIR(code_object.linetable, offsetof(PyCodeObject, co_linetable));
	PAIR(code_object.co_code_adaptive, offsetof(PyCodeObject, co_code_adaptive));
	PAIR(pyobject.ob_type, offsetof(PyObject, ob_type));
	PAIR(type_object.tp_name, offsetof(PyTypeObject, tp_name));
	PAIR(bytes_object.ob_size, offsetof(PyBytesObject, ob_base.ob_size));
	PAIR(bytes_object.ob_sval, offsetof(PyBytesObject, ob_sval));
	PAIR(unicode_object.state, offsetof(PyASCIIObject, state));
	PAIR(unicode_object.length, offsetof(PyASCIIObject, length));
	PAIR(unicode_object.asciiobject_size, sizeof(PyASCIIObject));
#if PY_VERSION_HEX >= 0x030e0000
#ifdef Py_GIL_DISABLED
	PAIR(interpreter_frame.tlbc_index, offsetof(_PyInterpreterFrame, tlbc_index));
	PAIR(code_object.co_tlbc, offsetof(PyCodeObject, co_tlbc));
#endif
	PAIR(gen_object.gi_iframe, offsetof(PyGenObject, gi_iframe));
	PAIR(gen_object.gi_frame_state, offsetof(PyGenObject, gi_frame_state));
#endif
	printf("\t},\n");
}
#else
static void put_debug(void)
{
}
#endif

int main(void)
{
	printf("{\n\t.layout = {\n");
	put("minor", PY_MINOR_VERSION);
	put_generator();
	put_frame();
	put_objects();
	put_thread();
	printf("\t},\n");
	put_internals();
	put_debug();
	printf("},\n");
	return 0;
}
