/* runner_wire.h -- what a client and a runner say to each other.
 *
 * A runner is the process beside a worker that starts commands (worker/exec/runner.h).  Its end of an AF_UNIX
 * SOCK_SEQPACKET pair reaches the client through the worker's door; from then on the two talk directly.  One packet
 * is one request or one answer, structs as they are in memory (same host, same kernel), layout pinned below.
 *
 *   client   START job + descriptors [spec, stdin, stdout, stderr]      KILL job
 *   runner   STARTED job                      then ENDED job            or FAILED job: it never ran
 *
 * The spec is a memfd with what a command inherits: directory, umask, limit of open files, arguments, environment.
 * End of file: the other one is gone; the runner then kills all that its commands started. */
#ifndef GP_RUNNER_WIRE_H
#define GP_RUNNER_WIRE_H

#include <stdint.h>
#include <sys/types.h>

#include "common/base/error.h"

#define GP_RUNNER_MAGIC 0x52504731u /* "1GPR" in memory */

enum {
    GP_RUNNER_WHAT = 0x100, /* gp_door_request.what: the runner's socket */
    GP_RUNNER_JOBS_MAX = 256,
    GP_RUNNER_GRACE_MS_MAX = 3600000,
    GP_RUNNER_SPEC_BYTES_MAX = 8 << 20,
    GP_RUNNER_WORDS_MAX = 65536, /* arguments, and variables */
    GP_RUNNER_FDS = 4,
    GP_RUNNER_TEXT_MAX = 416,
};

typedef enum gp_runner_ask { GP_RUNNER_START = 1, GP_RUNNER_KILL = 2 } gp_runner_ask;

typedef struct gp_runner_request {
    uint32_t magic;
    uint32_t kind;       /* gp_runner_ask */
    uint64_t job;        /* of the client's making; not 0, of no other job that runs */
    uint32_t spec_bytes; /* START */
    uint32_t grace_ms;   /* KILL: SIGTERM, and SIGKILL so much later; 0 = SIGKILL at once */
} gp_runner_request;

typedef enum gp_runner_news {
    GP_RUNNER_STARTED = 1,
    GP_RUNNER_ENDED = 2,
    GP_RUNNER_FAILED = 3
} gp_runner_news;

typedef struct gp_runner_answer {
    uint32_t magic;
    uint32_t kind; /* gp_runner_news */
    uint64_t job;
    uint32_t pid;      /* STARTED, ENDED */
    uint32_t status;   /* FAILED: a gp_status; its sentence is in text */
    int32_t exit_code; /* ENDED: -1 = by signal; FAILED: what a shell says, 126 or 127 */
    int32_t signal;    /* ENDED: 0 = none */
    uint32_t core;     /* ENDED: 1 = it left a core */
    uint32_t reserved; /* 0 */
    double seconds;    /* ENDED: from start to end; processor time of it and of the children it waited for */
    double user_seconds, system_seconds;
    uint64_t rss_bytes; /* ENDED: its largest resident size */
    char text[GP_RUNNER_TEXT_MAX];
} gp_runner_answer;

/* What a command inherits; all borrowed. */
typedef struct gp_runner_spec {
    const char *directory;          /* absolute */
    const char *const *arguments;   /* NULL-terminated, at least one */
    const char *const *environment; /* NULL-terminated, "NAME=value" each */
    uint32_t mask;                  /* umask, 0 to 0777 */
    uint64_t files_max;             /* soft limit of open files; 0 = the runner's own */
} gp_runner_spec;

/* gp_runner_spec_write -- the spec as a memfd that the caller closes.  GP_ELIMIT: over the ceilings above.
 * GP_EINVAL: no argument, a relative directory. */
gp_status gp_runner_spec_write(int *fd, uint32_t *bytes, const gp_runner_spec *spec, gp_error *err);

/* gp_runner_spec_read -- what a client wrote, checked; *out points into *memory, which the caller frees with
 * gp_free().  fd stays the caller's.  GP_EPROTO, GP_ELIMIT, GP_ENOMEM. */
gp_status gp_runner_spec_read(gp_runner_spec *out, void **memory, int fd, uint32_t bytes, gp_error *err);

/* ---- packets; neither blocks ---- */

/* GP_EBUSY: the other end does not read.  GP_EPEER: it is gone. */
gp_status gp_runner_ask_send(int socket, gp_runner_request *request, const int *fds, uint32_t fd_count,
                             gp_error *err);
gp_status gp_runner_answer_send(int socket, gp_runner_answer *answer, gp_error *err);

/* *fd_count: 0, or GP_RUNNER_FDS with close-on-exec descriptors that are the caller's.  GP_ETIMEDOUT: none waits.
 * GP_EPEER: end of file.  GP_EPROTO: what came is no request; its descriptors are closed. */
gp_status gp_runner_ask_receive(int socket, gp_runner_request *request, int fds[GP_RUNNER_FDS],
                                uint32_t *fd_count, gp_error *err);
gp_status gp_runner_answer_receive(int socket, gp_runner_answer *answer, gp_error *err);

#endif
