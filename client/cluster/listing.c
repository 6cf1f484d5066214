/* listing.c: the entries of a listing. */
#include "client/cluster/engine.h"

#include "common/base/memory/alloc.h"

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
