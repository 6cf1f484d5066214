/* Simulated time and the life cycle of the scheduler. cluster.h describes the interface. The file
 * is long because the loop and the functions that it calls are read together. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/cluster.h"

enum {
    TIMEOUT_MS = 120000, /* after the last fault, all actors must settle within this time */
    END_MS = 8000,       /* time limit for a shutdown */
    BEAT_MS = 2000,
    EVENTS_MAX = 4000000, /* per run; more indicates an endless loop */
    ACTOR_NETWORK = 10,
    ACTOR_DISK,
    ACTOR_CLIENT,
    ACTOR_SUBMITTER,
    ACTOR_PLAN,
};

sim_bug sim_planted;

/* ---- memory ---- */

sim *sim_new(void)
{
    static const history_rules calls = {
        .attempts_grow = true, .gapless = true, .finish_binds = true, .good = GP_OK
    };
    static const history_rules jobs = { .gapless = true, .finish_binds = true, .good = GP_JOBS_DONE };
    sim *s = calloc(1, sizeof(*s));

    if (s == NULL)
        return NULL;
    s->queue = sim_queue_new(sizeof(sim_happening), SIM_QUEUE);
    s->calls = history_new(&calls);
    s->jobs = history_new(&jobs);
    /* more than the bound for the configuration below */
    s->actions = malloc(1024 * sizeof(*s->actions));
    if (s->queue == NULL || s->calls == NULL || s->jobs == NULL || s->actions == NULL) {
        sim_free(s);
        return NULL;
    }
    return s;
}

void sim_free(sim *s)
{
    if (s == NULL)
        return;
    sim_queue_free(s->queue);
    history_free(s->calls);
    history_free(s->jobs);
    free(s->actions);
    free(s);
}

/* ---- helpers ---- */

void sim_fail(sim *s, const char *check, const char *format, ...)
{
    va_list arguments;

    if (s->check[0] != '\0')
        return;
    snprintf(s->check, sizeof(s->check), "%s", check);
    va_start(arguments, format);
    vsnprintf(s->failure, sizeof(s->failure), format, arguments);
    va_end(arguments);
}

static bool failed(const sim *s)
{
    return s->check[0] != '\0';
}

void sim_record(sim *s, history *h, history_entry entry)
{
    entry.at_ns = s->now_us * 1000;
    if (s->out != NULL)
        sim_note(s, h == s->calls ? "call" : "job", (uint64_t)entry.kind, entry.id, (uint64_t)entry.attempt);
    if (!history_add(h, &entry) && !failed(s))
        sim_fail(s, history_check(h), "%s%s", h == s->calls ? "call " : "job ", history_failure(h));
}

void sim_note(sim *s, const char *word, uint64_t a, uint64_t b, uint64_t c)
{
    s->trace = sim_mix(s->trace ^ (uint64_t)s->now_us) + a * 0x9e3779b97f4a7c15ull + (b << 20) + c;
    if (s->out != NULL)
        fprintf(s->out, "%10.3f ms  %-14s %llu %llu %llu\n", (double)s->now_us * 1e-3, word,
                (unsigned long long)a, (unsigned long long)b, (unsigned long long)c);
}

bool sim_calm(const sim *s)
{
    return s->now_us >= s->calm_us;
}

/* Draw a transit time: mostly short, sometimes as long as on a busy machine. */
int64_t sim_transit(sim *s)
{
    int64_t us =
        sim_chance(&s->network, 10) ? sim_draw(&s->network, 400 * MS) : 100 + sim_draw(&s->network, 20 * MS);

    return s->now_us < s->slow_until_us ? us + s->slow_us : us;
}

sim_happening *sim_push_at(sim *s, int64_t at_us, sim_what what, uint32_t number)
{
    static sim_happening spare;
    sim_happening *h = sim_queue_push(s->queue, at_us < s->now_us ? s->now_us : at_us);

    if (h == NULL) {
        sim_fail(s, "flood", "more than %d messages in flight", SIM_QUEUE);
        h = &spare;
    }
    h->what = what;
    h->number = number;
    h->detail = h->link = 0;
    h->waited = 0;
    h->epoch = s->epoch;
    return h;
}

sim_happening *sim_push(sim *s, int64_t after_us, sim_what what, uint32_t number)
{
    return sim_push_at(s, s->now_us + after_us, what, number);
}

