/* Implement kubernetes_manifest.h.
 *
 * The pods satisfy the Pod Security Standard "restricted": no root, no privileges, no capabilities,
 * the default seccomp profile. The group GROUP owns the Secret's file and new files of the volume,
 * so that a user without privileges can read the one and write to the other. */
#include "client/cluster/kubernetes_manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/cluster/kubernetes_state.h"
#include "common/base/text/json.h"

#define COMMAND_FOLDER "/run/gradpool-command"
#define COMMAND_FILE   "command.json"
#define SCRATCH        "/gradpool" /* temporary volume of a profile without `volume` */
#define JOBS           "gradpool-jobs"
#define QUEUE_LABEL    "kueue.x-k8s.io/queue-name"

enum { GROUP = 10001, LABEL_BYTES = 400, PATH_BYTES = 1024 };

/* ---- paths ---- */

const char *kubernetes_volume_path(const gp_profile *profile)
{
    const char *colon = strchr(profile->volume, ':');

    return colon != NULL ? colon + 1 : SCRATCH;
}

/* Return whether an absolute path is inside a folder, or equal to it. Paths with ".." are never
 * inside. */
static bool is_inside(const char *path, const char *folder)
{
    size_t bytes = strlen(folder);

    while (bytes > 1 && folder[bytes - 1] == '/')
        bytes--;
    if (strstr(path, "/../") != NULL || (strlen(path) > 2 && strcmp(path + strlen(path) - 3, "/..") == 0))
        return false;
    return bytes == 1 || (strncmp(path, folder, bytes) == 0 && (path[bytes] == '/' || path[bytes] == '\0'));
}

gp_status kubernetes_folder(char folder[CLUSTER_COMMAND_BYTES], const gp_profile *profile, const char *name,
                            gp_error *err)
{
    const char *volume = kubernetes_volume_path(profile);
    const int bytes = profile->folder[0] != '\0'
                          ? snprintf(folder, CLUSTER_COMMAND_BYTES, "%s/%s", profile->folder, name)
                          : snprintf(folder, CLUSTER_COMMAND_BYTES, "%s%s" JOBS "/%s", volume,
                                     volume[strlen(volume) - 1] == '/' ? "" : "/", name);

    return bytes < CLUSTER_COMMAND_BYTES ? GP_OK
                                         : gp_fail(err, GP_ELIMIT, "the path %.80s... is too long", folder);
}

/* ---- checks ---- */

/* Copy the next KEY=VALUE of the labels, split at '='. Return the start of the following one; NULL:
 * the labels have ended. */
static const char *label_next(const char *at, char label[LABEL_BYTES], char **value)
{
    const size_t bytes = strcspn(at, ",");

    if (bytes == 0 || bytes >= LABEL_BYTES)
        return NULL;
    memcpy(label, at, bytes);
    label[bytes] = '\0';
    *value = strchr(label, '=');
    if (*value == NULL)
        return NULL;
    *(*value)++ = '\0';
    return at + bytes + (at[bytes] == ',');
}

gp_status kubernetes_profile_check(const gp_profile *profile, gp_error *err)
{
    static const char *const own[] = { KUBERNETES_JOB_LABEL, "app.kubernetes.io/name",
                                       "app.kubernetes.io/managed-by", QUEUE_LABEL };
    char label[LABEL_BYTES], *value;
    const char *at = profile->labels;

    if (profile->folder[0] != '\0' && profile->volume[0] == '\0')
        return gp_fail(
            err, GP_EINVAL,
            "profile '%s' has a folder, but no volume that contains it; add 'volume = CLAIM:/PATH'",
            profile->name);
    if (profile->folder[0] != '\0' && !is_inside(profile->folder, kubernetes_volume_path(profile)))
        return gp_fail(err, GP_EINVAL,
                       "profile '%s': the folder %.200s is outside the volume %.200s; write a path inside it",
                       profile->name, profile->folder, kubernetes_volume_path(profile));
    while ((at = label_next(at, label, &value)) != NULL) {
        const char *rest = at;
        char other[LABEL_BYTES], *ignored;

        for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
            if (strcmp(label, own[i]) == 0)
                return gp_fail(err, GP_EINVAL, "profile '%s': gradpool sets the label '%.80s' itself%s",
                               profile->name, label,
                               strcmp(label, QUEUE_LABEL) == 0 ? "; use the setting 'queue'"
                                                               : "; remove it from 'labels'");
        while ((rest = label_next(rest, other, &ignored)) != NULL)
            if (strcmp(label, other) == 0)
                return gp_fail(err, GP_EINVAL, "profile '%s': the label '%.80s' occurs twice", profile->name,
                               label);
    }
    return GP_OK;
}

