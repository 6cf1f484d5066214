/* cli.h -- what a subcommand is: a table of options, a line of help, a function.
 *
 * One file cmd_<name>.c and one line in commands.def each.  Options are gp_param tables, so parsing, ranges, help
 * and "did you mean" are the same everywhere. */
#ifndef GP_CLI_H
#define GP_CLI_H

#include <signal.h>
#include <stdio.h>

#include <gradpool/gradpool.h>

#include "client/cli/s3_options.h"
#include "client/pool/pool.h"
#include "common/base/text/params.h"
#include "common/base/memory/tensor.h"
#include "common/data/s3/s3_source.h"

enum {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,         /* the command line is wrong; nothing was done */
    CLI_INTERRUPTED = 130, /* by Ctrl-C */
    CLI_WORDS_MAX = 1024,
};

/* Of every command; the first member of each command's options struct. */
typedef struct cli_common {
    char pool[108];
    char server_key_file[512], key_file[512]; /* of a pool on another host */
    bool json, help, help_all, quiet;
} cli_common;

/* Which workers: of commands that lease. */
typedef struct cli_lease {
    char workers[24]; /* "", "N", "N:M" */
    char devices[256];
    int environment; /* cli_environment */
    bool no_wait;
    int64_t priority;
} cli_lease;

typedef enum cli_environment {
    CLI_ENV_PARALLEL_AUTO,
    CLI_ENV_AUTO,
    CLI_ENV_CPU,
    CLI_ENV_GPU,
    CLI_ENV_MULTI_GPU,
    CLI_ENV_PARALLEL_CPU,
    CLI_ENV_PARALLEL_GPU,
} cli_environment;

typedef struct cli_call cli_call;

typedef struct cli_command {
    const char *name, *summary;
    const char *usage;    /* behind the name: "--network NET --data SOURCE [options]" */
    const char *examples; /* lines, each a command that works */
    const gp_param *options;
    size_t options_bytes;
    bool leases; /* takes --workers, --devices, --execution-environment, --no-wait */
    bool trains; /* takes the options of gp_train_options_table */
    const char *const
        *sources;       /* takes the options of S3, which go into these options of its own, or into its words;
                                 * NULL-terminated.  NULL: it does not */
    int words_max;      /* positional words; -1 = any number */
    bool runs;          /* words behind -- are a command of others: left alone */
    int error_code;     /* of errors that are the command line's or the pool's; 0 = CLI_USAGE, CLI_FAILED */
    bool rest_is_words; /* from the first word on nothing is an option: it is another command */
    /* May be NULL.  What is wrong with the words is found here, before a pool is looked for: also of a job that is
     * only submitted.  CLI_OK: run may be called. */
    int (*check)(cli_call *call);
    int (*run)(cli_call *call);
} cli_command;

struct cli_call {
    const cli_command *command;
    void *options; /* the command's struct; begins with cli_common */
    cli_lease lease;
    cli_s3 s3;
    char source[GP_S3_SOURCE_BYTES_MAX]; /* a word with the options of S3 */
    const char *words[CLI_WORDS_MAX];
    int word_count;
    const char *const *rest; /* of commands that run others: what stands behind --; NULL = there is no -- */
    int rest_count;
    const char *train[CLI_WORDS_MAX + 1]; /* "name=value", NULL-terminated; owned */
    int train_count;
    int argc;
    char **argv; /* as typed, for corrected command lines */
};

extern const cli_command *const cli_commands[]; /* NULL-terminated */

#define CLI_COMMON_PARAMS(options_type)                                                                      \
    { .name = "pool",                                                                                        \
      GP_PARAM_FIELD(options_type, common.pool),                                                             \
      .help = "name of the pool (default: $GRADPOOL_POOL, else default)" },                                  \
        { .name = "quiet",                                                                                   \
          GP_PARAM_FIELD(options_type, common.quiet),                                                        \
          .help = "print results and errors only" },                                                         \
        { .name = "help",                                                                                    \
          GP_PARAM_FIELD(options_type, common.help),                                                         \
          .help = "show usage and the common options" },                                                     \
    {                                                                                                        \
        .name = "help-all", GP_PARAM_FIELD(options_type, common.help_all), .help = "show all options"        \
    }

/* Of commands that work on a pool of another host too. */
#define CLI_REMOTE_PARAMS(options_type)                                                                      \
    { .name = "server-key-file",                                                                             \
      GP_PARAM_FIELD(options_type, common.server_key_file),                                                  \
      .help = "with --pool tcp://HOST:PORT: the pool's public key" },                                        \
    {                                                                                                        \
        .name = "key-file", GP_PARAM_FIELD(options_type, common.key_file),                                   \
        .help = "with --pool tcp://HOST:PORT: your key, a file of mode 0600"                                 \
    }

