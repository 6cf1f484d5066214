/* curve.h -- keys of links that leave the host: pairs, the files that hold them, and the list of who may come in.
 *
 * A key is 40 characters of Z85 (ZeroMQ RFC 32), a CURVE key of 32 bytes (RFC 26).  Secret halves are in files of mode 0600
 * that are ours, and nowhere else: no argument, no variable, no message, no log.
 *
 *   FILE         # comment        the list   # comment
 *                public  KEY                 client   NAME KEY
 *                secret  KEY                 observer NAME KEY
 *
 * Files are written aside with their mode from the first moment on, synced and renamed: a reader sees the old one or the
 * new one.  Who changes the list holds gp_key_lock(). */
#ifndef GP_CURVE_H
#define GP_CURVE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

enum {
    GP_KEY_TEXT = 41, /* with the NUL */
    GP_KEY_NAME_MAX = 32,
    GP_ALLOWED_MAX = 256,
};

typedef struct gp_key_pair {
    char public_key[GP_KEY_TEXT], secret_key[GP_KEY_TEXT]; /* "" = it is not there */
} gp_key_pair;

typedef enum gp_key_role {
    GP_KEY_NOBODY,
    GP_KEY_CLIENT,   /* may submit, cancel, end the pool: what it submits runs as the pool's user */
    GP_KEY_WORKER,   /* of agents on other hosts: opens nothing yet */
    GP_KEY_OBSERVER, /* may look */
} gp_key_role;

const char *gp_key_role_word(gp_key_role role); /* "client" */
gp_key_role gp_key_role_find(const char *word); /* NOBODY: there is none of that name */

typedef struct gp_allowed {
    gp_key_role role;
    char name[GP_KEY_NAME_MAX + 1];
    char key[GP_KEY_TEXT];
} gp_allowed;

/* About 20 KiB. */
typedef struct gp_allow_list {
    uint32_t count;
    gp_allowed entries[GP_ALLOWED_MAX];
} gp_allow_list;

/* gp_curve_check -- whether the libzmq that runs can be trusted with keys.  GP_EUNSUPPORTED: it is older than 4.3.3
 * (CVE-2020-15166 and others) or was built without CURVE; says which. */
gp_status gp_curve_check(gp_error *err);
gp_status gp_curve_check_version(int major, int minor, int patch, bool has_curve, gp_error *err);

gp_status gp_key_new(gp_key_pair *out, gp_error *err);
void gp_key_wipe(gp_key_pair *pair);

/* Whether the text can be a key. */
bool gp_key_sound(const char *text);

/* gp_key_write -- a pair into path, 0600.  replace: an old file gives way; else GP_EBUSY: there is one. */
gp_status gp_key_write(const char *path, const gp_key_pair *pair, bool replace, gp_error *err);

/* gp_key_read -- the pair in path, or in standard input ("-").  GP_EPERM: the file is another's, a link, or open to others.
 * GP_ENOENT.  GP_ECORRUPT: it holds no pair. */
gp_status gp_key_read(gp_key_pair *out, const char *path, gp_error *err);

/* gp_key_ensure -- the pair in path; made if there is none.  The directory must be there. */
gp_status gp_key_ensure(gp_key_pair *out, const char *path, gp_error *err);

/* gp_key_read_public -- the public key in path, which need not be secret, but nobody else may write it: GP_EPERM. */
gp_status gp_key_read_public(char out[GP_KEY_TEXT], const char *path, gp_error *err);

/* gp_allow_read -- GP_EPERM as above; GP_ECORRUPT names the line.  A file that is not there is an empty list. */
gp_status gp_allow_read(gp_allow_list *out, const char *path, gp_error *err);
gp_status gp_allow_write(const char *path, const gp_allow_list *list, gp_error *err);

/* gp_allow_add -- GP_EINVAL: no name ([A-Za-z0-9._@-]), no key.  GP_EBUSY: name or key is on the list.  GP_ELIMIT. */
gp_status gp_allow_add(gp_allow_list *list, gp_key_role role, const char *name, const char *key,
                       gp_error *err);
gp_allowed *gp_allow_find(gp_allow_list *list, const char *name); /* NULL: not there */
bool gp_allow_remove(gp_allow_list *list, const char *name);

/* The texts of both kinds of files, as they are read; path is for the sentences. */
gp_status gp_key_parse(gp_key_pair *out, const char *text, const char *path, gp_error *err);
gp_status gp_allow_parse(gp_allow_list *out, const char *text, const char *path, gp_error *err);

/* gp_key_lock -- those who change the list in this directory come one after the other; close(*fd) ends it.
 * GP_ETIMEDOUT after 5 s. */
gp_status gp_key_lock(int *fd, const char *directory, gp_error *err);

#endif
