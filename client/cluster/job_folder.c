/* Implement job_folder.h. The file stays whole: all functions share the paths and the rules for the
 * files of one folder. */
#include "client/cluster/job_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "common/base/printable.h"
#include "common/base/system/file.h"
#include "common/base/system/json_file.h"

enum {
    FORMAT_VERSION = 1,
    RANDOM_BYTES = 8,
    TAKE_TRIES = 100,
    COPY_BYTES = 1 << 20,
    EXIT_CODE_MAX = 255,
    RESULT_BYTES = 4096, /* reserved for result.json */
};

static gp_status path_join(char path[PATH_MAX], const char *folder, const char *name, gp_error *err)
{
    return (size_t)snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX
               ? GP_OK
               : gp_fail(err, GP_ELIMIT, "the path %.80s... is too long", folder);
}

/* ---- launch name ---- */

gp_status cluster_name_new(char name[CLUSTER_NAME_BYTES], gp_error *err)
{
    uint8_t random[RANDOM_BYTES];

    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return gp_fail_errno(err, GP_EIO, "cannot get random numbers");
    strcpy(name, "gp-");
    for (int i = 0; i < RANDOM_BYTES; i++)
        snprintf(name + 3 + 2 * i, 3, "%02x", random[i]);
    return GP_OK;
}

bool cluster_name_valid(const char *name)
{
    return strncmp(name, "gp-", 3) == 0 && strlen(name) == 3 + 2 * RANDOM_BYTES &&
           strspn(name + 3, "0123456789abcdef") == 2 * RANDOM_BYTES;
}

/* ---- command.json ---- */

static void put_texts(gp_json_writer *writer, const char *key, const char *const *texts, size_t count)
{
    gp_json_begin_array(writer, key);
    for (size_t i = 0; i < count; i++)
        gp_json_put_text(writer, NULL, texts[i]);
    gp_json_end_array(writer);
}

/* Check that JSON can hold a text as it is. The message does not contain the text, which may be
 * secret; `what` names it. */
static gp_status text_check(const char *text, const char *what, gp_error *err)
{
    const size_t bytes = strlen(text), valid = gp_utf8_prefix((const uint8_t *)text, bytes);

    return valid == bytes
               ? GP_OK
               : gp_fail(err, GP_EINVAL,
                         "%s is not valid UTF-8 (0x%02x at byte %zu), which a job on a cluster needs; "
                         "change it, such as by a link with another name",
                         what, (unsigned char)text[valid], valid + 1);
}

/* Check all texts of a command. */
static gp_status texts_check(const cluster_command *command, gp_error *err)
{
    gp_status status = text_check(command->directory, "the directory", err);
    char what[120];

    for (size_t i = 0; status == GP_OK && i < command->word_count; i++) {
        snprintf(what, sizeof(what), "word %zu of the command", i + 1);
        status = text_check(command->words[i], what, err);
    }
    for (size_t i = 0; status == GP_OK && i < command->variable_count; i++) {
        snprintf(what, sizeof(what), "the variable %.*s", (int)strcspn(command->variables[i], "="),
                 command->variables[i]);
        status = text_check(command->variables[i], what, err);
    }
    return status;
}

gp_status cluster_command_format(const cluster_command *command, gp_buffer *out, gp_error *err)
{
    gp_json_writer writer;
    size_t before = out->bytes;
    char mask[8];
    gp_status status;

    if (command->word_count > CLUSTER_WORDS_MAX || command->variable_count > CLUSTER_VARIABLES_MAX)
        return gp_fail(
            err, GP_ELIMIT, "the command has %zu words and %zu variables; at most %d and %d are supported",
            command->word_count, command->variable_count, CLUSTER_WORDS_MAX, CLUSTER_VARIABLES_MAX);
    status = texts_check(command, err);
    if (status != GP_OK)
        return status;
    snprintf(mask, sizeof(mask), "%03o", (unsigned)command->umask & 0777);
    gp_json_writer_init(&writer, out, true);
    gp_json_begin_object(&writer, NULL);
    gp_json_put_integer(&writer, "version", FORMAT_VERSION);
    gp_json_put_text(&writer, "engine", command->engine);
    gp_json_put_text(&writer, "directory", command->directory);
    gp_json_put_text(&writer, "umask", mask);
    gp_json_put_bool(&writer, "requeue", command->requeue);
    put_texts(&writer, "words", command->words, command->word_count);
    put_texts(&writer, "variables", command->variables, command->variable_count);
    gp_json_end_object(&writer);
    status = gp_json_writer_finish(&writer, err);
    if (status == GP_OK)
        status = gp_buffer_append(out, "\n", 1, err);
    if (status == GP_OK && out->bytes - before > CLUSTER_COMMAND_JSON_MAX)
        status = gp_fail(err, GP_ELIMIT, "the command has %zu bytes, at most %d are supported",
                         out->bytes - before, CLUSTER_COMMAND_JSON_MAX);
    return status;
}

