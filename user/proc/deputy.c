// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/proc/deputy.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "user/lib/clock.h"
#include "user/lib/log.h"
#include "user/lib/map.h"
#include "user/proc/proc.h"

#define PATIENCE_MS 2000
/* Many such processes must not stop stepflame for long: after so much of a minute, it waits less. */
#define LOST_MS       6000
#define IMPATIENCE_MS 100
#define PERIOD_MS     60000
/* A process that has not answered is asked again after this time, then after twice as long, up to 2^AGAIN_MAX times as long. */
#define AGAIN_MS  10000
#define AGAIN_MAX 6
/* A deputy that waits for a processor is not blocked by the target; how often that is accepted. */
#define EXTENSIONS     15
#define SILENT_MIN     256        /* processes to remember before it is time to forget those that have ended */
#define KILLED_MAX     64         /* deputies that may not have ended yet */
#define GIVE_BACK_FROM (1u << 20) /* bytes of an answer whose memory is not kept */

/* Shared by stepflame and its deputy. */
struct deputy_area {
	deputy_work work; /* the same address in both: one is a fork of the other */
	int result;
	int handed; /* a descriptor of the deputy */
	_Alignas(16) char in[DEPUTY_IN_BYTES];
	_Alignas(4096) struct deputy_out out;
};

static struct {
	pid_t owner; /* the process that has started it: a fork of stepflame has none yet */
	pid_t pid;   /* 0: none */
	int socket;
	struct deputy_area *area;
} deputy;
static bool is_self;

struct silent_process {
	pid_t pid;
	uint32_t times; /* that it has not answered */
	uint64_t start_time;
	uint64_t again_ms;
};
static struct map silent; /* struct silent_process */
static size_t silent_room = SILENT_MIN;

static pid_t killed[KILLED_MAX];
static uint64_t period_start_ms, lost_ms;
static unsigned int own_patience_ms;

bool deputy__is_self(void)
{
	return is_self;
}

static bool has_deputy(void)
{
	return deputy.pid && deputy.owner == getpid();
}

static uint64_t now_ms(void)
{
	return clock__ns(CLOCK_MONOTONIC) / 1000000;
}

uint64_t deputy__cpu_ns(void)
{
	clockid_t clock;

	return clock__ns(CLOCK_THREAD_CPUTIME_ID) +
	       (has_deputy() && !clock_getcpuclockid(deputy.pid, &clock) ? clock__ns(clock) : 0);
}

/* ---- in the deputy ---- */

/*
 * The deputy may outlive stepflame when even SIGKILL does not end a read: so it must keep no file
 * of stepflame open, above all no link of a probe, and no pipe whose reader waits for its end.
 */
static void become_deputy(pid_t owner, int socket)
{
	static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP, SIGALRM, SIGWINCH};

	is_self = true;
	setsid();
	for (size_t i = 0; i < sizeof(ignored) / sizeof(*ignored); i++)
		signal(ignored[i], SIG_IGN);
	prctl(PR_SET_NAME, "stepflame-reads");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (socket > 0)
		close_range(0, (unsigned int)socket - 1, 0);
	close_range((unsigned int)socket + 1, ~0U, 0);
	if (getppid() != owner)
		_exit(0);
}

static void serve(int socket, struct deputy_area *area)
{
	char byte;

	deputy.area = area;
	area->handed = -1;
	while (recv(socket, &byte, 1, 0) == 1) {
		area->out.size = 0;
		area->result = area->work(area->in, &area->out);
		if (send(socket, &byte, 1, MSG_NOSIGNAL) != 1)
			break;
	}
	_exit(0);
}

void deputy__hand(int fd)
{
	close(deputy.area->handed);
	deputy.area->handed = fd;
}

/* ---- start and end ---- */

/* A place for one more that is killed. KILLED_MAX: none, since so many have not ended. */
static size_t reap_killed(void)
{
	size_t free_at = KILLED_MAX;

	for (size_t i = 0; i < KILLED_MAX; i++) {
		if (killed[i] && waitpid(killed[i], NULL, WNOHANG))
			killed[i] = 0;
		free_at = killed[i] ? free_at : i;
	}
	return free_at;
}

