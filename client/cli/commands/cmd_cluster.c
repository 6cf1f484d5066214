/* `gradpool cluster`: profiles, the settings for jobs on clusters and for pools on other hosts. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/cluster/validate.h"
#include "client/cli/show.h"
#include "client/cluster/profile.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"

typedef struct cluster_options {
    cli_common common;
    gp_profile profile; /* settings of `new` */
    char name[GP_PROFILE_NAME_MAX + 1];
    bool force;
    char data[1024]; /* of `validate` */
    bool no_job;
} cluster_options;

/* Beginning of the help text of a setting, by the types that have it. */
#define FOR_ANY        "new: "
#define FOR_CLUSTERS   "new: "
#define FOR_POOL       "new, pool: "
#define FOR_SLURM      "new, slurm: "
#define FOR_SSH        "new, ssh: "
#define FOR_KUBERNETES "new, kubernetes: "
#define FOR_COMMAND    "new, command: "

static const gp_param cluster_params[] = {
#define GP_SETTING(types_, required_, check_, member, name_, help_, ...)                                     \
    { .name = name_,                                                                                         \
      .help = FOR_##types_ help_,                                                                            \
      GP_PARAM_FIELD(cluster_options, profile.member),                                                       \
      ##__VA_ARGS__ },
#include "client/cluster/settings.def"
#undef GP_SETTING
    { .name = "name",
      GP_PARAM_FIELD(cluster_options, name),
      .help = "import: name of the profile; default: the name of the file" },
    { .name = "force",
      GP_PARAM_FIELD(cluster_options, force),
      .basic = true,
      .help = "new, import: replace an existing profile" },
    { .name = "data",
      GP_PARAM_FIELD(cluster_options, data),
      .help = "validate: data source to open on the host of the job" },
    { .name = "no-job", GP_PARAM_FIELD(cluster_options, no_job), .help = "validate: submit no job" },
    CLI_JSON_PARAM(cluster_options),
    CLI_COMMON_PARAMS(cluster_options),
    { 0 },
};

/* ---- output ---- */

/* Write the settings of the profile's type as members of the open JSON object. */
static void put_settings(gp_json_writer *writer, const gp_profile *profile)
{
    for (const gp_profile_setting *setting = gp_profile_settings; setting->param.type != GP_PARAM_NONE;
         setting++) {
        const gp_param table[2] = { setting->param, { 0 } };
        const char *lines = (const char *)profile + table[0].offset;
        char line[sizeof(profile->slurm_options)];

        if ((setting->types & 1u << profile->type) == 0)
            continue;
        if (!table[0].repeats) {
            gp_params_to_json(table, profile, false, writer);
            continue;
        }
        gp_json_begin_array(writer, table[0].name);
        for (; *lines != '\0'; lines += *lines == '\n') {
            const size_t bytes = strcspn(lines, "\n");

            snprintf(line, sizeof(line), "%.*s", (int)bytes, lines);
            gp_json_put_text(writer, NULL, line);
            lines += bytes;
        }
        gp_json_end_array(writer);
    }
}

/* Print a profile as the text of its file. */
static gp_status print_text(const gp_profile *profile, gp_error *err)
{
    gp_buffer text;
    gp_status status;

    gp_buffer_init(&text, GP_PROFILE_BYTES_MAX);
    status = gp_profile_format(profile, &text, err);
    if (status == GP_OK)
        fputs(gp_buffer_text(&text), stdout);
    gp_buffer_deinit(&text);
    return status;
}

/* Print a profile: the text of its file, or JSON. */
static gp_status print_profile(const cli_call *call, const gp_profile *profile, gp_error *err)
{
    const cluster_options *options = call->options;
    char chosen[GP_PROFILE_NAME_MAX + 1];
    json_document document;
    gp_status status = gp_profile_default(chosen, err);

    if (status != GP_OK)
        return status;
    if (!options->common.json) {
        if (!options->common.quiet)
            fprintf(stderr, "%s%s\n", profile->path,
                    strcmp(chosen, profile->name) == 0 ? " (default profile)" : "");
        return print_text(profile, err);
    }
    gp_json_writer *writer = show_json_object(&document, true);

    gp_json_put_text(writer, "name", profile->name);
    gp_json_put_text(writer, "path", profile->path);
    gp_json_put_bool(writer, "default", strcmp(chosen, profile->name) == 0);
    put_settings(writer, profile);
    return show_json_print(&document, err);
}

/* ---- verbs ---- */

/* Write and print a profile; report a folder that this host does not have. */
static gp_status profile_store(const cli_call *call, gp_profile *profile, gp_error *err)
{
    const cluster_options *options = call->options;
    gp_status status = gp_profile_write(profile, options->force, err);
    const bool shared = profile->type == GP_PROFILE_SLURM || profile->type == GP_PROFILE_COMMAND;

    if (status == GP_OK && shared && !options->common.quiet && access(profile->folder, F_OK) != 0)
        fprintf(stderr, "note: this host has no folder %s; create it before the first job\n",
                profile->folder);
    return status == GP_OK ? print_profile(call, profile, err) : status;
}

static gp_status cluster_new(cli_call *call, gp_error *err)
{
    cluster_options *options = call->options;
    gp_profile *profile = &options->profile;

    if (!cli_given(call, "type") && profile->connect[0] == '\0') {
        call->code = cli_usage(call, "--type is missing; use --type slurm, ssh, kubernetes or command, or "
                                     "--connect tcp://HOST:PORT for a pool");
        return GP_OK;
    }
    gp_status status = gp_profile_name_check(call->words[1], err);

    if (status != GP_OK)
        return status;
    strcpy(profile->name, call->words[1]);
    return profile_store(call, profile, err);
}

/* Read the profile that the command names and print it. */
static gp_status profile_print(cli_call *call,
                               gp_status (*print)(const cli_call *, const gp_profile *, gp_error *),
                               gp_error *err)
{
    gp_profile *profile = gp_calloc(1, sizeof(*profile));
    gp_status status = profile == NULL ? gp_fail(err, GP_ENOMEM, "no memory for a profile")
                       : strcmp(call->words[1], "default") == 0
                           ? gp_profile_read_cluster(profile, "default", err)
                           : gp_profile_read(profile, call->words[1], err);

    if (status == GP_OK)
        status = print(call, profile, err);
    gp_free(profile);
    return status;
}

static gp_status cluster_show(cli_call *call, gp_error *err)
{
    return profile_print(call, print_profile, err);
}

/* Print a profile as a file to import. */
static gp_status print_export(const cli_call *call, const gp_profile *profile, gp_error *err)
{
    (void)call;
    printf("# gradpool profile; to install it: gradpool cluster import FILE --name %s\n", profile->name);
    return print_text(profile, err);
}

static gp_status cluster_export(cli_call *call, gp_error *err)
{
    return profile_print(call, print_export, err);
}

/* Read a whole file, or standard input for "-". *text is owned by the caller. */
static gp_status import_read(const char *path, uint8_t **text, size_t *bytes, gp_error *err)
{
    const bool input = strcmp(path, "-") == 0;

    if (!input)
        return gp_file_read(text, bytes, path, GP_PROFILE_BYTES_MAX, err);
    *text = gp_malloc(GP_PROFILE_BYTES_MAX + 1);
    if (*text == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a profile");
    *bytes = fread(*text, 1, GP_PROFILE_BYTES_MAX + 1, stdin);
    return GP_OK;
}

/* Choose the name of an imported profile: --name, else the name of the file without ".conf". */
static gp_status import_name(const cluster_options *options, const char *path, char *name, gp_error *err)
{
    const char *slash = strrchr(path, '/'), *base = slash == NULL ? path : slash + 1;
    size_t bytes = strlen(base);

    if (options->name[0] != '\0')
        base = options->name, bytes = strlen(base);
    else if (strcmp(path, "-") == 0)
        return gp_fail(err, GP_EINVAL, "the profile has no name; give --name NAME");
    else if (bytes > 5 && strcmp(base + bytes - 5, ".conf") == 0)
        bytes -= 5;
    if (bytes > GP_PROFILE_NAME_MAX)
        bytes = GP_PROFILE_NAME_MAX + 1; /* gp_profile_name_check() refuses it */
    snprintf(name, GP_PROFILE_NAME_MAX + 2, "%.*s", (int)bytes, base);
    return gp_profile_name_check(name, err);
}

static gp_status cluster_import(cli_call *call, gp_error *err)
{
    const cluster_options *options = call->options;
    const char *path = call->words[1];
    gp_profile *profile = gp_calloc(1, sizeof(*profile));
    char name[GP_PROFILE_NAME_MAX + 2];
    uint8_t *text = NULL;
    size_t bytes;
    gp_status status = profile == NULL ? gp_fail(err, GP_ENOMEM, "no memory for a profile")
                                       : import_name(options, path, name, err);

    if (status == GP_OK)
        status = import_read(path, &text, &bytes, err);
    if (status == GP_OK)
        status = gp_profile_parse(profile, (const char *)text, bytes,
                                  strcmp(path, "-") == 0 ? "standard input" : path, err);
    if (status == GP_OK) {
        strcpy(profile->name, name);
        status = profile_store(call, profile, err);
    }
    gp_free(text);
    gp_free(profile);
    return status;
}

/* Print one row of the list. *failed is set if the profile cannot be read. */
static void list_row(show_table *table, gp_json_writer *writer, const char *name, const char *chosen,
                     gp_profile *profile, bool *failed)
{
    gp_error err;
    const bool read = gp_profile_read(profile, name, &err) == GP_OK;
    const bool pool = read && profile->type == GP_PROFILE_POOL;
    const char *type = read ? gp_profile_types[profile->type] : "malformed";

    *failed = *failed || !read;
    show_cells(table, "%s\t%s\t%s\t%s", name, type,
               !read  ? err.message
               : pool ? profile->connect
                      : profile->folder,
               strcmp(name, chosen) == 0 ? "default" : "");
    gp_json_begin_object(writer, NULL);
    gp_json_put_text(writer, "name", name);
    gp_json_put_text(writer, "type", type);
    if (read)
        gp_json_put_text(writer, pool ? "connect" : "folder", pool ? profile->connect : profile->folder);
    else
        gp_json_put_text(writer, "error", err.message);
    gp_json_put_bool(writer, "default", strcmp(name, chosen) == 0);
    gp_json_end_object(writer);
}

static gp_status cluster_list(cli_call *call, gp_error *err)
{
    const cluster_options *options = call->options;
    gp_profile *profile = gp_calloc(1, sizeof(*profile));
    gp_profile_names *names = gp_calloc(1, sizeof(*names));
    char chosen[GP_PROFILE_NAME_MAX + 1] = "";
    bool failed = false;
    json_document document;
    gp_status status = profile == NULL || names == NULL ? gp_fail(err, GP_ENOMEM, "no memory for profiles")
                                                        : gp_profile_list(names, err);

    if (status == GP_OK && names->count > 0)
        status = gp_profile_default(chosen, err);
    if (status == GP_OK && names->count == 0 && !options->common.json) {
        if (!options->common.quiet)
            fprintf(stderr,
                    "no profile; create one with: gradpool cluster new NAME --type slurm --folder FOLDER\n");
    } else if (status == GP_OK) {
        show_table *table =
            options->common.json ? NULL : show_table_new(4, "name\ttype\tfolder or address\t");
        gp_json_writer *writer = show_json_array(&document);

        for (uint32_t i = 0; i < names->count; i++)
            list_row(table, writer, names->name[i], chosen, profile, &failed);
        show_table_print_free(table);
        if (options->common.json)
            status = show_json_print(&document, err);
        else
            gp_buffer_deinit(&document.text);
    }
    if (status == GP_OK && failed)
        call->code = CLI_FAILED;
    gp_free(names);
    gp_free(profile);
    return status;
}

static gp_status cluster_default(cli_call *call, gp_error *err)
{
    const cluster_options *options = call->options;
    const char *name = call->words[1];
    char chosen[GP_PROFILE_NAME_MAX + 1];
    json_document document;
    gp_status status;

    if (name != NULL)
        return gp_profile_default_set(strcmp(name, "none") == 0 ? NULL : name, err);
    status = gp_profile_default(chosen, err);
    if (status != GP_OK)
        return status;
    if (options->common.json) {
        gp_json_put_text(show_json_object(&document, true), "default", chosen);
        return show_json_print(&document, err);
    }
    if (chosen[0] == '\0')
        return gp_fail(err, GP_ENOENT,
                       "there is no default profile; set one with: gradpool cluster default NAME");
    printf("%s\n", chosen);
    return GP_OK;
}

static gp_status cluster_remove(cli_call *call, gp_error *err)
{
    return gp_profile_remove(call->words[1], err);
}

static gp_status cluster_validate_run(cli_call *call, gp_error *err)
{
    const cluster_options *options = call->options;

    return cluster_validate(call, call->words[1], options->data, !options->no_job, err);
}

/* Refuse options of another verb, which would have no effect. */
static int cluster_check(cli_call *call)
{
    const cluster_options *options = call->options;
    const char *verb = call->word_count > 0 ? call->words[0] : "";
    const bool new = strcmp(verb, "new") == 0, import = strcmp(verb, "import") == 0;
    const bool validate = strcmp(verb, "validate") == 0;

    for (const gp_param *param = cluster_params; !new && param->type != GP_PARAM_NONE; param++)
        if (param->offset >= offsetof(cluster_options, profile) &&
            param->offset < offsetof(cluster_options, name) && gp_params_changed(param, options))
            return cli_usage(call,
                             "--%s is an option of `gradpool cluster new`; to change a profile, edit its "
                             "file or replace it with `new --force`",
                             param->name);
    if (options->force && !new && !import)
        return cli_usage(call, "--force is an option of `gradpool cluster new` and `import`");
    if (options->name[0] != '\0' && !import)
        return cli_usage(call, "--name is an option of `gradpool cluster import`");
    if ((options->data[0] != '\0' || options->no_job) && !validate)
        return cli_usage(call, "--%s is an option of `gradpool cluster validate`",
                         options->no_job ? "no-job" : "data");
    if (options->data[0] != '\0' && options->no_job)
        return cli_usage(call, "--data is opened by the job, so it excludes --no-job");
    return CLI_OK;
}

static const cli_verb cluster_verbs[] = {
    { "new", "NAME --type TYPE [--SETTING VALUE]...", "create a profile and print it", 1, 1, cluster_new },
    { "list", "", "list all profiles", 0, 0, cluster_list },
    { "show", "PROFILE", "print a profile", 1, 1, cluster_show },
    { "default", "[PROFILE|none]", "set or print the default profile", 0, 1, cluster_default },
    { "export", "PROFILE", "print a profile as a file for other users and hosts", 1, 1, cluster_export },
    { "import", "FILE [--name NAME]", "check a file and store it as a profile", 1, 1, cluster_import },
    { "validate", "PROFILE [--data SOURCE] [--no-job]", "check a profile with a job, stage by stage", 1, 1,
      cluster_validate_run },
    { "remove", "PROFILE", "remove a profile; its jobs continue", 1, 1, cluster_remove },
    { 0 },
};

const cli_command cli_command_cluster = {
    .name = "cluster",
    .summary = "manage the profiles of clusters and of pools on other hosts",
    .description = "A profile has the settings for jobs on a cluster: the engine (Slurm, ssh, Kubernetes, or "
                   "commands of "
                   "your own), the resources of each job, and the folder of the jobs. `gradpool submit "
                   "--profile NAME` uses "
                   "it. A profile of type pool names a pool on another host for `--pool NAME`.\n\n"
                   "A profile is a file NAME.conf in ~/.config/gradpool, with mode 0600. It contains no "
                   "secrets, so it can "
                   "be exported and passed on. A profile that other users can write is refused.\n\n"
                   "`default NAME` sets the profile that --profile default selects. Without --profile, "
                   "commands use a pool, "
                   "whether or not there is a default profile. docs/clusters.md has all settings.",
    .examples =
        "  gradpool cluster new hpc --type slurm --folder /shared/gradpool --gpus 2 --time 24h\n"
        "  gradpool cluster list\n"
        "  gradpool cluster export hpc > hpc.conf\n"
        "  gradpool cluster import hpc.conf --name hpc2\n"
        "  gradpool cluster default hpc\n"
        "  gradpool cluster new lab --type ssh --hosts gpu1,gpu2 --folder /home/me/gradpool --gpus 1\n"
        "  gradpool cluster new hpc --type slurm --folder /shared/gradpool --slurm.option --qos=high "
        "--force\n"
        "  gradpool cluster new box --connect tcp://10.0.0.5:5555 --server-key-file box.pub --key-file "
        "me.key\n"
        "  gradpool cluster show hpc --json\n"
        "  gradpool cluster remove hpc2\n",
    .options = cluster_params,
    .options_bytes = sizeof(cluster_options),
    .words_max = 2,
    .check = cluster_check,
    .verbs = cluster_verbs,
};
