/* A sweep: the real state machine and journal of a controller, with simulated trainings and an
 * invented search. */
#include <math.h>
#include <string.h>

#include "tests/sim/cluster.h"

enum { ACTOR_SWEEP = 9, ACTOR_SWEEP_USER = 10, KEY = 0xee, POLL_MS = 60, WORKERS_MAX = 8 };

static uint32_t trial_of(uint64_t seq)
{
    return (uint32_t)seq / SIM_SWEEP_ATTEMPTS; /* the bug TWICE sets higher bits */
}

static uint64_t seq_of(uint32_t trial, uint32_t attempt)
{
    return (uint64_t)trial * SIM_SWEEP_ATTEMPTS + attempt;
}

/* Return the trial that a job runs. 0: none. */
static uint32_t trial_of_job(const sim *s, uint64_t job)
{
    const gp_jobs_job *row = &s->facts[job].row;

    return row->submitter[0] == KEY ? trial_of(row->seq) : 0;
}

bool sim_runs_trial(const sim *s, uint64_t job)
{
    return trial_of_job(s, job) != 0;
}

/* Return a number that depends only on the trial and the epoch. */
static uint32_t luck(const sim *s, uint32_t trial, uint32_t epoch)
{
    return (uint32_t)(sim_mix(s->script.seed ^ (trial * 977u + epoch)) >> 40) % 100;
}

/* ---- search ---- */

static gp_status search_ask(void *context, const char **values, gp_error *err)
{
    sim *s = context;

    if (s->sweep.asks == SIM_SWEEP_OWN)
        return gp_fail(err, GP_ENOENT, "no point is left");
    s->sweep.asks++;
    snprintf(s->sweep.values, sizeof(s->sweep.values), "{\"x\": %u}", sim_draw(&s->sweep.dice, 1000000));
    *values = s->sweep.values;
    return GP_OK;
}

static gp_status search_add(void *context, const char *values, bool extra, gp_error *err)
{
    sim *s = context;

    (void)values;
    (void)extra;
    (void)err;
    s->sweep.asks++;
    return GP_OK;
}

static sweep_verdict search_report(void *context, uint32_t trial, uint32_t epoch, double value)
{
    sim *s = context;

    if (epoch > 2)
        return SWEEP_NO_RUNG;
    if (sweep_find(s->sweep.core, trial)->repeat > 0)
        sim_fail(s, "reported-repeat", "the search gets a value of trial %u, a repeat", trial);
    if ((s->sweep.reported[trial] >> epoch & 1) != 0)
        sim_fail(s, "reported-twice", "the search gets the value of trial %u at epoch %u twice", trial,
                 epoch);
    s->sweep.reported[trial] |= 1u << epoch;
    return value < 25 ? SWEEP_STOP : SWEEP_CONTINUE;
}

static void search_tell(void *context, uint32_t trial, sweep_state state, double value)
{
    sim *s = context;

    (void)state;
    (void)value;
    if (s->sweep.told[trial])
        sim_fail(s, "told-twice", "the search gets the end of trial %u twice", trial);
    s->sweep.told[trial] = true;
}

/* ---- journal ---- */

/* Record what the file says: points asked and trials ended. */
static void note_line(sim *s, const sweep_line *line)
{
    sim_sweep *c = &s->sweep;

    if (line->kind == SWEEP_LINE_ASKED) {
        c->own += line->of == 0 && (line->request == NULL || line->request[0] == '\0');
        if (line->trial >= SIM_SWEEP_TRIALS || c->own > c->trials_max)
            sim_fail(s, "asked-too-often", "the sweep asks for point %u of %u", c->own, c->trials_max);
        sim_request_noted(s, line);
        snprintf(c->names[line->trial % SIM_SWEEP_TRIALS], sizeof(c->names[0]), "%s", line->values);
    }
    if (line->kind != SWEEP_LINE_END)
        return;
    if (c->ended[line->trial])
        sim_fail(s, "ended-twice", "trial %u has two ends", line->trial);
    c->ended[line->trial] = true;
    if (line->state == SWEEP_FAILED && strstr(line->text, "canceled") != NULL && !c->canceled[line->trial])
        sim_fail(s, "false-cancel", "trial %u counts as canceled, but no user canceled it", line->trial);
    for (uint32_t i = 0; i < s->job_process_count; i++)
        if (s->job_processes[i].alive && s->job_processes[i].works &&
            trial_of_job(s, s->job_processes[i].job) == line->trial)
            sim_fail(s, "ended-while-running", "trial %u ends while it runs", line->trial);
}

