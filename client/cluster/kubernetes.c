/* Engine `kubernetes`: kubectl creates, lists and deletes the Jobs.
 *
 * A gradpool job is one Job of Kubernetes, which replaces pods that were evicted. Its name is the
 * launch name, so a repeated launch finds the first one: "already exists" means launched.
 *
 * A launch creates the Secret with the command, then the Job, and then makes the Job the owner of
 * the Secret, so that Kubernetes removes both together. If this process is killed in between, the
 * next launch of the same name continues. A job without its Secret cannot start. The cancel mark is
 * therefore the removal of the Secret: it also stops a Job that Kubernetes accepts later.
 *
 * The folder of the job is on a volume that this host does not see. Facts come from the pods: the
 * first line of the log has the number of the attempt, the termination message has the result. */
#include "client/cluster/kubernetes.h"

#include <stdio.h>
#include <string.h>

#include "client/cluster/container_file.h"
#include "client/cluster/job_folder.h"
#include "client/cluster/kubectl.h"
#include "client/cluster/kubernetes_manifest.h"
#include "client/cluster/kubernetes_state.h"
#include "client/cluster/profile.h"
#include "client/cluster/ssh_wire.h"
#include "client/cluster/tool.h"
#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "common/base/printable.h"
#include "common/base/system/fault.h"
#include "common/base/system/timeout.h"

enum {
    CALL_MS = 28000,   /* all commands of one call of the engine */
    EXPLAIN_MS = 5000, /* commands for reasons, which are only shown to the user */
    SNAPSHOT_MS = 10000,
    LOG_MAX = 16 << 20, /* bytes of a log; Kubernetes keeps 10 MiB by default */
    CANCEL_S = 45,      /* from SIGTERM to SIGKILL after a cancel */
    UID_BYTES = 36,
};

int cluster_kubernetes_call_ms = CALL_MS;

/* Begin a call of the engine. */
static kubectl_call call_begin(const gp_profile *profile)
{
    return (kubectl_call){ .profile = profile, .timeout = gp_timeout_in(cluster_kubernetes_call_ms) };
}

/* ---- launch ---- */

/* Return whether a text is a UID: 36 lower-case hexadecimal digits and '-'. */
static bool is_uid(const char *text)
{
    return strlen(text) == UID_BYTES && strspn(text, "0123456789abcdef-") == UID_BYTES;
}

static gp_status secret_delete(const kubectl_call *call, const char *name, gp_error *err)
{
    return kubectl_do(call, VERB("delete", "secret", name, "--ignore-not-found", "--wait=false"), err);
}

/* Create the Secret. GP_OK also if it exists: an earlier launch created it with the same
 * command. */
static gp_status secret_create(const kubectl_call *call, const cluster_launch *launch, gp_error *err)
{
    cluster_tool_result result;
    gp_buffer text;
    gp_status status;

    gp_buffer_init(&text, KUBERNETES_MANIFEST_MAX);
    status = kubernetes_secret_format(call->profile, launch, false, &text, err);
    if (status == GP_OK) {
        status =
            kubectl(&result, call, VERB("create", "-f", "-", "-o", "name"), &text, KUBECTL_REPLY_MAX, err);
        if (status == GP_OK)
            cluster_tool_deinit(&result);
    }
    gp_buffer_deinit(&text);
    return status == GP_EBUSY ? GP_OK : status;
}

/* Create the Job.
 *   uid  set to its UID; "": unknown, because the Job is of an earlier launch */
static gp_status job_create(const kubectl_call *call, const cluster_launch *launch, char uid[UID_BYTES + 1],
                            gp_error *err)
{
    cluster_tool_result result;
    gp_buffer text;
    gp_status status;

    uid[0] = '\0';
    gp_buffer_init(&text, KUBERNETES_MANIFEST_MAX);
    status = kubernetes_job_format(call->profile, launch, &text, err);
    if (status == GP_OK) {
        status = kubectl(&result, call, VERB("create", "-f", "-", "-o", "jsonpath={.metadata.uid}"), &text,
                         KUBECTL_REPLY_MAX, err);
        if (status == GP_OK && is_uid(gp_buffer_text(&result.output)))
            strcpy(uid, gp_buffer_text(&result.output));
        if (status == GP_OK)
            cluster_tool_deinit(&result);
    }
    gp_buffer_deinit(&text);
    return status == GP_EBUSY ? GP_OK : status;
}

