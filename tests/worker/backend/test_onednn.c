/* test_onednn.c: the oneDNN segment against the float64 oracle: whole and split phases,
 * accumulation, sample counts, threads. */
#include <dlfcn.h>
#include <math.h>

#include "common/model/graph/graph.h"
#include "tests/gp_test.h"
#include "tests/ref/run.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/base/segment.h"

/* linked in; the module's copy counts allocations separately */
extern const gp_segment_ops gp_segment_onednn;

enum { SEED = 11, STEP = 3, POSITION = 1000, CALLS_MAX = 4, CUTS_MAX = 2 };
static const double GRADIENT_TOLERANCE = 1e-5; /* relative to the norm */

/* Bounds in bfloat16, relative to the norm of all gradients (four times that for one parameter),
 * and for loss and scores. */
static const double NARROW_TOLERANCE = 1e-2, NARROW_LOSS_TOLERANCE = 1e-2;

typedef struct layer_line {
    const char *name, *kind, *settings;
    const char *inputs[2]; /* NULL: the previous layer */
} layer_line;

static gp_graph *graph_of(const gp_shape *input, const layer_line *layers)
{
    const double scale = 1.0 / 255.0, offset = -0.4;
    gp_netspec *spec = NULL;
    gp_graph *graph = NULL;
    gp_error err = { 0 };
    gp_status status = gp_netspec_new(&spec, "model", input, &err);

    if (status == GP_OK)
        status = gp_netspec_normalize(spec, &scale, &offset, 1, &err);
    for (const layer_line *l = layers; l->kind != NULL && status == GP_OK; l++) {
        status = gp_netspec_add(spec, l->name, l->kind, l->settings, &err);
        if (status == GP_OK && l->inputs[0] != NULL)
            status = gp_netspec_connect(spec, l->inputs, l->inputs[1] == NULL ? 1 : 2, &err);
    }
    if (status == GP_OK)
        status = gp_graph_new(&graph, spec, &err);
    if (status != GP_OK)
        GP_TEST_FAIL("cannot parse the test network: %s", err.message);
    gp_netspec_free(spec);
    return graph;
}

static gp_graph *lenet_graph(void)
{
    gp_netspec *spec = NULL;
    gp_graph *graph = NULL;
    gp_error err = { 0 };

    if (gp_zoo_build(&spec, "lenet", NULL, 0, &err) != GP_OK || gp_graph_new(&graph, spec, &err) != GP_OK)
        GP_TEST_FAIL("lenet: %s", err.message);
    gp_netspec_free(spec);
    return graph;
}

/* Covers every window option, residual sums, overlapping max pooling, and dropout on images and
 * vectors. */
static gp_graph *alexnet_graph(void)
{
    static const layer_line layers[] = {
        { "conv1", "conv2d", "channels=16;kernel=7;stride=2;padding=2", { NULL } },
        { "relu1", "relu", NULL, { NULL } },
        { "pool1", "maxpool", "kernel=3;stride=2", { NULL } },
        { "conv2", "conv2d", "channels=24;kernel=5;padding=2;groups=2", { NULL } },
        { "relu2", "relu", NULL, { NULL } },
        { "drop0", "dropout", "rate=0.25", { NULL } },
        { "conv3", "conv2d", "channels=24;kernel=3;dilation=2;padding=2", { NULL } },
        { "sum", "add", NULL, { "drop0", "conv3" } },
        { "relu3", "relu", NULL, { NULL } },
        { "conv4", "conv2d", "channels=10;kernel=3,2;padding=1,0,2,1", { NULL } },
        { "pool2", "maxpool", "kernel=3;stride=2;padding=1", { NULL } },
        { "flat", "flatten", NULL, { NULL } },
        { "drop1", "dropout", "rate=0.5", { NULL } },
        { "fc1", "fc", "outputs=33", { NULL } },
        { "relu4", "relu", NULL, { NULL } },
        { "fc2", "fc", "outputs=7", { NULL } },
        { "loss", "crossentropy", NULL, { NULL } },
        { .kind = NULL },
    };
    gp_shape input = gp_shape3(3, 27, 25);

    return graph_of(&input, layers);
}

/* Branches of every loop type between convolutions: values meet in both memory orders. */
static gp_graph *branches_graph(void)
{
    static const layer_line layers[] = {
        { "conv1", "conv2d", "channels=16;kernel=3;padding=1", { NULL } },
        { "leaky", "leakyrelu", "slope=0.1", { NULL } },
        { "conv2", "conv2d", "channels=16;kernel=3;padding=1;groups=16", { NULL } },
        { "both", "concat", NULL, { "leaky", "conv2" } },
        { "mean", "globalavgpool", NULL, { NULL } },
        { "excite", "conv2d", "channels=32;kernel=1", { NULL } },
        { "gate", "sigmoid", NULL, { NULL } },
        { "scaled", "multiply", NULL, { "both", "gate" } },
        { "clip", "clip", "min=-0.5;max=0.8", { NULL } },
        { "pool", "maxpool", "kernel=3;stride=2;ceil=true", { NULL } },
        { "pad", "pad", "padding=1,2,0,1", { NULL } },
        { "crop", "crop", "start=3,0,1;size=20,0,0", { NULL } },
        { "turn", "transpose", "order=1,2,0", { NULL } },
        { "conv3", "conv2d", "channels=9;kernel=3;same=upper;stride=2", { NULL } },
        { "soft", "softmax", NULL, { NULL } },
        { "weigh", "multiply", NULL, { "soft", "conv3" } },
        { "shape", "reshape", "shape=3,-1,5", { NULL } },
        { "tanh", "tanh", NULL, { NULL } },
        { "head", "fc", "outputs=6", { NULL } },
        { "loss", "crossentropy", NULL, { NULL } },
        { .kind = NULL },
    };
    gp_shape input = gp_shape3(3, 14, 13);

    return graph_of(&input, layers);
}

