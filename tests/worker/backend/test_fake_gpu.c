/* test_fake_gpu.c: the CUDA backend on a device that fails, hangs or runs out of memory, on
 * libfake_gpu.so; and that the fake is as strict as a real device. */
#include "tests/gp_test.h"

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/message/limits.h"
#include "tests/fake/gpu/fake_gpu.h"
#include "worker/backend/cuda/plan/plan.h"
#include "worker/backend/cuda/libraries/device.h"
#include "worker/process/exit_reason.h"

static gp_device *device_take(void)
{
    gp_device *device = NULL;
    gp_error err;

    fake_gpu_faults(NULL);
    fake_gpu_restart();
    if (gp_device_open(&device, NULL, &err) != GP_OK)
        printf("    %s\n", err.message);
    return device;
}

TEST(closed_device_leaks_nothing)
{
    gp_device *device = device_take();
    void *block;
    gp_error err;

    REQUIRE(device != NULL);
    REQUIRE_OK(gp_device_alloc(device, &block, 1000, &err), err);
    CHECK_INT(1000, fake_gpu_bytes());
    gp_device_free(device, block);
    fake_gpu_reset_counts();
    gp_device_close(device);
    CHECK_INT(0, fake_gpu_blocks());
    CHECK_INT(0, fake_gpu_streams());
    CHECK_INT(0, fake_gpu_count("cudaDeviceReset")); /* the libraries would fail afterwards */
    CHECK_INT(0, fake_gpu_violations());
}

TEST(device_cannot_be_opened_after_a_reset)
{
    gp_device *device = device_take();
    gp_error err;

    REQUIRE(device != NULL);
    gp_device_close(device);
    CHECK_INT(cudaSuccess, cudaDeviceReset());
    CHECK_STATUS(GP_EIO, gp_device_open(&device, NULL, &err));
    CHECK_CONTAINS(err.message, "cannot initialize cuDNN on this device: CUDNN_STATUS");
    CHECK_CONTAINS(err.message, "(fake cuDNN: there is no device, or it was reset)");
    fake_gpu_restart();
}

TEST(failed_open_gives_an_error_message_and_leaks_nothing)
{
    static const char *const calls[] = { "cudaSetDevice",   "cudaStreamCreateWithPriority",
                                         "cudaEventCreate", "cudaEventCreateWithFlags",
                                         "cudnnCreate",     "cudnnSetStream",
                                         "cublasLtCreate" };

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        gp_device *device = NULL;
        char rule[80];
        gp_error err;

        snprintf(rule, sizeof(rule), "%s:1=%d", calls[i], i < 4 ? 46 : i < 6 ? 1001 : 1);
        fake_gpu_reset_counts();
        fake_gpu_faults(rule);
        CHECK(gp_device_open(&device, NULL, &err) != GP_OK);
        CHECK(device == NULL);
        CHECK(err.message[0] != '\0');
        if (i == 6)
            CHECK_CONTAINS(err.message, "cuBLASLt on this device: a failure of the fake cuBLASLt");
        CHECK_INT(1, fake_gpu_count(calls[i]));
        CHECK_INT(0, fake_gpu_blocks());
        CHECK_INT(0, fake_gpu_streams());
    }
    fake_gpu_faults(NULL);
}

TEST(out_of_memory_error_names_the_free_memory)
{
    gp_device *device = device_take();
    void *block;
    gp_error err;

    REQUIRE(device != NULL);

    /* the device has 16 GiB */
    CHECK_STATUS(GP_ENOMEM, gp_device_alloc(device, &block, (size_t)17 << 30, &err));
    CHECK_CONTAINS(err.message, "17.00 GiB needed, 16.00 of 16.00 GiB free");
    CHECK_CONTAINS(err.message, "micro-batch-size");
    REQUIRE_OK(gp_device_alloc(device, &block, 64, &err), err); /* the failure is not sticky */
    REQUIRE_OK(gp_device_sync(device, &err), err);
    gp_device_free(device, block);
    gp_device_close(device);
}

