#include "client/cluster/engine.h"
#include "tests/gp_test.h"

TEST(listing_grows_up_to_its_limit)
{
    cluster_listing listing = { 0 };
    cluster_entry *entry;
    gp_error err;

    for (size_t i = 0; i < CLUSTER_ENTRIES_MAX; i++)
        REQUIRE(cluster_listing_add(&listing, &entry, &err) == GP_OK);
    CHECK(entry->name[0] == '\0' && entry->exit_code == -1);
    CHECK_STATUS(GP_ELIMIT, cluster_listing_add(&listing, &entry, &err));
    CHECK(listing.count == CLUSTER_ENTRIES_MAX);
    cluster_listing_deinit(&listing);
    CHECK(listing.count == 0);
    CHECK_STATUS(GP_OK, cluster_listing_add(&listing, &entry, &err));
    cluster_listing_deinit(&listing);
}

TEST(engines_are_found_by_type)
{
    const cluster_engine *engine;

    for (size_t i = 0; (engine = cluster_engine_at(i)) != NULL; i++)
        CHECK(cluster_engine_find(engine->type) == engine);
    CHECK(cluster_engine_find("none") == NULL);
}
