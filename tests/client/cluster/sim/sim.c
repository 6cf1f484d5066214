#include "tests/client/cluster/sim/sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cluster/pass.h"

enum {
    ENTRIES_MAX = 16,
    FLIGHTS_MAX = 8,
    COMMANDS_MAX = 12,
    CALM_MS = 1500000,       /* longest settled phase */
    SETTLE_MS = 60000,       /* longest life of doubles in it */
    CANCEL_LIMIT_MS = 60000, /* as in `gradpool cancel` */
    JOBS_INTERVAL_MS = 7000,
    CANCELS_LOST_MAX = 3,
    HOSTS = 3,
    FOR_EVER_MS = 1000000000,
    SLOW_RECORD_MS = 3000, /* from the number of an attempt to its begin.json */
    READ_AGE_MS = 200,     /* from a read of the job folder to a cancel that relies on it */
};

sim_bug sim_planted;
bool sim_trace;

/* One job in the engine. */
typedef struct sim_entry {
    char id[16];
    cluster_entry_state state;
    bool forgotten;        /* no longer listed */
    bool hidden;           /* omitted from the next listing */
    int64_t accepted_ms;   /* when the engine accepted the launch */
    int64_t start_ms;      /* QUEUED: when it starts */
    int64_t begin_ms;      /* RUNNING: when the attempt takes its number; 0: it has */
    int64_t finish_ms;     /* RUNNING: when the attempt writes its result; 0: it has none left to do */
    int64_t end_ms;        /* RUNNING: when the processes are gone; 0: not known yet */
    int64_t forget_ms;     /* ENDED: when the engine forgets it */
    int64_t requeue_ms;    /* RUNNING: when the engine requeues it; 0: never */
    int64_t record_ms;     /* RUNNING: when the attempt writes begin.json; 0: it has */
    int64_t taken_ms;      /* when the attempt took its number */
    uint32_t attempt;      /* of the running attempt; 0: none */
    bool fault_free_start; /* requeued often enough */
} sim_entry;

/* A launch on the way to the engine. */
typedef struct sim_flight {
    int64_t accept_ms; /* 0: unused */
} sim_flight;

typedef enum sim_command_kind { SIM_SUBMIT, SIM_JOBS, SIM_WAIT, SIM_CANCEL } sim_command_kind;

/* A gradpool command, on one of several hosts. */
typedef struct sim_command {
    bool alive;
    sim_command_kind kind;
    unsigned host;
    int64_t wake_ms, began_ms;
    int fuse; /* effects until the command is killed; negative: never */
    cluster_listing listing;
    bool has_listing;
    int64_t listing_ms; /* when `listing` was requested, on the clock of the host */
    uint64_t changes;   /* of the record, read before the request */
    cluster_job job;    /* as after the last pass */
} sim_command;

typedef struct sim_world {
    uint64_t random;
    int64_t now;
    sim_tally *tally;
    const char *broken;
    bool calm; /* no more faults */

    /* faults of this run, drawn at its start */
    /* percent */
    unsigned lost_reply, late, dead, cancel_lost, glitch, killed, requeue, refuse, cancels, lingers, full;
    int64_t queue_ms, work_ms, down_from, down_to, amnesia_from, amnesia_to;
    bool glitched, amnesia; /* both were used */

    /* disk */
    bool stored, mark, mark_failed;
    cluster_job disk;
    uint32_t newest; /* attempt */
    char newest_id[16];
    bool begun, result;
    int exit_code;
    int64_t result_ms;
    uint32_t results, zombie_attempt;
    int64_t zombie_ms; /* when the surviving attempt of a requeued entry writes its result; 0: none */

    /* engine */
    sim_entry entries[ENTRIES_MAX];
    uint32_t entry_count, ids;
    sim_flight flights[FLIGHTS_MAX];

    /* commands */
    sim_command commands[COMMANDS_MAX];
    sim_command *active; /* the command whose pass runs */
    int64_t offsets[HOSTS];

    /* what the checks remember */
    uint32_t launches, cancels_lost; /* the latter: in a row */
    int64_t launch_ms;               /* end of the last launch call */
    int64_t absent_first_ms;         /* true request time of the first listing without a live job since */
    int64_t absent_last_ms;          /* and of the last one */
    bool cancel_wanted, cancel_confirmed, refused, job_killed, gave_up;
    bool ended;
} sim_world;

