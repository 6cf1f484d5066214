/* Protocol messages as plain C structs, without pointers: texts and lists are inline.
 *
 * Message NAME has the struct gp_NAME and the type gp_msg_NAME, which codec and channel use.
 * error_reply and status_reply have their suffix because gp_error and gp_status are taken. The
 * member `none` stands in for an empty struct, which C lacks; it is not sent.
 *
 * The field tables in msg_<family>.c define the ranges; PROTOCOL.md lists them. A text is
 * NUL-terminated UTF-8: char x[108] holds 107 bytes. A list is an array and a counter <list>_count.
 * Long texts and tensors (netspec, options, scores) travel as payload frames, listed at each
 * message.
 *
 * gp_status_reply has about 250 KiB: do not put it on a small stack. */
#ifndef GP_MESSAGES_H
#define GP_MESSAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/message/codec.h"
#include "proto/message/limits.h"

/* ---- any to any ---- */

/* Role that a process claims when it opens a link. */
typedef enum gp_role {
    GP_ROLE_CLIENT = 1,
    GP_ROLE_WORKER = 2,
    GP_ROLE_VIEWER = 3,
    /* new scheduler that notifies a worker; control socket of workers only */
    GP_ROLE_SCHEDULER = 4,
} gp_role;

/* Reply to a failed request, with the same correlation. With correlation 0: notification of a
 * failure that no request caused. */
typedef struct gp_error_reply {
    uint32_t code;     /* gp_status except GP_OK; the decoder refuses an unknown number */
    char message[480]; /* cause, value seen, advice */
    uint32_t worker;   /* failed worker's index, from 1; 0: none */
} gp_error_reply;

/* Reply to a successful request that returns no data. */
typedef struct gp_ok_reply {
    uint8_t none;
} gp_ok_reply;

/* First message on every link, sent by the side that connected. Reply: welcome, or error_reply
 * GP_EVERSION that names both version ranges (see gp_protocol_choose()). The meaning of hello,
 * welcome and error_reply never changes. */
typedef struct gp_hello {
    uint32_t role;                       /* gp_role */
    uint32_t protocol_min, protocol_max; /* versions that the sender supports */
    char build[64];                      /* for people, for example "gradpool 0.1.0 (debug)" */
    uint32_t pid;
    uint64_t features; /* reserved feature bits; optional on the wire */
} gp_hello;

/* Reply to hello: the daemon accepts the link. */
typedef struct gp_welcome {
    uint32_t protocol; /* common version, carried by all later envelopes */
    char build[64];
    char pool[64];
    uint32_t pid;
    uint64_t uptime_ms;
} gp_welcome;

/* ---- slot: worker index, device and cores, and the process that uses them ---- */

typedef enum gp_device_kind { GP_DEVICE_NONE = 0, GP_DEVICE_CPU = 1, GP_DEVICE_CUDA = 2 } gp_device_kind;

/* A worker slot. A lease holds slots; a failed process is replaced in the same slot. */
typedef struct gp_slot {
    uint32_t index;                  /* worker index shown to users, from 1 */
    uint32_t incarnation;            /* from 1; incremented for each new process in the slot */
    uint32_t pid;                    /* 0: no process yet */
    uint64_t start_time;             /* field 22 in /proc/PID/stat, detects pid reuse; 0: unknown */
    char endpoint[GP_TEXT_ENDPOINT]; /* "ipc:///run/user/1000/gradpool/default/w1.1" */
    char door[GP_TEXT_ENDPOINT];     /* control socket path */
    uint32_t device_kind;            /* gp_device_kind */
    uint32_t device_index;           /* driver ordinal (cuda:0); 0 for CPU */
    char device_uuid[96];            /* "GPU-..." or "cpu-0-3" */
    char device_name[96];
    char cores[64]; /* CPU list such as "0-1,4"; "": not pinned */
    uint32_t core_count;
    bool shared;            /* other processes use the cores too: do not pin threads, do not spin */
    char log[GP_TEXT_PATH]; /* log file path, named in every error that users see */
} gp_slot;

/* ---- client and scheduler ---- */

