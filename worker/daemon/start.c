#include "worker/daemon/start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/text/arguments.h"
#include "common/base/text/log.h"
#include "common/base/memory/secret.h"
#include "proto/local/paths.h"
#include "proto/local/runner_spawn.h"
#include "worker/daemon/control.h"
#include "common/base/system/fault.h"
#include "common/base/system/process.h"
#include "worker/daemon/gpu_selftest.h"
#include "worker/process/exit_reason.h"
#include "worker/daemon/probe.h"
#include "worker/daemon/signals.h"
#include "worker/exec/runner.h"

enum {
    EXIT_USAGE = 2,
    CLAIM_WAIT_MS = 2500, /* a failed scheduler's workers release their devices within 2 s */
    CLAIM_WAIT_MS_MAX = 60000,
};

typedef struct start_options {
    bool probe, selftest, run, help, cold;
    const char *pool;
    uint32_t index, incarnation, failures;
    gp_worker_device_options device;
} start_options;

static void usage_print(FILE *out)
{
    fputs("gradpool-worker -- run a worker of a pool; gradpool-scheduler starts it\n"
          "  --probe               print the GPUs of this host as JSON and exit\n"
          "  --selftest            test the GPU engine and its libraries, print the result as JSON and exit\n"
          "  --pool NAME           name of the pool [default]\n"
          "  --index N             index of the worker in the pool, from 1\n"
          "  --incarnation N       number of the process among those of this index, from 1\n"
          "  --failures N          earlier processes of this index that failed [0]\n"
          "  --device cpu|UUID     compute device [cpu]\n"
          "  --device-name TEXT    name of the GPU, for listings\n"
          "  --device-ordinal N    CUDA ordinal of the GPU, for listings\n"
          "  --cores LIST          CPU cores, for example 0-3,8 [all allowed cores]\n"
          "  --shared              share the cores with other workers: do not pin threads, do not spin\n"
          "  --cold                open the GPU for the first work, not at the start\n"
          "  --run                 run commands for the client of a worker; uses descriptors 3 and 4\n"
          "  --claim-wait MS       time to wait for a GPU that an exiting worker holds [2500]\n"
          "Exit codes: 0 shut down, 1 cannot start or join the pool, 2 invalid arguments, 3 no scheduler\n",
          out);
}

static gp_status options_parse(start_options *options, int count, char **arguments, gp_error *err)
{
    static const gp_argument table[] = {
        { GP_TEXT("pool", start_options, pool) },
        { GP_NUMBER("index", start_options, index), .min = 1, .max = GP_WORKERS_MAX },
        { GP_NUMBER("incarnation", start_options, incarnation), .min = 1, .max = UINT32_MAX },
        { GP_NUMBER("failures", start_options, failures), .max = UINT32_MAX },
        { GP_TEXT("device", start_options, device.device) },
        { GP_TEXT("device-name", start_options, device.name) },
        { GP_NUMBER("device-ordinal", start_options, device.ordinal), .max = GP_DEVICE_INDEX_MAX },
        { GP_TEXT("cores", start_options, device.cores) },
        { GP_FLAG("shared", start_options, device.shared) },
        { GP_FLAG("cold", start_options, cold) },
        { GP_NUMBER("claim-wait", start_options, device.claim_wait_ms), .max = CLAIM_WAIT_MS_MAX },
        { GP_FLAG("probe", start_options, probe) },
        { GP_FLAG("selftest", start_options, selftest) },
        { GP_FLAG("run", start_options, run) },
        { GP_FLAG("help", start_options, help) },
        { .name = NULL },
    };

    *options = (start_options){ .pool = "default",
                                .device = { .device = "cpu", .cores = "", .claim_wait_ms = CLAIM_WAIT_MS } };
    if (gp_arguments_parse(table, options, count, arguments, err) != GP_OK)
        return err->code;
    if (options->device.cores[0] == '\0')
        options->device.cores = NULL;
    if (!options->probe && !options->selftest && !options->help &&
        (options->index == 0 || options->incarnation == 0))
        return gp_fail(err, GP_EINVAL,
                       "--index and --incarnation are required; workers are started by gradpool-scheduler");
    return GP_OK;
}

