// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The summary's lines on DataLoaders with workers. */
#include <math.h>
#include <stdio.h>

#include "user/report/common.h"
#include "user/report/print/lines.h"
#include "user/report/summary.h"

#define LOADERS_SHOWN 2

/* Of several processes: the one that waits longest for its loaders. 0: there is one. */
static uint32_t longest_waiting(const struct summary *summary)
{
	uint64_t ns = 0, most_ns = 0;
	uint32_t pid = 0, most = 0;
	bool several = false;

	for (size_t i = 0; i < summary->loader_cnt; i++) {
		const struct loader *loader = &summary->loaders[i];

		if (!loader->worker_cnt)
			continue;
		several |= pid && pid != loader->pid;
		ns = (pid == loader->pid ? ns : 0) + loader->wait_ns;
		pid = loader->pid;
		if (!most || ns > most_ns) {
			most_ns = ns;
			most = pid;
		}
	}
	return several ? most : 0;
}

static void say_loader(const struct summary *summary, const struct loader *loader, bool one_of_many,
		       struct lines *lines)
{
	const struct rec_target target = common__target(summary->job, loader->pid);
	const char *which = "";
	char advice[96] = "", waited[32], who[64] = "";
	uint64_t seen_ns = 0, idle_ns = 0;

	for (size_t i = 0; i < loader->worker_cnt; i++) {
		seen_ns += loader->workers[i].seen_ns;
		idle_ns += loader->workers[i].idle_ns;
	}
	if (one_of_many && target.rank >= 0)
		snprintf(who, sizeof(who), "rank %d waits longest: ", target.rank);
	else if (one_of_many)
		snprintf(who, sizeof(who), "process %u waits longest: ", REC_PID(loader->pid));
	if (loader->of_cnt > 1)
		which = loader->place.validation ? "validation: " : "training: ";
	if (loader->advice == LOADER_KEEPS_UP)
		snprintf(advice, sizeof(advice), "; more would not help");
	else if (loader->advice == LOADER_MORE)
		snprintf(advice, sizeof(advice), "; with %u a batch would take %.3g ms", loader->advised,
			 loader->reach_ns / 1e6);
	else if (loader->advice == LOADER_CPU_FULL)
		snprintf(advice, sizeof(advice), "; more would find no free CPU");
	else if (loader->advice == LOADER_RESTARTS)
		snprintf(advice, sizeof(advice), "; they start anew for each epoch: %.3g s", loader->restarts_ns / 1e9);
	else if (loader->advice == LOADER_ONE_SLOW)
		snprintf(advice, sizeof(advice), "; worker %u is slower than the others", loader->slow);
	lines__add(lines, &(struct line_text){"Workers", LINE_PLAIN, 2, 1, 0},
		   "%s%s%u DataLoader worker%s, busy %.0f %% of the time; waits for batches: %s (%.1f %%)%s", who,
		   which, loader->at_once, summary_words__plural(loader->at_once),
		   seen_ns ? 100.0 * (seen_ns - fmin(seen_ns, idle_ns)) / seen_ns : 0,
		   summary_words__duration(loader->wait_ns, waited),
		   loader->observed_ns ? 100.0 * loader->wait_ns / loader->observed_ns : 0, advice);
}

void summary__say_workers(const struct summary *summary, struct lines *lines)
{
	size_t cnt, workers = 0, shown = 0;
	const struct rec_target *targets;
	uint32_t only = longest_waiting(summary);

	for (size_t i = 0; i < summary->loader_cnt; i++) {
		const struct loader *loader = &summary->loaders[i];

		if (loader->worker_cnt && (!only || loader->pid == only) && shown++ < LOADERS_SHOWN)
			say_loader(summary, loader, only, lines);
	}
	if (shown > LOADERS_SHOWN)
		lines__add(lines, &(struct line_text){"", LINE_PLAIN, 1, 6, 0}, "and %zu more DataLoaders",
			   shown - LOADERS_SHOWN);
	if (shown)
		return;
	targets = job__targets(summary->job, &cnt);
	for (size_t i = 0; i < cnt; i++)
		workers += targets[i].role == ROLE_WORKER;
	if (workers)
		lines__add(lines, &(struct line_text){"Workers", LINE_PLAIN, 1, 1, 0}, "%zu DataLoader worker%s",
			   workers, summary_words__plural(workers));
}
