#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a recording costs the processes beside the job: a part of `make bench`.

Two processes on one CPU wake each other in turn through pipes, or one makes system calls; a job of Python on another CPU is recorded and left
alone in turn. Every watched window is compared with the free ones around it, and these with each other, which shows what the method cannot
see. In a window the least of many batches counts, which nothing else on the machine disturbs. Needs no torch; nothing here passes or fails.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile

from paired import Asked, Job, Recording, spread

# For each line on its stdin: the least ns of a switch (or call) among the batches of a ms or less in a second.
BESIDE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int there[2], back[2], file;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void answer(void)
{
	char c;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(there[0], &c, 1) == 1 && write(back[1], &c, 1) == 1)
		;
	_exit(0);
}

static void once(const char *what, char *page)
{
	char c = 0;

	if (!strcmp(what, "switch"))
		(void)!write(there[1], &c, 1), (void)!read(back[0], &c, 1);
	else if (!strcmp(what, "getppid"))
		syscall(SYS_getppid);
	else
		(void)!pread(file, page, 4096, 0);
}

int main(int argc, char **argv)
{
	int is_switch = !strcmp(argv[1], "switch"), batch = is_switch ? 200 : 2000;
	char line[64], page[4096];
	cpu_set_t cpu;

	CPU_ZERO(&cpu);
	CPU_SET(atoi(argv[2]), &cpu);
	sched_setaffinity(0, sizeof(cpu), &cpu);
	file = open(argv[0], O_RDONLY);
	if (pipe(there) || pipe(back))
		return 1;
	if (is_switch && !fork())
		answer();
	puts("{}");
	for (fflush(stdout); fgets(line, sizeof(line), stdin); fflush(stdout)) {
		double begin = now(), least = 1e18, last = begin;

		while (last - begin < 1e9) {
			for (int i = 0; i < batch; i++)
				once(argv[1], page);
			double end = now(), ns = (end - last) / batch / (is_switch ? 2 : 1);
			least = ns < least ? ns : least;
			last = end;
		}
		printf("%.1f\n", least);
	}
	return 0;
}
"""

# Computes for 4 ms and sleeps for 1.
JOB = r"""
import time
print("ready", flush=True)
while True:
    end = time.perf_counter() + 0.004
    while time.perf_counter() < end:
        sum(range(100))
    time.sleep(0.001)
"""


class Beside(Asked):
    def __init__(self, program: str, what: str, cpu: int):
        self.process = subprocess.Popen([program, what, str(cpu)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.said = self._answer()


def measure(stepflame: str, folder: str, job: Job, program: str, what: str, options: list[str], rounds: int, cpu: int) -> None:
    free, dearer, control = [], [], []
    for _ in range(rounds):
        beside = Beside(program, what, cpu)  # anew: where its pages lie makes a difference
        before = beside.ask("")
        recording = Recording(stepflame, folder, job.pid, *options)
        inside = beside.ask("")
        recording.stop()
        after = beside.ask("")
        beside.stop()
        free.append((before + after) / 2)
        dearer.append(inside - free[-1])
        control.append(after - before)
    print(f"{what:8} {' '.join(options) or 'record':12} {statistics.median(free):6.0f} ns free; beside a recording {spread(dearer, '+.0f')} ns; "
          f"free windows differ by {spread(control, '+.0f')}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stepflame", default="build/stepflame")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--what", default="switch,getppid,pread")
    parser.add_argument("--syscalls", action="store_true", help="also with --syscalls")
    args = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        sys.exit("bench: one CPU for the job and one for what is beside it are needed")
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "beside")
        subprocess.run(["cc", "-O2", "-w", "-x", "c", "-", "-o", program], input=BESIDE, text=True, check=True)
        job = Job(folder, JOB)
        os.sched_setaffinity(job.pid, {cpus[-1]})
        try:
            for what in args.what.split(","):
                for options in [[], ["--syscalls"]] if args.syscalls else [[]]:
                    measure(args.stepflame, folder, job, program, what, options, args.rounds, cpus[0])
        finally:
            job.stop()


main()
