/* `gradpool submit --profile`. */
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/cluster/cluster_jobs.h"
#include "client/cluster/job_folder.h"
#include "client/cluster/tool.h"
#include "client/runs/run_index.h"
#include "common/base/clock.h"
#include "common/base/printable.h"
#include "common/base/system/directory.h"
#include "common/base/system/process.h"
#include "common/base/text/text.h"
#include "proto/local/paths.h"

enum { SUBMIT_MS = 60000, POLL_MS = 1000 };

/* Choose the working directory of the job. */
static gp_status choose_directory(char *out, size_t bytes, const cluster_place *place, const char *given,
                                  gp_error *err)
{
    if (given[0] != '\0' && given[0] != '/')
        return gp_fail(err, GP_EINVAL, "--directory '%.200s' is not an absolute path", given);
    if (given[0] == '\0')
        given = place->profile.directory;
    if (given[0] != '\0')
        snprintf(out, bytes, "%s", given);
    else if (place->site.engine->directory != NULL)
        snprintf(out, bytes, "%s", place->site.engine->directory(&place->profile));
    else if (place->site.engine->facts != NULL)
        return gp_fail(err, GP_EINVAL,
                       "the host of the job has other folders than this one; give --directory, or set "
                       "directory in profile '%s'",
                       place->profile.name);
    else if (getcwd(out, bytes) == NULL)
        return gp_fail_errno(err, GP_EIO, "cannot get the current directory");
    return GP_OK;
}

/* Format command.json. */
static gp_status format_command(gp_buffer *out, const cluster_place *place, const cluster_submit *options,
                                gp_error *err)
{
    cluster_command command = { .engine = place->site.engine->type,
                                .requeue = options->requeue,
                                .words = (const char **)(uintptr_t)options->words,
                                .word_count = options->word_count,
                                .variables = (const char **)(uintptr_t)options->variables };
    char directory[1024];
    gp_status status = choose_directory(directory, sizeof(directory), place, options->directory, err);

    if (status == GP_OK && place->site.engine->check != NULL)
        status =
            place->site.engine->check(&place->profile, directory, options->words, options->word_count, err);
    if (status != GP_OK)
        return status;
    command.directory = directory;
    command.umask = gp_umask();
    while (options->variables[command.variable_count] != NULL)
        command.variable_count++;
    return cluster_command_format(&command, out, err);
}

/* Fill the members of a new record. */
static gp_status describe(cluster_record *record, const cluster_place *place, const cluster_submit *options,
                          gp_error *err)
{
    size_t bytes = 0;
    gp_status status = GP_OK;

    *record = (cluster_record){ .requeue = options->requeue,
                                .array_index = options->array_index,
                                .submitted_ms = gp_unix_ms() };
    record->lock = -1;
    snprintf(record->profile, sizeof(record->profile), "%s", place->profile.name);
    snprintf(record->label, sizeof(record->label), "%s", options->label);
    snprintf(record->array, sizeof(record->array), "%s", options->array);
    for (size_t i = 0; i < options->word_count && bytes < sizeof(record->command); i++)
        bytes += (size_t)snprintf(record->command + bytes, sizeof(record->command) - bytes, "%s%s",
                                  i == 0 ? "" : " ", options->words[i]);
    if (gp_printable_check("command", record->command, NULL) != GP_OK)
        snprintf(record->command, sizeof(record->command), "%s", options->words[0]);
    if (options->time[0] != '\0')
        status = gp_profile_time_s(options->time, &record->time_s, err);
    else if (place->profile.time[0] != '\0')
        status = gp_profile_time_s(place->profile.time, &record->time_s, err);
    return status;
}

/* Add a training to the index of runs, with its job folder, if this host sees the folder. An error
 * is only reported: the index is a convenience. */
static void add_to_index(const cli_call *call, const cluster_place *place, const cluster_record *record,
                         const char *command)
{
    const time_t submitted_s = (time_t)(record->submitted_ms / 1000);
    char submitted[32];
    struct tm utc;
    gp_paths paths;
    gp_error err;
    gp_status status;

    if (strcmp(command, "train") != 0 || place->site.engine->facts != NULL)
        return;
    strftime(submitted, sizeof(submitted), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&submitted_s, &utc));
    status = gp_paths_find(&paths, cli_pool_name(call), &err);
    if (status == GP_OK)
        status = gp_directory_make(paths.state_dir, 0700, &err);
    if (status == GP_OK)
        status = run_index_append(paths.state_dir, record->path, submitted, &err);
    if (status != GP_OK)
        fprintf(stderr, "the run is missing in `gradpool runs`: %s\n", err.message);
}

