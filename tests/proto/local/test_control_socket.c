/* Control sockets over real connections: admission, refusal with a reason, and exit of either
 * side. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "common/base/clock.h"
#include "proto/local/control_socket.h"
#include "proto/local/listen.h"
#include "proto/message/messages.h"
#include "tests/descriptors.h"
#include "tests/gp_test.h"
#include "tests/proto/scratch.h"

enum { TIMEOUT_MS = 300000, EPOCH = 42 };

static const gp_control_socket_hello client_hello = {
    .protocol_min = 1, .protocol_max = 1, .role = GP_ROLE_CLIENT, .session = "0123456789abcdef"
};

/* Connect to a control socket without sending a hello. Return the descriptor; -1: connect()
 * failed. */
static int bare_connect(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static gp_control_socket *server; /* control socket of the running test */
static const char *server_path;

/* Open `server` at a new path. */
static bool server_open(uint32_t peers_max)
{
    gp_error err;

    server_path = scratch_path("d");
    if (gp_control_socket_open(&server, server_path, peers_max, &err) == GP_OK)
        return true;
    GP_TEST_FAIL("%s", err.message);
    return false;
}

static void server_close(void)
{
    gp_control_socket_close(server);
    server = NULL;
}

TEARDOWN()
{
    server_close();
}

/* Wait for the next event and return it. GP_CONTROL_SOCKET_NOTHING: no event within TIMEOUT_MS. */
static gp_control_socket_event event_wait(void)
{
    int64_t deadline = gp_now_ms() + TIMEOUT_MS;
    gp_control_socket_event event = { .kind = GP_CONTROL_SOCKET_NOTHING };

    while (event.kind == GP_CONTROL_SOCKET_NOTHING && gp_now_ms() < deadline) {
        poll(&(struct pollfd){ .fd = gp_control_socket_fd(server), .events = POLLIN }, 1, 1000);
        gp_control_socket_next(server, &event);
    }
    return event;
}

/* Check that no event is pending. */
static void nothing_left(void)
{
    gp_control_socket_event event;

    gp_control_socket_next(server, &event);
    CHECK_INT(GP_CONTROL_SOCKET_NOTHING, event.kind);
}

/* Connect, send a valid hello and return the event that it causes.
 *   fd  set to the descriptor of the connection */
static gp_control_socket_event greeting(int *fd)
{
    gp_control_socket_hello hello = client_hello;

    hello.magic = GP_CONTROL_SOCKET_MAGIC;
    *fd = bare_connect(server_path);
    CHECK(*fd >= 0);
    CHECK_INT(sizeof(hello), send(*fd, &hello, sizeof(hello), MSG_NOSIGNAL));
    return event_wait();
}

/* Wait for the reply to a hello. */
static gp_control_socket_reply reply_read(int fd)
{
    gp_control_socket_reply reply = { .magic = 0 };
    struct timeval timeout = { .tv_sec = TIMEOUT_MS / 1000 };

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    CHECK_INT(sizeof(reply), recv(fd, &reply, sizeof(reply), 0));
    CHECK(reply.magic == GP_CONTROL_SOCKET_MAGIC);
    return reply;
}

TEST(control_socket_reports_hello_and_gone_events)
{
    int fd;

    REQUIRE(server_open(8));
    gp_control_socket_event event = greeting(&fd);

    CHECK_INT(GP_CONTROL_SOCKET_HELLO, event.kind);
    CHECK_INT(getpid(), event.pid);
    CHECK_INT(GP_ROLE_CLIENT, event.hello.role);
    CHECK(memcmp(event.hello.session, client_hello.session, 16) == 0);
    CHECK_INT(1, gp_control_socket_get_stats(server).peers);
    gp_control_socket_admit(server, event.id, EPOCH);
    gp_control_socket_reply reply = reply_read(fd);

    CHECK_INT(GP_OK, reply.status);
    CHECK_INT(EPOCH, reply.epoch);
    CHECK_INT(1, reply.protocol);
    CHECK(!gp_control_socket_gone(fd));
    nothing_left();
    uint64_t id = event.id;

    close(fd);
    event = event_wait();
    CHECK_INT(GP_CONTROL_SOCKET_GONE, event.kind);
    CHECK(event.id == id);
    CHECK_INT(0, gp_control_socket_get_stats(server).peers);
    CHECK_INT(-1, gp_control_socket_peer_fd(server, id));
    gp_control_socket_admit(server, id, EPOCH); /* no effect: the client has disconnected */
    nothing_left();
    server_close();
    CHECK_INT(-1, access(server_path, F_OK));
}

/* Start a client process that connects and exits with the status of gp_control_socket_connect().
 * With `stay`, an admitted client waits instead until it is killed. */
static pid_t client_fork(const char *path, const gp_control_socket_hello *hello, bool stay)
{
    pid_t child = fork();

    if (child == 0) {
        gp_control_socket_reply reply;
        int fd = -1;
        gp_status status = gp_control_socket_connect(&fd, &reply, path, hello, TIMEOUT_MS, NULL);

        while (stay && status == GP_OK)
            pause();
        if (status == GP_OK && reply.epoch != EPOCH)
            status = GP_EINTERNAL;
        _exit((int)status);
    }
    return child;
}

/* Wait until a child exits. Return its exit status; -N: signal N killed it. */
static int exit_of(pid_t child)
{
    int result = -1;

    waitpid(child, &result, 0);
    return WIFEXITED(result) ? WEXITSTATUS(result) : -WTERMSIG(result);
}

TEST(killed_client_causes_a_gone_event)
{
    REQUIRE(server_open(8));
    pid_t child = client_fork(server_path, &client_hello, true);
    gp_control_socket_event event = event_wait();

    CHECK_INT(GP_CONTROL_SOCKET_HELLO, event.kind);
    CHECK_INT(child, event.pid);
    gp_control_socket_admit(server, event.id, EPOCH);
    kill(child, SIGKILL);
    event = event_wait();
    CHECK_INT(GP_CONTROL_SOCKET_GONE, event.kind);
    CHECK_INT(child, event.pid);
    CHECK_INT(-SIGKILL, exit_of(child));
}

TEST(client_reads_end_of_file_after_the_socket_is_closed)
{
    int fd;

    REQUIRE(server_open(8));
    gp_control_socket_event event = greeting(&fd);

    gp_control_socket_admit(server, event.id, EPOCH);
    reply_read(fd);
    CHECK(!gp_control_socket_gone(fd));
    server_close();
    CHECK(gp_control_socket_gone(fd));
    close(fd);
}

TEST(refused_client_receives_status_and_reason)
{
    REQUIRE(server_open(8));
    pid_t child = client_fork(server_path, &client_hello, false);
    gp_control_socket_event event = event_wait();

    CHECK_INT(GP_CONTROL_SOCKET_HELLO, event.kind);
    gp_control_socket_refuse(server, event.id, GP_ESTATE, "the pool is shutting down");
    CHECK_INT(GP_ESTATE, exit_of(child));
    nothing_left();
    CHECK_INT(0, gp_control_socket_get_stats(server).peers);
}

TEST(malformed_hellos_and_unknown_versions_are_refused)
{
    gp_control_socket_hello newer = client_hello, stranger = client_hello;
    gp_control_socket_event event;

    REQUIRE(server_open(8));
    newer.magic = GP_CONTROL_SOCKET_MAGIC;
    newer.protocol_min = 7;
    newer.protocol_max = 9;
    stranger.magic = 0x12345678;
    const struct {
        const void *bytes;
        size_t count;
        gp_status status;
        const char *text;
    } tries[] = { { &newer, sizeof(newer), GP_EVERSION, "7 to 9" },
                  { &stranger, sizeof(stranger), GP_EPROTO, "malformed hello" },
                  { "GET / HTTP/1.0\r\n", 16, GP_EPROTO, "malformed hello" },
                  { (char[200]){ 0 }, 200, GP_EPROTO, "malformed hello" } };

    for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
        int fd = bare_connect(server_path);

        CHECK_INT(tries[i].count, send(fd, tries[i].bytes, tries[i].count, MSG_NOSIGNAL));
        gp_control_socket_next(server, &event);
        CHECK_INT(GP_CONTROL_SOCKET_NOTHING, event.kind);
        gp_control_socket_reply reply = reply_read(fd);

        CHECK_INT(tries[i].status, reply.status);
        CHECK_CONTAINS(reply.text, tries[i].text);
        CHECK(gp_control_socket_gone(fd));
        close(fd);
        CHECK_INT(i + 1, gp_control_socket_get_stats(server).refused);
    }
    CHECK_INT(0, gp_control_socket_get_stats(server).peers);
}

