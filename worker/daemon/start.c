#include "worker/daemon/start.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/text/log.h"
#include "common/base/memory/secret.h"
#include "proto/local/places.h"
#include "proto/local/runner_spawn.h"
#include "worker/daemon/control.h"
#include "common/base/system/fault.h"
#include "worker/daemon/examine.h"
#include "worker/process/last_words.h"
#include "worker/daemon/probe.h"
#include "worker/exec/runner.h"

enum {
    EXIT_USAGE = 2,
    CLAIM_WAIT_MS = 2500, /* workers of a scheduler that died let go of their devices within 2 s */
    CLAIM_WAIT_MS_MAX = 60000,
};

typedef struct start_options {
    bool probe, examine, run, help;
    const char *pool;
    uint32_t index, incarnation;
    gp_worker_device_options device;
} start_options;

static void usage_print(FILE *out)
{
    fputs("gradpool-worker -- one worker of a pool; gradpool-scheduler starts it\n"
          "  --probe               print the machine's GPUs as JSON and exit\n"
          "  --examine             print what the GPU engine and its libraries are and do here, as JSON, and "
          "exit\n"
          "  --pool NAME           of the pool (default)\n"
          "  --index N             of the worker in the pool, from 1\n"
          "  --incarnation N       which process in that place this is, from 1\n"
          "  --device cpu|UUID     what it computes on (cpu)\n"
          "  --device-name TEXT    the GPU's name, for listings\n"
          "  --device-ordinal N    the GPU's CUDA ordinal, for listings\n"
          "  --cores LIST          its cores, like 0-3,8 (all allowed ones)\n"
          "  --shared              the cores are others' too: pin and spin nothing\n"
          "  --run                 start commands for the client of a worker, which gives it descriptors 3 "
          "and 4\n"
          "  --claim-wait MS       how long to wait for a GPU that a dying worker holds (2500)\n",
          out);
}

