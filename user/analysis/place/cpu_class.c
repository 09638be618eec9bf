// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/place/cpu_class.h"

#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* Prefixes of file names. */
static const char *const torch_libraries[] = {
	"libtorch", "libc10",   "libgomp", "libiomp", "libomp",    "libmkl", "libdnnl",
	"libcuda",  "libcudnn", "libjax_", "xla_",    "libcublas", "libcuf", "libcus",
	"libnvrtc", "libnccl",  "libgloo", "libtbb",  "_C.",
};

static bool begins_with_any(const char *text, const char *const *beginnings, size_t cnt)
{
	for (size_t i = 0; i < cnt; i++)
		if (!strncmp(text, beginnings[i], strlen(beginnings[i])))
			return true;
	return false;
}

/* For "symbol (library)": "library)"; "" if not known. */
static const char *library_of(const char *native)
{
	const char *paren = native ? strrchr(native, '(') : NULL;

	return paren ? paren + 1 : "";
}

/*
 * Matches "libpython3.11.so.1.0", "python3.11", "python3.13t", but no C module such as
 * "python_magic.cpython-311-x86_64-linux-gnu.so".
 */
static bool is_interpreter_library(const char *library)
{
	static const char *const shared[] = {"libpython"}, *const program[] = {"python"};

	return begins_with_any(library, shared, COUNT(shared)) ||
	       (begins_with_any(library, program, COUNT(program)) && !strstr(library, ".so"));
}

bool cpu_class__is_interpreter(const struct job *job, uint64_t native)
{
	return native && is_interpreter_library(library_of(job__name(job, native)));
}

enum cpu_class cpu_class__of(const struct job *job, const struct sample *sample, enum phase phase)
{
	const char *library = library_of(sample->native ? job__name(job, sample->native) : NULL);

	if (sample->kernel)
		return CPU_KERNEL;
	if (is_interpreter_library(library))
		return CPU_PYTHON;
	/*
	 * In these phases, libc and similar code works for an operator (with JAX, code that XLA
	 * generated has no library), or is negligible.
	 */
	switch (phase) {
	case PHASE_FORWARD:
	case PHASE_BACKWARD:
	case PHASE_OPTIMIZER:
	case PHASE_JIT:
	case PHASE_COMPILE:
	case PHASE_AWAIT:
	case PHASE_TRANSFER:
		return CPU_OP;
	default:
		break;
	}
	return begins_with_any(library, torch_libraries, COUNT(torch_libraries)) ? CPU_OP : CPU_NATIVE;
}
