/* custom.c: custom training loops for tests/service/test_custom_loops.c. A task reports a failed
 * check as an error. */
#include "tests/service/objects/custom.h"

#include <gradpool/train_task.h>

#include <dirent.h>
#include <float.h>
#include <malloc.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition)                                                                                    \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            return gp_fail(err, GP_EINTERNAL, "line %d: not true: %s", __LINE__, #condition);                \
    } while (0)
#define TRY(call)                                                                                            \
    do {                                                                                                     \
        gp_status tried = (call);                                                                            \
        if (tried != GP_OK)                                                                                  \
            return tried;                                                                                    \
    } while (0)

static const custom_request *asked(gp_task *task)
{
    size_t bytes;
    const custom_request *request = gp_task_argument(task, &bytes);

    return bytes == sizeof(*request) ? request : NULL;
}

/* A network with batch norm, which couples samples. */
static const char coupled[] =
    "{\"name\": \"coupled\", \"input\": [1, 28, 28], \"scale\": [0.004], \"offset\": [0], \"layers\": ["
    "{\"name\": \"conv\", \"kind\": \"conv2d\", \"channels\": 6, \"kernel\": [5, 5], \"stride\": [3, 3]},"
    "{\"name\": \"norm\", \"kind\": \"batchnorm\"}, {\"name\": \"curve\", \"kind\": \"tanh\"},"
    "{\"name\": \"out\", \"kind\": \"fc\", \"outputs\": 10}, {\"name\": \"loss\", \"kind\": "
    "\"crossentropy\"}]}";

static gp_status open_both(gp_task *task, gp_data **data, gp_model **model, gp_error *err)
{
    const custom_request *request = asked(task);

    EXPECT(request != NULL);
    TRY(gp_data_open(
        data, task,
        &(gp_data_options){
            .source = request->source, .batch = request->batch, .epochs = request->epochs, .seed = 1 },
        err));
    return gp_model_open(
        model, task,
        &(gp_model_options){ .network = strcmp(request->network, "coupled") == 0 ? coupled : request->network,
                             .data = *data,
                             .micro_batch = request->micro_batch,
                             .options = request->options },
        err);
}

/* Train like `gradpool train` and return the parameters. */
GP_TASK gp_status train(gp_task *task, gp_error *err)
{
    gp_data *data;
    gp_model *model;
    gp_samples batch;

    TRY(open_both(task, &data, &model, err));
    for (;;) {
        TRY(gp_data_next(data, &batch, err));
        if (batch.ended)
            break;
        TRY(gp_model_forward_backward(model, &batch, err));
        TRY(gp_model_all_reduce(model, task, err));
        TRY(gp_model_optimizer_step(model, asked(task)->rate, err));
    }
    return gp_task_result(task, gp_model_parameters(model), gp_model_count(model) * sizeof(float), err);
}

/* Return the gradients of the first mini-batch, summed over the ranks. */
GP_TASK gp_status gradient(gp_task *task, gp_error *err)
{
    gp_data *data;
    gp_model *model;
    gp_samples batch;
    gp_model_sums sums;

    TRY(open_both(task, &data, &model, err));
    TRY(gp_data_next(data, &batch, err));
    TRY(gp_model_forward_backward(model, &batch, err));
    TRY(gp_model_all_reduce(model, task, err));
    gp_model_get_sums(model, &sums);
    EXPECT(sums.samples == batch.batch && sums.weight == batch.batch);
    EXPECT(sums.loss > 0.0 && sums.correct >= 0.0 && sums.correct <= sums.weight);
    return gp_task_result(task, gp_model_gradients(model), gp_model_count(model) * sizeof(float), err);
}

/* ---- custom updates ---- */

static void move(float *parameters, float *momentum, const float *gradients, size_t first, size_t count,
                 double weight)
{
    for (size_t i = first; i < first + count; i++) {
        momentum[i] = 0.9f * momentum[i] - 0.05f * (gradients[i] / (float)weight);
        parameters[i] += momentum[i];
    }
}

