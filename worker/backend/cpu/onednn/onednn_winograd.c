/* Translates 3x3 convolutions with stride 1 into steps that use the Winograd kernels
 * (winograd.h). */
#include "worker/backend/cpu/onednn/onednn_translate.h"
#include "worker/backend/cpu/onednn/onednn_wide.h"

/* Minimum number of 4x4 output tiles, per image and per call (unless other work hides the cost).
 * With fewer tiles, transforming the weights takes longer than the saved products. */
enum { TILES_MIN = 4, CALL_TILES_MIN = 64, EDGE = 4 };

/* ---- loops ---- */

static gp_status loop_winograd(const gp_onednn_step *step, const gp_onednn_run *run, gp_error *err)
{
    const gp_winograd_call call = { .w = &step->winograd,
                                    .x = gp_onednn_data(step, SLOT_X),
                                    .room = gp_onednn_data(step, SLOT_PARTIALS),
                                    .weight = gp_onednn_data(step, SLOT_SCALE),
                                    .tail = { .bias = gp_onednn_data(step, SLOT_OFFSET),
                                              .other = gp_onednn_data(step, SLOT_A),
                                              .bounded = step->mix.bounded,
                                              .low = step->mix.low,
                                              .high = step->mix.high },
                                    .y = gp_onednn_data(step, SLOT_OUT) };

    (void)err;
    gp_winograd_forward(&call, run->segment->threads);
    return GP_OK;
}

static gp_status loop_winograd_gradient(const gp_onednn_step *step, const gp_onednn_run *run, gp_error *err)
{
    const gp_winograd_call call = { .w = &step->winograd,
                                    .x = gp_onednn_data(step, SLOT_X),
                                    .room = gp_onednn_data(step, SLOT_PARTIALS),
                                    .dy = gp_onednn_data(step, SLOT_A),
                                    .dweight = gp_onednn_data(step, SLOT_SUMS),
                                    .dbias = gp_onednn_data(step, SLOT_SQUARES),
                                    .add = !run->batch->first };

    (void)err;
    gp_winograd_gradient(&call, run->segment->threads);
    return GP_OK;
}

/* ---- steps ---- */

/* Return true if Winograd in float32 beats direct convolution in bfloat16. The latter multiplies
 * twice as fast, or in matrix unit tiles, and takes 9 products per pixel and channel pair. Winograd
 * takes 36 float32 products per tile of 16 pixels, plus the cost of about 100 products per channel.
 * Measured on Zen 5 with layers of SqueezeNet and ResNet. */
static bool beats_bf16(const gp_winograd *w, size_t tiles)
{
    const double waste = (double)(tiles * EDGE * EDGE) / (double)(w->out_height * w->out_width);
    const unsigned isa = (unsigned)dnnl_get_effective_cpu_isa(), matrices = dnnl_cpu_isa_avx512_core_amx;

    return (isa & matrices) != matrices &&
           (9.0 - 2.0 * 36.0 / 16.0 * waste) * (double)(w->inputs * w->outputs) >=
               100.0 * (double)(w->inputs + w->outputs);
}

/* Return true if Winograd is faster. In training, the decision must not depend on the samples per
 * call, because a step must give the same result with any worker count. */
static bool is_worth_it(const gp_onednn_translator *t, const gp_winograd *w)
{
    size_t tiles = (w->out_height + EDGE - 1) / EDGE * ((w->out_width + EDGE - 1) / EDGE);

    return tiles >= TILES_MIN && 2 * w->out_height * w->out_width >= tiles * EDGE * EDGE &&
           (t->segment->phase == GP_PHASE_TRAIN || tiles * w->images >= CALL_TILES_MIN) &&
           (!w->narrow || beats_bf16(w, tiles));
}

/* Describe the convolution from x to y. Return false if the kernels do not support it. */
static bool winograd_of(const gp_onednn_translator *t, const gp_op *op, uint32_t x, uint32_t y,
                        gp_winograd *out)
{
    const gp_window *window = &op->window;
    const gp_shape *from = shape_of(t, x), *to = shape_of(t, y);

    if (!gp_wide_usable() || from->rank != 3 || window->groups != 1 ||
        from->dim[0] % GP_WINOGRAD_LANES != 0 || to->dim[0] % GP_WINOGRAD_LANES != 0)
        return false;
    for (int i = 0; i < 2; i++)
        if (window->kernel[i] != 3 || window->stride[i] != 1 || window->dilation[i] != 1 ||
            window->padding[i] > 2 || window->padding[i + 2] > 2)
            return false;
    *out = (gp_winograd){ .images = t->segment->micro_batch,
                          .inputs = (size_t)from->dim[0],
                          .outputs = (size_t)to->dim[0],
                          .height = (size_t)from->dim[1],
                          .width = (size_t)from->dim[2],
                          .out_height = (size_t)to->dim[1],
                          .out_width = (size_t)to->dim[2],
                          .top = (size_t)window->padding[0],
                          .left = (size_t)window->padding[1],
                          .narrow = t->segment->narrow };
    return is_worth_it(t, out);
}

