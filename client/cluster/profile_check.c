#include "client/cluster/profile_check.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cluster/profile.h"
#include "common/base/text/spell.h"

#define LOWER    "abcdefghijklmnopqrstuvwxyz"
#define DIGITS   "0123456789"
#define ALPHANUM "ABCDEFGHIJKLMNOPQRSTUVWXYZ" LOWER DIGITS

enum { HOSTS_MAX = 64, LABELS_MAX = 16, LABEL_BYTES_MAX = 63 };

/* ---- general forms ---- */

gp_status profile_check_path(const char *value, gp_error *err)
{
    return value[0] == '/' ? GP_OK : gp_fail(err, GP_EINVAL, "the path must be absolute: begin with '/'");
}

gp_status profile_check_file(const char *value, gp_error *err)
{
    return value[0] != '\0' ? GP_OK : gp_fail(err, GP_EINVAL, "the file name is empty");
}

gp_status profile_check_token(const char *value, gp_error *err)
{
    if (value[0] == '-' || value[strcspn(value, " \t")] != '\0')
        return gp_fail(err, GP_EINVAL, "it must not begin with '-' or contain blanks");
    return GP_OK;
}

gp_status profile_check_program(const char *value, gp_error *err)
{
    if (value[0] != '/' && (value[0] == '-' || strspn(value, ALPHANUM "._-") != strlen(value)))
        return gp_fail(err, GP_EINVAL, "it must be a program name or an absolute path");
    return GP_OK;
}

gp_status profile_check_memory(const char *value, gp_error *err)
{
    int64_t mib;

    return gp_profile_memory_mib(value, &mib, err);
}

gp_status profile_check_time(const char *value, gp_error *err)
{
    int64_t seconds;

    return gp_profile_time_s(value, &seconds, err);
}

/* ---- Slurm ---- */

gp_status profile_check_slurm_name(const char *value, gp_error *err)
{
    if (value[0] == '-' || strspn(value, ALPHANUM "._-+@,") != strlen(value))
        return gp_fail(err, GP_EINVAL, "use letters, digits and . _ - + @ only");
    return GP_OK;
}

/* Options of sbatch that a line cannot set: gradpool sets them itself, they would pass the
 * environment of `submit` to the job, or the profile has a setting for them. */
static const struct slurm_reserved {
    const char *option, *setting; /* setting: NULL: none */
} slurm_reserved[] = {
    { "account", "account" }, { "array", NULL },
    { "chdir", NULL },        { "cpus-per-task", "cores" },
    { "error", NULL },        { "export", NULL },
    { "export-file", NULL },  { "get-user-env", NULL },
    { "input", NULL },        { "job-name", NULL },
    { "mem", "memory" },      { "no-requeue", NULL },
    { "nodes", NULL },        { "ntasks", NULL },
    { "open-mode", NULL },    { "output", NULL },
    { "parsable", NULL },     { "partition", "partition" },
    { "requeue", NULL },      { "signal", NULL },
    { "test-only", NULL },    { "time", "time" },
    { "wait", NULL },         { "wrap", NULL },
};

gp_status profile_check_slurm_option(const char *value, gp_error *err)
{
    const size_t bytes = strcspn(value, "= ");

    if (strncmp(value, "--", 2) != 0 || bytes < 4 || !isalnum((unsigned char)value[2]))
        return gp_fail(err, GP_EINVAL, "write the option in its long form: --NAME or --NAME=VALUE");
    if (value[bytes] == ' ')
        return gp_fail(err, GP_EINVAL, "separate the option and its value by '=', without blanks");
    if (strncmp("clusters", value + 2, bytes - 2) == 0)
        return gp_fail(
            err, GP_EINVAL,
            "gradpool lists and cancels jobs on the cluster of SLURM_CONF only; remove --clusters, "
            "and set SLURM_CONF for another cluster");
    for (size_t i = 0; i < sizeof(slurm_reserved) / sizeof(slurm_reserved[0]); i++) {
        const struct slurm_reserved *reserved = &slurm_reserved[i];

        if (strncmp(reserved->option, value + 2, bytes - 2) != 0) /* sbatch accepts abbreviations */
            continue;
        if (reserved->setting != NULL)
            return gp_fail(err, GP_EINVAL, "--%s has a setting of its own; write '%s = VALUE' instead",
                           reserved->option, reserved->setting);
        return gp_fail(err, GP_EINVAL, "gradpool sets --%s itself; remove the line", reserved->option);
    }
    return GP_OK;
}

/* ---- ssh ---- */

gp_status profile_check_hosts(const char *value, gp_error *err)
{
    unsigned count = 0;

    for (;;) {
        const size_t bytes = strspn(value, ALPHANUM "._-:%");

        if (bytes == 0 || bytes > 253 || value[0] == '-' || (value[bytes] != ',' && value[bytes] != '\0'))
            return gp_fail(
                err, GP_EINVAL,
                "invalid host name at '%.40s'; write HOST,HOST without blanks, and the user in the "
                "setting 'user'",
                value);
        if (++count > HOSTS_MAX)
            return gp_fail(err, GP_ELIMIT, "more than %d hosts", HOSTS_MAX);
        if (value[bytes] == '\0')
            return GP_OK;
        value += bytes + 1;
    }
}