/* Train two models: one exchanges whole gradients, the other updates a slice on each rank. */
GP_TASK gp_status sharded(gp_task *task, gp_error *err)
{
    gp_data *data;
    gp_model *whole, *cut;
    gp_samples batch;
    size_t count, first, mine, covered = 0;

    TRY(open_both(task, &data, &whole, err));
    TRY(gp_model_open(
        &cut, task, &(gp_model_options){ .network = asked(task)->network, .data = data, .train_only = true },
        err));
    float *a = gp_model_parameters(whole), *b = gp_model_parameters(cut);

    count = gp_model_count(whole);
    float *momentum[2] = { calloc(count, sizeof(float)), calloc(count, sizeof(float)) };

    EXPECT(momentum[0] != NULL && momentum[1] != NULL);
    for (uint32_t k = 1; k <= gp_task_size(task); k++) {
        TRY(gp_model_slice(cut, task, k, &first, &mine, err));
        EXPECT(mine == 0 || first == covered);
        covered += mine;
    }
    EXPECT(covered == count);
    TRY(gp_model_slice(cut, task, gp_task_index(task), &first, &mine, err));
    for (int step = 0; step < 4; step++) {
        gp_model_sums sums;

        TRY(gp_data_next(data, &batch, err));
        TRY(gp_model_forward_backward(whole, &batch, err));
        TRY(gp_model_forward_backward(cut, &batch, err));
        TRY(gp_model_all_reduce(whole, task, err));
        TRY(gp_model_reduce_scatter(cut, task, err));
        gp_model_get_sums(cut, &sums);
        move(a, momentum[0], gp_model_gradients(whole), 0, count, sums.weight);
        move(b, momentum[1], gp_model_gradients(cut), first, mine, sums.weight);
        TRY(gp_model_all_gather(cut, task, err));
        gp_model_next_step(whole);
        gp_model_next_step(cut);
        EXPECT(memcmp(a, b, count * sizeof(float)) == 0);
        EXPECT(gp_model_step_count(cut) == (uint64_t)step + 1);
    }
    free(momentum[0]);
    free(momentum[1]);
    return GP_OK;
}

/* Rank 2 starts with other parameters; a broadcast makes all ranks equal. */
GP_TASK gp_status spread(gp_task *task, gp_error *err)
{
    gp_model *model, *kept;
    gp_model_options options = { .network = "lenet", .micro_batch = 4, .options = "seed=5" };

    if (gp_task_index(task) == 2)
        options.options = "seed=9";
    TRY(gp_model_open(&model, task, &options, err));
    options.keep = true; /* separate memory */
    TRY(gp_model_open(&kept, task, &options, err));
    const float *parameters = gp_model_parameters(model), *others = gp_model_parameters(kept);
    size_t count = gp_model_count(model);

    TRY(gp_model_broadcast(model, task, 2, err));
    TRY(gp_model_broadcast(kept, task, 2, err));
    EXPECT(memcmp(parameters, others, count * sizeof(float)) == 0);
    gp_model_close(kept);
    return gp_task_result(task, parameters, count * sizeof(float), err);
}

/* ---- custom losses ---- */

/* Compute softmax and cross-entropy again. */
static void row_loss(const float *scores, int32_t label, size_t size, float *gradient, double *loss)
{
    double sum = 0.0, largest = scores[0];

    for (size_t k = 1; k < size; k++)
        largest = scores[k] > largest ? scores[k] : largest;
    for (size_t k = 0; k < size; k++)
        sum += exp(scores[k] - largest);
    *loss -= scores[label] - largest - log(sum);
    for (size_t k = 0; k < size; k++)
        gradient[k] = (float)(exp(scores[k] - largest) / sum - (k == (size_t)label));
}

static gp_status custom_loss(gp_loss_call *call, gp_error *err)
{
    const int32_t *labels = call->targets;

    EXPECT(call->size == 10 && call->count > 0 && call->weight == call->count);
    for (uint32_t n = 0; n < call->count; n++)
        row_loss(call->scores + n * call->size, labels[n], call->size, call->gradient + n * call->size,
                 &call->loss);
    __atomic_fetch_add((int *)call->context, 1, __ATOMIC_RELAXED);
    return GP_OK;
}

static gp_status broken_loss(gp_loss_call *call, gp_error *err)
{
    return gp_fail(err, GP_EUNSUPPORTED, "no loss of %u samples today", call->count);
}

static double distance(const float *a, const float *b, size_t count)
{
    double squares = 0.0, apart = 0.0;

    for (size_t i = 0; i < count; i++) {
        squares += (double)a[i] * a[i];
        apart += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    }
    return sqrt(apart / squares);
}

