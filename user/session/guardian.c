// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/session/guardian.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "user/session/guardian_words.h"

#define IDS_MAX    1000 /* of a request */
#define BEGUN_MAX  32   /* attachments under way: the answers to so many fit into a socket */
#define KEEP_BYTES 65536
#define FILES_MIN  65536 /* that the guardian may have open, if it can have its way */

enum guard_command { GUARD_ATTACH, GUARD_CLEAN, GUARD_DETACH, GUARD_WRITE, GUARD_RESTORE, GUARD_RESTORE_ALL };

/* The guardian is a fork of stepflame: `program` points to the same program in both. */
struct attach_request {
	struct bpf_program *program;
	pid_t pid;
	uint64_t dev, inode;
	uint32_t number;
	size_t cnt; /* of the offsets, and then the cookies, in the first of the request's files */
};

/* What comes with GUARD_ATTACH: the probes, and the file that they are for. */
enum guard_file { GUARD_PROBES, GUARD_MAPPED, GUARD_FILES };

struct guard_request {
	enum guard_command command;
	union {
		struct attach_request attach;
		struct {
			size_t cnt;
			uint32_t ids[IDS_MAX];
		} detach;
		struct guarded_word word;
	};
};

struct guard_answer {
	int err;
	uint32_t id, number; /* of GUARD_ATTACH */
	int journal_err;     /* of GUARD_WRITE */
};

struct guardian {
	pid_t pid;
	int socket;
	int journal_err; /* as guardian__journal_error */
	int attach_err;  /* the first since guardian__await */
	size_t begun_cnt;
	struct {
		struct probe_list *list;
		uint32_t *id;
	} begun[BEGUN_MAX]; /* the answers to these are outstanding, in this order */
};

/* ---- in the guardian ---- */

struct guarded {
	struct attacher attacher;
	struct guarded_attachment {
		struct attachment *attachment; /* NULL: detached */
		const struct bpf_program *program;
		uint32_t next_free; /* of a detached one */
	} * attachments;            /* by id - 1 */
	size_t attachment_cnt;
	uint32_t first_free; /* id; 0: none */
	struct guarded_words words;
};

/* Takes ownership of the attachment. Returns its id; 0: no memory. */
static uint32_t add_attachment(struct guarded *guarded, struct attachment *attachment,
			       const struct bpf_program *program)
{
	struct guarded_attachment *attachments = guarded->attachments;
	uint32_t id = guarded->first_free;

	if (id) {
		guarded->first_free = attachments[id - 1].next_free;
	} else {
		attachments = reallocarray(attachments, guarded->attachment_cnt + 1, sizeof(*attachments));
		if (!attachments) {
			attachments__free(&attachment, 1);
			return 0;
		}
		guarded->attachments = attachments;
		id = ++guarded->attachment_cnt;
	}
	attachments[id - 1] = (struct guarded_attachment){.attachment = attachment, .program = program};
	return id;
}

/* Attaches the request's list, or with `clean` only removes its breakpoints where nobody uses them. */
static struct guard_answer attach_list(struct guarded *guarded, const struct attach_request *request,
				       const int files[GUARD_FILES], bool clean)
{
	size_t bytes = request->cnt * sizeof(uint64_t);
	uint64_t *values = mmap(NULL, 2 * bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, files[GUARD_PROBES], 0);
	struct guard_answer answer = {};
	struct attachment *attachment;
	struct probe_list list = {
		.fd = files[GUARD_MAPPED],
		.dev = request->dev,
		.inode = request->inode,
		.number = request->number,
		.cnt = request->cnt,
		.offsets = values,
		.cookies = values + request->cnt,
	};

	if (values == MAP_FAILED) {
		answer.err = files[GUARD_MAPPED] < 0 ? -EMFILE : -ENOMEM;
		return answer;
	}
	if (clean) {
		answer.err = attachment__clean(request->program, &guarded->attacher, &list);
	} else {
		answer.err = attachment__new(request->program, &guarded->attacher, request->pid, &list, &attachment);
		answer.id = answer.err ? 0 : add_attachment(guarded, attachment, request->program);
		answer.err = answer.err ?: answer.id ? 0 : -ENOMEM;
		answer.number = list.number;
	}
	munmap(values, 2 * bytes);
	return answer;
}

static void detach_ids(struct guarded *guarded, const uint32_t *ids, size_t cnt)
{
	struct attachment *attachments[IDS_MAX];

	for (size_t i = 0; i < cnt; i++) {
		struct guarded_attachment *detached = &guarded->attachments[ids[i] - 1];

		attachments[i] = detached->attachment;
		*detached = (struct guarded_attachment){.next_free = guarded->first_free};
		guarded->first_free = ids[i];
	}
	attachments__free(attachments, cnt);
}

