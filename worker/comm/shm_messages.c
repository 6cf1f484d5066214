/* Tagged messages: one pipe per ordered rank pair, and a receive queue.
 *
 * A message consists of a header and a payload, written in pieces as the pipe has room. A rank that
 * waits here, to send or to receive, also reads incoming messages into the queue. So a cycle of
 * senders deadlocks only if the queues or the memory of all its ranks are full; in_send_cycle()
 * detects that. Each rank waits on a single wakeup counter. A peer increments the counter when it
 * writes to a pipe to this rank, and when it makes room in a pipe from this rank. */
#include <string.h>

#include "common/base/memory/alloc.h"
#include "worker/comm/shm.h"

static shm_pipe *pipe_between(const gp_comm *comm, uint32_t from, uint32_t to)
{
    return &comm->pipes[(size_t)from * comm->world + to];
}

static shm_word *wakeup_fd_of(const gp_comm *comm, uint32_t rank)
{
    return &comm->control->lines[rank].wakeup_fd;
}

/* Write as much of `data` as the pipe has room for and return the byte count. 0: the pipe is full,
 * or the peer's counter is invalid; in that case the group ends. */
static size_t pipe_put(gp_comm *comm, uint32_t to, const uint8_t *data, size_t bytes)
{
    shm_pipe *pipe = pipe_between(comm, comm->rank, to);
    uint32_t written = atomic_load_explicit(&pipe->written, memory_order_relaxed);
    uint32_t used = written - atomic_load_explicit(&pipe->taken, memory_order_acquire);
    size_t room = used <= PIPE_BYTES ? PIPE_BYTES - used : 0, from, part;

    if (used > PIPE_BYTES)
        gp_shm_end(comm->control, SHM_MALFORMED, to);
    if (bytes > room)
        bytes = room;
    if (bytes == 0)
        return 0;
    from = written % PIPE_BYTES;
    part = bytes < PIPE_BYTES - from ? bytes : PIPE_BYTES - from;
    memcpy(pipe->data + from, data, part);
    memcpy(pipe->data, data + part, bytes - part);
    atomic_store_explicit(&pipe->written, written + (uint32_t)bytes, memory_order_release);
    gp_shm_post(wakeup_fd_of(comm, to));
    return bytes;
}

/* Read up to `bytes` from the pipe and return the byte count. 0: the pipe is empty, or the peer's
 * counter is invalid; in that case the group ends. */
static size_t pipe_take(gp_comm *comm, uint32_t from, uint8_t *data, size_t bytes)
{
    shm_pipe *pipe = pipe_between(comm, from, comm->rank);
    uint32_t taken = atomic_load_explicit(&pipe->taken, memory_order_relaxed);
    uint32_t used = atomic_load_explicit(&pipe->written, memory_order_acquire) - taken;
    size_t at, part;

    if (used > PIPE_BYTES) {
        gp_shm_end(comm->control, SHM_MALFORMED, from);
        return 0;
    }
    if (bytes > used)
        bytes = used;
    if (bytes == 0)
        return 0;
    at = taken % PIPE_BYTES;
    part = bytes < PIPE_BYTES - at ? bytes : PIPE_BYTES - at;
    memcpy(data, pipe->data + at, part);
    memcpy(data + part, pipe->data, bytes - part);
    atomic_store_explicit(&pipe->taken, taken + (uint32_t)bytes, memory_order_release);
    gp_shm_post(wakeup_fd_of(comm, from));
    return bytes;
}

/* ---- receive queue ---- */

static shm_message *message_new(gp_comm *comm, uint32_t rank, uint32_t tag, size_t bytes)
{
    shm_message *message = gp_malloc(sizeof(*message) + bytes);

    if (message == NULL)
        return NULL;
    *message = (shm_message){ .rank = rank, .tag = tag, .bytes = bytes };
    comm->queue_bytes += sizeof(*message) + bytes;
    return message;
}

static void message_free(gp_comm *comm, shm_message *message)
{
    comm->queue_bytes -= sizeof(*message) + message->bytes;
    gp_free(message);
}

static void queue_append(gp_comm *comm, shm_message *message)
{
    *comm->last = message;
    comm->last = &message->next;
}

/* Return the link to the oldest matching message. *link is NULL if none matches. */
static shm_message **queue_find(gp_comm *comm, uint32_t rank, uint32_t tag)
{
    shm_message **link = &comm->first;

    while (*link != NULL &&
           ((rank != GP_COMM_ANY && (*link)->rank != rank) || (tag != GP_COMM_ANY && (*link)->tag != tag)))
        link = &(*link)->next;
    return link;
}

static void queue_remove(gp_comm *comm, shm_message **link)
{
    shm_message *message = *link;

    *link = message->next;
    if (comm->last == &message->next)
        comm->last = link;
    message_free(comm, message);
}

/* Return true if the queue accepts another message. An empty queue accepts any size. */
static bool queue_has_room(const gp_comm *comm, size_t bytes)
{
    return comm->queue_bytes == 0 || comm->queue_bytes + sizeof(shm_message) + bytes <= comm->queue_bytes_max;
}

