/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the process that asks NVML may say, whose library may have written over anything in there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define session__emit emit_told
#include "user/session/sources/nvml.c"
#undef session__emit

static struct rec_gpu_usage told;
static int told_cnt;
static struct rec_gpu_user told_users[8];
static size_t told_user_cnt;

int emit_told(struct session *s, const struct rec_hdr *record)
{
	if (record->type == REC_GPU_USER) {
		assert_int_equal(record->size, sizeof(*told_users));
		assert_true(told_user_cnt < sizeof(told_users) / sizeof(*told_users));
		told_users[told_user_cnt++] = *(const struct rec_gpu_user *)record;
		return 0;
	}
	assert_int_equal(record->type, REC_GPU_USAGE);
	assert_int_equal(record->size, sizeof(told));
	memcpy(&told, record, record->size);
	assert_non_null(memchr(told.name, 0, sizeof(told.name)));
	told_cnt++;
	return 0;
}

/* A session whose process is the other end of a socket, in *other. */
static struct session *session_with(int *other)
{
	struct session *s = calloc(1, sizeof(*s));
	struct nvml *nvml = calloc(1, sizeof(*nvml));
	int sockets[2];

	assert_non_null(s);
	assert_non_null(nvml);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
	s->opened = true;
	s->state[SOURCE_NVML] = nvml;
	nvml->socket = sockets[0];
	nvml->pid = fork();
	if (!nvml->pid)
		_exit(0);
	*other = sockets[1];
	told_cnt = 0;
	return s;
}

static void end_session(struct session *s, int other)
{
	close(other);
	stop_quietly(s);
	free(state_of(s));
	free(s);
}

/* Sizes and types are ours, whatever it says; texts end. */
static void test_bytes(void **state)
{
	struct usage_message m;
	int other;
	struct session *s = session_with(&other);

	memset(&m, 0xff, sizeof(m));
	assert_int_equal(send(other, &m, sizeof(m), 0), sizeof(m));
	tend(s);
	assert_int_equal(told_cnt, 1);
	assert_int_equal(told.device, 0xffffffff);
	srandom(1);
	for (int i = 0; i < 2000; i++) {
		for (size_t k = 0; k < sizeof(m); k++)
			((unsigned char *)&m)[k] = random();
		assert_int_equal(send(other, &m, sizeof(m), 0), sizeof(m));
		tend(s);
	}
	assert_int_equal(told_cnt, 2001);
	end_session(s, other);
}

/* A process of the recording is said to use a GPU, once; others are not; nor any where pids are not those of NVML. */
static void test_users(void **state)
{
	struct usage_message m = {.usage.device = 3, .users = {41, 42, 42}, .user_cnt = 3};
	struct target target = {.process.pid = 42}, *targets[] = {&target};
	struct used_gpus used = {0};
	int other;
	struct session *s = session_with(&other);
	static const struct {
		uint32_t device, level;
		size_t cnt;
	} cases[] = {{3, 1, 0}, {DEVICES_MAX, 0, 0}, {3, 0, 1}, {3, 0, 1}, {DEVICES_MAX - 1, 0, 2}};

	target.state[SOURCE_NVML] = &used;
	s->targets = targets;
	s->target_cnt = 1;
	told_user_cnt = 0;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		m.usage.device = cases[i].device;
		s->selftest.pid_level = cases[i].level;
		assert_int_equal(send(other, &m, sizeof(m), 0), sizeof(m));
		tend(s);
		assert_int_equal(told_user_cnt, cases[i].cnt);
	}
	assert_int_equal(told_users[0].pid, 42);
	assert_int_equal(told_users[0].device, 3);
	assert_int_equal(told_users[1].device, DEVICES_MAX - 1);
	s->target_cnt = 0;
	end_session(s, other);
}

