/* Text output of `gradpool train`: options and sizes before the first step, results after the last
 * step. */
#include "client/cli/train/train_text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/base/text/text.h"

enum { LINE_COLUMNS = 79, SHARES_SHOWN = 8, RATES_SHOWN = 6, VALUE_SHOWN = 512 };

void train_text_options(const cli_call *call, const gp_train_info *info, gp_train_options *options)
{
    gp_train_options_from_checked(options, call->train);
    gp_train_options_resolve(options);
    options->mini_batch_size = info->batch;
    options->initial_learn_rate = info->initial_learn_rate;
}

/* Print the learning rate of the first epoch, and of later epochs in which it differs by more than
 * 1 % from the last printed rate. */
static void print_rates(const gp_train_options *options, const gp_train_info *info)
{
    gp_train_place place = { .steps = (uint64_t)info->steps_per_epoch * info->epochs };
    double printed = NAN;
    int count = 0;

    if (options->learn_rate_schedule == GP_SCHEDULE_NONE && options->learn_rate_warmup == 0)
        return;
    for (uint32_t epoch = 1; epoch <= info->epochs; epoch++) {
        place.epoch = epoch;
        place.step = (uint64_t)(epoch - 1) * info->steps_per_epoch + 1;
        double rate = gp_train_learn_rate(options, &place);

        if (fabs(rate - printed) <= 0.01 * fabs(printed))
            continue;
        if (count++ == RATES_SHOWN) {
            printf(", ...");
            break;
        }
        printf("%s%.4g from epoch %" PRIu32, count == 1 ? "learning rate " : ", ", rate, epoch);
        printed = rate;
    }
    printf("\n");
}

/* GPUs are several times faster with tensor cores, so the default of not using them is printed. */
static void print_precision(const gp_train_options *options, uint32_t gpu_workers)
{
    printf("%" PRIu32 " GPU worker%s, precision %s%s\n", gpu_workers, gp_plural(gpu_workers),
           gp_precision_names[options->precision],
           options->precision == GP_PRECISION_F32 ? " without tensor cores; tf32 and bf16 are faster" : "");
}

void train_text_begin(const cli_call *call, const gp_train_info *info, uint32_t gpu_workers, bool all_options,
                      const char *folder)
{
    gp_train_options options;
    char memory[40];

    train_text_options(call, info, &options);
    if (gpu_workers > 0)
        print_precision(&options, gpu_workers);
    size_t column = 0;

    for (const gp_param *param = gp_train_options_table; param->type != GP_PARAM_NONE; param++) {
        char value[VALUE_SHOWN + 1];
        bool given = all_options;

        for (int i = 0; i < call->train_count && !given; i++)
            given = cli_option_is(call->train[i], param->name);
        if (!given)
            continue;
        size_t bytes =
            strlen(param->name) + 1 + strlen(gp_params_format(param, &options, value, sizeof(value)));

        if (value[0] == '\0') /* text option without a value */
            continue;
        if (column > 0 && column + 2 + bytes > LINE_COLUMNS) {
            printf("\n");
            column = 0;
        }
        printf("%s%s %s", column == 0 ? "" : ", ", param->name, value);
        column += bytes + (column == 0 ? 0 : 2);
    }
    if (column > 0)
        printf("\n");
    print_rates(&options, info);
    printf("%" PRIu32 " worker%s, mini-batch %" PRIu32 " (", info->workers, gp_plural(info->workers),
           info->batch);
    for (uint32_t i = 0; i < info->workers && i < SHARES_SHOWN; i++)
        printf("%s%" PRIu32, i == 0 ? "" : " + ", info->batch_rank[i]);
    printf("%s), %" PRIu32 " epoch%s of %" PRIu32 " step%s, %" PRIu64 " sample%s\n",
           info->workers > SHARES_SHOWN ? " + ..." : "", info->epochs, gp_plural(info->epochs),
           info->steps_per_epoch, gp_plural(info->steps_per_epoch), info->samples, gp_plural(info->samples));
    printf("%" PRIu64 " parameter%s, %s per worker, ", info->parameters, gp_plural(info->parameters),
           cli_bytes((double)info->memory_bytes, memory, sizeof(memory)));
    printf("ready in %.0f ms", info->ready_ms);
    if (info->data_ms + info->network_ms >= 1)
        printf(": data %.0f ms, network %.0f ms", info->data_ms, info->network_ms);
    printf("\n");
    if (info->validation_samples > 0)
        printf("validation: %" PRIu64 " sample%s\n", info->validation_samples,
               gp_plural(info->validation_samples));
    else
        printf("no validation data: accuracy is measured on the training batches\n");
    printf("run folder: %s\n\n", folder);
    fflush(stdout);
}

void train_text_end(const gp_training_summary *summary)
{
    char time[40];

    printf("%s after %" PRIu64 " step%s, %s, %.0f images/s",
           summary->stopped         ? "stopped"
           : summary->early_stopped ? "stopped early"
                                    : "finished",
           summary->steps, gp_plural(summary->steps), cli_duration(summary->seconds, time, sizeof(time)),
           summary->seconds > 0 ? (double)summary->samples_trained / summary->seconds : 0);
    if (!isnan(summary->loss)) /* NaN: no step was run, because a finished run was resumed */
        printf("; loss %.4f", summary->loss);
    if (!isnan(summary->validation_accuracy))
        printf(", validation accuracy %.2f %%", summary->validation_accuracy * 100);
    if (!isnan(summary->validation_rmse))
        printf(", validation RMSE %.4g", summary->validation_rmse);
    if (summary->restarts + summary->resizes == 0)
        return;
    /* e.g. "; recovered from 2 worker failures and 1 resize (paused 0.10 s in total)" */
    printf("; recovered from ");
    if (summary->restarts > 0)
        printf("%" PRIu32 " worker failure%s", summary->restarts, gp_plural(summary->restarts));
    if (summary->restarts > 0 && summary->resizes > 0)
        printf(" and ");
    if (summary->resizes > 0)
        printf("%" PRIu32 " resize%s", summary->resizes, gp_plural(summary->resizes));
    printf(" (paused %.2f s%s)", summary->paused_seconds,
           summary->restarts + summary->resizes > 1 ? " in total" : "");
}
