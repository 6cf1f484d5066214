/* Command lines: find the subcommand, parse the options, open the pool and run the subcommand. */
#include "client/cli/commands/call.h"

#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/help.h"
#include "client/cli/jobs/job_self.h"
#include "client/cli/option_text.h"
#include "client/cli/show.h"
#include "client/pool/remote.h"
#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/process.h"
#include "common/base/text/spell.h"
#include "common/model/train_options.h"

#define CLI_COMMAND(name) extern const cli_command cli_command_##name;
#include "client/cli/commands/commands.def"
#undef CLI_COMMAND

const cli_command *const cli_commands[] = {
#define CLI_COMMAND(name) &cli_command_##name,
#include "client/cli/commands/commands.def"
#undef CLI_COMMAND
    NULL
};

enum {
    TERM_GRACE_S = 8, /* less than the 10 s after which a canceled job is killed */
    REPEAT_MS = 200,  /* signals within this time are one request */
};

volatile sig_atomic_t cli_stop;
static volatile sig_atomic_t term_grace_s = TERM_GRACE_S;
static bool term_grace_given;

static void interrupt_handler(int number);

static void interrupts_catch(int flags)
{
    struct sigaction action = { .sa_handler = interrupt_handler, .sa_flags = flags };

    sigaction(SIGINT, &action, NULL);
    if (!gp_job_signals_ignore()) /* in a cluster job, the attempt sends SIGINT */
        sigaction(SIGTERM, &action, NULL);
    sigaction(SIGALRM, &action, NULL);
}

/* Count SIGINT and SIGTERM: the first requests a soft stop, the second a hard stop. One request can
 * arrive twice: timeout(1) signals its child and then their process group, and a terminal signals
 * the group, in which a wrapper passes the signal on. So a signal within REPEAT_MS counts as the
 * one before. A user at a terminal sends a second signal if necessary. timeout(1) and service
 * managers do not, so SIGTERM also starts an alarm, and SIGALRM counts as the second signal. */
static void interrupt_handler(int number)
{
    static int64_t counted_ms;
    const int64_t now_ms = gp_now_ms();

    if (cli_stop == 0 || (cli_stop < 2 && (number == SIGALRM || now_ms >= counted_ms + REPEAT_MS))) {
        cli_stop = cli_stop + 1;
        counted_ms = now_ms;
    }
    if (number == SIGTERM)
        alarm((unsigned)term_grace_s);
    interrupts_catch(0);
}

void cli_catch_interrupts(void)
{
    const char *text = getenv("GRADPOOL_TERM_GRACE");
    char *end;
    long seconds = text == NULL ? 0 : strtol(text, &end, 10);

    if (seconds > 0 && seconds <= INT_MAX && *end == '\0') {
        term_grace_s = (sig_atomic_t)seconds;
        term_grace_given = true;
    }
    /* SA_RESTART: the first signal does not cut a line that stdio is writing; poll() returns in any
     * case. The handler drops the flag, so that the second signal also interrupts a write to a
     * reader that has stopped reading. */
    interrupts_catch(SA_RESTART);
}

void cli_term_grace_raise(double seconds)
{
    if (!term_grace_given && seconds > term_grace_s)
        term_grace_s = seconds < INT_MAX ? (sig_atomic_t)seconds : INT_MAX;
}

/* ---- errors ---- */

int cli_fail(const cli_call *call, const gp_error *error)
{
    fprintf(stderr, "gradpool %s: ", call->command->name);
    show_line(stderr, error->message);
    job_self_error(error);
    if (error->code == GP_ECANCELED && cli_stop != 0) /* the pool also ends leases with this code */
        return CLI_INTERRUPTED;
    return call->command->error_code != 0 ? call->command->error_code : CLI_FAILED;
}

