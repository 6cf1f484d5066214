/* Files of a sweep; sweep_folder.h lists them. */
#include "client/sweep/sweep_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/runs/run_reader.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/fault.h"
#include "common/base/system/file.h"
#include "common/base/text/json.h"
#include "proto/message/limits.h"

enum { TRIES = 1000, PLAN_BYTES_MAX = 64 << 10, OWNER_BYTES = 100, COPY_BYTES = 1 << 20, LOCK_MS = 1000 };

static const char *const methods[] = { [GP_SEARCH_BAYES] = "bayes",
                                       [GP_SEARCH_RANDOM] = "random",
                                       [GP_SEARCH_SOBOL] = "sobol",
                                       [GP_SEARCH_GRID] = "grid" };

const char *sweep_method_word(gp_search_method method)
{
    return methods[method];
}

bool sweep_method_find(const char *word, gp_search_method *out)
{
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        if (strcmp(word, methods[i]) == 0) {
            *out = (gp_search_method)i;
            return true;
        }
    }
    return false;
}

/* ---- plan ---- */

void sweep_plan_init(sweep_plan *plan)
{
    memset(plan, 0, sizeof(*plan));
    plan->goal = NAN;
    plan->failures_max = SWEEP_FAILURES_MAX;
    plan->models = 1;
    gp_buffer_init(&plan->space, GP_SEARCH_SPACE_BYTES_MAX);
    gp_buffer_init(&plan->words, PLAN_BYTES_MAX);
}

void sweep_plan_deinit(sweep_plan *plan)
{
    gp_buffer_deinit(&plan->space);
    gp_buffer_deinit(&plan->words);
}

gp_status sweep_plan_word(sweep_plan *plan, const char *word, gp_error *err)
{
    return gp_buffer_append(&plan->words, word, strlen(word) + 1, err);
}

const char *sweep_plan_next(const sweep_plan *plan, const char *word)
{
    const char *words = (const char *)plan->words.data;
    const char *next = word == NULL ? words : word + strlen(word) + 1;

    return plan->words.bytes > 0 && next < words + plan->words.bytes ? next : NULL;
}

bool sweep_plan_trains(const sweep_plan *plan)
{
    const char *word = sweep_plan_next(plan, NULL);

    return word != NULL && strcmp(word, "train") == 0;
}

gp_status sweep_folder_save(const sweep_folder *folder, const sweep_plan *plan, gp_error *err)
{
    char path[SWEEP_PATH_MAX + 20], key[33];
    gp_json_writer writer;
    gp_buffer text;
    gp_status status;

    for (int i = 0; i < 16; i++)
        snprintf(key + 2 * i, 3, "%02x", plan->key[i]);
    gp_buffer_init(&text, GP_JSON_BYTES_MAX);
    gp_json_writer_init(&writer, &text, true);
    gp_json_begin_object(&writer, NULL);
    gp_json_put_text(&writer, "space", gp_buffer_text(&plan->space));
    gp_json_put_text(&writer, "method", methods[plan->method]);
    gp_json_put_integer(&writer, "seed", (int64_t)plan->seed);
    gp_json_put_text(&writer, "objective", plan->objective);
    gp_json_put_bool(&writer, "minimize", plan->minimize);
    gp_json_put_integer(&writer, "trials", plan->trials);
    gp_json_put_integer(&writer, "concurrent", plan->concurrent);
    gp_json_put_integer(&writer, "workers_min", plan->workers_min);
    gp_json_put_integer(&writer, "workers_max", plan->workers_max);
    gp_json_put_integer(&writer, "repeats", plan->repeats);
    gp_json_put_integer(&writer, "asha_eta", plan->asha_eta);
    gp_json_put_integer(&writer, "epochs_min", plan->epochs_min);
    gp_json_put_integer(&writer, "epochs_max", plan->epochs_max);
    gp_json_put_number(&writer, "until", plan->goal);
    gp_json_put_integer(&writer, "max_failures", plan->failures_max);
    gp_json_put_integer(&writer, "models", plan->models);
    gp_json_put_integer(&writer, "priority", plan->priority);
    gp_json_put_text(&writer, "directory", plan->directory);
    gp_json_put_text(&writer, "key", key);
    gp_json_begin_array(&writer, "words");
    for (const char *word = NULL; (word = sweep_plan_next(plan, word)) != NULL;)
        gp_json_put_text(&writer, NULL, word);
    gp_json_end_array(&writer);
    gp_json_end_object(&writer);
    status = gp_json_writer_finish(&writer, err);
    snprintf(path, sizeof(path), "%s/sweep.json", folder->path);
    if (status == GP_OK)
        status = gp_file_write(path, text.data, text.bytes, err);
    gp_buffer_deinit(&text);
    return status;
}

