/* TCP listener under attack. Each test covers a pitfall of ZeroMQ. Where a few lines suffice, a
 * naive server shows the problem first. The attackers are stock libzmq sockets and plain TCP
 * connections. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <zmq.h>

#include "common/base/clock.h"
#include "proto/channel/channel.h"
#include "proto/channel/endpoint.h"
#include "proto/message/messages.h"
#include "tests/descriptors.h"
#include "tests/gp_test.h"
#include "tests/proto/scratch.h"

enum { TIMEOUT_MS = 300000, ENFORCE_DOMAIN = 93 };

/* ---- server under test ---- */

typedef struct stage {
    gp_zap *zap;
    gp_channel *server;
    gp_key_pair key, alice, bob;
    char endpoint[GP_TEXT_ENDPOINT];
    int port;
    uint64_t heard; /* messages received */
    gp_allowed from;
    gp_peer peer;
} stage;

static gp_key_pair fresh(void)
{
    gp_key_pair pair = { .public_key = "" };

    if (gp_key_new(&pair, NULL) != GP_OK)
        GP_TEST_FAIL("no key");
    return pair;
}

static const char *list_path(void)
{
    return scratch_path("allowed");
}

static void allow(const stage *s, bool alice, bool bob)
{
    static gp_allow_list list;
    gp_error err = { .message = "" };

    list.count = 0;
    if ((alice && gp_allow_add(&list, GP_KEY_CLIENT, "alice", s->alice.public_key, &err) != GP_OK) ||
        (bob && gp_allow_add(&list, GP_KEY_OBSERVER, "bob", s->bob.public_key, &err) != GP_OK) ||
        gp_allow_write(list_path(), &list, &err) != GP_OK)
        GP_TEST_FAIL("no list: %s", err.message);
}

static bool stage_open(stage *s)
{
    gp_error err = { .message = "" };

    *s = (stage){ .key = fresh(), .alice = fresh(), .bob = fresh() };
    allow(s, true, true);
    gp_link_keys curve = { .own = &s->key };

    if (gp_zap_open(&s->zap, list_path(), &err) == GP_OK) {
        curve.zap = s->zap;
        gp_channel_listen(&s->server, "tcp://127.0.0.1:0",
                          &(gp_channel_options){ .security = GP_SECURITY_CURVE, .curve = &curve },
                          s->endpoint, &err);
    }
    if (s->server == NULL)
        GP_TEST_FAIL("no server: %s", err.message);
    else
        s->port = atoi(strrchr(s->endpoint, ':') + 1);
    return s->server != NULL;
}

static void stage_close(stage *s)
{
    gp_channel_close(s->server, 0);
    gp_zap_close(s->zap);
    unlink(list_path());
    memset(s, 0, sizeof(*s));
}

/* Run one iteration of a daemon's event loop. */
static void pump(stage *s)
{
    gp_incoming in;

    while (gp_channel_receive(s->server, &in, NULL) == GP_OK) {
        s->heard++;
        s->from = in.owner;
        s->peer = in.peer;
        gp_incoming_close(&in);
    }
    gp_channel_watch(s->server);
}

/* Run the event loop until the condition holds or `ms` have passed. */
#define PUMP_UNTIL(s, ms, condition)                                                                         \
    for (int64_t until_ = gp_now_ms() + (ms); !(condition) && gp_now_ms() < until_; usleep(2000))            \
    pump(s)

static gp_status dial(gp_channel **out, const stage *s, const gp_key_pair *own, const char *server_key,
                      gp_error *err)
{
    gp_link_keys curve = { .own = own, .server_key = server_key };

    return gp_channel_connect(out, s->endpoint,
                              &(gp_channel_options){ .security = GP_SECURITY_CURVE, .curve = &curve },
                              TIMEOUT_MS, err);
}

static gp_status say(gp_channel *channel)
{
    return gp_channel_send(channel, NULL, &(gp_envelope){ .correlation = 1 }, &gp_msg_status_get,
                           &(gp_status_get){ 0 }, NULL, 0, NULL);
}

static bool say_wait(gp_channel *channel)
{
    int64_t until = gp_now_ms() + TIMEOUT_MS;
    gp_status status;

    while ((status = say(channel)) == GP_EBUSY && gp_now_ms() < until)
        usleep(2000);
    return status == GP_OK;
}

