/* Picture of a sweep. */
#ifndef GP_CLI_SWEEP_PICTURE_H
#define GP_CLI_SWEEP_PICTURE_H

#include "client/sweep/sweep_points.h"

/* Draw a sweep as a PNG file. The upper chart has the objective of each trial and the best value so
 * far, in the order of the trial numbers. The lower chart has parallel coordinates: an axis for
 * each parameter, and the objective on the right. The line of the best trial is drawn last. Trials
 * without a value are not drawn. GP_ESTATE: no trial has a value. */
gp_status sweep_picture_write(const char *path, const sweep *core, const sweep_plan *plan, gp_error *err);

#endif
