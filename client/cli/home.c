/* `gradpool` without a command: print the pool state and suggest the next commands. */
#include <inttypes.h>

#include "client/cli/help.h"
#include "client/cli/show.h"
#include "common/base/memory/alloc.h"

static void home_next(const char *what, const char *command)
{
    printf("  %-34s %s\n", what, command);
}

/* With no pool running, suggest how to start one. Otherwise show the pool status, a job summary,
 * and commands that make sense in this state. */
int cli_home(void)
{
    gp_pool *pool;
    gp_status_reply *reply = NULL;
    gp_jobs_reply *jobs = NULL;
    gp_error err;
    gp_status status = gp_pool_open(&pool, &(gp_pool_options){ .attach_only = true }, &err);

    if (status == GP_ENOPOOL) {
        printf("No pool is running.  Next steps:\n\n");
        home_next("start one", "gradpool up");
        home_next("list the devices", "gradpool devices");
        home_next("train (starts a pool if needed)", "gradpool train --network lenet --data digits");
        home_next("all commands", "gradpool --help");
        return CLI_OK;
    }
    if (status == GP_OK) {
        status = pool_status(pool, &reply, &err);
        if (status == GP_OK)
            status =
                pool_jobs_glance(pool, 1 << GP_JOB_ROW_RUNNING | 1 << GP_JOB_ROW_STOPPING, 1, &jobs, &err);
        gp_pool_close(pool);
    }
    if (status != GP_OK) {
        gp_free(reply);
        fprintf(stderr, "gradpool: %s\n", err.message);
        return CLI_FAILED;
    }
    show_status(reply, NULL);
    show_jobs_line(jobs);
    printf("\nNext steps:\n\n");
    home_next("train", "gradpool train --network lenet --data digits");
    home_next("predict with a trained model",
              "gradpool predict --model MODEL.onnx --data SOURCE --out FILE.csv");
    if (jobs->running > 0 && jobs->rows_count > 0) {
        char follow[64];

        snprintf(follow, sizeof(follow), "gradpool logs %" PRIu64 " -f", jobs->rows[0].job);
        home_next("show the newest job", follow);
    } else {
        home_next("train in the background", "gradpool submit -- train --network lenet --data digits");
    }
    home_next("shut down the pool", reply->leases_count > 0 ? "gradpool down --when-idle" : "gradpool down");
    gp_free(reply);
    gp_free(jobs);
    return CLI_OK;
}
