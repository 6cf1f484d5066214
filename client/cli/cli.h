/* The subcommand interface of gradpool: option tables, exit codes, and helpers shared by commands.
 *
 * Each command has one file cmd_<name>.c and one line in commands.def. Options are declared in
 * gp_param tables, so all commands parse options, check ranges, print help and suggest corrections
 * in the same way. */
#ifndef GP_CLI_H
#define GP_CLI_H

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <gradpool/gradpool.h>

#include "client/cli/s3_options.h"
#include "client/pool/pool.h"
#include "common/base/text/params.h"
#include "common/data/download/get.h"
#include "common/data/s3/s3_source.h"

/* Exit codes for most commands, and the limit on positional words. */
enum {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,         /* the command line is wrong; nothing was done */
    CLI_INTERRUPTED = 130, /* Ctrl-C or SIGTERM ended the command */
    CLI_WORDS_MAX = 1024,
};

/* Options common to all commands; the first member of each command's options struct. */
typedef struct cli_common {
    char pool[108];
    char server_key_file[512], key_file[512]; /* keys for a pool on another host */
    bool json, help, help_all, quiet;
} cli_common;

/* Worker selection; options for all commands that lease workers. */
typedef struct cli_lease {
    char workers[24]; /* worker count: "": not given, "N": exactly N, "N:M": N to M */
    char devices[256];
    int environment; /* index into the words of --execution-environment */
    char needs[GP_TEXT_RESOURCES];
    bool no_wait;
    int64_t priority;
} cli_lease;

typedef struct cli_call cli_call;

/* A verb of a command, such as `show` in `gradpool data show SOURCE`. */
typedef struct cli_verb {
    const char *name, *usage; /* the usage follows the name: "SOURCE", "" */
    const char *summary;
    int words_min, words_max; /* word count after the verb */
    gp_status (*run)(cli_call *call, gp_error *err);
} cli_verb;

/* Which pool run_command() opens for a command and closes after it. */
typedef enum cli_pool {
    CLI_POOL_NONE,    /* none */
    CLI_POOL_RUNNING, /* the running pool; an error if no pool is running */
    CLI_POOL_STARTED, /* the running pool, or a new one */
} cli_pool;

/* Static description of a subcommand; one entry per line of commands.def. */
typedef struct cli_command {
    const char *name, *summary;
    const char *usage; /* follows the name: "--network NET --data SOURCE [options]"; NULL: see verbs */
    /* Paragraphs of the manual page, separated by blank lines. */
    const char *description;
    /* Command lines that work as written, one per line, indented by two spaces. Text after two
     * spaces, or on a line with deeper indentation, comments on the command. */
    const char *examples;
    const char *notes;      /* paragraphs shown after the examples; NULL: none */
    const char *exit_codes; /* "0: no job failed; ..."; NULL: CLI_OK and the codes after it */
    const gp_param *options;
    size_t options_bytes;
    bool leases; /* accepts --workers, --devices, --execution-environment, --no-wait */
    bool trains; /* accepts the options of gp_train_options_table */
    /* Names of this command's options that can hold an s3:// source, NULL-terminated. The S3
     * options are merged into these sources, or else into the first s3:// word. NULL: none. */
    const char *const *sources;
    int words_max;  /* maximum number of positional words; -1: unlimited */
    bool runs;      /* the words after -- are another program's command line and are not parsed */
    int error_code; /* exit code for command line and pool errors; 0: CLI_USAGE or CLI_FAILED */
    /* stop parsing options at the first word: the words are another gradpool command */
    bool rest_is_words;
    cli_pool pool; /* opened as call->pool before run() */
    /* NULL-terminated; the first word selects one of them; run() is called if there is no word */
    const cli_verb *verbs;
    /* Check the words before any pool is opened; may be NULL. gradpool submit also runs this check
     * for the job that it queues. CLI_OK: run() may be called. */
    int (*check)(cli_call *call);
    /* Run the command. An error is printed by the caller. The exit code is call->code; for an error
     * with code CLI_OK it is that of cli_fail(). */
    gp_status (*run)(cli_call *call, gp_error *err);
} cli_command;

