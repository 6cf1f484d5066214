/* graphs.c: stream captures and graphs.
 *
 * Captured operations are kept in call order, which is one valid order, and a launch runs them as
 * one piece of work on its stream. Dependencies are only checked. A fork is an event recorded in
 * the capture, and a join waits for an event of the forked stream. As in CUDA, a capture with an
 * unjoined stream fails. */
#include <stdlib.h>
#include <string.h>

#include "tests/fake/gpu/parts.h"

typedef struct op_list {
    uint32_t refs;
    bool priorities_differ; /* streams of several priorities were captured */
    fake_op *first, **last;
} op_list;

enum { JOINED_MAX = 16 };

struct fake_capture {
    cudaStream_t streams[JOINED_MAX]; /* streams[0] started the capture */
    uint32_t count;
    bool spoilt;
    cudaError_t why;
    enum cudaStreamCaptureMode mode;
    pthread_t owner;
    op_list *ops;
    struct fake_capture *next;
};

struct CUgraph_st {
    op_list *ops;
};

struct CUgraphExec_st {
    op_list *ops;
};

static fake_capture *captures;
static uint32_t graph_count;

uint32_t fake_graphs(void)
{
    return __atomic_load_n(&graph_count, __ATOMIC_RELAXED);
}

static op_list *list_new(void)
{
    op_list *list = calloc(1, sizeof(*list));

    if (list == NULL)
        abort();
    list->refs = 1;
    list->last = &list->first;
    return list;
}

static void list_release(op_list *list)
{
    if (__atomic_sub_fetch(&list->refs, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    for (fake_op *op = list->first; op != NULL;) {
        fake_op *next = op->next;

        fake_op_free(op);
        op = next;
    }
    free(list);
}

/* ---- captures: the lock is held ---- */

cudaError_t fake_capture_add(cudaStream_t stream, fake_op *op)
{
    fake_capture *capture = stream->capture;

    if (capture->spoilt) {
        fake_op_free(op);
        return cudaErrorStreamCaptureInvalidated;
    }
    *capture->ops->last = op;
    capture->ops->last = &op->next;
    if (stream->priority != capture->streams[0]->priority)
        capture->ops->priorities_differ = true;
    stream->captured++;
    stream->unjoined = stream != capture->streams[0];
    return cudaSuccess;
}

cudaError_t fake_capture_record(cudaEvent_t event, cudaStream_t stream)
{
    event->capture = stream->capture;
    event->capture_stream = stream;
    event->captured = stream->captured;
    return stream->capture->spoilt ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}

static bool capture_lives(const fake_capture *capture)
{
    for (const fake_capture *c = captures; c != NULL; c = c->next)
        if (c == capture)
            return true;
    return false;
}

cudaError_t fake_capture_wait(cudaStream_t stream, cudaEvent_t event)
{
    fake_capture *capture = event->capture;

    if (capture == NULL || !capture_lives(capture) ||
        (stream->capture != NULL && stream->capture != capture)) {
        if (stream->capture != NULL)
            stream->capture->spoilt = true;
        return cudaErrorStreamCaptureIsolation;
    }
    if (capture->spoilt)
        return cudaErrorStreamCaptureInvalidated;
    if (stream->capture == NULL) {
        if (capture->count == JOINED_MAX || stream->done != stream->pushed)
            return cudaErrorStreamCaptureUnsupported;
        stream->capture = capture;
        stream->captured = 0;
        capture->streams[capture->count++] = stream;
    }
    if (event->captured == event->capture_stream->captured)
        event->capture_stream->unjoined = false;
    stream->unjoined = stream != capture->streams[0];
    return cudaSuccess;
}

void fake_capture_spoil(void)
{
    for (fake_capture *c = captures; c != NULL; c = c->next)
        if (pthread_equal(c->owner, pthread_self()))
            c->spoilt = true;
}

FAKE_EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    fake_capture *capture;

    FAKE_CALL(cudaStreamBeginCapture, cudaError_t);
    if (stream == NULL)
        return cudaErrorStreamCaptureUnsupported;
    capture = calloc(1, sizeof(*capture));
    if (capture == NULL)
        abort();
    capture->streams[0] = stream;
    capture->count = 1;
    capture->mode = mode;
    capture->owner = pthread_self();
    capture->ops = list_new();
    pthread_mutex_lock(&fake_lock);
    if (stream->capture != NULL) {
        pthread_mutex_unlock(&fake_lock);
        list_release(capture->ops);
        free(capture);
        return cudaErrorIllegalState;
    }
    stream->capture = capture;
    stream->captured = 0;
    stream->unjoined = false;
    capture->next = captures;
    captures = capture;
    pthread_mutex_unlock(&fake_lock);
    fake_capturing += mode != cudaStreamCaptureModeRelaxed;
    return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    fake_capture *capture;
    cudaError_t code = cudaSuccess;

    *out = NULL;
    int reached = FAKE_REACHED(cudaStreamEndCapture);

    pthread_mutex_lock(&fake_lock);
    capture = stream->capture;
    if (capture == NULL || capture->streams[0] != stream) {
        pthread_mutex_unlock(&fake_lock);
        return capture == NULL ? cudaErrorIllegalState : cudaErrorStreamCaptureUnmatched;
    }
    for (fake_capture **at = &captures; *at != NULL; at = &(*at)->next)
        if (*at == capture) {
            *at = capture->next;
            break;
        }
    for (uint32_t i = 0; i < capture->count; i++) {
        if (capture->streams[i]->unjoined)
            code = cudaErrorStreamCaptureUnjoined;
        capture->streams[i]->capture = NULL;
        capture->streams[i]->unjoined = false;
    }
    if (capture->spoilt)
        code = cudaErrorStreamCaptureInvalidated;
    pthread_mutex_unlock(&fake_lock);
    fake_capturing -=
        capture->mode != cudaStreamCaptureModeRelaxed && pthread_equal(capture->owner, pthread_self());
    if (reached > 0)
        code = (cudaError_t)reached;
    if (code == cudaSuccess) {
        *out = calloc(1, sizeof(**out));
        if (*out == NULL)
            abort();
        (*out)->ops = capture->ops;
        __atomic_add_fetch(&graph_count, 1, __ATOMIC_RELAXED);
    } else {
        list_release(capture->ops);
    }
    free(capture);
    return code;
}

FAKE_EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *out)
{
    FAKE_CALL(cudaStreamIsCapturing, cudaError_t);
    pthread_mutex_lock(&fake_lock);
    *out = stream == NULL || stream->capture == NULL ? cudaStreamCaptureStatusNone
           : stream->capture->spoilt                 ? cudaStreamCaptureStatusInvalidated
                                                     : cudaStreamCaptureStatusActive;
    pthread_mutex_unlock(&fake_lock);
    return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    *mode = cudaStreamCaptureModeThreadLocal;
    return cudaSuccess;
}

