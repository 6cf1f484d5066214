/* statistics.c -- the commit of running statistics: not learned, but moved towards the moments of the step.
 *
 * The reduced sums are about the running mean that the step began with: s = sum of x - r, q = sum of (x - r)^2 over the
 * n numbers of all ranks.  Their mean is r + s / n, their variance q / n - (s / n)^2: that of the whole batch, the
 * differences between the ranks' means in it, though each rank normalised by its own.  The running variance is the
 * estimate of the population's, n / (n - 1) times that. */
#include "worker/optim/optim.h"

#include <assert.h>

static void statistics_move(const gp_graph *graph, float *parameters, const float *gradients, double samples,
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

void gp_statistics_commit(const gp_graph *graph, float *parameters, const float *gradients, double samples)
{
    statistics_move(graph, parameters, gradients, samples, false);
}

void gp_statistics_set(const gp_graph *graph, float *parameters, const float *gradients, double samples)
{
    statistics_move(graph, parameters, gradients, samples, true);
}