/* -EAGAIN: too many are killed and have not ended. */
static int start_deputy(void)
{
	struct deputy_area *area =
		mmap(NULL, sizeof(*area), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	pid_t owner = getpid(), pid;
	int sockets[2], err;

	if (area == MAP_FAILED)
		return -errno;
	if (reap_killed() == KILLED_MAX) {
		munmap(area, sizeof(*area));
		return -EAGAIN;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets)) {
		err = -errno;
		munmap(area, sizeof(*area));
		return err;
	}
	pid = fork();
	if (!pid) {
		become_deputy(owner, sockets[1]);
		serve(sockets[1], area);
	}
	err = -errno;
	close(sockets[1]);
	if (pid < 0) {
		close(sockets[0]);
		munmap(area, sizeof(*area));
		return err;
	}
	deputy.owner = owner;
	deputy.pid = pid;
	deputy.socket = sockets[0];
	deputy.area = area;
	return 0;
}

/* Does not wait for its end, which may never come; later calls reap it. */
static void kill_deputy(void)
{
	close(deputy.socket);
	munmap(deputy.area, sizeof(*deputy.area));
	kill(deputy.pid, SIGKILL);
	killed[reap_killed()] = deputy.pid; /* it was started when there was a place */
	deputy.pid = 0;
}

/* ---- processes that do not answer ---- */

static bool is_silent(const struct silent_process *process)
{
	struct proc_stat stat;

	return !proc__stat(process->pid, 0, &stat) && stat.start_time == process->start_time;
}

static struct silent_process *find_silent(pid_t pid)
{
	struct silent_process *process = MAP_FIND(&silent, struct silent_process, &pid);

	return process && is_silent(process) ? process : NULL;
}

bool deputy__gave_up(pid_t pid)
{
	return find_silent(pid) != NULL;
}

/* Forgets those that have ended. */
static void forget_silent(void)
{
	const struct silent_process *all = silent.items.items;
	struct map kept = {0};

	for (size_t i = 0; i < silent.items.cnt; i++) {
		struct silent_process *process =
			is_silent(&all[i]) ? MAP_ADD(&kept, struct silent_process, &all[i].pid) : NULL;

		if (process)
			*process = all[i];
	}
	map__free(&silent);
	silent = kept;
	silent_room = 2 * kept.items.cnt > SILENT_MIN ? 2 * kept.items.cnt : SILENT_MIN;
}

void deputy__set_patience(unsigned int ms)
{
	own_patience_ms = ms;
}

static bool has_lost_enough(uint64_t now)
{
	return lost_ms >= LOST_MS && now - period_start_ms <= PERIOD_MS;
}

/* Is the process not to be asked yet? Those that did not answer may together cost as much of a minute as others. */
static bool is_refused(const struct silent_process *process)
{
	uint64_t now = now_ms();

	return process && !own_patience_ms && (now < process->again_ms || has_lost_enough(now));
}

bool deputy__refuses(pid_t pid)
{
	return is_refused(find_silent(pid));
}

static unsigned int patience_ms(pid_t pid)
{
	return own_patience_ms                                     ? own_patience_ms
	       : has_lost_enough(now_ms()) || deputy__gave_up(pid) ? IMPATIENCE_MS
								   : PATIENCE_MS;
}

/* Says it of a process once. ran: the deputy was not blocked. */
static void warn_silent(pid_t pid, uint64_t waited_ms, bool ran)
{
	if (ran)
		log__warn(
			"give stepflame more CPU time (its nice value, its cgroup's cpu.weight), or the machine less "
			"to do",
			"process %d could not be read within %.1f s, though nothing blocked the process that reads for "
			"stepflame: it had too little CPU time, or too much to read; stepflame tries again later",
			pid, waited_ms / 1e3);
	else
		log__warn("find out what its memory and files wait for (FUSE, NFS, userfaultfd)",
			  "process %d is not readable: it does not answer reads of its memory or files within %.1f s; "
			  "stepflame leaves it alone, and tries again later",
			  pid, waited_ms / 1e3);
}