/* Messages that are too short are no figures, and no end either. */
static void test_short(void **state)
{
	char bytes[sizeof(struct usage_message)] = {0};
	int other;
	struct session *s = session_with(&other);

	for (size_t size = 1; size < sizeof(bytes); size++) {
		assert_int_equal(send(other, bytes, size, 0), size);
		tend(s);
	}
	assert_int_equal(told_cnt, 0);
	assert_true(state_of(s)->pid);
	end_session(s, other);
}

/* One that never stops keeps nobody. */
static void test_flood(void **state)
{
	struct usage_message m = {0};
	int other, sent = 0;
	struct session *s = session_with(&other);

	while (send(other, &m, sizeof(m), MSG_DONTWAIT) == sizeof(m))
		sent++;
	assert_true(sent > 0);
	tend(s);
	assert_true(told_cnt <= READ_MAX && told_cnt <= sent);
	tend(s);
	end_session(s, other);
}

/* ---- what NVML tells ---- */

static int tell_name(void *device, char *name, unsigned int size)
{
	assert_true(snprintf(name, size, "GPU %d", *(int *)device) < (int)size);
	return NVML_SUCCESS;
}

/* nvmlUtilization_t: gpu, memory. */
static int tell_utilization(void *device, struct nvml_utilization *out)
{
	memcpy(out, (unsigned int[]){71, 23}, 2 * sizeof(unsigned int));
	return NVML_SUCCESS;
}

/* nvmlMemory_t: total, free, used. */
static int tell_memory(void *device, struct nvml_memory *out)
{
	memcpy(out, (unsigned long long[]){80ull << 30, 79ull << 30, 1ull << 30}, 3 * sizeof(unsigned long long));
	return NVML_SUCCESS;
}

static int tell_power(void *device, unsigned int *milliwatts)
{
	*milliwatts = 123456;
	return NVML_SUCCESS;
}

/* Of sensors, 0 is the GPU's; of clocks, 1 is that of the multiprocessors. */
static int tell_numbered(void *device, int which, unsigned int *value)
{
	*value = 1000 + which;
	return NVML_SUCCESS;
}

static int tell_nothing(void *device, unsigned int *value)
{
	*value = 7;
	return 3; /* NVML_ERROR_NOT_SUPPORTED */
}

static void test_figures(void **state)
{
	struct nvml_functions f = {
		.nvmlDeviceGetName = tell_name,
		.nvmlDeviceGetUtilizationRates = tell_utilization,
		.nvmlDeviceGetMemoryInfo = tell_memory,
		.nvmlDeviceGetPowerUsage = tell_power,
		.nvmlDeviceGetTemperature = tell_numbered,
		.nvmlDeviceGetClockInfo = tell_numbered,
	};
	struct rec_gpu_usage usage = {0};
	int device = 3;

	read_device_usage(&f, &device, &usage);
	assert_string_equal(usage.name, "GPU 3");
	assert_int_equal(usage.busy_percent, 71);
	assert_int_equal(usage.memory_busy_percent, 23);
	assert_int_equal(usage.memory_bytes, 80ull << 30);
	assert_int_equal(usage.memory_used_bytes, 1ull << 30);
	assert_int_equal(usage.power_mw, 123456);
	assert_int_equal(usage.temperature_c, 1000);
	assert_int_equal(usage.sm_mhz, 1001);
	f = (struct nvml_functions){.nvmlDeviceGetPowerUsage = tell_nothing};
	usage = (struct rec_gpu_usage){0};
	read_device_usage(&f, &device, &usage);
	assert_string_equal(usage.name, "");
	assert_int_equal(usage.power_mw, GPU_UNKNOWN);
	assert_int_equal(usage.busy_percent, GPU_UNKNOWN);
	assert_int_equal(usage.temperature_c, GPU_UNKNOWN);
	assert_int_equal(usage.memory_bytes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes), cmocka_unit_test(test_users),   cmocka_unit_test(test_short),
		cmocka_unit_test(test_flood), cmocka_unit_test(test_figures),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
