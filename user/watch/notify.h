/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Tells the service manager what sd_notify(3) tells it. */
#ifndef STEPFLAME_USER_WATCH_NOTIFY_H
#define STEPFLAME_USER_WATCH_NOTIFY_H

#include <stdint.h>

/* state: "READY=1", for which it waits until the manager has it, or another. Does nothing where no manager listens. */
void notify__service(const char *state);
/* Says that the loop goes on, as often as the manager wants to hear it (WatchdogSec=), if it does. now_ns: CLOCK_MONOTONIC. */
void notify__alive(uint64_t now_ns);

#endif
