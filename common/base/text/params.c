/* Implement params.h. */
#include "common/base/text/params.h"

#include <ctype.h>
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text/spell.h"
#include "common/base/text/text.h"

static uint32_t param_count(const gp_param *param)
{
    return param->count == 0 ? 1 : param->count;
}

/* Return a value's address in the caller's struct. */
static void *param_at(const gp_param *param, void *values)
{
    return (char *)values + param->offset;
}

static const void *param_at_const(const gp_param *param, const void *values)
{
    return (const char *)values + param->offset;
}

static void param_default(const gp_param *param, void *values)
{
    void *at = param_at(param, values);

    switch (param->type) {
    case GP_PARAM_BOOL:
        *(bool *)at = param->fallback != 0.0;
        break;
    case GP_PARAM_I64:
        for (uint32_t i = 0; i < param_count(param); i++)
            ((int64_t *)at)[i] = (int64_t)param->fallback;
        break;
    case GP_PARAM_F64:
        for (uint32_t i = 0; i < param_count(param); i++)
            ((double *)at)[i] = param->fallback;
        break;
    case GP_PARAM_WORD:
        *(int *)at = (int)param->fallback;
        break;
    case GP_PARAM_TEXT:
        snprintf(at, param_count(param), "%s", param->fallback_text == NULL ? "" : param->fallback_text);
        break;
    case GP_PARAM_NONE:
        break;
    }
}

void gp_params_default(const gp_param *table, void *values)
{
    for (; table->type != GP_PARAM_NONE; table++)
        param_default(table, values);
}

/* Compare two names; '_' equals '-'. */
static bool name_equal(const char *a, const char *b)
{
    for (; *a != '\0' && *b != '\0'; a++, b++)
        if ((*a == '_' ? '-' : *a) != (*b == '_' ? '-' : *b))
            return false;
    return *a == *b;
}

const gp_param *gp_params_find(const gp_param *table, const char *name)
{
    for (; table->type != GP_PARAM_NONE; table++)
        if (name_equal(table->name, name) || (table->alias != NULL && name_equal(table->alias, name)))
            return table;
    return NULL;
}

static bool is_separator(char c)
{
    return c == '-' || c == '_';
}

/* Compare a word of `bytes` bytes with a name; ignore case, '-' and '_'. */
static bool word_equals(const char *word, size_t bytes, const char *name)
{
    const char *end = word + bytes;

    for (;;) {
        while (word < end && is_separator(*word))
            word++;
        while (is_separator(*name))
            name++;
        if (word == end || *name == '\0')
            return word == end && *name == '\0';
        if (tolower((unsigned char)*word++) != tolower((unsigned char)*name++))
            return false;
    }
}

