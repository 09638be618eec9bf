// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Usage of the host's GPUs, once a second, from NVML (libnvidia-ml.so.1, found at run time):
 * REC_GPU_USAGE; and which of them the processes of the recording use: REC_GPU_USER.
 *
 * A child process calls NVML. A call may wait for the driver for seconds, or forever when a GPU is
 * broken, and a thread in such a call could keep stepflame from ending; besides, a crash in the
 * vendor's library must not end the recording.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "include/gpu_records.h"
#include "user/session/state.h"

#define LIBRARY     "libnvidia-ml.so.1"
#define PERIOD_NS   1000000000ULL
#define DEVICES_MAX 256
#define READ_MAX    (4 * DEVICES_MAX) /* messages to read in one call */
#define USERS_MAX   64                /* processes of a GPU; of one that has more, none are known */
#define PATIENCE_MS 500               /* wait for the child to end */
#define SOCKET      3                 /* descriptor in the child */
/*
 * Programs load CUDA's driver some time after torch: without --gpu, which looks for it all the time,
 * this looks for so long.
 */
#define LOOK_NS     (5 * 1000000000ULL)
#define LOOK_FOR_NS (120 * 1000000000ULL)

/*
 * Declarations of NVIDIA's nvml.h (NVML API Reference Guide; the same since CUDA 8), which the
 * build does not need: nvmlReturn_t, of which 0 is success, nvmlUtilization_t, nvmlMemory_t,
 * NVML_TEMPERATURE_GPU, NVML_CLOCK_SM and nvmlProcessInfo_v2_t. stepflame does not use
 * nvmlDeviceGetMemoryInfo_v2, which older drivers lack, nor ..._v3 of the processes, whose struct
 * was a longer one in some drivers.
 */
#define NVML_SUCCESS         0
#define NVML_TEMPERATURE_GPU 0
#define NVML_CLOCK_SM        1

struct nvml_utilization {
	unsigned int gpu, memory; /* percent of the last sample period in which it was busy */
};

struct nvml_memory {
	unsigned long long total, free, used; /* bytes */
};

struct nvml_process {
	unsigned int pid; /* in the initial namespace */
	unsigned long long used_bytes;
	unsigned int gpu_instance, compute_instance;
};

#define NVML_FUNCTIONS(X)                                                     \
	X(nvmlInit_v2, (void))                                                \
	X(nvmlDeviceGetCount_v2, (unsigned int *))                            \
	X(nvmlDeviceGetHandleByIndex_v2, (unsigned int, void **))             \
	X(nvmlDeviceGetName, (void *, char *, unsigned int))                  \
	X(nvmlDeviceGetUtilizationRates, (void *, struct nvml_utilization *)) \
	X(nvmlDeviceGetMemoryInfo, (void *, struct nvml_memory *))            \
	X(nvmlDeviceGetPowerUsage, (void *, unsigned int *))                  \
	X(nvmlDeviceGetTemperature, (void *, int, unsigned int *))            \
	X(nvmlDeviceGetClockInfo, (void *, int, unsigned int *))              \
	X(nvmlDeviceGetComputeRunningProcesses_v2, (void *, unsigned int *, struct nvml_process *))

struct nvml_functions {
#define X(name, arguments) int(*name) arguments;
	NVML_FUNCTIONS(X)
#undef X
};

/* From the child to stepflame. */
struct usage_message {
	struct rec_gpu_usage usage;
	uint64_t cpu_ns, rss_bytes; /* of the child */
	uint32_t users[USERS_MAX], user_cnt;
};

/* Session state. */
struct nvml {
	pid_t pid; /* of the child; 0: no child */
	int socket;
	bool started; /* it has been, and is not once more */
	uint64_t cpu_ns, rss_bytes;
};

/* ---- the child ---- */

static bool load_nvml_functions(struct nvml_functions *f)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return false;
#define X(name, arguments) *(void **)&f->name = dlsym(library, #name);
	NVML_FUNCTIONS(X)
#undef X
	return f->nvmlInit_v2 && f->nvmlDeviceGetCount_v2 && f->nvmlDeviceGetHandleByIndex_v2;
}

/*
 * Calls a function of NVML. false, with the output unchanged: this driver lacks the function, or
 * does not offer it for this GPU.
 */
#define NVML_CALL(function, ...) (f->function && f->function(__VA_ARGS__) == NVML_SUCCESS)

