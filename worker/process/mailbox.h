/* mailbox.h -- message queues between the control thread and the compute thread. The threads
 * share no other state except gp_train_control.
 *
 *   control --- commands (8) ------------> compute   compute waits on a condition variable
 *           <-- events: steps, validations           lock-free ring; never blocks compute
 *           <-- replies (16) --------------          compute waits for space; notes do not wait
 *           <-- eventfd -------------------          wakes control
 *
 * Training events wake control only when the ring is half full: control polls periodically, so a
 * step costs no system call. Replies wake control at once. The order of events and replies is kept:
 * a reply records how many events precede it, and gp_mailbox_peek_reply() returns the reply only
 * after control has consumed these.
 *
 * Each role belongs to one thread for the mailbox lifetime. */
#ifndef GP_MAILBOX_H
#define GP_MAILBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "proto/channel/channel.h"
#include "proto/task/link.h"
#include "proto/message/messages.h"

typedef struct gp_mailbox gp_mailbox;

enum {
    GP_MAILBOX_COMMANDS = 8,
    GP_MAILBOX_REPLIES = 16,
    GP_MAILBOX_EVENTS = 4096,
    GP_MAILBOX_RESERVED = 1024, /* ring entries reserved for validations */
    GP_REPLY_PAYLOADS = 6,
};

gp_status gp_mailbox_new(gp_mailbox **out, gp_error *err);

/* accepts NULL; releases all pending commands and replies */
void gp_mailbox_free(gp_mailbox *mailbox);

/* ---- commands ---- */

/* Commands from control to compute. */
typedef enum gp_command_kind {
    GP_COMMAND_WARM, /* open the backend before the first request */
    GP_COMMAND_TRAIN,
    GP_COMMAND_PREPARE, /* build objects for a training in the next lease generation */
    GP_COMMAND_PREDICT_BEGIN,
    GP_COMMAND_PREDICT_ASK,
    GP_COMMAND_PREDICT_END,
    GP_COMMAND_TASKS, /* serve the link set by gp_run_offer() */
    GP_COMMAND_RESET, /* free the lease state, then reply `idle` */
    GP_COMMAND_QUIT,
} gp_command_kind;

/* A command for compute. Must not be copied, because it owns a message. */
typedef struct gp_command {
    gp_command_kind kind;
    int64_t posted_ns; /* CLOCK_MONOTONIC */
    bool has_message;
    gp_incoming message; /* client message with payloads; released by gp_command_close() */
} gp_command;

/* Control: post a command. *message (may be NULL) is moved only on GP_OK. GP_EBUSY: the queue is
 * full; RESET and QUIT have reserved entries. */
gp_status gp_mailbox_post(gp_mailbox *mailbox, gp_command_kind kind, gp_incoming *message, gp_error *err);

/* Control: drop all commands that compute has not taken. */
void gp_mailbox_discard(gp_mailbox *mailbox);

/* Compute: set the link on which compute waits. A posted command then wakes that link. NULL:
 * compute no longer waits on a link. */
void gp_mailbox_ring_link(gp_mailbox *mailbox, gp_link *link);

/* Compute: return whether a command is pending. */
bool gp_mailbox_waiting(gp_mailbox *mailbox);

/* Compute: take the next command, waiting at most timeout_ms (-1: no limit). *out may be
 * uninitialised; release it with gp_command_close(). false: timeout; *out is unchanged. */
bool gp_mailbox_take(gp_mailbox *mailbox, int timeout_ms, gp_command *out);
void gp_command_close(gp_command *command);

/* ---- payloads: reference-counted bytes, because ZeroMQ sends them asynchronously ---- */

typedef struct gp_blob gp_blob;

gp_status gp_blob_new(gp_blob **out, const void *data, size_t bytes,
                      gp_error *err); /* copies the data; one reference */
void gp_blob_unref(gp_blob *blob);    /* any thread; accepts NULL */

/* Create a sealed memfd copy of weights, with one reference. The payload contains the size in
 * bytes as u64. The descriptor is sent over the control socket before the message. */
