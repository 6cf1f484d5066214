/* Channels over real sockets: delivery, and the effects of hostile or dead peers. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <zmq.h>

#include "common/base/clock.h"
#include "proto/channel/channel.h"
#include "proto/message/messages.h"
#include "tests/descriptors.h"
#include "tests/gp_test.h"
#include "tests/proto/scratch.h"

enum { TIMEOUT_MS = 300000 };

static const gp_channel_options plain = { .security = GP_SECURITY_NONE };
static const gp_channel_options bulk = { .security = GP_SECURITY_NONE, .bulk = true };

/* Two connected channels in this process. */
typedef struct pair {
    gp_channel *router, *dealer;
} pair;

static const char *endpoint_of(const char *path)
{
    static char endpoint[600];

    snprintf(endpoint, sizeof(endpoint), "ipc://%s", path);
    return endpoint;
}

static pair pair_open(const gp_channel_options *options)
{
    const char *path = scratch_path("pair");
    pair ends = { NULL, NULL };
    gp_error err = { .code = GP_OK };

    if (gp_channel_bind(&ends.router, path, options, &err) != GP_OK ||
        gp_channel_connect(&ends.dealer, endpoint_of(path), options, TIMEOUT_MS, &err) != GP_OK)
        GP_TEST_FAIL("cannot create a channel pair: %s", err.message);
    return ends;
}

static void pair_close(pair ends)
{
    gp_channel_close(ends.dealer, 0);
    gp_channel_close(ends.router, 0);
}

/* Receive a message with the polling loop that channel.h prescribes. */
static gp_status receive_wait(gp_channel *channel, gp_incoming *in, int timeout_ms)
{
    int64_t deadline = gp_now_ms() + timeout_ms;

    for (;;) {
        gp_status status = gp_channel_receive(channel, in, NULL);

        if (status != GP_ETIMEDOUT || gp_now_ms() >= deadline)
            return status;
        struct pollfd ready = { .fd = gp_channel_fd(channel), .events = POLLIN };

        poll(&ready, 1, gp_channel_pending(channel) ? 0 : 50);
    }
}

static gp_status send_stop(gp_channel *channel, const gp_peer *peer, bool hard)
{
    gp_envelope envelope = { .correlation = 9, .lease = 5, .generation = 2 };
    gp_train_stop stop = { .hard = hard };

    return gp_channel_send(channel, peer, &envelope, &gp_msg_train_stop, &stop, NULL, 0, NULL);
}

TEST(message_with_payloads_arrives_and_the_reply_returns)
{
    pair ends = pair_open(&bulk);
    gp_payload payloads[3] = { { .data = "netspec", .bytes = 7 },
                               { .data = NULL, .bytes = 0 },
                               { .data = "w", .bytes = 1 } };
    gp_envelope envelope = {
        .correlation = 77, .epoch = 3, .lease = 5, .generation = 2, .session = "0123456789abcdef"
    };
    gp_train_begin begin = { .data = "/data/x", .workers = 2, .seed = 11 }, got;
    gp_incoming in;
    gp_error err;

    REQUIRE_OK(gp_channel_send(ends.dealer, NULL, &envelope, &gp_msg_train_begin, &begin, payloads, 3, &err),
               err);
    CHECK_STATUS(GP_OK, receive_wait(ends.router, &in, TIMEOUT_MS));
    CHECK(in.type == &gp_msg_train_begin);
    CHECK(in.peer.bytes > 0);
    CHECK_INT(GP_PROTOCOL, in.envelope.protocol);
    CHECK_INT(77, in.envelope.correlation);
    CHECK_INT(2, in.envelope.generation);
    CHECK(memcmp(in.envelope.session, envelope.session, 16) == 0);
    CHECK_INT(3, in.payload_count);
    CHECK(in.payloads[0].bytes == 7 && memcmp(in.payloads[0].data, "netspec", 7) == 0);
    CHECK_INT(0, in.payloads[1].bytes);
    CHECK(in.payloads[2].bytes == 1 && in.payloads[2].data[0] == 'w');
    REQUIRE_OK(gp_incoming_decode(&in, &got, &err), err);
    CHECK_TEXT("/data/x", got.data);
    CHECK_INT(11, got.seed);

    gp_error cause;
    gp_fail(&cause, GP_ENOENT, "there is no /data/x");
    REQUIRE_OK(gp_channel_reply_error(ends.router, &in.peer, &in.envelope, &cause, 3, &err), err);
    gp_incoming_close(&in);
    CHECK_STATUS(GP_OK, receive_wait(ends.dealer, &in, TIMEOUT_MS));
    gp_error_reply reply;
    REQUIRE_OK(gp_incoming_decode(&in, &reply, &err), err);
    CHECK_INT(77, in.envelope.correlation);
    CHECK_INT(GP_ENOENT, reply.code);
    CHECK_INT(3, reply.worker);
    CHECK_TEXT("there is no /data/x", reply.message);
    gp_incoming_close(&in);
    CHECK_STATUS(GP_ETIMEDOUT, gp_channel_receive(ends.dealer, &in, NULL));
    pair_close(ends);
}

