/* `gradpool results`: the results of detached calls (gp_future_detach()). */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "client/cli/cli.h"
#include "client/cli/show.h"
#include "client/pool/results.h"
#include "client/team/result_keeper.h"
#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"

typedef struct results_options {
    cli_common common;
    char out[512];
    double timeout;
} results_options;

static const gp_param results_params[] = {
    { .name = "out",
      .alias = "o",
      GP_PARAM_FIELD(results_options, out),
      .placeholder = "FILE",
      .help = "get: file to write; default: standard output" },
    { .name = "timeout",
      GP_PARAM_FIELD(results_options, timeout),
      .max = 1e6,
      .unit = "seconds",
      .help = "get: time to wait for the call; 0: no limit" },
    CLI_JSON_PARAM(results_options),
    CLI_COMMON_PARAMS(results_options),
    { 0 },
};

/* ---- list ---- */

typedef struct listing {
    gp_result_info *items;
    uint32_t count;
    bool full; /* out of memory */
} listing;

static bool list_take(void *context, const gp_result_info *info)
{
    listing *l = context;

    gp_result_info *grown = gp_array_grow(l->items, l->count, sizeof(*grown));

    l->full = grown == NULL;
    if (l->full)
        return false;
    l->items = grown;
    l->items[l->count++] = *info;
    return true;
}

/* Order by time, newest first. */
static int list_order(const void *a, const void *b)
{
    const gp_result_info *x = a, *y = b;

    if (x->detached_ms != y->detached_ms)
        return x->detached_ms < y->detached_ms ? 1 : -1;
    return strcmp(x->name, y->name);
}

static const char *state_word(const gp_result_info *info)
{
    static const char *const words[] = { "pending", "ready", "read", "expired" };

    return info->state == GP_RESULT_READY && info->status != GP_OK ? "failed" : words[info->state];
}

static void list_table(const listing *l)
{
    show_table *table = show_table_new(7, "name\tstate\tfunction\tsize\tdetached\texpires\treads");
    const int64_t now_ms = gp_unix_ms();

    for (uint32_t i = 0; i < l->count; i++) {
        const gp_result_info *info = &l->items[i];
        char size[32] = "-", age[40], left[40] = "-", reads[32];

        if (info->state == GP_RESULT_READY) {
            cli_bytes((double)info->bytes, size, sizeof(size));
            cli_duration((double)(info->expires_ms - now_ms) * 1e-3, left, sizeof(left));
        }
        if (info->reads_max != 0)
            snprintf(reads, sizeof(reads), "%" PRIu32 "/%" PRIu32, info->reads, info->reads_max);
        else
            snprintf(reads, sizeof(reads), "%" PRIu32, info->reads);
        show_cells(table, "%s\t%s\t%s\t%s\t%s ago\t%s%s\t%s", info->name, state_word(info), info->function,
                   size, cli_duration((double)(now_ms - info->detached_ms) * 1e-3, age, sizeof(age)),
                   info->state == GP_RESULT_READY ? "in " : "", left, reads);
    }
    show_table_print_free(table);
}

static gp_status list_json(const listing *l, gp_error *err)
{
    json_document json;
    gp_json_writer *writer = show_json_array(&json);

    for (uint32_t i = 0; i < l->count; i++) {
        const gp_result_info *info = &l->items[i];

        gp_json_begin_object(writer, NULL);
        gp_json_put_text(writer, "name", info->name);
        gp_json_put_text(writer, "state", state_word(info));
        gp_json_put_text(writer, "function", info->function);
        gp_json_put_text(writer, "status", gp_status_name(info->status));
        gp_json_put_integer(writer, "bytes", (int64_t)info->bytes);
        gp_json_put_integer(writer, "reads", info->reads);
        gp_json_put_integer(writer, "reads_max", info->reads_max);
        gp_json_put_integer(writer, "detached_ms", info->detached_ms);
        gp_json_put_integer(writer, "ended_ms", info->ended_ms);
        gp_json_put_integer(writer, "expires_ms", info->expires_ms);
        gp_json_end_object(writer);
    }
    return show_json_print(&json, err);
}

