/* Read single msgpack items: a scalar, or the head of a container. Internal to proto/.
 *
 * The validator and the table-driven decoder share this reader, so both interpret every byte
 * alike. */
#ifndef GP_ITEM_H
#define GP_ITEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Item kind, with the gp_item members that it sets. */
typedef enum gp_item_kind {
    GP_ITEM_NIL,
    GP_ITEM_BOOL,
    GP_ITEM_UNSIGNED, /* u; any non-negative integer, also if packed as signed */
    GP_ITEM_NEGATIVE, /* i, always below 0 */
    GP_ITEM_FLOAT,    /* f */
    GP_ITEM_TEXT,     /* data, with `count` bytes */
    GP_ITEM_BIN,      /* data, with `count` bytes */
    GP_ITEM_ARRAY,    /* `count`; that number of items follows */
    GP_ITEM_MAP,      /* `count`; that number of key-value pairs follows */
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

/* Read position in a message. */
typedef struct gp_cursor {
    const uint8_t *at, *end;
} gp_cursor;

/* Read one item and advance the cursor. Return NULL on success, else an error text; the cursor then
 * stays where it was. */
const char *gp_item_read(gp_cursor *cursor, gp_item *item);

/* Skip one value, including all container elements. Return NULL on success, else an error text. */
const char *gp_item_skip(gp_cursor *cursor);

#endif
