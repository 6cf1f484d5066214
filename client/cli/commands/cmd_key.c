/* `gradpool key`: key pairs for links between hosts, and the pool's allowed public keys.
 *
 * The command changes files only; the scheduler notices the changes. Secret keys are written to
 * files with mode 0600 and never printed. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/show.h"
#include "common/base/memory/alloc.h"
#include "proto/channel/curve.h"

typedef struct key_options {
    cli_common common;
    int role;
    char out[512];
} key_options;

static const char *const key_roles[] = { "client", "worker", "observer", NULL };

static const gp_param key_params[] = {
    { .name = "role",
      GP_PARAM_FIELD(key_options, role),
      .words = key_roles,
      .help = "add: rights of the key: client (submit, cancel, shut down), observer (view) or worker" },
    { .name = "out",
      GP_PARAM_FIELD(key_options, out),
      .placeholder = "FILE",
      .help = "rotate NAME: generate the new key pair in this file" },
    CLI_JSON_PARAM(key_options),
    CLI_COMMON_PARAMS(key_options),
    { 0 },
};

/* Name of the pool's own key in `rotate`; not available for other keys. */
static const char server_name[] = "server";

static const char missing[] = "there is no key '%.60s'; `gradpool key list` lists the keys";

/* Arguments of a verb, and the state that all verbs share. */
typedef struct key_work {
    const key_options *options;
    const char *const *words; /* words after the verb; missing words are NULL */
    gp_paths paths;
    gp_allow_list *list;
    char said[200]; /* message after success; "": none */
} key_work;

/* ---- helpers ---- */

/* Read a public key given as text, as a file, or as "-" (standard input). */
static gp_status key_given(char out[GP_KEY_TEXT], const char *word, gp_error *err)
{
    /* A 40-character path can look like a Z85 key: an existing file takes precedence. */
    if (gp_key_sound(word) && access(word, F_OK) != 0) {
        memcpy(out, word, GP_KEY_TEXT);
        return GP_OK;
    }
    gp_status status = gp_key_read_public(out, word, err);

    return status == GP_ENOENT
               ? gp_fail(err, GP_ENOENT, "'%.60s' is neither a public key (40 characters) nor a file", word)
               : status;
}

/* Create the key directory and check its permissions. */
static gp_status directory_ready(const key_work *work, gp_error *err)
{
    gp_status status = gp_paths_create(&work->paths, err);

    return status == GP_OK ? gp_directory_secure(work->paths.key_dir, err) : status;
}

/* ---- verbs ---- */

/* Create a key pair in a file.
 *   replace     overwrite an existing file
 *   public_key  set to the public key */
static gp_status key_make(const char *path, bool replace, char public_key[GP_KEY_TEXT], gp_error *err)
{
    gp_key_pair pair;
    gp_status status = gp_key_new(&pair, err);

    if (status == GP_OK)
        status = gp_key_write(path, &pair, replace, err);
    if (status == GP_OK)
        memcpy(public_key, pair.public_key, GP_KEY_TEXT);
    gp_key_wipe(&pair);
    return status;
}

static gp_status verb_new(key_work *work, gp_error *err)
{
    char key[GP_KEY_TEXT];
    gp_status status = key_make(work->words[0], false, key, err);

    if (status != GP_OK)
        return status;
    printf("%s\n", key);
    if (!work->options->common.quiet)
        fprintf(stderr,
                "the key pair is in %s (mode 0600); the line above is the public key: on the pool's host, "
                "run gradpool key add NAME KEY\n",
                work->words[0]);
    return GP_OK;
}

/* Print the public key in key file format, so that the output can be redirected to a file. Without
 * a file argument, print the pool's own key, which is created if necessary. */
