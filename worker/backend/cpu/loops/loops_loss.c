/* All losses except plain cross-entropy: for sample or pixel classes, and for values.
 *
 * The positions (pixels of samples; a vector has one pixel) are divided into a fixed number of
 * chunks. One thread sums each chunk in order, and the chunk sums are added in order. Equal calls
 * therefore give bitwise identical results with any thread count. For Dice, chunks consist of whole
 * samples. */
#include <assert.h>
#include <math.h>

#include "worker/backend/cpu/loops/loops_inside.h"

/* chunk count, independent of the thread count */
enum { LOSS_CHUNKS = 64 };

typedef struct loss_job loss_job;

/* Compute one chunk: positions, or samples, [range.first, range.end). */
typedef void (*loss_fn)(const loss_job *job, loop_range range, double sums[GP_SUMS]);

/* One loss call. */
struct loss_job {
    const gp_loop_call *call;
    loss_fn run;
    loop_image x, dx;      /* logits, and their gradient (dx.data may be NULL) */
    const int32_t *labels; /* class targets, from the first sample on; NULL: no targets */
    /* value targets at the same address; the op determines which pointer is used */
    const float *values;
    size_t target_stride; /* elements between samples in the targets */
    float *scores;        /* scores from the first sample on; NULL: not requested */
    size_t score_stride, units;
    double total; /* total class weight */
    double part[LOSS_CHUNKS][GP_SUMS];
};

static void loss_share(void *context, uint32_t thread, uint32_t threads)
{
    loss_job *job = context;

    for (uint32_t chunk = thread; chunk < LOSS_CHUNKS; chunk += threads)
        job->run(job, loop_range_of(job->units, 1, chunk, LOSS_CHUNKS), job->part[chunk]);
}

static loss_job loss_job_of(const gp_loop_call *call, loss_fn run)
{
    const gp_op *op = call->op;
    const void *targets = call->batch->targets;
    loss_job job = { .call = call,
                     .run = run,
                     .x = loop_image_of(call, &call->in[0]),
                     .dx = loop_image_of(call, &call->out[0]),
                     .target_stride = op->loss.target_stride,
                     .score_stride = op->loss.score_stride };

    if (targets != NULL) {
        job.labels = (const int32_t *)targets + op->loss.target_first;
        job.values = (const float *)targets + op->loss.target_first;
    }
    if (op->out[2] != GP_NO_VALUE && call->memory->scores != NULL)
        job.scores = call->memory->scores + op->loss.score_first;
    job.units = call->batch->count * job.x.pixels;
    return job;
}

static void loss_job_run(loss_job *job)
{
    const gp_loop_call *call = job->call;
    size_t elements = call->batch->count * job->x.channels * job->x.pixels;
    double *sums = call->memory->sums;

    gp_threads_run(elements < LOOP_SHARED_MIN ? 1 : call->threads, loss_share, job);
    loop_clear_rest(call, &call->out[0]);
    if (call->batch->targets == NULL)
        return;
    for (uint32_t chunk = 0; chunk < LOSS_CHUNKS; chunk++)
        for (int i = 0; i < GP_SUMS; i++)
            sums[i] += job->part[chunk][i] * (i == GP_SUM_LOSS     ? call->op->loss.factor
                                              : i == GP_SUM_WEIGHT ? call->op->loss.weight
                                                                   : 1.0);
}

/* Addresses of one position. */
typedef struct loss_place {
    size_t sample, pixel;
    const float *x;
    float *dx;     /* NULL: not requested */
    float *scores; /* NULL: not requested; channels are x.pixels elements apart */
} loss_place;

static loss_place place_of(const loss_job *job, size_t unit)
{
    loss_place place = { .sample = unit / job->x.pixels, .pixel = unit % job->x.pixels };
    size_t at = place.sample * job->x.sample_stride + place.pixel * job->x.pixel_stride;

    place.x = job->x.data + at;
    place.dx = job->dx.data == NULL ? NULL : job->dx.data + at;
    place.scores = job->scores == NULL ? NULL : job->scores + place.sample * job->score_stride + place.pixel;
    return place;
}

/* ---- classes ---- */

/* Return the label at a position. -1: none, the position is ignored. */
static int64_t label_at(const loss_job *job, const loss_place *place)
{
    int64_t label = job->labels == NULL ? -1 : job->labels[place->sample * job->target_stride + place->pixel];

    return label == job->call->op->number[0] ? -1 : label;
}

