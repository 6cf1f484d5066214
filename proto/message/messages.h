/* messages.h -- the messages as plain values: no pointers, texts and lists inline.
 * The struct of message NAME is gp_NAME, its type (for the codec and the channel) gp_msg_NAME.  Two
 * names have "_reply" so that they do not take gp_error and gp_status from the rest of the program.
 * `none` stands where a message has no fields, because C has no empty struct; it is not on the
 * wire.
 * Ranges are in the tables (msg_<family>.c) and PROTOCOL.md.  Texts are NUL-terminated UTF-8; char
 * x[108] holds 107 bytes.  A list is an array and <list>_count.  gp_status_reply is about 250 KiB:
 * keep it off small stacks. Long texts and tensors (netspec, options, scores) travel as payload
 * frames, listed at each message. */
#ifndef GP_MESSAGES_H
#define GP_MESSAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/message/codec.h"
#include "proto/message/limits.h"

/* ---- any to any ---- */

typedef enum gp_role {
    GP_ROLE_CLIENT = 1,
    GP_ROLE_WORKER = 2,
    GP_ROLE_VIEWER = 3,
    GP_ROLE_SCHEDULER = 4, /* at doors of workers only: a new one calls them */
} gp_role;

/* The answer to a request that failed (same correlation), or, with correlation 0, news of a failure. */
typedef struct gp_error_reply {
    uint32_t code;     /* a gp_status other than GP_OK; a number we do not know is refused on decode */
    char message[480]; /* cause, value seen, what to try */
    uint32_t worker;   /* index of the worker that failed, from 1; 0 = none */
} gp_error_reply;

/* The answer to a request that has nothing else to say. */
typedef struct gp_ok_reply {
    uint8_t none;
} gp_ok_reply;

/* First message on every link, sent by the one who dialled.  Answer: welcome, or error_reply GP_EVERSION that
 * names both versions (see gp_protocol_choose).  hello, welcome and error_reply never change their meaning. */
typedef struct gp_hello {
    uint32_t role;                       /* gp_role */
    uint32_t protocol_min, protocol_max; /* what the sender understands */
    char build[64];                      /* "gradpool 0.1.0 (debug)": for people */
    uint32_t pid;
    uint64_t features; /* bits; none is defined yet; optional on the wire */
} gp_hello;

typedef struct gp_welcome {
    uint32_t protocol; /* the common version; every later envelope carries it */
    char build[64];
    char pool[64];
    uint32_t pid;
    uint64_t uptime_ms;
} gp_welcome;

/* ---- a slot: what a lease holds (worker index + device + cores), and the process now in it ---- */

typedef enum gp_device_kind { GP_DEVICE_NONE = 0, GP_DEVICE_CPU = 1, GP_DEVICE_CUDA = 2 } gp_device_kind;

typedef struct gp_slot {
    uint32_t index;                  /* from 1: what users see */
    uint32_t incarnation;            /* from 1; + 1 with each new process in the slot */
    uint32_t pid;                    /* 0 = no process yet */
    uint64_t start_time;             /* field 22 of /proc/PID/stat: tells a reused pid; 0 = not known */
    char endpoint[GP_TEXT_ENDPOINT]; /* "ipc:///run/user/1000/gradpool/default/w1.1" */
    char door[GP_TEXT_ENDPOINT];     /* path of its door socket */
    uint32_t device_kind;            /* gp_device_kind */
    uint32_t device_index;           /* the driver's own ordinal (cuda:0); 0 for CPU */
    char device_uuid[96];            /* "GPU-..." or "cpu-0-3" */
    char device_name[96];
    char cores[64]; /* CPU list, "0-1,4"; empty = not pinned */
    uint32_t core_count;
    bool shared;            /* its cores are others' too: unpinned, never spinning */
    char log[GP_TEXT_PATH]; /* its log file; every error a user sees names it */
} gp_slot;

/* ---- client and scheduler ---- */

typedef enum gp_worker_state {
    GP_WORKER_STARTING = 0,
    GP_WORKER_IDLE = 1,
    GP_WORKER_BUSY = 2,
    GP_WORKER_EXCLUDED = 3, /* joined, but will not train; reason says why */
    GP_WORKER_DEAD = 4,
} gp_worker_state;

