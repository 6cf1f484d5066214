/* nccl.c: NCCL between processes on this host, through a file that all ranks map.
 *
 * The unique id names the file. A collective transfers data in pieces: every rank writes a piece,
 * all ranks meet, every rank reads all pieces in rank order, and all ranks meet again. Results are
 * therefore bitwise identical on all ranks. If a peer has exited, the other ranks wait inside the
 * "kernel" for ncclCommAbort, as over NVLink; with FAKE_GPU_NCCL=remote the communicator reports
 * ncclRemoteError, as over sockets. Like NCCL, it refuses two ranks with the same NCCL_HOSTID on
 * one device. */
#include <errno.h>
#include <fcntl.h>
#include <nccl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/fake/gpu/number.h"
#include "tests/fake/gpu/parts.h"

enum { PIECE = 1 << 18, RANKS_MAX = 64 };

typedef struct shared {
    /* ranks present; the alignment also aligns the data behind the struct */
    _Alignas(64) uint32_t joined;
    uint32_t arrived, round; /* ranks waiting in the current meeting; completed meetings */
    /* recording of the collective that the rank runs; 0: it is in no graph */
    uint32_t recording[RANKS_MAX];
    int32_t pid[RANKS_MAX];
    char who[RANKS_MAX][96]; /* host and device */
} shared;

struct ncclComm {
    shared *all;
    char *pieces; /* [world][PIECE] */
    size_t bytes;
    int rank, world;
    char path[64];
    bool ready, stop; /* stop: aborted */
    ncclResult_t state;
    uint32_t graphs;     /* live graphs with captured work */
    uint32_t recordings; /* collectives captured so far */
    uint32_t queued;
    uint32_t refs;
};

FAKE_EXPORT ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

FAKE_EXPORT const char *ncclGetErrorString(ncclResult_t code)
{
    static const char *const texts[] = { "no error",
                                         "unhandled cuda error",
                                         "unhandled system error",
                                         "internal error",
                                         "invalid argument",
                                         "invalid usage",
                                         "remote process exited or there was a network error",
                                         "NCCL operation in progress" };

    return (unsigned)code < 8 ? texts[code] : "unknown result code";
}

static char warning[128]; /* the last one */

FAKE_EXPORT const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return warning;
}

FAKE_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *out)
{
    struct timespec now;
    static uint32_t count;

    FAKE_CALL(ncclGetUniqueId, ncclResult_t);
    clock_gettime(CLOCK_MONOTONIC, &now);
    memset(out, 0, sizeof(*out));
    snprintf(out->internal, sizeof(out->internal), "/tmp/fake-nccl-%d-%u-%lx", (int)getpid(),
             __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED), (unsigned long)now.tv_nsec);
    return ncclSuccess;
}

/* ---- joining ---- */