static void append_line(sim *s, const sweep_action *action)
{
    sim_sweep *c = &s->sweep;
    const sweep_line *line = action->line;
    gp_buffer text;
    gp_error err;
    uint32_t bytes;
    sim_happening *h;

    if (c->unwritable)
        return;
    gp_buffer_init(&text, SWEEP_LINE_BYTES_MAX);
    if (sweep_line_encode(&text, line, &err) != GP_OK)
        sim_fail(s, "line", "%s", err.message);
    bytes = (uint32_t)text.bytes;
    if (c->bytes + bytes > sizeof(c->journal)) {
        sim_fail(s, "flood", "the journal of the sweep is full");
        bytes = 0;
    }
    if (!sim_calm(s) && sim_chance(&c->dice, 1)) /* the disk is full: part of the line is written */
        bytes = sim_draw(&c->dice, bytes);
    if (bytes > 0)
        memcpy(c->journal + c->bytes, text.data, bytes);
    c->bytes += bytes;
    if (bytes == text.bytes) {
        note_line(s, line);
        if (line->kind == SWEEP_LINE_ASKED)
            c->asked_at[line->trial] = c->bytes;
        if (line->kind == SWEEP_LINE_ATTEMPT) /* the end of the last attempt must not count again */
            c->folders[line->trial].ended = false;
    }
    h = sim_push(s,
                 MS + sim_draw(&c->dice, 8 * MS) + (s->now_us < s->disk_slow_until_us ? s->disk_slow_us : 0),
                 SIM_SWEEP_SYNCS, c->serial);
    h->detail = bytes == text.bytes ? c->bytes : 0;
    h->link = (uint32_t)action->number;
    c->unwritable = bytes != text.bytes;
    gp_buffer_deinit(&text);
}

/* ---- controller ---- */

static sim_happening *post(sim *s, gp_jobs_event_kind kind)
{
    sim_sweep *c = &s->sweep;
    int64_t at_us = s->now_us + sim_transit(s);
    sim_happening *h;

    if (at_us > c->out_us)
        c->out_us = at_us;
    h = sim_push_at(s, c->out_us, SIM_TO_JOBS, SIM_SUBMITTERS + 1);
    h->link = c->serial;
    h->jobs.event = (gp_jobs_event){ .kind = kind };
    return h;
}

/* Check that a sweep whose trials have all ended has repeated the best one. */
static void check_repeats(sim *s, sweep_reason reason)
{
    const sim_sweep *c = &s->sweep;
    uint32_t repeats = 0;

    for (uint32_t trial = 1; trial <= sweep_count(c->core); trial++)
        repeats +=
            sweep_find(c->core, trial)->repeat > 0 && sweep_find(c->core, trial)->of == sweep_best(c->core);
    if (reason == SWEEP_REASON_TRIALS && sweep_best(c->core) != 0 && repeats != c->repeats)
        sim_fail(s, "unconfirmed", "the sweep is over, and trial %u has %u repeats of %u",
                 sweep_best(c->core), repeats, c->repeats);
}

