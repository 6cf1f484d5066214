/* Print --help and --help-all from the option tables: wrap descriptions in two columns, and hide
 * the options not marked as basic unless all are requested. */
#include "client/cli/help.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>

#include "common/model/train_options.h"

enum {
    COLUMNS = 100,      /* help text width */
    TEXT_COLUMN = 38,   /* first column of option descriptions */
    WORDS_SHOWN = 28,   /* longest list of allowed values that is shown next to the option name */
    EXAMPLES_SHOWN = 3, /* examples shown by --help; --help-all shows all */
};

/* ---- one option ---- */

/* Join a WORD option's allowed values with a separator. */
static void words_join(char *text, size_t bytes, const char *const *words, const char *separator)
{
    size_t at = 0;

    text[0] = '\0';
    for (int i = 0; words[i] != NULL && at < bytes; i++)
        at += (size_t)snprintf(text + at, bytes - at, "%s%s", i == 0 ? "" : separator, words[i]);
}

/* Choose the placeholder for an option's value: from the table, "N" for numbers, the allowed values
 * if short, or the last part of the option name in capitals. */
static void placeholder(char *text, size_t bytes, const gp_param *param)
{
    const char *dash = strrchr(param->name, '-');

    if (param->placeholder != NULL) {
        snprintf(text, bytes, "%s", param->placeholder);
        return;
    }
    if (param->type == GP_PARAM_I64 || param->type == GP_PARAM_F64) {
        snprintf(text, bytes, "%s", param->count > 1 ? "N,N" : "N");
        return;
    }
    if (param->type == GP_PARAM_WORD) {
        words_join(text, bytes, param->words, "|");
        if (strlen(text) <= WORDS_SHOWN)
            return;
    }
    snprintf(text, bytes, "%s", dash == NULL ? param->name : dash + 1);
    for (; *text != '\0'; text++)
        *text = (char)toupper((unsigned char)*text);
}

/* Return whether `text` contains every word of the list. */
static bool mentions_all(const char *text, const char *const *words)
{
    while (*words != NULL && strstr(text, *words) != NULL)
        words++;
    return *words == NULL;
}

/* Print one option. A long name gets a separate line. */
static void help_option(const gp_param *param)
{
    char name[160], value[240] = "", text[1000];
    const char *alias = param->alias, *rest;
    int length;

    if (param->type != GP_PARAM_BOOL)
        placeholder(value, sizeof(value), param);
    length = snprintf(name, sizeof(name), "  --%s%s%s%s%s", param->name,
                      alias == NULL      ? ""
                      : alias[1] == '\0' ? ", -"
                                         : ", --",
                      alias == NULL ? "" : alias, value[0] == '\0' ? "" : " ", value);

    /* The description: help text, allowed values not yet mentioned in the help text
     * or in `value`, and default. */
    unsigned char scratch[512] = { 0 };
    gp_param one[2] = { *param, { 0 } };
    char fallback[64] = "", words[200] = "";

    one[0].offset = 0;
    if (param->type != GP_PARAM_BOOL && param->count <= sizeof(scratch)) {
        gp_params_default(one, scratch);
        gp_params_format(&one[0], scratch, fallback, sizeof(fallback));
    }
    if (param->type == GP_PARAM_WORD && !mentions_all(param->help, param->words) &&
        !mentions_all(value, param->words))
        words_join(words, sizeof(words), param->words, ", ");
    snprintf(text, sizeof(text), "%s%s%s%s%s%s", param->help, words[0] == '\0' ? "" : ": ", words,
             fallback[0] == '\0' ? "" : " [", fallback, fallback[0] == '\0' ? "" : "]");
    if (length + 2 > TEXT_COLUMN)
        printf("%s\n%*s", name, TEXT_COLUMN, "");
    else
        printf("%-*s", TEXT_COLUMN, name);
    /* wrap the description between TEXT_COLUMN and COLUMNS */
    for (rest = text; strlen(rest) > COLUMNS - TEXT_COLUMN; rest += *rest == ' ') {
        size_t at = COLUMNS - TEXT_COLUMN;

        while (at > 0 && rest[at] != ' ')
            at--;
        if (at == 0) /* one long word */
            at = strcspn(rest, " ");
        printf("%.*s\n%*s", (int)at, rest, TEXT_COLUMN, "");
        rest += at;
    }
    printf("%s\n", rest);
}

/* ---- a table ---- */

/* Print a table of options and return how many were hidden. Options with an offset below `common`
 * belong to every command and are always shown. */
static uint32_t help_table(const char *title, const gp_param *table, size_t common, bool all)
{
    bool every = true, any = false;
    uint32_t hidden = 0;

    for (const gp_param *param = table; param->type != GP_PARAM_NONE; param++)
        every = every && (all || !param->basic);

    for (; table->type != GP_PARAM_NONE; table++) {
        if (!every && !table->basic && table->offset >= common) {
            hidden++;
            continue;
        }
        if (!any)
            printf("\n%s\n", title);
        any = true;
        help_option(table);
    }
    return hidden;
}

/* ---- a command ---- */

void help_command(const cli_command *command, bool all)
{
    uint32_t hidden;
    int shown = 0;

    printf("gradpool %s -- %s\n\nUsage: gradpool %s %s\n", command->name, command->summary, command->name,
           command->usage);
    hidden = help_table("Options:", command->options, sizeof(cli_common), all);
    if (command->leases)
        hidden += help_table("Workers:", cli_lease_options, 0, all);
    if (command->trains)
        hidden += help_table("Training:", gp_train_options_table, 0, all);
    if (command->sources != NULL && all)
        help_table("Data in S3 (s3://BUCKET/PREFIX):", cli_s3_options, 0, true);
    for (const gp_param *p = cli_s3_options; command->sources != NULL && !all && p->type != GP_PARAM_NONE;
         p++)
        hidden++;
    if (hidden > 0)
        printf("\n%u more options: gradpool %s --help-all\n", hidden, command->name);

    /* the first examples (the indented lines), or all of them, and all other text */
    printf("\nExamples:\n");
    for (const char *text = command->examples; *text != '\0';) {
        const char *end = strchr(text, '\n');
        size_t bytes = end == NULL ? strlen(text) : (size_t)(end - text) + 1;
        bool example = strncmp(text, "  ", 2) == 0;

        if (!example || hidden == 0 || shown < EXAMPLES_SHOWN)
            printf("%.*s", (int)bytes, text);
        shown += example;
        text += bytes;
    }
}

void help_commands(FILE *out)
{
    fprintf(out, "gradpool -- a pool of workers, one per GPU, for training and prediction\n\n"
                 "Usage: gradpool COMMAND [options]        gradpool COMMAND --help\n"
                 "\n");
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        fprintf(out, "  %-10s %s\n", cli_commands[i]->name, cli_commands[i]->summary);
    fprintf(out, "\nWithout a command, gradpool shows the state of the pool and suggests next steps.\n");
}
