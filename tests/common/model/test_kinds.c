/* test_kinds.c: every layer kind in kinds.def with every check in its table and some unusual ones:
 * gradients on the oracle compared with central differences of the loss, in float64.
 *
 * The kind is part of a small network:
 *   input -> pre0 (1x1 convolution, one channel at a time) -> kind -> head (fc) -> crossentropy
 *
 * Kinds with several inputs have pre1 and pre2 too, kinds that read a vector a flatten after each,
 * and losses have no head. The pre layers have parameters, so the kind must compute a gradient for
 * its inputs. No graph computes the gradient of the network input; it is derived here from those
 * gradients. */
#include "common/base/rng.h"
#include "common/model/graph/graph.h"
#include "tests/gp_test.h"
#include "tests/ref/run.h"

enum { PRE_MAX = 3 };
#define STEP      1e-5 /* step of the differences */
#define TOLERANCE 1e-6 /* relative to the largest derivative in a tensor */

typedef struct net {
    gp_netspec *spec;
    gp_graph *graph;
    uint32_t layer, pre_count, pre[PRE_MAX]; /* layer indices; layer: the kind under test */
    double *blob, *input;
    size_t input_count; /* in all samples */
    void *targets;
    gp_ref_batch batch;
} net;

/* Return a number in [-1, 1) that depends only on the index. */
static double draw(uint32_t what, size_t index)
{
    uint32_t words[4];

    gp_rng_draw(words, 99, 0, what, 0, (uint32_t)index);
    return (double)words[0] * 0x1p-31 - 1.0;
}

static gp_status net_add_pre(net *n, bool vector, gp_error *err)
{
    static const char *const input = "input";
    char name[16], settings[64];
    uint32_t k = n->pre_count++;
    long long channels = n->spec->input.dim[0];

    snprintf(name, sizeof(name), "pre%u", k);
    snprintf(settings, sizeof(settings), "channels=%lld;groups=%lld;kernel=1", channels, channels);
    n->pre[k] = n->spec->layer_count;
    gp_status status = gp_netspec_add(n->spec, name, "conv2d", settings, err);

    if (status == GP_OK)
        status = gp_netspec_connect(n->spec, &input, 1, err);
    snprintf(name, sizeof(name), "flat%u", k);
    if (status == GP_OK && vector)
        status = gp_netspec_add(n->spec, name, "flatten", NULL, err);
    return status;
}

static gp_status net_build(net *n, const gp_kind *kind, const gp_kind_check *check, uint32_t inputs,
                           gp_error *err)
{
    const bool vector = check->input.rank == 1;
    const gp_shape shape = vector ? gp_shape3(check->input.dim[0], 1, 1) : check->input;
    const char *names[PRE_MAX] = { vector ? "flat0" : "pre0", vector ? "flat1" : "pre1",
                                   vector ? "flat2" : "pre2" };
    gp_status status = gp_netspec_new(&n->spec, "check", &shape, err);

    for (uint32_t k = 0; k < inputs && status == GP_OK; k++)
        status = net_add_pre(n, vector, err);
    if (status == GP_OK)
        status = gp_netspec_add(n->spec, "kind", kind->name, check->settings, err);
    if (status == GP_OK)
        status = gp_netspec_connect(n->spec, names, inputs, err);
    if (status != GP_OK)
        return status;
    n->layer = n->spec->layer_count - 1;
    if ((kind->flags & GP_KIND_LOSS) == 0) {
        status = gp_netspec_add(n->spec, "head", "fc", "outputs=3", err);
        if (status == GP_OK)
            status = gp_netspec_add(n->spec, "loss", "crossentropy", NULL, err);
    }
    return status == GP_OK ? gp_graph_new(&n->graph, n->spec, err) : status;
}

