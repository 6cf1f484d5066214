/* Test real daemons: gradpool-scheduler with gradpool-worker processes. The test program acts as
 * the clients. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "proto/channel/channel.h"
#include "proto/local/control_socket.h"
#include "proto/message/messages.h"
#include "proto/local/paths.h"
#include "tests/gp_test.h"
#include "tests/leftovers.h"

extern char **environ;

enum { TIMEOUT_MS = 300000 }; /* only to detect a hang; results do not depend on it */

static char directory[64];
static gp_paths paths;
static gp_status_reply status;
static gp_lease_grant grant;

/* ---- scheduler process ---- */

static pid_t scheduler;
static char first_line[512]; /* status line from the readiness descriptor */

static bool stage_open(void)
{
    gp_error err;

    snprintf(directory, sizeof(directory), "/tmp/gp-sched-XXXXXX");
    if (leftovers_make(directory) == NULL)
        return false;
    setenv("GRADPOOL_RUNTIME_DIR", directory, 1);
    setenv("GRADPOOL_STATE_DIR", directory, 1);
    return gp_paths_find(&paths, "default", &err) == GP_OK && gp_paths_create(&paths, &err) == GP_OK;
}

static pid_t spawn_scheduler(const char *workers)
{
    char path[600];
    const char *arguments[] = { path,         "--workers", workers,          "--devices", "cpu",
                                "--ready-fd", "3",         "--idle-timeout", "60000",     NULL };
    posix_spawn_file_actions_t actions;
    int ends[2];
    size_t used = 0;
    pid_t pid = 0;
    ssize_t got;

    snprintf(path, sizeof(path), "%s/bin/gradpool-scheduler", getenv("GP_BUILD_DIR"));
    if (pipe2(ends, O_CLOEXEC) != 0)
        return 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 3);
    posix_spawn_file_actions_addclosefrom_np(&actions, 4);
    if (posix_spawn(&pid, path, &actions, NULL, (char **)(uintptr_t)arguments, environ) != 0)
        pid = 0;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    while ((got = read(ends[0], first_line + used, sizeof(first_line) - 1 - used)) > 0) {
        used += (size_t)got;
        if (first_line[used - 1] == '\n')
            break;
    }
    first_line[used] = '\0';
    close(ends[0]);
    return pid;
}

static bool pool_up(const char *workers)
{
    if (!stage_open())
        return false;
    scheduler = spawn_scheduler(workers);
    return scheduler != 0 && strcmp(first_line, "ready\n") == 0;
}

/* Wait until a child exits. Return the wait status; -1: timeout. */
static int wait_end(pid_t pid)
{
    int code = -1;

    for (int64_t end = gp_now_ms() + TIMEOUT_MS; gp_now_ms() < end; poll(NULL, 0, 2)) {
        if (waitpid(pid, &code, WNOHANG) == pid)
            return code;
    }
    return -1;
}

static bool wait_gone(pid_t pid)
{
    for (int64_t end = gp_now_ms() + TIMEOUT_MS; gp_now_ms() < end; poll(NULL, 0, 2)) {
        if (kill(pid, 0) != 0)
            return true;
    }
    return false;
}

static void stage_close(void)
{
    char command[128];

    if (scheduler != 0) {
        kill(scheduler, SIGTERM);
        CHECK(WIFEXITED(wait_end(scheduler)));
    }
    scheduler = 0;
    if (gp_test_failures != 0) {
        snprintf(command, sizeof(command), "tail -n 20 %s/*/default/log/*", directory);
        if (system(command) != 0)
            printf("    no logs\n");
    }
    leftovers_clear(directory);
}

/* ---- clients ---- */

typedef struct client {
    int control_socket;
    gp_channel *channel;
    uint8_t session[16];
    uint64_t epoch, correlation, lease;
    uint32_t generation;
} client;

static gp_envelope envelope_of(client *c)
{
    gp_envelope envelope = { .correlation = ++c->correlation, .epoch = c->epoch, .lease = c->lease };

    memcpy(envelope.session, c->session, sizeof(c->session));
    return envelope;
}

