/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "tests/gpu/kernels.h"

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

int kernels__launch(kernels_launch launch, unsigned long cnt, void *stream)
{
#define X(name) (const void *)name,
	static const void *const kernels[] = {KERNELS(X)};
#undef X
	const unsigned long one = 1ul << 32 | 1;
	unsigned long ns = 0;
	void *args[] = {&ns, 0, 0};
	int err = 0;

	for (unsigned long i = 0; i < cnt && !err; i++)
		err = launch(kernels[i % (sizeof(kernels) / sizeof(*kernels))], one, 1, one, 1, args, 0, stream);
	return err;
}
