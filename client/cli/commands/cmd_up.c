/* `gradpool up`: start the pool, or connect to a running pool and resize it if requested. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/show.h"
#include "client/pool/remote.h"
#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/text/text.h"
#include "proto/channel/endpoint.h"

typedef struct up_options {
    cli_common common;
    int64_t workers;
    char devices[256];
    char idle_timeout[24], suspect_after[24], kill_after[24];
    char secret_env[512];
    char listen[108];
    char resource[GP_TEXT_RESOURCES_SETTING];
    int64_t owner;
} up_options;

static const gp_param up_params[] = {
    { .name = "workers",
      GP_PARAM_FIELD(up_options, workers),
      .min = 0,
      .max = 256,
      .help = "workers; 0: one per GPU, else one per core, at most 16" },
    { .name = "devices",
      GP_PARAM_FIELD(up_options, devices),
      .fallback_text = "auto",
      .help = "auto, cpu, or GPUs such as 1,3 or cuda:0 or a UUID" },
    { .name = "idle-timeout",
      GP_PARAM_FIELD(up_options, idle_timeout),
      .fallback_text = "30m",
      .help = "shut down when idle for this time: 90s, 30m, 2h or never" },
    { .name = "suspect-after",
      GP_PARAM_FIELD(up_options, suspect_after),
      .fallback_text = "5s",
      .help = "heartbeat timeout for the state \"suspect\", or never" },
    { .name = "kill-after",
      GP_PARAM_FIELD(up_options, kill_after),
      .fallback_text = "15s",
      .help = "heartbeat timeout to replace a worker that does not run your code, or never" },
    { .name = "secret-env",
      GP_PARAM_FIELD(up_options, secret_env),
      .help = "environment variables to keep in the pool's memory: A,B; on a running pool: update them" },
    { .name = "listen",
      GP_PARAM_FIELD(up_options, listen),
      .help =
          "accept clients on other hosts with registered keys, at tcp://ADDRESS:PORT (docs/security.md)" },
    { .name = "resource",
      GP_PARAM_FIELD(up_options, resource),
      .repeats = true,
      .placeholder = "[WORKERS:]NAME[=N],...",
      .help =
          "resources of all workers, or of some: 2-3:gpu_memory=80; `none` removes those of a running pool" },
    { .name = "owner",
      GP_PARAM_FIELD(up_options, owner),
      .min = 1,
      .max = INT32_MAX,
      .help = "process ID; shut down when this process exits, and remove the pool's files" },
    CLI_JSON_PARAM(up_options),
    CLI_COMMON_PARAMS(up_options),
    { 0 },
};

/* Parse a time such as "90s" to milliseconds. -1: never; 0: malformed. */
static int64_t parse_timeout(const char *text)
{
    char unit[4] = "";
    double value;

    if (strcmp(text, "never") == 0)
        return -1;
    if (sscanf(text, "%lf%3s", &value, unit) < 1 || !(value > 0) || value > 1e7)
        return 0;
    if (strcmp(unit, "s") == 0)
        return (int64_t)(value * 1e3);
    if (strcmp(unit, "m") == 0)
        return (int64_t)(value * 60e3);
    if (strcmp(unit, "h") == 0)
        return (int64_t)(value * 3600e3);
    return strcmp(unit, "ms") == 0 ? (int64_t)value : 0;
}

/* Facts for the final message. */
typedef struct up_story {
    bool quiet;
    bool started;            /* a library note reported the start */
    gp_status_reply *before; /* state of the pool before the command; owned */
} up_story;

/* Print a note of the library; detect that the pool was started. */
static void up_note(void *context, const char *sentence)
{
    up_story *story = context;

    const bool started = strncmp(sentence, "started", 7) == 0;

    story->started = story->started || started;
    if (started && story->quiet)
        return;
    if (!started && !story->quiet)
        fprintf(stderr, "gradpool up: ");
    show_line(stderr, sentence);
}

/* Check --listen against a running pool. A pool opens a listening socket only at startup. GP_EBUSY:
 * the pool listens elsewhere or not at all. */
static gp_status up_check_listen(const cli_call *call, const gp_status_reply *reply, gp_error *err)
{
    const up_options *options = call->options;
    const char *wanted = strrchr(options->listen, ':'), *there = strrchr(reply->listen, ':');

    if (!cli_given(call, "listen") || strcmp(options->listen, reply->listen) == 0 ||
        (wanted != NULL && there != NULL && (strcmp(wanted, there) == 0 || strcmp(wanted, ":0") == 0)))
        return GP_OK;
    return gp_fail(err, GP_EBUSY,
                   "the pool is already running and listens %s%s; shut it down first: gradpool down",
                   there != NULL ? "at " : "nowhere", reply->listen);
}