typedef enum gp_lease_state { GP_LEASE_QUEUED = 0, GP_LEASE_GRANTED = 1 } gp_lease_state;

typedef enum gp_environment { GP_ENV_ANY = 0, GP_ENV_CPU = 1, GP_ENV_GPU = 2 } gp_environment;

typedef struct gp_status_get {
    uint8_t none;
} gp_status_get;

typedef struct gp_worker_row {
    gp_slot slot;
    uint32_t state; /* gp_worker_state */
    char reason[200];
    uint64_t lease;     /* 0 = none */
    uint64_t step;      /* of its training; 0 = none */
    uint64_t silent_ms; /* not 0: it is suspect, and for how long; reason says what will be done */
} gp_worker_row;

typedef struct gp_lease_row {
    uint64_t lease;
    uint32_t generation; /* 0 while queued */
    uint32_t client_pid;
    uint32_t state; /* gp_lease_state */
    char purpose[96];
    uint32_t workers; /* held, or asked for while queued */
    uint64_t age_ms;  /* since granted, or since asked */
} gp_lease_row;

typedef struct gp_status_reply {
    char pool[64];
    uint32_t scheduler_pid;
    uint64_t uptime_ms;
    uint64_t epoch;
    uint64_t idle_timeout_ms; /* 0 = never */
    bool accepting;           /* false: shutting down when idle */
    uint32_t workers_count;
    gp_worker_row workers[GP_WORKERS_MAX];
    uint32_t leases_count;
    gp_lease_row leases[GP_LEASES_MAX];
    /* Of the door for other hosts; all optional on the wire. */
    char listen[GP_TEXT_ENDPOINT]; /* where it listens; "" = nowhere */
    uint32_t remote_links;         /* connections now */
    uint64_t
        remote_refused;  /* keys turned away, handshakes that failed, requests above a key's role or rate */
    uint64_t remote_cut; /* connections cut off */
} gp_status_reply;

/* The devices that the scheduler found when it began.  Answered by devices_reply with one payload, the JSON of
 * `gradpool devices --json`. */
typedef struct gp_devices_get {
    uint8_t none;
} gp_devices_get;

typedef struct gp_devices_reply {
    uint32_t cores; /* for CPU workers */
} gp_devices_reply;

/* Ask for workers.  Answers: lease_grant; lease_wait, as often as the position or the reason changes, then
 * lease_grant; or error_reply (GP_ENODEV: can never be; GP_EBUSY: `wait` is false). */
typedef struct gp_lease_ask {
    uint32_t workers_min, workers_max; /* 0, 0 = every free worker (at least one) */
    char devices[256];                 /* "" = any; else a list: "1,3", "cuda:0", a UUID */
    uint32_t environment;              /* gp_environment */
    char purpose[96];                  /* "train lenet": shown to those who wait */
    int32_t priority;                  /* higher first; 0 is usual */
    bool wait;
    /* Elastic: the client goes on with so many members if others die, and takes more, up to workers_max, when there are
     * (lease_change).  0: with no fewer than it has. */
    uint32_t workers_floor;
} gp_lease_ask;

typedef struct gp_lease_wait {
    uint32_t position;           /* in the queue, from 1 */
    char reason[GP_TEXT_REASON]; /* who holds what, and for how long */
} gp_lease_wait;

/* Leave the queue; answered by ok_reply. */
typedef struct gp_lease_leave {
    uint8_t none;
} gp_lease_leave;

/* The envelope carries lease and generation.  Sent again with generation + 1 after a member was replaced. */
typedef struct gp_lease_grant {
    uint8_t token[16]; /* shown to the workers in attach */
    uint32_t slots_count;
    gp_slot slots[GP_MEMBERS_MAX]; /* in rank order */
} gp_lease_grant;

/* Give back the lease of the envelope; answered by ok_reply. */
typedef struct gp_lease_release {
    uint8_t none;
} gp_lease_release;

typedef struct gp_lease_ended {
    char reason[GP_TEXT_REASON];
    uint32_t code; /* gp_status; GP_OK where it was not told.  GP_ESTALE: it was lost with its scheduler */
} gp_lease_ended;