/* Check one path that a job writes to. */
static gp_status output_check(const gp_profile *profile, const char *directory, const char *option,
                              const char *path, gp_error *err)
{
    const char *volume = kubernetes_volume_path(profile);
    char whole[PATH_BYTES];

    if (profile->volume[0] == '\0')
        return gp_fail(err, GP_EINVAL,
                       "Kubernetes removes what a job writes into its container, and '%s' writes there; add "
                       "'volume = CLAIM:/PATH' to profile '%s'",
                       option, profile->name);
    if ((size_t)snprintf(whole, sizeof(whole), "%s%s%s", path[0] == '/' ? "" : directory,
                         path[0] == '/' ? "" : "/", path) >= sizeof(whole))
        return gp_fail(err, GP_ELIMIT, "the path %.80s... is too long", path);
    if (is_inside(whole, volume))
        return GP_OK;
    return gp_fail(
        err, GP_EINVAL,
        "'%s' writes to %.200s, which is outside the volume %.200s and removed with the pod; give a "
        "path inside the volume",
        option, whole, volume);
}

gp_status kubernetes_job_check(const gp_profile *profile, const char *directory, const char *const *words,
                               size_t count, gp_error *err)
{
    static const char *const outputs[] = { "--checkpoint-path", "--out",    "--metrics",
                                           "--overlays",        "--joblog", "--confusion" };
    size_t inner = 0;
    bool training = count > 0 && strcmp(words[0], "train") == 0;
    gp_status status = kubernetes_profile_check(profile, err);

    /* parfor can run trainings; the words after '--' of other commands belong to a program */
    while (inner < count && strcmp(words[inner], "--") != 0)
        inner++;
    if (inner + 1 < count && strcmp(words[0], "parfor") == 0 && strcmp(words[inner + 1], "train") == 0) {
        training = true;
        inner = count;
    }
    if (status == GP_OK && training && profile->volume[0] == '\0')
        status = output_check(profile, directory, "train", "", err);
    for (size_t i = 1; status == GP_OK && i < inner; i++)
        for (size_t k = 0; status == GP_OK && k < sizeof(outputs) / sizeof(outputs[0]); k++) {
            const size_t bytes = strlen(outputs[k]);

            if (strncmp(words[i], outputs[k], bytes) == 0 && words[i][bytes] == '=')
                status = output_check(profile, directory, outputs[k], words[i] + bytes + 1, err);
            else if (strcmp(words[i], outputs[k]) == 0 && i + 1 < inner)
                status = output_check(profile, directory, outputs[k], words[i + 1], err);
        }
    return status;
}

/* ---- objects ---- */

/* Write the labels of an object; `queue`: with the Kueue queue of the profile. */
static void put_labels(gp_json_writer *to, const gp_profile *profile, const char *name, bool queue)
{
    char label[LABEL_BYTES], *value;
    const char *at = profile->labels;

    gp_json_begin_object(to, "labels");
    gp_json_put_text(to, "app.kubernetes.io/name", "gradpool");
    gp_json_put_text(to, "app.kubernetes.io/managed-by", "gradpool");
    gp_json_put_text(to, KUBERNETES_JOB_LABEL, name);
    if (queue && profile->queue[0] != '\0')
        gp_json_put_text(to, QUEUE_LABEL, profile->queue);
    while ((at = label_next(at, label, &value)) != NULL)
        gp_json_put_text(to, label, value);
    gp_json_end_object(to);
}

