/* Packets between a client and a command runner.
 *
 * A runner is a process beside a worker that starts commands (worker/exec/runner.h). The client
 * gets one end of an AF_UNIX SOCK_SEQPACKET pair through the worker's control socket; from then on
 * client and runner communicate directly. One packet is one request or one answer. The structs are
 * sent as they are in memory, because both processes run on the same kernel; static assertions
 * check their layout.
 *
 *   client  START job + descriptors [spec, stdin, stdout, stderr]
 *           KILL job
 *   runner  STARTED job, later ENDED job
 *           FAILED job: the command never ran
 *
 * The spec is a memfd with all that the command inherits: directory, umask, open file limit,
 * arguments, environment. When the runner sees end of file, it kills all processes that its
 * commands started. */
#ifndef GP_RUNNER_WIRE_H
#define GP_RUNNER_WIRE_H

#include <stdint.h>

#include "common/base/error.h"

#define GP_RUNNER_MAGIC 0x52504731u /* "1GPR" in memory */

enum {
    GP_RUNNER_WHAT = 0x100, /* value of gp_control_socket_request.what that requests the runner's socket */
    GP_RUNNER_JOBS_MAX = 256,
    GP_RUNNER_GRACE_MS_MAX = 3600000,
    GP_RUNNER_SPEC_BYTES_MAX = 8 << 20,
    GP_RUNNER_WORDS_MAX = 65536, /* most arguments, and most variables */
    GP_RUNNER_FDS = 4,
    GP_RUNNER_TEXT_MAX = 416,
};

/* Requests of the client. */
typedef enum gp_runner_ask { GP_RUNNER_START = 1, GP_RUNNER_KILL = 2 } gp_runner_ask;

/* Packet from the client to the runner. */
typedef struct gp_runner_request {
    uint32_t magic;
    uint32_t kind;       /* gp_runner_ask */
    uint64_t job;        /* chosen by the client; not 0 and not the id of a running job */
    uint32_t spec_bytes; /* START: spec size */
    uint32_t grace_ms;   /* KILL: time from SIGTERM to SIGKILL; 0: SIGKILL at once */
} gp_runner_request;

/* Answers of the runner. */
typedef enum gp_runner_event {
    GP_RUNNER_STARTED = 1,
    GP_RUNNER_ENDED = 2,
    GP_RUNNER_FAILED = 3
} gp_runner_event;

/* Packet from the runner to the client. */
typedef struct gp_runner_answer {
    uint32_t magic;
    uint32_t kind; /* gp_runner_event */
    uint64_t job;
    uint32_t pid;      /* STARTED, ENDED */
    uint32_t status;   /* FAILED: gp_status; `text` has the message */
    int32_t exit_code; /* ENDED: -1: killed by a signal; FAILED: 126 or 127, as in a shell */
    int32_t signal;    /* ENDED; 0: none */
    uint32_t core;     /* ENDED; 1: the process dumped core */
    uint32_t reserved; /* 0 */

    /* ENDED: elapsed time, and CPU time of the process with the children it waited for */
    double seconds;
    double user_seconds, system_seconds;
    uint64_t rss_bytes; /* ENDED: peak resident set size */
    char text[GP_RUNNER_TEXT_MAX];
} gp_runner_answer;

/* All that a command inherits. The pointers are borrowed. */
typedef struct gp_runner_spec {
    const char *directory;          /* absolute path */
    const char *const *arguments;   /* NULL-terminated, at least one */
    const char *const *environment; /* NULL-terminated "NAME=value" strings */
    uint32_t mask;                  /* umask, 0 to 0777 */
    uint64_t files_max;             /* soft limit for open files; 0: same as the runner */
} gp_runner_spec;

/* Write a spec to a new memfd, which the caller closes, and set *bytes to the size.
 *
 * GP_ELIMIT: the spec exceeds a limit above.
 * GP_EINVAL: no arguments, or a relative directory. */
gp_status gp_runner_spec_write(int *fd, uint32_t *bytes, const gp_runner_spec *spec, gp_error *err);

/* Read and check a spec that a client wrote. *out points into *memory; the caller frees *memory
 * with gp_free(). fd stays open.
 *
 * GP_EPROTO: malformed spec or size out of range.
 * GP_ENOMEM: out of memory. */
gp_status gp_runner_spec_read(gp_runner_spec *out, void **memory, int fd, uint32_t bytes, gp_error *err);

/* ---- packets; no function here blocks ---- */

/* Send a packet. GP_EBUSY: the peer does not read. GP_EPEER: the peer exited. */
gp_status gp_runner_ask_send(int socket, gp_runner_request *request, const int *fds, uint32_t fd_count,
                             gp_error *err);
gp_status gp_runner_answer_send(int socket, gp_runner_answer *answer, gp_error *err);

/* Receive a packet. *fd_count is set to 0, or to GP_RUNNER_FDS if the request carries descriptors.
 * They are close-on-exec, and the caller closes them.
 *
 * GP_ETIMEDOUT: no packet is pending.
 * GP_EPEER: end of file.
 * GP_EPROTO: malformed packet; all descriptors have been closed. */
gp_status gp_runner_ask_receive(int socket, gp_runner_request *request, int fds[GP_RUNNER_FDS],
                                uint32_t *fd_count, gp_error *err);
gp_status gp_runner_answer_receive(int socket, gp_runner_answer *answer, gp_error *err);

#endif