/* Fork a client of another protocol version. Return 1: the error names a process to end; 0: it does
 * not; 98: no PID namespace.
 *   hidden  the client is in a PID namespace that does not have the daemon */
static int newer_client(bool hidden)
{
    gp_control_socket_event event;
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        gp_control_socket_hello newer = client_hello;
        gp_control_socket_reply reply;
        gp_error err = { .message = "" };
        int fd;

        if (hidden && unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
            _exit(98);
        child = hidden ? fork() : 0; /* the child of unshare() is in the new namespace */
        if (child != 0)
            _exit(waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : 97);
        newer.protocol_min = newer.protocol_max = 7;
        if (gp_control_socket_connect(&fd, &reply, server_path, &newer, TIMEOUT_MS, &err) != GP_EVERSION ||
            strstr(err.message, "end the daemon") == NULL)
            _exit(96);
        _exit(strstr(err.message, "kill") != NULL);
    }
    while (waitpid(child, &status, WNOHANG) == 0) {
        gp_control_socket_next(server, &event);
        usleep(1000);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(client_of_another_version_learns_the_daemon_to_end_unless_the_pid_is_hidden)
{
    REQUIRE(server_open(8));
    CHECK_INT(1, newer_client(false));
    const int hidden = newer_client(true);

    if (hidden == 98)
        SKIP("cannot create a PID namespace here");
    CHECK_INT(0, hidden); /* no "kill 0", which would end the process group of the user */
}

TEST(clients_over_the_limit_are_refused_until_a_slot_is_free)
{
    gp_control_socket_event event;
    int first, second;

    REQUIRE(server_open(2));
    event = greeting(&first);
    gp_control_socket_admit(server, event.id, EPOCH);
    event = greeting(&second);
    gp_control_socket_admit(server, event.id, EPOCH);
    int third = bare_connect(server_path);

    nothing_left();
    gp_control_socket_reply reply = reply_read(third);

    CHECK_INT(GP_EBUSY, reply.status);
    CHECK_CONTAINS(reply.text, "reached its limit of clients");
    close(third);
    close(first);
    CHECK_INT(GP_CONTROL_SOCKET_GONE, event_wait().kind);
    event = greeting(&third);
    CHECK_INT(GP_CONTROL_SOCKET_HELLO, event.kind);
    gp_control_socket_drop(server, event.id);
    CHECK(gp_control_socket_gone(third));
    close(second);
    close(third);
}

TEST(connection_without_a_hello_is_closed_after_two_seconds)
{
    gp_control_socket_event event;

    REQUIRE(server_open(8));
    int silent = bare_connect(server_path), leaver = bare_connect(server_path);
    int64_t began = gp_now_ms();

    nothing_left();
    CHECK_INT(2, gp_control_socket_get_stats(server).peers);
    close(leaver);
    nothing_left();
    CHECK_INT(1, gp_control_socket_get_stats(server).peers);
    while (!gp_control_socket_gone(silent) && gp_now_ms() < began + TIMEOUT_MS) {
        poll(&(struct pollfd){ .fd = gp_control_socket_fd(server), .events = POLLIN }, 1, 1000);
        gp_control_socket_next(server, &event);
        CHECK_INT(GP_CONTROL_SOCKET_NOTHING, event.kind);
    }
    CHECK(gp_control_socket_gone(silent));
    CHECK(gp_now_ms() - began >= GP_CONTROL_SOCKET_SILENCE_MS - 50);
    CHECK_INT(1, gp_control_socket_get_stats(server).refused);
    close(silent);
}

TEST(disconnect_before_the_reply_causes_one_gone_event)
{
    int fd;

    REQUIRE(server_open(8));
    gp_control_socket_event event = greeting(&fd);
    uint64_t id = event.id;

    close(fd);
    event = event_wait();
    CHECK_INT(GP_CONTROL_SOCKET_GONE, event.kind);
    CHECK(event.id == id);
    gp_control_socket_admit(server, id, EPOCH);
    gp_control_socket_refuse(server, id, GP_EBUSY, "too late");
    nothing_left();
}

/* ---- descriptor exhaustion ---- */

/* Start a process with at most 24 descriptors that opens a control socket and admits every client
 * until it is killed. */
static pid_t poor_daemon_fork(const char *path)
{
    pid_t child = fork();

    if (child != 0)
        return child;
    struct rlimit limit = { 24, 24 };
    gp_control_socket_event event;
    gp_control_socket *control_socket;

    setrlimit(RLIMIT_NOFILE, &limit);
    if (gp_control_socket_open(&control_socket, path, 1000, NULL) != GP_OK)
        _exit(1);
    for (;;) {
        poll(&(struct pollfd){ .fd = gp_control_socket_fd(control_socket), .events = POLLIN }, 1, 1000);
        for (gp_control_socket_next(control_socket, &event); event.kind != GP_CONTROL_SOCKET_NOTHING;
             gp_control_socket_next(control_socket, &event))
            if (event.kind == GP_CONTROL_SOCKET_HELLO)
                gp_control_socket_admit(control_socket, event.id, EPOCH);
    }
}

TEST(daemon_without_descriptors_refuses_clients_and_recovers)
{
    const char *path = scratch_path("limited");
    pid_t daemon = poor_daemon_fork(path);
    unsigned admitted = 0, busy = 0;
    gp_control_socket_reply reply;
    gp_error err;
    int fds[40], fd;

    for (int64_t deadline = gp_now_ms() + TIMEOUT_MS; access(path, F_OK) != 0 && gp_now_ms() < deadline;)
        usleep(1000);
    for (int i = 0; i < 40; i++) {
        gp_status status = gp_control_socket_connect(&fd, &reply, path, &client_hello, TIMEOUT_MS, &err);

        if (status == GP_OK) {
            fds[admitted++] = fd;
        } else {
            CHECK_STATUS(GP_EBUSY, status);
            CHECK_CONTAINS(err.message, "no free file descriptors");
            busy++;
        }
    }
    CHECK(admitted >= 8 && admitted <= 20);
    CHECK_INT(40, admitted + busy);
    while (admitted > 0)
        close(fds[--admitted]);
    gp_status status = GP_EBUSY;

    for (int64_t deadline = gp_now_ms() + TIMEOUT_MS; status == GP_EBUSY && gp_now_ms() < deadline;)
        status = gp_control_socket_connect(&fd, &reply, path, &client_hello, TIMEOUT_MS, &err);
    CHECK_STATUS(GP_OK, status);
    if (status == GP_OK)
        close(fd);
    kill(daemon, SIGKILL);
    CHECK_INT(-SIGKILL, exit_of(daemon));
}

/* ---- passing descriptors ---- */

static int memfd_with(const char *text)
{
    int fd = memfd_create("test", MFD_CLOEXEC);

    CHECK_INT(strlen(text), write(fd, text, strlen(text)));
    return fd;
}

static void memfd_check(int fd, const char *text)
{
    char seen[64] = "";

    CHECK(fd >= 0);
    CHECK_INT(strlen(text), pread(fd, seen, sizeof(seen) - 1, 0));
    CHECK_TEXT(text, seen);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
}

TEST(requests_carry_descriptors_in_both_directions)
{
    gp_control_socket_request request = { .what = 3,
                                          .lease = 5,
                                          .generation = 2,
                                          .rank = 1,
                                          .token = "fedcba9876543210" },
                              got;
    gp_error err;
    int client, fd = -1, sent = memfd_with("arena"), before;

    REQUIRE(server_open(8));
    gp_control_socket_event event = greeting(&client);

    gp_control_socket_admit(server, event.id, EPOCH);
    reply_read(client);
    before = descriptors_of(getpid());
    REQUIRE_OK(gp_control_socket_send_fd(client, &request, sent, &err), err);
    event = event_wait();
    CHECK_INT(GP_CONTROL_SOCKET_REQUEST, event.kind);
    CHECK_INT(3, event.request.what);
    CHECK_INT(5, event.request.lease);
    CHECK_INT(1, event.request.rank);
    CHECK(memcmp(event.request.token, request.token, 16) == 0);
    memfd_check(event.fd, "arena");
    REQUIRE_OK(
        gp_control_socket_send_fd(gp_control_socket_peer_fd(server, event.id), &request, event.fd, &err),
        err);
    close(event.fd);
    REQUIRE_OK(gp_control_socket_receive_fd(client, &got, &fd, TIMEOUT_MS, &err), err);
    memfd_check(fd, "arena");
    close(fd);

    /* Send a request without a descriptor. */
    REQUIRE_OK(gp_control_socket_send_fd(client, &request, -1, &err), err);
    event = event_wait();
    CHECK_INT(GP_CONTROL_SOCKET_REQUEST, event.kind);
    CHECK_INT(-1, event.fd);
    CHECK_STATUS(GP_ETIMEDOUT, gp_control_socket_receive_fd(client, &got, &fd, 10, &err));
    REQUIRE_OK(gp_control_socket_send_fd(gp_control_socket_peer_fd(server, event.id), &request, sent, &err),
               err);

    /* Receive a request with fd NULL: the descriptor that it carries is closed. */
    REQUIRE_OK(gp_control_socket_receive_fd(client, &got, NULL, TIMEOUT_MS, &err), err);
    CHECK_INT(before, descriptors_of(getpid()));
    server_close();
    CHECK_STATUS(GP_EPEER, gp_control_socket_receive_fd(client, &got, &fd, TIMEOUT_MS, &err));
    CHECK_STATUS(GP_EPEER, gp_control_socket_send_fd(client, &request, sent, &err));
    close(sent);
    close(client);
}

TEST(malformed_request_closes_the_connection_and_extra_descriptors_are_closed)
{
    REQUIRE(server_open(8));

    /* many 0: truncated request with two descriptors; 1: valid request with two descriptors */
    for (int many = 0; many < 2; many++) {
        int client, fds[2] = { memfd_with("a"), memfd_with("b") };
        gp_control_socket_event event = greeting(&client);
        gp_control_socket_request request = { .magic = GP_CONTROL_SOCKET_MAGIC };
        struct iovec bytes = { &request, many ? sizeof(request) : 7 };
        union {
            struct cmsghdr head;
            char room[CMSG_SPACE(sizeof(fds))];
        } control = { .room = { 0 } };
        struct msghdr message = { .msg_iov = &bytes,
                                  .msg_iovlen = 1,
                                  .msg_control = &control,
                                  .msg_controllen = sizeof(control.room) };
        int before = descriptors_of(getpid());

        gp_control_socket_admit(server, event.id, EPOCH);
        reply_read(client);
        control.head.cmsg_len = CMSG_LEN(sizeof(fds));
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        memcpy(CMSG_DATA(&control.head), fds, sizeof(fds));
        CHECK(sendmsg(client, &message, MSG_NOSIGNAL) > 0);
        event = event_wait();
        if (many) { /* valid request with two descriptors: both are closed */
            CHECK_INT(GP_CONTROL_SOCKET_REQUEST, event.kind);
            CHECK_INT(-1, event.fd);
            CHECK_INT(before, descriptors_of(getpid()));
            gp_control_socket_drop(server, event.id);
        } else {
            CHECK_INT(GP_CONTROL_SOCKET_GONE, event.kind);
            CHECK_INT(before - 1, descriptors_of(getpid()));
        }
        CHECK(gp_control_socket_gone(client));
        close(client);
        close(fds[0]);
        close(fds[1]);
    }
    CHECK_INT(1, gp_control_socket_get_stats(server).refused);
}

/* ---- other users ---- */

/* Start a child process that connects as user `uid`, and return the pid of the child. The child
 * exits with the status in the reply; 97: connect() failed; 98: setuid() failed; 99: no reply. */
static int connect_as(uid_t uid, const char *path)
{
    pid_t child = fork();

    if (child == 0) {
        gp_control_socket_reply reply = { .status = 99 };

        if (setuid(uid) != 0)
            _exit(98);
        int fd = bare_connect(path);

        if (fd < 0)
            _exit(97);
        recv(fd, &reply, sizeof(reply), 0);
        _exit((int)reply.status);
    }
    return child;
}

TEST(other_users_are_refused_as_clients_and_as_daemons)
{
    gp_control_socket_event event;

    if (geteuid() != 0)
        SKIP("needs root to run as another user");
    REQUIRE(server_open(8));
    struct stat seen;

    CHECK_INT(0, stat(server_path, &seen));
    CHECK_INT(0600, seen.st_mode & 07777);
    chmod(scratch_dir, 0755);
    CHECK_INT(97, exit_of(connect_as(65534, server_path)));
    chmod(server_path, 0777);
    pid_t child = connect_as(65534, server_path);

    for (int64_t deadline = gp_now_ms() + TIMEOUT_MS;
         gp_control_socket_get_stats(server).refused == 0 && gp_now_ms() < deadline; usleep(1000)) {
        gp_control_socket_next(server, &event);
        CHECK_INT(GP_CONTROL_SOCKET_NOTHING, event.kind);
    }
    CHECK_INT(GP_EPERM, exit_of(child));
    child = fork();
    if (child == 0) { /* user 65534 must not trust a daemon of root either */
        gp_control_socket_reply reply;
        int fd;

        _exit(setuid(65534) != 0 ? 98
                                 : (int)gp_control_socket_connect(&fd, &reply, server_path, &client_hello,
                                                                  TIMEOUT_MS, NULL));
    }
    CHECK_INT(GP_EPERM, exit_of(child));
    chmod(scratch_dir, 0700);
}

TEST(connect_distinguishes_no_listener_from_no_reply)
{
    gp_control_socket_reply reply;
    gp_error err;
    const char *path = scratch_path("d");
    int fd = -1;

    CHECK_STATUS(GP_ENOPOOL, gp_control_socket_connect(&fd, &reply, path, &client_hello, 100, &err));
    CHECK_CONTAINS(err.message, "gradpool up");
    REQUIRE(server_open(8));
    CHECK_STATUS(GP_ETIMEDOUT, gp_control_socket_connect(&fd, &reply, path, &client_hello, 50, &err));
    CHECK_INT(-1, fd);
    server_close();
    CHECK_STATUS(GP_ENOPOOL, gp_control_socket_connect(&fd, &reply, path, &client_hello, 100, &err));
    char longer[140];

    memset(longer, 'x', sizeof(longer));
    longer[0] = '/';
    longer[139] = '\0';
    CHECK_STATUS(GP_ELIMIT, gp_control_socket_connect(&fd, &reply, longer, &client_hello, 100, &err));
    CHECK_STATUS(GP_EINVAL, gp_control_socket_open(&server, path, 0, &err));
}

/* Return the number of files in the scratch directory whose names begin with `with`. */
static int names_that_begin(const char *with)
{
    DIR *folder = opendir(scratch_dir);
    int count = 0;

    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;)
        count += strncmp(entry->d_name, with, strlen(with)) == 0;
    if (folder != NULL)
        closedir(folder);
    return count;
}

TEST(listener_forget_removes_files_of_a_process_killed_during_open)
{
    const char *path = scratch_path("killed");
    int half_open = 0;

    for (int round = 0; round < 100; round++) {
        pid_t child = fork();

        if (child == 0)
            for (gp_control_socket *control_socket;;)
                if (gp_control_socket_open(&control_socket, path, 4, NULL) == GP_OK)
                    gp_control_socket_close(control_socket);
        gp_sleep_ms(round % 4);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        half_open += names_that_begin("killed.");
        gp_listener_forget(path, child);
        CHECK_INT(0, names_that_begin("killed"));
    }
    printf("     %d of 100 processes were killed before the socket was renamed\n", half_open);
}

TEST(open_survives_allocation_failures_without_leaks)
{
    gp_control_socket *control_socket = NULL;
    const char *path = scratch_path("d");
    int before = descriptors_of(getpid());

    CHECK_EVERY_ALLOCATION(gp_control_socket_open(&control_socket, path, 4, NULL),
                           gp_control_socket_close(control_socket));
    CHECK_INT(before, descriptors_of(getpid()));
}

/* ---- fake daemons ---- */

/* Connect to a fake daemon and return the status of gp_control_socket_connect().
 *   bytes  reply of the fake daemon; NULL: it closes the connection without a reply */
static gp_status answered_with(const void *bytes, size_t count, gp_error *err)
{
    const char *path = scratch_path("fake");
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), fd = -1;
    gp_control_socket_reply reply;

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    unlink(path);
    CHECK_INT(0, bind(listener, (struct sockaddr *)&address, sizeof(address)));
    CHECK_INT(0, listen(listener, 1));
    pid_t child = fork();

    if (child == 0) {
        char hello[64];
        int peer = accept(listener, NULL, NULL);

        recv(peer, hello, sizeof(hello), 0);
        if (bytes != NULL)
            send(peer, bytes, count, MSG_NOSIGNAL);
        _exit(0);
    }
    close(listener);
    gp_status status = gp_control_socket_connect(&fd, &reply, path, &client_hello, TIMEOUT_MS, err);

    CHECK_INT(0, exit_of(child));
    CHECK_INT(-1, fd);
    return status;
}

