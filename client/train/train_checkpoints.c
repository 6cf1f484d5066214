/* train_checkpoints.c: choose the checkpoint from which a training starts, and protect the
 * checkpoints from other runs.
 *
 *   resume      checkpoint-path   the training
 *   ""          empty             starts a new run with a new id
 *   ""          used              is rejected; if run-id names the run: as auto
 *   auto        empty             starts a new run
 *   auto        used              continues the only run there, or ends if it is complete
 *   DIRECTORY   any               continues the only run in DIRECTORY
 *   STEP.json   any               continues that checkpoint's run
 *
 * A training that continues a run keeps the run id. It is rejected if checkpoint-path contains
 * checkpoints from another run, or later checkpoints of the same run. The client makes all these
 * checks before it leases workers; the workers check the data and the tensors. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "client/train/train_run.h"
#include "common/base/memory/alloc.h"
#include "common/base/text/text.h"
#include "common/model/checkpoint_record.h"

static const char *name_of(const char *run)
{
    return run[0] == '\0' ? "(no id)" : run;
}

/* List the checkpoints in a directory. A missing directory has none. A directory that cannot be
 * read is an error: the training would start from the beginning although it has checkpoints. */
static gp_status list(gp_checkpoint_list **out, const char *directory, gp_error *err)
{
    gp_checkpoint_list *steps = gp_malloc(sizeof(*steps));

    if (steps == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to look for checkpoints in %s", directory);
    gp_status status = gp_checkpoint_list_steps(steps, directory, err);

    if (status != GP_OK && status != GP_ENOENT) {
        gp_free(steps);
        return status;
    }
    *out = steps;
    return GP_OK;
}

/* Find the newest checkpoint of the only run in a directory. Skip those whose record is damaged or
 * whose tensor file is missing or has a wrong size, as the workers do.
 *   wanted  ignore all other runs; "": any run, but GP_EINVAL if there are several
 * GP_ENOENT: no checkpoint. GP_ECORRUPT: no intact checkpoint. */
static gp_status find_newest(gp_json **out, uint64_t *step, const char *directory, const char *wanted,
                             gp_error *err)
{
    gp_checkpoint_list *steps;
    gp_json *newest = NULL;
    char first[GP_NAME_MAX] = "";
    uint64_t first_step = 0;
    gp_status status = list(&steps, directory, err);
    gp_error why = { 0 };
    bool found = false;

    if (status != GP_OK)
        return status;
    for (uint32_t i = 0; i < steps->count && status == GP_OK; i++) {
        gp_json *record = NULL;
        gp_error damage;
        gp_status got = gp_checkpoint_read_record(&record, directory, steps->step[i], &damage);
        const char *run = got == GP_OK ? gp_checkpoint_record_run(record) : "";

        if (got == GP_OK && wanted[0] != '\0' && strcmp(run, wanted) != 0) {
            gp_json_free(record);
            continue;
        }
        if (got == GP_OK && !found) {
            snprintf(first, sizeof(first), "%s", run);
            first_step = steps->step[i];
            found = true;
        } else if (got == GP_OK && strcmp(run, first) != 0) {
            status = gp_fail(err, GP_EINVAL,
                             "%s has checkpoints of two runs: %s (step %" PRIu64 ") and %s (step %" PRIu64
                             "); choose one with --resume %s/STEP.json and another --checkpoint-path",
                             directory, name_of(first), first_step, name_of(run), steps->step[i], directory);
        }
        if (got == GP_OK)
            got = gp_checkpoint_check_tensors(record, directory, steps->step[i], &damage);
        if (got != GP_OK && why.code == GP_OK)
            why = damage;
        if (got == GP_OK && newest == NULL) {
            newest = record;
            *step = steps->step[i];
        } else {
            gp_json_free(record);
        }
    }
    if (status == GP_OK && newest == NULL && why.code != GP_OK)
        status = gp_fail(err, GP_ECORRUPT, "no checkpoint in %s can be read: %s", directory, why.message);
    else if (status == GP_OK && newest == NULL)
        status = gp_fail(err, GP_ENOENT,
                         "no checkpoint in %s%s%s; without --resume training starts from the beginning",
                         directory, wanted[0] == '\0' ? "" : " of run ", wanted);
    gp_free(steps);
    if (status == GP_OK)
        *out = newest;
    else
        gp_json_free(newest);
    return status;
}

/* Open the record that options->resume names, and store the run id in the options. *out may be set
 * on failure too; free it with gp_json_free(). */
static gp_status open_resumed(gp_json **out, uint64_t *step, gp_train_options *options, gp_error *err)
{
    char directory[1024];
    gp_status status;

    if (!gp_checkpoint_split_path(options->resume, directory, step))
        status = find_newest(out, step, directory, options->run_id, err);
    else
        status = gp_checkpoint_read_record(out, directory, *step, err);
    if (status != GP_OK)
        return status;
    const char *run = gp_checkpoint_record_run(*out);

    if (options->run_id[0] != '\0' && strcmp(run, options->run_id) != 0)
        return gp_fail(err, GP_EINVAL, "%s belongs to run %s, not to %s; drop --run-id", options->resume,
                       name_of(run), options->run_id);
    snprintf(options->run_id, sizeof(options->run_id), "%s", run);
    return GP_OK;
}

/* Check that a training can continue from a checkpoint. automatic: accept a complete run, which
 * ends at once with the model of its last step. */
static gp_status check_resumed(const gp_run *run, const gp_json *record, uint64_t step, bool automatic,
                               gp_error *err)
{
    gp_train_options options = run->options;
    int64_t epoch = gp_json_integer(gp_json_member(record, "epoch"), 0);
    char directory[1024], path[1100];
    uint64_t named;

    if (options.mini_batch_size_per_worker != 0)
        options.mini_batch_size = 0; /* unknown until the workers are leased */
    gp_checkpoint_split_path(options.resume, directory, &named);
    snprintf(path, sizeof(path), "%s/%" PRIu64 ".json", directory, step);
    gp_status status = gp_checkpoint_check_record(record, run->training->graph, &options, path, err);

    if (status == GP_OK && !automatic && epoch >= options.max_epochs)
        return gp_fail(err, GP_EINVAL,
                       "the checkpoint of step %" PRIu64 " has completed its %" PRId64
                       " epoch%s; raise max-epochs (%" PRId64 ") to continue",
                       step, epoch, gp_plural((uint64_t)epoch), options.max_epochs);
    return status;
}

/* Take the metrics of the best weights in a checkpoint: the model may have these weights, if no
 * later validation is better. */
static void take_best(gp_run *run, const gp_json *record)
{
    gp_training_summary *summary = &run->training->summary;

    if (!gp_train_keeps_best(&run->options) || run->message.fields.validation_data[0] == '\0' ||
        !gp_json_bool(gp_json_member(record, "has_best"), false))
        return;
    summary->validation_loss = gp_json_number(gp_json_member(record, "best_loss"), NAN);
    summary->validation_accuracy = gp_json_number(gp_json_member(record, "best_accuracy"), NAN);
    summary->validation_rmse = gp_json_number(gp_json_member(record, "best_rmse"), NAN);
}

/* Check that the run may write to checkpoint-path.
 *   step  checkpoint from which the run continues; 0: none */
static gp_status check_directory(const gp_train_options *options, bool resumes, uint64_t step, gp_error *err)
{
    const char *directory = options->checkpoint_path;
    gp_checkpoint_list *steps;
    gp_status status = list(&steps, directory, err);

    if (status != GP_OK)
        return status;
    for (uint32_t i = 0; i < steps->count && status == GP_OK; i++) {
        gp_json *record = NULL;
        bool readable = gp_checkpoint_read_record(&record, directory, steps->step[i], NULL) == GP_OK;
        const char *run = readable ? gp_checkpoint_record_run(record) : "";

        if (!resumes)
            status = gp_fail(err, GP_EBUSY,
                             "checkpoint-path %s already has checkpoints (step %" PRIu64
                             "); continue them with --resume auto, or use an empty directory",
                             directory, steps->step[i]);
        else if (readable && strcmp(run, options->run_id) != 0)
            status = gp_fail(err, GP_EBUSY,
                             "checkpoint-path %s has checkpoints of another run (step %" PRIu64
                             ", run %s); use an empty directory",
                             directory, steps->step[i], name_of(run));
        else if (readable && steps->step[i] > step &&
                 gp_checkpoint_check_tensors(record, directory, steps->step[i], NULL) == GP_OK)
            status = gp_fail(err, GP_EBUSY,
                             "checkpoint-path %s has a later checkpoint of this run (step %" PRIu64
                             ", resuming from step %" PRIu64
                             "); resume from the directory, or use an empty checkpoint-path",
                             directory, steps->step[i], step);
        if (readable)
            gp_json_free(record);
    }
    gp_free(steps);
    return status;
}

gp_status gp_run_choose_checkpoint(gp_run *run, gp_error *err)
{
    gp_train_options *options = &run->options;
    const char *directory = options->checkpoint_path;
    bool automatic = strcmp(options->resume, "auto") == 0;
    gp_checkpoint_list *steps;
    gp_json *record = NULL;
    uint64_t step = 0, newest = 0, id;
    gp_status status = GP_OK;

    if (options->run_id[0] != '\0' && !gp_run_id_is_valid(options->run_id))
        return gp_fail(err, GP_EINVAL, "run-id is '%s'; it must be letters, digits, '-', '_' and '.'",
                       options->run_id);
    if (automatic && directory[0] == '\0')
        return gp_fail(err, GP_EINVAL,
                       "resume auto needs checkpoint-path, the directory with the checkpoints");
    if (automatic) {
        status = list(&steps, directory, err);
        if (status != GP_OK)
            return status;
        strcpy(options->resume, steps->count == 0 ? "" : directory);
        gp_free(steps);
    } else if (options->resume[0] == '\0' && options->run_id[0] != '\0') {
        status = gp_run_newest_checkpoint(&newest, run, UINT64_MAX, err);
        if (status != GP_OK)
            return status;
        automatic = newest != 0;
        if (automatic)
            strcpy(options->resume, directory);
    }
    bool resumes = options->resume[0] != '\0';

    if (resumes)
        status = open_resumed(&record, &step, options, err);
    if (status == GP_OK && resumes)
        status = check_resumed(run, record, step, automatic, err);
    if (status == GP_OK && resumes)
        take_best(run, record);
    gp_json_free(record);
    if (status == GP_OK && directory[0] != '\0')
        status = check_directory(options, resumes, step, err);
    if (status == GP_OK && options->run_id[0] == '\0' && !resumes)
        status = getrandom(&id, sizeof(id), 0) == sizeof(id)
                     ? GP_OK
                     : gp_fail_errno(err, GP_EIO, "cannot generate a random run id");
    if (status == GP_OK && options->run_id[0] == '\0' && !resumes)
        snprintf(options->run_id, sizeof(options->run_id), "%016" PRIx64, id);
    strcpy(run->requested_resume, options->resume);
    return status;
}

gp_status gp_run_newest_checkpoint(uint64_t *step, const gp_run *run, uint64_t last, gp_error *err)
{
    const char *directory = run->options.checkpoint_path;
    gp_checkpoint_list *steps;
    gp_status status;

    *step = 0;
    if (directory[0] == '\0')
        return GP_OK;
    status = list(&steps, directory, err);
    if (status != GP_OK)
        return status;
    for (uint32_t i = 0; i < steps->count && *step == 0; i++) {
        gp_json *record;

        if (steps->step[i] > last ||
            gp_checkpoint_read_record(&record, directory, steps->step[i], NULL) != GP_OK)
            continue;
        if (strcmp(gp_checkpoint_record_run(record), run->options.run_id) == 0 &&
            gp_checkpoint_check_tensors(record, directory, steps->step[i], NULL) == GP_OK)
            *step = steps->step[i];
        gp_json_free(record);
    }
    gp_free(steps);
    return GP_OK;
}
