// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Code objects that end: a probe on code_dealloc tells BPF of each, so that it may keep what it knows
 * of the others by their addresses, and a sample need not read the object of each frame. Programs
 * that train make their code objects once; from one that makes them all the time, the probe is
 * detached, and BPF reads them again. In: the targets' interpreters. Out: struct proc_codes.
 */
#include <errno.h>

#include "include/probes.h"
#include "stepflame.skel.h"
#include "user/session/programs.h"
#include "user/session/state.h"
#include "user/x86/sites.h"

#define PERIOD_NS   1000000000ULL  /* for which ends are counted */
#define ENDS_MAX    500            /* in a second; more happen as modules are imported */
#define DETACHED_NS 30000000000ULL /* until the next trial */

/* Target state. */
struct codes {
	uint64_t ended;             /* at read_ns */
	uint64_t read_ns;           /* when that was last read */
	uint64_t detached_until_ns; /* 0: the probe is attached */
};

static struct codes *state_of(const struct target *t)
{
	return target__state(t, SOURCE_CODES);
}

static enum source_holds holds(struct session *s, struct target *t, const struct mapped_file *file)
{
	return (s->options.frequency || s->options.exact) && target__is_python(t, file) ? HOLDS_YES : HOLDS_NO;
}

/* Too often for a single-stepped probe. Without it, samples take longer. */
static int find(struct session *s, struct target *t, const struct mapped_file *file, struct elf *elf,
		struct probe_list sets[SOURCE_SETS])
{
	uint64_t code_end = t->python.functions.code_end;
	struct sites sites;

	if (!code_end || sites__find(elf, code_end, 0, SITES_STRICT, &sites) || !sites.entry.emulated)
		return -ENOENT;
	return probe_list__add_site(&sets[0], &sites.entry, PROBE_CODE_END, 0, 0);
}

static bool wanted(const struct session *s, const struct target *t)
{
	return !state_of(t)->detached_until_ns;
}

/* since_ns 0: code objects end unseen from now on. 0 or -errno. */
static int tell_since(struct session *s, struct target *t, uint64_t since_ns)
{
	struct proc_command command = {.what = COMMAND_CODES, .pid = t->process.pid, .start_ns = since_ns};
	int err = programs__command(s->skel, &command);

	return err == -ESRCH ? 0 : err; /* it has just ended */
}

static int attached(struct session *s, struct target *t)
{
	return tell_since(s, t, session__now_ns());
}

static void observe(struct session *s, struct target *t, const struct proc *proc)
{
	struct codes *c = state_of(t);
	uint64_t now = session__now_ns(), elapsed = now - c->read_ns, ended = proc->codes.ended - c->ended;
	bool first =
		!c->read_ns || ended > proc->codes.ended; /* the count falls when the process has just called exec */

	if (elapsed < PERIOD_NS || t->gone || !t->python_inode)
		return;
	c->ended = proc->codes.ended;
	c->read_ns = now;
	if (c->detached_until_ns && now >= c->detached_until_ns) {
		c->detached_until_ns = 0;
		target__attach_again(s, t);
	} else if (!first && !c->detached_until_ns && ended > ENDS_MAX * elapsed / 1000000000) {
		c->detached_until_ns = now + DETACHED_NS;
		tell_since(s, t, 0);
		target__detach_set(s, t, SOURCE_CODES, 0, t->python_dev, t->python_inode);
	}
}

const struct source source_codes = {
	.target_bytes = sizeof(struct codes),
	.sets = {{.wanted = wanted, .attached = attached}},
	.holds = holds,
	.find = find,
	.observe = observe,
};
