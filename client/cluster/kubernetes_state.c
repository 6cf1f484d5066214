/* Implement kubernetes_state.h. */
#include "client/cluster/kubernetes_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/cluster/job_folder.h"
#include "common/base/memory/alloc.h"
#include "common/base/printable.h"
#include "common/base/text/json.h"

enum { STATUSES_MAX = 64 }; /* conditions or containers of one object */

/* ---- values ---- */

/* Return a text member of an object; "": missing. */
static const char *text_of(const gp_json *object, const char *key)
{
    return gp_json_text(gp_json_member(object, key), "");
}

/* Copy a text for a message of one line. */
static void copy(char *to, size_t bytes, const char *from)
{
    snprintf(to, bytes, "%.*s", (int)bytes - 1, from);
    for (char *at = to; (at = strchr(at, '\n')) != NULL;)
        *at = ' ';
    gp_printable(to);
}

/* Copy "REASON: MESSAGE", or only the part that is not empty. */
static void copy_pair(char *to, size_t bytes, const char *reason, const char *message)
{
    char pair[2 * CLUSTER_REASON_BYTES];

    snprintf(pair, sizeof(pair), "%.*s%s%s", CLUSTER_REASON_BYTES / 2, reason,
             reason[0] != '\0' && message[0] != '\0' ? ": " : "", message);
    copy(to, bytes, pair);
}

/* Parse a time such as 2026-11-23T18:40:44Z. Return Unix time in ms; 0: malformed. */
static int64_t time_parse(const char *text)
{
    struct tm at = { 0 };
    char zone = '\0';

    if (strlen(text) != 20 ||
        sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%c", &at.tm_year, &at.tm_mon, &at.tm_mday, &at.tm_hour,
               &at.tm_min, &at.tm_sec, &zone) != 7 ||
        zone != 'Z' || at.tm_year < 1970 || at.tm_year > 9999)
        return 0;
    at.tm_year -= 1900;
    at.tm_mon--;
    return (int64_t)timegm(&at) * 1000;
}

/* Return the condition of an object with that type and status; NULL: none. */
static const gp_json *condition_find(const gp_json *object, const char *type, const char *status)
{
    const gp_json *list = gp_json_member(gp_json_member(object, "status"), "conditions");

    for (size_t i = 0; i < gp_json_count(list) && i < STATUSES_MAX; i++) {
        const gp_json *condition = gp_json_element(list, i);

        if (strcmp(text_of(condition, "type"), type) == 0 &&
            strcmp(text_of(condition, "status"), status) == 0)
            return condition;
    }
    return NULL;
}

/* ---- termination message ---- */

gp_status kubernetes_message_format(const kubernetes_message *message, gp_buffer *out, gp_error *err)
{
    gp_json_writer writer;
    gp_status status;

    gp_json_writer_init(&writer, out, false);
    gp_json_begin_object(&writer, NULL);
    gp_json_put_integer(&writer, "gradpool", 1);
    gp_json_put_integer(&writer, "attempt", message->attempt);
    gp_json_put_bool(&writer, "result", message->has_result);
    gp_json_put_integer(&writer, "exit_code", message->exit_code);
    gp_json_put_text(&writer, "reason", message->reason);
    gp_json_end_object(&writer);
    status = gp_json_writer_finish(&writer, err);
    return status == GP_OK ? gp_buffer_append(out, "\n", 1, err) : status;
}

bool kubernetes_message_parse(kubernetes_message *out, const char *text)
{
    const size_t bytes = strlen(text);
    int64_t attempt, code;
    gp_json *json = NULL;
    bool sound;

    if (bytes == 0 || bytes > KUBERNETES_MESSAGE_BYTES || gp_json_parse(&json, text, bytes, NULL) != GP_OK)
        return false;
    attempt = gp_json_integer(gp_json_member(json, "attempt"), -1);
    code = gp_json_integer(gp_json_member(json, "exit_code"), -1);
    sound = gp_json_integer(gp_json_member(json, "gradpool"), 0) == 1 && attempt >= 0 &&
            attempt <= CLUSTER_ATTEMPTS_MAX && code >= 0 && code <= 255 &&
            gp_json_is_bool(gp_json_member(json, "result"));
    if (sound) {
        *out = (kubernetes_message){ .attempt = (uint32_t)attempt,
                                     .has_result = gp_json_bool(gp_json_member(json, "result"), false),
                                     .exit_code = (int)code };
        copy(out->reason, sizeof(out->reason), text_of(json, "reason"));
    }
    gp_json_free(json);
    return sound;
}

