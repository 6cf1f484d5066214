/* test_winograd.c: the kernels in winograd.h against plain loops: borders, paddings, partial
 * panels, both number formats, threads. */
#include "tests/gp_test.h"
#include "tests/ref/ops.h"
#include "worker/backend/cpu/base/bf16.h"
#include "worker/backend/cpu/onednn/onednn_wide.h"
#include "worker/backend/cpu/onednn/winograd.h"

enum { THREADS_MAX = 3 };

/* Bounds relative to the norm; in bfloat16 activations are rounded once, when they are written. */
static const double TOLERANCE = 2e-6, NARROW_TOLERANCE = 3e-3;

typedef struct shape_line {
    size_t images, inputs, outputs, height, width, top, left, bottom, right;
} shape_line;

static const shape_line shapes[] = {
    { 3, 32, 48, 9, 10, 1, 1, 1, 1 }, /* a single partial panel */
    { 2, 16, 80, 4, 7, 0, 0, 0, 0 },  /* more outputs than tiles, a second panel */
    { 1, 80, 144, 5, 3, 1, 1, 1, 1 }, /* more inputs than one summation block */
    { 2, 48, 16, 6, 11, 2, 2, 2, 2 }, /* largest padding */

    /* different padding on each side; several blocks of tiles */
    { 5, 16, 32, 17, 16, 0, 1, 2, 0 },
    { 13, 32, 32, 14, 14, 1, 1, 1, 1 }, /* several blocks per thread */
};

/* A convolution: activations in logical order as float64 and in kernel layout, and both results. */
typedef struct bench {
    gp_winograd w;
    gp_op op;
    size_t x_count, y_count, weight_count;
    double *x, *y, *dx, *dy, *weight, *dweight, *bias, *dbias, *other;
    void *x_own, *y_own, *dx_own, *dy_own, *other_own;
    float *weight_own, *dweight_own, *bias_own, *dbias_own, *room;
} bench;