void gp_shm_messages_clear(gp_comm *comm)
{
    while (comm->first != NULL)
        queue_remove(comm, &comm->first);
    for (uint32_t k = 0; k < GP_COMM_WORLD_MAX; k++) {
        if (comm->inbound[k].message != NULL)
            message_free(comm, comm->inbound[k].message);
        comm->inbound[k] = (shm_inbound){ .message = NULL };
    }
    comm->first = NULL;
    comm->last = &comm->first;
}

/* ---- reading from pipes ---- */

/* Result after reading from pipes. */
typedef struct shm_intake {
    bool moved; /* some bytes were read */
    /* a message from the rank of interest stays in the pipe because the queue is full */
    bool full;
    bool poor; /* a message stays in the pipe because memory allocation failed */
} shm_intake;

/* Read a message header and allocate the message. Return false if the header is incomplete or
 * malformed, or if the queue or memory is full. */
static bool inbound_begin(gp_comm *comm, uint32_t from, uint32_t interest, shm_intake *intake)
{
    shm_inbound *in = &comm->inbound[from];
    size_t got = pipe_take(comm, from, (uint8_t *)&in->head + in->head_got, sizeof(in->head) - in->head_got);

    in->head_got += got;
    intake->moved |= got > 0;
    if (in->head_got < sizeof(in->head))
        return false;
    if (in->head.zero != 0 || in->head.tag == GP_COMM_ANY || in->head.bytes > GP_COMM_MESSAGE_BYTES_MAX) {
        gp_shm_end(comm->control, SHM_MALFORMED, from);
        return false;
    }
    if (!queue_has_room(comm, in->head.bytes)) {
        intake->full |= comm->first != NULL && (interest == from || interest == GP_COMM_ANY);
        return false;
    }
    in->message = message_new(comm, from, in->head.tag, in->head.bytes);
    in->got = 0;
    intake->poor |= in->message == NULL;
    return in->message != NULL;
}

/* Read complete messages from all ranks into the queue, until the pipes are empty or the queue is
 * full.
 *   interest  rank that the caller waits for, or GP_COMM_ANY; see shm_intake.full */
static shm_intake take_in(gp_comm *comm, uint32_t interest)
{
    shm_intake intake = { .moved = false };

    for (uint32_t k = 0; k < comm->world; k++) {
        shm_inbound *in = &comm->inbound[k];

        while (k != comm->rank && (in->message != NULL || inbound_begin(comm, k, interest, &intake))) {
            size_t got = pipe_take(comm, k, in->message->data + in->got, in->message->bytes - in->got);

            in->got += got;
            intake.moved |= got > 0;
            if (in->got < in->message->bytes)
                break;
            queue_append(comm, in->message);
            in->message = NULL;
            in->head_got = 0;
        }
    }
    return intake;
}

/* ---- sending and receiving ---- */

/* Return true if this rank, which is about to wait for room in a pipe, is in a cycle of ranks that
 * each wait for room in the pipe to the next one.
 *
 * This is a deadlock: a waiting rank has read all messages that its queue accepts, so the pipes
 * stay full. A wait lasts until the wakeup count changes. The counts are read after the waits, so
 * all these waits exist at the same time. The last rank of a cycle detects it, because these loads
 * and stores are totally ordered. */
static bool in_send_cycle(const gp_comm *comm)
{
    uint32_t ranks[GP_COMM_WORLD_MAX], counts[GP_COMM_WORLD_MAX], count = 0, rank = comm->rank;

    do {
        uint64_t blocked = atomic_load(&comm->control->lines[rank].blocked);

        if (count == comm->world || (uint32_t)blocked - 1 >= comm->world)
            return false;
        ranks[count] = rank;
        counts[count++] = (uint32_t)(blocked >> 32);
        rank = (uint32_t)blocked - 1;
    } while (rank != comm->rank);
    for (uint32_t i = 0; i < count; i++)
        if (atomic_load(&wakeup_fd_of(comm, ranks[i])->value) != counts[i])
            return false;
    return true;
}

/* Write all bytes to a pipe. A started message must be completed, so only the group's end
 * interrupts this function. */
static gp_status put_all(gp_comm *comm, uint32_t to, const void *data, size_t bytes, gp_error *err)
{
    const uint8_t *at = data;

    while (bytes > 0) {
        uint32_t wakeup_fd = atomic_load(&wakeup_fd_of(comm, comm->rank)->value);
        size_t put = pipe_put(comm, to, at, bytes);
        gp_status status;

        at += put;
        bytes -= put;
        if (put > 0 || take_in(comm, GP_COMM_ANY).moved)
            continue;
        atomic_store(&comm->control->lines[comm->rank].blocked, (uint64_t)wakeup_fd << 32 | (to + 1));
        if (in_send_cycle(comm)) {
            /* if a member has exited, report that instead of a deadlock */
            gp_shm_check(comm, wakeup_fd_of(comm, comm->rank), wakeup_fd + 1, to, true);
            gp_shm_end(comm->control, SHM_FULL, to);
        }
        status = gp_shm_wait(comm, wakeup_fd_of(comm, comm->rank), wakeup_fd + 1, to, err);
        if (status != GP_OK)
            return status;
    }
    return GP_OK;
}

