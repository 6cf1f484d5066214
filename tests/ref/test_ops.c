/* test_ops.c: the oracle itself, compared with hand-computed numbers from ops.def. */
#include "common/base/rng.h"
#include "common/model/graph/graph.h"
#include "tests/gp_test.h"
#include "tests/ref/ops.h"
#include "tests/ref/run.h"

static void check_values(const char *what, const double *expected, const double *got, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!(fabs(expected[i] - got[i]) <= 1e-12))
            GP_TEST_FAIL("%s[%zu] is %.17g, expected %.17g", what, i, got[i], expected[i]);
}

#define CHECK_VALUES(expected, got)                                                                          \
    check_values(#got, expected, got, sizeof(expected) / sizeof((expected)[0]))

static gp_op window_op(gp_opcode code, gp_window window)
{
    gp_op op = gp_op_init(code);

    op.window = window;
    return op;
}

TEST(every_op_has_its_loop_and_its_name)
{
    for (int code = 0; code < GP_OP_COUNT; code++) {
        bool own = code == GP_OP_CUSTOM || code == GP_OP_CUSTOM_BACKWARD || code == GP_OP_CUSTOM_LOSS;

        /* these are internal to a backend */
        CHECK((gp_ref_op_find((gp_opcode)code) == NULL) == own);
        CHECK(strcmp(gp_op_name((gp_opcode)code), "unknown") != 0);
    }
    CHECK_TEXT("unknown", gp_op_name(GP_OP_COUNT));
}

TEST(conv2d_correlates_with_padding_at_the_top_and_left)
{
    double x[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 }, w[] = { 1, 10, 100, 1000 }, b[] = { 0.5 }, y[9];
    const double expected[] = { 1000.5, 2100.5, 3200.5, 4010.5, 5421.5, 6532.5, 7040.5, 8754.5, 9865.5 };
    gp_op op = window_op(GP_OP_CONV2D, (gp_window){ .kernel = { 2, 2 },
                                                    .stride = { 1, 1 },
                                                    .dilation = { 1, 1 },
                                                    .padding = { 1, 1, 0, 0 },
                                                    .groups = 1 });

    gp_ref_conv2d(&(gp_ref_call){
        .op = &op,
        .samples = 1,
        .in = { { gp_shape3(1, 3, 3), x }, { gp_shape4(1, 1, 2, 2), w }, { gp_shape1(1), b } },
        .out = { { gp_shape3(1, 3, 3), y } } });
    CHECK_VALUES(expected, y);
}

/* Output ox of group g reads channel g at columns 3 ox and 3 ox + 2 in row 1: a padding of -1 skips
 * row 0. */
TEST(conv2d_knows_groups_strides_and_dilation)
{
    double x[2 * 2 * 6], w[] = { 1, 100, 2, 200 }, y[4];
    const double expected[] = { 6 + 800, 9 + 1100, 36 + 4000, 42 + 4600 };
    gp_op op = window_op(GP_OP_CONV2D, (gp_window){ .kernel = { 1, 2 },
                                                    .stride = { 2, 3 },
                                                    .dilation = { 1, 2 },
                                                    .padding = { -1, 0, 0, 0 },
                                                    .groups = 2 });

    for (int i = 0; i < 24; i++)
        x[i] = i;
    gp_ref_conv2d(&(gp_ref_call){ .op = &op,
                                  .samples = 1,
                                  .in = { { gp_shape3(2, 2, 6), x }, { gp_shape4(2, 1, 1, 2), w } },
                                  .out = { { gp_shape3(2, 1, 2), y } } });
    CHECK_VALUES(expected, y);
}

TEST(fc_reads_any_shape_as_a_vector_and_its_weight_gradients_accumulate)
{
    double x[] = { 1, 2, 3, 4, 5, 6 }, w[] = { 1, 0, 0, 1, 1, 1 }, b[] = { 10, 20 }, y[4],
           dy[] = { 1, 2, 3, 4 };
    double dw[6] = { 100 }, db[2] = { 0 }, dx[6];
    const double expected_y[] = { 11, 26, 14, 35 };
    const double expected_dw[] = { 113, 17, 21, 18, 24, 30 }, expected_db[] = { 4, 6 };
    const double expected_dx[] = { 3, 2, 2, 7, 4, 4 };
    gp_op op = gp_op_init(GP_OP_FC);

    gp_ref_call call = { .op = &op,
                         .samples = 2,
                         .in = { { gp_shape3(1, 3, 1), x }, { gp_shape2(2, 3), w }, { gp_shape1(2), b } },
                         .out = { { gp_shape1(2), y } } };
    gp_ref_fc(&call);
    CHECK_VALUES(expected_y, y);
    call = (gp_ref_call){ .op = &op,
                          .samples = 2,
                          .in = { { gp_shape3(1, 3, 1), x }, { gp_shape1(2), dy } },
                          .out = { { gp_shape2(2, 3), dw }, { gp_shape1(2), db } } };
    gp_ref_fc_backward_weights(&call);
    CHECK_VALUES(expected_dw, dw);
    CHECK_VALUES(expected_db, db);
    call = (gp_ref_call){ .op = &op,
                          .samples = 2,
                          .in = { { gp_shape1(2), dy }, { gp_shape2(2, 3), w } },
                          .out = { { gp_shape3(1, 3, 1), dx } } };
    gp_ref_fc_backward_data(&call);
    CHECK_VALUES(expected_dx, dx);
}

TEST(relu_has_no_gradient_at_zero)
{
    double x[] = { -1, 0, 2 }, y[3], dy[] = { 5, 6, 7 }, dx[3];
    const double expected_y[] = { 0, 0, 2 }, expected_dx[] = { 0, 0, 7 };
    gp_op op = gp_op_init(GP_OP_RELU);

    gp_ref_relu(&(gp_ref_call){
        .op = &op, .samples = 1, .in = { { gp_shape1(3), x } }, .out = { { gp_shape1(3), y } } });
    gp_ref_relu_backward(&(gp_ref_call){ .op = &op,
                                         .samples = 1,
                                         .in = { { gp_shape1(3), y }, { gp_shape1(3), dy } },
                                         .out = { { gp_shape1(3), dx } } });
    CHECK_VALUES(expected_y, y);
    CHECK_VALUES(expected_dx, dx);
}

/* Overlapping 2x2 windows over a 3x3 plane with four equal maxima. */
TEST(max_pooling_takes_the_first_of_equal_pixels_in_row_order)
{
    double x[] = { 1, 7, 0, 7, 2, 7, 0, 7, 3 }, y[4], index[4], dy[] = { 1, 10, 100, 1000 }, dx[9];
    const double expected_y[] = { 7, 7, 7, 7 }, expected_index[] = { 1, 1, 3, 5 };
    const double expected_dx[] = { 0, 11, 0, 100, 0, 1000, 0, 0, 0 };
    gp_op op = window_op(
        GP_OP_POOL, (gp_window){ .kernel = { 2, 2 }, .stride = { 1, 1 }, .dilation = { 1, 1 }, .groups = 1 });

    gp_ref_pool(&(gp_ref_call){ .op = &op,
                                .samples = 1,
                                .in = { { gp_shape3(1, 3, 3), x } },
                                .out = { { gp_shape3(1, 2, 2), y }, { gp_shape3(1, 2, 2), index } } });
    CHECK_VALUES(expected_y, y);
    CHECK_VALUES(expected_index, index);
    gp_ref_pool_backward(&(gp_ref_call){ .op = &op,
                                         .samples = 1,
                                         .in = { { gp_shape3(1, 2, 2), dy }, { gp_shape3(1, 2, 2), index } },
                                         .out = { { gp_shape3(1, 3, 3), dx } } });
    CHECK_VALUES(expected_dx, dx);
}

TEST(max_pooling_never_takes_padding_even_when_all_is_negative)
{
    double x[] = { -4, -3, -2, -1 }, y[4], index[4];
    const double expected_y[] = { -4, -3, -2, -1 }, expected_index[] = { 0, 1, 2, 3 };
    gp_op op = window_op(GP_OP_POOL, (gp_window){ .kernel = { 2, 2 },
                                                  .stride = { 2, 2 },
                                                  .dilation = { 1, 1 },
                                                  .padding = { 1, 1, 1, 1 },
                                                  .groups = 1 });

    gp_ref_pool(&(gp_ref_call){ .op = &op,
                                .samples = 1,
                                .in = { { gp_shape3(1, 2, 2), x } },
                                .out = { { gp_shape3(1, 2, 2), y }, { gp_shape3(1, 2, 2), index } } });
    CHECK_VALUES(expected_y, y);
    CHECK_VALUES(expected_index, index);
}

TEST(average_pooling_divides_by_the_pixels_it_saw_unless_padding_counts)
{
    double x[] = { 1, 2, 3, 4 }, y[4], dy[] = { 4, 8, 12, 16 }, dx[4];
    const double own[] = { 1, 2, 3, 4 }, quarter[] = { 0.25, 0.5, 0.75, 1 };
    gp_op op = window_op(GP_OP_POOL, (gp_window){ .kernel = { 2, 2 },
                                                  .stride = { 2, 2 },
                                                  .dilation = { 1, 1 },
                                                  .padding = { 1, 1, 1, 1 },
                                                  .groups = 1 });
    const gp_shape shape = gp_shape3(1, 2, 2);

    op.pool = GP_POOL_AVERAGE;
    gp_ref_pool(&(gp_ref_call){ .op = &op, .samples = 1, .in = { { shape, x } }, .out = { { shape, y } } });
    CHECK_VALUES(own, y);
    gp_ref_pool_backward(
        &(gp_ref_call){ .op = &op, .samples = 1, .in = { { shape, dy } }, .out = { { shape, dx } } });
    CHECK_VALUES(((const double[]){ 4, 8, 12, 16 }), dx);
    op.pool = GP_POOL_AVERAGE_COUNT_PADDING;
    gp_ref_pool(&(gp_ref_call){ .op = &op, .samples = 1, .in = { { shape, x } }, .out = { { shape, y } } });
    CHECK_VALUES(quarter, y);
    gp_ref_pool_backward(
        &(gp_ref_call){ .op = &op, .samples = 1, .in = { { shape, dy } }, .out = { { shape, dx } } });
    CHECK_VALUES(((const double[]){ 1, 2, 3, 4 }), dx);
}

/* The expected mask comes from Philox counters directly, without the oracle's gp_rng_draw()
 * call. */
TEST(dropout_mask_depends_only_on_element_and_sample_position)
{
    enum { ELEMENTS = 6, SAMPLES = 3 };
    const uint64_t seed = 0x123456789abcdef0u;
    const uint32_t key[2] = { 0x9abcdef0u, 0x12345678u };
    double x[ELEMENTS * SAMPLES], y[ELEMENTS * SAMPLES], dx[ELEMENTS * SAMPLES];
    gp_op op = gp_op_init(GP_OP_DROPOUT);
    int kept = 0;

    op.layer = 7;
    op.rate = 0.4;
    for (int i = 0; i < ELEMENTS * SAMPLES; i++)
        x[i] = i + 1;
    gp_ref_call call = { .op = &op,
                         .samples = SAMPLES,
                         .in = { { gp_shape3(1, 2, 3), x } },
                         .out = { { gp_shape3(1, 2, 3), y } },
                         .seed = seed,
                         .step = 21,
                         .position = 1000 };
    gp_ref_dropout(&call);
    for (uint32_t p = 0; p < SAMPLES; p++)
        for (uint32_t e = 0; e < ELEMENTS; e++) {
            const uint32_t counter[4] = { 3u << 24 | 7u, 21, 1000 + p, e / 4 };
            uint32_t words[4];

            gp_philox4x32(words, counter, key);
            bool keep = (words[e % 4] >> 8) * 0x1p-24 >= 0.4;

            kept += keep;
            CHECK_NEAR(keep ? (p * ELEMENTS + e + 1) / 0.6 : 0.0, y[p * ELEMENTS + e], 1e-12);
        }
    CHECK(kept > 0 && kept < ELEMENTS * SAMPLES);
    call.out[0].data = dx;
    gp_ref_dropout_backward(&call);
    CHECK_NEAR(0.0, gp_ref_error(y, dx, ELEMENTS * SAMPLES), 0.0);
}

TEST(softmax_xent_sums_over_samples_and_ignores_unlabeled_ones)
{
    double logits[] = { 0, log(2), log(5), 3, 3, 1, 1000, 0, 0 }, labels[] = { 1, 0, -1 };
    double dlogits[9], scores[9], sums[GP_SUMS] = { 100, 10, 1 };
    const double e = exp(-2), third = 2 + e;
    const double expected_scores[] = { 0.125, 0.25, 0.625, 1 / third, 1 / third, e / third, 1, 0, 0 };
    const double expected_dlogits[] = { 0.125, -0.75, 0.625, 1 / third - 1, 1 / third, e / third, 0, 0, 0 };
    const double expected_sums[GP_SUMS] = { 100 + log(4) + log(third), 12, 2,
                                            2 }; /* ties choose the first class */
    gp_op op = gp_op_init(GP_OP_SOFTMAX_XENT);

    gp_ref_softmax_xent(&(gp_ref_call){
        .op = &op,
        .samples = 3,
        .in = { { gp_shape1(3), logits }, { { 0 }, labels } },
        .out = { { gp_shape1(3), dlogits }, { gp_shape1(3), sums }, { gp_shape1(3), scores } } });
    CHECK_VALUES(expected_scores, scores);
    CHECK_VALUES(expected_dlogits, dlogits);
    CHECK_VALUES(expected_sums, sums);
}

TEST(add_adds_and_reshape_copies)
{
    double a[] = { 1, 2, 3, 4 }, b[] = { 10, 20, 30, 40 }, y[4];
    const double sum[] = { 11, 22, 33, 44 };
    gp_op op = gp_op_init(GP_OP_ADD);

    gp_ref_add(&(gp_ref_call){ .op = &op,
                               .samples = 2,
                               .in = { { gp_shape1(2), a }, { gp_shape1(2), b } },
                               .out = { { gp_shape1(2), y } } });
    CHECK_VALUES(sum, y);
    gp_ref_reshape(&(gp_ref_call){
        .op = &op, .samples = 1, .in = { { gp_shape3(1, 2, 2), a } }, .out = { { gp_shape1(4), y } } });
    CHECK_NEAR(0.0, gp_ref_error(a, y, 4), 0.0);
}

TEST(input_is_the_stored_value_scaled_and_shifted_by_channel)
{
    const gp_shape shape = gp_shape3(2, 1, 2);
    const double scale[] = { 0.5, -2 }, offset[] = { 1, 10 };
    const uint8_t bytes[] = { 0, 255, 1, 2, 4, 6, 8, 10 };
    const float floats[] = { 0.25f, -1, 0, 1 };
    double input[8];
    gp_netspec *spec;
    gp_error err;

    REQUIRE_OK(gp_netspec_new(&spec, "n", &shape, &err), err);
    REQUIRE_OK(gp_netspec_normalize(spec, scale, offset, 2, &err), err);
    gp_ref_input(spec, GP_U8, bytes, 2, input);
    CHECK_VALUES(((const double[]){ 1, 128.5, 8, 6, 3, 4, -6, -10 }), input);
    gp_ref_input(spec, GP_F32, floats, 1, input);
    CHECK_VALUES(((const double[]){ 1.125, 0.5, 10, 8 }), input);
    gp_netspec_free(spec);
}

TEST(error_is_relative_to_the_largest_value_and_infinite_for_nan)
{
    const double expected[] = { 1, -4, 0 }, close[] = { 1.5, -4, 0 }, nan[] = { 1, NAN, 0 },
                 zero[] = { 0, 0, 0 };

    CHECK_NEAR(0.125, gp_ref_error(expected, close, 3), 0.0);
    CHECK(isinf(gp_ref_error(expected, nan, 3)));
    CHECK_NEAR(1.5, gp_ref_error(zero, close, 1), 0.0);
    CHECK_NEAR(0.25, gp_ref_error_f32(expected, (const float[]){ 1, -3, 0 }, 3), 0.0);
}
