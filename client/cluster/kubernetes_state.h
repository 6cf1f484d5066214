/* Read the state of jobs from the JSON that kubectl prints, and from texts that the jobs write.
 *
 * All functions are pure. The JSON comes from another host, so every count and length has a
 * ceiling. Kubernetes reports a job in two kinds of objects: the Job shows whether further pods
 * will run, and its pods show the running processes. Both carry the label KUBERNETES_JOB_LABEL with
 * the launch name. */
#ifndef GP_CLUSTER_KUBERNETES_STATE_H
#define GP_CLUSTER_KUBERNETES_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/cluster/engine.h"
#include "common/base/error.h"
#include "common/base/memory/buffer.h"

#define KUBERNETES_JOB_LABEL "gradpool/job"

enum {
    KUBERNETES_ITEMS_MAX = 10000, /* objects in one reply of kubectl */
    KUBERNETES_NAME_BYTES = 254,
    KUBERNETES_PODS_MAX = 64,        /* newest pods of one job that are considered */
    KUBERNETES_MESSAGE_BYTES = 4096, /* largest termination message that Kubernetes keeps */
    KUBERNETES_HEADER_BYTES = 256,   /* beginning of a log with the number of the attempt */
};

/* ---- termination message ---- */

/* Termination message, which an attempt leaves to Kubernetes when it ends. */
typedef struct kubernetes_message {
    uint32_t attempt; /* 0: the process did not become an attempt */
    bool has_result;  /* the job has ended; exit_code is valid */
    int exit_code;    /* 0 to 255 */
    char reason[CLUSTER_REASON_BYTES];
} kubernetes_message;

/* Append the termination message, a line of JSON. */
gp_status kubernetes_message_format(const kubernetes_message *message, gp_buffer *out, gp_error *err);

/* Parse a termination message. False: malformed, or of another program. */
bool kubernetes_message_parse(kubernetes_message *out, const char *text);

/* Return the number in the first line of a log, "== attempt 2 on ...". 0: there is none. */
uint32_t kubernetes_attempt_parse(const char *log);

/* ---- replies of kubectl ---- */

/* Add the jobs in a reply of `kubectl get jobs,pods -o json`. Objects without a launch name are
 * skipped. After an error the listing is unchanged.
 *   unexplained  set to whether a job waits without any pod; see kubernetes_explain()
 * GP_EPEER: malformed or incomplete. GP_ELIMIT: more than KUBERNETES_ITEMS_MAX objects. */
gp_status kubernetes_list_parse(cluster_listing *listing, bool *unexplained, const char *text, size_t bytes,
                                gp_error *err);

/* Set the reasons of waiting jobs from a reply with objects of the kind Event (the Job controller
 * may not create the pod, as with a quota) or Workload (Kueue does not admit the job).
 * GP_EPEER, GP_ELIMIT: as for kubernetes_list_parse(); the reasons are unchanged. */
gp_status kubernetes_explain(cluster_listing *listing, const char *text, size_t bytes, gp_error *err);

/* A pod whose container has started, so that it has a log. */
typedef struct kubernetes_pod {
    char name[KUBERNETES_NAME_BYTES];
    bool running;
} kubernetes_pod;

typedef struct kubernetes_pods {
    kubernetes_pod list[KUBERNETES_PODS_MAX]; /* oldest first */
    size_t count;
} kubernetes_pods;

/* Read the facts of one job and its started pods from a reply of `kubectl get jobs,pods -o json`.
 * `attempt` and `begun` of a running pod are not in the reply: kubernetes_attempt_parse() has them.
 * Errors as for kubernetes_list_parse(). */
gp_status kubernetes_facts_parse(cluster_facts *facts, kubernetes_pods *pods, const char *name,
                                 const char *text, size_t bytes, gp_error *err);

#endif
