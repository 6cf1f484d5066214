/* test_backend.c: the lane kernels of the CPU backend against the float64 oracle: every op,
 * instruction set and batch split. The bound is the documented one: 1e-5 relative to the gradient
 * norm. */
#include "tests/gp_test.h"

#include "tests/worker/backend/backend_check.h"

#define TOLERANCE 1e-5

static const char *const instruction_sets[] = { "baseline", "avx2", "avx512" };

static bool can_run(const char *kernels)
{
    gp_backend_options options = { .threads = 1, .kernels = kernels };
    gp_backend *backend = NULL;
    bool can = gp_backend_cpu.open(&backend, &options, NULL) == GP_OK;

    gp_backend_cpu.close(backend);
    return can;
}

static void check_sums(const double *expected, const double *got, const char *what)
{
    for (int i = 0; i < GP_SUMS; i++)
        if (!(fabs(got[i] - expected[i]) <= TOLERANCE * (1 + fabs(expected[i]))))
            GP_TEST_FAIL("%s: sum %d is %.9g, expected %.9g", what, i, got[i], expected[i]);
}

static void check_train(const net *n, const way *w, uint32_t count, const gp_ref_run *oracle,
                        const char *what)
{
    result r;
    gp_error err;
    double error;

    REQUIRE_OK(result_new(&r, n), err);
    if (net_run(n, w, GP_PHASE_TRAIN, count, &r, &err) != GP_OK) {
        GP_TEST_FAIL("%s with %s: %s", what, w->kernels, err.message);
    } else {
        error = gradient_error(n, r.gradients, oracle->gradients);
        if (!(error <= TOLERANCE))
            GP_TEST_FAIL("%s with %s, %u threads, %u samples: gradient off by %g", what, w->kernels,
                         w->threads, count, error);
        check_sums(oracle->sums, r.sums, what);
    }
    result_free(&r);
}

static void check_infer(const net *n, const way *w, uint32_t count, const gp_ref_run *oracle,
                        const char *what)
{
    size_t classes = n->graph->score_count;
    result r;
    gp_error err;

    REQUIRE_OK(result_new(&r, n), err);
    if (net_run(n, w, GP_PHASE_INFER, count, &r, &err) != GP_OK)
        GP_TEST_FAIL("%s with %s: %s", what, w->kernels, err.message);
    else if (!(gp_ref_error_f32(oracle->scores, r.scores, count * classes) <= TOLERANCE))
        GP_TEST_FAIL("%s with %s: scores are off", what, w->kernels);
    else
        check_sums(oracle->sums, r.sums, what);
    result_free(&r);
}

/* Check all instruction sets on one and two threads: fused, direct, unfused, and split into
 * segments. */
static void check_all_ways(const net *n, uint32_t count, const char *what)
{
    static const char *const styles[] = { "", ",direct", ",unfused", ",split" };
    gp_ref_run *train = ask_oracle(n, GP_PHASE_TRAIN, count), *infer = ask_oracle(n, GP_PHASE_INFER, count);

    for (size_t i = 0; i < 3; i++) {
        if (!can_run(instruction_sets[i]))
            continue;
        for (size_t k = 0; k < 4; k++) {
            char kernels[32];
            way w = { .kernels = kernels, .threads = 1 + k % 2, .dtype = k % 2 == 0 ? GP_U8 : GP_F32 };

            snprintf(kernels, sizeof(kernels), "%s%s", instruction_sets[i], styles[k]);
            check_train(n, &w, count, train, what);
            check_infer(n, &w, count, infer, what);
        }
    }
    gp_ref_run_free(train);
    gp_ref_run_free(infer);
}

/* ---- all layer kinds ---- */

TEST(every_kind_gives_the_oracles_gradients_sums_and_scores)
{
    for (size_t i = 0; gp_kinds[i] != NULL; i++) {
        for (const gp_kind_check *check = gp_kinds[i]->checks; check->samples != 0; check++) {
            net n = { 0 };
            gp_error err;
            char what[128];

            snprintf(what, sizeof(what), "%s(%s)", gp_kinds[i]->name,
                     check->settings == NULL ? "" : check->settings);
            REQUIRE_OK(kind_net(&n, gp_kinds[i], check, &err), err);
            check_all_ways(&n, check->samples, what);
            if (check == gp_kinds[i]->checks)
                check_all_ways(&n, 19, what);
            net_free(&n);
        }
    }
}

