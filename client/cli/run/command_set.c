/* Run the jobs of parfor and spmd on the leased workers.
 *
 *   inputs ---free slot---> RUNNING ---success, final failure, too many losses---> finished,
 *   retries --free slot---> |  |                                            printed in order
 *     ^---failed, retries left  |
 *     ^---lost at most once-----+
 *   suspects --idle worker--> RUNNING ALONE   `suspects` were lost COMMAND_SET_LOSSES_SHARED times
 *
 * When a runner exits, all jobs on that worker are lost, and there is no way to tell which job
 * caused the exit. Every loss counts, whether or not the runner reported a start, so a command that
 * kills the runner at once is started at most COMMAND_SET_LOSSES_MAX times. A suspect runs alone on
 * a worker, so a third loss cannot affect other jobs, and the job that fails is the one that caused
 * the loss.
 *
 * One loop gives jobs to free slots, waits (exec.h also handles pool messages), and handles events.
 * A run is stopped in three stages: start no new jobs, send SIGTERM to running jobs, send
 * SIGKILL. */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/run/command_set_parts.h"
#include "client/cli/show.h"
#include "common/base/memory/alloc.h"
#include "common/base/clock.h"

/* Poll interval for interrupts, and progress intervals on a terminal and in a file. */
enum { LOOK_MS = 200, PROGRESS_TTY_MS = 200, PROGRESS_FILE_MS = 10000 };

/* ---- progress ---- */

void command_set_wipe(void *context)
{
    command_set *c = context;

    if (c->line_shown)
        fputs("\r\033[K", stderr);
    c->line_shown = false;
}

/* Show progress: a line updated in place on a terminal; in a file, one line per tenth of the jobs
 * or per 10 s.
 *   last  print the final line, regardless of the interval */
static void progress_show(command_set *c, bool last)
{
    uint64_t count = c->options->inputs == NULL ? gp_exec_workers(c->exec) : inputs_count(c->options->inputs);
    bool known = count != UINT64_MAX && count > 0;
    uint32_t tenths = known ? (uint32_t)(10.0 * (double)c->result->done / (double)count) : 0;
    int64_t now = gp_now_ms();
    double seconds = (double)(now - c->begin_ms) * 1e-3;
    bool terminal = show_can_redraw(stderr);
    char words[200];

    if (!c->options->progress ||
        (!last && now - c->progress_ms < (terminal ? PROGRESS_TTY_MS : PROGRESS_FILE_MS) &&
         (terminal || tenths <= c->progress_tenths)))
        return;
    c->progress_ms = now;
    c->progress_tenths = tenths;
    command_set_wipe(c);
    fprintf(stderr, "%s, %" PRIu32 " running, %" PRIu64 " failed%s",
            cli_progress_words(words, sizeof(words), "jobs", c->result->done, known ? count : 0,
                               seconds > 0 ? (double)c->result->done / seconds : 0),
            c->running_count, c->result->failed, terminal && !last ? "" : "\n");
    c->line_shown = terminal && !last;
}

/* ---- jobs ---- */

/* Create a job; copy the input values into one allocation behind the pointer array. */
static gp_status job_new(command_set *c, command_job **out, uint64_t number, const char *const *values,
                         gp_error *err)
{
    const int count = inputs_sources(c->options->inputs);
    size_t bytes = (size_t)count * sizeof(char *);
    command_job *job = gp_calloc(1, sizeof(*job));

    for (int i = 0; i < count; i++)
        bytes += strlen(values[i]) + 1;
    if (job != NULL)
        job->values = gp_malloc(bytes);
    if (job == NULL || job->values == NULL) {
        gp_free(job);
        return gp_fail(err, GP_ENOMEM, "no memory for job %" PRIu64, number);
    }
    char *at = (char *)(job->values + count);

    for (int i = 0; i < count; i++) {
        job->values[i] = at;
        at = stpcpy(at, values[i]) + 1;
    }
    job->number = number;
    job->inputs = c->options->inputs;
    *out = job;
    return GP_OK;
}

