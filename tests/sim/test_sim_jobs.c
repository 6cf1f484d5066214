/* test_sim_jobs.c -- the jobs' machine against an invented journal, invented processes and clients, under seeds.
 *
 * What is tried at random: submits, also repeated ones, cancels, commits of any length, slow spawns, jobs that end well,
 * badly or by a kill, a scheduler that dies and leaves its processes, a machine that dies with all of them, a journal
 * that fails, a pool that is taken down, another number of workers.  What must hold after each of it stands at `must`.
 * Each planted bug (jobs_parts.h) must be found. */
#include <stdarg.h>

#include "scheduler/jobs_parts.h"
#include "tests/gp_test.h"

enum {
    JOBS_MAX = 400, /* ids of one run */
    SUBMITS_MAX = 160,
    PROCESSES_MAX = 2000,
    WRITES_MAX = 2000,
    STEPS = 900,
    DRAIN_STEPS = 20000,
    RUNS = 400,
    MUTANT_RUNS = 400,
};

typedef struct sim_process {
    uint64_t job;
    uint32_t attempt;
    bool alive, works; /* works: through the gate */
    bool ours;         /* the present scheduler spawned it */
    bool watched;      /* the present scheduler knows of it */
    bool term;
    bool record; /* it wrote how it ended */
    gp_jobs_exit exit;
    int32_t number;
} sim_process;

typedef struct sim_write {
    uint64_t number;
    gp_jobs_action_kind kind;
    gp_jobs_job row;
} sim_write;

typedef struct sim_fact { /* what the world knows of an id */
    bool durable, deleted, acknowledged, told_end, succeeded, failed_by_itself;
    gp_jobs_job row; /* as it is on the disk */
    uint64_t seq;
} sim_fact;

static struct {
    gp_jobs *machine;
    uint64_t random, draws;
    int64_t now_ms;
    uint32_t capacity;
    bool stopping, failed;
    sim_fact facts[JOBS_MAX];
    uint64_t next_id;                   /* the counter on the disk */
    uint64_t acknowledged[SUBMITS_MAX]; /* id by seq */
    uint64_t seqs;                      /* used */
    sim_process processes[PROCESSES_MAX];
    uint32_t process_count;
    sim_write writes[WRITES_MAX];
    uint32_t write_count;
    struct {
        uint64_t job;
        uint32_t attempt;
    } starts[64];
    uint32_t start_count;
    uint64_t inserting_seq;
    char failure[200];
    uint64_t steps, crashes, ends;
} w;

static uint32_t draw(uint32_t below)
{
    w.random ^= w.random << 13;
    w.random ^= w.random >> 7;
    w.random ^= w.random << 17;
    w.draws++;
    return (uint32_t)((w.random >> 11) % below);
}

__attribute__((format(printf, 2, 3))) static void must(bool holds, const char *format, ...)
{
    va_list arguments;

    if (holds || w.failure[0] != '\0')
        return;
    va_start(arguments, format);
    vsnprintf(w.failure, sizeof(w.failure), format, arguments);
    va_end(arguments);
}

static void step(gp_jobs_event event)
{
    event.clock_ms = 1700000000000ll + w.now_ms;
    gp_jobs_step(w.machine, &event, w.now_ms);
    w.steps++;
}

/* ---- processes ---- */

static sim_process *process_of(uint64_t job, uint32_t attempt)
{
    for (uint32_t i = w.process_count; i-- > 0;)
        if (w.processes[i].job == job && w.processes[i].attempt == attempt)
            return &w.processes[i];
    return NULL;
}

static uint32_t working(uint64_t job)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < w.process_count; i++)
        count += w.processes[i].job == job && w.processes[i].alive && w.processes[i].works;
    return count;
}

