/* Create run folders and write their files. run_folder.h lists the files. */
#include "client/cli/jobs/run_folder.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/jobs/job_self.h"
#include "client/cli/show.h"
#include "common/base/text/text.h"

/* Attempts to find an unused folder name, and the maximum network name length. */
enum { TRIES = 1000, NAME_BYTES = 40 };

/* Create a folder with an unused name and fill in folder->path. *err is written only if no name is
 * free. */
static gp_status folder_make(run_folder *folder, const char *network, gp_error *err)
{
    char stamp[32], name[NAME_BYTES];
    time_t now = time(NULL);
    struct tm local;
    char scratch[64], *end;
    const char *slash = strrchr(network, '/');
    bool made = false;

    if (mkdir("gradpool-runs", 0777) != 0 && errno != EEXIST)
        return gp_fail_errno(err, GP_EIO, "cannot create the folder gradpool-runs in the current directory");
    localtime_r(&now, &local);
    strftime(stamp, sizeof(stamp), "%Y-%m-%d-%H%M%S", &local);
    /* The name is the base name of the network without settings (":depth=2") and file extension.
     * Blanks and quotes become underscores. */
    snprintf(name, sizeof(name), "%s", slash == NULL ? network : slash + 1);
    name[strcspn(name, ":=,")] = '\0';
    end = strrchr(name, '.');
    if (end != NULL && end != name && (strcmp(end, ".onnx") == 0 || strcmp(end, ".json") == 0))
        *end = '\0';
    for (char *c = name; *c != '\0'; c++)
        if (strchr(" \t\"'", *c) != NULL || (unsigned char)*c < ' ')
            *c = '_';
    for (int i = 1; i <= TRIES && !made; i++) {
        if (i == 1)
            snprintf(folder->path, sizeof(folder->path), "gradpool-runs/%s-%s", stamp, name);
        else
            snprintf(folder->path, sizeof(folder->path), "gradpool-runs/%s-%s-%d", stamp, name, i);
        made = mkdir(folder->path, 0777) == 0;
        if (!made && errno != EEXIST)
            break;
    }
    if (!made)
        return gp_fail_errno(err, errno == EEXIST ? GP_EBUSY : GP_EIO, "cannot create the folder %s",
                             folder->path);
    /* Point gradpool-runs/latest at the folder. Errors are ignored: the link
     * is only a convenience. */
    snprintf(scratch, sizeof(scratch), "gradpool-runs/.latest-%d", (int)getpid());
    unlink(scratch);
    if (symlink(strrchr(folder->path, '/') + 1, scratch) == 0 && rename(scratch, "gradpool-runs/latest") != 0)
        unlink(scratch);
    return GP_OK;
}

static FILE *folder_file(const run_folder *folder, const char *name)
{
    char path[600];

    snprintf(path, sizeof(path), "%s/%s", folder->path, name);
    return fopen(path, "we");
}

/* Use the job's own folder, which already contains job.json and log. Files of an earlier attempt
 * are unlinked instead of truncated, so that viewers can detect the new files. */
static gp_status folder_of_job(run_folder *folder, gp_error *err)
{
    static const char *const names[] = { "metrics.jsonl", "facts.json", "report.json" };
    char path[600];

    snprintf(folder->path, sizeof(folder->path), "%s", job_self_folder());
    job_self_result("model.onnx", path, sizeof(path));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder->path, names[i]);
        unlink(path);
    }
    folder->metrics = folder_file(folder, "metrics.jsonl");
    if (folder->metrics != NULL)
        return GP_OK;
    gp_fail_errno(err, GP_EIO, "cannot write to the folder %s", folder->path);
    run_folder_close(folder, NULL, NULL);
    return GP_EIO;
}