/*
 * Detaches the programs one after the other, from the highest id down: exits, which attach first,
 * mostly detach last, and links with thousands of probes do not wait for each other at each probe.
 */
static void detach_all(struct guarded *guarded)
{
	for (size_t last = guarded->attachment_cnt; last; last--) {
		const struct bpf_program *program = guarded->attachments[last - 1].program;
		uint32_t ids[IDS_MAX];
		size_t cnt = 0;

		if (!guarded->attachments[last - 1].attachment)
			continue;
		for (size_t i = last; i && cnt < IDS_MAX; i--)
			if (guarded->attachments[i - 1].attachment && guarded->attachments[i - 1].program == program)
				ids[cnt++] = i;
		detach_ids(guarded, ids, cnt);
	}
}

static struct guard_answer serve_request(struct guarded *guarded, const struct guard_request *request,
					 const int files[GUARD_FILES])
{
	struct guard_answer answer = {};

	switch (request->command) {
	case GUARD_ATTACH:
	case GUARD_CLEAN:
		return attach_list(guarded, &request->attach, files, request->command == GUARD_CLEAN);
	case GUARD_DETACH:
		detach_ids(guarded, request->detach.ids, request->detach.cnt);
		break;
	case GUARD_WRITE:
		answer.err = guarded_words__write(&guarded->words, &request->word);
		answer.journal_err = guarded->words.journal.err;
		break;
	case GUARD_RESTORE:
		guarded_words__restore(&guarded->words, request->word.pid, request->word.start_time);
		break;
	case GUARD_RESTORE_ALL:
		answer.err = guarded_words__restore_all(&guarded->words);
		break;
	}
	return answer;
}

/* Receives a request, with its files (-1: none). false: stepflame has ended. */
static bool receive_request(int socket, struct guard_request *request, int files[GUARD_FILES])
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(GUARD_FILES * sizeof(int))];
	} control;
	struct iovec part = {request, sizeof(*request)};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	struct cmsghdr *header = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;

	memset(files, -1, GUARD_FILES * sizeof(*files));
	if (header && header->cmsg_type == SCM_RIGHTS)
		memcpy(files, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0)); /* fewer: none was free */
	return got == sizeof(*request);
}

/*
 * Waits for a request. false: stepflame has ended. The socket alone does not tell: forks of stepflame
 * that go on for a while have it, too. owner: a pidfd; -1: there is none.
 */
static bool await_request(int socket, int owner)
{
	struct pollfd ready[] = {{.fd = socket, .events = POLLIN}, {.fd = owner, .events = POLLIN}};

	while (poll(ready, sizeof(ready) / sizeof(*ready), -1) < 0 && errno == EINTR)
		;
	return !ready[1].revents;
}

static void serve_requests(struct guarded *guarded, int socket, int owner)
{
	static struct guard_request request;
	int files[GUARD_FILES];

	while (await_request(socket, owner) && receive_request(socket, &request, files)) {
		struct guard_answer answer = serve_request(guarded, &request, files);

		for (int i = 0; i < GUARD_FILES; i++)
			if (files[i] >= 0)
				close(files[i]);
		if (send(socket, &answer, sizeof(answer), MSG_NOSIGNAL) != sizeof(answer))
			break;
	}
	guarded_words__restore_all(&guarded->words);
	detach_all(guarded);
}

static int compare_files(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/*
 * Closes all files of stepflame but those to keep: a reader of stepflame's output would wait for the
 * guardian to end.
 */
static void close_files(int socket, const int *keep, size_t keep_cnt)
{
	int *kept = calloc(keep_cnt + 1, sizeof(*kept)), null = open("/dev/null", O_RDWR), next = 3;

	if (!kept || null < 0)
		_exit(1);
	for (int i = 0; i < next; i++)
		dup2(null, i);
	for (size_t i = 0; i < keep_cnt; i++)
		kept[i] = keep[i];
	kept[keep_cnt] = socket;
	qsort(kept, keep_cnt + 1, sizeof(*kept), compare_files);
	for (size_t i = 0; i <= keep_cnt; i++) {
		if (kept[i] > next)
			close_range(next, kept[i] - 1, 0);
		next = kept[i] >= next ? kept[i] + 1 : next;
	}
	close_range(next, ~0U, 0);
	free(kept);
}

/*
 * The kernel is to kill it for memory never, or where it may not ask for that (CAP_SYS_RESOURCE), after stepflame and
 * what is larger, also if stepflame is to be killed before all others.
 */
static void protect_from_oom(void)
{
	static const char *const adjustments[] = {"-1000", "0"};
	int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	for (size_t i = 0; file >= 0 && i < sizeof(adjustments) / sizeof(*adjustments); i++)
		if (write(file, adjustments[i], strlen(adjustments[i])) > 0)
			break;
	if (file >= 0)
		close(file);
}

static void become_guardian(int socket, const int *keep, size_t keep_cnt)
{
	static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2, SIGTSTP};
	struct rlimit files;

	setsid();
	if (!getrlimit(RLIMIT_NOFILE, &files)) { /* the guardian has a file for each link and each word */
		const struct rlimit more = {FILES_MIN, FILES_MIN};

		files.rlim_cur = files.rlim_max;
		if (files.rlim_max >= FILES_MIN || setrlimit(RLIMIT_NOFILE, &more))
			setrlimit(RLIMIT_NOFILE, &files);
	}
	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		signal(ignored[i], SIG_IGN);
	prctl(PR_SET_NAME, "stepflame-guard");
	close_files(socket, keep, keep_cnt);
	protect_from_oom();
	if (chdir("/"))
		_exit(1);
}

