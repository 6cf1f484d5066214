/* Activation dropout in either order.
 *
 * Elements are numbered in logical order, not in memory order, so that the dropped elements do not
 * depend on the kernels. For packed activations, decisions for 16 channels and a pixel run are
 * drawn, transposed and applied pixel by pixel. */
#include "worker/backend/cpu/onednn/onednn_segment.h"
#include "worker/backend/cpu/onednn/onednn_wide.h"

#include <math.h>

#include "common/base/rng.h"
#include "worker/backend/cpu/base/bf16.h"
#include "worker/backend/cpu/loops/loops_inside.h"

enum {
    DRAWS = GP_WIDE_KEPT / 4,
    DRAWN = GP_WIDE_KEPT,
    SIDE = 16,              /* channels drawn together */
    RUN_PIXELS = DRAWN - 4, /* pixels per run; a run may start within a draw of four */
};

/* Draw dropout decisions for elements [first, first + DRAWN) of a sample: 1 to keep, 0 to drop.
 * `first` is a multiple of 4. Computes gp_rng_draw() for DRAWS counters in parallel (Philox4x32-10;
 * Salmon et al., SC 2011) and compares the 24 bits that form the uniform number. */
LOOP_CLONES static void kept_draw(uint8_t kept[DRAWN], uint64_t seed, uint32_t stream, uint32_t when,
                                  uint32_t position, uint32_t first, uint32_t least)
{
    uint32_t c0[DRAWS], c1[DRAWS], c2[DRAWS], c3[DRAWS], k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

    for (uint32_t l = 0; l < DRAWS; l++) {
        c0[l] = stream;
        c1[l] = when;
        c2[l] = position;
        c3[l] = first / 4 + l;
    }
    for (int round = 0; round < 10; round++) {
        for (int l = 0; l < DRAWS; l++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c0[l], p1 = (uint64_t)0xCD9E8D57u * c2[l];

            c0[l] = (uint32_t)(p1 >> 32) ^ c1[l] ^ k0;
            c2[l] = (uint32_t)(p0 >> 32) ^ c3[l] ^ k1;
            c1[l] = (uint32_t)p1;
            c3[l] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int l = 0; l < DRAWS; l++) {
        kept[4 * l] = c0[l] >> 8 >= least;
        kept[4 * l + 1] = c1[l] >> 8 >= least;
        kept[4 * l + 2] = c2[l] >> 8 >= least;
        kept[4 * l + 3] = c3[l] >> 8 >= least;
    }
}

static void draw(uint8_t kept[DRAWN], const gp_onednn_step *step, const gp_onednn_run *run, size_t sample,
                 size_t first)
{
    const gp_batch *batch = run->batch;
    const uint32_t stream = gp_rng_stream(GP_RNG_DROPOUT, step->layer), when = (uint32_t)batch->step;
    const uint32_t position = (uint32_t)(batch->position + sample);
    const uint32_t least = (uint32_t)ceil(step->rate * 0x1p24); /* threshold for 24 bits */

    if (gp_wide_usable())
        gp_wide_kept(kept, batch->seed, stream, when, position, (uint32_t)first, least);
    else
        kept_draw(kept, batch->seed, stream, when, position, (uint32_t)first, least);
}

/* Compute y = x * scale for kept elements, 0 for dropped ones. */
LOOP_INLINE void apply(const void *x, void *y, size_t at, const uint8_t *kept, size_t count, float scale,
                       const bool narrow)
{
    const uint16_t *x_narrow = (const uint16_t *)x + at;
    const float *x_wide = (const float *)x + at;
    uint16_t *y_narrow = (uint16_t *)y + at;
    float *y_wide = (float *)y + at;

    if (narrow)
        for (size_t i = 0; i < count; i++) {
            uint16_t value = bf16_of(bf16_float(x_narrow[i]) * scale);

            y_narrow[i] = kept[i] ? value : 0;
        }
    else
        for (size_t i = 0; i < count; i++) {
            float value = x_wide[i] * scale;

            y_wide[i] = kept[i] ? value : 0.0f;
        }
}

/* Apply decisions to `pixels` pixels with `channels` neighbouring channels. */
LOOP_INLINE void apply_turned(const void *x, void *y, size_t at, size_t stride, const uint8_t *kept,
                              size_t pixels, size_t channels, float scale, const bool narrow)
{
    for (size_t p = 0; p < pixels; p++)
        if (channels == SIDE)
            apply(x, y, at + p * stride, kept + p * SIDE, SIDE, scale, narrow);
        else
            apply(x, y, at + p * stride, kept + p * SIDE, channels, scale, narrow);
}

typedef struct dropout_call {
    const gp_onednn_step *step;
    const gp_onednn_run *run;
} dropout_call;

LOOP_CLONES static void run_apply(const gp_onednn_step *step, size_t at, const uint8_t *kept, size_t pixels,
                                  size_t channels)
{
    const float scale = (float)(1.0 / (1.0 - step->rate));

    if (step->channels == 1 && step->narrow)
        apply(step->data[0], step->data[1], at, kept, pixels, scale, true);
    else if (step->channels == 1)
        apply(step->data[0], step->data[1], at, kept, pixels, scale, false);
    else if (step->narrow)
        apply_turned(step->data[0], step->data[1], at, step->channels, kept, pixels, channels, scale, true);
    else
        apply_turned(step->data[0], step->data[1], at, step->channels, kept, pixels, channels, scale, false);
}

static void dropout_share(void *context, uint32_t thread, uint32_t threads)
{
    const dropout_call *call = context;
    loop_range range = loop_range_of(call->run->segment->micro_batch, 1, thread, threads);

    for (size_t n = range.first; n < range.end; n++)
        if (call->step->channels == 1) {
            uint8_t kept[DRAWN];

            for (size_t e = 0; e < call->step->count; e += DRAWN) {
                size_t left = call->step->count - e;

                draw(kept, call->step, call->run, n, e);
                run_apply(call->step, n * call->step->count + e, kept, left < DRAWN ? left : DRAWN, 1);
            }
        } else {
            uint8_t turned[RUN_PIXELS * SIDE] = { 0 };

            for (size_t c = 0; c < call->step->channels; c += SIDE) {
                size_t channels = call->step->channels - c < SIDE ? call->step->channels - c : SIDE;

                for (size_t p = 0; p < call->step->pixels; p += RUN_PIXELS) {
                    size_t pixels = call->step->pixels - p < RUN_PIXELS ? call->step->pixels - p : RUN_PIXELS;

                    for (size_t l = 0; l < channels; l++) {
                        size_t first = (c + l) * call->step->pixels + p, ahead = first % 4;
                        uint8_t kept[DRAWN];

                        draw(kept, call->step, call->run, n, first - ahead);
                        for (size_t i = 0; i < pixels; i++)
                            turned[i * SIDE + l] = kept[ahead + i];
                    }
                    run_apply(call->step, n * call->step->count + p * call->step->channels + c, turned,
                              pixels, channels);
                }
            }
        }
}

gp_status gp_onednn_loop_dropout(const gp_onednn_step *step, const gp_onednn_run *run, gp_error *err)
{
    const size_t elements = step->count * run->segment->micro_batch;
    dropout_call call = { step, run };

    (void)err;
    gp_threads_run(elements < LOOP_SHARED_MIN ? 1 : run->segment->threads, dropout_share, &call);
    return GP_OK;
}
