/* Messages between the engine `ssh` and `gradpool ssh-host` on the host of the job.
 *
 * One connection carries one request on standard input and one reply on standard output. Both begin
 * with a line of JSON that has the length of the bytes after it:
 *
 *   request  {"protocol": 1, "verb": "launch", ..., "bytes": N} newline, N bytes: command.json
 *   reply    gradpool-ssh-host LOWEST HIGHEST BUILD newline
 *            {"status": 0, ..., "bytes": N} newline, N bytes: a piece of a file
 *
 * The host writes the first line of the reply before it reads the request, so that a client of
 * another version can name both versions. A request that is not complete has no effect. */
#ifndef GP_CLUSTER_SSH_WIRE_H
#define GP_CLUSTER_SSH_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "client/cluster/engine.h"
#include "common/base/error.h"
#include "common/base/memory/buffer.h"
#include "common/base/text/json.h"

enum {
    SSH_PROTOCOL = 1, /* the only version so far */
    SSH_HOST_BYTES = 256,
    SSH_FOLDER_BYTES = 512,
    SSH_FILE_BYTES = 256,
    SSH_HEAD_MAX = 8192,                 /* first line of a request */
    SSH_REQUEST_MAX = (1 << 20) + 16384, /* a request, with command.json */
    SSH_PIECE_MAX = 4 << 20,             /* a piece of a file */
    SSH_JOBS_MAX = 10000,                /* jobs in the reply of one host */
    SSH_REPLY_MAX = 8 << 20,
};

/* Return the name and version of this build, such as "gradpool 0.1.0". */
const char *ssh_build(void);

/* A request. Members that the verb does not need are empty or 0. */
typedef struct ssh_request {
    char verb[16];                   /* launch, list, facts, mark, cancel, read, ends, steps */
    char host[SSH_HOST_BYTES];       /* name of the host, as in the profile */
    char folder[SSH_FOLDER_BYTES];   /* folder of the profile */
    char name[CLUSTER_NAME_BYTES];   /* launch name of the job */
    char file[SSH_FILE_BYTES];       /* read: path in the folder of the job */
    int64_t offset, count;           /* read, ends: piece of the file, at most SSH_PIECE_MAX bytes */
    int64_t gpus, cores, memory_mib; /* launch: granted resources; cores, memory_mib 0: no limit */
    int64_t time_s;                  /* launch: time limit; 0: none */
} ssh_request;

/* Append a request.
 *   command, bytes  launch: contents of command.json; steps: names of jobs, a line each */
gp_status ssh_request_format(const ssh_request *request, const char *command, size_t bytes, gp_buffer *out,
                             gp_error *err);

/* Parse and check a request.
 *   command  set to the bytes after the first line, in `text`
 * GP_EPROTO: malformed or incomplete. GP_EVERSION: another version of the protocol. */
gp_status ssh_request_parse(ssh_request *out, const char *text, size_t bytes, const char **command,
                            size_t *command_bytes, gp_error *err);

/* Return whether the name of a file stays inside the folder of the job. */
bool ssh_file_valid(const char *file);

/* A parsed reply; free it with ssh_reply_deinit(). */
typedef struct ssh_reply {
    gp_json *head;       /* second line */
    const uint8_t *data; /* bytes after it, in the text of the reply */
    size_t bytes;
} ssh_reply;

/* Append the first line of a reply. */
gp_status ssh_greeting_format(gp_buffer *out, gp_error *err);

/* Parse a reply. Lines before the first line are skipped: a login shell may print some.
 *   greeted  set to whether the first line of a reply is in `text`, also after an error
 * GP_OK: the host has replied; its status is in the reply. GP_EVERSION: it has another version of
 * the protocol; the message names both builds. GP_EPEER: malformed or incomplete. */
gp_status ssh_reply_parse(ssh_reply *out, const char *text, size_t bytes, bool *greeted, gp_error *err);
void ssh_reply_deinit(ssh_reply *reply);

/* Set *err to the failure in a reply, and return its status. GP_OK: the request succeeded. */
gp_status ssh_reply_status(const ssh_reply *reply, gp_error *err);

#endif
