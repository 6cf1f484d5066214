/* limits.h -- the protocol's numbers and every ceiling on what a peer may send.
 *
 * The field tables (msg_<family>.c) check these on both sides: a value over its ceiling is neither sent nor
 * accepted.  Ceilings are wide enough for any machine we know and small enough that no sum of a few of them
 * overflows 64 bits.  PROTOCOL.md repeats them for writers of other clients. */
#ifndef GP_LIMITS_H
#define GP_LIMITS_H

#include <stdint.h>

/* The protocol this build speaks, and the oldest it still understands. */
#define GP_PROTOCOL     1u
#define GP_PROTOCOL_MIN 1u
#define GP_PROTOCOL_MAX 65535u /* the largest number a peer may claim */

/* Bytes and frames of one ZeroMQ message. */
#define GP_ENVELOPE_BYTES_MAX 256u
#define GP_BODY_BYTES_MAX     (1u << 20)
#define GP_PAYLOAD_BYTES_MAX  (256u << 20) /* one raw frame: scores, samples */
#define GP_PAYLOADS_MAX       8u
#define GP_MESSAGE_BYTES_MAX                                                                                 \
    (4u << 20) /* all frames of a message to the scheduler; the largest has 1.3 MiB */
#define GP_BULK_MESSAGE_BYTES_MAX                                                                            \
    (272u << 20) /* all frames of a message to a worker: one large payload and the rest */
#define GP_REMOTE_FRAME_BYTES_MAX (128u << 10) /* one frame from another host to the scheduler */
#define GP_JOB_PIECE_BYTES_MAX    (128u << 10) /* of a job's file in one job_piece */

/* msgpack, checked before any decode. */
#define GP_MSGPACK_DEPTH_MAX 16u
#define GP_MSGPACK_NODES_MAX 65536u
#define GP_MSGPACK_TEXT_MAX  65536u

/* Counts. */
#define GP_WORKERS_MAX      256u      /* workers of a pool */
#define GP_MEMBERS_MAX      64u       /* slots of one lease, ranks of one group */
#define GP_LEASES_MAX       64u       /* leases granted and waiting */
#define GP_RECORDS_MAX      64u       /* step records in one train_steps */
#define GP_JOB_ROWS_MAX     256u      /* jobs in one jobs_reply */
#define GP_REMOTE_LINKS_MAX 512u      /* connections from other hosts */
#define GP_JOBS_MAX         10000000u /* any count of jobs */

/* A job's payloads. */
#define GP_JOB_WORDS_BYTES_MAX       (64u << 10)
#define GP_JOB_WORDS_MAX             1024u
#define GP_JOB_ENVIRONMENT_BYTES_MAX (64u << 10)
#define GP_JOB_VARIABLES_MAX         512u
#define GP_JOB_DIRECTORY_BYTES_MAX   4096u

/* Ranges of single fields. */
#define GP_PID_MAX          4194304u /* the kernel's PID_MAX_LIMIT */
#define GP_INCARNATION_MAX  UINT32_MAX
#define GP_GENERATION_MAX   UINT32_MAX
#define GP_DEVICE_INDEX_MAX 1023u
#define GP_CORES_MAX        4096u
#define GP_PRIORITY_MAX     1000
#define GP_DURATION_MS_MAX  315360000000ull /* ten years */
#define GP_SECONDS_MAX      315360000.0     /* ten years */
#define GP_BATCH_MAX        (1u << 20)      /* samples per step, all ranks together */
#define GP_SAMPLES_MAX      (1ull << 40)
#define GP_STEPS_MAX        (1ull << 48)
#define GP_EPOCHS_MAX       1000000000u
#define GP_CLASSES_MAX      65536u
#define GP_PREDICT_SIDE_MAX 8192u      /* of images before the crop */
#define GP_SCORES_MAX       (1u << 28) /* of one sample */
#define GP_ERROR_MAX        1e300
#define GP_PARAMETERS_MAX   (1ull << 36)
#define GP_MEMORY_MAX       (1ull << 50)
#define GP_LEARN_RATE_MAX   1e6
#define GP_LOSS_SCALE_MAX   1e30

/* Sizes of texts, with the NUL. */
#define GP_TEXT_ENDPOINT 108 /* "ipc://" + a socket path of at most 100 bytes */
#define GP_TEXT_PATH     160 /* a log file */
#define GP_TEXT_REASON   240
#define GP_TEXT_WORDS    240 /* a process's last: why it ended itself, and what to do */
#define GP_TEXT_CAUSE    400 /* of a worker's death: what its library said, what to do, its log */
#define GP_TEXT_FOLDER   200 /* of a job */

#endif
