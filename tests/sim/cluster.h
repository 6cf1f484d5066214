/* cluster.h -- a pool in one thread: the real machines, an invented world around them.
 *
 *   real       the scheduler's core (leases, adoption, supervision), the jobs' machine, the clients' dispatch of calls,
 *              their window of submits, and what makes a training leave one group for the next
 *   invented   worker processes, rings of calls, job processes, the journal's disk, links, clocks, users
 *
 * One queue of happenings ordered by simulated time; what goes wrong and when is the script's (engine.h).  Invented
 * actors are honest to the protocol but may die, stop, be cut off or lose their link at any moment, also between two
 * things that belong together.  What a dead process had sent may be lost or arrive late, what it was sent is lost;
 * between two live ones messages arrive in order.  When the scheduler is killed the others live on, dial the next one and
 * say what they hold.  Files: world.c time and the scheduler's life, faults.c; workers.c, clients.c, calls.c, training.c, jobs.c the actors;
 * check.c the promises that are checked against what each invented process really holds; history.c those about what was
 * asked, begun, ended and seen. */
#ifndef GP_SIM_CLUSTER_H
#define GP_SIM_CLUSTER_H

#include "client/team/dispatch.h"
#include "client/train/reform.h"
#include "client/pool/submits.h"
#include "scheduler/core/core.h"
#include "scheduler/core/core_parts.h"
#include "scheduler/core/jobs_parts.h"
#include "tests/sim/bugs.h"
#include "tests/sim/engine.h"
#include "tests/sim/history.h"

enum {
    SIM_SLOTS = 6,
    SIM_CLIENTS = 8,
    SIM_SUBMITTERS = 3,
    SIM_PROCESSES = 4096,
    SIM_QUEUE = 8192,
    SIM_RING = 32,
    SIM_CALLS = 48,  /* of a team */
    SIM_JOBS = 1024, /* ids of one run */
    SIM_JOB_PROCESSES = 4096,
    SIM_WRITES = 1024,
    SIM_STARTS = 64,
    SIM_BATCH = 12, /* submits of one call */
    MS = 1000,      /* simulated time is in us */
};

/* SIGSTOP: what comes meanwhile waits, in its order. */
typedef struct sim_gate {
    int64_t until_us;
    uint32_t held, serial; /* serial: what waited at an older gate of this place waits no more */
} sim_gate;

/* An invented worker process.  The index in sim->processes is its pid - 1. */
typedef struct sim_process {
    sim_dice dice;
    uint32_t slot, incarnation;
    uint64_t epoch;   /* of the scheduler it serves: has dialled */
    uint64_t watched; /* epoch of the scheduler that hears of its death */
    bool alive, ready;
    bool claims; /* holds the slot's device */
    uint64_t lease;
    uint32_t generation;
    gp_core_id token;
    sim_gate gate;
    int64_t out_us, in_us; /* when the last message from it, to it arrives: the next comes after that */
    uint32_t link;         /* counts links to the scheduler: what was sent on an older one is lost */
    uint32_t peer;         /* the link on which the scheduler answers */
    uint32_t fuse;         /* it dies after so many things that it does; 0 = does not */
    uint32_t twice;        /* so many of its next answers arrive twice */
    /* The ring that it serves. */
    uint32_t client, rank; /* client from 1; 0 = none */
    uint32_t serial;
    bool busy;
    /* Of a training: what it has committed, and keeps for the next generation of the lease.  The truth is what it has
     * committed, whatever it keeps. */
    uint64_t kept_lease, kept_step, true_lease, true_step;
    uint64_t prepared_lease; /* it has what a rank of that lease's training needs */
    gp_core_work told_work;  /* with its last sign of life */
} sim_process;

typedef struct sim_call {
    team_unit *unit;
    uint64_t id;
    uint32_t attempt;
    bool taken, answered, revoked;
} sim_call;

typedef struct sim_answer {
    uint64_t id;
    gp_status status;
    int64_t ran_us;
} sim_answer;

/* A client's ring to a worker: memory that outlives the worker. */
typedef struct sim_lane {
    gp_core_member member;
    uint32_t process; /* number + 1; 0 = not linked */
    uint32_t serial;  /* counts links; what belongs to an older one is void */
    sim_call calls[SIM_RING];
    sim_answer answers[SIM_RING];
    uint32_t call_first, call_count, answer_first, answer_count;
    uint64_t stop; /* the call that should end */
} sim_lane;

