/* mailbox.h -- where the control thread and the compute thread meet; they share nothing else but gp_train_control.
 *
 *   control --- commands (8) ------------> compute    waits on a condition variable
 *           <-- news: steps, validations -            a ring without locks; a full one never stops compute
 *           <-- replies (16) --------------           never dropped; compute waits for room
 *           <-- what woke it: an eventfd --
 *
 * News do not wake control until the ring is half full: control looks at its own pace, so a step costs no system
 * call.  Replies wake it at once.  The order in which compute said things is kept: a reply remembers how much news
 * came before it, and gp_mailbox_peek_reply() gives it only when that has been consumed.
 *
 * One thread is control and one is compute, for the mailbox's life. */
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
    GP_MAILBOX_NEWS = 4096,
    GP_MAILBOX_RESERVED = 1024, /* places of the news ring that only validations may take */
    GP_REPLY_PAYLOADS = 6,
};

gp_status gp_mailbox_new(gp_mailbox **out, gp_error *err);
void gp_mailbox_free(gp_mailbox *mailbox); /* accepts NULL; closes and releases what was never taken */

/* ---- commands ---- */

typedef enum gp_command_kind {
    GP_COMMAND_WARM, /* open the backend before it is needed */
    GP_COMMAND_TRAIN,
    GP_COMMAND_PREPARE, /* make ready what a training in the next generation of the lease will need */
    GP_COMMAND_PREDICT_BEGIN,
    GP_COMMAND_PREDICT_ASK,
    GP_COMMAND_PREDICT_END,
    GP_COMMAND_TASKS, /* serve the link that was offered (gp_run_offer) */
    GP_COMMAND_RESET, /* drop what a lease left behind, then say idle */
    GP_COMMAND_QUIT,
} gp_command_kind;

/* Must not be copied: it holds a message. */
typedef struct gp_command {
    gp_command_kind kind;
    int64_t posted_ns; /* CLOCK_MONOTONIC */
    bool has_message;
    gp_incoming message; /* what the client sent, payloads and all; closed by gp_command_close() */
} gp_command;

/* Control: hand over.  *message (may be NULL) is moved on GP_OK only.  GP_EBUSY: as many commands wait as may;
 * RESET and QUIT always find room. */
gp_status gp_mailbox_post(gp_mailbox *mailbox, gp_command_kind kind, gp_incoming *message, gp_error *err);

/* Control: take back all commands that compute has not begun. */
void gp_mailbox_discard(gp_mailbox *mailbox);

/* Compute: while it waits on a link, a command that is posted wakes it there.  NULL: it does not any more. */
void gp_mailbox_ring_link(gp_mailbox *mailbox, gp_link *link);
/* Compute: whether a command waits. */
bool gp_mailbox_waiting(gp_mailbox *mailbox);

/* Compute: wait for the next command, for at most timeout_ms (-1: for ever); *out is uninitialised memory, released by
 * gp_command_close().  false: none came, and *out is as it was. */
bool gp_mailbox_take(gp_mailbox *mailbox, int timeout_ms, gp_command *out);
void gp_command_close(gp_command *command);

/* ---- payloads: bytes that outlive the call that sends them, because ZeroMQ sends them when it can ---- */

typedef struct gp_blob gp_blob;

gp_status gp_blob_new(gp_blob **out, const void *data, size_t bytes,
                      gp_error *err); /* a copy; one reference */
void gp_blob_unref(gp_blob *blob);    /* any thread; accepts NULL */
/* A sealed copy of weights, one reference. The payload has their size, a u64; the descriptor goes
 * through the door before the message. */
gp_status gp_blob_new_sealed(gp_blob **out, const float *weights, size_t count, gp_error *err);
int gp_blob_fd(const gp_blob *blob); /* of the sealed copy; -1: the blob has none */
/* A payload that takes a reference of its own, given back by its release(). */
gp_payload gp_blob_payload(gp_blob *blob);

/* ---- replies ---- */

typedef struct gp_reply {
    const gp_message_type *type; /* NULL: nothing to send, `idle` is the news */
    gp_peer peer;
    gp_envelope envelope; /* correlation, lease and generation of the request */
    union {
        gp_error_reply error;
        gp_train_ready train_ready;
        gp_train_done train_done;
        gp_train_note train_note;
        gp_predict_ready predict_ready;
        gp_predict_part predict_part;
        gp_ok_reply ok;
    } body;
    gp_blob *payloads[GP_REPLY_PAYLOADS]; /* handed over */
    uint32_t payload_count;
    bool idle;     /* compute keeps nothing of the lease after this */
    bool left;     /* with no type: compute has left the link, so this is not the end of a reset */
    uint64_t news; /* filled in: how much news came before it */
} gp_reply;

/* Return the envelope of a reply to a message. */
gp_envelope gp_reply_envelope(const gp_envelope *to);

/* Compute: *reply is copied, its payloads are handed over.  Waits for room. */
void gp_mailbox_reply(gp_mailbox *mailbox, const gp_reply *reply);

/* Control: the oldest reply whose news have been consumed, or NULL; drop releases it with its payloads. */
const gp_reply *gp_mailbox_peek_reply(gp_mailbox *mailbox);
void gp_mailbox_drop_reply(gp_mailbox *mailbox);

/* ---- news of a training ---- */

/* Compute: the number of dropped records goes back to 0. */
void gp_mailbox_begin_news(gp_mailbox *mailbox);

typedef enum gp_news { GP_NEWS_NONE, GP_NEWS_STEPS, GP_NEWS_VALIDATION, GP_NEWS_VALIDATING } gp_news;

typedef struct gp_news_item {
    gp_news kind; /* GP_NEWS_STEPS: one record */
    union {
        gp_train_record record;
        gp_train_validation validation;
        gp_train_validating validating;
    };
} gp_news_item;

/* Compute: append an item; never waits. If the ring is full, the item is dropped and counted: a record when all places but
 * GP_MAILBOX_RESERVED are taken, a validation when all are. */
void gp_mailbox_put_news(gp_mailbox *mailbox, const gp_news_item *item);

typedef union gp_news_message {
    gp_train_steps steps;
    gp_train_validation validation;
    gp_train_validating validating;
} gp_news_message;

/* Control: copy the oldest message: up to GP_RECORDS_MAX records with the number of dropped ones, one validation, or the
 * progress of one. Messages that compute wrote after the oldest pending reply are not returned. Consume the message with
 * gp_mailbox_drop_news(). */
gp_news gp_mailbox_peek_news(gp_mailbox *mailbox, gp_news_message *out);
void gp_mailbox_drop_news(gp_mailbox *mailbox);

/* ---- waking control ---- */

int gp_mailbox_fd(const gp_mailbox *mailbox);    /* POLLIN: look */
void gp_mailbox_calm(gp_mailbox *mailbox);       /* control: before it looks */
void gp_mailbox_wake(const gp_mailbox *mailbox); /* any thread */

#endif