/* Compare losses computed in one pass where possible, and check the error of a failing loss. */
static gp_status parallel_losses(gp_task *task, gp_data *data, const gp_samples *batch, gp_model *theirs,
                                 gp_error *err)
{
    int calls = 0;
    gp_model *fused, *broken;
    gp_model_options options = { .network = asked(task)->network,
                                 .data = data,
                                 .micro_batch = asked(task)->micro_batch,
                                 .loss = custom_loss,
                                 .loss_context = &calls,
                                 .loss_parallel = true };
    const float *scores;
    float *gradient;
    gp_model_sums a, b;
    gp_error why;

    TRY(gp_model_open(&fused, task, &options, err));
    TRY(gp_model_forward_backward(fused, batch, err));
    EXPECT(distance(gp_model_gradients(theirs), gp_model_gradients(fused), gp_model_count(fused)) < 1e-6);
    gp_model_get_sums(theirs, &a);
    gp_model_get_sums(fused, &b);
    EXPECT(fabs(a.loss - b.loss) < 1e-5 * a.loss && a.weight == b.weight && calls > 0);
    EXPECT(gp_model_forward(fused, batch, &scores, &gradient, &why) == GP_ESTATE);
    float given[10 * 256];

    EXPECT(batch->count <= 256);
    TRY(gp_model_scores(fused, batch, given, NULL, err)); /* raw output of the last layer */
    EXPECT(given[0] < 0.0f || given[0] + given[1] + given[2] != 1.0f);
    for (int parallel = 0; parallel < 2; parallel++) {
        options.loss = broken_loss;
        options.loss_parallel = parallel;
        TRY(gp_model_open(&broken, task, &options, err));
        EXPECT(gp_model_forward_backward(broken, batch, &why) == GP_EUNSUPPORTED);
        EXPECT(strstr(why.message, "samples today") != NULL);
        EXPECT(gp_model_optimizer_step(broken, 0.1, &why) == GP_ESTATE);
        gp_model_close(broken);
    }
    return GP_OK;
}

static gp_status targetless_loss(gp_loss_call *call, gp_error *err)
{
    EXPECT(call->targets == NULL);
    return GP_OK;
}

/* Compute a loss of samples without targets, in several calls and in parts. */
GP_TASK gp_status targetless(gp_task *task, gp_error *err)
{
    gp_data *data;
    gp_model *model;
    gp_samples batch;
    gp_model_options options = { .network = asked(task)->network,
                                 .micro_batch = asked(task)->micro_batch,
                                 .loss = targetless_loss };

    TRY(gp_data_open(&data, task,
                     &(gp_data_options){ .source = asked(task)->source, .batch = asked(task)->batch }, err));
    TRY(gp_data_next(data, &batch, err));
    EXPECT(batch.count > asked(task)->micro_batch);
    batch.targets = NULL;
    options.data = data;
    for (int parallel = 0; parallel < 2; parallel++) {
        options.loss_parallel = parallel;
        TRY(gp_model_open(&model, task, &options, err));
        TRY(gp_model_forward_backward(model, &batch, err));
        gp_model_close(model);
    }
    return GP_OK;
}

/* Check that gradients are equal with the network's loss, with a loss function, and in two
 * halves. */
