/* trainer_tuning.c -- choose engines on the root and copy the choices to all ranks.
 *
 *   root: rank 0, or a rank with an earlier group's choices  other ranks
 *   ------------------------------------------------------------- -----------
 *   read the choices from the checkpoint, the earlier group,
 *   or the disk cache; time engines for the rest
 *   compile                                                       wait
 *   broadcast the choices, which are stored in checkpoints   ---> take them and compile
 *
 * With `reproducible`, or autotune-seconds 0, no engine is timed and no choice is stored: all
 * ranks use the library's default rule. */
#include "worker/train/trainer_tuning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/text/log.h"

/* Return the tuning time limit in seconds: the option if set, else GRADPOOL_AUTOTUNE_SECONDS,
 * else the option default. */
static double autotune_seconds(const gp_train_options *options)
{
    const gp_param *param = gp_params_find(gp_train_options_table, "autotune-seconds");
    const char *text = getenv("GRADPOOL_AUTOTUNE_SECONDS");
    double seconds =
        text == NULL || gp_params_changed(param, options) ? options->autotune_seconds : strtod(text, NULL);

    return seconds > param->max ? param->max : seconds > 0 ? seconds : 0;
}

/* Broadcast the root's document. */
static gp_status document_broadcast(gp_train_tuning *tuning, gp_error *err)
{
    const uint32_t root = tuning->root;
    const bool is_root = gp_comm_rank(tuning->comm) == root;
    int64_t bytes = is_root ? (int64_t)strlen(tuning->document) : 0;
    char *text;
    gp_status status = gp_comm_broadcast(tuning->comm, &bytes, sizeof(bytes), root, err);

    if (status != GP_OK)
        return status;
    if (bytes < 1 || bytes > GP_TUNING_BYTES_MAX)
        return gp_fail(err, GP_EPROTO, "malformed plans from rank %u: %lld bytes, must be between 1 and %d",
                       root, (long long)bytes, GP_TUNING_BYTES_MAX);
    if (is_root)
        return gp_comm_broadcast(tuning->comm, tuning->document, (size_t)bytes, root, err);
    text = gp_calloc(1, (size_t)bytes + 1);
    if (text == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for plans of %lld bytes", (long long)bytes);
    status = gp_comm_broadcast(tuning->comm, text, (size_t)bytes, root, err);
    gp_free(tuning->document);
    tuning->document = text;
    return status;
}

/* Load the existing choices on the root: from the document, or else from the disk cache. A failure
 * is only noted, because timing replaces them. */
static void tuning_root(gp_train_tuning *tuning)
{
    size_t said = 0;
    gp_error why;
    gp_status status;

    if (tuning->document != NULL) {
        if (gp_tuning_read(&tuning->tuning, tuning->document, strlen(tuning->document), tuning->libraries,
                           &why) == GP_OK)
            return;
        snprintf(tuning->note, sizeof(tuning->note),
                 "cannot use the plans of the checkpoint; autotuning for %.150s: %.220s", tuning->libraries,
                 why.message);
        said = strlen(tuning->note);
    }
    status = gp_tuning_load(&tuning->tuning, tuning->libraries, &why);
    if (status != GP_OK && status != GP_ENOENT)
        snprintf(tuning->note + said, sizeof(tuning->note) - said,
                 "%scannot use the cached plans; autotuning: %s", said > 0 ? "; " : "", why.message);
    if (!tuning->restarted)
        tuning->tuning.left_ns = (int64_t)(autotune_seconds(tuning->options) * 1e9);
}

gp_status gp_train_tuning_begin(gp_train_tuning *tuning, gp_comm *comm, gp_error *err)
{
    enum { RANKS = GP_COMM_WORLD_MAX, CARRIED = 2 * RANKS };
    int64_t seen[2] = { 0, !tuning->options->reproducible && autotune_seconds(tuning->options) > 0 };
    gp_error why;
    gp_status status;

    tuning->comm = comm;
    if (tuning->backend_ops->libraries == NULL)
        return GP_OK;
    /* Agree on the root, and whether any rank wants to tune. */
    if (tuning->document != NULL)
        seen[0] = (tuning->carried ? CARRIED : RANKS) - (int64_t)gp_comm_rank(comm);
    status = gp_comm_all_reduce_private(comm, seen, 2, GP_I64, GP_COMM_MAX, err);
    tuning->root = seen[0] == 0 ? 0 : (uint32_t)((seen[0] > RANKS ? CARRIED : RANKS) - seen[0]);
    if (status != GP_OK || seen[1] == 0)
        return status;
    status = gp_tuning_init(&tuning->tuning, err);
    if (status == GP_OK)
        status = tuning->backend_ops->libraries(tuning->backend, tuning->libraries, err);
    if (status != GP_OK)
        return status;
    if (gp_comm_rank(tuning->comm) == tuning->root) {
        tuning_root(tuning);
        tuning->tuning.stop = &tuning->control->stop;
        tuning->budget_ns = tuning->tuning.left_ns;
        return GP_OK;
    }
    status = document_broadcast(tuning, err);
    if (status == GP_OK && gp_tuning_read(&tuning->tuning, tuning->document, strlen(tuning->document),
                                          tuning->libraries, &why) != GP_OK)
        gp_log(GP_LOG_WARN, "plans-differ", "cannot use the plans of rank %u on %s: %s; using default plans",
               tuning->root, tuning->libraries, why.message);
    return status;
}

gp_tuning *gp_train_tuning_choices(gp_train_tuning *tuning)
{
    return tuning->tuning.choices == NULL ? NULL : &tuning->tuning;
}

gp_status gp_train_tuning_end(gp_train_tuning *tuning, gp_train_notes *notes, gp_error *err)
{
    const gp_tuning *made = &tuning->tuning;
    uint32_t used = 0, whole = 0;
    size_t said = strlen(tuning->note), bytes;
    char late[100] = "";
    gp_buffer text;
    gp_error why;
    gp_status status = GP_OK;

    if (made->choices == NULL)
        return GP_OK;
    if (made->unknown > 0)
        gp_log(GP_LOG_WARN, "plans-unknown",
               "%u plans name an engine that these libraries lack; using default plans", made->unknown);
    if (gp_comm_rank(tuning->comm) == tuning->root) {
        /* Append the tuning result to the note. */
        for (uint32_t i = 0; i < made->count; i++) {
            used += made->choices[i].used;
            whole += made->choices[i].used && strncmp(made->choices[i].how, "whole ", 6) == 0;
        }
        if (made->untimed > 0)
            snprintf(late, sizeof(late), "; no time was left for %u, which use default plans", made->untimed);
        if (made->timed > 0 || made->untimed > 0)
            snprintf(
                tuning->note + said, sizeof(tuning->note) - said,
                "%splans: timed %u of %u convolutions and products in %.1f s, %u fused with following ops%s",
                said > 0 ? "; " : "", made->timed, used, (double)(tuning->budget_ns - made->left_ns) * 1e-9,
                whole, late);
        if ((made->timed > 0 || made->untimed > 0) && atomic_load(&tuning->control->stop) == 0 &&
            gp_tuning_save(made, tuning->libraries, &why) != GP_OK)
            gp_log(GP_LOG_WARN, "plans-not-kept", "cannot cache the plans for later trainings: %s",
                   why.message);
        gp_buffer_init(&text, GP_TUNING_BYTES_MAX);
        status = gp_tuning_write(&text, &tuning->tuning, tuning->libraries, err);
        if (status == GP_OK) {
            gp_free(tuning->document);
            tuning->document = (char *)gp_buffer_take(&text, &bytes);
            status = document_broadcast(tuning, err);
        }
        gp_buffer_deinit(&text);
    }
    gp_train_notes_add(notes, false, "%s", tuning->note);
    gp_tuning_deinit(&tuning->tuning);
    return status;
}

const char *gp_train_tuning_document(const gp_train_tuning *tuning)
{
    return tuning->libraries[0] == '\0' ? NULL : tuning->document;
}

void gp_train_tuning_deinit(gp_train_tuning *tuning)
{
    gp_tuning_deinit(&tuning->tuning);
    gp_free(tuning->document);
}
