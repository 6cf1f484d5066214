/* test_cuda.c: GPU plans against the float64 oracle: all layer kinds, memory orders and types, with
 * and without libraries and recording.
 *
 * test_cuda runs the kernels on the host (tests/fake/device.c and simt), test_cuda_fake through the
 * plugin on tests/fake/gpu, and test_cuda_device through the plugin on a machine with a GPU. */
#include "tests/gp_test.h"

#include <sched.h>

#include "tests/common/model/nets.h"
#include "tests/worker/backend/backend_check.h"
#include "tests/worker/backend/libraries_check.h"
#include "worker/train/loss_scale.h"
#include "worker/optim/optim.h"

#ifdef GP_ON_DEVICE
#include <limits.h>

#include "common/base/system/cached.h"
#include "worker/backend/plugin.h"

/* Opening a device takes longer than a check: each variant is opened once and stays open. Compiled
 * engines are read from the cache of the worker, and stored there. */
static gp_backend_ops device_ops;
static gp_status (*real_open)(gp_backend **, const gp_backend_options *, gp_error *);

static gp_status device_open(gp_backend **out, const gp_backend_options *options, gp_error *err)
{
    static struct {
        const char *words;
        gp_backend *backend;
    } opened[16];
    gp_backend_options cached = *options;
    char compiled[PATH_MAX];
    gp_status status;
    gp_error ignored;
    size_t i = 0;

    while (i < 16 && opened[i].backend != NULL && strcmp(opened[i].words, options->kernels) != 0)
        i++;
    if (i == 16)
        return gp_fail(err, GP_ELIMIT, "too many ways to open a device");
    if (gp_cache_path(compiled, sizeof(compiled), "compiled", NULL, &ignored) == GP_OK)
        cached.compiled = compiled;
    status = opened[i].backend == NULL ? real_open(&opened[i].backend, &cached, err) : GP_OK;
    opened[i].words = options->kernels;
    *out = opened[i].backend;
    return status;
}

static void device_close(gp_backend *backend)
{
    (void)backend;
}

static const gp_backend_ops *cuda(void)
{
    static const gp_plugin *plugin;
    gp_error err;

    if (plugin == NULL && gp_plugin_load_device(&plugin, getenv("GRADPOOL_CUDA_PLUGIN"), &err) != GP_OK) {
        printf("SKIP: %s\n", err.message);
        exit(77);
    }
    device_ops = *plugin->backend;
    device_ops.open = device_open;
    device_ops.close = device_close;
    real_open = plugin->backend->open;
    return &device_ops;
}
#else
#include "tests/fake/simt/simt.h"
#include "worker/backend/cuda/plan/resident.h"

static const gp_backend_ops *cuda(void)
{
    return &gp_backend_cuda;
}
#endif

/* Bounds relative to the gradient norm; tests/gpu/check reports them too. */
#define STRICT 1e-5
#define TF32   5e-3
#define BF16   6e-2
#define FP16   (BF16 / 4) /* 3 bits more than bf16, half of the gain kept as margin */

typedef struct style {
    const char *words;
    gp_precision precision;
    gp_dtype dtype;
    double tolerance;
} style;

/* The first SHORT_STYLES have each precision and memory order, with and without libraries. */
enum { SHORT_STYLES = 6 };

static const style styles[] = {
    { "dense,own", GP_PRECISION_F32, GP_U8, STRICT },
    { "packed", GP_PRECISION_F32, GP_U8, STRICT },
    { "packed,own", GP_PRECISION_BF16, GP_U8, BF16 },
    { "", GP_PRECISION_BF16, GP_F32, BF16 },
    { "", GP_PRECISION_TF32, GP_U8, TF32 },
    { "", GP_PRECISION_F16, GP_U8, FP16 },
#ifndef GP_ON_DEVICE /* on a device, compiling takes longer than computing */
    { "own", GP_PRECISION_F16, GP_F32, FP16 },
    { "apart", GP_PRECISION_BF16, GP_U8, BF16 },
    { "moments", GP_PRECISION_F16, GP_U8, FP16 },
    { "packed,apart", GP_PRECISION_F32, GP_U8, STRICT },
    { "packed,own,eager", GP_PRECISION_F32, GP_F32, STRICT },
    { "dense", GP_PRECISION_F32, GP_F32, STRICT },
    { "dense,eager", GP_PRECISION_BF16, GP_U8, BF16 },
#endif
};

static void check_sums(const double *expected, const double *got, double tolerance, const char *what)
{
    for (int i = 0; i < GP_SUMS; i++) {
        /* Rounded logits may change the predicted class. */
        double allowed =
            i == GP_SUM_CORRECT && tolerance > STRICT ? 3.0 : tolerance * (1 + fabs(expected[i]));

        if (!(fabs(got[i] - expected[i]) <= allowed))
            GP_TEST_FAIL("%s: sum %d is %.9g, expected %.9g", what, i, got[i], expected[i]);
    }
}

/* Return the score error for the first loss; the oracle computes no other scores. */
static double score_error(const net *n, const gp_ref_run *oracle, const result *r, uint32_t count)
{
    const gp_end *end = &n->graph->ends[0];
    double worst = 0;

    for (uint32_t i = 0; i < count; i++) {
        double error = gp_ref_error_f32(oracle->scores + (size_t)i * end->scores_count,
                                        r->scores + (size_t)i * n->graph->score_count + end->score_first,
                                        end->scores_count);

        worst = error > worst || error != error ? error : worst;
    }
    return worst;
}

static void check_phase(const net *n, const way *w, gp_phase phase, uint32_t count, const gp_ref_run *oracle,
                        double tolerance, const char *what)
{
    result r;
    gp_error err;

    REQUIRE_OK(result_new(&r, n), err);
    if (net_run(n, w, phase, count, &r, &err) != GP_OK) {
        GP_TEST_FAIL("%s: %s", what, err.message);
    } else {
        double error = phase == GP_PHASE_TRAIN ? gradient_error(n, r.gradients, oracle->gradients)
                                               : score_error(n, oracle, &r, count);

        if (!(error <= tolerance))
            GP_TEST_FAIL("%s, %u samples: %s off by %g, allowed %g", what, count,
                         phase == GP_PHASE_TRAIN ? "gradient" : "scores", error, tolerance);
        check_sums(oracle->sums, r.sums, tolerance, what);
    }
    result_free(&r);
}

/* Check the first `style_count` styles: in one call, run eagerly, while recording, and replayed;
 * then in smaller calls with a tail unless samples are coupled. narrow: bound for bf16. */
static void check_first_styles(const net *n, size_t style_count, uint32_t count, double narrow,
                               const char *what)
{
    gp_ref_run *train = ask_oracle(n, GP_PHASE_TRAIN, count), *infer = ask_oracle(n, GP_PHASE_INFER, count);

    for (size_t i = 0; i < style_count; i++) {
        const style *s = &styles[i];
        double tolerance = s->precision == GP_PRECISION_BF16  ? narrow
                           : s->precision == GP_PRECISION_F16 ? narrow * FP16 / BF16
                                                              : s->tolerance;
        way w = { .ops = cuda(),
                  .kernels = s->words,
                  .threads = 1,
                  .dtype = s->dtype,
                  .precision = s->precision,
                  .repeats = 2 };
        char name[200];

        snprintf(name, sizeof(name), "%s, %s %s", what, s->words, gp_precision_names[s->precision]);
        check_phase(n, &w, GP_PHASE_TRAIN, count, train, tolerance, name);
        check_phase(n, &w, GP_PHASE_INFER, count, infer, tolerance, name);
        if (n->graph->couples_samples || count < 3)
            continue;
        w.micro_batch = 2;
        check_phase(n, &w, GP_PHASE_TRAIN, count, train, tolerance, name);
    }
    gp_ref_run_free(train);
    gp_ref_run_free(infer);
}

static void check_styles(const net *n, uint32_t count, double narrow, const char *what)
{
    check_first_styles(n, sizeof(styles) / sizeof(styles[0]), count, narrow, what);
}

TEST(every_kind_has_a_check)
{
    for (size_t i = 0; gp_kinds[i] != NULL; i++)
        if (gp_kinds[i]->checks[0].samples == 0)
            GP_TEST_FAIL("kind %s has no check: nothing below tries it", gp_kinds[i]->name);
}

TEST(every_kind_gives_the_oracles_gradients_sums_and_scores)
{
    for (size_t i = 0; gp_kinds[i] != NULL; i++)
        for (const gp_kind_check *check = gp_kinds[i]->checks; check->samples != 0; check++) {
            net n = { 0 };
            gp_error err;
            char what[128];

            snprintf(what, sizeof(what), "%s(%s)", gp_kinds[i]->name,
                     check->settings == NULL ? "" : check->settings);
            REQUIRE_OK(kind_net(&n, gp_kinds[i], check, &err), err);
            check_styles(&n, check->samples, BF16, what);
            net_free(&n);
        }
}

static void check_chain(gp_shape input, const net_layer *layers, uint32_t count, double narrow,
                        const char *what)
{
    net n = { 0 };
    gp_error err;

    REQUIRE_OK(chain_net(&n, input, 200, layers, &err), err);
    check_styles(&n, count, narrow, what);
    net_free(&n);
}

