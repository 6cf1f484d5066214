/* control_tasks.c -- the control thread's part of a link: it receives the descriptors, hands the link to compute, and
 * takes it away again.
 *
 *   door: segment, bell ---> offers --task_open--> seat: compute serves it --left--> freed
 *                              '-- the connection ends: closed      '-- the connection ends, revoke: stopped */
#include <unistd.h>

#include "common/base/text/log.h"
#include "worker/task/blobs.h"
#include "worker/comm/process.h"
#include "worker/daemon/control_parts.h"
#include "worker/task/tasks.h"

/* ---- what comes through the door ---- */

static void offer_close(task_offer *offer)
{
    if (offer->segment >= 0)
        close(offer->segment);
    if (offer->bell >= 0)
        close(offer->bell);
    *offer = (task_offer){ .segment = -1, .bell = -1 };
}

static task_offer *offer_of(control *c, uint64_t door_id)
{
    for (int i = 0; i < TASK_OFFERS_MAX; i++)
        if (c->offers[i].door_id == door_id)
            return &c->offers[i];
    return NULL;
}

static void offer_keep(control *c, const gp_door_event *event)
{
    task_offer *offer = offer_of(c, event->id);
    int *place;

    if (offer == NULL)
        offer = offer_of(c, 0);
    if (offer == NULL || event->request.lease != c->lease || c->resetting ||
        !control_token_equal(event->request.token, c->grant.token)) {
        gp_log_event(GP_LOG_INFO, "descriptors-refused",
                     GP_LOG_WITH({ "lease", .number = (int64_t)event->request.lease }),
                     "turned the descriptors of a link away");
        close(event->fd);
        return;
    }
    if (offer->door_id == 0)
        *offer = (task_offer){ .door_id = event->id, .segment = -1, .bell = -1 };
    place = event->request.what == GP_DOOR_SEGMENT ? &offer->segment : &offer->bell;
    if (*place >= 0)
        close(*place);
    *place = event->fd;
}

static void blob_take(control *c, const gp_door_event *event)
{
    gp_error err;

    if (c->seat == NULL || c->seat_door != event->id) {
        if (event->fd >= 0)
            close(event->fd);
    } else if (gp_blobs_add(c->seat->blobs, event->request.lease, event->fd, &err) != GP_OK) {
        gp_log_event(GP_LOG_WARN, "link-ended", GP_LOG_WITH({ "lease", .number = (int64_t)c->lease }),
                     "the link ends: %s", err.message);
        gp_seat_stop(c->seat);
    }
}

bool control_tasks_request(control *c, const gp_door_event *event)
{
    switch (event->request.what) {
    case GP_DOOR_SEGMENT:
    case GP_DOOR_BELL:
        if (event->fd >= 0)
            offer_keep(c, event);
        return true;
    case GP_DOOR_BLOB:
        blob_take(c, event);
        return true;
    default:
        return false;
    }
}

void control_tasks_gone(control *c, uint64_t door_id)
{
    task_offer *offer = offer_of(c, door_id);

    if (offer != NULL)
        offer_close(offer);
    if (c->seat != NULL && c->seat_door == door_id) {
        gp_log_event(GP_LOG_INFO, "client-gone", GP_LOG_WITH({ "lease", .number = (int64_t)c->lease }),
                     "the client of the lease has hung up");
        gp_seat_stop(c->seat);
    }
}

/* ---- opening and leaving ---- */

static gp_status seat_open(control *c, task_offer *offer, gp_error *err)
{
    bool spin = !c->options->device->shared;
    gp_status status = gp_seat_new(&c->seat, offer->segment, offer->bell,
                                   gp_door_peer_fd(c->door, offer->door_id), c->mailbox, spin, err);

    if (status != GP_OK)
        return status;
    offer->segment = offer->bell = -1;
    c->seat_door = offer->door_id;
    control_tasks_regroup(c);
    gp_train_control_reset(&c->train);
    gp_run_offer(c->run, c->seat);
    status = gp_mailbox_post(c->mailbox, GP_COMMAND_TASKS, NULL, err);
    if (status != GP_OK) {
        gp_seat_free(c->seat);
        c->seat = NULL;
        return status;
    }
    c->used = true;
    c->work = WORK_TASKS;
    return GP_OK;
}

gp_status control_tasks_open(control *c, const gp_task_open *open, gp_error *err)
{
    task_offer *offer = NULL;
    gp_status status;

    if (open->link_version != GP_LINK_VERSION || open->task_abi != GP_TASK_ABI)
        return gp_fail(
            err, GP_EVERSION,
            "the client has version %u of links and ABI %u of tasks, worker %u has %d and %d; install the "
            "same version of gradpool on both sides",
            open->link_version, open->task_abi, c->options->index, GP_LINK_VERSION, GP_TASK_ABI);
    control_doors(c); /* what was sent before this message */
    for (int i = 0; i < TASK_OFFERS_MAX && offer == NULL; i++)
        if (c->offers[i].segment >= 0 && c->offers[i].bell >= 0)
            offer = &c->offers[i];
    if (offer == NULL)
        return gp_fail(err, GP_ESTATE, "no segment and bell of this lease came through the door of worker %u",
                       c->options->index);
    status = seat_open(c, offer, err);
    offer_close(offer);
    return status;
}

void control_tasks_left(control *c)
{
    if (c->seat == NULL)
        return;
    if (atomic_load(&c->seat->used) != 0)
        c->recycle = true;
    gp_run_offer(c->run, NULL);
    gp_door_drop(c->door, c->seat_door); /* tells the client; blobs.c has let go of its copy then */
    gp_seat_free(c->seat);
    c->seat = NULL;
    c->seat_door = 0;
    if (c->work == WORK_TASKS)
        c->work = WORK_IDLE;
}

bool control_tasks_abandoned(const control *c)
{
    return c->revoking && c->seat != NULL && gp_link_running(c->seat->link) != 0 && c->client_pidfd >= 0 &&
           gp_process_dead(c->client_pidfd);
}

void control_tasks_stop(control *c)
{
    if (c->seat != NULL)
        gp_seat_stop(c->seat);
}

void control_tasks_drop(control *c)
{
    control_tasks_left(c);
    for (int i = 0; i < TASK_OFFERS_MAX; i++)
        offer_close(&c->offers[i]);
}

/* ---- while it is served ---- */

void control_tasks_regroup(control *c)
{
    if (c->seat == NULL)
        return;
    atomic_store(&c->seat->rank, c->grant.rank);
    atomic_store(&c->seat->size, c->grant.members_count);
}

/* End the waits of the block that runs: of that call only, if one is named.  What runs changes before the comm does, so
 * under the lock neither is of a later block. */
static void block_end(control *c, uint64_t call)
{
    pthread_mutex_lock(&c->train.lock);
    if (c->train.comm != NULL && (call == 0 || gp_link_running(c->seat->link) == call))
        gp_comm_abort(c->train.comm, c->train.generation);
    pthread_mutex_unlock(&c->train.lock);
}

void control_tasks_cancel(control *c, const gp_task_stop *stop)
{
    if (c->seat != NULL && stop->call != 0)
        block_end(c, stop->call);
}

void control_tasks_lost(control *c, uint32_t index)
{
    uint32_t world = c->seat == NULL ? 0 : atomic_load(&c->seat->world);

    for (uint32_t rank = 0; rank < world && rank < c->grant.members_count; rank++)
        if (c->grant.members[rank].index == index)
            block_end(c, 0);
}