/* Return whether text (may be NULL) contains the name as a word. */
static bool has_word(const char *text, const char *name)
{
    static const char word_bytes[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";

    while (text != NULL && *text != '\0') {
        const size_t bytes = strspn(text, word_bytes);

        if (bytes > 1 && word_equals(text, bytes, name))
            return true;
        text += bytes;
        text += strcspn(text, word_bytes);
    }
    return false;
}

const gp_param *gp_params_find_synonym(const gp_param *table, const char *name)
{
    for (; table->type != GP_PARAM_NONE; table++)
        if (has_word(table->seed_name, name) || has_word(table->torch_name, name))
            return table;
    return NULL;
}

gp_status gp_params_unknown(const gp_param *table, const char *name, gp_error *err)
{
    const char *near = NULL;
    unsigned distance = 0;

    for (; table->type != GP_PARAM_NONE; table++)
        gp_spell_offer(name, table->name, &near, &distance);
    if (near != NULL)
        return gp_fail(err, GP_EINVAL, "unknown option '%s'; did you mean '%s'?", name, near);
    return gp_fail(err, GP_EINVAL, "unknown option '%s'", name);
}

/* Fail with GP_EINVAL: the value `text` does not have the `wanted` type. */
static gp_status param_refuse(const gp_param *param, const char *text, const char *wanted, gp_error *err)
{
    return gp_fail(err, GP_EINVAL, "%s is '%s'; must be %s", param->name, text, wanted);
}

static gp_status param_check_range(const gp_param *param, double value, gp_error *err)
{
    char text[GP_NUMBER_BYTES];

    if (isfinite(value) && value >= param->min && value <= param->max)
        return GP_OK;
    return gp_fail(err, GP_EINVAL, "%s is %s; must be between %.10g and %.10g", param->name,
                   gp_number_text(value, text), param->min, param->max);
}

static gp_status param_parse_number(const gp_param *param, const char **text, void *slot, gp_error *err)
{
    char *end;
    gp_status status;

    errno = 0;
    if (param->type == GP_PARAM_I64) {
        long long value = strtoll(*text, &end, 10);

        if (end == *text || errno != 0)
            return param_refuse(param, *text, "a whole number", err);
        status = param_check_range(param, (double)value, err);
        *(int64_t *)slot = value;
    } else {
        double value = strtod(*text, &end);

        if (end == *text)
            return param_refuse(param, *text, "a number", err);
        status = param_check_range(param, value, err);
        *(double *)slot = value;
    }
    *text = end;
    return status;
}

/* Return whether a parameter has the automatic value -1. */
static bool param_can_be_auto(const gp_param *param)
{
    return (param->type == GP_PARAM_I64 || param->type == GP_PARAM_F64) && param->fallback == -1.0 &&
           param->min >= 0.0;
}

static bool param_is_auto(const gp_param *param, const void *values)
{
    return param_can_be_auto(param) && !gp_params_changed(param, values);
}

/* Parse a number list. All numbers are parsed before the first is stored, so an error leaves the
 * value unchanged. */
static gp_status param_set_numbers(const gp_param *param, void *values, const char *text, gp_error *err)
{
    union {
        int64_t i[16];
        double f[16];
    } parsed;
    uint32_t count = param_count(param), given = 0;
    const char *at = text;

    assert(count <= 16);
    for (;;) {
        if (given == count)
            return gp_fail(err, GP_EINVAL, "%s is '%s'; must have at most %" PRIu32 " number%s", param->name,
                           text, count, gp_plural(count));
        void *slot = param->type == GP_PARAM_I64 ? (void *)&parsed.i[given] : (void *)&parsed.f[given];
        gp_status status = param_parse_number(param, &at, slot, err);

        if (status != GP_OK)
            return status;
        given++;
        if (*at == '\0')
            break;
        if (*at++ != ',')
            return param_refuse(param, text, param->type == GP_PARAM_I64 ? "a whole number" : "a number",
                                err);
    }
    if (given != 1 && given != count)
        return gp_fail(err, GP_EINVAL, "%s is '%s'; must be one number or %" PRIu32, param->name, text,
                       count);
    for (uint32_t i = given; i < count; i++)
        /* Both union members have eight bytes, so this copies doubles too. */
        parsed.i[i] = parsed.i[0];
    memcpy(param_at(param, values), &parsed, count * sizeof(int64_t));
    return GP_OK;
}

/* Set a WORD. The error message suggests the nearest word and lists all of them. */
static gp_status param_set_word(const gp_param *param, void *values, const char *text, gp_error *err)
{
    char known[256] = "";
    const char *near = NULL;
    unsigned distance = 0;

    for (int i = 0; param->words[i] != NULL; i++) {
        if (name_equal(param->words[i], text)) {
            *(int *)param_at(param, values) = i;
            return GP_OK;
        }
        gp_spell_offer(text, param->words[i], &near, &distance);
        size_t used = strlen(known);

        snprintf(known + used, sizeof(known) - used, "%s%s", i == 0 ? "" : ", ", param->words[i]);
    }
    if (near != NULL)
        return gp_fail(err, GP_EINVAL, "%s is '%s'; did you mean '%s'? (one of %s)", param->name, text, near,
                       known);
    return gp_fail(err, GP_EINVAL, "%s is '%s'; must be one of %s", param->name, text, known);
}

/* Set a TEXT, or append a line to a repeated one. */
static gp_status param_set_text(const gp_param *param, void *values, const char *text, gp_error *err)
{
    char *to = param_at(param, values);
    size_t before = param->repeats ? strlen(to) : 0;
    size_t bytes = before + (before > 0) + strlen(text);

    if (bytes >= param_count(param))
        return gp_fail(err, GP_ELIMIT, "%s has %zu bytes, at most %" PRIu32 " are allowed", param->name,
                       bytes, param_count(param) - 1);
    if (before > 0)
        to[before++] = '\n';
    strcpy(to + before, text);
    return GP_OK;
}

gp_status gp_params_set(const gp_param *param, void *values, const char *text, gp_error *err)
{
    static const char *const yes[] = { "true", "yes", "1", "on" }, *const no[] = { "false", "no", "0",
                                                                                   "off" };

    switch (param->type) {
    case GP_PARAM_BOOL:
        for (size_t i = 0; i < 4; i++) {
            if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
                *(bool *)param_at(param, values) = strcmp(text, yes[i]) == 0;
                return GP_OK;
            }
        }
        return param_refuse(param, text, "true or false", err);
    case GP_PARAM_I64:
    case GP_PARAM_F64:
        if (param_can_be_auto(param) && strcmp(text, "auto") == 0) {
            param_default(param, values);
            return GP_OK;
        }
        return param_set_numbers(param, values, text, err);
    case GP_PARAM_WORD:
        return param_set_word(param, values, text, err);
    case GP_PARAM_TEXT:
        return param_set_text(param, values, text, err);
    case GP_PARAM_NONE:
        break;
    }
    return gp_fail(err, GP_EINTERNAL, "internal error: parameter %s has no type", param->name);
}