/* Print the address for other hosts, and how many keys are allowed by role. */
static void up_print_listen(const cli_call *call, const gp_status_reply *reply)
{
    gp_allow_list *list = gp_calloc(1, sizeof(*list));
    char key[GP_KEY_TEXT] = "";
    uint32_t counts[GP_KEY_OBSERVER + 1] = { 0 };
    gp_paths paths;
    gp_error err;
    gp_status status = list == NULL ? gp_fail(&err, GP_ENOMEM, "no memory for a key list")
                                    : gp_paths_find(&paths, cli_pool_name(call), &err);

    if (status == GP_OK)
        status = gp_allow_read(list, paths.allowed, &err);
    if (status == GP_OK)
        status = gp_key_read_public(key, paths.server_key, &err);
    for (uint32_t i = 0; status == GP_OK && i < list->count; i++)
        counts[list->entries[i].role]++;
    gp_free(list);
    if (status != GP_OK) {
        fprintf(stderr, "gradpool up: cannot list the keys: %s\n", err.message);
        return;
    }
    printf("\n"
           "clients on other hosts can connect to %s (encrypted, with a registered key):\n"
           "  %" PRIu32
           " client%s  may submit jobs, which run as you on this host, cancel them, and shut down the pool\n"
           "  %" PRIu32 " observer%s may view its state, its jobs and their logs\n"
           "public key of the pool, for --server-key-file: %s\n",
           reply->listen, counts[GP_KEY_CLIENT], counts[GP_KEY_CLIENT] == 1 ? " " : "s",
           counts[GP_KEY_OBSERVER], counts[GP_KEY_OBSERVER] == 1 ? " " : "s", key);
    if (counts[GP_KEY_CLIENT] + counts[GP_KEY_OBSERVER] == 0)
        printf("no key is registered yet; add one with: gradpool key add NAME KEY\n");
}

/* Resize a running pool if another size or other devices are requested. Options that apply only at
 * startup are reported as ignored. */
static gp_status up_fit(cli_call *call, gp_pool *pool, up_story *story, gp_error *err)
{
    static const char *const times[] = { "idle-timeout", "suspect-after", "kill-after" };
    const up_options *options = call->options;
    gp_status_reply *reply = NULL;
    gp_status status = pool_status(pool, &reply, err);

    if (status != GP_OK)
        return status;
    status = up_check_listen(call, reply, err);
    bool same = (!cli_given(call, "workers") || options->workers == (int64_t)reply->workers_count) &&
                !cli_given(call, "devices") && (!cli_given(call, "resource") || story->started);
    const bool only_resources = !cli_given(call, "workers") && !cli_given(call, "devices");

    story->before = reply;
    for (size_t i = 0; i < 3 && !story->started && !options->common.quiet; i++)
        if (cli_given(call, times[i]))
            fprintf(stderr, "gradpool up: --%s has no effect on a running pool; it keeps its setting\n",
                    times[i]);
    if (status != GP_OK)
        return status;
    return same ? GP_OK
                : pool_resize(pool, only_resources ? reply->workers_count : (uint32_t)options->workers,
                              cli_given(call, "devices") ? options->devices : NULL,
                              cli_given(call, "resource") ? options->resource : NULL, err);
}

/* Wait until no worker is starting, at most 10 s. Workers normally report within milliseconds; a
 * device that another process must release first takes longer. */
static gp_status up_wait(gp_pool *pool, gp_status_reply **reply, gp_error *err)
{
    int64_t deadline = gp_now_ms() + 10000;

    for (;;) {
        uint32_t starting = 0;
        gp_status status = pool_status(pool, reply, err);

        if (status != GP_OK)
            return status;
        for (uint32_t i = 0; i < (*reply)->workers_count; i++)
            starting += (*reply)->workers[i].state == GP_WORKER_STARTING;
        if ((starting == 0 && (*reply)->workers_count > 0) || gp_now_ms() >= deadline)
            return GP_OK;
        gp_free(*reply);
        gp_sleep_ms(1);
    }
}

