/* A pool simulated in one thread: real state machines in a simulated world.
 *
 *   real       scheduler core (leases, adoption, supervision), job state machine, call dispatch
 *              and submit window of the clients, group membership of trainings, controller of a
 *              sweep
 *   simulated  worker processes, call rings, job processes, the journal disk, links, clocks,
 *              users
 *
 * One queue holds all events, ordered by simulated time. The script (engine.h) decides which faults
 * occur, and when. Simulated actors obey the protocol, but at any moment they may be killed,
 * suspended, cut off or disconnected, also between two related actions. Messages from a killed
 * process may be lost or late; messages to it are lost. Between live processes, messages arrive in
 * order. If the scheduler is killed, the other processes continue, connect to the next one and
 * report what they hold.
 *
 * Files: world.c (time and scheduler), faults.c, the actors in workers.c, clients.c, calls.c,
 * training.c, jobs.c and sweep.c. check.c compares the core with the real state of each simulated
 * process; history.c checks requests and results. */
#ifndef GP_SIM_CLUSTER_H
#define GP_SIM_CLUSTER_H

#include "client/team/dispatch.h"
#include "client/train/membership.h"
#include "client/pool/submits.h"
#include "client/sweep/sweep_core.h"
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
    SIM_CALLS = 48,  /* calls per team */
    SIM_JOBS = 1024, /* job ids per run */
    SIM_JOB_PROCESSES = 4096,
    SIM_WRITES = 1024,
    SIM_STARTS = 64,
    SIM_LEASES = 64,
    SIM_BATCH = 12,        /* submits per batch */
    SIM_SWEEP_TRIALS = 32, /* of the search, of requests and repeats */
    SIM_SWEEP_OWN = 12,    /* of the search */
    SIM_SWEEP_REQUESTS = 4,
    SIM_SWEEP_ATTEMPTS = 65536,
    SIM_SWEEP_BYTES = 1 << 16, /* size of the journal of a sweep */
    MS = 1000,                 /* simulated time is in us */
};

/* SIGSTOP: a suspended process receives messages later, in order. */
typedef struct sim_gate {
    int64_t until_us;
    uint32_t held, serial; /* serial: invalidates events that wait at an earlier suspension */
} sim_gate;