/* Worker state, as shown by gradpool status. */
typedef enum gp_worker_state {
    GP_WORKER_STARTING = 0,
    GP_WORKER_IDLE = 1,
    GP_WORKER_BUSY = 2,
    GP_WORKER_EXCLUDED = 3, /* joined but not used; `reason` says why */
    GP_WORKER_DEAD = 4,
} gp_worker_state;

typedef enum gp_lease_state { GP_LEASE_QUEUED = 0, GP_LEASE_GRANTED = 1 } gp_lease_state;

/* Workers that a lease request accepts. */
typedef enum gp_environment { GP_ENV_ANY = 0, GP_ENV_CPU = 1, GP_ENV_GPU = 2 } gp_environment;

/* Request the pool state. Reply: status_reply. */
typedef struct gp_status_get {
    uint8_t none;
} gp_status_get;

/* Worker entry in a status_reply. */
typedef struct gp_worker_row {
    gp_slot slot;
    uint32_t state; /* gp_worker_state */
    char reason[200];
    uint64_t lease; /* 0: none */
    uint64_t step;  /* current training step; 0: none */

    /* 0: responsive; else suspect, silent for this time; `reason` names the next action */
    uint64_t silent_ms;
} gp_worker_row;

/* Lease entry in a status_reply. */
typedef struct gp_lease_row {
    uint64_t lease;
    uint32_t generation; /* 0 while queued */
    uint32_t client_pid;
    uint32_t state; /* gp_lease_state */
    char purpose[96];
    uint32_t workers; /* workers held, or requested while queued */
    uint64_t age_ms;  /* time since the grant, or since the request while queued */
} gp_lease_row;

/* Pool state: all workers by index, then granted leases, then queued leases. */
typedef struct gp_status_reply {
    char pool[64];
    uint32_t scheduler_pid;
    uint64_t uptime_ms;
    uint64_t epoch;
    uint64_t idle_timeout_ms; /* 0: never */
    bool accepting;           /* false: the pool shuts down when it is idle */
    uint32_t workers_count;
    gp_worker_row workers[GP_WORKERS_MAX];
    uint32_t leases_count;
    gp_lease_row leases[GP_LEASES_MAX];

    /* Listener for other hosts. All four fields are optional on the wire. */
    char listen[GP_TEXT_ENDPOINT]; /* address; "": the scheduler does not listen */
    uint32_t remote_links;         /* current connections */
    uint64_t

        /* Refused keys, failed handshakes, and requests that exceed their key's role or rate. */
        remote_refused;
    uint64_t remote_cut; /* connections that the scheduler closed */
} gp_status_reply;

/* Request the devices that the scheduler found at startup. Reply: devices_reply with one payload,
 * the JSON from `gradpool devices --json`. */
typedef struct gp_devices_get {
    uint8_t none;
} gp_devices_get;

/* Reply to devices_get; the payload carries the device list. */
typedef struct gp_devices_reply {
    uint32_t cores; /* cores for CPU workers */
} gp_devices_reply;

/* Request a lease on workers. Replies:
 *
 *   lease_grant     the workers are available
 *   lease_wait      the request is queued; sent again when position or reason changes
 *   error_reply     GP_ENODEV: the pool can never satisfy the request
 *                   GP_EBUSY: no workers are free and `wait` is false */
typedef struct gp_lease_ask {
    uint32_t workers_min, workers_max; /* 0, 0: all free workers, at least one */
    char devices[256];                 /* "": any; else a list such as "1,3", "cuda:0" or a UUID */
    uint32_t environment;              /* gp_environment */
    char purpose[96];                  /* for example "train lenet"; shown to waiting clients */
    int32_t priority;                  /* higher values first; default 0 */
    bool wait;

    /* Minimum for an elastic lease; 0: fixed size. After worker failures the group continues with
     * this number of members or more. When workers become free, lease_change offers them, up to
     * workers_max. */
    uint32_t workers_floor;
} gp_lease_ask;

/* Notification that a lease request is queued. */
typedef struct gp_lease_wait {
    uint32_t position;           /* position in the queue, from 1 */
    char reason[GP_TEXT_REASON]; /* leases that hold the workers, and since when */
} gp_lease_wait;