/* A member of the client's lease died; a lease_grant with the next generation follows when it was replaced. */
typedef struct gp_worker_lost {
    uint32_t index, incarnation;
    int32_t signal;    /* 0 = it exited, -1 = not known */
    int32_t exit_code; /* -1 = not known, or a signal */
    char cause[GP_TEXT_CAUSE];
    char log[GP_TEXT_PATH];
    uint64_t step;          /* the last it reported */
    uint32_t out_of_memory; /* 1: killed by the kernel for lack of memory */
} gp_worker_lost;

/* A member of the client's lease gives no sign of life, or its training makes no step; or it does again. */
typedef struct gp_worker_suspect {
    uint32_t index, incarnation;
    uint64_t silent_ms; /* 0: all is well again */
    char text[GP_TEXT_REASON];
} gp_worker_suspect;

/* Answered by status_reply once done, or error_reply GP_EBUSY that names the leases. */
typedef struct gp_resize {
    uint32_t workers;         /* 0 = as many as there are devices */
    char devices[256];        /* "auto", "cpu", or as in lease_ask; "" = leave as it is */
    uint64_t idle_timeout_ms; /* 0 = never */
} gp_resize;

/* Answered by ok_reply, then the process ends. */
typedef struct gp_shutdown {
    bool when_idle; /* after the last lease; false: leases are revoked now */
} gp_shutdown;

/* Kill a member of the client's lease and replace it: its task does not end.  The envelope carries the lease;
 * answered by ok_reply, then worker_lost and a grant of the next generation come as after any death; or by error_reply
 * GP_ESTALE when another incarnation has the slot already. */
typedef struct gp_worker_replace {
    uint32_t index, incarnation;
    char reason[GP_TEXT_REASON];
} gp_worker_replace;

typedef struct gp_lease_member {
    uint32_t index, incarnation;
} gp_lease_member;

/* To a scheduler that follows one that died: the lease of the envelope is still wanted.  Answered by ok_reply, then
 * worker_lost and lease_grant as after any death, if members died; or by error_reply GP_ESTALE: it is no more. */
typedef struct gp_lease_claim {
    uint8_t token[16];
    uint32_t workers_min; /* with fewer it is of no use */
    char purpose[96];     /* as in lease_ask */
    uint32_t members_count;
    gp_lease_member members[GP_MEMBERS_MAX]; /* in rank order */
    uint32_t workers_floor, workers_max;     /* as in lease_ask, or as lease_change said since */
    uint32_t environment;
} gp_lease_claim;

/* An elastic lease, of whomever, is to have that many members from now on: fewer or more than now, and more than it was
 * begun with.  Answered by ok_reply when its holder was told, or error_reply. */
typedef struct gp_lease_resize {
    uint64_t lease;   /* 0: that of the job */
    uint64_t job;     /* 0: `lease` says which */
    uint32_t workers; /* as soon as so many are free */
} gp_lease_resize;

/* The elastic lease of the envelope, in that generation, can have, or is to have, `workers` members.  When nobody is in its
 * group any more the client says lease_form; it need not, unless `asked`.  Those who would join are the lease's already:
 * they have a grant of this generation in which each is alone, so the client can attach to them and let them prepare. */
typedef struct gp_lease_change {
    uint32_t workers;
    bool asked; /* by lease_resize; false: workers are free, or not any more */
    uint32_t joining_count;
    gp_slot joining[GP_MEMBERS_MAX];
} gp_lease_change;

/* Nobody is in the group of the lease and generation of the envelope: form the next one, of those who were in it and of
 * those who have prepared, as many as are wanted.  Answered by lease_grant; error_reply GP_ESTALE: it is no elastic lease of this client.  Not answered where the
 * generation is over already: the grant of the next one is on its way. */
typedef struct gp_lease_form {
    uint64_t joining; /* bit index - 1: who has prepared; all bits: whoever is there */
} gp_lease_form;

/* ---- scheduler and worker ---- */

/* Sent once after welcome, and again to a new scheduler: leases are rebuilt from these. */
typedef struct gp_worker_ready {
    gp_slot slot;
    uint32_t state;   /* gp_worker_state */
    char reason[200]; /* why excluded */
    uint64_t lease;   /* it serves now; 0 = none */
    uint32_t generation;
    uint8_t token[16]; /* of that lease; optional on the wire */
    /* Who came with the token of that lease, and lives; 0 = nobody.  Optional on the wire. */
    uint32_t client_pid;
    uint8_t client_session[16];
} gp_worker_ready;

