/* Draw the live picture of a training in another process from facts.json and metrics.jsonl. */
#include "client/cli/jobs/job_view.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/jobs/metrics_line.h"
#include "client/cli/view.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"
#include "common/base/text/json.h"

enum { LINE_BYTES_MAX = 4096, FACTS_BYTES_MAX = 1 << 16 };

/* Reader state of one training. */
struct job_view {
    char metrics[300];
    int fd; /* descriptor of metrics.jsonl; -1: the file does not exist yet */
    gp_view *picture;
    char line[LINE_BYTES_MAX]; /* incomplete last line */
    size_t used;
};

/* Return a nonnegative integer member; 0: missing or negative. */
static uint64_t whole(const gp_json *object, const char *key)
{
    int64_t value = gp_json_integer(gp_json_member(object, key), 0);

    return value < 0 ? 0 : (uint64_t)value;
}

/* Read facts.json. false: the file is missing or malformed. */
static bool read_info(const char *folder, gp_train_info *info)
{
    char path[300];
    gp_json *json = NULL;
    uint8_t *data;
    size_t bytes;

    snprintf(path, sizeof(path), "%s/facts.json", folder);
    if (gp_file_read(&data, &bytes, path, FACTS_BYTES_MAX, NULL) != GP_OK)
        return false;
    if (gp_json_parse(&json, (const char *)data, bytes, NULL) != GP_OK)
        json = NULL;
    gp_free(data);
    if (json == NULL)
        return false;
    /* metrics.jsonl contains the steps of rank 0 only */
    *info = (gp_train_info){ .workers = 1,
                             .batch = (uint32_t)whole(json, "batch"),
                             .steps_per_epoch = (uint32_t)whole(json, "steps_per_epoch"),
                             .epochs = (uint32_t)whole(json, "epochs"),
                             .samples = whole(json, "samples"),
                             .validation_samples = whole(json, "validation_samples"),
                             .parameters = whole(json, "parameters"),
                             .classes = (uint32_t)whole(json, "classes") };
    info->worker_index[0] =
        (uint32_t)gp_json_integer(gp_json_element(gp_json_member(json, "worker_index"), 0), 1);
    gp_json_free(json);
    return info->steps_per_epoch > 0 && info->epochs > 0;
}

job_view *job_view_new(const char *folder, FILE *out)
{
    gp_train_info info;
    job_view *view = NULL;

    if (read_info(folder, &info))
        view = gp_calloc(1, sizeof(*view));
    if (view == NULL)
        return NULL;
    view->fd = -1;
    snprintf(view->metrics, sizeof(view->metrics), "%s/metrics.jsonl", folder);
    view->picture = view_new(&(view_options){ .out = out, .live = true, .frequency = UINT32_MAX });
    if (view->picture == NULL) {
        gp_free(view);
        return NULL;
    }
    view_begin(view->picture, &info);
    return view;
}

static void show_regroup(job_view *view, const gp_json *json)
{
    const gp_json *index = gp_json_member(json, "worker_index");
    gp_train_rescale regroup = { .workers_before = (uint32_t)whole(json, "workers_before"),
                                 .workers = (uint32_t)whole(json, "workers"),
                                 .step = whole(json, "step"),
                                 .seconds = gp_json_number(gp_json_member(json, "paused_seconds"), NAN),
                                 .cause = "" };

    if (regroup.workers == 0 || regroup.workers > sizeof(regroup.worker_index) / sizeof(uint32_t))
        return;
    for (uint32_t i = 0; i < regroup.workers; i++)
        regroup.worker_index[i] = (uint32_t)gp_json_integer(gp_json_element(index, i), i + 1);
    view_regroup(view->picture, &regroup);
}

/* Parse one line of metrics.jsonl and show it. */
static void take_line(job_view *view)
{
    gp_train_step step = { 0 };
    gp_train_validation_result check = { 0 };
    gp_json *json = NULL;

    if (gp_json_parse(&json, view->line, view->used, NULL) != GP_OK)
        return; /* a line in an unknown format: skip it */
    if (gp_json_member(json, "validation_loss") != NULL) {
        metrics_get(&check, metrics_of_validation, json);
        view_check(view->picture, &check);
    } else if (gp_json_member(json, "workers_before") != NULL) {
        show_regroup(view, json);
    } else if (whole(json, "step") > 0 && gp_json_member(json, "time") != NULL) {
        metrics_get(&step, metrics_of_step, json);
        view_step(view->picture, &step);
    }
    gp_json_free(json);
}

bool job_view_feed(job_view *view)
{
    char bytes[1 << 14];
    struct stat open_one, named;
    ssize_t got;

    if (view->fd < 0)
        view->fd = open(view->metrics, O_RDONLY | O_CLOEXEC);
    if (view->fd < 0)
        return false;
    while ((got = read(view->fd, bytes, sizeof(bytes))) > 0)
        for (ssize_t i = 0; i < got; i++)
            if (bytes[i] == '\n') {
                take_line(view);
                view->used = 0;
            } else if (view->used < sizeof(view->line)) { /* a longer line is cut and does not parse */
                view->line[view->used++] = bytes[i];
            }
    /* a new attempt unlinks the old metrics.jsonl */
    return fstat(view->fd, &open_one) != 0 || stat(view->metrics, &named) != 0 ||
           open_one.st_ino != named.st_ino;
}

void job_view_free(job_view *view)
{
    if (view == NULL)
        return;
    view_free(view->picture);
    if (view->fd >= 0)
        close(view->fd);
    gp_free(view);
}
