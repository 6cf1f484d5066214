/* test_remote.c: a pool and clients on other hosts: TCP with keys.
 *
 * Both "hosts" are this machine, connected only by the port: clients have other directories and no
 * access to the pool's Unix sockets. */
#include <arpa/inet.h>
#include <sys/socket.h>
#include <zmq.h>

#include "client/pool/remote.h"
#include "proto/channel/curve.h"
#include "tests/service/commands.h"

enum { TIMEOUT_MS = POOLS_TIMEOUT_MS };

static char server_dirs[2][200]; /* runtime, state */
static char endpoint[GP_TEXT_ENDPOINT];
static gp_json *remote_json;

/* ---- two hosts ---- */

static void on_host(void)
{
    setenv("GRADPOOL_RUNTIME_DIR", server_dirs[0], 1);
    setenv("GRADPOOL_STATE_DIR", server_dirs[1], 1);
}

/* Switch to directories without a pool. */
static void elsewhere(void)
{
    setenv("GRADPOOL_RUNTIME_DIR", in_root("far"), 1);
    setenv("GRADPOOL_STATE_DIR", in_root("far-state"), 1);
}

static void hosts_begin(void)
{
    commands_begin();
    snprintf(server_dirs[0], sizeof(server_dirs[0]), "%s", getenv("GRADPOOL_RUNTIME_DIR"));
    snprintf(server_dirs[1], sizeof(server_dirs[1]), "%s", getenv("GRADPOOL_STATE_DIR"));
    setenv("HOME", pools_root, 1);
    setenv("XDG_CONFIG_HOME", in_root("config"), 1);
    unsetenv("GRADPOOL_KEY_FILE");
    unsetenv("GRADPOOL_SERVER_KEY_FILE");
    if (mkdir(in_root("config"), 0700) != 0 || mkdir(in_root("config/gradpool"), 0700) != 0)
        abort();
}

/* Create and authorize the keys "alice" and "wall", with the profiles "box" and "look". */
static void keys_begin(void)
{
    RUN_CODE(0, "key", "new", in_root("config/gradpool/alice.key"), "--quiet");
    RUN_CODE(0, "key", "add", "alice", in_root("config/gradpool/alice.key"));
    RUN_CODE(0, "key", "new", in_root("config/gradpool/wall.key"), "--quiet");
    RUN_CODE(0, "key", "add", "wall", in_root("config/gradpool/wall.key"), "--role", "observer");
}

static void fetch_server_key(void)
{
    on_host();
    RUN_CODE(0, "key", "show");
    write_file("config/gradpool/box.pub", out);
    chmod(in_root("config/gradpool/box.pub"), 0644);
}

static void write_profile(const char *name, const char *key)
{
    char text[400], file[100];

    snprintf(text, sizeof(text),
             "# a pool elsewhere\nconnect = %s\nserver-key-file = box.pub # its own\nkey-file = %s\n",
             endpoint, key);
    snprintf(file, sizeof(file), "config/gradpool/%s.conf", name);
    write_file(file, text);
    chmod(in_root(file), 0600);
}

static const gp_json *remote_status(void)
{
    on_host();
    gp_json_free(remote_json);
    RUN_CODE(0, "status", "--json");
    remote_json = pools_json(out);
    return gp_json_member(remote_json, "remote");
}

static bool listen_begin(void)
{
    keys_begin();
    RUN_CODE(0, "up", "--workers", "2", "--listen", "tcp://127.0.0.1:0");
    snprintf(endpoint, sizeof(endpoint), "%s", gp_json_text(gp_json_member(remote_status(), "listen"), ""));
    if (endpoint[0] == '\0')
        GP_TEST_FAIL("cannot listen: %s", err);
    fetch_server_key();
    write_profile("box", "alice.key");
    write_profile("look", "wall.key");
    return endpoint[0] != '\0';
}

/* Set up both hosts and start a pool that listens. */
static bool remote_begin(void)
{
    hosts_begin();
    return listen_begin();
}

TEARDOWN()
{
    on_host();
    gp_json_free(remote_json);
    remote_json = NULL;
    pools_end();
}

