/* stage.h: the scheduler and client side of real worker processes (STAGE_PROGRAM), for test
 * programs. */
#ifndef WORKER_STAGE_H
#define WORKER_STAGE_H

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/system/seal.h"
#include "proto/channel/channel.h"
#include "proto/local/control_socket.h"
#include "proto/message/messages.h"
#include "proto/local/paths.h"
#include "proto/task/task_wire.h"
#include "tests/gp_test.h"
#include "tests/proto/scratch.h"

extern char **environ;

enum { TIMEOUT_MS = 300000, WORKERS = 2, EPOCH = 3 };

typedef struct worker {
    pid_t pid;
    gp_slot slot;
    gp_peer peer;
    gp_worker_ready ready;
    gp_channel *client; /* link to the worker as a client */
    int control_socket; /* control socket for weights; 0: none */
} worker;

typedef struct stage {
    gp_paths paths;
    gp_channel *scheduler;
    gp_control_socket *control_socket;
    worker workers[WORKERS];
    uint8_t token[16];
    char faults[80];
} stage;

static stage s;

/* epoch of the simulated scheduler */
static uint64_t stage_epoch = EPOCH;
static const char *stage_network = "{}", *stage_data = "/data"; /* arguments for train() */

/* ---- the scheduler's side ---- */

static bool scheduler_open(void)
{
    gp_channel_options options = { .security = GP_SECURITY_NONE };
    gp_error err;

    memset(s.token, 0x5a, sizeof(s.token));
    stage_epoch = EPOCH;
    setenv("GRADPOOL_RUNTIME_DIR", scratch_path("run"), 1);
    setenv("GRADPOOL_STATE_DIR", scratch_path("state"), 1);
    if (gp_paths_find(&s.paths, "default", &err) != GP_OK || gp_paths_create(&s.paths, &err) != GP_OK ||
        gp_channel_bind(&s.scheduler, s.paths.scheduler_socket, &options, &err) != GP_OK ||
        gp_control_socket_open(&s.control_socket, s.paths.scheduler_control_socket, 16, &err) != GP_OK) {
        GP_TEST_FAIL("no scheduler: %s", err.message);
        return false;
    }
    return true;
}

static __attribute__((unused)) void scheduler_dies(void)
{
    gp_control_socket_close(s.control_socket);
    gp_channel_close(s.scheduler, 0);
    s.control_socket = NULL;
    s.scheduler = NULL;
}

/* Open the next scheduler at the same address. */
static __attribute__((unused)) bool scheduler_begins(uint64_t epoch)
{
    gp_channel_options options = { .security = GP_SECURITY_NONE };
    gp_error err;

    stage_epoch = epoch;
    if (gp_channel_bind(&s.scheduler, s.paths.scheduler_socket, &options, &err) == GP_OK &&
        gp_control_socket_open(&s.control_socket, s.paths.scheduler_control_socket, 16, &err) == GP_OK)
        return true;
    GP_TEST_FAIL("no scheduler: %s", err.message);
    return false;
}

static void socket_serve(void)
{
    gp_control_socket_event event;

    for (gp_control_socket_next(s.control_socket, &event); event.kind != GP_CONTROL_SOCKET_NOTHING;
         gp_control_socket_next(s.control_socket, &event))
        if (event.kind == GP_CONTROL_SOCKET_HELLO)
            gp_control_socket_admit(s.control_socket, event.id, stage_epoch);
}

static void spawn(worker *w, uint32_t index, const char *device)
{
    char number[16];
    char *arguments[] = { (char *)(uintptr_t)STAGE_PROGRAM,
                          (char *)(uintptr_t) "--index",
                          number,
                          (char *)(uintptr_t) "--incarnation",
                          (char *)(uintptr_t) "1",
                          (char *)(uintptr_t) "--device",
                          (char *)(uintptr_t)device,
                          (char *)(uintptr_t) "--claim-wait",
                          (char *)(uintptr_t) "0",
                          (char *)(uintptr_t) "--shared",
                          NULL };

    snprintf(number, sizeof(number), "%u", index);
    if (posix_spawn(&w->pid, STAGE_PROGRAM, NULL, NULL, arguments, environ) != 0)
        abort();
    w->slot.index = index;
    w->slot.incarnation = 1;
}

