/* Losses: gradients, scores, and a step's partial sums. Included by bodies.h.
 *
 *   bytes        targets, 4-byte words; those of sample n start at n * n[1] + n[0]
 *   f[2]         scores or NULL, dense; those of sample n start at n * n[3] + n[2]
 *   number64     [0] factor of loss and gradient, [1] factor of weights
 *   d[0], d[1]   partial sums, BODY_SUMS per item; sums */

enum {
    BODY_LOSS,
    BODY_WEIGHT,
    BODY_CORRECT,
    BODY_CLASSED,
    BODY_SQUARES,
    BODY_VALUES,
    BODY_BAD,
    BODY_SUMS
}; /* same values as GP_SUM_* */

/* Return the factor for gradients: the loss factor times the loss scale, which prevents underflow
 * in fp16. */
BODY float loss_slope(const gp_kernel_args *a)
{
    return (float)a->number64[0] * a->call->scale;
}

BODY int32_t loss_label(const gp_kernel_args *a, uint32_t n, uint32_t p)
{
    int32_t label = -1;

    if (n < a->call->count && a->call->targets)
        label = ((const int32_t *)a->bytes)[(size_t)n * a->n[1] + a->n[0] + p];
    return label == a->number[0] || label >= (int32_t)a->x[0].channels ? -1 : label;
}

BODY void score_put(const gp_kernel_args *a, uint32_t n, uint32_t e, float value)
{
    if (a->f[2] != NULL && n < a->call->count)
        a->f[2][(size_t)n * a->n[3] + a->n[2] + e] = value;
}

/* Add the softmax cross-entropy for one pixel to the sums, and compute the gradient. */
BODY void xent_pixel(const gp_kernel_args *a, uint32_t n, uint32_t p, double sums[BODY_SUMS])
{
    const gp_kernel_image *x = &a->x[0];
    const size_t first = image_at(x, n, 0, p);
    const int32_t label = loss_label(a, n, p);
    const float *weights = a->f[3];
    const float own = label < 0 ? 0.0f : weights == NULL ? 1.0f : weights[label], share = a->factor[0];
    float largest = image_get(x, first), total = 0.0f, targets = 0.0f, log_total, loss = 0.0f;
    uint32_t best = 0;

    for (uint32_t k = 1; k < x->channels; k++) {
        float value = image_get(x, first + (size_t)k * x->channel_stride);

        if (value > largest) {
            largest = value;
            best = k;
        }
    }
    for (uint32_t k = 0; k < x->channels; k++)
        total += expf(image_get(x, first + (size_t)k * x->channel_stride) - largest);
    log_total = logf(total);
    if (label >= 0)
        targets = (1.0f - share) * own + a->factor[1];
    for (uint32_t k = 0; k < x->channels; k++) {
        size_t at = first + (size_t)k * x->channel_stride;
        float below = image_get(x, at) - largest, score = expf(below) / total, target = 0.0f;

        if (label >= 0) {
            target = share / (float)x->channels * (weights == NULL ? 1.0f : weights[k]);
            target += (int32_t)k == label ? (1.0f - share) * own : 0.0f;
            loss += target == 0.0f ? 0.0f : target * (log_total - below);
        }
        if (a->y[0].data != NULL)
            image_put(&a->y[0], at, loss_slope(a) * (targets * score - target));
        score_put(a, n, k * x->pixels + p, a->number[1] != 0 ? image_get(x, at) : score);
    }
    if (label < 0)
        return;
    sums[BODY_LOSS] += a->number64[0] * (double)loss;
    sums[BODY_WEIGHT] += a->number64[1] * (double)own;
    sums[BODY_CLASSED] += 1.0;
    sums[BODY_CORRECT] += (int32_t)best == label ? 1.0 : 0.0;
}

BODY void parts_put(const gp_kernel_args *a, uint32_t i, const double sums[BODY_SUMS])
{
    for (int k = 0; k < BODY_SUMS; k++)
        a->d[0][(size_t)i * BODY_SUMS + (size_t)k] = sums[k];
}

/* Softmax cross-entropy: x[0] logits, f[3] class weights or NULL, factor[0] label smoothing,
 * factor[1] smoothing times the mean class weight -> y[0] dlogits or NULL. Items: chunks of pixels
 * of all rows. */
