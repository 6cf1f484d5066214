/* The search of a sweep: gp_search behind the interface of sweep_core.h. */
#ifndef GP_SWEEP_POINTS_H
#define GP_SWEEP_POINTS_H

#include "client/sweep/sweep_folder.h"
#include "common/base/text/text.h"
#include "common/search/space.h"

typedef struct sweep_points {
    gp_search *search;
    char *values; /* of the last point; owned by this struct */
    uint32_t asha_eta, epochs_min, epochs_max;
    double command_epochs;                 /* of a trial without a parameter for them; INFINITY: a program */
    uint32_t epochs[SWEEP_TRIALS_MAX + 1]; /* last epoch reported, by trial */
    double length[SWEEP_TRIALS_MAX + 1];   /* epochs of the training, by trial; INFINITY: a program */
} sweep_points;

/* Create the search of a plan. Free *out with sweep_points_free(). GP_EINVAL: a malformed space. */
gp_status sweep_points_new(sweep_points **out, const sweep_plan *plan, gp_error *err);
void sweep_points_free(sweep_points *points); /* accepts NULL */

/* Return the interface to the points, which must outlive it. */
sweep_search sweep_points_search(sweep_points *points);

/* Return how much of the objective each parameter explains, as JSON; free it with gp_buffer_free().
 * NULL: too few trials have a value. */
char *sweep_points_importance(sweep_points *points);

/* Parse the space of a plan; free *out with gp_space_free(). GP_EINVAL: a malformed space. */
gp_status sweep_points_space(gp_space **out, const sweep_plan *plan, gp_error *err);

/* Values of a trial, by parameter of the space. */
typedef struct sweep_point {
    double value[GP_SEARCH_PARAMETERS_MAX]; /* as in space.h */
    bool applies[GP_SEARCH_PARAMETERS_MAX];
} sweep_point;

/* Read the values of a trial (sweep_trial.values). GP_EINVAL: not a point of the space. */
gp_status sweep_point_read(sweep_point *out, const gp_space *space, const char *values, gp_error *err);

/* Write the value of a parameter as text. Return the text, which is in `number` or belongs to the
 * space; "": the parameter does not apply. */
const char *sweep_point_text(const sweep_point *point, const gp_space *space, uint32_t parameter,
                             char number[GP_NUMBER_BYTES]);

/* Return whether `name` is a name of the training option for the epochs. */
bool sweep_points_is_epochs(const char *name);

/* Return the epochs in the command of a training, which a parameter may replace. */
double sweep_points_epochs(const sweep_plan *plan);

/* Return the type of the training option `name`, which a range of that name takes; implements
 * gp_search_options.type_of. */
gp_search_type sweep_points_type(void *context, const char *name);

#endif
