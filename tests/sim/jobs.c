/* Background jobs: the real state machine and submit window with a simulated journal, processes and
 * users. */
#include <string.h>

#include "tests/sim/cluster.h"

enum { REPEAT_MS = 3000, TIMEOUT_MS = 1200, DIALS_MS = 900, WINDOW = 4, IDS_LEFT = 64, SWEEPS_MAX = 2 };

/* A submit must not be repeated after the job may have been deleted. */
_Static_assert(TIMEOUT_MS + DIALS_MS < REPEAT_MS, "the scheduler keeps jobs whose submit may be repeated");

/* ---- processes ---- */

static sim_job_process *process_of(sim *s, uint64_t job, uint32_t attempt)
{
    uint32_t last = s->facts[job].last_process;

    if (last != 0 && s->job_processes[last - 1].attempt == attempt)
        return &s->job_processes[last - 1];
    for (uint32_t i = s->job_process_count; i-- > 0;)
        if (s->job_processes[i].job == job && s->job_processes[i].attempt == attempt)
            return &s->job_processes[i];
    return NULL;
}

static uint32_t number_of(const sim *s, const sim_job_process *process)
{
    return (uint32_t)(process - s->job_processes);
}

static uint32_t working(const sim *s, uint64_t job)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < s->job_process_count; i++)
        count += s->job_processes[i].job == job && s->job_processes[i].alive && s->job_processes[i].works;
    return count;
}

static void process_ends(sim *s, sim_job_process *process, gp_jobs_exit how, int32_t number, bool record)
{
    sim_fact *fact = &s->facts[process->job];

    if (!process->alive)
        return;
    sim_note(s, "job-process", process->job, process->attempt, (uint64_t)number);
    process->alive = false;
    process->exit = how;
    process->number = number;
    process->record = record && process->works;
    if (process->record) {
        sim_record(
            s, s->jobs,
            (history_entry){
                .kind = HISTORY_FINISH, .id = process->job, .attempt = process->attempt, .outcome = number });
        fact->succeeded |= number == 0;
    }
    if (process->watched && s->up)
        sim_push(s, sim_draw(&s->disk_dice, 30 * MS), SIM_JOB_REAPED, number_of(s, process));
}

static void go(sim *s, sim_job_process *process)
{
    const sim_fact *fact;

    if (process == NULL || !process->alive || process->works)
        return;
    fact = &s->facts[process->job];
    if (!fact->durable || !gp_jobs_orphaned(&fact->row) || fact->row.attempts != process->attempt)
        sim_fail(s, "unknown-process", "job %llu is running, but its process is not on disk",
                 (unsigned long long)process->job);
    if (working(s, process->job) != 0)
        sim_fail(s, "two-at-once", "job %llu has two running processes", (unsigned long long)process->job);
    if (fact->row.cancel)
        sim_fail(s, "started-after-cancel", "job %llu starts although it was canceled",
                 (unsigned long long)process->job);
    if (fact->failed_by_itself)
        sim_fail(s, "failed-again", "job %llu is retried although it failed by itself",
                 (unsigned long long)process->job);
    sim_record(s, s->jobs,
               (history_entry){ .kind = HISTORY_START, .id = process->job, .attempt = process->attempt });
    process->works = true;
    if (sim_runs_trial(s, process->job)) {
        sim_trial_begins(s, number_of(s, process));
        return;
    }
    sim_push(s, 5 * MS + sim_draw(&s->disk_dice, sim_chance(&s->disk_dice, 10) ? 3000 * MS : 400 * MS),
             SIM_JOB_ENDS, number_of(s, process));
}

void sim_job_exits(sim *s, uint32_t number, int32_t code)
{
    process_ends(s, &s->job_processes[number], GP_JOBS_EXIT_CODE, code, true);
}

void sim_job_ends(sim *s, uint32_t number)
{
    sim_job_process *process = &s->job_processes[number];
    uint32_t way = sim_draw(&s->disk_dice, 10);

    if (!process->alive || !process->works)
        return;
    if (sim_runs_trial(s, process->job)) {
        sim_trial_stops(s, number);
        return;
    }
    if (process->term && way < 6)
        process_ends(s, process, GP_JOBS_EXIT_CODE, 130, true);
    else if (way < 7)
        process_ends(s, process, GP_JOBS_EXIT_CODE, 0, true);
    else if (way < 9)
        process_ends(s, process, GP_JOBS_EXIT_CODE, 1, true);
    else
        process_ends(s, process, GP_JOBS_EXIT_SIGNAL, 11, false);
}

