#include "client/cluster/ssh_wire.h"

#include <sys/stat.h>

#include "client/cluster/ssh_call.h"
#include "common/base/system/file.h"
#include "tests/proto/scratch.h"
#include "tests/gp_test.h"

static gp_error err;

static ssh_request sample(void)
{
    return (ssh_request){ .verb = "launch",
                          .host = "gpu1",
                          .folder = "/home/me/it's here",
                          .name = "gp-0123456789abcdef",
                          .file = "result/model.onnx",
                          .offset = 1LL << 40,
                          .count = SSH_PIECE_MAX,
                          .gpus = 2,
                          .cores = 8,
                          .memory_mib = 2048,
                          .time_s = 60 };
}

TEST(request_survives_the_connection)
{
    static const char command[] = "{\"words\": [\"a b\", \"it's\\n\"]}\n";
    ssh_request sent = sample(), got;
    const char *rest = NULL;
    size_t bytes = 0;
    gp_buffer text;

    gp_buffer_init(&text, SSH_REQUEST_MAX);
    REQUIRE_OK(ssh_request_format(&sent, command, sizeof(command) - 1, &text, &err), err);
    REQUIRE_OK(ssh_request_parse(&got, gp_buffer_text(&text), text.bytes, &rest, &bytes, &err), err);
    CHECK(memcmp(&sent, &got, sizeof(got)) == 0);
    CHECK(bytes == sizeof(command) - 1 && memcmp(rest, command, bytes) == 0);
    /* a lost connection cuts the request anywhere */
    for (size_t cut = 0; cut < text.bytes; cut++)
        CHECK_STATUS(GP_EPROTO, ssh_request_parse(&got, gp_buffer_text(&text), cut, &rest, &bytes, &err));
    gp_buffer_deinit(&text);
}

/* Format a request, replace a part of the text, and parse it. */
static gp_status parse_changed(const char *from, const char *to)
{
    char text[2048] = "";
    ssh_request sent = sample(), got;
    const char *at, *rest;
    size_t bytes;
    gp_buffer buffer;

    gp_buffer_init(&buffer, sizeof(text));
    if (ssh_request_format(&sent, NULL, 0, &buffer, &err) != GP_OK ||
        (at = strstr(gp_buffer_text(&buffer), from)) == NULL)
        GP_TEST_FAIL("no '%s' in the request", from);
    else
        snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - gp_buffer_text(&buffer)), gp_buffer_text(&buffer),
                 to, at + strlen(from));
    gp_buffer_deinit(&buffer);
    return ssh_request_parse(&got, text, strlen(text), &rest, &bytes, &err);
}

TEST(malformed_requests_are_refused)
{
    static const char *const changes[][2] = {
        { "\"gpu1\"", "\"\"" },
        { "\"gpu1\"", "\"a/b\"" },
        { "\"gpu1\"", "7" },
        { "/home/me", "home/me" },
        { "gp-0123456789abcdef", "gp-0123456789abcde/" },
        { "gp-0123456789abcdef", "../../../../etc" },
        { "result/model.onnx", "../model.onnx" },
        { "result/model.onnx", "result/.." },
        { "result/model.onnx", "/etc/passwd" },
        { "\"cores\": 8", "\"cores\": -1" },
        { "\"gpus\": 2", "\"gpus\": 1e9" },
        { "\"count\": 4194304", "\"count\": 4194305" },
        { "\"bytes\": 0", "\"bytes\": 1" },
        { "\"bytes\": 0", "\"bytes\": -1" },
        { "\"time_s\": 60, ", "" },
    };

    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++)
        CHECK_STATUS(GP_EPROTO, parse_changed(changes[i][0], changes[i][1]));
    CHECK_STATUS(GP_EVERSION, parse_changed("\"protocol\": 1", "\"protocol\": 2"));
    CHECK_CONTAINS(err.message, "version 2 of the protocol");
    CHECK_STATUS(GP_OK, parse_changed("result/model.onnx", "a..b/..c"));
}

static gp_status reply_parse(ssh_reply *reply, const char *text, bool *greeted)
{
    return ssh_reply_parse(reply, text, strlen(text), greeted, &err);
}

/* Run a call with a program in place of ssh that writes to standard error and exits with code 255.
 * Return its status. */