/* ---- payloads ---- */

static _Atomic int released;

static void payload_released(void *data, void *hint)
{
    (void)hint;
    released++;
    gp_free(data);
}

static void payload_counted(void *data, void *hint)
{
    (void)data;
    (void)hint;
    released++;
}

static gp_payload payload_big(size_t bytes)
{
    uint8_t *data = gp_malloc(bytes);

    for (size_t i = 0; i < bytes; i += 4096)
        data[i] = (uint8_t)(i >> 12);
    return (gp_payload){ .data = data, .bytes = bytes, .release = payload_released };
}

TEST(large_payload_is_sent_in_place_and_released_once)
{
    pair ends = pair_open(&bulk);
    gp_payload payload = payload_big(8 << 20);
    gp_predict_part part = { .count = 1 };
    gp_incoming in, moved;
    gp_error err;
    bool equal = true;

    released = 0;
    REQUIRE_OK(gp_channel_send(ends.dealer, NULL, &(gp_envelope){ 0 }, &gp_msg_predict_part, &part, &payload,
                               1, &err),
               err);
    REQUIRE_OK(receive_wait(ends.router, &in, TIMEOUT_MS), err);
    gp_incoming_move(&moved, &in);
    CHECK_INT(0, in.frame_count);
    CHECK_INT(8 << 20, moved.payloads[0].bytes);
    for (size_t i = 0; i < moved.payloads[0].bytes; i += 4096)
        equal = equal && moved.payloads[0].data[i] == (uint8_t)(i >> 12);
    CHECK(equal);
    gp_incoming_close(&moved);
    gp_incoming_close(&in);
    pair_close(ends); /* destroys the context: after this no payload can be released */
    CHECK_INT(1, released);
}

TEST(payload_is_released_once_after_any_send_failure)
{
    gp_channel *dealer;
    gp_error err;
    gp_payload payload;
    gp_envelope envelope = { 0 };
    gp_predict_part part = { .count = 1 };
    const char *nobody = scratch_path("nobody");

    REQUIRE_OK(gp_channel_connect(&dealer, endpoint_of(nobody), &plain, 0, &err), err);
    released = 0;
    payload = payload_big(100);
    CHECK_STATUS(GP_EBUSY,
                 gp_channel_send(dealer, NULL, &envelope, &gp_msg_predict_part, &part, &payload, 1, &err));
    CHECK_INT(1, released);
    payload = payload_big(GP_BODY_BYTES_MAX + 1);
    CHECK_STATUS(GP_ELIMIT,
                 gp_channel_send(dealer, NULL, &envelope, &gp_msg_predict_part, &part, &payload, 1, &err));
    CHECK_INT(2, released);
    part.count = 0;
    payload = payload_big(100);
    CHECK_STATUS(GP_EINVAL,
                 gp_channel_send(dealer, NULL, &envelope, &gp_msg_predict_part, &part, &payload, 1, &err));
    CHECK_INT(3, released);
    gp_payload nine[9] = { { .data = "x", .bytes = 1 } };
    part.count = 1;
    CHECK_STATUS(GP_ELIMIT,
                 gp_channel_send(dealer, NULL, &envelope, &gp_msg_predict_part, &part, nine, 9, &err));
    CHECK_CONTAINS(err.message, "at most 8");
    CHECK_INT(1, gp_channel_get_stats(dealer).busy);
    CHECK_INT(0, gp_channel_get_stats(dealer).sent);
    gp_channel_close(dealer, 0);
}