uint32_t kubernetes_attempt_parse(const char *log)
{
    unsigned number = 0;
    int end = 0;

    return sscanf(log, "== attempt %6u on %n", &number, &end) == 1 && end > 0 &&
                   number <= CLUSTER_ATTEMPTS_MAX
               ? number
               : 0;
}

/* ---- objects ---- */

/* Parse a reply, a list of objects. Free *out with gp_json_free(). */
static gp_status items_parse(gp_json **out, const gp_json **items, const char *text, size_t bytes,
                             gp_error *err)
{
    gp_error cause;
    gp_status status = gp_json_parse(out, text, bytes, &cause);

    if (status != GP_OK)
        return gp_fail(err, status == GP_ELIMIT ? GP_ELIMIT : GP_EPEER, "malformed reply of kubectl: %.200s",
                       cause.message);
    *items = gp_json_member(*out, "items");
    if (!gp_json_is_array(*items) || strcmp(text_of(*out, "kind"), "List") != 0)
        status = gp_fail(err, GP_EPEER, "malformed reply of kubectl: expected a List with items, got '%.40s'",
                         text_of(*out, "kind"));
    else if (gp_json_count(*items) > KUBERNETES_ITEMS_MAX)
        status = gp_fail(err, GP_ELIMIT,
                         "kubectl lists %zu objects, at most %d are supported; delete old Jobs of gradpool",
                         gp_json_count(*items), KUBERNETES_ITEMS_MAX);
    if (status != GP_OK) {
        gp_json_free(*out);
        *out = NULL;
    }
    return status;
}

/* Return the launch name in the labels of an object; NULL: none. */
static const char *job_of(const gp_json *object)
{
    const char *name =
        text_of(gp_json_member(gp_json_member(object, "metadata"), "labels"), KUBERNETES_JOB_LABEL);

    return cluster_name_valid(name) ? name : NULL;
}

static bool is_deleted(const gp_json *object)
{
    return gp_json_member(gp_json_member(object, "metadata"), "deletionTimestamp") != NULL;
}

static const char *phase_of(const gp_json *pod)
{
    return text_of(gp_json_member(pod, "status"), "phase");
}

/* Return whether processes of the pod may exist, now or later. */
static bool pod_is_live(const gp_json *pod)
{
    return strcmp(phase_of(pod), "Succeeded") != 0 && strcmp(phase_of(pod), "Failed") != 0;
}

/* Return the state of the container of a pod, an object with the member `waiting`, `running` or
 * `terminated`. NULL: unknown. */
static const gp_json *container_of(const gp_json *pod)
{
    const gp_json *list = gp_json_member(gp_json_member(pod, "status"), "containerStatuses");

    for (size_t i = 0; i < gp_json_count(list) && i < STATUSES_MAX; i++)
        if (strcmp(text_of(gp_json_element(list, i), "name"), "gradpool") == 0)
            return gp_json_member(gp_json_element(list, i), "state");
    return NULL;
}

/* Return the condition that ends a Job; NULL: it has not ended. */
static const gp_json *job_end(const gp_json *job)
{
    const gp_json *complete = condition_find(job, "Complete", "True");

    return complete != NULL ? complete : condition_find(job, "Failed", "True");
}

/* Order of pods: oldest first. */
static int pods_compare(const void *left, const void *right)
{
    const gp_json *a = gp_json_member(*(const gp_json *const *)left, "metadata");
    const gp_json *b = gp_json_member(*(const gp_json *const *)right, "metadata");
    const int order = strcmp(text_of(a, "creationTimestamp"), text_of(b, "creationTimestamp"));

    return order != 0 ? order : strcmp(text_of(a, "name"), text_of(b, "name"));
}

/* The objects of one job. */
typedef struct kube_job {
    const char *name;
    const gp_json *job; /* NULL: not in the reply */
    const gp_json *pod; /* a live pod, else the newest one; NULL: none */
    size_t pods;
} kube_job;

