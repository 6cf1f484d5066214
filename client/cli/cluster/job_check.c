/* Implement job_check.h. */
#include "client/cli/cluster/job_check.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cluster/tool.h"
#include "common/base/printable.h"
#include "common/base/system/fence.h"
#include "common/base/system/process.h"
#include "common/base/text/json.h"

enum { STATUS_MS = 30000, DATA_MS = 100000, TEXT_BYTES = 240 };

/* Print the result line of a check. Return `passed`. */
static bool report(const char *stage, bool passed, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static bool report(const char *stage, bool passed, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    printf(JOB_CHECK_PREFIX "%s %s %s\n", stage, passed ? "passed" : "failed", gp_printable(text));
    fflush(stdout);
    return passed;
}

/* Run `gradpool WORDS`. If it fails, *err has the message of the command without its name. */
static gp_status command_run(cluster_tool_result *result, const char *const *words, int timeout_ms,
                             gp_error *err)
{
    cluster_tool tool = { .words = words, .timeout_ms = timeout_ms };
    const char *text, *end;
    gp_status status = cluster_tool_run(result, &tool, err);

    if (status != GP_OK || result->code == 0)
        return status;
    text = strstr(gp_buffer_text(&result->errors), "gradpool ");
    end = text != NULL ? strstr(text, ": ") : NULL;
    if (end != NULL)
        status = gp_fail(err, GP_ESTATE, "%.*s", (int)strcspn(end + 2, "\n"), end + 2);
    else
        status = cluster_tool_fail(err, GP_ESTATE, &tool, result);
    cluster_tool_deinit(result);
    return status;
}

/* Workers of the pool by state and device. */
typedef struct workers {
    int64_t usable, gpus;
    char device[80], reason[160]; /* name of a device; why a worker is excluded */
} workers;

static void workers_count(workers *out, const gp_json *list)
{
    *out = (workers){ .device = "cpu" };
    for (size_t i = 0; i < gp_json_count(list); i++) {
        const gp_json *worker = gp_json_element(list, i), *device = gp_json_member(worker, "device");
        const char *reason = gp_json_text(gp_json_member(worker, "reason"), "");

        if (strcmp(gp_json_text(gp_json_member(worker, "state"), ""), "excluded") == 0) {
            snprintf(out->reason, sizeof(out->reason), "%s", reason);
            continue;
        }
        out->usable++;
        if (strcmp(gp_json_text(gp_json_member(device, "kind"), ""), "cpu") == 0)
            continue;
        out->gpus++;
        snprintf(out->device, sizeof(out->device), "%s", gp_json_text(gp_json_member(device, "name"), "GPU"));
    }
}

/* Check that the pool has a worker, and one for each GPU of the profile. */
static bool check_devices(const char *program, int64_t gpus)
{
    cluster_tool_result result;
    gp_json *status_json = NULL;
    workers found;
    gp_error err;
    gp_status status =
        command_run(&result, (const char *const[]){ program, "status", "--json", NULL }, STATUS_MS, &err);

    if (status == GP_OK) {
        status = gp_json_parse(&status_json, gp_buffer_text(&result.output), result.output.bytes, &err);
        cluster_tool_deinit(&result);
    }
    if (status != GP_OK)
        return report("devices", false, "%s", err.message);
    workers_count(&found, gp_json_member(status_json, "workers"));
    gp_json_free(status_json);
    if (found.usable == 0)
        return report("devices", false, "the pool has no usable worker: %s", found.reason);
    if (found.gpus < gpus)
        return report("devices", false, "%" PRId64 " of %" PRId64 " GPUs work%s%s", found.gpus, gpus,
                      found.reason[0] != '\0' ? ": " : "", found.reason);
    return report("devices", true, "%" PRId64 " worker%s (%s)", found.usable, found.usable == 1 ? "" : "s",
                  found.device);
}

static bool check_data(const char *program, const char *source)
{
    cluster_tool_result result;
    gp_error err;
    gp_status status =
        command_run(&result, (const char *const[]){ program, "data", "show", source, NULL }, DATA_MS, &err);
    const char *line;

    if (status != GP_OK)
        return report("data", false, "%s", err.message);
    line = strchr(gp_buffer_text(&result.output), '\n'); /* the first line names the source */
    line = line != NULL ? line + 1 : gp_buffer_text(&result.output);
    report("data", true, "%.*s", (int)strcspn(line, "\n"), line);
    cluster_tool_deinit(&result);
    return true;
}

/* Replace this process by a training on synthetic data, which ends within minutes if nothing stops
 * it. Return only after a failure. */
static int training_become(const char *program, const char *folder)
{
    char checkpoints[PATH_MAX];
    const char *words[] = { program,    "train", "--network",         "lenet",     "--data", "digits:1280",
                            "--epochs", "10000", "--checkpoint-path", checkpoints, NULL };

    snprintf(checkpoints, sizeof(checkpoints), "%s/" JOB_CHECK_CHECKPOINTS, folder);
    setenv("GRADPOOL_JOB_DIR", folder, 1); /* the training acts as the job */
    execv(program, (char *const *)(uintptr_t)words);
    perror("gradpool job-check");
    return CLI_FAILED;
}

int job_check_main(int argc, char **argv, const char *folder)
{
    const char *fence = getenv(GP_FENCE_VARIABLE);
    char program[PATH_MAX];
    gp_error err;

    if (argc != 4 || folder == NULL) {
        fprintf(stderr, "gradpool job-check: only 'gradpool cluster validate' uses this command\n");
        return CLI_USAGE;
    }
    if (fence != NULL && atoi(fence) > 1) /* the validation that requeued the job was killed */
        return CLI_OK;
    if (gp_program_path(program, sizeof(program), &err) != GP_OK) {
        fprintf(stderr, "gradpool job-check: %s\n", err.message);
        return CLI_FAILED;
    }
    if (!check_devices(program, strtoll(argv[2], NULL, 10)) ||
        (argv[3][0] != '\0' && !check_data(program, argv[3])))
        return CLI_FAILED;
    return training_become(program, folder);
}
