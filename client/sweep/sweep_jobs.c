/* Jobs of the trials of a sweep. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/sweep/sweep_command.h"
#include "client/sweep/sweep_runner.h"
#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/fault.h"
#include "common/base/system/file.h"

enum {
    CANCEL_EVERY_MS = 1000,
    UNREADABLE_MS = 10000,
    ATTEMPTS = 65536, /* seq of a submit: trial * ATTEMPTS + attempt */
    PATH = SWEEP_PATH_MAX + 100,
    NAME_BYTES = 32,
    ID_BYTES = 64, /* sweep_job_id as text */
};

/* ---- submitting ---- */

/* Return the job whose result is in the folder of a trial; all zero: there is no result. */
static sweep_job_id finished_job(const sweep_runner *r, uint32_t trial)
{
    char path[PATH];
    uint8_t *text = NULL;
    size_t bytes;
    sweep_job_id id = { 0 };

    sweep_folder_trial(r->folder, trial, "/end.json", path);
    if (access(path, F_OK) != 0)
        return id;
    sweep_folder_trial(r->folder, trial, ".job", path);
    if (gp_file_read(&text, &bytes, path, ID_BYTES, NULL) == GP_OK)
        sscanf((const char *)text, "%" SCNu64 " %" SCNd64, &id.number, &id.submitted_ms);
    gp_free(text);
    return id;
}

/* Submit the job of a trial. A repeated submit finds the same job, as long as the pool knows it:
 * therefore a trial whose folder has a result is not submitted again. */
static gp_status submit(sweep_runner *r, uint32_t trial, gp_error *err)
{
    sweep_job *job = sweep_runner_job(r, trial);
    char path[PATH], name[NAME_BYTES], text[ID_BYTES];
    sweep_command *command = NULL;
    gp_status status = GP_OK;
    sweep_job_id id = finished_job(r, trial);
    gp_job_info info;

    if (id.number == 0) {
        gp_job_request request = { .name = name,
                                   .priority = r->plan->priority,
                                   .directory = r->plan->directory,
                                   .seq = (uint64_t)trial * ATTEMPTS + job->attempt,
                                   .kind = GP_JOB_TRIAL };

        snprintf(name, sizeof(name), "trial %" PRIu32, trial);
        memcpy(request.key, r->plan->key, sizeof(request.key));
        status = sweep_command_new(&command, r->folder, r->plan, trial, sweep_find(r->core, trial)->repeat,
                                   sweep_find(r->core, trial)->values, job->workers, err);
        if (status == GP_OK) {
            request.words = sweep_command_words(command);
            status = gp_job_submit(&id.number, r->pool, &request, err);
        }
        if (status == GP_OK) {
            status = gp_job_get(&info, r->pool, id.number, err);
            id.submitted_ms = status == GP_OK ? info.submitted_ms : 0;
            status = status == GP_ENOENT ? GP_OK : status; /* ended and deleted: look() reports it */
        }
        sweep_command_free(command);
        gp_fault_point("sweep-submitted");
        sweep_folder_trial(r->folder, trial, ".job", path);
        snprintf(text, sizeof(text), "%" PRIu64 " %" PRId64 "\n", id.number, id.submitted_ms);
        if (status == GP_OK)
            gp_file_write_record(path, text, strlen(text),
                                 NULL); /* a failure only costs a repeated training */
    }
    if (status == GP_OK) {
        job->id = id;
        sweep_runner_feed(
            r, (sweep_event){ .kind = SWEEP_EVENT_SUBMITTED, .trial = trial, .attempt = job->attempt });
    } else if (status == GP_ELIMIT || status == GP_EINVAL || status == GP_EPERM) {
        sweep_runner_feed(r, (sweep_event){ .kind = SWEEP_EVENT_ENDED,
                                            .trial = trial,
                                            .attempt = job->attempt,
                                            .outcome = SWEEP_OUTCOME_FAILED,
                                            .value = NAN,
                                            .text = err->message });
        status = GP_OK;
    }
    /* The next iteration tries again. GP_ESTATE: the pool is shutting down, and its end will be
     * GP_EPEER. */
    return status == GP_EBUSY || status == GP_ESTATE ? GP_OK : status;
}