/* A parsed command line. */
struct cli_call {
    const cli_command *command;
    void *options; /* the command's options struct, which begins with cli_common */
    cli_lease lease;
    cli_s3 s3;
    /* buffer for the s3:// word with the S3 options merged in */
    char source[GP_S3_SOURCE_BYTES_MAX];
    const char *words[CLI_WORDS_MAX + 1]; /* NULL-terminated */
    int word_count;
    const char *const *rest; /* words after --; NULL: there is no -- */
    int rest_count;
    /* training options as "name=value", NULL-terminated; owned */
    const char *train[CLI_WORDS_MAX + 1];
    int train_count;
    int argc;
    char **argv;   /* command line as typed, for suggested corrections */
    gp_pool *pool; /* see cli_command.pool; NULL: none */
    int code;      /* exit code */
};

extern const cli_command *const cli_commands[]; /* NULL-terminated */

/* Options for every command: --pool, --quiet, --help, --help-all. */
#define CLI_COMMON_PARAMS(options_type)                                                                      \
    { .name = "pool",                                                                                        \
      GP_PARAM_FIELD(options_type, common.pool),                                                             \
      .help = "pool name or address (default: $GRADPOOL_POOL, else default)" },                              \
        { .name = "quiet",                                                                                   \
          GP_PARAM_FIELD(options_type, common.quiet),                                                        \
          .help = "print results and errors only" },                                                         \
        { .name = "help",                                                                                    \
          .alias = "h",                                                                                      \
          GP_PARAM_FIELD(options_type, common.help),                                                         \
          .help = "show usage and common options" },                                                         \
    {                                                                                                        \
        .name = "help-all", GP_PARAM_FIELD(options_type, common.help_all), .help = "show all options"        \
    }

/* Key options for commands that also work on a pool on another host. */
#define CLI_REMOTE_PARAMS(options_type)                                                                      \
    { .name = "server-key-file",                                                                             \
      GP_PARAM_FIELD(options_type, common.server_key_file),                                                  \
      .help = "for a pool at tcp://HOST:PORT: file with its public key" },                                   \
    {                                                                                                        \
        .name = "key-file", GP_PARAM_FIELD(options_type, common.key_file),                                   \
        .help = "for a pool at tcp://HOST:PORT: file with your key, mode 0600"                               \
    }

/* Image normalization option for commands that feed images to a model. `field` is a char array in
 * the options struct. */
#define CLI_NORMALIZATION_PARAM(options_type, field)                                                         \
    {                                                                                                        \
        .name = "image-normalization", GP_PARAM_FIELD(options_type, field),                                  \
        .help =                                                                                              \
            "image normalization: 0..1, 0..255, imagenet or MEAN,STD in units of pixel/255 (one number, or " \
            "one per channel with colons); required for models of other programs without this setting"       \
    }

/* The --json option for commands that can print JSON. */
#define CLI_JSON_PARAM(options_type)                                                                         \
    {                                                                                                        \
        .name = "json", GP_PARAM_FIELD(options_type, common.json), .help = "print JSON"                      \
    }

/* Print "gradpool COMMAND: MESSAGE" on standard error. Return the exit code for the error. */
int cli_fail(const cli_call *call, const gp_error *error);

