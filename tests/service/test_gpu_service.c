/* test_gpu_service.c: pools on simulated GPUs: real daemons, the real plugin code, libfake_gpu.so
 * and a fake NVML.
 *
 * Tests a working machine, and unusable GPUs, old drivers, crashed probes, hung devices and killed
 * ranks. */
#include <inttypes.h>

#include "client/pool/remote.h"
#include "tests/service/cards.h"
#include "tests/service/commands.h"

static void gpus_begin(const char *cards)
{
    cards_begin(cards, FAKE_GPU_PLUGIN);
    setenv("GRADPOOL_NCCL_SHARED_GPU", "1", 1);
    setenv("GRADPOOL_AUTOTUNE_SECONDS", "0", 1); /* no autotuning: faults occur in the training */
    commands_begin();
    write_file(
        "w/net.json",
        "{\"name\": \"small\", \"input\": [1, 28, 28], \"scale\": [0.0039], \"offset\": [0], \"layers\": ["
        "{\"name\": \"conv\", \"kind\": \"conv2d\", \"channels\": 4, \"kernel\": [5, 5], \"stride\": [2, "
        "2]}, "
        "{\"name\": \"relu\", \"kind\": \"relu\"}, {\"name\": \"fc\", \"kind\": \"fc\", \"outputs\": 10}, "
        "{\"name\": \"loss\", \"kind\": \"crossentropy\"}]}");
}

