/* crew.c -- the life of a job:
 *
 *   inputs ---a place is free---> RUNNING ---success, or no attempt is left---> ended: told, printed in its turn
 *                ^------------------|  its worker died, or it failed and may again
 *
 * One loop: give work to free places, wait (exec.h sees to the pool), take what has ended.  A stop has three steps:
 * no new jobs, SIGTERM to those that run, SIGKILL. */
#include "client/cli/crew.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/crew_words.h"
#include "client/exec.h"
#include "common/base/alloc.h"
#include "common/base/clock.h"

enum { LOOK_MS = 200, PROGRESS_TTY_MS = 200, PROGRESS_FILE_MS = 1000, OWN_VARIABLES = 10 };

typedef struct crew_job {
    uint64_t number, attempt; /* attempt: its name for the runner, new each time */
    char **values;            /* of the inputs; one block */
    char *line;               /* the command, for logs */
    output_job *output;
    int attempts, deaths;
    double start;
    int64_t deadline_ms; /* 0 = none */
    bool timed_out;
    struct crew_job *next; /* of those to be run again */
} crew_job;

typedef enum crew_stop { STOP_NOT, STOP_NEW, STOP_TERM, STOP_KILL } crew_stop;

typedef struct crew {
    const crew_options *options;
    crew_result *result;
    gp_pool *pool;
    gp_exec *exec;
    cli_output *output;
    uint32_t slots;
    crew_job **running; /* by place */
    uint32_t running_count;
    crew_job *again, **again_last;
    uint64_t numbers, attempts; /* given out */
    uint64_t ranks_begun;       /* spmd: a bit each */
    bool source_ended, source_waits;
    crew_stop stop;
    const char *names[INPUTS_SOURCES_MAX];
    int name_count;
    /* What commands inherit. */
    char *directory;
    uint32_t mask;
    uint64_t files_max;
    const char **environment;
    char variables[OWN_VARIABLES][128];
    int null_fd;
    struct pollfd *fds;
    nfds_t fds_max;
    /* For people. */
    gp_buffer failures;
    uint32_t failures_told;
    int64_t begin_ms, told_ms;
    bool line_shown, terminal;
} crew;

/* ---- progress ---- */

static void progress_wipe(void *context)
{
    crew *c = context;

    if (c->line_shown)
        fputs("\r\033[K", stderr);
    c->line_shown = false;
}

static void progress_show(crew *c, bool last)
{
    uint64_t count = c->options->inputs == NULL ? gp_exec_workers(c->exec) : inputs_count(c->options->inputs);
    int64_t now = gp_now_ms();
    double seconds = (double)(now - c->begin_ms) * 1e-3;
    double rate = seconds > 0 ? (double)c->result->done / seconds : 0;
    char of[32] = "", left[64] = "", time[40];

    if (!c->options->progress ||
        (!last && now - c->told_ms < (c->terminal ? PROGRESS_TTY_MS : PROGRESS_FILE_MS)))
        return;
    c->told_ms = now;
    if (count != UINT64_MAX)
        snprintf(of, sizeof(of), " of %" PRIu64, count);
    if (count != UINT64_MAX && count >= c->result->done && rate > 0 && !last)
        snprintf(left, sizeof(left), ", %s left",
                 cli_duration((double)(count - c->result->done) / rate, time, sizeof(time)));
    progress_wipe(c);
    fprintf(stderr, "%" PRIu64 "%s done, %" PRIu32 " running, %" PRIu64 " failed, %.3g jobs/s%s%s",
            c->result->done, of, c->running_count, c->result->failed, rate, left,
            c->terminal && !last ? "" : "\n");
    c->line_shown = c->terminal && !last;
}

/* ---- opening ---- */

