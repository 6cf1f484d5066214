/* parts.h -- what the files of libfake_gpu share. */
#ifndef FAKE_GPU_PARTS_H
#define FAKE_GPU_PARTS_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>

#include "tests/fake/gpu/fake_gpu.h"

/* ---- faults.c ---- */

enum { FAKE_HANG = -1 };

typedef struct fake_point { /* one for each function that may fail */
    const char *name;
    struct fake_point *next;
    uint64_t calls, base; /* base: where counting began anew */
    bool known;
} fake_point;

/* Counts the call.  0: go on; FAKE_HANG; else the code to return.  crash and exit happen here. */
FAKE_EXPORT int fake_reached(fake_point *point); /* exported for kernels.c, which goes into the plugin */
#define FAKE_REACHED(function)                                                                               \
    __extension__({                                                                                          \
        static fake_point point_ = { .name = #function };                                                    \
        fake_reached(&point_);                                                                               \
    })
void fake_wait_for_ever(void) __attribute__((noreturn));
void fake_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
void fake_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
long fake_number(const char *variable, long otherwise);
long fake_number_at(const char *variable, int64_t index); /* of "900,0,50"; 0 beyond its end */
/* So many microseconds of the device have passed, for events alone: nobody waits for them. */
void fake_spend(long us);
int64_t fake_device_ns(
    void); /* the host's clock, or only what was spent where a test says what takes how long */

/* A call that does its work at once: a fault of it ends the function. */
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
    void (*drop)(void *args); /* of what args own; may be NULL */
    size_t bytes;
    _Alignas(16) char args[];
} fake_op;

typedef struct fake_capture fake_capture;

struct CUstream_st {
    struct CUstream_st *next;
    fake_op *first, **last;
    uint64_t pushed, done;
    bool blocking, ending;
    fake_capture *capture; /* whose part it is now */
    uint64_t captured;     /* ops of it in there */
    bool unjoined;
};

struct CUevent_st {
    uint32_t refs;
    unsigned flags;
    uint64_t recorded, passed;
    int64_t passed_ns;
    fake_capture *capture; /* recorded in one: no event to wait for outside */
    cudaStream_t capture_stream;
    uint64_t captured;
};

extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_news;
extern _Thread_local uint32_t
    fake_capturing; /* captures that this thread began and that forbid unsafe calls */

/* Queue run(args) on the stream, or put it into its capture.  reached: what fake_reached() said of the call.  args are
 * copied; drop is called once in any case. */
FAKE_EXPORT cudaError_t fake_push(cudaStream_t stream, int reached, void (*run)(void *), void (*drop)(void *),
                                  const void *args, size_t bytes);
fake_op *fake_op_new(void (*run)(void *), void (*drop)(void *), const void *args, size_t bytes);
void fake_op_free(fake_op *op);
cudaError_t fake_stream_finish(
    cudaStream_t stream); /* waits; NULL: of all that the default stream waits for */
bool fake_stream_done(cudaStream_t stream);
cudaError_t fake_sticky(void); /* a device's failure that came later; cudaSuccess */
void fake_sticky_set(cudaError_t code);
cudaError_t fake_context(void); /* makes one where there is none */
/* An unsafe call: not allowed while this thread captures, which ends the capture. */
bool fake_forbidden(void);
/* All of [at, at + bytes) lies in one block of device memory. */
bool fake_on_device(const void *at, size_t bytes);

/* ---- graphs.c; the lock is held ---- */

cudaError_t fake_capture_add(cudaStream_t stream, fake_op *op);
cudaError_t fake_capture_record(cudaEvent_t event, cudaStream_t stream);
cudaError_t fake_capture_wait(cudaStream_t stream, cudaEvent_t event);
void fake_capture_spoil(void); /* those of this thread */
uint32_t fake_graphs(void);

#endif
