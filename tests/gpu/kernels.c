/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "kernels.h"

/* Nobody calls them: their addresses are what counts. */
#define X(name)         \
	void name(void) \
	{               \
	}
KERNELS(X)
#undef X

void kernels__register(kernels_register register_function)
{
#define X(name) register_function(0, (const char *)name, (char *)#name, #name, -1, 0, 0, 0, 0, 0);
	KERNELS(X)
#undef X
}
