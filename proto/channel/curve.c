/* Key pairs, key files and the key list (curve.h). */
#include "proto/channel/curve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "common/base/memory/buffer.h"
#include "common/base/clock.h"
#include "common/base/system/file.h"
#include "common/base/memory/secret.h"

enum { KEY_FILE_BYTES_MAX = 4096, LIST_BYTES_MAX = 64 << 10, LOCK_MS = 5000, RETRY_MS = 5 };

static const char z85_digits[] =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

static const char *const role_names[] = { "nobody", "client", "worker", "observer" };

const char *gp_key_role_word(gp_key_role role)
{
    return role_names[role <= GP_KEY_OBSERVER ? role : GP_KEY_NOBODY];
}

gp_key_role gp_key_role_find(const char *word)
{
    gp_key_role role = GP_KEY_OBSERVER;

    while (role > GP_KEY_NOBODY && strcmp(word, role_names[role]) != 0)
        role--;
    return role;
}

/* ---- libzmq version ---- */

gp_status gp_curve_check_version(int major, int minor, int patch, bool has_curve, gp_error *err)
{
    if (major * 10000 + minor * 100 + patch < 40303)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "libzmq %d.%d.%d is too old for links to other hosts: versions before 4.3.3 can be "
                       "crashed by any peer; update libzmq",
                       major, minor, patch);
    if (!has_curve)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "libzmq %d.%d.%d was built without CURVE and cannot encrypt links to other hosts; "
                       "install a build with libsodium",
                       major, minor, patch);
    return GP_OK;
}

gp_status gp_curve_check(gp_error *err)
{
    int major, minor, patch;

    zmq_version(&major, &minor, &patch);
    return gp_curve_check_version(major, minor, patch, zmq_has("curve") != 0, err);
}

/* ---- key pairs ---- */

gp_status gp_key_new(gp_key_pair *out, gp_error *err)
{
    gp_key_pair made;
    gp_status status = gp_curve_check(err);

    if (status != GP_OK)
        return status;
    if (zmq_curve_keypair(made.public_key, made.secret_key) != 0)
        return gp_fail(err, GP_EUNSUPPORTED, "cannot generate a key pair: %s", zmq_strerror(errno));
    *out = made;
    gp_key_wipe(&made);
    return GP_OK;
}

void gp_key_wipe(gp_key_pair *pair)
{
    gp_secret_wipe(pair, sizeof(*pair));
}

bool gp_key_sound(const char *text)
{
    uint8_t bytes[32];

    return strlen(text) == GP_KEY_TEXT - 1 && strspn(text, z85_digits) == GP_KEY_TEXT - 1 &&
           zmq_z85_decode(bytes, text) != NULL;
}

/* ---- files ---- */

/* Sync the temporary file and rename it to `path`. GP_EBUSY: `path` exists and replace is false. */
static gp_status sync_and_rename(int fd, const char *aside, const char *path, bool replace, gp_error *err)
{
    char directory[4096];
    char *slash;

    if (fsync(fd) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot write %s", path);
    if (renameat2(AT_FDCWD, aside, AT_FDCWD, path, replace ? 0 : RENAME_NOREPLACE) != 0)
        return errno == EEXIST
                   ? gp_fail(err, GP_EBUSY, "%s exists already; remove it first or choose another name", path)
                   : gp_fail_errno(err, GP_EIO, "cannot write %s", path);
    snprintf(directory, sizeof(directory), "%s", path);
    slash = strrchr(directory, '/');
    if (slash != NULL)
        slash[slash == directory] = '\0';

    /* Ignore a failure: the file is in place, but the name may not survive a power failure. */
    (void)gp_directory_sync(slash != NULL ? directory : ".");
    return GP_OK;
}

/* Write a file atomically. The temporary file has mode 0600 from the start: O_EXCL creates it,
 * and a umask can only remove bits. */
static gp_status file_write(const char *path, const gp_buffer *text, bool replace, gp_error *err)
{
    char aside[4096];
    uint64_t unique;
    gp_status status;

    if (getrandom(&unique, sizeof(unique), 0) != (ssize_t)sizeof(unique))
        return gp_fail_errno(err, GP_EIO, "cannot get random bytes for a file name");
    if ((size_t)snprintf(aside, sizeof(aside), "%s.%016llx", path, (unsigned long long)unique) >=
        sizeof(aside))
        return gp_fail(err, GP_ELIMIT, "the path %.100s... is too long; use a shorter one", path);
    int fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0)
        return gp_fail_errno(err, GP_EIO, "cannot write %s", path);
    if (!gp_write_all(fd, text->data, text->bytes))
        status = gp_fail_errno(err, GP_EIO, "cannot write %s", path);
    else
        status = sync_and_rename(fd, aside, path, replace, err);
    close(fd);
    if (status != GP_OK)
        unlink(aside);
    return status;
}