gp_status run_folder_open(run_folder *folder, const char *network, int argc, char **argv,
                          const gp_train_options *options, const char *metrics_copy, gp_error *err)
{
    char path[600];
    json_document json;
    gp_status status;

    if (metrics_copy != NULL) {
        folder->copy = fopen(metrics_copy, "we");
        if (folder->copy == NULL)
            return gp_fail_errno(err, GP_EIO, "cannot write --metrics %s", metrics_copy);
    }
    if (job_self_folder() != NULL) {
        job_self_options(options);
        return folder_of_job(folder, err);
    }
    status = folder_make(folder, network, err);
    snprintf(path, sizeof(path), "%s/result", folder->path);
    if (status == GP_OK && mkdir(path, 0777) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot create the folder %s", path);
    if (status == GP_OK) {
        job_self_put_command(show_json_object(&json, true), argc, argv, options);
        snprintf(path, sizeof(path), "%s/job.json", folder->path);
        status = show_json_write(&json, path, err);
    }
    if (status == GP_OK) {
        folder->metrics = folder_file(folder, "metrics.jsonl");
        folder->log = folder_file(folder, "log");
        if (folder->metrics == NULL || folder->log == NULL)
            status = gp_fail_errno(err, GP_EIO, "cannot write to the folder %s", folder->path);
    }
    if (status != GP_OK)
        run_folder_close(folder, NULL, NULL);
    return status;
}

void run_folder_start(run_folder *folder)
{
    job_self_now(folder->began);
}

static void put_indices(gp_json_writer *writer, const uint32_t *indices, uint32_t count)
{
    gp_json_begin_array(writer, "worker_index");
    for (uint32_t i = 0; i < count; i++)
        gp_json_put_integer(writer, NULL, indices[i]);
    gp_json_end_array(writer);
}

/* Write facts.json. Errors are ignored. */
static void write_info(const run_folder *folder)
{
    const gp_train_info *info = &folder->info;
    json_document json;
    char path[600];

    if (folder->path[0] == '\0') /* the folder could not be created */
        return;
    gp_json_writer *writer = show_json_object(&json, true);

    gp_json_put_integer(writer, "workers", info->workers);
    put_indices(writer, info->worker_index, info->workers);
    gp_json_put_integer(writer, "batch", info->batch);
    gp_json_put_integer(writer, "steps_per_epoch", info->steps_per_epoch);
    gp_json_put_integer(writer, "epochs", info->epochs);
    gp_json_put_integer(writer, "samples", (int64_t)info->samples);
    gp_json_put_integer(writer, "validation_samples", (int64_t)info->validation_samples);
    gp_json_put_integer(writer, "parameters", (int64_t)info->parameters);
    gp_json_put_integer(writer, "classes", info->classes);
    gp_json_put_text(writer, "began", folder->began);
    gp_json_begin_array(writer, "leases");
    for (uint32_t i = 0; i < folder->lease_count; i++)
        gp_json_put_integer(writer, NULL, (int64_t)folder->leases[i]);
    gp_json_end_array(writer);
    snprintf(path, sizeof(path), "%s/facts.json", folder->path);
    show_json_write(&json, path, NULL);
}

/* Record a run lease; keep the latest RUN_FOLDER_LEASES_MAX. false: already recorded. */
static bool add_lease(run_folder *folder, uint64_t lease)
{
    for (uint32_t i = 0; i < folder->lease_count; i++)
        if (folder->leases[i] == lease)
            return false;
    if (folder->lease_count == RUN_FOLDER_LEASES_MAX)
        memmove(folder->leases, folder->leases + 1, --folder->lease_count * sizeof(folder->leases[0]));
    folder->leases[folder->lease_count++] = lease;
    return true;
}

void run_folder_facts(run_folder *folder, const gp_train_info *info)
{
    folder->info = *info;
    add_lease(folder, info->lease);
    write_info(folder);
}

/* Append and flush a line to metrics.jsonl and to the copy. */
static void folder_line(run_folder *folder, const char *line)
{
    FILE *files[] = { folder->metrics, folder->copy };

    for (int i = 0; i < 2; i++) {
        if (files[i] == NULL)
            continue;
        if (fputs(line, files[i]) != EOF && fflush(files[i]) == 0)
            continue;
        folder->lost++; /* reported at the end; a partly written line is skipped by readers */
        folder->problem = errno;
        clearerr(files[i]);
    }
}

void run_folder_metrics(run_folder *folder, const metric *table, const void *record)
{
    gp_buffer text;
    gp_json_writer writer;

    gp_buffer_init(&text, 1 << 16);
    gp_json_writer_init(&writer, &text, false);
    metrics_put(&writer, table, record);
    if (gp_json_writer_finish(&writer, NULL) == GP_OK && gp_buffer_printf(&text, NULL, "\n") == GP_OK)
        folder_line(folder, gp_buffer_text(&text));
    gp_buffer_deinit(&text);
}

void run_folder_regroup(run_folder *folder, const gp_train_rescale *regroup)
{
    json_document json;
    gp_json_writer *writer = show_json_object(&json, false);

    gp_json_put_integer(writer, "step", (int64_t)regroup->step);
    gp_json_put_integer(writer, "workers_before", regroup->workers_before);
    gp_json_put_integer(writer, "workers", regroup->workers);
    put_indices(writer, regroup->worker_index, regroup->workers);
    gp_json_put_number(writer, "paused_seconds", regroup->seconds);
    gp_json_put_bool(writer, "died", regroup->died);
    gp_json_put_text(writer, "cause", regroup->cause);
    gp_json_end_object(writer);
    if (gp_json_writer_finish(writer, NULL) == GP_OK && gp_buffer_printf(&json.text, NULL, "\n") == GP_OK)
        folder_line(folder, gp_buffer_text(&json.text));
    gp_buffer_deinit(&json.text);
    if (add_lease(folder, regroup->lease))
        write_info(folder);
}

void run_folder_put_summary(gp_json_writer *writer, const gp_training_summary *summary)
{
    gp_json_put_integer(writer, "steps", (int64_t)summary->steps);
    gp_json_put_number(writer, "loss", summary->loss);
    gp_json_put_number(writer, "validation_loss", summary->validation_loss);
    gp_json_put_number(writer, "validation_accuracy", summary->validation_accuracy);
    if (!isnan(summary->validation_rmse))
        gp_json_put_number(writer, "validation_rmse", summary->validation_rmse);
    gp_json_put_integer(writer, "training_excluded", (int64_t)summary->training_excluded);
    gp_json_put_integer(writer, "validation_excluded", (int64_t)summary->validation_excluded);
    gp_json_put_number(writer, "seconds", summary->seconds);
    gp_json_put_integer(writer, "skipped", (int64_t)summary->skipped);
    gp_json_put_integer(writer, "restarts", summary->restarts);
    gp_json_put_integer(writer, "resizes", summary->resizes);
    gp_json_put_number(writer, "paused_seconds", summary->paused_seconds);
}

void run_folder_close(run_folder *folder, const gp_training_summary *summary, const gp_error *failure)
{
    if (folder->metrics != NULL && (summary != NULL || failure != NULL)) {
        /* Write end.json: final state, failure reason, and summary. */
        json_document json;
        char path[600], ended[32];
        gp_json_writer *writer = show_json_object(&json, true);

        gp_json_put_text(writer, "state",
                         failure != NULL          ? "failed"
                         : summary->stopped       ? "stopped"
                         : summary->early_stopped ? "stopped early"
                                                  : "completed");
        if (failure != NULL)
            gp_json_put_text(writer, "reason", failure->message);
        job_self_now(ended);
        gp_json_put_text(writer, "ended", ended);
        if (summary != NULL)
            run_folder_put_summary(writer, summary);
        snprintf(path, sizeof(path), "%s/end.json", folder->path);
        show_json_write(&json, path, NULL);
    }
    if (folder->lost > 0)
        fprintf(stderr, "cannot write %" PRIu64 " line%s of metrics: %s\n", folder->lost,
                gp_plural(folder->lost), strerror(folder->problem));
    if (folder->metrics != NULL)
        fclose(folder->metrics);
    if (folder->log != NULL)
        fclose(folder->log);
    if (folder->copy != NULL)
        fclose(folder->copy);
    folder->metrics = folder->log = folder->copy = NULL;
}
