/* plugin.c: a GPU plugin without a GPU, to test the plugin interface. FAKE_ABI, FAKE_EMPTY and
 * FAKE_DEVICES make variants. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/backend/plugin.h"

#ifndef FAKE_ABI
#define FAKE_ABI GP_PLUGIN_ABI
#endif
#ifndef FAKE_DEVICES
#define FAKE_DEVICES 2
#endif

static const uint32_t devices = FAKE_DEVICES;

struct gp_backend {
    uint32_t threads;
};

/* A plan that sums the input samples, so that a test can see whether run() received them. */
struct gp_plan {
    gp_plan_memory memory;
    uint32_t calls;
};

static gp_status fake_driver(uint32_t *driver, uint32_t *runtime, gp_error *err)
{
    (void)err;
    *driver = *runtime = 13000;
    return GP_OK;
}

static gp_status fake_peer(uint32_t from, uint32_t to, gp_plugin_peer *out, gp_error *err)
{
    (void)err;
    *out = (gp_plugin_peer){ .direct = from != to, .bytes_per_second = 1e9 };
    return GP_OK;
}

static gp_status fake_count(uint32_t *count, gp_error *err)
{
    (void)err;
    *count = devices;
    return GP_OK;
}

static gp_status fake_device(uint32_t ordinal, gp_plugin_device *out, gp_error *err)
{
    if (ordinal >= devices)
        return gp_fail(err, GP_ENODEV, "no device %u", ordinal);
    *out =
        (gp_plugin_device){ .ordinal = ordinal, .major = 9, .memory_total = 1 << 20, .memory_free = 1 << 19 };
    snprintf(out->name, sizeof(out->name), "Fake %u", ordinal);
    snprintf(out->uuid, sizeof(out->uuid), "GPU-fake-%u", ordinal);
    return GP_OK;
}

static gp_status fake_self_test(uint32_t ordinal, gp_error *err)
{
    return ordinal < devices ? GP_OK : gp_fail(err, GP_ENODEV, "no device %u", ordinal);
}

static gp_status fake_profile(gp_plan *plan, gp_profile_fn fn, void *context, gp_error *err)
{
    (void)plan;
    (void)fn;
    (void)context;
    return gp_fail(err, GP_EUNSUPPORTED, "the fake device measures nothing");
}

static gp_status fake_open(gp_backend **out, const gp_backend_options *options, gp_error *err)
{
    gp_backend *backend = calloc(1, sizeof(*backend));

    if (backend == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory");
    backend->threads = options->threads;
    *out = backend;
    return GP_OK;
}

static void fake_close(gp_backend *backend)
{
    free(backend);
}

static gp_status fake_compile(gp_plan **out, gp_backend *backend, const gp_graph *graph,
                              const gp_plan_options *options, const gp_plan_memory *memory, gp_error *err)
{
    gp_plan *plan = calloc(1, sizeof(*plan));

    (void)backend;
    (void)graph;
    (void)options;
    if (plan == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory");
    plan->memory = *memory;
    *out = plan;
    return GP_OK;
}

static void fake_free(gp_plan *plan)
{
    free(plan);
}

static gp_status fake_run(gp_plan *plan, const gp_batch *batch, gp_ready_fn ready, void *context,
                          gp_error *err)
{
    (void)ready;
    (void)context;
    (void)err;
    plan->calls++;
    plan->memory.sums[0] = (batch->first ? 0 : plan->memory.sums[0]) + batch->count;
    return GP_OK;
}

static gp_status fake_sync(gp_backend *backend, gp_error *err)
{
    (void)backend;
    (void)err;
    return GP_OK;
}

static gp_plan_times fake_times(gp_plan *plan)
{
    return (gp_plan_times){ .forward_ns = plan->calls, .backward_ns = plan->calls };
}

static size_t fake_bytes(const gp_plan *plan)
{
    return sizeof(*plan);
}

static void fake_describe(const gp_plan *plan, char *text, size_t bytes)
{
    (void)plan;
    snprintf(text, bytes, "fake: everything");
}

static uint64_t fake_device_memory(gp_backend *backend)
{
    (void)backend;
    return 1 << 19;
}

static const gp_backend_ops fake_ops = { .name = "cuda",
                                         .open = fake_open,
                                         .close = fake_close,
                                         .compile = fake_compile,
                                         .free = fake_free,
                                         .run = fake_run,
                                         .sync = fake_sync,
                                         .take_times = fake_times,
                                         .memory_bytes = fake_bytes,
                                         .device_memory = fake_device_memory,
#ifndef FAKE_EMPTY
                                         .describe = fake_describe
#endif
};

static const gp_plugin fake_plugin = { .abi = FAKE_ABI,
                                       .name = "cuda",
                                       .versions = "fake 1.0",
                                       .backend = &fake_ops,
                                       .driver = fake_driver,
                                       .peer = fake_peer,
                                       .device_count = fake_count,
                                       .device = fake_device,
                                       .self_test = fake_self_test,
                                       .profile = fake_profile };

__attribute__((visibility("default"))) const gp_plugin *gp_plugin_entry(void);
const gp_plugin *gp_plugin_entry(void)
{
#ifdef FAKE_EMPTY
    (void)fake_describe;
#endif
    return &fake_plugin;
}
