#include "worker/tuning.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/crc32c.h"
#include "common/base/json.h"
#include "common/data/store.h"

enum { FORMAT = 1, HEAD_BYTES = 26 };

static const char head_word[] = "gradpool-plans 1 ";

gp_status gp_tuning_init(gp_tuning *tuning, gp_error *err)
{
    *tuning = (gp_tuning){ .choices = gp_calloc(GP_CHOICES_MAX, sizeof(*tuning->choices)) };
    return tuning->choices != NULL ? GP_OK
                                   : gp_fail(err, GP_ENOMEM, "no memory for %d choices", GP_CHOICES_MAX);
}

void gp_tuning_deinit(gp_tuning *tuning)
{
    gp_free(tuning->choices);
    *tuning = (gp_tuning){ .choices = NULL };
}

/* ---- the document ---- */

/* unused: that many of those that are not used, the newest, besides those that are. */
static gp_status document_write(gp_buffer *out, const gp_tuning *tuning, const char *libraries,
                                uint32_t unused, gp_error *err)
{
    gp_json_writer writer;
    uint32_t others = 0;

    for (uint32_t i = 0; i < tuning->count; i++)
        others += !tuning->choices[i].used;
    gp_json_writer_init(&writer, out, false);
    gp_json_begin_object(&writer, NULL);
    gp_json_put_integer(&writer, "format", FORMAT);
    gp_json_put_text(&writer, "libraries", libraries);
    gp_json_begin_array(&writer, "choices");
    for (uint32_t i = 0; i < tuning->count; i++) {
        const gp_choice *choice = &tuning->choices[i];

        if (!choice->used && others-- > unused)
            continue;
        gp_json_begin_object(&writer, NULL);
        gp_json_put_text(&writer, "what", choice->what);
        gp_json_put_text(&writer, "how", choice->how);
        gp_json_put_number(&writer, "us", choice->us);
        gp_json_end_object(&writer);
    }
    gp_json_end_array(&writer);
    gp_json_end_object(&writer);
    return gp_json_writer_finish(&writer, err);
}

gp_status gp_tuning_write(gp_buffer *out, const gp_tuning *tuning, const char *libraries, gp_error *err)
{
    return document_write(out, tuning, libraries, 0, err);
}

/* Printable, and short enough. */
static bool word_read(char *out, size_t bytes, const gp_json *value)
{
    const char *text = gp_json_text(value, "");
    size_t length = strlen(text);

    if (length == 0 || length >= bytes)
        return false;
    for (size_t i = 0; i < length; i++)
        if (text[i] < ' ' || text[i] > '~')
            return false;
    memcpy(out, text, length + 1);
    return true;
}

static bool choice_read(gp_choice *out, const gp_json *value)
{
    double us = gp_json_number(gp_json_member(value, "us"), -1.0);

    if (!(us >= 0 && us < 1e12))
        return false;
    *out = (gp_choice){ .us = us };
    return word_read(out->what, sizeof(out->what), gp_json_member(value, "what")) &&
           word_read(out->how, sizeof(out->how), gp_json_member(value, "how"));
}

static gp_status document_read(gp_tuning *tuning, const gp_json *document, const char *libraries,
                               gp_error *err)
{
    const gp_json *choices = gp_json_member(document, "choices");
    char made_with[GP_LIBRARIES_BYTES];

    if (gp_json_integer(gp_json_member(document, "format"), 0) != FORMAT || !gp_json_is_array(choices) ||
        !word_read(made_with, sizeof(made_with), gp_json_member(document, "libraries")) ||
        gp_json_count(choices) > GP_CHOICES_MAX)
        return gp_fail(err, GP_ECORRUPT, "no document of plans of format %d, or one of more than %d choices",
                       FORMAT, GP_CHOICES_MAX);
    if (strcmp(made_with, libraries) != 0)
        return gp_fail(err, GP_ESTALE, "made with %s", made_with);
    for (size_t i = 0; i < gp_json_count(choices); i++)
        if (!choice_read(&tuning->choices[tuning->count++], gp_json_element(choices, i)))
            return gp_fail(err, GP_ECORRUPT, "choice %zu of the plans is none", i + 1);
    return GP_OK;
}

gp_status gp_tuning_read(gp_tuning *tuning, const char *text, size_t bytes, const char *libraries,
                         gp_error *err)
{
    gp_json *document = NULL;
    gp_error why;
    gp_status status = GP_OK;

    tuning->count = 0;
    if (bytes > GP_TUNING_BYTES_MAX)
        return gp_fail(err, GP_ECORRUPT, "a document of plans of %zu bytes; at most %d are read", bytes,
                       GP_TUNING_BYTES_MAX);
    if (gp_json_parse(&document, text, bytes, &why) != GP_OK)
        return gp_fail(err, GP_ECORRUPT, "%s", why.message);
    status = document_read(tuning, document, libraries, err);
    gp_json_free(document);
    if (status != GP_OK)
        tuning->count = 0;
    return status;
}

/* ---- on disk ---- */

gp_status gp_tuning_path(char *path, size_t path_bytes, const char *libraries, gp_error *err)
{
    char name[24];

    snprintf(name, sizeof(name), "%08" PRIx32 ".json", gp_crc32c(0, libraries, strlen(libraries)));
    return gp_cache_path(path, path_bytes, "plans", name, err);
}

