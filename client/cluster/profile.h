/* Profiles: where and how jobs run, and how to reach pools on other hosts.
 *
 * A profile is a file NAME.conf in the configuration directory ($XDG_CONFIG_HOME/gradpool, else
 * ~/.config/gradpool). Each line is a setting, `key = value`:
 *
 *     type         = slurm
 *     folder       = /shared/gradpool    # both the login node and the compute nodes see it
 *     gpus         = 2
 *     partition    = gpu
 *     slurm.option = --constraint=a100   # may be repeated
 *
 * A file without `type` describes a pool on another host (client/pool/remote.h). settings.def lists
 * all settings. Unknown settings, settings of another type and values outside their bounds are
 * errors: a misspelled setting must never be ignored.
 *
 * Profiles contain no secrets. They can name commands to run, so a profile that other users can
 * write is refused. */
#ifndef GP_CLUSTER_PROFILE_H
#define GP_CLUSTER_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/memory/buffer.h"
#include "common/base/error.h"
#include "common/base/text/params.h"

enum {
    GP_PROFILE_NAME_MAX = 60, /* bytes */
    GP_PROFILE_BYTES_MAX = 16384,
    GP_PROFILE_LIST_MAX = 256, /* profiles in the configuration directory */
    GP_PROFILE_WORDS_MAX = 64, /* words of a command line */
    GP_PROFILE_LINES_MAX = 32, /* lines of a repeated setting */
    GP_PROFILE_TIME_MAX_S = 366 * 24 * 3600,
};

/* What a profile describes. The order is that of gp_profile_types. */
typedef enum gp_profile_type {
    GP_PROFILE_POOL, /* a pool on another host; files without `type` */
    GP_PROFILE_SLURM,
    GP_PROFILE_SSH,
    GP_PROFILE_KUBERNETES,
    GP_PROFILE_COMMAND,
    GP_PROFILE_TYPES
} gp_profile_type;

extern const char *const gp_profile_types[]; /* "pool", "slurm", ...; NULL-terminated */

/* A profile. settings.def has the setting of each member from `connect` on, with its bounds. */
typedef struct gp_profile {
    char name[GP_PROFILE_NAME_MAX + 1];
    char path[600]; /* file; "": not from a file */
    int type;       /* gp_profile_type */

    /* pool */
    char connect[108], server_key_file[512], key_file[512];

    /* all clusters. folder, gradpool and directory are paths where the job runs. A run folder has
     * less than 512 bytes, and that of a job is folder/NAME. */
    char folder[480]; /* absolute; "" is possible for GP_PROFILE_KUBERNETES only */
    int64_t gpus;     /* per job; 0: CPU job */
    int64_t cores;    /* per job; 0: the engine's default */
    char memory[16];  /* "64G"; "": the engine's default; see gp_profile_memory_mib() */
    char time[24];    /* "24h"; "": the engine's default; see gp_profile_time_s() */
    char gradpool[512];
    char directory[512]; /* absolute; "": the directory of `submit` */

    /* slurm */
    char account[64], partition[128];
    char slurm_options[4096]; /* one option per line, separated by '\n', such as "--qos=high" */

    /* ssh */
    char hosts[2048]; /* separated by commas */
    char user[64];

    /* kubernetes */
    char kubectl[512];
    char context[256], kubernetes_namespace[64];
    char image[512];
    char volume[512];  /* CLAIM:/PATH */
    char labels[1024]; /* KEY=VALUE, separated by commas */
    char queue[64];

    /* command: command lines; gp_profile_words() splits them */
    char launch[1024], status[1024], cancel[1024];
} gp_profile;

/* One setting. */
typedef struct gp_profile_setting {
    gp_param param;              /* name, bounds and help; values in a gp_profile */
    uint32_t types, required_by; /* sets of gp_profile_type, as bits */
    /* Check the form of a value, one line of a repeated setting. NULL: no check beyond `param`. */
    gp_status (*check)(const char *value, gp_error *err);
} gp_profile_setting;