/* Check that a well-behaved client gets through. */
static void check_served(stage *s, const gp_key_pair *own, const char *name)
{
    gp_channel *client = NULL;
    gp_error err = { .message = "" };
    uint64_t before = s->heard;

    if (dial(&client, s, own, s->key.public_key, &err) != GP_OK || !say_wait(client)) {
        GP_TEST_FAIL("%s is not served: %s", name, err.message);
        gp_channel_close(client, 0);
        return;
    }
    s->from.name[0] = '\0';
    PUMP_UNTIL(s, TIMEOUT_MS, s->heard > before && strcmp(s->from.name, name) == 0);
    CHECK_TEXT(name, s->from.name);
    gp_channel_close(client, 0);
}

/* Check that the attacker, which reconnects, is refused, and that other clients are served. */
static void check_muted(stage *s)
{
    PUMP_UNTIL(s, TIMEOUT_MS, gp_zap_get_stats(s->zap).muted > 0);
    CHECK(gp_zap_get_stats(s->zap).muted > 0);
    check_served(s, &s->alice, "alice");
}

/* ---- stock ZeroMQ sockets ---- */

/* A ZeroMQ socket with a private context. */
typedef struct raw {
    void *context, *socket;
} raw;

static void set_int(void *socket, int option, int value)
{
    if (zmq_setsockopt(socket, option, &value, sizeof(value)) != 0)
        GP_TEST_FAIL("option %d: %s", option, zmq_strerror(errno));
}

static void set_text(void *socket, int option, const char *text)
{
    if (zmq_setsockopt(socket, option, text, strlen(text)) != 0)
        GP_TEST_FAIL("option %d: %s", option, zmq_strerror(errno));
}

static raw raw_open(int type)
{
    raw made = { .context = zmq_ctx_new() };

    made.socket = zmq_socket(made.context, type);
    set_int(made.socket, ZMQ_LINGER, 0);
    set_int(made.socket, ZMQ_RCVTIMEO, 300);
    return made;
}

static void raw_close(raw *r)
{
    zmq_close(r->socket);
    zmq_ctx_term(r->context);
}

/* Connect a stock socket to the server. own NULL: without CURVE. */
static raw raw_dial(const stage *s, const gp_key_pair *own, const char *routing_id)
{
    raw made = raw_open(ZMQ_DEALER);

    if (own != NULL) {
        set_text(made.socket, ZMQ_CURVE_SECRETKEY, own->secret_key);
        set_text(made.socket, ZMQ_CURVE_PUBLICKEY, own->public_key);
        set_text(made.socket, ZMQ_CURVE_SERVERKEY, s->key.public_key);
    }
    if (routing_id != NULL)
        set_text(made.socket, ZMQ_ROUTING_ID, routing_id);
    set_int(made.socket, ZMQ_SNDHWM, 0);
    if (zmq_connect(made.socket, s->endpoint) != 0)
        GP_TEST_FAIL("cannot connect: %s", zmq_strerror(errno));
    return made;
}

/* Send a well-formed message through a stock socket. */
static void raw_say(void *socket)
{
    gp_buffer envelope, body;
    gp_envelope head = { .message = GP_ID(status_get), .correlation = 1 };

    gp_buffer_init(&envelope, GP_ENVELOPE_BYTES_MAX);
    gp_buffer_init(&body, GP_BODY_BYTES_MAX);
    gp_envelope_encode(&envelope, &head, NULL);
    gp_message_encode(&body, &gp_msg_status_get, &(gp_status_get){ 0 }, NULL);
    zmq_send(socket, envelope.data, envelope.bytes, ZMQ_SNDMORE);
    zmq_send(socket, body.data, body.bytes, 0);
    gp_buffer_deinit(&envelope);
    gp_buffer_deinit(&body);
}

/* Open a CURVE server without a key list, as in the first example of the manual. */
static raw naive_server(const gp_key_pair *key, char endpoint[100])
{
    raw made = raw_open(ZMQ_ROUTER);
    size_t bytes = 100;

    set_int(made.socket, ZMQ_CURVE_SERVER, 1);
    set_text(made.socket, ZMQ_CURVE_SECRETKEY, key->secret_key);
    if (zmq_bind(made.socket, "tcp://127.0.0.1:*") != 0 ||
        zmq_getsockopt(made.socket, ZMQ_LAST_ENDPOINT, endpoint, &bytes) != 0)
        GP_TEST_FAIL("no naive server: %s", zmq_strerror(errno));
    return made;
}

static int plain_connect(int port)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        GP_TEST_FAIL("cannot connect to port %d: %s", port, strerror(errno));
    return fd;
}