static bool read_key(const char *text, uint8_t key[16])
{
    if (strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32)
        return false;
    for (int i = 0; i < 16; i++) {
        char byte[3] = { text[2 * i], text[2 * i + 1], '\0' };

        key[i] = (uint8_t)strtoul(byte, NULL, 16);
    }
    return true;
}

/* Read a number of sweep.json between min and max. */
static bool read_number(const gp_json *json, const char *name, int64_t min, int64_t max, uint32_t *out)
{
    int64_t number = gp_json_integer(gp_json_member(json, name), -1);

    *out = (uint32_t)number;
    return number >= min && number <= max;
}

/* Read the limits, which may be missing. */
static bool read_limits(const gp_json *json, sweep_plan *plan)
{
    plan->goal = gp_json_number(gp_json_member(json, "until"), NAN);
    return (gp_json_member(json, "max_failures") == NULL ||
            read_number(json, "max_failures", 0, SWEEP_TRIALS_MAX, &plan->failures_max)) &&
           (gp_json_member(json, "models") == NULL ||
            read_number(json, "models", 1, SWEEP_TRIALS_MAX, &plan->models));
}

/* Read sweep.json, which contains the space. NULL: it is missing, unreadable or malformed. */
static gp_json *read_document(const sweep_folder *folder)
{
    char path[SWEEP_PATH_MAX + 20];
    uint8_t *text = NULL;
    size_t bytes;
    gp_json *json = NULL;

    snprintf(path, sizeof(path), "%s/sweep.json", folder->path);
    if (gp_file_read(&text, &bytes, path, GP_JSON_BYTES_MAX, NULL) != GP_OK ||
        gp_json_parse(&json, (const char *)text, bytes, NULL) != GP_OK)
        json = NULL;
    gp_free(text);
    return json;
}

static gp_status read_plan(const sweep_folder *folder, sweep_plan *plan, gp_error *err)
{
    gp_json *json = read_document(folder);
    const gp_json *words = gp_json_member(json, "words");
    const char *space = gp_json_text(gp_json_member(json, "space"), "");
    int64_t seed = gp_json_integer(gp_json_member(json, "seed"), -1);
    int64_t priority = gp_json_integer(gp_json_member(json, "priority"), 0);
    int64_t repeats = gp_json_integer(gp_json_member(json, "repeats"), 0); /* missing in older files */
    bool valid = json != NULL && gp_json_count(words) >= 1 && gp_json_count(words) <= SWEEP_WORDS_MAX &&
                 seed >= 0 && repeats >= 0 && repeats <= SWEEP_REPEATS_MAX && priority >= -GP_PRIORITY_MAX &&
                 priority <= GP_PRIORITY_MAX;
    gp_status status = gp_buffer_append(&plan->space, space, strlen(space), err);

    plan->seed = (uint64_t)seed;
    plan->repeats = (uint32_t)repeats;
    plan->priority = (int32_t)priority;
    plan->minimize = gp_json_bool(gp_json_member(json, "minimize"), false);
    snprintf(plan->objective, sizeof(plan->objective), "%s",
             gp_json_text(gp_json_member(json, "objective"), ""));
    snprintf(plan->directory, sizeof(plan->directory), "%s",
             gp_json_text(gp_json_member(json, "directory"), ""));
    valid = valid && sweep_method_find(gp_json_text(gp_json_member(json, "method"), ""), &plan->method) &&
            read_key(gp_json_text(gp_json_member(json, "key"), ""), plan->key) &&
            read_number(json, "trials", 1, SWEEP_TRIALS_MAX, &plan->trials) &&
            read_number(json, "concurrent", 0, SWEEP_CONCURRENT_MAX, &plan->concurrent) &&
            read_number(json, "workers_min", 1, INT32_MAX, &plan->workers_min) &&
            read_number(json, "workers_max", plan->workers_min, INT32_MAX, &plan->workers_max) &&
            read_number(json, "asha_eta", 0, INT32_MAX, &plan->asha_eta) &&
            read_number(json, "epochs_min", 0, INT32_MAX, &plan->epochs_min) &&
            read_number(json, "epochs_max", 0, INT32_MAX, &plan->epochs_max) && read_limits(json, plan);
    for (size_t i = 0; valid && status == GP_OK && i < gp_json_count(words); i++)
        status = sweep_plan_word(plan, gp_json_text(gp_json_element(words, i), ""), err);
    gp_json_free(json);
    if (status == GP_OK && !valid)
        status = gp_fail(err, GP_ECORRUPT, "%s/sweep.json is malformed", folder->path);
    return status;
}

