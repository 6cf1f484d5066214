/* spmd and parfor with a function from a shared object instead of a program.
 *
 *     gradpool spmd [-n N] tasks.so:function [ARGUMENT]
 *     gradpool parfor [-n N] FIRST:LAST tasks.so:function [ARGUMENT] */
#ifndef GP_CLI_TASK_WORDS_H
#define GP_CLI_TASK_WORDS_H

#include "client/cli/cli.h"

/* Options for this form only. */
typedef struct task_words {
    int as;              /* result format; index into task_words_as */
    int64_t seed, chunk; /* random seed, and iterations per message (0: automatic) */
    char reduce[64];     /* --reduce value; "": none */
    bool log;            /* show the lines that tasks print */
} task_words;

/* Options of parfor that functions share with programs. */
typedef struct task_loop {
    bool tag, unordered, progress, keep_going;
    int64_t retries;
    double timeout_s; /* limit per iteration; 0: none */
} task_loop;

/* Result formats, for --as; NULL-terminated. */
extern const char *const task_words_as[];

/* Function options for both commands. */
#define TASK_WORDS_PARAMS(options_type)                                                                      \
    { .name = "as",                                                                                          \
      GP_PARAM_FIELD(options_type, task.as),                                                                 \
      .words = task_words_as,                                                                                \
      .help = "functions: type of the results; auto = text, else hexadecimal" },                             \
        { .name = "seed",                                                                                    \
          GP_PARAM_FIELD(options_type, task.seed),                                                           \
          .min = 0,                                                                                          \
          .max = 0x1p53,                                                                                     \
          .help = "functions: seed of the random numbers" },                                                 \
    {                                                                                                        \
        .name = "log", GP_PARAM_FIELD(options_type, task.log),                                               \
        .help = "functions: copy their output to standard error, with worker and iteration"                  \
    }

/* Function options for parfor. */
#define TASK_WORDS_LOOP_PARAMS(options_type)                                                                 \
    { .name = "reduce",                                                                                      \
      GP_PARAM_FIELD(options_type, task.reduce),                                                             \
      .help =                                                                                                \
          "functions: reduction of the accumulators, such as sum:f64 or max:i64:3 (three); printed last" },  \
    {                                                                                                        \
        .name = "chunk", GP_PARAM_FIELD(options_type, task.chunk), .min = 0, .max = 1 << 20,                 \
        .help = "functions: iterations per chunk; 0 = chosen from their run time"                            \
    }

/* Return whether the command line names a function. */
bool task_words_given(const cli_call *call);

/* Check the words and options of a function call. Return CLI_OK, or the exit code after printing an
 * error. */
int task_words_check_spmd(cli_call *call);
int task_words_check_parfor(cli_call *call, const task_words *task);

/* Check that a command line for a program has no options for functions. Return CLI_OK, or the exit
 * code after printing an error. */
int task_words_check_none(cli_call *call);

/* Run a function and print the results. With keep_going, call->code is set to the number of failed
 * iterations, at most 101. */
gp_status task_words_spmd(cli_call *call, const task_words *task, bool tag, double timeout_s, gp_error *err);
gp_status task_words_parfor(cli_call *call, const task_words *task, const task_loop *words, gp_error *err);

#endif