void sim_job_killed(sim *s, uint32_t which)
{
    for (uint32_t i = s->job_process_count; i-- > 0;) {
        sim_job_process *process = &s->job_processes[i];

        if (process->alive && process->works && which-- == 0) {
            process_ends(s, process, GP_JOBS_EXIT_SIGNAL, 9, false);
            return;
        }
    }
}

void sim_job_spawns(sim *s, sim_happening *h)
{
    uint64_t job = h->jobs.event.job;
    uint32_t attempt = h->jobs.event.attempt;
    sim_job_process *process;

    if (!s->up || h->epoch != s->epoch)
        return;
    if ((!sim_calm(s) && sim_chance(&s->disk_dice, 3)) || s->job_process_count == SIM_JOB_PROCESSES) {
        /* the machine cannot start any job now, or this job cannot start at all */
        const bool lack = job % 2 == 0 && s->job_process_count < SIM_JOB_PROCESSES;

        sim_jobs_step(s, (gp_jobs_event){ .kind = GP_JOBS_EVENT_UNBORN,
                                          .job = job,
                                          .attempt = attempt,
                                          .status = lack ? GP_EIO : GP_EINVAL,
                                          .text = "no" });
        return;
    }
    process = &s->job_processes[s->job_process_count++];
    *process =
        (sim_job_process){ .job = job, .attempt = attempt, .alive = true, .ours = true, .watched = true };
    s->facts[job].last_process = s->job_process_count;
    if (PLANTED(OPEN_GATE))
        go(s, process);
    sim_jobs_step(s, (gp_jobs_event){ .kind = GP_JOBS_EVENT_SPAWNED,
                                      .job = job,
                                      .attempt = attempt,
                                      .pid = (int32_t)s->job_process_count });
}

void sim_job_reaped(sim *s, sim_happening *h)
{
    sim_job_process *process = &s->job_processes[h->number];
    gp_jobs_event event = { .kind = GP_JOBS_EVENT_ENDED, .job = process->job, .attempt = process->attempt };
    const gp_jobs_job *job;

    if (!s->up || h->epoch != s->epoch || !process->watched)
        return;
    process->watched = false;
    event.exit = process->ours || process->record ? process->exit : GP_JOBS_EXIT_UNKNOWN;
    event.number = event.exit != GP_JOBS_EXIT_UNKNOWN ? process->number : 0;
    job = gp_jobs_find(s->machine, process->job);
    if (process->ours && process->record && !s->downed && !s->disk_failed && job != NULL && !job->cancel &&
        job->attempts == process->attempt && event.number != 0)
        s->facts[process->job].failed_by_itself = true;
    sim_jobs_step(s, event);
}

/* ---- disk ---- */

static void apply(sim *s, const sim_write *write)
{
    sim_fact *fact = &s->facts[write->row.id];

    if (write->kind == GP_JOBS_DELETE) {
        if (!fact->durable || !gp_jobs_state_ended(fact->row.state))
            sim_fail(s, "dropped", "job %llu was deleted before its end", (unsigned long long)write->row.id);
        fact->durable = false;
        fact->deleted = true;
        sim_record(
            s, s->jobs,
            (history_entry){ .kind = HISTORY_END, .id = write->row.id, .outcome = (int32_t)fact->row.state });
        sim_record(s, s->jobs, (history_entry){ .kind = HISTORY_FORGET, .id = write->row.id });
        return;
    }
    if (write->kind == GP_JOBS_INSERT) {
        if (write->row.id < s->next_id)
            sim_fail(s, "reused-id", "the id %llu is used again", (unsigned long long)write->row.id);
        s->next_id = write->row.id + 1;
        sim_record(s, s->jobs,
                   (history_entry){ .kind = HISTORY_ACCEPT, /* recorded even if the reply is lost */
                                    .session = write->row.submitter[0],
                                    /* sweep.c checks the submits of a sweep */
                                    .seq = write->row.submitter[0] > SIM_SUBMITTERS
                                               ? ++s->sweep.submits
                                               : write->row.seq & UINT32_MAX,
                                    .id = write->row.id });
    }
    if (fact->durable && gp_jobs_state_ended(fact->row.state))
        sim_fail(s, "changes-after-end", "job %llu changes after its end", (unsigned long long)write->row.id);
    fact->durable = true;
    fact->row = write->row;
    if (fact->row.state == GP_JOBS_STARTING)
        fact->row.state = GP_JOBS_RUNNING;
}

