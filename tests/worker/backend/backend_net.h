/* backend_net.h: networks, batches and comparisons for backend tests. */
#ifndef GP_BACKEND_NET_H
#define GP_BACKEND_NET_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/rng.h"
#include "common/model/graph/graph.h"
#include "worker/backend/backend.h"

enum { NET_BATCH_MAX = 256, NET_CLASSES_MAX = 16 };

/* A network with random weights, and a batch in both sample types. */
typedef struct net {
    gp_netspec *spec;
    gp_graph *graph;
    float *parameters;
    uint8_t *bytes;  /* [NET_BATCH_MAX][pixels] */
    float *floats;   /* the same values */
    int32_t *labels; /* [NET_BATCH_MAX] targets for the only loss; some are -1 or NaN */
    size_t pixels;
} net;

/* Results of one step. */
typedef struct result {
    float *gradients;
    double sums[GP_SUMS];
    float *scores;
} result;

static inline void net_free(net *n)
{
    gp_free(n->labels);
    gp_free(n->floats);
    gp_free(n->bytes);
    gp_free(n->parameters);
    gp_graph_free(n->graph);
    gp_netspec_free(n->spec);
    *n = (net){ 0 };
}

static inline uint32_t net_random(uint32_t purpose, uint32_t index)
{
    uint32_t words[4];

    gp_rng_draw(words, 77, purpose, 0, 0, index);
    return words[0];
}

/* Fill a network and a batch. Pixels take `levels` different values; few levels produce ties. */
static inline gp_status net_fill(net *n, uint32_t levels, gp_error *err)
{
    gp_status status = gp_graph_new(&n->graph, n->spec, err);

    if (status != GP_OK)
        return status;
    n->pixels = (size_t)gp_shape_count(&n->spec->input);
    n->parameters = gp_calloc(n->graph->blob_count + 1, sizeof(float));
    n->bytes = gp_calloc(NET_BATCH_MAX, n->pixels);
    n->floats = gp_calloc(NET_BATCH_MAX * n->pixels, sizeof(float));
    n->labels = gp_calloc(NET_BATCH_MAX, n->graph->target_bytes);
    gp_graph_initialize(n->graph, (gp_init_rule){ .kind = GP_INIT_GLOROT }, 5, n->parameters);
    for (uint32_t i = 0; i < n->graph->parameter_count; i++)
        for (int64_t k = 0; k < n->graph->parameters[i].count && n->graph->parameters[i].shape.rank == 1; k++)
            n->parameters[n->graph->parameters[i].offset + (size_t)k] =
                (float)(net_random(3, (uint32_t)k) % 100) * 0.004f - 0.2f +
                (n->graph->parameters[i].initializer == GP_INIT_ONES ? 1.0f : 0.0f);
    for (size_t i = 0; i < NET_BATCH_MAX * n->pixels; i++) {
        n->bytes[i] = (uint8_t)(net_random(1, (uint32_t)i) % levels * (255 / (levels - 1)));
        n->floats[i] = n->bytes[i];
    }
    for (uint32_t i = 0; i < NET_BATCH_MAX * n->graph->target_bytes / sizeof(int32_t); i++)
        if (n->graph->class_count != 0)
            n->labels[i] = i % 11 == 7 ? -1 : (int32_t)(net_random(2, i) % n->graph->class_count);
        else
            ((float *)n->labels)[i] = i % 11 == 7 ? NAN : (float)(net_random(2, i) % 200) * 0.01f - 1.0f;
    return GP_OK;
}

static inline gp_status result_new(result *r, const net *n)
{
    *r = (result){ 0 };
    r->gradients = gp_calloc(n->graph->blob_count + 1, sizeof(float));
    r->scores = gp_calloc(NET_BATCH_MAX * (size_t)n->graph->score_count, sizeof(float));
    return r->gradients == NULL || r->scores == NULL ? GP_ENOMEM : GP_OK;
}

static inline void result_free(result *r)
{
    gp_free(r->gradients);
    gp_free(r->scores);
    *r = (result){ 0 };
}

/* Options for one step. */
typedef struct way {
    const gp_backend_ops *ops; /* NULL: CPU backend */
    const char *kernels;
    uint32_t threads;
    uint32_t micro_batch; /* samples per call; 0: a single call */
    gp_dtype dtype;
    gp_precision precision;
    double loss_scale; /* 0: default in fp16 */
    uint32_t repeats;  /* steps with the same plan, to detect state that leaks from step to step */
} way;

/* Run a step over the first `count` samples, or compute their scores, in calls of micro_batch
 * samples. */
static inline gp_status net_run(const net *n, const way *w, gp_phase phase, uint32_t count, result *r,
                                gp_error *err)
{
    gp_backend_options backend_options = { .threads = w->threads, .kernels = w->kernels };
    uint32_t each = w->micro_batch == 0 ? (count == 0 ? 1 : count) : w->micro_batch, done = 0;
    const gp_backend_ops *ops = w->ops == NULL ? &gp_backend_cpu : w->ops;
    gp_plan_options options = {
        .phase = phase, .micro_batch = each, .sample_dtype = w->dtype, .precision = w->precision
    };
    gp_plan_memory memory = { .parameters = n->parameters, .gradients = r->gradients, .sums = r->sums };
    gp_backend *backend = NULL;
    gp_plan *plan = NULL;
    gp_status status = ops->open(&backend, &backend_options, err);

    /* makes elements that are not overwritten visible */
    memset(r->gradients, 0x7f, n->graph->blob_count * sizeof(float));
    memset(r->sums, 0x7f, sizeof(r->sums));
    memory.scores = phase == GP_PHASE_INFER ? malloc(each * n->graph->score_count * sizeof(float)) : NULL;
    if (status == GP_OK)
        status = ops->compile(&plan, backend, n->graph, &options, &memory, err);
    for (uint32_t calls = (w->repeats + 1) * (count == 0 ? 1 : (count + each - 1) / each); calls > 0;
         calls--) {
        done = done < count ? done : 0;

        gp_batch batch = { .samples = w->dtype == GP_U8 ? (const void *)(n->bytes + done * n->pixels)
                                                        : (const void *)(n->floats + done * n->pixels),
                           .targets = (const char *)n->labels + done * n->graph->target_bytes,
                           .count = count - done < each ? count - done : each,
                           .first = done == 0,
                           .seed = 9,
                           .step = 4,
                           .position = 1000 + done,
                           .loss_scale = w->loss_scale > 0                  ? w->loss_scale
                                         : w->precision == GP_PRECISION_F16 ? 1024
                                                                            : 0 };

        batch.last = done + batch.count == count;
        if (status == GP_OK)
            status = ops->run(plan, &batch, NULL, NULL, err);
        if (status == GP_OK && memory.scores != NULL)
            memcpy(r->scores + done * (size_t)n->graph->score_count, memory.scores,
                   batch.count * n->graph->score_count * sizeof(float));
        done += batch.count;
    }
    free(memory.scores);
    ops->free(plan);
    ops->close(backend);
    return status;
}

/* Return |a - b| / |b|, with |b| at least `least`: a gradient that cancels to zero has no
 * significant digits. */
static inline double distance(const float *a, const double *b, size_t count, double least)
{
    double error = 0, norm = 0;

    for (size_t i = 0; i < count; i++) {
        error += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    norm = sqrt(norm) > least ? sqrt(norm) : least;
    return norm == 0 ? sqrt(error) : sqrt(error) / norm;
}

#endif