/* Read the UID of a Job. GP_ENOENT: there is no Job of this name. GP_EPEER: no UID in the reply. */
static gp_status job_uid(const kubectl_call *call, const char *name, char uid[UID_BYTES + 1])
{
    cluster_tool_result result;
    gp_status status =
        kubectl(&result, call, VERB("get", "jobs.batch", name, "-o", "jsonpath={.metadata.uid}"), NULL,
                KUBECTL_REPLY_MAX, NULL);

    if (status != GP_OK)
        return status;
    if (is_uid(gp_buffer_text(&result.output)))
        strcpy(uid, gp_buffer_text(&result.output));
    else
        status = GP_EPEER;
    cluster_tool_deinit(&result);
    return status;
}

/* Make the Job the owner of its Secret. Failures are ignored: the job runs without it, and the next
 * cancel removes the Secret. */
static void secret_own(const kubectl_call *call, const char *name, const char *uid)
{
    char patch[300];

    snprintf(
        patch, sizeof(patch),
        "{\"metadata\":{\"ownerReferences\":[{\"apiVersion\":\"batch/v1\",\"kind\":\"Job\",\"name\":\"%s\","
        "\"uid\":\"%s\"}]}}",
        name, uid);
    (void)kubectl_do(call, VERB("patch", "secret", name, "--type=merge", "--patch", patch), NULL);
}

static gp_status kubernetes_launch(const gp_profile *profile, const cluster_launch *launch,
                                   char id[CLUSTER_ID_BYTES], gp_error *err)
{
    const kubectl_call call = call_begin(profile);
    char uid[UID_BYTES + 1];
    gp_status status = kubernetes_profile_check(profile, err);

    if (status == GP_OK)
        status = secret_create(&call, launch, err);
    if (status != GP_OK)
        return status;
    gp_fault_point("cluster-secret");
    status = job_create(&call, launch, uid, err);
    /* A quota can refuse a launch that is repeated, because of the Job of the first one. */
    if (status == GP_EPERM && job_uid(&call, launch->name, uid) == GP_OK)
        status = GP_OK;
    if (status != GP_OK && status != GP_EPEER && status != GP_ETIMEDOUT)
        (void)secret_delete(&call, launch->name, NULL); /* refused */
    if (status != GP_OK)
        return status;
    gp_fault_point("cluster-object");
    if (uid[0] != '\0' || job_uid(&call, launch->name, uid) == GP_OK)
        secret_own(&call, launch->name, uid);
    snprintf(id, CLUSTER_ID_BYTES, "%s", launch->name);
    return GP_OK;
}

static gp_status kubernetes_script(const gp_profile *profile, const cluster_launch *launch, gp_buffer *out,
                                   gp_error *err)
{
    gp_status status = kubernetes_secret_format(profile, launch, true, out, err);

    if (status == GP_OK)
        status = gp_buffer_printf(out, err, "\n---\n");
    if (status == GP_OK)
        status = kubernetes_job_format(profile, launch, out, err);
    return status == GP_OK ? gp_buffer_printf(out, err, "\n") : status;
}

/* Ask the server whether it would create an object. */
static gp_status object_test(const kubectl_call *call, const gp_buffer *text, gp_error *err)
{
    cluster_tool_result result;
    gp_status status = kubectl(&result, call, VERB("create", "--dry-run=server", "-f", "-", "-o", "name"),
                               text, KUBECTL_REPLY_MAX, err);

    if (status == GP_OK)
        cluster_tool_deinit(&result);
    if (status == GP_EPERM && err != NULL)
        err->code = GP_EINVAL;
    return status == GP_EPERM ? GP_EINVAL : status;
}