/* Return whether the peer closed the connection; discard all data received before. */
static bool hung_up(int fd)
{
    char bytes[4096];
    ssize_t got;

    while ((got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
        ;
    return got == 0 || (got < 0 && errno != EAGAIN);
}

static const uint8_t greeting[64] = { 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0, 'C', 'U', 'R', 'V', 'E' };

static stage s; /* stage of the running test */

TEARDOWN()
{
    stage_close(&s);
}

/* ---- keys ---- */

TEST(curve_alone_admits_any_key_and_the_key_list_refuses_it)
{
    gp_channel *client = NULL;
    gp_key_pair naive = fresh(), stranger = fresh();
    char endpoint[100], word[20] = "";
    gp_error err;
    raw server = naive_server(&naive, endpoint), guest = raw_open(ZMQ_DEALER);

    set_text(guest.socket, ZMQ_CURVE_SECRETKEY, stranger.secret_key);
    set_text(guest.socket, ZMQ_CURVE_PUBLICKEY, stranger.public_key);
    set_text(guest.socket, ZMQ_CURVE_SERVERKEY, naive.public_key);
    zmq_connect(guest.socket, endpoint);
    zmq_send(guest.socket, "hello", 5, 0);
    set_int(server.socket, ZMQ_RCVTIMEO, TIMEOUT_MS);
    zmq_recv(server.socket, word, sizeof(word), 0);

    /* the pitfall: an unknown key is admitted */
    CHECK_INT(5, zmq_recv(server.socket, word, sizeof(word), 0));
    raw_close(&guest);
    raw_close(&server);

    REQUIRE(stage_open(&s));

    /* the self-test of the listener is not counted */
    CHECK_INT(0, gp_zap_get_stats(s.zap).refused);
    CHECK_STATUS(GP_EPERM, dial(&client, &s, &stranger, s.key.public_key, &err));
    CHECK_CONTAINS(err.message, "not in the pool's list");
    CHECK(client == NULL);
    CHECK(gp_zap_get_stats(s.zap).refused >= 1);
    pump(&s);
    CHECK_INT(0, s.heard);
    check_served(&s, &s.alice, "alice");
}

TEST(enforced_zap_domain_without_a_list_refuses_all_keys)
{
    gp_key_pair naive = fresh(), stranger = fresh();
    char endpoint[100], word[20];
    raw server = raw_open(ZMQ_ROUTER), guest = raw_open(ZMQ_DEALER);
    size_t bytes = sizeof(endpoint);

    set_int(server.socket, ZMQ_CURVE_SERVER, 1);
    set_text(server.socket, ZMQ_CURVE_SECRETKEY, naive.secret_key);
    set_text(server.socket, ZMQ_ZAP_DOMAIN, "gradpool");
    set_int(server.socket, ENFORCE_DOMAIN,
            1); /* draft option in zmq.h; this test proves that the library implements it */
    zmq_bind(server.socket, "tcp://127.0.0.1:*");
    zmq_getsockopt(server.socket, ZMQ_LAST_ENDPOINT, endpoint, &bytes);
    set_text(guest.socket, ZMQ_CURVE_SECRETKEY, stranger.secret_key);
    set_text(guest.socket, ZMQ_CURVE_PUBLICKEY, stranger.public_key);
    set_text(guest.socket, ZMQ_CURVE_SERVERKEY, naive.public_key);
    zmq_connect(guest.socket, endpoint);
    zmq_send(guest.socket, "hello", 5, 0);
    CHECK_INT(-1, zmq_recv(server.socket, word, sizeof(word), 0));
    raw_close(&guest);
    raw_close(&server);
}

TEST(tcp_requires_keys_on_both_sides)
{
    gp_key_pair pair = fresh();
    gp_link_keys no_list = { .own = &pair }, no_server = { .own = &pair };
    gp_channel *channel = NULL;
    char bound[GP_TEXT_ENDPOINT];
    gp_error err;

    CHECK_STATUS(GP_EPERM,
                 gp_channel_listen(&channel, "tcp://127.0.0.1:0",
                                   &(gp_channel_options){ .security = GP_SECURITY_NONE }, bound, &err));
    CHECK_CONTAINS(err.message, "CURVE");
    CHECK_STATUS(GP_EPERM,
                 gp_channel_listen(&channel, "tcp://127.0.0.1:0",
                                   &(gp_channel_options){ .security = GP_SECURITY_CURVE, .curve = &no_list },
                                   bound, &err));
    CHECK_CONTAINS(err.message, "list of authorized keys");
    CHECK_STATUS(GP_EPERM,
                 gp_channel_connect(&channel, "tcp://127.0.0.1:9",
                                    &(gp_channel_options){ .security = GP_SECURITY_NONE }, 100, &err));
    CHECK_STATUS(GP_EPERM,
                 gp_channel_connect(
                     &channel, "tcp://127.0.0.1:9",
                     &(gp_channel_options){ .security = GP_SECURITY_CURVE, .curve = &no_server }, 100, &err));
    CHECK(channel == NULL);
}

TEST(malformed_endpoints_are_refused)
{
    static const char *const good[] = { "tcp://127.0.0.1:5555", "tcp://[::1]:1",
                                        "tcp://gpu-box.example:65535" };
    static const char *const bad[] = { "tcp://",
                                       "tcp://:1",
                                       "tcp://h",
                                       "tcp://h:",
                                       "tcp://h:0",
                                       "tcp://h:65536",
                                       "tcp://h:1x",
                                       "tcp://h:-1",
                                       "tcp://*:1",
                                       "tcp://a b:1",
                                       "tcp://h:1;tcp://g:2",
                                       "tcp://::1:5",
                                       "udp://h:1",
                                       "tcp://h/../x:1",
                                       "tcp://[::1:5",
                                       "tcp://h:000001" };
    gp_error err;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        CHECK_STATUS(GP_OK, gp_endpoint_check(good[i], false, &err));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (gp_endpoint_check(bad[i], false, &err) != GP_EINVAL)
            GP_TEST_FAIL("%s is taken", bad[i]);
    CHECK_STATUS(GP_OK, gp_endpoint_check("tcp://*:5555", true, &err));
    CHECK_STATUS(GP_OK, gp_endpoint_check("tcp://127.0.0.1:0", true, &err));
}

TEST(client_detects_an_unexpected_server_key)
{
    gp_channel *client = NULL;
    gp_key_pair other = fresh();
    gp_error err;

    REQUIRE(stage_open(&s));
    CHECK_STATUS(GP_EPERM, dial(&client, &s, &s.alice, other.public_key, &err));
    CHECK_CONTAINS(err.message, "server-key-file");
    PUMP_UNTIL(&s, TIMEOUT_MS, gp_channel_get_guard_stats(s.server).failed > 0);
    CHECK(gp_channel_get_guard_stats(s.server).failed > 0);
    CHECK_INT(0, s.heard);
}

TEST(client_without_curve_is_refused)
{
    REQUIRE(stage_open(&s));
    raw guest = raw_dial(&s, NULL, NULL);

    raw_say(guest.socket);
    PUMP_UNTIL(&s, TIMEOUT_MS, gp_channel_get_guard_stats(s.server).failed > 0);
    CHECK(gp_channel_get_guard_stats(s.server).failed > 0);
    CHECK_INT(0, s.heard);
    raw_close(&guest);
}

TEST(sender_is_identified_by_key_not_by_routing_id)
{
    gp_key_pair naive = fresh();
    char endpoint[100], id[20] = "", word[20];
    raw server = naive_server(&naive, endpoint), first = raw_open(ZMQ_DEALER), second = raw_open(ZMQ_DEALER);
    raw both[] = { first, second };

    /* The pitfall: with ROUTER_HANDOVER an impostor becomes "w0", and a server that trusts the
     * routing id cannot detect that. */
    set_int(server.socket, ZMQ_ROUTER_HANDOVER, 1);
    set_int(server.socket, ZMQ_RCVTIMEO, TIMEOUT_MS);
    for (int i = 0; i < 2; i++) {
        gp_key_pair own = fresh();

        set_text(both[i].socket, ZMQ_ROUTING_ID, "w0");
        set_text(both[i].socket, ZMQ_CURVE_SECRETKEY, own.secret_key);
        set_text(both[i].socket, ZMQ_CURVE_PUBLICKEY, own.public_key);
        set_text(both[i].socket, ZMQ_CURVE_SERVERKEY, naive.public_key);
        zmq_connect(both[i].socket, endpoint);
        zmq_send(both[i].socket, "me", 2, 0);
        CHECK_INT(2, zmq_recv(server.socket, id, sizeof(id), 0));
        CHECK(memcmp(id, "w0", 2) == 0);
        CHECK_INT(2, zmq_recv(server.socket, word, sizeof(word), 0));
    }
    raw_close(&second);
    raw_close(&first);
    raw_close(&server);

    REQUIRE(stage_open(&s));
    raw impostor = raw_dial(&s, &s.bob, "alice");

    raw_say(impostor.socket);
    PUMP_UNTIL(&s, TIMEOUT_MS, s.heard > 0);
    CHECK_TEXT("bob", s.from.name);
    CHECK_INT(GP_KEY_OBSERVER, s.from.role);
    CHECK_TEXT(s.bob.public_key, s.from.key);
    raw_close(&impostor);
}

TEST(removed_key_is_disconnected_and_refused)
{
    gp_channel *alice = NULL, *again = NULL;
    gp_peer gone;
    gp_error err;

    REQUIRE(stage_open(&s));
    REQUIRE_OK(dial(&alice, &s, &s.alice, s.key.public_key, &err), err);
    CHECK(say_wait(alice));
    PUMP_UNTIL(&s, TIMEOUT_MS, s.heard == 1);
    gp_peer peer = s.peer;

    allow(&s, false, true); /* without restart or signal: the file was replaced */
    bool reported = false;

    PUMP_UNTIL(&s, TIMEOUT_MS, gp_channel_get_guard_stats(s.server).cut[GP_CUT_REVOKED] > 0);
    CHECK_INT(1, gp_channel_get_guard_stats(s.server).cut[GP_CUT_REVOKED]);
    for (int64_t until = gp_now_ms() + TIMEOUT_MS; !reported && gp_now_ms() < until; usleep(2000)) {
        pump(&s);
        while (gp_channel_next_gone(s.server, &gone))
            reported |= gp_peer_equal(&gone, &peer);
    }
    CHECK(reported);
    uint64_t heard = s.heard;

    say(alice);
    CHECK_STATUS(GP_EPERM, dial(&again, &s, &s.alice, s.key.public_key, &err));
    PUMP_UNTIL(&s, 200, false);
    CHECK_INT(heard, s.heard);
    check_served(&s, &s.bob, "bob");
    allow(&s, true, true);
    check_served(&s, &s.alice, "alice");
    gp_channel_close(alice, 0);
}

TEST(writable_key_list_admits_no_key)
{
    gp_channel *client = NULL;
    gp_error err;

    REQUIRE(stage_open(&s));
    chmod(list_path(), 0666);
    CHECK_STATUS(GP_EPERM, dial(&client, &s, &s.alice, s.key.public_key, &err));
    CHECK_CONTAINS(gp_zap_get_stats(s.zap).broken, "chmod 600");
    chmod(list_path(), 0600);
    check_served(&s, &s.alice, "alice");
    CHECK_TEXT("", gp_zap_get_stats(s.zap).broken);
}

TEST(listen_survives_allocation_failures_without_leaks)
{
    REQUIRE(stage_open(&s));
    gp_link_keys keys = { .own = &s.key };
    gp_channel_options link = { .security = GP_SECURITY_CURVE, .curve = &keys };
    gp_channel *second = NULL;
    gp_zap *zap = NULL;
    char bound[GP_TEXT_ENDPOINT];
    int before = descriptors_of(getpid());

    keys.zap = s.zap; /* the first listener keeps the context alive */
    CHECK_EVERY_ALLOCATION(gp_channel_listen(&second, "tcp://127.0.0.1:0", &link, bound, NULL),
                           gp_channel_close(second, 0));
    int after = descriptors_of(getpid());

    for (int64_t until = gp_now_ms() + TIMEOUT_MS; after > before && gp_now_ms() < until; usleep(5000)) {
        pump(&s);
        after = descriptors_of(getpid()); /* ZeroMQ closes them in the I/O thread */
    }

    /* the connection of the first self-test may have been closed meanwhile */
    CHECK(after <= before);
    stage_close(&s);
    CHECK_EVERY_ALLOCATION(gp_zap_open(&zap, list_path(), NULL), gp_zap_close(zap));
}

/* ---- size limits ---- */

TEST(oversized_frame_disconnects_only_its_sender)
{
    REQUIRE(stage_open(&s));
    size_t bytes = GP_REMOTE_FRAME_BYTES_MAX + 1024;
    char *frame = calloc(1, bytes);
    raw guest = raw_dial(&s, &s.bob, NULL);
    uint64_t accepted = gp_channel_get_guard_stats(s.server).accepted;

    zmq_send(guest.socket, frame, bytes, 0);
    free(frame);

    /* ZeroMQ drops the connection, and the client reconnects. */
    PUMP_UNTIL(&s, TIMEOUT_MS, gp_channel_get_guard_stats(s.server).accepted >= accepted + 2);
    CHECK(gp_channel_get_guard_stats(s.server).accepted >= accepted + 2);
    CHECK_INT(0, s.heard);
    check_served(&s, &s.alice, "alice");
    raw_close(&guest);
}

static long resident_kib(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long size = 0, resident = 0;

    if (file == NULL || fscanf(file, "%ld %ld", &size, &resident) != 2)
        resident = 0;
    if (file != NULL)
        fclose(file);
    return resident * 4;
}

/* Send 2048 frames of 64 KiB as one message. The server must not wait for the end. */
static void send_without_end(void *socket)
{
    static const char frame[64 << 10];

    for (int i = 0; i < 2048; i++)
        zmq_send(socket, frame, sizeof(frame), i < 2047 ? ZMQ_SNDMORE : 0);
}

TEST(endless_message_is_cut_off_and_its_key_muted)
{
    REQUIRE(stage_open(&s));
    raw guest = raw_dial(&s, &s.bob, NULL);

    raw_say(guest.socket); /* a valid message first, so that the server knows the connection */
    PUMP_UNTIL(&s, TIMEOUT_MS, s.heard == 1);
    send_without_end(guest.socket); /* 128 MiB, queued by the sender */
    long before = resident_kib(), most = 0;

    for (int64_t until = gp_now_ms() + TIMEOUT_MS;
         gp_channel_get_guard_stats(s.server).cut[GP_CUT_ENDLESS] == 0 && gp_now_ms() < until; usleep(2000)) {
        long now = resident_kib() - before;

        pump(&s);
        most = now > most ? now : most;
    }
    CHECK_INT(1, gp_channel_get_guard_stats(s.server).cut[GP_CUT_ENDLESS]);
    CHECK_INT(1, s.heard);
    if (most > 64 << 10)
        GP_TEST_FAIL("an endless message occupies %ld KiB", most);

    check_muted(&s);
    raw_close(&guest);
}

TEST(tenth_malformed_message_disconnects_the_sender)
{
    REQUIRE(stage_open(&s));
    raw guest = raw_dial(&s, &s.bob, NULL);

    for (int i = 0; i < 9; i++)
        zmq_send(guest.socket, "garbage", 7, 0);
    raw_say(guest.socket);
    PUMP_UNTIL(&s, TIMEOUT_MS, s.heard == 1);
    CHECK_INT(1, s.heard);
    CHECK_INT(9, gp_channel_get_stats(s.server).refused);
    CHECK_INT(0, gp_channel_get_guard_stats(s.server).cut[GP_CUT_MALFORMED]);
    zmq_send(guest.socket, "garbage", 7, 0);
    PUMP_UNTIL(&s, TIMEOUT_MS, gp_channel_get_guard_stats(s.server).cut[GP_CUT_MALFORMED] > 0);
    CHECK_INT(1, gp_channel_get_guard_stats(s.server).cut[GP_CUT_MALFORMED]);

    check_muted(&s);
    raw_close(&guest);
}

TEST(rate_limit_slows_a_key_and_then_disconnects_it)
{
    REQUIRE(stage_open(&s));
    raw guest = raw_dial(&s, &s.bob, NULL);

    for (int i = 0; i < 30000; i++)
        raw_say(guest.socket);
    PUMP_UNTIL(&s, TIMEOUT_MS, gp_channel_get_guard_stats(s.server).cut[GP_CUT_RATE] > 0);
    gp_connection_guard_stats stats = gp_channel_get_guard_stats(s.server);

    CHECK_INT(1, stats.cut[GP_CUT_RATE]);
    CHECK(stats.over_rate >= 1000);
    CHECK(s.heard >= 4000 && s.heard < 29000);
    check_served(&s, &s.alice, "alice");
    raw_close(&guest);
}

TEST(seventeenth_connection_of_a_key_is_refused)
{
    raw guests[17];

    REQUIRE(stage_open(&s));
    for (int i = 0; i < 17; i++) {
        guests[i] = raw_dial(&s, &s.bob, NULL);
        raw_say(guests[i].socket);
        if (i == 15) {
            PUMP_UNTIL(&s, TIMEOUT_MS, s.heard == 16);
            CHECK_INT(16, s.heard);
        }
    }
    PUMP_UNTIL(&s, TIMEOUT_MS, gp_channel_get_guard_stats(s.server).cut[GP_CUT_CROWDED] > 0);
    CHECK(gp_channel_get_guard_stats(s.server).cut[GP_CUT_CROWDED] > 0);
    CHECK_INT(16, s.heard);
    check_served(&s, &s.alice, "alice");
    for (int i = 0; i < 17; i++)
        raw_close(&guests[i]);
}

/* ---- timeouts ---- */

/* Three plain connections: silent, silent after the greeting, and one byte at a time. A fourth
 * client has a valid key and sends no message. */
TEST(connections_without_a_message_are_closed)
{
    int fds[3];
    size_t sent = 0;

    REQUIRE(stage_open(&s));
    raw guest = raw_dial(&s, &s.bob, NULL);

    for (int i = 0; i < 3; i++)
        fds[i] = plain_connect(s.port);
    CHECK(send(fds[1], greeting, sizeof(greeting), MSG_NOSIGNAL) == sizeof(greeting));
    bool ended[3] = { false };
    int64_t trickled = gp_now_ms();

    for (int64_t until = gp_now_ms() + TIMEOUT_MS; !(ended[0] && ended[1] && ended[2]) && gp_now_ms() < until;
         usleep(2000)) {
        pump(&s);
        for (int i = 0; i < 3; i++)
            ended[i] = ended[i] || hung_up(fds[i]);
        if (gp_now_ms() - trickled > 150 && !ended[2]) {
            trickled = gp_now_ms();
            (void)!send(fds[2], &greeting[sent++ % sizeof(greeting)], 1, MSG_NOSIGNAL);
        }
    }
    CHECK(ended[0]);
    CHECK(ended[1]);
    CHECK(ended[2]);
    PUMP_UNTIL(&s, TIMEOUT_MS, gp_channel_get_guard_stats(s.server).cut[GP_CUT_SILENT] > 0);
    CHECK(gp_channel_get_guard_stats(s.server).cut[GP_CUT_SILENT] > 0);
    raw_close(&guest);
    check_served(&s, &s.alice, "alice");
    for (int i = 0; i < 3; i++)
        close(fds[i]);
}

/* ---- man in the middle ---- */

/* TCP proxy for one connection at a time. It records the client's bytes on the current connection,
 * and flips one bit in the byte at offset `flip`. If a handshake times out because the machine is
 * slow, the client retries on a new connection. */
typedef struct proxy {
    int listener, port, server_port;
    pthread_t thread;
    uint8_t said[1 << 16];
    size_t bytes;
    ssize_t flip; /* -1: no change */
    bool resets;  /* reset the server's connection after passing the changed byte on */
    _Atomic bool end;
} proxy;

static bool proxy_flipped(const proxy *p)
{
    return p->flip >= 0 && (ssize_t)p->bytes > p->flip;
}

/* Forward data until either side closes the connection, or until it is reset. */
static void proxy_pass(proxy *p, int client, int server)
{
    while (!p->end) {
        struct pollfd fds[2] = { { .fd = client, .events = POLLIN }, { .fd = server, .events = POLLIN } };
        uint8_t bytes[4096];

        poll(fds, 2, 20);
        for (int i = 0; i < 2; i++) {
            ssize_t got = fds[i].revents == 0 ? -1 : recv(fds[i].fd, bytes, sizeof(bytes), MSG_DONTWAIT);

            if (got == 0 || (fds[i].revents & POLLERR) != 0)
                return;
            if (got < 0)
                continue;
            if (i == 0 && p->bytes + (size_t)got <= sizeof(p->said)) {
                if (p->flip >= (ssize_t)p->bytes && p->flip < (ssize_t)p->bytes + got)
                    bytes[p->flip - (ssize_t)p->bytes] ^= 1;
                memcpy(p->said + p->bytes, bytes, (size_t)got);
                p->bytes += (size_t)got;
            }
            (void)!send(i == 0 ? server : client, bytes, (size_t)got, MSG_NOSIGNAL);
            if (p->resets && proxy_flipped(p)) {
                gp_sleep_ms(5);
                setsockopt(server, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 },
                           sizeof(struct linger));
                return;
            }
        }
    }
}

static void *proxy_run(void *context)
{
    proxy *p = context;

    while (!p->end) {
        struct pollfd next = { .fd = p->listener, .events = POLLIN };

        if (poll(&next, 1, 20) <= 0)
            continue;
        int client = accept(p->listener, NULL, NULL), server = plain_connect(p->server_port);

        p->bytes = 0;
        proxy_pass(p, client, server);
        close(client);
        close(server);
        if (proxy_flipped(p))
            p->end = true;
    }
    return NULL;
}

static void proxy_open(proxy *p, int server_port, ssize_t flip)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t bytes = sizeof(address);

    *p = (proxy){ .server_port = server_port, .flip = flip };
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(p->listener, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(p->listener, 1) != 0 ||
        getsockname(p->listener, (struct sockaddr *)&address, &bytes) != 0)
        abort();
    p->port = ntohs(address.sin_port);
    pthread_create(&p->thread, NULL, proxy_run, p);
}