/* Wait for the next message on a channel. Unless id is 0, skip messages of other types. Serve the
 * control socket meanwhile. */
static bool await(gp_channel *channel, uint32_t id, gp_incoming *in)
{
    int64_t deadline = gp_now_ms() + TIMEOUT_MS;

    while (gp_now_ms() < deadline) {
        struct pollfd fds[] = {
            { .fd = gp_channel_fd(channel), .events = POLLIN },
            { .fd = s.control_socket == NULL ? -1 : gp_control_socket_fd(s.control_socket), .events = POLLIN }
        };

        while (gp_channel_receive(channel, in, NULL) == GP_OK) {
            if (id == 0 || in->envelope.message == id)
                return true;
            gp_incoming_close(in);
        }
        if (s.control_socket != NULL)
            socket_serve();
        poll(fds, 2, gp_channel_pending(channel) ? 0 : 50);
    }
    GP_TEST_FAIL("message %u did not arrive", id);
    return false;
}

/* Wait for a message of that type and decode it. */
static bool await_decoded(gp_channel *channel, const gp_message_type *type, void *message,
                          gp_envelope *envelope)
{
    gp_incoming in;
    gp_error err = { .code = GP_OK };

    memset(message, 0, type->size);
    if (!await(channel, type->id, &in))
        return false;
    if (gp_incoming_decode(&in, message, &err) != GP_OK)
        GP_TEST_FAIL("%s: %s", type->name, err.message);
    if (envelope != NULL)
        *envelope = in.envelope;
    gp_incoming_close(&in);
    return err.code == GP_OK;
}

static void tell(const worker *w, gp_envelope envelope, const gp_message_type *type, const void *message)
{
    gp_error err;

    envelope.epoch = stage_epoch;
    if (gp_channel_send(s.scheduler, &w->peer, &envelope, type, message, NULL, 0, &err) != GP_OK)
        GP_TEST_FAIL("%s: %s", type->name, err.message);
}

/* Exchange hello, welcome, worker_ready and worker_welcome. */
static bool join(worker *w)
{
    gp_welcome welcome = {
        .protocol = GP_PROTOCOL, .build = "test", .pool = "default", .pid = (uint32_t)getpid()
    };
    gp_incoming in;

    if (!await(s.scheduler, GP_ID(hello), &in))
        return false;
    w->peer = in.peer;
    gp_incoming_close(&in);
    tell(w, (gp_envelope){ 0 }, &gp_msg_welcome, &welcome);
    if (!await_decoded(s.scheduler, &gp_msg_worker_ready, &w->ready, NULL))
        return false;
    w->slot = w->ready.slot;
    tell(w, (gp_envelope){ 0 }, &gp_msg_worker_welcome, &(gp_worker_welcome){ 0 });
    return true;
}

static bool workers_start(uint32_t count)
{
    bool all = scheduler_open();

    for (uint32_t i = 0; i < count && all; i++) {
        spawn(&s.workers[i], i + 1, "cpu");
        all = join(&s.workers[i]);
    }
    return all;
}

static int wait_exit(worker *w)
{
    int status = -1;

    for (int64_t deadline = gp_now_ms() + TIMEOUT_MS; gp_now_ms() < deadline; usleep(2000))
        if (waitpid(w->pid, &status, WNOHANG) == w->pid) {
            w->pid = 0;
            return status;
        }
    GP_TEST_FAIL("worker %u does not exit", w->slot.index);
    return -1;
}