#define HEAD                                                                                                 \
    { "fc", "outputs=7" }, { "crossentropy", NULL },                                                         \
    {                                                                                                        \
        NULL, NULL                                                                                           \
    }

TEST(lenet_gives_the_oracles_gradients_sums_and_scores)
{
    net n = { 0 };
    gp_error err;

    REQUIRE_OK(gp_zoo_build(&n.spec, "lenet", NULL, 0, &err), err);
    REQUIRE_OK(net_fill(&n, 200, &err), err);

    /* a call of two samples and a tail; plain loops are slow, even more so under a sanitizer */
    check_first_styles(&n, SHORT_STYLES, 3, BF16, "lenet");
    net_free(&n);
}

TEST(groups_dilation_stride_and_uneven_padding_match_the_oracle)
{
    check_chain(
        gp_shape3(4, 13, 12),
        (const net_layer[]){ { "conv2d", "channels=6;kernel=3;groups=2;padding=1" },
                             { "relu", NULL },
                             { "conv2d", "channels=8;kernel=3,2;stride=2,1;dilation=1,2;padding=1,0,2,1" },
                             { "maxpool", "kernel=3;stride=2;padding=1" },
                             { "relu", NULL },
                             { "conv2d", "channels=6;kernel=2;dilation=2;padding=1" },
                             HEAD },
        6, 0.3, "groups"); /* few pixels, two kinks: bf16 rounding redirects some gradients */
}

/* Convolutions that the kernels of grids_conv.h execute: several samples in a block, several blocks
 * for a sample, several slices of channels or rows, and uneven padding. Rows of the first network
 * have 9 pixels, which is one span; those of the next two consist of spans of 5 pixels. Pools with
 * windows of 2 x 2 pixels in rows of even and odd length. The last two networks have biases of
 * large planes, which the pools sum. */
enum { FEW_NETS = 5 };

static gp_status few_channels_net(net *n, uint32_t which, gp_error *err)
{
    const gp_shape inputs[] = { gp_shape3(5, 9, 8), gp_shape3(4, 15, 16), gp_shape3(36, 10, 8),
                                gp_shape3(3, 66, 64), gp_shape3(3, 43, 41) };
    const net_layer first[] = { { "conv2d", "channels=6;kernel=3;padding=1,2,0,1" },
                                { "conv2d", "channels=33;kernel=5;bias=false" },
                                { "conv2d", "channels=6;kernel=5;padding=4" },
                                { "conv2d", "channels=2;kernel=1" },
                                { "conv2d", "channels=2;kernel=1" } },
                    second[] = { { "conv2d", "channels=7;kernel=5;padding=2" },
                                 { "conv2d", "channels=10;kernel=3;padding=2,1,1,2" },
                                 { "conv2d", "channels=50;kernel=3" },
                                 { "conv2d", "channels=2;kernel=1" },
                                 { "conv2d", "channels=3;kernel=1" } },
                    pool[] = { { "maxpool", "kernel=2;stride=2" },
                               { "avgpool", "kernel=2;stride=2" },
                               { "maxpool", "kernel=2;stride=2" },
                               { "avgpool", "kernel=2;stride=2" },
                               { "maxpool", "kernel=2;stride=2" } };

    return chain_net(n, inputs[which], 200,
                     (const net_layer[]){
                         first[which], { "relu", NULL }, second[which], { "relu", NULL }, pool[which], HEAD },
                     err);
}

/* Check the number of convolutions that kernels for few channels execute in a training. */
static void check_direct(const net *n, const char *kernels, int expected)
{
    const gp_plan_options options = { .phase = GP_PHASE_TRAIN, .micro_batch = 3, .sample_dtype = GP_F32 };
    gp_plan_memory memory = { .parameters = n->parameters };
    gp_backend *backend;
    gp_plan *plan;
    int count = -1;
    char text[300];
    gp_error err;

    memory.gradients = gp_aligned_calloc(64, n->graph->blob_count * sizeof(float));
    REQUIRE(memory.gradients != NULL);
    REQUIRE_OK(cuda()->open(&backend, &(gp_backend_options){ .threads = 1, .kernels = kernels }, &err), err);
    REQUIRE_OK(cuda()->compile(&plan, backend, n->graph, &options, &memory, &err), err);
    cuda()->describe(plan, text, sizeof(text));
    REQUIRE(strstr(text, "cuBLASLt's, ") != NULL);
    CHECK_INT(1, sscanf(strstr(text, "cuBLASLt's, "), "cuBLASLt's, %d direct convolutions", &count));
    cuda()->free(plan);
    cuda()->close(backend);
    gp_free(memory.gradients);
    CHECK_INT(expected, count);
}

TEST(convolutions_with_few_channels_match_the_oracle)
{
    static const struct {
        const char *kernels;
        uint32_t count, micro_batch;
    } calls[] = { { "dense,own", 7, 0 }, { "dense", 7, 3 }, { "dense,own,apart", 1, 0 } };

    for (uint32_t i = 0; i < FEW_NETS; i++) {
        net n = { 0 };
        gp_error err;

        REQUIRE_OK(few_channels_net(&n, i, &err), err);
        /* the first convolution has no gradient of its input; the last networks have too few
         * channels */
        check_direct(&n, "dense", i >= 3 ? 0 : 5);
        check_direct(&n, "dense,libraries", 0);
        for (size_t c = 0; c < sizeof(calls) / sizeof(calls[0]); c++) {
            const way w = { .ops = cuda(),
                            .kernels = calls[c].kernels,
                            .threads = 1,
                            .dtype = GP_F32,
                            .micro_batch = calls[c].micro_batch,
                            .repeats = 2 };
            char what[80];

            snprintf(what, sizeof(what), "few channels, network %u, %s", i, w.kernels);
            for (gp_phase phase = GP_PHASE_TRAIN; phase < GP_PHASE_COUNT; phase++) {
                gp_ref_run *oracle = ask_oracle(&n, phase, calls[c].count);

                check_phase(&n, &w, phase, calls[c].count, oracle, STRICT, what);
                gp_ref_run_free(oracle);
            }
        }
        net_free(&n);
    }
}

TEST(batch_norm_in_a_residual_block_matches_the_oracle)
{
    const gp_shape input = gp_shape3(3, 9, 10);
    const char *const skip[] = { "pool", "norm2" };
    net n = { 0 };
    gp_error err;

    REQUIRE_OK(gp_netspec_new(&n.spec, "skip", &input, &err), err);
    REQUIRE_OK(gp_netspec_add(n.spec, "conv1", "conv2d", "channels=8;kernel=3;bias=false", &err), err);
    REQUIRE_OK(gp_netspec_add(n.spec, "norm1", "batchnorm", NULL, &err), err);
    REQUIRE_OK(gp_netspec_add(n.spec, "relu1", "relu", NULL, &err), err);
    REQUIRE_OK(gp_netspec_add(n.spec, "pool", "maxpool", "kernel=2", &err), err);
    REQUIRE_OK(gp_netspec_add(n.spec, "conv2", "conv2d", "channels=8;kernel=3;padding=1", &err), err);
    REQUIRE_OK(gp_netspec_add(n.spec, "norm2", "batchnorm", NULL, &err), err);
    REQUIRE_OK(gp_netspec_add(n.spec, "sum", "add", NULL, &err), err);
    REQUIRE_OK(gp_netspec_connect(n.spec, skip, 2, &err), err);
    REQUIRE_OK(gp_netspec_add(n.spec, "relu2", "relu", NULL, &err), err);
    REQUIRE_OK(gp_netspec_add(n.spec, "head", "fc", "outputs=6", &err), err);
    REQUIRE_OK(gp_netspec_add(n.spec, "loss", "crossentropy", NULL, &err), err);
    REQUIRE_OK(net_fill(&n, 200, &err), err);
    check_styles(&n, 7, BF16, "residual");
    net_free(&n);
}

/* Build a residual network. A multiple of 8 channels selects the kernels for 8 numbers at once,
 * fused operations after batch norm, and bit masks for ReLU. */
