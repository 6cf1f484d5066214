/* Engine `ssh`: `gradpool ssh-host` on each host launches, lists and cancels the jobs.
 *
 * The remote command is a constant of the profile, `exec gradpool ssh-host`. The verb, the folder
 * and the command of the job are on standard input (ssh_wire.h). So no shell parses them, and no
 * list of processes shows them.
 *
 * The system's ssh reads the user's configuration, with jump hosts, agents and connection sharing.
 * The options on its command line take precedence: unknown and changed host keys are refused.
 *
 * The engine has no state of its own. A launch asks one host after the other until one is free. The
 * host decides that under a lock, so two launches cannot take the same host. The outcome is unknown
 * only if an established connection was lost: a host that was not reached has launched nothing. */
#include "client/cluster/ssh.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cluster/job_folder.h"
#include "client/cluster/profile.h"
#include "client/cluster/ssh_call.h"
#include "common/base/memory/alloc.h"
#include "common/base/printable.h"
#include "common/base/system/process.h"
#include "common/base/system/timeout.h"

enum {
    HOSTS_MAX = 64,
    AT_ONCE = 8,        /* connections; sshd drops some of more than 10 that are not logged in */
    CALL_MS = 28000,    /* all connections of one call of the engine */
    FLOOR_MS = 3000,    /* no connection begins with less time left */
    ID_HOST_BYTES = 45, /* of the host in an id */
    SEEN_MAX = 256,     /* jobs whose host is remembered */
};

/* ---- hosts ---- */

typedef struct ssh_hosts {
    char name[HOSTS_MAX][SSH_HOST_BYTES];
    size_t count;
} ssh_hosts;

static void hosts_split(ssh_hosts *out, const gp_profile *profile)
{
    const char *at = profile->hosts;

    out->count = 0;
    while (*at != '\0' && out->count < HOSTS_MAX) {
        const size_t bytes = strcspn(at, ",");

        snprintf(out->name[out->count++], SSH_HOST_BYTES, "%.*s", (int)bytes, at);
        at += bytes + (at[bytes] == ',');
    }
}

/* Write the id of a job: its host and the beginning of its launch name. */
static void id_format(char id[CLUSTER_ID_BYTES], const char *host, const char *name)
{
    int bytes = snprintf(id, CLUSTER_ID_BYTES, "%.*s-%.8s", ID_HOST_BYTES, host, name + strlen("gp-"));

    for (int i = 0; i < bytes; i++)
        if (id[i] == ':' || id[i] == '%')
            id[i] = '_';
}

/* The host of each job that this process has seen last. It saves connections only: without an
 * entry, all hosts are asked. */
static struct {
    char name[SEEN_MAX][CLUSTER_NAME_BYTES], host[SEEN_MAX][SSH_HOST_BYTES];
    size_t next;
} seen;

static const char *seen_find(const char *name)
{
    for (size_t i = 0; i < SEEN_MAX; i++)
        if (strcmp(seen.name[i], name) == 0)
            return seen.host[i];
    return NULL;
}

static void seen_add(const char *name, const char *host)
{
    size_t i = 0;

    while (i < SEEN_MAX && strcmp(seen.name[i], name) != 0)
        i++;
    if (i == SEEN_MAX)
        i = seen.next++ % SEEN_MAX;
    snprintf(seen.name[i], sizeof(seen.name[i]), "%s", name);
    snprintf(seen.host[i], sizeof(seen.host[i]), "%s", host);
}

/* ---- several connections ---- */

/* Calls that several threads carry out. */
typedef struct ssh_calls {
    ssh_call *list;
    size_t count;
    atomic_size_t next;
    atomic_bool stop; /* begin no further call */
    bool until_found; /* stop after the first success; false: after the first failure */
    gp_timeout timeout;
} ssh_calls;

static void *calls_work(void *context)
{
    ssh_calls *calls = context;
    size_t i;

    while (!atomic_load(&calls->stop) && (i = atomic_fetch_add(&calls->next, 1)) < calls->count) {
        ssh_call *call = &calls->list[i];
        const int64_t left_ms = gp_timeout_left(calls->timeout);

        call->status = left_ms < FLOOR_MS ? gp_fail(&call->err, GP_ETIMEDOUT, "%s: the other hosts took %d s",
                                                    call->request.host, CALL_MS / 1000)
                                          : ssh_call_run(call, (int)left_ms, &call->err);
        if ((call->status == GP_OK) == calls->until_found)
            atomic_store(&calls->stop, true);
    }
    return NULL;
}