static void process_ends(sim_process *process, gp_jobs_exit how, int32_t number, bool record)
{
    if (!process->alive)
        return;
    process->alive = false;
    process->exit = how;
    process->number = number;
    process->record = record && process->works;
    w.ends++;
    if (process->record && how == GP_JOBS_EXIT_CODE && number == 0) {
        must(!w.facts[process->job].succeeded, "job %d finished twice", (int)process->job);
        w.facts[process->job].succeeded = true;
    }
}

static void go(uint64_t job, uint32_t attempt)
{
    sim_process *process = process_of(job, attempt);
    const sim_fact *fact = &w.facts[job];

    if (process == NULL || !process->alive || process->works)
        return;
    must(fact->durable && gp_jobs_orphaned(&fact->row) && fact->row.attempts == attempt,
         "job %d works and the disk does not know its process", (int)job);
    must(working(job) == 0, "two processes of job %d work", (int)job);
    must(!fact->succeeded, "job %d runs again although it had finished", (int)job);
    must(!fact->failed_by_itself, "job %d runs again although it had failed by itself", (int)job);
    process->works = true;
}

/* ---- the machine's actions ---- */

static void act(void *context, const gp_jobs_action *action)
{
    sim_process *process = action->id != 0 ? process_of(action->id, action->attempt) : NULL;
    sim_fact *fact = action->id < JOBS_MAX ? &w.facts[action->id] : NULL;

    (void)context;
    if (fact == NULL || w.write_count == WRITES_MAX || w.start_count == 64) {
        must(false, "the simulation is too small");
        return;
    }
    switch (action->kind) {
    case GP_JOBS_INSERT:
        must(!fact->durable && !fact->deleted, "id %d is used again", (int)action->id);
        fact->seq = w.inserting_seq;
        /* fall through */
    case GP_JOBS_UPDATE:
    case GP_JOBS_DELETE:
        must(w.write_count == 0 || action->number > w.writes[w.write_count - 1].number, "numbers go down");
        w.writes[w.write_count++] =
            (sim_write){ .number = action->number, .kind = action->kind, .row = *action->job };
        break;
    case GP_JOBS_START:
        must(gp_jobs_active(w.machine) <= w.capacity, "%u jobs at once, %u workers",
             gp_jobs_active(w.machine), w.capacity);
        w.starts[w.start_count].job = action->id;
        w.starts[w.start_count++].attempt = action->attempt;
        break;
    case GP_JOBS_GO:
        go(action->id, action->attempt);
        break;
    case GP_JOBS_DROP:
        for (uint32_t i = 0; i < w.process_count; i++) {
            process = &w.processes[i];
            if (process->job == action->id && process->alive && !process->works)
                process_ends(process, GP_JOBS_EXIT_SIGNAL, 9, false);
        }
        break;
    case GP_JOBS_TERM:
        if (process != NULL)
            process->term = true;
        break;
    case GP_JOBS_KILL:
        if (process != NULL)
            process_ends(process, GP_JOBS_EXIT_SIGNAL, 9, false);
        break;
    case GP_JOBS_ACCEPTED:
        must(fact->durable || fact->deleted, "job %d is acknowledged and not on the disk", (int)action->id);
        must(w.acknowledged[action->correlation] == 0 || w.acknowledged[action->correlation] == action->id,
             "submit %d became two jobs", (int)action->correlation);
        must(fact->seq == action->correlation, "submit %d got the id of submit %d", (int)action->correlation,
             (int)fact->seq);
        w.acknowledged[action->correlation] = action->id;
        fact->acknowledged = true;
        break;
    case GP_JOBS_CHANGED:
        must(fact->durable &&
                 fact->row.state ==
                     (action->job->durable == GP_JOBS_STARTING ? GP_JOBS_RUNNING : action->job->durable),
             "job %d is told to be %s, the disk has %s", (int)action->id,
             gp_jobs_state_word(action->job->durable), gp_jobs_state_word(fact->row.state));
        must(!fact->told_end || gp_jobs_state_ended(action->job->durable), "job %d lives again",
             (int)action->id);
        fact->told_end |= gp_jobs_state_ended(action->job->durable);
        break;
    default:
        break;
    }
}