static gp_status residual_net(net *n, const char *channels, gp_error *err)
{
    const gp_shape input = gp_shape3(3, 9, 10);
    const char *const skip[] = { "relu2", "norm3" }, *const other[] = { "short", "norm5" };
    char first[80], second[80], point[80];

    snprintf(first, sizeof(first), "channels=%s;kernel=3;bias=false", channels);
    snprintf(second, sizeof(second), "channels=%s;kernel=3;padding=1", channels);
    snprintf(point, sizeof(point), "channels=%s;kernel=1;stride=2", channels);
    const struct {
        const char *name, *kind, *settings, *from;
    } layers[] = {
        { "conv1", "conv2d", first, NULL },     { "norm1", "batchnorm", NULL, NULL },
        { "relu1", "relu", NULL, NULL },        { "conv2", "conv2d", second, NULL },
        { "norm2", "batchnorm", NULL, NULL },   { "relu2", "relu", NULL, NULL },
        { "conv3", "conv2d", second, NULL },    { "norm3", "batchnorm", NULL, NULL },
        { "sum1", "add", NULL, "skip" },        { "relu3", "relu", NULL, NULL },
        { "conv5", "conv2d", point, NULL },     { "norm5", "batchnorm", NULL, NULL },
        { "short", "conv2d", point, "relu3" },  { "sum2", "add", NULL, "other" },
        { "relu4", "relu", NULL, NULL },        { "pool", "globalavgpool", NULL, NULL },
        { "flat", "flatten", NULL, NULL },      { "fc1", "fc", "outputs=5", NULL },
        { "relu5", "relu", NULL, NULL },        { "fc2", "fc", "outputs=7", NULL },
        { "relu6", "relu", NULL, NULL },        { "head", "fc", "outputs=6", NULL },
        { "loss", "crossentropy", NULL, NULL },
    };
    gp_status status = gp_netspec_new(&n->spec, "residual", &input, err);

    for (size_t i = 0; i < sizeof(layers) / sizeof(layers[0]) && status == GP_OK; i++) {
        const char *from = layers[i].from;

        status = gp_netspec_add(n->spec, layers[i].name, layers[i].kind, layers[i].settings, err);
        if (status != GP_OK || from == NULL)
            continue;
        if (strcmp(from, "relu3") == 0)
            status = gp_netspec_connect(n->spec, &from, 1, err);
        else
            status = gp_netspec_connect(n->spec, strcmp(from, "skip") == 0 ? skip : other, 2, err);
    }
    if (status == GP_OK)
        status =
            gp_netspec_normalize(n->spec, (const double[]){ 1 / 255.0 }, (const double[]){ -0.3 }, 1, err);
    return status == GP_OK ? net_fill(n, 200, err) : status;
}

TEST(operations_are_fused_into_convolutions_batch_norms_and_products)
{
    const char *const channels[] = {
        "8", "6"
    }; /* with 6 channels a plan with a sum exists; with 8 the rest runs afterwards */
    gp_error err;

    for (size_t i = 0; i < 2; i++) {
        net n = { 0 };

        REQUIRE_OK(residual_net(&n, channels[i], &err), err);

        /* many kinks: bf16 rounding redirects some gradients */
        check_styles(&n, 7, 0.15, channels[i]);
        net_free(&n);
    }
}

TEST(batch_norm_relu_and_max_pool_in_one_pass_match_the_oracle)
{
    const char *const convs[] = { "channels=8;kernel=3;padding=1;bias=false",
                                  "channels=6;kernel=3;padding=1" },
                      *const pools[] = { "kernel=3;stride=2;padding=1", "kernel=2;dilation=2;stride=1",
                                         "kernel=3;stride=2;ceil=true" };

    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < 3; k++) {
            char what[100];

            snprintf(what, sizeof(what), "%s, pool %s", convs[i], pools[k]);
            check_chain(gp_shape3(3, 12, 11),
                        (const net_layer[]){ { "conv2d", convs[i] },
                                             { "batchnorm", NULL },
                                             { "relu", NULL },
                                             { "maxpool", pools[k] },
                                             HEAD },
                        6, 0.4, what); /* rounding makes some maxima equal */
        }
}

TEST(pools_of_eight_channels_match_the_oracle)
{
    const struct {
        const char *kind, *settings;
    } pools[] = { { "maxpool", "kernel=2;stride=2" },
                  { "maxpool", "kernel=5,2;stride=1,3;padding=2,1,2,1" },
                  { "maxpool", "kernel=4;stride=3;ceil=true" },
                  { "maxpool", "kernel=2;dilation=3;stride=1" },
                  { "avgpool", "kernel=4,3;stride=3,2;padding=1" },
                  { "globalavgpool", NULL } };

    for (size_t i = 0; i < sizeof(pools) / sizeof(pools[0]); i++)
        check_chain(gp_shape3(3, 12, 11),
                    (const net_layer[]){ { "conv2d", "channels=8;kernel=3;padding=1" },
                                         { "relu", NULL },
                                         { pools[i].kind, pools[i].settings },
                                         HEAD },
                    5, 0.4, pools[i].settings == NULL ? pools[i].kind : pools[i].settings);
}

/* Narrow types too: intermediate values are rounded in both cases. */
TEST(fused_batch_norm_relu_and_max_pool_is_bitwise_identical_to_three_steps)
{
    const gp_precision precisions[] = { GP_PRECISION_F32, GP_PRECISION_BF16, GP_PRECISION_F16 };
    const char *const convs[] = { "channels=8;kernel=3;bias=false", "channels=6;kernel=3;bias=false" };
    gp_error err;

    for (size_t i = 0; i < 6; i++) {
        way w = {
            .ops = cuda(), .kernels = "own", .threads = 1, .dtype = GP_U8, .precision = precisions[i % 3]
        };
        net n = { 0 };
        result together, apart;

        REQUIRE_OK(chain_net(&n, gp_shape3(3, 14, 13), 200,
                             (const net_layer[]){ { "conv2d", convs[i / 3] },
                                                  { "batchnorm", NULL },
                                                  { "relu", NULL },
                                                  { "maxpool", "kernel=3;stride=2;padding=1" },
                                                  HEAD },
                             &err),
                   err);
        REQUIRE_OK(result_new(&together, &n), err);
        REQUIRE_OK(result_new(&apart, &n), err);
        REQUIRE_OK(net_run(&n, &w, GP_PHASE_TRAIN, 6, &together, &err), err);
        w.kernels = "own,apart";
        REQUIRE_OK(net_run(&n, &w, GP_PHASE_TRAIN, 6, &apart, &err), err);
        if (memcmp(together.gradients, apart.gradients, n.graph->blob_count * sizeof(float)) != 0 ||
            memcmp(together.sums, apart.sums, sizeof(apart.sums)) != 0)
            GP_TEST_FAIL("%s, %s: results differ", convs[i / 3], gp_precision_names[precisions[i % 3]]);
        result_free(&together);
        result_free(&apart);
        net_free(&n);
    }
}

/* Covers class weights, ignored labels, smoothing, losses with a shared target, and outputs of
 * classes and values. */
TEST(several_losses_match_the_oracle)
{
    static const char *const nets[] = {
        "c1 conv2d channels=4;kernel=3;padding=1 | r relu | c2 conv2d channels=3;kernel=1 | "
        "pixels pixelclassification loss-factor=0.5;ignore-label=2;label-smoothing=0.1 | s softmax < c2 | "
        "overlap dice loss-factor=0.5;target-of=pixels;ignore-label=2",
        "c1 conv2d channels=8;kernel=3;padding=1 | r relu | f fc outputs=4 | class crossentropy "
        "label-smoothing=0.2 | "
        "g fc outputs=2 < r | values huber loss-factor=2;delta=0.5 | c2 conv2d channels=2;kernel=1 < r | map "
        "mse",
        "c1 conv2d channels=8;kernel=3;padding=1 | g fc outputs=2 | values mse | f fc outputs=4 < c1 | "
        "s sigmoid | class crossentropy",
    };

    for (size_t i = 0; i < sizeof(nets) / sizeof(nets[0]); i++) {
        const gp_shape input = gp_shape3(3, 8, 7);
        net n = { 0 };
        gp_error err;

        REQUIRE_OK(net_parse(&n.spec, &input, nets[i], &err), err);
        REQUIRE_OK(
            gp_netspec_normalize(n.spec, (const double[]){ 1 / 255.0 }, (const double[]){ -0.3 }, 1, &err),
            err);
        REQUIRE_OK(net_fill(&n, 200, &err), err);
        check_styles(&n, 6, 0.15, nets[i]);
        net_free(&n);
    }
}

/* Networks with many classes; 36 is a multiple of the width of a vector. In the last two the scores
 * or the weights of the classes follow two others and are not aligned. */
enum {
    CLASSES_OF_PIXELS,
    CLASSES_WEIGHTED,
    CLASSES_OF_TWO_LOSSES,
    CLASSES_BEHIND_SCORES,
    CLASSES_BEHIND_WEIGHTS,
    CLASSES_NETS
};

typedef struct wide_layer {
    const char *name, *kind, *settings, *from;
} wide_layer;

static void many_classes_net(net *n, int classes, int which)
{
    const gp_shape input = gp_shape3(3, 5, 4);
    char outputs[30], filters[60], weights[300] = "class-weights=";
    gp_error err;

    snprintf(outputs, sizeof(outputs), "outputs=%d", classes);
    snprintf(filters, sizeof(filters), "channels=%d;kernel=3;padding=1", classes);
    for (int i = 0; i < classes; i++)
        snprintf(weights + strlen(weights), sizeof(weights) - strlen(weights), "%s%g", i == 0 ? "" : " ",
                 0.25 * (i % 7));

    const wide_layer layers[CLASSES_NETS][6] = {
        { { "c", "conv2d", filters, NULL }, { "loss", "pixelclassification", NULL, NULL } },
        { { "f", "fc", outputs, NULL }, { "loss", "crossentropy", weights, NULL } },
        { { "f", "fc", outputs, NULL },
          { "one", "crossentropy", "loss-factor=0.5", NULL },
          { "g", "fc", outputs, "f" },
          { "two", "crossentropy", "target-of=one;label-smoothing=0.1;ignore-label=3", NULL } },
        { { "v", "fc", "outputs=2", NULL },
          { "before", "mse", NULL, NULL },
          { "f", "fc", outputs, "v" },
          { "loss", "crossentropy", NULL, NULL },
          { "w", "fc", "outputs=2", "f" },
          { "after", "mse", NULL, NULL } },
        { { "v", "fc", "outputs=2", NULL },
          { "before", "crossentropy", "class-weights=0.5 2", NULL },
          { "f", "fc", outputs, "v" },
          { "loss", "crossentropy", weights, NULL } },
    };

    REQUIRE_OK(gp_netspec_new(&n->spec, "classes", &input, &err), err);
    for (const wide_layer *l = layers[which]; l < layers[which] + 6 && l->name != NULL; l++) {
        REQUIRE_OK(gp_netspec_add(n->spec, l->name, l->kind, l->settings, &err), err);
        if (l->from != NULL)
            REQUIRE_OK(gp_netspec_connect(n->spec, &l->from, 1, &err), err);
    }
    REQUIRE_OK(
        gp_netspec_normalize(n->spec, (const double[]){ 1 / 255.0 }, (const double[]){ -0.3 }, 1, &err), err);
    REQUIRE_OK(net_fill(n, 200, &err), err);
}

