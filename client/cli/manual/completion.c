/* Completion scripts: fill the templates with tables of commands, options and values.
 *
 * A list of words describes the completions of a value, for example "auto @file": literal words,
 * and kinds, which the templates implement:
 *   @file, @folder               a path
 *   @network, @model, @source    a name from a table of the script, or a path
 *   @dataset                     a name of `gradpool data get`
 *   @job                         a job of the pool
 *   @profile                     a profile of `gradpool cluster` */
#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/manual/manual.h"
#include "client/cli/option_text.h"
#include "common/data/download/get.h"
#include "common/model/graph/netspec.h"

enum { VALUES_BYTES = 400 };

/* ---- values ---- */

/* Placeholders of usage texts, and the kinds of their values. */
static const struct placeholder {
    const char *name, *kind;
} placeholders[] = {
    { "FILE", "@file" },       { "FILES", "@file" },      { "PATH", "@file" },        { "FOLDER", "@folder" },
    { "NETWORK", "@network" }, { "MODEL", "@model" },     { "DIRECTORY", "@folder" }, { "SOURCE", "@source" },
    { "JOB", "@job" },         { "DATASET", "@dataset" }, { "PROFILE", "@profile" },
};

static void values_add(char values[VALUES_BYTES], const char *word, size_t bytes)
{
    const size_t at = strlen(values);

    snprintf(values + at, VALUES_BYTES - at, "%s%.*s", at == 0 ? "" : " ", (int)bytes, word);
}

/* Add the completions of a placeholder, whose alternatives are separated by "|": a path for
 * "FILE.onnx", the word for "auto". Other alternatives, such as "N" or "linear:BASE", have none. */
static void values_of_placeholder(char values[VALUES_BYTES], const char *text, size_t bytes)
{
    const char *const end = text + bytes;

    for (size_t length; text < end; text += length + 1) {
        const size_t capitals = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");

        length = strcspn(text, "|[], ");
        if (length > (size_t)(end - text))
            length = (size_t)(end - text);
        for (size_t i = 0; i < sizeof(placeholders) / sizeof(placeholders[0]); i++)
            if (strlen(placeholders[i].name) == capitals && memcmp(text, placeholders[i].name, capitals) == 0)
                values_add(values, placeholders[i].kind, strlen(placeholders[i].kind));
        if (length > 1 && strspn(text, "abcdefghijklmnopqrstuvwxyz") >= length)
            values_add(values, text, length);
    }
}

/* List the completions of an option's value.
 *   text  the description of the option */
static void values_of_option(char values[VALUES_BYTES], const gp_param *param, const cli_option_text *text)
{
    values[0] = '\0';
    for (int i = 0; param->type == GP_PARAM_WORD && param->words[i] != NULL; i++)
        values_add(values, param->words[i], strlen(param->words[i]));
    if (param->type == GP_PARAM_TEXT)
        values_of_placeholder(values, text->value, strlen(text->value));
}

/* ---- quoting ---- */

/* Write text inside single quotes of a shell: replace each quote by `quote`, and put a backslash
 * before each character of `special`. */
static void quoted(FILE *out, const char *text, const char *quote, const char *special)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            fputs(quote, out);
        else
            fprintf(out, "%s%c", strchr(special, *text) != NULL ? "\\" : "", *text);
    }
}

static void quoted_zsh(FILE *out, const char *text)
{
    quoted(out, text, "'\\''", ":[]\\");
}

/* Write the first clause of an option's help text: the lists of a shell have little room. */
static void help_short(char *text, size_t bytes, const gp_param *param)
{
    const char *end = strpbrk(param->help, ";(");

    snprintf(text, bytes, "%.*s", end == NULL ? (int)strlen(param->help) : (int)(end - param->help),
             param->help);
    for (size_t at = strlen(text); at > 0 && text[at - 1] == ' ';)
        text[--at] = '\0';
}

/* ---- tables ---- */

/* Write the template up to the line "@TABLES@", and return the rest. */
static const char *template_begin(FILE *out, const char *template)
{
    static const char mark[] = "@TABLES@\n";
    const char *at = strstr(template, mark);

    if (at == NULL)
        return template;
    fwrite(template, 1, (size_t)(at - template), out);
    return at + sizeof(mark) - 1;
}

typedef void option_fn(FILE *out, const cli_command *command, const gp_param *param);

static void each_option(FILE *out, const cli_command *command, option_fn *write)
{
    cli_option_group groups[CLI_OPTION_GROUPS];

    cli_option_groups(command, groups);
    for (int i = 0; groups[i].params != NULL; i++)
        for (const gp_param *param = groups[i].params; param->type != GP_PARAM_NONE; param++)
            write(out, command, param);
}