static uint32_t random_word(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static double random_number(uint64_t *state, bool narrow)
{
    float value = (float)(random_word(state) % 2001) * 1e-3f - 1.0f;

    return (double)(narrow ? bf16_float(bf16_of(value)) : value);
}

/* Convert [images][channels][pixels] in float64 to [images][pixels][channels]. */
static void pack(const double *from, void *to, size_t images, size_t channels, size_t pixels, bool narrow)
{
    for (size_t n = 0; n < images; n++)
        for (size_t c = 0; c < channels; c++)
            for (size_t p = 0; p < pixels; p++) {
                float value = (float)from[(n * channels + c) * pixels + p];
                size_t at = (n * pixels + p) * channels + c;

                if (narrow)
                    ((uint16_t *)to)[at] = bf16_of(value);
                else
                    ((float *)to)[at] = value;
            }
}

/* Return the error of kernel output relative to the norm of the expected values. */
static double error_of(const double *expected, const void *own, size_t images, size_t channels, size_t pixels,
                       bool narrow)
{
    double off = 0.0, norm = 0.0;

    for (size_t n = 0; n < images; n++)
        for (size_t c = 0; c < channels; c++)
            for (size_t p = 0; p < pixels; p++) {
                double e = expected[(n * channels + c) * pixels + p];
                size_t at = (n * pixels + p) * channels + c;
                double d = (narrow ? (double)bf16_float(((const uint16_t *)own)[at])
                                   : (double)((const float *)own)[at]) -
                           e;

                off += d * d;
                norm += e * e;
            }
    return sqrt(off / norm);
}

static double *random_new(size_t count, uint64_t *state, bool narrow)
{
    double *numbers = gp_calloc(count, sizeof(*numbers));

    for (size_t i = 0; i < count; i++)
        numbers[i] = random_number(state, narrow);
    return numbers;
}

static void *packed_new(const double *from, size_t images, size_t channels, size_t pixels, bool narrow)
{
    void *to = gp_calloc(images * channels * pixels, narrow ? sizeof(uint16_t) : sizeof(float));

    pack(from, to, images, channels, pixels, narrow);
    return to;
}

static void bench_init(bench *b, const shape_line *s, bool narrow)
{
    uint64_t state = 7;
    size_t pixels = s->height * s->width, out_pixels, room, backward, gradient;

    *b = (bench){ .w = { .images = s->images,
                         .inputs = s->inputs,
                         .outputs = s->outputs,
                         .height = s->height,
                         .width = s->width,
                         .out_height = s->height + s->top + s->bottom - 2,
                         .out_width = s->width + s->left + s->right - 2,
                         .top = s->top,
                         .left = s->left,
                         .narrow = narrow },
                  .op = { .window = { .kernel = { 3, 3 },
                                      .stride = { 1, 1 },
                                      .dilation = { 1, 1 },
                                      .padding = { (int32_t)s->top, (int32_t)s->left, (int32_t)s->bottom,
                                                   (int32_t)s->right },
                                      .groups = 1 } } };
    gp_winograd turned = gp_winograd_turned(&b->w);

    out_pixels = b->w.out_height * b->w.out_width;
    b->x_count = s->images * s->inputs * pixels;
    b->y_count = s->images * s->outputs * out_pixels;
    b->weight_count = s->outputs * s->inputs * 9;
    b->x = random_new(b->x_count, &state, narrow);
    b->dy = random_new(b->y_count, &state, narrow);
    b->other = random_new(b->y_count, &state, narrow);
    b->weight = random_new(b->weight_count, &state, false);
    b->bias = random_new(s->outputs, &state, false);
    b->y = gp_calloc(b->y_count, sizeof(double));
    b->dx = gp_calloc(b->x_count, sizeof(double));
    b->dweight = gp_calloc(b->weight_count, sizeof(double));
    b->dbias = gp_calloc(s->outputs, sizeof(double));
    b->x_own = packed_new(b->x, s->images, s->inputs, pixels, narrow);
    b->dx_own = packed_new(b->dx, s->images, s->inputs, pixels, narrow);
    b->y_own = packed_new(b->y, s->images, s->outputs, out_pixels, narrow);
    b->dy_own = packed_new(b->dy, s->images, s->outputs, out_pixels, narrow);
    b->other_own = packed_new(b->other, s->images, s->outputs, out_pixels, narrow);
    b->weight_own = packed_new(b->weight, 1, 1, b->weight_count, false);
    b->dweight_own = packed_new(b->dweight, 1, 1, b->weight_count, false);
    b->bias_own = packed_new(b->bias, 1, 1, s->outputs, false);
    b->dbias_own = packed_new(b->dbias, 1, 1, s->outputs, false);
    room = gp_winograd_forward_room(&b->w, THREADS_MAX);
    backward = gp_winograd_forward_room(&turned, THREADS_MAX);
    gradient = gp_winograd_gradient_room(&b->w, THREADS_MAX);
    room = room > backward ? room : backward;
    b->room = gp_aligned_calloc(64, (room > gradient ? room : gradient) * sizeof(float));

    gp_shape x = gp_shape3((int64_t)s->inputs, (int64_t)s->height, (int64_t)s->width);
    gp_shape y = gp_shape3((int64_t)s->outputs, (int64_t)b->w.out_height, (int64_t)b->w.out_width);
    gp_shape weight = { .rank = 4, .dim = { (int64_t)s->outputs, (int64_t)s->inputs, 3, 3 } };
    gp_shape bias = { .rank = 1, .dim = { (int64_t)s->outputs } };
    gp_ref_call call = { .op = &b->op, .samples = (int64_t)s->images };

    call.in[0] = (gp_ref_tensor){ x, b->x };
    call.in[1] = (gp_ref_tensor){ weight, b->weight };
    call.in[2] = (gp_ref_tensor){ bias, b->bias };
    call.out[0] = (gp_ref_tensor){ y, b->y };
    gp_ref_conv2d(&call);
    call = (gp_ref_call){ .op = &b->op, .samples = (int64_t)s->images };
    call.in[0] = (gp_ref_tensor){ y, b->dy };
    call.in[1] = (gp_ref_tensor){ weight, b->weight };
    call.out[0] = (gp_ref_tensor){ x, b->dx };
    gp_ref_conv2d_backward_data(&call);
    call = (gp_ref_call){ .op = &b->op, .samples = (int64_t)s->images };
    call.in[0] = (gp_ref_tensor){ x, b->x };
    call.in[1] = (gp_ref_tensor){ y, b->dy };
    call.out[0] = (gp_ref_tensor){ weight, b->dweight };
    call.out[1] = (gp_ref_tensor){ bias, b->dbias };
    gp_ref_conv2d_backward_weights(&call);
}

static void bench_deinit(bench *b)
{
    void *all[] = { b->x,          b->y,           b->dx,       b->dy,        b->weight,
                    b->dweight,    b->bias,        b->dbias,    b->other,     b->x_own,
                    b->y_own,      b->dx_own,      b->dy_own,   b->other_own, b->room,
                    b->weight_own, b->dweight_own, b->bias_own, b->dbias_own };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        gp_free(all[i]);
}

static void check_error(const bench *b, const char *what, const double *expected, const void *own,
                        size_t images, size_t channels, size_t pixels, bool narrow, double tolerance)
{
    const gp_winograd *w = &b->w;
    double off = error_of(expected, own, images, channels, pixels, narrow);

    if (!(off <= tolerance))
        GP_TEST_FAIL("%s of %zu images, %zu to %zu channels, %zux%zu%s: relative error %g", what, w->images,
                     w->inputs, w->outputs, w->height, w->width, w->narrow ? " in bf16" : "", off);
}

static void forward_run(bench *b, const gp_winograd *w, const void *x, const gp_winograd_tail *tail, void *y,
                        uint32_t threads)
{
    const gp_winograd_call call = {
        .w = w, .x = x, .room = b->room, .weight = b->weight_own, .tail = *tail, .y = y
    };

    gp_winograd_forward(&call, threads);
}

static void gradient_run(bench *b, bool add, uint32_t threads)
{
    const gp_winograd_call call = { .w = &b->w,
                                    .x = b->x_own,
                                    .room = b->room,
                                    .dy = b->dy_own,
                                    .dweight = b->dweight_own,
                                    .dbias = b->dbias_own,
                                    .add = add };

    gp_winograd_gradient(&call, threads);
}

static bool processor_fits(void)
{
    return gp_wide_usable();
}

/* Run a check for every shape and number format with 1 to 3 threads. */
static void each_bench(void (*check)(bench *b, uint32_t threads, double tolerance))
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        for (int narrow = 0; narrow < 2; narrow++) {
            bench b;

            bench_init(&b, &shapes[i], narrow != 0);
            for (uint32_t threads = 1; threads <= THREADS_MAX; threads++)
                check(&b, threads, narrow ? NARROW_TOLERANCE : TOLERANCE);
            bench_deinit(&b);
        }
}