static void proxy_close(proxy *p)
{
    p->end = true;
    pthread_join(p->thread, NULL);
    close(p->listener);
}

/* Return the number of connections without a message, ended by ZeroMQ or, on a slow machine, by the
 * guard. */
static uint64_t handshakes_ended(void)
{
    gp_connection_guard_stats stats = gp_channel_get_guard_stats(s.server);

    return stats.failed + stats.cut[GP_CUT_SILENT];
}

TEST(replayed_conversation_is_refused)
{
    static proxy p;
    stage through;
    gp_channel *alice = NULL;
    gp_error err;

    REQUIRE(stage_open(&s));
    proxy_open(&p, s.port, -1);
    through = s;
    snprintf(through.endpoint, sizeof(through.endpoint), "tcp://127.0.0.1:%d", p.port);
    REQUIRE_OK(dial(&alice, &through, &s.alice, s.key.public_key, &err), err);
    CHECK(say_wait(alice));
    PUMP_UNTIL(&s, TIMEOUT_MS, s.heard == 1);
    CHECK_INT(1, s.heard);
    gp_channel_close(alice, 0);
    proxy_close(&p);
    CHECK(p.bytes > 300); /* greeting, HELLO, INITIATE, the message */

    uint64_t ends = handshakes_ended();
    int fd = plain_connect(s.port);
    bool ended = false;

    /* Replay in small pieces: the greeting first, the rest while the server responds. */
    for (size_t at = 0; at < p.bytes && !ended; at += 64) {
        size_t piece = p.bytes - at < 64 ? p.bytes - at : 64;

        (void)!send(fd, p.said + at, piece, MSG_NOSIGNAL);
        PUMP_UNTIL(&s, 30, false);
        ended = hung_up(fd);
    }
    PUMP_UNTIL(&s, TIMEOUT_MS, ended || hung_up(fd));
    CHECK(hung_up(fd));

    /* the disconnect event arrives with a short delay */
    PUMP_UNTIL(&s, TIMEOUT_MS, handshakes_ended() > ends);
    CHECK(handshakes_ended() > ends);
    CHECK_INT(1, s.heard);
    close(fd);
}