/* Write the kind and the metadata of an object. */
static void put_head(gp_json_writer *to, const gp_profile *profile, const char *name, const char *version,
                     const char *kind)
{
    gp_json_put_text(to, "apiVersion", version);
    gp_json_put_text(to, "kind", kind);
    gp_json_begin_object(to, "metadata");
    gp_json_put_text(to, "name", name);
    if (profile->kubernetes_namespace[0] != '\0')
        gp_json_put_text(to, "namespace", profile->kubernetes_namespace);
    put_labels(to, profile, name, strcmp(kind, "Job") == 0);
    gp_json_end_object(to);
}

gp_status kubernetes_secret_format(const gp_profile *profile, const cluster_launch *launch, bool hide,
                                   gp_buffer *out, gp_error *err)
{
    gp_json_writer to;

    gp_json_writer_init(&to, out, hide);
    gp_json_begin_object(&to, NULL);
    put_head(&to, profile, launch->name, "v1", "Secret");
    gp_json_put_text(&to, "type", "Opaque");
    gp_json_put_bool(&to, "immutable", true);
    gp_json_begin_object(&to, "stringData");
    gp_json_put_text(&to, COMMAND_FILE,
                     hide ? "(hidden: the command of the job and its environment)" : launch->command);
    gp_json_end_object(&to);
    gp_json_end_object(&to);
    return gp_json_writer_finish(&to, err);
}

/* Write {"name": NAME, "value": NUMBER}. */
static void put_variable(gp_json_writer *to, const char *name, int64_t number)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRId64, number);
    gp_json_one_line(to);
    gp_json_begin_object(to, NULL);
    gp_json_put_text(to, "name", name);
    gp_json_put_text(to, "value", text);
    gp_json_end_object(to);
}

/* Write the resource requests or limits of the container. GPUs have equal requests and limits.
 * Cores are limited only for a job without GPUs, whose pool has a worker for each core. With GPUs,
 * a limit would throttle the threads that feed them. */
static void put_amounts(gp_json_writer *to, const char *kind, const gp_profile *profile, int64_t mib,
                        bool limits)
{
    char text[32];

    gp_json_begin_object(to, kind);
    if (profile->cores > 0 && (!limits || profile->gpus == 0)) {
        snprintf(text, sizeof(text), "%" PRId64, profile->cores);
        gp_json_put_text(to, "cpu", text);
    }
    if (mib > 0) {
        snprintf(text, sizeof(text), "%" PRId64 "Mi", mib);
        gp_json_put_text(to, "memory", text);
    }
    if (profile->gpus > 0) {
        snprintf(text, sizeof(text), "%" PRId64, profile->gpus);
        gp_json_put_text(to, "nvidia.com/gpu", text);
    }
    gp_json_end_object(to);
}

/* Write {"name": VOLUME, "mountPath": PATH}. */
static void put_mount(gp_json_writer *to, const char *volume, const char *path, bool read_only)
{
    gp_json_one_line(to);
    gp_json_begin_object(to, NULL);
    gp_json_put_text(to, "name", volume);
    gp_json_put_text(to, "mountPath", path);
    if (read_only)
        gp_json_put_bool(to, "readOnly", true);
    gp_json_end_object(to);
}