static void give_up(pid_t pid, uint64_t waited_ms, bool ran)
{
	struct proc_stat stat = {0};
	struct silent_process *process;
	uint64_t now = now_ms();

	if (now - period_start_ms > PERIOD_MS) {
		period_start_ms = now;
		lost_ms = 0;
	}
	lost_ms += waited_ms;
	proc__stat(pid, 0, &stat);
	if (silent.items.cnt >= silent_room)
		forget_silent();
	process = MAP_ADD(&silent, struct silent_process, &pid);
	kill_deputy();
	if (process && process->start_time != stat.start_time)
		*process = (struct silent_process){.pid = pid, .start_time = stat.start_time};
	if (!process || !process->times)
		warn_silent(pid, waited_ms, ran);
	if (!process)
		return;
	process->again_ms = now + ((uint64_t)AGAIN_MS << process->times);
	process->times += process->times < AGAIN_MAX;
}

static void note_answer(struct silent_process *process)
{
	log__info("process %d answers reads again", process->pid);
	process->start_time = 0; /* it is no process's any more */
	process->times = 0;
}

/* ---- a work ---- */

static bool is_blocked(void)
{
	struct proc_stat stat;

	return proc__stat(deputy.pid, 0, &stat) || stat.state == 'S' || stat.state == 'D';
}

/* 0; -ETIMEDOUT; -EBUSY: likewise, and the deputy was not blocked; -EPIPE: it has died. */
static int wait_for_answer(pid_t pid, uint64_t *waited_ms)
{
	struct pollfd ready = {.fd = deputy.socket, .events = POLLIN};
	unsigned int patience = patience_ms(pid);
	uint64_t began = now_ms(), end = began + patience, now = began;
	char byte;

	for (int i = 0; i < EXTENSIONS;) {
		int got = poll(&ready, 1, (int)(end - now));

		if (got > 0)
			return recv(deputy.socket, &byte, 1, 0) == 1 ? 0 : -EPIPE;
		now = now_ms();
		*waited_ms = now - began;
		if (now < end)
			continue; /* a signal */
		if (is_blocked())
			return -ETIMEDOUT;
		end = now + patience;
		i++;
	}
	return -EBUSY;
}

static int try_work(pid_t pid, deputy_work work, const void *in, size_t in_bytes)
{
	uint64_t waited_ms = 0;
	int err = has_deputy() ? 0 : start_deputy();

	if (err)
		return err;
	if (deputy.area->out.size >= GIVE_BACK_FROM)
		madvise(&deputy.area->out, sizeof(deputy.area->out), MADV_REMOVE);
	memcpy(deputy.area->in, in, in_bytes);
	deputy.area->work = work;
	err = send(deputy.socket, "", 1, MSG_NOSIGNAL) == 1 ? wait_for_answer(pid, &waited_ms) : -EPIPE;
	if (err == -ETIMEDOUT || err == -EBUSY)
		give_up(pid, waited_ms, err == -EBUSY);
	else if (err)
		kill_deputy();
	return err == -EBUSY ? -ETIMEDOUT : err;
}

int deputy__take(void)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", is_self ? getpid() : deputy.pid, deputy.area->handed);
	fd = open(path, O_PATH | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int deputy__run(pid_t pid, deputy_work work, const void *in, size_t in_bytes, const struct deputy_out **out)
{
	struct silent_process *known = find_silent(pid);
	int err = in_bytes > DEPUTY_IN_BYTES ? -ENAMETOOLONG : is_refused(known) ? -ETIMEDOUT : 0;

	if (err)
		return err;
	if (is_self) {
		deputy.area->out.size = 0;
		if (out)
			*out = &deputy.area->out;
		return work(in, &deputy.area->out);
	}
	err = try_work(pid, work, in, in_bytes);
	if (err == -EPIPE) /* somebody has killed it */
		err = try_work(pid, work, in, in_bytes);
	if (err)
		return err;
	if (known)
		note_answer(known);
	if (out)
		*out = &deputy.area->out;
	return deputy.area->result;
}