static bool tell(client *c, const gp_message_type *type, const void *message)
{
    gp_envelope envelope = envelope_of(c);
    gp_error err;

    for (int64_t end = gp_now_ms() + TIMEOUT_MS; gp_now_ms() < end; poll(NULL, 0, 1)) {
        gp_status sent = gp_channel_send(c->channel, NULL, &envelope, type, message, NULL, 0, &err);

        if (sent != GP_EBUSY)
            return sent == GP_OK;
    }
    return false;
}

/* Wait for the next message with this type and skip others. False: timeout or error_reply. */
static bool await(client *c, const gp_message_type *type, void *message)
{
    for (int64_t end = gp_now_ms() + TIMEOUT_MS; gp_now_ms() < end; poll(NULL, 0, 1)) {
        gp_incoming in;
        gp_error err;
        gp_error_reply reply;
        bool found, refused;

        if (gp_channel_receive(c->channel, &in, &err) != GP_OK)
            continue;
        found = in.type == type && gp_incoming_decode(&in, message, &err) == GP_OK;
        refused = !found && in.type == &gp_msg_error_reply && gp_incoming_decode(&in, &reply, &err) == GP_OK;
        if (type == &gp_msg_lease_grant && found) {
            c->lease = in.envelope.lease;
            c->generation = in.envelope.generation;
        }
        gp_incoming_close(&in);
        if (refused)
            printf("     while waiting for %s: %s\n", type->name, reply.message);
        if (found || refused)
            return found;
    }
    return false;
}

static bool client_open(client *c)
{
    gp_control_socket_hello greeting = { .protocol_min = GP_PROTOCOL_MIN,
                                         .protocol_max = GP_PROTOCOL,
                                         .role = GP_ROLE_CLIENT,
                                         .pid = (uint32_t)getpid() };
    gp_hello hello = { .role = GP_ROLE_CLIENT,
                       .protocol_min = GP_PROTOCOL_MIN,
                       .protocol_max = GP_PROTOCOL,
                       .build = "test",
                       .pid = (uint32_t)getpid() };
    gp_channel_options options = { .security = GP_SECURITY_NONE };
    gp_control_socket_reply reply;
    gp_welcome welcome;
    char endpoint[160];
    gp_error err;

    memset(c, 0, sizeof(*c));
    if (getrandom(c->session, sizeof(c->session), 0) != (ssize_t)sizeof(c->session))
        return false;
    memcpy(greeting.session, c->session, sizeof(c->session));
    if (gp_control_socket_connect(&c->control_socket, &reply, paths.scheduler_control_socket, &greeting,
                                  TIMEOUT_MS, &err) != GP_OK) {
        printf("     %s\n", err.message);
        return false;
    }
    c->epoch = reply.epoch;
    snprintf(endpoint, sizeof(endpoint), "ipc://%s", paths.scheduler_socket);
    return gp_channel_connect(&c->channel, endpoint, &options, TIMEOUT_MS, &err) == GP_OK &&
           tell(c, &gp_msg_hello, &hello) && await(c, &gp_msg_welcome, &welcome);
}

static void client_close(client *c)
{
    gp_channel_close(c->channel, 100);
    if (c->control_socket > 0)
        close(c->control_socket);
    memset(c, 0, sizeof(*c));
}

static bool get_status(client *c)
{
    return tell(c, &gp_msg_status_get, &(gp_status_get){ 0 }) && await(c, &gp_msg_status_reply, &status);
}

/* Wait until this many workers are idle. */
static bool await_idle(client *c, uint32_t count)
{
    for (int64_t end = gp_now_ms() + TIMEOUT_MS; gp_now_ms() < end; poll(NULL, 0, 5)) {
        uint32_t idle = 0;

        if (!get_status(c))
            return false;
        for (uint32_t i = 0; i < status.workers_count; i++)
            idle += status.workers[i].state == GP_WORKER_IDLE;
        if (idle == count && status.workers_count == count)
            return true;
    }
    return false;
}

static bool lease(client *c)
{
    gp_lease_ask ask = { .purpose = "test", .wait = true };

    return tell(c, &gp_msg_lease_ask, &ask) && await(c, &gp_msg_lease_grant, &grant);
}

/* ---- tests ---- */

static client c, other; /* clients of the running test */

TEARDOWN()
{
    client_close(&other);
    client_close(&c);
    stage_close();
}