static void put_container(gp_json_writer *to, const gp_profile *profile, const char *folder, int64_t mib,
                          int64_t time_s)
{
    gp_json_begin_object(to, NULL);
    gp_json_put_text(to, "name", "gradpool");
    gp_json_put_text(to, "image", profile->image);
    gp_json_begin_array(to, "command");
    gp_json_put_text(to, NULL, profile->gradpool);
    gp_json_put_text(to, NULL, "job-attempt");
    gp_json_put_text(to, NULL, folder);
    gp_json_put_text(to, NULL, COMMAND_FOLDER "/" COMMAND_FILE);
    gp_json_put_text(to, NULL, "/dev/termination-log");
    gp_json_end_array(to);
    gp_json_begin_array(to, "env");
    gp_json_one_line(to);
    gp_json_begin_object(to, NULL);
    gp_json_put_text(to, "name", "GRADPOOL_ALLOCATION_ID");
    gp_json_put_text(to, "value", strrchr(folder, '/') + 1);
    gp_json_end_object(to);
    put_variable(to, "GRADPOOL_ALLOCATION_GPUS", profile->gpus);
    if (time_s > 0)
        put_variable(to, "GRADPOOL_ALLOCATION_TIME_S", time_s);
    gp_json_end_array(to);
    gp_json_begin_object(to, "resources");
    put_amounts(to, "requests", profile, mib, false);
    put_amounts(to, "limits", profile, mib, true);
    gp_json_end_object(to);
    gp_json_begin_object(to, "securityContext");
    gp_json_put_bool(to, "allowPrivilegeEscalation", false);
    gp_json_put_bool(to, "privileged", false);
    gp_json_one_line(to);
    gp_json_begin_object(to, "capabilities");
    gp_json_begin_array(to, "drop");
    gp_json_put_text(to, NULL, "ALL");
    gp_json_end_array(to);
    gp_json_end_object(to);
    gp_json_end_object(to);
    gp_json_put_text(to, "terminationMessagePath", "/dev/termination-log");
    gp_json_put_text(to, "terminationMessagePolicy", "File");
    gp_json_begin_array(to, "volumeMounts");
    put_mount(to, "command", COMMAND_FOLDER, true);
    put_mount(to, "shm", "/dev/shm", false);
    put_mount(to, "work", kubernetes_volume_path(profile), false);
    gp_json_end_array(to);
    gp_json_end_object(to);
}

/* Write the volumes. The container's default /dev/shm of 64 MiB is too small for the exchange
 * between workers, so the pod gets a larger one, which counts against the memory limit. */
static void put_volumes(gp_json_writer *to, const gp_profile *profile, const char *name, int64_t mib)
{
    char text[300];

    gp_json_begin_array(to, "volumes");
    gp_json_begin_object(to, NULL);
    gp_json_put_text(to, "name", "command");
    gp_json_begin_object(to, "secret");
    gp_json_put_text(to, "secretName", name);
    gp_json_put_integer(to, "defaultMode", 0400);
    gp_json_end_object(to);
    gp_json_end_object(to);
    gp_json_begin_object(to, NULL);
    gp_json_put_text(to, "name", "shm");
    gp_json_begin_object(to, "emptyDir");
    gp_json_put_text(to, "medium", "Memory");
    if (mib > 0) {
        snprintf(text, sizeof(text), "%" PRId64 "Mi", mib);
        gp_json_put_text(to, "sizeLimit", text);
    }
    gp_json_end_object(to);
    gp_json_end_object(to);
    gp_json_begin_object(to, NULL);
    gp_json_put_text(to, "name", "work");
    if (profile->volume[0] != '\0') {
        snprintf(text, sizeof(text), "%.*s", (int)strcspn(profile->volume, ":"), profile->volume);
        gp_json_begin_object(to, "persistentVolumeClaim");
        gp_json_put_text(to, "claimName", text);
    } else {
        gp_json_begin_object(to, "emptyDir");
    }
    gp_json_end_object(to);
    gp_json_end_object(to);
    gp_json_end_array(to);
}