static void act(void *context, const sweep_action *action)
{
    sim *s = context;
    sim_sweep *c = &s->sweep;

    if (c->dying)
        return; /* the controller was killed after an earlier action */
    sim_note(s, "sweep-does", action->kind, action->trial, action->attempt);
    switch (action->kind) {
    case SWEEP_APPEND:
        append_line(s, action);
        break;
    case SWEEP_SUBMIT:
        c->jobs[action->trial] = 0;
        c->sent[action->trial] = c->stop[action->trial] = c->running[action->trial] = false;
        c->attempts[action->trial] = action->attempt;
        break;
    case SWEEP_STOP_JOB:
        c->stop[action->trial] = true;
        post(s, GP_JOBS_EVENT_CANCEL)->jobs.event.job = c->jobs[action->trial];
        break;
    case SWEEP_OVER:
        check_repeats(s, action->reason);
        c->over = true;
        c->finished = action->reason < SWEEP_REASON_HALTED;
        break;
    default:
        break;
    }
    if (c->fuse > 0 && --c->fuse == 0)
        c->dying = true;
}

/* Check that running trials do not share more workers than there are. */
static void check_sizes(sim *s)
{
    uint32_t sum = 0, running = 0, workers = s->sweep.workers;

    for (uint32_t trial = 1; trial <= sweep_count(s->sweep.core); trial++) {
        const sweep_trial *there = sweep_find(s->sweep.core, trial);

        if (there->state != SWEEP_RUNNING)
            continue;
        running++;
        sum += there->workers;
    }
    if (sum > workers && sum > running * s->sweep.workers_min)
        sim_fail(s, "oversized", "%u running trials have %u workers of %u", running, sum, workers);
}

/* End the controller, and start another one later unless the sweep is over. */
static void controller_ends(sim *s)
{
    sim_sweep *c = &s->sweep;

    sweep_free(c->core);
    c->core = NULL;
    c->serial++;
    if (!c->finished)
        sim_push(s, sim_draw(&c->dice, sim_chance(&c->dice, 20) ? 6000 * MS : 800 * MS), SIM_SWEEP_STARTS, 0);
}

void sim_sweep_step(sim *s, sweep_event event)
{
    sim_sweep *c = &s->sweep;

    if (c->core == NULL)
        return;
    sim_note(s, "sweep", event.kind, event.trial, event.number);
    sweep_step(c->core, &event);
    if (!c->dying)
        check_sizes(s);
    if (c->dying || c->over)
        controller_ends(s);
}

static gp_status replay_line(void *context, const sweep_line *line, gp_error *err)
{
    sim *s = context;

    note_line(s, line);
    return sweep_replay(s->sweep.core, line, err);
}

/* Change the number of workers that trials can lease. */
static void set_workers(sim *s)
{
    s->sweep.workers = 1 + sim_draw(&s->sweep.dice, WORKERS_MAX);
    sim_sweep_step(s, (sweep_event){ .kind = SWEEP_EVENT_WORKERS, .count = s->sweep.workers });
}

void sim_sweep_starts(sim *s)
{
    sim_sweep *c = &s->sweep;
    sweep_config config = { .trials_max = c->trials_max,
                            .concurrent_max = c->concurrent_max,
                            .workers_min = c->workers_min,
                            .workers_max = c->workers_min + s->script.seed % 3,
                            .repeats = c->repeats,
                            .goal = NAN,
                            .how = "dice",
                            .search = { .context = s,
                                        .ask = search_ask,
                                        .add = search_add,
                                        .report = search_report,
                                        .tell = search_tell } };
    size_t kept = 0;
    gp_error err;

    if (c->core != NULL || c->finished)
        return;
    c->asks = 0;
    c->fuse = 0;
    c->over = c->dying = c->unwritable = c->halted = false;
    c->own = 0;
    for (uint32_t i = 0; i < c->request_count; i++)
        c->requests[i].lines = 0; /* the replay counts them again */
    memset(c->told, 0, sizeof(c->told));
    memset(c->reported, 0, sizeof(c->reported));
    memset(c->ended, 0, sizeof(c->ended));
    memset(c->jobs, 0, sizeof(c->jobs));
    if (sweep_new(&c->core, &config, act, s, &err) != GP_OK ||
        sweep_lines_decode(c->journal, c->bytes, &kept, replay_line, s, &err) != GP_OK) {
        sim_fail(s, "replay", "%s", err.message);
        return;
    }
    c->bytes = c->durable = (uint32_t)kept; /* the controller cuts the file and calls fsync() */
    set_workers(s);
    sim_requests_take(s);
    sim_sweep_step(s, (sweep_event){ .kind = SWEEP_EVENT_BEGIN });
    sim_push(s, sim_draw(&c->dice, POLL_MS * MS), SIM_SWEEP_POLLS, c->serial);
}

