/* Real sockets: what crosses a channel, and what hostile or dead peers do to it. */
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

enum { PATIENCE_MS = 300000 };

static const gp_channel_options plain = { .security = GP_SECURITY_NONE };
static const gp_channel_options bulk = { .security = GP_SECURITY_NONE, .bulk = true };

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
        gp_channel_connect(&ends.dealer, endpoint_of(path), options, PATIENCE_MS, &err) != GP_OK)
        GP_TEST_FAIL("no pair of channels: %s", err.message);
    return ends;
}

static void pair_close(pair ends)
{
    gp_channel_close(ends.dealer, 0);
    gp_channel_close(ends.router, 0);
}

/* Wait as the header says one should. */
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

TEST(a_message_and_its_payloads_cross_and_the_answer_finds_its_way)
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
    CHECK_STATUS(GP_OK, receive_wait(ends.router, &in, PATIENCE_MS));
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
    CHECK_STATUS(GP_OK, receive_wait(ends.dealer, &in, PATIENCE_MS));
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

TEST(a_large_payload_goes_from_where_it_is_and_is_released_once)
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
    REQUIRE_OK(receive_wait(ends.router, &in, PATIENCE_MS), err);
    gp_incoming_move(&moved, &in);
    CHECK_INT(0, in.frame_count);
    CHECK_INT(8 << 20, moved.payloads[0].bytes);
    for (size_t i = 0; i < moved.payloads[0].bytes; i += 4096)
        equal = equal && moved.payloads[0].data[i] == (uint8_t)(i >> 12);
    CHECK(equal);
    gp_incoming_close(&moved);
    gp_incoming_close(&in);
    pair_close(ends); /* the context ends here: nothing can be released later */
    CHECK_INT(1, released);
}

TEST(a_payload_is_released_once_however_the_send_fails)
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

/* ---- peers that are not there ---- */

TEST(connecting_to_nobody_ends_with_the_time_out)
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

TEST(sending_to_a_peer_that_left_is_an_error_and_loses_nobody_else)
{
    pair ends = pair_open(&plain);
    gp_channel *other;
    gp_incoming in;
    gp_error err;
    gp_peer stranger = { .bytes = 5, .id = "abcde" }, left;

    CHECK_STATUS(GP_EPEER, send_stop(ends.router, &stranger, true));
    REQUIRE_OK(gp_channel_connect(&other, endpoint_of(scratch_path("pair")), &plain, PATIENCE_MS, &err), err);
    CHECK_STATUS(GP_OK, send_stop(other, NULL, true));
    REQUIRE_OK(receive_wait(ends.router, &in, PATIENCE_MS), err);
    left = in.peer;
    gp_incoming_close(&in);
    gp_channel_close(other, 0);
    gp_status status = GP_OK;

    for (int64_t deadline = gp_now_ms() + PATIENCE_MS; status == GP_OK && gp_now_ms() < deadline;
         usleep(1000))
        status = send_stop(ends.router, &left, true);
    CHECK_STATUS(GP_EPEER, status);
    CHECK_STATUS(GP_OK, send_stop(ends.dealer, NULL, false));
    CHECK_STATUS(GP_OK, receive_wait(ends.router, &in, PATIENCE_MS));
    CHECK(!gp_peer_equal(&in.peer, &left));
    gp_incoming_close(&in);
    pair_close(ends);
}

TEST(a_full_queue_is_busy_and_nothing_that_was_accepted_is_lost)
{
    pair ends = pair_open(&plain);
    gp_incoming in;
    unsigned sent = 0, received = 0;

    while (sent < 200000 && send_stop(ends.dealer, NULL, true) == GP_OK)
        sent++;
    CHECK(sent >= 1000 && sent < 200000);
    while (received < sent && receive_wait(ends.router, &in, PATIENCE_MS) == GP_OK) {
        received++;
        gp_incoming_close(&in);
    }
    CHECK_INT(sent, received);
    pair_close(ends);
}

TEST(what_was_sent_before_closing_with_a_drain_arrives)
{
    const char *path = scratch_path("drain");
    gp_channel *router, *dealer;
    gp_incoming in;
    gp_error err;

    REQUIRE_OK(gp_channel_bind(&router, path, &plain, &err), err);
    REQUIRE_OK(gp_channel_connect(&dealer, endpoint_of(path), &plain, PATIENCE_MS, &err), err);
    CHECK_STATUS(GP_OK, send_stop(dealer, NULL, true));
    gp_channel_close(dealer, 2000);
    CHECK_STATUS(GP_OK, receive_wait(router, &in, PATIENCE_MS));
    gp_incoming_close(&in);
    gp_channel_close(router, 0);
}