/* ---- missing peers ---- */

TEST(connect_without_listener_times_out)
{
    gp_channel *dealer = NULL;
    gp_error err;
    const char *nobody = scratch_path("nobody");

    CHECK_STATUS(GP_EPEER, gp_channel_connect(&dealer, endpoint_of(nobody), &plain, 100, &err));
    CHECK_CONTAINS(err.message, "nobody");
    CHECK(dealer == NULL);
    CHECK_STATUS(GP_EPERM, gp_channel_connect(&dealer, "tcp://127.0.0.1:1", &plain, 100, &err));
    CHECK_CONTAINS(err.message, "CURVE");
    CHECK_STATUS(GP_EUNSUPPORTED, gp_channel_connect(&dealer, "udp://127.0.0.1:1", &plain, 100, &err));
    CHECK_STATUS(GP_EPERM, gp_channel_bind(&dealer, scratch_path("curve"),
                                           &(gp_channel_options){ .security = GP_SECURITY_CURVE }, &err));
    CHECK_CONTAINS(err.message, "CURVE");
}

TEST(send_to_a_closed_peer_fails_and_others_are_unaffected)
{
    pair ends = pair_open(&plain);
    gp_channel *other;
    gp_incoming in;
    gp_error err;
    gp_peer stranger = { .bytes = 5, .id = "abcde" }, left;

    CHECK_STATUS(GP_EPEER, send_stop(ends.router, &stranger, true));
    REQUIRE_OK(gp_channel_connect(&other, endpoint_of(scratch_path("pair")), &plain, TIMEOUT_MS, &err), err);
    CHECK_STATUS(GP_OK, send_stop(other, NULL, true));
    REQUIRE_OK(receive_wait(ends.router, &in, TIMEOUT_MS), err);
    left = in.peer;
    gp_incoming_close(&in);
    gp_channel_close(other, 0);
    gp_status status = GP_OK;

    for (int64_t deadline = gp_now_ms() + TIMEOUT_MS; status == GP_OK && gp_now_ms() < deadline; usleep(1000))
        status = send_stop(ends.router, &left, true);
    CHECK_STATUS(GP_EPEER, status);
    CHECK_STATUS(GP_OK, send_stop(ends.dealer, NULL, false));
    CHECK_STATUS(GP_OK, receive_wait(ends.router, &in, TIMEOUT_MS));
    CHECK(!gp_peer_equal(&in.peer, &left));
    gp_incoming_close(&in);
    pair_close(ends);
}

TEST(full_queue_fails_with_busy_and_accepted_messages_arrive)
{
    pair ends = pair_open(&plain);
    gp_incoming in;
    unsigned sent = 0, received = 0;

    while (sent < 200000 && send_stop(ends.dealer, NULL, true) == GP_OK)
        sent++;
    CHECK(sent >= 1000 && sent < 200000);
    while (received < sent && receive_wait(ends.router, &in, TIMEOUT_MS) == GP_OK) {
        received++;
        gp_incoming_close(&in);
    }
    CHECK_INT(sent, received);
    pair_close(ends);
}