typedef struct gp_worker_welcome {
    uint8_t none;
} gp_worker_welcome;

/* What a worker does for its lease, as far as it matters to whom it is silent. */
typedef enum gp_worker_work {
    GP_WORK_OURS = 0, /* nothing, or what may be done again elsewhere */
    GP_WORK_TRAINING = 1,
    GP_WORK_USERS = 2, /* code or commands of its user: never ended because of a silence */
} gp_worker_work;

/* Every 500 ms from the control thread's loop, and when `work` changes. */
typedef struct gp_beat {
    uint32_t state;    /* gp_worker_state */
    uint64_t progress; /* the compute thread's counter: it stands still when compute does */
    uint64_t step;
    uint32_t epoch;
    uint32_t work; /* gp_worker_work */
    /* Of a training: how long compute has been in the present stretch of a step, which needs no peer and no data (0: in none),
     * and how long the longest one took that ended. */
    uint64_t stretch_ms, stretch_max_ms;
} gp_beat;

/* The envelope carries lease and generation: serve these and no other. */
typedef struct gp_grant {
    uint8_t token[16];
    uint32_t client_pid;
    uint32_t rank; /* of the receiver, from 0: members[rank] is its own slot */
    uint32_t members_count;
    gp_slot members[GP_MEMBERS_MAX];
} gp_grant;

typedef struct gp_grant_ack {
    uint8_t none;
} gp_grant_ack;

/* Another member of your lease is gone: abort collectives with it. */
typedef struct gp_peer_lost {
    uint32_t index, incarnation;
    char cause[GP_TEXT_CAUSE];
} gp_peer_lost;

/* Abort the work of the envelope's lease, free, answer revoked within 1 s (or be replaced). */
typedef struct gp_revoke {
    char reason[GP_TEXT_REASON];
} gp_revoke;

/* recycle: code or values of the lease are still in the process; it serves no other and is to be told to quit. */
typedef struct gp_revoked {
    uint32_t recycle; /* 0 or 1 */
} gp_revoked;

typedef struct gp_quit {
    uint8_t none;
} gp_quit;

/* ---- client and worker ---- */

/* First after hello/welcome.  The envelope carries lease and generation, which the worker compares with its
 * grant; ok_reply, or error_reply GP_ESTALE (older grant) or GP_EPERM (wrong token). */
typedef struct gp_attach {
    uint8_t token[16];
    uint32_t client_pid;
} gp_attach;

/* Payloads: [0] netspec JSON, [1] options JSON, [2] optional initial weights (their size;
 * PROTOCOL.md, "Weights"). Answered by train_ready or error_reply. */
typedef struct gp_train_begin {
    char data[512];            /* absolute path, or a name the worker can find */
    char validation_data[512]; /* "" = none */
    uint32_t workers;          /* ranks taking part: the first so many of the lease */
    uint64_t seed;
    uint32_t restart; /* how many groups of the lease this training had before; 0 = it begins */
    /* 1: to one that will join, alone in its grant: open the data and make what a rank of `workers` needs, and keep it for
     * the next generation.  Answered by ok_reply. */
    uint32_t prepare;
} gp_train_begin;

typedef struct gp_train_ready {
    uint32_t rank, world; /* rank from 0 */
    uint64_t samples, validation_samples;
    uint32_t steps_per_epoch;
    uint32_t batch;      /* samples per step, whole pool */
    uint32_t batch_rank; /* this rank's share */
    uint64_t parameters;
    uint64_t memory_bytes;
    double ready_ms; /* from train_begin received to now */
    uint32_t classes;
    uint64_t step;              /* that it goes on after; 0 = from the beginning */
    double data_ms, network_ms; /* parts of ready_ms: opening the data; weights and plans */
} gp_train_ready;

/* The metrics of one step of one rank. */
typedef struct gp_train_record {
#define GP_METRIC(type, name, ...) type name;
#include "proto/message/step_fields.def"
} gp_train_record;

/* Steps since the last such message, oldest first; what did not fit the worker's queue is counted. */
typedef struct gp_train_steps {
    uint32_t records_count;
    gp_train_record records[GP_RECORDS_MAX];
    uint64_t dropped; /* records lost since train_begin */
} gp_train_steps;

/* The metrics of one validation, over all ranks. */
typedef struct gp_train_validation {
#define GP_METRIC(type, name, ...) type name;
#include "proto/message/validation_fields.def"
} gp_train_validation;