TEST(losses_with_many_classes_match_the_oracle)
{
    for (int i = 0; i < 2 * CLASSES_NETS; i++) {
        net n = { 0 };
        char what[60];

        many_classes_net(&n, 36 + i % 2, i / 2);
        snprintf(what, sizeof(what), "%d classes, network %d", 36 + i % 2, i / 2);
        check_styles(&n, 6, 0.15, what);
        net_free(&n);
    }
}

/* The lanes of a warp find equal largest scores in different orders. */
TEST(first_of_equal_scores_is_the_predicted_class)
{
    const int first = 5, others[] = { 6, 9, 16, 33 };
    const way w = { .ops = cuda(), .kernels = "own", .threads = 1, .dtype = GP_U8 };
    gp_error err;

    for (int i = 0; i < 8; i++) {
        const int other = others[i / 2], classes = 36 + i % 2;
        net n = { 0 };
        result r;

        many_classes_net(&n, classes, CLASSES_OF_TWO_LOSSES);
        REQUIRE_OK(result_new(&r, &n), err);
        memset(n.parameters, 0, n.graph->blob_count * sizeof(float));
        for (uint32_t p = 0; p < n.graph->parameter_count; p++)
            if (n.graph->parameters[p].shape.rank == 1) {
                n.parameters[n.graph->parameters[p].offset + (size_t)first] = 1.0f;
                n.parameters[n.graph->parameters[p].offset + (size_t)other] = 1.0f;
            }
        for (int k = 0; k < 6; k++)
            n.labels[k] = first;
        REQUIRE_OK(net_run(&n, &w, GP_PHASE_TRAIN, 6, &r, &err), err);
        CHECK_NEAR(12, r.sums[GP_SUM_CORRECT], 0); /* of both losses */
        result_free(&r);
        net_free(&n);
    }
}

/* Count the steps of a plan by kind. */
static void count_steps(unsigned *out, const net *n, const char *words, gp_precision precision,
                        gp_phase phase)
{
    gp_plan_options options = {
        .phase = phase, .micro_batch = 4, .sample_dtype = GP_U8, .precision = precision
    };
    gp_plan_memory memory = { .parameters = n->parameters };
    gp_backend *backend;
    gp_plan *plan;
    char text[300];
    gp_error err;

    *out = 0;
    REQUIRE_OK(cuda()->open(&backend, &(gp_backend_options){ .threads = 1, .kernels = words }, &err), err);
    REQUIRE_OK(cuda()->compile(&plan, backend, n->graph, &options, &memory, &err), err);
    cuda()->describe(plan, text, sizeof(text));
    CHECK(strstr(text, gp_precision_names[precision]) != NULL && strchr(text, ':') != NULL);
    CHECK_INT(1, sscanf(strchr(text, ':'), ": %u steps", out));
    cuda()->free(plan);
    cuda()->close(backend);
}

/* Expected: the input, six convolutions with fused operations, the pool, three products, the loss,
 * and two steps for the sums. */
TEST(in_prediction_a_convolution_is_one_step_with_batch_norm_sum_and_relu)
{
    unsigned steps;
    net n = { 0 };
    gp_error err;

    REQUIRE_OK(residual_net(&n, "6", &err), err);
    count_steps(&steps, &n, "", GP_PRECISION_BF16, GP_PHASE_INFER);
    CHECK_INT(1 + 5 + 1 + 3 + 2, steps);
    count_steps(&steps, &n, "own", GP_PRECISION_F32, GP_PHASE_INFER);
    CHECK_INT(1 + 5 + 1 + 3 + 2, steps);
    count_steps(&steps, &n, "apart", GP_PRECISION_F32, GP_PHASE_INFER);
    CHECK(steps > 25);
    net_free(&n);
}

TEST(libraries_execute_every_convolution_and_product_of_four_networks)
{
    check_libraries(cuda());
}

/* Enough rows to split the moment sums into many parts. */
TEST(batch_norm_of_many_pixels_matches_the_oracle)
{
    check_chain(gp_shape3(3, 40, 36),
                (const net_layer[]){ { "conv2d", "channels=8;kernel=3;padding=1;bias=false" },
                                     { "batchnorm", NULL },
                                     { "relu", NULL },
                                     { "maxpool", "kernel=4" },
                                     HEAD },
                4, 0.2, "many pixels");
}

/* A call may contain fewer samples than the plan has room for: unused rows enter no moment, sum or
 * gradient. */
TEST(unused_rows_of_a_call_do_not_change_results)
{
    net n = { 0 };
    gp_error err;

    REQUIRE_OK(chain_net(&n, gp_shape3(3, 8, 8), 200,
                         (const net_layer[]){ { "conv2d", "channels=5;kernel=3" },
                                              { "batchnorm", NULL },
                                              { "relu", NULL },
                                              { "dropout", "rate=0.3" },
                                              HEAD },
                         &err),
               err);
    gp_ref_run *oracle = ask_oracle(&n, GP_PHASE_TRAIN, 6);

    for (uint32_t room = 6; room < 12; room += 5)
        for (int i = 0; i < 2; i++)
            check_phase(&n,
                        &(way){ .ops = cuda(),
                                .kernels = i == 0 ? "packed" : "dense,own",
                                .threads = 1,
                                .dtype = GP_U8,
                                .micro_batch = room,
                                .repeats = 2 },
                        GP_PHASE_TRAIN, 6, oracle, STRICT, "room to spare");
    gp_ref_run_free(oracle);
    net_free(&n);
}

/* cuDNN adds up all rows, including those beyond the last sample. */
TEST(cudnn_moments_exclude_unused_rows_of_a_call)
{
    net n = { 0 };
    gp_error err;

    REQUIRE_OK(chain_net(&n, gp_shape3(3, 6, 6), 201,
                         (const net_layer[]){ { "conv2d", "channels=8;kernel=3;bias=false" },
                                              { "batchnorm", NULL },
                                              { "conv2d", "channels=8;kernel=3;bias=false" },
                                              { "batchnorm", NULL },
                                              { "relu", NULL },
                                              HEAD },
                         &err),
               err);
    gp_ref_run *oracle = ask_oracle(&n, GP_PHASE_TRAIN, 6);

    for (uint32_t room = 6; room < 10; room += 3)
        check_phase(&n,
                    &(way){ .ops = cuda(),
                            .kernels = "moments",
                            .threads = 1,
                            .dtype = GP_U8,
                            .precision = GP_PRECISION_F16,
                            .micro_batch = room,
                            .repeats = 2 },
                    GP_PHASE_TRAIN, 6, oracle, 2 * FP16, room == 6 ? "all rows" : "room to spare");
    gp_ref_run_free(oracle);
    net_free(&n);
}

/* A rank without samples writes zeros. */
TEST(a_call_without_samples_gives_zeros)
{
    net n = { 0 };
    result r;
    gp_error err;

    REQUIRE_OK(gp_zoo_build(&n.spec, "lenet", NULL, 0, &err), err);
    REQUIRE_OK(net_fill(&n, 200, &err), err);
    REQUIRE_OK(result_new(&r, &n), err);
    REQUIRE_OK(net_run(&n, &(way){ .ops = cuda(), .kernels = "", .threads = 1, .dtype = GP_U8, .repeats = 2 },
                       GP_PHASE_TRAIN, 0, &r, &err),
               err);
    for (size_t i = 0; i < n.graph->blob_count; i++)
        if (r.gradients[i] != 0.0f)
            GP_TEST_FAIL("gradient %zu is %g", i, (double)r.gradients[i]);
    for (int i = 0; i < GP_SUMS; i++)
        CHECK_NEAR(0, r.sums[i], 0);
    result_free(&r);
    net_free(&n);
}

/* Equal calls give bitwise identical results: no sum depends on scheduling. */
TEST(equal_steps_are_bitwise_identical)
{
    const way w = { .ops = cuda(), .kernels = "own", .threads = 1, .dtype = GP_U8, .repeats = 3 };
    net n = { 0 };
    result a, b;
    gp_error err;

    REQUIRE_OK(gp_zoo_build(&n.spec, "lenet", NULL, 0, &err), err);
    REQUIRE_OK(net_fill(&n, 200, &err), err);
    REQUIRE_OK(result_new(&a, &n), err);
    REQUIRE_OK(result_new(&b, &n), err);
    REQUIRE_OK(net_run(&n, &w, GP_PHASE_TRAIN, 9, &a, &err), err);
    REQUIRE_OK(net_run(&n, &w, GP_PHASE_TRAIN, 9, &b, &err), err);
    CHECK(memcmp(a.gradients, b.gradients, n.graph->blob_count * sizeof(float)) == 0);
    CHECK(memcmp(a.sums, b.sums, sizeof(a.sums)) == 0);
    result_free(&a);
    result_free(&b);
    net_free(&n);
}

