/* Parse the two kinds of S3 response documents: a page of a listing (ListObjectsV2), and an error.
 *
 * This is not a complete XML parser. It accepts elements, text, the five predefined entities and
 * numeric ones. Document types, CDATA and all other constructs are rejected. Sizes and nesting
 * depth are limited. */
#ifndef GP_S3_XML_H
#define GP_S3_XML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum {
    /* 1,000 keys with 1,024 bytes, three characters per encoded byte */
    GP_S3_PAGE_BYTES_MAX = 8 << 20,
    GP_S3_PAGE_OBJECTS_MAX = 1000,
    GP_S3_TEXT_BYTES_MAX = 4096,
};

/* An object in a listing. */
typedef struct gp_s3_object {
    const char *key;
    uint64_t bytes;
    uint64_t tag; /* hash of the ETag, see gp_s3_tag(); 0: none */
} gp_s3_object;

/* Receive one object, valid only during the call. A status other than GP_OK ends the listing. */
typedef gp_status (*gp_s3_visit)(void *context, const gp_s3_object *object, gp_error *err);

/* Properties of a page besides its objects. */
typedef struct gp_s3_page {
    bool truncated; /* more objects follow behind the last key */
    uint32_t count;
} gp_s3_page;

/* Call `visit` for each object in a page, in document order. text[bytes] must be NUL. GP_ECORRUPT:
 * malformed; the message has `name` and the byte position. GP_ELIMIT: too many objects. */
gp_status gp_s3_page_parse(gp_s3_page *out, const char *text, size_t bytes, const char *name,
                           gp_s3_visit visit, void *context, gp_error *err);

/* Fields of an S3 error document; "": not present. */
typedef struct gp_s3_problem {
    char code[64], message[160], region[64];
} gp_s3_problem;

/* Parse an error document. Fields that cannot be found stay empty, for example in a proxy's error
 * page. */
void gp_s3_problem_parse(gp_s3_problem *out, const char *text, size_t bytes);

/* Hash an ETag, ignoring quotes. Different tags give different numbers, except for hash collisions.
 * Never returns 0. */
uint64_t gp_s3_tag(const char *etag, size_t bytes);

#endif
