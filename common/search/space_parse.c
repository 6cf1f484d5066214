/* Parse the notation of a space: words, JSON, ranges, lists and conditions. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/printable.h"
#include "common/base/text/text.h"
#include "common/search/space.h"
#include "common/search/space_text.h"

#define WHOLE_MAX 0x1p53 /* largest magnitude of a whole number */

/* State of a parse. */
typedef struct parser {
    gp_space *space;
    gp_search_type (*type_of)(void *context, const char *name);
    void *context;
} parser;

bool gp_space_number(const char *text, double *number)
{
    char *end;

    if (text[0] == '\0' || strspn(text, "0123456789+-.eE") != strlen(text))
        return false;
    double value = strtod(text, &end);

    if (*end != '\0' || !isfinite(value))
        return false;
    *number = value;
    return true;
}

/* Add a parameter without a range; its name must be new and valid. */
static gp_status add_parameter(parser *parse, const char *name, gp_error *err)
{
    static const char name_bytes[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
    gp_space *space = parse->space;

    if (name[0] == '\0' || strlen(name) > GP_SPACE_NAME_MAX || strspn(name, name_bytes) != strlen(name))
        return gp_fail(err, GP_EINVAL,
                       "invalid parameter name '%.80s': must have 1 to %d letters, digits, '-', '_' or '.'",
                       name, GP_SPACE_NAME_MAX);
    if (gp_space_find(space, name) < space->count)
        return gp_fail(err, GP_EINVAL, "parameter '%s' is given twice", name);
    if (space->count == GP_SEARCH_PARAMETERS_MAX)
        return gp_fail(err, GP_ELIMIT, "the space has more than %d parameters", GP_SEARCH_PARAMETERS_MAX);
    void *grown = gp_realloc_array(space->parameters, space->count + 1, sizeof(*space->parameters));

    if (grown == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the space");
    space->parameters = grown;
    space->parameters[space->count] = (gp_space_parameter){ 0 };
    strcpy(space->parameters[space->count].name, name);
    space->count++;
    return GP_OK;
}

/* ---- lists ---- */

static gp_status add_value(gp_space_parameter *parameter, gp_space_value value, const char *text,
                           gp_error *err)
{
    for (uint32_t i = 0; i < parameter->count; i++)
        if (gp_space_value_equal(&parameter->values[i], &value, text))
            return gp_fail(err, GP_EINVAL, "%s: value '%.80s' is listed twice", parameter->name, text);
    if (parameter->count == GP_SEARCH_VALUES_MAX)
        return gp_fail(err, GP_ELIMIT, "%s: more than %d values", parameter->name, GP_SEARCH_VALUES_MAX);
    void *grown = gp_array_grow(parameter->values, parameter->count, sizeof(*parameter->values));

    if (grown == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the values of %s", parameter->name);
    parameter->values = grown;
    value.text = gp_strdup(text);
    if (value.text == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the values of %s", parameter->name);
    parameter->values[parameter->count++] = value;
    return GP_OK;
}

/* Add a number to a list; its text is the shortest decimal. */
static gp_status add_number(gp_space_parameter *parameter, double number, gp_error *err)
{
    char text[GP_NUMBER_BYTES];

    return add_value(parameter, (gp_space_value){ .number = number }, gp_number_text(number, text), err);
}

/* Add the value of a word: a number, true, false or a text. */
static gp_status add_word_value(gp_space_parameter *parameter, const char *text, gp_error *err)
{
    double number;
    gp_status status = gp_printable_check("a value of the space", text, err);

    if (status != GP_OK)
        return status;
    if (text[0] == '\0')
        return gp_fail(err, GP_EINVAL, "%s: a value of the list is empty", parameter->name);
    if (gp_space_number(text, &number))
        return add_number(parameter, number, err);
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        return add_value(parameter, (gp_space_value){ .is_bool = true, .number = text[0] == 't' }, text, err);
    return add_value(parameter, (gp_space_value){ .is_text = true }, text, err);
}

/* Complete a list after its last value. */
static void finish_list(gp_space_parameter *parameter)
{
    bool up = true, down = true;

    for (uint32_t i = 0; i < parameter->count; i++) {
        const gp_space_value *value = &parameter->values[i];

        if (value->is_text || value->is_bool)
            up = down = false;
        else if (i > 0 && value->number > parameter->values[i - 1].number)
            down = false;
        else if (i > 0)
            up = false;
    }
    parameter->kind = GP_SPACE_LIST;
    parameter->ordered = up || down;
    parameter->low = 0.0;
    parameter->high = parameter->count - 1.0;
}

/* ---- ranges ---- */

/* Fill in LO:STEP:HI, a list. */
static gp_status parse_steps(gp_space_parameter *parameter, double low, double step, double high,
                             gp_error *err)
{
    gp_status status = GP_OK;

    if (!(step > 0.0))
        return gp_fail(err, GP_EINVAL, "%s: the step %g must be above 0", parameter->name, step);
    double count = floor((high - low) / step * (1.0 + 1e-12) + 1e-9) + 1.0;

    if (!(count <= GP_SEARCH_VALUES_MAX))
        return gp_fail(err, GP_ELIMIT, "%s: %.15g values, at most %d are supported; use a larger step",
                       parameter->name, count, GP_SEARCH_VALUES_MAX);
    for (uint32_t i = 0; status == GP_OK && i < (uint32_t)count; i++) {
        char text[GP_NUMBER_BYTES];

        /* 12 digits remove the rounding errors of the sum: 0.1:0.1:0.5 has 0.3. */
        snprintf(text, sizeof(text), "%.12g", low + i * step);
        status = add_number(parameter, strtod(text, NULL), err);
    }
    if (status == GP_OK)
        finish_list(parameter);
    return status;
}

/* Check the bounds of a range against its type and scale. */
static gp_status check_range(const gp_space_parameter *parameter, gp_error *err)
{
    const char *name = parameter->name;
    const double low = parameter->low, high = parameter->high;

    if (parameter->kind == GP_SPACE_INTEGER &&
        (low != floor(low) || high != floor(high) || fabs(low) > WHOLE_MAX || fabs(high) > WHOLE_MAX))
        return gp_fail(err, GP_EINVAL, "%s: the bounds %.17g and %.17g must be whole numbers of at most 2^53",
                       name, low, high);
    if (parameter->logarithmic && low < (parameter->kind == GP_SPACE_INTEGER ? 1.0 : DBL_MIN))
        return gp_fail(err, GP_EINVAL, "%s: the lower bound of a logarithmic range is %g; it must be %s",
                       name, low, parameter->kind == GP_SPACE_INTEGER ? "at least 1" : "above 0");
    if (parameter->logarithmic && !(log(low) < log(high)))
        return gp_fail(err, GP_EINVAL,
                       "%s: the bounds %.17g and %.17g are too close for a logarithmic range; remove log:",
                       name, low, high);
    if (!isfinite(high - low))
        return gp_fail(err, GP_EINVAL, "%s: the range %g to %g is too wide", name, low, high);
    return GP_OK;
}

static bool written_whole(const char *text)
{
    return strpbrk(text, ".eE") == NULL;
}

/* Remove a prefix such as "log:" from *text. */
static bool take_prefix(char **text, const char *prefix)
{
    const size_t bytes = strlen(prefix);

    if (strncmp(*text, prefix, bytes) != 0)
        return false;
    *text += bytes;
    return true;
}

/* Fill in [TYPE:][log:]LO:HI or LO:STEP:HI. `text` is changed. */
static gp_status parse_range(const parser *parse, gp_space_parameter *parameter, char *text, gp_error *err)
{
    gp_search_type type = GP_SEARCH_UNTYPED;
    char *part[3];
    double number[3];
    uint32_t parts = 0;

    if (take_prefix(&text, "int:"))
        type = GP_SEARCH_INTEGER;
    else if (take_prefix(&text, "real:"))
        type = GP_SEARCH_REAL;
    else if (parse->type_of != NULL)
        type = parse->type_of(parse->context, parameter->name);
    parameter->logarithmic = take_prefix(&text, "log:");
    while (text != NULL && parts < 3)
        part[parts++] = strsep(&text, ":");
    if (parts < 2 || text != NULL)
        return gp_fail(err, GP_EINVAL,
                       "%s: malformed range: must be LO:HI or LO:STEP:HI, with int:, real: or log: in front",
                       parameter->name);
    for (uint32_t i = 0; i < parts; i++)
        if (!gp_space_number(part[i], &number[i]))
            return gp_fail(err, GP_EINVAL, "%s: '%.80s' is not a number; a range is LO:HI or LO:STEP:HI",
                           parameter->name, part[i]);
    const double high = number[parts - 1];

    if (!(number[0] < high))
        return gp_fail(err, GP_EINVAL, "%s: the lower bound %g must be below the upper bound %g",
                       parameter->name, number[0], high);
    if (parts == 3) {
        if (parameter->logarithmic)
            return gp_fail(err, GP_EINVAL, "%s: a range with a step cannot be logarithmic; list its values",
                           parameter->name);
        if (type == GP_SEARCH_INTEGER && (number[0] != floor(number[0]) || number[1] != floor(number[1])))
            return gp_fail(err, GP_EINVAL, "%s: the lower bound %g and the step %g must be whole numbers",
                           parameter->name, number[0], number[1]);
        return parse_steps(parameter, number[0], number[1], high, err);
    }
    if (type == GP_SEARCH_UNTYPED && written_whole(part[0]) && written_whole(part[1]))
        return gp_fail(err, GP_EINVAL,
                       "%s: a range with whole bounds needs a type; write int:%s%s:%s or real:%s%s:%s",
                       parameter->name, parameter->logarithmic ? "log:" : "", part[0], part[1],
                       parameter->logarithmic ? "log:" : "", part[0], part[1]);
    parameter->kind = type == GP_SEARCH_INTEGER ? GP_SPACE_INTEGER : GP_SPACE_REAL;
    parameter->low = number[0];
    parameter->high = high;
    return check_range(parameter, err);
}

/* Fill in the last parameter from the text after "NAME=", which is changed. */
static gp_status parse_values_word(const parser *parse, char *text, gp_error *err)
{
    gp_space_parameter *parameter = &parse->space->parameters[parse->space->count - 1];
    gp_status status = GP_OK;

    if (strchr(text, ',') == NULL && strchr(text, ':') != NULL)
        return parse_range(parse, parameter, text, err);
    while (status == GP_OK && text != NULL)
        status = add_word_value(parameter, strsep(&text, ","), err);
    if (status == GP_OK)
        finish_list(parameter);
    return status;
}

/* ---- words ---- */

gp_status gp_space_each_word(const char *text,
                             gp_status (*visit)(void *context, const char *name, char *value, gp_error *err),
                             void *context, gp_error *err)
{
    char *words = gp_strdup(text), *rest = words;
    gp_status status = words != NULL ? GP_OK : gp_fail(err, GP_ENOMEM, "no memory for the words");

    while (status == GP_OK && rest != NULL) {
        char *word = strsep(&rest, " \t\r\n"), *equals = strchr(word, '=');

        if (word[0] == '\0')
            continue;
        if (equals == NULL) {
            status = gp_fail(err, GP_EINVAL, "invalid word '%.80s': must be NAME=VALUES", word);
            break;
        }
        *equals = '\0';
        status = visit(context, word, equals + 1, err);
    }
    gp_free(words);
    return status;
}

static gp_status visit_word(void *context, const char *name, char *value, gp_error *err)
{
    parser *parse = context;
    gp_status status = add_parameter(parse, name, err);

    return status == GP_OK ? parse_values_word(parse, value, err) : status;
}

/* ---- JSON ---- */

static gp_status parse_json_list(gp_space_parameter *parameter, const gp_json *array, gp_error *err)
{
    gp_status status = GP_OK;

    if (gp_json_count(array) == 0)
        return gp_fail(err, GP_EINVAL, "%s: the list of values is empty", parameter->name);
    for (size_t i = 0; status == GP_OK && i < gp_json_count(array); i++) {
        const gp_json *element = gp_json_element(array, i);

        if (gp_json_is_number(element)) {
            status = add_number(parameter, gp_json_number(element, 0.0), err);
        } else if (gp_json_is_bool(element)) {
            const bool value = gp_json_bool(element, false);

            status = add_value(parameter, (gp_space_value){ .is_bool = true, .number = value },
                               value ? "true" : "false", err);
        } else if (gp_json_is_text(element)) {
            status = gp_printable_check("a value of the space", gp_json_text(element, ""), err);
            if (status == GP_OK)
                status =
                    add_value(parameter, (gp_space_value){ .is_text = true }, gp_json_text(element, ""), err);
        } else {
            status =
                gp_fail(err, GP_EINVAL, "%s: value %zu of the list must be a number, a text, true or false",
                        parameter->name, i + 1);
        }
    }
    if (status == GP_OK)
        finish_list(parameter);
    return status;
}

/* Add {"PARENT": [VALUE, ...]} to the last parameter. */
static gp_status visit_condition(void *context, const char *name, const gp_json *array, gp_error *err)
{
    const parser *parse = context;
    const gp_space *space = parse->space;
    gp_space_parameter *parameter = &space->parameters[space->count - 1];
    const uint32_t parent = gp_space_find(space, name);

    if (parent >= space->count - 1)
        return gp_fail(err, GP_EINVAL, "%s: the condition names '%.80s', which must be a parameter before it",
                       parameter->name, name);
    const gp_space_parameter *named = &space->parameters[parent];

    if (named->kind != GP_SPACE_LIST)
        return gp_fail(err, GP_EINVAL, "%s: the condition names %s, which is a range; it must be a list",
                       parameter->name, name);
    if (!gp_json_is_array(array) || gp_json_count(array) == 0)
        return gp_fail(err, GP_EINVAL, "%s: the condition on %s must be an array of values", parameter->name,
                       name);
    void *grown =
        gp_array_grow(parameter->conditions, parameter->condition_count, sizeof(*parameter->conditions));
    bool *allowed = gp_calloc(named->count, sizeof(*allowed));

    if (grown != NULL)
        parameter->conditions = grown;
    if (grown == NULL || allowed == NULL) {
        gp_free(allowed);
        return gp_fail(err, GP_ENOMEM, "no memory for a condition");
    }
    parameter->conditions[parameter->condition_count++] = (gp_space_condition){ parent, allowed };
    for (size_t i = 0; i < gp_json_count(array); i++) {
        double index;
        gp_status status = gp_space_value_json(named, gp_json_element(array, i), &index, err);

        if (status != GP_OK) {
            gp_error_prefix(err, "condition of %s", parameter->name);
            return status;
        }
        allowed[(uint32_t)index] = true;
    }
    return GP_OK;
}

static gp_status check_member(void *context, const char *key, const gp_json *value, gp_error *err)
{
    (void)value;
    if (strcmp(key, "values") == 0 || strcmp(key, "when") == 0)
        return GP_OK;
    return gp_fail(err, GP_EINVAL, "%s: unknown member '%.80s'; a parameter has 'values' and 'when'",
                   (const char *)context, key);
}

static gp_status visit_member(void *context, const char *name, const gp_json *member, gp_error *err)
{
    parser *parse = context;
    const gp_json *values = member, *when = NULL;
    gp_status status = add_parameter(parse, name, err);

    if (status == GP_OK && gp_json_is_object(member)) {
        values = gp_json_member(member, "values");
        when = gp_json_member(member, "when");
        status = gp_json_each(member, check_member, (void *)(uintptr_t)name, err);
    }
    if (status != GP_OK)
        return status;
    if (gp_json_is_array(values)) {
        status = parse_json_list(&parse->space->parameters[parse->space->count - 1], values, err);
    } else if (gp_json_is_text(values)) {
        char *text = gp_strdup(gp_json_text(values, ""));

        status = text != NULL ? parse_values_word(parse, text, err)
                              : gp_fail(err, GP_ENOMEM, "no memory for the space");
        gp_free(text);
    } else {
        status = gp_fail(err, GP_EINVAL, "%s: values must be an array or a range as text", name);
    }
    if (status == GP_OK && when != NULL && !gp_json_is_object(when))
        status = gp_fail(err, GP_EINVAL, "%s: 'when' must be an object {PARAMETER: [VALUE, ...]}", name);
    if (status == GP_OK && when != NULL)
        status = gp_json_each(when, visit_condition, parse, err);
    return status;
}

/* ---- whole space ---- */

gp_status gp_space_json_object(gp_json **out, const char *text, gp_error *err)
{
    gp_status status = gp_json_parse(out, text, strlen(text), err);

    if (status == GP_OK && !gp_json_is_object(*out)) {
        gp_json_free(*out);
        status = gp_fail(err, GP_EINVAL, "the JSON must be an object");
    }
    return status;
}

bool gp_space_text_is_json(const char *text)
{
    return text[strspn(text, " \t\r\n")] == '{';
}

gp_status gp_space_parse(gp_space **out, const char *text,
                         gp_search_type (*type_of)(void *context, const char *name), void *context,
                         gp_error *err)
{
    parser parse = { .type_of = type_of, .context = context };
    gp_json *document = NULL;
    gp_status status = GP_OK;

    if (strnlen(text, GP_SEARCH_SPACE_BYTES_MAX + 1) > GP_SEARCH_SPACE_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "the space has more than %d bytes", GP_SEARCH_SPACE_BYTES_MAX);
    parse.space = gp_calloc(1, sizeof(*parse.space));
    if (parse.space == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the space");
    if (gp_space_text_is_json(text)) {
        status = gp_space_json_object(&document, text, err);
        if (status == GP_OK)
            status = gp_json_each(document, visit_member, &parse, err);
    } else {
        status = gp_space_each_word(text, visit_word, &parse, err);
    }
    if (status == GP_OK && parse.space->count == 0)
        status = gp_fail(err, GP_EINVAL, "the space has no parameters; write for example lr=log:1e-4:0.1");
    gp_json_free(document);
    if (status == GP_OK)
        *out = parse.space;
    else
        gp_space_free(parse.space);
    return status;
}