/* Two blocks from a residual network, the second one on half the pixels. */
static gp_graph *residual_graph(void)
{
    static const layer_line layers[] = {
        { "conv1", "conv2d", "channels=16;kernel=3;padding=1;bias=false", { NULL } },
        { "bn1", "batchnorm", NULL, { NULL } },
        { "relu1", "relu", NULL, { NULL } },
        { "conv2", "conv2d", "channels=16;kernel=3;padding=1;bias=false", { NULL } },
        { "bn2", "batchnorm", NULL, { NULL } },
        { "sum1", "add", NULL, { "bn2", "relu1" } },
        { "relu2", "relu", NULL, { NULL } },
        { "conv3", "conv2d", "channels=40;kernel=3;padding=1;stride=2;bias=false", { NULL } },
        { "bn3", "batchnorm", NULL, { NULL } },
        { "short", "conv2d", "channels=40;kernel=1;stride=2;bias=false", { "relu2" } },
        { "bn4", "batchnorm", NULL, { NULL } },
        { "sum2", "add", NULL, { "bn3", "bn4" } },
        { "relu3", "relu", NULL, { NULL } },
        { "mean", "globalavgpool", NULL, { NULL } },
        { "fc", "fc", "outputs=7", { NULL } },
        { "loss", "crossentropy", NULL, { NULL } },
        { .kind = NULL },
    };
    gp_shape input = gp_shape3(3, 12, 11);

    return graph_of(&input, layers);
}

/* Enough channels that Winograd kernels beat a direct sum in bfloat16 too. */
static gp_graph *deep_graph(void)
{
    static const layer_line layers[] = {
        { "conv1", "conv2d", "channels=64;kernel=3;padding=1", { NULL } },
        { "relu1", "relu", NULL, { NULL } },
        { "conv2", "conv2d", "channels=64;kernel=3;padding=1", { NULL } },
        { "relu2", "relu", NULL, { NULL } },
        { "mean", "globalavgpool", NULL, { NULL } },
        { "fc", "fc", "outputs=10", { NULL } },
        { "loss", "crossentropy", NULL, { NULL } },
        { .kind = NULL },
    };
    gp_shape input = gp_shape3(3, 12, 11);

    return graph_of(&input, layers);
}

/* Covers all fusions with a normalization: ReLU and clip after it, a sum of two, a sum with a value
 * that has other readers, gradients of three readers, slices of a concatenation, a vector, and odd
 * channel counts. */
static gp_graph *passes_graph(void)
{
    static const layer_line layers[] = {
        { "conv1", "conv2d", "channels=35;kernel=3;padding=1;bias=false", { NULL } },
        { "bn1", "batchnorm", NULL, { NULL } },
        { "clip1", "clip", "min=0;max=1.5", { NULL } },
        { "conv2", "conv2d", "channels=35;kernel=3;padding=1;bias=false", { NULL } },
        { "bn2", "batchnorm", NULL, { NULL } },
        { "short", "conv2d", "channels=35;kernel=1;bias=false", { "clip1" } },
        { "bn3", "batchnorm", NULL, { NULL } },
        { "sum1", "add", NULL, { "bn2", "bn3" } },
        { "relu1", "relu", NULL, { NULL } },
        { "conv3", "conv2d", "channels=35;kernel=1;bias=false", { NULL } },
        { "bn4", "batchnorm", NULL, { NULL } },
        { "sum2", "add", NULL, { "relu1", "bn4" } },
        { "conv4", "conv2d", "channels=20;kernel=1", { NULL } },
        { "relu2", "relu", NULL, { NULL } },
        { "left", "conv2d", "channels=12;kernel=1", { NULL } },
        { "relu3", "relu", NULL, { NULL } },
        { "right", "conv2d", "channels=9;kernel=3;padding=1", { "relu2" } },
        { "relu4", "relu", NULL, { NULL } },
        { "both", "concat", NULL, { "relu3", "relu4" } },
        { "bn5", "batchnorm", NULL, { NULL } },
        { "pool", "maxpool", "kernel=2;stride=2", { NULL } },
        { "flat", "flatten", NULL, { NULL } },
        { "fc1", "fc", "outputs=40", { NULL } },
        { "bn6", "batchnorm", NULL, { NULL } },
        { "relu5", "relu", NULL, { NULL } },
        { "sum3", "add", NULL, { "relu5", "bn6" } },
        { "fc2", "fc", "outputs=7", { NULL } },
        { "loss", "crossentropy", NULL, { NULL } },
        { .kind = NULL },
    };
    gp_shape input = gp_shape3(3, 9, 10);

    return graph_of(&input, layers);
}

/* A clip with bounds that bfloat16 rounds towards zero. About half of its inputs exceed them. */
static gp_graph *clipped_graph(void)
{
    static const layer_line layers[] = {
        { "bn1", "batchnorm", NULL, { NULL } },
        { "clip1", "clip", "min=-0.7;max=0.7", { NULL } },
        { "flat", "flatten", NULL, { NULL } },
        { "loss", "crossentropy", NULL, { NULL } },
        { .kind = NULL },
    };
    gp_shape input = gp_shape3(8, 3, 2);

    return graph_of(&input, layers);
}