/* Get an array of texts; *list is a new array of borrowed texts. False: the array is missing or
 * longer than `max`, an element is not a text, or there is no memory. */
static bool texts_get(const char ***list, size_t *count, const gp_json *array, size_t max)
{
    size_t elements = gp_json_count(array);

    if (!gp_json_is_array(array) || elements > max)
        return false;
    *list = gp_calloc(elements + 1, sizeof(**list));
    for (size_t i = 0; *list != NULL && i < elements; i++) {
        (*list)[i] = gp_json_text(gp_json_element(array, i), NULL);
        if ((*list)[i] == NULL)
            return false;
    }
    *count = elements;
    return *list != NULL;
}

gp_status cluster_command_parse(cluster_command *out, const char *text, size_t bytes, gp_error *err)
{
    cluster_command command = { 0 };
    const char *mask, *problem = NULL;
    char *end;
    gp_status status;

    if (bytes > CLUSTER_COMMAND_JSON_MAX)
        return gp_fail(err, GP_ELIMIT, "command.json has %zu bytes, at most %d are supported", bytes,
                       CLUSTER_COMMAND_JSON_MAX);
    status = gp_json_parse(&command.document, text, bytes, err);
    if (status != GP_OK) {
        gp_error_prefix(err, "command.json");
        return status;
    }
    if (gp_json_integer(gp_json_member(command.document, "version"), 0) != FORMAT_VERSION)
        problem = "version";
    command.engine = gp_json_text(gp_json_member(command.document, "engine"), "");
    if (command.engine[0] == '\0' || strlen(command.engine) >= CLUSTER_ENGINE_BYTES)
        problem = "engine";
    command.directory = gp_json_text(gp_json_member(command.document, "directory"), "");
    if (command.directory[0] != '/')
        problem = "directory";
    mask = gp_json_text(gp_json_member(command.document, "umask"), "");
    command.umask = (mode_t)(strtoul(mask, &end, 8) & 0777);
    if (mask[0] < '0' || mask[0] > '7' || *end != '\0')
        problem = "umask";
    command.requeue = gp_json_bool(gp_json_member(command.document, "requeue"), false);
    if (!texts_get(&command.words, &command.word_count, gp_json_member(command.document, "words"),
                   CLUSTER_WORDS_MAX) ||
        command.word_count == 0)
        problem = "words";
    if (!texts_get(&command.variables, &command.variable_count, gp_json_member(command.document, "variables"),
                   CLUSTER_VARIABLES_MAX))
        problem = "variables";
    for (size_t i = 0; problem == NULL && i < command.variable_count; i++)
        if (command.variables[i][0] == '=' || strchr(command.variables[i], '=') == NULL)
            problem = "variables";
    if (problem != NULL) {
        cluster_command_deinit(&command);
        return gp_fail(err, GP_ECORRUPT,
                       "command.json: '%s' is missing, malformed, or of another version of "
                       "gradpool",
                       problem);
    }
    *out = command;
    return GP_OK;
}

gp_status cluster_command_read(cluster_command *out, const char *folder, gp_error *err)
{
    char path[PATH_MAX];
    uint8_t *text = NULL;
    size_t bytes;
    gp_status status = path_join(path, folder, "command.json", err);

    if (status == GP_OK)
        status = gp_file_read(&text, &bytes, path, CLUSTER_COMMAND_JSON_MAX, err);
    if (status == GP_OK)
        status = cluster_command_parse(out, (const char *)text, bytes, err);
    gp_free(text);
    return status;
}