/* Soft: at the next step boundary, by a bit that travels with the gradients: one rank is enough. */
typedef struct gp_train_stop {
    bool hard;      /* true: now; false: at a step boundary, weights are kept */
    uint32_t pause; /* not hard: 1: to go on in the next generation of the lease */
} gp_train_stop;

/* Progress of a validation, from rank 0. */
typedef struct gp_train_validating {
    uint64_t step;     /* after which the validation is made */
    uint64_t done;     /* samples of all ranks, estimated from the progress of rank 0 */
    uint64_t count;    /* samples of the validation data; done = count: the validation is complete */
    uint64_t excluded; /* when complete: targets of all ranks without a class or value; else 0 */
    double seconds;    /* since the validation began */
} gp_train_validating;

/* From rank 0, between steps: a checkpoint was written, or could not be. */
typedef struct gp_train_note {
    char text[480];
    bool warning;
} gp_train_note;

typedef enum gp_stop_reason {
    GP_STOP_COMPLETED = 0,
    GP_STOP_STOPPED = 1, /* asked for */
    GP_STOP_FAILED = 2,
    GP_STOP_PATIENCE = 3, /* validation got no better */
    GP_STOP_PAUSED = 4,   /* to go on in another group of the lease */
} gp_stop_reason;

/* Payloads, from rank 0 when status is GP_OK: [0] weights (their size), [1] class names JSON. */
typedef struct gp_train_done {
    uint32_t status; /* gp_status */
    char message[480];
    uint32_t stop_reason; /* gp_stop_reason */
    uint64_t step;
    uint32_t epoch;
    double loss;             /* of the last step; may be NaN or infinite */
    uint64_t skipped;        /* images that this rank could not read (on-bad skip), each once */
    char skipped_names[480]; /* of the first of them, a line each */
} gp_train_done;

/* What a predict_part carries besides its sums. */
typedef enum gp_predict_answer {
    GP_ANSWER_SCORES,
    GP_ANSWER_CLASSES, /* of the sample, or of each of its pixels, the class with the largest score */
    GP_ANSWER_SUMS,    /* neither scores nor labels nor names, but a confusion matrix */
    GP_ANSWER_COUNT
} gp_predict_answer;

/* Payloads: [0] netspec JSON, [1] weights (their size), [2] class names JSON or none.  Answered by
 * predict_ready or error_reply. */
typedef struct gp_predict_begin {
    char data[512]; /* empty: each predict_ask brings its samples */
    uint32_t batch;
    uint32_t precision; /* gp_precision; optional on the wire, as what follows */
    uint32_t answer;    /* gp_predict_answer */
    uint32_t floats;    /* samples that a predict_ask brings: 0 uint8, 1 float32 */
    uint64_t samples;   /* that predict_asks will bring in all */
    /* What images are brought to before anything is cut from them; 0, 0: as crop says. */
    uint32_t image_height, image_width;
    /* 1: of a network that scores pixels, images of any size; answer is not GP_ANSWER_SCORES. */
    uint32_t whole;
    uint32_t overlap;       /* of the windows that what is larger than the input is cut into, pixels */
    uint32_t crop;          /* gp_predict_crop */
    uint32_t on_bad;        /* gp_on_bad of common/data */
    uint32_t ignore_labels; /* 1: compare nothing, and do not match the classes of the data */
    uint32_t exact_size;    /* 1: refuse images in files that have not the size and channels of the network */
} gp_predict_begin;

/* What the network is shown of an image. */
typedef enum gp_predict_crop {
    GP_PREDICT_ALL, /* all of it, brought to the network's size; but of an image_height its middle, as below */
    GP_PREDICT_MIDDLE, /* of its image_height and image_width (0, 0: as it is stored) the middle of the network's size */
    GP_PREDICT_FIT, /* its largest middle that has the network's proportions, scaled to the network's size */
    GP_PREDICT_CROP_COUNT
} gp_predict_crop;

/* Payload: [0] a sentence about what was left out of the data when they were opened (on_bad), or none. */
typedef struct gp_predict_ready {
    uint64_t samples; /* 0: they come with the asking */
    /* Scores of one sample: a class's, a pixel's, values; or, of GP_ANSWER_CLASSES, places that have a class. */
    uint32_t classes;
    bool has_labels;
    uint32_t micro_batch; /* computed at once: parts of a multiple waste nothing; optional on the wire */
} gp_predict_ready;