/* Networks whose numbers of channels do not divide a block of 256 threads evenly, or need several
 * blocks for a row of pixels. The pool is fused with the batch norm, or not. */
enum { CHANNELS_NETS = 6 };

static gp_status channels_net(net *n, uint32_t which, gp_error *err)
{
    const char *const convs[] = { "channels=24;kernel=3;padding=1;bias=false", "channels=264;kernel=1",
                                  "channels=2072;kernel=1;bias=false" };
    const uint32_t sizes[] = { 11, 6, 4 };
    const bool fused = which % 2 == 0;

    which /= 2;
    return chain_net(n, gp_shape3(3, sizes[which], sizes[which] - 1), 200,
                     (const net_layer[]){ { "conv2d", convs[which] },
                                          { "batchnorm", NULL },
                                          { "relu", NULL },
                                          { fused ? "maxpool" : "avgpool", "kernel=3;stride=2;padding=1" },
                                          HEAD },
                     err);
}

TEST(many_channels_match_the_oracle)
{
    way w = { .ops = cuda(), .kernels = "packed,own", .threads = 1, .dtype = GP_U8, .repeats = 2 };

    for (uint32_t i = 0; i < CHANNELS_NETS; i++) {
        net n = { 0 };
        gp_ref_run *expected;
        gp_error err;
        char what[40];

        REQUIRE_OK(channels_net(&n, i, &err), err);
        expected = ask_oracle(&n, GP_PHASE_TRAIN, 3);
        snprintf(what, sizeof(what), "channels, network %u", i);
        w.precision = i < CHANNELS_NETS / 2 ? GP_PRECISION_BF16 : GP_PRECISION_F16;
        check_phase(&n, &w, GP_PHASE_TRAIN, 3, expected, 0.3, what); /* rounding makes some maxima equal */
        gp_ref_run_free(expected);
        net_free(&n);
    }
}

TEST(cpu_refuses_fp16_and_computes_tf32_as_f32)
{
    way w = { .threads = 1, .dtype = GP_U8, .precision = GP_PRECISION_F16 };
    net n = { 0 };
    result a, b;
    gp_error err;

    REQUIRE_OK(gp_zoo_build(&n.spec, "lenet", NULL, 0, &err), err);
    REQUIRE_OK(net_fill(&n, 200, &err), err);
    REQUIRE_OK(result_new(&a, &n), err);
    REQUIRE_OK(result_new(&b, &n), err);
    CHECK_STATUS(GP_EUNSUPPORTED, net_run(&n, &w, GP_PHASE_TRAIN, 3, &a, &err));
    CHECK_CONTAINS(err.message, "fp16");
    CHECK_CONTAINS(err.message, "bf16");
    w.precision = GP_PRECISION_TF32;
    REQUIRE_OK(net_run(&n, &w, GP_PHASE_TRAIN, 3, &a, &err), err);
    w.precision = GP_PRECISION_F32;
    REQUIRE_OK(net_run(&n, &w, GP_PHASE_TRAIN, 3, &b, &err), err);
    CHECK(memcmp(a.gradients, b.gradients, n.graph->blob_count * sizeof(float)) == 0);
    result_free(&a);
    result_free(&b);
    net_free(&n);
}

/* Gradients are scaled during the backward pass and unscaled at the end. */
TEST(loss_scale_leaves_float32_gradients_bitwise_identical)
{
    const char *const kernels[] = { "own", "packed", "dense" };
    net n = { 0 };
    result plain, scaled;
    gp_error err;

    REQUIRE_OK(residual_net(&n, "8", &err), err);
    REQUIRE_OK(result_new(&plain, &n), err);
    REQUIRE_OK(result_new(&scaled, &n), err);
    for (size_t i = 0; i < 3; i++) {
        way w = { .ops = cuda(), .kernels = kernels[i], .threads = 1, .dtype = GP_U8 };

        REQUIRE_OK(net_run(&n, &w, GP_PHASE_TRAIN, 6, &plain, &err), err);
        w.loss_scale = 4096;
        REQUIRE_OK(net_run(&n, &w, GP_PHASE_TRAIN, 6, &scaled, &err), err);
        if (memcmp(plain.gradients, scaled.gradients, n.graph->blob_count * sizeof(float)) != 0 ||
            memcmp(plain.sums, scaled.sums, sizeof(plain.sums)) != 0)
            GP_TEST_FAIL("%s: a loss scale of 4096 changes results", kernels[i]);
    }
    result_free(&plain);
    result_free(&scaled);
    net_free(&n);
}

TEST(gradients_that_overflow_in_fp16_are_counted_once_a_step)
{
    way w = { .ops = cuda(), .kernels = "", .threads = 1, .dtype = GP_U8, .precision = GP_PRECISION_F16 };
    net n = { 0 };
    result r;
    gp_error err;

    REQUIRE_OK(gp_zoo_build(&n.spec, "lenet", NULL, 0, &err), err);
    REQUIRE_OK(net_fill(&n, 200, &err), err);
    REQUIRE_OK(result_new(&r, &n), err);
    for (uint32_t calls = 0; calls < 2; calls++) {
        double bad = 0;

        w.micro_batch = calls == 0 ? 0 : 3;
        w.loss_scale = 256;
        REQUIRE_OK(net_run(&n, &w, GP_PHASE_TRAIN, 9, &r, &err), err);
        CHECK_NEAR(0, r.sums[GP_SUM_BAD], 0);
        w.loss_scale = 1e9;
        REQUIRE_OK(net_run(&n, &w, GP_PHASE_TRAIN, 9, &r, &err), err);
        for (size_t i = 0; i < n.graph->blob_count; i++)
            bad += isfinite(r.gradients[i]) ? 0 : 1;
        CHECK(bad > 0);
        CHECK_NEAR(bad, r.sums[GP_SUM_BAD], 0);
    }
    result_free(&r);
    net_free(&n);
}

/* ---- trainings that stay on the device ---- */

enum { KEPT_STEPS = 3, KEPT_BATCH = 6 };

typedef struct kept {
    const net *n;
    gp_train_options options;
    gp_backend *backend;
    gp_plan *plan;
    gp_optim *optim;
    float *parameters;
    result r;
} kept;

static void kept_open_in(kept *k, const net *n, const char *options, gp_precision precision)
{
    gp_plan_options plan = {
        .phase = GP_PHASE_TRAIN, .micro_batch = KEPT_BATCH, .sample_dtype = GP_U8, .precision = precision
    };
    gp_plan_memory memory;
    gp_error err;

    *k = (kept){ .n = n };
    REQUIRE_OK(gp_train_options_from_json(&k->options, options, strlen(options), &err), err);
    REQUIRE_OK(result_new(&k->r, n), err);
    k->parameters = gp_calloc(n->graph->blob_count, sizeof(float));
    memcpy(k->parameters, n->parameters, n->graph->blob_count * sizeof(float));
    memory = (gp_plan_memory){ .parameters = k->parameters, .gradients = k->r.gradients, .sums = k->r.sums };
    REQUIRE_OK(cuda()->open(&k->backend, &(gp_backend_options){ .threads = 1, .kernels = "own" }, &err), err);
    REQUIRE_OK(cuda()->compile(&k->plan, k->backend, n->graph, &plan, &memory, &err), err);
    REQUIRE_OK(gp_optim_new(&k->optim, n->graph, &k->options, &err), err);
}

static void kept_open(kept *k, const net *n, const char *options)
{
    kept_open_in(k, n, options, GP_PRECISION_F32);
}

static void kept_close(kept *k)
{
    cuda()->free(k->plan);
    cuda()->close(k->backend);
    gp_optim_free(k->optim);
    gp_free(k->parameters);
    result_free(&k->r);
}

static gp_batch kept_batch(const net *n, int index)
{
    return (gp_batch){ .samples = n->bytes + (size_t)index * KEPT_BATCH * n->pixels,
                       .targets =
                           (const char *)n->labels + (size_t)index * KEPT_BATCH * n->graph->target_bytes,
                       .count = KEPT_BATCH,
                       .first = true,
                       .last = true,
                       .step = (uint64_t)index };
}

static void host_step(kept *k, int index)
{
    gp_batch batch = kept_batch(k->n, index);
    gp_error err;

    REQUIRE_OK(cuda()->run(k->plan, &batch, NULL, NULL, &err), err);
    gp_statistics_commit(k->n->graph, k->parameters, k->r.gradients, KEPT_BATCH, false);
    gp_optim_step(k->optim, k->parameters, k->r.gradients, k->r.sums[GP_SUM_WEIGHT], 0.05);
}

static void check_same(const float *expected, const float *got, size_t count, const char *options,
                       const char *what)
{
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(expected[i] - got[i]) <= 2e-4f * (1 + fabsf(expected[i])))) {
            GP_TEST_FAIL("%s: %s %zu is %.9g, on the host %.9g", options, what, i, (double)got[i],
                         (double)expected[i]);
            return;
        }
}

