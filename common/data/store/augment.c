/* Augmentation settings: the option table, the parser, and each sample's random transform. */
#include "common/data/store/augment.h"

#include <math.h>
#include <string.h>

#include "common/base/rng.h"

#define AT(field) GP_PARAM_FIELD(gp_augment, field)

static const char *const crops[] = { "none", "center", "random", "fit", "resized", NULL };

const gp_param gp_augment_table[] = {
    { "crop", AT(crop), .words = crops, .seed_name = "OutputSizeMode",
      .torch_name = "RandomCrop, RandomResizedCrop",
      .help = "none, center, random, fit (the largest centered window, scaled to crop-size) or resized "
              "(random area and aspect ratio, scaled to crop-size)" },
    { "crop-size", AT(crop_size), .min = 0, .max = GP_STORE_SIDE_MAX, .unit = "pixels",
      .seed_name = "PatchSize", .help = "height and width of a crop" },
    { "crop-area", AT(crop_area), .fallback = -1, .min = 0.001, .max = 1,
      .torch_name = "RandomResizedCrop(scale)",
      .help = "fraction of the image area in a resized crop (default 0.08,1)" },
    { "crop-aspect", AT(crop_aspect), .fallback = -1, .min = 0.01, .max = 100,
      .torch_name = "RandomResizedCrop(ratio)",
      .help = "aspect ratio (width / height) of a resized crop (default 0.75,1.3333)" },
    { "patches-per-image", AT(patches_per_image), .fallback = 1, .min = 1, .max = GP_PATCHES_MAX,
      .seed_name = "PatchesPerImage", .help = "number of random crops of each image per epoch" },
    { "x-reflection", AT(x_reflection), .max = 1, .seed_name = "RandXReflection",
      .torch_name = "RandomHorizontalFlip", .help = "probability of a horizontal flip" },
    { "y-reflection", AT(y_reflection), .max = 1, .seed_name = "RandYReflection",
      .torch_name = "RandomVerticalFlip", .help = "probability of a vertical flip" },
    { "rotation", AT(rotation), .min = -360, .max = 360, .unit = "degrees", .seed_name = "RandRotation",
      .torch_name = "RandomRotation", .help = "degrees counter-clockwise around the center" },
    { "scale", AT(scale), .fallback = 1, .min = 0.01, .max = 100, .seed_name = "RandScale",
      .torch_name = "RandomAffine(scale)", .help = "factor in both directions; above 1 enlarges" },
    { "x-scale", AT(x_scale), .fallback = 1, .min = 0.01, .max = 100, .seed_name = "RandXScale",
      .help = "factor of the width" },
    { "y-scale", AT(y_scale), .fallback = 1, .min = 0.01, .max = 100, .seed_name = "RandYScale",
      .help = "factor of the height" },
    { "x-shear", AT(x_shear), .min = -80, .max = 80, .unit = "degrees", .seed_name = "RandXShear",
      .torch_name = "RandomAffine(shear)", .help = "degrees by which rows are sheared, growing downwards" },
    { "y-shear", AT(y_shear), .min = -80, .max = 80, .unit = "degrees", .seed_name = "RandYShear",
      .help = "degrees by which columns are sheared, growing to the right" },
    { "x-translation", AT(x_translation), .min = -GP_STORE_SIDE_MAX, .max = GP_STORE_SIDE_MAX,
      .unit = "pixels", .seed_name = "RandXTranslation", .torch_name = "RandomAffine(translate)",
      .help = "pixels to the right" },
    { "y-translation", AT(y_translation), .min = -GP_STORE_SIDE_MAX, .max = GP_STORE_SIDE_MAX,
      .unit = "pixels", .seed_name = "RandYTranslation", .help = "downwards" },
    { "fill", AT(fill), .min = -1e6, .max = 1e6, .seed_name = "FillValue", .torch_name = "fill",
      .help = "stored value of pixels outside of the image; their labels are ignored" },
    { "brightness", AT(brightness), .fallback = 1, .min = 0, .max = 10,
      .torch_name = "ColorJitter(brightness)", .help = "factor of all values" },
    { "contrast", AT(contrast), .fallback = 1, .min = 0, .max = 10, .torch_name = "ColorJitter(contrast)",
      .help = "factor of the difference to the mean of the image" },
    { "saturation", AT(saturation), .fallback = 1, .min = 0, .max = 10,
      .torch_name = "ColorJitter(saturation)", .help = "factor of the difference to gray" },
    { "hue", AT(hue), .min = -180, .max = 180, .unit = "degrees", .torch_name = "ColorJitter(hue)",
      .help = "rotation of colors around the gray axis" },
    { 0 },
};

