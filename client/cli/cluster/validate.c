/* Implement validate.h: the stages that need no job. */
#include "client/cli/cluster/validate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/directory.h"
#include "common/base/system/file.h"

enum { PROBE_BYTES = 1 << 20 }; /* log, records and checkpoint of a small job */

extern char **environ;

/* ---- profile ---- */

/* Write a file as large as a small job to the folder, and remove it. */
static gp_status folder_probe(const char *folder, gp_error *err)
{
    char path[CLUSTER_PATH_BYTES + 32];
    uint8_t *bytes = gp_calloc(1, PROBE_BYTES);
    gp_status status = bytes == NULL ? gp_fail(err, GP_ENOMEM, "no memory for %d bytes", PROBE_BYTES) : GP_OK;
    int fd = -1;

    if (status == GP_OK)
        status = gp_directory_make(folder, 0700, err);
    snprintf(path, sizeof(path), "%s/.validate-XXXXXX", folder);
    if (status == GP_OK && (fd = mkostemp(path, O_CLOEXEC)) < 0)
        status = gp_fail_errno(err, GP_EIO, "cannot write to %s", folder);
    if (status == GP_OK && (!gp_write_all(fd, bytes, PROBE_BYTES) || fsync(fd) != 0))
        status = gp_fail_errno(err, GP_EIO, "cannot write %d KiB to %s", PROBE_BYTES >> 10, folder);
    if (fd >= 0) {
        close(fd);
        unlink(path);
    }
    gp_free(bytes);
    return status;
}

/* Check the profile file and, if this host sees it, the folder of the jobs. */
static void stage_profile(validation *v)
{
    gp_error err;
    gp_status status = cluster_place_open(&v->place, v->name, &err);
    const bool shared = status == GP_OK && v->place->site.engine->facts == NULL;
    struct statvfs facts;

    if (shared)
        status = folder_probe(v->place->site.root, &err);
    if (status != GP_OK)
        validate_fail(v, VALIDATE_PROFILE, err.message);
    else if (shared && statvfs(v->place->site.root, &facts) == 0)
        validate_pass(v, VALIDATE_PROFILE, "%s, %.1f GiB free in %s", v->place->profile.path,
                      (double)facts.f_bavail * (double)facts.f_frsize / (1 << 30), v->place->site.root);
    else
        validate_pass(v, VALIDATE_PROFILE, "%s", v->place->profile.path);
}

/* ---- engine ---- */

static void stage_engine(validation *v)
{
    const int64_t begin_ms = gp_now_ms();
    cluster_listing listing = { 0 };
    size_t live = 0;
    gp_error err;
    gp_status status = v->place->site.engine->list(&v->place->profile, &listing, &err);

    for (size_t i = 0; i < listing.count; i++)
        live += listing.entries[i].state != CLUSTER_ENTRY_ENDED;
    if (status == GP_OK)
        validate_pass(v, VALIDATE_ENGINE, "%s answers in %lld ms; %zu of your jobs",
                      v->place->site.engine->type, (long long)(gp_now_ms() - begin_ms), live);
    else if (status == GP_EVERSION) { /* reached, but gradpool is missing there, or another version */
        validate_pass(v, VALIDATE_ENGINE, "%s answers", v->place->site.engine->type);
        validate_skip(v, VALIDATE_ALLOCATION, "stage build failed");
        validate_fail(v, VALIDATE_BUILD, err.message);
    } else
        validate_fail(v, VALIDATE_ENGINE, err.message);
    cluster_listing_deinit(&listing);
}

/* ---- without a job ---- */

/* Ask the engine whether it would accept the job. */
static void stage_allocation_test(validation *v)
{
    const cluster_site *site = &v->place->site;
    char note[CLUSTER_REASON_BYTES] = "", folder[CLUSTER_PATH_BYTES];
    cluster_record record = { .requeue = true };
    cluster_launch launch;
    gp_error err;
    gp_status status;

    if (site->engine->test == NULL) {
        validate_skip(v, VALIDATE_ALLOCATION, "--no-job: engine '%s' shows it only in a job",
                      site->engine->type);
        return;
    }
    cluster_job_init(&record.job, "gp-0000000000000000");
    cluster_site_launch(site, &record, &launch, folder);
    status = site->engine->test(&v->place->profile, &launch, note, &err);
    if (status == GP_OK)
        validate_pass(v, VALIDATE_ALLOCATION, "%s", note);
    else
        validate_fail(v, VALIDATE_ALLOCATION, err.message);
}

gp_status cluster_validate(cli_call *call, const char *name, const char *data, bool job, gp_error *err)
{
    const cli_common *common = call->options;
    const int64_t begin_ms = gp_now_ms();
    validation v = { .name = name,
                     .data = data,
                     .quiet = common->quiet,
                     .json = common->json,
                     .queue_seconds = -1,
                     .record = { .lock = -1 } };
    gp_status status = GP_OK;

    cli_catch_interrupts();
    stage_profile(&v);
    if (validate_failed(&v) == VALIDATE_STAGES)
        stage_engine(&v);
    if (validate_failed(&v) == VALIDATE_STAGES && job)
        status = validate_job(&v, err);
    else if (validate_failed(&v) == VALIDATE_STAGES)
        stage_allocation_test(&v);
    for (validate_stage stage = VALIDATE_PROFILE; stage < VALIDATE_STAGES; stage++)
        validate_skip(&v, stage, "%s",
                      cli_stop != 0 ? "interrupted"
                      : job         ? "no job was submitted"
                                    : "--no-job");
    if (v.json && status == GP_OK)
        status = validate_print_json(&v, (double)(gp_now_ms() - begin_ms) / 1000, err);
    if (v.folder[0] != '\0' && !v.quiet && !v.json)
        printf("files of the job: %s\n", v.folder);
    if (status == GP_OK && validate_failed(&v) != VALIDATE_STAGES)
        call->code = CLI_FAILED;
    else if (status == GP_ECANCELED)
        call->code = CLI_INTERRUPTED;
    cluster_record_close(&v.record);
    gp_free(v.place);
    return status;
}