/* ---- the disk ---- */

static void apply(const sim_write *write)
{
    sim_fact *fact = &w.facts[write->row.id];

    if (write->kind == GP_JOBS_DELETE) {
        must(fact->durable && gp_jobs_state_ended(fact->row.state), "job %d is dropped and has not ended",
             (int)write->row.id);
        fact->durable = false;
        fact->deleted = true;
        return;
    }
    if (write->kind == GP_JOBS_INSERT) {
        must(write->row.id >= w.next_id, "the id %d is used again", (int)write->row.id);
        w.next_id = write->row.id + 1;
    }
    must(!(fact->durable && gp_jobs_state_ended(fact->row.state)), "job %d changes after its end",
         (int)write->row.id);
    fact->durable = true;
    fact->row = write->row;
    if (fact->row.state == GP_JOBS_STARTING)
        fact->row.state = GP_JOBS_RUNNING;
}

/* The first `count` writes become durable. */
static void commit(uint32_t count, bool tell)
{
    uint64_t number = count > 0 ? w.writes[count - 1].number : 0;

    for (uint32_t i = 0; i < count; i++)
        apply(&w.writes[i]);
    w.write_count -= count;
    memmove(w.writes, w.writes + count, w.write_count * sizeof(w.writes[0]));
    if (count > 0 && tell && !w.failed)
        step((gp_jobs_event){ .kind = GP_JOBS_EVENT_PERSISTED, .persisted = number });
}

/* ---- schedulers come and go ---- */

static bool begin_scheduler(void)
{
    gp_jobs_config config = gp_jobs_config_default();
    gp_error err;

    config.unfinished_max = 120;
    config.finished_max = draw(8);
    config.replies_max = 64;
    config.capacity = 0;
    w.stopping = w.failed = false;
    w.start_count = 0;
    if (gp_jobs_new(&w.machine, &config, act, NULL, &err) != GP_OK)
        return false;
    for (uint32_t id = 1; id < JOBS_MAX; id++)
        if (w.facts[id].durable && gp_jobs_load(w.machine, &w.facts[id].row, &err) != GP_OK)
            must(false, "a row was refused: %s", err.message);
    gp_jobs_begin(w.machine, w.next_id);
    for (uint32_t i = 0; i < w.process_count; i++)
        w.processes[i].ours = w.processes[i].watched = false;
    for (uint32_t id = 1; id < JOBS_MAX; id++) {
        const gp_jobs_job *job = gp_jobs_find(w.machine, id);
        sim_process *process = job != NULL ? process_of(id, job->attempts) : NULL;
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
        step(event);
    }
    step((gp_jobs_event){ .kind = GP_JOBS_EVENT_CAPACITY, .count = w.capacity });
    return true;
}

/* Any part of what was being written may be on the disk.  Who stands at the gate goes home. */
static void crash(bool machine_too)
{
    w.crashes++;
    if (!w.failed)
        commit(draw(w.write_count + 1), false);
    w.write_count = 0;
    for (uint32_t i = 0; i < w.process_count; i++)
        if (machine_too || !w.processes[i].works)
            process_ends(&w.processes[i], GP_JOBS_EXIT_SIGNAL, 9, false);
    gp_jobs_free(w.machine);
    w.machine = NULL;
    begin_scheduler();
}

/* ---- what happens ---- */

static void do_submit(bool again)
{
    uint64_t seq = again && w.seqs > 0 ? 1 + draw((uint32_t)w.seqs) : w.seqs + 1;
    gp_jobs_submit submit = {
        .submitter = { 1 }, .seq = seq, .priority = (int32_t)draw(3), .name = "", .command = ""
    };

    if (seq >= SUBMITS_MAX || w.next_id + w.write_count + 2 >= JOBS_MAX)
        return;
    if (w.acknowledged[seq] != 0 && gp_jobs_find(w.machine, w.acknowledged[seq]) == NULL)
        return; /* forgotten: it would be another job, by the rule */
    if (seq > w.seqs)
        w.seqs = seq;
    w.inserting_seq = seq;
    step((gp_jobs_event){ .kind = GP_JOBS_EVENT_SUBMIT, .correlation = seq, .submit = &submit });
}