extern const gp_profile_setting gp_profile_settings[]; /* ends with type GP_PARAM_NONE */

/* Find the configuration directory. GP_ENOENT: neither XDG_CONFIG_HOME nor HOME is an absolute
 * path. */
gp_status gp_profile_directory(char *path, size_t bytes, gp_error *err);

/* Check a profile name: letters, digits, '.', '_' and '-', at most GP_PROFILE_NAME_MAX, beginning
 * with a letter or a digit. "default" and "none" are reserved. */
gp_status gp_profile_name_check(const char *name, gp_error *err);

/* Read and check the profile with this name.
 * GP_ENOENT: no such profile; the message names the nearest. GP_EINVAL, GP_ELIMIT: malformed; the
 * message has the file and the line. GP_EPERM: other users can write the file. */
gp_status gp_profile_read(gp_profile *out, const char *name, gp_error *err);

/* Read the profile that `--profile NAME` selects: "default" is the profile stored by
 * gp_profile_default_set(). Errors as for gp_profile_read(); GP_EINVAL: the profile describes a
 * pool. */
gp_status gp_profile_read_cluster(gp_profile *out, const char *name, gp_error *err);

/* Parse and check the text of a profile.
 *   source  name of the text in messages, such as a path */
gp_status gp_profile_parse(gp_profile *out, const char *text, size_t bytes, const char *source,
                           gp_error *err);

/* Check that all required settings are present, and no setting of another type. Parsing does that,
 * too. */
gp_status gp_profile_check(const gp_profile *profile, gp_error *err);

/* Append the profile's text: the settings that differ from their defaults, in the order of
 * settings.def. */
gp_status gp_profile_format(const gp_profile *profile, gp_buffer *text, gp_error *err);

/* Check the profile and write its file, with mode 0600. Sets profile->path.
 *   replace  overwrite an existing profile; false: fail with GP_EBUSY */
gp_status gp_profile_write(gp_profile *profile, bool replace, gp_error *err);

/* Remove a profile, and the default mark if it is the default. GP_ENOENT: no such profile. */
gp_status gp_profile_remove(const char *name, gp_error *err);

/* List the names of all profiles, sorted. GP_ELIMIT: more than GP_PROFILE_LIST_MAX. */
typedef struct gp_profile_names {
    char name[GP_PROFILE_LIST_MAX][GP_PROFILE_NAME_MAX + 1];
    uint32_t count;
} gp_profile_names;
gp_status gp_profile_list(gp_profile_names *out, gp_error *err);

/* Get the name of the default profile; "": no profile is the default. */
gp_status gp_profile_default(char name[GP_PROFILE_NAME_MAX + 1], gp_error *err);

/* Set the default profile.
 *   name  a profile that exists; NULL: no default from now on */
gp_status gp_profile_default_set(const char *name, gp_error *err);

/* Parse a duration: a number with the unit s, m, h or d ("90m", "24h"), or [DAYS-]HH:MM:SS.
 * GP_EINVAL: malformed, zero, or more than GP_PROFILE_TIME_MAX_S. */
gp_status gp_profile_time_s(const char *text, int64_t *seconds, gp_error *err);

/* Parse an amount of memory: a whole number with the unit M, G or T. GP_EINVAL: malformed, zero, or
 * more than 1024 T. */
gp_status gp_profile_memory_mib(const char *text, int64_t *mib, gp_error *err);

/* Words of a command line. */
typedef struct gp_profile_words {
    char *word[GP_PROFILE_WORDS_MAX + 1]; /* NULL-terminated; point into `text` */
    uint32_t count;
    char text[1024];
} gp_profile_words;

/* Split a command line into words at blanks. A word or a part of it can be quoted with '...' or
 * "..."; there is no other syntax: no variables, no escapes. GP_EINVAL: a quote is not closed, or
 * there is no word. GP_ELIMIT: more than GP_PROFILE_WORDS_MAX words. */
gp_status gp_profile_words_split(gp_profile_words *out, const char *line, gp_error *err);

#endif
