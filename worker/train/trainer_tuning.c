/* trainer_tuning.c -- which engines a GPU's libraries compute with is chosen once for all ranks, and stays (backend.h).
 *
 *   root: rank 0, or who knows from the group before            the others
 *   -------------------------------------------------           ----------
 *   takes what the checkpoint or the group before says,
 *   else what is on disk, and times what is not
 *   compiles                                                    wait
 *   broadcasts what was taken; it goes into checkpoints ------> take it, and compile
 *
 * With `reproducible`, and with tune-seconds 0, nothing is timed and nothing is remembered: by rule, on every rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/text/log.h"
#include "worker/train/trainer_state.h"

/* The option if it is given, else GRADPOOL_TUNE_SECONDS, else the option's own value. */
static double tune_seconds(const gp_trainer *trainer)
{
    const gp_param *param = gp_params_find(gp_train_options_table, "tune-seconds");
    const char *text = getenv("GRADPOOL_TUNE_SECONDS");
    double seconds = text == NULL || gp_params_changed(param, &trainer->options)
                         ? trainer->options.tune_seconds
                         : strtod(text, NULL);

    return seconds > param->max ? param->max : seconds > 0 ? seconds : 0;
}

/* *root: who chooses; *wanted: anybody chooses.  The same on all ranks. */
static gp_status tuning_agree(gp_trainer *trainer, uint32_t *root, bool *wanted, gp_error *err)
{
    enum { RANKS = GP_COMM_WORLD_MAX, HELD = 2 * RANKS };
    int64_t seen[2] = { 0, !trainer->options.reproducible && tune_seconds(trainer) > 0 };
    gp_status status;

    if (trainer->plans != NULL)
        seen[0] = (trainer->plans_held ? HELD : RANKS) - (int64_t)trainer->rank;
    status = gp_comm_all_reduce_private(trainer->comm, seen, 2, GP_I64, GP_COMM_MAX, err);
    *root = seen[0] == 0 ? 0 : (uint32_t)((seen[0] > RANKS ? HELD : RANKS) - seen[0]);
    *wanted = seen[1] != 0;
    return status;
}

/* Without it, it only takes longer. */
static void tuning_from_disk(gp_trainer *trainer)
{
    gp_error why;
    gp_status status = gp_tuning_load(&trainer->tuning, trainer->libraries, &why);
    size_t said = strlen(trainer->planned);

    if (status != GP_OK && status != GP_ENOENT)
        snprintf(trainer->planned + said, sizeof(trainer->planned) - said, "%splans are chosen anew: %s",
                 said > 0 ? "; " : "", why.message);
}

static void tuning_root(gp_trainer *trainer)
{
    gp_error why;

    if (trainer->plans != NULL) {
        if (gp_tuning_read(&trainer->tuning, trainer->plans, strlen(trainer->plans), trainer->libraries,
                           &why) == GP_OK)
            return;
        snprintf(trainer->planned, sizeof(trainer->planned),
                 "the checkpoint's plans are not used, and chosen anew for %.150s: %.220s",
                 trainer->libraries, why.message);
    }
    tuning_from_disk(trainer);
    if (!trainer->again) /* a group that others wait for does not begin with a race */
        trainer->tuning.left_ns = (int64_t)(tune_seconds(trainer) * 1e9);
}