BODY void body_xent(const gp_kernel_args *a, uint32_t i)
{
    double sums[BODY_SUMS] = { 0 };

    for (uint32_t unit = i; unit < a->rows * a->x[0].pixels; unit += a->chunks)
        xent_pixel(a, unit / a->x[0].pixels, unit % a->x[0].pixels, sums);
    parts_put(a, i, sums);
}

/* ---- softmax cross-entropy with many classes: a warp per pixel ---- */

/* Return the largest of a warp's values and, in *best, the smallest index that has it. */
BODY float warp_largest(float largest, uint32_t *best)
{
#ifdef __CUDA_ARCH__
    for (int distance = 16; distance > 0; distance /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, largest, distance);
        const uint32_t other_best = __shfl_xor_sync(0xffffffffu, *best, distance);

        if (other > largest || (other == largest && other_best < *best)) {
            largest = other;
            *best = other_best;
        }
    }
#else
    (void)best;
#endif
    return largest;
}

/* As xent_pixel(), for float32. A lane processes `width` (1 or 4) neighbouring classes at once, and
 * all arrays have vectors of that many numbers. */
BODY void xent_warp_pixel(const gp_kernel_args *a, uint32_t n, uint32_t p, uint32_t lane, uint32_t width,
                          double sums[BODY_SUMS])
{
    const uint32_t classes = a->x[0].channels, start = width * lane, step = width * 32;
    const size_t first = image_at(&a->x[0], n, 0, p);
    const float *x = (const float *)a->x[0].data + first, *weights = a->f[3];
    float *y = a->y[0].data == NULL ? NULL : (float *)a->y[0].data + first,
          *shown = a->f[2] == NULL || n >= a->call->count
                       ? NULL
                       : a->f[2] + (size_t)n * a->n[3] + a->n[2] + (size_t)p;
    const uint32_t shown_stride = a->x[0].pixels;
    const int32_t label = loss_label(a, n, p);
    const float own = label < 0         ? 0.0f
                      : weights == NULL ? 1.0f
                                        : weights[label],
                share = a->factor[0], peak = (1.0f - share) * own,
                each = label < 0 ? 0.0f : share / (float)classes,
                targets = label < 0 ? 0.0f : peak + a->factor[1], slope = loss_slope(a);
    float values[4], largest = -INFINITY, total = 0.0f, inverse, log_total;
    double loss = 0.0;
    uint32_t best = start;

    for (uint32_t k = start; k < classes; k += step) {
        floats_get(values, width, x + k);
        for (uint32_t j = 0; j < width; j++)
            if (values[j] > largest) {
                largest = values[j];
                best = k + j;
            }
    }
    largest = warp_largest(largest, &best);
    for (uint32_t k = start; k < classes; k += step) {
        floats_get(values, width, x + k);
        for (uint32_t j = 0; j < width; j++)
            total += expf(values[j] - largest);
    }
    total = (float)warp_sum((double)total);
    inverse = 1.0f / total;
    log_total = logf(total);
    for (uint32_t k = start; k < classes; k += step) {
        float scores[4], slopes[4], target[4] = { 1.0f, 1.0f, 1.0f, 1.0f }, part = 0.0f;

        floats_get(values, width, x + k);
        if (weights != NULL)
            floats_get(target, width, weights + k);
        for (uint32_t j = 0; j < width; j++) {
            const float below = values[j] - largest;

            target[j] = each * target[j] + ((int32_t)(k + j) == label ? peak : 0.0f);
            part += target[j] == 0.0f ? 0.0f : target[j] * (log_total - below);
            scores[j] = expf(below) * inverse;
            slopes[j] = slope * (targets * scores[j] - target[j]);
            scores[j] = a->number[1] != 0 ? values[j] : scores[j];
        }
        loss += (double)part;
        if (y != NULL)
            floats_put(y + k, width, slopes);
        if (shown != NULL)
            floats_put(shown + (size_t)k * shown_stride, width, scores);
    }
    loss = warp_sum(loss);
    if (label < 0)
        return;
    sums[BODY_LOSS] += a->number64[0] * loss;
    sums[BODY_WEIGHT] += a->number64[1] * (double)own;
    sums[BODY_CLASSED] += 1.0;
    sums[BODY_CORRECT] += (int32_t)best == label ? 1.0 : 0.0;
}

BODY void xent_warp_chunk(const gp_kernel_args *a, uint32_t i, uint32_t width)
{
    double sums[BODY_SUMS] = { 0 };

    for (uint32_t unit = i / 32; unit < a->rows * a->x[0].pixels; unit += a->chunks)
        xent_warp_pixel(a, unit / a->x[0].pixels, unit % a->x[0].pixels, i % 32, width, sums);
    if (i % 32 == 0)
        parts_put(a, i / 32, sums);
}

