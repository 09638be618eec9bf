/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The double of libcupti: its settings, its clock, and callbacks at the entry and exit of functions. */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/cupti_double.h"

#define CBIDS_MAX    2048
#define FAILURES_MAX 8

struct cupti cupti;

struct CUpti_Subscriber_st {
	CUpti_CallbackFunc function;
	void *userdata;
};

static struct {
	pthread_mutex_t lock;
	struct CUpti_Subscriber_st one;
	bool subscribed;
	bool beside; /* others */
	uint8_t enabled[CUPTI_CB_DOMAIN_SIZE][CBIDS_MAX];
	struct {
		char function[64];
		CUptiResult result;
	} failures[FAILURES_MAX];
	int failure_count;
} callback = {.lock = PTHREAD_MUTEX_INITIALIZER};

static __thread bool inside;      /* of a callback */
static __thread bool inside_exit; /* of one where cuptiFinalize may be called */

uint64_t cupti__time(uint64_t monotonic_ns)
{
	__int128 since_ns = (int64_t)(monotonic_ns - cupti.base_ns);

	return monotonic_ns + cupti.settings.offset_ns + (int64_t)(since_ns * cupti.settings.drift_ppm / 1000000);
}

CUptiResult cupti__failing(const char *function)
{
	for (int i = 0; i < callback.failure_count; i++)
		if (!strcmp(callback.failures[i].function, function))
			return callback.failures[i].result;
	return CUPTI_SUCCESS;
}

CUptiResult cupti__tell(const char *function, int64_t argument, uint64_t start_ns, CUptiResult result)
{
	cupti.core->log("{\"log\":\"cupti\",\"name\":\"%s\",\"argument\":%ld,\"tid\":%u,\"start\":%lu,\"end\":%lu,"
			"\"result\":%d}",
			function, argument, cupti.core->tid(), start_ns, cupti.core->now(), result);
	return result;
}

/* --- settings --- */

static void set(const char *name, const char *value)
{
	int i = callback.failure_count;

#define X(name_, value_)                                        \
	if (!strcmp(name, #name_)) {                            \
		cupti.settings.name_ = strtoll(value, NULL, 0); \
		return;                                         \
	}
	CUPTI_SETTINGS(X)
#undef X
	if (strncmp(name, "fail_", 5) || i == FAILURES_MAX) {
		fprintf(stderr, "the double of libcupti has no setting %s\n", name);
		abort();
	}
	snprintf(callback.failures[i].function, sizeof(callback.failures[i].function), "%s", name + 5);
	callback.failures[i].result = (CUptiResult)atoi(value);
	callback.failure_count++;
}

/* Those not named are as at first. */
void gpu_double_cupti(const char *settings)
{
	char *words = strdup(settings ? settings : ""), *rest = words, *word;

#define X(name, value) cupti.settings.name = value;
	CUPTI_SETTINGS(X)
#undef X
	callback.failure_count = 0;
	while ((word = strsep(&rest, ","))) {
		char *value = strchr(word, '=');

		if (!*word)
			continue;
		if (value)
			*value++ = 0;
		set(word, value ? value : "1");
	}
	free(words);
	cupti.core->log("{\"log\":\"clock\",\"base\":%lu,\"offset\":%ld,\"drift_ppm\":%ld}", cupti.base_ns,
			cupti.settings.offset_ns, cupti.settings.drift_ppm);
}

static void forked(void)
{
	inside = inside_exit = false;
	pthread_mutex_init(&callback.lock, NULL);
	callback__reset();
	activity__reset(true);
}

__attribute__((constructor)) static void begin(void)
{
	static const struct core_hooks hooks = {
		.enter = callback__enter,
		.leave = callback__leave,
		.op = activity__op,
		.sync = activity__sync,
		.forked = forked,
	};
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	const struct core *(*get)(void) =
		driver ? (const struct core *(*)(void))dlsym(driver, "gpu_double_core") : NULL;

	if (!get)
		abort();
	cupti.core = get();
	cupti.base_ns = cupti.core->now();
	gpu_double_cupti(getenv("GPU_DOUBLE_CUPTI"));
	cupti.core->set_hooks(&hooks);
}

__attribute__((destructor)) static void end(void)
{
	cupti.core->set_hooks(NULL);
}

/* --- callbacks --- */

static void call_back(struct core_call *call, CUpti_ApiCallbackSite site)
{
	CUpti_CallbackData data = {
		.callbackSite = site,
		.functionName = call->name,
		.functionParams = call->params,
		.functionReturnValue = &call->result,
		.symbolName = call->text,
		.context = cupti.core->current(),
		.contextUid = cupti.core->context_id(NULL),
		.correlationData = &call->data,
		.correlationId = call->correlation,
	};
	CUpti_CallbackFunc function;
	void *userdata;

	pthread_mutex_lock(&callback.lock);
	function = callback.subscribed && callback.enabled[call->library][call->cbid] ? callback.one.function : NULL;
	userdata = callback.one.userdata;
	pthread_mutex_unlock(&callback.lock);
	if (!function || inside)
		return;
	inside = true;
	inside_exit = site == CUPTI_API_EXIT;
	call->called_back = true;
	function(userdata, (CUpti_CallbackDomain)call->library, call->cbid, &data);
	inside = inside_exit = false;
}

static bool is_api(const struct core_call *call)
{
	return (call->library == CORE_DRIVER || call->library == CORE_RUNTIME) && call->cbid < CBIDS_MAX;
}

void callback__enter(struct core_call *call)
{
	if (is_api(call))
		call_back(call, CUPTI_API_ENTER);
}

/* What a callback calls makes no record either. */
void callback__leave(struct core_call *call)
{
	if (!is_api(call))
		return;
	if (!inside)
		activity__call(call);
	call_back(call, CUPTI_API_EXIT);
}

void callback__reset(void)
{
	callback.subscribed = callback.beside = false;
	memset(callback.enabled, 0, sizeof(callback.enabled));
}

static CUptiResult subscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc function, void *userdata)
{
	CUptiResult result = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;

	if (!subscriber)
		return CUPTI_ERROR_INVALID_PARAMETER;
	pthread_mutex_lock(&callback.lock);
	if (!callback.subscribed && !cupti.settings.busy) {
		callback__reset();
		callback.subscribed = true;
		callback.one.function = function;
		callback.one.userdata = userdata;
		*subscriber = &callback.one;
		result = CUPTI_SUCCESS;
	}
	pthread_mutex_unlock(&callback.lock);
	return result;
}

