// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Resources: hostile texts of /proc, this process against getrusage(2), a slope through noise, records that lie. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/build_job.h"
#include "user/analysis/resources/machine.h"
#include "user/analysis/resources/resources.h"
#include "user/proc/cgroup.h"
#include "user/proc/deputy.h"
#include "user/proc/proc.h"
#include "user/proc/proc_usage.h"

#define S 1000000000ull

enum { PID = 7 };

/* ---- texts ---- */

static void statm_is_parsed(void **state)
{
	static const char *const wrong[] = {"", " ", "1", "1 2", "a b c", "-1 -2 -3", "1 2 \n", "\n1\n2\n3"};
	uint64_t rss = 5, shared = 6;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_int_equal(proc_usage__parse_statm(wrong[i], 4096, &rss, &shared), -EINVAL);
	assert_int_equal(rss, 5);
	assert_int_equal(proc_usage__parse_statm("100 20 3 4 0 6 0\n", 4096, &rss, &shared), 0);
	assert_int_equal(rss, 20 * 4096);
	assert_int_equal(shared, 3 * 4096);
	assert_int_equal(proc_usage__parse_statm("1 99999999999999999999999 18446744073709551615", 4096, &rss, &shared),
			 0);
	assert_true(rss == UINT64_MAX && shared == UINT64_MAX);
}

static void values_are_parsed(void **state)
{
	uint64_t value = 5;

	assert_int_equal(proc__parse_value("", "VmSwap", &value), -EINVAL);
	assert_int_equal(proc__parse_value("VmSwap", "VmSwap", &value), -EINVAL);
	assert_int_equal(proc__parse_value("VmSwap:", "VmSwap", &value), -EINVAL);
	assert_int_equal(proc__parse_value("VmSwap:\t-1 kB", "VmSwap", &value), -EINVAL);
	/* the name of a process: the kernel escapes its newlines, so that it begins no line */
	assert_int_equal(proc__parse_value("Name:\tVmSwap: 7 kB\n", "VmSwap", &value), -EINVAL);
	assert_int_equal(value, 5);
	assert_int_equal(proc__parse_value("Name:\tVmSwap: 7 kB\nVmSwap:\t   12 kB\n", "VmSwap", &value), 0);
	assert_int_equal(value, 12 * 1024);
	assert_int_equal(proc__parse_value("xread_bytes: 1\nread_bytes: 99\n", "read_bytes", &value), 0);
	assert_int_equal(value, 99);
	assert_int_equal(proc__parse_value("active_file 8\n", "active_file", &value), 0);
	assert_int_equal(value, 8);
	assert_int_equal(proc__parse_value("A: 18446744073709551615 kB", "A", &value), 0);
	assert_true(value == UINT64_MAX);
}

#define HEADS                                                                            \
	"Inter-|   Receive                                                |  Transmit\n" \
	" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop\n"

static void network_is_parsed(void **state)
{
	static const char *const wrong[] = {
		"",
		"lo: 1 2 3 4 5 6 7 8 9\n",
		HEADS "lo: 1 2 3\n",
		HEADS "lo:\n",
		HEADS "lo: 1 2 3 4 5 6 7 8 -9\n",
		HEADS "lo: a\n",
	};
	uint64_t in = 5, out = 6;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_int_equal(proc_usage__parse_net(wrong[i], &in, &out), -EINVAL);
	assert_true(in == 5 && out == 6);
	assert_int_equal(proc_usage__parse_net(HEADS, &in, &out), 0);
	assert_true(in == 0 && out == 0);
	assert_int_equal(proc_usage__parse_net(HEADS "    lo: 10 1 1 1 1 1 1 1 20 1 1 1 1 1 1 1\n"
						     "  e)\\n:100 1 1 1 1 1 1 1 200 1 1 1 1 1 1 1\n",
					       &in, &out),
			 0);
	assert_true(in == 110 && out == 220);
	assert_int_equal(proc_usage__parse_net(HEADS "a: 18446744073709551615 1 1 1 1 1 1 1 2 1\n"
						     "b: 18446744073709551615 1 1 1 1 1 1 1 2 1",
					       &in, &out),
			 0);
	assert_true(in == UINT64_MAX && out == 4);
}

