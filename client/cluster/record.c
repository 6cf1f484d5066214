/* Implement record.h. The file stays whole: its parts share the lock and the files of one record
 * folder. */
#include "client/cluster/record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/cluster/job_folder.h"
#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "common/base/printable.h"
#include "common/base/system/fault.h"
#include "common/base/system/file.h"

enum { RECORD_VERSION = 1, LOCK_POLL_MS = 20, CREATE_TRIES = 10, YOUNG_S = 60 };

static gp_status join(char path[CLUSTER_PATH_BYTES], const char *folder, const char *name, gp_error *err)
{
    if (snprintf(path, CLUSTER_PATH_BYTES, "%s/%s", folder, name) >= CLUSTER_PATH_BYTES)
        return gp_fail(err, GP_ELIMIT, "the path %.200s/%.100s is too long", folder, name);
    return GP_OK;
}

/* ---- owner ---- */

/* Check that no other user created the folder, or the link to it. A record decides which commands
 * are launched and which jobs are canceled. Where only this user can create folders, the owner does
 * not matter: file servers can assign all files to another user. */
static gp_status owner_check(const char *root, const char *folder, gp_error *err)
{
    struct stat info, above;

    if (lstat(folder, &info) != 0)
        return gp_fail_errno(err, errno == ENOENT ? GP_ENOENT : GP_EIO, "cannot open %s", folder);
    if (info.st_uid == geteuid() || (stat(root, &above) == 0 && (above.st_mode & 022) == 0))
        return GP_OK;
    return gp_fail(err, GP_EPERM,
                   "%s belongs to another user (uid %u), and other users can write to %s; use a folder of "
                   "your own",
                   folder, (unsigned)info.st_uid, root);
}

/* ---- lock ---- */

/* Open and lock the lock file once. */
static gp_status lock_try(int *out, const char *folder, gp_error *err)
{
    char path[CLUSTER_PATH_BYTES];
    struct stat file;
    gp_status status = join(path, folder, "lock", err);
    int fd;

    if (status != GP_OK)
        return status;
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return gp_fail_errno(err, errno == ENOENT ? GP_ENOENT : GP_EIO, "cannot open %s", path);
    status = gp_file_lock(fd);
    /* the folder may have been discarded in between */
    if (status == GP_OK && (fstat(fd, &file) != 0 || file.st_nlink == 0))
        status = gp_fail(err, GP_ENOENT, "%s was removed", path);
    else if (status == GP_EBUSY)
        gp_fail(err, GP_EBUSY, "another gradpool command works on this job");
    else if (status != GP_OK)
        gp_fail_errno(err, GP_EIO, "cannot lock %s", path);
    if (status == GP_OK)
        *out = fd;
    else
        close(fd);
    return status;
}

static gp_status lock_wait(int *out, const char *folder, int wait_ms, gp_error *err)
{
    const int64_t deadline_ms = gp_now_ms() + wait_ms;
    gp_status status;

    while ((status = lock_try(out, folder, err)) == GP_EBUSY && gp_now_ms() < deadline_ms)
        gp_sleep_ms(LOCK_POLL_MS);
    return status;
}

/* ---- format ---- */

