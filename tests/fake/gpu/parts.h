/* parts.h: declarations shared by the files of libfake_gpu. */
#ifndef FAKE_GPU_PARTS_H
#define FAKE_GPU_PARTS_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>

#include "tests/fake/gpu/fake_gpu.h"

/* ---- faults.c ---- */

enum { FAKE_HANG = -1 };

typedef struct fake_point { /* a function that may fail */
    const char *name;
    struct fake_point *next;
    uint64_t calls, base; /* base: calls before the last reset */
    bool known;
} fake_point;

/* Count a call. Return 0: continue; FAKE_HANG; otherwise the error code to return. "crash" and
 * "exit" end the process here. Exported for kernels.c, which is linked into the plugin. */
FAKE_EXPORT int fake_reached(fake_point *point);
#define FAKE_REACHED(function)                                                                               \
    __extension__({                                                                                          \
        static fake_point point_ = { .name = #function };                                                    \
        fake_reached(&point_);                                                                               \
    })
void fake_wait_for_ever(void) __attribute__((noreturn));
void fake_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
void fake_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
long fake_number(const char *variable, long otherwise);

/* element of a list such as "900,0,50"; 0 beyond the end */
long fake_number_at(const char *variable, int64_t index);

/* Advance the device clock by `us` for events only; no caller waits. */
void fake_spend(long us);
int64_t fake_device_ns(void); /* ns; the host clock, or only spent time if a test sets durations */

/* Enter a synchronous function: return an injected error from it. */
#define FAKE_CALL(function, type)                                                                            \
    do {                                                                                                     \
        int code_ = FAKE_REACHED(function);                                                                  \
        if (code_ == FAKE_HANG)                                                                              \
            fake_wait_for_ever();                                                                            \
        if (code_ != 0)                                                                                      \
            return (type)code_;                                                                              \
    } while (0)

/* ---- runtime.c ---- */

typedef struct fake_op {
    struct fake_op *next;
    void (*run)(void *args);
    void (*drop)(void *args); /* frees resources owned by args; NULL: none */
    size_t bytes;
    _Alignas(16) char args[];
} fake_op;

typedef struct fake_capture fake_capture;

struct CUstream_st {
    struct CUstream_st *next;
    fake_op *first, **last;
    uint64_t pushed, done;
    bool blocking, ending;
    int priority;
    fake_capture *capture; /* capture in progress, if any */
    uint64_t captured;     /* captured operations of this stream */
    bool unjoined;
};

struct CUevent_st {
    uint32_t refs;
    unsigned flags;
    uint64_t recorded, passed;
    int64_t passed_ns;

    /* recorded inside this capture: outside, there is no event to wait for */
    fake_capture *capture;
    cudaStream_t capture_stream;
    uint64_t captured;
};

extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_event;
extern _Thread_local uint32_t fake_capturing; /* captures started by this thread that forbid unsafe calls */

/* Queue run(args) on the stream, or add it to the capture in progress. `reached` is the result of
 * fake_reached() for the call. args are copied; drop is called exactly once in every case. */
FAKE_EXPORT cudaError_t fake_push(cudaStream_t stream, int reached, void (*run)(void *), void (*drop)(void *),
                                  const void *args, size_t bytes);
fake_op *fake_op_new(void (*run)(void *), void (*drop)(void *), const void *args, size_t bytes);
void fake_op_free(fake_op *op);
cudaError_t fake_stream_finish(
    cudaStream_t stream); /* waits; NULL: for all work that the default stream waits for */
bool fake_stream_done(cudaStream_t stream);
cudaError_t fake_sticky(void); /* asynchronous device failure, or cudaSuccess */
void fake_sticky_set(cudaError_t code);
cudaError_t fake_context(void); /* creates the context on first use */
bool fake_was_reset(void);      /* cudaDeviceReset() was called in this process */

/* Mark an unsafe call: forbidden while this thread captures; invalidates the capture. */
bool fake_forbidden(void);

/* Return whether [at, at + bytes) lies within one block of device memory. */
bool fake_on_device(const void *at, size_t bytes);

/* ---- graphs.c; the lock is held ---- */

cudaError_t fake_capture_add(cudaStream_t stream, fake_op *op);
cudaError_t fake_capture_record(cudaEvent_t event, cudaStream_t stream);
cudaError_t fake_capture_wait(cudaStream_t stream, cudaEvent_t event);
void fake_capture_spoil(void); /* captures of this thread */
uint32_t fake_graphs(void);

#endif