/* As xent, for consecutive float32 logits of a pixel. n[4]: whether logits, gradient, class weights
 * and scores of a pixel have vectors of 16 bytes. Items: 32 for each chunk. */
BODY void body_xent_warp(const gp_kernel_args *a, uint32_t i)
{
    if (a->n[4])
        xent_warp_chunk(a, i, 4);
    else
        xent_warp_chunk(a, i, 1);
}

/* Loss of values: x[0] -> y[0] gradient or NULL. kind 0: squared error; kind 1: Huber loss with
 * delta factor[0]. Items: chunks of elements. */
BODY void body_values_loss(const gp_kernel_args *a, uint32_t i)
{
    double sums[BODY_SUMS] = { 0 };

    for (uint32_t unit = i; unit < a->rows * a->x[0].sample; unit += a->chunks) {
        place at = image_place(&a->x[0], unit);
        uint32_t e = at.c * a->x[0].pixels + at.p;
        float value = image_get(&a->x[0], unit), target = 0.0f, error = 0.0f, slope, delta = a->factor[0];
        int counts = at.n < a->call->count && a->call->targets;

        if (counts) {
            target = ((const float *)a->bytes)[(size_t)at.n * a->n[1] + a->n[0] + e];
            error = value - target;
            counts = target == target;
        }
        slope = a->kind == 0 ? 2.0f * error : error > delta ? delta : error < -delta ? -delta : error;
        if (a->y[0].data != NULL)
            image_put(&a->y[0], unit, counts ? loss_slope(a) * slope : 0.0f);
        score_put(a, at.n, e, value);
        if (!counts)
            continue;
        double off = (double)error, size = off < 0.0 ? -off : off;

        sums[BODY_LOSS] +=
            a->number64[0] * (a->kind == 0            ? off * off
                              : size <= (double)delta ? off * off / 2.0
                                                      : (double)delta * (size - (double)delta / 2.0));
        sums[BODY_WEIGHT] += a->number64[1];
        sums[BODY_SQUARES] += off * off;
        sums[BODY_VALUES] += 1.0;
    }
    parts_put(a, i, sums);
}

BODY void pass_end(const gp_kernel_args *a, int32_t pass); /* bodies_step.h */

/* Reduce partial sums d[0]. kind 0: to n[0] partial sums d[1]; kind 1: add all to d[1]. kept: end
 * the forward pass; NULL: do not. Items: 32 for each (part, index of the sum). */
BODY void body_loss_sums(const gp_kernel_args *a, uint32_t i)
{
    uint32_t part = i / 32 / BODY_SUMS, k = i / 32 % BODY_SUMS;
    double sum = 0.0;

    for (uint32_t m = part + i % 32 * a->n[0]; m < a->chunks; m += 32 * a->n[0])
        sum += a->d[0][(size_t)m * BODY_SUMS + k];
    sum = warp_sum(sum);
    if (i % 32 != 0)
        return;
    if (a->kind == 1)
        a->d[1][k] += sum;
    else
        a->d[1][i / 32] = sum;
    if (i == 0 && a->kept != NULL)
        pass_end(a, 0);
}

/* ---- generalised Dice: sums per sample and class, sums per sample, gradient ---- */

/* x[0] p -> f[4] partial sums [n][chunk][K][3]: labelled pixels of the class, sum of p over them,
 * sum of p over all labelled pixels. Items: (n, chunk, K). */
BODY void body_dice_part(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *x = &a->x[0];
    uint32_t k = i % x->channels, chunk = i / x->channels % a->chunks, n = i / x->channels / a->chunks;
    float truth = 0.0f, overlap = 0.0f, all = 0.0f;

    for (uint32_t p = chunk; p < x->pixels; p += a->chunks) {
        int32_t label = loss_label(a, n, p);
        float value = image_get(x, image_at(x, n, k, p));

        if (label < 0)
            continue;
        all += value;
        if (label == (int32_t)k) {
            truth += 1.0f;
            overlap += value;
        }
    }
    a->f[4][(size_t)i * 3] = truth;
    a->f[4][(size_t)i * 3 + 1] = overlap;
    a->f[4][(size_t)i * 3 + 2] = all;
}

