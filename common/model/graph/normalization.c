/* Implement normalization.h. */
#include "common/model/graph/normalization.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTE_MAX 255.0

/* ImageNet training images: channel means and standard deviations, as pixel / 255. */
static const double imagenet_mean[] = { 0.485, 0.456, 0.406 };
static const double imagenet_std[] = { 0.229, 0.224, 0.225 };

/* Parsed normalization: network input = pixel * scale + offset. */
typedef struct normalization {
    size_t count; /* 1, or one per channel */
    double scale[GP_NORMALIZE_MAX], offset[GP_NORMALIZE_MAX];
} normalization;

/* Append (pixel / 255 - mean) / std, converted to scale and offset. */
static void channel_put(normalization *out, double mean, double std)
{
    out->scale[out->count] = 1.0 / (BYTE_MAX * std);
    out->offset[out->count] = -mean / std;
    out->count++;
}

/* Parse numbers separated by colons, up to the character `end`.
 *   behind  set to the position after `end`, or to the terminating NUL
 * Return the count; 0: malformed or too many. */
static size_t numbers_parse(const char *text, char end, double numbers[GP_NORMALIZE_MAX], const char **behind)
{
    for (size_t count = 0; count < GP_NORMALIZE_MAX; text++) {
        char *stop;

        numbers[count++] = strtod(text, &stop);
        if (stop == text || !isfinite(numbers[count - 1]))
            return 0;
        text = stop;
        if (*text == end) {
            *behind = text + (end != '\0');
            return count;
        }
        if (*text != ':')
            return 0;
    }
    return 0;
}

/* Parse "MEAN,STD". */
static gp_status mean_std_parse(normalization *out, const char *text, gp_error *err)
{
    double mean[GP_NORMALIZE_MAX], std[GP_NORMALIZE_MAX];
    const char *at = text;
    const size_t means = numbers_parse(at, ',', mean, &at);
    const size_t stds = means == 0 ? 0 : numbers_parse(at, '\0', std, &at);

    if (stds == 0)
        return gp_fail(err, GP_EINVAL,
                       "image-normalization is '%.60s'; must be 0..1, 0..255, imagenet or MEAN,STD in units "
                       "of pixel/255, for example 0.5,0.5 or 0.485:0.456:0.406,0.229:0.224:0.225",
                       text);
    if (means != stds && means != 1 && stds != 1)
        return gp_fail(err, GP_EINVAL,
                       "image-normalization '%.60s' has %zu means and %zu deviations; must have one "
                       "deviation, or as many as means",
                       text, means, stds);
    for (size_t i = 0; i < means || i < stds; i++) {
        const double deviation = std[stds == 1 ? 0 : i];

        if (deviation <= 0.0)
            return gp_fail(err, GP_EINVAL,
                           "image-normalization '%.60s' has the deviation %g; must be above 0", text,
                           deviation);
        channel_put(out, mean[means == 1 ? 0 : i], deviation);
    }
    return GP_OK;
}

static gp_status parse(normalization *out, const char *text, gp_error *err)
{
    out->count = 0;
    if (strcmp(text, "0..255") == 0) {
        out->scale[0] = 1.0;
        out->offset[0] = 0.0;
        out->count = 1;
        return GP_OK;
    }
    if (strcmp(text, "imagenet") == 0) {
        for (size_t i = 0; i < sizeof(imagenet_mean) / sizeof(imagenet_mean[0]); i++)
            channel_put(out, imagenet_mean[i], imagenet_std[i]);
        return GP_OK;
    }
    if (strcmp(text, "0..1") == 0) {
        channel_put(out, 0.0, 1.0);
        return GP_OK;
    }
    return mean_std_parse(out, text, err);
}

/* Compare with a tolerance: files store float32, or only some digits. */
static bool numbers_equal(double a, double b)
{
    return fabs(a - b) <= 1e-5 * fmax(fabs(a), fabs(b)) + 1e-7;
}

/* Return whether the network has this normalization. */
static bool states(const gp_netspec *spec, const normalization *wanted)
{
    const size_t count = spec->normalize_count > wanted->count ? spec->normalize_count : wanted->count;
    bool equal = spec->normalize_count == 1 || wanted->count == 1 || spec->normalize_count == wanted->count;

    for (size_t i = 0; i < count && equal; i++) {
        const size_t a = spec->normalize_count == 1 ? 0 : i, b = wanted->count == 1 ? 0 : i;

        equal = numbers_equal(spec->scale[a], wanted->scale[b]) &&
                numbers_equal(spec->offset[a], wanted->offset[b]);
    }
    return equal;
}