/* Simulated worker process. Its pid is the index in sim->processes plus 1. */
typedef struct sim_process {
    sim_dice dice;
    uint32_t slot, incarnation;
    uint64_t epoch;   /* epoch of the connected scheduler */
    uint64_t watched; /* epoch of the scheduler that is notified when it exits */
    bool alive, ready;
    bool claims; /* owns the slot's device */
    uint64_t lease;
    uint32_t generation;
    gp_core_id token;
    sim_gate gate;
    /* arrival times of the last message from and to it; later messages arrive after these */
    int64_t out_us, in_us;
    uint32_t link;  /* number of the link to the scheduler; messages on older links are lost */
    uint32_t peer;  /* link that the scheduler uses for replies */
    uint32_t fuse;  /* remaining actions until it is killed; 0: unlimited */
    uint32_t twice; /* number of replies that will be duplicated */
    /* Ring that the worker serves. */
    uint32_t client, rank; /* client number from 1; 0: none */
    uint32_t serial;
    bool busy;
    /* Training: state committed and kept for the next generation of the lease. true_* is the
     * committed state, even if the process loses kept_*. */
    uint64_t kept_lease, kept_step, true_lease, true_step;
    uint64_t prepared_lease; /* lease whose training data it has prepared */
    gp_core_work told_work;  /* work as this scheduler knows it from heartbeats and acknowledgements */
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

/* Ring from a client to a worker. The memory outlives the worker. */
typedef struct sim_lane {
    gp_core_member member;
    uint32_t process; /* process number + 1; 0: not connected */
    uint32_t serial;  /* link number; events of older links are void */
    sim_call calls[SIM_RING];
    sim_answer answers[SIM_RING];
    uint32_t call_first, call_count, answer_first, answer_count;
    uint64_t stop; /* call that should be canceled */
} sim_lane;

typedef struct sim_task {
    team_unit unit; /* must be the first member */
    bool used, ended;
    uint32_t tag; /* needed amount of the resource "tag" */
    gp_status status;
    uint32_t after[2], after_count;
} sim_task;

/* Fields of a core action that simulated processes read. */
typedef struct sim_letter {
    gp_core_action_kind kind;
    uint64_t lease, correlation;
    uint32_t generation, member_count;
    gp_core_id token;
    gp_status status;
    uint32_t lost_slot, lost_incarnation, workers;
    int64_t silent_ms;
    bool asked;
    gp_core_member members[SIM_SLOTS];
} sim_letter;

/* Worker that will join a training, as reported to the client. */
typedef struct sim_newcomer {
    gp_core_member member;
    bool asked, prepared; /* prepared: the client was notified */
} sim_newcomer;

/* A client's training: consecutive groups. */
typedef struct sim_training {
    membership r;
    sim_newcomer newcomers[SIM_SLOTS];
    uint32_t newcomer_count;
    sim_letter change; /* last change notification, not applied yet */
    bool change_due;
    /* Events that the client received, counted independently of the state machine. */
    bool received_end[SIM_SLOTS], finished, broke;
    uint32_t received_ready, row; /* row: consecutive groups that failed without a completed step */
    uint64_t received_step, began_step;
    uint64_t goal;   /* last step of the training */
    uint32_t serial; /* group number; 0: no group yet */
    uint32_t generation, world;
    uint32_t process[SIM_SLOTS]; /* by rank: process number + 1 */
    bool begun[SIM_SLOTS], ended[SIM_SLOTS];
    uint32_t begun_count, committing;
    uint64_t step;             /* step that all ranks have committed */
    uint64_t furthest;         /* furthest step of any lease holder when the group started */
    bool pause;                /* pause at the next step boundary */
    bool regranted, begin_due; /* as gp_run.state in train_run.h */
    uint32_t alarms;
    int64_t event_us; /* arrival time of the last notification */
} sim_training;

typedef enum sim_client_state { SIM_AWAY, SIM_THINKING, SIM_WAITING, SIM_HOLDING } sim_client_state;

typedef struct sim_client {
    sim_dice dice;
    sim_client_state state;
    gp_core_id session;
    uint64_t serial;      /* session number in histories */
    uint64_t correlation; /* correlation of the pending lease request */
    uint64_t asked;       /* arrival order of the request; 0: not arrived yet */
    uint32_t tag;         /* amount of the resource "tag" that the request needs */
    uint64_t lease;
    uint32_t generation;
    bool repairing;      /* a member failed; the client waits for the next formation */
    bool leaving;        /* the client has asked to leave the queue */
    bool whole;          /* only scheduler crashes have affected the lease, so it must continue unchanged */
    bool broken;         /* the link broke, which may have ended the lease */
    uint64_t epoch;      /* epoch of the connected scheduler */
    gp_core_claim claim; /* the lease as last granted */
    uint64_t suspects;   /* bit n: the worker in slot n was reported as suspect */
    sim_gate gate;
    int64_t out_us, in_us;
    uint32_t link, peer, fuse;
    /* Team of the client. */
    dispatch *calls;
    uint32_t size;
    bool elastic;     /* the team follows the size of its lease, like client/team/team_size.c */
    uint32_t change;  /* size in the last lease_change of this generation; 0: none */
    uint32_t forming; /* size of the requested formation; 0: none */
    sim_lane lanes[SIM_SLOTS];
    sim_task tasks[SIM_CALLS];
    uint32_t task_count, task_goal;
    uint64_t unit_id;
    int64_t pump_us; /* earliest scheduled pump; 0: none */
    /* Training of the client, instead of a team. */
    bool trains;
    uint32_t floor;
    sim_training training;
} sim_client;

/* User who submits jobs. */
typedef struct sim_submitter {
    sim_dice dice;
    uint64_t epoch; /* epoch of the connected scheduler; 0: none */
    uint32_t link;
    sim_gate gate;
    int64_t out_us, in_us;
    bool busy;
    int64_t quiet_us; /* no submits before this time */
    submits window;
    uint64_t jobs[SIM_BATCH];
    uint64_t base;     /* number before the batch's first submit */
    uint64_t reported; /* numbers submitted so far */
    uint64_t key;
    uint64_t correlation, first; /* correlation: last request; first: oldest unanswered request */
} sim_submitter;

typedef struct sim_job_process {
    uint64_t job;
    uint32_t attempt;
    bool alive, works; /* works: passed the gate */
    bool ours;         /* spawned by the present scheduler */
    bool watched;      /* known to the present scheduler */
    bool term;
    bool record; /* wrote an exit record */
    gp_jobs_exit exit;
    int32_t number;
} sim_job_process;

typedef struct sim_write {
    uint64_t number;
    gp_jobs_action_kind kind;
    gp_jobs_job row;
} sim_write;

typedef struct sim_fact { /* true state of a job id */
    bool durable, deleted, succeeded, failed_by_itself;
    uint32_t last_process; /* process number + 1 */
    gp_jobs_job row;       /* row on the disk */
} sim_fact;

typedef struct sim_trial_folder { /* files of a trial */
    uint32_t epochs;
    bool ended; /* the file with the result exists */
    sweep_outcome outcome;
    uint64_t job; /* last job with this folder */
} sim_trial_folder;

/* Request of a user to the sweep. */
typedef struct sim_request {
    uint32_t retry; /* trial; 0: add a point */
    bool there;     /* its file is in the inbox */
    bool taken;     /* the controller removed the file, and did not refuse the request */
    uint32_t lines; /* of the journal that name it */
} sim_request;

/* Controller of a sweep, its files, and what they say. Arrays have an element per trial. */
typedef struct sim_sweep {
    sim_dice dice;
    sweep *core; /* NULL: no controller runs */
    uint32_t trials_max, concurrent_max, workers_min;
    uint32_t workers; /* that trials can lease */
    uint32_t serial;  /* number of the controller; events of earlier ones are void */
    uint64_t epoch;   /* epoch of the scheduler that has the submits */
    int64_t out_us, in_us;
    uint32_t fuse; /* remaining actions until it is killed; 0: unlimited */
    bool dying, over, finished, unwritable;
    uint32_t asks;
    char values[32], names[SIM_SWEEP_TRIALS][32];
    char journal[SIM_SWEEP_BYTES];
    uint32_t bytes, durable, asked_at[SIM_SWEEP_TRIALS];
    sim_trial_folder folders[SIM_SWEEP_TRIALS];
    uint64_t jobs[SIM_SWEEP_TRIALS]; /* job of the present attempt; 0: not known */
    uint32_t attempts[SIM_SWEEP_TRIALS], reported[SIM_SWEEP_TRIALS];
    bool sent[SIM_SWEEP_TRIALS], stop[SIM_SWEEP_TRIALS], running[SIM_SWEEP_TRIALS];
    bool told[SIM_SWEEP_TRIALS], ended[SIM_SWEEP_TRIALS];
    bool canceled[SIM_SWEEP_TRIALS]; /* by a user */
    sim_dice user;                   /* who sends requests */
    sim_request requests[SIM_SWEEP_REQUESTS];
    uint32_t request_count, own, repeats; /* own: lines of trials of the search */
    bool halted;
    uint64_t submits; /* jobs that the pool recorded for it */
} sim_sweep;

typedef enum sim_what {
    SIM_TO_CORE,     /* core */
    SIM_TO_PROCESS,  /* letter, for process `number` */
    SIM_TO_CLIENT,   /* letter, for client `number` */
    SIM_SPAWN_DONE,  /* process `number` reports ready or no device, or exits */
    SIM_CLIENT_ACTS, /* client `number` chooses an action */
    SIM_STRIKES,     /* fault `number` of the script */
    SIM_BEATS,
    SIM_WORKER_DIALS,  /* process `number` connects to the next scheduler */
    SIM_CLIENT_DIALS,  /* client `number` connects to the next scheduler */
    SIM_CLIENT_CLAIMS, /* client `number` repeats a claim on its link `link` */
    SIM_SCHEDULER_IS_UP,
    SIM_SHELL_ALARM,  /* timer of the scheduler */
    SIM_LANE_DIALS,   /* client `number`, rank: connect to the worker */
    SIM_LANE_ENDS,    /* client `number`, rank: the worker's control socket is closed */
    SIM_TAKES,        /* process `number` reads the ring */
    SIM_ANSWERS,      /* process `number` has run the call */
    SIM_DROPS,        /* process `number` frees the ring entry */
    SIM_PUMPS,        /* client `number` reads replies and sends calls */
    SIM_TO_JOBS,      /* jobs */
    SIM_COMMITS,      /* the disk completes the first `detail` writes */
    SIM_TO_SUBMITTER, /* reply to submitter `number` */
    SIM_SUBMITTER_ACTS,
    SIM_SUBMITTER_DIALS,
    SIM_JOB_SPAWNS,
    SIM_JOB_ENDS, /* job process `number` */
    SIM_JOB_REAPED,
    SIM_TRAIN_ATTACHES, /* client `number`: attach to the new group */
    SIM_TRAIN_RECEIVES, /* client `number`: train */
    SIM_TRAIN_ALARM,
    SIM_RANK_BEGINS,  /* client `number`, rank */
    SIM_RANK_COMMITS, /* client `number`, rank */
    SIM_GROUP_STEPS,  /* client `number` */
    SIM_GROUP_PAUSES, /* client `number` */
    /* client `number`: train.workers is the slot, train.rank the incarnation */
    SIM_NEWCOMER_PREPARES,
    SIM_NEWCOMER_TELLS, /* the same fields, notification to the client */
    SIM_OPERATOR,       /* the disk was repaired: restart the pool */
    SIM_SWEEP_STARTS,   /* a controller of the sweep starts */
    SIM_SWEEP_POLLS,    /* controller `number` looks at its jobs */
    SIM_SWEEP_SYNCS,    /* controller `number`: line `link` is durable; detail 0: not writable */
    SIM_TO_SWEEP,       /* reply to controller `link` */
    SIM_TRIAL_STEPS,    /* job process `number` completes an epoch */
} sim_what;

typedef struct sim_happening {
    sim_what what;
    uint32_t number, detail, link;
    uint32_t waited; /* suspension serial + 1, if the event has waited for one */
    uint64_t epoch;  /* epoch of the receiving scheduler; other schedulers ignore the event */
    gp_core_id session;
    union {
        struct {
            gp_core_event event;
            gp_core_wish wish;
        } core;
        sim_letter letter;
        membership_event train;
        struct {
            gp_jobs_event event;
            gp_jobs_submit submit;
            char name[32];
        } jobs;
        struct {
            gp_jobs_action_kind kind;
            uint64_t correlation, job;
        } reply;
    };
} sim_happening;

typedef struct sim_tally { /* statistics of a run */
    uint64_t events;       /* all events: messages, exits, timers, replies */
    uint64_t steps;        /* steps of the scheduler's state machines */
    uint64_t faults, grants, deaths, restarts, claims, calls, reruns, jobs, crashes, commits, resized;
    uint64_t train_steps, regroups, prepared, gave_up;
    uint64_t of[SIM_FAULT_KINDS];
} sim_tally;

typedef struct sim {
    sim_script script;
    sim_queue *queue;
    history *calls, *jobs;
    FILE *out; /* trace output; NULL: none */
    uint64_t trace;
    sim_tally tally;
    int64_t now_us, calm_us;
    uint32_t ticks_here; /* timer events at the current time */
    sim_dice network, disk_dice;
    int64_t slow_until_us, slow_us, disk_slow_until_us, disk_slow_us;
    int64_t wall_ms; /* wall clock, which may jump; now_us is monotonic */

    /* State of the scheduler. */
    gp_core *core;
    gp_core_action *actions;
    gp_jobs *machine;
    bool up, dying, downed;
    bool ending; /* the run is ending: pending journal writes are not read any more */
    sim_gate gate;
    int64_t alarm_us; /* time of the scheduled timer event */
    uint32_t fuse;    /* remaining actions until it is killed; 0: unlimited */
    uint32_t fuse_ms; /* delay until the next scheduler starts */
    uint64_t epoch;
    bool exited;
    gp_core_slot_config plan[SIM_SLOTS];
    uint64_t asks;
    uint64_t lease_last;                  /* largest id seen in this epoch */
    uint64_t generation_of[SIM_LEASES];   /* ids of the latest leases */
    uint32_t generation_last[SIM_LEASES]; /* last generation of each of them */
    uint32_t lease_entries;               /* entries of generation_of[] written so far */
    uint32_t process_at[SIM_SLOTS];       /* newest process per slot: number + 1 */

    sim_process processes[SIM_PROCESSES];
    uint32_t process_count;
    sim_client clients[SIM_CLIENTS];
    uint64_t sessions;
    uint32_t groups; /* groups of trainings so far */
    sim_submitter submitters[SIM_SUBMITTERS];
    sim_sweep sweep;

    /* Jobs: disk and processes. */
    sim_fact facts[SIM_JOBS];
    uint64_t next_id; /* id counter on the disk */
    bool disk_failed;
    uint32_t disk_keeps; /* percentage of the pending writes that survives a disk failure */
    bool disk_fails;     /* the next commit fails */
    bool committing;
    sim_write writes[SIM_WRITES];
    uint32_t write_count;
    uint64_t job_capacity;
    sim_job_process job_processes[SIM_JOB_PROCESSES];
    uint32_t job_process_count;

    char check[32], failure[480];
    sim_outcome outcome;
} sim;

/* Allocate the memory for all runs. NULL: out of memory. */
sim *sim_new(void);
void sim_free(sim *s);

/* Run a script: inject faults until calm_ms, wait until all actors have settled or TIMEOUT_MS have
 * passed, then shut down the pool. Matches sim_run_fn.
 *   context  the sim
 *   script   seed and faults
 *   out      set to the result */
void sim_run(void *context, const sim_script *script, sim_outcome *out);

/* ---- world.c ---- */

sim_happening *sim_push(sim *s, int64_t after_us, sim_what what, uint32_t number);
sim_happening *sim_push_at(sim *s, int64_t at_us, sim_what what, uint32_t number);

/* Return whether the event must wait for the end of a suspension. If so, it is queued again for
 * that time. */
bool sim_waits(sim *s, sim_gate *gate, sim_happening *happening);
void sim_gate_open(sim_gate *gate); /* end the suspension now */
void sim_note(sim *s, const char *word, uint64_t a, uint64_t b, uint64_t c);
int64_t sim_transit(sim *s); /* draw the transit time of a message, in us */
bool sim_calm(const sim *s);
void sim_step_core(sim *s, const gp_core_event *event);

/* Do what the real shell does after each step. */
void sim_turn(sim *s);
void sim_kill_scheduler(sim *s, uint32_t after_ms);

/* Count one action of the scheduler. True: it was the last one before a kill; the caller must
 * stop. */
bool sim_burns(sim *s);
void sim_fail(sim *s, const char *check, const char *format, ...) __attribute__((format(printf, 3, 4)));
void sim_record(sim *s, history *h, history_entry entry);

/* ---- faults.c ---- */

void sim_strike(sim *s, const sim_fault *fault);
void sim_take_down(sim *s, bool when_idle, uint32_t after_ms); /* `gradpool down`, then up again */

/* ---- workers.c ---- */

/* Return the work that the process reports. Team calls count as user code. */
gp_core_work sim_work_of(const sim *s, const sim_process *process);
sim_process *sim_find_process(sim *s, uint32_t slot, uint32_t incarnation);
void sim_spawn(sim *s, uint32_t slot, uint32_t incarnation);
void sim_spawn_done(sim *s, sim_process *process);
void sim_process_receives(sim *s, sim_process *process, const sim_letter *letter);
void sim_process_dies(sim *s, sim_process *process, gp_core_death_kind death, int number);
void sim_process_breaks(sim *s, sim_process *process);
void sim_worker_dials(sim *s, sim_process *process, uint64_t epoch);

/* Count one action of the process. True: it was the last one before a kill. */
bool sim_process_burns(sim *s, sim_process *process);

/* Return the live process in a slot. NULL: none. */
sim_process *sim_process_in(sim *s, uint32_t slot);

/* ---- clients.c ---- */

bool sim_trains_mostly(const sim *s);

/* Return how much of the resource "tag" the worker in a slot has: 0 to 2, and in four runs of five
 * always 0. */
uint32_t sim_tag_of(const sim *s, uint32_t slot);

/* Return a table with that amount of "tag"; 0: an empty one. */
gp_resource_table sim_tag(uint32_t amount);
sim_client *sim_find_client(sim *s, const gp_core_id *session);
void sim_client_acts(sim *s, sim_client *client);
void sim_client_receives(sim *s, sim_client *client, const sim_letter *letter);
void sim_client_dials(sim *s, sim_client *client, uint64_t epoch);
void sim_client_claims(sim *s, sim_client *client, uint32_t link);
void sim_client_leaves(sim *s, sim_client *client);
void sim_client_breaks(sim *s, sim_client *client);
bool sim_client_burns(sim *s, sim_client *client);
void sim_client_replaces(sim *s, sim_client *client, uint32_t slot, uint32_t incarnation);
void sim_lease_hurt(sim *s, uint64_t lease);

/* Send an event to the scheduler, if the client is connected. Never kills the client. */
void sim_client_posts(sim *s, sim_client *client, const gp_core_event *event);

/* Return whether everything that the client knows about its lease is true. */
bool sim_lease_is_whole(sim *s, const sim_client *client);

/* ---- calls.c ---- */

void sim_team_granted(sim *s, sim_client *client);
/* Process lease_change: the team follows the new size. */
void sim_team_changes(sim *s, sim_client *client, uint32_t workers);

/* Request a formation with that number of workers. */
void sim_team_forms(sim *s, sim_client *client, uint32_t workers);

void sim_team_close(sim *s, sim_client *client, gp_status status);
bool sim_team_idle(const sim_client *client);

/* Kill the client's team together with the client. */
void sim_team_dies(sim *s, sim_client *client);
void sim_lane_dials(sim *s, sim_client *client, uint32_t rank, uint32_t serial);
void sim_lane_ends(sim *s, sim_client *client, uint32_t rank, uint32_t serial);

/* Disconnect the process from the ring that it serves; the client notices. */
void sim_leave(sim *s, sim_process *process);

/* Notify the scheduler of clients that exited before they claimed leases held by adopted
 * workers. */
void sim_watch_holders(sim *s);
void sim_takes(sim *s, sim_process *process, uint32_t serial);
void sim_answers(sim *s, sim_process *process, uint32_t serial);
void sim_drops(sim *s, sim_process *process, uint32_t serial);
void sim_pumps(sim *s, sim_client *client);

/* ---- training.c ---- */

void sim_training_granted(sim *s, sim_client *client, bool first);
/* from the scheduler */
void sim_training_receives(sim *s, sim_client *client, const sim_letter *letter);
void sim_training_reunited(sim *s, sim_client *client);
bool sim_training_over(const sim_client *client);

/* Remove the process from the training group, if any. */
void sim_rank_breaks(sim *s, const sim_process *process);
void sim_train_attaches(sim *s, sim_client *client, uint32_t serial);
void sim_train_receives(sim *s, sim_client *client, const sim_happening *happening);
void sim_train_alarm(sim *s, sim_client *client, const sim_happening *happening);
void sim_rank_begins(sim *s, sim_client *client, uint32_t rank, uint32_t serial);
void sim_rank_commits(sim *s, sim_client *client, uint32_t rank, uint32_t serial);
void sim_group_steps(sim *s, sim_client *client, uint32_t serial);
void sim_group_pauses(sim *s, sim_client *client, uint32_t serial);
void sim_newcomer_prepares(sim *s, sim_client *client, const sim_happening *happening);
void sim_newcomer_tells(sim *s, sim_client *client, const sim_happening *happening);

/* ---- jobs.c ---- */

bool sim_jobs_begin(sim *s); /* create the job state machine from the disk */
void sim_jobs_crash(sim *s, bool machine_too);
void sim_jobs_step(sim *s, gp_jobs_event event);
void sim_jobs_receives(sim *s, sim_happening *happening);
void sim_commits(sim *s, sim_happening *happening);
void sim_job_spawns(sim *s, sim_happening *happening);
void sim_job_ends(sim *s, uint32_t number);
void sim_job_reaped(sim *s, sim_happening *happening);
void sim_job_killed(sim *s, uint32_t which);
void sim_submitter_acts(sim *s, sim_submitter *submitter);
void sim_submitter_receives(sim *s, sim_submitter *submitter, const sim_happening *happening);
void sim_submitter_dials(sim *s, sim_submitter *submitter, uint64_t epoch);
void sim_submitter_breaks(sim *s, sim_submitter *submitter);

/* Let a job process exit with a record. */
void sim_job_exits(sim *s, uint32_t number, int32_t code);

/* Return whether all jobs have ended. */
bool sim_jobs_settled(const sim *s, char why[480]);

/* ---- sweep.c ---- */

void sim_sweep_begin(sim *s); /* prepare the sweep of a run */
void sim_sweep_end(sim *s);
void sim_sweep_step(sim *s, sweep_event event);

/* requests.c: requests to the sweep arrive, are taken, and have lines in the journal. */
void sim_requests_arrive(sim *s);
void sim_requests_take(sim *s);
void sim_request_noted(sim *s, const sweep_line *line);
bool sim_requests_settled(const sim *s, char why[480]);

void sim_sweep_starts(sim *s);
void sim_sweep_polls(sim *s, const sim_happening *happening);
void sim_sweep_syncs(sim *s, const sim_happening *happening);
void sim_sweep_receives(sim *s, const sim_happening *happening);
void sim_sweep_dies(sim *s, bool machine_too);

/* Interrupt the controller, or kill it now or after some actions. */
void sim_sweep_struck(sim *s, bool halt, uint32_t after);

/* A user cancels a job; 0: all jobs. */
void sim_sweep_canceled(sim *s, uint64_t job);
bool sim_runs_trial(const sim *s, uint64_t job);
void sim_trial_begins(sim *s, uint32_t number); /* job process `number` passes the gate */
void sim_trial_steps(sim *s, uint32_t number);
void sim_trial_stops(sim *s, uint32_t number); /* the process received SIGTERM */

/* Return whether the sweep is over and each trial has an end. */
bool sim_sweep_settled(const sim *s, char why[480]);

/* ---- check.c ---- */

/* Check each core action before it is executed, and the core state after each step. */
void sim_check_action(sim *s, const gp_core_action *action);
void sim_check_state(sim *s);

/* Record a lease that exists: its id may appear in grants from now on. */
void sim_lease_known(sim *s, uint64_t lease);

/* Return the last generation of a recorded lease. NULL: not recorded. */
uint32_t *sim_lease_generation(sim *s, uint64_t lease);

/* Return whether all requests were answered and all slots are free again. */
bool sim_settled(const sim *s, char why[480]);

#endif