/* Payload, where predict_begin named no data: the samples, packed.  Answered by one predict_part of the same first and
 * count, or error_reply. */
typedef struct gp_predict_ask {
    uint64_t first; /* from 0 */
    uint32_t count;
} gp_predict_ask;

/* Payloads: [0] scores f32 [count, classes], or classes [count, classes] in 1 byte each, or 4 if there are more than 256; [1]
 * labels i32 [count], or an empty frame where a sample has no class; [2] names; [3] the confusion matrix
 * (gp_confusion_pack), empty where there is none: of GP_ANSWER_SUMS; and where samples were skipped (on_bad) [4] u8 [count], 1: it
 * was, else 0; [5] the names of those.  Of a sample that was skipped no sum knows; its row, label and name are there, and the row
 * means nothing, or (classes of whole images) has height and width 0.
 * The sums are those of the part (graph.h); all 0 where the data has nothing to compare with. */
typedef struct gp_predict_part {
    uint64_t first;
    uint32_t count;
    double loss;       /* sum over the part; may be NaN or infinite */
    double correct;    /* weight of the classes that were predicted */
    double weight;     /* the divisor of loss */
    double classed;    /* of correct */
    double squares;    /* sum of squared errors of values */
    double values;     /* its divisor */
    uint32_t labelled; /* samples with something to compare with */
    uint64_t excluded; /* targets without a class or value, of samples that were not skipped */
} gp_predict_part;

typedef struct gp_predict_end {
    uint8_t none;
} gp_predict_end;

/* Open the link whose descriptors came through the door (task_wire.h).  Answered by task_ready or error_reply. */
typedef struct gp_task_open {
    uint32_t link_version; /* GP_LINK_VERSION */
    uint32_t task_abi;     /* GP_TASK_ABI of the client's build */
} gp_task_open;

typedef struct gp_task_ready {
    uint32_t link_version;
    uint32_t task_abi;
} gp_task_ready;

/* End the running call of that id if it waits for other workers: its operations fail with GP_ECANCELED.  Not answered:
 * the call itself is. */
typedef struct gp_task_stop {
    uint64_t call;
} gp_task_stop;
/* Begin to run commands: the worker starts a runner, whose socket is then asked for at the worker's door with `what`
 * GP_RUNNER_WHAT (runner_wire.h).  Answered by ok_reply or error_reply. */
typedef struct gp_run_open {
    uint8_t none;
} gp_run_open;

/* ---- background jobs: between client and scheduler ---- */

typedef enum gp_job_row_state {
    GP_JOB_ROW_QUEUED = 1,
    GP_JOB_ROW_STARTING = 2,
    GP_JOB_ROW_RUNNING = 3,
    GP_JOB_ROW_STOPPING = 4, /* canceled; its process has yet to end */
    GP_JOB_ROW_DONE = 5,
    GP_JOB_ROW_FAILED = 6,
    GP_JOB_ROW_CANCELED = 7,
    GP_JOB_ROW_LOST = 8, /* every attempt ended with its scheduler */
} gp_job_row_state;

typedef enum gp_job_exit {
    GP_JOB_EXIT_NONE = 0,
    GP_JOB_EXIT_CODE = 1,
    GP_JOB_EXIT_SIGNAL = 2,
    GP_JOB_EXIT_UNKNOWN = 3, /* it ended while no scheduler was there to see it */
} gp_job_exit;

/* Payloads: [0] words of the command ("train", "--network", ...), [1] variables ("PATH=/bin"), [2] directory, absolute;
 * each text ends with a NUL.  Answered by job_accepted when the job is on disk, or error_reply.  The same submitter
 * and seq again: the same answer, no second job. */
typedef struct gp_job_put {
    uint8_t submitter[16]; /* random */
    uint64_t seq;
    char name[64];
    int32_t priority; /* higher begins first; 0 is usual */
    uint32_t umask;
} gp_job_put;

typedef struct gp_job_accepted {
    uint64_t job;
    bool known; /* it was submitted before */
} gp_job_accepted;