static void read_device_usage(const struct nvml_functions *f, void *device, struct rec_gpu_usage *usage)
{
	struct nvml_utilization utilization;
	struct nvml_memory memory;
	unsigned int value;

	usage->busy_percent = usage->memory_busy_percent = usage->power_mw = GPU_UNKNOWN;
	usage->temperature_c = usage->sm_mhz = GPU_UNKNOWN;
	if (!NVML_CALL(nvmlDeviceGetName, device, usage->name, sizeof(usage->name)))
		usage->name[0] = 0;
	usage->name[sizeof(usage->name) - 1] = 0;
	if (NVML_CALL(nvmlDeviceGetUtilizationRates, device, &utilization)) {
		usage->busy_percent = utilization.gpu;
		usage->memory_busy_percent = utilization.memory;
	}
	if (NVML_CALL(nvmlDeviceGetMemoryInfo, device, &memory)) {
		usage->memory_bytes = memory.total;
		usage->memory_used_bytes = memory.used;
	}
	if (NVML_CALL(nvmlDeviceGetPowerUsage, device, &value))
		usage->power_mw = value;
	if (NVML_CALL(nvmlDeviceGetTemperature, device, NVML_TEMPERATURE_GPU, &value))
		usage->temperature_c = value;
	if (NVML_CALL(nvmlDeviceGetClockInfo, device, NVML_CLOCK_SM, &value))
		usage->sm_mhz = value;
}

static void list_device_users(const struct nvml_functions *f, void *device, struct usage_message *m)
{
	struct nvml_process processes[USERS_MAX];
	unsigned int cnt = USERS_MAX;

	if (!NVML_CALL(nvmlDeviceGetComputeRunningProcesses_v2, device, &cnt, processes))
		return;
	for (unsigned int i = 0; i < cnt && i < USERS_MAX; i++)
		m->users[m->user_cnt++] = processes[i].pid;
}

/* Sends the usage of all devices once. false: stepflame is gone. */
static bool send_all_usage(const struct nvml_functions *f, int socket)
{
	unsigned int cnt = 0;

	if (!NVML_CALL(nvmlDeviceGetCount_v2, &cnt))
		return true;
	for (unsigned int i = 0; i < cnt && i < DEVICES_MAX; i++) {
		struct usage_message m = {.usage.hdr = {.type = REC_GPU_USAGE, .size = sizeof(m.usage)}};
		void *device;

		if (!NVML_CALL(nvmlDeviceGetHandleByIndex_v2, i, &device))
			continue;
		m.usage.device = i;
		m.usage.time_ns = session__now_ns();
		read_device_usage(f, device, &m.usage);
		list_device_users(f, device, &m);
		m.cpu_ns = session__cpu_ns();
		m.rss_bytes = session__rss_bytes();
		if (send(socket, &m, sizeof(m), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EAGAIN)
			return false;
	}
	return true;
}

/* Sends usage until stepflame closes its end of the socket. */
static void serve_usage(int socket)
{
	struct pollfd closed = {.fd = socket, .events = POLLIN};
	uint64_t now, next = session__now_ns();
	struct nvml_functions f = {0};

	if (!load_nvml_functions(&f) || f.nvmlInit_v2() != NVML_SUCCESS)
		return;
	while (send_all_usage(&f, socket)) {
		now = session__now_ns();
		next = next + PERIOD_NS > now ? next + PERIOD_NS : now;
		if (poll(&closed, 1, (next - now) / 1000000) > 0)
			return;
	}
}

/*
 * Detaches the child from the terminal, whose signals are for stepflame, and discards what the
 * library prints.
 */
static void become_nvml_child(int socket)
{
	int null, kept = fcntl(socket, F_DUPFD, 4);

	setsid();
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "stepflame-nvml");
	null = open("/dev/null", O_RDWR);
	for (int fd = 0; fd < 3; fd++)
		dup2(null, fd);
	dup2(kept, SOCKET);
	close_range(SOCKET + 1, ~0U, 0);
}

/* ---- stepflame ---- */

static struct nvml *state_of(const struct session *s)
{
	return session__state(s, SOURCE_NVML);
}

/* It is no error if the host lacks the library or a driver. 0 or -errno. */
static int start_child(struct nvml *nvml)
{
	int sockets[2];
	pid_t pid;

	nvml->started = true;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets))
		return -errno;
	pid = fork();
	if (!pid) {
		become_nvml_child(sockets[1]);
		serve_usage(SOCKET);
		_exit(0);
	}
	close(sockets[1]);
	if (pid < 0) {
		close(sockets[0]);
		return -EAGAIN;
	}
	nvml->pid = pid;
	nvml->socket = sockets[0];
	return 0;
}

/* Where it is known already, the child starts before there are probes and maps, of which it then has no copy. */
static int prepare(struct session *s)
{
	return s->options.gpu != SESSION_GPU_OFF || s->options.usage ? start_child(state_of(s)) : 0;
}

