/* State of a search, shared by the source files of the search. */
#ifndef GP_SEARCH_STATE_H
#define GP_SEARCH_STATE_H

#include "common/search/asha.h"
#include "common/search/regression.h"
#include "common/search/space.h"

/* Uses of random numbers, each with its own stream. */
enum { SEARCH_RANDOM, SEARCH_SOBOL, SEARCH_CANDIDATES, SEARCH_ROWS, SEARCH_IMPORTANCE };

/* Trial of a search. */
typedef struct search_trial {
    gp_search_state state;
    double value;   /* objective; NaN: none */
    uint32_t rungs; /* rungs passed; the last one has the trial's score */
    bool stop;      /* early stopping has decided to stop the trial */
} search_trial;

/* Value of a trial at a level: a rung of early stopping, or rung_count for its final value. */
typedef struct search_observation {
    uint32_t trial, level;
    double cost; /* low is good; NaN: the trial failed, at any level */
} search_observation;

/* Hyperparameters of the model, fitted to the first `count` observations of a level. */
typedef struct search_fit {
    uint32_t level, count;
    uint32_t fits; /* fits in the sequence up to `count` */
    double theta[GP_REGRESSION_DIMENSIONS_MAX + 2];
} search_fit;

struct gp_search {
    gp_space *space;
    gp_search_options options;
    uint32_t planned; /* expected number of trials; at most options.trials_max */
    uint64_t points;  /* of the space; more than GP_SEARCH_TRIALS_MAX: never used up */

    search_trial *trials; /* [trial_count], trial 1 first */
    double *values;       /* [trial_count, parameters]: the points of the trials */
    uint32_t trial_count;

    /* hash table of distinct points: the first trial with the point; 0: free. The size is 0 or a
     * power of two. */
    uint32_t *index;
    uint32_t index_size;
    uint32_t points_used; /* distinct points of the trials */

    search_observation *observations; /* [observation_count], in the order of the calls */
    uint32_t observation_count;
    search_fit fit;

    gp_asha asha; /* rung_count 0: no early stopping */

    double grid[GP_SEARCH_PARAMETERS_MAX]; /* latest proposal of a grid, if grid_started */
    bool grid_started;
};

/* Set the expected number of trials; values above options.trials_max are clamped. The design takes
 * at most half of the trials, and the last trials do not explore. */
void search_set_planned(gp_search *search, uint32_t trials);

/* Return the point of a trial. */
const double *search_point(const gp_search *search, uint32_t trial);

/* Return whether a trial has the point. */
bool search_is_used(const gp_search *search, const double *point);

/* Return the number of observations before the model chooses points. */
uint32_t search_design_size(const gp_search *search);

/* Draw a uniform point of the unit cube. It depends on the seed and the arguments only. */
void search_draw(const gp_search *search, uint32_t purpose, uint32_t when, uint32_t position, double *unit);

#endif