/* Wait on the pool's host until the scheduler log shows that the process was admitted. */
static bool await_client(pid_t pid)
{
    static char log[1 << 20];
    static gp_paths paths;
    char words[60];

    on_host();
    if (gp_paths_find(&paths, NULL, NULL) != GP_OK)
        return false;
    snprintf(words, sizeof(words), "event=remote-client key=alice process=%d ", (int)pid);
    AWAIT((slurp(paths.scheduler_log, log, sizeof(log)), strstr(log, words) != NULL), 5);
    return strstr(log, words) != NULL;
}

/* ---- ports ---- */

/* Count the listening TCP sockets of a process. */
static int listening(pid_t pid)
{
    char path[64], line[400];
    int count = 0;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *fds = opendir(path);

    for (struct dirent *entry; fds != NULL && (entry = readdir(fds)) != NULL;) {
        char link[340], target[64] = "";
        unsigned long inode;

        snprintf(link, sizeof(link), "%s/%s", path, entry->d_name);
        if (readlink(link, target, sizeof(target) - 1) <= 0 || sscanf(target, "socket:[%lu]", &inode) != 1)
            continue;
        for (int i = 0; i < 2; i++) {
            FILE *table = fopen(i == 0 ? "/proc/net/tcp" : "/proc/net/tcp6", "r");

            while (table != NULL && fgets(line, sizeof(line), table) != NULL) {
                unsigned long seen = 0;
                unsigned state = 0;

                if (sscanf(line, " %*d: %*s %*s %x %*s %*s %*s %*d %*d %lu", &state, &seen) == 2 &&
                    state == 0x0a)
                    count += seen == inode;
            }
            if (table != NULL)
                fclose(table);
        }
    }
    if (fds != NULL)
        closedir(fds);
    return count;
}

TEST(no_tcp_port_is_open_unless_requested)
{
    hosts_begin();
    RUN_CODE(0, "up", "--workers", "2");
    for (uint32_t i = 0; i <= 2; i++)
        CHECK_INT(0, listening(pid_of(i)));
    CHECK(gp_json_member(remote_status(), "listen") == NULL);
    RUN_CODE(1, "up", "--listen", "tcp://127.0.0.1:0"); /* never opened implicitly */
    CHECK_CONTAINS(err, "gradpool down");
    RUN_CODE(0, "down");
    CHECK(listen_begin());
    CHECK_INT(1, listening(pid_of(0)));
    CHECK_INT(0, listening(pid_of(1)));
    CHECK_INT(0, listening(pid_of(2)));
}

TEST(unusable_listen_addresses_are_reported_and_leave_no_pool)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t bytes = sizeof(address);
    int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char text[60];

    hosts_begin();
    if (bind(taken, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(taken, 1) != 0 ||
        getsockname(taken, (struct sockaddr *)&address, &bytes) != 0)
        abort();
    snprintf(text, sizeof(text), "tcp://127.0.0.1:%d", ntohs(address.sin_port));
    RUN_CODE(1, "up", "--workers", "1", "--listen", text);
    CHECK_CONTAINS(err, "in use");
    RUN_CODE(1, "up", "--workers", "1", "--listen", "tcp://192.0.2.1:5555");
    RUN_CODE(2, "up", "--workers", "1", "--listen", "127.0.0.1:5555");
    CHECK_CONTAINS(err, "tcp://");
    RUN_CODE(1, "status");
    close(taken);
}

/* ---- permissions of clients ---- */

