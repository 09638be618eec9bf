// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The rules for names, as tables. */
#include "user/model/labels.h"

#include <stdio.h>
#include <string.h>

#include "include/phases.h"

/* Prefixes of record_function labels that torch 1.13 to 2.15 and Lightning 2.x set. */
static const char *const torch_prefixes[] = {
	"enumerate(DataLoader)#",
	"enumerate(DataPipe)#",
	"Optimizer.step#",
	"Optimizer.zero_grad#",
	"ProfilerStep#",
	"DataParallel.",
	"DistributedDataParallel.",
	"FullyShardedDataParallel.",
	"FSDP::",
	"nccl:",
	"gloo:",
	"c10d::",
	"Torch-Compiled Region",
	"TorchDynamo Cache Lookup",
	"Pregraph bytecode",
	"## Call CompiledFxGraph",
	"torch/fx/",
	"AOTDispatcher",
	"CompiledFunction",
	"[pl][profile]",
	"[pl][module]",
};

enum listed {
	LISTED_ALL,   /* only with --all */
	LISTED_PLAIN, /* without --all, unless Lightning is present */
	LISTED,
};

static const struct {
	const char *name;
	enum listed listed;
} kinds[] = {
	[SPAN_NONE] = {"none", LISTED_PLAIN},
	[SPAN_ACTION] = {"action", LISTED},
	[SPAN_LABEL] = {"label", LISTED}, /* except torch_prefixes */
	[SPAN_FORWARD] = {"forward", LISTED_PLAIN},
	[SPAN_BACKWARD] = {"backward", LISTED_PLAIN},
	[SPAN_USER] = {"user", LISTED},
	[SPAN_GC] = {"gc", LISTED_ALL},
	[SPAN_COMM] = {"comm", LISTED_ALL},
	[SPAN_SYNC] = {"sync", LISTED_ALL},
	[SPAN_SAVE] = {"save", LISTED_ALL},
	[SPAN_VALIDATION] = {"validation", LISTED_PLAIN},
	[SPAN_JIT] = {"jit", LISTED},
	[SPAN_COMPILE] = {"compile", LISTED},
	[SPAN_AWAIT] = {"await", LISTED},
	[SPAN_TRANSFER] = {"transfer", LISTED},
	[SPAN_EXECUTE] = {"execute", LISTED_ALL},
	[SPAN_OP] = {"op", LISTED_ALL},
	[SPAN_EVALUATE] = {"evaluate", LISTED_ALL},
	[SPAN_NODE] = {"node", LISTED_ALL},
	[SPAN_STEP] = {"step", LISTED_ALL},
};

/*
 * Derives the stage in Lightning's title from the actions: the first stage of the table for which
 * an action name contains one of the pieces. Fit comes first because fitting validates, too. A
 * window that saw only the validation inside a fit says VALIDATE: the names are the same.
 */
static const struct {
	const char *stage;
	const char *pieces[6];
} stages[] = {
	{"FIT",
	 {"run_training_", ".on_fit_", ".on_train_", "train_dataloader_next", ".training_step", ".train_dataloader"}},
	{"VALIDATE", {"val_next", ".on_validation_", ".validation_step"}},
	{"TEST", {"test_next", ".on_test_", ".test_step"}},
	{"PREDICT", {"predict_next", ".on_predict_", ".predict_step"}},
};

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

const char *labels__kind(enum span_kind kind)
{
	const char *name = kind < COUNT(kinds) ? kinds[kind].name : NULL;

	return name ?: kinds[SPAN_NONE].name;
}

bool labels__is_torch(const char *name)
{
	for (size_t i = 0; i < COUNT(torch_prefixes); i++)
		if (!strncmp(name, torch_prefixes[i], strlen(torch_prefixes[i])))
			return true;
	return false;
}

bool labels__listed(enum span_kind kind, const char *name, bool lightning)
{
	enum listed listed = kind < COUNT(kinds) ? kinds[kind].listed : LISTED_ALL;

	if (kind == SPAN_LABEL && labels__is_torch(name))
		listed = LISTED_PLAIN;
	return listed == LISTED || (listed == LISTED_PLAIN && !lightning);
}

static bool has_piece(const char *name, const char *const *pieces, size_t cnt)
{
	for (size_t i = 0; i < cnt && pieces[i]; i++)
		if (strstr(name, pieces[i]))
			return true;
	return false;
}

const char *labels__stage(const struct job_action *actions, size_t cnt)
{
	for (size_t s = 0; s < COUNT(stages); s++)
		for (size_t i = 0; i < cnt; i++)
			if (actions[i].kind == SPAN_ACTION &&
			    has_piece(actions[i].name, stages[s].pieces, COUNT(stages[s].pieces)))
				return stages[s].stage;
	return NULL;
}

/* The first and last 16 bytes of a name, as include/phases.h expects them. */
static void ends_of(const char *name, __u64 head[2], __u64 tail[2])
{
	size_t bytes = strlen(name), end_bytes = bytes < 16 ? bytes : 16;

	memset(head, 0, 16);
	memset(tail, 0, 16);
	memcpy(head, name, end_bytes);
	memcpy((char *)tail + 16 - end_bytes, name + bytes - end_bytes, end_bytes);
}

enum phase labels__phase(enum span_kind kind, const char *name)
{
	__u64 head[2], tail[2];

	ends_of(name ?: "", head, tail);
	if (kind == SPAN_LABEL)
		return phase__of_label(label__classify(head));
	return kind == SPAN_ACTION ? phase__of_action(head, tail) : phase__of_kind(kind);
}

int labels__gc_generation(const char *name)
{
	unsigned int generation;
	char end;

	return name && sscanf(name, "gc generation %1u%c", &generation, &end) == 1 && generation < GC_GENERATIONS
		       ? (int)generation
		       : -1;
}

const char *labels__role(uint32_t role)
{
	static const char *const roles[] = {[ROLE_MAIN] = "main", [ROLE_CHILD] = "child", [ROLE_WORKER] = "worker"};

	return role < COUNT(roles) ? roles[role] : "unknown";
}
