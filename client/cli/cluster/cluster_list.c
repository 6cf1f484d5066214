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
    bool ended, begun;   /* begun: an attempt has started */
    cluster_steps steps; /* with `begun`, if the engine fetches the steps of several jobs */
} listed_job;

/* The jobs of one array, for its line. */
typedef struct job_array {
    char name[CLUSTER_ARRAY_BYTES];
    uint32_t count, attempts, in_state[GP_JOB_LOST + 1];
} job_array;

typedef struct job_list {
    const cluster_place *place;
    bool all; /* show also jobs that have ended */
    listed_job *jobs;
    size_t count, capacity;
    job_array *arrays;
    size_t array_count;
} job_list;

/* Find or add the array of a record. NULL: out of memory. */
static job_array *array_of(job_list *list, const cluster_record *record)
{
    job_array *grown;

    for (size_t i = 0; i < list->array_count; i++)
        if (strcmp(list->arrays[i].name, record->array) == 0)
            return &list->arrays[i];
    grown = gp_realloc_array(list->arrays, list->array_count + 1, sizeof(*grown));
    if (grown == NULL)
        return NULL;
    list->arrays = grown;
    grown += list->array_count++;
    *grown = (job_array){ .count = 0 };
    snprintf(grown->name, sizeof(grown->name), "%s", record->array);
    return grown;
}

/* Count a job in the line of its array. */
static void array_add(job_list *list, const cluster_record *record)
{
    job_array *array = record->array[0] != '\0' ? array_of(list, record) : NULL;

    if (array == NULL)
        return;
    array->count++;
    array->attempts += record->job.attempt;
    array->in_state[cluster_state_of(&record->job)]++;
}

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
                                            .begun = record.job.attempt > 0,
                                            .steps = { -1, -1 } };
    snprintf(list->jobs[list->count++].name, CLUSTER_NAME_BYTES, "%s", name);
    if (list->jobs[list->count - 1].ended && !list->all)
        array_add(list, &record); /* it is not visited */
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

/* Fetch the steps of the newest CLUSTER_STEPS_MAX jobs that are shown. Return false if the engine
 * reads those of each job. */
static bool fetch_steps(job_list *list)
{
    const cluster_engine *engine = list->place->site.engine;
    char(*names)[CLUSTER_NAME_BYTES];
    cluster_steps *steps;
    size_t count = 0, done = 0;

    if (engine->steps == NULL || list->count < 2)
        return false;
    names = gp_calloc(CLUSTER_STEPS_MAX, sizeof(*names));
    steps = gp_calloc(CLUSTER_STEPS_MAX, sizeof(*steps));
    for (size_t i = 0; names != NULL && i < list->count && count < CLUSTER_STEPS_MAX; i++)
        if (list->jobs[i].begun && (list->all || !list->jobs[i].ended))
            memcpy(names[count++], list->jobs[i].name, sizeof(*names));
    if (steps != NULL && count > 0)
        engine->steps(&list->place->profile, names, count, steps);
    for (size_t i = 0; steps != NULL && done < count; i++)
        if (strcmp(list->jobs[i].name, names[done]) == 0)
            list->jobs[i].steps = steps[done++];
    gp_free(names);
    gp_free(steps);
    return true;
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

/* Keep the entry of a job that could not be visited. */
static void find_entry(const cluster_listing *listing, cluster_job *job)
{
    for (size_t i = 0; i < listing->count && !job->seen.live; i++)
        if (listing->entries[i].state != CLUSTER_ENTRY_ENDED &&
            strcmp(listing->entries[i].name, job->name) == 0) {
            job->seen.live = true;
            job->seen.entry = listing->entries[i];
        }
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

/* Print the line of an array: the state of the jobs that have gone furthest, and their counts. */
static void print_array(output *out, const cluster_place *place, const job_array *array, bool all)
{
    static const gp_job_state order[] = { GP_JOB_RUNNING, GP_JOB_STARTING, GP_JOB_QUEUED,   GP_JOB_STOPPING,
                                          GP_JOB_FAILED,  GP_JOB_LOST,     GP_JOB_CANCELED, GP_JOB_DONE };
    char counts[120] = "", job[CLUSTER_WORD_BYTES];
    gp_job_state state = 0;
    int bytes = 0;

    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        if (array->in_state[order[i]] == 0)
            continue;
        if (state == 0)
            state = order[i];
        bytes += snprintf(counts + bytes, sizeof(counts) - (size_t)bytes, "%s%" PRIu32 " %s",
                          bytes == 0 ? "" : ", ", array->in_state[order[i]], gp_job_state_word(order[i]));
    }
    if (state == 0 || (!all && gp_job_state_ended(state)))
        return;
    out->count++;
    snprintf(job, sizeof(job), "%s:%s", place->profile.name, array->name);
    show_cells(out->table, "%s\t%s\t%s\t%" PRIu32 "\t%s\t%s", job, gp_job_state_word(state), "-",
               array->attempts, "-", counts);
}

/* Visit and print the jobs of one profile. */
static gp_status list_place(const cli_call *call, const cluster_place *place, bool all, output *out,
                            gp_error *err)
{
    const cli_common *options = call->options;
    job_list list = { .place = place, .all = all };
    cluster_listing listing = { 0 };
    cluster_shared_listing shared = { .requested_ms = 0 };
    char unknown[64] = "";
    bool fetched = false;
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
        fetched = fetch_steps(&list);
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
        /* another command works on the job: show the record and the listing */
        if (visited != GP_OK)
            visited = cluster_record_read(&record, place->site.root, list.jobs[i].name, &why);
        if (visited != GP_OK) {
            fprintf(stderr, "gradpool jobs: %s\n", why.message);
            continue;
        }
        find_entry(&listing, &record.job);
        array_add(&list, &record);
        if (out->table != NULL && record.array[0] != '\0')
            continue;
        cluster_view_of(&view, &place->site, &record, unknown[0] != '\0' ? unknown : NULL,
                        fetched ? &list.jobs[i].steps : NULL);
        if (all || !gp_job_state_ended(view.state))
            print_job(out, &view, &record);
    }
    for (size_t i = 0; status == GP_OK && out->table != NULL && i < list.array_count; i++)
        print_array(out, place, &list.arrays[i], all);
    cluster_listing_deinit(&listing);
    gp_free(list.arrays);
    gp_free(list.jobs);
    return status;
}