/* Events that waited come before those that arrive when the suspension ends. */
bool sim_waits(sim *s, sim_gate *gate, sim_happening *h)
{
    bool waited = h->waited == gate->serial + 1;

    if (s->now_us >= gate->until_us && (gate->held == 0 || waited)) {
        gate->held -= waited;
        h->waited = 0;
        return false;
    }
    gate->held += !waited;
    h->waited = gate->serial + 1;
    sim_queue_again(s->queue, s->now_us > gate->until_us ? s->now_us : gate->until_us);
    return true;
}

void sim_gate_open(sim_gate *gate)
{
    *gate = (sim_gate){ .serial = gate->serial + 1 };
}

/* ---- scheduler steps ---- */

bool sim_burns(sim *s)
{
    if (s->fuse != 0 && --s->fuse == 0)
        s->dying = true;
    return s->dying;
}

/* Schedule the next timer event. */
static void arm(sim *s)
{
    int64_t due_ms = gp_core_due(s->core), other_ms = gp_jobs_due(s->machine), at_us;

    if (other_ms < due_ms)
        due_ms = other_ms;
    at_us = due_ms * MS < s->now_us ? s->now_us : due_ms * MS;
    if (s->alarm_us != 0 && s->alarm_us <= at_us)
        return;
    s->alarm_us = at_us;
    sim_push_at(s, at_us, SIM_SHELL_ALARM, 0);
}

/* Do what the shell does after each iteration of its loop. */
void sim_turn(sim *s)
{
    if (!s->up)
        return;
    if (s->dying) {
        sim_kill_scheduler(s, s->fuse_ms);
        return;
    }
    if (s->job_capacity != s->core->slot_count) {
        s->job_capacity = s->core->slot_count;
        sim_jobs_step(s,
                      (gp_jobs_event){ .kind = GP_JOBS_EVENT_CAPACITY, .count = (uint32_t)s->job_capacity });
        return; /* the run ended in this iteration */
    }
    if (s->downed && s->exited && gp_jobs_active(s->machine) == 0) {
        sim_kill_scheduler(s, s->fuse_ms);
        return;
    }
    arm(s);
}

static void deliver(sim *s, const gp_core_action *action)
{
    bool to_client = action->kind >= GP_CORE_LEASE_GRANT;
    sim_client *client = to_client ? sim_find_client(s, &action->session) : NULL;
    sim_process *process = to_client ? NULL : sim_find_process(s, action->slot, action->incarnation);
    int64_t at_us = s->now_us + sim_transit(s), *in_us;
    sim_happening *h;

    if (client == NULL && process == NULL)
        return; /* the receiver has gone, or was never spawned */
    in_us = client != NULL ? &client->in_us : &process->in_us;
    if (*in_us < at_us)
        *in_us = at_us;
    h = sim_push_at(s, *in_us, client != NULL ? SIM_TO_CLIENT : SIM_TO_PROCESS,
                    client != NULL ? (uint32_t)(client - s->clients) : (uint32_t)(process - s->processes));
    h->link = client != NULL ? client->peer : process->peer;
    h->session = action->session;
    h->letter = (sim_letter){ .kind = action->kind,
                              .lease = action->lease,
                              .correlation = action->correlation,
                              .generation = action->generation,
                              .member_count = action->member_count,
                              .token = action->token,
                              .status = action->status,
                              .lost_slot = action->lost_slot,
                              .lost_incarnation = action->lost_incarnation,
                              .silent_ms = action->silent_ms,
                              .workers = action->workers,
                              .asked = action->asked };
    memcpy(h->letter.members, action->members, sizeof(h->letter.members));
}

static void carry_out(sim *s, const gp_core_action *action)
{
    sim_process *process;

    switch (action->kind) {
    case GP_CORE_SPAWN:
        sim_spawn(s, action->slot, action->incarnation);
        break;
    case GP_CORE_KILL:
        process = sim_find_process(s, action->slot, action->incarnation);
        if (process != NULL && !(PLANTED(SPARED) && process->incarnation % 2 == 0))
            sim_process_dies(s, process, GP_CORE_DIED_SIGNAL, 9);
        break;
    case GP_CORE_EXIT:
        s->exited = true;
        break;
    case GP_CORE_LOG:
    case GP_CORE_SUSPECT:
        break;
    default:
        deliver(s, action);
    }
}

