/* jobs.c: submit, query, cancel and wait for background jobs. The pool runs the jobs; a client call
 * keeps no state after it returns. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "client/pool/pool.h"
#include "client/pool/submits.h"
#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/system/fault.h"
#include "common/base/printable.h"
#include "common/base/memory/secret.h"
#include "common/base/system/process.h"

extern char **environ;

enum {
    /* submissions without a reply; the scheduler queues up to 1000 messages per client */
    WINDOW = 512,
    WATCHES_MAX = 60,      /* watches per client */
    QUERY_AGAIN_MS = 1000, /* delay until a wait queries all jobs once more */
    LOOK_AGAIN_MS = 200,   /* maximum delay until a stop request is noticed */
};

/* ---- job contents ---- */

bool gp_job_variable_allowed(const char *name)
{
    static const char *const exact[] = {
#define GP_JOB_VARIABLE(name, of_host) #name,
#include "proto/message/job_variables.def"
#undef GP_JOB_VARIABLE
    };
    static const char *const begins[] = { "LC_", "GRADPOOL_" };

    for (size_t i = 0; i < sizeof(exact) / sizeof(exact[0]); i++)
        if (strcmp(name, exact[i]) == 0)
            return true;
    for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
        if (strncmp(name, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

/* Append one NUL-terminated string to a job payload. GP_ELIMIT: the payload is full; `what` names
 * it in the message. */
static gp_status append_text(gp_buffer *out, const char *text, const char *what, gp_error *err)
{
    gp_status status = gp_buffer_append(out, text, strlen(text) + 1, err);

    return status == GP_ELIMIT
               ? gp_fail(err, GP_ELIMIT, "the %s of the job are longer than %zu bytes", what, out->bytes_max)
               : status;
}

/* Write the job variables as NUL-terminated strings: those of the request, or else the allowed
 * variables of this process. Strings without a name are skipped. GP_EINVAL: the request contains a
 * secret, which the journal would store. */
static gp_status pack_environment(gp_buffer *out, const gp_job_request *request, bool remote, gp_error *err)
{
    static const char *const nothing[] = { NULL };

    /* A remote pool has a separate environment. */
    const char *const *list = request->environment != NULL ? request->environment
                              : remote                     ? nothing
                                                           : (const char *const *)environ;
    gp_status status = GP_OK;
    uint32_t count = 0;

    for (; status == GP_OK && *list != NULL; list++) {
        const char *equals = strchr(*list, '=');
        char name[128];

        if (equals == NULL || equals == *list)
            continue;
        if (gp_secrets_hide(*list) && request->environment != NULL)
            return gp_fail(err, GP_EINVAL,
                           "%.*s is a secret and would be stored in the pool's journal; pass it with "
                           "`gradpool up --secret-env %.*s`",
                           (int)(equals - *list), *list, (int)(equals - *list), *list);
        if (request->environment == NULL) {
            if ((size_t)(equals - *list) >= sizeof(name))
                continue;
            snprintf(name, sizeof(name), "%.*s", (int)(equals - *list), *list);
            if (!gp_job_variable_allowed(name))
                continue;
        }
        if (count++ == GP_JOB_VARIABLES_MAX)
            return gp_fail(err, GP_ELIMIT, "the job has more than %u environment variables",
                           GP_JOB_VARIABLES_MAX);
        status = append_text(out, *list, "variables", err);
    }
    return status;
}

/* Write the job's working directory: as requested, or else the current directory. */
static gp_status pack_directory(gp_buffer *out, const gp_job_request *request, bool remote, gp_error *err)
{
    char here[GP_JOB_DIRECTORY_BYTES_MAX];

    /* remote pool: an empty path makes the job start in the home directory of the pool user */
    if (request->directory == NULL && remote)
        return append_text(out, "", "directory's characters", err);
    if (request->directory == NULL && getcwd(here, sizeof(here)) == NULL)
        return gp_fail_errno(err, GP_EIO, "cannot determine the current directory");
    if (request->directory != NULL && request->directory[0] != '/')
        return gp_fail(err, GP_EINVAL, "the job's directory is '%.100s'; it must be an absolute path",
                       request->directory);
    return append_text(out, request->directory != NULL ? request->directory : here, "directory's characters",
                       err);
}

/* ---- submitting ---- */

typedef struct gp_parcel { /* buffers and values shared by all submissions in one call */
    gp_buffer words, environment, directory;
    uint8_t key[16];
    uint32_t umask;
} gp_parcel;

/* Send submission `index` to the scheduler. Without a key in the request, the random key of this
 * call and the index identify the submission. */
static gp_status send_submit(gp_pool *pool, gp_parcel *parcel, const gp_job_request *request, size_t index,
                             uint64_t *correlation, gp_error *err)
{
    static const uint8_t zeros[16];
    gp_job_put submit = { .priority = request->priority,
                          .umask = parcel->umask,
                          .kind = (uint32_t)request->kind };
    bool drawn = memcmp(request->key, zeros, sizeof(zeros)) == 0;
    gp_payload payloads[3];
    gp_status status;

    memcpy(submit.submitter, drawn ? parcel->key : request->key, sizeof(submit.submitter));
    submit.seq = drawn ? index : request->seq;
    snprintf(submit.name, sizeof(submit.name), "%s", request->name != NULL ? request->name : "");
    status = gp_printable_check("job name", submit.name, err);
    if (status != GP_OK)
        return status;
    gp_buffer_clear(&parcel->words);
    gp_buffer_clear(&parcel->environment);
    gp_buffer_clear(&parcel->directory);
    if (request->words == NULL || request->words[0] == NULL || request->words[0][0] == '\0')
        return gp_fail(err, GP_EINVAL, "a job needs a command: \"train\", \"--network\", ...");
    for (size_t i = 0; status == GP_OK && request->words[i] != NULL; i++) {
        if (i == GP_JOB_WORDS_MAX)
            return gp_fail(err, GP_ELIMIT, "the job's command has more than %u words", GP_JOB_WORDS_MAX);
        status = append_text(&parcel->words, request->words[i], "words", err);
    }
    if (status == GP_OK)
        status = pack_environment(&parcel->environment, request, pool->remote != NULL, err);
    if (status == GP_OK)
        status = pack_directory(&parcel->directory, request, pool->remote != NULL, err);
    if (status != GP_OK)
        return status;
    payloads[0] = (gp_payload){ .data = parcel->words.data, .bytes = parcel->words.bytes };
    payloads[1] = (gp_payload){ .data = parcel->environment.data, .bytes = parcel->environment.bytes };
    payloads[2] = (gp_payload){ .data = parcel->directory.data, .bytes = parcel->directory.bytes };
    return pool_post_with(pool, &gp_msg_job_put, &submit, payloads, 3, correlation, err);
}

static gp_status submits_late_fail(const gp_pool *pool, const submits *s, gp_error *err)
{
    return gp_fail(err, GP_ETIMEDOUT,
                   "the scheduler of pool %s did not acknowledge %zu of the jobs within %g s; it may still "
                   "run them: see `gradpool jobs`; its log is %s",
                   pool->paths.pool, s->count - s->answered, (double)s->timeout_ms * 1e-3,
                   pool->paths.scheduler_log);
}

/* Wait for one message and record the reply that it contains. The submissions since the last
 * reconnect have consecutive correlations, starting at `first`. GP_ETIMEDOUT: no reply within the
 * time limit. */
static gp_status handle_accepted(gp_pool *pool, submits *s, uint64_t first, gp_error *err)
{
    pool_message in;
    gp_job_accepted accepted;
    int64_t left = s->received_ms + s->timeout_ms - gp_now_ms();
    gp_status status = left > 0 ? pool_next(pool, &in, (int)left, err) : submits_late_fail(pool, s, err);

    if (status != GP_OK || in.from == POOL_NOBODY)
        return status;
    uint64_t place = in.in.envelope.correlation - first;

    if (in.from == POOL_SCHEDULER && place < s->sent) {
        if (in.in.type == &gp_msg_error_reply) {
            status = pool_error_from(&in.in, err);
        } else if (in.in.type == &gp_msg_job_accepted) {
            status = gp_incoming_decode(&in.in, &accepted, err);
            if (status == GP_OK)
                submits_answered(s, place, accepted.job, gp_now_ms());
        }
    }
    pool_message_close(&in);
    return status;
}

/* Send all submissions, with a limited number in flight, and wait for all replies. */
static gp_status submit_all(submits *s, gp_pool *pool, gp_parcel *parcel, const gp_job_request *requests,
                            gp_error *err)
{
    uint64_t first = 0, correlation, asked = pool->reunions;
    gp_status status = GP_OK;
    size_t number;

    while (status == GP_OK && !submits_done(s)) {
        /* The new scheduler recognizes recorded submissions by their key and does not record them
         * twice. */
        if (pool->reunions != asked) {
            asked = pool->reunions;
            submits_again(s);
        }
        if (!submits_next(s, &number)) {
            status = handle_accepted(pool, s, first, err);
            continue;
        }
        const int64_t now_ms = gp_now_ms();

        status = submits_late(s, now_ms)
                     ? submits_late_fail(pool, s, err)
                     : send_submit(pool, parcel, &requests[number], number, &correlation, err);
        if (status == GP_OK) {
            if (s->sent == 0)
                first = correlation;
            submits_sent(s, number, now_ms);
        }
        gp_fault_point("submitting");
    }
    return status;
}

/* Submit jobs.
 *   timeout_ms  longest wait for the next reply */
static gp_status submit_many(uint64_t *jobs, gp_pool *pool, const gp_job_request *requests, size_t count,
                             int64_t timeout_ms, gp_error *err)
{
    gp_parcel parcel = { .umask = (uint32_t)gp_umask() & 0777 };
    submits numbers = { .order = NULL };
    gp_status status = GP_OK;

    for (size_t i = 0; i < count; i++)
        jobs[i] = 0;
    gp_buffer_init(&parcel.words, GP_JOB_WORDS_BYTES_MAX);
    gp_buffer_init(&parcel.environment, GP_JOB_ENVIRONMENT_BYTES_MAX);
    gp_buffer_init(&parcel.directory, GP_JOB_DIRECTORY_BYTES_MAX);
    if (getrandom(parcel.key, sizeof(parcel.key), 0) != (ssize_t)sizeof(parcel.key))
        status = gp_fail_errno(err, GP_EIO, "no random bytes for a key");
    if (status == GP_OK)
        status = submits_init(&numbers, jobs, count, WINDOW, timeout_ms, gp_now_ms(), err);
    if (status == GP_OK)
        status = submit_all(&numbers, pool, &parcel, requests, err);
    submits_deinit(&numbers);
    gp_buffer_deinit(&parcel.words);
    gp_buffer_deinit(&parcel.environment);
    gp_buffer_deinit(&parcel.directory);
    return status;
}

gp_status gp_job_submit_many(uint64_t *jobs, gp_pool *pool, const gp_job_request *requests, size_t count,
                             gp_error *err)
{
    return submit_many(jobs, pool, requests, count, POOL_JOB_ANSWER_MS, err);
}

gp_status pool_job_submit(uint64_t *job, gp_pool *pool, const gp_job_request *request, int64_t timeout_ms,
                          gp_error *err)
{
    uint64_t id;
    gp_status status = submit_many(&id, pool, request, 1, timeout_ms, err);

    if (status == GP_OK)
        *job = id;
    return status;
}

gp_status gp_job_submit(uint64_t *job, gp_pool *pool, const gp_job_request *request, gp_error *err)
{
    return pool_job_submit(job, pool, request, POOL_JOB_ANSWER_MS, err);
}

/* ---- querying ---- */

const char *gp_job_state_word(gp_job_state state)
{
    static const char *const words[] = { "unknown", "queued", "starting", "running", "stopping",
                                         "done",    "failed", "canceled", "lost" };

    return words[state >= GP_JOB_QUEUED && state <= GP_JOB_LOST ? state : 0];
}

bool gp_job_state_ended(gp_job_state state)
{
    return state >= GP_JOB_DONE;
}

void pool_job_info(gp_job_info *out, const gp_job_row *row)
{
    *out = (gp_job_info){ .id = row->job,
                          .state = (gp_job_state)row->state,
                          .priority = row->priority,
                          .attempts = row->attempts,
                          .cancel_asked = row->cancel,
                          .pid = row->pid,
                          .workers = row->workers,
                          .exit_code = row->exit == GP_JOB_EXIT_CODE ? (int)row->number : -1,
                          .signal = row->exit == GP_JOB_EXIT_SIGNAL ? (int)row->number : 0,
                          .age_seconds = (double)row->age_ms * 1e-3,
                          .submitted_ms = (int64_t)row->submitted_ms,
                          .kind = (gp_job_kind)row->kind,
                          .run_seconds = (double)row->run_ms * 1e-3 };
    snprintf(out->name, sizeof(out->name), "%s", row->name);
    snprintf(out->command, sizeof(out->command), "%s", row->command);
    snprintf(out->reason, sizeof(out->reason), "%s", row->reason);
}

/* Return the word for the kind of a job. The queue treats the job that starts detached calls again
 * like a sweep. */
static const char *kind_word(const gp_job_info *info)
{
    static const char *const kinds[] = { "ordinary", "sweep", "trial" };

    if (info->kind == GP_JOB_SWEEP && strcmp(info->command, "results keep") == 0)
        return "results";
    return kinds[info->kind];
}

void pool_job_write(gp_json_writer *writer, const gp_job_info *info)
{
    gp_json_begin_object(writer, NULL);
    gp_json_put_integer(writer, "job", (int64_t)info->id);
    gp_json_put_text(writer, "name", info->name);
    gp_json_put_text(writer, "state", gp_job_state_word(info->state));
    gp_json_put_text(writer, "command", info->command);
    gp_json_put_text(writer, "kind", kind_word(info));
    gp_json_put_integer(writer, "priority", info->priority);
    gp_json_put_integer(writer, "attempts", info->attempts);
    gp_json_put_integer(writer, "workers", info->workers);
    gp_json_put_integer(writer, "pid", info->pid);
    gp_json_put_number(writer, "age_seconds", info->age_seconds);
    gp_json_put_number(writer, "run_seconds", info->run_seconds);
    if (info->exit_code >= 0)
        gp_json_put_integer(writer, "exit_code", info->exit_code);
    else
        gp_json_put_null(writer, "exit_code");
    gp_json_put_integer(writer, "signal", info->signal);
    gp_json_put_text(writer, "reason", info->reason);
    gp_json_end_object(writer);
}

gp_status pool_jobs_page(gp_pool *pool, uint64_t before, uint32_t states, uint32_t count, gp_jobs_reply **out,
                         gp_error *err)
{
    gp_jobs_get ask = { .before = before, .states = states, .count = count };
    void *reply;
    gp_status status = pool_ask_new(pool, &gp_msg_jobs_get, &ask, &gp_msg_jobs_reply, &reply, err);

    if (status == GP_OK)
        *out = reply;
    return status;
}

gp_status pool_jobs_glance(gp_pool *pool, uint32_t states, uint32_t count, gp_jobs_reply **out, gp_error *err)
{
    gp_error why;
    gp_status status = pool_jobs_page(pool, 0, states, count, out, &why);

    if (status == GP_OK)
        return GP_OK;
    if (status == GP_EPEER || status == GP_ETIMEDOUT)
        return gp_fail(err, status, "%s", why.message);
    *out = gp_calloc(1, sizeof(**out));
    if (*out == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a job list");
    pool_note(pool, "jobs: %s", why.message);
    return GP_OK;
}

gp_status gp_job_list(gp_pool *pool, bool all, bool (*on_job)(void *context, const gp_job_info *job),
                      void *context, gp_error *err)
{
    uint64_t before = 0;
    bool more = true;
    gp_status status = GP_OK;

    while (more && status == GP_OK) {
        gp_jobs_reply *page;

        status = pool_jobs_page(pool, before, all ? 0 : POOL_JOBS_UNFINISHED, GP_JOB_ROWS_MAX, &page, err);
        if (status != GP_OK)
            break;
        more = page->more && page->rows_count > 0;
        for (uint32_t i = 0; i < page->rows_count; i++) {
            gp_job_info info;

            pool_job_info(&info, &page->rows[i]);
            before = info.id;
            if (!on_job(context, &info)) {
                more = false;
                break;
            }
        }
        gp_free(page);
    }
    return status;
}

gp_status gp_job_get(gp_job_info *out, gp_pool *pool, uint64_t job, gp_error *err)
{
    gp_job_ask ask = { .job = job };
    gp_job_reply reply;
    gp_status status;

    if (job == 0)
        return gp_fail(err, GP_EINVAL, "there is no job 0; job numbers start at 1");
    status = pool_ask(pool, &gp_msg_job_ask, &ask, &gp_msg_job_reply, &reply, POOL_ANSWER_MS, err);
    if (status != GP_OK)
        return status;
    pool_job_info(out, &reply.row);
    snprintf(out->folder, sizeof(out->folder), "%s", reply.folder);
    return GP_OK;
}

_Static_assert((int)GP_CANCEL_GRACE_MS_MAX == (int)GP_JOB_GRACE_MS_MAX, "one limit for all grace periods");

gp_status gp_job_cancel(uint32_t *count, gp_pool *pool, uint64_t job, gp_error *err)
{
    return gp_job_cancel_grace(count, pool, job, GP_JOB_GRACE_MS, err);
}

gp_status gp_job_cancel_grace(uint32_t *count, gp_pool *pool, uint64_t job, int64_t grace_ms, gp_error *err)
{
    gp_job_stop ask = { .job = job, .grace_ms = (uint32_t)grace_ms };
    gp_job_stopping reply;
    gp_status status;

    if (grace_ms < 0 || grace_ms > GP_CANCEL_GRACE_MS_MAX)
        return gp_fail(err, GP_EINVAL, "the grace period is %" PRId64 " ms; it must be 0 to %d", grace_ms,
                       GP_CANCEL_GRACE_MS_MAX);
    status = pool_ask(pool, &gp_msg_job_stop, &ask, &gp_msg_job_stopping, &reply, POOL_JOB_ANSWER_MS, err);
    if (status == GP_OK && count != NULL)
        *count = reply.count;
    return status;
}

/* ---- waiting ---- */

typedef struct gp_waiting {
    gp_pool *pool;
    const uint64_t *jobs;
    gp_job_info *infos;
    size_t count;
    uint64_t first; /* correlation of the first watch; the others follow consecutively */
    size_t watches;
    int64_t query_ms; /* when to query all jobs; INT64_MAX: never */
    uint64_t asked;   /* pool->reunions when the watches were sent */
} gp_waiting;

static bool wait_is_over(const gp_waiting *w, bool any)
{
    size_t ended = 0;

    for (size_t i = 0; i < w->count; i++)
        ended += gp_job_state_ended(w->infos[i].state);
    return ended == w->count || (any && ended > 0);
}

/* Watch each job, or, above the limit per client, all jobs of the pool with a single watch. A
 * single watch does not report the current state, so all jobs are queried as well. */
static gp_status watch_all(gp_waiting *w, gp_error *err)
{
    gp_status status = GP_OK;
    uint64_t correlation;

    w->asked = w->pool->reunions;
    w->watches = w->count <= WATCHES_MAX ? w->count : 1;
    w->query_ms = w->watches != w->count ? 0 : INT64_MAX;
    for (size_t i = 0; i < w->watches && status == GP_OK; i++) {
        gp_job_watch ask = { .job = w->watches != w->count ? 0 : w->jobs[i] };

        status = pool_post(w->pool, &gp_msg_job_watch, &ask, &correlation, err);
        if (i == 0)
            w->first = correlation;
    }
    return status;
}

/* Query the state of every job that has not ended. A notification that arrives before the reply to
 * a query is lost, so another round of queries follows. */
static gp_status query_all(gp_waiting *w, int64_t deadline_ms, const volatile sig_atomic_t *stop,
                           gp_error *err)
{
    gp_status status = GP_OK;

    for (size_t i = 0; i < w->count && status == GP_OK; i++) {
        if ((stop != NULL && *stop != 0) || gp_now_ms() >= deadline_ms)
            break;
        if (!gp_job_state_ended(w->infos[i].state))
            status = gp_job_get(&w->infos[i], w->pool, w->jobs[i], err);
    }
    w->query_ms = gp_now_ms() + QUERY_AGAIN_MS;
    return status == GP_ETIMEDOUT ? GP_OK : status; /* a suspended scheduler does not end the wait */
}

/* Wait up to wait_ms for one notification and apply it. */
static gp_status handle_change(gp_waiting *w, int wait_ms, gp_error *err)
{
    pool_message in;
    gp_job_changed changed;
    gp_status status = pool_next(w->pool, &in, wait_ms, err);

    if (status != GP_OK || in.from == POOL_NOBODY)
        return status;
    bool ours = in.from == POOL_SCHEDULER && in.in.envelope.correlation - w->first < w->watches;

    if (ours && in.in.type == &gp_msg_error_reply) {
        status = pool_error_from(&in.in, err);
    } else if (ours && in.in.type == &gp_msg_job_changed) {
        status = gp_incoming_decode(&in.in, &changed, err);
        for (size_t i = 0; status == GP_OK && i < w->count; i++)
            if (w->jobs[i] == changed.row.job)
                pool_job_info(&w->infos[i], &changed.row);
        if (status == GP_OK && changed.missed) /* the scheduler dropped notifications */
            w->query_ms = 0;
    }
    pool_message_close(&in);
    return status;
}

gp_status gp_job_wait(gp_job_info *infos, gp_pool *pool, const uint64_t *jobs, size_t count, bool any,
                      int timeout_ms, const volatile sig_atomic_t *stop, gp_error *err)
{
    gp_waiting w = { .pool = pool, .jobs = jobs, .infos = infos, .count = count };
    int64_t deadline = timeout_ms < 0 ? INT64_MAX : gp_now_ms() + timeout_ms;
    gp_status status;

    for (size_t i = 0; i < count; i++) {
        infos[i] = (gp_job_info){ .id = jobs[i], .state = GP_JOB_QUEUED, .exit_code = -1 };
        if (jobs[i] == 0)
            return gp_fail(err, GP_EINVAL, "there is no job 0; job numbers start at 1");
    }
    status = count > 0 ? watch_all(&w, err) : GP_OK;
    while (status == GP_OK && !wait_is_over(&w, any)) {
        int64_t left = deadline - gp_now_ms();

        if (stop != NULL && *stop != 0)
            return gp_fail(err, GP_ECANCELED, "the wait was interrupted; the jobs continue");
        if (left <= 0)
            return gp_fail(err, GP_ETIMEDOUT, "no end within %d ms; the jobs continue", timeout_ms);

        /* The new scheduler does not know the watches. Send them again, and query the jobs for
         * missed changes. */
        if (w.asked != pool->reunions) {
            status = watch_all(&w, err);
            w.query_ms = 0;
            continue;
        }
        status = gp_now_ms() >= w.query_ms
                     ? query_all(&w, deadline, stop, err)
                     : handle_change(&w, left < LOOK_AGAIN_MS ? (int)left : LOOK_AGAIN_MS, err);
    }
    return status;
}