static gp_status call_failing(const char *errors)
{
    static gp_profile profile = { .type = GP_PROFILE_SSH, .name = "lab", .gradpool = "gradpool" };
    ssh_call call = { .profile = &profile, .request = sample() };
    char text[900];
    gp_status status;

    snprintf(text, sizeof(text), "#!/bin/sh\ncat > /dev/null\nprintf '%s' >&2\nexit 255\n", errors);
    if (gp_file_write(scratch_path("ssh"), text, strlen(text), &err) != GP_OK ||
        chmod(scratch_path("ssh"), 0700) != 0)
        abort();
    snprintf(text, sizeof(text), "%s:/usr/bin:/bin", scratch_dir);
    setenv("PATH", text, 1);
    status = ssh_call_run(&call, 10000, &err);
    ssh_call_deinit(&call);
    return status;
}

TEST(only_the_last_message_of_ssh_means_that_the_host_was_not_reached)
{
    CHECK_STATUS(GP_EIO, call_failing("ssh: connect to host h port 22: Connection refused\\r\\n"));
    CHECK_STATUS(GP_EIO, call_failing("kex_exchange_identification: Connection closed by remote host\\r\\n"
                                      "Connection closed by 10.0.0.1 port 22\\r\\n"));
    CHECK_STATUS(GP_EIO, call_failing("Connection timed out during banner exchange\\r\\n"
                                      "Connection to 10.0.0.1 port 22 timed out\\r\\n"));
    CHECK_STATUS(GP_EIO, call_failing("/h/.ssh/config: line 1: Bad configuration option: x\\r\\n"
                                      "/h/.ssh/config: terminating, 1 bad configuration options\\r\\n"));
    CHECK_STATUS(GP_EPERM, call_failing("u@h: Permission denied (publickey).\\r\\n"));
    CHECK_STATUS(GP_EPERM, call_failing("WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!\\r\\na\\nb\\n"
                                        "Host key verification failed.\\r\\n"));
    CHECK_CONTAINS(err.message, "the host key has changed");
    /* the remote shell has run other programs before */
    for (const char *const *words =
             (const char *const[]){ "git@h: Permission denied (publickey).", "Host key verification failed.",
                                    "ssh: connect to host h port 22: No route", NULL };
         *words != NULL; words++) {
        char text[300];

        snprintf(text, sizeof(text), "%s\\nclient_loop: send disconnect: Broken pipe\\r\\n", *words);
        CHECK_STATUS(GP_EPEER, call_failing(text));
    }
}

TEST(reply_is_complete_or_an_error)
{
    static const char whole[] = "Welcome to gpu1\ngradpool-ssh-host 1 3 gradpool 2\n"
                                "{\"status\": 0, \"bytes\": 3}\na\nb";
    ssh_reply reply;
    bool greeted;

    REQUIRE_OK(reply_parse(&reply, whole, &greeted), err);
    CHECK(greeted && reply.bytes == 3 && memcmp(reply.data, "a\nb", 3) == 0);
    CHECK_STATUS(GP_OK, ssh_reply_status(&reply, &err));
    ssh_reply_deinit(&reply);
    for (size_t cut = 0; cut < sizeof(whole) - 1; cut++)
        CHECK_STATUS(GP_EPEER, ssh_reply_parse(&reply, whole, cut, &greeted, &err));
    CHECK_STATUS(GP_EPEER, reply_parse(&reply, "gradpool-ssh-host 1 1 x\n{\"status\": 0, \"bytes\": 0}\nmore",
                                       &greeted));
    CHECK_STATUS(GP_EPEER, reply_parse(&reply, "gradpool-ssh-host 1 1 x\n{\"bytes\": 0}\n", &greeted));
    CHECK_STATUS(GP_EPEER, reply_parse(&reply, "gradpool-ssh-host one\n", &greeted));
    CHECK_STATUS(GP_EVERSION, reply_parse(&reply, "gradpool-ssh-host 2 3 gradpool 2\n", &greeted));
    CHECK(greeted);
    CHECK_STATUS(GP_EPEER, reply_parse(&reply, "bash: gradpool: command not found\n", &greeted));
    CHECK(!greeted);
    /* a failure */
    REQUIRE_OK(
        reply_parse(
            &reply,
            "gradpool-ssh-host 1 1 x\n{\"status\": 5, \"message\": \"runs\\u001b[2J\", \"bytes\": 0}\n",
            &greeted),
        err);
    CHECK_STATUS(GP_EBUSY, ssh_reply_status(&reply, &err));
    CHECK_TEXT("runs?[2J", err.message);
    ssh_reply_deinit(&reply);
}