static gp_status kubernetes_test(const gp_profile *profile, const cluster_launch *launch,
                                 char note[CLUSTER_REASON_BYTES], gp_error *err)
{
    const kubectl_call call = call_begin(profile);
    gp_buffer secret, job;
    gp_status status;

    gp_buffer_init(&secret, KUBERNETES_MANIFEST_MAX);
    gp_buffer_init(&job, KUBERNETES_MANIFEST_MAX);
    status = kubernetes_secret_format(profile, launch, true, &secret, err);
    if (status == GP_OK)
        status = kubernetes_job_format(profile, launch, &job, err);
    if (status == GP_OK)
        status = object_test(&call, &secret, err);
    if (status == GP_OK)
        status = object_test(&call, &job, err);
    gp_buffer_deinit(&secret);
    gp_buffer_deinit(&job);
    if (status == GP_OK)
        snprintf(note, CLUSTER_REASON_BYTES, "Kubernetes accepts the Secret and the Job");
    return status;
}

/* ---- list ---- */

/* Add the reasons of jobs that wait without a pod, as far as Kubernetes reports them. */
static void list_explain(cluster_listing *listing, const gp_profile *profile)
{
    const kubectl_call call = { .profile = profile, .timeout = gp_timeout_in(EXPLAIN_MS) };
    cluster_tool_result result;

    if (kubectl(&result, &call,
                VERB("get", "events", "--field-selector=type=Warning,involvedObject.kind=Job", "-o", "json"),
                NULL, CLUSTER_TOOL_OUTPUT_MAX, NULL) == GP_OK) {
        (void)kubernetes_explain(listing, gp_buffer_text(&result.output), result.output.bytes, NULL);
        cluster_tool_deinit(&result);
    }
    if (profile->queue[0] != '\0' &&
        kubectl(&result, &call, VERB("get", "workloads.kueue.x-k8s.io", "-o", "json"), NULL,
                CLUSTER_TOOL_OUTPUT_MAX, NULL) == GP_OK) {
        (void)kubernetes_explain(listing, gp_buffer_text(&result.output), result.output.bytes, NULL);
        cluster_tool_deinit(&result);
    }
}

/* Last listing of this process. Its reply also contains the facts of the jobs, which saves `jobs` a
 * command for each job without a running container. Each job uses the reply once, because a later
 * poll must see changes. */
static struct {
    char profile[GP_PROFILE_NAME_MAX + 1];
    int64_t taken_ms;
    gp_buffer text;                    /* reply of kubectl */
    char (*names)[CLUSTER_NAME_BYTES]; /* jobs that have not used it; "": used */
    size_t count;
} snapshot;

/* Store a reply of kubectl for snapshot_use(). Takes ownership of `text`.
 *   first  first entry of `listing` that the reply has added */
static void snapshot_keep(const gp_profile *profile, gp_buffer *text, const cluster_listing *listing,
                          size_t first)
{
    gp_free(snapshot.names);
    gp_buffer_deinit(&snapshot.text);
    snprintf(snapshot.profile, sizeof(snapshot.profile), "%s", profile->name);
    snapshot.taken_ms = gp_now_ms();
    snapshot.text = *text;
    gp_buffer_init(text, 0);
    snapshot.names = gp_calloc(listing->count - first + 1, sizeof(*snapshot.names));
    snapshot.count = snapshot.names == NULL ? 0 : listing->count - first;
    for (size_t i = 0; i < snapshot.count; i++)
        memcpy(snapshot.names[i], listing->entries[first + i].name, sizeof(*snapshot.names));
}

static bool snapshot_is_recent(const gp_profile *profile)
{
    return strcmp(snapshot.profile, profile->name) == 0 && gp_now_ms() - snapshot.taken_ms <= SNAPSHOT_MS;
}

/* Return whether the last listing, if it is recent, shows that no container of a job runs. */
static bool snapshot_is_idle(const gp_profile *profile, const char *name)
{
    cluster_facts facts;
    kubernetes_pods pods;

    return snapshot_is_recent(profile) &&
           kubernetes_facts_parse(&facts, &pods, name, gp_buffer_text(&snapshot.text), snapshot.text.bytes,
                                  NULL) == GP_OK &&
           (pods.count == 0 || !pods.list[pods.count - 1].running);
}