/* ---- folder ---- */

/* Make the folder gradpool-sweeps/DATE-TIME-NAME. */
static gp_status make_named(char *path, size_t bytes, const char *name, gp_error *err)
{
    time_t now = time(NULL);
    char stamp[32], clean[64];
    struct tm local;

    localtime_r(&now, &local);
    strftime(stamp, sizeof(stamp), "%Y-%m-%d-%H%M%S", &local);
    snprintf(clean, sizeof(clean), "%s", name);
    for (char *c = clean; *c != '\0'; c++)
        if (strchr(" \t\"'/:", *c) != NULL || (unsigned char)*c < ' ')
            *c = '_';
    if (mkdir("gradpool-sweeps", 0777) != 0 && errno != EEXIST)
        return gp_fail_errno(err, GP_EIO, "cannot create the folder gradpool-sweeps");
    for (int i = 1; i <= TRIES; i++) {
        if (i == 1)
            snprintf(path, bytes, "gradpool-sweeps/%s-%s", stamp, clean);
        else
            snprintf(path, bytes, "gradpool-sweeps/%s-%s-%d", stamp, clean, i);
        if (mkdir(path, 0777) == 0)
            return GP_OK;
        if (errno != EEXIST)
            break;
    }
    return gp_fail_errno(err, GP_EIO, "cannot create the folder %s", path);
}

static gp_status set_path(sweep_folder *folder, const char *path, gp_error *err)
{
    char *absolute = realpath(path, NULL);
    gp_status status = GP_OK;

    if (absolute == NULL)
        return gp_fail_errno(err, GP_ENOENT, "cannot open the folder %s", path);
    if ((size_t)snprintf(folder->path, sizeof(folder->path), "%s", absolute) >= sizeof(folder->path))
        status = gp_fail(err, GP_ELIMIT, "the path of the sweep is longer than %zu bytes",
                         sizeof(folder->path) - 1);
    free(absolute);
    return status;
}

/* Write the owner of the lock: the process id, and the name of this host, because several hosts may
 * share the folder. */
static void own_text(char text[OWNER_BYTES], int pid)
{
    char host[64] = "";

    gethostname(host, sizeof(host) - 1);
    snprintf(text, OWNER_BYTES, "%d %s\n", pid, host);
}

/* Become the controller of the sweep. */
static gp_status take_lock(sweep_folder *folder, gp_error *err)
{
    char path[SWEEP_PATH_MAX + 20], text[OWNER_BYTES];
    gp_status status;
    int pid;

    snprintf(path, sizeof(path), "%s/lock", folder->path);
    folder->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (folder->lock < 0)
        return gp_fail_errno(err, GP_EIO, "cannot write to the folder %s", folder->path);
    status = gp_file_lock_wait(folder->lock, LOCK_MS); /* `sweep add` may hold it for a short time */
    if (status == GP_EBUSY) {
        pid = sweep_folder_controller(folder->path);
        return pid == 0
                   ? gp_fail(err, GP_EBUSY, "a process on another host runs the sweep %s", folder->path)
                   : gp_fail(err, GP_EBUSY, "process %d runs this sweep; end it with `gradpool sweep end %s`",
                             pid, folder->path);
    }
    if (status != GP_OK)
        return gp_fail_errno(err, status, "cannot lock %s", path);
    own_text(text, (int)getpid());
    if (ftruncate(folder->lock, 0) != 0 || pwrite(folder->lock, text, strlen(text), 0) < 0)
        return gp_fail_errno(err, GP_EIO, "cannot write %s", path);
    return GP_OK;
}

int sweep_folder_controller(const char *folder)
{
    char path[SWEEP_PATH_MAX + 20], text[OWNER_BYTES] = "", expected[OWNER_BYTES];
    int fd, pid = 0;

    snprintf(path, sizeof(path), "%s/lock", folder);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    if (gp_file_lock(fd) == GP_EBUSY && pread(fd, text, sizeof(text) - 1, 0) > 0)
        pid = atoi(text);
    close(fd);
    own_text(expected, pid);
    return pid > 1 && strcmp(text, expected) == 0 ? pid : 0;
}

