/* Sample sources in device-resident training and in predictions, and prediction results. Included
 * by bodies.h.
 *
 *   fed        the host has filled a slot with the call, targets and samples
 *   resident   the device holds all data. The call gives positions in the epoch's order, the
 *              sampler's permutation (common/data/store/sampler.c) gives the samples, and the slot
 *              contains the augmentation draws
 *
 * Permutation and warp are bitwise identical to the loader's: the permutation uses integers, and
 * the byte warp uses the same float64 and float32 operations in the same order without fused
 * operations. */

/* ---- call ---- */

/* Copy the call from the next slot; runs as one work item.
 *   x[i].data  slot i of number[0] slots
 *   call       destination
 *   d[1]       n[7] step sums, which are cleared */
BODY void body_feed_turn(const gp_kernel_args *a, uint32_t i)
{
    gp_kernel_kept *kept = a->kept;
    uint32_t slot = (uint32_t)(kept->calls++ % (uint32_t)a->number[0]);
    gp_kernel_call *call = (gp_kernel_call *)(uintptr_t)a->call;

    (void)i;
    /* Copies words directly. A bytewise copy or a local variable would need more registers than are
     * available. */
    *call = *(const gp_kernel_call *)a->x[slot].data;
    call->slot = slot;
    if (kept->loss_scale > 0.0) {
        double scale = kept->loss_scale * (double)call->scale;

        call->scale = (float)scale;
        call->unscale = (float)(1.0 / scale);
    }
    kept->mark_ns = step_now_ns();
    if (!call->first)
        return;
    kept->forward_ns = kept->backward_ns = 0;
    for (uint32_t k = 0; k < a->n[7]; k++)
        a->d[1][k] = 0.0;
}

/* Copy word i of the slot's targets to y[0].data. bytes: targets of slot 0; count: bytes between
 * slots. */
BODY void body_feed_targets(const gp_kernel_args *a, uint32_t i)
{
    ((uint32_t *)a->y[0].data)[i] =
        ((const uint32_t *)(const void *)((const char *)a->bytes + a->call->slot * a->count))[i];
}

/* Store a prediction result: y[0].data[slot][count bytes] = scores f[2] (n[1] per sample),
 * bytes[slot] = n[0] sums. */
BODY void body_predict_answer(const gp_kernel_args *a, uint32_t i)
{
    const size_t at = a->call->slot * a->count;

    if (i < a->n[0])
        ((double *)(void *)((char *)(uintptr_t)a->bytes + at))[i] = a->d[1][i];
    if (i < (uint64_t)a->call->count * a->n[1])
        ((float *)(void *)((char *)a->y[0].data + at))[i] = a->f[2][i];
}

/* ---- resident data ---- */

/* Compute the sample index for each row: position at + row of the epoch's order. n: sample count,
 * both permutation factors, patches per image, and words of a target that are copied from `bytes`
 * to y[1]; kind: gp_shuffle; count: seed. */
BODY void body_feed_index(const gp_kernel_args *a, uint32_t row)
{
    uint32_t cell = row < a->call->count ? a->call->at + row : 0;
    uint32_t epoch = a->kind == 1 ? 0 : a->call->epoch, *out = (uint32_t *)a->y[0].data;

    if (a->kind != 0)
        do {
            uint32_t half[2] = { cell % a->n[1], cell / a->n[1] };

            for (uint32_t round = 0; round < 8; round++) {
                uint32_t word[4], moved = round & 1, side = a->n[1 + moved];

                philox(word, 2u << 24, epoch, half[1 - moved], round, a->count);
                half[moved] = (half[moved] + (uint32_t)((uint64_t)word[0] * side >> 32)) % side;
            }
            cell = half[0] + half[1] * a->n[1];
        } while (cell >= a->n[0]);
    cell /= a->n[3];
    out[row] = cell;
    for (uint32_t word = 0; word < a->n[4]; word++)
        ((uint32_t *)a->y[1].data)[row * a->n[4] + word] =
            ((const uint32_t *)a->bytes)[(uint64_t)cell * a->n[4] + word];
}

/* Copy word i of the targets of all rows, n[0] words per row. */
BODY void body_feed_rows(const gp_kernel_args *a, uint32_t i)
{
    ((uint32_t *)a->y[0].data)[i] =
        ((const uint32_t *)a->bytes)[(uint64_t)a->index[i / a->n[0]] * a->n[0] + i % a->n[0]];
}

/* Arithmetic that the compiler must not fuse. */
#ifdef __CUDA_ARCH__
BODY double exact_mul(double x, double y)
{
    return __dmul_rn(x, y);
}

BODY double exact_add(double x, double y)
{
    return __dadd_rn(x, y);
}

BODY float exact_mulf(float x, float y)
{
    return __fmul_rn(x, y);
}

BODY float exact_addf(float x, float y)
{
    return __fadd_rn(x, y);
}
#else
BODY double exact_mul(double x, double y)
{
    return x * y;
}

BODY double exact_add(double x, double y)
{
    return x + y;
}

BODY float exact_mulf(float x, float y)
{
    return x * y;
}

BODY float exact_addf(float x, float y)
{
    return x + y;
}
#endif

/* Return the draw for row n. x[0]: stored image; x[1].data: slot 0's draws; count: bytes between
 * slots. */
BODY const gp_kernel_draw *draw_of(const gp_kernel_args *a, uint32_t n)
{
    return (const gp_kernel_draw *)(const void *)((const char *)a->x[1].data + a->call->slot * a->count) + n;
}

BODY const uint8_t *stored_of(const gp_kernel_args *a, uint32_t n)
{
    return (const uint8_t *)a->bytes + (uint64_t)a->index[n] * a->x[0].sample;
}

