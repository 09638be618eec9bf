// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A process that lies in wait for its readers. Does what its arguments say, in their order, then
 * says "ready" and waits. Also built as a library for a Python process: hide().
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096ul

static void check(int good, const char *what)
{
	if (!good)
		err(1, "%s", what);
}

static void *map(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	void *memory = mmap(at, bytes, protection, flags | (at ? MAP_FIXED : 0), fd, offset);

	check(memory != MAP_FAILED, "mmap");
	return memory;
}

/* From now on, whoever touches these pages waits until this process ends. */
static void silence(uint64_t address, size_t bytes)
{
	struct uffdio_register range = {.range = {address & -PAGE, (bytes + PAGE - 1) & -PAGE},
					.mode = UFFDIO_REGISTER_MODE_MISSING};
	struct uffdio_api api = {.api = UFFD_API};
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);

	check(fd >= 0 && !ioctl(fd, UFFDIO_API, &api), "userfaultfd");
	map((void *)range.range.start, range.range.len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(!ioctl(fd, UFFDIO_REGISTER, &range), "UFFDIO_REGISTER");
}

/* For a Python process, which then runs nothing more. */
void hide(uint64_t address, size_t bytes)
{
	silence(address, bytes);
	check(write(1, "ready\n", 6) == 6, "write");
	for (;;)
		syscall(SYS_pause);
}

static void *read_page(void *page)
{
	char byte;
	int fd = open("/proc/self/mem", O_RDONLY);

	pread(fd, &byte, 1, (off_t)page);
	return NULL;
}

static void *write_lock(void *unused)
{
	usleep(200000);
	map(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return unused;
}

/*
 * A read of a page that does not come, by way of /proc, keeps the lock for reading; somebody then
 * waits to write, and from then on all readers wait, too.
 */
static void hold_lock(void *page)
{
	pthread_t reader, writer;

	check(!pthread_create(&reader, NULL, read_page, page), "pthread_create");
	check(!pthread_create(&writer, NULL, write_lock, NULL), "pthread_create");
	usleep(400000);
	check(write(1, "ready\n", 6) == 6, "write");
	for (;;)
		pause();
}

/* For a process that has this as a library, and trains. */
void lock_memory(const char *path)
{
	int fd = open(path, O_RDONLY);

	check(fd >= 0, path);
	hold_lock(map(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0));
}

static void *wait_forever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

int main(int argc, char **argv)
{
	for (int i = 1; i + 1 < argc; i += 2) {
		const char *what = argv[i], *value = argv[i + 1];
		size_t cnt = strtoull(value, NULL, 10);
		pthread_t thread;

		if (!strcmp(what, "library")) { /* as the loader maps one */
			int fd = open(value, O_RDONLY);

			check(fd >= 0, value);
			map(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
			close(fd);
		} else if (!strcmp(what, "root")) { /* as a container's, with /proc */
			check(!unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
				      !mount(value, value, NULL, MS_BIND, NULL) && !chdir(value) &&
				      !mount("proc", "proc", "proc", 0, NULL) && !syscall(SYS_pivot_root, ".", ".") &&
				      !umount2(".", MNT_DETACH) && !chdir("/"),
			      value);
		} else if (!strcmp(what, "mappings")) { /* of the program as code, none beside the other */
			int fd = open("/proc/self/exe", O_RDONLY);
			char *area = map(NULL, 2 * cnt * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
					 -1, 0);

			check(fd >= 0, "/proc/self/exe");
			munmap(area, 2 * cnt * PAGE);
			for (size_t n = 0; n < cnt; n++)
				map(area + 2 * n * PAGE, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
		} else if (!strcmp(what, "files")) { /* that many, in this folder */
			for (size_t n = 0; n < cnt; n++) {
				char name[32];
				int fd;

				snprintf(name, sizeof(name), "file%zu", n);
				fd = open(name, O_RDWR | O_CREAT, 0700);
				check(fd >= 0 && !ftruncate(fd, PAGE), name);
				map(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
				close(fd);
			}
		} else if (!strcmp(what, "lock")) { /* of its memory; the last of the arguments */
			lock_memory(value);
		} else if (!strcmp(what, "threads")) {
			pthread_attr_t attr;

			pthread_attr_init(&attr);
			pthread_attr_setstacksize(&attr, 65536);
			for (size_t n = 0; n < cnt; n++)
				check(!pthread_create(&thread, &attr, wait_forever, NULL), "pthread_create");
		} else {
			errx(1, "what is %s?", what);
		}
	}
	puts("ready");
	fflush(stdout);
	wait_forever(NULL);
}
