/* Print --help and --help-all from the option tables: wrap descriptions in two columns, and hide
 * the options not marked as basic unless all are requested. */
#include "client/cli/help.h"

#include <string.h>

#include "client/cli/option_text.h"

enum {
    COLUMNS = 100,      /* help text width */
    TEXT_COLUMN = 38,   /* first column of option descriptions */
    EXAMPLES_SHOWN = 3, /* examples shown by --help; --help-all shows all */
};

/* Print two columns: wrap the text between TEXT_COLUMN and COLUMNS. A long name gets a separate
 * line. */
static void help_columns(const char *name, const char *text)
{
    if (strlen(name) + 2 > TEXT_COLUMN)
        printf("%s\n%*s", name, TEXT_COLUMN, "");
    else
        printf("%-*s", TEXT_COLUMN, name);
    for (; strlen(text) > COLUMNS - TEXT_COLUMN; text += *text == ' ') {
        size_t at = COLUMNS - TEXT_COLUMN;

        while (at > 0 && text[at] != ' ')
            at--;
        if (at == 0) /* one long word */
            at = strcspn(text, " ");
        printf("%.*s\n%*s", (int)at, text, TEXT_COLUMN, "");
        text += at;
    }
    printf("%s\n", text);
}

static void help_option(const gp_param *param)
{
    cli_option_text text;
    char name[320];

    cli_option_describe(param, &text);
    snprintf(name, sizeof(name), "  --%s%s%s%s%s", param->name, text.alias[0] == '\0' ? "" : ", ", text.alias,
             text.value[0] == '\0' ? "" : " ", text.value);
    help_columns(name, text.help);
}

/* Print a group of options and return how many were hidden. Options that every command has are
 * always shown.
 *   own  the command's own options, not a group that several commands have
 *   all  false: print only basic options, unless the group is the command's own and has none */
static uint32_t help_group(const cli_option_group *group, bool own, bool all)
{
    bool basic = false, any = false;
    uint32_t hidden = 0;

    for (const gp_param *param = group->params; param->type != GP_PARAM_NONE; param++)
        basic = basic || param->basic;
    all = all || (own && !basic);

    for (const gp_param *param = group->params; param->type != GP_PARAM_NONE; param++) {
        if (!all && !param->basic && !(own && param->offset < sizeof(cli_common))) {
            hidden++;
            continue;
        }
        if (!any)
            printf("\n%s:\n", group->title);
        any = true;
        help_option(param);
    }
    return hidden;
}

/* Print the usage; for a command with verbs, one line for each verb. */
static void help_usage(const cli_command *command)
{
    if (command->verbs == NULL) {
        printf("\nUsage: gradpool %s %s\n", command->name, command->usage);
        return;
    }
    printf("\n");
    for (const cli_verb *verb = command->verbs; verb->name != NULL; verb++) {
        char name[200];

        snprintf(name, sizeof(name), "%s gradpool %s %s %s", verb == command->verbs ? "Usage:" : "      ",
                 command->name, verb->name, verb->usage);
        help_columns(name, verb->summary);
    }
}

/* Print the first examples, or all of them. A line with deeper indentation belongs to the example
 * above. */
static void help_examples(const char *text, bool all)
{
    int shown = 0;

    printf("\nExamples:\n");
    while (*text != '\0') {
        const size_t bytes = strcspn(text, "\n");

        shown += text[2] != ' ';
        if (!all && shown > EXAMPLES_SHOWN)
            return;
        printf("%.*s\n", (int)bytes, text);
        text += bytes + (text[bytes] == '\n');
    }
}

void help_command(const cli_command *command, bool all)
{
    cli_option_group groups[CLI_OPTION_GROUPS];
    uint32_t hidden = 0;

    printf("gradpool %s -- %s\n", command->name, command->summary);
    help_usage(command);
    cli_option_groups(command, groups);
    for (int i = 0; groups[i].params != NULL; i++)
        hidden += help_group(&groups[i], i == 0, all);
    if (hidden > 0)
        printf("\n%u more options: gradpool %s --help-all\n", hidden, command->name);
    help_examples(command->examples, hidden == 0);
    if (command->notes != NULL)
        printf("\n%s", command->notes);
    if (command->exit_codes != NULL)
        printf("\nExit code: %s", command->exit_codes);
}

void help_commands(FILE *out)
{
    fprintf(out, "gradpool -- a pool of workers, one per GPU or share of the CPU cores, for training and "
                 "prediction\n\n"
                 "Usage: gradpool COMMAND [options]        gradpool COMMAND --help\n"
                 "\n");
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        fprintf(out, "  %-10s %s\n", cli_commands[i]->name, cli_commands[i]->summary);
    fprintf(out, "\nWithout a command, gradpool shows the state of the pool and suggests next steps.\n");
}
