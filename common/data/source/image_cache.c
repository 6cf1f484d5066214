/* Memory cache for decoded images: a lock-free table of places and an arena that only grows. */
#include "common/data/source/image_parts.h"

#include "common/base/memory/alloc.h"

enum { FILLING = 1, FIRST = 16, ALIGNMENT = 16 };

gp_status gp_image_cache_init(gp_image_cache *cache, uint32_t count, size_t limit, gp_error *err)
{
    *cache = (gp_image_cache){ .count = count, .limit = limit, .used = FIRST };
    if (limit <= FIRST + sizeof(gp_image_kept))
        return GP_OK;
    cache->places = gp_reserve(count * sizeof(*cache->places));
    cache->arena = gp_reserve(limit);
    if (cache->places != NULL && cache->arena != NULL)
        return GP_OK;
    gp_image_cache_deinit(cache);
    return gp_fail(err, GP_ENOMEM, "no memory for a cache of %zu bytes of decoded images", limit);
}

void gp_image_cache_deinit(gp_image_cache *cache)
{
    gp_unreserve(cache->places, cache->count * sizeof(*cache->places));
    gp_unreserve(cache->arena, cache->limit);
    *cache = (gp_image_cache){ 0 };
}

const gp_image_kept *gp_image_cache_get(const gp_image_cache *cache, uint32_t index)
{
    uint64_t place =
        cache->arena == NULL ? 0 : atomic_load_explicit(&cache->places[index], memory_order_acquire);

    return place <= FILLING ? NULL : (const gp_image_kept *)(const void *)(cache->arena + place);
}

static size_t place_bytes(size_t bytes)
{
    return (sizeof(gp_image_kept) + bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

bool gp_image_cache_has_room(const gp_image_cache *cache, size_t bytes)
{
    return cache->arena != NULL &&
           atomic_load_explicit(&cache->used, memory_order_relaxed) + place_bytes(bytes) <= cache->limit;
}

gp_image_kept *gp_image_cache_begin(gp_image_cache *cache, uint32_t index, size_t bytes)
{
    size_t whole = place_bytes(bytes), at = atomic_load_explicit(&cache->used, memory_order_relaxed);
    uint64_t nowhere = 0;

    if (cache->arena == NULL ||
        !atomic_compare_exchange_strong(&cache->places[index], &nowhere, (uint64_t)FILLING))
        return NULL;
    do {
        if (at + whole > cache->limit) {
            atomic_store(&cache->places[index], 0);
            return NULL;
        }
    } while (!atomic_compare_exchange_weak(&cache->used, &at, at + whole));
    return (gp_image_kept *)(void *)(cache->arena + at);
}

void gp_image_cache_end(gp_image_cache *cache, uint32_t index, const gp_image_kept *place)
{
    atomic_store_explicit(&cache->places[index], (uint64_t)((const uint8_t *)place - cache->arena),
                          memory_order_release);
}
