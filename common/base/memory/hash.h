/* FNV-1a hash, 64 bits (Fowler, Noll, Vo). Checkpoints and cached files contain such hashes, so the
 * function must never change. */
#ifndef GP_HASH_H
#define GP_HASH_H

#include <stddef.h>
#include <stdint.h>

#define GP_HASH_BEGIN UINT64_C(0xcbf29ce484222325) /* hash of the empty string */

/* Return the hash of all bytes so far: those summarized in `hash`, followed by `data`. */
static inline uint64_t gp_hash_add(uint64_t hash, const void *data, size_t bytes)
{
    const uint8_t *byte = data;

    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Add a number to a hash as eight little-endian bytes, whatever the byte order of the machine. */
static inline uint64_t gp_hash_add_number(uint64_t hash, uint64_t number)
{
    uint8_t byte[8];

    for (int i = 0; i < 8; i++)
        byte[i] = (uint8_t)(number >> 8 * i);
    return gp_hash_add(hash, byte, sizeof(byte));
}

#endif