typedef enum file_kind { FILE_SECRET, FILE_PUBLIC } file_kind;

/* Check type, owner and mode of an open key file. GP_EPERM: unsafe. */
static gp_status file_check(int fd, const char *path, file_kind kind, gp_error *err)
{
    struct stat seen;

    if (fstat(fd, &seen) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot stat %s", path);
    if (!S_ISREG(seen.st_mode))
        return gp_fail(err, GP_EPERM, "%s is not a regular file", path);
    if (seen.st_uid != geteuid() && (kind == FILE_SECRET || seen.st_uid != 0))
        return gp_fail(err, GP_EPERM, "%s belongs to user %u, not to user %u; copy it to a file of your own",
                       path, (unsigned)seen.st_uid, (unsigned)geteuid());
    if (kind == FILE_SECRET && (seen.st_mode & 077) != 0)
        return gp_fail(err, GP_EPERM,
                       "%s is readable by other users (mode %04o); run: chmod 600 '%s', and create a new key "
                       "if other users have accounts on this host",
                       path, (unsigned)(seen.st_mode & 07777), path);
    if ((seen.st_mode & 022) != 0)
        return gp_fail(err, GP_EPERM, "%s is writable by other users (mode %04o); run: chmod 644 '%s'", path,
                       (unsigned)(seen.st_mode & 07777), path);
    return GP_OK;
}

/* Read at most bytes_max bytes into `text`, which has room for one more, and NUL-terminate it.
 * GP_ELIMIT: the file is larger. GP_ECORRUPT: it contains a NUL. */
static gp_status text_read(int fd, char *text, size_t bytes_max, const char *path, gp_error *err)
{
    size_t used = 0;

    for (;;) {
        ssize_t got = read(fd, text + used, bytes_max + 1 - used);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return gp_fail_errno(err, GP_EIO, "cannot read %s", path);
        used += (size_t)got;
        if (used > bytes_max)
            return gp_fail(err, GP_ELIMIT, "%s has more than %zu bytes and cannot be a key file", path,
                           bytes_max);
        if (got == 0)
            break;
    }
    text[used] = '\0';
    return strlen(text) == used ? GP_OK : gp_fail(err, GP_ECORRUPT, "%s is not a text file", path);
}

/* Read a key file after checking it; "-" reads standard input unchecked. */
static gp_status file_read(char *text, size_t bytes_max, const char *path, file_kind kind, gp_error *err)
{
    if (strcmp(path, "-") == 0)
        return text_read(STDIN_FILENO, text, bytes_max, "standard input", err);
    int fd =
        open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (kind == FILE_SECRET ? O_NOFOLLOW : 0));

    if (fd < 0 && errno == ELOOP)
        return gp_fail(err, GP_EPERM, "%s is a symbolic link; name the file itself", path);
    if (fd < 0)
        return gp_fail_errno(err, errno == ENOENT ? GP_ENOENT : GP_EIO, "cannot read %s", path);
    gp_status status = file_check(fd, path, kind, err);

    if (status == GP_OK)
        status = text_read(fd, text, bytes_max, path, err);
    close(fd);
    return status;
}

/* ---- key pair files ---- */

gp_status gp_key_parse(gp_key_pair *out, const char *text, const char *path, gp_error *err)
{
    *out = (gp_key_pair){ .public_key = "" };
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n') {
        char word[8], key[GP_KEY_TEXT + 1];
        char *into;

        /* A key has no blanks. The width lets an oversized key fail the check instead of being
         * truncated. */
        int found = *line == '#' || *line == '\n' ? 0 : sscanf(line, "%7[a-z]%*[ \t]%41s", word, key);

        if (found == 0)
            continue;
        into = strcmp(word, "public") == 0   ? out->public_key
               : strcmp(word, "secret") == 0 ? out->secret_key
                                             : NULL;
        if (found != 2 || into == NULL || into[0] != '\0' || !gp_key_sound(key)) {
            gp_secret_wipe(key, sizeof(key));
            return gp_fail(err, GP_ECORRUPT, "malformed key file %s; create one with `gradpool key new`",
                           path);
        }
        memcpy(into, key, GP_KEY_TEXT);
        gp_secret_wipe(key, sizeof(key));
    }
    return GP_OK;
}