void cluster_command_deinit(cluster_command *command)
{
    gp_free(command->words);
    gp_free(command->variables);
    gp_json_free(command->document);
    *command = (cluster_command){ 0 };
}

/* ---- files ---- */

/* Write a file with mode 0600; remove it if that fails.
 *   flag  O_EXCL: create it; GP_EBUSY: it exists. 0: it may exist, but is empty
 *   sync  false: the caller syncs it */
static gp_status file_write(const char *path, int flag, const void *data, size_t bytes, bool sync,
                            gp_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | flag, 0600);
    bool written = false;

    if (fd >= 0) {
        written = gp_write_all(fd, data, bytes) && (!sync || fsync(fd) == 0);
        int problem = errno;

        written = close(fd) == 0 && written;
        if (!written) {
            unlink(path);
            errno = problem;
        }
    }
    return written
               ? GP_OK
               : gp_fail_errno(err, fd < 0 && errno == EEXIST ? GP_EBUSY : GP_EIO, "cannot create %s", path);
}

static gp_status file_create(const char *path, const void *data, size_t bytes, bool sync, gp_error *err)
{
    return file_write(path, O_EXCL, data, bytes, sync, err);
}

gp_status cluster_folder_create(const char *folder, const char *command, size_t bytes, gp_error *err)
{
    char path[PATH_MAX];
    gp_status status = path_join(path, folder, "attempts", err);

    if (status != GP_OK)
        return status;
    if (mkdir(folder, 0700) != 0)
        return gp_fail_errno(err, errno == EEXIST ? GP_EBUSY : GP_EIO, "cannot create the job's folder %s",
                             folder);
    if (mkdir(path, 0700) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot create %s", path);
    if (status == GP_OK)
        status = path_join(path, folder, "command.json", err);
    if (status == GP_OK)
        status = file_create(path, command, bytes, false, err);
    return status;
}

gp_status cluster_folder_cancel(const char *folder, gp_error *err)
{
    char path[PATH_MAX];
    gp_status status = path_join(path, folder, "cancel", err);

    if (status == GP_OK)
        status = file_create(path, "", 0, true, err);
    return status == GP_EBUSY ? GP_OK : status;
}

bool cluster_folder_canceled(const char *folder)
{
    char path[PATH_MAX];

    return path_join(path, folder, "cancel", NULL) == GP_OK && access(path, F_OK) == 0;
}

/* ---- attempts ---- */

/* Set `path` to attempts/N/NAME; name NULL: attempts/N. */
static gp_status attempt_path(char path[PATH_MAX], const char *folder, uint32_t attempt, const char *name,
                              gp_error *err)
{
    char file[64];

    snprintf(file, sizeof(file), "attempts/%" PRIu32 "%s%s", attempt, name != NULL ? "/" : "",
             name != NULL ? name : "");
    return path_join(path, folder, file, err);
}

/* Return the largest attempt number that is taken; 0: none. */
static gp_status largest_attempt(uint32_t *out, const char *folder, gp_error *err)
{
    char path[PATH_MAX];
    uint32_t largest = 0;
    const struct dirent *entry;
    DIR *directory;
    gp_status status = path_join(path, folder, "attempts", err);

    if (status != GP_OK)
        return status;
    directory = opendir(path);
    if (directory == NULL)
        return gp_fail_errno(err, errno == ENOENT ? GP_ENOENT : GP_EIO, "cannot read %s", path);
    errno = 0;
    while ((entry = readdir(directory)) != NULL) {
        char *end;
        unsigned long number = strtoul(entry->d_name, &end, 10);

        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && *end == '\0' &&
            number <= CLUSTER_ATTEMPTS_MAX && number > largest)
            largest = (uint32_t)number;
        errno = 0;
    }
    if (errno != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot read %s", path);
    closedir(directory);
    *out = largest;
    return status;
}

/* Make `newest` hold `number`. The temporary file is in the folder of attempt `self`, so no other
 * attempt writes to it. */
static gp_status newest_write(const char *folder, uint32_t self, uint32_t number, gp_error *err)
{
    char draft[PATH_MAX], path[PATH_MAX], text[16];
    gp_status status = attempt_path(draft, folder, self, "newest", err);

    if (status == GP_OK)
        status = path_join(path, folder, "newest", err);
    snprintf(text, sizeof(text), "%" PRIu32 "\n", number);
    if (status == GP_OK)
        status = file_create(draft, text, strlen(text), true, err);
    if (status == GP_OK && rename(draft, path) != 0) {
        status = gp_fail_errno(err, GP_EIO, "cannot replace %s", path);
        unlink(draft);
    }
    if (status == GP_OK && !gp_directory_sync(folder))
        status = gp_fail_errno(err, GP_EIO, "cannot write %s", folder);
    return status;
}

/* Publish that attempts up to `number` are taken. An attempt that is delayed before its rename of
 * `newest` sets `newest` back. Each attempt therefore lists the attempts after its rename, and
 * repeats the rename with the largest number. So the last rename is that of the largest number. */
static gp_status newest_publish(uint32_t *largest, const char *folder, uint32_t number, gp_error *err)
{
    gp_status status;
    uint32_t written;

    *largest = number;
    do {
        written = *largest;
        status = newest_write(folder, number, written, err);
        if (status == GP_OK)
            status = largest_attempt(largest, folder, err);
    } while (status == GP_OK && *largest > written);
    return status;
}

gp_status cluster_attempt_take(gp_fence *fence, uint32_t *taken, const char *folder, gp_error *err)
{
    char path[PATH_MAX];
    uint32_t largest = 0;
    gp_status status = path_join(path, folder, "result.json", err);

    if (status == GP_OK && access(path, F_OK) == 0)
        return gp_fail(err, GP_ESTALE, "the job has ended already; its result is in %.200s", path);
    if (status == GP_OK && errno != ENOENT)
        return gp_fail_errno(err, GP_EIO, "cannot determine whether %.200s exists", path);
    if (status == GP_OK)
        status = path_join(fence->file, folder, "newest", err);
    if (status == GP_OK)
        status = largest_attempt(&largest, folder, err);
    for (int i = 0; status == GP_OK && *taken == 0; i++) {
        if (largest >= CLUSTER_ATTEMPTS_MAX || i == TAKE_TRIES)
            return gp_fail(err, GP_ELIMIT,
                           "the job has %" PRIu32 " attempts, at most %d are supported; cancel it", largest,
                           CLUSTER_ATTEMPTS_MAX);
        status = attempt_path(path, folder, ++largest, NULL, err);
        if (status == GP_OK && mkdir(path, 0700) == 0)
            *taken = largest;
        else if (status == GP_OK && errno != EEXIST)
            status = gp_fail_errno(err, GP_EIO, "cannot create %s", path);
    }
    if (status == GP_OK)
        status = newest_publish(&largest, folder, *taken, err);
    if (status == GP_OK && largest > *taken)
        status =
            gp_fail(err, GP_ESTALE, "attempt %" PRIu32 " of this job has started before attempt %" PRIu32,
                    largest, *taken);
    if (status == GP_OK)
        fence->number = *taken;
    return status;
}

/* Return whether a training appends to a file with this name (client/cli/jobs/run_folder.h). */
static int is_appended(const struct dirent *entry)
{
    const char *name = entry->d_name;
    size_t bytes = strlen(name);

    return (bytes > 6 && strcmp(name + bytes - 6, ".jsonl") == 0) || strcmp(name, "workers.open") == 0 ||
           strncmp(name, "events.out.tfevents", 19) == 0;
}

/* Replace a file of the folder by a copy. */
static gp_status file_detach(const char *folder, uint32_t attempt, const char *name, gp_error *err)
{
    char path[PATH_MAX], draft[PATH_MAX];
    int from = -1, to = -1;
    struct stat info;
    off_t left;
    gp_status status = path_join(path, folder, name, err);

    if (status == GP_OK)
        status = attempt_path(draft, folder, attempt, "draft", err);
    if (status != GP_OK)
        return status;
    from = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (from >= 0 && fstat(from, &info) == 0 && S_ISREG(info.st_mode)) {
        to = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, info.st_mode & 0777);
        left = info.st_size;
        while (to >= 0 && left > 0) {
            ssize_t got = sendfile(to, from, NULL, (size_t)(left < COPY_BYTES ? left : COPY_BYTES));

            if (got < 0 && errno == EINTR)
                continue;
            if (got <= 0)
                break;
            left -= got;
        }
        if (to < 0 || left > 0 || fsync(to) != 0 || rename(draft, path) != 0)
            status = gp_fail_errno(err, GP_EIO, "cannot copy %s", path);
    } else if (from < 0 && errno != ENOENT) {
        status = gp_fail_errno(err, GP_EIO, "cannot read %s", path);
    }
    if (from >= 0)
        close(from);
    if (to >= 0)
        close(to);
    if (status != GP_OK)
        unlink(draft);
    return status;
}