gp_status profile_check_user(const char *value, gp_error *err)
{
    if (value[0] == '-' || strspn(value, ALPHANUM "._-") != strlen(value))
        return gp_fail(err, GP_EINVAL, "use letters, digits and . _ - only");
    return GP_OK;
}

/* ---- Kubernetes ---- */

/* Return whether the text is an RFC 1123 label, or with `dots` a sequence of them. */
static bool dns_sound(const char *text, size_t bytes, bool dots)
{
    for (size_t i = 0; i < bytes; i++) {
        const bool edge = i == 0 || i + 1 == bytes || text[i - 1] == '.' || text[i + 1] == '.';

        if (strchr(LOWER DIGITS, text[i]) == NULL && (edge || (text[i] != '-' && (text[i] != '.' || !dots))))
            return false;
    }
    return bytes > 0;
}

gp_status profile_check_dns_name(const char *value, gp_error *err)
{
    const size_t bytes = strlen(value);

    return bytes <= LABEL_BYTES_MAX && dns_sound(value, bytes, false)
               ? GP_OK
               : gp_fail(err, GP_EINVAL,
                         "use 1 to %d lower-case letters, digits and '-', which stands inside only",
                         LABEL_BYTES_MAX);
}

gp_status profile_check_volume(const char *value, gp_error *err)
{
    const size_t bytes = strcspn(value, ":");

    if (bytes > 253 || !dns_sound(value, bytes, true) || value[bytes] != ':' || value[bytes + 1] != '/')
        return gp_fail(err, GP_EINVAL, "write CLAIM:/PATH, such as models:/models");
    return GP_OK;
}

/* Return whether the text is a label value or the name part of a label key. */
static bool label_sound(const char *text, size_t bytes)
{
    return bytes <= LABEL_BYTES_MAX &&
           (bytes == 0 || (isalnum((unsigned char)text[0]) && isalnum((unsigned char)text[bytes - 1]))) &&
           strspn(text, ALPHANUM "-_.") >= bytes;
}

gp_status profile_check_labels(const char *value, gp_error *err)
{
    unsigned count = 0;

    for (;;) {
        const size_t bytes = strcspn(value, ","), key = strcspn(value, "=,");
        const size_t slash = strcspn(value, "/=,"), prefix = slash < key ? slash + 1 : 0;

        if (key >= bytes || key == prefix || !label_sound(value + prefix, key - prefix) ||
            (prefix > 0 && (slash > 253 || !dns_sound(value, slash, true))) ||
            !label_sound(value + key + 1, bytes - key - 1))
            return gp_fail(err, GP_EINVAL, "invalid label at '%.40s'; write KEY=VALUE,KEY=VALUE", value);
        if (++count > LABELS_MAX)
            return gp_fail(err, GP_ELIMIT, "more than %d labels", LABELS_MAX);
        if (value[bytes] == '\0')
            return GP_OK;
        value += bytes + 1;
    }
}

/* ---- command ---- */

/* Check the words and placeholders of a command line.
 *   known   placeholders that the command may have, NULL-terminated
 *   needed  placeholder that it must have; NULL: none */
static gp_status command_check(const char *value, const char *const *known, const char *needed, gp_error *err)
{
    gp_profile_words words;
    char name[24];
    gp_status status = gp_profile_words_split(&words, value, err);

    if (status != GP_OK)
        return status;
    if (strchr(words.word[0], '{') != NULL)
        return gp_fail(err, GP_EINVAL, "the first word must be a program, without placeholders");
    for (const char *at = value; (at = strchr(at, '{')) != NULL; at++) {
        const size_t bytes = strspn(at + 1, LOWER);
        const char *near = NULL;
        unsigned distance = 0;
        bool found = false;

        if (bytes == 0 || bytes >= sizeof(name) || at[bytes + 1] != '}')
            return gp_fail(err, GP_EINVAL, "'%.20s' is not a placeholder; write {name}", at);
        snprintf(name, sizeof(name), "%.*s", (int)bytes, at + 1);
        for (int i = 0; known[i] != NULL; i++) {
            found = found || strcmp(known[i], name) == 0;
            gp_spell_offer(name, known[i], &near, &distance);
        }
        if (!found && near != NULL)
            return gp_fail(err, GP_EINVAL, "unknown placeholder {%s}; did you mean {%s}?", name, near);
        if (!found)
            return gp_fail(err, GP_EINVAL, "unknown placeholder {%s} in this command", name);
    }
    if (needed != NULL && strstr(value, needed) == NULL)
        return gp_fail(err, GP_EINVAL, "the command must contain %s", needed);
    return GP_OK;
}

