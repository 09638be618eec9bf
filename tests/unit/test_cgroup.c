// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Limits of cgroups of both versions: trees of files that are made up, as kernels, containers and the hostile have them. */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "user/proc/cgroup.h"

#define MB  1000000ull
#define PID 7

static char root[PATH_MAX];
static struct cgroup_limits limits;

static int set_up(void **state)
{
	snprintf(root, sizeof(root), "/tmp/cgroupXXXXXX");
	return mkdtemp(root) == NULL;
}

static int tear_down(void **state)
{
	char command[PATH_MAX + 16];

	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command);
}

/* A file and the folders above it. */
static void put(const char *name, const char *text)
{
	char path[2 * PATH_MAX];
	FILE *file;

	snprintf(path, sizeof(path), "%s%s", root, name);
	for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = 0;
		mkdir(path, 0700);
		*slash = '/';
	}
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static int look(void)
{
	struct cgroup_look own = {.root = root};
	int err = cgroup_look__limits(&own, PID, &limits);

	cgroup_look__release(&own);
	return err;
}

#define MOUNTS_2                                                                                          \
	"24 1 0:22 / /proc rw - proc proc rw\n30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 " \
	"rw,nsdelegate\n"
#define MOUNTS_1                                                                      \
	"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"                  \
	"32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" \
	"34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"           \
	"35 31 0:32 / /sys/fs/cgroup/memory rw shared:9 master:1 - cgroup cgroup rw,memory\n"

static void version_2(void **state)
{
	put("/proc/self/mountinfo", MOUNTS_2);
	put("/proc/7/cgroup", "0::/kubepods.slice/pod1/job\n");
	put("/sys/fs/cgroup/kubepods.slice/pod1/memory.max", "8000000000\n");
	put("/sys/fs/cgroup/kubepods.slice/pod1/memory.current", "3000000000\n");
	put("/sys/fs/cgroup/kubepods.slice/pod1/memory.stat",
	    "anon 9\ninactive_file 400000000\nactive_file 600000000\n");
	put("/sys/fs/cgroup/kubepods.slice/pod1/job/memory.max", "max\n");
	put("/sys/fs/cgroup/kubepods.slice/pod1/job/memory.current", "2000000000\n");
	put("/sys/fs/cgroup/kubepods.slice/pod1/cpu.max", "250000 100000\n");
	put("/sys/fs/cgroup/kubepods.slice/pod1/job/cpu.max", "max 100000\n");
	put("/sys/fs/cgroup/cpuset.cpus.effective", "0-63\n");
	put("/sys/fs/cgroup/kubepods.slice/cpuset.cpus.effective", "0-3,8,10-11\n");
	assert_int_equal(look(), 0);
	assert_int_equal(limits.memory_bytes, 8000 * MB);
	assert_int_equal(limits.memory_left_bytes, 6000 * MB); /* without what the page cache has */
	assert_true(limits.cpus == 2.5);
	assert_int_equal(limits.processors, 7);

	/* a tighter one below, and one above that has less left */
	put("/sys/fs/cgroup/kubepods.slice/pod1/job/memory.max", "2500000000\n");
	put("/sys/fs/cgroup/kubepods.slice/pod1/job/cpu.max", "50000 100000\n");
	assert_int_equal(look(), 0);
	assert_int_equal(limits.memory_bytes, 2500 * MB);
	assert_int_equal(limits.memory_left_bytes, 500 * MB);
	assert_true(limits.cpus == 0.5);
	put("/sys/fs/cgroup/kubepods.slice/memory.max", "9000000000");
	put("/sys/fs/cgroup/kubepods.slice/memory.current", "9100000000");
	assert_int_equal(look(), 0);
	assert_int_equal(limits.memory_bytes, 9000 * MB);
	assert_int_equal(limits.memory_left_bytes, 0);
}