/* End the workers and clear `s`. Does nothing if the stage was not opened. */
static void stage_close(void)
{
    for (int i = 0; i < WORKERS; i++) {
        gp_channel_close(s.workers[i].client, 0);
        if (s.workers[i].control_socket > 0)
            close(s.workers[i].control_socket);
        if (s.workers[i].pid > 0) {
            kill(s.workers[i].pid, SIGKILL);
            waitpid(s.workers[i].pid, NULL, 0);
        }
    }
    gp_channel_close(s.scheduler, 0);
    gp_control_socket_close(s.control_socket);
    unsetenv("GRADPOOL_FAULT");
    memset(&s, 0, sizeof(s));
}

static gp_envelope of(uint64_t lease, uint32_t generation)
{
    return (gp_envelope){ .lease = lease, .generation = generation, .correlation = lease * 100 + generation };
}

/* Send the grant to all `count` workers of the lease, without waiting. */
static void grant_send(uint32_t count, uint64_t lease, uint32_t generation)
{
    static gp_grant grant;

    memset(&grant, 0, sizeof(grant));
    grant.client_pid = (uint32_t)getpid();
    grant.members_count = count;
    memcpy(grant.token, s.token, sizeof(grant.token));
    for (uint32_t i = 0; i < count; i++)
        grant.members[i] = s.workers[i].slot;
    for (grant.rank = 0; grant.rank < count; grant.rank++)
        tell(&s.workers[grant.rank], of(lease, generation), &gp_msg_grant, &grant);
}

static bool grant_acked(uint32_t count, uint64_t lease, uint32_t generation)
{
    gp_grant_ack ack;
    gp_envelope envelope;

    for (uint32_t i = 0; i < count; i++) {
        if (!await_decoded(s.scheduler, &gp_msg_grant_ack, &ack, &envelope))
            return false;
        CHECK_INT(lease, envelope.lease);
        CHECK_INT(generation, envelope.generation);
        CHECK_INT(lease * 100 + generation, envelope.correlation);
        CHECK_INT(EPOCH, envelope.epoch);
    }
    return true;
}

/* ---- the client's side ---- */

static void ask(worker *w, gp_envelope envelope, const gp_message_type *type, const void *message,
                const gp_payload *payloads, size_t count)
{
    gp_error err;

    if (gp_channel_send(w->client, NULL, &envelope, type, message, payloads, count, &err) != GP_OK)
        GP_TEST_FAIL("%s: %s", type->name, err.message);
}

static bool dial(worker *w)
{
    gp_channel_options options = { .bulk = true };
    gp_hello hello = {
        .role = GP_ROLE_CLIENT, .protocol_min = 1, .protocol_max = 1, .build = "test", .pid = 1
    };
    gp_welcome welcome;
    gp_error err;

    if (gp_channel_connect(&w->client, w->slot.endpoint, &options, TIMEOUT_MS, &err) != GP_OK) {
        GP_TEST_FAIL("dial: %s", err.message);
        return false;
    }
    ask(w, (gp_envelope){ .correlation = 1 }, &gp_msg_hello, &hello, NULL, 0);
    return await_decoded(w->client, &gp_msg_welcome, &welcome, NULL);
}

static void attach_send(worker *w, uint64_t lease, uint32_t generation)
{
    gp_attach attach = { .client_pid = (uint32_t)getpid() };

    memcpy(attach.token, s.token, sizeof(attach.token));
    ask(w, of(lease, generation), &gp_msg_attach, &attach, NULL, 0);
}

static bool attach(worker *w, uint64_t lease, uint32_t generation)
{
    gp_ok_reply ok;

    attach_send(w, lease, generation);
    return await_decoded(w->client, &gp_msg_ok_reply, &ok, NULL);
}

/* Send a weights descriptor through the worker's control socket; fd -1: allow the worker to send
 * one. */