/* Return whether the job must run alone, because the runner exited too often. */
static bool job_is_suspect(const command_job *job)
{
    return job->losses >= COMMAND_SET_LOSSES_SHARED;
}

/* Queue a job for another start. */
static void job_again(command_set *c, command_job *job)
{
    command_queue *queue = job_is_suspect(job) ? &c->suspects : &c->retries;

    TAILQ_INSERT_TAIL(queue, job, queue);
}

command_job *command_job_take(command_set *c)
{
    command_queue *queue = TAILQ_EMPTY(&c->retries) ? &c->suspects : &c->retries;
    command_job *job = TAILQ_FIRST(queue);

    if (job != NULL)
        TAILQ_REMOVE(queue, job, queue);
    return job;
}

/* ---- starting ---- */

/* Register the job's output. With ordered output, this call fixes the job's position. */
static gp_status job_queue(command_set *c, command_job *job, uint32_t rank, gp_error *err)
{
    char tag[512] = "";
    size_t used = 0;

    if (c->options->tagged && c->options->inputs == NULL)
        snprintf(tag, sizeof(tag), "%" PRIu32 ": ", gp_exec_slot(c->exec, rank)->index);
    const int count = inputs_sources(c->options->inputs);

    for (int i = 0; c->options->tagged && i < count && used < sizeof(tag); i++)
        used += (size_t)snprintf(tag + used, sizeof(tag) - used, "%.200s%s", job->values[i],
                                 i + 1 < count ? " " : "\t");
    return output_begin(&job->output, c->output, tag, err);
}

/* Return whether a report callback or --json needs the job's command line and result. */
static bool report_wanted(const command_set *c)
{
    return c->options->json || c->options->report != NULL;
}

static gp_status job_ended(command_set *c, command_job *job, const exec_event *event, gp_error *err);

/* Start a job on a slot. An error that concerns only this job finishes the job and returns GP_OK;
 * an error that concerns all jobs is returned. */
