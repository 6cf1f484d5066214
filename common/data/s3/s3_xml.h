/* s3_xml.h -- the two documents that S3 answers with: a page of a listing (ListObjectsV2) and an error.
 *
 * Not XML, but what these are made of: elements, text and the five entities.  Everything has a ceiling; a document type,
 * CDATA and anything else that such a document does not have is refused. */
#ifndef GP_S3_XML_H
#define GP_S3_XML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum {
    GP_S3_PAGE_BYTES_MAX = 8 << 20, /* 1,000 keys of 1,024 bytes, each encoded in three */
    GP_S3_PAGE_OBJECTS_MAX = 1000,
    GP_S3_TEXT_BYTES_MAX = 4096,
};

typedef struct gp_s3_object {
    const char *key;
    uint64_t bytes;
    uint64_t tag; /* of its ETag: gp_s3_tag() */
} gp_s3_object;

typedef gp_status (*gp_s3_visit)(void *context, const gp_s3_object *object, gp_error *err);

/* What a page says besides the objects. */
typedef struct gp_s3_page {
    bool truncated; /* there are more, behind the last key of this one */
    uint32_t count;
} gp_s3_page;

/* gp_s3_page_parse -- visit each object of a page, in its order.  text[bytes] must be NUL.
 * GP_ECORRUPT: not such a document; the message has `name` and the byte.  GP_ELIMIT. */
gp_status gp_s3_page_parse(gp_s3_page *out, const char *text, size_t bytes, const char *name,
                           gp_s3_visit visit, void *context, gp_error *err);

typedef struct gp_s3_problem {
    char code[64], message[160], region[64];
} gp_s3_problem;

/* gp_s3_problem_parse -- what it says, as far as it does: a proxy's page is none. */
void gp_s3_problem_parse(gp_s3_problem *out, const char *text, size_t bytes);

/* Of an ETag, quotes or not: a number that differs when it does; never 0. */
uint64_t gp_s3_tag(const char *etag, size_t bytes);

#endif
