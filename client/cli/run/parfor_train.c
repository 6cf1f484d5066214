/* Parameter sweeps: run one `gradpool train` process per input combination and collect their JSON
 * results in a table. */
#include "client/cli/run/parfor_train.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/show.h"
#include "client/cli/run/exec.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/process.h"
#include "common/base/text/json.h"

/* Words added to each command, and rows in the table. */
enum { TAIL_WORDS = 7, ROWS_MAX = 1 << 20 };

/* A row of the table: inputs and result of a training. */
typedef struct parfor_train_row {
    uint64_t job;                     /* job number */
    char *inputs[INPUTS_SOURCES_MAX]; /* input values; owned */
    bool trained, stopped;            /* trained: there is a model; stopped: it ended early */
    int64_t epochs;
    double loss, accuracy, seconds;
    char *place; /* model path, or the failure; owned */
} parfor_train_row;

/* A sweep. */
struct cli_parfor_train {
    const cli_call *call;
    char self[4096];    /* this executable's path */
    const char **words; /* command template: this executable, words after --, added options */
    const cli_inputs *inputs;
    bool json;
    parfor_train_row *rows;
    size_t count;
};

bool parfor_train_asked(const cli_call *call)
{
    return call->rest_count > 0 && strcmp(call->rest[0], "train") == 0;
}

int parfor_train_check(const cli_call *call)
{
    static const char *const no_use[] = { "line-buffer", "tag",   "slots-per-worker",
                                          "shell",       "stdin", "unordered" };
    static const char *const ours[] = { "--workers", "--json", "--quiet", "--pool" };

    for (size_t i = 0; i < sizeof(no_use) / sizeof(no_use[0]); i++)
        if (cli_given(call, no_use[i]))
            return cli_usage(call,
                             "--%s has no effect with train: each network is trained on one worker, and one "
                             "table is printed",
                             no_use[i]);
    for (int i = 1; i < call->rest_count; i++)
        for (size_t k = 0; k < sizeof(ours) / sizeof(ours[0]); k++)
            if (strncmp(call->rest[i], ours[k], strlen(ours[k])) == 0 &&
                strchr("=", call->rest[i][strlen(ours[k])]) != NULL)
                return k == 0 ? cli_usage(call,
                                          "each network is trained on one worker; drop %s, or run one "
                                          "training after another",
                                          call->rest[i])
                              : cli_usage(call, "%s belongs before --, to parfor", call->rest[i]);
    return CLI_OK;
}

/* ---- the command ---- */

gp_status parfor_train_new(cli_parfor_train **out, const cli_call *call, const char *const **words,
                           int *count, gp_error *err)
{
    const cli_common *common = call->options;
    cli_parfor_train *train = gp_calloc(1, sizeof(*train));
    int used = 0;
    gp_status status;

    if (train != NULL)
        train->words = gp_calloc((size_t)call->rest_count + TAIL_WORDS, sizeof(*train->words));
    if (train == NULL || train->words == NULL) {
        parfor_train_free(train);
        return gp_fail(err, GP_ENOMEM, "no memory for a sweep");
    }
    status = gp_program_path(train->self, sizeof(train->self), err);
    if (status != GP_OK) {
        parfor_train_free(train);
        return status;
    }
    train->call = call;
    train->json = common->json;
    train->words[used++] = train->self;
    for (int i = 0; i < call->rest_count; i++)
        train->words[used++] = call->rest[i];
    train->words[used++] = "--workers=1";
    train->words[used++] = "--json";
    train->words[used++] = "--quiet";
    if (common->pool[0] != '\0') {
        train->words[used++] = "--pool";
        train->words[used++] = common->pool;
    }
    *words = train->words;
    *count = used;
    *out = train;
    return GP_OK;
}

void parfor_train_free(cli_parfor_train *train)
{
    if (train == NULL)
        return;
    for (size_t i = 0; i < train->count; i++) {
        for (int k = 0; k < INPUTS_SOURCES_MAX; k++)
            gp_free(train->rows[i].inputs[k]);
        gp_free(train->rows[i].place);
    }
    gp_free(train->rows);
    gp_free(train->words);
    gp_free(train);
}