/* Make the first `count` writes durable. */
static uint64_t make_durable(sim *s, uint32_t count)
{
    uint64_t number = count > 0 ? s->writes[count - 1].number : 0;

    for (uint32_t i = 0; i < count; i++)
        apply(s, &s->writes[i]);
    s->write_count -= count;
    memmove(s->writes, s->writes + count, s->write_count * sizeof(s->writes[0]));
    return number;
}

static void post_to_jobs(sim *s, int64_t after_us, const gp_jobs_event *event)
{
    sim_happening *h = sim_push(s, after_us, SIM_TO_JOBS, SIM_SUBMITTERS);

    h->jobs.event = *event;
}

/* Start a commit. Requests that arrive meanwhile share the next one. */
static void commit_begins(sim *s)
{
    int64_t us = MS + sim_draw(&s->disk_dice, 8 * MS);

    if (s->committing || s->disk_failed || s->write_count == 0)
        return;
    s->committing = true;
    if (s->now_us < s->disk_slow_until_us)
        us += s->disk_slow_us;
    if (PLANTED(LYING_DISK))
        post_to_jobs(s, 0,
                     &(gp_jobs_event){ .kind = GP_JOBS_EVENT_PERSISTED,
                                       .persisted = s->writes[s->write_count - 1].number });
    sim_push(s, us, SIM_COMMITS, 0)->detail = s->write_count;
}

void sim_commits(sim *s, sim_happening *h)
{
    uint64_t number;

    if (!s->up || h->epoch != s->epoch || !s->committing)
        return;
    s->committing = false;
    s->tally.commits++;
    if (s->disk_fails) { /* ENOSPC or EIO: an unknown part of the writes is on the disk */
        make_durable(s, h->detail * s->disk_keeps / 100);
        s->disk_failed = true;
        s->write_count = 0;
        post_to_jobs(
            s, 0,
            &(gp_jobs_event){ .kind = GP_JOBS_EVENT_JOURNAL_FAILED, .status = GP_EIO, .text = "no space" });
        sim_push(s, 1000 * MS + sim_draw(&s->disk_dice, 2000 * MS), SIM_OPERATOR, 0);
        return;
    }
    number = make_durable(s, h->detail);
    post_to_jobs(s, sim_draw(&s->disk_dice, MS),
                 &(gp_jobs_event){ .kind = GP_JOBS_EVENT_PERSISTED, .persisted = number });
    commit_begins(s);
}

/* ---- actions of the state machine ---- */

static void reply(sim *s, const gp_jobs_action *action)
{
    sim_submitter *submitter;
    sim_happening *h;
    int64_t at_us = s->now_us + sim_transit(s);
    uint32_t number = action->client.bytes[0];

    if (number == SIM_SUBMITTERS + 2) {
        if (at_us > s->sweep.in_us)
            s->sweep.in_us = at_us;
        h = sim_push_at(s, s->sweep.in_us, SIM_TO_SWEEP, 0);
        h->link = action->client.bytes[1] | (uint32_t)action->client.bytes[2] << 8;
        h->reply.kind = action->kind;
        h->reply.correlation = action->correlation;
        h->reply.job = action->id;
    }
    if (number == 0 || number > SIM_SUBMITTERS)
        return;
    submitter = &s->submitters[number - 1];
    if (at_us > submitter->in_us)
        submitter->in_us = at_us;
    h = sim_push_at(s, submitter->in_us, SIM_TO_SUBMITTER, number - 1);
    h->link = action->client.bytes[1] | (uint32_t)action->client.bytes[2] << 8;
    h->reply.kind = action->kind;
    h->reply.correlation = action->correlation;
    h->reply.job = action->id;
}

