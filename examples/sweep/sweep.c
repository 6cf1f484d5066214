/* Find a good learning rate and momentum of a training: gp_search chooses the values, and each
 * trial is a background job. `gradpool sweep` does the same in one command, and also continues
 * after a failure.
 *
 *   cmake -B build && cmake --build build && build/sweep digits:400 */
#include <gradpool/gradpool.h>
#include <gradpool/search.h>
#include <stdio.h>
#include <string.h>

enum { TRIALS = 6, SLOTS = 2 };

/* A trial that runs. */
struct slot {
    uint32_t trial;
    uint64_t job;
    char *values; /* JSON; freed with gp_buffer_free() */
};

/* Ask for the next trial and submit its training. GP_ENOENT: no trial is left. */
static gp_status start(struct slot *slot, gp_search *search, gp_pool *pool, const char *data, gp_error *err)
{
    char rate[32], momentum[32], name[32];
    const char *const words[] = {
        "train", "--network", "lenet",      "--data", data,       "--workers", "1",
        "--lr",  rate,        "--momentum", momentum, "--epochs", "3",         NULL
    };
    const gp_job_request request = { .words = words, .name = name };
    gp_status status = gp_search_ask(search, &slot->trial, &slot->values, err);

    if (status != GP_OK)
        return status;
    sscanf(slot->values, "{\"lr\": %31[^,], \"momentum\": %31[^}]", rate, momentum);
    snprintf(name, sizeof(name), "trial %u", (unsigned)slot->trial);
    return gp_job_submit(&slot->job, pool, &request, err);
}

/* Return the validation accuracy that a training has left in its folder. Negative: none. */
static double result(gp_pool *pool, uint64_t job)
{
    gp_job_info info;
    char path[256], text[2000] = "";
    double accuracy = -1;
    const char *found;
    FILE *file;

    if (gp_job_get(&info, pool, job, NULL) != GP_OK)
        return -1;
    snprintf(path, sizeof(path), "%s/end.json", info.folder);
    file = fopen(path, "r");
    if (file == NULL)
        return -1;
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    found = strstr(text, "\"validation_accuracy\": ");
    if (found != NULL)
        sscanf(found, "\"validation_accuracy\": %lf", &accuracy);
    return accuracy;
}

/* Run all trials, two at a time. */
static gp_status run(gp_search *search, gp_pool *pool, const char *data, gp_error *err)
{
    struct slot slots[SLOTS];
    uint64_t jobs[SLOTS];
    gp_job_info infos[SLOTS];
    size_t count = 0;
    gp_status status = GP_OK;

    for (;;) {
        while (count < SLOTS && (status = start(&slots[count], search, pool, data, err)) == GP_OK)
            count++;
        if (count == 0 || (status != GP_OK && status != GP_ENOENT))
            return status == GP_ENOENT ? GP_OK : status;
        for (size_t i = 0; i < count; i++)
            jobs[i] = slots[i].job;
        status = gp_job_wait(infos, pool, jobs, count, true, -1, NULL, err);
        for (size_t i = count; i-- > 0 && status == GP_OK;) {
            const double accuracy = gp_job_state_ended(infos[i].state) ? result(pool, jobs[i]) : 0;

            if (!gp_job_state_ended(infos[i].state))
                continue;
            printf("trial %u: %-38s %6.2f %%\n", (unsigned)slots[i].trial, slots[i].values, 100 * accuracy);
            status = gp_search_tell(search, slots[i].trial, accuracy < 0 ? GP_SEARCH_FAILED : GP_SEARCH_DONE,
                                    accuracy, err);
            gp_buffer_free(slots[i].values);
            slots[i] = slots[--count];
        }
        if (status != GP_OK)
            return status;
    }
}

int main(int argc, char **argv)
{
    const char *data = argc > 1 ? argv[1] : "digits";
    const gp_search_options options = { .trials_max = TRIALS };
    gp_search *search = NULL;
    gp_pool *pool = NULL;
    uint32_t trial;
    double accuracy;
    char *values;
    gp_error err;
    gp_status status = gp_search_new(&search, "lr=log:1e-3:0.3 momentum=0.5:0.95", &options, &err);

    if (status == GP_OK)
        status = gp_pool_open(&pool, NULL, &err);
    if (status == GP_OK)
        status = run(search, pool, data, &err);
    if (status == GP_OK)
        status = gp_search_best(search, &trial, &accuracy, &values, &err);
    if (status == GP_OK) {
        printf("best: trial %u with %s\n", (unsigned)trial, values);
        gp_buffer_free(values);
    } else {
        fprintf(stderr, "%s\n", err.message);
    }
    gp_pool_close(pool);
    gp_search_free(search);
    return status == GP_OK ? 0 : 1;
}
