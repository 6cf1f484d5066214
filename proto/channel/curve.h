/* CURVE keys for links to other hosts: key pairs, key files, and the list of admitted keys.
 *
 * A key is a 32-byte CURVE key (ZeroMQ RFC 26), written as 40 characters of Z85 (RFC 32). Secret
 * keys are stored only in files with mode 0600 that belong to the user, never in arguments,
 * variables, messages or logs.
 *
 *   key file   # comment          key list   # comment
 *              public  KEY                   client   NAME KEY
 *              secret  KEY                   observer NAME KEY
 *
 * A file is written under a temporary name with its final mode, synced and renamed, so readers see
 * either the old or the new file. Hold gp_key_lock() to change the list. */
#ifndef GP_CURVE_H
#define GP_CURVE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

enum {
    GP_KEY_TEXT = 41, /* including the NUL */
    GP_KEY_NAME_MAX = 32,
    GP_ALLOWED_MAX = 256,
};

typedef struct gp_key_pair {
    char public_key[GP_KEY_TEXT], secret_key[GP_KEY_TEXT]; /* "": missing */
} gp_key_pair;

/* Permissions of a key. */
typedef enum gp_key_role {
    GP_KEY_NOBODY,
    /* may submit and cancel jobs and shut the pool down; jobs run as the pool's user */
    GP_KEY_CLIENT,
    GP_KEY_WORKER,   /* for workers on other hosts; reserved, permits nothing */
    GP_KEY_OBSERVER, /* read-only access */
} gp_key_role;

/* Return the name of a role, for example "client". */
const char *gp_key_role_word(gp_key_role role);

/* Return the role with this name; GP_KEY_NOBODY: unknown. */
gp_key_role gp_key_role_find(const char *word);

/* Entry of the key list. */
typedef struct gp_allowed {
    gp_key_role role;
    char name[GP_KEY_NAME_MAX + 1];
    char key[GP_KEY_TEXT];
} gp_allowed;

/* Key list; about 20 KiB. */
typedef struct gp_allow_list {
    uint32_t count;
    gp_allowed entries[GP_ALLOWED_MAX];
} gp_allow_list;

/* Check that the loaded libzmq is safe for CURVE. GP_EUNSUPPORTED: older than 4.3.3 (CVE-2020-15166
 * and others), or built without CURVE. */
gp_status gp_curve_check(gp_error *err);
gp_status gp_curve_check_version(int major, int minor, int patch, bool has_curve, gp_error *err);

/* Generate a key pair, or erase one from memory. */
gp_status gp_key_new(gp_key_pair *out, gp_error *err);
void gp_key_wipe(gp_key_pair *pair);

/* Return whether the text has the form of a key. */
bool gp_key_sound(const char *text);

/* Write a key pair to a file with mode 0600. Without `replace`, an existing file is an error:
 * GP_EBUSY. */
gp_status gp_key_write(const char *path, const gp_key_pair *pair, bool replace, gp_error *err);

/* Read a key pair from a file, or from standard input ("-").
 *
 * GP_EPERM: the file belongs to another user, is a symbolic link, or is accessible to others.
 * GP_ENOENT: no such file.
 * GP_ECORRUPT: no valid key pair in the file. */
gp_status gp_key_read(gp_key_pair *out, const char *path, gp_error *err);

/* Read a key pair; create it if the file does not exist. The directory must exist. */
gp_status gp_key_ensure(gp_key_pair *out, const char *path, gp_error *err);

/* Read the public key in a file. The file need not be secret. GP_EPERM: other users can write to
 * it. */
gp_status gp_key_read_public(char out[GP_KEY_TEXT], const char *path, gp_error *err);

/* Read or write the key list. A missing file is an empty list.
 *
 * GP_EPERM: see gp_key_read().
 * GP_ECORRUPT: malformed; the error names the line. */
gp_status gp_allow_read(gp_allow_list *out, const char *path, gp_error *err);
gp_status gp_allow_write(const char *path, const gp_allow_list *list, gp_error *err);

/* Add an entry. GP_EINVAL: the name does not match [A-Za-z0-9._@-]{1,32}, or the key is malformed.
 * GP_EBUSY: name or key is already on the list. GP_ELIMIT: the list is full. */
gp_status gp_allow_add(gp_allow_list *list, gp_key_role role, const char *name, const char *key,
                       gp_error *err);

/* Return the entry with this name; NULL: not found. */
gp_allowed *gp_allow_find(gp_allow_list *list, const char *name);

/* Remove the entry with this name. Return false if there is no such entry. */
bool gp_allow_remove(gp_allow_list *list, const char *name);

/* Parse the text of a key file or key list. `path` appears in error messages only. */
gp_status gp_key_parse(gp_key_pair *out, const char *text, const char *path, gp_error *err);
gp_status gp_allow_parse(gp_allow_list *out, const char *text, const char *path, gp_error *err);

/* Lock the key list in `directory` against changes by other processes; close(*fd) unlocks it.
 * GP_ETIMEDOUT: not acquired within 5 s. */
gp_status gp_key_lock(int *fd, const char *directory, gp_error *err);

#endif
