/* Square a number on a pool with one worker, using the installed programs. */
#include <gradpool/gradpool.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    double x = 12, *y;
    size_t bytes;
    gp_pool *pool = NULL;
    gp_team *team = NULL;
    gp_future *future = NULL;
    const gp_function *square;
    gp_error err;
    gp_status status = gp_pool_open(&pool, &(gp_pool_options){ .workers = 1, .devices = "cpu" }, &err);

    if (argc != 2)
        return 2;
    if (status == GP_OK)
        status = gp_team_open(&team, pool, NULL, &err);
    if (status == GP_OK)
        status = gp_function_find(&square, team, argv[1], &err);
    if (status == GP_OK)
        status = gp_parfeval(&future, team,
                             &(gp_parfeval_request){ .function = square, .argument = &x, .bytes = sizeof(x) },
                             &err);
    if (status == GP_OK)
        status = gp_future_result(future, (const void **)&y, &bytes, &err);
    if (status == GP_OK)
        printf("%s: %g\n", gp_version(), *y);
    else
        fprintf(stderr, "client: %s\n", err.message);
    gp_future_free(future);
    gp_team_close(team);
    if (pool != NULL)
        gp_pool_shutdown(pool, false, NULL);
    gp_pool_close(pool);
    return status == GP_OK ? 0 : 1;
}