/* Leave the queue. Reply: ok_reply. */
typedef struct gp_lease_leave {
    uint8_t none;
} gp_lease_leave;

/* Lease grant; the envelope carries lease and generation. The scheduler sends it again with
 * generation + 1 after it replaced or removed a member, and after lease_form. */
typedef struct gp_lease_grant {
    uint8_t token[16]; /* presented to the workers in attach */
    uint32_t slots_count;
    gp_slot slots[GP_MEMBERS_MAX]; /* by rank */
} gp_lease_grant;

/* Release the lease named in the envelope. Reply: ok_reply. */
typedef struct gp_lease_release {
    uint8_t none;
} gp_lease_release;

/* Notification that the client lost the lease named in the envelope. */
typedef struct gp_lease_ended {
    char reason[GP_TEXT_REASON];
    uint32_t code; /* gp_status; GP_OK: unspecified; GP_ESTALE: lost with its scheduler */
} gp_lease_ended;

/* Notification that a worker in the client's lease failed. A lease_grant with the next generation
 * follows when the worker has been replaced; for an elastic lease it follows at once. */
typedef struct gp_worker_lost {
    uint32_t index, incarnation;
    int32_t signal;    /* 0: exited, -1: unknown */
    int32_t exit_code; /* -1: unknown, or killed by a signal */
    char cause[GP_TEXT_CAUSE];
    char log[GP_TEXT_PATH];
    uint64_t step;          /* last step reported */
    uint32_t out_of_memory; /* 1: the kernel's OOM killer ended the process */
} gp_worker_lost;

/* Notification that a worker in the client's lease is silent or makes no progress, or that the
 * worker has recovered. For display only. */
typedef struct gp_worker_suspect {
    uint32_t index, incarnation;
    uint64_t silent_ms; /* 0: recovered */
    char text[GP_TEXT_REASON];
} gp_worker_suspect;

/* Change the pool size. Reply: status_reply when done, or error_reply GP_EBUSY that names the
 * leases in the way. */
typedef struct gp_resize {
    uint32_t workers;         /* 0: one per device */
    char devices[256];        /* "auto", "cpu", or as in lease_ask; "": unchanged */
    uint64_t idle_timeout_ms; /* 0: never */
} gp_resize;

/* Shut the pool down. Reply: ok_reply, then the scheduler exits. */
typedef struct gp_shutdown {
    bool when_idle; /* true: wait for the last lease; false: revoke all leases now */
} gp_shutdown;

/* Kill and replace a worker whose task does not end. The envelope carries the lease.
 *
 * Reply: ok_reply, then worker_lost and a new grant as after any worker failure; or error_reply
 * GP_ESTALE if the slot has another incarnation by now. */
typedef struct gp_worker_replace {
    uint32_t index, incarnation;
    char reason[GP_TEXT_REASON];
} gp_worker_replace;

/* Member of a claimed lease. */
typedef struct gp_lease_member {
    uint32_t index, incarnation;
} gp_lease_member;

/* Claim a lease after a scheduler failure; sent to the new scheduler.
 *
 * Reply: ok_reply, then worker_lost and lease_grant if members failed meanwhile; or error_reply
 * GP_ESTALE: the lease no longer exists. */
typedef struct gp_lease_claim {
    uint8_t token[16];
    uint32_t workers_min; /* the lease is useless with fewer workers */
    char purpose[96];     /* as in lease_ask */
    uint32_t members_count;
    gp_lease_member members[GP_MEMBERS_MAX]; /* by rank */
    uint32_t workers_floor, workers_max;     /* as in lease_ask; lease_change updates workers_max */
    uint32_t environment;
} gp_lease_claim;

/* Change the size of an elastic lease, which may belong to another client. Reply: ok_reply when
 * that client has been notified, or error_reply. */
typedef struct gp_lease_resize {
    uint64_t lease;   /* 0: the lease that `job` holds */
    uint64_t job;     /* 0: use `lease` */
    uint32_t workers; /* new size, reached when enough workers are free */
} gp_lease_resize;

