/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Calls a real CUDA runtime from eight threads, where each call fails for want of a GPU, which every tenth time is thrown
 * through some frames. argv: the library, where to write what was done.
 */
#include <atomic>
#include <chrono>
#include <cstdio>
#include <dlfcn.h>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <vector>

enum { THREADS = 8, ROUNDS = 400, FUNCTIONS = 6 };

static const char *const names[FUNCTIONS] = {"cudaLaunchKernel",      "cudaMemcpyAsync", "cudaMemsetAsync",
					     "cudaStreamSynchronize", "cudaMalloc",      "cudaEventQuery"};
static void *functions[FUNCTIONS];
static std::atomic<long> nanoseconds[FUNCTIONS], thrown;

struct dim3 {
	unsigned x, y, z;
};

static int call(int i)
{
	const dim3 one = {1, 1, 1};
	void *p = nullptr, *f = functions[i];

	switch (i) {
	case 0:
		return ((int (*)(void *, dim3, dim3, void **, size_t, void *))f)((void *)&call, one, one, nullptr, 0,
										 p);
	case 1:
		return ((int (*)(void *, void *, size_t, int, void *))f)(&p, &p, 8, 1, nullptr);
	case 2:
		return ((int (*)(void *, int, size_t, void *))f)(&p, 0, 8, nullptr);
	case 4:
		return ((int (*)(void **, size_t))f)(&p, 4096);
	default:
		return ((int (*)(void *))f)(nullptr);
	}
}

__attribute__((noinline)) static void throwing(int i, int n)
{
	auto start = std::chrono::steady_clock::now();
	int err = call(i);

	nanoseconds[i] += (std::chrono::steady_clock::now() - start).count();
	if (err && n % 10 == 0)
		throw std::runtime_error(names[i]);
}

__attribute__((noinline)) static void between(int i, int n)
{
	std::vector<char> memory(100);

	throwing(i, n);
	memory[0] = 1;
}

static void work()
{
	for (int n = 0; n < ROUNDS; n++)
		for (int i = 0; i < FUNCTIONS; i++) {
			try {
				between(i, n);
			} catch (const std::runtime_error &) {
				thrown++;
			}
		}
}

int main(int argc, char **argv)
{
	void *library = argc > 2 ? dlopen(argv[1], RTLD_NOW) : nullptr;
	std::vector<std::thread> threads;

	for (int i = 0; i < FUNCTIONS; i++)
		if (!library || !(functions[i] = dlsym(library, names[i])))
			return 1;
	call(3);
	printf("ready 0\n");
	fflush(stdout);
	getchar();
	for (int i = 0; i < THREADS; i++)
		threads.emplace_back(work);
	for (auto &thread : threads)
		thread.join();
	{
		std::ofstream out(argv[2]);

		out << "{\"thrown\": " << thrown << ", \"calls\": {";
		for (int i = 0; i < FUNCTIONS; i++)
			out << (i ? ", " : "") << '"' << names[i] << "\": [" << THREADS * ROUNDS << ", "
			    << nanoseconds[i] / 1e9 << "]";
		out << "}}\n";
	}
	getchar();
	return 0;
}
