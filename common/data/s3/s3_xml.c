/* A minimal parser for S3 response documents. It accepts elements, text and entities, and rejects
 * all else. */
#include "common/data/s3/s3_xml.h"
#include "common/base/memory/hash.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 8, NAME_MAX_BYTES = 64 };

/* Parser position, and the names of the open elements. */
typedef struct xml_scan {
    const char *text, *at, *end;
    char open[DEPTH_MAX][NAME_MAX_BYTES];
    int depth;
    /* text of the element closed last, if it had no child elements */
    char value[GP_S3_TEXT_BYTES_MAX];
    bool closed;       /* the last step closed the element named open[depth] */
    const char *cause; /* why parsing failed; NULL: no failure */
} xml_scan;

static bool scan_fail(xml_scan *scan, const char *cause)
{
    scan->cause = cause;
    return false;
}

/* Encode a code point as UTF-8. Return the number of bytes; 0: not a valid code point. */
static size_t utf8_put(char out[4], unsigned long code)
{
    if (code == 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return 0;
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/* Decode an entity such as &amp; or &#38;. Return the position behind it; NULL: malformed or
 * unknown. */
static const char *entity_take(const char *at, const char *end, char out[4], size_t *bytes)
{
    static const struct {
        const char *text;
        char is;
    } named[] = { { "&amp;", '&' }, { "&lt;", '<' }, { "&gt;", '>' }, { "&quot;", '"' }, { "&apos;", '\'' } };
    char digits[12];
    size_t length;

    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++) {
        length = strlen(named[i].text);
        if ((size_t)(end - at) >= length && memcmp(at, named[i].text, length) == 0) {
            out[0] = named[i].is;
            *bytes = 1;
            return at + length;
        }
    }
    if (end - at < 4 || at[1] != '#')
        return NULL;
    at += 2;
    for (length = 0; at + length < end && at[length] != ';'; length++)
        if (length == sizeof(digits) - 1)
            return NULL;
    if (at + length == end || length == 0)
        return NULL;
    memcpy(digits, at, length);
    digits[length] = '\0';
    if (digits[0] == 'x' ? strspn(digits + 1, "0123456789abcdefABCDEF") != length - 1 || length == 1
                         : strspn(digits, "0123456789") != length)
        return NULL;
    *bytes = utf8_put(out, digits[0] == 'x' ? strtoul(digits + 1, NULL, 16) : strtoul(digits, NULL, 10));
    return *bytes == 0 ? NULL : at + length + 1;
}

/* Decode text up to the next '<' into scan->value. */
static bool text_take(xml_scan *scan)
{
    size_t used = 0;

    while (scan->at < scan->end && *scan->at != '<') {
        char put[4] = { *scan->at };
        size_t bytes = 1;

        if (*scan->at == '\0')
            return scan_fail(scan, "a NUL byte");
        if (*scan->at == '&') {
            scan->at = entity_take(scan->at, scan->end, put, &bytes);
            if (scan->at == NULL) {
                scan->at = scan->end;
                return scan_fail(scan, "an unknown entity");
            }
        } else {
            scan->at++;
        }
        if (used + bytes >= sizeof(scan->value))
            return scan_fail(scan, "a text with more than 4095 bytes");
        memcpy(scan->value + used, put, bytes);
        used += bytes;
    }
    scan->value[used] = '\0';
    return true;
}

/* Parse one tag and the text before it. Return false at the end, or on failure (scan->cause is
 * set). */
static bool scan_step(xml_scan *scan)
{
    const char *name, *close;
    bool ends, empty;

    scan->closed = false;
    if (!text_take(scan))
        return false;
    if (scan->at == scan->end)
        return scan->depth == 0 ? false : scan_fail(scan, "truncated");
    close = memchr(scan->at, '>', (size_t)(scan->end - scan->at));
    if (close == NULL)
        return scan_fail(scan, "truncated");
    name = scan->at + 1;
    if (*name == '?' && scan->depth == 0) {
        scan->at = close + 1;
        return true;
    }
    ends = *name == '/';
    name += ends;
    scan->at = name;
    while (scan->at < close && (isalnum((unsigned char)*scan->at) || strchr(":_-.", *scan->at) != NULL))
        scan->at++;
    empty = !ends && close[-1] == '/';
    const size_t length = (size_t)(scan->at - name);

    if (!ends && (length == 0 || length >= NAME_MAX_BYTES))
        return scan_fail(scan, "an element with an empty or long name");
    if (!ends && scan->depth == DEPTH_MAX)
        return scan_fail(scan, "too many nested elements");
    if (!ends) {
        memcpy(scan->open[scan->depth], name, length);
        scan->open[scan->depth++][length] = '\0';
    } else if (scan->depth == 0 || strlen(scan->open[scan->depth - 1]) != length ||
               memcmp(scan->open[scan->depth - 1], name, length) != 0) {
        return scan_fail(scan, "an end tag without a start tag");
    }
    if (empty)
        scan->value[0] = '\0';
    scan->closed = ends || empty;
    scan->depth -= scan->closed;
    scan->at = close + 1;
    return true;
}

static bool is_closed(const xml_scan *scan, int depth, const char *name)
{
    return scan->closed && scan->depth == depth && strcmp(scan->open[depth], name) == 0;
}

/* Decode %XX, and + as a space, in place. Return false if malformed, or if a zero byte results. */
static bool url_decode(char *text)
{
    char *out = text;

    for (; *text != '\0'; text++) {
        char digits[3] = { 0 };

        *out = *text == '+' ? ' ' : *text;
        if (*text == '%') {
            digits[0] = text[1];
            digits[1] = text[1] == '\0' ? '\0' : text[2];
            if (strspn(digits, "0123456789abcdefABCDEF") != 2)
                return false;
            *out = (char)strtoul(digits, NULL, 16);
            if (*out == '\0')
                return false;
            text += 2;
        }
        out++;
    }
    *out = '\0';
    return true;
}

uint64_t gp_s3_tag(const char *etag, size_t bytes)
{
    uint64_t hash = GP_HASH_BEGIN;

    for (size_t i = 0; i < bytes; i++)
        if (etag[i] != '"')
            hash = gp_hash_add(hash, &etag[i], 1);
    return hash == 0 ? 1 : hash;
}

/* Properties of the object being parsed. */
typedef struct object_parts {
    char key[GP_S3_TEXT_BYTES_MAX];
    bool has_key, has_size;
    gp_s3_object object;
} object_parts;

static bool object_take(xml_scan *scan, object_parts *parts, bool encoded)
{
    if (is_closed(scan, 2, "Key")) {
        strcpy(parts->key, scan->value);
        parts->has_key = parts->key[0] != '\0' && (!encoded || url_decode(parts->key));
        if (!parts->has_key)
            return scan_fail(scan, "a malformed key");
    } else if (is_closed(scan, 2, "Size")) {
        char *end;

        parts->object.bytes = strtoull(scan->value, &end, 10);
        parts->has_size = scan->value[0] >= '0' && scan->value[0] <= '9' && *end == '\0' &&
                          parts->object.bytes < (uint64_t)1 << 60;
        if (!parts->has_size)
            return scan_fail(scan, "a malformed size");
    } else if (is_closed(scan, 2, "ETag")) {
        parts->object.tag = gp_s3_tag(scan->value, strlen(scan->value));
    }
    return true;
}

gp_status gp_s3_page_parse(gp_s3_page *out, const char *text, size_t bytes, const char *name,
                           gp_s3_visit visit, void *context, gp_error *err)
{
    /* Some servers put EncodingType behind the keys, so search for it first. A '<' in a key would
     * be an entity, so the search cannot match a key. */
    const bool encoded = strstr(text, "<EncodingType>url</EncodingType>") != NULL;
    xml_scan scan = { .text = text, .at = text, .end = text + bytes };
    object_parts parts = { .has_key = false };
    bool listing = false;
    gp_status status = GP_OK;

    *out = (gp_s3_page){ .truncated = false };
    while (status == GP_OK && scan.cause == NULL && scan_step(&scan)) {
        if (!scan.closed && scan.depth == 1 && strcmp(scan.open[0], "ListBucketResult") == 0)
            listing = true;
        if (!scan.closed && scan.depth == 2 && strcmp(scan.open[1], "Contents") == 0)
            parts = (object_parts){ .has_key = false };
        if (scan.closed && scan.depth == 2 && strcmp(scan.open[1], "Contents") == 0 &&
            !object_take(&scan, &parts, encoded))
            break;
        if (is_closed(&scan, 1, "IsTruncated"))
            out->truncated = strcmp(scan.value, "true") == 0;
        if (!is_closed(&scan, 1, "Contents"))
            continue;
        if (!parts.has_key || !parts.has_size)
            scan_fail(&scan, "an object without a key or a size");
        else if (out->count++ == GP_S3_PAGE_OBJECTS_MAX)
            status =
                gp_fail(err, GP_ELIMIT, "%s: a page has more than %d objects", name, GP_S3_PAGE_OBJECTS_MAX);
        else {
            parts.object.key = parts.key;
            status = visit(context, &parts.object, err);
        }
    }
    if (status == GP_OK && scan.cause == NULL && !listing)
        scan_fail(&scan, "not a ListBucketResult");
    return scan.cause == NULL ? status
                              : gp_fail(err, GP_ECORRUPT, "%s: malformed listing at byte %zu of %zu: %s",
                                        name, (size_t)(scan.at - text), bytes, scan.cause);
}

/* Copy text, truncated to fit, with control characters replaced by spaces. */
static void words_copy(char *out, size_t bytes, const char *from)
{
    size_t used = 0;

    for (; *from != '\0' && used + 1 < bytes; from++)
        out[used++] = (unsigned char)*from < ' ' ? ' ' : *from;
    out[used] = '\0';
}

void gp_s3_problem_parse(gp_s3_problem *out, const char *text, size_t bytes)
{
    xml_scan scan = { .text = text, .at = text, .end = text + bytes };

    *out = (gp_s3_problem){ .code = "" };
    while (scan_step(&scan)) {
        if (!scan.closed || scan.depth != 1 || strcmp(scan.open[0], "Error") != 0)
            continue;
        if (strcmp(scan.open[1], "Code") == 0)
            words_copy(out->code, sizeof(out->code), scan.value);
        if (strcmp(scan.open[1], "Message") == 0)
            words_copy(out->message, sizeof(out->message), scan.value);
        if (strcmp(scan.open[1], "Region") == 0)
            words_copy(out->region, sizeof(out->region), scan.value);
    }
}