/* ---- settings ---- */

static gp_status check_ranges(const gp_augment *augment, gp_error *err)
{
    for (const gp_param *param = gp_augment_table; param->name != NULL; param++) {
        const double *range = (const double *)(const void *)((const char *)augment + param->offset);

        if (param->type == GP_PARAM_F64 && param->count == 2 && range[0] > range[1])
            return gp_fail(err, GP_EINVAL,
                           "%s is a range from %g to %g; the first value must be the smaller one",
                           param->name, range[0], range[1]);
    }
    if ((augment->crop != GP_CROP_NONE) != (augment->crop_size[0] > 0 && augment->crop_size[1] > 0))
        return gp_fail(err, GP_EINVAL,
                       augment->crop == GP_CROP_NONE ? "crop-size needs crop: center, random or resized"
                                                     : "crop needs crop-size=HEIGHT,WIDTH");
    if (augment->crop == GP_CROP_NONE && augment->patches_per_image > 1)
        return gp_fail(err, GP_EINVAL, "patches-per-image needs crop=random and crop-size=HEIGHT,WIDTH");
    return GP_OK;
}

gp_status gp_augment_parse(gp_augment *out, const char *text, gp_error *err)
{
    char copy[GP_AUGMENT_TEXT_MAX], *rest = copy, *word;
    gp_augment augment;
    gp_status status = GP_OK;

    if (strlen(text) >= sizeof(copy))
        return gp_fail(err, GP_ELIMIT, "augment has %zu characters, at most %zu are supported", strlen(text),
                       sizeof(copy) - 1);
    strcpy(copy, text);
    gp_params_default(gp_augment_table, &augment);
    while (status == GP_OK && (word = strsep(&rest, " ;")) != NULL) {
        char *equals = strchr(word, '=');
        const gp_param *param;

        if (*word == '\0')
            continue;
        if (equals != NULL)
            *equals = '\0';
        param = gp_params_find(gp_augment_table, word);
        if (param == NULL)
            return gp_params_unknown(gp_augment_table, word, err);
        if (equals == NULL)
            return gp_fail(err, GP_EINVAL, "'%s' in augment has no value; write %s=...", word, word);
        status = gp_params_set(param, &augment, equals + 1, err);
    }
    if (augment.crop_area[0] < 0)
        augment.crop_area[0] = 0.08, augment.crop_area[1] = 1;
    if (augment.crop_aspect[0] < 0)
        augment.crop_aspect[0] = 3.0 / 4.0, augment.crop_aspect[1] = 4.0 / 3.0;
    if (status == GP_OK)
        status = check_ranges(&augment, err);
    if (status == GP_OK)
        *out = augment;
    return status;
}

bool gp_augment_is_identity(const gp_augment *augment)
{
    for (const gp_param *param = gp_augment_table; param->name != NULL; param++)
        if (gp_params_changed(param, augment) && strncmp(param->name, "crop-", 5) != 0)
            return false;
    return true;
}

bool gp_augment_is_window(const gp_augment *augment)
{
    static const char *const others[] = { "rotation", "scale",   "x-scale",       "y-scale",
                                          "x-shear",  "y-shear", "x-translation", "y-translation" };

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (gp_params_changed(gp_params_find(gp_augment_table, others[i]), augment))
            return false;
    return augment->crop != GP_CROP_NONE;
}

gp_augment gp_augment_fixed(const gp_augment *augment, const int64_t size[2])
{
    gp_augment fixed;

    gp_augment_parse(&fixed, "", NULL);
    if (augment->crop != GP_CROP_NONE) {
        fixed.crop = augment->crop == GP_CROP_FIT || (augment->crop == GP_CROP_RESIZED && size[0] == 0)
                         ? GP_CROP_FIT
                         : GP_CROP_CENTER;
        memcpy(fixed.crop_size, augment->crop_size, sizeof(fixed.crop_size));
    }
    fixed.fill = augment->fill;
    return fixed;
}