GP_TASK gp_status losses(gp_task *task, gp_error *err)
{
    gp_data *data;
    gp_model *theirs, *mine;
    gp_samples batch;
    gp_model_sums a, b;
    const float *scores;
    float *gradient;
    double loss = 0.0;
    int calls = 0;

    TRY(open_both(task, &data, &theirs, err));
    TRY(gp_model_open(&mine, task,
                      &(gp_model_options){ .network = asked(task)->network,
                                           .data = data,
                                           .micro_batch = asked(task)->micro_batch,
                                           .loss = custom_loss,
                                           .loss_context = &calls },
                      err));
    const float *reference = gp_model_gradients(theirs), *got = gp_model_gradients(mine);
    size_t count = gp_model_count(mine);

    TRY(gp_data_next(data, &batch, err));
    TRY(gp_model_forward_backward(theirs, &batch, err));
    TRY(gp_model_forward_backward(mine, &batch, err));
    gp_model_get_sums(theirs, &a);
    gp_model_get_sums(mine, &b);
    EXPECT(fabs(a.loss - b.loss) < 1e-5 * a.loss && a.weight == b.weight);
    EXPECT(distance(reference, got, count) < 1e-6);
    EXPECT(calls == (int)((batch.count + asked(task)->micro_batch - 1) / asked(task)->micro_batch));
    TRY(parallel_losses(task, data, &batch, theirs, err));
    gp_model_next_step(mine);
    gp_model_set_step(mine, 0); /* the step selects the dropout mask */

    for (uint32_t first = 0; first < batch.count; first += asked(task)->micro_batch) {
        gp_data_info info;
        gp_samples half = batch;

        gp_data_get_info(data, &info);
        half.samples = (const char *)batch.samples + first * info.sample_bytes;
        half.targets = (const char *)batch.targets + first * info.target_bytes;
        half.position += first;
        half.count =
            batch.count - first < asked(task)->micro_batch ? batch.count - first : asked(task)->micro_batch;
        TRY(gp_model_forward(mine, &half, &scores, &gradient, err));
        EXPECT(gp_model_forward_backward(mine, &batch, NULL) == GP_ESTATE);
        loss = 0.0;
        for (uint32_t n = 0; n < half.count; n++)
            row_loss(scores + n * 10, ((const int32_t *)half.targets)[n], 10, gradient + n * 10, &loss);
        TRY(gp_model_backward(mine, loss, half.count, err));
    }
    EXPECT(distance(reference, got, count) < 1e-6);
    EXPECT(gp_model_backward(mine, 0.0, 1.0, NULL) == GP_ESTATE);
    EXPECT(gp_model_forward(theirs, &batch, &scores, &gradient, NULL) == GP_ESTATE);
    gp_model_get_sums(mine, &b);
    EXPECT(fabs(a.loss - b.loss) < 1e-5 * a.loss);
    TRY(gp_model_optimizer_step(theirs, 0.1, err));
    return gp_model_optimizer_step(mine, 0.1, err);
}

/* ---- custom layer kinds ---- */

static gp_status swish_forward(const gp_layer_call *call, gp_error *err)
{
    float beta = (float)call->settings[0];

    (void)err;
    for (size_t i = 0; i < call->count * call->output_size; i++)
        call->y[i] = call->x[0][i] / (1.0f + expf(-beta * call->x[0][i]));
    return GP_OK;
}

static gp_status swish_backward(const gp_layer_call *call, gp_error *err)
{
    float beta = (float)call->settings[0];

    (void)err;
    for (size_t i = 0; i < call->count * call->output_size; i++) {
        float s = 1.0f / (1.0f + expf(-beta * call->x[0][i]));

        call->dx[0][i] = call->dy[i] * (s + beta * call->y[i] * (1.0f - s));
    }
    return GP_OK;
}

static const gp_layer_setting swish_settings[] = { { "beta", 1.0, 0.0, 100.0, "steepness" },
                                                   { .name = NULL } };
static const gp_layer_kind swish = { .name = "swish",
                                     .settings = swish_settings,
                                     .parallel = true,
                                     .forward = swish_forward,
                                     .backward = swish_backward };

static gp_status wrong_backward(const gp_layer_call *call, gp_error *err)
{
    (void)err;
    for (size_t i = 0; i < call->count * call->output_size; i++)
        call->dx[0][i] = call->dy[i] * call->y[i];
    return GP_OK;
}

static const gp_layer_kind wrong = {
    .name = "wrong_swish", .settings = swish_settings, .forward = swish_forward, .backward = wrong_backward
};

/* y = scale * x0 + x1 * x1, element by element, with a learned scale per element; keeps x1. */
static gp_status blend_infer(gp_layer_plan *plan, gp_error *err)
{
    int64_t size = 1;

    if (plan->inputs[0].rank != plan->inputs[1].rank)
        return gp_fail(err, GP_EINVAL, "blend wants two inputs of one shape");
    for (uint32_t i = 0; i < plan->inputs[0].rank; i++)
        size *= plan->inputs[0].dim[i];
    plan->parameter_count = 1;
    plan->parameters[0] = (gp_layer_parameter){
        .role = "scale", .dims = { 1, { size } }, .start = GP_LAYER_START_WEIGHTS, .fan_in = 4, .fan_out = 4
    };
    plan->saved = (size_t)size;
    return GP_OK;
}

static gp_status blend_forward(const gp_layer_call *call, gp_error *err)
{
    size_t size = call->output_size;

    EXPECT((call->saved != NULL) == call->training);
    for (size_t i = 0; i < call->count * size; i++) {
        call->y[i] = call->parameters[0][i % size] * call->x[0][i] + call->x[1][i] * call->x[1][i];
        if (call->saved != NULL)
            call->saved[i] = call->x[1][i];
    }
    return GP_OK;
}

