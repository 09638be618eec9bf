// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * libstepflame-inject.so, which CUDA's driver loads because of CUDA_INJECTION64_PATH. It creates
 * the memory that it shares with stepflame, and a thread that sleeps until stepflame wants a
 * window.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "user/inject/inject.h"

#define TICK_NS      1000000000L
#define EXIT_WAIT_NS 2000000000ULL
#define EXIT_LOOK_US 1000

static struct {
	pthread_mutex_t busy; /* held while CUPTI is called */
	struct ring ring;
	struct window window;
	char cupti_path[PATH_MAX];
	bool exits; /* the program exits: CUPTI must be left alone */
	bool forked;
} inject = {.busy = PTHREAD_MUTEX_INITIALIZER};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

/*
 * Runs while the program exits: writes what is known to the ring, and calls nothing in libraries
 * that are being unloaded.
 */
static void at_exit(void)
{
	uint64_t until = now_ns() + EXIT_WAIT_NS;

	if (inject.forked || inject.ring.control->pid != (uint32_t)getpid())
		return;
	window__hurry();
	/* pthread_mutex_timedlock would wait by a clock that someone may set back. */
	for (; pthread_mutex_trylock(&inject.busy); usleep(EXIT_LOOK_US))
		if (now_ns() > until)
			return;
	inject.exits = true;
	if (inject.window.open)
		window__end(&inject.window, __atomic_load_n(&inject.ring.control->wanted, __ATOMIC_ACQUIRE), false);
	pthread_mutex_unlock(&inject.busy);
}

static void in_child(void)
{
	inject.forked = true;
	window__forked();
}

/* Tracks whether stepflame is still alive. */
struct pulse {
	uint64_t alive_ns; /* the time that stepflame last wrote */
	uint64_t seen_ns;  /* when we saw that */
};

static bool pulse__stopped(struct pulse *pulse, const struct gpu_ring_control *control)
{
	uint64_t alive_ns = __atomic_load_n(&control->alive_ns, __ATOMIC_RELAXED), now = now_ns();

	if (alive_ns != pulse->alive_ns || !pulse->seen_ns)
		*pulse = (struct pulse){.alive_ns = alive_ns, .seen_ns = now};
	return now - pulse->seen_ns > GPU_RING_PATIENCE_NS;
}

/*
 * Registers at_exit only now: functions that were registered last run first, and ours must run
 * before those of CUPTI, which has been loaded since.
 */
static void begin(struct window *window, uint32_t wanted)
{
	static bool registered;

	window__begin(window, wanted);
	if (window->cupti.library && !registered)
		registered = !atexit(at_exit);
}

/* Handles one change of `wanted`, or the passing of time. */
static void attend(struct window *window, uint32_t wanted, uint32_t *acted, struct pulse *pulse)
{
	struct gpu_ring_control *control = window->ring->control;

	if (window->open && (wanted != *acted || pulse__stopped(pulse, control)))
		window__end(window, wanted, true);
	else if (window->open)
		window__tick(window);
	if (wanted != *acted && wanted & 1) {
		*pulse = (struct pulse){0};
		begin(window, wanted);
	} else if (wanted != *acted) {
		__atomic_store_n(&control->state, GPU_RING_ASLEEP, __ATOMIC_RELEASE);
	}
	*acted = wanted;
	__atomic_store_n(&control->seen, wanted, __ATOMIC_RELEASE);
}

/*
 * Makes this thread run like the program's main thread, and not like the thread that created it:
 * --inject may have picked that one, or the program may have bound it to a processor, or made it
 * urgent or of low priority for its own work. Settings that may not be changed stay.
 */
static void run_as_main(void)
{
	const struct sched_param ordinary = {0};
	cpu_set_t cpus[8]; /* 8,192 processors */
	int nice;

	memset(cpus, 0, sizeof(cpus));
	if (!sched_getaffinity(getpid(), sizeof(cpus), cpus))
		sched_setaffinity(0, sizeof(cpus), cpus);
	sched_setscheduler(0, SCHED_OTHER, &ordinary);
	errno = 0;
	nice = getpriority(PRIO_PROCESS, getpid());
	if (!errno)
		setpriority(PRIO_PROCESS, 0, nice);
}

static void *work(void *ctx)
{
	const struct timespec tick = {.tv_sec = TICK_NS / 1000000000, .tv_nsec = TICK_NS % 1000000000};
	struct window *window = &inject.window;
	uint32_t *word = &window->ring->control->wanted, wanted, acted = 0;
	struct pulse pulse = {0};
	bool exits = false, open = false; /* the exiting thread may end the window */

	prctl(PR_SET_NAME, GPU_RING_NAME);
	run_as_main();
	while (!exits) {
		wanted = __atomic_load_n(word, __ATOMIC_ACQUIRE);
		if (wanted == acted)
			syscall(SYS_futex, word, FUTEX_WAIT, wanted, open ? &tick : NULL, NULL, 0);
		wanted = __atomic_load_n(word, __ATOMIC_ACQUIRE);
		if (wanted == acted && !open)
			continue;
		pthread_mutex_lock(&inject.busy);
		exits = inject.exits;
		if (!exits)
			attend(window, wanted, &acted, &pulse);
		open = window->open;
		pthread_mutex_unlock(&inject.busy);
	}
	return NULL;
}

static int start_thread(void)
{
	sigset_t all, was;
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	err = pthread_create(&thread, &attr, work, NULL);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	return err;
}

__attribute__((visibility("default"))) int InitializeInjection(void);

/*
 * Called in cuInit. A failure here affects only stepflame, which then finds no shared memory; never
 * the program.
 */
int InitializeInjection(void)
{
	static uint32_t called;
	const char *path = secure_getenv("STEPFLAME_CUPTI");

	if (__atomic_exchange_n(&called, 1, __ATOMIC_ACQ_REL))
		return 1;
	if (path && strlen(path) < sizeof(inject.cupti_path))
		strcpy(inject.cupti_path, path);
	if (pthread_atfork(NULL, NULL, in_child) || ring__make(&inject.ring))
		return 1;
	inject.window = (struct window){.ring = &inject.ring, .cupti_path = inject.cupti_path};
	start_thread();
	return 1;
}
