/* Protocol messages as plain C structs, without pointers: texts and lists are inline.
 *
 * messages.def lists all messages with their fields. Message NAME has the struct gp_NAME and the
 * type gp_msg_NAME, which codec and channel use. error_reply and status_reply have their suffix
 * because gp_error and gp_status are taken. The member `none` stands in for an empty struct,
 * which C lacks; it is not sent.
 *
 * The rows in messages.def define the ranges; PROTOCOL.md lists them. A text is NUL-terminated
 * UTF-8: char x[108] holds 107 bytes. A list is an array and a counter <list>_count.
 * Long texts and tensors (netspec, options, scores) travel as payload frames, listed at each
 * message.
 *
 * gp_status_reply has about 380 KiB: do not put it on a small stack. */
#ifndef GP_MESSAGES_H
#define GP_MESSAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/message/codec.h"

/* ---- any to any ---- */

/* Role that a process claims when it opens a link. */
typedef enum gp_role {
    GP_ROLE_CLIENT = 1,
    GP_ROLE_WORKER = 2,
    GP_ROLE_VIEWER = 3,
    /* new scheduler that notifies a worker; control socket of workers only */
    GP_ROLE_SCHEDULER = 4,
} gp_role;

/* ---- slot: worker index, device and cores, and the process that uses them ---- */

typedef enum gp_device_kind { GP_DEVICE_NONE = 0, GP_DEVICE_CPU = 1, GP_DEVICE_CUDA = 2 } gp_device_kind;

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

/* ---- scheduler and worker ---- */

/* Current work of a worker; decides how the scheduler treats a silent worker. */
typedef enum gp_worker_work {
    GP_WORK_OURS = 0, /* no work, or work that another worker can repeat */
    GP_WORK_TRAINING = 1,
    GP_WORK_USERS = 2, /* user code or commands: never killed for being silent */
} gp_worker_work;

/* ---- client and worker ---- */

/* Reason why a training ended. */
typedef enum gp_stop_reason {
    GP_STOP_COMPLETED = 0,
    GP_STOP_STOPPED = 1, /* on request */
    GP_STOP_FAILED = 2,
    GP_STOP_EARLY = 3,  /* the validation result stopped improving */
    GP_STOP_PAUSED = 4, /* resumes in the lease's next group */
} gp_stop_reason;

/* Results that a predict_part carries in addition to the sums. */
typedef enum gp_predict_answer {
    GP_ANSWER_SCORES,
    GP_ANSWER_CLASSES, /* class with the largest score, per sample or per pixel */
    GP_ANSWER_SUMS,    /* only a confusion matrix: no scores, labels or names */
    GP_ANSWER_COUNT
} gp_predict_answer;

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

/* Kind of a job. */
typedef enum gp_job_row_kind {
    GP_JOB_ROW_ORDINARY = 0,
    GP_JOB_ROW_SWEEP = 1, /* controls trials and leases no workers */
    GP_JOB_ROW_TRIAL = 2, /* submitted by a sweep */
} gp_job_row_kind;

/* Meaning of gp_job_row.number. */
typedef enum gp_job_exit {
    GP_JOB_EXIT_NONE = 0,
    GP_JOB_EXIT_CODE = 1,
    GP_JOB_EXIT_SIGNAL = 2,
    GP_JOB_EXIT_UNKNOWN = 3, /* exited while no scheduler was running */
} gp_job_exit;

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

/* ---- structs, ids and types from messages.def ---- */

/* Declare the member for a field, by kind. */
#define GP_MEMBER_BOOL(member)         bool member;
#define GP_MEMBER_U32(member, ...)     uint32_t member;
#define GP_MEMBER_U32_OPTIONAL         GP_MEMBER_U32
#define GP_MEMBER_STATUS               GP_MEMBER_U32
#define GP_MEMBER_U64(member, ...)     uint64_t member;
#define GP_MEMBER_U64_OPTIONAL         GP_MEMBER_U64
#define GP_MEMBER_I32(member, ...)     int32_t member;
#define GP_MEMBER_F64(member, ...)     double member;
#define GP_MEMBER_F64_OR_NAN           GP_MEMBER_F64
#define GP_MEMBER_F64_OPTIONAL         GP_MEMBER_F64
#define GP_MEMBER_F64_ANY(member)      double member;
#define GP_MEMBER_TEXT(member, bytes)  char member[bytes];
#define GP_MEMBER_TEXT_OPTIONAL        GP_MEMBER_TEXT
#define GP_MEMBER_PROSE                GP_MEMBER_TEXT
#define GP_MEMBER_BIN16(member)        uint8_t member[16];
#define GP_MEMBER_BIN16_OPTIONAL       GP_MEMBER_BIN16
#define GP_MEMBER_STRUCT(member, type) type member;
#define GP_MEMBER_LIST(member, type, max)                                                                    \
    uint32_t member##_count;                                                                                 \
    type member[max];
#define GP_MEMBER_LIST_OPTIONAL GP_MEMBER_LIST

/* Message ids are constants, for switch (in.envelope.message) { case GP_ID(hello): ... } */
#define GP_ID(name) gp_id_##name
#define GP_MSG(id, name, direction)                                                                          \
    enum { GP_ID(name) = id };                                                                               \
    extern const gp_message_type gp_msg_##name;                                                              \
    typedef struct gp_##name {
#define GP_EMPTY(id, name, direction)                                                                        \
    GP_MSG(id, name, direction) uint8_t none;                                                                \
    GP_END(gp_##name)
#define GP_STRUCT(type)                                                                                      \
    extern const gp_field type##_fields[];                                                                   \
    typedef struct type {
#define GP_FIELD(kind, type, member, ...) GP_MEMBER_##kind(member, ##__VA_ARGS__)
#define GP_END(type)                                                                                         \
    }                                                                                                        \
    type;
#include "proto/message/messages.def"

#endif
