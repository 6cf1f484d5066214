/* `gradpool spmd`: run one command on every worker at the same time. */
#include <math.h>

#include "client/cli/jobs/job_self.h"
#include "client/cli/run/command_set.h"
#include "client/cli/run/program_folder.h"
#include "client/cli/run/task_words.h"

typedef struct spmd_options {
    cli_common common;
    char stdin_path[512], folder[1024];
    bool tag, whole, keep_going, shell, dry_run;
    double timeout, grace;
    task_words task;
} spmd_options;

static const gp_param spmd_params[] = {
    { .name = "tag",
      GP_PARAM_FIELD(spmd_options, tag),
      .fallback = 1,
      .help = "prefix each line with its worker number; --tag=no: do not" },
    { .name = "group",
      GP_PARAM_FIELD(spmd_options, whole),
      .help = "print the output of each worker at once, in worker order" },
    { .name = "keep-going",
      GP_PARAM_FIELD(spmd_options, keep_going),
      .help = "continue on other workers after a failure; default: end them" },
    { .name = "folder",
      GP_PARAM_FIELD(spmd_options, folder),
      .placeholder = "DIR",
      .help = "also write the output, the curves of GRADPOOL_METRICS and the result to this folder" },
    COMMAND_SET_PARAMS(spmd_options, "worker", false),
    TASK_WORDS_PARAMS(spmd_options),
    CLI_COMMON_PARAMS(spmd_options),
    { 0 },
};

static int spmd_check(cli_call *call)
{
    const spmd_options *options = call->options;

    if (options->folder[0] != '\0' && (options->common.json || options->dry_run || task_words_given(call)))
        return cli_usage(call, "--folder needs a command after --, without --json and --dry-run");
    if (task_words_given(call))
        return task_words_check_spmd(call);
    if (call->word_count > 0)
        return cli_usage(call, "unexpected word '%s'; give the command after --: gradpool spmd -- %s",
                         call->words[0], call->words[0]);
    if (call->rest_count == 0)
        return cli_usage(call, "the command is missing; give it after --: gradpool spmd -- hostname");
    return task_words_check_none(call);
}

static gp_status spmd_run(cli_call *call, gp_error *err)
{
    const spmd_options *options = call->options;
    bool json = options->common.json;
    command_set_options command_set = { .call = call,
                                        .grace_ms = (int)ceil(options->grace * 1e3),
                                        .stdin_path = options->stdin_path,
                                        .slots = 1,
                                        .halt = options->keep_going ? COMMAND_SET_NEVER : COMMAND_SET_NOW,
                                        .timeout_s = options->timeout,
                                        .lines = !options->whole && !json,
                                        .ordered = true,
                                        .tagged = options->tag && !json,
                                        .json = json };
    command_set_result result = { 0 };
    program_folder folder = { .log = -1 };

    if (task_words_given(call))
        return task_words_spmd(call, &options->task, options->tag, options->timeout, err);
    gp_status status = template_new(&command_set.command, call->rest, call->rest_count, NULL, 0,
                                    command_set_by_shell(call, options->shell), err);

    if (status == GP_OK && options->folder[0] != '\0') {
        command_set.copy = program_folder_output;
        command_set.copy_context = &folder;
        status = program_folder_open(&folder, options->folder, err);
        if (status == GP_OK)
            job_self_link(folder.path, "metrics.jsonl");
    }
    cli_catch_interrupts();
    if (status == GP_OK)
        status = options->dry_run ? command_set_print(&command_set, err)
                                  : command_set_run_on_pool(&command_set, &result, err);
    program_folder_close(&folder, status == GP_OK ? &result : NULL);
    template_free(command_set.command);
    if (status == GP_OK)
        call->code = result.interrupted ? CLI_INTERRUPTED : result.first_code;
    return status;
}

const cli_command cli_command_spmd = {
    .name = "spmd",
    .summary = "run a command on all workers at the same time",
    .usage = "[-n N] [options] -- COMMAND... | tasks.so:FUNCTION [ARGUMENT]",
    .description =
        "Run a command once on every leased worker, all at the same time, or call a function of a task "
        "object. All words after -- belong to the command. Lines of output begin with the number of the "
        "worker.",
    .examples = "  gradpool spmd -- hostname\n"
                "  gradpool spmd -n 2 -- ./solve --part {#}\n"
                "  gradpool spmd -- 'echo worker $GRADPOOL_INDEX of $GRADPOOL_SIZE'\n"
                "  gradpool spmd -n 2 ./tasks.so:solve case-7 --as f64\n",
    .notes = "Environment of each command: GRADPOOL_INDEX (1 to GRADPOOL_SIZE), GRADPOOL_SIZE,\n"
             "GRADPOOL_WORKER_INDEX and, on a GPU, CUDA_VISIBLE_DEVICES.  {#} in the command is the index.\n",
    .exit_codes = "that of the first failed command, or 128 + N if signal N ended it; 255: usage error,\n"
                  "pool failure or worker failure; 130: interrupted.\n",
    .options = spmd_params,
    .options_bytes = sizeof(spmd_options),
    .leases = true,
    .runs = true,
    .error_code = COMMAND_SET_ERROR,
    .words_max = -1,
    .check = spmd_check,
    .run = spmd_run,
};