int cli_usage(const cli_call *call, const char *format, ...)
{
    va_list arguments;

    fprintf(stderr, "gradpool %s: ", call->command->name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nTry 'gradpool %s --help'.\n", call->command->name);
    return call->command->error_code != 0 ? call->command->error_code : CLI_USAGE;
}

/* ---- options ---- */

/* Return the struct that an option table of the call describes; NULL: training options. */
static void *call_values(cli_call *call, const gp_param *table)
{
    if (table == cli_lease_options)
        return &call->lease;
    if (table == cli_s3_options)
        return &call->s3;
    return table == gp_train_options_table ? NULL : call->options;
}

/* Find an option in the tables of the command.
 *   values  set to the option's struct; NULL: training option */
static const gp_param *call_find(cli_call *call, const char *name, void **values)
{
    cli_option_group groups[CLI_OPTION_GROUPS];
    const gp_param *param = NULL;

    cli_option_groups(call->command, groups);
    for (int i = 0; groups[i].params != NULL && param == NULL; i++) {
        param = gp_params_find(groups[i].params, name);
        *values = call_values(call, groups[i].params);
    }
    return param;
}

/* Report an unknown option; suggest the option for a known synonym or a similar name. */
static int call_unknown(cli_call *call, const char *name)
{
    cli_option_group groups[CLI_OPTION_GROUPS];
    const char *near = NULL;
    unsigned distance = 0;

    cli_option_groups(call->command, groups);
    for (int i = 0; groups[i].params != NULL; i++)
        for (const gp_param *param = groups[i].params; param->type != GP_PARAM_NONE; param++) {
            gp_spell_offer(name, param->name, &near, &distance);
            if (param->alias != NULL)
                gp_spell_offer(name, param->alias, &near, &distance);
        }
    for (int i = 0; groups[i].params != NULL; i++) {
        const gp_param *synonym = gp_params_find_synonym(groups[i].params, name);

        near = synonym != NULL ? synonym->name : near;
    }
    if (near != NULL)
        return cli_usage(call, "unknown option --%s; did you mean --%s?", name, near);
    return cli_usage(call, "unknown option --%s", name);
}

/* Check a training option against a scratch struct, and keep it as "name=value" for gp_train(). */
static gp_status call_set_training(cli_call *call, const gp_param *param, const char *value, gp_error *err)
{
    gp_train_options scratch;
    size_t bytes = strlen(param->name) + strlen(value) + 2;
    char *text;

    if (call->train_count == CLI_WORDS_MAX)
        return gp_fail(err, GP_ELIMIT, "more than %d training options", CLI_WORDS_MAX);
    gp_params_default(gp_train_options_table, &scratch);
    gp_status status = gp_params_set(param, &scratch, value, err);

    if (status != GP_OK)
        return status;
    text = gp_malloc(bytes);
    if (text == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for an option");
    snprintf(text, bytes, "%s=%s", param->name, value);
    call->train[call->train_count++] = text;
    return GP_OK;
}

/* Parse one --NAME[=VALUE] or -n[VALUE]; *at advances past a separate value. */
static int call_take_option(cli_call *call, int *at)
{
    char name[80];
    const bool letter = call->argv[*at][1] != '-';
    const char *word = call->argv[*at] + (letter ? 1 : 2), *value;
    size_t length = letter ? 1 : strcspn(word, "=");
    gp_error err;
    void *values;

    if (length >= sizeof(name))
        return cli_usage(call, "unknown option %s", call->argv[*at]);
    snprintf(name, sizeof(name), "%.*s", (int)length, word);
    const gp_param *param = call_find(call, name, &values);

    if (param == NULL)
        return call_unknown(call, name);
    if (word[length] != '\0')
        value = word + length + (word[length] == '=');
    else if (param->type == GP_PARAM_BOOL)
        value = "true";
    else if (*at + 1 < call->argc)
        value = call->argv[++*at];
    else
        return cli_usage(call, "--%s needs a value (%s)", param->name, param->help);
    gp_status status = values == NULL ? call_set_training(call, param, value, &err)
                                      : gp_params_set(param, values, value, &err);

    return status == GP_OK ? CLI_OK : cli_usage(call, "%s", err.message);
}

/* Return whether the word is an option: --NAME, or -L with a one-letter alias. */
static bool is_option(cli_call *call, const char *word)
{
    char letter[2] = { word[0] == '-' ? word[1] : '\0', '\0' };
    void *values;

    return letter[0] == '-' || (letter[0] != '\0' && call_find(call, letter, &values) != NULL);
}

/* Parse the command line into options and positional words. Return CLI_OK, or the exit code after
 * printing an error. */
static int call_parse(cli_call *call)
{
    bool words_only = false;

    gp_params_default(call->command->options, call->options);
    gp_params_default(cli_lease_options, &call->lease);
    gp_params_default(cli_s3_options, &call->s3);
    for (int at = 2; at < call->argc; at++) {
        const char *word = call->argv[at];
        int code = CLI_OK;

        if (!words_only && strcmp(word, "--") == 0 && call->command->runs) {
            call->rest = (const char *const *)call->argv + at + 1;
            call->rest_count = call->argc - at - 1;
            return CLI_OK;
        }
        if (!words_only && strcmp(word, "--") == 0)
            words_only = true;
        else if (!words_only && is_option(call, word))
            code = call_take_option(call, &at);
        else if (call->command->words_max >= 0 && call->word_count >= call->command->words_max)
            code = cli_usage(call, "unexpected word '%s'; usage: gradpool %s %s", word, call->command->name,
                             call->command->verbs != NULL ? "VERB [options]" : call->command->usage);
        else if (call->word_count == CLI_WORDS_MAX)
            code = cli_usage(call, "more than %d words", CLI_WORDS_MAX);
        else {
            call->words[call->word_count++] = word;
            words_only |= call->command->rest_is_words;
        }
        if (code != CLI_OK)
            return code;
    }
    return CLI_OK;
}

bool cli_given(const cli_call *call, const char *name)
{
    const gp_param *param = gp_params_find(gp_train_options_table, name);

    for (int i = 2; i < call->argc - call->rest_count; i++) {
        const char *word = call->argv[i];
        char given[80];

        if (strncmp(word, "--", 2) != 0 || strlen(word) >= sizeof(given))
            continue;
        snprintf(given, sizeof(given), "%.*s", (int)strcspn(word + 2, "="), word + 2);
        if (strcmp(given, name) == 0 ||
            (param != NULL && gp_params_find(gp_train_options_table, given) == param))
            return true;
    }
    return false;
}

/* gp_get_fetch() progress callback. Nonzero: cancel the download. */
static int download_progress(void *context, const char *file, uint64_t bytes, uint64_t total)
{
    const gp_progress reports = cli_progress_reports(context);

    gp_progress_report(&reports, file, NULL, bytes, total);
    return cli_stop != 0;
}

gp_get_options cli_progress_download(const cli_call *call, cli_progress *progress, const char *url)
{
    cli_catch_interrupts();
    cli_progress_begin(call, progress, NULL);
    return (gp_get_options){ .url = url[0] != '\0' ? url : NULL,
                             .progress = progress->tell ? download_progress : NULL,
                             .context = progress };
}

/* ---- helpers for commands ---- */

void cli_note(void *context, const char *sentence)
{
    (void)context;
    show_line(stderr, sentence);
}

const char *cli_pool_name(const cli_call *call)
{
    const cli_common *common = call->options;

    return common->pool[0] != '\0' ? common->pool : getenv("GRADPOOL_POOL");
}

gp_status cli_elsewhere(const cli_call *call, bool *elsewhere, gp_error *err)
{
    const cli_common *common = call->options;
    gp_pool_options options = { .server_key_file = common->server_key_file, .key_file = common->key_file };
    struct pool_remote *remote = NULL;
    gp_status status = pool_remote_find(&remote, &options, cli_pool_name(call), err);

    *elsewhere = remote != NULL;
    pool_remote_free(remote);
    return status;
}

gp_status cli_open(const cli_call *call, bool attach_only, gp_pool **pool, gp_error *err)
{
    const cli_common *common = call->options;
    gp_pool_options options = { .pool = common->pool[0] != '\0' ? common->pool : NULL,
                                .attach_only = attach_only,
                                .note = common->quiet ? NULL : cli_note,
                                .server_key_file = common->server_key_file,
                                .key_file = common->key_file };
    char words[64];
    gp_status status = gp_pool_open(pool, &options, err);

    /* Commands that lease workers need a local pool: check before reading data and networks. */
    if (status == GP_OK && call->command->leases) {
        snprintf(words, sizeof(words), "gradpool %s", call->command->name);
        status = pool_needs_host(*pool, words, err);
        if (status != GP_OK) {
            gp_pool_close(*pool);
            *pool = NULL;
        }
    }
    return status;
}

/* ---- main ---- */

/* Report a missing or unknown verb and list the verbs. */
static int verb_unknown(const cli_call *call, const char *word)
{
    const char *near = NULL;
    unsigned distance = 0;
    char list[200];
    size_t at = 0;

    for (const cli_verb *verb = call->command->verbs; verb->name != NULL; verb++) {
        const char *before = verb == call->command->verbs ? "" : verb[1].name == NULL ? " or " : ", ";

        at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", before, verb->name);
        gp_spell_offer(word, verb->name, &near, &distance);
    }
    if (near != NULL && word[0] != '\0')
        return cli_usage(call, "unknown verb '%s'; did you mean '%s'?", word, near);
    return cli_usage(call, "%s; use %s", word[0] == '\0' ? "the verb is missing" : "unknown verb", list);
}

/* Find the verb that the first word names and run it. A command without words uses its run(). */
static gp_status verb_run(cli_call *call, gp_error *err)
{
    const char *word = call->word_count > 0 ? call->words[0] : "";
    const cli_verb *verb = call->command->verbs;

    if (call->word_count == 0 && call->command->run != NULL)
        return call->command->run(call, err);
    while (verb->name != NULL && strcmp(word, verb->name) != 0)
        verb++;
    if (verb->name != NULL && call->word_count > verb->words_min && call->word_count <= verb->words_max + 1)
        return verb->run(call, err);
    if (verb->name != NULL)
        call->code = cli_usage(call, "usage: gradpool %s %s%s%s", call->command->name, verb->name,
                               verb->usage[0] == '\0' ? "" : " ", verb->usage);
    else
        call->code = verb_unknown(call, word);
    return GP_OK;
}

/* Open the pool if the command needs one, and run the command. Return the exit code. */
static int call_run(cli_call *call)
{
    const cli_command *command = call->command;
    gp_error err;
    gp_status status = GP_OK;

    if (command->pool != CLI_POOL_NONE)
        status = cli_open(call, command->pool == CLI_POOL_RUNNING, &call->pool, &err);
    if (status == GP_OK)
        status = command->verbs != NULL ? verb_run(call, &err) : command->run(call, &err);
    gp_pool_close(call->pool);
    if (status != GP_OK) {
        int code = cli_fail(call, &err);

        call->code = call->code == CLI_OK || code == CLI_INTERRUPTED ? code : call->code;
    }
    return call->code;
}

/* Return whether the reader of standard output has closed the pipe, as `head` does. */
static bool output_has_no_reader(void)
{
    struct pollfd output = { .fd = STDOUT_FILENO, .events = POLLOUT };

    return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

int command_run(const cli_command *command, int argc, char **argv, bool dry)
{
    cli_call call = { .command = command, .argc = argc, .argv = argv };
    const cli_common *common;
    gp_error err;
    int code;

    call.options = gp_calloc(1, command->options_bytes);
    if (call.options == NULL)
        return CLI_FAILED;
    code = call_parse(&call);
    if (code == CLI_OK && command->sources != NULL && cli_s3_apply(&call, &err) != GP_OK)
        code = cli_usage(&call, "%s", err.message);
    if (code == CLI_OK && cli_lease_check(&call.lease, &err) != GP_OK)
        code = cli_usage(&call, "%s", err.message); /* before a pool is started */
    common = call.options;
    if (code == CLI_OK && (common->help || common->help_all))
        help_command(command, common->help_all);
    else if (code == CLI_OK && command->check != NULL && (code = command->check(&call)) != CLI_OK)
        ;
    else if (code == CLI_OK && !dry)
        code = call_run(&call);
    for (int i = 0; i < call.train_count; i++)
        gp_free((char *)(uintptr_t)call.train[i]);
    gp_free(call.options);
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == CLI_OK) {
        if (!output_has_no_reader())
            fprintf(stderr, "gradpool: cannot write to standard output\n");
        code = CLI_FAILED;
    }
    return code;
}

const cli_command *command_find(const char *name)
{
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        if (strcmp(name, cli_commands[i]->name) == 0)
            return cli_commands[i];
    return NULL;
}

int command_unknown(const char *name)
{
    const char *near = NULL;
    unsigned distance = 0;

    for (size_t i = 0; cli_commands[i] != NULL; i++)
        gp_spell_offer(name, cli_commands[i]->name, &near, &distance);
    if (near != NULL)
        fprintf(stderr, "gradpool: unknown command '%s'; did you mean '%s'?\n", name, near);
    else
        fprintf(stderr, "gradpool: unknown command '%s'; 'gradpool --help' lists them\n", name);
    return CLI_USAGE;
}

int cli_check_words(int argc, char **argv)
{
    const cli_command *command = command_find(argv[1]);

    return command != NULL ? command_run(command, argc, argv, true) : command_unknown(argv[1]);
}
