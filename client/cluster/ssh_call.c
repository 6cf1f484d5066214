/* Run ssh and explain its failures. */
#include "client/cluster/ssh_call.h"

#include <string.h>

enum {
    NO_CONNECTION_CODE = 255, /* exit code of ssh itself */
    NO_PROGRAM_CODE = 127,
};

void ssh_call_deinit(ssh_call *call)
{
    ssh_reply_deinit(&call->reply);
    cluster_tool_deinit(&call->result);
}

gp_status ssh_call_status(const ssh_call *call, gp_error *err)
{
    if (err != NULL && call->status != GP_OK)
        *err = call->err;
    return call->status;
}

/* Replace the code of an error, and return it. */
static gp_status recode(gp_error *err, gp_status code)
{
    if (err != NULL)
        err->code = code;
    return code;
}

gp_status ssh_words(const char *words[SSH_WORDS], gp_buffer *remote, const gp_profile *profile,
                    const char *host, gp_error *err)
{
    static const char *const options[] = {
        "BatchMode=yes",           "StrictHostKeyChecking=yes", "ConnectTimeout=10",
        "ConnectionAttempts=1",    "ServerAliveInterval=5",     "ServerAliveCountMax=3",
        "ClearAllForwardings=yes", "ForwardAgent=no",           "ForwardX11=no",
        "RequestTTY=no",           "RemoteCommand=none",        "PermitLocalCommand=no",
        "LogLevel=ERROR",
    };
    size_t count = 0;
    gp_status status = gp_buffer_printf(remote, err, "exec ");

    if (status == GP_OK)
        status = gp_buffer_shell_word(remote, profile->gradpool, err);
    if (status == GP_OK)
        status = gp_buffer_printf(remote, err, " ssh-host");
    words[count++] = "ssh";
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        words[count++] = "-o";
        words[count++] = options[i];
    }
    if (profile->user[0] != '\0') {
        words[count++] = "-l";
        words[count++] = profile->user;
    }
    words[count++] = "--";
    words[count++] = host;
    words[count++] = gp_buffer_text(remote);
    words[count] = NULL;
    return status;
}

/* Return the message with which ssh ended: the last line of standard error, preceded by the line
 * before it if the last line does not state the cause. The lines before can come from the remote
 * host. */
static const char *last_message(const char *text)
{
    static const char *const closings[] = { "Connection closed by", "Connection reset by",
                                            "Disconnected from" };
    const char *last = text, *before = text;
    bool closing;

    for (const char *at = text; *at != '\0'; at += strcspn(at, "\n"), at += *at == '\n') {
        before = last;
        last = at;
    }
    closing = strstr(last, "terminating,") != NULL ||
              (strncmp(last, "Connection to ", strlen("Connection to ")) == 0 &&
               strstr(last, " timed out") != NULL);
    for (size_t i = 0; i < sizeof(closings) / sizeof(closings[0]); i++)
        closing |= strncmp(last, closings[i], strlen(closings[i])) == 0;
    return closing ? before : last;
}

/* Return whether the message with which ssh ended means that no connection was established, so that
 * the remote command has certainly not run. */
static bool is_unreached(const char *text)
{
    static const char *const messages[] = {
        "ssh: connect to host",     "ssh: Could not resolve hostname", "Host key verification failed.",
        "Permission denied (",      "kex_exchange_identification:",    "Too many authentication failures",
        "Bad configuration option", "Bad owner or permissions",        "during banner exchange",
    };

    for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++)
        if (strstr(text, messages[i]) != NULL)
            return true;
    return false;
}

/* Explain why a host has not replied.
 * GP_EPEER: the request may have had an effect. Other codes: it certainly had none. */