/* As CUPTI adds to a name. */
static const char other[] = "CUPTI for Kineto";

/* CUpti_SubscriberParams of 13.2; those of 13.0 end before `several`. */
struct params {
	size_t size;
	const char *name;
	char *holder;
	size_t holder_bytes;
	uint8_t several;
};

/* Several may subscribe where the driver lets them and all that are there want it. */
static CUptiResult subscribe_by(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc function, void *userdata,
				const struct params *params)
{
	bool several = params && params->size > offsetof(struct params, several) && params->several;
	int64_t busy = cupti.settings.busy;
	CUptiResult result = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;

	if (params && params->size < offsetof(struct params, several))
		return CUPTI_ERROR_INVALID_PARAMETER;
	if (busy && params && params->holder)
		snprintf(params->holder, params->holder_bytes, "%s", other);
	if (several && (!cupti.settings.several || busy == 1))
		return result;
	if (several && busy == 2)
		cupti.settings.busy = 0;
	result = subscribe(subscriber, function, userdata);
	cupti.settings.busy = busy;
	callback.beside = !result && several;
	cupti.core->log("{\"log\":\"subscribed\",\"name\":\"%s\",\"several\":%s,\"result\":%d}",
			params && params->name ? params->name : "", several ? "true" : "false", result);
	return result;
}

bool callback__beside(CUpti_SubscriberHandle subscriber)
{
	return callback.subscribed && callback.beside && subscriber == &callback.one;
}

CUptiResult callback__alone(const char *function)
{
	if (!callback.beside)
		return CUPTI_SUCCESS;
	cupti.core->log("{\"log\":\"error\",\"what\":\"%s beside another subscriber\"}", function);
	return CUPTI_ERROR_NOT_SUPPORTED;
}

static CUptiResult unsubscribe(CUpti_SubscriberHandle subscriber)
{
	CUptiResult result = CUPTI_ERROR_INVALID_PARAMETER;

	pthread_mutex_lock(&callback.lock);
	if (subscriber == &callback.one && callback.subscribed) {
		callback__reset();
		result = CUPTI_SUCCESS;
	}
	pthread_mutex_unlock(&callback.lock);
	return result;
}

