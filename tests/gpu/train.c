/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A training job that is nothing but calls: steps of copies, launches, collectives, a graph and a wait. It says
 * `ready PID` and waits for its go file as the jobs of tests/e2e/jobs do; the truth is in the log of the doubles, and
 * the times of its steps are in --out.
 */
#include <argp.h>
#include <cuda_runtime_api.h>
#include <cupti.h>
#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/gpu/kernels.h"

#define KERNEL_COUNT   6
#define STREAMS_MAX    65536
#define JITTER_KERNELS 100 /* kernels and grids together */

enum fork_mode { FORK_NONE, FORK_BEFORE, FORK_AFTER };

static struct options {
	int steps, launches, copies, sets, threads, streams, devices, graph, nccl, sleep_us, each, jitter;
	unsigned long kernel_ns, bytes;
	bool ptsz, early;
	enum fork_mode fork;
	int profile_from, profile_to;
	const char *wait, *out;
} options = {.steps = 10,
	     .launches = 8,
	     .copies = 2,
	     .sets = 1,
	     .threads = 1,
	     .streams = 1,
	     .devices = 1,
	     .kernel_ns = 50000,
	     .bytes = 1 << 20};

static const struct argp_option table[] = {
	{"steps", 's', "N", 0, "steps of each thread", 0},
	{"launches", 'l', "N", 0, "kernels per step", 0},
	{"copies", 'c', "N", 0, "copies per step, to the device and back by turns", 0},
	{"sets", 'm', "N", 0, "memsets per step", 0},
	{"threads", 't', "N", 0, "threads that train", 0},
	{"streams", 'S', "N", 0, "streams of each thread, used by turns; 0: the default stream", 0},
	{"devices", 'd', "N", 0, "threads use them by turns", 0},
	{"graph", 'g', "N", 0, "launch a graph of N kernels per step", 0},
	{"nccl", 'n', "N", 0, "collectives per step, in a group where there are several", 0},
	{"kernel-ns", 'k', "NS", 0, "how long a kernel runs", 0},
	{"jitter", 'j', "PERCENT", 0, "kernels at random, that run up to so much longer", 0},
	{"bytes", 'b', "N", 0, "of a copy, a set, a collective", 0},
	{"sleep-us", 'u', "US", 0, "between steps", 0},
	{"sync-each", 'e', "N", 0, "wait for the device behind every so many steps", 0},
	{"ptsz", 'p', NULL, 0, "call the variants for a default stream per thread", 0},
	{"early", 'E', NULL, 0, "initialize CUDA before the wait", 0},
	{"profile", 'P', "FROM:TO", 0,
	 "be a tool that uses CUPTI itself, from the begin of one step to that of another", 0},
	{"fork", 'f', "before|after", 0, "fork a child that trains too, before or after CUDA is initialized", 0},
	{"wait", 'w', "FILE", 0, "train only when FILE exists", 0},
	{"out", 'o', "FILE", 0, "write the times of the steps there", 0},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	int *const numbers[128] = {
		['s'] = &o->steps,    ['l'] = &o->launches, ['c'] = &o->copies,  ['m'] = &o->sets,
		['t'] = &o->threads,  ['S'] = &o->streams,  ['d'] = &o->devices, ['g'] = &o->graph,
		['u'] = &o->sleep_us, ['n'] = &o->nccl,     ['e'] = &o->each,    ['j'] = &o->jitter,
	};

	if (key > 0 && key < 128 && numbers[key])
		*numbers[key] = atoi(arg);
	else if (key == 'k')
		o->kernel_ns = strtoul(arg, NULL, 0);
	else if (key == 'b')
		o->bytes = strtoul(arg, NULL, 0);
	else if (key == 'p')
		o->ptsz = true;
	else if (key == 'E')
		o->early = true;
	else if (key == 'f')
		o->fork = strcmp(arg, "after") ? FORK_BEFORE : FORK_AFTER;
	else if (key == 'P')
		return sscanf(arg, "%d:%d", &o->profile_from, &o->profile_to) == 2 ? 0 : ARGP_ERR_UNKNOWN;
	else if (key == 'w')
		o->wait = arg;
	else if (key == 'o')
		o->out = arg;
	else
		return ARGP_ERR_UNKNOWN;
	return 0;
}

/* Of the runtime, as its header says them only where it is asked for them instead of the others. */
cudaError_t cudaLaunchKernel_ptsz(const void *host, dim3 grid, dim3 block, void **args, size_t shared,
				  cudaStream_t stream);
cudaError_t cudaMemcpyAsync_ptsz(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
				 cudaStream_t stream);
