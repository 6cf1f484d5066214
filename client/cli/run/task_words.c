/* Task functions on the command line: spmd and parfor with FILE.so:FUNCTION instead of a
 * program. */
#include "client/cli/run/task_words.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/show.h"
#include "common/base/memory/alloc.h"
#include "common/base/memory/buffer.h"
#include "common/base/text/json.h"
#include "common/base/text/log.h"
#include "common/base/text/text.h"

const char *const task_words_as[] = { "auto", "text", "f64", "f32", "i64", "i32", "hex", NULL };

enum { AS_AUTO, AS_TEXT, AS_F64, AS_F32, AS_I64, AS_I32, AS_HEX };

/* ---- words ---- */

/* Return the first word in the form FILE.so:FUNCTION, and the index; NULL: none. */
static const char *function_word(const cli_call *call, int *at)
{
    for (int i = 0; call->rest == NULL && i < call->word_count; i++)
        if (strstr(call->words[i], ".so:") != NULL) {
            *at = i;
            return call->words[i];
        }
    return NULL;
}

bool task_words_given(const cli_call *call)
{
    int at;

    return function_word(call, &at) != NULL;
}

/* Refuse options that apply to programs only.
 *   meant  options that apply to functions, NULL-terminated */
static int check_options(cli_call *call, const char *const *meant)
{
    for (const gp_param *p = call->command->options; p->name != NULL; p++) {
        bool means = false;

        for (const char *const *word = meant; *word != NULL; word++)
            means |= strcmp(*word, p->name) == 0;
        if (!means && cli_given(call, p->name))
            return cli_usage(call, "--%s has no effect with a function; it applies to programs after --",
                             p->name);
    }
    return CLI_OK;
}

int task_words_check_none(cli_call *call)
{
    static const char *const names[] = { "as", "seed", "reduce", "chunk", "log", NULL };

    for (const char *const *name = names; *name != NULL; name++)
        if (gp_params_find(call->command->options, *name) != NULL && cli_given(call, *name))
            return cli_usage(call, "--%s has no effect with a program; it applies to tasks.so:function",
                             *name);
    return CLI_OK;
}

int task_words_check_spmd(cli_call *call)
{
    static const char *const meant[] = {
        "as", "seed", "log", "tag", "timeout", "json", "pool", "quiet", NULL
    };
    int at = 0;

    function_word(call, &at);
    if (at != 0 || call->word_count > 2)
        return cli_usage(call,
                         "unexpected word '%s'; usage: gradpool spmd [-n N] tasks.so:function [ARGUMENT]",
                         call->words[at != 0 ? 0 : 2]);
    return check_options(call, meant);
}

/* ---- ranges and reductions ---- */

/* Parse an integer and advance *text behind it. false: no integer, or out of range. */
static bool read_integer(const char **text, int64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoll(*text, &end, 10);
    if (end == *text || errno != 0)
        return false;
    *text = end;
    return true;
}

/* Parse an iteration range such as "1:100" or "10:-2:0". */
static gp_status range_parse(const char *text, gp_parfor_request *out, gp_error *err)
{
    const char *at = text;
    int64_t numbers[3];
    int count = 0;

    while (count < 3 && read_integer(&at, &numbers[count])) {
        count++;
        if (*at != ':')
            break;
        at++;
    }
    if (count < 2 || *at != '\0' || (count == 3 && numbers[1] == 0))
        return gp_fail(
            err, GP_EINVAL,
            "the iterations are '%.60s'; they must be FIRST:LAST or FIRST:STEP:LAST in whole numbers", text);
    out->first = numbers[0];
    out->step = count == 3 ? numbers[1] : 1;
    out->last = numbers[count - 1];
    return GP_OK;
}

/* An allowed value of --reduce. */
typedef struct reduction_word {
    const char *word;
    gp_reduction reduction;
    int as;       /* result print format */
    size_t bytes; /* bytes per element */
} reduction_word;