TEST(close_with_drain_delivers_queued_messages)
{
    const char *path = scratch_path("drain");
    gp_channel *router, *dealer;
    gp_incoming in;
    gp_error err;

    REQUIRE_OK(gp_channel_bind(&router, path, &plain, &err), err);
    REQUIRE_OK(gp_channel_connect(&dealer, endpoint_of(path), &plain, TIMEOUT_MS, &err), err);
    CHECK_STATUS(GP_OK, send_stop(dealer, NULL, true));
    gp_channel_close(dealer, 2000);
    CHECK_STATUS(GP_OK, receive_wait(router, &in, TIMEOUT_MS));
    gp_incoming_close(&in);
    gp_channel_close(router, 0);
}

TEST(queued_link_keeps_messages_before_it_is_up_and_after_it_has_ended)
{
    const gp_channel_options queued = { .security = GP_SECURITY_NONE, .queued = true };
    const char *path = scratch_path("queued");
    gp_channel *router, *dealer;
    gp_incoming in;
    gp_error err;

    REQUIRE_OK(gp_channel_connect(&dealer, endpoint_of(path), &queued, 0, &err), err);
    CHECK_STATUS(GP_OK, send_stop(dealer, NULL, true));
    REQUIRE_OK(gp_channel_bind(&router, path, &plain, &err), err);
    CHECK_STATUS(GP_OK, receive_wait(router, &in, TIMEOUT_MS));
    CHECK_STATUS(GP_OK, send_stop(router, &in.peer, false));
    CHECK_STATUS(GP_OK, send_stop(router, &in.peer, true));
    gp_incoming_close(&in);
    gp_channel_close(router, 2000);
    usleep(100000); /* the dealer's I/O thread reads both messages and the end of the link */
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(GP_OK, receive_wait(dealer, &in, 5000));
        gp_incoming_close(&in);
    }
    gp_channel_close(dealer, 0);
}

TEST(dealer_reconnects_to_a_new_daemon_at_the_same_path)
{
    pair ends = pair_open(&plain);
    gp_incoming in;
    gp_error err;
    gp_status status = GP_EBUSY;

    gp_channel_close(ends.router, 0);
    REQUIRE_OK(gp_channel_bind(&ends.router, scratch_path("pair"), &plain, &err), err);
    for (int64_t deadline = gp_now_ms() + TIMEOUT_MS; gp_now_ms() < deadline; usleep(10000)) {
        /* the first send may reach the socket that is being closed */
        status = send_stop(ends.dealer, NULL, true);
        if (status == GP_OK && receive_wait(ends.router, &in, 200) == GP_OK)
            break;
        status = GP_EBUSY;
    }
    CHECK_STATUS(GP_OK, status);
    if (status == GP_OK)
        gp_incoming_close(&in);
    pair_close(ends);
}

/* ---- hostile peers, played by a bare ZeroMQ socket ---- */

typedef struct attacker {
    void *context, *socket;
} attacker;

static attacker attacker_connect(const char *path)
{
    attacker bad = { .context = zmq_ctx_new() };
    int linger = 0, timeout = TIMEOUT_MS;

    bad.socket = zmq_socket(bad.context, ZMQ_DEALER);
    zmq_setsockopt(bad.socket, ZMQ_LINGER, &linger, sizeof(linger));
    zmq_setsockopt(bad.socket, ZMQ_SNDTIMEO, &timeout, sizeof(timeout));
    CHECK_INT(0, zmq_connect(bad.socket, endpoint_of(path)));
    return bad;
}

static void attacker_close(attacker bad)
{
    zmq_close(bad.socket);
    zmq_ctx_term(bad.context);
}

static void attacker_send(attacker bad, const char *frame, size_t bytes, bool more)
{
    CHECK_INT(bytes, zmq_send(bad.socket, frame, bytes, more ? ZMQ_SNDMORE : 0));
}

/* Check that an honest message is the next one delivered, and that the router dropped `refused`
 * messages of the attacker. */