/* A pidfd of stepflame, whose fork the guardian is. -1: this kernel has none. */
static int open_owner(pid_t pid)
{
	int owner = (int)syscall(SYS_pidfd_open, pid, 0);

	if (getppid() != pid)
		_exit(0); /* it has ended already, and there is nothing to restore */
	return owner < 0 ? -1 : owner;
}

/* ---- in stepflame ---- */

int guardian__new(const struct attacher *attacher, const int *keep, size_t keep_cnt, struct guardian **out)
{
	struct guardian *g = calloc(1, sizeof(*g));
	pid_t owner = getpid();
	int sockets[2], err;

	*out = NULL;
	if (!g)
		return -ENOMEM;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets))
		goto fail;
	g->pid = fork();
	if (g->pid < 0) {
		close(sockets[0]);
		close(sockets[1]);
		goto fail;
	}
	if (!g->pid) {
		static struct guarded guarded;

		become_guardian(sockets[1], keep, keep_cnt);
		guarded.attacher = *attacher;
		serve_requests(&guarded, sockets[1], open_owner(owner));
		_exit(0);
	}
	close(sockets[1]);
	g->socket = sockets[0];
	*out = g;
	return 0;
fail:
	err = -errno;
	free(g);
	return err;
}

/* Sends a request, with files (NULL: none), even if a signal interrupts. 0 or -EPIPE. */
static int send_request(struct guardian *g, const struct guard_request *request, const int *files)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(GUARD_FILES * sizeof(int))];
	} control = {.header = {CMSG_LEN(GUARD_FILES * sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
	struct iovec part = {(void *)request, sizeof(*request)};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	ssize_t done;

	if (files) {
		memcpy(CMSG_DATA(&control.header), files, GUARD_FILES * sizeof(*files));
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
	}
	do
		done = sendmsg(g->socket, &message, MSG_NOSIGNAL);
	while (done < 0 && errno == EINTR);
	return done == sizeof(*request) ? 0 : -EPIPE;
}

static struct guard_answer receive_answer(struct guardian *g)
{
	struct guard_answer answer;
	ssize_t got;

	do
		got = recv(g->socket, &answer, sizeof(answer), 0);
	while (got < 0 && errno == EINTR);
	return got == sizeof(answer) ? answer : (struct guard_answer){.err = -EPIPE};
}

/* Receives the answers to all attachments under way. */
static void finish_begun(struct guardian *g)
{
	for (size_t i = 0; i < g->begun_cnt; i++) {
		struct guard_answer answer = receive_answer(g);

		if (answer.number) /* also of a list that was numbered and then not attached */
			g->begun[i].list->number = answer.number;
		*g->begun[i].id = answer.err ? 0 : answer.id;
		g->attach_err = g->attach_err ?: answer.err;
	}
	g->begun_cnt = 0;
}

/* Sends a request, with files (NULL: none), and waits for the answer. */
static struct guard_answer ask_guardian(struct guardian *g, const struct guard_request *request, const int *files)
{
	int err;

	finish_begun(g);
	err = send_request(g, request, files);
	return err ? (struct guard_answer){.err = err} : receive_answer(g);
}

static int write_values(int file, const void *values, size_t bytes)
{
	ssize_t written;

	for (const char *at = values; bytes; at += written, bytes -= written) {
		written = write(file, at, bytes);
		if (written <= 0)
			return written ? -errno : -EIO;
	}
	return 0;
}

/*
 * Puts the probes into a file in memory. The list keeps a large one, since operators attach anew in
 * each window. Returns the file or -errno.
 */
static int open_probes(struct probe_list *list)
{
	int file, err;

	if (list->copy)
		return list->copy;
	file = memfd_create("probes", MFD_CLOEXEC);
	if (file < 0)
		return -errno;
	err = write_values(file, list->offsets, list->cnt * sizeof(*list->offsets))
		      ?: write_values(file, list->cookies, list->cnt * sizeof(*list->cookies));
	if (err) {
		close(file);
		return err;
	}
	if (list->cnt * sizeof(*list->offsets) >= KEEP_BYTES)
		list->copy = file;
	return file;
}

/* Fills in a request about a list, and the files to send with it. 0 or -errno. */
static int request_list(struct guard_request *request, struct bpf_program *program, pid_t pid, struct probe_list *list,
			int files[GUARD_FILES])
{
	request->attach = (struct attach_request){
		.program = program,
		.pid = pid,
		.dev = list->dev,
		.inode = list->inode,
		.number = list->number,
		.cnt = list->cnt,
	};
	files[GUARD_MAPPED] = list->fd;
	files[GUARD_PROBES] = open_probes(list);
	return files[GUARD_PROBES] < 0 ? files[GUARD_PROBES] : 0;
}

int guardian__attach(struct guardian *g, struct bpf_program *program, pid_t pid, struct probe_list *list, uint32_t *id)
{
	struct guard_request request = {.command = GUARD_ATTACH};
	int files[GUARD_FILES], err;

	*id = 0;
	if (!list->cnt)
		return 0;
	err = request_list(&request, program, pid, list, files);
	if (err)
		return err;
	if (g->begun_cnt == BEGUN_MAX)
		finish_begun(g);
	err = send_request(g, &request, files);
	if (!err) {
		g->begun[g->begun_cnt].list = list;
		g->begun[g->begun_cnt++].id = id;
	}
	if (files[GUARD_PROBES] != list->copy)
		close(files[GUARD_PROBES]);
	return err;
}

int guardian__await(struct guardian *g)
{
	int err;

	finish_begun(g);
	err = g->attach_err;
	g->attach_err = 0;
	return err;
}

int guardian__clean(struct guardian *g, struct bpf_program *program, struct probe_list *list)
{
	struct guard_request request = {.command = GUARD_CLEAN};
	int files[GUARD_FILES], err;

	if (!list->cnt)
		return 0;
	err = request_list(&request, program, 0, list, files);
	if (err)
		return err;
	err = ask_guardian(g, &request, files).err;
	if (files[GUARD_PROBES] != list->copy)
		close(files[GUARD_PROBES]);
	return err;
}

bool guardian__alive(const struct guardian *g)
{
	struct pollfd socket = {.fd = g->socket};

	return poll(&socket, 1, 0) <= 0;
}

void detachment__add(struct detachment *d, uint32_t *ids, size_t cnt)
{
	uint32_t *grown = reallocarray(d->ids, d->cnt + cnt, sizeof(*grown));

	if (grown)
		d->ids = grown;
	for (size_t i = 0; i < cnt; i++) {
		if (grown && ids[i])
			d->ids[d->cnt++] = ids[i];
		ids[i] = 0;
	}
}

void guardian__detach(struct guardian *g, struct detachment *d)
{
	for (size_t i = 0; i < d->cnt; i += IDS_MAX) {
		struct guard_request request = {.command = GUARD_DETACH};
		size_t cnt = d->cnt - i < IDS_MAX ? d->cnt - i : IDS_MAX;

		request.detach.cnt = cnt;
		memcpy(request.detach.ids, d->ids + i, cnt * sizeof(*d->ids));
		ask_guardian(g, &request, NULL);
	}
	free(d->ids);
	*d = (struct detachment){};
}

int guardian__write(struct guardian *g, const struct process *process, const struct word_origin *origin,
		    uint64_t address, uint64_t value)
{
	const struct guard_request request = {
		.command = GUARD_WRITE,
		.word = {process->pid, 0, process->start_time, address, value, *origin},
	};

	struct guard_answer answer = ask_guardian(g, &request, NULL);

	g->journal_err = g->journal_err ?: answer.journal_err;
	return answer.err;
}

int guardian__journal_error(const struct guardian *g)
{
	return g->journal_err;
}

void guardian__restore(struct guardian *g, const struct process *process)
{
	const struct guard_request request = {
		.command = GUARD_RESTORE,
		.word = {.pid = process->pid, .start_time = process->start_time},
	};

	ask_guardian(g, &request, NULL);
}

int guardian__restore_all(struct guardian *g)
{
	const struct guard_request request = {.command = GUARD_RESTORE_ALL};

	return ask_guardian(g, &request, NULL).err;
}

void guardian__free(struct guardian *g)
{
	if (!g)
		return;
	shutdown(g->socket, SHUT_RDWR); /* a forked child that has not called exec yet has the socket, too */
	close(g->socket);
	while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
		;
	free(g);
}
