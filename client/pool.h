/* pool.h -- inside a pool handle: the scheduler's link, the lease, the links to the leased workers.
 *
 *   ATTACHED ---lease_ask---> WAITING ---lease_grant, attach---> LEASED ---release---> ATTACHED
 *                                                                | ^
 *                                          worker_lost, new grant | (generation + 1, attached again)
 *
 * Every call is a loop over pool_next(), which waits for one message from anyone and sees at once when the
 * scheduler is gone (end of file on its door).  Messages that concern no particular call (a worker lost, a new
 * generation, a lease ended) change the handle in pool_next() itself and are also handed to the caller. */
#ifndef GP_POOL_H
#define GP_POOL_H

#include <signal.h>

#include "client/gradpool.h"
#include "common/base/json.h"
#include "proto/channel.h"
#include "proto/messages.h"
#include "proto/places.h"

/* A member that died before its link was up is replaced while the rest of the time to attach goes on. */
enum {
    POOL_SEND_MS = 5000,
    POOL_HELLO_SEND_MS = 200, /* the link was up a moment ago: it is gone again */
    POOL_ATTACH_MS = 20000,   /* one that was stopped is killed after 15 s, and another is granted */
    POOL_LINK_MS = 2000,
    POOL_SLICE_MS = 250,
    POOL_LAST_WORDS_MS = 5,  /* for what a scheduler had sent when it ended */
    POOL_LET_OUT_MS = 2,     /* for what workers were told last to go out */
    POOL_REUNION_MS = 15000, /* for the scheduler that follows one that died */
    POOL_OPEN_MS = 15000,
    POOL_ANSWER_MS = 15000, /* of a scheduler that lives: its disk may be busy, and its cores */
    POOL_ANSWER_TOLD_MS = 5000
};

struct gp_pool {
    gp_places places;
    gp_note_fn note;
    void *note_context;
    struct pool_remote *remote; /* of a pool on another host, which has no door; else NULL */
    int door;                   /* end of file = the scheduler is gone */
    gp_channel *scheduler;
    uint8_t session[16];
    uint64_t epoch, correlation;
    uint32_t scheduler_pid;
    bool dialling; /* a scheduler that dies now is tried again by the one who dials */
    bool forsaken; /* no scheduler followed the one that died, when last looked */
    uint64_t
        reunions; /* schedulers that followed the first: what was asked of the one before is not answered */
    /* The lease; 0 = none. */
    uint64_t lease;
    uint32_t generation;
    gp_lease_grant grant;
    uint32_t workers_min; /* as asked for */
    uint32_t floor;       /* of an elastic lease: lease_ask.workers_floor; set before pool_lease() */
    uint32_t workers_max, environment; /* of an elastic lease: as asked for, or since */
    char purpose[96];
    gp_channel *workers
        [GP_MEMBERS_MAX]; /* of grant.slots, or of those of the generation before until pool_attach() */
    uint32_t
        links; /* of them that may be there; a training has others behind those of the grant (train_join.c) */
    uint32_t turn;          /* of them is looked at first: nobody who says much is heard alone */
    gp_worker_lost lost;    /* the first since the lease began or was renewed; index 0 = none */
    bool regranted;         /* a grant came that is not attached to yet */
    gp_lease_change change; /* of this generation; workers 0 = none */
    bool revoked;           /* lease_ended came; why is in ended */
    gp_lease_ended ended;
};

typedef enum pool_source { POOL_NOBODY, POOL_SCHEDULER, POOL_WORKER } pool_source;

typedef struct pool_message {
    pool_source from; /* NOBODY: the time is over, or a signal came */
    uint32_t rank;    /* of the worker */
    gp_incoming in;   /* closed by pool_message_close() */
} pool_message;

/* Wait at most timeout_ms for the next message.  When the scheduler has died, the one that follows it is dialled, or
 * started, first: that can take up to POOL_REUNION_MS longer, and pool->reunions says that it was.  GP_EPEER: there is
 * none, because the pool ended as it was told, or for so long. */
gp_status pool_next(gp_pool *pool, pool_message *out, int timeout_ms, gp_error *err);
void pool_message_close(pool_message *message);

/* ---- pool_dial.c ---- */

/* Find or start the scheduler, and say hello. */
gp_status pool_dial(gp_pool *pool, const gp_pool_options *options, bool *started, gp_error *err);
/* After end of file at the door: the same, and claim the lease.  GP_EPEER. */
gp_status pool_reunite(gp_pool *pool, gp_error *err);
/* Whether the scheduler's end was an accident: it has left the record of its pool. */
bool pool_missed(const gp_pool *pool);
/* GP_EPEER, in words. */
gp_status pool_scheduler_gone(const gp_pool *pool, gp_error *err);