/* Print a formatted usage error on standard error. Return the exit code for usage errors. */
int cli_usage(const cli_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Return the pool selected by --pool or by the environment; NULL: the default pool. */
const char *cli_pool_name(const cli_call *call);

/* Open the pool selected by --pool. Progress notes go to standard error unless --quiet is given.
 *   attach_only  true: fail if the pool is not running; false: start it */
gp_status cli_open(const cli_call *call, bool attach_only, gp_pool **pool, gp_error *err);

/* Report whether the pool selected by --pool is on another host. Reads the key files but opens no
 * connection. */
gp_status cli_elsewhere(const cli_call *call, bool *elsewhere, gp_error *err);

extern const gp_param cli_lease_options[]; /* cli_lease option table */

/* Check the lease options without opening a pool. GP_EINVAL: they are malformed or contradict each
 * other. */
gp_status cli_lease_check(const cli_lease *lease, gp_error *err);

/* Convert --workers, --devices and --execution-environment to a lease request. `pool` must be open:
 * the function asks the scheduler whether any worker has a GPU.
 *
 * GP_ENODEV: a GPU environment was requested and no usable worker has a GPU. */
gp_status cli_lease_request(const cli_call *call, gp_pool *pool, gp_lease_request *out, gp_error *err);

/* Return whether a "NAME=VALUE" word sets the option. */
static inline bool cli_option_is(const char *word, const char *name)
{
    const size_t bytes = strlen(name);

    return strncmp(word, name, bytes) == 0 && word[bytes] == '=';
}

/* Print a sentence on standard error; the callback for notes. */
void cli_note(void *context, const char *sentence);

/* Return whether the command line contains the option. */
bool cli_given(const cli_call *call, const char *name);

/* Parse and check argv[1] and the words after it as a gradpool command, without running it. CLI_OK:
 * valid; otherwise the exit code, after printing the error. */
int cli_check_words(int argc, char **argv);

/* Stop level, raised by signals: 0: run, 1: stop at the next boundary, 2: stop at once. */
extern volatile sig_atomic_t cli_stop;

/* Catch SIGINT and SIGTERM: each raises cli_stop instead of ending the process, but not twice
 * within 0.2 s. Long-running commands call this function once. After SIGTERM, cli_stop rises a
 * second time when the grace period ends (GRADPOOL_TERM_GRACE seconds, default 8). */
void cli_catch_interrupts(void);

/* Raise the SIGTERM grace period to at least `seconds`, unless GRADPOOL_TERM_GRACE is set. */
void cli_term_grace_raise(double seconds);

/* Progress line on standard error. Printed only on a terminal, only after the first two seconds,
 * and not with --quiet. */
typedef struct cli_progress {
    const char *unit; /* progress unit, e.g. "samples"; NULL: bytes */
    /* start time and last update time; shown_ms 0: none printed yet */
    int64_t begin_ms, shown_ms;
    int64_t first_ms;    /* time of the first update with done > 0; 0: none yet */
    uint64_t first_done; /* amount at first_ms; the rate excludes the startup time before */
    bool tell;           /* false: print nothing */
    char activity[64];   /* last gp_progress activity; "": none */
} cli_progress;

/* Start a progress line; print nothing yet. */
void cli_progress_begin(const cli_call *call, cli_progress *progress, const char *unit);

/* Update the line at most every 200 ms.
 *   name   item being processed; "": none
 *   count  total amount; 0: unknown */
void cli_progress_show(cli_progress *progress, const char *name, uint64_t done, uint64_t count);
void cli_progress_end(const cli_progress *progress); /* Erase the line. */
/* Return a gp_progress that reports to `progress`, which must have been started. The rate is
 * measured separately for each activity. */
gp_progress cli_progress_reports(cli_progress *progress);

/* Start a progress line for a download and catch interrupts, which cancel it. Return the options.
 *   url  mirror; "": none */
gp_get_options cli_progress_download(const cli_call *call, cli_progress *progress, const char *url);

/* Format a progress message such as "227328 of 3000000 samples, 7 %, 14800 samples/s, 3 m 20 s
 * left". Return `text`.
 *   unit   e.g. "samples"; NULL: amounts and rate are bytes
 *   count  total amount; 0: unknown
 *   rate   units per second; 0: unknown */
char *cli_progress_words(char *text, size_t bytes, const char *unit, uint64_t done, uint64_t count,
                         double rate);

/* Format a duration as "3 m 20 s", "1.4 s" or "12.0 ms". Return `text`. */
char *cli_duration(double seconds, char *text, size_t bytes);

/* Format a byte count as "1.2 MiB". Return `text`. */
char *cli_bytes(double count, char *text, size_t bytes);

#endif
