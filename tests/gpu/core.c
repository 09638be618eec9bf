/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The bookkeeping of calls, and the log of what really happened: lines of JSON, one file for each process. */
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/gpu/sim.h"

#define LOG_LINE_MAX  2048
#define LOG_PERIOD_NS (50 * NS_PER_MS)

static __thread struct core_thread thread;
static const struct core_hooks *hooks;
static uint32_t correlation;

static struct {
	pthread_mutex_t lock;
	bool running; /* its thread */
	int fd;
	char *text;
	size_t used, room;
} out = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

uint64_t core__now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * NS_PER_SEC + t.tv_nsec;
}

struct core_thread *core__thread(void)
{
	return &thread;
}

uint32_t core__tid(void)
{
	if (!thread.tid)
		thread.tid = gettid();
	return thread.tid;
}

static const char *log_path(void)
{
	const char *path = getenv("GPU_DOUBLE_LOG");

	return path && *path ? path : NULL;
}

static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER; /* taken before out.lock */

/* Writes what there is, not holding up those who log meanwhile. */
static void log__write(void)
{
	char *text;
	size_t used;

	pthread_mutex_lock(&writing);
	pthread_mutex_lock(&out.lock);
	text = out.text;
	used = out.used;
	out.text = NULL;
	out.used = out.room = 0;
	if (used && out.fd < 0) {
		char path[4096];

		snprintf(path, sizeof(path), "%s.%d", log_path(), getpid());
		out.fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	}
	pthread_mutex_unlock(&out.lock);
	for (size_t done = 0; done < used;) {
		ssize_t n = write(out.fd, text + done, used - done);

		if (n <= 0)
			abort(); /* a log with holes is no truth */
		done += n;
	}
	free(text);
	pthread_mutex_unlock(&writing);
}

static void *log__run(void *arg)
{
	struct timespec period = {.tv_nsec = LOG_PERIOD_NS};

	for (;;) {
		nanosleep(&period, NULL);
		log__write();
	}
	return arg;
}

/* Under the lock. */
static void log__start(void)
{
	pthread_t id;

	out.running = true;
	if (pthread_create(&id, NULL, log__run, NULL))
		abort();
	pthread_setname_np(id, "gpu-double-log");
	pthread_detach(id);
}

void core__log(const char *format, ...)
{
	char line[LOG_LINE_MAX];
	va_list args;
	int n;

	if (!log_path())
		return;
	va_start(args, format);
	n = vsnprintf(line, sizeof(line) - 1, format, args);
	va_end(args);
	if (n < 0 || n >= (int)sizeof(line) - 1)
		abort();
	line[n++] = '\n';

	pthread_mutex_lock(&out.lock);
	if (!out.running)
		log__start();
	if (out.used + n > out.room) {
		out.room = out.room * 2 + 65536;
		out.text = realloc(out.text, out.room);
		if (!out.text)
			abort();
	}
	memcpy(out.text + out.used, line, n);
	out.used += n;
	pthread_mutex_unlock(&out.lock);
}

__attribute__((destructor)) static void log__end(void)
{
	if (log_path())
		log__write();
}

static void forking(void)
{
	pthread_mutex_lock(&writing);
	pthread_mutex_lock(&out.lock);
}

static void forked_parent(void)
{
	pthread_mutex_unlock(&out.lock);
	pthread_mutex_unlock(&writing);
}

static void forked_child(void)
{
	out.used = 0;
	if (out.fd >= 0)
		close(out.fd);
	out.fd = -1;
	out.running = false;
	pthread_mutex_unlock(&out.lock);
	pthread_mutex_unlock(&writing);
	memset(&thread, 0, sizeof(thread));
	sim__forked();
	if (hooks && hooks->forked)
		hooks->forked();
}

__attribute__((constructor)) static void begin(void)
{
	pthread_atfork(forking, forked_parent, forked_child);
}

static bool is_api(const struct core_call *call)
{
	return call->library == CORE_DRIVER || call->library == CORE_RUNTIME;
}

/* A call inside of another has its correlation id, as with CUPTI. */
void core__enter(struct core_call *call)
{
	call->start_ns = core__now();
	call->depth = thread.depth++;
	if (is_api(call) && !thread.api_depth++)
		thread.correlation = __atomic_add_fetch(&correlation, 1, __ATOMIC_RELAXED);
	call->correlation = thread.correlation;
	if (hooks)
		hooks->enter(call);
	call->inner_start_ns = core__now();
}

static const char *const libraries[] = {
	[CORE_DRIVER] = "driver", [CORE_RUNTIME] = "runtime", [CORE_NCCL] = "nccl",
	[CORE_CUPTI] = "cupti",   [CORE_NVML] = "nvml",
};

int core__leave(struct core_call *call, int result)
{
	call->result = result;
	if (result)
		thread.error = result;
	call->inner_end_ns = core__now();
	if (hooks)
		hooks->leave(call);
	thread.depth--;
	thread.api_depth -= is_api(call);
	call->end_ns = core__now();
	core__log("{\"log\":\"call\",\"library\":\"%s\",\"name\":\"%s\",\"tid\":%u,\"start\":%lu,\"end\":%lu,\"inner\":"
		  "[%lu,%lu],"
		  "\"correlation\":%u,\"depth\":%u,\"result\":%d,\"object\":%lu,\"bytes\":%lu,\"text\":\"%s\","
		  "\"stream\":%u,"
		  "\"context\":%u,\"device\":%u,\"recorded\":%s}",
		  libraries[call->library], call->name, core__tid(), call->start_ns, call->end_ns, call->inner_start_ns,
		  call->inner_end_ns, call->correlation, call->depth, result, call->object, call->bytes,
		  call->text ? call->text : "", call->stream, call->context, call->device,
		  call->recorded ? "true" : "false");
	return call->result;
}

int core__error(void)
{
	return thread.error;
}

const struct core_hooks *core__hooks(void)
{
	return hooks;
}

static void set_hooks(const struct core_hooks *those)
{
	__atomic_store_n(&hooks, those, __ATOMIC_RELEASE);
}

const struct core *gpu_double_core(void)
{
	static const struct core core = {
		.enter = core__enter,
		.leave = core__leave,
		.set_hooks = set_hooks,
		.log = core__log,
		.function = sim__function,
		.now = core__now,
		.context_id = sim__context_id,
		.device_of = sim__device_of,
		.stream_id = sim__stream_id,
		.current = sim__current,
		.tid = core__tid,
	};

	return &core;
}