static void pause_briefly(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

static void comm_release(ncclComm_t comm)
{
    if (__atomic_sub_fetch(&comm->refs, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    munmap(comm->all, comm->bytes);
    free(comm);
}

static ncclResult_t comm_open(ncclComm_t comm, const ncclUniqueId *id)
{
    const char *host = getenv("NCCL_HOSTID"), *device = getenv("CUDA_VISIBLE_DEVICES");
    int fd;

    snprintf(comm->path, sizeof(comm->path), "%.63s", id->internal);
    if (strncmp(comm->path, "/tmp/fake-nccl-", 15) != 0)
        return ncclInvalidArgument;
    comm->bytes = sizeof(shared) + (size_t)comm->world * PIECE;
    fd = open(comm->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)comm->bytes) != 0) {
        if (fd >= 0)
            close(fd);
        return ncclSystemError;
    }
    comm->all = mmap(NULL, comm->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (comm->all == MAP_FAILED)
        return ncclSystemError;
    comm->pieces = (char *)(comm->all + 1);
    comm->all->pid[comm->rank] = getpid();
    snprintf(comm->all->who[comm->rank], sizeof(comm->all->who[0]), "%.40s %.50s", host == NULL ? "" : host,
             device == NULL ? "" : device);
    if (__atomic_add_fetch(&comm->all->joined, 1, __ATOMIC_ACQ_REL) == (uint32_t)comm->world)
        unlink(comm->path);
    return ncclSuccess;
}

static ncclResult_t comm_settle(ncclComm_t comm)
{
    if (comm->ready || comm->state != ncclInProgress)
        return comm->state;
    if (__atomic_load_n(&comm->all->joined, __ATOMIC_ACQUIRE) < (uint32_t)comm->world)
        return ncclInProgress;
    comm->ready = true;
    comm->state = ncclSuccess;
    for (int i = 0; i < comm->world; i++)
        if (i != comm->rank && strcmp(comm->all->who[i], comm->all->who[comm->rank]) == 0 &&
            comm->all->pid[i] != comm->all->pid[comm->rank]) {
            comm->state = ncclInvalidUsage;
            snprintf(warning, sizeof(warning),
                     "Duplicate GPU detected : rank %d and rank %d both on CUDA device 0", comm->rank, i);
        }
    return comm->state;
}

FAKE_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int world, ncclUniqueId id, int rank,
                                                ncclConfig_t *config)
{
    ncclComm_t comm;
    ncclResult_t code;

    FAKE_CALL(ncclCommInitRankConfig, ncclResult_t);
    if (world < 1 || world > RANKS_MAX || rank < 0 || rank >= world)
        return ncclInvalidArgument;
    if (fake_context() != cudaSuccess)
        return ncclUnhandledCudaError;
    comm = calloc(1, sizeof(*comm));
    if (comm == NULL)
        return ncclSystemError;
    comm->rank = rank;
    comm->world = world;
    comm->refs = 1;
    comm->state = ncclInProgress;
    code = comm_open(comm, &id);
    if (code != ncclSuccess) {
        free(comm);
        return code;
    }
    *out = comm;
    if (config != NULL && config->blocking == 0)
        return ncclInProgress;
    while ((code = comm_settle(comm)) == ncclInProgress)
        pause_briefly();
    return code;
}

FAKE_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *out, int world, ncclUniqueId id, int rank)
{
    return ncclCommInitRankConfig(out, world, id, rank, NULL);
}

static bool peer_gone(const struct ncclComm *comm)
{
    for (int i = 0; i < comm->world; i++)
        if (comm->all->pid[i] != 0 && kill(comm->all->pid[i], 0) != 0 && errno == ESRCH)
            return true;
    return false;
}

FAKE_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out)
{
    const char *how = getenv("FAKE_GPU_NCCL");
    int code = FAKE_REACHED(ncclCommGetAsyncError);

    if (code == FAKE_HANG)
        fake_wait_for_ever();
    *out = code != 0 ? (ncclResult_t)code : comm_settle(comm);
    if (code == 0 && how != NULL && strcmp(how, "remote") == 0 && peer_gone(comm))
        *out = comm->state = ncclRemoteError;
    return ncclSuccess;
}

FAKE_EXPORT ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    *count = comm->world;
    return ncclSuccess;
}

FAKE_EXPORT ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    *rank = comm->rank;
    return ncclSuccess;
}

/* End a communicator. NCCL would wait for graphs that captured its work, so these must be destroyed
 * first. */
static ncclResult_t comm_end(ncclComm_t comm, const char *what)
{
    if (__atomic_load_n(&comm->graphs, __ATOMIC_ACQUIRE) != 0)
        fake_violation("%s of a communicator that %u pieces of captured work still hold", what, comm->graphs);
    __atomic_store_n(&comm->stop, true, __ATOMIC_RELEASE);
    unlink(comm->path);
    comm_release(comm);
    return ncclSuccess;
}

/* Abort: pending work ends at once. Like NCCL, the call waits until no graph contains captured
 * work. */
