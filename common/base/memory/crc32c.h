/* CRC32C, the Castagnoli checksum (RFC 3720, appendix B.4). x86-64 processors with SSE4.2 compute
 * it with an instruction. */
#ifndef GP_CRC32C_H
#define GP_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Return the checksum of all bytes so far: those summarized in `crc`, followed by `data`. The
 * initial crc is 0. */
uint32_t gp_crc32c(uint32_t crc, const void *data, size_t bytes);

#endif
