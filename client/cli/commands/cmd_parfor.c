/* `gradpool parfor`: run a command for every input on the pool's workers. Options and exit codes
 * follow GNU parallel. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/run/command_set.h"
#include "client/cli/show.h"
#include "client/cli/run/parfor_train.h"
#include "client/cli/run/task_words.h"

typedef struct parfor_options {
    cli_common common;
    char arg_file[512], stdin_path[512], joblog[512], slots[24];
    bool null_ended, unordered, line_buffer, tag, keep_going, shell, resume, resume_failed, progress, dry_run;
    int halt;
    int64_t retries;
    double timeout, grace;
    task_words task;
} parfor_options;

static const char *const halt_words[] = { "never", "soon", "now", NULL };

static const gp_param parfor_params[] = {
    { .name = "arg-file",
      GP_PARAM_FIELD(parfor_options, arg_file),
      .basic = true,
      .placeholder = "FILE",
      .help = "read one input per line from FILE, or standard input (-)" },
    { .name = "null",
      GP_PARAM_FIELD(parfor_options, null_ended),
      .help = "values of --arg-file end with a zero byte, as from find -print0" },
    { .name = "slots-per-worker",
      GP_PARAM_FIELD(parfor_options, slots),
      .fallback_text = "1",
      .basic = true,
      .placeholder = "N|cores",
      .help = "concurrent commands per worker; cores: one per core" },
    { .name = "unordered",
      GP_PARAM_FIELD(parfor_options, unordered),
      .basic = true,
      .help = "print the output of each job when it ends, not in input order" },
    { .name = "line-buffer",
      GP_PARAM_FIELD(parfor_options, line_buffer),
      .help = "print complete lines of all jobs as they arrive" },
    { .name = "tag",
      GP_PARAM_FIELD(parfor_options, tag),
      .basic = true,
      .help = "prefix each line with the input of its job" },
    COMMAND_SET_PARAMS(parfor_options, "job", true),
    { .name = "halt",
      GP_PARAM_FIELD(parfor_options, halt),
      .words = halt_words,
      .basic = true,
      .help =
          "after a failure: never = run all jobs; soon = start no new jobs; now = also end running jobs" },
    { .name = "keep-going",
      GP_PARAM_FIELD(parfor_options, keep_going),
      .help = "run all jobs despite failures; default for programs. Functions: report failed iterations and "
              "continue" },
    { .name = "retries",
      GP_PARAM_FIELD(parfor_options, retries),
      .min = 0,
      .max = 1000,
      .basic = true,
      .help = "number of retries of a failed command or iteration" },
    { .name = "joblog",
      GP_PARAM_FIELD(parfor_options, joblog),
      .basic = true,
      .placeholder = "FILE",
      .help = "log each completed job to FILE, in the columns of GNU parallel" },
    { .name = "resume",
      GP_PARAM_FIELD(parfor_options, resume),
      .basic = true,
      .help = "skip jobs listed in --joblog" },
    { .name = "resume-failed",
      GP_PARAM_FIELD(parfor_options, resume_failed),
      .help = "skip jobs that succeeded according to --joblog" },
    { .name = "progress",
      GP_PARAM_FIELD(parfor_options, progress),
      .basic = true,
      .help = "show progress on standard error; without a terminal a line each 10 % or 10 s" },
    TASK_WORDS_PARAMS(parfor_options),
    TASK_WORDS_LOOP_PARAMS(parfor_options),
    CLI_COMMON_PARAMS(parfor_options),
    { 0 },
};

/* Check for missing arguments and contradicting options. */
static int parfor_check(cli_call *call)
{
    const parfor_options *options = call->options;

    if (task_words_given(call))
        return task_words_check_parfor(call, &options->task);
    if (call->rest_count == 0)
        return cli_usage(call, "the command is missing; give it after --: gradpool parfor 1:10 -- echo {}");
    if (options->line_buffer && (options->unordered || options->common.json))
        return cli_usage(call, "--line-buffer prints lines on arrival; drop --%s",
                         options->unordered ? "unordered" : "json");
    if (options->common.json && options->tag)
        return cli_usage(call, "--tag has no effect with --json: each object has its inputs; drop it");
    if (options->keep_going && options->halt != COMMAND_SET_NEVER)
        return cli_usage(call, "--keep-going and --halt %s are both given; drop one of them",
                         halt_words[options->halt]);
    if ((options->resume || options->resume_failed) && options->joblog[0] == '\0')
        return cli_usage(call, "--resume needs --joblog FILE with the completed jobs");
    if (options->null_ended && options->arg_file[0] == '\0')
        return cli_usage(call, "--null has no effect without --arg-file");
    if (strcmp(options->arg_file, "-") == 0 && strcmp(options->stdin_path, "-") == 0)
        return cli_usage(call, "standard input cannot be both --arg-file and --stdin");
    if (task_words_check_none(call) != CLI_OK)
        return COMMAND_SET_ERROR;
    return parfor_train_asked(call) ? parfor_train_check(call) : CLI_OK;
}