/* Compute d[0][item], the exact sum of a channel of a stored image. Items: (sample, channel). */
BODY void body_feed_mean(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *x = &a->x[0];
    uint32_t n = i / x->channels;
    const uint8_t *from = stored_of(a, n) + (uint64_t)(i % x->channels) * x->pixels;
    uint64_t sum = 0;

    if (n >= a->call->count || !draw_of(a, n)->recolor || draw_of(a, n)->contrast == 1.0f)
        return;
    for (uint32_t p = 0; p < x->pixels; p++)
        sum += from[p];
    a->d[0][i] = (double)sum;
}

/* Return the mean colour after recolouring, as color_mean() in augment_warp.c does. */
BODY float draw_mean(const gp_kernel_args *a, const gp_kernel_draw *draw, uint32_t n)
{
    const double luma[3] = { 0.299, 0.587, 0.114 };
    const gp_kernel_image *x = &a->x[0];
    double means[3] = { 0.0, 0.0, 0.0 }, mean = 0.0;

    for (uint32_t c = 0; c < x->channels; c++) {
        double *to = &means[x->channels == 3 ? c : 0];

        *to = exact_add(*to, a->d[0][n * x->channels + c] / (double)x->pixels);
    }
    if (x->channels != 3)
        return exact_mulf(draw->color[0][0], (float)(means[0] / (double)x->channels));
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            mean = exact_add(mean, exact_mul(exact_mul(luma[i], (double)draw->color[i][j]), means[j]));
    return (float)mean;
}

BODY uint8_t draw_byte(float value)
{
    return value <= 0.0f ? 0 : value >= 255.0f ? 255 : (uint8_t)exact_addf(value, 0.5f);
}

BODY float draw_channel(const gp_kernel_draw *draw, const float *in, uint32_t channels, uint32_t c,
                        float offset)
{
    float sum = exact_mulf(draw->color[0][0], in[c]);

    if (channels == 3) {
        sum = exact_addf(exact_mulf(draw->color[c][0], in[0]), exact_mulf(draw->color[c][1], in[1]));
        sum = exact_addf(sum, exact_mulf(draw->color[c][2], in[2]));
    }
    return exact_addf(exact_mulf(draw->contrast, sum), offset);
}

/* Compute one pixel in all y[0] channels (bytes), as warp() in augment_warp.c does. factor[0]: fill
 * value. Items: (sample, pixel). */
BODY void body_feed_warp(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *x = &a->x[0], *y = &a->y[0];
    uint32_t n = i / y->pixels, pixel = i % y->pixels;
    const gp_kernel_draw *draw = draw_of(a, n);
    double u = (double)(pixel % y->width) + 0.5, v = (double)(pixel / y->width) + 0.5, at[2], floors[2], fx,
           fy;
    uint8_t *to = (uint8_t *)y->data + (uint64_t)n * y->sample + pixel;
    const uint8_t *from;
    float share[4], in[3] = { 0.0f, 0.0f, 0.0f }, mean = 0.0f;
    uint32_t near[4], left, right, upper, lower;
    int recolor;

    if (n >= a->call->count)
        return;
    from = stored_of(a, n);
    for (int k = 0; k < 2; k++)
        at[k] = exact_add(exact_add(exact_mul(draw->a[k][0], u), exact_mul(draw->a[k][1], v)), draw->a[k][2]);
    if (!(at[0] >= 0.0 && at[1] >= 0.0 && at[0] < (double)x->width && at[1] < (double)x->height)) {
        for (uint32_t c = 0; c < x->channels; c++)
            to[(uint64_t)c * y->pixels] = draw_byte(a->factor[0]);
        return;
    }
    for (int k = 0; k < 2; k++)
        floors[k] = floor(exact_add(at[k], -0.5));
    fx = exact_add(exact_add(at[0], -0.5), -floors[0]);
    fy = exact_add(exact_add(at[1], -0.5), -floors[1]);
    left = floors[0] < 0.0 ? 0 : (uint32_t)floors[0];
    upper = floors[1] < 0.0 ? 0 : (uint32_t)floors[1];
    right = floors[0] + 1.0 < (double)x->width ? (uint32_t)(floors[0] + 1.0) : left;
    lower = floors[1] + 1.0 < (double)x->height ? (uint32_t)(floors[1] + 1.0) : upper;
    near[0] = upper * x->width + left;
    near[1] = upper * x->width + right;
    near[2] = lower * x->width + left;
    near[3] = lower * x->width + right;
    share[0] = (float)exact_mul(exact_add(1.0, -fx), exact_add(1.0, -fy));
    share[1] = (float)exact_mul(fx, exact_add(1.0, -fy));
    share[2] = (float)exact_mul(exact_add(1.0, -fx), fy);
    share[3] = (float)exact_mul(fx, fy);
    recolor = draw->recolor != 0;
    if (recolor && draw->contrast != 1.0f)
        mean = draw_mean(a, draw, n);
    /* Recolouring mixes three channels; otherwise channels are independent. Processes three at a
     * time. */
    for (uint32_t first = 0; first < x->channels; first += 3) {
        uint32_t some = x->channels - first < 3 ? x->channels - first : 3;

        for (uint32_t c = 0; c < some; c++) {
            const uint8_t *plane = from + (uint64_t)(first + c) * x->pixels;
            float value = exact_mulf((float)plane[near[0]], share[0]);

            for (int k = 1; k < 4; k++)
                value = exact_addf(value, exact_mulf((float)plane[near[k]], share[k]));
            in[c] = value;
        }
        for (uint32_t c = 0; c < some; c++)
            to[(uint64_t)(first + c) * y->pixels] =
                draw_byte(recolor ? draw_channel(draw, in, x->channels, c,
                                                 exact_mulf(exact_addf(1.0f, -draw->contrast), mean))
                                  : in[c]);
    }
}
