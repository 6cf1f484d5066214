/* search.h: find good parameters of any function, one trial after another or several at once.
 *
 *     gp_search *search;
 *     gp_search_options options = { .minimize = true, .trials_max = 30 };
 *     uint32_t trial;
 *     char *values;
 *     gp_error err;
 *
 *     gp_search_new(&search, "lr=log:1e-4:0.3 layers=int:1:4 solver=sgdm,adam", &options, &err);
 *     while (gp_search_ask(search, &trial, &values, &err) == GP_OK) {
 *         double loss = run(values);              {"lr": 0.0123, "layers": 3, "solver": "adam"}
 *         gp_search_tell(search, trial, GP_SEARCH_DONE, loss, &err);
 *         gp_buffer_free(values);
 *     }
 *
 * A search proposes points of a space (ask) and learns their objective values (tell). It needs no
 * pool, reads no file and no clock, and starts no thread. Several trials may run at the same time:
 * call gp_search_ask() again before the earlier trials have ended.
 *
 * Proposals are a pure function of the space, the options and the history, which is the order of
 * all ask, add, report and tell calls. The same build on the same kind of machine repeats them bit
 * for bit. To restore a search after a restart, repeat the history with gp_search_add() in place of
 * gp_search_ask().
 *
 * A handle may be used by one thread at a time. Outputs are set only on success; `err` may be
 * NULL. */
#ifndef GP_SEARCH_H
#define GP_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include <gradpool/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Public interface of the library. */
#pragma GCC visibility push(default)

/* Limits. */
enum {
    GP_SEARCH_PARAMETERS_MAX = 64,      /* parameters in a space */
    GP_SEARCH_VALUES_MAX = 1000,        /* values in a list */
    GP_SEARCH_TRIALS_MAX = 100000,      /* trials in a search */
    GP_SEARCH_SPACE_BYTES_MAX = 1 << 20 /* length of a space as text */
};

/* Search: a space, a method and a history of trials. */
typedef struct gp_search gp_search;

/* Methods of choosing the next point. */
typedef enum gp_search_method {
    GP_SEARCH_BAYES,  /* Bayesian optimization: a model of all values proposes the next point */
    GP_SEARCH_RANDOM, /* independent, uniform points */
    GP_SEARCH_SOBOL,  /* a scrambled Sobol sequence: uniform, without gaps and clusters */
    GP_SEARCH_GRID,   /* all points of a finite space in order; the last parameter varies fastest */
} gp_search_method;

/* Type of a range. */
typedef enum gp_search_type {
    GP_SEARCH_UNTYPED, /* as written: a bound with a decimal point or exponent makes it real */
    GP_SEARCH_REAL,
    GP_SEARCH_INTEGER,
} gp_search_type;

/* Options of gp_search_new(). Initialize the struct with zeros: 0 and NULL select the defaults. */
typedef struct gp_search_options {
    gp_search_method method;
    uint64_t seed;
    bool minimize;       /* find the lowest value; false: the highest */
    uint32_t trials_max; /* number of trials; 0: GP_SEARCH_TRIALS_MAX */

    /* Early stopping by ASHA: of the trials that reach a rung, one of asha_eta continues. Rungs
     * stand at epochs_min, asha_eta * epochs_min, ... below epochs_max. 0: no trial is stopped. */
    uint32_t asha_eta;   /* 2 to 16; usually 3 */
    uint32_t epochs_min; /* first rung; 0: 1 */
    uint32_t epochs_max; /* epochs of a complete trial */

    /* Return the type of NAME=LO:HI without "int:" or "real:". NULL: always GP_SEARCH_UNTYPED. */
    gp_search_type (*type_of)(void *context, const char *name);
    void *context; /* passed to type_of */
} gp_search_options;