static void version_1(void **state)
{
	put("/proc/self/mountinfo", MOUNTS_1);
	put("/proc/7/cgroup", "9:name=systemd:/\n4:memory:/docker/ab\n3:cpuset:/docker/ab\n2:cpu,cpuacct:/docker/ab\n");
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "9000000000\n");
	put("/sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes", "4000000000\n");
	put("/sys/fs/cgroup/memory/docker/ab/memory.usage_in_bytes", "3000000000\n");
	put("/sys/fs/cgroup/memory/docker/ab/memory.stat",
	    "inactive_file 1\nactive_file 2\ntotal_inactive_file 700000000\ntotal_active_file 300000000\n");
	put("/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us", "-1\n");
	put("/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us", "100000\n");
	put("/sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_quota_us", "150000\n");
	put("/sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_period_us", "100000\n");
	put("/sys/fs/cgroup/cpuset/docker/ab/cpuset.effective_cpus", "2-3\n");
	put("/sys/fs/cgroup/cpuset/docker/ab/cpuset.cpus", "2-9\n");
	assert_int_equal(look(), 0);
	assert_int_equal(limits.memory_bytes, 4000 * MB);
	assert_int_equal(limits.memory_left_bytes, 2000 * MB);
	assert_true(limits.cpus == 1.5);
	assert_int_equal(limits.processors, 2);

	put("/sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes", "9223372036854771712\n");
	put("/sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "5000000000");
	put("/sys/fs/cgroup/memory/docker/memory.usage_in_bytes", "1000000000");
	put("/sys/fs/cgroup/memory/docker/memory.use_hierarchy", "0\n"); /* it does not count its children */
	assert_int_equal(look(), 0);
	assert_int_equal(limits.memory_bytes, 0);
	put("/sys/fs/cgroup/memory/docker/memory.use_hierarchy", "1\n");
	assert_int_equal(look(), 0);
	assert_int_equal(limits.memory_bytes, 5000 * MB);
}

/* In a container without a cgroup namespace its own cgroup is mounted, and /proc has the path on the host. */
static void container_of_version_1(void **state)
{
	put("/proc/self/mountinfo", "40 31 0:29 /docker/other /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
				    "41 31 0:29 /docker/a\\040b /m\\134x ro - cgroup cgroup rw,memory\n");
	put("/proc/7/cgroup", "4:memory:/docker/a b/job\n");
	put("/m\\x/memory.limit_in_bytes", "100");
	put("/m\\x/memory.usage_in_bytes", "10");
	put("/m\\x/job/memory.limit_in_bytes", "900");
	put("/m\\x/job/memory.usage_in_bytes", "5");
	assert_int_equal(look(), 0);
	assert_int_equal(limits.memory_bytes, 100);
	assert_int_equal(limits.memory_left_bytes, 90);
	put("/proc/7/cgroup", "4:memory:/docker/a bc\n"); /* another one, whose name begins so */
	assert_int_equal(look(), 0);
	assert_int_equal(limits.memory_bytes, 0);
}

/* Version 2 has what version 1 does not have. */
static void hybrid(void **state)
{
	put("/proc/self/mountinfo", MOUNTS_1 "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
	put("/proc/7/cgroup", "4:memory:/one\n0::/two\n");
	put("/sys/fs/cgroup/memory/one/memory.limit_in_bytes", "1000");
	put("/sys/fs/cgroup/memory/one/memory.usage_in_bytes", "400");
	put("/sys/fs/cgroup/unified/two/memory.max", "50"); /* not the memory's hierarchy */
	put("/sys/fs/cgroup/unified/two/memory.current", "10");
	put("/sys/fs/cgroup/unified/two/cpu.max", "100000 50000");
	assert_int_equal(look(), 0);
	assert_int_equal(limits.memory_bytes, 1000);
	assert_int_equal(limits.memory_left_bytes, 600);
	assert_true(limits.cpus == 2);
}

static void paths_do_not_lead_out(void **state)
{
	static const char *const wrong[] = {
		"0::/..", "0::/../x", "0::/a/../../x", "0::/a/..", "0::", "0:/x", "", "::::", "0::x"};

	put("/proc/self/mountinfo", MOUNTS_2);
	put("/sys/fs/x/memory.max", "50");
	put("/sys/fs/x/memory.current", "10");
	put("/sys/fs/cgroup/a/memory.max", "60");
	put("/sys/fs/cgroup/a/memory.current", "10");
	put("/sys/fs/memory.max", "70"); /* above the mount */
	put("/sys/fs/memory.current", "69");
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		put("/proc/7/cgroup", wrong[i]);
		assert_int_equal(look(), 0);
		assert_int_equal(limits.memory_bytes, 0);
	}
	put("/proc/7/cgroup", "0::/a/..b:c");
	assert_int_equal(look(), 0);
	assert_int_equal(limits.memory_bytes, 60);
}

