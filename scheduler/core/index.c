/* Hash table with linear probing. index.h describes the interface. */
#include "scheduler/core/index.h"

#include <assert.h>
#include <string.h>

#include "common/base/memory/alloc.h"

enum { SLOTS_MIN = 16 };

uint64_t gp_index_mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ull;
    return x ^ x >> 33;
}

uint64_t gp_index_hash(const uint8_t bytes[16])
{
    uint64_t halves[2];

    memcpy(halves, bytes, sizeof(halves));
    return gp_index_mix(gp_index_mix(halves[0]) ^ halves[1]);
}

bool gp_index_init(gp_index *index, uint32_t entries_max)
{
    uint32_t slots = SLOTS_MIN;

    while (slots / 2 < entries_max)
        slots *= 2;
    index->slots = gp_calloc(2 * (size_t)slots, sizeof(*index->slots));
    index->slot_count = SLOTS_MIN;
    index->entry_count = 0;
    index->entries_max = entries_max;
    return index->slots != NULL;
}

void gp_index_deinit(gp_index *index)
{
    gp_free(index->slots);
    index->slots = NULL;
}

/* Return the active slot at a position, modulo the active size. */
static uint32_t *slot_at(const gp_index *index, uint64_t at)
{
    return &index->slots[index->slot_count + (at & (index->slot_count - 1))];
}

/* Insert an entry in the first free slot at or after the home position. */
static void put(gp_index *index, uint32_t entry)
{
    uint64_t at = index->hash(index->owner, entry);

    while (*slot_at(index, at) != 0)
        at++;
    *slot_at(index, at) = entry;
}

void gp_index_add(gp_index *index, uint32_t entry)
{
    assert(entry != 0 && index->entry_count < index->entries_max);
    if (++index->entry_count > index->slot_count / 2) {
        const uint32_t *old = &index->slots[index->slot_count], *end = old + index->slot_count;

        index->slot_count *= 2; /* the new slots are zero: they have never been used */
        for (; old < end; old++)
            if (*old != 0)
                put(index, *old);
    }
    put(index, entry);
}

void gp_index_remove(gp_index *index, uint32_t entry)
{
    uint64_t at = index->hash(index->owner, entry), mask = index->slot_count - 1;

    while (*slot_at(index, at) != entry) {
        assert(*slot_at(index, at) != 0);
        at++;
    }
    *slot_at(index, at) = 0;
    index->entry_count--;
    for (uint64_t next = at + 1; *slot_at(index, next) != 0; next++) {
        uint64_t home = index->hash(index->owner, *slot_at(index, next));

        /* The entry may move into the hole unless the home position lies behind the hole. */
        if (((next - home) & mask) >= ((next - at) & mask)) {
            *slot_at(index, at) = *slot_at(index, next);
            *slot_at(index, next) = 0;
            at = next;
        }
    }
}

uint32_t gp_index_find(const gp_index *index, uint64_t hash, const void *key)
{
    uint32_t entry;

    while ((entry = *slot_at(index, hash)) != 0 && !index->is(index->owner, entry, key))
        hash++;
    return entry;
}