TEST(remote_client_can_submit_watch_cancel_and_shut_down)
{
    REQUIRE(remote_begin());
    setenv("CANARY_VARIABLE", "named", 1);
    setenv("OTHER_VARIABLE", "not named", 1);
    elsewhere();
    RUN_CODE(0, "status", "--pool", "box");
    CHECK_CONTAINS(out, "2 workers");
    CHECK_CONTAINS(out, "other hosts: tcp://127.0.0.1:");
    RUN_CODE(0, "devices", "--pool", "box");
    RUN_CODE(0, "submit", "--pool", "box", "--env", "CANARY_VARIABLE", "--", "spmd", "-n", "1", "--", "sh",
             "-c", "pwd; echo $CANARY_VARIABLE $OTHER_VARIABLE; command -v ls");
    CHECK_TEXT("1\n", out);
    RUN_CODE(0, "wait", "1", "--pool", "box");
    RUN_CODE(0, "logs", "1", "--pool", "box");
    char expected[300];

    snprintf(expected, sizeof(expected), "1: %s\n1: named\n1: /",
             pools_root); /* home directory and PATH of that host */
    CHECK_CONTAINS(out, expected);
    RUN_CODE(0, "submit", "--pool", "box", "--directory", "/", "--", "spmd", "-n", "1", "--", "sh", "-c",
             "pwd; i=0; while [ $i -lt 4000 ]; do echo line $i 0123456789012345678901234567890123456789; "
             "i=$((i+1)); done; sleep 0.5; echo the end");

    /* 200 KiB: several pieces, while the log grows */
    RUN_CODE(0, "logs", "2", "-f", "--pool", "box");
    CHECK(strncmp(out, "1: /\n1: line 0 ", 15) == 0);
    CHECK_CONTAINS(out, "line 3999 ");
    CHECK_CONTAINS(out, "the end");
    CHECK_CONTAINS(err, "job 2: done");
    RUN_CODE(0, "jobs", "--all", "--json", "--pool", "box");
    CHECK_CONTAINS(out, "\"job\": 2");
    RUN_CODE(0, "submit", "--pool", "box", "--", "spmd", "-n", "1", "--", "sleep", "60");
    RUN_CODE(0, "cancel", "3", "--pool", "box");
    RUN_CODE(130, "wait", "3", "--pool", "box");
    RUN_CODE(0, "top", "--once", "--pool", "box");
    RUN_CODE(1, "logs", "99", "--pool", "box");
    CHECK_CONTAINS(err, "job 99 does not exist");
    RUN_CODE(0, "down", "--pool", "box");
    RUN_CODE(1, "status", "--pool", "box");
    on_host();
    RUN_CODE(1, "status");
}

TEST(observer_can_only_read_and_refused_requests_are_counted)
{
    REQUIRE(remote_begin());
    elsewhere();
    RUN_CODE(0, "submit", "--pool", "box", "--", "spmd", "-n", "1", "--", "echo", "seen");
    RUN_CODE(0, "wait", "1", "--pool", "look");
    RUN_CODE(0, "logs", "1", "--pool", "look");
    CHECK_CONTAINS(out, "seen");
    RUN_CODE(0, "jobs", "--all", "--pool", "look");
    RUN_CODE(1, "submit", "--pool", "look", "--", "spmd", "-n", "1", "--", "true");
    CHECK_CONTAINS(err, "observer");
    RUN_CODE(1, "cancel", "--all", "--pool", "look");
    CHECK_CONTAINS(err, "observer");
    RUN_CODE(1, "down", "--pool", "look");
    CHECK_CONTAINS(err, "observer");
    CHECK(gp_json_integer(gp_json_member(remote_status(), "refused"), 0) >= 3);
    RUN_CODE(0, "jobs", "--all", "--json");
    CHECK(strstr(out, "\"job\": 2") == NULL);
}

TEST(commands_that_need_shared_memory_name_the_host_and_start_no_local_pool)
{
    static const char *const calls[][8] = {
        { "train", "--pool", "box", "--network", "lenet", "--data", "digits", NULL },
        { "spmd", "--pool", "box", "--", "true", NULL },
        { "parfor", "--pool", "box", "1:3", "--", "echo", "{}", NULL },
        { "up", "--pool", "box", NULL },
    };

    REQUIRE(remote_begin());
    elsewhere();
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        CHECK(finish(start(-1, -1, calls[i])) != 0);
        CHECK_CONTAINS(err, "on the host of the pool");
        CHECK_CONTAINS(err, "gradpool submit");
    }
    RUN_CODE(1, "status");
    CHECK_CONTAINS(err, "no pool");
}

/* Return the pid of the last submitted job. */
static pid_t job_pid(void)
{
    RUN_CODE(0, "jobs", "--json", "--pool", "box");
    gp_json *list = pools_json(out);
    pid_t pid = (pid_t)gp_json_integer(gp_json_member(gp_json_element(list, 0), "pid"), 0);

    gp_json_free(list);
    return pid;
}

