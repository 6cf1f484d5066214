/* item.h -- inside proto/: reading one msgpack item (a scalar, or the head of a container).
 * The validator and the schema reader share it, so they cannot differ on what a byte means. */
#ifndef GP_ITEM_H
#define GP_ITEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum gp_item_kind {
    GP_ITEM_NIL,
    GP_ITEM_BOOL,
    GP_ITEM_UNSIGNED, /* u; every non-negative integer, however it was packed */
    GP_ITEM_NEGATIVE, /* i < 0 */
    GP_ITEM_FLOAT,    /* f */
    GP_ITEM_TEXT,     /* data, count bytes */
    GP_ITEM_BIN,      /* data, count bytes */
    GP_ITEM_ARRAY,    /* count items follow */
    GP_ITEM_MAP,      /* count pairs follow */
} gp_item_kind;

typedef struct gp_item {
    gp_item_kind kind;
    bool boolean;
    uint64_t u;
    int64_t i;
    double f;
    const uint8_t *data;
    uint32_t count;
} gp_item;

/* A place in the bytes of a message. */
typedef struct gp_cursor {
    const uint8_t *at, *end;
} gp_cursor;

/* Read one item and step over it.  NULL on success, else what is wrong; the cursor has not moved then. */
const char *gp_item_read(gp_cursor *cursor, gp_item *item);

/* Step over one whole value, containers with all they hold. */
const char *gp_item_skip(gp_cursor *cursor);

bool gp_utf8_valid(const uint8_t *text, size_t bytes);

/* Replace each byte that is not part of valid UTF-8 by '?'. */
void gp_utf8_clean(char *text, size_t bytes);

#endif