static void cpu_times_are_parsed(void **state)
{
	static const char *const wrong[] = {
		"", "cpu", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3 4 5 6 7", "cpu a", "cpu -1 2 3 4 5 6 7 8"};
	uint64_t busy = 5, idle = 6;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_int_equal(proc_usage__parse_cpu(wrong[i], &busy, &idle), -EINVAL);
	assert_true(busy == 5 && idle == 6);
	/* what guests use is part of what users use: 900 of 1000 */
	assert_int_equal(proc_usage__parse_cpu("cpu  1000 2 3 400 50 6 7 8 900 9\ncpu0 1 2 3\n", &busy, &idle), 0);
	assert_true(busy == 1026 && idle == 450);
	assert_int_equal(
		proc_usage__parse_cpu("cpu 18446744073709551615 2 3 99999999999999999999 5 6 7 8", &busy, &idle), 0);
	assert_true(busy == UINT64_MAX && idle == UINT64_MAX);
}

static void stat_is_parsed(void **state)
{
	static const char text[] = "1 (a) S 9 9) R 2 0 0 0 -1 64 11 12 13 14 15 16 17 18 20 0 3 0 99 1";
	struct proc_stat stat;

	assert_int_equal(proc_stat__parse(text, strlen(text), &stat), 0);
	assert_string_equal(stat.comm, "a) S 9 9");
	assert_int_equal(stat.minor_faults, 11);
	assert_int_equal(stat.major_faults, 13);
	assert_int_equal(stat.user_ticks, 15);
	assert_int_equal(stat.system_ticks, 16);
	assert_int_equal(stat.start_time, 99);
	for (size_t size = 0; size < 60; size++) {
		char *cut = strndup(text, size);

		proc_stat__parse(cut, size, &stat);
		free(cut);
	}
	assert_int_equal(proc_stat__parse(")(", 2, &stat), -ESRCH);
	assert_int_equal(proc_stat__parse("1 (a) S 2", 9, &stat), -ESRCH);
}

/* ---- this process ---- */

static void usage_is_that_of_getrusage(void **state)
{
	struct proc_files files = {0};
	struct proc_usage usage;
	struct rusage own;
	uint64_t failed = 0, in, out;

	for (int round = 0; round < 3; round++) {
		assert_int_equal(proc_usage__read(getpid(), &files, true, &usage, &failed), 0);
		assert_int_equal(getrusage(RUSAGE_SELF, &own), 0);
		assert_false(usage.ended);
		assert_true(usage.has_memory && usage.has_disk && usage.rss_bytes >= usage.shared_bytes);
		assert_true(usage.minor_faults > 0 && usage.minor_faults <= (uint64_t)own.ru_minflt);
		assert_true(usage.rss_bytes / 1024 <= (uint64_t)own.ru_maxrss + 1024);
		assert_true(files.stat && files.statm);
	}
	proc_files__close(&files);
	assert_true(!files.stat && !files.statm);
	assert_int_equal(failed, 0);
	assert_int_equal(proc_usage__network(getpid(), &in, &out), 0);
	assert_int_equal(proc_usage__read(1 << 30, &files, false, &usage, &failed), -ESRCH);
	assert_int_equal(failed, 0);
}

/* Files that may not be read: said by a count, and no failure. */
static void denied_files_are_counted(void **state)
{
	struct proc_files files = {0};
	struct proc_usage usage;
	uint64_t failed = 0;
	int status;
	pid_t pid = fork();

	if (!pid) { /* a user who may not look at what process 1 has read */
		int err = getuid() ? 0 : setuid(65534);

		err = err ?: proc_usage__read(1, &files, false, &usage, &failed);
		_exit(err ? 1 : usage.has_disk ? 2 : !usage.has_memory ? 3 : failed != 1 ? 4 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* Its times stay until its parent has waited for it. */
static void ended_processes_keep_their_times(void **state)
{
	struct proc_files files = {0};
	struct proc_usage usage;
	uint64_t failed = 0, last_ns;
	siginfo_t info;
	pid_t pid = fork();

	if (!pid) {
		while (clock() < CLOCKS_PER_SEC / 20)
			;
		_exit(0);
	}
	assert_int_equal(proc_usage__read(pid, &files, true, &usage, &failed), 0);
	assert_int_equal(waitid(P_PID, pid, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(proc_usage__read(pid, &files, true, &usage, &failed), 0);
	assert_true(usage.ended && !usage.has_memory);
	last_ns = usage.user_ns + usage.system_ns;
	assert_true(last_ns >= 30000000);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(proc_usage__read(pid, &files, true, &usage, &failed), -ESRCH);
	assert_int_equal(failed, 0);
	proc_files__close(&files);
}

#define LOOKS 2000

static void looks_are_cheap(void **state)
{
	struct proc_files files = {0};
	struct proc_usage usage;
	uint64_t failed = 0, in, out, begin, network, machine, limits, quota;
	/* "cpu.stat" of the root has no counts of version 2; reading it costs as much */
	bool old = !access("/sys/fs/cgroup/cpu/cpu.stat", R_OK);
	const struct cgroup_quota root = {.file = old ? (char[]){"/sys/fs/cgroup/cpu/cpu.stat"}
						      : (char[]){"/sys/fs/cgroup/cpu.stat"}};
	struct cgroup_throttle throttle;
	struct machine_usage all;
	struct cgroup_look look = {0};

	begin = deputy__cpu_ns();
	for (int i = 0; i < LOOKS; i++)
		assert_int_equal(proc_usage__read(getpid(), &files, true, &usage, &failed), 0);
	network = deputy__cpu_ns();
	for (int i = 0; i < LOOKS; i++)
		assert_int_equal(proc_usage__network(getpid(), &in, &out), 0);
	machine = deputy__cpu_ns();
	for (int i = 0; i < LOOKS; i++)
		assert_int_equal(proc_usage__machine(&all), 0);
	limits = deputy__cpu_ns();
	for (int i = 0; i < LOOKS; i++) {
		assert_int_equal(cgroup_look__limits(&look, getpid(), &(struct cgroup_limits){0}), 0);
		cgroup_look__release(&look);
	}
	quota = deputy__cpu_ns();
	for (int i = 0; i < LOOKS; i++)
		cgroup_quota__throttle(&root, &throttle);
	print_message(
		"CPU time of a look at a process: %.1f us, at a namespace's network: %.1f us, at the machine: %.1f us, "
		"at a cgroup's limits: %.1f us, at a quota: %.1f us\n",
		(network - begin) / 1e3 / LOOKS, (machine - network) / 1e3 / LOOKS, (limits - machine) / 1e3 / LOOKS,
		(quota - limits) / 1e3 / LOOKS, (deputy__cpu_ns() - quota) / 1e3 / LOOKS);
	proc_files__close(&files);
}

/* ---- growth ---- */

static double noise(unsigned int *seed)
{
	*seed = *seed * 1103515245 + 12345;
	return (*seed >> 16 & 0x7fff) / 32768.0 - 0.5;
}

static struct growth growth_of(size_t cnt, double (*value)(double s, unsigned int *seed))
{
	struct growth_point *points = calloc(cnt, sizeof(*points));
	unsigned int seed = 1;
	struct growth growth;

	for (size_t i = 0; i < cnt; i++)
		points[i] = (struct growth_point){i, value(i, &seed)};
	assert_int_equal(growth__find(points, cnt, &growth), 0);
	free(points);
	return growth;
}

static double line(double s, unsigned int *seed)
{
	return 1e9 + 2e6 * s + 3e6 * noise(seed);
}

static double line_with_outliers(double s, unsigned int *seed)
{
	return line(s, seed) + ((int)s % 7 == 3 ? 5e9 : 0);
}

static double flat(double s, unsigned int *seed)
{
	return 1e9 + 3e7 * noise(seed);
}

static double warm_up(double s, unsigned int *seed)
{
	return 1e9 + 4e7 * (s < 10 ? s : 10) + 1e5 * noise(seed);
}

static double saw(double s, unsigned int *seed)
{
	return 1e9 + 1e6 * ((int)s % 10) + 1e4 * noise(seed);
}

static double constant(double s, unsigned int *seed)
{
	return 1e9;
}

static double falls(double s, unsigned int *seed)
{
	return 4e9 - line(s, seed);
}

#define TABLE_BYTES (256u << 20)
#define PAGES_FEW   40

/* Writes to the first bytes of a table, when it is asked to: the rest of it stays shared. */
static void copy_when_asked(char *table, int asked, int answer)
{
	char bytes[8];

	while (read(asked, bytes, sizeof(size_t)) == sizeof(size_t)) {
		size_t to;

		memcpy(&to, bytes, sizeof(to));
		for (size_t i = 0; i < to; i += 4096)
			table[i]++;
		if (write(answer, "", 1) != 1)
			break;
	}
	_exit(0);
}

static size_t copied_bytes(pid_t pid, const struct shared_pages *pages)
{
	size_t copied;

	assert_int_equal(shared_pages__copied(pid, pages, &copied), 0);
	return copied * pages->each_bytes;
}

static void copied_pages_are_counted(void **state)
{
	char *table = mmap(NULL, TABLE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), answer;
	struct shared_pages pages, few;
	int ask[2], answers[2];
	size_t to = TABLE_BYTES / 4, copied;
	uint64_t before;
	pid_t pid;

	assert_ptr_not_equal(table, MAP_FAILED);
	assert_int_equal(madvise(table, TABLE_BYTES, MADV_NOHUGEPAGE), 0);
	memset(table, 1, TABLE_BYTES);
	assert_false(pipe(ask) || pipe(answers));
	pid = fork();
	if (!pid) {
		close(ask[1]);
		copy_when_asked(table, ask[0], answers[1]);
	}
	assert_int_equal(shared_pages__choose(pid, SHARED_PAGES_MAX, &pages), 0);
	assert_in_range(pages.cnt, 100, SHARED_PAGES_MAX);
	assert_int_equal(copied_bytes(pid, &pages), 0);
	assert_int_equal(write(ask[1], &to, sizeof(to)), sizeof(to));
	assert_int_equal(read(answers[0], &answer, 1), 1);
	assert_true(copied_bytes(pid, &pages) >= to * 3 / 4 && copied_bytes(pid, &pages) <= to * 5 / 4);
	before = deputy__cpu_ns();
	for (int i = 0; i < 100; i++)
		copied_bytes(pid, &pages);
	print_message("CPU time of a look at %zu shared pages: %.1f us\n", pages.cnt,
		      (deputy__cpu_ns() - before) / 100 / 1e3);
	/* fewer, each of which stands for more */
	assert_int_equal(shared_pages__choose(pid, PAGES_FEW, &few), 0);
	assert_int_equal(few.cnt, PAGES_FEW);
	assert_true(few.cnt * few.each_bytes * 10 > pages.cnt * pages.each_bytes * 6); /* a quarter is its own by now */
	close(ask[1]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_not_equal(shared_pages__copied(pid, &pages, &copied), 0);
	/* of its own: nothing that it shares with anybody, or hardly anything */
	assert_int_equal(shared_pages__choose(getpid(), SHARED_PAGES_MAX, &pages), 0);
	assert_int_equal(pages.cnt, 0);
	assert_int_not_equal(shared_pages__choose(pid, SHARED_PAGES_MAX, &pages), 0);
	munmap(table, TABLE_BYTES);
	close(ask[0]);
	close(answers[0]);
	close(answers[1]);
}

static void growth_is_found_through_noise(void **state)
{
	for (size_t cnt = 20; cnt < 3000; cnt = cnt * 3 / 2) {
		struct growth growth = growth_of(cnt, line);

		assert_true(growth.steady);
		assert_true(growth.per_s > 1.8e6 && growth.per_s < 2.2e6);
		assert_true(growth.least_per_s <= growth.per_s && growth.most_per_s >= growth.per_s);
		if (cnt > 40) {
			growth = growth_of(cnt, line_with_outliers);
			assert_true(growth.steady && growth.per_s > 1.6e6 && growth.per_s < 2.4e6);
		}
	}
}

static void no_growth_is_told_where_there_is_none(void **state)
{
	double (*const values[])(double s, unsigned int *seed) = {flat, warm_up, saw, constant, falls};

	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++)
		for (size_t cnt = 0; cnt < 3000; cnt = cnt * 3 / 2 + 1)
			if (values[i] != warm_up || cnt > 20)
				if (values[i] != saw || cnt > 20)
					assert_false(growth_of(cnt, values[i]).steady);
	assert_true(growth_of(GROWTH_MIN_CNT - 1, line).per_s == 0);
}

/* ---- records ---- */

static void add_sample(struct job *job, uint32_t pid, uint64_t time_ns, unsigned int known, uint64_t sum)
{
	struct rec_resources record = {
		.hdr = {.type = REC_RESOURCES, .size = sizeof(record)},
		.time_ns = time_ns,
		.pid = pid,
		.known = known,
		.user_ns = sum * 1000000,
		.system_ns = sum * 1000000,
		.minor_faults = sum,
		.major_faults = sum / 10,
		.rss_bytes = 1000000 * sum,
		.shared_bytes = 5,
		.read_bytes = 10 * sum,
		.written_bytes = 20 * sum,
		.received_bytes = 30 * sum,
		.sent_bytes = 40 * sum,
		.left_bytes = 3600000000,
	};

	assert_int_equal(add_copy(job, &record), 0);
}

static struct job *job_of_samples(size_t cnt, unsigned int known)
{
	struct job *job = job__new();

	add_target(job, PID, ROLE_MAIN, -1);
	for (size_t i = 0; i < cnt; i++) /* any order */
		add_sample(job, PID, (1 + (i * 7) % cnt) * S, known, 100 * ((i * 7) % cnt));
	return job;
}

static void uses_are_rates_and_last_values(void **state)
{
	struct job *job = job_of_samples(20, RESOURCES_MEMORY | RESOURCES_DISK | RESOURCES_LEFT);
	struct resource_use *uses;
	size_t cnt;

	add_sample(job, PID + 1, S, RESOURCES_MEMORY, 5);
	assert_int_equal(resource_uses__new(job, NULL, 0, &uses, &cnt), 0);
	assert_int_equal(cnt, 2);
	assert_int_equal(uses[0].pid, PID);
	assert_int_equal(uses[0].sample_cnt, 20);
	assert_true(uses[0].rates.cpu_percent > 19.99 && uses[0].rates.cpu_percent < 20.01);
	assert_true(uses[0].rates.read_per_s > 999.9 && uses[0].rates.read_per_s < 1000.1);
	assert_true(uses[0].rates.major_faults_per_s > 9.99 && uses[0].rates.major_faults_per_s < 10.01);
	assert_true(uses[0].rates.received_per_s < 0); /* not known */
	assert_int_equal(uses[0].rss_max_bytes, 1900000000);
	assert_int_equal(uses[0].rss_min_bytes, 0);
	assert_false(uses[0].has_swap);
	assert_true(uses[0].growth_per_s > 0.99e8 && uses[0].growth_per_s < 1.01e8);
	assert_true(uses[0].full_s > 35 && uses[0].full_s < 37);
	assert_false(uses[0].of_cgroup);
	assert_int_equal(resource_use__trouble(&uses[0]), TROUBLE_GROWTH);
	assert_true(uses[1].rates.cpu_percent < 0);
	assert_int_equal(resource_use__trouble(&uses[1]), TROUBLE_NONE);
	free(uses);
	job__free(job);
}

static void steps_get_the_rates_around_them(void **state)
{
	struct job *job = job_of_samples(10, RESOURCES_MEMORY | RESOURCES_NET);
	struct resource_samples samples = resource_samples__of(job, PID);
	struct resource_span span;

	assert_int_equal(samples.cnt, 10);
	assert_int_equal(resource_samples__of(job, 99).cnt, 0);
	assert_true(resource_samples__span(&samples, 2 * S + S / 4, 2 * S + S / 2, &span));
	assert_true(span.rates.cpu_percent > 19.99 && span.rates.cpu_percent < 20.01);
	assert_true(span.rates.sent_per_s > 3999 && span.rates.sent_per_s < 4001);
	assert_true(span.rates.read_per_s < 0);
	assert_int_equal(span.rss_bytes, 100000000);
	assert_true(resource_samples__span(&samples, 2 * S + S / 4, 8 * S, &span));
	assert_true(span.rates.minor_faults_per_s > 99.9 && span.rates.minor_faults_per_s < 100.1);
	assert_int_equal(span.rss_bytes, 700000000);
	assert_false(resource_samples__span(&samples, S / 2, 2 * S, &span));  /* before the first sample */
	assert_false(resource_samples__span(&samples, 9 * S, 11 * S, &span)); /* after the last */
	assert_false(resource_samples__span(&samples, 3 * S, 3 * S, &span));
	job__free(job);
}

/* Sums that fall, times that are equal or far apart, the largest numbers. */
static void records_may_lie(void **state)
{
	static const uint64_t values[] = {0, UINT64_MAX, 1, UINT64_MAX / 2, 7, 0, UINT64_MAX - 1};
	struct job *job = job__new();
	struct resource_samples samples;
	struct resource_span span;
	struct resource_use *uses;
	size_t cnt;

	for (size_t i = 0; i < 50; i++)
		add_sample(job, i % 3, values[i % 7], ~0u, values[i * 3 % 7]);
	assert_int_equal(resource_uses__new(job, NULL, 0, &uses, &cnt), 0);
	assert_int_equal(cnt, 3);
	for (size_t i = 0; i < cnt; i++)
		assert_true(!(uses[i].rates.cpu_percent < -1));
	free(uses);
	samples = resource_samples__of(job, 1);
	for (size_t i = 0; i < 7; i++)
		for (size_t k = 0; k < 7; k++)
			resource_samples__span(&samples, values[i], values[k], &span);
	job__free(job);
}

static void add_machine(struct job *job, uint32_t pid, uint64_t time_ns, uint64_t busy_ns, uint64_t idle_ns,
			uint64_t left)
{
	struct rec_machine record = {
		.hdr = {.type = REC_MACHINE, .size = sizeof(record)},
		.time_ns = time_ns,
		.pid = pid,
		.processors = 4,
		.busy_ns = busy_ns,
		.idle_ns = idle_ns,
		.memory_bytes = 1000,
		.available_bytes = left,
		.swap_bytes = 100,
		.swap_free_bytes = left / 10,
	};

	assert_int_equal(add_copy(job, &record), 0);
}

static void the_machine_is_in_percent(void **state)
{
	struct machine_samples samples;
	struct machine_percent percent;
	struct machine_use *uses;
	struct job *job = job__new();
	size_t cnt;

	assert_int_equal(machine_samples__of(job, PID).cnt, 0);
	for (uint64_t i = 10; i > 0; i--) /* 1 of 4 processors busy, from 6 s on all */
		add_machine(job, PID, i * S, (i <= 6 ? i : 6 + 4 * (i - 6)) * S, (i <= 6 ? 3 * i : 18) * S,
			    1000 - 50 * i);
	assert_int_equal(machine_uses__new(job, &uses, &cnt), 0);
	assert_int_equal(cnt, 1);
	assert_true(uses->mean.cpu > 58.33 && uses->mean.cpu < 58.34); /* 5 + 16 of 36 s */
	assert_true(uses->mean.memory > 27.49 && uses->mean.memory < 27.51 && uses->memory_max == 50);
	assert_true(uses->mean.swap > 27.49 && uses->mean.swap < 27.51 && uses->sample_cnt == 10);
	free(uses);
	samples = machine_samples__of(job, PID + 1); /* there is one machine only */
	assert_int_equal(samples.cnt, 10);
	assert_true(machine_samples__span(&samples, 5 * S + S / 2, 6 * S + S / 2, &percent));
	assert_true(percent.cpu > 62.4 && percent.cpu < 62.6); /* half of the time 1, half 4 of 4 */
	assert_true(percent.memory == 30 && percent.swap == 30);
	assert_false(machine_samples__span(&samples, S / 2, 2 * S, &percent));
	assert_false(machine_samples__span(&samples, 9 * S, 11 * S, &percent));
	job__free(job);
}

static void machines_may_lie(void **state)
{
	static const uint64_t values[] = {0, UINT64_MAX, 1, UINT64_MAX / 2, 7, 0, UINT64_MAX - 1};
	struct machine_samples samples;
	struct machine_percent percent;
	struct machine_use *uses;
	struct job *job = job__new();
	size_t cnt;

	for (size_t i = 0; i < 49; i++)
		add_machine(job, i % 3, values[i % 7], values[i * 3 % 7], values[i * 5 % 7], values[i / 7]);
	assert_int_equal(machine_uses__new(job, &uses, &cnt), 0);
	assert_int_equal(cnt, 1); /* without targets no host is known */
	assert_true(uses->mean.cpu >= -1 && uses->mean.cpu <= 100 && uses->memory_max >= 0 && uses->memory_max <= 100);
	free(uses);
	samples = machine_samples__of(job, 1);
	for (size_t i = 0; i < 7; i++)
		for (size_t k = 0; k < 7; k++)
			if (machine_samples__span(&samples, values[i], values[k], &percent))
				assert_true(percent.cpu >= -1 && percent.cpu <= 100);
	job__free(job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(statm_is_parsed),
		cmocka_unit_test(values_are_parsed),
		cmocka_unit_test(network_is_parsed),
		cmocka_unit_test(cpu_times_are_parsed),
		cmocka_unit_test(stat_is_parsed),
		cmocka_unit_test(usage_is_that_of_getrusage),
		cmocka_unit_test(denied_files_are_counted),
		cmocka_unit_test(ended_processes_keep_their_times),
		cmocka_unit_test(looks_are_cheap),
		cmocka_unit_test(copied_pages_are_counted),
		cmocka_unit_test(growth_is_found_through_noise),
		cmocka_unit_test(no_growth_is_told_where_there_is_none),
		cmocka_unit_test(uses_are_rates_and_last_values),
		cmocka_unit_test(steps_get_the_rates_around_them),
		cmocka_unit_test(records_may_lie),
		cmocka_unit_test(the_machine_is_in_percent),
		cmocka_unit_test(machines_may_lie),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
