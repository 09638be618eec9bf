// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A window: subscribes to CUPTI, empties its buffers into the ring, records its clock, and leaves
 * CUPTI again.
 *
 * Any thread of the program or of CUPTI fills and completes buffers; the code for that touches the
 * decoder and the ring under `writing`. One thread does all else.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "user/inject/inject.h"

#define REST_BYTES       (16u << 10)
#define CUPTI_REFUSABLE  27 /* of CUDA 12.9: before, CUPTI crashes where it is refused a buffer */
#define FLUSH_PERIOD_MS  100
#define CLOCK_TRIES      5
#define CLOCK_GOOD_NS    2000
#define CLOCK_SPACING_NS 50000000ULL /* between clock records that follow a buffer */
#define GRACE_NS         100000000ULL
#define GRACE_BESIDE_NS  1000000000ULL /* beside others: until CUPTI has given back all buffers */
#define LEAVE_NS         1000000000    /* how long to wait for a call of the program */

/* The state of taking CUPTI out of the process. */
enum leaving { NOT_LEAVING, WAITS_FOR_CALL, IN_CALL, LEFT, GIVEN_UP };

/* State of CUPTI's callbacks, which take no argument. */
static struct {
	pthread_mutex_t writing;
	struct decoder decoder; /* ring NULL: no window */
	struct gpu_ring_control *control;
	uint64_t clock_ns; /* when the clock was last recorded */
	uint32_t version;  /* of CUPTI */
	uint32_t leaving;  /* enum leaving; a futex */
	pid_t pid;
	bool forked;
} shared = {.writing = PTHREAD_MUTEX_INITIALIZER};

/* What CUPTI fills when there is no buffer left: each record in it is lost, and counted. */
static uint8_t rest[REST_BYTES] __attribute__((aligned(8)));

/* The activities to ask CUPTI for. */
static const struct {
	CUpti_ActivityKind cupti;
	enum gpu_activity kind;
	bool needed; /* the window is of no use without it */
} wanted_kinds[] = {
	{CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, GPU_ACTIVITY_KERNEL, true},
	{CUPTI_ACTIVITY_KIND_MEMCPY, GPU_ACTIVITY_COPY, true},
	{CUPTI_ACTIVITY_KIND_MEMCPY2, GPU_ACTIVITY_COPY, false},
	{CUPTI_ACTIVITY_KIND_MEMSET, GPU_ACTIVITY_SET, true},
	{CUPTI_ACTIVITY_KIND_GRAPH_TRACE, GPU_ACTIVITY_GRAPH, false},
	{CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, GPU_ACTIVITY_SYNC, false},
	{CUPTI_ACTIVITY_KIND_RUNTIME, GPU_ACTIVITY_CALL, true},
	{CUPTI_ACTIVITY_KIND_DRIVER, GPU_ACTIVITY_CALL, false},
	{CUPTI_ACTIVITY_KIND_OVERHEAD, GPU_ACTIVITY_OVERHEAD, false},
};

#define WANTED_CNT (sizeof(wanted_kinds) / sizeof(*wanted_kinds))

void window__forked(void)
{
	shared.forked = true;
}