/* ---- helpers ---- */

static uint64_t draw(sim_world *w)
{
    uint64_t z = (w->random += 0x9e3779b97f4a7c15u);

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int64_t between(sim_world *w, int64_t low, int64_t high)
{
    return low + (int64_t)(draw(w) % (uint64_t)(high - low + 1));
}

static bool chance(sim_world *w, unsigned percent)
{
    return !w->calm && draw(w) % 100 < percent;
}

static void trace(const sim_world *w, const char *what, const char *more)
{
    if (sim_trace)
        printf("%8" PRId64 " %s %s\n", w->now, what, more);
}

static void violate(sim_world *w, const char *promise)
{
    if (w->broken == NULL)
        w->broken = promise;
    trace(w, "BROKEN:", promise);
}

static bool is_live(const sim_entry *e)
{
    return e->state != CLUSTER_ENTRY_ENDED;
}

/* ---- engine and job processes ---- */

static void accept_launch(sim_world *w)
{
    sim_entry *e = &w->entries[w->entry_count];

    if (w->entry_count == ENTRIES_MAX)
        return;
    w->entry_count++;
    *e = (sim_entry){ .accepted_ms = w->now,
                      .start_ms = w->now + between(w, 0, chance(w, 50) ? 200 : w->queue_ms) };
    snprintf(e->id, sizeof(e->id), "%u", 4800 + ++w->ids);
    trace(w, "engine accepts", e->id);
}

static void end_entry(sim_world *w, sim_entry *e)
{
    e->state = CLUSTER_ENTRY_ENDED;
    e->forget_ms = w->now + (chance(w, 50) ? 0 : between(w, 0, 300000));
    trace(w, "engine ends", e->id);
}

static void requeue(sim_world *w, sim_entry *e)
{
    w->tally->requeues++;
    e->state = CLUSTER_ENTRY_QUEUED;
    e->start_ms = w->now + between(w, 100, 20000);
    e->begin_ms = e->record_ms = e->finish_ms = e->end_ms = e->requeue_ms = 0;
    e->attempt = 0;
    trace(w, "engine requeues", e->id);
}

static void start_entry(sim_world *w, sim_entry *e)
{
    e->state = CLUSTER_ENTRY_RUNNING;
    e->begin_ms = w->now + between(w, 50, chance(w, 10) ? 150000 : 3000);
    e->finish_ms = e->end_ms = 0;
    e->requeue_ms = chance(w, w->requeue) ? w->now + between(w, 10, 20000) : 0;
    trace(w, "engine starts", e->id);
}

/* The attempt takes the next number, unless the job is over. */
static void begin_attempt(sim_world *w, sim_entry *e)
{
    e->begin_ms = 0;
    if (w->mark || w->result) {
        e->end_ms = w->now + 100;
        return;
    }
    if (w->cancel_confirmed && !w->mark_failed)
        violate(w, "no attempt begins after a confirmed cancel");
    e->attempt = ++w->newest;
    e->taken_ms = w->now;
    w->begun = false;
    w->newest_id[0] = '\0';
    e->record_ms = w->now + between(w, 1, chance(w, 30) ? SLOW_RECORD_MS : 50);
    e->finish_ms = e->record_ms + between(w, 200, w->work_ms);
    trace(w, "attempt takes its number in", e->id);
}

/* The attempt writes begin.json, unless it is fenced. */
static void record_attempt(sim_world *w, sim_entry *e)
{
    e->record_ms = 0;
    if (e->attempt != w->newest)
        return;
    w->begun = true;
    snprintf(w->newest_id, sizeof(w->newest_id), "%s", e->id);
    trace(w, "attempt begins in", e->id);
}

static void write_result(sim_world *w)
{
    w->result = true;
    w->result_ms = w->now;
    w->results++;
    w->tally->results++;
    w->exit_code = (int)between(w, 0, 3);
    trace(w, "result", "");
}

/* The attempt writes its result, or finds that it is fenced. */
static void finish_attempt(sim_world *w, sim_entry *e)
{
    e->finish_ms = 0;
    e->end_ms = w->now + between(w, 0, 3000);
    if (e->attempt != w->newest || w->result)
        return;
    if (chance(w, w->killed)) {
        w->job_killed = true;
        trace(w, "attempt is killed in", e->id);
        return;
    }
    if (chance(w, w->lingers))
        e->end_ms = w->now + FOR_EVER_MS; /* the engine does not notice the end */
    write_result(w);
}

/* The engine's processes of the old attempt may survive a requeue. */
static void requeue_by_engine(sim_world *w, sim_entry *e)
{
    if (e->finish_ms != 0 && chance(w, 30)) {
        w->zombie_attempt = e->attempt;
        w->zombie_ms = e->finish_ms;
    }
    requeue(w, e);
}

static void run_entry(sim_world *w, sim_entry *e)
{
    if (e->state == CLUSTER_ENTRY_QUEUED && w->now >= e->start_ms)
        start_entry(w, e);
    if (e->state == CLUSTER_ENTRY_ENDED && w->now >= e->forget_ms)
        e->forgotten = true;
    if (e->state != CLUSTER_ENTRY_RUNNING)
        return;
    if (e->begin_ms != 0 && w->now >= e->begin_ms)
        begin_attempt(w, e);
    if (e->record_ms != 0 && w->now >= e->record_ms)
        record_attempt(w, e);
    if (e->attempt != 0 && e->attempt != w->newest && e->end_ms == 0)
        e->end_ms = w->now + between(w, 100, 3000);
    if (e->end_ms == 0 && e->finish_ms != 0 && w->now >= e->finish_ms)
        finish_attempt(w, e);
    if (e->end_ms == 0 && e->requeue_ms != 0 && w->now >= e->requeue_ms)
        requeue_by_engine(w, e);
    else if (e->end_ms != 0 && w->now >= e->end_ms)
        end_entry(w, e);
}

static void run_world(sim_world *w)
{
    for (int i = 0; i < FLIGHTS_MAX; i++)
        if (w->flights[i].accept_ms != 0 && w->now >= w->flights[i].accept_ms) {
            w->flights[i].accept_ms = 0;
            w->tally->late_accepts++;
            accept_launch(w);
        }
    for (uint32_t i = 0; i < w->entry_count; i++)
        run_entry(w, &w->entries[i]);
    if (w->zombie_ms != 0 && w->now >= w->zombie_ms) {
        w->zombie_ms = 0;
        if (w->zombie_attempt == w->newest && !w->result && !w->ended)
            write_result(w);
    }
}

static void earlier(const sim_world *w, int64_t *first_ms, int64_t at_ms)
{
    if (at_ms > w->now && at_ms < *first_ms)
        *first_ms = at_ms;
}

/* Return the time of the next event of the world, at most `until`. */
static int64_t next_event_ms(const sim_world *w, int64_t until)
{
    for (int i = 0; i < FLIGHTS_MAX; i++)
        earlier(w, &until, w->flights[i].accept_ms);
    for (uint32_t i = 0; i < w->entry_count; i++) {
        const sim_entry *e = &w->entries[i];

        earlier(w, &until, e->start_ms);
        earlier(w, &until, e->begin_ms);
        earlier(w, &until, e->record_ms);
        earlier(w, &until, e->finish_ms);
        earlier(w, &until, e->end_ms);
        earlier(w, &until, e->forget_ms);
        earlier(w, &until, e->requeue_ms);
    }
    earlier(w, &until, w->zombie_ms);
    return until;
}

static void advance(sim_world *w, int64_t ms)
{
    const int64_t until = w->now + ms;

    do {
        w->now = next_event_ms(w, until);
        run_world(w);
    } while (w->now < until);
}

/* ---- effects of commands ---- */

/* Count one effect. Return whether the command is dead, from now on or already. */
static bool dies(sim_world *w)
{
    sim_command *c = w->active;

    if (c->alive && c->fuse == 0) {
        c->alive = false;
        w->tally->deaths++;
        trace(w, "command dies", "");
    }
    if (c->fuse > 0)
        c->fuse--;
    return !c->alive;
}

static int64_t hook_now(void *context)
{
    sim_world *w = context;

    return w->now + w->offsets[w->active->host];
}

static int64_t hook_unix(void *context)
{
    return ((sim_world *)context)->now;
}

static bool engine_is_down(const sim_world *w)
{
    return w->now >= w->down_from && w->now < w->down_to;
}

/* Check the transition to ENDED. */
static void check_end(sim_world *w, const cluster_job *job)
{
    for (uint32_t i = 0; i < w->entry_count && !w->amnesia; i++)
        if (is_live(&w->entries[i]) && strcmp(w->entries[i].id, job->id) == 0)
            violate(w, "a job that the engine still has does not end");
    if (w->result && job->end != CLUSTER_END_RESULT)
        violate(w, "a result that exists at the end decides it");
    if (job->end == CLUSTER_END_REFUSED && w->launches > 1)
        violate(w, "after a launch without a reply, no refusal is final");
    if (job->end == CLUSTER_END_LOST)
        w->tally->losses++;
    w->ended = true;
}

static gp_status hook_store(void *context, const cluster_job *job, gp_error *err)
{
    sim_world *w = context;

    if (dies(w))
        return gp_fail(err, GP_EIO, "the command is dead");
    if (chance(w, w->full))
        return gp_fail(err, GP_EIO, "the disk is full");
    if (!w->ended && job->state == CLUSTER_ENDED)
        check_end(w, job);
    if (w->ended && job->state != CLUSTER_ENDED) {
        w->tally->returns++;
        w->ended = false;
    }
    if (sim_trace && (!w->stored || job->state != w->disk.state))
        trace(w, "stored:", cluster_state_word(job->state));
    w->disk = *job;
    w->stored = true;
    advance(w, between(w, 0, 20));
    return GP_OK;
}

static void send_flight(sim_world *w, int64_t delay_ms)
{
    for (int i = 0; i < FLIGHTS_MAX; i++)
        if (w->flights[i].accept_ms == 0) {
            w->flights[i].accept_ms = w->now + delay_ms;
            return;
        }
}

static void check_launch(sim_world *w)
{
    if (!w->stored || w->disk.state != CLUSTER_LAUNCHING || w->disk.launches <= w->launches)
        violate(w, "a launch is on disk before it begins");
    if (w->disk.canceled)
        violate(w, "a canceled job is not launched");
    /* A command that saw the job may have been killed before it stored that; then a listing that
     * omits the job counts as the second one. */
    if (w->launches > 0 && !w->glitched &&
        (w->absent_first_ms == 0 || w->absent_last_ms - w->absent_first_ms < CLUSTER_CONFIRM_MS ||
         w->now - w->absent_last_ms > CLUSTER_REPEAT_MS + 1000))
        violate(w, "two recent complete listings precede a repeated launch");
    if (w->launches > 0)
        w->tally->relaunches++;
    w->tally->launches++;
    w->launches++;
}

static gp_status hook_launch(void *context, const cluster_job *job, char id[CLUSTER_ID_BYTES], gp_error *err)
{
    sim_world *w = context;
    (void)job;

    if (dies(w))
        return GP_EPEER;
    check_launch(w);
    w->absent_first_ms = w->absent_last_ms = 0;
    advance(w, between(w, 1, 40));
    w->launch_ms = w->now;
    if (dies(w)) {
        if (draw(w) % 2 == 0)
            send_flight(w, between(w, 0, 10000));
        return GP_EPEER;
    }
    if (engine_is_down(w))
        return gp_fail(err, GP_EPEER, "connection refused");
    if (chance(w, w->refuse)) {
        w->refused = true;
        w->tally->refusals++;
        return gp_fail(err, GP_EINVAL, "invalid account");
    }
    if (chance(w, w->lost_reply)) {
        if (chance(w, 70))
            send_flight(w, chance(w, w->late) ? between(w, 0, 60000) : 0);
        advance(w, between(w, 10, CLUSTER_CALL_MS));
        w->launch_ms = w->now;
        return gp_fail(err, GP_ETIMEDOUT, "no reply");
    }
    accept_launch(w);
    snprintf(id, CLUSTER_ID_BYTES, "%s", w->entries[w->entry_count - 1].id);
    (void)dies(w); /* after the engine has accepted, before the reply is on disk */
    return GP_OK;
}

/* Fill a listing from the engine. */
static gp_status list_engine(sim_world *w, cluster_listing *listing, gp_error *err)
{
    const int64_t requested_ms = w->now;
    bool live = false;

    advance(w, between(w, 1, 40));
    if (engine_is_down(w)) {
        advance(w, chance(w, 50) ? CLUSTER_CALL_MS : 10);
        return gp_fail(err, GP_ETIMEDOUT, "no reply");
    }
    for (uint32_t i = 0; i < w->entry_count; i++) {
        sim_entry *e = &w->entries[i];
        cluster_entry *entry;

        if (e->forgotten || (w->now >= w->amnesia_from && w->now < w->amnesia_to))
            continue;
        if (is_live(e) && !w->glitched && chance(w, w->glitch)) {
            w->glitched = true;
            w->tally->glitches++;
            trace(w, "omitted from a listing:", e->id);
            continue;
        }
        live |= is_live(e);
        if (cluster_listing_add(listing, &entry, err) != GP_OK)
            abort();
        snprintf(entry->name, sizeof(entry->name), "%s", "gp-0");
        snprintf(entry->id, sizeof(entry->id), "%s", e->id);
        entry->state = e->state;
    }
    if (!live && w->launches > 0 && requested_ms >= w->launch_ms) {
        w->absent_last_ms = requested_ms;
        if (w->absent_first_ms == 0)
            w->absent_first_ms = requested_ms;
    } else if (live && !w->amnesia) {
        w->absent_first_ms = w->absent_last_ms = 0;
    }
    advance(w, between(w, 1, 40));
    return GP_OK;
}

static gp_status hook_list(void *context, const cluster_job *job, cluster_listing *listing, gp_error *err)
{
    sim_world *w = context;
    (void)job;

    if (dies(w))
        return GP_EIO;
    return list_engine(w, listing, err);
}

/* Return whether the engine is slow, or the command is suspended, between a listing and a launch.
 * Then a command that waits to cancel the job would exceed its time. */
static bool is_slow(sim_world *w, const cluster_job *job)
{
    for (int i = 0; i < COMMANDS_MAX; i++)
        if (w->commands[i].alive && w->commands[i].kind == SIM_CANCEL)
            return false;
    return job->state == CLUSTER_LAUNCHING && chance(w, 5);
}

static gp_status hook_facts(void *context, const cluster_job *job, cluster_facts *facts, gp_error *err)
{
    sim_world *w = context;
    (void)err;

    if (dies(w))
        return GP_EIO;
    if (is_slow(w, job))
        advance(w, between(w, 1000, 120000));
    *facts = (cluster_facts){ .attempt = w->newest,
                              .begun = w->begun,
                              .canceled = w->mark,
                              .has_result = w->result,
                              .exit_code = w->exit_code,
                              .end_ms = w->result_ms };
    snprintf(facts->engine_id, sizeof(facts->engine_id), "%s", w->newest_id);
    advance(w, between(w, 0, 10));
    return GP_OK;
}

static gp_status hook_mark(void *context, const cluster_job *job, gp_error *err)
{
    sim_world *w = context;
    (void)job;

    if (dies(w))
        return GP_EIO;
    if (chance(w, 5)) {
        w->mark_failed = true;
        return gp_fail(err, GP_EIO, "the disk is full");
    }
    w->mark = true;
    trace(w, "mark", "");
    advance(w, 5);
    return GP_OK;
}

/* Return whether a job runs the newest attempt, and has done so since before the last read of the
 * job folder. */
static bool runs_newest(const sim_world *w, const char *id)
{
    for (uint32_t i = 0; i < w->entry_count; i++)
        if (strcmp(w->entries[i].id, id) == 0)
            return w->entries[i].state == CLUSTER_ENTRY_RUNNING && w->entries[i].end_ms == 0 &&
                   w->entries[i].attempt != 0 && w->entries[i].attempt == w->newest &&
                   w->now - w->entries[i].taken_ms > READ_AGE_MS;
    return false;
}

/* A running attempt that receives the signal looks for the mark and else requeues itself. */
static void cancel_entry(sim_world *w, sim_entry *e)
{
    if (!is_live(e))
        return;
    if (e->state == CLUSTER_ENTRY_QUEUED) {
        end_entry(w, e);
    } else if (e->attempt == 0 || e->attempt != w->newest || w->mark || w->result) {
        e->begin_ms = e->finish_ms = 0;
        if (e->end_ms == 0 || e->end_ms > w->now + 10000)
            e->end_ms = w->now + between(w, 10, 10000);
    } else {
        requeue(w, e);
    }
}

static gp_status hook_cancel(void *context, const cluster_job *job, const char *id, gp_error *err)
{
    sim_world *w = context;

    if (dies(w))
        return GP_EIO;
    w->tally->cancels++;
    trace(w, "cancel of", id);
    if (strcmp(id, job->id) == 0 && job->state != CLUSTER_ENDED && !w->cancel_wanted &&
        !(w->result && w->now - w->result_ms >= CLUSTER_RELEASE_MS))
        violate(w, "only the user cancels a job without a result");
    if (strcmp(id, job->id) != 0 && !job->canceled && !w->result && job->state != CLUSTER_ENDED &&
        runs_newest(w, id))
        violate(w, "the job of the newest attempt is no stray");
    if (strcmp(id, job->id) != 0)
        w->tally->strays++;
    else if (!w->cancel_wanted)
        w->tally->releases++;
    if (job->canceled && job->state == CLUSTER_CANCELING && !w->mark && !job->seen.mark_failed)
        violate(w, "the mark precedes the cancel");
    advance(w, between(w, 1, 40));
    if (engine_is_down(w))
        return gp_fail(err, GP_ETIMEDOUT, "no reply");
    if (w->cancels_lost < CANCELS_LOST_MAX && chance(w, w->cancel_lost)) {
        w->cancels_lost++;
        return GP_OK;
    }
    w->cancels_lost = 0;
    for (uint32_t i = 0; i < w->entry_count; i++)
        if (strcmp(w->entries[i].id, id) == 0)
            cancel_entry(w, &w->entries[i]);
    return GP_OK;
}

/* ---- commands ---- */

static void spawn(sim_world *w, sim_command_kind kind)
{
    for (int i = 0; i < COMMANDS_MAX; i++) {
        sim_command *c = &w->commands[i];

        if (c->alive)
            continue;
        cluster_listing_deinit(&c->listing);
        *c = (sim_command){ .alive = true,
                            .kind = kind,
                            .host = (unsigned)(draw(w) % HOSTS),
                            .wake_ms = w->now,
                            .began_ms = w->now,
                            .fuse = chance(w, w->dead) ? (int)between(w, 0, 25) : -1 };
        return;
    }
}

/* The listing of `jobs` is taken before it locks the record; other commands may run in between. */
static bool take_listing(sim_world *w, sim_command *c)
{
    gp_error err;

    c->listing_ms = hook_now(w);
    c->changes = w->disk.changes;
    if (list_engine(w, &c->listing, &err) != GP_OK) {
        c->alive = false;
        return false;
    }
    c->has_listing = true;
    c->wake_ms = w->now + (chance(w, 30) ? between(w, 0, 20000) : between(w, 0, 50));
    return true;
}

/* Return whether the command is done after a pass. */
static bool is_done(sim_world *w, const sim_command *c, const cluster_job *job)
{
    const int64_t age_ms = w->now - c->began_ms;

    if (c->kind == SIM_CANCEL && job->state == CLUSTER_ENDED)
        w->cancel_confirmed |= job->canceled;
    if (c->kind == SIM_CANCEL && age_ms > CANCEL_LIMIT_MS + 4 * CLUSTER_CALL_MS)
        violate(w, "a cancel is bounded");
    if (job->state == CLUSTER_ENDED || c->kind == SIM_JOBS)
        return true;
    if (c->kind == SIM_SUBMIT)
        return job->id[0] != '\0' || age_ms > CANCEL_LIMIT_MS;
    if (c->kind != SIM_CANCEL || age_ms <= CANCEL_LIMIT_MS)
        return false;
    if (w->down_to == 0 && !w->amnesia)
        violate(w, "a cancel succeeds in time if the engine replies");
    return true;
}

static void run_command(sim_world *w, sim_command *c)
{
    static const char *const clocks[HOSTS] = { "host a", "host b", "host c" };
    cluster_hooks hooks = { .context = w,
                            .clock = clocks[c->host],
                            .now_ms = hook_now,
                            .unix_ms = hook_unix,
                            .store = hook_store,
                            .launch = hook_launch,
                            .list = hook_list,
                            .facts = hook_facts,
                            .mark = hook_mark,
                            .cancel = hook_cancel };
    cluster_shared_listing shared = { .listing = &c->listing,
                                      .requested_ms = c->listing_ms,
                                      .changes = c->changes };
    cluster_pass_result result;
    cluster_job job = w->disk;
    gp_status status;
    gp_error err;

    w->active = c;
    job.seen = c->job.seen; /* not from disk */
    if (!w->stored) {
        if (c->kind != SIM_SUBMIT) {
            c->alive = false;
            return;
        }
        cluster_job_init(&job, "gp-0");
    }
    if (c->kind == SIM_JOBS && !c->has_listing && take_listing(w, c))
        return;
    if (!c->alive)
        return;
    if (c->kind == SIM_CANCEL) {
        cluster_step(&job, &(cluster_event){ .kind = CLUSTER_CANCEL }, hook_now(w));
        w->cancel_wanted = true;
    }
    status = cluster_pass(&job, &hooks, c->kind == SIM_JOBS ? &shared : NULL, &result, &err);
    c->job = job;
    if (status != GP_OK || is_done(w, c, &job))
        c->alive = false;
    else
        /* in a queue of days, a waiting command polls rarely to keep the run short */
        c->wake_ms = w->now + between(w, 1, c->kind == SIM_WAIT && w->queue_ms > 100000 ? 3600000 : 1000);
}

/* Run the command that wakes first, or let time pass until `until`. */
static void run_until(sim_world *w, int64_t until)
{
    while (w->now < until && w->broken == NULL) {
        sim_command *first = NULL;

        for (int i = 0; i < COMMANDS_MAX; i++)
            if (w->commands[i].alive && (first == NULL || w->commands[i].wake_ms < first->wake_ms))
                first = &w->commands[i];
        if (first == NULL || first->wake_ms >= until) {
            advance(w, until - w->now);
            return;
        }
        if (first->wake_ms > w->now)
            advance(w, first->wake_ms - w->now);
        run_command(w, first);
    }
}

/* ---- runs ---- */

/* Count the live jobs of the engine that it accepted before `until_ms`. */
static uint32_t count_live(const sim_world *w, int64_t until_ms)
{
    uint32_t live = 0;

    for (uint32_t i = 0; i < w->entry_count; i++)
        live += is_live(&w->entries[i]) && w->entries[i].accepted_ms < until_ms;
    return live;
}

static void check_settled(sim_world *w)
{
    if (count_live(w, INT64_MAX) > 0)
        violate(w, "the engine has no job of an ended one");
    if (!w->stored)
        return;
    if (w->disk.state != CLUSTER_ENDED)
        violate(w, "a job ends after the engine has ended it");
    if (w->results > 1)
        violate(w, "a job runs to its end once");
    /* a canceled job that the engine forgot for a while may write a result after its end */
    if (w->result && !(w->amnesia && w->disk.end == CLUSTER_END_CANCELED) &&
        (w->disk.end != CLUSTER_END_RESULT || w->disk.exit_code != w->exit_code))
        violate(w, "no result is lost");
    if (!w->result && !w->job_killed && !w->cancel_wanted && !w->refused &&
        w->disk.launches < CLUSTER_LAUNCHES_MAX)
        violate(w, "a job runs to its end unless it is killed, canceled or refused");
    if (w->disk.end == CLUSTER_END_REFUSED && !w->refused)
        violate(w, "a launch without a reply is not a refusal");
}

/* Each kind of fault is in about a third of the runs, and frequent there. */
static unsigned intensity(sim_world *w)
{
    return chance(w, 35) ? (unsigned)between(w, 20, 80) : 0;
}

static void draw_faults(sim_world *w)
{
    w->dead = intensity(w);
    w->lost_reply = intensity(w);
    w->late = (unsigned)between(w, 0, 100);
    w->cancel_lost = intensity(w);
    w->glitch = intensity(w);
    w->killed = intensity(w);
    w->requeue = intensity(w);
    w->refuse = chance(w, 10) ? 30 : 0;
    w->cancels = chance(w, 40) ? 40 : 0;
    w->lingers = chance(w, 10) ? 60 : 0;
    w->full = intensity(w);
    if (chance(w, 15)) { /* cancels while launches are on their way */
        w->lost_reply = 80;
        w->late = 100;
        w->cancels = 70;
    }
    w->queue_ms = chance(w, 5) ? 3 * 86400000 : between(w, 100, 30000);
    w->work_ms = chance(w, 10) ? 600000 : 60000;
    if (chance(w, 20)) {
        w->down_from = w->now + between(w, 0, 60000);
        w->down_to = w->down_from + between(w, 100, 60000);
    }
    if (chance(w, 5)) {
        w->amnesia = true;
        w->amnesia_from = w->now + between(w, 0, 60000);
        w->amnesia_to = w->amnesia_from + between(w, 5000, 60000);
    }
    for (int host = 0; host < HOSTS; host++)
        w->offsets[host] = between(w, 0, 1000000000);
}

static bool is_quiet(const sim_world *w)
{
    bool quiet = w->disk.state == CLUSTER_ENDED || !w->stored;

    for (int i = 0; i < FLIGHTS_MAX; i++)
        quiet = quiet && w->flights[i].accept_ms == 0;
    for (uint32_t i = 0; i < w->entry_count; i++)
        quiet = quiet && !is_live(&w->entries[i]);
    return quiet && w->zombie_ms == 0;
}

const char *sim_run(uint64_t seed, sim_tally *tally)
{
    static sim_world w;
    int64_t calm_ms, settled_ms;

    w = (sim_world){ .random = seed, .now = 1000, .tally = tally };
    draw_faults(&w);
    spawn(&w, SIM_SUBMIT);
    for (int turn = (int)between(&w, 2, 12); turn > 0 && w.broken == NULL; turn--) {
        run_until(&w, w.now + between(&w, 10, chance(&w, 50) ? 1000 : 15000));
        spawn(&w, chance(&w, w.cancels) ? SIM_CANCEL : chance(&w, 40) ? SIM_WAIT : SIM_JOBS);
    }
    /* half of the time, the commands that still run have no help from others */
    if (chance(&w, 50))
        run_until(&w, w.now + CANCEL_LIMIT_MS + 5000);
    /* Commands without faults settle the job; a queue of days is part of it. */
    w.calm = true;
    w.down_to = w.amnesia_to < w.now ? w.down_to : w.now;
    w.down_to = w.down_to < w.now ? w.down_to : w.now;
    w.amnesia_to = w.amnesia_to < w.now ? w.amnesia_to : w.now;
    calm_ms = w.now + CALM_MS + 2 * w.queue_ms;
    settled_ms = w.now + SETTLE_MS;
    while (w.broken == NULL && w.now < calm_ms) {
        const int64_t interval_ms =
            w.queue_ms > 100000 && w.now + 2 * CALM_MS < calm_ms ? 3600000 : JOBS_INTERVAL_MS;

        spawn(&w, SIM_JOBS);
        run_until(&w, w.now + interval_ms);
        if (w.now > settled_ms && count_live(&w, w.now - SETTLE_MS - 2 * interval_ms) > 1)
            violate(&w, "two jobs of one launch do not stay");
        if (w.now > settled_ms && w.disk.state == CLUSTER_ENDED &&
            count_live(&w, w.now - SETTLE_MS - 2 * interval_ms) > 0)
            violate(&w, w.disk.end == CLUSTER_END_LOST ? "a job that the engine lists is not lost"
                                                       : "no job of an ended one stays in the engine");
        if (is_quiet(&w) && w.now > 300000)
            break;
    }
    spawn(&w, SIM_JOBS);
    run_until(&w, w.now + JOBS_INTERVAL_MS);
    if (w.broken == NULL)
        check_settled(&w);
    for (int i = 0; i < COMMANDS_MAX; i++)
        cluster_listing_deinit(&w.commands[i].listing);
    return w.broken;
}