static void gpus_end(void)
{
    static const char *const names[] = {
        "FAKE_GPU_DRIVER",   "FAKE_GPU_FAULTS",          "FAKE_GPU_TRACE",
        "GRADPOOL_GPU_IDLE", "FAKE_GPU_ALIGNMENT",       "FAKE_GPU_DEVICES",
        "FAKE_GPU_NCCL",     "GRADPOOL_NCCL_SHARED_GPU", "GRADPOOL_AUTOTUNE_SECONDS"
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    cards_end();
    pools_end();
}

TEARDOWN()
{
    gpus_end();
}

#define TRAIN(...)                                                                                           \
    RUN("train", "--network", "net.json", "--data", "digits:128", "--validation-data", "none",               \
        "--mini-batch-size", "32", "--epochs", "1", "--lr", "0.1", "--seed", "3", "--plots", "none",         \
        "--quiet", __VA_ARGS__)

/* Return "loss" from the last line of a metrics file. */
static double last_loss(const char *file)
{
    char text[1 << 14];
    const char *last = text;
    double loss = NAN;
    gp_json *json;
    gp_error e;

    slurp(in_w(file), text, sizeof(text));
    for (const char *end = strchr(text, '\n'); end != NULL && end[1] != '\0'; end = strchr(end + 1, '\n'))
        last = end + 1;
    if (gp_json_parse(&json, last, strcspn(last, "\n"), &e) != GP_OK)
        return loss;
    loss = gp_json_number(gp_json_member(json, "loss"), NAN);
    gp_json_free(json);
    return loss;
}

/* Return the holder of the first device, as the scheduler reports it to remote clients. */
static const char *holder_told(void)
{
    static gp_device_list list;
    gp_pool *pool;
    uint32_t cores;

    memset(&list, 0, sizeof(list));
    if (gp_pool_open(&pool, &(gp_pool_options){ .attach_only = true }, NULL) != GP_OK)
        return "no pool";
    pool_devices(pool, &list, &cores, NULL);
    gp_pool_close(pool);
    return list.devices[0].pool;
}

/* Return the device memory of worker 1 in `gradpool metrics`; -1: it has no heartbeat yet. */
static double device_memory(void)
{
    static const char name[] = "gradpool_device_memory_bytes{worker=\"1\"} ";
    const char *at = RUN("metrics") == 0 ? strstr(out, name) : NULL;

    return at != NULL ? strtod(at + strlen(name), NULL) : -1;
}

/* Inject a fault into calls of a function.
 *   rule    function name, then '@' (while the file exists) or '!' (once, in the first process that
 *           removes the file)
 *   file    name under pools_root
 *   effect  error code or "hang" */
static void fault_when(const char *rule, const char *file, const char *effect)
{
    char text[300];

    snprintf(text, sizeof(text), "%s%.150s=%s", rule, in_root(file), effect);
    setenv("FAKE_GPU_FAULTS", text, 1);
}

TEST(gpu_pool_trains_like_a_cpu_pool_alone_and_with_peers)
{
    double alone;

    gpus_begin(TWO_CARDS);
    RUN_CODE(0, "up", "--quiet");
    RUN_CODE(0, "status");
    CHECK_CONTAINS(out, "Fake H200");
    CHECK_INT(0, TRAIN("--workers", "1", "--metrics", "one.jsonl", "--out", "one.onnx"));
    alone = last_loss("one.jsonl");
    CHECK(alone > 0.0 && alone < 2.4);
    CHECK_INT(0, TRAIN("--workers", "2", "--metrics", "two.jsonl", "--out", "two.onnx"));
    CHECK_NEAR(alone, last_loss("two.jsonl"), 1e-4 * alone);
    RUN_CODE(0, "devices", "--mine");
    CHECK_CONTAINS(out, "held by worker 1 of pool default");
    CHECK_CONTAINS(out, "held by worker 2 of pool default");
    CHECK_TEXT("default", holder_told());
    RUN_CODE(0, "down", "--quiet");
    RUN_CODE(0, "devices", "--mine");
    CHECK_CONTAINS(out, "no worker of your pools holds a GPU");
    RUN_CODE(0, "up", "--devices", "cpu", "--workers", "1", "--quiet");
    CHECK_INT(0, TRAIN("--metrics", "cpu.jsonl", "--out", "cpu.onnx"));
    CHECK_NEAR(alone, last_loss("cpu.jsonl"), 1e-3 * alone);
}

TEST(metrics_have_the_memory_of_the_gpu)
{
    double idle, busy;
    pid_t child;

    gpus_begin(TWO_CARDS);
    RUN_CODE(0, "up", "--workers", "1", "--quiet");
    AWAIT((idle = device_memory()) >= 0, 20);
    child = START("train", "--network", "net.json", "--data", "digits:128", "--validation-data", "none",
                  "--epochs", "1000000", "--plots", "none", "--quiet");
    AWAIT((busy = device_memory()) > idle, 20);
    kill(child, SIGINT);
    FINISH_CODE(130, child);
    AWAIT(device_memory() < busy, 20);
    RUN_CODE(0, "down", "--quiet");
    RUN_CODE(0, "up", "--devices", "cpu", "--workers", "1", "--quiet");
    AWAIT(device_memory() == 0, 20);
}

/* ---- excluded devices ---- */

TEST(unusable_devices_are_excluded_with_the_reason)
{
    gpus_begin("uuid=%1$s,name=Fake T4,bus=1,total=15360,cc=7.5;"
               "uuid=%2$s,name=Fake Locked,bus=2,total=16384,cc=9.0,mode=2;"
               "uuid=%3$s,name=Fake Small,bus=3,total=1024,cc=9.0;"
               "uuid=%4$s,name=Fake H200,bus=4,total=16384,cc=9.0");
    RUN_CODE(0, "up");
    CHECK_CONTAINS(
        err, "GPU 1 (Fake T4) is excluded: its compute capability 7.5 is too old: the GPU engine needs 8.0");
    CHECK_CONTAINS(err, "GPU 2 (Fake Locked) is excluded: its compute mode is Prohibited");
    CHECK_CONTAINS(err, "nvidia-smi -i 2 -c DEFAULT");
    CHECK_CONTAINS(err, "GPU 3 (Fake Small) is excluded: it has 1024 MiB of memory");
    CHECK_CONTAINS(out, "Fake H200");
    CHECK(strstr(out, "Fake T4") == NULL);
    RUN_CODE(0, "status", "--json");
    gp_json *json = pools_json(out);

    CHECK_INT(1, gp_json_count(gp_json_member(json, "workers")));
    gp_json_free(json);
    RUN_CODE(0, "devices");
    CHECK_CONTAINS(out, "no");
    CHECK_CONTAINS(out, "its compute mode is Prohibited");
    RUN_CODE(0, "devices", "--json");
    CHECK_CONTAINS(out, "\"compute_mode\": \"prohibited\", \"available\": false");
    RUN_CODE(0, "down", "--quiet");
    CHECK_INT(1, RUN("up", "--devices", "2"));
    CHECK_CONTAINS(err, "device 2 (Fake Locked) is unusable: its compute mode is Prohibited");
}

TEST(busy_and_display_gpus_are_used_only_when_named)
{
    char cards[400];

    snprintf(cards, sizeof(cards),
             "uuid=%%1$s,name=Fake Busy,bus=1,total=16384,used=8192,cc=9.0,pid=%d;"
             "uuid=%%2$s,name=Fake Display,bus=2,total=16384,cc=9.0,display=1;"
             "uuid=%%3$s,name=Fake Idle,bus=3,total=16384,used=100,cc=9.0,pid=%d",
             (int)getppid(), (int)getppid());
    gpus_begin(cards);
    RUN_CODE(0, "up");
    CHECK_CONTAINS(err, "GPU 1 (Fake Busy) is excluded: it is used by pid ");
    CHECK_CONTAINS(err, "`gradpool up --devices 1` uses it nevertheless");
    CHECK_CONTAINS(err, "GPU 2 (Fake Display) is excluded: it drives a display");
    CHECK_CONTAINS(out, "Fake Idle");
    CHECK(strstr(out, "Fake Busy") == NULL && strstr(out, "Fake Display") == NULL);
    RUN_CODE(0, "down", "--quiet");
    RUN_CODE(0, "up", "--devices", "1,2");
    CHECK_CONTAINS(out, "Fake Busy");
    CHECK_CONTAINS(out, "Fake Display");
}

TEST(old_driver_or_crashed_probe_leaves_cpu_workers_and_a_message)
{
    gpus_begin(ONE_CARD);
    setenv("FAKE_GPU_DRIVER", "12040", 1);
    RUN_CODE(0, "up", "--workers", "1");
    CHECK_CONTAINS(err, "the driver supports CUDA 12.4, the GPU engine was built with 13.");
    CHECK_CONTAINS(out, "cpu");
    CHECK_INT(0, TRAIN("--metrics", "cpu.jsonl", "--out", "cpu.onnx"));
    CHECK_INT(1, TRAIN("--execution-environment", "gpu"));
    CHECK_CONTAINS(err, "no worker of this pool has a GPU of its own");
    RUN_CODE(1, "doctor");
    CHECK_CONTAINS(out, "failure  driver and runtime: the driver supports CUDA 12.4");
    CHECK_CONTAINS(out, "update the driver (580 or newer for CUDA 13)");
    RUN_CODE(0, "down", "--quiet");
    unsetenv("FAKE_GPU_DRIVER");
    setenv("GRADPOOL_CUDA_PLUGIN", "/nonexistent/libgradpool_cuda.so", 1);
    RUN_CODE(0, "up", "--workers", "1");
    CHECK_CONTAINS(err, "GPU 1 (Fake H200) is excluded: cannot load the GPU plugin");
    RUN_CODE(0, "down", "--quiet");
    setenv("FAKE_NVML", "crash", 1);
    RUN_CODE(0, "up", "--workers", "1");
    CHECK_CONTAINS(err, "no GPU is usable: the device probe was killed by signal 11");
    RUN_CODE(1, "doctor", "--quick");
    CHECK_CONTAINS(out, "failure  driver: the device probe was killed by signal 11");
}

/* ---- doctor ---- */

TEST(doctor_measures_peer_transfers_and_reports_failures)
{
    gp_json *json;

    gpus_begin(TWO_CARDS);
    setenv("FAKE_GPU_DEVICES", "2", 1);
    RUN_CODE(0, "doctor");
    CHECK_CONTAINS(out, "GPU engine: CUDA 13.0, cuDNN 9");
    CHECK_CONTAINS(out, "NCCL 2.");
    CHECK_CONTAINS(out, "a kernel on cuda:1: same results as on the host");
    CHECK_CONTAINS(out, " GPU peer copies: "); /* a warning or not, depending on the fake's speed */
    CHECK_CONTAINS(out, "GB/s from, to");
    CHECK_CONTAINS(out, "open files (nofile)");
    CHECK_CONTAINS(out, "0 failures");
    RUN_CODE(0, "doctor", "--json");
    json = pools_json(out);
    CHECK(gp_json_bool(gp_json_member(json, "ok"), false));
    CHECK_INT(2, gp_json_count(gp_json_member(json, "peers")));
    CHECK(gp_json_number(
              gp_json_member(gp_json_element(gp_json_member(json, "peers"), 0), "bytes_per_second"), 0) > 0);
    gp_json_free(json);
    setenv("FAKE_GPU_FAULTS", "cudaLaunchKernel:1=700", 1);
    RUN_CODE(1, "doctor");
    CHECK_CONTAINS(out, "failure  a kernel on cuda:0: ");
    CHECK_CONTAINS(out, "dmesg | grep Xid");
    setenv("FAKE_GPU_FAULTS", "cudaDeviceCanAccessPeer:1+=101", 1);
    RUN_CODE(1, "doctor", "--quiet");
    CHECK_CONTAINS(out, "2 of 2 paths fail");
    CHECK_CONTAINS(out, "nvidia-smi topo -p2p rw");
}

/* ---- idle workers ---- */

static bool trace_says(const char *what, int times)
{
    int found;

    AWAIT((found = count_in_file(in_root("trace"), what)) >= times, 5);
    if (found < times)
        GP_TEST_FAIL("the trace contains '%s' %d times, expected %d", what, found, times);
    return found >= times;
}

/* Return the process id of worker 1. */
static double worker_pid(void)
{
    double pid = 0;
    gp_json *json;
    gp_error e;

    RUN_CODE(0, "status", "--json");
    if (gp_json_parse(&json, out, strlen(out), &e) != GP_OK)
        return 0;
    pid = gp_json_number(gp_json_member(gp_json_element(gp_json_member(json, "workers"), 0), "pid"), 0);
    gp_json_free(json);
    return pid;
}

TEST(worker_without_work_is_replaced_by_one_that_leaves_the_gpu_closed)
{
    double pid;

    gpus_begin(ONE_CARD);
    setenv("FAKE_GPU_TRACE", in_root("trace"), 1);
    setenv("GRADPOOL_GPU_IDLE", "0.3", 1);
    RUN_CODE(0, "up", "--quiet");
    pid = worker_pid();
    CHECK(trace_says("context destroyed, 0 blocks, 0 streams and events left", 1));
    AWAIT(worker_pid() != pid, 5);
    CHECK(worker_pid() != pid);
    CHECK_INT(1, count_in_file(in_root("trace"), "context made"));
    CHECK_INT(0, TRAIN("--metrics", "a.jsonl", "--out", "a.onnx"));
    CHECK(trace_says("context destroyed, 0 blocks, 0 streams and events left", 2));
    CHECK_INT(0, TRAIN("--metrics", "b.jsonl", "--out", "b.onnx"));
    CHECK_NEAR(last_loss("a.jsonl"), last_loss("b.jsonl"), 0.0);
    RUN_CODE(0, "predict", "--model", "a.onnx", "--data", "digits:128", "--out", "p.csv", "--quiet");
    CHECK(trace_says("context destroyed, 0 blocks, 0 streams and events left", 3));
    CHECK_INT(3, count_in_file(in_root("trace"), "context made"));
}

/* ---- failures in a training ---- */

/* During autotuning, and in a training with host updates: CUDA would return the sticky error to the
 * next user. */
TEST(sticky_device_failure_ends_the_worker_in_every_phase)
{
    static const char *const how[][4] = {
        { "cudnnBackendExecute!", "--autotune-seconds", "2", "lost its GPU before the first step: " },
        { "cudaLaunchKernel!", "--reproducible", "--quiet", "lost its GPU in a training: " },
    };

    for (int i = 0; i < 2; i++) {
        gpus_begin(ONE_CARD);
        setenv("XDG_CACHE_HOME", in_root("cache"), 1); /* an empty cache of timings */
        fault_when(how[i][0], "ill", "719");
        RUN_CODE(0, "up", "--quiet");
        write_file("ill", "");
        CHECK(TRAIN("--max-restarts", "0", "--out", "lost.onnx", how[i][1], how[i][2]) != 0);
        CHECK_CONTAINS(err, how[i][3]);
        CHECK_CONTAINS(err, "(CUDA error 719)");
        CHECK_INT(0, TRAIN("--out", "well.onnx", how[i][1], how[i][2]));
        gpus_end();
    }
    unsetenv("XDG_CACHE_HOME");
}

TEST(device_failure_ends_its_worker_with_a_message_and_the_next_training_works)
{
    gpus_begin(ONE_CARD);
    fault_when("cudaLaunchKernel@", "ill", "700");
    setenv("GRADPOOL_CUDA_KERNELS", "eager", 1);
    RUN_CODE(0, "up", "--quiet");
    write_file("ill", "");
    CHECK(TRAIN("--metrics", "a.jsonl", "--out", "a.onnx", "--max-restarts", "0") != 0);
    CHECK_CONTAINS(err, "worker 1 (pid ");
    CHECK_CONTAINS(err, "GPU");
    CHECK_CONTAINS(err, "lost its GPU in step ");
    CHECK_CONTAINS(err, "an illegal memory access was encountered (CUDA error 700)");
    CHECK_CONTAINS(err, "dmesg");
    CHECK_CONTAINS(err, "gradpool doctor");
    unlink(in_root("ill"));
    CHECK_INT(0, TRAIN("--metrics", "b.jsonl", "--out", "b.onnx"));
    CHECK(last_loss("b.jsonl") > 0.0);
    unsetenv("GRADPOOL_CUDA_KERNELS");
}

/* On one GPU and on two: the error names the device, the library's error and a fix. */
TEST(gpu_lost_in_a_training_is_reported_to_the_client)
{
    for (int workers = 1; workers <= 2; workers++) {
        gpus_begin(workers == 1 ? ONE_CARD : TWO_CARDS);
        fault_when("cudaGraphLaunch!", "ill", "719");
        RUN_CODE(0, "up", "--quiet");
        write_file("ill", "");
        RUN_CODE(workers == 1 ? 1 : 0, "train", "--network", "net.json", "--data", "digits:512",
                 "--validation-data", "none", "--mini-batch-size", "32", "--epochs", "2", "--seed", "3",
                 "--plots", "none", "--max-restarts", workers == 1 ? "0" : "3", "--out", "lost.onnx");
        CHECK_CONTAINS(err, " (pid ");
        CHECK_CONTAINS(err, "GPU ");
        CHECK_CONTAINS(err, "lost its GPU in step ");
        CHECK_CONTAINS(err, "unspecified launch failure (CUDA error 719)");
        CHECK_CONTAINS(err, "look for an Xid in dmesg, and run gradpool doctor");
        CHECK_CONTAINS(err, "its log is ");
        gpus_end();
    }
}

/* The GPU fails or hangs; the replacement worker predicts the samples. */
TEST(gpu_lost_in_a_prediction_is_reported_and_its_samples_are_predicted_again)
{
    static const char *const how[] = { "719", "hang" };
    static const char *const words[] = { "unspecified launch failure (CUDA error 719)",
                                         "no result from the GPU within" };

    for (int i = 0; i < 2; i++) {
        gpus_begin(ONE_CARD);
        fault_when("cudaGraphLaunch!", "ill", how[i]);

        /* s; the fake device is a thread and may wait for a core */
        setenv("GRADPOOL_GPU_TIMEOUT", "3", 1);
        RUN_CODE(0, "up", "--quiet");
        CHECK_INT(0, TRAIN("--out", "p.onnx"));
        write_file("ill", "");
        RUN_CODE(0, "predict", "--model", "p.onnx", "--data", "digits:640", "--out", "p.csv");
        CHECK_CONTAINS(err, "lost its GPU in a prediction: ");
        CHECK_CONTAINS(err, words[i]);
        CHECK_CONTAINS(err, "gradpool doctor");
        unsetenv("GRADPOOL_GPU_TIMEOUT");
        gpus_end();
    }
}

TEST(operations_without_a_plan_are_reported_by_trainings_and_predictions)
{
    static const char text[] = "no library has a plan for %d operation%s, which run%s on slow kernels: ";
    char expected[120];

    gpus_begin(ONE_CARD);
    setenv("FAKE_GPU_FAULTS", "cudnnPlan:1+=3000", 1);
    RUN_CODE(0, "up", "--quiet");
    RUN_CODE(0, "train", "--network", "net.json", "--data", "digits:64", "--validation-data", "none",
             "--mini-batch-size", "32", "--epochs", "1", "--plots", "none", "--out", "p.onnx");
    snprintf(expected, sizeof(expected), text, 2, "s", "");
    CHECK_CONTAINS(err, expected);
    CHECK_CONTAINS(err, "the plan does not build");
    CHECK_CONTAINS(out, "1 GPU worker, precision f32 without tensor cores; tf32 and bf16 are faster\n");
    RUN_CODE(0, "predict", "--model", "p.onnx", "--data", "digits:64", "--out", "p.csv");
    snprintf(expected, sizeof(expected), text, 1, "", "s");
    CHECK_CONTAINS(err, expected);
    CHECK_CONTAINS(err, "the plan does not build");
}

TEST(worker_with_a_hung_device_is_replaced_when_its_client_exits)
{
    gpus_begin(ONE_CARD);
    pid_t child, before;

    fault_when("cudaLaunchKernel@", "stuck", "hang");
    setenv("FAKE_GPU_TRACE", in_root("trace"), 1);
    setenv("GRADPOOL_CUDA_KERNELS", "eager", 1);
    RUN_CODE(0, "up", "--quiet");
    before = pid_of(1);
    write_file("stuck", "");
    child = START("train", "--network", "net.json", "--data", "digits:128", "--validation-data", "none",
                  "--mini-batch-size", "32", "--epochs", "1", "--plots", "none", "--out", "s.onnx");
    CHECK(trace_says("hangs", 1));
    CHECK(process_alive(child));
    kill(child, SIGKILL);
    finish(child);
    unlink(in_root("stuck"));
    AWAIT(pid_of(1) != before && pid_of(1) != 0, 20);
    CHECK(pid_of(1) != before);
    CHECK_INT(0, TRAIN("--metrics", "a.jsonl", "--out", "a.onnx"));
    unsetenv("GRADPOOL_CUDA_KERNELS");
}
