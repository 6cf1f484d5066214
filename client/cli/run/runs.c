/* Helpers shared by spmd and parfor: shell detection, slot counts, and running jobs on a pool. */
#include "client/cli/run/runs.h"

#include <stdlib.h>
#include <string.h>

#include "client/cli/run/exec.h"

bool runs_by_shell(const cli_call *call, bool given)
{
    if (cli_given(call, "shell"))
        return given;
    return call->rest_count == 1 && strpbrk(call->rest[0], " \t\n") != NULL;
}

gp_status runs_slots(uint32_t *slots, const char *text, gp_error *err)
{
    char *end;
    unsigned long count = strtoul(text, &end, 10);

    if (strcmp(text, "cores") == 0) {
        *slots = CREW_SLOTS_CORES;
        return GP_OK;
    }
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || count == 0 || count > EXEC_SLOTS_MAX)
        return gp_fail(err, GP_EINVAL, "--slots-per-worker is '%.40s'; it must be 1 to %d, or cores", text,
                       EXEC_SLOTS_MAX);
    *slots = (uint32_t)count;
    return GP_OK;
}

gp_status runs_crew(const crew_options *crew, crew_result *result, gp_error *err)
{
    gp_pool *pool;
    gp_status status = cli_open(crew->call, false, &pool, err);

    if (status != GP_OK)
        return status;
    status = crew_run(crew, pool, result, err);
    gp_pool_close(pool);
    return status;
}