/* Offer or request to change the size of an elastic lease; the envelope carries lease and
 * generation.
 *
 * The client replies with lease_form once no process works in the current group. Unless `asked` is
 * set, it may ignore the message. Workers in `joining` already belong to the lease: each has a
 * grant for this generation with itself as the only member, so the client can attach and send them
 * train_begin with `prepare`. */
typedef struct gp_lease_change {
    uint32_t workers;
    bool asked; /* true: requested by lease_resize; false: workers became free or were taken */
    uint32_t joining_count;
    gp_slot joining[GP_MEMBERS_MAX];
} gp_lease_change;

/* Request the next generation of an elastic lease. No process works in the old group any more. The
 * new group consists of the old members and the prepared workers, up to the requested size.
 *
 * Reply: lease_grant, or error_reply GP_ESTALE if the client has no such elastic lease. No reply if
 * the generation is outdated: the next grant is already in flight. */
typedef struct gp_lease_form {
    /* bit (index - 1): that worker is prepared; all bits set: accept any worker */
    uint64_t joining;
} gp_lease_form;

/* ---- scheduler and worker ---- */

/* Worker registration, sent after welcome and again to each new scheduler, which rebuilds the
 * leases from these messages. Reply: worker_welcome. */
typedef struct gp_worker_ready {
    gp_slot slot;
    uint32_t state;   /* gp_worker_state */
    char reason[200]; /* why the worker is excluded */
    uint64_t lease;   /* lease being served; 0: none */
    uint32_t generation;
    uint8_t token[16]; /* lease token; optional on the wire */

    /* Client that attached with this token and is still alive; 0: none. Optional on the wire. */
    uint32_t client_pid;
    uint8_t client_session[16];
} gp_worker_ready;

/* Reply to worker_ready. */
typedef struct gp_worker_welcome {
    uint8_t none;
} gp_worker_welcome;

/* Current work of a worker; decides how the scheduler treats a silent worker. */
typedef enum gp_worker_work {
    GP_WORK_OURS = 0, /* no work, or work that another worker can repeat */
    GP_WORK_TRAINING = 1,
    GP_WORK_USERS = 2, /* user code or commands: never killed for being silent */
} gp_worker_work;

/* Heartbeat: sent every 500 ms by the control thread, and when `work` changes. */
typedef struct gp_beat {
    uint32_t state;    /* gp_worker_state */
    uint64_t progress; /* compute thread counter; constant while compute is stuck */
    uint64_t step;
    uint32_t epoch;
    uint32_t work; /* gp_worker_work */

    /* Training only. Time since compute entered the current part of a step that needs neither peers
     * nor data (0: not in one), and the longest such time so far. */
    uint64_t stretch_ms, stretch_max_ms;
} gp_beat;

/* Assign the worker to the lease and generation in the envelope. The worker serves no other. Reply:
 * grant_ack. */
typedef struct gp_grant {
    uint8_t token[16];
    uint32_t client_pid;
    uint32_t rank; /* receiver's rank, from 0: members[rank] is the receiver's slot */
    uint32_t members_count;
    gp_slot members[GP_MEMBERS_MAX];
} gp_grant;

/* Reply to grant. */
typedef struct gp_grant_ack {
    uint8_t none;
} gp_grant_ack;

/* Notification that another worker in the lease failed: abort collectives with it. */
typedef struct gp_peer_lost {
    uint32_t index, incarnation;
    char cause[GP_TEXT_CAUSE];
} gp_peer_lost;

/* Abort all work for the envelope's lease and free the memory. The worker must reply with revoked
 * within 1 s; otherwise the scheduler replaces it. */
typedef struct gp_revoke {
    char reason[GP_TEXT_REASON];
} gp_revoke;

/* Reply to revoke. If `recycle` is set, code or values from the lease remain in the process: the
 * scheduler must send quit and never grant it another lease. */
typedef struct gp_revoked {
    uint32_t recycle; /* 0 or 1 */
} gp_revoked;

/* Exit. The worker does not reply; it closes the control socket. */
typedef struct gp_quit {
    uint8_t none;
} gp_quit;

/* ---- client and worker ---- */

/* Attach to a worker, directly after hello and welcome. The worker compares lease and generation
 * with the current grant. Reply: ok_reply, or error_reply (GP_ESTALE: older grant, GP_EPERM: wrong
 * token). */
