/* Points of a space: conversion to the unit cube and back, conditions, and enumeration. */
#include "common/search/space.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"

/* Proposed reals: digits after the first one; largest number of decimal places. */
enum { STEP_DIGITS = 6, DECIMALS_MAX = 30 };

void gp_space_free(gp_space *space)
{
    if (space == NULL)
        return;
    for (uint32_t i = 0; i < space->count; i++) {
        gp_space_parameter *parameter = &space->parameters[i];

        for (uint32_t k = 0; parameter->values != NULL && k < parameter->count; k++)
            gp_free(parameter->values[k].text);
        for (uint32_t k = 0; k < parameter->condition_count; k++)
            gp_free(parameter->conditions[k].allowed);
        gp_free(parameter->values);
        gp_free(parameter->conditions);
    }
    gp_free(space->parameters);
    gp_free(space);
}

uint32_t gp_space_find(const gp_space *space, const char *name)
{
    uint32_t i = 0;

    while (i < space->count && strcmp(space->parameters[i].name, name) != 0)
        i++;
    return i;
}

bool gp_space_applies(const gp_space_parameter *parameter, const double *point, const bool *applies)
{
    for (uint32_t i = 0; i < parameter->condition_count; i++) {
        const gp_space_condition *condition = &parameter->conditions[i];

        if (!applies[condition->parent] || !condition->allowed[(uint32_t)point[condition->parent]])
            return false;
    }
    return true;
}

/* ---- unit cube ---- */

static double scale(const gp_space_parameter *parameter, double value)
{
    return parameter->logarithmic ? log(value) : value;
}

/* Get the ends of the range in the unit cube. The cells of whole numbers extend beyond the bounds
 * by half a number. */
static void scaled_ends(const gp_space_parameter *parameter, double *low, double *high)
{
    const double half = parameter->kind == GP_SPACE_REAL ? 0.0 : 0.5;

    *low = scale(parameter, parameter->low - half);
    *high = scale(parameter, parameter->high + half);
}

static double clamp(double value, double low, double high)
{
    return value < low ? low : value > high ? high : value;
}

/* Round a real to a short decimal: to six or more digits, counted from the first digit of the width
 * of the range, or of the value if the range is logarithmic. */
static double short_decimal(const gp_space_parameter *parameter, double value)
{
    char text[400]; /* %f writes up to 309 + DECIMALS_MAX digits */
    const int decimals = STEP_DIGITS - (int)floor(log10(parameter->high - parameter->low));

    if (parameter->logarithmic)
        snprintf(text, sizeof(text), "%.*e", STEP_DIGITS, value);
    else if (decimals <= DECIMALS_MAX)
        snprintf(text, sizeof(text), "%.*f", decimals < 0 ? 0 : decimals, value);
    else
        return value;
    return strtod(text, NULL);
}

static double decode(const gp_space_parameter *parameter, double unit)
{
    double low, high;

    scaled_ends(parameter, &low, &high);
    double value = low + unit * (high - low);

    if (parameter->logarithmic)
        value = exp(value);
    if (parameter->kind == GP_SPACE_REAL)
        value = short_decimal(parameter, value);
    else
        value = floor(value + 0.5);
    return clamp(value, parameter->low, parameter->high) + 0.0; /* -0.0 becomes 0.0 */
}

static double encode(const gp_space_parameter *parameter, double value)
{
    double low, high, centre = scale(parameter, value);

    scaled_ends(parameter, &low, &high);
    return clamp((centre - low) / (high - low), 0.0, 1.0);
}

void gp_space_decode(const gp_space *space, const double *unit, double *point)
{
    bool applies[GP_SEARCH_PARAMETERS_MAX];

    for (uint32_t i = 0; i < space->count; i++) {
        const gp_space_parameter *parameter = &space->parameters[i];

        applies[i] = gp_space_applies(parameter, point, applies);
        point[i] = applies[i] ? decode(parameter, unit[i]) : parameter->low;
    }
}

void gp_space_encode(const gp_space *space, const double *point, double *unit)
{
    bool applies[GP_SEARCH_PARAMETERS_MAX];

    for (uint32_t i = 0; i < space->count; i++) {
        const gp_space_parameter *parameter = &space->parameters[i];

        applies[i] = gp_space_applies(parameter, point, applies);
        unit[i] = applies[i] ? encode(parameter, point[i]) : 0.5;
    }
}

/* ---- enumeration ---- */

void gp_space_first(const gp_space *space, double *point)
{
    for (uint32_t i = 0; i < space->count; i++)
        point[i] = space->parameters[i].low;
}

bool gp_space_next(const gp_space *space, double *point)
{
    bool applies[GP_SEARCH_PARAMETERS_MAX];

    for (uint32_t i = 0; i < space->count; i++)
        applies[i] = gp_space_applies(&space->parameters[i], point, applies);
    for (uint32_t i = space->count; i-- > 0;) {
        if (applies[i] && point[i] < space->parameters[i].high) {
            point[i]++;
            return true;
        }
        point[i] = space->parameters[i].low;
    }
    return false;
}

uint64_t gp_space_points(const gp_space *space, uint64_t limit)
{
    double point[GP_SEARCH_PARAMETERS_MAX];
    uint64_t count = 1;

    for (uint32_t i = 0; i < space->count; i++)
        if (space->parameters[i].kind == GP_SPACE_REAL)
            return limit;
    gp_space_first(space, point);
    while (count < limit && gp_space_next(space, point))
        count++;
    return count;
}
