/* Files of profiles: find, read, write, list, remove, and the mark of the default profile. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cluster/profile.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/directory.h"
#include "common/base/system/file.h"
#include "common/base/text/spell.h"

static const char suffix[] = ".conf", default_file[] = "default";

/* ---- names and paths ---- */

/* Return whether a text has the form of a profile name. */
static bool name_sound(const char *name)
{
    const size_t bytes = strlen(name);

    return bytes <= GP_PROFILE_NAME_MAX && isalnum((unsigned char)name[0]) &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == bytes;
}

gp_status gp_profile_name_check(const char *name, gp_error *err)
{
    if (!name_sound(name))
        return gp_fail(
            err, GP_EINVAL,
            "invalid profile name '%.60s': use 1 to %d letters, digits, '.', '_' or '-', and begin "
            "with a letter or a digit",
            name, GP_PROFILE_NAME_MAX);
    if (strcmp(name, "default") == 0 || strcmp(name, "none") == 0)
        return gp_fail(err, GP_EINVAL, "the profile name '%s' is reserved; choose another", name);
    return GP_OK;
}

gp_status gp_profile_directory(char *path, size_t bytes, gp_error *err)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int length;

    if (config != NULL && config[0] == '/')
        length = snprintf(path, bytes, "%s/gradpool", config);
    else if (home != NULL && home[0] == '/')
        length = snprintf(path, bytes, "%s/.config/gradpool", home);
    else
        return gp_fail(err, GP_ENOENT,
                       "there is no configuration directory: neither XDG_CONFIG_HOME nor HOME is an absolute "
                       "path");
    return length >= 0 && (size_t)length < bytes
               ? GP_OK
               : gp_fail(err, GP_ELIMIT, "the path of the configuration directory is too long");
}

/* Set `path` to a file in the configuration directory.
 *   ending  follows the name */
static gp_status path_set(char *path, size_t bytes, const char *name, const char *ending, gp_error *err)
{
    char directory[480];
    gp_status status = gp_profile_directory(directory, sizeof(directory), err);

    if (status == GP_OK)
        snprintf(path, bytes, "%s/%.*s%s", directory, GP_PROFILE_NAME_MAX, name, ending);
    return status;
}

/* ---- read and write files ---- */

/* Read a file that only this user and root may write; otherwise another user could choose the
 * commands and hosts that gradpool uses. GP_ENOENT: no such file. */
static gp_status file_read(const char *path, char *text, size_t bytes_max, size_t *bytes, gp_error *err)
{
    struct stat info;
    ssize_t got;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        return gp_fail_errno(err, errno == ENOENT || errno == ENOTDIR ? GP_ENOENT : GP_EIO, "cannot read %s",
                             path);
    got = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) ? gp_read_at(fd, text, bytes_max, 0) : -1;
    close(fd);
    if (got < 0 || (size_t)got == bytes_max)
        return gp_fail(err, GP_EINVAL, "%s is not a profile: it must be a regular file of at most %zu bytes",
                       path, bytes_max - 1);
    if ((info.st_uid != geteuid() && info.st_uid != 0) || (info.st_mode & 022) != 0)
        return gp_fail(err, GP_EPERM, "%s is writable by other users; run: chmod 600 '%s'", path, path);
    text[got] = '\0';
    *bytes = (size_t)got;
    return GP_OK;
}

/* Write a file with mode 0600; create the configuration directory if necessary. */
static gp_status file_write(const char *path, const char *text, size_t bytes, gp_error *err)
{
    gp_file_draft draft;
    gp_status status = gp_directory_make_above(path, 0700, err);

    if (status == GP_OK)
        status = gp_file_draft_open(&draft, path, err);
    if (status != GP_OK)
        return status;
    if (fchmod(draft.fd, 0600) != 0 || !gp_write_all(draft.fd, text, bytes)) {
        status = gp_fail_errno(err, GP_EIO, "cannot write %s", path);
        gp_file_draft_discard(&draft);
        return status;
    }
    return gp_file_draft_commit(&draft, err);
}

/* ---- profiles ---- */

/* Fail with GP_ENOENT; the message names the most similar profile. */
static gp_status profile_missing(const char *name, gp_error *err)
{
    gp_profile_names *names = gp_calloc(1, sizeof(*names));
    const char *near = NULL;
    unsigned distance = 0;
    gp_status status;

    if (names != NULL && gp_profile_list(names, NULL) == GP_OK)
        for (uint32_t i = 0; i < names->count; i++)
            gp_spell_offer(name, names->name[i], &near, &distance);
    if (near != NULL)
        status = gp_fail(err, GP_ENOENT, "there is no profile '%.60s'; did you mean '%s'?", name, near);
    else
        status = gp_fail(err, GP_ENOENT,
                         "there is no profile '%.60s'; `gradpool cluster list` lists the profiles, and "
                         "`gradpool cluster new` creates one",
                         name);
    gp_free(names);
    return status;
}

gp_status gp_profile_read(gp_profile *out, const char *name, gp_error *err)
{
    char path[sizeof(out->path)], text[GP_PROFILE_BYTES_MAX + 2];
    size_t bytes;
    gp_status status;

    if (!name_sound(name))
        return profile_missing(name, err);
    status = path_set(path, sizeof(path), name, suffix, err);
    if (status == GP_OK)
        status = file_read(path, text, sizeof(text), &bytes, err);
    if (status == GP_ENOENT)
        return profile_missing(name, err);
    if (status == GP_OK)
        status = gp_profile_parse(out, text, bytes, path, err);
    if (status != GP_OK)
        return status;
    strcpy(out->name, name);
    strcpy(out->path, path);
    return GP_OK;
}

