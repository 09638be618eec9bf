/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Files that differ in a made-up part of their names alone, such as those that hold a worker's tensors, are of one kind. */
#ifndef STEPFLAME_USER_REPORT_FILE_KIND_H
#define STEPFLAME_USER_REPORT_FILE_KIND_H

/*
 * The kind of a file with that path: the path with stars for what is made up ("/dev/shm/torch_*"), malloc'ed; NULL: its name is its
 * own. 0 or -ENOMEM.
 */
int file_kind__of(const char *path, char **kind);

#endif