static gp_status verb_show(key_work *work, gp_error *err)
{
    char key[GP_KEY_TEXT] = "";
    gp_key_pair pair;
    gp_status status;

    if (work->words[0] != NULL) {
        status = gp_key_read_public(key, work->words[0], err);
    } else {
        status = directory_ready(work, err);
        if (status == GP_OK)
            status = gp_key_ensure(&pair, work->paths.server_key, err);
        if (status == GP_OK)
            memcpy(key, pair.public_key, GP_KEY_TEXT);
        gp_key_wipe(&pair);
    }
    if (status != GP_OK)
        return status;
    if (work->options->common.json)
        printf("{\"public\": \"%s\"}\n", key); /* Z85 text has no quotes or backslashes */
    else
        printf("# The public key of %s%s.\npublic  %s\n", work->words[0] != NULL ? "" : "pool ",
               work->words[0] != NULL ? work->words[0] : work->paths.pool, key);
    return GP_OK;
}

static gp_status verb_list(key_work *work, gp_error *err)
{
    gp_status status = gp_allow_read(work->list, work->paths.allowed, err);
    const bool json = work->options->common.json;

    if (status == GP_OK && work->list->count == 0 && !json)
        printf("no key is registered; add one with: gradpool key add NAME KEY\n");
    if (status != GP_OK || (work->list->count == 0 && !json))
        return status;
    show_table *table = json ? NULL : show_table_new(3, "name\trole\tpublic key");

    printf(json ? "[" : "");
    for (uint32_t i = 0; i < work->list->count; i++) {
        const gp_allowed *entry = &work->list->entries[i];
        const char *role = gp_key_role_word(entry->role);

        if (json) /* no member has a quote or a backslash */
            printf("%s\n  {\"name\": \"%s\", \"role\": \"%s\", \"public\": \"%s\"}", i == 0 ? "" : ",",
                   entry->name, role, entry->key);
        else
            show_cells(table, "%s\t%s\t%s", entry->name, role, entry->key);
    }
    if (json)
        printf("%s]\n", work->list->count > 0 ? "\n" : "");
    show_table_print_free(table);
    return GP_OK;
}

static gp_status verb_add(key_work *work, gp_error *err)
{
    char key[GP_KEY_TEXT];
    gp_status status = key_given(key, work->words[1], err);

    if (status == GP_OK && strcmp(work->words[0], server_name) == 0)
        status = gp_fail(err, GP_EINVAL, "'%s' is the name of the pool's own key", server_name);
    snprintf(work->said, sizeof(work->said), "added key %s with role %s", work->words[0],
             key_roles[work->options->role]);
    return status == GP_OK ? gp_allow_add(work->list, gp_key_role_find(key_roles[work->options->role]),
                                          work->words[0], key, err)
                           : status;
}

static gp_status verb_remove(key_work *work, gp_error *err)
{
    snprintf(work->said, sizeof(work->said), "removed key %s; its connections are closed within a second",
             work->words[0]);
    return gp_allow_remove(work->list, work->words[0]) ? GP_OK
                                                       : gp_fail(err, GP_ENOENT, missing, work->words[0]);
}

/* Replace a key atomically: the old key becomes invalid when the new key becomes valid. */
static gp_status verb_rotate(key_work *work, gp_error *err)
{
    const char *name = work->words[0], *out = work->options->out;
    gp_allowed *entry = name == NULL ? NULL : gp_allow_find(work->list, name), old;
    char key[GP_KEY_TEXT] = "";
    gp_status status;

    if (name == NULL || strcmp(name, server_name) == 0) {
        snprintf(work->said, sizeof(work->said),
                 "pool %s has a new key; distribute it to the clients: gradpool key show > pool.key",
                 work->paths.pool);
        status = directory_ready(work, err);
        return status == GP_OK ? key_make(work->paths.server_key, true, key, err) : status;
    }
    if (entry == NULL)
        return gp_fail(err, GP_ENOENT, missing, name);
    if ((work->words[1] != NULL) == (out[0] != '\0'))
        return gp_fail(err, GP_EINVAL, "give the new public key, or --out FILE to generate a key pair");
    status = work->words[1] != NULL ? key_given(key, work->words[1], err) : key_make(out, true, key, err);
    if (status != GP_OK)
        return status;
    old = *entry;
    gp_allow_remove(work->list, old.name);
    snprintf(work->said, sizeof(work->said),
             "replaced key %s; connections with the old key are closed within a second", name);
    return gp_allow_add(work->list, old.role, old.name, key, err);
}