static void net_fill(net *n, uint32_t samples)
{
    n->blob = calloc(n->graph->blob_count, sizeof(double));
    n->input_count = samples * (size_t)gp_shape_count(&n->spec->input);
    n->input = calloc(n->input_count, sizeof(double));
    for (size_t i = 0; i < n->graph->blob_count; i++)
        n->blob[i] = 0.8 * draw(1, i);
    for (uint32_t p = 0; p < n->graph->parameter_count; p++) /* variances are positive */
        for (int64_t i = 0; i < n->graph->parameters[p].count; i++)
            if (n->graph->parameters[p].statistic == GP_STATISTIC_VARIANCE)
                n->blob[n->graph->parameters[p].offset + (size_t)i] += 1.0;
    for (size_t i = 0; i < n->input_count; i++)
        n->input[i] = draw(2, i);
    n->targets = gp_ref_targets_new(n->graph, samples, 3);
    n->batch = (gp_ref_batch){ .blob = n->blob,
                               .input = n->input,
                               .targets = n->targets,
                               .count = samples,
                               .seed = 5,
                               .step = 3,
                               .position = 11 };
}

static void net_free(net *n)
{
    gp_graph_free(n->graph);
    gp_netspec_free(n->spec);
    free(n->blob);
    free(n->input);
    free(n->targets);
}

/* Hash the branch taken at every ReLU, cut and maximum: a change between two runs indicates a
 * kink. */
static uint64_t run_pattern(const gp_graph *graph, const gp_ref_run *run, int64_t samples)
{
    uint64_t hash = 1;

    for (uint32_t i = 0; i < graph->ops[GP_PHASE_TRAIN].count; i++) {
        const gp_op *op = &graph->ops[GP_PHASE_TRAIN].op[i];
        bool kinked =
            op->code == GP_OP_ACTIVATION &&
            (op->function == GP_ACTIVATION_CLIP || op->function == GP_ACTIVATION_LEAKY_RELU ||
             op->function == GP_ACTIVATION_HARD_SIGMOID || op->function == GP_ACTIVATION_HARD_SWISH);
        uint32_t value = op->code == GP_OP_RELU || kinked ? op->out[0]
                         : op->code == GP_OP_POOL         ? op->out[1]
                                                          : GP_NO_VALUE;

        if (value == GP_NO_VALUE)
            continue;
        for (int64_t e = 0; e < samples * gp_shape_count(&graph->values[value].shape); e++) {
            double at = run->values[value][e];

            if (kinked && op->function == GP_ACTIVATION_CLIP)
                hash = hash * 1000003 + (at > op->factor[0]) + 2u * (at < op->factor[1]);
            else if (kinked && op->function == GP_ACTIVATION_HARD_SIGMOID)
                hash = hash * 1000003 + (at > 0.0) + 2u * (at < 1.0);

            /* kinks at x = -3, y = 0 and x = y = 3 */
            else if (kinked && op->function == GP_ACTIVATION_HARD_SWISH)
                hash = hash * 1000003 + (at < 0.0) + 2u * (at > 3.0);
            else
                hash = hash * 1000003 + (op->code != GP_OP_POOL ? at > 0.0 : (uint64_t)at);
        }
    }
    return hash;
}

/* Compute the derivative of the loss by *slot; false: at a kink. */
static bool net_difference(const net *n, double *slot, double *out)
{
    const double kept = *slot;
    double loss[2];
    uint64_t pattern[2];

    for (int side = 0; side < 2; side++) {
        *slot = kept + (side == 0 ? -STEP : STEP);
        gp_ref_run *run = gp_ref_run_new(n->graph, GP_PHASE_TRAIN, &n->batch);

        loss[side] = run->sums[GP_SUM_LOSS];
        pattern[side] = run_pattern(n->graph, run, n->batch.count);
        gp_ref_run_free(run);
    }
    *slot = kept;
    *out = (loss[1] - loss[0]) / (2.0 * STEP);
    return pattern[0] == pattern[1];
}

/* Compute derivatives by differences: the blob, then the network input; NaN at kinks. */
static double *net_differences(const net *n, size_t *kinks)
{
    const size_t blob = n->graph->blob_count;
    double *derivatives = calloc(blob + n->input_count, sizeof(double));

    for (size_t i = 0; i < blob + n->input_count; i++)
        if (!net_difference(n, i < blob ? &n->blob[i] : &n->input[i - blob], &derivatives[i])) {
            derivatives[i] = NAN;
            ++*kinks;
        }
    return derivatives;
}