/* Read the keys in a file; either may be missing. */
static gp_status key_file_read(gp_key_pair *out, const char *path, file_kind kind, gp_error *err)
{
    char text[KEY_FILE_BYTES_MAX + 1];
    gp_status status = file_read(text, KEY_FILE_BYTES_MAX, path, kind, err);

    if (status == GP_OK)
        status = gp_key_parse(out, text, path, err);
    gp_secret_wipe(text, sizeof(text));
    return status;
}

gp_status gp_key_read(gp_key_pair *out, const char *path, gp_error *err)
{
    char derived[GP_KEY_TEXT];
    gp_key_pair read;
    gp_status status = key_file_read(&read, path, FILE_SECRET, err);

    if (status == GP_OK && (read.public_key[0] == '\0' || read.secret_key[0] == '\0'))
        status =
            gp_fail(err, GP_ECORRUPT,
                    "%s lacks the public or the secret key; create a key pair with `gradpool key new`", path);
    else if (status == GP_OK &&
             (zmq_curve_public(derived, read.secret_key) != 0 || strcmp(derived, read.public_key) != 0))
        status = gp_fail(err, GP_ECORRUPT, "the secret key in %s does not match its public key", path);
    if (status == GP_OK)
        *out = read;
    gp_key_wipe(&read);
    return status;
}

gp_status gp_key_read_public(char out[GP_KEY_TEXT], const char *path, gp_error *err)
{
    gp_key_pair read;
    gp_status status = key_file_read(&read, path, FILE_PUBLIC, err);

    if (status == GP_OK && read.public_key[0] == '\0')
        status = gp_fail(err, GP_ECORRUPT, "%s contains no public key", path);
    if (status == GP_OK)
        memcpy(out, read.public_key, GP_KEY_TEXT);
    gp_key_wipe(&read);
    return status;
}

gp_status gp_key_write(const char *path, const gp_key_pair *pair, bool replace, gp_error *err)
{
    gp_buffer text;
    gp_status status;

    gp_buffer_init(&text, KEY_FILE_BYTES_MAX);

    /* a single allocation, which can be wiped because it does not move */
    status = gp_buffer_reserve(&text, 512, err);
    if (status == GP_OK)
        status = gp_buffer_printf(
            &text, err,
            "# A gradpool key. The secret half stays in this file, which only you may read.\n"
            "public  %s\nsecret  %s\n",
            pair->public_key, pair->secret_key);
    if (status == GP_OK)
        status = file_write(path, &text, replace, err);
    if (text.data != NULL)
        gp_secret_wipe(text.data, text.capacity);
    gp_buffer_deinit(&text);
    return status;
}

gp_status gp_key_ensure(gp_key_pair *out, const char *path, gp_error *err)
{
    gp_error why;
    gp_status status = gp_key_read(out, path, &why);

    if (status == GP_ENOENT) {
        gp_key_pair made;

        status = gp_key_new(&made, err);
        if (status == GP_OK)
            status = gp_key_write(path, &made, false, &why);
        gp_key_wipe(&made);

        /* another process created the file first: use that pair */
        if (status == GP_OK || status == GP_EBUSY)
            status = gp_key_read(out, path, &why);
    }
    return status == GP_OK ? GP_OK : gp_fail(err, status, "%s", why.message);
}

/* ---- key list ---- */

