#include "worker/daemon/gpu_selftest.h"

#include <unistd.h>

#include "common/base/memory/buffer.h"
#include "common/base/text/json.h"
#include "common/base/text/log.h"
#include "worker/backend/plugin.h"
#include "worker/daemon/probe.h"

enum { SELFTEST_BYTES_MAX = 1 << 20, DEVICES_MAX = 16 };

static void put_problem(gp_json_writer *w, gp_status status, const gp_error *err)
{
    gp_json_put_text(w, "problem", status == GP_OK ? "" : err->message);
}

static gp_status selftest(gp_buffer *text, gp_error *err)
{
    const gp_plugin *plugin = NULL;
    uint32_t driver = 0, runtime = 0, count = 0;
    gp_json_writer w;
    gp_error why;
    gp_status status = gp_plugin_load(&plugin, NULL, &why);

    gp_json_writer_init(&w, text, false);
    gp_json_begin_object(&w, NULL);
    gp_json_put_text(&w, "engine", plugin == NULL ? "" : plugin->name);
    gp_json_put_text(&w, "versions", plugin == NULL ? "" : plugin->versions);
    if (status == GP_OK)
        status = plugin->driver(&driver, &runtime, &why);
    gp_json_put_integer(&w, "driver", driver);
    gp_json_put_integer(&w, "runtime", runtime);
    if (status == GP_OK)
        status = plugin->device_count(&count, &why);
    put_problem(&w, status, &why);
    count = status != GP_OK ? 0 : count < DEVICES_MAX ? count : DEVICES_MAX;
    gp_json_begin_array(&w, "devices");
    for (uint32_t i = 0; i < count; i++) {
        gp_plugin_device device = { 0 };

        status = plugin->device(i, &device, &why);
        if (status == GP_OK)
            status = plugin->self_test(i, &why);
        gp_json_begin_object(&w, NULL);
        gp_json_put_integer(&w, "ordinal", i);
        gp_json_put_text(&w, "name", device.name);
        gp_json_put_text(&w, "uuid", device.uuid);
        gp_json_put_integer(&w, "memory_total", (int64_t)device.memory_total);
        gp_json_put_integer(&w, "memory_free", (int64_t)device.memory_free);
        put_problem(&w, status, &why);
        gp_json_end_object(&w);
    }
    gp_json_end_array(&w);
    gp_json_begin_array(&w, "peers");
    for (uint32_t i = 0; i < count * count; i++) {
        const uint32_t from = i / count, to = i % count;
        gp_plugin_peer peer = { 0 };

        if (from == to)
            continue;
        status = plugin->peer(from, to, &peer, &why);
        gp_json_begin_object(&w, NULL);
        gp_json_put_integer(&w, "from", from);
        gp_json_put_integer(&w, "to", to);
        gp_json_put_bool(&w, "direct", peer.direct);
        gp_json_put_number(&w, "bytes_per_second", peer.bytes_per_second);
        put_problem(&w, status, &why);
        gp_json_end_object(&w);
    }
    gp_json_end_array(&w);
    gp_json_end_object(&w);
    return gp_json_writer_finish(&w, err);
}

/* Redirect standard output to standard error first: libraries may print there, and the reader
 * must receive the JSON object only. */
int gp_gpu_selftest_main(void)
{
    int output = dup(STDOUT_FILENO);
    gp_buffer text;
    gp_error err;

    if (output < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return 1;
    gp_buffer_init(&text, SELFTEST_BYTES_MAX);
    if (selftest(&text, &err) != GP_OK) {
        gp_log(GP_LOG_ERROR, "selftest-failed", "%s", err.message);
        return 1;
    }
    return gp_probe_answer(output, &text);
}
