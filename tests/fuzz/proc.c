// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What the kernel says of a process, of which the process chooses names and paths, and short files: versions, what a
 * process has used, cgroups and where they are mounted.
 * The first byte chooses the file of /proc that the rest is; the others are as usual.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>

#include "tests/fuzz/fuzz.h"
#include "user/proc/cgroup.h"
#include "user/proc/environ.h"
#include "user/proc/far_files.h"
#include "user/proc/proc.h"
#include "user/proc/proc_usage.h"
#include "user/proc/process.h"
#include "user/proc/task.h"
#include "user/runtime/cuda/cuda.h"

static const struct {
	const char *name, *usual;
} files[] = {
	{"stat", "1 (python) S 1 1 1 0 -1 4194560 1 1 1 1 7 8 0 0 20 0 3 0 99 1 1 1 1 1 1 1 0 0 0 0 0 0 17 1 0 0\n"},
	{"status", "Name:\tpython\nTgid:\t1\nTracerPid:\t0\nNSpid:\t1\nSigPnd:\t0\nSeccomp:\t0\n"},
	{"cmdline", "python\0train.py"},
	{"maps", "1000-2000 r-xp 00000000 08:01 7 /usr/lib/libtorch_cpu.so\n"},
	{"environ", "RANK=1"},
	{"cgroup", "0::/system.slice/docker-12ab.scope\n"},
	{"syscall", "202 0x1 0x2 0x3 0x4 0x5 0x6 0x7 0x8\n"},
	{"schedstat", "1 2 3\n"},
};
#define FILE_CNT (sizeof(files) / sizeof(*files))

static const uint8_t *input;
static size_t input_bytes, chosen = FILE_CNT; /* FILE_CNT: none, no input is being read */

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);

int __wrap_open64(const char *path, int flags, ...)
{
	const char *slash = strrchr(path, '/');
	char unused[32];
	va_list ap;
	int mode;

	va_start(ap, flags);
	mode = flags & O_CREAT ? va_arg(ap, int) : 0;
	va_end(ap);
	if (chosen == FILE_CNT || strncmp(path, "/proc/", 6) || !strncmp(path, "/proc/self", 10))
		return __real_open64(path, flags, mode);
	for (size_t i = 0; i < FILE_CNT; i++)
		if (!strcmp(slash + 1, files[i].name))
			return i == chosen ? fuzz__file(input, input_bytes, unused)
					   : fuzz__file((const void *)files[i].usual, strlen(files[i].usual), unused);
	errno = ENOENT;
	return -1;
}

static int on_mapping(const struct mapping *map, void *ctx)
{
	*(size_t *)ctx += strlen(map->name);
	return 0;
}

static void read_process(void)
{
	struct proc_status status;
	struct proc_syscall syscall;
	struct process process;
	struct task task;
	char value[16];
	size_t length = 0;

	if (!process__read(1, &process)) {
		FUZZ_CHECK(memchr(process.comm, 0, sizeof(process.comm)) &&
			   memchr(process.command, 0, sizeof(process.command)));
		process__file(&process, "libtorch_cpu.so");
		process__age_ns(&process);
		process__release(&process);
	}
	if (!process__environ(1, "RANK", value, sizeof(value)))
		FUZZ_CHECK(strlen(value) < sizeof(value));
	if (!process__cgroup(1, value, sizeof(value)))
		FUZZ_CHECK(strlen(value) < sizeof(value));
	process__each_mapping(1, on_mapping, &length);
	proc__status(1, 0, &status);
	proc__syscall(1, 0, &syscall);
	if (!task__read(1, 1, &task)) {
		task__state(&task);
		task__syscall(&task);
	}
}

static void read_files(const char *path)
{
	FILE *file = fopen(path, "r");
	char version[32];

	nvidia__version(file, version, sizeof(version));
	rewind(file);
	nvidia__restricts_profiling(file);
	fclose(file);
}

static void parse_usage(const uint8_t *data, size_t size)
{
	static const char *const keys[] = {"VmSwap", "MemAvailable", "read_bytes", "inactive_file"};
	uint64_t first = 1, second = 1, value;
	char *text = malloc(size + 1);

	memcpy(text, data, size);
	text[size] = 0;
	if (proc_usage__parse_statm(text, 4096, &first, &second))
		FUZZ_CHECK(first == 1 && second == 1);
	first = second = 1;
	if (proc_usage__parse_net(text, &first, &second))
		FUZZ_CHECK(first == 1 && second == 1);
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		value = 1;
		if (proc__parse_value(text, keys[i], &value))
			FUZZ_CHECK(value == 1);
	}
	first = second = 1;
	if (proc_usage__parse_cpu(text, &first, &second))
		FUZZ_CHECK(first == 1 && second == 1);
	FUZZ_CHECK(cgroup__count_processors(text) <= 1u << 20);
	free(text);
}

/* The text as the one file, as the other, and as both. */
static void find_cgroups(const uint8_t *data, size_t size)
{
	static const char cgroups[] = "4:memory:/docker/a b\n0::/x\n";
	static const char mounts[] =
		"4 3 0:9 /docker /m\\040 rw - cgroup cgroup rw,memory\n4 3 0:9 / /u rw - cgroup2 cgroup2 rw\n";
	char *text = malloc(size + 1), far[FAR_FILES_BYTES];
	struct cgroup_folder folder;

	memcpy(text, data, size);
	text[size] = 0;
	for (int i = 0; i < 3; i++)
		for (int k = 0; k < 2; k++)
			if (!cgroup_folder__find(i == 1 ? cgroups : text, i == 0 ? mounts : text, k ? "cpu" : "memory",
						 &folder))
				FUZZ_CHECK(strlen(folder.path) < sizeof(folder.path) &&
					   strlen(folder.path) >= folder.mount_bytes && folder.path[0] == '/');
	for (int i = 0; i < 3; i++)
		if (!far_files__of_path(i == 1 ? "/m x/y" : text, i == 0 ? mounts : text, far))
			FUZZ_CHECK(memchr(far, 0, sizeof(far)) && far[0] == '/');
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[32];
	int fd;

	if (!size)
		return 0;
	input = data + 1;
	input_bytes = size - 1;
	if (data[0] % (FILE_CNT + 1) < FILE_CNT) {
		chosen = data[0] % (FILE_CNT + 1);
		read_process();
		chosen = FILE_CNT;
		return 0;
	}
	fd = fuzz__file(input, input_bytes, path);
	read_files(path);
	close(fd);
	parse_usage(input, input_bytes);
	find_cgroups(input, input_bytes);
	return 0;
}
