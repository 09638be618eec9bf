/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The double of libnvidia-ml. What it tells is in a file that GPU_DOUBLE_NVML names, read at each call, so that a test
 * can change it: lines "DEVICE KEY VALUE". Calls are counted in GPU_DOUBLE_NVML.calls, a line for each, and looks in
 * GPU_DOUBLE_NVML.looks, "NUMBER TIME_NS" of CLOCK_MONOTONIC: one begins where the handle of device 0 is asked for.
 *
 * VALUE: a text; a number; BASE*STEP, which is BASE and STEP more for each look; `fail=N`: the function that is asked for
 * it returns N; `hang`: it never does; `crash`. From the N-th look on alone: VALUE@N. Keys of no figure: `init`, of
 * device 0, which may be `prints`, too, `handle`, and `processes`, of which the value is PID,PID.
 */
#include <fcntl.h>
#include <nvml.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEVICES_MAX 16

static int started;
static int looks;
static int devices[DEVICES_MAX]; /* a handle is the address of one */

__attribute__((format(printf, 2, 3))) static void append(const char *ending, const char *format, ...)
{
	const char *path = getenv("GPU_DOUBLE_NVML");
	char name[4096];
	va_list args;
	int fd;

	if (!path)
		return;
	snprintf(name, sizeof(name), "%s.%s", path, ending);
	fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (fd < 0)
		return;
	va_start(args, format);
	vdprintf(fd, format, args);
	va_end(args);
	close(fd);
}

static void told(const char *function)
{
	append("calls", "%s\n", function);
}

static void look(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	append("looks", "%d %lld\n", ++looks, now.tv_sec * 1000000000LL + now.tv_nsec);
}

/* What a value says beside a figure: a code to fail with. */
static nvmlReturn_t obey(const char *value)
{
	if (!strcmp(value, "hang"))
		for (;;)
			pause();
	if (!strcmp(value, "crash"))
		abort();
	return strncmp(value, "fail=", 5) ? NVML_SUCCESS : (nvmlReturn_t)atoi(value + 5);
}

/* The text of a device's key, "" where there is none yet. */
static void look_up(int device, const char *key, char value[128])
{
	const char *path = getenv("GPU_DOUBLE_NVML");
	FILE *f = path ? fopen(path, "re") : NULL;
	char line[512], found_key[64], found[128], *from;
	int at;

	*value = 0;
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%d %63s %127[^\n]", &at, found_key, found) != 3 || at != device ||
		    strcmp(found_key, key))
			continue;
		from = strrchr(found, '@');
		if (from && looks < atoi(from + 1))
			continue;
		strcpy(value, found);
		value[from ? from - found : (long)strlen(found)] = 0;
	}
	if (f)
		fclose(f);
}

static nvmlReturn_t text(nvmlDevice_t device, const char *key, char value[128])
{
	int index = (int *)device - devices;

	if (!started)
		return NVML_ERROR_UNINITIALIZED;
	if (index < 0 || index >= DEVICES_MAX)
		return NVML_ERROR_INVALID_ARGUMENT;
	look_up(index, key, value);
	return obey(value);
}

static nvmlReturn_t number(nvmlDevice_t device, const char *key, unsigned long long *value)
{
	char said[128], *end;
	nvmlReturn_t result = text(device, key, said);

	*value = 0;
	if (result)
		return result;
	*value = strtoull(said, &end, 0);
	if (*end == '*')
		*value += looks * strtoll(end + 1, NULL, 0);
	return NVML_SUCCESS;
}

static nvmlReturn_t number32(nvmlDevice_t device, const char *key, unsigned int *value)
{
	unsigned long long wide;
	nvmlReturn_t result = number(device, key, &wide);

	*value = wide;
	return result;
}

nvmlReturn_t nvmlInit_v2(void)
{
	char value[128];
	nvmlReturn_t result;

	told(__func__);
	look_up(0, "init", value);
	if (!strcmp(value, "prints")) {
		printf("NVML prints\n");
		fflush(stdout);
	}
	result = obey(value);
	if (!result)
		started++;
	return result;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	return nvmlInit_v2();
}

nvmlReturn_t nvmlShutdown(void)
{
	told(__func__);
	if (!started)
		return NVML_ERROR_UNINITIALIZED;
	started--;
	return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
	return result == NVML_ERROR_NOT_SUPPORTED ? "Not Supported" : result ? "Error of a double" : "Success";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	snprintf(version, length, "580.00");
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
	const char *n = getenv("GPU_DOUBLE_DEVICES");

	told(__func__);
	*count = n ? atoi(n) : 2;
	return started ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	char value[128];
	unsigned int count;

	if (nvmlDeviceGetCount_v2(&count))
		return NVML_ERROR_UNINITIALIZED;
	if (!index)
		look();
	*device = (nvmlDevice_t)&devices[index % DEVICES_MAX];
	return index < count ? text(*device, "handle", value) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	*index = (int *)device - devices;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	char value[128];
	nvmlReturn_t result = text(device, "name", value);

	told(__func__);
	if (!result && *value)
		snprintf(name, length, "%s", value);
	else
		snprintf(name, length, "Double %d", (int)((int *)device - devices));
	return result;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	snprintf(uuid, length, "GPU-00000000-0000-0000-0000-%012d", (int)((int *)device - devices));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	nvmlReturn_t result = number(device, "memory", &memory->total);

	told(__func__);
	if (!result)
		result = number(device, "memory_used", &memory->used);
	memory->free = memory->total - memory->used;
	return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	nvmlReturn_t result = number(device, "memory", &memory->total);

	told(__func__);
	if (memory->version != nvmlMemory_v2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (!result)
		result = number(device, "memory_used", &memory->used);
	memory->reserved = 0;
	memory->free = memory->total - memory->used;
	return result;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
	nvmlReturn_t result = number32(device, "busy", &utilization->gpu);

	told(__func__);
	return result ? result : number32(device, "memory_busy", &utilization->memory);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *mw)
{
	told(__func__);
	return number32(device, "power_mw", mw);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *celsius)
{
	told(__func__);
	return number32(device, "temperature", celsius);
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature)
{
	unsigned int celsius;
	nvmlReturn_t result = number32(device, "temperature", &celsius);

	told(__func__);
	if (temperature->version != nvmlTemperature_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	temperature->temperature = celsius;
	return result;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *mhz)
{
	told(__func__);
	return number32(device, type == NVML_CLOCK_SM ? "sm_mhz" : "mhz", mhz);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
						     nvmlProcessInfo_v2_t *processes)
{
	char value[128], *at = value, *end;
	nvmlReturn_t result = text(device, "processes", value);
	unsigned int room = *count;

	told(__func__);
	*count = 0;
	for (unsigned long pid; !result && (pid = strtoul(at, &end, 10)); at = end + (*end == ','))
		if (++*count <= room)
			processes[*count - 1] = (nvmlProcessInfo_v2_t){.pid = pid, .usedGpuMemory = 1 << 20};
	return result ? result : *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