static void check_changed(sim *s, const gp_jobs_action *action, const sim_fact *fact)
{
    gp_jobs_state reported = action->job->durable;

    if (!fact->durable || fact->row.state != (reported == GP_JOBS_STARTING ? GP_JOBS_RUNNING : reported))
        sim_fail(s, "told-early", "job %llu is reported as %s, but is %s on disk",
                 (unsigned long long)action->id, gp_jobs_state_word(reported),
                 gp_jobs_state_word(fact->row.state));
    if (gp_jobs_state_ended(reported))
        sim_record(s, s->jobs,
                   (history_entry){ .kind = HISTORY_END, .id = action->id, .outcome = (int32_t)reported });
}

static void write_row(sim *s, const gp_jobs_action *action)
{
    if (s->write_count > 0 && action->number <= s->writes[s->write_count - 1].number)
        sim_fail(s, "numbers", "the journal numbers decrease");
    s->writes[s->write_count++] =
        (sim_write){ .number = action->number, .kind = action->kind, .row = *action->job };
    commit_begins(s);
}

typedef struct lane_count {
    uint32_t active, waiting, limit;
} lane_count;

/* Count the sweeps, or the other jobs, independently of the state machine. */
static lane_count count_lane(const sim *s, bool sweeps)
{
    uint32_t sweeps_max = s->job_capacity > 0 ? SWEEPS_MAX : 0;
    lane_count lane = { .limit = sweeps ? sweeps_max : (uint32_t)s->job_capacity };

    for (const gp_jobs_job *job = gp_jobs_after(s->machine, 0); job != NULL;
         job = gp_jobs_after(s->machine, job->id)) {
        if ((job->kind == GP_JOBS_SWEEP) != sweeps)
            continue;
        lane.active += job->state == GP_JOBS_STARTING || gp_jobs_orphaned(job);
        lane.waiting += job->heap_place != 0;
    }
    return lane;
}

static void act(void *context, const gp_jobs_action *action)
{
    sim *s = context;
    sim_fact *fact = action->id < SIM_JOBS ? &s->facts[action->id] : NULL;
    sim_job_process *process =
        fact != NULL && action->id != 0 ? process_of(s, action->id, action->attempt) : NULL;
    lane_count lane;
    sim_happening *h;

    if (s->dying)
        return; /* the scheduler was killed after an earlier action */
    if (fact == NULL || s->write_count == SIM_WRITES) {
        sim_fail(s, "flood", "the simulation is too small for these jobs");
        return;
    }
    sim_note(s, "jobs-does", action->kind, action->id, action->attempt);
    switch (action->kind) {
    case GP_JOBS_INSERT:
        if (fact->durable || fact->deleted)
            sim_fail(s, "reused-id", "id %llu is used again", (unsigned long long)action->id);
        /* fall through */
    case GP_JOBS_UPDATE:
    case GP_JOBS_DELETE:
        write_row(s, action);
        break;
    case GP_JOBS_START:
        lane = count_lane(s, action->job->kind == GP_JOBS_SWEEP);
        if (lane.active > lane.limit)
            sim_fail(s, "overbooked", "%u jobs at once, the limit is %u", lane.active, lane.limit);
        h = sim_push(s, MS + sim_draw(&s->disk_dice, 30 * MS), SIM_JOB_SPAWNS, 0);
        h->jobs.event = (gp_jobs_event){ .job = action->id, .attempt = action->attempt };
        break;
    case GP_JOBS_GO:
        go(s, process);
        break;
    case GP_JOBS_DROP:
        for (uint32_t i = 0; i < s->job_process_count; i++) {
            process = &s->job_processes[i];
            if (process->job == action->id && process->alive && !process->works)
                process_ends(s, process, GP_JOBS_EXIT_SIGNAL, 9, false);
        }
        break;
    case GP_JOBS_TERM:
        if (process == NULL)
            break;
        process->term = true;
        if (sim_chance(&s->disk_dice, 80))
            sim_push(s, sim_draw(&s->disk_dice, 500 * MS), SIM_JOB_ENDS, number_of(s, process));
        break;
    case GP_JOBS_KILL:
        if (process != NULL && !(PLANTED(SPARED) && action->id % 2 == 0))
            process_ends(s, process, GP_JOBS_EXIT_SIGNAL, 9, false);
        break;
    case GP_JOBS_ACCEPTED:
        if (!fact->durable && !fact->deleted)
            sim_fail(s, "early-reply", "job %llu was acknowledged but is not on disk",
                     (unsigned long long)action->id);
        reply(s, action);
        break;
    case GP_JOBS_CHANGED:
        check_changed(s, action, fact);
        break;
    default:
        reply(s, action);
        break;
    }
    sim_burns(s);
}