TEST(pool_starts_and_shuts_down_cleanly)
{
    REQUIRE(pool_up("2"));
    REQUIRE(client_open(&c) && await_idle(&c, 2));
    CHECK_TEXT("default", status.pool);
    CHECK_INT(scheduler, status.scheduler_pid);
    CHECK_INT(1, status.epoch);
    CHECK_INT(1, status.workers[0].slot.index);
    CHECK(status.workers[1].slot.pid != 0 && status.workers[1].slot.endpoint[0] != '\0');
    CHECK_CONTAINS(status.workers[1].slot.log, directory);
    CHECK(tell(&c, &gp_msg_shutdown, &(gp_shutdown){ .when_idle = false }));
    int code = wait_end(scheduler); /* the reply may be lost with the link, see gp_pool_shutdown() */

    CHECK(WIFEXITED(code) && WEXITSTATUS(code) == 0);
    scheduler = 0;
    CHECK(wait_gone((pid_t)status.workers[0].slot.pid));
    CHECK(wait_gone((pid_t)status.workers[1].slot.pid));
    CHECK(access(paths.scheduler_control_socket, F_OK) != 0);
}

TEST(second_scheduler_exits_with_75)
{
    REQUIRE(pool_up("1"));
    pid_t second = spawn_scheduler("1");
    int code = wait_end(second);

    CHECK(WIFEXITED(code) && WEXITSTATUS(code) == 75);
    CHECK_TEXT("busy\n", first_line);
}

TEST(failed_start_reports_the_reason)
{
    REQUIRE(stage_open());
    pid_t pid = spawn_scheduler("1000");
    int code = wait_end(pid);

    CHECK(WIFEXITED(code) && WEXITSTATUS(code) == 2);
    CHECK_CONTAINS(first_line, "error: --workers is \"1000\"; must be a number from 1 to 64");
}

TEST(killed_worker_is_replaced_and_the_client_notified)
{
    gp_worker_lost lost;
    gp_ok_reply ok;

    REQUIRE(pool_up("2"));
    REQUIRE(client_open(&c) && lease(&c));
    CHECK_INT(2, grant.slots_count);
    CHECK_INT(1, c.generation);
    kill((pid_t)grant.slots[1].pid, SIGKILL);
    if (await(&c, &gp_msg_worker_lost, &lost)) {
        CHECK_INT(2, lost.index);
        CHECK_INT(9, lost.signal);
        CHECK_CONTAINS(lost.cause, "was killed by signal 9 (Killed)");
    }
    CHECK(await(&c, &gp_msg_lease_grant, &grant));
    CHECK_INT(2, c.generation);
    CHECK_INT(2, grant.slots[1].incarnation);
    CHECK(tell(&c, &gp_msg_lease_release, &(gp_lease_release){ 0 }) && await(&c, &gp_msg_ok_reply, &ok));
    c.lease = 0;
    CHECK(await_idle(&c, 2));
}

TEST(killed_client_releases_its_lease)
{
    int ends[2];
    char byte;

    REQUIRE(pool_up("2") && pipe(ends) == 0);
    pid_t holder = fork(); /* no channel is open in this process yet */

    if (holder == 0) {
        close(ends[0]);
        if (client_open(&c) && lease(&c) && write(ends[1], "y", 1) == 1)
            pause();
        _exit(1);
    }
    close(ends[1]);
    CHECK_INT(1, read(ends[0], &byte, 1));
    close(ends[0]);
    REQUIRE(client_open(&c));
    gp_lease_ask ask = { .purpose = "test", .wait = true };
    gp_lease_wait wait;
    char pid[32];

    CHECK(tell(&c, &gp_msg_lease_ask, &ask) && await(&c, &gp_msg_lease_wait, &wait));
    snprintf(pid, sizeof(pid), "pid %d) has held 2 workers", (int)holder);
    CHECK_CONTAINS(wait.reason, pid);
    kill(holder, SIGKILL);
    CHECK(await(&c, &gp_msg_lease_grant, &grant));
    CHECK_INT(2, grant.slots_count);
    wait_end(holder);
}