/* cbid < 0: all of the domain. */
static CUptiResult enable(uint32_t on, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain, int64_t cbid)
{
	if (subscriber != &callback.one || !callback.subscribed || domain <= CUPTI_CB_DOMAIN_INVALID ||
	    domain >= CUPTI_CB_DOMAIN_SIZE || cbid >= CBIDS_MAX)
		return CUPTI_ERROR_INVALID_PARAMETER;
	pthread_mutex_lock(&callback.lock);
	if (cbid < 0)
		memset(callback.enabled[domain], on != 0, CBIDS_MAX);
	else
		callback.enabled[domain][cbid] = on != 0;
	pthread_mutex_unlock(&callback.lock);
	return CUPTI_SUCCESS;
}

CUPTI(cuptiSubscribe, (CUpti_SubscriberHandle * subscriber, CUpti_CallbackFunc function, void *userdata), 0,
      subscribe(subscriber, function, userdata))
CUPTI(cuptiSubscribe_v2,
      (CUpti_SubscriberHandle * subscriber, CUpti_CallbackFunc function, void *userdata,
       CUpti_SubscriberParams *params),
      0, subscribe_by(subscriber, function, userdata, (const struct params *)params))
CUPTI(cuptiUnsubscribe, (CUpti_SubscriberHandle subscriber), 0, unsubscribe(subscriber))
CUPTI(cuptiEnableCallback,
      (uint32_t on, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain, CUpti_CallbackId cbid),
      on ? (int64_t)cbid : -(int64_t)cbid, enable(on, subscriber, domain, cbid))
CUPTI(cuptiEnableDomain, (uint32_t on, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain),
      on ? (int64_t)domain : -(int64_t)domain, enable(on, subscriber, domain, -1))

static CUptiResult enable_all(uint32_t on, CUpti_SubscriberHandle subscriber)
{
	CUptiResult result = CUPTI_SUCCESS;

	for (int domain = 1; domain < CUPTI_CB_DOMAIN_SIZE && !result; domain++)
		result = enable(on, subscriber, (CUpti_CallbackDomain)domain, -1);
	return result;
}

CUPTI(cuptiEnableAllDomains, (uint32_t on, CUpti_SubscriberHandle subscriber), on, enable_all(on, subscriber))

/* CUPTI may only be taken down where none of its callbacks and none of its own code is at work in the thread. */
static CUptiResult finalize(void)
{
	callback__alone("cuptiFinalize");
	if (!inside_exit)
		cupti.core->log("{\"log\":\"error\",\"what\":\"cuptiFinalize outside of the exit of a function\"}");
	pthread_mutex_lock(&callback.lock);
	callback__reset();
	pthread_mutex_unlock(&callback.lock);
	activity__reset(false);
	return CUPTI_SUCCESS;
}

CUPTI(cuptiFinalize, (void), 0, finalize())
CUPTI(cuptiGetVersion, (uint32_t * version), 0, (*version = cupti.settings.version, CUPTI_SUCCESS))

CUptiResult cuptiGetTimestamp(uint64_t *timestamp)
{
	CUptiResult result = cupti__failing(__func__);

	*timestamp = cupti__time(cupti.core->now());
	return result;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char **text)
{
	static const char *const texts[] = {
		[CUPTI_SUCCESS] = "CUPTI_SUCCESS",
		[CUPTI_ERROR_INVALID_PARAMETER] = "CUPTI_ERROR_INVALID_PARAMETER",
		[CUPTI_ERROR_NOT_INITIALIZED] = "CUPTI_ERROR_NOT_INITIALIZED",
		[CUPTI_ERROR_INSUFFICIENT_PRIVILEGES] = "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
		[CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED] = "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
	};

	if ((size_t)result >= sizeof(texts) / sizeof(*texts) || !texts[result])
		return CUPTI_ERROR_INVALID_PARAMETER;
	*text = texts[result];
	return CUPTI_SUCCESS;
}

CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid, const char **name)
{
	static const char *const runtime[] = {
#define RUNTIME(name, number) [number] = #name,
#define DRIVER(name, number)
#include "cupti_names.h"
#undef RUNTIME
#undef DRIVER
	};
	static const char *const driver[] = {
#define RUNTIME(name, number)
#define DRIVER(name, number) [number] = #name,
#include "cupti_names.h"
#undef RUNTIME
#undef DRIVER
	};
	bool is_driver = domain == CUPTI_CB_DOMAIN_DRIVER_API;
	size_t count = is_driver ? sizeof(driver) / sizeof(*driver) : sizeof(runtime) / sizeof(*runtime);

	*name = cbid < count ? (is_driver ? driver : runtime)[cbid] : NULL;
	return *name ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}
