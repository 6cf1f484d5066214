/* Picture of a sweep; sweep_picture.h describes the interface. */
#include "client/cli/sweep/sweep_picture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/predict/plot.h"
#include "common/base/memory/alloc.h"

enum {
    WIDTH = 1200,
    CHART = 460, /* height of each chart */
    LABELS_MAX = 9,
    LABEL_BYTES = 24,
    AXES_MAX = GP_SEARCH_PARAMETERS_MAX + 1,
    ROWS_MAX = 2000, /* lines of the parallel coordinates; more hide each other */
};

/* Data of the charts. All arrays are owned. */
typedef struct picture {
    const sweep *core;
    const sweep_plan *plan;
    gp_space *space;
    uint32_t *trials; /* [count]: trials with a value, in the order of their numbers */
    uint32_t count;
    double low, high; /* range of the objective of the trials that are done */
    plot_axis axes[AXES_MAX];
    plot_label labels[AXES_MAX][LABELS_MAX];
    char texts[AXES_MAX][LABELS_MAX][LABEL_BYTES];
} picture;

static bool is_better(const picture *p, double value, double other)
{
    return p->plan->minimize ? value < other : value > other;
}

/* Collect the trials with a value. */
static gp_status collect(picture *p, gp_error *err)
{
    const uint32_t count = sweep_count(p->core);

    p->trials = gp_calloc(count + 1, sizeof(*p->trials));
    if (p->trials == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a picture");
    p->low = INFINITY;
    p->high = -INFINITY;
    for (uint32_t i = 1; i <= count; i++) {
        const sweep_trial *trial = sweep_find(p->core, i);

        if ((trial->state != SWEEP_DONE && trial->state != SWEEP_STOPPED) || !isfinite(trial->value))
            continue;
        p->trials[p->count++] = i;
        p->low = fmin(p->low, trial->value);
        p->high = fmax(p->high, trial->value);
    }
    if (p->count == 0)
        return gp_fail(err, GP_ESTATE, "no trial has a value; there is nothing to draw");
    return GP_OK;
}

/* ---- best so far ---- */

static gp_status draw_best(const picture *p, plot *out, gp_error *err)
{
    double *x = gp_calloc(p->count, sizeof(double)), *y = gp_calloc(p->count, sizeof(double)),
           *steps_x = gp_calloc(2 * p->count + 1, sizeof(double)),
           *steps_y = gp_calloc(2 * p->count + 1, sizeof(double)), best = NAN;
    gp_status status = GP_OK;
    size_t steps = 0;

    if (x == NULL || y == NULL || steps_x == NULL || steps_y == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for a picture");
    for (uint32_t i = 0; status == GP_OK && i < p->count; i++) {
        const sweep_trial *trial = sweep_find(p->core, p->trials[i]);

        x[i] = p->trials[i];
        y[i] = trial->value;
        /* A stopped trial is not complete, so it is not the best. */
        if (trial->state == SWEEP_DONE && (isnan(best) || is_better(p, y[i], best))) {
            if (steps > 0)
                steps_x[steps] = x[i], steps_y[steps++] = best;
            best = y[i];
            steps_x[steps] = x[i], steps_y[steps++] = best;
        }
    }
    if (status == GP_OK && steps > 0)
        steps_x[steps] = p->trials[p->count - 1], steps_y[steps++] = best;
    if (status == GP_OK) {
        const plot_series series[] = {
            { .name = "trial", .x = x, .y = y, .count = p->count, .marks_only = true },
            { .name = "best so far", .x = steps_x, .y = steps_y, .count = steps }
        };

        plot_lines(out, (plot_area){ 0, 0, WIDTH, CHART }, &(plot_names){ p->plan->objective, "trial", "" },
                   series, 2);
    }
    gp_free(x);
    gp_free(y);
    gp_free(steps_x);
    gp_free(steps_y);
    return status;
}

/* ---- parallel coordinates ---- */

/* Return the position of a value on the axis of a parameter, from 0 to 1. */
static double position_of(const gp_space_parameter *parameter, double value)
{
    if (parameter->kind == GP_SPACE_LIST)
        return parameter->count < 2 ? 0.5 : value / (parameter->count - 1);
    if (parameter->high <= parameter->low)
        return 0.5;
    if (parameter->logarithmic)
        return log(value / parameter->low) / log(parameter->high / parameter->low);
    return (value - parameter->low) / (parameter->high - parameter->low);
}

static void add_label(picture *p, uint32_t axis, double at, const char *text)
{
    plot_axis *a = &p->axes[axis];
    char *copy = p->texts[axis][a->label_count];

    snprintf(copy, LABEL_BYTES, "%s", text);
    p->labels[axis][a->label_count++] = (plot_label){ at, copy };
}

static void add_number(picture *p, uint32_t axis, double at, double value)
{
    char text[LABEL_BYTES];

    snprintf(text, sizeof(text), "%.4g", value);
    add_label(p, axis, at, text);
}

/* Set up the axis of a parameter: all values of a short list, else both ends and the middle. */
static void add_axis(picture *p, uint32_t axis)
{
    const gp_space_parameter *parameter = &p->space->parameters[axis];

    p->axes[axis] = (plot_axis){ .name = parameter->name, .labels = p->labels[axis] };
    if (parameter->kind == GP_SPACE_LIST) {
        const uint32_t every = (parameter->count + LABELS_MAX - 1) / LABELS_MAX;

        for (uint32_t i = 0; i < parameter->count; i += every)
            add_label(p, axis, position_of(parameter, i), parameter->values[i].text);
        return;
    }
    add_number(p, axis, 0, parameter->low);
    if (parameter->logarithmic)
        add_number(p, axis, 0.5, sqrt(parameter->low * parameter->high));
    else if (parameter->kind == GP_SPACE_REAL)
        add_number(p, axis, 0.5, (parameter->low + parameter->high) / 2);
    add_number(p, axis, 1, parameter->high);
}

/* Compare two trials: the worse one comes first, and the best trial of the sweep last. */
static int compare(const void *a, const void *b, void *context)
{
    const picture *p = context;
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b, best = sweep_best(p->core);
    const double value_x = sweep_find(p->core, x)->value, value_y = sweep_find(p->core, y)->value;

    if ((x == best) != (y == best))
        return x == best ? 1 : -1;
    if (value_x != value_y)
        return is_better(p, value_x, value_y) ? 1 : -1;
    return x < y ? -1 : 1;
}

static gp_status draw_parallel(picture *p, plot *out, gp_error *err)
{
    const uint32_t parameters = p->space->count, axes = parameters + 1;
    const double span = p->high > p->low ? p->high - p->low : 1;
    double *positions = gp_calloc((size_t)p->count * axes, sizeof(double)),
           *shades = gp_calloc(p->count, sizeof(double));
    gp_status status = GP_OK;
    uint32_t first = p->count > ROWS_MAX ? p->count - ROWS_MAX : 0;

    if (positions == NULL || shades == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for a picture");
    qsort_r(p->trials, p->count, sizeof(*p->trials), compare, p);
    for (uint32_t i = 0; status == GP_OK && i < p->count; i++) {
        const sweep_trial *trial = sweep_find(p->core, p->trials[i]);
        double *row = positions + (size_t)i * axes;
        sweep_point point;

        status = sweep_point_read(&point, p->space, trial->values, err);
        for (uint32_t k = 0; status == GP_OK && k < parameters; k++)
            row[k] = point.applies[k] ? position_of(&p->space->parameters[k], point.value[k]) : NAN;
        row[parameters] = (trial->value - p->low) / span;
        shades[i] = p->count < 2 ? 1 : (double)i / (p->count - 1); /* by rank: outliers hide nothing */
    }
    for (uint32_t k = 0; k < parameters; k++)
        add_axis(p, k);
    p->axes[parameters] = (plot_axis){ .name = p->plan->objective, .labels = p->labels[parameters] };
    add_number(p, parameters, 0, p->low);
    add_number(p, parameters, 1, p->high);
    if (status == GP_OK)
        plot_parallel(out, (plot_area){ 0, CHART, WIDTH, CHART }, "parameters of the trials, the best in red",
                      p->axes, axes, positions + (size_t)first * axes, shades + first, p->count - first);
    gp_free(positions);
    gp_free(shades);
    return status;
}

gp_status sweep_picture_write(const char *path, const sweep *core, const sweep_plan *plan, gp_error *err)
{
    picture *p = gp_calloc(1, sizeof(*p));
    plot *out = plot_new(WIDTH, 2 * CHART);
    gp_status status = p != NULL && out != NULL ? GP_OK : gp_fail(err, GP_ENOMEM, "no memory for a picture");

    if (status == GP_OK) {
        p->core = core;
        p->plan = plan;
        status = sweep_points_space(&p->space, plan, err);
    }
    if (status == GP_OK)
        status = collect(p, err);
    if (status == GP_OK)
        status = draw_best(p, out, err);
    if (status == GP_OK)
        status = draw_parallel(p, out, err);
    if (status == GP_OK)
        status = plot_write(out, path, err);
    if (p != NULL) {
        gp_space_free(p->space);
        gp_free(p->trials);
    }
    gp_free(p);
    plot_free(out);
    return status;
}