/* Print what launch() would give to the engine. */
static gp_status print_script(const cluster_place *place, cluster_record *record, const gp_buffer *json,
                              gp_error *err)
{
    char folder[CLUSTER_PATH_BYTES];
    cluster_launch launch;
    gp_buffer script;
    gp_status status;

    gp_buffer_init(&script, CLUSTER_COMMAND_JSON_MAX);
    cluster_job_init(&record->job, "gp-0000000000000000");
    cluster_site_launch(&place->site, record, &launch, folder);
    launch.command = gp_buffer_text(json);
    launch.command_bytes = json->bytes;
    status = place->site.engine->script(&place->profile, &launch, &script, err);
    if (status == GP_OK && fwrite(gp_buffer_text(&script), 1, script.bytes, stdout) != script.bytes)
        status = gp_fail_errno(err, GP_EIO, "cannot write to standard output");
    gp_buffer_deinit(&script);
    return status;
}

/* Launch the job, and wait until the engine has replied, at most SUBMIT_MS. */
static gp_status launch(const cli_call *call, const cluster_place *place, cluster_record *record,
                        gp_error *err)
{
    const cli_common *options = call->options;
    const int64_t deadline_ms = gp_now_ms() + SUBMIT_MS;
    const cluster_job *job = &record->job;
    cluster_pass_result pass;
    gp_status status = cluster_drive(&place->site, record, NULL, &pass, err);
    const bool launched = record->stored != NULL; /* the first write precedes the launch */
    bool noted = options->quiet;

    cluster_record_close(record);
    while (status == GP_OK && record->job.state == CLUSTER_LAUNCHING && gp_now_ms() < deadline_ms) {
        if (!noted)
            fprintf(stderr, "profile '%s': %s; looking for the job in the engine's listing\n",
                    record->profile, pass.trouble.message);
        noted = true;
        gp_sleep_ms(POLL_MS);
        status = cluster_visit(&place->site, record->job.name, false, 0, NULL, record, &pass, err);
        status = status == GP_EBUSY ? GP_OK : status;
    }
    if (status != GP_OK && launched && job->end != CLUSTER_END_REFUSED)
        gp_error_suffix(
            err, "the engine may have accepted the job (%s:%s); check with 'gradpool jobs --profile %s'",
            record->profile, job->id[0] != '\0' ? job->id : job->name, record->profile);
    if (status == GP_OK && record->job.end == CLUSTER_END_REFUSED)
        return gp_fail(err, GP_EPERM, "%s", record->job.reason);
    if (status == GP_OK && record->job.end == CLUSTER_END_LOST && record->job.attempt == 0)
        return gp_fail(err, GP_ETIMEDOUT, "%s", record->job.reason);
    return status;
}

gp_status cluster_submit_create(cluster_record *record, const cluster_place *place,
                                const cluster_submit *options, gp_error *err)
{
    gp_buffer json;
    gp_status status = describe(record, place, options, err);

    gp_buffer_init(&json, CLUSTER_COMMAND_JSON_MAX);
    if (status == GP_OK)
        status = format_command(&json, place, options, err);
    if (status == GP_OK && options->dry_run)
        status = print_script(place, record, &json, err);
    else if (status == GP_OK && (status = gp_directory_make(place->site.root, 0700, err)) == GP_OK)
        status = cluster_record_create(record, place->site.root, gp_buffer_text(&json), json.bytes, err);
    gp_buffer_deinit(&json);
    return status;
}

/* Write the job to disk while the process that will launch it starts, and launch it. */
static gp_status create_and_launch(const cli_call *call, cluster_place *place, const cluster_submit *options,
                                   cluster_record *record, gp_error *err)
{
    cluster_site *site = &place->site;
    gp_status status;

    if (site->engine->prepare != NULL && !options->dry_run)
        site->prepared = site->engine->prepare(&place->profile);
    status = cluster_submit_create(record, place, options, err);
    if (status == GP_OK && !options->dry_run) {
        add_to_index(call, place, record, options->words[0]);
        status = launch(call, place, record, err);
    }
    cluster_tool_prepared_free(site->prepared);
    site->prepared = NULL;
    return status;
}

gp_status cluster_jobs_submit(cli_call *call, cluster_place *place, const cluster_submit *options,
                              gp_error *err)
{
    const cli_common *common = call->options;
    cluster_record record;
    const char *id;
    gp_status status = create_and_launch(call, place, options, &record, err);

    if (status != GP_OK || options->dry_run)
        return status;
    if (options->array[0] != '\0')
        return GP_OK;
    id = record.job.id[0] != '\0' ? record.job.id : record.job.name;
    printf(common->json ? "{\"job\": \"%s:%s\"}\n" : "%s:%s\n", record.profile, id);
    if (common->quiet || common->json)
        return GP_OK;
    if (record.job.id[0] == '\0')
        fprintf(stderr,
                "the engine has not confirmed the launch; 'gradpool jobs --profile %s' continues it\n",
                record.profile);
    else
        fprintf(stderr, "job %s:%s is queued; follow it with 'gradpool logs %s:%s -f'\n", record.profile, id,
                record.profile, id);
    return GP_OK;
}