typedef struct gp_attach {
    uint8_t token[16];
    uint32_t client_pid;
} gp_attach;

/* Start or prepare a training. Reply: train_ready or error_reply.
 *
 * Payloads: [0] netspec JSON, [1] options JSON, [2] optional initial weights (only their size; see
 * "Weights" in PROTOCOL.md). */
typedef struct gp_train_begin {
    char data[512];            /* absolute path, or a name that the worker resolves */
    char validation_data[512]; /* "": none */
    uint32_t workers;          /* ranks that take part: 0 to workers - 1 */
    uint64_t seed;
    uint32_t restart; /* earlier groups that this training had; 0: new training */

    /* 1: prepare a worker that will join and is alone in its grant. The worker opens the data and
     * builds the state for a rank among `workers`, keeps both for the next generation, and replies
     * with ok_reply. */
    uint32_t prepare;
} gp_train_begin;

/* Reply to train_begin: this rank is ready, and training starts by itself. */
typedef struct gp_train_ready {
    uint32_t rank, world; /* rank from 0, and rank count */
    uint64_t samples, validation_samples;
    uint32_t steps_per_epoch;
    uint32_t batch;      /* samples per step over all ranks */
    uint32_t batch_rank; /* samples on this rank */
    uint64_t parameters;
    uint64_t memory_bytes;
    double ready_ms; /* time since train_begin arrived */
    uint32_t classes;
    uint64_t step;              /* last completed step on resume; 0: start from the beginning */
    double data_ms, network_ms; /* included in ready_ms: open the data; load weights, build plans */
} gp_train_ready;

/* Step metrics on one rank. */
typedef struct gp_train_record {
#define GP_METRIC(type, name, ...) type name;
#include "proto/message/step_fields.def"
} gp_train_record;

/* Steps since the previous train_steps, oldest first. If the worker's queue overflows, records are
 * dropped and counted. */
typedef struct gp_train_steps {
    uint32_t records_count;
    gp_train_record records[GP_RECORDS_MAX];
    uint64_t dropped; /* records dropped since train_begin */
} gp_train_steps;

/* Validation metrics over all ranks. */
typedef struct gp_train_validation {
#define GP_METRIC(type, name, ...) type name;
#include "proto/message/validation_fields.def"
} gp_train_validation;

/* Stop a training. A request to one rank suffices: a flag in the gradient all-reduce delivers it to
 * all ranks. */
typedef struct gp_train_stop {
    bool hard;      /* true: stop now; false: stop after a step and keep the weights */
    uint32_t pause; /* if not hard, 1: pause, and resume in the lease's next generation */
} gp_train_stop;

/* Validation progress, sent by rank 0. */
typedef struct gp_train_validating {
    uint64_t step;     /* step that the validation follows */
    uint64_t done;     /* samples over all ranks, estimated from rank 0 */
    uint64_t count;    /* samples in the validation data; complete if done == count */
    uint64_t excluded; /* targets without a class or value, over all ranks; 0 until complete */
    double seconds;    /* time since the validation started */
} gp_train_validating;

/* Text for the user about a checkpoint that was written or failed; sent by rank 0 between steps. */
typedef struct gp_train_note {
    char text[480];
    bool warning;
} gp_train_note;

/* Reason why a training ended. */
typedef enum gp_stop_reason {
    GP_STOP_COMPLETED = 0,
    GP_STOP_STOPPED = 1, /* on request */
    GP_STOP_FAILED = 2,
    GP_STOP_EARLY = 3,  /* the validation result stopped improving */
    GP_STOP_PAUSED = 4, /* resumes in the lease's next group */
} gp_stop_reason;

/* Training result on this rank. Payloads from rank 0 if status is GP_OK: [0] weights (only their
 * size), [1] class names as JSON. */
typedef struct gp_train_done {
    uint32_t status; /* gp_status */
    char message[480];
    uint32_t stop_reason; /* gp_stop_reason */
    uint64_t step;
    uint32_t epoch;
    double loss;             /* last step's loss; may be NaN or infinite */
    uint64_t skipped;        /* unreadable images on this rank (on-error skip), each counted once */
    char skipped_names[480]; /* the first names, one per line */
} gp_train_done;