static void honest_passes(pair ends, uint64_t refused, const char *why)
{
    gp_incoming in;
    int64_t deadline = gp_now_ms() + TIMEOUT_MS;

    while (gp_channel_get_stats(ends.router).refused < refused && gp_now_ms() < deadline) {
        CHECK_STATUS(GP_ETIMEDOUT, gp_channel_receive(ends.router, &in, NULL));
        usleep(1000);
    }
    gp_channel_stats stats = gp_channel_get_stats(ends.router);

    CHECK_INT(refused, stats.refused);
    CHECK_CONTAINS(stats.refused_last, why);
    CHECK_STATUS(GP_OK, send_stop(ends.dealer, NULL, true));
    CHECK_STATUS(GP_OK, receive_wait(ends.router, &in, TIMEOUT_MS));
    CHECK(in.type == &gp_msg_train_stop);
    gp_incoming_close(&in);
}

static const char good_envelope[] = "\x99\x01\x40\x00\x00\x00\x00\xc4\x10xxxxxxxxxxxxxxxx\x00\x00";
enum { GOOD_BYTES = sizeof(good_envelope) - 1 };

TEST(malformed_messages_are_dropped_and_counted)
{
    pair ends = pair_open(&plain);
    attacker bad = attacker_connect(scratch_path("pair"));

    attacker_send(bad, "hello", 5, false);
    honest_passes(ends, 1, "no envelope or no body");
    attacker_send(bad, "\xdd\xff\xff\xff\xff", 5, true);
    attacker_send(bad, "\x80", 1, false);
    honest_passes(ends, 2, "more values than");
    attacker_send(bad, good_envelope, GOOD_BYTES, true);
    attacker_send(bad, "\xdf\xff\xff\xff\xff", 5, false);
    honest_passes(ends, 3, "more values than");
    attacker_send(bad, good_envelope, GOOD_BYTES, true);
    attacker_send(bad, "", 0, false);
    honest_passes(ends, 4, "a value is missing");
    attacker_close(bad);
    pair_close(ends);
}

TEST(message_with_a_thousand_frames_is_dropped)
{
    pair ends = pair_open(&plain);
    attacker bad = attacker_connect(scratch_path("pair"));

    attacker_send(bad, good_envelope, GOOD_BYTES, true);
    for (int i = 0; i < 1000; i++)
        attacker_send(bad, "\x80", 1, i < 999);
    honest_passes(ends, 1, "more than 8 payloads");
    attacker_send(bad, good_envelope, GOOD_BYTES, true); /* eight payloads are allowed */
    for (int i = 0; i < 9; i++)
        attacker_send(bad, "\x81\xa4hard\xc3", 7, i < 8);
    gp_incoming in;
    CHECK_STATUS(GP_OK, receive_wait(ends.router, &in, TIMEOUT_MS));
    CHECK_INT(8, in.payload_count);
    gp_incoming_close(&in);
    attacker_close(bad);
    pair_close(ends);
}

TEST(oversized_frame_disconnects_only_its_sender)
{
    pair ends = pair_open(&plain);
    attacker bad = attacker_connect(scratch_path("pair"));
    size_t bytes = GP_BODY_BYTES_MAX + 1;
    char *big = gp_calloc(1, bytes);
    gp_incoming in;

    attacker_send(bad, good_envelope, GOOD_BYTES, true);
    attacker_send(bad, big, bytes, false);
    for (int i = 0; i < 50; i++) {
        CHECK_STATUS(GP_ETIMEDOUT, gp_channel_receive(ends.router, &in, NULL));
        usleep(2000);
    }
    honest_passes(ends, 0, "");
    gp_free(big);
    attacker_close(bad);
    pair_close(ends);
}