typedef struct sim_task {
    team_unit unit; /* first */
    bool used, ended;
    gp_status status;
    uint32_t after[2], after_count;
} sim_task;

/* The parts of an action that an invented process reads. */
typedef struct sim_letter {
    gp_core_action_kind kind;
    uint64_t lease, correlation;
    uint32_t generation, member_count;
    gp_core_id token;
    uint32_t lost_slot, lost_incarnation, workers;
    int64_t silent_ms;
    bool asked;
    gp_core_member members[SIM_SLOTS];
} sim_letter;

/* Who will join a training, as its client was told. */
typedef struct sim_newcomer {
    gp_core_member member;
    bool asked, prepared; /* prepared: the client has heard so */
} sim_newcomer;

/* One group of a client's training after the other. */
typedef struct sim_training {
    reform r;
    sim_newcomer newcomers[SIM_SLOTS];
    uint32_t newcomer_count;
    sim_letter change; /* that was told last, and is to be taken */
    bool change_due;
    /* What the client has heard, counted beside the machine. */
    bool heard_end[SIM_SLOTS], finished, broke;
    uint32_t heard_ready, row; /* row: groups that broke, without a step between */
    uint64_t heard_step, began_step;
    uint64_t goal;   /* its last step */
    uint32_t serial; /* of the group; 0 = there was none yet */
    uint32_t generation, world;
    uint32_t process[SIM_SLOTS]; /* by rank: number + 1 */
    bool begun[SIM_SLOTS], ended[SIM_SLOTS];
    uint32_t begun_count, committing;
    uint64_t step;                        /* that all have committed */
    uint64_t furthest;                    /* when the group began: of anybody who held the lease */
    bool pause;                           /* at the next step boundary */
    bool regranted, begin_due, lost_told; /* what gp_run.state of train_run.h says */
    uint32_t alarms;
    int64_t news_us; /* when the last news arrives */
} sim_training;

typedef enum sim_client_state { SIM_AWAY, SIM_THINKING, SIM_WAITING, SIM_HOLDING } sim_client_state;

typedef struct sim_client {
    sim_dice dice;
    sim_client_state state;
    gp_core_id session;
    uint64_t serial;      /* of the session: in histories */
    uint64_t correlation; /* of the ask it waits for */
    uint64_t asked;       /* sequence of its ask in the order of arrival, 0 = has not arrived */
    uint64_t lease;
    uint32_t generation;
    bool repairing; /* a member died: the next formation is awaited */
    bool leaving;   /* said that it does not want to wait any longer */
    bool whole;     /* nothing has happened to its lease but the scheduler's death: it must go on as it is */
    bool broken;    /* its link was, and its lease may have ended of it */
    uint64_t epoch; /* of the scheduler it has dialled */
    gp_core_claim claim; /* its lease, as it was last told of it */
    sim_gate gate;
    int64_t out_us, in_us;
    uint32_t link, peer, fuse;
    /* Its team. */
    dispatch *calls;
    uint32_t size;
    sim_lane lanes[SIM_SLOTS];
    sim_task tasks[SIM_CALLS];
    uint32_t task_count, task_goal;
    uint64_t unit_id;
    int64_t pump_us; /* the earliest pump that is on its way; 0 = none */
    /* Or its training. */
    bool trains;
    uint32_t floor;
    sim_training training;
} sim_client;

/* Who submits jobs. */
typedef struct sim_submitter {
    sim_dice dice;
    uint64_t epoch; /* of the scheduler it has dialled; 0 = none */
    uint32_t link;
    sim_gate gate;
    int64_t out_us, in_us;
    bool busy;
    int64_t quiet_us; /* it submits nothing before */
    submits window;
    uint64_t jobs[SIM_BATCH];
    uint64_t base; /* number of the batch's first submit, less one */
    uint64_t told; /* numbers that were submitted so far */
    uint64_t key;
    uint64_t correlation, first; /* the last one; that of what was sent first */
} sim_submitter;

typedef struct sim_job_process {
    uint64_t job;
    uint32_t attempt;
    bool alive, works; /* works: through the gate */
    bool ours;         /* the present scheduler spawned it */
    bool watched;      /* the present scheduler knows of it */
    bool term;
    bool record; /* it wrote how it ended */
    gp_jobs_exit exit;
    int32_t number;
} sim_job_process;