TEST(device_failure_is_reported_by_the_next_wait_and_is_sticky)
{
    gp_device *device = device_take();
    void *block;
    gp_error err;

    REQUIRE(device != NULL);
    REQUIRE_OK(gp_device_alloc(device, &block, 64, &err), err);
    REQUIRE_OK(gp_device_sync(device, &err), err);
    fake_gpu_reset_counts();
    fake_gpu_faults("cudaMemsetAsync:1=700");
    REQUIRE_OK(gp_device_clear(device, block, 64, &err), err);
    CHECK_STATUS(GP_EIO, gp_device_sync(device, &err));
    CHECK_CONTAINS(err.message, "illegal memory access");
    CHECK_CONTAINS(err.message, "700");
    CHECK_STATUS(GP_EIO, gp_device_clear(device, block, 64, &err));
    gp_device_free(device, block);
    gp_device_close(device); /* closing resets the failure */
    device = device_take();
    REQUIRE(device != NULL);
    REQUIRE_OK(gp_device_sync(device, &err), err);
    gp_device_close(device);
}

/* Any call may meet the failure first, depending on timing. */
TEST(device_error_found_by_a_library_is_named_first_with_its_number)
{
    static const char first[] = "an illegal memory access was encountered (CUDA error 700): ";
    const gp_kernel_image image = { .channels = 4,
                                    .height = 4,
                                    .width = 4,
                                    .pixels = 16,
                                    .channel_stride = 16,
                                    .pixel_stride = 1,
                                    .sample = 64 };
    const gp_conv_request conv_request = { .x = image,
                                           .y = image,
                                           .rows = 1,
                                           .kernel = { 1, 1 },
                                           .stride = { 1, 1 },
                                           .dilation = { 1, 1 },
                                           .groups = 1 };
    const gp_product_request product_request = { .n = 8, .m = 8, .k = 8 };
    gp_device_work *conv, *product;
    gp_device *device = device_take();
    gp_device_operands at;
    void *block, *workspace;
    size_t bytes[2];
    gp_error err;

    REQUIRE(device != NULL);
    REQUIRE_OK(gp_device_conv_new(&conv, device, &conv_request, NULL, &bytes[0], &err), err);
    REQUIRE_OK(gp_device_product_new(&product, device, &product_request, NULL, &bytes[1], &err), err);
    REQUIRE_OK(gp_device_alloc(device, &block, 3 * 64 * sizeof(float), &err), err);
    REQUIRE_OK(gp_device_alloc(device, &workspace, bytes[0] > bytes[1] ? bytes[0] : bytes[1], &err), err);
    at = (gp_device_operands){ .first = block, .second = (float *)block + 64, .out = (float *)block + 128 };
    REQUIRE_OK(gp_device_conv_run(device, conv, &at, workspace, &err), err);
    REQUIRE_OK(gp_device_product_run(device, product, &at, workspace, &err), err);
    REQUIRE_OK(gp_device_sync(device, &err), err);

    /* A library's own failure is reported as such. */
    fake_gpu_reset_counts();
    fake_gpu_faults("cublasLtMatmul:1=14;cudaMemsetAsync:1=700;ncclCommInitRankConfig:1=1;ncclMemAlloc:1=1");
    CHECK_STATUS(GP_EIO, gp_device_product_run(device, product, &at, workspace, &err));
    CHECK(strncmp(err.message, "cuBLASLt failed: ", 17) == 0);
    REQUIRE_OK(gp_device_sync(device, &err), err);

    REQUIRE_OK(gp_device_clear(device, block, 64, &err), err);
    CHECK_STATUS(GP_EIO, gp_device_sync(device, &err));
    CHECK_STATUS(GP_EIO, gp_device_conv_run(device, conv, &at, workspace, &err));
    CHECK_CONTAINS(err.message, first);
    CHECK_CONTAINS(err.message, ": cuDNN's engine ");
    CHECK_STATUS(GP_EIO, gp_device_product_run(device, product, &at, workspace, &err));
    CHECK_CONTAINS(err.message, first);
    CHECK_CONTAINS(err.message, ": cuBLASLt failed: ");

    /* not an out-of-memory error */
    CHECK_STATUS(GP_EIO, gp_device_alloc_summed(device, &workspace, 64, &err));
    CHECK_CONTAINS(err.message, first);
    CHECK_STATUS(GP_EIO, gp_device_join(device, (const uint8_t[GP_DEVICE_GROUP_ID_BYTES]){ 0 }, 0, 2, NULL,
                                        NULL, &err));
    CHECK_CONTAINS(err.message, first);
    CHECK_CONTAINS(err.message, ": ncclCommInitRankConfig failed: ");
    gp_device_work_free(conv);
    gp_device_work_free(product);
    gp_device_free(device, block);
    gp_device_free(device, workspace);
    gp_device_close(device);
    fake_gpu_faults(NULL);
}