/* Return the reply with the facts of a job, and mark it as used; NULL: no reply. */
static const gp_buffer *snapshot_use(const gp_profile *profile, const char *name)
{
    if (!snapshot_is_recent(profile))
        return NULL;
    for (size_t i = 0; i < snapshot.count; i++)
        if (strcmp(snapshot.names[i], name) == 0) {
            snapshot.names[i][0] = '\0';
            return &snapshot.text;
        }
    return NULL;
}

/* Return the code of a failed listing: any failure counts as no reply. */
static gp_status unlisted(gp_status status, gp_error *err)
{
    if (status == GP_EBUSY || status == GP_ENOENT)
        status = GP_EPEER;
    if (err != NULL)
        err->code = status;
    return status;
}

static gp_status kubernetes_list(const gp_profile *profile, cluster_listing *listing, gp_error *err)
{
    const kubectl_call call = call_begin(profile);
    const size_t before = listing->count;
    cluster_tool_result result;
    bool unexplained;
    gp_status status =
        kubectl(&result, &call, VERB("get", "jobs.batch,pods", "-l", KUBERNETES_JOB_LABEL, "-o", "json"),
                NULL, CLUSTER_TOOL_OUTPUT_MAX, err);

    if (status != GP_OK)
        return unlisted(status, err);
    status = kubernetes_list_parse(listing, &unexplained, gp_buffer_text(&result.output), result.output.bytes,
                                   err);
    if (status == GP_OK)
        snapshot_keep(profile, &result.output, listing, before);
    cluster_tool_deinit(&result);
    if (status == GP_OK && unexplained)
        list_explain(listing, profile);
    return status;
}

/* ---- cancel ---- */

/* Delete the Job together with its pods, and pods without a Job. */
static gp_status kubernetes_cancel(const gp_profile *profile, const cluster_entry *entry, gp_error *err)
{
    const kubectl_call call = call_begin(profile);
    char label[80], grace[40];

    if (!cluster_name_valid(entry->id))
        return gp_fail(err, GP_EINVAL, "'%.40s' is not a Job of gradpool", entry->id);
    snprintf(label, sizeof(label), KUBERNETES_JOB_LABEL "=%s", entry->id);
    snprintf(grace, sizeof(grace), "--grace-period=%d", CANCEL_S);
    return kubectl_do(&call,
                      VERB("delete", "jobs.batch,pods", "-l", label, "--cascade=foreground",
                           "--ignore-not-found", "--wait=false", grace),
                      err);
}

static void kubernetes_cancel_command(const gp_profile *profile, const cluster_entry *entry,
                                      char text[CLUSTER_COMMAND_BYTES])
{
    char options[KUBECTL_OPTIONS][KUBECTL_OPTION_BYTES];
    const char *words[KUBECTL_WORDS];
    gp_buffer line;
    gp_status status = GP_OK;

    gp_buffer_init(&line, CLUSTER_COMMAND_BYTES);
    kubectl_words(words, options, profile, VERB("delete", "job", entry->id));
    for (size_t i = 0; status == GP_OK && words[i] != NULL; i++) {
        if (i > 0)
            status = gp_buffer_append(&line, " ", 1, NULL);
        if (status == GP_OK)
            status = gp_buffer_shell_word(&line, words[i], NULL);
    }
    snprintf(text, CLUSTER_COMMAND_BYTES, "%s", gp_buffer_text(&line));
    gp_buffer_deinit(&line);
}

/* ---- job ---- */

/* Read the facts and the started pods of a job. */
static gp_status job_read(cluster_facts *facts, kubernetes_pods *pods, const kubectl_call *call,
                          const char *name, gp_error *err)
{
    cluster_tool_result result;
    char label[80];
    gp_status status;

    snprintf(label, sizeof(label), KUBERNETES_JOB_LABEL "=%s", name);
    status = kubectl(&result, call, VERB("get", "jobs.batch,pods", "-l", label, "-o", "json"), NULL,
                     CLUSTER_TOOL_OUTPUT_MAX, err);
    if (status != GP_OK)
        return unlisted(status, err);
    status =
        kubernetes_facts_parse(facts, pods, name, gp_buffer_text(&result.output), result.output.bytes, err);
    cluster_tool_deinit(&result);
    return status;
}

