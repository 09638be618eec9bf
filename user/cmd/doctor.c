// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * stepflame doctor: prints each capability that a recording needs, what was found, and how to fix
 * it.
 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "stepflame.skel.h"
#include "user/cmd/cmd.h"
#include "user/cmd/parse.h"
#include "user/lib/capabilities.h"
#include "user/lib/json.h"
#include "user/lib/log.h"
#include "user/report/common.h"
#include "user/report/print/table.h"
#include "user/report/print/text.h"
#include "user/runtime/cuda/cuda.h"
#include "user/runtime/nvtx/nvtx.h"
#include "user/runtime/python/python.h"
#include "user/runtime/torch/torch.h"
#include "user/runtime/xla/jax.h"
#include "user/session/programs.h"
#include "user/session/session.h"
#include "user/session/sources/gpu.h"
#include "user/session/sources/gpu_ring.h"
#include "user/session/sources/landmarks.h"
#include "user/session/sources/natives.h"
#include "user/session/sources/xla.h"

enum check_result { OK, WARN, FAIL };

#define CHECKS_MAX 48
#define FIX_AT     11

static const char *const verdict_names[] = {"OK", "WARN", "FAIL"};

struct doctor_check {
	const char *name;
	enum check_result verdict;
	const char *fix; /* NULL: none needed */
	char found[256];
};

struct doctor {
	pid_t pid;
	bool json, csv;
	size_t cnt;
	struct doctor_check checks[CHECKS_MAX];
};

enum { OPT_CSV = 256 };

static const struct argp_option options[] = {
	{"pid", 'p', "PID", 0, "check this process, too", 0},
	{"json", 'j', NULL, 0, "print one JSON object", 0},
	{"csv", OPT_CSV, NULL, 0, "print CSV, a row for each check, with the keys of the JSON", 0},
	{0},
};