static const reduction_word reduction_names[] = {
    { "sum:f64", GP_REDUCTION_SUM_F64, AS_F64, 8 }, { "sum:f32", GP_REDUCTION_SUM_F32, AS_F32, 4 },
    { "sum:i64", GP_REDUCTION_SUM_I64, AS_I64, 8 }, { "product:f64", GP_REDUCTION_PRODUCT_F64, AS_F64, 8 },
    { "min:f64", GP_REDUCTION_MIN_F64, AS_F64, 8 }, { "max:f64", GP_REDUCTION_MAX_F64, AS_F64, 8 },
    { "min:i64", GP_REDUCTION_MIN_I64, AS_I64, 8 }, { "max:i64", GP_REDUCTION_MAX_I64, AS_I64, 8 },
};

enum { REDUCTION_WORDS = sizeof(reduction_names) / sizeof(reduction_names[0]), REDUCED_MAX = 65536 };

/* Parse --reduce: "sum:f64", or "sum:f64:12" for 12 values. *out is set to NULL for "". */
static gp_status reduction_parse(const char *text, const reduction_word **out, size_t *count, gp_error *err)
{
    *out = NULL;
    *count = 1;
    for (int i = 0; i < REDUCTION_WORDS; i++) {
        size_t length = strlen(reduction_names[i].word);
        const char *rest = text + length;
        int64_t number = 1;

        if (strncmp(text, reduction_names[i].word, length) != 0)
            continue;
        if (*rest == ':' && rest++ && (!read_integer(&rest, &number) || number < 1 || number > REDUCED_MAX))
            break;
        if (*rest != '\0')
            break;
        *out = &reduction_names[i];
        *count = (size_t)number;
    }
    if (*out == NULL && text[0] != '\0')
        return gp_fail(err, GP_EINVAL,
                       "--reduce is '%s'; it must be sum:f64, sum:f32, sum:i64, product:f64, min:f64, "
                       "max:f64, min:i64 or max:i64, followed by :COUNT for several",
                       text);
    return GP_OK;
}

int task_words_check_parfor(cli_call *call, const task_words *task)
{
    static const char *const meant[] = { "as",    "seed",       "reduce",   "chunk",   "log",
                                         "tag",   "unordered",  "progress", "json",    "pool",
                                         "quiet", "keep-going", "retries",  "timeout", NULL };
    const reduction_word *reduction;
    gp_parfor_request request;
    size_t count;
    gp_error err;
    int at = 0;

    function_word(call, &at);
    if (at != 1 || call->word_count > 3)
        return cli_usage(call, "a function needs one range before it and at most one argument after it: "
                               "gradpool parfor [-n N] FIRST:LAST tasks.so:function [ARGUMENT]");
    if (range_parse(call->words[0], &request, &err) != GP_OK ||
        reduction_parse(task->reduce, &reduction, &count, &err) != GP_OK)
        return cli_usage(call, "%s", err.message);
    return check_options(call, meant);
}

/* ---- printing ---- */

static gp_status put_element(gp_buffer *text, int as, const unsigned char *at, gp_error *err)
{
    char number[GP_NUMBER_BYTES];
    double f64;
    float f32;
    int64_t i64;
    int32_t i32;

    switch (as) {
    case AS_F64:
        memcpy(&f64, at, sizeof(f64));
        return gp_buffer_printf(text, err, "%s", gp_number_text(f64, number));
    case AS_F32:
        memcpy(&f32, at, sizeof(f32));
        return gp_buffer_printf(text, err, "%s", gp_float_text(f32, number));
    case AS_I64:
        memcpy(&i64, at, sizeof(i64));
        return gp_buffer_printf(text, err, "%" PRId64, i64);
    case AS_I32:
        memcpy(&i32, at, sizeof(i32));
        return gp_buffer_printf(text, err, "%" PRId32, i32);
    default:
        return gp_buffer_printf(text, err, "%02x", *at);
    }
}

/* Format the bytes as text, numbers or hexadecimal digits. GP_EINVAL: the size is not divisible by
 * the element size. */
