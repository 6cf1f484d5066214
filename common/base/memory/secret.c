/* Implement secret.h: a memfd contains a secrets_head and then NAME=value strings, each with a NUL.
 *
 * The version number makes updates atomic for readers (a sequence lock). A writer makes it odd,
 * writes the content, and makes it even again. A reader that sees an odd version, or two different
 * versions, reads again. The checksum detects content that a writer left incomplete when it was
 * killed. */
#include "common/base/memory/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/memory/crc32c.h"

/* read attempts, 1 ms apart; lowest descriptor number for the adopted memfd */
enum { LOOKS_MAX = 100, OURS_FROM = 64 };

/* Header at the memfd's start. */
typedef struct secrets_head {
    char magic[8];
    uint64_t version;    /* sequence number; odd: a write is in progress */
    uint32_t bytes, sum; /* text size and CRC32C */
} secrets_head;

/* Complete memfd content. */
typedef struct secrets_page {
    secrets_head head;
    char text[GP_SECRETS_BYTES_MAX];
} secrets_page;

static const char secrets_magic[8] = "gpsec 1";
static int adopted = -1;   /* this process's memfd, see gp_secrets_adopt(); -1: none */
static bool guarded_files; /* core files exclude all memory; the process stays dumpable */

extern char **environ;

void gp_secret_wipe(void *bytes, size_t count)
{
    explicit_bzero(bytes, count);
}

void gp_secret_guard(void)
{
    /* RLIMIT_CORE is not sufficient: the kernel ignores the limit if it pipes core files to a
     * program, and child processes inherit it. */
    if (!guarded_files)
        (void)prctl(PR_SET_DUMPABLE, 0);
}

void gp_secret_guard_files(void)
{
    int fd;

    if (guarded_files || prctl(PR_GET_DUMPABLE) != 0)
        return;
    /* Before this call, root owns this process's files in /proc. */
    (void)prctl(PR_SET_DUMPABLE, 1);
    fd = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);
    guarded_files = fd >= 0 && write(fd, "0", 1) == 1;
    if (fd >= 0)
        close(fd);
    if (!guarded_files)
        (void)prctl(PR_SET_DUMPABLE, 0);
}

/* Read a consistent page. Repeat for up to LOOKS_MAX ms while a writer is active. false: the
 * descriptor cannot be read, or has no valid content. */
static bool page_read(int fd, secrets_page *page)
{
    for (int look = 0; look < LOOKS_MAX; look++) {
        uint64_t after = 0;

        if (pread(fd, page, sizeof(*page), 0) != (ssize_t)sizeof(*page) ||
            pread(fd, &after, sizeof(after), offsetof(secrets_head, version)) != (ssize_t)sizeof(after))
            return false;
        if (after == page->head.version && after % 2 == 0 &&
            memcmp(page->head.magic, secrets_magic, sizeof(secrets_magic)) == 0 &&
            page->head.bytes <= sizeof(page->text) &&
            (page->head.bytes == 0 || page->text[page->head.bytes - 1] == '\0') &&
            gp_crc32c(0, page->text, page->head.bytes) == page->head.sum)
            return true;
        gp_sleep_ms(1);
    }
    return false;
}

static bool write_at(int fd, const void *data, size_t bytes, size_t at)
{
    return pwrite(fd, data, bytes, (off_t)at) == (ssize_t)bytes;
}

/* Write page->text and a new header; the file header explains the write order. If the previous
 * writer was killed, the version is odd and stays odd until the last write. */
static gp_status page_write(int fd, secrets_page *page, gp_error *err)
{
    uint64_t version = 0;

    if (pread(fd, &version, sizeof(version), offsetof(secrets_head, version)) != (ssize_t)sizeof(version))
        return gp_fail_errno(err, GP_EIO, "cannot read the secrets of the pool");
    memcpy(page->head.magic, secrets_magic, sizeof(secrets_magic));
    page->head.sum = gp_crc32c(0, page->text, page->head.bytes);
    page->head.version = version | 1;
    memset(page->text + page->head.bytes, 0, sizeof(page->text) - page->head.bytes);
    version = page->head.version + 1;
    if (!write_at(fd, &page->head.version, sizeof(version), offsetof(secrets_head, version)) ||
        !write_at(fd, page, sizeof(*page), 0) ||
        !write_at(fd, &version, sizeof(version), offsetof(secrets_head, version)))
        return gp_fail_errno(err, GP_EIO, "cannot write the secrets of the pool");
    return GP_OK;
}

