/* Implement sweep_inbox.h. */
#include "client/sweep/sweep_inbox.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/fault.h"
#include "common/base/system/file.h"
#include "common/base/text/json.h"

enum { PATH = SWEEP_PATH_MAX + 100 };

static const char request_kind[] = ".json", refused_kind[] = ".refused";

void sweep_inbox_path(const sweep_folder *folder, const char *number, const char *kind,
                      char path[SWEEP_PATH_MAX + 100])
{
    snprintf(path, PATH, "%s/inbox/%.*s%s", folder->path, SWEEP_REQUEST_BYTES - 1, number, kind);
}

/* Choose the number of a request: the time in nanoseconds, and parts that no other process of this
 * host chooses. The number is larger than those in the inbox, although the clock may have gone back
 * since. */
static void make_number(const char *inbox, char number[SWEEP_REQUEST_BYTES])
{
    static unsigned count;
    DIR *dir = opendir(inbox);
    struct dirent *entry;
    struct timespec now;
    uint64_t time_ns, other_ns;

    clock_gettime(CLOCK_REALTIME, &now);
    time_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    while (dir != NULL && (entry = readdir(dir)) != NULL)
        if (sscanf(entry->d_name, "%16" SCNx64 "-", &other_ns) == 1 && other_ns >= time_ns)
            time_ns = other_ns + 1;
    if (dir != NULL)
        closedir(dir);
    snprintf(number, SWEEP_REQUEST_BYTES, "%016" PRIx64 "-%d-%u", time_ns, (int)getpid(), count++ % 1000);
}

gp_status sweep_inbox_put(const sweep_folder *folder, const char *values, uint32_t retry,
                          char number[SWEEP_REQUEST_BYTES], gp_error *err)
{
    char path[PATH];
    gp_json_writer writer;
    gp_json *json = NULL;
    gp_buffer text;
    gp_status status;

    sweep_inbox_path(folder, "", "", path);
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return gp_fail_errno(err, GP_EIO, "cannot create the folder %s", path);
    status = values != NULL ? gp_json_parse(&json, values, strlen(values), err) : GP_OK;
    if (status != GP_OK)
        return status;
    gp_buffer_init(&text, SWEEP_REQUEST_FILE_MAX);
    gp_json_writer_init(&writer, &text, false);
    gp_json_begin_object(&writer, NULL);
    if (values != NULL)
        gp_json_put_value(&writer, "values", json);
    else
        gp_json_put_integer(&writer, "retry", retry);
    gp_json_end_object(&writer);
    status = gp_json_writer_finish(&writer, err);
    sweep_inbox_path(folder, "", "", path);
    make_number(path, number);
    sweep_inbox_path(folder, number, request_kind, path);
    if (status == GP_OK)
        status = gp_file_write(path, text.data, text.bytes, err);
    gp_json_free(json);
    gp_buffer_deinit(&text);
    return status;
}

/* ---- the controller ---- */

/* Pass one request to the state machine.
 *   why  set to the reason if the request is refused
 * Returns whether the file is settled; otherwise it stays for the next controller. */
static bool take(const sweep_folder *folder, const sweep *core, const char *number,
                 bool (*feed)(void *context, sweep_event event), void *context, const char **why)
{
    char path[PATH];
    uint8_t *text = NULL;
    size_t bytes;
    gp_json *json = NULL;
    gp_buffer values;
    gp_json_writer writer;
    sweep_event event = { .kind = SWEEP_EVENT_RETRY, .text = number };
    int64_t retry;
    bool durable = true;

    sweep_inbox_path(folder, number, request_kind, path);
    if (sweep_requested(core, number) != 0)
        return true; /* an earlier controller was killed before it removed the file */
    if (gp_file_read(&text, &bytes, path, SWEEP_REQUEST_FILE_MAX, NULL) != GP_OK)
        return false;
    gp_buffer_init(&values, SWEEP_REQUEST_FILE_MAX);
    *why = "the request is malformed";
    if (gp_json_parse(&json, (const char *)text, bytes, NULL) == GP_OK) {
        retry = gp_json_integer(gp_json_member(json, "retry"), 0);
        if (retry >= 1 && retry <= SWEEP_TRIALS_MAX) {
            event.trial = (uint32_t)retry;
        } else {
            event.kind = SWEEP_EVENT_ADD;
            gp_json_writer_init(&writer, &values, false);
            gp_json_put_value(&writer, NULL, gp_json_member(json, "values"));
            event.values = gp_buffer_text(&values);
        }
        if (event.kind == SWEEP_EVENT_RETRY || gp_json_is_object(gp_json_member(json, "values"))) {
            durable = feed(context, event);
            *why =
                sweep_requested(core, number) != 0 ? NULL : "the sweep is ending, or the trial cannot be run";
        }
    }
    gp_json_free(json);
    gp_buffer_deinit(&values);
    gp_free(text);
    gp_fault_point("sweep-requested");
    return durable;
}

static int is_request(const struct dirent *entry)
{
    const char *kind = strrchr(entry->d_name, '.');

    return kind != NULL && strcmp(kind, request_kind) == 0 && entry->d_name[0] != '.' &&
           strlen(entry->d_name) < SWEEP_REQUEST_BYTES;
}

void sweep_inbox_take(const sweep_folder *folder, const sweep *core,
                      bool (*feed)(void *context, sweep_event event), void *context)
{
    char path[PATH], refused[PATH];
    struct dirent **entries = NULL;
    int count;

    sweep_inbox_path(folder, "", "", path);
    count = scandir(path, &entries, is_request, alphasort);
    for (int i = 0; i < count; i++) {
        char *number = entries[i]->d_name;
        const char *why = NULL;

        *strrchr(number, '.') = '\0';
        if (take(folder, core, number, feed, context, &why)) {
            sweep_inbox_path(folder, number, request_kind, path);
            sweep_inbox_path(folder, number, refused_kind, refused);
            if (why == NULL || gp_file_write(refused, why, strlen(why), NULL) == GP_OK)
                unlink(path);
        }
        free(entries[i]);
    }
    free(entries);
}