FAKE_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    FAKE_CALL(ncclCommAbort, ncclResult_t);
    __atomic_store_n(&comm->stop, true, __ATOMIC_RELEASE);
    while (__atomic_load_n(&comm->graphs, __ATOMIC_ACQUIRE) != 0)
        pause_briefly();

    /* separate fault point: resources shared with lost ranks */
    FAKE_CALL(ncclCommReclaim, ncclResult_t);
    return comm_end(comm, "ncclCommAbort");
}

FAKE_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    (void)comm;
    FAKE_CALL(ncclCommFinalize, ncclResult_t);
    return ncclSuccess;
}

/* Wait for queued work, then end; kernels that wait for a lost peer never finish. */
FAKE_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    FAKE_CALL(ncclCommDestroy, ncclResult_t);
    while (__atomic_load_n(&comm->queued, __ATOMIC_ACQUIRE) != 0)
        pause_briefly();
    return comm_end(comm, "ncclCommDestroy");
}

FAKE_EXPORT ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags)
{
    (void)flags;
    FAKE_CALL(ncclCommRevoke, ncclResult_t);
    __atomic_store_n(&comm->stop, true, __ATOMIC_RELEASE);
    return ncclSuccess;
}

/* ---- memory ---- */

FAKE_EXPORT ncclResult_t ncclMemAlloc(void **out, size_t bytes)
{
    FAKE_CALL(ncclMemAlloc, ncclResult_t);
    return cudaMalloc(out, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

FAKE_EXPORT ncclResult_t ncclMemFree(void *at)
{
    FAKE_CALL(ncclMemFree, ncclResult_t);
    return cudaFree(at) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

FAKE_EXPORT ncclResult_t ncclCommRegister(const ncclComm_t comm, void *at, size_t bytes, void **handle)
{
    (void)comm;
    FAKE_CALL(ncclCommRegister, ncclResult_t);
    if (!fake_on_device(at, bytes))
        return ncclInvalidArgument;
    *handle = at;
    return ncclSuccess;
}

FAKE_EXPORT ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    (void)comm;
    FAKE_CALL(ncclCommDeregister, ncclResult_t);
    return fake_on_device(handle, 1) ? ncclSuccess : ncclInvalidArgument;
}

FAKE_EXPORT ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *at, size_t bytes, ncclWindow_t *out,
                                                int flags)
{
    (void)comm;
    (void)flags;
    FAKE_CALL(ncclCommWindowRegister, ncclResult_t);
    if (!fake_on_device(at, bytes) || (uintptr_t)at % 4096 != 0)
        return ncclInvalidArgument;
    *out = (ncclWindow_t)at;
    return ncclSuccess;
}

FAKE_EXPORT ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    (void)comm;
    (void)window;
    FAKE_CALL(ncclCommWindowDeregister, ncclResult_t);
    return ncclSuccess;
}

/* ---- collectives ---- */

typedef enum collective_kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST } collective_kind;

typedef struct collective {
    ncclComm_t comm;
    collective_kind kind;
    const char *from;
    char *to;
    size_t count; /* elements per rank: the input, or the slice it contributes */
    number_type type;
    ncclRedOp_t op;
    int root;
    uint32_t recording; /* number of the captured collective, from 1; 0: not captured */
} collective;

static number_type type_of(ncclDataType_t type)
{
    switch ((int)type) {
    case ncclInt8:
        return NUMBER_I8;
    case ncclUint8:
        return NUMBER_U8;
    case ncclInt32:
        return NUMBER_I32;
    case ncclUint32:
        return NUMBER_U32;
    case ncclInt64:
        return NUMBER_I64;
    case ncclFloat16:
        return NUMBER_F16;
    case ncclFloat32:
        return NUMBER_F32;
    case ncclFloat64:
        return NUMBER_F64;
    case ncclBfloat16:
        return NUMBER_BF16;
    default:
        return NUMBER_NONE;
    }
}

