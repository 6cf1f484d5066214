/* sha256.h -- the digest of FIPS 180-4 (2015), section 6.2. */
#ifndef GP_SHA256_H
#define GP_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { GP_SHA256_BYTES = 32, GP_SHA256_TEXT_BYTES = 2 * GP_SHA256_BYTES + 1 };

void gp_sha256(uint8_t digest[GP_SHA256_BYTES], const void *data, size_t bytes);

/* The same piece by piece. */
typedef struct gp_sha256_sum {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t rest[64]; /* of a block that is not whole yet */
} gp_sha256_sum;

void gp_sha256_init(gp_sha256_sum *sum);
void gp_sha256_add(gp_sha256_sum *sum, const void *data, size_t bytes);
/* 64 hexadecimal digits in lower case; the sum is spent. */
void gp_sha256_finish(gp_sha256_sum *sum, char text[GP_SHA256_TEXT_BYTES]);

#endif
