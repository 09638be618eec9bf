/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The bytes of a regular file, mapped for reading. Whoever may write to the file may cut it while it
 * is mapped: then the bytes from there on become zeros, instead of a SIGBUS, and the image says so.
 * One thread makes, reads and frees images.
 */
#ifndef STEPFLAME_USER_ELF_ELF_IMAGE_H
#define STEPFLAME_USER_ELF_ELF_IMAGE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct elf_image {
	const uint8_t *bytes; /* NULL: not mapped */
	size_t size;
	int fd;                    /* open; owned */
	struct stat stat;          /* of the file when it was mapped */
	volatile sig_atomic_t cut; /* the file lost bytes that somebody read */
	struct elf_image *next;
};

/*
 * Maps the file of a descriptor, which it takes over, on failure too. *image must stay where it is
 * until elf_image__release. 0; -ENOEXEC: no regular file, or too short for an ELF; -EFBIG: larger
 * than any library, or mostly holes, which cost nothing to make and much to read; or -errno.
 */
int elf_image__map(struct elf_image *image, int fd);
/* Unmaps, and closes the descriptor. Accepts an image whose elf_image__map failed. */
void elf_image__release(struct elf_image *image);

/* Has the file's content changed since it was mapped, as far as its size and times say? */
bool elf_image__changed(const struct elf_image *image);

#endif