static gp_status blend_backward(const gp_layer_call *call, gp_error *err)
{
    size_t size = call->output_size;

    (void)err;
    for (size_t i = 0; i < call->count * size; i++) {
        call->gradients[0][i % size] += call->dy[i] * call->x[0][i];
        if (call->dx[0] != NULL)
            call->dx[0][i] = call->dy[i] * call->parameters[0][i % size];
        if (call->dx[1] != NULL)
            call->dx[1][i] = 2.0f * call->dy[i] * call->saved[i];
    }
    return GP_OK;
}

static const gp_layer_kind blend = {
    .name = "blend", .inputs = 2, .infer = blend_infer, .forward = blend_forward, .backward = blend_backward
};

#define SMOOTH(kind)                                                                                         \
    "{\"name\": \"smooth\", \"input\": [1, 28, 28], \"scale\": [0.004], \"offset\": [0], \"layers\": ["      \
    "{\"name\": \"conv\", \"kind\": \"conv2d\", \"channels\": 4, \"kernel\": [5, 5], \"stride\": [2, 2]},"   \
    "{\"name\": \"soft\", \"kind\": \"" kind "\", \"beta\": 1.5},"                                           \
    "{\"name\": \"pool\", \"kind\": \"avgpool\", \"kernel\": [2, 2]},"                                       \
    "{\"name\": \"flat\", \"kind\": \"flatten\"},"                                                           \
    "{\"name\": \"left\", \"kind\": \"fc\", \"outputs\": 12, \"inputs\": [\"flat\"]},"                       \
    "{\"name\": \"right\", \"kind\": \"fc\", \"outputs\": 12, \"inputs\": [\"flat\"]},"                      \
    "{\"name\": \"mix\", \"kind\": \"blend\", \"inputs\": [\"left\", \"right\"]},"                           \
    "{\"name\": \"out\", \"kind\": \"fc\", \"outputs\": 10},"                                                \
    "{\"name\": \"loss\", \"kind\": \"crossentropy\"}]}"

GP_TASK gp_status kinds(gp_task *task, gp_error *err)
{
    gp_layer_kind taken = swish, nameless = swish;
    gp_gradient_check check = { .seed = 3 };
    gp_model_tensor scale;
    gp_model *model;
    gp_samples batch, rest;
    gp_data *data;
    gp_error why;

    taken.name = "relu";
    nameless.name = "Not A Name";
    EXPECT(gp_layer_kind_add(&taken, &why) == GP_EINVAL && strstr(why.message, "relu") != NULL);
    EXPECT(gp_layer_kind_add(&nameless, &why) == GP_EINVAL);
    TRY(gp_layer_kind_add(&swish, err));
    TRY(gp_layer_kind_add(&swish, err));
    TRY(gp_layer_kind_add(&wrong, err));
    TRY(gp_layer_kind_add(&blend, err));
    TRY(gp_data_open(&data, task, &(gp_data_options){ .source = "digits:64", .read_max = 24 }, err));
    TRY(gp_model_open(
        &model, task,
        &(gp_model_options){
            .network = SMOOTH("swish"), .data = data, .micro_batch = 10, .options = "solver=adam" },
        err));
    TRY(gp_model_find_tensor(model, "mix.scale", &scale, err));
    EXPECT(scale.count == 12 && scale.rank == 1 && !scale.statistic);
    EXPECT(gp_model_find_tensor(model, "mix.scales", &scale, &why) == GP_ENOENT &&
           strstr(why.message, "mix.scale") != NULL);
    TRY(gp_data_read(data, 1, 0, 24, &batch, err)); /* calls with 10, 10 and 4 samples */
    TRY(gp_model_check_gradients(model, &batch, &check, err));
    EXPECT(check.error <= 0.02 && check.worst[0] != '\0');
    for (int step = 0; step < 40; step++) { /* the layer learns */
        TRY(gp_model_forward_backward(model, &batch, err));
        TRY(gp_model_optimizer_step(model, 0.01, err));
    }
    gp_model_sums sums;

    TRY(gp_model_scores(model, &batch, NULL, &sums, err));
    EXPECT(sums.correct > 0.9 * sums.weight);
    TRY(gp_data_read(data, 1, 24, 3, &rest, err));
    TRY(gp_model_scores(model, &rest, NULL, &sums, err));
    EXPECT(sums.weight == 3);
    gp_model_close(model);

    TRY(gp_model_open(
        &model, task,
        &(gp_model_options){ .network = SMOOTH("wrong_swish"), .data = data, .micro_batch = 24 }, err));
    TRY(gp_data_read(data, 1, 0, 24, &batch, err));
    EXPECT(gp_model_check_gradients(model, &batch, &check, &why) == GP_EINVAL);
    EXPECT(strcmp(check.worst, "conv.weight") == 0 || strcmp(check.worst, "conv.bias") == 0);
    EXPECT(strstr(why.message, check.worst) != NULL && check.error > 0.02);
    return GP_OK;
}