#ifndef GP_ON_DEVICE
/* Run KEPT_STEPS steps on the device, and fetch parameters and state. */
static void kept_train(kept *k, const net *n, const char *options)
{
    gp_step_reported reported;
    uint32_t blobs;
    uint64_t *t;
    bool resident;
    gp_error err;

    kept_open(k, n, options);
    float *state = gp_optim_state(k->optim, &blobs, &t);

    REQUIRE_OK(cuda()->steps->make_resident(
                   k->plan,
                   &(gp_resident_request){ .options = &k->options, .state = state, .state_blobs = blobs },
                   &resident, &err),
               err);
    for (int at = 0; at < KEPT_STEPS; at++) {
        gp_step_call call = { .batch = kept_batch(n, at), .learn_rate = 0.05, .samples = KEPT_BATCH };

        REQUIRE_OK(cuda()->steps->launch(k->plan, &call, &err), err);
        REQUIRE_OK(cuda()->steps->reported(k->plan, &reported, &err), err);
        CHECK(reported.counts && reported.committed);
    }
    REQUIRE_OK(cuda()->steps->fetch(k->plan, k->parameters, state, &err), err);
}
#endif

/* The device runs one step ahead of the results that are read. */
static void check_kept(const net *n, const char *options)
{
    kept host, device;
    gp_step_reported reported;
    double losses[KEPT_STEPS];
    uint32_t blobs;
    uint64_t *t;
    bool resident;
    gp_error err;

    kept_open(&host, n, options);
    kept_open(&device, n, options);
    float *state = gp_optim_state(device.optim, &blobs, &t);

    REQUIRE_OK(cuda()->steps->make_resident(
                   device.plan,
                   &(gp_resident_request){ .options = &device.options, .state = state, .state_blobs = blobs },
                   &resident, &err),
               err);
    CHECK(!resident);
    for (int at = 0; at <= KEPT_STEPS; at++) {
        if (at < KEPT_STEPS) {
            gp_step_call call = { .batch = kept_batch(n, at), .learn_rate = 0.05, .samples = KEPT_BATCH };

            host_step(&host, at);
            losses[at] = host.r.sums[GP_SUM_LOSS];
            REQUIRE_OK(cuda()->steps->launch(device.plan, &call, &err), err);
        }
        if (at == 0)
            continue;
        REQUIRE_OK(cuda()->steps->reported(device.plan, &reported, &err), err);
        CHECK_NEAR(losses[at - 1], reported.sums[GP_SUM_LOSS], 1e-3);
        CHECK_NEAR(KEPT_BATCH, reported.samples, 0);
        CHECK(reported.counts && reported.committed);
    }
    CHECK_STATUS(GP_ESTATE, cuda()->steps->reported(device.plan, &reported, &err));
    REQUIRE_OK(cuda()->steps->fetch(device.plan, device.parameters, state, &err), err);
    check_same(host.parameters, device.parameters, n->graph->blob_count, options, "parameter");
    if (memcmp(host.parameters, n->parameters, n->graph->blob_count * sizeof(float)) == 0)
        GP_TEST_FAIL("%s: no parameter changed", options);
    check_same(gp_optim_state(host.optim, &blobs, &t), state, blobs * n->graph->blob_count, options, "state");
    kept_close(&host);
    kept_close(&device);
}

/* The overflow latch is on the device: the commit is launched without reading the gradients. */
TEST(a_step_whose_gradients_overflow_counts_and_commits_nothing)
{
    net n = { 0 };
    kept k;
    gp_step_reported reported;
    uint32_t blobs;
    uint64_t *t;
    bool resident;
    gp_error err;

    REQUIRE_OK(
        chain_net(&n, gp_shape3(3, 8, 8), 200,
                  (const net_layer[]){
                      { "conv2d", "channels=8;kernel=3" }, { "batchnorm", NULL }, { "relu", NULL }, HEAD },
                  &err),
        err);
    kept_open_in(&k, &n, "{\"precision\":\"fp16\"}", GP_PRECISION_F16);
    float *state = gp_optim_state(k.optim, &blobs, &t);

    REQUIRE_OK(cuda()->steps->make_resident(
                   k.plan,
                   &(gp_resident_request){ .options = &k.options, .state = state, .state_blobs = blobs },
                   &resident, &err),
               err);
    for (int at = 0; at < 4; at++) { /* launched separately, then as graphs */
        bool bad = at % 2 == 0;
        gp_step_call call = { .batch = kept_batch(&n, at), .learn_rate = 0.05, .samples = KEPT_BATCH };

        call.batch.loss_scale = bad ? 1e9 : 64;
        memcpy(n.parameters, k.parameters, n.graph->blob_count * sizeof(float));
        REQUIRE_OK(cuda()->steps->launch(k.plan, &call, &err), err);
        REQUIRE_OK(cuda()->steps->reported(k.plan, &reported, &err), err);
        CHECK(reported.counts && reported.committed == !bad && (reported.sums[GP_SUM_BAD] > 0) == bad);
        REQUIRE_OK(cuda()->steps->fetch(k.plan, k.parameters, state, &err), err);
        CHECK((memcmp(k.parameters, n.parameters, n.graph->blob_count * sizeof(float)) == 0) == bad);
    }
    kept_close(&k);
    net_free(&n);
}

typedef struct scaled {
    kept k;
    gp_loss_scale scale; /* the host's copy of the scale */
    float *state;
    uint32_t skipped;
} scaled;

enum { SCALED_STEPS = 24 };

static void scaled_open(scaled *s, const net *n, bool device)
{
    uint32_t blobs;
    uint64_t *t;
    bool resident;
    gp_error err;

    *s = (scaled){ 0 };
    kept_open_in(&s->k, n,
                 "{\"precision\":\"fp16\",\"solver\":\"adam\",\"loss-scale\":3e7,\"loss-scale-growth\":1.7,"
                 "\"loss-scale-backoff\":0.3,\"loss-scale-interval\":2}",
                 GP_PRECISION_F16);
    s->scale = gp_loss_scale_begin(&s->k.options);
    s->state = gp_optim_state(s->k.optim, &blobs, &t);
    REQUIRE_OK(
        cuda()->steps->make_resident(s->k.plan,
                                     &(gp_resident_request){ .options = &s->k.options,
                                                             .state = s->state,
                                                             .state_blobs = blobs,
                                                             .loss_scale = device ? s->scale.scale : 0 },
                                     &resident, &err),
        err);
}

static void scaled_launch(scaled *s, int at, double loss_scale)
{
    gp_step_call call = { .batch = kept_batch(s->k.n, at % 8), .learn_rate = 0.05, .samples = KEPT_BATCH };
    gp_error err;

    call.batch.loss_scale = loss_scale;
    REQUIRE_OK(cuda()->steps->launch(s->k.plan, &call, &err), err);
}

static void scaled_reported(scaled *s, double expected)
{
    gp_step_reported reported;
    bool skip;
    gp_error err;

    REQUIRE_OK(cuda()->steps->reported(s->k.plan, &reported, &err), err);
    CHECK_NEAR(expected, reported.loss_scale, 0);
    skip = gp_loss_scale_step(&s->scale, &s->k.options, reported.sums[GP_SUM_BAD]);
    CHECK(reported.counts && reported.committed == !skip);
    s->skipped += skip;
}

/* The device applies the host's rule bit for bit, and no step waits for it. */
TEST(device_loss_scale_matches_the_hosts_with_a_step_in_flight)
{
    const gp_loss_scale one = { .scale = 1 };
    net n = { 0 };
    scaled host, device;
    gp_error err;

    REQUIRE_OK(
        chain_net(&n, gp_shape3(3, 8, 8), 200,
                  (const net_layer[]){
                      { "conv2d", "channels=8;kernel=3" }, { "batchnorm", NULL }, { "relu", NULL }, HEAD },
                  &err),
        err);
    scaled_open(&host, &n, false);
    scaled_open(&device, &n, true);
    for (int at = 0; at < SCALED_STEPS; at++) {
        scaled_launch(&host, at, gp_loss_scale_of_sum(&host.scale, KEPT_BATCH));
        scaled_reported(&host, 0);
        scaled_launch(&device, at, gp_loss_scale_of_sum(&one, KEPT_BATCH));
        if (at > 0)
            scaled_reported(&device, device.scale.scale);
    }
    scaled_reported(&device, device.scale.scale);
    CHECK(host.skipped > 3 && host.skipped < SCALED_STEPS - 6);
    CHECK_INT(host.skipped, device.skipped);
    CHECK_NEAR(host.scale.scale, device.scale.scale, 0);
    CHECK_INT(host.scale.good, device.scale.good);
    REQUIRE_OK(cuda()->steps->fetch(host.k.plan, host.k.parameters, host.state, &err), err);
    REQUIRE_OK(cuda()->steps->fetch(device.k.plan, device.k.parameters, device.state, &err), err);
    CHECK(memcmp(host.k.parameters, device.k.parameters, n.graph->blob_count * sizeof(float)) == 0);
    CHECK(memcmp(host.state, device.state, 2 * n.graph->blob_count * sizeof(float)) == 0);
    kept_close(&host.k);
    kept_close(&device.k);
    net_free(&n);
}

