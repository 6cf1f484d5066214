/* Points of a space as text: parse words or JSON, write JSON. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/text/spell.h"
#include "common/base/text/text.h"
#include "common/search/space.h"
#include "common/search/space_text.h"

/* State of a parse: the values given so far. */
typedef struct parser {
    const gp_space *space;
    double value[GP_SEARCH_PARAMETERS_MAX];
    bool given[GP_SEARCH_PARAMETERS_MAX];
} parser;

bool gp_space_value_equal(const gp_space_value *value, const gp_space_value *other, const char *text)
{
    if (value->is_text != other->is_text || value->is_bool != other->is_bool)
        return false;
    return value->is_text ? strcmp(value->text, text) == 0 : value->number == other->number;
}

/* Find the value of a list. */
static gp_status find_value(const gp_space_parameter *parameter, const gp_space_value *wanted,
                            const char *text, double *index, gp_error *err)
{
    for (uint32_t i = 0; i < parameter->count; i++)
        if (gp_space_value_equal(&parameter->values[i], wanted, text)) {
            *index = i;
            return GP_OK;
        }
    return gp_fail(err, GP_EINVAL, "%s: '%.80s' is not in the list of values", parameter->name, text);
}

static gp_status check_number(const gp_space_parameter *parameter, double number, gp_error *err)
{
    char value[GP_NUMBER_BYTES], low[GP_NUMBER_BYTES], high[GP_NUMBER_BYTES];

    if (parameter->kind == GP_SPACE_INTEGER && number != floor(number))
        return gp_fail(err, GP_EINVAL, "%s: %s must be a whole number", parameter->name,
                       gp_number_text(number, value));
    if (!(number >= parameter->low && number <= parameter->high))
        return gp_fail(err, GP_EINVAL, "%s: %s is outside the range %s to %s", parameter->name,
                       gp_number_text(number, value), gp_number_text(parameter->low, low),
                       gp_number_text(parameter->high, high));
    return GP_OK;
}

gp_status gp_space_value_json(const gp_space_parameter *parameter, const gp_json *value, double *number,
                              gp_error *err)
{
    char text[GP_NUMBER_BYTES];
    const double given = gp_json_number(value, NAN);
    gp_status status;

    if (parameter->kind != GP_SPACE_LIST) {
        if (!gp_json_is_number(value))
            return gp_fail(err, GP_EINVAL, "%s: the value must be a number", parameter->name);
        status = check_number(parameter, given, err);
        if (status == GP_OK)
            *number = given + 0.0; /* -0.0 becomes 0.0 */
        return status;
    }
    if (gp_json_is_number(value))
        return find_value(parameter, &(gp_space_value){ .number = given }, gp_number_text(given, text),
                          number, err);
    if (gp_json_is_bool(value)) {
        const bool flag = gp_json_bool(value, false);

        return find_value(parameter, &(gp_space_value){ .is_bool = true, .number = flag },
                          flag ? "true" : "false", number, err);
    }
    if (gp_json_is_text(value))
        return find_value(parameter, &(gp_space_value){ .is_text = true }, gp_json_text(value, ""), number,
                          err);
    return gp_fail(err, GP_EINVAL, "%s: the value must be a number, a text, true or false", parameter->name);
}

/* Convert the value of a word, as gp_space_value_json() does. A text that equals the text of a list
 * value selects that value, whatever its type. */
static gp_status value_word(const gp_space_parameter *parameter, const char *text, double *number,
                            gp_error *err)
{
    double given;

    if (parameter->kind == GP_SPACE_LIST) {
        for (uint32_t i = 0; i < parameter->count; i++)
            if (strcmp(parameter->values[i].text, text) == 0) {
                *number = i;
                return GP_OK;
            }
        if (gp_space_number(text, &given))
            return find_value(parameter, &(gp_space_value){ .number = given }, text, number, err);
        return find_value(parameter, &(gp_space_value){ .is_text = true }, text, number, err);
    }
    if (!gp_space_number(text, &given))
        return gp_fail(err, GP_EINVAL, "%s: '%.80s' is not a number", parameter->name, text);
    gp_status status = check_number(parameter, given, err);

    if (status == GP_OK)
        *number = given + 0.0;
    return status;
}