gp_status cluster_attempt_detach(const char *folder, uint32_t attempt, gp_error *err)
{
    struct dirent **files;
    /* The renames change the directory, so list it first. */
    const int count = scandir(folder, &files, is_appended, NULL);
    gp_status status = GP_OK;

    if (count < 0)
        return gp_fail_errno(err, GP_EIO, "cannot read %s", folder);
    for (int i = 0; i < count; i++) {
        if (status == GP_OK)
            status = file_detach(folder, attempt, files[i]->d_name, err);
        free(files[i]);
    }
    free(files);
    return status;
}

/* Begin a record: {"attempt": N, and the time as `key`. */
static void record_begin(gp_json_writer *writer, gp_buffer *buffer, uint32_t attempt, const char *key)
{
    gp_buffer_init(buffer, CLUSTER_RECORD_MAX);
    gp_json_writer_init(writer, buffer, false);
    gp_json_begin_object(writer, NULL);
    gp_json_put_integer(writer, "attempt", attempt);
    gp_json_put_integer(writer, key, gp_unix_ms());
}

/* Reserve the space of the result, so that a job that fails because the disk is full has one. File
 * systems without fallocate() reserve nothing. */
static void result_reserve(const char *folder, uint32_t attempt)
{
    char path[PATH_MAX];
    int fd = attempt_path(path, folder, attempt, "result", NULL) == GP_OK
                 ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)
                 : -1;

    if (fd < 0)
        return;
    (void)fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, RESULT_BYTES);
    close(fd);
}

