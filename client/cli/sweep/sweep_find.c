/* Implement sweep_find.h. */
#include "client/cli/sweep/sweep_find.h"

#include <inttypes.h>
#include <unistd.h>

#include "client/cli/cluster/cluster_jobs.h"
#include "client/cli/jobs/job_self.h"
#include "client/cli/jobs/job_wait.h"
#include "proto/local/paths.h"

/* Return whether a folder has a sweep. */
static bool has_sweep(const char *folder)
{
    char path[SWEEP_PATH_MAX + 20];

    snprintf(path, sizeof(path), "%s/sweep.json", folder);
    return access(path, F_OK) == 0;
}

/* Get the folder of a job of a cluster, on a file system of this host. */
static gp_status find_cluster(char out[SWEEP_PATH_MAX], const char *word, gp_error *err)
{
    cluster_ref ref;
    gp_status status = cluster_ref_open(&ref, word, err);

    if (status != GP_OK)
        return status;
    if (ref.place->site.engine->read != NULL)
        status = gp_fail(err, GP_EUNSUPPORTED,
                         "the files of job %s are on another host; run the command there", word);
    snprintf(out, SWEEP_PATH_MAX, "%s/%s/sweep", ref.place->site.root, ref.name);
    cluster_ref_close(&ref);
    return status;
}

gp_status sweep_find_folder(char out[SWEEP_PATH_MAX], const cli_call *call, const char *word, gp_error *err)
{
    gp_paths paths;
    gp_status status = GP_OK;
    uint64_t job;

    if ((size_t)snprintf(out, SWEEP_PATH_MAX, "%s", word) >= SWEEP_PATH_MAX)
        return gp_fail(err, GP_ELIMIT, "the path of the sweep is longer than %d bytes", SWEEP_PATH_MAX - 1);
    if (has_sweep(word))
        return GP_OK;
    if (cluster_word(word)) {
        status = find_cluster(out, word, err);
    } else if (job_number(word, &job, NULL) == GP_OK) {
        status = gp_paths_find(&paths, cli_pool_name(call), err);
        if (status == GP_OK)
            snprintf(out, SWEEP_PATH_MAX, "%s/jobs/%" PRIu64 "/sweep", paths.state_dir, job);
    } else {
        return GP_OK;
    }
    if (status == GP_OK && !has_sweep(out))
        status =
            gp_fail(err, GP_ENOENT,
                    "job %s has no sweep: there is no %s/sweep.json; `gradpool jobs --all` lists the jobs",
                    word, out);
    return status;
}

void sweep_link_folder(const sweep_folder *folder)
{
    char path[SWEEP_PATH_MAX];

    if (job_self_folder() == NULL)
        return;
    snprintf(path, sizeof(path), "%s/sweep", job_self_folder());
    (void)!symlink(folder->path, path); /* it exists if the folder is the default, or in a later attempt */
}