TEST(exit_reason_keeps_cause_and_advice_when_truncated)
{
    static const char *const ends[] = { "; a short rest", NULL };
    char path[64], words[600];

    snprintf(path, sizeof(path), "/tmp/gp_words_%d", (int)getpid());
    for (int i = 0; i < 2; i++) {
        gp_error cause;
        int status, file;
        ssize_t bytes;
        pid_t child;

        gp_fail(&cause, GP_EIO, "unspecified launch failure (CUDA error 719)%s%0*d",
                ends[i] == NULL ? "" : ends[i], ends[i] == NULL ? 400 : 1, 0);
        child = fork();
        if (child == 0) {
            gp_exit_reason_set_path(path);
            gp_device_lost("when it was reopened", &cause);
        }
        CHECK_INT(child, waitpid(child, &status, 0));
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == GP_EXIT_DEVICE_LOST);
        file = open(path, O_RDONLY | O_CLOEXEC);
        REQUIRE(file >= 0);
        bytes = read(file, words, sizeof(words) - 1);
        close(file);
        unlink(path);
        REQUIRE(bytes > 0);
        words[bytes] = '\0';
        CHECK(bytes < GP_TEXT_WORDS);
        CHECK_CONTAINS(words, "lost its GPU when it was reopened: unspecified launch failure (CUDA "
                              "error 719)");
        CHECK_CONTAINS(words, ends[i] == NULL
                                  ? "000...; look for an Xid in dmesg, and run gradpool doctor"
                                  : "; a short rest0; look for an Xid in dmesg, and run gradpool doctor");
    }
}

TEST(queued_work_runs_later_and_in_order)
{
    gp_device *device = device_take();
    int numbers[3] = { 1, 2, 3 }, back[3] = { 0 };
    int *block;
    void *made;
    gp_error err;

    REQUIRE(device != NULL);
    REQUIRE_OK(gp_device_alloc(device, &made, sizeof(numbers), &err), err);
    block = made;
    REQUIRE_OK(gp_device_upload(device, block, numbers, sizeof(numbers), &err), err);
    numbers[0] = 77; /* the source of an upload may change after the call */
    REQUIRE_OK(gp_device_copy(device, block + 2, block, sizeof(int), &err), err);
    REQUIRE_OK(gp_device_download(device, back, block, sizeof(back), &err), err);
    REQUIRE_OK(gp_device_sync(device, &err), err);
    CHECK_INT(1, back[0]);
    CHECK_INT(2, back[1]);
    CHECK_INT(1, back[2]);

    /* past the end */
    CHECK_STATUS(GP_EIO, gp_device_upload(device, block + 1, numbers, sizeof(numbers), &err));
    CHECK_INT(1, fake_gpu_violations());
    gp_device_free(device, block);
    gp_device_close(device);
}

/* ---- captures ---- */

