/* Functions that the parsers of spaces and points share. */
#ifndef GP_SPACE_TEXT_H
#define GP_SPACE_TEXT_H

#include "common/search/space.h"

/* Parse a finite decimal number that fills the text; false: malformed. */
bool gp_space_number(const char *text, double *number);

/* Return whether a list value equals `other`, whose text is in `text`. */
bool gp_space_value_equal(const gp_space_value *value, const gp_space_value *other, const char *text);

/* Convert a JSON value to the value of a parameter as points store it. GP_EINVAL: it is outside the
 * range or not in the list. */
gp_status gp_space_value_json(const gp_space_parameter *parameter, const gp_json *value, double *number,
                              gp_error *err);

/* Call visit() for each word NAME=VALUE; visit() may change `value`. */
gp_status gp_space_each_word(const char *text,
                             gp_status (*visit)(void *context, const char *name, char *value, gp_error *err),
                             void *context, gp_error *err);

/* Return whether the first character, after white space, opens a JSON object. */
bool gp_space_text_is_json(const char *text);

/* Parse a JSON object; free it with gp_json_free(). */
gp_status gp_space_json_object(gp_json **out, const char *text, gp_error *err);

#endif