/* Convert a JSON value to the text form for gp_params_set(), which then checks types and ranges. */
static gp_status json_as_text(const gp_json *value, char *text, size_t bytes, gp_error *err)
{
    if (gp_json_is_bool(value)) {
        snprintf(text, bytes, "%s", gp_json_bool(value, false) ? "true" : "false");
    } else if (gp_json_is_number(value)) {
        double number = gp_json_number(value, NAN);

        char shortest[GP_NUMBER_BYTES];

        if (number == floor(number) && fabs(number) < 9e15)
            snprintf(text, bytes, "%.0f", number);
        else
            snprintf(text, bytes, "%s", gp_number_text(number, shortest));
    } else if (gp_json_is_array(value)) {
        size_t used = 0;

        for (size_t i = 0; i < gp_json_count(value); i++) {
            const gp_json *element = gp_json_element(value, i);
            char one[64];

            if (!gp_json_is_number(element))
                return gp_fail(err, GP_EINVAL, "a list may contain only numbers");
            json_as_text(element, one, sizeof(one), NULL);
            int length = snprintf(text + used, bytes - used, "%s%s", i == 0 ? "" : ",", one);

            used += (size_t)length;
            if (used >= bytes)
                return gp_fail(err, GP_ELIMIT, "a list has %zu numbers, which is too many",
                               gp_json_count(value));
        }
        if (used == 0)
            text[0] = '\0';
    } else {
        return gp_fail(err, GP_EINVAL, "must be a number, a text, true, false or a list of numbers");
    }
    return GP_OK;
}

gp_status gp_params_set_json(const gp_param *param, void *values, const gp_json *value, gp_error *err)
{
    char text[1100];

    /* A string can be longer than `text`; gp_params_set() checks the length. */
    if (gp_json_is_text(value))
        return gp_params_set(param, values, gp_json_text(value, ""), err);
    gp_status status = json_as_text(value, text, sizeof(text), err);

    if (status != GP_OK) {
        gp_error_prefix(err, "%s", param->name);
        return status;
    }
    return gp_params_set(param, values, text, err);
}

typedef struct json_visit {
    const gp_param *table;
    void *values;
} json_visit;

static gp_status params_set_member(void *context, const char *key, const gp_json *value, gp_error *err)
{
    const json_visit *visit = context;
    const gp_param *param = gp_params_find(visit->table, key);

    if (param == NULL)
        return gp_params_unknown(visit->table, key, err);
    return gp_params_set_json(param, visit->values, value, err);
}

