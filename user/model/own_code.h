/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which functions are the user's own: those that a place names. Not the standard library's, not
 * those of installed packages, and not what torch.compile wrote.
 */
#ifndef STEPFLAME_USER_MODEL_OWN_CODE_H
#define STEPFLAME_USER_MODEL_OWN_CODE_H

#include "user/lib/names.h"
#include "user/model/stacks.h"

/*
 * Sets is_own and is_standard of all functions, from the paths of their files and from what calls them:
 *
 * - a folder that holds torch is one of packages (pip install --target), unless the program itself
 *   lies in it;
 * - so is a package whose metadata say that it was installed where it lies (REC_INSTALLED);
 * - of a frozen program (PyInstaller), whose files have no folders, the file in which it was entered
 *   is the user's own;
 * - if a job runs nothing of the user's own, the package in which it was entered is the user's own
 *   (`python -m PACKAGE`, a command that was installed with it).
 */
void own_code__find(struct stacks *stacks, const struct names *names);

#endif