static gp_status job_start(command_set *c, command_job *job, exec_place place, gp_error *err)
{
    exec_command command = { .spec = c->spec, .in = -1, .out = -1, .err = -1, .alone = job_is_suspect(job) };
    exec_event failed = { .kind = EXEC_FAILED, .place = place, .exit_code = 126 };
    gp_error why;
    const char *path = c->options->stdin_path, *line;
    struct timespec now;
    gp_status status = job->output == NULL ? job_queue(c, job, place.rank, err) : GP_OK;

    if (status == GP_OK)
        status = output_open(job->output, &command.out, &command.err, err);
    command.in = path[0] == '\0'          ? c->null_fd
                 : strcmp(path, "-") == 0 ? STDIN_FILENO
                                          : open(path, O_RDONLY | O_CLOEXEC);
    if (status == GP_OK && command.in < 0)
        status = gp_fail_errno(err, GP_EIO, "cannot read --stdin %s", path);
    if (status == GP_OK)
        status = template_fill(c->options->command, (const char *const *)job->values, job->number,
                               place.rank * c->slots + place.slot + 1, &command.spec.arguments, err);
    if (status == GP_OK && (c->options->joblog != NULL || report_wanted(c))) {
        status = template_line(c->options->command, &line, err);
        gp_free(job->line);
        job->line = status == GP_OK ? gp_strdup(line) : NULL;
        if (status == GP_OK && job->line == NULL)
            status = gp_fail(err, GP_ENOMEM, "no memory for job %" PRIu64, job->number);
    }
    command.spec.environment = command_set_environment(c, place, job->number);
    if (status != GP_OK) {
        job_again(c, job); /* keep the job for command_set_close() to free */
        goto done;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    job->attempt = ++c->attempts;
    job->attempts++;
    job->start = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    job->timed_out = false;
    status = gp_exec_start(c->exec, place, job->attempt, &command, &why);
    if (status == GP_OK) {
        c->running[place.rank * c->slots + place.slot] = job;
        c->running_count++;
    } else if (status == GP_EPEER) { /* the runner has just exited */
        job->attempts--;
        job_again(c, job);
        status = GP_OK;
    } else if (status == GP_ELIMIT || status == GP_EINVAL) {
        snprintf(failed.text, sizeof(failed.text), "%.*s", (int)sizeof(failed.text) - 1, why.message);
        status = job_ended(c, job, &failed, err);
    } else {
        *err = why;
        job_again(c, job);
    }
done:
    if (command.out >= 0) {
        close(command.out);
        close(command.err);
    }
    if (command.in > STDIN_FILENO && command.in != c->null_fd)
        close(command.in);
    return status;
}

/* Find a slot for a job: an spmd job is bound to a rank, and a suspect needs an idle worker. */
static bool job_place(command_set *c, const command_job *job, exec_place *place)
{
    return c->options->inputs == NULL ? gp_exec_find_on(c->exec, job->rank, place)
           : job_is_suspect(job)      ? gp_exec_find_alone(c->exec, place)
                                      : gp_exec_find(c->exec, place);
}

/* Kill the job with this index in `running`. */
static void job_kill(command_set *c, uint32_t index, int grace_ms)
{
    gp_exec_kill(c->exec, (exec_place){ .rank = index / c->slots, .slot = index % c->slots },
                 (uint32_t)grace_ms);
}

/* Start the jobs of a queue for which there is a slot, in order. */
static gp_status queue_fill(command_set *c, command_queue *queue, gp_error *err)
{
    const command_job *last = TAILQ_LAST(queue, command_queue);
    gp_status status = GP_OK;
    exec_place place;

    for (command_job *job = TAILQ_FIRST(queue), *next; job != NULL && status == GP_OK && c->stop == STOP_NOT;
         job = next) {
        next = job == last ? NULL : TAILQ_NEXT(job, queue); /* jobs queued meanwhile wait */
        if (job_place(c, job, &place)) {
            TAILQ_REMOVE(queue, job, queue);
            status = job_start(c, job, place, err);
        } else if (c->options->inputs != NULL) {
            break;
        }
    }
    return status;
}

/* Find a slot for the job of the next input. Return false if that job must not start yet. */
static bool input_place(const command_set *c, exec_place *place)
{
    return c->stop == STOP_NOT && c->source != INPUTS_END && output_room(c->output) &&
           gp_exec_find(c->exec, place);
}

/* Start jobs on all free slots. Suspects come first, because each one needs an idle worker. */
static gp_status command_set_fill(command_set *c, gp_error *err)
{
    gp_status status = queue_fill(c, &c->suspects, err);
    const char *const *values;
    exec_place place;
    command_job *job;

    if (status == GP_OK)
        status = queue_fill(c, &c->retries, err);
    while (status == GP_OK && input_place(c, &place)) {
        status = inputs_next(c->options->inputs, &c->source, &values, err);
        if (status != GP_OK || c->source != INPUTS_VALUES)
            break;
        if (joblog_done(c->options->joblog, ++c->numbers))
            continue;
        status = job_new(c, &job, c->numbers, values, err);
        if (status == GP_OK)
            status = job_start(c, job, place, err);
    }
    return status;
}

/* ---- ending ---- */

/* Advance to a later stop stage; never go back. */
static void command_set_stop_at(command_set *c, command_set_stop stop)
{
    if (stop <= c->stop)
        return;
    c->stop = stop;
    for (uint32_t i = 0; stop >= STOP_TERM && i < gp_exec_workers(c->exec) * c->slots; i++)
        if (c->running[i] != NULL)
            job_kill(c, i, stop == STOP_TERM ? c->options->grace_ms : 0);
}

/* Record a failed job for the summary line. If the command could not report the failure itself, add
 * a line to the job's standard error. */
static void job_report_failure(command_set *c, const command_job *job)
{
    char words[GP_RUNNER_TEXT_MAX], line[GP_RUNNER_TEXT_MAX + 80];

    command_job_text(job, words, sizeof(words));
    if (c->options->inputs == NULL)
        snprintf(line, sizeof(line), "on worker %" PRIu32 ": %s", job->worker, words);
    else
        snprintf(line, sizeof(line), "job %" PRIu64 ": %s", job->number, words);
    if (c->failure_count++ < COMMAND_SET_FAILURES_SHOWN)
        gp_buffer_printf(&c->failures, NULL, "%s%s", c->failures.bytes > 0 ? "; " : "", line);
    if (job->end.kind == EXEC_FAILED || job->timed_out || job->end.kind == EXEC_LOST) {
        char said[GP_RUNNER_TEXT_MAX + 120]; /* failures that the command cannot report itself */

        snprintf(said, sizeof(said), "gradpool %s: %s", c->options->call->command->name,
                 job->end.kind == EXEC_FAILED ? job->end.text : line);
        output_print(job->output, said);
    }
}

/* Count and log a job that will not run again. If a report is wanted, the output takes ownership of
 * the job; otherwise free the job. */
static gp_status job_finish(command_set *c, command_job *job, gp_error *err)
{
    bool succeeded = command_job_succeeded(job), ours = c->stop >= STOP_TERM && !succeeded;
    output_job *output = job->output;
    gp_status status = GP_OK;

    c->result->done++;
    if (ours) {
        c->result->stopped++;
    } else if (!succeeded) {
        c->result->failed++;
        if (c->result->first_code == 0)
            c->result->first_code = command_job_code(job);
        job_report_failure(c, job);
    }
    if (!ours && c->options->joblog != NULL) { /* --resume runs jobs again that were ended by a stop */
        const bool lost = job->timed_out || job->end.kind == EXEC_LOST;

        status = joblog_write(c->options->joblog,
                              &(joblog_line){ .job = job->number,
                                              .worker = job->worker,
                                              .start = job->start,
                                              .seconds = job->end.seconds,
                                              .exit_code = lost                   ? -1
                                                           : job->end.signal != 0 ? 0
                                                                                  : job->end.exit_code,
                                              .signal = job->timed_out ? SIGTERM : job->end.signal,
                                              .command = job->line },
                              err);
    }
    if (report_wanted(c))
        output_subject(output, job);
    else
        command_job_free(job);
    if (status == GP_OK)
        status = output_end(output, err);
    if (!succeeded && c->options->halt != COMMAND_SET_NEVER)
        command_set_stop_at(c, c->options->halt == COMMAND_SET_SOON ? STOP_NEW : STOP_TERM);
    return status;
}

/* Handle the end of one attempt: finish the job or queue it for another attempt. A lost
 * job is retried until COMMAND_SET_LOSSES_MAX losses, without using up --retries. An spmd
 * job is not retried after a loss. */
static gp_status job_ended(command_set *c, command_job *job, const exec_event *event, gp_error *err)
{
    bool again;

    job->end = *event;
    job->worker = c->pool == NULL ? 0 : gp_exec_slot(c->exec, event->place.rank)->index;
    job->losses += event->kind == EXEC_LOST;
    if (event->kind == EXEC_LOST)
        again = job->losses < COMMAND_SET_LOSSES_MAX && c->options->inputs != NULL;
    else
        again = !command_job_succeeded(job) && job->attempts - job->losses <= c->options->retries;
    job->deadline_ms = 0;
    if (!again || c->stop != STOP_NOT)
        return job_finish(c, job, err);
    job_again(c, job);
    return output_drop(job->output, err);
}

/* Handle all runner events. --timeout counts from the reported start. */
static gp_status events_take(command_set *c, gp_error *err)
{
    gp_status status = GP_OK;
    exec_event event;

    while (status == GP_OK && gp_exec_next(c->exec, &event)) {
        command_job **place = &c->running[event.place.rank * c->slots + event.place.slot], *job = *place;

        if (event.kind == EXEC_STARTED && job != NULL && c->options->timeout_s > 0)
            job->deadline_ms = gp_now_ms() + (int64_t)(c->options->timeout_s * 1e3);
        if (event.kind == EXEC_STARTED || job == NULL)
            continue;
        *place = NULL;
        c->running_count--;
        status = job_ended(c, job, &event, err);
    }
    return status;
}

/* ---- waiting ---- */

/* Kill jobs that exceeded --timeout. Return how long to wait: until the next job deadline, at most
 * LOOK_MS. */
static int deadlines_check(command_set *c)
{
    int64_t now = gp_now_ms(), until = now + LOOK_MS;

    for (uint32_t i = 0; c->options->timeout_s > 0 && i < gp_exec_workers(c->exec) * c->slots; i++) {
        command_job *job = c->running[i];

        if (job == NULL || job->deadline_ms == 0 || job->deadline_ms >= until)
            continue;
        if (job->deadline_ms > now) {
            until = job->deadline_ms;
            continue;
        }
        job->deadline_ms = 0;
        job->timed_out = true;
        job_kill(c, i, c->options->grace_ms);
    }
    return (int)(until - now);
}

/* Wait for runners, job output and input lines, and read the available output. The input is polled
 * only if command_set_fill() would read it: poll() returns at once while lines are unread. */
static gp_status command_set_wait(command_set *c, gp_error *err)
{
    nfds_t pipes = output_fds(c->output, NULL, 0), count = pipes;
    exec_place place;
    gp_status status;

    if (pipes + 1 > c->fds_max) {
        struct pollfd *grown = gp_realloc_array(c->fds, pipes + 64, sizeof(*grown));

        if (grown == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory to wait for commands");
        c->fds = grown;
        c->fds_max = pipes + 64;
    }
    output_fds(c->output, c->fds, pipes);
    if (c->source == INPUTS_WAIT && inputs_fd(c->options->inputs) >= 0 && input_place(c, &place))
        c->fds[count++] = (struct pollfd){ .fd = inputs_fd(c->options->inputs), .events = POLLIN };
    status = gp_exec_wait(c->exec, c->fds, count, deadlines_check(c), err);
    if (status == GP_OK)
        status = output_read(c->output, c->fds, pipes, err);
    return status;
}

/* Handle Ctrl-C. The first sends SIGTERM to running commands, followed by SIGKILL after the grace
 * period; the second sends SIGKILL at once. */
static void interrupts_check(command_set *c)
{
    if (cli_stop == 0)
        return;
    if (!c->result->interrupted) {
        command_set_wipe(c);
        fprintf(stderr, "gradpool %s: interrupted; running commands get SIGTERM, and SIGKILL after %g s\n",
                c->options->call->command->name, c->options->grace_ms * 1e-3);
    }
    c->result->interrupted = true;
    command_set_stop_at(c, cli_stop > 1 ? STOP_KILL : STOP_TERM);
}

/* Print the numbers of failed, stopped and not started jobs, and the first failures. A job that
 * waits for a retry when the run stops counts as stopped. With a job log, the number of jobs not
 * started is unknown, because the log excludes jobs. */
static void failures_print(const command_set *c)
{
    const command_set_result *result = c->result;
    const cli_inputs *inputs = c->options->inputs;
    uint64_t total = result->done;
    char stopped[32] = "", waiting[40] = "";

    if (inputs != NULL && c->options->joblog == NULL && inputs_count(inputs) != UINT64_MAX)
        total = inputs_count(inputs);
    if (result->stopped > 0)
        snprintf(stopped, sizeof(stopped), ", %" PRIu64 " stopped", result->stopped);
    if (total > result->done)
        snprintf(waiting, sizeof(waiting), ", %" PRIu64 " not started", total - result->done);
    fprintf(stderr, "gradpool %s: %" PRIu64 " of %" PRIu64 " failed%s%s: %s%s\n",
            c->options->call->command->name, result->failed, total, stopped, waiting,
            gp_buffer_text(&c->failures), c->failure_count > COMMAND_SET_FAILURES_SHOWN ? "; ..." : "");
}

static gp_status command_set_loop(command_set *c, gp_error *err)
{
    gp_status status = GP_OK;
    command_job *job;

    /* the spmd jobs: one per worker, in rank order */
    c->source = c->options->inputs == NULL ? INPUTS_END : INPUTS_VALUES;
    for (uint32_t rank = 0; c->options->inputs == NULL && rank < gp_exec_workers(c->exec) && status == GP_OK;
         rank++) {
        status = job_new(c, &job, rank + 1, NULL, err);
        if (status != GP_OK)
            break;
        job->rank = rank;
        job_again(c, job);
        status = job_queue(c, job, rank, err);
    }
    if (status == GP_OK)
        status = command_set_fill(c, err);
    while (status == GP_OK &&
           (c->running_count > 0 ||
            (c->stop == STOP_NOT &&
             (c->source != INPUTS_END || !TAILQ_EMPTY(&c->retries) || !TAILQ_EMPTY(&c->suspects))))) {
        status = command_set_wait(c, err);
        if (status == GP_OK)
            status = events_take(c, err);
        interrupts_check(c);
        if (status == GP_OK)
            status = command_set_fill(c, err);
        progress_show(c, false);
    }
    /* Free the jobs that were not started (again) because of a stop. Close their outputs, because
     * ordered output waits for them. */
    while (status == GP_OK && (job = command_job_take(c)) != NULL) {
        c->result->done++;
        c->result->stopped++;
        if (job->output != NULL)
            status = output_end(job->output, err);
        command_job_free(job);
    }
    return status;
}

gp_status command_set_run(const command_set_options *options, gp_pool *pool, command_set_result *result,
                          gp_error *err)
{
    command_set c = { .options = options,
                      .result = result,
                      .pool = pool,
                      .null_fd = -1,
                      .begin_ms = gp_now_ms(),
                      .progress_ms = gp_now_ms() };
    gp_status status;

    TAILQ_INIT(&c.retries);
    TAILQ_INIT(&c.suspects);
    *result = (command_set_result){ 0 };
    gp_buffer_init(&c.failures, 1 << 16);
    status = command_set_open(&c, err);
    if (status == GP_OK) {
        status = command_set_loop(&c, err);
        progress_show(&c, true);
        if (!((const cli_common *)options->call->options)->quiet && c.failures.bytes > 0 &&
            options->report == NULL)
            failures_print(&c);
    }
    command_set_close(&c);
    return status;
}

/* ---- --dry-run ---- */

gp_status command_set_print(const command_set_options *options, gp_error *err)
{
    inputs_state state = INPUTS_VALUES;
    uint64_t number = 0;

    for (;;) {
        const char *const *values = NULL, *const * arguments;
        const char *line;
        gp_status status =
            options->inputs == NULL ? GP_OK : inputs_next(options->inputs, &state, &values, err);

        if (status == GP_OK && state == INPUTS_WAIT) {
            poll(&(struct pollfd){ .fd = inputs_fd(options->inputs), .events = POLLIN }, 1, LOOK_MS);
            if (cli_stop != 0)
                return gp_fail(err, GP_ECANCELED, "interrupted");
            continue;
        }
        if (status != GP_OK || state == INPUTS_END)
            return status;
        number++;
        if (joblog_done(options->joblog, number))
            continue;
        status = template_fill(options->command, values, number, 1, &arguments, err);
        if (status == GP_OK)
            status = template_line(options->command, &line, err);
        if (status != GP_OK)
            return status;
        if (puts(line) == EOF)
            return gp_fail_errno(err, GP_EIO, "cannot write to standard output");
        if (options->inputs == NULL)
            return GP_OK;
    }
}
