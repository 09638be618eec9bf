/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The functions of CUPTI that the double does not have: who is linked with libcupti finds each, and is refused. */
#include <cupti_result.h>

CUptiResult cupti_stub(void);

CUptiResult cupti_stub(void)
{
	return CUPTI_ERROR_NOT_SUPPORTED;
}

/* Weak: one that is there is taken instead. */
#define STUB(name) __asm__(".weak " #name "\n.type " #name ", @function\n.set " #name ", cupti_stub");
#include "cupti_functions.h"