void sim_step_core(sim *s, const gp_core_event *event)
{
    size_t count = gp_core_step(s->core, s->actions, event, s->now_us / MS);

    s->tally.steps++;
    sim_note(s, "core", event->kind, event->slot, count);
    for (size_t i = 0; i < count && !failed(s); i++) {
        sim_check_action(s, &s->actions[i]);
        carry_out(s, &s->actions[i]);
        if (sim_burns(s))
            break;
    }
    if (!s->dying)
        sim_check_state(s);
    sim_turn(s);
}

/* ---- scheduler start and exit ---- */

static bool core_begin(sim *s)
{
    gp_core_config config = gp_core_config_default();
    gp_error err;

    config.epoch = ++s->epoch;
    config.waits_max = 5;
    config.clients_max = SIM_CLIENTS - 1;
    config.idle_ms = 0;
    config.start_ms = 5000;
    if (s->script.seed % 2 == 0) { /* silences end before other timeouts */
        config.suspect_ms = 1200;
        config.beat_ms = 4000;
    }
    config.incarnation_base = (uint32_t)(s->epoch - 1) << 16;
    if (gp_core_new(&s->core, &config, s->plan, s->script.slots, s->now_us / MS, &err) != GP_OK) {
        sim_fail(s, "memory", "%s", err.message);
        return false;
    }
    s->lease_last = 0;
    memset(s->generation_of, 0, sizeof(s->generation_of));
    return true;
}

static void scheduler_begins(sim *s)
{
    gp_core_event found = { .kind = GP_CORE_EVENT_WORKER_FOUND };
    gp_core_event tick = { .kind = GP_CORE_EVENT_TICK };

    s->dying = s->downed = s->exited = false;
    s->fuse = 0;
    s->alarm_us = 0;
    sim_gate_open(&s->gate);
    if (!core_begin(s) || !sim_jobs_begin(s))
        return;
    s->up = true;
    for (uint32_t i = 0; i < s->process_count && s->up; i++) {
        sim_process *process = &s->processes[i];
        sim_dice *dice = &process->dice;

        if (!process->alive || !process->ready)
            continue;
        process->watched = s->epoch;
        process->told_work = GP_CORE_OURS; /* this scheduler has no heartbeat yet */
        found.slot = process->slot;
        found.incarnation = process->incarnation;
        found.pid = (int32_t)i + 1;
        sim_push(s, sim_draw(dice, sim_chance(dice, 10) ? 4000 * MS : 300 * MS), SIM_WORKER_DIALS, i);
        sim_step_core(s, &found);
    }
    for (uint32_t i = 0; i < SIM_CLIENTS; i++) {
        sim_client *client = &s->clients[i];
        int64_t after_us = sim_draw(&client->dice, sim_chance(&client->dice, 30) ? 5000 * MS : 800 * MS);

        /* however late the client checks */
        client->whole = client->whole && sim_lease_is_whole(s, client);
        if (client->state == SIM_HOLDING) /* the lease id continues: see check_grant() */
            sim_lease_known(s, client->lease);
        sim_push(s, after_us, SIM_CLIENT_DIALS, i);
    }
    for (uint32_t i = 0; i < SIM_SUBMITTERS; i++)
        sim_push(s, sim_draw(&s->submitters[i].dice, 900 * MS), SIM_SUBMITTER_DIALS, i);
    if (s->up)
        sim_step_core(s, &tick);
}

void sim_kill_scheduler(sim *s, uint32_t after_ms)
{
    if (!s->up)
        return;
    s->tally.restarts++;
    s->up = false;
    for (uint32_t i = 0; i < SIM_CLIENTS; i++)
        s->clients[i].whole = sim_lease_is_whole(s, &s->clients[i]) && !s->downed && after_ms < 200;
    gp_core_free(s->core);
    s->core = NULL;
    sim_jobs_crash(s, false);
    sim_push(s, 1 + (int64_t)after_ms * MS, SIM_SCHEDULER_IS_UP, 0);
}

/* ---- events ---- */

