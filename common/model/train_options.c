#include "common/model/train_options.h"

#include <math.h>
#include <stddef.h>

static const char *const solvers[] = { "sgdm", NULL };
static const char *const schedules[] = { "none", "piecewise", NULL };
static const char *const shuffles[] = { "never", "once", "every-epoch", NULL };

#define AT(field) .offset = offsetof(gp_train_options, field)

const gp_param gp_train_options_table[] = {
    { .name = "solver",
      .type = GP_PARAM_WORD,
      AT(solver),
      .words = solvers,
      .seed_name = "solverName",
      .torch_name = "torch.optim.SGD",
      .help = "update rule" },
    { .name = "max-epochs",
      .alias = "epochs",
      .type = GP_PARAM_I64,
      AT(max_epochs),
      .fallback = 30,
      .min = 1,
      .max = 1e6,
      .unit = "epochs",
      .seed_name = "MaxEpochs",
      .help = "passes over the training data" },
    { .name = "mini-batch-size",
      .alias = "batch-size",
      .type = GP_PARAM_I64,
      AT(mini_batch_size),
      .fallback = 128,
      .min = 1,
      .max = 1 << 20,
      .unit = "samples",
      .seed_name = "MiniBatchSize",
      .torch_name = "DataLoader(batch_size) x world",
      .help = "samples of one step, over all workers" },
    { .name = "initial-learn-rate",
      .alias = "lr",
      .type = GP_PARAM_F64,
      AT(initial_learn_rate),
      .fallback = 0.01,
      .min = 0,
      .max = 1e3,
      .seed_name = "InitialLearnRate",
      .torch_name = "lr",
      .help = "learning rate of the first epoch; never scaled by the number of workers" },
    { .name = "learn-rate-schedule",
      .type = GP_PARAM_WORD,
      AT(learn_rate_schedule),
      .words = schedules,
      .seed_name = "LearnRateSchedule",
      .torch_name = "lr_scheduler.StepLR",
      .help = "piecewise: multiply by the drop factor every drop period" },
    { .name = "learn-rate-drop-factor",
      .type = GP_PARAM_F64,
      AT(learn_rate_drop_factor),
      .fallback = 0.1,
      .min = 0,
      .max = 1,
      .seed_name = "LearnRateDropFactor",
      .torch_name = "StepLR(gamma)",
      .help = "what piecewise multiplies by" },
    { .name = "learn-rate-drop-period",
      .type = GP_PARAM_I64,
      AT(learn_rate_drop_period),
      .fallback = 10,
      .min = 1,
      .max = 1e6,
      .unit = "epochs",
      .seed_name = "LearnRateDropPeriod",
      .torch_name = "StepLR(step_size)",
      .help = "epochs between two drops" },
    { .name = "momentum",
      .type = GP_PARAM_F64,
      AT(momentum),
      .fallback = 0.9,
      .min = 0,
      .max = 1,
      .seed_name = "Momentum",
      .torch_name = "momentum",
      .help = "share of the last update that is kept" },
    { .name = "l2-regularization",
      .alias = "weight-decay",
      .type = GP_PARAM_F64,
      AT(l2_regularization),
      .fallback = 1e-4,
      .min = 0,
      .max = 1e3,
      .seed_name = "L2Regularization",
      .torch_name = "weight_decay",
      .help = "added to the gradient: this times the layer's factor times the weight" },
    { .name = "shuffle",
      .type = GP_PARAM_WORD,
      AT(shuffle),
      .words = shuffles,
      .fallback = 2,
      .seed_name = "Shuffle",
      .torch_name = "DataLoader(shuffle)",
      .help = "order of the samples" },
    { .name = "validation-frequency",
      .type = GP_PARAM_I64,
      AT(validation_frequency),
      .min = 0,
      .max = 1e9,
      .unit = "steps",
      .seed_name = "ValidationFrequency",
      .help = "steps between validations; 0 = at the end of each epoch" },
    { .name = "verbose-frequency",
      .type = GP_PARAM_I64,
      AT(verbose_frequency),
      .fallback = 50,
      .min = 1,
      .max = 1e9,
      .unit = "steps",
      .seed_name = "VerboseFrequency",
      .help = "steps between two printed lines" },
    { .name = "seed",
      .type = GP_PARAM_I64,
      AT(seed),
      .fallback = 1,
      .min = 0,
      .max = 9007199254740991.0,
      .seed_name = "rng",
      .torch_name = "manual_seed",
      .help = "of initial weights, order and dropout" },
    { .name = "weights-initializer",
      .type = GP_PARAM_TEXT,
      AT(weights_initializer),
      .count = 32,
      .fallback_text = "glorot",
      .seed_name = "WeightsInitializer",
      .torch_name = "nn.init",
      .help = "glorot, he, or normal:S (weights and biases, standard deviation S)" },
    { .name = "micro-batch-size",
      .type = GP_PARAM_I64,
      AT(micro_batch_size),
      .min = 0,
      .max = 1 << 20,
      .unit = "samples",
      .torch_name = "gradient accumulation",
      .help = "most samples in one call on a worker; 0 = its whole share of the batch" },
    { .name = "exchange-bucket-bytes",
      .type = GP_PARAM_I64,
      AT(exchange_bucket_bytes),
      .fallback = 4 << 20,
      .min = 4096,
      .max = 1 << 30,
      .unit = "bytes",
      .torch_name = "bucket_cap_mb",
      .help = "gradients that are all-reduced at a time" },
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
    if (status == GP_OK)
        status = gp_init_rule_parse(&rule, options.weights_initializer, err);
    if (status == GP_OK)
        *out = options;
    return status;
}

double gp_train_learn_rate(const gp_train_options *options, uint32_t epoch)
{
    if (options->learn_rate_schedule != GP_SCHEDULE_PIECEWISE)
        return options->initial_learn_rate;
    return options->initial_learn_rate *
           pow(options->learn_rate_drop_factor, (double)((epoch - 1) / options->learn_rate_drop_period));
}