/* Results that a predict_part carries in addition to the sums. */
typedef enum gp_predict_answer {
    GP_ANSWER_SCORES,
    GP_ANSWER_CLASSES, /* class with the largest score, per sample or per pixel */
    GP_ANSWER_SUMS,    /* only a confusion matrix: no scores, labels or names */
    GP_ANSWER_COUNT
} gp_predict_answer;

/* Load a network for prediction. Reply: predict_ready or error_reply.
 *
 * Payloads: [0] netspec JSON, [1] weights (only their size), [2] class names as JSON, may be
 * absent. */
typedef struct gp_predict_begin {
    char data[512]; /* "": the predict_ask messages carry the samples */
    uint32_t batch;
    uint32_t precision; /* gp_precision; this and all later fields are optional on the wire */
    uint32_t answer;    /* gp_predict_answer */
    uint32_t floats;    /* predict_ask sample format; 0: uint8, 1: float32 */
    uint64_t samples;   /* total sample count in all predict_ask */

    /* Size to which images are scaled before any crop; 0, 0: as `crop` says. */
    uint32_t image_height, image_width;

    /* 1: accept images with any size, for a network that scores each pixel; `answer` must not be
     * GP_ANSWER_SCORES. */
    uint32_t whole;

    /* Overlap between neighboring windows in pixels, for images larger than the network input. */
    uint32_t overlap;
    uint32_t crop;          /* gp_predict_crop */
    uint32_t on_bad;        /* gp_on_bad (common/data) */
    uint32_t ignore_labels; /* 1: compare with no labels, and do not match class names */
    uint32_t exact_size;    /* 1: refuse images whose size or channels differ from the input */
} gp_predict_begin;

/* Image part that the network sees. */
typedef enum gp_predict_crop {
    /* whole image, scaled to the network input; with image_height set: like MIDDLE */
    GP_PREDICT_ALL,

    /* Center crop at the network's input size, from the image scaled to image_height and
     * image_width (0, 0: from the image as stored). */
    GP_PREDICT_MIDDLE,
    /* Largest center crop with the network input's aspect ratio, scaled to the input size. */
    GP_PREDICT_FIT,
    GP_PREDICT_CROP_COUNT
} gp_predict_crop;

/* Reply to predict_begin. Payload: [0] text about images excluded while the data was opened
 * (on_bad); may be absent. */
typedef struct gp_predict_ready {
    uint64_t samples; /* 0: samples come with predict_ask */

    /* Scores per sample: one per class, per pixel or per value. For GP_ANSWER_CLASSES: classes per
     * sample (1, or one per pixel). */
    uint32_t classes;
    bool has_labels;

    /* Samples that the worker computes at once. Use a multiple as predict_ask.count, else capacity
     * is wasted. Optional on the wire. */
    uint32_t micro_batch;
} gp_predict_ready;

/* Request predictions for a sample range. Payload, if predict_begin named no data: [0] the samples,
 * packed. Reply: one predict_part with the same first and count, or error_reply. */
typedef struct gp_predict_ask {
    uint64_t first; /* first sample's index, from 0 */
    uint32_t count;
} gp_predict_ask;

/* Predictions for one predict_ask. Payloads:
 *
 *   [0]  scores, f32 [count, classes]; or classes [count, classes], 1 byte each, 4 bytes if
 *        there are more than 256 classes
 *   [1]  labels, i32 [count]; empty if a sample has no single class
 *   [2]  sample names
 *   [3]  confusion matrix (gp_confusion_pack()) for GP_ANSWER_SUMS, else empty
 *   [4]  u8 [count], 1: the sample was skipped; absent if no sample was skipped
 *   [5]  names for the skipped samples; absent like [4]
 *
 * A skipped sample (on_bad) counts in no sum. Row, label and name are present, but the row has no
 * meaning; with whole images the row has height and width 0.
 *
 * The sums cover this part (see graph.h). All are 0 if the data has no labels to compare with. */
