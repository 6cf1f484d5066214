/* Initialize parameters.
 *
 * Element e in a tensor uses word e % 4 from the draw (seed; INIT and layer, 0, tensor within the
 * layer, e / 4). Values therefore only depend on the tensor's position, not on other tensors. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/rng.h"
#include "common/base/text/spell.h"
#include "common/model/graph/graph.h"

gp_status gp_init_rule_parse(gp_init_rule *out, const char *text, gp_error *err)
{
    if (strcmp(text, "glorot") == 0) {
        *out = (gp_init_rule){ .kind = GP_INIT_GLOROT };
        return GP_OK;
    }
    if (strcmp(text, "he") == 0) {
        *out = (gp_init_rule){ .kind = GP_INIT_HE };
        return GP_OK;
    }
    if (strncmp(text, "normal:", 7) != 0) {
        const char *near = NULL;
        unsigned distance = 0;

        gp_spell_offer(text, "glorot", &near, &distance);
        gp_spell_offer(text, "he", &near, &distance);
        if (near != NULL)
            return gp_fail(err, GP_EINVAL, "unknown weights initializer '%s'; did you mean '%s'?", text,
                           near);
        return gp_fail(
            err, GP_EINVAL,
            "unknown weights initializer '%s'; must be glorot, he or normal:S (for example normal:0.01)",
            text);
    }
    char *end;
    double sigma = strtod(text + 7, &end);

    if (end == text + 7 || *end != '\0' || !(sigma > 0.0) || sigma > 1e3)
        return gp_fail(
            err, GP_EINVAL,
            "invalid weights initializer '%s': the standard deviation must be above 0 and at most 1000",
            text);
    *out = (gp_init_rule){ .kind = GP_INIT_NORMAL, .sigma = sigma };
    return GP_OK;
}

/* A tensor to initialize, and its random stream. */
typedef struct init_tensor {
    uint64_t seed;
    uint32_t stream, tensor;
    float *values;
    int64_t count;
} init_tensor;

/* Fill a tensor with uniform values in [-bound, bound). */
static void init_uniform(const init_tensor *init, double bound)
{
    uint32_t words[4];

    for (int64_t e = 0; e < init->count; e++) {
        if (e % 4 == 0)
            gp_rng_draw(words, init->seed, init->stream, 0, init->tensor, (uint32_t)(e / 4));
        init->values[e] = (float)((2.0 * (double)gp_rng_uniform(words[e % 4]) - 1.0) * bound);
    }
}

/* Fill a tensor with normal values. */
static void init_normal(const init_tensor *init, double sigma)
{
    double normals[4];

    for (int64_t e = 0; e < init->count; e++) {
        if (e % 4 == 0) {
            uint32_t words[4];

            gp_rng_draw(words, init->seed, init->stream, 0, init->tensor, (uint32_t)(e / 4));
            gp_rng_normal(normals, words[0], words[1]);
            gp_rng_normal(normals + 2, words[2], words[3]);
        }
        init->values[e] = (float)(normals[e % 4] * sigma);
    }
}

static void init_parameter(const gp_parameter *parameter, gp_init_rule rule, const init_tensor *init)
{
    bool fixed = parameter->statistic != GP_STATISTIC_NONE; /* rules do not apply to statistics */

    if (parameter->initializer == GP_INIT_ONES) {
        for (int64_t e = 0; e < init->count; e++)
            init->values[e] = 1.0f;
    } else if (rule.kind == GP_INIT_NORMAL && !fixed) {
        init_normal(init, rule.sigma);
    } else if (parameter->initializer == GP_INIT_ZEROS) {
        memset(init->values, 0, (size_t)init->count * sizeof(float));
    } else if (rule.kind == GP_INIT_GLOROT) {
        /* Glorot & Bengio, AISTATS 2010 */
        init_uniform(init, sqrt(6.0 / (double)(parameter->fan_in + parameter->fan_out)));
    } else {
        /* He et al., ICCV 2015 */
        init_normal(init, sqrt(2.0 / (double)parameter->fan_in));
    }
}

void gp_graph_initialize(const gp_graph *graph, gp_init_rule rule, uint64_t seed, float *blob)
{
    uint32_t tensor = 0;

    for (uint32_t p = 0; p < graph->parameter_count; p++) {
        const gp_parameter *parameter = &graph->parameters[p];

        tensor = p > 0 && graph->parameters[p - 1].layer == parameter->layer ? tensor + 1 : 0;
        init_parameter(parameter, rule,
                       &(init_tensor){ .seed = seed,
                                       .stream = gp_rng_stream(GP_RNG_INIT, parameter->layer),
                                       .tensor = tensor,
                                       .values = blob + parameter->offset,
                                       .count = parameter->count });
    }
}