/* Write why a pod ended. */
static void pod_end_reason(char *to, size_t bytes, const gp_json *pod)
{
    const gp_json *status = gp_json_member(pod, "status");
    const gp_json *end = gp_json_member(container_of(pod), "terminated");
    const char *cause = text_of(end, "reason");
    const int64_t code = gp_json_integer(gp_json_member(end, "exitCode"), -1);
    kubernetes_message message;
    char text[CLUSTER_REASON_BYTES];

    if (text_of(status, "reason")[0] != '\0') { /* Evicted, DeadlineExceeded, Preempting, ... */
        copy_pair(to, bytes, text_of(status, "reason"), text_of(status, "message"));
    } else if (kubernetes_message_parse(&message, text_of(end, "message"))) {
        copy(to, bytes, message.reason);
    } else if (code < 0) {
        copy(to, bytes, "");
    } else if (strcmp(cause, "Error") == 0 || strcmp(cause, "Completed") == 0) {
        snprintf(to, bytes, "exit code %d", (int)code);
    } else { /* OOMKilled, ContainerCannotRun, StartError, ... */
        snprintf(text, sizeof(text), "%.40s (exit code %d)", cause, (int)code);
        copy_pair(to, bytes, text, text_of(end, "message"));
    }
}

/* ---- listing ---- */

/* Describe a job by a pod that has not ended. */
static void entry_from_pod(cluster_entry *entry, const gp_json *pod)
{
    const gp_json *unscheduled = condition_find(pod, "PodScheduled", "False");
    const gp_json *waiting = gp_json_member(container_of(pod), "waiting");
    const char *cause = text_of(unscheduled != NULL ? unscheduled : waiting, "reason");
    const char *node = text_of(gp_json_member(pod, "spec"), "nodeName");
    const bool pending = strcmp(phase_of(pod), "Pending") == 0;
    char text[CLUSTER_TEXT_BYTES];

    if (!pending || is_deleted(pod)) {
        entry->state = CLUSTER_ENTRY_RUNNING;
        snprintf(text, sizeof(text), "%s%s%.40s",
                 is_deleted(pod)                         ? "TERMINATING"
                 : strcmp(phase_of(pod), "Running") == 0 ? "RUNNING"
                                                         : "UNKNOWN",
                 node[0] != '\0' ? " on " : "", node);
        copy(entry->text, sizeof(entry->text), text);
        return;
    }
    snprintf(text, sizeof(text), cause[0] != '\0' ? "PENDING (%.40s)" : "PENDING", cause);
    copy(entry->text, sizeof(entry->text), text);
    if (unscheduled != NULL)
        copy_pair(entry->reason, sizeof(entry->reason), cause, text_of(unscheduled, "message"));
    else if (waiting != NULL && text_of(waiting, "message")[0] != '\0')
        copy_pair(entry->reason, sizeof(entry->reason), cause, text_of(waiting, "message"));
    else if (node[0] != '\0')
        snprintf(entry->reason, sizeof(entry->reason), "%.60s prepares the image and the volumes", node);
    gp_printable(entry->reason);
}

/* Describe a Job without a live pod. Return whether the cause of the wait is unknown. */
static bool entry_from_job(cluster_entry *entry, const kube_job *found)
{
    const gp_json *end = job_end(found->job);
    char reason[CLUSTER_REASON_BYTES] = "";

    if (found->pod != NULL)
        pod_end_reason(reason, sizeof(reason), found->pod);
    if (end != NULL) {
        entry->state = CLUSTER_ENTRY_ENDED;
        copy(entry->text, sizeof(entry->text),
             strcmp(text_of(end, "type"), "Complete") == 0 ? "COMPLETE" : "FAILED");
        if (reason[0] != '\0')
            copy(entry->reason, sizeof(entry->reason), reason);
        else
            copy_pair(entry->reason, sizeof(entry->reason), text_of(end, "reason"), text_of(end, "message"));
        return false;
    }
    entry->state = is_deleted(found->job) ? CLUSTER_ENTRY_RUNNING : CLUSTER_ENTRY_QUEUED;
    if (is_deleted(found->job)) {
        copy(entry->text, sizeof(entry->text), "TERMINATING");
        return false;
    }
    if (gp_json_bool(gp_json_member(gp_json_member(found->job, "spec"), "suspend"), false)) {
        copy(entry->text, sizeof(entry->text), "SUSPENDED");
        copy(entry->reason, sizeof(entry->reason), "the Job is suspended; its queue has not admitted it");
        return true;
    }
    copy(entry->text, sizeof(entry->text), "PENDING");
    if (reason[0] != '\0')
        snprintf(entry->reason, sizeof(entry->reason), "waits for a new pod; the last one: %.110s", reason);
    else
        copy(entry->reason, sizeof(entry->reason), "the Job has no pod yet");
    gp_printable(entry->reason);
    return true;
}

