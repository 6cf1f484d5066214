/* `gradpool jobs --profile`: one listing of the engine for all jobs of a profile. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/cluster/cluster_jobs.h"
#include "client/cli/show.h"
#include "common/base/clock.h"
#include "common/base/memory/alloc.h"

/* A job before the listing. */
typedef struct listed_job {
    char name[CLUSTER_NAME_BYTES];
    int64_t submitted_ms;
    uint64_t changes;
    bool ended, lost;
} listed_job;

typedef struct job_list {
    const cluster_place *place;
    listed_job *jobs;
    size_t count, capacity;
} job_list;

static gp_status list_visit(void *context, const char *name, gp_error *err)
{
    job_list *list = context;
    cluster_record record = { .lock = -1 };
    gp_error why;
    gp_status status = cluster_record_read(&record, list->place->site.root, name, &why);

    if (status == GP_ENOENT)
        cluster_record_discard(list->place->site.root, name);
    else if (status != GP_OK)
        fprintf(stderr, "gradpool jobs: %s\n", why.message);
    if (status != GP_OK || strcmp(record.profile, list->place->profile.name) != 0)
        return GP_OK;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 64 : 2 * list->capacity;
        listed_job *jobs = gp_realloc_array(list->jobs, capacity, sizeof(*jobs));

        if (jobs == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for %zu jobs", capacity);
        list->jobs = jobs;
        list->capacity = capacity;
    }
    list->jobs[list->count] = (listed_job){ .submitted_ms = record.submitted_ms,
                                            .changes = record.job.changes,
                                            .ended = record.job.state == CLUSTER_ENDED,
                                            .lost = record.job.end == CLUSTER_END_LOST };
    snprintf(list->jobs[list->count++].name, CLUSTER_NAME_BYTES, "%s", name);
    return GP_OK;
}

/* Newest first. */
static int by_submission(const void *left, const void *right)
{
    const listed_job *a = left, *b = right;

    if (a->submitted_ms != b->submitted_ms)
        return a->submitted_ms < b->submitted_ms ? 1 : -1;
    return strcmp(a->name, b->name);
}

/* The file whose modification time is that of the last listing. */
static void heard_path(const cluster_place *place, char path[CLUSTER_PATH_BYTES + 80])
{
    snprintf(path, CLUSTER_PATH_BYTES + 80, "%s/.listed-%s", place->site.root, place->profile.name);
}

static void heard_now(const cluster_place *place)
{
    char path[CLUSTER_PATH_BYTES + 80];
    int fd;

    heard_path(place, path);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0) {
        (void)futimens(fd, NULL);
        close(fd);
    }
}

/* Write "unknown since 14:02". */
static void unknown_since(const cluster_place *place, char text[64])
{
    char path[CLUSTER_PATH_BYTES + 80];
    struct stat file;
    struct tm local;

    heard_path(place, path);
    if (stat(path, &file) != 0) {
        snprintf(text, 64, "unknown");
        return;
    }
    localtime_r(&file.st_mtime, &local);
    strftime(text, 64,
             time(NULL) - file.st_mtime < 20 * 3600 ? "unknown since %H:%M" : "unknown since %Y-%m-%d %H:%M",
             &local);
}

/* Return whether the listing shows the job as live. */
static bool is_listed(const cluster_listing *listing, const char *name)
{
    for (size_t i = 0; i < listing->count; i++)
        if (listing->entries[i].state != CLUSTER_ENTRY_ENDED && strcmp(listing->entries[i].name, name) == 0)
            return true;
    return false;
}

typedef struct output {
    show_table *table; /* NULL: JSON */
    uint64_t count;
} output;

static void print_job(output *out, const cluster_view *view, const cluster_record *record)
{
    char step[24] = "-";

    if (out->table == NULL) {
        printf("%s\n  ", out->count++ == 0 ? "" : ",");
        cluster_view_json(view, record, "");
        return;
    }
    out->count++;
    if (view->step >= 0)
        snprintf(step, sizeof(step), "%" PRId64, view->step);
    show_cells(out->table, "%s\t%s\t%s\t%" PRIu32 "\t%s\t%s", view->job, gp_job_state_word(view->state),
               view->engine, record->job.attempt, step, view->reason);
}

/* Visit and print the jobs of one profile. */
static gp_status list_place(const cli_call *call, const cluster_place *place, bool all, output *out,
                            gp_error *err)
{
    const cli_common *options = call->options;
    job_list list = { .place = place };
    cluster_listing listing = { 0 };
    cluster_shared_listing shared = { .requested_ms = 0 };
    char unknown[64] = "";
    gp_error why;
    gp_status status = cluster_records_list(place->site.root, list_visit, &list, err);

    if (status == GP_OK && list.count > 0) {
        qsort(list.jobs, list.count, sizeof(*list.jobs), by_submission);
        shared.requested_ms = gp_now_ms();
        if (place->site.engine->list(&place->profile, &listing, &why) == GP_OK) {
            shared.listing = &listing;
            heard_now(place);
        } else {
            unknown_since(place, unknown);
            if (!options->quiet)
                fprintf(stderr, "profile '%s': %s\n", place->profile.name, why.message);
        }
    }
    for (size_t i = 0; status == GP_OK && i < list.count; i++) {
        cluster_record record = { .lock = -1 };
        cluster_pass_result pass;
        cluster_view view;
        gp_status visited;

        /* A job that ended needs a visit only if the engine has it all the same, or it was lost. */
        if (list.jobs[i].ended && !all && !is_listed(&listing, list.jobs[i].name))
            continue;
        shared.changes = list.jobs[i].changes;
        visited = cluster_visit(&place->site, list.jobs[i].name, false, 0, &shared, &record, &pass, &why);
        if (visited != GP_OK)
            visited = cluster_record_read(&record, place->site.root, list.jobs[i].name, &why);
        if (visited != GP_OK) {
            fprintf(stderr, "gradpool jobs: %s\n", why.message);
            continue;
        }
        cluster_view_of(&view, &place->site, &record, unknown[0] != '\0' ? unknown : NULL);
        if (all || !gp_job_state_ended(view.state))
            print_job(out, &view, &record);
    }
    cluster_listing_deinit(&listing);
    gp_free(list.jobs);
    return status;
}

gp_status cluster_jobs_list(cli_call *call, const char *profile, bool all, gp_error *err)
{
    const cli_common *options = call->options;
    cluster_place *place;
    output out = { .count = 0 };
    gp_status status = cluster_place_open(&place, profile, err);

    if (status != GP_OK)
        return status;
    if (options->json)
        printf("[");
    else
        out.table = show_table_new(6, "job\tstate\tengine\tattempts\tstep\treason");
    status = list_place(call, place, all, &out, err);
    if (options->json) {
        printf("%s]\n", out.count > 0 ? "\n" : "");
    } else if (out.count == 0) {
        show_table_free(out.table);
        if (status == GP_OK)
            printf(all ? "no jobs\n" : "no running or queued jobs\n");
    } else {
        show_table_print_free(out.table);
    }
    gp_free(place);
    return status;
}
