/* The training option table, and functions that depend on several options. */
#include "common/model/train_options.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const solvers[] = { "sgdm", "adam", "adamw", "rmsprop", NULL };
static const char *const schedules[] = { "none", "piecewise", "exponential", "cosine", "polynomial", NULL };
static const char *const clippings[] = { "l2norm", "global-l2norm", "absolute-value", NULL };
static const char *const periods[] = { "epoch", "iteration", NULL };
static const char *const outputs[] = { "auto", "last", "best-validation", NULL };
static const char *const shuffles[] = { "never", "once", "every-epoch", NULL };
const char *const gp_on_error_names[] = { "error", "skip", NULL };
static const char *const statistics[] = { "moving", "population", NULL };

#define AT(field) GP_PARAM_FIELD(gp_train_options, field)

const gp_param gp_train_options_table[] = {
    { .name = "solver",
      AT(solver),
      .words = solvers,
      .seed_name = "solverName",
      .torch_name = "optimizer (optim.SGD, Adam, ...)",
      .basic = true,
      .help = "update rule: sgdm, adam, adamw or rmsprop" },
    { .name = "max-epochs",
      .alias = "epochs",
      AT(max_epochs),
      .fallback = 30,
      .min = 1,
      .max = 1e6,
      .unit = "epochs",
      .seed_name = "MaxEpochs",
      .basic = true,
      .help = "passes over the training data" },
    { .name = "mini-batch-size",
      .alias = "batch-size",
      AT(mini_batch_size),
      .fallback = 128,
      .min = 1,
      .max = 1 << 20,
      .unit = "samples",
      .seed_name = "MiniBatchSize",
      .torch_name = "DataLoader(batch_size) x world",
      .basic = true,
      .help = "samples of one step, over all workers" },
    { .name = "mini-batch-size-per-worker",
      AT(mini_batch_size_per_worker),
      .min = 0,
      .max = 1 << 20,
      .unit = "samples",
      .torch_name = "DataLoader(batch_size)",
      .help = "samples of one step on each worker, instead of mini-batch-size; 0 = not set" },
    { .name = "scale-lr",
      AT(scale_lr),
      .placeholder = "linear:BASE",
      .help = "linear:BASE multiplies the rate by mini-batch / BASE; empty: no scaling" },
    { .name = "initial-learn-rate",
      .alias = "lr",
      AT(initial_learn_rate),
      .fallback = -1,
      .min = 0,
      .max = 1e3,
      .seed_name = "InitialLearnRate",
      .torch_name = "lr",
      .basic = true,
      .help = "initial learning rate, never scaled by the number of workers; auto: 0.01 (sgdm) or 0.001" },
    { .name = "learn-rate-schedule",
      AT(learn_rate_schedule),
      .words = schedules,
      .seed_name = "LearnRateSchedule",
      .torch_name = "lr_scheduler",
      .basic = true,
      .placeholder = "SCHEDULE",
      .help = "none, piecewise (x drop factor every drop period), exponential (x drop factor every epoch), "
              "cosine, "
              "polynomial" },
    { .name = "learn-rate-drop-factor",
      AT(learn_rate_drop_factor),
      .fallback = 0.1,
      .min = 0,
      .max = 1,
      .seed_name = "LearnRateDropFactor",
      .torch_name = "StepLR(gamma)",
      .help = "drop factor of the piecewise and exponential schedules" },
    { .name = "learn-rate-drop-period",
      AT(learn_rate_drop_period),
      .fallback = 10,
      .min = 1,
      .max = 1e6,
      .unit = "epochs",
      .seed_name = "LearnRateDropPeriod",
      .torch_name = "StepLR(step_size)",
      .help = "epochs between two drops" },
    { .name = "learn-rate-warmup",
      AT(learn_rate_warmup),
      .min = 0,
      .max = 1e9,
      .unit = "steps",
      .seed_name = "LearnRateSchedule(\"warmup\")",
      .torch_name = "LinearLR",
      .help = "steps in which the rate rises to the initial rate" },
    { .name = "learn-rate-final-factor",
      AT(learn_rate_final_factor),
      .min = 0,
      .max = 1,
      .torch_name = "CosineAnnealingLR(eta_min)",
      .help = "final rate of cosine and polynomial, as a fraction of the initial rate" },
    { .name = "learn-rate-power",
      AT(learn_rate_power),
      .fallback = 0.9,
      .min = 0.01,
      .max = 10,
      .torch_name = "PolynomialLR(power)",
      .help = "exponent of polynomial" },
    { .name = "momentum",
      AT(momentum),
      .fallback = 0.9,
      .min = 0,
      .max = 1,
      .seed_name = "Momentum",
      .torch_name = "momentum",
      .help = "fraction of the previous update that is added (sgdm)" },
    { .name = "gradient-decay-factor",
      AT(gradient_decay_factor),
      .fallback = 0.9,
      .min = 0,
      .max = 0.999999,
      .seed_name = "GradientDecayFactor",
      .torch_name = "betas[0]",
      .help = "decay of the mean gradient (adam, adamw)" },
    { .name = "squared-gradient-decay-factor",
      AT(squared_gradient_decay_factor),
      .fallback = -1,
      .min = 0,
      .max = 0.999999,
      .seed_name = "SquaredGradientDecayFactor",
      .torch_name = "betas[1], alpha",
      .help = "decay of the mean squared gradient; auto: 0.9 (rmsprop) or 0.999" },
    { .name = "epsilon",
      AT(epsilon),
      .fallback = 1e-8,
      .min = 1e-15,
      .max = 1,
      .seed_name = "Epsilon",
      .torch_name = "eps",
      .help = "added to the root of the mean squared gradient (adam, adamw, rmsprop)" },
    { .name = "l2-regularization",
      .alias = "weight-decay",
      AT(l2_regularization),
      .fallback = 1e-4,
      .min = 0,
      .max = 1e3,
      .seed_name = "L2Regularization",
      .torch_name = "weight_decay",
      .help = "factor of the weights, times the layer's factor, that is added to the gradient (adamw: "
              "subtracted from the weights)" },
    { .name = "gradient-threshold",
      AT(gradient_threshold),
      .min = 0,
      .max = 1e30,
      .seed_name = "GradientThreshold",
      .torch_name = "clip_grad_norm_(max_norm)",
      .help = "clip gradients above it, after the sum over all workers; 0 = never" },
    { .name = "gradient-threshold-method",
      AT(gradient_threshold_method),
      .words = clippings,
      .seed_name = "GradientThresholdMethod",
      .torch_name = "clip_grad_norm_, clip_grad_value_",
      .help = "l2norm (norm of each tensor), global-l2norm (norm of all tensors), absolute-value (each "
              "element)" },
    { .name = "shuffle",
      AT(shuffle),
      .words = shuffles,
      .fallback = 2,
      .seed_name = "Shuffle",
      .torch_name = "DataLoader(shuffle)",
      .help = "order of the samples" },
    { .name = "validation-frequency",
      AT(validation_frequency),
      .min = 0,
      .max = 1e9,
      .unit = "steps",
      .seed_name = "ValidationFrequency",
      .help = "steps between validations; 0 = at the end of each epoch" },
    { .name = "validation-patience",
      AT(validation_patience),
      .min = 0,
      .max = 1e9,
      .unit = "validations",
      .seed_name = "ValidationPatience",
      .help =
          "end the training after this number of consecutive validations without a lower loss; 0 = never" },
    { .name = "output-network",
      AT(output_network),
      .words = outputs,
      .seed_name = "OutputNetwork",
      .help = "weights of the model: last, best-validation (lowest loss), auto (best-validation with "
              "validation-patience, else last)" },
    { .name = "verbose-frequency",
      AT(verbose_frequency),
      .fallback = 50,
      .min = 1,
      .max = 1e9,
      .unit = "steps",
      .seed_name = "VerboseFrequency",
      .help = "steps between two printed lines" },
    { .name = "checkpoint-path",
      AT(checkpoint_path),
      .seed_name = "CheckpointPath",
      .torch_name = "torch.save",
      .basic = true,
      .placeholder = "DIRECTORY",
      .help = "directory for checkpoints; the last two and the best are kept" },
    { .name = "checkpoint-frequency",
      AT(checkpoint_frequency),
      .fallback = 1,
      .min = 1,
      .max = 1e9,
      .seed_name = "CheckpointFrequency",
      .help = "epochs or iterations between checkpoints; one more is written at the end" },
    { .name = "checkpoint-frequency-unit",
      AT(checkpoint_frequency_unit),
      .words = periods,
      .seed_name = "CheckpointFrequencyUnit",
      .help = "epoch or iteration" },
    { .name = "resume",
      AT(resume),
      .seed_name = "trainnet(checkpoint)",
      .torch_name = "load_state_dict",
      .basic = true,
      .placeholder = "PATH|auto",
      .help = "continue from a STEP.json, from the newest checkpoint of a directory, or (auto) of "
              "--checkpoint-path" },
    { .name = "run-id",
      AT(run_id),
      .help =
          "id of the run, stored in its checkpoints (default: random, or that of --resume); with the id of "
          "an earlier run, continue its checkpoints" },
    { .name = "seed",
      AT(seed),
      .fallback = 1,
      .min = 0,
      .max = 9007199254740991.0,
      .seed_name = "rng",
      .torch_name = "manual_seed",
      .basic = true,
      .help = "seed of initial weights, sample order and dropout" },
    { .name = "precision",
      AT(precision),
      .words = gp_precision_names,
      .torch_name = "autocast(dtype)",
      .basic = true,
      .help = "bf16, fp16: 16-bit activations and products, float32 weights and sums; tf32: products rounded "
              "to 11 bits; tf32 and fp16 on GPUs only" },
    { .name = "loss-scale",
      AT(loss_scale),
      .fallback = 65536,
      .min = 1,
      .max = 1e9,
      .torch_name = "GradScaler(init_scale)",
      .help = "fp16: initial factor of the loss, so that small gradients do not vanish" },
    { .name = "loss-scale-growth",
      AT(loss_scale_growth),
      .fallback = 2,
      .min = 1,
      .max = 1e3,
      .torch_name = "GradScaler(growth_factor)",
      .help = "fp16: factor by which the scale grows after loss-scale-interval steps without an overflow" },
    { .name = "loss-scale-backoff",
      AT(loss_scale_backoff),
      .fallback = 0.5,
      .min = 1e-3,
      .max = 1,
      .torch_name = "GradScaler(backoff_factor)",
      .help = "fp16: factor by which the scale shrinks when a gradient is not finite; all workers skip such "
              "a step" },
    { .name = "loss-scale-interval",
      AT(loss_scale_interval),
      .fallback = 2000,
      .min = 0,
      .max = 1e9,
      .unit = "steps",
      .torch_name = "GradScaler(growth_interval)",
      .help = "fp16: steps without an overflow until the scale grows; 0: never" },
    { .name = "reproducible",
      AT(reproducible),
      .torch_name = "use_deterministic_algorithms",
      .help = "bitwise identical results on any number of workers, also after failures and resumes; slower" },
    { .name = "weights-initializer",
      AT(weights_initializer),
      .fallback_text = "glorot",
      .seed_name = "WeightsInitializer",
      .torch_name = "nn.init",
      .placeholder = "glorot|he|normal:S",
      .help = "glorot, he, or normal:S (weights and biases, standard deviation S)" },
    { .name = "worker-weights",
      AT(worker_weights),
      .seed_name = "WorkerLoad",
      .placeholder = "N,N,...",
      .help = "relative slice of each worker in a mini-batch, such as 2,1,1; default: equal" },
    { .name = "batch-norm-statistics",
      AT(batch_norm_statistics),
      .words = statistics,
      .seed_name = "BatchNormalizationStatistics",
      .help = "moving: averages of the steps' moments; population: one more pass over the data at the end" },
    { .name = "synchronize-batch-norm",
      AT(synchronize_batch_norm),
      .torch_name = "SyncBatchNorm",
      .help = "normalise by the moments of all workers instead of each worker; slower" },
    { .name = "nccl-auto-network",
      AT(nccl_auto_network),
      .seed_name = "PARALLEL_SERVER_FAST_MULTINODE_GPU_COMMUNICATION",
      .help = "GPUs of several hosts: choose and check the network interface and GPUDirect for NCCL" },
    { .name = "class-weights",
      AT(class_weights),
      .seed_name = "ClassWeights",
      .torch_name = "CrossEntropyLoss(weight)",
      .placeholder = "WEIGHTS",
      .help = "weight of each class in the loss: auto (median-frequency), inverse-frequency, none, or one "
              "number per class: '1 0.5 2'" },
    { .name = "augment",
      AT(augment),
      .seed_name = "imageDataAugmenter",
      .torch_name = "transforms",
      .basic = true,
      .placeholder = "'KEY=VALUE ...'",
      .help = "random transformations of images (docs/augmentation.md)" },
    { .name = "image-size",
      AT(image_size),
      .min = 0,
      .max = 8192,
      .unit = "pixels",
      .seed_name = "OutputSize",
      .torch_name = "Resize",
      .basic = true,
      .placeholder = "H,W",
      .help = "size to which image files are resized before a crop; 0,0: their own size, which must be the "
              "network's" },
    { .name = "on-error", AT(on_error), .words = gp_on_error_names, .help = GP_ON_ERROR_HELP },
    { .name = "max-restarts",
      AT(max_restarts),
      .fallback = 3,
      .min = 0,
      .max = 1000,
      .torch_name = "torchrun --max-restarts",
      .help = "consecutive worker failures, without a step in between, from which the training recovers; 0: "
              "none" },
    { .name = "min-workers",
      AT(min_workers),
      .fallback = 1,
      .min = 1,
      .max = GP_LOADS_MAX,
      .torch_name = "torchrun --nnodes MIN:MAX",
      .help = "continue at once after a worker failure with at least this number of workers, else wait for "
              "replacements" },
    { .name = "image-cache",
      AT(image_cache),
      .fallback = 512,
      .min = 0,
      .max = 1 << 20,
      .unit = "MiB",
      .help = "memory of each worker for decoded images; it does not change the samples" },
    { .name = "micro-batch-size",
      AT(micro_batch_size),
      .min = 0,
      .max = 1 << 20,
      .unit = "samples",
      .torch_name = "gradient accumulation",
      .help = "maximum number of samples in one call on a worker; 0 = the whole slice of the batch" },
    { .name = "exchange-bucket-bytes",
      AT(exchange_bucket_bytes),
      .fallback = 4 << 20,
      .min = 4096,
      .max = 1 << 30,
      .unit = "bytes",
      .torch_name = "bucket_cap_mb",
      .help = "gradients that are exchanged together; between GPUs the default is 25 MiB" },
    { .name = "autotune-seconds",
      AT(autotune_seconds),
      .fallback = 20,
      .min = 0,
      .max = 3600,
      .unit = "s",
      .torch_name = "cudnn.benchmark, max-autotune",
      .help = "time limit of a GPU training for the choice of cuDNN and cuBLASLt engines; 0, or with "
              "reproducible: default rule" },
    { 0 },
};