/* ---- export and import ---- */

GP_TASK gp_status export_model(gp_task *task, gp_error *err)
{
    gp_data *data;
    gp_model *model, *again;
    gp_samples batch;
    const void *onnx;
    size_t bytes;
    float scores[2][300];
    gp_model_sums sums[2];

    TRY(open_both(task, &data, &model, err));
    TRY(gp_data_next(data, &batch, err));
    EXPECT(batch.count <= 30 && gp_model_outputs(model) == 10);
    TRY(gp_model_forward_backward(model, &batch, err));
    TRY(gp_model_optimizer_step(model, 0.05, err));
    TRY(gp_model_onnx(model, &onnx, &bytes, err));
    TRY(gp_task_result(task, onnx, bytes, err));
    TRY(gp_model_open(&again, task,
                      &(gp_model_options){ .content = onnx, .content_bytes = bytes, .data = data }, err));
    TRY(gp_model_scores(model, &batch, scores[0], &sums[0], err));
    TRY(gp_model_scores(again, &batch, scores[1], &sums[1], err));
    EXPECT(memcmp(scores[0], scores[1], batch.count * 10 * sizeof(float)) == 0);
    EXPECT(sums[0].loss == sums[1].loss && sums[0].weight == batch.count);
    batch.targets = NULL;
    return gp_model_scores(model, &batch, scores[0], NULL, err);
}

/* Open a model file with the class names of the data, then with two of them exchanged. The folders
 * of the data are 1 to 9 and zero. */
GP_TASK gp_status class_names(gp_task *task, gp_error *err)
{
    gp_data *data;
    gp_model *model, *again;
    gp_error why = { .code = GP_OK };
    const void *onnx;
    size_t bytes;

    TRY(open_both(task, &data, &model, err));
    TRY(gp_model_onnx(model, &onnx, &bytes, err));
    gp_model_options options = { .content = onnx, .content_bytes = bytes, .data = data };

    TRY(gp_model_open(&again, task, &options, err));
    char *swapped = malloc(bytes), *names;

    EXPECT(swapped != NULL);
    memcpy(swapped, onnx, bytes);
    names = memmem(swapped, bytes, "\"1\", \"2\"", 8);
    EXPECT(names != NULL);
    memcpy(names, "\"2\", \"1\"", 8);
    options.content = swapped;
    gp_status status = gp_model_open(&again, task, &options, &why);

    free(swapped);
    EXPECT(status == GP_EINVAL);
    EXPECT(strstr(why.message, "is \"1\", but class 1 of network lenet is \"2\"") != NULL);
    EXPECT(strstr(why.message, "(data: 1, 2, 3, 4 and 6 others; network: 2, 1, 3, 4 and 6 others)") != NULL);
    return GP_OK;
}

/* ---- misuse ---- */