static error_t parse_doctor(int key, char *arg, struct argp_state *state)
{
	struct doctor *d = state->input;
	char *end;

	switch (key) {
	case 'p':
		d->pid = strtol(arg, &end, 10);
		if (*end || d->pid <= 0)
			argp_error(state, "'%s' is not a PID", arg);
		return 0;
	case 'j':
		d->json = true;
		return 0;
	case OPT_CSV:
		d->csv = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "doctor takes no argument");
		return 0;
	case ARGP_KEY_END:
		if (d->json && d->csv)
			argp_error(state, "either --json or --csv");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp doctor_argp = {
	.options = options,
	.parser = parse_doctor,
	.doc = "Check what this machine, and a process on it, allow stepflame to do.\v"
	       "The exit code is 0 if no check fails; otherwise it is that of the first failure: 3 permission, 4 no "
	       "such "
	       "process, 5 not supported.",
};

/* Adds what was found. fix is printed unless the verdict is OK, and must stay valid; NULL: none. */
__attribute__((format(printf, 5, 6))) static void add_check(struct doctor *d, const char *name,
							    enum check_result verdict, const char *fix, const char *fmt,
							    ...)
{
	struct doctor_check *c;
	va_list ap;

	if (d->cnt == CHECKS_MAX)
		return;
	c = &d->checks[d->cnt++];
	c->name = name;
	c->verdict = verdict;
	c->fix = verdict == OK ? NULL : fix;
	va_start(ap, fmt);
	vsnprintf(c->found, sizeof(c->found), fmt, ap);
	va_end(ap);
}

/* ---- rights of the process, and settings of the kernel ---- */

#define AS_ROOT "run it as root (sudo), or with the capabilities that docs/safety.md lists"

/* The first line of a file: "" if it cannot be read. */
static void read_line(const char *path, char *line, int size)
{
	FILE *file = fopen(path, "re");

	if (!file || !fgets(line, size, file))
		line[0] = 0;
	line[strcspn(line, "\n")] = 0;
	if (file)
		fclose(file);
}

static void check_capabilities(struct doctor *d, uint64_t held)
{
	const uint64_t needed = CAPABILITIES_FOR_PROGRAMS | CAPABILITY(CAP_SYS_PTRACE);
	char missing[80], all[160];

	capabilities__names(needed & ~held, missing, sizeof(missing));
	capabilities__names(held, all, sizeof(all));
	if (CAPABILITIES_FOR_PROGRAMS & ~held)
		add_check(d, "capabilities", FAIL, AS_ROOT, "%s missing: no recording", missing);
	else if (capabilities__of_program())
		add_check(d, "capabilities", OK, NULL, "%s, of the program's file: for your own processes only", all);
	else if (needed & ~held)
		add_check(d, "capabilities", WARN, AS_ROOT, "%s missing: your own processes only", missing);
	else
		add_check(d, "capabilities", OK, NULL, "%s", all);
}

static void check_user_namespace(struct doctor *d)
{
	if (capabilities__in_user_namespace())
		add_check(d, "user namespace", FAIL,
			  "run it outside of the user namespace: on the host, or in a container without one",
			  "not the first one: no capability in it allows BPF");
	else
		add_check(d, "user namespace", OK, NULL, "the first one");
}

static void check_lockdown(struct doctor *d)
{
	enum lockdown mode = lockdown__mode();

	if (mode == LOCKDOWN_CONFIDENTIALITY)
		add_check(d, "lockdown", FAIL, "boot with lockdown=integrity or lockdown=none",
			  "confidentiality: BPF programs may not read memory");
	else
		add_check(d, "lockdown", OK, NULL, "%s",
			  mode == LOCKDOWN_INTEGRITY ? "integrity: does not restrict stepflame" : "none");
}

static void check_yama(struct doctor *d)
{
	int scope = yama__scope();

	if (scope >= YAMA_NOBODY)
		add_check(d, "Yama", FAIL, YAMA_FIX, "%d: nobody may read the memory of another process", scope);
	else if (scope && !(capabilities__held() & CAPABILITY(CAP_SYS_PTRACE)))
		add_check(d, "Yama", WARN, AS_ROOT, "%d: processes are readable only with CAP_SYS_PTRACE", scope);
	else
		add_check(d, "Yama", OK, NULL, "%d: does not restrict stepflame", scope);
}

static void check_selinux(struct doctor *d)
{
	char enforcing[8];

	read_line("/sys/fs/selinux/enforce", enforcing, sizeof(enforcing));
	if (enforcing[0] == '1')
		add_check(d, "SELinux", WARN,
			  "if something is denied, look for it with `ausearch -m avc -ts recent`, and allow it in "
			  "the policy "
			  "of the domain that runs stepflame (classes bpf, perf_event, process ptrace)",
			  "enforcing: its policy may deny what the capabilities allow");
	else
		add_check(d, "SELinux", OK, NULL, enforcing[0] ? "permissive: denies nothing" : "not enabled");
}

static void check_settings(struct doctor *d, uint64_t held)
{
	static const struct {
		const char *name, *path;
		uint64_t capability;
	} settings[] = {
		{"perf_event_paranoid", "/proc/sys/kernel/perf_event_paranoid", CAPABILITY(CAP_PERFMON)},
		{"unprivileged_bpf_disabled", "/proc/sys/kernel/unprivileged_bpf_disabled", CAPABILITY(CAP_BPF)},
	};
	char value[16], name[32];

	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
		read_line(settings[i].path, value, sizeof(value));
		capabilities__names(settings[i].capability, name, sizeof(name));
		if (!i && held & settings[i].capability && perf_events__denied())
			add_check(d, settings[i].name, WARN, PERF_EVENTS_FIX, "%s: " PERF_EVENTS_DENIED, value);
		else if (held & settings[i].capability)
			add_check(d, settings[i].name, OK, NULL, "%s: does not matter with %s", value, name);
		else
			add_check(d, settings[i].name, WARN, AS_ROOT, "%s: stepflame needs %s, whatever this value is",
				  value, name);
	}
}

/* What the kernel and this process's rights allow: capabilities, namespaces, security modules, sysctls. */
static void check_rights(struct doctor *d)
{
	uint64_t held = capabilities__held();

	check_capabilities(d, held);
	check_user_namespace(d);
	check_lockdown(d);
	check_yama(d);
	check_selinux(d);
	check_settings(d, held);
}

