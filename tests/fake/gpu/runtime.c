/* runtime.c: devices, streams, events and memory of the CUDA runtime. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/fake/gpu/parts.h"

enum { PAGE = 4096 };

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_event = PTHREAD_COND_INITIALIZER;
_Thread_local uint32_t fake_capturing;

static struct CUstream_st *streams;
static struct CUstream_st default_stream = { .blocking = true };
static bool default_started, context;
static uint32_t stream_count, event_count;
static cudaError_t sticky;
static _Thread_local cudaError_t last_error;

/* Tests fork ranks. A child has none of the stream threads and needs an unlocked mutex. */
static void fork_before(void)
{
    pthread_mutex_lock(&fake_lock);
}

static void fork_in_parent(void)
{
    pthread_mutex_unlock(&fake_lock);
}

static void fork_in_child(void)
{
    fake_event = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    default_started = false;
    pthread_mutex_unlock(&fake_lock);
}

__attribute__((constructor)) static void fork_watch(void)
{
    pthread_atfork(fork_before, fork_in_parent, fork_in_child);
}

/* Store an error for cudaGetLastError() and return it. */
static cudaError_t reported(cudaError_t code)
{
    if (code != cudaSuccess && code != cudaErrorNotReady)
        last_error = code;
    return code;
}

cudaError_t fake_sticky(void)
{
    return __atomic_load_n(&sticky, __ATOMIC_ACQUIRE);
}

void fake_sticky_set(cudaError_t code)
{
    __atomic_store_n(&sticky, code, __ATOMIC_RELEASE);
}

bool fake_forbidden(void)
{
    if (fake_capturing == 0)
        return false;
    pthread_mutex_lock(&fake_lock);
    fake_capture_spoil();
    pthread_mutex_unlock(&fake_lock);
    return true;
}

/* ---- devices ---- */

static int device_count(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int count = 0;

    if (getenv("FAKE_GPU_DEVICES") != NULL)
        return (int)fake_number("FAKE_GPU_DEVICES", 1);
    if (visible == NULL)
        return 1;
    for (const char *at = visible; *at != '\0'; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ','))
        count += strncmp(at, "-1", 2) != 0;
    return count;
}

cudaError_t fake_context(void)
{
    cudaError_t code = fake_sticky();

    if (code != cudaSuccess)
        return code;
    if (device_count() == 0)
        return cudaErrorNoDevice;
    pthread_mutex_lock(&fake_lock);
    if (!context)
        fake_trace("context made");
    context = true;
    pthread_mutex_unlock(&fake_lock);
    return cudaSuccess;
}

/* Enter a synchronous call that needs a context. */
#define BEGIN(function)                                                                                      \
    do {                                                                                                     \
        FAKE_CALL(function, cudaError_t);                                                                    \
        cudaError_t begin_ = fake_context();                                                                 \
        if (begin_ != cudaSuccess)                                                                           \
            return reported(begin_);                                                                         \
    } while (0)