TEST(client_that_forked_and_exits_releases_its_lease)
{
    int ends[2];
    pid_t fork_of_holder = 0;

    REQUIRE(pool_up("1") && pipe(ends) == 0);
    pid_t holder = fork(); /* no channel is open in this process yet */

    if (holder == 0) {
        if (client_open(&c) && lease(&c)) {
            pid_t child = fork();

            if (child != 0 && write(ends[1], &child, sizeof(child)) != sizeof(child))
                _exit(1);
            pause();
        }
        _exit(1);
    }
    CHECK_INT(sizeof(pid_t), read(ends[0], &fork_of_holder, sizeof(fork_of_holder)));
    close(ends[0]);
    close(ends[1]);
    kill(holder, SIGKILL);
    wait_end(holder);
    REQUIRE(client_open(&c));
    enum { RELEASE_MS = 10000 }; /* the fork holds the connection forever */

    for (int64_t end = gp_now_ms() + RELEASE_MS;
         get_status(&c) && status.leases_count != 0 && gp_now_ms() < end;)
        poll(NULL, 0, 5);
    CHECK_INT(0, status.leases_count);
    CHECK_INT(0, kill(fork_of_holder, 0));
    kill(fork_of_holder, SIGKILL);
}

/* Send requests without waiting for the replies, until this process is killed. Write a byte when
 * the scheduler has many of them. */
_Noreturn static void flood(int told)
{
    if (!client_open(&c))
        _exit(1);
    for (uint32_t sent = 0;;) {
        gp_envelope envelope = envelope_of(&c);

        sent += gp_channel_send(c.channel, NULL, &envelope, &gp_msg_status_get, &(gp_status_get){ 0 }, NULL,
                                0, NULL) == GP_OK;
        if (sent == 5000 && write(told, "y", 1) != 1)
            _exit(1);
    }
}

TEST(flood_of_requests_does_not_delay_the_exit_of_a_worker)
{
    enum { FLOODERS = 3, REPLIES_MAX = 200 }; /* more than the requests that are served at once */
    pid_t flooders[FLOODERS];
    int replies = 0;
    int go[2], told[2];
    char bytes[FLOODERS];

    REQUIRE(pool_up("1") && pipe(go) == 0 && pipe(told) == 0);
    for (int i = 0; i < FLOODERS; i++) {
        flooders[i] = fork(); /* no channel is open in this process yet */
        if (flooders[i] == 0) {
            if (read(go[0], bytes, 1) == 1)
                flood(told[1]);
            _exit(1);
        }
    }
    bool served = client_open(&c) && await_idle(&c, 1);
    const uint32_t worker = status.workers[0].slot.pid;

    served = served && write(go[1], "yyy", FLOODERS) == FLOODERS;
    for (int i = 0; i < FLOODERS; i++)
        served = served && read(told[0], bytes, 1) == 1;
    struct pollfd ended = { .fd = (int)syscall(SYS_pidfd_open, worker, 0), .events = POLLIN };

    kill((pid_t)worker, SIGKILL);
    served = served && poll(&ended, 1, TIMEOUT_MS) == 1;
    close(ended.fd);
    for (; served && replies < REPLIES_MAX && status.workers[0].slot.pid == worker; replies++)
        served = get_status(&c);
    for (int i = 0; i < FLOODERS; i++) {
        kill(flooders[i], SIGKILL);
        wait_end(flooders[i]);
    }
    printf("     the scheduler noticed the exit after %d replies\n", replies);
    CHECK(served && status.workers[0].slot.pid != worker);
    close(go[0]);
    close(go[1]);
    close(told[0]);
    close(told[1]);
}

TEST(suspended_worker_that_keeps_its_lease_is_replaced)
{
    gp_ok_reply ok;

    REQUIRE(pool_up("1"));
    REQUIRE(client_open(&c) && lease(&c));
    pid_t stopped = (pid_t)grant.slots[0].pid;

    kill(stopped, SIGSTOP);
    CHECK(tell(&c, &gp_msg_lease_release, &(gp_lease_release){ 0 }) && await(&c, &gp_msg_ok_reply, &ok));
    c.lease = 0;
    CHECK(await_idle(&c, 1));
    CHECK(status.workers[0].slot.pid != (uint32_t)stopped);
    CHECK(wait_gone(stopped));
}

