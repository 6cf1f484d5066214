/* Parse, format and compare tables of resources. */
#include "common/base/text/resources.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"

enum { WORKERS_MAX = 256 };

static const char separators[] = " \t\n";

/* ---- one table ---- */

/* Return the length of the resource name at the start of a text. 0: there is none. */
static size_t name_length(const char *text)
{
    size_t length = 0;

    if (!isalpha((unsigned char)text[0]) && text[0] != '_')
        return 0;
    while (isalnum((unsigned char)text[length]) || (text[length] != '\0' && strchr("_.-", text[length])))
        length++;
    return length;
}

/* Parse the whole number before `end`, without a sign. Return false if there is none, or if it
 * exceeds `max`. */
static bool number_parse(uint64_t *out, const char *text, const char *end, uint64_t max)
{
    uint64_t number = 0;

    if (text == end)
        return false;
    for (; text < end; text++) {
        if (!isdigit((unsigned char)*text) || number > max / 10)
            return false;
        number = number * 10 + (uint64_t)(*text - '0');
    }
    *out = number;
    return number <= max;
}

/* Return the position of a name in a table, or the position where it belongs. */
static uint32_t table_find(const gp_resource_table *table, const char *name, bool *found)
{
    uint32_t at = 0;

    while (at < table->count && strcmp(table->at[at].name, name) < 0)
        at++;
    *found = at < table->count && strcmp(table->at[at].name, name) == 0;
    return at;
}

/* Write a table as text, cut to `bytes`. Return the length of the complete text. */
static size_t table_write(const gp_resource_table *table, char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < table->count; i++) {
        const size_t at = used < bytes ? used : bytes - 1;

        used += (size_t)snprintf(text + at, bytes - at, "%s%s=%" PRIu64, i == 0 ? "" : ",", table->at[i].name,
                                 table->at[i].amount);
    }
    return used;
}

/* Add a resource to a table, or replace its amount. GP_ELIMIT: a ceiling is exceeded. */
static gp_status table_set(gp_resource_table *table, const gp_resource *resource, gp_error *err)
{
    char text[GP_RESOURCES_BYTES];
    bool found;
    uint32_t at = table_find(table, resource->name, &found);

    if (!found && table->count == GP_RESOURCES_MAX)
        return gp_fail(err, GP_ELIMIT, "a list of resources has at most %d names", GP_RESOURCES_MAX);
    if (!found) {
        memmove(&table->at[at + 1], &table->at[at], (table->count - at) * sizeof(*resource));
        table->count++;
    }
    table->at[at] = *resource;
    if (table_write(table, text, sizeof(text)) >= sizeof(text))
        return gp_fail(err, GP_ELIMIT, "a list of resources has at most %zu characters", sizeof(text) - 1);
    return GP_OK;
}

/* Parse the first `bytes` bytes of a text, and add the resources to a table. */
static gp_status table_parse(gp_resource_table *table, const char *text, size_t bytes, gp_error *err)
{
    const char *const stop = text + bytes;
    gp_resource_table given = { .count = 0 };

    while (text <= stop) {
        const char *comma = memchr(text, ',', (size_t)(stop - text)), *end = comma == NULL ? stop : comma;
        const int shown = end - text > 100 ? 100 : (int)(end - text);
        const size_t length = name_length(text);
        gp_resource resource = { .amount = 1 };
        gp_status status;
        bool twice;

        if (length == 0 || length >= sizeof(resource.name) || text + length > end)
            return gp_fail(err, GP_EINVAL,
                           "malformed resource '%.*s': a name begins with a letter or _ and has at most %d "
                           "letters, digits, '_', '.' and '-'",
                           shown, text, GP_RESOURCE_NAME_BYTES - 1);
        memcpy(resource.name, text, length);
        if (strcmp(resource.name, "none") == 0)
            return gp_fail(err, GP_EINVAL, "a resource cannot have the name 'none'");
        if (text + length != end && (text[length] != '=' || !number_parse(&resource.amount, text + length + 1,
                                                                          end, GP_RESOURCE_AMOUNT_MAX)))
            return gp_fail(
                err, GP_EINVAL,
                "malformed resource '%.*s': expected NAME or NAME=N with a whole number up to 2^53", shown,
                text);
        table_find(&given, resource.name, &twice);
        if (twice)
            return gp_fail(err, GP_EINVAL, "the resource '%s' is given twice", resource.name);
        status = table_set(table, &resource, err);
        if (status == GP_OK)
            status = table_set(&given, &resource, err);
        if (status != GP_OK)
            return status;
        text = end + 1;
    }
    return GP_OK;
}

gp_status gp_resources_parse(gp_resource_table *out, const char *text, gp_error *err)
{
    gp_resource_table table = { .count = 0 };
    gp_status status = text == NULL || text[0] == '\0' ? GP_OK : table_parse(&table, text, strlen(text), err);

    if (status == GP_OK)
        *out = table;
    return status;
}

char *gp_resources_text(const gp_resource_table *table, char text[GP_RESOURCES_BYTES])
{
    table_write(table, text, GP_RESOURCES_BYTES);
    return text;
}

gp_status gp_resources_merge(gp_resource_table *table, const gp_resource_table *more, gp_error *err)
{
    gp_status status = GP_OK;

    for (uint32_t i = 0; i < more->count && status == GP_OK; i++) {
        bool found;
        uint32_t at = table_find(table, more->at[i].name, &found);

        if (!found || table->at[at].amount < more->at[i].amount)
            status = table_set(table, &more->at[i], err);
    }
    return status;
}

