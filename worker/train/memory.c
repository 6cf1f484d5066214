#include "worker/train/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/system/cgroup.h"

uint64_t gp_memory_available(void)
{
    static const char units[] = "KMGT";
    const char *text = getenv("GRADPOOL_WORKER_MEMORY"), *unit;
    uint64_t least = gp_cgroup_memory_read().left, kibibytes;
    FILE *file = fopen("/proc/meminfo", "re");
    double bytes;
    char *end, line[256];

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "MemAvailable: %" SCNu64, &kibibytes) == 1 && kibibytes * 1024 < least)
            least = kibibytes * 1024;
    if (file != NULL)
        fclose(file);
    if (text == NULL || text[0] == '\0')
        return least;
    bytes = strtod(text, &end);
    unit = *end == '\0' ? NULL : strchr(units, *end);
    for (const char *u = units; unit != NULL && u <= unit; u++)
        bytes *= 1024;
    return bytes >= 0 && bytes < 1e18 && (uint64_t)bytes < least ? (uint64_t)bytes : least;
}

double gp_memory_bound(const gp_graph *graph, gp_phase phase, uint32_t samples)
{
    double bytes = 0;

    for (uint32_t v = 0; v < graph->value_count; v++) {
        const gp_value *value = &graph->values[v];
        bool backward = value->role == GP_VALUE_SAVED || value->role == GP_VALUE_ACTIVATION_GRADIENT;

        if (value->role == GP_VALUE_INPUT || value->role == GP_VALUE_ACTIVATION ||
            (backward && phase == GP_PHASE_TRAIN))
            bytes += (double)gp_shape_count(&value->shape) * (double)gp_dtype_bytes(value->dtype);
    }
    return bytes * samples;
}

static gp_status plan_bytes(double *out, const gp_backend_ops *ops, gp_backend *backend,
                            const gp_graph *graph, gp_plan_options options, uint32_t samples,
                            const gp_plan_memory *memory, gp_error *err)
{
    gp_plan *plan;
    gp_status status;

    options.micro_batch = samples;
    status = ops->compile(&plan, backend, graph, &options, memory, err);
    if (status != GP_OK)
        return status;
    *out = (double)ops->memory_bytes(plan);
    ops->free(plan);
    return GP_OK;
}

gp_memory_model gp_memory_measure(const gp_backend_ops *ops, gp_backend *backend, const gp_graph *graph,
                                  const gp_plan_options *options, const gp_plan_memory *memory)
{
    enum { SMALL = 16, LARGE = 32 }; /* multiples of the kernel block size in samples */
    double small = 0, large = 0;

    if (plan_bytes(&small, ops, backend, graph, *options, SMALL, memory, NULL) != GP_OK ||
        plan_bytes(&large, ops, backend, graph, *options, LARGE, memory, NULL) != GP_OK || large <= small)
        return (gp_memory_model){ .each = gp_memory_bound(graph, options->phase, 1) };
    return (gp_memory_model){ .fixed = small - SMALL * (large - small) / (LARGE - SMALL),
                              .each = (large - small) / (LARGE - SMALL) };
}