gp_status gp_comm_send(gp_comm *comm, uint32_t rank, uint32_t tag, const void *data, size_t bytes,
                       gp_error *err)
{
    shm_head head = { .tag = tag, .bytes = bytes };
    gp_status status = gp_shm_check_formed(comm, err);

    if (status != GP_OK)
        return status;
    if (rank >= comm->world)
        return gp_fail(err, GP_EINVAL, "cannot send to rank %u: the group has %u ranks", rank, comm->world);
    if (tag == GP_COMM_ANY)
        return gp_fail(err, GP_EINVAL, "invalid tag %u: reserved for any tag; use a smaller one", tag);
    if (bytes > GP_COMM_MESSAGE_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "the message has %zu bytes, at most %zu are allowed; send it in parts",
                       bytes, GP_COMM_MESSAGE_BYTES_MAX);
    status = gp_shm_verdict(comm, err);
    if (status != GP_OK)
        return status;
    if (rank == comm->rank) {
        shm_message *message;

        if (!queue_has_room(comm, bytes))
            return gp_fail(err, GP_ELIMIT,
                           "%zu bytes of unreceived messages to this rank; receive them first",
                           comm->queue_bytes);
        message = message_new(comm, rank, tag, bytes);
        if (message == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for a message of %zu bytes to ourselves", bytes);
        if (bytes > 0)
            memcpy(message->data, data, bytes);
        queue_append(comm, message);
        return GP_OK;
    }
    status = put_all(comm, rank, &head, sizeof(head), err);
    if (status == GP_OK)
        status = put_all(comm, rank, data, bytes, err);
    return status;
}

static gp_status check_source(const gp_comm *comm, uint32_t rank, gp_error *err)
{
    gp_status status = gp_shm_check_formed(comm, err);

    if (status == GP_OK && rank != GP_COMM_ANY && rank >= comm->world)
        return gp_fail(err, GP_EINVAL, "cannot receive from rank %u: the group has %u ranks", rank,
                       comm->world);
    return status;
}

static gp_comm_message describe(const shm_message *message)
{
    return (gp_comm_message){ .rank = message->rank, .tag = message->tag, .bytes = message->bytes };
}

gp_status gp_comm_receive(gp_comm *comm, uint32_t rank, uint32_t tag, void *buffer, size_t capacity,
                          gp_comm_message *message, gp_error *err)
{
    gp_status status = check_source(comm, rank, err);

    if (status != GP_OK)
        return status;
    shm_word *wakeup_fd = wakeup_fd_of(comm, comm->rank);

    status = gp_shm_verdict(comm, err);
    while (status == GP_OK) {
        uint32_t rung = atomic_load(&wakeup_fd->value);
        shm_intake intake = take_in(comm, rank);
        shm_message **link = queue_find(comm, rank, tag);

        if (*link != NULL) {
            *message = describe(*link);
            if (message->bytes > capacity)
                return gp_fail(err, GP_ELIMIT,
                               "the message has %zu bytes, but the buffer only %zu; use a larger buffer",
                               message->bytes, capacity);
            if (message->bytes > 0)
                memcpy(buffer, (*link)->data, message->bytes);
            queue_remove(comm, link);
            return GP_OK;
        }
        if (intake.full)
            return gp_fail(err, GP_ELIMIT, "%zu bytes of other unreceived messages; receive them first",
                           comm->queue_bytes);
        if (intake.poor)
            return gp_fail(err, GP_ENOMEM, "no memory for an arriving message");
        if (rank == comm->rank || comm->world == 1)
            return gp_fail(
                err, GP_ESTATE,
                "deadlock: this rank waits for a message from itself with tag %u that it has not sent", tag);
        if (!intake.moved)
            status = gp_shm_wait(comm, wakeup_fd, rung + 1, rank, err);
    }
    return status;
}

gp_status gp_comm_probe(gp_comm *comm, uint32_t rank, uint32_t tag, bool *found, gp_comm_message *message,
                        gp_error *err)
{
    gp_status status = check_source(comm, rank, err);
    shm_message *oldest;

    if (status != GP_OK)
        return status;
    shm_word *wakeup_fd = wakeup_fd_of(comm, comm->rank);
    uint32_t rung = atomic_load(&wakeup_fd->value);

    take_in(comm, rank);
    oldest = *queue_find(comm, rank, tag);
    if (oldest == NULL)
        /* Detect exited members here, because a caller that polls never enters gp_shm_wait(). */
        gp_shm_check(comm, wakeup_fd, rung + 1, rank, false);
    status = gp_shm_verdict(comm, err);
    if (status != GP_OK)
        return status;
    *found = oldest != NULL;
    if (oldest != NULL)
        *message = describe(oldest);
    return GP_OK;
}