TEST(overlong_routing_id_is_refused)
{
    pair ends = pair_open(&plain);
    attacker bad = { .context = zmq_ctx_new() };
    int linger = 0;

    bad.socket = zmq_socket(bad.context, ZMQ_DEALER);
    zmq_setsockopt(bad.socket, ZMQ_LINGER, &linger, sizeof(linger));
    zmq_setsockopt(bad.socket, ZMQ_ROUTING_ID, "0123456789012345678901234567890123456789", 40);
    CHECK_INT(0, zmq_connect(bad.socket, endpoint_of(scratch_path("pair"))));
    attacker_send(bad, good_envelope, GOOD_BYTES, true);
    attacker_send(bad, "\x80", 1, false);
    honest_passes(ends, 1, "routing id");
    attacker_close(bad);
    pair_close(ends);
}

TEST(unknown_protocol_is_named_but_hello_is_decoded)
{
    pair ends = pair_open(&plain);
    attacker bad = attacker_connect(scratch_path("pair"));
    static const char hello[] = "\x85\xa4role\x01\xacprotocol_min\x07\xacprotocol_max\x09\xa5"
                                "build\xa0\xa3pid\x07";
    char envelope[GOOD_BYTES];
    gp_train_stop stop;
    gp_hello got;
    gp_incoming in;
    gp_error err;

    memcpy(envelope, good_envelope, GOOD_BYTES);
    envelope[1] = 7;
    attacker_send(bad, envelope, GOOD_BYTES, true);
    attacker_send(bad, "\x81\xa4hard\xc3", 7, false);
    REQUIRE_OK(receive_wait(ends.router, &in, TIMEOUT_MS), err);
    CHECK_STATUS(GP_EVERSION, gp_incoming_decode(&in, &stop, &err));
    CHECK_CONTAINS(err.message, "protocol version 7");
    gp_incoming_close(&in);
    envelope[2] = 3;
    attacker_send(bad, envelope, GOOD_BYTES, true);
    attacker_send(bad, hello, sizeof(hello) - 1, false);
    REQUIRE_OK(receive_wait(ends.router, &in, TIMEOUT_MS), err);
    REQUIRE_OK(gp_incoming_decode(&in, &got, &err), err);
    CHECK_INT(9, got.protocol_max);
    gp_incoming_close(&in);
    envelope[1] = 1;
    envelope[2] = 127;
    attacker_send(bad, envelope, GOOD_BYTES, true);
    attacker_send(bad, "\x80", 1, false);
    REQUIRE_OK(receive_wait(ends.router, &in, TIMEOUT_MS), err);
    CHECK(in.type == NULL);
    CHECK_STATUS(GP_EUNSUPPORTED, gp_incoming_decode(&in, &got, &err));
    gp_incoming_close(&in);
    attacker_close(bad);
    pair_close(ends);
}

/* ---- socket file ---- */

TEST(socket_is_private_and_removed_on_close)
{
    const char *path = scratch_path("file");
    gp_channel *first, *second;
    struct stat seen;
    gp_error err;

    REQUIRE_OK(gp_channel_bind(&first, path, &plain, &err), err);
    CHECK_INT(0, stat(path, &seen));
    CHECK(S_ISSOCK(seen.st_mode));
    CHECK_INT(0600, seen.st_mode & 07777);
    REQUIRE_OK(gp_channel_bind(&second, path, &plain, &err),
               err); /* as after a crash: the old file still exists */
    gp_channel_close(first, 0);

    /* the file belongs to the second channel; closing the first keeps it */
    CHECK_INT(0, stat(path, &seen));
    gp_channel_close(second, 0);
    CHECK_INT(-1, stat(path, &seen));
}