gp_status profile_check_launch(const char *value, gp_error *err)
{
    static const char *const known[] = { "script", "name", "folder",  "cores", "gpus",
                                         "memory", "time", "minutes", NULL };

    return command_check(value, known, "{script}", err);
}

gp_status profile_check_status(const char *value, gp_error *err)
{
    static const char *const known[] = { NULL };

    return command_check(value, known, NULL, err);
}

gp_status profile_check_cancel(const char *value, gp_error *err)
{
    static const char *const known[] = { "id", "name", NULL };

    return command_check(value, known, "{id}", err);
}

/* ---- values ---- */

/* Parse "HH:MM:SS" or "DAYS-HH:MM:SS". Return the seconds; 0: malformed. */
static int64_t clock_parse(const char *text)
{
    const char *dash = strchr(text, '-');
    const char *clock = dash == NULL ? text : dash + 1;
    unsigned days = 0, hours, minutes, seconds;
    int used = 0;

    if (strspn(text, DIGITS "-:") != strlen(text) || strlen(text) > 20)
        return 0;
    if (dash != NULL && (sscanf(text, "%4u%n", &days, &used) != 1 || text + used != dash))
        return 0;
    if (sscanf(clock, "%4u:%2u:%2u%n", &hours, &minutes, &seconds, &used) != 3 || clock[used] != '\0' ||
        clock[0] == '-' || minutes > 59 || seconds > 59 || (dash != NULL && hours > 23))
        return 0;
    return (int64_t)days * 86400 + (int64_t)hours * 3600 + minutes * 60 + seconds;
}

/* Parse a whole number with a unit. Return the number times the unit's factor; 0: malformed.
 *   units    one letter per unit
 *   factors  one per unit
 *   most     largest result */
static int64_t amount_parse(const char *text, const char *units, const int64_t *factors, int64_t most)
{
    const size_t digits = strspn(text, DIGITS);
    const char *unit = text[digits] == '\0' ? NULL : strchr(units, text[digits]);

    if (digits == 0 || digits > 9 || unit == NULL || text[digits + 1] != '\0')
        return 0;
    const int64_t number = strtoll(text, NULL, 10), factor = factors[unit - units];

    return number <= most / factor ? number * factor : 0;
}

gp_status gp_profile_time_s(const char *text, int64_t *seconds, gp_error *err)
{
    static const int64_t factors[] = { 1, 60, 3600, 86400 };
    int64_t parsed = strchr(text, ':') != NULL ? clock_parse(text)
                                               : amount_parse(text, "smhd", factors, GP_PROFILE_TIME_MAX_S);

    if (parsed <= 0 || parsed > GP_PROFILE_TIME_MAX_S)
        return gp_fail(err, GP_EINVAL,
                       "the time '%.24s' must be 1s to %dd, as a number with s, m, h or d, or as "
                       "[DAYS-]HH:MM:SS",
                       text, GP_PROFILE_TIME_MAX_S / 86400);
    *seconds = parsed;
    return GP_OK;
}

gp_status gp_profile_memory_mib(const char *text, int64_t *mib, gp_error *err)
{
    static const int64_t factors[] = { 1, 1024, 1024 * 1024 };
    int64_t parsed = amount_parse(text, "MGT", factors, 1024 * factors[2]);

    if (parsed <= 0)
        return gp_fail(err, GP_EINVAL, "the memory '%.24s' must be 1M to 1024T, as a number with M, G or T",
                       text);
    *mib = parsed;
    return GP_OK;
}

gp_status gp_profile_words_split(gp_profile_words *out, const char *line, gp_error *err)
{
    char *to = out->text;

    if (strlen(line) >= sizeof(out->text))
        return gp_fail(err, GP_ELIMIT, "the command line has more than %zu bytes", sizeof(out->text) - 1);
    out->count = 0;
    for (;;) {
        char quote = '\0';

        line += strspn(line, " \t");
        if (*line == '\0')
            break;
        if (out->count == GP_PROFILE_WORDS_MAX)
            return gp_fail(err, GP_ELIMIT, "the command line has more than %d words", GP_PROFILE_WORDS_MAX);
        out->word[out->count++] = to;
        for (; *line != '\0' && (quote != '\0' || (*line != ' ' && *line != '\t')); line++) {
            if (quote == '\0' && (*line == '\'' || *line == '"'))
                quote = *line;
            else if (quote != '\0' && *line == quote)
                quote = '\0';
            else
                *to++ = *line;
        }
        if (quote != '\0')
            return gp_fail(err, GP_EINVAL, "the quote %c is not closed", quote);
        *to++ = '\0';
    }
    out->word[out->count] = NULL;
    if (out->count == 0 || out->word[0][0] == '\0')
        return gp_fail(err, GP_EINVAL, "the command line has no program");
    return GP_OK;
}