/* A network, data for `total` samples, and the oracle's results. */
typedef struct bench {
    gp_graph *graph;
    uint32_t total;
    gp_dtype dtype;
    gp_precision precision;
    double narrow_tolerance;
    void *samples;
    int32_t *labels; /* targets for the only loss */
    float *blob, *gradients, *again, *scores;
    double sums[GP_SUMS];
    gp_ref_run *train, *infer;
} bench;

static uint32_t random_word(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Initialize a bench and take ownership of the graph. */
static bool bench_init(bench *b, gp_graph *graph, uint32_t total, gp_dtype dtype)
{
    uint64_t state = 5;
    size_t count, blob_count;
    double *input, *blob;
    gp_init_rule rule = { .kind = GP_INIT_HE };

    *b = (bench){ .graph = graph, .total = total, .dtype = dtype, .narrow_tolerance = NARROW_TOLERANCE };
    if (graph == NULL)
        return false;
    count = (size_t)gp_shape_count(&graph->spec->input) * total;
    blob_count = graph->blob_count;
    b->samples = gp_calloc(count, gp_dtype_bytes(dtype));
    b->labels = gp_calloc(total + 1, graph->target_bytes);
    b->blob = gp_calloc(blob_count, sizeof(*b->blob));
    b->gradients = gp_calloc(blob_count, sizeof(*b->gradients));
    b->again = gp_calloc(blob_count, sizeof(*b->again));
    b->scores = gp_calloc((size_t)graph->score_count * (total + 1), sizeof(*b->scores));
    input = gp_calloc(count, sizeof(*input));
    blob = gp_calloc(blob_count, sizeof(*blob));
    for (size_t i = 0; i < count; i++)
        if (dtype == GP_U8)
            ((uint8_t *)b->samples)[i] = (uint8_t)random_word(&state);
        else
            ((float *)b->samples)[i] = (float)(random_word(&state) % 100000) * 0.00255f;
    for (size_t i = 0; i < total * graph->target_bytes / sizeof(int32_t); i++)
        if (graph->class_count != 0)
            b->labels[i] = i % 9 == 8 ? -1 : (int32_t)(random_word(&state) % graph->class_count);
        else
            ((float *)b->labels)[i] = i % 9 == 8 ? NAN : (float)(random_word(&state) % 200) * 0.01f - 1.0f;
    gp_graph_initialize(graph, rule, 1, b->blob);
    for (uint32_t p = 0; p < graph->parameter_count; p++) /* biases of 0 would prove nothing */
        for (int64_t i = 0; i < graph->parameters[p].count; i++)
            b->blob[graph->parameters[p].offset + (size_t)i] +=
                ((float)(random_word(&state) % 2001) - 1000.0f) * 1e-5f;
    gp_ref_input(graph->spec, dtype, b->samples, total, input);
    gp_ref_widen(b->blob, blob_count, blob);
    gp_ref_batch batch = { .blob = blob,
                           .input = input,
                           .targets = b->labels,
                           .count = total,
                           .seed = SEED,
                           .step = STEP,
                           .position = POSITION };
    b->train = gp_ref_run_new(graph, GP_PHASE_TRAIN, &batch);
    b->infer = gp_ref_run_new(graph, GP_PHASE_INFER, &batch);
    gp_free(input);
    gp_free(blob);
    return true;
}

static void bench_deinit(bench *b)
{
    gp_ref_run_free(b->train);
    gp_ref_run_free(b->infer);
    gp_free(b->samples);
    gp_free(b->labels);
    gp_free(b->blob);
    gp_free(b->gradients);
    gp_free(b->again);
    gp_free(b->scores);
    gp_graph_free(b->graph);
}

static gp_plan_memory bench_memory(bench *b)
{
    return (gp_plan_memory){
        .parameters = b->blob, .gradients = b->gradients, .sums = b->sums, .scores = b->scores
    };
}

/* A phase as one segment, or as several with buffers between them, as in cpu.c. */
typedef struct chain {
    gp_segment *segments[CUTS_MAX + 1];
    uint32_t count, micro_batch;
    const gp_graph *graph;
    gp_plan_memory memory;
    void **values;
} chain;

static void chain_deinit(chain *c)
{
    for (uint32_t i = 0; i < c->count; i++)
        gp_segment_onednn.free(c->segments[i]);
    for (uint32_t v = 0; c->values != NULL && v < c->graph->value_count; v++)
        gp_free(c->values[v]);
    gp_free(c->values);
}

static bool value_is(const gp_op *op, uint32_t value, bool output)
{
    for (int i = 0; i < GP_OP_VALUES_MAX; i++)
        if ((output ? op->out[i] : op->in[i]) == value)
            return true;
    return false;
}

/* Allocate buffers for values written before `cut` and read after it. Fill them with NaN-like
 * poison. */
static void chain_cross(chain *c, const gp_ops *ops, uint32_t cut)
{
    for (uint32_t v = 0; v < c->graph->value_count; v++) {
        bool before = false, after = false;
        size_t count = (size_t)gp_shape_count(&c->graph->values[v].shape) * c->micro_batch;

        for (uint32_t i = 0; i < ops->count; i++) {
            before = before || (i < cut && value_is(&ops->op[i], v, true));
            after = after || (i >= cut && value_is(&ops->op[i], v, false));
        }
        if (!before || !after || c->values[v] != NULL)
            continue;
        float *buffer = gp_calloc(count, sizeof(float));

        for (size_t i = 0; i < count; i++)
            buffer[i] = NAN;
        c->values[v] = buffer;
    }
}

static gp_status chain_init(chain *c, bench *b, gp_phase phase, uint32_t micro_batch, uint32_t threads,
                            const uint32_t *cuts, uint32_t cut_count, gp_error *err)
{
    const gp_ops *ops = &b->graph->ops[phase];
    gp_status status = GP_OK;
    uint32_t first = 0;

    *c = (chain){ .micro_batch = micro_batch, .graph = b->graph, .memory = bench_memory(b) };
    c->values = gp_calloc(b->graph->value_count, sizeof(*c->values));
    if (c->values == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a test");
    for (uint32_t i = 0; i < cut_count; i++)
        chain_cross(c, ops, cuts[i]);
    for (uint32_t i = 0; i <= cut_count && status == GP_OK; i++) {
        uint32_t end = i == cut_count ? ops->count : cuts[i];
        gp_segment_request request = { .graph = b->graph,
                                       .phase = phase,
                                       .ops = ops->op + first,
                                       .count = end - first,
                                       .micro_batch = micro_batch,
                                       .threads = threads,
                                       .sample_dtype = b->dtype,
                                       .precision = b->precision,
                                       .memory = &c->memory,
                                       .values = c->values };

        status = gp_segment_onednn.compile(&c->segments[i], &request, err);
        c->count += status == GP_OK;
        first = end;
    }
    if (status != GP_OK)
        chain_deinit(c);
    return status;
}

/* Run the samples in calls of counts[0], counts[1], ... until all are done. */
static gp_status chain_run(chain *c, bench *b, const uint32_t *counts, gp_error *err)
{
    size_t each = (size_t)gp_shape_count(&b->graph->spec->input) * gp_dtype_bytes(b->dtype);
    gp_plan_times times = { 0 };
    gp_status status = GP_OK;
    uint32_t done = 0, i = 0;

    do {
        gp_batch batch = { .samples = (const char *)b->samples + done * each,
                           .targets = (const char *)b->labels + done * b->graph->target_bytes,
                           .count = counts[i],
                           .first = i == 0,
                           .seed = SEED,
                           .step = STEP,
                           .position = POSITION + done };

        batch.last = done + counts[i] == b->total;
        if (batch.first)
            memset(b->sums, 0, sizeof(b->sums)); /* as a plan does */
        for (uint32_t s = 0; s < c->count && status == GP_OK; s++)
            status = gp_segment_onednn.run(c->segments[s], &batch, &times, err);
        done += counts[i++];
    } while (done < b->total && status == GP_OK);
    if (status == GP_OK && b->total > 0)
        CHECK(times.forward_ns > 0 && times.backward_ns >= 0);
    return status;
}

static double norm_of(const double *values, size_t count)
{
    double sum = 0.0;

    for (size_t i = 0; i < count; i++)
        sum += values[i] * values[i];
    return sqrt(sum);
}

static void check_gradients(const bench *b, const char *what)
{
    const double whole = norm_of(b->train->gradients, b->graph->blob_count);
    const bool narrow = b->precision == GP_PRECISION_BF16;
    const double tolerance = narrow ? 4 * b->narrow_tolerance : GRADIENT_TOLERANCE;
    double all = 0.0;

    for (uint32_t p = 0; p < b->graph->parameter_count; p++) {
        const gp_parameter *parameter = &b->graph->parameters[p];
        const double *expected = b->train->gradients + parameter->offset;
        double sum = 0.0, norm = norm_of(expected, (size_t)parameter->count);

        if (parameter->statistic == GP_STATISTIC_NONE && !gp_parameter_learns(parameter))
            continue; /* frozen: has no gradient */
        for (int64_t i = 0; i < parameter->count; i++) {
            double d = (double)b->gradients[parameter->offset + (size_t)i] - expected[i];

            sum += d * d;
        }
        all += sum;

        /* a gradient that cancels to zero has no significant digits */
        norm = fmax(norm, 0.05 * whole);
        if (!(sqrt(sum) <= tolerance * norm + 1e-12))
            GP_TEST_FAIL("%s: gradient of %s has the relative error %g (norm %g)", what, parameter->name,
                         sqrt(sum) / norm, norm);
    }
    if (narrow && !(sqrt(all) <= b->narrow_tolerance * whole + 1e-12))
        GP_TEST_FAIL("%s: relative gradient error %g", what, sqrt(all) / whole);
}

static void check_sums(const bench *b, const gp_ref_run *expected)
{
    const bool narrow = b->precision == GP_PRECISION_BF16;

    CHECK_NEAR(expected->sums[GP_SUM_LOSS], b->sums[GP_SUM_LOSS],
               (narrow ? NARROW_LOSS_TOLERANCE : 1e-5) * fabs(expected->sums[GP_SUM_LOSS]) + 1e-9);
    CHECK_NEAR(expected->sums[GP_SUM_WEIGHT], b->sums[GP_SUM_WEIGHT], 0.0);

    /* If two logits are nearly equal, either one may be the larger. */
    CHECK_NEAR(expected->sums[GP_SUM_CORRECT], b->sums[GP_SUM_CORRECT], narrow ? 1.0 : 0.0);
    CHECK_NEAR(expected->sums[GP_SUM_CLASSED], b->sums[GP_SUM_CLASSED], 0.0);
    CHECK_NEAR(expected->sums[GP_SUM_VALUES], b->sums[GP_SUM_VALUES], 0.0);
}

/* Train as one segment, twice: the result is correct and bitwise identical. */
static void check_train(bench *b, const char *what, uint32_t micro_batch, uint32_t threads,
                        const uint32_t *counts)
{
    size_t bytes = b->graph->blob_count * sizeof(float);
    gp_error err = { 0 };
    chain c;

    memset(b->gradients, 0x7f, bytes); /* the first call of a step overwrites */
    memset(b->sums, 0x7f, sizeof(b->sums));
    REQUIRE_OK(chain_init(&c, b, GP_PHASE_TRAIN, micro_batch, threads, NULL, 0, &err), err);
    CHECK_STATUS(GP_OK, chain_run(&c, b, counts, &err));
    check_gradients(b, what);
    check_sums(b, b->train);
    memcpy(b->again, b->gradients, bytes);
    CHECK_STATUS(GP_OK, chain_run(&c, b, counts, &err));
    if (memcmp(b->again, b->gradients, bytes) != 0)
        GP_TEST_FAIL("%s: a repeated step differs", what);
    CHECK(gp_segment_onednn.memory_bytes(c.segments[0]) > 0);
    chain_deinit(&c);
}

static void check_infer(bench *b, const char *what, uint32_t threads)
{
    const uint32_t counts[CALLS_MAX] = { b->total };
    double worst = 0.0;
    gp_error err = { 0 };
    chain c;

    REQUIRE_OK(chain_init(&c, b, GP_PHASE_INFER, b->total + 1, threads, NULL, 0, &err), err);
    CHECK_STATUS(GP_OK, chain_run(&c, b, counts, &err));
    check_sums(b, b->infer);
    worst = gp_ref_error_f32(b->infer->scores, b->scores, (size_t)b->graph->score_count * b->total);
    if (!(worst <= (b->precision == GP_PRECISION_BF16 ? b->narrow_tolerance : 1e-5)))
        GP_TEST_FAIL("%s: scores are off by %g", what, worst);
    chain_deinit(&c);
}

/* Build a network with the kind in the middle, so that gradients pass through it. */
static gp_graph *kind_graph(const gp_kind *kind, const gp_kind_check *check)
{
    char channels[32];
    gp_shape input = check->input;
    layer_line layers[8] = { { .kind = NULL } };
    uint32_t n = 0;

    if (check->input.rank == 3) {
        snprintf(channels, sizeof(channels), "channels=%d;kernel=1", (int)check->input.dim[0]);
        input.dim[0] = 2;
    } else {
        snprintf(channels, sizeof(channels), "outputs=%d", (int)gp_shape_count(&check->input));
        input = gp_shape3(2, 3, 3);
    }
    for (uint32_t i = 0; i < (kind->extra_inputs > 0 ? 2 : 1); i++)
        layers[n++] = (layer_line){
            i == 0 ? "before" : "beside", check->input.rank == 3 ? "conv2d" : "fc", channels, { "input" }
        };
    layers[n++] = (layer_line){
        "tried", kind->name, check->settings, { "before", kind->extra_inputs > 0 ? "beside" : NULL }
    };
    if ((kind->flags & GP_KIND_LOSS) == 0) {
        layers[n++] = (layer_line){ "after", "fc", "outputs=5", { NULL } };
        layers[n++] = (layer_line){ "loss", "crossentropy", NULL, { NULL } };
    }
    return graph_of(&input, layers);
}

TEST(every_kind_matches_the_oracle)
{
    for (size_t k = 0; gp_kinds[k] != NULL; k++)
        for (const gp_kind_check *check = gp_kinds[k]->checks; check->samples != 0; check++) {
            const bool couples =
                gp_kinds[k]->flags & GP_KIND_COUPLES_SAMPLES; /* then a single call, with a tail */
            const uint32_t counts[CALLS_MAX] = { couples ? 5 : 3, 2 };
            char what[160];
            bench b;

            snprintf(what, sizeof(what), "%s %s", gp_kinds[k]->name,
                     check->settings == NULL ? "" : check->settings);
            if (!bench_init(&b, kind_graph(gp_kinds[k], check), 5, GP_F32))
                return;
            for (uint32_t threads = 1; threads <= 2; threads++) {
                check_train(&b, what, couples ? 7 : 4, threads, counts);
                check_infer(&b, what, threads);
            }
            bench_deinit(&b);
        }
}

static void check_network(gp_graph *graph, const char *what, uint32_t total, gp_dtype dtype)
{
    const uint32_t whole[CALLS_MAX] = { total },
                   parts[CALLS_MAX] = { total / 2, total / 4, total - total / 2 - total / 4 };
    bench b;

    if (!bench_init(&b, graph, total, dtype))
        return;
    for (uint32_t threads = 1; threads <= 2; threads++) {
        check_train(&b, what, total, threads, whole);
        check_train(&b, what, total + 5, threads, whole); /* a tail of missing samples */
        if (total >= 4)
            check_train(&b, what, (total + 1) / 2, threads, parts);
        check_infer(&b, what, threads);
    }
    bench_deinit(&b);
}

TEST(lenet_matches_the_oracle)
{
    check_network(lenet_graph(), "lenet of 64 samples", 64, GP_U8);
    check_network(lenet_graph(), "lenet of 17 samples", 17, GP_U8);
    check_network(lenet_graph(), "lenet of 1 sample", 1, GP_U8);
}

TEST(groups_dilation_padding_max_pooling_and_dropout_match_the_oracle)
{
    check_network(alexnet_graph(), "alexnet of 17 samples", 17, GP_U8);
    check_network(alexnet_graph(), "alexnet of 64 samples", 64, GP_F32);
    check_network(alexnet_graph(), "alexnet of 1 sample", 1, GP_F32);
}

TEST(branches_of_loops_and_primitives_match_the_oracle)
{
    check_network(branches_graph(), "branches of 17 samples", 17, GP_U8);
    check_network(branches_graph(), "branches of 1 sample", 1, GP_F32);
}

TEST(residual_network_matches_the_oracle_for_every_tail)
{
    const uint32_t whole[CALLS_MAX] = { 9 };
    bench b;

    if (!bench_init(&b, residual_graph(), 9, GP_U8))
        return;
    for (uint32_t threads = 1; threads <= 2; threads++) {
        check_train(&b, "residual", 9, threads, whole);
        check_train(&b, "residual with a tail", 16, threads, whole);
        check_infer(&b, "residual", threads);
    }
    bench_deinit(&b);
}

/* Free the graph and return one with the layers from `first` to `last` frozen. */
static gp_graph *frozen_graph(gp_graph *graph, const char *first, const char *last)
{
    gp_graph *frozen = NULL;
    gp_netspec *spec = graph->spec;
    gp_error err = { 0 };

    for (uint32_t p = 0; p < graph->parameter_count; p++) {
        uint32_t layer = graph->parameters[p].layer;
        gp_layer_factors *factors = &spec->layers[layer].factors;

        if (layer >= gp_netspec_find(spec, first) && layer <= gp_netspec_find(spec, last))
            factors->weight_learn_rate = factors->bias_learn_rate = 0;
    }
    if (gp_graph_new(&frozen, spec, &err) != GP_OK)
        GP_TEST_FAIL("cannot freeze the network: %s", err.message);
    gp_graph_free(graph);
    return frozen;
}

TEST(partly_frozen_networks_match_the_oracle)
{
    check_network(frozen_graph(alexnet_graph(), "conv1", "pool1"), "alexnet, conv1 frozen", 9, GP_U8);
    check_network(frozen_graph(alexnet_graph(), "conv1", "conv4"), "alexnet, conv1 to conv4 frozen", 9,
                  GP_U8);
    check_network(frozen_graph(alexnet_graph(), "conv2", "fc1"), "alexnet, conv2 to fc1 frozen", 9, GP_U8);
    check_network(frozen_graph(branches_graph(), "conv1", "excite"), "branches, frozen to excite", 9, GP_F32);
}

TEST(fused_ops_match_the_oracle)
{
    const uint32_t whole[CALLS_MAX] = { 9 };
    bench b;

    if (!bench_init(&b, passes_graph(), 9, GP_U8))
        return;
    for (uint32_t threads = 1; threads <= 2; threads++) {
        check_train(&b, "passes", 9, threads, whole);
        check_train(&b, "passes with a tail", 16, threads, whole);
        check_infer(&b, "passes", threads);
    }
    bench_deinit(&b);
}

TEST(every_kind_is_close_to_the_oracle_in_bfloat16)
{
    for (size_t k = 0; gp_kinds[k] != NULL; k++)
        for (const gp_kind_check *check = gp_kinds[k]->checks; check->samples != 0; check++) {
            const bool couples = gp_kinds[k]->flags & GP_KIND_COUPLES_SAMPLES;
            const uint32_t counts[CALLS_MAX] = { couples ? 5 : 3, 2 };
            char what[160];
            bench b;

            snprintf(what, sizeof(what), "%s %s in bf16", gp_kinds[k]->name,
                     check->settings == NULL ? "" : check->settings);
            if (!bench_init(&b, kind_graph(gp_kinds[k], check), 5, GP_F32))
                return;
            b.precision = GP_PRECISION_BF16;
            b.narrow_tolerance = 2 * NARROW_TOLERANCE; /* only five samples */
            check_train(&b, what, couples ? 7 : 4, 2, counts);
            check_infer(&b, what, 2);
            bench_deinit(&b);
        }
}

/* Rounding can change a maximum, or a sign before a ReLU, and then redirects a gradient. With
 * random weights and pixels this causes most of the error, which grows with the number of kinks. */
TEST(networks_are_close_to_the_oracle_in_bfloat16_and_deterministic)
{
    static const struct {
        gp_graph *(*graph)(void);
        double tolerance;
    } tried[] = { { residual_graph, 1e-2 }, { passes_graph, 2e-2 },   { deep_graph, 2e-2 },
                  { lenet_graph, 3e-2 },    { branches_graph, 4e-2 }, { alexnet_graph, 0.1 },
                  { clipped_graph, 2e-2 } };
    const uint32_t whole[CALLS_MAX] = { 33 }, parts[CALLS_MAX] = { 20, 13 };

    for (size_t k = 0; k < sizeof(tried) / sizeof(tried[0]); k++) {
        gp_graph *graph = tried[k].graph();
        char what[32];
        bench b;

        snprintf(what, sizeof(what), "network %zu in bf16", k);
        if (!bench_init(&b, graph, 33, k % 2 == 0 ? GP_U8 : GP_F32))
            return;
        b.precision = GP_PRECISION_BF16;
        b.narrow_tolerance = tried[k].tolerance;
        check_train(&b, what, 33, 1, whole);
        check_train(&b, what, 37, 2, whole);
        if (!graph->couples_samples)
            check_train(&b, what, 21, 2, parts);
        check_infer(&b, what, 2);
        bench_deinit(&b);
    }
}

TEST(segment_uses_bfloat16_if_the_processor_multiplies_it)
{
    const uint32_t counts[CALLS_MAX] = { 2 };
    gp_error err = { 0 };
    bench b;
    chain c;

    if (!bench_init(&b, alexnet_graph(), 2, GP_U8))
        return;
    for (int narrow = 0; narrow < 2; narrow++) {
        bool expected = false;

        b.precision = narrow ? GP_PRECISION_BF16 : GP_PRECISION_F32;
        REQUIRE_OK(chain_init(&c, &b, GP_PHASE_TRAIN, 2, 1, NULL, 0, &err), err);
#ifdef __x86_64__
        expected = narrow && __builtin_cpu_supports("avx512bf16") && getenv("ONEDNN_MAX_CPU_ISA") == NULL;
#endif
        CHECK(gp_segment_onednn.narrow(c.segments[0]) == expected);
        CHECK_STATUS(GP_OK, chain_run(&c, &b, counts, &err));
        chain_deinit(&c);
    }
    bench_deinit(&b);
}

TEST(predictions_reload_parameters_only_after_a_change)
{
    gp_plan_times times = { 0 };
    gp_error err = { 0 };
    float before[7];
    bench b;
    chain c;

    if (!bench_init(&b, passes_graph(), 1, GP_U8))
        return;
    gp_batch batch = { .samples = b.samples, .count = 1, .first = true, .last = true };

    REQUIRE_OK(chain_init(&c, &b, GP_PHASE_INFER, 1, 1, NULL, 0, &err), err);
    CHECK_STATUS(GP_OK, gp_segment_onednn.run(c.segments[0], &batch, &times, &err));
    memcpy(before, b.scores, sizeof(before));

    /* stored in the segment, with a normalization folded in */
    for (uint32_t p = 0; p < b.graph->parameter_count; p++)
        if (strcmp(b.graph->parameters[p].name, "conv1.weight") == 0)
            for (int64_t i = 0; i < b.graph->parameters[p].count; i++)
                b.blob[b.graph->parameters[p].offset + (size_t)i] *= 0.1f;
    batch.unchanged = true;
    CHECK_STATUS(GP_OK, gp_segment_onednn.run(c.segments[0], &batch, &times, &err));
    CHECK(memcmp(before, b.scores, sizeof(before)) == 0);
    batch.unchanged = false;
    CHECK_STATUS(GP_OK, gp_segment_onednn.run(c.segments[0], &batch, &times, &err));
    CHECK(memcmp(before, b.scores, sizeof(before)) != 0);
    chain_deinit(&c);
    bench_deinit(&b);
}

TEST(a_rank_without_samples_writes_zero_gradients_first_and_nothing_later)
{
    gp_batch none = { .first = true, .last = true };
    gp_plan_times times = { 0 };
    gp_error err = { 0 };
    bench b;
    chain c;

    if (!bench_init(&b, alexnet_graph(), 1, GP_U8))
        return;
    none.targets = b.labels;
    REQUIRE_OK(chain_init(&c, &b, GP_PHASE_TRAIN, 4, 1, NULL, 0, &err), err);
    for (size_t i = 0; i < b.graph->blob_count; i++)
        b.gradients[i] = 1.0f;
    none.first = false;
    CHECK_STATUS(GP_OK, gp_segment_onednn.run(c.segments[0], &none, &times, &err));
    CHECK(b.gradients[0] == 1.0f);
    none.first = true;
    CHECK_STATUS(GP_OK, gp_segment_onednn.run(c.segments[0], &none, &times, &err));
    for (size_t i = 0; i < b.graph->blob_count; i++)
        if (b.gradients[i] != 0.0f) {
            GP_TEST_FAIL("gradient %zu is %g", i, (double)b.gradients[i]);
            break;
        }
    chain_deinit(&c);
    bench_deinit(&b);
}

/* Return whether both sides of a cut would be claimed completely. */
static bool cut_possible(const gp_graph *graph, gp_phase phase, uint32_t cut)
{
    const gp_ops *ops = &graph->ops[phase];

    return gp_segment_onednn.claim(graph, phase, ops->op, cut) == cut &&
           gp_segment_onednn.claim(graph, phase, ops->op + cut, ops->count - cut) == ops->count - cut;
}

TEST(values_cross_between_segments_wherever_a_phase_is_cut)
{
    /* batch norm couples samples */
    const uint32_t parts[CALLS_MAX] = { 4, 3 }, whole[CALLS_MAX] = { 7 };
    bench benches[4];
    uint32_t tried = 0;

    if (!bench_init(&benches[0], lenet_graph(), 7, GP_U8) ||
        !bench_init(&benches[1], alexnet_graph(), 7, GP_U8) ||
        !bench_init(&benches[2], passes_graph(), 7, GP_U8) ||
        !bench_init(&benches[3], lenet_graph(), 7, GP_U8))
        return;
    benches[3].precision = GP_PRECISION_BF16;
    benches[3].narrow_tolerance = 5e-2;
    for (int k = 0; k < 4; k++) {
        bench *b = &benches[k];

        for (uint32_t cut = 1; cut < b->graph->ops[GP_PHASE_TRAIN].count; cut += k == 2 ? 2 : 1) {
            gp_error err = { 0 };
            char what[64];
            chain c;

            if (!cut_possible(b->graph, GP_PHASE_TRAIN, cut))
                continue;
            snprintf(what, sizeof(what), "network %d cut before op %u", k, cut);
            tried++;
            REQUIRE_OK(chain_init(&c, b, GP_PHASE_TRAIN, k == 2 ? 8 : 5, 2, &cut, 1, &err), err);
            CHECK_STATUS(GP_OK, chain_run(&c, b, k == 2 ? whole : parts, &err));
            check_gradients(b, what);
            check_sums(b, b->train);
            chain_deinit(&c);
        }
        bench_deinit(b);
    }
    CHECK(tried > 20);
}

TEST(pooling_index_stays_within_the_segment)
{
    gp_graph *graph = alexnet_graph();
    const gp_ops *ops = graph == NULL ? NULL : &graph->ops[GP_PHASE_TRAIN];
    uint32_t pool = 0, backward = 0;

    if (graph == NULL)
        return;
    for (uint32_t i = 0; i < ops->count; i++) {
        if (ops->op[i].code == GP_OP_POOL && pool == 0)
            pool = i;
        if (ops->op[i].code == GP_OP_POOL_BACKWARD)
            backward = i; /* first pooling: the backward pass runs in reverse order */
    }
    CHECK_INT(ops->count, gp_segment_onednn.claim(graph, GP_PHASE_TRAIN, ops->op, ops->count));
    CHECK_INT(pool, gp_segment_onednn.claim(graph, GP_PHASE_TRAIN, ops->op, backward));
    CHECK_INT(0, gp_segment_onednn.claim(graph, GP_PHASE_TRAIN, ops->op + pool, 1));
    CHECK_INT(0, gp_segment_onednn.claim(graph, GP_PHASE_TRAIN, ops->op + backward, 1));
    gp_graph_free(graph);
}

TEST(label_out_of_range_is_refused_with_its_value)
{
    const uint32_t counts[CALLS_MAX] = { 2 };
    gp_error err = { 0 };
    bench b;
    chain c;

    if (!bench_init(&b, lenet_graph(), 2, GP_U8))
        return;
    REQUIRE_OK(chain_init(&c, &b, GP_PHASE_TRAIN, 2, 1, NULL, 0, &err), err);
    b.labels[1] = 10;
    CHECK_STATUS(GP_EINVAL, chain_run(&c, &b, counts, &err));
    CHECK_CONTAINS(err.message, "sample 1 has label 10");
    chain_deinit(&c);
    bench_deinit(&b);
}

TEST(compiling_survives_every_failing_allocation)
{
    gp_error err = { 0 };
    bench b;
    chain c;

    if (!bench_init(&b, alexnet_graph(), 1, GP_U8))
        return;
    CHECK_EVERY_ALLOCATION(chain_init(&c, &b, GP_PHASE_TRAIN, 2, 1, NULL, 0, &err), chain_deinit(&c));
    bench_deinit(&b);
}

TEST(the_module_exports_the_segment)
{
    void *module = dlopen(GP_ONEDNN_MODULE_FILE, RTLD_NOW | RTLD_LOCAL);
    const gp_segment_ops *ops;

    if (module == NULL)
        GP_TEST_FAIL("%s", dlerror());
    REQUIRE(module != NULL);
    ops = dlsym(module, GP_SEGMENT_ONEDNN_SYMBOL);
    REQUIRE(ops != NULL);
    CHECK(ops->reads_samples);
    CHECK(strncmp(ops->name, "onednn", 6) == 0);
    CHECK(dlsym(module, GP_SEGMENT_ONEDNN_BUILD) != NULL);
    CHECK(dlsym(module, "gp_fail") == NULL); /* exports no other symbols */
}

/* Through the backend: it finds and loads the module, which claims all ops and matches the linked
 * copy. */
TEST(the_cpu_backend_runs_a_network_on_the_module)
{
    const gp_backend_options how = { .threads = 2, .kernels = "onednn" };
    gp_plan_options options = { .phase = GP_PHASE_TRAIN, .micro_batch = 6, .sample_dtype = GP_U8 };
    gp_backend *backend = NULL;
    gp_plan *plan = NULL;
    gp_plan_memory memory;
    gp_batch batch;
    gp_error err = { 0 };
    char text[256] = "";
    bench b;

    if (!bench_init(&b, alexnet_graph(), 5, GP_U8))
        return;
    memory = bench_memory(&b);
    batch = (gp_batch){ .samples = b.samples,
                        .targets = b.labels,
                        .count = 5,
                        .first = true,
                        .last = true,
                        .seed = SEED,
                        .step = STEP,
                        .position = POSITION };
    REQUIRE_OK(gp_backend_cpu.open(&backend, &how, &err), err);
    REQUIRE_OK(gp_backend_cpu.compile(&plan, backend, b.graph, &options, &memory, &err), err);
    gp_backend_cpu.describe(plan, text, sizeof(text));
    CHECK(strncmp(text, "onednn", 6) == 0);
    CHECK(strchr(text, '\n') == text + strlen(text) - 1); /* one segment */
    CHECK_STATUS(GP_OK, gp_backend_cpu.run(plan, &batch, NULL, NULL, &err));
    check_gradients(&b, "through the backend");
    check_sums(&b, b.train);
    gp_backend_cpu.free(plan);
    gp_backend_cpu.close(backend);
    bench_deinit(&b);
}