/* Fork handlers do not run in a child of a raw clone, which has no ring either: hence the pid. */
static bool is_ours(void)
{
	return !shared.forked && getpid() == shared.pid;
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

/* Another subscriber may have a clock of its own. */
static CUptiResult read_clock(const struct cupti *cupti, uint64_t *ns)
{
	return cupti->subscriber ? cupti->GetTimestamp_v2(cupti->subscriber, ns) : cupti->GetTimestamp(ns);
}

/*
 * The best of some readings: the kernel may preempt this thread between two of them. false: CUPTI
 * tells no time.
 */
static bool read_clocks(const struct cupti *cupti, struct gpu_ring_clock *best)
{
	*best = (struct gpu_ring_clock){.behind_ns = UINT64_MAX};
	for (int i = 0; i < CLOCK_TRIES && best->behind_ns - best->before_ns > CLOCK_GOOD_NS; i++) {
		struct gpu_ring_clock rec = {.hdr = {.type = GPU_RING_CLOCK, .size = sizeof(rec)}};

		rec.before_ns = now_ns();
		if (read_clock(cupti, &rec.cupti_ns))
			return false;
		rec.behind_ns = now_ns();
		if (rec.behind_ns - rec.before_ns < best->behind_ns - best->before_ns)
			*best = rec;
	}
	return true;
}

/*
 * told_ns as in struct gpu_ring_clock. CUPTI is not called under `writing`: it may call on_completed
 * under a lock of its own, for which the call would wait (Kineto's pull request 1347 has such a
 * deadlock). So another thread may have written a later reading meanwhile, and then this reads again.
 */
static void send_clock(const struct cupti *cupti, uint64_t told_ns)
{
	struct gpu_ring_clock rec;
	bool sent = false;

	while (!sent && read_clocks(cupti, &rec)) {
		rec.told_ns = told_ns;
		pthread_mutex_lock(&shared.writing);
		sent = rec.before_ns > shared.clock_ns || !shared.decoder.ring;
		if (sent && shared.decoder.ring) {
			ring__write(shared.decoder.ring, &rec, sizeof(rec));
			shared.clock_ns = rec.behind_ns;
		}
		pthread_mutex_unlock(&shared.writing);
	}
}

/* In a forked child too: its copy of CUPTI asks and gives back as that of its parent does. */
static void on_requested(uint8_t **buffer, size_t *size, size_t *record_cnt)
{
	struct buffer *b = buffers__take(now_ns());

	*buffer = NULL;
	*size = *record_cnt = 0;
	if (b) {
		*buffer = b->memory;
		*size = BUFFER_BYTES;
	} else if (shared.version < CUPTI_REFUSABLE) {
		*buffer = rest;
		*size = sizeof(rest);
		*record_cnt = 1;
	}
}

static void add_dropped(size_t cnt)
{
	struct gpu_ring_control *control = shared.control;

	if (cnt && control)
		__atomic_fetch_add(&control->dropped, cnt, __ATOMIC_RELAXED);
}

static void count_dropped(const struct cupti *cupti)
{
	size_t dropped = 0;

	if (!(cupti->subscriber ? cupti->ActivityGetNumDroppedRecords_v2(cupti->subscriber, NULL, 0, &dropped)
				: cupti->ActivityGetNumDroppedRecords(NULL, 0, &dropped)))
		add_dropped(dropped);
}

static CUptiResult next_record(const struct cupti *cupti, uint8_t *buffer, size_t size, CUpti_Activity **record)
{
	return cupti->subscriber ? cupti->ActivityGetNextRecord_v2(cupti->subscriber, buffer, size, record)
				 : cupti->ActivityGetNextRecord(buffer, size, record);
}

/* false: no window takes records. */
static bool decode_record(const CUpti_Activity *record, size_t bytes)
{
	bool open;

	pthread_mutex_lock(&shared.writing);
	open = shared.decoder.ring;
	if (open)
		decoder__record(&shared.decoder, record, bytes);
	pthread_mutex_unlock(&shared.writing);
	return open;
}

static void decode_buffer(uint8_t *buffer, size_t size)
{
	const struct cupti *cupti = __atomic_load_n(&shared.decoder.cupti, __ATOMIC_ACQUIRE);
	CUpti_Activity *record = NULL;

	/*
	 * A truncated record ends the buffer, and so does a record of a kind that this CUPTI does
	 * not know.
	 */
	while (!next_record(cupti, buffer, size, &record)) {
		size_t at = (uint8_t *)record - buffer;

		if ((uint8_t *)record < buffer || at + sizeof(*record) > size || !decode_record(record, size - at))
			break;
	}
	count_dropped(cupti);
	if (now_ns() - __atomic_load_n(&shared.clock_ns, __ATOMIC_RELAXED) > CLOCK_SPACING_NS)
		send_clock(cupti, 0); /* other buffers may hold what ended before */
}

static void on_completed(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
	struct buffer *b = buffers__find(buffer);

	if (b && is_ours() && valid && valid <= BUFFER_BYTES && buffer__is_of_window(b))
		decode_buffer(buffer, valid);
	else if (buffer == rest && is_ours() && valid)
		add_dropped(1);
	if (b)
		buffers__release(b);
}

/* The same for a subscriber beside others. */
static void on_requested_beside(uint8_t **buffer, size_t *size, size_t *record_cnt, void *info)
{
	on_requested(buffer, size, record_cnt);
}

static void on_completed_beside(uint8_t *buffer, size_t size, size_t valid, void *info)
{
	on_completed(NULL, 0, buffer, size, valid);
}

static long futex(uint32_t *word, int what, uint32_t value, const struct timespec *timeout)
{
	return syscall(SYS_futex, word, what | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
}

static bool leaving(enum leaving from, enum leaving to)
{
	uint32_t was = from;

	if (!__atomic_compare_exchange_n(&shared.leaving, &was, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return false;
	futex(&shared.leaving, FUTEX_WAKE, INT_MAX, NULL);
	return true;
}

/* CUPTI's documentation asks to call cuptiFinalize at the exit of one of the program's API calls. */
static void on_call(void *ctx, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data)
{
	const CUpti_CallbackData *info = data;
	struct window *w = ctx;

	if ((domain != CUPTI_CB_DOMAIN_RUNTIME_API && domain != CUPTI_CB_DOMAIN_DRIVER_API) ||
	    info->callbackSite != CUPTI_API_EXIT || !is_ours() || !leaving(WAITS_FOR_CALL, IN_CALL))
		return;
	w->cupti.Unsubscribe(w->subscriber);
	w->cupti.Finalize();
	leaving(IN_CALL, LEFT);
}

void window__hurry(void)
{
	leaving(WAITS_FOR_CALL, GIVEN_UP);
}

static void set_state(struct window *w, enum gpu_ring_state state, uint32_t error)
{
	__atomic_store_n(&w->ring->control->error, error, __ATOMIC_RELAXED);
	__atomic_store_n(&w->ring->control->state, state, __ATOMIC_RELEASE);
}

/* Writes the properties of all devices, as the driver, which has loaded us, reports them. */
static void send_devices(struct window *w)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	CUresult (*count)(int *) = driver ? dlsym(driver, "cuDeviceGetCount") : NULL;
	CUresult (*get)(CUdevice *, int) = driver ? dlsym(driver, "cuDeviceGet") : NULL;
	CUresult (*name)(char *, int, CUdevice) = driver ? dlsym(driver, "cuDeviceGetName") : NULL;
	CUresult (*memory)(size_t *, CUdevice) = driver ? dlsym(driver, "cuDeviceTotalMem_v2") : NULL;
	CUresult (*attribute)(int *, CUdevice_attribute, CUdevice) =
		driver ? dlsym(driver, "cuDeviceGetAttribute") : NULL;
	int cnt = 0;

	if (!count || !get || !name || count(&cnt))
		return;
	for (int i = 0; i < cnt; i++) {
		struct gpu_ring_device rec = {.hdr = {.type = GPU_RING_DEVICE, .size = sizeof(rec)}, .device = i};
		int processors = 0, major = 0, minor = 0;
		size_t bytes = 0;
		CUdevice device;

		if (get(&device, i) || name(rec.name, sizeof(rec.name), device))
			continue;
		if (memory)
			memory(&bytes, device);
		if (attribute) {
			attribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
			attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
			attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
		}
		rec.name[sizeof(rec.name) - 1] = 0;
		rec.memory_bytes = bytes;
		rec.multiprocessors = processors;
		rec.compute_major = major;
		rec.compute_minor = minor;
		pthread_mutex_lock(&shared.writing);
		ring__write(w->ring, &rec, sizeof(rec));
		pthread_mutex_unlock(&shared.writing);
	}
	dlclose(driver);
}

/*
 * Sets CUPTI to the kernel's thread ids; other tools may rely on their own kind, so this also
 * restores it.
 */
static void set_thread_ids(struct window *w, bool ours)
{
	if (w->cupti.subscriber) {
		CUpti_ActivityThreadIdType kind = CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM;
		size_t size = sizeof(kind);

		if (ours)
			w->cupti.ActivitySetAttribute_v2(w->cupti.subscriber, CUPTI_ATTR_THREAD_IDS, &size, &kind);
		return;
	}
	if (!w->cupti.SetThreadIdType)
		return;
	if (ours && (!w->cupti.GetThreadIdType || w->cupti.GetThreadIdType(&w->thread_ids)))
		w->thread_ids = CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT;
	w->cupti.SetThreadIdType(ours ? CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM : w->thread_ids);
}

/* The period is of all subscribers: it stays as it is where there may be others. */
static void set_period(struct window *w, uint32_t ms)
{
	if (w->cupti.ActivityFlushPeriod && !w->cupti.subscriber)
		w->cupti.ActivityFlushPeriod(ms);
}

static void disable(struct window *w)
{
	const struct cupti *cupti = &w->cupti;

	for (size_t i = 0; i < WANTED_CNT; i++)
		if (w->kinds & 1u << wanted_kinds[i].kind) {
			if (cupti->subscriber)
				cupti->ActivityDisable_v2(cupti->subscriber, wanted_kinds[i].cupti, NULL);
			else
				cupti->ActivityDisable(wanted_kinds[i].cupti);
		}
	set_period(w, 0);
}

static CUptiResult enable(struct window *w)
{
	const struct cupti *cupti = &w->cupti;
	CUptiResult err = cupti->subscriber ? cupti->ActivityRegisterCallbacks_v2(
						      cupti->subscriber, on_requested_beside, on_completed_beside)
					    : cupti->ActivityRegisterCallbacks(on_requested, on_completed);

	for (size_t i = 0; i < WANTED_CNT && !err; i++)
		if (w->kinds & 1u << wanted_kinds[i].kind) {
			CUpti_ActivityKind kind = wanted_kinds[i].cupti;
			CUptiResult kind_err = cupti->subscriber
						       ? cupti->ActivityEnable_v2(cupti->subscriber, kind, NULL)
						       : cupti->ActivityEnable(kind);

			err = wanted_kinds[i].needed ? kind_err : CUPTI_SUCCESS;
		}
	if (!err)
		set_period(w, FLUSH_PERIOD_MS);
	return err;
}

/* Lets the callbacks write from here on. */
static void start_writing(struct window *w)
{
	buffers__begin();
	pthread_mutex_lock(&shared.writing);
	ring__restart(w->ring);
	decoder__restart(&shared.decoder);
	__atomic_store_n(&shared.decoder.cupti, &w->cupti, __ATOMIC_RELEASE);
	shared.decoder.ring = w->ring;
	pthread_mutex_unlock(&shared.writing);
	send_clock(&w->cupti, 0);
}

/* Stops them. all: CUPTI was made to give back all buffers. */
static void stop_writing(struct window *w, bool all)
{
	uint64_t told_ns = __atomic_load_n(&w->ring->control->ended_ns, __ATOMIC_RELAXED), oldest_ns;
	uint32_t held = 0;

	oldest_ns = buffers__held(&held);
	if (!all) {
		told_ns = oldest_ns < told_ns ? oldest_ns : told_ns;
		add_dropped(held); /* what is in them is not known: one record or more */
	}
	send_clock(&w->cupti, told_ns);
	count_dropped(&w->cupti);
	pthread_mutex_lock(&shared.writing);
	shared.decoder.ring = NULL;
	pthread_mutex_unlock(&shared.writing);
}

/*
 * Without a driver, CUPTI 13.2 recurses until the stack is full. With --inject, this library may be
 * loaded before CUDA is.
 */
static bool has_driver(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	if (driver)
		dlclose(driver);
	return driver;
}

void window__begin(struct window *w, uint32_t wanted)
{
	struct gpu_ring_control *control = w->ring->control;
	char holder[CUPTI_HOLDER_BYTES];
	CUptiResult err;
	int open_err;

	shared.pid = getpid();
	set_state(w, GPU_RING_STARTING, 0);
	__atomic_store_n(&control->ended_ns, 0, __ATOMIC_RELAXED);
	w->kinds = __atomic_load_n(&control->kinds, __ATOMIC_RELAXED);
	if (!has_driver()) {
		set_state(w, GPU_RING_NO_DRIVER, 0);
		return;
	}
	open_err = cupti__open(&w->cupti, w->cupti_path);
	control->cupti_version = shared.version = w->cupti.version;
	shared.control = control;
	if (open_err || !GPU_RING_KNOWS_CUPTI(w->cupti.version)) {
		set_state(w, open_err == -ENOENT ? GPU_RING_NO_CUPTI : GPU_RING_FAILED, CUPTI_ERROR_NOT_COMPATIBLE);
		return;
	}
	err = cupti__subscribe(&w->cupti, &w->subscriber, on_call, w, holder);
	if (err) {
		/* Before CUDA 12, the latter error meant a second subscriber. */
		bool busy =
			err == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED || err == CUPTI_ERROR_MAX_LIMIT_REACHED;

		memcpy(control->holder, holder, sizeof(control->holder));
		set_state(w, busy ? GPU_RING_BUSY : GPU_RING_FAILED, err);
		return;
	}
	set_thread_ids(w, true);
	start_writing(w);
	send_devices(w);
	err = enable(w);
	w->open = true;
	if (err) {
		window__end(w, wanted, true);
		set_state(w, GPU_RING_FAILED, err);
		return;
	}
	__atomic_store_n(&control->begun_ns, now_ns(), __ATOMIC_RELAXED);
	set_state(w, GPU_RING_ACTIVE, 0);
}

/*
 * CUPTI gives back the buffers that hold nothing but complete records: the others may hold what
 * ended since CUPTI asked for them.
 */
void window__tick(struct window *w)
{
	uint64_t told_ns = now_ns(), oldest_ns;
	uint32_t held;

	w->cupti.ActivityFlushAll(0);
	oldest_ns = buffers__held(&held);
	send_clock(&w->cupti, oldest_ns < told_ns ? oldest_ns : told_ns);
}

/*
 * Takes CUPTI out of the process, if a call of the program comes along. After graphs CUPTI stays
 * loaded with nothing in use: using it again after cuptiFinalize has crashed programs with graphs.
 */
static void leave_window(struct window *w)
{
	const struct timespec timeout = {.tv_nsec = LEAVE_NS % 1000000000, .tv_sec = LEAVE_NS / 1000000000};
	struct cupti *cupti = &w->cupti;

	__atomic_store_n(&shared.leaving, WAITS_FOR_CALL, __ATOMIC_RELEASE);
	if (cupti->EnableDomain(1, w->subscriber, CUPTI_CB_DOMAIN_RUNTIME_API) ||
	    cupti->EnableDomain(1, w->subscriber, CUPTI_CB_DOMAIN_DRIVER_API))
		window__hurry();
	futex(&shared.leaving, FUTEX_WAIT, WAITS_FOR_CALL, &timeout);
	if (leaving(WAITS_FOR_CALL, GIVEN_UP) || __atomic_load_n(&shared.leaving, __ATOMIC_ACQUIRE) == GIVEN_UP) {
		cupti->Unsubscribe(w->subscriber);
		return;
	}
	while (__atomic_load_n(&shared.leaving, __ATOMIC_ACQUIRE) == IN_CALL)
		futex(&shared.leaving, FUTEX_WAIT, IN_CALL, NULL);
}

/*
 * Waits some time for the GPU to finish pending work: a forced flush reports that work without its
 * times. Beside others nothing is forced, which would cut off work in the buffers of the others, too:
 * there, CUPTI gives back a buffer when all work in it is done, and this waits for that.
 */
static void flush_window(struct window *w, bool may_wait)
{
	uint64_t grace_ns = !may_wait ? 0 : w->cupti.subscriber ? GRACE_BESIDE_NS : GRACE_NS, start = now_ns();
	const struct timespec pause = {.tv_nsec = may_wait ? GRACE_NS / 10 : 0};
	uint32_t held;

	do {
		w->cupti.ActivityFlushAll(0);
		nanosleep(&pause, NULL);
		buffers__held(&held);
	} while (now_ns() - start < (held ? grace_ns : may_wait ? GRACE_NS : 0));
	w->cupti.ActivityFlushAll(w->cupti.subscriber ? 0 : CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
}

void window__end(struct window *w, uint32_t wanted, bool may_leave)
{
	struct gpu_ring_control *control = w->ring->control;

	set_state(w, GPU_RING_STOPPING, 0);
	__atomic_store_n(&control->ended_ns, now_ns(), __ATOMIC_RELEASE);
	disable(w);
	flush_window(w, may_leave);
	stop_writing(w, !w->cupti.subscriber);
	if (!(wanted & 1))
		__atomic_store_n(&control->seen, wanted, __ATOMIC_RELEASE);
	set_thread_ids(w, false);
	/* Beside others, cuptiFinalize would take CUPTI from them, too. */
	if (may_leave && !w->cupti.subscriber && !shared.decoder.graphs && w->cupti.Finalize && w->cupti.EnableDomain)
		leave_window(w);
	else
		w->cupti.Unsubscribe(w->subscriber);
	w->open = false;
	buffers__give_memory_back();
	set_state(w, GPU_RING_ASLEEP, 0);
}