void sim_sweep_syncs(sim *s, const sim_happening *h)
{
    sim_sweep *c = &s->sweep;

    if (h->number != c->serial)
        return;
    if (h->detail == 0) {
        sim_sweep_step(s, (sweep_event){ .kind = SWEEP_EVENT_UNWRITABLE, .text = "no space" });
        return;
    }
    if (c->durable < h->detail)
        c->durable = h->detail;
    sim_sweep_step(s, (sweep_event){ .kind = SWEEP_EVENT_APPENDED, .number = h->link });
}

void sim_sweep_dies(sim *s, bool machine_too)
{
    sim_sweep *c = &s->sweep;

    if (machine_too && c->bytes > c->durable) /* any part of the file may have reached the disk */
        c->bytes = c->durable + sim_draw(&c->dice, c->bytes - c->durable + 1);
    if (c->core != NULL)
        controller_ends(s);
}

void sim_sweep_struck(sim *s, bool halt, uint32_t after)
{
    if (s->sweep.core == NULL)
        return;
    s->sweep.halted |= halt;
    if (halt)
        sim_sweep_step(s, (sweep_event){ .kind = SWEEP_EVENT_HALT });
    else if (after % 8 < 2)
        sim_sweep_dies(s, after % 8 == 0); /* with the host, or alone */
    else
        s->sweep.fuse = after % 8;
}

/* ---- jobs, as the controller sees them ---- */

/* Submit the job of a trial, unless the folder of the trial has a result: the pool may have
 * forgotten the job, and would run it again. */
static void submit(sim *s, uint32_t trial)
{
    sim_sweep *c = &s->sweep;
    sim_happening *h;

    if (c->folders[trial].ended) {
        c->jobs[trial] = c->folders[trial].job;
        sim_sweep_step(
            s, (sweep_event){ .kind = SWEEP_EVENT_SUBMITTED, .trial = trial, .attempt = c->attempts[trial] });
        return;
    }
    h = post(s, GP_JOBS_EVENT_SUBMIT);
    h->jobs.event.correlation = seq_of(trial, c->attempts[trial]);
    h->jobs.submit = (gp_jobs_submit){ .seq = seq_of(trial, c->attempts[trial]), .kind = GP_JOBS_TRIAL };
    h->jobs.submit.submitter[0] = KEY;
    snprintf(h->jobs.name, sizeof(h->jobs.name), "%s", sweep_find(c->core, trial)->values);
    c->sent[trial] = true;
}

void sim_sweep_receives(sim *s, const sim_happening *h)
{
    sim_sweep *c = &s->sweep;
    uint32_t trial = trial_of(h->reply.correlation), attempt = h->reply.correlation % SIM_SWEEP_ATTEMPTS;

    if (c->core == NULL || h->link != (c->serial & 0xffff) || trial >= SIM_SWEEP_TRIALS ||
        attempt != c->attempts[trial])
        return;
    if (h->reply.kind == GP_JOBS_ERROR)
        c->sent[trial] = false;
    if (h->reply.kind != GP_JOBS_ACCEPTED)
        return;
    c->jobs[trial] = h->reply.job;
    sim_sweep_step(s, (sweep_event){ .kind = SWEEP_EVENT_SUBMITTED, .trial = trial, .attempt = attempt });
}