static void to_core(sim *s, sim_happening *h)
{
    gp_core_event *event = &h->core.event;
    bool wire = event->epoch != 0;
    bool worker = event->kind >= GP_CORE_EVENT_WORKER_READY && event->kind < GP_CORE_EVENT_WORKER_DIED;
    sim_process *process = &s->processes[h->number];
    sim_client *client = worker ? NULL : sim_find_client(s, &event->session);
    bool lost =
        (worker ? h->link != process->link : client != NULL && h->link != client->link) && !PLANTED(NO_FENCE);

    if (wire && PLANTED(NO_FENCE))
        event->epoch = s->epoch;
    else if (h->epoch != s->epoch && (!wire || sim_chance(&s->network, 50)))
        return; /* messages to an exited scheduler are mostly lost */
    if (worker) {
        if (lost || (!process->alive && sim_chance(&s->network, 50)))
            return; /* messages from an exited worker or a broken link may be lost too */
        if (event->kind == GP_CORE_EVENT_WORKER_READY)
            process->peer = h->link;
        if (event->kind == GP_CORE_EVENT_WORKER_REVOKED && event->epoch == s->epoch &&
            s->core->slots[event->slot].revoking == event->lease)
            process->told_work = GP_CORE_OURS;
    } else if (client != NULL) {
        if (wire && lost)
            return;
        if (event->kind == GP_CORE_EVENT_CLIENT_CONNECTED)
            client->peer = h->link;
    }
    if (event->kind == GP_CORE_EVENT_LEASE_ASK) {
        event->wish = &h->core.wish;
        if (client != NULL)
            client->asked = ++s->asks;
    }
    if (event->kind == GP_CORE_EVENT_LEASE_CLAIM) {
        if (client == NULL)
            return;
        event->claim = &client->claim;
    }
    if (event->kind == GP_CORE_EVENT_RESIZE)
        event->plan = s->plan;
    sim_step_core(s, event);
}

static void beats(sim *s)
{
    for (uint32_t i = 0; i < s->process_count && s->up; i++) {
        sim_process *process = &s->processes[i];
        gp_core_event beat = { .kind = GP_CORE_EVENT_WORKER_BEAT,
                               .epoch = s->epoch,
                               .slot = process->slot,
                               .incarnation = process->incarnation,
                               .step = s->tally.events,
                               .work = sim_work_of(s, process),
                               .recycle = sim_chance(&process->dice, 5) };

        if (process->alive && process->ready && process->epoch == s->epoch &&
            s->now_us >= process->gate.until_us && s->now_us >= process->out_us &&
            s->now_us >= s->gate.until_us) {
            process->told_work = beat.work;
            sim_step_core(s, &beat);
        }
    }
    sim_push(s, BEAT_MS * MS, SIM_BEATS, 0);
}

static void alarm_rings(sim *s, sim_happening *h)
{
    gp_core_event tick = { .kind = GP_CORE_EVENT_TICK };

    if (!s->up || h->epoch != s->epoch || s->alarm_us > s->now_us)
        return; /* the timer belongs to another scheduler, or an earlier one replaced it */
    if (sim_waits(s, &s->gate, h))
        return;
    s->alarm_us = 0;
    s->ticks_here++;
    if (s->ticks_here > 200)
        sim_fail(s, "storm", "the timer expires repeatedly at %lld us", (long long)s->now_us);
    if (s->now_us / MS >= gp_jobs_due(s->machine))
        sim_jobs_step(s, (gp_jobs_event){ .kind = GP_JOBS_EVENT_TICK });
    if (s->up)
        sim_step_core(s, &tick);
    if (s->up)
        sim_watch_holders(s);
}

/* Return the suspension that can delay an event. NULL: none. */
static sim_gate *gate_of(sim *s, const sim_happening *h)
{
    switch (h->what) {
    case SIM_TO_CORE:
    case SIM_TO_JOBS:
    case SIM_JOB_SPAWNS:
    case SIM_JOB_REAPED:
        return s->up ? &s->gate : NULL;
    case SIM_TO_PROCESS:
    case SIM_SPAWN_DONE:
    case SIM_WORKER_DIALS:
    case SIM_TAKES:
    case SIM_ANSWERS:
    case SIM_DROPS:
        return &s->processes[h->number].gate;
    case SIM_TO_CLIENT:
    case SIM_CLIENT_ACTS:
    case SIM_CLIENT_DIALS:
    case SIM_CLIENT_CLAIMS:
    case SIM_LANE_DIALS:
    case SIM_LANE_ENDS:
    case SIM_PUMPS:
    case SIM_TRAIN_ATTACHES:
    case SIM_TRAIN_RECEIVES:
    case SIM_TRAIN_ALARM:
    case SIM_NEWCOMER_TELLS:
        return &s->clients[h->number].gate;
    case SIM_TO_SUBMITTER:
    case SIM_SUBMITTER_ACTS:
    case SIM_SUBMITTER_DIALS:
        return &s->submitters[h->number].gate;
    default:
        return NULL;
    }
}

