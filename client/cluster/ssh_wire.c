/* Implement ssh_wire.h. */
#include "client/cluster/ssh_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cluster/job_folder.h"
#include "common/base/printable.h"

#define GREETING "gradpool-ssh-host "

const char *ssh_build(void)
{
    return GP_BUILD;
}

/* ---- request ---- */

gp_status ssh_request_format(const ssh_request *request, const char *command, size_t bytes, gp_buffer *out,
                             gp_error *err)
{
    gp_json_writer writer;
    gp_status status;

    gp_json_writer_init(&writer, out, false);
    gp_json_begin_object(&writer, NULL);
    gp_json_put_integer(&writer, "protocol", SSH_PROTOCOL);
    gp_json_put_text(&writer, "build", ssh_build());
    gp_json_put_text(&writer, "verb", request->verb);
    gp_json_put_text(&writer, "host", request->host);
    gp_json_put_text(&writer, "folder", request->folder);
    gp_json_put_text(&writer, "name", request->name);
    gp_json_put_text(&writer, "file", request->file);
    gp_json_put_integer(&writer, "offset", request->offset);
    gp_json_put_integer(&writer, "count", request->count);
    gp_json_put_integer(&writer, "gpus", request->gpus);
    gp_json_put_integer(&writer, "cores", request->cores);
    gp_json_put_integer(&writer, "memory_mib", request->memory_mib);
    gp_json_put_integer(&writer, "time_s", request->time_s);
    gp_json_put_integer(&writer, "bytes", (int64_t)bytes);
    gp_json_end_object(&writer);
    status = gp_json_writer_finish(&writer, err);
    if (status == GP_OK)
        status = gp_buffer_append(out, "\n", 1, err);
    return status == GP_OK && bytes > 0 ? gp_buffer_append(out, command, bytes, err) : status;
}

/* Copy a text member. False: missing, or longer than `bytes` - 1. */
static bool text_get(char *to, size_t bytes, const gp_json *head, const char *key)
{
    const char *text = gp_json_text(gp_json_member(head, key), NULL);

    return text != NULL && gp_printable_check(key, text, NULL) == GP_OK &&
           (size_t)snprintf(to, bytes, "%s", text) < bytes;
}

/* Copy a number member. False: missing, negative, or larger than `max`. */
static bool number_get(int64_t *to, const gp_json *head, const char *key, int64_t max)
{
    *to = gp_json_integer(gp_json_member(head, key), -1);
    return *to >= 0 && *to <= max;
}

bool ssh_file_valid(const char *file)
{
    if (file[0] == '\0' || file[0] == '/')
        return false;
    for (const char *at = file; *at != '\0'; at += strcspn(at, "/"), at += *at == '/')
        if (strncmp(at, "../", 3) == 0 || strcmp(at, "..") == 0)
            return false;
    return true;
}

gp_status ssh_request_parse(ssh_request *out, const char *text, size_t bytes, const char **command,
                            size_t *command_bytes, gp_error *err)
{
    const char *end = memchr(text, '\n', bytes < SSH_HEAD_MAX ? bytes : SSH_HEAD_MAX), *problem = NULL;
    ssh_request request = { 0 };
    int64_t rest = 0, protocol;
    gp_json *head = NULL;
    gp_status status;

    if (end == NULL)
        return gp_fail(err, GP_EPROTO, "the request has no complete first line (%zu bytes)", bytes);
    status = gp_json_parse(&head, text, (size_t)(end - text), err);
    if (status != GP_OK)
        return gp_fail(err, GP_EPROTO, "the first line of the request is not JSON");
    protocol = gp_json_integer(gp_json_member(head, "protocol"), 0);
    if (protocol != SSH_PROTOCOL) {
        gp_json_free(head);
        return gp_fail(err, GP_EVERSION, "the request has version %lld of the protocol; %s has version %d",
                       (long long)protocol, ssh_build(), SSH_PROTOCOL);
    }
    if (!text_get(request.verb, sizeof(request.verb), head, "verb"))
        problem = "verb";
    else if (!text_get(request.host, sizeof(request.host), head, "host") || request.host[0] == '\0' ||
             strchr(request.host, '/') != NULL)
        problem = "host";
    else if (!text_get(request.folder, sizeof(request.folder), head, "folder") || request.folder[0] != '/')
        problem = "folder";
    else if (!text_get(request.name, sizeof(request.name), head, "name") ||
             (request.name[0] != '\0' && !cluster_name_valid(request.name)))
        problem = "name";
    else if (!text_get(request.file, sizeof(request.file), head, "file") ||
             (request.file[0] != '\0' && !ssh_file_valid(request.file)))
        problem = "file";
    else if (!number_get(&request.offset, head, "offset", INT64_MAX))
        problem = "offset";
    else if (!number_get(&request.count, head, "count", SSH_PIECE_MAX))
        problem = "count";
    else if (!number_get(&request.gpus, head, "gpus", 1024))
        problem = "gpus";
    else if (!number_get(&request.cores, head, "cores", 65536))
        problem = "cores";
    else if (!number_get(&request.memory_mib, head, "memory_mib", INT32_MAX))
        problem = "memory_mib";
    else if (!number_get(&request.time_s, head, "time_s", INT32_MAX))
        problem = "time_s";
    else if (!number_get(&rest, head, "bytes", CLUSTER_COMMAND_JSON_MAX))
        problem = "bytes";
    gp_json_free(head);
    if (problem != NULL)
        return gp_fail(err, GP_EPROTO, "'%s' of the request is missing or malformed", problem);
    end++;
    if ((size_t)(text + bytes - end) != (size_t)rest)
        return gp_fail(err, GP_EPROTO, "the request has %zu of %lld bytes after its first line",
                       (size_t)(text + bytes - end), (long long)rest);
    *out = request;
    *command = end;
    *command_bytes = (size_t)rest;
    return GP_OK;
}