/* ---- what else a recording needs ---- */

/* Do programs load, and do probes hit? Returns -errno of what failed. */
static int check_bpf(struct doctor *d)
{
	struct stepflame_bpf *skel;
	struct selftest selftest;
	const char *why, *fix;
	int err = programs__load(NULL, NULL, &skel, &selftest);

	if (err) {
		programs__explain(err, &why, &fix);
		add_check(d, "BPF programs", FAIL, fix, "%s", why);
		return err;
	}
	add_check(d, "BPF programs", OK, NULL, "load (task storage, ring buffer, tracepoints with type information)");
	if (selftest.attacher.backend == ATTACH_MULTI)
		add_check(d, "uprobes", OK, NULL, "uprobe_multi with a process filter; a hit costs %llu ns",
			  (unsigned long long)selftest.hit_ns);
	else if (selftest.attacher.backend == ATTACH_EVENTS)
		add_check(d, "uprobes", OK, NULL, "as events of tracefs, with a process filter; a hit costs %llu ns",
			  (unsigned long long)selftest.hit_ns);
	else
		add_check(d, "uprobes", WARN, PROBES_TOGETHER, "one by one only; a hit costs %llu ns",
			  (unsigned long long)selftest.hit_ns);
	stepflame_bpf__destroy(skel);
	return 0;
}

#define RESTRICTED_FIX                                                                        \
	"if record --gpu cupti says that permission is missing, put options nvidia "          \
	"NVreg_RestrictProfilingToAdminUsers=0 into /etc/modprobe.d/nvidia.conf and reboot, " \
	"or give the job CAP_SYS_ADMIN"

/* A machine without a GPU is not a defect. */
static void check_driver(struct doctor *d)
{
	FILE *file = fopen(NVIDIA_VERSION, "re");
	char version[32];

	if (!file) {
		add_check(d, "NVIDIA driver", OK, NULL, "no driver is loaded: no GPU to record");
		return;
	}
	add_check(d, "NVIDIA driver", OK, NULL, "%s",
		  nvidia__version(file, version, sizeof(version)) ? "version unknown" : version);
	fclose(file);
	file = fopen(NVIDIA_PARAMS, "re");
	if (file && nvidia__restricts_profiling(file) == 1)
		add_check(d, "GPU profiling", WARN, RESTRICTED_FIX,
			  "only administrators may profile: CUPTI may refuse");
	if (file)
		fclose(file);
}

static int check_machine(struct doctor *d)
{
	struct utsname uts;

	uname(&uts);
	add_check(d, "machine", !strcmp(uts.machine, "x86_64") ? OK : FAIL, "only x86-64 is supported", "Linux %s, %s",
		  uts.release, uts.machine);
	if (access("/sys/kernel/btf/vmlinux", R_OK)) {
		add_check(d, "type information", FAIL, "use a kernel built with CONFIG_DEBUG_INFO_BTF=y",
			  "no /sys/kernel/btf/vmlinux");
		return -EOPNOTSUPP;
	}
	add_check(d, "type information", OK, NULL, "/sys/kernel/btf/vmlinux");
	check_rights(d);
	check_driver(d);
	return check_bpf(d);
}

static void check_list(struct doctor *d, const char *name, const struct probe_list *list, int err, const char *fix)
{
	if (err)
		add_check(d, name, WARN, fix, "none found");
	else
		add_check(d, name, OK, NULL, "%zu probe sites", list->cnt);
}

/*
 * framework: the process has torch or JAX. other: what `record` can record of a process that does
 * not run Python.
 */
static int check_python(struct doctor *d, const struct process *process, bool framework, bool other,
			struct python *found)
{
	struct probe_list list = {0}, late = {0};
	struct python python = {0};
	char why[PYTHON_WHY_BYTES];
	struct elf *elf = NULL;
	const char *fix;
	bool goes_on;
	int err = python__find(process, &python, &elf);