/* Check that all labels are valid classes or the ignored label. */
static gp_status labels_check(const loss_job *job, gp_error *err)
{
    const size_t count = job->labels == NULL ? 0 : job->call->batch->count * job->x.pixels;
    const size_t classes = job->x.channels;

    for (size_t i = 0; i < count; i++) {
        size_t sample = i / job->x.pixels, pixel = i % job->x.pixels;
        int32_t label = job->labels[sample * job->target_stride + pixel];

        if (label == job->call->op->number[0] || (label >= -1 && (label < 0 || (size_t)label < classes)))
            continue;
        if (job->x.pixels == 1)
            return gp_fail(err, GP_EINVAL, "sample %zu has label %d; the network has %zu classes", sample,
                           label, classes);
        return gp_fail(err, GP_EINVAL, "pixel %zu of sample %zu has label %d; the network has %zu classes",
                       pixel, sample, label, classes);
    }
    return GP_OK;
}

static double weight_of(const loss_job *job, size_t k)
{
    return job->call->op->weights == NULL ? 1.0 : job->call->op->weights[k];
}

static size_t largest_of(const float *x, size_t classes, size_t stride)
{
    size_t largest = 0;

    for (size_t k = 1; k < classes; k++)
        if (x[k * stride] > x[largest * stride])
            largest = k;
    return largest;
}

static void xent_chunk(const loss_job *job, loop_range range, double sums[GP_SUMS])
{
    for (size_t unit = range.first; unit < range.end; unit++) {
        loss_place place = place_of(job, unit);

        /* Add one position to the weighted cross-entropy. A position without a label has
         * weight 0: no loss, no gradient. */
        const size_t classes = job->x.channels, stride = job->x.channel_stride;
        const int64_t label = label_at(job, &place);
        const double smoothing = job->call->op->factor[0], factor = job->call->op->loss.factor;
        const double own = label >= 0 ? weight_of(job, (size_t)label) : 0.0,
                     share = smoothing / (double)classes;
        const size_t largest = largest_of(place.x, classes, stride);
        double sum = 0.0, log_sum;

        for (size_t k = 0; k < classes; k++)
            sum += exp((double)place.x[k * stride] - (double)place.x[largest * stride]);
        log_sum = log(sum) + (double)place.x[largest * stride];
        for (size_t k = 0; k < classes; k++) {
            double log_score = (double)place.x[k * stride] - log_sum, score = exp(log_score), target = 0.0;

            if (label >= 0)
                target = share * weight_of(job, k) + (k == (size_t)label ? (1.0 - smoothing) * own : 0.0);
            if (place.scores != NULL)
                place.scores[k * job->x.pixels] =
                    job->call->op->loss.scores_as_is ? place.x[k * stride] : (float)score;
            if (target != 0.0)
                sums[GP_SUM_LOSS] -= target * log_score;
            if (place.dx != NULL)
                place.dx[k * stride] =
                    label < 0
                        ? 0.0f
                        : (float)((((1.0 - smoothing) * own + share * job->total) * score - target) * factor);
        }
        sums[GP_SUM_WEIGHT] += own;
        sums[GP_SUM_CLASSED] += label >= 0 ? 1.0 : 0.0;
        sums[GP_SUM_CORRECT] += label >= 0 && largest == (size_t)label ? 1.0 : 0.0;
    }
}

static gp_status weighted_xent_run(const gp_loop_call *call, gp_error *err)
{
    loss_job job = loss_job_of(call, xent_chunk);
    gp_status status = labels_check(&job, err);

    if (status != GP_OK)
        return status;
    for (size_t k = 0; k < job.x.channels; k++)
        job.total += weight_of(&job, k);
    loss_job_run(&job);
    return GP_OK;
}

const gp_loop gp_loop_weighted_xent = { .run = weighted_xent_run };

/* ---- Dice ---- */

/* Sums per class over the labelled pixels in one sample. */
typedef struct dice_sums {
    double overlap[GP_DICE_CLASSES_MAX], predicted[GP_DICE_CLASSES_MAX], truth[GP_DICE_CLASSES_MAX];
} dice_sums;

/* Sum the overlap, prediction and target for each class over a sample. Return the labelled pixel
 * count. */
static size_t dice_add(const loss_job *job, size_t sample, dice_sums *of, double sums[GP_SUMS])
{
    const size_t classes = job->x.channels, stride = job->x.channel_stride;
    size_t counted = 0;

    for (size_t k = 0; k < classes; k++)
        of->overlap[k] = of->predicted[k] = of->truth[k] = 0.0;
    for (size_t p = 0; p < job->x.pixels; p++) {
        loss_place place = place_of(job, sample * job->x.pixels + p);
        const int64_t label = label_at(job, &place);

        for (size_t k = 0; k < classes && place.scores != NULL; k++)
            place.scores[k * job->x.pixels] = place.x[k * stride];
        if (label < 0)
            continue;
        for (size_t k = 0; k < classes; k++)
            of->predicted[k] += place.x[k * stride];
        of->overlap[label] += place.x[(size_t)label * stride];
        of->truth[label] += 1.0;
        sums[GP_SUM_CORRECT] += largest_of(place.x, classes, stride) == (size_t)label ? 1.0 : 0.0;
        counted++;
    }
    sums[GP_SUM_CLASSED] += (double)counted;
    return counted;
}