bool gp_resources_meet(const gp_resource_table *has, const gp_resource_table *needs)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < needs->count; i++) {
        if (needs->at[i].amount == 0)
            continue;
        while (at < has->count && strcmp(has->at[at].name, needs->at[i].name) < 0)
            at++;
        if (at == has->count || strcmp(has->at[at].name, needs->at[i].name) != 0 ||
            has->at[at].amount < needs->at[i].amount)
            return false;
    }
    return true;
}

/* ---- setting of a pool ---- */

/* Parse a list of worker numbers such as "1,3-4" to a bit set. */
static gp_status workers_parse(bool chosen[WORKERS_MAX + 1], const char *text, size_t bytes, uint32_t count,
                               bool strict, gp_error *err)
{
    const char *const stop = text + bytes;
    uint64_t most = strict ? count : WORKERS_MAX;

    memset(chosen, 0, (WORKERS_MAX + 1) * sizeof(*chosen));
    for (const char *at = text; at <= stop;) {
        const char *comma = memchr(at, ',', (size_t)(stop - at)), *end = comma == NULL ? stop : comma;
        const char *dash = memchr(at, '-', (size_t)(end - at));
        uint64_t first, last;

        if (!number_parse(&first, at, dash == NULL ? end : dash, UINT32_MAX) ||
            !number_parse(&last, dash == NULL ? at : dash + 1, end, UINT32_MAX) || first == 0 || last < first)
            return gp_fail(err, GP_EINVAL,
                           "malformed worker list '%.*s': expected numbers from 1, such as 1,3-4",
                           bytes > 80 ? 80 : (int)bytes, text);
        if (last > most)
            return gp_fail(err, GP_EINVAL, "worker %" PRIu64 " has resources, but the pool has %" PRIu64,
                           last, most);
        for (uint64_t w = first; w <= last; w++)
            chosen[w] = true;
        at = end + 1;
    }
    return GP_OK;
}

/* Add one group of a setting to the tables of its workers. */
static gp_status group_parse(gp_resource_table *tables, uint32_t count, const char *group, size_t bytes,
                             bool strict, gp_error *err)
{
    const char *colon = memchr(group, ':', bytes), *text = colon == NULL ? group : colon + 1;
    const size_t left = bytes - (size_t)(text - group);
    bool chosen[WORKERS_MAX + 1];
    gp_resource_table any = { .count = 0 };
    gp_status status = table_parse(&any, text, left, err); /* also if it applies to no worker */

    memset(chosen, true, sizeof(chosen));
    if (status == GP_OK && colon != NULL)
        status = workers_parse(chosen, group, (size_t)(colon - group), count, strict, err);
    for (uint32_t w = 1; w <= count && status == GP_OK; w++)
        if (chosen[w])
            status = table_parse(&tables[w - 1], text, left, err);
    return status;
}

gp_status gp_resources_assign(gp_resource_table *tables, size_t stride, uint32_t count, const char *setting,
                              bool strict, gp_error *err)
{
    const bool none = setting != NULL && strcmp(setting, "none") == 0;
    gp_resource_table *made;
    gp_status status = GP_OK;

    if (count > WORKERS_MAX)
        return gp_fail(err, GP_ELIMIT, "%u workers have resources; the maximum is %d", count, WORKERS_MAX);
    made = gp_calloc(count, sizeof(*made));
    if (made == NULL && count > 0)
        return gp_fail(err, GP_ENOMEM, "no memory for the resources of %u workers", count);
    if (setting != NULL && strlen(setting) >= GP_RESOURCE_SETTING_BYTES)
        status = gp_fail(err, GP_ELIMIT, "the resources of a pool have %zu characters; the maximum is %d",
                         strlen(setting), GP_RESOURCE_SETTING_BYTES - 1);
    for (const char *at = setting; status == GP_OK && at != NULL && !none;) {
        size_t bytes;

        at += strspn(at, separators);
        bytes = strcspn(at, separators);
        if (bytes == 0)
            break;
        status = group_parse(made, count, at, bytes, strict, err);
        at += bytes;
    }
    for (uint32_t w = 0; w < count && status == GP_OK; w++)
        memcpy((char *)tables + w * stride, &made[w], sizeof(*made));
    gp_free(made);
    return status;
}

char *gp_resources_describe(char *out, size_t bytes, const char *const *texts, uint32_t count)
{
    size_t used = 0;

    out[0] = '\0';
    for (uint32_t w = 0, next; w < count && used < bytes; w = next) {
        char numbers[32] = "";

        for (next = w + 1; next < count && strcmp(texts[next], texts[w]) == 0;)
            next++;
        if (next > w + 1)
            snprintf(numbers, sizeof(numbers), "s %u-%u", w + 1, next);
        else
            snprintf(numbers, sizeof(numbers), " %u", w + 1);
        used += (size_t)snprintf(out + used, bytes - used, "%sworker%s: %s", w == 0 ? "" : "; ", numbers,
                                 texts[w][0] != '\0' ? texts[w] : "none");
    }
    if (used >= bytes && bytes > 4)
        memcpy(out + bytes - 4, "...", 4);
    return out;
}