/* Report the validations of a trial since the last call. */
static void follow(sim *s, uint32_t trial)
{
    sim_sweep *c = &s->sweep;
    const uint32_t attempt = c->attempts[trial], serial = c->serial;

    for (uint32_t epoch = 1; serial == c->serial && epoch <= c->folders[trial].epochs; epoch++)
        sim_sweep_step(s, (sweep_event){ .kind = SWEEP_EVENT_VALUE,
                                         .trial = trial,
                                         .attempt = attempt,
                                         .epoch = epoch,
                                         .value = luck(s, trial, epoch) });
}

/* Look at the job and the folder of a trial. */
static void look(sim *s, uint32_t trial)
{
    sim_sweep *c = &s->sweep;
    const sim_trial_folder *folder = &c->folders[trial];
    const uint32_t attempt = c->attempts[trial], serial = c->serial;
    const sim_fact *fact = &s->facts[c->jobs[trial]];
    sweep_event event = { .trial = trial, .attempt = attempt, .value = NAN };

    if (!fact->deleted && (!fact->durable || !gp_jobs_state_ended(fact->row.state))) {
        if (fact->row.state != GP_JOBS_QUEUED && !c->running[trial]) {
            c->running[trial] = true;
            event.kind = SWEEP_EVENT_RUNNING;
            sim_sweep_step(s, event);
        }
        if (serial == c->serial)
            follow(s, trial);
        if (serial == c->serial && c->stop[trial])
            post(s, GP_JOBS_EVENT_CANCEL)->jobs.event.job = c->jobs[trial];
        return;
    }
    follow(s, trial);
    event.kind = SWEEP_EVENT_ENDED;
    /* A shutdown of the pool stops a training too; only a cancel of the job is final. */
    if (folder->ended && folder->outcome != SWEEP_OUTCOME_CANCELED)
        event.outcome = folder->outcome;
    else
        event.outcome = fact->row.cancel ? SWEEP_OUTCOME_CANCELED : SWEEP_OUTCOME_LOST;
    event.epoch = folder->epochs;
    event.value = event.outcome == SWEEP_OUTCOME_DONE ? luck(s, trial, folder->epochs) : NAN;
    event.text = "diverged";
    if (serial == c->serial)
        sim_sweep_step(s, event);
}

void sim_sweep_polls(sim *s, const sim_happening *h)
{
    sim_sweep *c = &s->sweep;

    sim_requests_arrive(s);
    if (h->number != c->serial || c->core == NULL)
        return;
    sim_requests_take(s);
    for (uint32_t trial = 1; c->core != NULL && trial <= sweep_count(c->core); trial++) {
        sweep_state state = sweep_find(c->core, trial)->state;

        if (state < SWEEP_SUBMITTED || state > SWEEP_STOPPING || !s->up)
            continue;
        if (c->epoch != s->epoch)
            c->sent[trial] = false;
        if (c->jobs[trial] != 0)
            look(s, trial);
        else if (!c->sent[trial])
            submit(s, trial);
    }
    if (s->up)
        c->epoch = s->epoch;
    if (sim_chance(&c->dice, 5))
        set_workers(s);
    sim_push(s, POLL_MS * MS, SIM_SWEEP_POLLS, h->number);
}

/* ---- trainings ---- */

void sim_trial_begins(sim *s, uint32_t number)
{
    sim_sweep *c = &s->sweep;
    const sim_job_process *process = &s->job_processes[number];
    const uint32_t trial = trial_of_job(s, process->job);
    sim_trial_folder *folder = &c->folders[trial];

    if (c->ended[trial])
        sim_fail(s, "begins-after-end", "trial %u begins after its end", trial);
    if (c->asked_at[trial] == 0 || c->asked_at[trial] > c->durable)
        sim_fail(s, "begins-early", "trial %u begins, but its point is not on disk", trial);
    if (strcmp(s->facts[process->job].row.name, c->names[trial]) != 0)
        sim_fail(s, "other-values", "trial %u runs with %s and was asked with %s", trial,
                 s->facts[process->job].row.name, c->names[trial]);
    for (uint32_t i = 0; i < s->job_process_count; i++)
        if (i != number && s->job_processes[i].alive && s->job_processes[i].works &&
            trial_of_job(s, s->job_processes[i].job) == trial)
            sim_fail(s, "trial-twice", "trial %u runs in two jobs", trial);
    folder->ended = false;
    folder->job = process->job;
    if (folder->epochs > 0 && sim_chance(&c->dice, 50))
        folder->epochs--; /* resumes from a checkpoint before the last validation */
    sim_push(s, 10 * MS + sim_draw(&c->dice, 200 * MS), SIM_TRIAL_STEPS, number);
}

