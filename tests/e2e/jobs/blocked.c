// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Threads that wait in system calls, over and over, and compare what they are given with what it must be: no EINTR, no sleep
 * that is too short, no byte lost. blocked CALL SECONDS: of one kind, or "all". At the end a line a thread, and the exit
 * status says whether something was wrong. All registers that a system call keeps are checked, too.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NAP_NS 100000000LL

struct worker {
	const char *name;
	long (*once)(struct worker *w); /* 0, or what was wrong */
	int fds[2];
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	sem_t sem;
	uint64_t sent, seen;
	long rounds, wrong, shortest_us, longest_us;
	pthread_t thread, feeder;
};

static volatile int over;

static long long now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

/* A wait for NAP_NS that nothing ends. */
static long check_nap(struct worker *w, long long began, long got, long wanted)
{
	long us = (now_ns() - began) / 1000;

	w->shortest_us = !w->shortest_us || us < w->shortest_us ? us : w->shortest_us;
	w->longest_us = us > w->longest_us ? us : w->longest_us;
	if (got != wanted)
		return got < 0 ? -errno : -1000;
	return us * 1000LL < NAP_NS - (w->name[0] == 'e' ? 1000000 : 0) ? -1001 : 0; /* epoll counts ms */
}

static long nap(struct worker *w)
{
	struct timespec t = {.tv_nsec = NAP_NS};
	long long began = now_ns();

	return check_nap(w, began, nanosleep(&t, NULL), 0);
}

static long nap_until(struct worker *w)
{
	long long began = now_ns(), end = began + NAP_NS;
	struct timespec t = {end / 1000000000, end % 1000000000};
	int err = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);

	errno = err;
	return check_nap(w, began, err ? -1 : 0, 0);
}

static long poll_nap(struct worker *w)
{
	struct pollfd fd = {.fd = w->fds[0], .events = POLLIN};
	long long began = now_ns();

	return check_nap(w, began, poll(&fd, 1, NAP_NS / 1000000), 0);
}

static long select_nap(struct worker *w)
{
	struct timeval t = {.tv_usec = NAP_NS / 1000};
	long long began = now_ns();
	fd_set set;

	FD_ZERO(&set);
	FD_SET(w->fds[0], &set);
	return check_nap(w, began, select(w->fds[0] + 1, &set, NULL, NULL, &t), 0);
}

static long epoll_nap(struct worker *w)
{
	struct epoll_event event;
	long long began = now_ns();

	return check_nap(w, began, epoll_wait(w->fds[0], &event, 1, NAP_NS / 1000000), 0);
}

static long cond_nap(struct worker *w)
{
	struct timespec t;
	long long began = now_ns();
	int err;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += NAP_NS;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	pthread_mutex_lock(&w->mutex);
	err = pthread_cond_timedwait(&w->cond, &w->mutex, &t);
	pthread_mutex_unlock(&w->mutex);
	errno = err;
	return check_nap(w, began, err == ETIMEDOUT ? 0 : -1, 0);
}

static long wait_sem(struct worker *w)
{
	return sem_wait(&w->sem) ? -errno : 0;
}

static long take(struct worker *w, ssize_t got, uint64_t number)
{
	if (got != sizeof(number))
		return got < 0 ? -errno : -1002;
	return number == ++w->seen ? 0 : -1003;
}

static long read_pipe(struct worker *w)
{
	uint64_t number = 0;
	ssize_t got = read(w->fds[0], &number, sizeof(number));

	return take(w, got, number);
}

static long receive(struct worker *w)
{
	uint64_t number = 0;
	ssize_t got = recv(w->fds[0], &number, sizeof(number), 0);

	return take(w, got, number);
}