gp_status gp_profile_read_cluster(gp_profile *out, const char *name, gp_error *err)
{
    char chosen[GP_PROFILE_NAME_MAX + 1];
    gp_status status;

    if (strcmp(name, "default") == 0) {
        status = gp_profile_default(chosen, err);
        if (status == GP_OK && chosen[0] == '\0')
            status = gp_fail(err, GP_ENOENT,
                             "there is no default profile; set one with: gradpool cluster default NAME");
        if (status != GP_OK)
            return status;
        name = chosen;
    }
    status = gp_profile_read(out, name, err);
    if (status == GP_OK && out->type == GP_PROFILE_POOL)
        return gp_fail(err, GP_EINVAL, "the profile '%s' describes a pool; use --pool %s", name, name);
    return status;
}

gp_status gp_profile_write(gp_profile *profile, bool replace, gp_error *err)
{
    gp_buffer text;
    gp_status status = gp_profile_name_check(profile->name, err);

    if (status == GP_OK)
        status = gp_profile_check(profile, err);
    if (status == GP_OK)
        status = path_set(profile->path, sizeof(profile->path), profile->name, suffix, err);
    if (status != GP_OK)
        return status;
    if (!replace && faccessat(AT_FDCWD, profile->path, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return gp_fail(err, GP_EBUSY, "the profile '%s' exists already (%s); replace it with --force",
                       profile->name, profile->path);
    gp_buffer_init(&text, GP_PROFILE_BYTES_MAX);
    status = gp_profile_format(profile, &text, err);
    if (status == GP_OK)
        status = file_write(profile->path, gp_buffer_text(&text), text.bytes, err);
    gp_buffer_deinit(&text);
    return status;
}

gp_status gp_profile_remove(const char *name, gp_error *err)
{
    char path[sizeof(((gp_profile *)0)->path)], chosen[GP_PROFILE_NAME_MAX + 1];
    gp_status status;

    if (!name_sound(name))
        return profile_missing(name, err);
    status = path_set(path, sizeof(path), name, suffix, err);
    if (status != GP_OK)
        return status;
    if (unlink(path) != 0)
        return errno == ENOENT || errno == ENOTDIR ? profile_missing(name, err)
                                                   : gp_fail_errno(err, GP_EIO, "cannot remove %s", path);
    return gp_profile_default(chosen, NULL) == GP_OK && strcmp(chosen, name) == 0
               ? gp_profile_default_set(NULL, err)
               : GP_OK;
}

static int names_compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

gp_status gp_profile_list(gp_profile_names *out, gp_error *err)
{
    char directory[512];
    const struct dirent *entry;
    gp_status status = gp_profile_directory(directory, sizeof(directory), err);
    DIR *folder;

    out->count = 0;
    if (status != GP_OK)
        return status == GP_ENOENT ? GP_OK : status;
    folder = opendir(directory);
    if (folder == NULL)
        return errno == ENOENT ? GP_OK : gp_fail_errno(err, GP_EIO, "cannot list %s", directory);
    while (status == GP_OK && (entry = readdir(folder)) != NULL) {
        const size_t bytes = strlen(entry->d_name), ending = sizeof(suffix) - 1;
        char name[sizeof(out->name[0])];

        if (bytes <= ending || bytes - ending > GP_PROFILE_NAME_MAX ||
            strcmp(entry->d_name + bytes - ending, suffix) != 0)
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)(bytes - ending), entry->d_name);
        if (!name_sound(name))
            continue;
        if (out->count == GP_PROFILE_LIST_MAX)
            status = gp_fail(err, GP_ELIMIT, "%s has more than %d profiles; remove unused ones", directory,
                             GP_PROFILE_LIST_MAX);
        else
            strcpy(out->name[out->count++], name);
    }
    closedir(folder);
    qsort(out->name, out->count, sizeof(out->name[0]), names_compare);
    return status;
}

/* ---- default profile ---- */

gp_status gp_profile_default(char name[GP_PROFILE_NAME_MAX + 1], gp_error *err)
{
    char path[600], text[GP_PROFILE_NAME_MAX + 3];
    size_t bytes;
    gp_status status = path_set(path, sizeof(path), default_file, "", err);

    if (status == GP_OK)
        status = file_read(path, text, sizeof(text), &bytes, err);
    name[0] = '\0';
    if (status != GP_OK)
        return status == GP_ENOENT ? GP_OK : status;
    text[strcspn(text, "\n")] = '\0';
    if (!name_sound(text))
        return gp_fail(err, GP_EINVAL, "%s does not contain the name of a profile; remove the file", path);
    strcpy(name, text);
    return GP_OK;
}

gp_status gp_profile_default_set(const char *name, gp_error *err)
{
    char path[600], text[GP_PROFILE_NAME_MAX + 2];
    gp_profile *profile;
    gp_status status = path_set(path, sizeof(path), default_file, "", err);

    if (status != GP_OK)
        return status;
    if (name == NULL)
        return unlink(path) == 0 || errno == ENOENT || errno == ENOTDIR
                   ? GP_OK
                   : gp_fail_errno(err, GP_EIO, "cannot remove %s", path);
    profile = gp_calloc(1, sizeof(*profile));
    status = profile == NULL ? gp_fail(err, GP_ENOMEM, "no memory for a profile")
                             : gp_profile_read_cluster(profile, name, err);
    gp_free(profile);
    if (status != GP_OK)
        return status;
    snprintf(text, sizeof(text), "%s\n", name);
    return file_write(path, text, strlen(text), err);
}
