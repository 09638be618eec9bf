// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/elf/elf_image.h"

#include <elf.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE      4096UL
#define FILE_MAX  (16ULL << 30)
#define HOLES_MAX (64LL << 20) /* linkers and copies leave holes of some MB */

static struct elf_image *images;  /* all that are mapped */
static struct sigaction previous; /* the action for SIGBUS that is not ours */

/* Replaces the lost rest of an image by zeros. A SIGBUS elsewhere meets the action before ours. */
static void survive_cut(int signal, siginfo_t *info, void *context)
{
	uintptr_t at = (uintptr_t)info->si_addr & -PAGE;

	for (struct elf_image *image = images; image; image = image->next) {
		uintptr_t start = (uintptr_t)image->bytes;

		if (at < start || at - start >= image->size)
			continue;
		if (mmap((void *)at, start + image->size - at, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
			 0) == MAP_FAILED)
			break;
		image->cut = 1;
		return;
	}
	sigaction(signal, &previous, NULL);
	(void)context;
}

/* For each image anew: a screen sets an action of its own while it is shown. */
static void watch_faults(void)
{
	struct sigaction action = {.sa_sigaction = survive_cut, .sa_flags = SA_SIGINFO}, now;

	sigaction(SIGBUS, NULL, &now);
	if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == survive_cut)
		return;
	previous = now;
	sigaction(SIGBUS, &action, NULL);
}

/* A file system that knows no holes has none. */
static bool is_sparse(int fd, off_t size)
{
	off_t holes = 0, data;

	for (off_t hole = lseek(fd, 0, SEEK_HOLE); hole >= 0 && hole < size; hole = lseek(fd, data, SEEK_HOLE)) {
		data = lseek(fd, hole, SEEK_DATA);
		if (data < 0)
			data = size;
		holes += data - hole;
		if (holes > HOLES_MAX || data == size)
			break;
	}
	return holes > HOLES_MAX;
}

int elf_image__map(struct elf_image *image, int fd)
{
	uint8_t *map;

	*image = (struct elf_image){.fd = fd};
	if (fstat(fd, &image->stat))
		return -errno;
	if (!S_ISREG(image->stat.st_mode) || image->stat.st_size < (off_t)sizeof(Elf64_Ehdr))
		return -ENOEXEC;
	image->size = image->stat.st_size;
	if (image->size > FILE_MAX || is_sparse(fd, image->stat.st_size))
		return -EFBIG;
	watch_faults();
	/*
	 * A page of zeros behind it ends every text, even if the file's own end is overwritten
	 * later. Not MAP_PRIVATE: the kernel would search the file in a private mapping for each of our
	 * 12,000 uprobes.
	 */
	map = mmap(NULL, image->size + PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		return -errno;
	image->bytes = map;
	if (mmap(map, image->size, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		return -errno;
	image->next = images;
	images = image;
	return 0;
}

void elf_image__release(struct elf_image *image)
{
	for (struct elf_image **at = &images; *at; at = &(*at)->next)
		if (*at == image) {
			*at = image->next;
			break;
		}
	if (image->bytes)
		munmap((void *)image->bytes, image->size + PAGE);
	close(image->fd);
}

bool elf_image__changed(const struct elf_image *image)
{
	const struct stat *was = &image->stat;
	struct stat now;

	return image->cut || fstat(image->fd, &now) || now.st_size != was->st_size ||
	       now.st_mtim.tv_sec != was->st_mtim.tv_sec || now.st_mtim.tv_nsec != was->st_mtim.tv_nsec;
}
