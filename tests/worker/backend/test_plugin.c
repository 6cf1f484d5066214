#include "tests/gp_test.h"

#include <unistd.h>

#include "worker/backend/plugin.h"

static const char *built(const char *file, char path[512])
{
    snprintf(path, 512, "%s/lib/%s", getenv("GP_BUILD_DIR") != NULL ? getenv("GP_BUILD_DIR") : ".", file);
    return path;
}

TEST(missing_plugin_gives_an_error_message)
{
    const gp_plugin *plugin;
    gp_error err;

    CHECK_STATUS(GP_ENOENT, gp_plugin_load(&plugin, "/nowhere/libgradpool_cuda.so", &err));
    CHECK_CONTAINS(err.message, "/nowhere/libgradpool_cuda.so");
}

TEST(plugin_with_another_abi_is_refused_with_both_versions)
{
    const gp_plugin *plugin;
    gp_error err;
    char path[512], ours[40];

    snprintf(ours, sizeof(ours), "this worker has version %u", GP_PLUGIN_ABI);
    CHECK_STATUS(GP_EVERSION, gp_plugin_load(&plugin, built("libfake_plugin_abi.so", path), &err));
    CHECK_CONTAINS(err.message, "99");
    CHECK_CONTAINS(err.message, ours);
}

TEST(a_plugin_with_an_empty_slot_is_refused)
{
    const gp_plugin *plugin;
    gp_error err;
    char path[512];

    CHECK_STATUS(GP_EPROTO, gp_plugin_load(&plugin, built("libfake_plugin_empty.so", path), &err));
    CHECK_CONTAINS(err.message, "empty");
}

TEST(library_without_the_plugin_entry_is_refused)
{
    const gp_plugin *plugin;
    gp_error err;

    CHECK_STATUS(GP_EPROTO, gp_plugin_load(&plugin, "libm.so.6", &err));
    CHECK_CONTAINS(err.message, "gp_plugin_entry");
}

TEST(a_driver_without_devices_is_no_device)
{
    const gp_plugin *plugin;
    gp_error err;
    char path[512];

    CHECK_STATUS(GP_ENODEV, gp_plugin_load_device(&plugin, built("libfake_plugin_none.so", path), &err));
    CHECK_CONTAINS(err.message, "no device");
}

TEST(backend_of_a_plugin_runs_calls)
{
    const gp_plugin *plugin;
    gp_backend *backend;
    gp_plan *plan;
    gp_plugin_device device;
    double sums[GP_SUMS] = { 0 };
    gp_error err;
    char path[512];

    REQUIRE_OK(gp_plugin_load_device(&plugin, built("libfake_plugin.so", path), &err), err);
    REQUIRE_OK(plugin->device(1, &device, &err), err);
    CHECK_TEXT("GPU-fake-1", device.uuid);
    CHECK_STATUS(GP_ENODEV, plugin->device(2, &device, &err));
    REQUIRE_OK(plugin->self_test(0, &err), err);
    REQUIRE_OK(plugin->backend->open(&backend, &(gp_backend_options){ .threads = 1 }, &err), err);
    REQUIRE_OK(plugin->backend->compile(&plan, backend, NULL, &(gp_plan_options){ .micro_batch = 8 },
                                        &(gp_plan_memory){ .sums = sums }, &err),
               err);
    REQUIRE_OK(plugin->backend->run(plan, &(gp_batch){ .count = 8, .first = true }, NULL, NULL, &err), err);
    REQUIRE_OK(plugin->backend->run(plan, &(gp_batch){ .count = 3, .last = true }, NULL, NULL, &err), err);
    CHECK_NEAR(11, sums[0], 0);
    plugin->backend->free(plan);
    plugin->backend->close(backend);
}

/* On a machine with a GPU, this is the first test that uses it; without a driver the test must
 * report that. */
TEST(real_plugin_loads_and_reports_devices)
{
    const gp_plugin *plugin;
    uint8_t id[GP_GROUP_ID_BYTES];
    uint32_t count = 0;
    gp_error err;
    char path[512];

    if (access(built("libgradpool_cuda.so", path), R_OK) != 0)
        SKIP("the CUDA plugin was not built: no toolkit, or GP_CUDA is off");
    gp_status status = gp_plugin_load(&plugin, path, &err);

    if (status == GP_ENOENT)
        SKIP("the CUDA plugin was built, but its libraries are missing at run time: %s", err.message);
    CHECK_STATUS(GP_OK, status);
    CHECK_CONTAINS(plugin->versions, "cuDNN");
    REQUIRE_OK(plugin->backend->steps->group_id(id, &err), err);
    status = plugin->device_count(&count, &err);
    if (status == GP_OK && count > 0) {
        CHECK_STATUS(GP_OK, plugin->self_test(0, &err));
        return;
    }
    CHECK_STATUS(GP_ENODEV, status);
    CHECK_CONTAINS(err.message, "CUDA error");
}
