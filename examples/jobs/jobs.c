/* Submit two trainings with different learning rates as background jobs, wait for them, and print
 * their final states. The jobs continue if this program is killed; `gradpool jobs` lists them.
 *
 *   cmake -B build && cmake --build build && build/jobs digits */
#include <gradpool/gradpool.h>
#include <stdio.h>

/* Submit a training and return the job number. */
static uint64_t submit(gp_pool *pool, const char *data, const char *rate, gp_error *err)
{
    const char *const words[] = { "train", "--network", "lenet", "--data",   data, "--workers",
                                  "1",     "--lr",      rate,    "--epochs", "3",  NULL };
    gp_job_request request = { .words = words, .name = rate };
    uint64_t job = 0;

    gp_job_submit(&job, pool, &request, err);
    return job; /* 0: refused */
}

int main(int argc, char **argv)
{
    const char *data = argc > 1 ? argv[1] : "digits";
    uint64_t jobs[2];
    gp_job_info infos[2];
    gp_pool *pool;
    gp_error err;

    if (gp_pool_open(&pool, NULL, &err) != GP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    jobs[0] = submit(pool, data, "0.1", &err);
    jobs[1] = submit(pool, data, "0.01", &err);
    if (jobs[0] == 0 || jobs[1] == 0 || gp_job_wait(infos, pool, jobs, 2, false, -1, NULL, &err) != GP_OK) {
        fprintf(stderr, "%s\n", err.message);
        gp_pool_close(pool);
        return 1;
    }
    for (int i = 0; i < 2; i++) {
        gp_job_get(&infos[i], pool, jobs[i], &err);
        printf("job %llu, rate %s: %s after %.1f s\n", (unsigned long long)jobs[i], infos[i].name,
               gp_job_state_word(infos[i].state), infos[i].run_seconds);
    }
    gp_pool_close(pool);
    return 0;
}