/* Run a verb. If it changes the list of allowed keys, read the list before and write it after that,
 * under a lock. The pool's own key is not in the list. */
static gp_status key_run(cli_call *call, gp_status (*run)(key_work *work, gp_error *err), bool changes,
                         gp_error *err)
{
    key_work work = { .options = call->options, .words = call->words + 1 };
    int lock = -1;
    gp_status status = gp_paths_find(&work.paths, cli_pool_name(call), err);

    changes = changes && work.words[0] != NULL && strcmp(work.words[0], server_name) != 0;
    work.list = gp_calloc(1, sizeof(*work.list));
    if (work.list == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for a key list");
    if (status == GP_OK && changes)
        status = directory_ready(&work, err);
    if (status == GP_OK && changes)
        status = gp_key_lock(&lock, work.paths.key_dir, err);
    if (status == GP_OK && changes)
        status = gp_allow_read(work.list, work.paths.allowed, err);
    if (status == GP_OK)
        status = run(&work, err);
    if (status == GP_OK && changes)
        status = gp_allow_write(work.paths.allowed, work.list, err);
    if (lock >= 0)
        close(lock);
    if (status == GP_OK && work.said[0] != '\0' && !work.options->common.quiet)
        printf("%s\n", work.said);
    gp_free(work.list);
    return status;
}

static gp_status key_new(cli_call *call, gp_error *err)
{
    return key_run(call, verb_new, false, err);
}

static gp_status key_show(cli_call *call, gp_error *err)
{
    return key_run(call, verb_show, false, err);
}

static gp_status key_list(cli_call *call, gp_error *err)
{
    return key_run(call, verb_list, false, err);
}

static gp_status key_add(cli_call *call, gp_error *err)
{
    return key_run(call, verb_add, true, err);
}

static gp_status key_remove(cli_call *call, gp_error *err)
{
    return key_run(call, verb_remove, true, err);
}

static gp_status key_rotate(cli_call *call, gp_error *err)
{
    return key_run(call, verb_rotate, true, err);
}

static const cli_verb key_verbs[] = {
    { "new", "FILE", "generate a key pair in a file and print the public key", 1, 1, key_new },
    { "show", "[FILE]", "print the public key of the pool, or of a key file", 0, 1, key_show },
    { "list", "", "list the registered public keys", 0, 0, key_list },
    { "add", "NAME KEY|FILE [--role ROLE]", "register a public key", 2, 2, key_add },
    { "remove", "NAME", "remove a public key and close its connections", 1, 1, key_remove },
    { "rotate", "[server] | NAME KEY|FILE | NAME --out FILE", "replace a key", 0, 2, key_rotate },
    { 0 },
};

const cli_command cli_command_key = {
    .name = "key",
    .summary = "manage the keys for connections between hosts",
    .description =
        "Manage the key pairs for connections between hosts. Each client of a pool on another host has a "
        "key pair of its own; the pool admits the public keys that `gradpool key add` registers. The "
        "command changes files only, and a running pool notices the changes. Secret keys are in files "
        "with mode 0600 and are never printed.\n\n"
        "KEY is a public key of 40 characters. `rotate` without a name replaces the pool's own key.",
    .examples =
        "  gradpool key new ~/.config/gradpool/laptop.key\n"
        "                                   on the client: generate a key pair, print the public key\n"
        "  gradpool key add laptop 'KEY'    on the pool's host: register the key of a client\n"
        "  gradpool key add wall 'KEY' --role observer\n"
        "  ssh gpu-box gradpool key show > ~/.config/gradpool/gpu-box.pub\n"
        "                                   on the client: get the public key of the pool\n"
        "  gradpool key rotate laptop 'NEW'  replace a key; the pool keeps running\n"
        "  gradpool key remove laptop       closes its connections within a second\n",
    .options = key_params,
    .options_bytes = sizeof(key_options),
    .words_max = 3,
    .verbs = key_verbs,
};