static void table_sets(FILE *out, const char *format, const char *list, const gp_get_set *sets,
                       const char *end)
{
    fprintf(out, format, list);
    for (const gp_get_set *set = sets; set->name != NULL; set++)
        fprintf(out, "%s%s", set == sets ? "" : " ", set->name);
    fputs(end, out);
}

/* Write the names of networks, of trained models and of data sets that can be downloaded.
 *   format  a line with %s for the name of the list, and the text before the names */
static void table_names(FILE *out, const char *format, const char *end)
{
    gp_zoo_info info;

    fprintf(out, format, "networks");
    for (size_t i = 0; gp_zoo_describe(i, &info); i++)
        fprintf(out, "%s%s", i == 0 ? "" : " ", info.name);
    fputs(end, out);
    table_sets(out, format, "models", gp_get_models, end);
    table_sets(out, format, "datasets", gp_get_sets, end);
}

/* Write the completions of each positional word, from 1, up to the first option of the usage.
 *   format  a line with %s for "COMMAND:POSITION" or "COMMAND:*", and %s for the values */
static void table_usage(FILE *out, const char *format, const char *key, int position, const char *usage)
{
    char values[VALUES_BYTES], words[120];

    for (size_t bytes; usage[0] != '\0' && strchr("-|", usage[0]) == NULL; position++) {
        bytes = strcspn(usage, " ");
        if (strncmp(usage, "[-", 2) == 0 || strncmp(usage, "[options]", 9) == 0)
            return;
        values[0] = '\0';
        values_of_placeholder(values, usage, bytes);
        if (bytes > 3 && memcmp(usage + bytes - 3, "...", 3) == 0)
            snprintf(words, sizeof(words), "%s:*", key);
        else
            snprintf(words, sizeof(words), "%s:%d", key, position);
        if (values[0] != '\0')
            fprintf(out, format, words, values);
        usage += bytes + (usage[bytes] == ' ');
    }
}

static void table_words(FILE *out, const char *format)
{
    char key[80], values[VALUES_BYTES];

    values[0] = '\0';
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        values_add(values, cli_commands[i]->name, strlen(cli_commands[i]->name));
    fprintf(out, format, "help:1", values);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        const cli_command *command = cli_commands[i];

        snprintf(key, sizeof(key), "%s:*", command->name);
        values[0] = '\0';
        for (const cli_verb *verb = command->verbs; verb != NULL && verb->name != NULL; verb++) {
            values_add(values, verb->name, strlen(verb->name));
            snprintf(key, sizeof(key), "%s:%s", command->name, verb->name);
            table_usage(out, format, key, 2, verb->usage);
        }
        if (command->verbs != NULL) {
            snprintf(key, sizeof(key), "%s:1", command->name);
            fprintf(out, format, key, values);
        } else if (command->runs) {
            fprintf(out, format, key, "@file");
        } else {
            table_usage(out, format, command->name, 1, command->usage);
        }
    }
}

/* Write the function that completes positional words, in the language of bash and zsh. */
static void function_word(FILE *out)
{
    fputs("# COMMAND:POSITION or COMMAND:VERB:POSITION: print the completions of the word.\n"
          "_gradpool_word()\n{\n    case $1 in\n",
          out);
    table_words(out, "    %s) echo '%s' ;;\n");
    fputs("    esac\n}\n", out);
}

/* ---- bash ---- */

static void bash_value(FILE *out, const cli_command *command, const gp_param *param)
{
    char values[VALUES_BYTES];
    cli_option_text text;

    if (param->type == GP_PARAM_BOOL)
        return;
    cli_option_describe(param, &text);
    values_of_option(values, param, &text);
    fprintf(out, "    %s:--%s", command->name, param->name);
    if (text.alias[0] != '\0')
        fprintf(out, " | %s:%s", command->name, text.alias);
    fprintf(out, ") echo '%s' ;;\n", values);
}

static void bash_name(FILE *out, const cli_command *command, const gp_param *param)
{
    cli_option_text text;

    (void)command;
    cli_option_describe(param, &text);
    fprintf(out, "--%s %s%s", param->name, text.alias, text.alias[0] == '\0' ? "" : " ");
}

void manual_completion_bash(FILE *out, const char *template)
{
    template = template_begin(out, template);
    fputs("_gradpool_commands='", out);
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        fprintf(out, "%s ", cli_commands[i]->name);
    fputs("help'\n", out);
    table_names(out, "_gradpool_%s='", "'\n");
    fputs("\n# COMMAND: print the options.\n_gradpool_options()\n{\n    case $1 in\n", out);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        fprintf(out, "    %s) echo '", cli_commands[i]->name);
        each_option(out, cli_commands[i], bash_name);
        fputs("' ;;\n", out);
    }
    fputs("    esac\n}\n\n# COMMAND:OPTION: print the completions of the value. Fails for a flag.\n"
          "_gradpool_value()\n{\n    case $1 in\n",
          out);
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        each_option(out, cli_commands[i], bash_value);
    fputs("    *) return 1 ;;\n    esac\n}\n\n", out);
    function_word(out);
    fputs(template, out);
}