FAKE_EXPORT cudaError_t cudaGetDeviceCount(int *count)
{
    FAKE_CALL(cudaGetDeviceCount, cudaError_t);
    *count = device_count();
    return *count == 0 ? reported(cudaErrorNoDevice) : cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaDriverGetVersion(int *version)
{
    FAKE_CALL(cudaDriverGetVersion, cudaError_t);
    *version = (int)fake_number("FAKE_GPU_DRIVER", CUDART_VERSION);
    return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaSetDevice(int device)
{
    BEGIN(cudaSetDevice);
    return device < 0 || device >= device_count() ? reported(cudaErrorInvalidDevice) : cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaGetDevice(int *device)
{
    FAKE_CALL(cudaGetDevice, cudaError_t);
    *device = 0;
    return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaSetDeviceFlags(unsigned flags)
{
    (void)flags;
    FAKE_CALL(cudaSetDeviceFlags, cudaError_t);
    return cudaSuccess;
}

/* Use the UUID in CUDA_VISIBLE_DEVICES, so that the pool recognizes the plugin's device. */
static void uuid_fill(cudaUUID_t *uuid, int device)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    unsigned byte = 0, at = 0;

    for (int i = 0; i < 16; i++)
        uuid->bytes[i] = (char)(16 * device + i);
    if (visible == NULL || strncasecmp(visible, "GPU-", 4) != 0)
        return;
    for (const char *text = visible + 4; *text != '\0' && at < 16; text++)
        if (*text != '-' && sscanf(text, "%2x", &byte) == 1 && text[1] != '\0') {
            uuid->bytes[at++] = (char)byte;
            text++;
        }
}

FAKE_EXPORT cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device)
{
    FAKE_CALL(cudaGetDeviceProperties, cudaError_t);
    if (device < 0 || device >= device_count())
        return reported(cudaErrorInvalidDevice);
    memset(out, 0, sizeof(*out));
    snprintf(out->name, sizeof(out->name), "Fake GPU");
    out->major = 9;
    out->totalGlobalMem = (size_t)fake_number("FAKE_GPU_MEMORY", 16384) << 20;
    out->multiProcessorCount = 132;
    out->warpSize = 32;
    out->maxThreadsPerBlock = 1024;
    out->sharedMemPerBlock = 48 << 10;
    out->sharedMemPerBlockOptin = 227 << 10;
    out->l2CacheSize = 60 << 20;
    uuid_fill(&out->uuid, device);
    return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    struct cudaDeviceProp facts;

    FAKE_CALL(cudaDeviceGetAttribute, cudaError_t);
    if (cudaGetDeviceProperties(&facts, device) != cudaSuccess)
        return cudaErrorInvalidDevice;
    switch ((int)attribute) {
    case cudaDevAttrComputeCapabilityMajor:
        *value = facts.major;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *value = facts.minor;
        return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
        *value = facts.multiProcessorCount;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = (int)facts.sharedMemPerBlockOptin;
        return cudaSuccess;
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrUnifiedAddressing:
        *value = 1;
        return cudaSuccess;
    default:
        *value = 0;
        return cudaSuccess;
    }
}

FAKE_EXPORT cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device)
{
    FAKE_CALL(cudaDeviceGetPCIBusId, cudaError_t);
    snprintf(text, (size_t)bytes, "0000:%02x:00.0", 0x10 + device);
    return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    FAKE_CALL(cudaDeviceCanAccessPeer, cudaError_t);
    *can = device != peer;
    return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    (void)peer;
    (void)flags;
    FAKE_CALL(cudaDeviceEnablePeerAccess, cudaError_t);
    return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
    (void)peer;
    FAKE_CALL(cudaDeviceDisablePeerAccess, cudaError_t);
    return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

FAKE_EXPORT const char *cudaGetErrorString(cudaError_t code)
{
    switch ((int)code) {
    case cudaSuccess:
        return "no error";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInsufficientDriver:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorDevicesUnavailable:
        return "CUDA-capable device(s) is/are busy or unavailable";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorECCUncorrectable:
        return "uncorrectable ECC error encountered";
    case cudaErrorNotReady:
        return "device not ready";
    case cudaErrorIllegalAddress:
        return "an illegal memory access was encountered";
    case cudaErrorLaunchTimeout:
        return "the launch timed out and was terminated";
    case cudaErrorLaunchFailure:
        return "unspecified launch failure";
    case cudaErrorSystemDriverMismatch:
        return "system has unsupported display driver / cuda driver combination";
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
        return "operation failed due to a previous error during capture";
    default:
        return "an error of the fake GPU";
    }
}

FAKE_EXPORT const char *cudaGetErrorName(cudaError_t code)
{
    return cudaGetErrorString(code);
}

FAKE_EXPORT cudaError_t cudaGetLastError(void)
{
    cudaError_t code = fake_sticky() != cudaSuccess ? fake_sticky() : last_error;

    last_error = cudaSuccess;
    return code;
}

FAKE_EXPORT cudaError_t cudaPeekAtLastError(void)
{
    return fake_sticky() != cudaSuccess ? fake_sticky() : last_error;
}

/* ---- streams ---- */

fake_op *fake_op_new(void (*run)(void *), void (*drop)(void *), const void *args, size_t bytes)
{
    fake_op *op = aligned_alloc(16, (sizeof(*op) + bytes + 15) / 16 * 16);

    if (op == NULL)
        abort();
    op->next = NULL;
    op->run = run;
    op->drop = drop;
    op->bytes = bytes;
    memcpy(op->args, args, bytes);
    return op;
}

void fake_op_free(fake_op *op)
{
    if (op->drop != NULL)
        op->drop(op->args);
    free(op);
}

static void run_hang(void *args)
{
    (void)args;
    fake_wait_for_ever();
}

static void run_failure(void *args)
{
    fake_sticky_set(*(const cudaError_t *)args);
}

static void *stream_main(void *argument)
{
    cudaStream_t stream = argument;

    pthread_mutex_lock(&fake_lock);
    for (;;) {
        fake_op *op = stream->first;

        if (op == NULL && stream->ending)
            break;
        if (op == NULL) {
            pthread_cond_wait(&fake_event, &fake_lock);
            continue;
        }
        pthread_mutex_unlock(&fake_lock);
        if (fake_sticky() == cudaSuccess || op->run == run_failure)
            op->run(op->args);
        fake_spend(1); /* every operation takes at least 1 us */
        pthread_mutex_lock(&fake_lock);
        stream->first = op->next;
        if (stream->first == NULL)
            stream->last = &stream->first;
        stream->done++;
        pthread_cond_broadcast(&fake_event);
        pthread_mutex_unlock(&fake_lock);
        fake_op_free(op);
        pthread_mutex_lock(&fake_lock);
    }
    pthread_mutex_unlock(&fake_lock);
    free(stream);
    return NULL;
}

static void stream_start(cudaStream_t stream)
{
    pthread_attr_t attributes;
    pthread_t thread;

    stream->last = &stream->first;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attributes, stream_main, stream) != 0)
        abort();
    pthread_attr_destroy(&attributes);
}