/* ---- graphs ---- */

FAKE_EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                             unsigned long long flags)
{
    cudaGraphExec_t exec;

    FAKE_CALL(cudaGraphInstantiate, cudaError_t);
    if (fake_forbidden())
        return cudaErrorStreamCaptureUnsupported;
    if (graph->ops->priorities_differ && (flags & cudaGraphInstantiateFlagUseNodePriority) == 0)
        fake_violation("a graph of streams with several priorities is instantiated without "
                       "cudaGraphInstantiateFlagUseNodePriority, so all nodes have that of its launch");
    exec = calloc(1, sizeof(*exec));
    if (exec == NULL)
        return cudaErrorMemoryAllocation;
    exec->ops = graph->ops;
    __atomic_add_fetch(&exec->ops->refs, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&graph_count, 1, __ATOMIC_RELAXED);
    *out = exec;
    return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph,
                                                      unsigned long long flags)
{
    return cudaGraphInstantiate(out, graph, flags);
}

FAKE_EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    FAKE_CALL(cudaGraphDestroy, cudaError_t);
    list_release(graph->ops);
    free(graph);
    __atomic_sub_fetch(&graph_count, 1, __ATOMIC_RELAXED);
    return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    FAKE_CALL(cudaGraphExecDestroy, cudaError_t);
    list_release(exec->ops);
    free(exec);
    __atomic_sub_fetch(&graph_count, 1, __ATOMIC_RELAXED);
    return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    FAKE_CALL(cudaGraphGetNodes, cudaError_t);
    if (nodes != NULL)
        return cudaErrorNotSupported;
    *count = 0;
    for (const fake_op *op = graph->ops->first; op != NULL; op = op->next)
        ++*count;
    return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    (void)exec;
    (void)stream;
    FAKE_CALL(cudaGraphUpload, cudaError_t);
    return cudaSuccess;
}

static void run_graph(void *args)
{
    for (fake_op *op = (*(op_list **)args)->first; op != NULL && fake_sticky() == cudaSuccess; op = op->next)
        op->run(op->args);
}

static void drop_graph(void *args)
{
    list_release(*(op_list **)args);
}

FAKE_EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    __atomic_add_fetch(&exec->ops->refs, 1, __ATOMIC_RELAXED);
    return fake_push(stream, FAKE_REACHED(cudaGraphLaunch), run_graph, drop_graph, &exec->ops,
                     sizeof(exec->ops));
}