int parfor_train_try(const cli_call *call, cli_template *command)
{
    cli_inputs *inputs;
    inputs_state state;
    const char *const *values, *const *arguments;
    int code = CLI_OK, count = 0;

    if (!template_has_place(command))
        return cli_usage(call,
                         "the command has no replacement string; write for example --lr {} or --lr {lr}");
    if (cli_given(call, "arg-file")) /* lines of a file are only known later */
        return CLI_OK;
    if (inputs_new(&inputs, call->words, call->word_count, NULL, false, NULL) != GP_OK)
        return CLI_OK; /* the caller reported the error before */
    if (inputs_next(inputs, &state, &values, NULL) == GP_OK && state == INPUTS_VALUES &&
        template_fill(command, values, 1, 1, &arguments, NULL) == GP_OK) {
        while (arguments[count] != NULL)
            count++;
        code = cli_check_words(count, (char **)(uintptr_t)arguments);
    }
    inputs_free(inputs);
    return code;
}

/* ---- results ---- */

/* Extract the failure reason from standard error: the message of gradpool train, or else the last
 * line. The caller frees the result. */
static char *failure_line(const gp_buffer *err)
{
    static const char own[] = "gradpool train: ";
    const char *text = gp_buffer_text(err), *begin = strstr(text, own);
    size_t bytes = err->bytes;

    if (begin != NULL) {
        begin += sizeof(own) - 1;
        bytes = strcspn(begin, "\n");
    } else {
        while (bytes > 0 && text[bytes - 1] == '\n')
            bytes--;
        begin = bytes == 0 ? NULL : memrchr(text, '\n', bytes);
        begin = begin == NULL ? text : begin + 1;
        bytes -= (size_t)(begin - text);
    }
    return strndup(begin, bytes);
}

/* Fill in a row from the training's JSON object or error output.
 *   training  NULL: the training failed
 *   said      training's standard error */
static gp_status row_fill(parfor_train_row *row, const command_job *job, const gp_json *training,
                          const gp_buffer *said, gp_error *err)
{
    char words[GP_RUNNER_TEXT_MAX];
    bool whole = true;

    row->job = job->number;
    for (int i = 0; i < inputs_sources(job->inputs); i++) {
        row->inputs[i] = gp_strdup(job->values[i]);
        whole = whole && row->inputs[i] != NULL;
    }
    row->trained = training != NULL;
    if (training != NULL) {
        row->stopped = gp_json_bool(gp_json_member(training, "stopped"), false);
        row->epochs = gp_json_integer(gp_json_member(training, "epochs"), 0);
        row->loss = gp_json_number(gp_json_member(training, "loss"), NAN);
        row->accuracy = gp_json_number(gp_json_member(training, "validation_accuracy"), NAN);
        row->seconds = gp_json_number(gp_json_member(training, "seconds"), NAN);
        row->place = gp_strdup(gp_json_text(gp_json_member(training, "model"), ""));
    } else if (said->bytes > 0) {
        char *line = failure_line(said);

        row->place = line == NULL ? NULL : gp_strdup(line);
        free(line);
    } else {
        row->place = gp_strdup(job->end.kind == EXEC_FAILED ? job->end.text
                                                            : command_job_text(job, words, sizeof(words)));
    }
    return whole && row->place != NULL ? GP_OK : gp_fail(err, GP_ENOMEM, "no memory for a table");
}

/* Report callback: add a row to the table, print the job's JSON object if requested, and
 * print a progress line. The last members of the object are the training's own object (or
 * null) and, after a failure, the error. */
