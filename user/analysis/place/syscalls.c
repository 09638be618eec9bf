// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/analysis/place/syscalls.h"

#include <stddef.h>

static const char *const names[] = {
#include "syscall_names.h" /* generated from <sys/syscall.h> */
};

const char *syscall__name(uint32_t number)
{
	return number < sizeof(names) / sizeof(*names) ? names[number] : NULL;
}
