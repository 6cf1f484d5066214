#include "client/cluster/profile.h"

#include <stdio.h>
#include <string.h>

#include "client/cluster/profile_check.h"
#include "common/base/printable.h"
#include "common/base/text/spell.h"

const char *const gp_profile_types[] = { "pool", "slurm", "ssh", "kubernetes", "command", NULL };

/* Sets of types for settings.def. */
enum {
    POOL = 1u << GP_PROFILE_POOL,
    SLURM = 1u << GP_PROFILE_SLURM,
    SSH = 1u << GP_PROFILE_SSH,
    KUBERNETES = 1u << GP_PROFILE_KUBERNETES,
    COMMAND = 1u << GP_PROFILE_COMMAND,
    CLUSTERS = SLURM | SSH | KUBERNETES | COMMAND,
    ANY = POOL | CLUSTERS
};

const gp_profile_setting gp_profile_settings[] = {
#define GP_SETTING(types_, required_, check_, member, name_, help_, ...)                                     \
    { .param = { .name = name_, .help = help_, GP_PARAM_FIELD(gp_profile, member), ##__VA_ARGS__ },          \
      .types = types_,                                                                                       \
      .required_by = required_,                                                                              \
      .check = check_ },
#include "client/cluster/settings.def"
#undef GP_SETTING
    { .types = 0 },
};

enum { SETTINGS = sizeof(gp_profile_settings) / sizeof(gp_profile_settings[0]) - 1 };

static void profile_default(gp_profile *profile)
{
    memset(profile, 0, sizeof(*profile));
    for (int i = 0; i < SETTINGS; i++) {
        const gp_param table[2] = { gp_profile_settings[i].param, { 0 } };

        gp_params_default(table, profile);
    }
}

/* ---- check ---- */

/* Write the names of the types in a set: "ssh, kubernetes". */
static const char *types_text(uint32_t types, char text[80])
{
    size_t at = 0;

    text[0] = '\0';
    for (int i = 0; i < GP_PROFILE_TYPES; i++)
        if ((types & 1u << i) != 0)
            at += (size_t)snprintf(text + at, 80 - at, "%s%s", at == 0 ? "" : ", ", gp_profile_types[i]);
    return text;
}

/* Check one value. Blanks at its ends and " #" would be lost when the file is read. */
static gp_status value_check(const gp_profile_setting *setting, const char *value, gp_error *err)
{
    const size_t bytes = strlen(value);
    gp_status status = gp_printable_check(setting->param.name, value, err);

    if (status != GP_OK)
        return status;
    if (value[0] == ' ' || value[0] == '#' || (bytes > 0 && value[bytes - 1] == ' ') ||
        strstr(value, " #") != NULL)
        status = gp_fail(err, GP_EINVAL, "it must not begin or end with a blank, or contain ' #'");
    else if (setting->check != NULL)
        status = setting->check(value, err);
    if (status != GP_OK)
        gp_error_prefix(err, "%s = %.120s", setting->param.name, value);
    return status;
}

/* Check a text setting, each line of a repeated one. */
static gp_status text_check(const gp_profile_setting *setting, const char *text, gp_error *err)
{
    char line[sizeof(((gp_profile *)0)->slurm_options)];
    unsigned lines = 0;
    gp_status status = GP_OK;

    if (!setting->param.repeats)
        return value_check(setting, text, err);
    for (; *text != '\0' && status == GP_OK; text += *text == '\n') {
        const size_t bytes = strcspn(text, "\n");

        snprintf(line, sizeof(line), "%.*s", (int)bytes, text);
        status = ++lines <= GP_PROFILE_LINES_MAX ? value_check(setting, line, err)
                                                 : gp_fail(err, GP_ELIMIT, "'%s' has more than %d lines",
                                                           setting->param.name, GP_PROFILE_LINES_MAX);
        text += bytes;
    }
    return status;
}

/* Check one setting against the type of the profile.
 *   given  the setting is in the text, even if its value is the default */
static gp_status setting_check(const gp_profile *profile, const gp_profile_setting *setting, bool given,
                               gp_error *err)
{
    const gp_param *param = &setting->param;
    const uint32_t type = 1u << profile->type;
    char types[80];

    given = given || gp_params_changed(param, profile);
    if (given && (setting->types & type) == 0)
        return gp_fail(err, GP_EINVAL, "'%s' is a setting of type %s; this profile has the type %s",
                       param->name, types_text(setting->types, types), gp_profile_types[profile->type]);
    if (!given && (setting->required_by & type) != 0)
        return gp_fail(err, GP_EINVAL, "the setting '%s' is missing (%s); type %s needs it", param->name,
                       param->help, gp_profile_types[profile->type]);
    return given && param->type == GP_PARAM_TEXT
               ? text_check(setting, (const char *)profile + param->offset, err)
               : GP_OK;
}

/* Check all settings.
 *   lines  line of each setting in the text; 0: not in the text. NULL: there is no text
 *   source  name of the text in messages; NULL: none */
static gp_status profile_check(const gp_profile *profile, const unsigned lines[SETTINGS], const char *source,
                               gp_error *err)
{
    for (int i = 0; i < SETTINGS; i++) {
        const unsigned line = lines == NULL ? 0 : lines[i];
        gp_status status = setting_check(profile, &gp_profile_settings[i], line != 0, err);

        if (status == GP_OK)
            continue;
        if (line != 0)
            gp_error_prefix(err, "line %u of %s", line, source);
        else if (source != NULL)
            gp_error_prefix(err, "%s", source);
        return status;
    }
    return GP_OK;
}

gp_status gp_profile_check(const gp_profile *profile, gp_error *err)
{
    return profile_check(profile, NULL, NULL, err);
}

/* ---- parse ---- */

/* Find a setting by its name. GP_EINVAL: unknown name; the message suggests the nearest. */
static gp_status setting_find(const char *name, int *index, gp_error *err)
{
    const char *near = NULL;
    unsigned distance = 0;

    for (int i = 0; i < SETTINGS; i++) {
        const gp_param table[2] = { gp_profile_settings[i].param, { 0 } };

        gp_spell_offer(name, table[0].name, &near, &distance);
        if (gp_params_find(table, name) != NULL) {
            *index = i;
            return GP_OK;
        }
    }
    if (near != NULL)
        return gp_fail(err, GP_EINVAL, "unknown setting '%.40s'; did you mean '%s'?", name, near);
    return gp_fail(err, GP_EINVAL,
                   "unknown setting '%.40s'; `gradpool cluster new --help` lists the settings", name);
}

/* Remove blanks at both ends of a text, in place. */
static char *trim(char *text)
{
    size_t bytes;

    text += strspn(text, " \t\r");
    bytes = strlen(text);
    while (bytes > 0 && strchr(" \t\r", text[bytes - 1]) != NULL)
        bytes--;
    text[bytes] = '\0';
    return text;
}

/* Parse one line "key = value". Empty lines and lines with # are ignored. Modifies `line`. */
static gp_status line_parse(gp_profile *out, unsigned lines[SETTINGS], char *line, unsigned number,
                            gp_error *err)
{
    char *equals, *comment;
    const char *name, *value;
    int index = 0;
    gp_status status;

    line = trim(line);
    if (*line == '#' || *line == '\0')
        return GP_OK;
    equals = strchr(line, '=');
    if (equals == NULL)
        return gp_fail(err, GP_EINVAL, "'%.40s' is not of the form: key = value", gp_printable(line));
    *equals = '\0';
    name = gp_printable(trim(line));
    value = equals + 1;
    comment = strstr(value, " #");
    if (comment != NULL)
        *comment = '\0';
    value = trim(equals + 1);
    status = setting_find(name, &index, err);
    if (status != GP_OK)
        return status;
    const gp_param *param = &gp_profile_settings[index].param;

    if (value[0] == '\0' || value[0] == '#')
        return gp_fail(err, GP_EINVAL, "'%s' has no value; write one or remove the line", param->name);
    if (lines[index] != 0 && !param->repeats)
        return gp_fail(err, GP_EINVAL, "'%s' is set a second time; line %u has the first", param->name,
                       lines[index]);
    lines[index] = number;
    status = gp_printable_check(param->name, value, err);
    return status == GP_OK ? gp_params_set(param, out, value, err) : status;
}

gp_status gp_profile_parse(gp_profile *out, const char *text, size_t bytes, const char *source, gp_error *err)
{
    unsigned lines[SETTINGS] = { 0 }, number = 0;
    char copy[GP_PROFILE_BYTES_MAX + 1];

    profile_default(out);
    if (bytes > GP_PROFILE_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "%s has more than %d bytes; it is not a profile", source,
                       GP_PROFILE_BYTES_MAX);
    if (memchr(text, '\0', bytes) != NULL)
        return gp_fail(err, GP_EINVAL, "%s has a NUL byte; it is not a profile", source);
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    for (char *line = copy, *next; line != NULL; line = next) {
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        gp_status status = line_parse(out, lines, line, ++number, err);

        if (status != GP_OK) {
            gp_error_prefix(err, "line %u of %s", number, source);
            return status;
        }
    }
    return profile_check(out, lines, source, err);
}

/* ---- format ---- */

/* Append a setting: one line, or one for each element of a repeated setting. */
static gp_status setting_format(const gp_profile *profile, const gp_param *param, gp_buffer *text,
                                gp_error *err)
{
    char number[64];
    const char *value = (const char *)profile + param->offset;
    gp_status status = GP_OK;

    if (param->type != GP_PARAM_TEXT)
        return gp_buffer_printf(text, err, "%-12s = %s\n", param->name,
                                gp_params_format(param, profile, number, sizeof(number)));
    for (; *value != '\0' && status == GP_OK; value += *value == '\n') {
        const size_t bytes = strcspn(value, "\n");

        status = gp_buffer_printf(text, err, "%-12s = %.*s\n", param->name, (int)bytes, value);
        value += bytes;
    }
    return status;
}

gp_status gp_profile_format(const gp_profile *profile, gp_buffer *text, gp_error *err)
{
    gp_status status = GP_OK;

    for (int i = 0; i < SETTINGS && status == GP_OK; i++)
        if (gp_params_changed(&gp_profile_settings[i].param, profile))
            status = setting_format(profile, &gp_profile_settings[i].param, text, err);
    return status;
}