TEST(remote_training_is_resized_and_its_report_is_readable)
{
    REQUIRE(remote_begin());
    int code;

    elsewhere();
    RUN_CODE(0, "submit", "--pool", "box", "--directory", in_root("w"), "--", "train", "--network", "lenet",
             "--data", "digits:1500", "--epochs", "5000", "--batch-size", "50", "--validation-frequency",
             "1000000", "--plots", "none");
    AWAIT((code = RUN("resize", "1", "1", "--pool", "box")) == 0, 50); /* the job holds workers */
    CHECK_INT(0, code);
    CHECK_CONTAINS(out, "job 1 continues with 1 worker");
    RUN_CODE(1, "resize", "1", "2", "--pool", "look");
    CHECK_CONTAINS(err, "observer");
    RUN_CODE(1, "resize", "1", "3", "--pool", "box");
    CHECK_CONTAINS(err, "3 workers requested, but the pool has 2");
    RUN_CODE(1, "resize", "7", "1", "--pool", "box");
    CHECK_CONTAINS(err, "job 7 has no workers");
    AWAIT(RUN("logs", "1", "--pool", "box") != 0 || strstr(out, "2 -> 1 workers") != NULL, 50);
    CHECK_CONTAINS(out, "2 -> 1 workers");

    /* A killed process writes no report: one is made from the available files. */
    kill(job_pid(), SIGKILL);
    CHECK(RUN("wait", "1", "--pool", "box") != 0);
    RUN_CODE(0, "report", "1", "--pool", "look");
    CHECK_CONTAINS(out, "state:    failed");
    CHECK_CONTAINS(out, "last steps");
    CHECK_CONTAINS(out, "== scheduler.log\n");
    CHECK_CONTAINS(out, "== worker-2.log\n");
    CHECK_CONTAINS(out, "event=lease-served");
    RUN_CODE(0, "report", "1", "--json", "--pool", "box");
    gp_json *report = pools_json(out);

    CHECK(gp_json_count(gp_json_member(report, "last_steps")) >= 2);
    gp_json_free(report);

    /* A failed training writes a report on the pool's host. */
    RUN_CODE(0, "submit", "--pool", "box", "--", "train", "--network", "lenet", "--data", "/no/such/data");
    CHECK(RUN("wait", "2", "--pool", "box") != 0);
    RUN_CODE(0, "report", "2", "--pool", "look");
    CHECK_CONTAINS(out, "/no/such/data");
    RUN_CODE(1, "report", "9", "--pool", "look");
    CHECK_CONTAINS(err, "job 9 does not exist");
    RUN_CODE(1, "report", "./w", "--pool", "look");
    CHECK_CONTAINS(err, "is not a job");
}

/* ---- changing keys ---- */

TEST(removed_key_ends_its_waiting_requests_but_not_the_scheduler)
{
    REQUIRE(remote_begin());
    pid_t scheduler = pid_of(0);

    elsewhere();
    RUN_CODE(0, "submit", "--pool", "box", "--", "spmd", "-n", "1", "--", "sleep", "60");
    pid_t waiting = START("wait", "1", "--pool", "box");

    CHECK(await_client(waiting));
    const char *words[] = { "key", "remove", "alice", NULL };
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC), code;

    CHECK(waitpid(start(-1, null, words), &code, 0) > 0 && WIFEXITED(code) && WEXITSTATUS(code) == 0);
    code = finish(waiting);
    CHECK(code != 0 && code != -1);
    CHECK(gp_json_integer(gp_json_member(remote_status(), "cut_off"), 0) >= 1);
    elsewhere();
    RUN_CODE(1, "status", "--pool", "box");
    CHECK_CONTAINS(err, "rejects this key");
    RUN_CODE(0, "status", "--pool", "look"); /* other keys remain connected */
    on_host();
    CHECK_INT(scheduler, pid_of(0));
    close(null);
}

TEST(path_that_looks_like_a_key_is_a_file)
{
    char path[100];

    hosts_begin();

    /* A path of 40 characters that are all valid in Z85. */
    snprintf(path, sizeof(path), "%s/w/kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk", pools_root);
    path[GP_KEY_TEXT - 1] = '\0';
    CHECK(gp_key_sound(path));
    RUN_CODE(0, "key", "new", path, "--quiet");
    char key[GP_KEY_TEXT];

    memcpy(key, out, GP_KEY_TEXT - 1);
    key[GP_KEY_TEXT - 1] = '\0';
    RUN_CODE(0, "key", "add", "path", path);
    RUN_CODE(0, "key", "list", "--json");
    CHECK_CONTAINS(out, key);
}

