/* bench_records.c: measure what the records of a training cost.
 *
 *   bench_records [ROUNDS [EPOCHS [BATCH]]]      [20 3 128]
 *
 * Each round trains LeNet on digits:12800 with two workers, once with all records (metrics, sums of
 * workers, TensorBoard, index) and once without any, in alternating order. Prints the ratio of the
 * images per second with its 95 % interval, and the processor time of the client for each step. */
#include <gradpool/gradpool.h>

#define GP_TEST_NO_MAIN
#include "client/cli/jobs/run_folder.h"
#include "tests/service/pools.h"

enum { ROUNDS_MAX = 1000 };

/* One training. */
typedef struct training {
    bool records;
    run_folder folder;
    gp_train_options options;
    gp_error failed;
} training;

/* Results of the trainings with or without records. */
typedef struct results {
    double per_second[ROUNDS_MAX], cpu_us[ROUNDS_MAX]; /* images; of the client, per step */
} results;

static void die(const char *what, const gp_error *err)
{
    fprintf(stderr, "bench_records: %s: %s\n", what, err->message);
    exit(1);
}

static double cpu_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static void on_begin(void *context, const gp_train_info *info)
{
    static char name[] = "bench_records", *words[] = { name, NULL };
    training *t = context;
    const run_folder_request request = { .network = "lenet",
                                         .data = "digits:12800",
                                         .argc = 1,
                                         .argv = words,
                                         .options = &t->options,
                                         .state_dir = in_root("state"),
                                         .board = RUN_BOARD_AUTO };

    if (!t->records)
        return;
    if (run_folder_open(&t->folder, &request, &t->failed) != GP_OK)
        die("run folder", &t->failed);
    run_folder_facts(&t->folder, info);
}

static void on_step(void *context, const gp_train_step *step)
{
    training *t = context;

    if (t->records)
        run_folder_step(&t->folder, step, gp_now_ms());
}

static void on_validation(void *context, const gp_train_validation_result *validation)
{
    training *t = context;

    if (t->records)
        run_folder_validation(&t->folder, validation);
}

static void train(gp_pool *pool, bool records, const char *epochs, const char *batch, double *per_second,
                  double *us)
{
    char words[2][40];
    const char *const options[] = { words[0], words[1], NULL };
    training t = { .records = records, .folder = { .lock = -1 } };
    const gp_train_request request = {
        .network = "lenet",
        .data = "digits:12800",
        .validation_data = "none",
        .options = options,
        .lease = { .workers_min = 2, .workers_max = 2 },
        .events = { .begin = on_begin, .step = on_step, .check = on_validation, .context = &t }
    };
    const double begin_us = cpu_us();
    gp_training_summary summary;
    gp_training *trained;
    gp_error err;

    snprintf(words[0], sizeof(words[0]), "max-epochs=%s", epochs);
    snprintf(words[1], sizeof(words[1]), "mini-batch-size=%s", batch);
    if (gp_train_options_from_json(&t.options, "{}", 2, &err) != GP_OK)
        die("options", &err);
    run_folder_start(&t.folder);
    if (gp_train(&trained, pool, &request, &err) != GP_OK)
        die("training", &err);
    gp_training_summarize(trained, &summary);
    if (records)
        run_folder_close(&t.folder, &summary, NULL);
    gp_training_free(trained);
    *us = (cpu_us() - begin_us) / (double)summary.steps;
    *per_second = (double)summary.samples_trained / summary.seconds;
}

/* Print the mean of n values and its 95 % interval, by Student's t (Cornish-Fisher). */
static void print_interval(const char *what, const double *values, int n)
{
    const double z = 1.959964, t = z + (z * z * z + z) / (4.0 * (n - 1));
    double mean = 0, square = 0, half;

    for (int i = 0; i < n; i++)
        mean += values[i] / n;
    for (int i = 0; i < n; i++)
        square += (values[i] - mean) * (values[i] - mean) / (n - 1);
    half = t * sqrt(square / n);
    printf("%-44s %8.3f, from %.3f to %.3f\n", what, mean, mean - half, mean + half);
}

int main(int count, char **arguments)
{
    const int rounds = count > 1 ? atoi(arguments[1]) : 20;
    const char *epochs = count > 2 ? arguments[2] : "3", *batch = count > 3 ? arguments[3] : "128";
    static results with, without;
    double ratios[ROUNDS_MAX], unused;
    gp_pool *pool;
    gp_error err;

    if (rounds < 2 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: bench_records [ROUNDS [EPOCHS [BATCH]]]; 2 to %d rounds\n", ROUNDS_MAX);
        return 2;
    }
    pools_begin(NULL);
    if (chdir(pools_root) != 0 ||
        gp_pool_open(&pool, &(gp_pool_options){ .workers = 2, .devices = "cpu" }, &err) != GP_OK)
        die("pool", &err);
    train(pool, true, epochs, batch, &unused, &unused); /* starts the workers' threads */
    for (int i = 0; i < rounds; i++) {
        for (int k = 0; k < 2; k++) {
            results *r = (i + k) % 2 == 0 ? &with : &without;

            train(pool, r == &with, epochs, batch, &r->per_second[i], &r->cpu_us[i]);
        }
        ratios[i] = with.per_second[i] / without.per_second[i];
    }
    print_interval("images/s with all records", with.per_second, rounds);
    print_interval("images/s without records", without.per_second, rounds);
    print_interval("ratio", ratios, rounds);
    print_interval("client, us of processor per step, with", with.cpu_us, rounds);
    print_interval("client, us of processor per step, without", without.cpu_us, rounds);
    gp_pool_close(pool);
    pools_end();
    return 0;
}