typedef struct gp_predict_part {
    uint64_t first;
    uint32_t count;
    double loss;       /* sum over the part; may be NaN or infinite */
    double correct;    /* weight of the correctly predicted classes */
    double weight;     /* divisor of `loss` */
    double classed;    /* divisor of `correct` */
    double squares;    /* sum of squared errors */
    double values;     /* divisor of `squares` */
    uint32_t labelled; /* samples with a label */
    uint64_t excluded; /* targets without a class or value, skipped samples not counted */
} gp_predict_part;

/* Free the network loaded by predict_begin. Reply: ok_reply. */
typedef struct gp_predict_end {
    uint8_t none;
} gp_predict_end;

/* Open the shared-memory link whose descriptors were sent through the control socket (task_wire.h).
 * Reply: task_ready or error_reply. */
typedef struct gp_task_open {
    uint32_t link_version; /* GP_LINK_VERSION */
    uint32_t task_abi;     /* GP_TASK_ABI, from the client build */
} gp_task_open;

/* Reply to task_open: the link is open. Carries the worker's versions. */
typedef struct gp_task_ready {
    uint32_t link_version;
    uint32_t task_abi;
} gp_task_ready;

/* Cancel a running call's waits for other workers: the waiting operations fail with GP_ECANCELED.
 * No reply; the call itself is answered as usual. */
typedef struct gp_task_stop {
    uint64_t call;
} gp_task_stop;

/* Start a command runner on the worker. The client then requests the runner's socket through the
 * worker's control socket, with `what` GP_RUNNER_WHAT (runner_wire.h). Reply: ok_reply or
 * error_reply. */
typedef struct gp_run_open {
    uint8_t none;
} gp_run_open;

/* ---- background jobs: client and scheduler ---- */

/* Job state as recorded in the journal. */
typedef enum gp_job_row_state {
    GP_JOB_ROW_QUEUED = 1,
    GP_JOB_ROW_STARTING = 2,
    GP_JOB_ROW_RUNNING = 3,
    GP_JOB_ROW_STOPPING = 4, /* canceled; the process has not exited yet */
    GP_JOB_ROW_DONE = 5,
    GP_JOB_ROW_FAILED = 6,
    GP_JOB_ROW_CANCELED = 7,
    GP_JOB_ROW_LOST = 8, /* every attempt ended with a scheduler failure */
} gp_job_row_state;

/* Meaning of gp_job_row.number. */
typedef enum gp_job_exit {
    GP_JOB_EXIT_NONE = 0,
    GP_JOB_EXIT_CODE = 1,
    GP_JOB_EXIT_SIGNAL = 2,
    GP_JOB_EXIT_UNKNOWN = 3, /* exited while no scheduler was running */
} gp_job_exit;

/* Submit a job. A repeated submitter and seq gets the same reply and creates no second job. Reply:
 * job_accepted when the job is on disk, or error_reply.
 *
 * Payloads: [0] command words ("train", "--network", ...), [1] environment ("PATH=/bin", ...), [2]
 * working directory, absolute path. Each text ends with a NUL. */
typedef struct gp_job_put {
    uint8_t submitter[16]; /* random id that names the submitting client */
    uint64_t seq;
    char name[64];
    int32_t priority; /* higher values start first; default 0 */
    uint32_t umask;
} gp_job_put;

/* Reply to job_put: the job is durable. */
typedef struct gp_job_accepted {
    uint64_t job;
    bool known; /* the job had been submitted before */
} gp_job_accepted;

/* Recorded job state. */
typedef struct gp_job_row {
    uint64_t job;
    char name[64];
    char command[96]; /* command words, truncated */
    uint32_t state;   /* gp_job_row_state */
    int32_t priority;
    uint32_t attempts;     /* attempts started */
    bool cancel;           /* cancellation was requested */
    uint32_t pid;          /* last attempt's pid; 0: none */
    uint32_t workers;      /* workers held now, or the most held at once */
    uint32_t exit;         /* gp_job_exit */
    uint32_t number;       /* exit code or signal */
    uint64_t age_ms;       /* time since submission */
    uint64_t run_ms;       /* last attempt's run time, so far or in total */
    uint64_t ended_ms;     /* time since the end; 0: not ended */
    char reason[200];      /* why the job failed, was canceled, lost or queued again */
    uint64_t submitted_ms; /* scheduler host's wall clock, since 1970; 0: unknown */
} gp_job_row;