static int worker_serve(start_options *options, int64_t started_ns, gp_backend_source cpu,
                        gp_backend_source cuda)
{
    gp_control_options control = { .index = options->index,
                                   .incarnation = options->incarnation,
                                   .failures = options->failures,
                                   .cold = options->cold,
                                   .started_ns = started_ns };
    gp_worker_device device;
    gp_paths paths;
    gp_error err;
    gp_status status;
    int exit_code;

    status = gp_fault_arm(GP_FAULT_worker, options->index, options->incarnation, &err);
    if (status == GP_OK)
        status = gp_paths_find(&paths, options->pool, &err);
    if (status == GP_OK)
        status = gp_paths_check(&paths, &err);
    if (status == GP_OK) {
        char log[GP_TEXT_PATH], words[GP_TEXT_PATH];

        gp_paths_worker_log(&paths, options->index, log);
        gp_log_keep(log, GP_LOG_FILE_BYTES_MAX, true);
        gp_paths_worker_file(&paths, options->index, options->incarnation, ".words", words);
        gp_exit_reason_set_path(words);
        options->device.pool = options->pool;
        options->device.device_dir = paths.device_dir;
        options->device.index = options->index;
        status = gp_worker_device_open(&device, &options->device, &err);
        gp_fault_point("claimed");
    }
    if (status != GP_OK) {
        gp_log(GP_LOG_ERROR, "start-failed", "%s", err.message);
        return GP_WORKER_EXIT_FAILED;
    }
    control.paths = &paths;
    control.device = &device;
    if (device.excluded[0] == '\0' &&
        (device.kind == GP_DEVICE_CUDA ? cuda : cpu)(&control.backend_ops, &err) != GP_OK)
        snprintf(device.excluded, sizeof(device.excluded), "%.*s", (int)sizeof(device.excluded) - 1,
                 err.message);
    if (device.excluded[0] != '\0')
        control.backend_ops = NULL;
    exit_code = gp_control_run(&control);
    gp_worker_device_close(&device);
    return exit_code;
}

int gp_worker_main(int count, char **arguments, gp_backend_source cpu, gp_backend_source cuda)
{
    int64_t started_ns = gp_now_ns();
    start_options options;
    char who[32], path[GP_TEXT_PATH];
    ssize_t length;
    gp_error err;

    gp_log_setup("worker", GP_LOG_INFO);
    if (options_parse(&options, count, arguments, &err) != GP_OK) {
        gp_log(GP_LOG_ERROR, "start-failed", "%s", err.message);
        return EXIT_USAGE;
    }
    if (options.help) {
        usage_print(stdout);
        return 0;
    }
    if (options.probe)
        return gp_probe_main();
    if (options.selftest)
        return gp_gpu_selftest_main();
    if (options.run) {
        snprintf(who, sizeof(who), "runner-%u", options.index);
        gp_log_setup(who, GP_LOG_INFO);
        /* Follow the rotation of the log file that standard error refers to. The worker renames the
         * file; this process only reopens it. */
        length = readlink("/proc/self/fd/2", path, sizeof(path) - 1);
        path[length > 0 ? length : 0] = '\0';
        if (length > 0)
            gp_log_keep(path, GP_LOG_FILE_BYTES_MAX, false);
        if (gp_fault_arm(GP_FAULT_runner, options.index, options.incarnation, &err) != GP_OK) {
            gp_log(GP_LOG_ERROR, "start-failed", "%s", err.message);
            return EXIT_USAGE;
        }
        return gp_runner_main(GP_RUNNER_CLIENT_FD, GP_RUNNER_WORKER_FD);
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* lines that tasks print reach the log at once */
    snprintf(who, sizeof(who), "worker-%u", options.index);
    gp_log_setup(who, GP_LOG_INFO);
    if (gp_signals_catch(&err) != GP_OK) {
        gp_log(GP_LOG_ERROR, "start-failed", "%s", err.message);
        return GP_WORKER_EXIT_FAILED;
    }
    gp_secrets_adopt();
    return worker_serve(&options, started_ns, cpu, cuda);
}