/* Send a request to all hosts, to at most AT_ONCE at a time.
 *   call         profile, request without a host, and bytes after it
 *   until_found  stop after the first success; false: after the first failure
 *   calls        one per host, freed by the caller with calls_free(); those that did not begin have
 *                the status GP_ECANCELED */
static gp_status calls_run(ssh_calls *calls, const ssh_call *call, bool until_found, gp_error *err)
{
    pthread_t threads[AT_ONCE];
    size_t started = 0;
    ssh_hosts hosts;

    hosts_split(&hosts, call->profile);
    *calls = (ssh_calls){ .list = gp_calloc(hosts.count, sizeof(*calls->list)),
                          .count = hosts.count,
                          .until_found = until_found,
                          .timeout = gp_timeout_in(CALL_MS) };
    if (calls->list == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %zu connections", hosts.count);
    for (size_t i = 0; i < hosts.count; i++) {
        calls->list[i] = *call;
        calls->list[i].status = GP_ECANCELED;
        snprintf(calls->list[i].request.host, SSH_HOST_BYTES, "%s", hosts.name[i]);
    }
    while (started + 1 < AT_ONCE && started + 1 < hosts.count &&
           gp_thread_start(&threads[started], "gp-ssh", 0, calls_work, calls) == 0)
        started++;
    calls_work(calls); /* this thread, too */
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    return GP_OK;
}

static void calls_free(ssh_calls *calls)
{
    for (size_t i = 0; calls->list != NULL && i < calls->count; i++)
        ssh_call_deinit(&calls->list[i]);
    gp_free(calls->list);
    calls->list = NULL;
}

static void request_init(ssh_request *out, const gp_profile *profile, const char *verb, const char *name)
{
    *out = (ssh_request){ .offset = 0 };
    snprintf(out->verb, sizeof(out->verb), "%s", verb);
    snprintf(out->folder, sizeof(out->folder), "%s", profile->folder);
    snprintf(out->name, sizeof(out->name), "%s", name);
}

/* Return whether a reply is about an existing job folder. */
static bool has_folder(const ssh_call *call)
{
    return gp_json_bool(gp_json_member(call->reply.head, "folder"), false);
}

/* Send a request about a job to its host: the host that this process has seen last, else all.
 *   out  call with the reply of the host that has the folder of the job; ssh_call_deinit() it, also
 *        after an error
 * GP_ENOENT: no host has the folder, if `out` has no reply; else as the host replied. */
static gp_status call_job(ssh_call *out, const gp_profile *profile, const ssh_request *request, gp_error *err)
{
    const char *host = seen_find(request->name);
    ssh_calls calls;
    gp_status status, failed = GP_OK;
    bool found = false;

    *out = (ssh_call){ .profile = profile, .request = *request };
    if (host != NULL) {
        snprintf(out->request.host, SSH_HOST_BYTES, "%s", host);
        status = ssh_call_run(out, CALL_MS, err);
        if (out->reply.head == NULL || has_folder(out))
            return status;
        ssh_call_deinit(out);
    }
    status = calls_run(&calls, &(ssh_call){ .profile = profile, .request = *request }, true, err);
    for (size_t i = 0; status == GP_OK && !found && i < calls.count; i++) {
        ssh_call *call = &calls.list[i];

        if (call->reply.head != NULL && has_folder(call)) {
            *out = *call;
            call->reply = (ssh_reply){ 0 };
            call->result = (cluster_tool_result){ 0 };
            found = true;
            seen_add(request->name, out->request.host);
        } else if (call->reply.head == NULL && call->status != GP_ECANCELED && failed == GP_OK) {
            failed = ssh_call_status(call, err);
        }
    }
    if (status == GP_OK && found) {
        status = ssh_call_status(out, err);
    } else if (status == GP_OK) {
        status = failed != GP_OK ? failed
                                 : gp_fail(err, GP_ENOENT, "no host of profile '%s' has the job %s",
                                           profile->name, request->name);
    }
    calls_free(&calls);
    return status;
}

/* ---- functions of the engine ---- */

/* Fill in the request of a launch, without a host. */
static gp_status launch_request(ssh_request *out, const gp_profile *profile, const cluster_launch *launch,
                                gp_error *err)
{
    gp_status status = GP_OK;

    request_init(out, profile, "launch", launch->name);
    out->gpus = profile->gpus;
    out->cores = profile->cores;
    out->time_s = launch->time_s;
    if (profile->memory[0] != '\0')
        status = gp_profile_memory_mib(profile->memory, &out->memory_mib, err);
    if (status == GP_OK && out->time_s == 0 && profile->time[0] != '\0')
        status = gp_profile_time_s(profile->time, &out->time_s, err);
    return status;
}

static gp_status ssh_launch(const gp_profile *profile, const cluster_launch *launch,
                            char id[CLUSTER_ID_BYTES], gp_error *err)
{
    const gp_timeout timeout = gp_timeout_in(CALL_MS);
    ssh_call call = { .profile = profile,
                      .command = launch->command,
                      .command_bytes = launch->command_bytes };
    char busy[GP_ERROR_MESSAGE_MAX] = "";
    size_t used = 0;
    ssh_hosts hosts;
    gp_status status = launch_request(&call.request, profile, launch, err);

    if (status != GP_OK)
        return status;
    hosts_split(&hosts, profile);
    for (size_t i = 0; i < hosts.count; i++) {
        const int64_t left_ms = gp_timeout_left(timeout);

        if (left_ms < FLOOR_MS)
            return gp_fail(err, GP_EBUSY, "no free host within %d s: %.300s", CALL_MS / 1000, busy);
        snprintf(call.request.host, SSH_HOST_BYTES, "%s", hosts.name[i]);
        call.status = ssh_call_run(&call, (int)left_ms, &call.err);
        ssh_call_deinit(&call);
        if (call.status == GP_OK) {
            id_format(id, hosts.name[i], launch->name);
            seen_add(launch->name, hosts.name[i]);
        }
        if (call.status != GP_EBUSY)
            return ssh_call_status(&call, err);
        if (used < sizeof(busy))
            used += (size_t)snprintf(busy + used, sizeof(busy) - used, "%s%s", used > 0 ? "; " : "",
                                     call.err.message);
    }
    return gp_fail(err, GP_EBUSY, "all hosts of profile '%s' are busy: %.380s", profile->name, busy);
}

/* Add the jobs of one reply. */
static gp_status reply_list(cluster_listing *listing, const ssh_call *call, gp_error *err)
{
    const gp_json *jobs = gp_json_member(call->reply.head, "jobs");
    const size_t count = gp_json_count(jobs);
    const char *host = call->request.host;

    if (!gp_json_is_array(jobs) || count > SSH_JOBS_MAX)
        return gp_fail(err, GP_EPEER, "%s: malformed list of jobs", host);
    for (size_t i = 0; i < count; i++) {
        const gp_json *job = gp_json_element(jobs, i);
        const char *name = gp_json_text(gp_json_member(job, "name"), "");
        const bool ended = gp_json_bool(gp_json_member(job, "ended"), false);
        cluster_entry *entry;
        gp_status status;

        if (!cluster_name_valid(name) || !gp_json_is_bool(gp_json_member(job, "ended")))
            return gp_fail(err, GP_EPEER, "%s: malformed list of jobs", host);
        status = cluster_listing_add(listing, &entry, err);
        if (status != GP_OK)
            return status;
        entry->state = ended ? CLUSTER_ENTRY_ENDED : CLUSTER_ENTRY_RUNNING;
        snprintf(entry->name, sizeof(entry->name), "%s", name);
        snprintf(entry->text, sizeof(entry->text), "%s on %.45s", ended ? "ENDED" : "RUNNING", host);
        id_format(entry->id, host, name);
        if (!ended)
            seen_add(name, host);
    }
    return GP_OK;
}

static gp_status ssh_list(const gp_profile *profile, cluster_listing *listing, gp_error *err)
{
    const size_t before = listing->count;
    ssh_call all = { .profile = profile };
    ssh_calls calls;
    gp_status status;

    request_init(&all.request, profile, "list", "");
    status = calls_run(&calls, &all, false, err);
    for (size_t i = 0; status == GP_OK && i < calls.count; i++)
        if (calls.list[i].status != GP_OK && calls.list[i].status != GP_ECANCELED) {
            status = ssh_call_status(&calls.list[i], err);
        }
    for (size_t i = 0; status == GP_OK && i < calls.count; i++)
        status = reply_list(listing, &calls.list[i], err);
    calls_free(&calls);
    if (status != GP_OK)
        listing->count = before;
    return status;
}

/* Find the host of an id in the profile. NULL: none; then *err has the reason. */
static const char *host_of(const ssh_hosts *hosts, const gp_profile *profile, const cluster_entry *entry,
                           gp_error *err)
{
    char id[CLUSTER_ID_BYTES];

    for (size_t i = 0; i < hosts->count; i++) {
        id_format(id, hosts->name[i], entry->name);
        if (strcmp(id, entry->id) == 0)
            return hosts->name[i];
    }
    gp_fail(err, GP_EINVAL, "the host of job '%s' is not among the hosts of profile '%s'; add it to 'hosts'",
            entry->id, profile->name);
    return NULL;
}

static gp_status ssh_cancel(const gp_profile *profile, const cluster_entry *entry, gp_error *err)
{
    ssh_call call = { .profile = profile };
    ssh_hosts hosts;
    const char *host;
    gp_status status;

    hosts_split(&hosts, profile);
    host = host_of(&hosts, profile, entry, err);
    if (host == NULL)
        return GP_EINVAL;
    request_init(&call.request, profile, "cancel", entry->name);
    snprintf(call.request.host, SSH_HOST_BYTES, "%s", host);
    status = ssh_call_run(&call, CALL_MS, err);
    ssh_call_deinit(&call);
    return status;
}

/* Show the command line and the head of the request; command.json may contain values that do not
 * belong on a screen. */
static gp_status ssh_script(const gp_profile *profile, const cluster_launch *launch, gp_buffer *out,
                            gp_error *err)
{
    const char *words[SSH_WORDS];
    ssh_request request;
    gp_buffer remote;
    gp_status status = launch_request(&request, profile, launch, err);

    gp_buffer_init(&remote, 4096);
    if (status == GP_OK)
        status = ssh_words(words, &remote, profile, "HOST", err);
    if (status == GP_OK)
        status = gp_buffer_printf(out, err, "# HOST: the first of these without a job: %s\n", profile->hosts);
    for (size_t i = 0; status == GP_OK && words[i] != NULL; i++) {
        if (i > 0)
            status = gp_buffer_append(out, " ", 1, err);
        if (status == GP_OK)
            status = gp_buffer_shell_word(out, words[i], err);
    }
    if (status == GP_OK)
        status = gp_buffer_printf(out, err, "\n# standard input, before command.json:\n# ");
    snprintf(request.host, sizeof(request.host), "HOST");
    if (status == GP_OK)
        status = ssh_request_format(&request, NULL, 0, out, err);
    gp_buffer_deinit(&remote);
    return status;
}

static void ssh_cancel_command(const gp_profile *profile, const cluster_entry *entry,
                               char text[CLUSTER_COMMAND_BYTES])
{
    ssh_hosts hosts;
    const char *host;

    hosts_split(&hosts, profile);
    host = host_of(&hosts, profile, entry, NULL);
    /* The brackets keep pkill from finding the shell that runs this command. */
    snprintf(text, CLUSTER_COMMAND_BYTES, "ssh %s%s%s%s \"pkill -KILL -f '[g]p-%s'\"",
             profile->user[0] != '\0' ? "-l " : "", profile->user, profile->user[0] != '\0' ? " " : "",
             host != NULL ? host : "HOST", entry->name + strlen("gp-"));
}

static gp_status ssh_facts(const gp_profile *profile, const char *name, cluster_facts *facts, gp_error *err)
{
    const gp_json *head;
    cluster_facts found = { 0 };
    ssh_request request;
    ssh_call call;
    gp_status status;

    request_init(&request, profile, "facts", name);
    status = call_job(&call, profile, &request, err);
    head = call.reply.head;
    if (status == GP_OK) {
        found.attempt = (uint32_t)gp_json_integer(gp_json_member(head, "attempt"), 0);
        found.begun = gp_json_bool(gp_json_member(head, "begun"), false);
        snprintf(found.host, sizeof(found.host), "%s", gp_json_text(gp_json_member(head, "on"), ""));
        snprintf(found.attempt_reason, sizeof(found.attempt_reason), "%s",
                 gp_json_text(gp_json_member(head, "attempt_reason"), ""));
        found.canceled = gp_json_bool(gp_json_member(head, "canceled"), false);
        found.has_result = gp_json_bool(gp_json_member(head, "has_result"), false);
        found.result_attempt = (uint32_t)gp_json_integer(gp_json_member(head, "result_attempt"), 0);
        found.exit_code = cluster_exit_code_read(gp_json_member(head, "exit_code"));
        snprintf(found.reason, sizeof(found.reason), "%s", gp_json_text(gp_json_member(head, "reason"), ""));
        found.begin_ms = cluster_time_read(gp_json_member(head, "begin_ms"));
        found.end_ms = cluster_time_read(gp_json_member(head, "end_ms"));
        gp_printable(found.host);
        gp_printable(found.attempt_reason);
        gp_printable(found.reason);
    }
    if (status == GP_OK || status == GP_ENOENT) {
        *facts = found;
        status = GP_OK;
    }
    ssh_call_deinit(&call);
    return status;
}

static gp_status ssh_mark(const gp_profile *profile, const char *name, gp_error *err)
{
    ssh_request request;
    ssh_call call;
    gp_status status;

    request_init(&request, profile, "mark", name);
    status = call_job(&call, profile, &request, err);
    ssh_call_deinit(&call);
    return status;
}

static gp_status ssh_read(const gp_profile *profile, const char *name, const char *path, uint64_t offset,
                          void *to, size_t bytes, size_t *got, gp_error *err)
{
    ssh_request request;
    size_t done = 0, piece = 1;
    gp_status status = GP_OK;

    request_init(&request, profile, offset == CLUSTER_READ_ENDS ? "ends" : "read", name);
    if (offset == CLUSTER_READ_ENDS)
        offset = 0;
    if (!ssh_file_valid(path) ||
        (size_t)snprintf(request.file, sizeof(request.file), "%s", path) >= sizeof(request.file))
        return gp_fail(err, GP_EINVAL, "'%.80s' is not a file of a job folder", path);
    while (status == GP_OK && done < bytes && piece > 0) {
        ssh_call call;

        request.offset = (int64_t)(offset + done);
        request.count = (int64_t)(bytes - done < SSH_PIECE_MAX ? bytes - done : SSH_PIECE_MAX);
        status = call_job(&call, profile, &request, err);
        piece = status == GP_OK ? call.reply.bytes : 0;
        if (piece > (size_t)request.count)
            status = gp_fail(err, GP_EPEER, "%s: sent more bytes than requested", call.request.host);
        else if (piece > 0)
            memcpy((char *)to + done, call.reply.data, piece);
        done += piece;
        if ((int64_t)piece < request.count)
            piece = 0; /* end of file */
        ssh_call_deinit(&call);
    }
    if (status == GP_OK)
        *got = done;
    return status;
}

static void ssh_steps(const gp_profile *profile, const char (*names)[CLUSTER_NAME_BYTES], size_t count,
                      cluster_steps *steps)
{
    ssh_call all = { .profile = profile };
    ssh_calls calls = { .list = NULL };
    gp_buffer text;
    gp_status status = GP_OK;

    gp_buffer_init(&text, CLUSTER_COMMAND_JSON_MAX);
    for (size_t i = 0; i < count; i++) {
        steps[i] = (cluster_steps){ -1, -1 };
        if (status == GP_OK)
            status = gp_buffer_printf(&text, NULL, "%s\n", names[i]);
    }
    request_init(&all.request, profile, "steps", "");
    all.command = gp_buffer_text(&text);
    all.command_bytes = text.bytes;
    if (status == GP_OK)
        status = calls_run(&calls, &all, false, NULL);
    for (size_t host = 0; status == GP_OK && host < calls.count; host++) {
        const gp_json *found = gp_json_member(calls.list[host].reply.head, "steps");

        for (size_t i = 0; i < count; i++) {
            const gp_json *pair = gp_json_member(found, names[i]);

            if (pair != NULL)
                steps[i] = (cluster_steps){ gp_json_integer(gp_json_element(pair, 0), -1),
                                            gp_json_integer(gp_json_element(pair, 1), -1) };
        }
    }
    calls_free(&calls);
    gp_buffer_deinit(&text);
}

const cluster_engine cluster_engine_ssh = {
    .type = "ssh",
    .launch = ssh_launch,
    .list = ssh_list,
    .cancel = ssh_cancel,
    .script = ssh_script,
    .cancel_command = ssh_cancel_command,
    .facts = ssh_facts,
    .mark = ssh_mark,
    .read = ssh_read,
    .steps = ssh_steps,
};
