/* `gradpool doctor`: check host and GPUs for common problems and suggest fixes (doctor.h). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/cli/cli.h"
#include "client/cli/measure/doctor.h"
#include "client/cli/show.h"
#include "common/base/memory/alloc.h"
#include "common/base/text/text.h"
#include "proto/device/device_holder.h"
#include "proto/device/device_probe.h"
#include "proto/local/paths.h"

typedef struct doctor_options {
    cli_common common;
    bool quick;
} doctor_options;

static const gp_param doctor_params[] = {
    { .name = "quick",
      GP_PARAM_FIELD(doctor_options, quick),
      .help = "skip tests on GPUs: run no kernel and no copy between GPUs" },
    CLI_JSON_PARAM(doctor_options),
    CLI_COMMON_PARAMS(doctor_options),
    { 0 },
};

/* State names, in doctor_state order. */
static const char *const state_names[] = { "ok", "note", "warning", "failure" };

/* Count the checks with this result. */
static uint32_t rows_of(const doctor *d, doctor_state state)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < d->count; i++)
        count += d->rows[i].state == state;
    return count;
}

/* ---- checks ---- */

/* Probe the GPUs, and run test kernels and transfers unless --quick is given. */
static void probe_gpus(doctor *d, const doctor_host *host, gp_device_list *list, bool quick)
{
    bool there = gp_device_probe_needed();
    char program[4096], problem[240] = "";
    gp_json *examined = NULL;
    gp_paths paths;
    gp_error err;
    gp_status status = pool_daemon_path("gradpool-worker", "GRADPOOL_WORKER", program, sizeof(program), &err);

    if (status == GP_OK)
        status = gp_device_probe(list, program, GP_DEVICE_PROBE_MS, &err);
    if (status == GP_OK && gp_paths_find(&paths, NULL, NULL) == GP_OK)
        gp_device_list_holders(list, paths.device_dir);
    if (status == GP_OK && !quick && list->count != 0)
        status = gp_device_selftest(&examined, program, GP_DEVICE_SELFTEST_MS, &err);
    if (status != GP_OK)
        snprintf(problem, sizeof(problem), "%.239s", err.message);
    doctor_gpu_check(d, list, problem, there, host->container[0] != '\0', examined);
    gp_json_free(examined);
}

/* ---- output ---- */

/* Print the transfer rates between all device pairs. */
static void show_peers(const doctor *d)
{
    show_table *table;

    if (d->devices < 2)
        return;
    table = show_table_new(d->devices + 1, "GB/s from, to");
    for (uint32_t to = 0; to < d->devices; to++)
        show_cells(table, "cuda:%u", to);
    for (uint32_t from = 0; from < d->devices; from++) {
        show_cells(table, "cuda:%u", from);
        for (uint32_t to = 0; to < d->devices; to++)
            if (from == to)
                show_cells(table, "-");
            else
                show_cells(table, "%.1f%s", d->peer[from][to] * 1e-9, d->direct[from][to] ? "" : " (host)");
    }
    printf("\n");
    show_table_print_free(table);
}

static void show_text(const doctor *d, bool quiet)
{
    for (uint32_t i = 0; i < d->count; i++) {
        const doctor_row *row = &d->rows[i];

        if (quiet && row->state < DOCTOR_WARNING)
            continue;
        printf("%-8s %s: %s\n", state_names[row->state], row->what, row->found);
        if (row->fix[0] != '\0')
            printf("%-8s   %s\n", "", row->fix);
    }
    if (!quiet)
        show_peers(d);
    printf("%s%" PRIu32 " failure%s, %" PRIu32 " warning%s\n", quiet ? "" : "\n", rows_of(d, DOCTOR_FAILURE),
           gp_plural(rows_of(d, DOCTOR_FAILURE)), rows_of(d, DOCTOR_WARNING),
           gp_plural(rows_of(d, DOCTOR_WARNING)));
}

static gp_status show_json(const doctor *d, gp_error *err)
{
    json_document json;
    gp_json_writer *w = show_json_object(&json, true);

    gp_json_put_bool(w, "ok", rows_of(d, DOCTOR_FAILURE) == 0);
    gp_json_put_integer(w, "failures", rows_of(d, DOCTOR_FAILURE));
    gp_json_put_integer(w, "warnings", rows_of(d, DOCTOR_WARNING));
    gp_json_put_text(w, "versions", d->versions);
    gp_json_begin_array(w, "checks");
    for (uint32_t i = 0; i < d->count; i++) {
        gp_json_begin_object(w, NULL);
        gp_json_put_text(w, "state", state_names[d->rows[i].state]);
        gp_json_put_text(w, "what", d->rows[i].what);
        gp_json_put_text(w, "found", d->rows[i].found);
        gp_json_put_text(w, "fix", d->rows[i].fix);
        gp_json_end_object(w);
    }
    gp_json_end_array(w);
    gp_json_begin_array(w, "peers");
    for (uint32_t from = 0; from < d->devices; from++)
        for (uint32_t to = 0; to < d->devices; to++) {
            if (from == to)
                continue;
            gp_json_begin_object(w, NULL);
            gp_json_put_integer(w, "from", from);
            gp_json_put_integer(w, "to", to);
            gp_json_put_bool(w, "direct", d->direct[from][to]);
            gp_json_put_number(w, "bytes_per_second", d->peer[from][to]);
            gp_json_end_object(w);
        }
    gp_json_end_array(w);
    return show_json_print(&json, err);
}

static gp_status doctor_run(cli_call *call, gp_error *err)
{
    const doctor_options *options = call->options;
    doctor *d = gp_calloc(1, sizeof(*d));
    gp_device_list *list = gp_calloc(1, sizeof(*list));
    doctor_host host;
    gp_status status =
        d == NULL || list == NULL ? gp_fail(err, GP_ENOMEM, "no memory for the checks") : GP_OK;
    bool elsewhere;
    uint32_t gpus = 0;

    if (status == GP_OK) {
        /* a remote pool has no directories on this host */
        elsewhere = cli_elsewhere(call, &elsewhere, NULL) == GP_OK && elsewhere;
        doctor_host_read(&host, elsewhere ? NULL : cli_pool_name(call));
        probe_gpus(d, &host, list, options->quick);
        for (uint32_t i = 0; i < list->count; i++)
            gpus += list->devices[i].reason[0] == '\0';
        doctor_host_check(d, &host, gpus);
        if (options->common.json)
            status = show_json(d, err);
        else
            show_text(d, options->common.quiet);
        call->code = rows_of(d, DOCTOR_FAILURE) == 0 ? CLI_OK : CLI_FAILED;
    }
    gp_free(list);
    gp_free(d);
    return status;
}

const cli_command cli_command_doctor = {
    .name = "doctor",
    .summary = "find problems with this host, its GPUs and pools, and suggest fixes",
    .usage = "[--quick] [--json]",
    .description =
        "Check the driver, the libraries of the GPU engine, the GPUs and the copies between them, shared "
        "memory, limits, the control group, the clock, and the directories of pools. The command prints a "
        "fix for each problem.",
    .examples = "  gradpool doctor\n"
                "  gradpool doctor --quick --quiet                          # only warnings and failures, no "
                "GPU tests\n"
                "  gradpool doctor --json | jq '.checks[] | select(.state == \"failure\")'\n",
    .exit_codes = "1: a check failed; 0: none failed, but there may be warnings.\n",
    .options = doctor_params,
    .options_bytes = sizeof(doctor_options),
    .run = doctor_run,
};