/* End a record and write it to attempts/N/draft; then rename it to attempts/N/NAME.
 *   final  write it to attempts/N/result, and move it to NAME in the folder, without replacing a
 *          file there */
static gp_status record_write(gp_json_writer *writer, gp_buffer *buffer, const char *folder, uint32_t attempt,
                              const char *name, bool final, gp_error *err)
{
    char draft[PATH_MAX], path[PATH_MAX];
    gp_status status;

    gp_json_end_object(writer);
    status = gp_json_writer_finish(writer, err);
    if (status == GP_OK)
        status = gp_buffer_append(buffer, "\n", 1, err);
    if (status == GP_OK)
        status = attempt_path(draft, folder, attempt, final ? "result" : "draft", err);
    if (status == GP_OK)
        status = final ? path_join(path, folder, name, err) : attempt_path(path, folder, attempt, name, err);
    if (status == GP_OK)
        status = file_write(draft, final ? 0 : O_EXCL, buffer->data, buffer->bytes, true, err);
    if (status == GP_OK && (final ? !gp_rename_new(draft, path) : rename(draft, path) != 0)) {
        status = gp_fail_errno(err, errno == EEXIST ? GP_ESTALE : GP_EIO, "cannot create %s", path);
        unlink(draft);
    }
    gp_buffer_deinit(buffer);
    return status;
}

gp_status cluster_attempt_begin(const char *folder, uint32_t attempt, const char *host, const char *engine_id,
                                gp_error *err)
{
    gp_json_writer writer;
    gp_buffer buffer;

    result_reserve(folder, attempt);
    record_begin(&writer, &buffer, attempt, "began_ms");
    gp_json_put_text(&writer, "host", host);
    gp_json_put_integer(&writer, "pid", getpid());
    gp_json_put_text(&writer, "engine_id", engine_id);
    return record_write(&writer, &buffer, folder, attempt, "begin.json", false, err);
}

gp_status cluster_attempt_end(const char *folder, uint32_t attempt, const char *reason, gp_error *err)
{
    gp_json_writer writer;
    gp_buffer buffer;

    record_begin(&writer, &buffer, attempt, "ended_ms");
    gp_json_put_text(&writer, "reason", reason);
    return record_write(&writer, &buffer, folder, attempt, "end.json", false, err);
}