static gp_status put_value(gp_buffer *text, int as, const void *data, size_t bytes, gp_error *err)
{
    const unsigned char *at = data;
    gp_status status = GP_OK;
    size_t element;

    for (size_t i = 0; i < bytes && as == AS_AUTO; i++) /* printable text, perhaps with a final NUL */
        if (at[i] < ' ' && at[i] != '\n' && at[i] != '\t' && !(at[i] == '\0' && i + 1 == bytes))
            as = AS_HEX;
    as = as == AS_AUTO ? AS_TEXT : as;
    /* 0: text or hexadecimal */
    element = as == AS_F64 || as == AS_I64 ? 8 : as == AS_F32 || as == AS_I32 ? 4 : 0;
    if (as == AS_TEXT)
        return gp_buffer_append(text, data, bytes > 0 && at[bytes - 1] == '\0' ? bytes - 1 : bytes, err);
    if (element != 0 && bytes % element != 0)
        return gp_fail(err, GP_EINVAL, "a result of %zu bytes cannot be shown --as %s", bytes,
                       task_words_as[as]);
    for (size_t i = 0; status == GP_OK && i < bytes; i += element == 0 ? 1 : element) {
        if (i > 0 && element != 0)
            status = gp_buffer_append(text, " ", 1, err);
        if (status == GP_OK)
            status = put_element(text, as, at + i, err);
    }
    return status;
}

/* Output settings and state. */
typedef struct printer {
    const char *key; /* JSON key for the number: "index" or "iteration" */
    int as;
    bool tag, json;
    cli_progress progress;
    uint64_t failed; /* iterations with an error */
    gp_error error;  /* first error of a callback; code GP_OK: none */
} printer;

/* Print a result as text or JSON.
 *   key     JSON key for `number`; NULL: the reduced value, which has no number
 *   number  result index or iteration */
static gp_status print_value(const printer *p, const char *key, int64_t number, int as, const void *data,
                             size_t bytes, gp_error *err)
{
    gp_buffer value;
    char tag[32];
    gp_status status;
    json_document json;

    gp_buffer_init(&value, SIZE_MAX / 2);
    status = put_value(&value, as, data, bytes, err);
    snprintf(tag, sizeof(tag), "%" PRId64 ": ", number);
    if (status == GP_OK && p->json) {
        gp_json_writer *writer = show_json_object(&json, false);

        if (key != NULL)
            gp_json_put_integer(writer, key, number);
        gp_json_put_integer(writer, "bytes", (int64_t)bytes);
        gp_json_put_text(writer, key != NULL ? "result" : "reduced", gp_buffer_text(&value));
        status = show_json_print(&json, err);
    }
    /* text line by line, with the tag before each line if requested */
    for (const char *text = gp_buffer_text(&value), *end = text + value.bytes;
         status == GP_OK && !p->json && text < end;) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)((stop == NULL ? end : stop) - text);

        printf("%s%.*s\n", p->tag && key != NULL ? tag : "", (int)(length < INT32_MAX ? length : INT32_MAX),
               text);
        text += length + 1;
    }
    gp_buffer_deinit(&value);
    return status;
}

/* ---- the team ---- */

/* Print a line of gp_task_log(). */
static void log_line(void *context, uint32_t worker, const char *line)
{
    cli_progress_end(context);
    fprintf(stderr, "worker %" PRIu32 ": %s\n", worker, line);
}

/* Print a line that a task printed, in one write. */
static void output_line(void *context, const gp_output_line *line)
{
    char text[GP_OUTPUT_LINE_BYTES_MAX + 80];
    int tag = line->in_loop ? snprintf(text, sizeof(text), "worker %" PRIu32 ", iteration %" PRId64 ": ",
                                       line->worker, line->iteration)
                            : snprintf(text, sizeof(text), "worker %" PRIu32 ": ", line->worker);

    memcpy(text + tag, line->text, line->bytes);
    text[(size_t)tag + line->bytes] = '\n';
    cli_progress_end(context);
    fwrite(text, 1, (size_t)tag + line->bytes + 1, stderr);
}