static void happen(sim *s, sim_happening *h)
{
    sim_client *client = &s->clients[h->number % SIM_CLIENTS];
    sim_process *process = &s->processes[h->number % SIM_PROCESSES];
    sim_submitter *submitter = &s->submitters[h->number % SIM_SUBMITTERS];

    switch (h->what) {
    case SIM_TO_CORE:
        if (s->up)
            to_core(s, h);
        break;
    case SIM_TO_PROCESS:
        if (h->epoch == s->epoch && h->link == process->link)
            sim_process_receives(s, process, &h->letter);
        break;
    case SIM_TO_CLIENT:
        if (h->epoch == s->epoch && client->state != SIM_AWAY && h->link == client->link &&
            gp_core_id_equal(&client->session, &h->session))
            sim_client_receives(s, client, &h->letter);
        break;
    case SIM_SPAWN_DONE:
        sim_spawn_done(s, process);
        break;
    case SIM_CLIENT_ACTS:
        sim_client_acts(s, client);
        break;
    case SIM_STRIKES:
        sim_strike(s, &s->script.faults[h->number]);
        break;
    case SIM_BEATS:
        beats(s);
        break;
    case SIM_WORKER_DIALS:
        sim_worker_dials(s, process, h->epoch);
        break;
    case SIM_CLIENT_DIALS:
        sim_client_dials(s, client, h->epoch);
        break;
    case SIM_CLIENT_CLAIMS:
        sim_client_claims(s, client, h->link);
        break;
    case SIM_SCHEDULER_IS_UP:
        if (!s->up)
            scheduler_begins(s);
        break;
    case SIM_LANE_DIALS:
        sim_lane_dials(s, client, h->detail, h->link);
        break;
    case SIM_LANE_ENDS:
        sim_lane_ends(s, client, h->detail, h->link);
        break;
    case SIM_TAKES:
        sim_takes(s, process, h->link);
        break;
    case SIM_ANSWERS:
        sim_answers(s, process, h->link);
        break;
    case SIM_DROPS:
        sim_drops(s, process, h->link);
        break;
    case SIM_PUMPS:
        sim_pumps(s, client);
        break;
    case SIM_TO_JOBS:
        sim_jobs_receives(s, h);
        break;
    case SIM_COMMITS:
        sim_commits(s, h);
        break;
    case SIM_TO_SUBMITTER:
        sim_submitter_receives(s, submitter, h);
        break;
    case SIM_SUBMITTER_ACTS:
        sim_submitter_acts(s, submitter);
        break;
    case SIM_SUBMITTER_DIALS:
        sim_submitter_dials(s, submitter, h->epoch);
        break;
    case SIM_JOB_SPAWNS:
        sim_job_spawns(s, h);
        break;
    case SIM_JOB_ENDS:
        sim_job_ends(s, h->number);
        break;
    case SIM_JOB_REAPED:
        sim_job_reaped(s, h);
        break;
    case SIM_TRAIN_ATTACHES:
        sim_train_attaches(s, client, h->link);
        break;
    case SIM_TRAIN_RECEIVES:
        sim_train_receives(s, client, h);
        break;
    case SIM_TRAIN_ALARM:
        sim_train_alarm(s, client, h);
        break;
    case SIM_RANK_BEGINS:
        sim_rank_begins(s, client, h->detail, h->link);
        break;
    case SIM_RANK_COMMITS:
        sim_rank_commits(s, client, h->detail, h->link);
        break;
    case SIM_GROUP_STEPS:
        sim_group_steps(s, client, h->link);
        break;
    case SIM_GROUP_PAUSES:
        sim_group_pauses(s, client, h->link);
        break;
    case SIM_NEWCOMER_PREPARES:
        sim_newcomer_prepares(s, client, h);
        break;
    case SIM_NEWCOMER_TELLS:
        sim_newcomer_tells(s, client, h);
        break;
    case SIM_SWEEP_STARTS:
        sim_sweep_starts(s);
        break;
    case SIM_SWEEP_POLLS:
        sim_sweep_polls(s, h);
        break;
    case SIM_SWEEP_SYNCS:
        sim_sweep_syncs(s, h);
        break;
    case SIM_TO_SWEEP:
        if (h->epoch == s->epoch)
            sim_sweep_receives(s, h);
        break;
    case SIM_TRIAL_STEPS:
        sim_trial_steps(s, h->number);
        break;
    case SIM_OPERATOR:
        if (h->epoch == s->epoch)
            sim_take_down(s, false, 20);
        break;
    case SIM_SHELL_ALARM:
        break; /* handled by alarm_rings() */
    }
}