TEST(flipped_bit_ends_the_link_before_decoding)
{
    static proxy p;
    stage through;
    gp_channel *alice = NULL;
    gp_error err;

    REQUIRE(stage_open(&s));
    proxy_open(&p, s.port, -1); /* measure the handshake in bytes */
    through = s;
    snprintf(through.endpoint, sizeof(through.endpoint), "tcp://127.0.0.1:%d", p.port);
    REQUIRE_OK(dial(&alice, &through, &s.alice, s.key.public_key, &err), err);
    size_t handshake = p.bytes;

    gp_channel_close(alice, 0);
    proxy_close(&p);
    proxy_open(&p, s.port, (ssize_t)handshake + 20); /* inside the first message */
    snprintf(through.endpoint, sizeof(through.endpoint), "tcp://127.0.0.1:%d", p.port);
    REQUIRE_OK(dial(&alice, &through, &s.alice, s.key.public_key, &err), err);
    CHECK(say_wait(alice));
    PUMP_UNTIL(&s, TIMEOUT_MS, p.end);
    CHECK(p.end); /* the server closed the connection */
    CHECK_INT(0, s.heard);
    CHECK_INT(0, gp_channel_get_stats(s.server).refused);
    gp_channel_close(alice, 0);
    proxy_close(&p);
}