/* Fail because the folder of a new sweep already exists. */
static gp_status fail_exists(const char *path, gp_error *err)
{
    char plan[SWEEP_PATH_MAX + 20];

    snprintf(plan, sizeof(plan), "%s/sweep.json", path);
    if (access(plan, F_OK) != 0)
        return gp_fail(err, GP_EBUSY, "the folder %s exists and has no sweep; use another --folder", path);
    return gp_fail(err, GP_EBUSY,
                   "%.80s has a sweep; view it with `gradpool sweep show`, continue it with `gradpool sweep "
                   "--resume`, or use another --folder",
                   path);
}

/* Return whether a folder has nothing but files of sweep_folder_create(). That function may have
 * been killed before it wrote sweep.json. */
static bool is_unfinished(const char *path)
{
    static const char *const own[] = { ".", "..", "lock", "trials", "checkpoints" };
    static const char draft[] = "sweep.json.";
    DIR *dir = opendir(path);
    const struct dirent *entry;
    bool unfinished = dir != NULL;

    while (unfinished && (entry = readdir(dir)) != NULL) {
        unfinished = strncmp(entry->d_name, draft, sizeof(draft) - 1) == 0;
        for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
            unfinished |= strcmp(entry->d_name, own[i]) == 0;
    }
    if (dir != NULL)
        closedir(dir);
    return unfinished;
}

/* Create an empty folder in the folder of the sweep; an empty one may exist. */
static gp_status make_inner(const sweep_folder *folder, const char *name, gp_error *err)
{
    char path[SWEEP_PATH_MAX + 20];

    snprintf(path, sizeof(path), "%s/%s", folder->path, name);
    rmdir(path);
    return mkdir(path, 0777) == 0 ? GP_OK : gp_fail_errno(err, GP_EIO, "cannot create the folder %s", path);
}

/* sweep.json comes last: a folder that has it can be resumed. */
gp_status sweep_folder_create(sweep_folder *folder, const char *path, const char *name,
                              const sweep_plan *plan, gp_error *err)
{
    char made[SWEEP_PATH_MAX];
    gp_status status = GP_OK;

    *folder = (sweep_folder){ .lock = -1, .journal = -1 };
    if (path == NULL)
        status = make_named(made, sizeof(made), name, err);
    else if (mkdir(path, 0777) != 0 && errno != EEXIST)
        status = gp_fail_errno(err, GP_EIO, "cannot create the folder %s", path);
    else if (!is_unfinished(path))
        status = fail_exists(path, err);
    if (status == GP_OK)
        status = set_path(folder, path == NULL ? made : path, err);
    if (status == GP_OK)
        status = take_lock(folder, err);
    if (status == GP_OK && !is_unfinished(folder->path)) /* another process had the lock before */
        status = fail_exists(folder->path, err);
    if (status == GP_OK)
        status = make_inner(folder, "trials", err);
    if (status == GP_OK)
        status = make_inner(folder, "checkpoints", err);
    if (status == GP_OK)
        status = sweep_folder_save(folder, plan, err);
    if (status == GP_OK)
        gp_fault_point("sweep-created");
    else
        sweep_folder_close(folder);
    return status;
}

gp_status sweep_folder_open(sweep_folder *folder, const char *path, bool lock, sweep_plan *plan,
                            gp_error *err)
{
    char file[SWEEP_PATH_MAX + 20];
    gp_status status;

    *folder = (sweep_folder){ .lock = -1, .journal = -1 };
    status = set_path(folder, path, err);
    snprintf(file, sizeof(file), "%s/sweep.json", folder->path);
    if (status == GP_OK && access(file, F_OK) != 0)
        status = gp_fail(err, GP_ENOENT, "%s is not the folder of a sweep: it has no sweep.json", path);
    if (status == GP_OK && lock)
        status = take_lock(folder, err);
    if (status == GP_OK)
        status = read_plan(folder, plan, err);
    if (status != GP_OK)
        sweep_folder_close(folder);
    return status;
}

void sweep_folder_close(sweep_folder *folder)
{
    if (folder->journal >= 0)
        close(folder->journal);
    if (folder->lock >= 0)
        close(folder->lock);
    folder->journal = folder->lock = -1;
}

