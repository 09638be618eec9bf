// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A libnvidia-ml.so.1 of two GPUs, for tests: the second offers nothing but its memory. Figures change with each look, and
 * each look is written to NVML_DOUBLE_LOG. NVML_DOUBLE: "no-driver", "hang" (for good, in the third look), "hang-init",
 * "crash" (in the third look), "lost" (no device answers from the third look on).
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NOT_SUPPORTED     3
#define DRIVER_NOT_LOADED 9
#define GPU_IS_LOST       15

static unsigned looks;

static int mode(const char *name)
{
	const char *set = getenv("NVML_DOUBLE");

	return set && !strcmp(set, name);
}

static void hang(void)
{
	for (;;)
		pause();
}

int nvmlInit_v2(void)
{
	printf("NVML prints\n");
	fflush(stdout);
	if (mode("hang-init"))
		hang();
	return mode("no-driver") ? DRIVER_NOT_LOADED : 0;
}

int nvmlDeviceGetCount_v2(unsigned *cnt)
{
	*cnt = 2;
	return 0;
}

static void note(void)
{
	FILE *log = fopen(getenv("NVML_DOUBLE_LOG"), "a");
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	fprintf(log, "%u %lld\n", looks, now.tv_sec * 1000000000LL + now.tv_nsec);
	fclose(log);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
	if (index == 0) {
		looks++;
		note();
	}
	if (looks == 3 && mode("hang"))
		hang();
	if (looks == 3 && mode("crash"))
		abort();
	*device = (void *)(uintptr_t)(0x1000 + index);
	return looks >= 3 && mode("lost") ? GPU_IS_LOST : 0;
}

static int first(void *device)
{
	return device == (void *)0x1000 ? 0 : NOT_SUPPORTED;
}

int nvmlDeviceGetName(void *device, char *name, unsigned length)
{
	snprintf(name, length, "Double %d", first(device) != 0);
	return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates)
{
	rates[0] = looks;
	rates[1] = 100 - looks;
	return first(device);
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory)
{
	memory[0] = 80ULL << 30;
	memory[1] = (80ULL << 30) - (looks << 20);
	memory[2] = looks << 20;
	return 0;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *mw)
{
	*mw = 100000 + looks;
	return first(device);
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
	*celsius = 40 + looks;
	return sensor == 0 ? first(device) : NOT_SUPPORTED;
}

int nvmlDeviceGetClockInfo(void *device, int clock, unsigned *mhz)
{
	*mhz = 1000 + looks;
	return clock == 1 ? first(device) : NOT_SUPPORTED;
}
