/* index.h -- finds the entries of a table by a key: a hash table of their numbers, which its owner hashes and compares.
 *
 * Open addressing, linear probing, deletion by moving back (Knuth, The Art of Computer Programming, vol. 3, 6.4, algorithms
 * L and R).  It has twice as many slots as entries and doubles them as it fills; all that it can come to is reserved at the
 * beginning and touched only when it is used: a table of a hundred thousand that has a thousand costs what a thousand cost. */
#ifndef GP_INDEX_H
#define GP_INDEX_H

#include <stdbool.h>
#include <stdint.h>

typedef struct gp_index {
    /* Of the owner: entries are numbered from 1. */
    const void *owner;
    uint64_t (*hash)(const void *owner, uint32_t entry);
    bool (*is)(const void *owner, uint32_t entry, const void *key);
    /* Private. */
    /* Those in use are slots[slot_count .. 2 * slot_count): doubling needs no other memory. */
    uint32_t *slots;
    uint32_t slot_count, entry_count, entries_max;
} gp_index;

/* gp_index_init -- owner, hash and is are set; released with gp_index_deinit().  False: no memory. */
bool gp_index_init(gp_index *index, uint32_t entries_max);
void gp_index_deinit(gp_index *index);

/* The entry is not there, and is hashed as it is now; at most entries_max are there at once. */
void gp_index_add(gp_index *index, uint32_t entry);
/* It is there, and hashed as it was when it was added. */
void gp_index_remove(gp_index *index, uint32_t entry);
/* The entry whose key it is; 0: there is none. */
uint32_t gp_index_find(const gp_index *index, uint64_t hash, const void *key);

/* For hashes: every bit of x changes half of the result's. */
uint64_t gp_index_mix(uint64_t x);
/* Of 16 bytes. */
uint64_t gp_index_hash(const uint8_t bytes[16]);

#endif
