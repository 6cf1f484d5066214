/* The space of a search: parameters with their ranges and conditions.
 *
 * A point is an array with one double per parameter: the index of a list value, a whole number or a
 * real. A parameter that does not apply has its first value, so equal points are equal arrays.
 *
 * In the unit cube the values of a list have cells of equal size. A whole number v has the cell
 * from v - 0.5 to v + 0.5, scaled like the range. A linear range or a list represents a value by
 * the centre of its cell. */
#ifndef GP_SPACE_H
#define GP_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#include <gradpool/search.h>

#include "common/base/memory/buffer.h"
#include "common/base/text/json.h"

enum { GP_SPACE_NAME_MAX = 63 }; /* bytes in the name of a parameter */

/* Kinds of parameters. */
typedef enum gp_space_kind { GP_SPACE_LIST, GP_SPACE_INTEGER, GP_SPACE_REAL } gp_space_kind;

/* Value of a list. */
typedef struct gp_space_value {
    char *text;    /* as shown to the user; owned */
    bool is_text;  /* a text, even if it looks like a number */
    bool is_bool;  /* true or false; `number` is 1 or 0 */
    double number; /* if neither text nor bool */
} gp_space_value;

/* Condition: the parent, an earlier parameter with a list, has one of the allowed values. */
typedef struct gp_space_condition {
    uint32_t parent;
    bool *allowed; /* [count of the parent]; owned */
} gp_space_condition;

/* Parameter of a space. */
typedef struct gp_space_parameter {
    char name[GP_SPACE_NAME_MAX + 1];
    gp_space_kind kind;
    bool logarithmic;               /* range: uniform in the logarithm */
    bool ordered;                   /* list: numbers in order, so near indices are similar */
    double low, high;               /* bounds, inclusive; list: 0 and count - 1 */
    gp_space_value *values;         /* list: [count], owned */
    uint32_t count;                 /* list: number of values */
    gp_space_condition *conditions; /* [condition_count], all must hold; owned */
    uint32_t condition_count;
} gp_space_parameter;

typedef struct gp_space {
    gp_space_parameter *parameters; /* [count], owned */
    uint32_t count;
} gp_space;

/* Parse a space as words or JSON; gp_search_new() describes the notation, and `type_of`. Free the
 * space with gp_space_free(). */
gp_status gp_space_parse(gp_space **out, const char *text,
                         gp_search_type (*type_of)(void *context, const char *name), void *context,
                         gp_error *err);
void gp_space_free(gp_space *space); /* accepts NULL */

/* Return a parameter's index, or space->count if the space has no such parameter. */
uint32_t gp_space_find(const gp_space *space, const char *name);

/* Return whether a parameter applies at a point.
 *   point    values of the parameters before it
 *   applies  results for the parameters before it */
bool gp_space_applies(const gp_space_parameter *parameter, const double *point, const bool *applies);

/* Convert coordinates in [0, 1) to a point. */
void gp_space_decode(const gp_space *space, const double *unit, double *point);

/* Convert a point to coordinates; 0.5 for parameters that do not apply. */
void gp_space_encode(const gp_space *space, const double *point, double *unit);

/* Parse a point as words or JSON, as in gp_search_add(). */
gp_status gp_space_point_parse(const gp_space *space, const char *text, double *point, gp_error *err);

/* Write a point as a JSON object; free *text with gp_free(). */
gp_status gp_space_point_text(const gp_space *space, const double *point, char **text, gp_error *err);

/* Set the first point of a finite space in grid order. */
void gp_space_first(const gp_space *space, double *point);

/* Advance to the next point in grid order: the last parameter varies fastest. Return false after
 * the last point. */
bool gp_space_next(const gp_space *space, double *point);

/* Return the number of points of a finite space, at most `limit`. A space with a real range has
 * `limit` points. */
uint64_t gp_space_points(const gp_space *space, uint64_t limit);

#endif
