/* Compare the index with a plain array, with colliding hashes, through all sizes up to the
 * maximum. */
#include "scheduler/core/index.h"

#include "common/base/rng.h"
#include "tests/gp_test.h"

enum { ENTRIES = 3000 };

static uint64_t keys[ENTRIES + 1];
static bool there[ENTRIES + 1];

/* Hash that produces collisions and adjacent runs, including runs that wrap around the end. */
static uint64_t hash_of(uint64_t key)
{
    return key % 50 == 0 ? UINT64_MAX : key / 3;
}

static uint64_t hash(const void *owner, uint32_t entry)
{
    return hash_of(((const uint64_t *)owner)[entry]);
}

static bool is(const void *owner, uint32_t entry, const void *key)
{
    return ((const uint64_t *)owner)[entry] == *(const uint64_t *)key;
}

static void check_all(const gp_index *index, uint32_t count)
{
    for (uint32_t entry = 1; entry <= ENTRIES; entry++)
        if (gp_index_find(index, hash_of(keys[entry]), &keys[entry]) != (there[entry] ? entry : 0)) {
            GP_TEST_FAIL("entry %u of %u is %s", entry, count, there[entry] ? "not found" : "found");
            return;
        }
}

TEST(index_finds_added_entries_and_no_removed_ones)
{
    gp_index index = { .owner = keys, .hash = hash, .is = is };
    uint32_t count = 0, drawn[4];

    REQUIRE(gp_index_init(&index, ENTRIES));
    for (uint32_t entry = 1; entry <= ENTRIES; entry++)
        keys[entry] = entry;
    for (int turn = 0; turn < 40000 && gp_test_failures == 0; turn++) {
        gp_rng_draw(drawn, 7, 0, 0, (uint32_t)turn, 0);
        uint32_t entry = 1 + drawn[0] % ENTRIES;
        /* up to nearly full, then down to a few entries */
        bool grows = drawn[1] % 100 < (turn < 20000 ? 80 : 20);

        if (grows == there[entry])
            continue;
        if (grows)
            gp_index_add(&index, entry);
        else
            gp_index_remove(&index, entry);
        there[entry] = grows;
        count += grows ? 1 : -1u;
        if (turn % 1000 == 0)
            check_all(&index, count);
    }
    check_all(&index, count);
    gp_index_deinit(&index);
}