gp_status gp_train_options_from_json(gp_train_options *out, const char *text, size_t bytes, gp_error *err)
{
    gp_train_options options;
    gp_json *document;
    gp_init_rule rule;
    gp_status status = gp_json_parse(&document, text, bytes, err);

    if (status != GP_OK)
        return status;
    gp_params_default(gp_train_options_table, &options);
    status = gp_params_from_json(gp_train_options_table, &options, document, err);
    gp_json_free(document);
    gp_train_options_resolve(&options);
    if (status == GP_OK)
        status = gp_init_rule_parse(&rule, options.weights_initializer, err);
    if (status == GP_OK)
        *out = options;
    return status;
}

gp_status gp_train_options_from_words(gp_train_options *out, const char *const *words, gp_error *err)
{
    const char *batch = NULL, *batch_per_worker = NULL;

    gp_params_default(gp_train_options_table, out);
    for (; words != NULL && *words != NULL; words++) {
        const char *equals = strchr(*words, '=');
        char name[64];

        if (equals == NULL || (size_t)(equals - *words) >= sizeof(name))
            return gp_fail(err, GP_EINVAL, "option '%s' is not of the form name=value", *words);
        snprintf(name, sizeof(name), "%.*s", (int)(equals - *words), *words);
        const gp_param *param = gp_params_find(gp_train_options_table, name);

        if (param == NULL)
            return gp_params_unknown(gp_train_options_table, name, err);
        gp_status status = gp_params_set(param, out, equals + 1, err);

        if (status != GP_OK)
            return status;
        if (strcmp(param->name, "mini-batch-size") == 0)
            batch = *words;
        if (strcmp(param->name, "mini-batch-size-per-worker") == 0)
            batch_per_worker = *words;
    }
    if (batch != NULL && batch_per_worker != NULL)
        return gp_fail(err, GP_EINVAL, "%s and %s are both given; drop one of them", batch, batch_per_worker);
    return GP_OK;
}