/* A plain file of ours, whole, with a NUL behind it. */
static gp_status file_read(const char *path, char **out, size_t *bytes, gp_error *err)
{
    struct stat facts;
    char *text = NULL;
    ssize_t got = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0)
        return gp_fail_errno(err, errno == ENOENT ? GP_ENOENT : GP_EIO, "%s could not be opened", path);
    if (fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_uid != geteuid() ||
        facts.st_size > GP_TUNING_BYTES_MAX + HEAD_BYTES) {
        close(fd);
        return gp_fail(err, GP_EIO, "%s is no file of ours of at most %d bytes", path,
                       GP_TUNING_BYTES_MAX + HEAD_BYTES);
    }
    text = gp_malloc((size_t)facts.st_size + 1);
    if (text != NULL)
        got = read(fd, text, (size_t)facts.st_size);
    close(fd);
    if (text == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to read %s", path);
    if (got < 0) {
        gp_free(text);
        return gp_fail_errno(err, GP_EIO, "%s could not be read", path);
    }
    text[got] = '\0';
    *out = text;
    *bytes = (size_t)got;
    return GP_OK;
}

gp_status gp_tuning_load(gp_tuning *tuning, const char *libraries, gp_error *err)
{
    char path[PATH_MAX], head[HEAD_BYTES + 1], *text;
    size_t bytes;
    gp_error why;
    gp_status status = gp_tuning_path(path, sizeof(path), libraries, err);

    tuning->count = 0;
    if (status == GP_OK)
        status = file_read(path, &text, &bytes, err);
    if (status != GP_OK)
        return status;
    snprintf(head, sizeof(head), "%s%08" PRIx32 "\n", head_word,
             bytes < HEAD_BYTES ? 0 : gp_crc32c(0, text + HEAD_BYTES, bytes - HEAD_BYTES));
    if (bytes < HEAD_BYTES || memcmp(text, head, HEAD_BYTES) != 0)
        status = gp_fail(err, GP_ECORRUPT, "%s is damaged: it has another checksum", path);
    else if (gp_tuning_read(tuning, text + HEAD_BYTES, bytes - HEAD_BYTES, libraries, &why) != GP_OK)
        status = gp_fail(err, why.code == GP_ENOMEM ? GP_ENOMEM : GP_ECORRUPT, "%s: %s", path, why.message);
    gp_free(text);
    return status;
}

/* The oldest go; what is no longer written to is of libraries that were replaced. */
static void files_prune(const char *directory)
{
    struct timespec oldest = { 0 };
    char path[PATH_MAX + 300], victim[PATH_MAX + 300] = "";
    DIR *folder = opendir(directory);
    uint32_t count = 0;

    for (struct dirent *entry = folder == NULL ? NULL : readdir(folder); entry != NULL;
         entry = readdir(folder)) {
        struct stat facts;

        snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
        if (entry->d_name[0] == '.' || lstat(path, &facts) != 0 || !S_ISREG(facts.st_mode))
            continue;
        if (count++ == 0 || facts.st_mtim.tv_sec < oldest.tv_sec ||
            (facts.st_mtim.tv_sec == oldest.tv_sec && facts.st_mtim.tv_nsec < oldest.tv_nsec)) {
            oldest = facts.st_mtim;
            memcpy(victim, path, sizeof(victim));
        }
    }
    if (folder != NULL)
        closedir(folder);
    if (count > GP_TUNING_FILES_MAX)
        unlink(victim);
}

static gp_status directory_make(const char *path, gp_error *err)
{
    char part[PATH_MAX];

    snprintf(part, sizeof(part), "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(part, 0700);
        *slash = '/';
    }
    if (mkdir(part, 0700) != 0 && errno != EEXIST)
        return gp_fail_errno(err, GP_EIO, "%s could not be made", path);
    return GP_OK;
}

static gp_status file_write(const char *path, const char *scratch, const char *head, const gp_buffer *text,
                            gp_error *err)
{
    int fd = open(scratch, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    gp_status status = GP_OK;

    if (fd < 0)
        return gp_fail_errno(err, GP_EIO, "%s could not be made", scratch);
    if (write(fd, head, HEAD_BYTES) != HEAD_BYTES ||
        write(fd, text->data, text->bytes) != (ssize_t)text->bytes)
        status = gp_fail_errno(err, GP_EIO, "%s could not be written", scratch);
    if (close(fd) != 0 && status == GP_OK)
        status = gp_fail_errno(err, GP_EIO, "%s could not be written", scratch);
    if (status == GP_OK && rename(scratch, path) != 0)
        status = gp_fail_errno(err, GP_EIO, "%s could not be renamed to %s", scratch, path);
    if (status != GP_OK)
        unlink(scratch);
    return status;
}

gp_status gp_tuning_save(const gp_tuning *tuning, const char *libraries, gp_error *err)
{
    char path[PATH_MAX], directory[PATH_MAX], scratch[PATH_MAX + 40], head[HEAD_BYTES + 1];
    uint32_t used = 0;
    gp_buffer text;
    gp_status status = gp_tuning_path(path, sizeof(path), libraries, err);

    if (status != GP_OK)
        return status;
    snprintf(directory, sizeof(directory), "%.*s", (int)(strrchr(path, '/') - path), path);
    snprintf(scratch, sizeof(scratch), "%s/.tmp-%d", directory, (int)getpid());
    for (uint32_t i = 0; i < tuning->count; i++)
        used += tuning->choices[i].used;
    gp_buffer_init(&text, GP_TUNING_BYTES_MAX);
    status = document_write(&text, tuning, libraries,
                            used < GP_CHOICES_MAX / 2 ? GP_CHOICES_MAX / 2 - used : 0, err);
    if (status == GP_OK) {
        snprintf(head, sizeof(head), "%s%08" PRIx32 "\n", head_word, gp_crc32c(0, text.data, text.bytes));
        status = directory_make(directory, err);
    }
    if (status == GP_OK)
        status = file_write(path, scratch, head, &text, err);
    gp_buffer_deinit(&text);
    if (status == GP_OK)
        files_prune(directory);
    return status;
}