static void numbers_may_be_anything(void **state)
{
	static const char *const values[] = {"", "x", "-1", "max", "99999999999999999999999", "0", "1e9", " 7", "\n"};
	char text[64];

	put("/proc/self/mountinfo", MOUNTS_2);
	put("/proc/7/cgroup", "0::/a\n");
	for (size_t i = 0; i < 9; i++)
		for (size_t k = 0; k < 9; k++) {
			put("/sys/fs/cgroup/a/memory.max", values[i]);
			put("/sys/fs/cgroup/a/memory.current", values[k]);
			snprintf(text, sizeof(text), "inactive_file %s\nactive_file %s\n", values[k], values[i]);
			put("/sys/fs/cgroup/a/memory.stat", text);
			snprintf(text, sizeof(text), "%s %s\n", values[i], values[k]);
			put("/sys/fs/cgroup/a/cpu.max", text);
			assert_int_equal(look(), 0);
			assert_true(limits.memory_left_bytes <= limits.memory_bytes);
			assert_true(limits.cpus >= 0);
		}
}

static void files_may_be_missing_or_long(void **state)
{
	struct cgroup_folder folder;
	char path[3 * CGROUP_FOLDER_BYTES];

	assert_int_equal(look(), -ESRCH);
	put("/proc/self/mountinfo",
	    MOUNTS_2 "\n\n1 2 3\n - cgroup\n1 2 3 4 5 6 - cgroup2\n1 2 3 / x 6 - cgroup2 a b\n");
	assert_int_equal(look(), -ESRCH);
	put("/proc/7/cgroup", "0::/gone\n");
	assert_int_equal(look(), 0);
	assert_true(!limits.memory_bytes && !limits.cpus && !limits.processors);
	memset(path, '/', sizeof(path));
	memcpy(path, "0::", 3);
	for (size_t bytes = CGROUP_FOLDER_BYTES - 32; bytes<sizeof(path); bytes += bytes> 4200 ? 1000 : 1) {
		path[bytes - 1] = 0;
		if (!cgroup_folder__find(path, MOUNTS_2, "memory", &folder))
			assert_true(strlen(folder.path) < CGROUP_FOLDER_BYTES);
		path[bytes - 1] = '/';
	}
	/* names of controllers without end */
	memset(path, 'x', sizeof(path));
	path[0] = '1';
	path[1] = ':';
	strcpy(path + sizeof(path) - 4, ":/a");
	assert_int_equal(cgroup_folder__find(path, MOUNTS_1, "memory", &folder), -ENOENT);
}

/* What is longer than is read says something else where it is cut. */
static void files_may_be_cut(void **state)
{
	size_t most = 1 << 21;
	char *text = malloc(most);
	size_t at = 0;

	put("/proc/self/mountinfo", MOUNTS_2);
	put("/proc/7/cgroup", "0::/a\n");
	put("/sys/fs/cgroup/a/cpuset.cpus.effective", "0-3\n");
	put("/sys/fs/cgroup/a/cpu.max", "50000 100000\n");
	assert_int_equal(look(), 0);
	assert_true(limits.processors == 4 && limits.cpus == 0.5);
	for (int i = 0; at < 20000; i += 2)
		at += sprintf(text + at, "%s%d", i ? "," : "", i);
	put("/sys/fs/cgroup/a/cpuset.cpus.effective", text);
	assert_int_equal(look(), 0);
	assert_int_equal(limits.processors, 0);
	/* a cgroup whose name is cut is another one */
	memset(text, 'x', 65536);
	strcpy(text + 65536 - 6, "\n0::/abcdef\n");
	put("/proc/7/cgroup", text);
	assert_int_not_equal(look(), 0);
	/* so is a controller */
	put("/proc/7/cgroup", "0::/a\n");
	memset(text, 'x', most);
	strcpy(text + most - 300, "\n" MOUNTS_2);
	put("/proc/self/mountinfo", text);
	assert_int_not_equal(look(), 0);
	free(text);
}

