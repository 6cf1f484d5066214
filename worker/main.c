/* main.c -- gradpool-worker entry point. Passes the CPU and CUDA backends to gp_worker_main(). */
#include "proto/channel/channel.h"
#include "proto/message/limits.h"
#include "worker/backend/plugin.h"
#include "worker/daemon/start.h"

static gp_status cpu_source(const gp_backend_ops **out, gp_error *err)
{
    (void)err;
    *out = &gp_backend_cpu;
    return GP_OK;
}

/* Load the CUDA backend plugin. Only a GPU worker calls this, so a CPU worker does not load the
 * CUDA libraries. */
static gp_status cuda_source(const gp_backend_ops **out, gp_error *err)
{
    const gp_plugin *plugin;
    gp_status status = gp_plugin_load_device(&plugin, NULL, err);

    if (status == GP_OK)
        *out = plugin->backend;
    return status;
}

int main(int count, char **arguments)
{
    gp_accept_limit(GP_BULK_MESSAGE_BYTES_MAX);
    return gp_worker_main(count, arguments, cpu_source, cuda_source);
}