/* f[4] partial sums -> f[5] [n][K + 2]: class weights, overlap, sizes; d[0] partial sums. Items:
 * samples. number64[2]: exponent. */
BODY void body_dice_sum(const gp_kernel_args *a, uint32_t n)
{
    const uint32_t classes = a->x[0].channels;
    float *out = a->f[5] + (size_t)n * (classes + 2);
    double sums[BODY_SUMS] = { 0 }, overlap = 0.0, sizes = 0.0;

    for (uint32_t k = 0; k < classes; k++) {
        double truth = 0.0, own = 0.0, all = 0.0, weight;

        for (uint32_t chunk = 0; chunk < a->chunks; chunk++) {
            const float *part = a->f[4] + (((size_t)n * a->chunks + chunk) * classes + k) * 3;

            truth += (double)part[0];
            own += (double)part[1];
            all += (double)part[2];
        }
        weight = truth > 0.0 ? pow(truth, -a->number64[2]) : 0.0;
        out[k] = (float)weight;
        overlap += weight * own;
        sizes += weight * (all + truth);
    }
    out[classes] = (float)overlap;
    out[classes + 1] = (float)sizes;
    if (sizes != 0.0) {
        sums[BODY_LOSS] = a->number64[0] * (1.0 - 2.0 * overlap / sizes);
        sums[BODY_WEIGHT] = a->number64[1];
    }
    parts_put(a, n, sums);
}

/* f[5] -> y[0] dp or NULL, scores; d[0] partial sums after those of dice_sum. Items: n[4] chunks of
 * pixels. */
BODY void body_dice_apply(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *x = &a->x[0];
    double sums[BODY_SUMS] = { 0 };

    for (uint32_t unit = i; unit < a->rows * x->pixels; unit += a->n[4]) {
        uint32_t n = unit / x->pixels, p = unit % x->pixels, best = 0;
        const float *about = a->f[5] + (size_t)n * (x->channels + 2);
        float overlap = about[x->channels], sizes = about[x->channels + 1], largest = 0.0f;
        int32_t label = loss_label(a, n, p);

        UNROLL(1) /* more would spill registers */
        for (uint32_t k = 0; k < x->channels; k++) {
            size_t at = image_at(x, n, k, p);
            float value = image_get(x, at), truth = (int32_t)k == label ? 1.0f : 0.0f;

            if (k == 0 || value > largest) {
                largest = value;
                best = k;
            }
            if (a->y[0].data != NULL)
                image_put(&a->y[0], at,
                          label < 0 ? 0.0f
                                    : -2.0f * loss_slope(a) * about[k] * (truth - overlap / sizes) / sizes);
            score_put(a, n, k * x->pixels + p, value);
        }
        if (label < 0)
            continue;
        sums[BODY_CLASSED] += 1.0;
        sums[BODY_CORRECT] += (int32_t)best == label ? 1.0 : 0.0;
    }
    parts_put(a, a->rows + i, sums);
}

/* Copy x[0] to f[2] for a custom loss. Items: elements in CHW order. */
BODY void body_scores_copy(const gp_kernel_args *a, uint32_t i)
{
    place at = image_place(&a->x[0], i);

    score_put(a, at.n, at.c * a->x[0].pixels + at.p, image_get(&a->x[0], i));
}

/* Copy a custom loss gradient, x[0] (dense), to y[0]. */
BODY void body_scores_slope(const gp_kernel_args *a, uint32_t i)
{
    place at = image_place(&a->y[0], i);

    image_put(&a->y[0], i,
              a->call->scale * image_get(&a->x[0], image_chw(&a->x[0], at.n, at.c * a->y[0].pixels + at.p)));
}

/* ---- count gradients that are not finite, in the last call in a step ---- */

/* Count over f[1] gradients [count] -> d[0] partial sums. Items: chunks. */
BODY void body_bad_part(const gp_kernel_args *a, uint32_t i)
{
    double bad = 0.0;

    for (uint64_t e = i; a->call->last && e < a->count; e += a->chunks)
        bad += a->f[1][e] - a->f[1][e] == 0.0f ? 0.0 : 1.0;
    a->d[0][i] = bad;
}

/* Add the sum of d[0] [chunks] to the step's sums d[1]. One item. */
BODY void body_bad_sum(const gp_kernel_args *a, uint32_t i)
{
    double bad = 0.0;

    for (uint32_t k = 0; k < a->chunks; k++)
        bad += a->d[0][k];
    a->d[1][BODY_BAD + i] += bad;
}