/* Write the result of a trial and exit. */
static void trial_ends(sim *s, uint32_t number, sweep_outcome outcome, int32_t code)
{
    sim_trial_folder *folder = &s->sweep.folders[trial_of_job(s, s->job_processes[number].job)];

    folder->ended = true;
    folder->outcome = outcome;
    sim_job_exits(s, number, code);
}

void sim_trial_steps(sim *s, uint32_t number)
{
    const sim_job_process *process = &s->job_processes[number];
    const uint32_t trial = trial_of_job(s, process->job);
    sim_trial_folder *folder = &s->sweep.folders[trial];

    if (!process->alive || !process->works)
        return;
    folder->epochs++;
    if (folder->epochs >= 1 + luck(s, trial, 0) % 4)
        trial_ends(s, number, luck(s, trial, 99) < 10 ? SWEEP_OUTCOME_FAILED : SWEEP_OUTCOME_DONE,
                   luck(s, trial, 99) < 10);
    else
        sim_push(s, 10 * MS + sim_draw(&s->sweep.dice, 300 * MS), SIM_TRIAL_STEPS, number);
}

void sim_trial_stops(sim *s, uint32_t number)
{
    if (sim_chance(&s->sweep.dice, 70))
        trial_ends(s, number, SWEEP_OUTCOME_CANCELED, 130);
}

void sim_sweep_canceled(sim *s, uint64_t job)
{
    for (const gp_jobs_job *at = gp_jobs_after(s->machine, 0); at != NULL;
         at = gp_jobs_after(s->machine, at->id))
        if ((job == 0 || job == at->id) && at->submitter[0] == KEY)
            s->sweep.canceled[trial_of(at->seq)] = true;
}

/* ---- runs ---- */

void sim_sweep_begin(sim *s)
{
    sim_sweep *c = &s->sweep;

    memset(c, 0, sizeof(*c));
    c->dice = sim_dice_of(s->script.seed, ACTOR_SWEEP, 0);
    c->user = sim_dice_of(s->script.seed, ACTOR_SWEEP_USER, 0);
    c->repeats = s->script.seed % 3 == 0 ? 2 : 0;
    c->trials_max = 1 + sim_draw(&c->dice, SIM_SWEEP_OWN - 2);
    c->concurrent_max = 1 + sim_draw(&c->dice, 3);
    c->workers_min = 1 + sim_draw(&c->dice, 2);
    c->finished = s->script.submitters == 0;
    if (!c->finished)
        sim_push(s, sim_draw(&c->dice, 1000 * MS), SIM_SWEEP_STARTS, 0);
}

void sim_sweep_end(sim *s)
{
    sweep_free(s->sweep.core);
    s->sweep.core = NULL;
}

bool sim_sweep_settled(const sim *s, char why[480])
{
    const sim_sweep *c = &s->sweep;

    if (!c->finished) {
        snprintf(why, 480, "the sweep has not finished (%u trials of %u asked)",
                 c->core != NULL ? sweep_count(c->core) : 0, c->trials_max);
        return false;
    }
    for (uint32_t trial = 1; s->script.submitters > 0 && trial <= c->trials_max; trial++) {
        if (!c->ended[trial]) {
            snprintf(why, 480, "the sweep is over, but trial %u has no end", trial);
            return false;
        }
    }
    return sim_requests_settled(s, why);
}