static const char *const kept_options[] = {
    "{\"gradient-threshold\":0.05}",
    "{\"gradient-threshold\":0.05,\"gradient-threshold-method\":\"global-l2norm\"}",
    "{\"gradient-threshold\":0.005,\"gradient-threshold-method\":\"absolute-value\"}",
    "{\"solver\":\"adam\"}",
    "{\"solver\":\"adamw\",\"l2-regularization\":0.01}",
    "{\"solver\":\"rmsprop\"}",
    "{}",
    "{\"momentum\":0}",
};

enum { KEPT_OPTIONS = sizeof(kept_options) / sizeof(kept_options[0]) };

TEST(training_on_the_device_matches_the_hosts)
{
    net n = { 0 };
    gp_error err;

    REQUIRE_OK(chain_net(&n, gp_shape3(3, 8, 8), 200,
                         (const net_layer[]){ { "conv2d", "channels=5;kernel=3" },
                                              { "batchnorm", NULL },
                                              { "relu", NULL },
                                              { "conv2d", "channels=4;kernel=3" },
                                              HEAD },
                         &err),
               err);
    for (int i = 0; i < KEPT_OPTIONS; i++)
        check_kept(&n, kept_options[i]);
    net_free(&n);
}

/* Networks with bias gradients over few and many pixels, whose channels do not divide a block of
 * 256 threads evenly, or need several blocks for a row of pixels. */
enum { BIASES_NETS = 4 };

static gp_status biases_net(net *n, uint32_t which, gp_error *err)
{
    const char *const convs[] = { "channels=8;kernel=3;padding=1", "channels=24;kernel=1",
                                  "channels=264;kernel=1", "channels=2072;kernel=1" };
    const uint32_t sizes[] = { 24, 11, 4, 2 };

    return chain_net(
        n, gp_shape3(3, sizes[which], sizes[which] + 1), 200,
        (const net_layer[]){
            { "conv2d", convs[which] }, { "relu", NULL }, { "avgpool", "kernel=2;stride=2" }, HEAD },
        err);
}

TEST(bias_gradients_of_many_pixels_and_channels_match_the_oracle)
{
    for (uint32_t i = 0; i < BIASES_NETS; i++) {
        net n = { 0 };
        gp_error err;
        char what[40];

        REQUIRE_OK(biases_net(&n, i, &err), err);
        snprintf(what, sizeof(what), "biases, network %u", i);
        check_first_styles(&n, SHORT_STYLES, 4, 0.15, what);
        net_free(&n);
    }
}

/* Networks with weights of several sizes. The tensors of the first are aligned to vectors in the
 * blob; those of the second begin at any element, and their sizes are odd. */
static gp_status weights_net(net *n, bool odd, gp_error *err)
{
    return chain_net(n, gp_shape3(3, 9, 8), 200,
                     (const net_layer[]){ { "conv2d", odd ? "channels=5;kernel=3" : "channels=16;kernel=3" },
                                          { "relu", NULL },
                                          { "conv2d", odd ? "channels=9;kernel=2" : "channels=8;kernel=3" },
                                          { "relu", NULL },
                                          { "fc", odd ? "outputs=5" : "outputs=12" },
                                          { "fc", odd ? "outputs=7" : "outputs=8" },
                                          { "crossentropy", NULL },
                                          { NULL, NULL } },
                     err);
}

TEST(weights_at_any_element_of_the_blob_match_the_oracle)
{
    for (int odd = 0; odd < 2; odd++) {
        net n = { 0 };
        gp_error err;

        REQUIRE_OK(weights_net(&n, odd != 0, &err), err);
        check_styles(&n, 6, 0.4, odd ? "odd weights" : "aligned weights"); /* two kinks, few pixels */
        net_free(&n);
    }
}

#ifndef GP_ON_DEVICE
/* Return the sum of squares of the gradients of parameter `index`, or of all that learn. */
static double squares_of(const kept *k, uint32_t index)
{
    const gp_graph *graph = k->n->graph;
    double sum = 0;

    for (uint32_t p = 0; p < graph->parameter_count; p++)
        for (int64_t i = 0; i < graph->parameters[p].count; i++) {
            double g = k->plan->buffers.gradients[graph->parameters[p].offset + (size_t)i];

            if (gp_parameter_learns(&graph->parameters[p]) && (index == p || index == UINT32_MAX))
                sum += g * g;
        }
    return sum;
}

static void check_clip_factors(const net *n, bool global)
{
    const double threshold = 1e-3;
    char options[160];
    kept k;

    snprintf(options, sizeof(options), "{\"gradient-threshold\":%g,\"gradient-threshold-method\":\"%s\"}",
             threshold, global ? "global-l2norm" : "l2norm");
    kept_train(&k, n, options);
    for (uint32_t p = 0; p < (global ? 1 : n->graph->parameter_count); p++) {
        const double limit = threshold * k.plan->buffers.sums[GP_SUM_WEIGHT],
                     norm = sqrt(squares_of(&k, global ? UINT32_MAX : p));

        CHECK_NEAR(norm > limit ? limit / norm : 1.0, k.plan->resident->tables.clip_factors[p], 1e-6);
    }
    kept_close(&k);
}

/* The first product has more than 2^20 weights, so its gradient has more pieces than partial sums
 * of squares. The sizes are no multiples of four. */
TEST(clipping_factors_follow_from_the_norms_of_large_and_odd_tensors)
{
    net n = { 0 };
    gp_error err;

    REQUIRE_OK(chain_net(&n, gp_shape3(3, 25, 25), 200,
                         (const net_layer[]){ { "fc", "outputs=1181" }, { "batchnorm", NULL }, HEAD }, &err),
               err);
    check_clip_factors(&n, false);
    check_clip_factors(&n, true);
    net_free(&n);
}
#endif

enum { LOCKED_STEPS = 12 };

/* Train on rows of one buffer, which is overwritten with the rows of the next step as soon as the
 * device has read it. Set *loss to the last loss. */
static void locked_train(const net *n, bool lock, double *loss)
{
    const size_t samples = (size_t)KEPT_BATCH * n->pixels, targets = KEPT_BATCH * n->graph->target_bytes;
    const size_t bytes = (samples / 64 + 1) * 64 + targets;
    char *memory = gp_aligned_calloc(4096, bytes);
    char *labels = memory + bytes - targets;
    gp_step_reported reported = { .counts = false };
    uint32_t blobs;
    uint64_t *t;
    bool resident;
    gp_error err;
    kept k;

    kept_open(&k, n, "{\"solver\":\"adam\"}");
    const float *state = gp_optim_state(k.optim, &blobs, &t);

    REQUIRE_OK(cuda()->steps->make_resident(
                   k.plan,
                   &(gp_resident_request){ .options = &k.options, .state = state, .state_blobs = blobs },
                   &resident, &err),
               err);
    if (lock)
        REQUIRE_OK(cuda()->steps->lock(k.plan, memory, bytes, &err), err);
    for (int at = 0; at < LOCKED_STEPS; at++) {
        gp_batch batch = kept_batch(n, at % KEPT_STEPS);
        gp_step_call call = { .batch = batch, .learn_rate = 0.05, .samples = KEPT_BATCH };

        while (cuda()->steps->reading(k.plan) > 0)
            sched_yield();
        memcpy(memory, batch.samples, samples);
        memcpy(labels, batch.targets, targets);
        call.batch.samples = memory;
        call.batch.targets = labels;
        call.batch.step = (uint64_t)at;
        REQUIRE_OK(cuda()->steps->launch(k.plan, &call, &err), err);
        if (at > 0)
            REQUIRE_OK(cuda()->steps->reported(k.plan, &reported, &err), err);
    }
    REQUIRE_OK(cuda()->steps->reported(k.plan, &reported, &err), err);
    *loss = reported.sums[GP_SUM_LOSS];
    kept_close(&k);
    gp_free(memory);
}

TEST(samples_in_locked_memory_are_read_after_the_launch)
{
    double copied = -1, locked = -2;
    net n = { 0 };
    gp_error err;

    REQUIRE_OK(
        chain_net(&n, gp_shape3(3, 32, 32), 200,
                  (const net_layer[]){ { "conv2d", "channels=2;kernel=3;stride=4" }, { "relu", NULL }, HEAD },
                  &err),
        err);
    locked_train(&n, false, &copied);
    locked_train(&n, true, &locked);
    CHECK_NEAR(copied, locked, 0);
    net_free(&n);
}

typedef struct ended {
    net n;
    kept k;
    float *before;
} ended;

/* Commit one step. Later steps must not change these parameters. */
static void ended_open(ended *e)
{
    gp_step_call call = { .learn_rate = 0.05, .samples = KEPT_BATCH };
    gp_step_reported reported;
    uint32_t blobs;
    uint64_t *t;
    bool resident;
    gp_error err;

    *e = (ended){ 0 };
    REQUIRE_OK(
        chain_net(&e->n, gp_shape3(3, 8, 8), 200,
                  (const net_layer[]){ { "conv2d", "channels=5;kernel=3" }, { "batchnorm", NULL }, HEAD },
                  &err),
        err);
    kept_open(&e->k, &e->n, "{\"solver\":\"adam\"}");
    const float *state = gp_optim_state(e->k.optim, &blobs, &t);

    REQUIRE_OK(cuda()->steps->make_resident(
                   e->k.plan,
                   &(gp_resident_request){ .options = &e->k.options, .state = state, .state_blobs = blobs },
                   &resident, &err),
               err);
    for (int at = 0; at < 2; at++) {
        call.batch = kept_batch(&e->n, at);
        REQUIRE_OK(cuda()->steps->launch(e->k.plan, &call, &err), err);
        REQUIRE_OK(cuda()->steps->reported(e->k.plan, &reported, &err), err);
    }
    e->before = gp_calloc(e->n.graph->blob_count, sizeof(float));
    REQUIRE_OK(cuda()->steps->fetch(e->k.plan, e->before, NULL, &err), err);
}

