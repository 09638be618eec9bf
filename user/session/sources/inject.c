// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/sources/inject.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "user/lib/log.h"
#include "user/proc/proc.h"
#include "user/session/sources/inject_library.h"

/* CUDA's driver calls this function of the library that CUDA_INJECTION64_PATH names. */
#define ENTRY       "InitializeInjection"
#define PATIENCE_MS 45000
#define STOP_MS     1 /* about how long a thread of the target is stopped */
#define AT_START    "start the job with CUDA_INJECTION64_PATH=/path/to/libstepflame-inject.so instead"
#define SOCKET      3

struct load_answer {
	int err;
	struct remote_load load;
};

/* ---- the child that injects ---- */

/*
 * Makes the child finish its work even if signals end stepflame, and closes all files of stepflame
 * in it.
 */
static void become_injector(int socket)
{
	static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP};
	int kept = fcntl(socket, F_DUPFD, SOCKET + 1);

	setsid();
	for (size_t i = 0; i < sizeof(ignored) / sizeof(*ignored); i++)
		signal(ignored[i], SIG_IGN);
	prctl(PR_SET_NAME, "stepflame-inject");
	setpriority(PRIO_PROCESS, 0, -20); /* a thread of the target waits for the child */
	dup2(kept, SOCKET);
	close_range(0, SOCKET - 1, 0);
	close_range(SOCKET + 1, ~0U, 0);
}

int inject__load(const struct process *process, const char *library, const char *entry, struct remote_load *out)
{
	struct load_answer answer = {.err = -EPIPE, .load.why = "the process stepflame-inject was killed"};
	int sockets[2], got;
	struct pollfd ready;
	pid_t pid;

	memset(out, 0, sizeof(*out));
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets))
		return -errno;
	pid = fork();
	if (!pid) {
		become_injector(sockets[1]);
		answer.err = remote__load(process, library, entry, &answer.load);
		if (send(SOCKET, &answer, sizeof(answer), MSG_NOSIGNAL) < 0)
			_exit(1);
		_exit(0);
	}
	close(sockets[1]);
	ready = (struct pollfd){.fd = sockets[0], .events = POLLIN};
	do
		got = pid < 0 ? 0 : poll(&ready, 1, PATIENCE_MS);
	while (got < 0 && errno == EINTR);
	if (got > 0)
		recv(sockets[0], &answer, sizeof(answer), 0);
	close(sockets[0]);
	if (got <= 0 && pid > 0)
		kill(pid, SIGKILL); /* this releases a thread that the child holds */
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	*out = answer.load;
	return answer.err;
}

/* ---- may the library be injected? ---- */

static int check_injectable(const struct process *process)
{
	struct proc_status status = {0};
	int pid = process->pid;

	proc__status(pid, 0, &status);
	if (status.tracer) {
		log__error("end the tracer, and try again",
			   "--inject: process %d is being traced by process %d (a debugger, strace)", pid,
			   status.tracer);
		return -EBUSY;
	}
	if (status.seccomp) {
		log__error(AT_START ", or run its container without a seccomp profile",
			   "--inject: process %d has a seccomp filter, which may kill it for a system call that it "
			   "never made before",
			   pid);
		return -EOPNOTSUPP;
	}
	if (!process__file(process, "libcuda.so")) {
		log__error("wait until it uses the GPU, or " AT_START, "--inject: process %d does not use CUDA (yet)",
			   pid);
		return -EOPNOTSUPP;
	}
	if (!inject_library__finds_cupti(process)) {
		log__error("install the CUPTI of the job's CUDA (pip: nvidia-cuda-cupti) where the job sees it",
			   "--inject: process %d sees no libcupti", pid);
		return -EOPNOTSUPP;
	}
	return 0;
}

static int explain_load(const struct process *process, const struct remote_load *load, int err)
{
	const char *why = *load->why ? load->why : strerror(-err);

	if (err == -EPERM || err == -EACCES)
		log__error("run stepflame as root (sudo), or with CAP_SYS_PTRACE, and with kernel.yama.ptrace_scope "
			   "below 3",
			   "--inject: stepflame may not stop process %d: permission denied", process->pid);
	else if (err == -EAGAIN || err == -EBUSY)
		log__error("try again", "--inject: nothing was loaded into process %d: %s", process->pid, why);
	else
		log__error(AT_START ", or record without --inject", "--inject: process %d: %s", process->pid, why);
	return err;
}

int inject__into(struct session *s, const struct process *process)
{
	struct inject_library library = {0};
	struct remote_load load;
	int err;

	if (process__file(process, "libstepflame-inject.so")) {
		log__info("--inject: process %d already has the library", process->pid);
		return 0;
	}
	err = check_injectable(process);
	if (err)
		return err;
	err = inject_library__make(process, &library);
	if (err) {
		log__error(AT_START, "--inject: process %d: %s", process->pid, library.why);
		return err;
	}
	log__info("--inject: stops one thread of %d for about %d ms and loads %s%s into it, which stays there, asleep",
		  process->pid, STOP_MS, library.path, library.copied ? " (a copy, which is deleted then)" : "");
	err = inject__load(process, library.path, ENTRY, &load);
	inject_library__release(process, &library);
	if (err)
		return explain_load(process, &load, err);
	log__info("--inject: thread %d of %d was stopped for %.2f ms; the library was there %.0f ms later", load.tid,
		  process->pid, load.stopped_ns / 1e6, load.loaded_ns / 1e6);
	session__note(s, "injected into process %d: kernels of CUDA graphs that it made earlier may be missing",
		      process->pid);
	return 0;
}