static gp_status record_format(const cluster_record *record, gp_buffer *out, gp_error *err)
{
    const cluster_job *job = &record->job;
    gp_json_writer w;

    gp_json_writer_init(&w, out, true);
    gp_json_begin_object(&w, NULL);
    gp_json_put_integer(&w, "version", RECORD_VERSION);
    gp_json_put_text(&w, "name", job->name);
    gp_json_put_text(&w, "profile", record->profile);
    gp_json_put_text(&w, "label", record->label);
    gp_json_put_text(&w, "command", record->command);
    gp_json_put_integer(&w, "submitted_ms", record->submitted_ms);
    gp_json_put_integer(&w, "time_s", record->time_s);
    gp_json_put_bool(&w, "requeue", record->requeue);
    gp_json_put_text(&w, "array", record->array);
    gp_json_put_integer(&w, "array_index", record->array_index);
    gp_json_put_text(&w, "state", cluster_state_word(job->state));
    gp_json_put_text(&w, "end", cluster_end_word(job->end));
    gp_json_put_text(&w, "id", job->id);
    gp_json_put_text(&w, "attempt_id", job->attempt_id);
    gp_json_put_text(&w, "stray_id", job->stray_id);
    gp_json_put_integer(&w, "launches", job->launches);
    gp_json_put_integer(&w, "attempt", job->attempt);
    gp_json_put_integer(&w, "attempts_over", job->attempts_over);
    gp_json_put_bool(&w, "canceled", job->canceled);
    gp_json_put_bool(&w, "marked", job->marked);
    gp_json_put_bool(&w, "has_result", job->has_result);
    gp_json_put_integer(&w, "exit_code", job->exit_code);
    gp_json_put_text(&w, "reason", job->reason);
    gp_json_put_integer(&w, "begin_ms", job->begin_ms);
    gp_json_put_integer(&w, "end_ms", job->end_ms);
    gp_json_put_integer(&w, "starting_ms", job->starting_unix_ms);
    gp_json_put_integer(&w, "changes", (int64_t)job->changes);
    gp_json_put_text(&w, "clock", job->clock);
    gp_json_put_integer(&w, "gone_ms", job->gone_ms);
    gp_json_put_integer(&w, "gone_elsewhere", job->gone_elsewhere);
    gp_json_end_object(&w);
    return gp_json_writer_finish(&w, err);
}

/* Copy a text. false: it is missing, too long or not printable. */
static bool get_text(char *to, size_t bytes, const gp_json *document, const char *key)
{
    const char *text = gp_json_text(gp_json_member(document, key), NULL);

    if (text == NULL || strlen(text) >= bytes || gp_printable_check(key, text, NULL) != GP_OK)
        return false;
    memcpy(to, text, strlen(text) + 1);
    return true;
}

static bool get_integer(int64_t *to, const gp_json *document, const char *key, int64_t min, int64_t max)
{
    const gp_json *value = gp_json_member(document, key);
    const int64_t number = gp_json_integer(value, INT64_MIN);

    if (!gp_json_is_number(value) || number < min || number > max)
        return false;
    *to = number;
    return true;
}

static bool get_count(uint32_t *to, const gp_json *document, const char *key)
{
    int64_t number = 0;
    const bool good = get_integer(&number, document, key, 0, UINT32_MAX);

    *to = (uint32_t)number;
    return good;
}

static bool get_flag(bool *to, const gp_json *document, const char *key)
{
    const gp_json *value = gp_json_member(document, key);

    *to = gp_json_bool(value, false);
    return gp_json_is_bool(value);
}

/* Set *to to the index of a word. */
static bool get_word(int *to, const gp_json *document, const char *key, const char *(*word)(int index),
                     int count)
{
    const char *text = gp_json_text(gp_json_member(document, key), "");

    for (int i = 0; i < count; i++)
        if (strcmp(text, word(i)) == 0) {
            *to = i;
            return true;
        }
    return false;
}

static const char *state_word(int index)
{
    return cluster_state_word((cluster_state)index);
}

static const char *end_word(int index)
{
    return cluster_end_word((cluster_end)index);
}