static gp_status results_list(cli_call *call, gp_error *err)
{
    const results_options *options = call->options;
    listing l = { .items = NULL };
    gp_status status = gp_result_list(call->pool, list_take, &l, err);

    if (status == GP_OK && l.full)
        status = gp_fail(err, GP_ENOMEM, "no memory for a list of results");
    if (status == GP_OK && l.count > 0)
        qsort(l.items, l.count, sizeof(*l.items), list_order);
    if (status == GP_OK && options->common.json)
        status = list_json(&l, err);
    else if (status == GP_OK && l.count > 0)
        list_table(&l);
    else if (status == GP_OK && !options->common.quiet)
        printf("no results\n");
    gp_free(l.items);
    return status;
}

/* ---- get, remove, keep ---- */

static gp_status results_get(cli_call *call, gp_error *err)
{
    const results_options *options = call->options;
    const int timeout_ms = options->timeout > 0 ? (int)ceil(options->timeout * 1e3) : -1;
    void *data = NULL;
    size_t bytes = 0;
    gp_status ended;

    cli_catch_interrupts();
    gp_status status =
        results_wait(call->pool, call->words[1], timeout_ms, &cli_stop, &ended, &data, &bytes, err);

    if (status != GP_OK)
        return status;
    if (ended != GP_OK)
        status = gp_fail(err, ended, "the call of result '%s' failed: %s", call->words[1], (char *)data);
    else if (options->out[0] != '\0')
        status = gp_file_write(options->out, data, bytes, err);
    else if (fwrite(data, 1, bytes, stdout) != bytes || fflush(stdout) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot write the result to standard output");
    gp_buffer_free(data);
    return status;
}

static gp_status results_remove(cli_call *call, gp_error *err)
{
    gp_status status = GP_OK;

    for (int i = 1; i < call->word_count; i++)
        if (gp_result_remove(call->pool, call->words[i], err) != GP_OK) {
            call->code = cli_fail(call, err);
            status = GP_OK; /* reported; remove the others */
        }
    return status;
}

static gp_status results_keep(cli_call *call, gp_error *err)
{
    const results_options *options = call->options;
    uint64_t count;

    cli_catch_interrupts();
    gp_status status = result_keeper_run(call->pool, &cli_stop, &count, err);

    if (!options->common.quiet)
        printf("started %" PRIu64 " call%s of processes that had exited\n", count, count == 1 ? "" : "s");
    return status;
}

static const cli_verb results_verbs[] = {
    { "list", "", "list the results, newest first", 0, 0, results_list },
    { "get", "NAME", "wait for a call and print its result", 1, 1, results_get },
    { "remove", "NAME...", "remove results", 1, CLI_WORDS_MAX, results_remove },
    { "keep", "", "run the calls whose process has exited, until every call has ended", 0, 0, results_keep },
    { 0 },
};

const cli_command cli_command_results = {
    .name = "results",
    .summary = "list, get or remove the results of detached calls",
    .description =
        "A C program names the result of a call with gp_future_detach(). Any process of the same user can "
        "then wait for the call and read its result, also after the program has exited.\n\n"
        "`get` writes the bytes of the result as they are. If the call failed, it prints the error and exits "
        "with 1. Each `get` counts as a read. Results that have been read as often as allowed, and results "
        "that have expired, are listed for another day.\n\n"
        "If a program exits before its detached calls have ended, the pool runs `gradpool results keep` as a "
        "background job, which starts these calls again. There is no need to call it by hand. A canceled "
        "keeper is started again by the next `get` of such a result.",
    .examples = "  gradpool results list\n"
                "  gradpool results get fold-3 --out fold-3.bin\n"
                "  gradpool results get fold-3 --timeout 60\n"
                "  gradpool results remove fold-3 fold-4\n",
    .options = results_params,
    .options_bytes = sizeof(results_options),
    .words_max = -1,
    .pool = CLI_POOL_STARTED,
    .verbs = results_verbs,
    .run = results_list,
};
