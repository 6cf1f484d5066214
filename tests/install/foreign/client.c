/* Starts a pool of one worker with the installed programs and ends it. */
#include <gradpool/gradpool.h>
#include <stdio.h>

int main(void)
{
    uint32_t workers = 0;
    gp_pool *pool = NULL;
    gp_error err;
    gp_status status = gp_pool_open(&pool, &(gp_pool_options){ .workers = 1, .devices = "cpu" }, &err);

    if (status == GP_OK)
        status = gp_pool_workers(pool, &workers, &err);
    if (status == GP_OK)
        printf("%s: %u worker\n", gp_version(), (unsigned)workers);
    else
        fprintf(stderr, "client: %s\n", err.message);
    if (pool != NULL)
        gp_pool_shutdown(pool, false, NULL);
    gp_pool_close(pool);
    return status == GP_OK ? 0 : 1;
}