static __attribute__((unused)) void weights_send(worker *w, uint64_t lease, uint32_t generation, int fd)
{
    gp_control_socket_hello hello = {
        .role = GP_ROLE_CLIENT, .protocol_min = 1, .protocol_max = 1, .pid = 1
    };
    gp_control_socket_request request = { .what = GP_CONTROL_SOCKET_WEIGHTS,
                                          .lease = lease,
                                          .generation = generation };
    gp_control_socket_reply reply;
    gp_error err = { .message = "" };

    memcpy(request.token, s.token, sizeof(request.token));
    if (w->control_socket == 0 && gp_control_socket_connect(&w->control_socket, &reply, w->slot.door, &hello,
                                                            TIMEOUT_MS, &err) != GP_OK)
        GP_TEST_FAIL("door: %s", err.message);
    else if (gp_control_socket_send_fd(w->control_socket, &request, fd, &err) != GP_OK)
        GP_TEST_FAIL("weights: %s", err.message);
}

/* Copy the weights that the worker sent before a message. false: none of that size arrived. */
static __attribute__((unused)) bool weights_receive(worker *w, void *into, size_t bytes)
{
    gp_control_socket_request request;
    const void *data = NULL;
    gp_error err = { .message = "" };
    int fd = -1;
    bool mapped = gp_control_socket_receive_fd(w->control_socket, &request, &fd, 0, &err) == GP_OK &&
                  fd >= 0 && request.what == GP_CONTROL_SOCKET_WEIGHTS &&
                  gp_seal_map(&data, fd, bytes, &err) == GP_OK;

    if (fd >= 0)
        close(fd);
    if (!mapped) {
        GP_TEST_FAIL("no weights: %s", err.message);
        return false;
    }
    memcpy(into, data, bytes);
    munmap((void *)(uintptr_t)data, bytes);
    return true;
}

/* Send predict_begin for a model, preceded by the weights. */
static __attribute__((unused)) void predict_open(worker *w, uint64_t lease, const gp_predict_begin *begin,
                                                 const char *netspec, const float *weights, uint64_t bytes)
{
    gp_payload payloads[] = { { .data = netspec, .bytes = strlen(netspec) },
                              { .data = &bytes, .bytes = sizeof(bytes) } };
    gp_error err;
    int fd;

    if (gp_seal_new(&fd, weights, bytes, &err) != GP_OK) {
        GP_TEST_FAIL("weights: %s", err.message);
        return;
    }
    weights_send(w, lease, 1, fd);
    close(fd);
    ask(w, of(lease, 1), &gp_msg_predict_begin, begin, payloads, 2);
}

static __attribute__((unused)) void train(worker *w, uint64_t lease, uint32_t generation, uint32_t world,
                                          const char *options)
{
    gp_train_begin begin = { .workers = world };
    gp_payload payloads[] = { { .data = stage_network, .bytes = strlen(stage_network) },
                              { .data = options, .bytes = strlen(options) } };

    snprintf(begin.data, sizeof(begin.data), "%s", stage_data);
    weights_send(w, lease, generation, -1);
    ask(w, of(lease, generation), &gp_msg_train_begin, &begin, payloads, 2);
}

static void check_refused(worker *w, gp_status status, const char *text)
{
    gp_error_reply reply;

    if (!await_decoded(w->client, &gp_msg_error_reply, &reply, NULL))
        return;
    CHECK_INT(status, reply.code);
    CHECK_CONTAINS(reply.message, text);
}

/* Begin lease 7, generation 1, with `count` attached workers. */
static bool lease_begin(uint32_t count)
{
    if (!workers_start(count))
        return false;
    grant_send(count, 7, 1);
    if (!grant_acked(count, 7, 1))
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (!dial(&s.workers[i]) || !attach(&s.workers[i], 7, 1))
            return false;
    return true;
}

static __attribute__((unused)) void await_steps(worker *w)
{
    static gp_train_steps steps;

    await_decoded(w->client, &gp_msg_train_steps, &steps, NULL);
}

#endif