gp_status gp_normalization_set(gp_netspec *spec, const char *text, gp_error *err)
{
    normalization wanted;
    gp_status status = parse(&wanted, text, err);

    if (status != GP_OK)
        return status;
    if (wanted.count != 1 && (int64_t)wanted.count != spec->input.dim[0])
        return gp_fail(err, GP_EINVAL,
                       "image-normalization '%.60s' has %zu channels, but network %s takes %" PRId64
                       "; use one value, or one per channel",
                       text, wanted.count, spec->name, spec->input.dim[0]);
    return gp_netspec_normalize(spec, wanted.scale, wanted.offset, wanted.count, err);
}

gp_status gp_normalization_apply(gp_netspec *spec, const char *text, bool trained, gp_error *err)
{
    char own[GP_NORMALIZATION_TEXT];
    normalization wanted;

    if (text == NULL || text[0] == '\0')
        return GP_OK;
    if (!trained || spec->scale_unknown)
        return gp_normalization_set(spec, text, err);
    gp_status status = parse(&wanted, text, err);

    if (status != GP_OK || states(spec, &wanted))
        return status;
    return gp_fail(err, GP_EINVAL,
                   "image-normalization is '%.60s', but the model of network %s has %s; omit it, or change "
                   "the model: gradpool model edit FILE --set input.normalization=%.60s -o OUT.onnx",
                   text, spec->name, gp_normalization_format(spec, own), text);
}

/* Write one number per channel, separated by colons, or a single number if all are equal. Return
 * the byte count. */
static size_t numbers_format(char *text, size_t bytes, const double *numbers, uint32_t count)
{
    size_t used = 0;
    bool equal = true;

    for (uint32_t i = 1; i < count; i++)
        equal = equal && numbers_equal(numbers[0], numbers[i]);
    for (uint32_t i = 0; i < (equal ? 1 : count) && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%.6g", i == 0 ? "" : ":", numbers[i]);
    return used;
}

char *gp_normalization_format(const gp_netspec *spec, char text[GP_NORMALIZATION_TEXT])
{
    static const char *const words[] = { "0..1", "0..255", "imagenet" };
    double mean[GP_NORMALIZE_MAX], std[GP_NORMALIZE_MAX];
    normalization known;

    if (spec->scale_unknown)
        return strcpy(text, "unknown");
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (parse(&known, words[i], NULL) == GP_OK && states(spec, &known))
            return strcpy(text, words[i]);
    for (uint32_t i = 0; i < spec->normalize_count; i++) {
        std[i] = 1.0 / (BYTE_MAX * spec->scale[i]);
        /* Adding 0.0 converts -0 to 0. */
        mean[i] = -spec->offset[i] * std[i] + 0.0;
    }
    size_t used = numbers_format(text, GP_NORMALIZATION_TEXT - 1, mean, spec->normalize_count);

    text[used++] = ',';
    numbers_format(text + used, GP_NORMALIZATION_TEXT - used, std, spec->normalize_count);
    return text;
}

gp_status gp_netspec_check_samples(const gp_netspec *spec, const gp_shape *sample, gp_dtype dtype,
                                   const char *source, gp_error *err)
{
    char have[64], want[64];

    if (!gp_netspec_takes(spec, sample))
        return gp_fail(err, GP_EINVAL,
                       "the samples of %.100s are %s (channels x height x width), but network %s takes %s; "
                       "use image files, which can be resized, or change the network: gradpool model edit "
                       "FILE --set input.size=%s",
                       source, gp_shape_format(sample, have, sizeof(have)), spec->name,
                       gp_shape_format(&spec->input, want, sizeof(want)), have);
    if (dtype != GP_U8 || !spec->scale_unknown)
        return GP_OK;
    return gp_fail(
        err, GP_EINVAL,
        "the file of network %s does not state how pixels are scaled, and %.100s has bytes from 0 to 255; "
        "set --image-normalization to 0..1, 0..255, imagenet or MEAN,STD, as in the training of the network, "
        "or store it in the file: gradpool model edit FILE --set input.normalization=0..1 -o OUT.onnx",
        spec->name, source);
}