/* Find or append the job with that name. */
static kube_job *job_get(kube_job *jobs, size_t *count, const char *name)
{
    for (size_t i = 0; i < *count; i++)
        if (strcmp(jobs[i].name, name) == 0)
            return &jobs[i];
    jobs[*count] = (kube_job){ .name = name };
    return &jobs[(*count)++];
}

/* Group the objects of a reply by job.
 *   jobs  room for one job per object */
static void jobs_collect(kube_job *jobs, size_t *count, const gp_json *items)
{
    *count = 0;
    for (size_t i = 0; i < gp_json_count(items); i++) {
        const gp_json *item = gp_json_element(items, i);
        const char *name = job_of(item), *kind = text_of(item, "kind");
        kube_job *job;

        if (name == NULL || (strcmp(kind, "Job") != 0 && strcmp(kind, "Pod") != 0))
            continue;
        if (strcmp(kind, "Job") == 0) {
            if (strcmp(text_of(gp_json_member(item, "metadata"), "name"), name) == 0)
                job_get(jobs, count, name)->job = item;
            continue;
        }
        job = job_get(jobs, count, name);
        job->pods++;
        if (job->pod == NULL || (pod_is_live(item) && !pod_is_live(job->pod)) ||
            (pod_is_live(item) == pod_is_live(job->pod) && pods_compare(&item, &job->pod) > 0))
            job->pod = item;
    }
}

/* Append the entry of a job. Jobs whose Job object is gone are listed while a pod is live. */
static gp_status entry_add(cluster_listing *listing, const kube_job *found, bool *unexplained, gp_error *err)
{
    const bool live = found->pod != NULL && pod_is_live(found->pod);
    cluster_entry *entry;
    gp_status status;

    if (!live && found->job == NULL)
        return GP_OK;
    status = cluster_listing_add(listing, &entry, err);
    if (status != GP_OK)
        return status;
    copy(entry->name, sizeof(entry->name), found->name);
    copy(entry->id, sizeof(entry->id), found->name);
    entry->restarts = found->pods > 1 ? (uint32_t)found->pods - 1 : 0;
    if (live)
        entry_from_pod(entry, found->pod);
    else if (entry_from_job(entry, found))
        *unexplained = true;
    return GP_OK;
}