static gp_status parfor_train_report(void *context, const void *subject, const gp_buffer *out,
                                     const gp_buffer *said, gp_buffer *text, gp_error *err)
{
    cli_parfor_train *train = context;
    gp_json *training = NULL;
    gp_json_writer writer;
    char time[40];

    if (subject == NULL)
        return GP_OK;
    if (train->count == ROWS_MAX)
        return gp_fail(err, GP_ELIMIT, "a table has at most %d rows", ROWS_MAX);
    parfor_train_row *grown = gp_array_grow(train->rows, train->count, sizeof(*grown)), *row;

    if (grown == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a table of %zu rows", train->count + 1);
    train->rows = grown;
    row = &train->rows[train->count++];
    *row = (parfor_train_row){ .loss = NAN, .accuracy = NAN, .seconds = NAN };
    /* A failed training prints no JSON object. */
    if (gp_json_parse(&training, gp_buffer_text(out), out->bytes, NULL) != GP_OK)
        training = NULL;
    gp_status status = row_fill(row, subject, training, said, err);

    if (status == GP_OK && train->json) {
        gp_json_writer_init(&writer, text, false);
        gp_json_begin_object(&writer, NULL);
        status = command_job_put(&writer, subject, err);
        gp_json_put_value(&writer, "training", training);
        if (training == NULL)
            gp_json_put_text(&writer, "error", row->place);
        gp_json_end_object(&writer);
        if (status == GP_OK)
            status = gp_json_writer_finish(&writer, err);
        if (status == GP_OK)
            status = gp_buffer_append(text, "\n", 1, err);
    }
    gp_json_free(training);
    if (status != GP_OK || ((const cli_common *)train->call->options)->quiet)
        return status;
    fprintf(stderr, "network %" PRIu64, row->job);
    for (int i = 0; i < inputs_sources(train->inputs); i++)
        fprintf(stderr, "%s%s%s%.60s", i == 0 ? " (" : ", ", inputs_name(train->inputs, i),
                inputs_name(train->inputs, i)[0] != '\0' ? "=" : "", row->inputs[i]);
    if (!row->trained)
        fprintf(stderr, ") failed: %s\n", row->place);
    else
        fprintf(stderr, ") %s after %s\n", row->stopped ? "stopped" : "finished",
                cli_duration(row->seconds, time, sizeof(time)));
    return GP_OK;
}

/* ---- the table ---- */

static int row_order(const void *a, const void *b)
{
    const parfor_train_row *x = a, *y = b;

    return x->job < y->job ? -1 : x->job > y->job;
}

/* Append a number to the table; NaN: "-". */
static void show_number(show_table *table, double value, int decimals, const char *unit)
{
    char text[64] = "-";

    if (!isnan(value))
        snprintf(text, sizeof(text), "%.*f%s", decimals, value, unit);
    show_cells(table, "%s", text);
}

/* Print the table in job order, and name the network with the highest validation accuracy. */
static void parfor_train_show(cli_parfor_train *train)
{
    const int count = inputs_sources(train->inputs);
    const parfor_train_row *best = NULL;
    show_table *table;

    if (train->count == 0)
        return;
    qsort(train->rows, train->count, sizeof(*train->rows), row_order);
    table = show_table_new((uint32_t)count + 6, "network");
    for (int i = 0; i < count; i++)
        show_cells(table, "%s",
                   inputs_name(train->inputs, i)[0] != '\0' ? inputs_name(train->inputs, i) : "input");
    show_cells(table, "epochs\tloss\taccuracy\tseconds\tmodel");
    for (const parfor_train_row *row = train->rows; row < train->rows + train->count; row++) {
        show_cells(table, "%" PRIu64, row->job);
        for (int i = 0; i < count; i++)
            show_cells(table, "%s", row->inputs[i]);
        if (row->trained)
            show_cells(table, "%" PRId64 "%s", row->epochs, row->stopped ? " (stopped)" : "");
        else
            show_cells(table, "-");
        show_number(table, row->loss, 4, "");
        show_number(table, row->accuracy * 100, 2, " %");
        show_number(table, row->seconds, 1, "");
        show_cells(table, "%s%s", row->trained ? "" : "failed: ", row->place);
        if (row->trained && !isnan(row->accuracy) && (best == NULL || row->accuracy > best->accuracy))
            best = row;
    }
    show_table_print_free(table);
    if (best != NULL && train->count > 1)
        printf("\nbest: network %" PRIu64 ", validation accuracy %.2f %%: %s\n", best->job,
               best->accuracy * 100, best->place);
}

/* ---- running ---- */

gp_status parfor_train_run(cli_parfor_train *train, command_set_options *command_set,
                           command_set_result *result, gp_error *err)
{
    gp_lease_request request = { 0 };
    uint32_t count = 0;
    gp_pool *pool = NULL;
    gp_status status = cli_open(command_set->call, false, &pool, err);

    if (status == GP_OK)
        status = cli_lease_request(command_set->call, pool, &request, err);
    if (status == GP_OK)
        status = gp_pool_workers(pool, &count, err);
    gp_pool_close(pool);
    if (status != GP_OK)
        return status;
    /* one training per worker, at most the requested workers and the job count */
    if (request.workers_max > 0 && request.workers_max < count)
        count = request.workers_max;
    count = count < EXEC_SLOTS_MAX ? count : EXEC_SLOTS_MAX;
    if (inputs_count(command_set->inputs) < count)
        count = (uint32_t)inputs_count(command_set->inputs);
    if (count == 0)
        return gp_fail(err, GP_ENODEV, "the pool has no usable worker; see 'gradpool status'");
    train->inputs = command_set->inputs;
    command_set->local = count;
    if (!cli_given(command_set->call, "grace"))
        command_set->grace_ms = PARFOR_TRAIN_GRACE_MS;
    command_set->report = parfor_train_report;
    command_set->report_context = train;
    command_set->ordered = train->json;
    status = command_set_run(command_set, NULL, result, err);
    if (!train->json)
        parfor_train_show(train);
    return status;
}