TEST(client_and_pool_keys_are_rotated_at_run_time)
{
    char old[GP_TEXT_ENDPOINT];

    REQUIRE(remote_begin());
    pid_t scheduler = pid_of(0);

    RUN_CODE(0, "key", "rotate", "wall", "--out", in_root("config/gradpool/new.key"));
    elsewhere();
    RUN_CODE(1, "status", "--pool", "look");
    CHECK_CONTAINS(err, "rejects this key");
    write_profile("look", "new.key");
    RUN_CODE(0, "status", "--pool", "look");

    snprintf(old, sizeof(old), "%s", endpoint);
    on_host();
    RUN_CODE(0, "key", "rotate");
    elsewhere();
    int code;

    /* The old pool key is valid for another quarter of a second. */
    AWAIT((code = RUN("status", "--pool", "box")) != 0, 100);
    CHECK_INT(1, code);
    fetch_server_key();
    elsewhere();
    AWAIT((code = RUN("status", "--pool", "box")) == 0, 100);
    CHECK_INT(0, code);
    CHECK_TEXT(old, gp_json_text(gp_json_member(remote_status(), "listen"), ""));
    on_host();
    CHECK_INT(scheduler, pid_of(0));
}

TEST(key_files_readable_by_others_are_refused_on_both_sides)
{
    hosts_begin();
    keys_begin();
    RUN_CODE(0, "key", "show");

    /* The pool's key. */
    CHECK_INT(0, shell("chmod 644 $(find state -name server.key)"));
    RUN_CODE(1, "up", "--workers", "1", "--listen", "tcp://127.0.0.1:0");
    CHECK_CONTAINS(err, "chmod 600");
    RUN_CODE(1, "status");
    CHECK_INT(0, shell("chmod 600 $(find state -name server.key)"));

    /* The key directory: readable by others, and a link. */
    CHECK_INT(0, shell("chmod 755 $(find state -name keys)"));
    RUN_CODE(1, "up", "--workers", "1", "--listen", "tcp://127.0.0.1:0");
    CHECK_CONTAINS(err, "chmod 700");
    CHECK_INT(0, shell("d=$PWD/$(find state -name keys); chmod 700 $d; mv $d $d.real; ln -s $d.real $d"));
    RUN_CODE(1, "key", "add", "x", "0000000000000000000000000000000000000000");
    CHECK_CONTAINS(err, "symbolic link");
    CHECK_INT(0, shell("d=$(find state -name keys); rm $d; mv $d.real $d"));
    RUN_CODE(0, "up", "--workers", "1", "--listen", "tcp://127.0.0.1:0");

    /* The client's key. */
    snprintf(endpoint, sizeof(endpoint), "%s", gp_json_text(gp_json_member(remote_status(), "listen"), ""));
    fetch_server_key();
    write_profile("box", "alice.key");
    elsewhere();
    RUN_CODE(0, "status", "--pool", "box");
    chmod(in_root("config/gradpool/alice.key"), 0640);
    RUN_CODE(1, "status", "--pool", "box");
    CHECK_CONTAINS(err, "chmod 600");
    chmod(in_root("config/gradpool/alice.key"), 0600);
    chmod(in_root("config/gradpool/box.conf"), 0666);
    RUN_CODE(1, "status", "--pool", "box");
    CHECK_CONTAINS(err, "writable by other users");
}

/* ---- scheduler failures ---- */

TEST(next_scheduler_listens_at_the_same_address_and_waiting_clients_continue)
{
    REQUIRE(remote_begin());
    pid_t scheduler = pid_of(0);
    char line[300];

    snprintf(line, sizeof(line), "until [ -e %s ]; do sleep 0.05; done", in_root("go"));
    elsewhere();
    RUN_CODE(0, "submit", "--pool", "box", "--", "spmd", "-n", "1", "--", "sh", "-c", line);
    on_host();
    CHECK(await_leases(1)); /* the job is running: the job process starts the next scheduler */
    elsewhere();
    pid_t waiting = START("wait", "1", "--pool", "box");

    CHECK(await_client(waiting));
    kill(scheduler, SIGKILL);
    AWAIT(pid_of(0) != 0 && pid_of(0) != scheduler, 20);
    write_file("go", "");
    CHECK_INT(0, finish(waiting));
    CHECK_TEXT(endpoint, gp_json_text(gp_json_member(remote_status(), "listen"), ""));
    CHECK(pid_of(0) != scheduler);
}

