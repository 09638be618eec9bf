// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/cmd/cmd.h"

const struct command commands[] = {
	{"record", cmd_record, &cmd_record_argp, "attach to a running job, or start one, and record it", true, NULL},
	{"report", cmd_report, &cmd_report_argp, "print a report of a recording", false, cmd_report__print_choices},
	{"flame", cmd_flame, &cmd_flame_argp, "draw where the time of each step went, as a page for a browser", false,
	 NULL},
	{"export", cmd_export, &cmd_export_argp, "write the timeline or the samples of a recording for another tool",
	 false, cmd_export__print_choices},
	{"diff", cmd_diff, &cmd_diff_argp, "say what got slower between two recordings", false, NULL},
	{"merge", cmd_merge, &cmd_merge_argp, "join the recordings of several ranks into one", false, NULL},
	{"top", cmd_top, &cmd_top_argp, "watch a running job live", true, cmd_top__print_choices},
	{"watch", cmd_watch, &cmd_watch_argp, "watch all jobs of this host, and keep what led to an event", true, NULL},
	{"dump", cmd_dump, &cmd_dump_argp, "say what every thread of a job does right now", true, NULL},
	{"ps", cmd_ps, &cmd_ps_argp, "list the training processes of this host", true, NULL},
	{"restore", cmd_restore, &cmd_restore_argp, "remove what a killed stepflame left in running processes", true,
	 NULL},
	{"doctor", cmd_doctor, &cmd_doctor_argp, "check what this machine and a process allow stepflame to do", true,
	 NULL},
	{0},
};
