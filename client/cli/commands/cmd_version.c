/* `gradpool version`: the version, the build, numbers of interfaces, and the programs in use. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define GP_TASK_NO_ABI
#include <gradpool/task.h>

#include "client/cli/cli.h"
#include "client/cli/show.h"
#include "common/base/system/process.h"
#include "common/base/text/json.h"
#include "proto/message/limits.h"

typedef struct version_options {
    cli_common common;
    bool verbose;
} version_options;

static const gp_param version_params[] = {
    { .name = "verbose",
      .alias = "v",
      GP_PARAM_FIELD(version_options, verbose),
      .help = "also print the build, interface numbers, libraries and the paths of the programs" },
    CLI_JSON_PARAM(version_options),
    CLI_COMMON_PARAMS(version_options),
    { 0 },
};

/* Paths of the programs; "": not found. */
typedef struct programs {
    char command[PATH_MAX], scheduler[PATH_MAX], worker[PATH_MAX];
} programs;

static void programs_find(programs *out)
{
    if (gp_program_path(out->command, sizeof(out->command), NULL) != GP_OK)
        out->command[0] = '\0';
    if (pool_daemon_path("gradpool-scheduler", "GRADPOOL_SCHEDULER", out->scheduler, sizeof(out->scheduler),
                         NULL) != GP_OK)
        out->scheduler[0] = '\0';
    if (pool_daemon_path("gradpool-worker", "GRADPOOL_WORKER", out->worker, sizeof(out->worker), NULL) !=
        GP_OK)
        out->worker[0] = '\0';
}

static void version_show(const programs *found)
{
    printf("build           %s, %s%s%s\n", GP_BUILD_TYPE, GP_COMPILER,
           GP_SANITIZER[0] == '\0' ? "" : ", sanitizer: ", GP_SANITIZER);
    printf("protocol        %u, oldest accepted %u\n", GP_PROTOCOL, GP_PROTOCOL_MIN);
    printf("task ABI        %d\n", GP_TASK_ABI);
    printf("GPU plugin ABI  %d\n", GP_PLUGIN_ABI);
    printf("libraries       %s\n", GP_LIBRARIES);
    printf("command         %s\n", found->command);
    printf("scheduler       %s\n", found->scheduler[0] == '\0' ? "not found" : found->scheduler);
    printf("worker          %s\n", found->worker[0] == '\0' ? "not found" : found->worker);
}

/* Write "NAME VERSION, NAME VERSION" as members. */
static void libraries_write(gp_json_writer *writer)
{
    char list[] = GP_LIBRARIES, *rest = NULL;

    gp_json_begin_object(writer, "libraries");
    for (char *name = strtok_r(list, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
        char *version;

        name += *name == ' ';
        version = strchr(name, ' ');
        *version = '\0';
        gp_json_put_text(writer, name, version + 1);
    }
    gp_json_end_object(writer);
}

static gp_status version_write(const programs *found, gp_error *err)
{
    json_document document;
    gp_json_writer *writer = show_json_object(&document, true);

    gp_json_put_text(writer, "version", strchr(gp_version(), ' ') + 1);
    gp_json_put_text(writer, "build_type", GP_BUILD_TYPE);
    gp_json_put_text(writer, "compiler", GP_COMPILER);
    gp_json_put_text(writer, "sanitizer", GP_SANITIZER);
    gp_json_put_integer(writer, "protocol", GP_PROTOCOL);
    gp_json_put_integer(writer, "protocol_min", GP_PROTOCOL_MIN);
    gp_json_put_integer(writer, "task_abi", GP_TASK_ABI);
    gp_json_put_integer(writer, "plugin_abi", GP_PLUGIN_ABI);
    libraries_write(writer);
    gp_json_put_text(writer, "command", found->command);
    gp_json_put_text(writer, "scheduler", found->scheduler);
    gp_json_put_text(writer, "worker", found->worker);
    return show_json_print(&document, err);
}

static gp_status version_run(cli_call *call, gp_error *err)
{
    const version_options *options = call->options;
    programs found;

    if (options->common.json || options->verbose)
        programs_find(&found);
    if (options->common.json)
        return version_write(&found, err);
    printf("%s\n", gp_version());
    if (options->verbose)
        version_show(&found);
    return GP_OK;
}

const cli_command cli_command_version = {
    .name = "version",
    .summary = "print the version, and with --verbose the build and the programs in use",
    .usage = "[--verbose] [--json]",
    .description =
        "Print the version in one line, as `gradpool --version` does. --verbose and --json add the kind of "
        "build, the protocol number, the ABI numbers of task objects and of the GPU plugin, the libraries "
        "with their versions at build time, and the paths of the programs. oneDNN and CUDA are listed if "
        "the build has the module for them.\n\n"
        "Processes of a pool must have the same protocol number, and a task object the same task ABI as the "
        "worker.",
    .examples = "  gradpool version\n"
                "  gradpool version --verbose                      # for a bug report\n"
                "  gradpool version --json | jq .protocol\n",
    .options = version_params,
    .options_bytes = sizeof(version_options),
    .run = version_run,
};
