/* Find training options without effect and print a corrected command line. */
#include "client/cli/train/lint.h"

#include <string.h>

#include "common/model/train_options.h"

/* The option `given` has no effect unless the option `needs` has one of the values. No values:
 * unless `needs` is given at all. */
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
    { "run-id", "checkpoint-path", { NULL } },
    { "momentum", "solver", { "sgdm" } },
    { "gradient-decay-factor", "solver", { "adam", "adamw" } },
    { "squared-gradient-decay-factor", "solver", { "adam", "adamw", "rmsprop" } },
    { "epsilon", "solver", { "adam", "adamw", "rmsprop" } },
};

/* Options that require validation data. */
static const char *const of_validation[] = { "validation-frequency", "validation-patience" };

/* Command line correction. */
typedef struct correction {
    const char *drop;         /* option to remove, with the value; NULL: none */
    const char *rename, *to;  /* option to rename; NULL: none */
    const char *more, *value; /* option to append; NULL: none */
} correction;

/* Return whether the word is --NAME or --NAME=VALUE; name NULL: false. */
static bool word_is(const char *word, const char *name)
{
    size_t length = name == NULL ? 0 : strlen(name);

    return name != NULL && strncmp(word, "--", 2) == 0 && strncmp(word + 2, name, length) == 0 &&
           (word[2 + length] == '\0' || word[2 + length] == '=');
}

/* Print the corrected command line. Words with special characters are quoted. */
static void print_corrected(const cli_call *call, const correction *c)
{
    fprintf(stderr, "  gradpool");
    for (int i = 1; i < call->argc; i++) {
        const char *word = call->argv[i];
        const char *quote = strpbrk(word, " \t*?$&;|<>()\"\\") != NULL ? "'" : "";

        if (word_is(word, c->drop))
            i += strchr(word, '=') == NULL; /* skip the value; none of these options is a flag */
        else if (word_is(word, c->rename))
            fprintf(stderr, " --%s%s", c->to, word + 2 + strlen(c->rename));
        else
            fprintf(stderr, " %s%s%s", quote, word, quote);
    }
    if (c->more != NULL)
        fprintf(stderr, " --%s %s", c->more, c->value);
    fprintf(stderr, "\n");
}

/* Print the corrected command line. Return CLI_OK if --lint warn is given, else CLI_USAGE. */
static int put_right(const cli_call *call, bool warn, const correction *c)
{
    print_corrected(call, c);
    if (warn)
        return CLI_OK;
    fprintf(stderr, "(--lint warn turns this error into a warning)\n");
    return CLI_USAGE;
}

/* Check options that require --pretrained, and conflicts with --network. */
static int lint_pretrained(const cli_call *call, bool warn)
{
    static const char *const options[] = { "classes", "head-learn-rate-factor", "freeze-up-to" };
    const char *name = call->command->name;
    bool pretrained = cli_given(call, "pretrained");

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        if (pretrained || !cli_given(call, options[i]))
            continue;
        fprintf(stderr, "gradpool %s: --%s has no effect: no --pretrained network is given; did you mean\n",
                name, options[i]);
        if (put_right(call, warn, &(correction){ .rename = "network", .to = "pretrained" }) != CLI_OK)
            return CLI_USAGE;
    }
    if (pretrained && cli_given(call, "network")) {
        fprintf(stderr, "gradpool %s: --network and --pretrained are both given; did you mean\n", name);
        print_corrected(call, &(correction){ .drop = "network" });
        return CLI_USAGE;
    }
    if (pretrained && cli_given(call, "head-learn-rate-factor") && !cli_given(call, "classes")) {
        fprintf(stderr,
                "gradpool %s: --head-learn-rate-factor has no effect: without --classes the head is not "
                "replaced; did you mean\n",
                name);
        return put_right(call, warn, &(correction){ .more = "classes", .value = "auto" });
    }
    return CLI_OK;
}

int lint_transfer(const cli_call *call, bool warn, const cli_changes *changes)
{
    static const struct {
        const char *option, *action, *why;
    } rules_of[] = {
        { "head-learn-rate-factor", "added",
          "the classes of the network and the data are equal, so the head is not replaced" },
        { "freeze-up-to", "frozen", "these layers are already frozen in the file" },
    };

    for (size_t i = 0; i < sizeof(rules_of) / sizeof(rules_of[0]); i++) {
        if (!cli_given(call, rules_of[i].option) || !cli_given(call, "pretrained") ||
            changes_have(changes, rules_of[i].action))
            continue;
        fprintf(stderr, "gradpool %s: --%s has no effect: %s; did you mean\n", call->command->name,
                rules_of[i].option, rules_of[i].why);
        if (put_right(call, warn, &(correction){ .drop = rules_of[i].option }) != CLI_OK)
            return CLI_USAGE;
    }
    return CLI_OK;
}

int lint_training(const cli_call *call, bool warn, bool has_validation)
{
    gp_train_options values;
    char value[80];

    gp_train_options_from_words(&values, call->train, NULL);
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        const char *const *allowed = rules[i].values;

        gp_params_format(gp_params_find(gp_train_options_table, rules[i].needs), &values, value,
                         sizeof(value));
        bool holds = allowed[0] == NULL && value[0] != '\0';

        for (size_t k = 0; k < sizeof(rules[i].values) / sizeof(*allowed) && allowed[k] != NULL; k++)
            holds |= strcmp(allowed[k], value) == 0;
        if (!cli_given(call, rules[i].given) || holds)
            continue;
        fprintf(stderr, "gradpool %s: --%s has no effect: --%s is %s; did you mean\n", call->command->name,
                rules[i].given, rules[i].needs, value);
        if (put_right(call, warn,
                      &(correction){ .more = rules[i].needs,
                                     .value = rules[i].values[0] != NULL ? rules[i].values[0]
                                                                         : "DIRECTORY" }) != CLI_OK)
            return CLI_USAGE;
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
    return lint_pretrained(call, warn);
}
