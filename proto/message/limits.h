/* Protocol version numbers and the limits on everything a peer may send.
 *
 * The field tables (messages.def) enforce these limits on both sides: a value over its limit is
 * neither sent nor accepted. The limits are large enough for any known machine, and small enough
 * that a sum of a few values cannot overflow 64 bits. PROTOCOL.md repeats them for authors of other
 * clients. */
#ifndef GP_LIMITS_H
#define GP_LIMITS_H

#include <stdint.h>

/* Current protocol version, and the oldest version that is still supported. */
#define GP_PROTOCOL     1u
#define GP_PROTOCOL_MIN 1u
#define GP_PROTOCOL_MAX 65535u /* highest version number that a peer may claim */

/* Frame sizes in bytes and frame count per ZeroMQ message. */
#define GP_ENVELOPE_BYTES_MAX 256u
#define GP_BODY_BYTES_MAX     (1u << 20)
#define GP_PAYLOAD_BYTES_MAX  (256u << 20) /* a raw frame, for example scores or samples */
#define GP_PAYLOADS_MAX       8u
#define GP_MESSAGE_BYTES_MAX                                                                                 \
    (4u << 20) /* frames of a message to the scheduler, in total; 1.3 MiB is the most in use */
#define GP_BULK_MESSAGE_BYTES_MAX                                                                            \
    (272u << 20) /* frames of a message to a worker, in total: one large payload and the rest */
#define GP_REMOTE_FRAME_BYTES_MAX (128u << 10) /* a frame from another host to the scheduler */
#define GP_JOB_PIECE_BYTES_MAX    (128u << 10) /* job file bytes in one job_piece */

/* Limits that gp_msgpack_validate() enforces before any decoding: depth, values, text bytes. */
#define GP_MSGPACK_DEPTH_MAX 16u
#define GP_MSGPACK_NODES_MAX 65536u
#define GP_MSGPACK_TEXT_MAX  65536u

/* Counts. */
#define GP_WORKERS_MAX      256u      /* workers in a pool */
#define GP_MEMBERS_MAX      64u       /* slots in a lease, ranks in a group */
#define GP_LEASES_MAX       64u       /* leases, both granted and queued */
#define GP_RECORDS_MAX      64u       /* step records in one train_steps */
#define GP_JOB_ROWS_MAX     256u      /* jobs in one jobs_reply */
#define GP_REMOTE_LINKS_MAX 512u      /* connections from other hosts */
#define GP_JOBS_MAX         10000000u /* largest job count */
#define GP_JOB_GRACE_MS     10000u    /* default time from SIGTERM to SIGKILL of a canceled job */
#define GP_JOB_GRACE_MS_MAX 3600000u

/* job_put payloads: command words, environment variables and directory. */
#define GP_JOB_WORDS_BYTES_MAX       (64u << 10)
#define GP_JOB_WORDS_MAX             1024u
#define GP_JOB_ENVIRONMENT_BYTES_MAX (64u << 10)
#define GP_JOB_VARIABLES_MAX         512u
#define GP_JOB_DIRECTORY_BYTES_MAX   4096u

/* Ranges for single fields. */
#define GP_PID_MAX          4194304u /* the kernel's PID_MAX_LIMIT */
#define GP_INCARNATION_MAX  UINT32_MAX
#define GP_GENERATION_MAX   UINT32_MAX
#define GP_DEVICE_INDEX_MAX 1023u
#define GP_CORES_MAX        4096u
#define GP_PRIORITY_MAX     1000
#define GP_DURATION_MS_MAX  315360000000ull /* ten years */
#define GP_SECONDS_MAX      315360000.0     /* ten years */
#define GP_BATCH_MAX        (1u << 20)      /* samples per step over all ranks */
#define GP_SAMPLES_MAX      (1ull << 40)
#define GP_STEPS_MAX        (1ull << 48)
#define GP_EPOCHS_MAX       1000000000u
#define GP_CLASSES_MAX      65536u
#define GP_PREDICT_SIDE_MAX 8192u      /* image height or width before cropping, pixels */
#define GP_SCORES_MAX       (1u << 28) /* scores per sample */
#define GP_ERROR_MAX        1e300
#define GP_PARAMETERS_MAX   (1ull << 36)
#define GP_MEMORY_MAX       (1ull << 50)
#define GP_LEARN_RATE_MAX   1e6
#define GP_LOSS_SCALE_MAX   1e30

/* Text sizes in bytes, including the terminating NUL. */
#define GP_TEXT_ENDPOINT 108 /* "ipc://" and a socket path (at most 100 bytes) */
#define GP_TEXT_PATH     160 /* log file path */
#define GP_TEXT_REASON   240
#define GP_TEXT_WORDS    240 /* exit reason that a process leaves behind, with advice */
#define GP_TEXT_CAUSE    400 /* why a worker failed: library error, advice, log path */
#define GP_TEXT_FOLDER   200 /* job folder path */

/* Resources of a worker, and of a pool (common/base/text/resources.h). */
#define GP_TEXT_RESOURCES         512
#define GP_TEXT_RESOURCES_SETTING 1024

#endif
