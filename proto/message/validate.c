/* Validate msgpack bytes from a peer, and read single items from them.
 *
 * The unpacker of msgpack-c believes the counts in its input: five bytes can make it allocate
 * gigabytes. No byte is therefore decoded before gp_msgpack_validate() has checked the whole
 * message. The validator makes one pass with a fixed stack, which counts the values still to come
 * on each level, and allocates no memory. */
#include <string.h>

#include "common/base/printable.h"
#include "proto/message/codec.h"
#include "proto/message/item.h"

static void signed_set(gp_item *item, int64_t value)
{
    if (value < 0) {
        item->kind = GP_ITEM_NEGATIVE;
        item->i = value;
    } else {
        item->kind = GP_ITEM_UNSIGNED;
        item->u = (uint64_t)value;
    }
}

/* Item kind for a tag in [0xc0, 0xdf], and width in bytes for the number after the tag. TEXT, BIN,
 * ARRAY and MAP always have a width: their short forms have tags below 0xc0. */
typedef struct item_shape {
    signed char kind; /* gp_item_kind, REFUSED or SIGNED */
    unsigned char width;
} item_shape;

enum { REFUSED = -1, SIGNED = -2 };

static const item_shape shapes[32] = {
    { GP_ITEM_NIL, 0 },      { REFUSED, 0 },          { GP_ITEM_BOOL, 0 },     { GP_ITEM_BOOL, 0 },
    { GP_ITEM_BIN, 1 },      { GP_ITEM_BIN, 2 },      { GP_ITEM_BIN, 4 },      { REFUSED, 0 }, /* ext */
    { REFUSED, 0 },          { REFUSED, 0 },          { GP_ITEM_FLOAT, 4 },    { GP_ITEM_FLOAT, 8 },
    { GP_ITEM_UNSIGNED, 1 }, { GP_ITEM_UNSIGNED, 2 }, { GP_ITEM_UNSIGNED, 4 }, { GP_ITEM_UNSIGNED, 8 },
    { SIGNED, 1 },           { SIGNED, 2 },           { SIGNED, 4 },           { SIGNED, 8 },
    { REFUSED, 0 },          { REFUSED, 0 },          { REFUSED, 0 },          { REFUSED, 0 }, /* fixext */
    { REFUSED, 0 },          { GP_ITEM_TEXT, 1 },     { GP_ITEM_TEXT, 2 },     { GP_ITEM_TEXT, 4 },
    { GP_ITEM_ARRAY, 2 },    { GP_ITEM_ARRAY, 4 },    { GP_ITEM_MAP, 2 },      { GP_ITEM_MAP, 4 },
};

/* Read an item with a tag in [0xc0, 0xdf]; `at` points behind the tag. Set all members except
 * `data`. Return the byte width that follows the tag; -1: the tag is refused or the input is too
 * short. */
static int item_read_sized(gp_item *item, uint8_t tag, const uint8_t *at, size_t left)
{
    item_shape shape = shapes[tag - 0xc0];

    if (shape.kind == REFUSED || left < shape.width)
        return -1;
    uint64_t number = 0;

    for (unsigned i = 0; i < shape.width; i++) /* big-endian */
        number = number << 8 | at[i];

    if (shape.kind == SIGNED) {
        unsigned unused = 64 - 8u * shape.width;

        signed_set(item, (int64_t)(number << unused) >> unused);
        return shape.width;
    }
    item->kind = (gp_item_kind)shape.kind;
    item->boolean = tag == 0xc3;
    item->u = number;
    item->count = (uint32_t)number;
    if (item->kind == GP_ITEM_FLOAT && shape.width == 4) {
        float value;

        memcpy(&value, &item->count, sizeof(value));
        item->f = value;
    } else if (item->kind == GP_ITEM_FLOAT) {
        memcpy(&item->f, &number, sizeof(item->f));
    }
    return shape.width;
}

const char *gp_item_read(gp_cursor *cursor, gp_item *item)
{
    const uint8_t *at = cursor->at;

    if (at == cursor->end)
        return "a value is missing";
    uint8_t tag = *at++;

    *item = (gp_item){ .kind = GP_ITEM_UNSIGNED, .u = tag };
    if (tag >= 0xe0) {
        signed_set(item, (int8_t)tag);
    } else if (tag >= 0xc0) {
        int width = item_read_sized(item, tag, at, (size_t)(cursor->end - at));

        if (width < 0)
            return shapes[tag - 0xc0].kind == REFUSED ? "a type that is not allowed (ext or 0xc1)"
                                                      : "a value is truncated";
        at += width;
    } else if (tag >= 0x80) {
        item->kind = tag >= 0xa0 ? GP_ITEM_TEXT : tag >= 0x90 ? GP_ITEM_ARRAY : GP_ITEM_MAP;
        item->count = tag & (tag >= 0xa0 ? 0x1f : 0x0f);
    }
    if (item->kind == GP_ITEM_TEXT || item->kind == GP_ITEM_BIN) {
        if ((size_t)(cursor->end - at) < item->count)
            return "a text or bin is longer than the remaining bytes";
        item->data = at;
        at += item->count;
    }
    cursor->at = at;
    return NULL;
}

/* Return how many items a container holds; 0 for other items. */
static uint64_t item_children(const gp_item *item)
{
    return item->kind == GP_ITEM_ARRAY ? item->count
           : item->kind == GP_ITEM_MAP ? 2 * (uint64_t)item->count
                                       : 0;
}

const char *gp_item_skip(gp_cursor *cursor)
{
    gp_item item;

    for (uint64_t left = 1; left != 0; left--) {
        const char *wrong = gp_item_read(cursor, &item);

        if (wrong != NULL)
            return wrong;
        left += item_children(&item);
    }
    return NULL;
}

gp_status gp_msgpack_validate(const void *bytes, size_t count, gp_error *err)
{
    const uint8_t *start = count == 0 ? (const uint8_t *)"" : bytes;
    gp_cursor cursor = { start, start + count };
    uint64_t left[GP_MSGPACK_DEPTH_MAX + 1] = { 1 }; /* values still to come, by level */
    unsigned depth = 0;
    const char *wrong = NULL;
    const uint8_t *here = start;
    gp_item item;

    for (unsigned nodes = 0; wrong == NULL; nodes++) {
        while (depth != 0 && left[depth] == 0)
            depth--;
        if (left[depth] == 0)
            break;
        left[depth]--;
        here = cursor.at;
        if (nodes == GP_MSGPACK_NODES_MAX) {
            wrong = "more than 65,536 values";
            break;
        }
        wrong = gp_item_read(&cursor, &item);
        if (wrong != NULL)
            break;
        if (item_children(&item) > (size_t)(cursor.end - cursor.at))
            wrong = "a container has more values than bytes remain";
        else if (item.kind == GP_ITEM_TEXT && item.count > GP_MSGPACK_TEXT_MAX)
            wrong = "a text has more than 64 KiB";
        else if (item.kind == GP_ITEM_TEXT && !gp_utf8_valid(item.data, item.count))
            wrong = "a text is not UTF-8";
        else if (item_children(&item) != 0 && depth == GP_MSGPACK_DEPTH_MAX)
            wrong = "more than 16 levels of nesting";
        else if (item_children(&item) != 0)
            left[++depth] = item_children(&item);
    }
    if (wrong == NULL && cursor.at != cursor.end) {
        here = cursor.at;
        wrong = "extra bytes after the value";
    }
    if (wrong != NULL)
        return gp_fail(err, GP_EPROTO, "malformed message: %s (at byte %zu of %zu)", wrong,
                       (size_t)(here - start), count);
    return GP_OK;
}
