/* Hash table that finds the entries of an owner's table by key. It stores entry numbers only; the
 * owner supplies the hash and compare functions.
 *
 * The table uses open addressing with linear probing and backward-shift deletion (Knuth, The Art of
 * Computer Programming, vol. 3, 6.4, algorithms L and R). Capacity is at least twice the entry
 * count and doubles as the table fills. gp_index_init() reserves memory for the maximum, but unused
 * pages are never touched: a table for 100,000 entries that holds 1,000 costs as much as one for
 * 1,000. */
#ifndef GP_INDEX_H
#define GP_INDEX_H

#include <stdbool.h>
#include <stdint.h>

typedef struct gp_index {
    /* Set by the owner. Entries are numbered from 1. */
    const void *owner;
    uint64_t (*hash)(const void *owner, uint32_t entry);
    bool (*is)(const void *owner, uint32_t entry, const void *key);
    /* Private. The active slots are slots[slot_count .. 2 * slot_count), so doubling needs no new
     * memory. */
    uint32_t *slots;
    uint32_t slot_count, entry_count, entries_max;
} gp_index;

/* Initialize an index whose owner, hash and is are set. Release it with gp_index_deinit(). False:
 * out of memory. */
bool gp_index_init(gp_index *index, uint32_t entries_max);
void gp_index_deinit(gp_index *index);

/* Add an entry that is not in the index. At most entries_max entries fit. */
void gp_index_add(gp_index *index, uint32_t entry);

/* Remove an entry. The hash must not have changed since gp_index_add(). */
void gp_index_remove(gp_index *index, uint32_t entry);

/* Find the entry with this key. 0: no such entry. */
uint32_t gp_index_find(const gp_index *index, uint64_t hash, const void *key);

/* Mix a 64-bit hash: each input bit flips about half of the output bits. */
uint64_t gp_index_mix(uint64_t x);

/* Hash 16 bytes. */
uint64_t gp_index_hash(const uint8_t bytes[16]);

#endif