/* Order the default stream: it starts after all blocking streams, and they wait for it. */
static void default_before(void)
{
    if (!default_started)
        stream_start(&default_stream);
    default_started = true;
    for (struct CUstream_st *s = streams; s != NULL; s = s->next)
        while (s->blocking && s->done < s->pushed)
            pthread_cond_wait(&fake_event, &fake_lock);
}

static bool is_default(cudaStream_t stream)
{
    return stream == NULL || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

cudaError_t fake_push(cudaStream_t stream, int reached, void (*run)(void *), void (*drop)(void *),
                      const void *args, size_t bytes)
{
    bool late = reached >= 700 && reached < 800;
    const cudaError_t failure = (cudaError_t)reached;
    cudaError_t code = reached > 0 && !late ? (cudaError_t)reached : fake_context();
    fake_op *op = fake_op_new(run, drop, args, bytes);

    if (code != cudaSuccess) {
        fake_op_free(op);
        return reported(code);
    }
    if (late || reached == FAKE_HANG) {
        fake_op_free(op);
        op = fake_op_new(late ? run_failure : run_hang, NULL, &failure, sizeof(failure));
    }
    if (is_default(stream) && fake_forbidden()) {
        fake_op_free(op);
        return reported(cudaErrorStreamCaptureImplicit);
    }
    pthread_mutex_lock(&fake_lock);
    if (!is_default(stream) && stream->capture != NULL) {
        code = fake_capture_add(stream, op);
        pthread_mutex_unlock(&fake_lock);
        return reported(code);
    }
    if (is_default(stream)) {
        default_before();
        stream = &default_stream;
    }
    *stream->last = op;
    stream->last = &op->next;
    stream->pushed++;
    pthread_cond_broadcast(&fake_event);
    while (stream == &default_stream && stream->done < stream->pushed)
        pthread_cond_wait(&fake_event, &fake_lock);
    pthread_mutex_unlock(&fake_lock);
    return cudaSuccess;
}

bool fake_stream_done(cudaStream_t stream)
{
    bool done;

    pthread_mutex_lock(&fake_lock);
    done = is_default(stream) || stream->done == stream->pushed;
    pthread_mutex_unlock(&fake_lock);
    return done;
}

cudaError_t fake_stream_finish(cudaStream_t stream)
{
    pthread_mutex_lock(&fake_lock);
    if (is_default(stream)) {
        default_before();
    } else {
        uint64_t until = stream->pushed;

        while (stream->done < until)
            pthread_cond_wait(&fake_event, &fake_lock);
    }
    pthread_mutex_unlock(&fake_lock);
    return fake_sticky();
}

/* Wait for all streams. After a failure no new work starts, but running work may still finish: wait
 * at most 1 s for it, because it may hang. */
static void finish_all(void)
{
    struct timespec until;
    int code = 0;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    pthread_mutex_lock(&fake_lock);
    for (struct CUstream_st *s = streams; s != NULL; s = s->next)
        while (s->done < s->pushed && code == 0) {
            if (fake_sticky() == cudaSuccess)
                pthread_cond_wait(&fake_event, &fake_lock);
            else
                code = pthread_cond_timedwait(&fake_event, &fake_lock, &until);
        }
    pthread_mutex_unlock(&fake_lock);
}

FAKE_EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    cudaStream_t stream;

    BEGIN(cudaStreamCreateWithPriority);
    stream = calloc(1, sizeof(*stream));
    if (stream == NULL)
        return reported(cudaErrorMemoryAllocation);
    stream->blocking = (flags & cudaStreamNonBlocking) == 0;
    stream->priority = priority;
    stream_start(stream);
    pthread_mutex_lock(&fake_lock);
    stream->next = streams;
    streams = stream;
    stream_count++;
    pthread_mutex_unlock(&fake_lock);
    *out = stream;
    return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    FAKE_CALL(cudaStreamCreateWithFlags, cudaError_t);
    return cudaStreamCreateWithPriority(out, flags, 0);
}