/* The document of `root`, which has one. */
static gp_status document_broadcast(gp_trainer *trainer, uint32_t root, gp_error *err)
{
    int64_t bytes = trainer->rank == root ? (int64_t)strlen(trainer->plans) : 0;
    char *text;
    gp_status status = gp_comm_broadcast_private(trainer->comm, &bytes, sizeof(bytes), root, err);

    if (status != GP_OK)
        return status;
    if (bytes < 1 || bytes > GP_TUNING_BYTES_MAX)
        return gp_fail(err, GP_EPROTO, "rank %u sends plans of %lld bytes; 1 to %d are possible", root,
                       (long long)bytes, GP_TUNING_BYTES_MAX);
    if (trainer->rank == root)
        return gp_comm_broadcast_private(trainer->comm, trainer->plans, (size_t)bytes, root, err);
    text = gp_calloc(1, (size_t)bytes + 1);
    if (text == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for plans of %lld bytes", (long long)bytes);
    status = gp_comm_broadcast_private(trainer->comm, text, (size_t)bytes, root, err);
    gp_free(trainer->plans);
    trainer->plans = text;
    return status;
}

gp_status gp_trainer_tune(gp_trainer *trainer, gp_error *err)
{
    gp_error why;
    bool wanted;
    gp_status status;

    if (trainer->backend_ops->libraries == NULL)
        return GP_OK;
    status = tuning_agree(trainer, &trainer->tuning_root, &wanted, err);
    if (status != GP_OK || !wanted)
        return status;
    status = gp_tuning_init(&trainer->tuning, err);
    if (status == GP_OK)
        status = trainer->backend_ops->libraries(trainer->backend, trainer->libraries, err);
    if (status != GP_OK)
        return status;
    if (trainer->rank == trainer->tuning_root) {
        tuning_root(trainer);
        trainer->tuning.stop = &trainer->control->stop;
        trainer->tuning_given_ns = trainer->tuning.left_ns;
        return GP_OK;
    }
    status = document_broadcast(trainer, trainer->tuning_root, err);
    if (status == GP_OK && gp_tuning_read(&trainer->tuning, trainer->plans, strlen(trainer->plans),
                                          trainer->libraries, &why) != GP_OK)
        gp_log(GP_LOG_WARN, "plans-differ", "rank %u's plans are of no use on %s: %s; here by rule",
               trainer->tuning_root, trainer->libraries, why.message);
    return status;
}

/* What was chosen, in words. */
static void tuning_describe(gp_trainer *trainer)
{
    const gp_tuning *tuning = &trainer->tuning;
    const double seconds = (double)(trainer->tuning_given_ns - tuning->left_ns) * 1e-9;
    uint32_t used = 0, whole = 0;
    size_t said = strlen(trainer->planned);
    char late[100] = "";

    for (uint32_t i = 0; i < tuning->count; i++) {
        used += tuning->choices[i].used;
        whole += tuning->choices[i].used && strncmp(tuning->choices[i].how, "whole ", 6) == 0;
    }
    if (tuning->untimed > 0)
        snprintf(late, sizeof(late), "; for %u tune-seconds were too short: by rule", tuning->untimed);
    if (tuning->timed > 0 || tuning->untimed > 0)
        snprintf(trainer->planned + said, sizeof(trainer->planned) - said,
                 "%splans: %u of %u convolutions and products timed in %.1f s, %u with what follows them%s",
                 said > 0 ? "; " : "", tuning->timed, used, seconds, whole, late);
}

static gp_status document_make(gp_trainer *trainer, gp_error *err)
{
    gp_buffer text;
    size_t bytes;
    gp_status status;

    gp_buffer_init(&text, GP_TUNING_BYTES_MAX);
    status = gp_tuning_write(&text, &trainer->tuning, trainer->libraries, err);
    if (status == GP_OK) {
        gp_free(trainer->plans);
        trainer->plans = (char *)gp_buffer_take(&text, &bytes);
    }
    gp_buffer_deinit(&text);
    return status;
}

gp_status gp_trainer_tuned(gp_trainer *trainer, gp_error *err)
{
    const gp_tuning *tuning = &trainer->tuning;
    gp_error why;
    gp_status status = GP_OK;

    if (tuning->choices == NULL)
        return GP_OK;
    if (tuning->unknown > 0)
        gp_log(GP_LOG_WARN, "plans-unknown",
               "%u plans name an engine that the libraries do not have here; by rule", tuning->unknown);
    if (trainer->rank == trainer->tuning_root) {
        tuning_describe(trainer);
        if ((tuning->timed > 0 || tuning->untimed > 0) && atomic_load(&trainer->control->stop) == 0 &&
            gp_tuning_save(tuning, trainer->libraries, &why) != GP_OK)
            gp_log(GP_LOG_WARN, "plans-not-kept", "plans are not kept for the next training: %s",
                   why.message);
        status = document_make(trainer, err);
        if (status == GP_OK)
            status = document_broadcast(trainer, trainer->tuning_root, err);
    }
    trainer->frame.plans = trainer->plans;
    gp_tuning_deinit(&trainer->tuning);
    return status;
}