TEST(a_dealer_finds_the_next_daemon_at_the_same_path)
{
    pair ends = pair_open(&plain);
    gp_incoming in;
    gp_error err;
    gp_status status = GP_EBUSY;

    gp_channel_close(ends.router, 0);
    REQUIRE_OK(gp_channel_bind(&ends.router, scratch_path("pair"), &plain, &err), err);
    for (int64_t deadline = gp_now_ms() + PATIENCE_MS; gp_now_ms() < deadline; usleep(10000)) {
        status = send_stop(ends.dealer, NULL, true); /* the first may go to the socket that is closing */
        if (status == GP_OK && receive_wait(ends.router, &in, 200) == GP_OK)
            break;
        status = GP_EBUSY;
    }
    CHECK_STATUS(GP_OK, status);
    if (status == GP_OK)
        gp_incoming_close(&in);
    pair_close(ends);
}

/* ---- hostile peers: a bare ZeroMQ socket ---- */

typedef struct attacker {
    void *context, *socket;
} attacker;

static attacker attacker_connect(const char *path)
{
    attacker bad = { .context = zmq_ctx_new() };
    int linger = 0, timeout = PATIENCE_MS;

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

/* The next message the router shows, after what the attacker sent, is the honest one; `refused` were dropped. */
static void honest_passes(pair ends, uint64_t refused, const char *why)
{
    gp_incoming in;
    int64_t deadline = gp_now_ms() + PATIENCE_MS;

    while (gp_channel_get_stats(ends.router).refused < refused && gp_now_ms() < deadline) {
        CHECK_STATUS(GP_ETIMEDOUT, gp_channel_receive(ends.router, &in, NULL));
        usleep(1000);
    }
    gp_channel_stats stats = gp_channel_get_stats(ends.router);

    CHECK_INT(refused, stats.refused);
    CHECK_CONTAINS(stats.refused_last, why);
    CHECK_STATUS(GP_OK, send_stop(ends.dealer, NULL, true));
    CHECK_STATUS(GP_OK, receive_wait(ends.router, &in, PATIENCE_MS));
    CHECK(in.type == &gp_msg_train_stop);
    gp_incoming_close(&in);
}

static const char good_envelope[] = "\x99\x01\x40\x00\x00\x00\x00\xc4\x10xxxxxxxxxxxxxxxx\x00\x00";
enum { GOOD_BYTES = sizeof(good_envelope) - 1 };

TEST(messages_of_the_wrong_form_are_dropped_whole_and_counted)
{
    pair ends = pair_open(&plain);
    attacker bad = attacker_connect(scratch_path("pair"));

    attacker_send(bad, "hello", 5, false);
    honest_passes(ends, 1, "no envelope and body");
    attacker_send(bad, "\xdd\xff\xff\xff\xff", 5, true);
    attacker_send(bad, "\x80", 1, false);
    honest_passes(ends, 2, "more values than");
    attacker_send(bad, good_envelope, GOOD_BYTES, true);
    attacker_send(bad, "\xdf\xff\xff\xff\xff", 5, false);
    honest_passes(ends, 3, "more values than");
    attacker_send(bad, good_envelope, GOOD_BYTES, true);
    attacker_send(bad, "", 0, false);
    honest_passes(ends, 4, "bytes end");
    attacker_close(bad);
    pair_close(ends);
}

TEST(a_message_of_a_thousand_frames_is_dropped_whole)
{
    pair ends = pair_open(&plain);
    attacker bad = attacker_connect(scratch_path("pair"));

    attacker_send(bad, good_envelope, GOOD_BYTES, true);
    for (int i = 0; i < 1000; i++)
        attacker_send(bad, "\x80", 1, i < 999);
    honest_passes(ends, 1, "more than 8 payloads");
    attacker_send(bad, good_envelope, GOOD_BYTES, true); /* eight are allowed */
    for (int i = 0; i < 9; i++)
        attacker_send(bad, "\x81\xa4hard\xc3", 7, i < 8);
    gp_incoming in;
    CHECK_STATUS(GP_OK, receive_wait(ends.router, &in, PATIENCE_MS));
    CHECK_INT(8, in.payload_count);
    gp_incoming_close(&in);
    attacker_close(bad);
    pair_close(ends);
}

TEST(a_frame_over_the_limit_costs_its_sender_the_link_and_nobody_else)
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

TEST(a_routing_id_that_is_too_long_is_refused)
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

TEST(another_protocol_is_named_and_hello_is_read_whatever_its_number)
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
    REQUIRE_OK(receive_wait(ends.router, &in, PATIENCE_MS), err);
    CHECK_STATUS(GP_EVERSION, gp_incoming_decode(&in, &stop, &err));
    CHECK_CONTAINS(err.message, "protocol 7");
    gp_incoming_close(&in);
    envelope[2] = 3;
    attacker_send(bad, envelope, GOOD_BYTES, true);
    attacker_send(bad, hello, sizeof(hello) - 1, false);
    REQUIRE_OK(receive_wait(ends.router, &in, PATIENCE_MS), err);
    REQUIRE_OK(gp_incoming_decode(&in, &got, &err), err);
    CHECK_INT(9, got.protocol_max);
    gp_incoming_close(&in);
    envelope[1] = 1;
    envelope[2] = 127;
    attacker_send(bad, envelope, GOOD_BYTES, true);
    attacker_send(bad, "\x80", 1, false);
    REQUIRE_OK(receive_wait(ends.router, &in, PATIENCE_MS), err);
    CHECK(in.type == NULL);
    CHECK_STATUS(GP_EUNSUPPORTED, gp_incoming_decode(&in, &got, &err));
    gp_incoming_close(&in);
    attacker_close(bad);
    pair_close(ends);
}