/* Close the team and report lines that were lost. */
static void command_set_close(gp_team *team)
{
    gp_team_info info = { 0 };

    if (team != NULL)
        gp_team_get_info(team, &info);
    if (info.output_dropped > 0)
        gp_log(GP_LOG_WARN, "output-dropped",
               "%" PRIu64 " lines of output were dropped; the logs of the workers have them",
               info.output_dropped);
    gp_team_close(team);
}

/* Open the pool, lease workers, and look up the function named on the command line. After success,
 * an error ends the command with CLI_FAILED, because it is one of the function.
 *   output    print the lines that tasks print
 *   progress  erased before each line of a task; not started yet, filled with zeros */
static gp_status command_set_open(cli_call *call, gp_team **team, const gp_function **function, bool output,
                                  cli_progress *progress, gp_error *err)
{
    gp_team_options options = { .stop = &cli_stop,
                                .log = log_line,
                                .output = output ? output_line : NULL,
                                .context = progress,
                                .priority = (int32_t)call->lease.priority };
    const bool loops = strcmp(call->command->name, "parfor") == 0; /* the size of a block is fixed */
    char purpose[160];
    int at = 0;
    const char *name = function_word(call, &at);

    cli_catch_interrupts();
    *team = NULL;
    gp_status status = cli_open(call, false, &call->pool, err);

    snprintf(purpose, sizeof(purpose), "%s %.120s", call->command->name, name);
    options.purpose = purpose;
    if (status == GP_OK)
        status = cli_lease_request(call, call->pool, &options.lease, err);
    options.elastic = loops && options.lease.workers_min < options.lease.workers_max;
    if (status == GP_OK)
        status = gp_team_open(team, call->pool, &options, err);
    if (status == GP_OK)
        status = gp_function_find(function, *team, name, err);
    if (status == GP_OK)
        call->code = CLI_FAILED;
    return status;
}

/* Convert a time limit, rounded up: 0 would mean no limit. */
static int64_t limit_ms(double seconds)
{
    return (int64_t)ceil(seconds * 1e3);
}

/* ---- spmd ---- */

/* Print all results to standard output and all errors to standard error, in index order. Return the
 * first error. */
static gp_status block_print(const cli_call *call, gp_spmd_result *block, const printer *p, gp_error *err)
{
    gp_status first = GP_OK;

    for (uint32_t index = 1; index <= gp_spmd_result_size(block); index++) {
        const void *data;
        size_t bytes;
        gp_error own;
        gp_status status = gp_spmd_result_get(block, index, &data, &bytes, &own);

        if (status != GP_OK)
            fprintf(stderr, "gradpool %s: index %" PRIu32 ": %s\n", call->command->name, index, own.message);
        else if (bytes > 0)
            status = print_value(p, p->key, index, p->as, data, bytes, &own);
        if (status != GP_OK && first == GP_OK && err != NULL)
            gp_fail(err, status, "%s", own.message);
        if (first == GP_OK)
            first = status;
    }
    return first;
}

gp_status task_words_spmd(cli_call *call, const task_words *task, bool tag, double timeout_s, gp_error *err)
{
    const char *argument = call->word_count > 1 ? call->words[1] : NULL;
    gp_spmd_request request = { .argument = argument,
                                .bytes = argument == NULL ? 0 : strlen(argument) + 1,
                                .seed = (uint64_t)task->seed,
                                .timeout_ms = limit_ms(timeout_s) };
    printer p = { .key = "index", .as = task->as, .tag = tag, .json = ((cli_common *)call->options)->json };
    gp_spmd_result *block = NULL;
    gp_team *team;
    gp_status status = command_set_open(call, &team, &request.function, task->log, &p.progress, err);

    if (status == GP_OK)
        status = gp_spmd(&block, team, &request, err);
    if (block != NULL && (status == GP_OK || gp_spmd_result_size(block) > 1)) {
        gp_status printed = block_print(call, block, &p, status == GP_OK ? err : NULL);

        status = status == GP_OK ? printed : status;
    }
    gp_spmd_result_free(block);
    command_set_close(team);
    call->code = status == GP_OK ? CLI_OK : call->code;
    return status;
}

