/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef STEPFLAME_USER_ANALYSIS_PLACE_SYSCALLS_H
#define STEPFLAME_USER_ANALYSIS_PLACE_SYSCALLS_H

#include <stdint.h>

/* "read"; NULL for a number that the build's headers did not define. */
const char *syscall__name(uint32_t number);

#endif