static void advance(sim *s)
{
    int64_t at_us = sim_queue_at(s->queue);
    sim_happening *h;
    sim_gate *gate;

    if (at_us == INT64_MAX) {
        sim_fail(s, "standstill", "no event is pending");
        return;
    }
    h = sim_queue_pop(s->queue);
    if (at_us != s->now_us)
        s->ticks_here = 0;
    s->now_us = at_us;
    s->tally.events++;
    sim_note(s, "happens", h->what, h->number, h->detail);
    if (h->what == SIM_SHELL_ALARM) {
        alarm_rings(s, h);
        if (h->waited == 0)
            sim_queue_drop(s->queue);
        return;
    }
    gate = gate_of(s, h);
    if (gate != NULL && sim_waits(s, gate, h))
        return;
    happen(s, h);
    sim_queue_drop(s->queue);
}

/* ---- running a script ---- */

static bool settled(sim *s, char why[480])
{
    if (!s->up || s->downed || s->gate.until_us > s->now_us) {
        snprintf(why, 480, "the scheduler is not back");
        return false;
    }
    return sim_settled(s, why) && sim_sweep_settled(s, why) && sim_jobs_settled(s, why);
}

static void check_end(sim *s)
{
    gp_core_event end = { .kind = GP_CORE_EVENT_SHUTDOWN };
    int64_t until_us = s->now_us + (int64_t)END_MS * MS;

    s->ending = true;
    sim_step_core(s, &end);
    while (!failed(s) && !s->exited && s->now_us < until_us)
        advance(s);
    if (!s->exited)
        sim_fail(s, "no-end", "the scheduler did not exit within %d s after the request", END_MS / 1000);
    for (uint32_t i = 0; i < s->process_count; i++) {
        const sim_process *process = &s->processes[i];

        if (process->alive && process->watched == s->epoch)
            sim_fail(s, "left-behind",
                     "the scheduler exited, but worker %u (incarnation %u) is still running",
                     process->slot + 1, process->incarnation);
    }
    if (!history_close(s->calls))
        sim_fail(s, history_check(s->calls), "call %s", history_failure(s->calls));
    if (!history_close(s->jobs))
        sim_fail(s, history_check(s->jobs), "job %s", history_failure(s->jobs));
}

static void begin(sim *s, const sim_script *script)
{
    sim_dice dice = sim_dice_of(script->seed, ACTOR_PLAN, 0);

    /* Clear the larger arrays only as far as they were used. */
    memset(s->processes, 0, s->process_count * sizeof(s->processes[0]));
    memset(s->job_processes, 0, s->job_process_count * sizeof(s->job_processes[0]));
    memset(s->facts, 0, sizeof(s->facts));
    memset(s->clients, 0, sizeof(s->clients));
    memset(s->submitters, 0, sizeof(s->submitters));
    memset(&s->sweep, 0, sizeof(s->sweep));
    s->script = *script;
    s->trace = 0;
    s->tally = (sim_tally){ 0 };
    s->now_us = 0;
    s->calm_us = script->calm_ms * MS;
    s->slow_until_us = s->disk_slow_until_us = 0;
    s->wall_ms = 1700000000000ll;
    s->up = s->dying = s->exited = s->downed = s->ending = false;
    s->epoch = s->asks = s->sessions = s->groups = 0;
    s->process_count = s->job_process_count = s->write_count = 0;
    s->committing = s->disk_failed = s->disk_fails = false;
    s->job_capacity = 0;
    s->next_id = 1;
    s->check[0] = s->failure[0] = '\0';
    memset(s->process_at, 0, sizeof(s->process_at));
    memset(s->plan, 0, sizeof(s->plan));
    sim_queue_clear(s->queue);
    history_clear(s->calls);
    history_clear(s->jobs);
    s->network = sim_dice_of(script->seed, ACTOR_NETWORK, 0);
    s->disk_dice = sim_dice_of(script->seed, ACTOR_DISK, 0);
    for (uint32_t i = 0; i < SIM_SLOTS; i++) {
        s->plan[i].kind = sim_chance(&dice, 20) ? GP_CORE_GPU : GP_CORE_CPU;
        s->plan[i].device_index = i;
        s->plan[i].resources = sim_tag(sim_tag_of(s, i));
        snprintf(s->plan[i].label, sizeof(s->plan[i].label), "cpu cores %u", i);
    }
    for (uint32_t i = 0; i < SIM_CLIENTS; i++)
        s->clients[i].dice = sim_dice_of(script->seed, ACTOR_CLIENT, i);
    for (uint32_t i = 0; i < SIM_SUBMITTERS; i++) {
        s->submitters[i].dice = sim_dice_of(script->seed, ACTOR_SUBMITTER, i);
        s->submitters[i].key = i + 1;
    }
}