/* ---- journal ---- */

static gp_status replay_line(void *context, const sweep_line *line, gp_error *err)
{
    return sweep_replay(context, line, err);
}

gp_status sweep_folder_replay(sweep_folder *folder, sweep *core, gp_error *err)
{
    char path[SWEEP_PATH_MAX + 20];
    uint8_t *text = NULL;
    size_t bytes = 0, kept = 0;
    gp_status status;

    snprintf(path, sizeof(path), "%s/trials.jsonl", folder->path);
    if (folder->lock >= 0)
        folder->journal = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (folder->lock >= 0 && folder->journal < 0)
        return gp_fail_errno(err, GP_EIO, "cannot write %s", path);
    status = gp_file_read(&text, &bytes, path, SWEEP_JOURNAL_BYTES_MAX, err);
    if (status == GP_ENOENT && folder->lock < 0)
        return GP_OK; /* no trial yet */
    if (status == GP_OK)
        status = sweep_lines_decode((const char *)text, bytes, &kept, replay_line, core, err);
    gp_free(text);
    if (status == GP_ECORRUPT)
        gp_error_prefix(err, "%s", path);
    if (status != GP_OK || folder->lock < 0)
        return status;
    /* Lines that a killed controller wrote become durable before anything depends on them. */
    if (ftruncate(folder->journal, (off_t)kept) != 0 || fsync(folder->journal) != 0 ||
        !gp_directory_sync(folder->path))
        return gp_fail_errno(err, GP_EIO, "cannot write %s", path);
    return GP_OK;
}

gp_status sweep_folder_append(sweep_folder *folder, const gp_buffer *lines, gp_error *err)
{
    if (gp_write_all(folder->journal, lines->data, lines->bytes) && fdatasync(folder->journal) == 0)
        return GP_OK;
    return gp_fail_errno(err, GP_EIO, "cannot write %s/trials.jsonl", folder->path);
}

/* ---- trials ---- */

void sweep_folder_trial(const sweep_folder *folder, uint32_t trial, const char *suffix,
                        char path[SWEEP_PATH_MAX + 100])
{
    snprintf(path, SWEEP_PATH_MAX + 100, "%s/trials/%04" PRIu32 "%s", folder->path, trial,
             suffix != NULL ? suffix : "");
}

void sweep_folder_checkpoints(const sweep_folder *folder, uint32_t trial, char path[SWEEP_PATH_MAX + 100])
{
    snprintf(path, SWEEP_PATH_MAX + 100, "%s/checkpoints/%04" PRIu32, folder->path, trial);
}

/* Copy a file and wait until the copy is on disk. Replaces `to`. */
static gp_status copy_file(const char *from, const char *to, gp_error *err)
{
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    char *block = gp_malloc(COPY_BYTES);
    ssize_t got = -1;
    bool copied = out >= 0 && block != NULL;

    while (copied && (got = read(in, block, COPY_BYTES)) > 0)
        for (ssize_t done = 0, put = 0; copied && done < got; done += put) {
            put = write(out, block + done, (size_t)(got - done));
            copied = put > 0;
        }
    copied = copied && got == 0 && fsync(out) == 0;
    if (out >= 0 && close(out) != 0)
        copied = false;
    gp_status status = copied ? GP_OK : gp_fail_errno(err, GP_EIO, "cannot copy %s to %s", from, to);

    if (in >= 0)
        close(in);
    gp_free(block);
    return status;
}

gp_status sweep_folder_link_best(const sweep_folder *folder, uint32_t trial, gp_error *err)
{
    char model[SWEEP_PATH_MAX + 100], draft[SWEEP_PATH_MAX + 20], best[SWEEP_PATH_MAX + 20];

    sweep_folder_trial(folder, trial, "/result/model.onnx", model);
    snprintf(draft, sizeof(draft), "%s/best.onnx.new", folder->path);
    snprintf(best, sizeof(best), "%s/best.onnx", folder->path);
    unlink(draft);
    if (access(model, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return GP_OK;
    gp_status status = link(model, draft) == 0 ? GP_OK : copy_file(model, draft, err);

    gp_fault_point("sweep-linked");
    /* rename() of two links to one file does nothing and leaves both */
    if (status == GP_OK && rename(draft, best) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot rename %s to %s", draft, best);
    unlink(draft);
    return status;
}
