#include "client/cluster/drive.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/cluster/job_folder.h"
#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/cgroup.h"
#include "common/base/system/fault.h"
#include "common/base/system/file.h"

gp_status cluster_site_open(cluster_site *out, const gp_profile *profile, const cluster_engine *engine,
                            const char *state, gp_error *err)
{
    const char *type = gp_profile_types[profile->type];
    int length;

    *out = (cluster_site){ .profile = profile, .engine = engine };
    if (engine == NULL)
        out->engine = cluster_engine_find(type);
    if (out->engine == NULL)
        return gp_fail(err, GP_EUNSUPPORTED, "profile '%s': this version cannot run jobs of type '%s'",
                       profile->name, type);
    if (out->engine->facts == NULL)
        length = snprintf(out->root, sizeof(out->root), "%s", profile->folder);
    else
        length = snprintf(out->root, sizeof(out->root), "%s/clusters/%s", state, profile->name);
    if (length >= (int)sizeof(out->root) - CLUSTER_NAME_BYTES)
        return gp_fail(err, GP_ELIMIT, "profile '%s': the path of the jobs is too long", profile->name);
    gp_boot_id_read(out->clock, sizeof(out->clock));
    return GP_OK;
}

void cluster_site_launch(const cluster_site *site, const cluster_record *record, cluster_launch *out,
                         char folder[CLUSTER_PATH_BYTES])
{
    snprintf(folder, CLUSTER_PATH_BYTES, "%s/%s", site->profile->folder, record->job.name);
    *out = (cluster_launch){ .name = record->job.name,
                             .folder = folder,
                             .time_s = record->time_s,
                             .requeue = record->requeue,
                             .prepared = site->prepared };
}

/* ---- effects ---- */

typedef struct drive {
    const cluster_site *site;
    cluster_record *record;
} drive;

static int64_t drive_now(void *context)
{
    (void)context;
    return gp_now_ms();
}

static int64_t drive_unix(void *context)
{
    (void)context;
    return gp_unix_ms();
}

static gp_status drive_store(void *context, const cluster_job *job, gp_error *err)
{
    (void)job; /* it is the job of the record */
    return cluster_record_store(((drive *)context)->record, err);
}

static gp_status drive_launch(void *context, const cluster_job *job, char id[CLUSTER_ID_BYTES], gp_error *err)
{
    const drive *d = context;
    const cluster_engine *engine = d->site->engine;
    char folder[CLUSTER_PATH_BYTES], path[CLUSTER_PATH_BYTES + 16];
    uint8_t *command = NULL;
    cluster_launch launch;
    gp_status status = GP_OK;
    (void)job;

    cluster_site_launch(d->site, d->record, &launch, folder);
    if (engine->facts != NULL) {
        snprintf(path, sizeof(path), "%s/command.json", d->record->path);
        status = gp_file_read(&command, &launch.command_bytes, path, CLUSTER_COMMAND_JSON_MAX, err);
        launch.command = (char *)command;
    }
    if (status == GP_OK) {
        status = engine->launch(d->site->profile, &launch, id, err);
        gp_fault_point("cluster-launched");
    }
    gp_free(command);
    return status;
}

static gp_status drive_list(void *context, const cluster_job *job, cluster_listing *listing, gp_error *err)
{
    const drive *d = context;
    (void)job;

    return d->site->engine->list(d->site->profile, listing, err);
}

static gp_status drive_facts(void *context, const cluster_job *job, cluster_facts *facts, gp_error *err)
{
    const drive *d = context;

    if (d->site->engine->facts != NULL)
        return d->site->engine->facts(d->site->profile, job->name, facts, err);
    return cluster_folder_facts(d->record->path, facts, err);
}

static gp_status drive_mark(void *context, const cluster_job *job, gp_error *err)
{
    const drive *d = context;
    gp_status status = d->site->engine->mark != NULL ? d->site->engine->mark(d->site->profile, job->name, err)
                                                     : cluster_folder_cancel(d->record->path, err);

    gp_fault_point("cluster-marked");
    return status;
}

static gp_status drive_cancel(void *context, const cluster_job *job, const char *id, gp_error *err)
{
    const drive *d = context;
    cluster_entry entry = { .exit_code = -1 };
    gp_status status;

    snprintf(entry.name, sizeof(entry.name), "%s", job->name);
    snprintf(entry.id, sizeof(entry.id), "%s", id);
    if (job->seen.live && strcmp(job->seen.entry.id, id) == 0)
        entry = job->seen.entry;
    status = d->site->engine->cancel(d->site->profile, &entry, err);
    gp_fault_point("cluster-canceled");
    return status;
}

gp_status cluster_drive(const cluster_site *site, cluster_record *record,
                        const cluster_shared_listing *shared, cluster_pass_result *result, gp_error *err)
{
    drive d = { site, record };
    const cluster_hooks hooks = { .context = &d,
                                  .clock = site->clock,
                                  .now_ms = drive_now,
                                  .unix_ms = drive_unix,
                                  .store = drive_store,
                                  .launch = drive_launch,
                                  .list = drive_list,
                                  .facts = drive_facts,
                                  .mark = drive_mark,
                                  .cancel = drive_cancel };

    return cluster_pass(&record->job, &hooks, shared, result, err);
}

gp_status cluster_visit(const cluster_site *site, const char *name, bool cancel, int wait_ms,
                        const cluster_shared_listing *shared, cluster_record *record,
                        cluster_pass_result *result, gp_error *err)
{
    gp_status status = cluster_record_open(record, site->root, name, wait_ms, err);

    if (status != GP_OK)
        return status;
    if (cancel)
        cluster_step(&record->job, &(cluster_event){ .kind = CLUSTER_CANCEL }, gp_now_ms());
    status = cluster_drive(site, record, shared, result, err);
    cluster_record_close(record);
    return status;
}

gp_status cluster_file_read(const cluster_site *site, const char *name, const char *path, uint64_t offset,
                            void *to, size_t bytes, size_t *got, gp_error *err)
{
    char file[CLUSTER_PATH_BYTES + 128];
    ssize_t count;
    int fd;

    if (site->engine->read != NULL)
        return site->engine->read(site->profile, name, path, offset, to, bytes, got, err);
    snprintf(file, sizeof(file), "%s/%s/%s", site->root, name, path);
    fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return gp_fail_errno(err, errno == ENOENT ? GP_ENOENT : GP_EIO, "cannot open %s", file);
    count = offset == CLUSTER_READ_ENDS ? gp_read_ends(fd, to, bytes) : gp_read_at(fd, to, bytes, offset);
    if (count < 0)
        gp_fail_errno(err, GP_EIO, "cannot read %s", file);
    close(fd);
    if (count < 0)
        return GP_EIO;
    *got = (size_t)count;
    return GP_OK;
}
