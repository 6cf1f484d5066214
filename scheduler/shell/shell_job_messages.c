/* Client messages about jobs. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/system/fault.h"
#include "common/base/text/log.h"
#include "common/base/printable.h"
#include "scheduler/shell/shell_jobs.h"
#include "scheduler/shell/shell_remote.h"

#define COPY_TEXT(to, from) snprintf((to), sizeof(to), "%.*s", (int)sizeof(to) - 1, (from))

/* ---- rows ---- */

/* Return the time between two wall clock values, limited to 0 ... GP_DURATION_MS_MAX. 0: then_ms is
 * not set. */
static uint64_t since(int64_t now_ms, int64_t then_ms)
{
    int64_t span = then_ms == 0 ? 0 : now_ms - then_ms;

    return span < 0 ? 0 : span > (int64_t)GP_DURATION_MS_MAX ? GP_DURATION_MS_MAX : (uint64_t)span;
}

/* Return the state that clients see. Changes that are not durable are not visible to them. */
static uint32_t row_state(const gp_jobs_job *job)
{
    return job->durable == GP_JOBS_QUEUED && job->state == GP_JOBS_STARTING ? GP_JOB_ROW_STARTING
                                                                            : (uint32_t)job->durable;
}

/* Fill in a row from the durable state. */
static void fill_row(const gp_jobs_job *job, gp_job_row *row)
{
    int64_t now = gp_unix_ms();
    bool ended = gp_jobs_state_ended(job->durable);

    memset(row, 0, sizeof(*row));
    row->job = job->id;
    COPY_TEXT(row->name, job->name);
    COPY_TEXT(row->command, job->command);
    row->state = row_state(job);
    row->priority = job->priority;
    row->kind = (uint32_t)job->kind;
    row->attempts = job->attempts;
    row->cancel = job->cancel;
    row->pid = (uint32_t)job->pid;
    row->workers = job->workers;
    row->age_ms = since(now, job->submitted_ms);
    row->submitted_ms = job->submitted_ms > 0 ? (uint64_t)job->submitted_ms : 0;
    if (ended) {
        row->exit = job->exit;
        row->number = (uint32_t)job->number;
        row->ended_ms = since(now, job->ended_ms);
        row->ended_ms += row->ended_ms == 0;
        row->run_ms = since(job->ended_ms, job->started_ms);
    } else if (row->state != GP_JOB_ROW_QUEUED) {
        row->run_ms = since(now, job->started_ms);
    }
    COPY_TEXT(row->reason, job->reason);
}

/* ---- messages to clients ---- */

/* Send a message to a session, unless the client is gone. */
static gp_status deliver(shell *s, const gp_core_id *session, uint64_t correlation,
                         const gp_message_type *type, const void *message, gp_error *err)
{
    shell_client *client = shell_find_client(s, session);
    gp_envelope envelope = { .correlation = correlation, .epoch = s->core->config.epoch };

    if (client == NULL || client->peer.bytes == 0)
        return GP_OK;
    memcpy(envelope.session, session->bytes, sizeof(envelope.session));
    return shell_send(s, &client->peer, &envelope, type, message, NULL, err);
}

/* Send a reply. If it cannot be sent, disconnect the client, which then reconnects and asks again;
 * otherwise the client would wait for a reply that never comes. A client on another host whose link
 * broke (GP_EPEER) reconnects by itself. */
static void send_to(shell *s, const gp_core_id *session, uint64_t correlation, const gp_message_type *type,
                    const void *message)
{
    gp_error err;
    gp_status status = deliver(s, session, correlation, type, message, &err);
    shell_client *client = status == GP_OK ? NULL : shell_find_client(s, session);

    if (client == NULL)
        return;
    gp_log_event(GP_LOG_WARN, "client-unreached", GP_LOG_WITH({ "client", .number = client->pid }),
                 "cannot send to a client: %s", err.message);
    if (status != GP_EPEER || !client->peer.remote)
        shell_drop_client(s, client);
}

/* Send a job's state to a watch. False: the client's queue is full. */
static bool push(shell *s, const shell_job_watch *watch, const gp_jobs_job *job, bool missed)
{
    gp_job_changed changed = { .missed = missed };

    fill_row(job, &changed.row);
    return deliver(s, &watch->session, watch->correlation, &gp_msg_job_changed, &changed, NULL) != GP_EBUSY;
}