/* Return the gradient of the output of pre layer k, which its backward op reads. */
static const double *run_pre_gradient(const net *n, const gp_ref_run *run, uint32_t k)
{
    const gp_ops *ops = &n->graph->ops[GP_PHASE_TRAIN];

    for (uint32_t i = ops->forward_count; i < ops->count; i++)
        if (ops->op[i].layer == n->pre[k] && ops->op[i].code == GP_OP_CONV2D_BACKWARD_WEIGHTS)
            return run->values[ops->op[i].in[1]];
    return NULL;
}

/* Compute the same derivatives with backward ops; the batch may scale one of them. */
static double *net_gradients(const net *n, const gp_ref_batch *batch)
{
    const size_t blob = n->graph->blob_count;
    const int64_t plane = n->spec->input.dim[1] * n->spec->input.dim[2], channels = n->spec->input.dim[0];
    double *gradients = calloc(blob + n->input_count, sizeof(double));
    gp_ref_run *run = gp_ref_run_new(n->graph, GP_PHASE_TRAIN, batch);

    memcpy(gradients, run->gradients, blob * sizeof(double));
    for (uint32_t k = 0; k < n->pre_count; k++) {
        const double *dy = run_pre_gradient(n, run, k);

        /* weight, bias of pre0, pre1, ... */
        const gp_parameter *weight = &n->graph->parameters[2 * k];

        for (size_t i = 0; i < n->input_count && dy != NULL; i++)
            gradients[blob + i] += n->blob[weight->offset + i / (size_t)plane % (size_t)channels] * dy[i];
    }
    gp_ref_run_free(run);
    return gradients;
}

/* Return the largest error of a tensor's derivatives, relative to the largest derivative. */
static double tensor_error(const double *expected, const double *got, size_t count)
{
    /* derivatives removed by a later normalization are zero up to rounding */
    double largest = 1e-3, error = 0.0;

    for (size_t i = 0; i < count; i++)
        if (!isnan(expected[i])) {
            largest = fmax(largest, fabs(expected[i]));
            error = isnan(got[i]) ? INFINITY : fmax(error, fabs(expected[i] - got[i]));
        }
    return error / largest;
}

static double net_error(const net *n, const double *differences, const double *gradients)
{
    const size_t blob = n->graph->blob_count;
    double error = tensor_error(differences + blob, gradients + blob, n->input_count);

    for (uint32_t p = 0; p < n->graph->parameter_count; p++) {
        const gp_parameter *parameter = &n->graph->parameters[p];

        if (parameter->statistic != GP_STATISTIC_NONE)
            continue; /* moments, without derivatives */
        error = fmax(error, tensor_error(differences + parameter->offset, gradients + parameter->offset,
                                         (size_t)parameter->count));
    }
    return error;
}

/* Return whether the op computes a gradient for the layer under test. */
static bool is_backward_of_kind(const net *n, uint32_t i)
{
    const gp_ops *ops = &n->graph->ops[GP_PHASE_TRAIN];

    for (int k = 0; k < GP_OP_VALUES_MAX && ops->op[i].layer == n->layer; k++)
        if (ops->op[i].out[k] != GP_NO_VALUE &&
            (n->graph->values[ops->op[i].out[k]].role == GP_VALUE_ACTIVATION_GRADIENT ||
             n->graph->values[ops->op[i].out[k]].role == GP_VALUE_PARAMETER_GRADIENT))
            return true;
    return false;
}

/* Check that an error of 1 % in any backward op is detected. Return the number of ops. */
static uint32_t net_check_sabotage(const net *n, const char *name, const double *differences)
{
    const gp_ops *ops = &n->graph->ops[GP_PHASE_TRAIN];
    uint32_t tried = 0;

    for (uint32_t i = 0; i < ops->count; i++) {
        gp_ref_batch batch = n->batch;

        if (!is_backward_of_kind(n, i))
            continue;
        batch.scale = 1.01;
        batch.scaled_op = i;
        double *gradients = net_gradients(n, &batch), error = net_error(n, differences, gradients);

        if (!(error > 1e-3))
            GP_TEST_FAIL("%s: scaling %s by 1.01 is not detected: error %g", name,
                         gp_op_name(ops->op[i].code), error);
        free(gradients);
        tried++;
    }
    return tried;
}