gp_status gp_params_from_json(const gp_param *table, void *values, const gp_json *object, gp_error *err)
{
    json_visit visit = { table, values };

    if (!gp_json_is_object(object))
        return gp_fail(err, GP_EINVAL, "parameters must be a JSON object");
    return gp_json_each(object, params_set_member, &visit, err);
}

static void param_to_json(const gp_param *param, const void *values, gp_json_writer *writer)
{
    const void *at = param_at_const(param, values);
    uint32_t count = param_count(param);

    switch (param->type) {
    case GP_PARAM_BOOL:
        gp_json_put_bool(writer, param->name, *(const bool *)at);
        break;
    case GP_PARAM_I64:
    case GP_PARAM_F64:
        if (count > 1)
            gp_json_begin_array(writer, param->name);
        for (uint32_t i = 0; i < count; i++) {
            const char *key = count > 1 ? NULL : param->name;

            if (param->type == GP_PARAM_I64)
                gp_json_put_integer(writer, key, ((const int64_t *)at)[i]);
            else
                gp_json_put_number(writer, key, ((const double *)at)[i]);
        }
        if (count > 1)
            gp_json_end_array(writer);
        break;
    case GP_PARAM_WORD:
        gp_json_put_text(writer, param->name, param->words[*(const int *)at]);
        break;
    case GP_PARAM_TEXT:
        gp_json_put_text(writer, param->name, at);
        break;
    case GP_PARAM_NONE:
        break;
    }
}

bool gp_params_changed(const gp_param *param, const void *values)
{
    const void *at = param_at_const(param, values);

    switch (param->type) {
    case GP_PARAM_BOOL:
        return *(const bool *)at != (param->fallback != 0.0);
    case GP_PARAM_I64:
        for (uint32_t i = 0; i < param_count(param); i++)
            if (((const int64_t *)at)[i] != (int64_t)param->fallback)
                return true;
        return false;
    case GP_PARAM_F64:
        for (uint32_t i = 0; i < param_count(param); i++)
            if (((const double *)at)[i] != param->fallback)
                return true;
        return false;
    case GP_PARAM_WORD:
        return *(const int *)at != (int)param->fallback;
    case GP_PARAM_TEXT:
        return strcmp(at, param->fallback_text == NULL ? "" : param->fallback_text) != 0;
    case GP_PARAM_NONE:
        break;
    }
    return false;
}

void gp_params_to_json(const gp_param *table, const void *values, bool changed_only, gp_json_writer *writer)
{
    for (; table->type != GP_PARAM_NONE; table++)
        if ((!changed_only || gp_params_changed(table, values)) && !param_is_auto(table, values))
            param_to_json(table, values, writer);
}

char *gp_params_format(const gp_param *param, const void *values, char *text, size_t bytes)
{
    const void *at = param_at_const(param, values);
    size_t used = 0;

    text[0] = '\0';
    if (param_is_auto(param, values)) {
        snprintf(text, bytes, "auto");
        return text;
    }
    switch (param->type) {
    case GP_PARAM_BOOL:
        snprintf(text, bytes, "%s", *(const bool *)at ? "true" : "false");
        break;
    case GP_PARAM_I64:
    case GP_PARAM_F64:
        for (uint32_t i = 0; i < param_count(param) && used < bytes; i++) {
            const char *comma = i == 0 ? "" : ",";

            if (param->type == GP_PARAM_I64)
                used += (size_t)snprintf(text + used, bytes - used, "%s%" PRId64, comma,
                                         ((const int64_t *)at)[i]);
            else
                used +=
                    (size_t)snprintf(text + used, bytes - used, "%s%.10g", comma, ((const double *)at)[i]);
        }
        break;
    case GP_PARAM_WORD:
        snprintf(text, bytes, "%s", param->words[*(const int *)at]);
        break;
    case GP_PARAM_TEXT:
        snprintf(text, bytes, "%s", (const char *)at);
        break;
    case GP_PARAM_NONE:
        break;
    }
    return text;
}