/* ---- parfor ---- */

/* parfor result callback. false: stop, because the output failed. */
static bool loop_each(void *context, int64_t iteration, const void *data, size_t bytes)
{
    printer *p = context;

    return print_value(p, p->key, iteration, p->as, data, bytes, &p->error) == GP_OK && !ferror(stdout);
}

/* parfor error callback: print the error of an iteration. false: stop, the output failed. */
static bool loop_failed(void *context, int64_t iteration, const gp_error *error)
{
    printer *p = context;
    json_document json;

    p->failed++;
    if (!p->json) {
        fprintf(stderr, "gradpool parfor: iteration %" PRId64 ": %s\n", iteration, error->message);
        return true;
    }
    gp_json_writer *writer = show_json_object(&json, false);

    gp_json_put_integer(writer, p->key, iteration);
    gp_json_put_text(writer, "status", gp_status_name(error->code));
    gp_json_put_text(writer, "error", error->message);
    return show_json_print(&json, &p->error) == GP_OK && !ferror(stdout);
}

static void loop_progress(void *context, uint64_t done, uint64_t total)
{
    printer *p = context;

    cli_progress_show(&p->progress, "", done, total);
}

gp_status task_words_parfor(cli_call *call, const task_words *task, const task_loop *words, gp_error *err)
{
    const char *argument = call->word_count > 2 ? call->words[2] : NULL;
    printer p = {
        .key = "iteration", .as = task->as, .tag = words->tag, .json = ((cli_common *)call->options)->json
    };
    gp_parfor_request request = { .argument = argument,
                                  .bytes = argument == NULL ? 0 : strlen(argument) + 1,
                                  .seed = (uint64_t)task->seed,
                                  .chunk = (uint32_t)task->chunk,
                                  .on_result = loop_each,
                                  .on_error = words->keep_going ? loop_failed : NULL,
                                  .unordered = words->unordered,
                                  .context = &p,
                                  .retries = (uint32_t)words->retries,
                                  .timeout_ms = limit_ms(words->timeout_s),
                                  .progress = words->progress ? loop_progress : NULL };
    const reduction_word *reduction = NULL;
    void *reduced = NULL;
    size_t count = 0;
    gp_team *team = NULL;

    p.error.code = GP_OK;
    gp_status status = range_parse(call->words[0], &request, err);

    if (status == GP_OK)
        status = reduction_parse(task->reduce, &reduction, &count, err);
    if (status == GP_OK && reduction != NULL) {
        reduced = gp_calloc(count, reduction->bytes);
        request.reduction = reduction->reduction;
        request.reduced = reduced;
        request.reduced_bytes = count * reduction->bytes;
        if (reduced == NULL)
            status = gp_fail(err, GP_ENOMEM, "no memory for %zu reduced values", count);
    }
    if (status == GP_OK)
        status = command_set_open(call, &team, &request.function, task->log, &p.progress, err);
    if (status == GP_OK) {
        cli_progress_begin(call, &p.progress, "iterations");
        status = gp_parfor(team, &request, err);
        cli_progress_end(&p.progress);
    }
    if (status == GP_OK && p.error.code != GP_OK)
        status = gp_fail(err, p.error.code, "%s", p.error.message);
    if (status == GP_OK && reduction != NULL)
        status = print_value(&p, NULL, 0, reduction->as, reduced, request.reduced_bytes, err);
    gp_free(reduced);
    command_set_close(team);
    if (status == GP_OK) /* as for programs: the number of failures, 101 for more than 100 */
        call->code = p.failed > 100 ? 101 : (int)p.failed;
    return status;
}