/* Request a job page with ids below `before`, newest first. Reply: jobs_reply. */
typedef struct gp_jobs_get {
    uint64_t before; /* 0: start with the newest job */
    uint32_t states; /* bit s: jobs in state s; 0: all jobs */
    uint32_t count;  /* most rows in the reply */
} gp_jobs_get;

/* Job page, newest first, with totals. */
typedef struct gp_jobs_reply {
    uint32_t rows_count;
    gp_job_row rows[GP_JOB_ROWS_MAX];
    bool more; /* more rows follow; request them with before = last row's job */
    uint32_t queued, running, done, failed, canceled, lost; /* totals over all recorded jobs */
} gp_jobs_reply;

/* Request one job. Reply: job_reply or error_reply GP_ENOENT. */
typedef struct gp_job_ask {
    uint64_t job;
} gp_job_ask;

/* Reply to job_ask. */
typedef struct gp_job_reply {
    gp_job_row row;

    /* Folder with job.json, log, metrics.jsonl and result/; exists from the first attempt on. */
    char folder[GP_TEXT_FOLDER];
} gp_job_reply;

/* Cancel one job or all. Reply: job_stopping when the request is on disk, or error_reply. */
typedef struct gp_job_stop {
    uint64_t job; /* 0: all unfinished jobs */
} gp_job_stop;

/* Reply to job_stop. */
typedef struct gp_job_stopping {
    uint32_t count; /* jobs canceled by this request */
} gp_job_stopping;

/* Subscribe to state changes until the link closes. Reply: job_changed with the current state, or
 * ok_reply if `job` is 0. */
typedef struct gp_job_watch {
    uint64_t job; /* 0: all jobs */
} gp_job_watch;

/* Notification about a state change, with the job_watch's correlation. An error_reply with this
 * correlation ends the subscription: the pool shuts down, or jobs can no longer be recorded. */
typedef struct gp_job_changed {
    gp_job_row row;
    bool missed; /* earlier changes were dropped because the client read too slowly; query again */
} gp_job_changed;

/* File that job_read can return. */
typedef enum gp_job_file {
    GP_JOB_FILE_LOG = 1,
    GP_JOB_FILE_METRICS = 2,
    GP_JOB_FILE_FACTS = 3,
    GP_JOB_FILE_RECORD = 4, /* job.json */
    GP_JOB_FILE_END = 5,
    GP_JOB_FILE_REPORT = 6,
    GP_JOB_FILE_SCHEDULER_LOG = 7, /* scheduler log; also covers other jobs */
    GP_JOB_FILE_WORKER_LOG = 8,
} gp_job_file;

/* Read part of a file in a job folder, or of a daemon log; for clients without access to the
 * scheduler's files. Reply: job_piece with one payload, the bytes, or error_reply GP_ENOENT. */
typedef struct gp_job_read {
    uint64_t job;
    uint32_t file;   /* gp_job_file */
    uint32_t worker; /* worker index from 1 for GP_JOB_FILE_WORKER_LOG, else 0 */
    uint64_t offset;
    uint32_t bytes; /* most bytes in the reply */
} gp_job_read;

/* Reply to job_read; the payload may be empty. */
typedef struct gp_job_piece {
    uint64_t offset; /* payload offset in the file */
    uint64_t size;   /* current file size */
    uint64_t file;   /* file identity; changes if the file was recreated; 0: no file (yet) */
} gp_job_piece;

/* Message types: gp_msg_hello and so on. */
#define GP_MSG(id, name, direction) extern const gp_message_type gp_msg_##name;
#include "proto/message/messages.def"
#undef GP_MSG

/* Message ids as constants, for switch (in.envelope.message) { case GP_ID(hello): ... } */
enum {
#define GP_MSG(id, name, direction) gp_id_##name = id,
#include "proto/message/messages.def"
#undef GP_MSG
};
#define GP_ID(name) gp_id_##name

#endif