void shell_jobs_notify_missed(shell *s)
{
    shell_jobs *jobs = s->jobs;

    for (uint32_t i = jobs->watch_count; i-- > 0;) {
        shell_job_watch *watch = &jobs->watches[i];
        const gp_jobs_job *job = watch->missed != 0 ? gp_jobs_find(jobs->machine, watch->missed) : NULL;
        /* the job sends no further changes */
        const bool last = watch->job != 0 && (job == NULL || gp_jobs_state_ended(job->durable));

        if (watch->missed == 0)
            continue;
        if (job == NULL) /* deleted meanwhile: any other job can carry the `missed` flag */
            job = gp_jobs_before(jobs->machine, 0);
        if (job != NULL && job->durable != GP_JOBS_NONE && !push(s, watch, job, true))
            continue;
        watch->missed = 0;
        if (last)
            jobs->watches[i] = jobs->watches[--jobs->watch_count];
    }
}

void shell_jobs_end_watches(shell *s, gp_status status, const char *why)
{
    gp_error_reply error = { .code = status };

    COPY_TEXT(error.message, why);
    /* a failed send drops the client together with all its watches */
    while (s->jobs->watch_count > 0) {
        shell_job_watch watch = s->jobs->watches[--s->jobs->watch_count];

        send_to(s, &watch.session, watch.correlation, &gp_msg_error_reply, &error);
    }
}

void shell_jobs_forget_client(shell *s, const gp_core_id *session)
{
    shell_jobs *jobs = s->jobs;

    for (uint32_t i = jobs == NULL ? 0 : jobs->watch_count; i-- > 0;) {
        if (memcmp(&jobs->watches[i].session, session, sizeof(*session)) == 0)
            jobs->watches[i] = jobs->watches[--jobs->watch_count];
    }
}

void shell_jobs_notify(shell *s, const gp_jobs_action *action)
{
    shell_jobs *jobs = s->jobs;
    gp_job_accepted accepted = { .job = action->id, .known = action->known };
    gp_job_stopping canceling = { .count = action->count };
    gp_error_reply error = { .code = action->status };

    switch (action->kind) {
    case GP_JOBS_ACCEPTED:
        gp_fault_point("job-accepted");
        send_to(s, &action->client, action->correlation, &gp_msg_job_accepted, &accepted);
        break;
    case GP_JOBS_CANCELING:
        send_to(s, &action->client, action->correlation, &gp_msg_job_stopping, &canceling);
        break;
    case GP_JOBS_ERROR:
        COPY_TEXT(error.message, action->text);
        send_to(s, &action->client, action->correlation, &gp_msg_error_reply, &error);
        break;
    case GP_JOBS_CHANGED:
        for (uint32_t i = jobs->watch_count; i-- > 0;) {
            shell_job_watch *watch = &jobs->watches[i];

            if (watch->job != 0 && watch->job != action->job->id)
                continue;
            if (watch->missed != 0 || !push(s, watch, action->job, false))
                watch->missed = action->job->id;
            /* the job sends no further changes */
            else if (watch->job != 0 && gp_jobs_state_ended(action->job->durable))
                jobs->watches[i] = jobs->watches[--jobs->watch_count];
        }
        break;
    default:
        break;
    }
}

/* ---- requests from clients ---- */

/* Check a list of NUL-terminated strings: at most bytes_max bytes and count_max strings. full: each
 * must be NAME=value. */
static bool texts_are_sound(const gp_frame *frame, size_t bytes_max, uint32_t count_max, bool full)
{
    uint32_t count = 0;

    if (frame->bytes > bytes_max || (frame->bytes > 0 && frame->data[frame->bytes - 1] != '\0'))
        return false;
    for (size_t at = 0; at < frame->bytes; count++) {
        size_t length = strlen((const char *)frame->data + at);

        if (full && (memchr(frame->data + at, '=', length) == NULL || frame->data[at] == '='))
            return false; /* not NAME=value */
        at += length + 1;
    }
    return count <= count_max;
}