/* Whether the scheduler is known to be gone. */
bool pool_is_gone(const gp_pool *pool);

/* ---- pool.c ---- */

/* Send to the scheduler; *correlation (may be NULL) is what the answer will carry. */
gp_status pool_tell(gp_pool *pool, const gp_message_type *type, const void *message, uint64_t *correlation,
                    gp_error *err);
gp_status pool_tell_with(gp_pool *pool, const gp_message_type *type, const void *message,
                         const gp_payload *payloads, size_t payload_count, uint64_t *correlation,
                         gp_error *err);
/* Send to the worker of that rank, with the lease and generation in the envelope. */
gp_status pool_tell_worker(gp_pool *pool, uint32_t rank, const gp_message_type *type, const void *message,
                           const gp_payload *payloads, size_t payload_count, uint64_t *correlation,
                           gp_error *err);

/* The same without waiting: to one that may be dead.  GP_EBUSY: its link is down. */
gp_status pool_try_worker(gp_pool *pool, uint32_t rank, const gp_message_type *type, const void *message,
                          gp_error *err);
gp_status pool_try_worker_with(gp_pool *pool, uint32_t rank, const gp_message_type *type, const void *message,
                               const gp_payload *payloads, size_t payload_count, gp_error *err);

/* Ask the scheduler and wait for the answer of that type into reply; an error_reply becomes the error. */
gp_status pool_ask(gp_pool *pool, const gp_message_type *type, const void *message,
                   const gp_message_type *reply_type, void *reply, int timeout_ms, gp_error *err);

/* An error_reply as a gp_error; prefixes nothing. */
gp_status pool_error_from(const gp_incoming *in, gp_error *err);

/* Take the workers asked for and attach to each; waits in the queue, telling note who holds them.
 * stop (may be NULL): not 0 leaves the queue, GP_ECANCELED. */
gp_status pool_lease(gp_pool *pool, const gp_lease_request *request, const char *purpose,
                     const volatile sig_atomic_t *stop, gp_error *err);

/* After a member was replaced: attach to the new generation. */
gp_status pool_attach(gp_pool *pool, gp_error *err);

/* One worker of the present grant, whose old link (if any) is closed: connect, hello and attach.  *attached is the
 * correlation of the ok_reply that will come. */
gp_status pool_dial_worker(gp_pool *pool, uint32_t rank, uint64_t *attached, gp_error *err);

/* Give the lease back; accepts a handle without one. */
void pool_release(gp_pool *pool);

void pool_note(gp_pool *pool, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* How many images could not be read, and the first of them by name.
 *   names  [named] */
void pool_note_skipped(gp_pool *pool, uint64_t count, const char (*names)[128], uint32_t named);

/* Wait until the scheduler is gone. */
gp_status pool_wait_gone(gp_pool *pool, int timeout_ms, gp_error *err);

/* Where a daemon's executable is: what the variable names, else beside this program, else where it was installed. */
gp_status pool_daemon_path(const char *name, const char *variable, char *path, size_t bytes, gp_error *err);

/* The state of the pool; *out is freed with gp_free(). */
gp_status pool_status(gp_pool *pool, gp_status_reply **out, gp_error *err);
/* The same as JSON text (gradpool status --json); jobs may be NULL. */
/* What a worker is called. */
static inline const char *pool_worker_word(const gp_worker_row *row)
{
    static const char *const words[] = { "starting", "idle", "busy", "excluded", "dead" };

    return row->silent_ms != 0 ? "suspect" : words[row->state];
}

gp_status pool_status_write(const gp_status_reply *status, const gp_jobs_reply *jobs, gp_buffer *out,
                            gp_error *err);

/* ---- jobs.c ---- */

/* One page of jobs with ids under `before` (0: from the newest on) in those states (bits; 0: all); freed with
 * gp_free(). */
gp_status pool_jobs_page(gp_pool *pool, uint64_t before, uint32_t states, uint32_t count, gp_jobs_reply **out,
                         gp_error *err);
enum {
    POOL_JOBS_UNFINISHED =
        1 << GP_JOB_ROW_QUEUED | 1 << GP_JOB_ROW_STARTING | 1 << GP_JOB_ROW_RUNNING | 1 << GP_JOB_ROW_STOPPING
};
/* The same for those who show jobs beside other things: of a pool that cannot record jobs an empty page, and a note
 * says why. */
gp_status pool_jobs_glance(gp_pool *pool, uint32_t states, uint32_t count, gp_jobs_reply **out,
                           gp_error *err);
void pool_job_info(gp_job_info *out, const gp_job_row *row);
/* As an object of an array. */
void pool_job_write(gp_json_writer *writer, const gp_job_info *info);

#endif
