#include <inttypes.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/show.h"
#include "client/remote.h"
#include "common/base/alloc.h"
#include "proto/device_probe.h"

typedef struct devices_options {
    cli_common common;
} devices_options;

static const gp_param devices_params[] = {
    CLI_JSON_PARAM(devices_options),
    CLI_REMOTE_PARAMS(devices_options),
    CLI_COMMON_PARAMS(devices_options),
    { 0 },
};

static unsigned allowed_cores(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

static void devices_show(const gp_device_list *list, unsigned cores)
{
    show_table *table =
        show_table_new(6, (const char *[]){ "index", "ordinal", "name", "memory", "uuid", "" });

    for (uint32_t i = 0; i < list->count; i++) {
        const gp_device *device = &list->devices[i];
        char index[16], ordinal[16], memory[40], words[240] = "";

        snprintf(index, sizeof(index), "%" PRIu32, device->index);
        snprintf(ordinal, sizeof(ordinal), "cuda:%" PRIu32, device->ordinal);
        cli_bytes((double)device->memory_total, memory, sizeof(memory));
        if (!gp_device_busy(device, NULL, 0, words, sizeof(words)))
            snprintf(words, sizeof(words), "free%s%s", device->mig ? ", MIG instance" : "",
                     device->display ? ", drives a display" : "");
        show_row(table, (const char *[]){ index, ordinal, device->name, memory, device->uuid, words });
    }
    show_table_print_free(table);
    if (list->count == 0)
        printf("no GPU; %u cores for CPU workers\n", cores);
    if (list->note[0] != '\0')
        printf("note: %s\n", list->note);
}

/* Those of another host are what its scheduler found when it began. */
static gp_status devices_elsewhere(const cli_call *call, gp_device_list *list, uint32_t *cores,
                                   bool *elsewhere, gp_error *err)
{
    gp_pool *pool;
    gp_status status = cli_elsewhere(call, elsewhere, err);

    if (status != GP_OK || !*elsewhere)
        return status;
    status = cli_open(call, true, &pool, err);
    if (status != GP_OK)
        return status;
    status = pool_devices(pool, list, cores, err);
    gp_pool_close(pool);
    return status;
}

static int devices_run(cli_call *call)
{
    const devices_options *options = call->options;
    gp_device_list *list = gp_calloc(1, sizeof(*list));
    char program[4096];
    uint32_t cores = allowed_cores();
    bool elsewhere = false;
    gp_buffer text;
    gp_error err;
    gp_status status;

    if (list == NULL)
        return cli_fail(call, &(gp_error){ GP_ENOMEM, "no memory for the list of devices" });
    status = devices_elsewhere(call, list, &cores, &elsewhere, &err);
    if (status == GP_OK && !elsewhere)
        status = pool_daemon_path("gradpool-worker", "GRADPOOL_WORKER", program, sizeof(program), &err);
    if (status == GP_OK && !elsewhere)
        status = gp_device_probe(list, program, GP_DEVICE_PROBE_MS, &err);
    if (status == GP_OK && options->common.json) {
        gp_buffer_init(&text, GP_DEVICE_LIST_BYTES_MAX);
        status = gp_device_list_write(list, &text, &err);
        printf("%s\n", gp_buffer_text(&text));
        gp_buffer_deinit(&text);
    } else if (status == GP_OK) {
        devices_show(list, cores);
    }
    gp_free(list);
    return status == GP_OK ? CLI_OK : cli_fail(call, &err);
}

extern const cli_command cli_command_devices;
const cli_command cli_command_devices = {
    .name = "devices",
    .summary = "show this machine's GPUs and who uses them, or with --pool those of another host",
    .usage = "[--json]",
    .examples = "  gradpool devices\n",
    .options = devices_params,
    .options_bytes = sizeof(devices_options),
    .run = devices_run,
};