static gp_status up_run(cli_call *call, gp_error *err)
{
    const up_options *options = call->options;
    up_story story = { .quiet = options->common.quiet };
    gp_pool_options open = { .pool = options->common.pool[0] != '\0' ? options->common.pool : NULL,
                             .workers = (uint32_t)options->workers,
                             .devices = options->devices,
                             .owner_pid = cli_given(call, "owner") ? (uint32_t)options->owner : 0,
                             .suspect_ms = parse_timeout(options->suspect_after),
                             .silence_ms = parse_timeout(options->kill_after),
                             .listen = cli_given(call, "listen") ? options->listen : NULL,
                             .resources = cli_given(call, "resource") ? options->resource : NULL,
                             .secret_env = cli_given(call, "secret-env") ? options->secret_env : NULL,
                             .note = up_note,
                             .context = &story };
    int64_t begin_ns = gp_now_ns();
    gp_status_reply *reply = NULL;
    uint32_t dead = 0;

    /* an owned pool has no idle timeout, unless one is given */
    if (open.owner_pid == 0 || cli_given(call, "idle-timeout"))
        open.idle_timeout_ms = parse_timeout(options->idle_timeout);
    if (open.owner_pid != 0 && open.pool == NULL)
        open.pool = cli_pool_name(call);
    gp_status status = gp_pool_open(&call->pool, &open, err);

    if (status == GP_OK)
        status = pool_needs_host(call->pool, "gradpool up", err);
    if (status == GP_OK)
        status = up_fit(call, call->pool, &story, err);
    if (status == GP_OK)
        status = up_wait(call->pool, &reply, err);
    if (status != GP_OK) {
        gp_free(story.before);
        return status;
    }
    for (uint32_t i = 0; i < reply->workers_count; i++)
        dead += reply->workers[i].state == GP_WORKER_DEAD;
    if (dead > 0 && dead == reply->workers_count)
        status = gp_fail(err, GP_EPEER, "no worker started; worker %" PRIu32 ": %s",
                         reply->workers[0].slot.index, reply->workers[0].reason);
    if (options->common.json) {
        show_status_json(reply, NULL, NULL);
    } else if (!options->common.quiet) {
        char time[40], was[60] = "started";

        const gp_status_reply *before = story.before;
        bool same = before->workers_count == reply->workers_count; /* the same worker processes */

        for (uint32_t i = 0; same && i < reply->workers_count; i++)
            same = before->workers[i].slot.index == reply->workers[i].slot.index &&
                   before->workers[i].slot.incarnation == reply->workers[i].slot.incarnation;
        show_status(reply, NULL);
        if (!story.started && same)
            snprintf(was, sizeof(was), "already running");
        else if (!story.started)
            snprintf(was, sizeof(was), "resized (it had %" PRIu32 " worker%s)", before->workers_count,
                     gp_plural(before->workers_count));
        if (status == GP_OK)
            printf("\n%s; ready in %s\n", was,
                   cli_duration((double)(gp_now_ns() - begin_ns) * 1e-9, time, sizeof(time)));
        if (cli_given(call, "listen"))
            up_print_listen(call, reply);
    }
    gp_free(story.before);
    gp_free(reply);
    return status;
}

static int up_check(cli_call *call)
{
    const up_options *options = call->options;
    const struct {
        const char *name, *given;
        int64_t least_ms;
    } times[] = { { "idle-timeout", options->idle_timeout, 1 },
                  /* workers send a heartbeat every 500 ms */
                  { "suspect-after", options->suspect_after, 1000 },
                  { "kill-after", options->kill_after, 1000 } };
    gp_error err;

    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        int64_t ms = parse_timeout(times[i].given);

        if (ms == 0)
            return cli_usage(call, "--%s is '%s'; it must be a time such as 90s, 30m or 2h, or never",
                             times[i].name, times[i].given);
        if (ms > 0 && ms < times[i].least_ms)
            return cli_usage(
                call, "--suspect-after is '%s' and --kill-after '%s'; each must be 1s or more, or never",
                options->suspect_after, options->kill_after);
    }
    if (gp_resources_assign(NULL, 0, 0, options->resource, false, &err) != GP_OK)
        return cli_usage(call, "--resource: %s", err.message);
    if (cli_given(call, "listen") && gp_endpoint_check(options->listen, true, &err) != GP_OK)
        return cli_usage(call, "--listen: %s", err.message);
    return CLI_OK;
}

const cli_command cli_command_up = {
    .name = "up",
    .summary = "start or resize the pool",
    .usage = "[--workers N] [--devices LIST] [--idle-timeout 30m] [--listen ENDPOINT] [options]",
    .description =
        "Start a pool: one scheduler and its workers. A worker owns a GPU, or an equal share of the CPU "
        "cores. Other commands start a pool with the default settings when they need one, so `up` is "
        "needed only for other settings.\n\n"
        "If the pool is already running, `up` with --workers or --devices resizes it: new workers start at "
        "once, and workers in use change or leave when their lease gives them back; --secret-env updates the "
        "stored variables. A pool shuts down after --idle-timeout without use. With --owner it ends together "
        "with another process instead.\n\n"
        "--resource gives workers resources, such as memory or licenses. Leases, calls and loops with "
        "--needs "
        "run only on workers that have at least these amounts.",
    .examples =
        "  gradpool up                      one worker per GPU, or per core\n"
        "  gradpool up --workers 1          one worker on all cores\n"
        "  gradpool up --devices cpu        CPU workers despite GPUs\n"
        "  gradpool up --secret-env AWS_ACCESS_KEY_ID,AWS_SECRET_ACCESS_KEY,AWS_SESSION_TOKEN\n"
        "                                   credentials of the workers for S3; updated on a running pool\n"
        "  gradpool up --resource 2-3:gpu_memory=80,license\n"
        "                                   resources of workers 2 and 3, for --needs of other commands\n"
        "  gradpool up --owner $$           ends with this shell\n"
        "  gradpool up --listen tcp://10.0.0.5:5555\n"
        "                                   jobs from other hosts with keys from `gradpool key add`\n",
    .options = up_params,
    .options_bytes = sizeof(up_options),
    .check = up_check,
    .run = up_run,
};