TEST(pool_recovers_after_a_scheduler_is_killed)
{
    pid_t old[2];

    REQUIRE(pool_up("2"));
    if (!client_open(&c) || !await_idle(&c, 2))
        GP_TEST_FAIL("no pool");
    for (int i = 0; i < 2; i++)
        old[i] = (pid_t)status.workers[i].slot.pid;
    kill(scheduler, SIGKILL);
    wait_end(scheduler);
    CHECK(wait_gone(old[0]) && wait_gone(old[1]));
    client_close(&c);
    scheduler = spawn_scheduler("2");
    CHECK_TEXT("ready\n", first_line);
    if (client_open(&c) && await_idle(&c, 2))
        CHECK_INT(2, status.epoch);
    else
        GP_TEST_FAIL("the next scheduler does not have two idle workers");
}

TEST(idle_pool_can_be_resized)
{
    gp_resize resize = { .workers = 1, .idle_timeout_ms = 0 };

    REQUIRE(pool_up("2"));
    REQUIRE(client_open(&c) && await_idle(&c, 2));
    CHECK(tell(&c, &gp_msg_resize, &resize) && await(&c, &gp_msg_status_reply, &status));
    CHECK_INT(1, status.workers_count);
    CHECK(await_idle(&c, 1));
}

TEST(messages_without_a_control_socket_connection_are_refused)
{
    REQUIRE(pool_up("1"));
    REQUIRE(client_open(&c));
    gp_error_reply reply;

    c.session[0] ^= 1;
    CHECK(tell(&c, &gp_msg_status_get, &(gp_status_get){ 0 }));
    if (await(&c, &gp_msg_error_reply, &reply)) {
        CHECK_INT(GP_EPERM, reply.code);
        CHECK_CONTAINS(reply.message, "no hello from this session");
    }
}

/* Close the link after sending all messages. The control socket stays connected. */
static void close_link(client *who)
{
    gp_channel_close(who->channel, 1000);
    who->channel = NULL;
}

enum { LINK_TRIES = 20 }; /* the message may be in flight before the link is closed */

TEST(client_without_a_link_loses_a_newly_granted_lease)
{
    struct pollfd ended = { .events = POLLIN };
    gp_ok_reply ok;

    REQUIRE(pool_up("1"));
    REQUIRE(client_open(&c));
    for (int i = 0; i < LINK_TRIES && ended.revents == 0; i++) {
        client_close(&other);
        REQUIRE(await_idle(&c, 1) && lease(&c) && client_open(&other));
        CHECK(tell(&other, &gp_msg_lease_ask, &(gp_lease_ask){ .purpose = "other", .wait = true }));
        CHECK(await(&other, &gp_msg_lease_wait, &(gp_lease_wait){ .position = 0 }));
        close_link(&other);
        CHECK(get_status(&c));
        CHECK(tell(&c, &gp_msg_lease_release, &(gp_lease_release){ 0 }) && await(&c, &gp_msg_ok_reply, &ok));
        c.lease = 0;
        ended.fd = other.control_socket;
        poll(&ended, 1, 1000);
    }
    CHECK(gp_control_socket_gone(other.control_socket));
    CHECK(await_idle(&c, 1) && lease(&c));
}

/* Submit a job and close the link before the reply. */
static bool submit_without_a_link(client *who, uint64_t seq)
{
    const gp_payload payloads[] = { { .data = "version", .bytes = 8 },
                                    { .data = "A=b", .bytes = 4 },
                                    { .data = "/tmp", .bytes = 5 } };
    gp_job_put put = { .submitter = { 42 }, .seq = seq, .umask = 077 };
    gp_envelope envelope = envelope_of(who);
    gp_error err;

    if (gp_channel_send(who->channel, NULL, &envelope, &gp_msg_job_put, &put, payloads, 3, &err) != GP_OK)
        return false;
    close_link(who);
    return true;
}

TEST(client_without_a_link_is_disconnected_instead_of_losing_a_reply)
{
    struct pollfd ended = { .events = POLLIN };

    REQUIRE(pool_up("1"));
    for (uint64_t i = 1; i <= LINK_TRIES && ended.revents == 0; i++) {
        client_close(&other);
        REQUIRE(client_open(&other) && submit_without_a_link(&other, i));
        ended.fd = other.control_socket;
        poll(&ended, 1, 1000);
    }
    CHECK(gp_control_socket_gone(other.control_socket));
}