static void output_begin(output *out, const cli_call *call)
{
    const cli_common *options = call->options;

    if (options->json)
        printf("[");
    else
        out->table = show_table_new(6, "job\tstate\tengine\tattempts\tstep\treason");
}

static void output_end(const output *out, bool json, bool all)
{
    if (json) {
        printf("%s]\n", out->count > 0 ? "\n" : "");
    } else if (out->count == 0) {
        show_table_free(out->table);
        printf(all ? "no jobs\n" : "no running or queued jobs\n");
    } else {
        show_table_print_free(out->table);
    }
}

gp_status cluster_jobs_list(cli_call *call, const char *profile, bool all, gp_error *err)
{
    const cli_common *options = call->options;
    cluster_place *place;
    output out = { .count = 0 };
    gp_status status = cluster_place_open(&place, profile, err);

    if (status != GP_OK)
        return status;
    output_begin(&out, call);
    status = list_place(call, place, all, &out, err);
    output_end(&out, options->json, all);
    gp_free(place);
    return status;
}

gp_status cluster_jobs_list_all(cli_call *call, bool all, gp_error *err)
{
    const cli_common *options = call->options;
    gp_profile_names *names = gp_calloc(1, sizeof(*names));
    output out = { .count = 0 };
    gp_status status;

    if (names == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the names of the profiles");
    status = gp_profile_list(names, err);
    if (status == GP_OK)
        output_begin(&out, call);
    for (uint32_t i = 0; status == GP_OK && i < names->count; i++) {
        gp_profile profile;
        cluster_place *place;
        gp_error why;
        gp_status opened = gp_profile_read(&profile, names->name[i], &why);

        if (opened == GP_OK && profile.type == GP_PROFILE_POOL)
            continue;
        if (opened == GP_OK)
            opened = cluster_place_open(&place, names->name[i], &why);
        if (opened == GP_OK) {
            opened = list_place(call, place, all, &out, &why);
            gp_free(place);
        }
        if (opened != GP_OK)
            fprintf(stderr, "profile '%s': %s\n", names->name[i], why.message);
    }
    if (status == GP_OK)
        output_end(&out, options->json, all);
    gp_free(names);
    return status;
}