static bool crop_scales(const gp_augment *augment)
{
    return augment->crop == GP_CROP_RESIZED || augment->crop == GP_CROP_FIT;
}

gp_status gp_augment_images(gp_store_options *out, const gp_augment *augment, const int64_t size[2],
                            const gp_shape *input, gp_error *err)
{
    gp_store_options images = { 0 };

    if (input != NULL)
        images = gp_store_options_for(input);
    if (input != NULL && augment->crop == GP_CROP_NONE && size[0] != 0 &&
        (images.height != (uint64_t)size[0] || images.width != (uint64_t)size[1]))
        return gp_fail(err, GP_EINVAL,
                       "image-size is %lld,%lld, but the network takes %ux%u; omit it, or crop with augment",
                       (long long)size[0], (long long)size[1], images.height, images.width);
    if (input == NULL || augment->crop != GP_CROP_NONE) {
        images.height = (uint32_t)size[0];
        images.width = (uint32_t)size[1];
    }
    if (input != NULL && augment->crop == GP_CROP_NONE && size[0] == 0) {
        images.exact[0] = images.channels;
        images.exact[1] = images.height;
        images.exact[2] = images.width;
    }
    images.any_size = images.height == 0 && crop_scales(augment) && gp_augment_is_window(augment);
    *out = images;
    return GP_OK;
}

/* Check that every target can follow the image: a single number, or an index per pixel. */
static gp_status check_targets(const gp_store_info *store, gp_error *err)
{
    char text[200];

    for (uint32_t t = 0; t < store->target_count; t++) {
        const gp_target *target = &store->targets[t];
        bool pixels = target->dtype == GP_I32 && target->shape.rank == 2 &&
                      target->shape.dim[0] == store->height && target->shape.dim[1] == store->width;

        if (target->shape.rank != 0 && !pixels)
            return gp_fail(
                err, GP_EINVAL,
                "%s has targets of shape %s, which cannot be transformed with the image; augmentation needs "
                "one number per sample, or a class for each of its %ux%u pixels",
                store->source, gp_targets_format(store->targets, store->target_count, text, sizeof(text)),
                store->height, store->width);
    }
    return GP_OK;
}

gp_status gp_augment_shape(gp_store_info *out, const gp_augment *augment, const gp_store_info *store,
                           gp_error *err)
{
    gp_status status = gp_augment_is_identity(augment) ? GP_OK : check_targets(store, err);

    if (status != GP_OK)
        return status;
    if (store->sizes_differ && !gp_store_has_class(store))
        return gp_fail(err, GP_EINVAL,
                       "the images of %s have several sizes; resize them and their label images before the "
                       "crop, for example with --image-size 360,480",
                       store->source);
    if (augment->crop != GP_CROP_NONE && !crop_scales(augment) &&
        (augment->crop_size[0] > store->height || augment->crop_size[1] > store->width))
        return gp_fail(err, GP_EINVAL, "a crop of %lldx%lld is larger than the images of %s, %ux%u",
                       (long long)augment->crop_size[0], (long long)augment->crop_size[1], store->source,
                       store->height, store->width);
    if (store->channels != 3 && (augment->saturation[0] != 1 || augment->saturation[1] != 1 ||
                                 augment->hue[0] != 0 || augment->hue[1] != 0))
        return gp_fail(err, GP_EINVAL, "saturation and hue need images with 3 channels; those of %s have %u",
                       store->source, store->channels);
    if ((uint64_t)store->count * (uint64_t)augment->patches_per_image > GP_STORE_SAMPLES_MAX)
        return gp_fail(err, GP_ELIMIT, "%u images with %lld patches each exceed the limit of %d samples",
                       store->count, (long long)augment->patches_per_image, GP_STORE_SAMPLES_MAX);
    *out = *store;
    out->count = store->count * (uint32_t)augment->patches_per_image;
    if (augment->crop != GP_CROP_NONE) {
        out->height = (uint32_t)augment->crop_size[0];
        out->width = (uint32_t)augment->crop_size[1];
        out->sample_bytes = (size_t)out->channels * out->height * out->width * gp_dtype_bytes(out->dtype);
        for (uint32_t t = 0; t < out->target_count; t++)
            if (out->targets[t].shape.rank == 2)
                out->targets[t].shape = gp_shape2(out->height, out->width);
        out->target_bytes = gp_targets_bytes(out->targets, out->target_count);
    }
    return GP_OK;
}