/* ---- messages ---- */

typedef struct caller {
    gp_channel *channel;
    gp_key_pair own;
    char server[GP_KEY_TEXT];
    uint64_t correlation;
} caller;

static bool caller_open(caller *c, const char *key)
{
    gp_error why = { .message = "" };

    *c = (caller){ .channel = NULL };
    gp_key_read(&c->own, in_root(key), &why);
    gp_key_read_public(c->server, in_root("config/gradpool/box.pub"), &why);
    gp_link_keys keys = { .own = &c->own, .server_key = c->server };

    gp_channel_connect(&c->channel, endpoint,
                       &(gp_channel_options){ .security = GP_SECURITY_CURVE, .curve = &keys }, TIMEOUT_MS,
                       &why);
    if (c->channel == NULL)
        GP_TEST_FAIL("cannot open a link: %s", why.message);
    return c->channel != NULL;
}

/* Send a request and return the status of the reply: GP_OK unless it is an error_reply; *reply may
 * be NULL. All requests here are idempotent and are repeated after a broken link, as on a suspended
 * machine. */
static gp_status call(caller *c, uint8_t session, const gp_message_type *type, const void *message,
                      gp_error_reply *reply)
{
    gp_envelope envelope = { .correlation = ++c->correlation };
    gp_error_reply got = { .code = GP_OK };
    bool said = false;
    gp_incoming in;

    memset(envelope.session, session, sizeof(envelope.session));
    for (int64_t until = gp_now_ms() + TIMEOUT_MS; gp_now_ms() < until; gp_sleep_ms(1)) {
        said = said && !gp_channel_broke(c->channel);
        if (!said)
            said = gp_channel_send(c->channel, NULL, &envelope, type, message, NULL, 0, NULL) == GP_OK;
        if (gp_channel_receive(c->channel, &in, NULL) != GP_OK)
            continue;
        bool ours = in.envelope.correlation == c->correlation, failed = in.type == &gp_msg_error_reply;

        if (ours && failed)
            gp_incoming_decode(&in, &got, NULL);
        gp_incoming_close(&in);
        if (!ours)
            continue;
        if (reply != NULL)
            *reply = got;
        return (gp_status)got.code;
    }
    return GP_ETIMEDOUT;
}

static gp_status greet(caller *c, uint8_t session)
{
    gp_hello hello = { .role = GP_ROLE_CLIENT, .protocol_min = 1, .protocol_max = 1, .pid = 1 };

    return call(c, session, &gp_msg_hello, &hello, NULL);
}

/* Deny by default: only the messages listed in the manual are allowed; all others, including future
 * ones, are refused. */
TEST(every_message_not_on_the_list_is_refused_over_tcp)
{
    static const char *const open[] = { "hello",    "status_get", "devices_get", "jobs_get",
                                        "job_ask",  "job_watch",  "job_read",    "job_put",
                                        "job_stop", "shutdown",   "lease_resize" };
    size_t count;
    const gp_message_type *const *types = gp_message_all(&count);
    caller alice;
    gp_error_reply reply;

    REQUIRE(remote_begin() && caller_open(&alice, "config/gradpool/alice.key"));

    /* no hello yet */
    CHECK_STATUS(GP_EPEER, call(&alice, 7, &gp_msg_status_get, &(gp_status_get){ 0 }, &reply));
    CHECK_STATUS(GP_OK, greet(&alice, 7));
    CHECK_STATUS(GP_OK, call(&alice, 7, &gp_msg_status_get, &(gp_status_get){ 0 }, &reply));
    for (size_t i = 0; i < count; i++) {
        gp_message_type empty = *types[i];
        bool listed = false;

        for (size_t j = 0; j < sizeof(open) / sizeof(open[0]); j++)
            listed |= strcmp(types[i]->name, open[j]) == 0;
        if (listed)
            continue;
        empty.fields = gp_msg_status_get.fields; /* an empty body: refused before it is parsed */
        gp_status status = call(&alice, 7, &empty, &(gp_status_get){ 0 }, &reply);

        if (status != GP_EUNSUPPORTED)
            GP_TEST_FAIL("%s returned %s", types[i]->name, gp_status_name(status));
    }
    gp_channel_close(alice.channel, 0);
}