	*found = python;
	found->file = err ? NULL : python.file;
	if (err) {
		fix = python__explain(err, process->pid, process->comm, python.version, why);
		goes_on = python__is_dispensable(err, framework, python.version);
		add_check(d, "Python", other || goes_on ? WARN : FAIL, fix, "%s%s", why,
			  goes_on ? ": " PYTHON_REFUSED : "");
		return other || goes_on ? 0 : err == -ENOENT ? -EOPNOTSUPP : err;
	}
	if (python.tried)
		add_check(d, "Python", WARN, NULL, "%s " PYTHON_TRIED, python.version);
	else
		add_check(d, "Python", OK, NULL, "%s, layout checked against the process", python.version);
	check_list(d, "Lightning's actions", &list, landmarks__python(&list, &late, elf, &python.functions),
		   "report this build of Python: its builtin next() was not found");
	probe_list__release(&list);
	check_list(d, "garbage collections", &list, landmarks__gc(&list, elf, &python.functions),
		   "report this build of Python: its invoke_gc_callback was not found");
	elf__free(elf);
	probe_list__release(&list);
	probe_list__release(&late);
	return 0;
}

/* Checks all files that contain collectives. A process without collectives is not a defect. */
static void check_natives(struct doctor *d, const struct process *process, const struct mapped_file *torch)
{
	int function_cnt = 0, file_cnt = 0;

	for (size_t i = 0; i < process->file_cnt; i++) {
		const struct mapped_file *file = &process->files[i];
		struct probe_list list = {0};
		struct elf *elf = NULL;
		int cnt;

		if ((file != torch && !natives__wanted(file->path)) || mapped_file__elf(file, &elf))
			continue;
		cnt = natives__add(&list, elf);
		if (cnt > 0) {
			function_cnt += cnt;
			file_cnt++;
		}
		elf__free(elf);
		probe_list__release(&list);
	}
	add_check(d, "collectives", OK, NULL, "%d functions in %d libraries", function_cnt, file_cnt);
}

/* Says what record --gpu can record of the process: the tiers of docs/gpu.md. */
static void check_tier(struct doctor *d, const struct process *process)
{
	struct gpu_ring *ring = NULL;
	int err = gpu_ring__open(process->pid, process->nspid, &ring);

	gpu_ring__free(ring);
	if (!err)
		add_check(d, "GPU", OK, NULL, "tier 2: stepflame can record what the GPU does (--gpu cupti)");
	else if (err == -EBUSY)
		add_check(d, "GPU", OK, NULL, "tier 2: another stepflame is recording what the GPU does");
	else if (err == -EPROTO)
		add_check(d, "GPU", WARN, "restart the job with this stepflame's library",
			  "tier 1: the injection library in the process is of another version");
	else if (err != -ENOENT)
		add_check(d, "GPU", WARN, NULL, "cannot see whether the process has the injection library: %s",
			  strerror(-err));
	else
		add_check(d, "GPU", OK, NULL,
			  "tier 1: calls of the CPU (--gpu uprobe). For what the GPU does: record --inject -p %d, or "
			  "start "
			  "the job by record --gpu cupti -- CMD",
			  process->pid);
}

/* Checks functions of CUDA and NCCL, whichever file contains them. */
static void check_gpu(struct doctor *d, const struct process *process)
{
	size_t function_cnt = 0, file_cnt = 0;
	char libraries[160];

	for (size_t i = 0; i < process->file_cnt; i++) {
		struct probe_list sets[2] = {0};
		struct elf *elf = NULL;

		if (mapped_file__elf(&process->files[i], &elf))
			continue;
		if (!gpu__find_functions(elf, sets)) {
			function_cnt += sets[1].cnt;
			file_cnt += sets[1].cnt > 0;
		}
		elf__free(elf);
		probe_list__release(&sets[0]);
		probe_list__release(&sets[1]);
	}
	cuda__libraries(process, libraries, sizeof(libraries));
	if (!file_cnt)
		add_check(d, "CUDA", OK, NULL, "no CUDA library is mapped: record --gpu has nothing to count");
	else
		add_check(d, "CUDA", OK, NULL, "%zu functions in %zu files%s%s", function_cnt, file_cnt,
			  libraries[0] ? ": " : "", libraries);
	if (file_cnt)
		check_tier(d, process);
}