/* ---- zsh ---- */

/* Write the specification of an option for _arguments, once for the name and once for the alias. */
static void zsh_option(FILE *out, const cli_command *command, const gp_param *param)
{
    char name[80], both[160], values[VALUES_BYTES], help[400];
    cli_option_text text;

    (void)command;
    cli_option_describe(param, &text);
    values_of_option(values, param, &text);
    help_short(help, sizeof(help), param);
    snprintf(name, sizeof(name), "--%s", param->name);
    snprintf(both, sizeof(both), text.alias[0] == '\0' ? "" : "(%s %s)", name, text.alias);
    for (const char *form = name; form[0] != '\0'; form = form == name ? text.alias : "") {
        fprintf(out, " \\\n        '%s%s%s[", strstr(param->help, "repeatable") != NULL ? "*" : both, form,
                param->type == GP_PARAM_BOOL ? ""
                : form[1] != '-'             ? "+"
                                             : "=");
        quoted_zsh(out, help);
        fputc(']', out);
        if (param->type != GP_PARAM_BOOL) {
            fputc(':', out);
            quoted_zsh(out, text.value);
            fprintf(out, values[0] == '\0' ? ": " : ":{_gradpool_complete %s}", values);
        }
        fputc('\'', out);
    }
}

void manual_completion_zsh(FILE *out, const char *template)
{
    template = template_begin(out, template);
    fputs("_gradpool_commands=(", out);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        fprintf(out, "\n    '%s:", cli_commands[i]->name);
        quoted_zsh(out, cli_commands[i]->summary);
        fputc('\'', out);
    }
    fputs("\n    'help:list the commands'\n)\n", out);
    table_names(out, "_gradpool_%s=(", ")\n");
    fputs("\n# COMMAND: complete options; for other words set `state` to the position.\n"
          "_gradpool_command()\n{\n    case $1 in\n",
          out);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        fprintf(out, "    %s) _arguments -s '1: :->1' '2: :->2' '3: :->3' '*: :->4'", cli_commands[i]->name);
        each_option(out, cli_commands[i], zsh_option);
        fputs(" ;;\n", out);
    }
    fputs("    esac\n}\n\n", out);
    function_word(out);
    fputs(template, out);
}

/* ---- fish ---- */

static void quoted_fish(FILE *out, const char *text)
{
    quoted(out, text, "\\'", "\\");
}

static void fish_option(FILE *out, const cli_command *command, const gp_param *param)
{
    const bool letter = param->alias != NULL && param->alias[1] == '\0';
    char values[VALUES_BYTES], help[400];
    cli_option_text text;

    cli_option_describe(param, &text);
    values_of_option(values, param, &text);
    help_short(help, sizeof(help), param);
    fprintf(out, "complete -c gradpool -n '__gradpool_in %s' -l %s", command->name, param->name);
    if (param->alias != NULL)
        fprintf(out, " -%c %s", letter ? 's' : 'l', param->alias);
    if (param->type != GP_PARAM_BOOL)
        fputs(" -x", out);
    if (values[0] != '\0')
        fprintf(out, " -a '(__gradpool_complete %s)'", values);
    fputs(" -d '", out);
    quoted_fish(out, help);
    fputs("'\n", out);
}

/* Write the flags of a command. A word after any other option is the value. */
static void fish_flag(FILE *out, const cli_command *command, const gp_param *param)
{
    cli_option_text text;

    (void)command;
    cli_option_describe(param, &text);
    if (param->type == GP_PARAM_BOOL)
        fprintf(out, " --%s%s%s", param->name, text.alias[0] == '\0' ? "" : " ", text.alias);
}

void manual_completion_fish(FILE *out, const char *template)
{
    template = template_begin(out, template);
    table_names(out, "set -g __gradpool_%s ", "\n");
    fputs("set -g __gradpool_flags", out);
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        each_option(out, cli_commands[i], fish_flag);
    fputs("\n\n# COMMAND:POSITION or COMMAND:VERB:POSITION: print the completions of the word.\n"
          "function __gradpool_word\n    switch $argv[1]\n",
          out);
    table_words(out, "        case '%s'\n            echo %s\n");
    fputs("    end\nend\n\n", out);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        fprintf(out, "complete -c gradpool -n __gradpool_first -a %s -d '", cli_commands[i]->name);
        quoted_fish(out, cli_commands[i]->summary);
        fputs("'\n", out);
    }
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        each_option(out, cli_commands[i], fish_option);
    fputs(template, out);
}