gp_status kubernetes_list_parse(cluster_listing *listing, bool *unexplained, const char *text, size_t bytes,
                                gp_error *err)
{
    const size_t before = listing->count;
    const gp_json *items;
    gp_json *json = NULL;
    kube_job *jobs;
    size_t count = 0;
    gp_status status = items_parse(&json, &items, text, bytes, err);

    *unexplained = false;
    if (status != GP_OK)
        return status;
    jobs = gp_calloc(gp_json_count(items) + 1, sizeof(*jobs));
    if (jobs == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for %zu objects", gp_json_count(items));
    else
        jobs_collect(jobs, &count, items);
    for (size_t i = 0; status == GP_OK && i < count; i++)
        status = entry_add(listing, &jobs[i], unexplained, err);
    gp_free(jobs);
    gp_json_free(json);
    if (status != GP_OK)
        listing->count = before;
    return status;
}

/* Return the name of the Job that an Event or a Workload is about; "": none. */
static const char *explained_job(const gp_json *item)
{
    const gp_json *involved = gp_json_member(item, "involvedObject");
    const gp_json *owners = gp_json_member(gp_json_member(item, "metadata"), "ownerReferences");

    if (strcmp(text_of(involved, "kind"), "Job") == 0)
        return text_of(involved, "name");
    for (size_t i = 0; i < gp_json_count(owners) && i < STATUSES_MAX; i++)
        if (strcmp(text_of(gp_json_element(owners, i), "kind"), "Job") == 0)
            return text_of(gp_json_element(owners, i), "name");
    return "";
}

gp_status kubernetes_explain(cluster_listing *listing, const char *text, size_t bytes, gp_error *err)
{
    const gp_json *items;
    gp_json *json = NULL;
    gp_status status = items_parse(&json, &items, text, bytes, err);

    for (size_t i = 0; status == GP_OK && i < gp_json_count(items); i++) {
        const gp_json *item = gp_json_element(items, i), *cause = item;
        const char *name = explained_job(item);

        if (strcmp(text_of(item, "kind"), "Workload") == 0)
            cause = condition_find(item, "QuotaReserved", "False");
        if (cause == NULL || text_of(cause, "message")[0] == '\0' || !cluster_name_valid(name))
            continue;
        for (size_t k = 0; k < listing->count; k++) {
            cluster_entry *entry = &listing->entries[k];

            if (entry->state == CLUSTER_ENTRY_QUEUED && strcmp(entry->name, name) == 0)
                copy_pair(entry->reason, sizeof(entry->reason), text_of(cause, "reason"),
                          text_of(cause, "message"));
        }
    }
    gp_json_free(json);
    return status;
}

/* ---- facts ---- */

/* Add the facts that a pod reports about its attempt.
 *   job_ended  no other pod will follow */
static void facts_from_pod(cluster_facts *facts, const gp_json *pod, bool job_ended)
{
    const gp_json *state = container_of(pod), *end = gp_json_member(state, "terminated");
    const gp_json *running = gp_json_member(state, "running");
    const int64_t begin_ms = time_parse(text_of(end != NULL ? end : running, "startedAt"));
    const int64_t code = gp_json_integer(gp_json_member(end, "exitCode"), -1);
    const char *cause = text_of(end, "reason");
    kubernetes_message message;

    if (begin_ms != 0 && facts->begin_ms == 0)
        facts->begin_ms = begin_ms;
    copy(facts->host, sizeof(facts->host), text_of(gp_json_member(pod, "spec"), "nodeName"));
    if (end == NULL)
        return;
    if (!kubernetes_message_parse(&message, text_of(end, "message"))) {
        /* without a message the process was killed or could not write; a kill is no result */
        message = (kubernetes_message){ .exit_code = (int)code };
        message.has_result = job_ended && code >= 0 && code <= 127 &&
                             (strcmp(cause, "Completed") == 0 || strcmp(cause, "Error") == 0);
        pod_end_reason(message.reason, sizeof(message.reason), pod);
    }
    if (message.attempt > facts->attempt) {
        facts->attempt = message.attempt;
        facts->begun = true;
    }
    if (message.has_result && !facts->has_result) {
        facts->has_result = true;
        facts->result_attempt = message.attempt;
        facts->exit_code = message.exit_code;
        facts->end_ms = time_parse(text_of(end, "finishedAt"));
        copy(facts->reason, sizeof(facts->reason), message.reason);
    }
}

/* Collect the newest pods of a job, oldest first, and the Job itself. Return the number of pods. */
static size_t pods_collect(const gp_json *pods[], const gp_json **job, const gp_json *items, const char *name)
{
    size_t count = 0;

    *job = NULL;
    for (size_t i = 0; i < gp_json_count(items); i++) {
        const gp_json *item = gp_json_element(items, i);
        const char *of = job_of(item), *kind = text_of(item, "kind");

        if (of == NULL || strcmp(of, name) != 0)
            continue;
        if (strcmp(kind, "Job") == 0)
            *job = item;
        else if (strcmp(kind, "Pod") == 0)
            pods[count++] = item;
    }
    qsort(pods, count, sizeof(*pods), pods_compare);
    return count;
}

gp_status kubernetes_facts_parse(cluster_facts *facts, kubernetes_pods *pods, const char *name,
                                 const char *text, size_t bytes, gp_error *err)
{
    const gp_json *items, *job, **list;
    gp_json *json = NULL;
    size_t count, first;
    gp_status status = items_parse(&json, &items, text, bytes, err);

    if (status != GP_OK)
        return status;
    list = gp_calloc(gp_json_count(items) + 1, sizeof(*list));
    if (list == NULL) {
        gp_json_free(json);
        return gp_fail(err, GP_ENOMEM, "no memory for %zu objects", gp_json_count(items));
    }
    count = pods_collect(list, &job, items, name);
    first = count > KUBERNETES_PODS_MAX ? count - KUBERNETES_PODS_MAX : 0;
    *facts = (cluster_facts){ 0 };
    pods->count = 0;
    for (size_t i = first; i < count; i++) {
        const gp_json *state = container_of(list[i]);
        const bool running = gp_json_member(state, "running") != NULL;
        const char *pod = text_of(gp_json_member(list[i], "metadata"), "name");

        if (i + 1 == count && i > first)
            pod_end_reason(facts->attempt_reason, sizeof(facts->attempt_reason), list[i - 1]);
        facts_from_pod(facts, list[i], job != NULL && job_end(job) != NULL);
        if ((running || gp_json_member(state, "terminated") != NULL) && pod[0] != '\0' && pod[0] != '-' &&
            strlen(pod) < KUBERNETES_NAME_BYTES) {
            kubernetes_pod *out = &pods->list[pods->count++];

            copy(out->name, sizeof(out->name), pod);
            out->running = running;
        }
    }
    gp_free(list);
    gp_json_free(json);
    return GP_OK;
}