static gp_status number_parse(uint32_t *out, const char *name, const char *text, uint32_t min, uint32_t max,
                              gp_error *err)
{
    char *end;
    unsigned long value;

    errno = 0;
    value = strtoul(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-' || value < min || value > max)
        return gp_fail(err, GP_EINVAL, "--%s is \"%.40s\"; expected a number from %u to %u", name, text, min,
                       max);
    *out = (uint32_t)value;
    return GP_OK;
}

static gp_status option_set(start_options *options, int option, const char *name, const char *value,
                            gp_error *err)
{
    uint32_t number = 0;
    gp_status status = GP_OK;

    switch (option) {
    case 'p':
        options->pool = value;
        break;
    case 'i':
        return number_parse(&options->index, name, value, 1, GP_WORKERS_MAX, err);
    case 'n':
        return number_parse(&options->incarnation, name, value, 1, UINT32_MAX, err);
    case 'd':
        options->device.device = value;
        break;
    case 'm':
        options->device.name = value;
        break;
    case 'o':
        return number_parse(&options->device.ordinal, name, value, 0, GP_DEVICE_INDEX_MAX, err);
    case 'c':
        options->device.cores = value[0] == '\0' ? NULL : value;
        break;
    case 's':
        options->device.shared = true;
        break;
    case 'w':
        status = number_parse(&number, name, value, 0, CLAIM_WAIT_MS_MAX, err);
        options->device.claim_wait_ms = (int)number;
        break;
    case 'P':
        options->probe = true;
        break;
    case 'e':
        options->examine = true;
        break;
    case 'r':
        options->run = true;
        break;
    case 'h':
        options->help = true;
        break;
    default:
        return gp_fail(err, GP_EINVAL, "the command line is not understood; see --help");
    }
    return status;
}

static gp_status options_parse(start_options *options, int count, char **arguments, gp_error *err)
{
    static const struct option table[] = {
        { "pool", required_argument, NULL, 'p' },
        { "index", required_argument, NULL, 'i' },
        { "incarnation", required_argument, NULL, 'n' },
        { "device", required_argument, NULL, 'd' },
        { "device-name", required_argument, NULL, 'm' },
        { "device-ordinal", required_argument, NULL, 'o' },
        { "cores", required_argument, NULL, 'c' },
        { "shared", no_argument, NULL, 's' },
        { "claim-wait", required_argument, NULL, 'w' },
        { "probe", no_argument, NULL, 'P' },
        { "examine", no_argument, NULL, 'e' },
        { "run", no_argument, NULL, 'r' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    int option, place = 0;

    *options =
        (start_options){ .pool = "default", .device.device = "cpu", .device.claim_wait_ms = CLAIM_WAIT_MS };
    while ((option = getopt_long(count, arguments, "", table, &place)) != -1) {
        gp_status status = option_set(options, option, option == '?' ? "" : table[place].name, optarg, err);

        if (status != GP_OK)
            return status;
    }
    if (optind < count)
        return gp_fail(err, GP_EINVAL, "\"%.60s\" is not understood; see --help", arguments[optind]);
    if (!options->probe && !options->examine && !options->help &&
        (options->index == 0 || options->incarnation == 0))
        return gp_fail(err, GP_EINVAL,
                       "--index and --incarnation are needed; workers are started by gradpool-scheduler");
    return GP_OK;
}

/* Before any thread: all inherit it, and the control thread reads them from a descriptor. */
static void signals_block(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* NULL when the worker is excluded. */
static const gp_backend_ops *backend_choose(gp_worker_device *device, gp_backend_source source)
{
    const gp_backend_ops *ops;
    gp_error err;

    if (device->excluded[0] != '\0')
        return NULL;
    if (source(&ops, &err) == GP_OK)
        return ops;
    snprintf(device->excluded, sizeof(device->excluded), "%.*s", (int)sizeof(device->excluded) - 1,
             err.message);
    return NULL;
}

/* The file is the worker's, who puts it aside. */
static void log_follow(void)
{
    char path[GP_TEXT_PATH];
    ssize_t length = readlink("/proc/self/fd/2", path, sizeof(path) - 1);

    if (length <= 0)
        return;
    path[length] = '\0';
    gp_log_keep(path, GP_LOG_FILE_BYTES_MAX, false);
}

static int worker_serve(start_options *options, int64_t started_ns, gp_backend_source cpu,
                        gp_backend_source cuda)
{
    gp_control_options control = { .index = options->index,
                                   .incarnation = options->incarnation,
                                   .started_ns = started_ns };
    gp_worker_device device;
    gp_places places;
    gp_error err;
    gp_status status;
    int exit_code;

    status = gp_fault_arm(GP_FAULT_worker, options->index, options->incarnation, &err);
    if (status == GP_OK)
        status = gp_places_find(&places, options->pool, &err);
    if (status == GP_OK)
        status = gp_places_check(&places, &err);
    if (status == GP_OK) {
        char log[GP_TEXT_PATH], words[GP_TEXT_PATH];

        gp_places_worker_log(&places, options->index, log);
        gp_log_keep(log, GP_LOG_FILE_BYTES_MAX, true);
        gp_places_worker_words(&places, options->index, options->incarnation, words);
        gp_last_words_place(words);
        options->device.pool = options->pool;
        options->device.device_dir = places.device_dir;
        options->device.index = options->index;
        status = gp_worker_device_open(&device, &options->device, &err);
        gp_fault_point("claimed");
    }
    if (status != GP_OK) {
        gp_log(GP_LOG_ERROR, "start-failed", "%s", err.message);
        return GP_WORKER_EXIT_FAILED;
    }
    control.places = &places;
    control.device = &device;
    control.backend_ops = backend_choose(&device, device.kind == GP_DEVICE_CUDA ? cuda : cpu);
    exit_code = gp_control_run(&control);
    gp_worker_device_close(&device);
    return exit_code;
}

int gp_worker_main(int count, char **arguments, gp_backend_source cpu, gp_backend_source cuda)
{
    int64_t started_ns = gp_now_ns();
    start_options options;
    char who[32];
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
    if (options.examine)
        return gp_examine_main();
    if (options.run) {
        snprintf(who, sizeof(who), "runner-%u", options.index);
        gp_log_setup(who, GP_LOG_INFO);
        log_follow();
        if (gp_fault_arm(GP_FAULT_runner, options.index, options.incarnation, &err) != GP_OK) {
            gp_log(GP_LOG_ERROR, "start-failed", "%s", err.message);
            return EXIT_USAGE;
        }
        return gp_runner_main(GP_RUNNER_CLIENT_FD, GP_RUNNER_WORKER_FD);
    }
    snprintf(who, sizeof(who), "worker-%u", options.index);
    gp_log_setup(who, GP_LOG_INFO);
    signals_block();
    gp_secrets_adopt();
    return worker_serve(&options, started_ns, cpu, cuda);
}