/* ---- whole networks ---- */

static gp_status lenet(net *n, gp_error *err)
{
    gp_status status = gp_zoo_build(&n->spec, "lenet", NULL, 0, err);

    return status == GP_OK ? net_fill(n, 200, err) : status;
}

static void check_chain(gp_shape input, uint32_t levels, const net_layer *layers, uint32_t count,
                        const char *what)
{
    net n = { 0 };
    gp_error err;

    REQUIRE_OK(chain_net(&n, input, levels, layers, &err), err);
    check_all_ways(&n, count, what);
    net_free(&n);
}

#define HEAD                                                                                                 \
    { "fc", "outputs=7" }, { "crossentropy", NULL },                                                         \
    {                                                                                                        \
        NULL, NULL                                                                                           \
    }

TEST(lenet_gives_the_oracles_gradients_sums_and_scores)
{
    static const uint32_t counts[] = { 17, 3, 1 };
    net n = { 0 };
    gp_error err;

    REQUIRE_OK(lenet(&n, &err), err);
    for (size_t i = 0; i < 3; i++)
        check_all_ways(&n, counts[i], "lenet");
    net_free(&n);
}

/* Freeze layers with weights; bit i of the mask: the i-th one. */
static void freeze(gp_netspec *spec, uint32_t mask)
{
    for (uint32_t i = 0; i < spec->layer_count; i++) {
        const char *kind = spec->layers[i].kind->name;
        gp_layer_factors *factors = &spec->layers[i].factors;

        if (strcmp(kind, "conv2d") != 0 && strcmp(kind, "fc") != 0)
            continue;
        if (mask & 1)
            factors->weight_learn_rate = factors->bias_learn_rate = 0;
        mask >>= 1;
    }
}

TEST(freezing_layers_leaves_other_gradients_unchanged)
{
    net whole = { 0 };
    gp_error err;

    REQUIRE_OK(lenet(&whole, &err), err);
    gp_ref_run *oracle = ask_oracle(&whole, GP_PHASE_TRAIN, 3);

    for (uint32_t mask = 1; mask < 15; mask++) {
        static const char *const ways[] = { "baseline", "avx2,direct",    "avx2",
                                            "avx512",   "avx512,unfused", "baseline,split" };
        net n = { 0 };

        REQUIRE_OK(gp_zoo_build(&n.spec, "lenet", NULL, 0, &err), err);
        freeze(n.spec, mask);
        REQUIRE_OK(net_fill(&n, 200, &err), err);
        for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
            if (can_run(ways[i]))
                check_train(&n, &(way){ .kernels = ways[i], .threads = 1 + i % 2, .dtype = GP_U8 }, 3, oracle,
                            "lenet, partly frozen");
        net_free(&n);
    }
    gp_ref_run_free(oracle);
    net_free(&whole);
}

TEST(padded_convolutions_before_pools_match_the_oracle)
{
    check_chain(gp_shape3(1, 12, 14), 200,
                (const net_layer[]){ { "conv2d", "channels=6;kernel=5;padding=2" },
                                     { "relu", NULL },
                                     { "avgpool", "kernel=2" },
                                     { "conv2d", "channels=11;kernel=3;padding=1" },
                                     { "relu", NULL },
                                     { "maxpool", "kernel=2" },
                                     HEAD },
                21, "padded");
}

TEST(winograd_of_three_and_five_with_padding_and_odd_sizes_matches_the_oracle)
{
    check_chain(gp_shape3(9, 15, 13), 200,
                (const net_layer[]){ { "conv2d", "channels=13;kernel=3;padding=1" },
                                     { "relu", NULL },
                                     { "avgpool", "kernel=2" },
                                     { "conv2d", "channels=17;kernel=5;padding=2,1,2,3" },
                                     { "relu", NULL },
                                     { "avgpool", "kernel=2" },
                                     HEAD },
                11, "winograd");
}