FAKE_EXPORT cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return cudaStreamCreateWithFlags(out, cudaStreamDefault);
}

/* Destroy a stream after the queued work. */
FAKE_EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    FAKE_CALL(cudaStreamDestroy, cudaError_t);
    pthread_mutex_lock(&fake_lock);
    for (struct CUstream_st **at = &streams; *at != NULL; at = &(*at)->next)
        if (*at == stream) {
            *at = stream->next;
            break;
        }
    stream_count--;
    stream->ending = true;
    pthread_cond_broadcast(&fake_event);
    pthread_mutex_unlock(&fake_lock);
    return cudaSuccess;
}

static cudaError_t captured_is_spoilt(cudaStream_t stream)
{
    bool captured;

    pthread_mutex_lock(&fake_lock);
    captured = !is_default(stream) && stream->capture != NULL;
    if (captured)
        fake_capture_spoil();
    pthread_mutex_unlock(&fake_lock);
    return captured ? reported(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    BEGIN(cudaStreamSynchronize);
    cudaError_t code = captured_is_spoilt(stream);

    return code == cudaSuccess ? reported(fake_stream_finish(stream)) : code;
}

FAKE_EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    BEGIN(cudaStreamQuery);
    cudaError_t code = captured_is_spoilt(stream);

    if (code != cudaSuccess)
        return code;
    return fake_stream_done(stream) ? reported(fake_sticky()) : cudaErrorNotReady;
}

FAKE_EXPORT cudaError_t cudaDeviceSynchronize(void)
{
    BEGIN(cudaDeviceSynchronize);
    if (fake_forbidden())
        return reported(cudaErrorStreamCaptureUnsupported);
    finish_all();
    return reported(fake_sticky());
}