/* Write the pod that runs one attempt. */
static void put_pod(gp_json_writer *to, const gp_profile *profile, const char *name, const char *folder,
                    int64_t mib, int64_t time_s)
{
    gp_json_begin_object(to, "spec");
    gp_json_put_text(to, "restartPolicy", "Never");
    gp_json_put_integer(to, "terminationGracePeriodSeconds", KUBERNETES_GRACE_S);
    if (time_s > 0)
        gp_json_put_integer(to, "activeDeadlineSeconds", time_s + KUBERNETES_DEADLINE_S);
    gp_json_put_bool(to, "automountServiceAccountToken", false);
    gp_json_put_bool(to, "enableServiceLinks", false);
    gp_json_begin_object(to, "securityContext");
    gp_json_put_bool(to, "runAsNonRoot", true);
    gp_json_put_integer(to, "fsGroup", GROUP);
    gp_json_put_text(to, "fsGroupChangePolicy", "OnRootMismatch");
    gp_json_one_line(to);
    gp_json_begin_object(to, "seccompProfile");
    gp_json_put_text(to, "type", "RuntimeDefault");
    gp_json_end_object(to);
    gp_json_end_object(to);
    gp_json_begin_array(to, "containers");
    put_container(to, profile, folder, mib, time_s);
    gp_json_end_array(to);
    put_volumes(to, profile, name, mib);
    gp_json_end_object(to);
}

/* Write how Kubernetes treats pods that fail. Each failure of the job itself is final. A pod that
 * was evicted or pre-empted is replaced if the job may be requeued. */
static void put_policy(gp_json_writer *to, const gp_profile *profile, bool requeue)
{
    gp_json_put_integer(to, "completions", 1);
    gp_json_put_integer(to, "parallelism", 1);
    gp_json_put_integer(to, "backoffLimit", 0);
    gp_json_put_integer(to, "ttlSecondsAfterFinished", KUBERNETES_KEEP_S);
    if (profile->queue[0] != '\0') /* Kueue starts the Job when it admits it */
        gp_json_put_bool(to, "suspend", true);
    if (!requeue)
        return;
    gp_json_begin_object(to, "podFailurePolicy");
    gp_json_begin_array(to, "rules");
    gp_json_begin_object(to, NULL);
    gp_json_put_text(to, "action", "Ignore");
    gp_json_begin_array(to, "onPodConditions");
    gp_json_one_line(to);
    gp_json_begin_object(to, NULL);
    gp_json_put_text(to, "type", "DisruptionTarget");
    gp_json_put_text(to, "status", "True");
    gp_json_end_object(to);
    gp_json_end_array(to);
    gp_json_end_object(to);
    gp_json_end_array(to);
    gp_json_end_object(to);
}

gp_status kubernetes_job_format(const gp_profile *profile, const cluster_launch *launch, gp_buffer *out,
                                gp_error *err)
{
    char folder[CLUSTER_COMMAND_BYTES];
    int64_t mib = 0, time_s = launch->time_s;
    gp_json_writer to;
    gp_status status = kubernetes_profile_check(profile, err);

    if (status == GP_OK && profile->memory[0] != '\0')
        status = gp_profile_memory_mib(profile->memory, &mib, err);
    if (status == GP_OK && time_s == 0 && profile->time[0] != '\0')
        status = gp_profile_time_s(profile->time, &time_s, err);
    if (status == GP_OK)
        status = kubernetes_folder(folder, profile, launch->name, err);
    if (status != GP_OK)
        return status;
    gp_json_writer_init(&to, out, true);
    gp_json_begin_object(&to, NULL);
    put_head(&to, profile, launch->name, "batch/v1", "Job");
    gp_json_begin_object(&to, "spec");
    put_policy(&to, profile, launch->requeue);
    gp_json_begin_object(&to, "template");
    gp_json_begin_object(&to, "metadata");
    put_labels(&to, profile, launch->name, false);
    gp_json_end_object(&to);
    put_pod(&to, profile, launch->name, folder, mib, time_s);
    gp_json_end_object(&to);
    gp_json_end_object(&to);
    gp_json_end_object(&to);
    return gp_json_writer_finish(&to, err);
}
