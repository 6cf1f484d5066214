/* `gradpool bench`: benchmarks for training and gradient exchange on several worker counts. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/measure/bench.h"

#define TEXT(option, member, value, words)                                                                   \
    {                                                                                                        \
        .name = option, GP_PARAM_FIELD(bench_options, member), .placeholder = value, .help = words           \
    }

static const gp_param bench_params[] = {
    TEXT("network", network, "NETWORK", "scaling: see gradpool train"),
    TEXT("data", data, "SOURCE", "scaling: see gradpool train"),
    TEXT("validation-data", validation_data, "SOURCE", "scaling: see gradpool train"),
    { .name = "workers",
      GP_PARAM_FIELD(bench_options, workers),
      .fallback_text = "1,2",
      .help = "numbers of workers to measure, in ascending order" },
    TEXT("devices", devices, "LIST",
         "devices: 1,3 or cuda:0 or a UUID; runs with fewer workers use the first ones"),
    { .name = "fixed-batch",
      GP_PARAM_FIELD(bench_options, fixed_batch),
      .help = "scaling: keep mini-batch and learning rate; default: multiply both by the number of workers" },
    TEXT("plot", plot, "FILE.png", "scaling: write a chart of accuracy and throughput to FILE.png"),
    { .name = "sizes",
      GP_PARAM_FIELD(bench_options, sizes),
      .fallback_text = "64K,1M,16M",
      .help = "allreduce: sizes in bytes, such as 64K,4M" },
    { .name = "steps",
      GP_PARAM_FIELD(bench_options, steps),
      .fallback = 50,
      .min = 10,
      .max = 1000,
      .help = "allreduce: repetitions for each size" },
    CLI_JSON_PARAM(bench_options),
    CLI_COMMON_PARAMS(bench_options),
    { 0 },
};

static const cli_verb bench_verbs[] = {
    { "scaling", "--network NETWORK --data SOURCE [options]",
      "train on each number of workers; compare rate and accuracy", 0, 0, bench_scaling },
    { "allreduce", "[options]", "time the sum of gradients over the workers", 0, 0, bench_allreduce },
    { 0 },
};

uint32_t bench_list(const char *text, uint64_t least, uint64_t most, uint64_t *numbers)
{
    uint32_t found = 0;

    for (const char *at = text; *at != '\0' || found == 0;) {
        char *end = NULL;
        uint64_t number = *at >= '0' && *at <= '9' ? strtoull(at, &end, 10) : 0;

        if (end != NULL && (*end == 'K' || *end == 'M') && number <= most)
            number <<= *end++ == 'K' ? 10 : 20;
        if (end == NULL || number < least || number > most || found == BENCH_COUNTS_MAX ||
            (*end != ',' && *end != '\0'))
            return 0;
        numbers[found++] = number;
        at = end + (*end == ',');
    }
    return found;
}

uint32_t bench_counts(cli_call *call, uint64_t *counts)
{
    const char *text = ((const bench_options *)call->options)->workers;
    uint32_t count = bench_list(text, 1, GP_MEMBERS_MAX, counts);

    for (uint32_t i = 1; i < count; i++)
        count = counts[i] > counts[i - 1] ? count : 0;
    if (count == 0)
        cli_usage(call,
                  "--workers is '%s'; it must be up to %d ascending numbers from 1 to %u, such as 1,2,4",
                  text, BENCH_COUNTS_MAX, GP_MEMBERS_MAX);
    return count;
}

const char *bench_devices(const bench_options *options, uint32_t workers, char text[256])
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < workers && options->devices[bytes] != '\0'; i++)
        bytes += strcspn(options->devices + bytes + (i != 0), ",") + (i != 0);
    snprintf(text, 256, "%.*s", (int)bytes, options->devices);
    return bytes == 0 ? NULL : text;
}

const cli_command cli_command_bench = {
    .name = "bench",
    .summary = "measure how training and gradient exchange scale with the number of workers",
    .description =
        "Measure how well a training, or the sum of gradients alone, scales with the number of workers. "
        "Option descriptions begin with the verb that they belong to; `scaling` also accepts the options "
        "of `gradpool train`. With `scaling`, mini-batch and learning rate grow with the number of "
        "workers unless --fixed-batch is given.",
    .examples =
        "  gradpool bench scaling --workers 1,2,4 --network lenet --data fashion-mnist --plot scaling.png\n"
        "  gradpool bench scaling --workers 1,2 --fixed-batch --network resnet18 --data photos --json\n"
        "  gradpool bench allreduce --workers 2,4 --sizes 256K,4M,64M\n",
    .options = bench_params,
    .options_bytes = sizeof(bench_options),
    .trains = true,
    .words_max = 1,
    .verbs = bench_verbs,
};