/* ---- following ---- */

/* Report the values since the last call. */
static void follow(sweep_runner *r, uint32_t trial)
{
    sweep_job *job = sweep_runner_job(r, trial);
    sweep_event event = { .kind = SWEEP_EVENT_VALUE, .trial = trial, .attempt = job->attempt };

    while (trial_reader_next(&job->reader, r->folder, r->plan, trial, &event.epoch, &event.value))
        if (event.epoch > 0)
            sweep_runner_feed(r, event);
}

/* Report how the job of a trial ended. If the result exists but cannot be read (EMFILE, EIO), later
 * polls retry for UNREADABLE_MS; then the trial fails.
 *   info  state of the job; NULL: the pool has forgotten it */
static void judge(sweep_runner *r, uint32_t trial, const gp_job_info *info)
{
    sweep_job *job = sweep_runner_job(r, trial);
    sweep_event event = { .kind = SWEEP_EVENT_ENDED,
                          .trial = trial,
                          .attempt = job->attempt,
                          .epoch = sweep_find(r->core, trial)->epoch }; /* of the last value */
    char text[SWEEP_TEXT_MAX];
    gp_error err;

    if (trial_result_read(&event, text, &job->reader, r->folder, r->plan, info, &err) != GP_OK) {
        if (job->unreadable_ms == 0) {
            job->unreadable_ms = gp_now_ms();
            sweep_runner_note(r, err.message);
        }
        trial_reader_deinit(&job->reader); /* the next poll reads all lines again */
        if (gp_now_ms() - job->unreadable_ms < UNREADABLE_MS)
            return;
        event.outcome = job->stop ? SWEEP_OUTCOME_CANCELED : SWEEP_OUTCOME_FAILED;
        event.value = NAN;
        event.text = err.message;
    }
    trial_reader_deinit(&job->reader); /* a sweep may have more trials than descriptors */
    sweep_runner_feed(r, event);
}

/* Look at the job of a trial. */
static gp_status look(sweep_runner *r, uint32_t trial, gp_error *err)
{
    sweep_job *job = sweep_runner_job(r, trial);
    gp_job_info info;
    gp_status status = gp_job_get(&info, r->pool, job->id.number, err);

    if (status == GP_ENOENT || (status == GP_OK && info.submitted_ms != job->id.submitted_ms)) {
        follow(r, trial);
        judge(r, trial, NULL);
        return GP_OK;
    }
    if (status != GP_OK)
        return status;
    if (info.state == GP_JOB_RUNNING && !job->running) {
        job->running = true;
        sweep_runner_feed(
            r, (sweep_event){ .kind = SWEEP_EVENT_RUNNING, .trial = trial, .attempt = job->attempt });
    }
    if (job->running || gp_job_state_ended(info.state))
        follow(r, trial);
    if (gp_job_state_ended(info.state)) {
        judge(r, trial, &info);
    } else if (job->stop && gp_now_ms() - job->canceled_ms >= CANCEL_EVERY_MS) {
        job->canceled_ms = gp_now_ms();
        status = gp_job_cancel(NULL, r->pool, job->id.number, err);
    }
    return status == GP_ENOENT ? GP_OK : status;
}

gp_status sweep_jobs_poll(sweep_runner *r, gp_error *err)
{
    gp_status status = GP_OK;

    for (uint32_t trial = 1; status == GP_OK && trial <= sweep_count(r->core) && !r->over; trial++) {
        const sweep_trial *there = sweep_find(r->core, trial);
        const sweep_job *job = sweep_runner_job(r, trial);

        if (job == NULL || !job->wanted || job->attempt != there->attempt || there->state < SWEEP_SUBMITTED ||
            there->state > SWEEP_STOPPING)
            continue;
        status = job->id.number == 0 ? submit(r, trial, err) : look(r, trial, err);
    }
    return status;
}
