/* Updates running statistics (batch norm) when a step ends, from the moments of the step's samples.
 *
 * The reduced sums are relative to the running mean r before the step: s = sum of x - r, and q =
 * sum of (x - r)^2, over n values of all ranks. The mean is r + s / n and the variance is q / n -
 * (s / n)^2. This variance covers the whole mini-batch, including differences between ranks,
 * although each rank normalised with local moments. The running variance is the unbiased estimate,
 * n / (n - 1) times larger. */
#include "worker/optim/optim.h"

#include <assert.h>

void gp_statistics_commit(const gp_graph *graph, float *parameters, const float *gradients, double samples,
                          bool whole)
{
    for (uint32_t p = 0; p < graph->parameter_count; p++) {
        const gp_parameter *parameter = &graph->parameters[p], *second = parameter + 1;
        const double n = samples * (double)parameter->per_sample;
        const double rate = whole ? 1.0 : parameter->statistic_rate;
        float *mean = parameters + parameter->offset;

        if (parameter->statistic != GP_STATISTIC_MEAN || n <= 0)
            continue;
        assert(p + 1 < graph->parameter_count && second->statistic == GP_STATISTIC_VARIANCE);
        for (int64_t c = 0; c < parameter->count; c++) {
            double shift = (double)gradients[parameter->offset + (size_t)c] / n;
            double variance = (double)gradients[second->offset + (size_t)c] / n - shift * shift;
            float *running = parameters + second->offset + c;

            variance = variance > 0 ? variance : 0;
            if (n > 1)
                variance *= n / (n - 1);
            mean[c] = (float)((double)mean[c] + rate * shift);
            *running = (float)((double)*running + rate * (variance - (double)*running));
        }
    }
}