/* Check that single samples at their positions add up to the whole batch. */
static void net_check_split(const net *n, const char *name)
{
    gp_ref_run *whole = gp_ref_run_new(n->graph, GP_PHASE_TRAIN, &n->batch);
    double *total = calloc(n->graph->blob_count, sizeof(double)), sums[GP_SUMS] = { 0 };

    for (int64_t i = 0; i < n->batch.count; i++) {
        gp_ref_batch one = n->batch;

        one.count = 1;
        one.input += i * gp_shape_count(&n->spec->input);
        one.targets = (const char *)n->targets + (size_t)i * n->graph->target_bytes;
        one.position += (uint64_t)i;
        gp_ref_run *part = gp_ref_run_new(n->graph, GP_PHASE_TRAIN, &one);

        for (size_t e = 0; e < n->graph->blob_count; e++)
            total[e] += part->gradients[e];
        for (int s = 0; s < GP_SUMS; s++)
            sums[s] += part->sums[s];
        gp_ref_run_free(part);
    }
    if (gp_ref_error(whole->gradients, total, n->graph->blob_count) > 1e-12 ||
        gp_ref_error(whole->sums, sums, GP_SUMS) > 1e-12)
        GP_TEST_FAIL("%s: single samples do not add up to the batch", name);
    gp_ref_run_free(whole);
    free(total);
}

static void check_kind(const gp_kind *kind, const gp_kind_check *check, uint32_t inputs)
{
    char name[160];
    net n = { .spec = NULL };
    gp_error err;
    size_t kinks = 0;

    snprintf(name, sizeof(name), "%s(%s) x %u", kind->name, check->settings == NULL ? "" : check->settings,
             check->samples);
    if (net_build(&n, kind, check, inputs, &err) != GP_OK) {
        GP_TEST_FAIL("%s: %s", name, err.message);
        net_free(&n);
        return;
    }
    net_fill(&n, check->samples);
    if ((kind->flags & GP_KIND_COUPLES_SAMPLES) == 0)
        net_check_split(&n, name);
    if (!check->no_differences) {
        double *differences = net_differences(&n, &kinks), *gradients = net_gradients(&n, &n.batch);
        double error = net_error(&n, differences, gradients);

        if (!(error <= TOLERANCE))
            GP_TEST_FAIL("%s: gradients differ from differences by %g", name, error);
        if (kinks > 4)
            GP_TEST_FAIL("%s: %zu derivatives at kinks were not compared", name, kinks);
        if (net_check_sabotage(&n, name, differences) == 0)
            GP_TEST_FAIL("%s: no op computes its gradient", name);
        free(gradients);
        free(differences);
    }
    net_free(&n);
}

/* Cases that the tables lack. */
static const struct odd_check {
    const char *kind;
    gp_kind_check check;
} odd_checks[] = {
    { "conv2d",
      { { 3, { 4, 7, 5 } },
        "channels=6;kernel=3,2;groups=2;dilation=2,1;stride=1,2;padding=0,1,2,3",
        1,
        false } },
    { "conv2d", { { 3, { 2, 1, 1 } }, "channels=3;kernel=1", 3, false } },

    /* unread rows */
    { "conv2d", { { 3, { 2, 6, 3 } }, "channels=2;kernel=2;stride=5,1;bias=false", 2, false } },
    { "conv2d", { { 3, { 6, 4, 5 } }, "channels=6;kernel=3;groups=6;padding=1;dilation=1,2", 2, false } },
    { "maxpool", { { 3, { 2, 5, 7 } }, "kernel=3,4;stride=1;padding=2,0,0,3", 1, false } },
    { "maxpool", { { 3, { 1, 1, 6 } }, "kernel=1,3;stride=1,2", 3, false } },
    { "avgpool", { { 3, { 2, 5, 7 } }, "kernel=3,4;stride=1;padding=2,0,0,3", 1, false } },
    { "avgpool",
      { { 3, { 1, 4, 6 } }, "kernel=3,2;stride=1,3;padding=0,1,2,0;count-padding=true", 3, false } },
    { "fc", { { 3, { 3, 1, 2 } }, "outputs=1", 1, false } },
    { "dropout", { { 3, { 3, 2, 3 } }, "rate=0.8", 1, false } },
    { "crossentropy", { { 1, { 3 } }, NULL, 8, false } },
};