/* The option of commands that read images with a model; field: its char[] in the options. */
#define CLI_NORMALIZATION_PARAM(options_type, field)                                                         \
    {                                                                                                        \
        .name = "image-normalization", GP_PARAM_FIELD(options_type, field),                                  \
        .help = "how pixels are scaled: 0..1, 0..255, imagenet or MEAN,STD in units of pixel/255 (one "      \
                "number, or one per channel with colons); needed for models of other programs that do not "  \
                "state it"                                                                                   \
    }

/* Of commands that have something to say in JSON. */
#define CLI_JSON_PARAM(options_type)                                                                         \
    {                                                                                                        \
        .name = "json", GP_PARAM_FIELD(options_type, common.json), .help = "print JSON"                      \
    }

/* "gradpool train: sentence" on standard error; returns the exit code that fits. */
int cli_fail(const cli_call *call, const gp_error *error);
int cli_usage(const cli_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Open the pool of --pool; notes go to standard error unless --quiet. */
gp_status cli_open(const cli_call *call, bool attach_only, gp_pool **pool, gp_error *err);

/* Whether the pool of --pool is on another host; its keys are read, nobody is asked. */
gp_status cli_elsewhere(const cli_call *call, bool *elsewhere, gp_error *err);

extern const gp_param cli_lease_options[]; /* of a cli_lease */

/* What the words alone tell: GP_EINVAL before any pool is looked for. */
gp_status cli_lease_check(const cli_lease *lease, gp_error *err);

/* --workers, --devices, --execution-environment as a lease request.  `pool` has been opened (multi-gpu looks
 * whether it has a GPU). */
gp_status cli_lease_request(const cli_call *call, gp_pool *pool, gp_lease_request *out, gp_error *err);

/* Whether the option stood on the command line. */
bool cli_given(const cli_call *call, const char *name);

/* --verbose-frequency as given, or its default. */
uint32_t cli_verbose_frequency(const cli_call *call);

/* argv[1] and what follows as a command that is not run: CLI_OK, or the exit code after an error was shown. */
int cli_check_words(int argc, char **argv);

/* Stop level: 0 run, 1 stop at the next boundary, 2 stop at once. */
extern volatile sig_atomic_t cli_stop;
/* Let SIGINT and SIGTERM raise cli_stop instead of ending the process. Commands that run long call
 * it once. After SIGTERM cli_stop rises a second time when the grace period ends:
 * GRADPOOL_TERM_GRACE seconds, or 8. */
void cli_catch_interrupts(void);
/* Raise the grace period to at least `seconds`, unless GRADPOOL_TERM_GRACE is set. */
void cli_term_grace_raise(double seconds);

/* A line of progress on a terminal's standard error; nothing in the first two seconds, nor with --quiet. */
typedef struct cli_progress {
    const char *unit;           /* "samples"; NULL: bytes */
    int64_t begin_ms, shown_ms; /* shown_ms 0: not yet */
    int64_t first_ms;           /* when the first call with done > 0 came; 0: not yet */
    uint64_t first_done;        /* rates count from there, so that the start does not spoil them */
    bool tell;
    char activity[64]; /* of the last report of a gp_progress; "": none */
} cli_progress;

void cli_progress_begin(const cli_call *call, cli_progress *progress, const char *unit);
/* count: 0 = not known; name: of what is processed, or "" */
void cli_progress_show(cli_progress *progress, const char *name, uint64_t done, uint64_t count);
void cli_progress_end(const cli_progress *progress); /* removes the line */
/* Return a gp_progress whose reports go to `progress`, which has begun. Each activity has its own rate. */
gp_progress cli_progress_reports(cli_progress *progress);

/* "227328 of 3000000 samples, 7 %, 14800 samples/s, 3 m 20 s left" into text, which is returned.
 *   unit     "samples"; NULL: done, count and rate are bytes
 *   count    0: not known
 *   rate     units per second; 0: not known */
char *cli_progress_words(char *text, size_t bytes, const char *unit, uint64_t done, uint64_t count,
                         double rate);

/* "3 m 20 s", "1.4 s", "12 ms" into text, which is returned. */
char *cli_duration(double seconds, char *text, size_t bytes);
/* "1.2 MiB" */
char *cli_bytes(double count, char *text, size_t bytes);

#endif