gp_status gp_allow_add(gp_allow_list *list, gp_key_role role, const char *name, const char *key,
                       gp_error *err)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._@-";
    size_t bytes = strlen(name);

    if (role == GP_KEY_NOBODY || role > GP_KEY_OBSERVER)
        return gp_fail(err, GP_EINVAL, "invalid key role: must be client, worker or observer");
    if (bytes == 0 || bytes > GP_KEY_NAME_MAX || strspn(name, letters) != bytes)
        return gp_fail(err, GP_EINVAL,
                       "invalid key name '%.60s': use 1 to %d letters, digits, '.', '_', '@' or '-'", name,
                       GP_KEY_NAME_MAX);
    if (!gp_key_sound(key))
        return gp_fail(
            err, GP_EINVAL,
            "invalid public key for '%s': must be the 40 characters that `gradpool key new` prints", name);
    for (uint32_t i = 0; i < list->count; i++) {
        if (strcmp(list->entries[i].name, name) == 0)
            return gp_fail(err, GP_EBUSY,
                           "a key named '%s' exists already; remove it with `gradpool key remove %s`", name,
                           name);
        if (strcmp(list->entries[i].key, key) == 0)
            return gp_fail(err, GP_EBUSY,
                           "this key is already in the list as '%s'; create a separate key for each client",
                           list->entries[i].name);
    }
    if (list->count == GP_ALLOWED_MAX)
        return gp_fail(err, GP_ELIMIT, "the key list is full (%d keys); remove unused keys", GP_ALLOWED_MAX);
    gp_allowed *entry = &list->entries[list->count++];

    *entry = (gp_allowed){ .role = role };
    memcpy(entry->name, name, bytes);
    memcpy(entry->key, key, GP_KEY_TEXT);
    return GP_OK;
}

gp_allowed *gp_allow_find(gp_allow_list *list, const char *name)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (strcmp(list->entries[i].name, name) == 0)
            return &list->entries[i];
    return NULL;
}

bool gp_allow_remove(gp_allow_list *list, const char *name)
{
    gp_allowed *found = gp_allow_find(list, name);

    if (found == NULL)
        return false;
    uint32_t behind = list->count - (uint32_t)(found - list->entries) - 1;

    memmove(found, found + 1, behind * sizeof(*found));
    list->count--;
    return true;
}

gp_status gp_allow_parse(gp_allow_list *out, const char *text, const char *path, gp_error *err)
{
    unsigned number = 0;

    out->count = 0;
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n') {
        char word[12], name[GP_KEY_NAME_MAX + 2], key[GP_KEY_TEXT + 1];

        number++;
        if (*line == '#' || *line == '\n')
            continue;
        int found = sscanf(line, "%11[a-z]%*[ \t]%33[^ \t\n]%*[ \t]%41[^ \t\n]", word, name, key);
        gp_status status = found != 3 ? gp_fail(err, GP_EINVAL, "malformed entry: must be ROLE NAME KEY")
                                      : gp_allow_add(out, gp_key_role_find(word), name, key, err);

        if (status != GP_OK) {
            gp_error_prefix(err, "line %u of %s", number, path);
            return GP_ECORRUPT;
        }
    }
    return GP_OK;
}

gp_status gp_allow_read(gp_allow_list *out, const char *path, gp_error *err)
{
    static _Thread_local char text[LIST_BYTES_MAX + 1];
    gp_error why;
    gp_status status = file_read(text, LIST_BYTES_MAX, path, FILE_SECRET, &why);

    if (status == GP_ENOENT) {
        out->count = 0;
        return GP_OK;
    }
    if (status == GP_OK)
        status = gp_allow_parse(out, text, path, &why);
    return status == GP_OK ? GP_OK : gp_fail(err, status, "%s", why.message);
}

gp_status gp_allow_write(const char *path, const gp_allow_list *list, gp_error *err)
{
    gp_buffer text;
    gp_status status;

    gp_buffer_init(&text, LIST_BYTES_MAX);
    status = gp_buffer_printf(&text, err,
                              "# Authorized keys of clients on other hosts; written by `gradpool key`.\n");
    for (uint32_t i = 0; i < list->count && status == GP_OK; i++)
        status = gp_buffer_printf(&text, err, "%s %s %s\n", gp_key_role_word(list->entries[i].role),
                                  list->entries[i].name, list->entries[i].key);
    if (status == GP_OK)
        status = file_write(path, &text, true, err);
    gp_buffer_deinit(&text);
    return status;
}

gp_status gp_key_lock(int *fd, const char *directory, gp_error *err)
{
    int64_t deadline = gp_now_ms() + LOCK_MS;
    int made = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    if (made < 0)
        return gp_fail_errno(err, errno == ENOENT ? GP_ENOENT : GP_EIO, "cannot open %s", directory);
    while (flock(made, LOCK_EX | LOCK_NB) != 0) {
        if (gp_now_ms() >= deadline) {
            close(made);
            return gp_fail(err, GP_ETIMEDOUT,
                           "timed out waiting for the lock of %s: another process is changing it; try again",
                           directory);
        }
        gp_sleep_ms(RETRY_MS);
    }
    *fd = made;
    return GP_OK;
}
