/* One connection of the engine `ssh`: a request to `gradpool ssh-host` on one host. */
#ifndef GP_CLUSTER_SSH_CALL_H
#define GP_CLUSTER_SSH_CALL_H

#include "client/cluster/profile.h"
#include "client/cluster/ssh_wire.h"
#include "client/cluster/tool.h"

enum { SSH_WORDS = 40 };

/* A request to one host. */
typedef struct ssh_call {
    const gp_profile *profile;
    ssh_request request;
    const char *command; /* launch: contents of command.json */
    size_t command_bytes;
    cluster_tool_result result; /* owns the text of the reply */
    ssh_reply reply;
    gp_status status;
    gp_error err;
} ssh_call;

/* Send the request, and parse the reply. Free the call with ssh_call_deinit(), also after an error.
 * GP_ETIMEDOUT, GP_EPEER: it is unknown whether the request had an effect. Other errors: the host
 * has refused it, or was not reached. */
gp_status ssh_call_run(ssh_call *call, int timeout_ms, gp_error *err);
void ssh_call_deinit(ssh_call *call);

/* Return the status of a call that has ended, and copy its error. */
gp_status ssh_call_status(const ssh_call *call, gp_error *err);

/* Fill in the command line of ssh.
 *   remote  empty; holds the remote command as long as the words are used */
gp_status ssh_words(const char *words[SSH_WORDS], gp_buffer *remote, const gp_profile *profile,
                    const char *host, gp_error *err);

#endif