gp_status gp_blob_new_sealed(gp_blob **out, const float *weights, size_t count, gp_error *err);
int gp_blob_fd(const gp_blob *blob); /* the sealed copy's descriptor; -1: none */

/* Return a payload that takes a new reference; release() drops the reference. */
gp_payload gp_blob_payload(gp_blob *blob);

/* ---- replies ---- */

/* Message from compute to a client, or an internal notification to control. */
typedef struct gp_reply {
    const gp_message_type *type; /* NULL: an internal notification, no message to send */
    gp_peer peer;
    gp_envelope envelope; /* correlation, lease and generation from the request */
    union {
        gp_error_reply error;
        gp_train_ready train_ready;
        gp_train_done train_done;
        gp_train_note train_note;
        gp_predict_ready predict_ready;
        gp_predict_part predict_part;
        gp_ok_reply ok;
    } body;
    gp_blob *payloads[GP_REPLY_PAYLOADS]; /* references owned by the reply */
    uint32_t payload_count;
    bool idle;      /* compute keeps no lease state after this reply */
    bool left;      /* if type is NULL: compute has left the link; otherwise a reset is complete */
    uint64_t event; /* set by gp_mailbox_reply(): events that precede the reply */
} gp_reply;

/* Return the envelope for a reply to a message. */
gp_envelope gp_reply_envelope(const gp_envelope *to);

/* Compute: append a reply, waiting while the queue is full. *reply is copied; the payload
 * references move to the mailbox. */
void gp_mailbox_reply(gp_mailbox *mailbox, const gp_reply *reply);

/* Compute: append a reply without payloads whose loss is acceptable. Return false if the queue is
 * three quarters full: the client does not read. */
bool gp_mailbox_try_reply(gp_mailbox *mailbox, const gp_reply *reply);

/* Control: return the oldest reply, if all events that precede it have been consumed. NULL: none.
 * gp_mailbox_drop_reply() removes the reply and releases the payloads. */
const gp_reply *gp_mailbox_peek_reply(gp_mailbox *mailbox);
void gp_mailbox_drop_reply(gp_mailbox *mailbox);

/* ---- training events ---- */

/* Compute: reset the count of dropped events, at the start of a training. */
void gp_mailbox_begin_event(gp_mailbox *mailbox);

typedef enum gp_mailbox_event_kind {
    GP_MAILBOX_EVENT_NONE,
    GP_MAILBOX_EVENT_STEPS,
    GP_MAILBOX_EVENT_VALIDATION,
    GP_MAILBOX_EVENT_VALIDATING
} gp_mailbox_event_kind;

/* Training event. */
typedef struct gp_mailbox_event {
    gp_mailbox_event_kind kind; /* GP_MAILBOX_EVENT_STEPS: one step record */
    union {
        gp_train_record record;
        gp_train_validation validation;
        gp_train_validating validating;
    };
} gp_mailbox_event;

/* Compute: append an event; never blocks. A step record is dropped and counted if only the
 * GP_MAILBOX_RESERVED entries are free, a validation if the ring is full. */
void gp_mailbox_put_event(gp_mailbox *mailbox, const gp_mailbox_event *item);

/* Message with one or more training events, by event kind. */
typedef union gp_mailbox_event_message {
    gp_train_steps steps;
    gp_train_validation validation;
    gp_train_validating validating;
} gp_mailbox_event_message;

/* Control: copy the oldest events to *out as one message: up to GP_RECORDS_MAX step records with
 * the drop count, or one validation, or one validation progress. Events later than the oldest
 * pending reply are not returned. Consume the message with gp_mailbox_drop_event(). */
gp_mailbox_event_kind gp_mailbox_peek_event(gp_mailbox *mailbox, gp_mailbox_event_message *out);
void gp_mailbox_drop_event(gp_mailbox *mailbox);

/* ---- control's wakeup eventfd ---- */

int gp_mailbox_fd(const gp_mailbox *mailbox); /* poll for POLLIN */
/* control: clear the eventfd, before reading the queues */
void gp_mailbox_calm(gp_mailbox *mailbox);
void gp_mailbox_wake(const gp_mailbox *mailbox); /* any thread: signal the eventfd */

#endif
