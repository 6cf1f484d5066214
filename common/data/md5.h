/* md5.h -- MD5 (RFC 1321), to check downloads against published sums; not for anything secret. */
#ifndef GP_MD5_H
#define GP_MD5_H

#include <stddef.h>
#include <stdint.h>

typedef struct gp_md5 {
    uint32_t state[4];
    uint64_t bytes;    /* so far */
    uint8_t block[64]; /* the bytes that do not fill one yet */
} gp_md5;

enum { GP_MD5_TEXT_BYTES = 33 };

void gp_md5_init(gp_md5 *md5);
void gp_md5_add(gp_md5 *md5, const void *data, size_t bytes);
void gp_md5_finish(gp_md5 *md5, char text[GP_MD5_TEXT_BYTES]); /* 32 hexadecimal digits in lower case */

#endif