TEST(session_belongs_to_the_key_that_started_it)
{
    caller alice, wall;
    gp_error_reply reply;

    REQUIRE(remote_begin() && caller_open(&alice, "config/gradpool/alice.key") &&
            caller_open(&wall, "config/gradpool/wall.key"));
    CHECK_STATUS(GP_OK, greet(&alice, 9));
    CHECK_STATUS(GP_EPERM, greet(&wall, 9));
    CHECK_STATUS(GP_EPERM, call(&wall, 9, &gp_msg_status_get, &(gp_status_get){ 0 }, &reply));
    CHECK_CONTAINS(reply.message, "belongs to another client");
    CHECK_STATUS(GP_OK, call(&alice, 9, &gp_msg_status_get, &(gp_status_get){ 0 }, &reply));
    CHECK_STATUS(GP_EINVAL, greet(&wall, 0)); /* an all-zero session is invalid */

    /* At most sixteen sessions per key, which use none of the slots for local clients. */
    for (uint8_t i = 1; i <= 16; i++)
        CHECK_STATUS(GP_OK, greet(&wall, (uint8_t)(100 + i)));
    CHECK_STATUS(GP_EBUSY, greet(&wall, 200));
    CHECK_STATUS(GP_OK, greet(&alice, 201));
    on_host();
    RUN_CODE(0, "status");
    gp_channel_close(wall.channel, 0);
    gp_channel_close(alice.channel, 0);
}

TEST(offender_is_disconnected_and_listed_while_the_pool_serves_others)
{
    REQUIRE(remote_begin());
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_DEALER);
    gp_key_pair own;
    char server[GP_KEY_TEXT];
    int none = 0;

    CHECK_STATUS(GP_OK, gp_key_read(&own, in_root("config/gradpool/wall.key"), NULL));
    CHECK_STATUS(GP_OK, gp_key_read_public(server, in_root("config/gradpool/box.pub"), NULL));
    zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof(none));
    zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, own.secret_key, 40);
    zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, own.public_key, 40);
    zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, server, 40);
    zmq_connect(socket, endpoint);
    int64_t cut = 0;
    int code = 0;

    /* The key is blocked for 10 s: repeat if the machine was busy for as long. */
    for (int64_t until = gp_now_ms() + TIMEOUT_MS; code == 0 && gp_now_ms() < until;) {
        int64_t before = cut;

        for (int i = 0; i < 12; i++)
            zmq_send(socket, "no message", 10, 0);
        for (; cut == before && gp_now_ms() < until; gp_sleep_ms(20))
            cut = gp_json_integer(gp_json_member(remote_status(), "cut_off"), 0);
        elsewhere();
        code = RUN("status", "--pool", "look");
    }
    CHECK(cut >= 1);
    CHECK_INT(1, code);
    on_host();
    RUN_CODE(0, "status");
    CHECK_CONTAINS(out, " closed");
    elsewhere();
    RUN_CODE(0, "status", "--pool", "box");
    zmq_close(socket);
    zmq_ctx_term(context);
}

/* All 256 places for connections without a message are taken; silent connections are closed after 2
 * s. */
TEST(flood_of_connections_delays_a_client_without_refusing_it)
{
    enum { STRANGERS = 300 };
    static int fds[STRANGERS];
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

    REQUIRE(remote_begin());
    address.sin_port = htons((uint16_t)atoi(strrchr(endpoint, ':') + 1));
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK_INT(0, connect(fds[i], (struct sockaddr *)&address, sizeof(address)));
    }
    elsewhere();
    RUN_CODE(0, "status", "--pool", "box");
    for (int i = 0; i < STRANGERS; i++)
        close(fds[i]);
}