static void do_spawn(void)
{
    uint32_t which = draw(w.start_count);
    uint64_t job = w.starts[which].job;
    uint32_t attempt = w.starts[which].attempt;

    w.starts[which] = w.starts[--w.start_count];
    if (draw(20) == 0 || w.process_count == PROCESSES_MAX) {
        step((gp_jobs_event){ .kind = GP_JOBS_EVENT_UNBORN, .job = job, .attempt = attempt, .text = "no" });
        return;
    }
    w.processes[w.process_count++] =
        (sim_process){ .job = job, .attempt = attempt, .alive = true, .ours = true, .watched = true };
    step((gp_jobs_event){
        .kind = GP_JOBS_EVENT_SPAWNED, .job = job, .attempt = attempt, .pid = (int32_t)w.process_count });
}

static sim_process *any_process(bool alive)
{
    uint32_t first = w.process_count > 0 ? draw(w.process_count) : 0;

    for (uint32_t i = 0; i < w.process_count; i++) {
        sim_process *process = &w.processes[(first + i) % w.process_count];

        if (process->alive == alive && (alive ? process->works : process->watched))
            return process;
    }
    return NULL;
}

static void do_end(void)
{
    sim_process *process = any_process(true);
    uint32_t way = draw(10);

    if (process == NULL)
        return;
    if (process->term && way < 6)
        process_ends(process, GP_JOBS_EXIT_CODE, 130, true);
    else if (way < 7)
        process_ends(process, GP_JOBS_EXIT_CODE, 0, true);
    else if (way < 9)
        process_ends(process, GP_JOBS_EXIT_CODE, 1, true);
    else
        process_ends(process, GP_JOBS_EXIT_SIGNAL, 11, false);
}

static void do_reap(void)
{
    sim_process *process = any_process(false);
    gp_jobs_event event = { .kind = GP_JOBS_EVENT_ENDED };
    const gp_jobs_job *job;

    if (process == NULL)
        return;
    process->watched = false;
    event.job = process->job;
    event.attempt = process->attempt;
    event.exit = process->ours || process->record ? process->exit : GP_JOBS_EXIT_UNKNOWN;
    event.number = event.exit != GP_JOBS_EXIT_UNKNOWN ? process->number : 0;
    job = gp_jobs_find(w.machine, process->job);
    if (process->ours && process->record && !w.stopping && !w.failed && job != NULL && !job->cancel &&
        job->attempts == process->attempt && event.number != 0)
        w.facts[process->job].failed_by_itself = true;
    step(event);
}

static void happen(void)
{
    uint32_t what = draw(1000);

    w.now_ms += draw(50);
    if (what < 150)
        do_submit(what < 30);
    else if (what < 450)
        commit(w.failed ? 0 : draw(w.write_count + 1), true);
    else if (what < 600 && w.start_count > 0)
        do_spawn();
    else if (what < 750)
        do_end();
    else if (what < 900)
        do_reap();
    else if (what < 930)
        step((gp_jobs_event){ .kind = GP_JOBS_EVENT_CANCEL, .job = 1 + draw((uint32_t)w.next_id) });
    else if (what < 932)
        step((gp_jobs_event){ .kind = GP_JOBS_EVENT_CANCEL });
    else if (what < 950)
        step((gp_jobs_event){ .kind = GP_JOBS_EVENT_TICK });
    else if (what < 960) {
        w.capacity = 1 + draw(4);
        step((gp_jobs_event){ .kind = GP_JOBS_EVENT_CAPACITY, .count = w.capacity });
    } else if (what < 980)
        crash(false);
    else if (what < 988)
        crash(true);
    else if (what < 992) {
        w.stopping = true;
        step((gp_jobs_event){ .kind = GP_JOBS_EVENT_STOP });
    } else if (what < 994) {
        w.failed = true;
        w.write_count = 0;
        step((gp_jobs_event){ .kind = GP_JOBS_EVENT_JOURNAL_FAILED, .status = GP_EIO, .text = "no" });
    } else {
        step((gp_jobs_event){ .kind = GP_JOBS_EVENT_HOLD, .count = draw(2) });
    }
}