static void processors_are_counted(void **state)
{
	static const char *const wrong[] = {"",   "\n",  "-", "a", "0-", "-3", "3-1", "1,1", "2,0-1", "0-99999999999",
					    "0,", "0;1", ",1"};

	assert_int_equal(cgroup__count_processors("0\n"), 1);
	assert_int_equal(cgroup__count_processors("0-3,8"), 5);
	assert_int_equal(cgroup__count_processors("0-127,256-383\n"), 256);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_int_equal(cgroup__count_processors(wrong[i]), 0);
}

/* Of processes of one cgroup, its files are read once. */
static void one_look(void **state)
{
	struct cgroup_look own = {.root = root};

	put("/proc/self/mountinfo", MOUNTS_2);
	put("/proc/7/cgroup", "0::/a\n");
	put("/proc/8/cgroup", "0::/b\n");
	put("/sys/fs/cgroup/a/cpu.max", "1 1");
	assert_int_equal(cgroup_look__limits(&own, PID, &limits), 0);
	put("/sys/fs/cgroup/a/cpu.max", "2 1");
	assert_int_equal(cgroup_look__limits(&own, PID, &limits), 0);
	assert_true(limits.cpus == 1);
	assert_int_equal(cgroup_look__limits(&own, PID + 1, &limits), 0);
	assert_true(limits.cpus == 0);
	assert_int_equal(cgroup_look__limits(&own, PID + 2, &limits), -ESRCH);
	assert_int_equal(cgroup_look__limits(&own, PID, &limits), 0);
	assert_true(limits.cpus == 2);
	cgroup_look__release(&own);
}

static struct cgroup_quota quotas[CGROUP_QUOTAS_MAX];

static size_t find_quotas(void)
{
	struct cgroup_look own = {.root = root};
	size_t cnt = cgroup_look__quotas(&own, PID, quotas);

	cgroup_look__release(&own);
	return cnt;
}

/* Of version 2 in microseconds, of version 1 in nanoseconds. */
static void throttling(void **state)
{
	struct cgroup_throttle throttle;

	put("/proc/self/mountinfo", MOUNTS_2);
	put("/proc/7/cgroup", "0::/pod/a/b\n");
	put("/sys/fs/cgroup/pod/a/b/cpu.max", "50000 100000\n");
	put("/sys/fs/cgroup/pod/a/b/cpu.stat",
	    "usage_usec 9\nnr_periods 130\nnr_throttled 129\nthrottled_usec 5330000\n");
	put("/sys/fs/cgroup/pod/a/cpu.max", "max 100000\n");
	put("/sys/fs/cgroup/pod/a/cpu.stat", "usage_usec 9\n");
	put("/sys/fs/cgroup/pod/cpu.max", "400000 100000\n");
	put("/sys/fs/cgroup/pod/cpu.stat", "nr_periods 7\nnr_throttled 0\nthrottled_usec 0\n");
	assert_int_equal(find_quotas(), 2);
	assert_true(quotas[0].above == 0 && quotas[0].milli_cpus == 500 && quotas[1].above == 2 &&
		    quotas[1].milli_cpus == 4000 && quotas[0].group != quotas[1].group);
	assert_true(cgroup_quota__throttle(&quotas[0], &throttle));
	assert_true(throttle.periods == 130 && throttle.throttled == 129 && throttle.throttled_ns == 5330000000);
	assert_true(cgroup_quota__throttle(&quotas[1], &throttle));
	assert_true(throttle.periods == 7 && !throttle.throttled && !throttle.throttled_ns);
	cgroup_quotas__release(quotas, 2);

	put("/proc/self/mountinfo", MOUNTS_1);
	put("/proc/7/cgroup", "2:cpu,cpuacct:/ab\n");
	put("/sys/fs/cgroup/cpu,cpuacct/ab/cpu.cfs_quota_us", "150000\n");
	put("/sys/fs/cgroup/cpu,cpuacct/ab/cpu.cfs_period_us", "100000\n");
	assert_int_equal(find_quotas(), 0); /* without counts */
	put("/sys/fs/cgroup/cpu,cpuacct/ab/cpu.stat", "nr_periods 3\nnr_throttled 2\nthrottled_time 5330\n");
	assert_int_equal(find_quotas(), 1);
	assert_true(quotas[0].milli_cpus == 1500);
	assert_true(cgroup_quota__throttle(quotas, &throttle));
	assert_true(throttle.periods == 3 && throttle.throttled == 2 && throttle.throttled_ns == 5330);
	cgroup_quotas__release(quotas, 1);
}