/* If the monitor included handshake protocol errors, ZeroMQ 4.3.4 would keep such a connection and
 * abort in most runs. */
TEST(flipped_bit_and_reset_do_not_abort_the_process)
{
    enum { TIMES = 12 };
    static proxy p;
    stage through;
    gp_channel *alice = NULL;
    gp_error err;

    REQUIRE(stage_open(&s));
    proxy_open(&p, s.port, -1);
    through = s;
    snprintf(through.endpoint, sizeof(through.endpoint), "tcp://127.0.0.1:%d", p.port);
    REQUIRE_OK(dial(&alice, &through, &s.alice, s.key.public_key, &err), err);
    size_t handshake = p.bytes;

    gp_channel_close(alice, 0);
    proxy_close(&p);
    for (int i = 0; i < TIMES && gp_test_failures == 0; i++) {
        proxy_open(&p, s.port, (ssize_t)handshake + 20);
        p.resets = true;
        snprintf(through.endpoint, sizeof(through.endpoint), "tcp://127.0.0.1:%d", p.port);
        REQUIRE_OK(dial(&alice, &through, &s.alice, s.key.public_key, &err), err);
        CHECK(say_wait(alice));
        PUMP_UNTIL(&s, TIMEOUT_MS, p.end);
        gp_channel_close(alice, 0);
        proxy_close(&p);
    }
    PUMP_UNTIL(&s, 700, false); /* longer than a heartbeat */
    PUMP_UNTIL(&s, TIMEOUT_MS, gp_channel_get_guard_stats(s.server).links == 0);
    CHECK_INT(0, gp_channel_get_guard_stats(s.server).links);
    CHECK_INT(0, s.heard);
    check_served(&s, &s.alice, "alice");
}