void gp_train_options_from_checked(gp_train_options *out, const char *const *words)
{
    gp_train_options_from_words(out, words, NULL);
    gp_train_options_resolve(out);
}

void gp_train_options_resolve(gp_train_options *options)
{
    if (options->initial_learn_rate < 0)
        options->initial_learn_rate = options->solver == GP_SOLVER_SGDM ? 0.01 : 0.001;
    if (options->squared_gradient_decay_factor < 0)
        options->squared_gradient_decay_factor = options->solver == GP_SOLVER_RMSPROP ? 0.9 : 0.999;
}

gp_status gp_train_options_scale(gp_train_options *options, uint32_t workers, gp_error *err)
{
    const gp_param *batch = gp_params_find(gp_train_options_table, "mini-batch-size");
    int64_t base;
    char rest;

    gp_train_options_resolve(options);
    if (options->mini_batch_size_per_worker != 0)
        options->mini_batch_size = options->mini_batch_size_per_worker * workers;
    if ((double)options->mini_batch_size > batch->max)
        return gp_fail(err, GP_EINVAL,
                       "mini-batch-size-per-worker %" PRId64 " on %" PRIu32
                       " workers makes a mini-batch of %" PRId64 " samples; the maximum is %.0f",
                       options->mini_batch_size_per_worker, workers, options->mini_batch_size, batch->max);
    if (options->scale_lr[0] == '\0')
        return GP_OK;
    if (sscanf(options->scale_lr, "linear:%" SCNd64 "%c", &base, &rest) != 1 || base < 1)
        return gp_fail(err, GP_EINVAL, "scale-lr is '%s'; it must be linear:BASE, as in linear:256",
                       options->scale_lr);
    options->initial_learn_rate *= (double)options->mini_batch_size / (double)base;
    /* Prevent a second scaling if this function is called again. */
    options->scale_lr[0] = '\0';
    return GP_OK;
}

