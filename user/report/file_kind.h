/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Groups files whose paths differ only in a generated part, such as those that hold a worker's
 * tensors, into kinds.
 */
#ifndef STEPFLAME_USER_REPORT_FILE_KIND_H
#define STEPFLAME_USER_REPORT_FILE_KIND_H

/*
 * Sets *kind to the path with stars for the generated parts ("/dev/shm/torch_*"), malloc'ed; NULL:
 * no part of the path is generated. 0 or -ENOMEM.
 */
int file_kind__of(const char *path, char **kind);

#endif