/* Files that are gone, long or senseless; more levels than are looked at; quotas that are none. */
static void throttling_may_be_anything(void **state)
{
	static const char *const wrong[] = {"", "nr_periods\n", "nr_periods 1\nnr_throttled x\nthrottled_usec 1\n",
					    "nr_periods 1\nnr_throttled 1\n",
					    "nr_periods 1\nnr_throttled 1\nthrottled_usec 18446744073709551615\n"};
	char path[512] = "/sys/fs/cgroup", own[512] = "0::", name[600], *text;
	struct cgroup_throttle throttle;

	assert_int_equal(find_quotas(), 0);
	put("/proc/self/mountinfo", MOUNTS_2);
	for (int i = 0; i < 2 * CGROUP_QUOTAS_MAX; i++) {
		strcat(path, "/a");
		strcat(own, "/a");
		snprintf(name, sizeof(name), "%s/cpu.max", path);
		put(name, "1000 100000\n");
		snprintf(name, sizeof(name), "%s/cpu.stat", path);
		put(name, wrong[0]);
	}
	put("/proc/7/cgroup", own);
	assert_int_equal(find_quotas(), CGROUP_QUOTAS_MAX);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		put(name, wrong[i]);
		assert_false(cgroup_quota__throttle(quotas, &throttle));
	}
	text = malloc(100001);
	memset(text, 'x', 100000);
	text[100000] = 0;
	put(name, text);
	free(text);
	assert_false(cgroup_quota__throttle(quotas, &throttle));
	unlink(quotas[0].file);
	assert_false(cgroup_quota__throttle(quotas, &throttle));
	cgroup_quotas__release(quotas, CGROUP_QUOTAS_MAX);
	for (size_t i = 0; i < 2; i++) {
		put("/proc/7/cgroup", "0::/b\n");
		put("/sys/fs/cgroup/b/cpu.stat", "");
		put("/sys/fs/cgroup/b/cpu.max", i ? "99999999999999999 1\n" : "0 100000\n");
		assert_int_equal(find_quotas(), 0);
	}
}

static void this_process(void **state)
{
	struct cgroup_look own = {0};

	assert_int_equal(cgroup_look__limits(&own, getpid(), &limits), 0);
	assert_true(limits.processors <= (uint32_t)sysconf(_SC_NPROCESSORS_CONF));
	print_message("limits here: %.1f MB, %.2f CPUs by a quota, %u processors\n", limits.memory_bytes / 1e6,
		      limits.cpus, limits.processors);
	cgroup_look__release(&own);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(version_2),
		TEST(version_1),
		TEST(container_of_version_1),
		TEST(hybrid),
		TEST(paths_do_not_lead_out),
		TEST(numbers_may_be_anything),
		TEST(files_may_be_missing_or_long),
		TEST(files_may_be_cut),
		cmocka_unit_test(processors_are_counted),
		TEST(one_look),
		TEST(throttling),
		TEST(throttling_may_be_anything),
		cmocka_unit_test(this_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