typedef struct gp_job_row {
    uint64_t job;
    char name[64];
    char command[96]; /* its words, cut */
    uint32_t state;   /* gp_job_row_state */
    int32_t priority;
    uint32_t attempts;     /* begun */
    bool cancel;           /* asked for */
    uint32_t pid;          /* of the last attempt; 0 = none */
    uint32_t workers;      /* it holds, or held at most */
    uint32_t exit;         /* gp_job_exit */
    uint32_t number;       /* exit code or signal */
    uint64_t age_ms;       /* since it was submitted */
    uint64_t run_ms;       /* of the last attempt, so far or in all */
    uint64_t ended_ms;     /* since it ended; 0 = it has not */
    char reason[200];      /* why failed, canceled, lost or queued again */
    uint64_t submitted_ms; /* wall clock of the scheduler's host, since 1970; 0: unknown */
} gp_job_row;

/* Jobs with ids under `before`, the newest first. */
typedef struct gp_jobs_get {
    uint64_t before; /* 0 = from the newest on */
    uint32_t states; /* bit s: those in state s; 0 = all */
    uint32_t count;  /* at most so many */
} gp_jobs_get;

typedef struct gp_jobs_reply {
    uint32_t rows_count;
    gp_job_row rows[GP_JOB_ROWS_MAX];
    bool more;                                              /* ask again with before = the last row's job */
    uint32_t queued, running, done, failed, canceled, lost; /* of all jobs that are kept */
} gp_jobs_reply;

/* Answered by job_reply or error_reply GP_ENOENT. */
typedef struct gp_job_ask {
    uint64_t job;
} gp_job_ask;

typedef struct gp_job_reply {
    gp_job_row row;
    char folder[GP_TEXT_FOLDER]; /* job.json, log, metrics.jsonl, result/; there from the first attempt on */
} gp_job_reply;

/* Answered by job_stopping when that is on disk, or error_reply. */
typedef struct gp_job_stop {
    uint64_t job; /* 0 = all that have not ended */
} gp_job_stop;

typedef struct gp_job_stopping {
    uint32_t count; /* jobs that this canceled */
} gp_job_stopping;

/* Push of changes, until the link ends.  Answered by job_changed with the job as it is, or, for all, by ok_reply. */
typedef struct gp_job_watch {
    uint64_t job; /* 0 = all */
} gp_job_watch;

/* With the correlation of the watch.  An error_reply with it ends the watch: the pool goes down, or jobs cannot be
 * recorded any more. */
typedef struct gp_job_changed {
    gp_job_row row;
    bool missed; /* changes before this one were not sent, because the receiver was slow: look again */
} gp_job_changed;

typedef enum gp_job_file {
    GP_JOB_FILE_LOG = 1,
    GP_JOB_FILE_METRICS = 2,
    GP_JOB_FILE_FACTS = 3,
    GP_JOB_FILE_RECORD = 4, /* job.json */
    GP_JOB_FILE_END = 5,
    GP_JOB_FILE_REPORT = 6,
    GP_JOB_FILE_SCHEDULER_LOG = 7, /* what the pool's daemons said, of this job and of others */
    GP_JOB_FILE_WORKER_LOG = 8,
} gp_job_file;

/* A piece of a file of a job's folder, or of a daemon's log, for who does not see them.  Answered by job_piece with one payload,
 * the bytes, or error_reply GP_ENOENT. */
typedef struct gp_job_read {
    uint64_t job;
    uint32_t file;   /* gp_job_file */
    uint32_t worker; /* of GP_JOB_FILE_WORKER_LOG: from 1; else 0 */
    uint64_t offset;
    uint32_t bytes; /* at most so many */
} gp_job_read;

typedef struct gp_job_piece {
    uint64_t offset; /* of the payload */
    uint64_t size;   /* of the file now */
    uint64_t file;   /* names the file itself: another number, and it began anew; 0 = it is not there (yet) */
} gp_job_piece;

/* gp_msg_hello and so on: the types, with their tables. */
#define GP_MSG(id, name, direction) extern const gp_message_type gp_msg_##name;
#include "proto/message/messages.def"
#undef GP_MSG

/* Ids as constants, for switch (in.envelope.message) { case GP_ID(hello): ... } */
enum {
#define GP_MSG(id, name, direction) gp_id_##name = id,
#include "proto/message/messages.def"
#undef GP_MSG
};
#define GP_ID(name) gp_id_##name

#endif
