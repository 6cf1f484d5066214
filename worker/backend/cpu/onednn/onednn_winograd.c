/* onednn_winograd.c -- 3x3 convolutions of stride 1 as steps of a segment that run on kernels of ours (winograd.h). */
#include "worker/backend/cpu/onednn/onednn_translate.h"
#include "worker/backend/cpu/onednn/onednn_wide.h"

/* Tiles of 4x4 outputs, of an image and, where nothing hides it, of a call, below which transforming the weights costs
 * more than it saves. */
enum { TILES_MIN = 4, CALL_TILES_MIN = 64, EDGE = 4 };

/* --- loops ------------------------------------------------------------------------------------------ */

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

/* --- steps ------------------------------------------------------------------------------------------ */

/* Where activations are bfloat16, what competes multiplies twice as fast, or on tiles of a matrix unit.  A direct sum takes 9
 * such products a pair of channels and pixel, these kernels 36 of float32 a tile of 16 pixels, and for each channel what 100
 * products take: measured on a Zen 5, SqueezeNet's and ResNet's layers. */
static bool beats_bf16(const gp_winograd *w, size_t tiles)
{
    const double waste = (double)(tiles * EDGE * EDGE) / (double)(w->out_height * w->out_width);
    const unsigned isa = (unsigned)dnnl_get_effective_cpu_isa(), matrices = dnnl_cpu_isa_avx512_core_amx;

    return (isa & matrices) != matrices &&
           (9.0 - 2.0 * 36.0 / 16.0 * waste) * (double)(w->inputs * w->outputs) >=
               100.0 * (double)(w->inputs + w->outputs);
}

/* Whether it pays.  In training that must not depend on how many samples a call has: a step is the same on any number
 * of workers. */
static bool is_worth_it(const gp_onednn_translator *t, const gp_winograd *w)
{
    size_t tiles = (w->out_height + EDGE - 1) / EDGE * ((w->out_width + EDGE - 1) / EDGE);

    return tiles >= TILES_MIN && 2 * w->out_height * w->out_width >= tiles * EDGE * EDGE &&
           (t->segment->phase == GP_PHASE_TRAIN || tiles * w->images >= CALL_TILES_MIN) &&
           (!w->narrow || beats_bf16(w, tiles));
}

/* The convolution of x with weights to y; false: not one for these kernels. */
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

/* Room that all such steps and primitives share, as they run one after another. */
static void room_argue(gp_onednn_translator *t, gp_onednn_step *step, size_t count)
{
    dnnl_dims_t dims = { (dnnl_dim_t)count };
    gp_onednn_buffer *scratch = &t->segment->buffers[t->segment->scratch];

    if (scratch->bytes < count * sizeof(float))
        scratch->bytes = count * sizeof(float);
    step_argument(step, SLOT_PARTIALS,
                  gp_onednn_tensor_new(t, gp_onednn_md_new(t, 1, dims, dnnl_a), t->segment->scratch));
}

bool gp_onednn_winograd_forward(gp_onednn_translator *t, const gp_op *op, const gp_onednn_tail *tail)
{
    gp_onednn_step step = { .what = "winograd",
                            .loop = loop_winograd,
                            .mix = { .bounded = tail->bounded, .low = tail->low, .high = tail->high } };
    uint32_t weight, bias = ONEDNN_NONE;

    if (!going(t) || op->code != GP_OP_CONV2D || !winograd_of(t, op, op->in[0], tail->y, &step.winograd))
        return false;
    step_argument(&step, SLOT_X, gp_onednn_value_read(t, op->in[0], PACKED));
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
    step_argument(&step, SLOT_SCALE, weight);
    if (bias != ONEDNN_NONE)
        step_argument(&step, SLOT_OFFSET, bias);
    if (tail->other != GP_NO_VALUE)
        step_argument(&step, SLOT_A, gp_onednn_value_read(t, tail->other, PACKED));
    room_argue(t, &step, gp_winograd_forward_room(&step.winograd, t->segment->threads));
    step_argument(&step, SLOT_OUT, gp_onednn_value_write(t, tail->y, PACKED));
    gp_onednn_step_emit(t, &step);
    gp_onednn_value_written(t, tail->y);
    return true;
}

bool gp_onednn_winograd_backward_data(gp_onednn_translator *t, const gp_op *op)
{
    gp_onednn_step step = { .what = "winograd data", .loop = loop_winograd };
    gp_winograd forward;

    if (!going(t) || op->code != GP_OP_CONV2D_BACKWARD_DATA ||
        !winograd_of(t, op, op->out[0], op->in[0], &forward))
        return false;
    step.winograd = gp_winograd_turned(&forward);
    step_argument(&step, SLOT_X, gp_onednn_value_read(t, op->in[0], PACKED));
    step_argument(&step, SLOT_SCALE, gp_onednn_flat_parameter(t, op->in[1], false));
    room_argue(t, &step, gp_winograd_forward_room(&step.winograd, t->segment->threads));
    step_argument(&step, SLOT_OUT, gp_onednn_value_write(t, op->out[0], PACKED));
    gp_onednn_step_emit(t, &step);
    gp_onednn_value_written(t, op->out[0]);
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
