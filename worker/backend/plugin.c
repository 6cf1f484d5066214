#include "worker/backend/plugin.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/system/process.h"

#define PLUGIN_FILE "libgradpool_cuda.so"

/* Store the path of libgradpool_cuda.so if that file is readable in ../lib (a build folder) or
 * ../lib/gradpool (an installation) beside the executable. Otherwise store the bare file name,
 * which dlopen() searches in the library path. */
static void plugin_default_path(char *path, size_t bytes)
{
    static const char *const folders[] = { "../lib", "../lib/gradpool" };
    char self[PATH_MAX], beside[PATH_MAX + 40];

    snprintf(path, bytes, "%s", PLUGIN_FILE);
    if (gp_program_path(self, sizeof(self), NULL) != GP_OK)
        return;
    *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(beside, sizeof(beside), "%s/%s/%s", self, folders[i], PLUGIN_FILE);
        if (access(beside, R_OK) == 0) {
            snprintf(path, bytes, "%s", beside);
            return;
        }
    }
}

gp_status gp_plugin_load(const gp_plugin **out, const char *path, gp_error *err)
{
    char found[PATH_MAX + 40];
    gp_plugin_entry_fn entry;
    const gp_backend_ops *ops;
    const gp_plugin *plugin;
    void *library;

    if (path == NULL)
        path = getenv("GRADPOOL_CUDA_PLUGIN");
    if (path == NULL) {
        plugin_default_path(found, sizeof(found));
        path = found;
    }
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return gp_fail(err, GP_ENOENT, "cannot load the GPU plugin: %s", dlerror());
    *(void **)&entry = dlsym(library, GP_PLUGIN_SYMBOL);
    plugin = entry != NULL ? entry() : NULL;
    if (plugin == NULL)
        return gp_fail(err, GP_EPROTO, "%s is not a gradpool plugin: it lacks the symbol %s", path,
                       GP_PLUGIN_SYMBOL);
    if (plugin->abi != GP_PLUGIN_ABI)
        return gp_fail(err, GP_EVERSION,
                       "%s has plugin interface version %" PRIu32
                       ", but this worker has version %u; build both together",
                       path, plugin->abi, GP_PLUGIN_ABI);
    /* only the last six backend slots are optional */
    ops = plugin->backend;
    if (plugin->name == NULL || plugin->versions == NULL || plugin->driver == NULL ||
        plugin->device_count == NULL || plugin->device == NULL || plugin->self_test == NULL ||
        plugin->peer == NULL || plugin->profile == NULL || ops == NULL || ops->name == NULL ||
        ops->open == NULL || ops->close == NULL || ops->compile == NULL || ops->free == NULL ||
        ops->run == NULL || ops->sync == NULL || ops->take_times == NULL || ops->memory_bytes == NULL ||
        ops->describe == NULL)
        return gp_fail(err, GP_EPROTO, "%s has an incomplete plugin interface", path);
    *out = plugin;
    return GP_OK;
}

gp_status gp_plugin_load_device(const gp_plugin **out, const char *path, gp_error *err)
{
    const gp_plugin *plugin;
    uint32_t count = 0;
    gp_status status = gp_plugin_load(&plugin, path, err);

    if (status == GP_OK)
        status = plugin->device_count(&count, err);
    if (status == GP_OK && count == 0)
        status = gp_fail(err, GP_ENODEV, "the driver is loaded but reports no device");
    if (status == GP_OK)
        *out = plugin;
    return status;
}