/* ---- the socket file ---- */

TEST(the_socket_is_ours_alone_and_leaves_with_its_channel)
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
               err); /* as after a crash: the old file is in the way */
    gp_channel_close(first, 0);
    CHECK_INT(0, stat(path, &seen)); /* the file is the second's: the first leaves it alone */
    gp_channel_close(second, 0);
    CHECK_INT(-1, stat(path, &seen));
}

TEST(paths_of_a_hundred_bytes_work_and_longer_ones_are_named)
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
    REQUIRE_OK(gp_channel_connect(&dealer, endpoint_of(path), &plain, PATIENCE_MS, &err), err);
    gp_channel_close(dealer, 0);
    gp_channel_close(channel, 0);
    CHECK_STATUS(GP_EIO, gp_channel_bind(&channel, scratch_path("no/such/dir"), &plain, &err));
}

/* A greeting byte from path, as uid: 1 = got one, 0 = the link was closed, 2 = could not even connect. */
static int greeting_as(uid_t uid, const char *path)
{
    pid_t child = fork();
    int result = 3;

    if (child == 0) { /* bare system calls only: ZeroMQ's context is not this process's */
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        struct timeval patience = { .tv_sec = PATIENCE_MS / 1000 };
        char byte;
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);

        snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
        if (uid != 0 && setuid(uid) != 0)
            _exit(3);
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
            _exit(2);
        _exit(read(fd, &byte, 1) == 1 ? 1 : 0);
    }
    waitpid(child, &result, 0);
    return WIFEXITED(result) ? WEXITSTATUS(result) : 3;
}

TEST(other_users_are_kept_out_by_mode_and_by_filter)
{
    const char *path = scratch_path("uid");
    gp_channel *router;
    gp_error err;

    if (geteuid() != 0)
        SKIP("only root can try as another user");
    REQUIRE_OK(gp_channel_bind(&router, path, &plain, &err), err);
    CHECK_INT(0, chmod(scratch_dir, 0755));
    CHECK_INT(1, greeting_as(0, path));
    CHECK_INT(2, greeting_as(65534, path));
    CHECK_INT(0, chmod(path, 0777)); /* as if the mode had failed us */
    CHECK_INT(0, greeting_as(65534, path));
    CHECK_INT(0, chmod(scratch_dir, 0700));
    gp_channel_close(router, 0);
}