typedef struct host_call {
    cudaHostFn_t function;
    void *data;
} host_call;

static void run_host(void *args)
{
    const host_call *call = args;

    call->function(call->data);
}

FAKE_EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    return fake_push(stream, FAKE_REACHED(cudaLaunchHostFunc), run_host, NULL, &(host_call){ function, data },
                     sizeof(host_call));
}

/* ---- events ---- */

static void event_release(cudaEvent_t event)
{
    if (__atomic_sub_fetch(&event->refs, 1, __ATOMIC_ACQ_REL) == 0)
        free(event);
}

FAKE_EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    cudaEvent_t event;

    BEGIN(cudaEventCreateWithFlags);
    event = calloc(1, sizeof(*event));
    if (event == NULL)
        return reported(cudaErrorMemoryAllocation);
    event->refs = 1;
    event->flags = flags;
    __atomic_add_fetch(&event_count, 1, __ATOMIC_RELAXED);
    *out = event;
    return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    FAKE_CALL(cudaEventCreate, cudaError_t);
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

FAKE_EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    FAKE_CALL(cudaEventDestroy, cudaError_t);
    __atomic_sub_fetch(&event_count, 1, __ATOMIC_RELAXED);
    event_release(event);
    return cudaSuccess;
}

typedef struct event_op {
    cudaEvent_t event;
    uint64_t number; /* number of the record to wait for; 0: the latest record when the wait runs */
} event_op;

static void drop_event(void *args)
{
    event_release(((event_op *)args)->event);
}

static void run_record(void *args)
{
    const event_op *op = args;

    pthread_mutex_lock(&fake_lock);
    if (op->number == 0)
        op->event->recorded++;
    op->event->passed = op->number == 0 ? op->event->recorded : op->number;
    op->event->passed_ns = fake_device_ns();
    pthread_cond_broadcast(&fake_event);
    pthread_mutex_unlock(&fake_lock);
}

static void run_wait(void *args)
{
    const event_op *op = args;

    pthread_mutex_lock(&fake_lock);
    while (op->event->passed < op->number && fake_sticky() == cudaSuccess)
        pthread_cond_wait(&fake_event, &fake_lock);
    pthread_mutex_unlock(&fake_lock);
}

static cudaError_t event_push(cudaEvent_t event, cudaStream_t stream, int reached, uint64_t number,
                              void (*run)(void *))
{
    __atomic_add_fetch(&event->refs, 1, __ATOMIC_RELAXED);
    return fake_push(stream, reached, run, drop_event, &(event_op){ event, number }, sizeof(event_op));
}

FAKE_EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    int reached = FAKE_REACHED(cudaEventRecord);
    uint64_t number;
    bool captured;

    pthread_mutex_lock(&fake_lock);
    captured = !is_default(stream) && stream->capture != NULL;
    if (captured && flags != cudaEventRecordExternal) {
        cudaError_t code = fake_capture_record(event, stream);

        pthread_mutex_unlock(&fake_lock);
        return reached > 0 ? reported((cudaError_t)reached) : reported(code);
    }
    event->capture = NULL;
    number = captured ? 0 : ++event->recorded;
    pthread_mutex_unlock(&fake_lock);
    return event_push(event, stream, reached, number, run_record);
}

FAKE_EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

FAKE_EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    int reached = FAKE_REACHED(cudaStreamWaitEvent);
    uint64_t number;

    pthread_mutex_lock(&fake_lock);
    if (flags != cudaEventWaitExternal &&
        (event->capture != NULL || (!is_default(stream) && stream->capture != NULL))) {
        cudaError_t code = fake_capture_wait(stream, event);

        pthread_mutex_unlock(&fake_lock);
        return reached > 0 ? reported((cudaError_t)reached) : reported(code);
    }
    number = event->recorded;
    pthread_mutex_unlock(&fake_lock);
    return event_push(event, stream, reached, number, run_wait);
}