gp_status gp_train_options_check_network(const gp_train_options *options, const gp_graph *graph,
                                         gp_error *err)
{
    if (!options->synchronize_batch_norm && options->batch_norm_statistics == GP_STATISTICS_MOVING)
        return GP_OK;
    for (uint32_t p = 0; p < graph->parameter_count; p++)
        if (graph->parameters[p].statistic != GP_STATISTIC_NONE)
            return GP_OK;
    return gp_fail(err, GP_EINVAL, "network %s has no batch norm; omit %s", graph->spec->name,
                   options->synchronize_batch_norm ? "synchronize-batch-norm" : "batch-norm-statistics");
}

gp_status gp_train_options_check_samples(const gp_train_options *options, uint32_t samples,
                                         const char *source, gp_error *err)
{
    if (options->mini_batch_size <= (int64_t)samples)
        return GP_OK;
    return gp_fail(err, GP_EINVAL,
                   "mini-batch-size is %" PRId64 ", but %s has only %" PRIu32
                   " samples; use --batch-size %" PRIu32 " or less",
                   options->mini_batch_size, source, samples, samples);
}

gp_status gp_train_options_loads(const gp_train_options *options, uint32_t workers, double *loads,
                                 bool *given, gp_error *err)
{
    const char *at = options->worker_weights;
    uint32_t count = 0;
    double sum = 0;

    *given = *at != '\0';
    for (uint32_t i = 0; i < workers; i++)
        loads[i] = 1;
    while (*at != '\0') {
        char *end;
        double load = strtod(at, &end);

        if (end == at || !(load >= 0) || load > 1e6 || (*end != '\0' && *end != ',') ||
            (*end == ',' && end[1] == '\0'))
            return gp_fail(err, GP_EINVAL,
                           "worker-weights is '%.60s'; it must be numbers from 0 to 1000000, as in 2,1,1",
                           options->worker_weights);
        if (count < workers)
            loads[count] = load;
        count++;
        sum += load;
        at = *end == ',' ? end + 1 : end;
    }
    if (*given && count != workers)
        return gp_fail(err, GP_EINVAL,
                       "worker-weights has %" PRIu32 " numbers ('%.60s') for %" PRIu32
                       " workers; give one for each",
                       count, options->worker_weights, workers);
    if (*given && !(sum > 0))
        return gp_fail(err, GP_EINVAL, "worker-weights is '%.60s'; at least one number must be above 0",
                       options->worker_weights);
    return GP_OK;
}