/* On a terminal, explain two common surprises: a value appended to a command without {}, and a file
 * name used as a value. */
static void parfor_note(const cli_call *call, const cli_template *command)
{
    struct stat info;
    const char *word = call->word_count == 1 ? call->words[0] : "";

    if (((const cli_common *)call->options)->quiet || !isatty(STDERR_FILENO))
        return;
    if (!template_has_place(command))
        fprintf(stderr,
                "gradpool parfor: the command has no {}; each value is appended as its last argument\n");
    if (strpbrk(word, ",=:") == NULL && stat(word, &info) == 0 && S_ISREG(info.st_mode)) {
        char clean[200];

        show_clean(clean, sizeof(clean), word);
        fprintf(stderr,
                "gradpool parfor: '%s' is used as a value; to read values from the file, use --arg-file %s\n",
                clean, clean);
    }
}

/* Parse the inputs and the command, and open the job log; --dry-run only reads the log. The caller
 * releases all members of *command_set even after a failure. */
static gp_status parfor_prepare(const cli_call *call, command_set_options *command_set,
                                cli_parfor_train **train, gp_error *err)
{
    const parfor_options *options = call->options;
    const char *names[INPUTS_SOURCES_MAX];
    const char *const *words = call->rest;
    const joblog_resume resume = options->resume_failed ? JOBLOG_RESUME_FAILED
                                 : options->resume      ? JOBLOG_RESUME
                                                        : JOBLOG_FRESH;
    int count = 0, word_count = call->rest_count;
    gp_status status =
        inputs_new(&command_set->inputs, call->words, call->word_count,
                   options->arg_file[0] != '\0' ? options->arg_file : NULL, options->null_ended, err);

    if (status != GP_OK)
        return status;
    for (; count < inputs_sources(command_set->inputs); count++)
        names[count] = inputs_name(command_set->inputs, count);
    if (parfor_train_asked(call))
        status = parfor_train_new(train, call, &words, &word_count, err);
    if (status != GP_OK)
        return status;
    status = template_new(&command_set->command, words, word_count, names, count,
                          *train == NULL && command_set_by_shell(call, options->shell), err);
    if (status == GP_OK)
        parfor_note(call, command_set->command);
    if (status == GP_OK)
        status = command_set_slots(&command_set->slots, options->slots, err);
    if (status == GP_OK && options->joblog[0] != '\0')
        status = (options->dry_run ? joblog_read : joblog_open)(&command_set->joblog, options->joblog, resume,
                                                                err);
    return status;
}