typedef struct sim_write {
    uint64_t number;
    gp_jobs_action_kind kind;
    gp_jobs_job row;
} sim_write;

typedef struct sim_fact { /* what the world knows of an id */
    bool durable, deleted, succeeded, failed_by_itself;
    uint32_t last_process; /* number + 1 */
    gp_jobs_job row;       /* as it is on the disk */
} sim_fact;

typedef enum sim_what {
    SIM_TO_CORE,     /* core */
    SIM_TO_PROCESS,  /* letter, for process number */
    SIM_TO_CLIENT,   /* letter, for client number */
    SIM_SPAWN_DONE,  /* process number says it is ready, or that it has no device, or dies */
    SIM_CLIENT_ACTS, /* client number decides what to do */
    SIM_STRIKES,     /* fault number of the script */
    SIM_BEATS,
    SIM_WORKER_DIALS, /* process number dials the scheduler that followed its own */
    SIM_CLIENT_DIALS, /* and client number */
    SIM_SCHEDULER_IS_UP,
    SIM_SHELL_ALARM,  /* the scheduler's own timer */
    SIM_LANE_DIALS,   /* client number, rank: a link to its worker */
    SIM_LANE_ENDS,    /* client number, rank: its worker's door is at its end */
    SIM_TAKES,        /* process number looks into its ring */
    SIM_ANSWERS,      /* process number has run the call */
    SIM_DROPS,        /* and gives its place free */
    SIM_PUMPS,        /* client number reads answers, sends calls */
    SIM_TO_JOBS,      /* jobs */
    SIM_COMMITS,      /* the disk: what was asked until `detail` */
    SIM_TO_SUBMITTER, /* jobs' answer for submitter number */
    SIM_SUBMITTER_ACTS,
    SIM_SUBMITTER_DIALS,
    SIM_JOB_SPAWNS,
    SIM_JOB_ENDS, /* job process number */
    SIM_JOB_REAPED,
    SIM_TRAIN_ATTACHES, /* client number: to the group that is formed */
    SIM_TRAIN_HEARS,    /* client number: train */
    SIM_TRAIN_ALARM,
    SIM_RANK_BEGINS,       /* client number, rank */
    SIM_RANK_COMMITS,      /* client number, rank */
    SIM_GROUP_STEPS,       /* client number */
    SIM_GROUP_PAUSES,      /* client number */
    SIM_NEWCOMER_PREPARES, /* client number: train.workers is the slot, train.rank the incarnation */
    SIM_NEWCOMER_TELLS,    /* the same, to the client */
    SIM_OPERATOR,          /* the disk was repaired: the pool is taken down and up */
} sim_what;

typedef struct sim_happening {
    sim_what what;
    uint32_t number, detail, link;
    uint32_t waited; /* at a gate: its serial + 1 */
    uint64_t epoch;  /* of the scheduler meant; others never get it */
    gp_core_id session;
    union {
        struct {
            gp_core_event event;
            gp_core_wish wish;
        } core;
        sim_letter letter;
        reform_event train;
        struct {
            gp_jobs_event event;
            gp_jobs_submit submit;
        } jobs;
        struct {
            gp_jobs_action_kind kind;
            uint64_t correlation, job;
        } reply;
    };
} sim_happening;

typedef struct sim_tally { /* how much was tried */
    uint64_t events;       /* happenings: messages, ends, alarms, answers, ... */
    uint64_t steps;        /* of the scheduler's machines */
    uint64_t faults, grants, deaths, restarts, claims, calls, reruns, jobs, crashes, commits;
    uint64_t train_steps, regroups, prepared, gave_up;
    uint64_t of[SIM_FAULT_KINDS];
} sim_tally;