TEST(kernels_of_one_and_seven_and_convolutions_without_pools_match_the_oracle)
{
    check_chain(gp_shape3(3, 17, 16), 200,
                (const net_layer[]){ { "conv2d", "channels=5;kernel=7;padding=3" },
                                     { "relu", NULL },
                                     { "conv2d", "channels=9;kernel=1" },
                                     { "relu", NULL },
                                     { "maxpool", "kernel=2" },
                                     { "conv2d", "channels=7;kernel=7" },
                                     { "conv2d", "channels=10;kernel=1;bias=false" },
                                     { "relu", NULL },
                                     HEAD },
                9, "one and seven");
}

TEST(groups_dilation_and_stride_match_the_oracle)
{
    check_chain(
        gp_shape3(4, 13, 12), 200,
        (const net_layer[]){ { "conv2d", "channels=6;kernel=3;groups=2;padding=1" },
                             { "relu", NULL },
                             { "conv2d", "channels=8;kernel=3,2;stride=2,1;dilation=1,2;padding=1,0,2,1" },
                             { "maxpool", "kernel=3;stride=2;padding=1" },
                             { "relu", NULL },
                             { "conv2d", "channels=5;kernel=2" },
                             HEAD },
        18, "groups");
}

TEST(ties_in_maximum_pools_go_to_the_first_pixel)
{
    check_chain(gp_shape3(1, 12, 12), 2,
                (const net_layer[]){ { "conv2d", "channels=8;kernel=1" },
                                     { "relu", NULL },
                                     { "conv2d", "channels=9;kernel=3;padding=1" },
                                     { "relu", NULL },
                                     { "maxpool", "kernel=2" },
                                     { "maxpool", "kernel=3;stride=1" },
                                     HEAD },
                33, "ties");
}

/* Check that a NaN in any pixel of a pool's window reaches the scores, loss and gradients. */
static void check_nan(const net *n, const char *kernels, const char *what)
{
    const size_t width = (size_t)n->spec->input.dim[2], classes = n->graph->score_count;
    const way w = { .kernels = kernels, .threads = 1, .dtype = GP_F32 };

    for (size_t pixel = 0; pixel < 4; pixel++) {
        float *at = n->floats + pixel / 2 * width + pixel % 2, number = *at;
        gp_error err;
        result r;

        *at = NAN;
        REQUIRE_OK(result_new(&r, n), err);
        REQUIRE_OK(net_run(n, &w, GP_PHASE_INFER, 2, &r, &err), err);
        if (!isnan(r.scores[0]) || isnan(r.scores[classes]))
            GP_TEST_FAIL("%s with %s: NaN in pixel %zu gives the score %g", what, kernels, pixel,
                         r.scores[0]);
        REQUIRE_OK(net_run(n, &w, GP_PHASE_TRAIN, 2, &r, &err), err);
        /* gradient of the first weight of the convolution */
        if (!isnan(r.sums[GP_SUM_LOSS]) || !isnan(r.gradients[n->graph->parameters[0].offset]))
            GP_TEST_FAIL("%s with %s: NaN in pixel %zu gives the loss %g and the gradient %g", what, kernels,
                         pixel, r.sums[GP_SUM_LOSS], r.gradients[n->graph->parameters[0].offset]);
        result_free(&r);
        *at = number;
    }
}

TEST(nan_in_any_pixel_of_a_maximum_pool_reaches_the_loss)
{
    static const net_layer fused[] = {
        { "conv2d", "channels=8;kernel=1" }, { "relu", NULL }, { "maxpool", "kernel=2" }, HEAD
    };
    static const net_layer separate[] = {
        { "conv2d", "channels=8;kernel=1" }, { "maxpool", "kernel=2" }, { "relu", NULL }, HEAD
    };
    static const char *const styles[] = { "", ",unfused", ",split" };
    net n[2] = { { 0 } };
    gp_error err;

    REQUIRE_OK(chain_net(&n[0], gp_shape3(1, 8, 8), 200, fused, &err), err);
    REQUIRE_OK(chain_net(&n[1], gp_shape3(1, 8, 8), 200, separate, &err), err);
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 3 && can_run(instruction_sets[i]); k++) {
            char kernels[32];

            snprintf(kernels, sizeof(kernels), "%s%s", instruction_sets[i], styles[k]);
            check_nan(&n[0], kernels, "pool after relu");
            check_nan(&n[1], kernels, "relu after pool");
        }
    net_free(&n[0]);
    net_free(&n[1]);
}