gp_status cluster_attempt_result(const char *folder, const gp_fence *fence, int exit_code, const char *reason,
                                 gp_error *err)
{
    gp_json_writer writer;
    gp_buffer buffer;
    gp_status status = gp_fence_check(fence, err);

    if (status != GP_OK)
        return status;
    record_begin(&writer, &buffer, fence->number, "ended_ms");
    gp_json_put_integer(&writer, "exit_code", exit_code);
    gp_json_put_text(&writer, "reason", reason);
    return record_write(&writer, &buffer, folder, fence->number, "result.json", true, err);
}

/* ---- facts ---- */

/* Read a record. *out is NULL if it is missing, too large or malformed. GP_EIO, GP_ENOMEM: it
 * cannot be read now, for example on a network file system. */
static gp_status record_load(gp_json **out, const char *folder, uint32_t attempt, const char *name,
                             gp_error *err)
{
    char path[PATH_MAX];
    gp_error why;
    gp_status status =
        attempt > 0 ? attempt_path(path, folder, attempt, name, &why) : path_join(path, folder, name, &why);

    *out = NULL;
    if (status == GP_OK)
        status = gp_json_file_read(out, path, CLUSTER_RECORD_MAX, &why);
    return status == GP_EIO || status == GP_ENOMEM ? gp_fail(err, status, "%s", why.message) : GP_OK;
}

/* Read a record that only describes an attempt. NULL: missing or unreadable. */
static gp_json *record_read(const char *folder, uint32_t attempt, const char *name)
{
    gp_json *json;

    record_load(&json, folder, attempt, name, NULL);
    return json;
}

/* Copy a text member, made printable. */
static void text_get(char *to, size_t bytes, const gp_json *json, const char *key)
{
    snprintf(to, bytes, "%s", gp_json_text(gp_json_member(json, key), ""));
    gp_printable(to);
}

int cluster_exit_code_read(const gp_json *value)
{
    const int64_t code = gp_json_integer(value, 0);

    return code >= 0 && code <= EXIT_CODE_MAX ? (int)code : EXIT_CODE_MAX;
}

int64_t cluster_time_read(const gp_json *value)
{
    const int64_t time_ms = gp_json_integer(value, 0);

    return time_ms > 0 ? time_ms : 0;
}

gp_status cluster_folder_facts(const char *folder, cluster_facts *facts, gp_error *err)
{
    cluster_facts found = { 0 };
    char path[PATH_MAX];
    gp_json *json;
    gp_error why;
    gp_status status = path_join(path, folder, "newest", err);

    if (status != GP_OK)
        return status;
    status = gp_fence_read(&found.attempt, path, &why);
    if (status != GP_OK && status != GP_ENOENT) {
        if (err != NULL)
            *err = why;
        return status;
    }
    found.canceled = cluster_folder_canceled(folder);
    if (found.attempt > 0) {
        json = record_read(folder, found.attempt, "begin.json");
        found.begun = json != NULL;
        text_get(found.host, sizeof(found.host), json, "host");
        text_get(found.engine_id, sizeof(found.engine_id), json, "engine_id");
        if (cluster_name_valid(found.engine_id)) /* the attempt does not know the engine's id */
            found.engine_id[0] = '\0';
        found.begin_ms = cluster_time_read(gp_json_member(json, "began_ms"));
        gp_json_free(json);
    }
    if (found.attempt > 1) {
        json = record_read(folder, 1, "begin.json");
        if (json != NULL)
            found.begin_ms = cluster_time_read(gp_json_member(json, "began_ms"));
        gp_json_free(json);
        json = record_read(folder, found.attempt - 1, "end.json");
        text_get(found.attempt_reason, sizeof(found.attempt_reason), json, "reason");
        gp_json_free(json);
    }
    status = record_load(&json, folder, 0, "result.json", err);
    if (status != GP_OK)
        return status; /* without its result, a job would count as lost */
    found.has_result = json != NULL;
    found.exit_code = cluster_exit_code_read(gp_json_member(json, "exit_code"));
    found.result_attempt = (uint32_t)gp_json_integer(gp_json_member(json, "attempt"), 0);
    found.end_ms = cluster_time_read(gp_json_member(json, "ended_ms"));
    text_get(found.reason, sizeof(found.reason), json, "reason");
    gp_json_free(json);
    *facts = found;
    return GP_OK;
}