static bool may_start(const struct session *s)
{
	return s->options.usage_of_users && !state_of(s)->started;
}

static int looked_at(struct session *s, struct target *t)
{
	int err = may_start(s) && process__file(&t->process, "libcuda.so") ? start_child(state_of(s)) : 0;

	if (err)
		session__note(s, "GPU usage: NVML could not be asked: %s", strerror(-err));
	return 0;
}

static uint64_t look_again_ns(const struct session *s, const struct target *t)
{
	return may_start(s) && t->has_torch && !t->forked && session__now_ns() - t->torch_ns < LOOK_FOR_NS ? LOOK_NS
													   : 0;
}

/* Ends the child by closing the socket. Returns NULL, or what went wrong with the child. */
static const char *stop_child(struct nvml *nvml)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	bool ended = false;
	int status = 0;

	close(nvml->socket);
	for (int i = 0; i < PATIENCE_MS && !ended; i++) {
		ended = waitpid(nvml->pid, &status, WNOHANG) != 0;
		if (!ended)
			nanosleep(&pause, NULL);
	}
	if (!ended) {
		kill(nvml->pid, SIGKILL);
		nanosleep(&pause, NULL);
		waitpid(nvml->pid, NULL, WNOHANG);
	}
	nvml->pid = 0;
	nvml->rss_bytes = 0;
	return !ended ? "did not answer" : WIFSIGNALED(status) ? "crashed" : NULL;
}

static void stop_child_and_note(struct session *s)
{
	const char *wrong = stop_child(state_of(s));

	if (wrong)
		session__note(s, "GPU usage: NVML (%s) %s: figures are missing", LIBRARY, wrong);
}

/* Of a target: which GPUs it is known to use, a bit for each. */
struct used_gpus {
	uint64_t bits[DEVICES_MAX / 64];
};

/* Says once of each process of the recording which GPUs it uses. */
static void emit_users(struct session *s, const struct usage_message *m)
{
	uint32_t device = m->usage.device;

	/* NVML's pids are those of the initial namespace */
	if (s->selftest.pid_level || device >= DEVICES_MAX)
		return;
	for (uint32_t i = 0; i < m->user_cnt && i < USERS_MAX; i++) {
		struct target *t = targets__find(s, m->users[i]);
		struct used_gpus *used = t ? target__state(t, SOURCE_NVML) : NULL;
		struct rec_gpu_user user = {
			.hdr = {.type = REC_GPU_USER, .size = sizeof(user)}, .pid = m->users[i], .device = device};

		if (!used || used->bits[device / 64] >> device % 64 & 1)
			continue;
		used->bits[device / 64] |= 1ull << device % 64;
		session__emit(s, &user.hdr);
	}
}

/* Emits the messages that have arrived, without waiting. */
static void tend(struct session *s)
{
	struct nvml *nvml = state_of(s);
	struct usage_message m;
	ssize_t got = -1;

	if (!nvml->pid)
		return;
	for (int i = 0; i < READ_MAX; i++) {
		got = recv(nvml->socket, &m, sizeof(m), MSG_DONTWAIT);
		if (got != sizeof(m))
			break;
		/*
		 * NVIDIA's library may have corrupted the child's memory: do not rely on what the
		 * child sent.
		 */
		m.usage.hdr = (struct rec_hdr){.type = REC_GPU_USAGE, .size = sizeof(m.usage)};
		m.usage.name[sizeof(m.usage.name) - 1] = 0;
		nvml->cpu_ns = m.cpu_ns;
		nvml->rss_bytes = m.rss_bytes;
		if (!s->opened)
			continue;
		session__emit(s, &m.usage.hdr);
		emit_users(s, &m);
	}
	if (!got)
		stop_child_and_note(s); /* the child has ended: it found no library or no driver */
}

static void end(struct session *s)
{
	tend(s);
	if (state_of(s)->pid)
		stop_child_and_note(s);
}

static void stop_quietly(struct session *s)
{
	if (state_of(s)->pid)
		stop_child(state_of(s));
}

static void cost(const struct session *s, struct rec_cost *cost)
{
	cost->own_cpu_ns += state_of(s)->cpu_ns;
	cost->own_rss_bytes += state_of(s)->rss_bytes;
}

const struct source source_nvml = {
	.session_bytes = sizeof(struct nvml),
	.target_bytes = sizeof(struct used_gpus),
	.prepare = prepare,
	.looked_at = looked_at,
	.look_again_ns = look_again_ns,
	.tend = tend,
	.end = end,
	.restore = stop_quietly,
	.cost = cost,
};