TEST(every_kind_is_found_by_name_and_has_help_and_checks)
{
    for (const gp_kind *const *kind = gp_kinds; *kind != NULL; kind++) {
        CHECK(gp_kind_find((*kind)->name) == *kind);
        CHECK((*kind)->help != NULL && (*kind)->onnx != NULL && (*kind)->settings_table != NULL);
        CHECK((*kind)->settings_bytes <= GP_LAYER_SETTINGS_BYTES);
        CHECK((*kind)->extra_inputs < GP_LAYER_INPUTS_MAX);
        CHECK((*kind)->checks != NULL && (*kind)->checks[0].samples != 0);
        for (const gp_param *param = (*kind)->settings_table; param->type != GP_PARAM_NONE; param++) {
            CHECK(param->help != NULL);
            CHECK(gp_params_find(gp_layer_factors_table, param->name) == NULL);
        }
    }
    CHECK(gp_kind_find("conv3d") == NULL);
}

TEST(gradients_equal_finite_differences_and_errors_of_one_percent_are_detected)
{
    for (const gp_kind *const *kind = gp_kinds; *kind != NULL; kind++)
        for (uint32_t i = 0; (*kind)->checks[i].samples != 0; i++) {
            uint32_t extra = (*kind)->extra_inputs > i + 1 ? i + 1 : (*kind)->extra_inputs;

            check_kind(*kind, &(*kind)->checks[i], 1 + extra > PRE_MAX ? PRE_MAX : 1 + extra);
        }
}

TEST(gradients_of_odd_shapes_equal_finite_differences)
{
    for (size_t i = 0; i < sizeof(odd_checks) / sizeof(odd_checks[0]); i++)
        check_kind(gp_kind_find(odd_checks[i].kind), &odd_checks[i].check, 1);
}

/* Training and inference compute the same function, except for dropout. */
TEST(inference_gives_the_loss_of_training_without_dropout)
{
    for (const gp_kind *const *kind = gp_kinds; *kind != NULL; kind++) {
        net n = { .spec = NULL };
        gp_error err;

        if ((*kind)->flags & GP_KIND_COUPLES_SAMPLES)
            continue; /* inference uses running statistics, not the batch */
        REQUIRE_OK(net_build(&n, *kind, &(*kind)->checks[0], (*kind)->extra_inputs > 0 ? 2 : 1, &err), err);
        net_fill(&n, (*kind)->checks[0].samples);
        gp_ref_run *train = gp_ref_run_new(n.graph, GP_PHASE_TRAIN, &n.batch);
        gp_ref_run *infer = gp_ref_run_new(n.graph, GP_PHASE_INFER, &n.batch);

        CHECK(isfinite(infer->sums[GP_SUM_LOSS]));
        CHECK_NEAR(train->sums[GP_SUM_WEIGHT], infer->sums[GP_SUM_WEIGHT], 0.0);
        if (strcmp((*kind)->name, "dropout") == 0)
            CHECK(train->sums[GP_SUM_LOSS] != infer->sums[GP_SUM_LOSS]);
        else
            CHECK_NEAR(train->sums[GP_SUM_LOSS], infer->sums[GP_SUM_LOSS], 0.0);
        CHECK(train->scores == NULL && infer->gradients == NULL);
        for (int64_t i = 0; i < n.batch.count; i++) {
            double total = 0.0;

            if (n.graph->class_count == 0)
                continue; /* values */
            for (uint32_t k = 0; k < n.graph->score_count; k++)
                total += infer->scores[i * n.graph->score_count + k];
            CHECK_NEAR(n.graph->score_count / n.graph->class_count, total, 1e-10);
        }
        gp_ref_run_free(train);
        gp_ref_run_free(infer);
        net_free(&n);
    }
}