GP_TASK gp_status misuse(gp_task *task, gp_error *err)
{
    gp_model *model, *none;
    gp_model_options options = { .network = "lenet", .micro_batch = 4 };
    gp_samples nothing = { .count = 4 };
    gp_error why;

    TRY(gp_model_open(&model, task, &options, err));
    EXPECT(gp_model_optimizer_step(model, 0.1, &why) == GP_ESTATE && strstr(why.message, "step 1") != NULL);
    EXPECT(gp_model_forward_backward(model, &nothing, &why) == GP_EINVAL);
    nothing.count = 0;
    TRY(gp_model_forward_backward(model, &nothing, err));
    EXPECT(gp_model_optimizer_step(model, 0.1, &why) == GP_ESTATE &&
           strstr(why.message, "weight is 0") != NULL);
    EXPECT(gp_model_all_reduce(model, task, &why) == GP_ESTATE && strstr(why.message, "block") != NULL);
    options.options = "solvr=adam";
    EXPECT(gp_model_open(&none, task, &options, &why) == GP_EINVAL && strstr(why.message, "solver") != NULL);
    options.options = "max-epochs=3";
    EXPECT(gp_model_open(&none, task, &options, &why) == GP_EINVAL &&
           strstr(why.message, "no effect") != NULL);
    options.options = "momentum";
    EXPECT(gp_model_open(&none, task, &options, &why) == GP_EINVAL);
    options.options = NULL;
    options.micro_batch = 0;
    EXPECT(gp_model_open(&none, task, &options, &why) == GP_EINVAL &&
           strstr(why.message, "micro_batch") != NULL);
    options.micro_batch = 4;
    options.network = "lennet";
    EXPECT(gp_model_open(&none, task, &options, &why) == GP_ENOENT && strstr(why.message, "lenet") != NULL);
    options.network = NULL;
    EXPECT(gp_model_open(&none, task, &options, &why) == GP_EINVAL);
    gp_data *data;

    EXPECT(gp_data_open(&data, task, &(gp_data_options){ .source = "digits:10", .batch = 11 }, &why) ==
           GP_EINVAL);
    EXPECT(gp_data_open(&data, task, &(gp_data_options){ .source = "digits:10", .shuffle = "somtimes" },
                        &why) == GP_EINVAL);
    TRY(gp_data_open(&data, task, &(gp_data_options){ .source = "digits:10", .read_max = 3 }, err));
    EXPECT(gp_data_next(data, &nothing, &why) == GP_ESTATE);
    EXPECT(gp_data_read(data, 1, 8, 3, &nothing, &why) == GP_EINVAL);
    EXPECT(gp_data_read(data, 1, 0, 4, &nothing, &why) == GP_EINVAL);
    EXPECT(gp_data_read(data, 0, 0, 3, &nothing, &why) == GP_EINVAL);
    return gp_data_read(data, 2, 7, 3, &nothing, err);
}

/* A network with running statistics cannot be sharded. */
GP_TASK gp_status statistics(gp_task *task, gp_error *err)
{
    gp_model *model;
    gp_samples none = { .count = 0 };
    gp_error why;

    TRY(gp_model_open(&model, task,
                      &(gp_model_options){ .network = "resnet18",
                                           .micro_batch = 2,
                                           .channels = 3,
                                           .height = 32,
                                           .width = 32,
                                           .classes = 10 },
                      err));
    TRY(gp_model_forward_backward(model, &none, err));
    EXPECT(gp_model_reduce_scatter(model, task, &why) == GP_EUNSUPPORTED);
    return GP_OK;
}

/* ---- leftovers ---- */

/* End in the middle with everything open; every second time with an error. */
GP_TASK gp_status abandon(gp_task *task, gp_error *err)
{
    static int times;
    gp_data *data;
    gp_model *model, *second;
    gp_samples batch;

    TRY(open_both(task, &data, &model, err));
    TRY(gp_model_open(&second, task, &(gp_model_options){ .network = "lenet", .micro_batch = 16 }, err));
    TRY(gp_data_next(data, &batch, err));
    TRY(gp_model_forward_backward(model, &batch, err));
    TRY(gp_model_all_reduce(model, task, err));
    gp_model_close(second);
    return ++times % 2 == 0 ? gp_fail(err, GP_EINVAL, "abandoned in the middle") : GP_OK;
}

static int64_t status_kib(const char *name)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    long long kib = -1;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            sscanf(line + strlen(name), ": %lld", &kib);
    if (file != NULL)
        fclose(file);
    return kib;
}

GP_TASK gp_status footprint(gp_task *task, gp_error *err)
{
    custom_footprint here = { .descriptors = 0 };
    DIR *entries = opendir("/proc/self/fd");

    while (entries != NULL && readdir(entries) != NULL)
        here.descriptors++;
    if (entries != NULL)
        closedir(entries);
    malloc_trim(0);
    here.anonymous_kib = status_kib("RssAnon");
    here.shared_kib = status_kib("RssShmem");
    return gp_task_result(task, &here, sizeof(here), err);
}

/* Check that a hundred steps use no memory. Other worker threads may hold a message at either end.
 * Therefore, repeat the check on the next hundred steps, which would use as much memory again. */