static gp_status check_words(const gp_incoming *in, gp_error *err)
{
    const gp_frame *words = &in->payloads[0], *variables = &in->payloads[1], *directory = &in->payloads[2];
    /* a client on another host may leave the choice of the directory to the scheduler */
    bool here = !in->peer.remote;

    if (in->payload_count != 3)
        return gp_fail(err, GP_EPROTO, "malformed job_put: %u payloads, must be 3", in->payload_count);
    if (words->bytes < 2 || words->data[0] == '\0' ||
        !texts_are_sound(words, GP_JOB_WORDS_BYTES_MAX, GP_JOB_WORDS_MAX, false))
        return gp_fail(err, GP_ELIMIT,
                       "malformed job_put: a command of %zu bytes; must be 1 to %u NUL-terminated arguments "
                       "with at most %u bytes in total",
                       words->bytes, GP_JOB_WORDS_MAX, GP_JOB_WORDS_BYTES_MAX);
    if (!texts_are_sound(variables, GP_JOB_ENVIRONMENT_BYTES_MAX, GP_JOB_VARIABLES_MAX, true))
        return gp_fail(err, GP_ELIMIT,
                       "malformed job_put: an environment of %zu bytes; must be at most %u NUL-terminated "
                       "NAME=VALUE with at most %u bytes in total",
                       variables->bytes, GP_JOB_VARIABLES_MAX, GP_JOB_ENVIRONMENT_BYTES_MAX);
    if (!here && directory->bytes == 1 && directory->data[0] == '\0')
        return GP_OK;
    if (directory->bytes < 2 || directory->bytes > GP_JOB_DIRECTORY_BYTES_MAX || directory->data[0] != '/' ||
        memchr(directory->data, '\0', directory->bytes) != directory->data + directory->bytes - 1)
        return gp_fail(err, GP_EINVAL,
                       "malformed job_put: the working directory must be a NUL-terminated absolute path of "
                       "at most %u bytes",
                       GP_JOB_DIRECTORY_BYTES_MAX);
    return GP_OK;
}

static void *unconst(const uint8_t *data)
{
    return (void *)(uintptr_t)data;
}

static void handle_submit(shell *s, const gp_incoming *in, gp_jobs_event *event)
{
    gp_job_put message;
    char command[GP_JOBS_COMMAND_BYTES];
    gp_jobs_submit submit = { .name = message.name, .command = command };
    gp_journal_text words;
    gp_buffer environment;
    size_t used = 0;
    gp_error err;
    gp_status status = gp_incoming_decode(in, &message, &err);

    gp_buffer_init(&environment, GP_JOB_ENVIRONMENT_BYTES_MAX);
    if (status == GP_OK)
        status = check_words(in, &err);
    if (status == GP_OK)
        status = gp_printable_check("job name", message.name, &err);
    if (status == GP_OK && in->peer.remote)
        status = shell_remote_environment(&in->payloads[1], &environment, &err);
    if (status == GP_OK && s->core->stopping != GP_CORE_RUNNING)
        status = gp_fail(&err, GP_ESTATE, "the pool is shutting down; start a new one with `gradpool up`");
    if (status == GP_OK && s->jobs->journal != NULL && gp_journal_full(s->jobs->journal))
        status = gp_fail(&err, GP_EBUSY, "too many jobs are waiting for the journal; try again later");
    if (status != GP_OK) {
        gp_buffer_deinit(&environment);
        shell_reply_error(s, in, err.code, "%s", err.message);
        return;
    }
    words = (gp_journal_text){ .words = unconst(in->payloads[0].data),
                               .words_bytes = in->payloads[0].bytes,
                               .environment = unconst(in->payloads[1].data),
                               .environment_bytes = in->payloads[1].bytes,
                               .directory = unconst(in->payloads[2].data),
                               .umask = message.umask };
    if (in->peer.remote) {
        words.environment = (char *)environment.data;
        words.environment_bytes = environment.bytes;
        if (in->payloads[2].bytes == 1)
            words.directory = (char *)(uintptr_t)shell_remote_home();
    }
    /* Show the command as "train --network lenet", without characters that could disturb a
     * terminal. */
    for (size_t i = 0; i + 1 < in->payloads[0].bytes && used + 1 < sizeof(command); i++)
        command[used++] = in->payloads[0].data[i] == '\0' ? ' ' : (char)in->payloads[0].data[i];
    while (used > 0 && used + 1 == sizeof(command) && ((uint8_t)command[used - 1] & 0x80) != 0)
        used--; /* do not cut a UTF-8 character in half */
    command[used] = '\0';
    gp_printable(command);
    memcpy(submit.submitter, message.submitter, sizeof(submit.submitter));
    submit.seq = message.seq;
    submit.priority = message.priority;
    submit.kind = (gp_jobs_kind)message.kind;
    event->kind = GP_JOBS_EVENT_SUBMIT;
    event->submit = &submit;
    s->jobs->submitting = &words;
    shell_jobs_step(s, event);
    s->jobs->submitting = NULL;
    gp_buffer_deinit(&environment);
}