TEST(symbolic_link_instead_of_a_log_is_not_followed)
{
    REQUIRE(remote_begin());
    elsewhere();
    RUN_CODE(0, "submit", "--pool", "box", "--", "spmd", "-n", "1", "--", "true");
    RUN_CODE(0, "wait", "1", "--pool", "box");
    write_file("treasure", "the treasure\n");
    CHECK_INT(0, shell("l=$(find state -path '*/jobs/1/log'); rm $l; ln -s $PWD/treasure $l"));
    RUN_CODE(0, "logs", "1", "--pool", "look");
    CHECK(strstr(out, "treasure") == NULL);
}

/* ---- secrets ---- */

/* Count a text in a file. Reads the file into memory, because the command line of grep would match
 * too. */
static int times_in(const char *path, const char *text)
{
    static char bytes[8 << 20];
    FILE *file = fopen(path, "rb");
    size_t got = file == NULL ? 0 : fread(bytes, 1, sizeof(bytes), file);
    int count = 0;

    if (file != NULL)
        fclose(file);
    for (char *at = bytes; (at = memmem(at, got - (size_t)(at - bytes), text, strlen(text))) != NULL; at++)
        count++;
    return count;
}

static const char *searched_text;
static int found_in_files;

static int search_file(const char *path, const struct stat *facts, int kind, struct FTW *at)
{
    (void)at;
    if (kind == FTW_F && S_ISREG(facts->st_mode) && strstr(path, ".key") == NULL &&
        times_in(path, searched_text) > 0) {
        GP_TEST_FAIL("found a secret in %s", path);
        found_in_files++;
    }
    return 0;
}

static void search_everywhere(const char *text)
{
    DIR *processes = opendir("/proc");

    searched_text = text;
    nftw(pools_root, search_file, 16, FTW_PHYS);
    for (struct dirent *entry; processes != NULL && (entry = readdir(processes)) != NULL;) {
        char path[300];

        if (entry->d_name[0] < '1' || entry->d_name[0] > '9' || atoi(entry->d_name) == getpid())
            continue;
        for (int i = 0; i < 2; i++) {
            snprintf(path, sizeof(path), "/proc/%s/%s", entry->d_name, i == 0 ? "cmdline" : "environ");
            if (times_in(path, text) > 0)
                GP_TEST_FAIL("found a secret in %s", path);
        }
    }
    if (processes != NULL)
        closedir(processes);
}

TEST(secrets_appear_in_no_argument_variable_log_or_journal)
{
    /* unique: this test may run in parallel with itself */
    char canary[60];
    gp_key_pair alice, server;

    hosts_begin();
    snprintf(canary, sizeof(canary), "canaryX9remoteQ7credential%dx", (int)getpid());
    setenv("AWS_ACCESS_KEY_ID", "AKIDCANARY", 1);
    setenv("AWS_SECRET_ACCESS_KEY", canary, 1);
    if (!listen_begin())
        return;
    elsewhere();
    RUN_CODE(1, "submit", "--pool", "box", "--env", "AWS_SECRET_ACCESS_KEY", "--", "spmd", "-n", "1", "--",
             "true");
    CHECK_CONTAINS(err, "secret-env");
    RUN_CODE(0, "submit", "--pool", "box", "--", "spmd", "-n", "1", "--", "sleep", "1000");
    unsetenv("AWS_SECRET_ACCESS_KEY"); /* from here on, no child inherits it */
    pid_t waiting = START("wait", "1", "--pool", "box");

    CHECK(await_client(waiting));
    CHECK(await_leases(1));
    elsewhere();
    CHECK_STATUS(GP_OK, gp_key_read(&alice, in_root("config/gradpool/alice.key"), NULL));
    CHECK_INT(0, shell("ln -s $(dirname $(find state -name server.key)) keys"));
    CHECK_STATUS(GP_OK, gp_key_read(&server, in_root("keys/server.key"), NULL));
    search_everywhere(alice.secret_key);
    search_everywhere(server.secret_key);
    search_everywhere(canary);

    /* The search finds existing text: the public key is on the list. */
    CHECK(times_in(in_root("keys/allowed"), alice.public_key) > 0);
    RUN_CODE(0, "cancel", "--all", "--pool", "box");
    finish(waiting);
    unsetenv("AWS_ACCESS_KEY_ID");
}