typedef struct sim {
    sim_script script;
    sim_queue *queue;
    history *calls, *jobs;
    FILE *out; /* the trace, or NULL */
    uint64_t trace;
    sim_tally tally;
    int64_t now_us, calm_us;
    uint32_t ticks_here; /* alarms at this same time */
    sim_dice network, disk_dice;
    int64_t slow_until_us, slow_us, disk_slow_until_us, disk_slow_us;
    int64_t wall_ms; /* of the wall clock, beside the monotonic */

    /* The scheduler. */
    gp_core *core;
    gp_core_action *actions;
    gp_jobs *machine;
    bool up, dying, downed;
    bool ending; /* the run: what is still on its way to the journal is not read any more */
    sim_gate gate;
    int64_t alarm_us; /* the alarm that is on its way */
    uint32_t fuse;    /* it dies after so many actions; 0 = does not */
    uint32_t fuse_ms; /* and the next comes so much later */
    uint64_t epoch;
    bool exited;
    gp_core_slot_config plan[SIM_SLOTS];
    uint64_t asks;
    uint64_t lease_last;          /* the largest id seen in this epoch */
    uint32_t generation_last[64]; /* of lease id & 63 */
    uint64_t generation_of[64];
    uint32_t process_at[SIM_SLOTS]; /* the youngest of each slot: number + 1 */

    sim_process processes[SIM_PROCESSES];
    uint32_t process_count;
    sim_client clients[SIM_CLIENTS];
    uint64_t sessions;
    uint32_t groups; /* of trainings, so far */
    sim_submitter submitters[SIM_SUBMITTERS];

    /* Jobs: the disk and the processes. */
    sim_fact facts[SIM_JOBS];
    uint64_t next_id; /* the counter on the disk */
    bool disk_failed;
    uint32_t disk_keeps; /* of what is written when it fails, in percent */
    bool disk_fails;     /* the next commit does */
    bool committing;
    sim_write writes[SIM_WRITES];
    uint32_t write_count;
    uint64_t job_capacity;
    sim_job_process job_processes[SIM_JOB_PROCESSES];
    uint32_t job_process_count;

    char check[32], failure[480];
    sim_outcome outcome;
} sim;

/* All memory that runs need.  NULL: there is none. */
sim *sim_new(void);
void sim_free(sim *s);

/* One run of a script: faults until calm, then until all is well or the patience is over, then the pool is shut down.
 * context: the sim.  Fits sim_run_fn. */
void sim_run(void *context, const sim_script *script, sim_outcome *out);

/* ---- world.c ---- */

sim_happening *sim_push(sim *s, int64_t after_us, sim_what what, uint32_t number);
sim_happening *sim_push_at(sim *s, int64_t at_us, sim_what what, uint32_t number);
/* Whether the happening waits until the gate opens; it is pushed again then. */
bool sim_waits(sim *s, sim_gate *gate, sim_happening *happening);
void sim_gate_open(sim_gate *gate); /* at once, for whoever comes now */
void sim_note(sim *s, const char *word, uint64_t a, uint64_t b, uint64_t c);
int64_t sim_transit(sim *s); /* how long a message is on its way */
bool sim_calm(const sim *s);
void sim_step_core(sim *s, const gp_core_event *event);
/* What the shell does after each step. */
void sim_turn(sim *s);
void sim_kill_scheduler(sim *s, uint32_t after_ms);
/* One more action of the scheduler's; true: it was its last, what follows is not done. */
bool sim_burns(sim *s);
void sim_fail(sim *s, const char *check, const char *format, ...) __attribute__((format(printf, 3, 4)));
void sim_record(sim *s, history *h, history_entry entry);

/* ---- faults.c ---- */

void sim_strike(sim *s, const sim_fault *fault);
void sim_take_down(sim *s, bool when_idle, uint32_t after_ms); /* `gradpool down`, and up again */

/* ---- workers.c ---- */

/* What it says that it does: the calls of a team are code of their user. */
gp_core_work sim_work_of(const sim *s, const sim_process *process);
sim_process *sim_find_process(sim *s, uint32_t slot, uint32_t incarnation);
void sim_spawn(sim *s, uint32_t slot, uint32_t incarnation);
void sim_spawn_done(sim *s, sim_process *process);
void sim_process_hears(sim *s, sim_process *process, const sim_letter *letter);
void sim_process_dies(sim *s, sim_process *process, gp_core_death_kind death, int number);
void sim_process_breaks(sim *s, sim_process *process);
void sim_worker_dials(sim *s, sim_process *process, uint64_t epoch);
/* It has done something; true: that was the last thing. */
bool sim_process_burns(sim *s, sim_process *process);
/* The present process of a slot, alive; NULL. */
sim_process *sim_process_in(sim *s, uint32_t slot);

/* ---- clients.c ---- */