/* Wait for all ranks. Return false if the communicator was aborted. */
static bool meet(ncclComm_t comm)
{
    shared *all = comm->all;
    uint32_t round = __atomic_load_n(&all->round, __ATOMIC_ACQUIRE);

    if (__atomic_add_fetch(&all->arrived, 1, __ATOMIC_ACQ_REL) == (uint32_t)comm->world) {
        __atomic_store_n(&all->arrived, 0, __ATOMIC_RELAXED);
        __atomic_add_fetch(&all->round, 1, __ATOMIC_ACQ_REL);
        return true;
    }
    for (uint32_t turn = 0; __atomic_load_n(&all->round, __ATOMIC_ACQUIRE) == round; turn++) {
        if (__atomic_load_n(&comm->stop, __ATOMIC_ACQUIRE))
            return false;
        if (turn > 100)
            pause_briefly();
    }
    return true;
}

static double reduced(const collective *c, size_t at)
{
    double result = 0.0;

    for (int r = 0; r < c->comm->world; r++) {
        double value = number_get(c->comm->pieces + (size_t)r * PIECE, c->type, (int64_t)at);

        if (r == 0)
            result = value;
        else if (c->op == ncclMax)
            result = fmax(result, value);
        else if (c->op == ncclMin)
            result = fmin(result, value);
        else if (c->op == ncclProd)
            result *= value;
        else if (c->type == NUMBER_F32)
            result = (double)((float)result + (float)value);
        else
            result += value;
    }
    return c->op == ncclAvg ? result / c->comm->world : result;
}

/* Copy the result of one piece: `count` elements, starting at `first` of each rank's input. */
static void piece_take(const collective *c, size_t first, size_t count)
{
    const size_t each = number_bytes(c->type);
    const ncclComm_t comm = c->comm;
    size_t part = c->count / (size_t)comm->world; /* REDUCE_SCATTER only */

    for (size_t i = 0; i < count; i++) {
        size_t at = first + i;

        if (c->kind == ALL_REDUCE)
            number_put(c->to, c->type, (int64_t)at, reduced(c, i));
        else if (c->kind == REDUCE_SCATTER && at / part == (size_t)comm->rank)
            number_put(c->to, c->type, (int64_t)(at % part), reduced(c, i));
    }
    for (int r = 0; r < comm->world && c->kind == ALL_GATHER; r++)
        memcpy(c->to + ((size_t)r * c->count + first) * each, comm->pieces + (size_t)r * PIECE, count * each);
    if (c->kind == BROADCAST)
        memcpy(c->to + first * each, comm->pieces + (size_t)c->root * PIECE, count * each);
}

/* An aborted sum leaves undefined data: write plausible but wrong numbers. */
static void scribble(const collective *c)
{
    if (c->kind == ALL_REDUCE)
        memset(c->to, 0x3f, c->count * number_bytes(c->type));
}

/* Check that no rank runs a collective of another recording: NCCL requires that all ranks capture
 * a collective together, and launch the graphs of the same capture. */
static void check_recordings(const collective *c)
{
    for (int r = 0; r < c->comm->world; r++)
        if (c->comm->all->recording[r] != c->recording)
            fake_violation("rank %d runs a collective of recording %u, rank %d one of recording %u", r,
                           c->comm->all->recording[r], c->comm->rank, c->recording);
}

static void run_collective(void *args)
{
    const collective *c = args;
    const size_t each = number_bytes(c->type), most = PIECE / each;

    if (__atomic_load_n(&c->comm->stop, __ATOMIC_ACQUIRE)) {
        scribble(c);
        return;
    }

    c->comm->all->recording[c->comm->rank] = c->recording;
    for (size_t first = 0; first < c->count; first += most) {
        size_t count = c->count - first < most ? c->count - first : most;

        if (c->kind != BROADCAST || c->comm->rank == c->root)
            memcpy(c->comm->pieces + (size_t)c->comm->rank * PIECE, c->from + first * each, count * each);
        if (!meet(c->comm)) {
            scribble(c);
            return;
        }
        check_recordings(c);
        piece_take(c, first, count);
        if (!meet(c->comm)) {
            scribble(c);
            return;
        }
    }
}