TEST(paths_over_one_hundred_bytes_are_refused_by_name)
{
    char path[160];
    gp_channel *channel = NULL;
    gp_error err;

    memset(path, 'x', sizeof(path));
    memcpy(path, scratch_dir, strlen(scratch_dir));
    path[strlen(scratch_dir)] = '/';
    path[101] = '\0';
    CHECK_STATUS(GP_ELIMIT, gp_channel_bind(&channel, path, &plain, &err));
    CHECK_CONTAINS(err.message, path);
    CHECK_CONTAINS(err.message, "GRADPOOL_RUNTIME_DIR");
    CHECK_STATUS(GP_ELIMIT, gp_channel_connect(&channel, endpoint_of(path), &plain, 0, &err));
    path[100] = '\0';
    REQUIRE_OK(gp_channel_bind(&channel, path, &plain, &err), err);
    gp_channel *dealer;
    REQUIRE_OK(gp_channel_connect(&dealer, endpoint_of(path), &plain, TIMEOUT_MS, &err), err);
    gp_channel_close(dealer, 0);
    gp_channel_close(channel, 0);
    CHECK_STATUS(GP_EIO, gp_channel_bind(&channel, scratch_path("no/such/dir"), &plain, &err));
}

/* Connect as user `uid` and read the greeting. 1: received; 0: the connection was closed; 2: cannot
 * connect. */
static int greeting_as(uid_t uid, const char *path)
{
    pid_t child = fork();
    int result = 3;

    /* plain system calls only: the child must not use the parent's ZeroMQ context */
    if (child == 0) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        struct timeval timeout = { .tv_sec = TIMEOUT_MS / 1000 };
        char byte;
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);

        snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
        if (uid != 0 && setuid(uid) != 0)
            _exit(3);
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
            _exit(2);
        _exit(read(fd, &byte, 1) == 1 ? 1 : 0);
    }
    waitpid(child, &result, 0);
    return WIFEXITED(result) ? WEXITSTATUS(result) : 3;
}

TEST(other_users_are_refused_by_mode_and_by_uid_filter)
{
    const char *path = scratch_path("uid");
    gp_channel *router;
    gp_error err;

    if (geteuid() != 0)
        SKIP("needs root to run as another user");
    REQUIRE_OK(gp_channel_bind(&router, path, &plain, &err), err);
    CHECK_INT(0, chmod(scratch_dir, 0755));
    CHECK_INT(1, greeting_as(0, path));
    CHECK_INT(2, greeting_as(65534, path));
    CHECK_INT(0, chmod(path, 0777)); /* simulate a wrong mode */
    CHECK_INT(0, greeting_as(65534, path));
    CHECK_INT(0, chmod(scratch_dir, 0700));
    gp_channel_close(router, 0);
}

TEST(open_survives_allocation_failures_without_leaks)
{
    gp_channel *channel = NULL;
    const char *path = scratch_path("alloc");
    int before = descriptors_of(getpid());

    CHECK_EVERY_ALLOCATION(gp_channel_bind(&channel, path, &plain, NULL), gp_channel_close(channel, 0));
    CHECK_EVERY_ALLOCATION(gp_channel_connect(&channel, endpoint_of(path), &plain, 0, NULL),
                           gp_channel_close(channel, 0));
    CHECK_INT(before, descriptors_of(getpid()));
}

TEST(bulk_links_limit_the_body_to_one_mebibyte)
{
    pair ends = pair_open(&bulk);
    attacker bad = attacker_connect(scratch_path("pair"));
    size_t bytes = GP_BODY_BYTES_MAX + 1;
    char *big = gp_calloc(1, bytes);

    attacker_send(bad, good_envelope, GOOD_BYTES, true);
    attacker_send(bad, big, bytes, false);
    honest_passes(ends, 1, "more than 1 MiB");
    gp_free(big);
    attacker_close(bad);
    pair_close(ends);
}

TEST(receive_returns_during_a_flood_of_malformed_messages)
{
    static const gp_channel_options beating = { .heartbeat = true };
    pair ends = pair_open(&beating);
    attacker bad = attacker_connect(scratch_path("pair"));
    gp_incoming in;
    gp_error err;

    for (int i = 0; i < 200; i++)
        attacker_send(bad, "x", 1, false);
    for (int64_t deadline = gp_now_ms() + TIMEOUT_MS; gp_now_ms() < deadline; usleep(1000))
        if (gp_channel_pending(ends.router))
            break;
    usleep(20000); /* let most of them arrive; the test also passes with fewer than 64 */
    CHECK_STATUS(GP_ETIMEDOUT, gp_channel_receive(ends.router, &in, &err));
    CHECK(gp_channel_get_stats(ends.router).refused <= 64);
    honest_passes(ends, 200, "no envelope");
    attacker_close(bad);
    pair_close(ends);
}