static bool job_parse(cluster_job *job, const gp_json *document)
{
    int state = 0, end = 0;
    int64_t exit_code = 0, changes = 0;
    bool good =
        get_text(job->name, sizeof(job->name), document, "name") && cluster_name_valid(job->name) &&
        get_word(&state, document, "state", state_word, CLUSTER_STATES) &&
        get_word(&end, document, "end", end_word, CLUSTER_ENDS) &&
        get_text(job->id, sizeof(job->id), document, "id") &&
        get_text(job->attempt_id, sizeof(job->attempt_id), document, "attempt_id") &&
        get_text(job->stray_id, sizeof(job->stray_id), document, "stray_id") &&
        get_count(&job->launches, document, "launches") && get_count(&job->attempt, document, "attempt") &&
        get_count(&job->attempts_over, document, "attempts_over") &&
        get_flag(&job->canceled, document, "canceled") && get_flag(&job->marked, document, "marked") &&
        get_flag(&job->has_result, document, "has_result") &&
        get_integer(&exit_code, document, "exit_code", -1, 255) &&
        get_text(job->reason, sizeof(job->reason), document, "reason") &&
        get_integer(&job->begin_ms, document, "begin_ms", 0, INT64_MAX) &&
        get_integer(&job->end_ms, document, "end_ms", 0, INT64_MAX) &&
        get_integer(&job->starting_unix_ms, document, "starting_ms", 0, INT64_MAX) &&
        get_integer(&changes, document, "changes", 0, INT64_MAX) &&
        get_text(job->clock, sizeof(job->clock), document, "clock") &&
        get_integer(&job->gone_ms, document, "gone_ms", 0, INT64_MAX) &&
        get_count(&job->gone_elsewhere, document, "gone_elsewhere");

    job->state = (cluster_state)state;
    job->end = (cluster_end)end;
    job->exit_code = (int)exit_code;
    job->changes = (uint64_t)changes;
    return good && (job->state == CLUSTER_ENDED) == (job->end != CLUSTER_END_NONE);
}

static gp_status record_parse(cluster_record *record, const char *text, size_t bytes, const char *path,
                              gp_error *err)
{
    const cluster_seen seen = record->job.seen;
    gp_json *document;
    int64_t version = 0;
    gp_status status = gp_json_parse(&document, text, bytes, err);

    if (status != GP_OK) {
        gp_error_prefix(err, "%s", path);
        return status == GP_ENOMEM ? status : GP_ECORRUPT;
    }
    if (!get_integer(&version, document, "version", 1, INT32_MAX))
        status = gp_fail(err, GP_ECORRUPT, "%s: malformed record of a job", path);
    else if (version > RECORD_VERSION)
        status = gp_fail(err, GP_EVERSION, "%s: record version %" PRId64 ", written by a newer gradpool",
                         path, version);
    else if (!job_parse(&record->job, document) ||
             !get_text(record->profile, sizeof(record->profile), document, "profile") ||
             !get_text(record->label, sizeof(record->label), document, "label") ||
             !get_text(record->command, sizeof(record->command), document, "command") ||
             !get_integer(&record->submitted_ms, document, "submitted_ms", 0, INT64_MAX) ||
             !get_integer(&record->time_s, document, "time_s", 0, GP_PROFILE_TIME_MAX_S) ||
             !get_flag(&record->requeue, document, "requeue") ||
             !get_text(record->array, sizeof(record->array), document, "array") ||
             !get_count(&record->array_index, document, "array_index"))
        status = gp_fail(err, GP_ECORRUPT, "%s: malformed record of a job", path);
    record->job.seen = seen;
    gp_json_free(document);
    return status;
}

/* ---- disk ---- */

/* Link the engine's id to the folder, for cluster_record_find(). A missing link only makes that
 * slower. Ids that are no file names have none. */
static bool id_path(char path[CLUSTER_PATH_BYTES], const char *root, const char *profile, const char *id)
{
    return id[0] != '\0' && strpbrk(id, "/ \t") == NULL &&
           snprintf(path, CLUSTER_PATH_BYTES, "%s/%s-%s", root, profile, id) < CLUSTER_PATH_BYTES;
}

/* Return whether the last listing or launch of this process showed a live job. */
static bool engine_has(const cluster_job *job)
{
    return job->state != CLUSTER_ENDED && job->seen.list_ms != 0 && job->seen.gone_ms == 0 &&
           job->gone_ms == 0;
}