GP_TASK gp_status frugal(gp_task *task, gp_error *err)
{
    gp_data *data;
    gp_model *model;
    gp_samples batch;
    struct mallinfo2 before = { 0 }, now;
    double same = 0; /* equal on all ranks, which therefore end together */

    TRY(open_both(task, &data, &model, err));
    for (int step = 0; step < 20 * 110 && same == 0; step++) {
        TRY(gp_data_next(data, &batch, err));
        EXPECT(!batch.ended);
        TRY(gp_model_forward_backward(model, &batch, err));
        TRY(gp_model_all_reduce(model, task, err));
        TRY(gp_model_optimizer_step(model, 0.01, err));
        if (step % 110 == 9)
            before = mallinfo2();
        if (step % 110 != 109)
            continue;
        now = mallinfo2();
        same = now.uordblks == before.uordblks && now.hblks == before.hblks;
        TRY(gp_task_all_reduce(task, &same, sizeof(same), gp_combine_min_f64, NULL, err));
    }
    EXPECT(same == 1);
    return GP_OK;
}

/* Index 2 crashes in step 3; the other ranks get an error in that step. */
GP_TASK gp_status crash(gp_task *task, gp_error *err)
{
    gp_data *data;
    gp_model *model;
    gp_samples batch;

    TRY(open_both(task, &data, &model, err));
    for (int step = 1;; step++) {
        TRY(gp_data_next(data, &batch, err));
        TRY(gp_model_forward_backward(model, &batch, err));
        if (step == 3 && gp_task_index(task) == 2)
            abort();
        TRY(gp_model_all_reduce(model, task, err));
        TRY(gp_model_optimizer_step(model, 0.01, err));
    }
}

/* Train without end. */
GP_TASK gp_status endless(gp_task *task, gp_error *err)
{
    gp_data *data;
    gp_model *model;
    gp_samples batch;

    TRY(open_both(task, &data, &model, err));
    gp_task_log(task, "begun");
    TRY(gp_data_next(data, &batch, err));
    for (;;) {
        TRY(gp_model_forward_backward(model, &batch, err));
        TRY(gp_model_optimizer_step(model, 0.0, err));
    }
}

/* ---- the compute thread ---- */

/* Check that threads of the task may use all cores of the worker, and that denormals are not
 * flushed to zero. */
static gp_status thread_check(gp_task *task, gp_error *err)
{
    volatile float denormal = FLT_MIN;
    gp_task_device device;
    cpu_set_t allowed;

    gp_task_get_device(task, &device);
    EXPECT(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
    EXPECT((uint32_t)CPU_COUNT(&allowed) == device.cores);
    denormal /= 2;
    EXPECT(denormal > 0);
    return GP_OK;
}

/* Compute with a model and check the thread before and after each call. */
GP_TASK gp_status thread_state(gp_task *task, gp_error *err)
{
    gp_data *data;
    gp_model *model;
    gp_samples batch;

    TRY(thread_check(task, err));
    TRY(open_both(task, &data, &model, err));
    TRY(gp_data_next(data, &batch, err));
    TRY(gp_model_forward_backward(model, &batch, err));
    TRY(thread_check(task, err));
    TRY(gp_model_all_reduce(model, task, err));
    TRY(thread_check(task, err));
    TRY(gp_model_optimizer_step(model, 0.1, err));
    TRY(thread_check(task, err));
    TRY(gp_model_scores(model, &batch, NULL, NULL, err));
    return thread_check(task, err);
}

/* ---- resident models ---- */

static gp_status build_model(gp_task *task, void **out, gp_error *err)
{
    gp_model *model;
    gp_model_options options = { .network = "lenet", .micro_batch = 8, .keep = true };

    TRY(gp_model_open(&model, task, &options, err));
    *out = model;
    return GP_OK;
}

static void drop_model(void *model)
{
    gp_model_close(model);
}

/* Return the number of steps of this worker's model, including this one. */
GP_TASK gp_status kept(gp_task *task, gp_error *err)
{
    static const unsigned char sample[8 * 28 * 28 * sizeof(float)];
    static const int32_t labels[8];
    gp_samples batch = { .samples = sample, .targets = labels, .count = 8 };
    void *model;
    int64_t steps;

    TRY(gp_task_cached(task, "model", build_model, drop_model, &model, err));
    TRY(gp_model_forward_backward(model, &batch, err));
    TRY(gp_model_optimizer_step(model, 0.1, err));
    steps = (int64_t)gp_model_step_count(model);
    return gp_task_result(task, &steps, sizeof(steps), err);
}