/* Create a search.
 *   out      search; free it with gp_search_free()
 *   space    parameters as words or as JSON
 *   options  read only during the call; NULL: defaults
 *
 * Words are separated by white space:
 *   NAME=A,B,C        one of these numbers or texts; a single value is a list too
 *   NAME=int:LO:HI    a whole number in [LO, HI]
 *   NAME=real:LO:HI   a real number in [LO, HI]
 *   NAME=LO:HI        a real number if a bound has a decimal point or an exponent; whole bounds
 *                     need "int:" or "real:"
 *   NAME=log:LO:HI    the same, uniform in the logarithm; "int:log:LO:HI" for whole numbers
 *   NAME=LO:STEP:HI   one of LO, LO + STEP, ... up to HI
 *
 * JSON is one object with a member for each parameter. The member is a range in the notation above
 * ("log:1e-4:0.3"), an array of values, or an object {"values": RANGE OR ARRAY, "when": CONDITION}:
 *   {"solver": ["sgdm", "adam"],
 *    "momentum": {"values": "0.5:0.99", "when": {"solver": ["sgdm"]}}}
 * A parameter with a condition applies only if each named parameter has one of the listed values.
 * Named parameters are lists, and stand before the parameter.
 *
 * The values of a list are ordered if all of them are numbers in ascending or descending order;
 * otherwise they are categories. Proposed reals are rounded to at least six digits of the range.
 *
 * GP_EINVAL: malformed space or options. GP_ELIMIT: a limit above is exceeded. */
gp_status gp_search_new(gp_search **out, const char *space, const gp_search_options *options, gp_error *err);
void gp_search_free(gp_search *search); /* accepts NULL */

/* Propose a point for the next trial, which is pending until gp_search_tell(). No point is
 * proposed that another trial has, as long as the space has others.
 *   trial   number of the trial, from 1
 *   values  JSON object with the parameters that apply; free it with gp_buffer_free()
 * GP_ENOENT: trials_max trials were started, or all points of the space were. */
gp_status gp_search_ask(gp_search *search, uint32_t *trial, char **values, gp_error *err);

/* Start a trial with given values: a point of the user, or a trial of a repeated history. The point
 * may equal that of another trial, and counts for trials_max.
 *   values  all parameters that apply, as JSON ({"lr": 0.1}) or as words ("lr=0.1 solver=adam")
 *   trial   number of the trial; NULL: not needed
 * GP_EINVAL: a value outside the space; a parameter that is unknown, missing or does not apply.
 * GP_ELIMIT: trials_max trials were started. */
gp_status gp_search_add(gp_search *search, const char *values, uint32_t *trial, gp_error *err);

/* Report the objective of a pending trial after an epoch, and decide about early stopping.
 *   epoch  from 1; an epoch that was reported before changes nothing
 *   value  objective; a value that is not finite stops the trial
 *   stop   set to whether the caller should stop the trial; always false without asha_eta
 * The decisions are those of Ray's AsyncHyperBandScheduler: a trial stops at a rung if its value is
 * worse than the quantile 1 - 1/asha_eta of the values that other trials reached the rung with. The
 * caller ends a stopped trial with gp_search_tell().
 * GP_EINVAL: no such trial, or epoch 0. GP_ESTATE: the trial has ended. */
gp_status gp_search_report(gp_search *search, uint32_t trial, uint32_t epoch, double value, bool *stop,
                           gp_error *err);

/* Final states of a trial. */
typedef enum gp_search_state {
    GP_SEARCH_PENDING, /* not ended yet; invalid in gp_search_tell() */
    GP_SEARCH_DONE,    /* complete */
    GP_SEARCH_STOPPED, /* stopped early */
    GP_SEARCH_FAILED,  /* no value */
} gp_search_state;

/* End a trial.
 *   value  objective; ignored if the trial failed; NaN is valid for a stopped trial
 * GP_EINVAL: no such trial, invalid state or value. GP_ESTATE: the trial has already ended. */
gp_status gp_search_tell(gp_search *search, uint32_t trial, gp_search_state state, double value,
                         gp_error *err);

/* Get the best trial that is done. Each output may be NULL.
 *   values  JSON as from gp_search_ask()
 * GP_ENOENT: no trial is done. */
gp_status gp_search_best(const gp_search *search, uint32_t *trial, double *value, char **values,
                         gp_error *err);

/* Estimate how much each parameter matters: the part of the variance of the modeled objective that
 * the parameter explains alone, from 0 to 1 (first-order Sobol index). The rest is explained by
 * combinations of parameters.
 *   importance  JSON object {"NAME": PART, ...} of all parameters; free it with gp_buffer_free()
 * Works with each method. GP_ENOENT: too few trials have a value. */
gp_status gp_search_importance(gp_search *search, char **importance, gp_error *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