TEST(a_capture_takes_no_memory_and_forks_must_join)
{
    cudaStream_t main_stream, side;
    cudaEvent_t fork, join;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    int *block, back = 0;
    void *other;

    fake_gpu_faults(NULL);
    REQUIRE(cudaStreamCreateWithFlags(&main_stream, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming) == cudaSuccess);
    REQUIRE(cudaEventCreateWithFlags(&join, cudaEventDisableTiming) == cudaSuccess);
    REQUIRE(cudaMalloc((void **)&block, sizeof(int)) == cudaSuccess);
    for (int joined = 0; joined < 2; joined++) {
        REQUIRE(cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
        CHECK_INT(cudaSuccess, cudaEventRecord(fork, main_stream));
        CHECK_INT(cudaSuccess, cudaStreamWaitEvent(side, fork, 0));
        CHECK_INT(cudaSuccess, cudaMemsetAsync(block, 1, sizeof(int), side));
        CHECK_INT(cudaSuccess, cudaEventRecord(join, side));
        if (joined == 1)
            CHECK_INT(cudaSuccess, cudaStreamWaitEvent(main_stream, join, 0));
        CHECK_INT(joined == 1 ? cudaSuccess : cudaErrorStreamCaptureUnjoined,
                  cudaStreamEndCapture(main_stream, &graph));
    }
    REQUIRE(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    CHECK_INT(cudaSuccess, cudaGraphDestroy(graph));
    CHECK_INT(cudaSuccess, cudaGraphLaunch(exec, main_stream));
    CHECK_INT(cudaSuccess, cudaMemcpyAsync(&back, block, sizeof(int), cudaMemcpyDeviceToHost, main_stream));
    CHECK_INT(cudaSuccess, cudaStreamSynchronize(main_stream));
    CHECK_INT(0x01010101, back);
    REQUIRE(cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK_INT(cudaErrorStreamCaptureUnsupported, cudaMalloc(&other, 4));
    CHECK_INT(cudaErrorStreamCaptureInvalidated, cudaMemsetAsync(block, 0, sizeof(int), main_stream));
    CHECK_INT(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(main_stream, &graph));
    cudaGetLastError();
    cudaGraphExecDestroy(exec);
    cudaEventDestroy(fork);
    cudaEventDestroy(join);
    cudaFree(block);
    cudaStreamDestroy(main_stream);
    cudaStreamDestroy(side);
}

/* ---- peers ---- */

static atomic_bool stop_now;

static gp_status check(void *context, gp_error *err)
{
    (void)context;
    return atomic_load(&stop_now) ? gp_fail(err, GP_ECANCELED, "the worker said so") : GP_OK;
}

/* Add up a block over all ranks and wait for it as a training step does. */
static gp_status sum_and_wait(gp_device *device, void *block, size_t count, gp_error *err)
{
    bool passed = false;
    gp_error ignored;
    gp_status status = gp_device_note(device, GP_EVENT_FORK, GP_LANE_MAIN, err);

    if (status == GP_OK)
        status = gp_device_follow(device, GP_LANE_PEERS, GP_EVENT_FORK, err);
    if (status == GP_OK)
        status = gp_device_sum(device, block, count, false, err);
    if (status == GP_OK)
        status = gp_device_note(device, GP_EVENT_JOIN, GP_LANE_PEERS, err);
    while (status == GP_OK && !passed) {
        status = gp_device_passed(device, GP_EVENT_JOIN, &passed, err);
        if (status == GP_OK && !passed)
            status = gp_device_poll(device, err);
    }
    if (status != GP_OK)
        gp_device_abort(device, &ignored);
    return status;
}

/* Request a stop, as the worker's control thread does after a worker failure. */
static void *stop_soon(void *context)
{
    (void)context;
    usleep(500000);
    atomic_store(&stop_now, true);
    return NULL;
}

static void stop_later(void)
{
    pthread_t thread;

    atomic_store(&stop_now, false);
    if (pthread_create(&thread, NULL, stop_soon, NULL) == 0)
        pthread_detach(thread);
}

typedef enum fate { ALL_LIVE, ONE_DIES, ONE_DIES_UNHEARD, ONE_HANGS } fate;

enum { NUMBERS = 100000, STEPS = 4, UNLUCKY = 1, UNLUCKY_STEP = 2 };

static gp_status step_run(gp_device *device, void *block, float *numbers, uint32_t rank, uint32_t world,
                          int number, gp_error *err)
{
    gp_status status;

    for (int i = 0; i < NUMBERS; i++)
        numbers[i] = (float)((int)rank + i % 7 + number);
    status = gp_device_upload(device, block, numbers, NUMBERS * sizeof(float), err);
    if (status == GP_OK)
        status = sum_and_wait(device, block, NUMBERS, err);
    if (status == GP_OK)
        status = gp_device_download(device, numbers, block, NUMBERS * sizeof(float), err);
    if (status == GP_OK)
        status = gp_device_sync(device, err);
    for (int i = 0; i < NUMBERS && status == GP_OK; i++)
        if (numbers[i] != (float)((int)(world * (world - 1) / 2) + (int)world * (i % 7 + number)))
            status =
                gp_fail(err, GP_EINTERNAL, "element %d of number %d is %g", i, number, (double)numbers[i]);
    return status;
}

/* Run one rank in a child process; the exit code is the status. */
static int rank_run(const uint8_t *id, uint32_t rank, uint32_t world, fate f)
{
    float *numbers = calloc(NUMBERS, sizeof(*numbers));
    gp_device *device = device_take();
    const uint32_t violations = fake_gpu_violations();
    gp_status status;
    void *block = NULL;
    char host[16];
    gp_error err;

    snprintf(host, sizeof(host), "h%u", rank);
    setenv("NCCL_HOSTID", host, 1);
    if (device == NULL || numbers == NULL ||
        gp_device_alloc(device, &block, NUMBERS * sizeof(float), &err) != GP_OK)
        return 90;
    status = gp_device_join(device, id, rank, world, check, NULL, &err);
    for (int s = 0; s < STEPS && status == GP_OK; s++) {
        if (s == UNLUCKY_STEP && f >= ONE_DIES_UNHEARD)
            stop_later();
        if (s == UNLUCKY_STEP && rank == UNLUCKY && (f == ONE_DIES || f == ONE_DIES_UNHEARD))
            raise(SIGKILL);
        if (s == UNLUCKY_STEP && rank == UNLUCKY && f == ONE_HANGS) {
            fake_gpu_reset_counts();
            fake_gpu_faults("ncclAllReduce:1=hang");
        }
        status = step_run(device, block, numbers, rank, world, s, &err);
    }
    if (status != GP_OK)
        printf("    rank %u: %s\n", rank, err.message);
    fflush(stdout);
    if (rank == UNLUCKY && f == ONE_HANGS)
        return (int)status; /* the device never finishes: such a process is killed */
    gp_device_free(device, block);
    gp_device_close(device);
    free(numbers);
    return fake_gpu_violations() != violations ? 92 : (int)status;
}

/* Run three ranks and store their exit codes; -1: killed by a signal. */
static void ranks_run(fate f, int codes[3])
{
    uint8_t id[GP_DEVICE_GROUP_ID_BYTES];
    pid_t pids[3];
    gp_error err;

    REQUIRE_OK(gp_device_group_id(id, &err), err);
    if (f == ONE_DIES)
        setenv("FAKE_GPU_NCCL", "remote", 1);
    fflush(stdout);
    for (uint32_t r = 0; r < 3; r++) {
        pids[r] = fork();
        if (pids[r] == 0)
            _exit(rank_run(id, r, 3, f));
    }
    unsetenv("FAKE_GPU_NCCL");

    /* Wait for the failing rank first: until then the zombie keeps the process id. */
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t r = (UNLUCKY + i) % 3;
        int status = 0;

        waitpid(pids[r], &status, 0);
        codes[r] = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
}

TEST(ranks_of_several_processes_add_up)
{
    int codes[3];

    ranks_run(ALL_LIVE, codes);
    for (int r = 0; r < 3; r++)
        CHECK_INT(0, codes[r]);
}

TEST(peer_failure_detected_by_nccl_is_a_peer_error)
{
    int codes[3];

    ranks_run(ONE_DIES, codes);
    CHECK_INT(GP_EPEER, codes[0]);
    CHECK_INT(-1, codes[1]);
    CHECK_INT(GP_EPEER, codes[2]);
}

TEST(undetected_peer_failure_ends_when_the_worker_aborts)
{
    int codes[3];

    ranks_run(ONE_DIES_UNHEARD, codes);
    CHECK_INT(GP_ECANCELED, codes[0]);
    CHECK_INT(-1, codes[1]);
    CHECK_INT(GP_ECANCELED, codes[2]);
}

TEST(hung_device_in_the_exchange_ends_when_the_worker_aborts)
{
    int codes[3];

    ranks_run(ONE_HANGS, codes);
    for (int r = 0; r < 3; r++)
        CHECK_INT(GP_ECANCELED, codes[r]);
}

TEST(missing_peer_is_abandoned_when_the_worker_aborts)
{
    uint8_t id[GP_DEVICE_GROUP_ID_BYTES];
    gp_device *device = device_take();
    gp_error err;

    REQUIRE(device != NULL);
    REQUIRE_OK(gp_device_group_id(id, &err), err);
    stop_later();
    CHECK_STATUS(GP_ECANCELED, gp_device_join(device, id, 0, 2, check, NULL, &err));
    CHECK_CONTAINS(err.message, "the worker said so");
    gp_device_close(device);
}