/* Fail if a job waits below its limit, except after a lack of a resource. A sweep that took the
 * place of its trials would wait forever. */
static void check_waiting(sim *s)
{
    const gp_jobs *machine = s->machine;

    if (machine->failed || machine->holding || machine->stopping || machine->now_ms < machine->start_ms)
        return;
    for (int sweeps = 0; sweeps < 2; sweeps++) {
        lane_count lane = count_lane(s, sweeps);

        if (lane.waiting > 0 && lane.active < lane.limit)
            sim_fail(s, "starved", "%u %s wait, and %u of %u run", lane.waiting, sweeps ? "sweeps" : "jobs",
                     lane.active, lane.limit);
    }
}

void sim_jobs_step(sim *s, gp_jobs_event event)
{
    event.clock_ms = s->wall_ms + s->now_us / MS;
    s->tally.steps++;
    sim_note(s, "jobs", event.kind, event.job, event.correlation);
    gp_jobs_step(s->machine, &event, s->now_us / MS);
    if (!s->dying)
        check_waiting(s);
    sim_turn(s);
}

void sim_jobs_receives(sim *s, sim_happening *h)
{
    gp_jobs_event *event = &h->jobs.event;

    if (!s->up || h->epoch != s->epoch)
        return;
    if (h->number != SIM_SUBMITTERS) {
        const bool controller = h->number > SIM_SUBMITTERS;

        if (h->link != (controller ? s->sweep.serial : s->submitters[h->number].link) || s->ending)
            return;
        if (!controller && event->kind == GP_JOBS_EVENT_CANCEL)
            sim_sweep_canceled(s, event->job);
        event->client.bytes[0] = (uint8_t)(h->number + 1);
        event->client.bytes[1] = (uint8_t)h->link;
        event->client.bytes[2] = (uint8_t)(h->link >> 8);
        event->submit = &h->jobs.submit;
        h->jobs.submit.name = h->jobs.name;
        h->jobs.submit.command = "";
    }
    sim_jobs_step(s, *event);
}

/* ---- scheduler start and crash ---- */

static void find_orphans(sim *s)
{
    for (uint32_t id = 1; id < s->next_id && id < SIM_JOBS; id++) {
        const gp_jobs_job *job = gp_jobs_find(s->machine, id);
        sim_job_process *process = job != NULL ? process_of(s, id, job->attempts) : NULL;
        gp_jobs_event event = { .kind = GP_JOBS_EVENT_ADOPTED, .job = id };

        if (job == NULL || !gp_jobs_orphaned(job))
            continue;
        event.attempt = job->attempts;
        if (process != NULL && process->alive) {
            process->watched = true;
        } else {
            event.kind = GP_JOBS_EVENT_ENDED;
            event.exit = process != NULL && process->record ? process->exit : GP_JOBS_EXIT_UNKNOWN;
            event.number = process != NULL && process->record ? process->number : 0;
        }
        sim_jobs_step(s, event);
    }
}

