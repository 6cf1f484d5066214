/* bench_loops.c: compare custom training loops with `gradpool train`: the same steps on the same
 * pool, alternating.
 *
 *   bench_loops [--network N] [--data SOURCE] [--batch B] [--steps S] [--rounds R] [--workers W]
 *
 * Defaults: lenet on digits:10000, 256 samples per step, 200 steps, 9 rounds, 2 workers. Each round
 * consists of a training, the loop, and the loop with a custom loss; the first round is discarded.
 * Prints medians over the rounds in steps per second (from the end of the first step to the end of
 * the last) and the median ratio within a round. */
#include <stdio.h>
#include <string.h>

#define GP_TEST_NO_MAIN
#include "tests/service/pools.h"

#include "client/gradpool.h"
#include "tests/bench/loop_fn.h"
#include "tests/sort.h"

enum { ROUNDS_MAX = 99, KINDS = 3 };

typedef struct bench {
    const char *network, *data;
    uint32_t batch, steps, rounds, workers;
    gp_pool *pool;
    double begun, ended;              /* s; end of the first and last step of a training */
    double rates[KINDS][ROUNDS_MAX];  /* steps per second */
    double cpu_ms[KINDS][ROUNDS_MAX]; /* compute thread at index 1, ms per step; 0 for trainings */
} bench;

static void die(const char *what, const gp_error *err)
{
    fprintf(stderr, "bench_loops: %s: %s\n", what, err->message);
    exit(1);
}

static void on_step(void *context, const gp_train_step *step)
{
    bench *b = context;

    if (step->rank != 0)
        return;
    if (step->step == 1)
        b->begun = step->seconds;
    b->ended = step->seconds;
}

/* Train for as many epochs as the steps need; return the rate over the actual steps. */
static double train(bench *b)
{
    char batch[40], epochs[40];
    unsigned samples = 10000;
    const char *options[] = { batch, epochs, "initial-learn-rate=0.01", "seed=1", NULL };
    gp_train_request request = { .network = b->network,
                                 .data = b->data,
                                 .validation_data = "none",
                                 .options = options,
                                 .events = { .context = b, .step = on_step } };
    gp_training *training;
    gp_training_summary summary;
    gp_error err;

    sscanf(b->data, "digits:%u", &samples);
    if (strncmp(b->data, "synthetic:", 10) == 0)
        samples = (unsigned)atoi(strrchr(b->data, ':') + 1);
    snprintf(batch, sizeof(batch), "mini-batch-size=%u", b->batch);
    snprintf(epochs, sizeof(epochs), "max-epochs=%u",
             (b->steps + samples / b->batch - 1) / (samples / b->batch));
    if (gp_train(&training, b->pool, &request, &err) != GP_OK)
        die("training", &err);
    gp_training_summarize(training, &summary);
    gp_training_free(training);
    return (double)(summary.steps - 1) / (b->ended - b->begun);
}

static double loop(const bench *b, bool custom_loss, double *cpu_ms)
{
    loop_request asked = { .batch = b->batch, .steps = b->steps, .custom_loss = custom_loss };
    gp_spmd_request request = { .argument = &asked, .bytes = sizeof(asked) };
    gp_team *team;
    gp_spmd_result *block;
    const loop_times *times;
    size_t bytes;
    double rate;
    gp_error err;

    snprintf(asked.network, sizeof(asked.network), "%s", b->network);
    snprintf(asked.data, sizeof(asked.data), "%s", b->data);
    if (gp_team_open(&team, b->pool, NULL, &err) != GP_OK ||
        gp_function_find(&request.function, team, LOOP_TASKS ":loop", &err) != GP_OK ||
        gp_spmd(&block, team, &request, &err) != GP_OK ||
        gp_spmd_result_get(block, 1, (const void **)&times, &bytes, &err) != GP_OK)
        die("loop", &err);
    rate = (asked.steps - 1) / times->seconds;
    *cpu_ms = times->cpu * 1e3 / (asked.steps - 1);
    gp_spmd_result_free(block);
    gp_team_close(team);
    return rate;
}

static double median(const double *values, uint32_t count)
{
    double sorted[ROUNDS_MAX];

    memcpy(sorted, values, count * sizeof(*values));
    sort_doubles(sorted, count);
    return sorted[count / 2];
}

static void report(const bench *b)
{
    static const char *const names[KINDS] = { "gradpool train", "custom loop", "custom loop, custom loss" };

    printf("%s on %s, %u samples a step, %u workers, %u rounds of %u steps\n", b->network, b->data, b->batch,
           b->workers, b->rounds, b->steps);
    for (int kind = 0; kind < KINDS; kind++) {
        double ratios[ROUNDS_MAX];

        for (uint32_t round = 0; round < b->rounds; round++)
            ratios[round] = b->rates[kind][round] / b->rates[0][round];
        printf("  %-32s %8.1f steps/s   %.3f of gradpool train", names[kind],
               median(b->rates[kind], b->rounds), median(ratios, b->rounds));
        if (kind > 0)
            printf("   %.2f ms of CPU time per step on the first rank", median(b->cpu_ms[kind], b->rounds));
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    bench b = { "lenet", "digits:10000", 256, 200, 9, 2, .pool = NULL };
    gp_error err;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--network") == 0)
            b.network = argv[i + 1];
        else if (strcmp(argv[i], "--data") == 0)
            b.data = argv[i + 1];
        else if (strcmp(argv[i], "--batch") == 0)
            b.batch = (uint32_t)atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--steps") == 0)
            b.steps = (uint32_t)atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--rounds") == 0)
            b.rounds = (uint32_t)atoi(argv[i + 1]) % ROUNDS_MAX;
        else if (strcmp(argv[i], "--workers") == 0)
            b.workers = (uint32_t)atoi(argv[i + 1]);
    }
    setenv("GP_BUILD_DIR", BUILD_DIRECTORY, 0);
    pools_begin(NULL);
    if (gp_pool_open(&b.pool, &(gp_pool_options){ .workers = b.workers, .devices = "cpu" }, &err) != GP_OK)
        die("pool", &err);
    for (uint32_t round = 0; round <= b.rounds; round++) {
        uint32_t at = round == 0 ? 0 : round - 1; /* round 0 is warm-up and is overwritten */

        b.rates[0][at] = train(&b);
        b.rates[1][at] = loop(&b, false, &b.cpu_ms[1][at]);
        b.rates[2][at] = loop(&b, true, &b.cpu_ms[2][at]);
    }
    report(&b);
    gp_pool_close(b.pool);
    pools_end();
    return 0;
}
