/* engines.c: the list of engines, and listings. */
#include "client/cluster/engine.h"

#include <string.h>

#include "client/cluster/command.h"
#include "client/cluster/slurm.h"
#include "common/base/memory/alloc.h"

/* Ordered as shown in help. */
static const cluster_engine *const engines[] = { &cluster_engine_slurm, &cluster_engine_command };

const cluster_engine *cluster_engine_at(size_t index)
{
    return index < sizeof(engines) / sizeof(engines[0]) ? engines[index] : NULL;
}

const cluster_engine *cluster_engine_find(const char *type)
{
    const cluster_engine *engine;

    for (size_t i = 0; (engine = cluster_engine_at(i)) != NULL; i++)
        if (strcmp(engine->type, type) == 0)
            return engine;
    return NULL;
}

gp_status cluster_listing_add(cluster_listing *listing, cluster_entry **out, gp_error *err)
{
    if (listing->count == CLUSTER_ENTRIES_MAX)
        return gp_fail(err, GP_ELIMIT, "the engine lists more than %d jobs", CLUSTER_ENTRIES_MAX);
    if (listing->count == listing->capacity) {
        size_t capacity = listing->capacity == 0 ? 16 : 2 * listing->capacity;
        cluster_entry *entries = gp_realloc_array(listing->entries, capacity, sizeof(*entries));

        if (entries == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for a listing of %zu jobs", capacity);
        listing->entries = entries;
        listing->capacity = capacity;
    }
    *out = &listing->entries[listing->count++];
    **out = (cluster_entry){ .exit_code = -1 };
    return GP_OK;
}

void cluster_listing_deinit(cluster_listing *listing)
{
    gp_free(listing->entries);
    *listing = (cluster_listing){ 0 };
}