bool sim_jobs_begin(sim *s)
{
    gp_jobs_config config = gp_jobs_config_default();
    gp_error err;

    config.unfinished_max = 120;
    config.finished_max = sim_draw(&s->disk_dice, 8);
    config.trials_max = sim_draw(&s->disk_dice, 4);
    config.sweeps_max = SWEEPS_MAX;
    config.repeat_ms = REPEAT_MS;
    config.replies_max = 64;
    config.capacity = 0;
    s->job_capacity = 0;
    s->committing = s->disk_failed = s->disk_fails = false;
    s->write_count = 0;
    if (gp_jobs_new(&s->machine, &config, act, s, &err) != GP_OK) {
        sim_fail(s, "memory", "%s", err.message);
        return false;
    }
    for (uint32_t id = 1; id < s->next_id && id < SIM_JOBS; id++) {
        const sim_fact *fact = &s->facts[id];

        if (fact->durable && gp_jobs_load(s->machine, &fact->row, &err) != GP_OK)
            sim_fail(s, "row", "a row was refused: %s", err.message);
        if (!fact->durable && !fact->deleted)
            sim_record(s, s->jobs, (history_entry){ .kind = HISTORY_MISSING, .id = id });
        if (fact->durable && gp_jobs_state_ended(fact->row.state)) /* visible to every client */
            sim_record(s, s->jobs,
                       (history_entry){ .kind = HISTORY_END, .id = id, .outcome = (int32_t)fact->row.state });
    }
    gp_jobs_begin(s->machine, s->next_id);
    for (uint32_t i = 0; i < s->job_process_count; i++)
        s->job_processes[i].ours = s->job_processes[i].watched = false;
    find_orphans(s);
    return true;
}

/* Crash the scheduler or the machine. Any part of the pending writes may reach the disk; after an
 * orderly end all of them do. Processes at the gate exit. */
void sim_jobs_crash(sim *s, bool machine_too)
{
    if (s->machine != NULL && !s->disk_failed)
        make_durable(s,
                     s->downed && s->exited ? s->write_count : sim_draw(&s->disk_dice, s->write_count + 1));
    s->write_count = 0;
    s->tally.crashes += s->machine != NULL;
    for (uint32_t i = 0; i < s->job_process_count; i++)
        if (machine_too || !s->job_processes[i].works)
            process_ends(s, &s->job_processes[i], GP_JOBS_EXIT_SIGNAL, 9, false);
    gp_jobs_free(s->machine);
    s->machine = NULL;
}

bool sim_jobs_settled(const sim *s, char why[480])
{
    for (uint32_t i = 0; i < SIM_SUBMITTERS; i++) {
        if (s->submitters[i].busy) {
            snprintf(why, 480, "submitter %u waits for %zu answers", i,
                     s->submitters[i].window.count - s->submitters[i].window.answered);
            return false;
        }
    }
    if (s->machine == NULL || s->disk_failed || gp_jobs_busy(s->machine)) {
        snprintf(why, 480, "jobs are left that never end");
        return false;
    }
    return true;
}

/* ---- users ---- */

static uint32_t index_of(const sim *s, const sim_submitter *submitter)
{
    return (uint32_t)(submitter - s->submitters);
}

static sim_happening *submitter_says(sim *s, sim_submitter *submitter, gp_jobs_event_kind kind)
{
    int64_t at_us = s->now_us + sim_transit(s);
    sim_happening *h;

    if (at_us > submitter->out_us)
        submitter->out_us = at_us;
    h = sim_push_at(s, submitter->out_us, SIM_TO_JOBS, index_of(s, submitter));
    h->link = submitter->link;
    h->jobs.event = (gp_jobs_event){ .kind = kind };
    return h;
}

static void batch_begins(sim *s, sim_submitter *submitter)
{
    gp_error err;

    submits_deinit(&submitter->window);
    memset(submitter->jobs, 0, sizeof(submitter->jobs));
    submitter->base = submitter->reported;
    if (submits_init(&submitter->window, submitter->jobs, 1 + sim_draw(&submitter->dice, SIM_BATCH), WINDOW,
                     TIMEOUT_MS, s->now_us / MS, &err) != GP_OK)
        sim_fail(s, "memory", "%s", err.message);
    submitter->busy = true;
}