/* ---- drawing ---- */

/* Random number index for each setting. Never reassign a number: that would change existing
 * trainings. */
enum {
    DRAW_X_REFLECTION,
    DRAW_Y_REFLECTION,
    DRAW_ROTATION,
    DRAW_SCALE,
    DRAW_X_SCALE,
    DRAW_Y_SCALE,
    DRAW_X_SHEAR,
    DRAW_Y_SHEAR,
    DRAW_X_TRANSLATION,
    DRAW_Y_TRANSLATION,
    DRAW_CROP_X,
    DRAW_CROP_Y,
    DRAW_CROP_AREA,
    DRAW_CROP_ASPECT,
    DRAW_BRIGHTNESS,
    DRAW_CONTRAST,
    DRAW_SATURATION,
    DRAW_HUE,
    DRAWS = 20, /* a multiple of 4: the generator returns four words per call */
};

static double between(const double range[2], float draw)
{
    return range[0] + (range[1] - range[0]) * (double)draw;
}

/* Multiply two affine maps: a := a * b. */
static void affine_multiply(double a[2][3], const double b[2][3])
{
    for (int i = 0; i < 2; i++) {
        double x = a[i][0], y = a[i][1];

        for (int j = 0; j < 3; j++)
            a[i][j] = x * b[0][j] + y * b[1][j] + (j == 2 ? a[i][2] : 0);
    }
}

/* Input window that the crop selects: centre and size. */
typedef struct crop_window {
    double x, y, width, height;
} crop_window;

/* Choose the crop window for one sample. */
static crop_window crop_draw(const gp_augment *augment, const gp_store_info *store, const float *draws)
{
    const double width = store->width, height = store->height;
    crop_window window = { width / 2, height / 2, width, height };
    double left = 0, top = 0;

    switch ((gp_crop)augment->crop) {
    case GP_CROP_NONE:
        return window;
    case GP_CROP_CENTER:
    case GP_CROP_RANDOM:
        window.height = (double)augment->crop_size[0];
        window.width = (double)augment->crop_size[1];
        left = floor((width - window.width) / 2);
        top = floor((height - window.height) / 2);
        if (augment->crop == GP_CROP_RANDOM) { /* positions are whole pixels */
            left = floor((width - window.width + 1) * (double)draws[DRAW_CROP_X]);
            top = floor((height - window.height + 1) * (double)draws[DRAW_CROP_Y]);
        }
        break;
    case GP_CROP_FIT: {
        double fit = fmin(width / (double)augment->crop_size[1], height / (double)augment->crop_size[0]);

        window.width = fit * (double)augment->crop_size[1];
        window.height = fit * (double)augment->crop_size[0];
        left = (width - window.width) / 2;
        top = (height - window.height) / 2;
        break;
    }
    case GP_CROP_RESIZED: {
        double area = between(augment->crop_area, draws[DRAW_CROP_AREA]) * width * height;
        double low = log(augment->crop_aspect[0]), high = log(augment->crop_aspect[1]);
        double aspect = exp(low + (high - low) * (double)draws[DRAW_CROP_ASPECT]);

        window.width = fmin(width, sqrt(area * aspect)); /* clip a side that exceeds the image */
        window.height = fmin(height, sqrt(area / aspect));
        left = (width - window.width) * (double)draws[DRAW_CROP_X];
        top = (height - window.height) * (double)draws[DRAW_CROP_Y];
        break;
    }
    }
    window.x = left + window.width / 2;
    window.y = top + window.height / 2;
    return window;
}

