/* Text of command-line options: placeholder, allowed values and default. */
#include "client/cli/option_text.h"

#include <ctype.h>
#include <string.h>

#include "common/model/train_options.h"

enum { WORDS_SHOWN = 28 }; /* longest list of allowed values that is shown next to the option name */

void cli_option_groups(const cli_command *command, cli_option_group groups[CLI_OPTION_GROUPS])
{
    int count = 0;

    groups[count++] = (cli_option_group){ "Options", command->options };
    if (command->leases)
        groups[count++] = (cli_option_group){ "Workers", cli_lease_options };
    if (command->trains)
        groups[count++] = (cli_option_group){ "Training", gp_train_options_table };
    if (command->sources != NULL)
        groups[count++] = (cli_option_group){ "Data in S3 (s3://BUCKET/PREFIX)", cli_s3_options };
    groups[count] = (cli_option_group){ NULL, NULL };
}

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

void cli_option_describe(const gp_param *param, cli_option_text *out)
{
    unsigned char scratch[512] = { 0 };
    gp_param one[2] = { *param, { 0 } };
    char fallback[64] = "", words[200] = "";

    *out = (cli_option_text){ 0 };
    if (param->alias != NULL)
        snprintf(out->alias, sizeof(out->alias), "%s%s", param->alias[1] == '\0' ? "-" : "--", param->alias);
    if (param->type != GP_PARAM_BOOL)
        placeholder(out->value, sizeof(out->value), param);

    /* The description: help text, allowed values not yet mentioned in the help text
     * or in `value`, and default. */
    one[0].offset = 0;
    if (param->type != GP_PARAM_BOOL && param->count <= sizeof(scratch)) {
        gp_params_default(one, scratch);
        gp_params_format(&one[0], scratch, fallback, sizeof(fallback));
    }
    if (param->type == GP_PARAM_WORD && !mentions_all(param->help, param->words) &&
        !mentions_all(out->value, param->words))
        words_join(words, sizeof(words), param->words, ", ");
    snprintf(out->help, sizeof(out->help), "%s%s%s%s%s%s", param->help, words[0] == '\0' ? "" : ": ", words,
             fallback[0] == '\0' ? "" : " [", fallback, fallback[0] == '\0' ? "" : "]");
}