/* Add the scratch memory that all such steps and primitives share; they run one after the other. */
static void room_argue(gp_onednn_translator *t, gp_onednn_step *step, size_t count)
{
    dnnl_dims_t dims = { (dnnl_dim_t)count };
    gp_onednn_buffer *scratch = &t->segment->buffers[t->segment->scratch];

    if (scratch->bytes < count * sizeof(float))
        scratch->bytes = count * sizeof(float);
    step_argument(step, SLOT_PARTIALS,
                  gp_onednn_tensor_new(t, gp_onednn_md_new(t, 1, dims, dnnl_a), t->segment->scratch));
}

/* Emit a convolution from x to y with the weights. `tail` may be NULL. */
static void winograd_emit(gp_onednn_translator *t, gp_onednn_step *step, uint32_t x, uint32_t weight,
                          uint32_t bias, const gp_onednn_tail *tail, uint32_t y)
{
    step->loop = loop_winograd;
    step_argument(step, SLOT_X, gp_onednn_value_read(t, x, PACKED));
    step_argument(step, SLOT_SCALE, weight);
    if (bias != ONEDNN_NONE)
        step_argument(step, SLOT_OFFSET, bias);
    if (tail != NULL && tail->other != GP_NO_VALUE)
        step_argument(step, SLOT_A, gp_onednn_value_read(t, tail->other, PACKED));
    room_argue(t, step, gp_winograd_forward_room(&step->winograd, t->segment->threads));
    step_argument(step, SLOT_OUT, gp_onednn_value_write(t, y, PACKED));
    gp_onednn_step_emit(t, step);
    gp_onednn_value_written(t, y);
}

bool gp_onednn_winograd_forward(gp_onednn_translator *t, const gp_op *op, const gp_onednn_tail *tail)
{
    gp_onednn_step step = { .what = "winograd",
                            .mix = { .bounded = tail->bounded, .low = tail->low, .high = tail->high } };
    uint32_t weight, bias = ONEDNN_NONE;

    if (!going(t) || op->code != GP_OP_CONV2D || !winograd_of(t, op, op->in[0], tail->y, &step.winograd))
        return false;
    if (tail->norm != NULL) {
        dnnl_dims_t dims = { (dnnl_dim_t)count_of(t, op->in[1]) };
        shim_md plain = gp_onednn_md_new(t, 1, dims, dnnl_a);

        gp_onednn_norm_fold_emit(t, op, tail->norm, plain, LIFE_KEPT, &weight, &bias);
        shim_md_free(plain);
    } else {
        weight = gp_onednn_flat_parameter(t, op->in[1], false);
        if (op->in[2] != GP_NO_VALUE)
            bias = gp_onednn_flat_parameter(t, op->in[2], false);
    }
    winograd_emit(t, &step, op->in[0], weight, bias, tail, tail->y);
    return true;
}

bool gp_onednn_winograd_backward_data(gp_onednn_translator *t, const gp_op *op)
{
    gp_onednn_step step = { .what = "winograd data" };
    gp_winograd forward;

    if (!going(t) || op->code != GP_OP_CONV2D_BACKWARD_DATA ||
        !winograd_of(t, op, op->out[0], op->in[0], &forward))
        return false;
    step.winograd = gp_winograd_turned(&forward);
    winograd_emit(t, &step, op->in[0], gp_onednn_flat_parameter(t, op->in[1], false), ONEDNN_NONE, NULL,
                  op->out[0]);
    return true;
}

bool gp_onednn_winograd_backward_weights(gp_onednn_translator *t, const gp_op *op)
{
    gp_onednn_step step = { .what = "winograd weights", .loop = loop_winograd_gradient };

    if (!going(t) || op->code != GP_OP_CONV2D_BACKWARD_WEIGHTS ||
        !winograd_of(t, op, op->in[0], op->in[1], &step.winograd))
        return false;
    step_argument(&step, SLOT_X, gp_onednn_value_read(t, op->in[0], PACKED));
    step_argument(&step, SLOT_A, gp_onednn_value_read(t, op->in[1], PACKED));
    room_argue(t, &step, gp_winograd_gradient_room(&step.winograd, t->segment->threads));
    step_argument(&step, SLOT_SUMS, gp_onednn_flat_parameter(t, op->out[0], true));
    if (op->out[1] != GP_NO_VALUE)
        step_argument(&step, SLOT_SQUARES, gp_onednn_flat_parameter(t, op->out[1], true));
    gp_onednn_step_emit(t, &step);
    return true;
}
