/* crc32c.h -- the Castagnoli checksum (RFC 3720, appendix B.4), by the processor's instruction where it has one. */
#ifndef GP_CRC32C_H
#define GP_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Of the bytes seen so far and these; begin with 0. */
uint32_t gp_crc32c(uint32_t crc, const void *data, size_t bytes);

#endif