/* Disarm all pending kills that count actions. */
static void disarm(sim *s)
{
    s->fuse = s->sweep.fuse = 0;
    for (uint32_t i = 0; i < s->process_count; i++)
        s->processes[i].fuse = 0;
    for (uint32_t i = 0; i < SIM_CLIENTS; i++)
        s->clients[i].fuse = 0;
}

static void live(sim *s)
{
    char why[480] = "";
    int64_t until_us = s->calm_us + (int64_t)TIMEOUT_MS * MS;

    scheduler_begins(s);
    for (uint32_t i = 0; i < s->script.clients && i < SIM_CLIENTS; i++)
        sim_push(s, sim_draw(&s->clients[i].dice, 1000 * MS), SIM_CLIENT_ACTS, i);
    for (uint32_t i = 0; i < s->script.submitters && i < SIM_SUBMITTERS; i++)
        sim_push(s, sim_draw(&s->submitters[i].dice, 1000 * MS), SIM_SUBMITTER_ACTS, i);
    for (uint32_t i = 0; i < s->script.count; i++)
        sim_push(s, s->script.faults[i].at_ms * MS, SIM_STRIKES, i);
    sim_push(s, BEAT_MS * MS, SIM_BEATS, 0);
    sim_sweep_begin(s);
    while (!failed(s) && s->now_us < s->calm_us)
        advance(s);
    disarm(s);
    for (uint32_t turns = 0; !failed(s) && (turns % 32 != 0 || !settled(s, why)); turns++) {
        if (s->now_us > until_us)
            sim_fail(s, "not-settled", "%d s after the last fault %.400s", TIMEOUT_MS / 1000, why);
        if (s->tally.events > EVENTS_MAX)
            sim_fail(s, "storm", "more than %d events in one run", EVENTS_MAX);
        advance(s);
    }
    if (!failed(s))
        check_end(s);
}

void sim_run(void *context, const sim_script *script, sim_outcome *out)
{
    sim *s = context;
    history_counts calls, jobs;

    begin(s, script);
    live(s);
    for (uint32_t i = 0; i < SIM_CLIENTS; i++)
        sim_team_dies(s, &s->clients[i]); /* needed if the run ended early */
    for (uint32_t i = 0; i < SIM_SUBMITTERS; i++)
        submits_deinit(&s->submitters[i].window);
    sim_sweep_end(s);
    gp_core_free(s->core);
    gp_jobs_free(s->machine);
    s->core = NULL;
    s->machine = NULL;
    calls = history_get_counts(s->calls);
    jobs = history_get_counts(s->jobs);
    s->tally.calls = calls.of[HISTORY_RESULT];
    s->tally.jobs = jobs.of[HISTORY_ACCEPT];
    s->tally.reruns = calls.again + jobs.again;
    *out = (sim_outcome){
        .kept = !failed(s), .at_ms = s->now_us / MS, .events = s->tally.events, .trace = s->trace
    };
    memcpy(out->check, s->check, sizeof(out->check));
    memcpy(out->why, s->failure, sizeof(out->why));
}