cudaError_t cudaMemsetAsync_ptsz(void *to, int value, size_t bytes, cudaStream_t stream);

struct trainer {
	pthread_t id;
	int index, device;
	unsigned int seed;
	void *memory, *host;
	cudaStream_t *streams;
	int stream_count, next;
	cudaEvent_t event;
	cudaGraphExec_t graph;
	ncclComm_t comm;
	unsigned long *times; /* of its steps, start and end */
};

static void check(int error, const char *what)
{
	if (!error)
		return;
	fprintf(stderr, "%s: error %d\n", what, error);
	exit(1);
}

#define CHECK(call) check(call, #call)

static unsigned long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ul + t.tv_nsec;
}

static cudaStream_t stream_of(struct trainer *t)
{
	return t->stream_count ? t->streams[t->next++ % t->stream_count] : NULL;
}

static void launch(struct trainer *t, int i, cudaStream_t stream)
{
#define X(name) (const void *)name,
	static const void *const kernels[] = {KERNELS(X)};
#undef X
	int which = options.jitter ? rand_r(&t->seed) % JITTER_KERNELS : i;
	dim3 grid = {which + 1, 2, 1}, block = {128, 1, 1};
	unsigned long ns = options.kernel_ns * (which % KERNEL_COUNT + 1), more = ns * options.jitter / 100;
	void *args[] = {&ns, &t->memory, &t->memory};

	if (more)
		ns += rand_r(&t->seed) % more;
	if (options.ptsz)
		CHECK(cudaLaunchKernel_ptsz(kernels[which % KERNEL_COUNT], grid, block, args, 1024, stream));
	else
		CHECK(cudaLaunchKernel(kernels[which % KERNEL_COUNT], grid, block, args, 1024, stream));
}

static void make_graph(struct trainer *t)
{
	cudaGraph_t graph;
	cudaStream_t stream;

	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	for (int i = 0; i < options.graph; i++) {
		dim3 one = {1, 1, 1};
		unsigned long ns = options.kernel_ns;
		void *args[] = {&ns, &t->memory, &t->memory};

		CHECK(cudaLaunchKernel((const void *)_Z9layernormmPf, one, one, args, 0, stream));
	}
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaGraphInstantiate(&t->graph, graph, 0));
	CHECK(cudaGraphDestroy(graph));
}

static void prepare(struct trainer *t)
{
	ncclUniqueId id;

	t->stream_count = options.streams < STREAMS_MAX ? options.streams : STREAMS_MAX;
	t->streams = calloc(t->stream_count + 1, sizeof(*t->streams));
	t->times = calloc(options.steps * 2 + 1, sizeof(*t->times));
	CHECK(cudaSetDevice(t->device));
	CHECK(cudaMalloc(&t->memory, options.bytes));
	CHECK(cudaMallocHost(&t->host, options.bytes));
	CHECK(cudaEventCreateWithFlags(&t->event, cudaEventDisableTiming));
	for (int i = 0; i < t->stream_count; i++)
		CHECK(cudaStreamCreateWithFlags(&t->streams[i], cudaStreamNonBlocking));
	if (options.graph)
		make_graph(t);
	if (!options.nccl)
		return;
	CHECK(ncclGetUniqueId(&id));
	CHECK(ncclCommInitRank(&t->comm, options.threads, id, t->index));
}

static void copy(struct trainer *t, int i)
{
	bool up = i % 2 == 0;
	void *to = up ? t->memory : t->host, *from = up ? t->host : t->memory;
	enum cudaMemcpyKind kind = up ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;

	if (options.ptsz)
		CHECK(cudaMemcpyAsync_ptsz(to, from, options.bytes, kind, stream_of(t)));
	else
		CHECK(cudaMemcpyAsync(to, from, options.bytes, kind, stream_of(t)));
}

static void collectives(struct trainer *t)
{
	cudaStream_t stream = stream_of(t);

	if (options.nccl > 1)
		CHECK(ncclGroupStart());
	for (int i = 0; i < options.nccl; i++)
		CHECK(ncclAllReduce(t->memory, t->memory, options.bytes / 4, ncclFloat32, ncclSum, t->comm, stream));
	if (options.nccl > 1)
		CHECK(ncclGroupEnd());
}