/* Compute the map from output to input positions: each step's inverse, the last step first. */
static void geometry_draw(double a[2][3], const gp_augment *augment, const gp_store_info *store,
                          const gp_store_info *augmented, const float *draws)
{
    const double radians = M_PI / 180;
    crop_window window = crop_draw(augment, store, draws);
    double turn = between(augment->rotation, draws[DRAW_ROTATION]) * radians;
    double shear_x = tan(between(augment->x_shear, draws[DRAW_X_SHEAR]) * radians);
    double shear_y = tan(between(augment->y_shear, draws[DRAW_Y_SHEAR]) * radians);
    double both = between(augment->scale, draws[DRAW_SCALE]);
    double x = window.width / augmented->width / (both * between(augment->x_scale, draws[DRAW_X_SCALE]));
    double y = window.height / augmented->height / (both * between(augment->y_scale, draws[DRAW_Y_SCALE]));
    double determinant = 1 - shear_x * shear_y;

    if ((double)draws[DRAW_X_REFLECTION] < augment->x_reflection)
        x = -x;
    if ((double)draws[DRAW_Y_REFLECTION] < augment->y_reflection)
        y = -y;
    if (fabs(determinant) < 1e-6) /* the two shears together collapse the image to a line */
        determinant = 1e-6;
    memcpy(a, (double[2][3]){ { 1, 0, window.x }, { 0, 1, window.y } }, 6 * sizeof(double));
    affine_multiply(a, (double[2][3]){ { x, 0, 0 }, { 0, y, 0 } });
    affine_multiply(a, (double[2][3]){ { 1 / determinant, -shear_x / determinant, 0 },
                                       { -shear_y / determinant, 1 / determinant, 0 } });
    if (turn != 0) /* y points down, so a counter-clockwise turn is negative here */
        affine_multiply(a, (double[2][3]){ { cos(turn), -sin(turn), 0 }, { sin(turn), cos(turn), 0 } });
    affine_multiply(a, (double[2][3]){ { 1, 0,
                                         -(double)augmented->width / 2 -
                                             between(augment->x_translation, draws[DRAW_X_TRANSLATION]) },
                                       { 0, 1,
                                         -(double)augmented->height / 2 -
                                             between(augment->y_translation, draws[DRAW_Y_TRANSLATION]) } });
}

/* Combine brightness, saturation and hue into one matrix. Luma weights are those of ITU-R
 * BT.601. */
static void color_draw(gp_augment_draw *out, const gp_augment *augment, uint32_t channels, const float *draws)
{
    static const double luma[3] = { 0.299, 0.587, 0.114 };
    double bright = between(augment->brightness, draws[DRAW_BRIGHTNESS]);
    double contrast = between(augment->contrast, draws[DRAW_CONTRAST]);
    double saturation = between(augment->saturation, draws[DRAW_SATURATION]);
    double turn = between(augment->hue, draws[DRAW_HUE]) * M_PI / 180;
    double third = (1 - cos(turn)) / 3, side = sin(turn) / sqrt(3);
    /* Rotation about (1, 1, 1) / sqrt(3) by Rodrigues' formula. */
    const double rotate[3][3] = { { cos(turn) + third, third - side, third + side },
                                  { third + side, cos(turn) + third, third - side },
                                  { third - side, third + side, cos(turn) + third } };

    out->contrast = (float)contrast;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            double sum = 0;

            for (int k = 0; k < 3; k++)
                sum += rotate[i][k] * ((k == j ? saturation : 0) + (1 - saturation) * luma[j]);
            out->color[i][j] = (float)(bright * (channels == 3 ? sum : i == j));
        }
    out->recolor = bright != 1 || contrast != 1 || (channels == 3 && (saturation != 1 || turn != 0));
}

void gp_augment_draw_sample(gp_augment_draw *out, const gp_augment *augment, const gp_store_info *store,
                            const gp_store_info *augmented, uint64_t seed, uint32_t epoch, uint32_t index)
{
    float draws[DRAWS];
    uint32_t words[4];

    for (uint32_t i = 0; i < DRAWS; i++) {
        if (i % 4 == 0)
            gp_rng_draw(words, seed, gp_rng_stream(GP_RNG_AUGMENT, 0), epoch, index, i / 4);
        draws[i] = gp_rng_uniform(words[i % 4]);
    }
    geometry_draw(out->a, augment, store, augmented, draws);
    color_draw(out, augment, store->channels, draws);
}

void gp_augment_draw_window(gp_augment_draw *out, const gp_drawing *drawing, uint32_t width, uint32_t height,
                            uint32_t epoch, uint32_t index)
{
    const gp_store_info image = { .width = width, .height = height, .channels = drawing->shape->channels };

    gp_augment_draw_sample(out, drawing->augment, &image, drawing->shape, drawing->seed, epoch, index);
}