/* Find a parameter whose value was not given yet. */
static gp_status find_parameter(parser *parse, const char *name, uint32_t *index, gp_error *err)
{
    const gp_space *space = parse->space;
    const char *near = NULL;
    unsigned distance = 0;

    *index = gp_space_find(space, name);
    if (*index < space->count && parse->given[*index])
        return gp_fail(err, GP_EINVAL, "parameter '%s' is given twice", name);
    if (*index < space->count) {
        parse->given[*index] = true;
        return GP_OK;
    }
    for (uint32_t i = 0; i < space->count; i++)
        gp_spell_offer(name, space->parameters[i].name, &near, &distance);
    if (near != NULL)
        return gp_fail(err, GP_EINVAL, "the space has no parameter '%.80s'; did you mean '%s'?", name, near);
    return gp_fail(err, GP_EINVAL, "the space has no parameter '%.80s'", name);
}

static gp_status visit_word(void *context, const char *name, char *value, gp_error *err)
{
    parser *parse = context;
    uint32_t index;
    gp_status status = find_parameter(parse, name, &index, err);

    return status == GP_OK ? value_word(&parse->space->parameters[index], value, &parse->value[index], err)
                           : status;
}

static gp_status visit_member(void *context, const char *name, const gp_json *value, gp_error *err)
{
    parser *parse = context;
    uint32_t index;
    gp_status status = find_parameter(parse, name, &index, err);

    return status == GP_OK
               ? gp_space_value_json(&parse->space->parameters[index], value, &parse->value[index], err)
               : status;
}

/* Check that exactly the parameters that apply are given, and complete the point. */
static gp_status complete(parser *parse, gp_error *err)
{
    const gp_space *space = parse->space;
    bool applies[GP_SEARCH_PARAMETERS_MAX];

    for (uint32_t i = 0; i < space->count; i++) {
        const gp_space_parameter *parameter = &space->parameters[i];

        applies[i] = gp_space_applies(parameter, parse->value, applies);
        if (applies[i] && !parse->given[i])
            return gp_fail(err, GP_EINVAL, "parameter '%s' has no value", parameter->name);
        if (!applies[i] && parse->given[i])
            return gp_fail(err, GP_EINVAL,
                           "parameter '%s' has a value, but does not apply with these values of '%s'",
                           parameter->name, space->parameters[parameter->conditions[0].parent].name);
        if (!applies[i])
            parse->value[i] = parameter->low;
    }
    return GP_OK;
}

gp_status gp_space_point_parse(const gp_space *space, const char *text, double *point, gp_error *err)
{
    parser parse = { .space = space };
    gp_json *document = NULL;
    gp_status status;

    if (strnlen(text, GP_SEARCH_SPACE_BYTES_MAX + 1) > GP_SEARCH_SPACE_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "the values have more than %d bytes", GP_SEARCH_SPACE_BYTES_MAX);
    if (gp_space_text_is_json(text)) {
        status = gp_space_json_object(&document, text, err);
        if (status == GP_OK)
            status = gp_json_each(document, visit_member, &parse, err);
        gp_json_free(document);
    } else {
        status = gp_space_each_word(text, visit_word, &parse, err);
    }
    if (status == GP_OK)
        status = complete(&parse, err);
    if (status == GP_OK)
        memcpy(point, parse.value, space->count * sizeof(*point));
    return status;
}

gp_status gp_space_point_text(const gp_space *space, const double *point, char **text, gp_error *err)
{
    gp_buffer buffer;
    gp_json_writer writer;
    bool applies[GP_SEARCH_PARAMETERS_MAX];
    size_t bytes;

    gp_buffer_init(&buffer, 2 * GP_SEARCH_SPACE_BYTES_MAX);
    gp_json_writer_init(&writer, &buffer, false);
    gp_json_begin_object(&writer, NULL);
    for (uint32_t i = 0; i < space->count; i++) {
        const gp_space_parameter *parameter = &space->parameters[i];

        applies[i] = gp_space_applies(parameter, point, applies);
        if (!applies[i])
            continue;
        const gp_space_value *value =
            parameter->kind == GP_SPACE_LIST ? &parameter->values[(uint32_t)point[i]] : NULL;

        if (value == NULL)
            gp_json_put_number(&writer, parameter->name, point[i]);
        else if (value->is_text)
            gp_json_put_text(&writer, parameter->name, value->text);
        else if (value->is_bool)
            gp_json_put_bool(&writer, parameter->name, value->number != 0.0);
        else
            gp_json_put_number(&writer, parameter->name, value->number);
    }
    gp_json_end_object(&writer);
    gp_status status = gp_json_writer_finish(&writer, err);

    if (status == GP_OK)
        *text = (char *)gp_buffer_take(&buffer, &bytes);
    gp_buffer_deinit(&buffer);
    return status;
}
