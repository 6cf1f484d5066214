/* bench_commit.c: compare exchanged gradients with gradients computed from factors
 * (worker/train/trainer_factors.c).
 *
 *   bench_commit [--network alexnet] [--samples 32] [--world 2] [--rounds 10]
 *
 * Measures the CPU time of one rank's share of sum and update in one thread, alternating between
 * both methods, for those fully connected layers in a zoo network that use factors. Memory is
 * shared, as in a training. The time in which the backward pass writes gradients for the exchange
 * is not included: see bench_step --profile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "common/base/memory/alloc.h"
#include "common/model/network.h"
#include "tests/sort.h"
#include "worker/comm/reduce.h"
#include "worker/train/trainer_factors.h"

enum { BLOCK = 256, WORLD_MAX = 16 };

typedef struct bench {
    gp_netspec *spec;
    gp_graph *graph;
    gp_optim *optim;
    gp_factor_list factors;
    uint32_t samples, world; /* samples per step */
    float *blobs[2][2], *gradients[WORLD_MAX];
    gp_optim_pass pass;
} bench;

static void *shared_pages(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED) {
        perror("bench_commit: mmap");
        exit(1);
    }
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        ((float *)at)[i] = (float)(i % 251) * 1e-3f;
    return at;
}

static gp_status bench_open(bench *b, const char *network, uint32_t samples, uint32_t world, gp_error *err)
{
    static gp_train_options options;
    gp_status status = gp_zoo_build(&b->spec, network, NULL, 0, err);

    if (status == GP_OK)
        status = gp_graph_new(&b->graph, b->spec, err);
    if (status == GP_OK)
        status = gp_train_options_from_json(&options, "{}", 2, err);
    if (status == GP_OK)
        status = gp_optim_new(&b->optim, b->graph, &options, err);
    b->world = world;
    b->samples = samples;
    if (status == GP_OK)
        status = gp_factor_list_init(&b->factors, b->graph, samples, err);
    if (status != GP_OK)
        return status;
    size_t bytes = b->graph->blob_count * sizeof(float);

    for (int i = 0; i < 4; i++)
        b->blobs[i / 2][i % 2] = shared_pages(bytes);
    for (uint32_t k = 0; k < world; k++)
        b->gradients[k] = shared_pages(bytes);
    for (uint32_t i = 0; i < b->factors.count; i++)
        gp_factor_place(&b->factors.factor[i], shared_pages(gp_factor_bytes(&b->factors.factor[i])));
    gp_optim_place_state(b->optim, b->blobs[0][1]);
    return GP_OK;
}

/* Update like trainer_shard.c. */
static void update_exchanged(const bench *b, const gp_factor *factor)
{
    size_t offset = b->graph->parameters[factor->parameter].offset;
    size_t count = factor->outputs * factor->inputs / b->world;
    _Alignas(64) float sum[BLOCK];

    for (size_t at = 0; at + BLOCK <= count; at += BLOCK) {
        gp_reduce_into(sum, (void *const *)b->gradients, b->world, offset + at, offset + at + BLOCK, GP_F32,
                       GP_COMM_SUM);
        gp_optim_update(&b->pass, factor->parameter, at, BLOCK, sum);
    }
}

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void bench_run(bench *b, int rounds)
{
    static const char *const names[] = { "sum of exchanged gradients and update",
                                         "product of factors and update", "product alone" };
    static double ms[3][1000];
    static float tile[GP_FACTOR_ROWS * GP_FACTOR_COLUMNS];

    for (int round = 0; round < rounds; round++)
        for (int way = 0; way < 3; way++) {
            double began = now_ms();

            gp_optim_begin(&b->pass, b->optim, b->blobs[0][0], 1, 1e-3);
            b->pass.next_parameters = b->blobs[1][0];
            b->pass.next_state = b->blobs[1][1];
            for (uint32_t i = 0; i < b->factors.count; i++) {
                const gp_factor *factor = &b->factors.factor[i];
                size_t blocks = factor->outputs / GP_FACTOR_ROWS / b->world;

                if (way == 0)
                    update_exchanged(b, factor);
                else if (way == 1)
                    gp_factor_update(factor, &b->pass, b->samples, 0, b->world);
                else
                    for (size_t c = 0; c < factor->inputs; c += GP_FACTOR_COLUMNS)
                        for (size_t block = 0; block < blocks; block++)
                            gp_factor_product(factor, factor->samples, block, c, tile, GP_FACTOR_COLUMNS);
            }
            gp_optim_flush();
            ms[way][round] = now_ms() - began;
        }
    for (int way = 0; way < 3; way++) {
        sort_doubles(ms[way], (size_t)rounds);
        printf("%-40s best %8.2f ms, median %8.2f\n", names[way], ms[way][0], ms[way][rounds / 2]);
    }
}

int main(int count, char **arguments)
{
    const char *network = "alexnet";
    uint32_t samples = 32, world = 2;
    int rounds = 10;
    bench *b = gp_calloc(1, sizeof(*b));
    gp_error err;

    for (int i = 1; i + 1 < count; i += 2) {
        const char *name = arguments[i], *value = arguments[i + 1];

        if (strcmp(name, "--network") == 0)
            network = value;
        else if (strcmp(name, "--samples") == 0)
            samples = (uint32_t)atoi(value);
        else if (strcmp(name, "--world") == 0)
            world = (uint32_t)atoi(value);
        else if (strcmp(name, "--rounds") == 0)
            rounds = atoi(value);
    }
    if (b == NULL || count % 2 == 0 || samples < 1 || world < 1 || world > WORLD_MAX || rounds < 1 ||
        rounds > 1000) {
        fprintf(stderr, "usage: bench_commit [--network alexnet] [--samples 32] [--world 2] [--rounds 10]\n");
        return 2;
    }
    if (bench_open(b, network, samples, world, &err) != GP_OK) {
        fprintf(stderr, "bench_commit: %s\n", err.message);
        return 1;
    }
    printf("%s, %u samples, 1 of %u ranks, %u layers:\n", network, samples, world, b->factors.count);
    bench_run(b, rounds);
    gp_optim_free(b->optim);
    gp_factor_list_deinit(&b->factors);
    gp_graph_free(b->graph);
    gp_netspec_free(b->spec);
    gp_free(b);
    return 0;
}