static gp_status call_explain(const ssh_call *call, const cluster_tool *tool, gp_error *err)
{
    const char *all = gp_buffer_text(&call->result.errors), *text = last_message(all);
    const char *host = call->request.host;
    const int code = call->result.code;
    const gp_profile *profile = call->profile;
    gp_error last;

    (void)cluster_tool_fail(&last, GP_EPEER, tool, &call->result);
    if (code == NO_PROGRAM_CODE)
        return gp_fail(
            err, GP_EVERSION,
            "%s: there is no program '%s' in the PATH of ssh commands; install gradpool on %s, or set "
            "'gradpool' in profile '%s' to its absolute path there",
            host, profile->gradpool, host, profile->name);
    if (code == NO_CONNECTION_CODE && strstr(text, "Host key verification failed.") != NULL) {
        if (strstr(all, "HOST IDENTIFICATION HAS CHANGED") != NULL)
            return gp_fail(err, GP_EPERM,
                           "%s: the host key has changed; another machine may be answering. Ask its "
                           "administrator; only if the new key is right: ssh-keygen -R %s",
                           host, host);
        return gp_fail(
            err, GP_EPERM,
            "%s: the host key is not known; run 'ssh %s' once, and compare the key before you accept it",
            host, host);
    }
    if (code == NO_CONNECTION_CODE && strstr(text, "Permission denied (") != NULL)
        return gp_fail(
            err, GP_EPERM,
            "%s: permission denied; check 'user' in profile '%s', and that 'ssh %s true' works without "
            "a password (%.160s)",
            host, profile->name, host, last.message);
    if (code == NO_CONNECTION_CODE)
        return gp_fail(err, is_unreached(text) ? GP_EIO : GP_EPEER, "%s: %.300s", host, last.message);
    if (code > 128)
        return gp_fail(err, GP_EPEER, "%s: %.300s", host, last.message);
    return gp_fail(
        err, GP_EVERSION,
        "%s: '%s ssh-host' gave no reply; install the same version of gradpool there (%s here): %.200s", host,
        profile->gradpool, ssh_build(), last.message);
}

gp_status ssh_call_run(ssh_call *call, int timeout_ms, gp_error *err)
{
    const char *words[SSH_WORDS];
    cluster_tool tool = {
        .words = words, .drop = cluster_job_variables, .output_max = SSH_REPLY_MAX, .timeout_ms = timeout_ms
    };
    bool greeted = false;
    gp_buffer remote, input;
    gp_status status;

    gp_buffer_init(&remote, 4096);
    gp_buffer_init(&input, SSH_REQUEST_MAX);
    status = ssh_words(words, &remote, call->profile, call->request.host, err);
    if (status == GP_OK)
        status = ssh_request_format(&call->request, call->command, call->command_bytes, &input, err);
    tool.input = gp_buffer_text(&input);
    tool.input_bytes = input.bytes;
    if (status == GP_OK) {
        status = cluster_tool_run(&call->result, &tool, err);
        if (status == GP_ELIMIT)
            status = recode(err, GP_EPEER);
        if (status == GP_ENOENT) /* no ssh; GP_ENOENT means that there is no job */
            status = recode(err, GP_EUNSUPPORTED);
        if (status != GP_OK)
            gp_error_prefix(err, "%s", call->request.host);
    }
    if (status == GP_OK) {
        status = ssh_reply_parse(&call->reply, gp_buffer_text(&call->result.output),
                                 call->result.output.bytes, &greeted, err);
        if (status != GP_OK && !greeted)
            status = call_explain(call, &tool, err);
        else if (status == GP_OK)
            status = ssh_reply_status(&call->reply, err);
        if (status != GP_OK && greeted) {
            /* The reply is complete, so the outcome is known. These codes would mean that it is
             * unknown. */
            if (call->reply.head != NULL && (status == GP_EPEER || status == GP_ETIMEDOUT))
                status = recode(err, GP_EIO);
            gp_error_prefix(err, "%s", call->request.host);
        }
    }
    gp_buffer_deinit(&remote);
    gp_buffer_deinit(&input);
    return status;
}
