/* sha256.h -- the digest of FIPS 180-4 (2015), section 6.2. */
#ifndef GP_SHA256_H
#define GP_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { GP_SHA256_BYTES = 32 };

void gp_sha256(uint8_t digest[GP_SHA256_BYTES], const void *data, size_t bytes);

#endif
