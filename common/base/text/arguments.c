/* Implement arguments.h with getopt_long(). */
#include "common/base/text/arguments.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

/* Parse a decimal number, or "auto" if the option permits it, and store it in the field's size. */
static gp_status number_set(const gp_argument *argument, void *value, const char *text, gp_error *err)
{
    const bool automatic = argument->automatic && strcmp(text, "auto") == 0;
    char *end = NULL;
    long long number;

    errno = 0;
    number = automatic ? 0 : strtoll(text, &end, 10);
    if (!automatic &&
        (errno != 0 || end == text || *end != '\0' || number < argument->min || number > argument->max))
        return gp_fail(err, GP_EINVAL, "--%s is \"%.40s\"; must be a number from %lld to %lld",
                       argument->name, text, (long long)argument->min, (long long)argument->max);
    if (argument->bytes == sizeof(uint32_t))
        *(uint32_t *)value = (uint32_t)number;
    else
        *(int64_t *)value = number;
    return GP_OK;
}

gp_status gp_arguments_parse(const gp_argument *table, void *values, int count, char **words, gp_error *err)
{
    struct option options[GP_ARGUMENTS_MAX + 1] = { { 0 } };
    gp_status first = GP_OK;
    gp_error ignored;
    int option, place = 0;

    for (int i = 0; table[i].name != NULL; i++) {
        assert(i < GP_ARGUMENTS_MAX);
        options[i] =
            (struct option){ table[i].name,
                             table[i].type == GP_ARGUMENT_FLAG ? no_argument : required_argument, NULL, 0 };
    }
    while ((option = getopt_long(count, words, "", options, &place)) != -1) {
        gp_error *why = first == GP_OK ? err : &ignored;
        const gp_argument *argument = &table[place];
        void *value = (unsigned char *)values + argument->offset;
        gp_status status = GP_OK;

        if (option != 0)
            status = gp_fail(why, GP_EINVAL, "malformed command line; see --help");
        else if (argument->type == GP_ARGUMENT_FLAG)
            *(bool *)value = true;
        else if (argument->type == GP_ARGUMENT_TEXT)
            *(const char **)value = optarg;
        else
            status = number_set(argument, value, optarg, why);
        first = first == GP_OK ? status : first;
    }
    if (first == GP_OK && optind < count)
        first = gp_fail(err, GP_EINVAL, "invalid argument \"%.60s\"; see --help", words[optind]);
    return first;
}