TEST(opening_survives_every_failing_allocation_and_leaks_no_descriptor)
{
    gp_channel *channel = NULL;
    const char *path = scratch_path("alloc");
    int before = descriptors_of(getpid());

    CHECK_EVERY_ALLOCATION(gp_channel_bind(&channel, path, &plain, NULL), gp_channel_close(channel, 0));
    CHECK_EVERY_ALLOCATION(gp_channel_connect(&channel, endpoint_of(path), &plain, 0, NULL),
                           gp_channel_close(channel, 0));
    CHECK_INT(before, descriptors_of(getpid()));
}

TEST(on_a_bulk_link_a_body_is_still_at_most_one_mebibyte)
{
    pair ends = pair_open(&bulk);
    attacker bad = attacker_connect(scratch_path("pair"));
    size_t bytes = GP_BODY_BYTES_MAX + 1;
    char *big = gp_calloc(1, bytes);

    attacker_send(bad, good_envelope, GOOD_BYTES, true);
    attacker_send(bad, big, bytes, false);
    honest_passes(ends, 1, "over 1 MiB");
    gp_free(big);
    attacker_close(bad);
    pair_close(ends);
}

TEST(links_with_heartbeats_work_and_a_flood_of_refused_messages_does_not_hold_the_loop)
{
    static const gp_channel_options beating = { .heartbeat = true };
    pair ends = pair_open(&beating);
    attacker bad = attacker_connect(scratch_path("pair"));
    gp_incoming in;
    gp_error err;

    for (int i = 0; i < 200; i++)
        attacker_send(bad, "x", 1, false);
    for (int64_t deadline = gp_now_ms() + PATIENCE_MS; gp_now_ms() < deadline; usleep(1000))
        if (gp_channel_pending(ends.router))
            break;
    usleep(20000); /* let most of them arrive; fewer than 64 pass the test too */
    CHECK_STATUS(GP_ETIMEDOUT, gp_channel_receive(ends.router, &in, &err));
    CHECK(gp_channel_get_stats(ends.router).refused <= 64);
    honest_passes(ends, 200, "no envelope");
    attacker_close(bad);
    pair_close(ends);
}

TEST(a_peer_killed_in_the_middle_of_sending_leaves_whole_messages_only)
{
    const char *path = scratch_path("killed");
    int started[2];
    gp_channel *router;
    gp_incoming in;
    gp_error err;
    unsigned whole = 0;

    CHECK_INT(0, pipe(started));
    pid_t child = fork(); /* before any context of ours: the child makes its own */

    if (child == 0) {
        gp_channel *dealer;
        gp_predict_part part = { .count = 1 };
        char byte;

        if (read(started[0], &byte, 1) != 1 ||
            gp_channel_connect(&dealer, endpoint_of(path), &bulk, PATIENCE_MS, NULL) != GP_OK)
            _exit(1);
        for (;;) {
            gp_payload payloads[2] = { payload_big(1 << 20), { .data = "end", .bytes = 3 } };

            gp_channel_send(dealer, NULL, &(gp_envelope){ 0 }, &gp_msg_predict_part, &part, payloads, 2,
                            NULL);
        }
    }
    REQUIRE_OK(gp_channel_bind(&router, path, &bulk, &err), err);
    CHECK_INT(1, write(started[1], "x", 1));
    while (whole < 5 && receive_wait(router, &in, PATIENCE_MS) == GP_OK) {
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

/* A fresh channel, so that its buffers are allocated in the send. */
static gp_status send_from_fresh_channel(const char *path)
{
    gp_channel *dealer;
    gp_predict_part part = { .count = 1 };
    gp_status status = gp_channel_connect(&dealer, endpoint_of(path), &plain, PATIENCE_MS, NULL);

    if (status != GP_OK)
        return status;
    gp_payload payload = { .data = "x", .bytes = 1, .release = payload_counted };

    payloads_given++;
    status =
        gp_channel_send(dealer, NULL, &(gp_envelope){ 0 }, &gp_msg_predict_part, &part, &payload, 1, NULL);
    gp_channel_close(dealer, PATIENCE_MS);
    return status;
}

TEST(sending_survives_every_failing_allocation_and_releases_each_payload)
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
    CHECK_STATUS(GP_OK, receive_wait(router, &in, PATIENCE_MS));
    CHECK_INT(1, in.payload_count);
    gp_incoming_close(&in);
    CHECK_STATUS(GP_ETIMEDOUT, receive_wait(router, &in, 50)); /* the failed ones sent nothing */
    gp_channel_close(router, 0);                               /* the context ends: all is released */
    CHECK_INT(payloads_given, released);
}