static void send_one(sim *s, sim_submitter *submitter)
{
    submits *window = &submitter->window;
    sim_happening *h;
    size_t number;
    uint64_t seq;

    if (!submits_next(window, &number))
        return;
    seq = submitter->base + number + 1;
    h = submitter_says(s, submitter, GP_JOBS_EVENT_SUBMIT);
    if (window->sent == 0)
        submitter->first = submitter->correlation + 1;
    h->jobs.event.correlation = ++submitter->correlation;
    h->jobs.submit = (gp_jobs_submit){ .seq = seq,
                                       .kind = (gp_jobs_kind)(seq % GP_JOBS_KINDS),
                                       .priority = (int32_t)sim_draw(&submitter->dice, 3) };
    h->jobs.submit.submitter[0] = (uint8_t)submitter->key;
    h->jobs.name[0] = '\0';
    if (PLANTED(NEW_KEY))
        h->jobs.submit.submitter[1] = (uint8_t)submitter->link;
    submits_sent(window, number, s->now_us / MS);
    sim_record(s, s->jobs, (history_entry){ .kind = HISTORY_SUBMIT, .session = submitter->key, .seq = seq });
    if (seq > submitter->reported)
        submitter->reported = seq;
}

void sim_submitter_acts(sim *s, sim_submitter *submitter)
{
    sim_dice *dice = &submitter->dice;

    sim_push(s, 5 * MS + sim_draw(dice, sim_chance(dice, 10) ? 1500 * MS : 150 * MS), SIM_SUBMITTER_ACTS,
             index_of(s, submitter));
    if (submitter->busy && submits_late(&submitter->window, s->now_us / MS))
        submitter->busy = false; /* the submitter does not know whether the rest was recorded */
    if (!s->up || submitter->epoch != s->epoch)
        return;
    if (!submitter->busy && !sim_calm(s) && s->now_us >= submitter->quiet_us &&
        s->next_id + s->write_count + IDS_LEFT < SIM_JOBS)
        batch_begins(s, submitter);
    if (submitter->busy)
        send_one(s, submitter);
    if (!sim_calm(s) && sim_chance(dice, 8)) {
        gp_jobs_event *event = &submitter_says(s, submitter, GP_JOBS_EVENT_CANCEL)->jobs.event;

        event->job = sim_chance(dice, 5) ? 0 : 1 + sim_draw(dice, (uint32_t)s->next_id);
        event->grace_ms = sim_chance(dice, 4) ? 0 : 10000;
    }
}

void sim_submitter_receives(sim *s, sim_submitter *submitter, const sim_happening *h)
{
    submits *window = &submitter->window;
    uint64_t place = h->reply.correlation - submitter->first;

    if (h->epoch != s->epoch || h->link != (submitter->link & 0xffff) || !submitter->busy ||
        place >= window->sent)
        return;
    if (h->reply.kind == GP_JOBS_ERROR) {
        submitter->busy = false;
    } else if (h->reply.kind == GP_JOBS_ACCEPTED) {
        sim_record(s, s->jobs,
                   (history_entry){ .kind = HISTORY_ACCEPT,
                                    .session = submitter->key,
                                    .seq = submitter->base + window->order[place] + 1,
                                    .id = h->reply.job });
        submits_answered(window, place, h->reply.job, s->now_us / MS);
        submitter->busy = !submits_done(window);
        if (!submitter->busy && sim_chance(&submitter->dice, 30)) /* long enough for all jobs to be deleted */
            submitter->quiet_us = s->now_us + sim_draw(&submitter->dice, 6000 * MS);
    }
}

/* Connect to this scheduler on a new link and resend unanswered requests. */
static void submitter_dialled(sim *s, sim_submitter *submitter)
{
    submitter->epoch = s->epoch;
    submitter->link++;
    submitter->out_us = submitter->in_us = s->now_us;
    if (!submitter->busy)
        return;
    if (PLANTED(SENT_AGAIN)) {
        memset(submitter->jobs, 0, sizeof(submitter->jobs));
        submitter->window.answered = submitter->window.begun = 0;
    }
    submits_again(&submitter->window);
}

void sim_submitter_dials(sim *s, sim_submitter *submitter, uint64_t epoch)
{
    if (s->up && epoch == s->epoch)
        submitter_dialled(s, submitter);
}

void sim_submitter_breaks(sim *s, sim_submitter *submitter)
{
    if (!s->up || submitter->epoch != s->epoch)
        return;
    submitter->link++; /* messages are lost until it reconnects */
    submitter->epoch = 0;
    sim_push(s, sim_draw(&submitter->dice, DIALS_MS * MS), SIM_SUBMITTER_DIALS, index_of(s, submitter));
}
