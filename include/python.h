/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What BPF needs to read a CPython process: the layout offsets of its version, and the location of
 * its thread state. user/runtime/python/python.c fills these structs, bpf/python.h reads them.
 * Offsets are bytes from the object's start.
 */
#ifndef STEPFLAME_INCLUDE_PYTHON_H
#define STEPFLAME_INCLUDE_PYTHON_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

/* PyObject {ob_refcnt, ob_type}. */
#define OBJECT_TYPE 8

/* One CPython minor version, or its free-threaded build. Source: the headers of that version, by tools/pylayout. */
struct py_layout {
	__u16 minor; /* 8 for 3.8 */

	/*
	 * ob_type, the last field of each object's head: OBJECT_TYPE, more in a free-threaded build,
	 * whose objects have all that follows later by as much
	 */
	__u16 object_type;

	/* generator: PyGenObject */
	__u16 gen_frame;    /* up to 3.10 a PyFrameObject *, from 3.11 the frame itself (gi_iframe) */
	__u16 gen_embedded; /* 1: the frame itself */
	/*
	 * State "not started yet": state_created, a signed integer of state_bytes at state_off of
	 * the generator (state_in_gen) or of its frame.
	 */
	__u16 state_in_gen;
	__u16 state_off;
	__u16 state_bytes; /* 1 or 4 */
	__s16 state_created;

	/* frame: PyFrameObject up to 3.10, _PyInterpreterFrame from 3.11 */
	__u16 frame_code;     /* f_code, f_executable */
	__u16 frame_previous; /* f_back, previous */
	__u16 frame_locals;   /* f_localsplus[0] */
	__u16 frame_owner;    /* 0: this version has no owner field */
	/*
	 * owner value of frames that are not Python functions (FRAME_OWNED_BY_CSTACK, in 3.14
	 * _INTERPRETER); -1: none
	 */
	__s16 frame_owner_c;
	/*
	 * The current instruction: from 3.11 a pointer into the code object (prev_instr,
	 * instr_ptr); earlier an int that counts units of instr_bytes (f_lasti; -1: not begun)
	 */
	__u16 frame_instr;
	__u16 instr_bytes;
	__u16 ref_mask; /* low bits to clear in a stack reference (3.14: frame_code and the locals); earlier 0 */
	/*
	 * Of free-threaded builds from 3.14 on, where each thread may have a copy of the bytecode to
	 * which frame_instr points: which one, an int; 0: that in the code object. In others 0.
	 */
	__u16 frame_tlbc;

	/* PyCodeObject */
	__u16 code_filename;
	__u16 code_name;
	__u16 code_qualname; /* 0 before 3.11 */
	__u16 code_firstlineno;
	__u16 code_linetable;    /* a bytes object: co_linetable, before 3.10 co_lnotab */
	__u16 code_instructions; /* co_code_adaptive; 0 before 3.11 */
	__u16 code_flags;        /* an int */
	__u16 code_tlbc;         /* co_tlbc: {s64 count, u64 address of each copy} of the bytecode, or 0 */

	/* str: PyASCIIObject, PyCompactUnicodeObject */
	__u16 str_length;
	__u16 str_state; /* 32-bit word with the bit fields below */
	__u16 str_kind_shift, str_kind_bits;
	__u16 str_compact_shift, str_ascii_shift;
	__u16 str_ascii_data;   /* sizeof(PyASCIIObject) */
	__u16 str_compact_data; /* sizeof(PyCompactUnicodeObject) */

	__u16 bytes_length; /* PyBytesObject: ob_size, ob_sval */
	__u16 bytes_data;

	/* PyTypeObject */
	__u16 type_name;    /* tp_name, char * */
	__u16 type_methods; /* tp_methods */
	/* tp_iternext; also the offset in PyHeapTypeObject that slotdefs lists for __next__ */
	__u16 type_iternext;

	/*
	 * The innermost frame of a PyThreadState: *(tstate + tstate_frame), or one more hop through
	 * the _PyCFrame (3.11, 3.12)
	 */
	__u16 tstate_frame;
	__u16 tstate_cframe;  /* 1: tstate_frame holds a _PyCFrame * */
	__u16 cframe_current; /* in the _PyCFrame */

	/*
	 * up to 3.11: offset in _PyRuntime of gilstate.tstate_current; 0 from 3.12, where it is
	 * thread-local
	 */
	__u16 runtime_tstate;
};

/*
 * By how many bytes the heads of objects, of which a type is one, are longer than those of builds
 * with a GIL. 0 also where the layout is not known.
 */
static inline __u32 py_layout__longer(const struct py_layout *layout)
{
	return layout->object_type > OBJECT_TYPE ? layout->object_type - OBJECT_TYPE : 0;
}

enum py_tstate_where {
	PY_TSTATE_UNKNOWN = 0,
	PY_TSTATE_GLOBAL, /* *(u64 *)address: the thread that holds the GIL */
	PY_TSTATE_TLS,    /* *(u64 *)(thread pointer + (s64)address) */
	/*
	 * *(u64 *)(dtv[module] + address); glibc keeps the address of the dtv, an array of 16-byte
	 * entries, at thread pointer + 8. dtv[-1] is the number of entries; an entry is -1 until
	 * the thread uses that module's variables.
	 */
	PY_TSTATE_DTV,
};

struct py_process {
	struct py_layout layout;
	__u32 tstate_where; /* enum py_tstate_where */
	__u32 tls_module;
	__u64 tstate_address;
	__u64 gen_type;  /* &PyGen_Type in the process */
	__u64 code_type; /* &PyCode_Type */
	__u64 cell_type; /* &PyCell_Type */
	/*
	 * Where a thread stores the state that PyGILState_Ensure returns, with or without the GIL:
	 * *(u64 *)(thread pointer + tss_offset), up to 3.14 the value of
	 * pthread_getspecific(gilstate.autoTSSkey), later the thread-local _Py_tss_gilstate, which
	 * lies below the thread pointer; 0: unknown
	 */
	__s32 tss_offset;
	__u32 gil_bytes; /* size of the main interpreter's struct _gil_runtime_state; 0: unknown */
	__u64 gil_address;
};

#endif
