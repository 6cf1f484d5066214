/* Find and visit jobs of clusters. */
#include "client/cli/cluster/cluster_jobs.h"

#include <inttypes.h>
#include <stdlib.h>

#include "client/cluster/job_folder.h"
#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "common/base/text/text.h"
#include "proto/local/paths.h"

enum {
    SLEEP_STEP_MS = 100,
    ELSEWHERE_MS = 3000,
    LIST_SOON_MS = 2000,
    REFS_POLL_MS = 1000,
    RETRY_MS = 2000, /* after a visit that failed */
};

/* Return whether an error of a record can be temporary: a lack of descriptors or memory, a full
 * disk, or a file server that does not reply. */
static bool is_temporary(gp_status status)
{
    return status == GP_EIO || status == GP_ENOMEM || status == GP_ELIMIT;
}

/* ---- names ---- */

gp_status cluster_place_open(cluster_place **out, const char *name, gp_error *err)
{
    cluster_place *place = gp_calloc(1, sizeof(*place));
    gp_paths paths;
    gp_status status;

    if (place == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a profile");
    status = gp_profile_read_cluster(&place->profile, name, err);
    if (status == GP_OK)
        status = gp_paths_find(&paths, NULL, err);
    if (status == GP_OK)
        status = cluster_site_open(&place->site, &place->profile, NULL, paths.state_root, err);
    if (status == GP_OK)
        *out = place;
    else
        gp_free(place);
    return status;
}

bool cluster_word(const char *word)
{
    const char *colon = strchr(word, ':');

    return colon != NULL && strchr(word, '/') == NULL;
}

bool cluster_words(const cli_call *call, int *code)
{
    int count = 0;

    for (int i = 0; i < call->word_count; i++)
        count += cluster_word(call->words[i]);
    if (count > 0 && count < call->word_count)
        *code = cli_usage(call, "give jobs of the pool or jobs of clusters (PROFILE:ID), not both");
    return count > 0;
}

/* ---- arrays ---- */

gp_status cluster_array_new(char name[CLUSTER_ARRAY_BYTES], gp_error *err)
{
    char launch[CLUSTER_NAME_BYTES];
    gp_status status = cluster_name_new(launch, err);

    if (status == GP_OK)
        snprintf(name, CLUSTER_ARRAY_BYTES, "a-%.8s", launch + strlen("gp-"));
    return status;
}

/* Split ARRAY or ARRAY.N; *index 0: all jobs of the array. false: the id has another form. */
static bool array_split(const char *id, char name[CLUSTER_ARRAY_BYTES], uint32_t *index)
{
    const size_t length = CLUSTER_ARRAY_BYTES - 1;
    unsigned long number = 0;
    char *end;

    if (strncmp(id, "a-", 2) != 0 || strspn(id + 2, "0123456789abcdef") != length - 2 ||
        (id[length] != '\0' && id[length] != '.'))
        return false;
    if (id[length] == '.') {
        number = strtoul(id + length + 1, &end, 10);
        if (*end != '\0' || number == 0 || number > UINT32_MAX)
            return false;
    }
    snprintf(name, CLUSTER_ARRAY_BYTES, "%.*s", (int)length, id);
    *index = (uint32_t)number;
    return true;
}

/* Search for jobs of a place, and the refs that were found. */
typedef struct collect {
    const char *profile_name; /* as given */
    const cluster_place *place;
    const char *array; /* "": all jobs that are not over */
    uint32_t index;    /* 0: all */
    cluster_refs *out;
} collect;

/* Append a ref with its own profile. */
static gp_status refs_add(cluster_refs *refs, const char *profile, const cluster_record *record,
                          gp_error *err)
{
    cluster_ref *grown = gp_realloc_array(refs->refs, refs->count + 1, sizeof(*grown));
    gp_status status;

    if (grown == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %zu jobs", refs->count + 1);
    refs->refs = grown;
    grown += refs->count;
    memset(grown, 0, sizeof(*grown));
    status = cluster_place_open(&grown->place, profile, err);
    if (status != GP_OK)
        return status;
    grown->record = *record;
    grown->record.lock = -1;
    snprintf(grown->name, sizeof(grown->name), "%s", record->job.name);
    refs->count++;
    return GP_OK;
}

static gp_status collect_visit(void *context, const char *name, gp_error *err)
{
    collect *c = context;
    cluster_record record = { .lock = -1 };
    gp_error why;
    gp_status status = cluster_record_read(&record, c->place->site.root, name, &why);

    /* a job that cannot be read now must not be left out: `wait` would not wait for it */
    if (is_temporary(status))
        return gp_fail(err, status, "%s", why.message);
    if (status != GP_OK || strcmp(record.profile, c->place->profile.name) != 0)
        return GP_OK;
    if (c->array[0] == '\0'
            ? cluster_is_over(&record)
            : strcmp(record.array, c->array) != 0 || (c->index != 0 && record.array_index != c->index))
        return GP_OK;
    return refs_add(c->out, c->profile_name, &record, err);
}

/* Jobs of an array in its order. */
static int by_index(const void *left, const void *right)
{
    const uint32_t a = ((const cluster_ref *)left)->record.array_index;
    const uint32_t b = ((const cluster_ref *)right)->record.array_index;

    return a < b ? -1 : a > b;
}

/* Append all jobs of an array, or all jobs that are not over. */
static gp_status refs_collect(cluster_refs *out, const char *profile, const char *array, uint32_t index,
                              gp_error *err)
{
    const size_t before = out->count;
    cluster_place *place;
    collect c = { .profile_name = profile, .array = array, .index = index, .out = out };
    gp_status status = cluster_place_open(&place, profile, err);

    if (status != GP_OK)
        return status;
    c.place = place;
    status = cluster_records_list(place->site.root, collect_visit, &c, err);
    if (status == GP_OK && array[0] != '\0' && out->count == before)
        status =
            index == 0
                ? gp_fail(err, GP_ENOENT, "profile '%s' has no array of jobs '%s'", profile, array)
                : gp_fail(err, GP_ENOENT, "profile '%s' has no job '%s.%" PRIu32 "'", profile, array, index);
    if (out->count > before)
        qsort(out->refs + before, out->count - before, sizeof(*out->refs), by_index);
    gp_free(place);
    return status;
}

/* ---- references ---- */

/* Append the jobs of a word. */
static gp_status refs_add_word(cluster_refs *out, const char *word, gp_error *err)
{
    const char *colon = strchr(word, ':');
    char profile[GP_PROFILE_NAME_MAX + 1], array[CLUSTER_ARRAY_BYTES];
    cluster_ref *grown;
    uint32_t index;
    gp_status status;

    if (colon != NULL && (size_t)(colon - word) < sizeof(profile) && array_split(colon + 1, array, &index)) {
        snprintf(profile, sizeof(profile), "%.*s", (int)(colon - word), word);
        return refs_collect(out, profile, array, index, err);
    }
    grown = gp_realloc_array(out->refs, out->count + 1, sizeof(*grown));
    if (grown == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %zu jobs", out->count + 1);
    out->refs = grown;
    status = cluster_ref_open(&grown[out->count], word, err);
    if (status == GP_OK)
        out->count++;
    return status;
}

gp_status cluster_refs_open(cluster_refs *out, const cli_call *call, gp_error *err)
{
    gp_status status = GP_OK;

    *out = (cluster_refs){ .count = 0 };
    for (int i = 0; status == GP_OK && i < call->word_count; i++)
        status = refs_add_word(out, call->words[i], err);
    if (status != GP_OK)
        cluster_refs_close(out);
    return status;
}

gp_status cluster_refs_open_all(cluster_refs *out, const char *profile, gp_error *err)
{
    *out = (cluster_refs){ .count = 0 };
    gp_status status = refs_collect(out, profile, "", 0, err);

    if (status != GP_OK)
        cluster_refs_close(out);
    return status;
}

void cluster_refs_close(cluster_refs *refs)
{
    for (size_t i = 0; i < refs->count; i++)
        cluster_ref_close(&refs->refs[i]);
    gp_free(refs->refs);
    *refs = (cluster_refs){ .count = 0 };
}

/* Return whether a job awaits that a listing confirms its launch, cancel or end. */
static bool awaits_listing(const cluster_job *job)
{
    return job->state == CLUSTER_LAUNCHING || job->state == CLUSTER_CANCELING || job->gone_ms != 0 ||
           (job->has_result && job->state != CLUSTER_ENDED);
}

static gp_status visit(cluster_ref *ref, bool cancel, int wait_ms, const cluster_shared_listing *shared,
                       gp_error *err)
{
    const cluster_site *site = &ref->place->site;
    gp_status status = cluster_visit(site, ref->name, cancel, wait_ms, shared, &ref->record, &ref->pass, err);

    ref->busy = status == GP_EBUSY;
    if (ref->busy) {
        ref->pass.due_ms = gp_now_ms() + SLEEP_STEP_MS;
        status = cluster_record_read(&ref->record, site->root, ref->name, err);
    }
    return status;
}

/* Visit a job for a command that waits. Store a temporary error in `pass.trouble`. */
static gp_status visit_waiting(cluster_ref *ref, const cluster_shared_listing *shared, gp_error *err)
{
    gp_error failure;
    gp_status status = visit(ref, false, 0, shared, &failure);

    if (is_temporary(status)) {
        ref->pass.trouble = failure;
        ref->pass.due_ms = gp_now_ms() + RETRY_MS;
        return GP_OK;
    }
    if (status != GP_OK)
        *err = failure;
    return status;
}

/* Return whether cluster_refs_visit() has to visit a job. */
static bool needs_visit(const cluster_ref *ref)
{
    return ref->record.job.state != CLUSTER_ENDED && ref->failure.code == GP_OK;
}

/* Visit a job, and keep the error in its `failure`. */
static void refs_visit_one(cluster_ref *ref, bool cancel, const cluster_shared_listing *shared)
{
    gp_error failure = { .code = GP_OK };
    gp_status status = cancel ? visit(ref, true, CLUSTER_LOCK_WAIT_MS, shared, &failure)
                              : visit_waiting(ref, shared, &failure);

    if (status == GP_OK)
        return;
    if (cancel && ref->record.job.seen.cancel_ms != 0)
        gp_error_suffix(&failure, "the cancel request was sent to the engine");
    ref->failure = failure;
}

void cluster_refs_visit(cluster_refs *refs, bool cancel, int64_t deadline_ms)
{
    const char *profile = "";
    cluster_listing listing = { 0 };
    cluster_shared_listing shared = { .requested_ms = 0 };
    gp_error trouble = { .code = GP_OK };
    bool soon = false, due;

    if (refs->count == 1) {
        if (needs_visit(refs->refs))
            refs_visit_one(refs->refs, cancel, NULL);
        return;
    }
    for (size_t i = 0; i < refs->count; i++)
        soon |= awaits_listing(&refs->refs[i].record.job);
    due = refs->listed_ms == 0 || gp_now_ms() - refs->listed_ms >= (soon ? LIST_SOON_MS : CLUSTER_LIST_MS);
    for (size_t i = 0; i < refs->count; i++) {
        cluster_ref *ref = &refs->refs[i];

        if (!needs_visit(ref))
            continue;
        if (cli_stop != 0 || (i > 0 && gp_now_ms() >= deadline_ms))
            break;
        if (due && strcmp(profile, ref->record.profile) != 0) {
            profile = ref->record.profile;
            trouble.code = GP_OK;
            cluster_listing_deinit(&listing);
            refs->listed_ms = shared.requested_ms = gp_now_ms();
            shared.listing = ref->place->site.engine->list(&ref->place->profile, &listing, &trouble) == GP_OK
                                 ? &listing
                                 : NULL;
        }
        shared.changes = ref->record.job.changes; /* as read before the listing */
        refs_visit_one(ref, cancel, &shared);
        if (ref->pass.trouble.code == GP_OK)
            ref->pass.trouble = trouble;
    }
    cluster_listing_deinit(&listing);
}

void cluster_refs_sleep(const cluster_refs *refs)
{
    const int64_t end_ms = gp_now_ms() + REFS_POLL_MS;

    if (refs->count == 1) {
        cluster_ref_sleep(refs->refs, REFS_POLL_MS);
        return;
    }
    while (cli_stop == 0 && gp_now_ms() < end_ms)
        gp_sleep_ms(SLEEP_STEP_MS);
}

gp_status cluster_ref_open(cluster_ref *out, const char *word, gp_error *err)
{
    const char *colon = strchr(word, ':');
    char profile[GP_PROFILE_NAME_MAX + 1], array[CLUSTER_ARRAY_BYTES];
    cluster_refs found = { .count = 0 };
    uint32_t index;
    gp_status status;

    memset(out, 0, sizeof(*out));
    out->record.lock = -1;
    if (colon == NULL || colon == word || colon[1] == '\0' || (size_t)(colon - word) >= sizeof(profile))
        return gp_fail(err, GP_EINVAL, "'%.80s' is not a job of a cluster; give PROFILE:ID", word);
    snprintf(profile, sizeof(profile), "%.*s", (int)(colon - word), word);
    if (array_split(colon + 1, array, &index)) {
        if (index == 0)
            return gp_fail(err, GP_EINVAL, "'%s' names several jobs; give one of them, such as '%s.1'", word,
                           word);
        status = refs_collect(&found, profile, array, index, err);
        if (status == GP_OK) {
            *out = found.refs[0];
            found.count = 0;
        }
        cluster_refs_close(&found);
        return status;
    }
    status = cluster_place_open(&out->place, profile, err);
    if (status == GP_OK)
        status =
            cluster_record_find(out->name, out->place->site.root, out->place->profile.name, colon + 1, err);
    if (status == GP_OK)
        status = cluster_record_read(&out->record, out->place->site.root, out->name, err);
    if (status != GP_OK)
        cluster_ref_close(out);
    return status;
}

void cluster_ref_close(cluster_ref *ref)
{
    cluster_record_close(&ref->record);
    gp_free(ref->place);
    ref->place = NULL;
}

gp_status cluster_ref_visit(cluster_ref *ref, bool waits, gp_error *err)
{
    return waits ? visit_waiting(ref, NULL, err) : visit(ref, false, 0, NULL, err);
}

void cluster_ref_sleep(const cluster_ref *ref, int64_t limit_ms)
{
    /* each look at a job folder on another host is a connection */
    const bool elsewhere = ref->place->site.engine->facts != NULL;
    const int64_t end_ms = gp_now_ms() + (elsewhere ? ELSEWHERE_MS : limit_ms);

    do
        gp_sleep_ms(SLEEP_STEP_MS);
    while (cli_stop == 0 && (elsewhere || gp_now_ms() < ref->pass.due_ms) && gp_now_ms() < end_ms);
}