static void drop_collective(void *args)
{
    const collective *c = args;

    __atomic_sub_fetch(c->recording != 0 ? &c->comm->graphs : &c->comm->queued, 1, __ATOMIC_ACQ_REL);
    comm_release(c->comm);
}

static ncclResult_t collective_push(collective c, ncclDataType_t type, cudaStream_t stream, int reached)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    size_t given, taken;

    c.type = type_of(type);
    if (comm_settle(c.comm) != ncclSuccess)
        return c.comm->state == ncclInProgress ? ncclInvalidUsage : c.comm->state;
    if (reached > 0 && (reached < 700 || reached >= 800))
        return c.comm->state = (ncclResult_t)reached;
    if (c.type == NUMBER_NONE)
        return ncclInvalidArgument;
    given = c.count * number_bytes(c.type);
    taken = c.kind == ALL_GATHER       ? given * (size_t)c.comm->world
            : c.kind == REDUCE_SCATTER ? given / (size_t)c.comm->world
                                       : given;
    if (given != 0 && (((c.kind != BROADCAST || c.comm->rank == c.root) && !fake_on_device(c.from, given)) ||
                       !fake_on_device(c.to, taken))) {
        fake_violation("a collective of %zu bytes is not in device memory", given);
        return ncclInvalidArgument;
    }
    cudaStreamIsCapturing(stream, &status);
    if (status == cudaStreamCaptureStatusActive)
        c.recording = ++c.comm->recordings;
    __atomic_add_fetch(c.recording != 0 ? &c.comm->graphs : &c.comm->queued, 1, __ATOMIC_ACQ_REL);
    __atomic_add_fetch(&c.comm->refs, 1, __ATOMIC_RELAXED);
    return fake_push(stream, reached, run_collective, drop_collective, &c, sizeof(c)) == cudaSuccess
               ? ncclSuccess
               : ncclUnhandledCudaError;
}

FAKE_EXPORT ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                                       ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return collective_push(
        (collective){ .comm = comm, .kind = ALL_REDUCE, .from = from, .to = to, .count = count, .op = op },
        type, stream, FAKE_REACHED(ncclAllReduce));
}

FAKE_EXPORT ncclResult_t ncclReduceScatter(const void *from, void *to, size_t part, ncclDataType_t type,
                                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return collective_push((collective){ .comm = comm,
                                         .kind = REDUCE_SCATTER,
                                         .from = from,
                                         .to = to,
                                         .count = part * (size_t)comm->world,
                                         .op = op },
                           type, stream, FAKE_REACHED(ncclReduceScatter));
}

FAKE_EXPORT ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                                       ncclComm_t comm, cudaStream_t stream)
{
    return collective_push(
        (collective){ .comm = comm, .kind = ALL_GATHER, .from = from, .to = to, .count = count }, type,
        stream, FAKE_REACHED(ncclAllGather));
}

FAKE_EXPORT ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type,
                                       int root, ncclComm_t comm, cudaStream_t stream)
{
    return collective_push(
        (collective){ .comm = comm, .kind = BROADCAST, .from = from, .to = to, .count = count, .root = root },
        type, stream, FAKE_REACHED(ncclBroadcast));
}

FAKE_EXPORT ncclResult_t ncclBcast(void *at, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                                   cudaStream_t stream)
{
    return ncclBroadcast(at, at, count, type, root, comm, stream);
}

ncclResult_t ncclGroupStart(void); /* nccl.h declares these without prototypes */
ncclResult_t ncclGroupEnd(void);

FAKE_EXPORT ncclResult_t ncclGroupStart(void)
{
    FAKE_CALL(ncclGroupStart, ncclResult_t);
    return ncclSuccess;
}

FAKE_EXPORT ncclResult_t ncclGroupEnd(void)
{
    FAKE_CALL(ncclGroupEnd, ncclResult_t);
    return ncclSuccess;
}
