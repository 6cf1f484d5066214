/* link_client.h: the client side of a link, without the client library, for test programs. */
#ifndef LINK_CLIENT_H
#define LINK_CLIENT_H

#include <fcntl.h>
#include <poll.h>
#include <sha2.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "proto/local/control_socket.h"
#include "proto/task/link.h"
#include "proto/task/task_wire.h"
#include "tests/gp_test.h"

enum { ANSWER_MS = 300000, CONTENT_MAX = 1 << 22 };

typedef struct link_client {
    gp_link *link;
    int segment, wakeup_fd, control_socket;
    uint64_t id, blob; /* last ones used */
    uint32_t function;

    /* Sends a blob to the worker. */
    void (*send_blob)(struct link_client *client, uint64_t number, int fd);
    ino_t inode; /* inode of the last received blob */
    bool hold;   /* keep the blob descriptor in `held` */
    int held;
} link_client;

/* An answer, copied from the ring or from a blob. */
typedef struct answered {
    gp_answer head;
    size_t bytes;
    unsigned char content[CONTENT_MAX + 1]; /* NUL-terminated */
} answered;

static answered last; /* too large for the stack */

static void client_open(link_client *client)
{
    gp_error err;

    memset(client, 0, sizeof(*client));
    client->control_socket = -1;
    client->wakeup_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (gp_link_new(&client->link, &client->segment, &err) != GP_OK) {
        GP_TEST_FAIL("%s", err.message);
        abort();
    }
}

static int file_of(const void *data, size_t bytes, int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes || fcntl(fd, F_ADD_SEALS, seals) != 0)
        abort();
    return fd;
}

enum { ALL_SEALS = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW };

/* Send a blob with the contents of fd and return the blob number. */
static uint64_t blob_put(link_client *client, int fd)
{
    client->send_blob(client, ++client->blob, fd);
    return client->blob;
}

/* Reserve the next call. The caller fills in the rest before call_send(). */
static gp_call *call_new(link_client *client, uint16_t kind, const void *payload, size_t bytes)
{
    gp_call *call = gp_link_reserve(client->link, bytes);

    if (call == NULL) {
        GP_TEST_FAIL("the ring is full");
        abort();
    }
    call->kind = kind;
    call->id = ++client->id;
    call->attempt = 1;
    if (bytes != 0)
        memcpy(call->payload, payload, bytes);
    return call;
}

static uint64_t call_send(link_client *client)
{
    gp_link_commit(client->link);
    gp_link_ring(client->link);
    return client->id;
}

static void answer_blob_read(link_client *client)
{
    gp_control_socket_request request;
    struct stat facts;
    gp_error err;
    int fd = -1;

    if (gp_control_socket_receive_fd(client->control_socket, &request, &fd, ANSWER_MS, &err) != GP_OK) {
        GP_TEST_FAIL("a blob did not arrive: %s", err.message);
        return;
    }
    CHECK_INT(GP_CONTROL_SOCKET_BLOB, request.what);
    CHECK_INT(last.head.blob, request.lease);
    CHECK((fcntl(fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW)) == (F_SEAL_SHRINK | F_SEAL_GROW));
    last.bytes = last.head.payload_bytes < CONTENT_MAX ? last.head.payload_bytes : CONTENT_MAX;
    if (pread(fd, last.content, last.bytes, 0) != (ssize_t)last.bytes)
        GP_TEST_FAIL("blob %llu is too short", (unsigned long long)request.lease);
    if (fstat(fd, &facts) == 0)
        client->inode = facts.st_ino;
    if (client->hold)
        client->held = fd;
    else
        close(fd);
}

/* Wait for the next answer and store it in `last`. Sleeps on the eventfd, which also tests the
 * wakeups. */
static bool answer_any(link_client *client)
{
    int64_t deadline = gp_now_ms() + ANSWER_MS;
    const void *record;
    uint64_t count;
    gp_error err;
    gp_status status;

    while ((status = gp_link_next(client->link, &record, &err)) == GP_ETIMEDOUT) {
        if (gp_now_ms() > deadline) {
            GP_TEST_FAIL("no reply");
            return false;
        }
        if (gp_link_asleep(client->link, false))
            poll(&(struct pollfd){ .fd = client->wakeup_fd, .events = POLLIN }, 1, ANSWER_MS);
        gp_link_awake(client->link);
        (void)!read(client->wakeup_fd, &count, sizeof(count));
    }
    if (status != GP_OK) {
        GP_TEST_FAIL("%s", err.message);
        return false;
    }
    memcpy(&last.head, record, sizeof(last.head));
    last.bytes = last.head.blob != 0 ? gp_link_payload_max(client->link) : last.head.payload_bytes;
    memcpy(last.content, ((const gp_answer *)record)->payload, last.bytes);
    gp_link_drop(client->link);
    if (last.head.blob != 0 && last.head.kind == GP_ANSWER_DONE)
        answer_blob_read(client);
    last.content[last.bytes] = '\0';
    return true;
}

/* Wait for the end of that call and skip other answers. */
static bool answer(link_client *client, uint64_t id)
{
    while (answer_any(client)) {
        if (last.head.kind != GP_ANSWER_DONE)
            continue;
        CHECK_INT(id, last.head.id);
        CHECK(last.head.ended_ns >= last.head.begun_ns);
        return true;
    }
    return false;
}

static __attribute__((unused)) void check_failed(gp_status status, const char *text)
{
    CHECK_STATUS(status, last.head.status);
    CHECK_CONTAINS((const char *)last.content, text);
}

/* ---- common requests ---- */

static uint64_t object_send(link_client *client, const char *path, uint32_t number)
{
    unsigned char payload[sizeof(gp_task_object) + 300];
    gp_task_object *about = (void *)payload;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat facts;
    unsigned char *content;
    gp_call *call;
    SHA2_CTX hash;

    if (file < 0 || fstat(file, &facts) != 0)
        abort();
    content = gp_malloc((size_t)facts.st_size);
    if (content == NULL || read(file, content, (size_t)facts.st_size) != facts.st_size)
        abort();
    close(file);
    SHA256Init(&hash);
    SHA256Update(&hash, content, (size_t)facts.st_size);
    SHA256Final(about->sha256, &hash);
    about->bytes = (uint64_t)facts.st_size;
    snprintf((char *)payload + sizeof(*about), sizeof(payload) - sizeof(*about), "%s", path);
    call = call_new(client, GP_CALL_OBJECT, payload, sizeof(*about) + strlen(path) + 1);
    call->blob = blob_put(client, file_of(content, (size_t)facts.st_size, ALL_SEALS));
    call->payload_bytes = (uint64_t)facts.st_size;
    call->count = number;
    gp_free(content);
    return call_send(client);
}

static uint64_t function_send(link_client *client, uint32_t object, uint32_t number, const char *name)
{
    gp_call *call = call_new(client, GP_CALL_FUNCTION, name, strlen(name));

    call->count = object;
    call->function = number;
    return call_send(client);
}

/* Return the number of a function in object 1. */
static uint32_t function_of(link_client *client, const char *name)
{
    answer(client, function_send(client, 1, ++client->function, name));
    CHECK_STATUS(GP_OK, last.head.status);
    return client->function;
}

static uint64_t run_send(link_client *client, uint32_t function, const void *argument, size_t bytes)
{
    call_new(client, GP_CALL_RUN, argument, bytes)->function = function;
    return call_send(client);
}

static bool run(link_client *client, uint32_t function, const void *argument, size_t bytes)
{
    return answer(client, run_send(client, function, argument, bytes));
}

#endif