FAKE_EXPORT cudaError_t cudaEventQuery(cudaEvent_t event)
{
    bool passed;

    BEGIN(cudaEventQuery);
    pthread_mutex_lock(&fake_lock);
    passed = event->passed == event->recorded;
    pthread_mutex_unlock(&fake_lock);
    return passed ? reported(fake_sticky()) : cudaErrorNotReady;
}

FAKE_EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    BEGIN(cudaEventSynchronize);
    if (event->capture != NULL && fake_forbidden())
        return reported(cudaErrorStreamCaptureUnsupported);
    run_wait(&(event_op){ event, event->recorded });
    return reported(fake_sticky());
}

FAKE_EXPORT cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    cudaError_t code = cudaSuccess;

    BEGIN(cudaEventElapsedTime);
    if (((from->flags | to->flags) & cudaEventDisableTiming) != 0)
        return reported(cudaErrorInvalidResourceHandle);
    pthread_mutex_lock(&fake_lock);
    if (from->recorded == 0 || to->recorded == 0)
        code = cudaErrorInvalidResourceHandle;
    else if (from->passed < from->recorded || to->passed < to->recorded)
        code = cudaErrorNotReady;
    else
        *ms = (float)((double)(to->passed_ns - from->passed_ns) * 1e-6);
    pthread_mutex_unlock(&fake_lock);
    return reported(code);
}

/* ---- memory ---- */

typedef struct block {
    char *at;
    size_t bytes;
    bool pinned; /* host memory */
    bool ours;   /* freed here; false: only registered */
} block;

static block *blocks;
static uint32_t block_count, block_room;
static size_t device_bytes;

static size_t memory_limit(void)
{
    return (size_t)fake_number("FAKE_GPU_MEMORY", 16384) << 20;
}

static void block_add(block b)
{
    pthread_mutex_lock(&fake_lock);
    if (block_count == block_room) {
        block_room = block_room == 0 ? 64 : 2 * block_room;
        blocks = realloc(blocks, block_room * sizeof(*blocks));
        if (blocks == NULL)
            abort();
    }
    blocks[block_count++] = b;
    if (!b.pinned)
        device_bytes += b.bytes;
    pthread_mutex_unlock(&fake_lock);
}

static bool block_remove(void *at, bool pinned, block *out)
{
    bool found = false;

    pthread_mutex_lock(&fake_lock);
    for (uint32_t i = 0; i < block_count && !found; i++)
        if (blocks[i].at == at && blocks[i].pinned == pinned) {
            *out = blocks[i];
            blocks[i] = blocks[--block_count];
            found = true;
        }
    if (found && !pinned)
        device_bytes -= out->bytes;
    pthread_mutex_unlock(&fake_lock);
    return found;
}

static bool inside(const void *at, size_t bytes, bool pinned)
{
    const char *first = at;
    bool found = false;

    pthread_mutex_lock(&fake_lock);
    for (uint32_t i = 0; i < block_count && !found; i++)
        found = blocks[i].pinned == pinned && first >= blocks[i].at &&
                first + bytes <= blocks[i].at + blocks[i].bytes;
    pthread_mutex_unlock(&fake_lock);
    return found;
}

bool fake_on_device(const void *at, size_t bytes)
{
    return inside(at, bytes, false);
}

