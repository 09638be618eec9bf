/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a second look at the processes of the host finds, and what it need not examine: with children of this test. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "user/identity/trainings.h"

#define TORCH_BYTES (1 << 20)
#define LONG_NS     1000000000000ull

static struct trainings table;
static char folder[] = "/tmp/look-again-XXXXXX";
static char torch_path[64];
static int orders, answers; /* pipes to and from the child */
static pid_t child;

static void map_torch(void)
{
	int fd = open(torch_path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || mmap(NULL, TORCH_BYTES, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
		_exit(1);
}

/* Does what it is told: 't' maps what looks like torch, 'x' becomes another program. */
static void obey(int from, int to)
{
	char order;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(from, &order, 1) == 1) {
		if (order == 't')
			map_torch();
		if (order == 'x')
			execlp("sleep", "sleep", "60", NULL);
		if (write(to, &order, 1) != 1)
			break;
	}
	_exit(0);
}

static void order(char what)
{
	assert_int_equal(write(orders, &what, 1), 1);
	if (what != 'x')
		assert_int_equal(read(answers, &what, 1), 1);
	else /* its ends of the pipes are closed by exec */
		assert_int_equal(read(answers, &what, 1), 0);
}

static int set_up(void **state)
{
	int down[2], up[2];

	table = (struct trainings){0};
	assert_int_equal(pipe2(down, O_CLOEXEC), 0);
	assert_int_equal(pipe2(up, O_CLOEXEC), 0);
	child = fork();
	if (!child) {
		close(down[1]);
		close(up[0]);
		obey(down[0], up[1]);
	}
	close(down[0]);
	close(up[1]);
	orders = down[1];
	answers = up[0];
	return child < 0;
}

static int tear_down(void **state)
{
	trainings__release(&table);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	close(orders);
	close(answers);
	return 0;
}

static const struct training *look(void)
{
	assert_int_equal(trainings__look_again(&table, 0), 0);
	return trainings__pid(&table, child);
}

static void test_gets_torch(void **state)
{
	assert_null(look());
	assert_null(look());
	order('t');
	assert_non_null(look());
	assert_int_equal(look()->program, PROGRAM_NATIVE);
}

/* What has been the same for long is not examined each time. */
static void test_settled(void **state)
{
	struct training *training;
	uint64_t seen_ns;

	order('t');
	seen_ns = look()->seen_ns;
	assert_true(look()->seen_ns > seen_ns);
	training = trainings__pid(&table, child);
	training->first_seen_ns -= LONG_NS;
	seen_ns = training->seen_ns;
	assert_int_equal(look()->seen_ns, seen_ns);
	assert_null(look()->process.files);
	training = trainings__pid(&table, child);
	training->seen_ns -= LONG_NS;
	assert_true(look()->seen_ns > seen_ns);
	assert_non_null(trainings__pid(&table, child)->process.files);
}

/* One that trains already is examined each time only while it still maps something. */
static void test_young_trainer(void **state)
{
	uint64_t seen_ns;

	order('t');
	seen_ns = look()->seen_ns;
	trainings__pid(&table, child)->role = TRAINING_TRAINER;
	trainings__pid(&table, child)->program = PROGRAM_SCRIPT;
	assert_int_equal(look()->seen_ns, seen_ns);
	trainings__pid(&table, child)->role = TRAINING_TRAINER;
	order('t');
	assert_true(look()->seen_ns > seen_ns);
}

/* Where there is no time for all, a look goes on where the one before has stopped; who was known meanwhile stays. */
static void test_little_time(void **state)
{
	order('t');
	assert_int_equal(trainings__look_again(&table, 1), 0);
	assert_true(table.stopped_at); /* there are this process and its child at least */
	assert_int_equal(trainings__look_again(&table, 0), 0);
	assert_false(table.stopped_at);
	assert_non_null(trainings__pid(&table, child));
	order('t');
	for (int looks = 0; looks < 3; looks++) {
		assert_int_equal(trainings__look_again(&table, 1), 0);
		assert_non_null(trainings__pid(&table, child));
	}
}

/* A process that has become another program is none of what was known. */
static void test_exec(void **state)
{
	order('t');
	assert_non_null(look());
	trainings__pid(&table, child)->first_seen_ns -= LONG_NS;
	order('x');
	assert_null(look());
}

static void test_ended(void **state)
{
	siginfo_t info;

	order('t');
	assert_non_null(look());
	trainings__pid(&table, child)->first_seen_ns -= LONG_NS;
	kill(child, SIGKILL);
	assert_int_equal(waitid(P_PID, child, &info, WEXITED | WNOWAIT), 0);
	assert_null(look()); /* a zombie */
}

static int make_torch(void **state)
{
	int fd;

	assert_non_null(mkdtemp(folder));
	snprintf(torch_path, sizeof(torch_path), "%s/libtorch_cpu.so", folder);
	fd = open(torch_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(ftruncate(fd, TORCH_BYTES), 0);
	close(fd);
	return 0;
}

static int remove_torch(void **state)
{
	unlink(torch_path);
	rmdir(folder);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_gets_torch, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_little_time, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_settled, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_young_trainer, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_exec, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_ended, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, make_torch, remove_torch);
}