static void link_id(const cluster_record *record)
{
    char root[CLUSTER_PATH_BYTES], path[CLUSTER_PATH_BYTES], draft[CLUSTER_PATH_BYTES],
        old[CLUSTER_NAME_BYTES];
    const char *name = record->job.name;
    ssize_t bytes;

    snprintf(root, sizeof(root), "%.*s", (int)(strrchr(record->path, '/') - record->path), record->path);
    if (!id_path(path, root, record->profile, record->job.id) ||
        join(draft, record->path, "id", NULL) != GP_OK || symlink(name, path) == 0)
        return;
    bytes = readlink(path, old, sizeof(old));
    if (bytes == (ssize_t)strlen(name) && memcmp(old, name, (size_t)bytes) == 0)
        return;
    /* An engine that crashed can use ids again; the job that the engine has keeps the id. */
    if (bytes > 0 && !engine_has(&record->job))
        return;
    unlink(draft);
    if (symlink(name, draft) == 0)
        (void)rename(draft, path);
}

/* Keep the first record, which is on disk before the launch, as launch.json. */
static bool launch_link(const cluster_record *record)
{
    char from[CLUSTER_PATH_BYTES], to[CLUSTER_PATH_BYTES];

    return join(from, record->path, "record.json", NULL) == GP_OK &&
           join(to, record->path, "launch.json", NULL) == GP_OK && (link(from, to) == 0 || errno == EEXIST);
}

/* Return whether load() can fall back to launch.json. */
static bool launch_linked(const cluster_record *record)
{
    char path[CLUSTER_PATH_BYTES];

    return join(path, record->path, "launch.json", NULL) == GP_OK && access(path, F_OK) == 0;
}

/* Replace record.json. */
static gp_status record_replace(const cluster_record *record, const gp_buffer *text, gp_error *err)
{
    static const char *const launched[] = { "record.json", "command.json", NULL };
    const bool launching = record->job.state == CLUSTER_LAUNCHING;
    const bool first = launching && record->stored == NULL;
    char path[CLUSTER_PATH_BYTES];
    gp_file_draft draft;
    gp_status status = join(path, record->path, "record.json", err);

    if (status == GP_OK)
        status = gp_file_draft_open(&draft, path, err);
    if (status != GP_OK)
        return status;
    /* A power failure may then leave an empty file. An empty first record counts as none: the
     * launch follows its sync. A later one is replaced by launch.json. */
    draft.unsynced = first || launch_linked(record);
    draft.ordered = !draft.unsynced;
    if (fchmod(draft.fd, 0600) != 0 || !gp_write_all(draft.fd, text->data, text->bytes)) {
        status = gp_fail_errno(err, GP_EIO, "cannot write %s", path);
        gp_file_draft_discard(&draft);
    } else {
        status = gp_file_draft_commit(&draft, err);
    }
    if (status == GP_OK && first)
        (void)launch_link(record); /* without hard links, later records are written in order */
    /* A power failure must not undo the record of a job that is launched next, nor its command.
     * Other records may fall back to an earlier one: the machine then looks for the job again. */
    if (status == GP_OK && launching && !gp_files_sync(record->path, launched))
        status = gp_fail_errno(err, GP_EIO, "cannot write %s", record->path);
    return status;
}

gp_status cluster_record_store(cluster_record *record, gp_error *err)
{
    gp_buffer text;
    gp_status status;

    gp_buffer_init(&text, CLUSTER_RECORD_MAX);
    status = record_format(record, &text, err);
    if (status == GP_OK && record->stored != NULL && strcmp(record->stored, gp_buffer_text(&text)) == 0) {
        gp_buffer_deinit(&text);
        link_id(record); /* another job may have taken the id from this one */
        return GP_OK;
    }
    gp_fault_point("cluster-record");
    if (status == GP_OK)
        status = record_replace(record, &text, err);
    if (status == GP_OK) {
        size_t bytes;

        link_id(record);
        gp_free(record->stored);
        record->stored = (char *)gp_buffer_take(&text, &bytes);
        gp_fault_point("cluster-recorded");
    }
    gp_buffer_deinit(&text);
    return status;
}