bool sim_trains_mostly(const sim *s);
sim_client *sim_find_client(sim *s, const gp_core_id *session);
void sim_client_acts(sim *s, sim_client *client);
void sim_client_hears(sim *s, sim_client *client, const sim_letter *letter);
void sim_client_dials(sim *s, sim_client *client, uint64_t epoch);
void sim_client_leaves(sim *s, sim_client *client);
void sim_client_breaks(sim *s, sim_client *client);
bool sim_client_burns(sim *s, sim_client *client);
void sim_client_replaces(sim *s, sim_client *client, uint32_t slot, uint32_t incarnation);
void sim_lease_hurt(sim *s, uint64_t lease);
/* To the scheduler, if the client has dialled it; nobody dies of it. */
void sim_client_posts(sim *s, sim_client *client, const gp_core_event *event);
/* Whether all that a client was told of its lease is so. */
bool sim_lease_is_whole(sim *s, const sim_client *client);

/* ---- calls.c ---- */

void sim_team_granted(sim *s, sim_client *client);
void sim_team_close(sim *s, sim_client *client, gp_status status);
bool sim_team_idle(const sim_client *client);
/* Its client is dead, with all that it had. */
void sim_team_dies(sim *s, sim_client *client);
void sim_lane_dials(sim *s, sim_client *client, uint32_t rank, uint32_t serial);
void sim_lane_ends(sim *s, sim_client *client, uint32_t rank, uint32_t serial);
/* The process serves no ring any more: its client sees that. */
void sim_seat_leave(sim *s, sim_process *process);
/* The scheduler learns of clients that died before they claimed what adopted workers hold for them. */
void sim_watch_holders(sim *s);
void sim_takes(sim *s, sim_process *process, uint32_t serial);
void sim_answers(sim *s, sim_process *process, uint32_t serial);
void sim_drops(sim *s, sim_process *process, uint32_t serial);
void sim_pumps(sim *s, sim_client *client);

/* ---- training.c ---- */

void sim_training_granted(sim *s, sim_client *client, bool first);
void sim_training_hears(sim *s, sim_client *client, const sim_letter *letter); /* of the scheduler */
void sim_training_reunited(sim *s, sim_client *client);
bool sim_training_over(const sim_client *client);
/* The process leaves the group that it is in, if any. */
void sim_rank_breaks(sim *s, const sim_process *process);
void sim_train_attaches(sim *s, sim_client *client, uint32_t serial);
void sim_train_hears(sim *s, sim_client *client, const sim_happening *happening);
void sim_train_alarm(sim *s, sim_client *client, const sim_happening *happening);
void sim_rank_begins(sim *s, sim_client *client, uint32_t rank, uint32_t serial);
void sim_rank_commits(sim *s, sim_client *client, uint32_t rank, uint32_t serial);
void sim_group_steps(sim *s, sim_client *client, uint32_t serial);
void sim_group_pauses(sim *s, sim_client *client, uint32_t serial);
void sim_newcomer_prepares(sim *s, sim_client *client, const sim_happening *happening);
void sim_newcomer_tells(sim *s, sim_client *client, const sim_happening *happening);

/* ---- jobs.c ---- */

bool sim_jobs_begin(sim *s); /* a scheduler's machine, from the disk */
void sim_jobs_crash(sim *s, bool machine_too);
void sim_jobs_step(sim *s, gp_jobs_event event);
void sim_jobs_hears(sim *s, sim_happening *happening);
void sim_commits(sim *s, sim_happening *happening);
void sim_job_spawns(sim *s, sim_happening *happening);
void sim_job_ends(sim *s, uint32_t number);
void sim_job_reaped(sim *s, sim_happening *happening);
void sim_job_killed(sim *s, uint32_t which);
void sim_submitter_acts(sim *s, sim_submitter *submitter);
void sim_submitter_hears(sim *s, sim_submitter *submitter, const sim_happening *happening);
void sim_submitter_dials(sim *s, sim_submitter *submitter, uint64_t epoch);
void sim_submitter_breaks(sim *s, sim_submitter *submitter);
/* Whether all jobs have ended. */
bool sim_jobs_settled(const sim *s, char why[480]);

/* ---- check.c ---- */

/* Called for each action before it is carried out, and after each step. */
void sim_check_action(sim *s, const gp_core_action *action);
void sim_check_state(sim *s);
/* Whether everybody got an answer and all slots are back. */
bool sim_settled(const sim *s, char why[480]);

#endif
