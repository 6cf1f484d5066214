/* `gradpool devices`: list the GPUs of this host or of a remote pool, with the workers that hold
 * them. */
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>

#include "client/cli/cli.h"
#include "client/cli/show.h"
#include "client/pool/remote.h"
#include "common/base/memory/alloc.h"
#include "proto/device/device_holder.h"
#include "proto/device/device_probe.h"
#include "proto/local/paths.h"

typedef struct devices_options {
    cli_common common;
    bool mine;
} devices_options;

static const gp_param devices_params[] = {
    { .name = "mine",
      GP_PARAM_FIELD(devices_options, mine),
      .help = "show only GPUs held by workers of your pools" },
    CLI_JSON_PARAM(devices_options),
    CLI_REMOTE_PARAMS(devices_options),
    CLI_COMMON_PARAMS(devices_options),
    { 0 },
};

static void devices_show(const gp_device_list *list, bool mine, unsigned cores)
{
    show_table *table = show_table_new(8, "index\tordinal\tname\tcapability\tmemory\tavailable\tuuid\t");

    for (uint32_t i = 0; i < list->count; i++) {
        const gp_device *device = &list->devices[i];
        char capability[24] = "", memory[40], words[240], busy[120];

        if (device->major != 0)
            snprintf(capability, sizeof(capability), "%" PRIu32 ".%" PRIu32, device->major, device->minor);
        cli_bytes((double)device->memory_total, memory, sizeof(memory));

        /* The state of the device: the reason why it is unusable, the worker that holds it,
         * or "free". */
        if (device->reason[0] != '\0')
            snprintf(words, sizeof(words), "%s", device->reason);
        else if (device->pool[0] != '\0')
            snprintf(words, sizeof(words), "held by worker %" PRIu32 " of pool %s", device->worker,
                     device->pool);
        else if (gp_device_busy(device, NULL, 0, busy, sizeof(busy)))
            snprintf(words, sizeof(words), "%s", busy);
        else
            snprintf(words, sizeof(words), "free%s%s", device->mig ? ", MIG instance" : "",
                     device->display ? ", drives a display" : "");
        show_cells(table, "%u\tcuda:%u\t%s\t%s\t%s\t%s\t%s\t%s", device->index, device->ordinal, device->name,
                   capability, memory, device->reason[0] == '\0' ? "yes" : "no", device->uuid, words);
    }
    show_table_print_free(table);
    if (list->count == 0 && mine)
        printf("no worker of your pools holds a GPU\n");
    else if (list->count == 0)
        printf("no GPU; %u cores for CPU workers\n", cores);
    if (list->note[0] != '\0')
        printf("note: %s\n", list->note);
}

/* Probe the devices of this host and read from the claim files which workers hold them. */
static gp_status devices_here(gp_device_list *list, gp_error *err)
{
    char program[4096];
    gp_paths paths;
    gp_status status = pool_daemon_path("gradpool-worker", "GRADPOOL_WORKER", program, sizeof(program), err);

    if (status == GP_OK)
        status = gp_device_probe(list, program, GP_DEVICE_PROBE_MS, err);
    if (status == GP_OK)
        status = gp_paths_find(&paths, NULL, err);
    if (status == GP_OK)
        gp_device_list_holders(list, paths.device_dir);
    return status;
}

/* Get the devices and the core count of this host, or those that the scheduler of a remote pool
 * found at startup. */
static gp_status devices_read(cli_call *call, gp_device_list *list, uint32_t *cores, gp_error *err)
{
    cpu_set_t set;
    bool elsewhere;
    gp_status status = cli_elsewhere(call, &elsewhere, err);

    *cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
    if (status == GP_OK && !elsewhere)
        return devices_here(list, err);
    if (status == GP_OK)
        status = cli_open(call, true, &call->pool, err);
    return status == GP_OK ? pool_devices(call->pool, list, cores, err) : status;
}

static gp_status devices_run(cli_call *call, gp_error *err)
{
    const devices_options *options = call->options;
    gp_device_list *list = gp_calloc(1, sizeof(*list));
    uint32_t cores, kept = 0;
    gp_buffer text;

    if (list == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the device list");
    gp_status status = devices_read(call, list, &cores, err);

    for (uint32_t i = 0; status == GP_OK && i < list->count; i++)
        if (!options->mine || list->devices[i].pool[0] != '\0')
            list->devices[kept++] = list->devices[i];
    list->count = kept;
    if (status == GP_OK && options->common.json) {
        gp_buffer_init(&text, GP_DEVICE_LIST_BYTES_MAX);
        status = gp_device_list_write(list, &text, err);
        printf("%s\n", gp_buffer_text(&text));
        gp_buffer_deinit(&text);
    } else if (status == GP_OK) {
        devices_show(list, options->mine, cores);
    }
    gp_free(list);
    return status;
}

const cli_command cli_command_devices = {
    .name = "devices",
    .summary = "show the GPUs of this host, or of a pool on another host, and their users",
    .usage = "[--mine] [--json]",
    .description =
        "Ask the driver for the GPUs of this host, in a child process and for at most 10 s. The list has "
        "the index, CUDA ordinal, name, compute capability, memory and UUID of each GPU or MIG instance, "
        "and whether a worker can use it: if not, the reason or the process that uses it.",
    .examples =
        "  gradpool devices\n"
        "  gradpool devices --mine                                  # GPUs held by workers of your pools\n"
        "  gradpool devices --json | jq '.devices[] | select(.available).uuid'\n",
    .options = devices_params,
    .options_bytes = sizeof(devices_options),
    .run = devices_run,
};