gp_status gp_secrets_new(int *out, gp_error *err)
{
    secrets_page page = { .head = { .bytes = 0 } };
    int fd = memfd_create("gradpool-secrets", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    gp_status status;

    if (fd < 0 || ftruncate(fd, sizeof(page)) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        status = gp_fail_errno(err, GP_EIO, "no memory for secrets");
        if (fd >= 0)
            close(fd);
        return status;
    }
    status = page_write(fd, &page, err);
    if (status != GP_OK) {
        close(fd);
        return status;
    }
    *out = fd;
    return GP_OK;
}

/* Append NAME=value to the page, with the value from the environment. Error messages contain the
 * name but never the value. A name with '=' is not printed either: it may contain a value. */
static gp_status variable_add(secrets_page *page, const char *name, size_t length, gp_error *err)
{
    char copy[GP_SECRET_NAME_BYTES_MAX];
    const char *value;
    int written;

    if (length >= sizeof(copy) || memchr(name, '=', length) != NULL)
        return gp_fail(err, GP_EINVAL,
                       "invalid variable name of %zu bytes: pass names of environment variables, not values",
                       length);
    memcpy(copy, name, length);
    copy[length] = '\0';
    value = getenv(copy);
    if (value == NULL || value[0] == '\0')
        return gp_fail(err, GP_EINVAL, "the environment variable %s is not set", copy);
    written =
        snprintf(page->text + page->head.bytes, sizeof(page->text) - page->head.bytes, "%s=%s", copy, value);
    if (written < 0 || (size_t)written >= sizeof(page->text) - page->head.bytes)
        return gp_fail(err, GP_ELIMIT, "the secrets have more than %d bytes in total", GP_SECRETS_BYTES_MAX);
    page->head.bytes += (uint32_t)written + 1;
    return GP_OK;
}

gp_status gp_secrets_set(int fd, const char *names, gp_error *err)
{
    secrets_page page = { .head = { .bytes = 0 } };
    gp_status status = GP_OK;
    uint32_t count = 0;

    for (const char *at = names; *at != '\0' && status == GP_OK; at += strspn(at, ",")) {
        size_t length = strcspn(at, ",");

        if (length > 0 && count++ == GP_SECRETS_MAX)
            status = gp_fail(err, GP_ELIMIT, "more than %d secrets", GP_SECRETS_MAX);
        else if (length > 0)
            status = variable_add(&page, at, length, err);
        at += length;
    }
    if (status == GP_OK)
        status = page_write(fd, &page, err);
    gp_secret_wipe(&page, sizeof(page));
    return status;
}

gp_status gp_secrets_copy(int to, int from, gp_error *err)
{
    secrets_page page;
    struct stat stat_;
    gp_status status;

    if (fstat(from, &stat_) != 0 || stat_.st_size != (off_t)sizeof(page) || !page_read(from, &page))
        return gp_fail(err, GP_EPROTO, "malformed secrets");
    status = page_write(to, &page, err);
    gp_secret_wipe(&page, sizeof(page));
    return status;
}

/* Duplicate a descriptor to the number OURS_FROM or above; to a lower one if RLIMIT_NOFILE does not
 * permit that. -1: errno is set. */
static int out_of_the_way(int fd)
{
    static const int from[] = { OURS_FROM, OURS_FROM / 4, STDERR_FILENO + 3 };
    int copy = -1;

    for (size_t i = 0; i < sizeof(from) / sizeof(from[0]); i++) {
        copy = fcntl(fd, F_DUPFD_CLOEXEC, from[i]);
        if (copy >= 0 || errno != EINVAL)
            break;
    }
    return copy;
}

void gp_secrets_adopt(void)
{
    const char *text = getenv(GP_SECRETS_FD_VARIABLE);
    struct stat stat_;
    int fd;

    if (text == NULL)
        return;
    fd = atoi(text);
    unsetenv(GP_SECRETS_FD_VARIABLE);
    if (fd <= STDERR_FILENO || fstat(fd, &stat_) != 0 || stat_.st_size != (off_t)sizeof(secrets_page))
        return;
    adopted = out_of_the_way(fd);
    close(fd);
}

gp_status gp_secrets_keep(gp_error *err)
{
    gp_status status;
    int fd;

    gp_secrets_adopt();
    if (adopted >= 0)
        return GP_OK;
    status = gp_secrets_new(&fd, err);
    if (status != GP_OK)
        return status;
    adopted = out_of_the_way(fd);
    close(fd);
    return adopted >= 0 ? GP_OK
                        : gp_fail_errno(err, GP_EIO, "cannot duplicate the descriptor of the secrets");
}

const char *gp_secrets_assignment(char text[GP_SECRETS_ASSIGNMENT_BYTES], int fd)
{
    snprintf(text, GP_SECRETS_ASSIGNMENT_BYTES, "%s=%d", GP_SECRETS_FD_VARIABLE, fd);
    return text;
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0';
}

const char *gp_secrets_names(char text[GP_SECRETS_NAMES_BYTES])
{
    text[0] = '\0';
    if (is_set("AWS_ACCESS_KEY_ID") && is_set("AWS_SECRET_ACCESS_KEY"))
        snprintf(text, GP_SECRETS_NAMES_BYTES, "AWS_ACCESS_KEY_ID,AWS_SECRET_ACCESS_KEY%s",
                 is_set("AWS_SESSION_TOKEN") ? ",AWS_SESSION_TOKEN" : "");
    return text;
}

/* Return whether a comma-separated name list contains the variable in "NAME=value". */
static bool is_listed(const char *names, const char *variable)
{
    size_t wanted = strcspn(variable, "=");

    for (const char *at = names; *at != '\0'; at += strspn(at, ",")) {
        size_t length = strcspn(at, ",");

        if (length == wanted && memcmp(at, variable, length) == 0)
            return true;
        at += length;
    }
    return false;
}

char **gp_secrets_environment(const char *names, char *more)
{
    size_t count = 0, kept = 0;
    char **list;

    while (environ[count] != NULL)
        count++;
    list = gp_calloc(count + 2, sizeof(*list));
    for (size_t i = 0; list != NULL && i < count; i++)
        if (!gp_secrets_hide(environ[i]) && !is_listed(names, environ[i]))
            list[kept++] = environ[i];
    if (list != NULL)
        list[kept] = more;
    return list;
}

int gp_secrets_fd(void)
{
    return adopted;
}

bool gp_secrets_get(const char *name, char *value, size_t bytes)
{
    size_t length = strlen(name);
    secrets_page page;
    bool found = false;

    if (adopted < 0 || !page_read(adopted, &page))
        return false;
    for (const char *at = page.text; at < page.text + page.head.bytes && !found; at += strlen(at) + 1) {
        found = strncmp(at, name, length) == 0 && at[length] == '=' && strlen(at + length + 1) < bytes;
        if (found)
            strcpy(value, at + length + 1);
    }
    gp_secret_wipe(&page, sizeof(page));
    return found;
}

uint64_t gp_secrets_version(void)
{
    secrets_head head;

    return adopted >= 0 && pread(adopted, &head, sizeof(head), 0) == (ssize_t)sizeof(head) && head.bytes > 0
               ? head.version
               : 0;
}

bool gp_secrets_hide(const char *variable)
{
    static const char *const names[] = { "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID",
                                         "AWS_SECURITY_TOKEN" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t length = strlen(names[i]);

        if (strncmp(variable, names[i], length) == 0 && (variable[length] == '=' || variable[length] == '\0'))
            return true;
    }
    return false;
}