static void step(struct trainer *t, int index)
{
	for (int i = 0; i < options.copies; i++)
		copy(t, i);
	for (int i = 0; i < options.sets; i++) {
		if (options.ptsz)
			CHECK(cudaMemsetAsync_ptsz(t->memory, i, options.bytes, stream_of(t)));
		else
			CHECK(cudaMemsetAsync(t->memory, i, options.bytes, stream_of(t)));
	}
	for (int i = 0; i < options.launches; i++)
		launch(t, i, stream_of(t));
	if (options.graph)
		CHECK(cudaGraphLaunch(t->graph, stream_of(t)));
	if (options.nccl)
		collectives(t);
	CHECK(cudaEventRecord(t->event, stream_of(t)));
	CHECK(cudaEventSynchronize(t->event));
	if (options.each && index % options.each == 0)
		CHECK(cudaDeviceSynchronize());
}

static void ignore(void *userdata, CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void *data)
{
}

/* As a profiler of the user's own: it is there, or it says that it could not be. */
static void profile(int step)
{
	static CUpti_SubscriberHandle subscriber;
	static void *library;
	__typeof__(cuptiSubscribe) *subscribe;
	__typeof__(cuptiUnsubscribe) *unsubscribe;

	if (options.profile_from == options.profile_to)
		return;
	if (!library)
		library = dlopen("libcupti.so.13", RTLD_NOW);
	*(void **)&subscribe = library ? dlsym(library, "cuptiSubscribe") : NULL;
	*(void **)&unsubscribe = library ? dlsym(library, "cuptiUnsubscribe") : NULL;
	if (!subscribe || !unsubscribe)
		exit(1);
	if (step == options.profile_from && subscribe(&subscriber, ignore, NULL)) {
		subscriber = NULL;
		printf("CUPTI is taken\n");
		fflush(stdout);
	}
	if (step == options.profile_to && subscriber)
		CHECK(unsubscribe(subscriber));
}

static void *train(void *arg)
{
	struct trainer *t = arg;

	prepare(t);
	for (int i = 0; i < options.steps; i++) {
		if (!t->index)
			profile(i);
		t->times[i * 2] = now();
		step(t, i);
		t->times[i * 2 + 1] = now();
		if (options.sleep_us)
			usleep(options.sleep_us);
	}
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaFree(t->memory));
	CHECK(cudaFreeHost(t->host));
	return NULL;
}

static void train_all(struct trainer *trainers)
{
	for (int i = 0; i < options.threads; i++) {
		trainers[i].index = i;
		trainers[i].device = i % options.devices;
	}
	for (int i = 1; i < options.threads; i++)
		check(pthread_create(&trainers[i].id, NULL, train, &trainers[i]), "pthread_create");
	train(&trainers[0]);
	for (int i = 1; i < options.threads; i++)
		pthread_join(trainers[i].id, NULL);
}

static void write_times(const struct trainer *trainers)
{
	FILE *f = options.out ? fopen(options.out, "w") : NULL;

	if (!f)
		return;
	fprintf(f, "{\"pid\": %d, \"threads\": [", getpid());
	for (int i = 0; i < options.threads; i++) {
		fprintf(f, "%s[", i ? ", " : "");
		for (int j = 0; j < options.steps; j++)
			fprintf(f, "%s[%lu, %lu]", j ? ", " : "", trainers[i].times[j * 2],
				trainers[i].times[j * 2 + 1]);
		fprintf(f, "]");
	}
	fprintf(f, "]}\n");
	fclose(f);
}

static void wait_for_go(void)
{
	printf("ready %d\n", getpid());
	fflush(stdout);
	while (options.wait && access(options.wait, F_OK))
		usleep(1000);
}

/* The exit status of the child: after CUDA was initialized it cannot be used in a child, which then says so. */
static int end_child(pid_t pid)
{
	int status = 0;

	if (pid > 0 && waitpid(pid, &status, 0) != pid)
		return 1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv)
{
	struct argp argp = {.options = table, .parser = parse, .doc = "A training job that is nothing but calls."};
	struct trainer *trainers;
	pid_t pid = -1;

	argp_parse(&argp, argc, argv, 0, NULL, &options);
	trainers = calloc(options.threads, sizeof(*trainers));
	if (!trainers)
		return 1;
	if (options.fork == FORK_BEFORE)
		pid = fork();
	if (options.early || options.fork == FORK_AFTER)
		CHECK(cudaFree(NULL));
	if (options.fork == FORK_AFTER)
		pid = fork();
	if (!pid && options.fork == FORK_AFTER)
		return cudaFree(NULL) == cudaErrorInitializationError ? 0 : 1;
	if (pid)
		wait_for_go();
	else
		while (options.wait && access(options.wait, F_OK))
			usleep(1000);
	train_all(trainers);
	if (pid)
		write_times(trainers);
	return pid > 0 ? end_child(pid) : 0;
}