/* Nothing fails any more: all that was acknowledged must end. */
static void drain(void)
{
    crash(false);
    for (uint32_t i = 0; i < DRAIN_STEPS && w.failure[0] == '\0'; i++) {
        commit(w.write_count, true);
        if (w.start_count > 0)
            do_spawn();
        do_end();
        do_reap();
        w.now_ms += 100;
        step((gp_jobs_event){ .kind = GP_JOBS_EVENT_TICK });
        if (!gp_jobs_busy(w.machine))
            break;
    }
    must(!gp_jobs_busy(w.machine), "jobs are left that never end");
    for (uint64_t seq = 1; seq <= w.seqs; seq++) {
        const sim_fact *fact = &w.facts[w.acknowledged[seq]];

        must(w.acknowledged[seq] == 0 || fact->deleted ||
                 (fact->durable && gp_jobs_state_ended(fact->row.state)),
             "submit %d, acknowledged as job %d, was lost", (int)seq, (int)w.acknowledged[seq]);
    }
}

static bool run(uint64_t seed)
{
    memset(&w, 0, sizeof(w));
    w.random = seed * 0x9e3779b97f4a7c15ull + 1;
    w.capacity = 2;
    w.next_id = 1;
    w.now_ms = 1;
    if (!begin_scheduler())
        return false;
    for (int i = 0; i < STEPS && w.failure[0] == '\0'; i++)
        happen();
    if (w.failure[0] == '\0')
        drain();
    gp_jobs_free(w.machine);
    w.machine = NULL;
    return w.failure[0] == '\0';
}

TEST(no_seed_breaks_a_promise)
{
    const char *first = getenv("GP_SIM_SEED");
    uint64_t steps = 0, crashes = 0, ends = 0, seed = first != NULL ? strtoull(first, NULL, 10) : 1;

    gp_jobs_mutation = GP_JOBS_MUTANT_NONE;
    for (uint64_t last = seed + (first != NULL ? 1 : RUNS); seed < last; seed++) {
        if (!run(seed))
            GP_TEST_FAIL("seed %d, after %d events: %s; again: GP_SIM_SEED=%d test_sim_jobs", (int)seed,
                         (int)w.steps, w.failure, (int)seed);
        steps += w.steps;
        crashes += w.crashes;
        ends += w.ends;
    }
    printf("     %d events, %d crashes, %d ends of processes\n", (int)steps, (int)crashes, (int)ends);
    CHECK(first != NULL || (steps > 150000 && crashes > 5000 && ends > 10000));
}

TEST(the_same_seed_is_the_same_run)
{
    uint64_t steps, draws;

    gp_jobs_mutation = GP_JOBS_MUTANT_NONE;
    CHECK(run(7));
    steps = w.steps;
    draws = w.draws;
    CHECK(run(7));
    CHECK_INT(steps, w.steps);
    CHECK_INT(draws, w.draws);
}

TEST(every_planted_bug_is_found)
{
    for (int mutant = GP_JOBS_MUTANT_NONE + 1; mutant < GP_JOBS_MUTANT_COUNT; mutant++) {
        uint64_t seed = 1;

        gp_jobs_mutation = (gp_jobs_mutant)mutant;
        while (seed <= MUTANT_RUNS && run(seed))
            seed++;
        if (seed > MUTANT_RUNS)
            GP_TEST_FAIL("planted bug %d was not found", mutant);
        else
            printf("     planted bug %d, seed %d: %s\n", mutant, (int)seed, w.failure);
    }
    gp_jobs_mutation = GP_JOBS_MUTANT_NONE;
}