static long accept_one(struct worker *w)
{
	int fd = accept(w->fds[0], NULL, NULL);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static long wait_child(struct worker *w)
{
	struct timespec t = {.tv_nsec = NAP_NS};
	pid_t pid = fork();
	int status;

	if (!pid) {
		nanosleep(&t, NULL);
		_exit(7);
	}
	return waitpid(pid, &status, 0) != pid ? -errno : WEXITSTATUS(status) != 7 ? -1004 : 0;
}

/* Vector registers, those that no call changes, and the red zone, around a sleep by the bare instruction. */
static long registers(struct worker *w)
{
	struct {
		uint64_t in[16], out[16], rest[2]; /* at 0, 128, 256 */
		struct timespec t;                 /* at 272 */
	} r = {.t.tv_nsec = NAP_NS};
	long long began = now_ns();
	long got;

	for (int i = 0; i < 16; i++)
		r.in[i] = (uint64_t)random() << 32 ^ random() ^ (uint64_t)w->rounds << 20;
	__asm__ volatile(
		"movq 0(%%rbx), %%xmm0\n movq 8(%%rbx), %%xmm1\n movq 16(%%rbx), %%xmm7\n"
		"movq 24(%%rbx), %%xmm15\n movhps 32(%%rbx), %%xmm15\n"
		"mov 40(%%rbx), %%r8\n mov 48(%%rbx), %%r9\n mov 56(%%rbx), %%r10\n mov 64(%%rbx), %%rdx\n"
		"mov 72(%%rbx), %%r15\n mov 80(%%rbx), %%r13\n mov 88(%%rbx), %%r12\n mov %%r12, -8(%%rsp)\n"
		"mov %[number], %%eax\n lea 272(%%rbx), %%rdi\n xor %%esi, %%esi\n"
		"syscall\n"
		"movq %%xmm0, 128(%%rbx)\n movq %%xmm1, 136(%%rbx)\n movq %%xmm7, 144(%%rbx)\n"
		"movq %%xmm15, 152(%%rbx)\n movhps %%xmm15, 160(%%rbx)\n"
		"mov %%r8, 168(%%rbx)\n mov %%r9, 176(%%rbx)\n mov %%r10, 184(%%rbx)\n mov %%rdx, 192(%%rbx)\n"
		"mov %%r15, 200(%%rbx)\n mov %%r13, 208(%%rbx)\n mov -8(%%rsp), %%r15\n mov %%r15, 216(%%rbx)\n"
		"mov %%rdi, 256(%%rbx)\n mov %%rsi, 264(%%rbx)\n"
		: "=&a"(got)
		: "b"(&r), [number] "i"(SYS_nanosleep)
		: "rcx", "r11", "rdi", "rsi", "rdx", "r8", "r9", "r10", "r12", "r13", "r15", "xmm0", "xmm1", "xmm7",
		  "xmm15", "memory", "cc");
	if (memcmp(r.in, r.out, 12 * 8) || r.rest[0] != (uint64_t)&r.t || r.rest[1])
		return -1005;
	errno = (int)-got;
	return check_nap(w, began, got ? -1 : 0, 0);
}

static __thread volatile long handled;

static void count(int signal)
{
	handled++;
}

/* EINTR is for those that had a signal. */
static long nap_with_signals(struct worker *w)
{
	struct timespec t = {.tv_nsec = NAP_NS};
	long before = handled;
	int got = nanosleep(&t, NULL);

	w->seen += handled - before;
	return got && errno != EINTR ? -errno : got && handled == before ? -1006 : 0;
}

static void nap_handler(int signal)
{
	struct timespec t = {.tv_nsec = NAP_NS};

	nanosleep(&t, NULL);
}

static long nap_in_handler(struct worker *w)
{
	return raise(SIGUSR2);
}

/* The feeder has it nearly all the time. */
static long wait_lock(struct worker *w)
{
	pthread_mutex_lock(&w->mutex);
	pthread_mutex_unlock(&w->mutex);
	usleep(1000);
	return 0;
}

/* What others wait for comes at times of all kinds. */
static void *feed(void *arg)
{
	struct worker *w = arg;
	struct sockaddr_un address;
	socklen_t bytes = sizeof(address);
	unsigned seed = (unsigned)(uintptr_t)w;

	while (!over) {
		usleep(rand_r(&seed) % 30000);
		w->sent++;
		if (w->once == wait_sem) {
			sem_post(&w->sem);
		} else if (w->once == nap_with_signals) {
			pthread_kill(w->thread, SIGUSR1);
		} else if (w->once == wait_lock) {
			pthread_mutex_lock(&w->mutex);
			for (long long end = now_ns() + 200 * NAP_NS; !over && now_ns() < end;)
				; /* not in a call, where it could be stopped */
			pthread_mutex_unlock(&w->mutex);
		} else if (w->once == accept_one) {
			int fd = socket(AF_UNIX, SOCK_STREAM, 0);

			getsockname(w->fds[0], (void *)&address, &bytes);
			connect(fd, (void *)&address, bytes);
			close(fd);
		} else if (write(w->fds[1], &w->sent, sizeof(w->sent)) < 0) {
			w->wrong++;
		}
	}
	return NULL;
}

static void *work(void *arg)
{
	struct worker *w = arg;

	while (!over) {
		long wrong;

		errno = 1234;
		wrong = w->once(w);
		w->rounds++;
		if (wrong) {
			w->wrong++;
			printf("%s: %ld in round %ld\n", w->name, wrong, w->rounds);
		}
	}
	return NULL;
}

static struct worker workers[] = {
	{"nanosleep", nap},
	{"abstime", nap_until},
	{"poll", poll_nap},
	{"select", select_nap},
	{"epoll", epoll_nap},
	{"cond", cond_nap},
	{"semaphore", wait_sem},
	{"read", read_pipe},
	{"recv", receive},
	{"accept", accept_one},
	{"wait", wait_child},
	{"registers", registers},
	{"signals", nap_with_signals},
};

/* Threads that must not be stopped; not among "all". */
static struct worker unsafe[] = {{"handler", nap_in_handler}, {"lock", wait_lock}};

static struct worker *find(size_t i, const char *which)
{
	size_t cnt = sizeof(workers) / sizeof(*workers);
	struct worker *w = i < cnt ? &workers[i] : i < cnt + 2 ? &unsafe[i - cnt] : NULL;

	return w && (!strcmp(which, w->name) || (i < cnt && !strcmp(which, "all"))) ? w : NULL;
}

static bool is_fed(const struct worker *w)
{
	return w->once == wait_sem || w->once == read_pipe || w->once == receive || w->once == accept_one ||
	       w->once == nap_with_signals || w->once == wait_lock;
}

static void prepare(struct worker *w)
{
	struct sockaddr_un any = {.sun_family = AF_UNIX};

	pthread_mutex_init(&w->mutex, NULL);
	pthread_cond_init(&w->cond, NULL);
	sem_init(&w->sem, 0, 0);
	if (w->once == epoll_nap) {
		w->fds[0] = epoll_create1(0);
	} else if (w->once == receive) {
		socketpair(AF_UNIX, SOCK_STREAM, 0, w->fds);
	} else if (w->once == accept_one) {
		w->fds[0] = socket(AF_UNIX, SOCK_STREAM, 0);
		bind(w->fds[0], (void *)&any, sizeof(any.sun_family)); /* a name of its own */
		listen(w->fds[0], 8);
	} else if (pipe(w->fds)) {
		abort();
	}
}

#define ALL 32

int main(int argc, char **argv)
{
	struct sigaction counts = {.sa_handler = count}, naps = {.sa_handler = nap_handler};
	struct timespec rest = {.tv_sec = 1};
	long wrong = 0, rounds = 0;
	struct worker *w;

	setvbuf(stdout, NULL, _IOLBF, 0);
	sigaction(SIGUSR1, &counts, NULL);
	sigaction(SIGUSR2, &naps, NULL);
	for (size_t i = 0; i < ALL; i++) {
		if (!(w = find(i, argv[1])))
			continue;
		prepare(w);
		pthread_create(&w->thread, NULL, work, w);
		if (is_fed(w))
			pthread_create(&w->feeder, NULL, feed, w);
	}
	printf("ready\n");
	for (long long end = now_ns() + (long long)(atof(argv[2]) * 1e9); now_ns() < end;)
		nanosleep(&rest, NULL);
	over = 1;
	for (size_t i = 0; i < ALL; i++) {
		if (!(w = find(i, argv[1])))
			continue;
		if (w->feeder)
			pthread_join(w->feeder, NULL);
		sem_post(&w->sem);
		if (w->once == accept_one || w->once == read_pipe || w->once == receive)
			pthread_detach(w->thread); /* no more comes */
		else
			pthread_join(w->thread, NULL);
		printf("%s rounds %ld wrong %ld us %ld to %ld\n", w->name, w->rounds, w->wrong, w->shortest_us,
		       w->longest_us);
		wrong += w->wrong;
		rounds += w->rounds;
	}
	printf("end rounds %ld wrong %ld\n", rounds, wrong);
	fflush(stdout);
	_exit(wrong ? 1 : 0);
}
