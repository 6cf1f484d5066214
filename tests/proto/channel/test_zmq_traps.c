/* Pitfalls of stock ZeroMQ with local sockets and descriptors, and proof that channels
 * avoid them. test_connection_guard.c covers keys and other hosts. Code that may abort
 * or hang runs in a child process. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <zmq.h>

#include "common/base/clock.h"
#include "proto/channel/channel.h"
#include "proto/message/messages.h"
#include "tests/gp_test.h"
#include "tests/proto/scratch.h"

enum { FEW_DESCRIPTORS = 64, FLOOD = 200 };

static const gp_channel_options plain = { .security = GP_SECURITY_NONE };

static mode_t mode_of(const char *path)
{
    struct stat seen;

    return lstat(path, &seen) == 0 ? seen.st_mode & 0777 : 0;
}

TEST(naive_bind_steals_a_live_socket_and_uses_the_umask)
{
    char endpoint[600], word[20] = "";
    const char *path = scratch_path("naive");
    mode_t before = umask(022);
    void *context = zmq_ctx_new(), *first = zmq_socket(context, ZMQ_PULL),
         *thief = zmq_socket(context, ZMQ_PULL), *client = zmq_socket(context, ZMQ_PUSH);
    int timeout = 60000, none = 0;

    snprintf(endpoint, sizeof(endpoint), "ipc://%s", path);
    zmq_setsockopt(thief, ZMQ_RCVTIMEO, &timeout, sizeof(timeout));
    CHECK_INT(0, zmq_bind(first, endpoint));
    CHECK((mode_of(path) & 055) != 0);       /* other users may connect */
    CHECK_INT(0, zmq_bind(thief, endpoint)); /* no error, but the live socket has lost the name */
    CHECK_INT(0, zmq_connect(client, endpoint));
    zmq_send(client, "secret", 6, 0);
    CHECK_INT(6, zmq_recv(thief, word, sizeof(word), 0));
    zmq_setsockopt(client, ZMQ_LINGER, &none, sizeof(none));
    zmq_close(first);
    zmq_close(thief);
    zmq_close(client);
    zmq_ctx_term(context);
    unlink(path);

    /* A channel creates the file with mode 0600 for any umask; a lock decides which process may
     * bind (scheduler/shell/pool_lock.h). */
    gp_channel *channel = NULL;
    gp_error err;

    umask(0);
    REQUIRE_OK(gp_channel_bind(&channel, scratch_path("ours"), &plain, &err), err);
    umask(before);
    CHECK_INT(0600, mode_of(scratch_path("ours")));
    gp_channel_close(channel, 0);
}

TEST(naive_router_silently_drops_messages)
{
    void *context = zmq_ctx_new(), *router = zmq_socket(context, ZMQ_ROUTER);
    gp_channel *channel = NULL;
    gp_peer stranger = { .bytes = 5, .id = "nobdy" };
    gp_error err;

    CHECK_INT(5, zmq_send(router, "nobdy", 5, ZMQ_SNDMORE));
    CHECK_INT(5, zmq_send(router, "grant", 5, 0)); /* succeeds without a receiver */
    zmq_close(router);
    zmq_ctx_term(context);
    REQUIRE_OK(gp_channel_bind(&channel, scratch_path("mandatory"), &plain, &err), err);
    CHECK_STATUS(GP_EPEER, gp_channel_send(channel, &stranger, &(gp_envelope){ 0 }, &gp_msg_quit,
                                           &(gp_quit){ 0 }, NULL, 0, &err));
    gp_channel_close(channel, 0);
}

/* Wait up to `ms` for a child. Return its signal, 0: it exited, -1: it was still running and has
 * been killed. */
static int ended_by(pid_t child, int ms)
{
    int64_t until = gp_now_ms() + ms;
    int state;

    while (gp_now_ms() < until) {
        if (waitpid(child, &state, WNOHANG) == child)
            return WIFSIGNALED(state) ? WTERMSIG(state) : 0;
        usleep(5000);
    }
    kill(child, SIGKILL);
    waitpid(child, &state, 0);
    return -1;
}

TEST(naive_context_termination_hangs_on_an_unsent_message)
{
    fflush(stdout);
    pid_t naive = fork();

    if (naive == 0) {
        void *context = zmq_ctx_new(), *dealer = zmq_socket(context, ZMQ_DEALER);

        zmq_connect(dealer, "ipc:///tmp/gradpool-nobody-is-here");
        zmq_send(dealer, "x", 1, 0);
        zmq_close(dealer);
        zmq_ctx_term(context);
        _exit(0);
    }
    CHECK_INT(-1, ended_by(naive, 700));
    fflush(stdout);
    pid_t ours = fork();

    if (ours == 0) {
        gp_channel *channel = NULL;

        if (gp_channel_connect(&channel, "ipc:///tmp/gradpool-nobody-is-here", &plain, 0, NULL) != GP_OK)
            _exit(1);
        gp_channel_send(channel, NULL, &(gp_envelope){ 0 }, &gp_msg_quit, &(gp_quit){ 0 }, NULL, 0, NULL);
        gp_channel_close(channel, 0);
        _exit(0);
    }
    CHECK_INT(0, ended_by(ours, 60000));
}

