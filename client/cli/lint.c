#include "client/cli/lint.h"

#include <string.h>

#include "common/model/train_options.h"

/* One rule: `given` has no effect unless `needs` has one of these values, or any where none is named. */
typedef struct rule {
    const char *given, *needs, *values[3];
} rule;

static const rule rules[] = {
    { "learn-rate-drop-factor", "learn-rate-schedule", { "piecewise", "exponential" } },
    { "learn-rate-drop-period", "learn-rate-schedule", { "piecewise" } },
    { "learn-rate-final-factor", "learn-rate-schedule", { "cosine", "polynomial" } },
    { "learn-rate-power", "learn-rate-schedule", { "polynomial" } },
    { "checkpoint-frequency", "checkpoint-path", { NULL } },
    { "checkpoint-frequency-unit", "checkpoint-path", { NULL } },
    { "momentum", "solver", { "sgdm" } },
    { "gradient-decay-factor", "solver", { "adam", "adamw" } },
    { "squared-gradient-decay-factor", "solver", { "adam", "adamw", "rmsprop" } },
    { "epsilon", "solver", { "adam", "adamw", "rmsprop" } },
};

/* Options that need validation data. */
static const char *const of_validation[] = { "validation-frequency", "validation-patience" };

/* The value that the option has on this command line, or its default. */
static const char *value_of(const cli_call *call, const char *name, char *text, size_t bytes)
{
    gp_train_options options;
    const gp_param *param = gp_params_find(gp_train_options_table, name);

    gp_params_default(gp_train_options_table, &options);
    for (int i = 0; i < call->train_count; i++) {
        const char *equals = strchr(call->train[i], '=');
        size_t length = (size_t)(equals - call->train[i]);

        if (strlen(name) == length && strncmp(call->train[i], name, length) == 0)
            gp_params_set(param, &options, equals + 1, NULL);
    }
    return gp_params_format(param, &options, text, bytes);
}

static void print_corrected(const cli_call *call, const rule *broken)
{
    fprintf(stderr, "  ");
    for (int i = 0; i < call->argc; i++) {
        const char *word = i == 0 ? "gradpool" : call->argv[i];
        const char *quote = strpbrk(word, " \t*?$&;|<>()\"\\") != NULL ? "'" : "";

        fprintf(stderr, "%s%s%s ", quote, word, quote);
    }
    fprintf(stderr, "--%s %s\n", broken->needs, broken->values[0] != NULL ? broken->values[0] : "DIRECTORY");
}

static bool rule_holds(const rule *r, const char *value)
{
    if (r->values[0] == NULL)
        return value[0] != '\0';
    for (size_t i = 0; i < sizeof(r->values) / sizeof(r->values[0]) && r->values[i] != NULL; i++)
        if (strcmp(r->values[i], value) == 0)
            return true;
    return false;
}

int lint_training(const cli_call *call, bool warn, bool has_validation)
{
    char value[80];

    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        if (!cli_given(call, rules[i].given) ||
            rule_holds(&rules[i], value_of(call, rules[i].needs, value, sizeof(value))))
            continue;
        fprintf(stderr, "gradpool %s: --%s has no effect: --%s is %s; did you mean\n", call->command->name,
                rules[i].given, rules[i].needs, value);
        print_corrected(call, &rules[i]);
        if (!warn) {
            fprintf(stderr, "(--lint warn goes on with a warning)\n");
            return CLI_USAGE;
        }
    }
    for (size_t i = 0; i < sizeof(of_validation) / sizeof(of_validation[0]) && !has_validation; i++) {
        if (!cli_given(call, of_validation[i]))
            continue;
        fprintf(stderr,
                "gradpool %s: --%s has no effect without validation data; add --validation-data SOURCE\n",
                call->command->name, of_validation[i]);
        if (!warn)
            return CLI_USAGE;
    }
    return CLI_OK;
}