/* Reply with the reason why the journal failed. */
static void refuse_failed(shell *s, const gp_incoming *in)
{
    const gp_error *failure = gp_jobs_failure(s->jobs->machine);

    shell_reply_error(s, in, failure->code, "%s", failure->message);
}

static void handle_list(shell *s, const gp_incoming *in, const gp_core_id *session)
{
    const gp_jobs *machine = s->jobs->machine;
    gp_jobs_reply *reply = &s->jobs->list;
    gp_jobs_get ask;
    const gp_jobs_job *job;

    if (!shell_decode(s, in, &ask))
        return;
    if (s->jobs->journal == NULL) { /* an empty list would be misleading */
        refuse_failed(s, in);
        return;
    }
    memset(reply, 0, offsetof(gp_jobs_reply, rows));
    reply->more = false;
    for (job = gp_jobs_before(machine, ask.before); job != NULL; job = gp_jobs_before(machine, job->id)) {
        if (job->durable == GP_JOBS_NONE || (ask.states != 0 && (ask.states >> row_state(job) & 1) == 0))
            continue;
        if (reply->rows_count == ask.count) {
            reply->more = true;
            break;
        }
        fill_row(job, &reply->rows[reply->rows_count++]);
    }
    reply->queued = gp_jobs_count(machine, GP_JOBS_QUEUED);
    reply->running = gp_jobs_active(machine);
    reply->done = gp_jobs_count(machine, GP_JOBS_DONE);
    reply->failed = gp_jobs_count(machine, GP_JOBS_FAILED);
    reply->canceled = gp_jobs_count(machine, GP_JOBS_CANCELED);
    reply->lost = gp_jobs_count(machine, GP_JOBS_LOST);
    send_to(s, session, in->envelope.correlation, &gp_msg_jobs_reply, reply);
}

/* Find a job that clients may see. NULL: an error reply was sent. */
static const gp_jobs_job *known_job(shell *s, const gp_incoming *in, uint64_t id)
{
    const gp_jobs_job *job = gp_jobs_find(s->jobs->machine, id);

    if (job != NULL && job->durable != GP_JOBS_NONE)
        return job;
    if (s->jobs->journal == NULL)
        refuse_failed(s, in);
    else
        shell_reply_error(s, in, GP_ENOENT,
                          "job %" PRIu64 " does not exist; list jobs with `gradpool jobs --all`", id);
    return NULL;
}

/* Register a watch and reply with the current state. It replaces an earlier watch by the same
 * client on the same job, or the oldest one of a client with too many. */
static void handle_watch(shell *s, const gp_incoming *in, const gp_core_id *session)
{
    shell_jobs *jobs = s->jobs;
    gp_job_watch ask;
    shell_job_watch watch = { .session = *session, .correlation = in->envelope.correlation };
    const gp_jobs_job *job = NULL;
    uint32_t own = 0, oldest = 0;
    gp_job_changed changed = { .missed = false };

    if (!shell_decode(s, in, &ask))
        return;
    for (uint32_t i = jobs->watch_count; i-- > 0;) {
        if (memcmp(&jobs->watches[i].session, session, sizeof(*session)) != 0)
            continue;
        if (jobs->watches[i].job == ask.job) { /* the new watch replaces it */
            jobs->watches[i] = jobs->watches[--jobs->watch_count];
            continue;
        }
        if (own++ == 0 || jobs->watches[i].correlation < jobs->watches[oldest].correlation)
            oldest = i;
    }
    if (own == SHELL_JOBS_CLIENT_WATCHES_MAX) /* left by waits that ended before the job */
        jobs->watches[oldest] = jobs->watches[--jobs->watch_count];
    if (jobs->watch_count == SHELL_JOBS_WATCHES_MAX) {
        shell_reply_error(s, in, GP_ELIMIT,
                          "too many watched jobs: at most %d; to watch all jobs, watch job 0",
                          SHELL_JOBS_WATCHES_MAX);
        return;
    }
    if (gp_jobs_failure(jobs->machine) != NULL) {
        refuse_failed(s, in);
        return;
    }
    if (ask.job != 0 && (job = known_job(s, in, ask.job)) == NULL)
        return;
    watch.job = ask.job;
    if (job == NULL || !gp_jobs_state_ended(job->durable))
        jobs->watches[jobs->watch_count++] = watch;
    if (job == NULL) {
        send_to(s, session, watch.correlation, &gp_msg_ok_reply, &(gp_ok_reply){ 0 });
        return;
    }
    fill_row(job, &changed.row);
    send_to(s, session, watch.correlation, &gp_msg_job_changed, &changed);
}