/* ---- descriptors ---- */

static void few_descriptors(void)
{
    struct rlimit limit = { FEW_DESCRIPTORS, FEW_DESCRIPTORS };

    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        _exit(97);
}

/* Open FLOOD connections and keep them open. */
static void flood(int family, const struct sockaddr *address, socklen_t bytes, int fds[FLOOD])
{
    for (int i = 0; i < FLOOD; i++) {
        fds[i] = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)!connect(fds[i], address, bytes);
        usleep(500);
    }
}

static void flood_end(int fds[FLOOD])
{
    for (int i = 0; i < FLOOD; i++)
        close(fds[i]);
}

TEST(naive_ipc_listener_aborts_without_descriptors)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    const char *path = scratch_path("abort");
    char endpoint[600];
    int fds[FLOOD];

    snprintf(endpoint, sizeof(endpoint), "ipc://%s", path);
    snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path);
    fflush(stdout);
    pid_t naive = fork();

    if (naive == 0) {
        struct rlimit no_core = { 0, 0 };
        int null = open("/dev/null", O_WRONLY);

        setrlimit(RLIMIT_CORE, &no_core);
        dup2(null, STDERR_FILENO);
        few_descriptors();
        void *context = zmq_ctx_new(), *router = zmq_socket(context, ZMQ_ROUTER);

        zmq_bind(router, endpoint);
        pause();
        _exit(0);
    }
    for (int i = 0; i < 12000 && access(path, F_OK) != 0; i++)
        usleep(5000);
    flood(AF_UNIX, (struct sockaddr *)&address, sizeof(address), fds);
    CHECK_INT(SIGABRT, ended_by(naive, 60000));
    flood_end(fds);
}

/* Run a TCP listener with few descriptors. It must drop the flood and then serve a client. */
static void serve_with_few_descriptors(int reported)
{
    static gp_allow_list list;
    gp_key_pair key, alice;
    gp_zap *zap = NULL;
    gp_channel *server = NULL;
    char bound[GP_TEXT_ENDPOINT];
    gp_incoming in;

    few_descriptors();
    if (gp_key_new(&key, NULL) != GP_OK || gp_key_new(&alice, NULL) != GP_OK ||
        gp_allow_add(&list, GP_KEY_CLIENT, "alice", alice.public_key, NULL) != GP_OK ||
        gp_allow_write(scratch_path("list"), &list, NULL) != GP_OK ||
        gp_zap_open(&zap, scratch_path("list"), NULL) != GP_OK)
        _exit(2);
    gp_link_keys keys = { .own = &key, .zap = zap };

    if (gp_channel_listen(&server, "tcp://127.0.0.1:0",
                          &(gp_channel_options){ .security = GP_SECURITY_CURVE, .curve = &keys }, bound,
                          NULL) != GP_OK)
        _exit(3);
    int port = atoi(strrchr(bound, ':') + 1);

    if (write(reported, &port, sizeof(port)) != sizeof(port))
        _exit(4);

    /* Silent connections are closed after 2 s. When all connections of the flood are gone, connect
     * with a valid key. */
    for (int64_t until = gp_now_ms() + 60000; gp_now_ms() < until; usleep(2000)) {
        gp_channel_watch(server);
        if (gp_channel_get_guard_stats(server).accepted >= 40 &&
            gp_channel_get_guard_stats(server).links == 0)
            break;
    }
    gp_link_keys hers = { .own = &alice, .server_key = key.public_key };
    gp_channel *client = NULL;

    if (gp_channel_connect(&client, bound,
                           &(gp_channel_options){ .security = GP_SECURITY_CURVE, .curve = &hers }, 60000,
                           NULL) != GP_OK)
        _exit(5);
    while (gp_channel_send(client, NULL, &(gp_envelope){ 0 }, &gp_msg_status_get, &(gp_status_get){ 0 }, NULL,
                           0, NULL) != GP_OK)
        usleep(1000);
    for (int64_t until = gp_now_ms() + 60000; gp_now_ms() < until; usleep(2000)) {
        if (gp_channel_receive(server, &in, NULL) == GP_OK)
            _exit(strcmp(in.owner.name, "alice") == 0 ? 0 : 6);
        gp_channel_watch(server);
    }
    _exit(7);
}

TEST(tcp_listener_survives_a_connection_flood)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fds[FLOOD], reported[2], port = 0, state = -1;

    if (pipe(reported) != 0)
        abort();
    fflush(stdout);
    pid_t server = fork();

    if (server == 0)
        serve_with_few_descriptors(reported[1]);
    close(reported[1]);
    CHECK(read(reported[0], &port, sizeof(port)) == sizeof(port));
    close(reported[0]);
    address.sin_port = htons((uint16_t)port);
    flood(AF_INET, (struct sockaddr *)&address, sizeof(address), fds);
    usleep(500000);
    flood_end(fds);
    CHECK(waitpid(server, &state, 0) == server);
    CHECK(WIFEXITED(state));
    CHECK_INT(0, WIFEXITED(state) ? WEXITSTATUS(state) : -WTERMSIG(state));
    unlink(scratch_path("list"));
}