static cudaError_t take(void **out, size_t bytes, bool pinned)
{
    void *at = NULL;
    bool room;

    if (bytes == 0) {
        *out = NULL;
        return cudaSuccess;
    }
    pthread_mutex_lock(&fake_lock);
    room = pinned || device_bytes + bytes <= memory_limit();
    pthread_mutex_unlock(&fake_lock);
    if (!room || posix_memalign(&at, pinned ? 4096 : 256, bytes) != 0)
        return reported(cudaErrorMemoryAllocation);
    memset(at, 0x7f, bytes); /* makes reads of uninitialized memory visible */
    block_add((block){ at, bytes, pinned, true });
    *out = at;
    return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaMalloc(void **out, size_t bytes)
{
    BEGIN(cudaMalloc);
    if (fake_forbidden())
        return reported(cudaErrorStreamCaptureUnsupported);
    return take(out, bytes, false);
}

FAKE_EXPORT cudaError_t cudaFree(void *at)
{
    block b;

    FAKE_CALL(cudaFree, cudaError_t);
    if (at == NULL)
        return cudaSuccess;
    if (fake_forbidden())
        return reported(cudaErrorStreamCaptureUnsupported);
    finish_all();
    if (!block_remove(at, false, &b)) {
        fake_violation("cudaFree(%p), which is no device memory", at);
        return reported(cudaErrorInvalidValue);
    }
    free(b.at);
    return cudaSuccess;
}

static void run_free(void *args)
{
    block b;

    if (block_remove(*(void **)args, false, &b))
        free(b.at);
}

FAKE_EXPORT cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    BEGIN(cudaMallocAsync);
    return take(out, bytes, false);
}

FAKE_EXPORT cudaError_t cudaFreeAsync(void *at, cudaStream_t stream)
{
    return fake_push(stream, FAKE_REACHED(cudaFreeAsync), run_free, NULL, &at, sizeof(at));
}

FAKE_EXPORT cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    BEGIN(cudaHostAlloc);
    if (fake_forbidden())
        return reported(cudaErrorStreamCaptureUnsupported);
    return take(out, bytes, true);
}

FAKE_EXPORT cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    FAKE_CALL(cudaMallocHost, cudaError_t);
    return cudaHostAlloc(out, bytes, 0);
}

FAKE_EXPORT cudaError_t cudaFreeHost(void *at)
{
    block b;

    FAKE_CALL(cudaFreeHost, cudaError_t);
    if (at == NULL)
        return cudaSuccess;
    finish_all();
    if (!block_remove(at, true, &b) || !b.ours) {
        fake_violation("cudaFreeHost(%p), which is no pinned memory", at);
        return reported(cudaErrorInvalidValue);
    }
    free(b.at);
    return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned flags)
{
    (void)flags;
    BEGIN(cudaHostRegister);
    block_add((block){ at, bytes, true, false });
    return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaHostUnregister(void *at)
{
    block b;

    FAKE_CALL(cudaHostUnregister, cudaError_t);
    if (!block_remove(at, true, &b)) {
        fake_violation("cudaHostUnregister(%p), which is not registered", at);
        return reported(cudaErrorHostMemoryNotRegistered);
    }
    if (msync((void *)((uintptr_t)at / PAGE * PAGE), 1, MS_ASYNC) != 0)
        fake_violation("cudaHostUnregister(%p), which is no longer mapped", at);
    return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaHostGetDevicePointer(void **out, void *host, unsigned flags)
{
    (void)flags;
    FAKE_CALL(cudaHostGetDevicePointer, cudaError_t);
    *out = host;
    return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    BEGIN(cudaMemGetInfo);
    *total = memory_limit();
    *available = *total - device_bytes;
    return cudaSuccess;
}

typedef struct copy {
    void *to;
    const void *from;
    size_t bytes;
} copy;

static void run_copy(void *args)
{
    const copy *c = args;

    memcpy(c->to, c->from, c->bytes);
}

/* Return whether both addresses match the copy direction and lie within their blocks. */
static bool direction_holds(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    bool to_device = fake_on_device(to, bytes), from_device = fake_on_device(from, bytes);

    switch (kind) {
    case cudaMemcpyHostToDevice:
        return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
        return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
        return to_device && from_device;
    default:
        return true;
    }
}

/* Queue a copy. Copies from pageable memory may also complete after the call: CUDA only "might"
 * wait. It does if it stages the memory, but a device that reads pageable memory directly need
 * not. */
static cudaError_t copy_push(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                             cudaStream_t stream, int reached)
{
    copy c = { to, from, bytes };

    if (bytes == 0)
        return reached > 0 ? reported((cudaError_t)reached) : cudaSuccess;
    if (!direction_holds(to, from, bytes, kind)) {
        fake_violation("a copy of %zu bytes from %p to %p is not what its direction says, or too long", bytes,
                       from, to);
        return reported(cudaErrorInvalidValue);
    }
    return fake_push(stream, reached, run_copy, NULL, &c, sizeof(c));
}

FAKE_EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                                        cudaStream_t stream)
{
    return copy_push(to, from, bytes, kind, stream, FAKE_REACHED(cudaMemcpyAsync));
}

FAKE_EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    return copy_push(to, from, bytes, kind, NULL, FAKE_REACHED(cudaMemcpy));
}