gp_status cluster_record_create(cluster_record *record, const char *root, const char *json, size_t bytes,
                                gp_error *err)
{
    char name[CLUSTER_NAME_BYTES];
    gp_status status;

    record->lock = -1;
    record->stored = NULL;
    for (int tries = 0; tries < CREATE_TRIES; tries++) {
        status = cluster_name_new(name, err);
        if (status == GP_OK)
            status = join(record->path, root, name, err);
        if (status == GP_OK)
            status = cluster_folder_create(record->path, json, bytes, err);
        if (status == GP_OK)
            status = lock_try(&record->lock, record->path, err);
        /* GP_EBUSY: the name is taken; GP_ENOENT: the new folder was discarded as an old one */
        if (status != GP_EBUSY && status != GP_ENOENT)
            break;
    }
    if (status != GP_OK)
        return status;
    cluster_job_init(&record->job, name);
    return GP_OK;
}

/* Read a file of the record. GP_ENOENT: it is missing or empty. */
static gp_status load_file(cluster_record *record, const char *name, gp_error *err)
{
    char path[CLUSTER_PATH_BYTES];
    uint8_t *text = NULL;
    size_t bytes;
    gp_status status = join(path, record->path, name, err);

    if (status != GP_OK)
        return status;
    status = gp_file_read(&text, &bytes, path, CLUSTER_RECORD_MAX, err);
    if (status == GP_ELIMIT) /* too large, or not a regular file */
        status = err->code = GP_ECORRUPT;
    if (status == GP_OK && bytes == 0)
        status = gp_fail(err, GP_ENOENT, "%s is empty", path);
    if (status == GP_OK)
        status = record_parse(record, (char *)text, bytes, path, err);
    if (status != GP_OK) {
        gp_free(text);
        return status;
    }
    record->stored = (char *)text;
    return GP_OK;
}

/* A power failure can leave an empty record. Then continue from the record before the launch; the
 * machine looks for the job again. */
static gp_status load(cluster_record *record, gp_error *err)
{
    gp_error ignored;
    gp_status status = load_file(record, "record.json", err);

    if (status == GP_ENOENT && load_file(record, "launch.json", &ignored) == GP_OK) {
        gp_free(record->stored);
        record->stored = NULL; /* so that the next store writes record.json */
        status = GP_OK;
    }
    return status;
}

gp_status cluster_record_read(cluster_record *record, const char *root, const char *name, gp_error *err)
{
    gp_status status = join(record->path, root, name, err);

    record->lock = -1;
    record->stored = NULL;
    if (status == GP_OK)
        status = owner_check(root, record->path, err);
    if (status == GP_OK)
        status = load(record, err);
    gp_free(record->stored);
    record->stored = NULL;
    return status;
}

gp_status cluster_record_open(cluster_record *record, const char *root, const char *name, int wait_ms,
                              gp_error *err)
{
    gp_status status = join(record->path, root, name, err);

    record->lock = -1;
    record->stored = NULL;
    if (status == GP_OK)
        status = owner_check(root, record->path, err);
    if (status == GP_OK)
        status = lock_wait(&record->lock, record->path, wait_ms, err);
    if (status == GP_OK)
        status = load(record, err);
    if (status != GP_OK)
        cluster_record_close(record);
    return status;
}

void cluster_record_close(cluster_record *record)
{
    if (record->lock >= 0)
        close(record->lock);
    record->lock = -1;
    gp_free(record->stored);
    record->stored = NULL;
}

/* ---- folders ---- */