TEST(client_rejects_malformed_replies)
{
    gp_control_socket_reply reply = { .magic = GP_CONTROL_SOCKET_MAGIC, .status = GP_EBUSY, .text = "later" };
    gp_error err;

    CHECK_STATUS(GP_EBUSY, answered_with(&reply, sizeof(reply), &err));
    CHECK_TEXT("later", err.message);
    CHECK_STATUS(GP_EPEER, answered_with(NULL, 0, &err));
    CHECK_CONTAINS(err.message, "closed the connection");
    CHECK_STATUS(GP_EPROTO, answered_with(&reply, 100, &err));
    reply.status = 4711;
    CHECK_STATUS(GP_EPROTO, answered_with(&reply, sizeof(reply), &err));
    reply.status = GP_EBUSY;
    memset(reply.text, 'x', sizeof(reply.text)); /* text without a terminating NUL */
    CHECK_STATUS(GP_EPROTO, answered_with(&reply, sizeof(reply), &err));
    reply.magic = 0;
    CHECK_STATUS(GP_EPROTO, answered_with(&reply, sizeof(reply), &err));
    CHECK_CONTAINS(err.message, "not a gradpool daemon");
}

TEST(each_connection_has_a_separate_hello_deadline)
{
    gp_control_socket_event event;
    int64_t second_came_ms = 0, second_ms = 0;
    bool first_gone = false;

    REQUIRE(server_open(8));
    int first = bare_connect(server_path), second = -1;
    int64_t began = gp_now_ms();

    while ((!first_gone || second_ms == 0) && gp_now_ms() < began + TIMEOUT_MS) {
        poll(&(struct pollfd){ .fd = gp_control_socket_fd(server), .events = POLLIN }, 1, 50);
        gp_control_socket_next(server, &event);
        if (second < 0 && gp_now_ms() > began + 500) {
            second_came_ms = gp_now_ms();
            second = bare_connect(server_path);
        }
        first_gone = first_gone || gp_control_socket_gone(first);
        if (second >= 0 && second_ms == 0 && gp_control_socket_gone(second))
            second_ms = gp_now_ms();
    }
    CHECK(first_gone);

    /* The timeout of the second client began with its own connection. */
    CHECK(second_ms - second_came_ms >= GP_CONTROL_SOCKET_SILENCE_MS - 50);
    CHECK_INT(2, gp_control_socket_get_stats(server).refused);
    close(first);
    close(second);
}

TEST(sending_to_a_stalled_peer_fails_with_busy)
{
    gp_control_socket_request request = { .what = 1 };
    gp_error err;
    int client;

    REQUIRE(server_open(8));
    gp_control_socket_event event = greeting(&client);
    gp_status status = GP_OK;

    gp_control_socket_admit(server, event.id, EPOCH);
    for (int i = 0; i < 1000000 && status == GP_OK; i++)
        status = gp_control_socket_send_fd(gp_control_socket_peer_fd(server, event.id), &request, -1, &err);
    CHECK_STATUS(GP_EBUSY, status);
    close(client);
    CHECK_INT(GP_CONTROL_SOCKET_GONE, event_wait().kind);
}
