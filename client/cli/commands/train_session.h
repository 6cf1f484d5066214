/* State of one `gradpool train`, and the callbacks that show and record the training. */
#ifndef GP_CLI_TRAIN_SESSION_H
#define GP_CLI_TRAIN_SESSION_H

#include "client/cli/measure/advice.h"
#include "client/cli/cli.h"
#include "client/cli/jobs/run_folder.h"
#include "client/cli/model/changes.h"
#include "client/cli/train/slow_step.h"
#include "client/cli/view.h"
#include "proto/local/paths.h"

typedef struct train_options {
    cli_common common;
    char network[512], data[512], validation_data[512], out[512], metrics[512], folder[512];
    char pretrained[512], classes[24], freeze_up_to[64], image_normalization[160];
    double head_factor[2];
    int lint, plots, tensorboard;
    bool verbose;
} train_options;

/* `gradpool train` state, shared with the training callbacks. */
typedef struct gp_session {
    const cli_call *call;
    const train_options *options;
    gp_pool *pool;
    gp_train_request request;
    cli_changes changes; /* changes to the pretrained network */
    /* opened when all workers are ready, so that a rejected command leaves no folder behind */
    run_folder folder;
    gp_train_options values; /* effective options */
    gp_paths paths;          /* of the pool; state_dir "": unknown */
    gp_view *view;
    slow_steps *slow;
    int stop_reported; /* cli_stop value last reported to the user */
    gp_error failed;   /* error while opening the run folder; GP_OK: none */
    advice_watch advice;
    gp_buffer warnings;  /* warnings issued before the folder was opened, as lines for the log */
    bool reported;       /* report.json was written */
    bool excluded_noted; /* samples excluded from validation were reported */
    bool pixels;         /* targets are pixel classes */
    int64_t stepped_ms;  /* when the last step was reported; 0: none yet */

    /* SIGTERM grace period: duration of a soft stop in steps, and seconds to save the state */
    double passes, state_s;
} gp_session;

/* Return the network as given. */
static inline const char *train_name(const train_options *options)
{
    return options->pretrained[0] != '\0' ? options->pretrained : options->network;
}

/* Return the text of an option; NULL: not given. */
static inline const char *given_or_null(const char *text)
{
    return text[0] != '\0' ? text : NULL;
}

/* Return the callbacks of a training. `session` is their context. */
gp_train_events train_events(gp_session *session);

#endif