gp_status cluster_records_list(const char *root,
                               gp_status (*visit)(void *context, const char *name, gp_error *err),
                               void *context, gp_error *err)
{
    DIR *directory = opendir(root);
    gp_status status = GP_OK;
    uint32_t count = 0;
    struct dirent *entry;

    if (directory == NULL && errno == ENOENT)
        return GP_OK;
    if (directory == NULL)
        return gp_fail_errno(err, GP_EIO, "cannot read %s", root);
    while (status == GP_OK && (errno = 0, entry = readdir(directory)) != NULL) {
        char path[CLUSTER_PATH_BYTES];

        if (!cluster_name_valid(entry->d_name) || join(path, root, entry->d_name, NULL) != GP_OK ||
            owner_check(root, path, NULL) == GP_EPERM)
            continue;
        status = ++count > CLUSTER_RECORDS_MAX
                     ? gp_fail(err, GP_ELIMIT, "%s has more than %d jobs; remove old ones", root,
                               CLUSTER_RECORDS_MAX)
                     : visit(context, entry->d_name, err);
    }
    if (status == GP_OK && errno != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot read %s", root);
    closedir(directory);
    return status;
}

/* A search by id. */
typedef struct search {
    const char *root, *profile, *id;
    cluster_record record;
    bool found;
} search;

static gp_status search_visit(void *context, const char *name, gp_error *err)
{
    search *s = context;
    gp_error ignored;
    (void)err;

    if (!s->found && cluster_record_read(&s->record, s->root, name, &ignored) == GP_OK)
        s->found = strcmp(s->record.job.id, s->id) == 0 && strcmp(s->record.profile, s->profile) == 0;
    return GP_OK;
}

gp_status cluster_record_find(char name[CLUSTER_NAME_BYTES], const char *root, const char *profile,
                              const char *id, gp_error *err)
{
    search s = { .root = root, .profile = profile, .id = id };
    char path[CLUSTER_PATH_BYTES], target[CLUSTER_NAME_BYTES] = "";
    gp_error ignored;
    ssize_t bytes = -1;
    gp_status status = GP_OK;

    if (cluster_name_valid(id) && cluster_record_read(&s.record, root, id, &ignored) == GP_OK &&
        strcmp(s.record.profile, profile) == 0) {
        snprintf(name, CLUSTER_NAME_BYTES, "%s", id);
        return GP_OK;
    }
    if (id_path(path, root, profile, id))
        bytes = readlink(path, target, sizeof(target) - 1);
    if (bytes > 0) {
        target[bytes] = '\0';
        if (cluster_name_valid(target))
            search_visit(&s, target, &ignored);
    }
    if (!s.found)
        status = cluster_records_list(root, search_visit, &s, err);
    if (status != GP_OK)
        return status;
    /* An earlier id of the job, which `submit` may have printed: a launch that the engine accepted
     * late has replaced it. */
    if (!s.found && cluster_name_valid(target))
        s.found = cluster_record_read(&s.record, root, target, &ignored) == GP_OK &&
                  strcmp(s.record.profile, profile) == 0;
    if (!s.found)
        return gp_fail(err, GP_ENOENT,
                       "profile '%s' has no job '%.64s'; 'gradpool jobs --profile %s --all' lists them",
                       profile, id, profile);
    snprintf(name, CLUSTER_NAME_BYTES, "%s", s.record.job.name);
    return GP_OK;
}

/* Return whether a file is empty or missing. */
static bool is_empty(const char *folder, const char *name)
{
    char path[CLUSTER_PATH_BYTES];
    struct stat file;

    return join(path, folder, name, NULL) == GP_OK &&
           (stat(path, &file) != 0 ? errno == ENOENT : file.st_size == 0);
}

void cluster_record_discard(const char *root, const char *name)
{
    static const char *const files[] = { "record.json", "launch.json", "command.json", "lock" };
    char folder[CLUSTER_PATH_BYTES], path[CLUSTER_PATH_BYTES];
    struct stat file;
    gp_error ignored;
    int lock;

    if (join(folder, root, name, NULL) != GP_OK || owner_check(root, folder, NULL) != GP_OK ||
        stat(folder, &file) != 0 || time(NULL) - file.st_mtime < YOUNG_S ||
        lock_try(&lock, folder, &ignored) != GP_OK)
        return;
    /* a record that appeared before the lock */
    if (is_empty(folder, files[0]) && is_empty(folder, files[1])) {
        for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
            if (join(path, folder, files[i], NULL) == GP_OK)
                unlink(path);
        if (join(path, folder, "attempts", NULL) == GP_OK)
            rmdir(path);
        rmdir(folder);
    }
    close(lock);
}