static gp_status parfor_run(cli_call *call, gp_error *err)
{
    const parfor_options *options = call->options;
    command_set_options command_set = { .call = call,
                                        .grace_ms = (int)ceil(options->grace * 1e3),
                                        .stdin_path = options->stdin_path,
                                        .halt = (command_set_halt)options->halt,
                                        .retries = (int)options->retries,
                                        .timeout_s = options->timeout,
                                        .lines = options->line_buffer,
                                        .ordered = !options->unordered,
                                        .tagged = options->tag,
                                        .json = options->common.json,
                                        .progress = options->progress };
    command_set_result result = { 0 };
    cli_parfor_train *train = NULL;
    gp_error closing;

    if (task_words_given(call))
        return task_words_parfor(call, &options->task,
                                 &(task_loop){ .tag = options->tag,
                                               .unordered = options->unordered,
                                               .progress = options->progress,
                                               .keep_going = options->keep_going,
                                               .retries = options->retries,
                                               .timeout_s = options->timeout },
                                 err);
    gp_status status = parfor_prepare(call, &command_set, &train, err);

    if (status == GP_OK && train != NULL && parfor_train_try(call, command_set.command) != CLI_OK)
        call->code = COMMAND_SET_ERROR;
    cli_catch_interrupts();
    if (status == GP_OK && call->code == CLI_OK)
        status = options->dry_run ? command_set_print(&command_set, err)
                 : train != NULL  ? parfor_train_run(train, &command_set, &result, err)
                                  : command_set_run_on_pool(&command_set, &result, err);
    if (joblog_close(command_set.joblog, &closing) != GP_OK && status == GP_OK) {
        *err = closing;
        status = err->code;
    }
    parfor_train_free(train);
    template_free(command_set.command);
    inputs_free(command_set.inputs);
    /* Exit code as defined by GNU parallel: the number of failed jobs, 101 for more than 100, or
     * with --halt the exit code of the first failed job. */
    if (status == GP_OK && call->code == CLI_OK)
        call->code = result.interrupted                                           ? CLI_INTERRUPTED
                     : result.failed > 0 && command_set.halt != COMMAND_SET_NEVER ? result.first_code
                     : result.failed > 100                                        ? 101
                                                                                  : (int)result.failed;
    return status;
}

const cli_command cli_command_parfor = {
    .name = "parfor",
    .summary = "run a command for every input, on all workers",
    .usage = "[options] INPUT... -- COMMAND {} | FIRST:LAST tasks.so:FUNCTION [ARGUMENT]",
    .description =
        "Run a command once for each input, on workers as they become free, or call a function of a task "
        "object for each index of a range. All words after -- belong to the command. Outputs are printed "
        "in input order unless --unordered or --line-buffer is given.\n\n"
        "With --joblog each completed job is logged, and --resume skips the logged jobs in the next call.",
    .examples =
        "  gradpool parfor 1:100 -- ./simulate --seed {}\n"
        "  gradpool parfor x=0.1,0.2 seed=1:5 -- ./simulate --x {x} --seed {seed} --out run-{#}\n"
        "  gradpool parfor 1:8 -- 'echo {} | md5sum'\n"
        "  gradpool parfor lr=0.01,0.05,0.1 -- train --network lenet --data fashion-mnist --lr {lr}\n"
        "  ls *.png | gradpool parfor --arg-file - --slots-per-worker cores -- convert {} {.}.jpg\n"
        "  gradpool parfor 0:0.25:1 --joblog jobs.log --resume --retries 2 --timeout 60 -- ./case {}\n"
        "  gradpool parfor 1:1000000 ./tasks.so:sample --reduce sum:f64\n",
    .notes =
        "Inputs: FIRST:LAST, FIRST:STEP:LAST or a,b,c, optionally with NAME= in front.  Several inputs "
        "form\n"
        "all combinations.  In the command, {} is the value, {NAME} or {2} the value of one input, {#} the "
        "job\n"
        "number, {%} the slot number; {.} {/} {//} are a path without extension, its base name, its folder.\n"
        "A command without any of these gets the value as its last argument.\n"
        "\n-- train ... trains one network per input, each on one worker, and prints one table.\n",
    .exit_codes = "number of failed jobs, 101: more than 100; with --halt that of the first failed job;\n"
                  "255: usage error or pool failure; 130: interrupted.\n",
    .options = parfor_params,
    .options_bytes = sizeof(parfor_options),
    .leases = true,
    .runs = true,
    .error_code = COMMAND_SET_ERROR,
    .words_max = -1,
    .check = parfor_check,
    .run = parfor_run,
};