bool gp_train_keeps_best(const gp_train_options *options)
{
    return options->output_network == GP_OUTPUT_BEST ||
           (options->output_network == GP_OUTPUT_AUTO && options->validation_patience > 0);
}

/* Return the schedule's factor for a step after the warm-up. */
static double schedule_factor(const gp_train_options *options, const gp_train_place *place)
{
    uint64_t warmup = (uint64_t)options->learn_rate_warmup;
    double final = options->learn_rate_final_factor, drops = place->epoch - 1, share = 1.0;

    /* 0 in the first step after the warm-up, 1 in the last step. */
    if (place->steps > warmup + 1)
        share = (double)(place->step - warmup - 1) / (double)(place->steps - warmup - 1);
    switch ((gp_learn_rate_schedule)options->learn_rate_schedule) {
    case GP_SCHEDULE_NONE:
        break;
    case GP_SCHEDULE_PIECEWISE:
        return pow(options->learn_rate_drop_factor,
                   (double)((place->epoch - 1) / options->learn_rate_drop_period));
    case GP_SCHEDULE_EXPONENTIAL:
        return pow(options->learn_rate_drop_factor, drops);
    case GP_SCHEDULE_COSINE:
        return final + (1.0 - final) * 0.5 * (1.0 + cos(M_PI * share));
    case GP_SCHEDULE_POLYNOMIAL:
        return final + (1.0 - final) * pow(1.0 - share, options->learn_rate_power);
    }
    return 1.0;
}

double gp_train_learn_rate(const gp_train_options *options, const gp_train_place *place)
{
    if (place->step <= (uint64_t)options->learn_rate_warmup)
        return options->initial_learn_rate * (double)place->step / (double)options->learn_rate_warmup;
    return options->initial_learn_rate * schedule_factor(options, place);
}