/* ---- reply ---- */

gp_status ssh_greeting_format(gp_buffer *out, gp_error *err)
{
    return gp_buffer_printf(out, err, GREETING "%d %d %s\n", SSH_PROTOCOL, SSH_PROTOCOL, ssh_build());
}

/* Return the first line of the reply; NULL: it is not complete. */
static const char *greeting_find(const char *text, size_t bytes)
{
    const char *at = text, *end = text + bytes, *line;

    while (at < end && (line = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        if ((size_t)(line - at) > strlen(GREETING) && memcmp(at, GREETING, strlen(GREETING)) == 0)
            return at;
        at = line + 1;
    }
    return NULL;
}

gp_status ssh_reply_parse(ssh_reply *out, const char *text, size_t bytes, bool *greeted, gp_error *err)
{
    const char *end = text + bytes, *at = greeting_find(text, bytes), *line;
    int lowest = 0, highest = 0;
    char build[64] = "";
    gp_json *head = NULL;
    int64_t rest;

    *greeted = at != NULL;
    if (at == NULL)
        return gp_fail(err, GP_EPEER, "no reply of gradpool");
    if (sscanf(at, GREETING "%d %d %63[^\n]", &lowest, &highest, build) != 3)
        return gp_fail(err, GP_EPEER, "malformed first line of the reply");
    if (lowest > SSH_PROTOCOL || highest < SSH_PROTOCOL)
        return gp_fail(
            err, GP_EVERSION,
            "the host has %s (protocol %d to %d), this host has %s (protocol %d); install the same "
            "version on both",
            gp_printable(build), lowest, highest, ssh_build(), SSH_PROTOCOL);
    at = memchr(at, '\n', (size_t)(end - at));
    at++;
    line = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
    if (line == NULL || gp_json_parse(&head, at, (size_t)(line - at), err) != GP_OK)
        return gp_fail(err, GP_EPEER, "the reply is malformed or incomplete (%zu bytes)", bytes);
    rest = gp_json_integer(gp_json_member(head, "bytes"), -1);
    if (rest != end - (line + 1) || !gp_json_is_number(gp_json_member(head, "status"))) {
        gp_json_free(head);
        return gp_fail(err, GP_EPEER, "the reply is incomplete: %zu of %lld bytes",
                       (size_t)(end - (line + 1)), (long long)rest);
    }
    *out = (ssh_reply){ .head = head, .data = (const uint8_t *)line + 1, .bytes = (size_t)rest };
    return GP_OK;
}

void ssh_reply_deinit(ssh_reply *reply)
{
    gp_json_free(reply->head);
    *reply = (ssh_reply){ 0 };
}

gp_status ssh_reply_status(const ssh_reply *reply, gp_error *err)
{
    int64_t status = gp_json_integer(gp_json_member(reply->head, "status"), GP_EPROTO);
    char message[GP_ERROR_MESSAGE_MAX];

    if (status == GP_OK)
        return GP_OK;
    snprintf(message, sizeof(message), "%s", gp_json_text(gp_json_member(reply->head, "message"), ""));
    return gp_fail(err, status > 0 && status < 256 ? (gp_status)status : GP_EPROTO, "%s",
                   message[0] != '\0' ? gp_printable(message) : "the host gives no reason");
}