TEST(dropout_draws_the_same_masks_as_the_oracle)
{
    check_chain(gp_shape3(2, 9, 9), 200,
                (const net_layer[]){ { "conv2d", "channels=4;kernel=3" },
                                     { "relu", NULL },
                                     { "dropout", "rate=0.3" },
                                     { "avgpool", "kernel=2" },
                                     { "fc", "outputs=33" },
                                     { "relu", NULL },
                                     { "dropout", NULL },
                                     HEAD },
                35, "dropout");
}

TEST(narrow_images_and_fully_connected_networks_match_the_oracle)
{
    check_chain(gp_shape3(2, 6, 3), 200,
                (const net_layer[]){ { "conv2d", "channels=9;kernel=3;padding=1" },
                                     { "relu", NULL },
                                     { "conv2d", "channels=8;kernel=3;padding=1" },
                                     { "relu", NULL },
                                     { "avgpool", "kernel=2" },
                                     HEAD },
                5, "narrow");
    check_chain(gp_shape3(61, 1, 1), 200,
                (const net_layer[]){
                    { "fc", "outputs=45" }, { "relu", NULL }, { "fc", "outputs=19;bias=false" }, HEAD },
                40, "fully connected");
}

TEST(values_with_several_readers_match_the_oracle)
{
    const gp_shape input = gp_shape3(3, 10, 10);
    const char *const skip[] = { "pool", "conv2" };
    net n = { 0 };
    gp_error err;

    REQUIRE_OK(gp_netspec_new(&n.spec, "skip", &input, &err), err);
    REQUIRE_OK(gp_netspec_add(n.spec, "conv1", "conv2d", "channels=8;kernel=3", &err), err);
    REQUIRE_OK(gp_netspec_add(n.spec, "relu1", "relu", NULL, &err), err);
    REQUIRE_OK(gp_netspec_add(n.spec, "pool", "avgpool", "kernel=2", &err), err);
    REQUIRE_OK(gp_netspec_add(n.spec, "conv2", "conv2d", "channels=8;kernel=3;padding=1", &err), err);
    REQUIRE_OK(gp_netspec_add(n.spec, "sum", "add", NULL, &err), err);
    REQUIRE_OK(gp_netspec_connect(n.spec, skip, 2, &err), err);
    REQUIRE_OK(gp_netspec_add(n.spec, "relu2", "relu", NULL, &err), err);
    REQUIRE_OK(gp_netspec_add(n.spec, "head", "fc", "outputs=6", &err), err);
    REQUIRE_OK(gp_netspec_add(n.spec, "loss", "crossentropy", NULL, &err), err);
    REQUIRE_OK(net_fill(&n, 200, &err), err);
    check_all_ways(&n, 14, "skip");
    net_free(&n);
}

TEST(gradient_error_of_a_hundredth_of_a_percent_is_detected)
{
    net n = { 0 };
    gp_ref_run *oracle;
    float *wrong;
    gp_error err;

    REQUIRE_OK(lenet(&n, &err), err);
    oracle = ask_oracle(&n, GP_PHASE_TRAIN, 3);
    wrong = gp_calloc(n.graph->blob_count, sizeof(float));
    for (size_t i = 0; i < n.graph->blob_count; i++)
        wrong[i] = (float)oracle->gradients[i];
    CHECK(gradient_error(&n, wrong, oracle->gradients) <= TOLERANCE);
    for (size_t i = 0; i < (size_t)n.graph->parameters[0].count; i++)
        wrong[n.graph->parameters[0].offset + i] *= 1.0001f;
    CHECK(gradient_error(&n, wrong, oracle->gradients) > TOLERANCE);
    gp_free(wrong);
    gp_ref_run_free(oracle);
    net_free(&n);
}