static void check_forward(bench *b, uint32_t threads, double tolerance)
{
    const gp_winograd *w = &b->w;
    const size_t out_pixels = w->out_height * w->out_width;
    const gp_winograd_tail bias = { .bias = b->bias_own }, whole = {
        .bias = b->bias_own, .other = b->other_own, .bounded = true, .low = 0.0f, .high = 2.0f
    };
    double *expected = gp_calloc(b->y_count, sizeof(*expected));

    forward_run(b, w, b->x_own, &bias, b->y_own, threads);
    check_error(b, "y", b->y, b->y_own, w->images, w->outputs, out_pixels, w->narrow, tolerance);
    for (size_t i = 0; i < b->y_count; i++)
        expected[i] = fmin(fmax(b->y[i] + b->other[i], 0.0), 2.0);
    forward_run(b, w, b->x_own, &whole, b->y_own, threads);
    check_error(b, "y with all that follows", expected, b->y_own, w->images, w->outputs, out_pixels,
                w->narrow, 2 * tolerance);
    gp_free(expected);
}

TEST(outputs_match_plain_loops_with_bias_sum_and_bounds)
{
    if (!processor_fits())
        SKIP("this processor has no AVX-512");
    each_bench(check_forward);
}

static void check_data(bench *b, uint32_t threads, double tolerance)
{
    const gp_winograd turned = gp_winograd_turned(&b->w);
    const gp_winograd_tail none = { .bias = NULL };

    forward_run(b, &turned, b->dy_own, &none, b->dx_own, threads);
    check_error(b, "dx", b->dx, b->dx_own, b->w.images, b->w.inputs, b->w.height * b->w.width, b->w.narrow,
                tolerance);
}

TEST(input_gradients_match_plain_loops)
{
    if (!processor_fits())
        SKIP("this processor has no AVX-512");
    each_bench(check_data);
}

static void check_weights(bench *b, uint32_t threads, double tolerance)
{
    (void)tolerance; /* never rounded to bfloat16 */
    gradient_run(b, false, threads);
    check_error(b, "dweight", b->dweight, b->dweight_own, 1, 1, b->weight_count, false, TOLERANCE);
    check_error(b, "dbias", b->dbias, b->dbias_own, 1, 1, b->w.outputs, false, TOLERANCE);
    gradient_run(b, true, threads);
    for (size_t i = 0; i < b->weight_count; i++)
        b->dweight_own[i] *= 0.5f;
    for (size_t i = 0; i < b->w.outputs; i++)
        b->dbias_own[i] *= 0.5f;
    check_error(b, "dweight", b->dweight, b->dweight_own, 1, 1, b->weight_count, false, TOLERANCE);
    check_error(b, "dbias", b->dbias, b->dbias_own, 1, 1, b->w.outputs, false, TOLERANCE);
}

TEST(weight_and_bias_gradients_match_plain_loops_and_accumulate)
{
    if (!processor_fits())
        SKIP("this processor has no AVX-512");
    each_bench(check_weights);
}

TEST(results_do_not_depend_on_threads_or_other_images)
{
    const shape_line two = { 2, 32, 48, 9, 10, 1, 1, 1, 1 }, five = { 5, 32, 48, 9, 10, 1, 1, 1, 1 };
    const gp_winograd_tail none = { .bias = NULL };
    size_t bytes;
    float *gradient;
    bench a, b;

    if (!processor_fits())
        SKIP("this processor has no AVX-512");
    bench_init(&a, &two, false);
    bench_init(&b, &five, false);
    memcpy(b.weight_own, a.weight_own, a.weight_count * sizeof(float));
    memcpy((float *)b.x_own + b.x_count - a.x_count, a.x_own, a.x_count * sizeof(float));
    forward_run(&a, &a.w, a.x_own, &none, a.y_own, 1);
    forward_run(&b, &b.w, b.x_own, &none, b.y_own, 3);
    CHECK(memcmp(a.y_own, (float *)b.y_own + b.y_count - a.y_count, a.y_count * sizeof(float)) == 0);

    bytes = b.weight_count * sizeof(float);
    gradient = gp_calloc(1, bytes);
    gradient_run(&b, false, 1);
    memcpy(gradient, b.dweight_own, bytes);
    gradient_run(&b, false, 3);
    CHECK(memcmp(gradient, b.dweight_own, bytes) == 0);
    gp_free(gradient);
    bench_deinit(&a);
    bench_deinit(&b);
}
