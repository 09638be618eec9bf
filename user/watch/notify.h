/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Tells the service manager what sd_notify(3) tells it. */
#ifndef STEPFLAME_USER_WATCH_NOTIFY_H
#define STEPFLAME_USER_WATCH_NOTIFY_H

/* state: "READY=1". Does nothing where no manager listens. */
void notify__service(const char *state);

#endif