/* Names that are ours to give; the rest of our environment goes to the commands as it is. */
static bool variable_is_ours(const char *variable, bool gpu)
{
    static const char *const names[] = { "GRADPOOL_INDEX=",   "GRADPOOL_SIZE=", "GRADPOOL_WORKER=",
                                         "GRADPOOL_SLOT=",    "GRADPOOL_SEQ=",  "CUDA_VISIBLE_DEVICES=",
                                         "CUDA_DEVICE_ORDER=" };

    for (size_t i = 0; i < (gpu ? 7 : 5); i++)
        if (strncmp(variable, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static const char *const *environment_make(crew *c, exec_place place, uint64_t job)
{
    const gp_slot *slot = c->pool == NULL ? NULL : gp_exec_slot(c->exec, place.rank);
    bool gpu = slot != NULL && slot->device_kind == GP_DEVICE_CUDA;
    size_t count = 0;
    int own = 0;

    for (char **at = environ; *at != NULL; at++)
        if (!variable_is_ours(*at, gpu))
            c->environment[count++] = *at;
#define OWN(...)                                                                                             \
    do {                                                                                                     \
        snprintf(c->variables[own], sizeof(c->variables[own]), __VA_ARGS__);                                 \
        c->environment[count++] = c->variables[own++];                                                       \
    } while (0)
    if (slot != NULL) {
        OWN("GRADPOOL_INDEX=%" PRIu32, place.rank + 1);
        OWN("GRADPOOL_SIZE=%" PRIu32, gp_exec_workers(c->exec));
        OWN("GRADPOOL_WORKER=%" PRIu32, slot->index);
    }
    OWN("GRADPOOL_SLOT=%" PRIu32, place.rank * c->slots + place.slot + 1);
    OWN("GRADPOOL_SEQ=%" PRIu64, job);
    if (gpu) {
        OWN("CUDA_VISIBLE_DEVICES=%s", slot->device_uuid);
        OWN("CUDA_DEVICE_ORDER=PCI_BUS_ID");
    }
    /* One command on a worker sees its cores by their affinity; several share them. */
    if (slot != NULL && c->slots > 1 && slot->core_count > 0 && getenv("OMP_NUM_THREADS") == NULL)
        OWN("OMP_NUM_THREADS=%" PRIu32, slot->core_count > c->slots ? slot->core_count / c->slots : 1);
#undef OWN
    c->environment[count] = NULL;
    return c->environment;
}

/* Our descriptors hold other jobs' output: as many as we may have, which the commands do not inherit. */
static void files_raise(crew *c)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    c->files_max = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static gp_status inheritance_take(crew *c, gp_error *err)
{
    size_t count = 0;
    mode_t mask = umask(0);

    umask(mask);
    c->mask = mask & 0777;
    files_raise(c);
    c->directory = getcwd(NULL, 0);
    if (c->directory == NULL)
        return gp_fail_errno(err, GP_EIO, "the present directory has no path");
    while (environ[count] != NULL)
        count++;
    c->environment = gp_calloc(count + OWN_VARIABLES + 1, sizeof(*c->environment));
    if (c->environment == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the commands' environment");
    c->null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return c->null_fd >= 0 ? GP_OK : gp_fail_errno(err, GP_EIO, "cannot open /dev/null");
}

static gp_status output_prepare(crew *c, gp_error *err)
{
    const crew_options *options = c->options;
    output_options output = { .kind = options->lines ? OUTPUT_LINES : OUTPUT_WHOLE,
                              .ordered = options->ordered,
                              .out = STDOUT_FILENO,
                              .err = STDERR_FILENO,
                              .before = progress_wipe,
                              .context = c,
                              .stop = &cli_stop,
                              .report = options->report != NULL ? options->report
                                        : options->json         ? crew_report
                                                                : NULL,
                              .report_context = options->report_context };

    return output_new(&c->output, &output, err);
}

static uint32_t slots_of_cores(const gp_pool *pool)
{
    uint32_t least = EXEC_SLOTS_MAX;

    for (uint32_t i = 0; i < pool->grant.slots_count; i++)
        if (pool->grant.slots[i].core_count < least)
            least = pool->grant.slots[i].core_count;
    return least > 0 ? least : 1;
}

static gp_status workers_take(crew *c, gp_error *err)
{
    const crew_options *options = c->options;
    gp_lease_request request;
    gp_status status = cli_lease_request(options->call, c->pool, &request, err);

    if (status == GP_OK)
        status = pool_lease(c->pool, &request, options->call->command->name, &cli_stop, err);
    if (status != GP_OK)
        return status;
    c->slots = options->slots == CREW_SLOTS_CORES ? slots_of_cores(c->pool) : options->slots;
    return gp_exec_open(&c->exec, c->pool, c->slots, err);
}

static gp_status crew_open(crew *c, gp_error *err)
{
    const cli_inputs *inputs = c->options->inputs;
    gp_status status = inheritance_take(c, err);

    for (int i = 0; inputs != NULL && i < inputs_sources(inputs); i++)
        c->names[c->name_count++] = inputs_name(inputs, i);
    c->slots = c->options->local;
    if (status == GP_OK)
        status = output_prepare(c, err);
    if (status == GP_OK)
        status = c->pool != NULL ? workers_take(c, err) : gp_exec_open_local(&c->exec, c->slots, err);
    if (status != GP_OK)
        return status;
    c->running = gp_calloc((size_t)gp_exec_workers(c->exec) * c->slots, sizeof(crew_job *));
    return c->running != NULL ? GP_OK : gp_fail(err, GP_ENOMEM, "no memory for jobs");
}

/* ---- jobs ---- */

static void job_free(crew_job *job)
{
    if (job == NULL)
        return;
    gp_free(job->values);
    gp_free(job->line);
    gp_free(job);
}

static void crew_close(crew *c)
{
    for (uint32_t i = 0; c->running != NULL && i < gp_exec_workers(c->exec) * c->slots; i++)
        job_free(c->running[i]);
    while (c->again != NULL) {
        crew_job *job = c->again;

        c->again = job->next;
        job_free(job);
    }
    gp_exec_close(c->exec);
    output_free(c->output);
    if (c->pool != NULL)
        pool_release(c->pool);
    gp_free(c->running);
    gp_free(c->environment);
    gp_free(c->fds);
    free(c->directory);
    gp_buffer_deinit(&c->failures);
    if (c->null_fd >= 0)
        close(c->null_fd);
}

static gp_status job_new(crew *c, crew_job **out, uint64_t number, const char *const *values, gp_error *err)
{
    size_t bytes = (size_t)c->name_count * sizeof(char *);
    crew_job *job = gp_calloc(1, sizeof(*job));

    for (int i = 0; i < c->name_count; i++)
        bytes += strlen(values[i]) + 1;
    if (job != NULL)
        job->values = gp_malloc(bytes);
    if (job == NULL || job->values == NULL) {
        gp_free(job);
        return gp_fail(err, GP_ENOMEM, "no memory for job %" PRIu64, number);
    }
    char *at = (char *)(job->values + c->name_count);

    for (int i = 0; i < c->name_count; i++) {
        job->values[i] = at;
        at = stpcpy(at, values[i]) + 1;
    }
    job->number = number;
    *out = job;
    return GP_OK;
}

static void job_again(crew *c, crew_job *job)
{
    job->next = NULL;
    *c->again_last = job;
    c->again_last = &job->next;
}

/* The next one of the inputs that is not done yet; NULL: none now. */
static gp_status job_next(crew *c, crew_job **out, gp_error *err)
{
    inputs_state state = INPUTS_VALUES;

    *out = NULL;
    c->source_waits = false;
    while (!c->source_ended) {
        const char *const *values;
        gp_status status = inputs_next(c->options->inputs, &state, &values, err);

        if (status != GP_OK)
            return status;
        c->source_ended = state == INPUTS_END;
        c->source_waits = state == INPUTS_WAIT;
        if (state != INPUTS_VALUES)
            return GP_OK;
        if (!joblog_done(c->options->joblog, ++c->numbers))
            return job_new(c, out, c->numbers, values, err);
    }
    return GP_OK;
}

/* ---- starting ---- */

static gp_status stdin_open(crew *c, int *fd, gp_error *err)
{
    const char *path = c->options->stdin_path;

    *fd = path[0] == '\0'          ? c->null_fd
          : strcmp(path, "-") == 0 ? STDIN_FILENO
                                   : open(path, O_RDONLY | O_CLOEXEC);
    return *fd >= 0 ? GP_OK : gp_fail_errno(err, GP_EIO, "cannot read --stdin %s", path);
}

static gp_status output_ready(crew *c, crew_job *job, exec_place place, int *out, int *err_fd, gp_error *err)
{
    char tag[512] = "";
    size_t used = 0;

    if (job->output == NULL) {
        if (c->options->tagged && c->options->inputs == NULL)
            snprintf(tag, sizeof(tag), "%" PRIu32 ": ", gp_exec_slot(c->exec, place.rank)->index);
        for (int i = 0; c->options->tagged && i < c->name_count && used < sizeof(tag); i++)
            used += (size_t)snprintf(tag + used, sizeof(tag) - used, "%.200s%s", job->values[i],
                                     i + 1 < c->name_count ? " " : "\t");
        gp_status status = output_begin(&job->output, c->output, tag, err);

        if (status != GP_OK)
            return status;
    }
    return output_open(job->output, out, err_fd, err);
}

static double wall_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool facts_wanted(const crew *c)
{
    return c->options->json || c->options->report != NULL;
}

/* The command of the job for that place. */
static gp_status command_fill(crew *c, crew_job *job, exec_place place, exec_command *command, gp_error *err)
{
    const char *line;
    gp_status status = template_fill(c->options->command, (const char *const *)job->values, job->number,
                                     place.rank * c->slots + place.slot + 1, &command->spec.arguments, err);

    if (status == GP_OK && (c->options->joblog != NULL || facts_wanted(c))) {
        status = template_line(c->options->command, &line, err);
        gp_free(job->line);
        job->line = status == GP_OK ? gp_strdup(line) : NULL;
        if (status == GP_OK && job->line == NULL)
            status = gp_fail(err, GP_ENOMEM, "no memory for job %" PRIu64, job->number);
    }
    command->spec.directory = c->directory;
    command->spec.environment = environment_make(c, place, job->number);
    command->spec.mask = c->mask;
    command->spec.files_max = c->files_max;
    return status;
}

static gp_status job_ended(crew *c, crew_job *job, const exec_event *event, gp_error *err);

/* Hand a job to a place.  What is wrong with this job alone ends it; what is wrong with all is returned. */
static gp_status job_start(crew *c, crew_job *job, exec_place place, gp_error *err)
{
    exec_command command = { .in = -1, .out = -1, .err = -1 };
    exec_event failed = { .kind = EXEC_FAILED, .place = place, .exit_code = 126 };
    gp_error why;
    gp_status status = output_ready(c, job, place, &command.out, &command.err, err);

    if (status == GP_OK)
        status = stdin_open(c, &command.in, err);
    if (status == GP_OK)
        status = command_fill(c, job, place, &command, err);
    if (status != GP_OK) {
        job_again(c, job); /* freed with the others */
        goto done;
    }
    job->attempt = ++c->attempts;
    job->attempts++;
    job->start = wall_seconds();
    job->timed_out = false;
    status = gp_exec_start(c->exec, place, job->attempt, &command, &why);
    if (status == GP_OK) {
        c->running[place.rank * c->slots + place.slot] = job;
        c->running_count++;
    } else if (status == GP_EPEER) { /* the place has just gone */
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

/* Of spmd: each worker's own job as soon as its place is there. */
static gp_status crew_fill_ranks(crew *c, gp_error *err)
{
    gp_status status = GP_OK;

    for (uint32_t rank = 0; rank < gp_exec_workers(c->exec) && status == GP_OK; rank++) {
        exec_place place;
        crew_job *job;

        if ((c->ranks_begun >> rank & 1) != 0 || !gp_exec_find_on(c->exec, rank, &place))
            continue;
        status = job_new(c, &job, rank + 1, NULL, err);
        if (status != GP_OK)
            return status;
        c->ranks_begun |= UINT64_C(1) << rank;
        status = job_start(c, job, place, err);
    }
    c->source_ended = c->ranks_begun == UINT64_MAX >> (64 - gp_exec_workers(c->exec));
    return status;
}

/* Work for every place that is free. */
static gp_status crew_fill(crew *c, gp_error *err)
{
    gp_status status = GP_OK;
    exec_place place;

    if (c->options->inputs == NULL && c->stop == STOP_NOT)
        status = crew_fill_ranks(c, err);
    while (status == GP_OK && c->stop == STOP_NOT && gp_exec_find(c->exec, &place)) {
        crew_job *job = c->again;

        if (job != NULL) {
            c->again = job->next;
            if (c->again == NULL)
                c->again_last = &c->again;
        } else if (c->options->inputs != NULL && output_room(c->output)) {
            status = job_next(c, &job, err);
        }
        if (status != GP_OK || job == NULL)
            break;
        status = job_start(c, job, place, err);
    }
    return status;
}

/* ---- ending ---- */

static void crew_stop_at(crew *c, crew_stop stop)
{
    if (stop <= c->stop)
        return;
    c->stop = stop;
    for (uint32_t i = 0; stop >= STOP_TERM && i < gp_exec_workers(c->exec) * c->slots; i++)
        if (c->running[i] != NULL)
            gp_exec_kill(c->exec, c->running[i]->attempt,
                         stop == STOP_TERM ? (uint32_t)c->options->grace_ms : 0);
}

static void job_tell_failure(crew *c, const crew_job *job, const crew_end *end)
{
    char words[GP_RUNNER_TEXT_MAX], line[GP_RUNNER_TEXT_MAX + 80];

    crew_end_words(end, words, sizeof(words));
    if (c->options->inputs == NULL)
        snprintf(line, sizeof(line), "on worker %" PRIu32 ": %s", end->worker, words);
    else
        snprintf(line, sizeof(line), "job %" PRIu64 ": %s", job->number, words);
    if (c->failures_told++ < CREW_FAILURES_SHOWN)
        gp_buffer_printf(&c->failures, NULL, "%s%s", c->failures.bytes > 0 ? "; " : "", line);
    if (end->event.kind == EXEC_FAILED || end->timed_out || end->event.kind == EXEC_LOST) {
        char said[GP_RUNNER_TEXT_MAX + 120]; /* what the command itself could not say */

        snprintf(said, sizeof(said), "gradpool %s: %s", c->options->call->command->name,
                 end->event.kind == EXEC_FAILED ? end->event.text : line);
        output_say(job->output, said);
    }
}

static gp_status job_log(crew *c, const crew_job *job, const crew_end *end, gp_error *err)
{
    joblog_line line = { .job = job->number,
                         .worker = end->worker,
                         .start = end->start,
                         .seconds = end->event.seconds,
                         .exit_code = end->timed_out || end->event.kind == EXEC_LOST ? -1
                                      : end->event.signal != 0                       ? 0
                                                                                     : end->event.exit_code,
                         .signal = end->timed_out ? SIGTERM : end->event.signal,
                         .command = job->line };

    return c->options->joblog == NULL ? GP_OK : joblog_write(c->options->joblog, &line, err);
}

/* For good. */
static gp_status job_finish(crew *c, crew_job *job, const crew_end *end, gp_error *err)
{
    bool succeeded = crew_end_succeeded(end), ours = c->stop >= STOP_TERM && !succeeded;
    gp_status status = GP_OK;
    char *facts;

    c->result->done++;
    if (!succeeded) {
        c->result->failed++;
        if (c->result->first_code == 0)
            c->result->first_code = crew_end_code(end);
        if (!ours)
            job_tell_failure(c, job, end);
    }
    if (!ours) /* what we ended ourselves is not done: --resume runs it */
        status = job_log(c, job, end, err);
    if (status == GP_OK && facts_wanted(c)) {
        status = crew_facts(&facts, job->number, c->names, (const char *const *)job->values, c->name_count,
                            job->line, end, err);
        if (status == GP_OK)
            output_facts(job->output, facts);
    }
    if (status == GP_OK)
        status = output_end(job->output, err);
    job_free(job);
    if (!succeeded && c->options->halt != CREW_NEVER)
        crew_stop_at(c, c->options->halt == CREW_SOON ? STOP_NEW : STOP_TERM);
    return status;
}

/* An attempt has ended: the job for good, or once more. */
static gp_status job_ended(crew *c, crew_job *job, const exec_event *event, gp_error *err)
{
    crew_end end = { .event = *event,
                     .worker = c->pool == NULL ? 0 : gp_exec_slot(c->exec, event->place.rank)->index,
                     .timed_out = job->timed_out,
                     .attempts = job->attempts,
                     .start = job->start };
    bool again;

    if (event->kind == EXEC_LOST) {
        job->deaths += event->started;
        again = job->deaths < CREW_ATTEMPTS && c->options->inputs != NULL;
        job->attempts -= !event->started || again; /* counted apart */
    } else {
        again = !crew_end_succeeded(&end) && job->attempts <= c->options->retries;
    }
    job->deadline_ms = 0;
    if (!again || c->stop != STOP_NOT)
        return job_finish(c, job, &end, err);
    job_again(c, job);
    return output_drop(job->output, err);
}

static gp_status events_take(crew *c, gp_error *err)
{
    gp_status status = GP_OK;
    exec_event event;

    while (status == GP_OK && gp_exec_next(c->exec, &event)) {
        crew_job **place = &c->running[event.place.rank * c->slots + event.place.slot], *job = *place;

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

static void deadlines_look(crew *c, int64_t now)
{
    for (uint32_t i = 0; i < gp_exec_workers(c->exec) * c->slots; i++) {
        crew_job *job = c->running[i];

        if (job == NULL || job->deadline_ms == 0 || job->deadline_ms > now)
            continue;
        job->deadline_ms = 0;
        job->timed_out = true;
        gp_exec_kill(c->exec, job->attempt, (uint32_t)c->options->grace_ms);
    }
}

static int crew_patience_ms(const crew *c)
{
    int64_t now = gp_now_ms(), until = now + LOOK_MS;

    for (uint32_t i = 0; c->options->timeout_s > 0 && i < gp_exec_workers(c->exec) * c->slots; i++)
        if (c->running[i] != NULL && c->running[i]->deadline_ms != 0 && c->running[i]->deadline_ms < until)
            until = c->running[i]->deadline_ms;
    return until > now ? (int)(until - now) : 0;
}

static gp_status crew_wait(crew *c, gp_error *err)
{
    nfds_t pipes = output_fds(c->output, NULL, 0), count = pipes;
    gp_status status;

    if (pipes + 1 > c->fds_max) {
        struct pollfd *grown = gp_realloc_array(c->fds, pipes + 64, sizeof(*grown));

        if (grown == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory to wait for commands");
        c->fds = grown;
        c->fds_max = pipes + 64;
    }
    output_fds(c->output, c->fds, pipes);
    if (c->source_waits && inputs_fd(c->options->inputs) >= 0)
        c->fds[count++] = (struct pollfd){ .fd = inputs_fd(c->options->inputs), .events = POLLIN };
    status = gp_exec_wait(c->exec, c->fds, count, crew_patience_ms(c), err);
    if (status == GP_OK)
        status = output_read(c->output, c->fds, pipes, err);
    return status;
}

static bool crew_done(const crew *c)
{
    return c->running_count == 0 && (c->stop != STOP_NOT || (c->source_ended && c->again == NULL));
}

/* Ctrl-C: the first asks the commands to end, the second does not ask. */
static void interrupts_look(crew *c)
{
    if (cli_stop == 0)
        return;
    if (!c->result->interrupted) {
        progress_wipe(c);
        fprintf(stderr,
                "gradpool %s: interrupted; running commands are asked to end, and killed after %d s\n",
                c->options->call->command->name, c->options->grace_ms / 1000);
    }
    c->result->interrupted = true;
    crew_stop_at(c, cli_stop > 1 ? STOP_KILL : STOP_TERM);
}

static gp_status crew_loop(crew *c, gp_error *err)
{
    gp_status status = crew_fill(c, err);

    while (status == GP_OK && !crew_done(c)) {
        status = crew_wait(c, err);
        if (status == GP_OK)
            status = events_take(c, err);
        interrupts_look(c);
        deadlines_look(c, gp_now_ms());
        if (status == GP_OK)
            status = crew_fill(c, err);
        progress_show(c, false);
    }
    return status;
}

/* Those that were to be run again and are not: told and written, as they hold their turns. */
static gp_status leftovers_end(crew *c, gp_error *err)
{
    gp_status status = GP_OK;

    while (c->again != NULL && status == GP_OK) {
        crew_job *job = c->again;

        c->again = job->next;
        if (job->output != NULL)
            status = output_end(job->output, err);
        job_free(job);
    }
    return status;
}

gp_status crew_run(const crew_options *options, gp_pool *pool, crew_result *result, gp_error *err)
{
    crew c = { .options = options,
               .result = result,
               .pool = pool,
               .null_fd = -1,
               .begin_ms = gp_now_ms(),
               .terminal = isatty(STDERR_FILENO) };
    gp_status status;

    *result = (crew_result){ 0 };
    c.again_last = &c.again;
    gp_buffer_init(&c.failures, 1 << 16);
    status = crew_open(&c, err);
    if (status == GP_OK) {
        status = crew_loop(&c, err);
        if (status == GP_OK)
            status = leftovers_end(&c, err);
        progress_show(&c, true);
        if (!((const cli_common *)options->call->options)->quiet && c.failures.bytes > 0 &&
            options->report == NULL)
            fprintf(stderr, "gradpool %s: %" PRIu64 " of %" PRIu64 " failed: %s%s\n",
                    options->call->command->name, result->failed, result->done, gp_buffer_text(&c.failures),
                    c.failures_told > CREW_FAILURES_SHOWN ? "; ..." : "");
    }
    crew_close(&c);
    return status;
}

/* ---- --dry-run ---- */

gp_status crew_print(const crew_options *options, gp_error *err)
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
            return gp_fail_errno(err, GP_EIO, "standard output could not be written");
        if (options->inputs == NULL)
            return GP_OK;
    }
}