static void ended_close(ended *e)
{
    gp_error err;

    REQUIRE_OK(cuda()->steps->fetch(e->k.plan, e->k.parameters, NULL, &err), err);
    CHECK(memcmp(e->before, e->k.parameters, e->n.graph->blob_count * sizeof(float)) == 0);
    kept_close(&e->k);
    gp_free(e->before);
    net_free(&e->n);
}

TEST(nan_loss_invalidates_all_later_steps)
{
    gp_step_call call = { .learn_rate = NAN, .samples = KEPT_BATCH };
    gp_step_reported reported;
    ended e;
    gp_error err;

    ended_open(&e);
    call.batch = kept_batch(&e.n, 2);
    REQUIRE_OK(cuda()->steps->launch(e.k.plan, &call, &err), err); /* the weights become NaN */
    call.learn_rate = 0.05;
    REQUIRE_OK(cuda()->steps->launch(e.k.plan, &call, &err), err);
    REQUIRE_OK(cuda()->steps->reported(e.k.plan, &reported, &err), err);
    CHECK(reported.counts && reported.committed);
    REQUIRE_OK(cuda()->steps->reported(e.k.plan, &reported, &err), err);
    CHECK(!reported.counts && !reported.committed &&
          reported.sums[GP_SUM_LOSS] != reported.sums[GP_SUM_LOSS]);
    REQUIRE_OK(cuda()->steps->fetch(e.k.plan, e.before, NULL, &err), err);
    for (int at = 0; at < 2; at++) {
        REQUIRE_OK(cuda()->steps->launch(e.k.plan, &call, &err), err);
        REQUIRE_OK(cuda()->steps->reported(e.k.plan, &reported, &err), err);
        CHECK(!reported.counts && !reported.committed);
    }
    ended_close(&e);
}

TEST(step_without_weight_changes_nothing)
{
    int32_t ignored[KEPT_BATCH];
    gp_step_call call = { .learn_rate = 0.05, .samples = KEPT_BATCH, .stop = true };
    gp_step_reported reported;
    ended e;
    gp_error err;

    ended_open(&e);
    for (int i = 0; i < KEPT_BATCH; i++)
        ignored[i] = -1;
    call.batch = kept_batch(&e.n, 2);
    call.batch.targets = ignored;
    REQUIRE_OK(cuda()->steps->launch(e.k.plan, &call, &err), err);
    REQUIRE_OK(cuda()->steps->reported(e.k.plan, &reported, &err), err);
    CHECK(reported.counts && !reported.committed && reported.stop && !reported.pause);
    CHECK_NEAR(0, reported.sums[GP_SUM_WEIGHT], 0);
    ended_close(&e);
}

TEST(halt_starts_no_step_and_reports_the_earlier_ones)
{
    gp_step_call call = { .learn_rate = 0.05, .samples = KEPT_BATCH };
    gp_step_reported reported;
    ended e;
    gp_error err;

    ended_open(&e);
    call.batch = kept_batch(&e.n, 2);
    REQUIRE_OK(cuda()->steps->launch(e.k.plan, &call, &err), err);
    REQUIRE_OK(cuda()->steps->halt(e.k.plan, &err), err);
    REQUIRE_OK(cuda()->steps->reported(e.k.plan, &reported, &err), err);
    CHECK_STATUS(GP_ESTATE, cuda()->steps->launch(e.k.plan, &call, &err));
    CHECK_STATUS(GP_ESTATE, cuda()->steps->reported(e.k.plan, &reported, &err));
    REQUIRE_OK(cuda()->steps->fetch(e.k.plan, e.k.parameters, NULL, &err), err);
    CHECK(reported.counts == (memcmp(e.before, e.k.parameters, e.n.graph->blob_count * sizeof(float)) != 0));
    REQUIRE_OK(cuda()->steps->fetch(e.k.plan, e.before, NULL, &err), err);
    ended_close(&e);
}

#ifndef GP_ON_DEVICE
/* Compare the first order of threads with the others. A kernel that reads the output of another
 * thread without a barrier gives different results. */
static void check_orders(const net *n, gp_phase phase, uint32_t count, const way *w, const char *what)
{
    result r[SIMT_EACH];
    gp_error err;

    for (simt_order order = SIMT_FORWARDS; order < SIMT_EACH; order++) {
        REQUIRE_OK(result_new(&r[order], n), err);
        simt_set_order(order);
        CHECK_STATUS(GP_OK, net_run(n, w, phase, count, &r[order], &err));
        simt_set_order(SIMT_EACH);
        if (memcmp(r[0].gradients, r[order].gradients, n->graph->blob_count * sizeof(float)) != 0 ||
            memcmp(r[0].scores, r[order].scores, (size_t)count * n->graph->score_count * sizeof(float)) !=
                0 ||
            memcmp(r[0].sums, r[order].sums, sizeof(r[0].sums)) != 0)
            GP_TEST_FAIL("%s, %s %s: order %d of threads gives another result", what, w->kernels,
                         gp_precision_names[w->precision], (int)order);
    }
    for (simt_order order = SIMT_FORWARDS; order < SIMT_EACH; order++)
        result_free(&r[order]);
}

static void check_every_order(const net *n, uint32_t count, const char *what)
{
    way w = { .ops = cuda(), .kernels = "packed,own", .threads = 1, .dtype = GP_U8 };

    for (w.precision = GP_PRECISION_F32; w.precision <= GP_PRECISION_BF16; w.precision++) {
        check_orders(n, GP_PHASE_TRAIN, count, &w, what);
        check_orders(n, GP_PHASE_INFER, count, &w, what);
    }
}

static void check_kept_in_every_order(const net *n, const char *options)
{
    kept k[SIMT_EACH];
    const float *states[SIMT_EACH];
    uint32_t blobs;
    uint64_t *t;

    for (simt_order order = SIMT_FORWARDS; order < SIMT_EACH; order++) {
        simt_set_order(order);
        kept_train(&k[order], n, options);
        simt_set_order(SIMT_EACH);
        states[order] = gp_optim_state(k[order].optim, &blobs, &t);
        if (memcmp(k[0].parameters, k[order].parameters, n->graph->blob_count * sizeof(float)) != 0 ||
            memcmp(states[0], states[order], blobs * n->graph->blob_count * sizeof(float)) != 0)
            GP_TEST_FAIL("%s: order %d of threads gives another training", options, (int)order);
    }
    for (simt_order order = SIMT_FORWARDS; order < SIMT_EACH; order++)
        kept_close(&k[order]);
}

TEST(threads_in_any_order_give_bitwise_identical_results)
{
    net n = { 0 };
    gp_error err;

    for (size_t i = 0; gp_kinds[i] != NULL; i++) {
        REQUIRE_OK(kind_net(&n, gp_kinds[i], &gp_kinds[i]->checks[0], &err), err);
        check_every_order(&n, gp_kinds[i]->checks[0].samples, gp_kinds[i]->name);
        net_free(&n);
    }
    REQUIRE_OK(residual_net(&n, "8", &err), err);
    check_every_order(&n, 7, "residual");
    for (int i = 0; i < KEPT_OPTIONS; i++)
        check_kept_in_every_order(&n, kept_options[i]);
    net_free(&n);
    for (int odd = 0; odd < 2; odd++) {
        way w = { .ops = cuda(), .kernels = "packed", .threads = 1, .dtype = GP_U8 };

        REQUIRE_OK(weights_net(&n, odd != 0, &err), err);
        for (w.precision = GP_PRECISION_F32; w.precision <= GP_PRECISION_BF16; w.precision++)
            check_orders(&n, GP_PHASE_TRAIN, 5, &w, "weights");
        net_free(&n);
    }
    for (uint32_t i = 0; i < BIASES_NETS; i++) {
        REQUIRE_OK(biases_net(&n, i, &err), err);
        check_every_order(&n, 5, "biases");
        net_free(&n);
    }
    for (uint32_t i = 0; i < FEW_NETS; i++) {
        way w = { .ops = cuda(), .kernels = "dense,own", .threads = 1, .dtype = GP_U8 };

        REQUIRE_OK(few_channels_net(&n, i, &err), err);
        check_orders(&n, GP_PHASE_TRAIN, 3, &w, "few channels");
        net_free(&n);
    }
    for (uint32_t i = 0; i < CHANNELS_NETS; i++) {
        REQUIRE_OK(channels_net(&n, i, &err), err);
        check_every_order(&n, 5, "channels");
        net_free(&n);
    }
    for (int i = 0; i < 2 * CLASSES_NETS; i++) {
        many_classes_net(&n, 36 + i % 2, i / 2);
        check_every_order(&n, 6, "many classes");
        net_free(&n);
    }
}
#endif