/* Append the log of a pod. GP_ENOENT: the pod has no log yet, or was deleted. */
static gp_status pod_log(gp_buffer *out, const kubectl_call *call, const char *pod, size_t bytes_max,
                         gp_error *err)
{
    cluster_tool_result result;
    char limit[40];
    gp_error cause;
    gp_status status;

    snprintf(limit, sizeof(limit), "--limit-bytes=%zu", bytes_max);
    status = kubectl(&result, call, VERB("logs", pod, "--container=gradpool", limit), NULL, LOG_MAX, &cause);
    if (status != GP_OK)
        return gp_fail(err, /* waiting to start */
                       strstr(cause.message, "(BadRequest)") != NULL ? GP_ENOENT : status, "%s",
                       cause.message);
    status = gp_buffer_append(out, result.output.data, result.output.bytes, err);
    cluster_tool_deinit(&result);
    return status;
}

static gp_status kubernetes_facts(const gp_profile *profile, const char *name, cluster_facts *facts,
                                  gp_error *err)
{
    const kubectl_call call = call_begin(profile);
    const gp_buffer *reply = snapshot_use(profile, name);
    const kubernetes_pod *newest;
    cluster_facts found;
    kubernetes_pods pods;
    gp_buffer header;
    uint32_t attempt;
    gp_error cause;
    gp_status status =
        reply == NULL ? job_read(&found, &pods, &call, name, err)
                      : kubernetes_facts_parse(&found, &pods, name, gp_buffer_text(reply), reply->bytes, err);

    if (status != GP_OK)
        return status;
    newest = pods.count > 0 ? &pods.list[pods.count - 1] : NULL;
    if (newest != NULL && newest->running) {
        gp_buffer_init(&header, LOG_MAX);
        if (pod_log(&header, &call, newest->name, KUBERNETES_HEADER_BYTES, &cause) == GP_OK) {
            attempt = kubernetes_attempt_parse(gp_buffer_text(&header));
            found.begun = attempt > 0;
            found.attempt = attempt > found.attempt ? attempt : found.attempt;
        }
        gp_buffer_deinit(&header);
    }
    snprintf(found.engine_id, sizeof(found.engine_id), "%s", found.attempt > 0 ? name : "");
    *facts = found;
    return GP_OK;
}

/* Remove the Secret, without which no further pod of the job can start. */
static gp_status kubernetes_mark(const gp_profile *profile, const char *name, gp_error *err)
{
    const kubectl_call call = call_begin(profile);

    return secret_delete(&call, name, err);
}

/* Log that this process read last: the logs of all pods of a job, in the order of the pods. kubectl
 * cannot read from an offset, so without this cache each piece would cost the whole log. */
static struct {
    char name[CLUSTER_NAME_BYTES];
    gp_buffer text;
    uint64_t start; /* offset of `text` in the log; not 0 after a rotation */
} cached;

/* Replace the cache by a newer text of the same log. A text that does not continue the cached one
 * is of another file: the kubelet has rotated the log, or a pod was removed. Its lines then follow
 * the cached text, except for the lines with which both texts begin. */
static void log_keep(gp_buffer *text)
{
    const gp_buffer *old = &cached.text;
    size_t common = 0, lines = 0;

    while (common < old->bytes && common < text->bytes && old->data[common] == text->data[common])
        if (old->data[common++] == '\n')
            lines = common;
    if (common < old->bytes)
        cached.start += old->bytes - lines;
    gp_buffer_deinit(&cached.text);
    cached.text = *text;
}

/* Read the whole log of a job into the cache. GP_ENOENT: no container has started. */
static gp_status log_read(const gp_profile *profile, const char *name, gp_error *err)
{
    const kubectl_call call = call_begin(profile);
    cluster_facts facts;
    kubernetes_pods pods;
    gp_status status = job_read(&facts, &pods, &call, name, err);
    gp_buffer text;
    size_t read = 0;

    gp_buffer_init(&text, LOG_MAX);
    if (strcmp(cached.name, name) != 0) {
        gp_buffer_deinit(&cached.text);
        cached.start = 0;
        snprintf(cached.name, sizeof(cached.name), "%s", name);
    }
    for (size_t i = 0; status == GP_OK && i < pods.count; i++) {
        const size_t room = LOG_MAX - text.bytes;

        if (room == 0)
            break;
        status = pod_log(&text, &call, pods.list[i].name, room, err);
        read += status == GP_OK;
        if (status == GP_ENOENT)
            status = GP_OK;
    }
    if (status == GP_OK && read == 0)
        status = gp_fail(err, GP_ENOENT, "no container of job %s has started", name);
    if (status == GP_OK)
        log_keep(&text);
    else
        gp_buffer_deinit(&text);
    return status;
}

