#include "worker/process/mailbox.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/system/seal.h"

enum { EXTRA = 2 }; /* entries reserved for RESET and QUIT */

struct gp_mailbox {
    int wake;

    pthread_mutex_t lock; /* protects commands and replies; the event ring is lock-free */
    pthread_cond_t work;  /* signalled when a command is posted */
    pthread_cond_t room;  /* signalled when a reply is removed */
    gp_command *commands[GP_MAILBOX_COMMANDS + EXTRA]; /* oldest first */
    uint32_t command_count;
    gp_link *link; /* link on which compute waits; NULL: none */
    gp_reply replies[GP_MAILBOX_REPLIES];
    uint32_t reply_first, reply_count;

    /* Ring with one writer and one reader. Positions only increase; the entry index is position
     * % GP_MAILBOX_EVENTS. */
    _Atomic uint64_t events_written, events_read;
    _Atomic uint64_t dropped;
    uint64_t looked_at; /* entries returned by the last peek; used by control only */
    gp_mailbox_event event[GP_MAILBOX_EVENTS];
};

gp_status gp_mailbox_new(gp_mailbox **out, gp_error *err)
{
    gp_mailbox *mailbox = gp_calloc(1, sizeof(*mailbox));

    if (mailbox == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a mailbox");
    mailbox->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (mailbox->wake < 0) {
        gp_free(mailbox);
        return gp_fail_errno(err, GP_EIO, "cannot create an eventfd for the mailbox");
    }
    pthread_mutex_init(&mailbox->lock, NULL);
    pthread_cond_init(&mailbox->work, NULL);
    pthread_cond_init(&mailbox->room, NULL);
    *out = mailbox;
    return GP_OK;
}

void gp_mailbox_free(gp_mailbox *mailbox)
{
    if (mailbox == NULL)
        return;
    gp_mailbox_discard(mailbox);
    while (mailbox->reply_count > 0)
        gp_mailbox_drop_reply(mailbox);
    pthread_cond_destroy(&mailbox->room);
    pthread_cond_destroy(&mailbox->work);
    pthread_mutex_destroy(&mailbox->lock);
    close(mailbox->wake);
    gp_free(mailbox);
}

/* ---- wakeup ---- */

int gp_mailbox_fd(const gp_mailbox *mailbox)
{
    return mailbox->wake;
}

void gp_mailbox_wake(const gp_mailbox *mailbox)
{
    /* a full counter means that the reader is awake */
    (void)!write(mailbox->wake, &(uint64_t){ 1 }, sizeof(uint64_t));
}

void gp_mailbox_calm(gp_mailbox *mailbox)
{
    uint64_t count;

    (void)!read(mailbox->wake, &count, sizeof(count));
}

/* ---- commands ---- */

gp_status gp_mailbox_post(gp_mailbox *mailbox, gp_command_kind kind, gp_incoming *message, gp_error *err)
{
    bool urgent = kind == GP_COMMAND_RESET || kind == GP_COMMAND_QUIT;
    gp_command *command = gp_malloc(sizeof(*command));

    if (command == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a command");
    command->kind = kind;
    command->posted_ns = gp_now_ns();
    pthread_mutex_lock(&mailbox->lock);
    if (mailbox->command_count >= GP_MAILBOX_COMMANDS + (urgent ? EXTRA : 0)) {
        pthread_mutex_unlock(&mailbox->lock);
        gp_free(command);
        return gp_fail(err, GP_EBUSY, "the queue is full (%d requests); wait for a reply",
                       GP_MAILBOX_COMMANDS);
    }
    command->has_message = message != NULL;
    if (message != NULL)
        gp_incoming_move(&command->message, message);
    mailbox->commands[mailbox->command_count++] = command;
    pthread_cond_signal(&mailbox->work);
    if (mailbox->link != NULL)
        gp_link_wake(mailbox->link);
    pthread_mutex_unlock(&mailbox->lock);
    return GP_OK;
}

void gp_mailbox_ring_link(gp_mailbox *mailbox, gp_link *link)
{
    pthread_mutex_lock(&mailbox->lock);
    mailbox->link = link;
    pthread_mutex_unlock(&mailbox->lock);
}

bool gp_mailbox_waiting(gp_mailbox *mailbox)
{
    pthread_mutex_lock(&mailbox->lock);
    bool waiting = mailbox->command_count != 0;

    pthread_mutex_unlock(&mailbox->lock);
    return waiting;
}

void gp_mailbox_discard(gp_mailbox *mailbox)
{
    pthread_mutex_lock(&mailbox->lock);
    for (uint32_t i = 0; i < mailbox->command_count; i++) {
        gp_command_close(mailbox->commands[i]);
        gp_free(mailbox->commands[i]);
    }
    mailbox->command_count = 0;
    pthread_mutex_unlock(&mailbox->lock);
}

bool gp_mailbox_take(gp_mailbox *mailbox, int timeout_ms, gp_command *out)
{
    gp_command *command;
    int64_t until_ns = gp_now_ns() + (int64_t)timeout_ms * 1000000;
    const struct timespec until = { .tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000 };
    int code = 0;

    pthread_mutex_lock(&mailbox->lock);
    while (mailbox->command_count == 0 && code != ETIMEDOUT) {
        if (timeout_ms < 0)
            pthread_cond_wait(&mailbox->work, &mailbox->lock);
        else
            code = pthread_cond_clockwait(&mailbox->work, &mailbox->lock, CLOCK_MONOTONIC, &until);
    }
    if (mailbox->command_count == 0) {
        pthread_mutex_unlock(&mailbox->lock);
        return false;
    }
    command = mailbox->commands[0];
    mailbox->command_count--;
    memmove(mailbox->commands, mailbox->commands + 1, mailbox->command_count * sizeof(mailbox->commands[0]));
    pthread_mutex_unlock(&mailbox->lock);
    out->kind = command->kind;
    out->posted_ns = command->posted_ns;
    out->has_message = command->has_message;
    if (command->has_message)
        gp_incoming_move(&out->message, &command->message);
    gp_free(command);
    return true;
}

void gp_command_close(gp_command *command)
{
    if (command->has_message)
        gp_incoming_close(&command->message);
    command->has_message = false;
}

/* ---- blobs ---- */

struct gp_blob {
    _Atomic uint32_t references;
    int fd; /* sealed memfd; -1: none */
    size_t bytes;
    unsigned char data[];
};

gp_status gp_blob_new(gp_blob **out, const void *data, size_t bytes, gp_error *err)
{
    gp_blob *blob = bytes > SIZE_MAX - sizeof(*blob) ? NULL : gp_malloc(sizeof(*blob) + bytes);

    if (blob == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a reply of %zu bytes", bytes);
    atomic_init(&blob->references, 1);
    blob->fd = -1;
    blob->bytes = bytes;
    if (bytes > 0)
        memcpy(blob->data, data, bytes);
    *out = blob;
    return GP_OK;
}

gp_status gp_blob_new_sealed(gp_blob **out, const float *weights, size_t count, gp_error *err)
{
    const uint64_t bytes = count * sizeof(float);
    gp_blob *blob = NULL;
    gp_status status = gp_blob_new(&blob, &bytes, sizeof(bytes), err);

    if (status == GP_OK)
        status = gp_seal_new(&blob->fd, weights, bytes, err);
    if (status != GP_OK) {
        gp_blob_unref(blob);
        return status;
    }
    *out = blob;
    return GP_OK;
}

int gp_blob_fd(const gp_blob *blob)
{
    return blob->fd;
}

void gp_blob_unref(gp_blob *blob)
{
    if (blob == NULL || atomic_fetch_sub(&blob->references, 1) != 1)
        return;
    if (blob->fd >= 0)
        close(blob->fd);
    gp_free(blob);
}

static void blob_release(void *data, void *hint)
{
    (void)data;
    gp_blob_unref(hint);
}

gp_payload gp_blob_payload(gp_blob *blob)
{
    atomic_fetch_add(&blob->references, 1);
    return (gp_payload){ .data = blob->data, .bytes = blob->bytes, .release = blob_release, .hint = blob };
}

/* ---- replies ---- */

gp_envelope gp_reply_envelope(const gp_envelope *to)
{
    return (gp_envelope){ .correlation = to->correlation, .lease = to->lease, .generation = to->generation };
}

/* Append a reply; call with the lock held. */
static void reply_append(gp_mailbox *mailbox, const gp_reply *reply)
{
    gp_reply *place = &mailbox->replies[(mailbox->reply_first + mailbox->reply_count) % GP_MAILBOX_REPLIES];

    *place = *reply;
    place->event = atomic_load_explicit(&mailbox->events_written, memory_order_relaxed);
    mailbox->reply_count++;
}

void gp_mailbox_reply(gp_mailbox *mailbox, const gp_reply *reply)
{
    assert(reply->payload_count <= GP_REPLY_PAYLOADS);
    pthread_mutex_lock(&mailbox->lock);
    while (mailbox->reply_count == GP_MAILBOX_REPLIES)
        pthread_cond_wait(&mailbox->room, &mailbox->lock);
    reply_append(mailbox, reply);
    pthread_mutex_unlock(&mailbox->lock);
    gp_mailbox_wake(mailbox);
}

bool gp_mailbox_try_reply(gp_mailbox *mailbox, const gp_reply *reply)
{
    assert(reply->payload_count == 0);
    pthread_mutex_lock(&mailbox->lock);
    const bool fits = mailbox->reply_count < GP_MAILBOX_REPLIES * 3 / 4;

    if (fits)
        reply_append(mailbox, reply);
    pthread_mutex_unlock(&mailbox->lock);
    if (fits)
        gp_mailbox_wake(mailbox);
    return fits;
}

/* Return the oldest reply, even if events that precede it are pending. The pointer stays valid
 * after the unlock, because only control removes replies. */
static const gp_reply *reply_oldest(gp_mailbox *mailbox)
{
    const gp_reply *oldest;

    pthread_mutex_lock(&mailbox->lock);
    oldest = mailbox->reply_count == 0 ? NULL : &mailbox->replies[mailbox->reply_first];
    pthread_mutex_unlock(&mailbox->lock);
    return oldest;
}

const gp_reply *gp_mailbox_peek_reply(gp_mailbox *mailbox)
{
    const gp_reply *oldest = reply_oldest(mailbox);

    if (oldest == NULL || oldest->event > atomic_load_explicit(&mailbox->events_read, memory_order_relaxed))
        return NULL;
    return oldest;
}

void gp_mailbox_drop_reply(gp_mailbox *mailbox)
{
    gp_reply gone;

    pthread_mutex_lock(&mailbox->lock);
    assert(mailbox->reply_count > 0);
    gone = mailbox->replies[mailbox->reply_first];
    mailbox->reply_first = (mailbox->reply_first + 1) % GP_MAILBOX_REPLIES;
    mailbox->reply_count--;
    pthread_cond_signal(&mailbox->room);
    pthread_mutex_unlock(&mailbox->lock);
    for (uint32_t i = 0; i < gone.payload_count; i++)
        gp_blob_unref(gone.payloads[i]);
}

/* ---- training events ---- */

void gp_mailbox_begin_event(gp_mailbox *mailbox)
{
    atomic_store(&mailbox->dropped, 0);
}

void gp_mailbox_put_event(gp_mailbox *mailbox, const gp_mailbox_event *item)
{
    uint64_t written = atomic_load_explicit(&mailbox->events_written, memory_order_relaxed);
    uint64_t waiting = written - atomic_load_explicit(&mailbox->events_read, memory_order_acquire);

    if (waiting >= GP_MAILBOX_EVENTS - (item->kind == GP_MAILBOX_EVENT_STEPS ? GP_MAILBOX_RESERVED : 0)) {
        atomic_fetch_add_explicit(&mailbox->dropped, 1, memory_order_relaxed);
        return;
    }
    mailbox->event[written % GP_MAILBOX_EVENTS] = *item;
    atomic_store_explicit(&mailbox->events_written, written + 1, memory_order_release);
    if (waiting == GP_MAILBOX_EVENTS / 2)
        gp_mailbox_wake(mailbox);
}

gp_mailbox_event_kind gp_mailbox_peek_event(gp_mailbox *mailbox, gp_mailbox_event_message *out)
{
    uint64_t first = atomic_load_explicit(&mailbox->events_read, memory_order_relaxed);
    /* Load events_written before the oldest reply: then every reply that precedes these events is
     * visible. */
    uint64_t end = atomic_load_explicit(&mailbox->events_written, memory_order_acquire);
    const gp_reply *oldest = reply_oldest(mailbox);

    if (oldest != NULL && oldest->event < end)
        end = oldest->event;
    mailbox->looked_at = 0;
    if (first == end)
        return GP_MAILBOX_EVENT_NONE;
    const gp_mailbox_event *item = &mailbox->event[first % GP_MAILBOX_EVENTS];

    if (item->kind != GP_MAILBOX_EVENT_STEPS) {
        if (item->kind == GP_MAILBOX_EVENT_VALIDATION)
            out->validation = item->validation;
        else
            out->validating = item->validating;
        mailbox->looked_at = 1;
        return item->kind;
    }
    gp_train_steps *steps = &out->steps;

    steps->records_count = 0;
    steps->dropped = atomic_load_explicit(&mailbox->dropped, memory_order_relaxed);
    while (first != end && steps->records_count < GP_RECORDS_MAX &&
           mailbox->event[first % GP_MAILBOX_EVENTS].kind == GP_MAILBOX_EVENT_STEPS)
        steps->records[steps->records_count++] = mailbox->event[first++ % GP_MAILBOX_EVENTS].record;
    mailbox->looked_at = steps->records_count;
    return GP_MAILBOX_EVENT_STEPS;
}

void gp_mailbox_drop_event(gp_mailbox *mailbox)
{
    atomic_fetch_add_explicit(&mailbox->events_read, mailbox->looked_at, memory_order_release);
    mailbox->looked_at = 0;
}