FAKE_EXPORT cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                            size_t bytes, cudaStream_t stream)
{
    (void)to_device;
    (void)from_device;
    return copy_push(to, from, bytes, cudaMemcpyDeviceToDevice, stream, FAKE_REACHED(cudaMemcpyPeerAsync));
}

FAKE_EXPORT cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device,
                                       size_t bytes)
{
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, NULL);
}

typedef struct filling {
    void *at;
    int value;
    size_t bytes;
} filling;

static void run_fill(void *args)
{
    const filling *f = args;

    memset(f->at, f->value, f->bytes);
}

static cudaError_t fill_push(void *at, int value, size_t bytes, cudaStream_t stream, int reached)
{
    if (bytes != 0 && !fake_on_device(at, bytes)) {
        fake_violation("a memset of %zu bytes at %p is not in device memory", bytes, at);
        return reported(cudaErrorInvalidValue);
    }
    return fake_push(stream, reached, run_fill, NULL, &(filling){ at, value, bytes }, sizeof(filling));
}

FAKE_EXPORT cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream)
{
    return fill_push(at, value, bytes, stream, FAKE_REACHED(cudaMemsetAsync));
}

FAKE_EXPORT cudaError_t cudaMemset(void *at, int value, size_t bytes)
{
    return fill_push(at, value, bytes, NULL, FAKE_REACHED(cudaMemset));
}

FAKE_EXPORT cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *at)
{
    FAKE_CALL(cudaPointerGetAttributes, cudaError_t);
    memset(out, 0, sizeof(*out));
    out->type = fake_on_device(at, 1) ? cudaMemoryTypeDevice
                : inside(at, 1, true) ? cudaMemoryTypeHost
                                      : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

static bool was_reset;

/* Like the libraries of CUDA 13, fail after a reset: each has a runtime of its own, whose context
 * is gone. */
bool fake_was_reset(void)
{
    return __atomic_load_n(&was_reset, __ATOMIC_ACQUIRE);
}

FAKE_EXPORT cudaError_t cudaDeviceReset(void)
{
    FAKE_CALL(cudaDeviceReset, cudaError_t);
    pthread_mutex_lock(&fake_lock);
    context = false;
    pthread_mutex_unlock(&fake_lock);
    fake_sticky_set(cudaSuccess);
    __atomic_store_n(&was_reset, true, __ATOMIC_RELEASE);
    return cudaSuccess;
}

/* Report objects left in the context when the process exits: a correct worker leaves none. */
__attribute__((destructor)) static void context_report(void)
{
    if (context)
        fake_trace("context destroyed, %u blocks, %u streams and events left", block_count,
                   stream_count + event_count);
}

/* ---- for tests ---- */

void fake_gpu_restart(void)
{
    fake_sticky_set(cudaSuccess);
    __atomic_store_n(&was_reset, false, __ATOMIC_RELEASE);
}

size_t fake_gpu_bytes(void)
{
    return device_bytes;
}

uint32_t fake_gpu_blocks(void)
{
    return block_count;
}

uint32_t fake_gpu_streams(void)
{
    return stream_count + event_count + fake_graphs();
}