TEST(killed_sender_leaves_only_whole_messages)
{
    const char *path = scratch_path("killed");
    int started[2];
    gp_channel *router;
    gp_incoming in;
    gp_error err;
    unsigned whole = 0;

    CHECK_INT(0, pipe(started));
    pid_t child = fork(); /* before this process creates a context: the child creates a context */

    if (child == 0) {
        gp_channel *dealer;
        gp_predict_part part = { .count = 1 };
        char byte;

        if (read(started[0], &byte, 1) != 1 ||
            gp_channel_connect(&dealer, endpoint_of(path), &bulk, TIMEOUT_MS, NULL) != GP_OK)
            _exit(1);
        for (;;) {
            gp_payload payloads[2] = { payload_big(1 << 20), { .data = "end", .bytes = 3 } };

            gp_channel_send(dealer, NULL, &(gp_envelope){ 0 }, &gp_msg_predict_part, &part, payloads, 2,
                            NULL);
        }
    }
    REQUIRE_OK(gp_channel_bind(&router, path, &bulk, &err), err);
    CHECK_INT(1, write(started[1], "x", 1));
    while (whole < 5 && receive_wait(router, &in, TIMEOUT_MS) == GP_OK) {
        whole++;
        CHECK_INT(2, in.payload_count);
        CHECK_INT(1 << 20, in.payloads[0].bytes);
        gp_incoming_close(&in);
    }
    CHECK_INT(5, whole);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    while (receive_wait(router, &in, 200) == GP_OK) {
        CHECK_INT(2, in.payload_count);
        CHECK(in.payloads[1].bytes == 3 && memcmp(in.payloads[1].data, "end", 3) == 0);
        gp_incoming_close(&in);
    }
    CHECK_INT(0, gp_channel_get_stats(router).refused);
    close(started[0]);
    close(started[1]);
    gp_channel_close(router, 0);
}

static int payloads_given;

/* Send on a new channel, so that the buffers are allocated during the send. */
static gp_status send_from_fresh_channel(const char *path)
{
    gp_channel *dealer;
    gp_predict_part part = { .count = 1 };
    gp_status status = gp_channel_connect(&dealer, endpoint_of(path), &plain, TIMEOUT_MS, NULL);

    if (status != GP_OK)
        return status;
    gp_payload payload = { .data = "x", .bytes = 1, .release = payload_counted };

    payloads_given++;
    status =
        gp_channel_send(dealer, NULL, &(gp_envelope){ 0 }, &gp_msg_predict_part, &part, &payload, 1, NULL);
    gp_channel_close(dealer, TIMEOUT_MS);
    return status;
}

TEST(send_survives_allocation_failures_and_releases_payloads)
{
    const char *path = scratch_path("walk");
    gp_channel *router;
    gp_incoming in;
    gp_error err;

    REQUIRE_OK(gp_channel_bind(&router, path, &plain, &err), err);
    payloads_given = 0;
    released = 0;
    CHECK_EVERY_ALLOCATION(send_from_fresh_channel(path), (void)0);
    CHECK(payloads_given >= 3); /* body, envelope, success */
    CHECK_STATUS(GP_OK, receive_wait(router, &in, TIMEOUT_MS));
    CHECK_INT(1, in.payload_count);
    gp_incoming_close(&in);

    /* the failed sends left no message */
    CHECK_STATUS(GP_ETIMEDOUT, receive_wait(router, &in, 50));
    gp_channel_close(router, 0); /* destroys the context, which releases all payloads */
    CHECK_INT(payloads_given, released);
}
