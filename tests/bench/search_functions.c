/* Implement search_functions.h. */
#include "tests/bench/search_functions.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text/json.h"

enum { PARAMETERS_MAX = 8 };

/* Read a number of the values. */
static double number(const gp_json *values, const char *name)
{
    return gp_json_number(gp_json_member(values, name), NAN);
}

static const char *text(const gp_json *values, const char *name)
{
    return gp_json_text(gp_json_member(values, name), "");
}

static double square(double x)
{
    return x * x;
}

/* Branin: three equal minima. */
static double branin(const gp_json *v)
{
    const double x = number(v, "x"), y = number(v, "y");

    return square(y - 5.1 / (4 * M_PI * M_PI) * x * x + 5 / M_PI * x - 6) +
           10 * (1 - 1 / (8 * M_PI)) * cos(x) + 10;
}

/* Hartmann's function in six dimensions: a narrow minimum and a wide local one. */
static double hartmann6(const gp_json *v)
{
    static const double alpha[4] = { 1.0, 1.2, 3.0, 3.2 };
    static const double a[4][6] = { { 10, 3, 17, 3.5, 1.7, 8 },
                                    { 0.05, 10, 17, 0.1, 8, 14 },
                                    { 3, 3.5, 1.7, 10, 17, 8 },
                                    { 17, 8, 0.05, 10, 0.1, 14 } };
    static const double p[4][6] = { { 0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886 },
                                    { 0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991 },
                                    { 0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650 },
                                    { 0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381 } };
    static const char *const names[6] = { "a", "b", "c", "d", "e", "f" };
    double sum = 0.0;

    for (int i = 0; i < 4; i++) {
        double exponent = 0.0;

        for (int k = 0; k < 6; k++)
            exponent += a[i][k] * square(number(v, names[k]) - p[i][k]);
        sum -= alpha[i] * exp(-exponent);
    }
    return sum;
}

/* Options of a training: each solver has its own best learning rate, which depends on the batch and
 * on the solver's own option. Minimum 0: adam, lr 1e-3, decay 0.01, batch 64, layers 4. */
static double solvers(const gp_json *v)
{
    const char *solver = text(v, "solver");
    const double lr = log10(number(v, "lr")), batch = log2(number(v, "batch") / 64.0);
    double loss = 0.05 * square(number(v, "layers") - 4) + 0.02 * square(batch);

    if (strcmp(solver, "sgdm") == 0)
        loss += 0.3 + 0.5 * square(lr + 1.0 + (number(v, "momentum") - 0.9) * 2 - 0.3 * batch) +
                3 * square(number(v, "momentum") - 0.9);
    else if (strcmp(solver, "adam") == 0)
        loss += 0.8 * square(lr + 3.0 - 0.15 * batch) + 0.2 * square(log10(number(v, "decay")) + 2);
    else
        loss += 0.15 + 0.8 * square(lr + 3.5 - 0.15 * batch) + 0.3 * square(log10(number(v, "decay")) + 1.5);
    return loss;
}

/* Shape of a network: two kinds with options of their own, and waves that make local minima.
 * Minimum 0: cnn, depth 5, width 64, gelu, augment, lr 0.01. */
static double networks(const gp_json *v)
{
    const char *activation = text(v, "activation");
    const double width = log2(number(v, "width") / 64.0), lr = log10(number(v, "lr")) + 2;
    double loss = strcmp(activation, "gelu") == 0 ? 0.0 : strcmp(activation, "relu") == 0 ? 0.08 : 0.3;

    loss += gp_json_bool(gp_json_member(v, "augment"), false) ? 0.0 : 0.1;
    loss += 0.4 * square(lr + 0.2 * width) + 0.1 * (1 - cos(4 * lr));
    if (strcmp(text(v, "kind"), "cnn") == 0)
        loss += 0.06 * square(number(v, "depth") - 5) + 0.04 * square(width) + 0.05 * (1 - cos(3 * width));
    else
        loss += 0.2 + 0.03 * square(width - 2) + square(number(v, "dropout") - 0.4);
    return loss;
}

#define FUNCTION(name, space, minimum)                                                                       \
    static double name##_value(const char *values)                                                           \
    {                                                                                                        \
        gp_json *document;                                                                                   \
        double value = NAN;                                                                                  \
                                                                                                             \
        if (gp_json_parse(&document, values, strlen(values), NULL) == GP_OK) {                               \
            value = name(document);                                                                          \
            gp_json_free(document);                                                                          \
        }                                                                                                    \
        return value;                                                                                        \
    }                                                                                                        \
    static const search_function name##_function = { #name, space, minimum, name##_value };

FUNCTION(branin, "x=real:-5:10 y=real:0:15", 0.39788735772973816)
FUNCTION(hartmann6, "a=real:0:1 b=real:0:1 c=real:0:1 d=real:0:1 e=real:0:1 f=real:0:1", -3.32236801141551)
FUNCTION(solvers,
         "{\"solver\": [\"sgdm\", \"adam\", \"rmsprop\"], \"lr\": \"log:1e-5:1.0\","
         " \"momentum\": {\"values\": \"0.0:0.99\", \"when\": {\"solver\": [\"sgdm\"]}},"
         " \"decay\": {\"values\": \"log:1e-4:0.1\", \"when\": {\"solver\": [\"adam\", \"rmsprop\"]}},"
         " \"batch\": [16, 32, 64, 128, 256], \"layers\": \"int:1:6\"}",
         0.0)
FUNCTION(networks,
         "{\"kind\": [\"cnn\", \"mlp\"], \"width\": \"int:log:8:512\","
         " \"depth\": {\"values\": \"int:1:8\", \"when\": {\"kind\": [\"cnn\"]}},"
         " \"dropout\": {\"values\": \"0.0:0.8\", \"when\": {\"kind\": [\"mlp\"]}},"
         " \"activation\": [\"relu\", \"tanh\", \"gelu\"], \"augment\": [true, false],"
         " \"lr\": \"log:1e-4:1.0\"}",
         0.0)

const search_function *search_function_find(const char *name)
{
    static const search_function *const functions[] = { &branin_function, &hartmann6_function,
                                                        &solvers_function, &networks_function };

    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
        if (strcmp(functions[i]->name, name) == 0)
            return functions[i];
    return NULL;
}