static void check_jax(struct doctor *d, const struct process *process, const struct mapped_file *file)
{
	struct probe_list list = {0};
	struct elf *elf = NULL;
	char version[16], why[128];
	int cnt;

	jax__version(process, file, version, sizeof(version));
	add_check(d, "JAX", OK, NULL, "jaxlib %s", version);
	if (mapped_file__elf(file, &elf)) {
		add_check(d, "JAX's landmarks", WARN, NULL, "%.128s cannot be read", file->path);
		return;
	}
	cnt = xla__add_jax(&list, elf, why, sizeof(why));
	if (cnt < 0)
		snprintf(why, sizeof(why), "out of memory");
	add_check(d, "JAX's landmarks", why[0] ? WARN : OK,
		  "install jaxlib from PyPI, which has the symbols of local functions; without them stepflame "
		  "records only "
		  "samples and a PJRT plugin's functions",
		  "%d functions%s%s", cnt > 0 ? cnt : 0, why[0] ? "; jaxlib " : "", why);
	elf__free(elf);
	probe_list__release(&list);
}

/* PJRT plugins: JAX computes on GPUs and TPUs through them, and on the CPU without one. */
static void check_plugins(struct doctor *d, const struct process *process)
{
	for (size_t i = 0; i < process->file_cnt; i++) {
		const struct mapped_file *file = &process->files[i];
		const char *slash = strrchr(file->path, '/'), *name = slash ? slash + 1 : file->path;
		struct probe_list list = {0};
		struct pjrt_table table;
		struct elf *elf = NULL;
		char why[128] = "";

		if (!xla__is_plugin(file->path) || mapped_file__elf(file, &elf))
			continue;
		if (pjrt__find(process, file, elf, &table))
			add_check(d, "PJRT plugin", WARN,
				  "wait until the program has asked the plugin for its functions",
				  "%.64s: its PJRT_Api was not found, or has an unknown form", name);
		else
			add_check(d, "PJRT plugin", OK, NULL, "%.64s: PJRT 0.%d, %d functions", name, table.minor,
				  xla__add_plugin(&list, process, file, elf, why, sizeof(why)));
		elf__free(elf);
		probe_list__release(&list);
	}
}

/* Checks where the process pushes and pops ranges. A process without ranges is not a defect. */
static void check_nvtx(struct doctor *d, const struct process *process)
{
	size_t cnt = 0, missed = 0, used = 0;
	char files[160] = "";

	for (size_t i = 0; i < process->file_cnt; i++) {
		const struct mapped_file *file = &process->files[i];
		const char *slash = strrchr(file->path, '/');
		struct array places = {0};
		size_t unseen = 0;
		struct elf *elf;

		if (nvtx__is_internal(file->path) || mapped_file__elf(file, &elf))
			continue;
		nvtx__find(elf, &places, &unseen);
		if ((places.cnt || unseen) && used < sizeof(files))
			used += snprintf(files + used, sizeof(files) - used, "%s%s", used ? ", " : "",
					 slash ? slash + 1 : file->path);
		cnt += places.cnt;
		missed += unseen;
		elf__free(elf);
		free(places.items);
	}
	if (missed)
		add_check(d, "NVTX ranges", WARN, "mark the missing ranges with torch.profiler.record_function instead",
			  "stepflame cannot probe %zu of %zu places: %s", missed, missed + cnt, files);
	else if (cnt)
		add_check(d, "NVTX ranges", OK, NULL, "%zu places in %s", cnt, files);
	else
		add_check(d, "NVTX ranges", OK, NULL, "no mapped file with symbols pushes any");
}

/* Is there a PJRT plugin whose functions `record` would find? */
static bool has_plugin(const struct process *process)
{
	for (size_t i = 0; i < process->file_cnt; i++)
		if (xla__is_plugin(process->files[i].path) && xla__plugin_is_ready(process, &process->files[i]))
			return true;
	return false;
}