/* Compute a sample's gradient: d loss / d p[k] = 2 w[k] (A - B t[k]) / B^2, where A = sum w overlap
 * and B = sum w (predicted + truth). */
static void dice_gradient(const loss_job *job, size_t sample, const double *weight, double a, double b)
{
    const size_t classes = job->x.channels, stride = job->x.channel_stride;
    const double scale = 2.0 * job->call->op->loss.factor / (b * b);

    for (size_t p = 0; p < job->x.pixels; p++) {
        loss_place place = place_of(job, sample * job->x.pixels + p);
        const int64_t label = label_at(job, &place);

        for (size_t k = 0; k < classes; k++)
            place.dx[k * stride] =
                label < 0 ? 0.0f : (float)(scale * weight[k] * (a - (k == (size_t)label ? b : 0.0)));
    }
}

static void dice_chunk(const loss_job *job, loop_range range, double sums[GP_SUMS])
{
    const size_t classes = job->x.channels;
    dice_sums of;

    for (size_t sample = range.first; sample < range.end; sample++) {
        size_t counted = dice_add(job, sample, &of, sums);
        /* overwrites `overlap` after adding it to `a` */
        double a = 0.0, b = 0.0, *weight = of.overlap;

        for (size_t k = 0; k < classes; k++) {
            double w = of.truth[k] == 0.0 ? 0.0 : pow(of.truth[k], -job->call->op->factor[0]);

            a += w * of.overlap[k];
            b += w * (of.predicted[k] + of.truth[k]);
            weight[k] = w;
        }
        if (counted != 0) {
            sums[GP_SUM_LOSS] += 1.0 - 2.0 * a / b;
            sums[GP_SUM_WEIGHT] += 1.0;
        }
        if (job->dx.data != NULL) /* without labelled pixels, every label is -1 */
            dice_gradient(job, sample, weight, a, counted == 0 ? 1.0 : b);
    }
}

static gp_status dice_run(const gp_loop_call *call, gp_error *err)
{
    loss_job job = loss_job_of(call, dice_chunk);
    gp_status status = labels_check(&job, err);

    assert(job.x.channels <= GP_DICE_CLASSES_MAX);
    if (status != GP_OK)
        return status;
    job.units = call->batch->count;
    loss_job_run(&job);
    return GP_OK;
}

const gp_loop gp_loop_dice = { .run = dice_run };

/* ---- values ---- */

/* Return the squared or Huber loss for an error, and the derivative. */
LOOP_INLINE double error_loss(double error, bool huber, double delta, double *slope)
{
    if (!huber) {
        *slope = 2.0 * error;
        return error * error;
    }
    if (fabs(error) <= delta) {
        *slope = error;
        return 0.5 * error * error;
    }
    *slope = error > 0.0 ? delta : -delta;
    return delta * (fabs(error) - 0.5 * delta);
}

static void values_chunk(const loss_job *job, loop_range range, double sums[GP_SUMS])
{
    for (size_t unit = range.first; unit < range.end; unit++) {
        loss_place place = place_of(job, unit);

        const size_t stride = job->x.channel_stride;
        const double delta = job->call->op->factor[0], factor = job->call->op->loss.factor;

        for (size_t c = 0; c < job->x.channels; c++) {
            float y = place.x[c * stride];
            float target =
                job->values == NULL
                    ? NAN
                    : job->values[place.sample * job->target_stride + c * job->x.pixels + place.pixel];
            double error = (double)y - (double)target, slope = 0.0;

            if (!isnan(target)) {
                sums[GP_SUM_LOSS] += error_loss(error, job->call->op->code == GP_OP_HUBER, delta, &slope);
                sums[GP_SUM_WEIGHT] += 1.0;
                sums[GP_SUM_SQUARES] += error * error;
                sums[GP_SUM_VALUES] += 1.0;
            }
            if (place.dx != NULL)
                place.dx[c * stride] = (float)(slope * factor);
            if (place.scores != NULL)
                place.scores[c * job->x.pixels] = y;
        }
    }
}

/* Compute the mean squared error, or the Huber loss if the op is GP_OP_HUBER. */
static gp_status value_loss_run(const gp_loop_call *call, gp_error *err)
{
    loss_job job = loss_job_of(call, values_chunk);

    (void)err;
    loss_job_run(&job);
    return GP_OK;
}

const gp_loop gp_loop_value_loss = { .run = value_loss_run };