/* Copy the ends of the cached log: see CLUSTER_READ_ENDS. Return the number of bytes. */
static size_t log_ends(char *to, size_t bytes)
{
    const size_t head = bytes / 4, tail = bytes - head - 1;

    if (cached.text.bytes <= bytes) {
        if (cached.text.bytes > 0)
            memcpy(to, cached.text.data, cached.text.bytes);
        return cached.text.bytes;
    }
    memcpy(to, cached.text.data, head);
    to[head] = '\n';
    memcpy(to + head + 1, cached.text.data + cached.text.bytes - tail, tail);
    return bytes;
}

/* Read from the log of a job. */
static gp_status log_piece(const gp_profile *profile, const char *name, uint64_t offset, void *to,
                           size_t bytes, size_t *got, gp_error *err)
{
    size_t at, left;

    if (strcmp(cached.name, name) != 0 || cached.start + cached.text.bytes <= offset) {
        gp_status status = log_read(profile, name, err);

        if (status != GP_OK)
            return status;
    }
    if (offset == CLUSTER_READ_ENDS) {
        *got = log_ends(to, bytes);
        return GP_OK;
    }
    at = offset <= cached.start                       ? 0
         : offset - cached.start >= cached.text.bytes ? cached.text.bytes
                                                      : (size_t)(offset - cached.start);
    left = cached.text.bytes - at;
    *got = left < bytes ? left : bytes;
    if (*got > 0)
        memcpy(to, cached.text.data + at, *got);
    return GP_OK;
}

/* Read the log from Kubernetes, or another file of the job folder from the running container.
 * GP_ENOENT: no container runs, so this host cannot read the file. */
static gp_status kubernetes_read(const gp_profile *profile, const char *name, const char *path,
                                 uint64_t offset, void *to, size_t bytes, size_t *got, gp_error *err)
{
    const kubectl_call call = call_begin(profile);
    cluster_facts facts;
    kubernetes_pods pods;
    ssh_request request;
    size_t done = 0, piece = 0;
    gp_status status;

    if (strcmp(path, "log") == 0)
        return log_piece(profile, name, offset, to, bytes, got, err);
    status = container_file_request(&request, profile, name, path, err);
    if (offset == CLUSTER_READ_ENDS) {
        strcpy(request.verb, "ends");
        offset = 0;
    }
    pods.count = 0;
    if (status == GP_OK && !snapshot_is_idle(profile, name))
        status = job_read(&facts, &pods, &call, name, err);
    if (status == GP_OK && (pods.count == 0 || !pods.list[pods.count - 1].running))
        status = gp_fail(err, GP_ENOENT, "no container of job %s runs", name);
    while (status == GP_OK && done < bytes && (int64_t)piece == request.count) {
        request.offset = (int64_t)(offset + done);
        request.count = (int64_t)(bytes - done < SSH_PIECE_MAX ? bytes - done : SSH_PIECE_MAX);
        status = container_file_read(&call, pods.list[pods.count - 1].name, &request, (char *)to + done,
                                     &piece, err);
        done += status == GP_OK ? piece : 0;
    }
    if (status == GP_OK)
        *got = done;
    return status;
}

const cluster_engine cluster_engine_kubernetes = {
    .type = "kubernetes",
    .launch = kubernetes_launch,
    .list = kubernetes_list,
    .cancel = kubernetes_cancel,
    .script = kubernetes_script,
    .cancel_command = kubernetes_cancel_command,
    .facts = kubernetes_facts,
    .mark = kubernetes_mark,
    .read = kubernetes_read,
    .directory = kubernetes_volume_path,
    .check = kubernetes_job_check,
    .test = kubernetes_test,
};
