/* Compute CRC32C with the SSE4.2 instruction, or with tables on other processors. */
#include "common/base/memory/crc32c.h"

#include <string.h>

enum { POLYNOMIAL = (int)0x82f63b78u }; /* bits in reversed order */

/* Update a CRC bit by bit, without tables. */
static uint32_t crc_bytewise(uint32_t crc, const uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ ((crc & 1) != 0 ? (uint32_t)POLYNOMIAL : 0);
    }
    return crc;
}

#if defined(__x86_64__)

/* Update a CRC with the crc32 instruction, 8 bytes at a time. */
__attribute__((target("sse4.2"))) static uint32_t crc_instruction(uint32_t crc, const uint8_t *data,
                                                                  size_t bytes)
{
    uint64_t wide = crc, word;

    for (; bytes >= sizeof(word); data += sizeof(word), bytes -= sizeof(word)) {
        memcpy(&word, data, sizeof(word));
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    for (; bytes > 0; data++, bytes--)
        crc = __builtin_ia32_crc32qi(crc, *data);
    return crc;
}

uint32_t gp_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    crc = ~crc;
    return ~(__builtin_cpu_supports("sse4.2") ? crc_instruction(crc, data, bytes)
                                              : crc_bytewise(crc, data, bytes));
}

#else

/* Slicing-by-8 tables: one step consumes eight bytes (Kounavis and Berry, 2005). */
static uint32_t tables[8][256];

__attribute__((constructor)) static void tables_make(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint8_t byte = (uint8_t)i;

        tables[0][i] = crc_bytewise(0, &byte, 1);
    }
    for (int t = 1; t < 8; t++)
        for (uint32_t i = 0; i < 256; i++)
            tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 0xff];
}

uint32_t gp_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    const uint8_t *at = data;

    crc = ~crc;
    for (; bytes >= 8; at += 8, bytes -= 8) {
        uint32_t low =
            crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);

        crc = tables[7][low & 0xff] ^ tables[6][low >> 8 & 0xff] ^ tables[5][low >> 16 & 0xff] ^
              tables[4][low >> 24];
        crc ^= tables[3][at[4]] ^ tables[2][at[5]] ^ tables[1][at[6]] ^ tables[0][at[7]];
    }
    return ~crc_bytewise(crc, at, bytes);
}

#endif