static void job_file_path(const shell *s, const gp_job_read *ask, char *path, size_t bytes)
{
    static const char *const names[] = {
        [GP_JOB_FILE_LOG] = "log",          [GP_JOB_FILE_METRICS] = "metrics.jsonl",
        [GP_JOB_FILE_FACTS] = "facts.json", [GP_JOB_FILE_RECORD] = "job.json",
        [GP_JOB_FILE_END] = "end.json",     [GP_JOB_FILE_REPORT] = "report.json",
    };
    char folder[GP_TEXT_FOLDER], log[GP_TEXT_PATH];

    if (ask->file == GP_JOB_FILE_SCHEDULER_LOG) {
        snprintf(path, bytes, "%s", s->options->paths->scheduler_log);
    } else if (ask->file == GP_JOB_FILE_WORKER_LOG) {
        gp_paths_worker_log(s->options->paths, ask->worker, log);
        snprintf(path, bytes, "%s", log);
    } else {
        gp_job_folder(s->options->paths, ask->job, folder, sizeof(folder));
        snprintf(path, bytes, "%s/%s", folder, names[ask->file]);
    }
}

/* Send a piece of a job's file or of a daemon's log. */
static void handle_read(shell *s, const gp_incoming *in)
{
    static uint8_t bytes[GP_JOB_PIECE_BYTES_MAX];
    gp_envelope envelope = shell_reply_envelope(s, &in->envelope);
    gp_payload payload = { .data = bytes };
    gp_job_read ask;
    gp_job_piece piece;
    char path[GP_TEXT_FOLDER + 16];
    struct stat info;
    gp_error err;

    if (!shell_decode(s, in, &ask) || known_job(s, in, ask.job) == NULL)
        return;
    piece = (gp_job_piece){ .offset = ask.offset };
    job_file_path(s, &ask, path, sizeof(path));
    if (ask.file == GP_JOB_FILE_SCHEDULER_LOG || ask.file == GP_JOB_FILE_WORKER_LOG) {
        /* includes the parts that log rotation moved aside */
        payload.bytes = gp_log_read(path, bytes, ask.bytes, ask.offset, &piece.size, &piece.file);
        if (piece.size == UINT64_MAX)
            piece.size = 0;
    } else {
        /* A regular file of this user. Links are not followed, because the job could have created
         * them. */
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);

        if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid()) {
            ssize_t got = pread(fd, bytes, ask.bytes, (off_t)ask.offset);

            payload.bytes = got > 0 ? (size_t)got : 0;
            piece.size = (uint64_t)info.st_size;
            piece.file = (uint64_t)info.st_ino;
        }
        if (fd >= 0)
            close(fd);
    }
    if (shell_send(s, &in->peer, &envelope, &gp_msg_job_piece, &piece, &payload, &err) != GP_OK)
        gp_log(GP_LOG_WARN, "message-unsent", "cannot send a part of a job's file: %s", err.message);
}

bool shell_jobs_handle(shell *s, const gp_incoming *in, const gp_core_id *session)
{
    gp_jobs_event event = { .client = *session, .correlation = in->envelope.correlation };
    gp_job_stop stop;
    gp_job_ask ask;
    gp_job_reply row;
    const gp_jobs_job *job;

    switch (in->envelope.message) {
    case GP_ID(job_put):
        handle_submit(s, in, &event);
        return true;
    case GP_ID(job_stop):
        if (!shell_decode(s, in, &stop))
            return true;
        event.kind = GP_JOBS_EVENT_CANCEL;
        event.job = stop.job;
        event.grace_ms = stop.grace_ms;
        shell_jobs_step(s, &event);
        return true;
    case GP_ID(jobs_get):
        shell_jobs_note_workers(s);
        handle_list(s, in, session);
        return true;
    case GP_ID(job_ask):
        shell_jobs_note_workers(s);
        if (!shell_decode(s, in, &ask) || (job = known_job(s, in, ask.job)) == NULL)
            return true;
        fill_row(job, &row.row);
        gp_job_folder(s->options->paths, job->id, row.folder, sizeof(row.folder));
        send_to(s, session, in->envelope.correlation, &gp_msg_job_reply, &row);
        return true;
    case GP_ID(job_read):
        handle_read(s, in);
        return true;
    case GP_ID(job_watch):
        handle_watch(s, in, session);
        return true;
    default:
        return false;
    }
}