static int check_torch(struct doctor *d, const struct process *process, const struct mapped_file *file)
{
	struct probe_list list = {0};
	struct elf *elf = NULL;
	char version[32];
	int err = mapped_file__elf(file, &elf);

	if (err) {
		add_check(d, "torch", FAIL, NULL, "%.128s cannot be read: %s", file->path, strerror(-err));
		return err;
	}
	torch__version(process, file, version, sizeof(version));
	add_check(d, "torch", OK, NULL, "%s", version[0] ? version : "version unknown");
	check_list(d, "torch's labels and backward", &list, landmarks__torch(&list, elf),
		   "report this build of torch: it exports none of its landmarks");
	check_natives(d, process, file);
	elf__free(elf);
	probe_list__release(&list);
	return 0;
}

/* One of the frameworks is enough; without any, `record` still takes samples. */
static int check_frameworks(struct doctor *d, const struct process *process, const struct python *python)
{
	const struct mapped_file *torch = torch__file(process), *jax = jax__file(process);
	int err = torch ? check_torch(d, process, torch) : 0;

	if (jax)
		check_jax(d, process, jax);
	if (!torch && !jax && python->file)
		add_check(d, "torch", WARN, NO_FRAMEWORK_FIX, NO_FRAMEWORK_YET, process->pid, python->version);
	return err;
}

static int doctor__check_process(struct doctor *d)
{
	struct process process = {0};
	struct python python;
	char why[128];
	const char *fix;
	int err = process__read(d->pid, &process), framework_err;

	if (err) {
		fix = process__explain(err, d->pid, why, sizeof(why));
		add_check(d, "process", FAIL, fix, "%s", why);
		return err;
	}
	add_check(d, "process", OK, NULL, "%d (%s), %zu mapped files", process.pid, process.comm, process.file_cnt);
	err = check_python(d, &process, torch__file(&process) || jax__file(&process), has_plugin(&process), &python);
	framework_err = check_frameworks(d, &process, &python);
	check_plugins(d, &process);
	check_nvtx(d, &process);
	check_gpu(d, &process);
	process__release(&process);
	return err ?: framework_err;
}

static int add_found(struct table *table, const struct doctor_check *c)
{
	return TABLE_ADD(table, ((const struct cell[]){
					cell__new("name", 2, "", -28, 0, json_string(c->name)),
					cell__new("verdict", 1, "", -4, 0, json_string(verdict_names[c->verdict])),
					cell__new("found", 3, "", 0, 0, json__string(c->found)),
					cell__json("fix", c->fix ? json_string(c->fix) : json_null()),
				}));
}

static int print_data(const struct doctor *d)
{
	static const char *const path[] = {"checks", NULL};
	json_t *object = json_pack("{s:s, s:s}", "report", "doctor", "stepflame", STEPFLAME_VERSION);
	struct table table = table__json(object, "checks");
	int err = 0;

	for (size_t i = 0; i < d->cnt && !err; i++)
		err = add_found(&table, &d->checks[i]);
	object = common__json_unless_failed(object, err);
	return d->csv ? common__print_csv(object, path, json_object(), stdout) : common__print_json(object, stdout);
}

static int print_text(const struct doctor *d)
{
	struct table table = {.out = stdout, .gap = "  ", .rules = RULES_NONE, .headless = true, .wraps = true};
	int err = 0;

	text__use_terminal(STDOUT_FILENO);
	for (size_t i = 0; i < d->cnt && !err; i++) {
		err = add_found(&table, &d->checks[i]);
		if (d->checks[i].fix)
			text__wrapped(stdout, FIX_AT, "      fix: %s", d->checks[i].fix);
	}
	return err ?: common__flush(stdout);
}

static int run_doctor(int argc, char **argv)
{
	struct doctor d = {0};
	int err, process_err = 0, print_err;

	parse__or_die(&doctor_argp, argc, argv, 0, &d);
	err = check_machine(&d);
	if (d.pid)
		process_err = doctor__check_process(&d);
	print_err = d.json || d.csv ? print_data(&d) : print_text(&d);
	return print_err ? SF_EXIT_ERROR : log__exit_code(err ?: process_err);
}

const struct command command_doctor = {
	.name = "doctor",
	.run = run_doctor,
	.argp = &doctor_argp,
	.help = "check what this machine and a process allow stepflame to do",
	.traces = true,
};
